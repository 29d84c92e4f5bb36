//! The four linear layers of a block: the only part of the model that follows the recipe.
//!
//! Each of the three GEMM passes prepares its two operands as the recipe says (`kernels::quantise`) and multiplies them.
//! This file chooses random words, sign vectors and delayed scales, and observes how operands survive; it computes nothing.

use kernels::cpu::{Cpu, Panels, Role, Side, Unprepared};
use kernels::hadamard;
use kernels::operand::{OperandSpec, Rounding, ScaleRule, Signs};
use kernels::quantise::{PreparedStats, Randomness, Source};
use kernels::random::Stream;

use crate::error::TrainerError;
use crate::metrics::QuantisationRecord;
use crate::quantisation_error;
use crate::run_file::{DelayedChoice, DelayedScaling, PassesSection, RunFile, StochasticSeed};
use crate::streams::{self, Operand, Pass, Place};

/// The operands of the three passes, in the order of delayed-scaling histories.
const SLOTS: [(Pass, Operand); 6] = [
    (Pass::Fprop, Operand::Input),
    (Pass::Fprop, Operand::Weight),
    (Pass::Dgrad, Operand::OutputGradient),
    (Pass::Dgrad, Operand::Weight),
    (Pass::Wgrad, Operand::OutputGradient),
    (Pass::Wgrad, Operand::Input),
];

/// Recipe, random words and delayed-scaling state of all linears of a model.
#[derive(Debug)]
pub struct Linears {
    cpu: Cpu,
    passes: PassesSection,
    seed: u64,
    constant_words: bool,
    delayed: Option<DelayedScaling>,
    /// Name, out features, in features.
    shapes: [(&'static str, usize, usize); 4],
    /// Largest magnitudes of earlier steps, oldest first; index (layer * 4 + linear) * 6 + slot.
    histories: Vec<Vec<f32>>,
    observation: Option<Observation>,
    /// The two sides of the product at hand, reused by every product.
    left: Panels,
    right: Panels,
}

/// Where a product goes, and what follows it row by row: done chunk by chunk, while the rows are in the caches.
#[derive(Debug)]
pub enum Goal<'a> {
    /// `[tokens, columns]`, overwritten.
    Over(&'a mut [f32]),
    /// `sum` = `residual` + product.
    Onto {
        /// `[tokens, columns]`.
        residual: &'a [f32],
        /// `[tokens, columns]`, overwritten.
        sum: &'a mut [f32],
    },
    /// The product is `[tokens, 2f]`, gate and up.
    Swiglu {
        /// The product.
        gate_up: &'a mut [f32],
        /// `[tokens, f]`, SwiGLU of it.
        hidden: &'a mut [f32],
    },
    /// The product is the gradient of SwiGLU's result `[tokens, f]`, and is not kept.
    SwigluBackward {
        /// What forward made, `[tokens, 2f]`.
        gate_up: &'a [f32],
        /// Its gradient, overwritten.
        d_gate_up: &'a mut [f32],
    },
}

/// The largest of `hadamard::SIZES`.
const LARGEST_ROTATION: usize = 128;

/// Signs of one rotation, without an allocation.
struct SignVector {
    room: [f32; LARGEST_ROTATION],
    size: usize,
}

impl SignVector {
    fn as_slice(&self) -> &[f32] {
        &self.room[..self.size]
    }
}

/// What is measured during one step.
#[derive(Debug)]
struct Observation {
    step: u64,
    layers: Vec<usize>,
    records: Vec<QuantisationRecord>,
}

/// One linear's tensors in a pass. `tokens` rows each in `input` and `output`.
#[derive(Debug, Clone, Copy)]
pub struct Tensors<'a> {
    /// X: `[tokens, in]`.
    pub input: &'a [f32],
    /// W: `[out, in]`.
    pub weight: &'a [f32],
}

/// Which evaluation, and which batch of it: its random words are not those of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// Steps done.
    pub step: u64,
    /// Batch within the evaluation.
    pub chunk: usize,
}

impl Linears {
    /// For a run file that passed its checks.
    pub fn new(cpu: Cpu, run: &RunFile) -> Self {
        Self {
            cpu,
            passes: run.recipe.passes.clone(),
            seed: run.run.seed,
            constant_words: run.recipe.stochastic_seed == StochasticSeed::Constant,
            delayed: run.recipe.delayed_scaling,
            shapes: run.model.linears(),
            histories: vec![Vec::new(); run.model.num_hidden_layers * 4 * SLOTS.len()],
            observation: None,
            left: Panels::default(),
            right: Panels::default(),
        }
    }

    /// x Wᵀ in a training step, to `goal`.
    ///
    /// # Errors
    /// A kernel's, for shapes that the run file's checks should have refused.
    pub fn forward(&mut self, place: Place, step: u64, tensors: Tensors<'_>, goal: Goal<'_>) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.shapes[place.linear];
        let x = Source { values: tensors.input, rows: tensors.input.len() / inputs, k: inputs, transposed: false };
        let w = Source { values: tensors.weight, rows: out, k: inputs, transposed: false };
        self.product(place, Pass::Fprop, (Operand::Input, x), w, step, goal)
    }

    /// d_input = ∇Y W, to `goal` (`[tokens, in]`), and `d_weight: [out, in]` = ∇Yᵀ X, overwritten; `d_output: [tokens, out]`.
    ///
    /// # Errors
    /// As [`Linears::forward`].
    pub fn backward(
        &mut self,
        place: Place,
        step: u64,
        tensors: Tensors<'_>,
        d_output: &[f32],
        goal: Goal<'_>,
        d_weight: &mut [f32],
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.shapes[place.linear];
        let tokens = d_output.len() / out;
        let dy = Source { values: d_output, rows: tokens, k: out, transposed: false };
        let w = Source { values: tensors.weight, rows: inputs, k: out, transposed: true };
        self.product(place, Pass::Dgrad, (Operand::OutputGradient, dy), w, step, goal)?;
        let dy = Source { values: d_output, rows: out, k: tokens, transposed: true };
        let x = Source { values: tensors.input, rows: inputs, k: tokens, transposed: true };
        self.operand(place, Pass::Wgrad, Operand::OutputGradient, dy, step)?;
        self.operand(place, Pass::Wgrad, Operand::Input, x, step)?;
        self.cpu.gemm(&self.left, &self.right, d_weight, false).map_err(TrainerError::kernel)
    }

    /// The weight as evaluation's forward pass reads it, prepared once for all its batches. Delayed scales stay as they are.
    ///
    /// # Errors
    /// As [`Linears::forward`].
    pub fn evaluation_weight(&self, place: Place, step: u64, weight: &[f32]) -> Result<Panels, TrainerError> {
        let (_, out, inputs) = self.shapes[place.linear];
        let source = Source { values: weight, rows: out, k: inputs, transposed: false };
        let mut panels = Panels::default();
        self.evaluation_operand(place, Operand::Weight, source, Evaluation { step, chunk: 0 }, &mut panels)?;
        Ok(panels)
    }

    /// x Wᵀ in an evaluation, to `goal`.
    ///
    /// # Errors
    /// As [`Linears::forward`].
    pub fn evaluate(&self, place: Place, evaluation: Evaluation, x: &[f32], weight: &Panels, goal: Goal<'_>) -> Result<(), TrainerError> {
        let (_, _, inputs) = self.shapes[place.linear];
        let source = Source { values: x, rows: x.len() / inputs, k: inputs, transposed: false };
        let spec = self.spec(Pass::Fprop, Operand::Input);
        let signs = self.signs(place, Pass::Fprop, &spec, evaluation.step);
        let rounding =
            self.words(&spec, || streams::evaluation_rounding(self.seed, evaluation.step, place, Operand::Input, evaluation.chunk));
        let left = Unprepared {
            source,
            spec: &spec,
            partner: self.role(Pass::Fprop, Operand::Input).partner,
            randomness: Randomness { rounding, signs: signs.as_ref().map(SignVector::as_slice) },
            delayed_amax: self.remembered(self.slot(place, Pass::Fprop, Operand::Input), &spec),
        };
        multiply(&self.cpu, left, weight, goal)?;
        Ok(())
    }

    /// Measures the operands of `layers` during the next step.
    pub fn observe(&mut self, step: u64, layers: Vec<usize>) {
        self.observation = Some(Observation { step, layers, records: Vec::new() });
    }

    /// What was measured, in the order fprop, dgrad, wgrad by layer and linear; nothing is measured from here on.
    pub fn observed(&mut self) -> Vec<QuantisationRecord> {
        let Some(mut observation) = self.observation.take() else { return Vec::new() };
        let linear = |name: &str| self.shapes.iter().position(|shape| shape.0 == name);
        let pass = |name: &str| SLOTS.iter().position(|slot| slot.0.name() == name);
        observation.records.sort_by_key(|record| (record.layer, linear(record.linear), pass(record.pass)));
        observation.records
    }

    /// Largest magnitudes of earlier steps, for a checkpoint.
    pub fn histories(&self) -> &[Vec<f32>] {
        &self.histories
    }

    /// Puts back what a checkpoint held; `false`, and nothing done, if it does not belong to such a model.
    pub fn restore_histories(&mut self, histories: Vec<Vec<f32>>) -> bool {
        let longest = self.delayed.map_or(0, |delayed| delayed.history);
        let fits = histories.len() == self.histories.len() && histories.iter().all(|history| history.len() <= longest);
        if fits {
            self.histories = histories;
        }
        fits
    }

    fn spec(&self, pass: Pass, operand: Operand) -> OperandSpec {
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
    fn signs(&self, place: Place, pass: Pass, spec: &OperandSpec, step: u64) -> Option<SignVector> {
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

    fn remembered(&self, slot: usize, spec: &OperandSpec) -> Option<f32> {
        if spec.scale != ScaleRule::Delayed {
            return None;
        }
        let history = &self.histories[slot];
        match self.delayed?.choose {
            DelayedChoice::MostRecent => history.last().copied(),
            DelayedChoice::Max => history.iter().copied().reduce(f32::max),
        }
    }

    fn slot(&self, place: Place, pass: Pass, operand: Operand) -> usize {
        let within = SLOTS.iter().position(|&slot| slot == (pass, operand)).unwrap_or_default();
        (place.layer * 4 + place.linear) * SLOTS.len() + within
    }

    /// The random words of an operand that is rounded stochastically: `own`, unless the recipe gives all the same.
    fn words(&self, spec: &OperandSpec, own: impl FnOnce() -> Stream) -> Option<Stream> {
        (spec.rounding != Rounding::NearestEven).then(|| if self.constant_words { streams::constant_rounding(self.seed) } else { own() })
    }

    /// Side of an operand in its product, and the format of the other one.
    fn role(&self, pass: Pass, operand: Operand) -> Role {
        let (side, partner) = match (pass, operand) {
            (Pass::Fprop, Operand::Input) => (Side::Left, Operand::Weight),
            (Pass::Fprop, _) => (Side::Right, Operand::Input),
            (Pass::Dgrad, Operand::OutputGradient) => (Side::Left, Operand::Weight),
            (Pass::Dgrad, _) => (Side::Right, Operand::OutputGradient),
            (Pass::Wgrad, Operand::OutputGradient) => (Side::Left, Operand::Input),
            (Pass::Wgrad, _) => (Side::Right, Operand::OutputGradient),
        };
        Role { side, partner: self.spec(pass, partner).format }
    }

    /// One of the two products of a training step whose left side has a row a token: it is prepared on the way.
    fn product(
        &mut self,
        place: Place,
        pass: Pass,
        (operand, source): (Operand, Source<'_>),
        weight: Source<'_>,
        step: u64,
        goal: Goal<'_>,
    ) -> Result<(), TrainerError> {
        if self.observes(place) {
            // Measured as a whole, which the product never sees.
            self.prepare(place, pass, operand, source, step)?;
        }
        self.operand(place, pass, Operand::Weight, weight, step)?;
        let spec = self.spec(pass, operand);
        let signs = self.signs(place, pass, &spec, step);
        let slot = self.slot(place, pass, operand);
        let left = Unprepared {
            source,
            spec: &spec,
            partner: self.role(pass, operand).partner,
            randomness: Randomness {
                rounding: self.words(&spec, || streams::rounding(self.seed, step, place, pass, operand)),
                signs: signs.as_ref().map(SignVector::as_slice),
            },
            delayed_amax: self.remembered(slot, &spec),
        };
        let stats = multiply(&self.cpu, left, &self.right, goal)?;
        self.remember(slot, &spec, stats);
        Ok(())
    }

    /// Prepares an operand of a training step into its side, remembers its largest magnitude and measures it if asked.
    fn operand(&mut self, place: Place, pass: Pass, operand: Operand, source: Source<'_>, step: u64) -> Result<(), TrainerError> {
        let stats = self.prepare(place, pass, operand, source, step)?;
        self.remember(self.slot(place, pass, operand), &self.spec(pass, operand), stats);
        Ok(())
    }

    /// Whether the operands of a place are measured in this step.
    fn observes(&self, place: Place) -> bool {
        self.observation.as_ref().is_some_and(|observation| observation.layers.contains(&place.layer))
    }

    fn remember(&mut self, slot: usize, spec: &OperandSpec, stats: PreparedStats) {
        if let (ScaleRule::Delayed, Some(delayed)) = (spec.scale, self.delayed) {
            let history = &mut self.histories[slot];
            if history.len() == delayed.history {
                history.remove(0);
            }
            history.push(stats.amax);
        }
    }

    /// An operand of a training step into its side, measured if asked.
    fn prepare(
        &mut self,
        place: Place,
        pass: Pass,
        operand: Operand,
        source: Source<'_>,
        step: u64,
    ) -> Result<PreparedStats, TrainerError> {
        let (spec, role) = (self.spec(pass, operand), self.role(pass, operand));
        let signs = self.signs(place, pass, &spec, step);
        let rounding = self.words(&spec, || streams::rounding(self.seed, step, place, pass, operand));
        let remembered = self.remembered(self.slot(place, pass, operand), &spec);
        let observes = self.observes(place);
        let panels = if role.side == Side::Left { &mut self.left } else { &mut self.right };
        let randomness = Randomness { rounding, signs: signs.as_ref().map(SignVector::as_slice) };
        let stats = self.cpu.prepare_into(source, &spec, role, randomness, remembered, panels).map_err(TrainerError::kernel)?;
        if let Some(observation) = self.observation.as_mut().filter(|_| observes) {
            let survived = quantisation_error::measure(&source, &spec, signs.as_ref().map(SignVector::as_slice), &panels.unpack());
            let linear = self.shapes[place.linear].0;
            observation.records.push(survived.record(observation.step, place.layer, linear, pass, operand, spec.format));
        }
        Ok(stats)
    }

    fn evaluation_operand(
        &self,
        place: Place,
        operand: Operand,
        source: Source<'_>,
        evaluation: Evaluation,
        panels: &mut Panels,
    ) -> Result<(), TrainerError> {
        let (spec, role) = (self.spec(Pass::Fprop, operand), self.role(Pass::Fprop, operand));
        let signs = self.signs(place, Pass::Fprop, &spec, evaluation.step);
        let rounding = self.words(&spec, || streams::evaluation_rounding(self.seed, evaluation.step, place, operand, evaluation.chunk));
        let remembered = self.remembered(self.slot(place, Pass::Fprop, operand), &spec);
        let randomness = Randomness { rounding, signs: signs.as_ref().map(SignVector::as_slice) };
        self.cpu.prepare_into(source, &spec, role, randomness, remembered, panels).map_err(TrainerError::kernel)?;
        Ok(())
    }
}

/// A product, and what follows it.
fn multiply(cpu: &Cpu, left: Unprepared<'_>, right: &Panels, goal: Goal<'_>) -> Result<PreparedStats, TrainerError> {
    match goal {
        Goal::Over(y) => cpu.gemm_from(left, right, y, false),
        Goal::Onto { residual, sum } => cpu.gemm_from_onto(left, right, residual, sum),
        Goal::Swiglu { gate_up, hidden } => cpu.gemm_from_swiglu(left, right, gate_up, hidden),
        Goal::SwigluBackward { gate_up, d_gate_up } => cpu.gemm_from_swiglu_backward(left, right, gate_up, d_gate_up),
    }
    .map_err(TrainerError::kernel)
}
