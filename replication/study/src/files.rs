//! Reading, hashing and writing files so that a reader never sees half of one. Whatever changes a file in the harness goes through here, so that
//! a test can let each of these operations fail (feature `faults`, which no other build has).

#[cfg(feature = "faults")]
pub mod faults;

use std::fs::{self, File, FileType};
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
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "; check the path",
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

/// SHA-256 of a plain file, or of one that a link leads to, read in pieces.
pub fn sha256_file(path: &Path) -> Result<String, FileError> {
    let mut file = fs::metadata(path).and_then(|found| plain(found.file_type())).and_then(|()| File::open(path)).at(path, "open")?;
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

/// Bytes of the largest document (YAML, JSON, CSV, a template) that is read: its values may take twenty times the room.
pub const LARGEST_DOCUMENT: u64 = 8 << 20;
/// Bytes of the largest log that is read, unpacked.
pub const LARGEST_LOG: u64 = 64 << 20;

/// Opens a plain file. A pipe or a device could hang or never end, and a link could lead anywhere: they are refused unopened.
pub fn open(path: &Path) -> Result<File, FileError> {
    fs::symlink_metadata(path).and_then(|found| plain(found.file_type())).and_then(|()| File::open(path)).at(path, "read")
}

fn plain(kind: FileType) -> io::Result<()> {
    if kind.is_file() { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, what(kind))) }
}

/// What something is that is no plain file.
fn what(kind: FileType) -> &'static str {
    match (kind.is_symlink(), kind.is_dir()) {
        (true, _) => "it is a link",
        (_, true) => "it is a folder",
        _ => "it is a pipe, a device or the like",
    }
}

/// Everything that `reader` gives, unless that is more than `largest` bytes.
pub fn read_at_most(reader: impl Read, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {largest} bytes, the most that is read")));
    }
    Ok(bytes)
}

/// A document as text.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    text(read_at_most(open(path)?, LARGEST_DOCUMENT).at(path, "read")?).at(path, "read")
}

pub(crate) fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Before each operation that changes files; `half` does it as far as one that is cut short would.
#[cfg(feature = "faults")]
use faults::operation;

#[cfg(not(feature = "faults"))]
fn operation(_half: impl FnOnce()) -> io::Result<()> {
    Ok(())
}

/// Writes aside, syncs, renames: the file appears whole or not at all. Its folder is made if it is missing.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let write = || {
        operation(|| ())?;
        let mut file = File::create(&aside)?;
        operation(|| drop(file.write_all(&bytes[..bytes.len() / 2])))?;
        file.write_all(bytes)?;
        operation(|| ())?;
        file.sync_all()?;
        operation(|| ())?;
        fs::rename(&aside, path)
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&aside);
        FileError { path: path.to_owned(), action: "write", source }
    })
}

/// Makes a folder and those above it.
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    operation(|| ()).and_then(|()| fs::create_dir_all(path)).at(path, "make the folder")
}

/// Moves a file or folder; `action` is what for.
pub fn rename(from: &Path, to: &Path, action: &'static str) -> Result<(), FileError> {
    operation(|| ()).and_then(|()| fs::rename(from, to)).at(to, action)
}

/// Removes a file; a missing one is fine.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match operation(|| ()).and_then(|()| fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at(path, "remove"),
        _ => Ok(()),
    }
}

/// Removes a folder and all in it; a missing one is fine.
pub fn remove_folder(path: &Path) -> Result<(), FileError> {
    let first = || fs::read_dir(path).ok().and_then(|mut entries| entries.next()?.ok()).map(|entry| fs::remove_file(entry.path()));
    match operation(|| drop(first())).and_then(|()| fs::remove_dir_all(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at(path, "remove"),
        _ => Ok(()),
    }
}

/// Copies a plain file, or what a link leads to, making the folder it goes to.
pub fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::metadata(from).and_then(|found| plain(found.file_type())).at(from, "copy")?;
    make_folder(to.parent().unwrap_or(Path::new(".")))?;
    // A full disk is the one that is written to.
    let half = || fs::read(from).and_then(|bytes| fs::write(to, &bytes[..bytes.len() / 2]));
    operation(|| drop(half())).and_then(|()| fs::copy(from, to)).map(|_| ()).map_err(|source| {
        let (path, action) = if is_full(&source) { (to, "write") } else { (from, "copy") };
        FileError { path: path.to_owned(), action, source }
    })
}

/// Folders may lie in each other this deep.
const DEEPEST: usize = 32;
/// More files than any folder has that is read here.
const MOST_FILES: usize = 100_000;

/// What lies below a folder, names relative to it with `/` between parts, sorted as bytes.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Plain files.
    pub files: Vec<String>,
    /// Whatever is neither a plain file nor a folder, or has a name that a line of text cannot hold, and what it is. Nothing of it may be opened.
    pub strange: Vec<(String, &'static str)>,
}

/// Looks at everything below `folder` and opens nothing. Links are not followed.
pub fn look(folder: &Path) -> Result<Listing, FileError> {
    let mut found = Listing::default();
    let mut open = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((path, prefix, depth)) = open.pop() {
        for entry in fs::read_dir(&path).at(&path, "list")? {
            let entry = entry.at(&path, "list")?;
            let kind = entry.file_type().at(&entry.path(), "look at")?;
            let name = entry.file_name();
            let shown = format!("{prefix}{}", name.to_string_lossy().escape_debug());
            let name = name.to_str().filter(|name| !name.contains(|c: char| c.is_control() || c == '\\'));
            match name {
                _ if !kind.is_file() && !kind.is_dir() => found.strange.push((shown, what(kind))),
                None => found.strange.push((shown, "its name cannot stand in a line of text")),
                Some(_) if kind.is_dir() && depth == DEEPEST => found.strange.push((shown, "it lies too deep")),
                Some(name) if kind.is_dir() => open.push((entry.path(), format!("{prefix}{name}/"), depth + 1)),
                Some(name) => found.files.push(format!("{prefix}{name}")),
            }
            if found.files.len() + found.strange.len() > MOST_FILES {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it holds more than {MOST_FILES} files")))
                    .at(folder, "list");
            }
        }
    }
    found.files.sort();
    found.strange.sort();
    Ok(found)
}

impl Listing {
    /// The files of `folder`.
    ///
    /// # Errors
    /// When there is something strange among them.
    pub fn plain(self, folder: &Path) -> Result<Vec<String>, FileError> {
        match self.strange.into_iter().next() {
            Some((name, what)) => Err(io::Error::new(io::ErrorKind::InvalidInput, what)).at(&folder.join(name), "use"),
            None => Ok(self.files),
        }
    }
}

/// Every file below `folder`.
///
/// # Errors
/// When something lies there that is neither a plain file nor a folder.
pub fn list(folder: &Path) -> Result<Vec<String>, FileError> {
    look(folder)?.plain(folder)
}
