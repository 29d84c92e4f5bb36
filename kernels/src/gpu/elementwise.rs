//! Rotary positions, SwiGLU and embedding rows on the device: kernels/device/elementwise.cu.

use super::driver::Grid;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, expect};

/// Columns of the embedding's gradient that a workgroup takes: as in elementwise.cu.
const EMBEDDING_COLUMNS: usize = 512;

/// The kernels, for any sizes whose rows are multiples of eight.
#[derive(Debug)]
pub struct Elementwise {
    rope: Kernel,
    swiglu: Kernel,
    swiglu_backward: Kernel,
    embedding: Kernel,
    embedding_backward: Kernel,
}

/// Where each vocabulary entry occurs in a batch: what makes the sum of its gradients one fixed order.
#[derive(Debug)]
pub struct Occurrences {
    pub(super) order: Buffer<u32>,
    pub(super) starts: Buffer<u32>,
}

impl Occurrences {
    /// Room for batches of `tokens` out of `vocabulary`.
    pub fn new(gpu: &Gpu, tokens: usize, vocabulary: usize) -> Result<Self, GpuError> {
        Ok(Self { order: gpu.buffer(tokens)?, starts: gpu.buffer(vocabulary + 1)? })
    }

    /// Sorts the positions of `tokens` by what stands there (a counting sort, so ascending within an entry).
    ///
    /// # Errors
    /// A token outside the vocabulary, more tokens than there is room for, or the driver's.
    pub fn fill(&mut self, tokens: &[u32]) -> Result<(), GpuError> {
        let vocabulary = self.starts.length() - 1;
        let mut starts = vec![0u32; vocabulary + 1];
        for &token in tokens {
            let Some(count) = starts.get_mut(token as usize + 1) else {
                return Err(GpuError::Shape { kernel: "embedding", problem: format!("token {token} of a vocabulary of {vocabulary}") });
            };
            *count += 1;
        }
        for entry in 1..starts.len() {
            starts[entry] += starts[entry - 1];
        }
        let (mut next, mut order) = (starts.clone(), vec![0u32; tokens.len()]);
        for (position, &token) in tokens.iter().enumerate() {
            let place = &mut next[token as usize];
            order[*place as usize] = position as u32;
            *place += 1;
        }
        self.starts.write(0, &starts)?;
        self.order.write(0, &order)
    }
}

pub(super) fn multiple_of_eight(kernel: &'static str, what: &str, size: usize) -> Result<(), GpuError> {
    if size.is_multiple_of(8) { Ok(()) } else { Err(GpuError::Shape { kernel, problem: format!("{what} is {size}, not a multiple of 8") }) }
}

/// Workgroups of 256 threads for so many fragments of eight.
fn grid(elements: usize) -> Grid {
    Grid::row((elements / 8).div_ceil(256), 256)
}

impl Elementwise {
    /// Compiles or finds the kernels.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let kernel = |name| gpu.kernel("elementwise.cu", &[], name);
        Ok(Self {
            rope: kernel("rope")?,
            swiglu: kernel("swiglu")?,
            swiglu_backward: kernel("swiglu_backward")?,
            embedding: kernel("embedding")?,
            embedding_backward: kernel("embedding_backward")?,
        })
    }

    /// As `Cpu::rope`: in place on the first `heads` heads of `x: [tokens, width]`; `cosine, sine: [positions, head_dim / 2]`.
    #[allow(clippy::too_many_arguments)] // the layout of a fused buffer
    pub fn rope(
        &self,
        x: &mut Buffer<Bf16>,
        tokens: usize,
        (width, heads, head_dim, sequence): (usize, usize, usize, usize),
        cosine: &Buffer<f32>,
        sine: &Buffer<f32>,
        backward: bool,
    ) -> Result<(), GpuError> {
        multiple_of_eight("rope", "half of the head size", head_dim / 2)?;
        multiple_of_eight("rope", "the row", width)?;
        expect("rope", "x", tokens * width, x.length())?;
        expect("rope", "a row", heads * head_dim, width)?;
        expect("rope", "the table", sequence * head_dim / 2, cosine.length().min(sine.length()))?;
        let arguments = [
            Argument::new(x.address(0)),
            Argument::new(tokens as i32),
            Argument::new(width as i32),
            Argument::new(heads as i32),
            Argument::new((head_dim / 2) as i32),
            Argument::new(sequence as i32),
            Argument::new(cosine.address(0)),
            Argument::new(sine.address(0)),
            Argument::new(if backward { -1.0f32 } else { 1.0 }),
        ];
        // SAFETY: rope(x, tokens, width, heads, half, sequence, cosine, sine, sign); lengths were checked.
        unsafe { self.rope.launch(grid(tokens * heads * head_dim / 2), arguments) }
    }

    /// `gate_up: [tokens, 2 width]`, `hidden: [tokens, width]`.
    pub fn swiglu(&self, gate_up: &Buffer<Bf16>, hidden: &mut Buffer<Bf16>, tokens: usize, width: usize) -> Result<(), GpuError> {
        multiple_of_eight("swiglu", "the width", width)?;
        expect("swiglu", "gate_up", 2 * tokens * width, gate_up.length())?;
        expect("swiglu", "hidden", tokens * width, hidden.length())?;
        let arguments = [
            Argument::new(gate_up.address(0)),
            Argument::new(hidden.address(0)),
            Argument::new(tokens as i32),
            Argument::new(width as i32),
        ];
        // SAFETY: swiglu(gate_up, hidden, tokens, width); lengths were checked.
        unsafe { self.swiglu.launch(grid(tokens * width), arguments) }
    }

    /// The gradient of `gate_up` from that of `hidden`; `d_gate_up` may lie over `gate_up`. With `hidden`, what [`Elementwise::swiglu`] makes
    /// as well; it may lie over `d_hidden`.
    pub fn swiglu_backward(
        &self,
        gate_up: &Buffer<Bf16>,
        d_hidden: &Buffer<Bf16>,
        d_gate_up: &mut Buffer<Bf16>,
        hidden: Option<&Buffer<Bf16>>,
        tokens: usize,
        width: usize,
    ) -> Result<(), GpuError> {
        multiple_of_eight("swiglu_backward", "the width", width)?;
        expect("swiglu_backward", "gate_up", 2 * tokens * width, gate_up.length().min(d_gate_up.length()))?;
        expect("swiglu_backward", "d_hidden", tokens * width, d_hidden.length())?;
        expect("swiglu_backward", "hidden", tokens * width, hidden.map_or(tokens * width, Buffer::length))?;
        let arguments = [
            Argument::new(gate_up.address(0)),
            Argument::new(d_hidden.address(0)),
            Argument::new(d_gate_up.address(0)),
            Argument::new(hidden.map_or(0, |hidden| hidden.address(0))),
            Argument::new(tokens as i32),
            Argument::new(width as i32),
        ];
        // SAFETY: swiglu_backward(gate_up, d_hidden, d_gate_up, hidden, tokens, width); lengths were checked.
        unsafe { self.swiglu_backward.launch(grid(tokens * width), arguments) }
    }

    /// `out[t]` = row `tokens[t]` of the table at `table.1` of the parameters. The tokens were checked against the vocabulary.
    pub fn embedding(
        &self,
        table: (&Buffer<f32>, usize),
        tokens: &Buffer<u32>,
        out: &mut Buffer<Bf16>,
        count: usize,
        width: usize,
    ) -> Result<(), GpuError> {
        multiple_of_eight("embedding", "the width", width)?;
        expect("embedding", "tokens", count, tokens.length())?;
        expect("embedding", "out", count * width, out.length())?;
        let arguments = [
            Argument::new(table.0.address(table.1)),
            Argument::new(tokens.address(0)),
            Argument::new(out.address(0)),
            Argument::new(count as i32),
            Argument::new(width as i32),
        ];
        // SAFETY: embedding(table, tokens, out, count, width); `Batch::fill` refuses tokens outside the vocabulary, lengths were checked.
        unsafe { self.embedding.launch(grid(count * width), arguments) }
    }

    /// The table's gradient, overwritten, from that of its rows in a batch.
    pub fn embedding_backward(
        &self,
        gradient: &Buffer<Bf16>,
        occurrences: &Occurrences,
        d_table: (&mut Buffer<f32>, usize),
        width: usize,
    ) -> Result<(), GpuError> {
        let vocabulary = occurrences.starts.length() - 1;
        multiple_of_eight("embedding_backward", "the width", width)?;
        // It writes sixteen bytes at a time.
        multiple_of_eight("embedding_backward", "the place of the gradients", d_table.1)?;
        expect("embedding_backward", "the gradients", d_table.1 + vocabulary * width, d_table.0.length())?;
        expect("embedding_backward", "the rows", occurrences.order.length() * width, gradient.length())?;
        let arguments = [
            Argument::new(gradient.address(0)),
            Argument::new(occurrences.order.address(0)),
            Argument::new(occurrences.starts.address(0)),
            Argument::new(d_table.0.address(d_table.1)),
            Argument::new(width as i32),
        ];
        let grid = Grid { groups: [vocabulary as u32, width.div_ceil(EMBEDDING_COLUMNS) as u32, 1], threads: 256, shared: 0 };
        // SAFETY: embedding_backward(gradient, order, starts, d_table, width); positions are below the number of rows (`fill`).
        unsafe { self.embedding_backward.launch(grid, arguments) }
    }
}
