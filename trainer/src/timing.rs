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
    /// The session's first step, in which kernels are made.
    first: Option<u64>,
    /// Of the steps after it, and what of them each rank spent.
    seconds: f64,
    spent: Vec<f64>,
}

impl Exchanges {
    /// Starts a session.
    pub fn start(path: &Path, ranks: usize, transport: String, resumed_from_step: u64) -> Result<Self, TrainerError> {
        let mut lines = Lines::open(path, resumed_from_step)?;
        lines.write(&ExchangeLine::Session(exchange::Session { ranks: ranks as u64, transport, resumed_from_step }))?;
        Ok(Self { lines, first: None, seconds: 0.0, spent: vec![0.0; ranks] })
    }

    /// One training step of a rank.
    pub fn step(&mut self, spent: Spent) -> Result<(), TrainerError> {
        let Spent { step, rank, seconds, gradients, norm, parameters } = spent;
        if *self.first.get_or_insert(step) != step {
            self.seconds += if rank == 0 { seconds } else { 0.0 };
            if let Some(own) = self.spent.get_mut(rank as usize) {
                *own += gradients + norm + parameters;
            }
        }
        self.lines.write(&ExchangeLine::Step(spent))
    }

    /// Which of several ranks waited least, and which most; nothing after a single step.
    pub fn told(&self) -> Option<String> {
        let mut shares: Vec<(f64, usize)> = self.spent.iter().map(|spent| 100.0 * spent / self.seconds).zip(0..).collect();
        shares.sort_by(|one, other| one.0.total_cmp(&other.0));
        let ((least, first), (most, last)) = (shares.first()?, shares.last()?);
        let is_told = self.seconds > 0.0 && shares.len() > 1;
        is_told.then(|| format!("{}{least:.1} % of the steps on rank {first} and {most:.1} % on rank {last}", exchange::TOLD))
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Of two steps after the first, by hand: rank 0 spends 0.3 + 0.1 of 4 seconds, rank 1 0.04, rank 2 1.2.
    #[test]
    fn who_waits_is_told_without_the_first_step() {
        let folder = tempfile::tempdir().unwrap();
        let start = |ranks| Exchanges::start(&folder.path().join("exchange.jsonl"), ranks, "host".to_owned(), 0).unwrap();
        let spent = |step, rank, gradients| Spent { step, rank, seconds: 2.0, gradients, norm: 0.0, parameters: 0.0 };
        let mut exchanges = start(3);
        for (rank, gradients) in [(0, 1.9), (1, 1.9), (2, 1.9)] {
            exchanges.step(spent(7, rank, gradients)).unwrap();
        }
        assert_eq!(exchanges.told(), None, "one step is none");
        for line in [(8, 0, 0.3), (8, 1, 0.02), (8, 2, 0.6), (9, 0, 0.1), (9, 1, 0.02), (9, 2, 0.6)] {
            exchanges.step(spent(line.0, line.1, line.2)).unwrap();
        }
        let told = exchanges.told().unwrap();
        assert_eq!(told, "exchanges took 1.0 % of the steps on rank 1 and 30.0 % on rank 2");
        let mut alone = start(1);
        (1..4).for_each(|step| alone.step(spent(step, 0, 0.1)).unwrap());
        assert_eq!(alone.told(), None);
    }
}
