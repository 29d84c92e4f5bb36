//! `Cpu::prepare_into` against `prepare_reference`: every format, rule, rounding and rotation, on every instruction set this machine has, with
//! one thread and three, for both sides of a product, for shapes that fill nothing evenly and for extreme values. Equality is of bits (any NaN
//! equals any NaN, and an MXFP4 zero has no sign in panels).

#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::cpu::{Cpu, InstructionSet, Panels, Role, Side};
use kernels::hadamard;
use kernels::quantise::{Float, Prepared, Randomness, Source, decode_mxfp4, dequantise, prepare_reference};
use kernels::random::{Stream, StreamKey};

fn stream(tag: u64) -> Stream {
    StreamKey { seed: 7, step: tag, ..Default::default() }.stream()
}

fn cpus() -> Vec<Cpu> {
    let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_supported());
    sets.flat_map(|set| [Cpu::new(set, 1).unwrap(), Cpu::new(set, 3).unwrap()]).collect()
}

/// The bits of a value, one pattern for all NaNs.
fn bits(value: f32) -> u32 {
    if value.is_nan() { 0x7FC0_0000 } else { value.to_bits() }
}

/// Codes as the processor packs them: its integers have one zero.
fn without_negative_zeros(codes: &[u8]) -> Vec<u8> {
    let unsigned = |code: u8| if code == 8 { 0 } else { code };
    codes.iter().map(|byte| unsigned(byte & 15) | unsigned(byte >> 4) << 4).collect()
}

fn assert_same(expected: &Prepared, found: &Prepared, context: &dyn Fn() -> String) {
    match (expected, found) {
        (Prepared::Mxfp4(e), Prepared::Mxfp4(f)) => {
            let (wanted, shape) = ((e.rows, e.k, e.blocks, e.multiplier.to_bits()), (f.rows, f.k, f.blocks, f.multiplier.to_bits()));
            assert_eq!(wanted, shape, "{}", context());
            assert_eq!(e.scales, f.scales, "scales, {}", context());
            assert_eq!(e.codes, f.codes, "codes, {}", context());
        }
        (Prepared::Float(e), Prepared::Float(f)) => {
            assert_eq!((e.rows, e.k, bits(e.scale)), (f.rows, f.k, bits(f.scale)), "{}", context());
            assert_eq!(e.values.len(), f.values.len(), "{}", context());
            if let Some(at) = e.values.iter().zip(&f.values).position(|(e, f)| bits(*e) != bits(*f)) {
                panic!("element {at} is {:08x}, not {:08x}, {}", bits(f.values[at]), bits(e.values[at]), context());
            }
        }
        _ => panic!("another kind of operand, {}", context()),
    }
}

/// Every combination that `OperandSpec::validate` accepts for some k.
fn specs() -> Vec<OperandSpec> {
    let mut specs = Vec::new();
    let rotations: Vec<Option<Rotation>> = std::iter::once(None)
        .chain([16, 32, 64, 128].into_iter().flat_map(|size| [Signs::None, Signs::Fixed].map(|signs| Some(Rotation { size, signs }))))
        .collect();
    for format in [Format::E2m1, Format::E4m3, Format::E5m2, Format::Bf16, Format::F32] {
        for block in [Block::Row32, Block::Tile32, Block::Tensor] {
            for scale in [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil, ScaleRule::Current, ScaleRule::Delayed, ScaleRule::None] {
                for rounding in [Rounding::NearestEven, Rounding::Stochastic, Rounding::StochasticPrescaled] {
                    for &rotation in &rotations {
                        let spec = OperandSpec { format, block, scale, rounding, rotation };
                        if spec.validate(128).is_ok() {
                            specs.push(spec);
                        }
                    }
                }
            }
        }
    }
    specs
}

fn compare(values: &[f32], rows: usize, k: usize, spec: &OperandSpec, delayed: Option<f32>, cpus: &[Cpu]) {
    let signs = spec.rotation.map(|r| hadamard::signs(stream(2), r.size));
    let randomness = Randomness { rounding: Some(stream(1)), signs: signs.as_deref() };
    // Reused for everything, as the trainer does: nothing may survive from one operand to the next.
    let mut panels = Panels::default();
    for transposed in [false, true] {
        let source = Source { values, rows, k, transposed };
        let (mut expected, stats) = prepare_reference(source, spec, randomness, delayed).unwrap();
        // What a product with a BF16 operand takes of an MXFP4 one.
        let mut decoded = None;
        if let Prepared::Mxfp4(operand) = &mut expected {
            let values = decode_mxfp4(operand);
            decoded = Some(Prepared::Float(Float { rows, k, values, scale: operand.multiplier }));
            operand.codes = without_negative_zeros(&operand.codes);
        }
        for cpu in cpus {
            for side in [Side::Left, Side::Right] {
                for partner in [Format::E2m1, Format::Bf16] {
                    if partner == Format::Bf16 && spec.format != Format::E2m1 {
                        continue;
                    }
                    let context =
                        || format!("{cpu:?} {side:?} by {partner:?} {rows}x{k} transposed {transposed} delayed {delayed:?} {spec:?}");
                    let role = Role { side, partner };
                    let found_stats = cpu.prepare_into(source, spec, role, randomness, delayed, &mut panels).unwrap();
                    let wanted = decoded.as_ref().filter(|_| partner != Format::E2m1).unwrap_or(&expected);
                    let unpacked = panels.unpack();
                    assert_same(wanted, &unpacked, &context);
                    let dequantised = (dequantise(&unpacked), panels.dequantise());
                    assert!(
                        dequantised.0.iter().map(|&x| bits(x)).eq(dequantised.1.iter().map(|&x| bits(x))),
                        "dequantised, {}",
                        context()
                    );
                    assert_eq!(bits(stats.amax), bits(found_stats.amax), "amax, {}", context());
                }
            }
        }
    }
}

/// Roughly log-normal values of both signs, some exact zeros.
fn ordinary(count: usize, tag: u64) -> Vec<f32> {
    let s = stream(tag);
    (0..count as u64)
        .map(|i| if s.word(3 * i).is_multiple_of(50) { 0.0 } else { s.normal(3 * i + 1) * (s.normal(3 * i + 2)).exp2() })
        .collect()
}

#[test]
fn every_recipe_on_odd_shapes() {
    let (cpus, specs) = (cpus(), specs());
    assert!(specs.len() > 250, "only {} specifications", specs.len());
    for (rows, k) in [(0, 64), (1, 32), (1, 128), (17, 48), (33, 128), (5, 97), (47, 256), (130, 64)] {
        let values = ordinary(rows * k, (rows * 1000 + k) as u64);
        for spec in specs.iter().filter(|spec| spec.validate(k).is_ok()) {
            compare(&values, rows, k, spec, None, &cpus);
            if spec.scale == ScaleRule::Delayed {
                compare(&values, rows, k, spec, Some(0.37), &cpus);
            }
        }
    }
}

/// Blocks at every exponent, with mantissas around each rule's threshold and around every rounding tie; zeros, subnormals, infinities, NaN.
#[test]
fn extreme_values() {
    let mantissas = [0, 1, 0x1F_FFFF, 0x20_0000, 0x40_0000, 0x40_0001, 0x5F_FFFF, 0x60_0000, 0x60_0001, 0x7F_FFFF, 0x70_0000];
    let mut values = Vec::new();
    for exponent in 0..=255u32 {
        for (i, mantissa) in mantissas.into_iter().enumerate() {
            let largest = f32::from_bits((exponent << 23) | mantissa);
            let s = stream(u64::from(exponent) * 16 + i as u64);
            values.extend((0..32u64).map(|j| {
                let random = s.word(j);
                match j {
                    0 => {
                        if random.is_multiple_of(2) {
                            largest
                        } else {
                            -largest
                        }
                    }
                    1 => -0.0,
                    // Ties of E2M1 after a floor scale, and their neighbours.
                    2..16 => {
                        let tie = [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0][(j as usize - 2) / 2];
                        let power = f32::from_bits(exponent.clamp(3, 250) << 23) * 0.25;
                        f32::from_bits((tie * power).to_bits().wrapping_add(random % 3).wrapping_sub(1))
                    }
                    // Anything at or below the block's exponent.
                    _ => f32::from_bits((random & 0x807F_FFFF) | (exponent.saturating_sub(random >> 9 & 15)) << 23),
                }
            }));
        }
    }
    let (rows, k) = (values.len() / 128, 128);
    let check = |spec: &OperandSpec, cpus: &[Cpu]| {
        // A whole tensor with an infinity in it has one outcome; its finite part is worth a test of its own.
        compare(&values, rows, k, spec, None, cpus);
        if spec.block == Block::Tensor {
            let finite: Vec<f32> = values.iter().map(|v| if v.abs() < 1e37 { *v } else { 1e37 }).collect();
            compare(&finite, rows, k, spec, None, cpus);
            compare(&finite, rows, k, spec, Some(1e-3), cpus);
        }
    };
    let (specs, threads) = (specs(), std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for first in 0..threads {
            let share = specs.iter().skip(first).step_by(threads);
            scope.spawn(|| {
                let cpus = cpus();
                share.for_each(|spec| check(spec, &cpus));
            });
        }
    });
}

/// Transforms whose sums overflow, so that some columns are infinities or NaNs and others, column 0 among them, are finite.
#[test]
fn sums_that_overflow() {
    let large = f32::MAX / 2.0;
    let patterns: [&[f32]; 5] = [
        &[1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0],
        &[1.0, -1.0, 1.0, -1.0],
        &[1.0, 1.0],
        &[1.0, -1.0, -1.0, 1.0],
        &[1.0, 1.0, -1.0, -1.0, 0.5],
    ];
    let (rows, k) = (patterns.len() * 7, 128);
    let mut values = ordinary(rows * k, 77);
    for (row, values) in values.chunks_exact_mut(k).enumerate() {
        let at = row % 7 * 16 + row % 3;
        for (value, sign) in values[at..].iter_mut().zip(patterns[row / 7]) {
            *value = sign * large;
        }
    }
    let cpus = cpus();
    for spec in specs().iter().filter(|spec| spec.rotation.is_some()) {
        compare(&values, rows, k, spec, None, &cpus);
    }
}

#[test]
fn refusals_are_those_of_the_reference() {
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let spec = |rounding, rotation| OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Floor, rounding, rotation };
    let values = [1.0; 96];
    let source = Source { values: &values, rows: 2, k: 48, transposed: false };
    let cases = [
        (Source { rows: 3, ..source }, spec(Rounding::NearestEven, None)),
        (source, spec(Rounding::Stochastic, None)),
        (source, spec(Rounding::NearestEven, Some(Rotation { size: 32, signs: Signs::None }))),
        (source, spec(Rounding::NearestEven, Some(Rotation { size: 16, signs: Signs::Fixed }))),
    ];
    for (source, spec) in cases {
        let expected = prepare_reference(source, &spec, Randomness::default(), None).unwrap_err();
        let role = Role { side: Side::Left, partner: Format::E2m1 };
        let found = cpu.prepare_into(source, &spec, role, Randomness::default(), None, &mut Panels::default());
        assert_eq!(found.unwrap_err(), expected);
    }
}
