//! The head and its loss on the device: logits of some thousand tokens at a time, their cross-entropy in place, and both gradients.

use std::ops::Range;

use contract::memory::logits_together;

use super::driver::Grid;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, expect};

/// Kernels for one model.
#[derive(Debug)]
pub struct Head {
    cross_entropy: Kernel,
    sum: Kernel,
    together: usize,
    width: usize,
    vocabulary: usize,
}

impl Head {
    /// For batches of at most `tokens`.
    pub fn new(gpu: &Gpu, tokens: usize, width: usize, vocabulary: usize) -> Result<Self, GpuError> {
        Ok(Self {
            cross_entropy: gpu.kernel("loss.cu", &[], "cross_entropy")?,
            sum: gpu.kernel("loss.cu", &[], "sum_losses")?,
            together: logits_together(tokens, vocabulary),
            width,
            vocabulary,
        })
    }

    /// Elements of the logits that are in memory at once.
    pub fn logits(&self) -> usize {
        self.together * self.vocabulary
    }

    /// Losses of `x: [tokens, width]` under the head at `weight.1` of the BF16 parameters; their sum, in F64, into `sum.1` of
    /// `sum.0`. With `gradients` also d_x and the head's gradient, both overwritten: of the sum of losses over `tokens`. `logits`: room for
    /// [`Head::logits`] that nobody else needs meanwhile.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    pub fn run(
        &self,
        gpu: &Gpu,
        x: &Buffer<Bf16>,
        weight: (&Buffer<Bf16>, usize),
        targets: &Buffer<u32>,
        losses: &mut Buffer<f32>,
        sum: (&Buffer<f64>, usize),
        tokens: usize,
        logits: &Buffer<Bf16>,
        gradients: Option<(&mut Buffer<Bf16>, &mut Buffer<f32>, usize)>,
    ) -> Result<(), GpuError> {
        expect("head", "the logits", self.logits(), logits.length())?;
        expect("head", "targets", tokens, targets.length())?;
        expect("head", "losses", tokens, losses.length())?;
        expect("head", "the results", sum.1 + 1, sum.0.length())?;
        let (width, vocabulary) = (self.width, self.vocabulary);
        for first in (0..tokens).step_by(self.together) {
            let range = first..tokens.min(first + self.together);
            let count = range.len();
            let rows = x.matrix(first * width, count, width, false)?;
            let weight_rows = weight.0.matrix(weight.1, vocabulary, width, false)?;
            gpu.multiply(rows, weight_rows, 1.0, None, logits, 0)?;
            self.losses(logits, targets, losses, &range, 1.0 / tokens as f32, gradients.is_some())?;
            if let Some((d_x, d_weight, at)) = &gradients {
                // d_x = d_logits W, d_W += d_logitsᵀ x.
                let d_logits = logits.matrix(0, count, vocabulary, false)?;
                let weight_columns = weight.0.matrix(weight.1, width, vocabulary, true)?;
                gpu.multiply(d_logits, weight_columns, 1.0, None, d_x, first * width)?;
                let d_logits = logits.matrix(0, vocabulary, count, true)?;
                let columns = x.matrix(first * width, width, count, true)?;
                if first == 0 {
                    gpu.multiply(d_logits, columns, 1.0, None, d_weight, *at)?;
                } else {
                    gpu.multiply_into(d_logits, columns, 1.0, d_weight, *at)?;
                }
            }
        }
        let arguments = [Argument::new(losses.address(0)), Argument::new(tokens as i32), Argument::new(sum.0.address(sum.1))];
        // SAFETY: sum_losses(values, count, out); lengths were checked.
        unsafe { self.sum.launch(Grid::row(1, 512), arguments) }
    }

    fn losses(
        &self,
        logits: &Buffer<Bf16>,
        targets: &Buffer<u32>,
        losses: &Buffer<f32>,
        range: &Range<usize>,
        scale: f32,
        gradient: bool,
    ) -> Result<(), GpuError> {
        let arguments = [
            Argument::new(logits.address(0)),
            Argument::new(targets.address(range.start)),
            Argument::new(losses.address(range.start)),
            Argument::new(self.vocabulary as i32),
            Argument::new(scale),
            Argument::new(i32::from(gradient)),
        ];
        // SAFETY: cross_entropy(logits, targets, loss, vocabulary, scale, gradient): one workgroup a token; `Batch::fill` refuses
        // targets outside the vocabulary, lengths were checked.
        unsafe { self.cross_entropy.launch(Grid::row(range.len(), 512), arguments) }
    }
}
