//! What a run goes on from: the logs that belong to a checkpoint, cut where it was written, and the same state on every rank.

use std::path::Path;

use contract::metrics::{Header, MetricsLine};
use contract::run_file::{RunFile, RunIdentity};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Found, LogMarks, Progress};
use crate::device::{Device, Linears};
use crate::error::TrainerError;
use crate::metrics::Log;
use crate::mllog::Mllog;
use crate::ranks::Ranks;
use crate::trainer_state::Training;

/// What rank 0 tells the others of the checkpoint that all go on from; the arrays follow.
#[derive(Debug, Serialize, Deserialize)]
struct Resumption {
    step: u64,
    /// Bits of the histories of delayed scales.
    delayed: Vec<Vec<u32>>,
}

/// What rank 0 goes on from, beside the histories of delayed scales.
pub(crate) struct Start {
    pub(crate) progress: Progress,
    pub(crate) logs: Logs,
    /// Parameters, first and second moments.
    pub(crate) arrays: [Vec<f32>; 3],
}

/// What rank 0 finds to go on from, its histories already in `training`. A checkpoint that cannot be used leaves `fresh` training behind.
pub(crate) fn resume<D: Device>(
    directory: &Path,
    run_sha256: &str,
    training: &mut Training<D>,
    fresh: impl Fn() -> Result<Training<D>, TrainerError>,
) -> Result<Option<Start>, TrainerError> {
    match checkpoint::load(directory, run_sha256, training)? {
        Found::Nothing => Ok(None),
        Found::Unusable(problem, moved) => {
            eprintln!("warning: the checkpoint cannot be used ({problem}); moved to {}, starting again from step 0", moved.display());
            Ok(None)
        }
        Found::Resumed(progress, marks, arrays) => match Logs::reopen(directory, training.run(), &progress, &marks)? {
            Some(logs) => Ok(Some(Start { progress, logs, arrays })),
            None => {
                let moved = checkpoint::set_aside(directory)?;
                eprintln!(
                    "warning: metrics.jsonl or run.mllog is not what the checkpoint wrote; checkpoint moved to {}, starting again from step 0",
                    moved.display()
                );
                *training = fresh()?;
                Ok(None)
            }
        },
    }
}

/// All ranks go on from what rank 0 found, if it found anything; whether they do.
pub(crate) fn agree<D: Device>(
    ranks: &dyn Ranks<D>,
    training: &mut Training<D>,
    progress: &mut Progress,
    arrays: Option<[Vec<f32>; 3]>,
) -> Result<bool, TrainerError> {
    let wrong = |error: &dyn std::fmt::Display| TrainerError::Machine(format!("rank 0 does not say what to go on from: {error}"));
    let histories = || training.model.linears.histories();
    let bits = |history: Vec<f32>| history.into_iter().map(f32::to_bits).collect();
    let said = match &arrays {
        Some(_) => Some(Resumption { step: progress.step, delayed: histories()?.into_iter().map(bits).collect() }),
        None => None,
    };
    let record = if ranks.rank() == 0 { serde_json::to_vec(&said).map_err(|error| wrong(&error))? } else { Vec::new() };
    let records = ranks.gather(&record)?;
    let first = records.first().map_or(&[][..], Vec::as_slice);
    let Some(Resumption { step, delayed }) = serde_json::from_slice(first).map_err(|error| wrong(&error))? else { return Ok(false) };
    if ranks.rank() != 0 {
        progress.step = step;
        let floats = |history: Vec<u32>| history.into_iter().map(f32::from_bits).collect();
        if !training.model.linears.restore_histories(delayed.into_iter().map(floats).collect())? {
            return Err(wrong(&"histories of another model"));
        }
    }
    training.restore(arrays.unwrap_or_default())?;
    Ok(true)
}

/// The two logs that a checkpoint cuts.
pub(crate) struct Logs {
    pub(crate) metrics: Log,
    pub(crate) mllog: Mllog,
}

impl Logs {
    pub(crate) fn create(directory: &Path, run: &RunFile, parameters: usize) -> Result<Self, TrainerError> {
        let mut metrics = Log::create(directory.join("metrics.jsonl"))?;
        let RunIdentity { profile, arm, seed } = run.run.clone();
        let (parameters, tokens_per_step) = (parameters as u64, run.tokens_per_step() as u64);
        metrics.json(&MetricsLine::Header(Header { profile, arm, seed, parameters, tokens_per_step }))?;
        let mut mllog = Mllog::new(Log::create(directory.join("run.mllog"))?, None);
        mllog.begin(run)?;
        Ok(Self { metrics, mllog })
    }

    fn reopen(directory: &Path, run: &RunFile, progress: &Progress, marks: &LogMarks) -> Result<Option<Self>, TrainerError> {
        let metrics = Log::reopen(directory.join("metrics.jsonl"), marks.metrics_length, Some(&marks.metrics_sha256))?;
        let mllog = Log::reopen(directory.join("run.mllog"), marks.mllog_length, None)?;
        let evaluated = progress.step - progress.step % run.evaluation.every_steps;
        let open_block = (progress.step < run.budget.steps).then_some(evaluated * run.batch.sequences as u64);
        Ok(metrics.zip(mllog).map(|(metrics, mllog)| Self { metrics, mllog: Mllog::new(mllog, open_block) }))
    }
}
