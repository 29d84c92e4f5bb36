//! Seconds a training step takes, arm beside arm.
//!
//! Arms take turns (A B C A B C ...) in one process on the same data, so that whatever else the machine does falls on all of
//! them alike. Nothing is written but the lines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kernels::cpu::Cpu;
use serde::Serialize;

use crate::error::TrainerError;
use crate::run_file::RunFile;
use crate::session::Streams;
use crate::trainer_state::Training;

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    kind: &'static str,
    arm: &'a str,
    repeat: u64,
    seconds: f64,
    forward_backward_seconds: f64,
}

/// `warmup` unmeasured rounds, then `repeats` measured ones of one real training step of each run file.
///
/// # Errors
/// Run files or data that are wrong, or a kernel's.
pub fn step_time(
    run_files: &[PathBuf],
    data: &Path,
    repeats: u64,
    warmup: u64,
    cpu: &Cpu,
    out: &mut impl Write,
) -> Result<(), TrainerError> {
    let mut arms = Vec::new();
    for path in run_files {
        let run = RunFile::load(path)?.run;
        crate::memory::check(&run)?;
        let streams = Streams::open(&run, data)?;
        arms.push((Training::new(cpu.clone(), run, streams.train.len()), streams));
    }
    for step in 1..=warmup + repeats {
        for (training, streams) in &mut arms {
            let started = Instant::now();
            training.load(&streams.train, step)?;
            let forward_backward = Instant::now();
            let result = training.forward_backward(step)?;
            let forward_backward_seconds = forward_backward.elapsed().as_secs_f64();
            training.update(step, result.gradient_norm)?;
            let seconds = started.elapsed().as_secs_f64();
            if step > warmup {
                let arm = &training.run().run.arm;
                super::print(
                    out,
                    &Line { schema: "mxfp4-step-time/1", kind: "step_time", arm, repeat: step - warmup, seconds, forward_backward_seconds },
                )?;
            }
        }
    }
    Ok(())
}
