//! What was measured, each a name and its seconds: our kernels and steps, criterion's benchmarks, peers, memory, and what is missing.

use serde::{Deserialize, Serialize};

/// Repeats of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Members of a group took turns: sample i of one belongs to sample i of the others. Empty: measured alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// `<kind>/<variant>/<shape>`.
    pub name: String,
    pub threads: usize,
    /// Of one sample, in `unit`.
    pub operations: u64,
    /// `operations`, `elements` or `tokens`.
    pub unit: String,
    /// Seconds of each sample, in the order measured.
    pub samples: Vec<f64>,
}

/// A peer's measurement. Fields that a later script may add are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Which program, with its version.
    pub peer: String,
    /// `<kind>/<variant>/<shape>`; the names are those of kernels/peers/README.md.
    pub name: String,
    pub threads: usize,
    /// Of one sample, in `unit`.
    pub operations: u64,
    /// `operations`, `elements` or `tokens`.
    pub unit: String,
    /// Seconds of each sample.
    pub samples: Vec<f64>,
    /// What a reader should know of it.
    #[serde(default)]
    pub note: String,
    /// Whether its samples were taken in turns with ours, as on GPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    /// Most device memory that it held, in bytes, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}

impl Peer {
    /// As a measurement outside every group.
    pub fn as_samples(&self) -> Samples {
        let Self { name, threads, operations, unit, samples, .. } = self.clone();
        Samples { group: String::new(), name, threads, operations, unit, samples }
    }
}

/// A peer that could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    pub peer: String,
    /// What it would have measured.
    pub name: String,
    /// Why it did not.
    pub reason: String,
    pub install: String,
}

/// One benchmark's time for one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// `<kind>/<variant>/<shape>`, without the threads.
    pub name: String,
    pub threads: usize,
    /// In one call: two for each multiply-add, one for each element prepared, one for each byte that a reading peak reads.
    pub operations: u64,
    /// What one call reads and writes at least; 0 where nothing is said.
    pub bytes: u64,
    /// Median seconds of one call.
    pub seconds: f64,
    /// Criterion's 95 % interval of that median, in seconds.
    pub interval: [f64; 2],
    /// The peak that its speed is set against.
    pub peak: Option<String>,
    /// Its speed over that peak's, both of this run.
    pub peak_share: Option<f64>,
}

impl Benchmark {
    /// Thousand million operations (or elements) a second, at the median.
    pub fn giga_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds / 1e9
    }

    /// Thousand million bytes a second, at the median; none where bytes are not counted.
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.bytes as f64 / self.seconds / 1e9)
    }
}

/// The most memory that a process had resident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// As of the step's times: `step/A/mxfp4-fdw-h16`.
    pub name: String,
    /// Of the whole process, in bytes.
    pub peak_bytes: u64,
}
