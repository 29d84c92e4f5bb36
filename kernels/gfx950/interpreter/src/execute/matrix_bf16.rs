//! v_mfma_f32_16x16x32_bf16.
//!
//! Layout (AMD's matrix core documentation): lane l holds row l mod 16 of A (and column l mod 16 of B), k = 8 (l / 16) .. + 7, two to a
//! register, the low half first; D's row 4 (l / 16) + i, column l mod 16 is register i of lane l.
//!
//! Decided here, because the documentation is silent on it: products are exact; the 32 of an element of D are summed in F64 in the order
//! of k, and that sum is added to the accumulator with one rounding to nearest even. Denormals are kept. EXEC is ignored: all lanes take part.

use super::LANES;
use super::rounding::add_once;
use super::wave::{Lanes, Wave};
use crate::decode::Instruction;
use crate::fault::Stop;

const ROWS: usize = 16;
const DEPTH: usize = 32;
/// Elements of k that a lane holds.
const SHARE: usize = 8;

/// The rows of an operand, and whether every lane's share of it is defined.
fn operand(wave: &Wave, i: &Instruction, index: usize) -> Result<([[f64; DEPTH]; ROWS], bool), Stop> {
    let (mut rows, mut defined) = ([[0.0; DEPTH]; ROWS], true);
    for register in 0..SHARE / 2 {
        let lanes = wave.lanes(i.src[index], register)?;
        defined &= lanes.defined == !0;
        for (lane, word) in lanes.values.into_iter().enumerate() {
            let at = SHARE * (lane / ROWS) + 2 * register;
            let row = &mut rows[lane % ROWS];
            row[at] = f64::from(f32::from_bits(word << 16));
            row[at + 1] = f64::from(f32::from_bits(word & 0xFFFF_0000));
        }
    }
    Ok((rows, defined))
}

/// D may be C or overlap a part of it: all of C is read before anything is written.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let ((a, a_defined), (b, b_defined)) = (operand(wave, i, 0)?, operand(wave, i, 1)?);
    let sums: Vec<Lanes> = (0..4).map(|register| wave.lanes(i.src[2], register)).collect::<Result<_, _>>()?;
    for (register, mut result) in sums.into_iter().enumerate() {
        for lane in 0..LANES {
            let (row, column) = (&a[4 * (lane / ROWS) + register], &b[lane % ROWS]);
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
