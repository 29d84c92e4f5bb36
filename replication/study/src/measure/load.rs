//! Reads the raw files of a result directory: runs and timing lines, strictly, as docs/files.md writes them.
//!
//! Nothing is computed here. A line with an unknown kind or key, a missing header or a loss that is not a number is an error that
//! names the file and the line; a run without `done.json` is not an error but a status, because verdicts must show it.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;

use crate::files::{self, Context as _, FileError};
use crate::kernels::{self, Document, StepLine};
use crate::manifest::ManifestError;
use crate::manifest::public_logs::PublicLogsError;
use crate::mllog::table::TableError;
use crate::packed;

/// Why a result directory could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not follow its schema.
    #[error("{}, line {line}: {what}\nThe file does not follow docs/files.md; run the arm again with `cargo xtask replicate --fresh`, or restore the file.", path.display())]
    Schema {
        path: PathBuf,
        /// One-based line.
        line: usize,
        what: String,
    },
    /// An archived manifest is missing or not accepted.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl From<PublicLogsError> for MeasureError {
    fn from(error: PublicLogsError) -> Self {
        match error {
            PublicLogsError::Manifest(error) => Self::Manifest(error),
            PublicLogsError::File(error) | PublicLogsError::Table(TableError::File(error)) => Self::File(error),
            PublicLogsError::Table(TableError::Content { path, line, what }) => {
                Self::Manifest(ManifestError { path, line: usize::try_from(line).unwrap_or(0), message: what })
            }
        }
    }
}

/// One evaluation on the validation stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Optimizer steps done.
    pub step: u64,
    /// Training tokens seen.
    pub tokens: u64,
    /// Mean loss, nats per token.
    pub loss: f64,
}

/// An evaluation of the same weights through another recipe's forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Optimizer steps done.
    pub step: u64,
    /// Training tokens seen.
    pub tokens: u64,
    pub recipe: String,
    /// Mean loss, nats per token; none where it was not finite.
    pub loss: Option<f64>,
}

/// One quantisation record: the error of one operand at one step, layer, linear and pass.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantisationRecord {
    pub step: u64,
    pub layer: u64,
    pub linear: String,
    pub pass: String,
    pub operand: String,
    pub format: String,
    #[serde(deserialize_with = "nullable")]
    pub relative_error: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub bias: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub magnitude_bias: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub cosine: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub amax_over_rms_before: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub amax_over_rms_after: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub outlier_amax_over_rms_before: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub outlier_amax_over_rms_after: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RunStatus {
    Completed,
    /// Loss or gradient norm stopped being finite.
    Diverged {
        /// The step at which it did.
        step: u64,
    },
    Failed(String),
    /// Neither `done.json` nor `failed.json` is there.
    Unfinished,
}

/// Everything that one run left behind, apart from its weights.
#[derive(Debug, Clone)]
pub struct Run {
    pub arm: String,
    pub seed: u64,
    pub status: RunStatus,
    /// Parameters of the model; zero when the run left no metrics.
    pub parameters: u64,
    /// Training tokens in one optimizer step; zero when the run left no metrics.
    pub tokens_per_step: u64,
    /// Evaluations in order of step.
    pub evaluations: Vec<Evaluation>,
    /// Readings through other forward passes, in file order.
    pub readings: Vec<Reading>,
    /// Quantisation records in file order.
    pub quantisation: Vec<QuantisationRecord>,
    /// Seconds of each training step, in order of step: the last record where a resumed run repeated a step. Without the first step
    /// of each session, which also pays for cold caches and first touches of memory.
    pub step_seconds: Vec<(u64, f64)>,
    /// Hash of the metrics file, from `done.json`.
    pub metrics_sha256: String,
    /// Where the run ran: one entry a timing session.
    pub sessions: Vec<Session>,
}

/// The machine as one run saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Kind of device: `cpu`, `cuda`.
    pub device: String,
    pub threads: u64,
    /// Instruction set of the kernels, or a GPU's architecture.
    pub instruction_set: String,
    pub cpu: String,
    /// Name of the GPU; none on a CPU.
    pub gpu: Option<String>,
    /// Driver, compiler and library of matrix products, with versions; none on a CPU.
    pub libraries: Vec<String>,
    /// How MXFP4 products were executed (`native`, `emulated`, or by pass), where the device could have done either.
    pub mxfp4: Option<String>,
    /// Whether nothing was kept that backward can make again, which takes less memory and more time.
    pub least_memory: bool,
    /// Whether a program executed the device's instructions: its times say nothing of the device.
    pub interpreted: bool,
}

impl Session {
    /// Whether times of both may be compared. The processor beside a GPU only feeds it.
    pub fn comparable(&self, other: &Self) -> bool {
        match (&self.gpu, &other.gpu) {
            (None, None) => self == other,
            (ours, theirs) => {
                let same = ours == theirs && self.libraries == other.libraries && self.device == other.device;
                same && self.least_memory == other.least_memory
            }
        }
    }
}

impl Run {
    /// Whether the run may be measured: it used its budget or diverged on the way.
    pub fn finished(&self) -> bool {
        matches!(self.status, RunStatus::Completed | RunStatus::Diverged { .. })
    }
}

/// A number that may be null (JSON has no infinity and no NaN) but may not be absent.
fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::deserialize(deserializer)
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(dead_code, reason = "fields that only the schema check reads")]
enum MetricsLine {
    Header {
        schema: String,
        profile: String,
        arm: String,
        seed: u64,
        parameters: u64,
        tokens_per_step: u64,
    },
    Train {
        step: u64,
        tokens: u64,
        #[serde(deserialize_with = "nullable")]
        loss: Option<f64>,
        #[serde(deserialize_with = "nullable")]
        grad_norm: Option<f64>,
        learning_rate: f64,
    },
    Eval {
        step: u64,
        tokens: u64,
        #[serde(deserialize_with = "nullable")]
        loss: Option<f64>,
    },
    Reading {
        step: u64,
        tokens: u64,
        recipe: String,
        #[serde(deserialize_with = "nullable")]
        loss: Option<f64>,
    },
    Quantisation(QuantisationRecord),
    Diverged {
        step: u64,
        reason: String,
    },
}

/// Before there were GPUs, trainers did not say.
fn on_cpu() -> String {
    "cpu".to_owned()
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[allow(dead_code, reason = "fields that only the schema check reads")]
enum TimingLine {
    Session {
        schema: String,
        #[serde(default = "on_cpu")]
        device: String,
        threads: u64,
        instruction_set: String,
        cpu: String,
        #[serde(default)]
        gpu: Option<String>,
        #[serde(default)]
        libraries: Vec<String>,
        #[serde(default)]
        mxfp4: Option<String>,
        #[serde(default)]
        least_memory: bool,
        #[serde(default)]
        interpreted: bool,
        resumed_from_step: u64,
    },
    Step {
        step: u64,
        seconds: f64,
    },
    Eval {
        step: u64,
        seconds: f64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "fields that only the schema check reads")]
struct Done {
    schema: String,
    status: String,
    steps: u64,
    tokens: u64,
    final_train_loss: Option<f64>,
    final_validation_loss: Option<f64>,
    metrics_sha256: String,
    model_sha256: Option<String>,
    run_sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "fields that only the schema check reads")]
struct Failed {
    schema: String,
    error: String,
}

/// One interleaved repeat of a training step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTimeRecord {
    pub schema: String,
    pub kind: String,
    pub arm: String,
    pub repeat: u64,
    /// Tokens of a step; earlier trainers did not write it.
    #[serde(default)]
    pub tokens: Option<u64>,
    pub seconds: f64,
    pub forward_backward_seconds: f64,
}

/// One interleaved repeat of one linear's GEMM in one pass.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelTimeRecord {
    pub schema: String,
    pub variant: String,
    pub linear: String,
    pub pass: String,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub repeat: u64,
    pub seconds: f64,
}

/// One line of kernel_time.jsonl. On a GPU the same call also times products and preparing alone, the device's copy and its peaks, and says
/// which products the vendor's library lacks, which `kernels-bench` shows; no claim is about them.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum KernelTimeLine {
    KernelTime(KernelTimeRecord),
    Device(IgnoredAny),
    ProductTime(IgnoredAny),
    PrepareTime(IgnoredAny),
    CopyTime(IgnoredAny),
    PeakTime(IgnoredAny),
    NotRun(IgnoredAny),
}

/// One check that a rotation cancels in a GEMM.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotationRecord {
    pub schema: String,
    pub kind: String,
    pub linear: String,
    pub pass: String,
    pub rotation: String,
    pub max_relative_error: f64,
    pub bound: f64,
}

/// All runs under `directory/runs`, ordered by arm and seed.
///
/// # Errors
/// When a directory cannot be listed or a file does not follow its schema.
pub fn runs(directory: &Path) -> Result<Vec<Run>, MeasureError> {
    let root = directory.join("runs");
    let mut found = Vec::new();
    for arm in subdirectories(&root)? {
        for seed_name in subdirectories(&root.join(&arm))? {
            let path = root.join(&arm).join(&seed_name);
            let seed = seed_name.parse().map_err(|_| MeasureError::Schema {
                path: path.clone(),
                line: 0,
                what: format!("directory `{seed_name}` is not a seed (a whole number)"),
            })?;
            found.push(run(&path, &arm, seed)?);
        }
    }
    found.sort_by(|a, b| (&a.arm, a.seed).cmp(&(&b.arm, b.seed)));
    Ok(found)
}

/// Names of the directories in `path`, sorted; empty when `path` is not there.
fn subdirectories(path: &Path) -> Result<Vec<String>, MeasureError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).at(path, "list")? {
        let entry = entry.at(path, "list")?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn run(path: &Path, arm: &str, seed: u64) -> Result<Run, MeasureError> {
    let mut run = Run {
        arm: arm.to_owned(),
        seed,
        status: RunStatus::Unfinished,
        parameters: 0,
        tokens_per_step: 0,
        evaluations: Vec::new(),
        readings: Vec::new(),
        quantisation: Vec::new(),
        step_seconds: Vec::new(),
        metrics_sha256: String::new(),
        sessions: Vec::new(),
    };
    if let Some(failed) = single::<Failed>(&path.join("failed.json"), "mxfp4-failed/1")? {
        run.status = RunStatus::Failed(failed.error);
        return Ok(run);
    }
    let Some(done) = single::<Done>(&path.join("done.json"), "mxfp4-done/1")? else {
        return Ok(run);
    };
    run.status = match done.status.as_str() {
        "completed" => RunStatus::Completed,
        "diverged" => RunStatus::Diverged { step: done.steps },
        other => return Err(schema(&path.join("done.json"), 1, format!("status `{other}` is neither `completed` nor `diverged`"))),
    };
    run.metrics_sha256 = done.metrics_sha256;
    read_metrics(&path.join("metrics.jsonl"), &mut run)?;
    read_timing(&path.join("timing.jsonl"), &mut run)?;
    Ok(run)
}

fn read_metrics(path: &Path, run: &mut Run) -> Result<(), MeasureError> {
    let mut header_seen = false;
    for (line, record) in lines::<MetricsLine>(path)? {
        match record {
            MetricsLine::Header { schema: name, arm, seed, parameters, tokens_per_step, .. } => {
                require_schema(path, line, &name, "mxfp4-metrics/1")?;
                if arm != run.arm || seed != run.seed {
                    return Err(schema(
                        path,
                        line,
                        format!("header says arm `{arm}` seed {seed}, the directory says `{}` seed {}", run.arm, run.seed),
                    ));
                }
                (run.parameters, run.tokens_per_step, header_seen) = (parameters, tokens_per_step, true);
            }
            _ if !header_seen => return Err(schema(path, line, "the first line is not a header".to_owned())),
            MetricsLine::Eval { step, tokens, loss } => {
                // A loss that is no longer finite is written as null: the run never counts as having reached a target there.
                if let Some(loss) = loss {
                    run.evaluations.push(Evaluation { step, tokens, loss });
                }
            }
            MetricsLine::Reading { step, tokens, recipe, loss } => run.readings.push(Reading { step, tokens, recipe, loss }),
            MetricsLine::Quantisation(record) => run.quantisation.push(record),
            MetricsLine::Train { .. } | MetricsLine::Diverged { .. } => {}
        }
    }
    if !header_seen {
        return Err(schema(path, 1, "the file is empty".to_owned()));
    }
    if run.evaluations.windows(2).any(|pair| pair[1].tokens <= pair[0].tokens) {
        return Err(schema(path, 1, "evaluations are not in increasing order of tokens".to_owned()));
    }
    Ok(())
}

fn read_timing(path: &Path, run: &mut Run) -> Result<(), MeasureError> {
    if !packed::is_there(path) {
        return Ok(());
    }
    let mut seconds = std::collections::BTreeMap::new();
    let mut first = true;
    for (line, record) in lines::<TimingLine>(path)? {
        match record {
            TimingLine::Session {
                schema: name,
                device,
                threads,
                instruction_set,
                cpu,
                gpu,
                libraries,
                mxfp4,
                least_memory,
                interpreted,
                ..
            } => {
                require_schema(path, line, &name, "mxfp4-timing/1")?;
                run.sessions.push(Session { device, threads, instruction_set, cpu, gpu, libraries, mxfp4, least_memory, interpreted });
                first = true;
            }
            TimingLine::Step { step, .. } if first => {
                seconds.remove(&step);
                first = false;
            }
            TimingLine::Step { step, seconds: duration } => {
                seconds.insert(step, duration);
            }
            TimingLine::Eval { .. } => {}
        }
    }
    run.step_seconds = seconds.into_iter().collect();
    Ok(())
}

/// Interleaved step times; empty when the file is not there.
pub fn step_times(directory: &Path) -> Result<Vec<StepTimeRecord>, MeasureError> {
    measurements(directory, "step_time.jsonl", "mxfp4-step-time/1", |record: &StepTimeRecord| &record.schema)
}

/// Interleaved kernel times; empty when the file is not there.
pub fn kernel_times(directory: &Path) -> Result<Vec<KernelTimeRecord>, MeasureError> {
    let path = directory.join("measurements").join("kernel_time.jsonl");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for (line, record) in lines(&path)? {
        if let KernelTimeLine::KernelTime(record) = record {
            require_schema(&path, line, &record.schema, "mxfp4-kernel-time/1")?;
            records.push(record);
        }
    }
    Ok(records)
}

/// Rotation identities; empty when the file is not there.
pub fn rotations(directory: &Path) -> Result<Vec<RotationRecord>, MeasureError> {
    measurements(directory, "rotation_identity.jsonl", "mxfp4-rotation-identity/1", |record: &RotationRecord| &record.schema)
}

/// Steps with the time of each kind of kernel; empty when the file is not there.
pub fn step_profile(directory: &Path) -> Result<Vec<StepLine>, MeasureError> {
    measurements(directory, "step_profile.jsonl", "mxfp4-step-time/1", StepLine::schema)
}

/// What `kernels-bench` measured; none when the file is not there.
pub fn kernels_bench(directory: &Path) -> Result<Option<Document>, MeasureError> {
    single(&directory.join("measurements").join(kernels::DOCUMENT), kernels::SCHEMA)
}

fn measurements<T: DeserializeOwned>(
    directory: &Path,
    file: &str,
    expected: &str,
    name: impl Fn(&T) -> &String,
) -> Result<Vec<T>, MeasureError> {
    let path = directory.join("measurements").join(file);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for (line, record) in lines::<T>(&path)? {
        require_schema(&path, line, name(&record), expected)?;
        records.push(record);
    }
    Ok(records)
}

/// Every non-empty line of a JSONL file with its one-based number.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<(usize, T)>, MeasureError> {
    let text = packed::text(path)?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let record = serde_json::from_str(line).map_err(|error| schema(path, index + 1, error.to_string()))?;
            Ok((index + 1, record))
        })
        .collect()
}

/// A file holding one JSON object with a `schema` key; none when the file is not there.
fn single<T: DeserializeOwned>(path: &Path, expected: &str) -> Result<Option<T>, MeasureError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = files::read_text(path)?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| schema(path, error.line(), error.to_string()))?;
    let name = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
    require_schema(path, 1, name, expected)?;
    serde_json::from_value(value).map(Some).map_err(|error| schema(path, 1, error.to_string()))
}

fn require_schema(path: &Path, line: usize, found: &str, expected: &str) -> Result<(), MeasureError> {
    if found == expected {
        return Ok(());
    }
    Err(schema(path, line, format!("schema `{found}` is not `{expected}`")))
}

fn schema(path: &Path, line: usize, what: String) -> MeasureError {
    MeasureError::Schema { path: path.to_owned(), line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpus_kernel_times_are_those_of_claims_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("measurements/kernel_time.jsonl");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let head = r#""schema":"mxfp4-kernel-time/1","kind":"#;
        let lines = [
            format!(r#"{{{head}"device","device":"cuda:0","name":"a GPU"}}"#),
            format!(r#"{{{head}"kernel_time","variant":"bf16","linear":"qkv","pass":"fprop","m":1,"n":2,"k":3,"repeat":1,"seconds":0.5}}"#),
            format!(r#"{{{head}"copy_time","variant":"copy","bytes":1,"repeat":1,"seconds":0.5}}"#),
            format!(
                r#"{{{head}"not_run","variant":"mxfp4-hipblaslt","linear":"qkv","pass":"fprop","m":1,"n":2,"k":3,"reason":"too old"}}"#
            ),
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let records = kernel_times(folder.path()).unwrap();
        assert_eq!(records.iter().map(|record| (record.variant.as_str(), record.n)).collect::<Vec<_>>(), [("bf16", 2)]);
        std::fs::write(&path, format!(r#"{{{head}"kernel_times"}}"#)).unwrap();
        assert!(kernel_times(folder.path()).unwrap_err().to_string().contains("kernel_times"));
        // An interpreter tells no time, so its lines are no measurement.
        std::fs::write(&path, lines[1].replace("0.5", "null")).unwrap();
        assert!(kernel_times(folder.path()).unwrap_err().to_string().contains("f64"));
    }
}
