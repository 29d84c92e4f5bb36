//! C = A Bᵀ in F32 with Aᵀ in panels: what is the left side of one product as it lies is that of another one here, the other way round.
//!
//! acc = fma(a, b, acc) for each k in order, from 0, as in `float`. A piece of k after the other: the right side's vectors of a piece lie close
//! together, copied where a tile is half a group wide, and stay in the first-level cache while the rows of the left side, in the second-level
//! cache, go past them. Between pieces a sum waits in C. On Zen 3 the head's product of 4096 x 256 x 4096 takes 0.8 to 0.9 of its time without
//! pieces.

use std::ops::Range;

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::super::panels::{Line, Side};

/// Elements of k that lie together: rows of a group of Aᵀ.
const TOGETHER: usize = Side::Left.group();
const LINES: usize = Side::Right.lines();

/// k of a piece: 12 KB of one vector, 24 KB of two. Half and twice as many took the same time on Zen 3.
const PIECE: usize = 4 * TOGETHER;

/// Elements of k in a round, as in `float`.
const ROUND: usize = 4;

const _: () = assert!(TOGETHER.is_multiple_of(ROUND));

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

/// A piece of k for some columns of C.
struct Piece<'a, const VECTORS: usize> {
    /// The left side's groups of k from the first of the piece on.
    left: &'a [[f32; TOGETHER]],
    right: &'a [[Line<f32>; VECTORS]],
    height: usize,
    /// The first column, and how many there are in a row of C.
    column: usize,
    columns: usize,
    is_first: bool,
    is_last: bool,
}

/// Overwrites `c`, rows of as many elements as there are columns.
#[inline(always)]
pub(super) fn multiply<L: Lanes>(l: L, p: &Product<'_>, c: &mut [f32]) {
    match L::REGISTERS {
        32 => in_pieces::<L, 12, 2>(l, p, c),
        _ => in_pieces::<L, 6, 1>(l, p, c),
    }
}

#[inline(always)]
fn in_pieces<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, p: &Product<'_>, c: &mut [f32]) {
    if p.k == 0 {
        c.fill(0.0);
    }
    let mut copy = [[Line([0.0; WIDTH]); VECTORS]; PIECE];
    for first in (0..p.k).step_by(PIECE) {
        let last = p.k.min(first + PIECE);
        for column in (0..p.columns).step_by(VECTORS * WIDTH) {
            let (group, vector) = (column / Side::Right.group(), column % Side::Right.group() / WIDTH);
            let from = &p.right[group * p.k..][first..last];
            let right = if VECTORS == LINES {
                from.as_flattened().as_chunks().0
            } else {
                for (copy, from) in copy.iter_mut().zip(from) {
                    // Line by line: a copy of a slice is a call.
                    for (copy, line) in copy.iter_mut().zip(&from[vector..]) {
                        *copy = *line;
                    }
                }
                &copy[..from.len()]
            };
            let piece = Piece {
                left: &p.left[first / TOGETHER * p.height..],
                right,
                height: p.height,
                column,
                columns: p.columns,
                is_first: first == 0,
                is_last: last == p.k,
            };
            let mut row = p.rows.start;
            while row < p.rows.end {
                let c = &mut c[(row - p.rows.start) * p.columns..];
                row += match p.rows.end - row {
                    rows if rows >= ROWS => tile::<L, ROWS, VECTORS>(l, &piece, row, c),
                    4.. => tile::<L, 4, VECTORS>(l, &piece, row, c),
                    _ => tile::<L, 1, VECTORS>(l, &piece, row, c),
                };
            }
        }
    }
}

/// ROWS rows from `row`, the first of `c`, and the piece's columns. Returns ROWS.
#[inline(always)]
fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(l: L, piece: &Piece<'_, VECTORS>, row: usize, c: &mut [f32]) -> usize {
    let Piece { column, columns, .. } = *piece;
    let is_whole = column + VECTORS * WIDTH <= columns;
    let mut sums = [[l.splat(0.0); VECTORS]; ROWS];
    if !piece.is_first {
        for (i, sums) in sums.iter_mut().enumerate() {
            if is_whole {
                let (c, _) = c[i * columns + column..][..VECTORS * WIDTH].as_chunks();
                for (sum, c) in sums.iter_mut().zip(c) {
                    *sum = l.load(c);
                }
            } else {
                let c = &c[i * columns..][..columns];
                for (j, sum) in sums.iter_mut().enumerate().filter(|(j, _)| column + j * WIDTH < columns) {
                    *sum = get(l, c, column + j * WIDTH);
                }
            }
        }
    }
    let mut sums = multiplied(l, piece, row, sums);
    if piece.is_last {
        sums = l.canonical_all(sums);
    }
    for (i, sums) in sums.iter().enumerate() {
        if is_whole {
            let (c, _) = c[i * columns + column..][..VECTORS * WIDTH].as_chunks_mut();
            for (&sum, c) in sums.iter().zip(c) {
                l.store(sum, c);
            }
        } else {
            let c = &mut c[i * columns..][..columns];
            for (j, &sum) in sums.iter().enumerate().filter(|(j, _)| column + j * WIDTH < columns) {
                put(l, sum, c, column + j * WIDTH);
            }
        }
    }
    ROWS
}

/// `sums` and the products of all k of the piece.
#[inline(always)]
fn multiplied<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    piece: &Piece<'_, VECTORS>,
    row: usize,
    mut sums: [[L::F; VECTORS]; ROWS],
) -> [[L::F; VECTORS]; ROWS] {
    for (left, right) in piece.left[row..].chunks(piece.height).zip(piece.right.chunks(TOGETHER)) {
        let Some(left) = left.first_chunk() else { return sums };
        let (rounds, rest) = right.as_chunks::<ROUND>();
        for (round, right) in rounds.iter().enumerate().take(TOGETHER / ROUND) {
            for (within, b) in right.iter().enumerate() {
                sums = step(l, left, round * ROUND + within, b, sums);
            }
        }
        for (k, b) in (rounds.len() * ROUND..TOGETHER).zip(rest) {
            sums = step(l, left, k, b, sums);
        }
    }
    sums
}

/// `sums` and the products of one k. Gathered into an array first, the left side's elements would be fetched by slow instructions.
#[inline(always)]
fn step<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    l: L,
    left: &[[f32; TOGETHER]; ROWS],
    k: usize,
    b: &[Line<f32>; VECTORS],
    mut sums: [[L::F; VECTORS]; ROWS],
) -> [[L::F; VECTORS]; ROWS] {
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
    sums
}
