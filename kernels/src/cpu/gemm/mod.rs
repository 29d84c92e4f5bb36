//! C = A Bᵀ for prepared operands and for plain F32: shapes, threads, and which kernel.
//!
//! The arithmetic is in `float` (fused multiply-add along k) and `mxfp4` (exact integer dot products of blocks of 32), the loops
//! around it in `blocked`; with few registers `packed` first copies what they read. Every element of C is finished by one thread: rows of C
//! are what threads share out.

mod amx;
mod blocked;
mod float;
mod mxfp4;
mod packed;
mod tiles;
mod turned;

use std::ops::Range;
use std::sync::Mutex;

use super::lanes::{Lanes, WIDTH};
use super::panels::{Layout, Line, Panels, Side, elements};
use super::profile::Kernel;
use super::{Cpu, Scratch, ShapeError, dispatch, expect};
use crate::quantise::{BLOCK, Source};

pub(super) use amx::Tiles;
pub(super) use blocked::Output;
pub(super) use packed::Copies;

/// Rows of C that are never parted: whole tiles of every kernel.
const TILE_ROWS: usize = 12;
/// The same where panels are matrix tiles.
const MATRIX_TILE_ROWS: usize = Side::Left.group();

const _: () = assert!(TILE_ROWS.is_multiple_of(float::NARROW_ROWS) && TILE_ROWS.is_multiple_of(mxfp4::NARROW_ROWS));
const _: () = assert!(MATRIX_TILE_ROWS.is_multiple_of(TILE_ROWS) && MATRIX_TILE_ROWS.is_multiple_of(WIDTH));

/// Shares of the rows of C for each thread: more than one, so that a thread that was held up does not hold up the others.
pub(super) const SHARES: usize = 3;

/// Bytes of C that a share of a product has, about: its sums wait there between pieces of k, and shall not go out to main memory.
const SUMS_BYTES: usize = 3 << 18;

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

/// Where a product goes, before it is shared out.
pub(super) struct Target<'a> {
    pub(super) c: &'a mut [f32],
    /// Distance between rows.
    pub(super) stride: usize,
    pub(super) accumulate: bool,
    pub(super) factor: f32,
    /// Whether `c` holds the sum over earlier k, with which this one goes on.
    pub(super) goes_on: bool,
}

impl<'a> Target<'a> {
    /// Overwrites `c`.
    pub(super) fn over(c: &'a mut [f32], stride: usize) -> Self {
        Self { c, stride, accumulate: false, factor: 1.0, goes_on: false }
    }
}

impl<'a> From<Source<'a>> for Matrix<'a> {
    fn from(source: Source<'a>) -> Self {
        if source.transposed {
            Self::transposed(source.values, source.rows, source.k)
        } else {
            Self::new(source.values, source.rows, source.k)
        }
    }
}

impl Cpu {
    /// `c: [left.rows, right.rows]` = (or, with `accumulate`, +=) the product of two prepared operands over their common k.
    ///
    /// MXFP4 by MXFP4: acc = fma(dot * 2^eB, 2^eA / 4, acc) for each block of 32 in order, dot the exact integer sum of the products of
    /// doubled codes; a block whose scale byte is 255 gives NaN. All other pairs: acc = fma(a, b, acc) for each k in order, an MXFP4
    /// side decoded first. Then the product is multiplied by the operands' scales or multipliers (one factor, rounded once,
    /// skipped when it is 1), and one F32 addition accumulates.
    ///
    /// # Errors
    /// Different k, sides exchanged, one side laid out as integers and the other not, or a `c` of another length.
    pub fn gemm(&self, left: &Panels, right: &Panels, c: &mut [f32], accumulate: bool) -> Result<(), ShapeError> {
        const KERNEL: &str = "gemm";
        let problem = if left.k != right.k {
            format!("left has k = {}, right has k = {}", left.k, right.k)
        } else if (left.side, right.side) != (Side::Left, Side::Right) {
            format!("the operands were prepared as {:?} and {:?}", left.side, right.side)
        } else if left.is_mxfp4() != right.is_mxfp4() {
            "one operand was prepared for an integer product, the other for one in F32".to_owned()
        } else {
            String::new()
        };
        if !problem.is_empty() {
            return Err(ShapeError { kernel: KERNEL, problem });
        }
        expect(KERNEL, "c", left.rows * right.rows, c.len())?;
        let (kernel, work) = (if left.is_mxfp4() { Kernel::GemmMxfp4 } else { Kernel::GemmFloat }, 2 * c.len() * left.k);
        let _timer = self.timer(kernel, work);
        let factor = (f64::from(left.factor) * f64::from(right.factor)) as f32;
        self.multiply(left, right, Target { accumulate, factor, ..Target::over(c, right.rows) });
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
        let _timer = self.timer(Kernel::GemmF32, 2 * a.rows * b.rows * a.k);
        self.with_scratch(|scratch| {
            self.pack_f32(a, Side::Left, &mut scratch.left);
            self.pack_f32(b, Side::Right, &mut scratch.right);
            self.multiply(&scratch.left, &scratch.right, Target { accumulate, ..Target::over(c, c_stride) });
        });
        Ok(())
    }

    /// After all checks. One share of rows is the work of one task.
    pub(super) fn multiply(&self, left: &Panels, right: &Panels, target: Target<'_>) {
        let Target { c, stride, accumulate, factor, goes_on } = target;
        let rows = left.rows;
        if rows == 0 || stride == 0 || c.is_empty() {
            return;
        }
        let together = if left.layout == Layout::Tiles { MATRIX_TILE_ROWS } else { TILE_ROWS };
        let most = (SUMS_BYTES / (size_of::<f32>() * stride)).max(Side::Left.group()).next_multiple_of(together);
        let share = self.share(rows, together).min(most);
        let tasks = c.chunks_mut(share * stride).enumerate().take(rows.div_ceil(share));
        self.each(tasks, |(task, c)| {
            let rows = task * share..rows.min((task + 1) * share);
            self.multiply_rows(left, (right, 0), rows, Output { c, stride, accumulate, onto: None, factor, goes_on, next: [&[]; 2] });
        });
    }

    /// Rows of C that a task gets.
    fn share(&self, rows: usize, together: usize) -> usize {
        let shares = if self.threads == 1 { 1 } else { SHARES * self.threads };
        rows.div_ceil(shares).next_multiple_of(together)
    }

    /// `c: [turned.k, right.rows]` = A rightᵀ for `turned`, the left side's F32 panels of Aᵀ; without factors.
    pub(super) fn multiply_turned(&self, turned: &Panels, right: &Panels, c: &mut [f32]) {
        let (rows, columns) = (turned.k, right.rows);
        let share = self.share(rows, TILE_ROWS);
        self.each(c.chunks_mut((share * columns).max(1)).enumerate(), |(task, c)| {
            let product = turned::Product {
                left: elements(turned.floats()).as_chunks().0,
                right: right.floats().as_chunks().0,
                height: rows,
                rows: task * share..rows.min((task + 1) * share),
                columns,
                k: right.k,
            };
            dispatch!(self, |l| turned::multiply(l, &product, c));
        });
    }

    /// Some rows of the left side, on the caller's thread; of the right side's k those from `first` (where a block begins) are meant, as many
    /// as the left side has. Compiled once, however many callers it has.
    #[inline(never)]
    pub(super) fn multiply_rows(&self, left: &Panels, (right, first): (&Panels, usize), rows: Range<usize>, output: Output<'_>) {
        match (left.layout, right.layout) {
            (Layout::Tiles, Layout::Tiles) if let Some((l, tiles)) = self.tiles().filter(|_| tiles::fit(left, right)) => {
                l.run(
                    #[inline(always)]
                    || tiles::multiply(l, tiles, left, (right, first / BLOCK), rows, output),
                );
            }
            (Layout::Blocks, Layout::Blocks) => {
                dispatch!(dot self, |l| mxfp4::multiply(l, left, (right, first / BLOCK), rows, &self.copies, output));
            }
            (Layout::Floats, Layout::Floats) => {
                let panels = (elements(left.floats()), right.floats().get(first * Side::Right.lines()..).unwrap_or_default());
                dispatch!(self, |l| multiply_floats(l, panels, (rows, right.rows), (left.k, right.k), &self.copies, output));
            }
            (Layout::Pairs, Layout::Pairs) if let Some(l) = self.pair_lanes().filter(|_| float::sums_are_normal(left, right)) => {
                l.run(
                    #[inline(always)]
                    || multiply_pairs(l, left, (right, first), rows, output),
                );
            }
            _ => self.with_scratch(|Scratch { left: left_apart, right: right_apart, .. }| {
                self.multiply_rows(left.apart(left_apart), (right.apart(right_apart), first), rows, output);
            }),
        }
    }
}

/// C = A Bᵀ from panels (shapes already checked); the right side's may hold more of k than the left's. Compiled once for each instruction set, however many callers it has.
#[inline(never)]
fn multiply_floats<L: Lanes>(
    l: L,
    (left, right): (&[f32], &[Line<f32>]),
    (rows, columns): (Range<usize>, usize),
    (k, right_k): (usize, usize),
    copies: &Mutex<Vec<Copies>>,
    mut output: Output<'_>,
) {
    const _: () = assert!(Side::Left.group() == 3 * WIDTH && Side::Right.group() == 2 * WIDTH);
    let product = blocked::Product { left, right, rows, columns, units: k, right_units: right_k };
    packed::multiply::<L, _, _, 12, { float::NARROW_ROWS }>(l, (float::FLOATS, float::CopiedFloats), &product, copies, &mut output);
}

/// The same from pairs of BF16.
#[inline(always)]
fn multiply_pairs<L: Lanes>(l: L, left: &Panels, (right, first): (&Panels, usize), rows: Range<usize>, mut output: Output<'_>) {
    let (together, lines) = Layout::Pairs.unit(Side::Right);
    let product = blocked::Product {
        left: elements(left.words()),
        right: right.words().get(first / together * lines..).unwrap_or_default(),
        rows,
        columns: right.rows,
        units: left.k.div_ceil(together),
        right_units: right.k.div_ceil(together),
    };
    blocked::multiply::<L, _, 12, 2>(l, float::PAIRS, &product, &mut output);
}
