//! Sixteen F32 lanes: the one vector width every CPU kernel is written for.
//!
//! A kernel is written once, generic over [`Lanes`], and compiled for each instruction set. Sixteen lanes are one
//! AVX-512 register, two of AVX2, four of NEON or a plain array; every operation is IEEE and lane-wise, so all give the
//! same bits. No kernel lives here, and no choice of instruction set: that is `cpu::InstructionSet`.
//!
//! A value of a type implementing `Lanes` is a proof that the processor has the instructions: `Avx2`, `Avx512` and `Neon` can be
//! made only by an `unsafe` function, which the dispatch calls after detection. That is why the operations are safe.

/// Every pair is named: in a loop over indices the compiler leaves the registers in memory.
macro_rules! butterflies {
    ($x:ident, $add:expr, $sub:expr) => {{
        let (add, sub) = ($add, $sub);
        butterflies!(@ $x add sub 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15);
        butterflies!(@ $x add sub 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15);
        butterflies!(@ $x add sub 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15);
        butterflies!(@ $x add sub 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15);
    }};
    (@ $x:ident $add:ident $sub:ident $($a:literal $b:literal),*) => {
        $(($x[$a], $x[$b]) = ($add($x[$a], $x[$b]), $sub($x[$a], $x[$b]));)*
    };
}

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod neon;
pub(crate) mod portable;

/// What multiplies pairs of BF16, if anything does.
#[cfg(target_arch = "x86_64")]
pub(crate) type PairLanes = avx512::Avx512<true>;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type PairLanes = portable::Portable;

/// What does the rest where tiles multiply.
#[cfg(target_arch = "x86_64")]
pub(crate) type TileLanes = avx512::Avx512<false>;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type TileLanes = portable::Portable;

pub(crate) const WIDTH: usize = 16;

/// A word's upper sixteen bits: the pattern of a BF16 as that of an F32.
pub(crate) const UPPER_HALF: u32 = 0xFFFF_0000;

/// Adding it leaves the nearest integer in the low mantissa bits.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// Operations on sixteen lanes. `F` holds F32 and `U` holds their 32-bit patterns or unsigned integers.
pub(crate) trait Lanes: Copy + Send + Sync + 'static {
    /// Sixteen F32.
    type F: Copy;
    /// Sixteen u32.
    type U: Copy;

    /// How many times sixteen lanes fit into the vector registers; 0 where the compiler is left to find some.
    const REGISTERS: usize;

    /// Whether a product copies what it reads close together first. Measured for AVX2 without VNNI only.
    const COPIES: bool = false;

    /// Runs `work` compiled with the instruction set: whatever is inlined into it gets the instructions.
    fn run<R>(self, work: impl FnOnce() -> R) -> R;

    /// Asks for the cache line of `x[at]`, if there is one; changes nothing.
    #[inline(always)]
    fn prefetch<T>(self, x: &[T], at: usize) {
        let _ = (x, at);
    }

    /// [`Lanes::prefetch`] as far as the second-level cache.
    #[inline(always)]
    fn prefetch_far(self, x: &[f32], at: usize) {
        let _ = (x, at);
    }

    fn splat(self, value: f32) -> Self::F;
    fn load(self, from: &[f32; WIDTH]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; WIDTH]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    /// a*b + c with one rounding.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: with a NaN on either side the result is `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: with a NaN on either side the result is `b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;

    /// `a` with its magnitude at most `limit` (finite, positive); a NaN becomes something else.
    #[inline(always)]
    fn clamp(self, a: Self::F, limit: f32) -> Self::F {
        self.max(self.min(a, self.splat(limit)), self.splat(-limit))
    }

    /// p * 2^n for n in -126..=128 and results that are normal numbers; `shifted` is n + [`ROUND`]. A NaN in both gives a NaN.
    #[inline(always)]
    fn times_power(self, p: Self::F, shifted: Self::F, n: Self::F) -> Self::F {
        let _ = n;
        // In two halves, because n may be 128 (p < 1 then) or -126.
        let n_bits = self.sub_u(self.bits(shifted), self.splat_u(ROUND.to_bits()));
        let half = self.add_u(n_bits, self.splat_u(256)); // n + 256 is positive
        let first = self.shr::<1>(half); // floor(n/2) + 128
        let second = self.sub_u(half, first);
        let power = |e: Self::U| self.floats(self.shl::<23>(self.sub_u(e, self.splat_u(1))));
        self.mul(self.mul(p, power(first)), power(second))
    }

    /// Per lane: 0 where `x` < `limit` (negative), otherwise `value`, also where `x` is a NaN.
    #[inline(always)]
    fn zero_below(self, x: Self::F, limit: f32, value: Self::F) -> Self::F {
        // Patterns seen as sign and magnitude, compared as unsigned; negative NaNs are above minus infinity's.
        let (x, value) = (self.bits(x), self.bits(value));
        let clipped = self.select_less_u(self.splat_u(limit.to_bits()), x, self.splat_u(0), value);
        self.floats(self.select_less_u(x, self.splat_u(f32::NEG_INFINITY.to_bits() + 1), clipped, value))
    }

    /// Per lane: a quiet NaN where `x` is a NaN, otherwise `value`. By default that is 0x7FC00000; where it is another, `canonical` needs an
    /// implementation of its own, too.
    #[inline(always)]
    fn keep_nan(self, x: Self::F, value: Self::F) -> Self::F {
        let magnitude = self.and(self.bits(x), self.splat_u(0x7FFF_FFFF));
        self.floats(self.select_less_u(self.splat_u(0x7F80_0000), magnitude, self.splat_u(0x7FC0_0000), self.bits(value)))
    }

    /// F32 patterns rounded to BF16, nearest-even; what a NaN gives means nothing. Monotonic in the magnitude.
    #[inline(always)]
    fn to_bf16(self, bits: Self::U) -> Self::U {
        let odd = self.and(self.shr::<16>(bits), self.splat_u(1));
        self.and(self.add_u(bits, self.add_u(odd, self.splat_u(0x7FFF))), self.splat_u(0xFFFF_0000))
    }

    /// Per lane: the NaN 0x7FC00000 where `a` is any NaN.
    #[inline(always)]
    fn canonical(self, a: Self::F) -> Self::F {
        self.keep_nan(a, a)
    }

    /// [`Lanes::canonical`] of each.
    #[inline(always)]
    fn canonical_all<const COLUMNS: usize, const ROWS: usize>(self, mut values: [[Self::F; COLUMNS]; ROWS]) -> [[Self::F; COLUMNS]; ROWS] {
        for value in values.as_flattened_mut() {
            *value = self.canonical(*value);
        }
        values
    }

    fn bits(self, a: Self::F) -> Self::U;
    fn floats(self, a: Self::U) -> Self::F;
    fn splat_u(self, value: u32) -> Self::U;
    fn load_u(self, from: &[u32; WIDTH]) -> Self::U;
    fn store_u(self, value: Self::U, to: &mut [u32; WIDTH]);
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn sub_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// Low 32 bits of the product.
    fn mul_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn or(self, a: Self::U, b: Self::U) -> Self::U;
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    fn shl<const N: u32>(self, a: Self::U) -> Self::U;
    fn shr<const N: u32>(self, a: Self::U) -> Self::U;
    fn max_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn min_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// Byte by byte, at most 255.
    fn add_bytes(self, a: Self::U, b: Self::U) -> Self::U;
    /// Byte by byte, at least 0.
    fn sub_bytes(self, a: Self::U, b: Self::U) -> Self::U;
    /// Sixteen bits by sixteen bits, at least 0.
    fn sub_halves(self, a: Self::U, b: Self::U) -> Self::U;
    /// Byte by byte, modulo 256.
    fn wrapping_sub_bytes(self, a: Self::U, b: Self::U) -> Self::U;
    /// The lower sixteen bits of both, `a`'s below `b`'s.
    #[inline(always)]
    fn lower_halves(self, a: Self::U, b: Self::U) -> Self::U {
        self.or(self.and(a, self.splat_u(0xFFFF)), self.shl::<16>(b))
    }
    /// The upper sixteen bits of both, `b`'s below `a`'s.
    #[inline(always)]
    fn upper_halves(self, a: Self::U, b: Self::U) -> Self::U {
        self.or(self.and(a, self.splat_u(UPPER_HALF)), self.shr::<16>(b))
    }
    /// Per lane: `if a < b { yes } else { no }`, unsigned.
    fn select_less_u(self, a: Self::U, b: Self::U, yes: Self::U, no: Self::U) -> Self::U;

    /// A natural-order Sylvester transform of the sixteen registers, without a factor: sizes 1, 2, 4, 8.
    #[inline(always)]
    fn hadamard(self, x: &mut [Self::F; WIDTH]) {
        butterflies!(x, |a, b| self.add(a, b), |a, b| self.sub(a, b));
    }

    /// Lane by lane the pattern of the largest magnitude; a NaN's is above all others.
    #[inline(always)]
    fn largest_magnitude(self, x: &[Self::F]) -> Self::U {
        let mut largest = self.splat_u(0);
        for &x in x {
            largest = self.max_u(largest, self.and(self.bits(x), self.splat_u(0x7FFF_FFFF)));
        }
        largest
    }

    /// [`Lanes::largest_magnitude`] of what [`Lanes::hadamard`] gave.
    #[inline(always)]
    fn largest_after_hadamard(self, x: &[Self::F; WIDTH]) -> Self::U {
        self.largest_magnitude(x)
    }

    /// Transposes a 16 x 16 tile: lane `i` of result `j` is lane `j` of input `i`.
    fn transpose(self, rows: &mut [Self::F; WIDTH]);

    /// sum + aH * bH, rounded, then + aL * bL, rounded, for pairs of BF16: H is the upper half of a word, L the lower one. What is subnormal may
    /// count as 0, be it an element or a sum.
    #[inline(always)]
    fn add_pairs(self, sum: Self::F, a: Self::U, b: Self::U) -> Self::F {
        two_products(self, sum, a, b)
    }

    /// What the products of one block of 32 are summed in.
    type Dot: Copy;

    /// Begins the sum of one block; `offset` is what it should start from.
    fn dot_start(self, offset: Self::U) -> Self::Dot;
    /// Per lane, adds the products of four unsigned bytes (at most 24) and four signed bytes (magnitude at most 12).
    /// At most eight calls between start and finish.
    fn dot_add(self, sum: Self::Dot, unsigned: Self::U, signed: Self::U) -> Self::Dot;
    /// The sum plus `offset` (the same as at the start; which of the two uses it is the instruction set's affair).
    fn dot_finish(self, sum: Self::Dot, offset: Self::U) -> Self::U;
    /// Byte-wise `table[index]` for indices below 16.
    fn lookup(self, table: &[u8; 16], index: Self::U) -> Self::U;
    /// First `from.len()` lanes (at most 16) from memory, the rest zero.
    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> Self::F {
        let mut whole = [0.0; WIDTH];
        for (to, &value) in whole.iter_mut().zip(from) {
            *to = value;
        }
        self.load(&whole)
    }

    /// Writes the first `to.len()` lanes (at most 16).
    #[inline(always)]
    fn store_partial(self, value: Self::F, to: &mut [f32]) {
        let whole = self.to_array(value);
        for (to, &value) in to.iter_mut().zip(&whole) {
            *to = value;
        }
    }

    #[inline(always)]
    fn to_array(self, value: Self::F) -> [f32; WIDTH] {
        let mut whole = [0.0; WIDTH];
        self.store(value, &mut whole);
        whole
    }

    /// The fixed tree of every reduction: (l0+l8), (l1+l9), ...; then +4, +2, +1.
    #[inline(always)]
    fn sum(self, value: Self::F) -> f32 {
        let l = self.to_array(value);
        let mut eight = [0.0f32; 8];
        for i in 0..8 {
            eight[i] = l[i] + l[i + 8];
        }
        let four = [eight[0] + eight[4], eight[1] + eight[5], eight[2] + eight[6], eight[3] + eight[7]];
        let two = [four[0] + four[2], four[1] + four[3]];
        two[0] + two[1]
    }

    /// [`Lanes::sum`] of sixteen values at once: lane i is the sum of `values[i]`, by the same tree.
    #[inline(always)]
    fn sums(self, mut values: [Self::F; WIDTH]) -> Self::F {
        self.transpose(&mut values);
        self.tree(values)
    }

    /// The tree of [`Lanes::sum`] over sixteen registers, lane by lane.
    #[inline(always)]
    fn tree(self, mut values: [Self::F; WIDTH]) -> Self::F {
        let mut half = WIDTH / 2;
        while half > 0 {
            for i in 0..half {
                values[i] = self.add(values[i], values[i + half]);
            }
            half /= 2;
        }
        values[0]
    }

    /// Largest lane; if any lane is NaN the result may be any of the lanes, so callers that must see a NaN look at the sum.
    #[inline(always)]
    fn largest(self, value: Self::F) -> f32 {
        let l = self.to_array(value);
        let mut best = l[0];
        for &x in &l[1..] {
            best = if x > best { x } else { best };
        }
        best
    }

    /// Largest lane as unsigned integer.
    #[inline(always)]
    fn largest_u(self, value: Self::U) -> u32 {
        let mut l = [0; WIDTH];
        self.store_u(value, &mut l);
        l.into_iter().fold(0, u32::max)
    }
}

/// Lanes from `x[at..]`: sixteen, or what is left of the slice and zeros.
#[inline(always)]
pub(crate) fn get<L: Lanes>(l: L, x: &[f32], at: usize) -> L::F {
    match x[at..].first_chunk::<WIDTH>() {
        Some(whole) => l.load(whole),
        None => l.load_partial(&x[at..]),
    }
}

/// Lanes to `x[at..]`: sixteen, or as many as are left of the slice.
#[inline(always)]
pub(crate) fn put<L: Lanes>(l: L, value: L::F, x: &mut [f32], at: usize) {
    match x[at..].first_chunk_mut::<WIDTH>() {
        Some(whole) => l.store(value, whole),
        None => l.store_partial(value, &mut x[at..]),
    }
}

/// [`Lanes::add_pairs`] in two multiply-adds.
#[inline(always)]
fn two_products<L: Lanes>(l: L, sum: L::F, a: L::U, b: L::U) -> L::F {
    let upper = |x| l.floats(l.and(x, l.splat_u(UPPER_HALF)));
    let lower = |x| l.floats(l.shl::<16>(x));
    l.fma(lower(a), lower(b), l.fma(upper(a), upper(b), sum))
}
