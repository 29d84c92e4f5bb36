//! Follows the entries of one file from run to run: what each run logged, and what cannot be true of it.
//!
//! A run begins with its header (`cache_clear`, `init_start`, `submission_benchmark`) or, where there is none, with `run_start`.
//! Ranks of one job repeat header lines; they agree or it is a finding. Samples of an evaluation are those of its `eval_start`, where
//! it has one: AMD's v5.1 code writes the `samples_count` of `eval_accuracy` one step low.

use std::collections::BTreeMap;

use super::keys::{self, Known};
use super::line::{Event, Kind, plain, whole};
use super::run::{LoggedEvaluation, LoggedRun, Options, Status};
use super::{Finding, Level};
use crate::number;

/// A mark that is open: when, where, at how many samples.
#[derive(Debug, Clone, Copy)]
struct Open {
    time_ms: i64,
    line: u64,
    samples: Option<u64>,
    /// A block that an evaluation lies in: not training alone.
    evaluates: bool,
}

impl Open {
    fn at(event: &Event) -> Self {
        Self { time_ms: event.time_ms, line: event.line, samples: event.whole("samples_count"), evaluates: false }
    }
}

struct Draft {
    run: LoggedRun,
    init_stopped: bool,
    block: Option<Open>,
    evaluation: Option<Open>,
    /// Length of the block that ended since the last evaluation.
    trained_ms: Option<i64>,
    /// Blocks without such a length because an evaluation lies in them: the line that opens the first, how many.
    mixed: Option<(u64, usize)>,
    /// Line of `run_stop`.
    stopped: Option<u64>,
    /// Where each setting was first logged.
    lines: BTreeMap<String, u64>,
    last_time: Option<i64>,
    last_line: u64,
    /// Evaluations whose own sample count is not that of their `eval_start`: first line, own count, count used, how many.
    shifted: Option<(u64, u64, u64, usize)>,
}

impl Draft {
    fn new(path: &str, sha256: &str, line: u64) -> Self {
        let run = LoggedRun {
            path: path.to_owned(),
            line,
            sha256: sha256.to_owned(),
            seed: None,
            status: Status::Unfinished,
            benchmark: String::new(),
            submitter: String::new(),
            division: String::new(),
            platform: String::new(),
            precision: None,
            settings: BTreeMap::new(),
            run_start_ms: None,
            run_stop_ms: None,
            samples_at_stop: None,
            evaluations: Vec::new(),
        };
        Self {
            run,
            init_stopped: false,
            block: None,
            evaluation: None,
            trained_ms: None,
            mixed: None,
            stopped: None,
            lines: BTreeMap::new(),
            last_time: None,
            last_line: line,
            shifted: None,
        }
    }
}

/// Reads one file's entries in order.
pub(crate) struct Reader<'a> {
    path: &'a str,
    sha256: &'a str,
    options: &'a Options,
    draft: Option<Draft>,
    runs: Vec<LoggedRun>,
    findings: Vec<Finding>,
    /// Keys that the rules do not name: what was probably meant, first line and how often.
    unknown: BTreeMap<String, (Known, u64, usize)>,
}

/// So many unknown keys are compared with every known one; a file that has more of them has no slips.
const MOST_SLIPS: usize = 100;

/// A clock may differ between ranks by this much before it counts as going back.
const CLOCK_SLACK_MS: i64 = 1000;

impl<'a> Reader<'a> {
    pub(crate) fn new(path: &'a str, sha256: &'a str, options: &'a Options) -> Self {
        Self { path, sha256, options, draft: None, runs: Vec::new(), findings: Vec::new(), unknown: BTreeMap::new() }
    }

    fn find(&mut self, level: Level, line: u64, what: impl Into<String>) {
        self.findings.push(Finding { path: self.path.to_owned(), line, level, what: what.into() });
    }

    fn problem(&mut self, line: u64, what: impl Into<String>) {
        self.find(Level::Problem, line, what);
    }

    /// Takes the next entry, or the reason why a line holds none.
    pub(crate) fn take(&mut self, entry: Result<Event, String>, line: u64) {
        match entry {
            Ok(event) => self.event(&event),
            Err(why) => self.problem(line, why),
        }
    }

    fn event(&mut self, event: &Event) {
        if self.begins_a_run(event) {
            self.finish_run();
        }
        if self.draft.is_none() {
            self.draft = Some(Draft::new(self.path, self.sha256, event.line));
        }
        self.clock(event);
        match event.key.as_str() {
            "init_stop" => self.with(|draft| draft.init_stopped = true),
            "init_start" => self.start_kind(event),
            "run_start" => self.run_start(event),
            "run_stop" => self.run_stop(event),
            "block_start" => self.block_start(event),
            "block_stop" => self.block_stop(event),
            "eval_start" => self.eval_start(event),
            "eval_accuracy" => self.eval_accuracy(event),
            "eval_stop" => self.eval_stop(event),
            _ => self.other(event),
        }
    }

    fn with(&mut self, change: impl FnOnce(&mut Draft)) {
        if let Some(draft) = &mut self.draft {
            change(draft);
        }
    }

    /// Whether this entry belongs to a new run: a header or a start after a stop, or in the middle of evaluations.
    fn begins_a_run(&self, event: &Event) -> bool {
        let Some(draft) = &self.draft else { return false };
        let header = matches!(event.key.as_str(), "cache_clear" | "init_start" | "submission_benchmark" | "run_start");
        // Late ranks repeat header lines after the first rank has started: only evaluations say that the run was under way.
        header && (draft.stopped.is_some() || !draft.run.evaluations.is_empty())
    }

    fn clock(&mut self, event: &Event) {
        let Some(draft) = &mut self.draft else { return };
        let back = draft.last_time.map_or(0, |last| last - event.time_ms);
        let line = draft.last_line;
        draft.last_time = Some(event.time_ms);
        draft.last_line = event.line;
        if back > CLOCK_SLACK_MS {
            self.problem(event.line, format!("the clock goes back {} between line {line} and this one", seconds(back as f64)));
        }
    }

    fn start_kind(&mut self, event: &Event) {
        let first = self.draft.as_ref().is_some_and(|draft| !draft.lines.contains_key("init_start"));
        self.with(|draft| {
            draft.lines.entry("init_start".to_owned()).or_insert(event.line);
        });
        if first && event.kind != Kind::IntervalStart {
            self.find(Level::Note, event.line, format!("init_start is logged as {}, the rules say INTERVAL_START", event.kind.word()));
        }
    }

    fn run_start(&mut self, event: &Event) {
        let Some(draft) = &mut self.draft else { return };
        if draft.run.run_start_ms.is_some() {
            return; // another rank's
        }
        draft.run.run_start_ms = Some(event.time_ms);
        if !draft.init_stopped {
            self.problem(event.line, "run_start before init_stop: initialisation would count as training");
        }
    }

    fn run_stop(&mut self, event: &Event) {
        let Some(draft) = &mut self.draft else { return };
        let status = event.metadata.get("status").map(plain);
        if draft.stopped.is_some() {
            return; // another rank's
        }
        draft.stopped = Some(event.line);
        draft.run.run_stop_ms = Some(event.time_ms);
        draft.run.samples_at_stop = event.whole("samples_count");
        draft.run.status = if status.as_deref() == Some("success") { Status::Success } else { Status::Aborted };
        let started = draft.run.run_start_ms.is_some();
        if !started {
            self.problem(event.line, "run_stop without run_start");
        }
        if status.is_none() {
            self.problem(event.line, "run_stop without a status; it counts as aborted");
        }
    }

    /// A mark that makes sense only between run_start and run_stop.
    fn inside_run(&mut self, event: &Event) -> bool {
        let Some(draft) = &self.draft else { return false };
        let (started, stopped) = (draft.run.run_start_ms.is_some(), draft.stopped);
        match (started, stopped) {
            (true, None) => true,
            (false, _) => {
                self.problem(event.line, format!("{} before run_start; ignored", event.key));
                false
            }
            (true, Some(line)) => {
                self.problem(event.line, format!("{} after run_stop (line {line}); ignored", event.key));
                false
            }
        }
    }

    fn block_start(&mut self, event: &Event) {
        if !self.inside_run(event) {
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        // Where counts stand in blocks, they are AMD's running ones or NVIDIA's of the block alone: only the order of marks tells what lies in one.
        let before = draft.block.replace(Open { evaluates: draft.evaluation.is_some(), ..Open::at(event) });
        if let Some(open) = before {
            self.problem(event.line, format!("block_start inside the block that line {} opened", open.line));
        }
    }

    fn block_stop(&mut self, event: &Event) {
        if !self.inside_run(event) {
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        match draft.block.take() {
            Some(open) if open.evaluates => draft.mixed.get_or_insert((open.line, 0)).1 += 1,
            Some(open) => draft.trained_ms = Some(event.time_ms - open.time_ms).filter(|length| *length >= 0),
            None => self.problem(event.line, "block_stop without block_start"),
        }
    }

    fn eval_start(&mut self, event: &Event) {
        if !self.inside_run(event) {
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        let open = Open::at(event);
        let late = open.samples.is_some() && draft.run.evaluations.last().map(|last| last.samples) == open.samples; // another rank's
        if let Some(block) = draft.block.as_mut().filter(|_| !late) {
            block.evaluates = true;
        }
        let before = draft.evaluation.replace(open);
        if let Some(open) = before {
            self.problem(event.line, format!("eval_start inside the evaluation that line {} opened", open.line));
        }
    }

    fn eval_accuracy(&mut self, event: &Event) {
        if !self.inside_run(event) {
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        let own = event.whole("samples_count");
        let Some(samples) = draft.evaluation.and_then(|open| open.samples).or(own) else {
            return self.problem(event.line, "eval_accuracy without samples_count, and no eval_start says it; ignored");
        };
        let Some(loss) = event.value.as_f64().filter(|loss| loss.is_finite()) else {
            return self.problem(event.line, format!("eval_accuracy at {samples} samples is not a number ({}); ignored", event.text()));
        };
        if let Some(last) = draft.run.evaluations.last()
            && last.samples >= samples
        {
            let last = last.clone();
            return self.again(event, &last, samples, loss);
        }
        if let Some(own) = own.filter(|own| *own != samples) {
            let shifted = draft.shifted.get_or_insert((event.line, own, samples, 0));
            shifted.3 += 1;
        }
        if let Some(block) = &mut draft.block {
            block.evaluates = true;
        }
        draft.run.evaluations.push(LoggedEvaluation {
            samples,
            loss,
            time_ms: event.time_ms - draft.run.run_start_ms.unwrap_or(event.time_ms),
            train_ms: draft.trained_ms.take(),
            evaluation_ms: None,
        });
    }

    /// An evaluation that is not past the one before.
    fn again(&mut self, event: &Event, last: &LoggedEvaluation, samples: u64, loss: f64) {
        if samples < last.samples {
            self.problem(event.line, format!("samples go back from {} to {samples}; this evaluation is ignored", last.samples));
        } else if loss.to_bits() != last.loss.to_bits() {
            self.problem(event.line, format!("a second loss at {samples} samples, {loss} after {}; the first is kept", last.loss));
        }
        // The same loss again is another rank's line.
    }

    fn eval_stop(&mut self, event: &Event) {
        if !self.inside_run(event) {
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        let Some(open) = draft.evaluation.take() else {
            return self.problem(event.line, "eval_stop without eval_start");
        };
        let took = (event.time_ms - open.time_ms >= 0).then_some(event.time_ms - open.time_ms);
        match draft.run.evaluations.last_mut().filter(|last| open.samples.is_none_or(|samples| samples == last.samples)) {
            Some(last) => last.evaluation_ms = took,
            None => self.problem(event.line, format!("the evaluation that line {} opened logged no eval_accuracy", open.line)),
        }
    }

    /// Headers, settings, and whatever the rules do not know.
    fn other(&mut self, event: &Event) {
        let key = event.key.as_str();
        let known = match self.unknown.get_mut(key) {
            Some((known, _, count)) => {
                *count += 1;
                *known
            }
            None => {
                let known = keys::look_up(key, self.unknown.len() < MOST_SLIPS);
                if known != Known::Yes {
                    self.unknown.insert(key.to_owned(), (known, event.line, 1));
                }
                known
            }
        };
        let after_stop = self.draft.as_ref().is_some_and(|draft| draft.stopped.is_some());
        if key == keys::TARGET {
            self.target(event);
        }
        let precision = key == keys::PRECISION || known == Known::Near(keys::PRECISION);
        // Counts and rates after the end are results, not settings.
        if after_stop || !(key == "seed" || precision || key.starts_with("submission_") || keys::SETTINGS.contains(&key)) {
            return;
        }
        let text = event.text();
        let Some(draft) = &mut self.draft else { return };
        let first = *draft.lines.entry(key.to_owned()).or_insert(event.line);
        let before = draft.run.settings.get(key).cloned();
        match before {
            Some(before) if before != text => self.problem(event.line, format!("{key} is {text}, but {before} in line {first}")),
            Some(_) => {}
            None if precision && !keys::PRECISIONS.contains(&text.as_str()) => {
                self.problem(event.line, format!("the precision `{text}` is none of the rules' words ({})", keys::PRECISIONS.join(", ")));
            }
            None => self.setting(event, text, precision),
        }
    }

    /// The log's own target; every rank may say it.
    fn target(&mut self, event: &Event) {
        let first = self.draft.as_mut().is_some_and(|draft| draft.lines.insert(keys::TARGET.to_owned(), event.line).is_none());
        let (own, used) = (event.text(), self.options.target);
        if first && event.value.as_f64() != Some(used) {
            self.find(Level::Note, event.line, format!("{} is {own}, this run is held against {used} (--target)", keys::TARGET));
        }
    }

    fn setting(&mut self, event: &Event, text: String, precision: bool) {
        let Some(draft) = &mut self.draft else { return };
        let run = &mut draft.run;
        run.settings.insert(event.key.clone(), text.clone());
        match event.key.as_str() {
            "seed" => run.seed = whole(&event.value),
            "submission_benchmark" => run.benchmark = text,
            "submission_org" => run.submitter = text,
            "submission_division" => run.division = text,
            "submission_platform" => run.platform = text,
            _ if precision => run.precision = Some(text),
            _ => return,
        }
        if event.key == "seed" && run.seed.is_none() {
            self.problem(event.line, format!("seed is {}, not a whole number", plain(&event.value)));
        }
    }

    /// Closes the run at hand and says what is missing from it.
    fn finish_run(&mut self) {
        let Some(draft) = self.draft.take() else { return };
        let (line, last_line) = (draft.run.line, draft.last_line);
        if draft.run.run_start_ms.is_none() && draft.run.evaluations.is_empty() && draft.stopped.is_none() {
            return self.problem(line, "entries of a run that never starts: no run_start follows");
        }
        let benchmark = &draft.run.benchmark;
        let scaled = benchmark.strip_prefix(&self.options.benchmark).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        if !benchmark.is_empty() && !scaled {
            let what = format!("a log of the benchmark `{benchmark}`, not of {}; not imported", self.options.benchmark);
            return self.problem(line, what);
        }
        if benchmark.is_empty() {
            self.find(Level::Note, line, "names no benchmark (submission_benchmark)");
        }
        if let Some((at, own, used, count)) = draft.shifted {
            let what = format!(
                "eval_accuracy says {own} samples where its eval_start says {used}; the latter is used ({count} evaluation{})",
                number::plural(count)
            );
            self.find(Level::Note, at, what);
        }
        if let Some((at, count)) = draft.mixed {
            let what = format!(
                "an evaluation lies in the block that begins here: its length is no time of training ({count} block{})",
                number::plural(count)
            );
            self.find(Level::Note, at, what);
        }
        self.check_end(&draft.run, last_line);
        if let Some((end, took, usual)) = draft.run.pause() {
            let what = format!(
                "the block before {end} samples took {}, at the median block's speed it is {}: a pause or a jump of the clock; times of this run are not to be trusted",
                seconds(took),
                seconds(usual)
            );
            self.problem(line, what);
        }
        if draft.run.seed.is_none() {
            self.problem(line, "logs no seed");
        }
        self.runs.push(draft.run);
    }

    fn check_end(&mut self, run: &LoggedRun, last_line: u64) {
        let target = self.options.target;
        let (count, reached) = (run.evaluations.len(), run.reached(target).is_some());
        let Some(last) = run.evaluations.last() else {
            return self.problem(last_line, "ends without an evaluation");
        };
        match run.status {
            Status::Unfinished => self.problem(
                last_line,
                format!(
                    "no run_stop: the log ends after {count} evaluation{}, at {} samples and loss {:.4}",
                    number::plural(count),
                    last.samples,
                    last.loss
                ),
            ),
            Status::Success if !reached => self.problem(
                last_line,
                format!("run_stop says success, but no evaluation is at or below the target {target} (lowest {:.4})", lowest(run)),
            ),
            Status::Aborted if !reached => self.find(
                Level::Note,
                last_line,
                format!(
                    "did not reach the target {target} in {} samples (lowest {:.4}); it has no place in a mean",
                    last.samples,
                    lowest(run)
                ),
            ),
            _ => {}
        }
    }

    /// Runs and findings of the file.
    pub(crate) fn finish(mut self) -> (Vec<LoggedRun>, Vec<Finding>) {
        self.finish_run();
        for (key, (known, line, count)) in std::mem::take(&mut self.unknown) {
            let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
            let what = match known {
                Known::Near(near) => format!(
                    "key `{key}` is not in the rules{times}; they have `{near}`, and their checker passes an unknown key without a word, so this value went unchecked"
                ),
                _ => format!("key `{key}` is not in the rules{times}"),
            };
            self.find(Level::Note, line, what);
        }
        self.findings.sort_by_key(|finding| (finding.line, finding.level));
        (self.runs, self.findings)
    }
}

fn lowest(run: &LoggedRun) -> f64 {
    run.evaluations.iter().map(|evaluation| evaluation.loss).fold(f64::INFINITY, f64::min)
}

fn seconds(milliseconds: f64) -> String {
    format!("{:.1} s", milliseconds / 1000.0)
}
