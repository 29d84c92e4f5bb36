//! What instructions do: one wave, one instruction at a time.
//!
//! `scalar` (SOP*, SMEM), `vector` with `arithmetic`, `wide`, `double`, `convert` and `division` (VOP*), `matrix` and `matrix_bf16` (MFMA),
//! `ds`, `vector_memory` (MUBUF, GLOBAL). `wave` is the state, `source` what VOP* read of it, `rounding` sums with one rounding. Nothing here knows of files or of other waves, except through LDS.

mod arithmetic;
mod convert;
mod division;
mod double;
mod ds;
mod matrix;
mod matrix_bf16;
mod rounding;
mod scalar;
mod source;
mod vector;
mod vector_memory;
mod wave;
mod wide;

pub(crate) use wave::Lanes;
pub(crate) use wave::{Scalar, Wave};

use crate::decode::{Encoding, Instruction, LANES};
use crate::fault::Stop;
use crate::lds::Lds;
use crate::memory::Memory;
use crate::trace::Trace;

/// What lies outside a wave.
pub(crate) struct Machine<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) lds: &'a mut Lds,
    /// Who wants to know of every access.
    pub(crate) trace: Option<&'a mut Trace>,
}

impl Machine<'_> {
    fn note(&mut self, wave: &Wave, bytes: usize, lanes: &[Option<u64>]) {
        if let Some(trace) = &mut self.trace {
            trace.note(wave.index, bytes, lanes);
        }
    }
}

/// What comes after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Jump(u64),
    Barrier,
    End,
}

/// Executes one instruction.
pub(crate) fn step(wave: &mut Wave, i: &Instruction, machine: &mut Machine<'_>) -> Result<Flow, Stop> {
    match i.encoding {
        Encoding::Sopp => return scalar::program(wave, i, machine),
        Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc | Encoding::Sopk => scalar::arithmetic(wave, i)?,
        Encoding::Smem => scalar::load(wave, i, machine)?,
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc | Encoding::Vop3 | Encoding::Vop3p => vector::execute(wave, i)?,
        Encoding::Matrix if matrix_bf16::handles(i.op) => matrix_bf16::execute(wave, i)?,
        Encoding::Matrix => matrix::execute(wave, i)?,
        Encoding::Ds => ds::execute(wave, i, machine)?,
        Encoding::Mubuf | Encoding::Global => vector_memory::execute(wave, i, machine)?,
    }
    Ok(Flow::Next)
}

/// An element of `size` bytes in the low bits of `raw`, zero- or sign-extended; wider ones are left as they are.
fn extended(raw: u32, size: usize, sign: bool) -> u32 {
    let up = match size {
        1 => 24,
        2 => 16,
        _ => return raw,
    };
    if sign { ((raw << up) as i32 >> up) as u32 } else { raw << up >> up }
}

/// A 16-bit load into one half of a register.
fn half_loaded(old: u32, value: u32, name: &str) -> u32 {
    if name.ends_with("d16_hi") { (old & 0xFFFF) | value << 16 } else { (old & 0xFFFF_0000) | (value & 0xFFFF) }
}

/// What a lane stores of up to four registers, the first `shift` bits of each left out.
fn stored(registers: &[Lanes], lane: usize, shift: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (into, lanes) in bytes.as_chunks_mut().0.iter_mut().zip(registers) {
        *into = (lanes.values[lane] >> shift).to_le_bytes();
    }
    bytes
}
