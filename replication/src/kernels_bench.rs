//! `kernels-bench`: starts the criterion benchmarks of the kernels crate and turns what criterion leaves behind into a table.
//!
//! Not a benchmark itself, and not part of a campaign: claims about kernels rest on `trainer kernel-time`. Criterion calls its
//! JSON files private, so only four fields are read, and a file that lacks one is an error that says so.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, FileError};

/// Schema of `kernels_bench.json`.
pub const SCHEMA: &str = "mxfp4-kernels-bench/1";
/// How much of cargo's output an error shows.
const LAST_LINES: usize = 40;

/// One benchmark's time for one call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timing {
    /// Criterion's full name, such as `gemm/mxfp4/1024x768x128`.
    pub benchmark: String,
    /// Operations in one call: two for each multiply-add of a GEMM, one for each element quantised. None when the benchmark does not say.
    pub operations: Option<u64>,
    /// Median seconds of one call.
    pub seconds: f64,
    /// Criterion's 95 % interval of that median, in seconds.
    pub interval: [f64; 2],
}

impl Timing {
    /// Thousand million operations a second, at the median.
    pub fn giga_operations_per_second(&self) -> Option<f64> {
        self.operations.map(|operations| operations as f64 / self.seconds / 1e9)
    }
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A table could not be written as CSV or JSON.
    #[error("cannot write the benchmark table: {0}")]
    Table(String),
    /// cargo could not be started.
    #[error("cannot start {cargo}: {source}; is cargo installed?")]
    Start {
        /// The program.
        cargo: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// cargo or a benchmark ended with an error.
    #[error("`{command}` ended with {status}; its last lines were:\n{output}")]
    Failed {
        /// What was run.
        command: String,
        /// Exit status.
        status: String,
        /// The end of its output.
        output: String,
    },
    /// Not the file that this criterion version writes.
    #[error("{}: {what}; this is not what criterion 0.8 writes, so check its version in Cargo.lock", path.display())]
    Alien {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The filter matched nothing.
    #[error("no benchmark ran: {0}; `cargo bench -p kernels --bench cpu -- --list` names them all")]
    Nothing(String),
}

/// Builds and runs the benchmarks whose name contains `filter`, below `root`/target/replicate. `progress` gets each result line
/// that criterion prints, as it comes.
///
/// # Errors
/// [`BenchError`]; nothing is left out silently.
pub fn run(root: &Path, filter: Option<&str>, mut progress: impl FnMut(&str)) -> Result<Vec<Timing>, BenchError> {
    let target = root.join("target").join("replicate");
    // Emptied first, or a benchmark that was renamed or filtered out would come back with its old numbers.
    let home = target.join("kernels-bench");
    files::remove_folder(&home)?;
    files::make_folder(&home)?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut arguments: Vec<String> = ["bench", "--locked", "-p", "kernels", "--bench", "cpu", "--target-dir"].map(str::to_owned).to_vec();
    arguments.push(target.display().to_string());
    arguments.extend(filter.into_iter().flat_map(|filter| ["--".to_owned(), filter.to_owned()]));
    let start = |source| BenchError::Start { cargo: cargo.clone(), source };
    let expression = duct::cmd(&cargo, &arguments).dir(root).env("CRITERION_HOME", &home).stderr_to_stdout().unchecked();
    let reader = expression.reader().map_err(start)?;
    let mut last = VecDeque::new();
    let mut lines = BufReader::new(&reader);
    let mut bytes = Vec::new();
    while lines.read_until(b'\n', &mut bytes).map_err(start)? > 0 {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        if line.contains("time:") {
            progress(line.trim());
        }
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    let status = reader.try_wait().map_err(start)?.map(|output| output.status);
    if let Some(status) = status.filter(|status| !status.success()) {
        let output = Vec::from(last).join("\n");
        return Err(BenchError::Failed { command: format!("{cargo} {}", arguments.join(" ")), status: status.to_string(), output });
    }
    let timings = read(&home)?;
    if timings.is_empty() {
        let why = filter.map_or("there are none".to_owned(), |filter| format!("none has `{filter}` in its name"));
        return Err(BenchError::Nothing(why));
    }
    Ok(timings)
}

/// Every result below a `CRITERION_HOME`, sorted by name.
///
/// # Errors
/// When a file cannot be read or is not criterion's.
pub fn read(home: &Path) -> Result<Vec<Timing>, BenchError> {
    let mut timings = Vec::new();
    for name in files::list(home)? {
        if let Some(folder) = name.strip_suffix("new/benchmark.json") {
            timings.push(timing(&home.join(&name), &home.join(folder).join("new/estimates.json"))?);
        }
    }
    timings.sort_by(|a, b| a.benchmark.cmp(&b.benchmark));
    Ok(timings)
}

/// The fields of criterion's benchmark.json that are used here; it has more.
#[derive(Deserialize)]
struct Benchmark {
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

fn timing(benchmark: &Path, estimates: &Path) -> Result<Timing, BenchError> {
    let Benchmark { full_id, throughput } = json(benchmark)?;
    let operations = match throughput {
        None | Some(serde_json::Value::Null) => None,
        Some(value) => Some(value.get("Elements").and_then(serde_json::Value::as_u64).ok_or_else(|| BenchError::Alien {
            path: benchmark.to_owned(),
            what: format!("throughput is {value}, not a number of elements"),
        })?),
    };
    let Estimate { point_estimate, confidence_interval: interval } = json::<Estimates>(estimates)?.median;
    let nanoseconds = [point_estimate, interval.lower_bound, interval.upper_bound];
    if nanoseconds.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
        return Err(BenchError::Alien { path: estimates.to_owned(), what: format!("median {nanoseconds:?} is not a time") });
    }
    Ok(Timing {
        benchmark: full_id,
        operations,
        seconds: point_estimate * 1e-9,
        interval: [interval.lower_bound * 1e-9, interval.upper_bound * 1e-9],
    })
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, BenchError> {
    let text = files::read_text(path)?;
    serde_json::from_str(&text).map_err(|error| BenchError::Alien { path: path.to_owned(), what: error.to_string() })
}

/// Writes `kernels_bench.csv` and `kernels_bench.json` into `folder`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, timings: &[Timing]) -> Result<(), BenchError> {
    let table = |error: &dyn std::fmt::Display| BenchError::Table(error.to_string());
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["benchmark", "operations", "seconds", "seconds_low", "seconds_high", "giga_operations_per_second"])
        .map_err(|error| table(&error))?;
    for timing in timings {
        let optional = |value: Option<String>| value.unwrap_or_default();
        let record = [
            timing.benchmark.clone(),
            optional(timing.operations.map(|operations| operations.to_string())),
            timing.seconds.to_string(),
            timing.interval[0].to_string(),
            timing.interval[1].to_string(),
            optional(timing.giga_operations_per_second().map(|speed| speed.to_string())),
        ];
        rows.write_record(record).map_err(|error| table(&error))?;
    }
    let rows = rows.into_inner().map_err(|error| table(&error))?;
    let document = serde_json::json!({"schema": SCHEMA, "timings": timings});
    let document = serde_json::to_string_pretty(&document).map_err(|error| table(&error))?;
    files::write(&folder.join("kernels_bench.csv"), &rows)?;
    files::write(&folder.join("kernels_bench.json"), (document + "\n").as_bytes())?;
    Ok(())
}

/// The table for a terminal.
pub fn table(timings: &[Timing]) -> String {
    let width = timings.iter().map(|timing| timing.benchmark.len()).max().unwrap_or(0).max("benchmark".len());
    let mut text = format!("{:<width$}  {:>12}  {:>10}\n", "benchmark", "microseconds", "Gop/s");
    for timing in timings {
        let speed = timing.giga_operations_per_second().map_or("-".to_owned(), |speed| format!("{speed:.1}"));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<width$}  {:>12.2}  {speed:>10}", timing.benchmark, timing.seconds * 1e6);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATES: &str = r#"{"mean":{"point_estimate":9.0},"median":{"confidence_interval":{"confidence_level":0.95,"lower_bound":1900.0,"upper_bound":2100.0},"point_estimate":2000.0,"standard_error":1.0}}"#;

    fn home(benchmarks: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for (name, throughput, estimates) in benchmarks {
            let folder = home.path().join(name.replace('/', "_")).join("new");
            let benchmark = format!(r#"{{"group_id":"g","full_id":"{name}","throughput":{throughput},"title":"t"}}"#);
            files::write(&folder.join("benchmark.json"), benchmark.as_bytes()).unwrap();
            files::write(&folder.join("estimates.json"), estimates.as_bytes()).unwrap();
            // What the previous run left; must not be counted.
            files::write(&folder.join("../base/benchmark.json"), b"old").unwrap();
        }
        home
    }

    #[test]
    fn throughput_is_operations_over_the_median() {
        let home = home(&[("gemm/b", r#"{"Elements":4000}"#, ESTIMATES), ("gemm/a", "null", ESTIMATES)]);
        let timings = read(home.path()).unwrap();
        assert_eq!(timings.iter().map(|timing| timing.benchmark.as_str()).collect::<Vec<_>>(), ["gemm/a", "gemm/b"]);
        // 4,000 operations in 2 microseconds: 2 thousand million a second.
        assert!((timings[1].giga_operations_per_second().unwrap() - 2.0).abs() < 1e-12);
        assert!((timings[1].interval[0] - 1.9e-6).abs() < 1e-18 && (timings[1].interval[1] - 2.1e-6).abs() < 1e-18);
        assert_eq!(timings[0].giga_operations_per_second(), None);
        assert_eq!(
            table(&timings),
            "benchmark  microseconds       Gop/s\ngemm/a             2.00           -\ngemm/b             2.00         2.0\n"
        );
    }

    #[test]
    fn written_tables_read_back() {
        let home = home(&[("quantise/e2m1-nearest-even-none", r#"{"Elements":32}"#, ESTIMATES)]);
        let timings = read(home.path()).unwrap();
        let out = tempfile::tempdir().unwrap();
        write(out.path(), &timings).unwrap();
        let rows: Vec<Vec<String>> =
            csv::Reader::from_path(out.path().join("kernels_bench.csv")).unwrap().deserialize().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][2].parse::<f64>().unwrap(), timings[0].seconds);
        let document: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(out.path().join("kernels_bench.json")).unwrap()).unwrap();
        assert_eq!(document["schema"], SCHEMA);
        assert_eq!(document["timings"][0]["operations"], 32);
    }

    #[test]
    fn alien_files_are_named() {
        for (throughput, estimates, expected) in [
            (r#"{"Bytes":3}"#, ESTIMATES, "not a number of elements"),
            ("null", "{}", "missing field `median`"),
            ("null", "{\"median\"", "EOF"),
            ("null", &ESTIMATES.replace("2000.0", "-1.0"), "is not a time"),
        ] {
            let home = home(&[("x", throughput, estimates)]);
            let message = read(home.path()).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains(".json"), "{message}");
        }
    }
}
