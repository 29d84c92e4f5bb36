//! The loops around a tile of C, the same for every kind of product.
//!
//! A tile (rows by vectors of sixteen columns) stays in registers along k. Around it, from the inside: the panels of the right side that
//! fit half a second-level cache, the rows of the left side, and a piece of k so short that a strip of the left side stays in the
//! first-level cache. Between pieces of k a sum waits in C, which keeps its bits: the order of arithmetic does not depend on any of this.

use std::ops::Range;

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::super::panels::{Line, Side};

/// Bytes of the right side that are worked on together: half of a second-level cache of 1 MiB.
const RIGHT_BYTES: usize = 1 << 19;

/// Bytes of a panel of one piece of k: 512 k in F32, 1,792 in MXFP4. Sums wait in C half as often as with 32 KB. A prototype of 2048 x 1024 x
/// 1024 took 29.3 ms in F32 with 64 KB and 34.3 ms with 32 KB on a Xeon with 2 MB of second-level cache, and 9.2 and 9.5 ms in MXFP4. On
/// Zen 5 16 and 32 KB took the same time; 64 KB was not measured there.
const PIECE_BYTES: usize = 1 << 16;

/// The inner loop of a kind of product.
pub(super) trait Inner: Copy {
    /// What panels are made of.
    type Element: Copy + Default;
    /// Rows of a group of the left side; tiles do not cross its border.
    const LEFT_GROUP: usize;
    /// Lines of one unit of k (an element, or a block of 32) in a group of the left side.
    const LEFT_LINES: usize;
    /// Lines of one unit of k in a group of the right side.
    const RIGHT_LINES: usize;

    /// `sums` and the products of all units. `left` holds whole units of a group, of which ROWS rows from `row` are meant. Sums come and go
    /// by value: behind a reference the compiler keeps them in memory around the loop, which costs a tile of 256 units 3 % of its time.
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        self,
        l: L,
        left: (&[Self::Element], usize),
        right: Right<'_, Self::Element>,
        sums: [[L::F; VECTORS]; ROWS],
    ) -> [[L::F; VECTORS]; ROWS];
}

/// What a tile reads of the right side.
#[derive(Clone, Copy)]
pub(super) struct Right<'a, T> {
    /// Whole units of a group, of which as many vectors as a tile has are meant, from `vector`.
    pub(super) panel: &'a [Line<T>],
    pub(super) vector: usize,
    /// What is read next: a panel of as many units, and from which of its vectors. It may be fetched meanwhile.
    pub(super) next: (&'a [Line<T>], usize),
    /// The tile's part of what is read after the product: see [`Fetch`].
    pub(super) later: &'a [f32],
}

/// What is fetched as far as the second-level cache while a tile is multiplied, some lines in each of its rounds: all at once would hold up
/// the tile's own loads, because a core waits for sixteen lines or so at a time.
pub(super) struct Fetch<'a> {
    rest: &'a [f32],
    /// Elements, whole lines of them.
    a_round: usize,
}

impl<'a> Fetch<'a> {
    #[inline(always)]
    pub(super) fn new(later: &'a [f32], rounds: usize) -> Self {
        Self { rest: later, a_round: later.len().div_ceil(WIDTH).div_ceil(rounds.max(1)) * WIDTH }
    }

    /// A round's lines.
    #[inline(always)]
    pub(super) fn some<L: Lanes>(&mut self, l: L) {
        let (now, rest) = self.rest.split_at(self.a_round.min(self.rest.len()));
        for at in (0..now.len()).step_by(WIDTH) {
            l.prefetch_far(now, at);
        }
        self.rest = rest;
    }
}

/// Where a product goes.
pub(in super::super) struct Output<'a> {
    pub(in super::super) c: &'a mut [f32],
    pub(in super::super) stride: usize,
    pub(in super::super) accumulate: bool,
    /// What the product is added to instead of what C holds; it lies as C does.
    pub(in super::super) onto: Option<&'a [f32]>,
    pub(in super::super) factor: f32,
    /// Whether C holds the sum over earlier k, with which this one goes on.
    pub(in super::super) goes_on: bool,
    /// What is read after the product: fetched meanwhile, a few lines a tile, because a product leaves the way to memory idle. One after the other.
    pub(in super::super) next: [&'a [f32]; 2],
}

impl<'a> Output<'a> {
    /// The next `lines` lines of what comes after the product.
    #[inline(always)]
    pub(super) fn take_next(&mut self, lines: usize) -> &'a [f32] {
        let next = if self.next[0].is_empty() { &mut self.next[1] } else { &mut self.next[0] };
        let (now, rest) = next.split_at((lines * WIDTH).min(next.len()));
        *next = rest;
        now
    }

    /// Lines of what comes after that each of so many tiles has to fetch.
    pub(super) fn lines_a_tile(&self, tiles: usize) -> usize {
        self.next.iter().map(|next| next.len()).sum::<usize>().div_ceil(WIDTH * tiles.max(1))
    }

    /// What the sum of one element starts from.
    pub(super) fn before(&self, row: usize, column: usize) -> f32 {
        if self.goes_on { self.c[row * self.stride + column] } else { 0.0 }
    }

    /// Whether the sum of products is not all of the result.
    fn is_added(&self) -> bool {
        self.accumulate || self.onto.is_some()
    }

    /// Whether the sum of products, a number, is not the result.
    pub(super) fn changes(&self) -> bool {
        self.is_added() || self.factor != 1.0
    }

    /// Finishes `count` elements, at most sixteen, from `start`.
    #[inline(always)]
    pub(super) fn finish<L: Lanes>(&mut self, l: L, start: usize, count: usize, sum: L::F) {
        let mut value = self.scaled(l, sum);
        if self.is_added() {
            let before = self.onto.unwrap_or(self.c);
            value = l.canonical(l.add(get(l, &before[start..start + count], 0), value));
        }
        put(l, value, &mut self.c[start..start + count], 0);
    }

    /// The product for a sum of products.
    #[inline(always)]
    fn scaled<L: Lanes>(&self, l: L, sum: L::F) -> L::F {
        let value = if self.factor == 1.0 { sum } else { l.mul(sum, l.splat(self.factor)) };
        // Hardware and software differ in the sign and payload that they give a NaN.
        l.canonical(value)
    }
}

/// Both sides and what is to be done with them. `rows` begins at a multiple of 12.
pub(super) struct Product<'a, T> {
    pub(super) left: &'a [T],
    pub(super) right: &'a [Line<T>],
    /// Rows of the left side; the first is row 0 of the output.
    pub(super) rows: Range<usize>,
    /// Rows of the right side.
    pub(super) columns: usize,
    pub(super) units: usize,
    /// Units of k that the right side's panels hold, of which the first are used.
    pub(super) right_units: usize,
}

/// One piece of the work: units of k and columns of C.
pub(super) struct Piece {
    pub(super) units: Range<usize>,
    pub(super) columns: Range<usize>,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// Lines to be fetched for each tile.
    pub(super) fetch: usize,
}

/// C (+)= A Bᵀ in tiles of MAIN rows, fewer at the end, and VECTORS vectors.
#[inline(always)]
pub(super) fn multiply<L: Lanes, I: Inner, const MAIN: usize, const VECTORS: usize>(
    l: L,
    inner: I,
    p: &Product<'_, I::Element>,
    output: &mut Output<'_>,
) {
    let unit_bytes = I::RIGHT_LINES * size_of::<Line<I::Element>>();
    // Where the result is added to what C holds, C cannot hold a sum meanwhile.
    let most = if output.accumulate { p.units.max(1) } else { (PIECE_BYTES / unit_bytes).max(1) };
    // A short last piece would take the sums through memory for little work.
    let pieces = p.units.div_ceil(most).max(1);
    let together = p.units.div_ceil(pieces).max(1);
    let fetch = output.lines_a_tile(pieces * p.rows.len().div_ceil(MAIN) * p.columns.div_ceil(VECTORS * WIDTH));
    let panels = (RIGHT_BYTES / (unit_bytes * together.min(p.units).max(1))).max(1);
    for first_unit in (0..p.units.max(1)).step_by(together) {
        let units = first_unit..p.units.min(first_unit + together);
        let (is_first, is_last) = (first_unit == 0 && !output.goes_on, units.end == p.units);
        for first in (0..p.columns).step_by(panels * Side::Right.group()) {
            let columns = first..p.columns.min(first + panels * Side::Right.group());
            let piece = Piece { units: units.clone(), columns, is_first, is_last, fetch };
            let mut row = p.rows.start;
            while row < p.rows.end {
                let left = p.rows.end - row;
                row += if left >= MAIN || (MAIN > 4 && left > MAIN - 4) {
                    strip::<L, I, MAIN, VECTORS>(l, inner, p, &piece, row, output)
                } else if MAIN > 8 && left > 4 {
                    strip::<L, I, 8, VECTORS>(l, inner, p, &piece, row, output)
                } else if MAIN > 4 && left > 1 {
                    strip::<L, I, 4, VECTORS>(l, inner, p, &piece, row, output)
                } else {
                    strip::<L, I, 1, VECTORS>(l, inner, p, &piece, row, output)
                };
            }
        }
    }
}

/// ROWS rows of C (fewer are written at the lower edge) against the panels of a piece. Returns ROWS.
#[inline(always)]
fn strip<L: Lanes, I: Inner, const ROWS: usize, const VECTORS: usize>(
    l: L,
    inner: I,
    p: &Product<'_, I::Element>,
    piece: &Piece,
    row: usize,
    output: &mut Output<'_>,
) -> usize {
    let (height, width) = (I::LEFT_GROUP, Side::Right.group());
    let unit = I::LEFT_LINES * WIDTH;
    let left = &p.left[(row / height * p.units + piece.units.start) * unit..][..piece.units.len() * unit];
    let (to_row, rows) = (row - p.rows.start, ROWS.min(p.rows.end - row));
    let from = |column: usize| {
        let first = (column / width * p.right_units + piece.units.start) * I::RIGHT_LINES;
        (&p.right[first..][..piece.units.len() * I::RIGHT_LINES], column % width / WIDTH)
    };
    for column in piece.columns.clone().step_by(VECTORS * WIDTH) {
        let (panel, vector) = from(column);
        // After the last tile of a strip comes the first one of another.
        let next = Some(column + VECTORS * WIDTH).filter(|next| piece.columns.contains(next)).unwrap_or(piece.columns.start);
        let right = Right { panel, vector, next: from(next), later: &[] };
        tile_at::<L, I, ROWS, VECTORS>(l, inner, (left, row % height), right, piece, (to_row, rows), (column, p.columns), output);
    }
    ROWS
}

/// The tile at `row` and `column` of C, of which `rows` rows and the columns before `columns` are written.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // two sides, a place and what is done there
pub(super) fn tile_at<L: Lanes, I: Inner, const ROWS: usize, const VECTORS: usize>(
    l: L,
    inner: I,
    left: (&[I::Element], usize),
    right: Right<'_, I::Element>,
    piece: &Piece,
    (row, rows): (usize, usize),
    (column, columns): (usize, usize),
    output: &mut Output<'_>,
) {
    let right = Right { later: output.take_next(piece.fetch), ..right };
    if rows == ROWS && column + VECTORS * WIDTH <= columns {
        return whole_tile::<L, I, ROWS, VECTORS>(l, inner, left, right, piece, row * output.stride + column, output);
    }
    let mut acc = [[l.splat(0.0); VECTORS]; ROWS];
    if !piece.is_first {
        for (i, acc) in acc.iter_mut().enumerate().take(rows) {
            let start = (row + i) * output.stride;
            let c = &output.c[start..start + columns];
            for (j, acc) in acc.iter_mut().enumerate().filter(|(j, _)| column + j * WIDTH < columns) {
                *acc = get(l, c, column + j * WIDTH);
            }
        }
    }
    let acc = inner.tile::<L, ROWS, VECTORS>(l, left, right, acc);
    for (i, acc) in acc.iter().enumerate().take(rows) {
        let start = (row + i) * output.stride;
        for (j, &value) in acc.iter().enumerate().filter(|(j, _)| column + j * WIDTH < columns) {
            let column = column + j * WIDTH;
            if piece.is_last {
                output.finish(l, start + column, (columns - column).min(WIDTH), value);
            } else {
                put(l, value, &mut output.c[start..start + columns], column);
            }
        }
    }
}

/// A tile that lies inside C, from element `start`: nearly all of them.
#[inline(always)]
fn whole_tile<L: Lanes, I: Inner, const ROWS: usize, const VECTORS: usize>(
    l: L,
    inner: I,
    left: (&[I::Element], usize),
    right: Right<'_, I::Element>,
    piece: &Piece,
    start: usize,
    output: &mut Output<'_>,
) {
    let stride = output.stride;
    for i in 0..ROWS {
        for j in 0..VECTORS {
            l.prefetch(output.c, start + i * stride + j * WIDTH);
        }
    }
    if let Some(onto) = output.onto.filter(|_| piece.is_last) {
        for i in 0..ROWS {
            for j in 0..VECTORS {
                l.prefetch(onto, start + i * stride + j * WIDTH);
            }
        }
    }
    let mut acc = [[l.splat(0.0); VECTORS]; ROWS];
    if !piece.is_first {
        for (i, acc) in acc.iter_mut().enumerate() {
            let (c, _) = output.c[start + i * stride..][..VECTORS * WIDTH].as_chunks();
            for (acc, c) in acc.iter_mut().zip(c) {
                *acc = l.load(c);
            }
        }
    }
    let mut acc = inner.tile::<L, ROWS, VECTORS>(l, left, right, acc);
    // C is read only where it must be: a load that misses the caches would hold up the next tile.
    if piece.is_last && output.is_added() {
        // A copy: only it is counted through, and `acc` stays in registers.
        let sums = acc;
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                output.finish(l, start + i * stride + j * WIDTH, WIDTH, sum);
            }
        }
        return;
    }
    if piece.is_last && output.factor != 1.0 {
        let factor = l.splat(output.factor);
        for sums in &mut acc {
            for sum in sums {
                *sum = l.mul(*sum, factor);
            }
        }
    }
    if piece.is_last {
        acc = l.canonical_all(acc);
    }
    for (i, acc) in acc.iter().enumerate() {
        let (c, _) = output.c[start + i * stride..][..VECTORS * WIDTH].as_chunks_mut();
        for (&sum, c) in acc.iter().zip(c) {
            l.store(sum, c);
        }
    }
}
