//! What the machine could compute at most: multiply-adds in F32, dot products of bytes.
//!
//! Small loops in the instructions that the kernels of an instruction set use, with nothing else in them. Not a model of a
//! processor: a kernel's share of these peaks says how much of the time the arithmetic units were the limit.

use std::hint::black_box;

use kernels::cpu::{Cpu, InstructionSet};

use super::Task;

/// Rounds of one call: about a sixth of a millisecond.
const ROUNDS: usize = 1 << 16;
/// Independent sums, enough to hide the latency of two pipes.
#[cfg(target_arch = "x86_64")]
const SUMS: usize = 16;
/// The same where there are sixteen registers, two of them taken.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 14;

/// The arithmetic peaks of `cpu`, all its threads at once; none for plain code.
pub(crate) fn tasks(cpu: &Cpu) -> Vec<Task> {
    let loops = loops(cpu.instruction_set()).into_iter();
    loops.flat_map(|(fma, dot)| [arithmetic(cpu, "peak/f32-fma", fma), arithmetic(cpu, "peak/integer-dot", dot)]).collect()
}

/// A loop over registers and the operations of one of its rounds.
type Loop = (fn(usize) -> f32, u64);

fn arithmetic(cpu: &Cpu, name: &str, (work, operations): Loop) -> Task {
    let cpu = cpu.clone();
    let operations = operations * ROUNDS as u64 * cpu.threads() as u64;
    let run = move || {
        on_every_thread(&cpu, |_| {
            black_box(work(black_box(ROUNDS)));
        });
    };
    Task { name: name.to_owned(), operations, bytes: 0, run: Box::new(run) }
}

/// Calls `work` once on each thread of `cpu`, with the thread's number.
pub(crate) fn on_every_thread(cpu: &Cpu, work: impl Fn(usize) + Sync) {
    if cpu.threads() == 1 {
        return work(0);
    }
    cpu.inside(|| {
        rayon::broadcast(|context| work(context.index()));
    });
}

/// Multiply-add and dot product of an instruction set. Plain code has none: its peak would be the compiler's, not the machine's.
fn loops(set: InstructionSet) -> Option<(Loop, Loop)> {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => Some((
            // SAFETY: a `Cpu` of this instruction set exists, so the machine has it.
            (|rounds| unsafe { x86::fma_512(rounds) }, (2 * 16 * SUMS) as u64),
            // SAFETY: as above.
            (|rounds| unsafe { x86::dot_512(rounds) }, (2 * 64 * SUMS) as u64),
        )),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => Some((
            // SAFETY: as above.
            (|rounds| unsafe { x86::fma_256(rounds) }, (2 * 8 * FEW) as u64),
            // SAFETY: as above.
            (|rounds| unsafe { x86::dot_256(rounds) }, (2 * 32 * FEW) as u64),
        )),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{FEW, SUMS};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub(super) fn fma_512(rounds: usize) -> f32 {
        let (factor, term) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [_mm512_set1_ps(1.0); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, term);
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fma_256(rounds: usize) -> f32 {
        let (factor, term) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [_mm256_set1_ps(1.0); FEW];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, term);
            }
        }
        sums.iter().map(|&sum| _mm256_cvtss_f32(sum)).sum()
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dot_512(rounds: usize) -> f32 {
        let (left, right) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(-5)));
        let mut sums = [_mm512_setzero_si512(); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, left, right);
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_epi32(sum) as f32).sum()
    }

    /// The AVX2 kernels' way: 8-bit products in pairs, summed in 16 bits. Each product reads its own sum, or it would be hoisted out
    /// of the loop.
    #[target_feature(enable = "avx2")]
    pub(super) fn dot_256(rounds: usize) -> f32 {
        let right = _mm256_set1_epi8(black_box(-5));
        let mut sums = [_mm256_set1_epi8(black_box(3)); FEW];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*sum, right));
            }
        }
        sums.iter().map(|&sum| _mm256_extract_epi32::<0>(sum) as f32).sum()
    }
}
