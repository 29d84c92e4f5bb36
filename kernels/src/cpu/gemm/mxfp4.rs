//! MXFP4 products: exact integer dot products of blocks of 32, one fused multiply-add a block.
//!
//! Twice an E2M1 value is one of 0, 1, 2, 3, 4, 6, 8, 12 and their negatives. B's codes become unsigned bytes, doubled value + 12;
//! A's become signed bytes, the doubled value. A 32-bit sum that starts at the bit pattern of 1.5 * 2^23, less 12 times the sum of A's
//! block, then *is* the pattern of the F32 number 1.5 * 2^23 + dot, because |dot| <= 32 * 144 < 2^22. With sB = 2^eB:
//!
//! t = fma(1.5 * 2^23 + dot, sB, -1.5 * 2^23 * sB) is dot * sB exactly, and acc = fma(t, 2^eA / 4, acc) is the defined result.
//!
//! Exactness needs 1.5 * 2^23 * sB to be finite. Matrices with larger scales take `slow`, which is also the definition in plain code.

use std::ops::Range;

use super::super::lanes::portable::Portable;
use super::super::lanes::{Lanes, WIDTH};
use super::{Output, Scratch, room};
use crate::format::e2m1::DOUBLED;
use crate::format::e8m0::decode as power_of_two;
use crate::quantise::Mxfp4;

/// `DOUBLED` as bytes, for A.
const SIGNED: [u8; 16] = table(0);
/// `DOUBLED` + 12, for B.
const UNSIGNED: [u8; 16] = table(12);

const fn table(offset: i8) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut code = 0;
    while code < 16 {
        bytes[code] = (DOUBLED[code] + offset).cast_unsigned();
        code += 1;
    }
    bytes
}

/// 1.5 * 2^23: integers added to its bit pattern are added to its value.
const ANCHOR: f32 = 12_582_912.0;

/// Largest scale byte of B for the fast kernels: ANCHOR * 2^100 is finite.
const LARGEST_FAST_SCALE: u8 = 227;

/// Words of four codes in a block of 32.
const STEPS: usize = 8;

/// Rows `rows` of C = A B^T.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(l: L, a: &Mxfp4, b: &Mxfp4, rows: Range<usize>, mut output: Output<'_>, scratch: &mut Scratch) {
    // Without vector instructions the panels only cost time.
    if L::REGISTERS == 0 || b.scales.iter().any(|&byte| byte > LARGEST_FAST_SCALE && byte != 255) {
        return slow(a, b, rows, &mut output);
    }
    match L::REGISTERS {
        32 => blocked::<L, 6, 2>(l, a, b, rows, &mut output, scratch),
        _ => blocked::<L, 3, 1>(l, a, b, rows, &mut output, scratch),
    }
}

#[inline(always)]
fn blocked<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    a: &Mxfp4,
    b: &Mxfp4,
    rows: Range<usize>,
    output: &mut Output<'_>,
    scratch: &mut Scratch,
) {
    let panel = VECTORS * WIDTH;
    let size = b.blocks * panel * (STEPS + 1);
    let packed_b = room(&mut scratch.codes_b, b.rows.div_ceil(panel) * size);
    for (i, to) in packed_b.chunks_exact_mut(size.max(1)).enumerate() {
        for (j, group) in (0..panel).step_by(WIDTH).enumerate() {
            pack_b(l, b, i * panel + group, panel, j, to);
        }
    }
    let packed_b = &*packed_b;
    let packed_a = room(&mut scratch.codes_a, a.blocks * ROWS * (STEPS + 2) + WIDTH);
    let mut row = rows.start;
    while row < rows.end {
        let position = (row, row - rows.start, rows.end - row);
        row += match rows.end - row {
            left if left >= ROWS => strip::<L, ROWS, VECTORS>(l, a, b, position, packed_a, packed_b, output),
            left if left >= 4 => strip::<L, 4, VECTORS>(l, a, b, position, packed_a, packed_b, output),
            left if left >= 2 => strip::<L, 2, VECTORS>(l, a, b, position, packed_a, packed_b, output),
            _ => strip::<L, 1, VECTORS>(l, a, b, position, packed_a, packed_b, output),
        };
    }
}

/// The sixteen bytes of a block of codes; past the last row, zeros.
#[inline(always)]
fn block_of(m: &Mxfp4, row: usize, end: usize, block: usize) -> &[u8; 16] {
    let start = (row * m.blocks + block) * 16;
    let inside = if row < end { m.codes.get(start..) } else { None };
    inside.and_then(|codes| codes.first_chunk()).unwrap_or(&[0; 16])
}

/// Words of even and of odd elements of sixteen rows, looked up. The order of k inside a block does not matter to an exact sum,
/// so long as A and B have the same.
#[inline(always)]
fn looked_up<L: Lanes>(l: L, m: &Mxfp4, rows: (usize, usize), block: usize, table: &[u8; 16]) -> [L::U; STEPS] {
    let blocks: [&[u8; 16]; WIDTH] = std::array::from_fn(
        #[inline(always)]
        |i| block_of(m, rows.0 + i, rows.1, block),
    );
    let words = l.words(&blocks);
    let mut result = [l.splat_u(0); STEPS];
    let nibble = l.splat_u(0x0F0F_0F0F);
    for (i, &word) in words.iter().enumerate() {
        result[i] = l.lookup(table, l.and(word, nibble));
        result[4 + i] = l.lookup(table, l.and(l.shr::<4>(word), nibble));
    }
    result
}

/// A panel of B, block by block: STEPS rows of `panel` words, then `panel` scales. This call fills sixteen columns.
#[inline(always)]
fn pack_b<L: Lanes>(l: L, b: &Mxfp4, row: usize, panel: usize, group: usize, to: &mut [u32]) {
    for (block, to) in to.chunks_exact_mut(panel * (STEPS + 1)).enumerate() {
        let (to, _) = to.as_chunks_mut::<WIDTH>();
        for (step, word) in looked_up(l, b, (row, b.rows), block, &UNSIGNED).into_iter().enumerate() {
            l.store_u(word, &mut to[step * (panel / WIDTH) + group]);
        }
        let scales = &mut to[STEPS * (panel / WIDTH) + group];
        for (i, scale) in scales.iter_mut().enumerate() {
            let byte = if row + i < b.rows { b.scales[(row + i) * b.blocks + block] } else { 127 };
            *scale = power_of_two(byte).to_bits();
        }
    }
}

/// A strip of A, block by block: STEPS groups of ROWS words, then ROWS start values, then ROWS scales (2^eA / 4).
///
/// Sixteen lanes are stored where ROWS are wanted: the surplus is overwritten by what follows.
#[inline(always)]
fn pack_a<L: Lanes, const ROWS: usize>(l: L, a: &Mxfp4, row: usize, to: &mut [u32]) {
    let end = (row + ROWS).min(a.rows);
    for block in 0..a.blocks {
        let to = &mut to[block * ROWS * (STEPS + 2)..];
        let mut sum = l.splat_u(0);
        for (step, word) in looked_up(l, a, (row, end), block, &SIGNED).into_iter().enumerate() {
            if let Some(lanes) = to[step * ROWS..].first_chunk_mut() {
                l.store_u(word, lanes);
            }
            let four = l.dot_finish(l.dot_add(l.dot_start(l.splat_u(0)), l.splat_u(0x0101_0101), word), l.splat_u(0));
            sum = l.add_u(sum, four);
        }
        let start = l.sub_u(l.splat_u(ANCHOR.to_bits()), l.mul_u(sum, l.splat_u(12)));
        if let Some(lanes) = to[STEPS * ROWS..].first_chunk_mut() {
            l.store_u(start, lanes);
        }
        for (i, scale) in to[(STEPS + 1) * ROWS..][..ROWS].iter_mut().enumerate() {
            let byte = if row + i < end { a.scales[(row + i) * a.blocks + block] } else { 127 };
            *scale = (power_of_two(byte) * 0.25).to_bits();
        }
    }
}

#[inline(always)]
fn strip<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    a: &Mxfp4,
    b: &Mxfp4,
    (row, to_row, left): (usize, usize, usize),
    packed_a: &mut [u32],
    packed_b: &[u32],
    output: &mut Output<'_>,
) -> usize {
    let panel = VECTORS * WIDTH;
    pack_a::<L, ROWS>(l, a, row, packed_a);
    let packed_a = &packed_a[..a.blocks * ROWS * (STEPS + 2)];
    let size = b.blocks * panel * (STEPS + 1);
    for first in (0..b.rows).step_by(panel) {
        let acc = tile::<L, ROWS, VECTORS>(l, packed_a, &packed_b[first / panel * size..][..size]);
        for (i, acc) in acc.iter().enumerate().take(left) {
            for (j, &value) in acc.iter().enumerate() {
                let column = first + j * WIDTH;
                if column < b.rows {
                    output.finish(l, to_row + i, column, b.rows, value);
                }
            }
        }
    }
    ROWS
}

/// The inner loop: one block of k at a time.
#[inline(always)]
fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, a: &[u32], b: &[u32]) -> [[L::F; VECTORS]; ROWS] {
    let mut acc = [[l.splat(0.0); VECTORS]; ROWS];
    let (a, _) = a.as_chunks::<ROWS>();
    let (b, _) = b.as_chunks::<WIDTH>();
    for (a, b) in a.chunks_exact(STEPS + 2).zip(b.chunks_exact(VECTORS * (STEPS + 1))) {
        let mut sums = [[l.dot_start(l.splat_u(0)); VECTORS]; ROWS];
        for (sums, &start) in sums.iter_mut().zip(&a[STEPS]) {
            *sums = [l.dot_start(l.splat_u(start)); VECTORS];
        }
        for step in 0..STEPS {
            let mut right = [l.splat_u(0); VECTORS];
            for j in 0..VECTORS {
                right[j] = l.load_u(&b[step * VECTORS + j]);
            }
            for i in 0..ROWS {
                let left = l.splat_u(a[step][i]);
                for j in 0..VECTORS {
                    sums[i][j] = l.dot_add(sums[i][j], right[j], left);
                }
            }
        }
        for j in 0..VECTORS {
            let scale = l.floats(l.load_u(&b[STEPS * VECTORS + j]));
            let minus_anchor = l.mul(scale, l.splat(-ANCHOR));
            for i in 0..ROWS {
                let anchored = l.floats(l.dot_finish(sums[i][j], l.splat_u(a[STEPS][i])));
                let dot = l.fma(anchored, scale, minus_anchor);
                acc[i][j] = l.fma(dot, l.splat(f32::from_bits(a[STEPS + 1][i])), acc[i][j]);
            }
        }
    }
    acc
}

/// acc + dot * 2^(eA + eB - 2), rounded once, for every scale byte: the definition that the fast kernels must meet.
#[inline(always)]
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
        // Far beyond F32, yet finite: an infinite sum stays what it is, as it would in a fused multiply-add.
        let overflow = if dot > 0 { f32::INFINITY } else { f32::NEG_INFINITY };
        return if acc.is_infinite() { acc } else { acc + overflow };
    }
    (dot as f32 * exact_power(first)).mul_add(exact_power(second), acc)
}

/// 2^power for power in -149..=127.
fn exact_power(power: i32) -> f32 {
    f32::from_bits(if power >= -126 { ((power + 127) as u32) << 23 } else { 1 << (power + 149) })
}

/// The definition in plain code.
#[inline(always)]
fn slow(a: &Mxfp4, b: &Mxfp4, rows: Range<usize>, output: &mut Output<'_>) {
    let decode = |byte: &u8| [DOUBLED[usize::from(byte & 15)], DOUBLED[usize::from(byte >> 4)]];
    let right: Vec<i8> = b.codes.iter().flat_map(decode).collect();
    for row in rows.clone() {
        let left: Vec<i8> = a.codes[row * a.blocks * 16..(row + 1) * a.blocks * 16].iter().flat_map(decode).collect();
        for column in 0..b.rows {
            let mut acc = 0.0;
            for block in 0..a.blocks {
                let right = &right[(column * b.blocks + block) * 32..][..32];
                let dot = left[block * 32..][..32].iter().zip(right).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum();
                acc = add_block(acc, dot, a.scales[row * a.blocks + block], b.scales[column * b.blocks + block]);
            }
            output.finish(Portable, row - rows.start, column, column + 1, [acc; WIDTH]);
        }
    }
}
