//! Operands with one scale, or none: FP8 per tensor, BF16, F32. Values are decoded at once and go straight into panels.

use super::super::gemm::Matrix;
use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{Line, Side};
use super::blocks::{Rounds, Seen, counters};
use super::columns::{LARGEST, Reading, read, read_plain, read_square};
use super::element::{MAGNITUDE, Target, round, round_finite};
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
        read(l, reading, task.row + group * WIDTH, first, task.ahead, buffer);
        largest = l.max_u(largest, l.largest_magnitude(buffer));
    }
    l.largest_u(largest)
}

/// What panels hold of a row, made of one k or of several.
pub(super) trait Unit: Copy {
    /// k in it.
    const COUNT: usize;

    /// Stores `value` of `first` and those that follow.
    fn store<L: Lanes>(l: L, first: usize, value: impl Fn(usize) -> L::F, to: &mut Line<Self>);
}

impl Unit for f32 {
    const COUNT: usize = 1;

    #[inline(always)]
    fn store<L: Lanes>(l: L, first: usize, value: impl Fn(usize) -> L::F, to: &mut Line<Self>) {
        l.store(value(first), &mut to.0);
    }
}

/// A pair of BF16; what is stored is of that format.
impl Unit for u32 {
    const COUNT: usize = 2;

    #[inline(always)]
    fn store<L: Lanes>(l: L, first: usize, value: impl Fn(usize) -> L::F, to: &mut Line<Self>) {
        l.store_u(l.upper_halves(l.bits(value(first)), l.bits(value(first + 1))), &mut to.0);
    }
}

/// Fills a task's lines with its elements as they are read, without rounding.
#[inline(always)]
pub(super) fn copy<L: Lanes, U: Unit>(l: L, reading: &Reading<'_>, side: Side, task: &Task, to: &mut [Line<U>]) -> Seen {
    each(
        l,
        reading,
        side,
        task,
        to,
        U::COUNT > 1,
        #[inline(always)]
        |_, _, x| x,
    )
}

/// [`copy`] of a matrix as it is, without looking at its elements.
#[inline(always)]
pub(super) fn plain<L: Lanes>(l: L, source: &Matrix<'_>, side: Side, task: &Task, to: &mut [Line<f32>]) {
    let lines = side.lines();
    for (group, first) in task.order(1, WIDTH, source.row_stride == 1) {
        let mut square = [l.splat(0.0); WIDTH];
        read_plain(l, source, task.row + group * WIDTH, first, task.ahead, 0, &mut square);
        let to = &mut to[lane_line(group, first - task.columns.start, task.columns.len(), lines, lines)..];
        store(
            l,
            &square,
            (to, lines, task.columns.end - first),
            #[inline(always)]
            |_, x| x,
        );
    }
}

/// Fills a task's lines with scaled and rounded elements.
#[inline(always)]
pub(super) fn rounded<L: Lanes, U: Unit>(l: L, reading: &Reading<'_>, scaled: Scaled, side: Side, task: &Task, to: &mut [Line<U>]) -> Seen {
    let Scaled { scale, target, rounds } = scaled;
    let counters = rounds.stream().map(
        #[inline(always)]
        |stream| counters(l, stream, reading.source.k, task),
    );
    if counters.is_none() && target.saturates() {
        let seen = each(
            l,
            reading,
            side,
            task,
            to,
            false,
            #[inline(always)]
            |_, _, x| round_finite(l, l.mul(x, l.splat(scale)), target),
        );
        // Nearly always; the other way knows infinities and NaNs.
        if (f32::from_bits(seen.largest) * scale).is_finite() {
            return seen;
        }
    }
    each(
        l,
        reading,
        side,
        task,
        to,
        U::COUNT > 1 && !target.saturates(),
        #[inline(always)]
        |group, column, x| {
            let random = counters.as_ref().map(
                #[inline(always)]
                |counters| counters[group % counters.len()].words(l, column),
            );
            round(l, l.mul(x, l.splat(scale)), target, random)
        },
    )
}

/// Stores `value(subgroup, column, x)` for each column. `small`: the smallest magnitude is looked for.
#[inline(always)]
fn each<L: Lanes, U: Unit>(
    l: L,
    reading: &Reading<'_>,
    side: Side,
    task: &Task,
    to: &mut [Line<U>],
    small: bool,
    value: impl Fn(usize, usize, L::F) -> L::F,
) -> Seen {
    let (chunk, lines) = (if reading.rotation == 0 { WIDTH } else { reading.chunk() }, side.lines());
    let units = task.columns.len().div_ceil(U::COUNT);
    let (mut overall, mut below_smallest) = (l.splat_u(0), l.splat_u(0));
    let mut buffer = [l.splat(0.0); LARGEST];
    for (number, (group, first)) in task.order(1, chunk, reading.source.row_stride == 1).enumerate() {
        let (row, ahead) = (task.row + group * WIDTH, task.ahead.after(number * chunk * WIDTH));
        if chunk > WIDTH {
            read(l, reading, row, first, ahead, &mut buffer[..chunk]);
        }
        for (i, first) in (first..task.columns.end).step_by(WIDTH).enumerate().take(chunk / WIDTH) {
            let square = match buffer.as_chunks().0.get(i) {
                Some(square) if chunk > WIDTH => *square,
                _ => {
                    // From memory to memory in registers.
                    let mut square = [l.splat(0.0); WIDTH];
                    read_square(l, reading, row, first, ahead, 0, &mut square);
                    square
                }
            };
            overall = l.max_u(overall, l.largest_magnitude(&square));
            if small {
                below_smallest = l.max_u(below_smallest, below_smallest_magnitude(l, &square));
            }
            let to = &mut to[lane_line(group, (first - task.columns.start) / U::COUNT, units, lines, lines)..];
            store(
                l,
                &square,
                (to, lines, task.columns.end - first),
                #[inline(always)]
                |i, x| value(group, first + i, x),
            );
        }
    }
    Seen { largest: l.largest_u(overall), largest_scale: 0, below_smallest: l.largest_u(below_smallest) }
}

/// Lane by lane 2^32 less the bits of the smallest magnitude above 0. Rounding to BF16 leaves a normal number its exponent, or the next.
#[inline(always)]
fn below_smallest_magnitude<L: Lanes>(l: L, square: &[L::F; WIDTH]) -> L::U {
    let mut largest = l.splat_u(0);
    for &x in square {
        largest = l.max_u(largest, l.sub_u(l.splat_u(0), l.and(l.bits(x), l.splat_u(MAGNITUDE))));
    }
    largest
}

/// Stores `value(i, x)` of the first `count` columns x, `lines` lines from one unit to the next; columns beyond them, of zeros, fill the last.
#[inline(always)]
fn store<L: Lanes, U: Unit>(
    l: L,
    square: &[L::F; WIDTH],
    (to, lines, count): (&mut [Line<U>], usize, usize),
    value: impl Fn(usize, L::F) -> L::F,
) {
    let to = &mut to[..(count.min(WIDTH).div_ceil(U::COUNT) - 1) * lines + 1];
    if count >= WIDTH {
        // A loop of known length: the square stays in registers.
        for i in 0..WIDTH / U::COUNT {
            U::store(
                l,
                i * U::COUNT,
                #[inline(always)]
                |i| value(i, square[i]),
                &mut to[i * lines],
            );
        }
        return;
    }
    for (i, to) in to.iter_mut().step_by(lines).enumerate() {
        U::store(
            l,
            i * U::COUNT,
            #[inline(always)]
            |i| value(i, square[i]),
            to,
        );
    }
}
