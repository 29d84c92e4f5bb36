//! Which random words belong to what: every key that the trainer gives to `kernels::random`.
//!
//! Words depend on the seed and on the place where they are used, never on the recipe, the threads or what was drawn
//! before. So all arms of a seed share initialisation and data order, and a resumed run draws the same words.

pub use contract::recipe::{Operand, Pass};
use kernels::random::{Stream, StreamKey};

/// Values of `StreamKey::pass` beyond the three GEMM passes.
const EVALUATION: u32 = 3;
const INITIALISATION: u32 = 16;
const DATA_ORDER: u32 = 17;
const CONSTANT: u32 = 18;
/// Value of `StreamKey::operand` for the sign vector that both operands share.
const SIGNS: u32 = 3;
/// Value of `StreamKey::operand` for the sign vector of the first operand, where each has its own.
const OWN_SIGNS: u32 = 4;

/// Where in the model a linear is, and when: the parts of a key that change in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Block, from 0.
    pub layer: usize,
    /// Linear within the block, from 0: qkv, attention_output, gate_up, down.
    pub linear: usize,
}

fn key(seed: u64, step: u64, place: Place, pass: u32, operand: u32) -> StreamKey {
    StreamKey { seed, step, layer: place.layer as u32, linear: place.linear as u32, pass, operand }
}

/// The one stream of a recipe whose `stochastic_seed` is `constant`: every operand of every linear at every step, in training and
/// evaluation, reads the same words from the start, as a kernel does that is handed the same seed at each launch.
pub fn constant_rounding(seed: u64) -> Stream {
    key(seed, 0, Place { layer: 0, linear: 0 }, CONSTANT, 0).stream()
}

/// The number by which micro-batch `part` (from 0) of `parts` of a step (from 1) draws its words: micro-batches are counted through the
/// whole run, so that no two share words for rounding or signs drawn per step. With one micro-batch it is the step itself.
pub fn micro_step(step: u64, part: usize, parts: usize) -> u64 {
    (step - 1) * parts as u64 + part as u64 + 1
}

/// Words for stochastic rounding in training; `step` is that of [`micro_step`].
pub fn rounding(seed: u64, step: u64, place: Place, pass: Pass, operand: Operand) -> Stream {
    key(seed, step, place, pass as u32, operand as u32).stream()
}

/// Words for stochastic rounding in the forward pass of an evaluation; `chunk` is the batch within it (0 for weights).
pub fn evaluation_rounding(seed: u64, step: u64, place: Place, operand: Operand, chunk: usize) -> Stream {
    key(seed, step, place, EVALUATION, operand as u32 + 4 * chunk as u32).stream()
}

/// Words for the sign vector of a GEMM. `step` is 0 when the signs are fixed. Evaluation uses those of fprop.
pub fn signs(seed: u64, step: u64, place: Place, pass: Pass) -> Stream {
    key(seed, step, place, pass as u32, SIGNS).stream()
}

/// Words for the sign vector of one operand of a GEMM, where a defect gives each its own.
pub fn own_signs(seed: u64, step: u64, place: Place, pass: Pass, operand: Operand) -> Stream {
    key(seed, step, place, pass as u32, OWN_SIGNS + operand as u32).stream()
}

/// Words for the initial values of parameter tensor number `tensor`.
pub fn initialisation(seed: u64, tensor: usize) -> Stream {
    key(seed, 0, Place { layer: tensor, linear: 0 }, INITIALISATION, 0).stream()
}

/// Words for the order of the training sequences in `epoch`.
pub fn data_order(seed: u64, epoch: u64) -> Stream {
    key(seed, epoch, Place { layer: 0, linear: 0 }, DATA_ORDER, 0).stream()
}
