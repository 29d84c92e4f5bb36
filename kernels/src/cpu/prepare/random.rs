//! `random::Stream::word`, sixteen counters at a time.

use super::super::lanes::{Lanes, WIDTH};
use crate::random::{Draw, Stream};

/// Multipliers of the counter's low and high half in `Stream::word`.
const LOW: u32 = 0x9E37_79B1;
const HIGH: u32 = 0x85EB_CA6B;

/// Sixteen counters, already multiplied: counter + column costs one addition, because multiplication distributes over it modulo 2^32.
#[derive(Clone, Copy)]
pub(super) struct Counters<L: Lanes> {
    low: L::U,
    spread: L::U,
    /// Whether adding a column may carry into the high half.
    wide: bool,
    k1: u32,
    draw: Draw,
}

impl<L: Lanes> Counters<L> {
    /// Lane i counts from `start(i)`; columns up to `columns` will be added.
    #[inline(always)]
    pub(super) fn new(l: L, stream: Stream, columns: usize, start: impl Fn(usize) -> u64) -> Self {
        let (mut low, mut spread, mut wide) = ([0; WIDTH], [0; WIDTH], false);
        for i in 0..WIDTH {
            let x = start(i);
            let high = (x >> 32) as u32;
            low[i] = x as u32;
            spread[i] = low[i].wrapping_mul(LOW).wrapping_add(high.wrapping_mul(HIGH)).wrapping_add(stream.k0);
            wide |= x & 0xFFFF_FFFF > 0xFFFF_FFFF - columns as u64;
        }
        Self { low: l.load_u(&low), spread: l.load_u(&spread), wide, k1: stream.k1, draw: stream.draw }
    }

    /// The words at a column.
    #[inline(always)]
    pub(super) fn words(&self, l: L, column: usize) -> L::U {
        let column = column as u32;
        let mut x = l.add_u(self.spread, l.splat_u(column.wrapping_mul(LOW)));
        if self.wide {
            let room = l.splat_u(u32::MAX - column);
            x = l.add_u(x, l.select_less_u(room, self.low, l.splat_u(HIGH), l.splat_u(0)));
        }
        if self.draw == Draw::Pair {
            let odd = l.and(l.add_u(self.low, l.splat_u(column)), l.splat_u(1));
            x = l.sub_u(x, l.mul_u(odd, l.splat_u(LOW)));
        }
        x = l.xor(x, l.shr::<16>(x));
        x = l.mul_u(x, l.splat_u(0x7FEB_352D));
        x = l.xor(x, l.shr::<15>(x));
        x = l.mul_u(l.add_u(x, l.splat_u(self.k1)), l.splat_u(0x846C_A68B));
        x = l.xor(x, l.shr::<16>(x));
        if self.draw == Draw::Low16 { l.and(x, l.splat_u(0xFFFF)) } else { x }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::lanes::portable::Portable;
    use super::*;
    use crate::random::StreamKey;

    /// Matrices with more than 2^32 elements are too large for a test of `prepare`; their counters are not.
    #[test]
    fn words_are_those_of_the_stream_across_the_32_bit_border() {
        for draw in [Draw::Own, Draw::Pair, Draw::Low16] {
            words_are_those_of(Stream { draw, ..StreamKey { seed: 5, ..Default::default() }.stream() });
        }
    }

    fn words_are_those_of(stream: Stream) {
        for base in [0, 1 << 20, (1 << 32) - 100, (1 << 32) - 1, 1 << 32, (7 << 32) - 33, u64::MAX >> 8] {
            let start = |i: usize| base + 11 * i as u64;
            let counters = Counters::new(Portable::new(), stream, 256, start);
            for column in 0..256 {
                let expected: [u32; WIDTH] = std::array::from_fn(|i| stream.word(start(i) + column as u64));
                assert_eq!(counters.words(Portable::new(), column), expected, "base {base} column {column}");
            }
        }
    }
}
