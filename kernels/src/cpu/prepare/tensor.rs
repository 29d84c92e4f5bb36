//! Operands with one scale, or none: FP8 per tensor, BF16, F32. Values are decoded at once.

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::blocks::{Rounds, store_square};
use super::columns::{LARGEST, Reading, read};
use super::element::{Target, round, round_to_bf16};
use super::random::Counters;

/// Fills `values: [rows, k]` from `row` on with source elements as read (BF16, rotated), before scaling. Returns the largest magnitude's bits.
#[inline(always)]
pub(super) fn gather<L: Lanes>(l: L, reading: &Reading<'_>, row: usize, values: &mut [f32]) -> u32 {
    let k = reading.source.k;
    let rows = values.len() / k.max(1);
    let mut largest = l.splat_u(0);
    let mut look = |x: L::F| largest = l.max_u(largest, l.and(l.bits(x), l.splat_u(0x7FFF_FFFF)));
    if !reading.source.transposed && reading.rotation == 0 {
        let from = &reading.source.values[row * k..row * k + values.len()];
        for at in (0..values.len()).step_by(WIDTH) {
            let mut x = get(l, from, at);
            if reading.as_bf16 {
                x = round_to_bf16(l, x);
            }
            look(x);
            put(l, x, values, at);
        }
        return l.largest_u(largest);
    }
    let mut buffer = [l.splat(0.0); LARGEST];
    let buffer = &mut buffer[..reading.chunk()];
    for group in (0..rows).step_by(WIDTH) {
        for first in (0..k).step_by(reading.chunk()) {
            read(l, reading, row + group, first, buffer);
            for &x in buffer.iter() {
                look(x);
            }
            let (squares, _) = buffer.as_chunks::<WIDTH>();
            for (i, square) in squares.iter().enumerate() {
                store_square(l, *square, group, first + i * WIDTH, rows, k, values);
            }
        }
    }
    l.largest_u(largest)
}

/// Scales and rounds `values` in place; `first` is the counter of the first one.
#[inline(always)]
pub(super) fn round_all<L: Lanes, const DROPPED: u32>(l: L, values: &mut [f32], first: u64, scale: f32, target: Target, rounds: Rounds) {
    // Counters restart every 2^20 elements, so that a column always fits.
    for (chunk, values) in values.chunks_mut(1 << 20).enumerate() {
        let start = first + ((chunk as u64) << 20);
        let counters = rounds.stream().map(|stream| Counters::new(l, stream, 1 << 20, |i| start + i as u64));
        for at in (0..values.len()).step_by(WIDTH) {
            let mut v = l.mul(get(l, values, at), l.splat(scale));
            if let Rounds::Prescaled(_) = rounds {
                v = l.mul(v, l.splat(0.75));
            }
            let random = counters.as_ref().map(
                #[inline(always)]
                |counters| counters.words(l, at),
            );
            put(l, round::<L, DROPPED>(l, v, target, random), values, at);
        }
    }
}
