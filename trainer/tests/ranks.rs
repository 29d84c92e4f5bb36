//! Several ranks, each a process: the bytes of one, whatever their number, and an end for all when one of them ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_yaml::Value;

/// A model of four chunks of parameters, so that each of four ranks owns one, and steps of four micro-batches.
fn prepare(folder: &Path, recipe: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    common::write_data(&folder.join("data"));
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["model"]["vocab_size"] = 160.into();
        run["model"]["num_hidden_layers"] = 4.into();
        run["batch"]["accumulation"] = 4.into();
        run["budget"]["steps"] = 5.into();
        run["evaluation"]["every_steps"] = 2.into();
        run["logging"]["quantisation_steps"] = vec![1, 4].into();
        change(run);
    });
    common::write_run(&folder.join("run"), &run)
}

/// `trainer run` without anybody's ranks.
fn run(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn launch(folder: &Path, ranks: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("launch").arg("--ranks").arg(ranks.to_string());
    command.arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// One rank as torchrun would start it.
fn rank(folder: &Path, rank: usize, size: usize, port: u16) -> Command {
    let mut command = run(folder);
    for (name, value) in [("RANK", rank), ("WORLD_SIZE", size), ("LOCAL_RANK", rank), ("MASTER_PORT", port.into())] {
        command.env(name, value.to_string());
    }
    command.env("MASTER_ADDR", "127.0.0.1").env("TORCHELASTIC_RUN_ID", "test");
    command
}

fn a_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().min(60_000)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn finish(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, said(&output));
    said(&output)
}

/// Everything that must be equal, by name.
fn outcome(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let names = [
        "metrics.jsonl",
        "done.json",
        "checkpoint/state.json",
        "checkpoint/state.safetensors",
        "model/model.safetensors",
        "model/config.json",
    ];
    names.map(|name| (name, fs::read(folder.join("run").join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))).into()
}

fn assert_same(folder: &Path, wanted: &[(&'static str, Vec<u8>)], what: &str) {
    for ((name, found), (_, wanted)) in outcome(folder).iter().zip(wanted) {
        assert!(found == wanted, "{what}: {name} differs");
    }
}

fn undisturbed(recipe: &str, change: impl FnOnce(&mut Value)) -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), recipe, change);
    finish(run(folder.path()));
    outcome(folder.path())
}

/// Every recipe of the smoke profile, among them delayed scales and stochastic rounding; operands measured, readings made.
#[test]
fn two_and_four_ranks_give_the_bytes_of_one() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/profiles/smoke.yaml");
    let profile: Value = serde_yaml::from_str(&fs::read_to_string(manifest).unwrap()).unwrap();
    let arms = profile["arms"].as_sequence().unwrap().iter();
    let recipes: Vec<&str> = arms.flat_map(|arm| arm["recipes"].as_sequence().unwrap()).map(|id| id.as_str().unwrap()).collect();
    assert!(recipes.contains(&"fp8") && recipes.contains(&"mxfp4-fdw-sr") && recipes.len() > 8);
    for recipe in recipes {
        let change = |run: &mut Value| common::read_through(run, &["bf16"], 4);
        let wanted = undisturbed(recipe, change);
        for ranks in [2, 4] {
            let folder = tempfile::tempdir().unwrap();
            prepare(folder.path(), recipe, change);
            finish(launch(folder.path(), ranks));
            assert_same(folder.path(), &wanted, &format!("{recipe} on {ranks} ranks"));
            let timing = fs::read_to_string(folder.path().join("run/timing.jsonl")).unwrap();
            assert!(timing.contains(&format!("\"ranks\":{ranks},")), "{timing}");
        }
    }
}

/// Eight ranks, of which four own no parameters; three threads on each are no more than one.
#[test]
fn eight_ranks_give_the_bytes_of_one() {
    let change = |run: &mut Value| {
        run["batch"]["sequences"] = 8.into();
        run["batch"]["accumulation"] = 8.into();
    };
    let wanted = undisturbed("fp8", change);
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8", change);
    let mut command = launch(folder.path(), 8);
    command.arg("--threads").arg("3");
    finish(command);
    assert_same(folder.path(), &wanted, "8 ranks");
}
