//! `timing.jsonl`, schema `mxfp4-timing/1`: seconds, threads and instruction set; and `exchange.jsonl`, what several ranks spent on each
//! other. Different on every machine and every run, and therefore kept apart from `metrics.jsonl`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use contract::device::DeviceKind;
use contract::exchange::{self, ExchangeLine, Spent};
use contract::timing::{Seconds, Session, TimingLine};
use serde::Serialize;

use crate::device::Machine;
use crate::error::TrainerError;

/// A file of lines that a resumed run goes on with.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// A new file when nothing is resumed, otherwise appends.
    fn open(path: &Path, resumed_from_step: u64) -> Result<Self, TrainerError> {
        let failed = |source| TrainerError::write(path, source);
        let file = if resumed_from_step == 0 {
            File::create(path).map_err(failed)?
        } else {
            // A kill may have left half a line.
            let whole = std::fs::read(path).map_or(0, |bytes| bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1));
            let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
            file.set_len(whole as u64).map_err(failed)?;
            file
        };
        Ok(Self { path: path.to_owned(), file })
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), TrainerError> {
        let failed = |source: &dyn std::fmt::Display| TrainerError::write(&self.path, source);
        let mut text = serde_json::to_string(line).map_err(|source| failed(&source))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|source| failed(&source))
    }
}

/// `exchange.jsonl`.
#[derive(Debug)]
pub struct Exchanges {
    lines: Lines,
}

impl Exchanges {
    /// Starts a session.
    pub fn start(path: &Path, ranks: usize, transport: String, resumed_from_step: u64) -> Result<Self, TrainerError> {
        let mut lines = Lines::open(path, resumed_from_step)?;
        lines.write(&ExchangeLine::Session(exchange::Session { ranks: ranks as u64, transport, resumed_from_step }))?;
        Ok(Self { lines })
    }

    /// One training step of a rank.
    pub fn step(&mut self, spent: Spent) -> Result<(), TrainerError> {
        self.lines.write(&ExchangeLine::Step(spent))
    }
}

/// `timing.jsonl`.
#[derive(Debug)]
pub struct Timing {
    lines: Lines,
}

impl Timing {
    /// Starts a session.
    pub fn start(path: &Path, machine: &Machine, ranks: usize, resumed_from_step: u64) -> Result<Self, TrainerError> {
        let mut lines = Lines::open(path, resumed_from_step)?;
        let Machine { device, name, threads, instruction_set, libraries, mxfp4, least_memory, interpreted } = machine.clone();
        lines.write(&TimingLine::Session(Session {
            device,
            ranks: ranks as u64,
            threads: threads as u64,
            instruction_set,
            cpu: processor_name(),
            gpu: (device != DeviceKind::Cpu).then_some(name),
            libraries: libraries.iter().map(|(name, version)| format!("{name} {version}")).collect(),
            mxfp4,
            least_memory,
            interpreted,
            resumed_from_step,
        }))?;
        Ok(Self { lines })
    }

    /// One training step.
    pub fn step(&mut self, step: u64, seconds: f64) -> Result<(), TrainerError> {
        self.lines.write(&TimingLine::Step(Seconds { step, seconds }))
    }

    /// One evaluation after `step` steps.
    pub fn evaluation(&mut self, step: u64, seconds: f64) -> Result<(), TrainerError> {
        self.lines.write(&TimingLine::Evaluation(Seconds { step, seconds }))
    }
}

/// The processor's own name where the system tells it, else its architecture.
pub fn processor_name() -> String {
    let from_linux = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    from_linux.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
