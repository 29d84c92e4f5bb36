//! The three operations of a division, of F32 and of F64: scaling away from the ends of the range, the last fused multiply-add, special values.
//!
//! The compiler puts Newton's iteration between them; together they divide with one rounding, which tests/operations.rs checks against
//! Rust's division. Sources, in the documents' order: v_div_scale value, denominator, numerator; v_div_fmas as a fused multiply-add;
//! v_div_fixup quotient, denominator, numerator. What follows says 2^64 for F32; F64 scales by 2^128.
//!
//! Decided here: AMD's documents let v_div_fmas multiply by 2^32 where v_div_scale used 2^64, which cannot give the quotient. It
//! multiplies by the power that undoes the scaling: 2^64 where the quotient is large (the denominator was scaled), 2^-64 where it is small. A denominator
//! whose inverse is subnormal is scaled down, not up. And a NaN quotient of
//! finite operands is an iteration that overflowed: v_div_fixup makes it infinite.

use super::LANES;
use super::arithmetic::Kind;
use super::double::{self, Doubles};
use super::rounding::odd_sum;
use super::source::source;
use super::wave::{Lanes, Scalar, View, Wave};
use crate::decode::{Instruction, Op, Operand, VCC};
use crate::fault::Stop;

/// What the two formats differ in.
trait Real: Copy + PartialEq + std::ops::Div<Output = Self> + std::ops::Neg<Output = Self> {
    /// The power of two by which values are scaled.
    const POWER: i32;
    /// Difference of exponents from which the quotient is scaled, and below whose negative it is zero.
    const FAR: i32;
    const GONE: i32;
    /// Largest biased exponent of a numerator that is scaled: the mantissa's bits.
    const MANTISSA: i32;
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    const INFINITY: Self;
    fn exponent(self) -> i32;
    fn subnormal(self) -> bool;
    fn nan(self) -> bool;
    fn infinite(self) -> bool;
    fn negative(self) -> bool;
    fn magnitude(self) -> Self;
    fn times_power(self, power: i32) -> Self;
}

macro_rules! real {
    ($type:ty, $power:literal, $far:literal, $gone:literal, $mantissa:literal, $exponent:literal, $scale:expr) => {
        impl Real for $type {
            const POWER: i32 = $power;
            const FAR: i32 = $far;
            const GONE: i32 = $gone;
            const MANTISSA: i32 = $mantissa;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = <$type>::NAN;
            const INFINITY: Self = <$type>::INFINITY;
            fn exponent(self) -> i32 {
                (self.to_bits() >> $mantissa) as i32 & $exponent
            }
            fn subnormal(self) -> bool {
                self.is_subnormal()
            }
            fn nan(self) -> bool {
                self.is_nan()
            }
            fn infinite(self) -> bool {
                self.is_infinite()
            }
            fn negative(self) -> bool {
                self.is_sign_negative()
            }
            fn magnitude(self) -> Self {
                self.abs()
            }
            fn times_power(self, power: i32) -> Self {
                $scale(self, power)
            }
        }
    };
}

real!(f32, 64, 96, 150, 23, 0xFF, libm::scalbnf);
real!(f64, 128, 768, 1075, 52, 0x7FF, libm::scalbn);

/// Times a power of two, rounded once.
fn scaled(value: f64, power: i32) -> f32 {
    (value * f64::from_bits(((1023 + power) as u64) << 52)) as f32
}

/// The scaled value, and whether the quotient has to be scaled back.
fn scale<T: Real>(value: T, denominator: T, numerator: T) -> (T, bool) {
    let (up, down) = (|| value.times_power(T::POWER), || value.times_power(-T::POWER));
    let inverse_is_subnormal = (T::ONE / denominator).subnormal();
    let quotient_is_subnormal = (numerator / denominator).subnormal();
    match () {
        _ if numerator == T::ZERO || denominator == T::ZERO => (T::NAN, false),
        _ if numerator.exponent() - denominator.exponent() >= T::FAR => (if value == denominator { up() } else { value }, true),
        _ if denominator.subnormal() => (up(), false),
        _ if inverse_is_subnormal && quotient_is_subnormal => (if value == denominator { down() } else { value }, true),
        _ if inverse_is_subnormal => (down(), false),
        _ if quotient_is_subnormal => (if value == numerator { up() } else { value }, true),
        _ if numerator.exponent() <= T::MANTISSA => (up(), false),
        _ => (value, false),
    }
}

fn fixed<T: Real>(quotient: T, denominator: T, numerator: T) -> T {
    let negative = denominator.negative() != numerator.negative();
    let signed = |magnitude: T| if negative { -magnitude } else { magnitude };
    match () {
        _ if numerator.nan() || denominator.nan() => T::NAN,
        _ if denominator == T::ZERO && numerator == T::ZERO => T::NAN,
        _ if denominator.infinite() && numerator.infinite() => T::NAN,
        _ if denominator == T::ZERO || numerator.infinite() => signed(T::INFINITY),
        _ if denominator.infinite() || numerator == T::ZERO => signed(T::ZERO),
        _ if numerator.exponent() - denominator.exponent() < -T::GONE => signed(T::ZERO),
        _ if quotient.nan() => signed(T::INFINITY),
        _ => signed(quotient.magnitude()),
    }
}

/// v_div_scale_f32, v_div_fmas_f32, v_div_fixup_f32.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let mut rooms = [[0; LANES]; 3];
    let mut sources = [View { values: &[0; LANES], defined: !0 }; 3];
    for (index, (view, room)) in sources.iter_mut().zip(&mut rooms).enumerate() {
        (*view, _) = source(wave, i, index, Kind::Float, room)?;
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
        let [a, b, c] = sources.map(|view| f32::from_bits(view.values[lane]));
        let value = match i.op {
            Op::v_div_scale_f32 => {
                let (value, flag) = scale(a, b, c);
                flags |= u64::from(flag) << lane;
                value
            }
            Op::v_div_fmas_f32 if vcc.value >> lane & 1 == 1 => {
                let power = if c.exponent() > 127 { 64 } else { -64 };
                scaled(odd_sum(f64::from(a) * f64::from(b), f64::from(c)), power)
            }
            Op::v_div_fmas_f32 => a.mul_add(b, c),
            _ => fixed(a, b, c),
        };
        result.values[lane] = value.to_bits();
    }
    wave.write_lanes(i.dst, 0, exec, &result)?;
    if i.op == Op::v_div_scale_f32 {
        wave.write_mask(i.carry, flags, defined)?;
    }
    Ok(())
}

/// The same of F64. A quotient that is scaled back into the subnormal range would be rounded twice here, and is refused.
pub(super) fn execute_f64(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    const MIDDLE: i32 = 1023;
    double::only_signs(i)?;
    let sources = [double::read(wave, i, 0)?, double::read(wave, i, 1)?, double::read(wave, i, 2)?];
    let vcc = if i.op == Op::v_div_fmas_f64 { wave.scalar(Operand::Scalar(VCC), 2)? } else { Scalar::known(0) };
    let exec = wave.exec();
    let defined = sources.iter().fold(vcc.defined, |defined, doubles| defined & doubles.defined);
    let mut result = Doubles { values: [0.0; LANES], defined };
    let mut flags = 0;
    for lane in 0..LANES {
        let [a, b, c] = sources.each_ref().map(|doubles| doubles.values[lane]);
        result.values[lane] = match i.op {
            Op::v_div_scale_f64 => {
                let (value, flag) = scale(a, b, c);
                flags |= u64::from(flag) << lane;
                value
            }
            Op::v_div_fmas_f64 if (vcc.value & exec) >> lane & 1 == 1 => {
                let value = a.mul_add(b, c).times_power(if c.exponent() > MIDDLE { f64::POWER } else { -f64::POWER });
                if value.is_subnormal() {
                    return Err(Stop::unsupported("a subnormal quotient of F64").at(lane));
                }
                value
            }
            Op::v_div_fmas_f64 => a.mul_add(b, c),
            _ => fixed(a, b, c),
        };
    }
    double::write(wave, i.dst, &result)?;
    if i.op == Op::v_div_scale_f64 {
        wave.write_mask(i.carry, flags, defined)?;
    }
    Ok(())
}
