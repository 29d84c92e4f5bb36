//! AdamW with decoupled weight decay (arXiv 1711.05101, algorithm 2), one parameter tensor at a time.

use super::lanes::{Lanes, WIDTH, get, put};
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect};

/// Elements a task.
const CHUNK: usize = 1 << 14;

/// Numbers of one step. The trainer computes what depends on the step (schedule, bias corrections, clipping).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub learning_rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decoupled weight decay; the parameter loses `learning_rate * weight_decay` of itself.
    pub weight_decay: f32,
    /// 1 - beta1^step, step counted from 1.
    pub bias_correction1: f32,
    /// 1 - beta2^step.
    pub bias_correction2: f32,
    /// Factor on the gradient before anything else (clipping by norm; 1 for none).
    pub gradient_scale: f32,
}

impl Cpu {
    /// Updates `parameter`, `first` and `second` moment (all the same length) from `gradient`.
    ///
    /// g = gradient*scale; m = fma(beta1, m, (1-beta1)*g); v = fma(beta2, v, ((1-beta2)*g)*g);
    /// p = fma(-(lr/bias1), m / (sqrt(v)/sqrt(bias2) + epsilon), p * (1 - lr*decay)), the scalar parts in F32.
    pub fn adamw(
        &self,
        parameter: &mut [f32],
        gradient: &[f32],
        first: &mut [f32],
        second: &mut [f32],
        numbers: &AdamW,
    ) -> Result<(), ShapeError> {
        expect("adamw", "gradient", parameter.len(), gradient.len())?;
        expect("adamw", "first", parameter.len(), first.len())?;
        expect("adamw", "second", parameter.len(), second.len())?;
        let _timer = self.timer(Kernel::Optimizer, 0);
        let tasks = parameter.chunks_mut(CHUNK).zip(gradient.chunks(CHUNK));
        let tasks = tasks.zip(first.chunks_mut(CHUNK)).zip(second.chunks_mut(CHUNK));
        self.each(tasks, |(((parameter, gradient), first), second)| {
            dispatch!(self, |l| step(l, parameter, gradient, first, second, numbers));
        });
        Ok(())
    }
}

#[inline(always)]
fn step<L: Lanes>(l: L, parameter: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], n: &AdamW) {
    let root2 = l.splat(n.bias_correction2.sqrt());
    let rate = l.splat(-(n.learning_rate / n.bias_correction1));
    let keep = l.splat(1.0 - n.learning_rate * n.weight_decay);
    let (beta1, rest1) = (l.splat(n.beta1), l.splat(1.0 - n.beta1));
    let (beta2, rest2) = (l.splat(n.beta2), l.splat(1.0 - n.beta2));
    for at in (0..parameter.len()).step_by(WIDTH) {
        let g = l.mul(get(l, gradient, at), l.splat(n.gradient_scale));
        let m = l.fma(beta1, get(l, first, at), l.mul(rest1, g));
        let v = l.fma(beta2, get(l, second, at), l.mul(l.mul(rest2, g), g));
        let denominator = l.add(l.div(l.sqrt(v), root2), l.splat(n.epsilon));
        let p = l.fma(rate, l.div(m, denominator), l.mul(get(l, parameter, at), keep));
        put(l, m, first, at);
        put(l, v, second, at);
        put(l, p, parameter, at);
    }
}
