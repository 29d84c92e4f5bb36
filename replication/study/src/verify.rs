//! Checks a result directory against itself: every hash, every schema, every verdict and table computed again.
//!
//! Reads only, needs neither the source tree nor a trainer, and works wherever the directory was copied to. What is wrong becomes
//! a [`Finding`] that names the file; nothing in the directory can make it fail otherwise. It does not run anything again: that is
//! what a second campaign and `compare` are for.

mod recompute;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::audit;
use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::identity::Known;
use crate::kernels;
use crate::provenance::{self, DETERMINISTIC, SUMS};
use crate::record::Campaign;
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
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub files: usize,
    /// Runs whose records agree with their files.
    pub runs: usize,
    /// Files computed again from runs and measurements.
    pub recomputed: usize,
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

    fn find(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { path: path.into(), what: what.into() });
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
        let Counts { files, runs, recomputed } = self.counts;
        let checked = format!("{files} files hashed, {runs} runs checked, {recomputed} files computed again");
        match self.findings.len() {
            0 => writeln!(f, "verified: {checked}; everything agrees"),
            1 => writeln!(f, "NOT verified: {checked}; 1 finding"),
            many => writeln!(f, "NOT verified: {checked}; {many} findings"),
        }
    }
}

/// Checks the result directory. `known` is what the tree at hand computes, if there is one: results that it would not compute are noted as
/// stale, which is not a finding.
pub fn verify(directory: &Path, known: Option<&Known>) -> Result<Verification, VerifyError> {
    let of_kernels = kernels::is_result(directory);
    if !directory.join(SUMS).exists() && !directory.join("campaign.json").exists() && !of_kernels {
        return Err(VerifyError::NotResults { path: directory.to_owned() });
    }
    let mut verification = Verification::default();
    let found = results::look(directory)?;
    for (name, what) in &found.strange {
        verification.find(name, *what);
    }
    let present: BTreeSet<String> = found.files.into_iter().collect();
    // Readers further on open files by fixed names: a pipe or a link among them could hang or lead elsewhere.
    if found.strange.is_empty() {
        check_sums(directory, &present, &mut verification)?;
        if of_kernels {
            kernels(directory, known, &mut verification);
            return Ok(verification);
        }
        check_deterministic(directory, &mut verification)?;
        let campaign: Option<Campaign> = records::json(directory, "campaign.json", "mxfp4-campaign/1", &mut verification);
        records::check_environment(directory, campaign.as_ref(), &mut verification);
        records::check_statement(directory, campaign.as_ref(), &mut verification);
        if let Some(campaign) = &campaign {
            records::check_runs(directory, campaign, &present, &mut verification);
            records::check_manifests(directory, campaign, &mut verification);
            records::check_same_bytes(directory, &present, &mut verification);
            note(campaign, known, &mut verification);
        }
        recompute::check(directory, &mut verification);
    }
    verification.notes.extend(audit::beside(directory));
    verification.findings.sort();
    verification.findings.dedup();
    Ok(verification)
}

/// A directory of `kernels-bench`: its ratios computed again. It holds no runs and no verdicts on claims.
fn kernels(directory: &Path, known: Option<&Known>, verification: &mut Verification) {
    verification.counts.recomputed += 1;
    for (path, what) in kernels::check(directory) {
        verification.find(path, what);
    }
    if let Ok(document) = kernels::Document::read(&directory.join(kernels::DOCUMENT)) {
        verification.notes.push("measurements of kernels: hashes and ratios are checked; there are no runs and no claims here".to_owned());
        if known.is_some_and(|known| !known.is_current(&document.trainer_code)) {
            verification.notes.push("stale: the trainer of this tree computes something else than the one measured".to_owned());
        }
        if document.dirty {
            verification.notes.push(format!("made from a tree with changes that are not in commit {}", document.commit));
        }
    }
    verification.findings.sort();
    verification.findings.dedup();
}

/// What is true of the results and not an error in them.
fn note(campaign: &Campaign, known: Option<&Known>, verification: &mut Verification) {
    if known.is_some_and(|known| !known.is_current(&campaign.trainer_code)) {
        verification.notes.push("stale: the trainer of this tree computes something else than the one of these runs".to_owned());
    }
    if campaign.dirty {
        verification.notes.push(format!("made from a tree with changes that are not in commit {}", campaign.commit));
    }
    if campaign.partial {
        verification.notes.push("partial: not every run of the profile is in it".to_owned());
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
    verification.counts.recomputed += 1;
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
