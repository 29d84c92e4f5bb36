//! Commands on what lies there already: result directories, and logs of others.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bench::kernels_bench;
use campaign::{directory, signature, synthesis};
use serde_json::json;
use study::identity::Known;
use study::{compare, deposit, judge, kernels, mllog, public_logs, verify};

use crate::arguments::ImportMllog;
use crate::outcome::{Failure, Outcome};
use crate::print;

/// What is added to a directory before it is rendered.
pub(super) struct Added {
    pub(super) evidence: bool,
    pub(super) kernels: Option<PathBuf>,
    pub(super) judged_again: bool,
}

pub(super) fn report(root: &Path, directory: &Path, added: &Added) -> Result<Outcome, Failure> {
    let is_plain = !added.evidence && added.kernels.is_none() && !added.judged_again;
    if is_plain && kernels::is_result(directory) {
        let outcome = kernels_bench::report(root, directory)?;
        let (table, page) = (kernels_bench::table(&outcome.document), outcome.directory.join("kernels.html"));
        return Ok(Outcome::done(format!("{table}report: {}\n", page.display())));
    }
    if let Some(kernels) = &added.kernels {
        kernels_bench::add_to(directory, kernels)?;
    }
    if added.evidence {
        public_logs::add(root, directory)?;
    }
    if added.judged_again {
        judge::add_second(root, directory)?;
    }
    Ok(Outcome::done(print::report(&directory::report(root, directory)?)))
}

pub(super) fn sign(directory: &Path, key: &Path) -> Result<Outcome, Failure> {
    Ok(Outcome::done(format!("{}: {}\n", directory.display(), signature::sign(directory, key)?)))
}

pub(super) fn verify(root: &Path, directory: &Path, signer: Option<&str>) -> Result<Outcome, Failure> {
    let mut verification = verify::verify(directory, Known::load(root).ok().as_ref(), Some(&root.join("paper")))?;
    signature::check(directory, signer, &mut verification)?;
    let findings: Vec<_> = verification.findings.iter().map(|found| json!({"path": found.path, "what": found.what})).collect();
    let outcome = Outcome::check(verification.holds(), verification.to_string()).with("findings", findings);
    Ok(outcome.with("notes", verification.notes.clone()).with("signature", verification.signature.to_string()))
}

pub(super) fn compare(first: &Path, second: &Path) -> Result<Outcome, Failure> {
    let comparison = compare::compare(first, second)?;
    Ok(Outcome::check(comparison.equal(), comparison.to_string()))
}

pub(super) fn synthesis(root: &Path, directories: Vec<PathBuf>, out: Option<PathBuf>, check: bool) -> Result<Outcome, Failure> {
    let request = synthesis::Request { directories, out: out.unwrap_or_else(|| root.join("results")), check };
    let outcome = synthesis::synthesis(root, &request)?;
    Ok(Outcome::check(outcome.holds(), outcome.to_string()))
}

/// Findings do not stop the table from being written: it holds what could be read.
pub(super) fn import_mllog(options: &ImportMllog) -> Result<Outcome, Failure> {
    let reading = mllog::Options { benchmark: options.benchmark.clone(), target: options.target };
    let import = mllog::import(&options.paths, &reading);
    let mut text = import.to_string();
    if let Some(out) = &options.out {
        mllog::table::write(out, &import.records(&options.source_path))?;
        text.push_str(&format!("written to {}\n", out.display()));
    }
    Ok(Outcome::check(import.problems() == 0, text))
}

pub(super) fn export_mllog(root: &Path, directory: &Path, out: Option<PathBuf>) -> Result<Outcome, Failure> {
    let out = out.unwrap_or_else(|| root.join("target").join("mllog").join(name_of(directory)));
    Ok(Outcome::done(mllog::export(directory, &out)?.to_string()))
}

pub(super) fn export_crate(root: &Path, directory: &Path, out: Option<PathBuf>) -> Result<Outcome, Failure> {
    let out = out.unwrap_or_else(|| root.join("target").join("crate").join(name_of(directory)));
    Ok(Outcome::done(deposit::export(directory, &out)?.to_string()))
}

/// The last part of a directory's path, wherever it is called from.
fn name_of(directory: &Path) -> OsString {
    directory.canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_owned())).unwrap_or_default()
}
