//! Ranks on GPUs, here interpreted ones (kernels/gfx950/stand-in): the bytes of one rank on one GPU, whatever moves the numbers.
//!
//! Tests that compile kernels need clang 22; without it they say so and do nothing, unless REQUIRE_CLANG_22 is set, as in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::{Command, Output};

use crate::common;
use crate::hip::Site;

/// A run whose parameters are two chunks, so that each of two ranks owns one (the second ends within a chunk), in steps of four micro-batches.
fn prepare(site: &Site, name: &str, recipe: &str) {
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["model"]["vocab_size"] = 96.into();
        run["model"]["num_hidden_layers"] = 1.into();
        run["model"]["intermediate_size"] = 128.into();
        run["batch"]["sequences"] = 8.into();
        run["batch"]["accumulation"] = 4.into();
        run["budget"]["steps"] = 3.into();
        run["evaluation"]["every_steps"] = 3.into();
        run["evaluation"]["sequences"] = 3.into();
        run["logging"]["quantisation_steps"] = vec![2].into();
    });
    common::write_run(&site.path(name), &run);
}

/// `trainer launch` with two interpreted GPUs.
fn launch(site: &Site, name: &str, options: &[&str]) -> Command {
    let run = format!("{name}/run.yaml");
    let mut command = site.command(&[&["launch", &run, "--data", "data"], options].concat());
    command.env("GFX950_STAND_IN_DEVICES", "2");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn finish(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, said(&output));
    said(&output)
}

fn assert_same(site: &Site, found: &str, wanted: &str) {
    for file in ["metrics.jsonl", "done.json", "checkpoint/state.json", "checkpoint/state.safetensors", "model/model.safetensors"] {
        let [found, wanted] = [found, wanted].map(|name| fs::read(site.path(name).join(file)).unwrap());
        assert!(found == wanted, "{file} differs");
    }
}

#[test]
fn two_gpus_give_the_bytes_of_one() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    for recipe in ["fp8", "mxfp4-fdw-rh16"] {
        prepare(&site, "one", recipe);
        site.train("one", "hip");
        prepare(&site, "two", recipe);
        finish(launch(&site, "two", &["--ranks", "2", "--device", "hip"]));
        assert_same(&site, "two", "one");
        for name in ["one", "two"] {
            fs::remove_dir_all(site.path(name)).unwrap();
        }
    }
}
