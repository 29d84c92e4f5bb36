//! Attention's forward pass, a block of queries at a time: scores of all keys that it sees, their softmax, and the sum of values.

use super::super::lanes::{Lanes, WIDTH, get, put};
use super::super::math::exp;
use super::super::panels::Line;
use super::super::room;
use super::tiles::{Block, LINES, ROW, Row, load, products, rows, rows_mut, seen, store, to_queries};
use super::{AttentionShape, Buffers, QUERIES, columns, pack, turned};

/// A vector for each query of a block.
type OfQueries = [[f32; WIDTH]; QUERIES];

#[inline(always)]
pub(super) fn forward<L: Lanes>(l: L, qkv: &[f32], shape: AttentionShape, out: &mut [f32], logsumexp: &mut [f32], buffers: &mut Buffers) {
    let (width, together) = (shape.qkv_width(), shape.heads / shape.kv_heads);
    for shared in 0..shape.kv_heads {
        let (_, k, v) = columns(shape, shared * together);
        pack(l, shape.head(qkv, width, k), &mut buffers.keys);
        pack(l, turned(shape.head(qkv, width, v)), &mut buffers.values);
        for head in shared * together..(shared + 1) * together {
            let logsumexp = &mut logsumexp[head * shape.sequence..][..shape.sequence];
            one_head(l, qkv, shape, head, out, logsumexp, buffers);
        }
    }
}

#[inline(always)]
fn one_head<L: Lanes>(
    l: L,
    qkv: &[f32],
    shape: AttentionShape,
    head: usize,
    out: &mut [f32],
    logsumexp: &mut [f32],
    buffers: &mut Buffers,
) {
    let (sequence, dim, width) = (shape.sequence, shape.head_dim, shape.out_width());
    let scale = 1.0 / (dim as f32).sqrt();
    let q = shape.head(qkv, shape.qkv_width(), head * dim);
    let Buffers { scores, keys, values, queries, sums, .. } = buffers;
    for (start, logsumexp) in (0..sequence).step_by(QUERIES).zip(logsumexp.chunks_mut(QUERIES)) {
        let block = Block { start, count: logsumexp.len(), dim, sequence };
        let q = pack(l, turned(q.slice(start, block.count)), queries);
        let p = rows_mut(room(scores, block.end().div_ceil(ROW) * block.count * LINES));
        let inverse = softmax(l, &block, (q, rows(keys)), scale, p, logsumexp);
        let sums = room(sums, dim.div_ceil(ROW) * block.count * LINES);
        sums.fill(Line::default());
        let sums = rows_mut(sums);
        for (group, p) in p.chunks_exact(block.count).enumerate() {
            to_queries(l, &block, group * ROW, (p, rows(values)), sums);
        }
        let to = &mut out[start * width + head * dim..];
        for (group, sums) in sums.chunks_exact(block.count).enumerate() {
            for (i, (sums, &inverse)) in sums.iter().zip(&inverse).enumerate() {
                let to = &mut to[i * width + group * ROW..][..ROW.min(dim - group * ROW)];
                for at in (0..to.len()).step_by(WIDTH) {
                    put(l, l.mul(l.canonical(get(l, sums, at)), l.splat(inverse)), to, at);
                }
            }
        }
    }
}

/// Rows of exp(s*scale - largest*scale), by group of keys, then by query; 0 where the key comes after the query. Returns one over each query's sum
/// (keys in sixteen sums by position, then the fixed tree).
#[inline(always)]
fn softmax<L: Lanes>(l: L, block: &Block, sides: (&[Row], &[Row]), scale: f32, p: &mut [Row], logsumexp: &mut [f32]) -> [f32; QUERIES] {
    let mut largest = [[f32::NEG_INFINITY; WIDTH]; QUERIES];
    for (group, p) in p.chunks_exact_mut(block.count).enumerate() {
        scores(l, block, group * ROW, sides, p, &mut largest);
    }
    let (mut offsets, mut sums) = ([0.0; QUERIES], [[0.0; WIDTH]; QUERIES]);
    let largest = largest_of(l, &largest);
    for (offsets, largest) in offsets.as_chunks_mut().0.iter_mut().zip(largest.as_chunks().0) {
        l.store(l.sub(l.splat(-0.0), l.mul(l.load(largest), l.splat(scale))), offsets);
    }
    for (group, p) in p.chunks_exact_mut(block.count).enumerate() {
        exponentials(l, block, group * ROW, (scale, &offsets), p, &mut sums);
    }
    let mut inverse = [0.0; QUERIES];
    for ((half, sums), inverse) in sums.as_chunks::<WIDTH>().0.iter().enumerate().zip(inverse.as_chunks_mut().0) {
        let mut values = [l.splat(0.0); WIDTH];
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = l.load(sum);
        }
        let sum = l.sums(values);
        l.store(l.div(l.splat(1.0), sum), inverse);
        let sum = l.to_array(sum);
        for (i, logsumexp) in logsumexp.iter_mut().skip(half * WIDTH).enumerate().take(WIDTH) {
            *logsumexp = (f64::from(largest[half * WIDTH + i] * scale) + libm::log(f64::from(sum[i]))) as f32;
        }
    }
    inverse
}

/// Scores of the keys from `first_key`, a row a query, and the largest of each lane that the query sees. Of a vector that none of a tile's
/// queries sees, scores are left as they are.
#[inline(never)]
fn scores<L: Lanes>(l: L, block: &Block, first_key: usize, sides: (&[Row], &[Row]), p: &mut [Row], largest: &mut OfQueries) {
    l.run(
        #[inline(always)]
        || match L::REGISTERS {
            32 => scores_in_tiles::<L, 8, 2>(l, block, first_key, sides, p, largest),
            _ => scores_in_tiles::<L, 4, 1>(l, block, first_key, sides, p, largest),
        },
    );
}

#[inline(always)]
fn scores_in_tiles<L: Lanes, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Block,
    first_key: usize,
    sides: (&[Row], &[Row]),
    p: &mut [Row],
    largest: &mut OfQueries,
) {
    let mut query = 0;
    while query < block.count {
        if query + COUNT > block.count {
            some_scores::<L, 1, VECTORS>(l, block, (query, first_key), sides, &mut p[query..], &mut largest[query..]);
            query += 1;
            continue;
        }
        some_scores::<L, COUNT, VECTORS>(l, block, (query, first_key), sides, &mut p[query..], &mut largest[query..]);
        query += COUNT;
    }
}

#[inline(always)]
fn some_scores<L: Lanes, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Block,
    (query, first_key): (usize, usize),
    sides: (&[Row], &[Row]),
    p: &mut [Row],
    largest: &mut [[f32; WIDTH]],
) {
    for vector in (0..LINES).step_by(VECTORS) {
        let key = first_key + vector * WIDTH;
        if VECTORS > 1 && block.hides(query, COUNT, key + WIDTH) {
            scores_tile::<L, COUNT, 1>(l, block, (query, first_key), vector, sides, p, largest);
        } else if !block.hides(query, COUNT, key) {
            scores_tile::<L, COUNT, VECTORS>(l, block, (query, first_key), vector, sides, p, largest);
        }
    }
}

#[inline(always)]
fn scores_tile<L: Lanes, const COUNT: usize, const VECTORS: usize>(
    l: L,
    block: &Block,
    (query, first_key): (usize, usize),
    vector: usize,
    sides: (&[Row], &[Row]),
    p: &mut [Row],
    largest: &mut [[f32; WIDTH]],
) {
    let [s] = products::<L, 1, COUNT, VECTORS>(l, block, [sides], (query, first_key), vector);
    let (Some(p), Some(largest)) = (p.first_chunk_mut::<COUNT>(), largest.first_chunk_mut::<COUNT>()) else { return };
    for (i, s) in s.iter().enumerate() {
        let position = block.start + query + i;
        let mut best = l.load(&largest[i]);
        for (j, &s) in s.iter().enumerate() {
            let key = first_key + (vector + j) * WIDTH;
            let is_open = key + WIDTH <= position + 1;
            let x = if is_open { s } else { seen(l, position, key, s, f32::NEG_INFINITY) };
            best = l.max(x, best);
            store(l, s, &mut p[i], vector + j);
        }
        l.store(best, &mut largest[i]);
    }
}

/// The largest lane of each query.
#[inline(always)]
fn largest_of<L: Lanes>(l: L, lanes: &OfQueries) -> [f32; QUERIES] {
    let mut largest = [0.0; QUERIES];
    for (lanes, largest) in lanes.as_chunks::<WIDTH>().0.iter().zip(largest.as_chunks_mut().0) {
        let mut square = [l.splat(0.0); WIDTH];
        for (register, lanes) in square.iter_mut().zip(lanes) {
            *register = l.load(lanes);
        }
        l.transpose(&mut square);
        let mut best = square[0];
        for &x in &square[1..] {
            best = l.max(x, best);
        }
        l.store(best, largest);
    }
    largest
}

/// Scores of the keys from `first_key` to probabilities before they are divided by their sum, and those added to each query's sixteen sums.
#[inline(never)]
fn exponentials<L: Lanes>(
    l: L,
    block: &Block,
    first_key: usize,
    (scale, offsets): (f32, &[f32; QUERIES]),
    p: &mut [Row],
    sums: &mut OfQueries,
) {
    l.run(
        #[inline(always)]
        || {
            for (i, ((p, &offset), sum)) in p.iter_mut().zip(offsets).zip(sums).enumerate() {
                let position = block.start + i;
                let mut total = l.load(sum);
                for vector in 0..LINES {
                    let key = first_key + vector * WIDTH;
                    let [s] = load::<L, 1>(l, p, vector);
                    let mut x = exp(l, l.fma(s, l.splat(scale), l.splat(offset)));
                    if key + WIDTH > position + 1 {
                        x = seen(l, position, key, x, 0.0);
                    }
                    total = l.add(total, x);
                    store(l, x, p, vector);
                }
                l.store(total, sum);
            }
        },
    );
}
