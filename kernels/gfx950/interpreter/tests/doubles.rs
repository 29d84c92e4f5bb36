//! F64 operations and atomic maxima, compiled for gfx950 and executed, against the same in Rust. Division and square root are the
//! compiler's sequences around approximations of 26 bits: they must come out rounded once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The expressions are meant as they stand: NaNs make `!(x < y)` other than `x >= y`.
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use std::num::FpCategory::{Infinite, Nan, Subnormal, Zero};
use std::path::Path;

use crate::common::{Arguments, Random, compile_path, run_of, u32_bytes};
use gfx950_interpreter::Order;
use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::CodeObject;

fn object() -> Option<CodeObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/doubles.hip");
    compile_path(&path, &[]).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

fn coarse(value: f64) -> f64 {
    if value.is_finite() { f64::from_bits((value.to_bits() + (1 << 26)) & !((1 << 27) - 1)) } else { value }
}

/// In the order of `doubles`; whether a NaN counts as any other.
fn expected(lane: usize, [a, b, c]: [f64; 3]) -> Vec<(u64, bool)> {
    let value = |value: f64| (value.to_bits(), true);
    let truth = |truth: bool| (u64::from(truth), false);
    let minimum = if a == b && a == 0.0 { if a.is_sign_negative() { a } else { b } } else { a.min(b) };
    let middle = matches!(a.classify(), Subnormal | Zero) || (a.is_normal() && a < 0.0);
    vec![
        value(a + b),
        value(a * b),
        value(a - b),
        value(a.mul_add(b, c)),
        value((-a).mul_add(b, c.abs())),
        value(a / b),
        value(1.0 / c),
        value(a.abs().sqrt()),
        value(minimum),
        value(f64::from(a as f32)),
        value(a * 2f64.powi(lane as i32 - 32)),
        truth(a > b),
        truth(!(a < b)),
        truth(a != b),
        value(a * 0.5 - 2.0),
        value(coarse(1.0 / a)),
        value(coarse(1.0 / b.abs().sqrt())),
        truth(matches!(a.classify(), Nan | Infinite)),
        truth(middle),
    ]
}

/// Numbers of moderate and of extreme size, and the edges; no quotient of two is subnormal, which the interpreter refuses.
fn inputs(seed: u64) -> Vec<[f64; 3]> {
    const EDGES: [f64; 10] = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.0, 1e200, 1e-100];
    let mut random = Random(seed);
    let mut number = |kind: u32| {
        let mantissa = u64::from(random.next()) << 20 | u64::from(random.next() & 0xF_FFFF);
        let spread = [20, 300, 1][kind as usize % 3];
        let exponent = u64::from(1023 - spread / 2 + random.below(spread));
        match kind {
            3 => EDGES[random.below(10) as usize],
            _ => f64::from_bits(u64::from(random.below(2)) << 63 | exponent << 52 | mantissa),
        }
    };
    (0..64)
        .map(|i| if i % 4 == 3 { [number(3), number(2), number(3)] } else { [number(i % 4), number(i / 4 % 3), number(i / 16 % 3)] })
        .collect()
}

#[test]
fn f64_operations_compute_what_rust_computes() {
    let Some(object) = object() else { return };
    for seed in 1..20 {
        let inputs = inputs(seed);
        let bytes: Vec<u8> = (0..3).flat_map(|column| inputs.iter().flat_map(move |row| row[column].to_le_bytes())).collect();
        let count = expected(0, [1.0; 3]).len();
        let mut memory = Memory::new();
        let (input, output) = (memory.input("in", &bytes), memory.output("out", 512 * count));
        run_of(&object, "doubles", &mut memory, [1, 1, 1], (64, 0), &Arguments::default().at(input).at(output), Order::Serial).unwrap();
        let found: Vec<u64> = memory.bytes(output).unwrap().chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
        for (lane, &row) in inputs.iter().enumerate() {
            for (n, (wanted, float)) in expected(lane, row).into_iter().enumerate() {
                let found = found[64 * n + lane];
                let both_nan = float && f64::from_bits(found).is_nan() && f64::from_bits(wanted).is_nan();
                assert!(found == wanted || both_nan, "expression {n} of {row:?}: {found:#x}, {wanted:#x} wanted");
            }
        }
    }
}

#[test]
fn atomic_maxima_are_common_to_waves_and_workgroups() {
    let Some(object) = object() else { return };
    let mut random = Random(9);
    let inputs: Vec<u32> = (0..128).map(|_| random.next()).collect();
    for order in Order::ALL {
        let mut memory = Memory::new();
        let (input, common) = (memory.input("in", &u32_bytes(&inputs)), memory.updated("common", &[0; 16]));
        let groups = 3;
        let output = memory.output("out", 4 * 128 * 5 * groups);
        let arguments = Arguments::default().at(input).at(common).at(output);
        run_of(&object, "maxima", &mut memory, [groups as u32, 1, 1], (128, 0), &arguments, order).unwrap();
        let words = |address| -> Vec<u32> {
            memory.bytes(address).unwrap().chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let largest = |of: usize, which: usize| (which..128).step_by(of).map(|at| inputs[at]).max().unwrap();
        assert_eq!(words(common), (0..4).map(|which| largest(4, which)).collect::<Vec<u32>>());
        let found = words(output);
        for group in 0..groups {
            let mask = 0x0008_0000_0000_0000u64 << group;
            let nor = !(mask | 5);
            for thread in 0..128 {
                let a = u64::from(inputs[thread] & 0xFF_FFFF);
                let wanted = [
                    largest(2, 0),
                    largest(2, 1),
                    ((a * a) >> 32) as u32,
                    mask.trailing_zeros().wrapping_mul(0xFFFF_9234),
                    nor as u32 ^ (nor >> 32) as u32,
                ];
                for (n, wanted) in wanted.into_iter().enumerate() {
                    assert_eq!(found[(group * 5 + n) * 128 + thread], wanted, "{n} of thread {thread} in group {group}");
                }
            }
        }
    }
}
