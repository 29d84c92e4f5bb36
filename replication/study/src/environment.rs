//! `env.json`: the machine, the compiler, the source tree and the flags behind a result directory.
//!
//! Published with the results, so nothing in it names a host, a user or a folder. It explains times; no verdict reads it. Types only:
//! who asks the machine is the campaign's business.

use contract::device::GpuFacts;
use serde::{Deserialize, Serialize};

use crate::machine;

/// Schema of `env.json`.
pub const SCHEMA: &str = "mxfp4-env/1";

/// The content of `env.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// `mxfp4-env/1`.
    pub schema: String,
    /// When it was captured, after all runs and measurements: RFC 3339, UTC, whole seconds.
    pub captured: String,
    pub cpu: Cpu,
    pub memory: Memory,
    pub system: System,
    pub toolchain: Toolchain,
    pub source: Source,
    /// How runs were carried out.
    pub flags: Flags,
    /// Libraries of accelerators that were loaded, with versions; none on a CPU.
    pub device_libraries: Vec<String>,
    /// The accelerators that runs were spread over when this directory was put together; none on a CPU. What a run itself saw is in its
    /// timing.jsonl.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<GpuFacts>,
    /// The trainer, where it was not built by this campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prebuilt_trainer: Option<PrebuiltTrainer>,
    /// The machine's name, where it was given; otherwise it follows from processor or GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
}

/// A trainer that was built elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrebuiltTrainer {
    /// SHA-256 of the program.
    pub sha256: Option<String>,
    /// The sources that it says it was built from.
    pub trainer_code: String,
    /// The compiler that it says it was built with.
    pub toolchain: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Its name as it gives it itself.
    pub model: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Hardware threads the campaign could use.
    pub logical_cores: usize,
    /// Instruction sets beyond the base.
    pub instruction_sets: Vec<String>,
}

/// Memory, in bytes; null where the system does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Of the machine; in a virtual machine possibly far more than may be used.
    pub total_bytes: Option<u64>,
    /// The smallest limit of the control groups.
    pub control_group_limit_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// `linux`, `macos`.
    pub name: String,
    pub kernel: Option<String>,
    /// Whether it was a container, as far as the usual signs tell.
    pub container: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    /// `rustc -vV`.
    pub rustc: Option<String>,
    /// `cargo -V`.
    pub cargo: Option<String>,
    /// Compiler flags from RUSTFLAGS or CARGO_ENCODED_RUSTFLAGS, folders blanked; null when neither is set.
    pub rustflags: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Git commit, or `none` outside a git repository.
    pub commit: String,
    /// Whether files differ from the commit or are unknown to it.
    pub dirty: bool,
    /// SHA-256 of `git diff HEAD --binary`; null when there is no difference in known files.
    pub diff_sha256: Option<String>,
    /// SHA-256 of Cargo.lock.
    pub lock_sha256: Option<String>,
}

/// How runs were carried out; none of it may change a deterministic hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flags {
    pub threads_per_run: usize,
    /// `auto`, or one by name.
    pub instruction_set: String,
    /// Trainers at once.
    pub parallel_runs: usize,
}

/// What a run's key has of `rustc -vV`: version, host and LLVM.
pub fn compiler(rustc: &str) -> String {
    let kept = ["rustc ", "host:", "LLVM version:"];
    let lines: Vec<&str> = rustc.lines().filter(|line| kept.iter().any(|start| line.starts_with(start))).collect();
    lines.join("; ")
}

impl Cpu {
    /// The name of a machine with it and without a GPU.
    pub fn machine(&self) -> String {
        machine::of_processor(&self.model, &self.architecture, self.logical_cores)
    }
}

impl Environment {
    /// The machine's name in directories' names.
    pub fn machine(&self) -> String {
        self.named.clone().or_else(|| machine::of_gpus(&self.accelerators)).unwrap_or_else(|| self.cpu.machine())
    }

    /// The day it was captured, UTC: `2026-05-09`.
    pub fn day(&self) -> String {
        self.captured.chars().take("2026-05-09".len()).collect()
    }

    /// The compiler of the trainer, as a run's key has it; none where the record does not say.
    pub fn trainers_compiler(&self) -> Option<String> {
        let prebuilt = self.prebuilt_trainer.as_ref().map(|trainer| trainer.toolchain.clone());
        prebuilt.or_else(|| self.toolchain.rustc.as_deref().map(compiler))
    }

    /// With the accelerators that runs are spread over, one trainer on each.
    pub fn on(mut self, gpus: &[GpuFacts]) -> Self {
        if !gpus.is_empty() {
            self.flags.parallel_runs = gpus.len();
        }
        self.device_libraries = libraries(gpus);
        self.accelerators = gpus.to_vec();
        self
    }
}

/// Each library of these GPUs once.
pub fn libraries(gpus: &[GpuFacts]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for library in gpus.iter().flat_map(|gpu| &gpu.libraries) {
        if !all.contains(library) {
            all.push(library.clone());
        }
    }
    all
}

/// The state of the git work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitState {
    /// Full commit, or `none` outside a git repository.
    pub commit: String,
    /// Whether files differ from the commit or are unknown to it.
    pub dirty: bool,
    /// SHA-256 of the difference; none when there is none.
    pub diff_sha256: Option<String>,
}
