//! F32 products with sixteen registers of eight elements: what a tile reads is copied close together before.
//!
//! Panels are laid out for tiles twice as wide and high. A tile of 6 rows by one vector uses 24 of each 192 bytes of the left side's and
//! every other line of the right side's: 256 k of the two are 32 KB, of which half lies in half of a first-level cache's sets, which cannot
//! hold it. Copied they are 22 KB in a row. The copy of a right side's vector stays in the first-level cache while the strips of the left
//! side, in the second-level cache, go past it. On Zen 3, 512 KB of it, a product of 2048 x 1024 x 1024 reached 82 % of the multiply-adds'
//! peak in a quiet quarter of an hour, and 63 % from the panels with one k a round; one of 4096 x 1536 x 256 85 % and 61 %. MKL, in turns
//! with it, reached 81 % and 84 %.

use std::ops::Range;

use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{Line, Side};
use super::super::room;
use super::blocked::{Inner, Output, Piece, Product, tile_at};
use super::float::step;

/// Rows of a tile.
const ROWS: usize = 6;

/// Elements of k of a piece: 16 KB of the right side's vector, half of a first-level cache.
const PIECE: usize = 256;

/// Bytes of the left side that are copied together, at most: they and what passes by share a second-level cache of 512 KB.
const LEFT_BYTES: usize = 192 << 10;

/// Elements of k in a round of the loop. One by one, counting and addresses are 7 of 27 instructions; four together are 10 to 20 % faster.
const TOGETHER: usize = 4;

/// Tiles of the smallest product that is worth copies: 48 x 32 x 128 was an eighth slower with them, 96 x 128 x 128 as fast.
const FEWEST_TILES: usize = 32;

const _: () = assert!(Side::Left.group().is_multiple_of(ROWS));

/// Memory for the copies.
#[derive(Debug, Default)]
pub(in super::super) struct Copies {
    /// By strip, then by k.
    left: Vec<[f32; ROWS]>,
    right: Vec<Line<f32>>,
    /// Where sums wait that cannot wait in C.
    sums: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Packed;

impl Inner for Packed {
    type Element = f32;
    const LEFT_GROUP: usize = ROWS;
    const LEFT_LINES: usize = 1;
    const RIGHT_LINES: usize = 1;

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        self,
        l: L,
        (left, _): (&[f32], usize),
        (right, _): (&[Line<f32>], usize),
        mut sums: [[L::F; VECTORS]; ROWS],
    ) -> [[L::F; VECTORS]; ROWS] {
        let (left, left_rest) = left.as_chunks::<ROWS>().0.as_chunks::<TOGETHER>();
        let (right, right_rest) = right.as_chunks::<VECTORS>().0.as_chunks::<TOGETHER>();
        for (left, right) in left.iter().zip(right) {
            for (a, b) in left.iter().zip(right) {
                sums = step(l, a, b, sums);
            }
        }
        for (a, b) in left_rest.iter().zip(right_rest) {
            sums = step(l, a, b, sums);
        }
        sums
    }
}

/// Whether the copies pay: a vector's is read by every strip, a strip's by every vector.
pub(super) fn pays(p: &Product<'_, f32>) -> bool {
    let strips = p.rows.len().div_ceil(ROWS);
    strips > 1 && strips * p.columns.div_ceil(WIDTH) >= FEWEST_TILES
}

/// C (+)= A Bᵀ.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(l: L, p: &Product<'_, f32>, copies: &mut Copies, output: &mut Output<'_>) {
    let Copies { left, right, sums } = copies;
    // Where the result is added to what C holds, C cannot hold a sum between pieces.
    let is_apart = output.accumulate && p.units > PIECE;
    let Output { stride, accumulate, onto, factor, goes_on, next, .. } = *output;
    let mut target = if is_apart {
        let c = room(sums, output.c.len());
        Output { c, stride, accumulate: false, onto: Some(onto.unwrap_or(output.c)), factor, goes_on, next }
    } else {
        Output { c: output.c, stride, accumulate, onto, factor, goes_on, next }
    };
    in_pieces(l, p, (left, right), &mut target);
    if is_apart {
        for (to, from) in output.c.chunks_mut(stride).zip(sums.chunks(stride)).take(p.rows.len()) {
            to[..p.columns].copy_from_slice(&from[..p.columns]);
        }
    }
}

#[inline(always)]
fn in_pieces<L: Lanes>(
    l: L,
    p: &Product<'_, f32>,
    (left_copy, right_copy): (&mut Vec<[f32; ROWS]>, &mut Vec<Line<f32>>),
    output: &mut Output<'_>,
) {
    let pieces = p.units.div_ceil(PIECE).max(1);
    let together = p.units.div_ceil(pieces).max(1);
    let blocks = p.rows.len().div_ceil((LEFT_BYTES / (size_of::<f32>() * together)).max(ROWS)).max(1);
    let height = p.rows.len().div_ceil(blocks).next_multiple_of(ROWS).max(ROWS);
    let fetch = output.lines_a_tile(pieces * p.rows.len().div_ceil(ROWS) * p.columns.div_ceil(WIDTH));
    for first in (0..p.units.max(1)).step_by(together) {
        let units = first..p.units.min(first + together);
        let (is_first, is_last) = (first == 0 && !output.goes_on, units.end == p.units);
        let piece = Piece { units: units.clone(), columns: 0..p.columns, is_first, is_last, fetch };
        for row in p.rows.clone().step_by(height) {
            let rows = row..p.rows.end.min(row + height);
            let left = copy_left(p, &rows, &units, left_copy);
            for column in (0..p.columns).step_by(WIDTH) {
                let right = copy_right(p, column, &units, right_copy);
                for (strip, row) in rows.clone().step_by(ROWS).enumerate() {
                    let left = left[strip * units.len()..][..units.len()].as_flattened();
                    let (to_row, height) = (row - p.rows.start, ROWS.min(rows.end - row));
                    // The rows below are next.
                    for i in ROWS..2 * ROWS {
                        l.prefetch(output.c, (to_row + i) * output.stride + column);
                    }
                    tile_at::<L, Packed, ROWS, 1>(l, Packed, (left, 0), (right, 0), &piece, (to_row, height), (column, p.columns), output);
                }
            }
        }
    }
}

/// Strips of the rows, the last one whole too: a group's rows are there even if nothing is meant by them.
#[inline(always)]
fn copy_left<'a>(p: &Product<'_, f32>, rows: &Range<usize>, units: &Range<usize>, to: &'a mut Vec<[f32; ROWS]>) -> &'a [[f32; ROWS]] {
    const GROUP: usize = Side::Left.group();
    let to = room(to, rows.len().div_ceil(ROWS) * units.len());
    for (strip, row) in rows.clone().step_by(ROWS).enumerate() {
        let (from, _) = p.left[(row / GROUP * p.units + units.start) * GROUP..][..units.len() * GROUP].as_chunks::<GROUP>();
        for (to, from) in to[strip * units.len()..].iter_mut().zip(from) {
            to.copy_from_slice(&from[row % GROUP..][..ROWS]);
        }
    }
    to
}

/// The vector of columns from `column`.
#[inline(always)]
fn copy_right<'a>(p: &Product<'_, f32>, column: usize, units: &Range<usize>, to: &'a mut Vec<Line<f32>>) -> &'a [Line<f32>] {
    const LINES: usize = Side::Right.lines();
    let (group, line) = (column / Side::Right.group(), column % Side::Right.group() / WIDTH);
    let (from, _) = p.right[(group * p.right_units + units.start) * LINES..][..units.len() * LINES].as_chunks::<LINES>();
    let to = room(to, units.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = from[line];
    }
    to
}
