//! Step 2 and step 3: from the bytes of a file to the lines of its text, by mode.

mod markdown;
mod plain;
mod xml;

use regex::bytes::Captures;

use crate::lines::{self, Line};
use crate::rule::Rule;
use crate::source::Mode;

/// Longer files are dropped, bytes.
pub(crate) const LARGEST_FILE: usize = 4_000_000;

/// Why a file gives no document; the words are those under `dropped` in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dropped(pub(crate) &'static str);

/// Steps 2 to 4: the tidy lines of a file.
pub(crate) fn extract(rule: &Rule, mode: Mode, file: &[u8]) -> Result<Vec<Line>, Dropped> {
    let text = normalise(file)?;
    let found = match mode {
        Mode::Markdown => markdown::lines(rule, &text),
        Mode::Rst => plain::rst(rule, &text),
        Mode::Gutenberg => plain::gutenberg(&text)?,
        Mode::Cnxml => xml::cnxml(rule, &text)?,
        Mode::MedQuad => xml::medquad(rule, &text)?,
        Mode::Law => xml::law(rule, &text),
        Mode::Tei => xml::tei(rule, &text)?,
    };
    let tidy = lines::tidy(found);
    if lines::is_prose(&tidy) { Ok(tidy) } else { Err(Dropped("not_prose")) }
}

/// A group of a match; empty where the manifest's pattern has none.
fn group<'a>(found: &Captures<'a>, number: usize) -> &'a [u8] {
    found.get(number).map_or(b"", |group| group.as_bytes())
}

/// Step 2.
fn normalise(file: &[u8]) -> Result<Vec<u8>, Dropped> {
    if file.len() > LARGEST_FILE {
        return Err(Dropped("too_long"));
    }
    let text = std::str::from_utf8(file).map_err(|_| Dropped("not_utf8"))?;
    if text.contains('\0') {
        return Err(Dropped("nul"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(text.replace("\r\n", "\n").replace('\r', "\n").replace('\u{a0}', " ").into_bytes())
}
