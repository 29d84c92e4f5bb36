//! The GPUs of a machine, as the trainer finds them (`trainer devices`): which may be used, which libraries came with them, what is missing.
//!
//! This crate opens no driver. Without a trainer to ask, `doctor` looks at files only.

use serde::{Deserialize, Serialize};
use study::device::Gpu;

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

impl Devices {
    /// Asks the trainer, which opens every GPU once.
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

    /// Those of a kind that can be used, an interpreter among them.
    pub fn that_open(&self, kind: &str) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(move |gpu| gpu.kind() == kind && gpu.problem.is_none())
    }

    /// Those of a kind that a run may be measured on.
    pub fn usable(&self, kind: &str) -> impl Iterator<Item = &Gpu> {
        self.that_open(kind).filter(|gpu| !gpu.interpreted)
    }

    /// The GPUs of a kind with these numbers, or all that can be used.
    ///
    /// # Errors
    /// One line: a number that is not there or cannot be used, or no GPU at all.
    pub fn choose(&self, kind: &str, numbers: Option<&[usize]>) -> Result<Vec<Gpu>, String> {
        let Some(numbers) = numbers else {
            let usable: Vec<Gpu> = self.usable(kind).cloned().collect();
            return if usable.is_empty() { Err(self.lines_of(kind).join("; ")) } else { Ok(usable) };
        };
        let mut chosen: Vec<Gpu> = Vec::new();
        for number in numbers {
            let device = format!("{kind}:{number}");
            let gpu = self.gpus.iter().find(|gpu| gpu.device == device);
            let gpu = gpu.ok_or_else(|| format!("--gpus {number}: there is no {device}; {}", self.lines_of(kind).join("; ")))?;
            if let Some(problem) = &gpu.problem {
                return Err(format!("--gpus {number}: {device} cannot be used: {problem}"));
            }
            if gpu.interpreted {
                return Err(format!("--gpus {number}: {}", gpu.line()));
            }
            if !chosen.contains(gpu) {
                chosen.push(gpu.clone());
            }
        }
        Ok(chosen)
    }

    /// One line for each GPU of a kind, or why there is none.
    pub fn lines_of(&self, kind: &str) -> Vec<String> {
        let lines: Vec<String> = self.gpus.iter().filter(|gpu| gpu.kind() == kind).map(Gpu::line).collect();
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
            _ => self.gpus.iter().map(Gpu::line).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::device::identity;
    use study::machine;

    fn two() -> Devices {
        let gpu = |number: usize, problem: Option<&str>| Gpu {
            device: format!("cuda:{number}"),
            name: problem.is_none().then(|| "NVIDIA H200".to_owned()),
            architecture: Some("sm_90a".to_owned()),
            memory_bytes: Some(150_000_000_000),
            fp8: Some(true),
            mxfp4: None,
            interpreted: false,
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
    fn an_interpreter_is_shown_and_never_chosen() {
        let interpreter = Gpu {
            device: "hip:0".to_owned(),
            name: Some("gfx950 interpreter".to_owned()),
            architecture: Some("gfx950".to_owned()),
            memory_bytes: Some(2 << 30),
            fp8: Some(true),
            mxfp4: Some(true),
            interpreted: true,
            libraries: vec!["gfx950 interpreter in place of HIP 0.1.0".to_owned()],
            problem: None,
        };
        let line = "hip:0 gfx950 interpreter (gfx950, 2.0 GiB; gfx950 interpreter in place of HIP 0.1.0; no device: the processor \
                    interprets the machine code, for tests only)";
        assert_eq!(interpreter.line(), line);
        let mut devices = two();
        assert!(devices.choose("hip", None).unwrap_err().starts_with("no GPU of kind hip; there is cuda:0 NVIDIA H200"));
        devices.gpus.push(interpreter);
        assert_eq!(devices.choose("hip", None).unwrap_err(), line);
        assert_eq!(devices.choose("hip", Some(&[0])).unwrap_err(), format!("--gpus 0: {line}"));
        assert_eq!((devices.that_open("hip").count(), devices.usable("hip").count(), devices.usable("cuda").count()), (1, 0, 1));
        assert_eq!(devices.choose("cuda", None).unwrap().len(), 1);
    }

    #[test]
    fn a_machine_is_named_after_its_gpu() {
        assert_eq!(machine::of_gpus(&two().gpus).as_deref(), Some("nvidia-h200"));
        assert_eq!(machine::of_gpus(&[]), None);
        assert_eq!(identity(&two().gpus[..1]), "NVIDIA H200 with CUDA driver 12.8, NVRTC 12.8");
    }
}
