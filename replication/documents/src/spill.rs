//! Texts on disk while their order is not known yet, and steps 9 and 10: in that order, each followed by a zero byte.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::bytes::hex;

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", .path.display())]
pub struct DiskError {
    pub path: PathBuf,
    pub action: &'static str,
    /// What the operating system said.
    pub source: io::Error,
}

/// One shard of what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shard {
    /// Parts in it.
    pub documents: u64,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// Where a part lies in the spill file, and where it goes.
pub(crate) struct Part {
    /// Step 9.
    pub(crate) key: [u8; 32],
    offset: u64,
    bytes: usize,
}

/// One file, written to its end, then read anywhere.
pub(crate) struct Spill {
    path: PathBuf,
    file: BufWriter<File>,
    end: u64,
}

trait At<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T, DiskError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T, DiskError> {
        self.map_err(|source| DiskError { path: path.to_owned(), action, source })
    }
}

impl Spill {
    pub(crate) fn new(path: PathBuf) -> Result<Self, DiskError> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).at(&path, "write")?;
        Ok(Self { file: BufWriter::new(file), path, end: 0 })
    }

    pub(crate) fn push(&mut self, key: [u8; 32], text: &[u8]) -> Result<Part, DiskError> {
        self.file.write_all(text).at(&self.path, "write")?;
        let part = Part { key, offset: self.end, bytes: text.len() };
        self.end += text.len() as u64;
        Ok(part)
    }

    /// Writes parts by their keys, each followed by a zero byte. A shard ends after the part that brings it to `shard_bytes`.
    pub(crate) fn write(&mut self, mut parts: Vec<Part>, to: &Path, shard_bytes: u64) -> Result<Vec<Shard>, DiskError> {
        parts.sort_unstable_by_key(|part| part.key);
        self.file.flush().at(&self.path, "write")?;
        let mut source = BufReader::new(self.file.get_ref());
        let mut out = BufWriter::new(File::create(to).at(to, "write")?);
        let (mut shards, mut hasher, mut shard, mut text) = (Vec::new(), Sha256::new(), Shard::default(), Vec::new());
        for part in &parts {
            text.resize(part.bytes, 0);
            source.seek(SeekFrom::Start(part.offset)).and_then(|_| source.read_exact(&mut text)).at(&self.path, "read")?;
            text.push(0);
            out.write_all(&text).at(to, "write")?;
            hasher.update(&text);
            shard.documents += 1;
            shard.bytes += text.len() as u64;
            if shard.bytes >= shard_bytes {
                shards.push(Shard { sha256: hex(&hasher.finalize_reset()), ..std::mem::take(&mut shard) });
            }
        }
        if shard.documents > 0 {
            shards.push(Shard { sha256: hex(&hasher.finalize()), ..shard });
        }
        out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all()).at(to, "write")?;
        Ok(shards)
    }

    pub(crate) fn remove(self) -> Result<(), DiskError> {
        // What it still holds is not wanted.
        let (file, _) = self.file.into_parts();
        drop(file);
        std::fs::remove_file(&self.path).at(&self.path, "remove")
    }
}
