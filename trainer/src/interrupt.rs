//! Ctrl-C and SIGTERM become a flag that the run reads between steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::TrainerError;

/// Whether someone asked the run to stop. Cheap to clone; all clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that SIGINT, SIGTERM and SIGHUP raise. To be called once in a process.
    pub fn install() -> Result<Self, TrainerError> {
        let interrupt = Self::default();
        let raised = interrupt.clone();
        ctrlc::set_handler(move || raised.raise()).map_err(|source| TrainerError::Machine(format!("cannot watch for Ctrl-C: {source}")))?;
        Ok(interrupt)
    }

    /// Asks the run to stop after its current step.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
