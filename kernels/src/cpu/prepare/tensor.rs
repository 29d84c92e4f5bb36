//! Operands with one scale, or none: FP8 per tensor, BF16, F32. Values are decoded at once and go straight into panels.

use super::super::gemm::Matrix;
use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{Line, Side};
use super::blocks::{Rounds, Seen, counters, magnitudes};
use super::columns::{LARGEST, Reading, read, read_plain};
use super::element::{Target, round, round_finite};
use super::{Task, lane_line};

/// What happens to an element after it was read.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    pub(super) scale: f32,
    pub(super) target: Target,
    pub(super) rounds: Rounds,
}

/// Bits of the largest magnitude of a task's elements as they are read.
#[inline(always)]
pub(super) fn largest<L: Lanes>(l: L, reading: &Reading<'_>, task: &Task) -> u32 {
    let mut buffer = [l.splat(0.0); LARGEST];
    let buffer = &mut buffer[..reading.chunk()];
    let mut largest = l.splat_u(0);
    for (group, first) in task.order(1, reading.chunk(), reading.source.row_stride == 1) {
        read(l, reading, task.row + group * WIDTH, first, None, buffer);
        largest = l.max_u(largest, magnitudes(l, buffer));
    }
    l.largest_u(largest)
}

/// Fills a task's lines with its elements as they are read, without rounding.
#[inline(always)]
pub(super) fn copy<L: Lanes>(l: L, reading: &Reading<'_>, side: Side, task: &Task, to: &mut [Line<f32>]) -> Seen {
    each(
        l,
        reading,
        side,
        task,
        to,
        #[inline(always)]
        |_, _, x, _| x,
    )
}

/// [`copy`] of a matrix as it is, without looking at its elements.
#[inline(always)]
pub(super) fn plain<L: Lanes>(l: L, source: &Matrix<'_>, side: Side, task: &Task, to: &mut [Line<f32>]) {
    let lines = side.lines();
    for (group, first) in task.order(1, WIDTH, source.row_stride == 1) {
        let mut square = [l.splat(0.0); WIDTH];
        read_plain(l, source, task.row + group * WIDTH, first, None, &mut square);
        let line = lane_line(group, first - task.columns.start, task.columns.len(), lines, lines);
        let count = (task.columns.end - first).min(WIDTH);
        let to = &mut to[line..line + (count - 1) * lines + 1];
        if count == WIDTH {
            for i in 0..WIDTH {
                l.store(square[i], &mut to[i * lines].0);
            }
        } else {
            for (&x, to) in square.iter().zip(to.iter_mut().step_by(lines)) {
                l.store(x, &mut to.0);
            }
        }
    }
}

/// Fills a task's lines with scaled and rounded elements.
#[inline(always)]
pub(super) fn rounded<L: Lanes, const DROPPED: u32>(
    l: L,
    reading: &Reading<'_>,
    scaled: Scaled,
    side: Side,
    task: &Task,
    to: &mut [Line<f32>],
) -> Seen {
    let Scaled { scale, target, rounds } = scaled;
    if let Some(stream) = rounds.stream() {
        let counters = counters(l, stream, reading.source.k, task);
        return each(
            l,
            reading,
            side,
            task,
            to,
            #[inline(always)]
            |group, column, x, _| {
                let random = counters[group % counters.len()].words(l, column);
                round::<L, DROPPED>(l, l.mul(x, l.splat(scale)), target, Some(random))
            },
        );
    }
    each(
        l,
        reading,
        side,
        task,
        to,
        #[inline(always)]
        |_, _, x, largest| {
            let v = l.mul(x, l.splat(scale));
            // Nearly always; the other way knows infinities and NaNs.
            if (f32::from_bits(largest) * scale).is_finite() && DROPPED != 16 {
                round_finite::<L, DROPPED>(l, v, target)
            } else {
                round::<L, DROPPED>(l, v, target, None)
            }
        },
    )
}

/// Stores `value(subgroup, column, x, bits of the largest magnitude nearby)` for each column.
#[inline(always)]
fn each<L: Lanes>(
    l: L,
    reading: &Reading<'_>,
    side: Side,
    task: &Task,
    to: &mut [Line<f32>],
    value: impl Fn(usize, usize, L::F, u32) -> L::F,
) -> Seen {
    let (chunk, lines) = (reading.chunk(), side.lines());
    let mut buffer = [l.splat(0.0); LARGEST];
    let mut overall = 0;
    for (number, (group, first)) in task.order(1, chunk, reading.source.row_stride == 1).enumerate() {
        let buffer = &mut buffer[..chunk];
        read(l, reading, task.row + group * WIDTH, first, task.fetch(number, chunk), buffer);
        let largest = l.largest_u(magnitudes(l, buffer));
        overall = overall.max(largest);
        let line = lane_line(group, first - task.columns.start, task.columns.len(), lines, lines);
        for (i, (&x, to)) in buffer.iter().zip(to[line..].iter_mut().step_by(lines)).enumerate().take(task.columns.end - first) {
            l.store(value(group, first + i, x, largest), &mut to.0);
        }
    }
    Seen { largest: overall, largest_scale: 0 }
}
