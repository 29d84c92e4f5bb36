//! A run killed at any moment and started again ends with the bytes of a run that was never stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Everything that must be equal, by name.
fn outcome(run: &Path) -> Vec<(String, Vec<u8>)> {
    let names = [
        "metrics.jsonl",
        "done.json",
        "checkpoint/state.json",
        "checkpoint/state.safetensors",
        "model/model.safetensors",
        "model/config.json",
    ];
    names.iter().map(|name| ((*name).to_owned(), fs::read(run.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))).collect()
}

fn assert_same(found: &[(String, Vec<u8>)], wanted: &[(String, Vec<u8>)], what: &str) {
    for ((name, found), (_, wanted)) in found.iter().zip(wanted) {
        assert!(found == wanted, "{what}: {name} differs");
    }
}

fn prepare(folder: &Path, recipe: &str) -> PathBuf {
    common::write_data(&folder.join("data"));
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["budget"]["steps"] = 40.into();
        run["evaluation"]["every_steps"] = 5.into();
        run["checkpoint"]["every_steps"] = 3.into();
    });
    common::write_run(&folder.join("run"), &run)
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data"));
    command
}

fn finish(folder: &Path) -> Output {
    let output = command(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn undisturbed(recipe: &str) -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), recipe);
    finish(folder.path());
    outcome(&folder.path().join("run"))
}

#[test]
fn killed_at_random_moments_it_ends_with_the_same_bytes() {
    // Delayed scaling has state of its own; stochastic rounding has words of its own.
    for recipe in ["fp8", "mxfp4-fdw-sr"] {
        let started = std::time::Instant::now();
        let wanted = undisturbed(recipe);
        let whole = started.elapsed();
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), recipe);
        let mut state = 88_172_645_463_325_252u64;
        for _ in 0..12 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut child = command(folder.path()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(whole.mul_f64((state % 1000) as f64 / 1000.0 * 0.6));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        finish(folder.path());
        assert_same(&outcome(&folder.path().join("run")), &wanted, recipe);
        let left: Vec<_> = fs::read_dir(folder.path().join("run"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().contains("tmp"))
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// A process that is killed between writing a file and giving it its name leaves it under another one.
#[test]
fn what_a_killed_process_left_half_written_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8");
    let run = folder.path().join("run");
    let left = ["done.json.17.tmp", "model/model.safetensors.17.tmp", "checkpoint.tmp-17-2/state.json"].map(|name| run.join(name));
    for path in &left {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "half").unwrap();
    }
    finish(folder.path());
    assert!(left.iter().all(|path| !path.exists()) && run.join("done.json").exists());
}

#[cfg(unix)]
#[test]
fn asked_to_stop_it_checkpoints_exits_130_and_goes_on() {
    let wanted = undisturbed("mxfp4-fdw-h16");
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "mxfp4-fdw-h16");
    let mut interrupted = 0;
    for signal in ["-INT", "-TERM"] {
        let mut child = command(folder.path()).stderr(Stdio::null()).spawn().unwrap();
        // Until it has begun to train; then its handler is there.
        while !folder.path().join("run/checkpoint/state.json").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(5));
        Command::new("kill").arg(signal).arg(child.id().to_string()).status().unwrap();
        let code = child.wait().unwrap().code();
        assert!(code == Some(130) || code == Some(0) || code.is_none(), "{signal}: {code:?}");
        interrupted += usize::from(code == Some(130));
        assert!(!folder.path().join("run/failed.json").exists());
    }
    finish(folder.path());
    assert!(interrupted > 0, "neither signal came in time to interrupt anything");
    assert_same(&outcome(&folder.path().join("run")), &wanted, "interrupted");
}

#[test]
fn what_is_damaged_is_set_aside_and_done_again() {
    let wanted = undisturbed("fp8");
    for (name, damage) in [
        ("checkpoint/state.safetensors", "flip"),
        ("checkpoint/state.safetensors", "cut"),
        ("checkpoint/state.json", "cut"),
        ("metrics.jsonl", "flip"),
        ("metrics.jsonl", "cut"),
        ("checkpoint/state.json", "remove"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), "fp8");
        finish(folder.path());
        let run = folder.path().join("run");
        fs::remove_file(run.join("done.json")).unwrap();
        let mut bytes = fs::read(run.join(name)).unwrap();
        let middle = bytes.len() / 2;
        match damage {
            "flip" => bytes[middle] ^= 1,
            "cut" => bytes.truncate(middle),
            _ => {}
        }
        if damage == "remove" {
            fs::remove_file(run.join(name)).unwrap()
        } else {
            fs::write(run.join(name), bytes).unwrap()
        }
        let output = finish(folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("warning: ") && said.contains("starting again from step 0"), "{name} {damage}: {said}");
        assert!(run.join("checkpoint.unusable-1").is_dir(), "{name} {damage}");
        assert_same(&outcome(&run), &wanted, name);
    }
}

#[test]
fn a_finished_run_is_left_alone_and_a_running_one_is_not_run_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepare(folder.path(), "bf16");
    let lock = fs::File::open(&path).unwrap();
    lock.try_lock().unwrap();
    let refused = command(folder.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another trainer"));
    drop(lock);
    finish(folder.path());
    let run = folder.path().join("run");
    let before = (outcome(&run), fs::read(run.join("timing.jsonl")).unwrap());
    finish(folder.path());
    assert_same(&outcome(&run), &before.0, "again");
    assert!(fs::read(run.join("timing.jsonl")).unwrap() == before.1);
    assert!(!run.join("failed.json").exists());
}
