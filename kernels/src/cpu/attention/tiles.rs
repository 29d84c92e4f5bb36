//! What a block of queries and a group of [`ROW`] keys make of each other, tile by tile of sums in registers.
//!
//! Every matrix lies in rows of [`ROW`] elements: of a head's elements, or of keys. A tile's left side is read element by element, at a fixed
//! distance from row to row or along a row, so that none has to be turned; its right side by vectors.

use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{Line, Side, elements, elements_mut};

/// Elements of a row: those of a group of the right side's panels.
pub(super) const ROW: usize = Side::Right.group();

/// Lines of a row.
pub(super) const LINES: usize = ROW / WIDTH;

/// Queries and keys that the mask treats as one: where none of a group's queries sees a key, what that key would add, 0 times a number, is left
/// out. The same for all instruction sets, because 0 times infinity is a NaN.
const GROUP: usize = 8;

pub(super) type Row = [f32; ROW];

const _: () = assert!(ROW == 2 * WIDTH && ROW.is_multiple_of(GROUP));

/// Lines as rows.
pub(super) fn rows(lines: &[Line<f32>]) -> &[Row] {
    elements(lines).as_chunks().0
}

/// [`rows`], to be written.
pub(super) fn rows_mut(lines: &mut [Line<f32>]) -> &mut [Row] {
    elements_mut(lines).as_chunks_mut().0
}

/// A block of queries: where it is.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Position of the first query.
    pub(super) start: usize,
    /// Queries.
    pub(super) count: usize,
    /// Elements of a head.
    pub(super) dim: usize,
    /// Keys.
    pub(super) sequence: usize,
}

impl Block {
    /// Positions that its queries see: so many from the first.
    pub(super) fn end(&self) -> usize {
        self.start + self.count
    }

    /// The first query, in whole groups, that sees a key of the group of `key`.
    fn first_query(&self, key: usize) -> usize {
        (key / GROUP * GROUP).saturating_sub(self.start)
    }

    /// How many positions the queries before `end` see, in whole groups.
    fn seen_before(&self, end: usize) -> usize {
        self.start + end.next_multiple_of(GROUP)
    }

    /// Whether the last of `count` queries from `query` sees none of the keys from `key`.
    pub(super) fn hides(&self, query: usize, count: usize, key: usize) -> bool {
        key >= self.start + query + count
    }
}

/// Products of COUNT queries from `query` with the keys of VECTORS vectors from `vector`, each a chain of multiply-adds over the head's elements,
/// N of them side by side. Of each, the left side is by group of elements, then by query; the right side by group of keys, then by element, a
/// row having that of each key.
#[inline(always)]
pub(super) fn products<L: Lanes, const N: usize, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Block,
    sides: [(&[Row], &[Row]); N],
    (query, first_key): (usize, usize),
    vector: usize,
) -> [[[L::F; VECTORS]; COUNT]; N] {
    let mut sums = [[[l.splat(0.0); VECTORS]; COUNT]; N];
    let panel = first_key / ROW * block.dim;
    for element in (0..block.dim).step_by(ROW) {
        let length = ROW.min(block.dim - element);
        let at = element / ROW * block.count + query;
        let mut left = [&[[0.0; ROW]; COUNT]; N];
        let mut right: [&[Row]; N] = [&[]; N];
        for n in 0..N {
            let Some(rows) = sides[n].0[at..].first_chunk::<COUNT>() else { return sums };
            (left[n], right[n]) = (rows, &sides[n].1[panel + element..][..length]);
        }
        for d in 0..length.min(ROW) {
            for n in 0..N {
                let keys = load::<L, VECTORS>(l, &right[n][d], vector);
                for i in 0..COUNT {
                    let query = l.splat(left[n][i][d]);
                    for j in 0..VECTORS {
                        sums[n][i][j] = l.fma(query, keys[j], sums[n][i][j]);
                    }
                }
            }
        }
    }
    sums
}

/// `x` where the key is seen by the query at `position`, `otherwise` where it comes after it; `key` is that of the first lane.
#[inline(always)]
pub(super) fn seen<L: Lanes>(l: L, position: usize, key: usize, x: L::F, otherwise: f32) -> L::F {
    let (position, keys) = (l.splat_u(position as u32), l.load_u(&std::array::from_fn(|i| (key + i) as u32)));
    l.floats(l.select_less_u(position, keys, l.splat_u(otherwise.to_bits()), l.bits(x)))
}

/// Adds to `sums` what each key from `first_key` gets from a block of queries: the sum of left (a row a query, an element a key) times right.
#[inline(never)]
pub(super) fn to_keys<L: Lanes>(l: L, block: &Block, first_key: usize, (left, right): (&[Row], &[Row]), sums: &mut [Row]) {
    l.run(
        #[inline(always)]
        || match L::REGISTERS {
            32 => to_keys_in_tiles::<L, 8, 2>(l, block, first_key, (left, right), sums),
            _ => to_keys_in_tiles::<L, 4, 1>(l, block, first_key, (left, right), sums),
        },
    );
}

#[inline(always)]
fn to_keys_in_tiles<L: Lanes, const KEYS: usize, const VECTORS: usize>(
    l: L,
    block: &Block,
    first_key: usize,
    (left, right): (&[Row], &[Row]),
    sums: &mut [Row],
) {
    let positions = block.sequence.next_multiple_of(ROW);
    for (right, sums) in right.chunks_exact(block.count).zip(sums.chunks_exact_mut(positions)) {
        let sums = &mut sums[first_key..first_key + ROW];
        for vector in (0..ROW / WIDTH).step_by(VECTORS) {
            for (tile, sums) in sums.chunks_exact_mut(KEYS).enumerate() {
                let mut acc = [[l.splat(0.0); VECTORS]; KEYS];
                let first = block.first_query(first_key + tile * KEYS).min(block.count);
                for (left, right) in left[first..].iter().zip(&right[first..]) {
                    let Some(left) = left[tile * KEYS..].first_chunk::<KEYS>() else { return };
                    let right = load::<L, VECTORS>(l, right, vector);
                    for i in 0..KEYS {
                        let left = l.splat(left[i]);
                        for j in 0..VECTORS {
                            acc[i][j] = l.fma(left, right[j], acc[i][j]);
                        }
                    }
                }
                for (acc, sums) in acc.iter().zip(sums) {
                    let before = load::<L, VECTORS>(l, sums, vector);
                    for j in 0..VECTORS {
                        store(l, l.add(before[j], acc[j]), sums, vector + j);
                    }
                }
            }
        }
    }
}

/// Goes on with the sums of the block's queries over the keys from `first_key`: left has a row a query, an element a key; right a row a key.
#[inline(never)]
pub(super) fn to_queries<L: Lanes>(l: L, block: &Block, first_key: usize, (left, right): (&[Row], &[Row]), sums: &mut [Row]) {
    l.run(
        #[inline(always)]
        || match L::REGISTERS {
            32 => to_queries_in_tiles::<L, 8, 2>(l, block, first_key, (left, right), sums),
            _ => to_queries_in_tiles::<L, 4, 1>(l, block, first_key, (left, right), sums),
        },
    );
}

#[inline(always)]
fn to_queries_in_tiles<L: Lanes, const QUERIES: usize, const VECTORS: usize>(
    l: L,
    block: &Block,
    first_key: usize,
    (left, right): (&[Row], &[Row]),
    sums: &mut [Row],
) {
    let keys = first_key..block.end().min(first_key + ROW);
    for (right, sums) in right.chunks_exact(block.sequence).zip(sums.chunks_exact_mut(block.count)) {
        let right = &right[keys.clone()];
        let seen = |end: usize| &right[..right.len().min(block.seen_before(end).saturating_sub(first_key))];
        let (tiles, rest) = sums.as_chunks_mut::<QUERIES>();
        let (left, left_of_rest) = left.as_chunks::<QUERIES>();
        let whole = tiles.len() * QUERIES;
        for ((sums, left), end) in tiles.iter_mut().zip(left).zip((QUERIES..).step_by(QUERIES)) {
            go_on::<L, QUERIES, VECTORS>(l, seen(end), left, sums);
        }
        for ((sums, left), end) in rest.as_chunks_mut::<1>().0.iter_mut().zip(left_of_rest.as_chunks::<1>().0).zip(whole + 1..) {
            go_on::<L, 1, VECTORS>(l, seen(end), left, sums);
        }
    }
}

#[inline(always)]
fn go_on<L: Lanes, const QUERIES: usize, const VECTORS: usize>(l: L, keys: &[Row], left: &[Row; QUERIES], sums: &mut [Row; QUERIES]) {
    for vector in (0..ROW / WIDTH).step_by(VECTORS) {
        let mut acc = [[l.splat(0.0); VECTORS]; QUERIES];
        for i in 0..QUERIES {
            acc[i] = load::<L, VECTORS>(l, &sums[i], vector);
        }
        for key in 0..ROW.min(keys.len()) {
            let right = load::<L, VECTORS>(l, &keys[key], vector);
            for i in 0..QUERIES {
                let left = l.splat(left[i][key]);
                for j in 0..VECTORS {
                    acc[i][j] = l.fma(left, right[j], acc[i][j]);
                }
            }
        }
        for (acc, sums) in acc.iter().zip(sums.iter_mut()) {
            for (j, &sum) in acc.iter().enumerate() {
                store(l, sum, sums, vector + j);
            }
        }
    }
}

/// Vectors `vector..` of a row.
#[inline(always)]
pub(super) fn load<L: Lanes, const VECTORS: usize>(l: L, row: &Row, vector: usize) -> [L::F; VECTORS] {
    let mut loaded = [l.splat(0.0); VECTORS];
    if let Some(vectors) = row.as_chunks::<WIDTH>().0[vector..].first_chunk::<VECTORS>() {
        for (to, vector) in loaded.iter_mut().zip(vectors) {
            *to = l.load(vector);
        }
    }
    loaded
}

#[inline(always)]
pub(super) fn store<L: Lanes>(l: L, value: L::F, row: &mut Row, vector: usize) {
    if let Some(to) = row.as_chunks_mut::<WIDTH>().0.get_mut(vector) {
        l.store(value, to);
    }
}
