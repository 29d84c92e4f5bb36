//! Ranks on GPUs, here interpreted ones (kernels/gfx950/stand-in): the bytes of one rank on one GPU, whatever moves the numbers.
//!
//! Tests that compile kernels need clang 22; without it they say so and do nothing, unless REQUIRE_CLANG_22 is set, as in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_yaml::Value;

use crate::common;
use crate::hip::Site;
use crate::ranks::{a_port, finish, said};

/// A run whose parameters are three chunks, the last one not whole: of two ranks the second owns two, in two slices. Four micro-batches a step.
fn prepare(site: &Site, name: &str, recipe: &str, steps: u64) {
    prepare_changed(site, name, (recipe, steps), |_| ());
}

fn prepare_changed(site: &Site, name: &str, (recipe, steps): (&str, u64), change: impl FnOnce(&mut Value)) {
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["model"]["vocab_size"] = 320.into();
        run["model"]["num_hidden_layers"] = 1.into();
        run["model"]["intermediate_size"] = 128.into();
        run["batch"]["sequences"] = 4.into();
        run["batch"]["accumulation"] = 4.into();
        run["budget"]["steps"] = steps.into();
        run["checkpoint"]["every_steps"] = 1.into();
        run["evaluation"]["every_steps"] = steps.into();
        run["evaluation"]["sequences"] = 2.into();
        run["logging"]["quantisation_steps"] = vec![2].into();
        common::read_through(run, &["bf16"], steps);
        change(run);
    });
    common::write_run(&site.path(name), &run);
}

/// `trainer launch` with two interpreted GPUs.
fn launch(site: &Site, name: &str, options: &[&str]) -> Command {
    let run = format!("{name}/run.yaml");
    let mut command = site.command(&[&["launch", &run, "--data", "data"], options].concat());
    command.env("GFX950_STAND_IN_DEVICES", "2").env("TMPDIR", site.folder.path());
    command
}

fn assert_same(site: &Site, found: &str, wanted: &str) {
    for file in ["metrics.jsonl", "done.json", "model/model.safetensors"] {
        let [found, wanted] = [found, wanted].map(|name| fs::read(site.path(name).join(file)).unwrap());
        assert!(found == wanted, "{file} differs");
    }
    let [found, wanted] = [found, wanted].map(|name| common::checkpoint(&site.path(name)));
    assert!(found == wanted, "the checkpoint differs");
}

/// Kernels, products and messages so far, by all ranks.
fn trace(site: &Site) -> String {
    fs::read_to_string(site.path("trace.txt")).unwrap_or_default()
}

#[test]
fn two_gpus_give_the_bytes_of_one_whatever_moves_the_numbers() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    // FP8 through the library: `a_checkpoint_goes_on_with_another_number_of_gpus`.
    for (recipe, exchange, transport) in [("fp8-bf16-sums", "host", "host"), ("mxfp4-fdw-rh16", "nccl", "RCCL 2.22.3")] {
        let [one, two] = ["one", "two"].map(|ranks| format!("{ranks}-{exchange}"));
        prepare(&site, &one, recipe, 2);
        site.train(&one, "hip");
        fs::write(site.path("trace.txt"), "").unwrap();
        prepare(&site, &two, recipe, 2);
        finish(launch(&site, &two, &["--gpus", "2", "--exchange", exchange]));
        assert_same(&site, &two, &one);
        let trace = trace(&site);
        assert_eq!(trace.contains("rccl send"), exchange == "nccl", "{exchange}");
        assert!(trace.contains("pack_rows") && trace.contains("add_rows"), "{exchange}");
        let lines = site.records(&two, "exchange.jsonl");
        assert_eq!((lines[0]["transport"].as_str(), lines[0]["ranks"].as_u64()), (Some(transport), Some(2)));
        let of: Vec<_> = lines[1..].iter().map(|line| (line["step"].as_u64().unwrap(), line["rank"].as_u64().unwrap())).collect();
        assert_eq!(of, [(1, 0), (1, 1), (2, 0), (2, 1)]);
        for (line, (step, _)) in lines[1..].iter().zip(of) {
            let seconds = |name: &str| line[name].as_f64().unwrap();
            let all = ["gradients", "norm", "parameters"].map(seconds);
            // No step went before the first, whose parameters it could wait for.
            assert!(all[0] > 0.0 && all[1] > 0.0 && (all[2] > 0.0) == (step > 1), "{line}");
            assert!(all.iter().sum::<f64>() < seconds("seconds"), "{line}");
        }
    }
}

/// Six chunks of parameters: the norm's sums come to some ranks twice, and sums of one phase go to several.
#[test]
fn four_gpus_give_the_bytes_of_one() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    let larger = |name: &str| {
        prepare_changed(&site, name, ("mxfp4-fdw-sr", 2), |run| {
            run["model"]["num_hidden_layers"] = 3.into();
            run["model"]["intermediate_size"] = 192.into();
        });
    };
    larger("one");
    site.train("one", "hip");
    larger("four");
    let mut command = launch(&site, "four", &["--gpus", "4", "--exchange", "nccl"]);
    command.env("GFX950_STAND_IN_DEVICES", "4");
    finish(command);
    assert_same(&site, "four", "one");
    assert_eq!(site.records("four", "exchange.jsonl")[0]["ranks"], 4);
}

/// One rank that is told how to exchange does so with itself, to the same bytes.
#[test]
fn one_gpu_goes_through_the_library_where_it_is_told_to() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    prepare(&site, "plain", "mxfp4-fdw-h16", 2);
    site.train("plain", "hip");
    for exchange in ["host", "nccl"] {
        fs::write(site.path("trace.txt"), "").unwrap();
        prepare(&site, "one", "mxfp4-fdw-h16", 2);
        finish(site.command(&["run", "one/run.yaml", "--data", "data", "--device", "hip", "--exchange", exchange]));
        assert_same(&site, "one", "plain");
        assert_eq!(trace(&site).contains("rccl send"), exchange == "nccl", "{exchange}");
        fs::remove_dir_all(site.path("one")).unwrap();
    }
}

/// Parameters and moments belong to shards, and devices to ranks: all of that changes when a run goes on.
#[test]
fn a_checkpoint_goes_on_with_another_number_of_gpus() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    prepare(&site, "plain", "fp8", 3);
    site.train("plain", "hip");
    for [before, after] in [["2", "1"], ["1", "2"]] {
        prepare(&site, "run", "fp8", 3);
        let mut child = launch(&site, "run", &["--gpus", before, "--exchange", "nccl"]).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        // As soon as its first step is done: an interrupt makes a checkpoint of the next.
        while !fs::read_to_string(site.path("run/timing.jsonl")).is_ok_and(|text| text.contains("\"step\":1,")) {
            assert!(started.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none(), "no step was done");
            std::thread::sleep(Duration::from_millis(1));
        }
        Command::new("kill").arg("-INT").arg(child.id().to_string()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "from {before}");
        finish(launch(&site, "run", &["--gpus", after, "--exchange", "nccl"]));
        assert_same(&site, "run", "plain");
        fs::remove_dir_all(site.path("run")).unwrap();
    }
}

/// A rank that is killed in the midst of exchanges: the other one stops waiting for it, says who it was, and ends.
#[test]
fn a_killed_gpu_rank_ends_the_other() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    prepare(&site, "run", "fp8", 2);
    let port = a_port().to_string();
    let mut ranks = ["0", "1"].map(|rank| {
        let mut command = site.command(&["run", "run/run.yaml", "--data", "data", "--device", "hip"]);
        command.env("GFX950_STAND_IN_DEVICES", "2").env("RANK", rank).env("WORLD_SIZE", "2").env("LOCAL_RANK", rank);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port).stdin(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    let started = Instant::now();
    while !trace(&site).contains("rccl send") {
        assert!(started.elapsed() < Duration::from_secs(120) && ranks[0].try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let [survivor, mut victim] = ranks;
    victim.kill().unwrap();
    let killed = Instant::now();
    victim.wait().unwrap();
    let output = survivor.wait_with_output().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(30), "{:?}", killed.elapsed());
    assert!(output.status.code() == Some(4) && said(&output).contains("rank 1 has ended without a word"), "{}", said(&output));
}

#[test]
fn what_keeps_gpus_from_exchanging_is_said() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    prepare(&site, "run", "fp8", 2);
    let refused = |mut command: Command, code: i32, text: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(text), "{}", said(&output));
    };
    refused(launch(&site, "run", &["--gpus", "3"]), 4, "--gpus 3: this machine has 2 of the kind hip");
    refused(launch(&site, "run", &["--gpus", "2", "--device", "hip:1"]), 2, "name cuda or hip without a number");
    let mut three = launch(&site, "run", &["--gpus", "3"]);
    three.env("GFX950_STAND_IN_DEVICES", "3");
    refused(three, 2, "3 ranks do not divide batch.accumulation (4)");
    let one = "ranks 0 and 1 are on one GPU (0000:01:00.0 00000000000000000000000000000002)";
    refused(launch(&site, "run", &["--ranks", "2", "--device", "hip:1"]), 2, one);
    let mut old = launch(&site, "run", &["--gpus", "2"]);
    old.env("GFX950_STAND_IN_RCCL", "2804");
    refused(old, 4, "librccl.so.1 is RCCL 2.8.4; the oldest that is used is 2.10.0");
    let nowhere = launch(&site, "run", &["--gpus", "2", "--nccl", "/nowhere/librccl.so"]);
    refused(nowhere, 4, "/nowhere/librccl.so was not found");
    refused(launch(&site, "run", &["--ranks", "2", "--exchange", "nccl"]), 2, "they are for GPUs");
    fs::remove_file(site.libraries.join("librccl.so.1")).unwrap();
    refused(launch(&site, "run", &["--gpus", "2"]), 4, "librccl.so.1 was not found");
    assert!(!site.path("run/metrics.jsonl").exists());
}
