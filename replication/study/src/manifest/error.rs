//! What is wrong with a manifest: file, line, key and what to write instead.

use std::path::{Path, PathBuf};

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", .path.display(), line_suffix(*.line))]
pub struct ManifestError {
    /// The file, relative to the repository where it lies inside.
    pub path: PathBuf,
    /// Line, counted from 1; 0 when the message is about the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

fn line_suffix(line: usize) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
}

impl ManifestError {
    pub fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, message: message.into() }
    }

    /// From the YAML reader's complaint: keeps its line, adds a suggestion where a word is close to an expected one.
    pub(super) fn from_yaml(path: &Path, error: &serde_yaml::Error) -> Self {
        let line = error.location().map_or(0, |location| location.line());
        let mut message = strip_location(&error.to_string());
        if let Some(suggestion) = suggest_from_message(&message) {
            message.push_str(&format!(" (did you mean `{suggestion}`?)"));
        }
        Self { path: path.to_owned(), line, message }
    }
}

/// The YAML reader ends its messages with ` at line L column C`; the line is shown in front instead.
fn strip_location(message: &str) -> String {
    message.rfind(" at line ").map_or(message, |at| &message[..at]).to_owned()
}

/// serde says "unknown field `x`, expected one of `a`, `b`" and the like: the first quoted word is wrong, the rest are right.
fn suggest_from_message(message: &str) -> Option<String> {
    let start = message.find("unknown field").or_else(|| message.find("unknown variant"))?;
    let mut words = message[start..].split('`').skip(1).step_by(2);
    let wrong = words.next()?;
    closest(wrong, words).map(str::to_owned)
}

/// The candidate that is nearest to `word`, if any is near enough to be a slip.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `unknown KIND `word`` with the nearest candidate, or all of them.
pub fn unknown(kind: &str, word: &str, candidates: &[&str]) -> String {
    match closest(word, candidates.iter().copied()) {
        Some(near) => format!("unknown {kind} `{word}` (did you mean `{near}`?)"),
        None => format!("unknown {kind} `{word}`; there are: {}", candidates.join(", ")),
    }
}
