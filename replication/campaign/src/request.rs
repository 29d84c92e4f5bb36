//! What `replicate` was asked for, and what came of it.

use std::path::PathBuf;
use std::time::Duration;

use study::exit::{FAILED, MACHINE};
use study::judge::Verdicts;
use study::manifest::Manifests;
use study::plan::Selection;

use crate::error::CampaignError;
use crate::run::{Failure, RunOptions};
use crate::slurm::Slurm;
use crate::toolchain::Trainer;

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
    /// Ranks of each run; None: as many as the profile asks for and GPUs are there.
    pub ranks: Option<usize>,
    /// After so long no run is started.
    pub minutes: Option<Duration>,
    /// After so long runs write a checkpoint and end.
    pub stop_after: Option<Duration>,
    /// Keep checkpoint and weights of runs that finish on a GPU.
    pub keep_weights: bool,
    /// Time no step and no kernel after the runs; claims about times are then not run.
    pub untimed: bool,
    /// The MI355X kernels, built and executed; None: the report has nothing on them.
    pub code_objects: Option<CodeObjects>,
    /// Runs become tasks of arrays; None: they are made on this machine.
    pub slurm: Option<Slurm>,
    /// Run and measure nothing: put together what is finished.
    pub finished: bool,
    /// Folder for TensorBoard's event files of the runs that are trained.
    pub tensorboard: Option<PathBuf>,
    /// While runs are at work, a report of what is finished is made so often at most; None: never.
    pub partial_every: Option<Duration>,
    /// No bar and no lines while runs are at work.
    pub quiet: bool,
}

/// The document of the MI355X kernels (`study::code_objects`) for the tree of the manifests. The text is the hash of the trainer's sources, its
/// second key.
#[derive(Debug, Clone, Copy)]
pub struct CodeObjects {
    /// What the cache has, or what needs no time; None where it has to be made.
    pub known: fn(&Manifests, &str, Say<'_>) -> Result<Option<PathBuf>, CampaignError>,
    pub make: fn(&Manifests, &Trainer, &str, Say<'_>) -> Result<PathBuf, CampaignError>,
}

/// Gets one line for each stage.
type Say<'a> = &'a dyn Fn(&str);

#[derive(Debug)]
pub struct Report {
    pub directory: PathBuf,
    pub verdicts: Verdicts,
    /// Runs that ended with an error, and why.
    pub failed: Vec<(String, Failure)>,
    /// Nothing had to be run, measured or rendered.
    pub nothing_to_do: bool,
    /// Lines the reader should see.
    pub notes: Vec<String>,
}

impl Report {
    /// How the process ends: 4 where this machine is all that kept runs from their end, 1 where another run failed.
    pub fn exit_code(&self) -> u8 {
        exit_code(&self.failed)
    }
}

/// Of runs that ended with an error.
pub(crate) fn exit_code<'a>(failed: impl IntoIterator<Item = &'a (String, Failure)>) -> u8 {
    let machine: Vec<bool> = failed.into_iter().map(|(_, failure)| failure.machine).collect();
    match machine.as_slice() {
        [] => 0,
        all if all.iter().all(|machine| *machine) => MACHINE,
        _ => FAILED,
    }
}
