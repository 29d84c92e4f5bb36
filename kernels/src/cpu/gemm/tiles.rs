//! MXFP4 products on matrix tiles (AMX-BF16): one instruction multiplies a block of 32 of sixteen rows by that of sixteen columns.
//!
//! The elements of both sides are BF16, already times their scale. TDPBF16PS adds the products of the even k in F32, those of the odd k
//! likewise, then both, and at last their sum to what a tile holds. Products of a block are multiples of 2^(eA + eB - 2), at most 144 times
//! that, so that up to the last addition nothing is rounded: what is left is the fused multiply-add that defines the result (`mxfp4`). The
//! instruction takes what is subnormal as 0, and a block's sum may overflow where the multiply-add's would not: see [`fit`].
//!
//! Three tiles of the left side and two of the right make six products of seven loads. A product of 4096 x 1536 x 256 reaches 30 % of the
//! instruction's peak on a Xeon, where both sides come from the second-level cache and C from beyond; with its lines fetched while the tiles
//! before are multiplied it took 0.82 to 0.98 of its time without.

use std::ops::Range;

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::super::panels::{Layout, Line, Panels, Side, elements_mut};
use super::amx::{Shaped, Tiles};
use super::blocked::{Fetch, Output};

/// Bytes of the right side that are worked on together: half of a second-level cache of 2 MiB, which every processor with tiles has.
const RIGHT_BYTES: usize = 1 << 20;

/// Blocks of a piece of k. With half as many a product over 768 k took 1.2 times as long on a Xeon: its sums go through memory once more.
const PIECE: usize = 32;

/// Rows and columns that are multiplied together: a group of either side.
const ROWS: usize = Side::Left.group();
const COLUMNS: usize = Side::Right.group();

/// Whether tiles give the defined result: nothing subnormal, no block's sum too large for F32, no block that is no number.
///
/// Elements are multiples of half their scale, so sums, however they are rounded, are multiples of a quarter of the product of both sides'
/// smallest scales: at least 2^-126. A block's sum is below 2^13 times a quarter of the product of the largest two: below 2^127.
pub(super) fn fit(left: &Panels, right: &Panels) -> bool {
    let [a, b] = [left, right].map(Panels::smallest_exponent);
    let [largest_a, largest_b] = [left, right].map(|side| u32::from(side.largest_scale));
    left.k > 0 && a > 0 && b > 0 && a + b >= 2 * 127 - 126 && largest_a.max(largest_b) <= 250 && largest_a + largest_b <= 2 * 127 + 116
}

/// Both sides and what is to be done with them.
struct Product<'a> {
    left: &'a Panels,
    right: &'a Panels,
    /// The right side's first block.
    first: usize,
    rows: Range<usize>,
}

/// The lines of a side from block `block` of the group that begins with `row`.
fn lines(side: &Panels, row: usize, block: usize) -> &[Line<u32>] {
    &side.words()[(row / side.side.group() * side.blocks() + block) * Layout::Tiles.unit(side.side).1..]
}

/// Rows `rows` (from a multiple of 48) of C = A Bᵀ, of B the blocks from `first`.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(
    l: L,
    tiles: Tiles,
    left: &Panels,
    (right, first): (&Panels, usize),
    rows: Range<usize>,
    mut output: Output<'_>,
) {
    tiles.run(
        #[inline(always)]
        |shaped| in_pieces(l, shaped, &Product { left, right, first, rows }, &mut output),
    );
}

#[inline(always)]
fn in_pieces<L: Lanes>(l: L, shaped: &Shaped, p: &Product<'_>, output: &mut Output<'_>) {
    let (blocks, columns) = (p.left.blocks(), p.right.rows);
    // Where the result is added to what C holds, C cannot hold a sum meanwhile.
    let pieces = if output.accumulate { 1 } else { blocks.div_ceil(PIECE) };
    let together = blocks.div_ceil(pieces);
    let panels = (RIGHT_BYTES / (size_of::<Line<u32>>() * Layout::Tiles.unit(Side::Right).1 * together)).max(1);
    let fetch = output.lines_a_tile(pieces * p.rows.len().div_ceil(ROWS) * columns.div_ceil(COLUMNS));
    for first_block in (0..blocks).step_by(together) {
        let piece = first_block..blocks.min(first_block + together);
        for first in (0..columns).step_by(panels * COLUMNS) {
            for row in p.rows.clone().step_by(ROWS) {
                for column in (first..columns.min(first + panels * COLUMNS)).step_by(COLUMNS) {
                    groups(l, shaped, p, &piece, (row, column), fetch, output);
                }
            }
        }
    }
}

/// 48 rows and 32 columns of C, fewer at its edges.
#[inline(always)]
fn groups<L: Lanes>(
    l: L,
    shaped: &Shaped,
    p: &Product<'_>,
    piece: &Range<usize>,
    (row, column): (usize, usize),
    fetch: usize,
    output: &mut Output<'_>,
) {
    let (rows, columns) = (ROWS.min(p.rows.end - row), COLUMNS.min(p.right.rows - column));
    let (is_first, is_last) = (piece.start == 0 && !output.goes_on, piece.end == p.left.blocks());
    let left = lines(p.left, row, piece.start);
    let right = lines(p.right, column, p.first + piece.start);
    let later = output.take_next(fetch);
    Fetch::new(later, 1).some(l);
    let (start, stride) = ((row - p.rows.start) * output.stride + column, output.stride);
    // What is written next: the columns beside these, or at the edge these.
    let next = (output.c[start..].as_ptr().wrapping_add(if columns == COLUMNS { COLUMNS } else { 0 }), stride);
    if rows == ROWS && columns == COLUMNS && !(is_last && output.changes()) {
        return shaped.multiply(left, right, piece.len(), (&mut output.c[start..], stride, !is_first), next);
    }
    let mut sums = [Line([0.0; WIDTH]); ROWS * COLUMNS / WIDTH];
    let at = |i: usize| start + i * stride;
    if !is_first {
        for (i, sums) in sums.chunks_exact_mut(COLUMNS / WIDTH).enumerate().take(rows) {
            let c = &output.c[at(i)..at(i) + columns];
            for (j, sum) in sums.iter_mut().enumerate().take(columns.div_ceil(WIDTH)) {
                l.store(get(l, c, j * WIDTH), &mut sum.0);
            }
        }
    }
    shaped.multiply(left, right, piece.len(), (elements_mut(&mut sums), COLUMNS, !is_first), next);
    for (i, sums) in sums.chunks_exact(COLUMNS / WIDTH).enumerate().take(rows) {
        for (j, sum) in sums.iter().enumerate().take(columns.div_ceil(WIDTH)) {
            let (sum, count) = (l.load(&sum.0), WIDTH.min(columns - j * WIDTH));
            if is_last {
                output.finish(l, at(i) + j * WIDTH, count, sum);
            } else {
                put(l, sum, &mut output.c[at(i)..at(i) + columns], j * WIDTH);
            }
        }
    }
}
