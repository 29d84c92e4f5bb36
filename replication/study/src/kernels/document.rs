//! kernels.json, everything that one `kernels-bench` measured, and the same as CSV.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::comparisons::{self, Compared, Measured};
use super::gpu::{GpuBench, GpuRow, NotRun};
use super::gpu_ratios;
use super::profile::ProfileRow;
use super::samples::{Benchmark, Memory, Missing, Peer, Samples};
use crate::files::{self, FileError};
use crate::statistics::median;

/// Why a kernels.json cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error(transparent)]
    File(#[from] FileError),
    /// A table could not be written as CSV or JSON.
    #[error("cannot write the benchmark table: {0}")]
    Table(String),
    /// Not a kernels.json.
    #[error("{}: {what}; it was cut off or is not the work of this version: measure again with `cargo xtask kernels-bench`", path.display())]
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
    /// Kinds of device that were asked for and are not here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_run: Vec<NotRun>,
}

impl Document {
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
        self.gpus.is_empty() || !(self.samples.is_empty() && self.benchmarks.is_empty())
    }

    /// The ratios of every GPU, computed again.
    pub fn compare_gpus(&self) -> impl Iterator<Item = Vec<Compared>> {
        self.gpus.iter().map(|gpu| gpu_ratios::compare(gpu, self.peers_asked))
    }

    /// The bars among the ratios, the CPU's first.
    pub fn bars(&self) -> impl Iterator<Item = &Compared> {
        let gpus = self.gpus.iter().flat_map(|gpu| &gpu.comparisons);
        self.comparisons.iter().chain(gpus).filter(|compared| compared.bar.is_some())
    }

    /// Reads kernels.json.
    ///
    /// # Errors
    /// When it cannot be read, is cut off, or does not follow its schema.
    pub fn read(path: &Path) -> Result<Self, DocumentError> {
        let refuse = |what: String| DocumentError::Content { path: path.to_owned(), what };
        let value: Value = serde_json::from_str(&files::read_text(path)?).map_err(|error| refuse(format!("is not JSON: {error}")))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => serde_json::from_value(value).map_err(|error| refuse(error.to_string())),
            found => Err(refuse(format!("schema {found:?} is not `{SCHEMA}`"))),
        }
    }

    /// Writes kernels.json, kernels.csv and comparisons.csv into `folder`.
    pub fn write(&self, folder: &Path) -> Result<(), DocumentError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| DocumentError::Table(error.to_string()))?;
        files::write(&folder.join(DOCUMENT), (text + "\n").as_bytes())?;
        files::write(
            &folder.join("kernels.csv"),
            self.measurements_csv().map_err(|error| DocumentError::Table(error.to_string()))?.as_bytes(),
        )?;
        let rows = self.comparisons_csv().map_err(|error| DocumentError::Table(error.to_string()))?;
        files::write(&folder.join("comparisons.csv"), rows.as_bytes())?;
        if self.gpus.is_empty() && self.not_run.is_empty() {
            return Ok(());
        }
        let rows = self.devices_csv().map_err(|error| DocumentError::Table(error.to_string()))?;
        Ok(files::write(&folder.join("devices.csv"), rows.as_bytes())?)
    }

    /// One row a measurement on a GPU, and one for each kind of device that is not here.
    fn devices_csv(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut rows = csv::Writer::from_writer(Vec::new());
        rows.write_record([
            "device",
            "gpu",
            "status",
            "mxfp4",
            "name",
            "unit",
            "operations",
            "seconds",
            "seconds_low",
            "seconds_high",
            "samples",
            "per_second",
            "of_stated_peak",
            "of_measured_peak",
            "needs",
        ])?;
        let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for gpu in &self.gpus {
            for GpuRow { samples, seconds, interval, per_second, of_stated, of_measured } in gpu.rows() {
                let end = |index: usize| optional(interval.map(|interval| interval[index]));
                let record = [
                    gpu.device.clone(),
                    gpu.name.clone(),
                    "measured".to_owned(),
                    gpu.mxfp4.clone(),
                    samples.name.clone(),
                    samples.unit.clone(),
                    samples.operations.to_string(),
                    seconds.to_string(),
                    end(0),
                    end(1),
                    samples.samples.len().to_string(),
                    per_second.to_string(),
                    optional(of_stated),
                    optional(of_measured),
                    String::new(),
                ];
                rows.write_record(record)?;
            }
            for missing in &gpu.missing {
                let mut record = vec![String::new(); 15];
                (record[0], record[1], record[2]) = (gpu.device.clone(), gpu.name.clone(), "not-run".to_owned());
                (record[4], record[14]) = (missing.name.clone(), format!("{} {}", missing.reason, missing.install).trim().to_owned());
                rows.write_record(record)?;
            }
        }
        for NotRun { device, rows: what, needs } in &self.not_run {
            let mut record = vec![String::new(); 15];
            (record[0], record[2], record[4], record[14]) = (device.clone(), "not-run".to_owned(), what.clone(), needs.clone());
            rows.write_record(record)?;
        }
        Ok(String::from_utf8(rows.into_inner()?)?)
    }

    /// One row a measurement: `source` is criterion, turns or the peer's name.
    fn measurements_csv(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut rows = csv::Writer::from_writer(Vec::new());
        rows.write_record([
            "source",
            "name",
            "threads",
            "unit",
            "operations",
            "bytes",
            "seconds",
            "seconds_low",
            "seconds_high",
            "samples",
            "operations_per_second",
            "peak",
            "peak_share",
        ])?;
        for benchmark in &self.benchmarks {
            let Benchmark { name, threads, operations, bytes, seconds, interval, peak, peak_share } = benchmark;
            let unit = if name.starts_with("quantise/") {
                "elements"
            } else if name.starts_with("peak/read") {
                "bytes"
            } else {
                "operations"
            };
            let share = peak_share.map(|share| share.to_string()).unwrap_or_default();
            let [low, high] = interval.map(|end| end.to_string());
            let speed = (*operations as f64 / seconds).to_string();
            let record = [
                "criterion".to_owned(),
                name.clone(),
                threads.to_string(),
                unit.to_owned(),
                operations.to_string(),
                bytes.to_string(),
                seconds.to_string(),
                low,
                high,
                String::new(),
                speed,
                peak.clone().unwrap_or_default(),
                share,
            ];
            rows.write_record(record)?;
        }
        let turns = self.samples.iter().map(|samples| ("turns".to_owned(), samples.clone()));
        for (source, samples) in turns.chain(self.peers.iter().map(|peer| (peer.peer.clone(), peer.as_samples()))) {
            let Samples { name, threads, operations, unit, samples, .. } = samples;
            let seconds = median(&samples).unwrap_or(f64::NAN);
            let (low, high) = samples.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), s| (low.min(*s), high.max(*s)));
            let record = [
                source,
                name,
                threads.to_string(),
                unit,
                operations.to_string(),
                String::new(),
                seconds.to_string(),
                low.to_string(),
                high.to_string(),
                samples.len().to_string(),
                (operations as f64 / seconds).to_string(),
                String::new(),
                String::new(),
            ];
            rows.write_record(record)?;
        }
        Ok(String::from_utf8(rows.into_inner()?)?)
    }

    fn comparisons_csv(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut rows = csv::Writer::from_writer(Vec::new());
        rows.write_record([
            "section", "what", "ours", "over", "threads", "ratio", "low", "high", "n", "in_turns", "bar", "verdict", "paper", "note",
        ])?;
        let gpus = self.gpus.iter().flat_map(|gpu| {
            gpu.comparisons.iter().map(|compared| Compared { section: format!("{} {}", gpu.device, compared.section), ..compared.clone() })
        });
        for compared in self.comparisons.iter().cloned().chain(gpus) {
            let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
            let Compared { section, what, ours, over, threads, ratio, interval, n, in_turns, bar, paper, verdict, note, .. } = compared;
            let (low, high) = (optional(interval.map(|i| i[0])), optional(interval.map(|i| i[1])));
            let turns = u8::from(in_turns).to_string();
            rows.write_record([
                section,
                what,
                ours,
                over,
                threads.to_string(),
                optional(ratio),
                low,
                high,
                n.to_string(),
                turns,
                optional(bar),
                verdict,
                optional(paper),
                note,
            ])?;
        }
        Ok(String::from_utf8(rows.into_inner()?)?)
    }
}
