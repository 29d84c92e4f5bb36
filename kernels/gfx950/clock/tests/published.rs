//! A published kernel on the model, by hand: AITER's MXFP4 products, written in assembly (github.com/ROCm/aiter, `hsa/gfx950/f4gemm`, MIT licence),
//! which are not part of this repository. README.md of kernels/gfx950 has what came out.
//!
//! ```text
//! PUBLISHED=aiter/hsa/gfx950/f4gemm cargo test -p gfx950-clock -- --ignored --nocapture published
//! ```
//!
//! A few words of the code object are changed first, none of which moves a clock of the loop: what the interpreter wants said another way, and
//! operations of the epilogue that it does not know.

use gfx950_clock::machine::UNITS;
use gfx950_clock::product::Shape;
use gfx950_clock::simulate;
use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::{CodeObject, Kernel};
use gfx950_interpreter::trace::Trace;
use gfx950_interpreter::traced;
use gfx950_interpreter::{Launch, Order};

/// Side of the kernels' tiles, and elements along k of a step.
const TILE: u64 = 256;
const STEP: u64 = 256;
const K: u64 = 4096;
/// Bytes of arguments, at most.
const ARGUMENTS: u32 = 384;

fn u64_at(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// Type, address, offset in the file, size.
type Section = (u64, usize, usize, usize);

fn sections(bytes: &[u8]) -> Vec<Section> {
    let (start, count) = (u64_at(bytes, 0x28, 8) as usize, u64_at(bytes, 0x3C, 2) as usize);
    let at = |section: usize, field: usize, size: usize| u64_at(bytes, start + 64 * section + field, size);
    (0..count).map(|i| (at(i, 4, 4), at(i, 16, 8) as usize, at(i, 24, 8) as usize, at(i, 32, 8) as usize)).collect()
}

/// The code object as the interpreter takes it.
fn adapted(mut bytes: Vec<u8>) -> Vec<u8> {
    const PROGRAM: u64 = 1;
    const SYMBOLS: u64 = 2;
    let sections = sections(&bytes);
    let &(_, _, symbols, length) = sections.iter().find(|section| section.0 == SYMBOLS).unwrap();
    for symbol in (symbols..symbols + length).step_by(24) {
        let (kind, value) = (bytes[symbol + 4] & 15, u64_at(&bytes, symbol + 8, 8) as usize);
        let inside = |section: &&Section| section.0 == PROGRAM && (section.1..section.1 + section.3).contains(&value);
        let Some(&(_, start, offset, size)) = sections.iter().find(inside) else { continue };
        match kind {
            // A descriptor: so many bytes of arguments, and denormals are kept.
            1 => {
                let at = offset + value - start;
                bytes[at + 8..at + 12].copy_from_slice(&ARGUMENTS.to_le_bytes());
                bytes[at + 50] |= 0x0F;
            }
            // Code, to the end of its section.
            2 => {
                bytes[symbol + 16..symbol + 24].copy_from_slice(&((start + size - value) as u64).to_le_bytes());
                bytes[offset..offset + size].chunks_exact_mut(4).for_each(|word| {
                    let said = adapted_word(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                    word.copy_from_slice(&said.to_le_bytes());
                });
            }
            _ => {}
        }
    }
    bytes
}

fn adapted_word(word: u32) -> u32 {
    match word {
        // Flags of a buffer, and its stride, which these accesses do not use.
        0x0002_0000 => 0x0002_7000,
        0x0004_0000 => 0,
        // v_permlane16_swap_b32 becomes v_permlane32_swap_b32, buffer_atomic_pk_add_bf16 a store, s_set_gpr_idx_on and _off wait a clock.
        _ if word & 0xFE01_FE00 == 0x7E00_B200 => word ^ 0x0000_0600,
        _ if word & 0xFDFC_0000 == 0xE148_0000 => word & !0x01FC_0000 | 0x007C_0000,
        // Stores whose register is an index take it for an offset.
        _ if word & 0xFFFF_2000 == 0xE07C_2000 => word ^ 0x3000,
        _ if word & 0xFFFF_0000 == 0xBF11_0000 || word == 0xBF9C_0000 => 0xBF80_0000,
        _ => word,
    }
}

/// One tile, of which every operand is 1.
fn executed(kernel: &Kernel, k: u64) -> Trace {
    let mut memory = Memory::new();
    let mut arguments = Vec::new();
    // Each takes 16 bytes. D, C, A, B, alpha, beta, strides of D, C, A and B, m, n, k, scales and their strides, the logarithm of the shares of k.
    let mut argument = |value: u64| arguments.extend([value, 0].into_iter().flat_map(u64::to_le_bytes));
    let d = memory.output("D", (2 * TILE * TILE) as usize).0;
    let codes = ["A", "B"].map(|name| memory.input(name, &vec![0x22; (TILE * k / 2) as usize]).0);
    let scales = ["scales of A", "scales of B"].map(|name| memory.input(name, &vec![0x7F; (TILE * k / 32) as usize]).0);
    [d, d, codes[0], codes[1], u64::from(1f32.to_bits()), 0].into_iter().for_each(&mut argument);
    [TILE, 0, TILE, 0, k, 0, k, 0, TILE, TILE, k, scales[0], scales[1], k / 32, 0, k / 32, 0, 0].into_iter().for_each(&mut argument);
    arguments.resize(kernel.resources.kernarg_segment_size as usize, 0);
    let launch = Launch { kernel, grid: [1; 3], threads: 256, dynamic_lds: 0, arguments: &arguments, order: Order::Serial };
    traced(&mut memory, &launch, [0; 3]).unwrap()
}

/// The kernel that is given B in its own order is the faster one, as its authors prefer it; neither has bank conflicts among the lanes that were
/// measured to be served together, and both have them among consecutive ones.
#[test]
#[ignore = "needs files that are not part of this repository; run by hand"]
fn published_kernels_come_in_their_order_and_have_no_bank_conflicts() {
    let folder = std::path::PathBuf::from(std::env::var_os("PUBLISHED").expect("PUBLISHED names the folder f4gemm"));
    let steps = ["BpreShuffle", "noBpreShuffle"].map(|name| {
        let bytes = std::fs::read(folder.join(format!("f4gemm_bf16_per1x32Fp4_{name}_256x256.co"))).unwrap();
        let object = CodeObject::parse(&adapted(bytes)).unwrap();
        let kernel = &object.kernels[0];
        let [short, long] = [K, 2 * K].map(|k| simulate(&kernel.instructions, &[&executed(kernel, k)]).unwrap());
        let step = (long.clocks - short.clocks) as f64 / (K / STEP) as f64;
        let once = short.clocks as f64 - (K / STEP) as f64 * step;
        let ideal = Shape { m: TILE, n: TILE, k: K }.ideal() * UNITS as f64;
        let (share, run) = (100.0 * ideal / short.clocks as f64, &long.phases[1]);
        let conflicts = run.usage.conflicts;
        println!(
            "{name}: {step:.0} clocks a step, {once:.0} once, {share:.0} % of peak for a tile of K = {K}; {}; {conflicts:?}",
            run.bound()
        );
        assert!(conflicts[0] > 0 && conflicts[1] == 0, "{name}: {conflicts:?}");
        step
    });
    assert!(steps[0] < steps[1] && steps[0] > ideal_step() && steps[1] < 1.5 * ideal_step(), "{steps:?}");
}

/// Clocks of the matrix pipes in a step.
fn ideal_step() -> f64 {
    Shape { m: TILE, n: TILE, k: STEP }.ideal() * UNITS as f64
}
