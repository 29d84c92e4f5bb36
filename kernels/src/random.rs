//! Counter-based randomness: a random word is a function of a key and an index, never of a state.
//!
//! Any element's word can be computed on any device, in any order and on any thread. The hash is cheap (three 32-bit
//! multiplications, so that it vectorises) and not cryptographic; kernels/tests/random.rs checks it statistically.

/// What a stream of random words belongs to. Two keys that differ anywhere give unrelated streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StreamKey {
    pub seed: u64,
    /// Training step, or 0 where the stream must not change with it.
    pub step: u64,
    pub layer: u32,
    /// Linear projection inside the block.
    pub linear: u32,
    pub pass: u32,
    pub operand: u32,
}

impl StreamKey {
    /// Mixes the key into the two words that select a stream.
    pub fn stream(&self) -> Stream {
        let mut state = 0x6A09_E667_F3BC_C909; // the fractional part of sqrt(2): any constant would do
        let pair = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        for part in [self.seed, self.step, pair(self.layer, self.linear), pair(self.pass, self.operand)] {
            state = mix64(state ^ part);
        }
        Stream::new((state >> 32) as u32, state as u32)
    }
}

/// SplitMix64: increment and finaliser (Steele, Lea, Flood, OOPSLA 2014).
fn mix64(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Which word an index gets. All but the first are defects (`contract::defect`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Draw {
    #[default]
    Own,
    /// That of the even index at or before it.
    Pair,
    /// The lower 16 bits of its own.
    Low16,
}

/// A stream of random words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stream {
    /// First key word, added to the spread counter.
    pub k0: u32,
    /// Second key word, added between the two mixing multiplications.
    pub k1: u32,
    pub draw: Draw,
}

impl Stream {
    /// With a word of its own for each index.
    pub const fn new(k0: u32, k1: u32) -> Self {
        Self { k0, k1, draw: Draw::Own }
    }

    /// The word that `draw` gives to `index`.
    #[inline(always)]
    pub fn word(self, index: u64) -> u32 {
        match self.draw {
            Draw::Own => self.own_word(index),
            Draw::Pair => self.own_word(index & !1),
            Draw::Low16 => self.own_word(index) & 0xFFFF,
        }
    }

    /// The word at `index`:
    /// x = low * 0x9E3779B1 + high * 0x85EBCA6B + k0; x ^= x >> 16; x *= 0x7FEB352D; x ^= x >> 15; x += k1; x *= 0x846CA68B; x ^= x >> 16
    /// (multipliers and shifts of a published low-bias 32-bit finaliser, with the second key word inside).
    #[inline(always)]
    fn own_word(self, index: u64) -> u32 {
        let (low, high) = (index as u32, (index >> 32) as u32);
        let mut x = low.wrapping_mul(0x9E37_79B1).wrapping_add(high.wrapping_mul(0x85EB_CA6B)).wrapping_add(self.k0);
        x ^= x >> 16;
        x = x.wrapping_mul(0x7FEB_352D);
        x ^= x >> 15;
        x = x.wrapping_add(self.k1).wrapping_mul(0x846C_A68B);
        x ^ (x >> 16)
    }

    /// Uniform in [0, 1) with 53 random bits, from words 2 * index and 2 * index + 1.
    pub fn uniform(self, index: u64) -> f64 {
        let high = u64::from(self.word(2 * index));
        let low = u64::from(self.word(2 * index + 1));
        (((high << 32) | low) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal (Box-Muller in F64, `libm`, so that every machine agrees), rounded to F32.
    pub fn normal(self, index: u64) -> f32 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform(2 * index)));
        let angle = std::f64::consts::TAU * self.uniform(2 * index + 1);
        (radius * libm::cos(angle)) as f32
    }
}

/// A uniformly random order of `0..n` (Fisher-Yates; the remainder's bias is below n / 2^64).
///
/// # Panics
/// Never; `n` beyond 2^32 would be truncated by the element type, so it is capped there.
pub fn permutation(stream: Stream, n: usize) -> Vec<u32> {
    let n = n.min(u32::MAX as usize) as u32;
    let mut order: Vec<u32> = (0..n).collect();
    for i in (1..u64::from(n)).rev() {
        let random = (u64::from(stream.word(2 * i)) << 32) | u64::from(stream.word(2 * i + 1));
        // Multiply-high maps 64 random bits to 0..=i.
        let j = ((u128::from(random) * u128::from(i + 1)) >> 64) as usize;
        order.swap(i as usize, j);
    }
    order
}
