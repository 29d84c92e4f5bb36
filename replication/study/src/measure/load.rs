//! Reads the raw files of a result directory: runs and timing lines, strictly, as docs/files.md writes them.
//!
//! Nothing is computed here. A line with an unknown kind or key, a missing header or a loss that is not a number is an error that
//! names the file and the line; a run without `done.json` is not an error but a status, because verdicts must show it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::json::{self, Line};
use contract::measurements::{KernelTime, KernelTimeLine, RotationIdentity, RotationIdentityLine, StepTime, StepTimeLine};
use contract::metrics::{self, Header, MetricsLine, Quantisation, Reading};
use contract::outcome::{Done, Failed, Status};
use contract::text::one_line;
use contract::timing::{Seconds, Session, TimingLine};
use thiserror::Error;

use crate::code_objects::{self, CodeObjects};
use crate::exit::{self, ExitCode};
use crate::files::{self, Context as _, FileError};
use crate::kernels::{self, Document};
use crate::manifest::ManifestError;
use crate::manifest::public_logs::PublicLogsError;
use crate::mllog::table::TableError;
use crate::others::{self, Other, Others};
use crate::packed;
use crate::record::MEND;
use crate::run_folder::FAILED;

/// Why a result directory could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not follow its schema.
    #[error("{}, line {line}: {}\nThe file does not follow docs/files.md: {MEND}.", path.display(), one_line(.what))]
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

impl ExitCode for MeasureError {
    /// A directory that is wrong, manifests among it, is wrong data.
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Schema { .. } | Self::Manifest(_) => exit::DATA,
        }
    }
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
    pub quantisation: Vec<Quantisation>,
    /// Seconds of each training step, in order of step: the last record where a resumed run repeated a step. Without the first step
    /// of each session, which also pays for cold caches and first touches of memory.
    pub step_seconds: Vec<(u64, f64)>,
    /// Hash of the metrics file, from `done.json`.
    pub metrics_sha256: String,
    /// Where the run ran: one entry a timing session.
    pub sessions: Vec<Session>,
}

/// Whether times of two sessions may be compared. The processor beside a GPU only feeds it.
pub fn comparable(ours: &Session, theirs: &Session) -> bool {
    match (&ours.gpu, &theirs.gpu) {
        (None, None) => *ours == Session { resumed_from_step: ours.resumed_from_step, ..theirs.clone() },
        (gpu, other) => {
            let same = gpu == other && ours.libraries == theirs.libraries && ours.device == theirs.device;
            same && ours.least_memory == theirs.least_memory && ours.ranks == theirs.ranks
        }
    }
}

impl Run {
    /// Whether the run may be measured: it used its budget or diverged on the way.
    pub fn finished(&self) -> bool {
        matches!(self.status, RunStatus::Completed | RunStatus::Diverged { .. })
    }
}

/// One interleaved repeat of one linear's GEMM in one pass, on a device that tells the time.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTimeRecord {
    pub variant: String,
    pub linear: String,
    pub pass: String,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub repeat: u64,
    pub seconds: f64,
}

/// What the claims about kernels are judged by.
const KERNEL_TIME: &str = "kernel_time.jsonl";

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
    if let Some(failed) = single::<Failed>(&path.join(FAILED))? {
        run.status = RunStatus::Failed(failed.error);
        return Ok(run);
    }
    let Some(done) = single::<Done>(&path.join("done.json"))? else {
        return Ok(run);
    };
    run.status = match done.status {
        Status::Completed => RunStatus::Completed,
        Status::Diverged => RunStatus::Diverged { step: done.steps },
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
            MetricsLine::Header(Header { arm, seed, parameters, tokens_per_step, .. }) => {
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
            MetricsLine::Evaluation(metrics::Evaluation { step, tokens, loss }) => {
                // A loss that is no longer finite is written as null: the run never counts as having reached a target there.
                if let Some(loss) = loss {
                    run.evaluations.push(Evaluation { step, tokens, loss });
                }
            }
            MetricsLine::Reading(reading) => run.readings.push(reading),
            MetricsLine::Quantisation(record) => run.quantisation.push(*record),
            MetricsLine::Train(_) | MetricsLine::Diverged(_) => {}
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
    for (_, record) in lines::<TimingLine>(path)? {
        match record {
            TimingLine::Session(session) => {
                run.sessions.push(session);
                first = true;
            }
            TimingLine::Step(Seconds { step, .. }) if first => {
                seconds.remove(&step);
                first = false;
            }
            TimingLine::Step(Seconds { step, seconds: duration }) => {
                seconds.insert(step, duration);
            }
            TimingLine::Evaluation(_) => {}
        }
    }
    run.step_seconds = seconds.into_iter().collect();
    Ok(())
}

/// Interleaved step times; empty when the file is not there.
pub fn step_times(directory: &Path) -> Result<Vec<StepTime>, MeasureError> {
    let lines = measurements(directory, "step_time.jsonl")?;
    let step = |(_, line)| match line {
        StepTimeLine::Step(step) => Some(step),
        StepTimeLine::Kernel(_) | StepTimeLine::Exchange(_) | StepTimeLine::Memory(_) => None,
    };
    Ok(lines.into_iter().filter_map(step).collect())
}

/// Interleaved kernel times; empty when the file is not there. On a GPU the same call also times products and preparing alone, the device's
/// copy and its peaks, and says which products the vendor's library lacks, which `kernels-bench` shows; no claim is about them.
pub fn kernel_times(directory: &Path) -> Result<Vec<KernelTimeRecord>, MeasureError> {
    let mut records = Vec::new();
    for (line, record) in measurements(directory, KERNEL_TIME)? {
        if let KernelTimeLine::Kernel(KernelTime { variant, linear, pass, m, n, k, repeat, seconds, .. }) = record {
            let path = directory.join("measurements").join(KERNEL_TIME);
            let seconds = seconds.ok_or_else(|| schema(&path, line, "seconds: expected f64: an interpreter's time is none".to_owned()))?;
            let (variant, linear, pass) = (variant.into_owned(), linear.into_owned(), pass.into_owned());
            records.push(KernelTimeRecord { variant, linear, pass, m, n, k, repeat, seconds });
        }
    }
    Ok(records)
}

/// Rotation identities; empty when the file is not there.
pub fn rotations(directory: &Path) -> Result<Vec<RotationIdentity>, MeasureError> {
    let lines = measurements(directory, "rotation_identity.jsonl")?;
    Ok(lines.into_iter().map(|(_, RotationIdentityLine::Identity(identity))| identity).collect())
}

/// Steps with the time of each kind of kernel; empty when the file is not there.
pub fn step_profile(directory: &Path) -> Result<Vec<StepTimeLine>, MeasureError> {
    Ok(measurements(directory, "step_profile.jsonl")?.into_iter().map(|(_, line)| line).collect())
}

/// What `kernels-bench` measured; none when the file is not there.
pub fn kernels_bench(directory: &Path) -> Result<Option<Document>, MeasureError> {
    let path = directory.join("measurements").join(kernels::DOCUMENT);
    if !packed::is_there(&path) {
        return Ok(None);
    }
    let text = packed::document(&path)?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| schema(&path, error.line(), error.to_string()))?;
    let name = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
    contract::schema::require(name, kernels::SCHEMA).map_err(|error| schema(&path, 1, error.to_string()))?;
    serde_json::from_value(value).map(Some).map_err(|error| schema(&path, 1, error.to_string()))
}

/// The MI355X kernels; none when the file is not there.
pub fn code_objects(directory: &Path) -> Result<Option<CodeObjects>, MeasureError> {
    single(&directory.join("measurements").join(code_objects::FILE))
}

/// What other campaigns found; none when the file is not there.
pub fn others(directory: &Path) -> Result<Vec<Other>, MeasureError> {
    let others: Option<Others> = single(&directory.join(others::FILE))?;
    Ok(others.map(|others| others.campaigns).unwrap_or_default())
}

/// Lines of a file of `measurements/` with their numbers; none when the file is not there.
fn measurements<T: Line>(directory: &Path, file: &str) -> Result<Vec<(usize, T)>, MeasureError> {
    let path = directory.join("measurements").join(file);
    if packed::is_there(&path) { lines(&path) } else { Ok(Vec::new()) }
}

/// Every non-empty line of a JSONL file with its one-based number.
fn lines<T: Line>(path: &Path) -> Result<Vec<(usize, T)>, MeasureError> {
    let text = packed::text(path)?;
    json::read(&path.display().to_string(), &text).collect::<Result<_, _>>().map_err(|error| schema(path, error.line, error.what))
}

/// A file holding one JSON object; none when it is not there.
fn single<T: json::Document>(path: &Path) -> Result<Option<T>, MeasureError> {
    if !path.exists() {
        return Ok(None);
    }
    let read = T::from_json(&path.display().to_string(), &files::read_text(path)?);
    read.map(Some).map_err(|error| schema(path, error.line, error.what))
}

fn schema(path: &Path, line: usize, what: String) -> MeasureError {
    MeasureError::Schema { path: path.to_owned(), line, what }
}

/// The fewest and the most seeds that an arm has.
pub fn seeds_of_arms<'a>(runs: impl IntoIterator<Item = &'a Run>) -> [usize; 2] {
    let mut of_arm: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for run in runs {
        of_arm.entry(&run.arm).or_default().insert(run.seed);
    }
    let counts = || of_arm.values().map(BTreeSet::len);
    [counts().min(), counts().max()].map(Option::unwrap_or_default)
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
            format!(
                r#"{{{head}"device","device":"cuda:0","name":"a GPU","architecture":"sm_90a","libraries":[],"mxfp4":"emulated","fp8":true,"interpreted":false}}"#
            ),
            format!(r#"{{{head}"kernel_time","variant":"bf16","linear":"qkv","pass":"fprop","m":1,"n":2,"k":3,"repeat":1,"seconds":0.5}}"#),
            format!(
                r#"{{{head}"copy_time","variant":"copy","linear":"all","orientation":"both","rows":1,"columns":1,"bytes":1,"repeat":1,"seconds":0.5}}"#
            ),
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
