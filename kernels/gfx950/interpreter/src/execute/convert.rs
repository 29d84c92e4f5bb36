//! Conversion of F32 pairs to E2M1 with a power-of-two scale.

use super::LANES;
use super::wave::Wave;
use crate::decode::Instruction;
use crate::fault::Stop;

/// Nearest of the eight magnitudes, ties to the even code; beyond the largest it saturates.
///
/// Decided here because the documentation is silent: NaN gives the largest magnitude. Our kernels never store such a code.
fn encode_fp4(value: f64) -> u32 {
    const MIDPOINTS: [f64; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let magnitude = value.abs();
    let mut code = 0;
    for (lower, &midpoint) in MIDPOINTS.iter().enumerate() {
        // A tie goes up only to an even code, that is from an odd one.
        if magnitude > midpoint || (magnitude == midpoint && lower % 2 == 1) || magnitude.is_nan() {
            code = lower as u32 + 1;
        }
    }
    code | u32::from(value.is_sign_negative()) << 3
}

/// v_cvt_scalef32_pk_fp4_f32: two F32 divided by a scale, rounded to E2M1 and written to one byte of the destination, low nibble first.
///
/// The scale is the exponent field of source 2 alone, 2^(field - 127), and a field of zero is 2^-127: its mantissa and sign are not
/// looked at. (The kernels pass 2^-127 as that subnormal, so that an arithmetic reading of the scale gives the same.) The division is
/// exact in F64 here; on the hardware x / scale is not rounded before it is converted either.
pub(super) fn pack_fp4(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let m = &i.modifiers;
    if m.neg != 0 || m.abs != 0 || m.clamp || m.omod != 0 || m.op_sel & 3 != 0 {
        return Err(Stop::unsupported("a modifier of a conversion to FP4"));
    }
    let byte = u32::from(m.op_sel >> 2);
    let [first, second, scale] = [wave.lanes(i.src[0], 0)?, wave.lanes(i.src[1], 0)?, wave.lanes(i.src[2], 0)?];
    let mut result = wave.lanes(i.dst, 0)?;
    for lane in 0..LANES {
        let field = u64::from(scale.values[lane] >> 23 & 0xFF);
        let scale = f64::from_bits((field + 1023 - 127) << 52);
        let code = |bits: u32| encode_fp4(f64::from(f32::from_bits(bits)) / scale);
        let pair = code(first.values[lane]) | code(second.values[lane]) << 4;
        result.values[lane] = (result.values[lane] & !(0xFF << (8 * byte))) | pair << (8 * byte);
    }
    result.defined &= first.defined & second.defined & scale.defined;
    wave.write_lanes(i.dst, 0, wave.exec(), &result)
}

#[cfg(test)]
mod tests {
    use super::encode_fp4;

    #[test]
    fn ties_go_to_even_codes_and_large_values_saturate() {
        let cases = [
            (0.0, 0),
            (0.25, 0),
            (0.250001, 1),
            (0.75, 2),
            (1.25, 2),
            (1.75, 4),
            (2.5, 4),
            (2.500001, 5),
            (3.5, 6),
            (5.0, 6),
            (5.000001, 7),
            (6.0, 7),
            (1e30, 7),
        ];
        for (value, code) in cases {
            assert_eq!((encode_fp4(value), encode_fp4(-value)), (code, code | 8), "{value}");
        }
    }
}
