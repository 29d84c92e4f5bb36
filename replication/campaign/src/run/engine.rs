//! One run in one place: the trainer's process, what it says of its progress, and how it ended.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use contract::exchange;
use study::exit::MACHINE;
use study::files::{self};
use study::plan::PlannedRun;
use study::run_folder::{self, is_finished, ran_elsewhere};

use super::progress::Progress;
use super::{Failure, Outcome, RunOptions, progress_step, record_failure};
use crate::data::PreparedData;
use crate::pool::{Attempt, Turn};
use crate::ranks;
use crate::system::{in_a_group_of_its_own, kill_groups, tell_to_end};
use crate::toolchain::Trainer;

/// A run that is to be made.
pub(super) struct Work<'a> {
    pub(super) run: &'a PlannedRun,
    /// As progress shows it.
    pub(super) name: String,
    /// In the cache.
    pub(super) folder: PathBuf,
    pub(super) data: &'a PreparedData,
    pub(super) steps: u64,
    /// Of which slice, and which of its runs.
    pub(super) of: (usize, usize),
}

/// What every run is carried out with.
pub(super) struct Engine<'a> {
    pub(super) trainer: &'a Trainer,
    pub(super) options: &'a RunOptions,
    pub(super) ranks: usize,
    pub(super) keep: bool,
    pub(super) tensorboard: Option<&'a Path>,
    pub(super) stop: &'a AtomicBool,
    /// When runs at work must end.
    pub(super) ends: Option<Instant>,
    pub(super) progress: &'a Progress,
}

impl Engine<'_> {
    pub(super) fn stopped(&self) -> bool {
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
    pub(super) fn attempt(&self, work: &Work<'_>, place: &str, turn: Option<&Turn<'_>>) -> Attempt<Outcome> {
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
