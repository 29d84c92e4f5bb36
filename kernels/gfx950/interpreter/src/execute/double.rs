//! F64 operations, each lane's two registers as one number; and the conversions to and from F32.
//!
//! Sums, products and fused multiply-adds are rounded once to nearest even, denormals kept.
//!
//! Decided here: `v_rcp_f64` and `v_rsq_f64` are approximations of which the documents promise little. Here they keep 26 bits, so that the
//! iterations which the compiler puts around them have to do their work; a kernel that used them alone would be wrong by more than it
//! could bear. Division and square root as the compiler expands them come out rounded once all the same (tests/operations.rs).

use super::LANES;
use super::arithmetic::{Kind, class_of};
use super::source::source;
use super::wave::{Lanes, Wave};
use crate::decode::{Instruction, Op, Operand};
use crate::fault::Stop;

/// A source or result in all lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubles {
    pub(super) values: [f64; LANES],
    pub(super) defined: u64,
}

/// Whether the operation reads or writes F64.
pub(super) fn handles(op: Op) -> bool {
    op.name().contains("f64")
}

/// A source with its magnitude and sign.
pub(super) fn read(wave: &Wave, i: &Instruction, index: usize) -> Result<Doubles, Stop> {
    const CONSTANTS: [f64; 9] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, std::f64::consts::FRAC_1_PI / 2.0];
    let splat = |value: f64| Doubles { values: [value; LANES], defined: !0 };
    let mut doubles = match i.src[index] {
        Operand::Inline(code @ 240..=248) => splat(CONSTANTS[usize::from(code - 240)]),
        // A literal is the upper half.
        Operand::Literal(value) => splat(f64::from_bits(u64::from(value) << 32)),
        operand => both_halves(wave, operand)?,
    };
    let (abs, neg) = (i.modifiers.abs >> index & 1 == 1, i.modifiers.neg >> index & 1 == 1);
    for value in &mut doubles.values {
        *value = if abs { value.abs() } else { *value };
        *value = if neg { -*value } else { *value };
    }
    Ok(doubles)
}

fn both_halves(wave: &Wave, operand: Operand) -> Result<Doubles, Stop> {
    let (low, high) = (wave.lanes(operand, 0)?, wave.lanes(operand, 1)?);
    let value = |lane: usize| f64::from_bits(u64::from(low.values[lane]) | u64::from(high.values[lane]) << 32);
    Ok(Doubles { values: std::array::from_fn(value), defined: low.defined & high.defined })
}

pub(super) fn write(wave: &mut Wave, operand: Operand, doubles: &Doubles) -> Result<(), Stop> {
    let exec = wave.exec();
    for half in 0..2 {
        let values = std::array::from_fn(|lane| (doubles.values[lane].to_bits() >> (32 * half)) as u32);
        wave.write_lanes(operand, half, exec, &Lanes { values, defined: doubles.defined })?;
    }
    Ok(())
}

/// The value with 26 bits, to nearest.
fn coarse(value: f64) -> f64 {
    const DROPPED: u32 = 53 - 26;
    if value.is_finite() { f64::from_bits((value.to_bits() + (1 << (DROPPED - 1))) & !((1 << DROPPED) - 1)) } else { value }
}

fn minimum(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f64::from_bits(a.to_bits() | b.to_bits()),
        _ => a.min(b),
    }
}

fn predicate(op: Op) -> Option<fn(f64, f64) -> bool> {
    use std::cmp::Ordering::Less;
    Some(match op {
        Op::v_cmp_lt_f64 => |a, b| a < b,
        Op::v_cmp_gt_f64 => |a, b| a > b,
        Op::v_cmp_neq_f64 => |a, b| a != b,
        // Neither less nor greater.
        Op::v_cmp_nlg_f64 => |a, b| a == b || a.is_nan() || b.is_nan(),
        // Not less: true for NaNs.
        Op::v_cmp_nlt_f64 => |a, b| a.partial_cmp(&b) != Some(Less),
        _ => return None,
    })
}

/// F64 operations take magnitude and sign of their sources, no other modifier.
pub(super) fn only_signs(i: &Instruction) -> Result<(), Stop> {
    let m = &i.modifiers;
    if m.clamp || m.omod != 0 || m.op_sel != 0 || m.sdwa.is_some() || m.dpp.is_some() {
        return Err(Stop::unsupported("a modifier of an F64 operation"));
    }
    Ok(())
}

/// Every operation that `handles` names, divisions (`division`) excepted.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    only_signs(i)?;
    match i.op {
        v_cvt_f64_f32 => {
            let mut room = [0; LANES];
            let (from, _) = source(wave, i, 0, Kind::Float, &mut room)?;
            let values = std::array::from_fn(|lane| f64::from(f32::from_bits(from.values[lane])));
            let doubles = Doubles { values, defined: from.defined };
            write(wave, i.dst, &doubles)
        }
        v_cvt_f32_f64 => {
            let from = read(wave, i, 0)?;
            let values = std::array::from_fn(|lane| (from.values[lane] as f32).to_bits());
            wave.write_lanes(i.dst, 0, wave.exec(), &Lanes { values, defined: from.defined })
        }
        v_cmp_class_f64 => {
            let (value, mask) = (read(wave, i, 0)?, wave.lanes(i.src[1], 0)?);
            let bit = |lane: usize| {
                class_of(value.values[lane].classify(), value.values[lane].to_bits() >> 63 == 1, is_quiet(value.values[lane]))
            };
            wave.write_mask(i.dst, mask_of(|lane| mask.values[lane] >> bit(lane) & 1 == 1), value.defined & mask.defined)
        }
        _ => match predicate(i.op) {
            Some(predicate) => {
                let (a, b) = (read(wave, i, 0)?, read(wave, i, 1)?);
                wave.write_mask(i.dst, mask_of(|lane| predicate(a.values[lane], b.values[lane])), a.defined & b.defined)
            }
            None => arithmetic(wave, i),
        },
    }
}

fn mask_of(bit: impl Fn(usize) -> bool) -> u64 {
    (0..LANES).fold(0, |mask, lane| mask | u64::from(bit(lane)) << lane)
}

fn is_quiet(value: f64) -> bool {
    value.to_bits() >> 51 & 1 == 1
}

fn arithmetic(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    let a = read(wave, i, 0)?;
    let zero = Doubles { values: [0.0; LANES], defined: !0 };
    let (mut b, mut c, mut power) = (zero, zero, Lanes::splat(0));
    match i.op {
        v_ldexp_f64 => power = wave.lanes(i.src[1], 0)?,
        v_rcp_f64 | v_rsq_f64 => {}
        _ => b = read(wave, i, 1)?,
    }
    match i.op {
        v_fma_f64 => c = read(wave, i, 2)?,
        v_fmac_f64 => c = both_halves(wave, i.dst)?,
        _ => {}
    }
    let mut result = Doubles { values: [0.0; LANES], defined: a.defined & b.defined & c.defined & power.defined };
    for (lane, value) in result.values.iter_mut().enumerate() {
        let (a, b, c) = (a.values[lane], b.values[lane], c.values[lane]);
        *value = match i.op {
            v_add_f64 => a + b,
            v_mul_f64 => a * b,
            v_fma_f64 | v_fmac_f64 => a.mul_add(b, c),
            v_min_f64 => minimum(a, b),
            v_max_f64 => -minimum(-a, -b),
            v_ldexp_f64 => libm::scalbn(a, power.values[lane] as i32),
            v_rcp_f64 => coarse(1.0 / a),
            v_rsq_f64 => coarse(1.0 / a.sqrt()),
            _ => return Err(Stop::unsupported(i.op.name())),
        };
    }
    write(wave, i.dst, &result)
}
