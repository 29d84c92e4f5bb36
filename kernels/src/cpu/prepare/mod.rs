//! Operand preparation with the values of `quantise::prepare_reference`, straight into the panels that a product reads.
//!
//! `columns` reads and rotates, `blocks` and `tensor` scale and round, `element` rounds, `random` draws. What the result must
//! be is defined in `crate::quantise`, where it lies in `panels`; neither is decided here.

mod blocks;
mod columns;
mod element;
mod random;
mod tensor;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::gemm::Matrix;
use super::lanes::{Lanes, WIDTH};
use super::panels::{Line, Panels, Side};
use super::profile::Kernel;
use super::{Cpu, dispatch};
use crate::format::MiniFloat;
use crate::operand::{Block, Format, OperandSpec, Rounding, ScaleRule, Signs};
use crate::quantise::{PRESCALE_CORRECTION, PrepareError, PreparedStats, Randomness, Source, check, mini_float, tensor_scale};
use blocks::{Blocks, Rounds, ScaleBits, Seen};
use columns::{LARGEST, Reading};
use tensor::Scaled;

/// Elements of a task, roughly: enough to be worth a thread, and it stays in the first two caches.
const TASK_ELEMENTS: usize = 1 << 14;

/// What an operand is prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Its side.
    pub side: Side,
    /// Format of the other side: two E2M1 sides are multiplied as integers, otherwise both as F32.
    pub partner: Format,
}

/// Rows and columns of an operand whose panels lie together.
#[derive(Debug, Clone)]
struct Task {
    row: usize,
    rows: usize,
    columns: Range<usize>,
}

impl Task {
    /// Subgroups of sixteen rows that a task can have: two groups of the left side, or three of the right.
    const SUBGROUPS: usize = 6;

    fn subgroups(&self) -> usize {
        self.rows.div_ceil(WIDTH)
    }

    /// Subgroups (`step` at a time) and first columns of chunks, in the order that memory likes: along the rows of the source.
    #[inline(always)]
    fn order(&self, step: usize, chunk: usize, is_transposed: bool) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (groups, chunks) = (self.subgroups().div_ceil(step), self.columns.len().div_ceil(chunk));
        let start = self.columns.start;
        (0..groups * chunks).map(move |i| {
            let (group, number) = if is_transposed { (i % groups, i / groups) } else { (i / chunks, i % chunks) };
            (group * step, start + number * chunk)
        })
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
            (Task { row, rows: height.min(rows - row), columns: first..k.min(first + columns) }, lines)
        })
    })
}

impl Cpu {
    /// Prepares one operand of a GEMM into `panels`: the values of [`crate::quantise::prepare_reference`], the same bits on every instruction
    /// set and number of threads (a NaN's sign and payload, and the sign of an MXFP4 zero, excepted). Allocates only to make
    /// `panels` larger than they ever were.
    ///
    /// # Errors
    /// As there.
    pub fn prepare_into(
        &self,
        source: Source<'_>,
        spec: &OperandSpec,
        role: Role,
        randomness: Randomness<'_>,
        delayed_amax: Option<f32>,
        panels: &mut Panels,
    ) -> Result<PreparedStats, PrepareError> {
        check(&source, spec, &randomness)?;
        let Source { rows, k, .. } = source;
        let is_mxfp4 = spec.format == Format::E2m1 && role.partner == Format::E2m1;
        let _timer = self.timer(if is_mxfp4 { Kernel::QuantiseMxfp4 } else { Kernel::PrepareFloat }, rows * k);
        panels.reshape(role.side, rows, k, is_mxfp4);
        let rotation = spec.rotation.filter(|_| k > 0);
        let reading = Reading {
            source: Matrix::from(source),
            as_bf16: spec.format != Format::F32,
            rotation: rotation.map_or(0, |r| r.size),
            signs: rotation.filter(|r| r.signs != Signs::None).and(randomness.signs),
        };
        let rounds = match (spec.rounding, randomness.rounding) {
            (Rounding::Stochastic, Some(stream)) => Rounds::Stochastic(stream),
            (Rounding::StochasticPrescaled, Some(stream)) => Rounds::Prescaled(stream),
            _ => Rounds::Nearest,
        };
        let seen = match (mini_float(spec.format), spec.block) {
            (Some(format), Block::Row32 | Block::Tile32) => {
                panels.factor = correction(rounds);
                let tiles = spec.block == Block::Tile32;
                let b = Blocks { reading, scale: scale_bits(spec.scale, &format), rounds, tiles };
                if is_mxfp4 { self.blocks_of_words(&b, panels) } else { self.blocks_of_floats(&b, spec.format, panels) }
            }
            (Some(format), Block::Tensor) => {
                let own = || f32::from_bits(self.largest(&reading));
                let amax = if spec.scale == ScaleRule::Delayed { delayed_amax.unwrap_or_else(own) } else { own() };
                let (scale, inverse) = tensor_scale(amax, &format);
                panels.factor = inverse * correction(rounds);
                let target = if spec.format == Format::E4m3 { element::E4M3 } else { element::E5M2 };
                self.tensor(&reading, spec.format, Some(Scaled { scale, target, rounds }), panels)
            }
            (None, _) => {
                let rounded = spec.format == Format::Bf16 && (reading.rotation > 0 || rounds.stream().is_some());
                let scaled = Scaled { scale: 1.0, target: element::BF16, rounds };
                self.tensor(&reading, spec.format, rounded.then_some(scaled), panels)
            }
        };
        panels.largest_scale = seen.largest_scale as u8;
        Ok(PreparedStats { amax: f32::from_bits(seen.largest) })
    }

    /// A plain F32 matrix as panels.
    pub(super) fn pack_f32(&self, source: Matrix<'_>, side: Side, panels: &mut Panels) {
        let (rows, k) = (source.rows, source.k);
        panels.reshape(side, rows, k, false);
        let tasks = tasks(panels.floats_mut(), (rows, k), side, (1, side.lines()), false);
        self.each(tasks, |(task, to)| dispatch!(self, |l| tensor::plain(l, &source, side, &task, to)));
    }

    fn blocks_of_words(&self, b: &Blocks<'_>, panels: &mut Panels) -> Seen {
        let (rows, k, side) = (panels.rows, panels.k, panels.side);
        let tasks = tasks(panels.words_mut(), (rows, k), side, (32, side.block_lines()), b.tiles);
        self.all_seen(tasks, |(task, to)| dispatch!(self, |l| blocks::e2m1(l, b, side, &task, to)))
    }

    fn blocks_of_floats(&self, b: &Blocks<'_>, format: Format, panels: &mut Panels) -> Seen {
        let (rows, k, side) = (panels.rows, panels.k, panels.side);
        let tasks = tasks(panels.floats_mut(), (rows, k), side, (1, side.lines()), b.tiles);
        self.all_seen(tasks, |(task, to)| {
            dispatch!(self, |l| match format {
                Format::E2m1 => blocks::floats::<_, 22>(l, b, element::E2M1, side, &task, to),
                Format::E4m3 => blocks::floats::<_, 20>(l, b, element::E4M3, side, &task, to),
                _ => blocks::floats::<_, 21>(l, b, element::E5M2, side, &task, to),
            })
        })
    }

    fn tensor(&self, reading: &Reading<'_>, format: Format, scaled: Option<Scaled>, panels: &mut Panels) -> Seen {
        let (rows, k, side) = (panels.rows, panels.k, panels.side);
        let tasks = tasks(panels.floats_mut(), (rows, k), side, (1, side.lines()), false);
        self.all_seen(tasks, |(task, to)| {
            dispatch!(self, |l| match (scaled, format) {
                (None, _) => tensor::copy(l, reading, side, &task, to),
                (Some(scaled), Format::E4m3) => tensor::rounded::<_, 20>(l, reading, scaled, side, &task, to),
                (Some(scaled), Format::E5m2) => tensor::rounded::<_, 21>(l, reading, scaled, side, &task, to),
                (Some(scaled), _) => tensor::rounded::<_, 16>(l, reading, scaled, side, &task, to),
            })
        })
    }

    /// Bits of the largest magnitude, for a scale that is needed before the first element is rounded.
    fn largest(&self, reading: &Reading<'_>) -> u32 {
        let (rows, k) = (reading.source.rows, reading.source.k);
        let tasks = (0..rows).step_by(96).map(|row| Task { row, rows: 96.min(rows - row), columns: 0..k });
        let seen = |task| Seen { largest: dispatch!(self, |l| tensor::largest(l, reading, &task)), largest_scale: 0 };
        self.all_seen(tasks, seen).largest
    }

    /// Does all tasks; the maxima of what they saw.
    fn all_seen<T: Send>(&self, tasks: impl Iterator<Item = T> + Send, work: impl Fn(T) -> Seen + Sync) -> Seen {
        let (largest, largest_scale) = (AtomicU32::new(0), AtomicU32::new(0));
        self.each(tasks, |task| {
            let seen = work(task);
            largest.fetch_max(seen.largest, Ordering::Relaxed);
            largest_scale.fetch_max(seen.largest_scale, Ordering::Relaxed);
        });
        Seen { largest: largest.into_inner(), largest_scale: largest_scale.into_inner() }
    }
}

/// Part of a plain F32 matrix as panels of one group, on the caller's thread.
#[inline(always)]
pub(super) fn pack_group<L: Lanes>(l: L, source: Matrix<'_>, side: Side, row: usize, to: &mut [Line<f32>]) {
    let rows = side.group().min(source.rows - row);
    tensor::plain(l, &source, side, &Task { row, rows, columns: 0..source.k }, to);
}

/// What the product of a prescaled operand is multiplied by.
fn correction(rounds: Rounds) -> f32 {
    if let Rounds::Prescaled(_) = rounds { PRESCALE_CORRECTION } else { 1.0 }
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
