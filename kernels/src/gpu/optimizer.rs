//! The global gradient norm and AdamW on the device: kernels/device/optimizer.cu.

use std::ops::Range;

use super::driver::Grid;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, Plain, expect};

/// Workgroups that sum squares.
pub(super) const PARTIALS: usize = 1024;
/// Elements that one workgroup updates.
const STRETCH: usize = 8192;

/// A part of one tensor in the flat arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Stretch {
    start: u64,
    count: u32,
    decays: u32,
}

// SAFETY: one u64, two u32: no padding.
unsafe impl Plain for Stretch {}

/// The numbers of an update (as `cpu::AdamW`; the clipping factor is found on the device).
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct UpdateNumbers {
    /// Of this step.
    pub learning_rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    pub epsilon: f32,
    pub weight_decay: f32,
    /// 1 - beta1^step.
    pub bias_correction1: f32,
    /// 1 - beta2^step.
    pub bias_correction2: f32,
}

// SAFETY: seven F32.
unsafe impl Plain for UpdateNumbers {}

/// Kernels and the list of tensors.
#[derive(Debug)]
pub struct Optimizer {
    square_sums: Kernel,
    norm_of: Kernel,
    adamw: Kernel,
    copy: Kernel,
    partial: Buffer<f64>,
    stretches: Buffer<Stretch>,
    /// Of the stretches, in the flat arrays, in their order.
    starts: Vec<usize>,
    total: usize,
}

impl Optimizer {
    /// `tensors`: start, length and whether weights decay, of every tensor in the flat arrays, in their order.
    pub fn new(gpu: &Gpu, tensors: impl Iterator<Item = (usize, usize, bool)>) -> Result<Self, GpuError> {
        let (mut stretches, mut total) = (Vec::new(), 0);
        for (start, length, decays) in tensors {
            total = total.max(start + length);
            for first in (0..length).step_by(STRETCH) {
                let count = STRETCH.min(length - first) as u32;
                stretches.push(Stretch { start: (start + first) as u64, count, decays: u32::from(decays) });
            }
        }
        let kernel = |name| gpu.kernel("optimizer.cu", &[], name);
        Ok(Self {
            square_sums: kernel("square_sums")?,
            norm_of: kernel("norm_of")?,
            adamw: kernel("adamw")?,
            copy: kernel("copy_bf16")?,
            partial: gpu.buffer(PARTIALS)?,
            starts: stretches.iter().map(|stretch| stretch.start as usize).collect(),
            stretches: gpu.upload(&stretches)?,
            total,
        })
    }

    /// The gradient's global norm, into element `slot` of `out`.
    pub fn norm(&self, gradients: &Buffer<f32>, out: &Buffer<f64>, slot: usize) -> Result<(), GpuError> {
        expect("norm", "the gradients", self.total, gradients.length())?;
        expect("norm", "the results", slot + 1, out.length())?;
        let arguments = [Argument::new(gradients.address(0)), Argument::new(self.total as u64), Argument::new(self.partial.address(0))];
        // SAFETY: square_sums(gradient, count, partial): PARTIALS workgroups, as many partial sums.
        unsafe { self.square_sums.launch(Grid::row(PARTIALS, 256), arguments)? };
        let arguments = [Argument::new(self.partial.address(0)), Argument::new(PARTIALS as i32), Argument::new(out.address(slot))];
        // SAFETY: norm_of(partial, count, out).
        unsafe { self.norm_of.launch(Grid::row(1, 256), arguments) }
    }

    /// AdamW of the tensors that begin in `part`, clipped to `clip_norm` by the norm in `results[norm_slot]`; nothing happens when that or the
    /// loss in `results[loss_slot]` is not finite. `copies` become the new parameters in BF16.
    #[allow(clippy::too_many_arguments)] // the state of an optimizer
    pub fn update(
        &self,
        part: &Range<usize>,
        parameters: &mut Buffer<f32>,
        gradients: &Buffer<f32>,
        first: &mut Buffer<f32>,
        second: &mut Buffer<f32>,
        copies: &mut Buffer<Bf16>,
        numbers: UpdateNumbers,
        clip_norm: f64,
        results: (&Buffer<f64>, usize, usize),
    ) -> Result<(), GpuError> {
        for array in [&*parameters, gradients, &*first, &*second] {
            expect("adamw", "an array", self.total, array.length())?;
        }
        expect("adamw", "the copies", self.total, copies.length())?;
        let (results, norm_slot, loss_slot) = results;
        let before = |place: usize| self.starts.partition_point(|start| *start < place);
        let stretches = before(part.start)..before(part.end);
        if stretches.is_empty() {
            return Ok(());
        }
        expect("adamw", "the results", norm_slot.max(loss_slot) + 1, results.length())?;
        let arguments = [
            Argument::new(parameters.address(0)),
            Argument::new(gradients.address(0)),
            Argument::new(first.address(0)),
            Argument::new(second.address(0)),
            Argument::new(copies.address(0)),
            Argument::new(self.stretches.address(stretches.start)),
            Argument::new(numbers),
            Argument::new(clip_norm),
            Argument::new(results.address(norm_slot)),
            Argument::new(results.address(loss_slot)),
        ];
        // SAFETY: adamw(parameter, gradient, first, second, copies, stretches, numbers, clip_norm, norm, loss); lengths were checked.
        unsafe { self.adamw.launch(Grid::row(stretches.len(), 256), arguments) }
    }

    /// `to` = `from` in BF16.
    pub fn copy_bf16(&self, from: &Buffer<f32>, to: &mut Buffer<Bf16>) -> Result<(), GpuError> {
        expect("copy_bf16", "the copies", from.length(), to.length())?;
        let arguments = [Argument::new(from.address(0)), Argument::new(to.address(0)), Argument::new(from.length() as u64)];
        // SAFETY: copy_bf16(from, to, count).
        unsafe { self.copy.launch(Grid::row(1024, 256), arguments) }
    }
}
