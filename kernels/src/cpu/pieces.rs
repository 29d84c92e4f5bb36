//! Products of which both sides are prepared on the way, a piece of the contraction axis at a time: gradients of weights.
//!
//! That axis is long (the tokens), and the panels of both sides together are as large as what they are made of. Prepared as a whole they go
//! out to main memory and come back; a piece of them stays in the second-level cache. Between pieces the sums wait in C, which keeps their
//! bits. The arithmetic is that of [`Cpu::prepare_into`] and [`Cpu::gemm`].

use std::ops::Range;

use super::gemm::{Output, SHARES};
use super::panels::{Panels, Side};
use super::prepare::{Ahead, LARGEST, Plan, Seen, Task};
use super::product::{MULTIPLY, PREPARE, ProductError, Unprepared};
use super::profile::{Kernel, Shares};
use super::{Cpu, Scratch, ShapeError, expect};
use crate::quantise::{PreparedStats, Source};

/// Columns of a piece in F32, whole blocks and rotations, and in words of four: so few that the panels of both sides, what they are made of
/// and the sums share a second-level cache, so many that the sums' way to it and back is short beside the work.
const FLOATS: usize = LARGEST;
const WORDS: usize = 2 * LARGEST;

/// Rows of a share begin where 32 rows that share a scale do.
const SHARE_ROWS: usize = 32;

/// A product that passed its checks.
struct Product<'a> {
    left: Plan<'a>,
    right: Plan<'a>,
    rows: usize,
    columns: usize,
    k: usize,
    factor: f32,
    shares: Shares<2>,
}

impl Cpu {
    /// [`Cpu::prepare_into`] of both sides and [`Cpu::gemm`] in one: `c: [left.rows, right.rows]` = left rightᵀ. Returns what was seen of
    /// each side.
    ///
    /// # Errors
    /// A side that cannot be prepared, or shapes and formats that do not fit together. Nothing was written then.
    pub fn gemm_from_both(&self, left: Unprepared<'_>, right: Unprepared<'_>, c: &mut [f32]) -> Result<[PreparedStats; 2], ProductError> {
        const KERNEL: &str = "gemm_from_both";
        let (rows, columns, k) = (left.source.rows, right.source.rows, left.source.k);
        expect(KERNEL, "right", columns * k, right.source.values.len())?;
        expect(KERNEL, "c", rows * columns, c.len())?;
        let mut plans = (self.plan_of(&left)?, self.plan_of(&right)?);
        if plans.0.is_mxfp4() != plans.1.is_mxfp4() {
            let problem = "one operand is prepared for an integer product, the other for one in F32".to_owned();
            return Err(ShapeError { kernel: KERNEL, problem }.into());
        }
        if plans.0.is_mxfp4() {
            let layout = self.layout_of_words(rows * columns / (rows + columns).max(1));
            (plans.0.layout, plans.1.layout) = (layout, layout);
        }
        let (prepares, multiplies) = (plans.0.kernel(), if plans.0.is_mxfp4() { Kernel::GemmMxfp4 } else { Kernel::GemmFloat });
        let product = Product {
            factor: (f64::from(plans.0.factor) * f64::from(plans.1.factor)) as f32,
            shares: Shares::start(self.profile.as_ref(), [(prepares, (rows + columns) * k), (multiplies, 2 * rows * columns * k)]),
            left: plans.0,
            right: plans.1,
            rows,
            columns,
            k,
        };
        let seen = if self.threads == 1 { self.by_pieces(&product, c) } else { self.by_shares(&product, right.source, c) };
        Ok(seen.map(|seen| PreparedStats { amax: f32::from_bits(seen.largest) }))
    }

    /// On one thread: pieces of both sides.
    fn by_pieces(&self, p: &Product<'_>, c: &mut [f32]) -> [Seen; 2] {
        let mut seen = [Seen::default(); 2];
        self.with_scratch(|Scratch { left, right, .. }| {
            for columns in p.pieces() {
                for (seen, (plan, side, rows, panels)) in
                    seen.iter_mut().zip([(&p.left, Side::Left, p.rows, &mut *left), (&p.right, Side::Right, p.columns, &mut *right)])
                {
                    let part = Task { row: 0, rows, columns: columns.clone(), ahead: Ahead::Nothing };
                    *seen = p.shares.time(PREPARE, || self.prepare_part(plan, side, &part, *seen, panels));
                }
                // While a piece is multiplied, the next one is fetched.
                let next = [&p.left, &p.right].map(|plan| plan.columns_in_memory(columns.end, columns.len()));
                self.add_piece(p, left, (right, 0), (&columns, next), c);
            }
        });
        seen
    }

    /// On several threads, none of which waits for another between pieces: rows of C are shared out, and each share prepares its own pieces of
    /// the left side. The right side belongs to all, and is prepared before.
    fn by_shares(&self, p: &Product<'_>, right: Source<'_>, c: &mut [f32]) -> [Seen; 2] {
        self.with_scratch(|Scratch { whole, .. }| {
            let seen_right = p.shares.time(PREPARE, || self.prepare_whole(&p.right, right, Side::Right, whole));
            let share = p.rows.div_ceil(SHARES * self.threads).next_multiple_of(SHARE_ROWS);
            let tasks = c.chunks_mut((share * p.columns).max(1)).enumerate();
            let seen_left = self.all_seen(tasks, |(number, c)| {
                let row = number * share;
                let mut seen = Seen::default();
                self.with_scratch(|Scratch { left, .. }| {
                    for columns in p.pieces() {
                        let part = Task { row, rows: share.min(p.rows - row), columns: columns.clone(), ahead: Ahead::Nothing };
                        seen = p.shares.time(PREPARE, || self.prepare_part(&p.left, Side::Left, &part, seen, left));
                        self.add_piece(p, left, (whole, columns.start), (&columns, [&[]; 2]), c);
                    }
                });
                seen
            });
            [seen_left, seen_right]
        })
    }

    /// Adds the products of a piece to the sums in `c`, and finishes them after the last one; meanwhile `next` is fetched.
    fn add_piece(
        &self,
        p: &Product<'_>,
        left: &Panels,
        right: (&Panels, usize),
        (columns, next): (&Range<usize>, [&[f32]; 2]),
        c: &mut [f32],
    ) {
        let factor = if columns.end == p.k { p.factor } else { 1.0 };
        let output = Output { c, stride: p.columns, accumulate: false, onto: None, factor, goes_on: columns.start > 0, next };
        p.shares.time(MULTIPLY, || self.multiply_rows(left, right, 0..left.rows, output));
    }
}

impl Product<'_> {
    /// At least one, so that C is written if there is nothing to add up.
    fn pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (k, piece) = (self.k, if self.left.is_mxfp4() { WORDS } else { FLOATS });
        (0..k.max(1)).step_by(piece).map(move |start| start..k.min(start + piece))
    }
}
