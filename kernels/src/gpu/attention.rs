//! Causal attention on the device: kernels/device/attention.cu, or what stands for it on AMD (`hip::compile`).

use super::driver::Grid;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, expect};
use crate::cpu::AttentionShape;

/// Kernels for one head size.
#[derive(Debug)]
pub struct Attention {
    head_dim: usize,
    forward: (Kernel, Launch),
    backward_queries: (Kernel, Launch),
    backward_keys: (Kernel, Launch),
    delta: Buffer<f32>,
}

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
        Ok(Self {
            head_dim,
            forward: kernel("attention_forward", 0)?,
            backward_queries: kernel("attention_backward_q", 1)?,
            backward_keys: kernel("attention_backward_kv", 2)?,
            delta: gpu.buffer(tokens * heads)?,
        })
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

    /// `d_qkv`, overwritten, from `d_out`.
    pub fn backward(
        &self,
        qkv: &Buffer<Bf16>,
        shape: AttentionShape,
        out: &Buffer<Bf16>,
        logsumexp: &Buffer<f32>,
        d_out: &Buffer<Bf16>,
        d_qkv: &mut Buffer<Bf16>,
    ) -> Result<(), GpuError> {
        self.check(shape, &[qkv, d_qkv], &[out, d_out], logsumexp)?;
        expect("attention", "delta", shape.batch * shape.heads * shape.sequence, self.delta.length())?;
        let sizes = [shape.sequence, shape.heads, shape.kv_heads].map(|size| Argument::new(size as i32));
        let arguments = [
            Argument::new(qkv.address(0)),
            Argument::new(out.address(0)),
            Argument::new(d_out.address(0)),
            Argument::new(logsumexp.address(0)),
            Argument::new(self.delta.address(0)),
            Argument::new(d_qkv.address(0)),
            sizes[0],
            sizes[1],
            sizes[2],
        ];
        // SAFETY: attention_backward_q(qkv, out, d_out, logsumexp, delta, d_qkv, sequence, heads, kv_heads); lengths were checked.
        unsafe { self.backward_queries.0.launch(self.backward_queries.1.grid(shape, shape.heads), arguments)? };
        let arguments = [
            Argument::new(qkv.address(0)),
            Argument::new(d_out.address(0)),
            Argument::new(logsumexp.address(0)),
            Argument::new(self.delta.address(0)),
            Argument::new(d_qkv.address(0)),
            sizes[0],
            sizes[1],
            sizes[2],
        ];
        // SAFETY: attention_backward_kv(qkv, d_out, logsumexp, delta, d_qkv, sequence, heads, kv_heads); lengths were checked.
        unsafe { self.backward_keys.0.launch(self.backward_keys.1.grid(shape, shape.kv_heads), arguments) }
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
