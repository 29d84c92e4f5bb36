//! What can go wrong in a run, and which exit code says so.
//!
//! Every message says what failed, where, and what to do next. Kernels, data and export have errors of their own; they
//! arrive here with the file or key that the reader knows.

use std::fmt::Display;
use std::path::Path;

use contract::run_file::RunFileError;

/// Why a command of the trainer ended early. The variant is the exit code's meaning (docs/files.md).
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    /// A run file or an argument cannot mean anything (exit code 2).
    #[error("{0}")]
    BadInput(String),
    /// A data, tokenizer or checkpoint file is missing, wrong or truncated (exit code 3).
    #[error("{0}")]
    BadFile(String),
    /// This machine cannot do it: instruction set, memory, disk (exit code 4).
    #[error("{0}")]
    Machine(String),
    /// Another rank of the run ended early, with this exit code.
    #[error("{what}")]
    Elsewhere { code: u8, what: String },
    /// Asked to stop; a checkpoint is on disk (exit code 130).
    #[error("interrupted after step {step}; the checkpoint is written, the same command goes on from there")]
    Interrupted {
        /// Last finished step.
        step: u64,
    },
}

impl From<RunFileError> for TrainerError {
    fn from(error: RunFileError) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl TrainerError {
    /// The process exit code of docs/files.md.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadInput(_) => 2,
            Self::BadFile(_) => 3,
            Self::Machine(_) => 4,
            Self::Elsewhere { code, .. } => *code,
            Self::Interrupted { .. } => 130,
        }
    }

    /// An output file could not be written.
    pub fn write(path: &Path, source: impl Display) -> Self {
        Self::Machine(format!(
            "{}: cannot write: {source}; check free space and permissions, then run the same command again",
            path.display()
        ))
    }

    /// An input file could not be read.
    pub fn read(path: &Path, source: impl Display) -> Self {
        Self::BadFile(format!("{}: cannot read: {source}", path.display()))
    }

    /// A kernel refused its arguments: the run file passed its checks but should not have.
    pub fn kernel(source: impl Display) -> Self {
        Self::BadInput(format!(
            "a kernel refused the shapes of this run: {source}; this run file should have been refused earlier, please report it"
        ))
    }
}
