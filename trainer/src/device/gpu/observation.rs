//! What observed operands went through, measured on the host by the reference. The device only gives the numbers that go in.
//!
//! Operands wait until their step is queued and are then measured side by side on the host's cores: one alone takes a good part of a
//! second. In which order they are finished does not show.

use contract::defect::First;
use contract::metrics::Quantisation;
use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule};
use kernels::gpu::{Bf16, Buffer, Gpu, Made, OperandSide, Quantiser};
use kernels::quantise::{self, Randomness, Source};
use kernels::random::Stream;
use rayon::prelude::*;

use super::machine;
use crate::choices::{Choices, SignVector};
use crate::error::TrainerError;
use crate::quantisation_error;
use crate::quantised_once::Once;
use crate::streams::{Operand, Pass, Place};

/// An operand that is to be measured.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) place: Place,
    pub(super) pass: Pass,
    pub(super) operand: Operand,
    /// What a defect quantises it as first.
    pub(super) first: Option<First>,
    pub(super) spec: OperandSpec,
    /// The source as the device holds it: `[rows, k]`, or `[k, rows]` if `transposed`.
    pub(super) bits: Vec<Bf16>,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) transposed: bool,
    pub(super) words: Option<Stream>,
    pub(super) signs: Option<SignVector>,
    /// The magnitude that a delayed scale rests on.
    pub(super) remembered: Option<f32>,
}

impl Observed {
    fn record(&self, choices: &Choices, step: u64) -> Result<Quantisation, TrainerError> {
        let values: Vec<f32> = self.bits.iter().map(|bits| f32::from_bits(u32::from(bits.0) << 16)).collect();
        let source = Source { values: &values, rows: self.rows, k: self.k, transposed: self.transposed };
        let randomness = Randomness { rounding: self.words, signs: self.signs.as_ref().map(SignVector::as_slice) };
        let once = self.first.map(|first| Once::new(first, &source)).transpose()?;
        let read = once.as_ref().map_or(source, Once::source);
        let (prepared, _) = quantise::prepare_reference(read, &self.spec, randomness, self.remembered).map_err(TrainerError::kernel)?;
        let survived = quantisation_error::measure(&source, &self.spec, randomness.signs, &quantise::dequantise(&prepared));
        let linear = choices.shapes[self.place.linear].0;
        Ok(survived.record(step, self.place.layer, linear, self.pass, self.operand, self.spec.format))
    }
}

/// Measures all, in the order given.
pub(super) fn measure(observed: &[Observed], choices: &Choices, step: u64) -> Result<Vec<Quantisation>, TrainerError> {
    observed.par_iter().map(|one| one.record(choices, step)).collect()
}

/// The first rows of a source as BF16: what is not kept is made once more.
pub(super) fn read(gpu: &Gpu, source: Made<'_>, (rows, columns): (usize, usize)) -> Result<Vec<Bf16>, TrainerError> {
    let mut bits = vec![Bf16::default(); rows * columns];
    if let Made::Stored(buffer, first) = source {
        buffer.read(first, &mut bits).map_err(machine)?;
        return Ok(bits);
    }
    const AS_IT_IS: OperandSpec =
        OperandSpec { format: Format::Bf16, block: Block::Tensor, scale: ScaleRule::None, rounding: Rounding::NearestEven, rotation: None };
    let made = gpu.buffer::<u8>(2 * bits.len()).map_err(machine)?;
    let side = OperandSide { out: Some(&made), ..OperandSide::default() };
    let quantiser = Quantiser::of_made(gpu, Some(AS_IT_IS), None).map_err(machine)?;
    quantiser.run(source, (rows, columns), side, OperandSide::default()).map_err(machine)?;
    made.part(0, bits.len()).and_then(|made: Buffer<Bf16>| made.read(0, &mut bits)).map_err(machine)?;
    Ok(bits)
}
