//! campaign.json: what a result directory is the record of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use contract::device::GpuFacts;
use contract::id::Id;
use contract::run_file::Gemm;
use contract::schema;
use contract::text::one_line;
use serde::{Deserialize, Serialize};

use crate::environment::{Cpu, Flags};
use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::identity::Earlier;
use crate::manifest::ManifestError;

/// File name in a result directory.
pub const FILE: &str = "campaign.json";
/// Schema of `campaign.json`.
pub const SCHEMA: &str = "mxfp4-campaign/1";

/// What to do about a file of a result directory that is broken.
pub(crate) const MEND: &str =
    "restore it, or put the directory together again (`cargo xtask replicate --profile PROFILE` makes only runs that are not finished)";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// `mxfp4-campaign/1`.
    pub schema: String,
    pub profile: Id,
    pub papers: Vec<String>,
    pub device: String,
    /// Machine's name, as in the directory's.
    pub machine: Id,
    /// UTC day it was put together.
    pub date: String,
    /// Git commit, or `none`.
    pub commit: String,
    /// Whether the tree had changes that are not in the commit.
    pub dirty: bool,
    /// Hash of everything that was run and measured: equal keys, equal campaign.
    pub key: String,
    /// What the trainer computes, as its identity; in older records a hash of sources.
    pub trainer_code: String,
    /// Trainers of runs that were finished before, and what shows that they compute the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Earlier>,
    /// Whether runs of the profile are not in it: a selection left them out, or they were not finished.
    pub partial: bool,
    /// Whose kernels multiplied packed MXFP4, where it is not ours.
    #[serde(default, skip_serializing_if = "Gemm::is_own")]
    pub gemm: Gemm,
    pub seeds: Vec<u64>,
    pub runs: Vec<CampaignRun>,
}

/// One run in campaign.json.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignRun {
    pub arm: Id,
    pub seed: u64,
    /// Key in the run cache.
    pub key: String,
    /// `finished` or `failed`.
    pub status: String,
}

/// A campaign's key: of how it was carried out ([`on_cpu`], [`on_gpus`], [`of_finished`]), of its runs' keys, and of the manifests that decide
/// how they are measured, by their names in the result directory.
pub fn key<'a>(
    conditions: &str,
    runs: impl IntoIterator<Item = (&'a str, u64, &'a str)>,
    manifests: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text = conditions.to_owned();
    for (arm, seed, key) in runs {
        text.push_str(&format!("{arm}/{seed} {key}\n"));
    }
    for (name, sha256) in manifests {
        text.push_str(&format!("{sha256} {name}\n"));
    }
    files::sha256(text.as_bytes())
}

/// The key where measurements of kernels are shown, too: newer measurements, another report.
pub fn key_with_kernels(key: &str, document_sha256: &str) -> String {
    files::sha256(format!("{key} kernels {document_sha256}\n").as_bytes())
}

/// The key where the MI355X kernels were built or looked for: another compiler, another report.
pub fn key_with_code_objects(key: &str, document_sha256: &str) -> String {
    files::sha256(format!("{key} code objects {document_sha256}\n").as_bytes())
}

/// What timings on a CPU depend on besides the runs.
pub fn on_cpu(flags: &Flags, cpu: &Cpu) -> String {
    let Flags { threads_per_run, instruction_set, .. } = flags;
    format!("threads {threads_per_run} instruction set {instruction_set} on {} x {}\n", cpu.logical_cores, cpu.model)
}

pub fn on_gpus(kind: &str, gpus: &[GpuFacts]) -> String {
    format!("device {kind} {}\n", names_and_libraries(gpus))
}

/// Nothing is timed with finished runs.
pub fn of_finished(gpus: &[GpuFacts]) -> String {
    format!("finished runs of {}\n", names_and_libraries(gpus))
}

/// Each different name and list of libraries, in a line: what timings and numbers may depend on besides the run file.
fn names_and_libraries(gpus: &[GpuFacts]) -> String {
    let lines: BTreeSet<String> =
        gpus.iter().map(|gpu| format!("{} with {}", gpu.name.as_deref().unwrap_or("a GPU"), gpu.libraries.join(", "))).collect();
    lines.into_iter().collect::<Vec<_>>().join("; ")
}

/// Why a directory has no record that can be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{} does not follow its schema ({})", .path.display(), one_line(.what))]
    Content { path: PathBuf, what: String },
}

impl ExitCode for RecordError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Manifest(error) => error.exit_code(),
            Self::Content { .. } => exit::DATA,
        }
    }
}

impl Campaign {
    /// Whether a run by such a trainer belongs to it.
    pub fn is_by(&self, trainer_code: &str) -> bool {
        let same = |earlier: &Earlier| earlier.recorded == trainer_code && earlier.identity == self.trainer_code;
        self.trainer_code == trainer_code || self.carried.iter().any(same)
    }

    /// The record of the result directory `directory`.
    ///
    /// # Errors
    /// When there is none, or it does not follow its schema.
    pub fn read(directory: &Path) -> Result<Self, RecordError> {
        let path = directory.join(FILE);
        let text = files::read_text(&path)?;
        let wrong = |what: String| RecordError::Content { path: path.clone(), what };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        schema::require(value["schema"].as_str().unwrap_or_default(), SCHEMA).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
    }
}

/// The run file of one of the directory's runs, the first by name.
pub fn first_run(directory: &Path) -> Option<String> {
    let sorted = |path: &Path| -> Option<Vec<PathBuf>> {
        let mut paths: Vec<_> =
            std::fs::read_dir(path).ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
        paths.sort();
        Some(paths)
    };
    let seeds = sorted(&directory.join("runs"))?.into_iter().filter_map(|arm| sorted(&arm)).flatten();
    let file = seeds.map(|seed| seed.join("run.yaml")).find(|path| path.is_file())?;
    files::read_text(&file).ok()
}
