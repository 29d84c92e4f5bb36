//! The files of a run: a [`Log`] of lines that knows its length and hash at every moment, so that a checkpoint can say how much of it belongs
//! to it, and JSON files.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use contract::digest::hexadecimal;
use contract::json::Document;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::TrainerError;
use crate::whole_files::write_whole;

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
pub fn write_json(path: &Path, value: &impl Document) -> Result<(), TrainerError> {
    let failed = |source: std::io::Error| TrainerError::write(path, source);
    let mut text = value.to_json_pretty().map_err(|source| TrainerError::write(path, source))?;
    text.push('\n');
    write_whole(path, text.as_bytes()).map_err(failed)
}
