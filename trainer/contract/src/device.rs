//! Devices by name, and what `trainer devices` says of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::Document;
use crate::schema;
use crate::text::GIB;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    #[default]
    Cpu,
    Cuda,
    Hip,
}

impl DeviceKind {
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Cuda, Self::Hip];

    /// As manifests, run keys and `--device` write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One device of a machine: `cpu`, `cuda:N` or `hip:N`. A kind of GPU alone is its first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceId {
    Cpu,
    Cuda(usize),
    Hip(usize),
}

/// What is no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no device; use cpu, cuda, cuda:1 (the second GPU), hip or hip:1")]
pub struct NoDevice {
    text: String,
}

impl DeviceId {
    /// The CPU has no number.
    pub fn new(kind: DeviceKind, ordinal: usize) -> Self {
        match kind {
            DeviceKind::Cpu => Self::Cpu,
            DeviceKind::Cuda => Self::Cuda(ordinal),
            DeviceKind::Hip => Self::Hip(ordinal),
        }
    }

    pub fn kind(self) -> DeviceKind {
        match self {
            Self::Cpu => DeviceKind::Cpu,
            Self::Cuda(_) => DeviceKind::Cuda,
            Self::Hip(_) => DeviceKind::Hip,
        }
    }

    /// In the driver's order, from 0; none of the CPU.
    pub fn ordinal(self) -> Option<usize> {
        match self {
            Self::Cpu => None,
            Self::Cuda(ordinal) | Self::Hip(ordinal) => Some(ordinal),
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ordinal() {
            None => f.write_str(self.kind().word()),
            Some(ordinal) => write!(f, "{}:{ordinal}", self.kind()),
        }
    }
}

impl FromStr for DeviceId {
    type Err = NoDevice;

    fn from_str(text: &str) -> Result<Self, NoDevice> {
        let wrong = || NoDevice { text: text.to_owned() };
        let (word, number) = text.split_once(':').map_or((text, None), |(word, number)| (word, Some(number)));
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(wrong)?;
        match number {
            None => Ok(Self::new(kind, 0)),
            // `parse` alone would take "+1".
            Some(digits) if kind != DeviceKind::Cpu && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Self::new(kind, digits.parse().map_err(|_| wrong())?))
            }
            Some(_) => Err(wrong()),
        }
    }
}

impl Serialize for DeviceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The GPUs of a machine, each opened once: those of CUDA, then those of HIP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// In the driver's order.
    pub gpus: Vec<GpuFacts>,
    /// Why there are none, such as a driver that was not found.
    pub problem: Option<String>,
}

impl Document for Devices {
    const SCHEMA: &'static str = schema::DEVICES;
}

impl Devices {
    /// Those of a kind that can be used, an interpreter among them.
    pub fn that_open(&self, kind: &str) -> impl Iterator<Item = &GpuFacts> {
        self.gpus.iter().filter(move |gpu| gpu.kind() == kind && gpu.problem.is_none())
    }

    /// Those of a kind that a run may be measured on.
    pub fn usable(&self, kind: &str) -> impl Iterator<Item = &GpuFacts> {
        self.that_open(kind).filter(|gpu| !gpu.interpreted)
    }

    /// One line for each GPU of a kind, or why there is none.
    pub fn lines_of(&self, kind: &str) -> Vec<String> {
        let lines: Vec<String> = self.gpus.iter().filter(|gpu| gpu.kind() == kind).map(GpuFacts::line).collect();
        match (lines.is_empty(), self.gpus.is_empty()) {
            (false, _) => lines,
            (true, true) => self.lines(),
            (true, false) => vec![format!("no GPU of kind {kind}; there is {}", self.lines().join("; "))],
        }
    }

    /// One line a GPU, or why there is none.
    pub fn lines(&self) -> Vec<String> {
        match (&self.problem, self.gpus.is_empty()) {
            (Some(problem), _) => vec![format!("no GPU can be used: {problem}")],
            (None, true) => vec!["the driver finds no GPU".to_owned()],
            _ => self.gpus.iter().map(GpuFacts::line).collect(),
        }
    }
}

/// One GPU, as the trainer finds it and as records of results hold it; name and libraries are left out where it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// As the trainer's `--device` takes it: `cuda:0`. Only `cuda` where it is known from a run's timings, which name no number; a
    /// [`DeviceId`] would make the first GPU of it.
    pub device: String,
    /// Its maker's.
    pub name: Option<String>,
    /// As the compiler calls it: `sm_90a`.
    pub architecture: Option<String>,
    /// In all.
    pub memory_bytes: Option<u64>,
    /// Whether it multiplies FP8 natively.
    pub fp8: Option<bool>,
    /// Whether it multiplies packed MXFP4 with kernels of this project.
    #[serde(default)]
    pub mxfp4: Option<bool>,
    /// No device: an interpreter of its machine code on the processor (kernels/gfx950).
    #[serde(default)]
    pub interpreted: bool,
    /// Driver, compiler and library of matrix products, with versions.
    pub libraries: Vec<String>,
    /// Why it cannot be used; null: it can.
    pub problem: Option<String>,
}

impl GpuFacts {
    /// `cuda:0 NVIDIA H200 (sm_90a, 139.8 GiB; CUDA driver 12.8, ...)`, or why not.
    pub fn line(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a GPU");
        match &self.problem {
            Some(problem) => format!("{} {name} cannot be used: {problem}", self.device),
            None => {
                let memory = self.memory_bytes.map(|bytes| format!(", {:.1} GiB", bytes as f64 / GIB)).unwrap_or_default();
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
