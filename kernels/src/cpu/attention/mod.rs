//! Causal attention with grouped key and value heads, forward and backward, without keeping the probabilities.
//!
//! Only the logarithm of each row's softmax sum is saved; backward recomputes the probabilities from it (arXiv 2205.14135,
//! appendix B), block of queries by block.
//!
//! What one product writes is, as it lies, the left side of the next: probabilities, a row a query. `tiles` has the products.

mod backward;
mod forward;
mod tiles;

use self::backward::{Saved, backward};
use self::forward::forward;
use self::tiles::{LINES, ROW, Row, rows};
use super::gemm::Matrix;
use super::lanes::Lanes;
use super::panels::{Line, Side};
use super::prepare::pack_group;
use super::profile::{Kernel, Shares};
use super::{Cpu, RopeTable, ShapeError, dispatch, expect, room};

/// Queries worked on together. Part of the definition: gradients of keys and values are summed block of queries by block.
const QUERIES: usize = 32;

const _: () = assert!(QUERIES == tiles::ROW);

/// Memory of one task.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    scores: Vec<Line<f32>>,
    d_scores: Vec<Line<f32>>,
    /// Keys and values of one head, packed once for all queries that read them.
    keys: Vec<Line<f32>>,
    values: Vec<Line<f32>>,
    keys_turned: Vec<Line<f32>>,
    /// Their gradients.
    d_keys: Vec<Line<f32>>,
    d_values: Vec<Line<f32>>,
    /// A block of queries and of what goes with them.
    queries: Vec<Line<f32>>,
    d_out: Vec<Line<f32>>,
    /// Sums of a block of queries.
    sums: Vec<Line<f32>>,
}

/// The right side's panels of a matrix, in `to`: by group of its rows, then by k.
#[inline(always)]
fn pack<'a, L: Lanes>(l: L, m: Matrix<'_>, to: &'a mut Vec<Line<f32>>) -> &'a [Row] {
    let lines = m.k * LINES;
    let to = room(to, m.rows.div_ceil(ROW) * lines);
    for (group, to) in to.chunks_exact_mut(lines.max(1)).enumerate() {
        pack_group(l, m, Side::Right, group * ROW, to);
    }
    rows(to)
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

    /// Heads of a row of the fused buffer that are turned by their position: those of queries and keys, which come first.
    fn turned_heads(&self) -> usize {
        self.heads + self.kv_heads
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
            self.attend(qkv, shape, out, logsumexp);
        });
        Ok(())
    }

    /// [`Cpu::rope`] of queries and keys, in place, and [`Cpu::attention`], a sequence after the other: what is turned is still in a cache when
    /// attention reads it.
    pub fn rope_attention(
        &self,
        qkv: &mut [f32],
        shape: AttentionShape,
        table: &RopeTable,
        out: &mut [f32],
        logsumexp: &mut [f32],
    ) -> Result<(), ShapeError> {
        const KERNEL: &str = "rope_attention";
        shape.check(KERNEL, qkv.len(), out.len(), logsumexp.len())?;
        if out.is_empty() {
            return Ok(());
        }
        table.check(KERNEL, shape.head_dim, shape.sequence)?;
        let shares = Shares::start(self.profile.as_ref(), [(Kernel::Attention, 0), (Kernel::Rope, 0)]);
        let (sequence, width) = (shape.sequence, shape.qkv_width());
        let tasks = qkv.chunks_mut(sequence * width).zip(out.chunks_mut(sequence * shape.out_width()));
        self.each(tasks.zip(logsumexp.chunks_mut(shape.heads * sequence)), |((qkv, out), logsumexp)| {
            shares.time(1, || self.turn(qkv, width, shape.turned_heads(), shape.head_dim, table, 1.0));
            shares.time(0, || self.attend(qkv, shape, out, logsumexp));
        });
        Ok(())
    }

    /// One sequence. Compiled once, however many callers it has.
    #[inline(never)]
    fn attend(&self, qkv: &[f32], shape: AttentionShape, out: &mut [f32], logsumexp: &mut [f32]) {
        self.with_scratch(|s| dispatch!(self, |l| forward(l, qkv, shape, out, logsumexp, &mut s.attention)));
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
        self.attention_gradient(("attention_backward", None), qkv, shape, (out, logsumexp, d_out), d_qkv)
    }

    /// Gradient of [`Cpu::rope_attention`] with respect to what was not turned yet; `qkv` is what it left.
    #[allow(clippy::too_many_arguments)] // those of `attention_backward`, and the angles
    pub fn rope_attention_backward(
        &self,
        qkv: &[f32],
        shape: AttentionShape,
        table: &RopeTable,
        out: &[f32],
        logsumexp: &[f32],
        d_out: &[f32],
        d_qkv: &mut [f32],
    ) -> Result<(), ShapeError> {
        self.attention_gradient(("rope_attention_backward", Some(table)), qkv, shape, (out, logsumexp, d_out), d_qkv)
    }

    /// With angles, queries' and keys' gradients are turned back, a sequence after the other.
    fn attention_gradient(
        &self,
        (kernel, table): (&'static str, Option<&RopeTable>),
        qkv: &[f32],
        shape: AttentionShape,
        (out, logsumexp, d_out): (&[f32], &[f32], &[f32]),
        d_qkv: &mut [f32],
    ) -> Result<(), ShapeError> {
        shape.check(kernel, qkv.len(), out.len(), logsumexp.len())?;
        expect(kernel, "d_out", out.len(), d_out.len())?;
        expect(kernel, "d_qkv", qkv.len(), d_qkv.len())?;
        if out.is_empty() {
            return Ok(());
        }
        table.map_or(Ok(()), |table| table.check(kernel, shape.head_dim, shape.sequence))?;
        let shares = Shares::start(self.profile.as_ref(), [(Kernel::AttentionBackward, 0), (Kernel::Rope, 0)]);
        let (sequence, width, out_width) = (shape.sequence, shape.qkv_width(), shape.out_width());
        let [out, d_out] = [out, d_out].map(|x| from_each(x, sequence * out_width));
        let tasks = from_each(qkv, sequence * width).zip(out).zip(d_out);
        let tasks = tasks.zip(logsumexp.chunks(shape.heads * sequence)).zip(d_qkv.chunks_mut(sequence * width));
        self.each(tasks, |((((qkv, out), d_out), logsumexp), d_qkv)| {
            let saved = Saved { qkv, out, logsumexp, d_out, ahead: self.threads * sequence };
            shares.time(0, || self.with_scratch(|s| dispatch!(self, |l| backward(l, shape, saved, d_qkv, &mut s.attention))));
            if let Some(table) = table {
                shares.time(1, || self.turn(d_qkv, width, shape.turned_heads(), shape.head_dim, table, -1.0));
            }
        });
        Ok(())
    }
}

/// What is left of `x` from each of its chunks on.
fn from_each(x: &[f32], chunk: usize) -> impl Iterator<Item = &[f32]> {
    (0..x.len()).step_by(chunk).map(|first| &x[first..])
}

/// The same matrix with rows and contraction axis exchanged.
fn turned(m: Matrix<'_>) -> Matrix<'_> {
    Matrix { values: m.values, rows: m.k, k: m.rows, row_stride: m.k_stride, k_stride: m.row_stride }
}

/// Columns of the three parts that query head `head` uses.
fn columns(shape: AttentionShape, head: usize) -> (usize, usize, usize) {
    let shared = head / (shape.heads / shape.kv_heads);
    (head * shape.head_dim, (shape.heads + shared) * shape.head_dim, (shape.heads + shape.kv_heads + shared) * shape.head_dim)
}
