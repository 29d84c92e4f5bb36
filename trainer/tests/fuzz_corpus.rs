//! The committed fuzz corpus as plain tests: no target panics, `ok-…` is accepted and `err-…` refused. Then inputs made from it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../fuzz/mutate.rs"]
mod mutate;
#[path = "../../fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

/// Runs `target` on each file of its corpus; at least `least` files must be there, or the corpus has been lost.
fn run(name: &str, target: fn(&[u8]) -> Result<(), String>, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut corpus = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let data = fs::read(&path).unwrap();
        let answer = target(&data);
        match file.split_once('-').map_or("", |parts| parts.0) {
            "ok" => assert_eq!(answer, Ok(()), "{name}/{file}"),
            "err" => assert!(answer.as_ref().is_err_and(|problem| !problem.is_empty()), "{name}/{file} was accepted"),
            _ => panic!("{name}/{file}: corpus files are named ok-… or err-…"),
        }
        // Every truncation and some single-bit changes: any answer will do, as long as there is one.
        if data.len() <= 512 {
            for length in 0..data.len() {
                let _ = target(&data[..length]);
            }
            for bit in 0..8 * data.len() {
                let mut changed = data.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let _ = target(&changed);
            }
        }
        corpus.push(data);
    }
    assert!(corpus.len() >= least, "{}: {} files, expected {least} or more", folder.display(), corpus.len());
    corpus.sort();
    mutate::inputs(name, &corpus, target);
}

#[test]
fn index() {
    run("index", targets::index, 26);
}

#[test]
fn safetensors() {
    run("safetensors", targets::safetensors, 17);
}

#[test]
fn run_file() {
    run("run_file", targets::run_file, 15);
}

#[test]
fn lines() {
    run("lines", targets::lines, 22);
}
