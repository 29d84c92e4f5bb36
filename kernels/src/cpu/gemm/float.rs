//! F32 products: acc = fma(a, b, acc) for each k in order, from 0.
//!
//! Where both sides are made of BF16 values, one instruction of AVX-512 can do two of these multiply-adds: VDPBF16PS is defined as the one
//! of the upper halves, rounded, and then that of the lower halves. It counts what is subnormal as 0 ([`sums_are_normal`]).
//!
//! A tile is 12 rows by 2 vectors of 16 columns with 32 registers (24 sums, two elements of B, the rest for A, which is broadcast from
//! memory), 6 by 1 with 16 narrower ones (`packed`). Two fused multiply-adds a cycle need the sums of at least eight such instructions in
//! flight, and two loads a cycle bound the tile from below: 14 loads and 2 fetches for 24 multiply-adds leave room. With its operands in the
//! second-level cache the product reaches 96 % of the multiply-adds' peak (Zen 5, 192 by 512 by 256), and 86 to 90 % where they come from the
//! third (2048 by 1024 by 1024). Fetching C's lines ahead, one at a time between the multiply-adds or a tile early, changed that by less than
//! 1 %.
//! On a Xeon the right side's lines come late from the second-level cache: fetching them ahead took 4 % off the time of the large product in
//! a prototype. With these loops it reaches 89 % of the peak there and MKL 85 % in the steadiest of four measurements, 65 and 67 % in another.

use std::marker::PhantomData;

use super::super::lanes::Lanes;
use super::super::panels::{Line, Panels, Side};
use super::blocked::{Fetch, Inner, Right};
use super::packed::{Copies, Packed, Sides};

/// Rows of a tile with sixteen registers: twice as many sums, the two halves of a vector of B, and what is broadcast.
pub(super) const NARROW_ROWS: usize = 6;

/// Units of k in a round. One by one, counting and addresses are 7 of 27 instructions over copies; four together are 10 to 20 % faster
/// there. In the larger tile they are 4 of 42: rounds of four gain 7 % on a Xeon while the core's other thread is busy.
const TOGETHER: usize = 4;

/// Units of k from what is multiplied to what is fetched from the second-level cache. 16, 64 and 128 did as well.
const AHEAD: usize = 32;

/// One unit of k of a group of the left side.
type Group<U> = [U; Side::Left.group()];
/// One unit of k of a group of the right side.
type Lines<U> = [Line<U>; Side::Right.lines()];

/// What panels hold of a row: one k as an F32, or two as a pair of BF16.
pub(super) trait Unit: Copy + Default {
    /// Sixteen of them.
    type Vector<L: Lanes>: Copy;

    fn splat<L: Lanes>(self, l: L) -> Self::Vector<L>;
    fn load<L: Lanes>(l: L, from: &Line<Self>) -> Self::Vector<L>;
    /// `sum` and the product of each k, in order.
    fn add<L: Lanes>(l: L, sum: L::F, a: Self::Vector<L>, b: Self::Vector<L>) -> L::F;
}

impl Unit for f32 {
    type Vector<L: Lanes> = L::F;

    #[inline(always)]
    fn splat<L: Lanes>(self, l: L) -> L::F {
        l.splat(self)
    }

    #[inline(always)]
    fn load<L: Lanes>(l: L, from: &Line<Self>) -> L::F {
        l.load(&from.0)
    }

    #[inline(always)]
    fn add<L: Lanes>(l: L, sum: L::F, a: L::F, b: L::F) -> L::F {
        l.fma(a, b, sum)
    }
}

impl Unit for u32 {
    type Vector<L: Lanes> = L::U;

    #[inline(always)]
    fn splat<L: Lanes>(self, l: L) -> L::U {
        l.splat_u(self)
    }

    #[inline(always)]
    fn load<L: Lanes>(l: L, from: &Line<Self>) -> L::U {
        l.load_u(&from.0)
    }

    #[inline(always)]
    fn add<L: Lanes>(l: L, sum: L::F, a: L::U, b: L::U) -> L::F {
        l.add_pairs(sum, a, b)
    }
}

/// Products of units.
#[derive(Clone, Copy)]
pub(super) struct Units<U>(PhantomData<U>);

pub(super) const FLOATS: Units<f32> = Units(PhantomData);
pub(super) const PAIRS: Units<u32> = Units(PhantomData);

/// Whether no element and no sum of products of two sides of pairs is subnormal. Magnitudes of at least 2^a and 2^b are multiples of 2^(a-7) and
/// 2^(b-7), having eight bits; so products, and sums however they are rounded, are multiples of 2^(a+b-14), and normal or 0 if that is at least
/// 2^-126.
pub(super) fn sums_are_normal(left: &Panels, right: &Panels) -> bool {
    let [a, b] = [left, right].map(Panels::smallest_exponent);
    a > 0 && b > 0 && a + b >= 2 * 127 - 126 + 14
}

impl<U: Unit> Inner for Units<U> {
    type Element = U;
    const LEFT_GROUP: usize = Side::Left.group();
    const LEFT_LINES: usize = Side::Left.lines();
    const RIGHT_LINES: usize = Side::Right.lines();

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        self,
        l: L,
        (left, row): (&[U], usize),
        right: Right<'_, U>,
        sums: [[L::F; VECTORS]; ROWS],
    ) -> [[L::F; VECTORS]; ROWS] {
        let Right { panel, vector, next: (next, next_vector), later } = right;
        let ((left, _), (panel, _), (next, _)) = (left.as_chunks(), panel.as_chunks(), next.as_chunks());
        debug_assert_eq!(panel.len(), next.len(), "a shorter one would leave products out");
        // Rounds whose own panel holds what is fetched, rounds that fetch the next panel, and the last few units.
        let (own, whole) = (panel.len().saturating_sub(AHEAD) / TOGETHER * TOGETHER, panel.len() / TOGETHER * TOGETHER);
        let (ahead, mut later) = ((&panel[panel.len() - own..], vector), Fetch::new(later, whole / TOGETHER));
        let sums = rounds::<L, U, TOGETHER, ROWS, VECTORS>(l, (&left[..own], row), (&panel[..own], vector), ahead, &mut later, sums);
        let ahead = (next, next_vector);
        let (from, to) = ((&left[own..whole], row), (&panel[own..whole], vector));
        let sums = rounds::<L, U, TOGETHER, ROWS, VECTORS>(l, from, to, ahead, &mut later, sums);
        rounds::<L, U, 1, ROWS, VECTORS>(l, (&left[whole..], row), (&panel[whole..], vector), ahead, &mut later, sums)
    }
}

/// F32 sides that were copied.
#[derive(Clone, Copy)]
pub(super) struct CopiedFloats;

impl Packed for CopiedFloats {
    const PIECE: usize = 256;

    fn memory(copies: &mut Copies) -> (&mut Sides<f32>, &mut Vec<f32>) {
        (&mut copies.floats, &mut copies.sums)
    }
}

impl Inner for CopiedFloats {
    type Element = f32;
    const LEFT_GROUP: usize = NARROW_ROWS;
    const LEFT_LINES: usize = 1;
    const RIGHT_LINES: usize = 1;

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        self,
        l: L,
        (left, _): (&[f32], usize),
        right: Right<'_, f32>,
        mut sums: [[L::F; VECTORS]; ROWS],
    ) -> [[L::F; VECTORS]; ROWS] {
        let mut later = Fetch::new(right.later, right.panel.len() / (VECTORS * TOGETHER));
        let (left, left_rest) = left.as_chunks::<ROWS>().0.as_chunks::<TOGETHER>();
        let (right, right_rest) = right.panel.as_chunks::<VECTORS>().0.as_chunks::<TOGETHER>();
        for (left, right) in left.iter().zip(right) {
            later.some(l);
            for (a, b) in left.iter().zip(right) {
                sums = step(l, a, b, sums);
            }
        }
        for (a, b) in left_rest.iter().zip(right_rest) {
            sums = step(l, a, b, sums);
        }
        sums
    }
}

/// `sums` and the products of every unit of `panel`, N in a round, while as much of `ahead` and some of what is read later are fetched.
#[inline(always)]
fn rounds<L: Lanes, U: Unit, const N: usize, const ROWS: usize, const VECTORS: usize>(
    l: L,
    (left, row): (&[Group<U>], usize),
    (panel, vector): (&[Lines<U>], usize),
    (ahead, ahead_vector): (&[Lines<U>], usize),
    later: &mut Fetch<'_>,
    mut sums: [[L::F; VECTORS]; ROWS],
) -> [[L::F; VECTORS]; ROWS] {
    let ((left, _), (panel, _), (ahead, _)) = (left.as_chunks::<N>(), panel.as_chunks::<N>(), ahead.as_chunks::<N>());
    for ((left, panel), ahead) in left.iter().zip(panel).zip(ahead) {
        later.some(l);
        for ((a, b), ahead) in left.iter().zip(panel).zip(ahead) {
            for j in 0..VECTORS {
                l.prefetch(ahead, ahead_vector + j);
            }
            let (Some(a), Some(b)) = (a[row..].first_chunk::<ROWS>(), b[vector..].first_chunk::<VECTORS>()) else { return sums };
            sums = step(l, a, b, sums);
        }
    }
    sums
}

/// `sums` and the products of one unit.
#[inline(always)]
fn step<L: Lanes, U: Unit, const ROWS: usize, const VECTORS: usize>(
    l: L,
    a: &[U; ROWS],
    b: &[Line<U>; VECTORS],
    mut sums: [[L::F; VECTORS]; ROWS],
) -> [[L::F; VECTORS]; ROWS] {
    let mut columns = [U::default().splat(l); VECTORS];
    for (column, b) in columns.iter_mut().zip(b) {
        *column = U::load(l, b);
    }
    for i in 0..ROWS {
        let a = a[i].splat(l);
        for j in 0..VECTORS {
            sums[i][j] = U::add(l, sums[i][j], a, columns[j]);
        }
    }
    sums
}
