//! What a prepared operand owes to the definition, checked in F64 without the codecs: nearest values, the place of the largest
//! magnitude, independence of rows and blocks, refusals; and the error figures reported about it.
//!
//! Symmetries, rotations and stochastic rounding are in properties.rs; vectors from other implementations in conformance.rs.

#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule};
use kernels::hadamard::rotate_rows;
use kernels::quantise::{
    Mxfp4, PrepareError, Prepared, Randomness, Source, block_ratios, dequantise, error_metrics, prepare_reference, rotated,
};
use kernels::random::StreamKey;
use proptest::prelude::*;

const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

fn spec(block: Block, scale: ScaleRule) -> OperandSpec {
    OperandSpec { format: Format::E2m1, block, scale, rounding: Rounding::NearestEven, rotation: None }
}

/// Normal values around 2^exponent with a few outliers.
fn matrix(seed: u64, count: usize, exponent: i32) -> Vec<f32> {
    let stream = StreamKey { seed, ..StreamKey::default() }.stream();
    let outlier = |i| if stream.word(i).is_multiple_of(37) { 16.0 } else { 1.0 };
    (0..count as u64).map(|i| stream.normal(i) * outlier(i) * 2f32.powi(exponent)).collect()
}

fn prepare(values: &[f32], rows: usize, k: usize, spec: &OperandSpec) -> Mxfp4 {
    let rounding = Some(StreamKey { seed: 9, ..StreamKey::default() }.stream());
    let source = Source { values, rows, k, transposed: false };
    match prepare_reference(source, spec, Randomness { rounding, signs: None }, None).unwrap().0 {
        Prepared::Mxfp4(operand) => operand,
        Prepared::Float(_) => panic!("expected MXFP4"),
    }
}

/// What gets quantised: the source in BF16.
fn exact(values: &[f32], rows: usize, k: usize) -> Vec<f32> {
    rotated(&Source { values, rows, k, transposed: false }, &spec(Block::Row32, ScaleRule::Floor), None)
}

fn power(byte: u8) -> f64 {
    2f64.powi(i32::from(byte) - 127)
}

fn rules() -> impl Strategy<Value = ScaleRule> {
    prop_oneof![Just(ScaleRule::Floor), Just(ScaleRule::Even), Just(ScaleRule::Ceil)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every value is one of the nearest that its scale offers, found by looking at all eight magnitudes.
    #[test]
    fn nearest_even_picks_a_nearest_value(rows in 1usize..5, k in 32usize..100, exponent in -120i32..100, seed: u64, rule in rules(), tile: bool) {
        let values = matrix(seed, rows * k, exponent);
        let operand = prepare(&values, rows, k, &spec(if tile { Block::Tile32 } else { Block::Row32 }, rule));
        let found = dequantise(&Prepared::Mxfp4(operand.clone()));
        for (i, (x, q)) in exact(&values, rows, k).into_iter().zip(found).enumerate() {
            let scale = power(operand.scales[i / k * operand.blocks + i % k / 32]);
            let best = E2M1.iter().map(|m| (f64::from(x).abs() - m * scale).abs()).fold(f64::INFINITY, f64::min);
            prop_assert_eq!((f64::from(x) - f64::from(q)).abs(), best, "{} became {} at scale {}", x, q, scale);
            prop_assert_eq!(x.is_sign_negative(), q.is_sign_negative());
        }
    }

    /// Where each rule puts the largest magnitude of a block, in units of the scale.
    #[test]
    fn scales_put_the_largest_magnitude_where_the_rule_says(k in 32usize..100, exponent in -100i32..100, seed: u64, rule in rules()) {
        let values = matrix(seed, k, exponent);
        let operand = prepare(&values, 1, k, &spec(Block::Row32, rule));
        let range = match rule {
            ScaleRule::Floor => 4.0..8.0,
            ScaleRule::Even => 3.5..7.0,
            _ => 3.0f64.next_up()..6.0f64.next_up(),
        };
        for (block, &byte) in exact(&values, 1, k).chunks(32).zip(&operand.scales) {
            let largest = block.iter().fold(0.0, |m, &x| f64::max(m, f64::from(x).abs())) / power(byte);
            prop_assert!(range.contains(&largest), "{:?}: {}", rule, largest);
        }
    }

    /// Rows do not see each other under 1x32, and the padding of a last partial block is zeros.
    #[test]
    fn rows_are_independent(rows in 1usize..6, k in 32usize..100, seed: u64, rule in rules()) {
        let values = matrix(seed, rows * k, 0);
        let s = spec(Block::Row32, rule);
        let whole = prepare(&values, rows, k, &s);
        let (width, padded) = (whole.blocks * 16, k.next_multiple_of(32));
        for row in 0..rows {
            let mut line = values[row * k..(row + 1) * k].to_vec();
            line.resize(padded, 0.0);
            let alone = prepare(&line, 1, padded, &s);
            prop_assert_eq!(&whole.codes[row * width..(row + 1) * width], &alone.codes[..]);
            prop_assert_eq!(&whole.scales[row * whole.blocks..(row + 1) * whole.blocks], &alone.scales[..]);
        }
    }
}

#[test]
fn a_nan_or_infinity_marks_its_block_and_no_other() {
    // F32::MAX is infinite in BF16.
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        for rounding in [Rounding::NearestEven, Rounding::Stochastic, Rounding::StochasticPrescaled] {
            let s = OperandSpec { rounding, ..spec(Block::Row32, ScaleRule::Floor) };
            let mut values = matrix(3, 192, 0);
            let clean = prepare(&values, 2, 96, &s);
            values[96 + 40] = bad; // row 1, block 1
            let operand = prepare(&values, 2, 96, &s);
            assert_eq!((operand.scales[4], &operand.codes[64..80]), (255, &[0u8; 16][..]));
            for block in [0, 1, 2, 3, 5] {
                assert_eq!(operand.scales[block], clean.scales[block]);
                assert_eq!(operand.codes[block * 16..][..16], clean.codes[block * 16..][..16]);
            }
        }
    }
}

/// 2^58 * 2^6 wraps to zero, which would agree with an empty slice.
#[test]
fn a_shape_beyond_the_address_space_is_refused() {
    let source = Source { values: &[], rows: 1 << 58, k: 64, transposed: false };
    let refusal = prepare_reference(source, &spec(Block::Row32, ScaleRule::Floor), Randomness::default(), None).unwrap_err();
    assert_eq!(refusal, PrepareError::Length { rows: 1 << 58, k: 64, found: 0 });
}

#[test]
fn an_empty_operand_stays_empty() {
    let source = Source { values: &[], rows: 0, k: 64, transposed: false };
    let (prepared, stats) = prepare_reference(source, &spec(Block::Tile32, ScaleRule::Even), Randomness::default(), None).unwrap();
    assert_eq!((prepared.rows(), prepared.k(), stats.amax, dequantise(&prepared).len()), (0, 64, 0.0, 0));
}

#[test]
fn error_metrics_are_what_their_definitions_say() {
    let same = error_metrics(&[1.0, -2.0], &[1.0, -2.0]);
    assert_eq!((same.relative_error, same.bias), (0.0, 0.0));
    assert!((same.cosine - 1.0).abs() < 1e-15);
    // |(0, 1)| / |(3, 4)|; 1 / 7; (9 + 20) / (5 sqrt(34)). A handful of F64 roundings: 1e-15.
    let off = error_metrics(&[3.0, 4.0], &[3.0, 5.0]);
    assert!((off.relative_error - 0.2).abs() < 1e-15 && (off.bias - 1.0 / 7.0).abs() < 1e-15);
    assert!((off.cosine - 29.0 / (5.0 * 34f64.sqrt())).abs() < 1e-15);
    assert_eq!(error_metrics(&[0.0; 4], &[0.0; 4]).cosine, 1.0);
}

/// A lone outlier has the largest possible ratio, sqrt(32), and a rotation over its whole block the smallest, 1.
#[test]
fn rotation_spreads_a_lone_outlier_over_its_block() {
    let mut before = vec![0.0f32; 96];
    before[37] = 5.0;
    let mut after = before.clone();
    rotate_rows(&mut after, 32, None);
    let ratios = block_ratios(&before, Some(&after), 96);
    for (found, expected) in
        [(ratios.before, 32f64.sqrt()), (ratios.outliers_before, 32f64.sqrt()), (ratios.after, 1.0), (ratios.outliers_after, 1.0)]
    {
        assert!((found - expected).abs() < 1e-12, "{ratios:?}");
    }
}
