//! From bytes to instructions. Knows the encodings of the instruction set, nothing of what instructions do.
//!
//! One file for each group of families: `scalar` (SOP1, SOP2, SOPC, SOPK, SOPP, SMEM), `vector` (VOP1, VOP2, VOPC and their SDWA and DPP
//! forms), `vop3` (VOP3A and VOP3B), `packed` (VOP3P, matrix and scaled matrix operations), `memory` (DS, MUBUF, FLAT). `op` lists the
//! operations, `text` writes an instruction as LLVM's disassembler does.

mod memory;
mod op;
mod packed;
mod scalar;
mod text;
mod vector;
mod vop3;

pub use op::{ALL, Op};
pub use text::wait_counts;

/// The encoding that an instruction was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Matrix,
    Ds,
    Mubuf,
    Global,
}

/// A source or destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operand {
    #[default]
    None,
    /// A scalar register by its number: 0..=101, 106 and 107 VCC, 124 M0, 126 and 127 EXEC.
    Scalar(u8),
    /// A vector register: 0..=255 VGPRs, 256..=511 accumulation registers.
    Vector(u16),
    /// A constant that the source field names: 128..=208 integers, 240..=248 floats, 251..=253 VCCZ, EXECZ, SCC.
    Inline(u8),
    /// A 32-bit constant that follows the instruction.
    Literal(u32),
}

/// The number of VCC's low half.
pub const VCC: u8 = 106;
/// The number of M0.
pub const M0: u8 = 124;
/// The number of EXEC's low half.
pub const EXEC: u8 = 126;
/// Of a wave.
pub const LANES: usize = 64;

/// Sub-dword addressing: which byte or half of each source is read, and where the result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sdwa {
    /// 0..=3 byte, 4 and 5 half, 6 whole.
    pub dst_sel: u8,
    /// What becomes of the destination's other bits: 0 zero, 1 sign, 2 kept.
    pub dst_unused: u8,
    /// As `dst_sel`, for both sources.
    pub src_sel: [u8; 2],
    /// Whether each source's part is sign-extended.
    pub sext: [bool; 2],
}

/// Data-parallel primitives: from which lane source 0 is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dpp {
    pub control: u16,
    /// Lanes without a source read zero instead of keeping their destination.
    pub bound_control: bool,
    /// Rows (of 16 lanes) that take part.
    pub row_mask: u8,
    /// Banks (of 4 lanes) that take part.
    pub bank_mask: u8,
}

/// Changes to sources and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modifiers {
    /// Bit i: source i is negated (packed operations: its low half).
    pub neg: u8,
    /// Bit i: the high half of source i is negated (packed operations).
    pub neg_hi: u8,
    /// Bit i: the magnitude of source i is taken.
    pub abs: u8,
    /// Operand selection, as in the encoding.
    pub op_sel: u8,
    /// Operand selection of the high half, as in the encoding.
    pub op_sel_hi: u8,
    pub clamp: bool,
    /// Multiplication of the result: 0 none, 1 by 2, 2 by 4, 3 by 1/2.
    pub omod: u8,
    pub sdwa: Option<Sdwa>,
    /// Lane permutation of source 0.
    pub dpp: Option<Dpp>,
}

/// The scales of a scaled matrix operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scales {
    /// Registers that hold the E8M0 bytes of A and B.
    pub source: [Operand; 2],
    /// Which of its four bytes: bit i of `op_sel` plus twice bit i of `op_sel_hi`.
    pub byte: [u8; 2],
}

/// Addressing of a memory operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Constant offset in bytes; of DS operations with two, the first.
    pub offset: i32,
    /// The second offset of DS operations with two.
    pub offset1: u8,
    /// A vector address or offset.
    pub address: Operand,
    /// A scalar address (global), resource (buffer) or base (scalar loads).
    pub base: Operand,
    pub scalar_offset: Operand,
    pub data: [Operand; 2],
    /// The address is an offset (buffer).
    pub offen: bool,
    /// Data goes to LDS instead of a register (buffer).
    pub lds: bool,
    /// Cache policy bits sc0, sc1, nt: printed, without effect here.
    pub policy: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Where it lies in the code object's memory image.
    pub address: u64,
    /// Bytes that it takes.
    pub size: u8,
    pub encoding: Encoding,
    pub op: Op,
    /// Registers of destination and sources, as in the table.
    pub widths: &'static [u8],
    /// Where the result goes.
    pub dst: Operand,
    /// Where a carry or mask goes besides.
    pub carry: Operand,
    pub src: [Operand; 3],
    pub modifiers: Modifiers,
    /// Addressing of memory operations.
    pub access: Access,
    /// Scales of scaled matrix operations.
    pub scales: Option<Scales>,
    /// The 16-bit constant of SOPK and SOPP; the truth table of bitop3; cbsz + (blgp << 3) of matrix operations.
    pub constant: u16,
}

impl Instruction {
    fn new(address: u64, encoding: Encoding, entry: op::Entry) -> Self {
        Self {
            address,
            size: 4,
            encoding,
            op: entry.op,
            widths: entry.widths,
            dst: Operand::None,
            carry: Operand::None,
            src: [Operand::None; 3],
            modifiers: Modifiers::default(),
            access: Access::default(),
            scales: None,
            constant: 0,
        }
    }

    /// 32-bit registers of the destination (0) or a source (1..).
    pub fn width(&self, position: usize) -> usize {
        self.widths.get(position).map_or(1, |&width| usize::from(width))
    }
}

/// An instruction that is not known here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No such operation in the tables.
    #[error(
        "at {address:#x}: unknown {encoding} opcode {opcode:#x} (words {words:08x?}): add it to decode/op.rs, and its meaning to execute"
    )]
    Opcode {
        /// Where.
        address: u64,
        encoding: &'static str,
        opcode: u32,
        /// The words from there on.
        words: [u32; 2],
    },
    /// A known operation in a form that is not.
    #[error("at {address:#x}: {name} with {what} is not supported (words {words:08x?})")]
    Form {
        /// Where.
        address: u64,
        name: &'static str,
        /// What is not known.
        what: &'static str,
        /// The words from there on.
        words: [u32; 2],
    },
    /// The bits fit no family.
    #[error("at {address:#x}: no known encoding begins with {word:#010x}")]
    Encoding {
        /// Where.
        address: u64,
        /// The first word.
        word: u32,
    },
    /// The code ends inside an instruction.
    #[error("at {address:#x}: the code ends inside an instruction")]
    Truncated {
        /// Where.
        address: u64,
    },
}

/// The words of an instruction under decoding.
#[derive(Debug, Clone, Copy)]
struct Words<'a> {
    address: u64,
    words: &'a [u32],
}

impl Words<'_> {
    fn word(&self, index: usize) -> Result<u32, DecodeError> {
        self.words.get(index).copied().ok_or(DecodeError::Truncated { address: self.address })
    }

    /// `count` bits from bit `low` of word `index` (which was read before).
    fn bits(&self, index: usize, low: u32, count: u32) -> u32 {
        (self.words.get(index).copied().unwrap_or(0) >> low) & ((1u64 << count) - 1) as u32
    }

    fn pair(&self) -> [u32; 2] {
        [self.bits(0, 0, 32), self.bits(1, 0, 32)]
    }

    fn entry(&self, encoding: &'static str, opcode: u32, entry: Option<op::Entry>) -> Result<op::Entry, DecodeError> {
        entry.ok_or(DecodeError::Opcode { address: self.address, encoding, opcode, words: self.pair() })
    }

    fn refuse<T>(&self, entry: op::Entry, what: &'static str) -> Result<T, DecodeError> {
        Err(DecodeError::Form { address: self.address, name: entry.op.name(), what, words: self.pair() })
    }
}

/// An 8-bit scalar source or the scalar part of a 9-bit one; 255 is replaced by the literal.
fn scalar_source(code: u32, literal: u32) -> Operand {
    match code {
        0..=127 => Operand::Scalar(code as u8),
        255 => Operand::Literal(literal),
        _ => Operand::Inline(code as u8),
    }
}

/// A 9-bit source.
fn source(code: u32, literal: u32) -> Operand {
    if code >= 256 { Operand::Vector(code as u16 - 256) } else { scalar_source(code, literal) }
}

fn vgpr(code: u32) -> Operand {
    Operand::Vector(code as u16)
}

/// The same register among the accumulation registers.
fn accumulator(operand: Operand, accumulation: bool) -> Operand {
    match operand {
        Operand::Vector(register) if accumulation => Operand::Vector(register + 256),
        other => other,
    }
}

/// The instruction that begins with `words`, which lie at `address`.
pub fn decode(address: u64, words: &[u32]) -> Result<Instruction, DecodeError> {
    let words = Words { address, words };
    let word = words.word(0)?;
    match word >> 23 {
        0b1_0111_1101 => return scalar::sop1(words),
        0b1_0111_1110 => return scalar::sopc(words),
        0b1_0111_1111 => return scalar::sopp(words),
        0b1_1010_0111 => return packed::vop3p(words),
        _ => {}
    }
    match word >> 26 {
        0b11_0000 => return scalar::smem(words),
        0b11_0100 => return vop3::vop3(words),
        0b11_0110 => return memory::ds(words),
        0b11_1000 => return memory::mubuf(words),
        0b11_0111 => return memory::flat(words),
        _ => {}
    }
    match word {
        _ if word >> 28 == 0b1011 => scalar::sopk(words),
        _ if word >> 30 == 0b10 => scalar::sop2(words),
        _ if word >> 25 == 0b011_1111 => vector::vop1(words),
        _ if word >> 25 == 0b011_1110 => vector::vopc(words),
        _ if word >> 31 == 0 => vector::vop2(words),
        _ => Err(DecodeError::Encoding { address, word }),
    }
}
