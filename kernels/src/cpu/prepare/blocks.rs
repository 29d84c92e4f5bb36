//! Block-scaled operands: E2M1 to packed codes and scale bytes, FP8 to decoded values.

use super::super::lanes::{Lanes, WIDTH};
use super::columns::{LARGEST, Reading, read};
use super::element::{Target, e2m1_nearest, e2m1_stochastic, round};
use super::random::Counters;
use crate::random::Stream;

/// Rows of a tile that shares one scale, in registers of sixteen rows.
pub(super) const TILE_GROUPS: usize = 2;

/// How a block's largest magnitude becomes its scale byte: exponent(bits + bump) - largest exponent of the format, not below 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScaleBits {
    /// `floor` 0; `even` half of the format's last mantissa bit; `ceil` what carries any mantissa above the format's largest.
    pub(super) bump: u32,
    /// Exponent of the format's largest value.
    pub(super) largest_exponent: u32,
}

/// How scaled values are rounded.
#[derive(Clone, Copy)]
pub(super) enum Rounds {
    Nearest,
    Stochastic(Stream),
    Prescaled(Stream),
}

impl Rounds {
    pub(super) fn stream(self) -> Option<Stream> {
        match self {
            Self::Nearest => None,
            Self::Stochastic(stream) | Self::Prescaled(stream) => Some(stream),
        }
    }
}

/// Everything but the source and the destination.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) reading: Reading<'a>,
    pub(super) scale: ScaleBits,
    pub(super) rounds: Rounds,
    /// Whether 32 rows share a scale.
    pub(super) tiles: bool,
}

/// Bytes of sixteen rows, one lane each; 255 where the block holds a NaN or an infinity.
#[inline(always)]
fn scale_bytes<L: Lanes>(l: L, largest: L::U, scale: ScaleBits) -> L::U {
    let exponent = l.shr::<23>(l.add_u(largest, l.splat_u(scale.bump)));
    let least = l.splat_u(scale.largest_exponent);
    let byte = l.sub_u(l.max_u(exponent, least), least);
    l.select_less_u(largest, l.splat_u(0x7F80_0000), byte, l.splat_u(255))
}

/// 2^(127 - byte) for byte up to 253; garbage for 255.
#[inline(always)]
fn inverse<L: Lanes>(l: L, byte: L::U) -> L::F {
    l.floats(l.shl::<23>(l.sub_u(l.splat_u(254), byte)))
}

/// Largest magnitude (as bits) of each lane over a block.
#[inline(always)]
fn magnitudes<L: Lanes>(l: L, block: &[L::F]) -> L::U {
    let mut largest = l.splat_u(0);
    for &x in block {
        largest = l.max_u(largest, l.and(l.bits(x), l.splat_u(0x7FFF_FFFF)));
    }
    largest
}

/// Calls `block(group, first column, columns, scale bytes)` for every block of `groups` * 16 rows from `row`; returns the largest magnitude's bits.
#[inline(always)]
fn for_each_block<L: Lanes>(l: L, b: &Blocks<'_>, row: usize, mut block: impl FnMut(usize, usize, &[L::F], L::U)) -> u32 {
    let groups = if b.tiles { TILE_GROUPS } else { 1 };
    let (k, chunk) = (b.reading.source.k, b.reading.chunk());
    let mut buffers = [[l.splat(0.0); LARGEST]; TILE_GROUPS];
    let mut overall = l.splat_u(0);
    for first in (0..k).step_by(chunk) {
        for (group, buffer) in buffers.iter_mut().enumerate().take(groups) {
            read(l, &b.reading, row + group * WIDTH, first, &mut buffer[..chunk]);
        }
        for start in (0..chunk.min(k - first)).step_by(32) {
            let [first_group, second_group] = &buffers;
            let mut largest = magnitudes(l, &first_group[start..start + 32]);
            if b.tiles {
                largest = l.splat_u(l.largest_u(l.max_u(largest, magnitudes(l, &second_group[start..start + 32]))));
            }
            overall = l.max_u(overall, largest);
            let bytes = scale_bytes(l, largest, b.scale);
            for (group, buffer) in buffers.iter().enumerate().take(groups) {
                block(group, first + start, &buffer[start..start + 32], bytes);
            }
        }
    }
    l.largest_u(overall)
}

/// E2M1 for rows from `row`: fills whole rows of `codes: [rows, blocks * 16]` and `scales: [rows, blocks]`. Returns the largest magnitude's bits.
#[inline(always)]
pub(super) fn e2m1<L: Lanes>(l: L, b: &Blocks<'_>, row: usize, codes: &mut [u8], scales: &mut [u8]) -> u32 {
    // Monomorphised by hand: the choice stays out of the inner loop.
    match b.rounds {
        Rounds::Nearest => e2m1_rows(
            l,
            b,
            row,
            codes,
            scales,
            #[inline(always)]
            |_, _, v| e2m1_nearest(l, v),
        ),
        Rounds::Stochastic(stream) => {
            let counters = counters(l, b, row, stream);
            e2m1_rows(
                l,
                b,
                row,
                codes,
                scales,
                #[inline(always)]
                |group: usize, column, v| e2m1_stochastic(l, v, counters[group].words(l, column)),
            )
        }
        Rounds::Prescaled(stream) => {
            let counters = counters(l, b, row, stream);
            e2m1_rows(
                l,
                b,
                row,
                codes,
                scales,
                #[inline(always)]
                |group: usize, column, v| e2m1_stochastic(l, l.mul(v, l.splat(0.75)), counters[group].words(l, column)),
            )
        }
    }
}

/// Counters row * k of the rows of each group.
#[inline(always)]
fn counters<L: Lanes>(l: L, b: &Blocks<'_>, row: usize, stream: Stream) -> [Counters<L>; TILE_GROUPS] {
    let k = b.reading.source.k;
    [0, WIDTH].map(|group| Counters::new(l, stream, k.next_multiple_of(LARGEST), |i| ((row + group + i) * k) as u64))
}

#[inline(always)]
fn e2m1_rows<L: Lanes>(
    l: L,
    b: &Blocks<'_>,
    row: usize,
    codes: &mut [u8],
    scales: &mut [u8],
    code_of: impl Fn(usize, usize, L::F) -> L::U,
) -> u32 {
    let k = b.reading.source.k;
    let blocks = k.div_ceil(32);
    let (codes, _) = codes.as_chunks_mut::<16>();
    let rows = scales.len() / blocks.max(1);
    for_each_block(
        l,
        b,
        row,
        #[inline(always)]
        |group, column, values, bytes| {
            let inverse = inverse(l, bytes);
            let is_number = l.select_less_u(bytes, l.splat_u(255), l.splat_u(u32::MAX), l.splat_u(0));
            let mut packed = [l.splat_u(0); 4];
            let (eights, _) = values.as_chunks::<8>();
            for (w, (word, values)) in packed.iter_mut().zip(eights).enumerate() {
                // The last code first, so that the first ends up in the low nibble.
                let mut sum = l.splat_u(0);
                for i in (0..8).rev() {
                    sum = l.or(l.shl::<4>(sum), code_of(group, column + 8 * w + i, l.mul(values[i], inverse)));
                }
                *word = l.and(sum, is_number);
            }
            let block = column / 32;
            let mut byte = [0; WIDTH];
            l.store_u(bytes, &mut byte);
            let first = group * WIDTH;
            let rows = rows.saturating_sub(first).min(WIDTH);
            let to = (first..first + rows).map(|r| r * blocks + block);
            for ((at, sixteen), byte) in to.zip(l.rows(packed)).zip(byte) {
                codes[at] = sixteen;
                scales[at] = byte as u8;
            }
        },
    )
}

/// FP8 with block scales for rows from `row`: fills whole rows of `values: [rows, k]` with decoded values times scale. Returns the
/// largest magnitude's bits.
#[inline(always)]
pub(super) fn float<L: Lanes, const DROPPED: u32>(l: L, b: &Blocks<'_>, target: Target, row: usize, values: &mut [f32]) -> u32 {
    let k = b.reading.source.k;
    let rows = values.len() / k.max(1);
    let counters = b.rounds.stream().map(|stream| counters(l, b, row, stream));
    for_each_block(
        l,
        b,
        row,
        #[inline(always)]
        |group, column, block, bytes| {
            let inverse = inverse(l, bytes);
            // 2^(byte - 127), with the subnormal 2^-127 for 0 and a NaN for 255.
            let one = l.splat_u(1);
            let scale = l.select_less_u(bytes, one, l.splat_u(0x0040_0000), l.shl::<23>(bytes));
            let scale = l.floats(l.select_less_u(bytes, l.splat_u(255), scale, l.splat_u(0x7FC0_0000)));
            let (squares, _) = block.as_chunks::<WIDTH>();
            for (half, square) in squares.iter().enumerate() {
                let column = column + half * WIDTH;
                let mut square = *square;
                for (i, x) in square.iter_mut().enumerate() {
                    let mut v = l.mul(*x, inverse);
                    if let Rounds::Prescaled(_) = b.rounds {
                        v = l.mul(v, l.splat(0.75));
                    }
                    let random = counters.as_ref().map(|counters| counters[group].words(l, column + i));
                    *x = l.mul(round::<L, DROPPED>(l, v, target, random), scale);
                }
                store_square(l, square, group * WIDTH, column, rows, k, values);
            }
        },
    )
}

/// Writes a square of sixteen columns to rows `first..` of `values: [rows, k]`, as far as they reach.
#[inline(always)]
pub(super) fn store_square<L: Lanes>(
    l: L,
    mut square: [L::F; WIDTH],
    first: usize,
    column: usize,
    rows: usize,
    k: usize,
    values: &mut [f32],
) {
    l.transpose(&mut square);
    let count = k.saturating_sub(column).min(WIDTH);
    for (r, &lanes) in square.iter().enumerate().take(rows.saturating_sub(first)) {
        let start = (first + r) * k + column;
        if count > 0 {
            super::super::lanes::put(l, lanes, &mut values[start..start + count], 0);
        }
    }
}
