//! `--device hip` from end to end, on the stand-in for ROCm's libraries (kernels/gfx950/stand-in): the trainer's real host code loads
//! real gfx950 code objects, and the interpreter executes them. And what the trainer says where there is no ROCm.
//!
//! Tests that compile kernels need clang 22; without it they say so and do nothing, unless REQUIRE_CLANG_22 is set, as in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::common;
use serde_json::Value;

/// A folder with libraries (or none) and a run.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) libraries: PathBuf,
}

impl Site {
    pub(crate) fn new(with_stand_in: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("libraries");
        fs::create_dir(&libraries).unwrap();
        if with_stand_in {
            gfx950_stand_in::install(&libraries).unwrap();
        }
        common::write_data(&folder.path().join("data"));
        Self { folder, libraries }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.current_dir(self.folder.path()).args(arguments).env("LD_LIBRARY_PATH", &self.libraries);
        // Compiled kernels are kept from test to test, by content.
        command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
        command.env("GFX950_STAND_IN_TRACE", self.path("trace.txt"));
        command
    }

    pub(crate) fn trainer(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.trainer(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes a run of one block, 64 tokens a step, to `name`.
    fn write(&self, name: &str, recipe: &str, steps: u64) {
        let run = common::tiny_yaml(common::recipe(recipe), |run| {
            run["model"]["num_hidden_layers"] = 1.into();
            run["batch"]["sequences"] = 2.into();
            run["budget"]["steps"] = steps.into();
            run["evaluation"]["every_steps"] = 2.into();
            run["evaluation"]["sequences"] = 2.into();
            run["checkpoint"]["every_steps"] = 1.into();
            run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![2.into()]);
        });
        common::write_run(&self.path(name), &run);
    }

    /// The same, read through other forward passes at each evaluation.
    fn write_read(&self, name: &str, recipe: &str, forwards: &[&str]) {
        self.write(name, recipe, 2);
        let path = self.path(name).join("run.yaml");
        let mut run = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        common::read_through(&mut run, forwards, 2);
        common::write_run(&self.path(name), &run);
    }

    pub(crate) fn train(&self, name: &str, device: &str) {
        let output = self.trainer(&["run", &format!("{name}/run.yaml"), "--data", "data", "--device", device]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn records(&self, name: &str, file: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name).join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn without_rocm_it_says_what_is_missing() {
    let site = Site::new(false);
    let devices = site.lines(&["devices"]);
    if Path::new("/opt/rocm").exists() || devices[0]["gpus"].as_array().unwrap().iter().any(|gpu| gpu["device"] == "hip:0") {
        return;
    }
    site.write("run", "mxfp4-fdw-h16", 2);
    let missing = "libamdhip64.so.7 was not found (libamdhip64.so.7: cannot open shared object file: No such file or directory); it comes with \
                   ROCm 7 (apt-get install hip-runtime-amd, from AMD's repository). If it is installed, name its folder in LD_LIBRARY_PATH";
    let run = ["run", "run/run.yaml", "--data", "data"];
    let commands: [&[&str]; 4] = [&run, &["step-time", "run/run.yaml"], &["kernel-time", "run/run.yaml"], &["device-test"]];
    for command in commands {
        let output = site.trainer(&[command, &["--device", "hip:0"]].concat());
        assert_eq!(output.status.code(), Some(4), "{command:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: --device hip:0: {missing}\n"), "{command:?}");
    }
    if devices[0]["gpus"].as_array().unwrap().is_empty() {
        let problem = devices[0]["problem"].as_str().unwrap();
        assert!(problem.starts_with("cuda: libcuda.so.1 was not found") && problem.ends_with(&format!("; hip: {missing}")), "{problem}");
    }
    let output = site.trainer(&[&run[..], &["--device", "rocm"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: --device: 'rocm' is no device; use cpu, cuda, cuda:1 (the second GPU), hip, hip:1 or auto\n"
    );
}

#[test]
fn auto_takes_hip_where_there_is_no_cuda() {
    let site = Site::new(true);
    let devices = site.lines(&["devices"]);
    if devices[0]["gpus"].as_array().unwrap().iter().all(|gpu| gpu["device"] != "cuda:0") {
        // An architecture that is refused, so that the choice shows and nothing is computed.
        let mut command = site.command(&["device-test", "--device", "auto"]);
        let output = command.env("GFX950_STAND_IN_CAPABILITY", "9.4").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("error: --device hip:0: hip:0 gfx950 interpreter has architecture 9.4 (gfx94x)"), "{text}");
        // No device at all: the CPU, with which nothing is compared.
        let mut command = site.command(&["device-test", "--device", "auto"]);
        let output = command.env("GFX950_STAND_IN_DEVICES", "0").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("error: --device: the CPU is what others are compared with; use cuda, cuda:N, hip or hip:N"), "{text}");
    }
}

#[test]
fn the_stand_in_is_listed_as_what_it_is() {
    if gfx950_stand_in::has_clang() {
        let site = Site::new(true);
        let devices = site.lines(&["devices"]);
        let gpu = devices[0]["gpus"].as_array().unwrap().iter().find(|gpu| gpu["device"] == "hip:0").unwrap();
        assert_eq!((gpu["name"].as_str(), gpu["architecture"].as_str()), (Some("gfx950 interpreter"), Some("gfx950")));
        assert_eq!((gpu["interpreted"].as_bool(), gpu["mxfp4"].as_bool(), gpu["fp8"].as_bool()), (Some(true), Some(true), Some(true)));
        assert_eq!(gpu["libraries"][0], "gfx950 interpreter in place of HIP 0.1.0");
        let output = site.trainer(&["device-test", "--device", "hip:1"]);
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "error: --device hip:1: there is no device hip:1: this machine has 1 AMD GPUs, numbered from 0\n"
        );
    }
}

/// An evaluation in two batches keeps the sum of either until both are read: it is that of one batch of the same sequences, but for the order in
/// which F64 adds 256 losses. One batch alone has another mean.
#[test]
fn an_evaluation_of_several_batches_keeps_every_sum() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    let [both, at_once, first] = [("both", 2, 4), ("at-once", 4, 4), ("first", 2, 2)].map(|(name, batch, evaluated)| {
        let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| {
            run["model"]["num_hidden_layers"] = 1.into();
            run["batch"]["sequences"] = batch.into();
            run["budget"]["steps"] = 2.into();
            run["evaluation"]["sequences"] = evaluated.into();
            run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![2.into()]);
        });
        common::write_run(&site.path(name), &run);
        site.train(name, "hip");
        let before = site.records(name, "metrics.jsonl").into_iter().find(|line| line["kind"] == "eval" && line["step"] == 0).unwrap();
        before["loss"].as_f64().unwrap()
    });
    assert!((both - at_once).abs() < 1e-12, "{both} in two batches, {at_once} in one");
    assert!((both - first).abs() > 1e-4, "{both}, and {first} of the first batch alone");
}

/// Through its own forward pass a reading is the evaluation, bit for bit; through any other it is near the CPU's reading of the CPU's weights:
/// after two steps both have learnt the same within what BF16 activations leave (0.02 nats; rounding to MXFP4 moves these losses by more than
/// ten times less than not reading at all would).
#[test]
fn a_gpu_reads_its_weights_through_other_forward_passes() {
    if gfx950_stand_in::has_clang() {
        let site = Site::new(true);
        let forwards = ["bf16", "mxfp4-f-sr", "fp8", "mxfp4-fdw-h16"];
        for (name, device) in [("gpu", "hip"), ("cpu", "cpu")] {
            site.write_read(name, "mxfp4-fdw-h16", &forwards);
            site.train(name, device);
        }
        let [gpu, cpu] = ["gpu", "cpu"].map(|name| site.records(name, "metrics.jsonl"));
        let of = |records: &[Value], kind: &str| -> Vec<(u64, String, f64)> {
            let lines = records.iter().filter(|line| line["kind"] == kind);
            lines
                .map(|line| {
                    (line["step"].as_u64().unwrap(), line["recipe"].as_str().unwrap_or_default().to_owned(), line["loss"].as_f64().unwrap())
                })
                .collect()
        };
        let (read, reference, evaluated) = (of(&gpu, "reading"), of(&cpu, "reading"), of(&gpu, "eval"));
        assert_eq!(read.len(), 2 * forwards.len());
        for ((step, recipe, loss), (_, _, expected)) in read.iter().zip(&reference) {
            assert!((loss - expected).abs() < 0.02, "step {step} through {recipe}: {loss}, on the CPU {expected}");
            let own = evaluated.iter().find(|evaluation| evaluation.0 == *step).unwrap().2;
            assert_eq!(*loss == own, recipe == "mxfp4-fdw-h16", "step {step} through {recipe}: {loss}, evaluated {own}");
        }
    }
}

#[test]
fn a_head_size_without_a_kernel_is_refused_before_anything_is_written() {
    if gfx950_stand_in::has_clang() {
        let site = Site::new(true);
        for head_dim in [24, 144] {
            let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| run["model"]["head_dim"] = head_dim.into());
            common::write_run(&site.path("run"), &run);
            let output = site.trainer(&["run", "run/run.yaml", "--data", "data", "--device", "hip"]);
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(
                String::from_utf8_lossy(&output.stderr),
                format!(
                    "error: model.head_dim is {head_dim}: on a GPU it is 16, 32, 48, 64, 80, 96, 112 or 128; train this model on the CPU\n"
                )
            );
            // Nothing but why: no line of metrics, no timing, no checkpoint.
            let mut left: Vec<_> = fs::read_dir(site.path("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["failed.json", "run.yaml"]);
        }
    }
}

/// Kernels and steps against the CPU, with the bounds that are derived in src/device_test.
#[test]
fn device_test_passes() {
    if gfx950_stand_in::has_clang() {
        let site = Site::new(true);
        site.write("mxfp4", "mxfp4-fdw-h16", 2);
        site.write("fp8", "fp8", 2);
        let lines = site.lines(&["device-test", "--device", "hip", "--quick", "mxfp4/run.yaml", "fp8/run.yaml"]);
        let (first, last) = (&lines[0], lines.last().unwrap());
        assert_eq!((first["name"].as_str(), first["interpreted"].as_bool()), (Some("gfx950 interpreter"), Some(true)));
        assert_eq!((last["kind"].as_str(), last["failed"].as_u64()), (Some("summary"), Some(0)));
        for group in ["operand", "kernel", "step", "determinism"] {
            assert!(lines.iter().any(|line| line["group"] == group), "no check of group {group}");
        }
    }
}

/// Defects that are more than other signs: two quantisations in a row along one axis, and along both, words for pairs, and sums in BF16. Every operand
/// has the CPU's bits, so ∇W, which is exact blocks added in F32, is off by less than results in BF16 are.
#[test]
fn defects_are_the_same_mistakes_as_on_the_cpu() {
    if gfx950_stand_in::has_clang() {
        let site = Site::new(true);
        let recipes = ["mxfp4-fdw-rh16-late", "mxfp4-fdw-twice", "mxfp4-fdw-sr-pairs", "mxfp4-fdw-sr-bf16-sums"];
        let files = recipes.map(|recipe| {
            site.write(recipe, recipe, 2);
            format!("{recipe}/run.yaml")
        });
        let lines = site.lines(&[&["device-test", "--device", "hip", "--quick"], &files.each_ref().map(String::as_str)[..]].concat());
        assert_eq!(lines.last().unwrap()["failed"].as_u64(), Some(0));
        for recipe in recipes {
            let alone = |what: &str| {
                let detail = format!("one linear, {what}");
                let line = lines.iter().find(|line| line["name"] == recipe && line["detail"] == detail.as_str());
                line.unwrap()["difference"].as_f64().unwrap()
            };
            assert!(alone("Y") > 0.0 && alone("∇W") < 1e-6, "{recipe}");
        }
    }
}

/// How far a loss may be from the CPU's after some updates; each term is of the loss, absolute.
///
/// The relative difference b of whatever flows through the model is what src/device_test/steps.rs derives for gradients: activations in
/// BF16, and elements that fall to the other side of a rounding border of E2M1. (1) A logit, which is at most r in the root mean square
/// (weights of 0.02 and a normalised vector of 64, then what the updates add to it, all aligned), is off by b r, independently from token
/// to token, so the mean over the tokens is off by b r / sqrt(tokens); three times that. (2) Adam's first updates are the learning rate
/// times the gradients' signs: a direction that is off by b loses b^2 / 2 of the descent, which is at most sqrt(parameters) times the
/// gradients' norm times the learning rate.
fn loss_bound([parameters, hidden, tokens, blocks]: [f64; 4], rates: &[f64], norm: f64) -> f64 {
    let u = kernels::closeness::ROUNDING_RMS;
    // A block: 16 tensors deep, 4 linears, 6 operands each with steps of 0.4.
    let depth = (16.0 * blocks).sqrt();
    let b = 2.0 * depth * u + 2.0 * (4.0 * blocks * (6.0 * u * depth * 0.4) / 6.0 * 2.0).sqrt();
    let moved: f64 = rates.iter().sum();
    let logit = 0.02 * hidden.sqrt() + moved * hidden;
    3.0 * b * logit / tokens.sqrt() + moved * parameters.sqrt() * norm * b * b / 2.0
}

/// Losses and gradient norms of two runs, and that they learned by more than the bound, so that the bound means something. `norm`: more than any
/// gradient's.
fn learns_as_on_the_cpu(site: &Site, (cpu, hip): (&str, &str), sizes: [f64; 4], norm: f64) {
    let (cpu, hip) = (site.records(cpu, "metrics.jsonl"), site.records(hip, "metrics.jsonl"));
    assert_eq!(cpu.len(), hip.len());
    let (mut rates, mut losses) = (Vec::new(), Vec::new());
    for (cpu, hip) in cpu.iter().zip(&hip).filter(|(cpu, _)| cpu.get("loss").is_some()) {
        assert_eq!((&cpu["kind"], &cpu["step"]), (&hip["kind"], &hip["step"]));
        let (wanted, found) = (cpu["loss"].as_f64().unwrap(), hip["loss"].as_f64().unwrap());
        let bound = loss_bound(sizes, &rates, norm);
        assert!((wanted - found).abs() <= bound, "{}: {found} for {wanted}, bound {bound}", cpu["step"]);
        if cpu["kind"] == "train" {
            let (wanted, found) = (cpu["grad_norm"].as_f64().unwrap(), hip["grad_norm"].as_f64().unwrap());
            assert!(wanted < norm && (found - wanted).abs() / wanted < 0.05, "gradient norm {found} for {wanted}");
            rates.push(cpu["learning_rate"].as_f64().unwrap());
        }
        losses.push(found);
    }
    let (first, last) = (losses[0], *losses.last().unwrap());
    assert!(first - last > loss_bound(sizes, &rates, norm), "{first} to {last}, bound {}", loss_bound(sizes, &rates, norm));
}

/// Model, optimizer and batch of the profile `smoke` as its manifests have them, for a few steps.
#[test]
fn the_smoke_profile_trains_as_on_the_cpu() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let manifest = |name: &str| -> serde_yaml::Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(name);
        serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let (profile, mut model) = (manifest("profiles/smoke.yaml"), manifest("models/smoke.yaml"));
    for key in ["id", "title"] {
        model.as_mapping_mut().unwrap().remove(key);
    }
    let site = Site::new(true);
    for name in ["cpu", "hip"] {
        let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| {
            run["model"] = model.clone();
            for key in ["optimizer", "schedule", "batch"] {
                run[key] = profile[key].clone();
            }
            run["budget"]["steps"] = 4.into();
            run["evaluation"]["every_steps"] = 4.into();
            run["evaluation"]["sequences"] = 4.into();
            run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![4.into()]);
        });
        common::write_run(&site.path(name), &run);
        site.train(name, name);
    }
    assert_eq!(site.records("hip", "timing.jsonl")[0]["mxfp4"], "native");
    learns_as_on_the_cpu(&site, ("cpu", "hip"), [139_584.0, 64.0, 256.0, 2.0], 1.6);
}

/// Of what was launched in three steps and three evaluations of a batch each: every product of a linear is our MXFP4 kernel's, and the
/// library's products are the head's alone, of which one side or the contraction is the vocabulary of 48.
fn linears_are_native(trace: &str) {
    let count = |start: &str| trace.lines().filter(|line| line.starts_with(start)).count();
    let (linears, passes, steps, evaluations) = (4, 3, 3, 3);
    let products = ["64x64", "128x128", "192x256", "256x256"].map(|tile| count(&format!("kernel mxfp4_gemm_{tile} ")));
    assert_eq!(products.iter().sum::<usize>(), linears * (passes * steps + evaluations), "{trace}");
    assert!(count("kernel mxfp4_quantise") > 0 && count("kernel quantise ") == 0, "{trace}");
    let library: Vec<&str> = trace.lines().filter(|line| line.starts_with("product ")).collect();
    assert!(library.len() == 3 * steps + evaluations && library.iter().all(|line| line.contains("48")), "{library:?}");
    for kernel in
        ["attention_forward", "attention_backward_q", "attention_backward_kv", "rms_norm", "rope", "swiglu", "cross_entropy", "adamw"]
    {
        assert!(count(&format!("kernel {kernel} ")) > 0, "{kernel} was not launched: {trace}");
    }
}

#[test]
fn a_run_trains_as_on_the_cpu_and_resumes_with_the_same_bits() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    for name in ["cpu", "whole", "halves"] {
        site.write(name, "mxfp4-fdw-h16", 3);
    }
    site.train("cpu", "cpu");
    site.train("whole", "hip");
    linears_are_native(&fs::read_to_string(site.path("trace.txt")).unwrap());

    learns_as_on_the_cpu(&site, ("cpu", "whole"), [30_912.0, 64.0, 64.0, 1.0], 1.8);

    // What it ran on is in its timings, by name, and how it multiplied.
    let session = &site.records("whole", "timing.jsonl")[0];
    assert_eq!((&session["mxfp4"], &session["least_memory"]), (&Value::from("native"), &Value::Null));
    assert_eq!((session["device"].as_str(), session["gpu"].as_str()), (Some("hip"), Some("gfx950 interpreter")));
    assert_eq!(
        (session["libraries"][0].as_str(), session["interpreted"].as_bool()),
        (Some("gfx950 interpreter in place of HIP 0.1.0"), Some(true))
    );

    // Killed as soon as there is a checkpoint, and started again: the same bytes.
    let mut command = site.command(&["run", "halves/run.yaml", "--data", "data", "--device", "hip"]);
    let mut child = command.spawn().unwrap();
    while !site.path("halves/checkpoint/state.json").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended without a checkpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!site.path("halves/done.json").exists(), "it was too quick to be killed");
    site.train("halves", "hip");
    let sessions: Vec<_> = site.records("halves", "timing.jsonl").into_iter().filter(|line| line["kind"] == "session").collect();
    assert!(sessions.len() == 2 && sessions[1]["resumed_from_step"].as_u64() > Some(0), "{sessions:?}");
    for file in ["metrics.jsonl", "checkpoint/state.safetensors", "model/model.safetensors"] {
        let read = |name: &str| fs::read(site.path(name).join(file)).unwrap();
        assert!(read("whole") == read("halves"), "{file} differs after a resume");
    }
}

/// The magnitudes that delayed scales of layer 0's X remember, by the device's own checkpoint: of a run with this batch.
fn remembered(site: &Site, name: &str, device: &str, [sequences, accumulation, steps]: [u64; 3]) -> [Vec<f32>; 2] {
    site.write(name, "fp8", steps);
    let path = site.path(name).join("run.yaml");
    let mut run: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    (run["batch"]["sequences"], run["batch"]["accumulation"]) = (sequences.into(), accumulation.into());
    // So small that no weight moves, and decay with it.
    (run["optimizer"]["learning_rate"], run["schedule"]["end_learning_rate"]) = (1e-30.into(), 1e-30.into());
    run["run"]["seed"] = 12.into();
    common::write_run(&site.path(name), &run);
    site.train(name, device);
    let state: Value = serde_json::from_str(&fs::read_to_string(site.path(name).join("checkpoint/state.json")).unwrap()).unwrap();
    // X of qkv in fprop and in wgrad.
    [0, 5].map(|slot| state["delayed"][slot].as_array().unwrap().iter().map(|bits| f32::from_bits(bits.as_u64().unwrap() as u32)).collect())
}

/// The first linear's X is a norm of embeddings, which no scale has touched. So two steps of two micro-batches remember, exactly, the larger
/// magnitude of each two of the four steps that take the same sequences one by one.
#[test]
fn delayed_scales_collect_over_the_micro_batches_of_a_step() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    for device in ["cpu", "hip"] {
        let single = remembered(&site, &format!("{device}-single"), device, [1, 1, 4]);
        let together = remembered(&site, &format!("{device}-together"), device, [2, 2, 2]);
        for (single, together) in single.iter().zip(&together) {
            assert_eq!(*together, [single[0].max(single[1]), single[2].max(single[3])], "{device}: {single:?}");
        }
        // With this seed the first of each two has the larger, so that whoever takes the last is seen.
        let [x, _] = single;
        assert!(x[0] > x[1] && x[2] > x[3], "{device}: {x:?} would not show which of two was taken");
    }
}

/// FP8 is made again there, MXFP4 with a partner in FP8 (which no packed product takes) too; packed MXFP4 stays as it is.
#[test]
fn the_least_memory_gives_the_same_bits_and_says_so() {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let site = Site::new(true);
    let mut mixed = common::recipe("mxfp4-fdw-sr");
    mixed["id"] = "mixed".into();
    for (pass, partner) in [("fprop", "weight"), ("wgrad", "output_gradient")] {
        mixed["passes"][pass][partner]["format"] = "e4m3".into();
    }
    for (name, recipe, is_less) in
        [("fp8", common::recipe("fp8"), true), ("mixed", mixed, true), ("packed", common::recipe("mxfp4-fdw"), false)]
    {
        let run = common::tiny_yaml(recipe, |run| {
            run["batch"]["sequences"] = 2.into();
            run["budget"]["steps"] = 2.into();
            run["evaluation"]["every_steps"] = 1.into();
            run["evaluation"]["sequences"] = 2.into();
            run["logging"]["quantisation_steps"] = serde_yaml::Value::Sequence(vec![1.into()]);
        });
        let least = format!("{name}-least");
        for folder in [name, &least] {
            common::write_run(&site.path(folder), &run);
        }
        site.train(name, "hip");
        let output = site.trainer(&["run", &format!("{least}/run.yaml"), "--data", "data", "--device", "hip", "--least-memory"]);
        assert!(output.status.success(), "{least}: {}", String::from_utf8_lossy(&output.stderr));
        for file in ["metrics.jsonl", "model/model.safetensors"] {
            let read = |name: &str| fs::read(site.path(name).join(file)).unwrap();
            assert!(read(name) == read(&least), "{name}: {file} differs");
        }
        let said = |name: &str| site.records(name, "timing.jsonl")[0]["least_memory"] == true;
        assert_eq!((said(name), said(&least)), (false, is_less), "{name}");
    }
}
