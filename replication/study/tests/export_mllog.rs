//! Our runs as MLPerf logs: what is written anew, where a log ends, and which rules a scaled-down run cannot meet.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use study::mllog::{Options, Status, export, import};
use tempfile::TempDir;

const HEADER: &[(&str, &str)] = &[
    ("submission_benchmark", "\"llama31_8b_scaled\""),
    ("submission_org", "\"open replication\""),
    ("submission_division", "\"closed\""),
    ("submission_status", "\"research\""),
    ("submission_platform", "\"cpu\""),
    ("cache_clear", "true"),
    ("seed", "1"),
    ("global_batch_size", "4"),
    ("max_sequence_length", "8192"),
    ("opt_name", "\"adamw\""),
    ("opt_base_learning_rate", "0.0008"),
    ("opt_end_learning_rate", "8e-5"),
    ("opt_learning_rate_warmup_steps", "64"),
    ("opt_learning_rate_decay_steps", "1199936"),
    ("opt_learning_rate_decay_schedule", "\"cosine with linear warmup\""),
    ("opt_adamw_beta_1", "0.9"),
    ("opt_adamw_beta_2", "0.95"),
    ("opt_adamw_epsilon", "1e-5"),
    ("opt_adamw_weight_decay", "0.1"),
    ("opt_gradient_clip_norm", "1.0"),
    ("gradient_accumulation_steps", "1"),
    ("eval_samples", "1024"),
    ("max_steps", "1200000"),
];

fn line(time: u64, kind: &str, key: &str, value: &str, metadata: &str) -> String {
    format!(
        ":::MLLOG {{\"namespace\":\"\",\"time_ms\":{time},\"event_type\":\"{kind}\",\"key\":\"{key}\",\"value\":{value},\"metadata\":{{\"file\":\"m.rs\",\"lineno\":9{metadata}}}}}\n"
    )
}

/// As the trainer logs it: an evaluation before the first step, `block_stop` with the samples of the block's start.
fn log(losses: &[&str], status: &str) -> String {
    let mut text: String = HEADER.iter().map(|(key, value)| line(1, "POINT_IN_TIME", key, value, "")).collect();
    text += &line(1, "INTERVAL_START", "init_start", "null", "");
    text += &line(2, "INTERVAL_END", "init_stop", "null", "");
    text += &line(3, "INTERVAL_START", "run_start", "null", "");
    let mut time = 3;
    for (index, loss) in losses.iter().enumerate() {
        let (samples, at) = (64 * index, format!(",\"samples_count\":{}", 64 * index));
        if index > 0 {
            let begin = format!(",\"samples_count\":{}", samples - 64);
            text += &line(time, "INTERVAL_START", "block_start", "null", &format!("{begin},\"samples_in_block\":64"));
            text += &line(time + 80, "INTERVAL_END", "block_stop", "null", &begin);
            time += 80;
        }
        text += &line(time, "INTERVAL_START", "eval_start", "null", &at);
        text += &line(time + 9, "POINT_IN_TIME", "eval_accuracy", loss, &at);
        text += &line(time + 10, "INTERVAL_END", "eval_stop", "null", &at);
        time += 10;
    }
    let last = 64 * (losses.len() - 1);
    text += &line(time + 5, "INTERVAL_END", "run_stop", "null", &format!(",\"samples_count\":{last},\"status\":\"{status}\""));
    text + &line(time + 5, "POINT_IN_TIME", "train_samples", &last.to_string(), "")
}

fn results(runs: &[(&str, u64, String, bool)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (arm, seed, log, done) in runs {
        let run = folder.path().join("runs").join(arm).join(seed.to_string());
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("run.mllog"), log).unwrap();
        let yaml =
            format!("schema: mxfp4-run/1\nrun: {{profile: tiny, arm: {arm}, seed: {seed}}}\ntarget_loss: 3.3\nmodel: {{hidden_size: 1}}\n");
        std::fs::write(run.join("run.yaml"), yaml).unwrap();
        if *done {
            let done = r#"{"schema":"mxfp4-done/1","status":"completed","steps":2,"tokens":128,"final_train_loss":3.0,"final_validation_loss":3.2,
                "metrics_sha256":"","model_sha256":null,"run_sha256":""}"#;
            std::fs::write(run.join("done.json"), done).unwrap();
        }
    }
    folder
}

fn read(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line.strip_prefix(":::MLLOG ").unwrap()).unwrap()).collect()
}

#[test]
fn a_log_ends_where_the_target_is_reached() {
    let results = results(&[("fp8", 1, log(&["6.0", "4.0", "3.25", "3.4", "3.1"], "success"), true)]);
    let out = results.path().join("out");
    let export = export(results.path(), &out).unwrap();
    assert_eq!(export.logs, ["tiny-fp8/llama31_8b/result_0.txt"]);
    assert_eq!(export.unmet, [], "every value is the rules' own");
    let events = read(&out.join(&export.logs[0]));
    let of = |key: &str| events.iter().filter(|event| event["key"] == key).collect::<Vec<_>>();
    assert_eq!(of("submission_benchmark")[0]["value"], "llama31_8b");
    assert_eq!(of("submission_platform")[0]["value"], "cpu: profile tiny, arm fp8, seed 1");
    assert_eq!(of("eval_accuracy").iter().map(|event| event["value"].as_f64().unwrap()).collect::<Vec<_>>(), [6.0, 4.0, 3.25]);
    let ends: Vec<u64> = of("block_stop").iter().map(|event| event["metadata"]["samples_count"].as_u64().unwrap()).collect();
    assert_eq!(ends, [64, 128], "the samples at a block's end, not at its start");
    assert_eq!(of("block_start").len(), 2, "the block after the target is not there");
    let stop = of("run_stop")[0];
    assert_eq!((stop["metadata"]["status"].as_str(), stop["metadata"]["samples_count"].as_u64()), (Some("success"), Some(128)));
    assert_eq!(stop["time_ms"], 3 + 10 + 90 + 90, "the clock stops with the evaluation");
    assert_eq!(events.last().unwrap()["value"], 128, "train_samples");
    // The importer of this repository reads it back without a word.
    let again = import(&[out.join(&export.logs[0])], &Options::default());
    assert_eq!((again.findings.len(), again.runs[0].status, again.runs[0].reached(3.3).unwrap().samples), (0, Status::Success, 128));
}

#[test]
fn a_run_that_misses_the_target_is_aborted_and_whole() {
    let results = results(&[("fp8", 2, log(&["6.0", "4.0", "3.5"], "aborted"), true)]);
    let export = export(results.path(), &results.path().join("out")).unwrap();
    let events = read(&export.folder.join(&export.logs[0]));
    let stop = events.iter().find(|event| event["key"] == "run_stop").unwrap();
    assert_eq!((stop["metadata"]["status"].as_str(), stop["metadata"]["samples_count"].as_u64()), (Some("aborted"), Some(128)));
    assert_eq!(stop["time_ms"], 3 + 10 + 90 + 90 + 5);
    let unmet: Vec<(&str, &str)> = export.unmet.iter().map(|row| (row.key, row.value.as_str())).collect();
    assert_eq!(unmet, [("eval_accuracy", "3.5 at the lowest")]);
}

#[test]
fn rules_that_a_scaled_run_cannot_meet_are_listed() {
    let small = log(&["6.0", "3.2"], "success")
        .replace("\"max_sequence_length\",\"value\":8192", "\"max_sequence_length\",\"value\":128")
        .replace("\"eval_samples\",\"value\":1024", "\"eval_samples\",\"value\":32");
    let results = results(&[("fp8", 10, small.clone(), true), ("fp8", 9, small, true), ("fp8", 11, log(&["6.0"], "aborted"), false)]);
    let export = export(results.path(), &results.path().join("out")).unwrap();
    assert_eq!(
        export.to_string().replace(&export.folder.display().to_string(), "OUT"),
        "2 logs written to OUT\nleft out: fp8/11: not finished\n\
         rules for llama31_8b that these runs do not meet (every log: unmet-rules.csv):\n  \
         max_sequence_length: 128, the rule is 8192 (2 of 2 logs)\n  eval_samples: 32, the rule is 1024 (2 of 2 logs)\n"
    );
    let seed =
        |log: &str| read(&export.folder.join(log)).iter().find(|event| event["key"] == "submission_platform").unwrap()["value"].clone();
    assert_eq!(seed("tiny-fp8/llama31_8b/result_0.txt"), "cpu: profile tiny, arm fp8, seed 9", "seeds in order of number");
    let csv = std::fs::read_to_string(export.folder.join("unmet-rules.csv")).unwrap();
    assert_eq!(csv.lines().nth(1), Some("tiny-fp8/llama31_8b/result_0.txt,max_sequence_length,128,8192"));
}

#[test]
fn what_cannot_be_exported_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let message = |from: &Path, to: &Path| export(from, to).unwrap_err().to_string().replace(&from.display().to_string(), "DIR");
    let out = empty.path().join("out");
    assert_eq!(message(empty.path(), &out), "DIR holds no runs/<arm>/<seed>/run.mllog; name one of the folders below results/");
    let results = results(&[("fp8", 1, log(&["6.0", "3.2"], "success") + ":::MLLOG {\"key\"", true)]);
    assert_eq!(
        message(results.path(), &out),
        "DIR/runs/fp8/1/run.mllog: line 37: the line is cut off inside its JSON object; check the directory with `cargo xtask verify`"
    );
    std::fs::write(results.path().join("runs/fp8/1/done.json"), "").unwrap();
    let said = message(results.path(), &out);
    assert!(said.starts_with("DIR/runs/fp8/1/done.json: ") && said.ends_with("; check the directory with `cargo xtask verify`"), "{said}");
    assert!(!out.exists(), "nothing is left of an export that failed");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "x").unwrap();
    assert!(message(results.path(), &out).contains("already holds files; name a new folder with --out"));
}
