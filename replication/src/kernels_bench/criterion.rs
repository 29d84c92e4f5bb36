//! What criterion leaves behind: one benchmark's median and its interval, with the machine's peaks beside them.
//!
//! Criterion calls its JSON files private, so only four fields are read, and a file that lacks one is an error that says so.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::BenchError;
use crate::files;

/// One benchmark's time for one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    /// `<kind>/<variant>/<shape>`, without the threads.
    pub name: String,
    /// Threads.
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

/// Every result below a `CRITERION_HOME`, sorted by name.
///
/// # Errors
/// When a file cannot be read or is not criterion's.
pub(super) fn read(home: &Path) -> Result<Vec<Benchmark>, BenchError> {
    let mut timings: Vec<Benchmark> = Vec::new();
    for name in files::list(home)? {
        if let Some(folder) = name.strip_suffix("new/benchmark.json") {
            timings.push(timing(&home.join(&name), &home.join(folder).join("new/estimates.json"))?);
        }
    }
    timings.sort_by(|a: &Benchmark, b| (a.threads, &a.name).cmp(&(b.threads, &b.name)));
    set_beside_peaks(&mut timings);
    Ok(timings)
}

/// The fields of criterion's benchmark.json that are used here; it has more.
#[derive(Deserialize)]
struct Record {
    full_id: String,
    throughput: Option<serde_json::Value>,
}

/// The fields of criterion's estimates.json that are used here, in nanoseconds; it has more.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: ConfidenceInterval,
}

#[derive(Deserialize)]
struct ConfidenceInterval {
    lower_bound: f64,
    upper_bound: f64,
}

fn timing(benchmark: &Path, estimates: &Path) -> Result<Benchmark, BenchError> {
    let alien = |path: &Path, what: String| BenchError::Alien { path: path.to_owned(), what };
    let Record { full_id, throughput } = json(benchmark)?;
    let counts = throughput.as_ref().and_then(|value| value.get("ElementsAndBytes"));
    let count = |key| counts.and_then(|counts| counts.get(key)).and_then(serde_json::Value::as_u64);
    let (Some(operations), Some(bytes)) = (count("elements"), count("bytes")) else {
        return Err(alien(benchmark, format!("throughput is {throughput:?}, not a number of elements and bytes")));
    };
    let named = full_id.rsplit_once('/').and_then(|(name, threads)| Some((name, threads.strip_suffix('t')?.parse().ok()?)));
    let Some((name, threads)) = named else {
        return Err(alien(benchmark, format!("the name `{full_id}` does not end in a number of threads such as /1t")));
    };
    let Estimate { point_estimate, confidence_interval: interval } = json::<Estimates>(estimates)?.median;
    let nanoseconds = [point_estimate, interval.lower_bound, interval.upper_bound];
    if nanoseconds.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
        return Err(alien(estimates, format!("median {nanoseconds:?} is not a time")));
    }
    let [seconds, low, high] = nanoseconds.map(|nanoseconds| nanoseconds * 1e-9);
    Ok(Benchmark { name: name.to_owned(), threads, operations, bytes, seconds, interval: [low, high], peak: None, peak_share: None })
}

/// Products of MXFP4 operands against the integer dot product, other products against F32 multiply-adds, preparation (whose bytes
/// come from and go to memory) against reading memory.
fn set_beside_peaks(timings: &mut [Benchmark]) {
    let peaks: Vec<Benchmark> = timings.iter().filter(|timing| timing.name.starts_with("peak/")).cloned().collect();
    for timing in timings {
        let peak = match timing.name.split('/').collect::<Vec<_>>()[..] {
            ["gemm", format, ..] if format.starts_with("mxfp4") => "peak/integer-dot",
            ["gemm", ..] => "peak/f32-fma",
            ["quantise", ..] => "peak/read-memory",
            _ => continue,
        };
        let Some(found) = peaks.iter().find(|found| found.name == peak && found.threads == timing.threads) else { continue };
        let speed = if peak == "peak/read-memory" { timing.gigabytes_per_second() } else { Some(timing.giga_per_second()) };
        timing.peak = Some(peak.to_owned());
        timing.peak_share = speed.map(|speed| speed / found.giga_per_second());
    }
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, BenchError> {
    let text = files::read_text(path)?;
    serde_json::from_str(&text).map_err(|error| BenchError::Alien { path: path.to_owned(), what: error.to_string() })
}
