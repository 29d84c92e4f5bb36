//! `--tensorboard`: the same bytes with and without it, and events that say what metrics.jsonl says, across a resumption.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn prepare(folder: &Path, steps: u64) -> PathBuf {
    common::write_data(&folder.join("data"));
    let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| {
        run["budget"]["steps"] = steps.into();
        common::read_through(run, &["bf16"], 6);
    });
    common::write_run(&folder.join("run"), &run)
}

fn train(folder: &Path, more: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(folder.join("run/run.yaml")).arg("--data").arg(folder.join("data")).args(more);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn event_files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Scalars by tag and step, and the steps of session starts, as a plain reader of the wire format finds them: no line is shared with the writer.
fn scalars(path: &Path) -> (BTreeMap<(String, u64), f32>, Vec<u64>) {
    let (bytes, mut at) = (fs::read(path).unwrap(), 0);
    let (mut found, mut starts) = (BTreeMap::new(), Vec::new());
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let mut step = 0;
        for (field, value) in fields(&bytes[at + 12..at + 12 + length]) {
            match (field, value) {
                (2, Value::Number(number)) => step = number,
                (5, Value::Bytes(summary)) => {
                    let summary = fields(&summary);
                    let [(1, Value::Bytes(inner))] = summary.as_slice() else { panic!("a summary of one value: {summary:?}") };
                    let value = fields(inner);
                    let [(1, Value::Bytes(tag)), (2, Value::Float(value))] = value.as_slice() else { panic!("a scalar: {value:?}") };
                    assert!(found.insert((String::from_utf8(tag.clone()).unwrap(), step), *value).is_none());
                }
                (7, Value::Bytes(_)) => starts.push(step),
                _ => (),
            }
        }
        at += 16 + length;
    }
    assert_eq!(at, bytes.len());
    (found, starts)
}

#[derive(Debug)]
enum Value {
    Number(u64),
    Double,
    Float(f32),
    Bytes(Vec<u8>),
}

fn fields(mut message: &[u8]) -> Vec<(u64, Value)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => {
                message = &message[8..];
                Value::Double
            }
            2 => {
                let length = varint(&mut message) as usize;
                let (content, rest) = message.split_at(length);
                message = rest;
                Value::Bytes(content.to_vec())
            }
            5 => {
                let (content, rest) = message.split_at(4);
                message = rest;
                Value::Float(f32::from_le_bytes(content.try_into().unwrap()))
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, value));
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let length = message.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (number, rest) = message.split_at(length);
    *message = rest;
    number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

/// What a campaign throws away it need not write: the hash of the weights is there all the same.
#[test]
fn logs_alone_say_the_same() {
    let (plain, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [plain.path(), logs.path()] {
        common::write_data(&folder.join("data"));
        let run = common::tiny_yaml(common::recipe("mxfp4-fdw-h16"), |run| run["checkpoint"]["every_steps"] = 100.into());
        common::write_run(&folder.join("run"), &run);
    }
    train(plain.path(), &[]);
    train(logs.path(), &["--logs-only"]);
    for name in ["metrics.jsonl", "done.json"] {
        let read = |folder: &Path| fs::read(folder.join("run").join(name)).unwrap();
        assert!(read(plain.path()) == read(logs.path()), "{name}");
    }
    for name in ["model", "checkpoint"] {
        let is_there = |folder: &Path| folder.join("run").join(name).exists();
        assert!(is_there(plain.path()) && !is_there(logs.path()), "{name}");
    }
}

#[test]
fn events_say_what_metrics_say_and_change_no_byte() {
    let (plain, watched) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let events = watched.path().join("events");
    for folder in [plain.path(), watched.path()] {
        prepare(folder, 12);
    }
    train(plain.path(), &[]);
    train(watched.path(), &["--tensorboard", events.to_str().unwrap()]);
    for name in ["metrics.jsonl", "done.json", "model/model.safetensors", "checkpoint/state.safetensors"] {
        let read = |folder: &Path| fs::read(folder.join("run").join(name)).unwrap();
        assert!(read(plain.path()) == read(watched.path()), "{name}");
    }
    assert_eq!(fs::read_dir(plain.path().join("run")).unwrap().count(), fs::read_dir(watched.path().join("run")).unwrap().count());

    let files = event_files(&events.join("test/mxfp4-fdw-h16/7"));
    let (mut found, starts) = scalars(&files[0]);
    assert_eq!((files.len(), starts), (1, vec![0]));
    let mut seen = 0;
    for line in fs::read_to_string(watched.path().join("run/metrics.jsonl")).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let named = match line["kind"].as_str().unwrap() {
            "train" => vec![
                ("loss/train".to_owned(), "loss"),
                ("gradient_norm".to_owned(), "grad_norm"),
                ("learning_rate".to_owned(), "learning_rate"),
            ],
            "eval" => vec![("loss/validation".to_owned(), "loss")],
            "reading" => vec![(format!("reading/{}", text("recipe")), "loss")],
            "quantisation" => {
                let tag = format!("relative_error/{}.{}/{}.{}", text("pass"), text("operand"), line["layer"], text("linear"));
                vec![(tag, "relative_error")]
            }
            _ => vec![],
        };
        for (tag, key) in named {
            let value = found.remove(&(tag.clone(), line["step"].as_u64().unwrap())).unwrap_or_else(|| panic!("{tag} at {line}"));
            assert_eq!(value, line[key].as_f64().unwrap() as f32, "{tag}");
            seen += 1;
        }
    }
    assert!(found.is_empty() && seen > 50, "{seen} seen, left over: {found:?}");
}

/// A session that goes on says from which step, so that readers drop what is done again.
#[test]
fn a_resumed_run_has_a_second_file_that_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let (run, events) = (prepare(folder.path(), 12), folder.path().join("events"));
    let option = ["--tensorboard", events.to_str().unwrap()];
    train(folder.path(), &option);
    // As if it had been killed after the checkpoint of its last step.
    fs::remove_file(run.with_file_name("done.json")).unwrap();
    train(folder.path(), &option);
    let files = event_files(&events.join("test/mxfp4-fdw-h16/7"));
    assert_eq!(files.len(), 2);
    assert_eq!(scalars(&files[1]).1, [13]);
}
