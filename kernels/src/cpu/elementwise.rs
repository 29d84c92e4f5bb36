//! Kernels without reductions along a row: SwiGLU, embedding, adding, scaling; and the squared norm of a gradient.

use super::lanes::{Lanes, WIDTH, get, put};
use super::math::sigmoid;
use super::profile::Kernel;
use super::{Cpu, ShapeError, dispatch, expect, room};

/// Elements a task: large enough to be worth a thread, fixed so that it never depends on the number of threads.
const CHUNK: usize = 1 << 15;
/// Elements whose squares are summed on their own: an array that is cut at multiples of it has the same norm, bit for bit.
pub const SQUARES_CHUNK: usize = CHUNK;

impl Cpu {
    /// SwiGLU (arXiv 2002.05202): `gate_up: [tokens, 2*ffn]` holds gate|up, `y: [tokens, ffn]` = gate * sigmoid(gate) * up.
    pub fn swiglu(&self, gate_up: &[f32], ffn: usize, y: &mut [f32]) -> Result<(), ShapeError> {
        expect("swiglu", "gate_up", 2 * y.len(), gate_up.len())?;
        let _timer = self.timer(Kernel::Swiglu, 0);
        let tokens = rows_of("swiglu", "y", y.len(), ffn)?;
        let rows = rows_a_task(ffn, tokens);
        self.each(gate_up.chunks(2 * ffn * rows).zip(y.chunks_mut(ffn * rows)), |(gate_up, y)| {
            self.swiglu_rows(gate_up, ffn, y);
        });
        Ok(())
    }

    /// [`Cpu::swiglu`] on the caller's thread, shapes already checked.
    pub(super) fn swiglu_rows(&self, gate_up: &[f32], ffn: usize, y: &mut [f32]) {
        dispatch!(self, |l| swiglu(l, gate_up, ffn, y));
    }

    /// [`Cpu::swiglu_backward`] on the caller's thread, shapes already checked.
    pub(super) fn swiglu_backward_rows(&self, gate_up: &[f32], d_y: &[f32], ffn: usize, d_gate_up: &mut [f32]) {
        dispatch!(self, |l| swiglu_backward(l, gate_up, d_y, ffn, d_gate_up));
    }

    /// Gradient of [`Cpu::swiglu`], `d_gate_up: [tokens, 2*ffn]` overwritten.
    ///
    /// With s = sigmoid(gate): d_up = d_y * (gate*s); d_gate = (d_y*up) * (s * fma(gate, 1-s, 1)).
    pub fn swiglu_backward(&self, gate_up: &[f32], d_y: &[f32], ffn: usize, d_gate_up: &mut [f32]) -> Result<(), ShapeError> {
        expect("swiglu_backward", "gate_up", 2 * d_y.len(), gate_up.len())?;
        expect("swiglu_backward", "d_gate_up", 2 * d_y.len(), d_gate_up.len())?;
        let _timer = self.timer(Kernel::Swiglu, 0);
        let rows = rows_a_task(ffn, rows_of("swiglu_backward", "d_y", d_y.len(), ffn)?);
        let tasks = gate_up.chunks(2 * ffn * rows).zip(d_y.chunks(ffn * rows)).zip(d_gate_up.chunks_mut(2 * ffn * rows));
        self.each(tasks, |((gate_up, d_y), d_gate_up)| {
            self.swiglu_backward_rows(gate_up, d_y, ffn, d_gate_up);
        });
        Ok(())
    }

    /// `x` = 0.
    pub fn clear(&self, x: &mut [f32]) {
        x.fill(0.0);
    }

    /// `y[t] = table[tokens[t]]` with `table: [vocabulary, width]`, `y: [tokens, width]`.
    pub fn embedding(&self, table: &[f32], tokens: &[u32], width: usize, y: &mut [f32]) -> Result<(), ShapeError> {
        expect("embedding", "y", tokens.len() * width, y.len())?;
        check_tokens("embedding", tokens, rows_of("embedding", "table", table.len(), width)?)?;
        if y.is_empty() {
            return Ok(());
        }
        let _timer = self.timer(Kernel::Embedding, 0);
        for (&token, y) in tokens.iter().zip(y.chunks_exact_mut(width)) {
            let start = token as usize * width;
            y.copy_from_slice(&table[start..start + width]);
        }
        Ok(())
    }

    /// `d_table[tokens[t]] += d_y[t]` for t in order.
    pub fn embedding_backward(&self, d_y: &[f32], tokens: &[u32], width: usize, d_table: &mut [f32]) -> Result<(), ShapeError> {
        expect("embedding_backward", "d_y", tokens.len() * width, d_y.len())?;
        check_tokens("embedding_backward", tokens, rows_of("embedding_backward", "d_table", d_table.len(), width)?)?;
        if d_y.is_empty() {
            return Ok(());
        }
        let _timer = self.timer(Kernel::Embedding, 0);
        dispatch!(self, |l| for (&token, d_y) in tokens.iter().zip(d_y.chunks_exact(width)) {
            let start = token as usize * width;
            add(l, &mut d_table[start..start + width], d_y);
        });
        Ok(())
    }

    /// `x += y`.
    pub fn add(&self, x: &mut [f32], y: &[f32]) -> Result<(), ShapeError> {
        expect("add", "y", x.len(), y.len())?;
        let _timer = self.timer(Kernel::Elementwise, 0);
        self.each(x.chunks_mut(CHUNK).zip(y.chunks(CHUNK)), |(x, y)| dispatch!(self, |l| add(l, x, y)));
        Ok(())
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        self.each(x.chunks_mut(CHUNK), |x| {
            dispatch!(self, |l| for at in (0..x.len()).step_by(WIDTH) {
                put(l, l.mul(get(l, x, at), l.splat(factor)), x, at);
            });
        });
    }

    /// Sum of squares in F64 (a square of an F32 is exact there): [`Cpu::squared_sums`], added in order.
    pub fn squared_norm(&self, x: &[f32]) -> f64 {
        self.with_scratch(|scratch| {
            let partial = room(&mut scratch.sums, x.len().div_ceil(SQUARES_CHUNK));
            self.squared_sums(x, partial);
            partial.iter().sum()
        })
    }

    /// Sum of squares of each [`SQUARES_CHUNK`] elements (the last may have fewer), in sixteen lanes and the fixed tree; as many as `sums`.
    pub fn squared_sums(&self, x: &[f32], sums: &mut [f64]) {
        let _timer = self.timer(Kernel::Elementwise, 0);
        self.each(x.chunks(SQUARES_CHUNK).zip(sums.iter_mut()), |(x, sum)| *sum = dispatch!(self, |_l| squared_norm(_l, x)));
    }
}

/// How many rows of `width` there are in `length` elements.
fn rows_of(kernel: &'static str, argument: &str, length: usize, width: usize) -> Result<usize, ShapeError> {
    match length.checked_rem(width) {
        Some(0) => Ok(length / width),
        _ => Err(ShapeError { kernel, problem: format!("{argument} has {length} elements, which are not whole rows of {width}") }),
    }
}

fn rows_a_task(width: usize, rows: usize) -> usize {
    (CHUNK / width).clamp(1, rows.max(1))
}

fn check_tokens(kernel: &'static str, tokens: &[u32], vocabulary: usize) -> Result<(), ShapeError> {
    match tokens.iter().position(|&token| token as usize >= vocabulary) {
        None => Ok(()),
        Some(at) => {
            Err(ShapeError { kernel, problem: format!("token {} at position {at} is outside the vocabulary of {vocabulary}", tokens[at]) })
        }
    }
}

#[inline(always)]
fn add<L: Lanes>(l: L, x: &mut [f32], y: &[f32]) {
    for at in (0..x.len()).step_by(WIDTH) {
        put(l, l.add(get(l, x, at), get(l, y, at)), x, at);
    }
}

#[inline(always)]
fn swiglu<L: Lanes>(l: L, gate_up: &[f32], ffn: usize, y: &mut [f32]) {
    for (gate_up, y) in gate_up.chunks_exact(2 * ffn).zip(y.chunks_exact_mut(ffn)) {
        let (gate, up) = gate_up.split_at(ffn);
        for at in (0..ffn).step_by(WIDTH) {
            let g = get(l, gate, at);
            put(l, l.mul(l.mul(g, sigmoid(l, g)), get(l, up, at)), y, at);
        }
    }
}

#[inline(always)]
fn swiglu_backward<L: Lanes>(l: L, gate_up: &[f32], d_y: &[f32], ffn: usize, d_gate_up: &mut [f32]) {
    let rows = gate_up.chunks_exact(2 * ffn).zip(d_y.chunks_exact(ffn)).zip(d_gate_up.chunks_exact_mut(2 * ffn));
    for ((gate_up, d_y), d_gate_up) in rows {
        let (gate, up) = gate_up.split_at(ffn);
        let (d_gate, d_up) = d_gate_up.split_at_mut(ffn);
        for at in (0..ffn).step_by(WIDTH) {
            let (g, u, d) = (get(l, gate, at), get(l, up, at), get(l, d_y, at));
            let s = sigmoid(l, g);
            let slope = l.mul(s, l.fma(g, l.sub(l.splat(1.0), s), l.splat(1.0)));
            put(l, l.mul(d, l.mul(g, s)), d_up, at);
            put(l, l.mul(l.mul(d, u), slope), d_gate, at);
        }
    }
}

#[inline(always)]
fn squared_norm<L: Lanes>(_l: L, x: &[f32]) -> f64 {
    let mut lanes = [0.0f64; WIDTH];
    let (whole, rest) = x.as_chunks::<WIDTH>();
    for chunk in whole {
        for i in 0..WIDTH {
            lanes[i] += f64::from(chunk[i]) * f64::from(chunk[i]);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(v) * f64::from(v);
    }
    let mut width = WIDTH / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}
