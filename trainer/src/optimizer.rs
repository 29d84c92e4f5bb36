//! AdamW over all parameters, with the global gradient norm clipped.
//!
//! Weight decay is decoupled and applies to matrices (embedding and head included), not to norms. The update itself is a
//! kernel; this file decides its numbers.

use kernels::cpu::{AdamW, Cpu};

use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::run_file::OptimizerSection;

/// First and second moments, in the layout of the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Running mean of gradients.
    pub first: Vec<f32>,
    /// Running mean of squared gradients.
    pub second: Vec<f32>,
}

impl Moments {
    /// Zeros for so many parameters.
    pub fn new(total: usize) -> Self {
        Self { first: vec![0.0; total], second: vec![0.0; total] }
    }
}

/// One update. `gradients` are clipped by `norm`, their global norm; `step` counts from 1.
///
/// Clipping multiplies by `clip_norm / (norm + 1e-6)` when that is below 1, as PyTorch's `clip_grad_norm_`.
///
/// # Errors
/// Lengths that do not fit.
#[allow(clippy::too_many_arguments)] // the state of an optimizer and the numbers of a step
pub fn update(
    cpu: &Cpu,
    layout: &Layout,
    section: &OptimizerSection,
    step: u64,
    learning_rate: f64,
    norm: f64,
    gradients: &[f32],
    parameters: &mut [f32],
    moments: &mut Moments,
) -> Result<(), TrainerError> {
    let power = step.min(1 << 52) as f64;
    let numbers = AdamW {
        learning_rate: learning_rate as f32,
        beta1: section.beta1 as f32,
        beta2: section.beta2 as f32,
        epsilon: section.epsilon as f32,
        weight_decay: section.weight_decay as f32,
        bias_correction1: (1.0 - libm::pow(section.beta1, power)) as f32,
        bias_correction2: (1.0 - libm::pow(section.beta2, power)) as f32,
        gradient_scale: (section.clip_norm / (norm + 1e-6)).min(1.0) as f32,
    };
    for tensor in &layout.tensors {
        let range = tensor.range.clone();
        let numbers = AdamW { weight_decay: if tensor.decays { numbers.weight_decay } else { 0.0 }, ..numbers };
        let (first, second) = (&mut moments.first[range.clone()], &mut moments.second[range.clone()]);
        cpu.adamw(&mut parameters[range.clone()], &gradients[range], first, second, &numbers).map_err(TrainerError::kernel)?;
    }
    Ok(())
}
