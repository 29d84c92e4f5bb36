//! `run.mllog`: the run in MLPerf's log lines, which MLCommons' compliance checker reads.
//!
//! A line is `:::MLLOG ` and a JSON object with the keys in the order namespace, time_ms, event_type, key, value, metadata
//! (mlcommons/logging, `mllog.py`). Which keys a Llama 3.1-8B run must log is the checker's `closed_llama31_8b.yaml`; keys it
//! does not know pass it silently, so only its own are written here.

use std::panic::Location;
use std::time::{SystemTime, UNIX_EPOCH};

use contract::recipe::Format;
use contract::run_file::RunFile;
use serde_json::{Map, Value, json};

use crate::error::TrainerError;
use crate::metrics::Log;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    IntervalStart,
    IntervalEnd,
    PointInTime,
}

impl Event {
    fn word(self) -> &'static str {
        match self {
            Self::IntervalStart => "INTERVAL_START",
            Self::IntervalEnd => "INTERVAL_END",
            Self::PointInTime => "POINT_IN_TIME",
        }
    }
}

/// The open log and the moment of its lines.
#[derive(Debug)]
pub struct Mllog {
    log: Log,
    in_block: Option<u64>,
}

impl Mllog {
    /// Writes to `log`. A resumed run is inside a block of training that began at `open_block` sequences.
    pub fn new(log: Log, open_block: Option<u64>) -> Self {
        Self { log, in_block: open_block }
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.log.length()
    }

    /// Waits until the lines are on disk.
    pub fn sync(&self) -> Result<(), TrainerError> {
        self.log.sync()
    }

    /// One line. File and line number are the caller's, as the rules ask.
    #[track_caller]
    pub fn line(&mut self, event: Event, key: &str, value: Value, metadata: Map<String, Value>) -> Result<(), TrainerError> {
        let caller = Location::caller();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64);
        self.log.line(&format_line(time, event, key, value, metadata, caller.file(), caller.line()))
    }

    /// Everything before the first step: who submits, the hyper-parameters, initialisation, start of the run.
    /// The first block of training opens after the evaluation before the first step.
    pub fn begin(&mut self, run: &RunFile) -> Result<(), TrainerError> {
        let point = Event::PointInTime;
        let none = Map::new;
        for (key, value) in [
            ("submission_benchmark", json!(run.mllog.benchmark)),
            ("submission_org", json!(run.mllog.organisation)),
            ("submission_division", json!("closed")),
            ("submission_status", json!("research")),
            ("submission_platform", json!(run.mllog.platform)),
            ("cache_clear", json!(true)),
        ] {
            self.line(point, key, value, none())?;
        }
        self.line(Event::IntervalStart, "init_start", Value::Null, none())?;
        for (key, value) in hyper_parameters(run) {
            self.line(point, key, value, none())?;
        }
        self.line(Event::IntervalEnd, "init_stop", Value::Null, none())?;
        self.line(Event::IntervalStart, "run_start", Value::Null, none())
    }

    /// One evaluation at `samples` trained sequences: closes the block of training before it, and opens the next unless it was the last.
    pub fn evaluation(&mut self, run: &RunFile, samples: u64, loss: f64, last: bool) -> Result<(), TrainerError> {
        if let Some(start) = self.in_block.take() {
            self.line(Event::IntervalEnd, "block_stop", Value::Null, samples_count(start))?;
        }
        self.line(Event::IntervalStart, "eval_start", Value::Null, samples_count(samples))?;
        self.line(Event::PointInTime, "eval_accuracy", json!(loss), samples_count(samples))?;
        self.line(Event::IntervalEnd, "eval_stop", Value::Null, samples_count(samples))?;
        if last { Ok(()) } else { self.block_start(run, samples) }
    }

    /// The end of the run at `samples` trained sequences: `success` when the target was reached.
    pub fn end(&mut self, samples: u64, reached_at: Option<u64>) -> Result<(), TrainerError> {
        if let Some(start) = self.in_block.take() {
            self.line(Event::IntervalEnd, "block_stop", Value::Null, samples_count(start))?;
        }
        let status = if reached_at.is_some() { "success" } else { "aborted" };
        let mut metadata = samples_count(samples);
        metadata.insert("status".into(), json!(status));
        self.line(Event::IntervalEnd, "run_stop", Value::Null, metadata)?;
        // What the target took, where it was reached; otherwise what was spent.
        self.line(Event::PointInTime, "train_samples", json!(reached_at.unwrap_or(samples)), Map::new())
    }

    fn block_start(&mut self, run: &RunFile, samples: u64) -> Result<(), TrainerError> {
        self.in_block = Some(samples);
        let mut metadata = samples_count(samples);
        metadata.insert("samples_in_block".into(), json!(run.evaluation.every_steps * run.batch.sequences as u64));
        self.line(Event::IntervalStart, "block_start", Value::Null, metadata)
    }
}

fn samples_count(samples: u64) -> Map<String, Value> {
    Map::from_iter([("samples_count".to_owned(), json!(samples))])
}

/// The numbers of a run under the names of MLPerf's closed Llama 3.1-8B rules.
fn hyper_parameters(run: &RunFile) -> Vec<(&'static str, Value)> {
    let (optimizer, schedule) = (&run.optimizer, &run.schedule);
    let mut lines = vec![
        ("seed", json!(run.run.seed)),
        ("global_batch_size", json!(run.batch.sequences)),
        ("max_sequence_length", json!(run.model.sequence_length)),
        ("opt_name", json!("adamw")),
        ("opt_base_learning_rate", json!(optimizer.learning_rate)),
        ("opt_end_learning_rate", json!(schedule.end_learning_rate)),
        ("opt_learning_rate_warmup_steps", json!(schedule.warmup_steps)),
        ("opt_learning_rate_decay_steps", json!(schedule.decay_steps)),
        ("opt_learning_rate_decay_schedule", json!("cosine with linear warmup")),
        ("opt_adamw_beta_1", json!(optimizer.beta1)),
        ("opt_adamw_beta_2", json!(optimizer.beta2)),
        ("opt_adamw_epsilon", json!(optimizer.epsilon)),
        ("opt_adamw_weight_decay", json!(optimizer.weight_decay)),
        ("opt_gradient_clip_norm", json!(optimizer.clip_norm)),
        ("gradient_accumulation_steps", json!(run.batch.accumulation)),
        ("eval_samples", json!(run.evaluation.sequences)),
        // The rules count the schedule's whole length, not how far a run gets.
        ("max_steps", json!(schedule.warmup_steps + schedule.decay_steps)),
    ];
    lines.push(("lowest_numerical_precision_in_linear", json!(lowest_precision(run))));
    lines
}

fn lowest_precision(run: &RunFile) -> &'static str {
    let passes = &run.recipe.passes;
    let formats = [
        passes.fprop.input.format,
        passes.fprop.weight.format,
        passes.dgrad.output_gradient.format,
        passes.dgrad.weight.format,
        passes.wgrad.output_gradient.format,
        passes.wgrad.input.format,
    ];
    let any = |wanted: &[Format]| formats.iter().any(|format| wanted.contains(format));
    if any(&[Format::E2m1]) {
        "mxfp4"
    } else if any(&[Format::E4m3, Format::E5m2]) {
        "fp8"
    } else if any(&[Format::Bf16]) {
        "bfloat16"
    } else {
        "fp32"
    }
}

fn format_line(time: u64, event: Event, key: &str, value: Value, metadata: Map<String, Value>, file: &str, line: u32) -> String {
    let mut all = Map::from_iter([("file".to_owned(), json!(file)), ("lineno".to_owned(), json!(line))]);
    all.extend(metadata);
    // serde_json keeps the order of insertion (feature preserve_order).
    let object = json!({"namespace": "", "time_ms": time, "event_type": event.word(), "key": key, "value": value, "metadata": all});
    format!(":::MLLOG {object}")
}
