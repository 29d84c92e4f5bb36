//! Operand preparation with the values of `quantise::prepare_reference`, straight into the panels that a product reads.
//!
//! `columns` reads and rotates, `blocks` and `tensor` scale and round, `element` rounds, `random` draws. What the result must
//! be is defined in `crate::quantise`, where it lies in `panels`; neither is decided here.
//!
//! What bounds it (AVX-512, cycles for sixteen elements): the instructions of a rotated E2M1 operand need 11 on two ports. With 13 it took
//! 18 to 20 wherever it lay, and on a Xeon that others slowed the best of 41 rounds are 1.1 times as fast with 11: ports are not all that
//! bounds it. FP8 needs 11 and takes 12 to 14 from the second-level cache, 18 from beyond. Whatever is compiled without the instructions (a
//! closure that is not in place, `array::from_fn`) or makes a square of registers leave them shows at once. With AVX2 a square of 32
//! registers cannot stay in sixteen: half of it at a time is worked on where it lies. On Zen 3 that made E2M1 operands 1.2 to 1.7 times as
//! fast, and fewer instructions another 1.15 to 1.17 times, medians in turns.

mod blocks;
mod columns;
mod element;
mod random;
mod tensor;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule, Signs};

use super::gemm::Matrix;
use super::lanes::{Lanes, WIDTH};
use super::panels::{Layout, Line, Panels, Side};
use super::profile::Kernel;
use super::{Cpu, dispatch};
use crate::format::{MiniFloat, e8m0};
use crate::hadamard;
use crate::quantise::{PRESCALE_CORRECTION, PrepareError, PreparedStats, Randomness, Source, check, mini_float, tensor_scale};
pub(super) use blocks::Seen;
use blocks::{Blocks, Rounds, ScaleBits};
pub(super) use columns::LARGEST;
use columns::Reading;
use element::Target;
use tensor::Scaled;

/// Elements of a task, roughly: enough to be worth a thread, and it stays in the first two caches.
const TASK_ELEMENTS: usize = 1 << 14;

/// Uses of an element from which on matrix tiles pay: preparing for them takes 1.3 times as long as bytes, a product 0.5 to 0.6 times. On a Xeon
/// 128 uses were as fast with bytes, all told, and 256 a fifth slower.
const FEWEST_USES: usize = 192;

/// What an operand is prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    pub side: Side,
    /// Format of the other side: two E2M1 sides are multiplied as integers, others as F32 or, where both are FP8 or BF16, as pairs of BF16.
    pub partner: Format,
}

/// An operand's specification made ready: what happens to its elements, and what a product is multiplied by.
pub(super) struct Plan<'a> {
    format: Format,
    pub(super) factor: f32,
    pub(super) layout: Layout,
    work: Work<'a>,
}

enum Work<'a> {
    /// E2M1 for an integer product, or one on tiles.
    Words(Blocks<'a>),
    /// Blocks of any format as F32 values.
    Floats(Blocks<'a>),
    /// One scale, or none.
    Tensor(Reading<'a>, Option<Scaled>),
}

impl Plan<'_> {
    pub(super) fn is_mxfp4(&self) -> bool {
        matches!(self.work, Work::Words(_))
    }

    pub(super) fn kernel(&self) -> Kernel {
        if self.is_mxfp4() { Kernel::QuantiseMxfp4 } else { Kernel::PrepareFloat }
    }

    fn source(&self) -> &Matrix<'_> {
        match &self.work {
            Work::Words(b) | Work::Floats(b) => &b.reading.source,
            Work::Tensor(reading, _) => &reading.source,
        }
    }

    /// Where `count` rows from `first` lie, as far as there are any, if they lie together.
    pub(super) fn rows_in_memory(&self, first: usize, count: usize) -> &[f32] {
        let source = self.source();
        if source.k_stride == 1 { part(source.values, first * source.k, count * source.k) } else { &[] }
    }

    /// The same for columns.
    pub(super) fn columns_in_memory(&self, first: usize, count: usize) -> &[f32] {
        let source = self.source();
        if source.row_stride == 1 { part(source.values, first * source.rows, count * source.rows) } else { &[] }
    }

    /// What a product wants to know of all elements.
    fn note(&self, seen: Seen, panels: &mut Panels) {
        panels.largest_scale = seen.largest_scale as u8;
        let smallest = seen.below_smallest.wrapping_neg();
        panels.smallest = match (&self.work, mini_float(self.format)) {
            // Of a block whose largest magnitude is this.
            (Work::Words(b), _) => b.scale.smallest_element(smallest),
            (_, Some(format)) => format.smallest().to_bits(),
            (_, None) => smallest,
        };
        if self.layout == Layout::Tiles && seen.largest >= f32::INFINITY.to_bits() {
            panels.largest_scale = e8m0::NAN;
        }
    }

    /// Whether 32 rows share a scale.
    fn tiles(&self) -> bool {
        matches!(&self.work, Work::Words(b) | Work::Floats(b) if b.tiles)
    }
}

/// Rows and columns of an operand whose panels lie together.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) columns: Range<usize>,
    pub(super) ahead: Ahead,
}

/// What a task fetches into the first-level cache, a line for each that it reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ahead {
    /// Nothing: the source is in the second-level cache, where a product before has fetched it. To fetch it from there costs a fifth of the time
    /// on a Xeon.
    Nothing,
    /// What follows after some rows or columns.
    Near,
    /// What follows from this element on.
    From(usize),
}

impl Ahead {
    /// After so many elements have been read.
    fn after(self, elements: usize) -> Self {
        match self {
            Self::From(first) => Self::From(first + elements),
            Self::Nothing | Self::Near => self,
        }
    }
}

impl Task {
    /// Subgroups of sixteen rows that a task can have: two groups of the left side, or three of the right.
    const SUBGROUPS: usize = 6;
    /// Rows that a task can have.
    pub(super) const ROWS: usize = Self::SUBGROUPS * WIDTH;

    /// Calls `fill(task, lines)` for tasks of at most [`Self::ROWS`] rows with their lines of panels; `unit` columns take `unit_lines` lines.
    fn split<T>(
        &self,
        side: Side,
        (unit, unit_lines): (usize, usize),
        lines: &mut [Line<T>],
        mut fill: impl FnMut(&Self, &mut [Line<T>]) -> Seen,
    ) -> Seen {
        const { assert!(Self::ROWS.is_multiple_of(Side::Left.group()) && Self::ROWS.is_multiple_of(Side::Right.group())) };
        let task_lines = Self::ROWS / side.group() * self.columns.len().div_ceil(unit) * unit_lines;
        let mut seen = Seen::default();
        for (first, lines) in (0..self.rows).step_by(Self::ROWS).zip(lines.chunks_mut(task_lines.max(1))) {
            let ahead = self.ahead.after(first * self.columns.len());
            let task = Self { row: self.row + first, rows: Self::ROWS.min(self.rows - first), columns: self.columns.clone(), ahead };
            seen = seen.and(fill(&task, lines));
        }
        seen
    }

    fn subgroups(&self) -> usize {
        self.rows.div_ceil(WIDTH)
    }

    /// Subgroups (`step` at a time) and first columns of chunks, in the order that memory likes: along the rows of the source.
    #[inline(always)]
    fn order(&self, step: usize, chunk: usize, is_transposed: bool) -> Order {
        Order {
            next: (0, self.columns.start),
            start: self.columns.start,
            end: (self.subgroups(), self.columns.end),
            step,
            chunk,
            is_transposed,
        }
    }
}

/// See [`Task::order`].
struct Order {
    next: (usize, usize),
    /// First column.
    start: usize,
    end: (usize, usize),
    step: usize,
    chunk: usize,
    is_transposed: bool,
}

impl Iterator for Order {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let now @ (group, column) = self.next;
        if group >= self.end.0 || column >= self.end.1 {
            return None;
        }
        self.next = match self.is_transposed {
            true if group + self.step < self.end.0 => (group + self.step, column),
            true => (0, column + self.chunk),
            false if column + self.chunk < self.end.1 => (group, column + self.chunk),
            false => (group + self.step, self.start),
        };
        Some(now)
    }
}

/// The line, within a task's, of `subgroup` at `unit` (a block or a column) of `units`: groups of `lines` subgroups lie one after the other.
#[inline(always)]
fn lane_line(subgroup: usize, unit: usize, units: usize, lines: usize, unit_lines: usize) -> usize {
    ((subgroup / lines) * units + unit) * unit_lines + subgroup % lines
}

/// Cuts an operand into tasks with their lines of panels. `unit` columns take `unit_lines` lines; with `tiles` 32 rows stay together.
fn tasks<T>(
    to: &mut [Line<T>],
    (rows, k): (usize, usize),
    side: Side,
    (unit, unit_lines): (usize, usize),
    tiles: bool,
) -> impl Iterator<Item = (Task, &mut [Line<T>])> {
    // 32 divides two groups of the left side, and one of the right.
    let together = if tiles && side == Side::Left { 2 } else { 1 };
    let (height, units) = (together * side.group(), k.div_ceil(unit));
    let columns = if together > 1 { k } else { (TASK_ELEMENTS / height).next_multiple_of(LARGEST).min(k) };
    let group_lines = (units * unit_lines * together).max(1);
    to.chunks_mut(group_lines).enumerate().flat_map(move |(number, lines)| {
        let row = number * height;
        let chunk_lines = if together > 1 { group_lines } else { (columns.div_ceil(unit) * unit_lines).max(1) };
        lines.chunks_mut(chunk_lines).enumerate().map(move |(chunk, lines)| {
            let first = chunk * columns;
            (Task { row, rows: height.min(rows - row), columns: first..k.min(first + columns), ahead: Ahead::Near }, lines)
        })
    })
}

/// Groups that a strip can have.
const GROUPS: usize = 32;

/// Strips for each thread: more than one, so that a thread that was held up does not hold up the others.
const SHARES: usize = 4;

/// Some columns of all groups of an operand.
struct Strip<'a, T> {
    columns: Range<usize>,
    /// Their lines of panels, by group; empty where there is no such group.
    lines: [&'a mut [Line<T>]; GROUPS],
}

/// Cuts columns into strips of `width`, a multiple of `unit`; a unit takes `unit_lines` lines of every group.
struct Strips<'a, T> {
    rest: [&'a mut [Line<T>]; GROUPS],
    columns: Range<usize>,
    width: usize,
    unit: usize,
    unit_lines: usize,
}

impl<'a, T> Iterator for Strips<'a, T> {
    type Item = Strip<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.columns.is_empty() {
            return None;
        }
        let end = self.columns.end.min(self.columns.start + self.width);
        let columns = std::mem::replace(&mut self.columns.start, end)..end;
        let count = columns.len().div_ceil(self.unit) * self.unit_lines;
        let lines = self.rest.each_mut().map(|rest| {
            let all = std::mem::take(rest);
            let (now, later) = all.split_at_mut(count.min(all.len()));
            *rest = later;
            now
        });
        Some(Strip { columns, lines })
    }
}

impl Cpu {
    /// Prepares one operand of a GEMM into `panels`: the values of [`crate::quantise::prepare_reference`], the same bits on every instruction
    /// set and number of threads (a NaN's sign and payload, and the sign of an MXFP4 zero, excepted). Allocates only to make
    /// `panels` larger than they ever were.
    pub fn prepare_into(
        &self,
        source: Source<'_>,
        spec: &OperandSpec,
        role: Role,
        randomness: Randomness<'_>,
        delayed_amax: Option<f32>,
        panels: &mut Panels,
    ) -> Result<PreparedStats, PrepareError> {
        let plan = self.plan(source, spec, role.partner, randomness, delayed_amax)?;
        let _timer = self.timer(plan.kernel(), source.rows * source.k);
        let seen = self.prepare_whole(&plan, source, role.side, panels);
        Ok(PreparedStats { amax: f32::from_bits(seen.largest) })
    }

    /// [`Cpu::prepare_into`] of a plan.
    pub(super) fn prepare_whole(&self, plan: &Plan<'_>, source: Source<'_>, side: Side, panels: &mut Panels) -> Seen {
        let (rows, k) = (source.rows, source.k);
        panels.reshape(side, rows, k, plan.layout);
        panels.factor = plan.factor;
        let seen = match plan.layout {
            Layout::Floats => self.fill(plan, panels.floats_mut(), source, side, |task, to| self.fill_floats(plan, side, task, to)),
            Layout::Pairs | Layout::Blocks | Layout::Tiles => {
                self.fill(plan, panels.words_mut(), source, side, |task, to| self.fill_words(plan, side, task, to))
            }
        };
        plan.note(seen, panels);
        seen
    }

    /// All tasks of an operand.
    fn fill<T: Send>(
        &self,
        plan: &Plan<'_>,
        lines: &mut [Line<T>],
        source: Source<'_>,
        side: Side,
        task: impl Fn(&Task, &mut [Line<T>]) -> Seen + Sync,
    ) -> Seen {
        let (size, unit) = ((source.rows, source.k), plan.layout.unit(side));
        if source.transposed && !plan.tiles() && source.rows <= GROUPS * side.group() {
            return self.by_columns(lines, size, side, unit, task);
        }
        self.all_seen(tasks(lines, size, side, unit, plan.tiles()), |(part, to)| task(&part, to))
    }

    /// Part of an operand as panels of its own, on the caller's thread. Its rows begin where 32 rows that share a scale do, its columns
    /// where a chunk of columns does. `before`: seen in the parts whose sums the product goes on with.
    pub(super) fn prepare_part(&self, plan: &Plan<'_>, side: Side, part: &Task, before: Seen, panels: &mut Panels) -> Seen {
        panels.reshape(side, part.rows, part.columns.len(), plan.layout);
        panels.factor = plan.factor;
        let unit = plan.layout.unit(side);
        let seen = match plan.layout {
            Layout::Floats => part.split(side, unit, panels.floats_mut(), |task, to| self.fill_floats(plan, side, task, to)),
            Layout::Pairs | Layout::Blocks | Layout::Tiles => {
                part.split(side, unit, panels.words_mut(), |task, to| self.fill_words(plan, side, task, to))
            }
        };
        let seen = seen.and(before);
        plan.note(seen, panels);
        seen
    }

    /// What is to be done with an operand; reads the source only where its scale needs its largest magnitude.
    pub(super) fn plan<'a>(
        &self,
        source: Source<'a>,
        spec: &OperandSpec,
        partner: Format,
        randomness: Randomness<'a>,
        delayed_amax: Option<f32>,
    ) -> Result<Plan<'a>, PrepareError> {
        check(&source, spec, &randomness)?;
        let rotation = spec.rotation.filter(|_| source.k > 0);
        let reading = Reading {
            source: Matrix::from(source),
            as_bf16: spec.format != Format::F32,
            rotation: rotation.map_or(0, |r| r.size),
            norm: rotation.map_or(1.0, |r| hadamard::factor(r.size)),
            signs: rotation.filter(|r| r.signs != Signs::None).and(randomness.signs),
        };
        let rounds = match (spec.rounding, randomness.rounding) {
            (Rounding::Stochastic, Some(stream)) => Rounds::Stochastic(stream),
            (Rounding::StochasticPrescaled, Some(stream)) => Rounds::Prescaled(stream),
            _ => Rounds::Nearest,
        };
        let (factor, work) = match (mini_float(spec.format), spec.block) {
            (Some(format), Block::Row32 | Block::Tile32) => {
                let tiles = spec.block == Block::Tile32;
                let halvings = halvings(reading.norm);
                let reading = Reading { norm: if halvings > 0 { 1.0 } else { reading.norm }, ..reading };
                let blocks = Blocks { reading, halvings, scale: scale_bits(spec.scale, &format), rounds, tiles };
                let is_mxfp4 = spec.format == Format::E2m1 && partner == Format::E2m1;
                (correction(rounds), if is_mxfp4 { Work::Words(blocks) } else { Work::Floats(blocks) })
            }
            (Some(format), Block::Tensor) => {
                let own = || f32::from_bits(self.timed_largest(&reading));
                let amax = if spec.scale == ScaleRule::Delayed { delayed_amax.unwrap_or_else(own) } else { own() };
                let (scale, inverse) = tensor_scale(amax, &format);
                (inverse * correction(rounds), Work::Tensor(reading, Some(Scaled { scale, target: target(spec.format), rounds })))
            }
            (None, _) => {
                let rounded = spec.format == Format::Bf16 && (reading.rotation > 0 || rounds.stream().is_some());
                let scaled = Scaled { scale: 1.0, target: target(spec.format), rounds };
                (1.0, Work::Tensor(reading, rounded.then_some(scaled)))
            }
        };
        // Elements under one scale have a format's few bits; those of blocks may lie below all of BF16.
        let is_short = |format| matches!(format, Format::E4m3 | Format::E5m2 | Format::Bf16);
        let pays = self.pair_lanes().is_some() && is_short(spec.format) && is_short(partner);
        let layout = match work {
            Work::Words(_) => self.layout_of_words(source.rows),
            Work::Tensor(..) if pays => Layout::Pairs,
            Work::Floats(_) | Work::Tensor(..) => Layout::Floats,
        };
        Ok(Plan { format: spec.format, factor, layout, work })
    }

    /// How E2M1 operands are laid out whose elements are used so many times.
    pub(super) fn layout_of_words(&self, uses: usize) -> Layout {
        if self.tiles().is_some() && uses >= FEWEST_USES { Layout::Tiles } else { Layout::Blocks }
    }

    /// A plain F32 matrix as panels.
    pub(super) fn pack_f32(&self, source: Matrix<'_>, side: Side, panels: &mut Panels) {
        let (rows, k) = (source.rows, source.k);
        panels.reshape(side, rows, k, Layout::Floats);
        let tasks = tasks(panels.floats_mut(), (rows, k), side, (1, side.lines()), false);
        self.each(tasks, |(task, to)| dispatch!(self, |l| tensor::plain(l, &source, side, &task, to)));
    }

    /// Does all tasks of an operand whose contraction axis is the slow one in memory: strips of columns over all rows, so that memory is
    /// read from end to end. Apart, each group of rows would ask for a few lines of every column, and wait for most of them.
    fn by_columns<T: Send>(
        &self,
        lines: &mut [Line<T>],
        (rows, k): (usize, usize),
        side: Side,
        (unit, unit_lines): (usize, usize),
        fill: impl Fn(&Task, &mut [Line<T>]) -> Seen + Sync,
    ) -> Seen {
        let mut groups = lines.chunks_mut((k.div_ceil(unit) * unit_lines).max(1));
        let rest = std::array::from_fn(|_| groups.next().unwrap_or_default());
        let shares = if self.threads == 1 { 1 } else { SHARES * self.threads };
        let width = k.div_ceil(shares).next_multiple_of(LARGEST);
        self.all_seen(Strips { rest, columns: 0..k, width, unit, unit_lines }, |strip| {
            let mut seen = Seen::default();
            for Strip { columns, lines } in (Strips { rest: strip.lines, columns: strip.columns, width: LARGEST, unit, unit_lines }) {
                for (row, lines) in (0..rows).step_by(side.group()).zip(lines) {
                    // While a strip is prepared, the next one is fetched.
                    let ahead = Ahead::From(columns.end * rows + row * columns.len());
                    let task = Task { row, rows: side.group().min(rows - row), columns: columns.clone(), ahead };
                    seen = seen.and(fill(&task, lines));
                }
            }
            seen
        })
    }

    /// Fills a task's lines of panels, for a plan of words. Compiled once, however many callers it has.
    #[inline(never)]
    pub(super) fn fill_words(&self, plan: &Plan<'_>, side: Side, task: &Task, to: &mut [Line<u32>]) -> Seen {
        match &plan.work {
            Work::Words(b) if let Some((l, _)) = self.tiles().filter(|_| plan.layout == Layout::Tiles) => l.run(
                #[inline(always)]
                || blocks::e2m1_tiles(l, b, side, task, to),
            ),
            Work::Words(b) => dispatch!(self, |l| blocks::e2m1(l, b, side, task, to)),
            Work::Tensor(reading, scaled) => self.pair_lanes().map_or_else(Seen::default, |l| {
                l.run(
                    #[inline(always)]
                    || match scaled {
                        None => tensor::copy(l, reading, side, task, to),
                        Some(scaled) => tensor::rounded(l, reading, *scaled, side, task, to),
                    },
                )
            }),
            Work::Floats(_) => Seen::default(),
        }
    }

    /// The same for any other plan.
    #[inline(never)]
    pub(super) fn fill_floats(&self, plan: &Plan<'_>, side: Side, task: &Task, to: &mut [Line<f32>]) -> Seen {
        match &plan.work {
            Work::Words(_) => Seen::default(),
            Work::Floats(b) => {
                let target = target(plan.format);
                dispatch!(self, |l| blocks::floats(l, b, target, side, task, to))
            }
            Work::Tensor(reading, None) => dispatch!(self, |l| tensor::copy(l, reading, side, task, to)),
            Work::Tensor(reading, Some(scaled)) => dispatch!(self, |l| tensor::rounded(l, reading, *scaled, side, task, to)),
        }
    }

    fn timed_largest(&self, reading: &Reading<'_>) -> u32 {
        let _timer = self.timer(Kernel::PrepareFloat, 0);
        self.largest(reading)
    }

    /// Bits of the largest magnitude, for a scale that is needed before the first element is rounded.
    fn largest(&self, reading: &Reading<'_>) -> u32 {
        let (rows, k) = (reading.source.rows, reading.source.k);
        let tasks = (0..rows).step_by(96).map(|row| Task { row, rows: 96.min(rows - row), columns: 0..k, ahead: Ahead::Near });
        let seen = |task| Seen { largest: dispatch!(self, |l| tensor::largest(l, reading, &task)), ..Seen::default() };
        self.all_seen(tasks, seen).largest
    }

    /// Does all tasks; the maxima of what they saw.
    pub(super) fn all_seen<T: Send>(&self, tasks: impl Iterator<Item = T> + Send, work: impl Fn(T) -> Seen + Sync) -> Seen {
        let [largest, largest_scale, below_smallest] = [const { AtomicU32::new(0) }; 3];
        self.each(tasks, |task| {
            let seen = work(task);
            largest.fetch_max(seen.largest, Ordering::Relaxed);
            largest_scale.fetch_max(seen.largest_scale, Ordering::Relaxed);
            below_smallest.fetch_max(seen.below_smallest, Ordering::Relaxed);
        });
        Seen { largest: largest.into_inner(), largest_scale: largest_scale.into_inner(), below_smallest: below_smallest.into_inner() }
    }
}

/// Up to `count` elements from `first`.
fn part(values: &[f32], first: usize, count: usize) -> &[f32] {
    let rest = values.get(first..).unwrap_or_default();
    &rest[..count.min(rest.len())]
}

/// Part of a plain F32 matrix as panels of one group, on the caller's thread.
#[inline(always)]
pub(super) fn pack_group<L: Lanes>(l: L, source: Matrix<'_>, side: Side, row: usize, to: &mut [Line<f32>]) {
    let rows = side.group().min(source.rows - row);
    tensor::plain(l, &source, side, &Task { row, rows, columns: 0..source.k, ahead: Ahead::Nothing }, to);
}

/// A format as rounding sees it; F32 is rounded to nothing.
fn target(format: Format) -> Target {
    match format {
        Format::E2m1 => element::E2M1,
        Format::E4m3 => element::E4M3,
        Format::E5m2 => element::E5M2,
        Format::Bf16 | Format::F32 => element::BF16,
    }
}

/// What the product of a prescaled operand is multiplied by.
fn correction(rounds: Rounds) -> f32 {
    if let Rounds::Prescaled(_) = rounds { PRESCALE_CORRECTION } else { 1.0 }
}

/// n where `norm` is 2^-n, otherwise 0.
fn halvings(norm: f32) -> u32 {
    if norm.to_bits() & 0x007F_FFFF == 0 { 127 - (norm.to_bits() >> 23) } else { 0 }
}

/// `format::e8m0::scale_byte` as one addition and one shift: see [`ScaleBits`].
fn scale_bits(rule: ScaleRule, format: &MiniFloat) -> ScaleBits {
    const MANTISSA: u32 = 0x007F_FFFF;
    let bump = match rule {
        ScaleRule::Even => 1 << (format.dropped_bits() - 1),
        ScaleRule::Ceil => MANTISSA - (format.largest.to_bits() & MANTISSA),
        _ => 0,
    };
    ScaleBits { bump, largest_exponent: format.largest_exponent }
}
