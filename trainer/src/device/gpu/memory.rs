//! What a run needs of a GPU's memory: what is kept follows from it, and one that does not fit is told so before it starts.

use contract::run_file::RunFile;
use kernels::gpu::{Gpu, Head};

use super::native::Native;
use super::operands::{self, Ways};
use crate::choices::Choices;
use crate::error::TrainerError;
use crate::parameters::Layout;

/// What of that which could be made again is kept. Results are the same bits either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All of it, if it fits.
    WhatFits,
    Least,
}

/// Workspace and code of the matrix library and of the kernels, about.
const LIBRARIES: u128 = 128 << 20;

/// Bytes that a run needs on a GPU at least: parameters in F32 and BF16, gradients, two moments, every activation that is kept in BF16, operands
/// that wait for backward, and what is taken in turns.
fn needed_bytes(run: &RunFile, choices: &Choices, ways: Ways) -> u128 {
    let model = &run.model;
    let [qkv, output, gate_up, down] = model.linears();
    let (d, tokens) = (model.hidden_size as u128, run.tokens_per_step() as u128);
    let remade = if ways.makes_inputs { 0 } else { 2 * d + down.2 as u128 };
    let block = 2 * (2 * d + remade + (qkv.1 + output.2 + gate_up.1) as u128) + 4 * (model.num_attention_heads as u128 + 2);
    let shared = 2 * (4 * d + (qkv.1 + output.2) as u128) + 4 * 2;
    // F32 and BF16 parameters, gradients, two moments; the sum of micro-batches' gradients.
    let of_a_parameter = 4 + 2 + 4 + 8 + 4 * u128::from(run.batch.accumulation > 1);
    of_a_parameter * Layout::new(model).total as u128
        + tokens * (block * model.num_hidden_layers as u128 + shared)
        + operands::waiting_bytes(choices, ways, run.tokens_per_step())
        + scratch_bytes(run, choices, ways) as u128
        + LIBRARIES
}

/// Bytes of the memory that is taken in turns.
pub(super) fn scratch_bytes(run: &RunFile, choices: &Choices, ways: Ways) -> usize {
    let tokens = run.tokens_per_step();
    operands::scratch_bytes(choices, ways, tokens).max(2 * Head::logits_of(tokens, run.model.vocab_size))
}

/// How a run is done in what is free on the GPU: with everything kept that makes a step faster, or else with the least memory.
///
/// # Errors
/// [`TrainerError::Machine`] if that does not fit either, with how much is needed, how much is there, and which keys lower it.
pub(super) fn choose(run: &RunFile, choices: &Choices, native: Native, keep: Keep, gpu: &Gpu) -> Result<Ways, TrainerError> {
    let (free, total) = gpu.driver().memory().map_err(super::machine)?;
    let makes_inputs = operands::can_make_inputs(choices, native);
    let (fast, least) = (Ways { native, makes_inputs, inputs_wait: true }, Ways { native, makes_inputs, inputs_wait: !makes_inputs });
    let needed = [fast, least].map(|ways| needed_bytes(run, choices, ways));
    // The sum says what is needed at least: what is only faster leaves a twentieth of room.
    if keep == Keep::WhatFits && needed[0] + needed[0] / 20 <= u128::from(free) {
        return Ok(fast);
    }
    let needed = needed[1];
    if needed <= u128::from(free) {
        return Ok(least);
    }
    let gib = |bytes: u128| bytes as f64 / f64::from(1 << 30);
    Err(TrainerError::Machine(format!(
        "this run needs {:.1} GiB on the GPU, {} has {:.1} free of {:.1}; raise batch.accumulation ({} sequences are computed at once now), lower model.sequence_length, use a smaller model, or another GPU",
        gib(needed),
        gpu.description().name,
        gib(u128::from(free)),
        gib(u128::from(total)),
        run.batch.sequences
    )))
}
