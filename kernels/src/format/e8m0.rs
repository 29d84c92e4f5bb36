//! E8M0, the shared scale of an MX block (OCP MX v1.0 section 5.4.1): 2^(byte - 127), 255 is NaN; and the rules that choose it.
//!
//! The exponent is taken from the bits of the largest magnitude, never from a logarithm, which rounds up just below a power of two.

use contract::recipe::ScaleRule;

use super::MiniFloat;

/// The scale of a block that holds a NaN or an infinity.
pub const NAN: u8 = 255;

/// 2^(byte - 127); NaN for 255. Byte 0 is 2^-127, a subnormal F32.
#[inline]
pub fn decode(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << 22),
        NAN => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// 2^(127 - byte), by which elements are multiplied before they are rounded; exact for every byte but 255, which gives NaN.
#[inline]
pub fn reciprocal(byte: u8) -> f32 {
    match byte {
        NAN => f32::NAN,
        254 => f32::from_bits(1 << 22),
        _ => f32::from_bits((254 - u32::from(byte)) << 23),
    }
}

/// The scale byte of a block whose largest magnitude has the F32 pattern `amax_bits` (sign bit clear).
///
/// A zero block gets byte 0 under every rule (AMD's public kernel writes 127: the same value). NaN or infinity gives [`NAN`].
/// `Current`, `Delayed` and `None` are no rules for a shared exponent; they are treated as `Floor` and refused earlier, by
/// `OperandSpec::validate`.
#[inline]
pub fn scale_byte(amax_bits: u32, rule: ScaleRule, format: &MiniFloat) -> u8 {
    if amax_bits >= f32::INFINITY.to_bits() {
        return NAN;
    }
    let largest_mantissa = format.largest.to_bits() & 0x007F_FFFF;
    let exponent = match rule {
        // Half of the last mantissa bit that the format keeps.
        ScaleRule::Even => (amax_bits + (1 << (format.dropped_bits() - 1))) >> 23,
        ScaleRule::Ceil => (amax_bits >> 23) + u32::from((amax_bits & 0x007F_FFFF) > largest_mantissa),
        _ => amax_bits >> 23,
    };
    exponent.saturating_sub(format.largest_exponent).min(254) as u8
}
