//! From files that hold documents to one text a part: checks a local copy, unpacks it, checks what came out. Fetches nothing.
//!
//! A part is the texts of its files, one after the other; each document is followed by one NUL byte, which is what the trainer
//! reads as `.txt`. Every file is checked before the first byte is written.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use study::files::{self, Context, FileError};
use study::manifest::dataset::{DocumentFile, DocumentFiles, Part};

/// Name of the text to train on.
pub const TRAIN_FILE: &str = "train.txt";
/// Name of the text held out.
pub const VALIDATION_FILE: &str = "validation.txt";
/// More memory than any archive made with xz's presets needs; a larger dictionary is no archive of ours.
const LARGEST_DICTIONARY_KIB: u32 = 512 * 1024;
const CHUNK: usize = 1 << 20;

/// Why a copy was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder is not there.
    #[error("{}: no such folder; name the one that holds {first} and the others", .folder.display())]
    NoFolder {
        folder: PathBuf,
        /// A file that should be in it.
        first: String,
    },
    /// Some files are not in the folder.
    #[error("{}: {} of {total} files are not there: {}; manifests/datasets/{id}.yaml has the size, hash and origin of each", .folder.display(), .missing.len(), .missing.join(", "))]
    Absent {
        /// Where they were looked for.
        folder: PathBuf,
        missing: Vec<String>,
        /// Files that make the dataset.
        total: usize,
        id: String,
    },
    /// A file is not the one that the manifest names.
    #[error("{}: {problem}; get the file again, nothing was taken", .path.display())]
    Wrong {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// A file of the copy: an archive, or the text that such an archive holds.
struct Found<'a> {
    path: PathBuf,
    is_archive: bool,
    file: &'a DocumentFile,
}

/// Writes [`TRAIN_FILE`] and [`VALIDATION_FILE`] to `out` from the copy in `from`. `say` gets a line for each file.
///
/// # Errors
/// [`ArchiveError`]: what is missing, or which file is wrong and how. What is in `out` is then not whole: the caller removes it.
pub fn unpack(dataset: &DocumentFiles, from: &Path, out: &Path, say: &dyn Fn(&str)) -> Result<(), ArchiveError> {
    let found = find(dataset, from)?;
    for one in &found {
        say(&format!("checking {}", one.path.display()));
        one.check()?;
    }
    files::make_folder(out)?;
    for (part, name) in [(Part::Train, TRAIN_FILE), (Part::Validation, VALIDATION_FILE)] {
        let path = out.join(name);
        let mut text = File::create(&path).at(&path, "write")?;
        for one in found.iter().filter(|one| one.file.part == part) {
            say(&format!("taking {}", one.file.text_name()));
            one.append_to(&mut text, &path)?;
        }
        text.sync_all().at(&path, "write")?;
    }
    Ok(())
}

fn find<'a>(dataset: &'a DocumentFiles, from: &Path) -> Result<Vec<Found<'a>>, ArchiveError> {
    if !from.is_dir() {
        let first = dataset.files.first().map(|file| file.name.clone()).unwrap_or_default();
        return Err(ArchiveError::NoFolder { folder: from.to_owned(), first });
    }
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for file in &dataset.files {
        let (named, text) = (from.join(&file.name), from.join(file.text_name()));
        if named.is_file() {
            found.push(Found { path: named, is_archive: file.name != file.text_name(), file });
        } else if text.is_file() {
            found.push(Found { path: text, is_archive: false, file });
        } else {
            missing.push(file.name.clone());
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    Err(ArchiveError::Absent { folder: from.to_owned(), missing, total: dataset.files.len(), id: dataset.id.to_string() })
}

impl Found<'_> {
    fn wrong(&self, problem: String) -> ArchiveError {
        ArchiveError::Wrong { path: self.path.clone(), problem }
    }

    /// Length first: it is quick, and tells a truncated file from another one.
    fn check(&self) -> Result<(), ArchiveError> {
        let (bytes, sha256) =
            if self.is_archive { (self.file.bytes, &self.file.sha256) } else { (self.file.text_bytes, &self.file.text_sha256) };
        let found = std::fs::metadata(&self.path).at(&self.path, "read")?.len();
        if found != bytes {
            let word = if found < bytes { "truncated" } else { "too long" };
            return Err(self.wrong(format!("{word}: {found} bytes, the manifest says {bytes}")));
        }
        let found = files::sha256_file(&self.path)?;
        if found != *sha256 {
            return Err(self.wrong(format!("its SHA-256 is {found}, the manifest says {sha256}")));
        }
        Ok(())
    }

    fn append_to(&self, out: &mut File, out_path: &Path) -> Result<(), ArchiveError> {
        let source = BufReader::with_capacity(CHUNK, File::open(&self.path).at(&self.path, "open")?);
        if self.is_archive {
            // Several streams in a row are one archive to xz, as they are here.
            self.copy(&mut lzma_rust2::XzReader::new_mem_limit(source, true, LARGEST_DICTIONARY_KIB), out, out_path)
        } else {
            self.copy(&mut { source }, out, out_path)
        }
    }

    /// Stops at the first byte too many, so that no archive fills the disk.
    fn copy(&self, source: &mut dyn Read, out: &mut File, out_path: &Path) -> Result<(), ArchiveError> {
        let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; CHUNK]);
        loop {
            let count = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.wrong(format!("cannot be unpacked after {bytes} bytes of text: {error}"))),
            };
            bytes += count as u64;
            if bytes > self.file.text_bytes {
                break;
            }
            hasher.update(&buffer[..count]);
            out.write_all(&buffer[..count]).at(out_path, "write")?;
        }
        let expected = (self.file.text_bytes, self.file.text_sha256.as_str());
        let found = files::hex(&hasher.finalize());
        if (bytes, found.as_str()) != expected {
            return Err(self
                .wrong(format!("gives {bytes} bytes of text with SHA-256 {found}, the manifest says {} with {}", expected.0, expected.1)));
        }
        Ok(())
    }
}
