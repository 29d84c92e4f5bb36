//! The room that prepared operands of a run's linears take on a GPU: what waits for backward, and what is taken in turns.

use super::Keep;
use crate::native::{Native, packed_bytes};
use crate::recipe::{Block, Format, Operand, OperandSpec, Pass, Passes, is_source};
use crate::run_file::RunFile;

/// One operand: where it is prepared, and along which axis of its source.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    pub pass: Pass,
    pub operand: Operand,
}

pub const INPUT: Role = Role { pass: Pass::Fprop, operand: Operand::Input };
pub const WEIGHT: Role = Role { pass: Pass::Fprop, operand: Operand::Weight };
pub const GRADIENT: Role = Role { pass: Pass::Dgrad, operand: Operand::OutputGradient };
pub const WEIGHT_TURNED: Role = Role { pass: Pass::Dgrad, operand: Operand::Weight };
pub const GRADIENT_TURNED: Role = Role { pass: Pass::Wgrad, operand: Operand::OutputGradient };
pub const INPUT_TURNED: Role = Role { pass: Pass::Wgrad, operand: Operand::Input };

/// Parts of a GPU's buffer start at multiples of so many bytes, as what drivers allocate does.
pub const PART: usize = 256;

/// The linear whose X is SwiGLU's result: backward holds its gradient beside the operands.
const DOWN: usize = 3;

/// Bytes of a turn that takes parts of so many bytes.
pub fn bytes_of_turn(parts: impl IntoIterator<Item = usize>) -> usize {
    parts.into_iter().map(|bytes| bytes.next_multiple_of(PART)).sum()
}

/// Bytes of an element of a prepared operand that is not packed: FP8 scaled as a whole stays FP8, all else is held in BF16.
pub fn element_bytes(spec: &OperandSpec) -> usize {
    let is_fp8 = matches!(spec.format, Format::E4m3 | Format::E5m2) && spec.block == Block::Tensor;
    if is_fp8 { 1 } else { 2 }
}

/// How the linears of a run are done where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ways {
    pub native: Native,
    /// Whether X is not kept, but made while it is read.
    pub makes_inputs: bool,
    /// Whether what Wgrad takes of X is prepared in forward, in the read of what Fprop takes, and waits for backward; else backward prepares it.
    pub inputs_wait: bool,
}

impl Ways {
    /// X can be made from what is kept whenever it is read where nothing multiplies X itself, and no kernel that cannot make it reads it.
    pub fn new(run: &RunFile, native: Native, keep: Keep) -> Self {
        let makes_inputs = [INPUT, INPUT_TURNED].into_iter().all(|role| {
            let spec = run.recipe.passes.spec(role.pass, role.operand);
            !is_source(&spec) && spec.block != Block::Tile32 && !native.has(role.pass)
        });
        Self { native, makes_inputs, inputs_wait: keep == Keep::Everything || !makes_inputs }
    }
}

/// What operands of a run's linears take. Shapes are those of a block: name, out features, in features.
#[derive(Debug, Clone, Copy)]
pub struct Rooms<'a> {
    pub passes: &'a Passes,
    pub shapes: [(&'static str, usize, usize); 4],
    pub layers: usize,
}

impl<'a> Rooms<'a> {
    pub fn new(run: &'a RunFile) -> Self {
        Self { passes: &run.recipe.passes, shapes: run.model.linears(), layers: run.model.num_hidden_layers }
    }

    /// Elements of an operand of a linear.
    fn elements(&self, role: Role, linear: usize, tokens: usize) -> usize {
        let (_, out, inputs) = self.shapes[linear];
        match role.operand {
            Operand::Input => tokens * inputs,
            Operand::Weight => out * inputs,
            Operand::OutputGradient => tokens * out,
        }
    }

    /// Bytes of a prepared operand of a linear; none where it is its source.
    pub fn room(&self, ways: Ways, role: Role, linear: usize, tokens: usize) -> usize {
        let (spec, elements) = (self.passes.spec(role.pass, role.operand), self.elements(role, linear, tokens));
        match () {
            () if ways.native.has(role.pass) => packed_bytes(elements),
            () if is_source(&spec) => 0,
            () => element_bytes(&spec) * elements,
        }
    }

    /// Whether what Wgrad takes of X is prepared in forward, in the read of what Fprop takes, and waits for backward.
    pub fn input_waits(&self, ways: Ways) -> bool {
        let is_prepared = |role: Role| !is_source(&self.passes.spec(role.pass, role.operand));
        ways.inputs_wait && is_prepared(INPUT) && is_prepared(INPUT_TURNED)
    }

    /// Bytes of the largest source in BF16: what an operand that is quantised twice is in between.
    pub fn largest_source(&self, tokens: usize) -> usize {
        let roles = [INPUT, WEIGHT, GRADIENT];
        let elements = (0..4).flat_map(|linear| roles.map(|role| self.elements(role, linear, tokens)));
        2 * elements.max().unwrap_or_default()
    }

    /// The operands that wait in all linears for backward: their formula in words, and bytes.
    pub(super) fn waiting(&self, ways: Ways, tokens: usize) -> (String, u128) {
        let roles = [(INPUT_TURNED, "T inputs", self.input_waits(ways)), (WEIGHT_TURNED, "weights", true)];
        let (mut words, mut total) = (Vec::new(), 0);
        for (role, what, _) in roles.into_iter().filter(|(.., waits)| *waits) {
            let bytes = (0..4).map(|linear| self.room(ways, role, linear, tokens) as u128).sum::<u128>();
            if bytes > 0 {
                words.push(format!("{} {what}", self.bytes_of_an_element(ways, role)));
                total += bytes;
            }
        }
        let formula = match words.is_empty() {
            true => "none waits for backward".to_owned(),
            false => format!("L ({}): X and W of each linear, waiting for backward", words.join(" + ")),
        };
        (formula, self.layers as u128 * total)
    }

    fn bytes_of_an_element(&self, ways: Ways, role: Role) -> &'static str {
        match element_bytes(&self.passes.spec(role.pass, role.operand)) {
            _ if ways.native.has(role.pass) => "17/32",
            1 => "1",
            _ => "2",
        }
    }

    /// Bytes that the largest turn of a linear takes.
    pub(super) fn largest_turn(&self, ways: Ways, tokens: usize) -> usize {
        let bytes = |linear: usize, role: Role| self.room(ways, role, linear, tokens);
        let turns = |linear: usize| {
            let forward = bytes_of_turn([INPUT, WEIGHT].map(|role| bytes(linear, role)));
            let d_hidden = if linear == DOWN { 2 * tokens * self.shapes[linear].2 } else { 0 };
            let input = if self.input_waits(ways) { 0 } else { bytes(linear, INPUT_TURNED) };
            forward.max(bytes_of_turn([bytes(linear, GRADIENT), bytes(linear, GRADIENT_TURNED), input, d_hidden]))
        };
        (0..4).map(turns).max().unwrap_or_default()
    }
}
