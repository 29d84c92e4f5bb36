//! Native MXFP4 through the HIP driver's host code, on the stand-in (kernels/gfx950/stand-in): operands against the scalar reference bit for
//! bit, products of every kind of result against sums made here. What the kernels' arguments are is what is tested; the kernels themselves
//! are, in every detail, in kernels/gfx950/interpreter/tests.
//!
//! The loader reads LD_LIBRARY_PATH once, so each test starts this executable again with the path set (see hip_driver.rs).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::format::bf16;
use kernels::gpu::{Bf16, Buffer, Gpu, OperandSide, PackedMatrix, PackedProducts, PackedQuantiser, ScaleLayout, packed_bytes};
use kernels::hadamard;
use kernels::quantise::{Mxfp4, Prepared, Randomness, Source, decode_mxfp4, prepare_reference};
use kernels::random::Stream;

/// Runs one of the ignored tests below with the stand-in.
fn on_the_stand_in(test: &str) {
    with_variables(test, &[]);
}

fn with_variables(test: &str, variables: &[(&str, &str)]) {
    if !gfx950_stand_in::has_clang() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    gfx950_stand_in::install(folder.path()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("hip_mxfp4::{test}"), "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", folder.path()).env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("ROCM_PATH");
    command.envs(variables.iter().copied());
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
fn ours_and_the_librarys_products_agree() {
    on_the_stand_in("library_products");
}

#[test]
fn a_library_without_such_products_is_named() {
    with_variables("without_blocks", &[("GFX950_STAND_IN_MXFP4", "none")]);
    with_variables("without_swizzled", &[("GFX950_STAND_IN_MXFP4", "rows")]);
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
        let words = [Stream::new(7, index as u32), Stream::new(9, 100 + index as u32)];
        let signs = [row_spec, column_spec].map(|spec| {
            let rotation = spec.rotation.filter(|rotation| rotation.signs != Signs::None)?;
            Some(hadamard::signs(Stream::new(index as u32, 3), rotation.size))
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

/// A source quantised with scales by rows and swizzled, and its values.
struct Operand {
    values: Vec<f32>,
    by_rows: Buffer<u8>,
    swizzled: Option<Buffer<u8>>,
}

fn operand(gpu: &Gpu, (rows, k): (usize, usize), transposed: bool, seed: u32) -> Operand {
    let spec = OperandSpec { rotation: Some(Rotation { size: 16, signs: Signs::None }), ..PLAIN };
    let values = numbers(rows * k, seed);
    let source = gpu.upload(&encoded(&values)).unwrap();
    let (row_spec, column_spec) = if transposed { (None, Some(spec)) } else { (Some(spec), None) };
    let quantiser = PackedQuantiser::new(gpu, row_spec, column_spec).unwrap();
    let run = |quantiser: &PackedQuantiser| {
        let out = gpu.buffer::<u8>(packed_bytes(rows * k)).unwrap();
        let (side, none) = (OperandSide { out: Some(&out), ..OperandSide::default() }, OperandSide::default());
        let (size, row_side, column_side) = if transposed { ((k, rows), none, side) } else { ((rows, k), side, none) };
        quantiser.run((&source, 0), size, row_side, column_side).map(|()| out)
    };
    let by_rows = run(&quantiser).unwrap();
    let swizzled = run(&quantiser.swizzled());
    assert_eq!(swizzled.is_ok(), rows % 32 == 0 && k % 256 == 0, "{swizzled:?}");
    let values = decode_mxfp4(&reference(&values, (rows, k), transposed, &spec, Stream::default(), None));
    Operand { values, by_rows, swizzled: swizzled.ok() }
}

/// Ours, the library's with either layout of scales, and sums in F64 of what the reference says the operands are. Shapes of the table: the
/// three passes of the `cpu` profile's first linear (1024 tokens; forward, and backward with one and with both operands along columns), and the
/// weight gradient of another; then one whose edges fill no tile.
#[test]
#[ignore = "runs in a process that `on_the_stand_in` starts"]
fn library_products() {
    let gpu = Gpu::hip(0).unwrap();
    let ours = PackedProducts::new(&gpu, &[]).unwrap();
    let shapes = [
        (1024, 256, 128, [false, false]),
        (1024, 128, 256, [false, true]),
        (256, 128, 1024, [true, true]),
        (128, 128, 1024, [true, true]),
        (48, 80, 128, [false, false]),
    ];
    for (m, n, k, transposed) in shapes {
        let (left, right) = (operand(&gpu, (m, k), transposed[0], 11), operand(&gpu, (n, k), transposed[1], 12));
        let packed = |operand: &Operand, rows| PackedMatrix::new(&operand.by_rows, rows, k).unwrap();
        let exact: Vec<(f64, f64)> = (0..m * n)
            .map(|at| {
                let (a, b) = (&left.values[at / n * k..][..k], &right.values[at % n * k..][..k]);
                let product = |(a, b): (&f32, &f32)| f64::from(*a) * f64::from(*b);
                (a.iter().zip(b).map(product).sum(), a.iter().zip(b).map(product).map(f64::abs).sum())
            })
            .collect();
        // Both sum blocks of 32 exactly; F32 keeps 24 bits from block to block, BF16 eight at the end.
        let close = |name: &str, found: &[f32], is_bf16: bool| {
            for (at, ((sum, magnitude), found)) in exact.iter().zip(found).enumerate() {
                let bound = (k / 32) as f64 * 2f64.powi(-24) * magnitude + if is_bf16 { sum.abs() * 2f64.powi(-8) } else { 0.0 };
                assert!((f64::from(*found) - sum).abs() <= bound, "{name}, {m} x {n} x {k} at {at}: {found}, {sum}");
            }
        };
        let decoded = |values: Vec<Bf16>| values.iter().map(|value| bf16::decode(value.0)).collect::<Vec<_>>();
        let out = gpu.buffer::<f32>(m * n).unwrap();
        ours.multiply(packed(&left, m), packed(&right, n), 1.0, None, &out, 0).unwrap();
        close("ours", &out.to_vec().unwrap(), false);

        let offset = 4;
        let out = gpu.upload(&vec![7.0f32; offset + m * n]).unwrap();
        gpu.multiply_packed(packed(&left, m), packed(&right, n), 1.0, None, &out, offset).unwrap();
        let by_rows = out.to_vec().unwrap();
        assert_eq!(by_rows[..offset], [7.0; 4]);
        close("the library's", &by_rows[offset..], false);
        let out = gpu.buffer::<Bf16>(m * n).unwrap();
        gpu.multiply_packed(packed(&left, m), packed(&right, n), 1.0, None, &out, 0).unwrap();
        close("the library's, BF16", &decoded(out.to_vec().unwrap()), true);

        // A factor, and something added: one rounding of each to F32, and of the sum. Then once more onto what is there.
        let (alpha, seven) = (4.0f32 / 3.0, |at: usize| (at % 7) as f32 - 3.0);
        let added = gpu.upload(&(0..m * n).map(seven).collect::<Vec<_>>()).unwrap();
        let out = gpu.buffer::<f32>(m * n).unwrap();
        gpu.multiply_packed(packed(&left, m), packed(&right, n), alpha, Some(&added), &out, 0).unwrap();
        let once = out.to_vec().unwrap();
        gpu.multiply_packed(packed(&left, m), packed(&right, n), alpha, Some(&out), &out, 0).unwrap();
        for (at, (once, twice)) in once.into_iter().zip(out.to_vec().unwrap()).enumerate() {
            let (sum, magnitude) = exact[at];
            for (times, found) in [(1.0, once), (2.0, twice)] {
                let expected = times * f64::from(alpha) * sum + f64::from(seven(at));
                let bound = times * ((k / 32 + 2) as f64 * magnitude * f64::from(alpha) + 2.0 * expected.abs() + 3.0) * 2f64.powi(-24);
                assert!((f64::from(found) - expected).abs() <= bound, "{m} x {n} x {k} at {at}, {times} times: {found}, {expected}");
            }
        }

        let (Some(left), Some(right)) = (&left.swizzled, &right.swizzled) else { continue };
        let [left, right] = [(left, m), (right, n)].map(|(bytes, rows)| PackedMatrix::swizzled(bytes, rows, k).unwrap());
        let out = gpu.buffer::<f32>(m * n).unwrap();
        gpu.multiply_packed(left, right, 1.0, None, &out, 0).unwrap();
        // The same operands, so the same bits.
        assert!(out.to_vec().unwrap() == by_rows[offset..], "swizzled scales of {m} x {n} x {k}");
        // Scales taken for what they are not give something else: the layout matters here.
        let mistaken = |side: PackedMatrix| PackedMatrix { layout: ScaleLayout::Rows, ..side };
        gpu.multiply_packed(mistaken(left), mistaken(right), 1.0, None, &out, 0).unwrap();
        assert!(out.to_vec().unwrap() != by_rows[offset..], "{m} x {n} x {k}: rows and tiles are the same");
        let said = ours.multiply(left, right, 1.0, None, &out, 0).unwrap_err().to_string();
        assert_eq!(said, "mxfp4_gemm: scales that are swizzled, which these kernels do not read");
    }
    // What the library's reference does not allow is not asked for, and what a layout leaves unwritten is not read.
    let bytes = gpu.zeros::<u8>(packed_bytes(256 * 256)).unwrap();
    let out = gpu.buffer::<f32>(256 * 256).unwrap();
    let by_rows = |rows, k| PackedMatrix::new(&bytes, rows, k).unwrap();
    for (left, right, expected) in [
        (
            by_rows(24, 128),
            by_rows(32, 128),
            "hipBLASLt multiplies MXFP4 with sides in multiples of 16 and contraction axes of 128, not 24 x 32 over 128",
        ),
        (
            by_rows(32, 96),
            by_rows(32, 96),
            "hipBLASLt multiplies MXFP4 with sides in multiples of 16 and contraction axes of 128, not 32 x 32 over 96",
        ),
        (by_rows(32, 128), by_rows(32, 256), "multiply_packed: contraction axes of 128 and 256 elements, scales Rows and Rows"),
    ] {
        assert_eq!(gpu.multiply_packed(left, right, 1.0, None, &out, 0).unwrap_err().to_string(), expected);
    }
    let said = PackedMatrix::swizzled(&bytes, 48, 256).unwrap_err().to_string();
    assert_eq!(
        said,
        "swizzled scales of [48, 256] have padding, which is not made here: rows must be multiples of 32, the contraction axis of 256"
    );
    let short = gpu.zeros::<f32>(256 * 256 - 1).unwrap();
    let said = gpu.multiply_packed(by_rows(256, 128), by_rows(256, 128), 1.0, Some(&short), &out, 0).unwrap_err().to_string();
    assert_eq!(said, "multiply_packed: what is added has 65535 elements, 65536 are needed");
    let said = gpu.multiply_packed(by_rows(256, 128), by_rows(256, 128), 1.0, None, &out, 1).unwrap_err().to_string();
    assert_eq!(said, "multiply_packed: the result has 65536 elements, 65537 are needed");
}

/// What a library from before ROCm 7 says, and one from before 7.2.
fn said_of(layout: ScaleLayout) -> Result<(), String> {
    let gpu = Gpu::hip(0).unwrap();
    let bytes = gpu.zeros::<u8>(packed_bytes(32 * 256)).unwrap();
    let out = gpu.buffer::<f32>(32 * 32).unwrap();
    let side = PackedMatrix { layout, ..PackedMatrix::new(&bytes, 32, 256).unwrap() };
    gpu.multiply_packed(side, side, 1.0, None, &out, 0).map_err(|error| error.to_string())
}

const SINCE: &str = "products of MXFP4 come with hipBLASLt of ROCm 7.0 for gfx950, swizzled scales (mode 1001) with 7.2";

#[test]
#[ignore = "runs in a process that `with_variables` starts"]
fn without_blocks() {
    for (layout, mode) in [(ScaleLayout::Rows, 2), (ScaleLayout::Swizzled, 1001)] {
        assert_eq!(said_of(layout), Err(format!("hipBLASLt 0.1.0 does not take scales of blocks (mode {mode}); {SINCE}")));
    }
}

#[test]
#[ignore = "runs in a process that `with_variables` starts"]
fn without_swizzled() {
    assert_eq!(said_of(ScaleLayout::Rows), Ok(()));
    let expected = "hipBLASLt 0.1.0 has no algorithm for MXFP4 [32, 256] x MXFP4 [32, 256] with F32 out; scales of blocks in mode 1001";
    assert_eq!(said_of(ScaleLayout::Swizzled), Err(format!("{expected}; {SINCE}")));
}
