//! v_mfma_f32_16x16x128_f8f6f4 with FP4 operands, with and without scales.
//!
//! Layout (AMD's matrix core documentation): lane l holds row l mod 16 of A (and column l mod 16 of B), k = 32 (l / 16) .. + 31, low nibble
//! first, and the scale of that row and those 32 elements; D's row 4 (l / 16) + i, column l mod 16 is register i of lane l.
//!
//! Decided here, because the documentation is silent on it: the products of 32 elements are summed exactly, and the sum, times both
//! scales, is added to the accumulator with one rounding to nearest even; the four blocks follow one another in the order of k. Denormals
//! are kept. A scale byte of 255 gives NaN. EXEC is ignored: all lanes take part.

use super::LANES;
use super::wave::{Lanes, Wave};
use crate::decode::{Instruction, Op, Operand};
use crate::fault::Stop;

/// Twice the value of each E2M1 code.
const DOUBLED: [i32; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
const ROWS: usize = 16;
const BLOCKS: usize = 4;
const BLOCK: usize = 32;

/// Rows of one operand: doubled values, and the scale byte of each block.
struct Matrix {
    values: Vec<[i32; BLOCK * BLOCKS]>,
    scales: [[u32; BLOCKS]; ROWS],
    defined: bool,
}

fn operand(wave: &Wave, i: &Instruction, index: usize) -> Result<Matrix, Stop> {
    let mut matrix = Matrix { values: vec![[0; BLOCK * BLOCKS]; ROWS], scales: [[127; BLOCKS]; ROWS], defined: true };
    for register in 0..4 {
        let lanes = wave.lanes(i.src[index], register)?;
        matrix.defined &= lanes.defined == !0;
        for (lane, word) in lanes.values.into_iter().enumerate() {
            let start = BLOCK * (lane / ROWS) + 8 * register;
            for (nibble, value) in matrix.values[lane % ROWS][start..start + 8].iter_mut().enumerate() {
                *value = DOUBLED[(word >> (4 * nibble) & 15) as usize];
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
            matrix.scales[lane % ROWS][lane / ROWS] = word >> (8 * u32::from(scales.byte[index])) & 0xFF;
        }
    }
    Ok(matrix)
}

/// a + b in F64, made odd where it is inexact: rounding it to F32 then gives what rounding the exact sum would.
pub(super) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let (above, below) = (sum - a, sum - (sum - a));
    let error = (a - below) + (b - above);
    let inexact = error != 0.0 && sum.is_finite();
    if !inexact || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// a + b to F32 with one rounding.
pub(super) fn add_once(a: f64, b: f64) -> f32 {
    odd_sum(a, b) as f32
}

fn scaled(dot: i32, a: u32, b: u32) -> f64 {
    const NAN: u32 = 255;
    if a == NAN || b == NAN {
        return f64::NAN;
    }
    // Both operands are doubled: hence 2^-2. The exponent lies between -256 and 252.
    let exponent = i64::from(a) + i64::from(b) - 256;
    f64::from(dot) * f64::from_bits(((1023 + exponent) as u64) << 52)
}

pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    if i.op == Op::v_mfma_f32_16x16x32_bf16 {
        return super::matrix_bf16::execute(wave, i);
    }
    let (a, b) = (operand(wave, i, 0)?, operand(wave, i, 1)?);
    for register in 0..4 {
        let mut result = wave.lanes(i.src[2], register)?;
        for lane in 0..LANES {
            let (row, column) = (4 * (lane / ROWS) + register, lane % ROWS);
            let mut sum = f32::from_bits(result.values[lane]);
            for block in 0..BLOCKS {
                let range = BLOCK * block..BLOCK * (block + 1);
                let products = a.values[row][range.clone()].iter().zip(&b.values[column][range]);
                let dot = products.map(|(a, b)| a * b).sum();
                sum = add_once(f64::from(sum), scaled(dot, a.scales[row][block], b.scales[column][block]));
            }
            result.values[lane] = sum.to_bits();
        }
        if !(a.defined && b.defined) {
            result.defined = 0;
        }
        write_later(wave, i, register, &result)?;
    }
    Ok(())
}

/// D may be C, register by register; it overlaps neither A nor B (the instruction set forbids it), so results can be written at once.
fn write_later(wave: &mut Wave, i: &Instruction, register: usize, result: &Lanes) -> Result<(), Stop> {
    wave.write_lanes(i.dst, register, !0, result)
}

#[cfg(test)]
mod tests {
    use super::add_once;

    #[test]
    fn one_rounding_where_two_would_differ() {
        // 1 + 2^-24 + 2^-60: F64 drops the last term, and the tie that is left would go down.
        let (a, b) = (1.0f64, 2f64.powi(-24) * (1.0 + 2f64.powi(-36)));
        assert_eq!((a + b) as f32, 1.0);
        assert_eq!(add_once(a, b), 1.0f32.next_up());
        assert_eq!(add_once(-a, -b), -(1.0f32.next_up()));
        assert_eq!(add_once(1.0, 2f64.powi(-24)), 1.0);
        assert!(add_once(1.0, f64::NAN).is_nan());
        assert_eq!(add_once(f64::from(f32::MAX), f64::from(f32::MAX)), f32::INFINITY);
        // Against a fused multiply-add, which rounds once by definition.
        for (n, exponent) in (-4608..4608).step_by(13).zip((-60i32..60).cycle()) {
            let c = f32::from_bits(0x3F80_0000 + (n as u32).wrapping_mul(1_234_567) % 0x0080_0000);
            let expected = (n as f32).mul_add(2f32.powi(exponent), c);
            assert_eq!(add_once(f64::from(c), f64::from(n) * 2f64.powi(exponent)), expected, "{n} {exponent} {c}");
        }
    }
}
