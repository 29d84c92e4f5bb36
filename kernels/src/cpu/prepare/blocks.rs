//! Blocks of 32 that share a scale byte: E2M1 to words of panels, and any format to F32 values.

use super::super::lanes::{Lanes, WIDTH};
use super::super::panels::{ANCHOR, Line, NAN_ANCHOR, OFFSET, STEPS, Side, TILE_LINES};
use super::columns::{LARGEST, Reading, fill_square, read, read_plain};
use super::element::{
    E2M1, LARGEST_E2M1, Scaling, Target, e2m1_codes_to_bytes, e2m1_nearest, e2m1_on_grid, e2m1_stochastic, power_of_two, round,
};
use super::random::Counters;
use super::{Ahead, Task, lane_line};
use crate::random::Stream;

/// Columns whose scales are found together, at least. On Zen 3 64 in place of 32 make rows 2 % faster and columns 2 % slower; on a Xeon 128 do
/// as well as 64.
const TOGETHER: usize = 64;

/// Registers of sixteen rows in a tile that shares one scale.
pub(super) const TILE_GROUPS: usize = 2;

/// How a block's largest magnitude becomes its scale byte: exponent(bits + bump) - largest exponent of the format, not below 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScaleBits {
    /// `floor` 0; `even` half of the format's last mantissa bit; `ceil` what carries any mantissa above the format's largest.
    pub(super) bump: u32,
    /// Exponent of the format's largest value.
    pub(super) largest_exponent: u32,
}

impl ScaleBits {
    /// Bits of the smallest magnitude above 0 that a block can have, half of its scale, or less; `largest` (bits) is its largest. 0 for 0.
    pub(super) fn smallest_element(self, largest: u32) -> u32 {
        let exponent = largest.saturating_add(self.bump) >> 23;
        if largest == 0 { 0 } else { (exponent.saturating_sub(self.largest_exponent + 1) << 23).max(1) }
    }
}

/// How scaled values are rounded.
#[derive(Clone, Copy)]
pub(super) enum Rounds {
    Nearest,
    Stochastic(Stream),
    Prescaled(Stream),
}

impl Rounds {
    pub(super) fn stream(self) -> Option<Stream> {
        match self {
            Self::Nearest => None,
            Self::Stochastic(stream) | Self::Prescaled(stream) => Some(stream),
        }
    }
}

/// Everything but the place and the destination.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) reading: Reading<'a>,
    /// How often what was read is still to be halved: a transform's factor, if it is a power of two. Elements are BF16, and so multiples of
    /// 2^-133, as their sums are: no bit is lost, whenever it is done.
    pub(super) halvings: u32,
    pub(super) scale: ScaleBits,
    pub(super) rounds: Rounds,
    /// Whether 32 rows share a scale.
    pub(super) tiles: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Seen {
    /// Bits of the largest magnitude before scaling.
    pub(in super::super) largest: u32,
    /// Largest scale byte that is a number's.
    pub(in super::super) largest_scale: u32,
    /// 2^32 less the bits of the smallest magnitude above 0, or the smallest of blocks' largest ones, where that is looked for; 0 if there is none.
    pub(in super::super) below_smallest: u32,
}

impl Seen {
    pub(in super::super) fn and(self, other: Self) -> Self {
        Self {
            largest: self.largest.max(other.largest),
            largest_scale: self.largest_scale.max(other.largest_scale),
            below_smallest: self.below_smallest.max(other.below_smallest),
        }
    }
}

/// Bytes of sixteen rows, one lane each; 255 where the block holds a NaN or an infinity.
#[inline(always)]
fn scale_bytes<L: Lanes>(l: L, largest: L::U, scale: ScaleBits) -> L::U {
    let exponent = l.shr::<23>(l.add_u(largest, l.splat_u(scale.bump)));
    let least = l.splat_u(scale.largest_exponent);
    let byte = l.sub_u(l.max_u(exponent, least), least);
    l.select_less_u(largest, l.splat_u(0x7F80_0000), byte, l.splat_u(255))
}

/// 2^(byte - 127), with the subnormal 2^-127 for 0 and a NaN for 255.
#[inline(always)]
fn power<L: Lanes>(l: L, byte: L::U) -> L::F {
    let scale = l.select_less_u(byte, l.splat_u(1), l.splat_u(0x0040_0000), l.shl::<23>(byte));
    l.floats(l.select_less_u(byte, l.splat_u(255), scale, l.splat_u(0x7FC0_0000)))
}

/// The anchors of left blocks.
#[inline(always)]
fn anchor<L: Lanes>(l: L, byte: L::U) -> L::U {
    l.select_less_u(byte, l.splat_u(255), l.add_u(l.splat_u(ANCHOR), l.shl::<23>(byte)), l.splat_u(NAN_ANCHOR))
}

/// [`Lanes::largest_magnitude`] of transforms of sixteen columns.
#[inline(always)]
fn transformed_magnitudes<L: Lanes>(l: L, block: &[L::F]) -> L::U {
    let mut largest = l.splat_u(0);
    for square in block.as_chunks().0 {
        largest = l.max_u(largest, l.largest_after_hadamard(square));
    }
    largest
}

/// Reads columns of sixteen rows; with `late` they are still to be rounded to BF16.
#[inline(always)]
fn fill<L: Lanes>(l: L, b: &Blocks<'_>, late: bool, (row, first): (usize, usize), ahead: Ahead, columns: &mut [L::F]) {
    if !late {
        return read(l, &b.reading, row, first, ahead, columns);
    }
    for (i, square) in columns.as_chunks_mut().0.iter_mut().enumerate() {
        fill_square::<L>(
            l,
            square,
            #[inline(always)]
            |square| read_plain(l, &b.reading.source, row, first, ahead, i, square),
        );
    }
}

/// [`Lanes::largest_magnitude`] of a block that was read by [`fill`], as BF16 and times the transform's factor.
#[inline(always)]
fn largest_of_block<L: Lanes>(l: L, b: &Blocks<'_>, late: bool, block: &[L::F]) -> L::U {
    if late {
        let largest = l.largest_magnitude(block);
        // Rounding does not change which is largest.
        return l.select_less_u(l.splat_u(0x7F80_0000), largest, largest, l.to_bf16(largest));
    }
    let largest = if b.reading.rotation == WIDTH { transformed_magnitudes(l, block) } else { l.largest_magnitude(block) };
    l.bits(l.mul(l.floats(largest), l.splat(power_of_two(b.halvings))))
}

/// Calls `block(subgroup, first column, columns, scale bytes)` for every block of the task's rows and columns, `subgroup` counting
/// sixteen rows from the task's first. With `late` (no rotation) the columns are still to be rounded to BF16.
#[inline(always)]
fn for_each_block<L: Lanes>(l: L, b: &Blocks<'_>, late: bool, task: &Task, mut block: impl FnMut(usize, usize, &[L::F; 32], L::U)) -> Seen {
    let groups = if b.tiles { TILE_GROUPS } else { 1 };
    let whole = if late { 32 } else { b.reading.chunk() };
    let chunk = whole.max(TOGETHER);
    let mut buffers = [[l.splat(0.0); LARGEST]; TILE_GROUPS];
    let (mut overall, mut scales, mut below_smallest) = (l.splat_u(0), l.splat_u(0), l.splat_u(0));
    for (number, (first_group, first)) in task.order(groups, chunk, b.reading.source.row_stride == 1).enumerate() {
        let columns = chunk.min(task.columns.end - first);
        for (group, buffer) in buffers.iter_mut().enumerate().take(groups) {
            let row = task.row + (first_group + group) * WIDTH;
            let ahead = task.ahead.after((number * groups + group) * chunk * WIDTH);
            fill(l, b, late, (row, first), ahead, &mut buffer[..columns.next_multiple_of(whole).min(LARGEST)]);
        }
        // First all scales, then all elements: so fewer of them wait for a scale.
        let mut bytes = [l.splat_u(0); LARGEST / 32];
        for (start, bytes) in (0..columns).step_by(32).zip(&mut bytes) {
            let mut largest = l.splat_u(0);
            for buffer in buffers.iter().take(groups) {
                largest = l.max_u(largest, largest_of_block(l, b, late, &buffer[start..start + 32]));
            }
            if b.tiles {
                largest = l.splat_u(l.largest_u(largest));
            }
            overall = l.max_u(overall, largest);
            below_smallest = l.max_u(below_smallest, l.sub_u(l.splat_u(0), largest));
            *bytes = scale_bytes(l, largest, b.scale);
            scales = l.max_u(scales, l.select_less_u(*bytes, l.splat_u(255), *bytes, l.splat_u(0)));
        }
        for (group, buffer) in buffers.iter().enumerate().take(groups.min(task.subgroups() - first_group)) {
            for ((start, columns), &bytes) in (0..columns).step_by(32).zip(buffer.as_chunks().0).zip(&bytes) {
                block(first_group + group, first + start, columns, bytes);
            }
        }
    }
    Seen { largest: l.largest_u(overall), largest_scale: l.largest_u(scales), below_smallest: l.largest_u(below_smallest) }
}

/// E2M1: fills a task's lines of panels.
#[inline(always)]
pub(super) fn e2m1<L: Lanes>(l: L, b: &Blocks<'_>, side: Side, task: &Task, to: &mut [Line<u32>]) -> Seen {
    // Choices are made outside of the inner loop, by a copy of it for each, as far as that is faster: these copies are most of what a compiler
    // has to do for this file. The portable lanes are worth none.
    let late = b.reading.as_bf16 && b.reading.rotation == 0;
    match (b.rounds, side, late) {
        (Rounds::Nearest, ..) if L::REGISTERS == 0 => e2m1_task::<L, Nearest>(l, b, side, false, task, to),
        _ if L::REGISTERS == 0 => e2m1_task::<L, Drawn>(l, b, side, false, task, to),
        (Rounds::Nearest, Side::Left, true) => e2m1_task::<L, Nearest>(l, b, Side::Left, true, task, to),
        (Rounds::Nearest, Side::Left, false) => e2m1_task::<L, Nearest>(l, b, Side::Left, false, task, to),
        (Rounds::Nearest, Side::Right, true) => e2m1_task::<L, Nearest>(l, b, Side::Right, true, task, to),
        (Rounds::Nearest, Side::Right, false) => e2m1_task::<L, Nearest>(l, b, Side::Right, false, task, to),
        (_, Side::Left, _) => e2m1_task::<L, Drawn>(l, b, Side::Left, false, task, to),
        (_, Side::Right, _) => e2m1_task::<L, Drawn>(l, b, Side::Right, false, task, to),
    }
}

/// How elements are rounded. Types rather than functions, so that each is compiled in place.
trait Elements {
    /// What sixteen rows of random words are drawn from.
    type Source<L: Lanes>: Copy;
    /// The sources of a task's rows.
    fn sources<L: Lanes>(l: L, b: &Blocks<'_>, task: &Task) -> [Self::Source<L>; Task::SUBGROUPS];
    /// Four columns, to be scaled, as one word of doubled elements plus 12.
    fn bytes<L: Lanes>(l: L, source: &Self::Source<L>, column: usize, x: [L::F; 4], scaling: &Scaling<L>) -> L::U;
    /// A column, to be scaled, as E2M1 values.
    fn values<L: Lanes>(l: L, source: &Self::Source<L>, column: usize, x: L::F, scaling: &Scaling<L>) -> L::F;
}

struct Nearest;

impl Elements for Nearest {
    type Source<L: Lanes> = ();

    #[inline(always)]
    fn sources<L: Lanes>(_: L, _: &Blocks<'_>, _: &Task) -> [(); Task::SUBGROUPS] {
        [(); Task::SUBGROUPS]
    }

    #[inline(always)]
    fn bytes<L: Lanes>(l: L, (): &(), _: usize, x: [L::F; 4], scaling: &Scaling<L>) -> L::U {
        e2m1_nearest(l, x, scaling)
    }

    #[inline(always)]
    fn values<L: Lanes>(l: L, (): &(), _: usize, x: L::F, scaling: &Scaling<L>) -> L::F {
        l.clamp(e2m1_on_grid(l, x, scaling), LARGEST_E2M1)
    }
}

/// Stochastic, whether prescaled or not: one multiplication more is nothing beside drawing.
struct Drawn;

impl Elements for Drawn {
    /// What a value is multiplied by first, and the counters.
    type Source<L: Lanes> = (f32, Counters<L>);

    #[inline(always)]
    fn sources<L: Lanes>(l: L, b: &Blocks<'_>, task: &Task) -> [(f32, Counters<L>); Task::SUBGROUPS] {
        let factor = if let Rounds::Prescaled(_) = b.rounds { 0.75 } else { 1.0 };
        let counters = counters(l, b.rounds.stream().unwrap_or_default(), b.reading.source.k, task);
        let mut sources = [(factor, counters[0]); Task::SUBGROUPS];
        for (source, counters) in sources.iter_mut().zip(counters) {
            source.1 = counters;
        }
        sources
    }

    #[inline(always)]
    fn bytes<L: Lanes>(l: L, (factor, counters): &(f32, Counters<L>), column: usize, x: [L::F; 4], scaling: &Scaling<L>) -> L::U {
        let mut codes = [l.splat_u(0); 4];
        for i in 0..4 {
            let v = l.mul(l.mul(x[i], scaling.inverse), l.splat(*factor));
            codes[i] = e2m1_stochastic(l, v, counters.words(l, column + i));
        }
        e2m1_codes_to_bytes(l, codes)
    }

    #[inline(always)]
    fn values<L: Lanes>(l: L, (factor, counters): &(f32, Counters<L>), column: usize, x: L::F, scaling: &Scaling<L>) -> L::F {
        let v = l.mul(l.mul(x, scaling.inverse), l.splat(*factor));
        round(l, v, E2M1, Some(counters.words(l, column)))
    }
}

#[inline(always)]
fn e2m1_task<L: Lanes, E: Elements>(l: L, b: &Blocks<'_>, side: Side, late: bool, task: &Task, to: &mut [Line<u32>]) -> Seen {
    let is_left = side == Side::Left;
    let sources = E::sources(l, b, task);
    let (blocks, lines, block_lines) = (task.columns.len().div_ceil(32), side.lines(), side.block_lines());
    for_each_block(
        l,
        b,
        late,
        task,
        #[inline(always)]
        |subgroup, column, values, bytes| {
            let scaling = Scaling::new(l, bytes, b.halvings);
            let first = lane_line(subgroup, (column - task.columns.start) / 32, blocks, lines, block_lines);
            // From this subgroup's first line to its last one.
            let to = &mut to[first..first + block_lines - lines + 1];
            let source = &sources[subgroup % sources.len()];
            let mut sum = l.dot_start(l.splat_u(0));
            let (fours, _) = values.as_chunks::<4>();
            for (step, four) in fours.iter().enumerate() {
                let mut four = *four;
                for x in &mut four {
                    *x = if late { l.floats(l.to_bf16(l.bits(*x))) } else { *x };
                }
                let mut word = E::bytes(l, source, column + 4 * step, four, &scaling);
                if is_left {
                    word = l.wrapping_sub_bytes(word, l.splat_u(0x0101_0101 * OFFSET as u32));
                    sum = l.dot_add(sum, l.splat_u(0x0101_0101), word);
                }
                l.store_u(word, &mut to[step * lines].0);
            }
            if is_left {
                let offset = l.mul_u(l.dot_finish(sum, l.splat_u(0)), l.splat_u(OFFSET as u32));
                let anchor = anchor(l, bytes);
                l.store_u(l.sub_u(anchor, offset), &mut to[STEPS * lines].0);
                l.store_u(anchor, &mut to[(STEPS + 1) * lines].0);
            } else {
                l.store_u(l.bits(power(l, bytes)), &mut to[STEPS * lines].0);
            }
        },
    )
}

/// E2M1 on tiles: fills a task's lines of panels. See [`e2m1`].
#[inline(always)]
pub(super) fn e2m1_tiles<L: Lanes>(l: L, b: &Blocks<'_>, side: Side, task: &Task, to: &mut [Line<u32>]) -> Seen {
    match (b.rounds, b.reading.as_bf16 && b.reading.rotation == 0) {
        (Rounds::Nearest, true) => tiles_task::<L, Nearest>(l, b, side, true, task, to),
        (Rounds::Nearest, false) => tiles_task::<L, Nearest>(l, b, side, false, task, to),
        _ => tiles_task::<L, Drawn>(l, b, side, false, task, to),
    }
}

#[inline(always)]
fn tiles_task<L: Lanes, E: Elements>(l: L, b: &Blocks<'_>, side: Side, late: bool, task: &Task, to: &mut [Line<u32>]) -> Seen {
    let sources = E::sources(l, b, task);
    let (blocks, lines) = (task.columns.len().div_ceil(32), side.lines());
    for_each_block(
        l,
        b,
        late,
        task,
        #[inline(always)]
        |subgroup, column, values, bytes| {
            let (scaling, scale) = (Scaling::new(l, bytes, b.halvings), power(l, bytes));
            let block = (column - task.columns.start) / 32;
            let to = &mut to[((subgroup / lines * blocks + block) * lines + subgroup % lines) * TILE_LINES..][..TILE_LINES];
            let source = &sources[subgroup % sources.len()];
            let mut tile = [l.splat(0.0); WIDTH];
            let (pairs, _) = values.as_chunks::<2>();
            for (number, (pair, to)) in pairs.iter().zip(&mut tile).enumerate() {
                let mut pair = *pair;
                for (i, x) in pair.iter_mut().enumerate() {
                    *x = if late { l.floats(l.to_bf16(l.bits(*x))) } else { *x };
                    *x = l.mul(E::values(l, source, column + 2 * number + i, *x, &scaling), scale);
                }
                *to = l.floats(l.upper_halves(l.bits(pair[0]), l.bits(pair[1])));
            }
            if side == Side::Left {
                l.transpose(&mut tile);
            }
            for (to, &line) in to.iter_mut().zip(&tile) {
                l.store_u(l.bits(line), &mut to.0);
            }
            l.store_u(bytes, &mut to[WIDTH].0);
        },
    )
}

/// Counters row * k of sixteen rows, for every subgroup that a task can have.
#[inline(always)]
pub(super) fn counters<L: Lanes>(l: L, stream: Stream, k: usize, task: &Task) -> [Counters<L>; Task::SUBGROUPS] {
    // Not by `array::from_fn`, which is compiled without the instructions.
    let mut all = [counters_of(l, stream, k, task.row); Task::SUBGROUPS];
    for (group, counters) in all.iter_mut().enumerate().take(task.subgroups()).skip(1) {
        *counters = counters_of(l, stream, k, task.row + group * WIDTH);
    }
    all
}

/// Those of sixteen rows from `row`.
#[inline(always)]
fn counters_of<L: Lanes>(l: L, stream: Stream, k: usize, row: usize) -> Counters<L> {
    Counters::new(
        l,
        stream,
        k.next_multiple_of(LARGEST),
        #[inline(always)]
        |i| ((row + i) * k) as u64,
    )
}

/// Blocks of any format with at most 8 bits as F32 values times their scale: fills a task's lines of panels.
#[inline(always)]
pub(super) fn floats<L: Lanes>(l: L, b: &Blocks<'_>, target: Target, side: Side, task: &Task, to: &mut [Line<f32>]) -> Seen {
    let counters = b.rounds.stream().map(
        #[inline(always)]
        |stream| counters(l, stream, b.reading.source.k, task),
    );
    let lines = side.lines();
    for_each_block(
        l,
        b,
        false,
        task,
        #[inline(always)]
        |subgroup, column, values, bytes| {
            let (Scaling { inverse, .. }, scale) = (Scaling::new(l, bytes, b.halvings), power(l, bytes));
            for (i, &x) in values.iter().enumerate().take(task.columns.end - column) {
                let mut v = l.mul(x, inverse);
                if let Rounds::Prescaled(_) = b.rounds {
                    v = l.mul(v, l.splat(0.75));
                }
                let random = counters.as_ref().map(
                    #[inline(always)]
                    |counters| counters[subgroup % counters.len()].words(l, column + i),
                );
                let value = l.mul(round(l, v, target, random), scale);
                let line = lane_line(subgroup, column + i - task.columns.start, task.columns.len(), lines, lines);
                l.store(value, &mut to[line].0);
            }
        },
    )
}
