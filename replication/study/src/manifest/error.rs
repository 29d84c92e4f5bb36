//! What is wrong with a manifest: file, line, key and what to write instead.

use std::path::{Path, PathBuf};

use contract::text::one_line;

use crate::exit::{self, ExitCode};
use crate::suggest::closest;

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {}", .path.display(), line_suffix(*.line), one_line(.message))]
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

    /// The line is that of the key that the message begins with, as deep as the text has it.
    pub(super) fn in_text(path: &Path, text: &str, why: &str) -> Self {
        let mut first = why.split([':', ' ']);
        // "claim T1-F: ..." points at the claim's id, "passes.fprop.input: ..." at `input` after `fprop` after `passes`.
        let words: Vec<String> = match first.next() {
            Some("claim" | "check") => first.next().map(|id| format!("id: {id}")).into_iter().collect(),
            Some("recipe") => first.next().map(str::to_owned).into_iter().collect(),
            Some(keys) => keys.split('.').map(|key| format!("{key}:")).collect(),
            None => Vec::new(),
        };
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with('#')).peekable();
        let mut found = 0;
        for word in words {
            while lines.next_if(|(line, _)| !line.contains(&word)).is_some() {}
            let Some((_, line)) = lines.peek() else { break };
            found = *line;
        }
        // A key that a profile has from another.
        match text.lines().zip(1..).find(|(line, _)| line.starts_with("like:")).filter(|_| found == 0) {
            Some((like, line)) => {
                let base = like.split(" #").next().unwrap_or(like).trim();
                Self { path: path.to_owned(), line, message: format!("{why} (by `{base}`; write the key in this file)") }
            }
            None => Self { path: path.to_owned(), line: found, message: why.to_owned() },
        }
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
