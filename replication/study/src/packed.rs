//! Logs and measurements in large result directories: packed with xz, byte for byte what was written, and read as if they were not.
//!
//! A campaign of many runs would fill a repository with logs that few people open. Nothing is thinned out, because `verify` and `report`
//! compute every table from these files: they are only packed, as `metrics.jsonl.xz` and so on, and every hash in done.json and
//! DETERMINISTIC.sha256 is of the unpacked bytes. The rule depends on sizes alone ([`THRESHOLD`]), the same for every machine.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lzma_rust2::{LzmaOptions, XzOptions, XzReader, XzWriter};

use crate::files::{self, Context as _, FileError, LARGEST_DOCUMENT, LARGEST_LOG};

/// What is packed of a run.
pub const LOGS: [&str; 4] = ["metrics.jsonl", "timing.jsonl", "exchange.jsonl", "run.mllog"];

/// What is packed of a campaign's `measurements/`.
pub const MEASUREMENTS: [&str; 4] = ["kernel_time.jsonl", "kernels.json", "step_profile.jsonl", "step_time.jsonl"];

/// A campaign is packed when all its runs' files together are larger than this many bytes, 4 MiB: a committed result directory, which has up
/// to 4 MB beside its runs, stays below 10 MB.
pub const THRESHOLD: u64 = 4 << 20;

/// The ending of a packed log's name.
pub const ENDING: &str = ".xz";

/// Eight MiB of dictionary, as `xz -6`: more than most logs are long.
const PRESET: u32 = 6;

/// Dictionary that reading allows, KiB.
const LARGEST_DICTIONARY_KIB: u32 = 64 << 10;

/// Whether a file is packed where it lies in a result directory, `runs/ARM/SEED/metrics.jsonl` for example.
pub fn is_packed_at(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["runs", .., file] => LOGS.contains(&file),
        ["measurements", file] => MEASUREMENTS.contains(&file),
        _ => false,
    }
}

/// Where a packed log lies.
pub fn name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ENDING);
    PathBuf::from(name)
}

/// Whether a log is there, packed or not.
pub fn is_there(path: &Path) -> bool {
    path.exists() || name(path).exists()
}

/// The bytes of a log, packed or not.
pub fn bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    at_most(path, LARGEST_LOG)
}

fn at_most(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let packed = name(path);
    if path.exists() || !packed.exists() {
        return files::read_at_most(files::open(path)?, limit).at(path, "read");
    }
    let (log, ended) = unpack(&packed)?;
    ended
        .and_then(|()| if log.len() as u64 > limit { wrong("it is longer than any file of its kind") } else { Ok(()) })
        .at(&packed, "unpack")?;
    Ok(log.to_vec())
}

fn wrong(what: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Bytes that a packed log unpacks to; of a damaged one, or one that is longer than any log, those before that is seen.
pub fn length(packed: &Path) -> Result<u64, FileError> {
    // What is wrong with it is said when it is read.
    Ok(unpack(packed)?.0.len() as u64)
}

/// What a packed log holds, as far as it is read, and what is wrong with it.
fn unpack(packed: &Path) -> Result<(Arc<[u8]>, io::Result<()>), FileError> {
    let bytes = files::read_at_most(files::open(packed)?, LARGEST_DOCUMENT).at(packed, "read")?;
    let key = files::sha256(&bytes);
    if let Some(log) = Unpacked::lock().logs.get(&key) {
        return Ok((log.clone(), Ok(())));
    }
    let (log, ended) = stream(&bytes);
    let log: Arc<[u8]> = log.into();
    if ended.is_ok() {
        Unpacked::lock().keep(key, log.clone());
    }
    Ok((log, ended))
}

/// What the packed bytes hold, as far as they are read, and what is wrong with them: we write one stream, and each more would cost its
/// dictionary.
fn stream(packed: &[u8]) -> (Vec<u8>, io::Result<()>) {
    let mut reader = XzReader::new_mem_limit(packed, false, LARGEST_DICTIONARY_KIB).take(LARGEST_LOG + 1);
    let mut log = Vec::new();
    let ended = reader.read_to_end(&mut log).and_then(|_| match reader.into_inner().into_inner() {
        _ if log.len() as u64 > LARGEST_LOG => wrong("it is longer than any log of a run"),
        [] => Ok(()),
        _ => wrong("something follows what it holds"),
    });
    (log, ended)
}

/// Logs that this process has unpacked, by the hash of their packed bytes: a directory that is verified is looked at by one check after the
/// other, and each reads the logs anew. What a file holds now is always what counts, because it is read and hashed each time.
#[derive(Default)]
struct Unpacked {
    logs: BTreeMap<String, Arc<[u8]>>,
    /// Bytes of all together.
    size: usize,
}

/// Bytes that are kept; a campaign of 140 runs has 54 million.
const MOST_KEPT: usize = 128 << 20;

static UNPACKED: Mutex<Unpacked> = Mutex::new(Unpacked { logs: BTreeMap::new(), size: 0 });

impl Unpacked {
    fn lock() -> MutexGuard<'static, Self> {
        UNPACKED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a log where there is room. Nothing makes room for another: checks read all logs in the same order.
    fn keep(&mut self, key: String, log: Arc<[u8]>) {
        if self.size + log.len() <= MOST_KEPT && !self.logs.contains_key(&key) {
            self.size += log.len();
            self.logs.insert(key, log);
        }
    }
}

/// As [`bytes`], as text.
pub fn text(path: &Path) -> Result<String, FileError> {
    files::text(bytes(path)?).at(path, "read")
}

/// As [`text`], of a file that is one document and so no longer than documents are.
pub fn document(path: &Path) -> Result<String, FileError> {
    files::text(at_most(path, LARGEST_DOCUMENT)?).at(path, "read")
}

/// SHA-256 of a log's unpacked bytes.
pub fn sha256(path: &Path) -> Result<String, FileError> {
    Ok(files::sha256(&bytes(path)?))
}

pub fn copy_unpacked(from: &Path, to: &Path) -> Result<(), FileError> {
    files::write(to, &bytes(from)?)
}

/// Packs the logs of every run below `directory`/runs, and measurements, when the runs' files are larger than `threshold` together; whether it
/// did.
pub fn pack(directory: &Path, threshold: u64) -> Result<bool, FileError> {
    let names = files::list(directory)?;
    let mut size = 0;
    for name in names.iter().filter(|name| name.starts_with("runs/")) {
        let path = directory.join(name);
        size += path.metadata().at(&path, "read")?.len();
    }
    if size <= threshold {
        return Ok(false);
    }
    for path in names.iter().filter(|name| is_packed_at(name)).map(|name| directory.join(name)) {
        files::write(&name(&path), &packed(&bytes(&path)?).at(&path, "pack")?)?;
        files::remove(&path)?;
    }
    Ok(true)
}

fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = XzOptions::with_preset(PRESET);
    // Lines of text repeat far, and at any byte: 5 % smaller than the preset alone.
    options.lzma_options.pb = 0;
    options.lzma_options.nice_len = LzmaOptions::NICE_LEN_MAX;
    options.lzma_options.depth_limit = 512;
    let mut writer = XzWriter::new(Vec::new(), options)?;
    writer.write_all(bytes)?;
    writer.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;

    use super::*;

    const MEASURED: &str = "measurements/kernels.json";

    fn directory(lines: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for log in LOGS.into_iter().chain(["run.yaml", "done.json"]) {
            let text: String = (0..lines).map(|line| format!("{{\"line\":{line},\"of\":\"{log}\"}}\n")).collect();
            files::write(&folder.path().join("runs/arm/1").join(log), text.as_bytes()).unwrap();
        }
        for name in [MEASURED, "metrics.jsonl"] {
            files::write(&folder.path().join(name), b"{}\n").unwrap();
        }
        folder
    }

    #[test]
    fn what_is_packed_reads_as_it_was_and_is_packed_alike_each_time() {
        let (folder, again) = (directory(2000), directory(2000));
        let path = |log: &str| folder.path().join("runs/arm/1").join(log);
        let before: Vec<Vec<u8>> = LOGS.iter().map(|log| fs::read(path(log)).unwrap()).collect();
        assert!(!pack(folder.path(), 1 << 20).unwrap(), "below the threshold nothing happens");
        assert!(path("metrics.jsonl").is_file());
        assert!(pack(folder.path(), 1 << 10).unwrap() && pack(again.path(), 1 << 10).unwrap());
        for (log, before) in LOGS.into_iter().zip(before) {
            assert!(!path(log).exists() && is_there(&path(log)));
            let packed = fs::read(name(&path(log))).unwrap();
            assert!(packed.len() * 10 < before.len() && packed == fs::read(name(&again.path().join("runs/arm/1").join(log))).unwrap());
            assert_eq!(bytes(&path(log)).unwrap(), before);
            assert_eq!(sha256(&path(log)).unwrap(), files::sha256(&before));
            let copy = folder.path().join("copy").join(log);
            copy_unpacked(&path(log), &copy).unwrap();
            assert_eq!(fs::read(copy).unwrap(), before);
        }
        assert!(path("run.yaml").is_file() && path("done.json").is_file());
        let measured = folder.path().join(MEASURED);
        assert!(!measured.exists() && bytes(&measured).unwrap() == b"{}\n" && folder.path().join("metrics.jsonl").is_file());
        assert_eq!(document(&measured).unwrap(), "{}\n");
        fs::write(name(&measured), packed(&vec![b' '; LARGEST_DOCUMENT as usize + 1]).unwrap()).unwrap();
        assert!(document(&measured).unwrap_err().to_string().contains("kernels.json.xz: cannot unpack: it is longer"));
        assert!(!is_there(&path("nothing")) && bytes(&path("nothing")).is_err());
    }

    #[test]
    fn a_damaged_log_is_named() {
        let folder = directory(2000);
        pack(folder.path(), 0).unwrap();
        let path = folder.path().join("runs/arm/1/metrics.jsonl");
        let whole = fs::read(name(&path)).unwrap();
        for damaged in [whole[..whole.len() / 2].to_vec(), b"no archive".to_vec(), Vec::new()] {
            fs::write(name(&path), damaged).unwrap();
            let error = text(&path).unwrap_err();
            assert!(error.to_string().contains("metrics.jsonl.xz: cannot unpack"), "{error}");
        }
    }
}
