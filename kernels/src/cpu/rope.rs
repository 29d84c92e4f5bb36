//! Rotary position embedding in the half-split form (element i pairs with i + head_dim/2), forward and backward.

use super::lanes::{Lanes, WIDTH, get, put};
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect};

/// Cosines and sines for every position: `[positions, head_dim / 2]`, computed in F64 and rounded once.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    half: usize,
    cosine: Vec<f32>,
    sine: Vec<f32>,
}

impl RopeTable {
    /// Frequencies theta^(-2i/head_dim) radians a position (arXiv 2104.09864). An odd `head_dim` leaves its last element unrotated.
    pub fn new(head_dim: usize, positions: usize, theta: f64) -> Self {
        let frequency = |i: usize| libm::pow(theta, -2.0 * i as f64 / head_dim as f64);
        let frequencies: Vec<f64> = (0..head_dim / 2).map(frequency).collect();
        Self::from_frequencies(&frequencies, positions)
    }

    /// Any frequencies (radians a position), one for each pair: Llama 3.1's stretched ones, for instance.
    pub fn from_frequencies(frequencies: &[f64], positions: usize) -> Self {
        let angles = || (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        Self {
            half: frequencies.len(),
            cosine: angles().map(|angle| libm::cos(angle) as f32).collect(),
            sine: angles().map(|angle| libm::sin(angle) as f32).collect(),
        }
    }

    /// Cosines, `[positions, head_dim / 2]`.
    pub fn cosine(&self) -> &[f32] {
        &self.cosine
    }

    /// Sines, as [`RopeTable::cosine`].
    pub fn sine(&self) -> &[f32] {
        &self.sine
    }

    /// Number of positions in the table.
    pub fn positions(&self) -> usize {
        self.cosine.len().checked_div(self.half).unwrap_or(0)
    }

    /// Err unless it has every position of a sequence, for heads of this size.
    pub(super) fn check(&self, kernel: &'static str, head_dim: usize, sequence: usize) -> Result<(), ShapeError> {
        expect(kernel, "a table row", head_dim / 2, self.half)?;
        if sequence > 0 && self.positions() >= sequence {
            return Ok(());
        }
        Err(ShapeError { kernel, problem: format!("the table has {} positions, the sequence {sequence}", self.positions()) })
    }
}

impl Cpu {
    /// Rotates, in place, the first `heads` heads of every row of `x: [tokens, width]`; token t has position t mod `sequence`.
    /// With the fused buffer q|k|v, `heads` is query heads + key heads. `backward` rotates the other way (the transpose).
    ///
    /// With a, b the halves of a head: a' = fma(a, cos, -(b*sin)), b' = fma(b, cos, a*sin).
    ///
    /// # Errors
    /// Lengths that do not fit, a table with too few positions or of another head size.
    #[allow(clippy::too_many_arguments)] // the layout of a fused buffer
    pub fn rope(
        &self,
        x: &mut [f32],
        width: usize,
        heads: usize,
        head_dim: usize,
        sequence: usize,
        table: &RopeTable,
        backward: bool,
    ) -> Result<(), ShapeError> {
        if x.is_empty() || heads == 0 {
            return Ok(());
        }
        if width == 0 || !x.len().is_multiple_of(width) || heads * head_dim > width {
            let problem = format!("x has {} elements, rows of {width} should hold {heads} heads of {head_dim}", x.len());
            return Err(ShapeError { kernel: "rope", problem });
        }
        table.check("rope", head_dim, sequence)?;
        let _timer = self.timer(Kernel::Rope, 0);
        let sign = if backward { -1.0 } else { 1.0 };
        self.each(x.chunks_mut(sequence * width), |rows| self.turn(rows, width, heads, head_dim, table, sign));
        Ok(())
    }

    /// Rows of one sequence, from its first position on; with `sign` -1 the other way. Compiled once, however many callers it has.
    #[inline(never)]
    pub(super) fn turn(&self, rows: &mut [f32], width: usize, heads: usize, head_dim: usize, table: &RopeTable, sign: f32) {
        dispatch!(self, |l| rotate(l, rows, width, heads, head_dim, table, sign));
    }
}

#[inline(always)]
fn rotate<L: Lanes>(l: L, rows: &mut [f32], width: usize, heads: usize, head_dim: usize, table: &RopeTable, sign: f32) {
    let half = table.half;
    if half == 0 {
        return;
    }
    let angles = table.cosine.chunks_exact(half).zip(table.sine.chunks_exact(half));
    for (row, (cosine, sine)) in rows.chunks_exact_mut(width).zip(angles) {
        for head in row[..heads * head_dim].chunks_exact_mut(head_dim) {
            let (first, second) = head.split_at_mut(half);
            let second = &mut second[..half];
            for at in (0..half).step_by(WIDTH) {
                let (a, b) = (get(l, first, at), get(l, second, at));
                let (c, s) = (get(l, cosine, at), l.mul(get(l, sine, at), l.splat(sign)));
                put(l, l.fma(a, c, l.sub(l.splat(0.0), l.mul(b, s))), first, at);
                put(l, l.fma(b, c, l.mul(a, s)), second, at);
            }
        }
    }
}
