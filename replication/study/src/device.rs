//! A GPU, as the trainer describes it and as records of results hold it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// As the trainer's `--device` takes it: `cuda:0`.
    pub device: String,
    /// Its maker's name for it.
    pub name: Option<String>,
    /// As the compiler calls it: `sm_90a`.
    pub architecture: Option<String>,
    /// In all, bytes.
    pub memory_bytes: Option<u64>,
    /// Whether it multiplies FP8 natively.
    pub fp8: Option<bool>,
    /// Whether it multiplies packed MXFP4 with kernels of this project.
    #[serde(default)]
    pub mxfp4: Option<bool>,
    /// No device: an interpreter of its machine code on the processor (kernels/gfx950/stand-in).
    #[serde(default)]
    pub interpreted: bool,
    /// Driver, compiler and library of matrix products, with versions.
    pub libraries: Vec<String>,
    /// Why it cannot be used; null: it can.
    pub problem: Option<String>,
}

impl Gpu {
    /// `cuda:0 NVIDIA H200 (sm_90a, 139.8 GiB; CUDA driver 12.8, ...)`, or why not.
    pub fn line(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a GPU");
        match &self.problem {
            Some(problem) => format!("{} {name} cannot be used: {problem}", self.device),
            None => {
                let memory = self.memory_bytes.map(|bytes| format!(", {:.1} GiB", bytes as f64 / (1u64 << 30) as f64)).unwrap_or_default();
                let architecture = self.architecture.as_deref().unwrap_or("unknown architecture");
                let no_device =
                    if self.interpreted { "; no device: the processor interprets the machine code, for tests only" } else { "" };
                format!("{} {name} ({architecture}{memory}; {}{no_device})", self.device, self.libraries.join(", "))
            }
        }
    }

    /// `cuda` of `cuda:0`.
    pub fn kind(&self) -> &str {
        self.device.split(':').next().unwrap_or_default()
    }
}

/// Each different name and list of libraries, in a line: what timings and numbers may depend on besides the run file.
pub fn identity(gpus: &[Gpu]) -> String {
    let lines: BTreeSet<String> =
        gpus.iter().map(|gpu| format!("{} with {}", gpu.name.as_deref().unwrap_or("a GPU"), gpu.libraries.join(", "))).collect();
    lines.into_iter().collect::<Vec<_>>().join("; ")
}
