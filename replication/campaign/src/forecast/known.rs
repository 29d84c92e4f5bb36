//! What was measured on GPUs, here or committed.

use std::path::Path;

use super::finished::{FinishedRun, finished_runs};
use super::measured::{MeasuredStep, measured_steps};

/// Steps of any model, and runs of one profile.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub steps: Vec<MeasuredStep>,
    pub runs: Vec<FinishedRun>,
}

impl Known {
    /// What there is below `root` for a profile.
    pub fn of(root: &Path, profile: &str) -> Self {
        Self { steps: measured_steps(&root.join("results")), runs: finished_runs(root, profile) }
    }
}
