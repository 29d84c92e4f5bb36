//! The door as a user meets it: help that teaches, one clear message for each mistake, documented exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::Path;
use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap()
}

/// Runs with `arguments`, expects `code`, gives what was printed to either stream.
fn says(arguments: &[&str], code: i32) -> String {
    let output = xtask(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

#[test]
fn every_command_teaches_by_example() {
    let overview = says(&["--help"], 0);
    let first = says(&[], 0);
    let shown: Vec<&str> = first.lines().filter_map(|line| line.trim_start().strip_prefix("cargo xtask ")?.split(' ').next()).collect();
    assert!(shown.contains(&"replicate") && shown.contains(&"doctor"), "{first}");
    assert!(shown.iter().all(|command| overview.contains(&format!("\n  {command} "))), "{first}");
    assert!(overview.contains("Exit codes: 0 done"));
    let commands = ["replicate", "kernels-bench", "kernels-build", "report", "verify", "sign", "compare", "data", "doctor", "list"];
    for command in commands.into_iter().chain([
        "import-mllog",
        "export-mllog",
        "device-test",
        "try",
        "audit",
        "runs",
        "pack",
        "identity",
        "version",
        "completions",
        "dist",
        "watch",
        "export-crate",
        "export-model",
        "man",
    ]) {
        assert!(overview.contains(&format!("\n  {command} ")), "{command} is missing from the overview");
        let help = says(&[command, "--help"], 0);
        assert!(help.contains(&format!("cargo xtask {command}")) && help.contains("Example"), "{command}: {help}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_a_suggestion() {
    assert!(says(&["replicate", "--profile", "smok"], 2).contains("did you mean `smoke`?"));
    assert!(says(&["replicate", "--only", "T2-STEPP", "--dry-run"], 2).contains("did you mean `T2-STEP`?"));
    // Refused before anything is built.
    assert!(says(&["replicate", "--only", "T2-STEPP"], 2).contains("did you mean `T2-STEP`?"));
    assert!(says(&["replicate", "--why", "fp8/11"], 2).contains("did you mean `fp8/1`?"));
    assert!(says(&["replicate", "--instruction-set", "sse"], 2).contains("avx512"));
    assert!(says(&["replicate", "--paper", "2605.09824", "--dry-run"], 2).contains("did you mean `2605.09825`?"));
    assert!(says(&["replicate", "--threads-per-run", "0"], 2).contains("at least 1"));
    assert!(says(&["replicate", "--finished", "--fresh"], 2).contains("cannot be used with"));
}

/// Each mistake in a recipe that is tried is named with its line and key before anything is built.
#[test]
fn a_recipe_that_cannot_be_tried_says_where_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (path, good) =
        (folder.path().join("mine.yaml"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/recipes/mxfp4-fdw-h16.yaml"));
    let good = std::fs::read_to_string(good).unwrap().replace("id: mxfp4-fdw-h16", "id: mine");
    for (old, new, said) in [
        ("scale: floor", "scale: flor", "mine.yaml:6: operands.fp4.scale: unknown variant `flor`"),
        ("label:", "labl:", "mine.yaml:4: unknown field `labl`"),
        ("size: 16", "size: 48", "mine.yaml:6: operands.fp4.rotation.size: 48 is not supported; use 16, 32, 64 or 128"),
        (
            "dgrad: {output_gradient: fp4, weight: fp4}",
            "dgrad: {output_gradient: fp4, weight: fp8}",
            "mine.yaml:9: passes.dgrad.weight: unknown operand `fp8`",
        ),
        ("size: 16", "size: 128", "mine.yaml:8: passes.fprop.input.rotation.size: a Hadamard rotation of size 128 does not divide"),
        ("id: mine", "id: fp8", "mine.yaml:2: id: `fp8` is another recipe's, manifests/recipes/fp8.yaml"),
        ("id: mine", "id: ../mine", "mine.yaml:2: `../mine` is no plain name"),
    ] {
        assert!(good.contains(old), "the recipe no longer has `{old}`");
        std::fs::write(&path, good.replacen(old, new, 1)).unwrap();
        let text = says(&["try", path.to_str().unwrap(), "--profile", "smoke"], 2);
        assert!(text.contains(said), "{text}");
    }
    assert!(says(&["try", folder.path().join("none.yaml").to_str().unwrap()], 2).contains("none.yaml: cannot be read"));
    assert!(says(&["try", path.to_str().unwrap(), "--profile", "smok"], 2).contains("did you mean `smoke`?"));
}

#[test]
fn kernels_bench_refuses_before_it_builds() {
    for device in ["cuda", "hip"] {
        let said = says(&["kernels-bench", "--device", device], 4);
        assert!(said.contains("not-run") && said.contains("it needs"), "{said}");
    }
    for (arguments, said) in [
        (&["--gpus", "0"][..], "at least 1"),
        (&["--gpus", "1,two"], "at least 1"),
        (&["--ranks", "1,0"], "at least 1"),
        (&["--gpus", "2", "--ranks", "2"], "cannot be used with"),
        (&["--gpus", "2", "--device", "cpu"], "--ranks N times steps of N processes on the CPU"),
        (&["--gpus", "2", "--device", "cuda:1"], "name cuda or hip without a number"),
        (&["--ranks", "2", "--device", "hip"], "--gpus N times steps of N GPUs"),
    ] {
        let text = says(&[&["kernels-bench"], arguments].concat(), 2);
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
    assert!(says(&["kernels-bench", "--threads", "0"], 2).contains("at least 1"));
    assert!(says(&["kernels-bench", "--quick", "--deep"], 2).contains("cannot be used with"));
    assert!(says(&["kernels-bench", "--device", "tpu"], 2).contains("cuda"));
}

/// Without the compiler nothing is compiled, and the message says how to get it; the rest is tested where it is (bench).
#[test]
fn kernels_build_says_what_it_needs() {
    assert!(says(&["kernels-build", "--arch", "gfx95"], 2).contains("did you mean `gfx950`?"));
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("kernels-build").env("CLANG_22", "no-such-compiler").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("apt-get install") && said.contains("clang-22"), "{said}");
}

#[test]
fn absent_hardware_ends_with_4_and_says_what_is_lacking() {
    for (profile, device) in [("h200-s", "NVIDIA H200"), ("llama31-8b", "MI355X")] {
        let plan = says(&["replicate", "--profile", profile, "--dry-run"], 0);
        assert!(plan.contains("lacks: ") && plan.contains(device) && plan.contains("mxfp4-fdw-h16"), "{plan}");
        assert!(says(&["replicate", "--profile", profile], 4).contains("cannot run here"));
    }
    assert!(says(&["replicate", "--gpus", "0"], 4).contains("this profile is for cpu"));
    if !Path::new("/dev/nvidiactl").exists() {
        assert!(says(&["device-test"], 4).starts_with("not-run: "));
    }
    assert!(says(&["device-test", "--device", "cpu"], 2).contains("must be cuda, cuda:N, hip or hip:N"));
    assert!(says(&["replicate", "--minutes=-1"], 2).contains("--minutes"));
}

#[test]
fn missing_files_end_with_3() {
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().to_str().unwrap();
    for arguments in [
        vec!["verify", folder],
        vec!["compare", folder, folder],
        vec!["report", folder],
        vec!["audit", folder],
        vec!["report", "--add-evidence", folder],
        vec!["export-mllog", folder, "--out", folder],
        vec!["data", "fetch", "c4-mlperf", "--from", folder],
        vec!["runs", "import", "/nowhere"],
    ] {
        let text = says(&arguments, 3);
        assert!(text.starts_with("error: "), "{arguments:?}: {text}");
    }
    let both = says(&["runs", "import", "/nowhere", "/nor/here"], 3);
    assert!(both.contains("/nowhere") && both.contains("/nor/here"), "{both}");
    assert!(says(&["data", "fetch", "webdoc"], 2).contains("did you mean `webdocs`?"));
    assert!(says(&["data", "fetch", "webdocs", "--from", folder], 3).contains("6 of 6 files are not there: train.000.xz, "));
    let nowhere = empty.path().join("nowhere");
    assert!(says(&["data", "fetch", "webdocs", "--from", nowhere.to_str().unwrap()], 3).contains("nowhere: no such folder"));
    let tokens = says(&["data", "fetch", "webdocs", "--tokens", "webdocs-8192", "--from", folder], 3);
    assert!(tokens.contains("train.bin is not here"), "{tokens}");
    assert!(says(&["data", "fetch", "webdocs", "--tokens", "webdocs-8192"], 2).contains("--from"));
    assert!(says(&["data", "fetch", "webdocs", "--mirror", "file:///nowhere", "--from", folder], 2).contains("cannot be used with"));
    assert!(says(&["data", "fetch", "enwik8", "--mirror", "file:///nowhere"], 2).contains("enwik8 does not come from repositories"));
}

/// In a repository whose cache is empty, whatever this one has fetched.
#[test]
fn what_is_missing_is_said_with_where_it_comes_from() {
    let root = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests"), &root.path().join("manifests"));
    let fetch = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["data", "fetch"])
            .args(arguments)
            .env("CARGO_MANIFEST_DIR", root.path().join("xtask"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = fetch(&["webdocs", "--mirror", "file:///nowhere"]);
    assert!(said.lines().last().unwrap().starts_with("error: 76 of 76 repositories cannot be had from file:///nowhere: "), "{said}");
    assert!(said.contains("\n  train.000.xz (39514564 bytes, SHA-256 f151e8f5") && said.contains("--from DIR"), "{said}");
    assert!(
        said.contains("\n  mdn/content at 8bbe2454b8e3b70fcdf8e4db0e4d43a18ff6dee2, found in avivasa/content: CC-BY-SA-2.5\n"),
        "{said}"
    );
    assert!(fetch(&["enwik8"]).contains("http://mattmahoney.net/dc/enwik8.zip"));
    assert!(fetch(&["c4-mlperf"]).contains("--from DIR"));
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}

#[test]
fn lists_name_everything() {
    let list = says(&["list"], 0);
    for word in ["smoke", "llama31-8b", "mxfp4-fdw-h16", "T1-SR-FDW", "MX-RHT-HELPS"] {
        assert!(list.contains(word), "{word}");
    }
    assert!(!list.contains("device-test"), "no campaign, so no profile to list");
    assert!(says(&["doctor"], 0).contains("h200-s"));
    assert!(says(&["version"], 0).contains("\"schema\": \"mxfp4-version/1\""));
    assert!(says(&["data", "list"], 0).contains("rust-crates"));
}

#[test]
fn a_version_is_one_line_and_the_same_as_in_full() {
    let line = says(&["--version"], 0);
    let full: serde_json::Value = serde_json::from_str(&says(&["version"], 0)).unwrap();
    let commit = &full["commit"].as_str().unwrap()[..8];
    let changes = if full["dirty"].as_bool().unwrap() { ", with changes" } else { "" };
    assert_eq!(line, format!("xtask {} ({commit}{changes})\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(says(&["-V"], 0), line);
}

#[test]
fn a_log_with_a_problem_ends_with_1_and_still_gives_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let (log, out) = (folder.path().join("result_0.txt"), folder.path().join("table"));
    let line = |key: &str, value: &str, metadata: &str| {
        format!(
            ":::MLLOG {{\"time_ms\": 1, \"event_type\": \"POINT_IN_TIME\", \"key\": \"{key}\", \"value\": {value}, \"metadata\": {{{metadata}}}}}\n"
        )
    };
    let sound = line("submission_benchmark", "\"llama31_8b\"", "")
        + &line("seed", "5", "")
        + &line("init_stop", "null", "")
        + &line("run_start", "null", "")
        + &line("eval_accuracy", "3.2", "\"samples_count\": 64");
    std::fs::write(&log, &sound).unwrap();
    let arguments = ["import-mllog", log.to_str().unwrap(), "--out", out.to_str().unwrap(), "--source-path", "a/b"];
    assert!(says(&arguments, 1).contains("result_0.txt:5: no run_stop: the log ends after 1 evaluation"));
    assert!(std::fs::read_to_string(out.join("runs.csv")).unwrap().contains(",a/b/result_0.txt,"));
    std::fs::write(&log, sound + &line("run_stop", "null", "\"status\": \"success\"")).unwrap();
    assert!(says(&arguments, 0).contains("1 runs, 1 of them reached the target 3.3; 0 problems, 0 notes"));
    says(&["import-mllog"], 2);
    says(&["import-mllog", "x", "--source-path", "a"], 2);
}
