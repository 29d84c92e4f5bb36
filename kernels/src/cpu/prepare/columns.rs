//! Reading the source sixteen rows at a time: one register holds one column (one k) of sixteen rows.
//!
//! In this orientation block maxima, Hadamard butterflies and code packing need no operation across lanes, whichever way the
//! source is stored. A source stored `[rows, k]` is transposed in registers, 16 x 16 at a time.

use super::super::gemm::Matrix;
use super::super::lanes::{Lanes, WIDTH};
use super::Ahead;
use super::element::round_to_bf16;

/// Columns that a chunk can have: the largest Hadamard transform.
pub(in super::super) const LARGEST: usize = 128;

/// Columns between what is read and what is fetched ahead, where the contraction axis is the slow one in memory.
const COLUMNS_AHEAD: usize = 64;

/// What happens to an element before its scale is chosen.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) source: Matrix<'a>,
    /// Whether the source is rounded to BF16 first.
    pub(super) as_bf16: bool,
    /// Size of the Hadamard transform; 0 for none.
    pub(super) rotation: usize,
    /// What the transform is multiplied by: 1/sqrt(size), rounded to F32; or 1, where that is left to the reader.
    pub(super) norm: f32,
    /// Signs before the transform.
    pub(super) signs: Option<&'a [f32]>,
}

impl Reading<'_> {
    /// Columns read together: whole blocks of 32 and whole transforms.
    pub(super) fn chunk(&self) -> usize {
        self.rotation.max(32)
    }
}

/// Reads rows `row..row + 16` and columns `first..` into `columns`, as BF16 and rotated if that is asked for; zeros beyond the matrix.
#[inline(always)]
pub(super) fn read<L: Lanes>(l: L, reading: &Reading<'_>, row: usize, first: usize, ahead: Ahead, columns: &mut [L::F]) {
    let (squares, _) = columns.as_chunks_mut::<WIDTH>();
    for (i, square) in squares.iter_mut().enumerate() {
        fill_square::<L>(
            l,
            square,
            #[inline(always)]
            |square| read_square(l, reading, row, first, ahead, i, square),
        );
    }
    if reading.rotation > WIDTH {
        for block in columns.chunks_exact_mut(reading.rotation) {
            rest_of_hadamard(l, block, reading.norm);
        }
    }
}

/// Fills a square in memory: from registers, where it fits into them while it is worked on; otherwise where it lies, since a copy of a square
/// is a call, around which no register is kept.
#[inline(always)]
pub(super) fn fill_square<L: Lanes>(l: L, square: &mut [L::F; WIDTH], fill: impl FnOnce(&mut [L::F; WIDTH])) {
    if L::REGISTERS < 32 {
        return fill(square);
    }
    let mut registers = [l.splat(0.0); WIDTH];
    fill(&mut registers);
    *square = registers;
}

/// Square `i` of [`read`]: sixteen columns. Of a transform that is larger than that the rest is left to do.
#[inline(always)]
pub(super) fn read_square<L: Lanes>(
    l: L,
    reading: &Reading<'_>,
    row: usize,
    first: usize,
    ahead: Ahead,
    i: usize,
    square: &mut [L::F; WIDTH],
) {
    read_plain(l, &reading.source, row, first, ahead, i, square);
    if reading.as_bf16 {
        for x in square.iter_mut() {
            *x = round_to_bf16(l, *x);
        }
    }
    if reading.rotation > 0 {
        if let Some(signs) = reading.signs.and_then(|signs| signs[i * WIDTH % reading.rotation..].first_chunk::<WIDTH>()) {
            for (x, &sign) in square.iter_mut().zip(signs) {
                *x = l.mul(*x, l.splat(sign));
            }
        }
        // Natural-order Sylvester transform: sizes 1, 2, 4, 8.
        l.hadamard(square);
        if reading.rotation == WIDTH && reading.norm != 1.0 {
            for x in square.iter_mut() {
                *x = l.mul(*x, l.splat(reading.norm));
            }
        }
    }
}

/// The elements of square `i` after column `first` as they are in memory. `ahead` is that of square 0.
#[inline(always)]
pub(super) fn read_plain<L: Lanes>(
    l: L,
    source: &Matrix<'_>,
    row: usize,
    first: usize,
    ahead: Ahead,
    i: usize,
    square: &mut [L::F; WIDTH],
) {
    let column = first + i * WIDTH;
    let start = row * source.row_stride + column * source.k_stride;
    let is_transposed = source.row_stride == 1;
    // First element, and from one line to the next.
    let fetched = match (ahead, is_transposed) {
        (Ahead::Nothing, _) => None,
        (Ahead::From(from), true) => Some((from + i * WIDTH * WIDTH, WIDTH)),
        (Ahead::Near, true) => Some((start + COLUMNS_AHEAD * source.k_stride, source.k_stride)),
        (Ahead::Near | Ahead::From(_), false) => Some((start + WIDTH * source.row_stride, source.row_stride)),
    };
    if let Some((from, step)) = fetched {
        for line in 0..WIDTH {
            l.prefetch(source.values, from + line * step);
        }
    }
    let stride = if is_transposed { source.k_stride } else { source.row_stride };
    let is_whole = row + WIDTH <= source.rows && column + WIDTH <= source.k && (is_transposed || source.k_stride == 1);
    if !is_whole || !load_square(l, source.values, start, stride, square) {
        let edge = edge(source, row, column);
        for (register, lanes) in square.iter_mut().zip(&edge) {
            *register = l.load(lanes);
        }
        return;
    }
    if !is_transposed {
        l.transpose(square);
    }
}

/// Sixteen registers, the first from element `start`, each `stride` elements after the one before, if all of them lie inside.
#[inline(always)]
fn load_square<L: Lanes>(l: L, values: &[f32], start: usize, stride: usize, square: &mut [L::F; WIDTH]) -> bool {
    let last = stride.saturating_mul(WIDTH - 1).saturating_add(start);
    if last.saturating_add(WIDTH) > values.len() {
        return false;
    }
    for (i, register) in square.iter_mut().enumerate() {
        // SAFETY: `start + i * stride` is at most `last`, from which sixteen elements lie inside `values`. One check for all of them: one for
        // each takes as long as the transpose.
        let lanes = unsafe { &*values.as_ptr().add(start + i * stride).cast::<[f32; WIDTH]>() };
        *register = l.load(lanes);
    }
    true
}

/// Any square, column by column, with zeros beyond the matrix. Apart from the rest, so that the compiler keeps the loops around it small.
#[inline(never)]
fn edge(source: &Matrix<'_>, row: usize, column: usize) -> [[f32; WIDTH]; WIDTH] {
    let mut square = [[0.0; WIDTH]; WIDTH];
    for (c, lanes) in square.iter_mut().enumerate().take(source.k.saturating_sub(column)) {
        for (r, lane) in lanes.iter_mut().enumerate().take(source.rows.saturating_sub(row)) {
            *lane = source.values[(row + r) * source.row_stride + (column + c) * source.k_stride];
        }
    }
    square
}

/// The sizes from 16 of a Sylvester transform along the slice, then times `norm`.
#[inline(always)]
fn rest_of_hadamard<L: Lanes>(l: L, x: &mut [L::F], norm: f32) {
    let mut half = WIDTH;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (l.add(*a, *b), l.sub(*a, *b));
            }
        }
        half *= 2;
    }
    if norm != 1.0 {
        for x in x.iter_mut() {
            *x = l.mul(*x, l.splat(norm));
        }
    }
}
