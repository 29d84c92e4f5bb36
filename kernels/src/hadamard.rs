//! Blockwise Hadamard rotation: natural-order Sylvester matrix over sqrt(n), in F32, optionally after sign flips.
//!
//! The order of operations is part of the definition (butterflies of distance 1, 2, 4, ..., then one multiplication), so
//! that every device gets the same bits before it takes a block maximum.

use crate::random::Stream;

/// Sizes a recipe may ask for.
pub use contract::recipe::ROTATION_SIZES as SIZES;

/// 1 / sqrt(size), rounded to F32 (exact for 16 and 64).
pub fn factor(size: usize) -> f32 {
    (1.0 / (size as f64).sqrt()) as f32
}

/// `size` signs, +1.0 or -1.0, from the top bit of the stream's words.
pub fn signs(stream: Stream, size: usize) -> Vec<f32> {
    let mut signs = vec![0.0; size];
    fill_signs(stream, &mut signs);
    signs
}

/// [`signs`] into memory that is there.
pub fn fill_signs(stream: Stream, signs: &mut [f32]) {
    for (index, sign) in signs.iter_mut().enumerate() {
        *sign = if stream.word(index as u64) >> 31 == 0 { 1.0 } else { -1.0 };
    }
}

/// The transform of one block, a power of two long, without a factor: sums and differences at distance 1, 2, 4, ...
pub(crate) fn butterflies<T: Copy>(block: &mut [T], sum_and_difference: impl Fn(T, T) -> (T, T)) {
    let mut distance = 1;
    while distance < block.len() {
        for pair in block.chunks_exact_mut(2 * distance) {
            let (left, right) = pair.split_at_mut(distance);
            for (a, b) in left.iter_mut().zip(right) {
                (*a, *b) = sum_and_difference(*a, *b);
            }
        }
        distance *= 2;
    }
}

/// Rotates every consecutive `size` elements of `x` in place: y = H (signs * x) / sqrt(size). `x.len()` is a multiple of `size`
/// (a shorter tail is left as it is; `OperandSpec::validate` refuses such shapes); `signs`, if any, has `size` entries.
/// `size` is a power of two; 0 changes nothing.
pub fn rotate_rows(x: &mut [f32], size: usize, signs: Option<&[f32]>) {
    if size == 0 {
        return;
    }
    let factor = factor(size);
    for block in x.chunks_exact_mut(size) {
        if let Some(signs) = signs {
            for (value, sign) in block.iter_mut().zip(signs) {
                *value *= sign;
            }
        }
        butterflies(block, |a, b| (a + b, a - b));
        for value in block {
            *value *= factor;
        }
    }
}

/// `a, b: [_, k]`: the largest difference between the products with and without rotation, and a bound for it, both relative to
/// the largest magnitude of the plain product.
///
/// Bound. With u = 2^-53, n the size and L = log2 n: L butterflies, the scaling and the rounding of 1/sqrt(n) give each rotated
/// element an error of at most (L + 2) u ‖block‖₂ to first order; multiplied with the other operand's rotated block, whose
/// elements sum to at most sqrt(n) ‖block‖₂, and summed over blocks by Cauchy-Schwarz, (L + 2) sqrt(n) u ‖a‖ ‖b‖ for each operand.
/// Each of the two products of k terms errs by at most k u ‖a‖ ‖b‖. Higher orders are covered by a factor 1.01.
pub fn cancellation_error(a: &[f64], b: &[f64], k: usize, size: usize, signs: Option<&[f32]>) -> (f64, f64) {
    let rotated = |x: &[f64]| {
        let mut x = x.to_vec();
        x.chunks_exact_mut(size).for_each(|block| rotate_f64(block, signs));
        x
    };
    let (plain, turned) = (product_f64(a, b, k), product_f64(&rotated(a), &rotated(b), k));
    let largest = plain.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let difference = plain.iter().zip(&turned).fold(0.0f64, |largest, (x, y)| largest.max((x - y).abs()));
    let longest = |x: &[f64]| x.chunks_exact(k).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt()).fold(0.0, f64::max);
    let levels = f64::from(size.ilog2());
    let bound = 1.01 * (2.0 * (levels + 2.0) * (size as f64).sqrt() + 2.0 * k as f64) * (f64::EPSILON / 2.0) * longest(a) * longest(b);
    (difference / largest, bound / largest)
}

/// Natural-order Sylvester transform of one block, scaled by 1/sqrt(n), after sign flips.
fn rotate_f64(block: &mut [f64], signs: Option<&[f32]>) {
    for (x, sign) in block.iter_mut().zip(signs.unwrap_or_default()) {
        *x *= f64::from(*sign);
    }
    butterflies(block, |a, b| (a + b, a - b));
    let scale = 1.0 / (block.len() as f64).sqrt();
    block.iter_mut().for_each(|x| *x *= scale);
}

fn product_f64(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum();
    a.chunks_exact(k).flat_map(|a| b.chunks_exact(k).map(move |b| dot(a, b))).collect()
}
