//! From an F32 matrix to one GEMM operand: source rounding, rotation, shared scales, elements. The scalar reference.
//!
//! An operand is logically `[rows, k]`, k being the contraction axis. `crate::cpu` prepares the same bits faster; this file is what
//! it is tested against. The order of operations, each in F32, is part of the definition:
//! 1. every format but F32: round the source to BF16, because every device's kernel reads BF16;
//! 2. sign flips, then Hadamard blocks along k (`crate::hadamard`);
//! 3. one E8M0 scale per block (`format::e8m0::scale_byte`), or one F32 scale for the tensor (largest finite value / largest magnitude);
//! 4. each element: scale, round (`format`), with one random word per logical index `row * k + column` where rounding is stochastic.
//!
//! A block that holds a NaN or an infinity becomes scale 255 with zero codes: a NaN block, so that a diverged run shows.
//! The last block of a row is padded with zeros when 32 does not divide k; blocks never cross rows.

mod error_metrics;

pub use error_metrics::{BlockRatios, ErrorMetrics, block_ratios, error_metrics};

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule, SpecError};

use crate::format::e2m1::{DOUBLED, E2M1};
use crate::format::e4m3::E4M3;
use crate::format::e5m2::E5M2;
use crate::format::{MiniFloat, bf16, e8m0};
use crate::hadamard::rotate_rows;
use crate::random::Stream;

/// Elements that share one scale along the contraction axis.
pub const BLOCK: usize = 32;

/// The factor before stochastic-prescaled rounding.
pub const PRESCALE: f32 = 0.75;

/// What a product is multiplied by for each prescaled operand: 4/3 rounded to F32.
pub const PRESCALE_CORRECTION: f32 = 4.0 / 3.0;

/// A matrix to prepare, as it lies in memory.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// `[rows, k]` row-major, or `[k, rows]` when `transposed`.
    pub values: &'a [f32],
    /// Rows of the operand.
    pub rows: usize,
    /// Length of the contraction axis.
    pub k: usize,
    /// Whether the contraction axis is the slow one in memory.
    pub transposed: bool,
}

impl Source<'_> {
    /// The element at logical row and column.
    #[inline]
    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.values[if self.transposed { column * self.rows + row } else { row * self.k + column }]
    }
}

/// The random inputs of one operand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Randomness<'a> {
    pub rounding: Option<Stream>,
    /// Signs for a randomized rotation, as many as the rotation's size.
    pub signs: Option<&'a [f32]>,
}

/// An operand ready for a GEMM.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// E2M1 codes with E8M0 scales: multiplied as integers when the other operand is the same.
    Mxfp4(Mxfp4),
    /// Anything else: element values in F32.
    Float(Float),
}

/// E2M1 codes and their scales.
#[derive(Debug, Clone, PartialEq)]
pub struct Mxfp4 {
    pub rows: usize,
    pub k: usize,
    /// Blocks per row, ceil(k / 32).
    pub blocks: usize,
    /// `[rows, blocks * 16]`, two codes a byte, the low nibble being the even column; padding is zero.
    pub codes: Vec<u8>,
    /// `[rows, blocks]`, E8M0.
    pub scales: Vec<u8>,
    /// What a product with this operand is multiplied by: 1, or 4/3 after prescaled rounding.
    pub multiplier: f32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Float {
    pub rows: usize,
    pub k: usize,
    /// `[rows, k]`; block-scaled formats are already multiplied by their scales.
    pub values: Vec<f32>,
    /// What a product with this operand is multiplied by: the inverse tensor scale, the prescale's correction, or 1.
    pub scale: f32,
}

impl Prepared {
    /// Rows of the operand.
    pub fn rows(&self) -> usize {
        match self {
            Self::Mxfp4(m) => m.rows,
            Self::Float(f) => f.rows,
        }
    }

    /// Length of its contraction axis.
    pub fn k(&self) -> usize {
        match self {
            Self::Mxfp4(m) => m.k,
            Self::Float(f) => f.k,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PreparedStats {
    /// Largest magnitude after rotation (NaN if any element is): what delayed scaling remembers.
    pub amax: f32,
}

/// Why an operand could not be prepared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PrepareError {
    /// The specification makes no sense, alone or for this shape.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The slice is not rows x k.
    #[error("the source has {found} elements where {rows} rows of {k} were announced")]
    Length {
        /// Rows announced.
        rows: usize,
        k: usize,
        /// Elements there.
        found: usize,
    },
    /// Stochastic rounding without words, or a randomized rotation without (enough) signs.
    #[error("{0}")]
    Randomness(&'static str),
}

/// Checks shape, specification and random inputs; shared by the reference and the fast paths.
pub fn check(source: &Source<'_>, spec: &OperandSpec, randomness: &Randomness<'_>) -> Result<(), PrepareError> {
    if source.rows.checked_mul(source.k) != Some(source.values.len()) {
        return Err(PrepareError::Length { rows: source.rows, k: source.k, found: source.values.len() });
    }
    spec.validate(source.k)?;
    if spec.rounding != Rounding::NearestEven && spec.format != Format::F32 && randomness.rounding.is_none() {
        return Err(PrepareError::Randomness("stochastic rounding needs a stream of random words"));
    }
    if let Some(rotation) = spec.rotation {
        let given = randomness.signs.map_or(0, <[f32]>::len);
        if rotation.signs != contract::recipe::Signs::None && given != rotation.size {
            return Err(PrepareError::Randomness("a randomized rotation needs as many signs as its size"));
        }
    }
    Ok(())
}

/// The scalar truth. `delayed_amax` is the largest magnitude to scale by when the scale rule is `Delayed` (None on the first
/// step: the operand's own).
pub fn prepare_reference(
    source: Source<'_>,
    spec: &OperandSpec,
    randomness: Randomness<'_>,
    delayed_amax: Option<f32>,
) -> Result<(Prepared, PreparedStats), PrepareError> {
    check(&source, spec, &randomness)?;
    let values = rotated(&source, spec, randomness.signs);
    let stats = PreparedStats { amax: f32::from_bits(largest_bits(&values)) };
    let (rows, k) = (source.rows, source.k);
    let prepared = match (mini_float(spec.format), spec.block) {
        (None, _) => Prepared::Float(unscaled(values, rows, k, spec, randomness.rounding)),
        (Some(format), Block::Tensor) => {
            let amax = if spec.scale == ScaleRule::Delayed { delayed_amax.unwrap_or(stats.amax) } else { stats.amax };
            Prepared::Float(tensor_scaled(values, rows, k, spec, &format, randomness.rounding, amax))
        }
        (Some(format), _) => block_scaled(&values, rows, k, spec, &format, randomness.rounding),
    };
    Ok((prepared, stats))
}

/// The source after steps 1 and 2: `[rows, k]`, rounded to BF16 (except for F32) and rotated. This is what gets quantised.
pub fn rotated(source: &Source<'_>, spec: &OperandSpec, signs: Option<&[f32]>) -> Vec<f32> {
    let round = |value| if spec.format == Format::F32 { value } else { bf16::round(value) };
    let (rows, k) = (source.rows, source.k);
    let mut values = vec![0.0; rows * k];
    // Squares, of which every line is in the cache whichever way they are stored.
    const SQUARE: usize = 16;
    for (row, column) in (0..rows).step_by(SQUARE).flat_map(|row| (0..k).step_by(SQUARE).map(move |column| (row, column))) {
        for row in row..rows.min(row + SQUARE) {
            for column in column..k.min(column + SQUARE) {
                values[row * k + column] = round(source.at(row, column));
            }
        }
    }
    if let Some(rotation) = spec.rotation {
        let signs = if rotation.signs == contract::recipe::Signs::None { None } else { signs };
        rotate_rows(&mut values, rotation.size, signs);
    }
    values
}

/// The constants of a format with at most 8 bits.
pub fn mini_float(format: Format) -> Option<MiniFloat> {
    match format {
        Format::E2m1 => Some(E2M1),
        Format::E4m3 => Some(E4M3),
        Format::E5m2 => Some(E5M2),
        Format::Bf16 | Format::F32 => None,
    }
}

/// The F32 scale of a tensor and its inverse: largest / amax and 1 / that; 1 and 1 for an all-zero tensor; NaN when amax is not finite.
pub fn tensor_scale(amax: f32, format: &MiniFloat) -> (f32, f32) {
    if amax == 0.0 {
        return (1.0, 1.0);
    }
    if !amax.is_finite() {
        return (f32::NAN, f32::NAN);
    }
    // A tiny amax would give an infinite scale: the largest power of two keeps both it and its inverse normal.
    let scale = (format.largest / amax).min(f32::from_bits(253 << 23));
    (scale, 1.0 / scale)
}

/// The pattern of the largest magnitude; NaNs are larger than infinity.
fn largest_bits(values: &[f32]) -> u32 {
    values.iter().map(|value| value.abs().to_bits()).max().unwrap_or(0)
}

fn encode(format: &MiniFloat, value: f32, rounding: Rounding, stream: Option<Stream>, index: usize) -> u8 {
    let word = |stream: Stream| stream.word(index as u64);
    match (rounding, stream) {
        (Rounding::Stochastic, Some(stream)) => format.encode_stochastic(value, word(stream)),
        (Rounding::StochasticPrescaled, Some(stream)) => format.encode_stochastic(value * PRESCALE, word(stream)),
        _ => format.encode(value),
    }
}

fn correction(rounding: Rounding) -> f32 {
    if rounding == Rounding::StochasticPrescaled { PRESCALE_CORRECTION } else { 1.0 }
}

fn unscaled(mut values: Vec<f32>, rows: usize, k: usize, spec: &OperandSpec, stream: Option<Stream>) -> Float {
    if spec.format == Format::Bf16 {
        for (index, value) in values.iter_mut().enumerate() {
            *value = match (spec.rounding, stream) {
                (Rounding::NearestEven, _) | (_, None) => bf16::round(*value),
                (_, Some(stream)) => bf16::decode(bf16::encode_stochastic(*value, stream.word(index as u64))),
            };
        }
    }
    Float { rows, k, values, scale: 1.0 }
}

fn tensor_scaled(
    mut values: Vec<f32>,
    rows: usize,
    k: usize,
    spec: &OperandSpec,
    format: &MiniFloat,
    stream: Option<Stream>,
    amax: f32,
) -> Float {
    let (scale, inverse) = tensor_scale(amax, format);
    for (index, value) in values.iter_mut().enumerate() {
        *value = format.decode(encode(format, *value * scale, spec.rounding, stream, index));
    }
    Float { rows, k, values, scale: inverse * correction(spec.rounding) }
}

fn block_scaled(values: &[f32], rows: usize, k: usize, spec: &OperandSpec, format: &MiniFloat, stream: Option<Stream>) -> Prepared {
    let blocks = k.div_ceil(BLOCK);
    let scales = block_scales(values, rows, k, spec, format);
    let mut codes = vec![0u8; rows * blocks * BLOCK / 2];
    let mut decoded = if spec.format == Format::E2m1 { Vec::new() } else { vec![0.0; rows * k] };
    for row in 0..rows {
        for column in 0..k {
            let byte = scales[row * blocks + column / BLOCK];
            let index = row * k + column;
            if spec.format != Format::E2m1 {
                let code = encode(format, values[index] * e8m0::reciprocal(byte), spec.rounding, stream, index);
                decoded[index] = format.decode(code) * e8m0::decode(byte);
            } else if byte != e8m0::NAN {
                let code = encode(format, values[index] * e8m0::reciprocal(byte), spec.rounding, stream, index);
                codes[row * blocks * BLOCK / 2 + column / 2] |= code << (4 * (column % 2));
            }
        }
    }
    let multiplier = correction(spec.rounding);
    if spec.format == Format::E2m1 {
        Prepared::Mxfp4(Mxfp4 { rows, k, blocks, codes, scales, multiplier })
    } else {
        Prepared::Float(Float { rows, k, values: decoded, scale: multiplier })
    }
}

/// One byte for every row and block; 32x32 tiles repeat theirs in each of their rows.
fn block_scales(values: &[f32], rows: usize, k: usize, spec: &OperandSpec, format: &MiniFloat) -> Vec<u8> {
    let blocks = k.div_ceil(BLOCK);
    let height = if spec.block == Block::Tile32 { BLOCK } else { 1 };
    let mut scales = vec![0; rows * blocks];
    for top in (0..rows).step_by(height) {
        let tile_rows = top..rows.min(top + height);
        for block in 0..blocks {
            let columns = block * BLOCK..k.min((block + 1) * BLOCK);
            let largest = tile_rows.clone().map(|row| largest_bits(&values[row * k..][columns.clone()])).max().unwrap_or(0);
            let byte = e8m0::scale_byte(largest, spec.scale, format);
            for row in tile_rows.clone() {
                scales[row * blocks + block] = byte;
            }
        }
    }
    scales
}

/// The values that an operand stands for, `[rows, k]`, its multiplier or tensor scale included.
pub fn dequantise(prepared: &Prepared) -> Vec<f32> {
    match prepared {
        Prepared::Float(float) => float.values.iter().map(|value| value * float.scale).collect(),
        Prepared::Mxfp4(operand) => {
            let mut values = decode_mxfp4(operand);
            values.iter_mut().for_each(|value| *value *= operand.multiplier);
            values
        }
    }
}

/// The element values times their block scales, `[rows, k]`, without the multiplier: exact, or
/// infinite where the product is beyond F32 (a largest magnitude near F32's own that the scale rule rounded up).
pub fn decode_mxfp4(operand: &Mxfp4) -> Vec<f32> {
    let mut values = Vec::with_capacity(operand.rows * operand.k);
    for row in 0..operand.rows {
        for column in 0..operand.k {
            let byte = operand.codes[(row * operand.blocks * BLOCK + column) / 2];
            let code = (byte >> (4 * (column % 2))) & 15;
            let doubled = f32::from(DOUBLED[usize::from(code)]);
            // Sign of zero: doubled loses it, the decoder keeps it.
            let value = if doubled == 0.0 { E2M1.decode(code) } else { doubled * 0.5 };
            values.push(value * e8m0::decode(operand.scales[row * operand.blocks + column / BLOCK]));
        }
    }
    values
}
