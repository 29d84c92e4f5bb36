//! The head and its loss in one: logits, cross-entropy, and both gradients, a few hundred tokens at a time.
//!
//! The logits of all tokens are never in memory together, and their gradients lie in one order, which two products read. The order of arithmetic is that of `gemm_f32` and `cross_entropy` over all
//! tokens at once: between groups of tokens the sums of the weight's gradient wait where they are and go on.

use super::gemm::{Matrix, Target};
use super::panels::Side;
use super::profile::Kernel;
use super::{Cpu, Scratch, ShapeError, expect, room};

/// Logits in memory at once, roughly: 4 MiB. More tokens together take the sums of the weight's gradient through memory less often: with 256 in
/// place of 128 the head of 4096 x 256 x 4096 takes 0.96 of its time on Zen 4, where a second-level cache of 1 MiB holds neither's logits.
const LOGITS: usize = 1 << 20;

impl Cpu {
    /// `x: [tokens, width]`, `weight: [vocabulary, width]`; `loss: [tokens]` in nats, `d_x` and `d_weight` of the same shapes as `x` and
    /// `weight`, overwritten: gradients of the sum of losses times `gradient_scale` (usually 1/tokens). Returns the sum of the losses,
    /// in F64, in token order.
    ///
    /// logits = x weightᵀ and their gradients' products as in [`Cpu::gemm_f32`], losses as in [`Cpu::cross_entropy`].
    ///
    /// # Errors
    /// Lengths that do not fit, or a target outside the vocabulary. Nothing was written then.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    pub fn head(
        &self,
        x: &[f32],
        weight: &[f32],
        targets: &[u32],
        gradient_scale: f32,
        loss: &mut [f32],
        d_x: &mut [f32],
        d_weight: &mut [f32],
    ) -> Result<f64, ShapeError> {
        let (width, vocabulary) = check("head", x, weight, targets, loss)?;
        expect("head", "d_x", x.len(), d_x.len())?;
        expect("head", "d_weight", weight.len(), d_weight.len())?;
        let tokens = tokens_together(vocabulary);
        if targets.is_empty() {
            // No group of tokens comes to overwrite it.
            d_weight.fill(0.0);
        }
        self.with_scratch(|scratch| {
            let Scratch { left, right, head, head_turned, logits, partial, .. } = scratch;
            self.timed_pack(Matrix::new(weight, vocabulary, width), Side::Right, head);
            self.timed_pack(Matrix::transposed(weight, width, vocabulary), Side::Right, head_turned);
            let groups =
                x.chunks(tokens * width).zip(d_x.chunks_mut(tokens * width)).zip(targets.chunks(tokens)).zip(loss.chunks_mut(tokens));
            for (number, (((x, d_x), targets), loss)) in groups.enumerate() {
                let count = targets.len();
                let logits = room(logits, count * vocabulary);
                self.timed_pack(Matrix::new(x, count, width), Side::Left, left);
                self.timed_multiply(left, head, Target::over(logits, vocabulary));
                let factors = room(partial, count);
                self.exponentials(logits, targets, gradient_scale, loss, factors);
                self.gradient_panels(logits, targets, gradient_scale, factors, left);
                self.timed_turned(left, head_turned, d_x);
                self.timed_pack(Matrix::transposed(x, width, count), Side::Right, right);
                self.timed_multiply(left, right, Target { goes_on: number > 0, ..Target::over(d_weight, width) });
            }
            Ok(())
        })?;
        Ok(loss.iter().map(|&x| f64::from(x)).sum())
    }

    /// The losses of [`Cpu::head`] alone, the same bits.
    pub fn head_loss(&self, x: &[f32], weight: &[f32], targets: &[u32], loss: &mut [f32]) -> Result<f64, ShapeError> {
        let (width, vocabulary) = check("head_loss", x, weight, targets, loss)?;
        let tokens = tokens_together(vocabulary);
        self.with_scratch(|scratch| {
            let Scratch { left, head, logits, .. } = scratch;
            self.timed_pack(Matrix::new(weight, vocabulary, width), Side::Right, head);
            for ((x, targets), loss) in x.chunks(tokens * width).zip(targets.chunks(tokens)).zip(loss.chunks_mut(tokens)) {
                let logits = room(logits, targets.len() * vocabulary);
                self.timed_pack(Matrix::new(x, targets.len(), width), Side::Left, left);
                self.timed_multiply(left, head, Target::over(logits, vocabulary));
                self.cross_entropy_loss(logits, targets, loss)?;
            }
            Ok(())
        })?;
        Ok(loss.iter().map(|&x| f64::from(x)).sum())
    }

    fn timed_pack(&self, source: Matrix<'_>, side: Side, panels: &mut super::Panels) {
        let _timer = self.timer(Kernel::GemmF32, 0);
        self.pack_f32(source, side, panels);
    }

    fn timed_multiply(&self, left: &super::Panels, right: &super::Panels, target: Target<'_>) {
        let _timer = self.timer(Kernel::GemmF32, 2 * left.rows * right.rows * left.k);
        self.multiply(left, right, target);
    }

    fn timed_turned(&self, turned: &super::Panels, right: &super::Panels, c: &mut [f32]) {
        let _timer = self.timer(Kernel::GemmF32, 2 * c.len() * right.k);
        self.multiply_turned(turned, right, c);
    }
}

fn tokens_together(vocabulary: usize) -> usize {
    (LOGITS / vocabulary.max(1)).clamp(128, 512)
}

/// Width and vocabulary, if everything fits.
fn check(kernel: &'static str, x: &[f32], weight: &[f32], targets: &[u32], loss: &[f32]) -> Result<(usize, usize), ShapeError> {
    expect(kernel, "loss", targets.len(), loss.len())?;
    let width = x.len().checked_div(targets.len()).unwrap_or(1).max(1);
    expect(kernel, "x", width * targets.len(), x.len())?;
    let vocabulary = weight.len() / width;
    expect(kernel, "weight", vocabulary * width, weight.len())?;
    super::loss::check_targets(kernel, targets, vocabulary)?;
    Ok((width, vocabulary))
}
