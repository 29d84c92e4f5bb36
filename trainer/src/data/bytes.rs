//! A read-only file, mapped where that is possible and read by position where it is not.
//!
//! A map of a file that shrinks afterwards ends the process with SIGBUS, so the length is taken before mapping, the data directory and the
//! checkpoints of a run belong to the harness while runs last, and [`Access::Read`] serves file systems on which that cannot be had.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use contract::digest::hexadecimal;
use sha2::{Digest, Sha256};

use super::DataError;

/// How the bytes of a file are reached. Both give the same tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Mapped; falls back to `Read` where mapping is refused.
    #[default]
    Map,
    /// Read by position at each call: for network file systems.
    Read,
}

/// An open file of known length.
#[derive(Debug)]
pub(crate) struct Bytes {
    path: PathBuf,
    file: File,
    len: u64,
    map: Option<memmap2::Mmap>,
}

impl Bytes {
    pub(crate) fn open(path: &Path, access: Access) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|source| DataError::read(path, source))?;
        let metadata = file.metadata().map_err(|source| DataError::read(path, source))?;
        if !metadata.is_file() {
            return Err(DataError::Malformed {
                path: path.to_owned(),
                problem: "not a regular file".into(),
                remedy: "name the prefix of a .bin/.idx pair",
            });
        }
        let len = metadata.len();
        // An empty file cannot be mapped on every system; there is nothing in it to read either.
        let map = if access == Access::Map && len > 0 {
            // SAFETY: the map is only read, and only within the length just taken. Another process that shortens the file
            // meanwhile is outside what Rust can rule out; the module's first paragraph says how that is kept away.
            unsafe { memmap2::Mmap::map(&file) }.ok().filter(|map| map.len() as u64 == len)
        } else {
            None
        };
        Ok(Self { path: path.to_owned(), file, len, map })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// All of it, where it is mapped.
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        self.map.as_deref()
    }

    /// Fills `out` from byte `offset` on; the caller has checked that it lies within the file.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DataError> {
        if let Some(map) = &self.map {
            let from = usize::try_from(offset).ok().and_then(|start| map.get(start..start.checked_add(out.len())?));
            if let Some(from) = from {
                out.copy_from_slice(from);
                return Ok(());
            }
        }
        read_exact_at(&self.file, offset, out).map_err(|source| DataError::read(&self.path, source))
    }

    /// SHA-256 of the whole file, in lower-case hexadecimal digits, through the same open file that tokens come from.
    pub(crate) fn sha256(&self) -> Result<String, DataError> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while offset < self.len {
            let now = CHUNK.min(usize::try_from(self.len - offset).unwrap_or(CHUNK));
            read_exact_at(&self.file, offset, &mut buffer[..now]).map_err(|source| DataError::read(&self.path, source))?;
            hasher.update(&buffer[..now]);
            offset += now as u64;
        }
        Ok(hexadecimal(&hasher.finalize()))
    }
}

const CHUNK: usize = 1 << 20;

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> std::io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => {
                out = &mut out[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}

/// SHA-256 of the file at `path`, in lower-case hexadecimal digits.
pub fn sha256_of(path: &Path) -> Result<String, DataError> {
    let mut file = File::open(path).map_err(|source| DataError::read(path, source))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hexadecimal(&hasher.finalize())),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => return Err(DataError::read(path, source)),
        }
    }
}
