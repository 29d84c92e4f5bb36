//! `kernel-time --device hip` on the stand-in for ROCm's libraries (kernels/gfx950/stand-in): every call that an MI355X would be timed with
//! is made, on shapes that take seconds, and what comes out says that it was interpreted and tells no time.
//!
//! Needs clang 22; without it the test says so and does nothing, unless REQUIRE_CLANG_22 is set, as in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use crate::common;
use serde_json::Value;

/// One command on a block of 128 by 64 and 256 tokens: contraction axes of 64, 128 and 256, with and without padded scales.
fn trainer(command: &str, mxfp4: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let libraries = folder.path().join("libraries");
    std::fs::create_dir(&libraries).unwrap();
    gfx950_stand_in::install(&libraries).unwrap();
    let run = common::tiny_yaml(common::recipe("fp8"), |run| {
        run["model"]["hidden_size"] = 128.into();
        run["batch"]["sequences"] = 8.into();
    });
    common::write_run(&folder.path().join("run"), &run);
    let arguments = [command, "run/run.yaml"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.current_dir(folder.path()).args(arguments).args(["--device", "hip", "--warmup", "0", "--repeats", "1"]);
    command.env("LD_LIBRARY_PATH", &libraries).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
    command.env("GFX950_STAND_IN_MXFP4", mxfp4).output().unwrap()
}

/// The lines of `kernel-time`.
fn lines(mxfp4: &str) -> Vec<Value> {
    let output = trainer("kernel-time", mxfp4);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(lines: &'a [Value], kind: &'a str, variant: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["kind"] == kind && line["variant"] == variant)
}

#[test]
fn every_kernel_is_called_and_no_time_is_told() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let lines = lines("");
    let device = &lines[0];
    assert_eq!((device["kind"].as_str(), device["name"].as_str()), (Some("device"), Some("gfx950 interpreter")));
    assert_eq!((device["interpreted"].as_bool(), device["mxfp4"].as_str()), (Some(true), Some("native")));
    for line in lines[1..].iter().filter(|line| line["kind"] != "not_run") {
        assert!(line["interpreted"] == true && line.get("seconds") == Some(&Value::Null), "{line}");
    }
    for variant in ["mxfp4-h0", "mxfp4-h16", "mxfp4-h32", "fp8", "bf16"] {
        for kind in ["kernel_time", "product_time"] {
            assert_eq!(of(&lines, kind, variant).count(), 12, "{kind} {variant}");
        }
    }
    let prepared: BTreeSet<&str> =
        lines.iter().filter(|line| line["kind"] == "prepare_time").map(|line| line["variant"].as_str().unwrap()).collect();
    let suffixed = |suffix: &str| ["mxfp4-h0", "mxfp4-h16", "mxfp4-h32"].map(|name| format!("{name}{suffix}"));
    let expected: BTreeSet<String> =
        [suffixed("").to_vec(), suffixed("-sr").to_vec(), vec!["fp8".to_owned()]].concat().into_iter().collect();
    assert_eq!(prepared, expected.iter().map(String::as_str).collect());
    let peaks: Vec<&str> = lines.iter().filter(|line| line["kind"] == "peak_time").map(|line| line["variant"].as_str().unwrap()).collect();
    assert_eq!(peaks, ["bf16", "fp8", "mxfp4"]);
    assert_eq!(of(&lines, "copy_time", "copy").count(), 1);
}

/// The library's product follows ours wherever it has one; where not, a line says why.
#[test]
fn the_librarys_products_stand_beside_ours_or_say_why_not() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let all = lines("");
    let sizes = |line: &Value| ["m", "n", "k"].map(|side| line[side].as_u64().unwrap());
    for (index, line) in all.iter().enumerate().filter(|(_, line)| line["kind"] == "product_time" && line["variant"] == "mxfp4-h0") {
        let [by_rows, swizzled] = [&all[index + 1], &all[index + 2]];
        assert_eq!([&by_rows["variant"], &swizzled["variant"]], ["mxfp4-hipblaslt", "mxfp4-hipblaslt-swizzled"]);
        assert_eq!([sizes(by_rows), sizes(swizzled)], [sizes(line); 2]);
        let [m, n, k] = sizes(line);
        assert_eq!(by_rows["kind"] == "product_time", k % 128 == 0, "{by_rows}");
        assert_eq!(swizzled["kind"] == "product_time", k % 256 == 0 && m % 32 == 0 && n % 32 == 0, "{swizzled}");
    }
    let counts =
        |lines: &[Value]| ["mxfp4-hipblaslt", "mxfp4-hipblaslt-swizzled"].map(|variant| of(lines, "product_time", variant).count());
    let (with, without) = (counts(&all), counts(&lines("none")));
    assert!(with[0] > with[1] && with[1] > 0, "{with:?}");
    assert_eq!(without, [0, 0]);
    // A library that reads swizzled scales as if they lay by rows is found out by what it computes.
    let mistaken = lines("mistaken");
    assert_eq!(counts(&mistaken), [with[0], 0]);
    let said: Vec<&str> = of(&mistaken, "not_run", "mxfp4-hipblaslt-swizzled").map(|line| line["reason"].as_str().unwrap()).collect();
    assert_eq!(
        said.iter().filter(|reason| reason.starts_with("the library's results are not ours (relative difference ")).count(),
        with[1]
    );
    let reason = |variant: &str| of(&all, "not_run", variant).map(|line| line["reason"].as_str().unwrap().to_owned()).next().unwrap();
    assert!(
        reason("mxfp4-hipblaslt").starts_with("hipBLASLt multiplies MXFP4 with sides in multiples of 16 and contraction axes of 128, not ")
    );
    assert!(reason("mxfp4-hipblaslt-swizzled").starts_with("swizzled scales of [256, "));
}

#[test]
fn a_step_that_is_interpreted_has_no_time() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let output = trainer("step-time", "");
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("gfx950 interpreter is no device: how long the processor takes") && output.stdout.is_empty(), "{said}");
}
