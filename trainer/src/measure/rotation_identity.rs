//! Claim C-ID: a rotation of both operands along the contraction axis cancels in the product. Checked in F64, without
//! quantisation, for each linear and pass, against a bound that is derived here.

use std::io::Write;
use std::path::Path;

use contract::measurements::{RotationIdentity, RotationIdentityLine};
use contract::run_file::RunFile;
use kernels::random::{Stream, StreamKey};

use crate::error::TrainerError;
use crate::streams::Pass;

/// Rows of each operand that are multiplied; the identity is about the contraction axis, which is kept whole.
const ROWS: usize = 48;

/// For each linear, pass and rotation (h16, h32, randomized h16): max |(XH)(WH)ᵀ − XWᵀ| over max |XWᵀ|, and its bound.
pub fn rotation_identity(run_file: &Path, out: &mut impl Write) -> Result<(), TrainerError> {
    let run = RunFile::load(run_file)?.run;
    let tokens = run.tokens_per_step();
    for (number, (linear, outputs, inputs)) in run.model.linears().into_iter().enumerate() {
        for (pass, k) in [(Pass::Fprop, inputs), (Pass::Dgrad, outputs), (Pass::Wgrad, tokens)] {
            for (rotation, size, random_signs) in [("h16", 16, false), ("h32", 32, false), ("rh16", 16, true)] {
                if !k.is_multiple_of(size) {
                    continue;
                }
                let key = |operand| {
                    StreamKey { seed: run.run.seed, step: 0, layer: 0, linear: number as u32, pass: pass as u32, operand }.stream()
                };
                let signs = random_signs.then(|| kernels::hadamard::signs(key(2), size));
                let (a, b) = (random_rows(key(0), k), random_rows(key(1), k));
                let (max_relative_error, bound) = rotation_error(&a, &b, k, size, signs.as_deref());
                let (linear, pass, rotation) = (linear.into(), pass.name().into(), rotation.into());
                let line = RotationIdentity { linear, pass, rotation, max_relative_error, bound };
                super::print(out, &RotationIdentityLine::Identity(line))?;
            }
        }
    }
    Ok(())
}

fn random_rows(stream: Stream, k: usize) -> Vec<f64> {
    (0..(ROWS * k) as u64).map(|index| f64::from(stream.normal(index))).collect()
}

/// `a, b: [_, k]`: the largest difference between the products with and without rotation, and a bound for it, both relative to
/// the largest magnitude of the plain product.
///
/// Bound. With u = 2^-53, n the size and L = log2 n: L butterflies, the scaling and the rounding of 1/sqrt(n) give each rotated
/// element an error of at most (L + 2) u ‖block‖₂ to first order; multiplied with the other operand's rotated block, whose
/// elements sum to at most sqrt(n) ‖block‖₂, and summed over blocks by Cauchy-Schwarz, (L + 2) sqrt(n) u ‖a‖ ‖b‖ for each operand.
/// Each of the two products of k terms errs by at most k u ‖a‖ ‖b‖. Higher orders are covered by a factor 1.01.
pub fn rotation_error(a: &[f64], b: &[f64], k: usize, size: usize, signs: Option<&[f32]>) -> (f64, f64) {
    let rotated = |x: &[f64]| {
        let mut x = x.to_vec();
        x.chunks_exact_mut(size).for_each(|block| rotate(block, signs));
        x
    };
    let (plain, turned) = (product(a, b, k), product(&rotated(a), &rotated(b), k));
    let largest = plain.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let difference = plain.iter().zip(&turned).fold(0.0f64, |largest, (x, y)| largest.max((x - y).abs()));
    let longest = |x: &[f64]| x.chunks_exact(k).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt()).fold(0.0, f64::max);
    let levels = f64::from(size.ilog2());
    let bound = 1.01 * (2.0 * (levels + 2.0) * (size as f64).sqrt() + 2.0 * k as f64) * (f64::EPSILON / 2.0) * longest(a) * longest(b);
    (difference / largest, bound / largest)
}

/// Natural-order Sylvester transform of one block, scaled by 1/sqrt(n), after sign flips.
fn rotate(block: &mut [f64], signs: Option<&[f32]>) {
    for (x, sign) in block.iter_mut().zip(signs.unwrap_or_default()) {
        *x *= f64::from(*sign);
    }
    let mut half = 1;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (block.len() as f64).sqrt();
    block.iter_mut().for_each(|x| *x *= scale);
}

fn product(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum();
    a.chunks_exact(k).flat_map(|a| b.chunks_exact(k).map(move |b| dot(a, b))).collect()
}
