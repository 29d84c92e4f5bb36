//! An audit: runs of a result directory, drawn at random and made again elsewhere. Its outcome is an in-toto statement beside the directory,
//! because a file inside would change what it is about.

use std::fmt;
use std::path::{Path, PathBuf};

use contract::outcome::Done;
use contract::text::one_line;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::files::{self, FileError, sha256};
use crate::provenance::DETERMINISTIC;
use crate::same_bytes;

const TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "urn:mxfp4-replication:audit:1";

/// `DIR.audit-DATE-MACHINE-SEED.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    #[serde(rename = "_type")]
    pub kind: String,
    /// DETERMINISTIC.sha256 of the directory, which lists the hashes of every run.
    pub subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    pub predicate: Audit,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    pub name: String,
    pub digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    pub sha256: String,
}

/// Which runs were made again, where, and what came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// Name of the directory.
    pub directory: String,
    /// Decides which runs are drawn ([`draw`]).
    pub draw_seed: u64,
    /// How many there were to draw from.
    pub of: usize,
    /// In the order in which they were drawn.
    pub runs: Vec<Made>,
    /// Where they were made again.
    pub machine: String,
    /// What the trainer computes that made them.
    pub trainer_code: String,
    pub environment: Environment,
}

/// One run that was made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// `arm/seed`.
    pub run: String,
    /// What the directory's done.json says.
    pub recorded: Bytes,
    /// None where it did not come to its end.
    pub made: Option<Bytes>,
    /// Why not. It may name folders of the machine, so it is printed and not written.
    #[serde(skip)]
    pub error: Option<String>,
}

/// Hashes of what a run leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    pub metrics_sha256: String,
    /// None of a run that diverged.
    pub model_sha256: Option<String>,
}

impl From<&Done> for Bytes {
    fn from(done: &Done) -> Self {
        Self { metrics_sha256: done.metrics_sha256.clone(), model_sha256: done.model_sha256.clone() }
    }
}

impl Made {
    pub fn is_equal(&self) -> bool {
        self.made.as_ref() == Some(&self.recorded)
    }
}

impl Audit {
    pub fn equal(&self) -> usize {
        self.runs.iter().filter(|run| run.is_equal()).count()
    }

    pub fn holds(&self) -> bool {
        self.equal() == self.runs.len()
    }

    /// What came out, in a sentence.
    pub fn line(&self) -> String {
        let Self { draw_seed, of, runs, machine, environment, .. } = self;
        let day: String = environment.captured.chars().take(10).collect();
        let (equal, all) = (self.equal(), runs.len());
        format!(
            "{equal} of {all} runs (drawn from {of} with --draw-seed {draw_seed}) came out byte for byte when made again on {machine}, {day}"
        )
    }

    /// The statement about `directory`.
    pub fn statement(self, directory: &Path) -> Result<Statement, FileError> {
        let digest = Digest { sha256: files::sha256_file(&directory.join(DETERMINISTIC))? };
        let subject = vec![Subject { name: DETERMINISTIC.to_owned(), digest }];
        Ok(Statement { kind: TYPE.to_owned(), subject, predicate_type: PREDICATE.to_owned(), predicate: self })
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in &self.runs {
            let other = |(what, differs): (&'static str, bool)| differs.then_some(what);
            let outcome = match &run.made {
                _ if run.is_equal() => "same bytes".to_owned(),
                None => format!("FAILED: {}", run.error.as_deref().unwrap_or("it did not end")),
                Some(made) => {
                    let parts = [
                        ("metrics", made.metrics_sha256 != run.recorded.metrics_sha256),
                        ("final weights", made.model_sha256 != run.recorded.model_sha256),
                    ];
                    format!("OTHER BYTES: {}", parts.into_iter().filter_map(other).collect::<Vec<_>>().join(", "))
                }
            };
            writeln!(f, "{:<28} {outcome}", run.run)?;
        }
        writeln!(f, "{}", self.line())
    }
}

impl Statement {
    /// Where the statement about `directory` goes.
    pub fn path(&self, directory: &Path) -> PathBuf {
        let Audit { directory: name, draw_seed, machine, environment, .. } = &self.predicate;
        let day: String = environment.captured.chars().take(10).collect();
        directory.with_file_name(format!("{name}{MARK}{day}-{machine}-{draw_seed}.json"))
    }

    pub fn json(&self) -> String {
        // Text keys alone: cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn read(path: &Path) -> Result<Self, String> {
        let text = files::read_text(path).map_err(|error| error.to_string())?;
        let read: Self = serde_json::from_str(&text).map_err(|error| format!("is no audit: {error}"))?;
        if (read.kind.as_str(), read.predicate_type.as_str()) != (TYPE, PREDICATE) {
            return Err(format!("is a statement of another kind (`{}`)", read.predicate_type));
        }
        Ok(read)
    }

    /// What is said of `directory`, or why it does not count. A directory grows by further runs: then it is said of those that it had.
    fn about(&self, directory: &Path) -> Result<String, String> {
        let Audit { directory: audited, runs, .. } = &self.predicate;
        let recorded = same_bytes::finished(directory);
        if let Some(stranger) = runs.iter().find(|run| recorded.get(&run.run).map(Bytes::from).as_ref() != Some(&run.recorded)) {
            return Err(format!("names other hashes of {} than its done.json", stranger.run));
        }
        let now = files::sha256_file(&directory.join(DETERMINISTIC)).map_err(|error| error.to_string())?;
        let same = self.subject.iter().any(|subject| subject.name == DETERMINISTIC && subject.digest.sha256 == now);
        match () {
            () if same => Ok(self.predicate.line()),
            () if runs.is_empty() => {
                Err(format!("names no run and is about another state of this directory: {DETERMINISTIC} has SHA-256 {now}"))
            }
            () => Ok(format!("{}; they were then a part of {audited}", self.predicate.line())),
        }
    }
}

/// Between a directory's name and the rest of a statement's.
const MARK: &str = ".audit-";

/// The ending of a signature's name beside the file that it is of.
pub const SIGNATURE_ENDING: &str = ".sig";

/// Whether `path` is a statement that this version reads.
///
/// # Errors
/// What it is instead.
pub fn check(path: &Path) -> Result<(), String> {
    Statement::read(path).map(drop)
}

/// The statements beside a result directory, in order of their names.
pub fn statements(directory: &Path) -> Vec<PathBuf> {
    let Ok(directory) = directory.canonicalize() else { return Vec::new() };
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return Vec::new() };
    let start = format!("{}{MARK}", name.to_string_lossy());
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&start) && name.ends_with(".json")).collect();
    names.sort();
    names.into_iter().map(|name| parent.join(name)).collect()
}

/// Where a statement's signature lies.
pub fn signature(statement: &Path) -> PathBuf {
    let mut name = statement.as_os_str().to_owned();
    name.push(SIGNATURE_ENDING);
    PathBuf::from(name)
}

/// What the statements beside a result directory say of it, one line each. Whose a signature is, nobody here looks at.
pub fn beside(directory: &Path) -> Vec<String> {
    let Ok(whole) = directory.canonicalize() else { return Vec::new() };
    let line = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match Statement::read(&path).and_then(|statement| statement.about(&whole)) {
            Ok(line) if signature(&path).exists() => format!("audited: {line} ({name})"),
            Ok(line) => format!("audited: {line} ({name}, not signed)"),
            Err(why) => format!("{name} {why}; it does not count"),
        }
    };
    // Names and words are a stranger's.
    statements(directory).into_iter().map(line).map(|line| one_line(&line).into_owned()).collect()
}

/// `count` of the names, by the order of the hashes of seed and name: anyone can draw them again.
pub fn draw<'a>(names: impl Iterator<Item = &'a String>, seed: u64, count: usize) -> Vec<String> {
    let mut drawn: Vec<(String, &String)> = names.map(|name| (sha256(format!("{seed} {name}").as_bytes()), name)).collect();
    drawn.sort();
    drawn.into_iter().take(count).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against Python's hashlib.
    #[test]
    fn anyone_can_draw_the_same_runs() {
        let names = ["bf16/1", "bf16/2", "fp8/1", "fp8/2", "fp8/10"].map(str::to_owned);
        assert_eq!(draw(names.iter(), 7, 3), ["bf16/2", "bf16/1", "fp8/1"]);
        assert_eq!(draw(names.iter(), 8, 9).len(), 5);
        assert_eq!(draw(names.iter(), 8, 3), ["fp8/1", "bf16/1", "fp8/10"]);
    }
}
