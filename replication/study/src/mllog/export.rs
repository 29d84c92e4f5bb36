//! Our runs as MLPerf logs, in the folders of a submission: `<system>/llama31_8b/result_<n>.txt`.
//!
//! A log of the trainer is written anew so that MLCommons' rules for Llama 3.1-8B apply to it: the benchmark under its published
//! name, sample counts where the rules want them, the end at the first evaluation at or below the run's target, as a scored run
//! ends. Values stay as they are: what a scaled-down profile cannot meet is listed in `unmet-rules.csv`, not made to look met.

use std::fmt;
use std::path::{Path, PathBuf};

use contract::json::Document as _;
use contract::outcome::Done;
use contract::run_file::RunIdentity;
use contract::text::one_line;
use contract::yaml;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::line::{self, Event, Kind, TOKEN};
use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::packed;
use crate::results;

/// The published name of the benchmark whose rules apply.
const BENCHMARK: &str = "llama31_8b";
/// What a submission must reach.
const TARGET: f64 = 3.3;
/// Optimizer steps of the rules' schedule.
const MAX_STEPS: f64 = 1_200_000.0;

/// A rule that an exported log does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The log, relative to the export's folder.
    pub log: String,
    /// The key that the rule is about.
    pub key: &'static str,
    pub value: String,
    pub rule: String,
}

#[derive(Debug, Clone, Default)]
pub struct Export {
    pub folder: PathBuf,
    /// Logs written, relative to it.
    pub logs: Vec<String>,
    /// Rules not met, by log.
    pub unmet: Vec<Unmet>,
    /// Runs left out, and why.
    pub left_out: Vec<String>,
}

/// Why nothing could be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of the result directory is not what it should be.
    #[error("{}: {}; check the directory with `cargo xtask verify`", .path.display(), one_line(.what))]
    Content { path: PathBuf, what: String },
    /// Not a result directory, or one without logs.
    #[error("{} holds no runs/<arm>/<seed>/run.mllog; name one of the folders below results/", .path.display())]
    NoRuns { path: PathBuf },
}

impl ExitCode for ExportError {
    fn exit_code(&self) -> u8 {
        if let Self::File(error) = self { error.exit_code() } else { exit::DATA }
    }
}

/// What is needed of run.yaml.
#[derive(Deserialize)]
struct RunFile {
    run: RunIdentity,
    target_loss: Option<f64>,
}

/// Writes every finished run of the result directory below `out`, which must be empty or absent; the directory itself is only read.
///
/// # Errors
/// A directory without runs, a log that is not one, a folder that is in use or cannot be written.
pub fn export(directory: &Path, out: &Path) -> Result<Export, ExportError> {
    if out.exists() && !files::list(out)?.is_empty() {
        let what = "already holds files; name a new folder with --out".to_owned();
        return Err(ExportError::Content { path: out.to_owned(), what });
    }
    let names = if directory.is_dir() { results::admit(directory)? } else { Vec::new() };
    let unpacked = |name: &String| name.strip_suffix(packed::ENDING).unwrap_or(name).to_owned();
    let mut logs: Vec<String> =
        names.iter().map(unpacked).filter(|name| name.starts_with("runs/") && name.ends_with("/run.mllog")).collect();
    if logs.is_empty() {
        return Err(ExportError::NoRuns { path: directory.to_owned() });
    }
    logs.sort_by_key(|name| by_seed(name));
    let mut export = Export { folder: out.to_owned(), ..Export::default() };
    let mut texts = Vec::new();
    let (mut arm, mut number) = (None, 0);
    for name in logs {
        let folder = name.trim_end_matches("/run.mllog");
        let run: RunFile = read_yaml(&directory.join(folder).join("run.yaml"))?;
        if !names.iter().any(|other| *other == format!("{folder}/done.json")) {
            export.left_out.push(format!("{}/{}: not finished", run.run.arm, run.run.seed));
            continue;
        }
        let done = directory.join(folder).join("done.json");
        Done::from_json("done.json", &files::read_text(&done)?).map_err(|error| ExportError::Content { path: done, what: error.what })?;
        number = if arm.as_ref() == Some(&run.run.arm) { number + 1 } else { 0 };
        let log = format!("{}-{}/{BENCHMARK}/result_{number}.txt", run.run.profile, run.run.arm);
        arm = Some(run.run.arm.clone());
        let path = directory.join(&name);
        let events = line::events(&packed::text(&path)?).map_err(|what| ExportError::Content { path: path.clone(), what })?;
        let scored = scored(&events, &run).ok_or_else(|| ExportError::Content {
            path: path.clone(),
            what: "no evaluation and no run_stop to end the log with".to_owned(),
        })?;
        export.unmet.extend(unmet(&scored, &log));
        texts.push((log.clone(), scored.iter().map(written).collect::<String>()));
        export.logs.push(log);
    }
    for (log, text) in texts {
        files::write(&out.join(log), text.as_bytes())?;
    }
    files::write(&out.join("unmet-rules.csv"), unmet_csv(&export.unmet).as_bytes())?;
    Ok(export)
}

/// Arm, then seed as a number: seed 10 comes after seed 9.
fn by_seed(name: &str) -> (String, u64, String) {
    let parts: Vec<&str> = name.split('/').collect();
    let seed = parts.get(2).and_then(|seed| seed.parse().ok()).unwrap_or(u64::MAX);
    (parts.get(1).map(|arm| (*arm).to_owned()).unwrap_or_default(), seed, name.to_owned())
}

fn read_yaml(path: &Path) -> Result<RunFile, ExportError> {
    let text = files::read_text(path)?;
    yaml::from_str(&text).map_err(|error| ExportError::Content { path: path.to_owned(), what: format!("is no run file: {error}") })
}

/// The entries of the run as a submission logs them: up to the end of the evaluation that reaches the target, or all of them.
fn scored(events: &[Event], run: &RunFile) -> Option<Vec<Event>> {
    let reached = run.target_loss.and_then(|target| {
        events.iter().position(|event| event.key == "eval_accuracy" && event.value.as_f64().is_some_and(|loss| loss <= target))
    });
    let last = match reached {
        Some(index) => index + events.get(index..)?.iter().position(|event| event.key == "eval_stop")?,
        None => events.iter().rposition(|event| event.key != "run_stop" && event.key != "train_samples")?,
    };
    let samples = match reached {
        Some(index) => events.get(index)?.whole("samples_count")?,
        None => events.iter().rev().find_map(|event| event.whole("samples_count"))?,
    };
    let mut scored: Vec<Event> = events.get(..=last)?.to_vec();
    let end_of_blocks = block_ends(&scored, samples);
    for (event, end) in scored.iter_mut().zip(end_of_blocks) {
        header(event, run);
        if let Some(end) = end {
            event.metadata.insert("samples_count".into(), json!(end));
        }
    }
    let end = scored.last()?.clone();
    let status = if reached.is_some() { "success" } else { "aborted" };
    let mark = |kind, key: &str, value, metadata| Event { kind, key: key.to_owned(), value, metadata, ..end.clone() };
    let mut place: Map<String, Value> =
        end.metadata.iter().filter(|(key, _)| ["file", "lineno"].contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect();
    let count = mark(Kind::PointInTime, "train_samples", json!(samples), place.clone());
    place.extend([("samples_count".to_owned(), json!(samples)), ("status".to_owned(), json!(status))]);
    // A run that was not cut keeps the moment of its own end.
    let stop = events.iter().find(|event| event.key == "run_stop" && reached.is_none());
    let mut stopped = mark(Kind::IntervalEnd, "run_stop", Value::Null, place);
    stopped.time_ms = stop.map_or(stopped.time_ms, |stop| stop.time_ms);
    scored.extend([stopped, count]);
    Some(scored)
}

/// Who submits what: the published benchmark, and in plain words what this run is of it.
fn header(event: &mut Event, run: &RunFile) {
    match event.key.as_str() {
        "submission_benchmark" => event.value = json!(BENCHMARK),
        "submission_platform" => {
            let RunIdentity { profile, arm, seed } = &run.run;
            event.value = json!(format!("{}: profile {profile}, arm {arm}, seed {seed}", event.text()));
        }
        _ => {}
    }
}

/// For each `block_stop`, the samples at its end: those of the evaluation that follows, or of the run's end. The trainer logs
/// those of the block's start there.
fn block_ends(events: &[Event], last: u64) -> Vec<Option<u64>> {
    let mut next = last;
    let mut ends: Vec<Option<u64>> = events
        .iter()
        .rev()
        .map(|event| {
            if let ("eval_start", Some(samples)) = (event.key.as_str(), event.whole("samples_count")) {
                next = samples;
            }
            (event.key == "block_stop").then_some(next)
        })
        .collect();
    ends.reverse();
    ends
}

fn written(event: &Event) -> String {
    let object = json!({
        "namespace": "",
        "time_ms": event.time_ms,
        "event_type": event.kind.word(),
        "key": event.key,
        "value": event.value,
        "metadata": event.metadata,
    });
    format!("{TOKEN} {object}\n")
}

/// The rules of `closed_llama31_8b.yaml` (mlcommons/logging, rule set 6.0.0) that the log does not meet.
fn unmet(events: &[Event], log: &str) -> Vec<Unmet> {
    let value = |key: &str| events.iter().find(|event| event.key == key).map(|event| event.value.clone());
    let number = |key: &str| value(key).and_then(|value| value.as_f64());
    let mut unmet = Vec::new();
    let mut find = |key, value: String, rule: String| unmet.push(Unmet { log: log.to_owned(), key, value, rule });
    let warmup = number("opt_learning_rate_warmup_steps").unwrap_or_default();
    for (key, wanted) in [
        ("max_sequence_length", 8192.0),
        ("opt_learning_rate_decay_steps", MAX_STEPS - warmup),
        ("opt_adamw_beta_1", 0.9),
        ("opt_adamw_beta_2", 0.95),
        ("opt_adamw_epsilon", 1e-5),
        ("opt_adamw_weight_decay", 0.1),
        ("opt_gradient_clip_norm", 1.0),
        ("eval_samples", 1024.0),
        ("max_steps", MAX_STEPS),
    ] {
        if number(key) != Some(wanted) {
            find(key, value(key).map_or("nothing".to_owned(), |value| line::plain(&value)), wanted.to_string());
        }
    }
    for (key, wanted) in [("opt_name", "adamw"), ("opt_learning_rate_decay_schedule", "cosine with linear warmup")] {
        if value(key).as_ref().and_then(Value::as_str) != Some(wanted) {
            find(key, value(key).map_or("nothing".to_owned(), |value| line::plain(&value)), wanted.to_owned());
        }
    }
    let losses: Vec<f64> = events.iter().filter(|event| event.key == "eval_accuracy").filter_map(|event| event.value.as_f64()).collect();
    if !losses.iter().any(|loss| *loss > 0.0 && *loss <= TARGET) {
        let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
        find("eval_accuracy", format!("{lowest} at the lowest"), format!("one evaluation at or below {TARGET}"));
    }
    unmet
}

/// `log,key,value,rule`; no cell holds a comma or a quote but values, in which they become spaces.
fn unmet_csv(unmet: &[Unmet]) -> String {
    let tidy = |text: &str| text.replace([',', '"', '\n'], " ");
    let rows = unmet.iter().map(|row| format!("{},{},{},{}\n", tidy(&row.log), row.key, tidy(&row.value), tidy(&row.rule)));
    std::iter::once("log,key,value,rule\n".to_owned()).chain(rows).collect()
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} logs written to {}", self.logs.len(), self.folder.display())?;
        for line in &self.left_out {
            writeln!(f, "left out: {line}")?;
        }
        let mut keys: Vec<&Unmet> = Vec::new();
        for row in &self.unmet {
            if !keys.iter().any(|known| known.key == row.key) {
                keys.push(row);
            }
        }
        if keys.is_empty() {
            return writeln!(f, "every rule for {BENCHMARK} that is about a value is met");
        }
        writeln!(f, "rules for {BENCHMARK} that these runs do not meet (every log: unmet-rules.csv):")?;
        for row in keys {
            let logs = self.unmet.iter().filter(|other| other.key == row.key).count();
            writeln!(f, "  {}: {}, the rule is {} ({logs} of {} logs)", row.key, row.value, row.rule, self.logs.len())?;
        }
        Ok(())
    }
}
