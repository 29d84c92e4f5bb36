//! Several ranks, each a process: the bytes of one, whatever their number, and an end for all when one of them ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_yaml::Value;

/// A model of four chunks of parameters, so that each of four ranks owns one, and steps of four micro-batches.
pub(crate) fn prepare(folder: &Path, recipe: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    common::write_data(&folder.join("data"));
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["model"]["vocab_size"] = 160.into();
        run["model"]["num_hidden_layers"] = 4.into();
        // 64 tokens a micro-batch: the largest rotation's contraction axis.
        run["batch"]["sequences"] = 8.into();
        run["batch"]["accumulation"] = 4.into();
        run["budget"]["steps"] = 5.into();
        run["evaluation"]["every_steps"] = 2.into();
        run["logging"]["quantisation_steps"] = vec![1, 4].into();
        change(run);
    });
    common::write_run(&folder.join("run"), &run)
}

/// `trainer run` without anybody's ranks.
pub(crate) fn run(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

pub(crate) fn launch(folder: &Path, ranks: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("launch").arg("--ranks").arg(ranks.to_string());
    command.arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// One rank as torchrun would start it.
pub(crate) fn rank(folder: &Path, rank: usize, size: usize, port: u16) -> Command {
    let mut command = run(folder);
    for (name, value) in [("RANK", rank), ("WORLD_SIZE", size), ("LOCAL_RANK", rank), ("MASTER_PORT", port.into())] {
        command.env(name, value.to_string());
    }
    command.env("MASTER_ADDR", "127.0.0.1").env("TORCHELASTIC_RUN_ID", "test");
    command
}

pub(crate) fn a_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().min(60_000)
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn finish(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, said(&output));
    said(&output)
}

/// Everything that must be equal, by name: files, and what the checkpoint's hold.
pub(crate) fn outcome(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let run = folder.join("run");
    let files = ["metrics.jsonl", "done.json", "model/model.safetensors", "model/config.json"];
    let files = files.map(|name| (name, fs::read(run.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))));
    files.into_iter().chain([("checkpoint", common::checkpoint(&run))]).collect()
}

pub(crate) fn assert_same(folder: &Path, wanted: &[(&'static str, Vec<u8>)], what: &str) {
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

/// Every recipe of the smoke profile, among them delayed scales and stochastic rounding, and a defect of the sum; operands measured, readings made.
#[test]
fn two_and_four_ranks_give_the_bytes_of_one() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/profiles/smoke.yaml");
    let profile: Value = serde_yaml::from_str(&fs::read_to_string(manifest).unwrap()).unwrap();
    let arms = profile["arms"].as_sequence().unwrap().iter();
    let recipes: Vec<&str> = arms.flat_map(|arm| arm["recipes"].as_sequence().unwrap()).map(|id| id.as_str().unwrap()).collect();
    assert!(recipes.contains(&"fp8") && recipes.contains(&"mxfp4-fdw-sr") && recipes.len() > 8);
    for recipe in recipes.into_iter().chain(["mxfp4-fdw-sr-bf16-sums"]) {
        let change = |run: &mut Value| common::read_through(run, &["bf16"], 4);
        let wanted = undisturbed(recipe, change);
        for ranks in [2, 4] {
            let folder = tempfile::tempdir().unwrap();
            prepare(folder.path(), recipe, change);
            let said = finish(launch(folder.path(), ranks));
            assert!(said.contains("exchanges took ") && said.contains(" % of the steps on rank "), "{said}");
            assert_same(folder.path(), &wanted, &format!("{recipe} on {ranks} ranks"));
            let timing = fs::read_to_string(folder.path().join("run/timing.jsonl")).unwrap();
            assert!(timing.contains(&format!("\"ranks\":{ranks},")), "{timing}");
        }
    }
}

/// Eight ranks, of which four own no parameters, with three threads each. The embedding has too few rows to be sent as those of a micro-batch,
/// as it is in the other tests.
#[test]
fn eight_ranks_give_the_bytes_of_one() {
    let change = |run: &mut Value| {
        run["model"]["vocab_size"] = 64.into();
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

/// Two launchers, as a scheduler starts them on two machines, make one run.
#[test]
fn launchers_of_two_machines_train_together() {
    let wanted = undisturbed("mxfp4-fdw-sr", |_| ());
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "mxfp4-fdw-sr", |_| ());
    let port = a_port().to_string();
    let machine = |number: &str| {
        let mut command = launch(folder.path(), 2);
        command.env("PET_NNODES", "2").env("PET_NODE_RANK", number).env("PET_MASTER_ADDR", "127.0.0.1").env("PET_MASTER_PORT", &port);
        command.spawn().unwrap()
    };
    for child in [machine("1"), machine("0")] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && said(&output).contains("by PET_NODE_RANK and PET_NNODES of Kubeflow"), "{}", said(&output));
    }
    assert_same(folder.path(), &wanted, "two machines");
}

/// Moments belong to shards, histories to all: both survive another number of ranks.
#[test]
fn a_checkpoint_goes_on_with_another_number_of_ranks() {
    for recipe in ["fp8", "mxfp4-fdw-rh16"] {
        // So many steps that a busy machine does not get to the end before it is stopped.
        let change = |run: &mut Value| {
            run["budget"]["steps"] = 96.into();
            run["checkpoint"]["every_steps"] = 1.into();
        };
        let wanted = undisturbed(recipe, change);
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), recipe, change);
        let sessions = || fs::read_to_string(folder.path().join("run/timing.jsonl")).unwrap_or_default().matches("\"session\"").count();
        for ranks in [2, 4] {
            // Stopped as soon as it has gone a step further.
            let before = step_of_checkpoint(folder.path());
            let child = launch(folder.path(), ranks).stderr(Stdio::null()).spawn().unwrap();
            let stopped = stop(folder.path(), child, before, "-INT");
            assert!(stopped == Some(130) || stopped == Some(0), "{stopped:?}");
        }
        finish(run(folder.path()));
        assert_same(folder.path(), &wanted, recipe);
        assert!(sessions() >= 2, "{recipe} was not interrupted once");
    }
}

/// Steps of the checkpoint; none yet is 0.
pub(crate) fn step_of_checkpoint(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("run/checkpoint/state.json")).unwrap_or_default();
    serde_json::from_str::<serde_json::Value>(&text).map_or(0, |state| state["step"].as_u64().unwrap())
}

/// Until there is a checkpoint of a later step than `before`, or the process has ended.
fn wait_for_checkpoint(folder: &Path, child: &mut Child, before: u64) {
    let started = Instant::now();
    while step_of_checkpoint(folder) <= before && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "no checkpoint came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a signal once there is a checkpoint of a later step than `before`; the exit code.
pub(crate) fn stop(folder: &Path, mut child: Child, before: u64, signal: &str) -> Option<i32> {
    wait_for_checkpoint(folder, &mut child, before);
    kill(signal, child.id());
    child.wait().unwrap().code()
}

pub(crate) fn kill(signal: &str, process: u32) {
    Command::new("kill").arg(signal).arg(process.to_string()).stderr(Stdio::null()).status().unwrap();
}

/// A long run's ranks, started one by one, when it has written its first checkpoint.
fn long_run(folder: &Path, size: usize) -> Vec<Child> {
    prepare(folder, "fp8", |run| {
        run["budget"]["steps"] = 4000.into();
        run["checkpoint"]["every_steps"] = 1.into();
    });
    let port = a_port();
    let mut ranks: Vec<Child> =
        (0..size).map(|number| rank(folder, number, size, port).args(["--silence-timeout", "4"]).spawn().unwrap()).collect();
    let started = Instant::now();
    while step_of_checkpoint(folder) == 0 {
        assert!(started.elapsed() < Duration::from_secs(60) && ranks[0].try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    ranks
}

/// Waits for every rank but one; what each said.
fn end_of_the_others(ranks: Vec<Child>, but: usize) -> Vec<(Option<i32>, String)> {
    let started = Instant::now();
    let others = ranks.into_iter().enumerate().filter(|(number, _)| *number != but);
    let ends = others
        .map(|(_, child)| {
            let output = child.wait_with_output().unwrap();
            (output.status.code(), said(&output))
        })
        .collect();
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?}", started.elapsed());
    ends
}

/// Whoever ends, first or last: everyone else ends soon, says who it was and that the run has failed.
#[test]
fn a_killed_rank_ends_all_and_the_same_command_goes_on_to_the_same_bytes() {
    for victim in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let ranks = long_run(folder.path(), 4);
        kill("-KILL", ranks[victim].id());
        for (code, said) in end_of_the_others(ranks, victim) {
            assert_eq!(code, Some(4), "{said}");
            assert!(said.contains(&format!("rank {victim} ")) && said.contains("error: rank "), "{said}");
        }
        assert_eq!(folder.path().join("run/failed.json").exists(), victim != 0);
        assert!(!folder.path().join("run/done.json").exists());
    }
    let change = |run: &mut Value| {
        run["budget"]["steps"] = 30.into();
        run["checkpoint"]["every_steps"] = 1.into();
    };
    let wanted = undisturbed("fp8", change);
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8", change);
    for _ in 0..3 {
        let before = step_of_checkpoint(folder.path());
        let port = a_port();
        let mut first = rank(folder.path(), 0, 2, port).stderr(Stdio::null()).spawn().unwrap();
        let second = rank(folder.path(), 1, 2, port).stderr(Stdio::null()).spawn().unwrap();
        stop(folder.path(), second, before, "-KILL");
        first.wait().unwrap();
    }
    finish(launch(folder.path(), 2));
    assert_same(folder.path(), &wanted, "killed");
}

/// Nobody can ask its ranks to stop then; they do all the same, after a checkpoint.
#[cfg(target_os = "linux")]
#[test]
fn ranks_end_with_a_launcher_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8", |run| {
        run["budget"]["steps"] = 4000.into();
        run["checkpoint"]["every_steps"] = 1.into();
    });
    let mut launcher = launch(folder.path(), 2).stderr(Stdio::null()).spawn().unwrap();
    wait_for_checkpoint(folder.path(), &mut launcher, 0);
    let children = format!("/proc/{0}/task/{0}/children", launcher.id());
    let ranks: Vec<String> = fs::read_to_string(children).unwrap().split_whitespace().map(str::to_owned).collect();
    assert_eq!(ranks.len(), 2);
    stop(folder.path(), launcher, 0, "-KILL");
    // Whoever inherits them may leave them as zombies for a while.
    let is_gone = |rank: &String| fs::read_to_string(format!("/proc/{rank}/stat")).map_or(true, |stat| stat.contains(") Z "));
    let killed = Instant::now();
    while !ranks.iter().all(is_gone) {
        assert!(killed.elapsed() < Duration::from_secs(20), "a rank runs on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((1..4000).contains(&step_of_checkpoint(folder.path())));
    assert!(!folder.path().join("run/done.json").exists() && !folder.path().join("run/failed.json").exists());
}

#[test]
fn a_rank_that_hangs_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = long_run(folder.path(), 2);
    let hung = ranks[1].id();
    kill("-STOP", hung);
    for (code, said) in end_of_the_others(ranks, 1) {
        assert_eq!(code, Some(4));
        assert!(said.contains("rank 1 has given no sign for 4 s"), "{said}");
    }
    kill("-KILL", hung);
}

/// One rank is asked to stop; all stop after the same step, and rank 0's checkpoint is there.
#[test]
fn an_interrupt_of_any_rank_stops_all() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = long_run(folder.path(), 2);
    kill("-INT", ranks[1].id());
    let ends = end_of_the_others(ranks, usize::MAX);
    let step = step_of_checkpoint(folder.path());
    for (code, said) in ends {
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains(&format!("interrupted after step {step};")), "{said}");
    }
    assert!(!folder.path().join("run/failed.json").exists());
}

/// Runs all ranks of which `others` are not as they should be; what they said.
fn refused(size: usize, mut command: impl FnMut(usize, u16) -> Option<Command>) -> Vec<(Option<i32>, String)> {
    let port = a_port();
    let ranks: Vec<Child> = (0..size).filter_map(|number| command(number, port)).map(|mut command| command.spawn().unwrap()).collect();
    end_of_the_others(ranks, usize::MAX)
}

#[test]
fn ranks_that_cannot_train_together_say_why() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    prepare(folder.path(), "fp8", |_| ());
    prepare(other.path(), "fp8", |run| run["run"]["seed"] = 8.into());
    for (code, said) in refused(4, |number, port| Some(rank(if number == 3 { other.path() } else { folder.path() }, number, 4, port))) {
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("rank 3 runs another run file"), "{said}");
    }
    for (code, said) in refused(2, |number, port| Some(rank(folder.path(), number, 2 + 2 * number, port))) {
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("rank 1 was told of 4 ranks, rank 0 of 2"), "{said}");
    }
    for (code, said) in refused(4, |number, port| Some(rank(folder.path(), [0, 1, 1, 3][number], 4, port))) {
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("two processes take themselves for rank 1"), "{said}");
    }
    // Nobody left a mark in the run's folder that is not an error's.
    assert!(!folder.path().join("run/metrics.jsonl").exists());
}

#[test]
fn a_missing_rank_is_named() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8", |_| ());
    let patient = |mut command: Command| {
        command.args(["--rendezvous-timeout", "1"]);
        command
    };
    for (code, said) in refused(4, |number, port| (number != 2).then(|| patient(rank(folder.path(), number, 4, port)))) {
        assert_eq!(code, Some(4), "{said}");
        assert!(said.contains("rank 2 has not come within 1 s"), "{said}");
    }
    for (code, said) in refused(2, |number, port| (number != 0).then(|| patient(rank(folder.path(), number, 2, port)))) {
        assert_eq!(code, Some(4), "{said}");
        assert!(said.contains("rank 0 has not answered rank 1"), "{said}");
    }
}

/// Strangers on the first port, who listen and say nothing or nonsense, and strangers who call.
#[test]
fn garbage_on_the_ports_is_waited_past() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8", |_| ());
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stranger.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in stranger.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let started = Instant::now();
    let mut first = rank(folder.path(), 0, 2, port - 1).spawn().unwrap();
    // Rank 0 listens on the next port; callers who are no ranks come before the other one does.
    let mut callers = Vec::new();
    while callers.len() < 3 {
        let bytes: &[u8] = [&b"GET / HTTP/1.1\r\n\r\n"[..], b"", b"mxfp4-r1\xff\xff\xff\x7f"][callers.len()];
        if let Ok(mut caller) = std::net::TcpStream::connect(("127.0.0.1", port + 1)) {
            caller.write_all(bytes).unwrap();
            callers.push(caller);
        }
        assert!(started.elapsed() < Duration::from_secs(30) && first.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = rank(folder.path(), 1, 2, port - 1).output().unwrap();
    assert!(second.status.success(), "{}", said(&second));
    assert!(first.wait().unwrap().success());
}

#[test]
fn wrong_usage_is_refused_before_anything_begins() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "fp8", |_| ());
    for ranks in [0, 3, 8] {
        let output = launch(folder.path(), ranks).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(&format!("{ranks} ranks do not divide batch.accumulation (4)")), "{}", said(&output));
    }
    let output = rank(folder.path(), 0, 3, a_port()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("3 ranks do not divide batch.accumulation (4)"), "{}", said(&output));
    let output = run(folder.path()).env("RANK", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("RANK is set and WORLD_SIZE is not"), "{}", said(&output));
    // A world of one is nobody's.
    let said = finish(rank(folder.path(), 0, 1, a_port()));
    assert!(!said.contains("rank"), "{said}");
}

/// What is shared out among ranks, by hand: moments 8P / 2, a checkpoint's copy 12P / 2; gradients 4P / 2 of their sum, and in F32 two buckets,
/// what the other rank sends of one, and the embedding's rows of 64 tokens. A block is the largest bucket: 24,576 weights and two gains of 64.
#[test]
fn one_of_two_ranks_takes_less_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = prepare(folder.path(), "fp8", |_| ());
    let terms = |ranks: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        let output = command.arg("memory").arg(&path).args(["--json", "--ranks", ranks]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let bytes = |name: &str| {
            let terms = report["ways"][0]["terms"].as_array().unwrap();
            terms.iter().find(|term| term["name"] == name).unwrap()["bytes"].as_u64().unwrap()
        };
        ["parameters, F32", "moments, F32", "gradients, F32", "copy for a checkpoint"].map(bytes)
    };
    let [parameters, moments, gradients, copy] = terms("1");
    let p = parameters / 4;
    assert_eq!([moments, gradients, copy], [8 * p, 8 * p, 12 * p]);
    assert_eq!(terms("2"), [4 * p, 4 * p, 2 * p + 10 * (24_576 + 2 * 64) + 4 * 64 * (64 + 1), 6 * p]);
}
