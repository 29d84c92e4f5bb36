//! `kernels-bench`: what the kernels reach on this machine, against its peaks, against each other, and against peers.
//!
//! The CPU's part needs cargo; a GPU's part (`gpu`) is calls of the trainer, built or packed. Not part of a campaign, and no claim's verdict rests on it: those are `trainer kernel-time` and `step-time`. Three programs measure
//! (criterion benchmarks, members of a group in turns, training steps), a fourth is the peer script; this module starts them, and
//! sets their numbers side by side. `comparisons` is the one table of what is compared and of the bars.

mod beside;
mod criterion;
mod directory;
mod gpu;
mod model;
mod programs;
mod ranks;
mod samples;
mod script;
mod steps;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use campaign::benchmarks::Benchmarks;
use campaign::devices::Answers;
use campaign::environment;
use campaign::error::{CampaignError, interrupted as asked_to_stop};
use campaign::machine;
use campaign::run::RunOptions;
use campaign::toolchain::{self, ToolError, Trainer, build_trainer};
use contract::device::{DeviceId, DeviceKind, Devices, GpuFacts};
use study::exit::ExitCode;
use study::files::FileError;
use study::folder::{self, LockError};
use study::kernels::{Depth, Document, DocumentError, NotRun, SCHEMA};
use study::manifest::{ManifestError, Manifests};
use study::number;
use study::provenance::ProvenanceError;
use study::record::RecordError;
use study::render::RenderError;

use directory::write;
pub use directory::{add_to, report};
pub use ranks::Together;
pub use samples::{Peers, parse_peers};
pub use table::table;

/// What `kernels-bench` was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// `all` that are found, `cpu`, `cuda[:N]` or `hip[:N]`.
    pub device: String,
    /// Steps of several ranks, and nothing else; None: everything else.
    pub together: Option<Together>,
    pub depth: Depth,
    /// Only what has this in its name.
    pub only: Option<String>,
    /// Thread counts, the first being the one that bars are judged at.
    pub threads: Vec<usize>,
    /// The Python that runs the peer scripts; None: no peers.
    pub peers: Option<PathBuf>,
    /// Peers on a GPU are not compiled.
    pub peers_eager: bool,
    /// A trainer that was built elsewhere; None: the packed one, else it is built.
    pub trainer: Option<PathBuf>,
    /// Where result directories go.
    pub out: PathBuf,
    /// Name of the machine in the directory's name; None: from its processor.
    pub machine: Option<String>,
}

/// What each part measures with, and how.
#[derive(Clone, Copy)]
struct Means<'a> {
    root: &'a Path,
    trainer: &'a Trainer,
    manifests: &'a Manifests,
    /// Run files are written here.
    folder: &'a Path,
    depth: Depth,
    only: &'a str,
    /// The Python that runs the peer scripts.
    peers: Option<&'a Path>,
    peers_eager: bool,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Lock(#[from] LockError),
    /// This machine, or this tree, cannot do it.
    #[error("{0}")]
    Lacks(String),
    /// Options that do not go together.
    #[error("{0}")]
    Usage(String),
    /// A program of ours printed something else than its schema says.
    #[error("{program}: {what}; this is not what this version prints, so build the tree again")]
    Lines { program: String, what: String },
    /// Not the file that this criterion version writes.
    #[error("{}: {what}; this is not what criterion 0.8 writes, so check its version in Cargo.lock", path.display())]
    Alien { path: PathBuf, what: String },
    /// Some rows are missing, and say so.
    #[error("interrupted; what was measured until then is in {}", .0.display())]
    Interrupted(PathBuf),
    #[error(
        "nothing has `{0}` in its name; names begin with peak/, gemm/, quantise/, linear/ or step/, and `cargo xtask kernels-bench --quick` shows some"
    )]
    Nothing(String),
}

impl ExitCode for BenchError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Manifest(_) | Self::Nothing(_) | Self::Usage(_) => 2,
            Self::Record(error) => error.exit_code(),
            Self::File(error)
            | Self::Provenance(ProvenanceError::File(error))
            | Self::Document(DocumentError::File(error))
            | Self::Lock(LockError::File(error)) => error.exit_code(),
            Self::Provenance(_) | Self::Document(DocumentError::Content { .. }) => 3,
            Self::Render(error) => error.exit_code(),
            Self::Lacks(_) => 4,
            Self::Interrupted(_) => 130,
            Self::Campaign(error) => error.exit_code(),
            _ => 1,
        }
    }
}

/// What was measured and where it lies.
#[derive(Debug)]
pub struct Outcome {
    pub directory: PathBuf,
    pub document: Document,
}

/// Builds, measures, compares and writes a result directory. `say` gets a line for each stage; `stop` ends it between stages.
///
/// # Errors
/// [`BenchError`]; a broken or absent peer is a row, not an error, and so is a device that is not here unless it was asked for by name.
pub fn run(root: &Path, request: &Request, stop: &AtomicBool, say: &dyn Fn(&str)) -> Result<Outcome, BenchError> {
    let wanted = Wanted::of(request)?;
    let manifests = Manifests::load(root)?;
    let answers = Answers::default();
    wanted.refuse_early(root, &manifests, request, &answers)?;
    // A campaign beside it would disturb both.
    let _lock = folder::lock_cache(root)?;
    let first = request.threads.first().copied().unwrap_or(1);
    let options = RunOptions { parallel: 1, threads: first, instruction_set: "auto".to_owned(), fresh: false };
    let mut environment = environment::capture(root, &options);
    let prebuilt = toolchain::prebuilt(root, request.trainer.as_deref()).map(|program| Trainer { program });
    let benchmarks = if wanted.cpu { programs::benchmarks(root, say)? } else { None };
    let (trainer, build) = match prebuilt {
        Some(trainer) => (trainer.clone(), toolchain::prebuilt_identity(&trainer)?),
        None => build_trainer(root, say)?,
    };
    let found = wanted.gpus(&trainer, &answers)?;
    let folder = root.join("cache").join("kernels-bench");
    let mut document = Document {
        schema: SCHEMA.to_owned(),
        date: environment::today(),
        machine: request
            .machine
            .clone()
            .or_else(|| gpu_slug(&wanted, &found.gpus, request.together.as_ref()))
            .unwrap_or_else(environment::machine_name),
        processor: machine::cpu_model(),
        device: request.device.clone(),
        instruction_set: String::new(),
        commit: environment.source.commit.clone(),
        dirty: environment.source.dirty,
        trainer_code: build.identities.on(measured_on(&found.gpus)).to_owned(),
        depth: request.depth,
        only: request.only.clone(),
        threads: request.threads.clone(),
        rounds: request.depth.rounds(),
        peers_asked: request.peers.is_some(),
        measuring_seconds: 0.0,
        benchmarks: Vec::new(),
        samples: Vec::new(),
        peers: Vec::new(),
        missing: Vec::new(),
        peer_environment: None,
        profile: Vec::new(),
        memory: Vec::new(),
        comparisons: Vec::new(),
        gpus: Vec::new(),
        ranks: Vec::new(),
        not_run: Vec::new(),
        clock_model: None,
    };
    if !found.gpus.is_empty() {
        environment = environment.on(&found.gpus);
    }
    let means = Means {
        root,
        trainer: &trainer,
        manifests: &manifests,
        folder: &folder,
        depth: request.depth,
        only: request.only.as_deref().unwrap_or_default(),
        peers: request.peers.as_deref(),
        peers_eager: request.peers_eager,
    };
    match &request.together {
        Some(together) => measure_together(ranks::Request { means, threads: first }, together, &found, &mut document, stop, say)?,
        None => {
            if let Some(benchmarks) = &benchmarks {
                until_stopped(measure_cpu(means, benchmarks, &request.threads, &mut document, stop, say), &mut document, stop)?;
            } else if wanted.cpu {
                document.not_run.push(gpu::not_run("cpu", None));
            }
            if asked_to_stop(stop).is_ok() {
                measure_gpus(means, found, &mut document, stop, say)?;
            }
        }
    }
    if asked_to_stop(stop).is_ok() {
        something(means.only, &document)?;
    }
    document.comparisons = document.compare();
    let directory = write(root, &request.out, &document, &environment)?;
    if asked_to_stop(stop).is_err() {
        return Err(BenchError::Interrupted(directory));
    }
    Ok(Outcome { directory, document })
}

/// Steps of several ranks.
fn measure_together(
    measure: ranks::Request,
    together: &Together,
    found: &Found,
    document: &mut Document,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(), BenchError> {
    let (places, counts) = match together {
        Together::Gpus(counts) => (ranks::Place::of_gpus(&found.gpus, &found.not_run), counts),
        Together::Processes(counts) => (vec![ranks::Place::cpu(machine::cpu_model())], counts),
    };
    let started = Instant::now();
    for place in &places {
        document.ranks.push(measure.measure(place, counts, &|| Ok(asked_to_stop(stop)?), say)?);
    }
    document.measuring_seconds = started.elapsed().as_secs_f64();
    Ok(())
}

/// Kernels and steps of each GPU alone; every call of an interpreter, and what the clock model says.
fn measure_gpus(
    means: Means,
    Found { gpus, interpreters, not_run }: Found,
    document: &mut Document,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(), BenchError> {
    document.not_run.extend(not_run);
    let interrupted = || Ok(asked_to_stop(stop)?);
    let started = Instant::now();
    for gpu in &gpus {
        document.gpus.push(means.measure_gpu(gpu, &interrupted, say)?);
        if interrupted().is_err() {
            break;
        }
    }
    for gpu in interpreters.iter().filter(|_| interrupted().is_ok()) {
        say(&format!("{}: an interpreter; every kernel is called once, no time is told", gpu.device));
        if let Some(row) = document.not_run.iter_mut().find(|row| row.device == gpu.kind()) {
            means.interpret(gpu, row)?;
        }
    }
    if interrupted().is_ok() && gpus.iter().chain(&interpreters).any(model::is_of) {
        say("the clock model's figures of the gfx950 kernels (modelled)");
        match model::clock_model(means.root, means.manifests) {
            Ok(model) => document.clock_model = Some(model),
            Err(error) => model::lack(&error.to_string(), &mut document.gpus, &mut document.not_run),
        }
    }
    document.measuring_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

/// A measurement that was stopped, or whose programs were, keeps what it has; one that has nothing is no result.
fn until_stopped(measured: Result<(), BenchError>, document: &mut Document, stop: &AtomicBool) -> Result<(), BenchError> {
    let is_empty = document.benchmarks.is_empty() && document.samples.is_empty();
    if is_empty || measured.is_ok() || asked_to_stop(stop).is_ok() {
        return measured;
    }
    document.missing.push(gpu::absent("what was left of the CPU's measurements", "interrupted"));
    Ok(())
}

/// Criterion's benchmarks, kernels and steps in turns, and the CPU's peers. What is measured is in the document as soon as it is there.
fn measure_cpu(
    means: Means,
    benchmarks: &Benchmarks,
    threads: &[usize],
    document: &mut Document,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(), BenchError> {
    let (started, Means { root, depth, only, peers: python, .. }) = (Instant::now(), means);
    let programs = programs::Programs { root, benchmarks, depth, only, threads };
    say(&format!("timing single kernels ({} depth)", depth.word()));
    document.benchmarks = programs.criterion(say)?;
    asked_to_stop(stop)?;
    say("kernels against each other and beside peers, in turns");
    let mut spent_on_peers = Duration::ZERO;
    for threads in threads {
        let turns = programs.ratios(*threads, depth.rounds(), python)?;
        document.samples.extend(turns.samples);
        document.instruction_set = turns.instruction_set;
        spent_on_peers += turns.spent_on_peers;
        add(turns.peers, document);
        turns.ended?;
        asked_to_stop(stop)?;
    }
    let steps = steps::Request { means, threads: steps::threads(threads), rounds: depth.rounds(), stop }.measure(say)?;
    document.samples.extend(steps.samples);
    (document.profile, document.memory) = (steps.profile, steps.memory);
    add(steps.peers, document);
    spent_on_peers += steps.spent_on_peers;
    document.measuring_seconds = started.elapsed().saturating_sub(spent_on_peers).as_secs_f64();
    asked_to_stop(stop)?;
    something(only, document)?;
    let Some(python) = python.filter(|_| !programs::is_of(only, &["gemm/", "quantise/", "linear/", "peak/"])) else { return Ok(()) };
    for threads in threads {
        say(&format!("steps of peers alone, with {threads} thread{} (some minutes)", number::plural(*threads)));
        let skip = in_turns(document, *threads);
        add(programs::peers(root, python, (*threads, depth), (only, &skip), say), document);
        asked_to_stop(stop)?;
    }
    Ok(())
}

/// Peers that need not be measured alone.
fn in_turns(document: &Document, threads: usize) -> Vec<String> {
    document.peers.iter().filter(|peer| peer.in_turns && peer.threads == threads).map(|peer| peer.name.clone()).collect()
}

/// What a peer script said.
fn add(peers: Peers, document: &mut Document) {
    document.peers.extend(peers.timings);
    document.peer_environment = document.peer_environment.take().or(peers.environment);
    for missing in peers.missing {
        if !document.missing.contains(&missing) {
            document.missing.push(missing);
        }
    }
}

/// Peaks are always taken, so a filter has found something only when a name has it.
fn something(only: &str, document: &Document) -> Result<(), BenchError> {
    let samples = document.samples.iter().chain(document.gpus.iter().flat_map(|gpu| &gpu.samples));
    let mut names = document.benchmarks.iter().map(|benchmark| &benchmark.name).chain(samples.map(|samples| &samples.name));
    // Of these every step that was asked for is a row.
    let is_of_ranks = document.ranks.iter().any(|ranks| !ranks.steps.is_empty());
    if only.is_empty() || is_of_ranks || names.any(|name| name.contains(only)) { Ok(()) } else { Err(BenchError::Nothing(only.to_owned())) }
}

/// What `--device` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    cpu: bool,
    gpus: gpu::Kinds,
    /// A device was named, so that it is an error when it is not here.
    is_named: bool,
}

#[derive(Debug, Default)]
struct Found {
    gpus: Vec<GpuFacts>,
    /// No devices: to be called, not measured.
    interpreters: Vec<GpuFacts>,
    /// A row for each kind that is not here.
    not_run: Vec<NotRun>,
}

impl Wanted {
    /// What a request measures on: of several ranks' steps nothing else, and so neither a CPU nor a single GPU.
    fn of(request: &Request) -> Result<Self, BenchError> {
        let device = request.device.as_str();
        match &request.together {
            None => Self::parse(device),
            Some(Together::Gpus(_)) if device == "cpu" => {
                Err(BenchError::Usage("--gpus with --device cpu: --ranks N times steps of N processes on the CPU".to_owned()))
            }
            Some(Together::Gpus(_)) if device.contains(':') => {
                Err(BenchError::Usage(format!("--device {device}: with --gpus each rank takes its own; name cuda or hip without a number")))
            }
            Some(Together::Gpus(_)) => Ok(Self { cpu: false, ..Self::parse(device)? }),
            Some(Together::Processes(_)) if !["all", "cpu"].contains(&device) => {
                Err(BenchError::Usage(format!("--device {device}: --ranks are processes on the CPU; --gpus N times steps of N GPUs")))
            }
            Some(Together::Processes(_)) => Ok(Self { cpu: false, ..Self::parse("cpu")? }),
        }
    }

    fn parse(text: &str) -> Result<Self, BenchError> {
        let every = |cpu, kinds| Self { cpu, gpus: gpu::Kinds { kinds, ordinal: None }, is_named: false };
        match text.parse::<DeviceId>() {
            _ if text == "all" => Ok(every(true, vec!["cuda", "hip"])),
            Err(_) => Err(BenchError::Lacks(format!("--device {text}: use all, cpu, cuda, cuda:N, hip or hip:N"))),
            Ok(DeviceId::Cpu) => Ok(every(true, vec![])),
            Ok(id) => {
                // A kind without a number means all of its GPUs here.
                let ordinal = id.ordinal().filter(|_| text.contains(':'));
                Ok(Self { cpu: false, gpus: gpu::Kinds { kinds: vec![id.kind().word()], ordinal }, is_named: true })
            }
        }
    }

    /// A named kind of GPU that plainly is not here is refused before anything is built: a trainer that is at hand is asked, an older one
    /// too, and without its answer the driver's file is looked for.
    fn refuse_early(&self, root: &Path, manifests: &Manifests, request: &Request, answers: &Answers) -> Result<(), BenchError> {
        if !self.is_named {
            return Ok(());
        }
        let at_hand = toolchain::at_hand(root, request.trainer.as_deref());
        if let Some(devices) = at_hand.and_then(|trainer| answers.of(&trainer).ok()) {
            return self.among(Ok(devices)).map(drop);
        }
        let mut files = manifests.hardware.values().filter(|hardware| self.gpus.kinds.contains(&hardware.device.word()));
        let absent = files.find_map(|hardware| hardware.detect.file.as_deref().filter(|file| !Path::new(file).exists()));
        absent.map_or(Ok(()), |file| Err(self.lacks(Some(&format!("there is no {file}")))))
    }

    fn lacks(&self, said: Option<&str>) -> BenchError {
        let kind = self.gpus.kinds.first().copied().unwrap_or_default();
        let NotRun { device, needs, .. } = gpu::not_run(kind, said);
        BenchError::Lacks(format!("{device}: not-run; it needs {needs}. `--device cpu` runs here"))
    }

    /// What is here of what was asked for.
    ///
    /// # Errors
    /// A kind that was named and is not here, not even as an interpreter.
    fn gpus(&self, trainer: &Trainer, answers: &Answers) -> Result<Found, BenchError> {
        if self.gpus.kinds.is_empty() {
            return Ok(Found::default());
        }
        self.among(answers.of(trainer).map_err(|error| error.to_string()))
    }

    fn among(&self, devices: Result<Devices, String>) -> Result<Found, BenchError> {
        let interpreters = devices.as_ref().map(|devices| gpu::interpreters(devices, &self.gpus)).unwrap_or_default();
        let (gpus, not_run) = gpu::found(devices, &self.gpus);
        match not_run.first() {
            Some(NotRun { device, needs, .. }) if self.is_named && interpreters.is_empty() => {
                Err(BenchError::Lacks(format!("{device}: not-run; it needs {needs}. `--device cpu` runs here")))
            }
            _ => Ok(Found { gpus, interpreters, not_run }),
        }
    }
}

/// The device whose sources decide whether a document is of today's: the CPU's, unless GPUs were measured, too.
fn measured_on(gpus: &[GpuFacts]) -> DeviceKind {
    match gpus.first() {
        Some(gpu) if gpu.kind() == "hip" => DeviceKind::Hip,
        Some(_) => DeviceKind::Cuda,
        None => DeviceKind::Cpu,
    }
}

/// A directory that holds GPUs' measurements alone is named after the GPU, and after how many worked together.
fn gpu_slug(wanted: &Wanted, gpus: &[GpuFacts], together: Option<&Together>) -> Option<String> {
    let slug = study::machine::of_gpus(gpus).filter(|_| !wanted.cpu)?;
    let Some(Together::Gpus(counts)) = together else { return Some(slug) };
    match counts.iter().filter(|count| **count <= gpus.len()).max() {
        Some(most) if *most > 1 => Some(format!("{slug}-x{most}")),
        _ => Some(slug),
    }
}

/// `reference` in lines for a terminal: how to measure more.
pub const DEEPER: &str =
    "deeper: --deep (every shape, rotation and rounding), --threads 1,2, --peers (PyTorch, torchao, ggml, microxcaling)";

/// Builds nothing and measures nothing: the last lines of a failed program.
fn failed(what: &str, status: &str, output: &str) -> BenchError {
    BenchError::Tool(ToolError::Failed {
        what: what.to_owned(),
        status: status.to_owned(),
        code: None,
        output: toolchain::last_lines(output, 40),
    })
}
