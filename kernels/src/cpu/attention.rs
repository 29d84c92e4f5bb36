//! Causal attention with grouped key and value heads, forward and backward, without keeping the probabilities.
//!
//! Only the logarithm of each row's softmax sum is saved; backward recomputes the probabilities from it (arXiv 2205.14135,
//! appendix B), block of queries by block.

use super::gemm::{Matrix, Output, multiply_panels};
use super::lanes::{Lanes, WIDTH, get, put};
use super::math::exp;
use super::panels::{Line, Side, elements};
use super::prepare::pack_group;
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect, room};

/// Queries worked on together. Part of the definition: gradients of keys and values are summed block of queries by block.
const QUERIES: usize = 32;

/// Memory of one task.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    scores: Vec<f32>,
    d_scores: Vec<f32>,
    left: Vec<Line<f32>>,
    /// Keys and values of one head as right sides, both ways round, packed once for all its queries.
    keys: Vec<Line<f32>>,
    values: Vec<Line<f32>>,
    keys_turned: Vec<Line<f32>>,
    right: Vec<Line<f32>>,
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

/// C (+)= A Bᵀ, A packed here. The panels of B hold `right_k` of k, of which A's are used.
#[inline(always)]
fn product<L: Lanes>(
    l: L,
    a: Matrix<'_>,
    left: &mut Vec<Line<f32>>,
    (right, columns, right_k): (&[Line<f32>], usize, usize),
    output: Output<'_>,
) {
    let left = pack(l, a, Side::Left, left);
    multiply_panels(l, (elements(left), right), (0..a.rows, columns), (a.k, right_k), output);
}

/// Sizes of one attention call. Token t of batch entry b is row `b * sequence + t` of every buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Number of sequences.
    pub batch: usize,
    /// Tokens in each.
    pub sequence: usize,
    /// Query heads.
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
    ///
    /// # Errors
    /// Lengths or head counts that do not fit.
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
    ///
    /// # Errors
    /// Lengths or head counts that do not fit.
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
    let Buffers { scores, left, keys, values, .. } = buffers;
    for head in 0..shape.heads {
        let (q, k, v) = columns(shape, head);
        let (q, k, v) = (shape.head(qkv, width, q), shape.head(qkv, width, k), shape.head(qkv, width, v));
        let (k, v) = (pack(l, k, Side::Right, keys), pack(l, turned(v), Side::Right, values));
        for start in (0..sequence).step_by(QUERIES) {
            let count = QUERIES.min(sequence - start);
            let end = start + count;
            let p = room(scores, count * end);
            product(l, q.slice(start, count), left, (k, end, dim), plain(p, end, false));
            let mut inverse = [0.0; QUERIES];
            for (i, row) in p.chunks_exact_mut(end).enumerate() {
                let (largest, sum) = softmax(l, row, start + i + 1, scale);
                inverse[i] = 1.0 / sum;
                logsumexp[head * sequence + start + i] = (f64::from(largest * scale) + libm::log(f64::from(sum))) as f32;
            }
            let to = &mut out[start * shape.out_width() + head * dim..];
            product(l, Matrix::new(p, count, end), left, (v, dim, sequence), plain(to, shape.out_width(), false));
            for (i, inverse) in inverse.iter().enumerate().take(count) {
                let row = &mut to[i * shape.out_width()..][..dim];
                for at in (0..dim).step_by(WIDTH) {
                    put(l, l.mul(get(l, row, at), l.splat(*inverse)), row, at);
                }
            }
        }
    }
}

/// Turns the first `valid` scores into exp(s*scale - largest*scale), the rest into 0; returns the largest score and the sum.
#[inline(always)]
fn softmax<L: Lanes>(l: L, row: &mut [f32], valid: usize, scale: f32) -> (f32, f32) {
    let (row, hidden) = row.split_at_mut(valid);
    hidden.fill(0.0);
    let mut best = l.splat(f32::NEG_INFINITY);
    let (whole, rest) = row.as_chunks::<WIDTH>();
    for chunk in whole {
        best = l.max(l.load(chunk), best);
    }
    let largest = rest.iter().fold(l.largest(best), |best, &x| if x > best { x } else { best });
    let (factor, offset) = (l.splat(scale), l.splat(-(largest * scale)));
    let mut sum = l.splat(0.0);
    for at in (0..valid).step_by(WIDTH) {
        put(l, exp(l, l.fma(get(l, row, at), factor, offset)), row, at);
        // Read again: lanes past the end are zero this time.
        sum = l.add(sum, get(l, row, at));
    }
    (largest, l.sum(sum))
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
    let Buffers { scores, d_scores, left, keys, values, keys_turned, right } = buffers;
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
            let (p, d_p) = (room(scores, count * end), room(d_scores, count * end));
            let (q, out, d_out) = (q.slice(start, count), out.slice(start, count), d_out.slice(start, count));
            product(l, q, left, (keys, end, dim), plain(p, end, false));
            product(l, d_out, left, (values, end, dim), plain(d_p, end, false));
            for (i, (p, d_p)) in p.chunks_exact_mut(end).zip(d_p.chunks_exact_mut(end)).enumerate() {
                let row = i * out_width..i * out_width + dim;
                let mut along = l.splat(0.0);
                for at in (0..dim).step_by(WIDTH) {
                    along = l.fma(get(l, &out.values[row.clone()], at), get(l, &d_out.values[row.clone()], at), along);
                }
                let saved = logsumexp[head * sequence + start + i];
                recompute(l, p, d_p, start + i + 1, scale, saved, l.sum(along));
            }
            let (p, d_s) = (Matrix::new(p, count, end), Matrix::new(d_p, count, end));
            let turned_d_out = pack(l, turned(d_out), Side::Right, right);
            product(l, turned(p), left, (turned_d_out, dim, count), plain(&mut d_qkv[v_column..], width, true));
            let turned_q = pack(l, turned(q), Side::Right, right);
            product(l, turned(d_s), left, (turned_q, dim, count), plain(&mut d_qkv[k_column..], width, true));
            let to = &mut d_qkv[start * width + q_column..];
            product(l, d_s, left, (keys_turned, dim, sequence), plain(to, width, false));
        }
    }
}

/// One row: scores to probabilities p = exp(s*scale - logsumexp), and their gradients to p * (d_p - along) * scale; zero past `valid`.
#[inline(always)]
fn recompute<L: Lanes>(l: L, p: &mut [f32], d_p: &mut [f32], valid: usize, scale: f32, logsumexp: f32, along: f32) {
    let (factor, offset, along) = (l.splat(scale), l.splat(-logsumexp), l.splat(along));
    let ((p, p_hidden), (d_p, d_hidden)) = (p.split_at_mut(valid), d_p.split_at_mut(valid));
    p_hidden.fill(0.0);
    d_hidden.fill(0.0);
    for at in (0..valid).step_by(WIDTH) {
        let probability = exp(l, l.fma(get(l, p, at), factor, offset));
        let slope = l.mul(l.mul(probability, l.sub(get(l, d_p, at), along)), factor);
        put(l, probability, p, at);
        put(l, slope, d_p, at);
    }
}
