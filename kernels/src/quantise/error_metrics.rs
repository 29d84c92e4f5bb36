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
    /// exact . quantised / (|exact| |quantised|).
    pub cosine: f64,
}

/// Compares two arrays of the same length; all-zero `exact` gives zero error and cosine 1.
pub fn error_metrics(exact: &[f32], quantised: &[f32]) -> ErrorMetrics {
    let (mut error, mut norm, mut quantised_norm, mut dot, mut difference, mut total) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (&x, &q) in exact.iter().zip(quantised) {
        let (x, q) = (f64::from(x), f64::from(q));
        error += (q - x) * (q - x);
        norm += x * x;
        quantised_norm += q * q;
        dot += x * q;
        difference += q - x;
        total += x.abs();
    }
    if norm == 0.0 {
        return ErrorMetrics { relative_error: 0.0, bias: 0.0, cosine: 1.0 };
    }
    let cosine = if quantised_norm == 0.0 { 0.0 } else { dot / (norm.sqrt() * quantised_norm.sqrt()) };
    ErrorMetrics { relative_error: (error / norm).sqrt(), bias: difference / total, cosine }
}

/// amax / rms of blocks of 32 before and after a rotation (claim H3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockRatios {
    /// Mean over all blocks that are not all zero, before.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// Mean over the tenth of blocks (at least one) with the highest ratio before, before.
    pub outliers_before: f64,
    /// The same blocks after.
    pub outliers_after: f64,
}

/// Ratios of `before` and `after`, both `[rows, k]`; blocks never cross rows. Ratios lie between 1 and sqrt(32).
pub fn block_ratios(before: &[f32], after: &[f32], k: usize) -> BlockRatios {
    let ratios = |values: &[f32]| -> Vec<f64> { values.chunks(k.max(1)).flat_map(|row| row.chunks(BLOCK)).map(ratio).collect() };
    let mut pairs: Vec<(f64, f64)> = ratios(before).into_iter().zip(ratios(after)).filter(|(b, a)| *b > 0.0 && *a > 0.0).collect();
    if pairs.is_empty() {
        return BlockRatios { before: 1.0, after: 1.0, outliers_before: 1.0, outliers_after: 1.0 };
    }
    let mean = |pairs: &[(f64, f64)]| {
        let n = pairs.len() as f64;
        (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n)
    };
    let (before, after) = mean(&pairs);
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: ties stay in block order
    let (outliers_before, outliers_after) = mean(&pairs[..pairs.len().div_ceil(10)]);
    BlockRatios { before, after, outliers_before, outliers_after }
}

/// amax / rms of one block; 0 for a block of zeros.
fn ratio(block: &[f32]) -> f64 {
    let largest = block.iter().fold(0.0f64, |m, &x| m.max(f64::from(x).abs()));
    let squares: f64 = block.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    if squares == 0.0 { 0.0 } else { largest / (squares / block.len() as f64).sqrt() }
}
