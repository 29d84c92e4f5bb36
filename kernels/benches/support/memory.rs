//! How fast the machine reads at each level of its memory. A loop of loads and nothing else; it writes nothing.

use std::hint::black_box;

use kernels::cpu::{Cpu, InstructionSet};

use crate::support::Task;
use crate::support::peaks::on_every_thread;

/// The reading peaks of `cpu`: all its threads at once, each with memory of its own.
pub(crate) fn tasks(cpu: &Cpu) -> Vec<Task> {
    levels(cpu.threads()).into_iter().map(|(name, bytes)| reading(cpu, name, bytes)).collect()
}

/// Working sets by level of the memory hierarchy: half of what a core has of it; for memory, several times the last cache.
fn levels(threads: usize) -> Vec<(&'static str, usize)> {
    let cache = |level: usize, otherwise: usize| cache_bytes(level).unwrap_or(otherwise);
    let (l1, l2, l3) = (cache(1, 32 << 10), cache(2, 512 << 10), cache(3, 0));
    let mut all = vec![("peak/read-l1", l1 / 2), ("peak/read-l2", l2 / 2)];
    if l3 / 2 > 4 * l2 {
        all.push(("peak/read-l3", (l3 / 4 / threads).clamp(2 * l2, 16 * l2)));
    }
    // Virtual machines report a host's whole cache; a gibibyte is as much as a laptop should be asked for.
    all.push(("peak/read-memory", (2 * l3).clamp(64 << 20, 1 << 30) / threads));
    all
}

/// Data or unified cache of the first core, where the system says.
fn cache_bytes(level: usize) -> Option<usize> {
    (0..8).find_map(|index| {
        let field = |name: &str| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok();
        if field("level")?.trim().parse() != Ok(level) || field("type")?.trim() == "Instruction" {
            return None;
        }
        let size = field("size")?;
        let (number, unit) = size.trim().split_at(size.trim().len() - 1);
        let factor = if unit == "M" { 1 << 20 } else { 1 << 10 };
        number.parse::<usize>().ok().map(|number| number * factor)
    })
}

fn reading(cpu: &Cpu, name: &str, bytes: usize) -> Task {
    let lines = bytes / size_of::<Line>() / UNROLLED * UNROLLED;
    let buffers: Vec<Vec<Line>> = (0..cpu.threads()).map(|thread| vec![Line([thread as u64; 8]); lines]).collect();
    // About a millisecond, so that starting threads does not count.
    let passes = ((64 << 20) / bytes).max(1);
    let cpu = cpu.clone();
    let read = reader(cpu.instruction_set());
    let total = (buffers.len() * lines * size_of::<Line>() * passes) as u64;
    let run = move || {
        on_every_thread(&cpu, |thread| {
            for _ in 0..passes {
                black_box(read(black_box(&buffers[thread])));
            }
        });
    };
    Task { name: name.to_owned(), operations: total, bytes: total, run: Box::new(run) }
}

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Lines read in one round of a reading loop.
const UNROLLED: usize = 8;

fn reader(set: InstructionSet) -> fn(&[Line]) -> u64 {
    match set {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `Cpu` of this instruction set exists, so the machine has it.
        InstructionSet::Avx512 | InstructionSet::Avx512Bf16 | InstructionSet::Amx => |lines| unsafe { x86::read_512(lines) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        InstructionSet::Avx2 | InstructionSet::AvxVnni => |lines| unsafe { x86::read_256(lines) },
        _ => plain_read,
    }
}

fn plain_read(lines: &[Line]) -> u64 {
    lines.iter().fold([0; 8], |all: [u64; 8], line| std::array::from_fn(|lane| all[lane] ^ line.0[lane])).iter().fold(0, |a, b| a ^ b)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Line, UNROLLED};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub(super) fn read_512(lines: &[Line]) -> u64 {
        let mut all = [_mm512_setzero_si512(); UNROLLED];
        for lines in lines.chunks_exact(UNROLLED) {
            for (all, line) in all.iter_mut().zip(lines) {
                // SAFETY: a Line is 64 bytes on a border of 64.
                *all = _mm512_xor_si512(*all, unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) });
            }
        }
        all.iter().map(|&all| _mm512_reduce_or_epi64(all) as u64).fold(0, |a, b| a ^ b)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn read_256(lines: &[Line]) -> u64 {
        let mut all = [_mm256_setzero_si256(); UNROLLED];
        for lines in lines.chunks_exact(UNROLLED / 2) {
            for (pair, line) in all.chunks_exact_mut(2).zip(lines) {
                let halves: *const __m256i = std::ptr::from_ref(line).cast();
                // SAFETY: a Line is two halves of 32 bytes on a border of 64.
                let (low, high) = unsafe { (_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))) };
                pair[0] = _mm256_xor_si256(pair[0], low);
                pair[1] = _mm256_xor_si256(pair[1], high);
            }
        }
        all.iter().map(|&all| _mm256_extract_epi64::<0>(all) as u64).fold(0, |a, b| a ^ b)
    }
}
