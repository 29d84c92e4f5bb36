//! Which passes of a recipe multiply packed MXFP4 on `--device hip`, and that the run says so; on the stand-in for ROCm's libraries
//! (kernels/gfx950/stand-in). A run of each kind: native, native where the shapes allow it, without MXFP4.
//!
//! Tests that compile kernels need clang 22; without it they say so and do nothing, unless REQUIRE_CLANG_22 is set, as in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::common;
use serde_json::Value;

fn records(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One step of a recipe with `sequences` of 16 tokens: the session's line, and the losses of training and evaluation.
fn step(recipe: &str, sequences: u64, device: &str) -> (Value, Vec<f64>) {
    step_of(recipe, sequences, 16, device)
}

/// The same with heads of `head_dim` elements.
fn step_of(recipe: &str, sequences: u64, head_dim: u64, device: &str) -> (Value, Vec<f64>) {
    let folder = tempfile::tempdir().unwrap();
    let libraries = folder.path().join("libraries");
    std::fs::create_dir(&libraries).unwrap();
    gfx950_stand_in::install(&libraries).unwrap();
    common::write_data(&folder.path().join("data"));
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["model"]["num_hidden_layers"] = 1.into();
        run["model"]["sequence_length"] = 16.into();
        run["model"]["head_dim"] = head_dim.into();
        run["batch"]["sequences"] = sequences.into();
        run["budget"]["steps"] = 1.into();
        run["evaluation"]["every_steps"] = 1.into();
        run["evaluation"]["sequences"] = 1.into();
        run["checkpoint"]["every_steps"] = 1.into();
        run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![1.into()]);
    });
    common::write_run(&folder.path().join("run"), &run);
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.current_dir(folder.path()).args(["run", "run/run.yaml", "--data", "data", "--device", device]);
    command.env("LD_LIBRARY_PATH", &libraries).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{recipe} on {device}: {}", String::from_utf8_lossy(&output.stderr));
    let session = records(&folder.path().join("run/timing.jsonl")).swap_remove(0);
    let losses = records(&folder.path().join("run/metrics.jsonl")).iter().filter_map(|record| record["loss"].as_f64()).collect();
    (session, losses)
}

/// Steps on both devices: what the session says of MXFP4, and that losses agree as closely as activations in BF16 let them.
fn said(recipe: &str, sequences: u64) -> Option<String> {
    let (session, losses) = step(recipe, sequences, "hip");
    assert_eq!(session["interpreted"], true);
    let (on_cpu, expected) = step(recipe, sequences, "cpu");
    assert!(on_cpu.get("mxfp4").is_none() && on_cpu.get("interpreted").is_none());
    // Evaluation, step, evaluation. BF16 keeps 8 bits; a loss is a mean over tokens near ln 48.
    assert_eq!((losses.len(), expected.len()), (3, 3));
    for (found, expected) in losses.iter().zip(&expected) {
        assert!((found - expected).abs() < 2e-2, "{recipe}: {losses:?}, {expected:?}");
    }
    session["mxfp4"].as_str().map(str::to_owned)
}

#[test]
fn every_pass_is_native_where_shapes_and_recipe_allow_it() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-fdw-h16", 4).as_deref(), Some("native"));
    }
}

/// A defect of signs is other arguments; one of random words needs another kernel.
#[test]
fn a_defect_is_native_where_its_kernels_are_told_of_it() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-fdw-rh16-own-signs", 4).as_deref(), Some("native"));
        assert_eq!(said("mxfp4-fdw-sr-pairs", 4).as_deref(), Some("emulated"));
    }
}

/// 48 tokens are rows that the native product takes, and no contraction axis: wgrad falls back.
#[test]
fn a_pass_whose_shapes_do_not_fit_is_emulated_alone() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-fdw-h16", 3).as_deref(), Some("fprop native, dgrad native, wgrad emulated"));
    }
}

/// Forward in MXFP4, backward in FP8: the second operand of X is prepared by the other kernel.
#[test]
fn other_formats_say_nothing() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-f-h16", 4).as_deref(), Some("native"));
        assert_eq!(said("bf16", 4), None);
    }
}

/// Heads of 80 and 112, which fill no whole number of the matrix operations' 32: two of the sizes between 64 and 128.
#[test]
fn heads_between_64_and_128_train_as_on_the_cpu() {
    if gfx950_stand_in::has_clang() {
        for head_dim in [80, 112] {
            let [(_, found), (_, expected)] = ["hip", "cpu"].map(|device| step_of("mxfp4-fdw-h16", 4, head_dim, device));
            assert_eq!((found.len(), expected.len()), (3, 3));
            // As `said` has it.
            assert!(found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 2e-2), "{found:?}, {expected:?}");
        }
    }
}
