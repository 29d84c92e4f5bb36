//! Every recipe of manifests/recipes trains a tiny model from a run file to done.json, and the bits do not depend on threads,
//! instruction set or on being killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common;
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, InstructionSet};
use trainer::interrupt::Interrupt;
use trainer::ranks::{Alone, Ranks};
use trainer::session::{self, Options};

fn run(folder: &Path, recipe: serde_yaml::Value, set: InstructionSet, threads: usize) -> (String, serde_json::Value) {
    common::write_data(&folder.join("data"));
    let run_file = common::write_run(&folder.join("run"), &common::tiny_yaml(recipe, |_| ()));
    let options = Options {
        run_file,
        data: folder.join("data"),
        progress: false,
        patience: std::time::Duration::ZERO,
        logs_only: false,
        tensorboard: None,
    };
    let alone: Arc<dyn Ranks<Cpu>> = Arc::new(Alone);
    session::run(&options, &|_: &RunFile| Ok(Cpu::new(set, threads).unwrap()), &Interrupt::default(), &alone).unwrap();
    let read = |name: &str| fs::read_to_string(folder.join("run").join(name)).unwrap();
    (read("metrics.jsonl"), serde_json::from_str(&read("done.json")).unwrap())
}

#[test]
fn every_recipe_trains_and_its_files_are_complete() {
    let recipes = common::recipes();
    assert!(recipes.len() >= 25, "only {} recipes were found", recipes.len());
    for (id, recipe) in recipes {
        let folder = tempfile::tempdir().unwrap();
        let (metrics, done) = run(folder.path(), recipe, InstructionSet::detect(), 1);
        assert_eq!(done["status"], "completed", "{id}");
        assert_eq!(done["steps"], 12, "{id}");
        let lines: Vec<serde_json::Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
        assert_eq!(lines[0]["schema"], "mxfp4-metrics/1", "{id}");
        assert_eq!((kinds("train").len(), kinds("eval").len()), (12, 5), "{id}");
        // Two steps, two of two layers, four linears, six operands.
        assert_eq!(kinds("quantisation").len(), 2 * 2 * 4 * 6, "{id}");
        // The data's token follows from the one before three times out of four: ln 48 = 3.87 is the start, and it must fall.
        let losses: Vec<f64> = kinds("eval").iter().map(|line| line["loss"].as_f64().unwrap()).collect();
        assert!((losses[0] - 48f64.ln()).abs() < 0.05, "{id}: {losses:?}");
        assert!(losses[4] < losses[0] - 0.05, "{id}: {losses:?}");
        for name in [
            "run.mllog",
            "timing.jsonl",
            "checkpoint/state.json",
            "checkpoint/state.safetensors",
            "model/model.safetensors",
            "model/config.json",
        ] {
            assert!(folder.path().join("run").join(name).is_file(), "{id}: {name}");
        }
        assert!(!folder.path().join("run/failed.json").exists(), "{id}");
    }
}

#[test]
fn threads_and_instruction_sets_do_not_change_a_bit() {
    for id in ["f32", "bf16", "fp8", "mxfp4-fdw", "mxfp4-fdw-h32", "mxfp4-fdw-sr", "bf16-mxfp4-dw-rh64-sr"] {
        let outcome = |set, threads| {
            let folder = tempfile::tempdir().unwrap();
            let (metrics, done) = run(folder.path(), common::recipe(id), set, threads);
            (metrics, done.to_string())
        };
        let wanted = outcome(InstructionSet::Scalar, 1);
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_supported()) {
            for threads in [1, 2, 3] {
                assert!(outcome(set, threads) == wanted, "{id}: {set} with {threads} threads differs from scalar with 1");
            }
        }
    }
}

/// Prescaling is defined wherever a block shares an exponent: FP8 in blocks, too.
#[test]
fn blocks_of_fp8_train_prescaled() {
    let mut recipe = common::recipe("mxfp4-fdw-sr");
    for (_, pass) in recipe["passes"].as_mapping_mut().unwrap().iter_mut() {
        for (_, operand) in pass.as_mapping_mut().unwrap().iter_mut() {
            operand["format"] = "e4m3".into();
            operand["rounding"] = "stochastic-prescaled".into();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (metrics, done) = run(folder.path(), recipe, InstructionSet::detect(), 1);
    assert_eq!(done["status"], "completed", "{metrics}");
    assert!(done["final_validation_loss"].as_f64().unwrap() < 48f64.ln() - 0.05, "{metrics}");
}
