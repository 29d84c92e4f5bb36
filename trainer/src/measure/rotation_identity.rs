//! Claim C-ID: a rotation of both operands along the contraction axis cancels in the product. Checked in F64, without
//! quantisation, for each linear and pass, against a derived bound.

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
                let (max_relative_error, bound) = kernels::hadamard::cancellation_error(&a, &b, k, size, signs.as_deref());
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
