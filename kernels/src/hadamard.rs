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
        let mut distance = 1;
        while distance < size {
            for pair in block.chunks_exact_mut(2 * distance) {
                let (left, right) = pair.split_at_mut(distance);
                for (a, b) in left.iter_mut().zip(right) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            distance *= 2;
        }
        for value in block {
            *value *= factor;
        }
    }
}
