//! What the machine could compute at most: multiply-adds in F32, dot products of bytes.
//!
//! Small loops in the instructions that the kernels of an instruction set use, with nothing else in them. Not a model of a
//! processor: a kernel's share of these peaks says how much of the time the arithmetic units were the limit.

use std::hint::black_box;

use kernels::cpu::{Cpu, InstructionSet};

use super::Task;

/// Rounds of one call: about a sixth of a millisecond.
const ROUNDS: usize = 1 << 16;
/// Independent sums, enough to hide the latency of two pipes (of four on Arm).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
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
        InstructionSet::Avx512 | InstructionSet::Avx512Bf16 | InstructionSet::Amx => Some((
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
        #[cfg(target_arch = "x86_64")]
        InstructionSet::AvxVnni => Some((
            // SAFETY: as above.
            (|rounds| unsafe { x86::fma_256(rounds) }, (2 * 8 * FEW) as u64),
            // SAFETY: as above.
            (|rounds| unsafe { x86::dot_256_vnni(rounds) }, (2 * 32 * FEW) as u64),
        )),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => Some((
            // SAFETY: as above.
            (|rounds| unsafe { arm::fma(rounds) }, (2 * 4 * SUMS) as u64),
            // SAFETY: as above.
            (|rounds| unsafe { arm::dot_pairs(rounds) }, (2 * 16 * SUMS) as u64),
        )),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::NeonDot => Some((
            // SAFETY: as above.
            (|rounds| unsafe { arm::fma(rounds) }, (2 * 4 * SUMS) as u64),
            // SAFETY: as above.
            (|rounds| unsafe { arm::dot(rounds) }, (2 * 16 * SUMS) as u64),
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

    #[target_feature(enable = "avx2,avxvnni")]
    pub(super) fn dot_256_vnni(rounds: usize) -> f32 {
        let (left, right) = (_mm256_set1_epi8(black_box(3)), _mm256_set1_epi8(black_box(-5)));
        let mut sums = [_mm256_setzero_si256(); FEW];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_dpbusd_avx_epi32(*sum, left, right);
            }
        }
        sums.iter().map(|&sum| _mm256_extract_epi32::<0>(sum) as f32).sum()
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

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::SUMS;
    use std::arch::aarch64::*;
    use std::hint::black_box;

    #[target_feature(enable = "neon")]
    pub(super) fn fma(rounds: usize) -> f32 {
        let (factor, term) = (vdupq_n_f32(black_box(0.999)), vdupq_n_f32(black_box(0.001)));
        let mut sums = [vdupq_n_f32(1.0); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = vfmaq_f32(term, *sum, factor);
            }
        }
        sums.iter().map(|&sum| vaddvq_f32(sum)).sum()
    }

    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn dot(rounds: usize) -> f32 {
        let (left, right) = (vdupq_n_s8(black_box(3)), vdupq_n_s8(black_box(-5)));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                // SAFETY: the instruction is there, and touches registers only.
                unsafe {
                    std::arch::asm!(".arch_extension dotprod", "sdot {sum:v}.4s, {left:v}.16b, {right:v}.16b",
                        sum = inout(vreg) *sum, left = in(vreg) left, right = in(vreg) right, options(pure, nomem, nostack, preserves_flags));
                }
            }
        }
        sums.iter().map(|&sum| vaddvq_s32(sum) as f32).sum()
    }

    /// Without the dot product: products of both halves, summed in pairs of 16 bits, as the kernels do it.
    #[target_feature(enable = "neon")]
    pub(super) fn dot_pairs(rounds: usize) -> f32 {
        let right = vdupq_n_s8(black_box(-5));
        let mut sums = [vdupq_n_s16(3); SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                let left = vreinterpretq_s8_s16(*sum);
                let products = vpaddq_s16(vmull_s8(vget_low_s8(left), vget_low_s8(right)), vmull_high_s8(left, right));
                *sum = vaddq_s16(*sum, products);
            }
        }
        sums.iter().map(|&sum| f32::from(vaddvq_s16(sum))).sum()
    }
}
