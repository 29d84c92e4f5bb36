//! How much a quantised operand differs from what was quantised, and how far outliers dominate its blocks.
//!
//! Sums run in F64 in index order, so the figures are deterministic.

use super::BLOCK;

/// Difference between `exact` and `quantised`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorMetrics {
    /// |quantised - exact| / |exact|, Euclidean norms.
    pub relative_error: f64,
    /// sum(quantised - exact) / sum |exact|: zero for an unbiased rounding of symmetric data, in expectation.
    pub bias: f64,
    /// sum((quantised - exact) sign(exact)) / sum |exact|: shrinkage (below zero) by clipping or underflow, which `bias` cannot see
    /// because every rounding here treats both signs alike.
    pub magnitude_bias: f64,
    /// exact . quantised / (|exact| |quantised|).
    pub cosine: f64,
}

/// Compares two arrays of the same length; all-zero `exact` gives zero error and cosine 1.
pub fn error_metrics(exact: &[f32], quantised: &[f32]) -> ErrorMetrics {
    let (mut error, mut norm, mut quantised_norm, mut dot) = (0.0, 0.0, 0.0, 0.0);
    let (mut difference, mut growth, mut total) = (0.0, 0.0, 0.0);
    for (&x, &q) in exact.iter().zip(quantised) {
        let (x, q) = (f64::from(x), f64::from(q));
        error += (q - x) * (q - x);
        norm += x * x;
        quantised_norm += q * q;
        dot += x * q;
        difference += q - x;
        // The difference, with its sign turned where x is negative. Without a branch, which would be taken at random.
        growth += f64::from_bits((q - x).to_bits() ^ (u64::from(x < 0.0) << 63));
        total += x.abs();
    }
    if norm == 0.0 {
        return ErrorMetrics { relative_error: 0.0, bias: 0.0, magnitude_bias: 0.0, cosine: 1.0 };
    }
    let cosine = if quantised_norm == 0.0 { 0.0 } else { dot / (norm.sqrt() * quantised_norm.sqrt()) };
    ErrorMetrics { relative_error: (error / norm).sqrt(), bias: difference / total, magnitude_bias: growth / total, cosine }
}

/// amax / rms of blocks of 32 before and after a rotation (claim H3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockRatios {
    /// Mean over all blocks that are not all zero, before.
    pub before: f64,
    pub after: f64,
    /// Mean over the tenth of blocks (at least one) with the highest ratio, before.
    pub outliers_before: f64,
    /// After the rotation, of the tenth that is highest then. Following the blocks that were highest before would show a fall even for a
    /// rotation that only exchanges blocks.
    pub outliers_after: f64,
}

/// Ratios of `before` and, if there is a rotation, of what it made of them, both `[rows, k]`; blocks never cross rows. Ratios lie between 1
/// and sqrt(32).
pub fn block_ratios(before: &[f32], after: Option<&[f32]>, k: usize) -> BlockRatios {
    let means = |values: &[f32]| {
        let all = values.chunks(k.max(1)).flat_map(|row| row.chunks(BLOCK)).map(ratio);
        let mut ratios: Vec<f64> = all.filter(|ratio| *ratio > 0.0).collect();
        // Positive numbers are in the order of their bits.
        ratios.sort_unstable_by_key(|ratio| std::cmp::Reverse(ratio.to_bits()));
        (mean(&ratios), mean(&ratios[..ratios.len().div_ceil(10)]))
    };
    let (before, outliers_before) = means(before);
    let (after, outliers_after) = after.map_or((before, outliers_before), means);
    BlockRatios { before, after, outliers_before, outliers_after }
}

fn mean(ratios: &[f64]) -> f64 {
    if ratios.is_empty() { 1.0 } else { ratios.iter().sum::<f64>() / ratios.len() as f64 }
}

/// amax / rms of one block; 0 for a block of zeros.
fn ratio(block: &[f32]) -> f64 {
    let largest = block.iter().fold(0.0f64, |m, &x| m.max(f64::from(x).abs()));
    let squares: f64 = block.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    if squares == 0.0 { 0.0 } else { largest / (squares / block.len() as f64).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_small_example_by_hand() {
        // Error (0.5, 0, -1, 0); norms: error 1.25, exact 9 + 16 + 4 = 29, quantised 12.25 + 16 + 1 = 29.25; dot 10.5 + 16 + 2 = 28.5.
        let metrics = error_metrics(&[3.0, -4.0, 2.0, 0.0], &[3.5, -4.0, 1.0, 0.0]);
        assert_eq!(metrics.relative_error, (1.25f64 / 29.0).sqrt());
        assert_eq!((metrics.bias, metrics.magnitude_bias), (-0.5 / 9.0, -0.5 / 9.0));
        // Shrinking both signs alike: no bias, all shrinkage.
        let shrunk = error_metrics(&[4.0, -4.0], &[3.0, -3.0]);
        assert_eq!((shrunk.bias, shrunk.magnitude_bias), (0.0, -0.25));
        assert!((metrics.cosine - 28.5 / (29.0f64 * 29.25).sqrt()).abs() < 4.0 * f64::EPSILON);
    }

    #[test]
    fn metrics_of_nothing_lost_and_everything_lost() {
        let values = [1.0, -2.0, 0.5];
        let kept = error_metrics(&values, &values);
        assert_eq!((kept.relative_error, kept.bias), (0.0, 0.0));
        assert!((kept.cosine - 1.0).abs() < 4.0 * f64::EPSILON);
        let lost = error_metrics(&values, &[0.0; 3]);
        assert_eq!((lost.relative_error, lost.cosine), (1.0, 0.0));
        assert_eq!(error_metrics(&[0.0; 3], &[0.0; 3]), ErrorMetrics { relative_error: 0.0, bias: 0.0, magnitude_bias: 0.0, cosine: 1.0 });
        assert!(error_metrics(&values, &[f32::NAN; 3]).relative_error.is_nan());
    }

    /// A lone spike has ratio sqrt(32); the Hadamard transform of size 32 spreads it evenly over the block, ratio 1.
    #[test]
    fn a_rotation_of_the_block_size_flattens_a_spike() {
        let mut before = vec![0.0f32; 320];
        (0..10).for_each(|block| before[32 * block + block] = 3.0);
        let mut after = before.clone();
        crate::hadamard::rotate_rows(&mut after, 32, None);
        let ratios = block_ratios(&before, Some(&after), 320);
        for spiky in [ratios.before, ratios.outliers_before] {
            assert!((spiky - 32f64.sqrt()).abs() < 1e-14);
        }
        for flat in [ratios.after, ratios.outliers_after] {
            assert!((flat - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn outliers_by_hand() {
        // Twenty rows of one block: two spikes make the tenth with the highest ratio; the others are flat, one is all zero.
        let mut values = vec![1.0f32; 20 * 32];
        values[..32].fill(0.0);
        for row in [4, 9] {
            values[32 * row..32 * (row + 1)].fill(0.0);
            values[32 * row] = 1.0;
        }
        let ratios = block_ratios(&values, None, 32);
        assert!((ratios.before - (17.0 + 2.0 * 32f64.sqrt()) / 19.0).abs() < 1e-14);
        assert!((ratios.outliers_before - 32f64.sqrt()).abs() < 1e-14); // ceil(19 / 10) = 2 blocks
        assert_eq!(block_ratios(&[0.0; 64], Some(&[0.0; 64]), 32).before, 1.0);
        // Exchanging blocks changes nothing: each side has its own tenth.
        let mut exchanged = values.clone();
        exchanged.rotate_left(5 * 32);
        let same = block_ratios(&values, Some(&exchanged), 32);
        assert!((same.outliers_before - same.outliers_after).abs() < 1e-14);
    }
}
