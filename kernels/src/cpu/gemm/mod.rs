//! C = A B^T for prepared operands and for plain F32: shapes, threads, and which kernel.
//!
//! The arithmetic is in `float` (fused multiply-add along k) and `mxfp4` (exact integer dot products of blocks of 32).
//! Every element of C is finished by one thread: rows of C are what threads share out.

mod float;
mod mxfp4;

use super::{Cpu, ShapeError, dispatch, expect};
use crate::quantise::{Prepared, decode_mxfp4};

pub(super) use float::{Output, multiply};

/// A strided F32 matrix read along k: element (row, k) is `values[row * row_stride + k * k_stride]`.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// The elements.
    pub values: &'a [f32],
    /// Number of rows.
    pub rows: usize,
    /// Length of the contraction axis.
    pub k: usize,
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance along the contraction axis.
    pub k_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Stored `[rows, k]`.
    pub fn new(values: &'a [f32], rows: usize, k: usize) -> Self {
        Self { values, rows, k, row_stride: k, k_stride: 1 }
    }

    /// Stored `[k, rows]`.
    pub fn transposed(values: &'a [f32], rows: usize, k: usize) -> Self {
        Self { values, rows, k, row_stride: 1, k_stride: rows }
    }

    fn check(&self, kernel: &'static str, name: &str) -> Result<(), ShapeError> {
        let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        if self.rows == 0 || self.k == 0 {
            return Ok(());
        }
        let end = last(self.rows, self.row_stride).zip(last(self.k, self.k_stride)).and_then(|(r, k)| r.checked_add(k));
        match end {
            Some(end) if end < self.values.len() => Ok(()),
            _ => Err(ShapeError {
                kernel,
                problem: format!(
                    "{name} is {} by {} with strides {} and {}, but has {} elements",
                    self.rows,
                    self.k,
                    self.row_stride,
                    self.k_stride,
                    self.values.len()
                ),
            }),
        }
    }

    /// Rows `start..start + rows` alone.
    pub(super) fn slice(self, start: usize, rows: usize) -> Self {
        Self { values: self.values.get(start * self.row_stride..).unwrap_or(&[]), rows, ..self }
    }
}

/// Reusable memory of one task; what is in it means nothing between calls.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    a: Vec<f32>,
    b: Vec<f32>,
    codes_a: Vec<u32>,
    codes_b: Vec<u32>,
    pub(super) scores: Vec<f32>,
    pub(super) d_scores: Vec<f32>,
}

/// The first `length` elements of `buffer`, grown if need be; contents unspecified.
pub(super) fn room<T: Copy + Default>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    if buffer.len() < length {
        buffer.resize(length, T::default());
    }
    &mut buffer[..length]
}

impl Cpu {
    /// `c: [a.rows, b.rows]` = (or, with `accumulate`, +=) the product of two prepared operands over their common k.
    ///
    /// MXFP4 by MXFP4: acc = fma(dot * 2^eB, 2^eA / 4, acc) for each block of 32 in order, dot the exact integer sum of the products of
    /// doubled codes; a block whose scale byte is 255 gives NaN. All other pairs: acc = fma(a, b, acc) for each k in order, an MXFP4
    /// side decoded first. Then the product is multiplied by the operands' scales or multipliers (one factor, rounded once,
    /// skipped when it is 1), and one F32 addition accumulates.
    ///
    /// # Errors
    /// Different k, or a `c` of another length.
    pub fn gemm(&self, a: &Prepared, b: &Prepared, c: &mut [f32], accumulate: bool) -> Result<(), ShapeError> {
        let ((rows, k, a_factor), (columns, b_k, b_factor)) = (shape(a), shape(b));
        if k != b_k {
            return Err(ShapeError { kernel: "gemm", problem: format!("a has k = {k}, b has k = {b_k}") });
        }
        expect("gemm", "c", rows * columns, c.len())?;
        let factor = (f64::from(a_factor) * f64::from(b_factor)) as f32;
        if let (Prepared::Mxfp4(a), Prepared::Mxfp4(b)) = (a, b) {
            self.each_row_range(rows, columns, c, |start, count, c| {
                let output = Output { c, stride: columns, accumulate, factor };
                self.with_scratch(|scratch| dispatch!(self, |l| mxfp4::multiply(l, a, b, start..start + count, output, scratch)));
            });
            return Ok(());
        }
        let (a, b) = (Decoded::of(a), Decoded::of(b));
        self.float_gemm(a.matrix(rows, k), b.matrix(columns, k), c, columns, accumulate, factor);
        Ok(())
    }

    /// `c: [a.rows, b.rows]`, rows `c_stride` apart, = (or +=) sum over k of a * b: fused multiply-adds in k order, then one addition.
    ///
    /// # Errors
    /// Different k, matrices that reach past their elements, rows of `c` that overlap or do not fit.
    pub fn gemm_f32(&self, a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32], c_stride: usize, accumulate: bool) -> Result<(), ShapeError> {
        const KERNEL: &str = "gemm_f32";
        a.check(KERNEL, "a")?;
        b.check(KERNEL, "b")?;
        if a.k != b.k {
            return Err(ShapeError { kernel: KERNEL, problem: format!("a has k = {}, b has k = {}", a.k, b.k) });
        }
        if a.rows == 0 || b.rows == 0 {
            return Ok(());
        }
        let needed = (a.rows - 1).checked_mul(c_stride).and_then(|n| n.checked_add(b.rows));
        if c_stride < b.rows || needed.is_none_or(|needed| needed > c.len()) {
            let problem = format!("c has {} elements, too few for {} rows of {} at stride {c_stride}", c.len(), a.rows, b.rows);
            return Err(ShapeError { kernel: KERNEL, problem });
        }
        self.float_gemm(a, b, c, c_stride, accumulate, 1.0);
        Ok(())
    }

    /// After all checks.
    fn float_gemm(&self, a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32], c_stride: usize, accumulate: bool, factor: f32) {
        self.each_row_range(a.rows, c_stride, c, |start, count, c| {
            let output = Output { c, stride: c_stride, accumulate, factor };
            self.with_scratch(|scratch| dispatch!(self, |l| multiply(l, a.slice(start, count), b, output, scratch)));
        });
    }

    /// Shares the rows of c out: one range a thread, so that panels of b are packed as few times as possible.
    fn each_row_range(&self, rows: usize, stride: usize, c: &mut [f32], work: impl Fn(usize, usize, &mut [f32]) + Sync + Send) {
        if rows == 0 || stride == 0 || c.is_empty() {
            return;
        }
        // Whole tiles of the widest kernel.
        let share = rows.div_ceil(self.threads).next_multiple_of(24);
        let tasks = c.chunks_mut(share * stride).enumerate().map(|(i, c)| (i * share, c));
        self.each(tasks.take(rows.div_ceil(share)), |(start, c)| work(start, share.min(rows - start), c));
    }
}

/// Rows, k, factor of the finished product.
fn shape(operand: &Prepared) -> (usize, usize, f32) {
    match operand {
        Prepared::Mxfp4(m) => (m.rows, m.k, m.multiplier),
        Prepared::Float(f) => (f.rows, f.k, f.scale),
    }
}

/// Element values of an operand, without its factor.
enum Decoded<'a> {
    Borrowed(&'a [f32]),
    Owned(Vec<f32>),
}

impl<'a> Decoded<'a> {
    fn of(operand: &'a Prepared) -> Self {
        match operand {
            Prepared::Float(f) => Self::Borrowed(&f.values),
            Prepared::Mxfp4(m) => Self::Owned(decode_mxfp4(m)),
        }
    }

    fn matrix(&self, rows: usize, k: usize) -> Matrix<'_> {
        match self {
            Self::Borrowed(values) => Matrix::new(values, rows, k),
            Self::Owned(values) => Matrix::new(values, rows, k),
        }
    }
}
