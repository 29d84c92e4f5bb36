//! Options of the commands that make runs.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::code_objects;
use campaign::emit::Engine;
use campaign::error::CampaignError;
use campaign::machine;
use campaign::request::{CodeObjects, Request};
use campaign::run::RunOptions;
use campaign::slices::Slice;
use campaign::slurm::Slurm;
use clap::{Args, ValueEnum};
use contract::run_file::Gemm;
use study::manifest::{Manifests, Profile};
use study::plan::Selection;

use super::{Manner, positive};

#[derive(Args)]
pub(crate) struct Replicate {
    /// Which profile to run: `cargo xtask list` names them
    #[arg(long, default_value = "cpu")]
    profile: String,
    /// Only the arms that this paper's claims need (arXiv id)
    #[arg(long)]
    paper: Option<String>,
    /// Only these claims, arms or groups, with the arms they are compared with; comma-separated
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// So many seeds an arm instead of the profile's
    #[arg(long, value_parser = positive)]
    seeds: Option<usize>,
    /// Only these arms, without those they are compared with: a slice of a campaign
    #[arg(long, value_name = "ARM,ARM", value_delimiter = ',')]
    only_arms: Vec<String>,
    /// Only these seeds: a slice of a campaign
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    only_seeds: Vec<u64>,
    #[command(flatten)]
    time: Time,
    /// Whose kernels multiply packed MXFP4, for a profile of hip: own (ours) or hipblaslt (AMD's library). Sums have another order, so these are
    /// other runs
    #[arg(long, value_name = "own|hipblaslt", default_value = "own", hide_default_value = true)]
    gemm: Gemm,
    /// Keep checkpoint and weights of runs that finish on a GPU (on the CPU they are always kept)
    #[arg(long)]
    keep_weights: bool,
    /// Also write event files for TensorBoard of the runs that are trained, in FOLDER/PROFILE/ARM/SEED; changes no result
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "target/tensorboard")]
    tensorboard: Option<PathBuf>,
    /// While runs are at work, make a report of those that are finished every so many minutes at most, in cache/partial; 0: none
    #[arg(long, value_name = "N", value_parser = minutes, default_value = PARTIAL_EVERY)]
    partial_every: Duration,
    /// Measure nothing after the runs, neither times nor rotations: for a slice whose report is put together elsewhere
    #[arg(long)]
    untimed: bool,
    /// Forget finished runs and measurements of this campaign and do them again
    #[arg(long)]
    fresh: bool,
    /// Run and measure nothing: judge and render the runs that are finished, on any machine
    #[arg(long, conflicts_with_all = ["fresh", "minutes", "stop_after"])]
    finished: bool,
    /// Say what would be run and what is lacking; run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Say why a run (arm/seed) would be run or reused; run nothing
    #[arg(long, value_name = "RUN")]
    pub(crate) why: Option<String>,
    /// Where result directories go [default: results]
    #[arg(long)]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) means: Means,
    /// Make each run a task there. slurm: arrays on nodes that see this folder, followed to the report; after `--` options of sbatch. The others
    /// need `--emit`
    #[arg(long, value_enum, conflicts_with_all = ["gpus", "parallel", "minutes", "stop_after", "finished"])]
    pub(crate) on: Option<On>,
    /// Only write the files, and say how to submit them; `cargo xtask runs import DIR` takes in what they made
    #[arg(long, value_name = "DIR", requires = "on", required_if_eq_any([("on", "hyperqueue"), ("on", "kubernetes"), ("on", "skypilot")]))]
    pub(crate) emit: Option<PathBuf>,
    /// Options of sbatch, which count more than ours: --partition, --account, --time, ...
    #[arg(last = true, value_name = "SBATCH OPTIONS", requires = "on", conflicts_with = "emit")]
    options: Vec<String>,
}

/// How long runs are made.
#[derive(Args)]
struct Time {
    /// Start no run after so many minutes; those at work go on to their end. Exit code 5 when runs are left
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Option<Duration>,
    /// After so many minutes runs at work write a checkpoint and end. Exit code 5 when runs are left
    #[arg(long, value_name = "N", value_parser = minutes)]
    stop_after: Option<Duration>,
}

/// Runs of several profiles.
#[derive(Args)]
pub(crate) struct Train {
    /// PROFILE, PROFILE:ARM,ARM, PROFILE@SEED,SEED or PROFILE:ARM,ARM@SEED,SEED
    #[arg(required = true, value_name = "SLICE")]
    pub(crate) slices: Vec<Slice>,
    /// Say what would be made, how long it would take and what is lacking; make nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    time: Time,
    #[command(flatten)]
    pub(crate) means: Means,
}

impl Train {
    /// The same, as `campaign` takes it; slices name the profiles.
    pub(crate) fn request(&self, root: &Path) -> Request {
        Request { minutes: self.time.minutes, stop_after: self.time.stop_after, ..self.means.request(root, "") }
    }
}

/// Where runs are made, if not here.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum On {
    Slurm,
    Hyperqueue,
    Kubernetes,
    Skypilot,
}

impl From<On> for Engine {
    fn from(on: On) -> Self {
        match on {
            On::Slurm => Self::Slurm,
            On::Hyperqueue => Self::HyperQueue,
            On::Kubernetes => Self::Kubernetes,
            On::Skypilot => Self::SkyPilot,
        }
    }
}

/// With what runs are made.
#[derive(Args)]
pub(crate) struct Means {
    /// Numbers of the GPUs to use; a run is at work on one or, with several ranks, on as many [default: all that can be used]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    gpus: Option<Vec<usize>>,
    /// A trainer that was built elsewhere (`cargo xtask pack`) [default: the packed one, else it is built]
    #[arg(long)]
    pub(crate) trainer: Option<PathBuf>,
    /// Name of this machine in names of results, where there are some [default: from its processor]
    #[arg(long)]
    machine: Option<String>,
    /// Threads of each trainer; changes no result
    #[arg(long, default_value = "1", value_parser = positive)]
    threads_per_run: usize,
    /// Ranks of each run, each a process with a GPU of its own, or on the CPU [default: as many GPUs as the profile asks for and are there];
    /// changes no result
    #[arg(long, value_name = "N", value_parser = positive)]
    ranks_per_run: Option<usize>,
    /// Runs at once on the CPU [default: cores / (threads x ranks per run)]; changes no result
    #[arg(long, value_parser = positive)]
    parallel: Option<usize>,
    /// auto, scalar, avx2, avx-vnni, avx512, avx512-bf16, amx, neon or neon-dot; changes no result
    #[arg(long, default_value = "auto", value_parser = ["auto", "scalar", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx", "neon", "neon-dot"])]
    instruction_set: String,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

impl Means {
    /// `--gpus` is for profiles of GPUs.
    pub(crate) fn check_gpus(&self, profile: &Profile, manifests: &Manifests) -> Result<(), CampaignError> {
        if self.gpus.is_none() || manifests.hardware[&profile.hardware].device.word() != "cpu" {
            return Ok(());
        }
        let line = "--gpus: this profile is for cpu; `cargo xtask list` names the profiles of each device".to_owned();
        Err(CampaignError::Lacks { profile: profile.id.to_string(), lacks: vec![line] })
    }

    /// A request for all of a profile, results below results/.
    fn request(&self, root: &Path, profile: &str) -> Request {
        let threads = self.threads_per_run.saturating_mul(self.ranks_per_run.unwrap_or(1));
        let parallel = self.parallel.unwrap_or_else(|| (machine::cores() / threads).max(1));
        Request {
            profile: profile.to_owned(),
            selection: Selection::default(),
            run: RunOptions { parallel, threads: self.threads_per_run, instruction_set: self.instruction_set.clone(), fresh: false },
            out: root.join("results"),
            machine: self.machine.as_deref().map(study::machine::tidy),
            trainer: self.trainer.clone(),
            gpus: self.gpus.clone(),
            ranks: self.ranks_per_run,
            minutes: None,
            stop_after: None,
            keep_weights: false,
            untimed: false,
            code_objects: None,
            finished: false,
            slurm: None,
            tensorboard: None,
            partial_every: minutes(PARTIAL_EVERY).ok(),
            quiet: self.manner.quiet,
        }
    }
}

#[derive(Args)]
pub(crate) struct Try {
    /// A recipe, wherever it lies
    #[arg(value_name = "RECIPE.yaml")]
    pub(crate) recipe: PathBuf,
    /// Beside the arms of this profile, on its model and data: `cargo xtask list` names them
    #[arg(long, default_value = "cpu")]
    pub(crate) profile: String,
    /// So many seeds an arm instead of the profile's
    #[arg(long, value_parser = positive)]
    seeds: Option<usize>,
    /// Where result directories go [default: target/try]
    #[arg(long)]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) means: Means,
}

impl Try {
    /// The same, as `campaign` takes it, for these arms.
    pub(crate) fn request(&self, root: &Path, arms: Vec<String>) -> Request {
        Request {
            selection: Selection { seeds: self.seeds, only_arms: arms, ..Selection::default() },
            out: self.out.clone().unwrap_or_else(|| root.join("target").join("try")),
            untimed: true,
            ..self.means.request(root, &self.profile)
        }
    }
}

#[derive(Args)]
pub(crate) struct Audit {
    /// A result directory of `replicate`
    pub(crate) directory: PathBuf,
    /// How many of its finished runs to make again
    #[arg(long, default_value = "8", value_parser = positive)]
    runs: usize,
    /// Draw the runs that an earlier audit drew [default: another number each time, printed]
    #[arg(long, value_name = "N")]
    draw_seed: Option<u64>,
    #[command(flatten)]
    pub(crate) means: Means,
}

impl Audit {
    /// How many runs, and what draws them.
    pub(crate) fn draw(&self) -> (usize, u64) {
        let any = || RandomState::new().build_hasher().finish() % 1_000_000;
        (self.runs, self.draw_seed.unwrap_or_else(any))
    }

    /// The same, as `campaign` takes it; the directory names the profile.
    pub(crate) fn request(&self, root: &Path) -> Request {
        self.means.request(root, "")
    }
}

/// Minutes between reports of what is finished, where nothing else is said.
const PARTIAL_EVERY: &str = "10";

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|minutes: &f64| *minutes >= 0.0 && *minutes < 1e6);
    minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes)).ok_or_else(|| "must be a number of minutes".to_owned())
}

impl Replicate {
    /// The same, as `campaign` takes it.
    pub(crate) fn request(&self, root: &Path) -> Request {
        let request = self.means.request(root, &self.profile);
        Request {
            selection: Selection {
                paper: self.paper.clone(),
                only: self.only.clone(),
                seeds: self.seeds,
                only_arms: self.only_arms.clone(),
                only_seeds: self.only_seeds.clone(),
                gemm: self.gemm,
            },
            run: RunOptions { fresh: self.fresh, ..request.run },
            out: self.out.clone().unwrap_or(request.out),
            minutes: self.time.minutes,
            stop_after: self.time.stop_after,
            keep_weights: self.keep_weights,
            // Trainers are started elsewhere.
            tensorboard: self.tensorboard.as_ref().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone())),
            partial_every: Some(self.partial_every).filter(|every| !every.is_zero()),
            untimed: self.untimed,
            finished: self.finished,
            slurm: self.on.map(|_| Slurm { options: self.options.clone(), ..Slurm::default() }),
            code_objects: Some(CodeObjects { known: code_objects::known, make: code_objects::document }),
            ..request
        }
    }
}
