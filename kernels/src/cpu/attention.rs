//! Causal attention with grouped key and value heads, forward and backward, without keeping the probabilities.
//!
//! Only the logarithm of each row's softmax sum is saved; backward recomputes the probabilities from it (arXiv 2205.14135,
//! appendix B), block of queries by block.
//!
//! What one product writes is, as it lies, the left side of the next: forward keeps scores key by key, a lane a query, so that the softmax
//! needs no operation across lanes; backward keeps probabilities query by query in groups of keys, and turns only the scores' gradients.

use super::gemm::{Matrix, NARROW, Output, multiply_narrow, multiply_panels};
use super::lanes::{Lanes, WIDTH, get, put};
use super::math::exp;
use super::panels::{Line, Side, elements, elements_mut};
use super::prepare::pack_group;
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect, room};

/// Queries worked on together. Part of the definition: gradients of keys and values are summed block of queries by block.
const QUERIES: usize = 32;

const _: () = assert!(QUERIES == Side::Right.group() && QUERIES <= Side::Left.group() && NARROW == 2 * WIDTH);

/// Lines of the left side for one k.
const LEFT: usize = Side::Left.lines();

/// Registers for a group of keys, or for a block of queries.
const HALVES: usize = 2;

/// Memory of one task.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    scores: Vec<Line<f32>>,
    d_scores: Vec<Line<f32>>,
    d_scores_turned: Vec<Line<f32>>,
    /// Keys and values of one head, both ways round, packed once for all its queries.
    keys: Vec<Line<f32>>,
    values: Vec<Line<f32>>,
    keys_turned: Vec<Line<f32>>,
    /// A block of queries and of what goes with them.
    queries: Vec<Line<f32>>,
    d_out: Vec<Line<f32>>,
}

/// The panels of a matrix, in `to`.
#[inline(always)]
fn pack<'a, L: Lanes>(l: L, m: Matrix<'_>, side: Side, to: &'a mut Vec<Line<f32>>) -> &'a [Line<f32>] {
    let lines = m.k * side.lines();
    let to = room(to, m.rows.div_ceil(side.group()) * lines);
    for (group, to) in to.chunks_exact_mut(lines.max(1)).enumerate() {
        pack_group(l, m, side, group * side.group(), to);
    }
    to
}

/// Sizes of one attention call. Token t of batch entry b is row `b * sequence + t` of every buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    pub batch: usize,
    /// Tokens in each.
    pub sequence: usize,
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head h reads key head h / (heads / kv_heads).
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Elements of a row of the fused buffer: (heads + 2 kv_heads) * head_dim, query heads, then key heads, then value heads.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Elements of a row of the output: heads * head_dim.
    pub fn out_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// batch * sequence.
    pub fn tokens(&self) -> usize {
        self.batch * self.sequence
    }

    fn check(&self, kernel: &'static str, qkv: usize, out: usize, logsumexp: usize) -> Result<(), ShapeError> {
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let problem = format!("{} query heads cannot share {} key heads evenly", self.heads, self.kv_heads);
            return Err(ShapeError { kernel, problem });
        }
        expect(kernel, "qkv", self.tokens() * self.qkv_width(), qkv)?;
        expect(kernel, "out", self.tokens() * self.out_width(), out)?;
        expect(kernel, "logsumexp", self.tokens() * self.heads, logsumexp)
    }

    /// Head `column / head_dim` of one sequence of a buffer with rows of `width`.
    fn head<'a>(&self, buffer: &'a [f32], width: usize, column: usize) -> Matrix<'a> {
        Matrix { values: &buffer[column..], rows: self.sequence, k: self.head_dim, row_stride: width, k_stride: 1 }
    }
}

impl Cpu {
    /// `qkv: [tokens, qkv_width]` (already rotated), `out: [tokens, out_width]`, `logsumexp: [batch, heads, sequence]`.
    ///
    /// With s = q.k (fused, in order) and scale = 1/sqrt(head_dim): m = max s; p = exp(fma(s, scale, -(m*scale))); S = sum p (lanes, tree);
    /// out = (sum over keys of p*v, fused, in order) * (1/S); logsumexp = m*scale + ln S.
    pub fn attention(&self, qkv: &[f32], shape: AttentionShape, out: &mut [f32], logsumexp: &mut [f32]) -> Result<(), ShapeError> {
        shape.check("attention", qkv.len(), out.len(), logsumexp.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let _timer = self.timer(Kernel::Attention, 0);
        let (sequence, width) = (shape.sequence, shape.qkv_width());
        let tasks = qkv.chunks(sequence * width).zip(out.chunks_mut(sequence * shape.out_width()));
        self.each(tasks.zip(logsumexp.chunks_mut(shape.heads * sequence)), |((qkv, out), logsumexp)| {
            self.with_scratch(|s| dispatch!(self, |l| forward(l, qkv, shape, out, logsumexp, &mut s.attention)));
        });
        Ok(())
    }

    /// Gradient of [`Cpu::attention`]; `out` and `logsumexp` are what forward wrote, `d_qkv: [tokens, qkv_width]` is overwritten.
    pub fn attention_backward(
        &self,
        qkv: &[f32],
        shape: AttentionShape,
        out: &[f32],
        logsumexp: &[f32],
        d_out: &[f32],
        d_qkv: &mut [f32],
    ) -> Result<(), ShapeError> {
        shape.check("attention_backward", qkv.len(), out.len(), logsumexp.len())?;
        expect("attention_backward", "d_out", out.len(), d_out.len())?;
        expect("attention_backward", "d_qkv", qkv.len(), d_qkv.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let _timer = self.timer(Kernel::AttentionBackward, 0);
        let (sequence, width, out_width) = (shape.sequence, shape.qkv_width(), shape.out_width());
        let tasks = qkv.chunks(sequence * width).zip(out.chunks(sequence * out_width)).zip(d_out.chunks(sequence * out_width));
        let tasks = tasks.zip(logsumexp.chunks(shape.heads * sequence)).zip(d_qkv.chunks_mut(sequence * width));
        self.each(tasks, |((((qkv, out), d_out), logsumexp), d_qkv)| {
            self.with_scratch(|s| dispatch!(self, |l| backward(l, qkv, shape, out, logsumexp, d_out, d_qkv, &mut s.attention)));
        });
        Ok(())
    }
}

/// The same matrix with rows and contraction axis exchanged.
fn turned(m: Matrix<'_>) -> Matrix<'_> {
    Matrix { values: m.values, rows: m.k, k: m.rows, row_stride: m.k_stride, k_stride: m.row_stride }
}

fn plain(c: &mut [f32], stride: usize, accumulate: bool) -> Output<'_> {
    Output { c, stride, accumulate, factor: 1.0, goes_on: false }
}

/// Columns of the three parts that query head `head` uses.
fn columns(shape: AttentionShape, head: usize) -> (usize, usize, usize) {
    let shared = head / (shape.heads / shape.kv_heads);
    (head * shape.head_dim, (shape.heads + shared) * shape.head_dim, (shape.heads + shape.kv_heads + shared) * shape.head_dim)
}

#[inline(always)]
fn forward<L: Lanes>(l: L, qkv: &[f32], shape: AttentionShape, out: &mut [f32], logsumexp: &mut [f32], buffers: &mut Buffers) {
    let (sequence, width, dim) = (shape.sequence, shape.qkv_width(), shape.head_dim);
    let scale = 1.0 / (dim as f32).sqrt();
    let Buffers { scores, keys, values, queries, .. } = buffers;
    for head in 0..shape.heads {
        let (q, k, v) = columns(shape, head);
        let (q, k, v) = (shape.head(qkv, width, q), shape.head(qkv, width, k), shape.head(qkv, width, v));
        let (k, v) = (pack(l, k, Side::Left, keys), pack(l, turned(v), Side::Right, values));
        for start in (0..sequence).step_by(QUERIES) {
            let count = QUERIES.min(sequence - start);
            let end = start + count;
            let q = pack(l, q.slice(start, count), Side::Right, queries);
            // Rows are keys and columns queries: the left side of the second product. Queries past the end are zeros.
            let p = room(scores, end * LEFT);
            multiply_panels(l, (elements(k), q), (0..end, QUERIES), (dim, dim), plain(elements_mut(p), Side::Left.group(), false));
            let mut inverse = [0.0; QUERIES];
            for (half, inverse) in inverse.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
                let first = start + half * WIDTH;
                let (largest, sum) = softmax(l, p, half, first, scale);
                l.store(l.div(l.splat(1.0), sum), inverse);
                let (largest, sum) = (l.to_array(l.mul(largest, l.splat(scale))), l.to_array(sum));
                for i in 0..WIDTH.min(end.saturating_sub(first)) {
                    logsumexp[head * sequence + first + i] = (f64::from(largest[i]) + libm::log(f64::from(sum[i]))) as f32;
                }
            }
            let to = &mut out[start * shape.out_width() + head * dim..];
            multiply_panels(l, (elements(p), v), (0..count, dim), (end, sequence), plain(to, shape.out_width(), false));
            for (i, inverse) in inverse.iter().enumerate().take(count) {
                let row = &mut to[i * shape.out_width()..][..dim];
                for at in (0..dim).step_by(WIDTH) {
                    put(l, l.mul(get(l, row, at), l.splat(*inverse)), row, at);
                }
            }
        }
    }
}

/// `first`, `first + 1`, ... in sixteen lanes.
#[inline(always)]
fn count_from<L: Lanes>(l: L, first: usize) -> L::U {
    l.load_u(&std::array::from_fn(|i| (first + i) as u32))
}

/// Turns the scores of sixteen queries, the first at position `first`, into exp(s*scale - largest*scale), and into 0 where the key comes
/// after the query; returns each query's largest score and sum (keys in sixteen sums by position, then the fixed tree).
#[inline(always)]
fn softmax<L: Lanes>(l: L, p: &mut [Line<f32>], half: usize, first: usize, scale: f32) -> (L::F, L::F) {
    const TOGETHER: usize = 4;
    let queries = count_from(l, first);
    let low = l.splat(f32::NEG_INFINITY);
    let masked = |key: usize, x: L::F, hidden: L::F| l.floats(l.select_less_u(queries, l.splat_u(key as u32), l.bits(hidden), l.bits(x)));
    let open = (first + 1).min(p.len() / LEFT);
    let mut best = [low; TOGETHER];
    for lines in p[..open * LEFT].chunks(LEFT * TOGETHER) {
        for (best, line) in best.iter_mut().zip(lines.iter().skip(half).step_by(LEFT)) {
            *best = l.max(l.load(&line.0), *best);
        }
    }
    for (key, line) in p.iter().skip(half).step_by(LEFT).enumerate().skip(open) {
        best[0] = l.max(masked(key, l.load(&line.0), low), best[0]);
    }
    let largest = l.max(l.max(best[0], best[1]), l.max(best[2], best[3]));
    let factor = l.splat(scale);
    let offset = l.sub(l.splat(-0.0), l.mul(largest, factor));
    let mut sums = [l.splat(0.0); WIDTH];
    for (number, lines) in p.chunks_mut(LEFT * WIDTH).enumerate() {
        let is_open = (number + 1) * WIDTH <= open;
        for ((i, line), sum) in lines.iter_mut().skip(half).step_by(LEFT).enumerate().zip(&mut sums) {
            let mut x = exp(l, l.fma(l.load(&line.0), factor, offset));
            if !is_open {
                x = masked(number * WIDTH + i, x, l.splat(0.0));
            }
            l.store(x, &mut line.0);
            *sum = l.add(*sum, x);
        }
    }
    (largest, l.tree(sums))
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // what the formula reads and writes
fn backward<L: Lanes>(
    l: L,
    qkv: &[f32],
    shape: AttentionShape,
    out: &[f32],
    logsumexp: &[f32],
    d_out: &[f32],
    d_qkv: &mut [f32],
    buffers: &mut Buffers,
) {
    let (sequence, width, dim, out_width) = (shape.sequence, shape.qkv_width(), shape.head_dim, shape.out_width());
    let scale = 1.0 / (dim as f32).sqrt();
    let Buffers { scores, d_scores, d_scores_turned, keys, values, keys_turned, queries, d_out: d_outs } = buffers;
    d_qkv.fill(0.0);
    for head in 0..shape.heads {
        let (q_column, k_column, v_column) = columns(shape, head);
        let [q, k, v] = [q_column, k_column, v_column].map(|column| shape.head(qkv, width, column));
        let (out, d_out) = (shape.head(out, out_width, head * dim), shape.head(d_out, out_width, head * dim));
        let (keys, values) = (pack(l, k, Side::Right, keys), pack(l, v, Side::Right, values));
        let keys_turned = pack(l, turned(k), Side::Right, keys_turned);
        for start in (0..sequence).step_by(QUERIES) {
            let count = QUERIES.min(sequence - start);
            let end = start + count;
            let groups = end.div_ceil(NARROW);
            let (p, d_s) = (room(scores, groups * count * HALVES), room(d_scores, groups * count * HALVES));
            let (q, out, d_out) = (q.slice(start, count), out.slice(start, count), d_out.slice(start, count));
            scores_by_group(l, pack(l, q, Side::Left, queries), keys, (count, dim), p);
            scores_by_group(l, pack(l, d_out, Side::Left, d_outs), values, (count, dim), d_s);
            let saved = &logsumexp[head * sequence + start..][..count];
            let d_s_turned = room(d_scores_turned, groups * NARROW * LEFT);
            let block = Queries { start, scale, logsumexp: saved, along: along(l, out, d_out) };
            recompute(l, &block, p, d_s, d_s_turned);
            let d_out = pack(l, turned(d_out), Side::Right, d_outs);
            multiply_narrow(l, (elements(p), d_out), (0..end, dim), count, plain(&mut d_qkv[v_column..], width, true));
            let q = pack(l, turned(q), Side::Right, queries);
            multiply_narrow(l, (elements(d_s), q), (0..end, dim), count, plain(&mut d_qkv[k_column..], width, true));
            let to = &mut d_qkv[start * width + q_column..];
            multiply_panels(l, (elements(d_s_turned), keys_turned), (0..count, dim), (end, sequence), plain(to, width, false));
        }
    }
}

/// Products of `count` rows of the left side with the right side's groups that `to` has room for, group by group: what
/// [`multiply_narrow`] takes. Rows past the end of the right side are zeros.
#[inline(always)]
fn scores_by_group<L: Lanes>(l: L, left: &[Line<f32>], right: &[Line<f32>], (count, dim): (usize, usize), to: &mut [Line<f32>]) {
    let groups = right.chunks_exact((dim * HALVES).max(1)).zip(to.chunks_exact_mut(count * HALVES));
    for (right, to) in groups {
        multiply_panels(l, (elements(left), right), (0..count, NARROW), (dim, dim), plain(elements_mut(to), NARROW, false));
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

/// What backward knows of a block of queries.
struct Queries<'a> {
    start: usize,
    scale: f32,
    /// One for each query, so it also says how many there are.
    logsumexp: &'a [f32],
    along: [f32; QUERIES],
}

/// Scores to probabilities p = exp(s*scale - logsumexp), and their gradients to p * (d_p - along) * scale; zero where the key comes after
/// the query. The latter also with keys and queries exchanged, as a left side whose rows are queries.
#[inline(always)]
fn recompute<L: Lanes>(l: L, block: &Queries<'_>, p: &mut [Line<f32>], d_p: &mut [Line<f32>], turned: &mut [Line<f32>]) {
    let count = block.logsumexp.len();
    let groups = p.chunks_exact_mut(count * HALVES).zip(d_p.chunks_exact_mut(count * HALVES)).zip(turned.chunks_exact_mut(NARROW * LEFT));
    for (group, ((p, d_p), turned)) in groups.enumerate() {
        for half in 0..HALVES {
            let first_key = group * NARROW + half * WIDTH;
            for queries in 0..HALVES {
                let mut square = [l.splat(0.0); WIDTH];
                square_of_scores(l, block, (queries * WIDTH, first_key), half, (p, d_p), &mut square);
                l.transpose(&mut square);
                for (&x, line) in square.iter().zip(turned[half * WIDTH * LEFT + queries..].iter_mut().step_by(LEFT)) {
                    l.store(x, &mut line.0);
                }
            }
        }
    }
}

/// [`recompute`] for up to sixteen queries from `first` of the block and the sixteen keys from `first_key`; `square` gets the gradients.
#[inline(always)]
fn square_of_scores<L: Lanes>(
    l: L,
    block: &Queries<'_>,
    (first, first_key): (usize, usize),
    half: usize,
    (p, d_p): (&mut [Line<f32>], &mut [Line<f32>]),
    square: &mut [L::F; WIDTH],
) {
    let count = block.logsumexp.len();
    if first >= count {
        return;
    }
    let (factor, keys) = (l.splat(block.scale), count_from(l, first_key));
    let hides = first_key + WIDTH > block.start + first + 1;
    let rows = p[first * HALVES + half..].iter_mut().step_by(HALVES).zip(d_p[first * HALVES + half..].iter_mut().step_by(HALVES));
    let known = block.logsumexp[first..].iter().zip(&block.along[first..]);
    for (i, (((p, d_p), (&logsumexp, &along)), slope)) in rows.zip(known).zip(square).enumerate() {
        let mut probability = exp(l, l.fma(l.load(&p.0), factor, l.splat(-logsumexp)));
        let mut gradient = l.mul(l.mul(probability, l.sub(l.load(&d_p.0), l.splat(along))), factor);
        if hides {
            let query = l.splat_u((block.start + first + i) as u32);
            let seen = |x: L::F| l.floats(l.select_less_u(query, keys, l.splat_u(0), l.bits(x)));
            (probability, gradient) = (seen(probability), seen(gradient));
        }
        l.store(probability, &mut p.0);
        l.store(gradient, &mut d_p.0);
        *slope = gradient;
    }
}
