//! Which passes of a recipe multiply packed MXFP4 on `--device hip`, and that the run says so; on the stand-in for ROCm's libraries
//! (kernels/gfx950/stand-in). A run of each kind: native, native where the shapes allow it, without MXFP4; and whose kernels multiply.
//!
//! Tests that compile kernels need clang 22; without it they say so and do nothing, unless REQUIRE_CLANG_22 is set, as in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::hip::Site;
use serde_json::Value;

fn records(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One step of a recipe with `sequences` of 16 tokens: the session's line, and the losses of training and evaluation.
fn step(recipe: &str, sequences: u64, device: &str) -> (Value, Vec<f64>) {
    step_of(recipe, sequences, 16, device)
}

/// The same with heads of `head_dim` elements.
fn step_of(recipe: &str, sequences: u64, head_dim: u64, device: &str) -> (Value, Vec<f64>) {
    let folder = tempfile::tempdir().unwrap();
    let libraries = folder.path().join("libraries");
    std::fs::create_dir(&libraries).unwrap();
    gfx950_stand_in::install(&libraries).unwrap();
    common::write_data(&folder.path().join("data"));
    let run = common::tiny_yaml(common::recipe(recipe), |run| {
        run["model"]["num_hidden_layers"] = 1.into();
        run["model"]["sequence_length"] = 16.into();
        run["model"]["head_dim"] = head_dim.into();
        run["batch"]["sequences"] = sequences.into();
        run["budget"]["steps"] = 1.into();
        run["evaluation"]["every_steps"] = 1.into();
        run["evaluation"]["sequences"] = 1.into();
        run["checkpoint"]["every_steps"] = 1.into();
        run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![1.into()]);
    });
    common::write_run(&folder.path().join("run"), &run);
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.current_dir(folder.path()).args(["run", "run/run.yaml", "--data", "data", "--device", device]);
    command.env("LD_LIBRARY_PATH", &libraries).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{recipe} on {device}: {}", String::from_utf8_lossy(&output.stderr));
    let session = records(&folder.path().join("run/timing.jsonl")).swap_remove(0);
    let losses = records(&folder.path().join("run/metrics.jsonl")).iter().filter_map(|record| record["loss"].as_f64()).collect();
    (session, losses)
}

/// Steps on both devices: what the session says of MXFP4, and that losses agree as closely as activations in BF16 let them.
fn said(recipe: &str, sequences: u64) -> Option<String> {
    let (session, losses) = step(recipe, sequences, "hip");
    assert_eq!(session["interpreted"], true);
    let (on_cpu, expected) = step(recipe, sequences, "cpu");
    assert!(on_cpu.get("mxfp4").is_none() && on_cpu.get("interpreted").is_none());
    // Evaluation, step, evaluation. BF16 keeps 8 bits; a loss is a mean over tokens near ln 48.
    assert_eq!((losses.len(), expected.len()), (3, 3));
    for (found, expected) in losses.iter().zip(&expected) {
        assert!((found - expected).abs() < 2e-2, "{recipe}: {losses:?}, {expected:?}");
    }
    session["mxfp4"].as_str().map(str::to_owned)
}

#[test]
fn every_pass_is_native_where_shapes_and_recipe_allow_it() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-fdw-h16", 4).as_deref(), Some("native"));
    }
}

/// A defect of signs is other arguments; one of random words needs another kernel.
#[test]
fn a_defect_is_native_where_its_kernels_are_told_of_it() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-fdw-rh16-own-signs", 4).as_deref(), Some("native"));
        assert_eq!(said("mxfp4-fdw-sr-pairs", 4).as_deref(), Some("emulated"));
    }
}

/// 48 tokens are rows that the native product takes, and no contraction axis: wgrad falls back.
#[test]
fn a_pass_whose_shapes_do_not_fit_is_emulated_alone() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-fdw-h16", 3).as_deref(), Some("fprop native, dgrad native, wgrad emulated"));
    }
}

/// Forward in MXFP4, backward in FP8: the second operand of X is prepared by the other kernel.
#[test]
fn other_formats_say_nothing() {
    if gfx950_stand_in::has_clang() {
        assert_eq!(said("mxfp4-f-h16", 4).as_deref(), Some("native"));
        assert_eq!(said("bf16", 4), None);
    }
}

/// Heads of 80 and 112, which fill no whole number of the matrix operations' 32: two of the sizes between 64 and 128.
#[test]
fn heads_between_64_and_128_train_as_on_the_cpu() {
    if gfx950_stand_in::has_clang() {
        for head_dim in [80, 112] {
            let [(_, found), (_, expected)] = ["hip", "cpu"].map(|device| step_of("mxfp4-fdw-h16", 4, head_dim, device));
            assert_eq!((found.len(), expected.len()), (3, 3));
            // As `said` has it.
            assert!(found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 2e-2), "{found:?}, {expected:?}");
        }
    }
}

/// A run of sizes that hipBLASLt multiplies if `intermediate` is 128, contraction axes of 128 and 256: 128 tokens a step, 16 in an evaluation.
fn write_wide(site: &Site, name: &str, intermediate: u64, gemm: Option<&str>) {
    let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| {
        for (key, value) in [
            ("num_hidden_layers", 1),
            ("sequence_length", 16),
            ("hidden_size", 128),
            ("num_attention_heads", 8),
            ("num_key_value_heads", 4),
            ("head_dim", 16),
            ("intermediate_size", intermediate),
        ] {
            run["model"][key] = value.into();
        }
        run["batch"]["sequences"] = 8.into();
        run["budget"]["steps"] = 1.into();
        run["evaluation"]["every_steps"] = 1.into();
        run["evaluation"]["sequences"] = 1.into();
        run["checkpoint"]["every_steps"] = 1.into();
        run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![1.into()]);
        if let Some(gemm) = gemm {
            run["gemm"] = gemm.into();
        }
    });
    common::write_run(&site.path(name), &run);
}

/// Whose kernels multiply is the run file's word, and all twelve products of a step and the four of each evaluation go that way, to losses as near
/// the CPU's as BF16 activations let them be.
#[test]
fn packed_products_go_where_the_run_file_says() {
    if gfx950_stand_in::has_clang() {
        let site = Site::new(true);
        let losses =
            |name: &str| -> Vec<f64> { site.records(name, "metrics.jsonl").iter().filter_map(|line| line["loss"].as_f64()).collect() };
        write_wide(&site, "cpu", 128, None);
        site.train("cpu", "cpu");
        for (gemm, library, own) in [(None, 0, 20), (Some("own"), 0, 20), (Some("hipblaslt"), 20, 0)] {
            let name = gemm.unwrap_or("nothing");
            write_wide(&site, name, 128, gemm);
            std::fs::write(site.path("trace.txt"), "").unwrap();
            site.train(name, "hip");
            let trace = std::fs::read_to_string(site.path("trace.txt")).unwrap();
            let count = |is: &dyn Fn(&str) -> bool| trace.lines().filter(|line| is(line)).count();
            let of_library = count(&|line| line.starts_with("product ") && line.contains("packed MXFP4"));
            let of_ours = count(&|line| line.starts_with("kernel mxfp4_gemm_") && !line.contains("sum"));
            assert_eq!((of_library, of_ours), (library, own), "{name}: {trace}");
            assert_eq!(site.records(name, "timing.jsonl")[0]["mxfp4"], "native");
            let (found, expected) = (losses(name), losses("cpu"));
            assert_eq!((found.len(), expected.len()), (3, 3));
            assert!(
                found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 2e-2),
                "{name}: {found:?}, {expected:?}"
            );
        }
        assert_eq!(losses("own"), losses("nothing"), "own is what is said by saying nothing");
        // Of sizes that the library does not take the message says so, and nothing falls back in silence.
        write_wide(&site, "narrow", 64, Some("hipblaslt"));
        let output = site.trainer(&["run", "narrow/run.yaml", "--data", "data", "--device", "hip"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(4) && said.contains("hipBLASLt multiplies MXFP4 with sides in multiples of 16"), "{said}");
    }
}

/// A device without such a choice refuses it, and one that says nothing or `own` is as before.
#[test]
fn the_cpu_has_no_choice_of_products() {
    let site = Site::new(false);
    for (gemm, code) in [("own", 0), ("hipblaslt", 2), ("rocblas", 2)] {
        write_wide(&site, gemm, 128, Some(gemm));
        let output = site.trainer(&["run", &format!("{gemm}/run.yaml"), "--data", "data"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{gemm}: {said}");
        match gemm {
            "hipblaslt" => assert_eq!(
                said,
                "error: gemm: hipblaslt is for packed MXFP4 on an AMD GPU (--device hip, gfx950), not for the CPU; use own, or leave it out\n"
            ),
            "rocblas" => assert!(said.contains("gemm: unknown variant `rocblas`"), "{said}"),
            _ => {}
        }
    }
}
