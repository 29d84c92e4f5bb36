//! How a command that takes long talks, with options that all such commands have.

use std::path::Path;

use clap::Args;

use super::{Command, DataCommand, RunsCommand};

#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Say nothing while at work: only the result, and what went wrong
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print the result as one JSON object, however the command ends (docs/files.md); progress still goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

impl Manner {
    /// One line of progress, unless none is wanted.
    pub(crate) fn progress(self, line: &str) {
        if !self.quiet {
            eprintln!("{line}");
        }
    }
}

impl Command {
    /// Whether it reads manifests, sources or the cache; the others only look at the files that they are given.
    pub(crate) fn needs_repository(&self) -> bool {
        !matches!(
            self,
            Self::Verify { .. }
                | Self::Compare { .. }
                | Self::Sign { .. }
                | Self::ImportMllog(_)
                | Self::ExportMllog { .. }
                | Self::ExportCrate { .. }
                | Self::Completions { .. }
                | Self::Man { .. }
                | Self::Version
        )
    }

    /// The trainer that it was told to take.
    pub(crate) fn trainer(&self) -> Option<&Path> {
        match self {
            Self::Try(options) => options.means.trainer.as_deref(),
            Self::Replicate(options) => options.means.trainer.as_deref(),
            Self::Audit(options) => options.means.trainer.as_deref(),
            Self::Runs { command: RunsCommand::Train(options) } => options.means.trainer.as_deref(),
            Self::KernelsBench(options) => options.trainer.as_deref(),
            Self::DeviceTest(options) => options.trainer.as_deref(),
            Self::Doctor { trainer } => trainer.as_deref(),
            _ => None,
        }
    }

    /// Of a command without such options the plain one.
    pub(crate) fn manner(&self) -> Manner {
        match self {
            Self::Try(options) => options.means.manner,
            Self::Replicate(options) => options.means.manner,
            Self::Audit(options) => options.means.manner,
            Self::Runs { command: RunsCommand::Train(options) } => options.means.manner,
            Self::KernelsBench(options) => options.manner,
            Self::KernelsBuild(options) => options.manner,
            Self::DeviceTest(options) => options.manner,
            Self::Verify { manner, .. } | Self::Identity { manner, .. } | Self::Dist { manner, .. } => *manner,
            Self::Data { command: DataCommand::Fetch { manner, .. } } => *manner,
            _ => Manner::default(),
        }
    }
}
