//! Attention's backward pass: a block of queries and a group of keys at a time, so that whatever they make of each other stays in the
//! first-level cache.
//!
//! Order of arithmetic, which no blocking changes: the gradients of a key and of a value are sums over blocks of queries, head after head,
//! each block summed on its own from 0; the gradient of a query is one chain of multiply-adds over the keys.

use std::ops::Range;

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::super::math::exp;
use super::super::panels::Line;
use super::super::room;
use super::tiles::{Block, LINES, ROW, Row, products, rows, rows_mut, seen, store, to_keys, to_queries};
use super::{AttentionShape, Buffers, Matrix, QUERIES, columns, pack, turned};

/// What forward read and wrote, of one sequence, and the gradient of what it wrote.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
    pub(super) qkv: &'a [f32],
    pub(super) out: &'a [f32],
    pub(super) logsumexp: &'a [f32],
    pub(super) d_out: &'a [f32],
    /// Positions from this sequence to the one that this thread is likely to be given next; all but `logsumexp` go on to the last one's end.
    pub(super) ahead: usize,
}

/// A block of queries and what it meets: rows as [`products`] takes them.
struct Gradient<'a> {
    at: Block,
    scale: f32,
    /// One for each query.
    logsumexp: &'a [f32],
    /// Sum of out * d_out of each query.
    along: [f32; QUERIES],
    queries: &'a [Row],
    d_out: &'a [Row],
    keys: &'a [Row],
    values: &'a [Row],
}

#[inline(always)]
pub(super) fn backward<L: Lanes>(l: L, shape: AttentionShape, saved: Saved<'_>, d_qkv: &mut [f32], buffers: &mut Buffers) {
    let (dim, together) = (shape.head_dim, shape.heads / shape.kv_heads);
    let length = dim.div_ceil(ROW) * shape.sequence.next_multiple_of(ROW) * LINES;
    for shared in 0..shape.kv_heads {
        let (_, k_column, v_column) = columns(shape, shared * together);
        let [k, v] = [k_column, v_column].map(|column| shape.head(saved.qkv, shape.qkv_width(), column));
        pack(l, k, &mut buffers.keys);
        pack(l, v, &mut buffers.values);
        pack(l, turned(k), &mut buffers.keys_turned);
        for sums in [&mut buffers.d_keys, &mut buffers.d_values] {
            room(sums, length).fill(Line::default());
        }
        for head in shared * together..(shared + 1) * together {
            one_head(l, shape, head, saved, d_qkv, buffers);
        }
        for (column, sums) in [(k_column, &buffers.d_keys), (v_column, &buffers.d_values)] {
            write(l, rows(&sums[..length]), (shape.sequence, dim), &mut d_qkv[column..], shape.qkv_width());
        }
    }
}

/// Gradients of a head's queries, and its part of those of keys and values.
#[inline(always)]
fn one_head<L: Lanes>(l: L, shape: AttentionShape, head: usize, saved: Saved<'_>, d_qkv: &mut [f32], buffers: &mut Buffers) {
    let (sequence, width, dim, out_width) = (shape.sequence, shape.qkv_width(), shape.head_dim, shape.out_width());
    let q = shape.head(saved.qkv, width, head * dim);
    let [out, d_out] = [saved.out, saved.d_out].map(|x| shape.head(x, out_width, head * dim));
    let Buffers { scores, d_scores, keys, values, keys_turned, d_keys, d_values, queries, d_out: d_outs, sums, .. } = buffers;
    for start in (0..sequence).step_by(QUERIES) {
        let count = QUERIES.min(sequence - start);
        let [q, out, d_out] = [q, out, d_out].map(|m| m.slice(start, count));
        let block = Gradient {
            at: Block { start, count, dim, sequence },
            scale: 1.0 / (dim as f32).sqrt(),
            logsumexp: &saved.logsumexp[head * sequence + start..][..count],
            along: along(l, out, d_out),
            queries: pack(l, turned(q), queries),
            d_out: pack(l, turned(d_out), d_outs),
            keys: rows(keys),
            values: rows(values),
        };
        let d_queries = room(sums, dim.div_ceil(ROW) * count * LINES);
        d_queries.fill(Line::default());
        let d_queries = rows_mut(d_queries);
        let (p, d_s) = (rows_mut(room(scores, count * LINES)), rows_mut(room(d_scores, count * LINES)));
        // Some before each product: all at once would hold up the loads of the first.
        let parts = 3 * block.at.end().div_ceil(ROW);
        let position = |part: usize| start + count * part / parts;
        let fetch = |part: usize| fetch_ahead(l, shape, head, (&saved, d_qkv), position(part)..position(part + 1));
        for (group, first_key) in (0..block.at.end()).step_by(ROW).enumerate() {
            fetch(3 * group);
            weigh(l, &block, first_key, p, d_s);
            fetch(3 * group + 1);
            to_keys(l, &block.at, first_key, (p, block.d_out), rows_mut(d_values));
            fetch(3 * group + 2);
            to_keys(l, &block.at, first_key, (d_s, block.queries), rows_mut(d_keys));
            to_queries(l, &block.at, first_key, (d_s, rows(keys_turned)), d_queries);
        }
        write(l, d_queries, (count, dim), &mut d_qkv[start * width + head * dim..], width);
    }
}

/// Asks for what a head will read of the next sequence at these positions, with the keys and values that heads share, and for the gradients
/// that it will write at them in this one.
#[inline(always)]
fn fetch_ahead<L: Lanes>(l: L, shape: AttentionShape, head: usize, (saved, d_qkv): (&Saved<'_>, &[f32]), positions: Range<usize>) {
    let (qkv_width, out_width, dim) = (shape.qkv_width(), shape.out_width(), shape.head_dim);
    let (q, k, v) = columns(shape, head);
    let [is_first, is_last] = [head, head + 1].map(|head| head.is_multiple_of(shape.heads / shape.kv_heads));
    for here in positions {
        let position = here + saved.ahead;
        for at in (0..dim).step_by(WIDTH) {
            l.prefetch_far(d_qkv, here * qkv_width + q + at);
            if is_last {
                l.prefetch_far(d_qkv, here * qkv_width + k + at);
                l.prefetch_far(d_qkv, here * qkv_width + v + at);
            }
            l.prefetch_far(saved.qkv, position * qkv_width + q + at);
            l.prefetch_far(saved.out, position * out_width + q + at);
            l.prefetch_far(saved.d_out, position * out_width + q + at);
            if is_first {
                l.prefetch_far(saved.qkv, position * qkv_width + k + at);
                l.prefetch_far(saved.qkv, position * qkv_width + v + at);
            }
        }
    }
}

/// Probabilities p = exp(s*scale - logsumexp) of the keys from `first_key`, and the scores' gradients p * (d_p - along) * scale, a row a
/// query; zero where the key comes after the query.
#[inline(never)]
fn weigh<L: Lanes>(l: L, block: &Gradient<'_>, first_key: usize, p: &mut [Row], d_s: &mut [Row]) {
    l.run(
        #[inline(always)]
        || match L::REGISTERS {
            32 => weigh_in_tiles::<L, 4, 2>(l, block, first_key, p, d_s),
            _ => weigh_in_tiles::<L, 2, 1>(l, block, first_key, p, d_s),
        },
    );
}

#[inline(always)]
fn weigh_in_tiles<L: Lanes, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Gradient<'_>,
    first_key: usize,
    p: &mut [Row],
    d_s: &mut [Row],
) {
    let mut query = 0;
    while query < block.at.count {
        query += if query + COUNT <= block.at.count {
            weigh_some::<L, COUNT, VECTORS>(l, block, (query, first_key), p, d_s)
        } else {
            weigh_some::<L, 1, VECTORS>(l, block, (query, first_key), p, d_s)
        };
    }
}

/// [`weigh`] for COUNT queries from `query`. Returns COUNT.
#[inline(always)]
fn weigh_some<L: Lanes, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Gradient<'_>,
    (query, first_key): (usize, usize),
    p: &mut [Row],
    d_s: &mut [Row],
) -> usize {
    let to = (&mut p[query..query + COUNT], &mut d_s[query..query + COUNT]);
    for (vector, first) in (first_key..first_key + ROW).step_by(VECTORS * WIDTH).enumerate() {
        if VECTORS > 1 && block.at.hides(query, COUNT, first + WIDTH) {
            // Of the second vector no key is seen.
            weigh_tile::<L, COUNT, 1>(l, block, (query, first_key), vector * VECTORS, (to.0, to.1));
            for row in to.0.iter_mut().chain(to.1.iter_mut()) {
                row[WIDTH..].fill(0.0);
            }
        } else {
            weigh_tile::<L, COUNT, VECTORS>(l, block, (query, first_key), vector * VECTORS, (to.0, to.1));
        }
    }
    COUNT
}

/// COUNT queries and the keys of VECTORS vectors from `vector`.
#[inline(always)]
fn weigh_tile<L: Lanes, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Gradient<'_>,
    (query, first_key): (usize, usize),
    vector: usize,
    (p, d_s): (&mut [Row], &mut [Row]),
) {
    let sides = [(block.queries, block.keys), (block.d_out, block.values)];
    let [s, d_p] = products::<L, 2, COUNT, VECTORS>(l, &block.at, sides, (query, first_key), vector);
    let factor = l.splat(block.scale);
    for i in 0..COUNT {
        let position = block.at.start + query + i;
        let (logsumexp, along) = (l.splat(-block.logsumexp[query + i]), l.splat(block.along[query + i]));
        for j in 0..VECTORS {
            let key = first_key + (vector + j) * WIDTH;
            let mut probability = exp(l, l.fma(s[i][j], factor, logsumexp));
            let mut gradient = l.mul(l.mul(probability, l.sub(d_p[i][j], along)), factor);
            if key + WIDTH > position + 1 {
                probability = seen(l, position, key, probability, 0.0);
                gradient = seen(l, position, key, gradient, 0.0);
            }
            store(l, probability, &mut p[i], vector + j);
            store(l, gradient, &mut d_s[i], vector + j);
        }
    }
}

/// Sum of out * d_out for each query of a block.
#[inline(always)]
fn along<L: Lanes>(l: L, out: Matrix<'_>, d_out: Matrix<'_>) -> [f32; QUERIES] {
    let mut along = [0.0; QUERIES];
    for (half, along) in along.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
        let mut sums = [l.splat(0.0); WIDTH];
        for (i, sum) in sums.iter_mut().enumerate().take(out.rows.saturating_sub(half * WIDTH)) {
            let first = (half * WIDTH + i) * out.row_stride;
            let (out, d_out) = (&out.values[first..first + out.k], &d_out.values[first..first + out.k]);
            for at in (0..out.len()).step_by(WIDTH) {
                *sum = l.fma(get(l, out, at), get(l, d_out, at), *sum);
            }
        }
        l.store(l.sums(sums), along);
    }
    along
}

/// Sums of `count` positions, in groups of [`ROW`] elements of a head, to rows of `to` that are `width` apart.
#[inline(always)]
fn write<L: Lanes>(l: L, sums: &[Row], (count, dim): (usize, usize), to: &mut [f32], width: usize) {
    let positions = sums.len() / dim.div_ceil(ROW).max(1);
    for (group, sums) in sums.chunks_exact(positions.max(1)).enumerate() {
        for (position, sums) in sums.iter().enumerate().take(count) {
            let first = position * width + group * ROW;
            let to = &mut to[first..first + ROW.min(dim - group * ROW)];
            for at in (0..to.len()).step_by(WIDTH) {
                // Hardware and software differ in the sign and payload that they give a NaN.
                put(l, l.canonical(get(l, sums, at)), to, at);
            }
        }
    }
}
