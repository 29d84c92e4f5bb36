//! Everything a training step computes on a CPU: operand preparation, GEMMs, attention, norms, loss, optimizer.
//!
//! [`Cpu`] is the only door. It holds an instruction set and a number of threads, and **neither changes a bit of any
//! result**: every output element has one defined sequence of operations (written at each method), compiled for each
//! instruction set from one source (`lanes`), and work is split over threads only between output elements or at fixed chunk borders.
//! The two exceptions to "same bits" are the payload and sign of a NaN; GEMMs write the canonical NaN.
//!
//! Conventions. Matrices are dense and row-major, `x: [tokens, width]`; a method checks every length against the shape and
//! returns [`ShapeError`] instead of panicking, before writing anything. Backward methods take what forward saved.
//! Gradients of parameters (`d_gain`, `d_table`) are **added to**; other outputs are overwritten unless a parameter says
//! otherwise. What belongs to a format (rounding, scales) is in `crate::quantise`; model structure is the trainer's.

mod attention;
mod elementwise;
mod gemm;
mod head;
mod lanes;
mod loss;
mod math;
mod norm;
mod optimizer;
mod panels;
mod pieces;
mod prepare;
mod product;
mod profile;
mod rope;

pub use attention::AttentionShape;
pub use elementwise::SQUARES_CHUNK;
pub use gemm::Matrix;
pub use optimizer::AdamW;
pub use panels::{Panels, Side};
pub use prepare::Role;
pub use product::{ProductError, Unprepared};
pub use profile::{Kernel, Profile, Spent};
pub use rope::RopeTable;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// Which instructions the kernels are compiled to. All of them give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstructionSet {
    /// Plain Rust. On x86-64 a fused multiply-add is a call: of the instruction where there is one, otherwise of a routine: the same bits, many
    /// times slower.
    Scalar,
    /// AVX2 and FMA (x86-64-v3).
    Avx2,
    /// As AVX2, with the 256-bit integer dot product (AVX-VNNI).
    AvxVnni,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
    /// As AVX-512, with the dot product of BF16 pairs (AVX512_BF16).
    Avx512Bf16,
    /// As AVX-512, with matrix tiles of BF16 (AMX-BF16).
    Amx,
    /// NEON, which every 64-bit Arm processor has.
    Neon,
    /// As NEON, with the integer dot product (DotProd).
    NeonDot,
}

impl InstructionSet {
    /// All of them, slowest first.
    pub const ALL: [Self; 8] =
        [Self::Scalar, Self::Avx2, Self::AvxVnni, Self::Avx512, Self::Avx512Bf16, Self::Amx, Self::Neon, Self::NeonDot];

    /// The fastest that this machine has.
    pub fn detect() -> Self {
        Self::ALL.into_iter().rev().find(|set| set.is_supported() && set.pays()).unwrap_or(Self::Scalar)
    }

    /// Whether it is the faster for what it adds. VDPBF16PS does twice the multiply-adds of an F32 instruction on AMD (Zen 4: 234 and 117
    /// GFLOP/s a core), half of them on Intel (a Xeon with AVX-512: 86 and 176).
    fn pays(self) -> bool {
        self != Self::Avx512Bf16 || is_amd()
    }

    /// Whether this machine has it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => std::arch::is_x86_feature_detected!("avxvnni") && Self::Avx2.is_supported(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512vnni")
                    && Self::Avx2.is_supported()
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => std::arch::is_x86_feature_detected!("avx512bf16") && Self::Avx512.is_supported(),
            Self::Amx => gemm::Tiles::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::AvxVnni | Self::Avx512 | Self::Avx512Bf16 => false,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod") && Self::Neon.is_supported(),
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon | Self::NeonDot => false,
        }
    }

    /// `auto` or one of [`InstructionSet::ALL`] as it is displayed; an error names what this machine has.
    pub fn parse(name: &str) -> Result<Self, CpuError> {
        if name == "auto" {
            return Ok(Self::detect());
        }
        let Some(set) = Self::ALL.into_iter().find(|set| set.to_string() == name) else {
            return Err(CpuError::UnknownInstructionSet { name: name.to_owned() });
        };
        if set.is_supported() { Ok(set) } else { Err(CpuError::NotSupported { wanted: set, best: Self::detect() }) }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Amx => "amx",
            Self::Neon => "neon",
            Self::NeonDot => "neon-dot",
        })
    }
}

impl FromStr for InstructionSet {
    type Err = CpuError;
    fn from_str(name: &str) -> Result<Self, CpuError> {
        Self::parse(name)
    }
}

fn is_amd() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Why a [`Cpu`] could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// Not one of the words.
    #[error("unknown instruction set '{name}': use auto, scalar, avx2, avx-vnni, avx512, avx512-bf16, amx, neon or neon-dot")]
    UnknownInstructionSet {
        /// As written by the user.
        name: String,
    },
    #[error("this processor does not have {wanted}; the best it has is {best} (results are the same bits): use auto or {best}")]
    NotSupported {
        wanted: InstructionSet,
        /// The fastest this machine has.
        best: InstructionSet,
    },
    /// Zero threads.
    #[error("0 threads cannot compute anything: use 1 or more")]
    NoThreads,
    /// The operating system refused the threads.
    #[error("could not start {threads} threads: {source}; use fewer")]
    ThreadPool {
        /// How many were asked for.
        threads: usize,
        source: rayon::ThreadPoolBuildError,
    },
}

/// Arguments of a kernel whose lengths do not fit together. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {problem}")]
pub struct ShapeError {
    pub kernel: &'static str,
    /// Which argument, what it should have been, what it was.
    pub problem: String,
}

/// Err unless `found == wanted`.
fn expect(kernel: &'static str, argument: &str, wanted: usize, found: usize) -> Result<(), ShapeError> {
    if wanted == found {
        return Ok(());
    }
    Err(ShapeError { kernel, problem: format!("{argument} has {found} elements where the other shapes ask for {wanted}") })
}

/// Memory that one call or task borrows; what is in it means nothing between calls.
#[derive(Debug, Default)]
struct Scratch {
    left: Panels,
    right: Panels,
    /// A side that several threads read.
    whole: Panels,
    attention: attention::Buffers,
    partial: Vec<f32>,
    sums: Vec<f64>,
    head: Panels,
    head_turned: Panels,
    logits: Vec<f32>,
    chunk: Vec<f32>,
}

/// Works with one of the shelf's, or a new one, and puts it there afterwards: after as many as work at once, nothing is allocated.
fn borrowed<T: Default, R>(shelf: &Mutex<Vec<T>>, work: impl FnOnce(&mut T) -> R) -> R {
    let shelf = || shelf.lock().unwrap_or_else(PoisonError::into_inner);
    let mut one = shelf().pop().unwrap_or_default();
    let result = work(&mut one);
    shelf().push(one);
    result
}

/// The first `length` elements of `buffer`, grown if need be; contents unspecified.
fn room<T: Copy + Default>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    if buffer.len() < length {
        buffer.resize(length, T::default());
    }
    &mut buffer[..length]
}

/// A processor: one instruction set, a number of threads. Cheap to clone; the threads are shared.
#[derive(Clone)]
pub struct Cpu {
    instruction_set: InstructionSet,
    threads: usize,
    pool: Option<Arc<rayon::ThreadPool>>,
    /// Memory that is borrowed and given back, so that a step allocates nothing once it has been done.
    shelf: Arc<Mutex<Vec<Scratch>>>,
    copies: Arc<Mutex<Vec<gemm::Copies>>>,
    profile: Option<Arc<Profile>>,
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpu").field("instruction_set", &self.instruction_set).field("threads", &self.threads).finish()
    }
}

impl Cpu {
    /// Starts the threads; with one, everything runs in the caller's thread.
    ///
    /// # Errors
    /// Zero threads, an instruction set this machine lacks, or threads the system does not grant.
    pub fn new(instruction_set: InstructionSet, threads: usize) -> Result<Self, CpuError> {
        if !instruction_set.is_supported() {
            return Err(CpuError::NotSupported { wanted: instruction_set, best: InstructionSet::detect() });
        }
        let pool = match threads {
            0 => return Err(CpuError::NoThreads),
            1 => None,
            _ => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                Some(Arc::new(pool.map_err(|source| CpuError::ThreadPool { threads, source })?))
            }
        };
        Ok(Self { instruction_set, threads, pool, shelf: Arc::default(), copies: Arc::default(), profile: None })
    }

    /// The same processor, which from now on adds the time of every kernel to `profile`.
    pub fn with_profile(&self, profile: Arc<Profile>) -> Self {
        Self { profile: Some(profile), ..self.clone() }
    }

    pub fn instruction_set(&self) -> InstructionSet {
        self.instruction_set
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on one of the threads. Kernels called there start sooner than from outside, where each has to wake a thread.
    pub fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            None => work(),
            Some(pool) => pool.install(work),
        }
    }

    /// Lanes that multiply pairs of BF16, where operands are prepared for those.
    fn pair_lanes(&self) -> Option<lanes::PairLanes> {
        #[cfg(target_arch = "x86_64")]
        if self.instruction_set == InstructionSet::Avx512Bf16 {
            // SAFETY: `Cpu::new` refuses an instruction set that the machine lacks.
            return Some(unsafe { lanes::PairLanes::new() });
        }
        None
    }

    /// Matrix tiles, and lanes for what they do not do, where E2M1 operands are prepared for those.
    fn tiles(&self) -> Option<(lanes::TileLanes, gemm::Tiles)> {
        #[cfg(target_arch = "x86_64")]
        if self.instruction_set == InstructionSet::Amx {
            // SAFETY: `Cpu::new` refuses an instruction set that the machine lacks; where there are tiles, there is AVX-512.
            return gemm::Tiles::detect().map(|tiles| (unsafe { lanes::TileLanes::new() }, tiles));
        }
        None
    }

    fn timer(&self, kernel: Kernel, work: usize) -> profile::Timer {
        profile::Timer::start(self.profile.as_ref(), kernel, work)
    }

    fn with_scratch<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        borrowed(&self.shelf, work)
    }

    /// Does every task once, in any order, on any thread. The tasks must not depend on their number's being `threads`.
    ///
    /// Threads draw from one iterator; none waits for a thread that sleeps, and nothing is allocated.
    fn each<T: Send>(&self, mut tasks: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
        let Some(pool) = &self.pool else { return tasks.for_each(work) };
        // One task needs no other thread.
        let Some(first) = tasks.next() else { return };
        let Some(second) = tasks.next() else { return work(first) };
        let tasks = Mutex::new([first, second].into_iter().chain(tasks));
        let draw = || loop {
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
            match task {
                Some(task) => work(task),
                None => return,
            }
        };
        everywhere(pool, self.threads, &draw);
    }
}

/// Calls `work` up to `threads` times at once: as often as there are threads awake to take part. `dyn`, so that rayon's part is compiled
/// once and not for every kind of work.
fn everywhere(pool: &rayon::ThreadPool, threads: usize, work: &(dyn Fn() + Sync)) {
    fn halves(threads: usize, work: &(dyn Fn() + Sync)) {
        if threads <= 1 {
            return work();
        }
        rayon::join(|| halves(threads.div_ceil(2), work), || halves(threads / 2, work));
    }
    pool.install(|| halves(threads, work));
}

/// `dispatch!(cpu, |lanes| expression)`: the expression compiled for the instruction set of `cpu`, `lanes` being its [`lanes::Lanes`].
///
/// `dispatch!(dot cpu, ...)` also where integer dot products are most of the work. Elsewhere a set that adds only those is not compiled for:
/// a quarter of the code, and of the time that a compiler takes.
macro_rules! dispatch {
    (dot $cpu:expr, |$lanes:ident| $body:expr) => {
        $crate::cpu::dispatch!(@ $cpu, $lanes, $body,
            "x86_64" Avx512 | Avx512Bf16 | Amx => avx512::Avx512::<false>,
            "x86_64" Avx2 => avx2::Avx2::<false>,
            "x86_64" AvxVnni => avx2::Avx2::<true>,
            "aarch64" Neon => neon::Neon::<false>,
            "aarch64" NeonDot => neon::Neon::<true>)
    };
    ($cpu:expr, |$lanes:ident| $body:expr) => {
        $crate::cpu::dispatch!(@ $cpu, $lanes, $body,
            "x86_64" Avx512 | Avx512Bf16 | Amx => avx512::Avx512::<false>,
            "x86_64" Avx2 | AvxVnni => avx2::Avx2::<false>,
            "aarch64" Neon | NeonDot => neon::Neon::<false>)
    };
    (@ $cpu:expr, $lanes:ident, $body:expr, $($architecture:literal $($set:ident)|+ => $module:ident::$type:ident $(::<$dot:literal>)?),+) => {{
        use $crate::cpu::lanes::Lanes as _;
        match $cpu.instruction_set {
            $(
                #[cfg(target_arch = $architecture)]
                $($crate::cpu::InstructionSet::$set)|+ => {
                    // SAFETY: `Cpu::new` refuses an instruction set that the machine lacks.
                    let $lanes = unsafe { $crate::cpu::lanes::$module::$type$(::<$dot>)?::new() };
                    $lanes.run(
                        #[inline(always)]
                        || $body,
                    )
                }
            )+
            _ => {
                let $lanes = $crate::cpu::lanes::portable::Portable::new();
                $lanes.run(
                    #[inline(always)]
                    || $body,
                )
            }
        }
    }};
}
use dispatch;
