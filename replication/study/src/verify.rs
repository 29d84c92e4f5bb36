//! Checks a result directory against itself: every hash, every schema, every record against those that say the same, every verdict, table
//! and page computed again.
//!
//! Reads only, needs neither the source tree nor a trainer, and works wherever the directory was copied to; pages need their templates. What
//! is wrong becomes a [`Finding`] that names the file; nothing in the directory can make it fail otherwise. It does not run anything again:
//! that is what a second campaign and `compare` are for.

mod measured;
mod plan;
mod recompute;
mod records;
mod rendered;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use contract::text::one_line;

use crate::audit;
use crate::device_test;
use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::identity::Known;
use crate::kernels;
use crate::packed;
use crate::provenance::{self, DETERMINISTIC, RENDERER_FILE, Renderer, SIGNATURE, SUMS};
use crate::record::{self, Campaign};
use crate::render::{self, kernels_page};
use crate::results;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the directory.
    pub path: String,
    /// What is wrong with it.
    pub what: String,
}

/// What `verify` found.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// What is wrong, sorted by file; empty: everything agrees.
    pub findings: Vec<Finding>,
    /// What a reader should know although nothing is wrong, such as `stale`.
    pub notes: Vec<String>,
    pub counts: Counts,
    /// Files that were made again, byte for byte or up to the last digits of another mathematics library.
    pub recomputed: BTreeSet<String>,
    /// Files of which nothing is known but their hash.
    pub only_hashed: Vec<String>,
    /// Nobody looks here who signed it: that takes a program.
    pub signature: Signature,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub files: usize,
    /// Runs whose files agree with each other and with their records.
    pub runs: usize,
}

/// Who vouches for a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Signature {
    #[default]
    None,
    /// There is one, and nobody could look at it: why.
    NotChecked(String),
    /// It is good, and by a key that nobody here has named.
    Stranger(String),
    /// It is good, and by the key that was asked for.
    Signer(String),
    /// There is one, and it is not of these hashes or not of the key that was asked for.
    Wrong,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("unsigned"),
            Self::NotChecked(why) => write!(f, "signed, not checked: {why}"),
            Self::Stranger(key) => write!(f, "signed by {key}, a key that --signer did not name"),
            Self::Signer(key) => write!(f, "signed by {key}"),
            Self::Wrong => f.write_str("its signature is wrong"),
        }
    }
}

/// Why a directory could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Not a result directory.
    #[error("{} is not a result directory: it has neither {SUMS} nor campaign.json; name one of the folders below results/", .path.display())]
    NotResults { path: PathBuf },
}

impl ExitCode for VerifyError {
    fn exit_code(&self) -> u8 {
        if let Self::File(error) = self { error.exit_code() } else { exit::DATA }
    }
}

impl Verification {
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    pub fn find(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { path: path.into(), what: one_line(&what.into()).into_owned() });
    }

    fn recomputed(&mut self, file: &str) {
        self.recomputed.insert(file.to_owned());
    }

    /// Sorts what was found, and sees which files nothing but a hash speaks for. `related`: those that were held against others.
    fn end(&mut self, present: &BTreeSet<String>, related: impl Fn(&str) -> bool) {
        self.findings.sort();
        self.findings.dedup();
        let only_hashed = |name: &&String| *name != SUMS && !self.recomputed.contains(*name) && !related(name);
        self.only_hashed = present.iter().filter(only_hashed).cloned().collect();
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { path, what } in &self.findings {
            writeln!(f, "{path}: {what}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let Counts { files, runs } = self.counts;
        let word = match self.findings.len() {
            0 => "verified".to_owned(),
            1 => "NOT verified: 1 finding".to_owned(),
            many => format!("NOT verified: {many} findings"),
        };
        let runs = if runs > 0 { format!("{runs} runs held against manifests and each of their files, ") } else { String::new() };
        let hashed = match self.only_hashed.len() {
            0 => "none only hashed".to_owned(),
            count => format!("{count} only hashed ({})", folders(&self.only_hashed)),
        };
        writeln!(f, "{word}: {files} files hashed, {runs}{} files computed again, {hashed}; {}", self.recomputed.len(), self.signature)
    }
}

/// `report.pdf, measurements/ (4)`.
fn folders(names: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name.split_inclusive('/').next().unwrap_or(name)).or_default() += 1;
    }
    let text = |(name, count): (&str, usize)| if name.ends_with('/') { format!("{name} ({count})") } else { name.to_owned() };
    counts.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// What a directory of results is the record of.
enum Kind {
    Campaign,
    Kernels,
    DeviceTest,
}

impl Kind {
    fn of(directory: &Path) -> Option<Self> {
        let files = [(record::FILE, Self::Campaign), (kernels::DOCUMENT, Self::Kernels), (device_test::SUMMARY, Self::DeviceTest)];
        files.into_iter().find(|(file, _)| directory.join(file).exists()).map(|(_, kind)| kind)
    }
}

/// Checks the result directory. `known` is what the tree at hand computes, if there is one: results that it would not compute are noted as
/// stale, which is not a finding. `templates` are those that the tree renders with.
pub fn verify(directory: &Path, known: Option<&Known>, templates: Option<&Path>) -> Result<Verification, VerifyError> {
    let kind = Kind::of(directory);
    if kind.is_none() && !directory.join(SUMS).exists() {
        return Err(VerifyError::NotResults { path: directory.to_owned() });
    }
    let mut verification = Verification::default();
    let found = results::look(directory)?;
    for (name, what) in &found.strange {
        verification.find(name, *what);
    }
    let present: BTreeSet<String> = found.files.into_iter().filter(|name| name != SIGNATURE).collect();
    // Readers open files by fixed names: a pipe or a link among them could hang or lead elsewhere.
    let is_plain = found.strange.is_empty();
    if is_plain {
        check_sums(directory, &present, &mut verification)?;
    }
    let related: fn(&str) -> bool = match kind.filter(|_| is_plain) {
        Some(Kind::Campaign) => {
            campaign(directory, known, templates, &present, &mut verification)?;
            |name| ["campaign.json", "env.json"].contains(&name) || ["runs/", "manifests/"].iter().any(|folder| name.starts_with(folder))
        }
        Some(Kind::Kernels) => {
            kernels(directory, known, templates, &mut verification);
            |_| false
        }
        Some(Kind::DeviceTest) => {
            verification.recomputed(device_test::SUMMARY);
            for (path, what) in device_test::check(directory) {
                verification.find(path, what);
            }
            verification
                .notes
                .push("checks of a device: hashes, counts and the table are checked; there are no runs and no claims here".to_owned());
            |_| false
        }
        None => {
            if is_plain {
                let known = [record::FILE, kernels::DOCUMENT, device_test::SUMMARY].join(", ");
                verification
                    .find(SUMS, format!("this version knows no kind of directory that has none of {known}; only hashes were checked"));
            }
            |_| false
        }
    };
    verification.notes.extend(audit::beside(directory));
    verification.end(&present, related);
    Ok(verification)
}

/// A directory of `replicate`.
fn campaign(
    directory: &Path,
    known: Option<&Known>,
    templates: Option<&Path>,
    present: &BTreeSet<String>,
    verification: &mut Verification,
) -> Result<(), VerifyError> {
    check_deterministic(directory, verification)?;
    for name in present.iter().filter(|name| packed::is_packed_at(name) && present.contains(&format!("{name}{}", packed::ENDING))) {
        verification.find(name, "is there packed, too: which of the two counts?");
    }
    let campaign: Option<Campaign> = records::json(directory, record::FILE, record::SCHEMA, verification);
    let environment = records::check_environment(directory, campaign.as_ref(), verification);
    let renderer = rendered::check_statement(directory, verification);
    if let Some(campaign) = &campaign {
        records::check_runs(directory, campaign, environment.as_ref(), present, verification);
        plan::check(directory, campaign, environment.as_ref(), verification);
        records::check_same_bytes(directory, present, verification);
        note(directory, campaign, known, verification);
    }
    let Some(computed) = recompute::check(directory, verification) else { return Ok(()) };
    measured::check(&computed.measurements, verification);
    if computed.measurements.kernels_bench.is_some() {
        for (path, what) in kernels::check(&directory.join("measurements")) {
            verification.find(format!("measurements/{path}"), what);
        }
    }
    if let Some(renderer) = renderer {
        rendered::check(directory, &computed, &renderer, templates, present, verification);
    }
    Ok(())
}

/// A directory of `kernels-bench`: its ratios computed again. It holds no runs and no verdicts on claims.
fn kernels(directory: &Path, known: Option<&Known>, templates: Option<&Path>, verification: &mut Verification) {
    verification.recomputed(kernels::DOCUMENT);
    for (path, what) in kernels::check(directory) {
        verification.find(path, what);
    }
    let Ok(document) = kernels::Document::read(&directory.join(kernels::DOCUMENT)) else { return };
    verification.notes.push("measurements of kernels: hashes and ratios are checked; there are no runs and no claims here".to_owned());
    check_kernels_pages(directory, &document, templates, verification);
    if known.is_some_and(|known| !known.is_current(&document.trainer_code, None)) {
        verification.notes.push("stale: the trainer of this tree computes something else than the one measured".to_owned());
    }
    if document.dirty {
        verification.notes.push(format!("made from a tree with changes that are not in commit {}", document.commit));
    }
}

/// Tables and page of a kernels directory. What another version rendered may differ; what this one did may not.
fn check_kernels_pages(directory: &Path, document: &kernels::Document, templates: Option<&Path>, verification: &mut Verification) {
    let renderer = match Renderer::read(directory) {
        Ok(renderer) => renderer,
        Err(error) => return verification.find(RENDERER_FILE, error.to_string()),
    };
    let templates = templates.filter(|templates| templates.is_dir());
    let tables = kernels::tables(document).into_iter().filter_map(|table| Some((table.name, table.csv().ok()?.to_owned())));
    let page = templates.and_then(|templates| kernels_page(document, templates).ok()).map(|page| ("kernels.html", page));
    let (same, others): (Vec<_>, Vec<_>) =
        tables.chain(page).partition(|(name, text)| std::fs::read_to_string(directory.join(name)).is_ok_and(|written| written == *text));
    same.iter().for_each(|(name, _)| verification.recomputed(name));
    let version = renderer.as_ref().and_then(|renderer| renderer.version.as_ref());
    if version.is_some() && version == templates.map(render::version).as_ref() {
        others.iter().for_each(|(name, _)| verification.find(*name, "is not what this version, which rendered it, makes of kernels.json"));
    } else if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
        let by = match renderer {
            Some(Renderer { version: Some(version), commit, .. }) => format!("version {version} (commit {commit}) rendered it"),
            _ => "an earlier version rendered it, or somebody changed it".to_owned(),
        };
        verification.notes.push(format!("{}: not what this version makes of kernels.json: {by}; not compared", names.join(", ")));
    }
}

/// What is true of the results and not an error in them.
fn note(directory: &Path, campaign: &Campaign, known: Option<&Known>, verification: &mut Verification) {
    if known.is_some_and(|known| !known.is_current(&campaign.trainer_code, record::first_run(directory).as_deref())) {
        verification.notes.push("stale: the trainer of this tree computes something else than the one of these runs".to_owned());
    }
    if campaign.dirty {
        verification.notes.push(format!("made from a tree with changes that are not in commit {}", campaign.commit));
    }
    for earlier in &campaign.carried {
        verification.notes.push(format!("some runs are by an earlier trainer that computes the same ({})", earlier.shown_by));
    }
    let failed = campaign.runs.iter().filter(|run| run.status == "failed").count();
    if failed > 0 {
        verification.notes.push(format!("{failed} of {} runs failed; their claims say so", campaign.runs.len()));
    }
}

/// Every file of SHA256SUMS present and equal, and no other file present.
fn check_sums(directory: &Path, present: &BTreeSet<String>, verification: &mut Verification) -> Result<(), FileError> {
    if !present.contains(SUMS) {
        verification.find(SUMS, "is missing");
        return Ok(());
    }
    let Some(text) = records::text(directory, SUMS, verification) else { return Ok(()) };
    let listed = parse_sums(&text, SUMS, verification);
    for (name, expected) in &listed {
        // A name that was not found by listing is never opened: it may lead out of the directory.
        if !present.contains(name) {
            verification.find(name, format!("is missing; {SUMS} lists it"));
            continue;
        }
        verification.counts.files += 1;
        let found = files::sha256_file(&directory.join(name))?;
        if found != *expected {
            verification.find(name, format!("its SHA-256 is {found}, {SUMS} says {expected}"));
        }
    }
    for name in present.iter().filter(|name| *name != SUMS && !listed.contains_key(*name)) {
        verification.find(name, format!("is not listed in {SUMS}"));
    }
    Ok(())
}

/// `<64 hex>  <path>` lines; anything else is a finding.
fn parse_sums(text: &str, file: &str, verification: &mut Verification) -> BTreeMap<String, String> {
    let mut listed = BTreeMap::new();
    let mut last = "";
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        let hash = |text: &&str| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match line.split_once("  ").filter(|(sum, name)| hash(sum) && !name.is_empty()) {
            Some((_, name)) if listed.contains_key(name) => verification.find(file, format!("line {number} lists {name} again")),
            Some((sum, name)) => {
                if name < last {
                    verification.find(file, format!("line {number} ({name}) is out of order; lines are sorted as bytes by path"));
                }
                last = name;
                listed.insert(name.to_owned(), sum.to_owned());
            }
            None => verification.find(file, format!("line {number} is not 64 hexadecimal digits, two spaces and a path")),
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        verification.find(file, "the last line is cut off");
    }
    listed
}

/// DETERMINISTIC.sha256 lists what it should, with the hashes the files have.
fn check_deterministic(directory: &Path, verification: &mut Verification) -> Result<(), FileError> {
    let Some(text) = records::text(directory, DETERMINISTIC, verification) else { return Ok(()) };
    let computed = match provenance::deterministic(directory) {
        Ok(computed) => computed,
        // A packed log that cannot be unpacked is what is wrong with the directory, not with looking at it.
        Err(error) => {
            let name = error.path.strip_prefix(directory).unwrap_or(&error.path).to_string_lossy().into_owned();
            verification.find(name, format!("cannot {}: {}", error.action, error.source));
            return Ok(());
        }
    };
    verification.recomputed(DETERMINISTIC);
    if text == computed {
        return Ok(());
    }
    let written = parse_sums(&text, DETERMINISTIC, verification);
    let mut ignored = Verification::default();
    let expected = parse_sums(&computed, DETERMINISTIC, &mut ignored);
    for (name, hash) in &expected {
        match written.get(name) {
            None => verification.find(DETERMINISTIC, format!("does not list {name}")),
            Some(other) if other != hash => {
                verification.find(DETERMINISTIC, format!("says that {name} has SHA-256 {other}, but it has {hash}"))
            }
            Some(_) => {}
        }
    }
    for name in written.keys().filter(|name| !expected.contains_key(*name)) {
        verification.find(DETERMINISTIC, format!("lists {name}, which is not there or need not be equal on every machine"));
    }
    Ok(())
}
