//! Causal attention on the device: kernels/device/attention.cu, or what stands for it on AMD (`hip::compile`).

use contract::memory::attention_sums;

use super::driver::Grid;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, expect};
use crate::cpu::AttentionShape;

/// Kernels for one head size.
#[derive(Debug)]
pub struct Attention {
    head_dim: usize,
    forward: (Kernel, Launch),
    backward: Backward,
    delta: Buffer<f32>,
}

/// How gradients are made.
#[derive(Debug)]
enum Backward {
    /// Those of queries, then those of keys and values: two products are made twice.
    Split { queries: (Kernel, Launch), keys: (Kernel, Launch) },
    /// All at once (attention_fused.cu).
    Fused(Fused),
}

#[derive(Debug)]
struct Fused {
    delta: Kernel,
    products: Kernel,
    store: Kernel,
    /// Shared memory of `products`, bytes.
    shared: u32,
    /// The next ticket, and how often each tile of queries has been added to.
    turns: Buffer<u32>,
}

/// Rows of a tile, and keys of a block of `Fused::products`: attention_fused.cu has them, too.
const TILE: usize = 64;
const KEYS: usize = 128;

/// What the source says of a kernel's launch: rows a workgroup takes, its threads, its shared memory in bytes.
#[derive(Debug, Clone, Copy)]
struct Launch {
    rows: usize,
    threads: u32,
    shared: u32,
}

impl Launch {
    fn grid(&self, shape: AttentionShape, heads: usize) -> Grid {
        let groups = [shape.sequence.div_ceil(self.rows) as u32, heads as u32, shape.batch as u32];
        Grid { groups, threads: self.threads, shared: self.shared }
    }
}

impl Attention {
    /// For heads of `head_dim` elements in batches of at most `tokens` tokens with `heads` query heads.
    ///
    /// # Errors
    /// A head size that there is no kernel for, kernels that do not compile, not enough memory.
    pub fn new(gpu: &Gpu, head_dim: usize, heads: usize, tokens: usize) -> Result<Self, GpuError> {
        if !head_dim.is_multiple_of(16) || head_dim == 0 || head_dim > 128 {
            let problem = format!("head_dim is {head_dim}; the GPU's kernels take multiples of 16 up to 128");
            return Err(GpuError::Shape { kernel: "attention", problem });
        }
        let defines = [format!("-DHEAD_DIM={head_dim}")];
        let mut numbers = [0i32; 9];
        gpu.read_constant("attention.cu", &defines, "attention_launch", &mut numbers)?;
        let kernel = |name, number: usize| {
            let [rows, threads, shared] = [0, 1, 2].map(|which| numbers[3 * number + which]);
            let launch = Launch { rows: rows.max(1) as usize, threads: threads as u32, shared: shared as u32 };
            Ok((gpu.kernel("attention.cu", &defines, name)?, launch))
        };
        let backward = if head_dim == 128 && gpu.description().architecture == "sm_90a" {
            Backward::Fused(Fused::new(gpu, tokens * heads)?)
        } else {
            Backward::Split { queries: kernel("attention_backward_q", 1)?, keys: kernel("attention_backward_kv", 2)? }
        };
        Ok(Self { head_dim, forward: kernel("attention_forward", 0)?, backward, delta: gpu.buffer(tokens * heads)? })
    }

    /// Elements that `backward` needs for sums of the queries' gradients.
    pub fn sums(&self, shape: AttentionShape) -> usize {
        match self.backward {
            Backward::Split { .. } => 0,
            Backward::Fused(_) => attention_sums(shape.batch, shape.sequence, shape.heads),
        }
    }

    /// `qkv: [tokens, (heads + 2 kv_heads) head_dim]` with rotated queries and keys, `out: [tokens, heads head_dim]`,
    /// `logsumexp: [batch, heads, sequence]`.
    pub fn forward(
        &self,
        qkv: &Buffer<Bf16>,
        shape: AttentionShape,
        out: &mut Buffer<Bf16>,
        logsumexp: &mut Buffer<f32>,
    ) -> Result<(), GpuError> {
        self.check(shape, &[qkv], &[out], logsumexp)?;
        let sizes = [shape.sequence, shape.heads, shape.kv_heads].map(|size| Argument::new(size as i32));
        let arguments = [
            Argument::new(qkv.address(0)),
            Argument::new(out.address(0)),
            Argument::new(logsumexp.address(0)),
            sizes[0],
            sizes[1],
            sizes[2],
        ];
        // SAFETY: attention_forward(qkv, out, logsumexp, sequence, heads, kv_heads); lengths were checked.
        unsafe { self.forward.0.launch(self.forward.1.grid(shape, shape.heads), arguments) }
    }

    /// `d_qkv`, overwritten, from `d_out`. `sums` has [`Attention::sums`] elements at least, of any value.
    pub fn backward(
        &self,
        qkv: &Buffer<Bf16>,
        shape: AttentionShape,
        out: &Buffer<Bf16>,
        logsumexp: &Buffer<f32>,
        d_out: &Buffer<Bf16>,
        (d_qkv, sums): (&mut Buffer<Bf16>, &Buffer<f32>),
    ) -> Result<(), GpuError> {
        self.check(shape, &[qkv, d_qkv], &[out, d_out], logsumexp)?;
        expect("attention", "delta", shape.batch * shape.heads * shape.sequence, self.delta.length())?;
        expect("attention", "sums", self.sums(shape), sums.length())?;
        let [qkv, out, logsumexp, d_out] = [qkv.address(0), out.address(0), logsumexp.address(0), d_out.address(0)].map(Argument::new);
        let [delta, d_qkv, sums] = [self.delta.address(0), d_qkv.address(0), sums.address(0)].map(Argument::new);
        let [batch, sequence, heads, kv_heads] =
            [shape.batch, shape.sequence, shape.heads, shape.kv_heads].map(|size| Argument::new(size as i32));
        match &self.backward {
            Backward::Split { queries, keys } => {
                let arguments = [qkv, out, d_out, logsumexp, delta, d_qkv, sequence, heads, kv_heads];
                // SAFETY: attention_backward_q(qkv, out, d_out, logsumexp, delta, d_qkv, sequence, heads, kv_heads); lengths were checked.
                unsafe { queries.0.launch(queries.1.grid(shape, shape.heads), arguments)? };
                let arguments = [qkv, d_out, logsumexp, delta, d_qkv, sequence, heads, kv_heads];
                // SAFETY: attention_backward_kv(qkv, d_out, logsumexp, delta, d_qkv, sequence, heads, kv_heads); lengths were checked.
                unsafe { keys.0.launch(keys.1.grid(shape, shape.kv_heads), arguments) }
            }
            Backward::Fused(fused) => {
                let turns = Argument::new(fused.turns.address(0));
                // SAFETY: attention_delta(out, d_out, delta, turns, batch, sequence, heads); lengths were checked, and there are turns for
                // every row that has a delta.
                unsafe { fused.delta.launch(fused.rows(shape), [out, d_out, delta, turns, batch, sequence, heads])? };
                let arguments = [qkv, d_out, logsumexp, delta, sums, turns, d_qkv, batch, sequence, heads, kv_heads];
                // SAFETY: attention_backward(qkv, d_out, logsumexp, delta, d_queries, turns, d_qkv, batch, sequence, heads, kv_heads);
                // lengths were checked.
                unsafe { fused.products.launch(fused.blocks(shape), arguments)? };
                // SAFETY: attention_backward_store(d_queries, d_qkv, sequence, heads, kv_heads); lengths were checked.
                unsafe { fused.store.launch(fused.halves(shape), [sums, d_qkv, sequence, heads, kv_heads]) }
            }
        }
    }

    fn check(
        &self,
        shape: AttentionShape,
        fused: &[&Buffer<Bf16>],
        outs: &[&Buffer<Bf16>],
        logsumexp: &Buffer<f32>,
    ) -> Result<(), GpuError> {
        let tokens = shape.batch * shape.sequence;
        if shape.head_dim != self.head_dim || shape.kv_heads == 0 || !shape.heads.is_multiple_of(shape.kv_heads) {
            let problem = format!("{shape:?} for kernels of head_dim {}", self.head_dim);
            return Err(GpuError::Shape { kernel: "attention", problem });
        }
        for buffer in fused {
            expect("attention", "a fused buffer", tokens * shape.qkv_width(), buffer.length())?;
        }
        for buffer in outs {
            expect("attention", "an output", tokens * shape.out_width(), buffer.length())?;
        }
        expect("attention", "logsumexp", tokens * shape.heads, logsumexp.length())
    }
}

impl Fused {
    /// For so many rows, each one token of one head.
    fn new(gpu: &Gpu, rows: usize) -> Result<Self, GpuError> {
        let mut shared = [0i32];
        gpu.read_constant("attention_fused.cu", &[], "attention_fused_shared", &mut shared)?;
        let kernel = |name| gpu.kernel("attention_fused.cu", &[], name);
        Ok(Self {
            delta: kernel("attention_delta")?,
            products: kernel("attention_backward")?,
            store: kernel("attention_backward_store")?,
            shared: shared[0] as u32,
            turns: gpu.buffer(rows + 1)?,
        })
    }

    /// Sixteen threads a row.
    fn rows(&self, shape: AttentionShape) -> Grid {
        let rows = shape.batch * shape.sequence * shape.heads;
        Grid { groups: [rows.div_ceil(16) as u32, 1, 1], threads: 256, shared: 0 }
    }

    fn blocks(&self, shape: AttentionShape) -> Grid {
        let blocks = shape.sequence.div_ceil(KEYS) * shape.kv_heads * shape.batch;
        Grid { groups: [blocks as u32, 1, 1], threads: 384, shared: self.shared }
    }

    /// A tile's columns in two halves.
    fn halves(&self, shape: AttentionShape) -> Grid {
        let halves = 2 * shape.sequence.div_ceil(TILE);
        Grid { groups: [halves as u32, shape.heads as u32, shape.batch as u32], threads: 128, shared: 0 }
    }
}
