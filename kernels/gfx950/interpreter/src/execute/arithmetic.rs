//! Vector operations on one 32-bit lane: what each computes from up to three 32-bit sources.
//!
//! F32 follows IEEE 754 in the mode that the kernels' descriptors ask for: nearest even, denormals kept. Where the hardware's result is
//! an approximation (reciprocal, square root, 2^x, log2) this one is the correctly rounded value with denormal inputs and results
//! flushed to zero, as LLVM's lowering assumes of the instructions; a kernel whose result depends on the last bit there is outside this model.

use super::LANES;
use crate::decode::Op;

/// How sources are changed by modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sign and magnitude modifiers are not allowed.
    Integer,
    /// They change the sign bit; the result may be multiplied and clamped.
    Float,
}

/// Three sources, of which the operation uses as many as it has, and its result: one call for all lanes.
pub(super) type Function = fn([&[u32; LANES]; 3], &mut [u32; LANES]);

/// The operation of all lanes, from what it does to one.
macro_rules! lanes {
    ($function:expr) => {
        |[a, b, c], result| {
            let function: fn(u32, u32, u32) -> u32 = $function;
            for (result, ((a, b), c)) in result.iter_mut().zip(a.iter().zip(b).zip(c)) {
                *result = function(*a, *b, *c);
            }
        }
    };
}

/// One lane of a comparison; 32-bit sources come zero-extended.
pub(super) type Predicate = fn(u64, u64) -> bool;

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// A denormal as the approximate operations see it: zero of its sign.
fn flushed(bits: u32) -> f32 {
    if f(bits).is_subnormal() { f(bits & 0x8000_0000) } else { f(bits) }
}

/// The rounded result of an approximate operation.
fn approximate(value: f64) -> u32 {
    let bits = (value as f32).to_bits();
    flushed(bits).to_bits()
}

/// IEEE 754-2008 maxNum and minNum, with -0 below +0.
fn maximum(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f(a.to_bits() & b.to_bits()),
        _ if a > b => a,
        _ => b,
    }
}

/// IEEE 754-2019 maximum: a NaN stays one, quiet.
fn maximum_or_nan(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => f(a.to_bits() | 0x0040_0000),
        (_, true) => f(b.to_bits() | 0x0040_0000),
        _ => maximum(a, b),
    }
}

fn minimum(a: f32, b: f32) -> f32 {
    -maximum(-a, -b)
}

fn median(a: f32, b: f32, c: f32) -> f32 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return minimum(minimum(a, b), c);
    }
    maximum(minimum(a, b), minimum(maximum(a, b), c))
}

fn i24(x: u32) -> i32 {
    ((x << 8) as i32) >> 8
}

fn ldexp(value: f32, power: i32) -> f32 {
    // Exact in F64 for every power that does not already decide the result; then rounded once.
    (f64::from(value) * f64::from_bits(((1023 + i64::from(power.clamp(-400, 400))) as u64) << 52)) as f32
}

fn frexp_exponent(value: f32) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    let wide = f64::from(value).to_bits();
    ((wide >> 52) & 0x7FF) as i32 - 1022
}

fn frexp_mantissa(value: f32) -> f32 {
    if value == 0.0 || !value.is_finite() { value } else { ldexp(value, -frexp_exponent(value)) }
}

/// BF16 to nearest, ties to even; a NaN stays a quiet NaN.
fn bf16(bits: u32) -> u32 {
    if f(bits).is_nan() { (bits >> 16) | 0x40 } else { (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 }
}

/// Byte `selector` of the eight of `high` and `low`, or one of the constants and signs.
fn permuted_byte(high: u32, low: u32, selector: u32) -> u32 {
    let bytes = u64::from(high) << 32 | u64::from(low);
    let sign = |bit: u32| if bytes >> bit & 1 == 1 { 0xFF } else { 0 };
    match selector {
        0..=7 => (bytes >> (8 * selector)) as u32 & 0xFF,
        8 => sign(15),
        9 => sign(31),
        10 => sign(47),
        11 => sign(63),
        12 => 0,
        _ => 0xFF,
    }
}

fn permute(high: u32, low: u32, selectors: u32) -> u32 {
    (0..4).map(|i| permuted_byte(high, low, (selectors >> (8 * i)) & 0xFF) << (8 * i)).sum()
}

fn class(value: f32, mask: u32) -> bool {
    let bits = value.to_bits();
    mask >> class_of(value.classify(), bits >> 31 == 1, bits & 0x0040_0000 != 0) & 1 == 1
}

/// The bit of a number's class in the mask of `v_cmp_class`.
pub(super) fn class_of(category: std::num::FpCategory, negative: bool, quiet: bool) -> u32 {
    use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};
    // From negative infinity (2) up to positive infinity (9).
    let signed = |magnitude: u32| if negative { 5 - magnitude } else { 6 + magnitude };
    match category {
        Nan => u32::from(quiet),
        Zero => signed(0),
        Subnormal => signed(1),
        Normal => signed(2),
        Infinite => signed(3),
    }
}

/// The function of an operation on 32-bit lanes, if it is one.
pub(super) fn function(op: Op) -> Option<(Kind, Function)> {
    integer(op).map(|function| (Kind::Integer, function)).or_else(|| float(op).map(|function| (Kind::Float, function)))
}

fn integer(op: Op) -> Option<Function> {
    use Op::*;
    Some(match op {
        v_accvgpr_mov_b32 | v_accvgpr_read_b32 | v_accvgpr_write_b32 => lanes!(|a, _, _| a),
        v_not_b32 => lanes!(|a, _, _| !a),
        v_bfrev_b32 => lanes!(|a, _, _| a.reverse_bits()),
        v_ffbh_u32 => lanes!(|a, _, _| if a == 0 { u32::MAX } else { a.leading_zeros() }),
        v_ffbl_b32 => lanes!(|a, _, _| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
        v_cvt_f32_i32 => lanes!(|a, _, _| (a as i32 as f32).to_bits()),
        v_cvt_f32_u32 => lanes!(|a, _, _| (a as f32).to_bits()),
        v_cvt_f32_ubyte0 => lanes!(|a, _, _| ((a & 0xFF) as f32).to_bits()),
        v_cvt_f32_ubyte1 => lanes!(|a, _, _| ((a >> 8 & 0xFF) as f32).to_bits()),
        v_cvt_f32_ubyte2 => lanes!(|a, _, _| ((a >> 16 & 0xFF) as f32).to_bits()),
        v_cvt_f32_ubyte3 => lanes!(|a, _, _| ((a >> 24) as f32).to_bits()),
        v_cvt_f32_bf16 => lanes!(|a, _, _| a << 16),
        v_add_u32 | v_add_i32 => lanes!(|a, b, _| a.wrapping_add(b)),
        v_sub_u32 | v_sub_i32 => lanes!(|a, b, _| a.wrapping_sub(b)),
        v_subrev_u32 => lanes!(|a, b, _| b.wrapping_sub(a)),
        v_mul_i32_i24 => lanes!(|a, b, _| i24(a).wrapping_mul(i24(b)) as u32),
        v_mul_u32_u24 => lanes!(|a, b, _| (a & 0xFF_FFFF).wrapping_mul(b & 0xFF_FFFF)),
        v_mul_hi_u32_u24 => lanes!(|a, b, _| ((u64::from(a & 0xFF_FFFF) * u64::from(b & 0xFF_FFFF)) >> 32) as u32),
        v_mul_lo_u32 => lanes!(|a, b, _| a.wrapping_mul(b)),
        v_mul_hi_u32 => lanes!(|a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        v_mul_hi_i32 => lanes!(|a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        v_min_i32 => lanes!(|a, b, _| (a as i32).min(b as i32) as u32),
        v_max_i32 => lanes!(|a, b, _| (a as i32).max(b as i32) as u32),
        v_min_u32 => lanes!(|a, b, _| a.min(b)),
        v_max_u32 => lanes!(|a, b, _| a.max(b)),
        v_lshrrev_b32 => lanes!(|a, b, _| b >> (a & 31)),
        v_ashrrev_i32 => lanes!(|a, b, _| ((b as i32) >> (a & 31)) as u32),
        v_lshlrev_b32 => lanes!(|a, b, _| b << (a & 31)),
        // 16-bit results clear the upper half.
        v_lshlrev_b16 => lanes!(|a, b, _| (b << (a & 15)) & 0xFFFF),
        v_and_b32 => lanes!(|a, b, _| a & b),
        v_or_b32 => lanes!(|a, b, _| a | b),
        v_xor_b32 => lanes!(|a, b, _| a ^ b),
        v_xnor_b32 => lanes!(|a, b, _| !(a ^ b)),
        v_bfm_b32 => lanes!(|a, b, _| ((1 << (a & 31)) - 1) << (b & 31)),
        v_bcnt_u32_b32 => lanes!(|a, b, _| a.count_ones().wrapping_add(b)),
        v_mad_i32_i24 => lanes!(|a, b, c| (i24(a).wrapping_mul(i24(b)) as u32).wrapping_add(c)),
        v_mad_u32_u24 => lanes!(|a, b, c| (a & 0xFF_FFFF).wrapping_mul(b & 0xFF_FFFF).wrapping_add(c)),
        v_bfe_u32 => lanes!(|a, b, c| (a >> (b & 31)) & ((1 << (c & 31)) - 1)),
        v_bfe_i32 => lanes!(|a, b, c| signed_field(a, b & 31, c & 31)),
        v_bfi_b32 => lanes!(|a, b, c| (a & b) | (!a & c)),
        v_alignbit_b32 => lanes!(|a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32),
        v_alignbyte_b32 => lanes!(|a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32),
        v_min3_i32 => lanes!(|a, b, c| (a as i32).min(b as i32).min(c as i32) as u32),
        v_max3_i32 => lanes!(|a, b, c| (a as i32).max(b as i32).max(c as i32) as u32),
        v_min3_u32 => lanes!(|a, b, c| a.min(b).min(c)),
        v_max3_u32 => lanes!(|a, b, c| a.max(b).max(c)),
        v_med3_i32 => lanes!(|a, b, c| (a as i32).min(b as i32).max((a as i32).max(b as i32).min(c as i32)) as u32),
        v_med3_u32 => lanes!(|a, b, c| a.min(b).max(a.max(b).min(c))),
        v_perm_b32 => lanes!(permute),
        v_xad_u32 => lanes!(|a, b, c| (a ^ b).wrapping_add(c)),
        v_lshl_add_u32 => lanes!(|a, b, c| (a << (b & 31)).wrapping_add(c)),
        v_add_lshl_u32 => lanes!(|a, b, c| a.wrapping_add(b) << (c & 31)),
        v_add3_u32 => lanes!(|a, b, c| a.wrapping_add(b).wrapping_add(c)),
        v_lshl_or_b32 => lanes!(|a, b, c| (a << (b & 31)) | c),
        v_and_or_b32 => lanes!(|a, b, c| (a & b) | c),
        v_or3_b32 => lanes!(|a, b, c| a | b | c),
        _ => return None,
    })
}

/// What a clamped integer operation computes instead: it saturates.
pub(super) fn saturating(op: Op) -> Option<Function> {
    use Op::*;
    Some(match op {
        v_add_u32 => lanes!(|a, b, _| a.saturating_add(b)),
        v_sub_u32 => lanes!(|a, b, _| a.saturating_sub(b)),
        v_subrev_u32 => lanes!(|a, b, _| b.saturating_sub(a)),
        v_add_i32 => lanes!(|a, b, _| (a as i32).saturating_add(b as i32) as u32),
        v_sub_i32 => lanes!(|a, b, _| (a as i32).saturating_sub(b as i32) as u32),
        _ => return None,
    })
}

fn signed_field(value: u32, offset: u32, width: u32) -> u32 {
    if width == 0 {
        return 0;
    }
    let up = (32 - width).saturating_sub(offset);
    (((value << up) as i32) >> (up + offset)) as u32
}

fn float(op: Op) -> Option<Function> {
    use Op::*;
    Some(match op {
        // A move keeps its bits; its sources may be negated in the wide encoding.
        v_mov_b32 => lanes!(|a, _, _| a),
        v_cvt_u32_f32 => lanes!(|a, _, _| f(a) as u32),
        v_cvt_i32_f32 => lanes!(|a, _, _| f(a) as i32 as u32),
        v_fract_f32 => lanes!(|a, _, _| (f(a) - f(a).floor()).min(f(0x3F7F_FFFF)).to_bits()),
        v_trunc_f32 => lanes!(|a, _, _| f(a).trunc().to_bits()),
        v_ceil_f32 => lanes!(|a, _, _| f(a).ceil().to_bits()),
        v_rndne_f32 => lanes!(|a, _, _| f(a).round_ties_even().to_bits()),
        v_floor_f32 => lanes!(|a, _, _| f(a).floor().to_bits()),
        v_exp_f32 => lanes!(|a, _, _| approximate(libm::exp2(f64::from(flushed(a))))),
        v_log_f32 => lanes!(|a, _, _| approximate(libm::log2(f64::from(flushed(a))))),
        v_rcp_f32 | v_rcp_iflag_f32 => lanes!(|a, _, _| approximate(1.0 / f64::from(flushed(a)))),
        v_rsq_f32 => lanes!(|a, _, _| approximate(1.0 / f64::from(flushed(a)).sqrt())),
        v_sqrt_f32 => lanes!(|a, _, _| approximate(f64::from(flushed(a)).sqrt())),
        v_frexp_exp_i32_f32 => lanes!(|a, _, _| frexp_exponent(f(a)) as u32),
        v_frexp_mant_f32 => lanes!(|a, _, _| frexp_mantissa(f(a)).to_bits()),
        v_add_f32 => lanes!(|a, b, _| (f(a) + f(b)).to_bits()),
        v_sub_f32 => lanes!(|a, b, _| (f(a) - f(b)).to_bits()),
        v_subrev_f32 => lanes!(|a, b, _| (f(b) - f(a)).to_bits()),
        v_mul_f32 => lanes!(|a, b, _| (f(a) * f(b)).to_bits()),
        v_min_f32 => lanes!(|a, b, _| minimum(f(a), f(b)).to_bits()),
        v_max_f32 => lanes!(|a, b, _| maximum(f(a), f(b)).to_bits()),
        v_ldexp_f32 => lanes!(|a, b, _| ldexp(f(a), b as i32).to_bits()),
        v_cvt_pk_bf16_f32 => lanes!(|a, b, _| bf16(a) | bf16(b) << 16),
        v_fma_f32 | v_fmac_f32 | v_fmaak_f32 | v_fmamk_f32 => lanes!(|a, b, c| f(a).mul_add(f(b), f(c)).to_bits()),
        v_min3_f32 => lanes!(|a, b, c| minimum(minimum(f(a), f(b)), f(c)).to_bits()),
        v_max3_f32 => lanes!(|a, b, c| maximum(maximum(f(a), f(b)), f(c)).to_bits()),
        v_maximum3_f32 => lanes!(|a, b, c| maximum_or_nan(maximum_or_nan(f(a), f(b)), f(c)).to_bits()),
        v_med3_f32 => lanes!(|a, b, c| median(f(a), f(b), f(c)).to_bits()),
        _ => return None,
    })
}

/// The predicate of a comparison, and how its sources are changed by modifiers.
pub(super) fn predicate(op: Op) -> Option<(Kind, Predicate)> {
    use Op::*;
    let integer: Option<Predicate> = match op {
        v_cmp_lt_u32 | v_cmp_lt_u64 => Some(|a, b| a < b),
        v_cmp_eq_u32 | v_cmp_eq_u64 | v_cmp_eq_i32 | v_cmp_eq_i64 => Some(|a, b| a == b),
        v_cmp_le_u32 | v_cmp_le_u64 => Some(|a, b| a <= b),
        v_cmp_gt_u32 | v_cmp_gt_u64 => Some(|a, b| a > b),
        v_cmp_ne_u32 | v_cmp_ne_u64 | v_cmp_ne_i32 | v_cmp_ne_i64 => Some(|a, b| a != b),
        v_cmp_ge_u32 | v_cmp_ge_u64 => Some(|a, b| a >= b),
        v_cmp_lt_i32 => Some(|a, b| (a as i32) < b as i32),
        v_cmp_le_i32 => Some(|a, b| a as i32 <= b as i32),
        v_cmp_gt_i32 => Some(|a, b| a as i32 > b as i32),
        v_cmp_ge_i32 => Some(|a, b| a as i32 >= b as i32),
        v_cmp_lt_i64 => Some(|a, b| (a as i64) < b as i64),
        v_cmp_le_i64 => Some(|a, b| a as i64 <= b as i64),
        v_cmp_gt_i64 => Some(|a, b| a as i64 > b as i64),
        v_cmp_ge_i64 => Some(|a, b| a as i64 >= b as i64),
        v_cmp_lt_u16 => Some(|a, b| (a as u16) < b as u16),
        v_cmp_eq_u16 | v_cmp_eq_i16 => Some(|a, b| a as u16 == b as u16),
        v_cmp_le_u16 => Some(|a, b| a as u16 <= b as u16),
        v_cmp_gt_u16 => Some(|a, b| a as u16 > b as u16),
        v_cmp_ne_u16 | v_cmp_ne_i16 => Some(|a, b| a as u16 != b as u16),
        v_cmp_ge_u16 => Some(|a, b| a as u16 >= b as u16),
        v_cmp_lt_i16 => Some(|a, b| (a as i16) < b as i16),
        v_cmp_le_i16 => Some(|a, b| a as i16 <= b as i16),
        v_cmp_gt_i16 => Some(|a, b| a as i16 > b as i16),
        v_cmp_ge_i16 => Some(|a, b| a as i16 >= b as i16),
        _ => None,
    };
    integer.map(|function| (Kind::Integer, function)).or_else(|| float_predicate(op).map(|function| (Kind::Float, function)))
}

fn float_predicate(op: Op) -> Option<Predicate> {
    use Op::*;
    const fn g(x: u64) -> f32 {
        f32::from_bits(x as u32)
    }
    // "n" stands for not: true where the comparison without it is false, NaNs included.
    Some(match op {
        v_cmp_lt_f32 => |a, b| g(a) < g(b),
        v_cmp_eq_f32 => |a, b| g(a) == g(b),
        v_cmp_le_f32 => |a, b| g(a) <= g(b),
        v_cmp_gt_f32 => |a, b| g(a) > g(b),
        v_cmp_lg_f32 => |a, b| g(a) < g(b) || g(a) > g(b),
        v_cmp_ge_f32 => |a, b| g(a) >= g(b),
        v_cmp_o_f32 => |a, b| !g(a).is_nan() && !g(b).is_nan(),
        v_cmp_u_f32 => |a, b| g(a).is_nan() || g(b).is_nan(),
        v_cmp_nge_f32 => |a, b| !matches!(g(a).partial_cmp(&g(b)), Some(std::cmp::Ordering::Greater | std::cmp::Ordering::Equal)),
        v_cmp_nlg_f32 => |a, b| g(a) == g(b) || g(a).is_nan() || g(b).is_nan(),
        v_cmp_ngt_f32 => |a, b| g(a).partial_cmp(&g(b)) != Some(std::cmp::Ordering::Greater),
        v_cmp_nle_f32 => |a, b| !matches!(g(a).partial_cmp(&g(b)), Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)),
        v_cmp_neq_f32 => |a, b| g(a) != g(b),
        v_cmp_nlt_f32 => |a, b| g(a).partial_cmp(&g(b)) != Some(std::cmp::Ordering::Less),
        v_cmp_class_f32 => |a, b| class(g(a), b as u32),
        _ => return None,
    })
}
