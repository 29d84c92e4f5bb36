//! The GPU part of `kernels-bench`: kernels and training steps of every GPU that the trainer finds, and a `not-run` for every kind that it
//! does not.
//!
//! All of it is calls of the trainer (`kernel-time`, `step-time`), whose JSON lines are read here, so that a packed folder measures the same
//! on a machine without cargo. Nothing of this was calibrated on an MI355X: what it says there is what it will measure there.

mod lines;
pub(super) mod peers;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use contract::device::{DeviceId, DeviceKind, Devices, GpuFacts};
use contract::measurements::{StepTime, StepTimeLine};
use study::files;
use study::kernels::gpu_ratios::{compare, peer_recipe};
use study::kernels::{Depth, GpuBench, LEAST, Memory, Missing, NotRun, Samples};
use study::manifest::Manifests;
use study::manifest::Profile;
use study::manifest::profile::{Model, Peaks};
use study::plan;

use super::script::{ROUND, Script};
use super::{BenchError, Means, steps};

pub(super) use lines::parse;

/// Which GPUs were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kinds {
    /// `cuda`, `hip`.
    pub(super) kinds: Vec<&'static str>,
    /// Only the one with this number.
    pub(super) ordinal: Option<usize>,
}

impl Kinds {
    fn has(&self, device: &str) -> bool {
        let is_wanted = |id: DeviceId| self.kinds.contains(&id.kind().word()) && (self.ordinal.is_none() || self.ordinal == id.ordinal());
        device.parse().is_ok_and(is_wanted)
    }
}

/// Interpreters among what was asked for: no devices, but every call can be made there.
pub(super) fn interpreters(devices: &Devices, kinds: &Kinds) -> Vec<GpuFacts> {
    let open = kinds.kinds.iter().flat_map(|kind| devices.that_open(kind));
    open.filter(|gpu| gpu.interpreted && kinds.has(&gpu.device)).cloned().collect()
}

/// The GPUs that can be measured, and a `not-run` for each kind that has none.
pub(super) fn found(devices: Result<Devices, String>, kinds: &Kinds) -> (Vec<GpuFacts>, Vec<NotRun>) {
    let (devices, problem) = match devices {
        Ok(devices) => (devices, None),
        Err(problem) => (Devices::default(), Some(problem)),
    };
    let usable = kinds.kinds.iter().flat_map(|kind| devices.usable(kind));
    let gpus: Vec<GpuFacts> = usable.filter(|gpu| kinds.has(&gpu.device)).cloned().collect();
    let absent = kinds.kinds.iter().filter(|kind| !gpus.iter().any(|gpu| gpu.kind() == **kind));
    let not_run = absent.map(|kind| not_run(kind, Some(&problem.clone().unwrap_or_else(|| devices.lines_of(kind).join("; ")))));
    let not_run = not_run.collect();
    (gpus, not_run)
}

/// What a kind of device needs, in the words of its packages.
pub(super) fn not_run(kind: &str, said: Option<&str>) -> NotRun {
    let needs = match kind {
        "cuda" => {
            "an NVIDIA GPU (sm_80 or later; FP8 from sm_89) with its driver (libcuda.so.1), NVRTC and cuBLASLt: Debian and Ubuntu packages \
             nvidia-driver and nvidia-cuda-toolkit, or the PyPI packages nvidia-cuda-nvrtc and nvidia-cublas"
        }
        "hip" => {
            "an AMD Instinct MI355X (gfx950) with ROCm's driver (/dev/kfd), HIP runtime (libamdhip64.so, package hip-runtime-amd) and hipBLASLt \
             (package hipblaslt). The kernels compile for gfx950 and are functionally verified on a CPU model of \
             the ISA; they were not run on an MI355X, so no performance claim is made"
        }
        _ => "the benchmarks, which `cargo xtask pack` puts into benchmarks/, or the repository with cargo, which builds them",
    };
    let needs = said.map_or_else(|| needs.to_owned(), |said| format!("{needs} (here: {said})"));
    let rows = match kind {
        "cpu" => "products, preparation, steps of sizes A and B",
        _ => "the twelve products of Llama 3.1-8B, h200-s, h200-m and cpu shapes; preparation; training steps of h200-s and h200-m",
    };
    NotRun { device: kind.to_owned(), rows: rows.to_owned(), needs }
}

/// Profiles whose models give the shapes, and how many sequences are multiplied at once: the profile's batch on one GPU. The paper's
/// profile is spread over eight GPUs in micro-batches of two sequences, which are the 16,384 tokens of its products.
const SHAPES: [(&str, Option<usize>); 4] = [("llama31-8b", Some(2)), ("h200-s", None), ("h200-m", None), ("cpu", None)];

/// Profiles whose steps are timed.
const STEPS: [&str; 2] = ["h200-s", "h200-m"];

/// Arms that stand in one process beside BF16, so that their states fit into one GPU's memory together.
const TOGETHER: usize = 3;

/// Bytes of a GPU on which every recipe of the peer may stand in memory beside our arms: at most 12 GiB each at these sizes.
const ROOM_FOR_PEERS: u64 = 100_000_000_000;

impl Means<'_> {
    /// Kernels, steps and peers of one GPU; what was measured until then if it is interrupted.
    pub(super) fn measure_gpu(
        &self,
        gpu: &GpuFacts,
        stop: &dyn Fn() -> Result<(), BenchError>,
        say: &dyn Fn(&str),
    ) -> Result<GpuBench, BenchError> {
        let name = gpu.name.clone().unwrap_or_default();
        let mut bench = GpuBench {
            device: gpu.device.clone(),
            architecture: gpu.architecture.clone().unwrap_or_default(),
            libraries: gpu.libraries.clone(),
            mxfp4: "emulated".to_owned(),
            fp8: gpu.fp8.unwrap_or_default(),
            stated: stated(self.manifests, &name),
            name,
            ..GpuBench::default()
        };
        match self.parts(&mut bench, stop, say) {
            Err(_) if stop().is_err() => bench.missing.push(absent("what was to follow", "interrupted")),
            other => other?,
        }
        bench
            .samples
            .retain(|samples| samples.name.contains(self.only) || samples.name.starts_with("peak/") || samples.name.starts_with("copy/"));
        bench.comparisons = compare(&bench, self.peers.is_some());
        Ok(bench)
    }

    fn parts(&self, bench: &mut GpuBench, stop: &dyn Fn() -> Result<(), BenchError>, say: &dyn Fn(&str)) -> Result<(), BenchError> {
        // A filter that names shapes leaves the others out, one for steps the kernels, and one for kernels the steps.
        let named = |id: &str| !SHAPES.iter().any(|(other, _)| self.only.contains(other)) || self.only.contains(id);
        for (shapes, sequences) in SHAPES.into_iter().filter(|(shapes, _)| named(shapes) && !self.only.starts_with("step/")) {
            say(&format!("{}: kernels at the shapes of {shapes}", bench.device));
            self.kernels(bench, shapes, sequences)?;
            stop()?;
        }
        let is_of_kernels = self.only.contains('/') && !self.only.starts_with("step/");
        for size in STEPS.into_iter().filter(|size| named(size) && !is_of_kernels) {
            if self.depth == Depth::Quick && size == "h200-m" {
                continue;
            }
            say(&format!("{}: steps of {size}, arms in turns", bench.device));
            self.steps(bench, size, stop)?;
        }
        Ok(())
    }

    fn kernels(&self, bench: &mut GpuBench, shapes: &str, sequences: Option<usize>) -> Result<(), BenchError> {
        let profile = self.manifests.profile(shapes)?;
        let file = self.run_file(profile, sequences.unwrap_or(profile.batch.sequences), "fp8")?;
        let repeats = self.repeats().to_string();
        let mut arguments: Vec<OsString> = vec!["kernel-time".into(), file.into()];
        arguments.extend(["--warmup", "3", "--repeats", &repeats, "--device", &bench.device].map(Into::into));
        match self.trainer.output("timing kernels", arguments) {
            Ok(text) => {
                let parsed = parse(&text, shapes);
                let parsed = parsed.map_err(alien)?;
                bench.mxfp4 = parsed.header.mxfp4;
                bench.samples.extend(parsed.samples);
                bench.missing.extend(parsed.missing.into_iter().filter(|missing| missing.name.contains(self.only)));
            }
            // A GPU with too little memory for one set of shapes still has the others.
            Err(error) => bench.missing.push(absent(&format!("kernels at the shapes of {shapes}"), &error.to_string())),
        }
        Ok(())
    }

    /// Makes every call of `kernels` once on an interpreter, at shapes that take seconds, and says so in the row of what is not here: that
    /// the calls work is seen, their times mean nothing and are not told.
    pub(super) fn interpret(&self, gpu: &GpuFacts, row: &mut NotRun) -> Result<(), BenchError> {
        let profile = self.manifests.profile("cpu")?;
        let model = Model {
            hidden_size: 128,
            num_hidden_layers: 1,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 16,
            intermediate_size: 64,
            sequence_length: 32,
            ..self.manifests.models[&profile.model].clone()
        };
        let path = self.folder.join("interpreted.yaml");
        files::write(&path, plan::step_run_file(self.manifests, profile, &model, 8, "fp8")?.as_bytes())?;
        let mut arguments: Vec<OsString> = vec!["kernel-time".into(), path.into()];
        arguments.extend(["--warmup", "0", "--repeats", "1", "--device", &gpu.device].map(Into::into));
        let parsed = parse(&self.trainer.output("calling kernels on an interpreter", arguments)?, "interpreted").map_err(alien)?;
        if !parsed.header.interpreted {
            return Err(alien(format!("{} is no interpreter any more", gpu.device)));
        }
        let count = |kind: &str| parsed.executed.iter().filter(|name| name.starts_with(kind)).count();
        let library = parsed.executed.iter().filter(|name| name.contains("hipblaslt")).count();
        row.needs += &format!(
            ". Interpreted on {}: {} products ({library} by the library's stand-in), {} preparations, small shapes; functional only, no time is told",
            gpu.device,
            count("gemm/"),
            count("quantise/"),
        );
        Ok(())
    }

    fn repeats(&self) -> usize {
        match self.depth {
            Depth::Quick => 7,
            Depth::Default => 20,
            Depth::Deep => 50,
        }
    }

    fn run_file(&self, profile: &Profile, sequences: usize, arm: &str) -> Result<PathBuf, BenchError> {
        let model = &self.manifests.models[&profile.model];
        let path = self.folder.join(format!("{}-{arm}.yaml", profile.id));
        files::write(&path, plan::step_run_file(self.manifests, profile, model, sequences, arm)?.as_bytes())?;
        Ok(path)
    }

    /// BF16, FP8 and the arms of Table 1, a few in a process, BF16 always among them; a peer that does the same takes turns.
    fn steps(&self, bench: &mut GpuBench, size: &str, stop: &dyn Fn() -> Result<(), BenchError>) -> Result<(), BenchError> {
        let profile = self.manifests.profile(size)?;
        let arms = step_arms(profile);
        for arm in arms.iter().filter(|arm| peer_recipe(arm).is_some()) {
            self.memory(bench, profile, arm, "")?;
            if *arm != "bf16" {
                self.memory(bench, profile, arm, LEAST)?;
            }
        }
        // Those that have a peer come first, so that few processes of it are needed.
        let (with_peer, others): (Vec<&String>, Vec<&String>) =
            arms.iter().filter(|arm| *arm != "bf16").partition(|arm| peer_recipe(arm).is_some());
        for (chunks, peers, option) in [(with_peer.clone(), self.peers, ""), (others, None, ""), (with_peer, None, LEAST)] {
            for chunk in chunks.chunks(TOGETHER - 1) {
                let arms: Vec<&str> = std::iter::once("bf16").chain(chunk.iter().map(|arm| arm.as_str())).collect();
                self.turns(bench, profile, &arms, peers, option)?;
                stop()?;
            }
        }
        Ok(())
    }

    /// Device memory of a step, from a process that does nothing else. `option`: nothing, or [`LEAST`].
    fn memory(&self, bench: &mut GpuBench, profile: &Profile, arm: &str, option: &str) -> Result<(), BenchError> {
        let file = self.run_file(profile, profile.batch.sequences, arm)?;
        let mut arguments: Vec<OsString> = vec!["step-time".into(), file.into()];
        arguments.extend(["--memory", "--warmup", "1", "--repeats", "1", "--device", &bench.device].map(Into::into));
        arguments.extend(option.split_whitespace().map(Into::into));
        let name = format!("step/{}/{arm}{option}", profile.id);
        match self.trainer.output("reading memory", arguments) {
            Ok(text) => bench.memory.extend(memory_of(&text).map(|peak_bytes| Memory { name, peak_bytes })),
            Err(error) => bench.missing.push(absent(&name, &error.to_string())),
        }
        Ok(())
    }

    /// Our arms in one process a round, the peer's recipes in its own process between our rounds. Without a peer one round has all repeats.
    /// `option`: nothing, or [`LEAST`], which joins the arms' names.
    fn turns(&self, bench: &mut GpuBench, profile: &Profile, arms: &[&str], python: Option<&Path>, option: &str) -> Result<(), BenchError> {
        const REPEATS: usize = 5;
        let files = arms.iter().map(|arm| self.run_file(profile, profile.batch.sequences, arm)).collect::<Result<Vec<_>, _>>()?;
        let mut scripts = python.map(|python| self.scripts(bench, profile, arms, (python, REPEATS))).unwrap_or_default();
        let mut lines = Vec::new();
        let (rounds, repeats) = if !scripts.is_empty() { (self.repeats().div_ceil(REPEATS), REPEATS) } else { (1, self.repeats()) };
        for _ in 0..rounds {
            let mut arguments: Vec<OsString> = vec!["step-time".into()];
            arguments.extend(files.iter().map(Into::into));
            arguments.extend(["--warmup", "3", "--repeats", &repeats.to_string(), "--device", &bench.device].map(Into::into));
            arguments.extend(option.split_whitespace().map(Into::into));
            let text = match self.trainer.output("timing steps", arguments) {
                Ok(text) => text,
                Err(error) => {
                    bench.missing.push(absent(&format!("step/{}/{}", profile.id, arms.join("+")), &error.to_string()));
                    break;
                }
            };
            lines.extend(steps::parse(&text)?);
            scripts.retain_mut(|script| match script.ask("round", ROUND) {
                Ok(()) => true,
                Err(missing) => {
                    bench.missing.push(missing);
                    false
                }
            });
        }
        for script in scripts {
            let found = script.finish();
            bench.peers.extend(found.timings);
            bench.missing.extend(found.missing);
        }
        bench.samples.extend(arms.iter().filter_map(|arm| step_samples(&profile.id, arms, arm, option, &lines)));
        Ok(())
    }

    /// The peer's recipes that do what `arms` do and were not measured yet, ready for rounds. Compiling takes most of a minute each, on one core:
    /// where the GPU has the memory every recipe is a process of its own, and all compile at once.
    fn scripts(&self, bench: &mut GpuBench, profile: &Profile, arms: &[&str], (python, repeats): (&Path, usize)) -> Vec<Script> {
        let model = &self.manifests.models[&profile.model];
        let known = |recipe: &&&str| !bench.peers.iter().any(|peer| peer.name == format!("step/{}/{recipe}", profile.id));
        let recipes: Vec<&str> = arms.iter().filter_map(|arm| peer_recipe(arm)).collect();
        let recipes: Vec<&&str> = recipes.iter().filter(|recipe| known(recipe)).collect();
        let has_room = bench.stated.as_ref().is_some_and(|peaks| peaks.memory_bytes >= ROOM_FOR_PEERS);
        let start = |recipes: &[&&str]| {
            let mut size = peers::size(profile.id.as_str(), model, profile.batch.sequences);
            size["recipes"] = recipes.iter().map(|recipe| **recipe).collect();
            let wanted = peers::Wanted {
                python,
                device: &bench.device.parse().ok().and_then(DeviceId::ordinal).unwrap_or_default().to_string(),
                size: &size.to_string(),
                // The slowest recipe of h200-m takes more than 120 s.
                compile_seconds: if self.depth == Depth::Quick { 120 } else { 300 },
                eager_only: self.peers_eager,
                repeats,
            };
            peers::start(self.root, &wanted)
        };
        let started: Vec<_> = recipes.chunks(if has_room { 1 } else { recipes.len().max(1) }).map(start).collect();
        let ready = started.into_iter().map(|script| script.and_then(Script::ready));
        let (scripts, missing): (Vec<_>, Vec<_>) = ready.partition(Result::is_ok);
        bench.missing.extend(missing.into_iter().filter_map(Result::err));
        scripts.into_iter().filter_map(Result::ok).collect()
    }
}

fn alien(what: String) -> BenchError {
    BenchError::Lines { program: "trainer kernel-time".to_owned(), what }
}

/// Peaks of the hardware manifest whose title is in the GPU's name.
pub(super) fn stated(manifests: &Manifests, name: &str) -> Option<Peaks> {
    let of_gpus = manifests.hardware.values().filter(|hardware| hardware.device != DeviceKind::Cpu);
    of_gpus.filter(|hardware| name.contains(&hardware.title)).find_map(|hardware| hardware.peaks.clone())
}

pub(super) fn absent(name: &str, reason: &str) -> Missing {
    let reason = reason.lines().next().unwrap_or_default().to_owned();
    Missing { peer: "ours".to_owned(), name: name.to_owned(), reason, install: String::new() }
}

/// BF16, FP8, and the profile's arms of the paper's table.
fn step_arms(profile: &Profile) -> Vec<String> {
    let table = profile.arms.iter().filter(|group| group.group.starts_with("Table 1"));
    ["bf16", "fp8"].map(str::to_owned).into_iter().chain(table.flat_map(|group| group.recipes.iter().cloned())).collect()
}

/// The line that `step-time --memory` ends with.
fn memory_of(text: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines
        .filter(|line| line.get("kind").and_then(serde_json::Value::as_str) == Some("step_memory"))
        .find_map(|line| line.get("bytes")?.as_u64())
}

/// All of one process's arms took turns with each other and with the peer's rounds. BF16 keeps the same with the option as without.
fn step_samples(size: &str, arms: &[&str], wanted: &str, option: &str, lines: &[StepTimeLine]) -> Option<Samples> {
    let (mut samples, mut operations) = (Vec::new(), 0);
    for line in lines {
        if let StepTimeLine::Step(StepTime { arm, tokens, seconds, .. }) = line
            && arm == wanted
        {
            samples.push(*seconds);
            operations = tokens.unwrap_or_default();
        }
    }
    let group = format!("steps {size} {}{option}", arms.join(" "));
    let name = format!("step/{size}/{wanted}{}", if wanted == "bf16" { "" } else { option });
    (!samples.is_empty()).then(|| Samples { group, name, threads: 1, operations, unit: "tokens".to_owned(), samples })
}
