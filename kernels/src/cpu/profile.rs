//! Where time goes: seconds, calls and work of each kind of kernel, gathered while a [`super::Cpu`] is asked to.
//!
//! Off, it costs one comparison a call. It says nothing about results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kinds of kernels, in the order in which a training step meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Table look-up, and its gradient.
    Embedding,
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
    Rope,
    Attention,
    AttentionBackward,
    Swiglu,
    /// Softmax cross-entropy and its gradient.
    Loss,
    /// Sums, copies and the gradient's norm.
    Elementwise,
    Optimizer,
}

impl Kernel {
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

    fn add(&self, kernel: Kernel, time: Duration, work: usize) {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spent) = spent.get_mut(kernel as usize) {
            spent.time += time;
            spent.calls += 1;
            spent.work += work as u64;
        }
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
        profile.add(self.kernel, started.elapsed(), self.work);
    }
}

/// Shares out the time of one call that does several kinds of work chunk by chunk, by what each took on all threads together.
#[derive(Debug)]
pub(super) struct Shares<const KINDS: usize> {
    to: Option<(Arc<Profile>, Instant)>,
    kinds: [(Kernel, usize); KINDS],
    nanoseconds: [AtomicU64; KINDS],
}

impl<const KINDS: usize> Shares<KINDS> {
    /// `kinds`: what is done, and how much work that is.
    pub(super) fn start(profile: Option<&Arc<Profile>>, kinds: [(Kernel, usize); KINDS]) -> Self {
        let nanoseconds = std::array::from_fn(|_| AtomicU64::new(0));
        Self { to: profile.map(|profile| (profile.clone(), Instant::now())), kinds, nanoseconds }
    }

    /// Does `work`, which is of kind `kind`.
    #[inline(always)]
    pub(super) fn time<R>(&self, kind: usize, work: impl FnOnce() -> R) -> R {
        if self.to.is_none() {
            return work();
        }
        let started = Instant::now();
        let result = work();
        self.nanoseconds[kind].fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl<const KINDS: usize> Drop for Shares<KINDS> {
    fn drop(&mut self) {
        let Some((profile, started)) = &self.to else { return };
        let elapsed = started.elapsed();
        let spent: [f64; KINDS] = std::array::from_fn(|kind| self.nanoseconds[kind].load(Ordering::Relaxed) as f64);
        let total: f64 = spent.iter().sum::<f64>().max(1.0);
        for (&(kernel, work), spent) in self.kinds.iter().zip(spent) {
            profile.add(kernel, elapsed.mul_f64(spent / total), work);
        }
    }
}
