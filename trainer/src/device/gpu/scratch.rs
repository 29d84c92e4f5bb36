//! Memory for what lives during one linear or during the head, and no longer: prepared operands, the gradient of SwiGLU's result, logits.
//! They take it in turns. Everything runs on one stream, so what is queued first is done before its memory is written again.

use contract::memory::bytes_of_turn;
use kernels::gpu::{Buffer, Gpu, Plain};

use super::machine;
use crate::error::TrainerError;

#[derive(Debug)]
pub(super) struct Scratch(Buffer<u8>);

/// Who has it: parts one behind another, until the next turn.
#[derive(Debug)]
pub(super) struct Turn {
    memory: Buffer<u8>,
    taken: usize,
}

impl Scratch {
    /// For turns of so many bytes.
    pub(super) fn new(gpu: &Gpu, bytes: usize) -> Result<Self, TrainerError> {
        gpu.buffer(bytes).map(Self).map_err(machine)
    }

    /// The next turn: what the last one held is lost.
    pub(super) fn turn(&self) -> Result<Turn, TrainerError> {
        Ok(Turn { memory: self.0.part(0, self.0.length()).map_err(machine)?, taken: 0 })
    }
}

impl Turn {
    /// The next `length` elements.
    pub(super) fn take<T: Plain>(&mut self, length: usize) -> Result<Buffer<T>, TrainerError> {
        let part = self.memory.part(self.taken, length).map_err(machine)?;
        self.taken += bytes_of_turn([length * size_of::<T>()]);
        Ok(part)
    }
}
