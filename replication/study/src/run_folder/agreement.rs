//! Whether the files of a finished run agree with each other: run.yaml, metrics.jsonl, timing.jsonl, run.mllog and done.json each say part of
//! what another says, too.
//!
//! Files of one run may all have been changed alike. Nothing here sees that: only making the run again does.

use std::path::Path;

use contract::json::{self, Document as _, Line};
use contract::metrics::{Header, MetricsLine};
use contract::mllog::{self, Blocks, Entry};
use contract::outcome::{Done, Status};
use contract::recipe::Format;
use contract::run_file::RunFile;
use contract::schedule::learning_rate;
use contract::timing::TimingLine;

use crate::files::sha256;
use crate::mllog::{Event, events};
use crate::packed;

/// What is wrong with a file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Relative to the run's folder.
    pub file: &'static str,
    pub what: String,
}

impl Fault {
    fn new(file: &'static str, what: impl Into<String>) -> Self {
        Self { file, what: what.into() }
    }
}

const RUN: &str = "run.yaml";
const DONE: &str = "done.json";
const METRICS: &str = "metrics.jsonl";
const TIMING: &str = "timing.jsonl";
const MLLOG: &str = "run.mllog";

/// Every fault that is found in the finished run in `folder`; of each log the first.
pub fn faults(folder: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (Ok(run), Ok(done)) = (keep(read_run(folder), &mut faults), keep(read_done(folder), &mut faults)) else { return faults };
    let (run, run_sha256) = run;
    if done.run_sha256 != run_sha256 {
        faults.push(Fault::new(DONE, format!("says that run.yaml has SHA-256 {}, but it has {run_sha256}", done.run_sha256)));
    }
    let metrics = text(folder, METRICS).and_then(|text| {
        let found = sha256(text.as_bytes());
        if found != done.metrics_sha256 {
            return Err(Fault::new(METRICS, format!("its SHA-256 is {found}, done.json says {}", done.metrics_sha256)));
        }
        Metrics::read(&run, &done, &text)
    });
    if let Ok(metrics) = keep(metrics, &mut faults) {
        faults.extend(check_done(&run, &done, &metrics).map(|what| Fault::new(DONE, what)));
        let _ = keep(text(folder, MLLOG).and_then(|text| check_mllog(&run, &done, &metrics, &text)), &mut faults);
    }
    let _ = keep(text(folder, TIMING).and_then(|text| check_timing(&run, &done, &text)), &mut faults);
    faults
}

/// The value, or nothing and one fault more.
fn keep<T>(result: Result<T, Fault>, faults: &mut Vec<Fault>) -> Result<T, ()> {
    result.map_err(|fault| faults.push(fault))
}

fn text(folder: &Path, file: &'static str) -> Result<String, Fault> {
    packed::text(&folder.join(file)).map_err(|error| Fault::new(file, format!("cannot {}: {}", error.action, error.source)))
}

fn read_run(folder: &Path) -> Result<(RunFile, String), Fault> {
    let text = text(folder, RUN)?;
    let run = RunFile::parse(RUN, &text).map_err(|error| Fault::new(RUN, error.to_string()))?;
    Ok((run, sha256(text.as_bytes())))
}

fn read_done(folder: &Path) -> Result<Done, Fault> {
    Done::from_json(DONE, &text(folder, DONE)?).map_err(|error| Fault::new(DONE, error.what))
}

fn lines<T: Line>(file: &'static str, text: &str, mut take: impl FnMut(T) -> Result<(), String>) -> Result<(), Fault> {
    for line in json::read::<T>(file, text) {
        let (number, line) = line.map_err(|error| Fault::new(file, format!("line {}: {}", error.line, error.what)))?;
        take(line).map_err(|what| Fault::new(file, format!("line {number}: {what}")))?;
    }
    Ok(())
}

/// Tokens after `step`.
fn tokens(run: &RunFile, step: u64) -> u64 {
    step.saturating_mul(run.tokens_per_step() as u64)
}

/// The first multiple of `every` after `step`, or the run's last step where that comes first.
fn next_due(run: &RunFile, step: u64, every: u64) -> u64 {
    let every = every.max(1);
    (step / every).saturating_add(1).saturating_mul(every).min(run.budget.steps)
}

/// What the other files are held against.
struct Metrics {
    /// Step and loss.
    evaluations: Vec<(u64, f64)>,
    /// Step and loss of the last train line.
    last_train: Option<(u64, Option<f64>)>,
}

/// Reads metrics.jsonl line by line: what may come next follows from the run file.
struct Walk<'a> {
    run: &'a RunFile,
    done: &'a Done,
    header: bool,
    diverged: bool,
    metrics: Metrics,
    /// Recipes of readings that are still to come.
    readings: Vec<&'a str>,
}

impl Metrics {
    fn read(run: &RunFile, done: &Done, text: &str) -> Result<Self, Fault> {
        let metrics = Self { evaluations: Vec::new(), last_train: None };
        let mut walk = Walk { run, done, header: false, diverged: false, metrics, readings: Vec::new() };
        lines(METRICS, text, |line| walk.line(line))?;
        walk.end().map_err(|what| Fault::new(METRICS, what))
    }
}

impl<'a> Walk<'a> {
    fn line(&mut self, line: MetricsLine) -> Result<(), String> {
        match &line {
            MetricsLine::Header(_) if self.header => return Err("a second header".to_owned()),
            MetricsLine::Header(_) => {}
            _ if !self.header => return Err("the first line is not a header".to_owned()),
            _ if self.diverged => return Err("comes after the run diverged".to_owned()),
            MetricsLine::Reading(_) => {}
            _ if !self.readings.is_empty() => return Err(format!("the reading through {} is missing before it", self.readings[0])),
            _ => {}
        }
        match line {
            MetricsLine::Header(header) => self.header(&header),
            MetricsLine::Train(train) => {
                let due = next_due(self.run, self.metrics.last_train.map_or(0, |(step, _)| step), self.run.logging.train_every_steps);
                self.at("train", train.step, train.tokens, due)?;
                let rate = learning_rate(&self.run.optimizer, &self.run.schedule, train.step);
                if train.learning_rate != rate {
                    return Err(format!("learning rate {}, but run.yaml gives {rate} at step {}", train.learning_rate, train.step));
                }
                self.metrics.last_train = Some((train.step, train.loss));
                Ok(())
            }
            MetricsLine::Evaluation(evaluation) => {
                let last = self.metrics.evaluations.last();
                let due = last.map_or(0, |(step, _)| next_due(self.run, *step, self.run.evaluation.every_steps));
                self.at("eval", evaluation.step, evaluation.tokens, due)?;
                // One that is not finite ends a run without its line.
                let loss = evaluation.loss.ok_or("an evaluation without a loss")?;
                self.metrics.evaluations.push((evaluation.step, loss));
                self.readings = self.due_readings(evaluation.step);
                Ok(())
            }
            MetricsLine::Reading(reading) => {
                let step = self.metrics.evaluations.last().map(|(step, _)| *step);
                if self.readings.first() != Some(&reading.recipe.as_str()) || step != Some(reading.step) {
                    return Err(format!("a reading through {} that is not due here", reading.recipe));
                }
                self.readings.remove(0);
                self.at("reading", reading.step, reading.tokens, reading.step)
            }
            MetricsLine::Quantisation(record) => {
                let format = self.format(&record.pass, &record.operand).ok_or("an operand that no pass has")?;
                let linears = self.run.model.linears();
                let known =
                    linears.iter().any(|(name, ..)| *name == record.linear) && record.layer < self.run.model.num_hidden_layers as u64;
                if record.format != format || !known || !self.run.logging.quantisation_steps.contains(&record.step) {
                    return Err("a record of a step, layer, linear or format that run.yaml does not have".to_owned());
                }
                Ok(())
            }
            MetricsLine::Diverged(diverged) => {
                self.diverged = true;
                let at_evaluation = diverged.step == self.done.steps;
                if !at_evaluation && diverged.step != self.done.steps.saturating_add(1) {
                    return Err(format!("diverged at step {}, done.json ends after {}", diverged.step, self.done.steps));
                }
                Ok(())
            }
        }
    }

    fn header(&mut self, header: &Header) -> Result<(), String> {
        self.header = true;
        let identity = &self.run.run;
        if (&header.profile, &header.arm, header.seed) != (&identity.profile, &identity.arm, identity.seed) {
            return Err(format!("is profile {} arm `{}` seed {}, not run.yaml's", header.profile, header.arm, header.seed));
        }
        if u128::from(header.parameters) != self.run.model.parameters() || header.tokens_per_step != self.run.tokens_per_step() as u64 {
            return Err("parameters or tokens of a step are not those of run.yaml's model and batch".to_owned());
        }
        Ok(())
    }

    fn at(&self, kind: &str, step: u64, seen: u64, due: u64) -> Result<(), String> {
        if step != due || step > self.done.steps {
            return Err(format!("{kind} at step {step}; after run.yaml and the lines before it the next is at {due}"));
        }
        let expected = tokens(self.run, step);
        if seen == expected { Ok(()) } else { Err(format!("{kind}: {seen} tokens, but step {step} is after {expected}")) }
    }

    fn due_readings(&self, step: u64) -> Vec<&'a str> {
        let readings = self.run.evaluation.readings.as_ref();
        let due = readings.filter(|readings| step.is_multiple_of(readings.every_steps.max(1)) || step == self.run.budget.steps);
        due.into_iter().flat_map(|readings| readings.forwards.iter().map(|forward| forward.recipe.as_str())).collect()
    }

    fn format(&self, pass: &str, operand: &str) -> Option<Format> {
        let all = self.run.recipe.passes.all();
        all.into_iter().find(|(of, name, _)| *of == pass && *name == operand).map(|(_, _, spec)| spec.format)
    }

    fn end(self) -> Result<Metrics, String> {
        let Self { run, done, metrics, .. } = self;
        if !self.header {
            return Err("is empty".to_owned());
        }
        if let Some(recipe) = self.readings.first() {
            return Err(format!("ends before the reading through {recipe}"));
        }
        if self.diverged != (done.status == Status::Diverged) {
            return Err(format!("{} a line that it diverged, done.json says otherwise", if self.diverged { "has" } else { "lacks" }));
        }
        let last_train = metrics.last_train.map_or(0, |(step, _)| step);
        let last_evaluation = metrics.evaluations.last().map(|(step, _)| *step);
        let train = next_due(run, last_train, run.logging.train_every_steps);
        let evaluation = last_evaluation.map_or(0, |step| next_due(run, step, run.evaluation.every_steps));
        // A run that diverged in an evaluation has no line of it.
        let missing = |due: u64, last: Option<u64>, slack: u64| due.saturating_add(slack) <= done.steps && last != Some(due);
        if missing(train, Some(last_train), 0) || missing(evaluation, last_evaluation, u64::from(self.diverged)) {
            return Err(format!("ends before step {}, at which done.json ends", done.steps));
        }
        Ok(metrics)
    }
}

/// What done.json says that metrics.jsonl and run.yaml do not.
fn check_done(run: &RunFile, done: &Done, metrics: &Metrics) -> Option<String> {
    let completed = done.status == Status::Completed;
    if done.steps > run.budget.steps || completed && done.steps != run.budget.steps {
        return Some(format!("says {} steps, run.yaml's budget is {}", done.steps, run.budget.steps));
    }
    if done.tokens != tokens(run, done.steps) {
        return Some(format!("says {} tokens, but {} steps are {}", done.tokens, done.steps, tokens(run, done.steps)));
    }
    let validation = metrics.evaluations.last().map(|(_, loss)| *loss);
    if done.final_validation_loss != validation {
        return Some(format!(
            "says a final validation loss of {}, metrics.jsonl {}",
            number(done.final_validation_loss),
            number(validation)
        ));
    }
    // Between two lines a run may diverge after a step whose loss stands nowhere else.
    let logged = metrics.last_train.filter(|(step, _)| *step == done.steps);
    if let Some((_, loss)) = logged.filter(|(_, loss)| *loss != done.final_train_loss) {
        return Some(format!("says a final training loss of {}, metrics.jsonl {}", number(done.final_train_loss), number(loss)));
    }
    if done.model_sha256.is_some() != completed {
        return Some("has weights if and only if the run completed".to_owned());
    }
    None
}

fn number(loss: Option<f64>) -> String {
    loss.map_or("nothing".to_owned(), |loss| loss.to_string())
}

/// Sessions whose steps follow on each other up to the run's last. A session may begin after a gap: a machine that lost power loses times,
/// which nobody syncs, and no step.
fn check_timing(run: &RunFile, done: &Done, text: &str) -> Result<(), Fault> {
    let mut at = None;
    lines(TIMING, text, |line| {
        let (kind, seconds) = match line {
            TimingLine::Session(session) => {
                at = Some(session.resumed_from_step);
                return Ok(());
            }
            TimingLine::Step(seconds) => ("step", seconds),
            TimingLine::Evaluation(seconds) => ("eval", seconds),
        };
        let before = at.ok_or("the first line is not a session")?;
        let expected = if kind == "step" { before.saturating_add(1) } else { before };
        if seconds.step != expected || expected > run.budget.steps {
            return Err(format!("{kind} {}, but {expected} is next", seconds.step));
        }
        if !(seconds.seconds.is_finite() && seconds.seconds >= 0.0) {
            return Err(format!("{} seconds is no time", seconds.seconds));
        }
        at = Some(expected);
        Ok(())
    })?;
    match at {
        Some(step) if step == done.steps => Ok(()),
        Some(step) => Err(Fault::new(TIMING, format!("ends at step {step}, done.json at {}", done.steps))),
        None => Err(Fault::new(TIMING, "is empty")),
    }
}

/// What the log says, times and places in a source apart, is what run file and losses give.
fn check_mllog(run: &RunFile, done: &Done, metrics: &Metrics, text: &str) -> Result<(), Fault> {
    let wrong = |what: String| Fault::new(MLLOG, what);
    let logged = events(text).map_err(wrong)?;
    let start = logged.iter().position(|event| event.key == "run_start").ok_or_else(|| wrong("has no run_start".to_owned()))?;
    let expected = mllog::begin(run);
    // An earlier trainer may have logged fewer settings, and a later one more.
    let other = |event: &&Event| expected.iter().any(|entry| entry.key == event.key && !says(event, entry));
    if let Some(event) = logged[..=start].iter().find(other) {
        return Err(wrong(format!("line {}: {} is {}, run.yaml says otherwise", event.line, event.key, event.text())));
    }
    let samples = |step: u64| step.saturating_mul(run.batch.sequences as u64);
    let (mut blocks, mut entries) = (Blocks::default(), Vec::new());
    for &(step, loss) in &metrics.evaluations {
        entries.extend(blocks.evaluation(run, samples(step), loss, step == run.budget.steps));
    }
    let reached = metrics.evaluations.iter().find(|(_, loss)| run.target_loss.is_some_and(|target| *loss <= target));
    entries.extend(blocks.end(samples(done.steps), reached.map(|(step, _)| samples(*step))));
    let rest = &logged[start + 1..];
    match rest.iter().zip(&entries).find(|(event, entry)| !says(event, entry)) {
        Some((event, entry)) => Err(wrong(format!(
            "line {}: {} {}, but metrics.jsonl gives {} {}",
            event.line,
            event.key,
            event.text(),
            entry.key,
            entry.value
        ))),
        None if rest.len() != entries.len() => {
            Err(wrong(format!("has {} entries after run_start, metrics.jsonl gives {}", rest.len(), entries.len())))
        }
        None => Ok(()),
    }
}

fn says(event: &Event, entry: &Entry) -> bool {
    let metadata = event.metadata.iter().filter(|(key, _)| !["file", "lineno"].contains(&key.as_str()));
    event.key == entry.key && event.kind.word() == entry.event.word() && event.value == entry.value && metadata.eq(&entry.metadata)
}
