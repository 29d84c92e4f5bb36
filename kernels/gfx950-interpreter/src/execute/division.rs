//! The three operations of an F32 division: scaling away from the ends of the range, the last fused multiply-add, special values.
//!
//! The compiler puts Newton's iteration between them; together they divide with one rounding, which tests/operations.rs checks against
//! Rust's division. Sources, in the documents' order: v_div_scale value, denominator, numerator; v_div_fmas as a fused multiply-add;
//! v_div_fixup quotient, denominator, numerator.
//!
//! Decided here: AMD's documents let v_div_fmas multiply by 2^32 where v_div_scale used 2^64, which cannot give the quotient. It
//! multiplies by the power that undoes the scaling: 2^64 where the quotient is large (the denominator was scaled), 2^-64 where it is small. A denominator
//! whose inverse is subnormal is scaled down, not up. And a NaN quotient of
//! finite operands is an iteration that overflowed: v_div_fixup makes it infinite.

use super::LANES;
use super::arithmetic::Kind;
use super::matrix::odd_sum;
use super::vector::source;
use super::wave::{Lanes, Scalar, Wave};
use crate::decode::{Instruction, Op, Operand, VCC};
use crate::fault::Stop;

fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xFF) as i32
}

/// Times a power of two, rounded once.
fn scaled(value: f64, power: i32) -> f32 {
    (value * f64::from_bits(((1023 + power) as u64) << 52)) as f32
}

/// The scaled value, and whether the quotient has to be scaled back.
fn scale(value: f32, denominator: f32, numerator: f32) -> (f32, bool) {
    let up = || scaled(f64::from(value), 64);
    let down = || scaled(f64::from(value), -64);
    let inverse_is_subnormal = (1.0 / denominator).is_subnormal();
    let quotient_is_subnormal = (numerator / denominator).is_subnormal();
    match () {
        _ if numerator == 0.0 || denominator == 0.0 => (f32::NAN, false),
        _ if exponent(numerator) - exponent(denominator) >= 96 => (if value == denominator { up() } else { value }, true),
        _ if denominator.is_subnormal() => (up(), false),
        _ if inverse_is_subnormal && quotient_is_subnormal => (if value == denominator { down() } else { value }, true),
        _ if inverse_is_subnormal => (down(), false),
        _ if quotient_is_subnormal => (if value == numerator { up() } else { value }, true),
        _ if exponent(numerator) <= 23 => (up(), false),
        _ => (value, false),
    }
}

fn fixed(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    let negative = denominator.is_sign_negative() != numerator.is_sign_negative();
    let signed = |magnitude: f32| if negative { -magnitude } else { magnitude };
    match () {
        _ if numerator.is_nan() || denominator.is_nan() => f32::NAN,
        _ if denominator == 0.0 && numerator == 0.0 => f32::NAN,
        _ if denominator.is_infinite() && numerator.is_infinite() => f32::NAN,
        _ if denominator == 0.0 || numerator.is_infinite() => signed(f32::INFINITY),
        _ if denominator.is_infinite() || numerator == 0.0 => signed(0.0),
        _ if exponent(numerator) - exponent(denominator) < -150 => signed(0.0),
        _ if quotient.is_nan() => signed(f32::INFINITY),
        _ => signed(quotient.abs()),
    }
}

/// v_div_scale_f32, v_div_fmas_f32, v_div_fixup_f32.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let mut sources = [Lanes::splat(0); 3];
    for (index, lanes) in sources.iter_mut().enumerate() {
        *lanes = source(wave, i, index, Kind::Float)?.0;
    }
    if i.modifiers.clamp || i.modifiers.omod != 0 || i.modifiers.op_sel != 0 {
        return Err(Stop::unsupported("a modifier of a division's result"));
    }
    let vcc = if i.op == Op::v_div_fmas_f32 { wave.scalar(Operand::Scalar(VCC), 2)? } else { Scalar::known(0) };
    let exec = wave.exec();
    let defined = sources.iter().fold(vcc.defined, |defined, lanes| defined & lanes.defined);
    let mut result = Lanes { values: [0; LANES], defined };
    let mut flags = 0;
    for lane in 0..LANES {
        let [a, b, c] = sources.map(|lanes| f32::from_bits(lanes.values[lane]));
        let value = match i.op {
            Op::v_div_scale_f32 => {
                let (value, flag) = scale(a, b, c);
                flags |= u64::from(flag) << lane;
                value
            }
            Op::v_div_fmas_f32 if vcc.value >> lane & 1 == 1 => {
                let power = if exponent(c) > 127 { 64 } else { -64 };
                scaled(odd_sum(f64::from(a) * f64::from(b), f64::from(c)), power)
            }
            Op::v_div_fmas_f32 => a.mul_add(b, c),
            _ => fixed(a, b, c),
        };
        result.values[lane] = value.to_bits();
    }
    wave.write_lanes(i.dst, 0, exec, &result)?;
    if i.op == Op::v_div_scale_f32 {
        wave.write_scalar(i.carry, 2, Scalar { value: flags & exec, defined: defined | !exec })?;
    }
    Ok(())
}
