//! What a result directory may hold, and the gate that everything goes through which was made elsewhere: plain files under known names and
//! within limits, or nothing in it is read, rendered, copied or written.

use std::path::Path;

use contract::id::Id;

use crate::files::{self, Context as _, FileError, LARGEST_LOG};
use crate::{packed, run_folder};

/// Bytes of all files of a directory together, logs unpacked. Our largest campaign has 40 MB.
const LARGEST: u64 = 256 << 20;

/// Files at the root of any kind of result directory.
const FILES: &[&str] = &[
    "DETERMINISTIC.sha256",
    "SHA256SUMS",
    "SHA256SUMS.sig",
    "campaign.json",
    "checks.csv",
    "comparisons.csv",
    "devices.csv",
    "env.json",
    "kernels.csv",
    "kernels.html",
    "kernels.json",
    "macros.tex",
    "others.json",
    "provenance.json",
    "ranks.csv",
    "references.bib",
    "renderer.json",
    "report.html",
    "report.pdf",
    "report.tex",
    "same-bytes.json",
    "summary.json",
    "verdicts-2.json",
    "verdicts.json",
];

const MEASUREMENTS: &[&str] =
    &["code_objects.json", "kernel_time.jsonl", "kernels.json", "rotation_identity.jsonl", "step_profile.jsonl", "step_time.jsonl"];

/// Whether a result directory may hold a file of this name (docs/files.md).
fn is_known(name: &str) -> bool {
    let is = |file: &str, endings: &[&str]| endings.iter().any(|ending| file.strip_suffix(ending).is_some_and(Id::is_plain));
    let name = name.strip_suffix(packed::ENDING).filter(|name| packed::is_packed_at(name)).unwrap_or(name);
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [file] => FILES.contains(&file),
        ["runs", arm, seed, file] => run_folder::is_name(arm, seed) && run_folder::FILES.contains(&file),
        ["measurements", file] => MEASUREMENTS.contains(&file),
        ["data", file] => is(file, &[".csv"]),
        ["figures", file] => is(file, &[".csv", ".svg", ".tex"]),
        ["tables", file] => is(file, &[".tex"]),
        ["manifests", file] | ["manifests", "papers" | "papers-2" | "recipes" | "evidence", file] => is(file, &[".yaml"]),
        ["manifests", "evidence", id, group, file] => Id::is_plain(id) && Id::is_plain(group) && is(file, &[".csv"]),
        _ => false,
    }
}

/// What lies in a result directory: its files, and what must not lie there. Nothing is opened but packed logs, to see how long they are.
///
/// # Errors
/// A folder that cannot be listed.
pub fn look(directory: &Path) -> Result<files::Listing, FileError> {
    let mut found = files::look(directory)?;
    let unknown = found.files.iter().filter(|name| !is_known(name));
    found.strange.extend(unknown.map(|name| (name.clone(), "no result directory holds a file of this name (docs/files.md)")));
    if found.strange.is_empty() {
        let mut all = 0;
        for name in &found.files {
            let length = length(&directory.join(name))?;
            all += length;
            if length > LARGEST_LOG || all > LARGEST {
                found.strange.push((name.clone(), "with it the directory is larger than any of ours"));
                break;
            }
        }
    }
    Ok(found)
}

/// Bytes of a file, of a packed log those that it unpacks to.
fn length(path: &Path) -> Result<u64, FileError> {
    if path.extension().is_some_and(|ending| ending == "xz") {
        packed::length(path)
    } else {
        Ok(path.metadata().at(path, "look at")?.len())
    }
}

/// Every file of a result directory.
///
/// # Errors
/// When something lies there that must not.
pub fn admit(directory: &Path) -> Result<Vec<String>, FileError> {
    look(directory)?.plain(directory)
}
