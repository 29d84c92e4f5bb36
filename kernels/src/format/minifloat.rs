//! A small sign-exponent-mantissa format: encoding with nearest-even or stochastic rounding, decoding.
//!
//! Magnitudes are handled as the bit pattern of an F32: dropping mantissa bits of that pattern is rounding on the
//! format's grid wherever the value is normal in the format; below, adding a power of two first makes the grid uniform.

/// Constants of one format with at most 8 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MiniFloat {
    /// Stored mantissa bits.
    pub mantissa_bits: u32,
    pub bias: u32,
    /// Code of the largest finite magnitude.
    pub largest_code: u8,
    pub largest: f32,
    /// Exponent of `largest` (emax in OCP MX v1.0).
    pub largest_exponent: u32,
    /// Position of the sign bit.
    pub sign_bit: u32,
    /// Code of infinity, where the format has one.
    pub infinity: Option<u8>,
    /// Code of a NaN, where the format has one.
    pub nan: Option<u8>,
}

impl MiniFloat {
    /// Mantissa bits of an F32 that the format drops.
    pub const fn dropped_bits(&self) -> u32 {
        23 - self.mantissa_bits
    }

    /// The smallest magnitude above 0, 2^(1 - bias - mantissa bits).
    pub const fn smallest(&self) -> f32 {
        f32::from_bits((128 - self.bias - self.mantissa_bits) << 23)
    }

    /// The smallest normal magnitude, 2^(1 - bias).
    pub const fn smallest_normal(&self) -> f32 {
        f32::from_bits((128 - self.bias) << 23)
    }

    /// 2^(24 - bias - mantissa_bits): adding it to a magnitude below the smallest normal leaves the code, rounded to
    /// nearest even, in the low bits of the sum.
    const fn subnormal_magic(&self) -> f32 {
        f32::from_bits((128 - self.bias + self.dropped_bits()) << 23)
    }

    /// What to subtract from a truncated F32 pattern to get a code.
    const fn rebias(&self) -> u32 {
        (127 - self.bias) << self.mantissa_bits
    }

    /// `value` to nearest, ties to even. Finite values beyond the largest saturate; infinity becomes infinity, or NaN where
    /// the format has none, or the largest where it has neither; NaN becomes NaN, or zero where the format has none.
    #[inline]
    pub fn encode(&self, value: f32) -> u8 {
        self.finish(value, |magnitude| {
            if magnitude < self.smallest_normal() {
                (magnitude + self.subnormal_magic()).to_bits() - self.subnormal_magic().to_bits()
            } else {
                let bits = magnitude.to_bits();
                let dropped = self.dropped_bits();
                let half = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
                ((bits + half) >> dropped) - self.rebias()
            }
        })
    }

    /// `value` rounded up or down on the format's grid: up when the low `dropped_bits` of `word` added to the dropped bits
    /// carry. Below the smallest normal the same happens to `magnitude + smallest_normal` (one F32 addition), where the
    /// grid is uniform. Saturation, infinity and NaN as in [`MiniFloat::encode`].
    #[inline]
    pub fn encode_stochastic(&self, value: f32, word: u32) -> u8 {
        let dropped = self.dropped_bits();
        let random = word & ((1 << dropped) - 1);
        self.finish(value, |magnitude| {
            let smallest = self.smallest_normal();
            if magnitude < smallest {
                (((magnitude + smallest).to_bits() + random) >> dropped) - (smallest.to_bits() >> dropped)
            } else {
                ((magnitude.to_bits() + random) >> dropped) - self.rebias()
            }
        })
    }

    /// Sign, saturation and the special values around a rounding of finite magnitudes.
    #[inline]
    fn finish(&self, value: f32, round: impl Fn(f32) -> u32) -> u8 {
        let sign = u8::from(value.is_sign_negative()) << self.sign_bit;
        let magnitude = value.abs();
        let code = if magnitude.is_nan() {
            self.nan.unwrap_or(0)
        } else if magnitude.is_infinite() {
            self.infinity.or(self.nan).unwrap_or(self.largest_code)
        } else {
            // Anything from twice the largest on saturates; keeping it out of the bit arithmetic avoids overflow there.
            let code = if magnitude >= 2.0 * self.largest { u32::from(self.largest_code) } else { round(magnitude) };
            code.min(u32::from(self.largest_code)) as u8
        };
        sign | code
    }

    /// The value of a code; bits above the sign bit are ignored.
    #[inline]
    pub fn decode(&self, code: u8) -> f32 {
        let negative = (code >> self.sign_bit) & 1 == 1;
        let magnitude_code = code & ((1 << self.sign_bit) - 1);
        let magnitude = if Some(magnitude_code) == self.infinity {
            f32::INFINITY
        } else if magnitude_code > self.largest_code {
            f32::NAN
        } else {
            let mantissa = u32::from(magnitude_code) & ((1 << self.mantissa_bits) - 1);
            let exponent = u32::from(magnitude_code) >> self.mantissa_bits;
            // Both branches are exact: a small integer times a power of two.
            let scale = |power: u32| f32::from_bits(power << 23);
            if exponent == 0 {
                mantissa as f32 * scale(128 - self.bias - self.mantissa_bits)
            } else {
                (mantissa + (1 << self.mantissa_bits)) as f32 * scale(exponent + 127 - self.bias - self.mantissa_bits)
            }
        };
        if negative { -magnitude } else { magnitude }
    }
}
