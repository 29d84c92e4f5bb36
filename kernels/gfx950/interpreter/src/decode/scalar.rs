//! SOP1, SOP2, SOPC, SOPK, SOPP and SMEM.

use super::{DecodeError, Encoding, Instruction, Operand, Words, op, scalar_source};

/// Sources and the literal that may follow.
fn with_sources(words: Words<'_>, mut instruction: Instruction, codes: &[u32]) -> Result<Instruction, DecodeError> {
    let literal = if codes.contains(&255) { words.word(1)? } else { 0 };
    if codes.contains(&255) {
        instruction.size = 8;
    }
    for (source, &code) in instruction.src.iter_mut().zip(codes) {
        *source = scalar_source(code, literal);
    }
    Ok(instruction)
}

pub(super) fn sop2(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 23, 7);
    let entry = words.entry("SOP2", opcode, op::sop2(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Sop2, entry);
    instruction.dst = Operand::Scalar(words.bits(0, 16, 7) as u8);
    with_sources(words, instruction, &[words.bits(0, 0, 8), words.bits(0, 8, 8)])
}

pub(super) fn sop1(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 8, 8);
    let entry = words.entry("SOP1", opcode, op::sop1(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Sop1, entry);
    instruction.dst = Operand::Scalar(words.bits(0, 16, 7) as u8);
    with_sources(words, instruction, &[words.bits(0, 0, 8)])
}

pub(super) fn sopc(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 16, 7);
    let entry = words.entry("SOPC", opcode, op::sopc(opcode))?;
    let instruction = Instruction::new(words.address, Encoding::Sopc, entry);
    with_sources(words, instruction, &[words.bits(0, 0, 8), words.bits(0, 8, 8)])
}

pub(super) fn sopk(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 23, 5);
    let entry = words.entry("SOPK", opcode, op::sopk(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Sopk, entry);
    instruction.dst = Operand::Scalar(words.bits(0, 16, 7) as u8);
    instruction.constant = words.bits(0, 0, 16) as u16;
    Ok(instruction)
}

pub(super) fn sopp(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 16, 7);
    let entry = words.entry("SOPP", opcode, op::sopp(opcode))?;
    let mut instruction = Instruction::new(words.address, Encoding::Sopp, entry);
    instruction.constant = words.bits(0, 0, 16) as u16;
    Ok(instruction)
}

pub(super) fn smem(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 18, 8);
    let entry = words.entry("SMEM", opcode, op::smem(opcode))?;
    words.word(1)?;
    let mut instruction = Instruction::new(words.address, Encoding::Smem, entry);
    instruction.size = 8;
    instruction.dst = Operand::Scalar(words.bits(0, 6, 7) as u8);
    instruction.access.base = Operand::Scalar(2 * words.bits(0, 0, 6) as u8);
    // Bit 17: a constant offset of 21 bits, signed. Bit 14: a scalar offset, too.
    if words.bits(0, 17, 1) == 1 {
        instruction.access.offset = ((words.bits(1, 0, 21) << 11) as i32) >> 11;
    } else if words.bits(0, 14, 1) == 0 {
        // Neither: the constant's place names the register.
        instruction.access.scalar_offset = Operand::Scalar(words.bits(1, 0, 7) as u8);
    }
    if words.bits(0, 14, 1) == 1 {
        instruction.access.scalar_offset = Operand::Scalar(words.bits(1, 25, 7) as u8);
    }
    Ok(instruction)
}
