//! The linears on the CPU: operands into panels, panels multiplied, histories of delayed scales, and what observing asks for.

use std::ops::Range;

use kernels::cpu::{Cpu, Panels, Role, Side};
use kernels::operand::{OperandSpec, ScaleRule};
use kernels::quantise::{Randomness, Source};

use crate::error::TrainerError;
use crate::linear::{Choices, Evaluation, Linears, Mode, Observation, SignVector};
use crate::metrics::QuantisationRecord;
use crate::quantisation_error;
use crate::run_file::{DelayedChoice, RunFile};
use crate::streams::{Operand, Pass, Place};

/// Recipe, delayed-scaling state and panels of all linears of a model.
#[derive(Debug)]
pub struct CpuLinears {
    cpu: Cpu,
    choices: Choices,
    /// Largest magnitudes of earlier steps, oldest first; index as `Choices::slot`.
    histories: Vec<Vec<f32>>,
    observation: Option<Observation>,
    /// The two sides of the product at hand, reused by every product.
    left: Panels,
    right: Panels,
}

impl CpuLinears {
    /// For a run file that passed its checks.
    pub(super) fn new(cpu: Cpu, run: &RunFile) -> Self {
        let choices = Choices::new(run);
        Self {
            cpu,
            histories: vec![Vec::new(); choices.slots()],
            choices,
            observation: None,
            left: Panels::default(),
            right: Panels::default(),
        }
    }

    fn remembered(&self, slot: usize, spec: &OperandSpec) -> Option<f32> {
        if spec.scale != ScaleRule::Delayed {
            return None;
        }
        let history = &self.histories[slot];
        match self.choices.delayed?.choose {
            DelayedChoice::MostRecent => history.last().copied(),
            DelayedChoice::Max => history.iter().copied().reduce(f32::max),
        }
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
        Role { side, partner: self.choices.spec(pass, partner).format }
    }

    /// Prepares an operand of a training step into its side, remembers its largest magnitude and measures it if asked.
    fn operand(&mut self, place: Place, pass: Pass, operand: Operand, source: Source<'_>, step: u64) -> Result<(), TrainerError> {
        let (spec, role) = (self.choices.spec(pass, operand), self.role(pass, operand));
        let signs = self.choices.signs(place, pass, &spec, step);
        let rounding = self.choices.training_words(place, pass, operand, step);
        let slot = self.choices.slot(place, pass, operand);
        let remembered = self.remembered(slot, &spec);
        let panels = if role.side == Side::Left { &mut self.left } else { &mut self.right };
        let randomness = Randomness { rounding, signs: signs.as_ref().map(SignVector::as_slice) };
        let stats = self.cpu.prepare_into(source, &spec, role, randomness, remembered, panels).map_err(TrainerError::kernel)?;
        if let (ScaleRule::Delayed, Some(delayed)) = (spec.scale, self.choices.delayed) {
            let history = &mut self.histories[slot];
            if history.len() == delayed.history {
                history.remove(0);
            }
            history.push(stats.amax);
        }
        if let Some(observation) = &mut self.observation
            && observation.layers.contains(&place.layer)
        {
            let survived = quantisation_error::measure(&source, &spec, signs.as_ref().map(SignVector::as_slice), &panels.unpack());
            let linear = self.choices.shapes[place.linear].0;
            observation.records.push(survived.record(observation.step, place.layer, linear, pass, operand, spec.format));
        }
        Ok(())
    }

    fn evaluation_operand(
        &self,
        place: Place,
        operand: Operand,
        source: Source<'_>,
        evaluation: Evaluation,
        panels: &mut Panels,
    ) -> Result<(), TrainerError> {
        let (spec, role) = (self.choices.spec(Pass::Fprop, operand), self.role(Pass::Fprop, operand));
        let signs = self.choices.signs(place, Pass::Fprop, &spec, evaluation.step);
        let rounding = self.choices.evaluation_words(place, operand, evaluation);
        let remembered = self.remembered(self.choices.slot(place, Pass::Fprop, operand), &spec);
        let randomness = Randomness { rounding, signs: signs.as_ref().map(SignVector::as_slice) };
        self.cpu.prepare_into(source, &spec, role, randomness, remembered, panels).map_err(TrainerError::kernel)?;
        Ok(())
    }
}

impl Linears<Cpu> for CpuLinears {
    type Weights = Vec<Panels>;

    fn forward(
        &mut self,
        place: Place,
        mode: &Mode<'_, Vec<Panels>>,
        x: &Vec<f32>,
        (parameters, weight): (&Vec<f32>, &Range<usize>),
        residual: Option<&Vec<f32>>,
        y: &mut Vec<f32>,
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let y = &mut y[..tokens * out];
        if let Some(residual) = residual {
            y.copy_from_slice(&residual[..tokens * out]);
        }
        let x = Source { values: &x[..tokens * inputs], rows: tokens, k: inputs, transposed: false };
        match mode {
            Mode::Training { step } => {
                let w = Source { values: &parameters[weight.clone()], rows: out, k: inputs, transposed: false };
                self.operand(place, Pass::Fprop, Operand::Input, x, *step)?;
                self.operand(place, Pass::Fprop, Operand::Weight, w, *step)?;
                self.cpu.gemm(&self.left, &self.right, y, residual.is_some()).map_err(TrainerError::kernel)
            }
            Mode::Evaluation { evaluation, weights } => {
                let mut left = std::mem::take(&mut self.left);
                let prepared = self.evaluation_operand(place, Operand::Input, x, *evaluation, &mut left);
                self.left = left;
                prepared?;
                let weight = &weights[4 * place.layer + place.linear];
                self.cpu.gemm(&self.left, weight, y, residual.is_some()).map_err(TrainerError::kernel)
            }
        }
    }

    fn backward(
        &mut self,
        place: Place,
        step: u64,
        x: &Vec<f32>,
        (parameters, weight): (&Vec<f32>, &Range<usize>),
        d_y: &Vec<f32>,
        d_x: &mut Vec<f32>,
        gradients: &mut Vec<f32>,
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let (d_output, x) = (&d_y[..tokens * out], &x[..tokens * inputs]);
        let dy = Source { values: d_output, rows: tokens, k: out, transposed: false };
        let w = Source { values: &parameters[weight.clone()], rows: inputs, k: out, transposed: true };
        self.operand(place, Pass::Dgrad, Operand::OutputGradient, dy, step)?;
        self.operand(place, Pass::Dgrad, Operand::Weight, w, step)?;
        self.cpu.gemm(&self.left, &self.right, &mut d_x[..tokens * inputs], false).map_err(TrainerError::kernel)?;
        let dy = Source { values: d_output, rows: out, k: tokens, transposed: true };
        let x = Source { values: x, rows: inputs, k: tokens, transposed: true };
        self.operand(place, Pass::Wgrad, Operand::OutputGradient, dy, step)?;
        self.operand(place, Pass::Wgrad, Operand::Input, x, step)?;
        self.cpu.gemm(&self.left, &self.right, &mut gradients[weight.clone()], false).map_err(TrainerError::kernel)
    }

    fn evaluation_weights(&self, parameters: &Vec<f32>, places: &[(Place, Range<usize>)], step: u64) -> Result<Vec<Panels>, TrainerError> {
        let weight = |(place, range): &(Place, Range<usize>)| {
            let (_, out, inputs) = self.choices.shapes[place.linear];
            let source = Source { values: &parameters[range.clone()], rows: out, k: inputs, transposed: false };
            let mut panels = Panels::default();
            self.evaluation_operand(*place, Operand::Weight, source, Evaluation { step, chunk: 0 }, &mut panels)?;
            Ok(panels)
        };
        places.iter().map(weight).collect()
    }

    fn finish_step(&mut self, _: u64) -> Result<(), TrainerError> {
        Ok(())
    }

    fn observe(&mut self, step: u64, layers: Vec<usize>) {
        self.observation = Some(Observation { step, layers, records: Vec::new() });
    }

    fn observed(&mut self) -> Vec<QuantisationRecord> {
        let Some(mut observation) = self.observation.take() else { return Vec::new() };
        self.choices.sort(&mut observation.records);
        observation.records
    }

    fn histories(&self) -> Result<Vec<Vec<f32>>, TrainerError> {
        Ok(self.histories.clone())
    }

    fn restore_histories(&mut self, histories: Vec<Vec<f32>>) -> Result<bool, TrainerError> {
        let fits = self.choices.fits(&histories);
        if fits {
            self.histories = histories;
        }
        Ok(fits)
    }
}
