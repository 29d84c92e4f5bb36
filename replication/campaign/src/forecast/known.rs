//! What was measured on GPUs, here or committed.

use contract::device::DeviceKind;
use study::manifest::{Manifests, Profile};

use super::finished::{FinishedRun, finished_runs};
use super::measured::{MeasuredStep, measured_steps};

/// Steps of any model, and runs of one profile.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub steps: Vec<MeasuredStep>,
    pub runs: Vec<FinishedRun>,
}

impl Known {
    /// What there is for a profile below the manifests' root. Nothing is predicted of a CPU, so nothing is read for one.
    pub fn of(manifests: &Manifests, profile: &Profile) -> Self {
        if manifests.hardware[&profile.hardware].device == DeviceKind::Cpu {
            return Self::default();
        }
        let root = &manifests.root;
        Self { steps: measured_steps(&root.join("results")), runs: finished_runs(root, &profile.id) }
    }
}
