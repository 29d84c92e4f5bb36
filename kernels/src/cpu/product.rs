//! Products whose left side is prepared on the way, a chunk of rows at a time, and what follows them row by row. Where both sides are, see
//! `pieces`.
//!
//! A chunk's panels, and what the product makes of them, stay in the caches of the core that works on it: apart, each of these kernels reads
//! and writes main memory, and that is most of its time. While a chunk is multiplied, what is read after it is fetched. The arithmetic is that of [`Cpu::prepare_into`], [`Cpu::gemm`] and the kernel that
//! follows, element by element; none is defined here.

use contract::recipe::{Format, OperandSpec};

use super::gemm::Output;
use super::panels::{Panels, Side};
use super::prepare::{Ahead, Plan, Seen, Task};
use super::profile::{Kernel, Shares};
use super::{Cpu, Scratch, ShapeError, expect, room};
use crate::quantise::{PrepareError, PreparedStats, Randomness, Source};

/// Rows of a chunk: whole groups of the left side, and whole tiles of 32 rows that share a scale.
const CHUNK: usize = Task::ROWS;

const _: () = assert!(CHUNK.is_multiple_of(Side::Left.group()) && CHUNK.is_multiple_of(32));

/// Why a product was not done. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ProductError {
    /// The left side could not be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The shapes do not fit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// One side of a product, still to be prepared: the arguments of [`Cpu::prepare_into`].
#[derive(Debug, Clone, Copy)]
pub struct Unprepared<'a> {
    /// The elements.
    pub source: Source<'a>,
    /// What is to be done with them.
    pub spec: &'a OperandSpec,
    /// Format of the other side.
    pub partner: Format,
    pub randomness: Randomness<'a>,
    /// Largest magnitude that a delayed scale remembers.
    pub delayed_amax: Option<f32>,
}

/// Kinds of work of a chunk, as [`Shares`] counts them.
pub(super) const PREPARE: usize = 0;
pub(super) const MULTIPLY: usize = 1;
const FOLLOW: usize = 2;

/// See [`Cpu::chunks`].
type Multiply<'a> = dyn Fn(&mut [f32], Option<&[f32]>, Option<&[f32]>) + 'a;

impl Cpu {
    /// [`Cpu::prepare_into`] and [`Cpu::gemm`] in one: `c: [left.rows, right.rows]` = (or, with `accumulate`, +=) left rightᵀ.
    pub fn gemm_from(&self, left: Unprepared<'_>, right: &Panels, c: &mut [f32], accumulate: bool) -> Result<PreparedStats, ProductError> {
        let plan = self.check_product("gemm_from", &left, right, c.len())?;
        let tasks = c.chunks_mut((CHUNK * right.rows).max(1));
        Ok(self.chunks(&left, &plan, right, accumulate, Kernel::Elementwise, tasks, |c, multiply, _| multiply(c, None, None)))
    }

    /// [`Cpu::gemm_from`] with `c` = `residual` + left rightᵀ.
    pub fn gemm_from_onto(
        &self,
        left: Unprepared<'_>,
        right: &Panels,
        residual: &[f32],
        c: &mut [f32],
    ) -> Result<PreparedStats, ProductError> {
        let plan = self.check_product("gemm_from_onto", &left, right, c.len())?;
        expect("gemm_from_onto", "residual", c.len(), residual.len())?;
        let chunk = (CHUNK * right.rows).max(1);
        let tasks = c.chunks_mut(chunk).zip(residual.chunks(chunk));
        Ok(self.chunks(&left, &plan, right, false, Kernel::Elementwise, tasks, |(c, residual), multiply, _| {
            multiply(c, Some(residual), None);
        }))
    }

    /// [`Cpu::gemm_from`] into `gate_up: [tokens, 2*ffn]`, then [`Cpu::swiglu`] into `y: [tokens, ffn]`.
    pub fn gemm_from_swiglu(
        &self,
        left: Unprepared<'_>,
        right: &Panels,
        gate_up: &mut [f32],
        y: &mut [f32],
    ) -> Result<PreparedStats, ProductError> {
        const KERNEL: &str = "gemm_from_swiglu";
        let plan = self.check_product(KERNEL, &left, right, gate_up.len())?;
        let ffn = right.rows / 2;
        expect(KERNEL, "right's rows", 2 * ffn, right.rows)?;
        expect(KERNEL, "y", left.source.rows * ffn, y.len())?;
        let tasks = gate_up.chunks_mut((CHUNK * right.rows).max(1)).zip(y.chunks_mut((CHUNK * ffn).max(1)));
        Ok(self.chunks(&left, &plan, right, false, Kernel::Swiglu, tasks, |(gate_up, y), multiply, shares| {
            multiply(gate_up, None, None);
            shares.time(FOLLOW, || self.swiglu_rows(gate_up, ffn, y));
        }))
    }

    /// [`Cpu::gemm_from`] of `d_y: [tokens, ffn]`, which is not kept, then [`Cpu::swiglu_backward`] into `d_gate_up: [tokens, 2*ffn]`.
    pub fn gemm_from_swiglu_backward(
        &self,
        left: Unprepared<'_>,
        right: &Panels,
        gate_up: &[f32],
        d_gate_up: &mut [f32],
    ) -> Result<PreparedStats, ProductError> {
        const KERNEL: &str = "gemm_from_swiglu_backward";
        let (rows, ffn) = (left.source.rows, right.rows);
        let plan = self.check_product(KERNEL, &left, right, rows * ffn)?;
        expect(KERNEL, "gate_up", 2 * rows * ffn, gate_up.len())?;
        expect(KERNEL, "d_gate_up", 2 * rows * ffn, d_gate_up.len())?;
        let chunk = (2 * CHUNK * ffn).max(1);
        let tasks = gate_up.chunks(chunk).zip(d_gate_up.chunks_mut(chunk));
        Ok(self.chunks(&left, &plan, right, false, Kernel::Swiglu, tasks, |(gate_up, d_gate_up), multiply, shares| {
            self.with_scratch(|scratch| {
                let d_y = room(&mut scratch.chunk, gate_up.len() / 2);
                multiply(d_y, None, Some(gate_up));
                shares.time(FOLLOW, || self.swiglu_backward_rows(gate_up, d_y, ffn, d_gate_up));
            });
        }))
    }

    /// The plan of the left side, if everything fits.
    fn check_product<'a>(&self, kernel: &'static str, left: &Unprepared<'a>, right: &Panels, c: usize) -> Result<Plan<'a>, ProductError> {
        let error = |problem: String| Err(ProductError::Shape(ShapeError { kernel, problem }));
        if left.source.k != right.k {
            return error(format!("left has k = {}, right has k = {}", left.source.k, right.k));
        }
        if right.side != Side::Right {
            return error("the right operand was prepared as the left one".to_owned());
        }
        expect(kernel, "c", left.source.rows * right.rows, c)?;
        let mut plan = self.plan_of(left)?;
        if plan.is_mxfp4() != right.is_mxfp4() {
            return error("one operand is prepared for an integer product, the other for one in F32".to_owned());
        }
        if plan.is_mxfp4() && self.tiles().is_some() {
            plan.layout = right.layout;
        }
        Ok(plan)
    }

    pub(super) fn plan_of<'a>(&self, side: &Unprepared<'a>) -> Result<Plan<'a>, PrepareError> {
        self.plan(side.source, side.spec, side.partner, side.randomness, side.delayed_amax)
    }

    /// Calls `work(task, multiply, shares)` for every chunk of rows; `multiply(c, onto, next)` prepares the chunk and multiplies it into
    /// `c`, adding to `onto`. What is read then is `next`, or the chunk that this thread is likely to be given.
    #[allow(clippy::too_many_arguments)] // what the four products above differ in
    fn chunks<T: Send>(
        &self,
        left: &Unprepared<'_>,
        plan: &Plan<'_>,
        right: &Panels,
        accumulate: bool,
        follows: Kernel,
        tasks: impl Iterator<Item = T> + Send,
        work: impl Fn(T, &Multiply<'_>, &Shares<3>) + Sync,
    ) -> PreparedStats {
        let Source { rows, k, .. } = left.source;
        let multiplies = if plan.is_mxfp4() { Kernel::GemmMxfp4 } else { Kernel::GemmFloat };
        let kinds = [(plan.kernel(), rows * k), (multiplies, 2 * rows * k * right.rows), (follows, 0)];
        let shares = Shares::start(self.profile.as_ref(), kinds);
        let factor = (f64::from(plan.factor) * f64::from(right.factor)) as f32;
        let seen = self.all_seen(tasks.enumerate(), |(number, task)| {
            let first = number * CHUNK;
            let part = Task { row: first, rows: CHUNK.min(rows - first), columns: 0..k, ahead: Ahead::Nothing };
            let next_chunk = plan.rows_in_memory(first + self.threads * CHUNK, CHUNK);
            let seen = std::cell::Cell::new(Seen::default());
            self.with_scratch(|Scratch { left: panels, .. }| {
                let panels = std::cell::RefCell::new(panels);
                let multiply = |c: &mut [f32], onto: Option<&[f32]>, next: Option<&[f32]>| {
                    let mut panels = panels.borrow_mut();
                    seen.set(shares.time(PREPARE, || self.prepare_part(plan, Side::Left, &part, Seen::default(), &mut panels)));
                    let output =
                        Output { c, stride: right.rows, accumulate, onto, factor, goes_on: false, next: [next.unwrap_or(next_chunk), &[]] };
                    shares.time(MULTIPLY, || self.multiply_rows(&panels, (right, 0), 0..part.rows, output));
                };
                work(task, &multiply, &shares);
            });
            seen.get()
        });
        PreparedStats { amax: f32::from_bits(seen.largest) }
    }
}
