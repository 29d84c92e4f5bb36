//! DS (LDS), MUBUF (buffers) and FLAT (global only: flat and scratch addressing are refused).

use super::op;
use super::{DecodeError, Encoding, Instruction, Operand, Words, accumulator, scalar_source, vgpr};

pub(super) fn ds(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 17, 8);
    let entry = words.entry("DS", opcode, op::ds(opcode))?;
    words.word(1)?;
    let mut instruction = Instruction::new(words.address, Encoding::Ds, entry);
    instruction.size = 8;
    if words.bits(0, 16, 1) == 1 {
        return words.refuse(entry, "global data share");
    }
    let accumulation = words.bits(0, 25, 1) == 1;
    let name = entry.op.name();
    let two = name.contains("read2") || name.contains("write2");
    let access = &mut instruction.access;
    access.offset = words.bits(0, 0, if two { 8 } else { 16 }) as i32;
    access.offset1 = if two { words.bits(0, 8, 8) as u8 } else { 0 };
    access.address = vgpr(words.bits(1, 0, 8));
    let reads_data = name.contains("write") || name.contains("permute") || entry.op == op::Op::ds_max_u32;
    if reads_data {
        access.data[0] = accumulator(vgpr(words.bits(1, 8, 8)), accumulation);
    }
    if name.contains("write2") {
        access.data[1] = accumulator(vgpr(words.bits(1, 16, 8)), accumulation);
    }
    if name.contains("read") || name.contains("permute") {
        instruction.dst = accumulator(vgpr(words.bits(1, 24, 8)), accumulation);
    }
    Ok(instruction)
}

pub(super) fn mubuf(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 18, 7);
    let entry = words.entry("MUBUF", opcode, op::mubuf(opcode))?;
    words.word(1)?;
    let mut instruction = Instruction::new(words.address, Encoding::Mubuf, entry);
    instruction.size = 8;
    if words.bits(0, 13, 1) == 1 {
        return words.refuse(entry, "an index (idxen)");
    }
    let access = &mut instruction.access;
    access.offset = words.bits(0, 0, 12) as i32;
    access.offen = words.bits(0, 12, 1) == 1;
    access.lds = words.bits(0, 16, 1) == 1;
    access.policy = (words.bits(0, 14, 1) | words.bits(0, 15, 1) << 1 | words.bits(0, 17, 1) << 2) as u8;
    if access.offen {
        access.address = vgpr(words.bits(1, 0, 8));
    }
    access.base = Operand::Scalar(4 * words.bits(1, 16, 5) as u8);
    access.scalar_offset = scalar_source(words.bits(1, 24, 8), 0);
    let data = accumulator(vgpr(words.bits(1, 8, 8)), words.bits(1, 23, 1) == 1);
    if entry.op.name().starts_with("buffer_store") {
        access.data[0] = data;
    } else if !access.lds {
        instruction.dst = data;
    }
    Ok(instruction)
}

pub(super) fn flat(words: Words<'_>) -> Result<Instruction, DecodeError> {
    const GLOBAL: u32 = 2;
    let opcode = words.bits(0, 18, 7);
    let entry = words.entry("FLAT", opcode, op::flat(opcode))?;
    words.word(1)?;
    let mut instruction = Instruction::new(words.address, Encoding::Global, entry);
    instruction.size = 8;
    if words.bits(0, 14, 2) != GLOBAL {
        return words.refuse(entry, "a flat or scratch address");
    }
    if words.bits(0, 13, 1) == 1 {
        return words.refuse(entry, "LDS as its destination (buffer loads are used for that)");
    }
    let access = &mut instruction.access;
    access.offset = ((words.bits(0, 0, 13) << 19) as i32) >> 19;
    access.policy = (words.bits(0, 16, 1) | words.bits(0, 25, 1) << 1 | words.bits(0, 17, 1) << 2) as u8;
    access.address = vgpr(words.bits(1, 0, 8));
    const NO_SCALAR: u32 = 0x7F;
    if words.bits(1, 16, 7) != NO_SCALAR {
        access.base = Operand::Scalar(words.bits(1, 16, 7) as u8);
    }
    let accumulation = words.bits(1, 23, 1) == 1;
    let name = entry.op.name();
    if entry.op == op::Op::global_atomic_umax && access.policy & 1 == 1 {
        return words.refuse(entry, "the old value as its result (sc0)");
    }
    if name.contains("load") {
        instruction.dst = accumulator(vgpr(words.bits(1, 24, 8)), accumulation);
    } else {
        access.data[0] = accumulator(vgpr(words.bits(1, 8, 8)), accumulation);
    }
    Ok(instruction)
}
