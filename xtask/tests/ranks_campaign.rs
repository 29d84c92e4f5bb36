//! Campaigns whose runs have several ranks, by the real trainer on the CPU: the hashes of one rank, and nothing lost with a rank.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;

use crate::gpu_campaign::{Site, edit};

/// Forwards to the real trainer. In the mode `kill a rank` the first `launch` loses one of its processes once there is a checkpoint; with `other bytes`
/// one that nobody interrupts leaves another log than the trainer wrote, with `refuse` it says that it cannot.
pub(crate) const TRAINER: &str = r#"#!/bin/sh
here=$(dirname "$0"); real=$(cat "$here/real"); mode=$(cat "$here/mode")
case "$1" in
  version) echo '{"version":"0","build":{"trainer_code":"feedfacefeedfacefeedfacefeedface","toolchain":"rustc stand-in"}}'; exit 0 ;;
  identity) printf '{"schema":"mxfp4-identity/1"'; for kind in cpu cuda hip; do printf ',"%s":{"identity":"feed%s","parts":{}}' $kind $kind; done; echo '}'; exit 0 ;;
  run|launch) echo "$1 $5 $6 $7 $8" >> "$here/calls" ;;
esac
case "$1 $mode $2" in
  "launch other bytes "*/2/run.yaml) "$real" "$@"; code=$?; echo >> "$(dirname "$2")/metrics.jsonl"; exit $code ;;
  "launch refuse "*) echo 'rank 0 of 2' >&2; echo 'error: librccl.so.1 was not found' >&2; exit 4 ;;
esac
[ "$1" = launch ] && [ "$mode" = "kill a rank" ] && [ ! -e "$here/killed" ] || exec "$real" "$@"
touch "$here/killed"
"$real" "$@" &
launcher=$!
until [ -e "$(dirname "$2")/checkpoint/state.json" ]; do sleep 0.01; done
set -- $(cat "/proc/$launcher/task/$launcher/children")
kill -9 "$2"
wait "$launcher"
"#;

fn site() -> Site {
    let site = Site::of("cpu", TRAINER);
    shared_out(&site);
    site
}

/// Steps of two micro-batches, some dozens of them.
fn shared_out(site: &Site) {
    let profile = site.path("manifests/profiles/smoke.yaml");
    edit(&profile, "batch: {sequences: 4}", "batch: {sequences: 4, accumulation: 2}");
    edit(&profile, "budget: {steps: 8}", "budget: {steps: 40}");
    edit(&profile, "quantisation_steps: [1, 8]", "quantisation_steps: [1, 40]");
    edit(&profile, "checkpoint: {every_steps: 6}", "checkpoint: {every_steps: 1}");
}

fn hashes(site: &Site) -> String {
    std::fs::read_to_string(site.result().join("DETERMINISTIC.sha256")).unwrap()
}

const REPLICATE: [&str; 5] = ["replicate", "--profile", "smoke", "--only-arms", "fp8,mxfp4-fdw-sr"];

#[test]
fn two_ranks_give_the_hashes_of_one_and_a_killed_rank_is_started_again() {
    let (one, two) = (site(), site());
    one.says(&REPLICATE, 0);
    assert!(one.calls().iter().all(|call| call.starts_with("run --device cpu ")));
    two.mode("kill a rank");
    let ranks = ["--ranks-per-run", "2", "--parallel", "1"];
    let text = two.says(&[&REPLICATE[..], &ranks].concat(), 0);
    assert!(text.contains("2 runs: 2 arms x 1 seeds, 1 at once, each of 2 ranks"), "{text}");
    assert!(text.contains(" lost a rank on cpu; it goes on from its last checkpoint"), "{text}");
    // Two runs, and the one that was lost a second time.
    assert_eq!(two.calls(), ["launch --ranks 2 --device cpu"; 3]);
    assert_eq!(hashes(&one), hashes(&two));
    let timing = std::fs::read_to_string(two.result().join("runs/fp8/1/timing.jsonl")).unwrap();
    assert!(timing.contains("\"ranks\":2,"), "{timing}");
    // One rank finds them finished: their number is in no key.
    assert!(two.says(&REPLICATE, 0).contains("nothing to do"));
}

/// `device-test --ranks`: what several train is what one trains; a trainer whose ranks give other bytes, or none, is noticed.
#[test]
fn several_ranks_are_compared_with_one() {
    let site = site();
    let out = site.path("out");
    let test = ["device-test", "--ranks", "2", "--out", out.to_str().unwrap()];
    let text = site.says(&test, 0);
    assert!(text.contains(": 2 ranks against one, seed 1\n") && text.contains("\n8 checks, 0 failed\n"), "{text}");
    let directory = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    assert!(directory.to_str().unwrap().ends_with("-x2"), "{}", directory.display());
    assert!(site.says(&["verify", directory.to_str().unwrap()], 0).contains("verified: "));
    let checks = std::fs::read_to_string(directory.join("checks.csv")).unwrap();
    for line in [
        "ranks,mxfp4-fdw-sr,\"2 ranks, by host: files of one rank that differ\",",
        "ranks,mxfp4-fdw-sr,\"2, 1, 2 ranks one after the other, by host: files of one rank that differ\",",
        "ranks,mxfp4-fdw-sr,\"2 ranks, one killed: seconds until all have ended\",2,",
        "ranks,mxfp4-fdw-sr,\"2 ranks, after one was killed, by host: files of one rank that differ\",",
        "ranks,fp8,\"2 ranks, by host: files of one rank that differ\",",
    ] {
        assert!(checks.contains(line), "{line} is not in\n{checks}");
    }
    site.mode("other bytes");
    let text = site.says(&test[..3], 1);
    assert!(text.contains("FAILED ranks fp8, 2 ranks, by host: files of one rank that differ: 1e0, bound 0e0"), "{text}");
    assert!(text.contains("\n8 checks, 3 failed\n"), "{text}");
    site.mode("refuse");
    let text = site.says(&test[..3], 1);
    assert!(text.contains("FAILED ranks fp8, 2 ranks: librccl.so.1 was not found: not a number, bound 0e0"), "{text}");
    let gpus = Site::new();
    let text = gpus.says(&["device-test", "--gpus", "4"], 4);
    assert!(text.contains("not-run: 4 GPUs of one machine are needed, 2 can be used here"), "{text}");
    assert!(gpus.says(&["device-test", "--gpus", "3"], 2).contains("must be 2, 4, 8 or 16"));
}

#[test]
fn a_run_takes_the_gpus_that_its_profile_asks_for() {
    let site = Site::new();
    shared_out(&site);
    let text = site.says(&REPLICATE, 0);
    assert!(text.contains("1 at once, each of 2 ranks"), "{text}");
    let calls = site.calls();
    assert_eq!(calls.iter().filter(|call| *call == "launch cuda:0,1").count(), 2, "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("run ")) && calls.iter().any(|call| call == "step-time cuda:0"), "{calls:?}");
    let alone = Site::new();
    shared_out(&alone);
    alone.says(&[&REPLICATE[..], &["--ranks-per-run", "1"]].concat(), 0);
    let calls = alone.calls();
    assert!(calls.iter().filter(|call| call.starts_with("run cuda:")).count() == 2, "{calls:?}");
    for run in ["fp8", "mxfp4-fdw-sr"] {
        let metrics = |site: &Site| std::fs::read(site.result().join("runs").join(run).join("1/metrics.jsonl")).unwrap();
        assert!(metrics(&site) == metrics(&alone), "{run}");
    }
    for (ranks, said) in [("3", "3 ranks do not divide the 2 micro-batches"), ("8", "8 ranks do not divide")] {
        let text = site.says(&[&REPLICATE[..], &["--ranks-per-run", ranks]].concat(), 4);
        assert!(text.contains(said), "{text}");
    }
    let text = site.says(&[&REPLICATE[..], &["--gpus", "1", "--ranks-per-run", "2"]].concat(), 4);
    assert!(text.contains("2 ranks need a GPU each, and 1 can be used"), "{text}");
}

#[test]
fn a_campaign_that_a_launcher_starts_several_times_is_refused() {
    let site = site();
    for (variables, said) in [
        (&[("RANK", "1"), ("WORLD_SIZE", "2")][..], "torchrun started this as one of several processes (WORLD_SIZE=2)"),
        (&[("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")], "srun started this as one of several"),
    ] {
        let output = site.command(&REPLICATE).envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(said) && text.contains("start it once"), "{text}");
    }
    assert!(site.calls().is_empty());
}

/// What `kernels-bench` does on several GPUs, by the real trainer: as processes, and on two GPUs that are not there for a model with the shapes of none.
#[test]
fn steps_of_several_ranks_are_timed_whatever_is_missing() {
    let site = site();
    let text = site.says(&["kernels-bench", "--ranks", "2,1", "--quick", "--machine", "here", "--peers", "no-python"], 0);
    let kernels = |site: &Site| std::fs::read_dir(site.path("results")).unwrap().next().unwrap().unwrap().path();
    let rows = |site: &Site| {
        let rows = csv::Reader::from_path(kernels(site).join("ranks.csv")).unwrap().into_deserialize();
        rows.map(Result::unwrap).collect::<Vec<BTreeMap<String, String>>>()
    };
    let measured = rows(&site);
    assert_eq!(measured.len(), 6, "{text}");
    for row in &measured {
        // A process alone has nothing to exchange, and nobody to be compared with.
        let is_alone = row["ranks"] == "1";
        assert!(row["size"] == "size-a" && row["samples"] == "6", "{row:?}");
        assert!(["of_ideal", "exposed", "exposed_rank", "waits_most"].iter().all(|name| row[*name].is_empty() == is_alone), "{row:?}");
        assert!(row["needs"].contains("kernels/peers/fsdp_peers.py is not in this tree"), "{row:?}");
    }
    let directory = kernels(&site);
    site.says(&["verify", directory.to_str().unwrap()], 0);

    let site = Site::new();
    let model = site.path("manifests/models/llama31-8b.yaml");
    for (from, to) in [
        ("hidden_size: 4096", "hidden_size: 64"),
        ("num_attention_heads: 32", "num_attention_heads: 2"),
        ("num_key_value_heads: 8", "num_key_value_heads: 2"),
        ("head_dim: 128", "head_dim: 32"),
        ("intermediate_size: 14336", "intermediate_size: 96"),
        ("sequence_length: 8192", "sequence_length: 32"),
    ] {
        edit(&model, from, to);
    }
    let text = site.says(&["kernels-bench", "--gpus", "1,2,4", "--quick", "--only", "mxfp4"], 0);
    let measured = rows(&site);
    assert!(text.contains("Stand-in GPU (cuda; MXFP4 emulated; CUDA driver 12.8;"), "{text}");
    let short: Vec<_> = measured.iter().map(|row| ["size", "arm", "ranks", "samples", "needs"].map(|name| row[name].as_str())).collect();
    let needs = "ours: needs 4 GPUs of one machine; here: 2";
    let cut = "llama31-8b-8-layers";
    assert_eq!(
        short,
        [[cut, "mxfp4-fdw-h16", "1", "6", ""], [cut, "mxfp4-fdw-h16", "2", "6", ""], [cut, "mxfp4-fdw-h16", "4", "0", needs]]
    );
    assert_eq!(site.calls(), ["step-time cuda"; 2]);
    site.mode("none");
    let text = site.says(&["kernels-bench", "--gpus", "2", "--out", "elsewhere"], 0);
    assert!(text.contains("needs 2 GPUs of one machine; here: 0; an NVIDIA GPU"), "{text}");
}
