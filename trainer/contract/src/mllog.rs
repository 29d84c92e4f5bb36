//! `run.mllog`: the run in MLPerf's log lines, without their times and places in a source. The trainer writes them as it goes; whoever checks
//! a run makes them again from the run file and the losses.
//!
//! Which keys a Llama 3.1-8B run must log is the compliance checker's `closed_llama31_8b.yaml`; keys it does not know pass it silently, so
//! only its own are written here.

use serde_json::{Map, Value, json};

use crate::recipe::Format;
use crate::run_file::RunFile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    IntervalStart,
    IntervalEnd,
    PointInTime,
}

impl Event {
    pub fn word(self) -> &'static str {
        match self {
            Self::IntervalStart => "INTERVAL_START",
            Self::IntervalEnd => "INTERVAL_END",
            Self::PointInTime => "POINT_IN_TIME",
        }
    }
}

/// What one line says.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub event: Event,
    pub key: &'static str,
    pub value: Value,
    pub metadata: Map<String, Value>,
}

fn entry(event: Event, key: &'static str, value: Value, metadata: Map<String, Value>) -> Entry {
    Entry { event, key, value, metadata }
}

fn point(key: &'static str, value: Value) -> Entry {
    entry(Event::PointInTime, key, value, Map::new())
}

/// Everything before the first step: who submits, the hyper-parameters, initialisation, start of the run.
/// The first block of training opens after the evaluation before the first step.
pub fn begin(run: &RunFile) -> Vec<Entry> {
    let submission = [
        ("submission_benchmark", json!(run.mllog.benchmark)),
        ("submission_org", json!(run.mllog.organisation)),
        ("submission_division", json!("closed")),
        ("submission_status", json!("research")),
        ("submission_platform", json!(run.mllog.platform)),
        ("cache_clear", json!(true)),
    ];
    let mark = |event, key| entry(event, key, Value::Null, Map::new());
    let mut all: Vec<Entry> = submission.into_iter().map(|(key, value)| point(key, value)).collect();
    all.push(mark(Event::IntervalStart, "init_start"));
    all.extend(hyper_parameters(run).into_iter().map(|(key, value)| point(key, value)));
    all.push(mark(Event::IntervalEnd, "init_stop"));
    all.push(mark(Event::IntervalStart, "run_start"));
    all
}

/// The blocks of training between evaluations.
#[derive(Debug, Clone, Default)]
pub struct Blocks {
    /// Sequences at which the one that is open began.
    open: Option<u64>,
}

impl Blocks {
    /// A resumed run is inside the block that began at `open` sequences.
    pub fn resumed(open: Option<u64>) -> Self {
        Self { open }
    }

    /// One evaluation at `samples` trained sequences: closes the block of training before it, and opens the next unless it was the last.
    pub fn evaluation(&mut self, run: &RunFile, samples: u64, loss: f64, last: bool) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.close().into_iter().collect();
        all.push(entry(Event::IntervalStart, "eval_start", Value::Null, samples_count(samples)));
        all.push(entry(Event::PointInTime, "eval_accuracy", json!(loss), samples_count(samples)));
        all.push(entry(Event::IntervalEnd, "eval_stop", Value::Null, samples_count(samples)));
        if !last {
            self.open = Some(samples);
            let mut metadata = samples_count(samples);
            metadata.insert("samples_in_block".into(), json!(run.evaluation.every_steps.saturating_mul(run.batch.sequences as u64)));
            all.push(entry(Event::IntervalStart, "block_start", Value::Null, metadata));
        }
        all
    }

    /// The end of the run at `samples` trained sequences: `success` when the target was reached.
    pub fn end(&mut self, samples: u64, reached_at: Option<u64>) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.close().into_iter().collect();
        let mut metadata = samples_count(samples);
        metadata.insert("status".into(), json!(if reached_at.is_some() { "success" } else { "aborted" }));
        all.push(entry(Event::IntervalEnd, "run_stop", Value::Null, metadata));
        // What the target took, where it was reached; otherwise what was spent.
        all.push(point("train_samples", json!(reached_at.unwrap_or(samples))));
        all
    }

    fn close(&mut self) -> Option<Entry> {
        let start = self.open.take()?;
        Some(entry(Event::IntervalEnd, "block_stop", Value::Null, samples_count(start)))
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
        ("max_steps", json!(schedule.warmup_steps.saturating_add(schedule.decay_steps))),
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
