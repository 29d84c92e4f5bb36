//! What a log says about one run, whoever wrote it.

use std::collections::BTreeMap;

use crate::statistics::median;

/// A block this many times as long, for a sample, as the median block is a pause or a jump of the clock.
const PAUSE: f64 = 3.0;

/// What a log is expected to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// The benchmark; a name that goes on after it with `_` is a scaled version of it.
    pub benchmark: String,
    /// Target loss, nats per token: a run is done at the first evaluation at or below it.
    pub target: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { benchmark: "llama31_8b".to_owned(), target: 3.3 }
    }
}

/// How a run says that it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `run_stop` with status success.
    Success,
    /// `run_stop` with another status.
    Aborted,
    /// No `run_stop`.
    Unfinished,
}

impl Status {
    /// The word in `runs.csv`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Aborted => "aborted",
            Self::Unfinished => "unfinished",
        }
    }

    /// The status of a word of `runs.csv`.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Success, Self::Aborted, Self::Unfinished].into_iter().find(|status| status.word() == word)
    }
}

/// One evaluation of a logged run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedEvaluation {
    pub samples: u64,
    /// Loss, nats per token.
    pub loss: f64,
    /// Milliseconds from `run_start` to the loss.
    pub time_ms: i64,
    /// Milliseconds of the block of training before it; none where no block ended since the evaluation before.
    pub train_ms: Option<i64>,
    /// Milliseconds from `eval_start` to `eval_stop`.
    pub evaluation_ms: Option<i64>,
}

/// What one run logged.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedRun {
    /// The file, as it was named or found.
    pub path: String,
    /// The line at which the run begins.
    pub line: u64,
    /// SHA-256 of the whole file.
    pub sha256: String,
    pub seed: Option<u64>,
    pub status: Status,
    /// `submission_benchmark`, `_org`, `_division`, `_platform`; empty where not logged.
    pub benchmark: String,
    pub submitter: String,
    /// closed or open.
    pub division: String,
    pub platform: String,
    /// Lowest precision in the linear layers, where stated.
    pub precision: Option<String>,
    /// Settings by key, as text.
    pub settings: BTreeMap<String, String>,
    /// Milliseconds since 1970.
    pub run_start_ms: Option<i64>,
    /// Milliseconds since 1970.
    pub run_stop_ms: Option<i64>,
    /// `samples_count` of `run_stop`.
    pub samples_at_stop: Option<u64>,
    /// In order of samples.
    pub evaluations: Vec<LoggedEvaluation>,
}

impl LoggedRun {
    /// The first evaluation at or below `target`.
    pub fn reached(&self, target: f64) -> Option<&LoggedEvaluation> {
        self.evaluations.iter().find(|evaluation| evaluation.loss <= target)
    }

    /// The first block that is a pause or holds a jump of the clock: samples at its end, its milliseconds, and those at the median
    /// block's speed. Blocks need not be equally long, so what is compared is the time of a sample.
    pub(crate) fn pause(&self) -> Option<(u64, f64, f64)> {
        let begins = std::iter::once(0).chain(self.evaluations.iter().map(|evaluation| evaluation.samples));
        let blocks = begins.zip(&self.evaluations).filter_map(|(begin, end)| {
            let samples = end.samples.checked_sub(begin).filter(|samples| *samples > 0)? as f64;
            Some((end.samples, samples, end.train_ms? as f64))
        });
        let blocks: Vec<(u64, f64, f64)> = blocks.collect();
        let speeds: Vec<f64> = blocks.iter().map(|(_, samples, took)| took / samples).collect();
        let speed = median(&speeds).filter(|_| speeds.len() >= 3)?;
        let usual = |(end, samples, took): (u64, f64, f64)| (end, took, speed * samples);
        blocks.into_iter().map(usual).find(|(_, took, usual)| *took > PAUSE * usual)
    }

    /// A setting as a number.
    pub fn setting(&self, key: &str) -> Option<f64> {
        self.settings.get(key)?.parse().ok()
    }
}
