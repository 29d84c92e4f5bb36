//! A campaign from end to end: plan, build, data, runs, timings, result directory, report.
//!
//! The order of things is here; each thing is done elsewhere: `directory` puts the result directory together, `finished` makes one of what is
//! there.

mod directory;
mod finished;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::data::{self, DataError};
use crate::devices::{self, Devices, Gpu};
use crate::doctor;
use crate::environment::{self, Environment, PrebuiltTrainer};
use crate::evidence;
use crate::files::{self, Context, FileError, sha256};
use crate::judge::Verdicts;
use crate::kernels_bench;
use crate::machine;
use crate::manifest::{Device, ManifestError, Manifests, Profile};
use crate::plan::{self, Plan, Selection};
use crate::provenance::ProvenanceError;
use crate::render::RenderError;
use crate::run::{self, Outcome, Pool, RunError, RunOptions};
use crate::timings::Timings;
use crate::toolchain::{self, ToolError, Trainer, build_identity, build_trainer};

use directory::assemble;
pub use directory::{Campaign, CampaignRun, add_evidence, report};
pub(crate) use directory::{record, replace};

/// What `replicate` was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub profile: String,
    pub selection: Selection,
    /// How runs are carried out.
    pub run: RunOptions,
    /// Where result directories go.
    pub out: PathBuf,
    /// Name of the machine in the directory's name; None: from its processor or GPU.
    pub machine: Option<String>,
    /// A trainer that was built elsewhere; None: one that was packed beside the manifests, else it is built.
    pub trainer: Option<PathBuf>,
    /// Numbers of the GPUs to use; None: all that can be used.
    pub gpus: Option<Vec<usize>>,
    /// After so long no run is started.
    pub minutes: Option<Duration>,
    /// After so long runs write a checkpoint and end.
    pub stop_after: Option<Duration>,
    /// Keep checkpoint and weights of runs that finish on a GPU.
    pub keep_weights: bool,
    /// Run and measure nothing: put together what is finished.
    pub finished: bool,
}

/// With what a campaign is carried out, and on what.
struct Site {
    /// Known before the rest on a machine with GPUs, because it finds them.
    trainer: Option<Trainer>,
    /// None on a CPU.
    gpus: Vec<Gpu>,
    /// Name of the machine in directories' names.
    machine: String,
    /// What timings depend on besides the runs.
    line: String,
}

impl Site {
    /// The processor, or the GPUs that the trainer finds and `request` allows.
    fn new(root: &Path, prepared: &Prepared, request: &Request, say: &dyn Fn(&str)) -> Result<Self, CampaignError> {
        let device = prepared.plan.device;
        let machine = |name: Option<String>| request.machine.clone().or(name).unwrap_or_else(environment::machine_slug);
        if device == Device::Cpu {
            return Ok(Self { trainer: None, gpus: vec![], machine: machine(None), line: machine_line(&request.run) });
        }
        let trainer = prepared.trainer(root, say)?;
        let chosen = Devices::ask(&trainer)?.choose(device.word(), request.gpus.as_deref());
        let gpus = chosen.map_err(|line| CampaignError::Lacks { profile: request.profile.clone(), lacks: vec![line] })?;
        gpus.iter().for_each(|gpu| say(&gpu.line()));
        let line = format!("device {} {}\n", device.word(), devices::identity(&gpus));
        Ok(Self { trainer: Some(trainer), machine: machine(devices::slug(&gpus)), gpus, line })
    }

    /// One place for each GPU, or for each trainer at once.
    fn pool(&self, request: &Request) -> Pool {
        let places = match self.gpus.is_empty() {
            true => Pool::cpu(&request.run).places,
            false => self.gpus.iter().map(|gpu| gpu.device.clone()).collect(),
        };
        Pool { places, minutes: request.minutes, stop_after: request.stop_after, keep_weights: request.keep_weights }
    }
}

#[derive(Debug)]
pub struct Report {
    pub directory: PathBuf,
    pub verdicts: Verdicts,
    /// Runs that ended with an error, with their last lines.
    pub failed: Vec<(String, String)>,
    /// Nothing had to be run, measured or rendered.
    pub nothing_to_do: bool,
    /// Lines the reader should see.
    pub notes: Vec<String>,
}

/// Why a campaign did not end with a report.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
    /// The machine lacks what the profile needs.
    #[error("profile {profile} cannot run here:\n{}", .lacks.iter().map(|line| format!("  - {line}")).collect::<Vec<_>>().join("\n"))]
    Lacks {
        profile: String,
        /// One line each.
        lacks: Vec<String>,
    },
    /// Another process holds the lock.
    #[error("another replicate process is at work in this repository (it holds {}); wait for it, or stop it", .path.display())]
    Locked { path: PathBuf },
    /// The time was up, or no device was left.
    #[error("{done} of {all} runs are finished, {left} are left: {}; what is finished and every checkpoint is kept, and the same command goes on (also elsewhere: `cargo xtask runs export`, `import`); with --finished it reports what is there{}", if *.time_up { "the time was up" } else { "no device was left" }, .failed.iter().map(|(run, error)| format!("\nFAILED {run}: {error}")).collect::<String>())]
    Unfinished {
        done: usize,
        all: usize,
        /// Runs neither finished nor failed.
        left: usize,
        /// The time was up; otherwise no device was left.
        time_up: bool,
        /// Runs that ended with an error, with their last lines.
        failed: Vec<(String, String)>,
    },
    /// There is nothing to put together.
    #[error(
        "none of the {all} runs of profile {profile} that this would show is finished here; runs of other machines come with `cargo xtask runs import`, and `--why ARM/SEED` says what changed since an earlier run"
    )]
    NothingFinished { profile: String, all: usize },
    #[error("interrupted; finished runs and checkpoints are kept: run the same command again to go on")]
    Interrupted,
}

impl CampaignError {
    /// The exit code that `cargo xtask --help` documents.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Manifest(_) => 2,
            Self::Data(error) | Self::Run(RunError::Data(error)) => error.exit_code(),
            Self::File(error)
            | Self::Run(RunError::File(error))
            | Self::Provenance(ProvenanceError::File(error))
            | Self::Tool(ToolError::File(error)) => error.exit_code(),
            Self::Provenance(_) | Self::NothingFinished { .. } => 3,
            Self::Tool(ToolError::Unidentified { .. } | ToolError::NoSources { .. }) => 2,
            Self::Lacks { .. } | Self::Unfinished { time_up: false, .. } => 4,
            Self::Unfinished { .. } => 5,
            Self::Interrupted => 130,
            Self::Tool(_) | Self::Render(_) | Self::Locked { .. } => 1,
        }
    }
}

/// A plan with what it was made from.
pub struct Prepared {
    pub manifests: Manifests,
    pub plan: Plan,
    pub build: plan::Build,
    /// The trainer, if it was built elsewhere.
    pub prebuilt: Option<Trainer>,
}

impl Prepared {
    /// Loads manifests and makes the plan; touches nothing. `trainer` is one that was built elsewhere.
    ///
    /// # Errors
    /// A wrong manifest or selection, or a trainer that does not say what it is.
    pub fn new(root: &Path, profile: &str, selection: &Selection, trainer: Option<&Path>) -> Result<Self, CampaignError> {
        Self::from_manifests(root, Manifests::load(root)?, profile, selection, trainer)
    }

    fn from_manifests(
        root: &Path,
        manifests: Manifests,
        profile: &str,
        selection: &Selection,
        trainer: Option<&Path>,
    ) -> Result<Self, CampaignError> {
        let prebuilt = toolchain::prebuilt(root, trainer).map(|program| Trainer { program });
        let build = prebuilt.as_ref().map_or_else(|| build_identity(root), toolchain::prebuilt_identity)?;
        let plan = plan::plan(&manifests, manifests.profile(profile)?, selection, &build, None)?;
        Ok(Self { manifests, plan, build, prebuilt })
    }

    /// The trainer, built if it is not there.
    fn trainer(&self, root: &Path, say: &dyn Fn(&str)) -> Result<Trainer, ToolError> {
        if let Some(trainer) = &self.prebuilt {
            return Ok(trainer.clone());
        }
        say("building the trainer");
        build_trainer(root, &self.build)
    }

    fn profile(&self) -> &Profile {
        &self.manifests.profiles[&self.plan.profile]
    }

    /// Hash of run keys, of the manifests that decide how runs are measured, and of how they were carried out.
    fn campaign_key(&self, site: &Site) -> Result<String, FileError> {
        let mut text = site.line.clone();
        for run in &self.plan.runs {
            text.push_str(&format!("{} {}\n", run.name(), run.key()));
        }
        for (name, path) in self.manifest_files() {
            text.push_str(&format!("{} {name}\n", files::sha256_file(&self.manifests.root.join(path))?));
        }
        Ok(sha256(text.as_bytes()))
    }

    /// The manifests a result directory carries: (name there, path in the repository).
    fn manifest_files(&self) -> Vec<(String, PathBuf)> {
        let profile = self.profile();
        let mut all = vec![
            ("profile.yaml".to_owned(), Manifests::path("profiles", &profile.id)),
            ("model.yaml".to_owned(), Manifests::path("models", &profile.model)),
            ("dataset.yaml".to_owned(), Manifests::path("datasets", &profile.dataset)),
            ("tokenizer.yaml".to_owned(), Manifests::path("tokenizers", &profile.tokenizer)),
            ("hardware.yaml".to_owned(), Manifests::path("hardware", &profile.hardware)),
        ];
        all.extend(profile.papers.iter().map(|id| (format!("papers/{id}.yaml"), Manifests::path("papers", id))));
        // All arms of the profile: a partial campaign still names what it left out.
        all.extend(plan::all_arms(profile).iter().map(|id| (format!("recipes/{id}.yaml"), Manifests::path("recipes", id))));
        all.extend(evidence::files_of(&self.manifests.evidence, &profile.papers).into_iter().map(|name| {
            let path = Path::new("manifests").join(&name);
            (name, path)
        }));
        all
    }
}

/// Runs a campaign. `say` gets one line for each stage; `stop` ends it at the next safe moment.
pub fn replicate(root: &Path, request: &Request, stop: &AtomicBool, say: &dyn Fn(&str)) -> Result<Report, CampaignError> {
    if request.finished {
        return finished::put_together(root, request, say);
    }
    let manifests = Manifests::load(root)?;
    let lacks = doctor::lacks(manifests.profile(&request.profile)?, &manifests, root, request.trainer.as_deref());
    if !lacks.is_empty() {
        return Err(CampaignError::Lacks { profile: request.profile.clone(), lacks });
    }
    let mut prepared = Prepared::from_manifests(root, manifests, &request.profile, &request.selection, request.trainer.as_deref())?;
    let site = Site::new(root, &prepared, request, say)?;
    let (key, bench) = keyed(&prepared, &site, request)?;
    let memory = CampaignMemory { path: root.join("cache").join("campaigns").join(format!("{key}.json")) };
    if !request.run.fresh
        && let Some(directory) = memory.recall(&request.out, &key, root)
    {
        let verdicts = crate::judge::recompute(&directory).map_err(RenderError::from)?;
        return Ok(Report { directory, verdicts, failed: vec![], nothing_to_do: true, notes: vec![] });
    }
    let _cache_lock = lock(&root.join("cache").join("lock"))?;
    let _out_lock = lock(&request.out.join(".lock"))?;
    let mut environment = Environment::capture(root, &request.run).on(&site.gpus);
    if let Some(trainer) = &prepared.prebuilt {
        environment.prebuilt_trainer = Some(PrebuiltTrainer::new(trainer, &prepared.build));
        // Not what was asked here: this machine's compiler, if it has one, built nothing.
        (environment.toolchain.rustc, environment.toolchain.cargo) = (None, None);
    }
    let stages = || carry_out(root, &mut prepared, (request, &site), (&key, bench.as_deref()), &environment, stop, say);
    // Ctrl-C reaches cargo and trainers as well: whatever error they end with then, the answer is that someone asked to stop.
    let report = stages_or_interrupted(stages, stop)?;
    // A campaign with failed runs is not finished: the same command tries them again.
    if report.failed.is_empty() {
        memory.remember(&report.directory)?;
    }
    Ok(report)
}

/// The campaign's key, and what `kernels-bench` measured on this machine, which its report shows too: newer measurements, another report.
fn keyed(prepared: &Prepared, site: &Site, request: &Request) -> Result<(String, Option<PathBuf>), FileError> {
    let key = prepared.campaign_key(site)?;
    let Some(directory) = kernels_bench::newest(&request.out, &site.machine) else { return Ok((key, None)) };
    let bench = directory.join(kernels_bench::DOCUMENT);
    Ok((sha256(format!("{key} kernels {}\n", files::sha256_file(&bench)?).as_bytes()), Some(bench)))
}

fn stages_or_interrupted(stages: impl FnOnce() -> Result<Report, CampaignError>, stop: &AtomicBool) -> Result<Report, CampaignError> {
    stages().map_err(|error| if stop.load(Ordering::Relaxed) { CampaignError::Interrupted } else { error })
}

/// Build, data, runs, timings, result directory, report.
fn carry_out(
    root: &Path,
    prepared: &mut Prepared,
    (request, site): (&Request, &Site),
    (key, bench): (&str, Option<&Path>),
    environment: &Environment,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Report, CampaignError> {
    let trainer = site.trainer.clone().map_or_else(|| prepared.trainer(root, say), Ok)?;
    let data = data::prepare(&prepared.manifests, prepared.profile(), &trainer, say)?;
    interrupted(stop)?;
    let (count, pool) = (prepared.plan.runs.len(), site.pool(request));
    say(&format!("{count} runs: {} arms x {} seeds, {} at once", prepared.plan.arms.len(), prepared.plan.seeds.len(), pool.places.len()));
    let (cache, started) = (plan::run_cache(root), Instant::now());
    let outcomes = run::carry_out(&prepared.plan.runs, &cache, &trainer, &data, (&request.run, &pool), stop)?;
    interrupted(stop)?;
    let time_up = [pool.minutes, pool.stop_after].into_iter().flatten().any(|limit| started.elapsed() >= limit);
    whole(&prepared.plan, &outcomes, time_up)?;
    let timings = Timings {
        root,
        plan: &prepared.plan,
        profile: prepared.profile(),
        trainer: &trainer,
        data: &data,
        options: &request.run,
        place: pool.places.first().map_or("cpu", String::as_str),
        machine: &site.line,
    };
    let measured = timings.take(&outcomes, stop, say)?;
    say("judging and rendering");
    assemble(root, prepared, &outcomes, (Some(&measured), bench), (request, site), key, environment)
}

/// Every run has ended; otherwise how far it came.
fn whole(plan: &Plan, outcomes: &[Outcome], time_up: bool) -> Result<(), CampaignError> {
    let left = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Waiting | Outcome::Interrupted)).count();
    if left == 0 {
        return Ok(());
    }
    let done = outcomes.iter().filter(|outcome| outcome.finished()).count();
    Err(CampaignError::Unfinished { done, all: outcomes.len(), left, time_up, failed: failures(plan, outcomes) })
}

/// Runs that ended with an error, with their last lines.
fn failures(plan: &Plan, outcomes: &[Outcome]) -> Vec<(String, String)> {
    let failed = |(run, outcome): (&plan::PlannedRun, &Outcome)| match outcome {
        Outcome::Failed(error) => Some((run.name(), error.clone())),
        _ => None,
    };
    plan.runs.iter().zip(outcomes).filter_map(failed).collect()
}

/// What timings depend on besides the runs.
fn machine_line(options: &RunOptions) -> String {
    format!("threads {} instruction set {} on {} x {}\n", options.threads, options.instruction_set, machine::cores(), machine::cpu_model())
}

pub(crate) fn interrupted(stop: &AtomicBool) -> Result<(), CampaignError> {
    if stop.load(Ordering::Relaxed) { Err(CampaignError::Interrupted) } else { Ok(()) }
}

/// Held until dropped; a killed process drops it too.
pub(crate) fn lock(path: &Path) -> Result<File, CampaignError> {
    files::make_folder(path.parent().unwrap_or(Path::new(".")))?;
    let file = File::options().create(true).truncate(false).write(true).open(path).at(path, "open the lock")?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(CampaignError::Locked { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(FileError { path: path.to_owned(), action: "lock", source }.into()),
    }
}

/// Where the result directory of a campaign with a certain key lies, so that doing it again does nothing.
struct CampaignMemory {
    path: PathBuf,
}

impl CampaignMemory {
    /// The directory, if it is still there, whole, below `out`, and rendered from today's templates.
    fn recall(&self, out: &Path, key: &str, root: &Path) -> Option<PathBuf> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let (directory, templates) = text.split_once('\n')?;
        let directory = PathBuf::from(directory);
        let campaign: Campaign = serde_json::from_str(&std::fs::read_to_string(directory.join("campaign.json")).ok()?).ok()?;
        let here = directory.parent()?.canonicalize().ok()? == out.canonicalize().ok()?;
        let whole = directory.join("SHA256SUMS").exists() && directory.join("report.html").exists();
        let finished = campaign.runs.iter().all(|run| run.status == "finished");
        (here && whole && finished && campaign.key == key && templates == render_fingerprint(root)).then_some(directory)
    }

    fn remember(&self, directory: &Path) -> Result<(), CampaignError> {
        let directory = directory.canonicalize().at(directory, "find")?;
        let root = self.path.ancestors().nth(3).unwrap_or(Path::new("."));
        files::write(&self.path, format!("{}\n{}", directory.display(), render_fingerprint(root)).as_bytes())?;
        Ok(())
    }
}

/// Hash of the templates and of this crate's sources: when it changes, reports are rendered again, and nothing is measured again.
fn render_fingerprint(root: &Path) -> String {
    let mut listing = String::new();
    for folder in ["paper", "replication/src"] {
        for name in files::list(&root.join(folder)).unwrap_or_default() {
            listing.push_str(&files::sha256_file(&root.join(folder).join(&name)).unwrap_or_default());
        }
    }
    sha256(listing.as_bytes())
}
