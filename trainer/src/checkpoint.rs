//! The newest resumable state: `checkpoint/state.safetensors` and `checkpoint/state.json`.
//!
//! A checkpoint is written beside its name, synced and renamed, so that a kill at any instant leaves the old one or the
//! new one. It records how much of metrics.jsonl and run.mllog belongs to it; a resumed run cuts them there and so ends
//! with the bytes of a run that was never stopped. What cannot be trusted is set aside, never deleted.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use contract::digest;
use contract::schema;
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::device::Linears;
use crate::error::TrainerError;
use crate::metrics::sync_directory;
use crate::parameters::Layout;
use crate::tensors::{NamedTensor, Tensors, write_tensors};
use crate::trainer_state::Training;

const TENSORS: &str = "state.safetensors";
const STATE: &str = "state.json";

/// What state.json holds. F32 and F64 are kept as their bits, so that nothing is lost in text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    schema: String,
    pub run_sha256: String,
    /// Steps done.
    pub step: u64,
    tensors_sha256: String,
    /// Bytes of metrics.jsonl that belong to this state.
    pub metrics_length: u64,
    pub metrics_sha256: String,
    /// Bytes of run.mllog that belong to this state.
    pub mllog_length: u64,
    /// Bits of the last training loss.
    train_loss_bits: Option<u64>,
    /// Bits of the last validation loss.
    validation_loss_bits: Option<u64>,
    /// Samples at which the validation loss first reached the target.
    pub target_reached_at: Option<u64>,
    /// Bits of the delayed-scaling histories.
    delayed: Vec<Vec<u32>>,
}

/// What a run remembers besides the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Of the last step.
    pub train_loss: Option<f64>,
    /// Of the last evaluation.
    pub validation_loss: Option<f64>,
    /// Samples at which the validation loss first reached the target.
    pub target_reached_at: Option<u64>,
}

/// How much of the logs belongs to a checkpoint.
#[derive(Debug, Clone)]
pub struct LogMarks {
    /// Bytes of metrics.jsonl.
    pub metrics_length: u64,
    pub metrics_sha256: String,
    /// Bytes of run.mllog.
    pub mllog_length: u64,
}

fn folder(run: &Path) -> PathBuf {
    run.join("checkpoint")
}

/// Where a checkpoint stands for the moment in which the new one takes its name.
fn previous(run: &Path) -> PathBuf {
    run.join("checkpoint.previous")
}

/// Parameters, first and second moments, in the order of a layout.
pub type Arrays<'a> = [Cow<'a, [f32]>; 3];

/// Replaces the checkpoint in the directory `run`. `arrays` are all of them, of however many ranks.
pub fn save<D: Device>(
    run: &Path,
    run_sha256: &str,
    (training, arrays): (&Training<D>, &Arrays<'_>),
    progress: &Progress,
    marks: LogMarks,
) -> Result<(), TrainerError> {
    let aside = run.join(format!("checkpoint.tmp-{}", std::process::id()));
    let written = write_files(&aside, run_sha256, (training, arrays), progress, marks);
    if written.is_err() {
        let _ = fs::remove_dir_all(&aside);
    }
    written?;
    let (name, previous) = (folder(run), previous(run));
    let failed = |source| TrainerError::write(&name, source);
    if name.exists() {
        if previous.exists() {
            fs::remove_dir_all(&previous).map_err(failed)?;
        }
        fs::rename(&name, &previous).map_err(failed)?;
    }
    fs::rename(&aside, &name).map_err(failed)?;
    sync_directory(&name);
    if previous.exists() {
        fs::remove_dir_all(&previous).map_err(failed)?;
    }
    Ok(())
}

fn write_files<D: Device>(
    aside: &Path,
    run_sha256: &str,
    (training, arrays): (&Training<D>, &Arrays<'_>),
    progress: &Progress,
    marks: LogMarks,
) -> Result<(), TrainerError> {
    fs::create_dir_all(aside).map_err(|source| TrainerError::write(aside, source))?;
    let tensors = tensors_of(training.model.layout(), arrays.each_ref().map(|array| &**array));
    let tensors_sha256 = write_tensors(&aside.join(TENSORS), &tensors).map_err(|source| TrainerError::write(aside, source))?;
    let state = State {
        schema: schema::CHECKPOINT.into(),
        run_sha256: run_sha256.into(),
        step: progress.step,
        tensors_sha256,
        metrics_length: marks.metrics_length,
        metrics_sha256: marks.metrics_sha256,
        mllog_length: marks.mllog_length,
        train_loss_bits: progress.train_loss.map(f64::to_bits),
        validation_loss_bits: progress.validation_loss.map(f64::to_bits),
        target_reached_at: progress.target_reached_at,
        delayed: training.model.linears.histories()?.iter().map(|history| history.iter().map(|x| x.to_bits()).collect()).collect(),
    };
    let state = serde_json::to_vec(&state).map_err(|source| TrainerError::write(aside, source))?;
    let path = aside.join(STATE);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&state)?;
        file.sync_all()
    });
    written.map_err(|source| TrainerError::write(&path, source))?;
    sync_directory(&path);
    Ok(())
}

/// The three arrays of a layout, by the prefix of their tensors' names.
const ARRAYS: [&str; 3] = ["parameters", "adam_first", "adam_second"];

fn tensors_of<'a>(layout: &Layout, arrays: [&'a [f32]; 3]) -> Vec<NamedTensor<'a>> {
    let mut all = Vec::new();
    for (prefix, array) in ARRAYS.iter().zip(arrays) {
        for tensor in &layout.tensors {
            all.push((format!("{prefix}.{}", tensor.name), vec![tensor.rows, tensor.columns], &array[tensor.range.clone()]));
        }
    }
    all
}

/// What was found in a run's directory.
#[derive(Debug)]
pub enum Found {
    Nothing,
    /// The linears of `training` now have the checkpoint's histories; the arrays are for [`Training::restore`].
    Resumed(Progress, LogMarks, [Vec<f32>; 3]),
    /// There is one that cannot be used, and why. It was moved to the path.
    Unusable(String, PathBuf),
}

/// Looks for a checkpoint of the run with this hash; on anything but success `training` is unchanged.
pub fn load<D: Device>(run: &Path, run_sha256: &str, training: &mut Training<D>) -> Result<Found, TrainerError> {
    remove_leftovers(run);
    let (name, previous) = (folder(run), previous(run));
    if !name.exists() {
        if !previous.exists() {
            return Ok(Found::Nothing);
        }
        fs::rename(&previous, &name).map_err(|source| TrainerError::write(&name, source))?;
    }
    match read(&name, run_sha256, training) {
        Ok((progress, marks, arrays)) => Ok(Found::Resumed(progress, marks, arrays)),
        Err(problem) => Ok(Found::Unusable(problem, set_aside(run)?)),
    }
}

/// Moves the checkpoint to the first free `checkpoint.unusable-N`.
pub fn set_aside(run: &Path) -> Result<PathBuf, TrainerError> {
    let name = folder(run);
    let free = (1..).map(|number| run.join(format!("checkpoint.unusable-{number}"))).find(|path| !path.exists());
    let to = free.unwrap_or_else(|| run.join("checkpoint.unusable"));
    fs::rename(&name, &to).map_err(|source| TrainerError::write(&name, source))?;
    Ok(to)
}

/// Half-written folders of processes that were killed.
fn remove_leftovers(run: &Path) {
    let Ok(entries) = fs::read_dir(run) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("checkpoint.tmp-") {
            // A leftover that stays does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn read<D: Device>(folder: &Path, run_sha256: &str, training: &mut Training<D>) -> Result<(Progress, LogMarks, [Vec<f32>; 3]), String> {
    let contents = |name: &str| fs::read(folder.join(name)).map_err(|source| format!("{name}: {source}"));
    let state: State = serde_json::from_slice(&contents(STATE)?).map_err(|source| format!("state.json: {source}"))?;
    schema::require(&state.schema, schema::CHECKPOINT).map_err(|error| format!("state.json: {error}"))?;
    if state.run_sha256 != run_sha256 {
        return Err("state.json: it belongs to another run file".into());
    }
    if state.step > training.run().budget.steps {
        return Err(format!("state.json: step {} is beyond the budget", state.step));
    }
    let path = folder.join(TENSORS);
    let tensors = contents(TENSORS)?;
    if digest::sha256(&tensors) != state.tensors_sha256 {
        return Err(format!("{TENSORS}: its SHA-256 is not the one in {STATE}"));
    }
    let tensors = Tensors::parse(&path, tensors).map_err(|source| source.to_string())?;
    let layout = training.model.layout();
    let arrays = ARRAYS.map(|prefix| read_array(&tensors, layout, prefix));
    let [parameters, first, second] = arrays;
    let (parameters, first, second) = (parameters?, first?, second?);
    let delayed = state.delayed.iter().map(|history| history.iter().map(|&bits| f32::from_bits(bits)).collect()).collect();
    let restored = training.model.linears.restore_histories(delayed).map_err(|error| error.to_string())?;
    if !restored {
        return Err("state.json: the delayed-scaling histories are not those of this model".into());
    }
    let progress = Progress {
        step: state.step,
        train_loss: state.train_loss_bits.map(f64::from_bits),
        validation_loss: state.validation_loss_bits.map(f64::from_bits),
        target_reached_at: state.target_reached_at,
    };
    let marks = LogMarks { metrics_length: state.metrics_length, metrics_sha256: state.metrics_sha256, mllog_length: state.mllog_length };
    Ok((progress, marks, [parameters, first, second]))
}

fn read_array(tensors: &Tensors, layout: &Layout, prefix: &str) -> Result<Vec<f32>, String> {
    let mut array = Vec::with_capacity(layout.total);
    for tensor in &layout.tensors {
        let values = tensors.f32(&format!("{prefix}.{}", tensor.name), &[tensor.rows, tensor.columns]);
        array.extend(values.map_err(|source| source.to_string())?);
    }
    Ok(array)
}
