//! What a group of logged runs measures: samples to the target by both estimates, time to the target, time of a training step.

use crate::manifest::public_logs::{Group, Manifest, PublicLogs};
use crate::measure::load::Evaluation;
use crate::measure::target::{Estimator, crossing};
use crate::mllog::table::Record;
use crate::mllog::{LoggedEvaluation, LoggedRun, Status};
use crate::statistics::{Summary, median, olympic_mean, summarise};

/// From what a step time was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepBasis {
    /// Blocks of training, as the log marks them.
    Blocks,
    /// Times between evaluations, less the length of an evaluation of the same system.
    Intervals,
}

impl StepBasis {
    pub fn word(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Intervals => "intervals",
        }
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunNumbers {
    pub number: u64,
    pub seed: Option<u64>,
    /// How the log says that it ended.
    pub status: Status,
    /// Samples at the first evaluation at or below the target.
    pub grid: Option<f64>,
    /// Samples where the line between the evaluations around it meets the target.
    pub interpolated: Option<f64>,
    /// Minutes from run_start to run_stop, for a run that reached the target.
    pub minutes: Option<f64>,
    /// Median seconds of a training step over blocks, the first one left out: it pays for the start.
    pub step: Option<(f64, StepBasis)>,
}

impl RunNumbers {
    /// Samples to the target by one of the estimates.
    pub fn samples(&self, estimator: Estimator) -> Option<f64> {
        match estimator {
            Estimator::Grid => self.grid,
            Estimator::Interpolated => self.interpolated,
        }
    }
}

/// All runs of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNumbers {
    pub runs: Vec<RunNumbers>,
}

impl GroupNumbers {
    /// Samples to the target of the runs that reached it.
    pub fn samples(&self, estimator: Estimator) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.samples(estimator)).collect()
    }

    /// Minutes to the target of the runs that reached it.
    pub fn minutes(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.minutes).collect()
    }

    /// Seconds of a training step, of every run that tells.
    pub fn steps(&self) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.step.map(|step| step.0)).collect()
    }

    /// How many runs did not reach the target: they are in no mean of samples or minutes.
    pub fn missed(&self) -> usize {
        self.runs.iter().filter(|run| run.grid.is_none()).count()
    }

    /// How many step times come from intervals between evaluations.
    pub fn estimated_steps(&self) -> usize {
        self.runs.iter().filter(|run| run.step.is_some_and(|step| step.1 == StepBasis::Intervals)).count()
    }
}

/// Mean, spread and MLPerf's score of a list.
pub(super) fn with_score(values: &[f64]) -> (Option<Summary>, Option<f64>) {
    (summarise(values), olympic_mean(values))
}

impl PublicLogs {
    /// Measured runs of a group.
    pub fn numbers(&self, id: &str) -> Option<GroupNumbers> {
        Some(group(&self.manifest, self.group(id)?, self.runs.get(id)?))
    }
}

/// Measures every run of a group.
pub(super) fn group(manifest: &Manifest, group: &Group, records: &[Record]) -> GroupNumbers {
    let known: Vec<f64> = records
        .iter()
        .flat_map(|record| &record.run.evaluations)
        .filter_map(|evaluation| evaluation.evaluation_ms)
        .map(|ms| ms as f64)
        .collect();
    let evaluation_ms = median(&known).or_else(|| group.evaluation_seconds.as_ref().map(|seconds| 1000.0 * seconds.median));
    GroupNumbers { runs: records.iter().map(|record| run(manifest, record, evaluation_ms)).collect() }
}

fn run(manifest: &Manifest, record: &Record, evaluation_ms: Option<f64>) -> RunNumbers {
    let (run, per_sample) = (&record.run, manifest.tokens_per_sample);
    let batch = run.setting("global_batch_size").unwrap_or(1.0);
    // The same code that finds the crossing of our own runs, which counts tokens.
    let evaluations: Vec<Evaluation> = run
        .evaluations
        .iter()
        .map(|seen| Evaluation { step: (seen.samples as f64 / batch) as u64, tokens: seen.samples * per_sample, loss: seen.loss })
        .collect();
    let crossing = crossing(&evaluations, manifest.target_loss);
    let samples = |tokens: f64| tokens / per_sample as f64;
    let minutes = run.run_start_ms.zip(run.run_stop_ms).map(|(start, stop)| (stop - start) as f64 / 60_000.0);
    RunNumbers {
        number: record.number,
        seed: run.seed,
        status: run.status,
        grid: crossing.map(|crossing| samples(crossing.grid)),
        interpolated: crossing.map(|crossing| samples(crossing.interpolated)),
        minutes: minutes.filter(|minutes| *minutes > 0.0 && crossing.is_some() && run.status == Status::Success),
        step: step(run, batch, evaluation_ms),
    }
}

/// Seconds of a step: the median over all blocks but the first, from their own lengths where all have one.
fn step(run: &LoggedRun, batch: f64, evaluation_ms: Option<f64>) -> Option<(f64, StepBasis)> {
    let pairs = || run.evaluations.windows(2).map(|pair| (&pair[0], &pair[1]));
    let seconds = |milliseconds: f64, before: &LoggedEvaluation, after: &LoggedEvaluation| {
        milliseconds / 1000.0 * batch / (after.samples - before.samples) as f64
    };
    let blocks: Option<Vec<f64>> = pairs().map(|(before, after)| Some(seconds(after.train_ms? as f64, before, after))).collect();
    if let Some(middle) = blocks.as_deref().and_then(median) {
        return Some((middle, StepBasis::Blocks));
    }
    let evaluation = evaluation_ms?;
    let intervals: Vec<f64> =
        pairs().map(|(before, after)| seconds((after.time_ms - before.time_ms) as f64 - evaluation, before, after)).collect();
    median(&intervals).map(|middle| (middle, StepBasis::Intervals))
}
