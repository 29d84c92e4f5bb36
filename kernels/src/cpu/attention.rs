//! Causal attention with grouped key and value heads, forward and backward, without keeping the probabilities.
//!
//! Only the logarithm of each row's softmax sum is saved; backward recomputes the probabilities from it (arXiv 2205.14135,
//! appendix B), block of queries by block.

use super::gemm::{Matrix, Output, Scratch, multiply, room};
use super::lanes::{Lanes, WIDTH, get, put};
use super::math::exp;
use super::{Cpu, ShapeError, dispatch, expect};

/// Queries worked on together. Part of the definition: gradients of keys and values are summed block of queries by block.
const QUERIES: usize = 32;

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
        let (sequence, width) = (shape.sequence, shape.qkv_width());
        let tasks = qkv.chunks(sequence * width).zip(out.chunks_mut(sequence * shape.out_width()));
        self.each(tasks.zip(logsumexp.chunks_mut(shape.heads * sequence)), |((qkv, out), logsumexp)| {
            self.with_scratch(|scratch| dispatch!(self, |l| forward(l, qkv, shape, out, logsumexp, scratch)));
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
        let (sequence, width, out_width) = (shape.sequence, shape.qkv_width(), shape.out_width());
        let tasks = qkv.chunks(sequence * width).zip(out.chunks(sequence * out_width)).zip(d_out.chunks(sequence * out_width));
        let tasks = tasks.zip(logsumexp.chunks(shape.heads * sequence)).zip(d_qkv.chunks_mut(sequence * width));
        self.each(tasks, |((((qkv, out), d_out), logsumexp), d_qkv)| {
            self.with_scratch(|scratch| dispatch!(self, |l| backward(l, qkv, shape, out, logsumexp, d_out, d_qkv, scratch)));
        });
        Ok(())
    }
}

/// The same matrix with rows and contraction axis exchanged.
fn turned(m: Matrix<'_>) -> Matrix<'_> {
    Matrix { values: m.values, rows: m.k, k: m.rows, row_stride: m.k_stride, k_stride: m.row_stride }
}

fn plain(c: &mut [f32], stride: usize, accumulate: bool) -> Output<'_> {
    Output { c, stride, accumulate, factor: 1.0 }
}

/// Columns of the three parts that query head `head` uses.
fn columns(shape: AttentionShape, head: usize) -> (usize, usize, usize) {
    let shared = head / (shape.heads / shape.kv_heads);
    (head * shape.head_dim, (shape.heads + shared) * shape.head_dim, (shape.heads + shape.kv_heads + shared) * shape.head_dim)
}

#[inline(always)]
fn forward<L: Lanes>(l: L, qkv: &[f32], shape: AttentionShape, out: &mut [f32], logsumexp: &mut [f32], scratch: &mut Scratch) {
    let (sequence, width, dim) = (shape.sequence, shape.qkv_width(), shape.head_dim);
    let scale = 1.0 / (dim as f32).sqrt();
    let mut scores = std::mem::take(&mut scratch.scores);
    for head in 0..shape.heads {
        let (q, k, v) = columns(shape, head);
        let (q, k, v) = (shape.head(qkv, width, q), shape.head(qkv, width, k), shape.head(qkv, width, v));
        for start in (0..sequence).step_by(QUERIES) {
            let count = QUERIES.min(sequence - start);
            let end = start + count;
            let p = room(&mut scores, count * end);
            multiply(l, q.slice(start, count), k.slice(0, end), plain(p, end, false), scratch);
            let mut inverse = [0.0; QUERIES];
            for (i, row) in p.chunks_exact_mut(end).enumerate() {
                let (largest, sum) = softmax(l, row, start + i + 1, scale);
                inverse[i] = 1.0 / sum;
                logsumexp[head * sequence + start + i] = (f64::from(largest * scale) + libm::log(f64::from(sum))) as f32;
            }
            let to = &mut out[start * shape.out_width() + head * dim..];
            multiply(l, Matrix::new(p, count, end), turned(v.slice(0, end)), plain(to, shape.out_width(), false), scratch);
            for (i, inverse) in inverse.iter().enumerate().take(count) {
                let row = &mut to[i * shape.out_width()..][..dim];
                for at in (0..dim).step_by(WIDTH) {
                    put(l, l.mul(get(l, row, at), l.splat(*inverse)), row, at);
                }
            }
        }
    }
    scratch.scores = scores;
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
    scratch: &mut Scratch,
) {
    let (sequence, width, dim, out_width) = (shape.sequence, shape.qkv_width(), shape.head_dim, shape.out_width());
    let scale = 1.0 / (dim as f32).sqrt();
    let (mut p_buffer, mut d_buffer) = (std::mem::take(&mut scratch.scores), std::mem::take(&mut scratch.d_scores));
    d_qkv.fill(0.0);
    for head in 0..shape.heads {
        let (q_column, k_column, v_column) = columns(shape, head);
        let [q, k, v] = [q_column, k_column, v_column].map(|column| shape.head(qkv, width, column));
        let (out, d_out) = (shape.head(out, out_width, head * dim), shape.head(d_out, out_width, head * dim));
        for start in (0..sequence).step_by(QUERIES) {
            let count = QUERIES.min(sequence - start);
            let end = start + count;
            let (p, d_p) = (room(&mut p_buffer, count * end), room(&mut d_buffer, count * end));
            let (q, out, d_out) = (q.slice(start, count), out.slice(start, count), d_out.slice(start, count));
            multiply(l, q, k.slice(0, end), plain(p, end, false), scratch);
            multiply(l, d_out, v.slice(0, end), plain(d_p, end, false), scratch);
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
            multiply(l, turned(p), turned(d_out), plain(&mut d_qkv[v_column..], width, true), scratch);
            multiply(l, turned(d_s), turned(q), plain(&mut d_qkv[k_column..], width, true), scratch);
            let to = &mut d_qkv[start * width + q_column..];
            multiply(l, d_s, turned(k.slice(0, end)), plain(to, width, false), scratch);
        }
    }
    (scratch.scores, scratch.d_scores) = (p_buffer, d_buffer);
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
