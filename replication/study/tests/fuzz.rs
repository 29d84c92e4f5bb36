//! Bytes that look random, given to every reader of a result directory, of manifests and of MLPerf logs: any answer will do, no panic.
//!
//! What run files, shards, tensors and the lines between harness and trainer are read with has its own test, trainer/tests/fuzz_corpus.rs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use std::fs;
use std::path::{Path, PathBuf};

use contract::yaml;
use study::files;
use study::kernels::Document;
use study::manifest::{Dataset, Hardware, Model, Paper, Profile, Recipe, Tokenizer, public_logs};
use study::mllog;
use study::packed;
use study::record::Campaign;
use study::seal::Seal;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Small files below a folder with this ending.
fn corpus(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = repository().join(folder);
    let names = files::list(&folder).unwrap().into_iter().filter(|name| name.ends_with(ending));
    let all: Vec<Vec<u8>> = names.map(|name| fs::read(folder.join(name)).unwrap()).filter(|bytes| bytes.len() < 10_000).collect();
    assert!(!all.is_empty(), "{}: nothing ends with {ending}", folder.display());
    all
}

/// A reader that takes a path, in a folder of its own.
fn file<T, E: ToString>(name: &str, read: impl Fn(&Path) -> Result<T, E>) -> impl FnMut(&[u8]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    move |bytes| {
        let _ = &folder;
        fs::write(&path, bytes).unwrap();
        read(&path).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// A text given to the reader of every kind of manifest, and to what checks it alone.
fn manifest(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let taken = [
        yaml::from_str::<Recipe>(text).is_ok_and(|read| read.check().is_ok() && read.resolved().is_ok()),
        yaml::from_str::<Model>(text).is_ok_and(|read| read.check().is_ok()),
        yaml::from_str::<Profile>(text).is_ok(),
        yaml::from_str::<Paper>(text).is_ok(),
        yaml::from_str::<Dataset>(text).is_ok(),
        yaml::from_str::<Tokenizer>(text).is_ok(),
        yaml::from_str::<Hardware>(text).is_ok(),
        yaml::from_str::<public_logs::Manifest>(text).is_ok(),
    ];
    if taken.contains(&true) { Ok(()) } else { Err("no reader takes it".to_owned()) }
}

#[test]
fn manifests() {
    mutate::inputs("manifests", &corpus("manifests", ".yaml"), manifest);
}

const MLLOG: &str = r#":::MLLOG {"namespace":"","time_ms":1,"event_type":"POINT_IN_TIME","key":"global_batch_size","value":16,"metadata":{"file":"m.rs","lineno":9}}
:::MLLOG {"namespace":"","time_ms":2,"event_type":"INTERVAL_START","key":"run_start","value":null,"metadata":{"file":"m.rs","lineno":9}}
:::MLLOG {"namespace":"","time_ms":3,"event_type":"INTERVAL_START","key":"eval_start","value":null,"metadata":{"file":"m.rs","lineno":9,"samples_count":8}}
:::MLLOG {"namespace":"","time_ms":4,"event_type":"POINT_IN_TIME","key":"eval_accuracy","value":3.9,"metadata":{"file":"m.rs","lineno":9,"samples_count":8}}
:::MLLOG {"namespace":"","time_ms":5,"event_type":"INTERVAL_END","key":"run_stop","value":null,"metadata":{"file":"m.rs","lineno":9,"status":"success"}}
"#;

#[test]
fn mlperf_logs() {
    let read = |path: &Path| {
        let import = mllog::import(&[path.to_owned()], &mllog::Options::default());
        let shown = import.to_string();
        if import.problems() == 0 { Ok(shown) } else { Err(shown) }
    };
    // And a whole one that is taken as it is.
    let run = repository().join("results/2026-11-22-xeon-2c-cpu-694f997d/runs/fp8/1/run.mllog");
    let whole = packed::text(&run).unwrap();
    mutate::inputs("MLPerf logs", &[MLLOG.as_bytes().to_vec(), whole.into_bytes()], file("result_0.txt", read));
}

#[test]
fn tables_of_public_logs() {
    let folder = tempfile::tempdir().unwrap();
    let group = repository().join("manifests/evidence/mlperf-llama31-8b/amd-v6.0-mi350x-mxfp4");
    let names = ["runs.csv", "evaluations.csv"];
    let whole = names.map(|name| fs::read(group.join(name)).unwrap());
    let mut turn = 0;
    mutate::inputs("tables", &whole, |bytes| {
        turn += 1;
        fs::write(folder.path().join(names[turn % 2]), bytes).unwrap();
        fs::write(folder.path().join(names[1 - turn % 2]), &whole[1 - turn % 2]).unwrap();
        mllog::table::read(folder.path()).map(|_| ()).map_err(|error| error.to_string())
    });
}

#[test]
fn packed_logs() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..200).map(|line| format!("{{\"kind\":\"train\",\"step\":{line}}}\n")).collect();
    files::write(&folder.path().join("runs/a/1/metrics.jsonl"), lines.as_bytes()).unwrap();
    packed::pack(folder.path(), 0).unwrap();
    let corpus = [fs::read(folder.path().join("runs/a/1/metrics.jsonl.xz")).unwrap()];
    let read = |path: &Path| packed::bytes(&path.with_extension(""));
    mutate::inputs("packed logs", &corpus, file("metrics.jsonl.xz", read));
}

#[test]
fn records() {
    let record = fs::read(repository().join("results/2026-11-22-xeon-2c-cpu-694f997d/campaign.json")).unwrap();
    let read = |path: &Path| Campaign::read(path.parent().unwrap());
    mutate::inputs("campaign.json", &[record[..record.len().min(4000)].to_vec(), record], file("campaign.json", read));
}

#[test]
fn kernels() {
    let document = fs::read(repository().join("results/kernels-2026-11-22-nvidia-h200-steps-34m/kernels.json")).unwrap();
    let read = |path: &Path| {
        Document::read(path).map(|read| {
            let rows = read.compare_devices().count() + read.compare().len();
            rows + read.bars().count()
        })
    };
    mutate::inputs("kernels.json", &[document], file("kernels.json", read));
}

#[test]
fn seals() {
    let read = |path: &Path| {
        let folder = path.parent().unwrap();
        Seal::read(folder).map(|seal| seal.broken(folder)).ok_or("no seal")
    };
    let hash = "0".repeat(64);
    let corpus = [format!("{hash}  done.json\n{hash}  metrics.jsonl\n").into_bytes()];
    mutate::inputs("SHA256SUMS", &corpus, file("SHA256SUMS", read));
}
