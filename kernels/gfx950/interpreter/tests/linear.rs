//! One linear layer, forward and backward, from BF16 to its three products on interpreted gfx950 code: every matrix is quantised along both
//! axes in one launch, and the operands meet in the GEMM without leaving device memory. Against the CPU's own path for the same recipe.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Arguments, Random, compile, reordered, run};
use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use gfx950_interpreter::Order;
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use kernels::cpu::{Cpu, InstructionSet, Panels, Side};
use kernels::format::bf16;
use kernels::hadamard;
use kernels::quantise::{Mxfp4, Prepared, Randomness, Source, decode_mxfp4, prepare_reference};
use kernels::random::Stream;

const TOKENS: usize = 160;
const IN: usize = 96;
const OUT: usize = 288;

/// A matrix in memory, [rows, columns] row-major, BF16.
struct Matrix {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
}

/// Both ways in which a matrix is used: along its rows and along its columns.
struct Quantised {
    rows: (Address, Address),
    columns: (Address, Address),
}

/// How a pass prepares an operand: a randomized rotation of 16 that both operands share, and the rounding of gradients.
#[derive(Clone, Copy)]
struct Way {
    rounding: Rounding,
    words: Stream,
    signs: Stream,
}

fn matrix(rows: usize, columns: usize, random: &mut Random) -> Matrix {
    let values =
        (0..rows * columns).map(|_| bf16::round((random.below(2001) as f32 - 1000.0) / 300.0 * 2f32.powi(random.below(5) as i32 - 3)));
    Matrix { values: values.collect(), rows, columns }
}

fn way_arguments(arguments: Arguments, place: (Address, Address), way: Way) -> Arguments {
    let signs = hadamard::signs(way.signs, 16);
    let bits = (0..32).map(|i| u32::from(signs[i % 16] < 0.0) << i).sum();
    const EVEN: u32 = 1;
    let arguments = arguments.address(Some(place.0)).address(Some(place.1)).u32(16).u32(bits).u32(bits).u32(bits).u32(bits).u32(EVEN);
    let arguments = arguments.u32(if way.rounding == Rounding::NearestEven { 0 } else { 2 }).u32(way.words.k0).u32(way.words.k1);
    // Scales by rows, blocks of 1 by 32, padding.
    arguments.u32(0).u32(0).u32(0)
}

/// One launch for both directions.
fn quantise(object: &CodeObject, memory: &mut Memory, m: &Matrix, along_rows: Way, along_columns: Way) -> Quantised {
    let bytes: Vec<u8> = m.values.iter().flat_map(|&value| bf16::encode(value).to_le_bytes()).collect();
    let count = m.rows * m.columns;
    let mut place = || (memory.output("codes", count / 2), memory.output("scales", count / 32));
    let (rows, columns) = (place(), place());
    let arguments = Arguments::default().address(Some(memory.input("matrix", &bytes))).u32(m.rows as u32).u32(m.columns as u32);
    let arguments = way_arguments(way_arguments(arguments, rows, along_rows), columns, along_columns);
    let grid = [m.columns.div_ceil(128) as u32, m.rows.div_ceil(128) as u32, 1];
    run(object, "mxfp4_quantise", memory, grid, &arguments, Order::RoundRobin).unwrap();
    Quantised { rows, columns }
}

fn multiply(object: &CodeObject, memory: &mut Memory, operands: [(Address, Address); 2], shape: [usize; 3], factor: f32) -> Vec<f32> {
    let [m, n, k] = shape;
    const F32: u32 = 1;
    let d = memory.output("D", 4 * m * n);
    let mut arguments = Arguments::default();
    for (codes, scales) in operands {
        arguments = arguments.address(Some(codes)).address(Some(scales));
    }
    arguments =
        arguments.address(Some(d)).address(None).u32(m as u32).u32(n as u32).u32(k as u32).u32(F32).u32(k.div_ceil(256) as u32).f32(factor);
    run(object, "mxfp4_gemm_64x64", memory, [(n.div_ceil(64) * m.div_ceil(64)) as u32, 1, 1], &arguments, Order::RoundRobin).unwrap();
    memory.bytes(d).unwrap().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn reference(m: &Matrix, transposed: bool, way: Way) -> Mxfp4 {
    let (rows, k) = if transposed { (m.columns, m.rows) } else { (m.rows, m.columns) };
    let rotation = Some(Rotation { size: 16, signs: Signs::PerStep });
    let spec = OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Even, rounding: way.rounding, rotation };
    let signs = hadamard::signs(way.signs, 16);
    let randomness = Randomness { rounding: Some(way.words), signs: Some(&signs) };
    match prepare_reference(Source { values: &m.values, rows, k, transposed }, &spec, randomness, None).unwrap().0 {
        Prepared::Mxfp4(operand) => operand,
        Prepared::Float(_) => unreachable!(),
    }
}

/// The CPU's product: with blocks in the kernel's order, and in its own.
fn cpu(left: &Mxfp4, right: &Mxfp4) -> [Vec<f32>; 2] {
    let cpu = Cpu::new(InstructionSet::Scalar, 1).unwrap();
    let own = |operand: &Mxfp4| Prepared::Mxfp4(operand.clone());
    [[reordered(left), reordered(right)], [own(left), own(right)]].map(|[a, b]| {
        let mut d = vec![0.0; left.rows * right.rows];
        cpu.gemm(&Panels::pack(&a, Side::Left, false), &Panels::pack(&b, Side::Right, false), &mut d, false).unwrap();
        d
    })
}

fn same_product(name: &str, found: &[f32], left: &Mxfp4, right: &Mxfp4) {
    let [expected, own_order] = cpu(left, right);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert!(bits(found) == bits(&expected), "{name}");
    // The CPU's own order differs by rounding alone: each of the two orders makes at most n roundings of relative size 2^-24, on partial
    // sums that are at most the sum of the n blocks' magnitudes; two more for the factor.
    let (a, b) = (decode_mxfp4(left), decode_mxfp4(right));
    let factor = f64::from(left.multiplier) * f64::from(right.multiplier);
    for (at, (&found, &own)) in found.iter().zip(&own_order).enumerate() {
        let (a, b) = (&a[at / right.rows * left.k..][..left.k], &b[at % right.rows * right.k..][..right.k]);
        let block = |(a, b): (&[f32], &[f32])| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>().abs();
        let magnitude: f64 = a.chunks(32).zip(b.chunks(32)).map(block).sum::<f64>() * factor;
        let bound = (2 * left.blocks + 2) as f64 * 2f64.powi(-24) * magnitude;
        assert!(f64::from((found - own).abs()) <= bound, "{name}: {found} and {own} at {at}, beyond {bound}");
    }
}

#[test]
fn a_linear_layers_three_products_equal_the_cpus() {
    let (Some(quantiser), Some(gemm)) = (compile("quantise.hip", &[]), compile("gemm.hip", &[])) else { return };
    let (quantiser, gemm) = (CodeObject::parse(&quantiser).unwrap(), CodeObject::parse(&gemm).unwrap());
    let mut random = Random(21);
    let (x, w, dy) = (matrix(TOKENS, IN, &mut random), matrix(OUT, IN, &mut random), matrix(TOKENS, OUT, &mut random));
    // Signs belong to the pass; words to pass and operand. Gradients are rounded stochastically, the others to nearest.
    let way = |rounding, pass: u32, operand: u32| Way {
        rounding,
        words: Stream::new(100 * pass + operand, 0xABCD),
        signs: Stream::new(7 * pass, 0x1234),
    };
    let (nearest, stochastic) = (Rounding::NearestEven, Rounding::StochasticPrescaled);
    let (x_f, w_f) = (way(nearest, 0, 0), way(nearest, 0, 1));
    let (dy_d, w_d) = (way(stochastic, 1, 0), way(nearest, 1, 1));
    let (dy_w, x_w) = (way(stochastic, 2, 0), way(nearest, 2, 1));

    let mut memory = Memory::new();
    let qx = quantise(&quantiser, &mut memory, &x, x_f, x_w);
    let qw = quantise(&quantiser, &mut memory, &w, w_f, w_d);
    let qdy = quantise(&quantiser, &mut memory, &dy, dy_d, dy_w);

    let y = multiply(&gemm, &mut memory, [qx.rows, qw.rows], [TOKENS, OUT, IN], 1.0);
    same_product("fprop", &y, &reference(&x, false, x_f), &reference(&w, false, w_f));
    let dx = multiply(&gemm, &mut memory, [qdy.rows, qw.columns], [TOKENS, IN, OUT], 4.0 / 3.0);
    same_product("dgrad", &dx, &reference(&dy, false, dy_d), &reference(&w, true, w_d));
    let dw = multiply(&gemm, &mut memory, [qdy.columns, qx.columns], [OUT, IN, TOKENS], 4.0 / 3.0);
    same_product("wgrad", &dw, &reference(&dy, true, dy_w), &reference(&x, true, x_w));
}
