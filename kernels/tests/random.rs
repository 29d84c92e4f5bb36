//! Whether the counter hash is random enough for rounding, signs, orders and initial weights.
//!
//! Keys are fixed, so every test either always passes or always fails. Each threshold comes from a tail bound at
//! e^-T: an ideal source would have failed with that probability when the keys were chosen.

use std::collections::HashSet;

use kernels::hadamard::signs;
use kernels::random::{Stream, StreamKey, permutation};


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

#[test]
fn every_bit_is_fair() {
    let n = 1 << 18;
    for stream in streams() {
        let mut ones = [0u64; 32];
        for index in 0..n {
            let word = stream.word(index);
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += u64::from(word >> bit & 1);
            }
        }
        for (bit, &ones) in ones.iter().enumerate() {
            assert_fair(ones, n, &format!("{stream:?} bit {bit}"));
        }
    }
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
                let key = StreamKey { seed: i, step: i * 3, layer: i as u32 % 48, linear: i as u32 % 7, pass: i as u32 % 3, operand: i as u32 % 2 };
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

/// All streams that a small run uses are different: 2^20 keys of 64 bits collide with probability 2^-25.
#[test]
fn streams_of_a_run_are_distinct() {
    let mut seen = HashSet::new();
    for index in 0..1u64 << 20 {
        let part = |shift: u32, bits: u32| (index >> shift & ((1 << bits) - 1)) as u32;
        let key = StreamKey { seed: 1, step: u64::from(part(10, 10)), layer: part(6, 4), linear: part(3, 3), pass: part(1, 2), operand: part(0, 1) };
        let stream = key.stream();
        assert!(seen.insert((stream.k0, stream.k1)), "{key:?} repeats a stream");
    }
}

/// Kolmogorov-Smirnov distance within the Dvoretzky-Kiefer-Wolfowitz bound (Massart's constant): sqrt(ln(2 e^T) / 2n).
fn assert_distributed(mut sample: Vec<f64>, distribution: impl Fn(f64) -> f64, what: &str) {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let at = |i: usize, x: f64| (distribution(x) - i as f64 / n).abs().max((distribution(x) - (i + 1) as f64 / n).abs());
    let distance = sample.iter().enumerate().map(|(i, &x)| at(i, x)).fold(0.0, f64::max);
    let limit = ((T + 2f64.ln()) / (2.0 * n)).sqrt();
    assert!(distance <= limit, "{what}: distance {distance} above {limit}");
}

#[test]
fn uniform_and_normal_have_their_distributions() {
    let n = 1u64 << 17;
    for stream in streams() {
        let uniform: Vec<f64> = (0..n).map(|i| stream.uniform(i)).collect();
        assert!(uniform.iter().all(|u| (0.0..1.0).contains(u)));
        assert_distributed(uniform, |x| x, "uniform");
        let normal: Vec<f64> = (0..n).map(|i| f64::from(stream.normal(i))).collect();
        // P(|Z| > 8) is 1.2e-15; the generator's own limit is sqrt(2 * 53 ln 2) = 8.57.
        assert!(normal.iter().all(|z| z.abs() < 8.0));
        // Sum of squares: a chi-square with n degrees of freedom, Laurent-Massart as above.
        let squares: f64 = normal.iter().map(|z| z * z).sum();
        assert!((squares - n as f64).abs() <= 2.0 * (n as f64 * T).sqrt() + 2.0 * T, "variance {}", squares / n as f64);
        assert_distributed(normal, |x| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2), "normal");
    }
}

#[test]
fn permutations_hold_every_index_once() {
    for stream in streams() {
        for n in [0usize, 1, 2, 3, 31, 32, 1000, 65537] {
            let mut order = permutation(stream, n);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..n as u32), "n = {n}");
        }
    }
}

#[test]
fn all_orders_of_four_are_equally_likely() {
    let mut counts = [0u64; 256];
    for seed in 0..48_000 {
        let order = permutation(StreamKey { seed, ..StreamKey::default() }.stream(), 4);
        counts[order.iter().fold(0, |code, &i| code * 4 + i as usize)] += 1;
    }
    let seen: Vec<u64> = counts.into_iter().filter(|&c| c > 0).collect();
    assert_eq!(seen.len(), 24);
    assert_uniform(&seen, "orders of four");
}

#[test]
fn every_element_is_equally_likely_in_every_place() {
    let n = 16;
    let mut counts = vec![0u64; n * n];
    for seed in 0..32_768 {
        let order = permutation(StreamKey { seed, step: 5, ..StreamKey::default() }.stream(), n);
        order.iter().enumerate().for_each(|(place, &element)| counts[place * n + element as usize] += 1);
    }
    // Row by row: the whole table has fewer degrees of freedom than cells.
    for (place, row) in counts.chunks(n).enumerate() {
        assert_uniform(row, &format!("place {place}"));
    }
}

/// Sign vectors of consecutive steps: each entry fair, each pair of entries and each pair of steps uncorrelated.
#[test]
fn signs_are_fair_and_change_with_the_step() {
    let (size, steps) = (128, 1u64 << 12);
    let draw = |step| signs(StreamKey { seed: 3, step, ..StreamKey::default() }.stream(), size);
    let all: Vec<Vec<f32>> = (0..=steps).map(draw).collect();
    assert!(all.iter().flatten().all(|s| s.abs() == 1.0));
    let count = |f: &dyn Fn(usize) -> bool| (0..steps as usize).filter(|&step| f(step)).count() as u64;
    for i in 0..size {
        assert_fair(count(&|step| all[step][i] > 0.0), steps, &format!("sign {i}"));
        assert_fair(count(&|step| all[step][i] == all[step + 1][i]), steps, &format!("sign {i} and the next step's"));
        assert_fair(count(&|step| all[step][i] == all[step][(i + 1) % size]), steps, &format!("signs {i} and {}", (i + 1) % size));
    }
}
