//! Follows a campaign's arrays to the end of its runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use study::files;
use study::folder::{LockError, lock_cache};
use study::plan::PlannedRun;
use study::run_folder;

use crate::carry::{self, Carried};
use crate::error::CampaignError;
use crate::run::progress::Progress;
use crate::run::{Failure, Means, Outcome, progress_step, steps_of};
use crate::toolchain::last_lines;

use super::queue::{self, Task};
use super::script::{self, Ended, Job, MOST_TASKS, NOT_SHARED};
use super::state::{Array, State};
use super::{Order, job, name_of};

/// Submissions of a run whose checkpoint gets no further.
const MOST_TRIES: usize = 3;

/// Where a run stands.
enum Standing {
    /// A task of the queue.
    AtWork(Task),
    Finished,
    /// Its last task is over and left nothing that is finished.
    Over(Option<Ended>),
    Unsubmitted,
}

pub(super) struct Following<'a> {
    order: &'a Order<'a>,
    means: &'a Means<'a>,
    say: &'a dyn Fn(&str),
    folder: PathBuf,
    name: String,
    state: State,
    outcomes: Vec<Option<Outcome>>,
    /// Since when a run's task is neither in the queue nor has left a word.
    missing: BTreeMap<usize, Instant>,
    /// Steps that were seen, by run.
    seen: BTreeMap<usize, u64>,
    progress: Progress,
}

impl<'a> Following<'a> {
    pub(super) fn new(
        order: &'a Order<'a>,
        folder: PathBuf,
        done: &[bool],
        means: &'a Means<'a>,
        say: &'a dyn Fn(&str),
    ) -> Result<Self, CampaignError> {
        let runs = &order.prepared.plan.runs;
        let name = name_of(&folder);
        let left = || runs.iter().zip(done).filter(|(_, done)| !**done).map(|(run, _)| run);
        let mut state = State::load(&folder)?;
        let in_queue = queue::look(&name)?.map_err(|said| CampaignError::Slurm(format!("squeue says: {said}")))?;
        state.adopt(in_queue.iter().map(|task| task.job));
        if means.options.fresh {
            if let Some(task) = in_queue.first() {
                let line = format!("--fresh: array {} is still at work on these runs; end it with `scancel --name={name}` first", task.job);
                return Err(CampaignError::Slurm(line));
            }
            files::remove_folder(&folder.join("runs"))?;
            state.arrays.clear();
        } else if !in_queue.is_empty() {
            say(&format!("{} tasks of an earlier command are in the queue; they are followed ({name})", in_queue.len()));
        }
        let progress = Progress::new(left().map(steps_of).sum(), left().count(), order.quiet);
        let outcomes = done.iter().map(|done| done.then_some(Outcome::Reused)).collect();
        let (missing, seen) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { order, means, say, folder, name, state, outcomes, missing, seen, progress })
    }

    /// Until every run is finished or has failed, or someone asks to stop: the arrays then go on.
    pub(super) fn finish(mut self, stop: &AtomicBool) -> Result<Vec<Outcome>, CampaignError> {
        let [first, longest] = self.order.slurm.pace.pauses;
        let (mut pause, mut complaint) = (first, None);
        while self.outcomes.iter().any(Option::is_none) && !stop.load(Ordering::Relaxed) {
            let before = (self.open(), self.state.arrays.len());
            match queue::look(&self.name)? {
                Ok(tasks) => {
                    complaint = None;
                    self.look_at(&tasks)?;
                }
                // A controller that restarts says nothing about its jobs.
                Err(said) if complaint.as_ref() != Some(&said) => {
                    self.progress.say(&format!("squeue does not answer, and is asked again: {said}"));
                    complaint = Some(said);
                }
                Err(_) => {}
            }
            // Where something ended or was submitted, more is to be seen soon.
            let quiet = before == (self.open(), self.state.arrays.len());
            pause = if quiet { (pause * 3 / 2).min(longest) } else { first };
            wait(pause, stop, self.open() == 0);
        }
        self.progress.end();
        if self.open() > 0 {
            let name = &self.name;
            (self.say)(&format!(
                "the tasks in the queue go on without this command, which finds them again; `scancel --name={name}` ends them"
            ));
        }
        Ok(self.outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Interrupted)).collect())
    }

    fn open(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_none()).count()
    }

    fn run(&self, index: usize) -> &'a PlannedRun {
        &self.order.prepared.plan.runs[index]
    }

    fn run_folder(&self, index: usize) -> PathBuf {
        self.folder.join("runs").join(self.run(index).key())
    }

    /// One look at every run that is open.
    fn look_at(&mut self, tasks: &[Task]) -> Result<(), CampaignError> {
        self.refuse_to_wait_for_ever(tasks)?;
        let (mut again, mut running, mut waiting) = (Vec::new(), 0, Vec::new());
        for index in (0..self.outcomes.len()).filter(|&index| self.outcomes[index].is_none()).collect::<Vec<_>>() {
            match self.standing(index, tasks) {
                Standing::AtWork(task) if task.state == "PENDING" => waiting.push(task.reason),
                Standing::AtWork(_) => {
                    running += 1;
                    self.show_steps(index);
                }
                Standing::Finished => self.take_in(index)?,
                Standing::Over(ended) => {
                    if self.is_to_be_tried_again(index, ended)? {
                        again.push(index);
                    }
                }
                Standing::Unsubmitted => again.push(index),
            }
        }
        self.submit(&again)?;
        let why = waiting.first().map_or(String::new(), |reason| format!(" ({reason})"));
        self.progress.at_work("Slurm", &self.name, Some(format!("{running} running, {} waiting{why}", waiting.len() + again.len())));
        Ok(())
    }

    fn standing(&mut self, index: usize, tasks: &[Task]) -> Standing {
        let (run, folder) = (self.run(index), self.run_folder(index));
        let is_finished = || run_folder::is_finished(&folder, &run.ingredients.run);
        let Some((job, number)) = self.state.newest(&run.key()) else {
            return if is_finished() { Standing::Finished } else { Standing::Unsubmitted };
        };
        let ended = Ended::read(&folder).filter(|ended| ended.task == (job, number));
        // A result is there for good. Any other end may be a requeue's, which the queue knows.
        if ended.is_some_and(|ended| ended.code == 0) && is_finished() {
            return Standing::Finished;
        }
        if let Some(task) = tasks.iter().find(|task| (task.job, task.index) == (job, number)) {
            self.missing.remove(&index);
            return Standing::AtWork(task.clone());
        }
        let since = *self.missing.entry(index).or_insert_with(Instant::now);
        if ended.is_none() && since.elapsed() < self.order.slurm.pace.late {
            let (state, reason) = ("COMPLETING".to_owned(), String::new());
            return Standing::AtWork(Task { job, index: number, state, reason });
        }
        self.missing.remove(&index);
        // Without its last word, too, a run may be finished.
        if is_finished() { Standing::Finished } else { Standing::Over(ended) }
    }

    /// A reason that does not pass ends the command: the user has to ask for something else.
    fn refuse_to_wait_for_ever(&self, tasks: &[Task]) -> Result<(), CampaignError> {
        let Some(task) = tasks.iter().find(|task| task.waits_for_ever()) else { return Ok(()) };
        let stuck = tasks.iter().filter(|other| other.waits_for_ever()).map(|task| format!("{}_{}", task.job, task.index));
        queue::cancel(stuck)?;
        self.progress.end();
        let (job, reason) = (task.job, &task.reason);
        Err(CampaignError::Slurm(format!("array {job} would wait for ever ({reason}) and was ended; {}", queue::what_to_do(reason))))
    }

    /// Into the cache, with checkpoint and weights where a run here would leave them. While another command is at work there it waits.
    fn take_in(&mut self, index: usize) -> Result<(), CampaignError> {
        let _lock = match lock_cache(self.order.root) {
            Err(LockError::Held { .. }) => return Ok(()),
            held => held?,
        };
        let (run, folder) = (self.run(index), self.run_folder(index));
        let mut carried = Carried::default();
        carry::take(&folder, self.means.cache, false, &mut carried)?;
        if let Some(why) = carried.refused.pop() {
            files::remove_folder(&folder)?;
            return self.fail(index, Failure { said: why, machine: false });
        }
        let to = self.means.cache.join(run.key());
        for name in ["checkpoint", "model"] {
            let kept = self.means.pool.keep_weights || run.ingredients.device == "cpu";
            if kept && folder.join(name).exists() && !to.join(name).exists() {
                files::rename(&folder.join(name), &to.join(name), "move into the cache")?;
            }
        }
        files::remove(&to.join(run_folder::FAILED))?;
        files::remove_folder(&folder)?;
        self.outcomes[index] = Some(Outcome::Finished);
        self.advance(index, steps_of(run));
        self.progress.run_done();
        Ok(())
    }

    /// Whether a run that was lost is submitted once more; otherwise it has failed, and that is noted.
    fn is_to_be_tried_again(&mut self, index: usize, ended: Option<Ended>) -> Result<bool, CampaignError> {
        let (run, folder) = (self.run(index), self.run_folder(index));
        files::remove(&folder.join("ended"))?;
        let lost = ended.is_none_or(Ended::lost);
        let step = step_of_checkpoint(&folder);
        let how = ended.map_or("its task has left the queue without a word".to_owned(), |ended| {
            format!("its task ended with exit code {}", ended.code)
        });
        if lost && self.state.tries(&run.key(), step) < MOST_TRIES {
            self.progress.say(&format!("{}: {how}; it is submitted once more, from step {step}", run.name()));
            return Ok(true);
        }
        let log = std::fs::read(self.folder.join("logs").join(format!("{}.log", run.key()))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter(|line| progress_step(line).is_none()).collect();
        let said = match ended {
            None if log.is_empty() => format!("{how}, {MOST_TRIES} times; do the nodes see {}?", self.folder.display()),
            Some(Ended { code: NOT_SHARED, .. }) => format!("the nodes do not see {}", self.folder.display()),
            _ => format!("{how}: {}", last_lines(&lines.join("\n"), 40)),
        };
        self.fail(index, Failure { said, machine: lost })?;
        Ok(false)
    }

    fn fail(&mut self, index: usize, failure: Failure) -> Result<(), CampaignError> {
        self.outcomes[index] = Some(Outcome::Failed(failure));
        self.progress.run_done();
        self.state.forget(&self.run(index).key());
        Ok(self.state.save()?)
    }

    /// Arrays of these runs, each written down before it is submitted and after.
    fn submit(&mut self, runs: &[usize]) -> Result<(), CampaignError> {
        for part in runs.chunks(MOST_TASKS) {
            let planned: Vec<&PlannedRun> = part.iter().map(|&index| self.run(index)).collect();
            let cache = self.means.cache;
            for run in &planned {
                // A run that was begun here goes on there.
                if cache.join(run.key()).join("checkpoint").is_dir() {
                    carry::take(&cache.join(run.key()), &self.folder.join("runs"), true, &mut Carried::default())?;
                }
            }
            let number = self.state.arrays.len() + 1;
            let job: Job<'_> = job(self.order.prepared, self.order.data, &self.name, self.means.pool.ranks);
            let script = script::write(&self.folder, number, &planned, &job, self.means)?;
            let from = part.iter().map(|&index| step_of_checkpoint(&self.run_folder(index))).collect();
            self.state.arrays.push(Array { job: None, runs: planned.iter().map(|run| run.key()).collect(), from });
            self.state.save()?;
            // Whatever became of an sbatch that did not end well, the next command finds it.
            let job = queue::submit(&script, &self.order.slurm.options).inspect_err(|_| self.progress.end())?;
            self.state.arrays[number - 1].job = Some(job);
            self.state.save()?;
            self.progress.say(&format!(
                "array {job} of {} runs is submitted ({}); its files: {}",
                part.len(),
                self.name,
                self.folder.display()
            ));
        }
        Ok(())
    }

    /// What a run's log says last of its steps.
    fn show_steps(&mut self, index: usize) {
        let path = self.folder.join("logs").join(format!("{}.log", self.run(index).key()));
        let step = tail(&path).as_deref().and_then(|text| text.lines().rev().find_map(progress_step));
        self.advance(index, step.unwrap_or_default());
    }

    fn advance(&mut self, index: usize, step: u64) {
        let seen = self.seen.entry(index).or_default();
        self.progress.advance(step.saturating_sub(*seen));
        *seen = step.max(*seen);
    }
}

/// Waits, or until someone asks to stop.
fn wait(pause: Duration, stop: &AtomicBool, over: bool) {
    let until = Instant::now() + pause;
    while !over && Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Steps of the checkpoint in a run's folder; none yet is 0.
fn step_of_checkpoint(folder: &Path) -> u64 {
    let text = std::fs::read_to_string(folder.join("checkpoint/state.json")).unwrap_or_default();
    serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|state| state["step"].as_u64()).unwrap_or_default()
}

/// The last few kilobytes of a file.
fn tail(path: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4096))).ok()?;
    let mut bytes = Vec::new();
    file.take(4096).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
