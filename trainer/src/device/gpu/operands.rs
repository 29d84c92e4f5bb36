//! What the linears of a run prepare on a GPU: the kernels that prepare their operands, and what the GPU cannot multiply.

use contract::memory::{Role, Ways};
use contract::native::PASSES;
use contract::recipe::{Format, Operand, ScaleRule};
use contract::run_file::RunFile;
use kernels::gpu::{Bf16, Buffer, Description, Element, Gpu, GpuError, Made, OperandSide, PackedQuantiser, Quantiser, element, is_source};
use kernels::quantise;
use kernels::random::Draw;

use super::{GpuDevice, Parameters, machine};
use crate::choices::{Choices, SLOTS};
use crate::device::Input;
use crate::error::TrainerError;

/// Kernels for one source: what is prepared along its rows, and what along its columns.
#[derive(Debug)]
pub(super) struct Preparation {
    pub(super) rows: Option<Role>,
    pub(super) columns: Option<Role>,
    /// Of the operands that are not native, nor quantised twice.
    pub(super) quantiser: Option<Quantiser>,
    pub(super) packed: Option<PackedQuantiser>,
    /// Of the operands, along rows and along columns, that a defect quantises twice.
    pub(super) twice: [Option<Twice>; 2],
}

/// Kernels of an operand that is quantised twice.
#[derive(Debug)]
pub(super) struct Twice {
    pub(super) role: Role,
    once: Quantiser,
    /// Whether `once` contracts along the source's columns: what it writes is the source turned.
    is_turned: bool,
    again: Quantiser,
    /// Whether `again` contracts along the columns of what `once` wrote.
    is_turned_again: bool,
}

impl Preparation {
    pub(super) fn new(gpu: &Gpu, choices: &Choices, ways: Ways, rows: Option<Role>, columns: Option<Role>) -> Result<Self, TrainerError> {
        let Ways { native, makes_inputs, .. } = ways;
        let spec = |role: Option<Role>, wanted: bool| {
            let role = role.filter(|role| native.has(role.pass) == wanted)?;
            let is_once = choices.first(role.pass, role.operand).is_none();
            Some(choices.spec(role.pass, role.operand)).filter(|spec| is_once && !is_source(spec))
        };
        let is_input = rows.or(columns).is_some_and(|role| role.operand == Operand::Input);
        let quantiser = match (spec(rows, false), spec(columns, false)) {
            (None, None) => None,
            (rows, columns) => Some(Quantiser::drawing(gpu, choices.draw(), is_input && makes_inputs, rows, columns)),
        };
        let packed = match (spec(rows, true), spec(columns, true)) {
            (None, None) => None,
            (rows, columns) => Some(PackedQuantiser::new(gpu, rows, columns)),
        };
        let twice = |role, is_column| Twice::new(gpu, choices, is_input && makes_inputs, role, is_column);
        Ok(Self {
            rows,
            columns,
            quantiser: quantiser.transpose().map_err(machine)?,
            packed: packed.transpose().map_err(machine)?,
            twice: [twice(rows, false)?, twice(columns, true)?],
        })
    }
}

impl Twice {
    /// Nothing where the operand is quantised once. `made`: its source may be one that is made while it is read.
    fn new(gpu: &Gpu, choices: &Choices, made: bool, role: Option<Role>, is_column: bool) -> Result<Option<Self>, TrainerError> {
        let Some(role) = role else { return Ok(None) };
        let Some(first) = choices.first(role.pass, role.operand) else { return Ok(None) };
        let quantiser = |made: bool, spec, is_column: bool| {
            let (rows, columns) = if is_column { (None, Some(spec)) } else { (Some(spec), None) };
            Quantiser::drawing(gpu, Draw::Own, made, rows, columns).map_err(machine)
        };
        let is_turned = is_column != first.is_turned;
        let is_turned_again = is_column != is_turned;
        let once = quantiser(made, first.spec, is_turned)?;
        let again = quantiser(false, choices.spec(role.pass, role.operand), is_turned_again)?;
        Ok(Some(Self { role, once, is_turned, again, is_turned_again }))
    }

    /// Prepares a source, `[rows, columns]`, to `side`; `between` holds it quantised once, in BF16.
    pub(super) fn run(
        &self,
        between: &Buffer<u8>,
        source: Made<'_>,
        (rows, columns): (usize, usize),
        side: OperandSide<'_>,
    ) -> Result<(), GpuError> {
        let sides = |side, is_column: bool| {
            if is_column { (OperandSide::default(), side) } else { (side, OperandSide::default()) }
        };
        let first = sides(OperandSide { out: Some(between), ..OperandSide::default() }, self.is_turned);
        self.once.run(source, (rows, columns), first.0, first.1)?;
        let values = between.part(0, rows * columns)?;
        let shape = if self.is_turned { (columns, rows) } else { (rows, columns) };
        let second = sides(side, self.is_turned_again);
        self.again.run(Made::Stored(&values, 0), shape, second.0, second.1)
    }
}

pub(super) fn largest_of(format: Format) -> f32 {
    quantise::mini_float(format).map_or(0.0, |format| format.largest)
}

/// Largest value of the slot's format if its scale is delayed, else 0.
pub(super) fn largest_of_slot(choices: &Choices, slot: usize) -> f32 {
    let (pass, operand) = SLOTS[slot % SLOTS.len()];
    let spec = choices.spec(pass, operand);
    if spec.scale == ScaleRule::Delayed { largest_of(spec.format) } else { 0.0 }
}

/// Refuses what the GPU cannot multiply, before anything runs.
pub(super) fn check_recipe(description: &Description, run: &RunFile, choices: &Choices) -> Result<(), TrainerError> {
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

/// A source that is kept, and where it starts.
pub(super) fn stored(source: Made<'_>) -> Result<(&Buffer<Bf16>, usize), TrainerError> {
    match source {
        Made::Stored(buffer, first) => Ok((buffer, first)),
        _ => Err(TrainerError::Machine("an operand that is multiplied as it is was not kept: this is a defect of the trainer".to_owned())),
    }
}

/// The larger of each two magnitudes, by their bits: those of a NaN are larger than any number's.
pub(super) fn raise(largest: &mut [f32], least: &[f32]) {
    largest.iter_mut().zip(least).for_each(|(largest, least)| *largest = f32::from_bits(largest.to_bits().max(least.to_bits())));
}

/// X as it is read.
pub(super) fn made<'a>(x: &Input<'a, GpuDevice>, parameters: &'a Parameters) -> Made<'a> {
    match x {
        Input::Normed { normed, stream, inverse_rms, gain } if normed.length() == 0 => {
            Made::Normed { stream, inverse_rms, gain: parameters.in_f32(gain.start) }
        }
        Input::Gated { hidden, gate_up } if hidden.length() == 0 => Made::Gated { gate_up },
        kept => Made::Stored(kept.kept(), 0),
    }
}
