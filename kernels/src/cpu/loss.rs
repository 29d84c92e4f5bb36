//! Softmax cross-entropy over the vocabulary, forward alone or with its gradient in place.

use super::lanes::{Lanes, WIDTH, get, put};
use super::math::exp;
use super::panels::{Layout, Line, Panels, Side};
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect};

/// Tokens a task.
const CHUNK: usize = 32;

/// Groups of the vocabulary that are written side by side: few enough that their lines do not crowd one another out of the first-level cache.
const GROUPS: usize = 4;

impl Cpu {
    /// `logits: [tokens, vocabulary]` become their gradient times `gradient_scale` (usually 1/tokens); `loss: [tokens]` in nats.
    /// Returns the sum of the losses, in F64, in token order.
    ///
    /// Per token: m = max; e = exp(x - m); S = sum e (lanes, fixed tree); loss = (m + ln S) - x at the target (logarithm in F64, rounded once);
    /// gradient = e * (scale/S), less `gradient_scale` at the target.
    pub fn cross_entropy(&self, logits: &mut [f32], targets: &[u32], gradient_scale: f32, loss: &mut [f32]) -> Result<f64, ShapeError> {
        let _timer = self.timer(Kernel::Loss, 0);
        let vocabulary = check("cross_entropy", logits.len(), targets, loss.len())?;
        if !targets.is_empty() {
            let tasks = logits.chunks_mut(CHUNK * vocabulary).zip(targets.chunks(CHUNK)).zip(loss.chunks_mut(CHUNK));
            self.each(tasks, |((logits, targets), loss)| {
                dispatch!(self, |l| gradient(l, logits, vocabulary, targets, gradient_scale, loss));
            });
        }
        Ok(loss.iter().map(|&x| f64::from(x)).sum())
    }

    /// The first half of [`Cpu::cross_entropy`]: logits become exponentials, `factors` what a gradient has of each, without what the target
    /// loses. Shapes are checked already.
    pub(super) fn exponentials(&self, logits: &mut [f32], targets: &[u32], gradient_scale: f32, loss: &mut [f32], factors: &mut [f32]) {
        let _timer = self.timer(Kernel::Loss, 0);
        let vocabulary = logits.len() / targets.len().max(1);
        let tasks = logits.chunks_mut((CHUNK * vocabulary).max(1)).zip(targets.chunks(CHUNK)).zip(loss.chunks_mut(CHUNK));
        self.each(tasks.zip(factors.chunks_mut(CHUNK)), |(((logits, targets), loss), factors)| {
            dispatch!(self, |l| {
                for (((row, &target), loss), factor) in logits.chunks_exact_mut(vocabulary).zip(targets).zip(loss).zip(factors) {
                    *factor = exponential_row(l, row, target, gradient_scale, loss);
                }
            });
        });
    }

    /// The second half: gradients, with a row for each word of the vocabulary, as the left side's panels. Each is read and written once.
    pub(super) fn gradient_panels(&self, exponentials: &[f32], targets: &[u32], gradient_scale: f32, factors: &[f32], to: &mut Panels) {
        let _timer = self.timer(Kernel::Loss, 0);
        let (tokens, vocabulary) = (targets.len(), exponentials.len() / targets.len().max(1));
        to.reshape(Side::Left, vocabulary, tokens, Layout::Floats);
        let tasks = to.floats_mut().chunks_mut((GROUPS * tokens * Side::Left.lines()).max(1)).enumerate();
        self.each(tasks, |(number, to)| {
            let rows = number * GROUPS * Side::Left.group()..vocabulary.min((number + 1) * GROUPS * Side::Left.group());
            let tokens = exponentials.chunks_exact(vocabulary).zip(targets).zip(factors);
            dispatch!(self, |l| for (token, ((row, &target), &factor)) in tokens.enumerate() {
                scaled(l, &row[rows.clone()], factor, (token, factors.len()), to);
                if let Some(at) = (target as usize).checked_sub(rows.start).filter(|&at| at < rows.len()) {
                    let (group, within) = (at / Side::Left.group(), at % Side::Left.group());
                    let line = (group * factors.len() + token) * Side::Left.lines() + within / WIDTH;
                    to[line].0[within % WIDTH] -= gradient_scale;
                }
            });
        });
    }

    /// The losses of [`Cpu::cross_entropy`], the same bits, logits left alone.
    pub fn cross_entropy_loss(&self, logits: &[f32], targets: &[u32], loss: &mut [f32]) -> Result<f64, ShapeError> {
        let _timer = self.timer(Kernel::Loss, 0);
        let vocabulary = check("cross_entropy_loss", logits.len(), targets, loss.len())?;
        if !targets.is_empty() {
            let tasks = logits.chunks(CHUNK * vocabulary).zip(targets.chunks(CHUNK)).zip(loss.chunks_mut(CHUNK));
            self.each(tasks, |((logits, targets), loss)| {
                dispatch!(self, |l| losses(l, logits, vocabulary, targets, loss));
            });
        }
        Ok(loss.iter().map(|&x| f64::from(x)).sum())
    }
}

/// The vocabulary, if everything fits.
fn check(kernel: &'static str, logits: usize, targets: &[u32], loss: usize) -> Result<usize, ShapeError> {
    expect(kernel, "loss", targets.len(), loss)?;
    let vocabulary = logits.checked_div(targets.len()).unwrap_or(0);
    expect(kernel, "logits", vocabulary * targets.len(), logits)?;
    check_targets(kernel, targets, vocabulary)?;
    Ok(vocabulary)
}

/// Err if a target is outside the vocabulary.
pub(super) fn check_targets(kernel: &'static str, targets: &[u32], vocabulary: usize) -> Result<(), ShapeError> {
    match targets.iter().position(|&target| target as usize >= vocabulary) {
        None => Ok(()),
        Some(at) => Err(ShapeError {
            kernel,
            problem: format!("target {} at position {at} is outside the vocabulary of {vocabulary}", targets[at]),
        }),
    }
}

#[inline(always)]
fn largest<L: Lanes>(l: L, row: &[f32]) -> f32 {
    let mut best = l.splat(f32::NEG_INFINITY);
    let (whole, rest) = row.as_chunks::<WIDTH>();
    for chunk in whole {
        best = l.max(l.load(chunk), best);
    }
    rest.iter().fold(l.largest(best), |best, &x| if x > best { x } else { best })
}

fn loss_of(largest: f32, sum: f32, target: f32) -> f32 {
    (f64::from(largest) + libm::log(f64::from(sum)) - f64::from(target)) as f32
}

#[inline(always)]
fn gradient<L: Lanes>(l: L, logits: &mut [f32], vocabulary: usize, targets: &[u32], scale: f32, loss: &mut [f32]) {
    for ((row, &target), loss) in logits.chunks_exact_mut(vocabulary).zip(targets).zip(loss) {
        let factor = l.splat(exponential_row(l, row, target, scale, loss));
        for at in (0..vocabulary).step_by(WIDTH) {
            put(l, l.mul(get(l, row, at), factor), row, at);
        }
        row[target as usize] -= scale;
    }
}

/// A token's logits to exponentials; its loss, and `scale` over their sum.
#[inline(always)]
fn exponential_row<L: Lanes>(l: L, row: &mut [f32], target: u32, scale: f32, loss: &mut f32) -> f32 {
    let m = largest(l, row);
    let at_target = row[target as usize];
    let mut sum = l.splat(0.0);
    let (whole, rest) = row.as_chunks_mut::<WIDTH>();
    for chunk in whole {
        let e = exp(l, l.sub(l.load(chunk), l.splat(m)));
        sum = l.add(sum, e);
        l.store(e, chunk);
    }
    if !rest.is_empty() {
        // Lanes past the end must add nothing: their exponential is replaced by the stored zeros.
        let e = exp(l, l.sub(l.load_partial(rest), l.splat(m)));
        l.store_partial(e, rest);
        sum = l.add(sum, l.load_partial(rest));
    }
    let sum = l.sum(sum);
    *loss = loss_of(m, sum, at_target);
    scale / sum
}

/// `row` times `factor` to the lines of one of `tokens` tokens, zeros past the end.
#[inline(always)]
fn scaled<L: Lanes>(l: L, row: &[f32], factor: f32, (token, tokens): (usize, usize), to: &mut [Line<f32>]) {
    const LINES: usize = Side::Left.lines();
    for (row, to) in row.chunks(Side::Left.group()).zip(to.chunks_exact_mut((tokens * LINES).max(1))) {
        for (line, to) in to[token * LINES..][..LINES].iter_mut().enumerate() {
            let x = if line * WIDTH < row.len() { get(l, row, line * WIDTH) } else { l.splat(0.0) };
            l.store(l.mul(x, l.splat(factor)), &mut to.0);
        }
    }
}

#[inline(always)]
fn losses<L: Lanes>(l: L, logits: &[f32], vocabulary: usize, targets: &[u32], loss: &mut [f32]) {
    for ((row, &target), loss) in logits.chunks_exact(vocabulary).zip(targets).zip(loss) {
        let m = largest(l, row);
        let mut sum = l.splat(0.0);
        let (whole, rest) = row.as_chunks::<WIDTH>();
        for chunk in whole {
            sum = l.add(sum, exp(l, l.sub(l.load(chunk), l.splat(m))));
        }
        if !rest.is_empty() {
            let mut kept = [0.0; WIDTH];
            let kept = &mut kept[..rest.len()];
            l.store_partial(exp(l, l.sub(l.load_partial(rest), l.splat(m))), kept);
            sum = l.add(sum, l.load_partial(kept));
        }
        *loss = loss_of(m, l.sum(sum), row[target as usize]);
    }
}
