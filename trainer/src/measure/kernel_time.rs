//! Seconds of each GEMM pass of each linear, rotation and quantisation of both operands included.
//!
//! Variants take turns within a round, so that a busy moment of the machine does not fall on one of them. Operands are normal
//! random matrices of the run's shapes; their values do not change the time.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use kernels::cpu::{Cpu, Panels, Role, Side};
use kernels::operand::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::quantise::{Randomness, Source};
use kernels::random::StreamKey;
use serde::Serialize;

use crate::error::TrainerError;
use crate::run_file::RunFile;
use crate::streams::Pass;

#[derive(Serialize)]
pub(super) struct Line {
    pub(super) schema: &'static str,
    pub(super) kind: &'static str,
    pub(super) variant: &'static str,
    pub(super) linear: &'static str,
    pub(super) pass: &'static str,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) repeat: u64,
    pub(super) seconds: f64,
}

/// Specs of the two operands of a GEMM; the gradient is the first one of dgrad and wgrad.
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) forward: OperandSpec,
    pub(super) gradient: OperandSpec,
}

pub(super) fn variants() -> [Variant; 5] {
    let plain = |format, scale| OperandSpec { format, block: Block::Tensor, scale, rounding: Rounding::NearestEven, rotation: None };
    let mxfp4 = |size: Option<usize>| OperandSpec {
        format: Format::E2m1,
        block: Block::Row32,
        scale: ScaleRule::Floor,
        rounding: Rounding::NearestEven,
        rotation: size.map(|size| Rotation { size, signs: Signs::None }),
    };
    let both = |name, spec| Variant { name, forward: spec, gradient: spec };
    [
        both("mxfp4-h0", mxfp4(None)),
        both("mxfp4-h16", mxfp4(Some(16))),
        both("mxfp4-h32", mxfp4(Some(32))),
        Variant { name: "fp8", forward: plain(Format::E4m3, ScaleRule::Delayed), gradient: plain(Format::E5m2, ScaleRule::Delayed) },
        both("bf16", plain(Format::Bf16, ScaleRule::None)),
    ]
}

/// `warmup` unmeasured rounds, then `repeats` measured ones.
///
/// # Errors
/// A run file that is wrong, or a kernel's.
pub fn kernel_time(run_file: &Path, repeats: u64, warmup: u64, cpu: &Cpu, out: &mut impl Write) -> Result<(), TrainerError> {
    let run = RunFile::load(run_file)?.run;
    let tokens = run.tokens_per_step();
    let linears = run.model.linears();
    let largest = |pick: fn(&(&str, usize, usize)) -> usize| linears.iter().map(pick).max().unwrap_or_default();
    let (widest_out, widest_in) = (largest(|l| l.1), largest(|l| l.2));
    let random = |operand: u32, length: usize| -> Vec<f32> {
        let stream = StreamKey { seed: run.run.seed, step: 0, layer: 0, linear: 0, pass: 0, operand }.stream();
        (0..length as u64).map(|index| stream.normal(index)).collect()
    };
    let (x, w, dy) = (random(0, tokens * widest_in), random(1, widest_out * widest_in), random(2, tokens * widest_out));
    let mut product = vec![0.0f32; (tokens * widest_out.max(widest_in)).max(widest_out * widest_in)];
    let (mut left, mut right) = (Panels::default(), Panels::default());
    for round in 1..=warmup + repeats {
        for (linear, outputs, inputs) in linears {
            for pass in [Pass::Fprop, Pass::Dgrad, Pass::Wgrad] {
                let (x, w, dy) = (&x[..tokens * inputs], &w[..outputs * inputs], &dy[..tokens * outputs]);
                let (a, b) = match pass {
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
                let (m, n, k) = (a.rows, b.rows, a.k);
                for variant in variants() {
                    let first = if pass == Pass::Fprop { variant.forward } else { variant.gradient };
                    if k < 32 || first.rotation.is_some_and(|rotation| !k.is_multiple_of(rotation.size)) {
                        continue;
                    }
                    let (a, b) = ((a, &first, &mut left), (b, &variant.forward, &mut right));
                    let seconds = once(cpu, a, b, &mut product[..m * n])?;
                    if round > warmup {
                        let repeat = round - warmup;
                        super::print(
                            out,
                            &Line {
                                schema: "mxfp4-kernel-time/1",
                                kind: "kernel_time",
                                variant: variant.name,
                                linear,
                                pass: pass.name(),
                                m,
                                n,
                                k,
                                repeat,
                                seconds,
                            },
                        )?;
                    }
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
