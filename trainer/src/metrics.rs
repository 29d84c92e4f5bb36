//! `metrics.jsonl`, schema `mxfp4-metrics/1`: what a run computed, the same bytes on every CPU.
//!
//! Times are not here (see `timing`), nor anything else that differs from machine to machine. [`Log`] is a file of lines
//! that knows its length and hash at every moment, so that a checkpoint can say how much of it belongs to it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use contract::digest::hexadecimal;
use contract::run_file::RunFile;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::TrainerError;

/// First line of the file.
#[derive(Debug, Clone, Serialize)]
pub struct Header<'a> {
    schema: &'static str,
    kind: &'static str,
    profile: &'a str,
    arm: &'a str,
    seed: u64,
    parameters: usize,
    tokens_per_step: usize,
}

impl<'a> Header<'a> {
    /// For a run with so many parameters.
    pub fn new(run: &'a RunFile, parameters: usize) -> Self {
        Self {
            schema: "mxfp4-metrics/1",
            kind: "header",
            profile: &run.run.profile,
            arm: &run.run.arm,
            seed: run.run.seed,
            parameters,
            tokens_per_step: run.tokens_per_step(),
        }
    }
}

/// Any other line. Losses are means in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// One training step.
    Train {
        /// Step, from 1.
        step: u64,
        /// Tokens seen so far, this step's included.
        tokens: u64,
        /// Mean over the step's tokens.
        loss: f64,
        /// Global gradient norm before clipping.
        grad_norm: f64,
        /// Of this step.
        learning_rate: f64,
    },
    /// One evaluation.
    Eval {
        /// Steps done.
        step: u64,
        /// Tokens seen so far.
        tokens: u64,
        /// Mean over all evaluation tokens.
        loss: f64,
    },
    /// The weights of an evaluation, through another forward pass.
    Reading {
        /// Steps done.
        step: u64,
        /// Tokens seen so far.
        tokens: u64,
        /// The recipe whose forward pass it is.
        recipe: String,
        /// As an evaluation's; null where it is not finite, which ends no run.
        loss: f64,
    },
    /// How one operand survived its preparation.
    Quantisation(Box<QuantisationRecord>),
    /// The run ended because a number is no longer finite.
    Diverged {
        /// The step that could not be done.
        step: u64,
        reason: &'static str,
    },
}

/// How one operand survived its preparation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuantisationRecord {
    /// During this training step.
    pub step: u64,
    /// Block, from 0.
    pub layer: usize,
    /// qkv, attention_output, gate_up or down.
    pub linear: &'static str,
    /// fprop, dgrad or wgrad.
    pub pass: &'static str,
    /// input, weight or output_gradient.
    pub operand: &'static str,
    pub format: contract::recipe::Format,
    /// ‖q − x‖ / ‖x‖, x being the rotated operand before quantisation and q after.
    pub relative_error: f64,
    /// sum(q − x) / sum(|x|).
    pub bias: f64,
    /// sum((q − x) sign(x)) / sum(|x|): below zero where clipping or underflow shrinks.
    pub magnitude_bias: f64,
    /// Cosine between q and x.
    pub cosine: f64,
    /// Mean over blocks of 32 of largest magnitude over root mean square, before rotation.
    pub amax_over_rms_before: f64,
    /// The same after rotation.
    pub amax_over_rms_after: f64,
    /// The same over the tenth of blocks with the highest ratio, before rotation.
    pub outlier_amax_over_rms_before: f64,
    /// The same over the tenth that is highest after rotation.
    pub outlier_amax_over_rms_after: f64,
}

/// A file of lines that knows its length and SHA-256.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    hash: Sha256,
    length: u64,
}

impl Log {
    /// An empty file in place of whatever was there.
    pub fn create(path: PathBuf) -> Result<Self, TrainerError> {
        let file = File::create(&path).map_err(|source| TrainerError::write(&path, source))?;
        Ok(Self { path, file, hash: Sha256::new(), length: 0 })
    }

    /// Keeps the first `length` bytes and drops the rest, or returns `None` if they do not have the hash.
    pub fn reopen(path: PathBuf, length: u64, sha256: Option<&str>) -> Result<Option<Self>, TrainerError> {
        let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = (&mut file).take(length).read_to_end(&mut bytes);
        let hash = Sha256::new_with_prefix(&bytes);
        if read.is_err() || bytes.len() as u64 != length || sha256.is_some_and(|wanted| wanted != hexadecimal(&hash.clone().finalize())) {
            return Ok(None);
        }
        file.set_len(length).map_err(|source| TrainerError::write(&path, source))?;
        Ok(Some(Self { path, file, hash, length }))
    }

    /// Appends one JSON line.
    pub fn json(&mut self, line: &impl Serialize) -> Result<(), TrainerError> {
        let text = serde_json::to_string(line).map_err(|source| TrainerError::write(&self.path, source))?;
        self.line(&text)
    }

    /// Appends one line.
    pub fn line(&mut self, text: &str) -> Result<(), TrainerError> {
        let line = format!("{text}\n");
        self.file.write_all(line.as_bytes()).map_err(|source| TrainerError::write(&self.path, source))?;
        self.hash.update(line.as_bytes());
        self.length += line.len() as u64;
        Ok(())
    }

    /// Waits until everything is on disk.
    pub fn sync(&self) -> Result<(), TrainerError> {
        self.file.sync_data().map_err(|source| TrainerError::write(&self.path, source))
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// SHA-256 of the bytes so far, hexadecimal.
    pub fn sha256(&self) -> String {
        hexadecimal(&self.hash.clone().finalize())
    }
}

/// Writes a JSON file beside its name, syncs it and renames it, so that it is there whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainerError> {
    let failed = |source: std::io::Error| TrainerError::write(path, source);
    let mut text = serde_json::to_string_pretty(value).map_err(|source| TrainerError::write(path, source))?;
    text.push('\n');
    let aside = path.with_extension(format!("tmp-{}", std::process::id()));
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&aside, path)).map_err(|source| {
        let _ = std::fs::remove_file(&aside);
        failed(source)
    })?;
    sync_directory(path);
    Ok(())
}

/// Makes a rename inside the directory of `path` durable, where the system can.
pub(crate) fn sync_directory(path: &Path) {
    let Some(directory) = path.parent() else { return };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    // Not every file system lets a directory be opened or synced; the rename itself has already succeeded.
    if let Ok(handle) = File::open(directory) {
        let _ = handle.sync_all();
    }
}
