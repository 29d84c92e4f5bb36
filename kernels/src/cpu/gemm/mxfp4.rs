//! MXFP4 products: exact integer dot products of blocks of 32, one fused multiply-add a block.

use std::ops::Range;

use super::super::Cpu;
use super::{Output, Scratch};
use crate::quantise::Mxfp4;

/// Twice the value of each E2M1 code.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 2^(byte - 127), NaN for 255.
pub(super) fn power_of_two(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// Rows `rows` of C = A B^T.
pub(super) fn multiply(_cpu: &Cpu, a: &Mxfp4, b: &Mxfp4, rows: Range<usize>, mut output: Output<'_>, _scratch: &mut Scratch) {
    scalar(a, b, rows, &mut output);
}

/// acc + dot * 2^(eA + eB - 2), rounded once, for every scale byte: the definition that the fast kernels must meet.
fn add_block(acc: f32, dot: i32, a: u8, b: u8) -> f32 {
    if a == 255 || b == 255 {
        return f32::NAN;
    }
    if dot == 0 {
        return acc + 0.0;
    }
    // The power is split so that both factors are representable and dot * 2^first is exact: |dot| <= 4608 < 2^13.
    let power = i32::from(a) + i32::from(b) - 2 * 127 - 2;
    let first = (power / 2).min(100);
    let second = power - first;
    if second > 127 {
        return acc + if dot > 0 { f32::INFINITY } else { f32::NEG_INFINITY };
    }
    (dot as f32 * exact_power(first)).mul_add(exact_power(second), acc)
}

/// 2^power for power in -149..=127.
fn exact_power(power: i32) -> f32 {
    if power >= -126 { f32::from_bits(((power + 127) as u32) << 23) } else { f32::from_bits(1 << (power + 149)) }
}

fn scalar(a: &Mxfp4, b: &Mxfp4, rows: Range<usize>, output: &mut Output<'_>) {
    let decoded: Vec<i8> = b.codes.iter().flat_map(|&byte| [DOUBLED[usize::from(byte & 15)], DOUBLED[usize::from(byte >> 4)]]).collect();
    let mut row_values = vec![0i8; a.blocks * 32];
    for row in rows.clone() {
        for (pair, &byte) in row_values.chunks_exact_mut(2).zip(&a.codes[row * a.blocks * 16..]) {
            pair.copy_from_slice(&[DOUBLED[usize::from(byte & 15)], DOUBLED[usize::from(byte >> 4)]]);
        }
        for column in 0..b.rows {
            let mut acc = 0.0;
            for block in 0..a.blocks {
                let left = &row_values[block * 32..block * 32 + 32];
                let right = &decoded[(column * b.blocks + block) * 32..][..32];
                let dot = left.iter().zip(right).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum();
                acc = add_block(acc, dot, a.scales[row * a.blocks + block], b.scales[column * b.blocks + block]);
            }
            output.finish(super::super::lanes::portable::Portable, row - rows.start, column, column + 1, [acc; 16]);
        }
    }
}
