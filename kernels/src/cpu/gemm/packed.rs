//! Products with sixteen registers of eight elements: what a tile reads is copied close together before.
//!
//! Panels are laid out for tiles twice as wide and high. In F32 a tile of 6 rows by one vector uses 24 of each 192 bytes of the left side's
//! and every other line of the right side's: 256 k of the two are 32 KB, of which half lies in half of a first-level cache's sets, which
//! cannot hold it. Copied they are 22 KB in a row. The copy of a right side's vector stays in the first-level cache while the strips of the
//! left side, in the second-level cache, go past it. On Zen 3, 512 KB of it, a product of 2048 x 1024 x 1024 reached 82 % of the
//! multiply-adds' peak in a quiet quarter of an hour, and 63 % from the panels with one k a round; one of 4096 x 1536 x 256 85 % and 61 %.
//! MKL, in turns with it, reached 81 % and 84 %.
//!
//! A tile of MXFP4, of 3 rows, uses 12 of 192 bytes. Its product of 2048 x 1024 x 1024 took 0.8 of its time with copies there, and 0.5 to 0.6
//! once the compiler kept the order of its steps, too (`lanes::avx2`); medians of four and five turns.

use std::ops::Range;
use std::sync::Mutex;

use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{Line, Side};
use super::super::{borrowed, room};
use super::blocked::{self, Inner, Output, Piece, Product, Right, tile_at};

/// Bytes of the left side that are copied together, at most: they and what passes by share a second-level cache of 512 KB.
const LEFT_BYTES: usize = 192 << 10;

/// Elements of C of the smallest product that is worth copies: 48 x 32 x 128 was an eighth slower with them in F32, 96 x 128 x 128 as fast.
const FEWEST: usize = 3072;

/// A kind of product whose sides are copied. A group of its left side is a strip; LEFT_LINES and RIGHT_LINES count what a strip and one
/// vector hold of a unit, in lines of a strip's rows and of sixteen columns.
pub(super) trait Packed: Inner {
    /// Units of k of a piece: the right side's vector takes 16 to 18 KB of a first-level cache of 32.
    const PIECE: usize;

    /// Memory for both sides, and for sums.
    fn memory(copies: &mut Copies) -> (&mut Sides<Self::Element>, &mut Vec<f32>);
}

/// Memory for the copies.
#[derive(Debug, Default)]
pub(in super::super) struct Copies {
    pub(super) floats: Sides<f32>,
    pub(super) words: Sides<u32>,
    /// Where sums wait that cannot wait in C.
    pub(super) sums: Vec<f32>,
}

#[derive(Debug, Default)]
pub(super) struct Sides<T> {
    /// By strip, then by line, then by row.
    left: Vec<T>,
    right: Vec<Line<T>>,
}

/// C (+)= A Bᵀ: from the panels, in tiles of WIDE rows and two vectors or of NARROW rows and one, or from copies where these pay.
#[inline(always)]
pub(super) fn multiply<L: Lanes, I: Inner, C: Packed<Element = I::Element>, const WIDE: usize, const NARROW: usize>(
    l: L,
    (inner, copied): (I, C),
    product: &Product<'_, I::Element>,
    copies: &Mutex<Vec<Copies>>,
    output: &mut Output<'_>,
) {
    // Around `run`, not in it: what a plain function calls is not compiled with the instruction set.
    if L::COPIES && pays::<C>(product) {
        return borrowed(copies, |copies| {
            l.run(
                #[inline(always)]
                || from_copies::<L, C, NARROW>(l, copied, product, copies, output),
            );
        });
    }
    l.run(
        #[inline(always)]
        || match L::REGISTERS {
            32 => blocked::multiply::<L, I, WIDE, 2>(l, inner, product, output),
            _ => blocked::multiply::<L, I, NARROW, 1>(l, inner, product, output),
        },
    );
}

/// Whether the copies pay: a vector's is read by every strip, a strip's by every vector.
fn pays<I: Packed>(p: &Product<'_, I::Element>) -> bool {
    p.rows.len() > I::LEFT_GROUP && p.rows.len() * p.columns >= FEWEST
}

/// C (+)= A Bᵀ in tiles of ROWS rows, a strip's, and one vector.
#[inline(always)]
fn from_copies<L: Lanes, I: Packed, const ROWS: usize>(
    l: L,
    inner: I,
    p: &Product<'_, I::Element>,
    copies: &mut Copies,
    output: &mut Output<'_>,
) {
    const { assert!(ROWS == I::LEFT_GROUP && Side::Left.group().is_multiple_of(ROWS)) };
    let (sides, sums) = I::memory(copies);
    debug_assert!(!(output.accumulate && output.goes_on), "what the sum goes on with is in C, and C is what it is added to");
    // Where the result is added to what C holds, C cannot hold a sum between pieces.
    let is_apart = output.accumulate && p.units > I::PIECE;
    let Output { stride, accumulate, onto, factor, goes_on, next, .. } = *output;
    let mut target = if is_apart {
        let c = room(sums, output.c.len());
        Output { c, stride, accumulate: false, onto: Some(onto.unwrap_or(output.c)), factor, goes_on, next }
    } else {
        Output { c: output.c, stride, accumulate, onto, factor, goes_on, next }
    };
    in_pieces::<L, I, ROWS>(l, inner, p, sides, &mut target);
    if is_apart {
        for (to, from) in output.c.chunks_mut(stride).zip(sums.chunks(stride)).take(p.rows.len()) {
            to[..p.columns].copy_from_slice(&from[..p.columns]);
        }
    }
}

#[inline(always)]
fn in_pieces<L: Lanes, I: Packed, const ROWS: usize>(
    l: L,
    inner: I,
    p: &Product<'_, I::Element>,
    sides: &mut Sides<I::Element>,
    output: &mut Output<'_>,
) {
    let pieces = p.units.div_ceil(I::PIECE).max(1);
    let together = p.units.div_ceil(pieces).max(1);
    let row_bytes = size_of::<I::Element>() * I::LEFT_LINES * together;
    let blocks = p.rows.len().div_ceil((LEFT_BYTES / row_bytes).max(ROWS)).max(1);
    let height = p.rows.len().div_ceil(blocks).next_multiple_of(ROWS).max(ROWS);
    let fetch = output.lines_a_tile(pieces * p.rows.len().div_ceil(ROWS) * p.columns.div_ceil(WIDTH));
    for first in (0..p.units.max(1)).step_by(together) {
        let units = first..p.units.min(first + together);
        let (is_first, is_last) = (first == 0 && !output.goes_on, units.end == p.units);
        let piece = Piece { units: units.clone(), columns: 0..p.columns, is_first, is_last, fetch };
        let strip = units.len() * I::LEFT_LINES * ROWS;
        for row in p.rows.clone().step_by(height) {
            let rows = row..p.rows.end.min(row + height);
            let left = copy_left::<I, ROWS>(p, &rows, &units, &mut sides.left);
            for column in (0..p.columns).step_by(WIDTH) {
                let panel = copy_right::<I>(p, column, &units, &mut sides.right);
                let right = Right { panel, vector: 0, next: (panel, 0), later: &[] };
                for (number, row) in rows.clone().step_by(ROWS).enumerate() {
                    let left = &left[number * strip..][..strip];
                    let (to_row, height) = (row - p.rows.start, ROWS.min(rows.end - row));
                    // The rows below are next.
                    for i in ROWS..2 * ROWS {
                        l.prefetch(output.c, (to_row + i) * output.stride + column);
                    }
                    tile_at::<L, I, ROWS, 1>(l, inner, (left, 0), right, &piece, (to_row, height), (column, p.columns), output);
                }
            }
        }
    }
}

/// Strips of the rows, the last one whole too: a group's rows are there even if nothing is meant by them.
#[inline(always)]
fn copy_left<'a, I: Packed, const ROWS: usize>(
    p: &Product<'_, I::Element>,
    rows: &Range<usize>,
    units: &Range<usize>,
    to: &'a mut Vec<I::Element>,
) -> &'a [I::Element] {
    const GROUP: usize = Side::Left.group();
    let lines = units.len() * I::LEFT_LINES;
    let to = room(to, rows.len().div_ceil(ROWS) * lines * ROWS);
    for (strip, row) in rows.clone().step_by(ROWS).enumerate() {
        let first = (row / GROUP * p.units + units.start) * I::LEFT_LINES;
        let (from, _) = p.left[first * GROUP..][..lines * GROUP].as_chunks::<GROUP>();
        let (to, _) = to[strip * lines * ROWS..].as_chunks_mut::<ROWS>();
        for (to, from) in to.iter_mut().zip(from) {
            to.copy_from_slice(&from[row % GROUP..][..ROWS]);
        }
    }
    to
}

/// The vector of columns from `column`.
#[inline(always)]
fn copy_right<'a, I: Packed>(
    p: &Product<'_, I::Element>,
    column: usize,
    units: &Range<usize>,
    to: &'a mut Vec<Line<I::Element>>,
) -> &'a [Line<I::Element>] {
    const LINES: usize = Side::Right.lines();
    let (group, line) = (column / Side::Right.group(), column % Side::Right.group() / WIDTH);
    let first = (group * p.right_units + units.start) * I::RIGHT_LINES;
    let (from, _) = p.right[first * LINES..][..units.len() * I::RIGHT_LINES * LINES].as_chunks::<LINES>();
    let to = room(to, from.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = from[line];
    }
    to
}
