//! Vector operations: one function for each lane, the destination; and which file has the others.

use super::arithmetic::{self, Kind};
use super::source::{inserted, source};
use super::wave::{Lanes, Scalar, View, Wave};
use super::{LANES, convert, division, double, wide};
use crate::decode::{Instruction, Op, Operand};
use crate::fault::Stop;

/// VOP1, VOP2, VOPC, VOP3 and what is left of VOP3P.
pub(super) fn execute(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    match i.op {
        v_nop => return Ok(()),
        v_readfirstlane_b32 | v_readlane_b32 => return read_lane(wave, i),
        v_permlane32_swap_b32 => return swap_halves(wave, i),
        v_cndmask_b32 => return select(wave, i),
        v_mbcnt_lo_u32_b32 | v_mbcnt_hi_u32_b32 => return count_below(wave, i),
        v_bitop3_b32 | v_bitop3_b16 => return truth_table(wave, i),
        v_div_scale_f32 | v_div_fmas_f32 | v_div_fixup_f32 => return division::execute(wave, i),
        v_div_scale_f64 | v_div_fmas_f64 | v_div_fixup_f64 => return division::execute_f64(wave, i),
        v_cvt_scalef32_pk_fp4_f32 => return convert::pack_fp4(wave, i),
        v_add_co_u32 | v_sub_co_u32 | v_subrev_co_u32 | v_subbrev_co_u32 | v_addc_co_u32 | v_subb_co_u32 => return wide::carry(wave, i),
        _ => {}
    }
    if let Some((kind, predicate)) = arithmetic::predicate(i.op) {
        return compare(wave, i, kind, predicate);
    }
    if let Some((kind, function)) = arithmetic::function(i.op) {
        return lanewise(wave, i, kind, function);
    }
    if double::handles(i.op) {
        return double::execute(wave, i);
    }
    wide::execute(wave, i)
}

/// Multiplication and clamping of a float result.
fn finished(value: u32, i: &Instruction) -> u32 {
    let factor = [1.0, 2.0, 4.0, 0.5][usize::from(i.modifiers.omod & 3)];
    let scaled = if i.modifiers.omod == 0 { value } else { (f32::from_bits(value) * factor).to_bits() };
    if i.modifiers.clamp {
        let value = f32::from_bits(scaled);
        return if value > 0.0 { value.min(1.0).to_bits() } else { 0 };
    }
    scaled
}

fn lanewise(wave: &mut Wave, i: &Instruction, kind: Kind, function: arithmetic::Function) -> Result<(), Stop> {
    if i.modifiers.op_sel != 0 {
        return Err(Stop::unsupported("operand selection here"));
    }
    let function = match kind {
        Kind::Integer if i.modifiers.omod != 0 => return Err(Stop::unsupported("an output multiplier of an integer")),
        Kind::Integer if i.modifiers.clamp => arithmetic::saturating(i.op).ok_or_else(|| Stop::unsupported("clamping here"))?,
        _ => function,
    };
    let mut rooms = [[0; LANES]; 3];
    let mut sources = [View { values: &[0; LANES], defined: !0 }; 3];
    let mut enabled = wave.exec();
    for (index, (view, room)) in sources.iter_mut().zip(&mut rooms).enumerate() {
        if i.op == Op::v_fmac_f32 && index == 2 {
            *view = wave.view(i.dst, 0, room)?;
        } else if i.src[index] != Operand::None {
            let may_write;
            (*view, may_write) = source(wave, i, index, kind, room)?;
            enabled &= may_write;
        }
    }
    let mut result = Lanes { values: [0; LANES], defined: sources.iter().fold(!0, |defined, view| defined & view.defined) };
    function(sources.map(|view| view.values), &mut result.values);
    if kind == Kind::Float && (i.modifiers.omod != 0 || i.modifiers.clamp) {
        result.values.iter_mut().for_each(|value| *value = finished(*value, i));
    }
    if let Some(sdwa) = i.modifiers.sdwa.filter(|sdwa| sdwa.dst_sel != 6) {
        let old = if sdwa.dst_unused == 2 { wave.lanes(i.dst, 0)? } else { Lanes::splat(0) };
        result.defined &= old.defined;
        for lane in 0..LANES {
            result.values[lane] = inserted(old.values[lane], result.values[lane], &sdwa)?;
        }
    }
    wave.write_lanes(i.dst, 0, enabled, &result)
}

fn compare(wave: &mut Wave, i: &Instruction, kind: Kind, predicate: arithmetic::Predicate) -> Result<(), Stop> {
    let mut rooms = [[[0; LANES]; 2]; 2];
    let mut low = [View { values: &[0; LANES], defined: !0 }; 2];
    let mut high = low;
    let mut enabled = !0;
    for (index, [room_of_low, room_of_high]) in rooms.iter_mut().enumerate() {
        let kind = if i.op == Op::v_cmp_class_f32 && index == 1 { Kind::Integer } else { kind };
        let may_write;
        (low[index], may_write) = source(wave, i, index, kind, room_of_low)?;
        enabled &= may_write;
        if i.width(index + 1) == 2 {
            high[index] = wave.view(i.src[index], 1, room_of_high)?;
        }
    }
    if enabled != !0 {
        return Err(Stop::unsupported("a comparison with masked DPP"));
    }
    let mut mask = 0;
    for lane in 0..LANES {
        let wide = |index: usize| u64::from(low[index].values[lane]) | u64::from(high[index].values[lane]) << 32;
        mask |= u64::from(predicate(wide(0), wide(1))) << lane;
    }
    let defined = low[0].defined & low[1].defined & high[0].defined & high[1].defined;
    wave.write_mask(i.dst, mask, defined)
}

fn select(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let mask = wave.scalar(i.src[2], 2)?;
    let mut rooms = [[0; LANES]; 2];
    let [room_of_no, room_of_yes] = &mut rooms;
    let ((no, e0), (yes, e1)) = (source(wave, i, 0, Kind::Float, room_of_no)?, source(wave, i, 1, Kind::Float, room_of_yes)?);
    let mut result = Lanes { values: [0; LANES], defined: 0 };
    for lane in 0..LANES {
        result.values[lane] = if mask.value >> lane & 1 == 1 { yes.values[lane] } else { no.values[lane] };
    }
    result.defined = mask.defined & ((mask.value & yes.defined) | (!mask.value & no.defined));
    if let Some(sdwa) = i.modifiers.sdwa.filter(|sdwa| sdwa.dst_sel != 6) {
        let old = wave.lanes(i.dst, 0)?;
        for lane in 0..LANES {
            result.values[lane] = inserted(old.values[lane], result.values[lane], &sdwa)?;
        }
        result.defined &= if sdwa.dst_unused == 2 { old.defined } else { !0 };
    }
    wave.write_lanes(i.dst, 0, wave.exec() & e0 & e1, &result)
}

fn read_lane(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let source = wave.lanes(i.src[0], 0)?;
    let lane = if i.op == Op::v_readfirstlane_b32 {
        // Lane 0 where none is active.
        wave.exec().trailing_zeros() as usize % LANES
    } else {
        wave.scalar(i.src[1], 1)?.expect(6, "the lane that is read")? as usize
    };
    let defined = if source.defined >> lane & 1 == 1 { !0 } else { 0 };
    wave.write_scalar(i.dst, 1, Scalar { value: u64::from(source.values[lane]), defined })
}

/// v_permlane32_swap_b32: lanes 32 to 63 of the destination and lanes 0 to 31 of the source change places. What inactive lanes do to it depends on
/// modifiers that are refused.
fn swap_halves(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    const HALF: u32 = 32;
    const LOW: u64 = (1 << HALF) - 1;
    let changed = i.modifiers.op_sel != 0 || i.modifiers.sdwa.is_some() || i.modifiers.dpp.is_some() || i.modifiers.clamp;
    if changed || wave.exec() != !0 {
        return Err(Stop::unsupported("an exchange of halves with modifiers or inactive lanes"));
    }
    let (mut first, mut second) = (wave.lanes(i.dst, 0)?, wave.lanes(i.src[0], 0)?);
    first.values[HALF as usize..].swap_with_slice(&mut second.values[..HALF as usize]);
    (first.defined, second.defined) = ((first.defined & LOW) | second.defined << HALF, first.defined >> HALF | (second.defined & !LOW));
    wave.write_lanes(i.dst, 0, !0, &first)?;
    wave.write_lanes(i.src[0], 0, !0, &second)
}

/// Set bits of the mask in lower lanes, plus source 1. The low half counts lanes 0..32, the high half the others.
fn count_below(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    let (mask, base) = (wave.lanes(i.src[0], 0)?, wave.lanes(i.src[1], 0)?);
    let first = if i.op == Op::v_mbcnt_lo_u32_b32 { 0 } else { 32 };
    let mut result = Lanes { values: [0; LANES], defined: mask.defined & base.defined };
    for lane in 0..LANES {
        let below = lane.saturating_sub(first).min(32);
        let bits = mask.values[lane] & ((1u64 << below) - 1) as u32;
        result.values[lane] = bits.count_ones().wrapping_add(base.values[lane]);
    }
    wave.write_lanes(i.dst, 0, wave.exec(), &result)
}

/// Bit n of the result is bit (4 a + 2 b + c) of the table, a, b and c being bit n of the sources. What the 16-bit form does to the upper
/// half of its destination is not documented: here it becomes a pattern on which nothing can rest.
fn truth_table(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    const UPPER: u32 = 0xA5A5_0000;
    if i.modifiers.op_sel != 0 || i.modifiers.clamp {
        return Err(Stop::unsupported("operand selection here"));
    }
    let [a, b, c] = [wave.lanes(i.src[0], 0)?, wave.lanes(i.src[1], 0)?, wave.lanes(i.src[2], 0)?];
    let mut result = Lanes { values: [0; LANES], defined: a.defined & b.defined & c.defined };
    for lane in 0..LANES {
        let (a, b, c) = (a.values[lane], b.values[lane], c.values[lane]);
        for (row, bit) in (0..8).map(|row| (row, i.constant >> row & 1)) {
            if bit == 1 {
                let pick = |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
                result.values[lane] |= pick(a, 2) & pick(b, 1) & pick(c, 0);
            }
        }
        if i.op == Op::v_bitop3_b16 {
            result.values[lane] = UPPER | (result.values[lane] & 0xFFFF);
        }
    }
    wave.write_lanes(i.dst, 0, wave.exec(), &result)
}
