//! Root-mean-square normalisation, forward and backward.
//!
//! y = x * r * gain with r = 1 / sqrt(mean(x^2) + epsilon), per token (arXiv 1910.07467 without the mean subtraction).

use super::lanes::{Lanes, WIDTH, get, put};
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect, room};

/// Tokens whose gain gradients are summed together before the chunks are combined in order.
const CHUNK: usize = 64;

impl Cpu {
    /// `x, y: [tokens, width]`, `gain: [width]`, `inverse_rms: [tokens]` (saved for the backward).
    ///
    /// Order: squares by fused multiply-add in sixteen lanes, the fixed tree, then r = 1/sqrt(sum/width + epsilon), y = (x*r)*gain.
    pub fn rms_norm(&self, x: &[f32], gain: &[f32], epsilon: f32, y: &mut [f32], inverse_rms: &mut [f32]) -> Result<(), ShapeError> {
        let width = gain.len();
        expect("rms_norm", "x", inverse_rms.len() * width, x.len())?;
        expect("rms_norm", "y", x.len(), y.len())?;
        if x.is_empty() {
            return Ok(());
        }
        let _timer = self.timer(Kernel::Norm, 0);
        let tasks = x.chunks(CHUNK * width).zip(y.chunks_mut(CHUNK * width)).zip(inverse_rms.chunks_mut(CHUNK));
        self.each(tasks, |((x, y), r)| dispatch!(self, |l| forward(l, x, gain, epsilon, y, r)));
        Ok(())
    }

    /// Gradients of [`Cpu::rms_norm`]. `d_x` is overwritten, or added to when `accumulate_d_x` (a residual stream); `d_gain` is added to.
    ///
    /// d_x = r*(d_y*gain) - x * (r^3/width * sum(d_y*gain*x)); d_gain = sum over tokens of d_y*(x*r), in chunks of 64 tokens.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    pub fn rms_norm_backward(
        &self,
        x: &[f32],
        gain: &[f32],
        inverse_rms: &[f32],
        d_y: &[f32],
        d_x: &mut [f32],
        accumulate_d_x: bool,
        d_gain: &mut [f32],
    ) -> Result<(), ShapeError> {
        let width = gain.len();
        expect("rms_norm_backward", "x", inverse_rms.len() * width, x.len())?;
        expect("rms_norm_backward", "d_y", x.len(), d_y.len())?;
        expect("rms_norm_backward", "d_x", x.len(), d_x.len())?;
        expect("rms_norm_backward", "d_gain", width, d_gain.len())?;
        if x.is_empty() {
            return Ok(());
        }
        let _timer = self.timer(Kernel::Norm, 0);
        self.with_scratch(|scratch| {
            let partial = room(&mut scratch.partial, inverse_rms.len().div_ceil(CHUNK) * width);
            partial.fill(0.0);
            let size = CHUNK * width;
            let tasks = x.chunks(size).zip(d_y.chunks(size)).zip(d_x.chunks_mut(size));
            let tasks = tasks.zip(inverse_rms.chunks(CHUNK)).zip(partial.chunks_mut(width));
            self.each(tasks, |((((x, d_y), d_x), r), d_gain)| {
                dispatch!(self, |l| backward(l, x, gain, r, d_y, d_x, accumulate_d_x, d_gain));
            });
            dispatch!(self, |l| for chunk in partial.chunks(width) {
                for at in (0..width).step_by(WIDTH) {
                    put(l, l.add(get(l, d_gain, at), get(l, chunk, at)), d_gain, at);
                }
            });
        });
        Ok(())
    }
}

#[inline(always)]
fn forward<L: Lanes>(l: L, x: &[f32], gain: &[f32], epsilon: f32, y: &mut [f32], inverse_rms: &mut [f32]) {
    let width = gain.len();
    for ((x, y), r) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(inverse_rms) {
        let mut squares = l.splat(0.0);
        for at in (0..width).step_by(WIDTH) {
            let v = get(l, x, at);
            squares = l.fma(v, v, squares);
        }
        *r = 1.0 / (l.sum(squares) / width as f32 + epsilon).sqrt();
        let scale = l.splat(*r);
        for at in (0..width).step_by(WIDTH) {
            put(l, l.mul(l.mul(get(l, x, at), scale), get(l, gain, at)), y, at);
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // as above
fn backward<L: Lanes>(
    l: L,
    x: &[f32],
    gain: &[f32],
    inverse_rms: &[f32],
    d_y: &[f32],
    d_x: &mut [f32],
    accumulate: bool,
    d_gain: &mut [f32],
) {
    let width = gain.len();
    let rows = x.chunks_exact(width).zip(d_y.chunks_exact(width)).zip(d_x.chunks_exact_mut(width));
    for (((x, d_y), d_x), &r) in rows.zip(inverse_rms) {
        let mut product = l.splat(0.0);
        for at in (0..width).step_by(WIDTH) {
            product = l.fma(l.mul(get(l, d_y, at), get(l, gain, at)), get(l, x, at), product);
        }
        let along = l.splat(-(r * r * r * l.sum(product) / width as f32));
        let r = l.splat(r);
        for at in (0..width).step_by(WIDTH) {
            let (x, d_y) = (get(l, x, at), get(l, d_y, at));
            let direct = l.mul(r, l.mul(d_y, get(l, gain, at)));
            let mut gradient = l.fma(x, along, direct);
            if accumulate {
                gradient = l.add(get(l, d_x, at), gradient);
            }
            put(l, gradient, d_x, at);
            put(l, l.fma(d_y, l.mul(x, r), get(l, d_gain, at)), d_gain, at);
        }
    }
}
