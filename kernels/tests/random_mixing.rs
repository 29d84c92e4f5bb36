//! Whether every bit of an index and of a key reaches every bit of a word, and whether pairs of words fill their cells evenly.
//!
//! random.rs looks at single bits and at what is drawn. Keys are fixed, so every test either always passes or always fails; each
//! threshold is a tail bound at e^-T: an ideal source would have failed with that probability when the keys were chosen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use kernels::random::{Stream, StreamKey};

/// Exponent of the tail probability: e^-20 is 2e-9.
const T: f64 = 20.0;

fn keys() -> Vec<StreamKey> {
    let base = StreamKey { seed: 7, step: 3, layer: 1, linear: 2, pass: 1, operand: 1 };
    vec![
        StreamKey::default(),
        base,
        StreamKey { seed: 8, ..base },
        StreamKey { step: 4, ..base },
        StreamKey { layer: 2, ..base },
        StreamKey { linear: 3, ..base },
        StreamKey { pass: 2, ..base },
        StreamKey { operand: 0, ..base },
        StreamKey { seed: u64::MAX, step: u64::MAX, layer: u32::MAX, linear: u32::MAX, pass: u32::MAX, operand: u32::MAX },
    ]
}

fn streams() -> Vec<Stream> {
    keys().iter().map(StreamKey::stream).collect()
}

/// Pearson's statistic stays inside the Laurent-Massart bounds of a chi-square with `counts.len() - 1` degrees of freedom
/// (Annals of Statistics 28, 2000, lemma 1): too even is as suspicious as too uneven.
fn assert_uniform(counts: &[u64], what: &str) {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    assert!(expected >= 50.0, "{what}: {expected} a cell is too few for the approximation");
    let statistic: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    let (low, high) = (freedom - 2.0 * (freedom * T).sqrt(), freedom + 2.0 * (freedom * T).sqrt() + 2.0 * T);
    assert!((low..=high).contains(&statistic), "{what}: chi-square {statistic} outside [{low}, {high}]");
}

/// Hoeffding's bound for the number of ones among `n` fair bits: |ones - n / 2| <= sqrt(n ln(2 e^T) / 2).
fn assert_fair(ones: u64, n: u64, what: &str) {
    let limit = (n as f64 * (T + 2f64.ln()) / 2.0).sqrt();
    assert!((ones as f64 - n as f64 / 2.0).abs() <= limit, "{what}: {ones} ones of {n}, allowed {limit} from half");
}

/// Rounding reads the low 16 to 22 bits of words at neighbouring elements, at neighbouring rows, and beyond 2^32.
#[test]
fn words_and_neighbouring_pairs_are_uniform() {
    let n = 1u64 << 18;
    for stream in streams() {
        for start in [0u64, 1 << 31, (1 << 32) - n / 2, 1 << 40] {
            for shift in [0, 8, 14, 24] {
                let mut counts = vec![0u64; 256];
                (start..start + n).for_each(|i| counts[(stream.word(i) >> shift & 255) as usize] += 1);
                assert_uniform(&counts, &format!("{stream:?} from {start}, byte at bit {shift}"));
            }
            for lag in [1u64, 2, 16, 32, 768, 1024, 65536, 1 << 32] {
                for shift in [0, 18, 28] {
                    let mut counts = vec![0u64; 256];
                    for i in start..start + n {
                        counts[((stream.word(i) >> shift & 15) << 4 | stream.word(i + lag) >> shift & 15) as usize] += 1;
                    }
                    assert_uniform(&counts, &format!("{stream:?} from {start}, lag {lag}, bits from {shift}"));
                }
            }
        }
    }
}

/// Streams whose keys differ in one field must not follow each other at the same index or one index apart.
#[test]
fn neighbouring_streams_are_independent() {
    let n = 1u64 << 18;
    let streams = streams();
    for (a, first) in streams.iter().enumerate() {
        for second in &streams[a + 1..] {
            for (offset, shift) in [(0u64, 0), (0, 18), (0, 28), (1, 18)] {
                let mut counts = vec![0u64; 256];
                for i in 0..n {
                    counts[((first.word(i) >> shift & 15) << 4 | second.word(i + offset) >> shift & 15) as usize] += 1;
                }
                assert_uniform(&counts, &format!("{first:?} and {second:?}, offset {offset}, bits from {shift}"));
            }
        }
    }
}

/// Flipping one bit of the index flips each bit of the word half of the time.
#[test]
fn index_bits_avalanche() {
    let n = 1u64 << 13;
    for stream in streams() {
        for flipped in (0..32).chain([32, 33, 40]) {
            let mut changed = [0u64; 32];
            for i in 0..n {
                let index = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
                let difference = stream.word(index) ^ stream.word(index ^ (1 << flipped));
                for (bit, changed) in changed.iter_mut().enumerate() {
                    *changed += u64::from(difference >> bit & 1);
                }
            }
            for (bit, &changed) in changed.iter().enumerate() {
                assert_fair(changed, n, &format!("{stream:?}: index bit {flipped} on word bit {bit}"));
            }
        }
    }
}

/// Flipping one bit of any field of the key flips each bit of the stream's two words half of the time.
#[test]
fn key_bits_avalanche() {
    type Flip = fn(&mut StreamKey, u32);
    let fields: [(u32, Flip); 6] = [
        (64, |k, b| k.seed ^= 1 << b),
        (64, |k, b| k.step ^= 1 << b),
        (32, |k, b| k.layer ^= 1 << b),
        (32, |k, b| k.linear ^= 1 << b),
        (32, |k, b| k.pass ^= 1 << b),
        (32, |k, b| k.operand ^= 1 << b),
    ];
    let n = 2048;
    for (field, (width, flip)) in fields.into_iter().enumerate() {
        for flipped in 0..width {
            let mut changed = [0u64; 64];
            for i in 0..n {
                let key = StreamKey {
                    seed: i,
                    step: i * 3,
                    layer: i as u32 % 48,
                    linear: i as u32 % 7,
                    pass: i as u32 % 3,
                    operand: i as u32 % 2,
                };
                let mut other = key;
                flip(&mut other, flipped);
                let (a, b) = (key.stream(), other.stream());
                let difference = u64::from(a.k0 ^ b.k0) << 32 | u64::from(a.k1 ^ b.k1);
                for (bit, changed) in changed.iter_mut().enumerate() {
                    *changed += difference >> bit & 1;
                }
            }
            for (bit, &changed) in changed.iter().enumerate() {
                assert_fair(changed, n, &format!("field {field} bit {flipped} on key bit {bit}"));
            }
        }
    }
}
