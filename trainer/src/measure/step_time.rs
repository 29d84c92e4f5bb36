//! Seconds a training step takes, arm beside arm, and where in it they go.
//!
//! Arms take turns (A B C A B C ...) in one process on the same data, so that whatever else the machine does falls on all of
//! them alike. Nothing is written but the lines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use contract::measurements::{self, StepExchange, StepKernel, StepMemory, StepTimeLine};
use contract::run_file::RunFile;
use kernels::random::StreamKey;

use crate::batches::Batch;
use crate::device::{Device, ProfileReader, Spending};
use crate::error::TrainerError;
use crate::ranks::Ranks;
use crate::session::Streams;
use crate::trainer_state::{Exchanged, Training};

/// How steps are timed.
#[derive(Debug, Clone, Copy)]
pub struct StepTime {
    /// Rounds that are not measured.
    pub warmup: u64,
    pub repeats: u64,
    /// A line for every kind of kernel after each step.
    pub profile: bool,
    /// A line with the memory that was taken on the device, at the end.
    pub memory: bool,
}

/// One run file's state.
struct Arm<D: Device> {
    training: Training<D>,
    /// None: the same random tokens at every step.
    streams: Option<Streams>,
    profile: Option<ProfileReader>,
}

impl<D: Device> Arm<D> {
    fn new(
        path: &Path,
        data: Option<&Path>,
        device: &impl Fn(&RunFile) -> Result<D, TrainerError>,
        ranks: &Arc<dyn Ranks<D>>,
        is_profiled: bool,
    ) -> Result<Self, TrainerError> {
        let run = RunFile::load(path)?.run;
        let mut device = device(&run.micro_batch())?;
        device.check_memory(&run.micro_batch())?;
        let mut profile = None;
        if is_profiled {
            let (profiled, reader) = device.with_profile();
            (device, profile) = (profiled, Some(reader));
        }
        let streams = data.map(|data| Streams::open(&run, data)).transpose()?;
        let batch = random_batch(&run);
        let tokens = streams.as_ref().map_or(0, |streams| streams.train.len());
        let mut training = Training::among(ranks.clone(), device, run, tokens)?;
        training.set_batch(batch);
        Ok(Self { training, streams, profile })
    }

    /// One whole step: seconds in all, and of forward and backward alone.
    fn step(&mut self, step: u64) -> Result<(f64, f64), TrainerError> {
        let started = Instant::now();
        if let Some(streams) = &self.streams {
            self.training.load(&streams.train, step)?;
        }
        let forward_backward = Instant::now();
        let result = self.training.forward_backward(step)?;
        let forward_backward = forward_backward.elapsed().as_secs_f64();
        self.training.update(step, result.gradient_norm)?;
        self.training.device().wait()?;
        Ok((started.elapsed().as_secs_f64(), forward_backward))
    }
}

/// Uniform tokens from the run's seed. Their values do not change the time, unless embedding rows were to collide more often.
fn random_batch(run: &RunFile) -> Batch {
    let stream = StreamKey { seed: run.run.seed, ..Default::default() }.stream();
    let tokens = run.tokens_per_step() as u64;
    let token = |index| ((u64::from(stream.word(index)) * run.model.vocab_size as u64) >> 32) as u32;
    Batch::new((0..tokens).map(token).collect(), (tokens..2 * tokens).map(token).collect())
}

/// Unmeasured rounds, then measured ones of one real training step of each run file. Without `data` the tokens are random. Of several ranks,
/// which compute each step together, rank 0 writes.
pub fn step_time<D: Device>(
    run_files: &[PathBuf],
    data: Option<&Path>,
    StepTime { warmup, repeats, profile, memory }: StepTime,
    device: &impl Fn(&RunFile) -> Result<D, TrainerError>,
    ranks: &Arc<dyn Ranks<D>>,
    out: &mut impl Write,
) -> Result<(), TrainerError> {
    let mut arms = run_files.iter().map(|path| Arm::new(path, data, device, ranks, profile)).collect::<Result<Vec<_>, _>>()?;
    if let Some(machine) = arms.iter().map(|arm| arm.training.device().machine()).find(|machine| machine.interpreted) {
        let what = format!("{} is no device: how long the processor takes to interpret a step says nothing", machine.name);
        return Err(TrainerError::Machine(what));
    }
    for step in 1..=warmup + repeats {
        for arm in &mut arms {
            let (seconds, forward_backward_seconds) = arm.step(step)?;
            let spent = arm.profile.as_ref().map_or_else(|| Ok(Vec::new()), |read| read())?;
            let exchanged = arm.training.exchanged()?;
            if step <= warmup || ranks.rank() != 0 {
                continue;
            }
            let (run, repeat) = (arm.training.run(), step - warmup);
            let (arm, tokens) = (run.run.arm.to_string(), Some(run.tokens_per_step() as u64));
            let together = Some(ranks.size() as u64).filter(|&ranks| ranks > 1);
            let step = measurements::StepTime { arm: arm.clone(), repeat, tokens, ranks: together, seconds, forward_backward_seconds };
            super::print(out, &StepTimeLine::Step(step))?;
            for (rank, Exchanged { gradients, norm, parameters }) in (0..).zip(exchanged) {
                super::print(out, &StepTimeLine::Exchange(StepExchange { arm: arm.clone(), repeat, rank, gradients, norm, parameters }))?;
            }
            for Spending { kernel, calls, work, seconds } in spent {
                let (arm, kernel) = (arm.clone(), kernel.into());
                super::print(out, &StepTimeLine::Kernel(StepKernel { arm, repeat, kernel, calls, work, seconds }))?;
            }
        }
    }
    let taken = arms.first().map(|arm| arm.training.device().memory_in_use()).transpose()?.flatten();
    match taken.filter(|_| memory && ranks.rank() == 0) {
        Some(bytes) => super::print(out, &StepTimeLine::Memory(StepMemory { bytes })),
        None => Ok(()),
    }
}
