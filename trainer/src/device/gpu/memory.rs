//! Whether a run fits what is free on a GPU, and how it keeps things there; one that does not fit is told so before it starts.

use contract::memory::{self, MemoryReport, Ways};
use contract::native::Native;
use contract::run_file::RunFile;
use contract::text::GIB;
use kernels::gpu::Gpu;

use super::device_id;
use crate::error::TrainerError;

/// What of that which could be made again is kept. Results are the same bits either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All of it, if it fits.
    WhatFits,
    Least,
}

/// What `trainer memory` says of a micro-batch on a GPU, which is one of so many ranks'.
pub fn report(run: &RunFile, gpu: &Gpu, ranks: usize) -> Result<MemoryReport, TrainerError> {
    let (free, total) = gpu.driver().memory().map_err(super::machine)?;
    Ok(MemoryReport::new(run, (device_id(gpu), gpu.description().has_mxfp4), ranks, Some(total), Some(free)))
}

/// How a run is done in what is free on the GPU: with everything kept that makes a step faster, or else with the least memory.
///
/// # Errors
/// [`TrainerError::Machine`] if that does not fit either, with how much is needed, how much is there, and which keys lower it.
pub(super) fn choose(run: &RunFile, native: Native, keep: Keep, gpu: &Gpu, ranks: usize) -> Result<Ways, TrainerError> {
    let mut report = report(run, gpu, ranks)?;
    if keep == Keep::Least {
        report.ways.drain(..report.ways.len() - 1);
    }
    let free = report.free_bytes.unwrap_or_default();
    if let Some(keeps) = memory::choose(&report.ways, free) {
        return Ok(Ways::new(run, native, keeps));
    }
    let gib = |bytes: u64| bytes as f64 / GIB;
    Err(TrainerError::Machine(format!(
        "this run needs {:.1} GiB on the GPU, {} has {:.1} free of {:.1}; raise batch.accumulation ({} sequences are computed at once now), lower model.sequence_length, use a smaller model, more ranks, or another GPU",
        gib(report.ways.last().map_or(0, |least| least.bytes)),
        gpu.description().name,
        gib(free),
        gib(report.total_bytes.unwrap_or_default()),
        run.batch.sequences
    )))
}
