//! `run.mllog`, as the trainer writes it: what a line says is the contract's, when and where it was said is added here.
//!
//! A line is `:::MLLOG ` and a JSON object with the keys in the order namespace, time_ms, event_type, key, value, metadata
//! (mlcommons/logging, `mllog.py`), which MLCommons' compliance checker reads.

use std::panic::Location;
use std::time::{SystemTime, UNIX_EPOCH};

use contract::mllog::{self, Blocks, Entry};
use contract::run_file::RunFile;
use serde_json::{Map, json};

use crate::error::TrainerError;
use crate::metrics::Log;

/// The open log and the moment of its lines.
#[derive(Debug)]
pub struct Mllog {
    log: Log,
    blocks: Blocks,
}

impl Mllog {
    /// Writes to `log`. A resumed run is inside a block of training that began at `open_block` sequences.
    pub fn new(log: Log, open_block: Option<u64>) -> Self {
        Self { log, blocks: Blocks::resumed(open_block) }
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.log.length()
    }

    /// Waits until the lines are on disk.
    pub fn sync(&self) -> Result<(), TrainerError> {
        self.log.sync()
    }

    /// Everything before the first step.
    #[track_caller]
    pub fn begin(&mut self, run: &RunFile) -> Result<(), TrainerError> {
        self.lines(mllog::begin(run))
    }

    /// One evaluation at `samples` trained sequences.
    #[track_caller]
    pub fn evaluation(&mut self, run: &RunFile, samples: u64, loss: f64, last: bool) -> Result<(), TrainerError> {
        let entries = self.blocks.evaluation(run, samples, loss, last);
        self.lines(entries)
    }

    /// The end of the run at `samples` trained sequences.
    #[track_caller]
    pub fn end(&mut self, samples: u64, reached_at: Option<u64>) -> Result<(), TrainerError> {
        let entries = self.blocks.end(samples, reached_at);
        self.lines(entries)
    }

    /// File and line number are the caller's, as the rules ask.
    #[track_caller]
    fn lines(&mut self, entries: Vec<Entry>) -> Result<(), TrainerError> {
        let caller = Location::caller();
        entries.into_iter().try_for_each(|entry| {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64);
            self.log.line(&format_line(time, entry, caller.file(), caller.line()))
        })
    }
}

fn format_line(time: u64, entry: Entry, file: &str, line: u32) -> String {
    let Entry { event, key, value, metadata } = entry;
    let mut all = Map::from_iter([("file".to_owned(), json!(file)), ("lineno".to_owned(), json!(line))]);
    all.extend(metadata);
    // serde_json keeps the order of insertion (feature preserve_order).
    let object = json!({"namespace": "", "time_ms": time, "event_type": event.word(), "key": key, "value": value, "metadata": all});
    format!(":::MLLOG {object}")
}
