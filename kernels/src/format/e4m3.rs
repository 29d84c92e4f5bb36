//! E4M3 (OCP FP8, the variant without infinity): largest 448, NaN at 0x7F and 0xFF.

use super::MiniFloat;

pub const E4M3: MiniFloat = MiniFloat {
    mantissa_bits: 3,
    bias: 7,
    largest_code: 0x7E,
    largest: 448.0,
    largest_exponent: 8,
    sign_bit: 7,
    infinity: None,
    nan: Some(0x7F),
};
