//! VOP3P: packed operations, matrix operations, and the 16-byte scaled matrix operations.

use super::op::{self, Op};
use super::{DecodeError, Encoding, Instruction, Operand, Scales, Words, accumulator, source, vgpr};

/// Registers of D, A, B and C of the f8f6f4 operations: those of A follow from cbsz, those of B from blgp. E4M3 (0) and E5M2 (1) take eight, E2M1
/// (4) four; the 6-bit formats (2, 3) are not executed here.
fn f8f6f4_widths(op: Op, cbsz: u16, blgp: u16) -> Option<&'static [u8]> {
    let is_byte = |format: u16| match format {
        0 | 1 => Some(true),
        4 => Some(false),
        _ => None,
    };
    Some(match (op == Op::v_mfma_f32_32x32x64_f8f6f4, is_byte(cbsz)?, is_byte(blgp)?) {
        (false, false, false) => &[4, 4, 4, 4],
        (false, false, true) => &[4, 4, 8, 4],
        (false, true, false) => &[4, 8, 4, 4],
        (false, true, true) => &[4, 8, 8, 4],
        (true, false, false) => &[16, 4, 4, 16],
        (true, false, true) => &[16, 4, 8, 16],
        (true, true, false) => &[16, 8, 4, 16],
        (true, true, true) => &[16, 8, 8, 16],
    })
}

fn is_f8f6f4(op: Op) -> bool {
    matches!(op, Op::v_mfma_f32_16x16x128_f8f6f4 | Op::v_mfma_f32_32x32x64_f8f6f4)
}

pub(super) fn vop3p(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let opcode = words.bits(0, 16, 7);
    let entry = words.entry("VOP3P", opcode, op::vop3p(opcode))?;
    words.word(1)?;
    match entry.op {
        Op::v_mfma_ld_scale_b32 => scaled(words),
        _ if entry.op.name().starts_with("v_mfma") => matrix(words, entry, 0),
        _ => packed(words, entry),
    }
}

fn packed(words: Words<'_>, entry: op::Entry) -> Result<Instruction, DecodeError> {
    let mut instruction = Instruction::new(words.address, Encoding::Vop3p, entry);
    instruction.size = 8;
    for (index, slot) in instruction.src.iter_mut().enumerate().take(entry.widths.len() - 1) {
        let code = words.bits(1, 9 * index as u32, 9);
        if code == 255 {
            return words.refuse(entry, "a literal in the VOP3P encoding");
        }
        *slot = source(code, 0);
    }
    instruction.dst = vgpr(words.bits(0, 0, 8));
    match entry.op {
        Op::v_accvgpr_write_b32 => instruction.dst = accumulator(instruction.dst, true),
        Op::v_accvgpr_read_b32 => instruction.src[0] = accumulator(instruction.src[0], true),
        _ => {}
    }
    let modifiers = &mut instruction.modifiers;
    modifiers.neg = words.bits(1, 29, 3) as u8;
    modifiers.neg_hi = words.bits(0, 8, 3) as u8;
    modifiers.op_sel = words.bits(0, 11, 3) as u8;
    modifiers.op_sel_hi = (words.bits(1, 27, 2) | words.bits(0, 14, 1) << 2) as u8;
    modifiers.clamp = words.bits(0, 15, 1) == 1;
    Ok(instruction)
}

/// `abid` is 1 in the second half of a scaled operation and 0 elsewhere.
fn matrix(words: Words<'_>, entry: op::Entry, expected_abid: u32) -> Result<Instruction, DecodeError> {
    let mut instruction = Instruction::new(words.address, Encoding::Matrix, entry);
    instruction.size = 8;
    // Bit 15: C and D are accumulation registers; bits 59 and 60: A and B are.
    let accumulation = [words.bits(1, 27, 1) == 1, words.bits(1, 28, 1) == 1, words.bits(0, 15, 1) == 1];
    for (index, slot) in instruction.src.iter_mut().enumerate() {
        let code = words.bits(1, 9 * index as u32, 9);
        if code == 255 {
            return words.refuse(entry, "a literal in the VOP3P encoding");
        }
        *slot = accumulator(source(code, 0), accumulation[index]);
    }
    instruction.dst = accumulator(vgpr(words.bits(0, 0, 8)), accumulation[2]);
    let (cbsz, abid, blgp) = (words.bits(0, 8, 3) as u16, words.bits(0, 11, 4), words.bits(1, 29, 3) as u16);
    instruction.constant = cbsz | blgp << 3;
    let formats = is_f8f6f4(entry.op);
    if formats {
        match f8f6f4_widths(entry.op, cbsz, blgp) {
            Some(widths) => instruction.widths = widths,
            None => return words.refuse(entry, "an element format of 6 bits"),
        }
    }
    if abid != expected_abid || (!formats && (cbsz, blgp) != (0, 0)) {
        return words.refuse(entry, "broadcast or permuted operands");
    }
    Ok(instruction)
}

/// v_mfma_scale_*: a word pair that names the scales, then the matrix operation.
fn scaled(words: Words<'_>) -> Result<Instruction, DecodeError> {
    let inner = Words { address: words.address, words: words.words.get(2..).unwrap_or(&[]) };
    inner.word(1)?;
    let opcode = inner.bits(0, 16, 7);
    let entry = inner.entry("VOP3P after v_mfma_ld_scale_b32", opcode, op::vop3p(opcode))?;
    if !is_f8f6f4(entry.op) {
        return inner.refuse(entry, "scales");
    }
    let mut instruction = matrix(inner, entry, 1)?;
    instruction.size = 16;
    let op_sel = words.bits(0, 11, 3);
    let op_sel_hi = words.bits(1, 27, 2) | words.bits(0, 14, 1) << 2;
    instruction.modifiers.op_sel = op_sel as u8;
    instruction.modifiers.op_sel_hi = op_sel_hi as u8;
    let source_of = |index: u32| source(words.bits(1, 9 * index, 9), 0);
    let byte = |index: u32| ((op_sel >> index) & 1 | ((op_sel_hi >> index) & 1) << 1) as u8;
    instruction.scales = Some(Scales { source: [source_of(0), source_of(1)], byte: [byte(0), byte(1)] });
    if instruction.scales.is_some_and(|scales| scales.source.contains(&Operand::Literal(0))) {
        return words.refuse(entry, "a literal scale");
    }
    Ok(instruction)
}
