//! What a run goes on from: the logs that belong to a checkpoint, cut where it was written, and the same state on every rank.

use std::path::Path;

use contract::metrics::{Header, MetricsLine};
use contract::run_file::{RunFile, RunIdentity};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checkpoint::{self, Found, LogMarks, Progress, State};
use crate::device::{Device, Linears};
use crate::error::TrainerError;
use crate::metrics::Log;
use crate::mllog::Mllog;
use crate::ranks::Ranks;
use crate::shards::ShardRanges;
use crate::trainer_state::Training;

/// Where a run goes on.
pub(crate) struct Start {
    pub(crate) progress: Progress,
    /// Rank 0's.
    pub(crate) logs: Option<Logs>,
}

/// Makes `training` what the newest checkpoint holds, on all ranks; none where there is none that can be used, and nothing was done then.
/// `directory` is the run's, as this rank sees it; `together`: as all see it, so that each reads what it needs. Otherwise rank 0 reads all.
pub(crate) fn resume<D: Device>(
    directory: &Path,
    run_sha256: &str,
    (ranks, together): (&dyn Ranks<D>, bool),
    training: &mut Training<D>,
) -> Result<Option<Start>, TrainerError> {
    let is_first = ranks.rank() == 0;
    let found = if is_first { find(directory, run_sha256, training)? } else { None };
    let Some(state) = of_first(ranks, found)? else { return Ok(None) };
    let problem = match read(directory, &state, (ranks, together), training)? {
        Ok(arrays) => {
            let progress = state.progress();
            let logs = if is_first { Logs::reopen(directory, training.run(), &progress, &state.marks())? } else { None };
            if of_first(ranks, Some(logs.is_some()))? != Some(true) {
                "metrics.jsonl or run.mllog is not what it wrote".to_owned()
            } else if !training.model.linears.restore_histories(state.histories())? {
                "state.json: the delayed-scaling histories are not those of this model".to_owned()
            } else {
                training.restore(if together || ranks.size() == 1 { arrays } else { training.scatter(arrays)? })?;
                return Ok(Some(Start { progress, logs }));
            }
        }
        // Of several ranks' work nothing is begun again unasked: what is missing may lie on a machine that is not there now.
        Err(problems) if state.is_sharded() => return Err(damaged(directory, &problems)),
        Err(problems) => problems,
    };
    if is_first {
        set_aside(directory, &problem)?;
    }
    Ok(None)
}

/// This rank's shard of a checkpoint's arrays, or all for rank 0 and nothing for the others. Every file's hash is compared by one rank. What is
/// wrong for one of them is wrong for all.
fn read<D: Device>(
    directory: &Path,
    state: &State,
    (ranks, together): (&dyn Ranks<D>, bool),
    training: &Training<D>,
) -> Result<Result<[Vec<f32>; 3], String>, TrainerError> {
    let (rank, layout) = (ranks.rank(), training.model.layout());
    let (wanted, readers) = match (together, rank) {
        (true, _) => (training.shard().clone(), ranks.size()),
        (false, 0) => (ShardRanges::one(0..layout.total), 1),
        (false, _) => (ShardRanges::default(), 1),
    };
    let own = state.read(directory, layout, &wanted, |number| number % readers == rank);
    let said = ranks.gather(own.as_ref().err().map_or(&[][..], String::as_bytes))?;
    let mut problems: Vec<_> = said.iter().filter(|said| !said.is_empty()).map(|said| String::from_utf8_lossy(said)).collect();
    problems.dedup();
    Ok(if problems.is_empty() { own } else { Err(problems.join("; ")) })
}

fn damaged(directory: &Path, problems: &str) -> TrainerError {
    TrainerError::BadFile(format!(
        "{}: {problems}; put back the files as they were written and run the same command again, or move the folder away to begin again from \
         step 0",
        checkpoint::folder(directory).display()
    ))
}

/// What rank 0 finds.
fn find<D: Device>(directory: &Path, run_sha256: &str, training: &Training<D>) -> Result<Option<State>, TrainerError> {
    match checkpoint::find(directory, run_sha256, training.run().budget.steps, training.model.layout())? {
        Found::Nothing => Ok(None),
        Found::Index(state) => Ok(Some(*state)),
        Found::Unusable(problem) => set_aside(directory, &problem).map(|()| None),
    }
}

fn set_aside(directory: &Path, problem: &str) -> Result<(), TrainerError> {
    let moved = checkpoint::set_aside(directory)?;
    eprintln!("warning: the checkpoint cannot be used ({problem}); moved to {}, starting again from step 0", moved.display());
    Ok(())
}

/// What rank 0 says; the others' words do not count.
fn of_first<D: Device, T: Serialize + DeserializeOwned>(ranks: &dyn Ranks<D>, own: Option<T>) -> Result<Option<T>, TrainerError> {
    let wrong = |error: serde_json::Error| TrainerError::Machine(format!("rank 0 does not say what to go on from: {error}"));
    let record = if ranks.rank() == 0 { serde_json::to_vec(&own).map_err(wrong)? } else { Vec::new() };
    let records = ranks.gather(&record)?;
    serde_json::from_slice(records.first().map_or(&[][..], Vec::as_slice)).map_err(wrong)
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
