//! Readings: the same weights through other forward passes, without touching what is trained.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common;
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, InstructionSet};
use serde_json::Value;
use serde_yaml::Value as Yaml;
use trainer::ranks::Alone;
use trainer::readings::Reading;
use trainer::trainer_state::Training;

/// Trains in `folder` and returns the lines of metrics.jsonl.
fn train(folder: &Path, run: &Yaml) -> Vec<Value> {
    common::write_data(&folder.join("data"));
    let file = common::write_run(folder, run);
    let trainer = Command::new(env!("CARGO_BIN_EXE_trainer"))
        .args(["run", file.to_str().unwrap(), "--data", folder.join("data").to_str().unwrap(), "--device", "cpu", "--threads", "1"])
        .output()
        .unwrap();
    assert!(trainer.status.success(), "{}", String::from_utf8_lossy(&trainer.stderr));
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A reading through the run's own forward pass is its evaluation, bit for bit, stochastic rounding included (as many sequences are read at
/// once either way); every other line is what it is without readings.
#[test]
fn a_reading_is_an_evaluation_through_another_forward_pass_and_changes_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    for arm in ["mxfp4-fdw-h16", "fp8", "mxfp4-fdw-sr"] {
        let plain = train(&folder.path().join(arm), &common::tiny_yaml(common::recipe(arm), |_| ()));
        let asked = ["bf16", "mxfp4-fdw-h16", "mxfp4-f-sr", "fp8"];
        let with = train(
            &folder.path().join(format!("{arm}-read")),
            &common::tiny_yaml(common::recipe(arm), |run| common::read_through(run, &asked, 6)),
        );
        let is_reading = |line: &&Value| line["kind"] == "reading";
        let (readings, others): (Vec<&Value>, Vec<&Value>) = with.iter().partition(is_reading);
        assert_eq!(others, plain.iter().collect::<Vec<_>>(), "{arm}");

        let order: Vec<(u64, &str)> =
            readings.iter().map(|line| (line["step"].as_u64().unwrap(), line["recipe"].as_str().unwrap())).collect();
        let expected: Vec<(u64, &str)> = [0, 6, 12].iter().flat_map(|&step| asked.iter().map(move |&recipe| (step, recipe))).collect();
        assert_eq!(order, expected, "{arm}");
        let evaluated =
            |step: u64| plain.iter().find(|line| line["kind"] == "eval" && line["step"] == step).unwrap()["loss"].as_f64().unwrap();
        for reading in readings {
            let (loss, own) = (reading["loss"].as_f64().unwrap(), evaluated(reading["step"].as_u64().unwrap()));
            let recipe = reading["recipe"].as_str().unwrap();
            let own_forward = common::recipe(recipe)["passes"]["fprop"] == common::recipe(arm)["passes"]["fprop"];
            // FP8's own evaluation reads with delayed scales, which a reading has none of.
            if own_forward && recipe != "fp8" {
                assert_eq!(loss, own, "{arm} through {recipe}");
            } else if recipe != "fp8" {
                assert_ne!(loss, own, "{arm} through {recipe}");
            }
            // What rounding a forward pass costs is far below what training gained (3.87 to about 2.9 here).
            assert!((loss - own).abs() < 0.1, "{arm} through {}: {loss}, {own}", reading["recipe"]);
        }
    }
}

#[test]
fn readings_that_make_no_sense_are_refused() {
    let refused = |change: fn(&mut Yaml)| {
        let run = common::tiny_yaml(common::recipe("mxfp4-fdw"), |run| {
            common::read_through(run, &["bf16", "fp8"], 6);
            change(run);
        });
        RunFile::parse("tiny", &serde_yaml::to_string(&run).unwrap()).unwrap_err().to_string()
    };
    let message = refused(|run| run["evaluation"]["readings"]["every_steps"] = 4.into());
    assert!(message.contains("evaluation.readings.every_steps: 4 is no multiple of evaluation.every_steps (3)"), "{message}");
    let message = refused(|run| run["evaluation"]["readings"]["forwards"][1]["weight"]["scale"] = "delayed".into());
    assert!(message.contains("forwards[1].weight.scale: a reading has no history"), "{message}");
    let message = refused(|run| run["evaluation"]["readings"]["forwards"][1]["recipe"] = "bf16".into());
    assert!(message.contains("forwards[1].recipe: 'bf16' is there twice"), "{message}");
    let message = refused(|run| run["evaluation"]["readings"]["forwards"][0]["input"]["block"] = "1x32".into());
    assert!(message.contains("evaluation.readings.forwards[0].input.block"), "{message}");
    let message = refused(|run| run["recipe"]["perturbation"] = 4.into());
    assert!(message.contains("recipe.perturbation: 4 is above 3"), "{message}");
}

/// A perturbation moves every matrix element by its last bits and leaves gains alone.
#[test]
fn a_perturbed_run_starts_within_three_units_in_the_last_place() {
    let start = |perturbation: u32| {
        let run = common::tiny_yaml(common::recipe("fp8"), |run| run["recipe"]["perturbation"] = perturbation.into());
        let run = RunFile::parse("tiny", &serde_yaml::to_string(&run).unwrap()).unwrap();
        Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run, 0).unwrap().parameters
    };
    let plain = start(0);
    for perturbation in 1..=3 {
        for (one, other) in plain.iter().zip(&start(perturbation)) {
            let expected = if *one == 1.0 { one.to_bits() } else { one.to_bits() ^ perturbation };
            assert_eq!(other.to_bits(), expected);
        }
    }
}

/// A reading draws an evaluation's words and shares only the parameters: twice the same, whatever was read in between.
#[test]
fn a_reading_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    common::write_data(folder.path());
    let run = common::tiny_yaml(common::recipe("fp8"), |run| common::read_through(run, &["mxfp4-f-sr", "mxfp4-f-rh16", "fp8"], 6));
    let run = RunFile::parse("tiny", &serde_yaml::to_string(&run).unwrap()).unwrap();
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let streams = trainer::session::Streams::open(&run, folder.path()).unwrap();
    let training = Training::new(cpu.clone(), run.clone(), streams.train.len()).unwrap();
    let mut readings = Reading::all(&run, &|_: &RunFile| Ok(cpu.clone())).unwrap();
    let mut round = || -> Vec<f64> {
        readings.iter_mut().map(|reading| reading.loss(&Alone, &training.parameters, &streams.validation, 3).unwrap()).collect()
    };
    let first = round();
    assert_eq!(first, round());
    assert!(first[0] != first[1] && first[1] != first[2]);
}
