//! BF16: the upper 16 bits of an IEEE binary32.

/// To nearest, ties to even; overflow gives infinity; a NaN stays a (quiet) NaN.
#[inline]
pub fn encode(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

/// Up or down: up when the low 16 bits of `word` added to the dropped bits carry.
#[inline]
pub fn encode_stochastic(value: f32, word: u32) -> u16 {
    let bits = value.to_bits();
    if !value.is_finite() {
        return encode(value);
    }
    ((bits + (word & 0xFFFF)) >> 16) as u16
}

/// The value of a code.
#[inline]
pub fn decode(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// `value` rounded to BF16, as an F32.
#[inline]
pub fn round(value: f32) -> f32 {
    decode(encode(value))
}

/// [`round`] of each, in place.
pub fn round_all(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = round(*value));
}
