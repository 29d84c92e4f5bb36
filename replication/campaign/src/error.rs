//! Why a campaign did not end with a report, and the flag that ends one early.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use study::exit::{ExitCode, MACHINE, TIME_UP};
use study::files::FileError;
use study::folder::LockError;
use study::manifest::ManifestError;
use study::provenance::ProvenanceError;
use study::record::RecordError;
use study::render::RenderError;
use study::synthesis::SynthesisError;

use crate::data::DataError;
use crate::run::{Failure, RunError};
use crate::toolchain::ToolError;

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
    Synthesis(#[from] SynthesisError),
    #[error(transparent)]
    Provenance(#[from] ProvenanceError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The machine lacks what the profile needs.
    #[error("profile {profile} cannot run here:\n{}", .lacks.iter().map(|line| format!("  - {line}")).collect::<Vec<_>>().join("\n"))]
    Lacks {
        profile: String,
        /// One line each.
        lacks: Vec<String>,
    },
    /// A launcher started this process as one of several.
    #[error("{0}")]
    OneOfSeveral(String),
    /// Slurm is not here, refuses, or would never start what was asked for.
    #[error("{0}")]
    Slurm(String),
    /// The time was up, or no device was left.
    #[error("{done} of {all} runs are finished, {left} are left: {}; what is finished and every checkpoint is kept, and the same command goes on (also elsewhere: `cargo xtask runs export`, `import`); `replicate --finished` reports what is there{}", if *.time_up { "the time was up" } else { "no device was left" }, .failed.iter().map(|(run, failure)| format!("\nFAILED {run}: {}", failure.said)).collect::<String>())]
    Unfinished {
        done: usize,
        all: usize,
        /// Runs neither finished nor failed.
        left: usize,
        /// The time was up; otherwise no device was left.
        time_up: bool,
        /// Runs that ended with an error, and why.
        failed: Vec<(String, Failure)>,
    },
    /// There is nothing to put together.
    #[error(
        "none of the {all} runs of profile {profile} that this would show is finished here; runs of other machines come with `cargo xtask runs import`, and `--why ARM/SEED` says what changed since an earlier run"
    )]
    NothingFinished { profile: String, all: usize },
    /// Runs were to be taken from where none are.
    #[error(
        "{}: holds no run; name a folder that `cargo xtask runs export` or `--emit` wrote, a result directory, or the folder cache/runs of another copy",
        .folder.display()
    )]
    NoRuns { folder: PathBuf },
    #[error("interrupted; finished runs and checkpoints are kept: run the same command again to go on")]
    Interrupted,
}

impl ExitCode for CampaignError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Manifest(_) | Self::OneOfSeveral(_) => 2,
            Self::Record(error) => error.exit_code(),
            Self::Data(error) | Self::Run(RunError::Data(error)) => error.exit_code(),
            Self::File(error)
            | Self::Run(RunError::File(error))
            | Self::Provenance(ProvenanceError::File(error))
            | Self::Lock(LockError::File(error))
            | Self::Tool(ToolError::File(error)) => error.exit_code(),
            Self::Provenance(_) | Self::NothingFinished { .. } | Self::NoRuns { .. } | Self::Tool(ToolError::NoTrainer { .. }) => 3,
            Self::Tool(ToolError::Unidentified { .. } | ToolError::NoSources { .. }) => 2,
            // No process or thread is to be had.
            Self::Tool(ToolError::Start { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => MACHINE,
            // The trainer's own codes mean the same.
            Self::Tool(ToolError::Failed { code: Some(code), .. }) if *code == i32::from(MACHINE) => MACHINE,
            Self::Lacks { .. } | Self::Slurm(_) | Self::Unfinished { time_up: false, .. } => 4,
            Self::Unfinished { .. } => TIME_UP,
            Self::Interrupted => 130,
            Self::Render(error) => error.exit_code(),
            Self::Synthesis(error) => error.exit_code(),
            Self::Tool(_) | Self::Lock(LockError::Held { .. }) => 1,
        }
    }
}

/// An error once someone has asked to stop.
pub fn interrupted(stop: &AtomicBool) -> Result<(), CampaignError> {
    if stop.load(Ordering::Relaxed) { Err(CampaignError::Interrupted) } else { Ok(()) }
}
