//! Runs: trainer subprocesses, one in each place of the pool, reused when finished, resumed when killed.
//!
//! A run's folder in the cache is named by its key; `done.json` says that it is finished. Nothing here looks at losses.

mod engine;
pub(crate) mod progress;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use study::files::{self, FileError};
use study::plan::PlannedRun;
use study::run_folder::{self, State};
use study::seal::{self, Seal};

use crate::data::{DataError, PreparedData};
use crate::pool::{self, Turn};
use crate::toolchain::Trainer;

use engine::{Engine, Work};
use progress::Progress;

pub use why::why;

/// How runs are carried out; none of it changes a result.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Trainer processes at once on the CPU; on GPUs there is one on each.
    pub parallel: usize,
    pub threads: usize,
    /// `auto`, or one by name.
    pub instruction_set: String,
    /// Forget finished and half-finished runs first.
    pub fresh: bool,
}

/// Where runs are carried out, and how long; none of it changes a result.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// What the trainer's `--device` is given: `cpu` once for each trainer at once, or `cuda:0`, `cuda:1`, ...
    /// For runs of several ranks each place is a group of GPUs, such as `cuda:0,1`.
    pub places: Vec<String>,
    /// Of each run; 0 and 1 are a run of one process.
    pub ranks: usize,
    /// After so long no run is started; those at work go on to their end.
    pub minutes: Option<Duration>,
    /// After so long those at work write a checkpoint and end.
    pub stop_after: Option<Duration>,
    /// Start the next run of a GPU while the last one writes its files: both fit into its memory.
    pub ahead: bool,
    /// Keep checkpoint and weights of what finishes on a GPU: half a gigabyte a run at 34M parameters. On the CPU they are always kept.
    pub keep_weights: bool,
    /// Folder for TensorBoard's event files.
    pub tensorboard: Option<PathBuf>,
    /// Show no progress.
    pub quiet: bool,
}

impl Pool {
    /// Places on the processor, without an end.
    pub fn cpu(options: &RunOptions) -> Self {
        Self { places: vec!["cpu".to_owned(); options.parallel.max(1)], ..Self::default() }
    }

    /// Whether runs that began at `started` have had their time.
    pub(crate) fn time_up(&self, started: Instant) -> bool {
        [self.minutes, self.stop_after].into_iter().flatten().any(|limit| started.elapsed() >= limit)
    }
}

/// How a run came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Finished earlier with the same ingredients.
    Reused,
    Finished,
    Failed(Failure),
    /// Not finished because someone asked to stop, or the time was up.
    Interrupted,
    /// Not begun: the time was up, or no device was left.
    Waiting,
}

/// Why a run ended with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The trainer's last lines.
    pub said: String,
    /// The trainer ended with the code that says so: a full disk, too little memory, a missing device. Nothing is wrong with the run.
    pub machine: bool,
}

impl Failure {
    /// Of a run that would fail anywhere, as far as anybody knows.
    fn of_the_run(said: String) -> Self {
        Self { said, machine: false }
    }
}

impl Outcome {
    /// Whether the run is finished.
    pub fn finished(&self) -> bool {
        matches!(self, Self::Reused | Self::Finished)
    }
}

/// Why no run could be carried out at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Input data changed or is missing.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// With what runs are carried out, and where they are kept.
#[derive(Debug, Clone, Copy)]
pub struct Means<'a> {
    /// The folder of finished runs, by key.
    pub cache: &'a Path,
    pub trainer: &'a Trainer,
    pub options: &'a RunOptions,
    pub pool: &'a Pool,
}

/// Runs that read the same data, and what they are called beside others.
#[derive(Debug, Clone)]
pub struct Slice<'a> {
    /// Before the names of its runs where progress is shown; none where there are no others.
    pub label: Option<String>,
    pub runs: &'a [PlannedRun],
    pub data: &'a PreparedData,
}

/// Carries out every run. `stop` is looked at all the time; trainers write a checkpoint before they end.
///
/// # Errors
/// When a run's folder cannot be made, or input data is not what the plan says, before or after the runs.
pub fn carry_out(
    runs: &[PlannedRun],
    data: &PreparedData,
    means: &Means<'_>,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Vec<Outcome>, RunError> {
    let outcomes = carry_out_slices(&[Slice { label: None, runs, data }], means, stop, say)?;
    Ok(outcomes.into_iter().flatten().collect())
}

/// Carries out the runs of several slices, the first slice first: where a place is free, a run of the next one begins.
///
/// # Errors
/// As [`carry_out`].
pub fn carry_out_slices(
    slices: &[Slice<'_>],
    means: &Means<'_>,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Vec<Vec<Outcome>>, RunError> {
    let Means { trainer, options, pool, .. } = *means;
    let (mut outcomes, all) = left_to_do(slices, means, say)?;
    if !all.is_empty() {
        let progress = Progress::new(all.iter().map(|work| work.steps).sum(), all.len(), pool.quiet);
        let (keep, ranks, tensorboard) = (pool.keep_weights, pool.ranks.max(1), pool.tensorboard.as_deref());
        let ends = pool.stop_after.map(|after| Instant::now() + after);
        let engine = Engine { trainer, options, ranks, keep, tensorboard, stop, ends, progress: &progress };
        let started = Instant::now();
        let go_on = || !engine.stopped() && pool.minutes.is_none_or(|minutes| started.elapsed() < minutes);
        let attempt = |index: usize, place: &str, turn: &Turn<'_>| engine.attempt(&all[index], place, pool.ahead.then_some(turn));
        let results = pool::spread(0..all.len(), &pool.places, &go_on, &attempt, &|line| progress.say(line));
        progress.end();
        refuse_changed_data(results.iter().map(|(index, _)| &all[*index]))?;
        for (index, outcome) in results {
            let (slice, run) = all[index].of;
            outcomes[slice][run] = Some(outcome);
        }
    }
    let not_begun = if stop.load(Ordering::Relaxed) { Outcome::Interrupted } else { Outcome::Waiting };
    let whole = |of_slice: Vec<Option<Outcome>>| of_slice.into_iter().map(|outcome| outcome.unwrap_or_else(|| not_begun.clone())).collect();
    Ok(outcomes.into_iter().map(whole).collect())
}

/// What is known of each slice's runs before any is made, and the work that is left, in its order.
type Left<'a> = (Vec<Vec<Option<Outcome>>>, Vec<Work<'a>>);

/// Looks for finished runs, makes folders for the others, and checks what these will read.
fn left_to_do<'a>(slices: &'a [Slice<'a>], means: &Means<'_>, say: &dyn Fn(&str)) -> Result<Left<'a>, RunError> {
    let (mut outcomes, mut all, mut checked) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (number, Slice { label, runs, data }) in slices.iter().enumerate() {
        let done = survey(runs, means, say)?;
        outcomes.push(done.iter().map(|done| done.then_some(Outcome::Reused)).collect());
        let mut waiting: Vec<Work<'a>> = Vec::new();
        for (index, (run, _)) in runs.iter().zip(&done).enumerate().filter(|(_, (_, done))| !**done) {
            let name = label.iter().map(|label| format!("{label} ")).collect::<String>() + &run.name();
            let folder = means.cache.join(run.key());
            prepare_folder(&folder, run)?;
            waiting.push(Work { run, name, folder, data, steps: steps_of(run), of: (number, index) });
        }
        // All arms of a seed before the next seed: what is done when the time is up can be compared.
        waiting.sort_by_key(|work| work.run.seed);
        if !waiting.is_empty() && checked.insert(&data.folder) {
            data.check()?;
        }
        all.extend(waiting);
    }
    Ok((outcomes, all))
}

/// What a run read must be what the plan says it read, also after the run; otherwise nobody knows what these runs and their checkpoints were made
/// from, and none of them may be reused. The first fault is told.
fn refuse_changed_data<'a>(tried: impl Iterator<Item = &'a Work<'a>>) -> Result<(), RunError> {
    let mut of_data: BTreeMap<&Path, Vec<&Work<'_>>> = BTreeMap::new();
    tried.for_each(|work| of_data.entry(&work.data.folder).or_default().push(work));
    let mut refused: Vec<RunError> = Vec::new();
    for tried in of_data.into_values() {
        if let Some(Err(error)) = tried.first().map(|work| work.data.check()) {
            refused.push(error.into());
            refused.extend(tried.iter().filter_map(|work| files::remove_folder(&work.folder).err()).map(RunError::from));
        }
    }
    refused.into_iter().next().map_or(Ok(()), Err)
}

/// Which runs the cache holds finished. What is not to be believed is moved aside, what is to be made afresh is forgotten.
///
/// # Errors
/// When a folder cannot be moved or removed, or a trainer is still at work in it.
pub(crate) fn survey(runs: &[PlannedRun], means: &Means<'_>, say: &dyn Fn(&str)) -> Result<Vec<bool>, RunError> {
    let finished = |run: &PlannedRun| {
        let folder = means.cache.join(run.key());
        if means.options.fresh {
            refuse_if_running(&folder)?;
            files::remove_folder(&folder)?;
        }
        let state = run_folder::state(&folder, &run.ingredients);
        if let State::Corrupt(why) = &state {
            refuse_if_running(&folder)?;
            let moved = seal::set_aside(&folder)?;
            say(&format!("{} in the cache cannot be believed ({why}): moved to {}, and run again", run.name(), moved.display()));
        }
        let done = state == State::Finished;
        if done && Seal::read(&folder).is_none() {
            run_folder::seal(&folder)?;
        }
        Ok(done)
    };
    runs.iter().map(finished).collect()
}

/// A trainer that outlived a killed harness still writes there: removing its folder would give one run two writers.
fn refuse_if_running(folder: &Path) -> Result<(), FileError> {
    let path = folder.join("run.yaml");
    match std::fs::File::open(&path).map(|file| file.try_lock()) {
        Ok(Err(std::fs::TryLockError::WouldBlock)) => {
            let source = std::io::Error::other("a trainer of an earlier, killed campaign is still running it; wait for it or stop it");
            Err(FileError { path, action: "start afresh", source })
        }
        _ => Ok(()),
    }
}

/// run.yaml and ingredients.json, written once; a folder with another content under the same key is started over.
pub(crate) fn prepare_folder(folder: &Path, run: &PlannedRun) -> Result<(), FileError> {
    let path = folder.join("run.yaml");
    if std::fs::read_to_string(&path).ok().as_deref() != Some(run.run_yaml.as_str()) {
        files::remove_folder(folder)?;
        files::write(&path, run.run_yaml.as_bytes())?;
    }
    files::write(&folder.join("ingredients.json"), run.ingredients.json().as_bytes())
}

/// `budget.steps` of the run file, for the progress display only.
pub(crate) fn steps_of(run: &PlannedRun) -> u64 {
    #[derive(Deserialize)]
    struct Budget {
        steps: u64,
    }
    #[derive(Deserialize)]
    struct Head {
        budget: Budget,
    }
    serde_yaml::from_str::<Head>(&run.run_yaml).map_or(0, |head| head.budget.steps)
}

/// failed.json, unless the trainer left its own.
pub(crate) fn record_failure(folder: &Path, error: &str) {
    let path = folder.join(run_folder::FAILED);
    if !path.exists() {
        let text = serde_json::json!({"schema": "mxfp4-failed/1", "error": error}).to_string();
        // The failure itself is reported by the caller; a full disk must not hide it.
        let _ = files::write(&path, text.as_bytes());
    }
}

/// `step 120/360 ...` -> 120.
pub(crate) fn progress_step(line: &str) -> Option<u64> {
    line.strip_prefix("step ")?.split('/').next()?.parse().ok()
}
