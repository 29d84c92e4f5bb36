//! VOP3A and VOP3B: three sources, each negated or taken by magnitude; VOP3B has a scalar destination besides.
//!
//! Opcodes 0x000..0x100 are the comparisons, 0x100..0x140 VOP2's operations and 0x140..0x1c0 VOP1's, in this wider form.

use super::op::{self, Op};
use super::{DecodeError, Encoding, Instruction, Operand, Words, source, vgpr};

pub(super) fn vop3(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 16, 10);
    let entry = match opcode {
        0..=0xFF => op::vopc(opcode),
        0x100..=0x13F => op::vop2(opcode - 0x100),
        0x140..=0x1BF => op::vop1(opcode - 0x140),
        _ => op::vop3(opcode),
    };
    let entry = words.entry("VOP3", opcode, entry)?;
    words.word(1)?;
    let mut instruction = Instruction::new(words.address, Encoding::Vop3, entry);
    instruction.size = 8;
    for (index, slot) in instruction.src.iter_mut().enumerate() {
        let code = words.bits(1, 9 * index as u32, 9);
        if code == 255 {
            return words.refuse(entry, "a literal in the VOP3 encoding");
        }
        if index < sources(entry.op, entry.widths.len()) {
            *slot = source(code, 0);
        }
    }
    let scalar_destination = opcode < 0x100 || matches!(entry.op, Op::v_readlane_b32 | Op::v_readfirstlane_b32);
    let destination = words.bits(0, 0, 8);
    instruction.dst = if scalar_destination { Operand::Scalar(destination as u8) } else { vgpr(destination) };
    let modifiers = &mut instruction.modifiers;
    modifiers.clamp = words.bits(0, 15, 1) == 1;
    modifiers.omod = words.bits(1, 27, 2) as u8;
    modifiers.neg = words.bits(1, 29, 3) as u8;
    if has_carry(entry.op) {
        instruction.carry = Operand::Scalar(words.bits(0, 8, 7) as u8);
        return Ok(instruction);
    }
    modifiers.abs = words.bits(0, 8, 3) as u8;
    modifiers.op_sel = words.bits(0, 11, 4) as u8;
    if matches!(entry.op, Op::v_bitop3_b32 | Op::v_bitop3_b16) {
        // The truth table lies where other operations have their modifiers.
        instruction.constant = u16::from(modifiers.omod) << 6 | u16::from(modifiers.abs) << 3 | u16::from(modifiers.neg);
        (modifiers.omod, modifiers.abs, modifiers.neg) = (0, 0, 0);
    }
    Ok(instruction)
}

/// Sources that the operation reads: as the table says, and the mask of those that have one.
fn sources(op: Op, widths: usize) -> usize {
    match op {
        Op::v_cndmask_b32 | Op::v_addc_co_u32 | Op::v_subb_co_u32 | Op::v_subbrev_co_u32 => 3,
        _ => widths.saturating_sub(1),
    }
}

/// VOP3B: a scalar destination takes the bits of the magnitude and operand selection.
fn has_carry(op: Op) -> bool {
    use Op::*;
    matches!(
        op,
        v_add_co_u32
            | v_sub_co_u32
            | v_subrev_co_u32
            | v_subbrev_co_u32
            | v_addc_co_u32
            | v_subb_co_u32
            | v_mad_u64_u32
            | v_mad_i64_i32
            | v_div_scale_f32
            | v_div_scale_f64
    )
}
