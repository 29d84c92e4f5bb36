//! What criterion leaves behind: one benchmark's median and its interval, with the machine's peaks beside them.
//!
//! Criterion calls its JSON files private, so only four fields are read, and a file that lacks one is an error that says so.

use std::path::Path;

use serde::Deserialize;
use study::files;
use study::kernels::Benchmark;

use super::BenchError;

/// Every result below a `CRITERION_HOME`, sorted by name.
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
        // A neighbour can only slow a peak down, so its interval's fast end is the better word on it.
        let peak = found.operations as f64 / found.interval[0] / 1e9;
        timing.peak_share = speed.map(|speed| speed / peak);
    }
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, BenchError> {
    let text = files::read_text(path)?;
    serde_json::from_str(&text).map_err(|error| BenchError::Alien { path: path.to_owned(), what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATES: &str = r#"{"mean":{"point_estimate":9.0},"median":{"confidence_interval":{"confidence_level":0.95,"lower_bound":1900.0,"upper_bound":2100.0},"point_estimate":2000.0,"standard_error":1.0}}"#;

    fn counts(elements: u64, bytes: u64) -> String {
        format!(r#"{{"ElementsAndBytes":{{"elements":{elements},"bytes":{bytes}}}}}"#)
    }

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

    /// All calls take 2 microseconds, and 1.9 at the interval's fast end, which counts for peaks: 4,000 operations are 2 G/s, 0.475 of a
    /// peak of 8,000 operations in 1.9 microseconds; 6,000 bytes are 3 GB/s, 0.7125 of 8,000 bytes in that time.
    #[test]
    fn speeds_are_counts_over_the_median_and_shares_of_the_peak_of_the_same_threads() {
        let timings = [
            ("gemm/mxfp4/1x1x1/1t", counts(4000, 100)),
            ("quantise/x/1x1/1t", counts(1000, 6000)),
            ("gemm/f32/1x1x1/2t", counts(4000, 100)),
            ("peak/integer-dot/1t", counts(8000, 0)),
            ("peak/f32-fma/1t", counts(1, 0)),
            ("peak/read-memory/1t", counts(8000, 8000)),
        ];
        let timings: Vec<(&str, &str, &str)> = timings.iter().map(|(name, counts)| (*name, counts.as_str(), ESTIMATES)).collect();
        let home = home(&timings);
        let all = read(home.path()).unwrap();
        let of = |name: &str| all.iter().find(|timing| timing.name == name).unwrap();
        let product = of("gemm/mxfp4/1x1x1");
        assert!((product.giga_per_second() - 2.0).abs() < 1e-12 && (product.peak_share.unwrap() - 0.475).abs() < 1e-12);
        assert!((product.interval[0] - 1.9e-6).abs() < 1e-18 && (product.interval[1] - 2.1e-6).abs() < 1e-18);
        assert!((of("quantise/x/1x1").peak_share.unwrap() - 0.7125).abs() < 1e-12);
        // Two threads are not set against the peak of one.
        assert_eq!((of("gemm/f32/1x1x1").threads, of("gemm/f32/1x1x1").peak_share), (2, None));
        assert_eq!(of("peak/integer-dot").gigabytes_per_second(), None);
    }

    #[test]
    fn alien_files_are_named() {
        let fine = counts(3, 3);
        for (name, throughput, estimates, expected) in [
            ("x/1t", r#"{"Bytes":3}"#, ESTIMATES, "not a number of elements"),
            ("x/1t", "null", ESTIMATES, "not a number of elements"),
            ("x", &fine, ESTIMATES, "number of threads"),
            ("x/1t", &fine, "{}", "missing field `median`"),
            ("x/1t", &fine, "{\"median\"", "EOF"),
            ("x/1t", &fine, &ESTIMATES.replace("2000.0", "-1.0"), "is not a time"),
        ] {
            let home = home(&[(name, throughput, estimates)]);
            let message = read(home.path()).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains(".json"), "{message}");
        }
    }
}
