//! Documents from JSON lines (`{"text": …}` each, other keys ignored) or plain text.
//!
//! Plain text is one document a file, or several separated by NUL bytes (which UTF-8 text does not hold otherwise).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::DataError;

/// How documents lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFormat {
    /// One JSON object a line with a `text`.
    JsonLines,
    /// UTF-8, documents separated by NUL bytes.
    PlainText,
}

impl DocumentFormat {
    /// By extension: `.jsonl` (or `.json`) and `.txt` (or `.md`).
    pub fn of(path: &Path) -> Result<Self, DataError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl" | "json") => Ok(Self::JsonLines),
            Some("txt" | "md") => Ok(Self::PlainText),
            _ => Err(DataError::Malformed {
                path: path.to_owned(),
                problem: "neither .jsonl nor .txt".into(),
                remedy: "name a .jsonl file ({\"text\": …} a line) or a .txt file",
            }),
        }
    }
}

/// The documents of a file, in order; one is held at a time.
#[derive(Debug)]
pub struct Documents {
    path: PathBuf,
    format: DocumentFormat,
    reader: BufReader<File>,
    number: u64,
    buffer: Vec<u8>,
    ended: bool,
}

/// Opens `path` by its extension.
pub fn documents(path: &Path) -> Result<Documents, DataError> {
    let format = DocumentFormat::of(path)?;
    let file = File::open(path).map_err(|source| DataError::read(path, source))?;
    Ok(Documents {
        path: path.to_owned(),
        format,
        reader: BufReader::with_capacity(1 << 16, file),
        number: 0,
        buffer: Vec::new(),
        ended: false,
    })
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    text: std::borrow::Cow<'a, str>,
}

impl Documents {
    fn malformed(&self, problem: String) -> DataError {
        let remedy = match self.format {
            DocumentFormat::JsonLines => "each line is one JSON object with a string \"text\", in UTF-8",
            DocumentFormat::PlainText => "convert the file to UTF-8",
        };
        DataError::Malformed { path: self.path.clone(), problem, remedy }
    }

    fn next_document(&mut self) -> Result<Option<String>, DataError> {
        let separator = match self.format {
            DocumentFormat::JsonLines => b'\n',
            DocumentFormat::PlainText => 0,
        };
        loop {
            self.buffer.clear();
            let read = self.reader.read_until(separator, &mut self.buffer).map_err(|source| DataError::read(&self.path, source))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.buffer.last() == Some(&separator) {
                self.buffer.pop();
            }
            let text = std::str::from_utf8(&self.buffer).map_err(|error| {
                self.malformed(format!("{} {} is not UTF-8 at its byte {}", self.unit(), self.number, error.valid_up_to()))
            })?;
            match self.format {
                DocumentFormat::PlainText if text.is_empty() => {}
                DocumentFormat::PlainText => return Ok(Some(text.to_owned())),
                DocumentFormat::JsonLines if text.trim().is_empty() => {}
                DocumentFormat::JsonLines => {
                    let line: Line<'_> =
                        serde_json::from_str(text).map_err(|error| self.malformed(format!("line {}: {error}", self.number)))?;
                    return Ok(Some(line.text.into_owned()));
                }
            }
        }
    }

    fn unit(&self) -> &'static str {
        match self.format {
            DocumentFormat::JsonLines => "line",
            DocumentFormat::PlainText => "document",
        }
    }
}

impl Iterator for Documents {
    type Item = Result<String, DataError>;

    /// Ends after the first error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_document().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
