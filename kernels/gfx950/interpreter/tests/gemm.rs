//! The MXFP4 GEMM kernels, executed, against the CPU's product: every bit.
//!
//! The kernel sums blocks of 32 in another order than the CPU: of each eight the even ones, then the odd ones. Exchanging blocks in both
//! operands leaves the product what it is, so the CPU is given operands whose blocks lie in the kernel's order, and the two agree to
//! the last bit on the matrix operation as `execute/matrix.rs` defines it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Arguments, Random, compile, order_of, reordered, run};
use gfx950_interpreter::Order;
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;

use kernels::cpu::{Cpu, InstructionSet, Panels, Side};
use kernels::format::bf16;
use kernels::quantise::Mxfp4;

/// What D is and what becomes of its old contents.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    Bf16,
    F32,
    AddF32,
    AddBf16,
}

impl Output {
    fn is_bf16(self) -> bool {
        matches!(self, Self::Bf16 | Self::AddBf16)
    }

    /// As the kernels' arguments say it.
    fn code(self) -> u32 {
        u32::from(!self.is_bf16())
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    tile: (usize, usize),
    shares: usize,
    /// Workgroups of a share at most; each makes one tile after the other.
    workgroups: usize,
    output: Output,
    factor: f32,
}

/// Codes of every value, and scales around 2^0 so that sums need rounding.
fn operand(rows: usize, k: usize, random: &mut Random) -> Mxfp4 {
    let codes = (0..rows * k / 2).map(|_| random.next() as u8).collect();
    let scales = (0..rows * k / 32).map(|_| (119 + random.below(16)) as u8).collect();
    Mxfp4 { rows, k, blocks: k / 32, codes, scales, multiplier: 1.0 }
}

const DOUBLED: [i32; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The sum over some blocks as the CPU's product defines it: acc = fma(dot * 2^eB, 2^eA / 4, acc), dot exact.
fn sum(a: &Mxfp4, b: &Mxfp4, row: usize, column: usize, order: &[usize]) -> f32 {
    let code = |operand: &Mxfp4, row: usize, k: usize| {
        let byte = operand.codes[row * operand.k / 2 + k / 2];
        DOUBLED[usize::from(byte >> (4 * (k % 2)) & 15)]
    };
    let scale = |operand: &Mxfp4, row: usize, block: usize| kernels::format::e8m0::decode(operand.scales[row * operand.blocks + block]);
    order.iter().fold(0.0, |acc, &block| {
        let dot: i32 = (32 * block..32 * block + 32).map(|k| code(a, row, k) * code(b, column, k)).sum();
        (dot as f32 * scale(b, column, block)).mul_add(scale(a, row, block) / 4.0, acc)
    })
}

/// The product as the kernels define it: shares of k summed apart, then together in order, times the factor, plus the old contents.
fn expected(a: &Mxfp4, b: &Mxfp4, case: &Case, old: &[f32]) -> Vec<f32> {
    let steps = case.k.div_ceil(256);
    let share = steps.div_ceil(case.shares);
    let orders: Vec<Vec<usize>> =
        (0..case.shares).map(|z| order_of((8 * share * z).min(a.blocks)..(8 * share * (z + 1)).min(a.blocks))).collect();
    let mut d = Vec::with_capacity(case.m * case.n);
    for row in 0..case.m {
        for column in 0..case.n {
            let mut parts = orders.iter().map(|order| sum(a, b, row, column, order));
            let first = parts.next().unwrap_or(0.0);
            let value = parts.fold(first, |total, part| total + part) * case.factor;
            d.push(match case.output {
                Output::Bf16 => bf16::round(value),
                Output::F32 => value,
                Output::AddF32 => old[row * case.n + column] + value,
                Output::AddBf16 => bf16::round(bf16::round(old[row * case.n + column]) + value),
            });
        }
    }
    d
}

fn bytes_of(values: &[f32], output: Output) -> Vec<u8> {
    match output {
        Output::Bf16 | Output::AddBf16 => values.iter().flat_map(|&value| bf16::encode(value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Uploads, launches the product (and the second half of split-K), returns D's bytes.
fn multiply(object: &CodeObject, a: &Mxfp4, b: &Mxfp4, case: &Case, old: &[f32], order: Order) -> Result<Vec<u8>, String> {
    let mut memory = Memory::new();
    let operands = [a, b].map(|operand| (memory.input("codes", &operand.codes), memory.input("scales", &operand.scales)));
    let d = match case.output {
        Output::Bf16 => memory.output("D", 2 * case.m * case.n),
        Output::F32 => memory.output("D", 4 * case.m * case.n),
        // In place, as gradients are, and from elsewhere, as a residual is.
        Output::AddF32 => memory.updated("D", &bytes_of(old, case.output)),
        Output::AddBf16 => memory.output("D", 2 * case.m * case.n),
    };
    let added = match case.output {
        Output::AddF32 => Some(d),
        Output::AddBf16 => Some(memory.input("added", &bytes_of(old, case.output))),
        _ => None,
    };
    let workspace = (case.shares > 1).then(|| memory.output("workspace", 4 * case.m * case.n * case.shares));
    let mode = case.output.code();
    const PARTIAL: u32 = 2;
    let share = case.k.div_ceil(256).div_ceil(case.shares);
    let address = |arguments: Arguments, address: Address| arguments.address(Some(address));
    let mut arguments = Arguments::default();
    for (codes, scales) in operands {
        arguments = address(address(arguments, codes), scales);
    }
    arguments = address(arguments, workspace.unwrap_or(d)).address(added).u32(case.m as u32).u32(case.n as u32).u32(case.k as u32);
    arguments = arguments.u32(if workspace.is_some() { PARTIAL } else { mode }).u32(share as u32).f32(case.factor);
    let tiles = case.m.div_ceil(case.tile.0) * case.n.div_ceil(case.tile.1);
    let grid = [tiles.min(case.workgroups) as u32, 1, case.shares as u32];
    let name = format!("mxfp4_gemm_{}x{}", case.tile.0, case.tile.1);
    let statistics = run(object, &name, &mut memory, grid, &arguments, order).map_err(|error| error.to_string())?;
    // What the swizzle in gemm.hip is for.
    if statistics.bank_conflicts != [0, 0] {
        return Err(format!("{:?} bank conflicts by consecutive and measured lanes ({case:?})", statistics.bank_conflicts));
    }
    if let Some(workspace) = workspace {
        let count = case.m * case.n;
        let arguments = address(address(Arguments::default(), workspace), d).address(added).u64(count as u64);
        let arguments = arguments.u32(case.shares as u32).u32(mode).f32(case.factor);
        run(object, "mxfp4_gemm_sum", &mut memory, [count.div_ceil(1024) as u32, 1, 1], &arguments, order)
            .map_err(|error| error.to_string())?;
    }
    memory.bytes(d).map(<[u8]>::to_vec)
}

fn check(object: &CodeObject, case: Case, order: Order, seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let (a, b) = (operand(case.m, case.k, &mut random), operand(case.n, case.k, &mut random));
    let old: Vec<f32> = (0..case.m * case.n).map(|_| random.below(1 << 20) as f32 / 77.0).collect();
    let found = multiply(object, &a, &b, &case, &old, order)?;
    let expected = bytes_of(&expected(&a, &b, &case, &old), case.output);
    match found.iter().zip(&expected).position(|(a, b)| a != b) {
        None if found.len() == expected.len() => Ok(()),
        at => Err(format!("D differs at byte {at:?} of {} ({case:?}, {order:?})", expected.len())),
    }
}

fn object(extra: &[&str]) -> Option<CodeObject> {
    compile("gemm.hip", extra).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

const CASE: Case = Case { m: 64, n: 64, k: 256, tile: (64, 64), shares: 1, workgroups: 512, output: Output::F32, factor: 1.0 };

#[test]
fn one_tile_equals_the_exact_product_in_every_order_of_waves() {
    let Some(object) = object(&[]) else { return };
    for order in Order::ALL {
        check(&object, CASE, order, 1).unwrap();
    }
}

/// Every tile size; shapes of one tile, of several, and with edges along M, N and k, k an odd number of blocks included.
#[test]
fn shapes_with_edges_and_across_tiles_equal_the_exact_product() {
    let Some(object) = object(&[]) else { return };
    let shapes = [
        ((64, 64), 16, 16, 32),
        ((64, 64), 80, 144, 96),
        ((64, 64), 192, 64, 544),
        ((128, 128), 128, 128, 512),
        ((128, 128), 144, 272, 288),
        ((128, 128), 16, 400, 800),
        ((256, 256), 256, 256, 256),
        ((256, 256), 272, 48, 320),
        ((192, 256), 192, 256, 512),
        ((192, 256), 208, 48, 1056),
        ((192, 256), 80, 272, 288),
    ];
    for (turn, (tile, m, n, k)) in shapes.into_iter().enumerate() {
        let output = [Output::F32, Output::Bf16, Output::AddF32, Output::AddBf16][turn % 4];
        let case = Case { m, n, k, tile, output, factor: [1.0, 16.0 / 9.0][turn % 2], ..CASE };
        check(&object, case, Order::ALL[turn % 3], 10 + turn as u64).unwrap();
    }
}

/// Shares of k summed apart and added in order; one share may be shorter, or empty.
#[test]
fn split_k_adds_its_shares_in_order() {
    let Some(object) = object(&[]) else { return };
    for (turn, (shares, k)) in [(2, 512), (3, 1824), (4, 1280), (2, 800)].into_iter().enumerate() {
        let output = [Output::F32, Output::Bf16, Output::AddF32, Output::AddBf16][turn];
        let case = Case { m: 80, n: 48, k, shares, output, factor: 4.0 / 3.0, ..CASE };
        check(&object, case, Order::ALL[turn % 3], 50 + turn as u64).unwrap();
    }
}

/// Workgroups that make several tiles: a tile goes on into the next one where k has a multiple of 8 steps, and begins anew where it has not. Tiles
/// at the edges, shares, and numbers of workgroups that are no multiple of the dies.
#[test]
fn workgroups_make_one_tile_after_the_other() {
    let Some(object) = object(&[]) else { return };
    let cases = [
        ((64, 64), 192, 144, 2048, 1, 2),
        ((64, 64), 144, 208, 2048, 1, 5),
        ((64, 64), 80, 144, 544, 1, 1),
        ((64, 64), 80, 80, 4096, 2, 1),
        ((64, 64), 80, 144, 2816, 3, 2),
        ((64, 64), 592, 48, 1056, 1, 9),
        ((128, 128), 256, 144, 2048, 1, 1),
        ((256, 256), 272, 272, 2048, 1, 1),
        ((192, 256), 208, 272, 2048, 1, 1),
        ((192, 256), 400, 16, 1312, 1, 2),
    ];
    for (turn, (tile, m, n, k, shares, workgroups)) in cases.into_iter().enumerate() {
        let output = [Output::F32, Output::Bf16, Output::AddF32, Output::AddBf16][turn % 4];
        let case = Case { m, n, k, tile, shares, workgroups, output, factor: [1.0, 16.0 / 9.0][turn % 2] };
        let orders = if tile == (64, 64) { &Order::ALL[..] } else { &Order::ALL[turn % 3..][..1] };
        for &order in orders {
            check(&object, case, order, 70 + turn as u64).unwrap();
        }
    }
}

/// A block whose scale is NaN makes its row (or column) NaN and nothing else; padding beyond k does not touch what follows.
#[test]
fn a_nan_block_shows_in_its_row_alone() {
    let Some(object) = object(&[]) else { return };
    let case = Case { m: 32, n: 48, k: 96, ..CASE };
    let mut random = Random(3);
    let (mut a, b) = (operand(case.m, case.k, &mut random), operand(case.n, case.k, &mut random));
    // The first block of row 5: it follows the last block of row 4 in memory, where the loads of row 4 reach beyond k.
    a.scales[5 * a.blocks] = 255;
    let found = multiply(&object, &a, &b, &case, &[], Order::Serial).unwrap();
    for (index, bytes) in found.chunks_exact(4).enumerate() {
        let value = f32::from_le_bytes(bytes.try_into().unwrap());
        assert_eq!(value.is_nan(), index / case.n == 5, "row {}", index / case.n);
    }
}

/// The CPU's own product (crate `kernels`), not this file's: operands whose blocks were put in the kernel's order.
#[test]
fn the_product_equals_the_cpu_crates_own_to_the_last_bit() {
    let Some(object) = object(&[]) else { return };
    let case = Case { m: 48, n: 96, k: 512, ..CASE };
    let mut random = Random(9);
    let (a, b) = (operand(case.m, case.k, &mut random), operand(case.n, case.k, &mut random));
    let found = multiply(&object, &a, &b, &case, &[], Order::RoundRobin).unwrap();
    let left = Panels::pack(&reordered(&a), Side::Left, false);
    let right = Panels::pack(&reordered(&b), Side::Right, false);
    let mut d = vec![0.0; case.m * case.n];
    Cpu::new(InstructionSet::Scalar, 1).unwrap().gemm(&left, &right, &mut d, false).unwrap();
    assert_eq!(found, bytes_of(&d, Output::F32));
}

/// Defects in the source that must be noticed, by a fault or by a wrong result.
#[test]
fn defects_are_caught() {
    let Some(_) = object(&[]) else { return };
    let long = Case { k: 1024, ..CASE };
    let edge = Case { m: 48, ..CASE };
    let two = Case { m: 128, k: 2048, workgroups: 1, ..CASE };
    let from_source = [
        ("-DBREAK_NO_BARRIER", long, "LDS race|is missing|never written"),
        ("-DBREAK_NO_WAIT", long, "LDS race|is missing|never written"),
        ("-DBREAK_WRONG_SCALE_BLOCK", CASE, "D differs"),
        ("-DBREAK_EDGE", edge, "outside every allocation"),
        ("-DBREAK_NO_SWIZZLE", CASE, "bank conflicts"),
        ("-DBREAK_SEAM", two, "D differs"),
        ("-DBREAK_ORDER", Case { n: 128, ..two }, "outside every allocation"),
    ];
    // The oblong tile's own: a wave without scales in the last quarter of a chunk, and the edge.
    let oblong = Case { tile: (192, 256), m: 192, n: 256, k: 1280, ..CASE };
    for (flag, case, expected) in
        [("-DBREAK_QUARTER", oblong, "never written"), ("-DBREAK_EDGE", Case { m: 176, n: 16, ..oblong }, "outside every")]
    {
        let said = check(&object(&[flag]).unwrap(), case, Order::Serial, 1).expect_err(flag);
        assert!(said.contains(expected) || said.contains("D differs"), "{flag}: {said}");
    }
    for (flag, case, expected) in from_source {
        let object = object(&[flag]).unwrap();
        for order in Order::ALL {
            let said = check(&object, case, order, 1).expect_err(flag);
            assert!(expected.split('|').any(|part| said.contains(part)), "{flag}: {said}");
        }
    }
}

/// Shares of k that write to D itself instead of the workspace: the host's mistake, which only a race could show.
#[test]
fn shares_without_a_workspace_are_caught() {
    let Some(object) = object(&[]) else { return };
    let mut random = Random(4);
    let (a, b) = (operand(64, 512, &mut random), operand(64, 512, &mut random));
    let mut memory = Memory::new();
    let mut arguments = Arguments::default();
    for operand in [&a, &b] {
        arguments = arguments.address(Some(memory.input("codes", &operand.codes))).address(Some(memory.input("scales", &operand.scales)));
    }
    let d = memory.output("D", 4 * 64 * 64);
    let arguments = arguments.address(Some(d)).address(None).u32(64).u32(64).u32(512).u32(1).u32(1).f32(1.0);
    let said = run(&object, "mxfp4_gemm_64x64", &mut memory, [1, 1, 2], &arguments, Order::Serial).unwrap_err().to_string();
    assert!(said.contains("stores to byte 0 of D, which another workgroup of the same launch wrote"), "{said}");
}

/// In the machine code of the good kernel, each s_waitcnt and s_barrier alone becomes s_nop. One that nobody misses waits for nothing that is
/// still under way: the compiler does not know of the kernel's own waits and repeats them. The product then stays right.
#[test]
fn every_wait_that_is_needed_is_missed_when_it_is_gone() {
    const NOP: u32 = 0xBF80_0000;
    let Some(good) = compile("gemm.hip", &[]) else { return };
    let parsed = CodeObject::parse(&good).unwrap();
    let kernel = parsed.kernel("mxfp4_gemm_64x64").unwrap();
    // Paths through the kernel: k of an even and an odd number of blocks, every output.
    let cases = [
        Case { m: 80, k: 1024, ..CASE },
        Case { m: 80, k: 544, output: Output::Bf16, ..CASE },
        Case { m: 48, k: 512, output: Output::AddF32, ..CASE },
        Case { m: 48, k: 256, output: Output::AddBf16, ..CASE },
        // Two tiles of one workgroup, the second one begun anew or not.
        Case { m: 80, k: 288, workgroups: 1, ..CASE },
        Case { m: 80, k: 2048, workgroups: 1, ..CASE },
    ];
    let waits: Vec<_> = kernel.instructions.iter().filter(|i| ["s_waitcnt", "s_barrier"].contains(&i.mnemonic().as_str())).collect();
    let mut missed = 0;
    for instruction in &waits {
        let at = kernel.file_offset + (instruction.address - kernel.instructions[0].address) as usize;
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&NOP.to_le_bytes());
        let patched = CodeObject::parse(&bytes).unwrap();
        let faults: Vec<String> = cases.iter().filter_map(|&case| check(&patched, case, Order::Serial, 1).err()).collect();
        let expected = ["LDS race", "is missing", "never written", "loads to LDS are under way"];
        assert!(faults.iter().all(|said| expected.iter().any(|part| said.contains(part))), "{instruction}: {faults:?}");
        missed += usize::from(!faults.is_empty());
        // The kernel's own barriers, and the waits before them, can never be spared.
        let next = kernel.instructions.iter().find(|i| i.address == instruction.address + 4).unwrap();
        let needed = instruction.mnemonic() == "s_barrier" || next.mnemonic() == "s_barrier";
        assert!(!needed || !faults.is_empty(), "{:#x}: {instruction} is gone and nobody noticed", instruction.address);
    }
    println!("{missed} of {} waits and barriers are missed when they are gone", waits.len());
    assert!(2 * missed >= waits.len(), "{missed} of {}", waits.len());
}

/// kernels.yaml limits the modelled clocks of Llama 3.1-8B's products at 16,384 tokens where the tile is that the host chooses.
#[test]
fn clocks_are_limited_for_the_tiles_that_are_chosen() {
    const TOKENS: usize = 16_384;
    let manifest = std::fs::read_to_string(crate::common::device_folder().join("kernels.yaml")).unwrap();
    for (n, k) in [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)] {
        for (m, n, k) in [(TOKENS, n, k), (TOKENS, k, n), (n, k, TOKENS)] {
            let plan = kernels::gpu::Plan::choose(256, (m, n, k), 1 << 24);
            assert_eq!(plan.shares, 1, "the model knows no second kernel");
            let kernel = format!("mxfp4_gemm_{}x{}", plan.tile.0, plan.tile.1);
            let budget = manifest.split_once(&format!("{kernel}: ")).unwrap().1.split("mxfp4_gemm_").next().unwrap();
            assert!(budget.contains(&format!("{m}x{n}x{k}: ")), "{m}x{n}x{k} is not among the clocks of {kernel}");
        }
    }
}
