//! The linears on a GPU: operands prepared from BF16 by one kernel, products by the vendor's library or by our own.
//!
//! A pass whose two operands are MXFP4 is native where the device multiplies packed MXFP4 and takes the shapes (`native`): operands are codes and
//! scales, multiplied by our kernel. Elsewhere an operand in blocks of 32 is written as BF16 values, which hold every MX value exactly, and
//! is multiplied by the BF16 units: exact in value, emulated in execution. Operands have the same values bit for bit either way. Tensor-scaled FP8
//! is multiplied natively. An operand that is plain BF16 is its source. The two operands of a source are prepared in one read: those of ∇Y
//! when backward takes both, those of X and of W in forward, where the one that backward takes waits for it. (Where one of the two is native
//! and the other is not, each has its own read.)

use std::ops::Range;

use kernels::gpu::{
    Bf16, Buffer, Factor, Multiplier, OperandSide, PackedMatrix, PackedQuantiser, Plain, Quantiser, TensorScales, element, is_source,
    multiplier, packed_bytes, prepared,
};
use kernels::operand::{Block, Format, OperandSpec, ScaleRule};
use kernels::quantise;

use super::native::{Native, PASSES};
use super::observation::{self, Observed};
use super::{GpuDevice, Parameters, machine};
use crate::error::TrainerError;
use crate::linear::{Choices, Evaluation, Goal, Linears, Mode, Observation, SignVector};
use crate::metrics::QuantisationRecord;
use crate::run_file::{DelayedChoice, RunFile};
use crate::streams::{Operand, Pass, Place};

/// Tokens of a batch that are observed: what the `cpu` profile has in all. They are measured on the host, by the reference.
const OBSERVED_TOKENS: usize = 1024;

/// One operand: where it is prepared, and along which axis of its source.
#[derive(Debug, Clone, Copy)]
struct Role {
    pass: Pass,
    operand: Operand,
}

const INPUT: Role = Role { pass: Pass::Fprop, operand: Operand::Input };
const WEIGHT: Role = Role { pass: Pass::Fprop, operand: Operand::Weight };
const GRADIENT: Role = Role { pass: Pass::Dgrad, operand: Operand::OutputGradient };
const WEIGHT_TURNED: Role = Role { pass: Pass::Dgrad, operand: Operand::Weight };
const GRADIENT_TURNED: Role = Role { pass: Pass::Wgrad, operand: Operand::OutputGradient };
const INPUT_TURNED: Role = Role { pass: Pass::Wgrad, operand: Operand::Input };

/// Kernels for one source: what is prepared along its rows, and what along its columns.
#[derive(Debug)]
struct Preparation {
    rows: Option<Role>,
    columns: Option<Role>,
    /// Of the operands that are not native.
    quantiser: Option<Quantiser>,
    /// Of those that are.
    packed: Option<PackedQuantiser>,
    row_operand: Buffer<u8>,
    /// Empty where the column operand is kept elsewhere.
    column_operand: Buffer<u8>,
}

/// Recipe, scales and operands of all linears of a model.
#[derive(Debug)]
pub struct GpuLinears {
    device: GpuDevice,
    choices: Choices,
    /// Which passes are native.
    native: Native,
    products: Multiplier,
    /// X and W of an evaluation, along their rows only.
    evaluated: [Preparation; 2],
    /// X and W of a training step, both ways.
    trained: [Preparation; 2],
    gradient: Preparation,
    /// X and W along their columns, of every linear: from forward until backward. Index 4 * layer + linear.
    turned: [Vec<Buffer<u8>>; 2],
    /// One slot an operand of the model, then one each for an evaluation's input and weight.
    scales: TensorScales,
    /// Gradient of SwiGLU's result, `[tokens, f]`.
    d_hidden: Buffer<Bf16>,
    /// Entries in each history.
    filled: usize,
    observation: Option<Observation>,
    /// Operands of this step that wait to be measured.
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
        check_recipe(&device, run, &choices)?;
        let tokens = run.tokens_per_step();
        let widest = |pick: fn(&(&str, usize, usize)) -> usize| choices.shapes.iter().map(pick).max().unwrap_or_default();
        let (largest_input, largest_output) = (tokens * widest(|shape| shape.2), tokens * widest(|shape| shape.1));
        let largest_weight = widest(|shape| shape.1 * shape.2);
        let native = Native::new(device.gpu().description(), run, &choices);
        let make = |rows, columns, elements| Preparation::new(&device, &choices, native, rows, columns, elements, elements);
        let both_ways = |rows, columns, elements| Preparation::new(&device, &choices, native, Some(rows), Some(columns), elements, 0);
        let kept = |role: Role, elements: fn((&str, usize, usize), usize) -> usize| {
            let (spec, is_native) = (choices.spec(role.pass, role.operand), native.has(role.pass));
            let of =
                |linear: usize| device.gpu().buffer(room(&spec, is_native, elements(choices.shapes[linear % 4], tokens))).map_err(machine);
            (0..4 * choices.layers).map(of).collect::<Result<Vec<_>, TrainerError>>()
        };
        let format_largest = |slot: usize| largest_of_slot(&choices, slot);
        let largest: Vec<f32> = (0..choices.slots()).map(format_largest).chain([0.0, 0.0]).collect();
        Ok(Self {
            evaluated: [make(Some(INPUT), None, largest_input)?, make(Some(WEIGHT), None, largest_weight)?],
            trained: [both_ways(INPUT, INPUT_TURNED, largest_input)?, both_ways(WEIGHT, WEIGHT_TURNED, largest_weight)?],
            turned: [kept(INPUT_TURNED, |shape, tokens| tokens * shape.2)?, kept(WEIGHT_TURNED, |shape, _| shape.1 * shape.2)?],
            gradient: make(Some(GRADIENT), Some(GRADIENT_TURNED), largest_output)?,
            scales: TensorScales::new(device.gpu(), &largest, choices.delayed.map_or(0, |delayed| delayed.history)).map_err(machine)?,
            d_hidden: device.gpu().buffer(tokens * run.model.intermediate_size).map_err(machine)?,
            filled: 0,
            observation: None,
            observed: Vec::new(),
            products: native.products(device.gpu(), &choices, tokens).map_err(machine)?,
            native,
            device,
            choices,
        })
    }

    /// What prepares X and W in forward.
    fn forward_preparations<W>(&self, mode: &Mode<'_, W>) -> &[Preparation; 2] {
        if matches!(mode, Mode::Training { .. }) { &self.trained } else { &self.evaluated }
    }

    /// X and W of a linear along their columns: what forward keeps for backward.
    fn kept(&self, place: Place) -> [&Buffer<u8>; 2] {
        self.turned.each_ref().map(|operands| &operands[4 * place.layer + place.linear])
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

    /// Prepares a source, `[rows, columns]` from element `source.1` on.
    fn prepare(
        &self,
        preparation: &Preparation,
        place: Place,
        moment: Moment,
        source: (&Buffer<Bf16>, usize),
        (rows, columns): (usize, usize),
        column_operand: &Buffer<u8>,
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
            Some((spec, words, self.choices.signs(place, role.pass, &spec, step), self.slot(place, role, moment)))
        };
        let outs = [&preparation.row_operand, column_operand];
        if let Some(packed) = &preparation.packed {
            let native = |role: Option<Role>| side(role.filter(|role| self.native.has(role.pass)));
            let sides = [native(preparation.rows), native(preparation.columns)];
            let written = std::array::from_fn::<_, 2, _>(|index| match &sides[index] {
                Some((_, words, signs, _)) => OperandSide {
                    out: Some(outs[index]),
                    rounding: *words,
                    signs: signs.as_ref().map(SignVector::as_slice),
                    ..OperandSide::default()
                },
                None => OperandSide::default(),
            });
            self.device.timed("quantise", || packed.run(source, (rows, columns), written[0], written[1]))?;
        }
        let Some(quantiser) = &preparation.quantiser else { return Ok(()) };
        let emulated = |role: Option<Role>| side(role.filter(|role| !self.native.has(role.pass)));
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
                out: Some(out),
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
        (source, first): (&Buffer<Bf16>, usize),
        (rows, k): (usize, usize),
        transposed: bool,
        slot: usize,
    ) -> Result<Factor, TrainerError> {
        let spec = self.choices.spec(role.pass, role.operand);
        let side = if self.native.has(role.pass) {
            PackedMatrix::new(operand, rows, k).map(Factor::Packed)
        } else if is_source(&spec) {
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

    /// A product of `tokens` rows, and what follows it.
    fn multiply(&self, left: Factor, right: Factor, factor: f32, goal: Goal<'_, Buffer<Bf16>>, tokens: usize) -> Result<(), TrainerError> {
        let product = |added, out: &Buffer<Bf16>| self.product(left, right, factor, added, out, 0);
        match goal {
            Goal::Over(y) => product(None, y),
            Goal::Onto { residual, sum } => product(Some(residual), sum),
            Goal::Swiglu { gate_up, hidden } => {
                product(None, gate_up)?;
                self.device.timed("swiglu", || self.device.elementwise().swiglu(gate_up, hidden, tokens, right.rows() / 2))
            }
            Goal::SwigluBackward { gate_up, d_gate_up } => {
                product(None, &self.d_hidden)?;
                let kernels = self.device.elementwise();
                self.device.timed("swiglu", || kernels.swiglu_backward(gate_up, &self.d_hidden, d_gate_up, tokens, right.rows()))
            }
        }
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

    /// Keeps an operand's source for the end of the step if this step and block are observed. `transposed`: its contraction axis is the source's rows.
    fn measure(
        &mut self,
        place: Place,
        role: Role,
        step: u64,
        (source, first): (&Buffer<Bf16>, usize),
        (rows, columns): (usize, usize),
        transposed: bool,
    ) -> Result<(), TrainerError> {
        let is_observed = self.observation.as_ref().is_some_and(|observation| observation.layers.contains(&place.layer));
        if !is_observed {
            return Ok(());
        }
        let rows = if role.operand == Operand::Weight { rows } else { rows.min(OBSERVED_TOKENS) };
        let mut bits = vec![Bf16::default(); rows * columns];
        source.read(first, &mut bits).map_err(machine)?;
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
            spec,
            bits,
            rows: operand_rows,
            k,
            transposed,
            words: self.choices.training_words(place, role.pass, role.operand, step),
            signs: self.choices.signs(place, role.pass, &spec, step),
            remembered,
        });
        Ok(())
    }
}

impl Preparation {
    /// Room for `row_elements` of the row operand and `column_elements` of the column operand.
    fn new(
        device: &GpuDevice,
        choices: &Choices,
        native: Native,
        rows: Option<Role>,
        columns: Option<Role>,
        row_elements: usize,
        column_elements: usize,
    ) -> Result<Self, TrainerError> {
        let spec = |role: Option<Role>, wanted: bool| {
            let role = role.filter(|role| native.has(role.pass) == wanted)?;
            Some(choices.spec(role.pass, role.operand)).filter(|spec| !is_source(spec))
        };
        let gpu = device.gpu();
        let quantiser = match (spec(rows, false), spec(columns, false)) {
            (None, None) => None,
            (rows, columns) => Some(Quantiser::new(gpu, rows, columns).map_err(machine)?),
        };
        let packed = match (spec(rows, true), spec(columns, true)) {
            (None, None) => None,
            (rows, columns) => Some(PackedQuantiser::new(gpu, rows, columns).map_err(machine)?),
        };
        let make = |role: Option<Role>, elements| {
            let bytes = role.map_or(0, |role| room(&choices.spec(role.pass, role.operand), native.has(role.pass), elements));
            gpu.buffer(bytes).map_err(machine)
        };
        let (row_operand, column_operand) = (make(rows, row_elements)?, make(columns, column_elements)?);
        Ok(Self { rows, columns, quantiser, packed, row_operand, column_operand })
    }
}

/// Bytes of a prepared operand of so many elements.
fn room(spec: &OperandSpec, native: bool, elements: usize) -> usize {
    if native { packed_bytes(elements) } else { bytes_of(spec) * elements }
}

/// Bytes an element of a prepared operand takes; none where it is its source.
fn bytes_of(spec: &OperandSpec) -> usize {
    match element(spec) {
        _ if is_source(spec) => 0,
        kernels::gpu::Element::Bf16 => 2,
        _ => 1,
    }
}

fn largest_of(format: Format) -> f32 {
    quantise::mini_float(format).map_or(0.0, |format| format.largest)
}

/// Largest value of the slot's format if its scale is delayed, else 0.
fn largest_of_slot(choices: &Choices, slot: usize) -> f32 {
    let (pass, operand) = crate::linear::SLOTS[slot % crate::linear::SLOTS.len()];
    let spec = choices.spec(pass, operand);
    if spec.scale == ScaleRule::Delayed { largest_of(spec.format) } else { 0.0 }
}

/// Refuses what the GPU cannot multiply, before anything runs.
fn check_recipe(device: &GpuDevice, run: &RunFile, choices: &Choices) -> Result<(), TrainerError> {
    use kernels::gpu::Element;
    let description = device.gpu().description();
    let id = &run.recipe.id;
    for (pass, first, second) in PASSES {
        let specs = [choices.spec(pass, first), choices.spec(pass, second)];
        if specs.iter().any(|spec| spec.format == Format::F32) {
            return Err(TrainerError::Machine(format!("recipe {id}: {} has f32 operands, which run on the CPU only", pass.name())));
        }
        match specs.each_ref().map(element) {
            [Element::Bf16, Element::Bf16] => {}
            [Element::E5m2, Element::E5m2] => {
                return Err(TrainerError::Machine(format!(
                    "recipe {id}: both operands of {} are e5m2, which no FP8 unit multiplies; use e4m3 for one of them, or the CPU",
                    pass.name()
                )));
            }
            [Element::Bf16, _] | [_, Element::Bf16] => {
                return Err(TrainerError::Machine(format!(
                    "recipe {id}: {} pairs a tensor-scaled FP8 operand with another kind, which no GPU product takes; use the CPU",
                    pass.name()
                )));
            }
            _ if !description.has_fp8 => {
                return Err(TrainerError::Machine(format!(
                    "recipe {id} needs FP8 matrix units; {} ({}) has none, they start with sm_89",
                    description.name, description.architecture
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Linears<GpuDevice> for GpuLinears {
    /// Weights are prepared again for each batch of an evaluation: that costs little, and no memory.
    type Weights = ();

    fn forward(
        &mut self,
        place: Place,
        mode: &Mode<'_, ()>,
        x: &Buffer<Bf16>,
        (parameters, weight): (&Parameters, &Range<usize>),
        goal: Goal<'_, Buffer<Bf16>>,
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let (x_source, w_source) = ((x, 0), (&parameters.copies, weight.start));
        let (moment, weight_moment) = match mode {
            Mode::Training { step } => (Moment::Training(*step), Moment::Training(*step)),
            // The weights' words are those of the evaluation as a whole.
            Mode::Evaluation { evaluation, .. } => {
                (Moment::Evaluation(*evaluation), Moment::Evaluation(Evaluation { chunk: 0, ..*evaluation }))
            }
        };
        let [of_input, of_weight] = self.forward_preparations(mode);
        let [input_turned, weight_turned] = self.kept(place);
        self.prepare(of_input, place, moment, x_source, (tokens, inputs), input_turned)?;
        self.prepare(of_weight, place, weight_moment, w_source, (out, inputs), weight_turned)?;
        if let Moment::Training(step) = moment {
            self.measure(place, INPUT, step, x_source, (tokens, inputs), false)?;
            self.measure(place, WEIGHT, step, w_source, (out, inputs), false)?;
        }
        let [of_input, of_weight] = self.forward_preparations(mode);
        let left = self.matrix(INPUT, &of_input.row_operand, x_source, (tokens, inputs), false, self.slot(place, INPUT, moment))?;
        let slot = self.slot(place, WEIGHT, moment);
        let right = self.matrix(WEIGHT, &of_weight.row_operand, w_source, (out, inputs), false, slot)?;
        let factor = self.factor(Pass::Fprop, Operand::Input, Operand::Weight);
        self.multiply(left, right, factor, goal, tokens)
    }

    fn backward(
        &mut self,
        place: Place,
        step: u64,
        x: &Buffer<Bf16>,
        (parameters, weight): (&Parameters, &Range<usize>),
        d_y: &Buffer<Bf16>,
        goal: Goal<'_, Buffer<Bf16>>,
        gradients: &mut Buffer<f32>,
        tokens: usize,
    ) -> Result<(), TrainerError> {
        let (_, out, inputs) = self.choices.shapes[place.linear];
        let moment = Moment::Training(step);
        let (d_source, x_source, w_source) = ((d_y, 0), (x, 0), (&parameters.copies, weight.start));
        self.prepare(&self.gradient, place, moment, d_source, (tokens, out), &self.gradient.column_operand)?;
        self.measure(place, GRADIENT, step, d_source, (tokens, out), false)?;
        self.measure(place, WEIGHT_TURNED, step, w_source, (out, inputs), true)?;
        self.measure(place, GRADIENT_TURNED, step, d_source, (tokens, out), true)?;
        self.measure(place, INPUT_TURNED, step, x_source, (tokens, inputs), true)?;

        let slot = |role| self.slot(place, role, moment);
        let left = self.matrix(GRADIENT, &self.gradient.row_operand, d_source, (tokens, out), false, slot(GRADIENT))?;
        let [input_turned, weight_turned] = self.kept(place);
        let right = self.matrix(WEIGHT_TURNED, weight_turned, w_source, (inputs, out), true, slot(WEIGHT_TURNED))?;
        let factor = self.factor(Pass::Dgrad, Operand::OutputGradient, Operand::Weight);
        self.multiply(left, right, factor, goal, tokens)?;

        let turned = &self.gradient.column_operand;
        let left = self.matrix(GRADIENT_TURNED, turned, d_source, (out, tokens), true, slot(GRADIENT_TURNED))?;
        let right = self.matrix(INPUT_TURNED, input_turned, x_source, (inputs, tokens), true, slot(INPUT_TURNED))?;
        let factor = self.factor(Pass::Wgrad, Operand::OutputGradient, Operand::Input);
        self.product(left, right, factor, None, gradients, weight.start)
    }

    fn evaluation_weights(&self, _: &Parameters, _: &[(Place, Range<usize>)], _: u64) -> Result<(), TrainerError> {
        Ok(())
    }

    fn finish_step(&mut self, _: u64) -> Result<(), TrainerError> {
        if let Some(observation) = &mut self.observation {
            observation.records.extend(observation::measure(&self.observed, &self.choices, observation.step)?);
            self.observed.clear();
        }
        let Some(delayed) = self.choices.delayed else { return Ok(()) };
        self.scales.remember(self.filled, self.chooses_largest()).map_err(machine)?;
        self.filled = (self.filled + 1).min(delayed.history);
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
