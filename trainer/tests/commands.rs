//! The measuring commands print the lines of docs/files.md, as many as asked for, in turns.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::common;
use contract::json::Document as _;
use contract::memory::{self, Keep, MemoryReport};
use contract::run_file::RunFile;
use serde_json::Value;
use trainer::parameters::Layout;

fn lines(arguments: &[&str], folder: &Path) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_trainer")).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    common::write_data(&folder.path().join("data"));
    for id in ["fp8", "mxfp4-fdw-h16"] {
        common::write_run(&folder.path().join(id), &common::tiny_yaml(common::recipe(id), |_| ()));
    }
    folder
}

#[test]
fn step_times_come_arm_by_arm_in_turns() {
    let folder = prepared();
    let found =
        lines(&["step-time", "fp8/run.yaml", "mxfp4-fdw-h16/run.yaml", "--data", "data", "--repeats", "3", "--warmup", "1"], folder.path());
    let arms: Vec<&str> = found.iter().map(|line| line["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["fp8", "mxfp4-fdw-h16"].repeat(3));
    for (number, line) in found.iter().enumerate() {
        assert_eq!(keys(line), ["schema", "kind", "arm", "repeat", "tokens", "seconds", "forward_backward_seconds"]);
        assert_eq!((line["schema"].as_str(), line["repeat"].as_u64()), (Some("mxfp4-step-time/1"), Some(number as u64 / 2 + 1)));
        let (whole, part) = (line["seconds"].as_f64().unwrap(), line["forward_backward_seconds"].as_f64().unwrap());
        assert!(0.0 < part && part < whole);
    }
}

/// One rank is a run without ranks, by this process.
#[test]
fn steps_of_one_rank_are_those_of_one_process() {
    let folder = prepared();
    let found = lines(&["step-time", "fp8/run.yaml", "--ranks", "1", "--repeats", "2", "--warmup", "0"], folder.path());
    assert_eq!(found.iter().map(|line| line.get("ranks")).collect::<Vec<_>>(), [None; 2]);
}

/// Before anything is started.
#[test]
fn steps_are_not_dealt_out_to_ranks_that_do_not_divide_them() {
    let folder = prepared();
    for (ranks, said) in [("0", "0 ranks do not divide batch.accumulation (1)"), ("2", "2 ranks do not divide batch.accumulation (1)")] {
        let command = ["step-time", "fp8/run.yaml", "--ranks", ranks];
        let output = Command::new(env!("CARGO_BIN_EXE_trainer")).args(command).current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.starts_with(&format!("error: {said}")) && text.lines().count() == 1, "{text}");
    }
}

/// Without data the tokens are random; the kernels' seconds are parts of the step's.
#[test]
fn a_step_profile_names_where_its_time_went() {
    let folder = prepared();
    let found = lines(&["step-time", "mxfp4-fdw-h16/run.yaml", "--profile-step", "--repeats", "5", "--warmup", "1"], folder.path());
    let of = |kind: &str, repeat: u64| -> Vec<&serde_json::Value> {
        found.iter().filter(|line| line["kind"] == kind && line["repeat"] == repeat).collect()
    };
    let mut shares = Vec::new();
    for repeat in 1..=5 {
        let (step, kernels) = (of("step_time", repeat), of("step_kernel", repeat));
        assert_eq!(step.len(), 1);
        assert_eq!(keys(kernels[0]), ["schema", "kind", "arm", "repeat", "kernel", "calls", "work", "seconds"]);
        let sum: f64 = kernels.iter().map(|line| line["seconds"].as_f64().unwrap()).sum();
        let whole = step[0]["seconds"].as_f64().unwrap();
        assert!(0.0 < sum && sum <= whole, "kernels took {sum} of {whole} seconds");
        shares.push(sum / whole);
        let named = |name: &str| kernels.iter().find(|line| line["kernel"] == name).copied();
        // Two layers, four linears, two operands each of Fprop and Dgrad; those of Wgrad are prepared in one call, inside its product.
        assert_eq!(named("quantise-mxfp4").unwrap()["calls"], 2 * 4 * (2 * 2 + 1));
        assert_eq!(named("gemm-mxfp4").unwrap()["calls"], 2 * 4 * 3);
        assert!(named("gemm-mxfp4").unwrap()["work"].as_u64().unwrap() > 0);
        assert!(named("gemm-float").is_none(), "no product of this recipe is in F32");
    }
    // A step that was put aside by a busy machine says nothing about kernels.
    assert!(shares.iter().any(|share| *share > 0.5), "kernels took these shares of their steps: {shares:?}");
}

#[test]
fn kernel_times_cover_every_linear_pass_and_variant() {
    let folder = prepared();
    let found = lines(&["kernel-time", "fp8/run.yaml", "--repeats", "2", "--warmup", "0"], folder.path());
    assert_eq!(found.len(), 2 * 4 * 3 * 5);
    let mut seen = std::collections::BTreeSet::new();
    for line in &found {
        assert_eq!(keys(line), ["schema", "kind", "variant", "linear", "pass", "m", "n", "k", "repeat", "seconds"]);
        seen.insert(format!("{} {} {} {}", line["variant"], line["linear"], line["pass"], line["repeat"]));
    }
    assert_eq!(seen.len(), found.len(), "some line is there twice");
    let down = found.iter().find(|line| line["linear"] == "gate_up" && line["pass"] == "wgrad").unwrap();
    assert_eq!((down["m"].as_u64(), down["n"].as_u64(), down["k"].as_u64()), (Some(128), Some(64), Some(128)));
}

#[test]
fn rotations_cancel_in_every_gemm() {
    let folder = prepared();
    let found = lines(&["rotation-identity", "fp8/run.yaml"], folder.path());
    assert_eq!(found.len(), 4 * 3 * 3);
    for line in &found {
        assert_eq!(keys(line), ["schema", "kind", "linear", "pass", "rotation", "max_relative_error", "bound"]);
        assert!(line["max_relative_error"].as_f64().unwrap() <= line["bound"].as_f64().unwrap(), "{line}");
    }
}

#[test]
fn the_version_names_what_this_machine_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let found = lines(&["version", "--json"], folder.path());
    assert_eq!(keys(&found[0]), ["version", "instruction_sets", "devices", "build"]);
    assert!(found[0]["build"].is_null(), "only the harness knows what it builds from");
    let devices = &lines(&["devices"], folder.path())[0];
    assert_eq!(keys(devices), ["schema", "gpus", "problem"]);
    let gpus = devices["gpus"].as_array().unwrap();
    // A machine without GPUs says why; each GPU says whether it can be used.
    assert!(gpus.is_empty() || devices["problem"].is_null());
    for gpu in gpus {
        assert_eq!(keys(gpu), ["device", "name", "architecture", "memory_bytes", "fp8", "libraries", "problem"]);
    }
    assert!(found[0]["instruction_sets"].as_array().unwrap().iter().any(|set| set == "scalar"));
}

#[test]
fn progress_is_one_line_a_step_and_silence_without_it() {
    let folder = prepared();
    let run = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_trainer"))
            .args(["run", "fp8/run.yaml", "--data", "data"])
            .args(more)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["--progress"]);
    let steps: Vec<&str> = said.lines().collect();
    assert_eq!(steps.len(), 12);
    assert!(steps[11].starts_with("step 12/12 loss ") && steps[11].contains(" tokens/s "), "{said}");
    std::fs::remove_file(folder.path().join("fp8/done.json")).unwrap();
    std::fs::remove_dir_all(folder.path().join("fp8/checkpoint")).unwrap();
    assert_eq!(run(&[]), "");
}

/// The text and the object say the same, and both what the contract counts.
#[test]
fn memory_is_told_term_by_term() {
    let folder = prepared();
    let output = Command::new(env!("CARGO_BIN_EXE_trainer")).args(["memory", "fp8/run.yaml"]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let object = &lines(&["memory", "fp8/run.yaml", "--json"], folder.path())[0];
    assert_eq!(keys(object), ["schema", "device", "tokens", "ways", "total_bytes", "free_bytes", "keeps"]);
    let report = MemoryReport::from_json("stdout", &object.to_string()).unwrap();
    assert_eq!(report.to_string(), text);
    assert!(text.starts_with("memory of a run on cpu, T = "), "{text}");
    let run = RunFile::load(&folder.path().join("fp8/run.yaml")).unwrap().run.micro_batch();
    assert_eq!(report.ways, memory::ways(&run, memory::Place::Cpu));
    assert_eq!(report.ways[0].bytes, report.ways[0].terms.iter().map(|term| term.bytes).sum::<u64>());
    // The copy of a checkpoint: three numbers in F32 for each parameter. It is made where a twentieth of room is left.
    let [everything, least] = [0, 1].map(|way| report.ways[way].bytes);
    assert_eq!(u128::from(everything - least), 12 * run.model.parameters());
    let chosen = [least - 1, least, everything, everything + everything / 20].map(|free| memory::choose(&report.ways, free));
    assert_eq!(chosen, [None, Some(Keep::Least), Some(Keep::Least), Some(Keep::Everything)]);
    // What the forecast counts is what the trainer lays out.
    assert_eq!(run.model.parameters(), Layout::new(&run.model).total as u128);
}
