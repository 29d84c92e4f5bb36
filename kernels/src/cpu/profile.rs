//! Where time goes: seconds, calls and work of each kind of kernel, gathered while a [`super::Cpu`] is asked to.
//!
//! Off, it costs one comparison a call. It says nothing about results.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kinds of kernels, in the order in which a training step meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Table look-up, and its gradient.
    Embedding,
    /// RMSNorm forward and backward.
    Norm,
    /// An F32 source to E2M1 panels; work counts elements.
    QuantiseMxfp4,
    /// An F32 source to FP8, BF16 or F32 panels; work counts elements.
    PrepareFloat,
    /// Exact integer products; work counts operations, two a multiply-add.
    GemmMxfp4,
    /// F32 products of prepared operands; work as above.
    GemmFloat,
    /// F32 products of plain matrices (the head), packing included; work as above.
    GemmF32,
    /// Rotary positions.
    Rope,
    /// Attention forward.
    Attention,
    /// Attention backward.
    AttentionBackward,
    /// SwiGLU forward and backward.
    Swiglu,
    /// Softmax cross-entropy and its gradient.
    Loss,
    /// Sums, copies and the gradient's norm.
    Elementwise,
    /// AdamW.
    Optimizer,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Embedding,
        Self::Norm,
        Self::QuantiseMxfp4,
        Self::PrepareFloat,
        Self::GemmMxfp4,
        Self::GemmFloat,
        Self::GemmF32,
        Self::Rope,
        Self::Attention,
        Self::AttentionBackward,
        Self::Swiglu,
        Self::Loss,
        Self::Elementwise,
        Self::Optimizer,
    ];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::QuantiseMxfp4 => "quantise-mxfp4",
            Self::PrepareFloat => "prepare-float",
            Self::GemmMxfp4 => "gemm-mxfp4",
            Self::GemmFloat => "gemm-float",
            Self::GemmF32 => "gemm-f32",
            Self::Rope => "rope",
            Self::Attention => "attention",
            Self::AttentionBackward => "attention-backward",
            Self::Swiglu => "swiglu",
            Self::Loss => "loss",
            Self::Elementwise => "elementwise",
            Self::Optimizer => "optimizer",
        }
    }
}

/// What one kind of kernel took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Seconds of the calling thread, which waits for all others.
    pub time: Duration,
    /// Number of calls.
    pub calls: u64,
    /// Operations or elements, where the kind counts them.
    pub work: u64,
}

/// Gathered times; see [`super::Cpu::with_profile`].
#[derive(Debug, Default)]
pub struct Profile(Mutex<[Spent; Kernel::ALL.len()]>);

impl Profile {
    /// What was gathered since the last call, by kind in the order of [`Kernel::ALL`].
    pub fn take(&self) -> Vec<(Kernel, Spent)> {
        let spent = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Kernel::ALL.into_iter().zip(spent).collect()
    }
}

/// Adds to a profile when it goes out of scope.
#[derive(Debug)]
pub(super) struct Timer {
    to: Option<(Arc<Profile>, Instant)>,
    kernel: Kernel,
    work: usize,
}

impl Timer {
    pub(super) fn start(profile: Option<&Arc<Profile>>, kernel: Kernel, work: usize) -> Self {
        Self { to: profile.map(|profile| (profile.clone(), Instant::now())), kernel, work }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some((profile, started)) = &self.to else { return };
        let elapsed = started.elapsed();
        let mut spent = profile.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spent) = spent.get_mut(self.kernel as usize) {
            spent.time += elapsed;
            spent.calls += 1;
            spent.work += self.work as u64;
        }
    }
}
