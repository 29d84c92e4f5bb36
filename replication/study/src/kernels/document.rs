//! kernels.json, everything that one `kernels-bench` measured.

use std::path::{Path, PathBuf};

use contract::text::one_line;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock_model::ClockModel;
use super::comparisons::{self, Compared, Measured};
use super::gpu::{GpuBench, NotRun};
use super::gpu_ratios;
use super::profile::ProfileRow;
use super::ranks::RanksBench;
use super::samples::{Benchmark, Memory, Missing, Peer, Samples};
use crate::files::FileError;
use crate::packed;
use crate::table::TableError;

/// Why a kernels.json cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("cannot write the benchmark document: {0}")]
    Json(String),
    /// Not a kernels.json.
    #[error("{}: {}; it was cut off or is not the work of this version: measure again with `cargo xtask kernels-bench`", path.display(), one_line(.what))]
    Content { path: PathBuf, what: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Under a minute: the reference product, size A.
    Quick,
    /// Under three minutes on two cores.
    Default,
    /// Every shape, rotation and rounding, long samples.
    Deep,
}

impl Depth {
    /// As the benchmark programs read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Deep => "deep",
        }
    }

    /// Rounds of members that take turns.
    pub fn rounds(self) -> usize {
        match self {
            Self::Quick | Self::Default => 15,
            Self::Deep => 40,
        }
    }
}

/// The file that holds every measurement; all others are made from it.
pub const DOCUMENT: &str = "kernels.json";

/// Schema of `kernels.json`.
pub const SCHEMA: &str = "mxfp4-kernels/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    pub date: String,
    /// Machine's name, as in the directory's.
    pub machine: String,
    pub processor: String,
    /// What was asked for: `cpu`, `cuda`, `cuda:1`, `hip`, `all`.
    pub device: String,
    /// Instruction set of our kernels.
    pub instruction_set: String,
    /// Git commit, or `none`.
    pub commit: String,
    /// Whether the tree had changes that are not in the commit.
    pub dirty: bool,
    /// Fingerprint of the trainer's and kernels' sources.
    pub trainer_code: String,
    pub depth: Depth,
    /// Only what has this in its name; null: everything.
    pub only: Option<String>,
    /// Thread counts; the first is the one that bars are judged at.
    pub threads: Vec<usize>,
    /// Rounds of members that take turns.
    pub rounds: usize,
    /// Whether the peer script was run.
    pub peers_asked: bool,
    /// Seconds that measuring took, building left out.
    pub measuring_seconds: f64,
    pub benchmarks: Vec<Benchmark>,
    /// Members of groups that took turns, and steps.
    pub samples: Vec<Samples>,
    pub peers: Vec<Peer>,
    /// Peers that could not run.
    pub missing: Vec<Missing>,
    /// The peer script's own environment line.
    pub peer_environment: Option<Value>,
    /// Where a step's time goes.
    pub profile: Vec<ProfileRow>,
    /// What a step of each arm needs in memory.
    pub memory: Vec<Memory>,
    /// Every ratio of the CPU, computed from the above.
    pub comparisons: Vec<Compared>,
    /// Every GPU that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuBench>,
    /// Steps of several ranks, of each kind of device; where there are any, nothing else was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RanksBench>,
    /// Kinds of device that were asked for and are not here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_run: Vec<NotRun>,
    /// What the clock model says of gfx950 kernels, where those were measured or interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_model: Option<ClockModel>,
}

impl Document {
    /// The clock model, if it is of this GPU's kernels.
    pub fn model_of(&self, gpu: &GpuBench) -> Option<&ClockModel> {
        self.clock_model.as_ref().filter(|_| ClockModel::is_of(&gpu.architecture))
    }

    /// The clock model where no GPU of its kind was measured: its figures stand alone.
    pub fn model_alone(&self) -> Option<&ClockModel> {
        self.clock_model.as_ref().filter(|_| !self.gpus.iter().any(|gpu| ClockModel::is_of(&gpu.architecture)))
    }

    /// The ratios that the measurements give: what `comparisons` must hold.
    pub fn compare(&self) -> Vec<Compared> {
        let Self { samples, peers, missing, profile, peers_asked, benchmarks, memory, .. } = self;
        let evidence = Measured { ours: samples, peers, missing, profile, peers_asked: *peers_asked, benchmarks, memory };
        // Bars are judged once, at the first number of threads.
        let each = self.threads.iter().enumerate();
        each.flat_map(|(index, threads)| comparisons::compare(&evidence, *threads, index == 0)).collect()
    }

    /// Whether the CPU's kernels were measured, and not a GPU's alone.
    pub fn of_cpu(&self) -> bool {
        (self.gpus.is_empty() && self.ranks.is_empty()) || !(self.samples.is_empty() && self.benchmarks.is_empty())
    }

    /// Each GPU, then each kind of device of several ranks: its name, and its ratios as they are written.
    pub fn of_devices(&self) -> impl Iterator<Item = (&str, &[Compared])> {
        let gpus = self.gpus.iter().map(|gpu| (gpu.device.as_str(), gpu.comparisons.as_slice()));
        gpus.chain(self.ranks.iter().map(|ranks| (ranks.device.as_str(), ranks.comparisons.as_slice())))
    }

    /// The ratios of the same, in the same order, computed again.
    pub fn compare_devices(&self) -> impl Iterator<Item = Vec<Compared>> {
        let gpus = self.gpus.iter().map(|gpu| gpu_ratios::compare(gpu, self.peers_asked));
        gpus.chain(self.ranks.iter().map(|ranks| ranks.compare(self.peers_asked)))
    }

    /// Writes every ratio as it is computed now.
    pub fn compare_again(&mut self) {
        self.comparisons = self.compare();
        let computed: Vec<_> = self.compare_devices().collect();
        let gpus = self.gpus.iter_mut().map(|gpu| &mut gpu.comparisons);
        let written = gpus.chain(self.ranks.iter_mut().map(|ranks| &mut ranks.comparisons));
        written.zip(computed).for_each(|(written, computed)| *written = computed);
    }

    /// The bars among the ratios, the CPU's first.
    pub fn bars(&self) -> impl Iterator<Item = &Compared> {
        let of_devices = self.of_devices().flat_map(|(_, comparisons)| comparisons);
        self.comparisons.iter().chain(of_devices).filter(|compared| compared.bar.is_some())
    }

    /// Reads kernels.json.
    ///
    /// # Errors
    /// When it cannot be read, is cut off, or does not follow its schema.
    pub fn read(path: &Path) -> Result<Self, DocumentError> {
        let refuse = |what: String| DocumentError::Content { path: path.to_owned(), what };
        let value: Value = serde_json::from_str(&packed::document(path)?).map_err(|error| refuse(format!("is not JSON: {error}")))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => serde_json::from_value(value).map_err(|error| refuse(error.to_string())),
            found => Err(refuse(format!("schema {found:?} is not `{SCHEMA}`"))),
        }
    }
}
