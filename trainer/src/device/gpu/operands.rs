//! What the linears of a run prepare on a GPU: which operands there are, the kernels that prepare them, how much room they take, and what the
//! GPU cannot multiply. Sizes are known before anything is allocated: `memory` decides by them.

use contract::recipe::{Block, Format, ScaleRule};
use contract::run_file::RunFile;
use kernels::gpu::{Description, Element, Gpu, PackedQuantiser, Quantiser, element, is_source, packed_bytes};
use kernels::quantise;

use super::machine;
use super::native::{Native, PASSES};
use super::scratch::bytes_of_turn;
use crate::choices::{Choices, DOWN, SLOTS};
use crate::error::TrainerError;
use crate::streams::{Operand, Pass};

/// One operand: where it is prepared, and along which axis of its source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Role {
    pub(super) pass: Pass,
    pub(super) operand: Operand,
}

pub(super) const INPUT: Role = Role { pass: Pass::Fprop, operand: Operand::Input };
pub(super) const WEIGHT: Role = Role { pass: Pass::Fprop, operand: Operand::Weight };
pub(super) const GRADIENT: Role = Role { pass: Pass::Dgrad, operand: Operand::OutputGradient };
pub(super) const WEIGHT_TURNED: Role = Role { pass: Pass::Dgrad, operand: Operand::Weight };
pub(super) const GRADIENT_TURNED: Role = Role { pass: Pass::Wgrad, operand: Operand::OutputGradient };
pub(super) const INPUT_TURNED: Role = Role { pass: Pass::Wgrad, operand: Operand::Input };

/// Kernels for one source: what is prepared along its rows, and what along its columns.
#[derive(Debug)]
pub(super) struct Preparation {
    pub(super) rows: Option<Role>,
    pub(super) columns: Option<Role>,
    /// Of the operands that are not native.
    pub(super) quantiser: Option<Quantiser>,
    pub(super) packed: Option<PackedQuantiser>,
}

/// How the linears of a run are done where there is a choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    pub(super) native: Native,
    /// Whether X is not kept, but made while it is read.
    pub(super) makes_inputs: bool,
    /// Whether what Wgrad takes of X is prepared in forward, in the read of what Fprop takes, and waits for backward; else backward prepares it.
    pub(super) inputs_wait: bool,
}

impl Preparation {
    pub(super) fn new(gpu: &Gpu, choices: &Choices, ways: Ways, rows: Option<Role>, columns: Option<Role>) -> Result<Self, TrainerError> {
        let Ways { native, makes_inputs, .. } = ways;
        let spec = |role: Option<Role>, wanted: bool| {
            let role = role.filter(|role| native.has(role.pass) == wanted)?;
            Some(choices.spec(role.pass, role.operand)).filter(|spec| !is_source(spec))
        };
        let is_input = rows.or(columns).is_some_and(|role| role.operand == Operand::Input);
        let quantiser = match (spec(rows, false), spec(columns, false)) {
            (None, None) => None,
            (rows, columns) if is_input && makes_inputs => Some(Quantiser::of_made(gpu, rows, columns)),
            (rows, columns) => Some(Quantiser::new(gpu, rows, columns)),
        };
        let packed = match (spec(rows, true), spec(columns, true)) {
            (None, None) => None,
            (rows, columns) => Some(PackedQuantiser::new(gpu, rows, columns)),
        };
        Ok(Self { rows, columns, quantiser: quantiser.transpose().map_err(machine)?, packed: packed.transpose().map_err(machine)? })
    }
}

/// Whether X can be made from what is kept whenever it is read: where nothing multiplies X itself, and no kernel that cannot make it reads it.
pub(super) fn can_make_inputs(choices: &Choices, native: Native) -> bool {
    [INPUT, INPUT_TURNED].into_iter().all(|role| {
        let spec = choices.spec(role.pass, role.operand);
        !is_source(&spec) && spec.block != Block::Tile32 && !native.has(role.pass)
    })
}

/// Whether what Wgrad takes of X is prepared in forward, in the read of what Fprop takes, and waits for backward.
pub(super) fn input_waits(choices: &Choices, ways: Ways) -> bool {
    let is_prepared = |role: Role| !is_source(&choices.spec(role.pass, role.operand));
    ways.inputs_wait && is_prepared(INPUT) && is_prepared(INPUT_TURNED)
}

/// Bytes of the operands that wait in all linears for backward.
pub(super) fn waiting_bytes(choices: &Choices, ways: Ways, tokens: usize) -> u128 {
    let roles = [Some(WEIGHT_TURNED), input_waits(choices, ways).then_some(INPUT_TURNED)];
    let bytes = |role| (0..4).map(|linear| room(choices, ways, role, elements(choices, role, linear, tokens)) as u128).sum::<u128>();
    choices.layers as u128 * roles.into_iter().flatten().map(bytes).sum::<u128>()
}

/// Bytes that the largest turn of a linear takes.
pub(super) fn scratch_bytes(choices: &Choices, ways: Ways, tokens: usize) -> usize {
    let bytes = |linear: usize, role: Role| room(choices, ways, role, elements(choices, role, linear, tokens));
    let turns = |linear: usize| {
        let forward = bytes_of_turn([INPUT, WEIGHT].map(|role| bytes(linear, role)));
        let d_hidden = if linear == DOWN { 2 * tokens * choices.shapes[linear].2 } else { 0 };
        let input = if input_waits(choices, ways) { 0 } else { bytes(linear, INPUT_TURNED) };
        forward.max(bytes_of_turn([bytes(linear, GRADIENT), bytes(linear, GRADIENT_TURNED), input, d_hidden]))
    };
    (0..4).map(turns).max().unwrap_or_default()
}

/// Elements of an operand of a linear.
pub(super) fn elements(choices: &Choices, role: Role, linear: usize, tokens: usize) -> usize {
    let (_, out, inputs) = choices.shapes[linear];
    match role.operand {
        Operand::Input => tokens * inputs,
        Operand::Weight => out * inputs,
        Operand::OutputGradient => tokens * out,
    }
}

/// Bytes of a prepared operand of so many elements; none where it is its source.
pub(super) fn room(choices: &Choices, ways: Ways, role: Role, elements: usize) -> usize {
    let spec = choices.spec(role.pass, role.operand);
    match element(&spec) {
        _ if ways.native.has(role.pass) => packed_bytes(elements),
        _ if is_source(&spec) => 0,
        Element::Bf16 => 2 * elements,
        _ => elements,
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
