//! `compare` on result directories that are equal, that differ by a known amount, and that have different runs.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::fs;

use crate::{sealed, synthetic};
use study::compare::{CompareError, compare};

#[test]
fn the_same_campaign_twice_is_equal() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed::write(first.path());
    sealed::write(second.path());
    // Times differ between machines and are no difference.
    let timing = synthetic::run_directory(second.path(), "fp8", 1).join("timing.jsonl");
    fs::write(&timing, fs::read_to_string(&timing).unwrap().replace("0.06", "0.07")).unwrap();
    let comparison = compare(first.path(), second.path()).unwrap();
    assert!(comparison.equal(), "{comparison}");
    assert_eq!(comparison.equal_files, 8 * 3 + 4);
    assert!(comparison.to_string().contains("deterministic files: EQUAL, all 28 of them"), "{comparison}");
    assert!(comparison.times.iter().all(|pair| pair.ratio() == Some(1.0)));
    assert!(comparison.verdicts.iter().all(|pair| pair.words[0] == pair.words[1]));
}

#[test]
fn differences_are_measured() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed::write(first.path());
    sealed::write(second.path());
    let run = synthetic::run_directory(second.path(), "mxfp4-fdw", 2);
    let metrics = run.join("metrics.jsonl");
    let mut lines: Vec<String> = fs::read_to_string(&metrics).unwrap().lines().map(str::to_owned).collect();
    // Evaluations at steps 16 and 24 become higher by 2^-7 and 2^-6, exactly.
    for (step, more) in [(16, 0.0078125), (24, 0.015625)] {
        let start = format!("{{\"kind\":\"eval\",\"step\":{step},");
        let line = lines.iter_mut().find(|line| line.starts_with(&start)).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["loss"] = (value["loss"].as_f64().unwrap() + more).into();
        *line = value.to_string();
    }
    fs::write(&metrics, lines.join("\n") + "\n").unwrap();
    sealed::record(&run);
    let step_times = second.path().join("measurements/step_time.jsonl");
    let doubled: Vec<String> = fs::read_to_string(&step_times)
        .unwrap()
        .lines()
        .map(|line| {
            let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
            value["seconds"] = (2.0 * value["seconds"].as_f64().unwrap()).into();
            value.to_string()
        })
        .collect();
    fs::write(&step_times, doubled.join("\n")).unwrap();
    sealed::seal(second.path());

    let comparison = compare(first.path(), second.path()).unwrap();
    assert!(!comparison.equal());
    assert_eq!(comparison.runs.len(), 1);
    let run = &comparison.runs[0];
    assert_eq!((run.run.as_str(), run.metrics.len(), run.settings.len(), run.files.len()), ("mxfp4-fdw/2", 1, 0, 0));
    let metric = &run.metrics[0];
    assert_eq!((metric.what.as_str(), metric.differing, metric.compared, metric.first_step), ("eval loss", 2, 41, Some(16)));
    let (amount, step) = metric.largest.unwrap();
    assert!((amount - 0.015625).abs() < 1e-14 && step == 24, "{amount} {step}");
    assert_eq!(comparison.tables, ["data/validation.csv"]);
    let steps: Vec<_> = comparison.times.iter().filter(|pair| pair.what.starts_with("step, ")).collect();
    assert!(steps.len() == 4 && steps.iter().all(|pair| pair.ratio() == Some(2.0)));
    let text = comparison.to_string();
    assert!(text.contains("eval loss: 2 of 41 values differ") && text.contains("first at step 16"), "{text}");
}

#[test]
fn runs_of_one_side_and_other_settings_are_named() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed::write(first.path());
    sealed::write_arms(second.path(), &[synthetic::ARMS[0], synthetic::ARMS[2]], &[1]);
    let run = synthetic::run_directory(second.path(), "fp8", 1).join("run.yaml");
    fs::write(&run, fs::read_to_string(&run).unwrap().replacen("beta1: 0.9", "beta1: 0.8", 1)).unwrap();
    let comparison = compare(first.path(), second.path()).unwrap();
    assert_eq!(comparison.only[0], ["bf16/1", "bf16/2", "fp8/2", "mxfp4-fdw-h16/1", "mxfp4-fdw-h16/2", "mxfp4-fdw/1", "mxfp4-fdw/2"]);
    assert_eq!(comparison.only[1], ["mxfp4-f/1"]);
    assert_eq!(comparison.runs[0].settings, ["optimizer.beta1: 0.9 | 0.8"]);
    assert!(!comparison.equal());
}

#[test]
fn what_is_no_result_directory_is_refused() {
    let (first, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    sealed::write(first.path());
    assert!(matches!(compare(first.path(), empty.path()), Err(CompareError::NotResults { .. })));
    fs::write(empty.path().join("campaign.json"), "{").unwrap();
    let error = compare(empty.path(), first.path()).unwrap_err().to_string();
    assert!(error.contains("campaign.json does not follow its schema"), "{error}");
}
