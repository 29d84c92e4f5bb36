//! Each kind of bad input gives one clear message that names the key or file, and its exit code; nothing panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common;
use contract::run_file::RunFile;
use serde_yaml::Value;
use trainer::error::TrainerError;

/// The message for the tiny run after a change.
fn refusal(recipe: &str, change: impl FnOnce(&mut Value)) -> String {
    let text = serde_yaml::to_string(&common::tiny_yaml(common::recipe(recipe), change)).unwrap();
    match RunFile::parse("run.yaml", &text) {
        Ok(_) => "accepted".into(),
        Err(error) => {
            let error = TrainerError::from(error);
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        }
    }
}

#[test]
fn every_broken_rule_names_its_key() {
    assert_eq!(refusal("mxfp4-fdw-h16", |_| ()), "accepted");
    type Change = fn(&mut Value);
    let h16 = "mxfp4-fdw-h16";
    let cases: [(&str, Change, &str); 28] = [
        (h16, |run| run["schema"] = "mxfp4-run/2".into(), "mxfp4-run/2"),
        (h16, |run| run["model"]["hiden_size"] = 1.into(), "hiden_size"),
        (h16, |run| run["budget"] = Value::Null, "budget"),
        (h16, |run| run["budget"]["steps"] = "many".into(), "budget.steps"),
        (h16, |run| run["budget"]["steps"] = 0.into(), "budget.steps"),
        (h16, |run| run["batch"]["sequences"] = 0.into(), "batch.sequences"),
        (h16, |run| run["model"]["num_key_value_heads"] = 3.into(), "num_key_value_heads"),
        (h16, |run| run["model"]["head_dim"] = 15.into(), "head_dim"),
        (h16, |run| run["model"]["vocab_size"] = u64::MAX.into(), "model"),
        (h16, |run| run["model"]["intermediate_size"] = 72.into(), "rotation.size"),
        (h16, |run| run["model"]["rms_norm_eps"] = (-1.0).into(), "rms_norm_eps"),
        (
            "mxfp4-fdw",
            |run| {
                run["model"]["sequence_length"] = 5.into();
                run["batch"]["sequences"] = 5.into();
            },
            "recipe.passes.wgrad",
        ),
        ("mxfp4-fdw", |run| run["recipe"]["passes"]["fprop"]["input"]["block"] = "tensor".into(), "recipe.passes.fprop.input.block"),
        ("mxfp4-fdw", |run| run["recipe"]["passes"]["fprop"]["input"]["format"] = "bf16".into(), "recipe.passes.fprop.input.block"),
        ("mxfp4-fdw", |run| run["recipe"]["passes"]["fprop"]["input"]["scale"] = "delayed".into(), "recipe.passes.fprop.input.scale"),
        ("fp8", |run| run["recipe"]["delayed_scaling"] = Value::Null, "recipe.delayed_scaling"),
        ("fp8", |run| run["recipe"]["delayed_scaling"]["history"] = 0.into(), "recipe.delayed_scaling.history"),
        ("fp8", |run| run["recipe"]["delayed_scaling"]["history"] = 65_537.into(), "recipe.delayed_scaling.history"),
        (
            h16,
            |run| run["recipe"]["delayed_scaling"] = serde_yaml::from_str("{history: 4, choose: max}").unwrap(),
            "recipe.delayed_scaling",
        ),
        (
            "fp8",
            |run| run["recipe"]["passes"]["fprop"]["input"]["rounding"] = "stochastic-prescaled".into(),
            "recipe.passes.fprop.input.rounding",
        ),
        (h16, |run| run["recipe"]["passes"]["dgrad"]["weight"]["rotation"]["size"] = 32.into(), "recipe.passes.dgrad"),
        (h16, |run| run["recipe"]["passes"]["dgrad"]["weight"]["rotation"]["size"] = 20.into(), "rotation.size"),
        (h16, |run| run["data"]["train"]["prefix"] = "../train".into(), "data.train.prefix"),
        (h16, |run| run["data"]["train"]["sha256_bin"] = "abc".into(), "data.train.sha256_bin"),
        (h16, |run| run["data"]["validation"]["tokens"] = 20.into(), "data.validation.tokens"),
        (h16, |run| run["logging"]["quantisation_steps"] = serde_yaml::from_str("[0]").unwrap(), "logging.quantisation_steps"),
        (h16, |run| run["optimizer"]["learning_rate"] = f64::NAN.into(), "optimizer.learning_rate"),
        (h16, |run| run["target_loss"] = (-1.0).into(), "target_loss"),
    ];
    for (recipe, change, named) in cases {
        let message = refusal(recipe, change);
        assert!(message.starts_with("run.yaml") && message.contains(named), "expected {named}: {message}");
    }
}

#[test]
fn text_that_is_no_run_file_is_refused() {
    for text in ["", "schema: mxfp4-run/1", "[1, 2]", "schema: [", "\u{0}", "a: &a [*a]", "schema: mxfp4-run/1\nschema: mxfp4-run/1\n"] {
        assert_eq!(TrainerError::from(RunFile::parse("x", text).unwrap_err()).exit_code(), 2, "{text:?}");
    }
}

/// Exit code and stderr of `trainer run`.
fn execute(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trainer"))
        .arg("run")
        .arg(folder.join("run/run.yaml"))
        .arg("--data")
        .arg(folder.join("data"))
        .args(more)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    common::write_data(&folder.path().join("data"));
    common::write_run(&folder.path().join("run"), &common::tiny_yaml(common::recipe("bf16"), |_| ()));
    folder
}

#[test]
fn exit_codes_say_whose_fault_it_is() {
    type Damage = fn(&Path);
    let cases: [(Damage, &[&str], i32, &str); 10] = [
        (|f| fs::remove_file(f.join("run/run.yaml")).unwrap(), &[], 2, "run.yaml"),
        (|f| fs::write(f.join("run/run.yaml"), [0xff, 0xfe]).unwrap(), &[], 2, "UTF-8"),
        (|f| fs::remove_file(f.join("data/train.bin")).unwrap(), &[], 3, "train.bin"),
        (|f| fs::write(f.join("data/train.idx"), b"not an index").unwrap(), &[], 3, "train.idx"),
        (
            |f| {
                let mut bytes = fs::read(f.join("data/train.bin")).unwrap();
                bytes[7] ^= 1;
                fs::write(f.join("data/train.bin"), bytes).unwrap();
            },
            &[],
            3,
            "train.bin",
        ),
        (|f| fs::write(f.join("data/tokenizer.json"), b"{}").unwrap(), &[], 3, "tokenizer.json"),
        (|_| (), &["--threads", "0"], 2, "--threads"),
        (|_| (), &["--instruction-set", "mmx"], 2, "mmx"),
        (|_| (), &["--threads", "some"], 2, "threads"),
        (|_| (), &["--no-such-flag"], 2, "no-such-flag"),
    ];
    for (damage, more, code, named) in cases {
        let folder = prepared();
        damage(folder.path());
        let (found, said) = execute(folder.path(), more);
        assert!(found == Some(code) && said.contains(named), "expected {code} and {named}: {found:?} {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!folder.path().join("run/done.json").exists());
        if code == 3 {
            let failed: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("run/failed.json")).unwrap()).unwrap();
            assert_eq!(failed["schema"], "mxfp4-failed/1");
            assert!(failed["error"].as_str().unwrap().contains(named));
        }
    }
}

#[test]
fn a_token_outside_the_vocabulary_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    common::write_data(&folder.path().join("data"));
    common::write_run(&folder.path().join("run"), &common::tiny_yaml(common::recipe("bf16"), |run| run["model"]["vocab_size"] = 40.into()));
    let (code, said) = execute(folder.path(), &[]);
    assert!(code == Some(3) && said.contains("outside model.vocab_size (40)"), "{code:?} {said}");
    assert!(said.contains(".bin: token ") && said.trim_end().lines().count() == 1, "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_the_machines_fault() {
    let folder = prepared();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("run/metrics.jsonl")).unwrap();
    let (code, said) = execute(folder.path(), &[]);
    assert!(code == Some(4) && said.contains("metrics.jsonl") && said.contains("free space"), "{code:?} {said}");
}

/// A stack larger than any address space: the system gives no thread, as under a small limit on memory.
#[cfg(target_os = "linux")]
#[test]
fn a_system_that_gives_no_thread_is_at_fault() {
    let folder = prepared();
    let (run, data) = (folder.path().join("run/run.yaml"), folder.path().join("data"));
    let run = [OsStr::new("run"), run.as_os_str(), OsStr::new("--data"), data.as_os_str(), OsStr::new("--threads"), OsStr::new("2")];
    for arguments in [&run[..], &[OsStr::new("identity")]] {
        let output = Command::new(env!("CARGO_BIN_EXE_trainer")).args(arguments).env("RUST_MIN_STACK", "70368744177664").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(4) && !said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_run_that_diverges_says_so_and_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    common::write_data(&folder.path().join("data"));
    common::write_run(
        &folder.path().join("run"),
        &common::tiny_yaml(common::recipe("mxfp4-fdw"), |run| run["optimizer"]["learning_rate"] = 1e30.into()),
    );
    let (code, said) = execute(folder.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    let done: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("run/done.json")).unwrap()).unwrap();
    assert_eq!((done["status"].as_str(), done["model_sha256"].is_null()), (Some("diverged"), true));
    let metrics = fs::read_to_string(folder.path().join("run/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "diverged");
    assert!(last["reason"].as_str().unwrap().contains("not finite") && !metrics.contains("null"), "{metrics}");
}
