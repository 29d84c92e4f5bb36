//! The GPUs of a machine, as the trainer finds them (`trainer devices`): which may be used, which libraries came with them, what is missing.
//!
//! This crate opens no driver. Without a trainer to ask, `doctor` looks at files only.

use std::cell::RefCell;
use std::collections::BTreeMap;

use contract::device::{Devices, GpuFacts};
use contract::json::Document as _;
use study::files;

use crate::toolchain::{ToolError, Trainer};

/// What trainers answered while one command runs: opening every GPU takes seconds, so each program is asked once.
#[derive(Debug, Default)]
pub struct Answers {
    /// By the program's SHA-256: one that is built between two questions may answer otherwise.
    by_program: RefCell<BTreeMap<String, Devices>>,
}

impl Answers {
    /// The GPUs that a trainer finds.
    ///
    /// # Errors
    /// When it cannot be started, or answers something else.
    pub fn of(&self, trainer: &Trainer) -> Result<Devices, ToolError> {
        let Ok(program) = files::sha256_file(&trainer.program) else { return ask(trainer) };
        if let Some(devices) = self.by_program.borrow().get(&program) {
            return Ok(devices.clone());
        }
        let devices = ask(trainer)?;
        self.by_program.borrow_mut().insert(program, devices.clone());
        Ok(devices)
    }
}

/// Asks the trainer, which opens every GPU once.
///
/// # Errors
/// When it cannot be started, or answers something else.
pub fn ask(trainer: &Trainer) -> Result<Devices, ToolError> {
    let what = "asking the trainer for devices";
    let text = trainer.output(what, ["devices"])?;
    Devices::from_json("trainer devices", &text).map_err(|error| ToolError::Failed {
        what: what.to_owned(),
        status: "an answer that is not the expected JSON".to_owned(),
        code: None,
        output: format!("{error}: {text}"),
    })
}

/// The GPUs of a kind with these numbers, or all that can be used.
///
/// # Errors
/// One line: a number that is not there or cannot be used, or no GPU at all.
pub fn choose(devices: &Devices, kind: &str, numbers: Option<&[usize]>) -> Result<Vec<GpuFacts>, String> {
    let Some(numbers) = numbers else {
        let usable: Vec<GpuFacts> = devices.usable(kind).cloned().collect();
        return if usable.is_empty() { Err(devices.lines_of(kind).join("; ")) } else { Ok(usable) };
    };
    let mut chosen: Vec<GpuFacts> = Vec::new();
    for number in numbers {
        let device = format!("{kind}:{number}");
        let gpu = devices.gpus.iter().find(|gpu| gpu.device == device);
        let gpu = gpu.ok_or_else(|| format!("--gpus {number}: there is no {device}; {}", devices.lines_of(kind).join("; ")))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use study::{machine, record};

    fn two() -> Devices {
        let gpu = |number: usize, problem: Option<&str>| GpuFacts {
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
        Devices { gpus: vec![gpu(0, None), gpu(1, Some("libnvrtc was not found"))], problem: None }
    }

    #[test]
    fn gpus_are_chosen_by_number_and_refused_with_a_reason() {
        let devices = two();
        let names = |numbers: Option<&[usize]>| {
            choose(&devices, "cuda", numbers).map(|gpus| gpus.into_iter().map(|gpu| gpu.device).collect::<Vec<_>>())
        };
        assert_eq!(names(None), Ok(vec!["cuda:0".to_owned()]));
        assert_eq!(names(Some(&[0, 0])), Ok(vec!["cuda:0".to_owned()]));
        assert!(names(Some(&[1])).unwrap_err().contains("cuda:1 cannot be used: libnvrtc was not found"));
        assert!(names(Some(&[7])).unwrap_err().contains("there is no cuda:7; cuda:0 NVIDIA H200 (sm_90a, 139.7 GiB; CUDA driver 12.8"));
        let none = Devices { problem: Some("libcuda.so.1 was not found".to_owned()), ..Devices::default() };
        assert_eq!(choose(&none, "cuda", None), Err("no GPU can be used: libcuda.so.1 was not found".to_owned()));
    }

    #[test]
    #[cfg(unix)]
    fn each_trainer_is_asked_once() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let trainer = Trainer { program: folder.path().join("trainer") };
        let written = |problem: &str| {
            let answer = format!(r#"{{"schema":"mxfp4-devices/1","gpus":[],"problem":"{problem}"}}"#);
            std::fs::write(&trainer.program, format!("#!/bin/sh\necho >> \"$0.calls\"\necho '{answer}'\n")).unwrap();
            std::fs::set_permissions(&trainer.program, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let calls = || std::fs::read(folder.path().join("trainer.calls")).unwrap().len();
        let answers = Answers::default();
        written("no driver");
        for _ in 0..3 {
            assert_eq!(answers.of(&trainer).unwrap().lines(), ["no GPU can be used: no driver"]);
        }
        assert_eq!(calls(), 1);
        written("another driver");
        assert_eq!(answers.of(&trainer).unwrap().lines(), ["no GPU can be used: another driver"]);
        assert_eq!(calls(), 2);
    }

    #[test]
    fn an_interpreter_is_shown_and_never_chosen() {
        let interpreter = GpuFacts {
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
        assert!(choose(&devices, "hip", None).unwrap_err().starts_with("no GPU of kind hip; there is cuda:0 NVIDIA H200"));
        devices.gpus.push(interpreter);
        assert_eq!(choose(&devices, "hip", None).unwrap_err(), line);
        assert_eq!(choose(&devices, "hip", Some(&[0])).unwrap_err(), format!("--gpus 0: {line}"));
        assert_eq!((devices.that_open("hip").count(), devices.usable("hip").count(), devices.usable("cuda").count()), (1, 0, 1));
        assert_eq!(choose(&devices, "cuda", None).unwrap().len(), 1);
    }

    #[test]
    fn a_machine_is_named_after_its_gpu() {
        assert_eq!(machine::of_gpus(&two().gpus).as_deref(), Some("nvidia-h200"));
        assert_eq!(machine::of_gpus(&[]), None);
        assert_eq!(record::of_finished(&two().gpus[..1]), "finished runs of NVIDIA H200 with CUDA driver 12.8, NVRTC 12.8\n");
    }
}
