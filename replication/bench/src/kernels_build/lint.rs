//! One rule for sources: a conversion to FP4 with stochastic rounding never writes into the result of another.
//!
//! clang 22 miscompiles such chains (the builtin's old operand is lost, and bytes come out as garbage). `sr(0, ...) & 0xff` and an OR
//! are right. The kernels here round in integers and use no such builtin at all.

use std::fmt;

/// A call that the rule refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Line, from 1.
    pub line: usize,
    pub builtin: String,
    /// Its first argument.
    pub old: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} is chained (its old operand is `{}`), which clang 22 miscompiles: pass 0, keep the byte that it wrote, and OR the bytes",
            self.line, self.builtin, self.old
        )
    }
}

const BUILTIN: &str = "__builtin_amdgcn_cvt_scalef32_sr_pk_fp4_";

/// Calls whose old operand is anything but a literal zero. Comments are skipped; a call through a macro is judged where it is written.
pub fn chained_conversions(source: &str) -> Vec<Finding> {
    let text = without_comments(source);
    let mut findings = Vec::new();
    for (at, _) in text.match_indices(BUILTIN) {
        let call = &text[at..];
        let Some((name, arguments)) = call.split_once('(') else { continue };
        let old = first_argument(arguments).trim().to_owned();
        if !matches!(old.as_str(), "0" | "0u" | "0U") {
            let line = text[..at].matches('\n').count() + 1;
            findings.push(Finding { line, builtin: name.trim().to_owned(), old });
        }
    }
    findings
}

/// Up to the first comma or the closing bracket of the call.
fn first_argument(arguments: &str) -> &str {
    let mut depth = 0;
    for (at, character) in arguments.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ')' => return &arguments[..at],
            ',' if depth == 0 => return &arguments[..at],
            _ => {}
        }
    }
    arguments
}

/// The same text with comments blanked, line by line in place.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        text.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("//") {
            rest[at..].find('\n').map_or(rest.len(), |end| at + end)
        } else {
            rest[at..].find("*/").map_or(rest.len(), |end| at + end + 2)
        };
        text.extend(rest[at..end].chars().filter(|&character| character == '\n'));
        rest = &rest[end..];
    }
    text + rest
}
