//! A linear with a defect, alone: its three products on a GPU against the CPU's. Operands agree bit for bit, so a mistake that is made otherwise than
//! on the CPU shows, where the bounds of whole steps would hide it.

use contract::run_file::RunFile;
use kernels::closeness::{F32_SLACK, UNIT, relative};
use kernels::cpu::{Cpu, InstructionSet};
use kernels::gpu::Gpu;

use super::{Report, from_bf16, normals, stream, to_bf16};
use crate::choices::ATTENTION_OUTPUT;
use crate::device::gpu::{GpuDevice, Keep};
use crate::device::{Device, Goal, Input, Linears, Mode};
use crate::error::TrainerError;
use crate::streams::Place;

const PLACE: Place = Place { layer: 0, linear: ATTENTION_OUTPUT };

/// The second step: signs and words drawn per step are not those of the first.
const STEP: u64 = 2;

/// Results are rounded to BF16 once; sums of a few hundred products differ in F32.
const BOUND: f64 = UNIT + F32_SLACK;

/// X and ∇Y `[tokens, in]` and `[tokens, out]`, W `[out, in]`, in BF16.
struct Sources {
    x: Vec<f32>,
    w: Vec<f32>,
    d_y: Vec<f32>,
    tokens: usize,
}

pub(super) fn check(gpu: &Gpu, run: &RunFile, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let (tokens, (_, out, inputs)) = (run.tokens_per_step(), run.model.linears()[ATTENTION_OUTPUT]);
    let random = |tensor, count| normals(stream(run.run.seed, 920, tensor), count, 1.0);
    let sources = Sources { x: random(1, tokens * inputs), w: random(2, out * inputs), d_y: random(3, tokens * out), tokens };
    let (found, expected) = (on_gpu(gpu, run, &sources)?, on_cpu(run, &sources)?);
    for ((what, found), expected) in ["Y", "∇X", "∇W"].into_iter().zip(&found).zip(&expected) {
        let detail = format!("one linear, {what}");
        report(super::compared("step", &run.recipe.id, detail, found.len(), relative(found, expected), BOUND))?;
    }
    Ok(())
}

fn on_cpu(run: &RunFile, Sources { x, w, d_y, tokens }: &Sources) -> Result<[Vec<f32>; 3], TrainerError> {
    let cpu = Cpu::new(InstructionSet::detect(), 1).map_err(|error| TrainerError::Machine(error.to_string()))?;
    let (weight, mut linears) = (0..w.len(), cpu.linears(run)?);
    let (mut y, mut d_x, mut d_w) = (vec![0.0; d_y.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    let mode = Mode::Training { step: STEP };
    linears.forward(PLACE, &mode, &Input::Kept(x), (w, &weight), Goal::Over(&mut y), *tokens)?;
    linears.backward(PLACE, STEP, &Input::Kept(x), (w, &weight), d_y, Goal::Over(&mut d_x), (&mut d_w, &weight), *tokens)?;
    Ok([y, d_x, d_w])
}

fn on_gpu(gpu: &Gpu, run: &RunFile, Sources { x, w, d_y, tokens }: &Sources) -> Result<[Vec<f32>; 3], TrainerError> {
    let device = GpuDevice::new(gpu.clone(), run, Keep::WhatFits)?;
    let (weight, mut linears) = (0..w.len(), device.linears(run)?);
    let (x, d_y) = (to_bf16(gpu, x)?, to_bf16(gpu, d_y)?);
    let [mut y, mut d_x] = [device.activation(1, d_y.length())?, device.activation(1, x.length())?];
    let (w, mut d_w) = (device.parameters(w.clone())?, device.numbers(vec![0.0; w.len()])?);
    let mode = Mode::Training { step: STEP };
    linears.forward(PLACE, &mode, &Input::Kept(&x), (&w, &weight), Goal::Over(&mut y), *tokens)?;
    linears.backward(PLACE, STEP, &Input::Kept(&x), (&w, &weight), &d_y, Goal::Over(&mut d_x), (&mut d_w, &weight), *tokens)?;
    Ok([from_bf16(&y)?, from_bf16(&d_x)?, device.values(&d_w)?.into_owned()])
}
