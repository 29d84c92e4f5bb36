//! MXFP4 products: exact integer dot products of blocks of 32, one fused multiply-add a block.
//!
//! Twice an E2M1 value is one of 0, 1, 2, 3, 4, 6, 8, 12 and their negatives. B's elements are unsigned bytes, doubled value + 12;
//! A's are signed bytes, the doubled value. A block of A has an anchor, the F32 number 1.5 * 2^23 * sA with sA = 2^eA / 4. A 32-bit sum that
//! starts at its bit pattern, less 12 times the sum of the block, then *is* the pattern of (1.5 * 2^23 + dot) * sA, because
//! |dot| <= 32 * 144 < 2^22.
//!
//! t = (1.5 * 2^23 + dot) * sA - 1.5 * 2^23 * sA is dot * sA exactly, and acc = fma(t, 2^eB, acc) is the defined result.
//!
//! The anchor has to be finite. Matrices with larger scales take `slow`, which is also the definition in plain code.
//!
//! The ladder. A block of 32 takes 8 dot-product instructions for sixteen elements of C, a subtraction and a multiply-add. Where additions have
//! ports of their own (AMD), that is 89 % of the integer peak at best; where all of them share two (Intel), 80 %. 6 rows by 2 vectors keep 12
//! sums, 12 results and two vectors of B in 32 registers (AVX-512 VNNI); 3 by 1 in 16 registers with the same instruction of 256 bits
//! (AVX-VNNI), or with two instructions of 16-bit sums, which cannot overflow (AVX2, from copies of both sides: `packed`). There eight elements
//! of C take 16 of them and 4 others a block, which is 80 % of their peak at best.
//!
//! On a Xeon the product of 2048 x 1024 x 1024 reaches 63 to 66 % of the integer peak in the steadiest measurements. Tried there in turns:
//! fetching the right side's lines ahead gains 0 to 2 %; a panel that stays in the first-level cache, while rows from the second go past it,
//! loses 3 to 17 %.
//!
//! A matrix unit for integers (AMX-INT8) was tried and left out: each block's sums have to come back through memory to be scaled, and the unit
//! keeps a port busy that the scaling needs. 1.15 to 1.25 times this kernel on a Sapphire Rapids, nothing once quantisation is counted. That
//! for BF16 scales by itself: `tiles`.

use std::ops::Range;
use std::sync::Mutex;

use super::super::lanes::portable::Portable;
use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{Line, Panels, STEPS, Side, elements};
use super::blocked::{Fetch, Inner, Output, Product, Right};
use super::packed::{self, Copies, Packed, Sides};
use crate::format::e8m0;
use crate::quantise::BLOCK;

/// Largest scale byte of A for the fast kernels: its anchor, 1.5 * 2^23 * 2^(233 - 127) / 4, is finite.
const LARGEST_FAST_SCALE: u8 = 233;

/// Rows of a tile with sixteen registers: six sums and six results leave four.
pub(super) const NARROW_ROWS: usize = 3;

#[derive(Clone, Copy)]
struct Integer;

impl Inner for Integer {
    type Element = u32;
    const LEFT_GROUP: usize = Side::Left.group();
    const LEFT_LINES: usize = Side::Left.block_lines();
    const RIGHT_LINES: usize = Side::Right.block_lines();

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        self,
        l: L,
        (left, row): (&[u32], usize),
        right: Right<'_, u32>,
        mut results: [[L::F; VECTORS]; ROWS],
    ) -> [[L::F; VECTORS]; ROWS] {
        let (vector, mut later) = (right.vector, Fetch::new(right.later, right.panel.len() / Self::RIGHT_LINES));
        let (left, _) = left.as_chunks::<{ Side::Left.group() }>();
        let (right, _) = right.panel.as_chunks::<{ Side::Right.lines() }>();
        for (a, b) in left.chunks_exact(STEPS + 2).zip(right.chunks_exact(STEPS + 1)) {
            let (Some(starts), Some(anchors)) = (a[STEPS][row..].first_chunk(), a[STEPS + 1][row..].first_chunk()) else { return results };
            later.some(l);
            let mut sums = begin(l, starts);
            for (a, b) in a[..STEPS].iter().zip(&b[..STEPS]) {
                let (Some(a), Some(b)) = (a[row..].first_chunk(), b[vector..].first_chunk()) else { return results };
                sums = step(l, a, b, sums);
            }
            let Some(scales) = b[STEPS][vector..].first_chunk() else { return results };
            results = finish(l, (starts, anchors), scales, sums, results);
        }
        results
    }
}

/// [`Integer`] of sides that were copied.
#[derive(Clone, Copy)]
struct CopiedBlocks;

impl Packed for CopiedBlocks {
    const PIECE: usize = 32;

    fn memory(copies: &mut Copies) -> (&mut Sides<u32>, &mut Vec<f32>) {
        (&mut copies.words, &mut copies.sums)
    }
}

impl Inner for CopiedBlocks {
    type Element = u32;
    const LEFT_GROUP: usize = NARROW_ROWS;
    const LEFT_LINES: usize = STEPS + 2;
    const RIGHT_LINES: usize = STEPS + 1;

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        self,
        l: L,
        (left, _): (&[u32], usize),
        right: Right<'_, u32>,
        mut results: [[L::F; VECTORS]; ROWS],
    ) -> [[L::F; VECTORS]; ROWS] {
        let mut later = Fetch::new(right.later, right.panel.len() / Self::RIGHT_LINES);
        let (left, _) = left.as_chunks().0.as_chunks::<{ STEPS + 2 }>();
        let (right, _) = right.panel.as_chunks().0.as_chunks::<{ STEPS + 1 }>();
        for (a, b) in left.iter().zip(right) {
            later.some(l);
            let mut sums = begin(l, &a[STEPS]);
            for (a, b) in a[..STEPS].iter().zip(&b[..STEPS]) {
                sums = step(l, a, b, sums);
            }
            results = finish(l, (&a[STEPS], &a[STEPS + 1]), &b[STEPS], sums, results);
        }
        results
    }
}

/// What a block's sums begin with.
#[inline(always)]
fn begin<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, starts: &[u32; ROWS]) -> [[L::Dot; VECTORS]; ROWS] {
    let mut sums = [[l.dot_start(l.splat_u(0)); VECTORS]; ROWS];
    for (sums, &start) in sums.iter_mut().zip(starts) {
        *sums = [l.dot_start(l.splat_u(start)); VECTORS];
    }
    sums
}

/// `sums` and the products of four elements of k.
#[inline(always)]
fn step<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    a: &[u32; ROWS],
    b: &[Line<u32>; VECTORS],
    mut sums: [[L::Dot; VECTORS]; ROWS],
) -> [[L::Dot; VECTORS]; ROWS] {
    let mut columns = [l.splat_u(0); VECTORS];
    for (column, b) in columns.iter_mut().zip(b) {
        *column = l.load_u(&b.0);
    }
    for i in 0..ROWS {
        let a = l.splat_u(a[i]);
        for j in 0..VECTORS {
            sums[i][j] = l.dot_add(sums[i][j], columns[j], a);
        }
    }
    sums
}

/// `results` and a block's sums, scaled.
#[inline(always)]
fn finish<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    (starts, anchors): (&[u32; ROWS], &[u32; ROWS]),
    scales: &[Line<u32>; VECTORS],
    sums: [[L::Dot; VECTORS]; ROWS],
    mut results: [[L::F; VECTORS]; ROWS],
) -> [[L::F; VECTORS]; ROWS] {
    let mut factors = [l.splat(0.0); VECTORS];
    for (factor, scale) in factors.iter_mut().zip(scales) {
        *factor = l.floats(l.load_u(&scale.0));
    }
    for i in 0..ROWS {
        let anchor = l.splat(f32::from_bits(anchors[i]));
        for j in 0..VECTORS {
            let anchored = l.floats(l.dot_finish(sums[i][j], l.splat_u(starts[i])));
            results[i][j] = l.fma(l.sub(anchored, anchor), factors[j], results[i][j]);
        }
    }
    results
}

/// Rows `rows` (from a multiple of 12) of C = A Bᵀ, of B the blocks from `first`.
#[inline(never)]
pub(super) fn multiply<L: Lanes>(
    l: L,
    left: &Panels,
    (right, first): (&Panels, usize),
    rows: Range<usize>,
    copies: &Mutex<Vec<Copies>>,
    mut output: Output<'_>,
) {
    if left.largest_scale > LARGEST_FAST_SCALE {
        return slow(left, (right, first), rows, &mut output);
    }
    let product = Product {
        left: elements(left.words()),
        right: right.words().get(first * Side::Right.block_lines()..).unwrap_or_default(),
        rows,
        columns: right.rows,
        units: left.blocks(),
        right_units: right.blocks(),
    };
    packed::multiply::<L, _, _, 6, NARROW_ROWS>(l, (Integer, CopiedBlocks), &product, copies, &mut output);
}

/// acc + dot * 2^(eA + eB - 2), rounded once, for every scale byte: the definition that the fast kernels must meet.
#[inline(always)]
fn add_block(acc: f32, dot: i32, a: u8, b: u8) -> f32 {
    if a == e8m0::NAN || b == e8m0::NAN {
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
fn slow(left: &Panels, (right, first): (&Panels, usize), rows: Range<usize>, output: &mut Output<'_>) {
    let blocks = left.blocks();
    let block = |i: usize| (i / blocks, first + i % blocks);
    let columns: Vec<([i8; BLOCK], u8)> =
        (0..right.rows * blocks).map(block).map(|(row, block)| (right.doubled(row, block), right.scale_byte(row, block))).collect();
    for row in rows.clone() {
        let a: Vec<_> = (0..blocks).map(|block| (left.doubled(row, block), left.scale_byte(row, block))).collect();
        for (column, b) in columns.chunks_exact(blocks.max(1)).enumerate() {
            let mut acc = output.before(row - rows.start, column);
            for ((a, a_byte), (b, b_byte)) in a.iter().zip(b) {
                let dot = a.iter().zip(b).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum();
                acc = add_block(acc, dot, *a_byte, *b_byte);
            }
            output.finish(Portable::new(), (row - rows.start) * output.stride + column, 1, [acc; WIDTH]);
        }
    }
}
