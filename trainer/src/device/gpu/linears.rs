//! The linears on a GPU: operands prepared from BF16 by one kernel, products by the vendor's library or by our own.
//!
//! A pass whose two operands are MXFP4 is native where the device multiplies packed MXFP4 and takes the shapes (`native`): operands are codes and
//! scales, multiplied by our kernel or by hipBLASLt, as the run says. Elsewhere an operand in blocks of 32 is written as BF16 values, which hold every MX value exactly, and
//! is multiplied by the BF16 units: exact in value, emulated in execution. Operands have the same values bit for bit either way. Tensor-scaled FP8
//! is multiplied natively. An operand that is plain BF16 is its source. The two operands of ∇Y are prepared in one read, and so are those of W in
//! forward, where the one that backward takes waits for it. (Where one of the two is native and the other is not, each has its own read.)
//!
//! X itself is not kept where the quantiser can make it from what is kept (`Made`), to the same bits. In forward it is prepared both ways in one
//! read, too, where there is memory for what waits (`memory`); where there is less, forward prepares its rows and backward its columns.

use std::ops::Range;

use contract::defect::Defect;
use contract::memory::{GRADIENT, GRADIENT_TURNED, INPUT, INPUT_TURNED, Role, WEIGHT, WEIGHT_TURNED, Ways};
use contract::metrics::Quantisation;
use contract::native::PASSES;
use contract::recipe::{Block, DelayedChoice, Format, OperandSpec, ScaleRule};
use contract::run_file::RunFile;
use kernels::gpu::{
    Bf16, Buffer, Factor, Made, Multiplier, OperandSide, PackedMatrix, Plain, TensorScales, is_source, multiplier, prepared,
};

use super::observation::{self, Observed};
use super::operands::{Preparation, check_recipe, largest_of, largest_of_slot, made, raise, stored};
use super::scratch::Turn;
use super::{GpuDevice, Parameters, machine};
use crate::choices::{Choices, Evaluation, Observation, SignVector};
use crate::device::{Goal, Input, Linears, Mode};
use crate::error::TrainerError;
use crate::streams::{Operand, Pass, Place};

/// Tokens of a batch that are observed: what the `cpu` profile has in all. They are measured on the host, by the reference.
const OBSERVED_TOKENS: usize = 1024;

/// Recipe, scales and operands of all linears of a model.
#[derive(Debug)]
pub struct GpuLinears {
    device: GpuDevice,
    choices: Choices,
    /// Which passes are native, whether X is made, and whether it waits.
    ways: Ways,
    products: Multiplier,
    input_rows: Preparation,
    /// X along its columns: with its rows in forward if it waits for backward, else alone.
    input_turned: Preparation,
    weight_rows: Preparation,
    weight_both: Preparation,
    gradient: Preparation,
    /// A source that a defect quantises twice, quantised once; empty without such a defect.
    between: Buffer<u8>,
    /// W along its columns, of every linear: from forward until backward. Index 4 * layer + linear.
    weights_turned: Vec<Buffer<u8>>,
    /// X likewise, if it waits; else empty.
    inputs_turned: Vec<Buffer<u8>>,
    /// One slot an operand of the model, then one each for an evaluation's input and weight.
    scales: TensorScales,
    filled: usize,
    /// Largest magnitudes of the micro-batches before this one, in the first step, where each scales by its own and starts anew.
    before: Vec<f32>,
    observation: Option<Observation>,
    /// Operands of this micro-batch that wait to be measured.
    observed: Vec<Observed>,
}

/// When an operand is prepared: whose random words it takes, and whether its magnitude is remembered.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Training(u64),
    Evaluation(Evaluation),
}

impl GpuLinears {
    /// For a run file that passed its checks.
    pub(super) fn new(device: GpuDevice, run: &RunFile) -> Result<Self, TrainerError> {
        let choices = Choices::new(run);
        check_recipe(device.gpu().description(), run, &choices)?;
        let tokens = run.tokens_per_step();
        let ways = device.ways();
        let make = |rows, columns| Preparation::new(device.gpu(), &choices, ways, rows, columns);
        let waiting = |role| {
            let of = |linear| device.gpu().buffer(choices.rooms().room(ways, role, linear, tokens)).map_err(machine);
            (0..choices.layers).flat_map(|_| 0..4).map(of).collect::<Result<Vec<_>, TrainerError>>()
        };
        let between = if run.recipe.defect.is_some_and(Defect::is_twice) { choices.rooms().largest_source(tokens) } else { 0 };
        let waits = choices.rooms().input_waits(ways);
        let native = PASSES.iter().filter(|(pass, ..)| ways.native.has(*pass));
        let shape = |pass: Pass| choices.shapes.map(|(_, out, inputs)| pass.shape(tokens, out, inputs));
        let shapes: Vec<_> = native.flat_map(|&(pass, ..)| shape(pass)).collect();
        let format_largest = |slot: usize| largest_of_slot(&choices, slot);
        let largest: Vec<f32> = (0..choices.slots()).map(format_largest).chain([0.0, 0.0]).collect();
        Ok(Self {
            input_rows: make(Some(INPUT), None)?,
            input_turned: make(waits.then_some(INPUT), Some(INPUT_TURNED))?,
            weight_rows: make(Some(WEIGHT), None)?,
            weight_both: make(Some(WEIGHT), Some(WEIGHT_TURNED))?,
            gradient: make(Some(GRADIENT), Some(GRADIENT_TURNED))?,
            between: device.gpu().buffer(between).map_err(machine)?,
            weights_turned: waiting(WEIGHT_TURNED)?,
            inputs_turned: if waits { waiting(INPUT_TURNED)? } else { Vec::new() },
            scales: TensorScales::new(device.gpu(), &largest, choices.delayed.map_or(0, |delayed| delayed.history)).map_err(machine)?,
            filled: 0,
            before: Vec::new(),
            observation: None,
            observed: Vec::new(),
            products: Multiplier::new(device.gpu(), &shapes, run.gemm).map_err(machine)?,
            ways,
            device,
            choices,
        })
    }

    /// W and X of a linear along their columns, as they wait for backward; X only if it does.
    fn waiting(&self, place: Place) -> (&Buffer<u8>, Option<&Buffer<u8>>) {
        let number = 4 * place.layer + place.linear;
        (&self.weights_turned[number], self.inputs_turned.get(number))
    }

    /// The next part of a turn, for an operand of a linear.
    fn take(&self, turn: &mut Turn, place: Place, role: Role, tokens: usize) -> Result<Buffer<u8>, TrainerError> {
        turn.take(self.choices.rooms().room(self.ways, role, place.linear, tokens))
    }

    fn chooses_largest(&self) -> bool {
        self.choices.delayed.is_some_and(|delayed| delayed.choose == DelayedChoice::Max)
    }

    /// Whether the scale of a tensor-scaled operand has to be found from its own largest magnitude.
    fn is_scaled_by_itself(&self, spec: &OperandSpec) -> bool {
        spec.scale == ScaleRule::Current || spec.scale == ScaleRule::Delayed && self.filled == 0
    }

    /// Slot of an operand's scale. Evaluations must not touch what training collects.
    fn slot(&self, place: Place, role: Role, moment: Moment) -> usize {
        let own = self.choices.slot(place, role.pass, role.operand);
        match moment {
            Moment::Evaluation(_) if self.is_scaled_by_itself(&self.choices.spec(role.pass, role.operand)) => {
                self.choices.slots() + usize::from(role.operand == Operand::Weight)
            }
            _ => own,
        }
    }

    /// Prepares a source, `[rows, columns]`, to `outs`: along its rows, along its columns.
    fn prepare(
        &self,
        preparation: &Preparation,
        place: Place,
        moment: Moment,
        source: Made<'_>,
        (rows, columns): (usize, usize),
        outs: [Option<&Buffer<u8>>; 2],
    ) -> Result<(), TrainerError> {
        let step = match moment {
            Moment::Training(step) => step,
            Moment::Evaluation(evaluation) => evaluation.step,
        };
        let side = |role: Option<Role>| {
            let role = role.filter(|role| !is_source(&self.choices.spec(role.pass, role.operand)))?;
            let spec = self.choices.spec(role.pass, role.operand);
            let words = match moment {
                Moment::Training(step) => self.choices.training_words(place, role.pass, role.operand, step),
                Moment::Evaluation(evaluation) => self.choices.evaluation_words(place, role.operand, evaluation),
            };
            Some((spec, words, self.choices.signs(place, role.pass, role.operand, step), self.slot(place, role, moment)))
        };
        if let Some(packed) = &preparation.packed {
            let native = |role: Option<Role>| side(role.filter(|role| self.ways.native.has(role.pass)));
            let sides = [native(preparation.rows), native(preparation.columns)];
            let written = std::array::from_fn::<_, 2, _>(|index| match &sides[index] {
                Some((_, words, signs, _)) => OperandSide {
                    out: outs[index],
                    rounding: *words,
                    signs: signs.as_ref().map(SignVector::as_slice),
                    ..OperandSide::default()
                },
                None => OperandSide::default(),
            });
            let stored = stored(source)?;
            self.device.timed("quantise", || packed.run(stored, (rows, columns), written[0], written[1]))?;
        }
        for (twice, out) in preparation.twice.iter().zip(outs) {
            let Some((twice, (_, words, signs, _))) = twice.as_ref().and_then(|twice| Some((twice, side(Some(twice.role))?))) else {
                continue;
            };
            let signs = signs.as_ref().map(SignVector::as_slice);
            let written = OperandSide { out, rounding: words, signs, ..OperandSide::default() };
            self.device.timed("quantise", || twice.run(&self.between, source, (rows, columns), written))?;
        }
        let Some(quantiser) = &preparation.quantiser else { return Ok(()) };
        let is_once = |role: &Role| self.choices.first(role.pass, role.operand).is_none();
        let emulated = |role: Option<Role>| side(role.filter(|role| !self.ways.native.has(role.pass) && is_once(role)));
        let sides = [emulated(preparation.rows), emulated(preparation.columns)];
        let own = |spec: &OperandSpec| spec.block == Block::Tensor && self.is_scaled_by_itself(spec);
        if sides.iter().flatten().any(|side| own(&side.0)) {
            let measured = sides.each_ref().map(|side| match side {
                Some((spec, _, signs, slot)) if own(spec) => OperandSide {
                    amax: Some((&self.scales, *slot)),
                    signs: signs.as_ref().map(SignVector::as_slice),
                    ..OperandSide::default()
                },
                Some((_, _, signs, _)) => OperandSide { signs: signs.as_ref().map(SignVector::as_slice), ..OperandSide::default() },
                None => OperandSide::default(),
            });
            for (_, _, _, slot) in sides.iter().flatten().filter(|side| own(&side.0)) {
                self.scales.clear(*slot).map_err(machine)?;
            }
            self.device.timed("quantise", || quantiser.run(source, (rows, columns), measured[0], measured[1]))?;
            for (spec, _, _, slot) in sides.iter().flatten().filter(|side| own(&side.0)) {
                self.scales.scale_now(*slot, largest_of(spec.format)).map_err(machine)?;
            }
        }
        let collects = matches!(moment, Moment::Training(_));
        let mut written = [OperandSide::default(); 2];
        for ((written, side), out) in written.iter_mut().zip(&sides).zip(outs) {
            let Some((spec, words, signs, slot)) = side else { continue };
            let is_tensor = spec.block == Block::Tensor && spec.format != Format::Bf16;
            *written = OperandSide {
                out,
                rounding: *words,
                signs: signs.as_ref().map(SignVector::as_slice),
                amax: (is_tensor && collects && !own(spec)).then_some((&self.scales, *slot)),
                scale: is_tensor.then_some((&self.scales, *slot)),
            };
        }
        self.device.timed("quantise", || quantiser.run(source, (rows, columns), written[0], written[1]))
    }

    /// A prepared operand, or its source where that is the same.
    fn matrix(
        &self,
        role: Role,
        operand: &Buffer<u8>,
        source: Made<'_>,
        (rows, k): (usize, usize),
        transposed: bool,
        slot: usize,
    ) -> Result<Factor, TrainerError> {
        let spec = self.choices.spec(role.pass, role.operand);
        let side = if self.ways.native.has(role.pass) {
            PackedMatrix::new(operand, rows, k).map(Factor::Packed)
        } else if is_source(&spec) {
            let (source, first) = stored(source)?;
            source.matrix(first, rows, k, transposed).map(Factor::Library)
        } else {
            prepared(&spec, operand, rows, k, Some((&self.scales, slot))).map(Factor::Library)
        };
        side.map_err(machine)
    }

    /// 1, or 4/3 for each operand that was scaled by 3/4 before it was rounded.
    fn factor(&self, pass: Pass, first: Operand, second: Operand) -> f32 {
        multiplier(&self.choices.spec(pass, first)) * multiplier(&self.choices.spec(pass, second))
    }

    /// A product of `tokens` rows, and what follows it: in backward SwiGLU's result once more where it is not kept.
    fn multiply(
        &self,
        (left, right): (Factor, Factor),
        factor: f32,
        goal: Goal<'_, Buffer<Bf16>>,
        tokens: usize,
        turn: &mut Turn,
    ) -> Result<Option<Buffer<Bf16>>, TrainerError> {
        let product = |added, out: &Buffer<Bf16>| self.product(left, right, factor, added, out, 0);
        match goal {
            Goal::Over(y) => product(None, y)?,
            Goal::Onto { residual, sum } => product(Some(residual), sum)?,
            Goal::Swiglu { gate_up, hidden } => {
                product(None, gate_up)?;
                if hidden.length() > 0 {
                    self.device.timed("swiglu", || self.device.elementwise().swiglu(gate_up, hidden, tokens, right.rows() / 2))?;
                }
            }
            Goal::SwigluBackward { gate_up, d_gate_up } => {
                let d_hidden = turn.take(tokens * right.rows())?;
                product(None, &d_hidden)?;
                // Gradients and results take the places of each other.
                *d_gate_up = gate_up.part(0, gate_up.length()).map_err(machine)?;
                let (kernels, width) = (self.device.elementwise(), right.rows());
                let hidden = (self.ways.makes_inputs && self.inputs_turned.is_empty()).then_some(&d_hidden);
                self.device.timed("swiglu", || kernels.swiglu_backward(gate_up, &d_hidden, d_gate_up, hidden, tokens, width))?;
                return Ok(hidden.is_some().then_some(d_hidden));
            }
        }
        Ok(None)
    }

    /// `out[offset..] = factor * left rightᵀ (+ added)`.
    fn product<T: Plain>(
        &self,
        left: Factor,
        right: Factor,
        factor: f32,
        added: Option<&Buffer<T>>,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), TrainerError> {
        self.device.timed("gemm", || self.products.multiply(left, right, factor, added, out, offset))
    }

    /// Keeps an operand's source for the end of the micro-batch if this step and block are observed. `transposed`: its contraction axis is the source's rows.
    fn measure(
        &mut self,
        place: Place,
        role: Role,
        step: u64,
        source: Made<'_>,
        (rows, columns): (usize, usize),
        transposed: bool,
    ) -> Result<(), TrainerError> {
        let is_observed = self.observation.as_ref().is_some_and(|observation| observation.layers.contains(&place.layer));
        if !is_observed {
            return Ok(());
        }
        let rows = if role.operand == Operand::Weight { rows } else { rows.min(OBSERVED_TOKENS) };
        let bits = observation::read(self.device.gpu(), source, (rows, columns))?;
        let (operand_rows, k) = if transposed { (columns, rows) } else { (rows, columns) };
        let spec = self.choices.spec(role.pass, role.operand);
        let remembered = if spec.scale == ScaleRule::Delayed {
            let history =
                self.scales.histories(self.filled).map_err(machine)?.swap_remove(self.choices.slot(place, role.pass, role.operand));
            if self.chooses_largest() { history.into_iter().reduce(f32::max) } else { history.last().copied() }
        } else {
            None
        };
        self.observed.push(Observed {
            place,
            pass: role.pass,
            operand: role.operand,
            first: self.choices.first(role.pass, role.operand),
            spec,
            bits,
            rows: operand_rows,
            k,
            transposed,
            words: self.choices.training_words(place, role.pass, role.operand, step),
            signs: self.choices.signs(place, role.pass, role.operand, step),
            remembered,
        });
        Ok(())
    }
}

impl Linears<GpuDevice> for GpuLinears {
    /// Weights are prepared again for each batch of an evaluation: that costs little, and no memory.
    type Weights = ();

    fn forward(
        &mut self,
        place: Place,
        mode: &Mode<'_, ()>,
        x: &Input<'_, GpuDevice>,
        (parameters, weight): (&Parameters, &Range<usize>),
        goal: Goal<'_, Buffer<Bf16>>,
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let (x_source, w_source) = (made(x, parameters), Made::Stored(&parameters.copies, weight.start));
        let (moment, weight_moment) = match mode {
            Mode::Training { step } => (Moment::Training(*step), Moment::Training(*step)),
            // The weights' words are those of the evaluation as a whole.
            Mode::Evaluation { evaluation, .. } => {
                (Moment::Evaluation(*evaluation), Moment::Evaluation(Evaluation { chunk: 0, ..*evaluation }))
            }
        };
        let mut turn = self.device.turn()?;
        let x_rows = self.take(&mut turn, place, INPUT, tokens)?;
        let w_rows = self.take(&mut turn, place, WEIGHT, tokens)?;
        let (w_turned, x_turned) = self.waiting(place);
        let is_training = matches!(moment, Moment::Training(_));
        let of_input = if is_training && x_turned.is_some() { &self.input_turned } else { &self.input_rows };
        let of_weight = if is_training { &self.weight_both } else { &self.weight_rows };
        self.prepare(of_input, place, moment, x_source, (tokens, inputs), [Some(&x_rows), x_turned])?;
        self.prepare(of_weight, place, weight_moment, w_source, (out, inputs), [Some(&w_rows), Some(w_turned)])?;
        if let Moment::Training(step) = moment {
            self.measure(place, INPUT, step, x_source, (tokens, inputs), false)?;
            self.measure(place, WEIGHT, step, w_source, (out, inputs), false)?;
        }
        let left = self.matrix(INPUT, &x_rows, x_source, (tokens, inputs), false, self.slot(place, INPUT, moment))?;
        let right = self.matrix(WEIGHT, &w_rows, w_source, (out, inputs), false, self.slot(place, WEIGHT, moment))?;
        let factor = self.factor(Pass::Fprop, Operand::Input, Operand::Weight);
        self.multiply((left, right), factor, goal, tokens, &mut turn)?;
        Ok(())
    }

    fn backward(
        &mut self,
        place: Place,
        step: u64,
        x: &Input<'_, GpuDevice>,
        (parameters, weight): (&Parameters, &Range<usize>),
        d_y: &Buffer<Bf16>,
        goal: Goal<'_, Buffer<Bf16>>,
        (gradients, place_of_weight): (&mut Buffer<f32>, &Range<usize>),
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let moment = Moment::Training(step);
        let (d_source, x_source) = (Made::Stored(d_y, 0), made(x, parameters));
        let w_source = Made::Stored(&parameters.copies, weight.start);
        let mut turn = self.device.turn()?;
        let d_rows = self.take(&mut turn, place, GRADIENT, tokens)?;
        let d_columns = self.take(&mut turn, place, GRADIENT_TURNED, tokens)?;
        self.prepare(&self.gradient, place, moment, d_source, (tokens, out), [Some(&d_rows), Some(&d_columns)])?;
        self.measure(place, GRADIENT, step, d_source, (tokens, out), false)?;
        self.measure(place, WEIGHT_TURNED, step, w_source, (out, inputs), true)?;
        self.measure(place, GRADIENT_TURNED, step, d_source, (tokens, out), true)?;
        self.measure(place, INPUT_TURNED, step, x_source, (tokens, inputs), true)?;

        let slot = |role| self.slot(place, role, moment);
        let left = self.matrix(GRADIENT, &d_rows, d_source, (tokens, out), false, slot(GRADIENT))?;
        let (w_turned, x_turned) = self.waiting(place);
        let right = self.matrix(WEIGHT_TURNED, w_turned, w_source, (inputs, out), true, slot(WEIGHT_TURNED))?;
        let factor = self.factor(Pass::Dgrad, Operand::OutputGradient, Operand::Weight);
        let hidden = self.multiply((left, right), factor, goal, tokens, &mut turn)?;
        let x_source = hidden.as_ref().map_or(x_source, |hidden| Made::Stored(hidden, 0));
        let own;
        let x_columns = match x_turned {
            Some(waiting) => waiting,
            None => {
                own = self.take(&mut turn, place, INPUT_TURNED, tokens)?;
                self.prepare(&self.input_turned, place, moment, x_source, (tokens, inputs), [None, Some(&own)])?;
                &own
            }
        };

        let left = self.matrix(GRADIENT_TURNED, &d_columns, d_source, (out, tokens), true, slot(GRADIENT_TURNED))?;
        let right = self.matrix(INPUT_TURNED, x_columns, x_source, (inputs, tokens), true, slot(INPUT_TURNED))?;
        let factor = self.factor(Pass::Wgrad, Operand::OutputGradient, Operand::Input);
        self.product(left, right, factor, None, gradients, place_of_weight.start)
    }

    fn evaluation_weights(&self, _: &Parameters, _: &[(Place, Range<usize>)], _: u64) -> Result<(), TrainerError> {
        Ok(())
    }

    fn finish_micro_batch(&mut self, more: bool) -> Result<(), TrainerError> {
        // From the second step on the device collects over a whole step.
        if more && self.filled == 0 && self.choices.delayed.is_some() {
            self.before = self.magnitudes()?;
        }
        Ok(())
    }

    fn magnitudes(&self) -> Result<Vec<f32>, TrainerError> {
        let mut largest = self.scales.collected().map_err(machine)?;
        largest.truncate(self.choices.slots());
        raise(&mut largest, &self.before);
        Ok(largest)
    }

    fn raise_magnitudes(&mut self, least: &[f32]) -> Result<(), TrainerError> {
        let mut largest = self.magnitudes()?;
        raise(&mut largest, least);
        self.scales.collect(&largest).map_err(machine)
    }

    fn finish_step(&mut self) -> Result<(), TrainerError> {
        let Some(delayed) = self.choices.delayed else { return Ok(()) };
        if !self.before.is_empty() {
            let before = std::mem::take(&mut self.before);
            self.raise_magnitudes(&before)?;
        }
        self.scales.remember(self.filled, self.chooses_largest()).map_err(machine)?;
        self.filled = (self.filled + 1).min(delayed.history);
        Ok(())
    }

    fn observe(&mut self, step: u64, layers: Vec<usize>) {
        self.observation = Some(Observation { step, layers, records: Vec::new() });
    }

    fn observed(&mut self) -> Result<Vec<Quantisation>, TrainerError> {
        let Some(mut observation) = self.observation.take() else { return Ok(Vec::new()) };
        observation.records.extend(observation::measure(&self.observed, &self.choices, observation.step)?);
        self.observed.clear();
        self.choices.sort(&mut observation.records);
        Ok(observation.records)
    }

    fn histories(&self) -> Result<Vec<Vec<f32>>, TrainerError> {
        let mut histories = self.scales.histories(self.filled).map_err(machine)?;
        histories.truncate(self.choices.slots());
        Ok(histories)
    }

    fn restore_histories(&mut self, histories: Vec<Vec<f32>>) -> Result<bool, TrainerError> {
        if !self.choices.fits(&histories) {
            return Ok(false);
        }
        self.filled = histories.iter().map(Vec::len).max().unwrap_or_default();
        let (choices, largest) = (&self.choices, self.chooses_largest());
        self.scales.restore(&histories, largest, |slot| largest_of_slot(choices, slot)).map_err(machine)?;
        Ok(true)
    }
}
