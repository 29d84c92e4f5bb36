//! Reading, hashing and writing files so that a reader never sees half of one.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::exit::ExitCode;

/// A file operation that failed: which, where, why.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}{}", .path.display(), advice(.source))]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    pub action: &'static str,
    /// What the operating system said.
    pub source: io::Error,
}

impl ExitCode for FileError {
    /// 4 where the disk is full, which is the machine's fault, else 3.
    fn exit_code(&self) -> u8 {
        if is_full(&self.source) { 4 } else { 3 }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space and run the same command again, finished runs are kept"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a folder that can be written, for example with --out"
        }
        _ => "",
    }
}

/// Turns an `io::Result` into one that names the file.
pub trait Context<T> {
    /// `action` completes "cannot ...".
    fn at(self, path: &Path, action: &'static str) -> Result<T, FileError>;
}

impl<T> Context<T> for io::Result<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T, FileError> {
        self.map_err(|source| FileError { path: path.to_owned(), action, source })
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a file, read in pieces.
pub fn sha256_file(path: &Path) -> Result<String, FileError> {
    let mut file = File::open(path).at(path, "open")?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut buffer).at(path, "read")?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

/// The whole file as text.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).at(path, "read")
}

/// Writes aside, syncs, renames: the file appears whole or not at all. Its folder is made if it is missing.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = File::create(&aside).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    if let Err(source) = written.and_then(|()| fs::rename(&aside, path)) {
        let _ = fs::remove_file(&aside);
        return Err(FileError { path: path.to_owned(), action: "write", source });
    }
    Ok(())
}

/// Makes a folder and those above it.
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).at(path, "make the folder")
}

/// Removes a folder and all in it; a missing one is fine.
pub fn remove_folder(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at(path, "remove"),
        _ => Ok(()),
    }
}

/// Copies one file, making the folder it goes to.
pub fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    make_folder(to.parent().unwrap_or(Path::new(".")))?;
    // A full disk is the one that is written to.
    fs::copy(from, to).map(|_| ()).map_err(|source| {
        let (path, action) = if is_full(&source) { (to, "write") } else { (from, "copy") };
        FileError { path: path.to_owned(), action, source }
    })
}

/// Every regular file below `folder`, relative to it with `/` between parts, sorted as bytes. Links are not followed.
pub fn list(folder: &Path) -> Result<Vec<String>, FileError> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), String::new())];
    while let Some((path, prefix)) = open.pop() {
        for entry in fs::read_dir(&path).at(&path, "list")? {
            let entry = entry.at(&path, "list")?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().at(&entry.path(), "look at")?;
            if kind.is_dir() {
                open.push((entry.path(), format!("{name}/")));
            } else if kind.is_file() {
                found.push(name);
            }
        }
    }
    found.sort();
    Ok(found)
}
