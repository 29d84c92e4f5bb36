//! E2M1, the 4-bit element of MXFP4 (OCP MX v1.0 section 5.3.3): +-{0, 0.5, 1, 1.5, 2, 3, 4, 6}; no infinity, no NaN.
//!
//! A code is a nibble: bit 3 sign, bits 2..1 exponent, bit 0 mantissa. Scales are elsewhere (`e8m0`, `crate::quantise`).

use super::MiniFloat;

pub const E2M1: MiniFloat =
    MiniFloat { mantissa_bits: 1, bias: 1, largest_code: 7, largest: 6.0, largest_exponent: 2, sign_bit: 3, infinity: None, nan: None };

/// Twice the value of each code: small integers, so that products and their sums over a block are exact in int32.
pub const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
