//! The GPUs of a machine, as the trainer finds them (`trainer devices`): which may be used, which libraries came with them, what is missing.
//!
//! This crate opens no driver. Without a trainer to ask, `doctor` looks at files only.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::machine;
use crate::toolchain::{ToolError, Trainer};

/// What `trainer devices` prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// `mxfp4-devices/1`.
    pub schema: String,
    /// In the driver's order.
    pub gpus: Vec<Gpu>,
    /// Why there are none, such as a driver that was not found.
    pub problem: Option<String>,
}

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
                format!("{} {name} ({architecture}{memory}; {})", self.device, self.libraries.join(", "))
            }
        }
    }
}

impl Devices {
    /// Asks the trainer, which opens every GPU once.
    ///
    /// # Errors
    /// A trainer that cannot be started or says something else.
    pub fn ask(trainer: &Trainer) -> Result<Self, ToolError> {
        let what = "asking the trainer for devices";
        let text = trainer.output(what, ["devices"])?;
        serde_json::from_str(text.trim()).map_err(|error| ToolError::Failed {
            what: what.to_owned(),
            status: "an answer that is not the expected JSON".to_owned(),
            code: None,
            output: format!("{error}: {text}"),
        })
    }

    /// Those that can be used.
    pub fn usable(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| gpu.problem.is_none())
    }

    /// The GPUs with these numbers, or all that can be used.
    ///
    /// # Errors
    /// One line: a number that is not there or cannot be used, or no GPU at all.
    pub fn choose(&self, kind: &str, numbers: Option<&[usize]>) -> Result<Vec<Gpu>, String> {
        let Some(numbers) = numbers else {
            let usable: Vec<Gpu> = self.usable().cloned().collect();
            return if usable.is_empty() { Err(self.lines().join("; ")) } else { Ok(usable) };
        };
        let mut chosen: Vec<Gpu> = Vec::new();
        for number in numbers {
            let device = format!("{kind}:{number}");
            let gpu = self.gpus.iter().find(|gpu| gpu.device == device);
            let gpu = gpu.ok_or_else(|| format!("--gpus {number}: there is no {device}; {}", self.lines().join("; ")))?;
            if let Some(problem) = &gpu.problem {
                return Err(format!("--gpus {number}: {device} cannot be used: {problem}"));
            }
            if !chosen.contains(gpu) {
                chosen.push(gpu.clone());
            }
        }
        Ok(chosen)
    }

    /// One line a GPU, or why there is none.
    pub fn lines(&self) -> Vec<String> {
        match (&self.problem, self.gpus.is_empty()) {
            (Some(problem), _) => vec![format!("no GPU can be used: {problem}")],
            (None, true) => vec!["the driver finds no GPU".to_owned()],
            _ => self.gpus.iter().map(Gpu::line).collect(),
        }
    }
}

/// Each different name and list of libraries, in a line: what timings and numbers may depend on besides the run file.
pub fn identity(gpus: &[Gpu]) -> String {
    let lines: BTreeSet<String> =
        gpus.iter().map(|gpu| format!("{} with {}", gpu.name.as_deref().unwrap_or("a GPU"), gpu.libraries.join(", "))).collect();
    lines.into_iter().collect::<Vec<_>>().join("; ")
}

/// Name of the first GPU as folders have it: `nvidia-h200`.
pub fn slug(gpus: &[Gpu]) -> Option<String> {
    gpus.first().and_then(|gpu| gpu.name.as_deref()).map(machine::tidy).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Devices {
        let gpu = |number: usize, problem: Option<&str>| Gpu {
            device: format!("cuda:{number}"),
            name: problem.is_none().then(|| "NVIDIA H200".to_owned()),
            architecture: Some("sm_90a".to_owned()),
            memory_bytes: Some(150_000_000_000),
            fp8: Some(true),
            libraries: vec!["CUDA driver 12.8".to_owned(), "NVRTC 12.8".to_owned()],
            problem: problem.map(str::to_owned),
        };
        Devices { schema: "mxfp4-devices/1".to_owned(), gpus: vec![gpu(0, None), gpu(1, Some("libnvrtc was not found"))], problem: None }
    }

    #[test]
    fn gpus_are_chosen_by_number_and_refused_with_a_reason() {
        let devices = two();
        let names = |numbers: Option<&[usize]>| {
            devices.choose("cuda", numbers).map(|gpus| gpus.into_iter().map(|gpu| gpu.device).collect::<Vec<_>>())
        };
        assert_eq!(names(None), Ok(vec!["cuda:0".to_owned()]));
        assert_eq!(names(Some(&[0, 0])), Ok(vec!["cuda:0".to_owned()]));
        assert!(names(Some(&[1])).unwrap_err().contains("cuda:1 cannot be used: libnvrtc was not found"));
        assert!(names(Some(&[7])).unwrap_err().contains("there is no cuda:7; cuda:0 NVIDIA H200 (sm_90a, 139.7 GiB; CUDA driver 12.8"));
        let none = Devices { problem: Some("libcuda.so.1 was not found".to_owned()), ..Devices::default() };
        assert_eq!(none.choose("cuda", None), Err("no GPU can be used: libcuda.so.1 was not found".to_owned()));
    }

    #[test]
    fn a_machine_is_named_after_its_gpu() {
        assert_eq!(slug(&two().gpus).as_deref(), Some("nvidia-h200"));
        assert_eq!(slug(&[]), None);
        assert_eq!(identity(&two().gpus[..1]), "NVIDIA H200 with CUDA driver 12.8, NVRTC 12.8");
    }
}
