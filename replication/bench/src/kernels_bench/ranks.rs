//! `--gpus N,M` and `--ranks N,M`: whole training steps that several ranks of this machine compute together, each with as many sequences
//! whatever their number, and PyTorch's sharded step in turns with them.
//!
//! Ours are calls of the trainer (`step-time`), one a round; the peer's processes are started once for each number of ranks and hold no model
//! between rounds, since neither leaves room for the other. What cannot be measured is a row that says why, never an error.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use campaign::toolchain::ToolError;
use contract::device::{DeviceKind, GpuFacts};
use contract::measurements::StepTimeLine;
use study::files;
use study::kernels::{CUT, Depth, Missing, NotRun, Part, RankStep, RanksBench, WHOLE, WHOLE_BATCH};
use study::manifest::profile::{Model, Profile};
use study::plan;

use super::gpu::peers;
use super::gpu::{absent, stated};
use super::script::Script;
use super::{BenchError, Means, steps};

/// How many ranks compute a step together, each number in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Together {
    /// Each on a GPU of its own.
    Gpus(Vec<usize>),
    /// As processes on the CPU: a small model, to see the same way work where there is no GPU.
    Processes(Vec<usize>),
}

/// A model, and how many of its layers and how many sequences make a step.
struct Size {
    name: &'static str,
    /// Optimizer, schedule and the rest of a run file.
    profile: &'static str,
    model: &'static str,
    layers: Option<u64>,
    /// That one rank computes at once; None: all ranks share the profile's batch, one at a time.
    sequences: Option<usize>,
    arms: &'static [&'static str],
    /// Whatever the depth.
    turns: Option<Turns>,
}

/// How often a step is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turns {
    rounds: usize,
    /// Steps of a round, after those that are not timed.
    repeats: usize,
    warmup: usize,
}

/// The two baselines and the full pipeline.
const ARMS: [&str; 3] = ["bf16", "fp8", "mxfp4-fdw-h16"];

/// Every arm of the paper whose step it compares.
const PAPER_ARMS: [&str; 8] = ["bf16", "fp8", "mxfp4-f", "mxfp4-fd", "mxfp4-fdw", "mxfp4-fdw-h32", "mxfp4-fdw-h16", "mxfp4-fdw-sr"];

const PAPER: Size =
    Size { name: WHOLE, profile: "h200-8b", model: "llama31-8b", layers: None, sequences: Some(1), arms: &ARMS, turns: None };

const ON_GPUS: [Size; 3] = [
    Size { name: CUT, layers: Some(8), ..PAPER },
    PAPER,
    // A step of it takes ten seconds on two H200s, each of whose 16 micro-batches is a step of the row above but for the optimizer.
    Size { name: WHOLE_BATCH, sequences: None, arms: &PAPER_ARMS, turns: Some(Turns { rounds: 1, repeats: 2, warmup: 1 }), ..PAPER },
];

const ON_CPU: [Size; 1] =
    [Size { name: "size-a", profile: "cpu", model: "size-a", layers: None, sequences: Some(4), arms: &ARMS, turns: None }];

/// A peer's round: making the model, compiling its blocks the first time, some steps.
const PEER_ROUND: Duration = Duration::from_secs(300);

/// Steps in which every kind of kernel is timed, after one that is not.
const PROFILED: &str = "6";

/// How steps of several ranks are measured.
pub(super) struct Request<'a> {
    pub(super) means: Means<'a>,
    /// Of each process on the CPU.
    pub(super) threads: usize,
}

/// What the ranks compute on.
pub(super) struct Place {
    kind: DeviceKind,
    name: String,
    libraries: Vec<String>,
    mxfp4: &'static str,
    /// GPUs that are here; None on the CPU, where there may be any number of processes.
    here: Option<usize>,
    /// Why there is no GPU.
    needs: String,
}

impl Place {
    pub(super) fn cpu(name: String) -> Self {
        Self { kind: DeviceKind::Cpu, name, libraries: Vec::new(), mxfp4: "emulated", here: None, needs: String::new() }
    }

    /// Each kind of GPU that is here; where none is, the first that was looked for, with what it needs.
    pub(super) fn of_gpus(gpus: &[GpuFacts], not_run: &[NotRun]) -> Vec<Self> {
        let kinds = [DeviceKind::Cuda, DeviceKind::Hip];
        let of = |kind: &DeviceKind| {
            let all: Vec<&GpuFacts> = gpus.iter().filter(|gpu| gpu.kind() == kind.word()).collect();
            let first = all.first()?;
            let mxfp4 = if first.mxfp4 == Some(true) { "native" } else { "emulated" };
            let (name, libraries) = (first.name.clone().unwrap_or_default(), first.libraries.clone());
            Some(Self { kind: *kind, name, libraries, mxfp4, here: Some(all.len()), needs: String::new() })
        };
        let found: Vec<Self> = kinds.iter().filter_map(of).collect();
        if !found.is_empty() {
            return found;
        }
        let wanted = not_run.first();
        let kind = kinds.into_iter().find(|kind| wanted.is_some_and(|row| row.device == kind.word()));
        let needs = wanted.map(|row| row.needs.clone()).unwrap_or_default();
        let (name, libraries) = (String::new(), Vec::new());
        vec![Self { kind: kind.unwrap_or(DeviceKind::Cuda), name, libraries, mxfp4: "emulated", here: Some(0), needs }]
    }

    /// Why so many ranks cannot be had here.
    fn lacks(&self, ranks: usize) -> Option<Missing> {
        let here = self.here.filter(|here| *here < ranks)?;
        let gpus = if ranks == 1 { "a GPU".to_owned() } else { format!("{ranks} GPUs of one machine") };
        Some(Missing { install: self.needs.clone(), ..absent("", &format!("needs {gpus}; here: {here}")) })
    }
}

impl Request<'_> {
    /// Every size and recipe with every number of ranks; what was measured until then if it is interrupted.
    pub(super) fn measure(
        &self,
        place: &Place,
        counts: &[usize],
        stop: &dyn Fn() -> Result<(), BenchError>,
        say: &dyn Fn(&str),
    ) -> Result<RanksBench, BenchError> {
        let mut bench = RanksBench {
            device: place.kind.word().to_owned(),
            name: place.name.clone(),
            libraries: place.libraries.clone(),
            mxfp4: place.mxfp4.to_owned(),
            steps: self.asked(place, counts)?,
            comparisons: Vec::new(),
        };
        // The most first: where time ends early, rows of fewer are easier to have again.
        for ranks in counts.iter().rev() {
            let mut steps: Vec<&mut RankStep> = bench.steps.iter_mut().filter(|step| step.ranks == *ranks).collect();
            if let Some(missing) = place.lacks(*ranks) {
                steps.iter_mut().for_each(|step| step.missing.push(Missing { name: step.name(), ..missing.clone() }));
                continue;
            }
            match self.with_so_many(place, *ranks, &mut steps, stop, say) {
                Err(_) if stop().is_err() => break,
                other => other?,
            }
        }
        for step in bench.steps.iter_mut().filter(|step| stop().is_err() && step.samples.is_empty() && step.missing.is_empty()) {
            step.missing.push(absent(&step.name(), "interrupted"));
        }
        bench.comparisons = bench.compare(self.means.peers.is_some());
        Ok(bench)
    }

    /// What is to be measured, in the order of the table.
    fn asked(&self, place: &Place, counts: &[usize]) -> Result<Vec<RankStep>, BenchError> {
        let mut all = Vec::new();
        for size in self.sizes(place.kind) {
            let (profile, model) = (self.means.manifests.profile(size.profile)?, self.model(size)?);
            for arm in size.arms {
                for ranks in counts {
                    let sequences = size.sequences.unwrap_or(profile.batch.sequences / ranks);
                    let tokens = sequences as u64 * model.sequence_length;
                    all.push(RankStep { size: size.name.to_owned(), arm: (*arm).to_owned(), ranks: *ranks, tokens, ..RankStep::default() });
                }
            }
        }
        all.retain(|step| self.means.only.split(',').any(|part| step.name().contains(part)));
        Ok(all)
    }

    /// Quick leaves the whole model out.
    fn sizes(&self, kind: DeviceKind) -> &'static [Size] {
        match (kind, self.means.depth) {
            (DeviceKind::Cpu, _) => &ON_CPU,
            (_, Depth::Quick) => &ON_GPUS[..1],
            (_, Depth::Default | Depth::Deep) => &ON_GPUS,
        }
    }

    /// The sign test needs six steps in all for an interval.
    fn turns(&self, size: &Size) -> Turns {
        let (rounds, repeats) = match self.means.depth {
            Depth::Quick | Depth::Default => (1, 6),
            Depth::Deep => (4, 5),
        };
        size.turns.unwrap_or(Turns { rounds, repeats, warmup: 2 })
    }

    fn model(&self, size: &Size) -> Result<Model, BenchError> {
        let model = self.means.manifests.models.get(size.model);
        let model = model.ok_or_else(|| BenchError::Lacks(format!("manifests/models/{}.yaml is missing", size.model)))?.clone();
        Ok(Model { num_hidden_layers: size.layers.unwrap_or(model.num_hidden_layers), ..model })
    }

    /// All steps of one number of ranks, beside one start of the peer.
    fn with_so_many(
        &self,
        place: &Place,
        ranks: usize,
        steps: &mut [&mut RankStep],
        stop: &dyn Fn() -> Result<(), BenchError>,
        say: &dyn Fn(&str),
    ) -> Result<(), BenchError> {
        let mut script = match self.means.peers.filter(|_| steps.iter().any(|step| step.peer_name().is_some())) {
            Some(python) => Some(self.script(place, ranks, python)?.and_then(Script::ready).and_then(Script::able)),
            None => None,
        };
        for step in steps {
            say(&format!("{}: {}", place.kind.word(), step.name()));
            if let Some(size) = self.sizes(place.kind).iter().find(|size| size.name == step.size) {
                self.step(place, size, step, &mut script, stop)?;
            }
        }
        if let Some(Ok(script)) = script {
            script.finish();
        }
        Ok(())
    }

    /// One step in turns with the peer's.
    fn step(
        &self,
        place: &Place,
        size: &Size,
        step: &mut RankStep,
        script: &mut Option<Result<Script, Missing>>,
        stop: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let profile = self.means.manifests.profile(size.profile)?;
        let file = self.run_file(size, profile, step)?;
        let turns = self.turns(size);
        for _ in 0..turns.rounds {
            stop()?;
            // What was refused once would be refused again.
            if step.missing.is_empty() || !step.samples.is_empty() {
                self.ours(place, &file, step, turns)?;
            }
            stop()?;
            if let (Some(Ok(peer)), Some(name)) = (script.as_mut(), step.peer_name()) {
                let recipe = name.rsplit('/').nth(1).unwrap_or_default();
                if let Err(missing) = peer.ask(&format!("round {} {recipe}", size.name), PEER_ROUND) {
                    *script = Some(Err(missing));
                }
            }
        }
        if step.ranks == 1 && step.size == CUT && !step.samples.is_empty() {
            stop()?;
            self.parts(place, size, &file, step)?;
        }
        if let (Some(script), Some(name)) = (script, step.peer_name()) {
            match script {
                Ok(script) => {
                    let found = script.take();
                    step.peer = found.timings.into_iter().find(|peer| peer.name == name);
                    step.missing.extend(found.missing);
                }
                Err(missing) => step.missing.push(Missing { name, ..missing.clone() }),
            }
        }
        Ok(())
    }

    /// A round of ours.
    fn ours(&self, place: &Place, file: &Path, step: &mut RankStep, turns: Turns) -> Result<(), BenchError> {
        let (warmup, repeats) = (turns.warmup.to_string(), turns.repeats.to_string());
        let mut arguments = ["--memory", "--warmup", &warmup, "--repeats", &repeats].map(OsString::from).to_vec();
        if place.here.is_none() {
            arguments.extend(["--threads".into(), self.threads.to_string().into()]);
        }
        if step.ranks > 1 {
            let option = if place.here.is_some() { "--gpus" } else { "--ranks" };
            arguments.extend([option.into(), step.ranks.to_string().into()]);
        }
        let name = step.name();
        for line in &self.lines(place, file, step, (name, arguments))? {
            match line {
                StepTimeLine::Step(timed) => step.samples.push(timed.seconds),
                StepTimeLine::Exchange(spent) => step.exchange.push(spent.into()),
                StepTimeLine::Memory(taken) => step.peak_bytes = step.peak_bytes.max(Some(taken.bytes)),
                StepTimeLine::Kernel(_) => {}
            }
        }
        Ok(())
    }

    /// What `trainer step-time` says with these options; nothing where it fails, and then the step lacks what is named.
    fn lines(
        &self,
        place: &Place,
        file: &Path,
        step: &mut RankStep,
        (name, options): (String, Vec<OsString>),
    ) -> Result<Vec<StepTimeLine>, BenchError> {
        let mut arguments: Vec<OsString> = vec!["step-time".into(), file.into(), "--device".into(), place.kind.word().into()];
        arguments.extend(options);
        match self.means.trainer.output("timing steps", arguments) {
            Ok(text) => Ok(steps::parse(&text)?),
            Err(error) => {
                step.missing.push(absent(&name, &reason(&error)));
                Ok(Vec::new())
            }
        }
    }

    /// What attention, head and optimizer take of a GPU whose peaks are known.
    fn parts(&self, place: &Place, size: &Size, file: &Path, step: &mut RankStep) -> Result<(), BenchError> {
        let Some(peaks) = place.here.and_then(|_| stated(self.means.manifests, &place.name)) else { return Ok(()) };
        let options = ["--profile-step", "--warmup", "1", "--repeats", PROFILED].map(OsString::from).to_vec();
        let name = format!("{}, kernels", step.name());
        let lines = self.lines(place, file, step, (name, options))?;
        if lines.is_empty() {
            return Ok(());
        }
        let model = self.model(size)?;
        let [operations, bytes] = [("FLOP", peaks.bf16), ("bytes", peaks.bytes_per_second)];
        for (kernel, work, (unit, peak)) in [
            ("attention", attention(&model, step.tokens), operations),
            // Three products.
            ("head", 6 * step.tokens * model.hidden_size * model.vocab_size, operations),
            // The norm reads a gradient. The update reads it again with parameter and moments in F32, and writes these and a BF16.
            ("optimizer", 34 * model.section().parameters() as u64, bytes),
        ] {
            let of_kernel = |line: &StepTimeLine| match line {
                StepTimeLine::Kernel(line) if &*line.kernel == kernel => Some(line.seconds),
                _ => None,
            };
            let samples = lines.iter().filter_map(of_kernel).collect();
            step.parts.push(Part { kernel: kernel.to_owned(), work, unit: unit.to_owned(), peak, samples });
        }
        Ok(())
    }

    /// Each rank has a micro-batch, or several of the profile's batch.
    fn run_file(&self, size: &Size, profile: &Profile, step: &RankStep) -> Result<PathBuf, BenchError> {
        let mut profile = profile.clone();
        if let Some(sequences) = size.sequences {
            (profile.batch.sequences, profile.batch.accumulation) = (sequences * step.ranks, step.ranks);
        }
        let path = self.means.folder.join(format!("{}-{}-{}.yaml", size.name, step.arm, step.ranks));
        let text = plan::step_run_file(self.means.manifests, &profile, &self.model(size)?, profile.batch.sequences, &step.arm)?;
        files::write(&path, text.as_bytes())?;
        Ok(path)
    }

    /// The peer for every size; which of them it times, it is told in rounds.
    fn script(&self, place: &Place, ranks: usize, python: &Path) -> Result<Result<Script, Missing>, BenchError> {
        let mut sizes = Vec::new();
        for size in self.sizes(place.kind) {
            if let Some(sequences) = size.sequences {
                sizes.push(peers::size(size.name, &self.model(size)?, sequences));
            }
        }
        // PyTorch calls AMD's GPUs cuda, too.
        let device = if place.here.is_some() { "cuda" } else { "cpu" };
        let repeats = self.turns(&ON_GPUS[0]).repeats.to_string();
        let (sizes, ranks) = (serde_json::Value::Array(sizes).to_string(), ranks.to_string());
        let mut arguments = vec!["--ranks", &ranks, "--sizes", &sizes, "--device", device, "--repeats", &repeats];
        if self.means.peers_eager {
            arguments.push("--eager-only");
        }
        Ok(Script::spawn(self.means.root, python, "fsdp_peers.py", &arguments, PEER_ROUND))
    }
}

/// Operations of attention, forward and backward, as they are usually counted: two products and five, of which the mask leaves half.
fn attention(model: &Model, tokens: u64) -> u64 {
    7 * tokens * model.sequence_length * model.num_attention_heads * model.head_dim * model.num_hidden_layers
}

/// What the first rank that failed said, without what surrounds it.
fn reason(error: &ToolError) -> String {
    let text = error.to_string();
    let said = text.lines().find_map(|line| line.strip_prefix("error: "));
    said.or_else(|| text.lines().next()).unwrap_or_default().to_owned()
}
