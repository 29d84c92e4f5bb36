//! v_mfma_f32_16x16x32_bf16 and v_mfma_f32_32x32x16_bf16.
//!
//! Layout (AMD's matrix core documentation), M being 16 or 32: lane l holds row l mod M of A (and column l mod M of B), k = 8 (l / M) .. + 7, two
//! to a register, the low half first; D's register i of lane l is row 4 (l / 16) + i and column l mod 16, or row 8 (i / 4) + 4 (l / 32) + i mod 4
//! and column l mod 32.
//!
//! Decided here, because the documentation is silent on it: products are exact; those of an element of D are summed in F64 in the order
//! of k, and that sum is added to the accumulator with one rounding to nearest even. Denormals are kept. EXEC is ignored: all lanes take part.

use super::LANES;
use super::rounding::add_once;
use super::wave::{Lanes, Wave};
use crate::decode::{Instruction, Op};
use crate::fault::Stop;

/// Elements of k that a lane holds.
const SHARE: usize = 8;
/// Elements of k at most.
const LONGEST: usize = 32;

pub(super) fn handles(op: Op) -> bool {
    matches!(op, Op::v_mfma_f32_16x16x32_bf16 | Op::v_mfma_f32_32x32x16_bf16)
}

/// The rows of an operand, and whether every lane's share of it is defined.
fn operand(wave: &Wave, i: &Instruction, index: usize, size: usize) -> Result<(Vec<[f64; LONGEST]>, bool), Stop> {
    let (mut rows, mut defined) = (vec![[0.0; LONGEST]; size], true);
    for register in 0..SHARE / 2 {
        let lanes = wave.lanes(i.src[index], register)?;
        defined &= lanes.defined == !0;
        for (lane, word) in lanes.values.into_iter().enumerate() {
            let at = SHARE * (lane / size) + 2 * register;
            let row = &mut rows[lane % size];
            row[at] = f64::from(f32::from_bits(word << 16));
            row[at + 1] = f64::from(f32::from_bits(word & 0xFFFF_0000));
        }
    }
    Ok((rows, defined))
}

/// D may be C or overlap a part of it: all of C is read before anything is written.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let size = if i.op == Op::v_mfma_f32_32x32x16_bf16 { 32 } else { 16 };
    let depth = SHARE * LANES / size;
    let ((a, a_defined), (b, b_defined)) = (operand(wave, i, 0, size)?, operand(wave, i, 1, size)?);
    let sums: Vec<Lanes> = (0..size * size / LANES).map(|register| wave.lanes(i.src[2], register)).collect::<Result<_, _>>()?;
    for (register, mut result) in sums.into_iter().enumerate() {
        for lane in 0..LANES {
            let row = 4 * LANES / size * (register / 4) + 4 * (lane / size) + register % 4;
            let (row, column) = (&a[row][..depth], &b[lane % size][..depth]);
            let dot: f64 = row.iter().zip(column).map(|(a, b)| a * b).sum();
            result.values[lane] = add_once(f64::from(f32::from_bits(result.values[lane])), dot).to_bits();
        }
        if !(a_defined && b_defined) {
            result.defined = 0;
        }
        wave.write_lanes(i.dst, register, !0, &result)?;
    }
    Ok(())
}
