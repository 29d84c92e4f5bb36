//! Which unit an instruction goes to, how long it keeps it, and which registers it needs.

use gfx950_interpreter::decode::{Encoding, Instruction, Op, Operand, wait_counts};

use crate::machine::{BRANCH, CADENCE, MATRIX_BF16, MATRIX_FP4, MATRIX_FP8, MATRIX_TAIL, TRANSCENDENTAL, VECTOR};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Vector,
    Matrix,
    Scalar,
    ScalarMemory,
    Lds,
    VectorMemory {
        to_lds: bool,
    },
    /// s_waitcnt: how many operations may be outstanding.
    Wait {
        vector: usize,
        local: usize,
    },
    Barrier,
    Priority(u16),
    /// What the instruction buffer does by itself: nothing for a while, a branch.
    Nothing,
    End,
}

#[derive(Debug, Clone)]
pub(crate) struct Timed {
    pub(crate) unit: Unit,
    /// Clocks until the wave may issue again.
    pub(crate) issue: u64,
    /// Clocks for which the vector unit or the matrix pipe is busy.
    pub(crate) busy: u64,
    /// Clocks from issue to the result of a vector or matrix operation.
    pub(crate) latency: u64,
    /// Vector registers: first and number.
    pub(crate) reads: Vec<(usize, usize)>,
    pub(crate) writes: Option<(usize, usize)>,
}

pub(crate) fn timed(i: &Instruction) -> Timed {
    let unit = unit(i);
    let busy = match unit {
        Unit::Matrix => matrix(i),
        Unit::Vector if is_transcendental(i.op) => TRANSCENDENTAL,
        Unit::Vector => VECTOR,
        _ => 0,
    };
    let latency = busy + if unit == Unit::Matrix { MATRIX_TAIL } else { 0 };
    let issue = match i.op {
        Op::s_nop => CADENCE * (1 + u64::from(i.constant)),
        _ => CADENCE,
    };
    let mut reads = reads(i);
    // A matrix operation adds to another one's result without waiting for it, pass by pass (LLVM, SISchedule.td: the read of C is advanced).
    let writes = registers(i.dst, i.width(0));
    if unit == Unit::Matrix {
        reads.retain(|read| Some(*read) != writes);
    }
    Timed { unit, issue, busy, latency, reads, writes }
}

/// Clocks that a branch adds where it is taken.
pub(crate) fn taken(i: &Instruction) -> u64 {
    if i.op.name().contains("branch") { BRANCH - CADENCE } else { 0 }
}

fn unit(i: &Instruction) -> Unit {
    match i.encoding {
        Encoding::Matrix => Unit::Matrix,
        Encoding::Vop1 | Encoding::Vop2 | Encoding::Vopc | Encoding::Vop3 | Encoding::Vop3p => Unit::Vector,
        Encoding::Sop1 | Encoding::Sop2 | Encoding::Sopc | Encoding::Sopk => Unit::Scalar,
        Encoding::Smem => Unit::ScalarMemory,
        Encoding::Ds => Unit::Lds,
        Encoding::Mubuf | Encoding::Global => Unit::VectorMemory { to_lds: i.access.lds },
        Encoding::Sopp => match i.op {
            Op::s_waitcnt => {
                let (vector, _, local) = wait_counts(i.constant);
                Unit::Wait { vector: vector.into(), local: local.into() }
            }
            Op::s_barrier => Unit::Barrier,
            Op::s_setprio => Unit::Priority(i.constant),
            Op::s_endpgm => Unit::End,
            _ => Unit::Nothing,
        },
    }
}

/// Clocks of the matrix pipe: multiplications and additions by the rate of the wider operand.
fn matrix(i: &Instruction) -> u64 {
    // Formats of A and B: 0 and 1 are FP8, 2 to 4 narrower.
    let (a, b) = (i.constant & 7, i.constant >> 3 & 7);
    let rate = if a.min(b) < 2 { MATRIX_FP8 } else { MATRIX_FP4 };
    match i.op {
        Op::v_mfma_f32_32x32x64_f8f6f4 => 2 * 32 * 32 * 64 / rate,
        Op::v_mfma_f32_16x16x32_bf16 => 2 * 16 * 16 * 32 / MATRIX_BF16,
        Op::v_mfma_f32_32x32x16_bf16 => 2 * 32 * 32 * 16 / MATRIX_BF16,
        _ => 2 * 16 * 16 * 128 / rate,
    }
}

fn is_transcendental(op: Op) -> bool {
    ["v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_"].iter().any(|start| op.name().starts_with(start))
}

fn registers(operand: Operand, count: usize) -> Option<(usize, usize)> {
    match operand {
        Operand::Vector(first) => Some((usize::from(first), count)),
        _ => None,
    }
}

fn reads(i: &Instruction) -> Vec<(usize, usize)> {
    let mut found: Vec<_> = i.src.iter().enumerate().filter_map(|(index, &source)| registers(source, i.width(index + 1))).collect();
    found.extend(i.scales.iter().flat_map(|scales| scales.source).filter_map(|source| registers(source, 1)));
    // A global access without a scalar base has 64-bit addresses.
    let wide = i.encoding == Encoding::Global && i.access.base == Operand::None;
    found.extend(registers(i.access.address, if wide { 2 } else { 1 }));
    found.extend(i.access.data.iter().filter_map(|&data| registers(data, i.width(0))));
    found
}
