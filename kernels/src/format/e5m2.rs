//! E5M2 (OCP FP8): the upper byte of an IEEE binary16; largest finite 57344, infinity 0x7C, NaN 0x7D to 0x7F.

use super::MiniFloat;

/// The format's constants. [`MiniFloat::encode`] saturates finite values: only infinity becomes infinity.
pub const E5M2: MiniFloat = MiniFloat {
    mantissa_bits: 2,
    bias: 15,
    largest_code: 0x7B,
    largest: 57344.0,
    largest_exponent: 15,
    sign_bit: 7,
    infinity: Some(0x7C),
    nan: Some(0x7E),
};
