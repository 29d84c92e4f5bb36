//! Reading the source sixteen rows at a time: one register holds one column (one k) of sixteen rows.
//!
//! In this orientation block maxima, Hadamard butterflies and code packing need no operation across lanes, whichever way the
//! source is stored. A source stored `[rows, k]` is transposed in registers, 16 x 16 at a time.

use super::super::gemm::Matrix;
use super::super::lanes::{Lanes, WIDTH, get};
use super::element::round_to_bf16;

/// Columns that a chunk can have: the largest Hadamard transform.
pub(in super::super) const LARGEST: usize = 128;

/// Columns between what is read and what is fetched ahead, where the contraction axis is the slow one in memory.
const AHEAD: usize = 64;

/// What happens to an element before its scale is chosen.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) source: Matrix<'a>,
    /// Whether the source is rounded to BF16 first.
    pub(super) as_bf16: bool,
    /// Size of the Hadamard transform; 0 for none.
    pub(super) rotation: usize,
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
pub(super) fn read<L: Lanes>(l: L, reading: &Reading<'_>, row: usize, first: usize, fetch: Option<usize>, columns: &mut [L::F]) {
    read_plain(l, &reading.source, row, first, fetch, columns);
    if reading.as_bf16 {
        for x in columns.iter_mut() {
            *x = round_to_bf16(l, *x);
        }
    }
    if reading.rotation > 0 {
        for block in columns.chunks_exact_mut(reading.rotation) {
            if let Some(signs) = reading.signs {
                for (x, &sign) in block.iter_mut().zip(signs) {
                    *x = l.mul(*x, l.splat(sign));
                }
            }
            hadamard(l, block);
        }
    }
}

/// The elements as they are in memory. Where the contraction axis is the slow one, as many lines of memory are fetched ahead as are read:
/// in a row from element `fetch`, or, without it, some columns further on.
#[inline(always)]
pub(super) fn read_plain<L: Lanes>(l: L, source: &Matrix<'_>, row: usize, first: usize, fetch: Option<usize>, columns: &mut [L::F]) {
    let valid = source.k.saturating_sub(first).min(columns.len());
    let rows = source.rows.saturating_sub(row).min(WIDTH);
    let zero = l.splat(0.0);
    if rows == 0 || valid == 0 {
        columns.fill(zero);
    } else if source.row_stride == 1 {
        let whole = rows == WIDTH && valid == columns.len();
        let (ahead, step) = fetch.map_or(((first + AHEAD) * source.k_stride + row, source.k_stride), |fetch| (fetch, WIDTH));
        for (column, to) in columns.iter_mut().enumerate() {
            let start = (first + column) * source.k_stride + row;
            l.prefetch(source.values, ahead + column * step);
            *to = match source.values.get(start..).and_then(|x| x.first_chunk()) {
                Some(lanes) if whole => l.load(lanes),
                _ if column < valid => get(l, &source.values[start..start + rows], 0),
                _ => zero,
            };
        }
    } else if source.k_stride == 1 {
        let (squares, _) = columns.as_chunks_mut::<WIDTH>();
        for (i, square) in squares.iter_mut().enumerate() {
            let column = i * WIDTH;
            let count = valid.saturating_sub(column).min(WIDTH);
            let corner = &source.values[row * source.row_stride + first + column.min(valid)..];
            if count == WIDTH && rows == WIDTH {
                *square = whole_square(l, corner, source.row_stride);
                continue;
            }
            for (r, to) in square.iter_mut().enumerate() {
                *to = if r < rows && count > 0 { get(l, &corner[r * source.row_stride..][..count], 0) } else { zero };
            }
            l.transpose(square);
        }
    } else {
        for (column, to) in columns.iter_mut().enumerate() {
            let mut lanes = [0.0; WIDTH];
            if column < valid {
                for (r, lane) in lanes.iter_mut().enumerate().take(rows) {
                    *lane = source.values[(row + r) * source.row_stride + (first + column) * source.k_stride];
                }
            }
            *to = l.load(&lanes);
        }
    }
}

/// Sixteen columns of sixteen rows `stride` apart, all inside `corner`; those sixteen rows further on are fetched ahead.
#[inline(always)]
fn whole_square<L: Lanes>(l: L, corner: &[f32], stride: usize) -> [L::F; WIDTH] {
    let mut square = [l.splat(0.0); WIDTH];
    for (r, row) in square.iter_mut().enumerate() {
        if let Some(lanes) = corner.get(r * stride..).and_then(|x| x.first_chunk()) {
            *row = l.load(lanes);
        }
    }
    for r in WIDTH..2 * WIDTH {
        l.prefetch(corner, r * stride);
    }
    l.transpose(&mut square);
    square
}

/// Natural-order Sylvester transform along the slice, then times 1/sqrt(n) rounded to F32.
#[inline(always)]
fn hadamard<L: Lanes>(l: L, x: &mut [L::F]) {
    let norm = l.splat(crate::hadamard::factor(x.len()));
    let (registers, _) = x.as_chunks_mut::<WIDTH>();
    // Sizes 1, 2, 4, 8 stay inside sixteen registers.
    for group in registers.iter_mut() {
        let mut held = *group;
        butterfly::<L, 1>(l, &mut held);
        butterfly::<L, 2>(l, &mut held);
        butterfly::<L, 4>(l, &mut held);
        butterfly::<L, 8>(l, &mut held);
        *group = held;
    }
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
    for x in x.iter_mut() {
        *x = l.mul(*x, norm);
    }
}

#[inline(always)]
fn butterfly<L: Lanes, const HALF: usize>(l: L, x: &mut [L::F; WIDTH]) {
    for i in 0..WIDTH {
        if i & HALF == 0 {
            let (a, b) = (x[i], x[i + HALF]);
            x[i] = l.add(a, b);
            x[i + HALF] = l.sub(a, b);
        }
    }
}
