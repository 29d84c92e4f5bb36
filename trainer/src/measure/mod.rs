//! Measurements outside a run: step time, kernel time, and the rotation identity. Each prints JSON lines and keeps nothing.

mod gpu;
mod kernel_time;
mod rotation_identity;
mod shapes;
mod step_time;

use std::io::Write;

use serde::Serialize;

use crate::error::TrainerError;

pub use gpu::kernel_time_on_gpu;
pub use kernel_time::kernel_time;
pub use rotation_identity::rotation_identity;
pub use step_time::{StepTime, step_time};

pub(crate) fn print(out: &mut impl Write, line: &impl Serialize) -> Result<(), TrainerError> {
    let failed = |source: &dyn std::fmt::Display| TrainerError::Machine(format!("cannot write to standard output: {source}"));
    let text = serde_json::to_string(line).map_err(|source| failed(&source))?;
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|source| failed(&source))
}
