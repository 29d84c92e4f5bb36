//! The f8f6f4 matrix operations in both shapes and every pairing of E2M1, E4M3 and E5M2, against sums made from the definition: matrices in row-major
//! order, elements by crate `kernels`' formats, F64 where F64 is exact.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use crate::common::{Arguments, Random, bf16_bytes, compile_path, f32_bytes, f32_of, run_of};
use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::{Launch, Order, launch};
use kernels::format::MiniFloat;
use kernels::format::{e2m1::E2M1, e4m3::E4M3, e5m2::E5M2, e8m0};

/// A row-major matrix [rows, k] of codes, with the scale byte of each 32 along k.
struct Matrix {
    codes: Vec<u8>,
    format: MiniFloat,
    scales: Vec<u8>,
    k: usize,
}

impl Matrix {
    /// Codes of every finite value whose exponent field is in the middle of the format's, so that F64 holds every sum exactly.
    fn random(rows: usize, k: usize, format: MiniFloat, random: &mut Random) -> Self {
        let mut code = || loop {
            let code = random.below(2 << format.sign_bit) as u8;
            let value = format.decode(code);
            if value.is_finite() && value.abs() <= 512.0 && (value == 0.0 || value.abs() >= 2f32.powi(-9)) {
                return code;
            }
        };
        let codes = (0..rows * k).map(|_| code()).collect();
        let scales = (0..rows * k / 32).map(|_| (124 + random.below(7)) as u8).collect();
        Self { codes, format, scales, k }
    }

    fn at(&self, row: usize, k: usize) -> f64 {
        f64::from(self.format.decode(self.codes[row * self.k + k]))
    }

    fn scale(&self, row: usize, block: usize) -> f64 {
        f64::from(e8m0::decode(self.scales[row * self.k / 32 + block]))
    }

    /// As it lies in memory: bytes, or two codes a byte.
    fn packed(&self) -> Vec<u8> {
        if self.format.sign_bit == 3 { self.codes.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4).collect() } else { self.codes.clone() }
    }
}

/// One block after the other: the exact sum of 32 products, times both scales, added with one rounding.
fn expected(a: &Matrix, b: &Matrix, c: &[f32], size: usize, scaled: bool) -> Vec<f32> {
    let mut d = c.to_vec();
    for (at, d) in d.iter_mut().enumerate() {
        let (row, column) = (at / size, at % size);
        for block in 0..a.k / 32 {
            let dot: f64 = (32 * block..32 * block + 32).map(|k| a.at(row, k) * b.at(column, k)).sum();
            let scale = if scaled { a.scale(row, block) * b.scale(column, block) } else { 1.0 };
            let (old, sum) = (f64::from(*d), f64::from(*d) + dot * scale);
            // Both differences are exact where the sum was.
            assert!(sum - old == dot * scale && sum - dot * scale == old, "F64 is too short for this case");
            *d = sum as f32;
        }
    }
    d
}

fn object(extra: &[&str]) -> Option<CodeObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/matrix.hip");
    compile_path(&path, extra).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

fn run(object: &CodeObject, name: &str, a: &Matrix, b: &Matrix, c: &[f32]) -> Vec<f32> {
    let mut memory = Memory::new();
    let c: Vec<u8> = c.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut arguments = Arguments::default();
    for (what, bytes) in [("a", &a.packed()), ("b", &b.packed()), ("scales of a", &a.scales), ("scales of b", &b.scales), ("c", &c)] {
        arguments = arguments.address(Some(memory.input(what, bytes)));
    }
    let d = memory.output("d", c.len());
    let arguments = arguments.address(Some(d));
    let kernel = object.kernel(name).unwrap();
    launch(&mut memory, &Launch { kernel, grid: [1, 1, 1], threads: 64, dynamic_lds: 0, arguments: &arguments.0, order: Order::Serial })
        .unwrap();
    memory.bytes(d).unwrap().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

const CASES: [(&str, usize, MiniFloat, MiniFloat); 9] = [
    ("small_e2m1_e2m1", 16, E2M1, E2M1),
    ("small_e4m3_e4m3", 16, E4M3, E4M3),
    ("small_e5m2_e4m3", 16, E5M2, E4M3),
    ("small_e4m3_e2m1", 16, E4M3, E2M1),
    ("small_e2m1_e5m2", 16, E2M1, E5M2),
    ("large_e2m1_e2m1", 32, E2M1, E2M1),
    ("large_e4m3_e4m3", 32, E4M3, E4M3),
    ("large_e4m3_e5m2", 32, E4M3, E5M2),
    ("unscaled_e4m3_e4m3", 16, E4M3, E4M3),
];

/// Whether a case gives what the definition says.
fn agrees(object: &CodeObject, case: usize, seed: u64) -> bool {
    let (name, size, left, right) = CASES[case];
    let (mut random, k) = (Random(seed), 2048 / size);
    let (a, b) = (Matrix::random(size, k, left, &mut random), Matrix::random(size, k, right, &mut random));
    let c: Vec<f32> = (0..size * size).map(|_| (random.below(1 << 22) as f32 - (1 << 21) as f32) / 64.0).collect();
    let found = run(object, name, &a, &b, &c);
    let expected = expected(&a, &b, &c, size, !name.starts_with("unscaled"));
    found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn every_shape_and_pairing_equals_the_definition() {
    let Some(object) = object(&[]) else { return };
    for (case, &(name, ..)) in CASES.iter().enumerate() {
        for seed in 1..4 {
            assert!(agrees(&object, case, seed), "{name}");
        }
    }
}

/// Both BF16 operations on numbers whose sums F64 holds exactly, so that there is one rounding; and with rows of D that go astray.
#[test]
fn both_shapes_in_bf16_equal_the_definition() {
    let Some(object) = object(&[]) else { return };
    let Some(broken) = self::object(&["-DBREAK_ROWS"]) else { return };
    for (name, size) in [("bf16_small", 16), ("bf16_large", 32)] {
        let mut random = Random(9);
        let k = 512 / size;
        let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| (random.below(511) as f32 - 255.0) / 32.0).collect() };
        let (a, b, c) = (values(size * k), values(size * k), values(size * size));
        let expected: Vec<f32> = (0..size * size)
            .map(|at| {
                (0..k).fold(f64::from(c[at]), |sum, i| sum + f64::from(a[at / size * k + i]) * f64::from(b[at % size * k + i])) as f32
            })
            .collect();
        let found = |object: &CodeObject| {
            let mut memory = Memory::new();
            let (a, b) = (memory.input("a", &bf16_bytes(&a)), memory.input("b", &bf16_bytes(&b)));
            let (c, d) = (memory.input("c", &f32_bytes(&c)), memory.output("d", 4 * size * size));
            let arguments = Arguments::default().at(a).at(b).u64(0).u64(0).at(c).at(d);
            run_of(object, name, &mut memory, [1, 1, 1], (64, 0), &arguments, Order::Serial).unwrap();
            f32_of(&memory, d)
        };
        assert_eq!(found(&object), expected, "{name}");
        assert_eq!(found(&broken) == expected, size == 16, "{name}");
    }
}

/// The elements that are no numbers, and the scale that is none.
#[test]
fn infinities_and_nans_go_where_they_belong() {
    let Some(object) = object(&[]) else { return };
    let mut random = Random(5);
    let (mut a, mut b) = (Matrix::random(16, 128, E5M2, &mut random), Matrix::random(16, 128, E4M3, &mut random));
    let c = vec![1.0; 256];
    let (infinity, one) = (E5M2.infinity.unwrap(), E4M3.encode(1.0));
    b.codes.iter_mut().for_each(|code| *code = one);
    // Row 3: an infinity; row 5: both infinities; row 7: a NaN; row 9: a NaN scale.
    a.codes[3 * 128 + 70] = infinity;
    (a.codes[5 * 128 + 1], a.codes[5 * 128 + 2]) = (infinity, infinity | 0x80);
    a.codes[7 * 128 + 127] = E5M2.nan.unwrap();
    a.scales[9 * 4 + 2] = 255;
    let found = run(&object, "small_e5m2_e4m3", &a, &b, &c);
    for (at, value) in found.iter().enumerate() {
        match at / 16 {
            3 => assert_eq!(*value, f32::INFINITY),
            5 | 7 | 9 => assert!(value.is_nan()),
            row => assert!(value.is_finite(), "row {row}"),
        }
    }
}

/// What the comparison says of a wrong format, byte of a scale, order along k, order of D's rows.
#[test]
fn defects_are_caught() {
    let Some(_) = object(&[]) else { return };
    let found = |flag: &str| {
        let object = object(&[flag]).unwrap();
        (0..CASES.len()).filter(|&case| !agrees(&object, case, 1)).map(|case| CASES[case].0).collect::<Vec<_>>()
    };
    assert_eq!(found("-DBREAK_FORMAT"), ["small_e5m2_e4m3", "small_e2m1_e5m2", "large_e4m3_e5m2"]);
    assert_eq!(found("-DBREAK_SCALE_BYTE"), CASES.iter().map(|case| case.0).filter(|name| name.starts_with("small")).collect::<Vec<_>>());
    // Two operands of bytes in the same wrong order agree with each other: their scales go astray, or without scales the roundings.
    assert_eq!(found("-DBREAK_LAYOUT"), CASES.iter().map(|case| case.0).filter(|name| !name.ends_with("e2m1_e2m1")).collect::<Vec<_>>());
    // C and D are read and written through the same wrong map.
    assert_eq!(found("-DBREAK_ROWS"), ["large_e2m1_e2m1", "large_e4m3_e4m3", "large_e4m3_e5m2"]);
}
