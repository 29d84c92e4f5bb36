//! `trainer device-test`: a GPU against the CPU, number by number.
//!
//! Every check says what it compared, how far apart the two were, and the bound that it had to keep; the bounds are derived where they
//! stand. Quantisation, rotation, random words and the optimizer must agree bit for bit, everything else within the rounding of the
//! formats involved. Inputs are fresh random numbers with extremes among them; outputs are poisoned first.

mod floats;
mod linears;
mod operands;
mod steps;

use std::io::Write;
use std::path::PathBuf;

use contract::measurements::{Check, DeviceTestLine, Summary, TestedDevice};
use kernels::gpu::{Bf16, Buffer, Gpu, GpuError};
use kernels::random::{Stream, StreamKey};

use crate::device::gpu::device_id;
use crate::error::TrainerError;

/// One comparison; a NaN does not pass.
fn compared(
    group: &'static str,
    name: impl Into<String>,
    detail: impl Into<String>,
    elements: usize,
    difference: f64,
    bound: f64,
) -> Check {
    let (name, detail, elements) = (name.into(), detail.into(), elements as u64);
    Check { group: group.into(), name, detail, elements, difference: Some(difference), bound, passed: difference <= bound }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every specification and shape.
    All,
    /// A few of them, the smallest: for a device that is interpreted.
    Quick,
}

/// Runs all checks, prints each as a JSON line, and fails if any does. Each run file is a recipe on a small model; `seed` decides
/// the random inputs.
///
/// # Errors
/// A GPU that cannot be used, run files that are wrong, or checks that did not pass.
pub fn run(gpu: &Gpu, run_files: &[PathBuf], seed: u64, extent: Extent, out: &mut impl Write) -> Result<(), TrainerError> {
    let description = gpu.description();
    let header = TestedDevice {
        device: device_id(gpu).kind(),
        name: description.name.clone(),
        architecture: description.architecture.clone(),
        interpreted: description.interpreted,
        libraries: description.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect(),
        seed,
    };
    crate::measure::print(out, &DeviceTestLine::Device(header))?;
    let (mut checks, mut failed) = (0, 0);
    let mut report = |check: Check| {
        checks += 1;
        failed += u64::from(!check.passed);
        crate::measure::print(out, &DeviceTestLine::Check(check))
    };
    operands::check(gpu, seed, extent, &mut report)?;
    floats::check(gpu, seed, extent, &mut report)?;
    for path in run_files {
        steps::check(gpu, path, extent, &mut report)?;
    }
    crate::measure::print(out, &DeviceTestLine::Summary(Summary { checks, failed }))?;
    if failed > 0 {
        return Err(TrainerError::Machine(format!(
            "{failed} of {checks} checks of {} did not pass; they are listed above",
            description.name
        )));
    }
    Ok(())
}

/// What the checks report to.
type Report<'a> = dyn FnMut(Check) -> Result<(), TrainerError> + 'a;

fn gpu_error(error: GpuError) -> TrainerError {
    TrainerError::Machine(error.to_string())
}

/// Words for the inputs of one check.
fn stream(seed: u64, check: u32, tensor: u32) -> Stream {
    StreamKey { seed, step: 0, layer: check, linear: tensor, pass: 64, operand: 0 }.stream()
}

/// Normal numbers times `deviation`, rounded to BF16.
fn normals(stream: Stream, count: usize, deviation: f32) -> Vec<f32> {
    (0..count as u64).map(|index| kernels::format::bf16::round(stream.normal(index) * deviation)).collect()
}

/// To the device as BF16; the values are BF16 already.
fn to_bf16(gpu: &Gpu, values: &[f32]) -> Result<Buffer<Bf16>, TrainerError> {
    let bits: Vec<Bf16> = values.iter().map(|&value| Bf16(kernels::format::bf16::encode(value))).collect();
    gpu.upload(&bits).map_err(gpu_error)
}

fn from_bf16(buffer: &Buffer<Bf16>) -> Result<Vec<f32>, TrainerError> {
    let bits = buffer.to_vec().map_err(gpu_error)?;
    Ok(bits.iter().map(|bits| f32::from_bits(u32::from(bits.0) << 16)).collect())
}

/// Memory that no kernel left as it was by chance: NaNs in every format.
fn poisoned<T: kernels::gpu::Plain>(gpu: &Gpu, count: usize) -> Result<Buffer<T>, TrainerError> {
    let mut buffer = gpu.buffer(count).map_err(gpu_error)?;
    buffer.fill(0xFF).map_err(gpu_error)?;
    Ok(buffer)
}
