//! Scalar arithmetic, comparisons, constants, program control and scalar loads.

use super::wave::{Scalar, Wave};
use super::{Flow, Machine};
use crate::decode::{EXEC, Encoding, Instruction, Op, Operand, VCC, wait_counts};
use crate::fault::Stop;

/// All bits if every bit of the sources that matters is defined.
fn all_or_nothing(sources: &[(Scalar, usize)]) -> u64 {
    let known = |&(scalar, width): &(Scalar, usize)| scalar.expect(32 * width as u32, "").is_ok();
    if sources.iter().all(known) { !0 } else { 0 }
}

fn flag(value: bool, defined: bool) -> Scalar {
    Scalar { value: u64::from(value), defined: if defined { !0 } else { 0 } }
}

/// SOP1, SOP2, SOPC, SOPK.
pub(super) fn arithmetic(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    match i.encoding {
        Encoding::Sop2 => two_sources(wave, i),
        Encoding::Sop1 => one_source(wave, i),
        Encoding::Sopc => compare(wave, i),
        _ => constant(wave, i),
    }
}

/// Bitwise operations know which result bits an undefined source bit can change.
fn bitwise(op: Op, a: Scalar, b: Scalar) -> Option<Scalar> {
    use Op::*;
    let not = |s: Scalar| Scalar { value: !s.value, defined: s.defined };
    let and = |a: Scalar, b: Scalar| Scalar {
        value: a.value & b.value,
        defined: (a.defined & b.defined) | (a.defined & !a.value) | (b.defined & !b.value),
    };
    let or = |a: Scalar, b: Scalar| not(and(not(a), not(b)));
    let xor = |a: Scalar, b: Scalar| Scalar { value: a.value ^ b.value, defined: a.defined & b.defined };
    Some(match op {
        s_and_b32 | s_and_b64 | s_and_saveexec_b64 => and(a, b),
        s_or_b32 | s_or_b64 | s_or_saveexec_b64 => or(a, b),
        s_xor_b32 | s_xor_b64 => xor(a, b),
        s_andn2_b32 | s_andn2_b64 | s_andn2_saveexec_b64 => and(a, not(b)),
        s_orn2_b32 | s_orn2_b64 => or(a, not(b)),
        s_nand_b32 => not(and(a, b)),
        s_nor_b32 | s_nor_b64 => not(or(a, b)),
        s_xnor_b32 => not(xor(a, b)),
        _ => return None,
    })
}

/// SCC = (result is not zero), which one defined set bit decides.
fn nonzero(result: Scalar, width: usize) -> Scalar {
    let mask = if width == 1 { 0xFFFF_FFFF } else { !0 };
    let decided = result.value & result.defined & mask != 0 || result.defined & mask == mask;
    flag(result.value & mask != 0, decided)
}

fn two_sources(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    let (a, b) = (wave.scalar(i.src[0], i.width(1))?, wave.scalar(i.src[1], i.width(2))?);
    if let Some(result) = bitwise(i.op, a, b) {
        wave.scc = nonzero(result, i.width(0));
        return wave.write_scalar(i.dst, i.width(0), result);
    }
    if matches!(i.op, s_cselect_b32 | s_cselect_b64) {
        let result = if wave.scc.expect(1, "SCC, which selects,")? == 1 { a } else { b };
        return wave.write_scalar(i.dst, i.width(0), result);
    }
    let mut defined = all_or_nothing(&[(a, i.width(1)), (b, i.width(2))]);
    let carry_in = u32::from(wave.scc.value & 1 == 1);
    if matches!(i.op, s_addc_u32 | s_subb_u32) && wave.scc.defined & 1 == 0 {
        defined = 0;
    }
    let (x, y) = (a.value as u32, b.value as u32);
    let (sx, sy) = (x as i32, y as i32);
    // The value, and SCC where the operation sets it.
    let (value, scc): (u64, Option<bool>) = match i.op {
        s_add_u32 => sum(x, y, 0),
        s_addc_u32 => sum(x, y, carry_in),
        s_sub_u32 => difference(x, y, 0),
        s_subb_u32 => difference(x, y, carry_in),
        s_add_i32 => signed(sx.overflowing_add(sy)),
        s_sub_i32 => signed(sx.overflowing_sub(sy)),
        s_min_i32 => (u64::from(sx.min(sy) as u32), Some(sx <= sy)),
        s_max_i32 => (u64::from(sx.max(sy) as u32), Some(sx >= sy)),
        s_min_u32 => (u64::from(x.min(y)), Some(x <= y)),
        s_max_u32 => (u64::from(x.max(y)), Some(x >= y)),
        s_lshl_b32 => tested(u64::from(x << (y & 31))),
        s_lshr_b32 => tested(u64::from(x >> (y & 31))),
        s_ashr_i32 => tested(u64::from((sx >> (y & 31)) as u32)),
        s_lshl_b64 => tested(a.value << (y & 63)),
        s_lshr_b64 => tested(a.value >> (y & 63)),
        s_ashr_i64 => tested(((a.value as i64) >> (y & 63)) as u64),
        s_bfm_b32 => (u64::from(((1u32 << (x & 31)) - 1) << (y & 31)), None),
        s_bfe_u32 | s_bfe_i32 => tested(u64::from(bit_field(i.op == s_bfe_i32, x, y))),
        s_mul_i32 => (u64::from(x.wrapping_mul(y)), None),
        s_mul_hi_u32 => ((u64::from(x) * u64::from(y)) >> 32, None),
        s_mul_hi_i32 => (u64::from(((i64::from(sx) * i64::from(sy)) >> 32) as u32), None),
        s_lshl1_add_u32 => shifted_sum(x, 1, y),
        s_lshl2_add_u32 => shifted_sum(x, 2, y),
        s_lshl3_add_u32 => shifted_sum(x, 3, y),
        s_lshl4_add_u32 => shifted_sum(x, 4, y),
        s_pack_ll_b32_b16 => (u64::from((x & 0xFFFF) | (y << 16)), None),
        s_pack_lh_b32_b16 => (u64::from((x & 0xFFFF) | (y & 0xFFFF_0000)), None),
        s_pack_hh_b32_b16 => (u64::from((x >> 16) | (y & 0xFFFF_0000)), None),
        _ => return Err(Stop::unsupported(i.op.name())),
    };
    if let Some(scc) = scc {
        wave.scc = flag(scc, defined != 0);
    }
    wave.write_scalar(i.dst, i.width(0), Scalar { value, defined })
}

fn sum(x: u32, y: u32, carry: u32) -> (u64, Option<bool>) {
    let wide = u64::from(x) + u64::from(y) + u64::from(carry);
    (wide & 0xFFFF_FFFF, Some(wide >> 32 != 0))
}

fn difference(x: u32, y: u32, borrow: u32) -> (u64, Option<bool>) {
    let wide = i64::from(x) - i64::from(y) - i64::from(borrow);
    (u64::from(wide as u32), Some(wide < 0))
}

fn signed((value, overflow): (i32, bool)) -> (u64, Option<bool>) {
    (u64::from(value as u32), Some(overflow))
}

fn tested(value: u64) -> (u64, Option<bool>) {
    (value, Some(value != 0))
}

fn shifted_sum(x: u32, shift: u32, y: u32) -> (u64, Option<bool>) {
    let wide = (u64::from(x) << shift) + u64::from(y);
    (wide & 0xFFFF_FFFF, Some(wide >> 32 != 0))
}

/// Offset in bits 0..5 of the control, width in bits 16..23.
fn bit_field(sign: bool, x: u32, control: u32) -> u32 {
    let (offset, width) = (control & 31, ((control >> 16) & 127).min(32));
    if width == 0 {
        return 0;
    }
    let up = (32 - width).saturating_sub(offset);
    // Bits beyond the source's end are zero (or its sign).
    if sign { (((x << up) as i32) >> (up + offset)) as u32 } else { (x << up) >> (up + offset) }
}

fn one_source(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    let a = wave.scalar(i.src[0], i.width(1))?;
    if i.op.name().contains("saveexec") {
        let exec = Scalar::known(wave.exec());
        let result = bitwise(i.op, a, exec).ok_or_else(|| Stop::unsupported(i.op.name()))?;
        wave.write_scalar(i.dst, 2, exec)?;
        wave.scc = nonzero(result, 2);
        return wave.write_scalar(Operand::Scalar(EXEC), 2, result);
    }
    match i.op {
        s_mov_b32 | s_mov_b64 => return wave.write_scalar(i.dst, i.width(0), a),
        s_not_b32 | s_not_b64 => {
            let result = Scalar { value: !a.value, defined: a.defined };
            wave.scc = nonzero(result, i.width(0));
            return wave.write_scalar(i.dst, i.width(0), result);
        }
        s_bitset1_b32 => {
            let (bit, old) = (1 << a.expect(5, "the bit that is set")?, wave.scalar(i.dst, 1)?);
            return wave.write_scalar(i.dst, 1, Scalar { value: old.value | bit, defined: old.defined | bit });
        }
        _ => {}
    }
    let defined = all_or_nothing(&[(a, i.width(1))]);
    let x = a.value as u32;
    let (value, scc): (u64, Option<bool>) = match i.op {
        s_brev_b32 => (u64::from(x.reverse_bits()), None),
        s_bcnt1_i32_b32 => tested(u64::from(x.count_ones())),
        s_bcnt1_i32_b64 => tested(u64::from(a.value.count_ones())),
        // The position of a first bit, or -1 where there is none.
        s_ff1_i32_b32 => (position(x.trailing_zeros(), 32), None),
        s_ff1_i32_b64 => (position(a.value.trailing_zeros(), 64), None),
        s_flbit_i32_b32 => (position(x.leading_zeros(), 32), None),
        s_flbit_i32_b64 => (position(a.value.leading_zeros(), 64), None),
        s_sext_i32_i8 => (u64::from(x as i8 as i32 as u32), None),
        s_sext_i32_i16 => (u64::from(x as i16 as i32 as u32), None),
        s_abs_i32 => tested(u64::from((x as i32).unsigned_abs())),
        _ => return Err(Stop::unsupported(i.op.name())),
    };
    if let Some(scc) = scc {
        wave.scc = flag(scc, defined != 0);
    }
    wave.write_scalar(i.dst, i.width(0), Scalar { value, defined })
}

fn position(at: u32, none: u32) -> u64 {
    u64::from(if at == none { u32::MAX } else { at })
}

fn compare(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    let (a, b) = (wave.scalar(i.src[0], i.width(0))?, wave.scalar(i.src[1], i.width(1))?);
    let defined = all_or_nothing(&[(a, i.width(0)), (b, i.width(1))]) != 0;
    let (x, y) = (a.value as u32, b.value as u32);
    let result = match i.op {
        s_cmp_eq_u64 => a.value == b.value,
        s_cmp_lg_u64 => a.value != b.value,
        s_bitcmp0_b32 => x >> (y & 31) & 1 == 0,
        s_bitcmp1_b32 => x >> (y & 31) & 1 == 1,
        _ => ordered(i.op, x, y).ok_or_else(|| Stop::unsupported(i.op.name()))?,
    };
    wave.scc = flag(result, defined);
    Ok(())
}

fn ordered(op: Op, x: u32, y: u32) -> Option<bool> {
    use Op::*;
    let (sx, sy) = (x as i32, y as i32);
    Some(match op {
        s_cmp_eq_i32 | s_cmp_eq_u32 | s_cmpk_eq_i32 | s_cmpk_eq_u32 => x == y,
        s_cmp_lg_i32 | s_cmp_lg_u32 | s_cmpk_lg_i32 | s_cmpk_lg_u32 => x != y,
        s_cmp_gt_i32 | s_cmpk_gt_i32 => sx > sy,
        s_cmp_ge_i32 | s_cmpk_ge_i32 => sx >= sy,
        s_cmp_lt_i32 | s_cmpk_lt_i32 => sx < sy,
        s_cmp_le_i32 | s_cmpk_le_i32 => sx <= sy,
        s_cmp_gt_u32 | s_cmpk_gt_u32 => x > y,
        s_cmp_ge_u32 | s_cmpk_ge_u32 => x >= y,
        s_cmp_lt_u32 | s_cmpk_lt_u32 => x < y,
        s_cmp_le_u32 | s_cmpk_le_u32 => x <= y,
        _ => return None,
    })
}

fn constant(wave: &mut Wave, i: &Instruction) -> Result<(), Stop> {
    use Op::*;
    let extended = i.constant as i16 as i32 as u32;
    if i.op == s_movk_i32 {
        return wave.write_scalar(i.dst, 1, Scalar::known(u64::from(extended)));
    }
    let old = wave.scalar(i.dst, 1)?;
    let known = all_or_nothing(&[(old, 1)]);
    let x = old.value as u32;
    match i.op {
        s_addk_i32 => {
            let (value, overflow) = signed((x as i32).overflowing_add(extended as i32));
            wave.scc = flag(overflow == Some(true), known != 0);
            wave.write_scalar(i.dst, 1, Scalar { value, defined: known })
        }
        s_mulk_i32 => wave.write_scalar(i.dst, 1, Scalar { value: u64::from(x.wrapping_mul(extended)), defined: known }),
        _ => {
            let unsigned = i.op.name().ends_with("u32");
            let y = if unsigned { u32::from(i.constant) } else { extended };
            let result = ordered(i.op, x, y).ok_or_else(|| Stop::unsupported(i.op.name()))?;
            wave.scc = flag(result, known != 0);
            Ok(())
        }
    }
}

pub(super) fn program(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<Flow, Stop> {
    use Op::*;
    let target = i.address.wrapping_add(4).wrapping_add_signed(4 * i64::from(i.constant as i16));
    let taken = match i.op {
        s_branch => true,
        s_cbranch_scc0 => wave.scc.expect(1, "SCC, which decides a branch,")? == 0,
        s_cbranch_scc1 => wave.scc.expect(1, "SCC, which decides a branch,")? == 1,
        s_cbranch_vccz => wave.scalar_register(VCC, 2)?.expect(64, "VCC, which decides a branch,")? == 0,
        s_cbranch_vccnz => wave.scalar_register(VCC, 2)?.expect(64, "VCC, which decides a branch,")? != 0,
        s_cbranch_execz => wave.exec() == 0,
        s_cbranch_execnz => wave.exec() != 0,
        s_endpgm => return Ok(Flow::End),
        s_barrier => return Ok(Flow::Barrier),
        s_waitcnt => {
            let (vector, _, local) = wait_counts(i.constant);
            wave.wait_vector(usize::from(vector), machine.lds);
            wave.wait_local(usize::from(local), machine.lds);
            false
        }
        s_nop | s_setprio | s_sleep => false,
        _ => return Err(Stop::unsupported(i.op.name())),
    };
    Ok(if taken { Flow::Jump(target) } else { Flow::Next })
}

/// s_load_*: dwords from memory; they may not be touched until the wave has waited for all scalar loads.
pub(super) fn load(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<(), Stop> {
    let base = wave.scalar(i.access.base, 2)?.expect(64, "a scalar load's address")?;
    let mut address = base.wrapping_add_signed(i64::from(i.access.offset));
    if i.access.scalar_offset != Operand::None {
        address = address.wrapping_add(wave.scalar(i.access.scalar_offset, 1)?.expect(32, "a scalar load's offset")?);
    }
    if address % 4 != 0 {
        return Err(Stop::unsupported("a scalar load that is not aligned to 4 bytes"));
    }
    let Operand::Scalar(first) = i.dst else { return Err(Stop::unsupported("a scalar load into no register")) };
    for index in 0..i.width(0) {
        let mut bytes = [0; 4];
        let defined = machine.memory.load(address + 4 * index as u64, &mut bytes)?;
        let value = Scalar { value: u64::from(u32::from_le_bytes(bytes)), defined: if defined { !0 } else { 0 } };
        wave.write_scalar(Operand::Scalar(first + index as u8), 1, value)?;
    }
    wave.hold_scalars(first, i.width(0));
    Ok(())
}
