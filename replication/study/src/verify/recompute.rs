//! Computes verdicts and tables of a result directory again, from its runs, measurements and manifests, and compares.

use std::path::Path;

use super::{Verification, records};
use crate::judge::{self, VERDICTS_AGAIN, Verdicts};
use crate::measure::{MeasureError, Measurements, measure};
use crate::provenance::DETERMINISTIC_TABLES;
use crate::render::tables;

/// Two numbers that differ by less than this share are the same number computed by two mathematics libraries: quantiles of
/// Student's distribution agree to about 1e-13, and differences of nearby numbers lose up to four digits more.
const SHARE: f64 = 1e-9;
/// For numbers near zero.
const FLOOR: f64 = 1e-12;

/// What a report is made of.
pub(super) struct Computed {
    pub(super) measurements: Measurements,
    pub(super) verdicts: Verdicts,
    /// By the second version of the rules, where there are any.
    pub(super) again: Option<Verdicts>,
}

/// verdicts.json and data/*.csv are what the files of this directory give; measurements and verdicts, for what else is made of them.
pub(super) fn check(directory: &Path, verification: &mut Verification) -> Option<Computed> {
    let measurements = match measure(directory) {
        Ok(measurements) => measurements,
        Err(error) => {
            finding(directory, &error, verification);
            return None;
        }
    };
    let verdicts = judge::judge(&measurements);
    match verdicts.json() {
        Ok(text) => compare(directory, "verdicts.json", &text, false, verification),
        Err(error) => verification.find("verdicts.json", format!("cannot be computed again: {error}")),
    }
    let again = judge::judge_again(&measurements);
    match again.as_ref().map(Verdicts::json) {
        Some(Ok(text)) => compare(directory, VERDICTS_AGAIN, &text, false, verification),
        Some(Err(error)) => verification.find(VERDICTS_AGAIN, format!("cannot be computed again: {error}")),
        None => {}
    }
    for table in tables(&measurements, [Some(&verdicts), again.as_ref()]) {
        let file = format!("data/{}", table.name);
        let exact = DETERMINISTIC_TABLES.contains(&table.name);
        match table.csv() {
            Ok(text) => compare(directory, &file, text, exact, verification),
            Err(error) => verification.find(file, format!("cannot be computed again: {error}")),
        }
    }
    Some(Computed { measurements, verdicts, again })
}

/// A measuring error as a finding on the file it is about.
fn finding(directory: &Path, error: &MeasureError, verification: &mut Verification) {
    let (path, what) = match error {
        MeasureError::File(error) => (error.path.clone(), format!("cannot {}: {}", error.action, error.source)),
        MeasureError::Schema { path, line, what } => (path.clone(), format!("line {line}: {what}")),
        MeasureError::Manifest(error) => (error.path.clone(), format!("line {}: {}", error.line, error.message)),
    };
    let file = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().replace('\\', "/");
    verification.find(file, format!("{what}; verdicts cannot be computed again"));
}

pub(super) fn compare(directory: &Path, file: &str, computed: &str, exact: bool, verification: &mut Verification) {
    let Some(written) = records::text(directory, file, verification) else { return };
    verification.recomputed(file);
    if written == computed {
        return;
    }
    if !exact && same_numbers(&written, computed) {
        verification.notes.push(format!(
            "{file}: computed again, the last digits of some numbers differ; this machine's mathematics library is another one"
        ));
        return;
    }
    let differing = written.lines().zip(computed.lines()).position(|(old, new)| old != new);
    let what = match differing {
        Some(index) => {
            let line = |text: &str| text.lines().nth(index).unwrap_or_default().trim().chars().take(120).collect::<String>();
            format!("line {}: `{}`, but runs and measurements give `{}`", index + 1, line(&written), line(computed))
        }
        None => format!("has {} lines, but runs and measurements give {}", written.lines().count(), computed.lines().count()),
    };
    verification.find(file, what);
}

/// Whether two texts are equal up to the last digits of the numbers in them.
fn same_numbers(left: &str, right: &str) -> bool {
    let (left, right) = (pieces(left), pieces(right));
    left.len() == right.len() && left.iter().zip(&right).all(|(a, b)| a == b || close(a, b))
}

fn close(left: &str, right: &str) -> bool {
    // Words such as `inf` parse as numbers too, but a piece begins with a digit or is compared as text.
    let number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit()).then(|| text.parse::<f64>().ok()).flatten();
    let (Some(left), Some(right)) = (number(left), number(right)) else { return false };
    (left - right).abs() <= SHARE * left.abs().max(right.abs()) + FLOOR
}

/// Unsigned decimal numbers, and the text between them.
fn pieces(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        pieces.push(&text[start..at]);
        let mut end = digits(at);
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1);
        }
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if matches!(bytes.get(end), Some(b'e' | b'E')) && bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
        pieces.push(&text[at..end]);
        (start, at) = (end, end);
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_last_digits_are_forgiven() {
        assert_eq!(pieces("a-1.5e-3,x2.,é"), ["a-", "1.5e-3", ",x", "2", ".,é"]);
        assert!(same_numbers("low 0.30000000000000004 n 15", "low 0.3 n 15"));
        assert!(same_numbers("[1e-13]", "[2.5e-13]"));
        for (left, right) in [
            ("0.3", "0.30001"),
            ("-0.3", "0.3"),
            ("n 15", "n 16"),
            ("reproduced 1", "differs 1"),
            ("1 2", "1"),
            ("1e300", "inf"),
            ("0.3", "NaN"),
        ] {
            assert!(!same_numbers(left, right), "{left} {right}");
        }
    }
}
