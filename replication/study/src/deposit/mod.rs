//! A result directory as archives and catalogues expect one: a copy, and beside it `ro-crate-metadata.json` (RO-Crate 1.1) and `datapackage.json`
//! (Frictionless tabular data). The directory itself is sealed by its SHA256SUMS, so that nothing is added to it: what describes it lies above.

mod data_package;
mod research_object;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::exit::{self, ExitCode};
use crate::files::{self, Context as _, FileError};
use crate::folder;
use crate::provenance;
use crate::record::{Campaign, RecordError};
use crate::results;

/// A licence of everything here.
struct Licence {
    /// SPDX.
    id: &'static str,
    url: &'static str,
    title: &'static str,
}

/// Either may be chosen, as for the sources.
const LICENCES: [Licence; 2] = [
    Licence { id: "MIT", url: "https://spdx.org/licenses/MIT", title: "MIT License" },
    Licence { id: "Apache-2.0", url: "https://spdx.org/licenses/Apache-2.0", title: "Apache License 2.0" },
];

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum DepositError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{}: {what}; check it with `cargo xtask verify`", .directory.display())]
    NotWhole { directory: PathBuf, what: String },
    #[error("{}: it is there already; name a new folder with --out", .0.display())]
    Taken(PathBuf),
    #[error("{}: cannot be described: {what}", .path.display())]
    Describe { path: PathBuf, what: String },
}

impl ExitCode for DepositError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Record(error) => error.exit_code(),
            Self::NotWhole { .. } | Self::Describe { .. } => exit::DATA,
            Self::Taken(_) => exit::USAGE,
        }
    }
}

/// What was written.
#[derive(Debug, Clone)]
pub struct Deposit {
    pub folder: PathBuf,
    pub files: usize,
    pub tables: usize,
}

impl fmt::Display for Deposit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, files, tables } = self;
        writeln!(f, "{files} files copied and described, {tables} tables among them: {}", folder.display())
    }
}

/// A file of the copy, as both descriptions name it.
struct Entry {
    /// Relative to the new folder.
    path: String,
    /// Relative to the result directory.
    name: String,
    bytes: u64,
    sha256: String,
}

/// What both descriptions say of the whole.
struct Whole {
    /// Name of the result directory.
    name: String,
    campaign: Campaign,
    entries: Vec<Entry>,
}

impl Whole {
    fn title(&self) -> String {
        let Campaign { profile, machine, date, papers, .. } = &self.campaign;
        format!("Replication of arXiv {}: profile {profile} on {machine}, {date}", papers.join(" and "))
    }
}

/// Copies `directory`, whose hashes must hold, into the new folder `out` and describes it there.
///
/// # Errors
/// No campaign, one whose files are not what they were, a folder that is there already, a table that is none.
pub fn export(directory: &Path, out: &Path) -> Result<Deposit, DepositError> {
    let campaign = Campaign::read(directory)?;
    if out.exists() {
        return Err(DepositError::Taken(out.to_owned()));
    }
    if let Some(what) = provenance::changed(directory) {
        return Err(DepositError::NotWhole { directory: directory.to_owned(), what });
    }
    let name = directory.canonicalize().at(directory, "find")?.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = results::admit(directory)?;
    let (files, tables) = folder::make(out, |folder| {
        let entries = names.iter().map(|file| copy(directory, folder, &name, file)).collect::<Result<Vec<_>, _>>()?;
        let whole = Whole { name, campaign, entries };
        let package = data_package::describe(&whole, folder)?;
        write(&folder.join(data_package::FILE), &package.document)?;
        write(&folder.join(research_object::FILE), &research_object::describe(&whole))?;
        Ok::<_, DepositError>((whole.entries.len(), package.tables))
    })?;
    Ok(Deposit { folder: out.to_owned(), files, tables })
}

fn copy(directory: &Path, folder: &Path, name: &str, file: &str) -> Result<Entry, FileError> {
    let path = format!("{name}/{file}");
    let (from, to) = (directory.join(file), folder.join(&path));
    files::copy(&from, &to)?;
    let bytes = to.metadata().at(&to, "look at")?.len();
    Ok(Entry { path, name: file.to_owned(), bytes, sha256: files::sha256_file(&to)? })
}

fn write(path: &Path, document: &Value) -> Result<(), FileError> {
    files::write(path, format!("{document:#}\n").as_bytes())
}
