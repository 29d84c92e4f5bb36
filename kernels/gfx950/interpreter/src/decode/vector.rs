//! VOP1, VOP2 and VOPC: 32 bits, and a second word for a literal, SDWA or DPP.

use super::op::{self, Op};
use super::{DecodeError, Dpp, Encoding, Instruction, Operand, Sdwa, VCC, Words, scalar_source, source, vgpr};

const SDWA: u32 = 249;
const DPP: u32 = 250;
const LITERAL: u32 = 255;

pub(super) fn vop1(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 9, 8);
    let entry = words.entry("VOP1", opcode, op::vop1(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Vop1, entry);
    if entry.op == Op::v_nop {
        return Ok(instruction);
    }
    let destination = words.bits(0, 17, 8);
    instruction.dst = if entry.op == Op::v_readfirstlane_b32 { Operand::Scalar(destination as u8) } else { vgpr(destination) };
    first_source(words, &mut instruction, false)?;
    if entry.op == Op::v_accvgpr_mov_b32 {
        instruction.dst = super::accumulator(instruction.dst, true);
        instruction.src[0] = super::accumulator(instruction.src[0], true);
    }
    Ok(instruction)
}

pub(super) fn vop2(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 25, 6);
    let entry = words.entry("VOP2", opcode, op::vop2(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Vop2, entry);
    instruction.dst = vgpr(words.bits(0, 17, 8));
    instruction.src[1] = vgpr(words.bits(0, 9, 8));
    first_source(words, &mut instruction, false)?;
    match entry.op {
        // The third source of these is VCC.
        Op::v_cndmask_b32 => instruction.src[2] = Operand::Scalar(VCC),
        Op::v_addc_co_u32 | Op::v_subb_co_u32 | Op::v_subbrev_co_u32 => {
            instruction.src[2] = Operand::Scalar(VCC);
            instruction.carry = Operand::Scalar(VCC);
        }
        Op::v_add_co_u32 | Op::v_sub_co_u32 | Op::v_subrev_co_u32 => instruction.carry = Operand::Scalar(VCC),
        // A literal always follows: d = a * b + literal, or a * literal + b.
        Op::v_fmaak_f32 => {
            instruction.src[2] = Operand::Literal(words.word(1)?);
            instruction.size = 8;
        }
        Op::v_fmamk_f32 => {
            instruction.src[2] = instruction.src[1];
            instruction.src[1] = Operand::Literal(words.word(1)?);
            instruction.size = 8;
        }
        _ => {}
    }
    Ok(instruction)
}

pub(super) fn vopc(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 17, 8);
    let entry = words.entry("VOPC", opcode, op::vopc(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Vopc, entry);
    instruction.dst = Operand::Scalar(VCC);
    instruction.src[1] = vgpr(words.bits(0, 9, 8));
    first_source(words, &mut instruction, true)?;
    Ok(instruction)
}

/// Source 0, and with it the second word.
fn first_source(words: Words<'_>, instruction: &mut Instruction, comparison: bool) -> Result<(), DecodeError> {
    let code = words.bits(0, 0, 9);
    match code {
        SDWA => {
            words.word(1)?;
            instruction.size = 8;
            sdwa(words, instruction, comparison);
        }
        DPP => {
            words.word(1)?;
            instruction.size = 8;
            dpp(words, instruction);
        }
        LITERAL => {
            instruction.size = 8;
            instruction.src[0] = Operand::Literal(words.word(1)?);
        }
        _ => instruction.src[0] = source(code, 0),
    }
    Ok(())
}

fn sdwa(words: Words<'_>, instruction: &mut Instruction, comparison: bool) {
    let at = |low, count| words.bits(1, low, count);
    let register = |code, scalar| if scalar == 1 { scalar_source(code, 0) } else { vgpr(code) };
    instruction.src[0] = register(at(0, 8), at(23, 1));
    if let Operand::Vector(second) = instruction.src[1] {
        instruction.src[1] = register(u32::from(second), at(31, 1));
    }
    instruction.modifiers.neg = (at(20, 1) | at(28, 1) << 1) as u8;
    instruction.modifiers.abs = (at(21, 1) | at(29, 1) << 1) as u8;
    // Comparisons have no destination selection; a scalar destination may stand in its place.
    let (dst_sel, dst_unused) = if comparison { (6, 0) } else { (at(8, 3), at(11, 2)) };
    if comparison {
        instruction.dst = Operand::Scalar(if at(15, 1) == 1 { at(8, 7) as u8 } else { VCC });
    } else {
        instruction.modifiers.clamp = at(13, 1) == 1;
        instruction.modifiers.omod = at(14, 2) as u8;
    }
    instruction.modifiers.sdwa = Some(Sdwa {
        dst_sel: dst_sel as u8,
        dst_unused: dst_unused as u8,
        src_sel: [at(16, 3) as u8, at(24, 3) as u8],
        sext: [at(19, 1) == 1, at(27, 1) == 1],
    });
}

fn dpp(words: Words<'_>, instruction: &mut Instruction) {
    let at = |low, count| words.bits(1, low, count);
    instruction.src[0] = vgpr(at(0, 8));
    instruction.modifiers.neg = (at(20, 1) | at(22, 1) << 1) as u8;
    instruction.modifiers.abs = (at(21, 1) | at(23, 1) << 1) as u8;
    instruction.modifiers.dpp =
        Some(Dpp { control: at(8, 9) as u16, bound_control: at(19, 1) == 1, bank_mask: at(24, 4) as u8, row_mask: at(28, 4) as u8 });
}
