//! Checkpoints in shards: any number of ranks goes on from any other's, and what is wrong with one is said before anything is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common;
use crate::ranks::{a_port, assert_same, finish, kill, launch, outcome, prepare, rank, run, said, step_of_checkpoint, stop};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kernels::cpu::{Cpu, InstructionSet};
use serde_yaml::Value;
use trainer::checkpoint::{LogMarks, Progress, State, Writer};
use trainer::ranks::{Alone, Ranks};
use trainer::trainer_state::Training;

/// Every file of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// Names in the run's folder that begin with `checkpoint`.
fn checkpoints(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("run")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name.starts_with("checkpoint")).collect();
    names.sort();
    names
}

/// So many processes: `trainer run` where it is one.
fn start(folder: &Path, ranks: usize) -> Command {
    if ranks == 1 { run(folder) } else { launch(folder, ranks) }
}

/// 1, 2, 4, 3 ranks and one again, each stopped when it has written a checkpoint: of the moments, of cut tensors, of delayed scales.
#[test]
fn any_number_of_ranks_goes_on_from_any_other() {
    let change = |run: &mut Value| {
        run["batch"]["sequences"] = 12.into();
        run["batch"]["accumulation"] = 12.into();
        run["budget"]["steps"] = 24.into();
        run["checkpoint"]["every_steps"] = 1.into();
    };
    let (undisturbed, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    prepare(undisturbed.path(), "fp8", change);
    finish(run(undisturbed.path()));
    prepare(folder.path(), "fp8", change);
    for ranks in [1, 2, 4, 3] {
        let before = step_of_checkpoint(folder.path());
        let child = start(folder.path(), ranks).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(stop(folder.path(), child, before, "-INT"), Some(130), "{ranks} ranks");
        let names: Vec<String> = files(&folder.path().join("run/checkpoint")).into_keys().collect();
        let mut expected: Vec<String> = (0..ranks).map(|rank| format!("state-{rank}-of-{ranks}.safetensors")).collect();
        if ranks == 1 {
            expected = vec!["state.safetensors".to_owned()];
        }
        expected.push("state.json".to_owned());
        expected.sort();
        assert_eq!(names, expected);
        common::checkpoint(&folder.path().join("run"));
    }
    finish(run(folder.path()));
    assert_same(folder.path(), &outcome(undisturbed.path()), "1, 2, 4, 3 and 1 ranks");
    // Every session but the first went on from a later step, and none began again.
    let timing = fs::read_to_string(folder.path().join("run/timing.jsonl")).unwrap();
    let lines = timing.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let from: Vec<u64> = lines.filter_map(|line| line["resumed_from_step"].as_u64()).collect();
    assert!(from.len() == 5 && from[0] == 0 && from.is_sorted_by(|one, next| one < next), "{from:?}");
}

/// What is done to a file that holds these bytes.
type Damage<'a> = &'a dyn Fn(&Path, &[u8]);

fn two_steps(run: &mut Value) {
    run["budget"]["steps"] = 2.into();
    run["logging"]["quantisation_steps"] = vec![1].into();
}

/// Two ranks' checkpoint of the last step, after which nothing else was done.
fn of_two_ranks(folder: &Path) {
    prepare(folder, "fp8", two_steps);
    finish(launch(folder, 2));
    fs::remove_file(folder.join("run/done.json")).unwrap();
}

#[test]
fn a_shard_that_is_not_what_it_was_ends_the_run_and_is_left_there() {
    let folder = tempfile::tempdir().unwrap();
    of_two_ranks(folder.path());
    let checkpoint = folder.path().join("run/checkpoint");
    let whole = files(&checkpoint);
    let wrong: [(&str, Damage<'_>); 3] = [
        ("state-1-of-2.safetensors: No such file", &|path, _| fs::remove_file(path).unwrap()),
        ("bytes and had", &|path, bytes| fs::write(path, &bytes[..bytes.len() / 2]).unwrap()),
        ("state-1-of-2.safetensors: its SHA-256 is not the one in state.json", &|path, bytes| {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        }),
    ];
    let name = "state-1-of-2.safetensors";
    for (expected, damage) in wrong {
        damage(&checkpoint.join(name), &whole[name]);
        let damaged = files(&checkpoint);
        for ranks in [1, 2, 4] {
            let output = start(folder.path(), ranks).output().unwrap();
            let said = said(&output);
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(said.contains(expected) && said.contains(name) && said.contains("put back the files"), "{said}");
            assert!(files(&checkpoint) == damaged && checkpoints(folder.path()) == ["checkpoint"], "{expected}");
        }
        fs::write(checkpoint.join(name), &whole[name]).unwrap();
    }
    finish(launch(folder.path(), 4));
    assert!(files(&checkpoint) == whole);
}

/// An index that cannot be one is no checkpoint: it is set aside, and the run begins again.
#[test]
fn an_index_that_makes_no_sense_is_set_aside() {
    let (folder, undisturbed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    of_two_ranks(folder.path());
    prepare(undisturbed.path(), "fp8", two_steps);
    finish(run(undisturbed.path()));
    let index = folder.path().join("run/checkpoint/state.json");
    let text = fs::read_to_string(&index).unwrap();
    let mut wrong = vec![
        (text.replace("\"state-1-of-2.safetensors\"", "\"../state-1-of-2.safetensors\""), "does not lie beside it"),
        (text.replace("[0,", "[64,"), "and 0 comes next"),
        (text.replace("checkpoint/3", "checkpoint/1"), "names no hash"),
        (text.replace("checkpoint/3", "checkpoint/2"), "schema `mxfp4-checkpoint/2` is not"),
        (text[..text.len() / 2].to_owned(), "state.json: EOF"),
    ];
    let mut one: serde_json::Value = serde_json::from_str(&text).unwrap();
    one["shards"].as_array_mut().unwrap().pop();
    wrong.push((one.to_string(), "comes next"));
    // Without the last range of all.
    let mut one: serde_json::Value = serde_json::from_str(&text).unwrap();
    let end = |shard: &serde_json::Value| shard["ranges"].as_array().unwrap().last().unwrap()[1].as_u64().unwrap();
    let shards = one["shards"].as_array_mut().unwrap();
    let last = shards.iter_mut().max_by_key(|shard| end(shard)).unwrap();
    last["ranges"].as_array_mut().unwrap().pop();
    wrong.push((one.to_string(), "and the model has"));
    let mut number = 0;
    for (altered, expected) in wrong {
        assert_ne!(altered, text);
        fs::write(&index, altered).unwrap();
        number += 1;
        let said = finish(launch(folder.path(), 2));
        assert!(said.contains(expected) && said.contains("starting again from step 0"), "{said}");
        assert!(folder.path().join(format!("run/checkpoint.unusable-{number}")).is_dir());
        assert_same(folder.path(), &outcome(undisturbed.path()), expected);
        fs::remove_file(folder.path().join("run/done.json")).unwrap();
        assert!(fs::read_to_string(&index).unwrap() == text);
    }
}

/// What a kill leaves: shards without an index, a whole folder without its name, a checkpoint between two names, the old one beside the new.
#[test]
fn a_checkpoint_killed_between_shards_index_and_name_leaves_the_one_before() {
    let (folder, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let change = |run: &mut Value| {
        run["budget"]["steps"] = 40.into();
        run["checkpoint"]["every_steps"] = 2.into();
    };
    for folder in [&folder, &later] {
        prepare(folder.path(), "fp8", change);
        let child = launch(folder.path(), 2).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(stop(folder.path(), child, 0, "-INT"), Some(130));
    }
    finish(run(later.path()));
    let wanted = outcome(later.path());
    let run_folder = folder.path().join("run");
    let (state, step) = (files(&run_folder.join("checkpoint")), step_of_checkpoint(folder.path()));
    let logs = ["metrics.jsonl", "run.mllog"].map(|name| (name, fs::read(run_folder.join(name)).unwrap()));
    let put = |name: &str, but: &str| {
        fs::create_dir_all(run_folder.join(name)).unwrap();
        for (file, bytes) in state.iter().filter(|(file, _)| *file != but) {
            fs::write(run_folder.join(name).join(file), bytes).unwrap();
        }
    };
    let left: [(&[_], &str); 4] = [
        (&[("checkpoint", ""), ("checkpoint.tmp-1-2-3", "state.json")], "before the index"),
        (&[("checkpoint", ""), ("checkpoint.tmp-1-2-3", "")], "before the first name"),
        (&[("checkpoint.previous", ""), ("checkpoint.tmp-1-2-3", "")], "between two names"),
        (&[("checkpoint", ""), ("checkpoint.previous", "state-0-of-2.safetensors")], "while the old one was removed"),
    ];
    for (folders, when) in left {
        for name in checkpoints(folder.path()) {
            fs::remove_dir_all(run_folder.join(name)).unwrap();
        }
        let _ = fs::remove_file(run_folder.join("done.json"));
        folders.iter().for_each(|(name, but)| put(name, but));
        logs.iter().for_each(|(name, bytes)| fs::write(run_folder.join(name), bytes).unwrap());
        let said = finish(launch(folder.path(), 2));
        assert!(!said.contains("warning"), "{when}: {said}");
        assert_same(folder.path(), &wanted, when);
        assert_eq!(checkpoints(folder.path()), ["checkpoint"], "{when}");
        let timing = fs::read_to_string(run_folder.join("timing.jsonl")).unwrap();
        let last = timing.lines().rfind(|line| line.contains("\"session\"")).unwrap();
        assert!(last.contains(&format!("\"resumed_from_step\":{step}")), "{when}: {last}");
    }
}

/// All processes at once, at moments of no step or file.
#[cfg(unix)]
#[test]
fn killed_at_random_moments_any_number_of_ranks_goes_on() {
    use std::os::unix::process::CommandExt;
    let change = |run: &mut Value| {
        run["batch"]["sequences"] = 12.into();
        run["batch"]["accumulation"] = 12.into();
        run["budget"]["steps"] = 40.into();
        run["checkpoint"]["every_steps"] = 1.into();
    };
    let (undisturbed, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    prepare(undisturbed.path(), "mxfp4-fdw-sr", change);
    finish(run(undisturbed.path()));
    prepare(folder.path(), "mxfp4-fdw-sr", change);
    let mut state = 88_172_645_463_325_252u64;
    for ranks in [3, 2, 4, 2, 3, 4, 2, 4] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut child = launch(folder.path(), ranks).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100 + state % 400));
        Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status().unwrap();
        child.wait().unwrap();
    }
    let said = finish(launch(folder.path(), 3));
    assert!(!said.contains("warning"), "{said}");
    assert_same(folder.path(), &outcome(undisturbed.path()), "killed");
    assert_eq!(checkpoints(folder.path()), ["checkpoint"]);
}

/// Files may not grow beyond 500 blocks, which no shard fits into: the thread that writes fails, and with it the run.
#[cfg(target_os = "linux")]
#[test]
fn a_writer_that_fails_ends_the_run_and_leaves_the_checkpoint_before() {
    for ranks in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), "fp8", |run| {
            run["budget"]["steps"] = 40.into();
            run["checkpoint"]["every_steps"] = 3.into();
        });
        let child = start(folder.path(), ranks).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(stop(folder.path(), child, 0, "-INT"), Some(130));
        let before = files(&folder.path().join("run/checkpoint"));
        let command = start(folder.path(), ranks);
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 500; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
        let output: Output = limited.stdout(Stdio::null()).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("checkpoint.tmp-") && said.contains("cannot write") && said.contains("File too large"), "{said}");
        assert!(folder.path().join("run/failed.json").exists());
        assert!(files(&folder.path().join("run/checkpoint")) == before);
        // Of two ranks one may have ended before the other was done with their folder.
        assert!(checkpoints(folder.path()).len() <= ranks, "{:?}", checkpoints(folder.path()));
        finish(start(folder.path(), ranks));
        assert_eq!(checkpoints(folder.path()), ["checkpoint"]);
    }
}

/// Ranks of two machines without a disk in common, each with a run file of its own: rank 0 writes as one rank does.
#[test]
fn ranks_that_do_not_see_one_folder_leave_checkpoints_to_the_first() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let change = |run: &mut Value| {
        run["budget"]["steps"] = 40.into();
        run["checkpoint"]["every_steps"] = 1.into();
    };
    for folder in [&here, &there] {
        prepare(folder.path(), "fp8", change);
    }
    let mut wanted = None;
    for is_last in [false, true] {
        let port = a_port();
        let first = rank(here.path(), 0, 2, port).spawn().unwrap();
        let second = rank(there.path(), 1, 2, port).spawn().unwrap();
        if !is_last {
            let started = Instant::now();
            while step_of_checkpoint(here.path()) < 2 {
                assert!(started.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(2));
            }
            kill("-INT", second.id());
        }
        let output = first.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(if is_last { 0 } else { 130 }), "{}", said(&output));
        assert!(said(&output).contains("the other ranks do not write where rank 0 does"), "{}", said(&output));
        assert!(second.wait_with_output().unwrap().status.code().is_some());
        assert!(here.path().join("run/checkpoint/state.safetensors").exists());
        assert_eq!(files(&there.path().join("run")).into_keys().collect::<Vec<_>>(), ["run.yaml"]);
        wanted = is_last.then(|| outcome(here.path()));
    }
    finish(run(there.path()));
    assert_same(there.path(), &wanted.unwrap(), "one rank");
}

/// Bytes do not depend on whether a copy is made; and what is copied may change before it is written.
#[test]
fn a_copy_is_what_was_there_when_it_was_begun() {
    let run = common::tiny(common::recipe("fp8"));
    let ranks: &dyn Ranks<Cpu> = &Alone;
    let written = [true, false].map(|copies| {
        let folder = tempfile::tempdir().unwrap();
        let mut training = Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run.clone(), 0).unwrap();
        let mut writer = Writer::among(ranks, folder.path(), copies).unwrap();
        for step in 1..=2 {
            let marks = LogMarks { metrics_length: 0, metrics_sha256: String::new(), mllog_length: 0 };
            let state = State::new("run", &Progress { step, ..Progress::default() }, marks);
            writer.begin(ranks, &training, step, Some(state)).unwrap();
            training.parameters.fill(step as f32);
            training.moments.second.fill(-1.0);
        }
        writer.finish(ranks).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        files(&folder.path().join("checkpoint"))
    });
    assert!(written[0] == written[1]);
    let state: serde_json::Value = serde_json::from_slice(&written[0]["state.json"]).unwrap();
    assert_eq!(state["step"], 2);
    let file = trainer::tensors::Tensors::parse(Path::new("state"), written[0]["state.safetensors"].clone()).unwrap();
    for (array, value) in [("parameters", 1.0), ("adam_first", 0.0), ("adam_second", -1.0)] {
        assert!(file.f32(&format!("{array}.final_norm"), &[1, 64]).unwrap() == [value; 64], "{array}");
    }
}
