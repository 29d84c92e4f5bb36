//! MODE cnxml, medquad, law and tei: XML, read as text between tags.

use regex::bytes::{Captures, NoExpand};

use super::{Dropped, group};
use crate::bytes::{find, find_last};
use crate::lines::{self, Line};
use crate::rule::Rule;

/// A file with more formulas is dropped: nothing is left of its sentences.
const MOST_FORMULAS: usize = 20;

/// What elements are to a reader.
struct Elements {
    /// Begin and end a paragraph.
    para: &'static [&'static str],
    /// Begin and end a line.
    line: &'static [&'static str],
    /// Are set apart by a space.
    cell: &'static [&'static str],
}

const CNXML: Elements = Elements {
    para: &[
        "para",
        "title",
        "section",
        "list",
        "note",
        "figure",
        "caption",
        "table",
        "exercise",
        "problem",
        "solution",
        "definition",
        "example",
        "equation",
        "quote",
        "media",
        "glossary",
        "code",
    ],
    line: &["item", "row", "newline"],
    cell: &["entry", "term-list"],
};
const MEDQUAD: Elements = Elements { para: &["p"], line: &["li"], cell: &[] };
const LAW: Elements = Elements { para: &["para", "section"], line: &["heading"], cell: &["text", "num"] };
const TEI: Elements =
    Elements { para: &["p", "head", "div", "item", "list", "table", "row", "ab"], line: &["l", "lb"], cell: &["cell", "pb"] };

impl Elements {
    /// What stands in place of a tag.
    fn separator(&self, name: Option<&[u8]>) -> &'static [u8] {
        let among = |names: &[&str]| name.is_some_and(|name| names.iter().any(|known| known.as_bytes() == name));
        match () {
            () if among(self.para) => b"\n\n",
            () if among(self.line) => b"\n",
            () if among(self.cell) => b" ",
            () => b"",
        }
    }
}

/// XMLTEXT.
fn text_lines(rule: &Rule, text: &[u8], elements: &Elements) -> Vec<Line> {
    let patterns = &rule.patterns;
    let spaced = patterns.spaces.replace_all(text, NoExpand(b" "));
    let untagged = patterns.tag.replace_all(&spaced, |tag: &Captures<'_>| {
        elements.separator(patterns.tag_name.captures(&tag[0]).and_then(|found| found.get(1)).map(|name| name.as_bytes()))
    });
    let text = rule.entities(&untagged);
    let one_space = |line: &[u8]| {
        let line = patterns.spaces.replace_all(line, NoExpand(b" "));
        lines::strip_start(lines::strip_end(&line)).to_vec()
    };
    lines::split(&text).map(one_space).filter(|line| !lines::is_bare(line)).collect()
}

pub(super) fn cnxml(rule: &Rule, text: &[u8]) -> Result<Vec<Line>, Dropped> {
    const FORMULA: &[u8] = b"<m:math";
    if text.windows(FORMULA.len()).filter(|window| *window == FORMULA).count() > MOST_FORMULAS {
        return Err(Dropped("math"));
    }
    let text = rule.patterns.comment.replace_all(text, NoExpand(b""));
    let missing = Dropped("no_content");
    let (start, end) = (find(&text, b"<content").ok_or(missing)?, find_last(&text, b"</content>").ok_or(missing)?);
    let mut body = Vec::new();
    if let Some(title) = rule.patterns.title.captures(&text) {
        body.extend([b"<title>", group(&title, 1), b"</title>"].concat());
    }
    body.extend_from_slice(text.get(start..end).unwrap_or_default());
    body.extend_from_slice(find(&text[end..], b"<glossary").map_or(b"", |glossary| &text[end + glossary..]));
    let body = rule.patterns.math.replace_all(&body, NoExpand(b" "));
    Ok(text_lines(rule, &body, &CNXML))
}

pub(super) fn medquad(rule: &Rule, text: &[u8]) -> Result<Vec<Line>, Dropped> {
    let patterns = &rule.patterns;
    let mut all = Vec::new();
    for pair in patterns.question_and_answer.captures_iter(text) {
        let (question, answer) = (group(&pair, 1), group(&pair, 2));
        if answer.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\n')) {
            continue;
        }
        let answer = patterns.bullet.replace_all(answer, NoExpand(b"\n<li>"));
        let answer = patterns.paragraph.replace_all(&answer, NoExpand(b"<p>"));
        let answer = patterns.spaces.replace_all(&answer, NoExpand(b" "));
        all.extend(text_lines(rule, &[b"<p>", question, b"<p>", &answer].concat(), &MEDQUAD));
        all.push(Line::new());
    }
    if all.is_empty() { Err(Dropped("no_answer")) } else { Ok(all) }
}

pub(super) fn law(rule: &Rule, text: &[u8]) -> Vec<Line> {
    let text = rule.patterns.comment.replace_all(text, NoExpand(b""));
    let text = rule.annotations.replace_all(&text, NoExpand(b""));
    let text = rule.after_number.replace_all(&text, NoExpand(b"</num> <"));
    text_lines(rule, &text, &LAW)
}

pub(super) fn tei(rule: &Rule, text: &[u8]) -> Result<Vec<Line>, Dropped> {
    let start = find(text, b"<text").ok_or(Dropped("no_content"))?;
    let end = find_last(text, b"</text>").unwrap_or(text.len());
    let text = rule.patterns.comment.replace_all(text.get(start..end).unwrap_or_default(), NoExpand(b""));
    let text = rule.note.replace_all(&text, NoExpand(b""));
    Ok(text_lines(rule, &text, &TEI))
}
