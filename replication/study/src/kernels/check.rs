//! Whether a kernels directory agrees with itself: its document's schema, and its ratios computed again.

use std::path::Path;

use super::comparisons::Compared;
use super::document::{DOCUMENT, Document};

/// What is wrong with `directory`/kernels.json, as (file, fault); empty when nothing is.
pub fn check(directory: &Path) -> Vec<(String, String)> {
    let path = directory.join(DOCUMENT);
    let document = match Document::read(&path) {
        Ok(document) => document,
        Err(error) => return vec![(DOCUMENT.to_owned(), error.to_string())],
    };
    let mut findings = compared(&document.comparisons, &document.compare());
    for ((_, written), computed) in document.of_devices().zip(document.compare_devices()) {
        findings.extend(compared(written, &computed));
    }
    findings
}

fn compared(written: &[Compared], computed: &[Compared]) -> Vec<(String, String)> {
    let mut findings = Vec::new();
    if computed.len() != written.len() {
        let what = format!("holds {} comparisons, but its measurements give {}", written.len(), computed.len());
        findings.push((DOCUMENT.to_owned(), what));
    }
    for (written, computed) in written.iter().zip(computed) {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let ratio = match (written.ratio, computed.ratio) {
            (Some(a), Some(b)) => close(a, b),
            (a, b) => a == b,
        };
        if !ratio || (&written.what, &written.verdict, written.bar) != (&computed.what, &computed.verdict, computed.bar) {
            let number = |ratio: Option<f64>| ratio.map_or("nothing".to_owned(), |ratio| ratio.to_string());
            findings.push((
                DOCUMENT.to_owned(),
                format!(
                    "`{}` says {} {}, but its measurements give `{}` {} {}",
                    written.what,
                    number(written.ratio),
                    written.verdict,
                    computed.what,
                    number(computed.ratio),
                    computed.verdict
                ),
            ));
        }
    }
    findings
}
