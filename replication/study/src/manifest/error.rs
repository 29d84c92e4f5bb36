//! What is wrong with a manifest: file, line, key and what to write instead.

use std::path::{Path, PathBuf};

use crate::exit::{self, ExitCode};
use crate::suggest::closest;

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

impl ExitCode for ManifestError {
    fn exit_code(&self) -> u8 {
        exit::USAGE
    }
}

fn line_suffix(line: usize) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
}

impl ManifestError {
    pub fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, message: message.into() }
    }

    /// The line is that of the first word of the message that the text contains as a key.
    pub(super) fn in_text(path: &Path, text: &str, why: &str) -> Self {
        // "claim T1-F: ..." points at the claim's id, "passes.fprop.input: ..." at its first key.
        let word = match why.split([':', ' ', '.']).next() {
            Some("claim" | "check") => why.split([':', ' ']).nth(1).map(|id| format!("id: {id}")),
            Some("recipe") => why.split([':', ' ']).nth(1).map(str::to_owned),
            Some(key) => Some(format!("{key}:")),
            None => None,
        };
        let line = word.and_then(|word| text.lines().position(|line| line.contains(&word) && !line.trim_start().starts_with('#')));
        Self { path: path.to_owned(), line: line.map_or(0, |line| line + 1), message: why.to_owned() }
    }

    /// From the YAML reader's complaint: keeps its line, adds a suggestion where a word is close to an expected one.
    pub(super) fn from_yaml(path: &Path, text: &str, error: &serde_yaml::Error) -> Self {
        let line = error.location().map_or(0, |location| location.line());
        let mut message = strip_location(&error.to_string());
        // What is wrong with a claim as a whole, serde places at the list of them.
        if let Some(why) = message.strip_prefix("claims: ").filter(|why| why.starts_with("claim ")) {
            return Self::in_text(path, text, why);
        }
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
