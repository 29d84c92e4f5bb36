//! How long each kind of kernel took, by the GPU's own events.

use std::sync::{Mutex, PoisonError};

use kernels::gpu::driver::Event;
use kernels::gpu::{Gpu, GpuError};

use super::super::Spending;
use super::machine;
use crate::error::TrainerError;

/// The kernels of a step between pairs of events, in the order in which they were queued.
#[derive(Debug, Default)]
pub(super) struct GpuProfile {
    spans: Mutex<Vec<(&'static str, Event, Event)>>,
}

impl GpuProfile {
    /// What was spent since the last time; waits for all of it.
    pub(super) fn take(&self, gpu: &Gpu) -> Result<Vec<Spending>, TrainerError> {
        let spans = std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all: Vec<Spending> = Vec::new();
        for (kernel, from, to) in spans {
            let seconds = gpu.driver().elapsed(from, to).map_err(machine)?;
            match all.iter_mut().find(|spending| spending.kernel == kernel) {
                Some(spending) => (spending.seconds, spending.calls) = (spending.seconds + seconds, spending.calls + 1),
                None => all.push(Spending { kernel, calls: 1, work: 0, seconds }),
            }
        }
        Ok(all)
    }

    /// Queues kernels of a kind between two events.
    pub(super) fn time<R>(&self, gpu: &Gpu, kind: &'static str, work: impl FnOnce() -> Result<R, GpuError>) -> Result<R, TrainerError> {
        let from = gpu.driver().record().map_err(machine)?;
        let result = work().map_err(machine)?;
        let to = gpu.driver().record().map_err(machine)?;
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push((kind, from, to));
        Ok(result)
    }
}
