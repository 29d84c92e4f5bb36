//! Between the two quantisations of an operand that a defect quantises twice (`contract::defect`): the values of its first codes.

use contract::defect::First;
use kernels::quantise::{self, Randomness, Source};

use crate::error::TrainerError;

/// A source that was quantised once, to be prepared in its place.
#[derive(Debug)]
pub(crate) struct Once {
    values: Vec<f32>,
    rows: usize,
    k: usize,
    transposed: bool,
}

impl Once {
    /// By the scalar reference: slow, and only a defect waits for it.
    pub(crate) fn new(first: First, source: &Source<'_>) -> Result<Self, TrainerError> {
        let Source { rows, k, transposed, .. } = *source;
        // Along the other axis rows and contraction axis change places, and so does which of them is the slow one in memory.
        let read = if first.is_turned { Source { rows: k, k: rows, transposed: !transposed, ..*source } } else { *source };
        let (prepared, _) = quantise::prepare_reference(read, &first.spec, Randomness::default(), None).map_err(TrainerError::kernel)?;
        Ok(Self { values: quantise::dequantise(&prepared), rows, k, transposed: first.is_turned })
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source { values: &self.values, rows: self.rows, k: self.k, transposed: self.transposed }
    }
}
