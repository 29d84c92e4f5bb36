//! AdamW over all parameters, with the global gradient norm clipped.
//!
//! Weight decay is decoupled and applies to matrices (embedding and head included), not to norms. The update itself is a
//! kernel; this file decides its numbers.

use kernels::cpu::AdamW;

use crate::device::{Device, Update};
use crate::error::TrainerError;

/// First and second moments, in the layout of the parameters.
#[derive(Debug)]
pub struct Moments<D: Device> {
    pub first: D::Numbers,
    /// Running mean of squared gradients.
    pub second: D::Numbers,
}

impl<D: Device> Moments<D> {
    /// Zeros for so many parameters, made by `zeros`.
    pub fn new(zeros: impl Fn() -> Result<D::Numbers, TrainerError>) -> Result<Self, TrainerError> {
        Ok(Self { first: zeros()?, second: zeros()? })
    }
}

/// The numbers of one update. Clipping multiplies by `clip_norm / (norm + 1e-6)` when that is below 1, as PyTorch's `clip_grad_norm_`.
pub fn numbers(update: &Update<'_>) -> AdamW {
    let Update { section, step, learning_rate, norm } = *update;
    let power = step.min(1 << 52) as f64;
    AdamW {
        learning_rate: learning_rate as f32,
        beta1: section.beta1 as f32,
        beta2: section.beta2 as f32,
        epsilon: section.epsilon as f32,
        weight_decay: section.weight_decay as f32,
        bias_correction1: (1.0 - libm::pow(section.beta1, power)) as f32,
        bias_correction2: (1.0 - libm::pow(section.beta2, power)) as f32,
        gradient_scale: (section.clip_norm / (norm + 1e-6)).min(1.0) as f32,
    }
}
