//! Vector operations with carries, on 64 bits, and on pairs of F32.

use super::LANES;
use super::arithmetic::Kind;
use super::source::source;
use super::wave::{Lanes, Scalar, View, Wave};
use crate::decode::{Instruction, Op, Operand};
use crate::fault::Stop;

/// 64-bit values of all lanes.
struct Wide {
    values: [u64; LANES],
    defined: u64,
}

fn read(wave: &Wave, operand: Operand, width: usize) -> Result<Wide, Stop> {
    let low = wave.lanes(operand, 0)?;
    let high = if width == 2 { wave.lanes(operand, 1)? } else { Lanes::splat(0) };
    let mut wide = Wide { values: [0; LANES], defined: low.defined & high.defined };
    for lane in 0..LANES {
        wide.values[lane] = u64::from(low.values[lane]) | u64::from(high.values[lane]) << 32;
    }
    Ok(wide)
}

fn write(wave: &mut Wave, operand: Operand, wide: &Wide) -> Result<(), Stop> {
    write_halves(wave, operand, wide, [wide.defined; 2])
}

/// The same with a low half that may be defined where the high one is not.
fn write_halves(wave: &mut Wave, operand: Operand, wide: &Wide, defined: [u64; 2]) -> Result<(), Stop> {
    let exec = wave.exec();
    for (half, defined) in defined.into_iter().enumerate() {
        let mut lanes = Lanes { values: [0; LANES], defined };
        for lane in 0..LANES {
            lanes.values[lane] = (wide.values[lane] >> (32 * half)) as u32;
        }
        wave.write_lanes(operand, half, exec, &lanes)?;
    }
    Ok(())
}

/// Additions and subtractions that give, and take, a carry.
pub(super) fn carry(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    let mut rooms = [[0; LANES]; 2];
    let [room_of_a, room_of_b] = &mut rooms;
    let ((a, _), (b, _)) = (source(wave, i, 0, Kind::Integer, room_of_a)?, source(wave, i, 1, Kind::Integer, room_of_b)?);
    let carry = if i.src[2] == Operand::None { Scalar::known(0) } else { wave.scalar(i.src[2], 2)? };
    let mut result = Lanes { values: [0; LANES], defined: a.defined & b.defined & carry.defined };
    let mut out = 0;
    for lane in 0..LANES {
        let (a, b, c) = (i64::from(a.values[lane]), i64::from(b.values[lane]), (carry.value >> lane & 1) as i64);
        let wide = match i.op {
            v_add_co_u32 | v_addc_co_u32 => a + b + c,
            v_sub_co_u32 | v_subb_co_u32 => a - b - c,
            _ => b - a - c,
        };
        result.values[lane] = wide as u32;
        out |= u64::from(!(0..=i64::from(u32::MAX)).contains(&wide)) << lane;
    }
    wave.write_lanes(i.dst, 0, wave.exec(), &result)?;
    wave.write_mask(i.carry, out, result.defined)
}

/// Everything else that is not one function of 32-bit lanes.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    match i.op {
        v_pk_add_f32 | v_pk_mul_f32 | v_pk_fma_f32 | v_pk_mov_b32 => return packed(wave, i),
        v_mad_u64_u32 | v_mad_i64_i32 => return multiply_add(wave, i),
        v_mov_b64 | v_lshl_add_u64 | v_lshlrev_b64 | v_lshrrev_b64 | v_ashrrev_i64 => {}
        _ => return Err(Stop::unsupported(i.op.name())),
    }
    let m = &i.modifiers;
    if m.neg != 0 || m.abs != 0 || m.clamp || m.omod != 0 || m.sdwa.is_some() || m.dpp.is_some() {
        return Err(Stop::unsupported("a modifier of a 64-bit operation"));
    }
    let mut sources = Vec::new();
    for index in 0..3 {
        if i.src[index] != Operand::None {
            sources.push(read(wave, i.src[index], i.width(index + 1))?);
        }
    }
    let mut result = Wide { values: [0; LANES], defined: sources.iter().fold(!0, |defined, source| defined & source.defined) };
    let at = |index: usize, lane: usize| sources.get(index).map_or(0, |source| source.values[lane]);
    for (lane, value) in result.values.iter_mut().enumerate() {
        let (a, b, c) = (at(0, lane), at(1, lane), at(2, lane));
        *value = match i.op {
            v_mov_b64 => a,
            // The shift takes three bits: 0 to 4 are defined.
            v_lshl_add_u64 => (a << (b & 7)).wrapping_add(c),
            v_lshlrev_b64 => b << (a & 63),
            v_lshrrev_b64 => b >> (a & 63),
            _ => ((b as i64) >> (a & 63)) as u64,
        };
    }
    write(wave, i.dst, &result)
}

fn multiply_add(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let (a, b, c) = (read(wave, i.src[0], 1)?, read(wave, i.src[1], 1)?, read(wave, i.src[2], 2)?);
    let mut result = Wide { values: [0; LANES], defined: a.defined & b.defined & c.defined };
    let mut out = 0;
    for lane in 0..LANES {
        let (x, y, z) = (a.values[lane], b.values[lane], c.values[lane]);
        let (value, overflow) = if i.op == Op::v_mad_u64_u32 {
            (x * y).overflowing_add(z)
        } else {
            let (value, overflow) = (i64::from(x as i32) * i64::from(y as i32)).overflowing_add(z as i64);
            (value as u64, overflow)
        };
        result.values[lane] = value;
        out |= u64::from(overflow) << lane;
    }
    // The high half of the addend, which the compiler leaves undefined where it wants 32 bits, does not reach the low half of the sum.
    let low = a.defined & b.defined & wave.lanes(i.src[2], 0)?.defined;
    write_halves(wave, i.dst, &result, [low, result.defined])?;
    wave.write_mask(i.carry, out, result.defined)
}

/// One half of a source of a packed operation, its sign modifier applied.
fn half<'a>(wave: &'a Wave, i: &Instruction, index: usize, high: bool, room: &'a mut [u32; LANES]) -> Result<View<'a>, Stop> {
    let (select, neg) = if high { (i.modifiers.op_sel_hi, i.modifiers.neg_hi) } else { (i.modifiers.op_sel, i.modifiers.neg) };
    let offset = usize::from(select >> index & 1);
    if matches!(i.src[index], Operand::Inline(_)) && offset == 1 {
        return Err(Stop::unsupported("the high half of a constant in a packed operation"));
    }
    if neg >> index & 1 == 0 {
        return wave.view(i.src[index], offset, room);
    }
    let lanes = wave.lanes(i.src[index], offset)?;
    *room = lanes.values.map(|value| value ^ 0x8000_0000);
    Ok(View { values: room, defined: lanes.defined })
}

fn packed(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    if i.modifiers.clamp {
        return Err(Stop::unsupported("a clamped packed operation"));
    }
    let mut halves = [Lanes::splat(0); 2];
    if i.op == v_pk_mov_b32 {
        // Each half comes from its own source: op_sel bit 0 picks the register of source 0, bit 1 that of source 1.
        for (index, lanes) in halves.iter_mut().enumerate() {
            *lanes = wave.lanes(i.src[index], usize::from(i.modifiers.op_sel >> index & 1))?;
        }
    } else {
        for (high, lanes) in [false, true].into_iter().zip(&mut halves) {
            let mut rooms = [[0; LANES]; 3];
            let [room_of_a, room_of_b, room_of_c] = &mut rooms;
            let (a, b) = (half(wave, i, 0, high, room_of_a)?, half(wave, i, 1, high, room_of_b)?);
            let c = if i.op == v_pk_fma_f32 { half(wave, i, 2, high, room_of_c)? } else { View { values: &[0; LANES], defined: !0 } };
            lanes.defined = a.defined & b.defined & c.defined;
            for lane in 0..LANES {
                let [a, b, c] = [a, b, c].map(|view| f32::from_bits(view.values[lane]));
                let value = match i.op {
                    v_pk_add_f32 => a + b,
                    v_pk_mul_f32 => a * b,
                    _ => a.mul_add(b, c),
                };
                lanes.values[lane] = value.to_bits();
            }
        }
    }
    let exec = wave.exec();
    wave.write_lanes(i.dst, 0, exec, &halves[0])?;
    wave.write_lanes(i.dst, 1, exec, &halves[1])
}
