//! Seconds of each GEMM pass of each linear on the CPU, rotation and quantisation of both operands included.
//!
//! Variants take turns within a round, so that a busy moment of the machine does not fall on one of them. Operands are normal
//! random matrices of the run's shapes; their values do not change the time.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use contract::measurements::KernelTimeLine;
use contract::recipe::{OperandSpec, ScaleRule};
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, Panels, Role, Side};
use kernels::quantise::{Randomness, Source};
use kernels::random::StreamKey;

use super::shapes::{Largest, products, variants};
use crate::error::TrainerError;
use crate::streams::Pass;

/// `warmup` unmeasured rounds, then `repeats` measured ones.
pub fn kernel_time(run_file: &Path, repeats: u64, warmup: u64, cpu: &Cpu, out: &mut impl Write) -> Result<(), TrainerError> {
    let run = RunFile::load(run_file)?.run;
    let tokens = run.tokens_per_step();
    let largest = Largest::of(&run);
    let random = |operand: u32, length: usize| -> Vec<f32> {
        let stream = StreamKey { seed: run.run.seed, step: 0, layer: 0, linear: 0, pass: 0, operand }.stream();
        (0..length as u64).map(|index| stream.normal(index)).collect()
    };
    let (x, w, dy) = (random(0, largest.x), random(1, largest.w), random(2, largest.dy));
    let mut result = vec![0.0f32; largest.result];
    let (mut left, mut right) = (Panels::default(), Panels::default());
    let all = products(&run.model, tokens);
    for round in 1..=warmup + repeats {
        for product in &all {
            let (outputs, inputs) = (product.outputs, product.inputs);
            let (x, w, dy) = (&x[..tokens * inputs], &w[..outputs * inputs], &dy[..tokens * outputs]);
            let (a, b) = match product.pass {
                Pass::Fprop => (
                    Source { values: x, rows: tokens, k: inputs, transposed: false },
                    Source { values: w, rows: outputs, k: inputs, transposed: false },
                ),
                Pass::Dgrad => (
                    Source { values: dy, rows: tokens, k: outputs, transposed: false },
                    Source { values: w, rows: inputs, k: outputs, transposed: true },
                ),
                Pass::Wgrad => (
                    Source { values: dy, rows: outputs, k: tokens, transposed: true },
                    Source { values: x, rows: inputs, k: tokens, transposed: true },
                ),
            };
            for variant in variants() {
                let first = variant.first(product.pass);
                if product.k < 32 || first.rotation.is_some_and(|rotation| !product.k.is_multiple_of(rotation.size)) {
                    continue;
                }
                let (a, b) = ((a, first, &mut left), (b, &variant.forward, &mut right));
                let seconds = once(cpu, a, b, &mut result[..product.m * product.n])?;
                if round > warmup {
                    super::print(out, &KernelTimeLine::Kernel(product.line(variant.name, round - warmup, Some(seconds))))?;
                }
            }
        }
    }
    Ok(())
}

/// Prepares both operands and multiplies them.
fn once(
    cpu: &Cpu,
    a: (Source<'_>, &OperandSpec, &mut Panels),
    b: (Source<'_>, &OperandSpec, &mut Panels),
    c: &mut [f32],
) -> Result<f64, TrainerError> {
    // What a delayed scale would remember of a normal matrix.
    let remembered = |spec: &OperandSpec| (spec.scale == ScaleRule::Delayed).then_some(5.0);
    let (a_role, b_role) = (Role { side: Side::Left, partner: b.1.format }, Role { side: Side::Right, partner: a.1.format });
    let started = Instant::now();
    for ((source, spec, panels), role) in [(a.0, a.1, &mut *a.2), (b.0, b.1, &mut *b.2)].into_iter().zip([a_role, b_role]) {
        cpu.prepare_into(source, spec, role, Randomness::default(), remembered(spec), panels).map_err(TrainerError::kernel)?;
    }
    cpu.gemm(a.2, b.2, c, false).map_err(TrainerError::kernel)?;
    Ok(started.elapsed().as_secs_f64())
}
