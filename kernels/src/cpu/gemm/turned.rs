//! C = A Bᵀ in F32 with Aᵀ in panels: what is the left side of one product as it lies is that of another one here, the other way round.
//!
//! acc = fma(a, b, acc) for each k in order, from 0, as in `float`.

use std::ops::Range;

use super::super::lanes::{Lanes, WIDTH, put};
use super::super::panels::{Line, Side};

/// Elements of k that lie together: rows of a group of Aᵀ.
const TOGETHER: usize = Side::Left.group();
const LINES: usize = Side::Right.lines();

/// Both sides, and which part of the product is meant.
pub(super) struct Product<'a> {
    /// By group of k, then by row of A: k of the group.
    pub(super) left: &'a [[f32; TOGETHER]],
    /// By group of columns, then by k.
    pub(super) right: &'a [[Line<f32>; LINES]],
    /// Rows of A.
    pub(super) height: usize,
    /// Those that are multiplied; the first is row 0 of C.
    pub(super) rows: Range<usize>,
    pub(super) columns: usize,
    pub(super) k: usize,
}

/// Overwrites `c`, rows of as many elements as there are columns.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(l: L, p: &Product<'_>, c: &mut [f32]) {
    match L::REGISTERS {
        32 => in_tiles::<L, 12, 2>(l, p, c),
        _ => in_tiles::<L, 6, 1>(l, p, c),
    }
}

#[inline(always)]
fn in_tiles<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, p: &Product<'_>, c: &mut [f32]) {
    for column in (0..p.columns).step_by(VECTORS * WIDTH) {
        let mut row = p.rows.start;
        while row < p.rows.end {
            let c = &mut c[(row - p.rows.start) * p.columns..];
            row += match p.rows.end - row {
                left if left >= ROWS => tile::<L, ROWS, VECTORS>(l, p, (row, column), c),
                4.. => tile::<L, 4, VECTORS>(l, p, (row, column), c),
                _ => tile::<L, 1, VECTORS>(l, p, (row, column), c),
            };
        }
    }
}

/// ROWS rows from `row`, the first of `c`, and the columns of VECTORS vectors from `column`. Returns ROWS.
#[inline(always)]
fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, p: &Product<'_>, (row, column): (usize, usize), c: &mut [f32]) -> usize {
    let (group, vector) = (column / Side::Right.group(), column % Side::Right.group() / WIDTH);
    let mut sums = [[l.splat(0.0); VECTORS]; ROWS];
    for (number, right) in p.right[group * p.k..][..p.k].chunks(TOGETHER).enumerate() {
        let Some(left) = p.left[number * p.height + row..].first_chunk::<ROWS>() else { return ROWS };
        for k in 0..right.len().min(TOGETHER) {
            let Some(b) = right[k][vector..].first_chunk::<VECTORS>() else { return ROWS };
            let mut vectors = [l.splat(0.0); VECTORS];
            for (vector, b) in vectors.iter_mut().zip(b) {
                *vector = l.load(&b.0);
            }
            for i in 0..ROWS {
                let a = l.splat(left[i][k]);
                for j in 0..VECTORS {
                    sums[i][j] = l.fma(a, vectors[j], sums[i][j]);
                }
            }
        }
    }
    for (sums, c) in sums.iter().zip(c.chunks_mut(p.columns)) {
        for (j, &sum) in sums.iter().enumerate().filter(|(j, _)| column + j * WIDTH < p.columns) {
            put(l, l.canonical(sum), c, column + j * WIDTH);
        }
    }
    ROWS
}
