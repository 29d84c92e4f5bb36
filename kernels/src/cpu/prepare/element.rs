//! Rounding of single elements, sixteen at a time. The truth that these must equal is `crate::format` and `crate::quantise`.

use super::super::lanes::Lanes;

/// Clears the sign bit.
const MAGNITUDE: u32 = 0x7FFF_FFFF;
const INFINITY: u32 = 0x7F80_0000;
const QUIET_NAN: u32 = 0x7FC0_0000;

/// A target format as seen from F32.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// Smallest normal magnitude; 0 where subnormals coincide with F32's (BF16).
    pub(super) smallest_normal: f32,
    /// Bits of the largest finite magnitude, to which larger ones saturate; infinity's for BF16, which does not saturate.
    pub(super) largest: u32,
    /// Whether infinity stays infinity; otherwise it becomes a NaN.
    pub(super) has_infinity: bool,
}

/// E4M3, with DROPPED = 20.
pub(super) const E4M3: Target = Target { smallest_normal: 1.0 / 64.0, largest: 448.0f32.to_bits(), has_infinity: false };
/// E5M2, with DROPPED = 21.
pub(super) const E5M2: Target = Target { smallest_normal: 1.0 / 16384.0, largest: 57344.0f32.to_bits(), has_infinity: true };
/// BF16, with DROPPED = 16.
pub(super) const BF16: Target = Target { smallest_normal: 0.0, largest: INFINITY, has_infinity: true };

/// To BF16, nearest-even; a NaN keeps its sign and upper bits and is made quiet.
#[inline(always)]
pub(super) fn round_to_bf16<L: Lanes>(l: L, x: L::F) -> L::F {
    let bits = l.bits(x);
    let odd = l.and(l.shr::<16>(bits), l.splat_u(1));
    let rounded = l.and(l.add_u(bits, l.add_u(odd, l.splat_u(0x7FFF))), l.splat_u(0xFFFF_0000));
    let quiet = l.and(l.or(bits, l.splat_u(0x0040_0000)), l.splat_u(0xFFFF_0000));
    l.floats(l.select_less_u(l.splat_u(INFINITY), l.and(bits, l.splat_u(MAGNITUDE)), quiet, rounded))
}

/// E2M1 codes (0..16) of already scaled values, nearest-even and saturating; NaN gives the largest.
///
/// Below 1 the grid is uniform (0, 0.5, 1): adding 2^22, where F32's spacing is 0.5, rounds. From 1 up the mantissa bits are rounded.
#[inline(always)]
pub(super) fn e2m1_nearest<L: Lanes>(l: L, value: L::F) -> L::U {
    const GRID: f32 = 4_194_304.0;
    let bits = l.bits(value);
    let magnitude = l.and(bits, l.splat_u(MAGNITUDE));
    let small = l.sub_u(l.bits(l.add(l.floats(magnitude), l.splat(GRID))), l.splat_u(GRID.to_bits()));
    let odd = l.and(l.shr::<22>(magnitude), l.splat_u(1));
    let rounded = l.shr::<22>(l.add_u(magnitude, l.add_u(odd, l.splat_u(0x001F_FFFF))));
    let large = l.sub_u(rounded, l.splat_u(252));
    let code = l.min_u(l.select_less_u(magnitude, l.splat_u(1.0f32.to_bits()), small, large), l.splat_u(7));
    with_sign(l, code, bits)
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

/// The nearest (or randomly chosen neighbouring) value of the target, saturating; NaN gives a quiet NaN of the same sign.
#[inline(always)]
pub(super) fn round<L: Lanes, const DROPPED: u32>(l: L, value: L::F, target: Target, random: Option<L::U>) -> L::F {
    let mask = (1u32 << DROPPED) - 1;
    let bits = l.bits(value);
    let magnitude = l.and(bits, l.splat_u(MAGNITUDE));
    let is_small = |yes: L::U, no: L::U| l.select_less_u(magnitude, l.splat_u(target.smallest_normal.to_bits()), yes, no);
    let rounded = match random {
        None => {
            let odd = l.and(l.shr::<DROPPED>(magnitude), l.splat_u(1));
            let large = l.and(l.add_u(magnitude, l.add_u(odd, l.splat_u(mask >> 1))), l.splat_u(!mask));
            // F32's spacing at GRID is the target's spacing below its smallest normal.
            let grid = l.splat(target.smallest_normal * (1u32 << DROPPED) as f32);
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
