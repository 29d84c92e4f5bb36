//! Whole training steps of a small model, for every recipe: loss and every gradient tensor against the CPU's, and run against run.

use std::path::Path;

use contract::native::PASSES;
use contract::recipe::Format;
use contract::run_file::RunFile;
use kernels::closeness::{ROUNDING_RMS, relative};
use kernels::cpu::{Cpu, InstructionSet};
use kernels::gpu::Gpu;
use kernels::random::StreamKey;

use super::{Extent, Report, linears};
use crate::batches::Batch;
use crate::device::Device;
use crate::device::gpu::{GpuDevice, Keep};
use crate::error::TrainerError;
use crate::trainer_state::Training;

/// Steps of the comparison between two runs.
fn steps(extent: Extent) -> u64 {
    if extent == Extent::Quick { 1 } else { 4 }
}

/// How far a gradient tensor may be from the CPU's.
///
/// The GPU keeps activations in BF16, the CPU in F32: each of the about 12 tensors between a loss and a gradient, forward and backward in
/// each block, is off by u = 0.425 2^-8 of itself in the mean square, independently, so 2 sqrt(12 blocks + 4) u in all (the 2 for what
/// products of two such tensors add). Where an operand is quantised, an element that lies close to a rounding border falls to the other
/// side: with a grid of relative step s and inputs that differ by u sqrt(depth), a share u sqrt(depth) / s of the elements moves by s,
/// which is sqrt(u sqrt(depth) s) of the operand in the mean square. Every operand between the loss and the gradient adds that,
/// independently; one that a defect quantises twice adds it twice.
fn bound(run: &RunFile) -> f64 {
    let u = ROUNDING_RMS;
    let depth = 12.0 * run.model.num_hidden_layers as f64 + 4.0;
    let plain = 2.0 * depth.sqrt() * u;
    let (passes, defect) = (&run.recipe.passes, run.recipe.defect);
    let prepared = PASSES.iter().flat_map(|&(pass, left, right)| [(pass, left), (pass, right)]);
    // Relative distance between neighbours of a grid, on average: half an octave's steps.
    let step = |format: Format| match format {
        Format::E2m1 => 0.4,
        Format::E5m2 => 0.2,
        Format::E4m3 => 0.1,
        Format::Bf16 | Format::F32 => 0.0,
    };
    let times = |pass, operand| if defect.is_some_and(|defect| defect.first(passes, pass, operand).is_some()) { 2.0 } else { 1.0 };
    let of = |(pass, operand)| times(pass, operand) * u * depth.sqrt() * step(passes.spec(pass, operand).format);
    let moved: f64 = prepared.map(of).sum();
    let operands = 4.0 * run.model.num_hidden_layers as f64;
    plain + 2.0 * (operands * moved / 6.0 * 2.0).sqrt()
}

fn batch(run: &RunFile, step: u64) -> Batch {
    let stream = StreamKey { seed: run.run.seed, step, ..Default::default() }.stream();
    let (tokens, vocabulary) = (run.tokens_per_step() as u64, run.model.vocab_size as u32);
    let token = |index| stream.word(index) % vocabulary;
    Batch::new((0..tokens).map(token).collect(), (1..=tokens).map(token).collect())
}

/// One run file.
pub(super) fn check(gpu: &Gpu, path: &Path, extent: Extent, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let run = RunFile::load(path)?.run;
    let name = run.recipe.id.clone();
    let cpu = Cpu::new(InstructionSet::detect(), std::thread::available_parallelism().map_or(1, usize::from))
        .map_err(|error| TrainerError::Machine(error.to_string()))?;
    let device = match GpuDevice::new(gpu.clone(), &run, Keep::WhatFits).and_then(|device| Training::new(device, run.clone(), 0)) {
        Ok(training) => training,
        Err(TrainerError::Machine(_)) if name == "f32" => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut on_gpu = device;
    let mut on_cpu = Training::new(cpu, run.clone(), 0)?;
    if run.recipe.defect.is_some() {
        linears::check(gpu, &run, report)?;
    }
    let bound = bound(&run);
    // Two steps, so that delayed scales and re-drawn signs come into play.
    for step in 1..=2 {
        on_cpu.set_batch(batch(&run, step));
        on_gpu.set_batch(batch(&run, step));
        let wanted = on_cpu.forward_backward(step)?;
        let found = on_gpu.forward_backward(step)?;
        let detail = |what: &str| format!("step {step}, {what}");
        let tokens = run.tokens_per_step();
        report(super::compared(
            "step",
            &name,
            detail("loss"),
            tokens,
            ((found.loss - wanted.loss) / wanted.loss).abs(),
            2.0 * bound * bound + 1e-3,
        ))?;
        let gradients = on_gpu.device().values(&on_gpu.gradients)?;
        for tensor in &on_cpu.model.layout().tensors {
            let range = tensor.range.clone();
            let difference = relative(&gradients[range.clone()], &on_cpu.gradients[range.clone()]);
            report(super::compared("step", &name, detail(&tensor.name), range.len(), difference, bound))?;
        }
        drop(gradients);
        on_cpu.update(step, wanted.gradient_norm)?;
        // From the CPU's state, so that the second step is compared from the same weights.
        let values = on_cpu.parameters.clone();
        on_gpu.update(step, found.gradient_norm)?;
        on_gpu.parameters = on_gpu.device().parameters(values)?;
    }
    let first = bits_after(gpu, &run, steps(extent), Keep::WhatFits)?;
    for (keep, what) in [(Keep::WhatFits, "run against run"), (Keep::Least, "with the least memory")] {
        let second = bits_after(gpu, &run, steps(extent), keep)?;
        let differ = first.iter().zip(&second).filter(|(a, b)| a != b).count() as f64;
        let detail = format!("parameters after {} steps, {what}", steps(extent));
        report(super::compared("determinism", &name, detail, first.len(), differ, 0.0))?;
    }
    Ok(())
}

/// The parameters after some steps from the start.
fn bits_after(gpu: &Gpu, run: &RunFile, steps: u64, keep: Keep) -> Result<Vec<u32>, TrainerError> {
    let mut training = Training::new(GpuDevice::new(gpu.clone(), run, keep)?, run.clone(), 0)?;
    for step in 1..=steps {
        training.set_batch(batch(run, step));
        let result = training.forward_backward(step)?;
        training.update(step, result.gradient_norm)?;
    }
    Ok(training.device().parameter_values(&training.parameters)?.iter().map(|value| value.to_bits()).collect())
}
