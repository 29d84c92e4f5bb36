//! The clock model's figures for `kernels-bench`: those that `kernels-build` prints, beside what is measured. All of it is modelled.

use std::path::Path;

use contract::device::{DeviceKind, GpuFacts};
use gfx950_clock::machine::HERTZ;
use study::kernels::{ClockModel, GpuBench, Missing, NotRun};
use study::manifest::{ManifestError, Manifests};

use crate::kernels_build::{BuildError, modelled_clocks};

/// Whether the model is of this GPU's kernels, or of those that this interpreter executes.
pub(super) fn is_of(gpu: &GpuFacts) -> bool {
    gpu.architecture.as_deref().is_some_and(ClockModel::is_of)
}

/// Compiles the kernels and plays them: seconds.
///
/// # Errors
/// No sources (a packed folder), no clang 22, a kernel that the model cannot play, or no manifest of the hardware.
pub(super) fn clock_model(root: &Path, manifests: &Manifests) -> Result<ClockModel, BuildError> {
    let peaks = manifests.hardware.values().find(|hardware| hardware.device == DeviceKind::Hip).and_then(|hardware| hardware.peaks.clone());
    let peaks = peaks.ok_or_else(|| ManifestError::new(Path::new("manifests/hardware"), "no device of hip has peaks".to_owned()))?;
    let (compiler, modelled) = modelled_clocks(root, ClockModel::ARCHITECTURE)?;
    Ok(ClockModel { compiler, hertz: HERTZ, peaks, modelled })
}

/// Says why there are no modelled figures, where they would stand.
pub(super) fn lack(why: &str, gpus: &mut [GpuBench], not_run: &mut [NotRun]) {
    for gpu in gpus.iter_mut().filter(|gpu| ClockModel::is_of(&gpu.architecture)) {
        let (peer, name) = ("the clock model".to_owned(), "modelled clocks".to_owned());
        gpu.missing.push(Missing { peer, name, reason: why.to_owned(), install: String::new() });
    }
    for row in not_run.iter_mut().filter(|row| row.device == DeviceKind::Hip.word()) {
        row.needs += &format!(". No modelled figures: {why}");
    }
}
