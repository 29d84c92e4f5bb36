//! MODE md.

use regex::bytes::{NoExpand, Regex};

use super::group;
use crate::lines::{self, Line};
use crate::rule::{Patterns, Rule};

pub(super) fn lines(rule: &Rule, text: &[u8]) -> Vec<Line> {
    let patterns = &rule.patterns;
    let text = patterns.comment.replace_all(without_front_matter(text), NoExpand(b""));
    let outside = outside_fences(patterns, &text);
    lines::unwrap(outside.iter().map(Vec::as_slice), false).into_iter().filter_map(|line| plain(rule, line)).collect()
}

/// (a): what follows the metadata between two lines of dashes.
fn without_front_matter(text: &[u8]) -> &[u8] {
    let mut rest = 0;
    for (index, line) in lines::split(text).enumerate() {
        rest += line.len() + 1;
        match (index, lines::strip_end(line)) {
            (0, b"---") => {}
            (0, _) => break,
            (_, b"---" | b"...") => return text.get(rest..).unwrap_or_default(),
            _ => {}
        }
    }
    text
}

/// (c): lines that are neither code nor tables nor definitions, without the marks of quotations.
fn outside_fences(patterns: &Patterns, text: &[u8]) -> Vec<Line> {
    // The character of the open fence, and how many there are.
    let mut open: Option<(u8, usize)> = None;
    let mut outside = Vec::new();
    for line in lines::split(text) {
        let fence = patterns.fence.captures(line).and_then(|found| {
            let run = group(&found, 1);
            Some((*run.first()?, run.len(), group(&found, 2)))
        });
        match (open, fence) {
            (Some((mark, count)), fence) => {
                let closes = |(found, run, rest): (u8, usize, &[u8])| found == mark && run >= count && lines::strip_end(rest).is_empty();
                if fence.is_some_and(closes) {
                    open = None;
                }
            }
            (None, Some((mark, count, rest))) if mark != b'`' || !rest.contains(&b'`') => open = Some((mark, count)),
            (None, _) => outside.extend(unmarked(patterns, line)),
        }
    }
    outside
}

fn unmarked(patterns: &Patterns, line: &[u8]) -> Option<Line> {
    let start = lines::strip_start(line);
    if start.starts_with(b"|") || start.starts_with(b":::") || patterns.reference_definition.is_match(line) {
        return None;
    }
    Some(lines::strip_end(&patterns.quote.replace(line, NoExpand(b""))).to_vec())
}

/// (e): a line without markup; none if nothing is left of it.
fn plain(rule: &Rule, line: Line) -> Option<Line> {
    if line.is_empty() {
        return Some(line);
    }
    let patterns = &rule.patterns;
    let steps: [(&Regex, &[u8]); 9] = [
        (&patterns.liquid, b""),
        (&patterns.macro_argument, b"${1}"),
        (&patterns.macro_call, b""),
        (&patterns.html_tags, b""),
        (&patterns.image, b""),
        (&patterns.link, b"${1}"),
        (&patterns.reference_link, b"${1}"),
        (&patterns.alert, b""),
        (&patterns.escaped, b"${1}"),
    ];
    let mut text = line;
    for (pattern, replacement) in steps {
        if let std::borrow::Cow::Owned(replaced) = pattern.replace_all(&text, replacement) {
            text = replaced;
        }
    }
    let text = rule.entities(&text);
    let text = lines::strip_end(&text);
    (!text.is_empty() && !lines::is_bare(text)).then(|| text.to_vec())
}
