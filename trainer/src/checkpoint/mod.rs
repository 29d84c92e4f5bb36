//! The newest resumable state: `checkpoint/state.json`, the index, and the files that it names.
//!
//! One rank writes `state.safetensors`. Of several each writes its shard, `state-K-of-N.safetensors`, and rank 0 the index when all shards are
//! on disk; a run goes on from any number of shards with any number of ranks. Everything is written in a folder beside the name, synced and
//! renamed, so that a kill at any instant leaves the old checkpoint or the new one. It records how much of metrics.jsonl and run.mllog
//! belongs to it; a resumed run cuts them there and so ends with the bytes of a run that was never stopped.

mod shard;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};

use contract::schema;
use serde::{Deserialize, Serialize};

use crate::error::TrainerError;
use crate::model_export;
use crate::parameters::Layout;
use crate::shards::ShardRanges;
use crate::whole_files::{ASIDE, sync_directory, write_synced};

pub use shard::Shard;
pub use writer::Writer;

/// One rank's file.
const WHOLE: &str = "state.safetensors";
const INDEX: &str = "state.json";

/// What state.json holds. F32 and F64 are kept as their bits, so that nothing is lost in text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    schema: String,
    pub run_sha256: String,
    /// Steps done.
    pub step: u64,
    /// Of the file of one rank's checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tensors_sha256: Option<String>,
    /// Of a checkpoint of several ranks, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shards: Vec<Shard>,
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

impl State {
    /// All of it but the histories of delayed scales and the files: [`Writer`] adds those.
    pub fn new(run_sha256: &str, progress: &Progress, marks: LogMarks) -> Self {
        Self {
            schema: String::new(),
            run_sha256: run_sha256.into(),
            step: progress.step,
            tensors_sha256: None,
            shards: Vec::new(),
            metrics_length: marks.metrics_length,
            metrics_sha256: marks.metrics_sha256,
            mllog_length: marks.mllog_length,
            train_loss_bits: progress.train_loss.map(f64::to_bits),
            validation_loss_bits: progress.validation_loss.map(f64::to_bits),
            target_reached_at: progress.target_reached_at,
            delayed: Vec::new(),
        }
    }

    /// With the histories of delayed scales.
    fn with_histories(mut self, histories: &[Vec<f32>]) -> Self {
        self.delayed = histories.iter().map(|history| history.iter().map(|x| x.to_bits()).collect()).collect();
        self
    }

    /// The index of these files.
    fn with_shards(mut self, mut shards: Vec<Shard>) -> Self {
        match &mut shards[..] {
            [whole] if whole.file == WHOLE => {
                self.schema = schema::CHECKPOINT.into();
                self.tensors_sha256 = Some(std::mem::take(&mut whole.sha256));
            }
            _ => {
                self.schema = schema::SHARDED_CHECKPOINT.into();
                self.shards = shards;
            }
        }
        self
    }

    /// Whether several ranks wrote it.
    pub fn is_sharded(&self) -> bool {
        self.schema == schema::SHARDED_CHECKPOINT
    }

    /// Its files, which cover an array of `total` elements once and in order.
    fn files(&self, total: usize) -> Result<Vec<Shard>, String> {
        let wrong = |what: &str| format!("{INDEX}: {what}");
        if !self.is_sharded() {
            schema::require(&self.schema, schema::CHECKPOINT).map_err(|error| wrong(&error.to_string()))?;
            let sha256 = self.tensors_sha256.clone().filter(|_| self.shards.is_empty());
            let sha256 = sha256.ok_or_else(|| wrong("the index of one file names no hash, or other files"))?;
            return Ok(vec![Shard { file: WHOLE.into(), ranges: vec![(0, total)], bytes: None, sha256 }]);
        }
        if self.shards.iter().any(|shard| Path::new(&shard.file).file_name() != Some(shard.file.as_ref())) {
            return Err(wrong("a shard is named that does not lie beside it"));
        }
        let mut ranges: Vec<_> = self.shards.iter().flat_map(|shard| shard.ranges.iter().map(|&range| (range, &shard.file))).collect();
        ranges.sort_unstable();
        let mut end = 0;
        for ((first, next), file) in ranges {
            if first != end || next <= first {
                return Err(wrong(&format!("{file} has parameters from {first} on, and {end} comes next")));
            }
            end = next;
        }
        if end != total || self.tensors_sha256.is_some() {
            return Err(wrong(&format!("its shards are of {end} parameters, and the model has {total}")));
        }
        Ok(self.shards.clone())
    }

    /// Parameters, first and second moments of what is `wanted` of the array, from the checkpoint of the directory `run`. Compares the
    /// hashes of the files whose number `verifies`.
    ///
    /// # Errors
    /// What is wrong with a file, which it names.
    pub fn read(
        &self,
        run: &Path,
        layout: &Layout,
        wanted: &ShardRanges,
        verifies: impl Fn(usize) -> bool,
    ) -> Result<[Vec<f32>; 3], String> {
        let mut arrays = [(); 3].map(|()| vec![0.0; wanted.len()]);
        for (number, shard) in self.files(layout.total)?.iter().enumerate() {
            shard.read(&folder(run), layout, (wanted, verifies(number)), &mut arrays)?;
        }
        Ok(arrays)
    }

    pub fn progress(&self) -> Progress {
        Progress {
            step: self.step,
            train_loss: self.train_loss_bits.map(f64::from_bits),
            validation_loss: self.validation_loss_bits.map(f64::from_bits),
            target_reached_at: self.target_reached_at,
        }
    }

    pub fn marks(&self) -> LogMarks {
        LogMarks { metrics_length: self.metrics_length, metrics_sha256: self.metrics_sha256.clone(), mllog_length: self.mllog_length }
    }

    /// Of delayed scales.
    pub fn histories(&self) -> Vec<Vec<f32>> {
        self.delayed.iter().map(|history| history.iter().map(|&bits| f32::from_bits(bits)).collect()).collect()
    }
}

/// The checkpoint of the directory `run`.
pub fn folder(run: &Path) -> PathBuf {
    run.join("checkpoint")
}

/// Where a checkpoint stands for the moment in which the new one takes its name.
fn previous(run: &Path) -> PathBuf {
    run.join("checkpoint.previous")
}

/// Where one is made.
fn aside(run: &Path, word: &str) -> PathBuf {
    run.join(format!("checkpoint.tmp-{word}"))
}

/// Makes the folder `aside`, in which all shards are on disk, the checkpoint of the directory `run`. Only then the one before goes away.
fn put_in_place(run: &Path, aside: &Path, state: &State) -> Result<(), TrainerError> {
    let index = aside.join(INDEX);
    let text = serde_json::to_vec(state).map_err(|source| TrainerError::write(&index, source))?;
    write_synced(&index, &text).map_err(|source| TrainerError::write(&index, source))?;
    sync_directory(&index);
    let (name, previous) = (folder(run), previous(run));
    let failed = |source| TrainerError::write(&name, source);
    if name.exists() {
        if previous.exists() {
            fs::remove_dir_all(&previous).map_err(failed)?;
        }
        fs::rename(&name, &previous).map_err(failed)?;
    }
    fs::rename(aside, &name).map_err(failed)?;
    sync_directory(&name);
    if previous.exists() {
        fs::remove_dir_all(&previous).map_err(failed)?;
    }
    Ok(())
}

/// What was found in a run's directory.
#[derive(Debug)]
pub enum Found {
    Nothing,
    /// An index that fits the run; its files have not been looked at.
    Index(Box<State>),
    /// There is one that cannot be used, and why.
    Unusable(String),
}

/// Looks for a checkpoint of the run with this hash, of so many steps and this layout.
pub fn find(run: &Path, run_sha256: &str, steps: u64, layout: &Layout) -> Result<Found, TrainerError> {
    remove_leftovers(run);
    let (name, previous) = (folder(run), previous(run));
    if !name.exists() {
        if !previous.exists() {
            return Ok(Found::Nothing);
        }
        fs::rename(&previous, &name).map_err(|source| TrainerError::write(&name, source))?;
    }
    Ok(match read_index(&name, run_sha256, steps, layout) {
        Ok(state) => Found::Index(Box::new(state)),
        Err(problem) => Found::Unusable(problem),
    })
}

fn read_index(folder: &Path, run_sha256: &str, steps: u64, layout: &Layout) -> Result<State, String> {
    let wrong = |source: &dyn std::fmt::Display| format!("{INDEX}: {source}");
    let text = fs::read(folder.join(INDEX)).map_err(|source| wrong(&source))?;
    let state: State = serde_json::from_slice(&text).map_err(|source| wrong(&source))?;
    state.files(layout.total)?;
    if state.run_sha256 != run_sha256 {
        return Err(wrong(&"it belongs to another run file"));
    }
    if state.step > steps {
        return Err(wrong(&format!("step {} is beyond the budget", state.step)));
    }
    Ok(state)
}

/// Moves the checkpoint to the first free `checkpoint.unusable-N`. What cannot be trusted is never deleted.
pub fn set_aside(run: &Path) -> Result<PathBuf, TrainerError> {
    let name = folder(run);
    let free = (1..).map(|number| run.join(format!("checkpoint.unusable-{number}"))).find(|path| !path.exists());
    let to = free.unwrap_or_else(|| run.join("checkpoint.unusable"));
    fs::rename(&name, &to).map_err(|source| TrainerError::write(&name, source))?;
    Ok(to)
}

/// What processes that were killed left half-written: folders of checkpoints, and files that were to be renamed when whole.
fn remove_leftovers(run: &Path) {
    let entries =
        [run.to_owned(), run.join(model_export::FOLDER)].into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A leftover that stays does no harm.
        let _ = match () {
            () if name.starts_with("checkpoint.tmp-") => fs::remove_dir_all(&path),
            () if name.ends_with(ASIDE) => fs::remove_file(&path),
            () => continue,
        };
    }
}
