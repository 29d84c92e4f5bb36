//! MODE rst and MODE pg: text with little markup.

use super::Dropped;
use crate::bytes::find;
use crate::lines::{self, Line};
use crate::rule::Rule;

const STARTS: [&[u8]; 2] = [b"*** START OF", b"***START OF"];
const ENDS: [&[u8]; 4] = [b"*** END OF", b"***END OF", b"End of the Project Gutenberg", b"End of Project Gutenberg"];

pub(super) fn rst(rule: &Rule, text: &[u8]) -> Vec<Line> {
    let body = lines::split(text)
        .map(lines::strip_end)
        .skip_while(|line| !line.is_empty())
        .filter(|line| !lines::strip_start(line).starts_with(b".. ") && !lines::is_bare(line));
    let plain = |line: Line| {
        let line = rule.patterns.rst_link.replace_all(&line, &b"${1}"[..]);
        rule.patterns.role.replace_all(&line, &b"${1}"[..]).into_owned()
    };
    lines::unwrap(body, false).into_iter().map(plain).collect()
}

pub(super) fn gutenberg(text: &[u8]) -> Result<Vec<Line>, Dropped> {
    let begins = |line: &[u8], marks: &[&[u8]]| marks.iter().any(|mark| line.starts_with(mark));
    let mut body = lines::split(text);
    // Each line with its end.
    let mut head = 0;
    loop {
        let line = body.next().ok_or(Dropped("no_start"))?;
        if begins(line, &STARTS) {
            break;
        }
        head += line.len() + 1;
    }
    let head = &text[..head];
    if find(head, b"COPYRIGHTED").is_some() {
        return Err(Dropped("copyrighted"));
    }
    if find(head, b"\nLanguage: English").is_none() {
        return Err(Dropped("not_english"));
    }
    let kept = body.take_while(|line| !begins(line, &ENDS)).filter(|line| !is_about_the_edition(line)).map(lines::strip_end);
    Ok(lines::unwrap(kept.filter(|line| !lines::is_bare(line)), true))
}

fn is_about_the_edition(line: &[u8]) -> bool {
    let lower = line.to_ascii_lowercase();
    find(&lower, b"gutenberg").is_some() || find(&lower, b"[illustration").is_some()
}
