//! v_mfma_f32_16x16x128_f8f6f4 and 32x32x64, with and without scales, on E2M1, E4M3 and E5M2 in any pairing.
//!
//! Layout (AMD's matrix core documentation), M being 16 or 32 and K 128 or 64: lane l holds row l mod M of A (and column l mod M of B), and the scale
//! of that row and of the 32 elements from k = 32 (l / M) on. E2M1: the lane's four registers are those 32 elements, low nibble first. E4M3 and
//! E5M2: its eight registers are the 16 bytes from k = 16 (l / M) on and the 16 bytes from k = K / 2 + 16 (l / M) on. D's register i of lane l is
//! row 4 (l / 16) + i and column l mod 16, or row 8 (i / 4) + 4 (l / 32) + i mod 4 and column l mod 32.
//!
//! Decided here, because the documentation is silent on it: the products of 32 elements with consecutive k are summed exactly, and the sum, times
//! both scales of those 32, is added to the accumulator with one rounding to nearest even; the blocks follow one another in the order of
//! k. That the scale belongs to consecutive k in the byte formats, too, although no lane holds them together, is the reading that makes MX
//! operands work; only the hardware can say. Denormals are kept. A scale byte of 255 gives NaN, as does a NaN element; infinities (E5M2)
//! follow IEEE 754. EXEC is ignored: all lanes take part.

use std::sync::OnceLock;

use super::LANES;
use super::rounding::{add_once, add_wide};
use super::wave::{Lanes, Wave};
use crate::decode::{Instruction, Op, Operand};
use crate::fault::Stop;

const BLOCK: usize = 32;
/// Elements along k at most.
const LONGEST: usize = 128;

/// An element format, by its number in cbsz and blgp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    E4m3,
    E5m2,
    E2m1,
}

/// Stands for infinity among elements; its negative for minus infinity.
const INFINITY: i64 = 1 << 40;
const NAN: i64 = 1 << 41;

impl Format {
    fn new(number: u16) -> Result<Self, Stop> {
        match number {
            0 => Ok(Self::E4m3),
            1 => Ok(Self::E5m2),
            4 => Ok(Self::E2m1),
            _ => Err(Stop::unsupported(format!("matrix element format {number}"))),
        }
    }

    fn registers(self) -> usize {
        if self == Self::E2m1 { 4 } else { 8 }
    }

    /// Values are held as multiples of 2^-this, the smallest magnitude.
    fn fraction_bits(self) -> i64 {
        match self {
            Self::E4m3 => 9,
            Self::E5m2 => 16,
            Self::E2m1 => 1,
        }
    }

    /// The values of all codes.
    fn table(self) -> &'static [i64] {
        static TABLES: [OnceLock<Vec<i64>>; 3] = [const { OnceLock::new() }; 3];
        let codes = if self == Self::E2m1 { 16 } else { 256 };
        TABLES[self as usize].get_or_init(|| (0..codes).map(|code| self.value(code)).collect())
    }

    /// The value of a code in those units, or [`INFINITY`] or [`NAN`].
    fn value(self, code: u32) -> i64 {
        let (mantissa_bits, sign) = match self {
            Self::E4m3 => (3, code >> 7 & 1),
            Self::E5m2 => (2, code >> 7 & 1),
            Self::E2m1 => (1, code >> 3 & 1),
        };
        let magnitude = match self {
            Self::E2m1 => code & 7,
            _ => code & 0x7F,
        };
        let (exponent, mantissa) = (magnitude >> mantissa_bits, i64::from(magnitude & ((1 << mantissa_bits) - 1)));
        let units = match (self, magnitude) {
            (Self::E4m3, 0x7F) | (Self::E5m2, 0x7D..) => NAN,
            (Self::E5m2, 0x7C) => INFINITY,
            _ if exponent == 0 => mantissa,
            _ => ((1 << mantissa_bits) + mantissa) << (exponent - 1),
        };
        if sign == 1 && units != NAN { -units } else { units }
    }
}

/// The shape of an operation: rows of A (as many as columns of B), blocks of 32 along k, registers of D.
#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    blocks: usize,
    results: usize,
}

impl Shape {
    fn new(op: Op) -> Self {
        match op {
            Op::v_mfma_f32_32x32x64_f8f6f4 => Self { rows: 32, blocks: 2, results: 16 },
            _ => Self { rows: 16, blocks: 4, results: 4 },
        }
    }

    /// Where along k element `index` of a lane lies.
    fn k(self, format: Format, lane: usize, index: usize) -> usize {
        let group = lane / self.rows;
        match format {
            Format::E2m1 => BLOCK * group + index,
            _ => index / 16 * (BLOCK * self.blocks / 2) + 16 * group + index % 16,
        }
    }

    /// Row of D that register `register` of a lane holds.
    fn row(self, lane: usize, register: usize) -> usize {
        if self.rows == 16 { 4 * (lane / 16) + register } else { 8 * (register / 4) + 4 * (lane / 32) + register % 4 }
    }
}

/// Rows of one operand: values in units of their format, and the scale byte of each block.
struct Matrix {
    values: Vec<[i64; LONGEST]>,
    scales: Vec<[u32; LONGEST / BLOCK]>,
    format: Format,
    /// Whether an infinity or a NaN is among the values.
    special: bool,
    defined: bool,
}

fn operand(wave: &Wave, i: &Instruction, index: usize, shape: Shape) -> Result<Matrix, Stop> {
    let format = Format::new(if index == 0 { i.constant & 7 } else { i.constant >> 3 })?;
    let rows = shape.rows;
    let (values, scales) = (vec![[0; LONGEST]; rows], vec![[127; LONGEST / BLOCK]; rows]);
    let mut matrix = Matrix { values, scales, format, special: false, defined: true };
    let each = BLOCK / format.registers();
    let bits = 32 / each as u32;
    let table = format.table();
    for register in 0..format.registers() {
        let lanes = wave.lanes(i.src[index], register)?;
        matrix.defined &= lanes.defined == !0;
        for (lane, word) in lanes.values.into_iter().enumerate() {
            // The elements of a register lie beside each other along k.
            let first = shape.k(format, lane, each * register);
            for (element, to) in matrix.values[lane % rows][first..first + each].iter_mut().enumerate() {
                *to = table[(word >> (bits * element as u32) & ((1 << bits) - 1)) as usize];
                matrix.special |= to.abs() >= INFINITY;
            }
        }
    }
    if let Some(scales) = &i.scales {
        let lanes = wave.lanes(scales.source[index], 0)?;
        // A constant scale register would be read as its bits; the compiler does not make one.
        if !matches!(scales.source[index], Operand::Vector(_)) {
            return Err(Stop::unsupported("a scale that is in no vector register"));
        }
        matrix.defined &= lanes.defined == !0;
        for (lane, word) in lanes.values.into_iter().enumerate() {
            matrix.scales[lane % rows][lane / rows] = word >> (8 * u32::from(scales.byte[index])) & 0xFF;
        }
    }
    Ok(matrix)
}

/// dot * 2^exponent in F64, where that is exact.
fn scaled(dot: i64, exponent: i64) -> f64 {
    dot as f64 * f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// The exact sum of 32 products.
fn exact_dot(a: &[i64], b: &[i64]) -> i128 {
    a.iter().zip(b).map(|(a, b)| i128::from(*a) * i128::from(*b)).sum()
}

/// The sum of 32 products with infinities or NaNs among them, if it is one: any finite stand-in does for the other products.
fn special_dot(a: &[i64], b: &[i64]) -> Option<f32> {
    let value = |units: i64| match units {
        NAN => f32::NAN,
        INFINITY => f32::INFINITY,
        _ if units == -INFINITY => f32::NEG_INFINITY,
        _ => units.signum() as f32,
    };
    let sum: f32 = a.iter().zip(b).map(|(a, b)| value(*a) * value(*b)).sum();
    (!sum.is_finite()).then_some(sum)
}

/// One block's share of one element of D.
fn block(acc: f32, (a, b): (&Matrix, &Matrix), (row, column): (usize, usize), block: usize) -> f32 {
    const NAN_SCALE: u32 = 255;
    let range = BLOCK * block..BLOCK * (block + 1);
    let (left, right) = (&a.values[row][range.clone()], &b.values[column][range]);
    let scales = (a.scales[row][block], b.scales[column][block]);
    if scales.0 == NAN_SCALE || scales.1 == NAN_SCALE {
        return f32::NAN;
    }
    if (a.special || b.special)
        && let Some(sum) = special_dot(left, right)
    {
        return acc + sum;
    }
    // Between -286 and 252.
    let exponent = i64::from(scales.0) + i64::from(scales.1) - 254 - a.format.fraction_bits() - b.format.fraction_bits();
    match (a.format, b.format) {
        // Both below 2^4: 32 products are below 2^13.
        (Format::E2m1, Format::E2m1) => {
            let dot: i32 = left.iter().zip(right).map(|(a, b)| *a as i32 * *b as i32).sum();
            add_once(f64::from(acc), scaled(i64::from(dot), exponent))
        }
        _ if acc.is_finite() => add_wide(acc, exact_dot(left, right), exponent),
        _ => acc,
    }
}

pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let shape = Shape::new(i.op);
    let (a, b) = (operand(wave, i, 0, shape)?, operand(wave, i, 1, shape)?);
    // D may overlap a part of C: all of C is read before anything is written.
    let sums: Vec<Lanes> = (0..shape.results).map(|register| wave.lanes(i.src[2], register)).collect::<Result<_, _>>()?;
    for (register, mut result) in sums.into_iter().enumerate() {
        for lane in 0..LANES {
            let place = (shape.row(lane, register), lane % shape.rows);
            let acc = f32::from_bits(result.values[lane]);
            let sum = (0..shape.blocks).fold(acc, |acc, at| block(acc, (&a, &b), place, at));
            result.values[lane] = sum.to_bits();
        }
        if !(a.defined && b.defined) {
            result.defined = 0;
        }
        wave.write_lanes(i.dst, register, !0, &result)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Format, INFINITY, NAN};

    /// Every code of every format, against the formats of crate `kernels`.
    #[test]
    fn elements_have_the_values_of_their_formats() {
        use kernels::format::{e2m1::E2M1, e4m3::E4M3, e5m2::E5M2};
        for (format, reference, codes) in [(Format::E4m3, E4M3, 256), (Format::E5m2, E5M2, 256), (Format::E2m1, E2M1, 16)] {
            for code in 0..codes {
                let expected = reference.decode(code as u8);
                let found = format.value(code);
                if expected.is_nan() {
                    assert_eq!(found, NAN);
                } else if expected.is_infinite() {
                    assert_eq!(found, if expected > 0.0 { INFINITY } else { -INFINITY });
                } else {
                    assert_eq!(found as f64 / 2f64.powi(format.fraction_bits() as i32), f64::from(expected), "{format:?} {code:#x}");
                }
            }
        }
    }
}
