//! The MLPerf log of a run with MLPerf's own Llama 3.1-8B numbers passes MLCommons' compliance checker.
//!
//! Needs a Python with mlperf_logging: MLPERF_LOGGING_PYTHON names it. Without, the second test says that it was skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common;
use contract::run_file::RunFile;
use trainer::metrics::Log;
use trainer::mllog::Mllog;

/// The benchmark's constants (PAPER section "MLPerf llama31_8b": closed division, global batch 32).
fn benchmark() -> RunFile {
    let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| {
        let model: serde_yaml::Value = serde_yaml::from_str(
            "{vocab_size: 128256, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, head_dim: 128, intermediate_size: 14336,
              sequence_length: 8192, rope_theta: 500000.0, rms_norm_eps: 1.0e-5, initializer_range: 0.02, scale_residual_init: true}",
        )
        .unwrap();
        run["model"] = model;
        run["optimizer"] = serde_yaml::from_str(
            "{name: adamw, learning_rate: 8.0e-4, beta1: 0.9, beta2: 0.95, epsilon: 1.0e-5, weight_decay: 0.1, clip_norm: 1.0}",
        )
        .unwrap();
        run["schedule"] =
            serde_yaml::from_str("{name: cosine-with-linear-warmup, warmup_steps: 128, decay_steps: 1199872, end_learning_rate: 8.0e-5}")
                .unwrap();
        run["batch"]["sequences"] = 32.into();
        run["budget"]["steps"] = 9600.into();
        run["evaluation"] = serde_yaml::from_str("{every_steps: 384, sequences: 1024}").unwrap();
        run["target_loss"] = 3.3.into();
        run["data"]["train"]["tokens"] = 10_000_000_000u64.into();
        run["data"]["validation"]["tokens"] = 47_186_855u64.into();
        run["mllog"]["benchmark"] = "llama31_8b".into();
    });
    RunFile::parse("benchmark", &serde_yaml::to_string(&run).unwrap()).unwrap()
}

/// Writes the log of a run that reaches the target at its third evaluation after the first.
fn write(path: &Path) {
    let run = benchmark();
    let mut mllog = Mllog::new(Log::create(path.to_owned()).unwrap(), None);
    mllog.begin(&run).unwrap();
    for (number, loss) in [12.0, 5.8, 4.5, 3.29].into_iter().enumerate() {
        mllog.evaluation(&run, number as u64 * 384 * 32, loss, number == 3).unwrap();
    }
    mllog.end(3 * 384 * 32, Some(3 * 384 * 32)).unwrap();
}

#[test]
fn lines_have_mlperfs_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mllog");
    write(&path);
    let text = fs::read_to_string(path).unwrap();
    for line in text.lines() {
        let json = line.strip_prefix(":::MLLOG ").unwrap_or_else(|| panic!("{line}"));
        // Keys in the order of mllog.py, which readers of text rely on.
        let places: Vec<usize> =
            ["\"namespace\"", "\"time_ms\"", "\"event_type\"", "\"key\"", "\"value\"", "\"metadata\"", "\"file\"", "\"lineno\""]
                .iter()
                .map(|key| json.find(key).unwrap_or_else(|| panic!("{key} in {line}")))
                .collect();
        assert!(places.is_sorted(), "{line}");
    }
    let count = |key: &str| text.lines().filter(|line| line.contains(&format!("\"key\":\"{key}\""))).count();
    for key in ["run_start", "run_stop", "init_start", "init_stop", "global_batch_size", "train_samples", "max_steps"] {
        assert_eq!(count(key), 1, "{key}");
    }
    assert_eq!((count("block_start"), count("block_stop"), count("eval_start"), count("eval_accuracy")), (3, 3, 4, 4));
}

#[test]
fn mlcommons_checker_accepts_it() {
    let Some(python) = std::env::var_os("MLPERF_LOGGING_PYTHON") else {
        eprintln!("skipped: MLPERF_LOGGING_PYTHON does not name a Python with mlperf_logging");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result_0.txt");
    write(&path);
    // The checker leaves a log of its own where it is started.
    let mut checker = Command::new(python);
    checker.args(["-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "6.0.0"]).arg(&path);
    let output = checker.current_dir(folder.path()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("SUCCESS"), "{said}\n{}", fs::read_to_string(&path).unwrap());
}
