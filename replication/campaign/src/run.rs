//! Runs: trainer subprocesses, one in each place of the pool, reused when finished, resumed when killed.
//!
//! A run's folder in the cache is named by its key; `done.json` says that it is finished. Nothing here looks at losses.

pub(crate) mod progress;
mod why;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use contract::exchange;
use serde::Deserialize;
use study::exit::MACHINE;
use study::files::{self, FileError};
use study::plan::PlannedRun;
use study::run_folder::{self, State, is_finished, ran_elsewhere};
use study::seal::{self, Seal};

use crate::data::{DataError, PreparedData};
use crate::pool::{self, Attempt, Turn};
use crate::ranks;
use crate::system::{in_a_group_of_its_own, kill_groups, tell_to_end};
use crate::toolchain::Trainer;

use progress::Progress;

pub use why::why;

/// How runs are carried out; none of it changes a result.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Trainer processes at once on the CPU; on GPUs there is one on each.
    pub parallel: usize,
    pub threads: usize,
    /// `auto`, `scalar`, `avx2` or `avx512`.
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

/// A run that is to be made.
struct Work<'a> {
    run: &'a PlannedRun,
    /// As progress shows it.
    name: String,
    /// In the cache.
    folder: PathBuf,
    data: &'a PreparedData,
    steps: u64,
    /// Of which slice, and which of its runs.
    of: (usize, usize),
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

/// What every run is carried out with.
struct Engine<'a> {
    trainer: &'a Trainer,
    options: &'a RunOptions,
    ranks: usize,
    keep: bool,
    tensorboard: Option<&'a Path>,
    stop: &'a AtomicBool,
    /// When runs at work must end.
    ends: Option<Instant>,
    progress: &'a Progress,
}

impl Engine<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.ends.is_some_and(|ends| Instant::now() > ends)
    }

    /// A call of the trainer: one process, or one that starts the ranks of the run.
    fn command(&self, work: &Work<'_>, place: &str) -> duct::Expression {
        let (subcommand, at_place, shown) = match self.ranks {
            1 => ("run", vec!["--device".to_owned(), place.to_owned()], None),
            ranks => {
                let (words, shown) = ranks::at_place(place, ranks, &ranks::of_process);
                ("launch", words, shown)
            }
        };
        let mut arguments: Vec<OsString> = vec![subcommand.into(), work.folder.join("run.yaml").into()];
        arguments.extend(["--data".into(), work.data.folder.clone().into()]);
        arguments.extend(at_place.into_iter().map(OsString::from));
        arguments.extend(["--threads".into(), self.options.threads.to_string().into()]);
        arguments.extend(["--instruction-set".into(), self.options.instruction_set.clone().into()]);
        // A trainer may outlive a harness that was killed; its run goes on and is then found finished.
        arguments.extend(["--progress", "--wait-for-lock", "60"].map(OsString::from));
        // Not said where they are not wanted: a trainer that was built elsewhere may not know them.
        arguments.extend((!self.keeps(place)).then(|| "--logs-only".into()));
        arguments.extend(self.tensorboard.iter().flat_map(|folder| ["--tensorboard".into(), (*folder).into()]));
        let command = self.trainer.command(arguments);
        if self.ranks == 1 {
            return command;
        }
        let command = command.before_spawn(|command| {
            // To end it by force is to end its ranks.
            in_a_group_of_its_own(command);
            Ok(())
        });
        shown.into_iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    /// One run, to its end. One of several ranks that lost any of them goes on once from its checkpoint, where it was.
    fn attempt(&self, work: &Work<'_>, place: &str, turn: Option<&Turn<'_>>) -> Attempt<Outcome> {
        match self.once(work, place, turn) {
            Attempt::Lost(_) if self.ranks > 1 && !self.stopped() => {
                self.progress.say(&format!("{} lost a rank on {place}; it goes on from its last checkpoint", work.name));
                self.once(work, place, turn)
            }
            ended => ended,
        }
    }

    /// One call of the trainer, from its start to its end.
    fn once(&self, work: &Work<'_>, place: &str, turn: Option<&Turn<'_>>) -> Attempt<Outcome> {
        let Work { run, folder, .. } = work;
        let reader = match self.command(work, place).stderr_to_stdout().reader() {
            Ok(reader) => reader,
            Err(error) => return Attempt::Done(Outcome::Failed(Failure::of_the_run(format!("the trainer could not be started: {error}")))),
        };
        let last = self.watch(&reader, work, place, turn);
        let status = reader.try_wait().ok().flatten().map(|output| output.status);
        if is_finished(folder, &run.ingredients.run) && status.is_some_and(|status| status.success()) {
            return match ran_elsewhere(folder, place) {
                None => {
                    // Left unsealed, it is looked at more closely when it is used again.
                    let _ = run_folder::seal(folder);
                    self.tidy(folder, place);
                    Attempt::Done(Outcome::Finished)
                }
                Some(error) => {
                    // Nobody may take it for a finished run of this device.
                    let _ = files::remove(&folder.join("done.json"));
                    record_failure(folder, &error);
                    Attempt::Done(Outcome::Failed(Failure::of_the_run(error)))
                }
            };
        }
        if self.stopped() {
            return Attempt::Done(Outcome::Interrupted);
        }
        let code = status.and_then(|status| status.code());
        let status = status.map_or("no exit status".to_owned(), |status| status.to_string());
        let error = format!("{status}: {}", if last.is_empty() { "the trainer said nothing".to_owned() } else { last.join("\n") });
        record_failure(folder, &error);
        // Killed, or the machine could not: a device may be gone. Wrong input is wrong everywhere.
        let machine = code == Some(i32::from(MACHINE));
        let lost = machine || matches!(code, None | Some(101));
        let failed = Outcome::Failed(Failure { said: error, machine });
        if lost { Attempt::Lost(failed) } else { Attempt::Done(failed) }
    }

    /// Whether checkpoint and weights of a finished run are kept.
    fn keeps(&self, place: &str) -> bool {
        place == "cpu" || self.keep
    }

    /// What a finished run does not need: all runs of a large campaign would fill the disk.
    fn tidy(&self, folder: &Path, place: &str) {
        if !self.keeps(place) {
            for name in ["checkpoint", "model"] {
                // Left over at worst.
                let _ = files::remove_folder(&folder.join(name));
            }
        }
    }

    /// Follows a trainer to its end, or ends it; its last lines.
    fn watch(&self, reader: &duct::ReaderHandle, work: &Work<'_>, place: &str, turn: Option<&Turn<'_>>) -> Vec<String> {
        let &Work { ref name, steps, .. } = work;
        let last = Mutex::new(VecDeque::new());
        let ended = AtomicBool::new(false);
        self.progress.at_work(place, name, Some("begins".to_owned()));
        std::thread::scope(|scope| {
            let follow = || {
                let (mut seen, mut pace) = (0, Pace::default());
                // Bytes, not text: a line that is not UTF-8 must not end the reading, or the trainer blocks on a full pipe.
                for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if let Some(step) = progress_step(&line) {
                        self.progress.at_work(place, name, Some(format!("step {step}/{steps}")));
                        if let Some(turn) = turn.filter(|_| pace.left(step, steps).is_some_and(|left| left <= START_UP)) {
                            turn.hand_on();
                        }
                        self.progress.advance(step.saturating_sub(seen));
                        seen = seen.max(step);
                    } else {
                        if line.starts_with(exchange::TOLD) {
                            self.progress.say(&format!("{name}: {line}"));
                        }
                        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                        last.push_back(line);
                        if last.len() > 40 {
                            last.pop_front();
                        }
                    }
                }
                self.progress.advance(steps.saturating_sub(seen));
                ended.store(true, Ordering::Relaxed);
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, follow) {
                let _ = reader.kill();
                last.lock().unwrap_or_else(PoisonError::into_inner).push_back(format!("the system gives no thread to follow it ({error})"));
                ended.store(true, Ordering::Relaxed);
            }
            // A trainer that is told to stop ends by itself after its step and a checkpoint; one that does not is killed, and later goes on
            // from its last checkpoint. A GPU's model takes longer to write.
            let patience = Duration::from_secs(if place == "cpu" { 3 } else { 30 });
            let mut deadline = None;
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                if !self.stopped() {
                    continue;
                }
                let deadline = *deadline.get_or_insert_with(|| {
                    tell_to_end(&reader.pids());
                    Instant::now() + patience
                });
                if Instant::now() > deadline {
                    if self.ranks > 1 {
                        kill_groups(&reader.pids());
                    }
                    let _ = reader.kill();
                }
            }
        });
        self.progress.at_work(place, name, None);
        self.progress.run_done();
        last.into_inner().unwrap_or_else(PoisonError::into_inner).into()
    }
}

/// What a trainer takes from its start to its first step on a GPU that is warm (1.6 to 2.8 s for 110M parameters on an H200).
const START_UP: Duration = Duration::from_secs(2);

/// How fast a run's steps follow each other.
#[derive(Debug, Default)]
struct Pace {
    /// The first step that was seen, and when.
    first: Option<(u64, Instant)>,
}

impl Pace {
    /// Until the last of `steps`, at the pace so far; none before there is one.
    fn left(&mut self, step: u64, steps: u64) -> Option<Duration> {
        let (first, since) = *self.first.get_or_insert_with(|| (step, Instant::now()));
        let each = since.elapsed().checked_div(u32::try_from(step.checked_sub(first)?).ok()?)?;
        Some(each.saturating_mul(u32::try_from(steps.saturating_sub(step)).ok()?))
    }
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
