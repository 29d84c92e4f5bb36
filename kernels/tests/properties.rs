//! What must hold for every operand: shapes, orientation, symmetry, rotation, unbiased rounding, refusals.
//!
//! Bounds are derived where they are used. u is F32's unit roundoff, 2^-24.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs, SpecError};
use kernels::format::e2m1::E2M1;
use kernels::format::{bf16, e8m0};
use kernels::hadamard;
use kernels::quantise::{Mxfp4, PrepareError, Prepared, Randomness, Source, dequantise, mini_float, prepare_reference};
use kernels::random::{Stream, StreamKey};
use proptest::prelude::*;

const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

fn stream(seed: u64) -> Stream {
    StreamKey { seed, ..Default::default() }.stream()
}

/// Normal values of many magnitudes, with exact zeros here and there.
fn matrix(seed: u64, count: usize) -> Vec<f32> {
    let stream = stream(seed);
    let value = |i: u64| {
        if stream.word(i).is_multiple_of(17) { 0.0 } else { stream.normal(i) * 2f32.powi((stream.word(i / 48 + 99) % 9) as i32 - 4) }
    };
    (0..count as u64).map(value).collect()
}

fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

fn spec(format: Format, block: Block, scale: ScaleRule, rounding: Rounding) -> OperandSpec {
    OperandSpec { format, block, scale, rounding, rotation: None }
}

fn prepare(values: &[f32], rows: usize, spec: &OperandSpec, randomness: Randomness<'_>) -> Prepared {
    let source = Source { values, rows, k: values.len() / rows, transposed: false };
    prepare_reference(source, spec, randomness, None).expect("a valid operand").0
}

fn mxfp4(values: &[f32], rows: usize, spec: &OperandSpec, randomness: Randomness<'_>) -> Mxfp4 {
    match prepare(values, rows, spec, randomness) {
        Prepared::Mxfp4(operand) => operand,
        Prepared::Float(_) => panic!("E2M1 is prepared as codes"),
    }
}

fn code(operand: &Mxfp4, row: usize, column: usize) -> u8 {
    operand.codes[row * operand.blocks * 16 + column / 2] >> (4 * (column % 2)) & 15
}

fn rules() -> impl Strategy<Value = ScaleRule> {
    prop_oneof![Just(ScaleRule::Floor), Just(ScaleRule::Even), Just(ScaleRule::Ceil)]
}

fn roundings() -> impl Strategy<Value = Rounding> {
    prop_oneof![Just(Rounding::NearestEven), Just(Rounding::Stochastic), Just(Rounding::StochasticPrescaled)]
}

/// Every specification that is defined, without rotation.
fn specs() -> impl Strategy<Value = OperandSpec> {
    let narrow = prop_oneof![Just(Format::E2m1), Just(Format::E4m3), Just(Format::E5m2)];
    let blocks = prop_oneof![Just(Block::Row32), Just(Block::Tile32)];
    let blocked = (narrow, blocks, rules(), roundings()).prop_map(|(f, b, s, r)| spec(f, b, s, r));
    let fp8 = prop_oneof![Just(Format::E4m3), Just(Format::E5m2)];
    let two = || prop_oneof![Just(Rounding::NearestEven), Just(Rounding::Stochastic)];
    let tensor = (fp8, two()).prop_map(|(f, r)| spec(f, Block::Tensor, ScaleRule::Current, r));
    let plain = two().prop_map(|r| spec(Format::Bf16, Block::Tensor, ScaleRule::None, r));
    prop_oneof![4 => blocked, 1 => tensor, 1 => plain, 1 => Just(spec(Format::F32, Block::Tensor, ScaleRule::None, Rounding::NearestEven))]
}

fn bits(prepared: &Prepared) -> Vec<u32> {
    dequantise(prepared).iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn shapes_are_as_announced_and_padding_is_zero(rows in 1..70usize, k in 32..150usize, s in specs(), seed: u64) {
        let values = matrix(seed, rows * k);
        let prepared = prepare(&values, rows, &s, Randomness { rounding: Some(stream(1)), signs: None });
        prop_assert_eq!((prepared.rows(), prepared.k(), dequantise(&prepared).len()), (rows, k, rows * k));
        if let Prepared::Mxfp4(operand) = prepared {
            prop_assert_eq!(operand.blocks, k.div_ceil(32));
            prop_assert_eq!((operand.codes.len(), operand.scales.len()), (rows * operand.blocks * 16, rows * operand.blocks));
            for row in 0..rows {
                prop_assert!((k..operand.blocks * 32).all(|column| code(&operand, row, column) == 0));
            }
        }
    }

    /// A source stored the other way round gives the same operand: random words go with the logical index.
    #[test]
    fn a_transposed_source_equals_its_explicit_transpose(
        rows in 1..70usize, sixteens in 2..9usize, s in specs(), rotate: bool, seed: u64,
    ) {
        let k = 16 * sixteens;
        let signs = hadamard::signs(stream(seed ^ 1), 16);
        let s = OperandSpec { rotation: rotate.then_some(Rotation { size: 16, signs: Signs::PerStep }), ..s };
        let randomness = Randomness { rounding: Some(stream(seed ^ 2)), signs: Some(&signs) };
        let values = matrix(seed, rows * k);
        let flipped = transposed(&values, rows, k);
        let other = Source { values: &flipped, rows, k, transposed: true };
        let expected = prepare(&values, rows, &s, randomness);
        let (found, stats) = prepare_reference(other, &s, randomness, None).expect("a valid operand");
        prop_assert_eq!(&found, &expected);
        if !rotate {
            let largest = values.iter().map(|&v| if s.format == Format::F32 { v.abs() } else { bf16::round(v).abs() }).fold(0.0, f32::max);
            prop_assert_eq!(stats.amax, largest);
        }
    }

    /// Codes are the scalar codec's, of the exact quotient, with the word of index row * k + column.
    #[test]
    fn codes_are_the_codecs_own(rows in 1..40usize, k in 32..100usize, rule in rules(), rounding in roundings(), tile: bool, seed: u64) {
        let words = stream(seed ^ 5);
        let values = matrix(seed, rows * k);
        let block = if tile { Block::Tile32 } else { Block::Row32 };
        let operand = mxfp4(&values, rows, &spec(Format::E2m1, block, rule, rounding), Randomness { rounding: Some(words), signs: None });
        prop_assert_eq!(operand.multiplier, if rounding == Rounding::StochasticPrescaled { 4.0 / 3.0 } else { 1.0 });
        for row in 0..rows {
            for column in 0..k {
                let byte = operand.scales[row * operand.blocks + column / 32];
                // |x| and scales are moderate here: the quotient is exact in F64 and fits F32.
                let quotient = (f64::from(bf16::round(values[row * k + column])) / f64::from(e8m0::decode(byte))) as f32;
                let word = words.word((row * k + column) as u64);
                let expected = match rounding {
                    Rounding::NearestEven => E2M1.encode(quotient),
                    Rounding::Stochastic => E2M1.encode_stochastic(quotient, word),
                    Rounding::StochasticPrescaled => E2M1.encode_stochastic(quotient * 0.75, word),
                };
                prop_assert_eq!(code(&operand, row, column), expected);
            }
        }
    }

    /// A tile's byte is the largest of its rows' bytes, because every rule grows with the largest magnitude.
    #[test]
    fn a_tile_has_the_largest_of_its_rows_bytes(rows in 1..70usize, k in 32..100usize, rule in rules(), seed: u64) {
        let values = matrix(seed, rows * k);
        let of = |block| mxfp4(&values, rows, &spec(Format::E2m1, block, rule, Rounding::NearestEven), Randomness::default());
        let (tiles, lines) = (of(Block::Tile32), of(Block::Row32));
        for row in 0..rows {
            for block in 0..tiles.blocks {
                let tile = row / 32 * 32..rows.min(row / 32 * 32 + 32);
                let largest = tile.map(|r| lines.scales[r * lines.blocks + block]).max();
                prop_assert_eq!(Some(tiles.scales[row * tiles.blocks + block]), largest);
            }
        }
    }

    /// 32x32 tiles exist so that a weight and its transpose hold the same values.
    #[test]
    fn tiles_serve_both_orientations(rows in 32..80usize, k in 32..80usize, rule in rules(), seed: u64) {
        let s = spec(Format::E2m1, Block::Tile32, rule, Rounding::NearestEven);
        let values = matrix(seed, rows * k);
        let upright = dequantise(&prepare(&values, rows, &s, Randomness::default()));
        let lying = dequantise(&prepare(&transposed(&values, rows, k), k, &s, Randomness::default()));
        prop_assert_eq!(transposed(&upright, rows, k), lying);
    }

    #[test]
    fn a_power_of_two_moves_the_scale_and_nothing_else(power in -60..60i32, rule in rules(), rounding in roundings(), seed: u64) {
        let s = spec(Format::E2m1, Block::Row32, rule, rounding);
        let randomness = Randomness { rounding: Some(stream(seed)), signs: None };
        let values = matrix(seed, 256);
        let scaled: Vec<f32> = values.iter().map(|v| v * 2f32.powi(power)).collect();
        let (one, other) = (mxfp4(&values, 2, &s, randomness), mxfp4(&scaled, 2, &s, randomness));
        prop_assert_eq!(one.codes, other.codes);
        for (a, b) in one.scales.iter().zip(other.scales) {
            prop_assert!(*a == 0 || i32::from(*a) + power == i32::from(b));
        }
    }

    #[test]
    fn negation_flips_signs_and_nothing_else(s in specs(), seed: u64) {
        let randomness = Randomness { rounding: Some(stream(seed)), signs: None };
        let values = matrix(seed, 192);
        let negated: Vec<f32> = values.iter().map(|v| -v).collect();
        let flipped: Vec<u32> = bits(&prepare(&negated, 3, &s, randomness)).iter().map(|b| b ^ 1 << 31).collect();
        prop_assert_eq!(bits(&prepare(&values, 3, &s, randomness)), flipped);
    }

    /// Values that are already on the grid stay: quantising twice is quantising once. (Ends of the scale range are left out.)
    #[test]
    fn nearest_even_is_idempotent(rule in rules(), tile: bool, seed: u64) {
        let s = spec(Format::E2m1, if tile { Block::Tile32 } else { Block::Row32 }, rule, Rounding::NearestEven);
        let once = dequantise(&prepare(&matrix(seed, 320), 5, &s, Randomness::default()));
        let twice = dequantise(&prepare(&once, 5, &s, Randomness::default()));
        prop_assert_eq!(once, twice);
    }

    /// With `ceil` nothing saturates, so no error exceeds half of the widest step, which is 2 scales (4 to 6).
    #[test]
    fn ceil_errs_by_one_scale_at_most(rows in 1..40usize, k in 32..100usize, seed: u64) {
        let values = matrix(seed, rows * k);
        let operand = mxfp4(&values, rows, &spec(Format::E2m1, Block::Row32, ScaleRule::Ceil, Rounding::NearestEven), Randomness::default());
        let decoded = dequantise(&Prepared::Mxfp4(operand.clone()));
        for (i, (&value, &found)) in values.iter().zip(&decoded).enumerate() {
            let scale = e8m0::decode(operand.scales[i / k * operand.blocks + i % k / 32]);
            prop_assert!((bf16::round(value) - found).abs() <= scale);
        }
    }

    /// 0.75 * amax / scale stays below the largest element with `floor`, so every stochastic rounding has both neighbours: no
    /// element is pulled down by saturation.
    #[test]
    fn prescaled_never_saturates(
        format in prop_oneof![Just(Format::E2m1), Just(Format::E4m3), Just(Format::E5m2)],
        rule in rules(),
        amax_bits in 0x0280_0000u32..0x7F7F_FFFF,
    ) {
        let mini = mini_float(format).expect("at most 8 bits");
        let byte = e8m0::scale_byte(amax_bits, rule, &mini);
        let scaled = f32::from_bits(amax_bits) * e8m0::reciprocal(byte) * 0.75;
        prop_assert!(scaled <= mini.largest, "{} > {}", scaled, mini.largest);
        // The largest word rounds up to at most the largest code by itself: one step further would not fit below `scaled`.
        prop_assert!(mini.decode(mini.encode_stochastic(scaled, u32::MAX)) >= scaled);
    }

    /// Integers below 2^16 keep all sums of 128 exact in F32, so the transform is the matrix product and one rounding.
    #[test]
    fn the_transform_is_the_sylvester_matrix(size in prop::sample::select(hadamard::SIZES.to_vec()), seed: u64) {
        let (words, signs) = (stream(seed), hadamard::signs(stream(seed ^ 1), size));
        let x: Vec<f32> = (0..2 * size as u64).map(|i| (words.word(i) >> 16) as f32 - 32768.0).collect();
        let mut y = x.clone();
        hadamard::rotate_rows(&mut y, size, Some(&signs));
        let factor = (1.0 / (size as f64).sqrt()) as f32;
        for (block, found) in x.chunks(size).zip(y.chunks(size)) {
            for (i, found) in found.iter().enumerate() {
                let entry = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let sum: f64 = block.iter().enumerate().map(|(j, &v)| entry(j) * f64::from(signs[j]) * f64::from(v)).sum();
                prop_assert_eq!(*found, sum as f32 * factor);
            }
        }
    }

    /// Each output is sum of +-x_j (1 + t) / sqrt(n) with |t| <= g = (log2 n + 3) u: log2 n additions, one product, the rounding of
    /// 1/sqrt(n), and one u to spare for second order. So |error_i| <= g |x|_1 / sqrt(n) <= g |x|, and |error| <= sqrt(n) g |x|
    /// (Euclidean norms) for a block x of n.
    #[test]
    fn rotation_keeps_the_norm_and_is_its_own_inverse(size in prop::sample::select(hadamard::SIZES.to_vec()), seed: u64) {
        let signs = hadamard::signs(stream(seed ^ 1), size);
        let x = matrix(seed, size);
        let mut y = x.clone();
        hadamard::rotate_rows(&mut y, size, Some(&signs));
        let norm = |v: &[f32]| v.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let bound = (size as f64).sqrt() * ((size as f64).log2() + 3.0) * UNIT;
        prop_assert!((norm(&y) - norm(&x)).abs() <= bound * norm(&x));
        hadamard::rotate_rows(&mut y, size, None);
        let error: Vec<f32> = y.iter().zip(&signs).zip(&x).map(|((y, s), x)| y * s - x).collect();
        // Two transforms, the second of a vector whose norm may be larger by the first's bound.
        prop_assert!(norm(&error) <= bound * (2.0 + bound) * norm(&x) * (1.0 + 4.0 * UNIT));
    }

    /// (X H)(W H)^T = X W^T (claim C-ID), summed in F64. With the bound b above for a block x of X and w of W, each block's product is off by
    /// at most (2 b + b^2) |x| |w|; F64 sums add less than 1e-12 of sum |x_i w_i| <= |x| |w|.
    #[test]
    fn rotating_both_operands_leaves_the_product(size in prop::sample::select(hadamard::SIZES.to_vec()), seed: u64) {
        let (rows, k) = (3, 256);
        let signs = hadamard::signs(stream(seed ^ 1), size);
        let plain = spec(Format::F32, Block::Tensor, ScaleRule::None, Rounding::NearestEven);
        let rotated = OperandSpec { rotation: Some(Rotation { size, signs: Signs::PerStep }), ..plain };
        let (x, w) = (matrix(seed, rows * k), matrix(seed ^ 7, rows * k));
        let rotate = |v: &[f32]| dequantise(&prepare(v, rows, &rotated, Randomness { rounding: None, signs: Some(&signs) }));
        let (xh, wh) = (rotate(&x), rotate(&w));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let b = (size as f64).sqrt() * ((size as f64).log2() + 3.0) * UNIT;
        for i in 0..rows {
            for j in 0..rows {
                let (xi, wj) = (&x[i * k..][..k], &w[j * k..][..k]);
                let norms: f64 = xi.chunks(size).zip(wj.chunks(size)).map(|(x, w)| (dot(x, x) * dot(w, w)).sqrt()).sum();
                let difference = dot(&xh[i * k..][..k], &wh[j * k..][..k]) - dot(xi, wj);
                prop_assert!(difference.abs() <= (2.0 * b + b * b + 1e-12) * norms, "{}", difference);
            }
        }
    }
}

/// The mean over many streams of each dequantised element, against the element. Hoeffding: draws lie in one step of width w, so
/// the mean of n is off by more than w sqrt(ln(2 / 1e-9) / 2n) with probability at most 1e-9 for each of the 64 elements.
#[test]
fn stochastic_rounding_is_unbiased_where_nothing_saturates() {
    const DRAWS: usize = 20_000;
    // The second block's largest magnitude is just below 8: `floor` gives scale 1, and plain stochastic rounding must saturate there.
    let folded = matrix(3, 64).into_iter().enumerate().map(|(i, v)| if i < 32 { v } else { v.rem_euclid(6.0) });
    let mut values: Vec<f32> = folded.map(bf16::round).collect();
    values[40] = 7.875;
    for (format, widest) in [(Format::E2m1, 2.0), (Format::E4m3, 32.0), (Format::E5m2, 8192.0)] {
        for rounding in [Rounding::Stochastic, Rounding::StochasticPrescaled] {
            let s = spec(format, Block::Row32, ScaleRule::Floor, rounding);
            let mut sums = vec![0.0f64; 64];
            for draw in 0..DRAWS {
                let randomness =
                    Randomness { rounding: Some(StreamKey { seed: 11, step: draw as u64, ..Default::default() }.stream()), signs: None };
                for (sum, value) in sums.iter_mut().zip(dequantise(&prepare(&values, 1, &s, randomness))) {
                    *sum += f64::from(value);
                }
            }
            let prescaled = rounding == Rounding::StochasticPrescaled;
            let emax = mini_float(format).expect("at most 8 bits").largest_exponent as i32;
            for (block, sums) in sums.chunks(32).enumerate() {
                let amax = values[32 * block..][..32].iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let scale = 2f64.powi(f64::from(amax).log2().floor() as i32 - emax);
                let width = widest * scale * if prescaled { 4.0 / 3.0 } else { 1.0 };
                let bound = width * ((2e9f64).ln() / (2.0 * DRAWS as f64)).sqrt();
                for (i, sum) in sums.iter().enumerate() {
                    let (exact, mean) = (f64::from(values[32 * block + i]), sum / DRAWS as f64);
                    let largest = f64::from(mini_float(format).expect("at most 8 bits").largest) * scale;
                    if !prescaled && exact.abs() > largest {
                        assert_eq!(mean.abs(), largest, "plain stochastic rounding saturates: the bias that the prescale removes");
                    } else {
                        assert!((mean - exact).abs() < bound, "{format:?} {rounding:?}: {exact} has mean {mean}, bound {bound}");
                    }
                }
            }
        }
    }
}

#[test]
fn delayed_scaling_uses_the_given_magnitude_and_reports_the_current_one() {
    let delayed = spec(Format::E4m3, Block::Tensor, ScaleRule::Delayed, Rounding::NearestEven);
    let current = OperandSpec { scale: ScaleRule::Current, ..delayed };
    let values = matrix(5, 64);
    let source = Source { values: &values, rows: 2, k: 32, transposed: false };
    let of = |s: &OperandSpec, amax| prepare_reference(source, s, Randomness::default(), amax).expect("a valid operand");
    let (first, stats) = of(&delayed, None);
    assert_eq!((&first, stats), (&of(&current, None).0, of(&current, None).1));
    // A history half as large: scale twice as large, the largest values saturate at 448 / scale = half of the maximum.
    let (late, late_stats) = of(&delayed, Some(stats.amax * 0.5));
    assert_eq!(late_stats, stats);
    let largest = dequantise(&late).iter().fold(0.0f32, |m, v| m.max(v.abs()));
    assert!((largest / (0.5 * stats.amax) - 1.0).abs() < 4.0 * UNIT as f32);
    // Nothing but zeros: scale 1, no NaN.
    let zeros = Source { values: &[0.0; 64], ..source };
    let (nothing, stats) = prepare_reference(zeros, &delayed, Randomness::default(), Some(0.0)).expect("a valid operand");
    assert_eq!((dequantise(&nothing), stats.amax), (vec![0.0; 64], 0.0));
}

#[test]
fn impossible_operands_are_refused_with_a_reason() {
    let good = spec(Format::E2m1, Block::Row32, ScaleRule::Floor, Rounding::NearestEven);
    let values = [1.0f32; 96];
    let refusal = |s: OperandSpec, rows, k, randomness| {
        let source = Source { values: &values, rows, k, transposed: false };
        prepare_reference(source, &s, randomness, None).expect_err("refused")
    };
    let none = Randomness::default();
    let rotated = |size, signs| OperandSpec { rotation: Some(Rotation { size, signs }), ..good };
    assert_eq!(refusal(good, 1, 95, none), PrepareError::Length { rows: 1, k: 95, found: 96 });
    assert_eq!(refusal(rotated(64, Signs::None), 1, 96, none), SpecError::RotationAxis { size: 64, k: 96 }.into());
    assert_eq!(refusal(rotated(24, Signs::None), 1, 96, none), SpecError::RotationSize { size: 24 }.into());
    assert_eq!(refusal(good, 6, 16, none), SpecError::BlockAxis { k: 16 }.into());
    let half = [1.0f32; 16];
    let few = Randomness { rounding: None, signs: Some(&half) };
    assert!(matches!(refusal(rotated(32, Signs::Fixed), 1, 96, few), PrepareError::Randomness(_)));
    assert!(matches!(refusal(rotated(32, Signs::Fixed), 1, 96, none), PrepareError::Randomness(_)));
    assert!(matches!(refusal(OperandSpec { rounding: Rounding::Stochastic, ..good }, 1, 96, none), PrepareError::Randomness(_)));
    for bad in [
        OperandSpec { block: Block::Tensor, scale: ScaleRule::Current, ..good },
        OperandSpec { scale: ScaleRule::Current, ..good },
        OperandSpec { scale: ScaleRule::None, ..good },
        OperandSpec { format: Format::Bf16, ..good },
        OperandSpec { format: Format::F32, block: Block::Tensor, scale: ScaleRule::None, rounding: Rounding::Stochastic, ..good },
        OperandSpec { format: Format::E4m3, block: Block::Tensor, ..good },
    ] {
        assert!(matches!(refusal(bad, 1, 96, none), PrepareError::Spec(SpecError::Combination { .. })), "{bad:?}");
    }
}
