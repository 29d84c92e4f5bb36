//! Native MXFP4 through the HIP driver's host code, on the stand-in (kernels/gfx950-stand-in): operands against the scalar reference bit for
//! bit, products of every kind of result against sums made here. What the kernels' arguments are is what is tested; the kernels themselves
//! are, in every detail, in kernels/gfx950-interpreter/tests.
//!
//! The loader reads LD_LIBRARY_PATH once, so each test starts this executable again with the path set (see hip_driver.rs).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use kernels::format::bf16;
use kernels::gpu::{Bf16, Gpu, OperandSide, PackedMatrix, PackedProducts, PackedQuantiser, packed_bytes};
use kernels::hadamard;
use kernels::operand::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::quantise::{Mxfp4, Prepared, Randomness, Source, decode_mxfp4, prepare_reference};
use kernels::random::Stream;

/// Runs one of the ignored tests below with the stand-in.
fn on_the_stand_in(test: &str) {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    gfx950_stand_in::install(folder.path()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
}

#[test]
fn operands_are_those_of_the_reference() {
    on_the_stand_in("operands");
}

#[test]
fn products_are_those_of_the_definition() {
    on_the_stand_in("products");
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    on_the_stand_in("refusals");
}

/// Values that BF16 has, of different magnitudes.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bf16::round(((state >> 8) as f32 / (1 << 22) as f32 - 2.0) * 2f32.powi((state >> 4 & 7) as i32 - 4))
    };
    (0..count).map(|_| next()).collect()
}

fn encoded(values: &[f32]) -> Vec<Bf16> {
    values.iter().map(|&value| Bf16(bf16::encode(value))).collect()
}

const PLAIN: OperandSpec =
    OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Floor, rounding: Rounding::NearestEven, rotation: None };

fn reference(
    values: &[f32],
    (rows, k): (usize, usize),
    transposed: bool,
    spec: &OperandSpec,
    words: Stream,
    signs: Option<&[f32]>,
) -> Mxfp4 {
    let source = Source { values, rows, k, transposed };
    match prepare_reference(source, spec, Randomness { rounding: Some(words), signs }, None).unwrap().0 {
        Prepared::Mxfp4(operand) => operand,
        Prepared::Float(_) => panic!("E2M1 gives codes"),
    }
}

/// A specification of each kind beside another one, from one read: rotations of all sizes with and without signs, squares, roundings, rules.
#[test]
#[ignore = "runs in a process that `on_the_stand_in` starts"]
fn operands() {
    let gpu = Gpu::hip(0).unwrap();
    let (rows, columns, first) = (128, 256, 8);
    let values = numbers(first + rows * columns, 5);
    let source = gpu.upload(&encoded(&values)).unwrap();
    let values = &values[first..];
    let rotated = |size, signs| Some(Rotation { size, signs });
    let specs = [
        OperandSpec { scale: ScaleRule::Even, rotation: rotated(16, Signs::None), ..PLAIN },
        OperandSpec { rounding: Rounding::Stochastic, rotation: rotated(32, Signs::PerStep), ..PLAIN },
        OperandSpec { rounding: Rounding::StochasticPrescaled, rotation: rotated(64, Signs::Fixed), ..PLAIN },
        OperandSpec { block: Block::Tile32, scale: ScaleRule::Ceil, rotation: rotated(128, Signs::PerStep), ..PLAIN },
        PLAIN,
    ];
    for (index, row_spec) in specs.iter().enumerate() {
        let column_spec = &specs[(index + 2) % specs.len()];
        let quantiser = PackedQuantiser::new(&gpu, Some(*row_spec), Some(*column_spec)).unwrap();
        let words = [Stream { k0: 7, k1: index as u32 }, Stream { k0: 9, k1: 100 + index as u32 }];
        let signs = [row_spec, column_spec].map(|spec| {
            let rotation = spec.rotation.filter(|rotation| rotation.signs != Signs::None)?;
            Some(hadamard::signs(Stream { k0: index as u32, k1: 3 }, rotation.size))
        });
        let outs = [(); 2].map(|()| gpu.zeros::<u8>(packed_bytes(rows * columns)).unwrap());
        let side = |index: usize| OperandSide {
            out: Some(&outs[index]),
            rounding: Some(words[index]),
            signs: signs[index].as_deref(),
            ..OperandSide::default()
        };
        quantiser.run((&source, first), (rows, columns), side(0), side(1)).unwrap();
        let expected = [
            reference(values, (rows, columns), false, row_spec, words[0], signs[0].as_deref()),
            reference(values, (columns, rows), true, column_spec, words[1], signs[1].as_deref()),
        ];
        for (out, expected) in outs.iter().zip(expected) {
            assert!(out.to_vec().unwrap() == [expected.codes, expected.scales].concat(), "{index}");
        }
    }
}

/// BF16 and F32 results, whole and cut along k, alone, with something added, and into themselves, from an offset on.
#[test]
#[ignore = "runs in a process that `on_the_stand_in` starts"]
fn products() {
    let gpu = Gpu::hip(0).unwrap();
    // The last shape is cut along k.
    let shapes = [(16, 32, 32), (80, 144, 96), (16, 16, 1 << 16)];
    let products = PackedProducts::new(&gpu, &shapes).unwrap();
    for (index, &(m, n, k)) in shapes.iter().enumerate() {
        assert_eq!(products.plan(m, n, k).shares > 1, index == 2, "{:?}", products.plan(m, n, k));
        let operand = |rows: usize, seed| {
            let values = numbers(rows * k, seed);
            let source = gpu.upload(&encoded(&values)).unwrap();
            let out = gpu.zeros::<u8>(packed_bytes(rows * k)).unwrap();
            let quantiser = PackedQuantiser::new(&gpu, Some(PLAIN), None).unwrap();
            quantiser
                .run((&source, 0), (rows, k), OperandSide { out: Some(&out), ..OperandSide::default() }, OperandSide::default())
                .unwrap();
            (decode_mxfp4(&reference(&values, (rows, k), false, &PLAIN, Stream::default(), None)), out)
        };
        let ((a, left), (b, right)) = (operand(m, 1), operand(n, 2));
        let (left, right) = (PackedMatrix::new(&left, m, k).unwrap(), PackedMatrix::new(&right, n, k).unwrap());
        let (offset, alpha) = (4, 4.0 / 3.0f32);
        let old = numbers(offset + m * n, 3);
        // Sum and sum of magnitudes, in F64.
        let exact: Vec<(f64, f64)> = (0..m * n)
            .map(|at| {
                let (a, b) = (&a[at / n * k..][..k], &b[at % n * k..][..k]);
                let product = |(a, b): (&f32, &f32)| f64::from(*a) * f64::from(*b) * f64::from(alpha);
                (a.iter().zip(b).map(product).sum(), a.iter().zip(b).map(product).map(f64::abs).sum())
            })
            .collect();
        // Roundings: one for each block and share, and a few at the end; BF16 keeps 8 bits.
        let close = |name: &str, found: &[f32], added: Option<&[f32]>, is_bf16: bool| {
            for (at, (sum, magnitude)) in exact.iter().enumerate() {
                let added = f64::from(added.map_or(0.0, |added| added[at]));
                let bound = (k / 32 + 16) as f64 * 2f64.powi(-24) * (magnitude + added.abs());
                let bound = bound + if is_bf16 { (sum + added).abs() * 2f64.powi(-8) } else { 0.0 };
                let found = f64::from(found[at]);
                assert!((found - sum - added).abs() <= bound, "{name} of {m} x {n} x {k} at {at}: {found}, {}", sum + added);
            }
        };
        let decoded = |values: Vec<Bf16>| values.iter().map(|value| bf16::decode(value.0)).collect::<Vec<_>>();

        let out = gpu.upload(&old).unwrap();
        products.multiply(left, right, alpha, None, &out, offset).unwrap();
        let first = out.to_vec().unwrap();
        assert_eq!(first[..offset], old[..offset]);
        close("F32", &first[offset..], None, false);
        products.multiply(left, right, alpha, None, &out, offset).unwrap();
        assert!(out.to_vec().unwrap() == first, "the same product has the same bits");

        let out = gpu.upload(&old).unwrap();
        products.multiply_into(left, right, alpha, &out, offset).unwrap();
        close("F32 into itself", &out.to_vec().unwrap()[offset..], Some(&old[offset..]), false);

        let added = gpu.upload(&encoded(&old)).unwrap();
        let out = gpu.zeros::<Bf16>(m * n).unwrap();
        products.multiply(left, right, alpha, None, &out, 0).unwrap();
        close("BF16", &decoded(out.to_vec().unwrap()), None, true);
        products.multiply(left, right, alpha, Some(&added), &out, 0).unwrap();
        close("BF16 with something added", &decoded(out.to_vec().unwrap()), Some(&old), true);
    }
}

#[test]
#[ignore = "runs in a process that `on_the_stand_in` starts"]
fn refusals() {
    let gpu = Gpu::hip(0).unwrap();
    let bf16 = OperandSpec { format: Format::Bf16, block: Block::Tensor, scale: ScaleRule::None, ..PLAIN };
    let said = PackedQuantiser::new(&gpu, Some(bf16), None).unwrap_err().to_string();
    assert!(said.contains("operands of format Bf16 have no packed form; only e2m1 in blocks has"), "{said}");
    let quantiser = PackedQuantiser::new(&gpu, Some(PLAIN), None).unwrap();
    let source = gpu.zeros::<Bf16>(4096).unwrap();
    let out = gpu.zeros::<u8>(packed_bytes(2048)).unwrap();
    let run = |first, shape, side: OperandSide<'_>| quantiser.run((&source, first), shape, side, OperandSide::default());
    let wanted = OperandSide { out: Some(&out), ..OperandSide::default() };
    run(0, (32, 64), wanted).unwrap();
    for (first, shape, side, expected) in [
        (0, (32, 48), wanted, "a contraction axis of 48 elements is no multiple of 32: take the emulated path"),
        (4, (16, 64), wanted, "a source of 64 columns from element 4 on: both must be multiples of 8"),
        (0, (64, 64), wanted, "an operand's buffer has 1088 elements, 2176 are needed"),
        (0, (64, 128), wanted, "the source has 4096 elements, 8192 are needed"),
        (
            0,
            (32, 64),
            OperandSide { signs: Some(&[1.0; 16]), ..wanted },
            "a randomized rotation needs as many signs as its size, any other none",
        ),
    ] {
        let said = run(first, shape, side).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    let products = PackedProducts::new(&gpu, &[]).unwrap();
    let matrix = |rows, k| PackedMatrix::new(&out, rows, k).unwrap();
    let result = gpu.zeros::<f32>(1024).unwrap();
    let said = products.multiply(matrix(24, 32), matrix(32, 32), 1.0, None, &result, 0).unwrap_err().to_string();
    assert!(said.contains("a product of 24 x 32 over 32 is not multiplied natively: sides must be multiples of 16"), "{said}");
    let said = products.multiply(matrix(32, 32), matrix(32, 64), 1.0, None, &result, 0).unwrap_err().to_string();
    assert!(said.contains("contraction axes of 32 and 64 elements"), "{said}");
    let said = products.multiply(matrix(32, 32), matrix(32, 32), 1.0, None, &result, 4).unwrap_err().to_string();
    assert!(said.contains("the result has 1024 elements, 1028 are needed"), "{said}");
}
