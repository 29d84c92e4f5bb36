//! Rounding of single elements, sixteen at a time. The truth that these must equal is `crate::format` and `crate::quantise`.

use super::super::lanes::Lanes;

/// Clears the sign bit.
pub(super) const MAGNITUDE: u32 = 0x7FFF_FFFF;
const INFINITY: u32 = 0x7F80_0000;
const QUIET_NAN: u32 = 0x7FC0_0000;

/// A target format as seen from F32.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// Mantissa bits of F32 that the format lacks.
    pub(super) dropped: u32,
    /// Smallest normal magnitude; 0 where subnormals coincide with F32's (BF16).
    pub(super) smallest_normal: f32,
    /// Bits of the largest finite magnitude, to which larger ones saturate; infinity's for BF16, which does not saturate.
    pub(super) largest: u32,
    /// Whether infinity stays infinity; otherwise it becomes a NaN.
    pub(super) has_infinity: bool,
}

impl Target {
    /// Whether what is larger than any finite value becomes the largest one.
    pub(super) fn saturates(self) -> bool {
        self.largest < INFINITY
    }
}

pub(super) const E2M1: Target = Target { dropped: 22, smallest_normal: 1.0, largest: LARGEST_E2M1.to_bits(), has_infinity: false };
pub(super) const E4M3: Target = Target { dropped: 20, smallest_normal: 1.0 / 64.0, largest: 448.0f32.to_bits(), has_infinity: false };
pub(super) const E5M2: Target = Target { dropped: 21, smallest_normal: 1.0 / 16384.0, largest: 57344.0f32.to_bits(), has_infinity: true };
pub(super) const BF16: Target = Target { dropped: 16, smallest_normal: 0.0, largest: INFINITY, has_infinity: true };

/// To BF16, nearest-even; a NaN stays one.
#[inline(always)]
pub(super) fn round_to_bf16<L: Lanes>(l: L, x: L::F) -> L::F {
    l.keep_nan(x, l.floats(l.to_bf16(l.bits(x))))
}

/// The exponent bits alone.
const EXPONENT: u32 = 0x7F80_0000;

/// What a block's scale makes of its elements, lane by lane.
#[derive(Clone, Copy)]
pub(super) struct Scaling<L: Lanes> {
    /// What an element is multiplied by: a power of two.
    pub(super) inverse: L::F,
    /// Exponent bits of an element that becomes 1 so.
    one: L::U,
}

impl<L: Lanes> Scaling<L> {
    /// For elements times 2^-`halvings` under a scale byte. Of 255 nothing is known.
    #[inline(always)]
    pub(super) fn new(l: L, byte: L::U, halvings: u32) -> Self {
        // 2^(127 - byte) is a normal number for each byte that a finite element can give; a product with 2^-halvings may not be, and is exact.
        let inverse = l.mul(l.floats(l.shl::<23>(l.sub_u(l.splat_u(254), byte))), l.splat(power_of_two(halvings)));
        let one = l.shl::<23>(l.add_u(byte, l.splat_u(halvings)));
        Self { inverse, one }
    }
}

/// 2^-halvings.
#[inline(always)]
pub(super) fn power_of_two(halvings: u32) -> f32 {
    f32::from_bits((127 - halvings) << 23)
}

/// E2M1's largest value.
pub(super) const LARGEST_E2M1: f32 = 6.0;

/// A scaled value, its magnitude below 8, rounded to E2M1's grid, nearest-even. What a NaN gives means nothing; 8 is 6, which is left to do.
///
/// With e the exponent of a scaled value, at least 0, the grid near it is 2^(e-1), which is F32's spacing at 1.5 * 2^(e+22): adding and
/// subtracting that rounds to it; scaling is part of the addition.
#[inline(always)]
pub(super) fn e2m1_on_grid<L: Lanes>(l: L, value: L::F, scaling: &Scaling<L>) -> L::F {
    // 1.5 * 2^22
    const ANCHOR: u32 = ((127 + 22) << 23) | 0x0040_0000;
    // Exponents lie in the upper halves.
    let exponent = l.sub_halves(l.and(l.bits(value), l.splat_u(EXPONENT)), scaling.one);
    let anchor = l.floats(l.add_u(exponent, l.splat_u(ANCHOR)));
    l.sub(l.fma(value, scaling.inverse, anchor), anchor)
}

/// Four values as bytes of twice their scaled E2M1 value plus 12, the first in the low byte; nearest-even and saturating. Scaled magnitudes are
/// below 8. What a NaN gives means nothing.
///
/// Elements are multiples of 1/2 up to 8, so two of them, 8 bits apart, and an offset fit into one mantissa. That 8 is 6, and -8 is -6, is seen
/// to in the bytes.
#[inline(always)]
pub(super) fn e2m1_nearest<L: Lanes>(l: L, values: [L::F; 4], scaling: &Scaling<L>) -> L::U {
    let mut rounded = values;
    for value in &mut rounded {
        *value = e2m1_on_grid(l, *value, scaling);
    }
    // 2^22, where the spacing is 1/2, plus 8 for each of two bytes: they hold twice the value plus 16.
    let start = l.splat(4_194_304.0 + 8.0 * 257.0);
    let [a, b, c, d] = rounded;
    let low = l.bits(l.fma(b, l.splat(256.0), l.add(a, start)));
    let high = l.bits(l.fma(d, l.splat(256.0), l.add(c, start)));
    // From 4 to 28, and 4 less: what is above 28 ends at 255 first, what is below 4 ends at 0 then.
    let capped = l.add_bytes(l.lower_halves(low, high), l.splat_u(0x0101_0101 * (255 - 28)));
    l.sub_bytes(capped, l.splat_u(0x0101_0101 * (255 - 24)))
}

/// Twice each E2M1 value plus 12, by code.
const BYTES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Codes of four columns as bytes of twice their value plus 12, the first in the low byte.
#[inline(always)]
pub(super) fn e2m1_codes_to_bytes<L: Lanes>(l: L, codes: [L::U; 4]) -> L::U {
    let [a, b, c, d] = codes;
    l.lookup(&BYTES, l.or(l.or(a, l.shl::<8>(b)), l.or(l.shl::<16>(c), l.shl::<24>(d))))
}

/// E2M1 codes, stochastic: the random word's low 22 bits are added to the bits that are dropped. Below 1, to those of |v| + 1.
#[inline(always)]
pub(super) fn e2m1_stochastic<L: Lanes>(l: L, value: L::F, random: L::U) -> L::U {
    let one = l.splat_u(1.0f32.to_bits());
    let bits = l.bits(value);
    let magnitude = l.and(bits, l.splat_u(MAGNITUDE));
    let shifted = l.bits(l.add(l.floats(magnitude), l.splat(1.0)));
    let from = l.select_less_u(magnitude, one, shifted, magnitude);
    let offset = l.select_less_u(magnitude, one, l.splat_u(254), l.splat_u(252));
    let sum = l.add_u(from, l.and(random, l.splat_u(0x003F_FFFF)));
    let code = l.min_u(l.sub_u(l.shr::<22>(sum), offset), l.splat_u(7));
    with_sign(l, code, bits)
}

/// Bit 31 becomes bit 3.
#[inline(always)]
fn with_sign<L: Lanes>(l: L, code: L::U, bits: L::U) -> L::U {
    l.or(code, l.and(l.shr::<28>(bits), l.splat_u(8)))
}

/// [`round`] to nearest of a finite value to a format with subnormals, in a third of the work: as in `e2m1_nearest`.
#[inline(always)]
pub(super) fn round_finite<L: Lanes>(l: L, value: L::F, target: Target) -> L::F {
    let clamped = l.clamp(value, f32::from_bits(target.largest));
    let exponent = l.max_u(l.and(l.bits(clamped), l.splat_u(EXPONENT)), l.splat_u(target.smallest_normal.to_bits()));
    let anchor = l.floats(l.add_u(exponent, l.splat_u((target.dropped << 23) | 0x0040_0000)));
    let rounded = l.sub(l.add(clamped, anchor), anchor);
    // Zero keeps its sign.
    l.floats(l.or(l.bits(rounded), l.and(l.bits(value), l.splat_u(!MAGNITUDE))))
}

/// The nearest (or randomly chosen neighbouring) value of the target, saturating; NaN gives a quiet NaN of the same sign.
#[inline(always)]
pub(super) fn round<L: Lanes>(l: L, value: L::F, target: Target, random: Option<L::U>) -> L::F {
    let last = 1u32 << target.dropped;
    let mask = last - 1;
    let bits = l.bits(value);
    let magnitude = l.and(bits, l.splat_u(MAGNITUDE));
    let is_small = |yes: L::U, no: L::U| l.select_less_u(magnitude, l.splat_u(target.smallest_normal.to_bits()), yes, no);
    let rounded = match random {
        None => {
            let odd = l.min_u(l.and(magnitude, l.splat_u(last)), l.splat_u(1));
            let large = l.and(l.add_u(magnitude, l.add_u(odd, l.splat_u(mask >> 1))), l.splat_u(!mask));
            // F32's spacing at GRID is the target's spacing below its smallest normal.
            let grid = l.splat(target.smallest_normal * last as f32);
            let small = l.bits(l.sub(l.add(l.floats(magnitude), grid), grid));
            is_small(small, large)
        }
        Some(random) => {
            let smallest = l.splat(target.smallest_normal);
            let from = is_small(l.bits(l.add(l.floats(magnitude), smallest)), magnitude);
            let sum = l.and(l.add_u(from, l.and(random, l.splat_u(mask))), l.splat_u(!mask));
            is_small(l.bits(l.sub(l.floats(sum), smallest)), sum)
        }
    };
    let saturated = l.min_u(rounded, l.splat_u(target.largest));
    let sign = l.and(bits, l.splat_u(!MAGNITUDE));
    let at_infinity = l.splat_u(if target.has_infinity { INFINITY } else { QUIET_NAN });
    let special = l.select_less_u(l.splat_u(INFINITY), magnitude, l.splat_u(QUIET_NAN), at_infinity);
    let result = l.select_less_u(magnitude, l.splat_u(INFINITY), saturated, special);
    l.floats(l.or(result, sign))
}
