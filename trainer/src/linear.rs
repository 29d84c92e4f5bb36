//! The four linear layers of a block: the only part of the model that follows the recipe.
//!
//! Each of the three GEMM passes prepares its two operands as the recipe says and multiplies them. This file says which
//! specification, random words, sign vector and history belong to which operand, the same for every device; a device's
//! `Linears` prepares and multiplies.

use std::fmt::Debug;
use std::ops::Range;

use contract::recipe::{DelayedScaling, OperandSpec, Passes, Rounding, Signs, StochasticSeed};
use kernels::hadamard;
use kernels::random::Stream;

use crate::device::Device;
use crate::error::TrainerError;
use crate::metrics::QuantisationRecord;
use crate::streams::{self, Operand, Pass, Place};
use contract::run_file::RunFile;

/// The operands of the three passes, in the order of delayed-scaling histories.
pub const SLOTS: [(Pass, Operand); 6] = [
    (Pass::Fprop, Operand::Input),
    (Pass::Fprop, Operand::Weight),
    (Pass::Dgrad, Operand::OutputGradient),
    (Pass::Dgrad, Operand::Weight),
    (Pass::Wgrad, Operand::OutputGradient),
    (Pass::Wgrad, Operand::Input),
];

/// Which evaluation, and which batch of it: its random words are not those of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// Steps done.
    pub step: u64,
    pub chunk: usize,
}

/// How the linears of a forward pass are done.
#[derive(Debug)]
pub enum Mode<'a, W> {
    /// A training step, counted from 1.
    Training { step: u64 },
    /// A batch of an evaluation.
    Evaluation {
        evaluation: Evaluation,
        /// What [`Linears::evaluation_weights`] made.
        weights: &'a W,
    },
}

/// X of a linear. What is not [`Input::Kept`] a device may make again whenever it reads it, instead of keeping it ([`Device::remade`]).
#[derive(Debug)]
pub enum Input<'a, D: Device> {
    Kept(&'a D::Activation),
    Normed {
        /// Itself, where it is kept.
        normed: &'a D::Activation,
        stream: &'a D::Activation,
        /// Of each row.
        inverse_rms: &'a D::Statistic,
        /// Where the gain is in the parameters.
        gain: &'a Range<usize>,
    },
    Gated {
        /// Itself, where it is kept.
        hidden: &'a D::Activation,
        gate_up: &'a D::Activation,
    },
}

impl<'a, D: Device> Input<'a, D> {
    /// What is kept of it.
    pub fn kept(&self) -> &'a D::Activation {
        match self {
            Self::Kept(x) => x,
            Self::Normed { normed, .. } => normed,
            Self::Gated { hidden, .. } => hidden,
        }
    }
}

/// Where a product goes, and what follows it: a device may do both at once, while the rows are near.
#[derive(Debug)]
pub enum Goal<'a, A> {
    /// `[tokens, columns]`, overwritten.
    Over(&'a mut A),
    /// `sum` = `residual` + product.
    Onto {
        /// `[tokens, columns]`.
        residual: &'a A,
        /// `[tokens, columns]`, overwritten.
        sum: &'a mut A,
    },
    /// The product is `[tokens, 2f]`, gate and up.
    Swiglu {
        gate_up: &'a mut A,
        /// `[tokens, f]`, SwiGLU of it.
        hidden: &'a mut A,
    },
    /// The product is the gradient of SwiGLU's result `[tokens, f]`, and is not kept. Gate and up are not needed afterwards: their gradient
    /// may take their place ([`Device::in_place`]).
    SwigluBackward {
        /// What forward made, `[tokens, 2f]`.
        gate_up: &'a A,
        d_gate_up: &'a mut A,
    },
}

/// All linears of a model on a device.
pub trait Linears<D: Device>: Debug + Send + Sync {
    /// Weights prepared once for all batches of an evaluation.
    type Weights: Debug + Send + Sync;

    /// x Wᵀ of `tokens` rows, to `goal`; the weight is at `weight.1` of the parameters.
    fn forward(
        &mut self,
        place: Place,
        mode: &Mode<'_, Self::Weights>,
        x: &Input<'_, D>,
        weight: (&D::Parameters, &Range<usize>),
        goal: Goal<'_, D::Activation>,
        tokens: usize,
    ) -> Result<(), TrainerError>;

    /// ∇Y W, `[tokens, in]`, to `goal`; and, at `weight.1` of the gradients, `[out, in]` = ∇Yᵀ X, overwritten.
    #[allow(clippy::too_many_arguments)] // what the formulas read and write
    fn backward(
        &mut self,
        place: Place,
        step: u64,
        x: &Input<'_, D>,
        weight: (&D::Parameters, &Range<usize>),
        d_y: &D::Activation,
        goal: Goal<'_, D::Activation>,
        gradients: &mut D::Numbers,
        tokens: usize,
    ) -> Result<(), TrainerError>;

    /// Every weight as evaluation after `step` steps reads it. Delayed scales stay as they are.
    fn evaluation_weights(
        &self,
        parameters: &D::Parameters,
        places: &[(Place, Range<usize>)],
        step: u64,
    ) -> Result<Self::Weights, TrainerError>;

    /// The end of training step `step`.
    fn finish_step(&mut self, step: u64) -> Result<(), TrainerError>;

    /// Measures the operands of `layers` during the next step.
    fn observe(&mut self, step: u64, layers: Vec<usize>);

    /// What was measured, in the order fprop, dgrad, wgrad by layer and linear; nothing is measured from here on.
    fn observed(&mut self) -> Vec<QuantisationRecord>;

    /// Largest magnitudes of earlier steps, oldest first, for a checkpoint; index (layer * 4 + linear) * 6 + slot.
    fn histories(&self) -> Result<Vec<Vec<f32>>, TrainerError>;

    /// Puts back what a checkpoint held; `false`, and nothing done, if it does not belong to such a model.
    fn restore_histories(&mut self, histories: Vec<Vec<f32>>) -> Result<bool, TrainerError>;
}

/// Signs of one rotation, without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct SignVector {
    room: [f32; LARGEST_ROTATION],
    size: usize,
}

/// The largest of `hadamard::SIZES`.
const LARGEST_ROTATION: usize = 128;

impl SignVector {
    /// As many as the rotation's size.
    pub fn as_slice(&self) -> &[f32] {
        &self.room[..self.size]
    }
}

/// What a run's recipe says of every operand.
#[derive(Debug, Clone)]
pub struct Choices {
    passes: Passes,
    seed: u64,
    constant_words: bool,
    /// History of delayed scales, if there are any.
    pub delayed: Option<DelayedScaling>,
    /// Name, out features, in features.
    pub shapes: [(&'static str, usize, usize); 4],
    pub layers: usize,
}

impl Choices {
    /// For a run file that passed its checks.
    pub fn new(run: &RunFile) -> Self {
        Self {
            passes: run.recipe.passes.clone(),
            seed: run.run.seed,
            constant_words: run.recipe.stochastic_seed == StochasticSeed::Constant,
            delayed: run.recipe.delayed_scaling,
            shapes: run.model.linears(),
            layers: run.model.num_hidden_layers,
        }
    }

    /// How an operand is prepared.
    pub fn spec(&self, pass: Pass, operand: Operand) -> OperandSpec {
        match (pass, operand) {
            (Pass::Fprop, Operand::Weight) => self.passes.fprop.weight,
            (Pass::Fprop, _) => self.passes.fprop.input,
            (Pass::Dgrad, Operand::Weight) => self.passes.dgrad.weight,
            (Pass::Dgrad, _) => self.passes.dgrad.output_gradient,
            (Pass::Wgrad, Operand::OutputGradient) => self.passes.wgrad.output_gradient,
            (Pass::Wgrad, _) => self.passes.wgrad.input,
        }
    }

    /// Sign vector of a rotation that has one. Fixed signs do not depend on the step, nor on training or evaluation.
    pub fn signs(&self, place: Place, pass: Pass, spec: &OperandSpec, step: u64) -> Option<SignVector> {
        let rotation = spec.rotation?;
        let step = match rotation.signs {
            Signs::None => return None,
            Signs::Fixed => 0,
            Signs::PerStep => step,
        };
        let mut signs = SignVector { room: [0.0; LARGEST_ROTATION], size: rotation.size.min(LARGEST_ROTATION) };
        hadamard::fill_signs(streams::signs(self.seed, step, place, pass), &mut signs.room[..signs.size]);
        Some(signs)
    }

    /// The random words of an operand of a training step, if it is rounded stochastically.
    pub fn training_words(&self, place: Place, pass: Pass, operand: Operand, step: u64) -> Option<Stream> {
        self.words(&self.spec(pass, operand), || streams::rounding(self.seed, step, place, pass, operand))
    }

    /// The random words of an operand of an evaluation's forward pass.
    pub fn evaluation_words(&self, place: Place, operand: Operand, evaluation: Evaluation) -> Option<Stream> {
        let own = || streams::evaluation_rounding(self.seed, evaluation.step, place, operand, evaluation.chunk);
        self.words(&self.spec(Pass::Fprop, operand), own)
    }

    /// `own`, unless the recipe gives all operands the same.
    fn words(&self, spec: &OperandSpec, own: impl FnOnce() -> Stream) -> Option<Stream> {
        (spec.rounding != Rounding::NearestEven).then(|| if self.constant_words { streams::constant_rounding(self.seed) } else { own() })
    }

    /// Number of an operand among all histories.
    pub fn slot(&self, place: Place, pass: Pass, operand: Operand) -> usize {
        let within = SLOTS.iter().position(|&slot| slot == (pass, operand)).unwrap_or_default();
        (place.layer * 4 + place.linear) * SLOTS.len() + within
    }

    /// All slots of the model.
    pub fn slots(&self) -> usize {
        self.layers * 4 * SLOTS.len()
    }

    /// Whether histories are as many, and as long at most, as this model's.
    pub fn fits(&self, histories: &[Vec<f32>]) -> bool {
        let longest = self.delayed.map_or(0, |delayed| delayed.history);
        histories.len() == self.slots() && histories.iter().all(|history| history.len() <= longest)
    }

    /// Records in the order fprop, dgrad, wgrad by layer and linear.
    pub fn sort(&self, records: &mut [QuantisationRecord]) {
        let linear = |name: &str| self.shapes.iter().position(|shape| shape.0 == name);
        let pass = |name: &str| SLOTS.iter().position(|slot| slot.0.name() == name);
        records.sort_by_key(|record| (record.layer, linear(record.linear), pass(record.pass)));
    }
}

/// What is measured during one step.
#[derive(Debug)]
pub struct Observation {
    /// Which step.
    pub step: u64,
    pub layers: Vec<usize>,
    /// What was seen so far.
    pub records: Vec<QuantisationRecord>,
}
