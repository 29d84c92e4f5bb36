//! Statistics of the counter hash and what is drawn from it. Keys are fixed, so a result never changes from run to run.
//!
//! Every threshold is a tail bound at about 1e-9 for the null hypothesis (ideal random words), named where it is used; with a
//! few hundred comparisons a sound generator fails somewhere with probability below 1e-6, and a biased one fails for certain.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use kernels::hadamard;
use kernels::random::{Stream, StreamKey, permutation};

/// Of one comparison: exp(-21).
const TAIL: f64 = 21.0;
/// |z| of a binomial count: Hoeffding, P(|count - n/2| >= z sqrt(n) / 2) <= 2 exp(-z^2 / 2), at z = 6.5: 1.3e-9.
const DEVIATIONS: f64 = 6.5;

fn streams() -> Vec<Stream> {
    let default = StreamKey::default();
    let keys = [
        default,
        StreamKey { seed: 1, ..default },
        StreamKey { step: 1, ..default },
        StreamKey { seed: 42, step: 1000, layer: 3, linear: 2, pass: 1, operand: 1 },
        StreamKey { seed: u64::MAX, step: u64::MAX, layer: u32::MAX, linear: 1, pass: 2, operand: 0 },
    ];
    keys.iter().map(StreamKey::stream).collect()
}

/// Half of `n` cases are so.
fn assert_half(count: u64, n: u64, what: &str) {
    let z = (count as f64 - 0.5 * n as f64) / (0.5 * (n as f64).sqrt());
    assert!(z.abs() < DEVIATIONS, "{what}: {count} of {n} ({z:.1} standard deviations)");
}

/// Each of the 32 bits is set in half of the words.
fn assert_balanced(words: impl Iterator<Item = u32>, what: &str) {
    let (mut ones, mut n) = ([0u64; 32], 0u64);
    for word in words {
        n += 1;
        for (bit, count) in ones.iter_mut().enumerate() {
            *count += u64::from(word >> bit & 1);
        }
    }
    for (bit, &count) in ones.iter().enumerate() {
        assert_half(count, n, &format!("{what}, bit {bit}"));
    }
}

/// Pearson's statistic of equally likely cells, within Laurent and Massart's bounds for chi-square: above
/// v + 2 sqrt(v x) + 2x, or below v - 2 sqrt(v x), with probability at most exp(-x).
fn assert_uniform_cells(counts: &[u64], what: &str) {
    let total: u64 = counts.iter().sum();
    let expected = total as f64 / counts.len() as f64;
    assert!(expected >= 50.0, "too few draws for the chi-square approximation");
    let statistic: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    let spread = 2.0 * (freedom * TAIL).sqrt();
    assert!(statistic < freedom + spread + 2.0 * TAIL, "{what}: chi-square {statistic:.0} for {freedom} degrees of freedom");
    assert!(statistic > freedom - spread, "{what}: chi-square {statistic:.0} is too even for {freedom} degrees of freedom");
}

/// Largest distance of the empirical distribution from `cdf`, within the Dvoretzky-Kiefer-Wolfowitz bound 2 exp(-2 n e^2).
fn assert_distributed(mut sample: Vec<f64>, cdf: impl Fn(f64) -> f64, what: &str) {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = sample.iter().enumerate().map(|(i, &x)| (cdf(x) - i as f64 / n).abs().max((cdf(x) - (i + 1) as f64 / n).abs()));
    let (distance, limit) = (distance.fold(0.0, f64::max), ((TAIL + 2f64.ln()) / (2.0 * n)).sqrt());
    assert!(distance < limit, "{what}: distance {distance:.5}, at most {limit:.5}");
}

#[test]
fn every_bit_is_balanced_alone_and_against_its_neighbours() {
    for (i, stream) in streams().into_iter().enumerate() {
        for start in [0, u64::from(u32::MAX) - (1 << 19)] {
            let range = start..start + (1 << 20);
            assert_balanced(range.clone().map(|x| stream.word(x)), &format!("stream {i} from {start}"));
            // Neighbours along a row, across a block, and in the next row of common widths.
            for distance in [1, 2, 16, 32, 128, 768, 4096] {
                let pairs = range.clone().step_by(4).map(|x| stream.word(x) ^ stream.word(x + distance));
                assert_balanced(pairs, &format!("stream {i} at distance {distance}"));
            }
        }
    }
}

#[test]
fn keys_that_differ_by_one_anywhere_give_unrelated_streams() {
    let key = StreamKey { seed: 3, step: 5, layer: 2, linear: 1, pass: 1, operand: 0 };
    let neighbours = [
        StreamKey { seed: 4, ..key },
        StreamKey { step: 6, ..key },
        StreamKey { layer: 3, ..key },
        StreamKey { linear: 2, ..key },
        StreamKey { pass: 2, ..key },
        StreamKey { operand: 1, ..key },
        // The same numbers in other fields.
        StreamKey { seed: 5, step: 3, ..key },
        StreamKey { layer: 1, linear: 2, ..key },
    ];
    for other in neighbours {
        let (a, b) = (key.stream(), other.stream());
        assert_balanced((0..1 << 18).map(|x| a.word(x) ^ b.word(x)), &format!("{other:?}"));
        assert_balanced((0..1 << 18).map(|x| a.word(x) ^ b.word(x + 1)), &format!("{other:?}, one ahead"));
    }
}

#[test]
fn the_streams_of_a_run_are_all_different() {
    let mut seen = std::collections::HashSet::new();
    for step in 0..40 {
        for layer in 0..8 {
            for linear in 0..7 {
                for pass in 0..3 {
                    for operand in 0..3 {
                        let stream = StreamKey { seed: 1, step, layer, linear, pass, operand }.stream();
                        assert!(seen.insert((stream.k0, stream.k1)));
                    }
                }
            }
        }
    }
}

/// Stochastic rounding to E2M1 uses the low 22 bits, to BF16 the low 16.
#[test]
fn the_bits_that_rounding_uses_fill_their_range_evenly() {
    for (i, stream) in streams().into_iter().enumerate() {
        for (shift, what) in [(12, "bits 12 to 21"), (6, "bits 6 to 15"), (0, "bits 0 to 9"), (22, "bits 22 to 31")] {
            let mut cells = vec![0u64; 1024];
            (0..1 << 18).for_each(|x| cells[(stream.word(x) >> shift & 1023) as usize] += 1);
            assert_uniform_cells(&cells, &format!("stream {i}, {what}"));
        }
        for distance in [1, 32, 768] {
            let mut cells = vec![0u64; 4096];
            let six = |x| (stream.word(x) >> 16 & 63) as usize;
            (0..1 << 19).for_each(|x| cells[64 * six(x) + six(x + distance)] += 1);
            assert_uniform_cells(&cells, &format!("stream {i}, pairs at distance {distance}"));
        }
    }
}

#[test]
fn uniform_and_normal_have_their_distributions() {
    for (i, stream) in streams().into_iter().enumerate() {
        let uniform: Vec<f64> = (0..1 << 17).map(|x| stream.uniform(x)).collect();
        assert!(uniform.iter().all(|u| (0.0..1.0).contains(u)));
        assert_distributed(uniform, |u| u, &format!("uniform, stream {i}"));
        let normal: Vec<f64> = (0..1 << 17).map(|x| f64::from(stream.normal(x))).collect();
        // Successive normals are uncorrelated: the mean of n products of independent standard normals has variance 1/n.
        let n = normal.len() as f64;
        let correlation = normal.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n;
        assert!(correlation.abs() < DEVIATIONS / n.sqrt(), "stream {i}: {correlation}");
        assert_distributed(normal, |x| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2), &format!("normal, stream {i}"));
    }
}

#[test]
fn permutations_hold_every_index_once_and_every_order_equally_often() {
    for n in [0, 1, 2, 3, 31, 1000] {
        let mut order = permutation(streams()[1], n);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..n as u32));
    }
    let mut counts = std::collections::BTreeMap::new();
    for step in 0..24_000 {
        *counts.entry(permutation(StreamKey { seed: 9, step, ..Default::default() }.stream(), 4)).or_insert(0u64) += 1;
    }
    assert_eq!(counts.len(), 24);
    assert_uniform_cells(&counts.into_values().collect::<Vec<_>>(), "orders of four");
}

#[test]
fn every_element_is_equally_likely_in_every_place() {
    let n = 16;
    let mut counts = vec![0u64; n * n];
    for step in 0..32_768 {
        let order = permutation(StreamKey { seed: 5, step, ..Default::default() }.stream(), n);
        order.iter().enumerate().for_each(|(place, &element)| counts[place * n + element as usize] += 1);
    }
    // Row by row: the whole table has fewer degrees of freedom than cells.
    for (place, row) in counts.chunks(n).enumerate() {
        assert_uniform_cells(row, &format!("place {place}"));
    }
}

/// Each entry is fair, and unrelated to its neighbour and to the same entry a step later.
#[test]
fn sign_vectors_of_consecutive_steps_are_unrelated() {
    let (size, steps) = (128, 1usize << 12);
    let draw = |step: usize| hadamard::signs(StreamKey { seed: 3, step: step as u64, ..Default::default() }.stream(), size);
    let all: Vec<Vec<f32>> = (0..=steps).map(draw).collect();
    let count = |so: &dyn Fn(usize) -> bool| (0..steps).filter(|&step| so(step)).count() as u64;
    for i in 0..size {
        let next = (i + 1) % size;
        assert_half(count(&|step| all[step][i] > 0.0), steps as u64, &format!("sign {i}"));
        assert_half(count(&|step| all[step][i] == all[step + 1][i]), steps as u64, &format!("sign {i} and the next step's"));
        assert_half(count(&|step| all[step][i] == all[step][next]), steps as u64, &format!("signs {i} and {next}"));
    }
}

#[test]
fn signs_are_plus_or_minus_one_equally_often_and_change_with_the_key() {
    let of = |step| hadamard::signs(StreamKey { seed: 2, step, ..Default::default() }.stream(), 16);
    assert_eq!(of(1), of(1));
    // All 2^16 sign vectors are possible; pooled into 256 by their first 8 entries.
    let mut cells = vec![0u64; 256];
    for step in 0..1 << 15 {
        let signs = of(step);
        assert!(signs.iter().all(|s| s.abs() == 1.0));
        cells[signs.iter().take(8).fold(0, |cell, &s| 2 * cell + usize::from(s < 0.0))] += 1;
    }
    assert_uniform_cells(&cells, "sign vectors");
}
