//! The linears on the CPU: operands into panels, panels multiplied, histories of delayed scales, and what observing asks for.

use std::ops::Range;

use contract::metrics::Quantisation;
use contract::recipe::{DelayedChoice, OperandSpec, ScaleRule};
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, Panels, Role, Side, Unprepared};
use kernels::quantise::{PreparedStats, Randomness, Source};
use kernels::random::Stream;

use crate::choices::{Choices, Evaluation, Observation, SLOTS, SignVector};
use crate::device::{Goal, Input, Linears, Mode};
use crate::error::TrainerError;
use crate::quantisation_error;
use crate::quantised_once::Once;
use crate::streams::{Operand, Pass, Place};

/// Recipe, delayed-scaling state and panels of all linears of a model.
#[derive(Debug)]
pub struct CpuLinears {
    cpu: Cpu,
    choices: Choices,
    /// Largest magnitudes of earlier steps, oldest first; index as `Choices::slot`.
    histories: Vec<Vec<f32>>,
    /// Bits of the largest magnitude of each slot in this step, over its micro-batches; those of a NaN are larger than any number's.
    largest: Vec<u32>,
    observation: Option<Observation>,
    /// The two sides of a product, each where it is prepared as a whole.
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
            largest: vec![0; choices.slots()],
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

    /// The source of an operand that a defect quantises twice, quantised for the first time.
    fn quantised_once(&self, pass: Pass, operand: Operand, source: &Source<'_>) -> Result<Option<Once>, TrainerError> {
        self.choices.first(pass, operand).map(|first| Once::new(first, source)).transpose()
    }

    /// What an operand of a training step is to be made into.
    fn unprepared<'a>(&self, place: Place, pass: Pass, operand: Operand, source: Source<'a>, step: u64) -> Result<Ready<'a>, TrainerError> {
        let rounding = self.choices.training_words(place, pass, operand, step);
        self.ready((place, pass, operand), source, step, rounding)
    }

    fn ready<'a>(
        &self,
        (place, pass, operand): (Place, Pass, Operand),
        source: Source<'a>,
        step: u64,
        rounding: Option<Stream>,
    ) -> Result<Ready<'a>, TrainerError> {
        let spec = self.choices.spec(pass, operand);
        Ok(Ready {
            once: self.quantised_once(pass, operand, &source)?,
            source,
            role: self.role(pass, operand),
            signs: self.choices.signs(place, pass, operand, step),
            rounding,
            delayed_amax: self.remembered(self.choices.slot(place, pass, operand), &spec),
            spec,
        })
    }

    /// One of the two products of a training step whose left side has a row a token: it is prepared on the way.
    #[allow(clippy::too_many_arguments)] // an operand's place and source, its weight, and where the product goes
    fn product(
        &mut self,
        place: Place,
        pass: Pass,
        (operand, source): (Operand, Source<'_>),
        weight: Source<'_>,
        step: u64,
        goal: Goal<'_, Vec<f32>>,
    ) -> Result<(), TrainerError> {
        self.observe_operand(place, pass, operand, source, step)?;
        self.operand(place, pass, Operand::Weight, weight, step)?;
        let left = self.unprepared(place, pass, operand, source, step)?;
        let stats = multiply(&self.cpu, left.unprepared(), &self.right, goal)?;
        self.remember(self.choices.slot(place, pass, operand), stats);
        Ok(())
    }

    /// The gradient of a weight: both operands have a column a token, and are prepared on the way.
    fn weight_gradient(
        &mut self,
        place: Place,
        dy: Source<'_>,
        x: Source<'_>,
        step: u64,
        gradient: &mut [f32],
    ) -> Result<(), TrainerError> {
        let operands = [(Operand::OutputGradient, dy), (Operand::Input, x)];
        for (operand, source) in operands {
            self.observe_operand(place, Pass::Wgrad, operand, source, step)?;
        }
        let [left, right] = operands.map(|(operand, source)| self.unprepared(place, Pass::Wgrad, operand, source, step));
        let stats = self.cpu.gemm_from_both(left?.unprepared(), right?.unprepared(), gradient).map_err(TrainerError::kernel)?;
        for ((operand, _), stats) in operands.into_iter().zip(stats) {
            self.remember(self.choices.slot(place, Pass::Wgrad, operand), stats);
        }
        Ok(())
    }

    /// Measures an operand that is prepared on the way, where that is asked for: as a whole, which the product never sees.
    fn observe_operand(&mut self, place: Place, pass: Pass, operand: Operand, source: Source<'_>, step: u64) -> Result<(), TrainerError> {
        if self.observes(place) {
            self.prepare(place, pass, operand, source, step)?;
        }
        Ok(())
    }

    /// Prepares an operand of a training step into its side, remembers its largest magnitude and measures it if asked.
    fn operand(&mut self, place: Place, pass: Pass, operand: Operand, source: Source<'_>, step: u64) -> Result<(), TrainerError> {
        let stats = self.prepare(place, pass, operand, source, step)?;
        self.remember(self.choices.slot(place, pass, operand), stats);
        Ok(())
    }

    /// Whether the operands of a place are measured in this step.
    fn observes(&self, place: Place) -> bool {
        self.observation.as_ref().is_some_and(|observation| observation.layers.contains(&place.layer))
    }

    fn remember(&mut self, slot: usize, stats: PreparedStats) {
        let largest = &mut self.largest[slot];
        *largest = stats.amax.to_bits().max(*largest);
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
        let ready = self.unprepared(place, pass, operand, source, step)?;
        let observes = self.observes(place);
        let panels = if ready.role.side == Side::Left { &mut self.left } else { &mut self.right };
        let stats = ready.prepare(&self.cpu, panels)?;
        if let Some(observation) = self.observation.as_mut().filter(|_| observes) {
            let survived = quantisation_error::measure(&source, &ready.spec, ready.randomness().signs, &panels.dequantise());
            let linear = self.choices.shapes[place.linear].0;
            observation.records.push(survived.record(observation.step, place.layer, linear, pass, operand, ready.spec.format));
        }
        Ok(stats)
    }

    /// What an operand of an evaluation's forward pass is to be made into.
    fn evaluated<'a>(&self, place: Place, operand: Operand, source: Source<'a>, evaluation: Evaluation) -> Result<Ready<'a>, TrainerError> {
        let rounding = self.choices.evaluation_words(place, operand, evaluation);
        self.ready((place, Pass::Fprop, operand), source, evaluation.step, rounding)
    }
}

/// An operand and all that its preparation takes.
struct Ready<'a> {
    source: Source<'a>,
    /// What is prepared in its place.
    once: Option<Once>,
    spec: OperandSpec,
    role: Role,
    signs: Option<SignVector>,
    rounding: Option<Stream>,
    delayed_amax: Option<f32>,
}

impl Ready<'_> {
    fn read(&self) -> Source<'_> {
        self.once.as_ref().map_or(self.source, Once::source)
    }

    fn randomness(&self) -> Randomness<'_> {
        Randomness { rounding: self.rounding, signs: self.signs.as_ref().map(SignVector::as_slice) }
    }

    /// To be prepared on the way.
    fn unprepared(&self) -> Unprepared<'_> {
        let Self { spec, role, delayed_amax, .. } = self;
        Unprepared { source: self.read(), spec, partner: role.partner, randomness: self.randomness(), delayed_amax: *delayed_amax }
    }

    fn prepare(&self, cpu: &Cpu, panels: &mut Panels) -> Result<PreparedStats, TrainerError> {
        cpu.prepare_into(self.read(), &self.spec, self.role, self.randomness(), self.delayed_amax, panels).map_err(TrainerError::kernel)
    }
}

impl Linears<Cpu> for CpuLinears {
    type Weights = Vec<Panels>;

    fn forward(
        &mut self,
        place: Place,
        mode: &Mode<'_, Vec<Panels>>,
        x: &Input<'_, Cpu>,
        (parameters, weight): (&Vec<f32>, &Range<usize>),
        goal: Goal<'_, Vec<f32>>,
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let x = Source { values: &x.kept()[..tokens * inputs], rows: tokens, k: inputs, transposed: false };
        match mode {
            Mode::Training { step } => {
                let w = Source { values: &parameters[weight.clone()], rows: out, k: inputs, transposed: false };
                self.product(place, Pass::Fprop, (Operand::Input, x), w, *step, goal)
            }
            Mode::Evaluation { evaluation, weights } => {
                let left = self.evaluated(place, Operand::Input, x, *evaluation)?;
                multiply(&self.cpu, left.unprepared(), &weights[4 * place.layer + place.linear], goal)?;
                Ok(())
            }
        }
    }

    fn backward(
        &mut self,
        place: Place,
        step: u64,
        x: &Input<'_, Cpu>,
        (parameters, weight): (&Vec<f32>, &Range<usize>),
        d_y: &Vec<f32>,
        goal: Goal<'_, Vec<f32>>,
        (gradients, place_of_weight): (&mut Vec<f32>, &Range<usize>),
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let (d_output, x) = (&d_y[..tokens * out], &x.kept()[..tokens * inputs]);
        // Both products read dY. Made in turns over 256 or 512 tokens, so that the second finds them in a cache, a step takes 0.995 to 1.001
        // of its time (medians of 8 to 30 on a Zen 5): preparing waits for arithmetic there, not for memory.
        let dy = Source { values: d_output, rows: tokens, k: out, transposed: false };
        let w = Source { values: &parameters[weight.clone()], rows: inputs, k: out, transposed: true };
        self.product(place, Pass::Dgrad, (Operand::OutputGradient, dy), w, step, goal)?;
        let dy = Source { values: d_output, rows: out, k: tokens, transposed: true };
        let x = Source { values: x, rows: inputs, k: tokens, transposed: true };
        self.weight_gradient(place, dy, x, step, &mut gradients[place_of_weight.clone()])
    }

    fn evaluation_weights(&self, parameters: &Vec<f32>, places: &[(Place, Range<usize>)], step: u64) -> Result<Vec<Panels>, TrainerError> {
        let weight = |(place, range): &(Place, Range<usize>)| {
            let (_, out, inputs) = self.choices.shapes[place.linear];
            let source = Source { values: &parameters[range.clone()], rows: out, k: inputs, transposed: false };
            let mut panels = Panels::default();
            self.evaluated(*place, Operand::Weight, source, Evaluation { step, chunk: 0 })?.prepare(&self.cpu, &mut panels)?;
            Ok(panels)
        };
        places.iter().map(weight).collect()
    }

    fn finish_micro_batch(&mut self, _: bool) -> Result<(), TrainerError> {
        Ok(())
    }

    fn magnitudes(&self) -> Result<Vec<f32>, TrainerError> {
        Ok(self.largest.iter().map(|bits| f32::from_bits(*bits)).collect())
    }

    fn raise_magnitudes(&mut self, least: &[f32]) -> Result<(), TrainerError> {
        self.largest.iter_mut().zip(least).for_each(|(largest, least)| *largest = least.to_bits().max(*largest));
        Ok(())
    }

    fn finish_step(&mut self) -> Result<(), TrainerError> {
        if let Some(delayed) = self.choices.delayed {
            for (slot, (history, largest)) in self.histories.iter_mut().zip(&self.largest).enumerate() {
                let (pass, operand) = SLOTS[slot % SLOTS.len()];
                if self.choices.spec(pass, operand).scale != ScaleRule::Delayed {
                    continue;
                }
                if history.len() == delayed.history {
                    history.remove(0);
                }
                history.push(f32::from_bits(*largest));
            }
        }
        self.largest.fill(0);
        Ok(())
    }

    fn observe(&mut self, step: u64, layers: Vec<usize>) {
        self.observation = Some(Observation { step, layers, records: Vec::new() });
    }

    fn observed(&mut self) -> Result<Vec<Quantisation>, TrainerError> {
        let Some(mut observation) = self.observation.take() else { return Ok(Vec::new()) };
        self.choices.sort(&mut observation.records);
        Ok(observation.records)
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

/// A product of as many rows as its left side, and what follows it. Buffers may be longer.
fn multiply(cpu: &Cpu, left: Unprepared<'_>, right: &Panels, goal: Goal<'_, Vec<f32>>) -> Result<PreparedStats, TrainerError> {
    let (rows, columns) = (left.source.rows, right.rows());
    let size = rows * columns;
    match goal {
        Goal::Over(y) => cpu.gemm_from(left, right, &mut y[..size], false),
        Goal::Onto { residual, sum } => cpu.gemm_from_onto(left, right, &residual[..size], &mut sum[..size]),
        Goal::Swiglu { gate_up, hidden } => cpu.gemm_from_swiglu(left, right, &mut gate_up[..size], &mut hidden[..size / 2]),
        Goal::SwigluBackward { gate_up, d_gate_up } => {
            cpu.gemm_from_swiglu_backward(left, right, &gate_up[..2 * size], &mut d_gate_up[..2 * size])
        }
    }
    .map_err(TrainerError::kernel)
}
