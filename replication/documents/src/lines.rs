//! Lines of a text: what step 3 says of all modes, and step 4.

/// A line of a text, without its end.
pub(crate) type Line = Vec<u8>;

/// The shortest line that counts as prose, bytes.
const LONG_LINE: usize = 80;
/// A document has this much of it, at least.
const PROSE_BYTES: usize = 400;
/// And this many of a hundred bytes.
const PROSE_PERCENT: usize = 50;
/// A line is joined to one that is this long.
const WRAPPED_LINE: usize = 50;

/// WS.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

pub(crate) fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

pub(crate) fn strip_end(line: &[u8]) -> &[u8] {
    &line[..line.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |last| last + 1)]
}

pub(crate) fn strip_start(line: &[u8]) -> &[u8] {
    &line[line.iter().position(|byte| !is_blank(*byte)).unwrap_or(line.len())..]
}

/// "No-alnum line": not empty, and neither a letter nor a digit nor anything beyond ASCII in it.
pub(crate) fn is_bare(line: &[u8]) -> bool {
    !line.is_empty() && !line.iter().any(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80)
}

/// TIDY: no blanks at the end of a line, no empty line at either end, no two in a row.
pub(crate) fn tidy(lines: Vec<Line>) -> Vec<Line> {
    let mut tidy: Vec<Line> = Vec::with_capacity(lines.len());
    for mut line in lines {
        line.truncate(strip_end(&line).len());
        if !line.is_empty() || tidy.last().is_some_and(|before| !before.is_empty()) {
            tidy.push(line);
        }
    }
    if tidy.last().is_some_and(Vec::is_empty) {
        tidy.pop();
    }
    tidy
}

/// UNWRAP: joins the lines of a wrapped paragraph. `pg`: as Project Gutenberg wraps, where a paragraph's lines begin at the margin.
pub(crate) fn unwrap<'a>(lines: impl IntoIterator<Item = &'a [u8]>, pg: bool) -> Vec<Line> {
    let mut unwrapped: Vec<Line> = Vec::new();
    let mut before: &[u8] = b"";
    for line in lines {
        match unwrapped.last_mut() {
            Some(paragraph) if continues(before, line, pg) => {
                paragraph.push(b' ');
                paragraph.extend_from_slice(line);
            }
            _ => unwrapped.push(line.to_vec()),
        }
        before = line;
    }
    unwrapped
}

fn continues(before: &[u8], line: &[u8], pg: bool) -> bool {
    let Some(first) = line.first() else { return false };
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || *byte >= 0x80 || b"\"'(_[`".contains(byte);
    before.len() >= WRAPPED_LINE && if pg { !is_blank(*first) } else { !before.starts_with(b"#") && begins(first) }
}

/// Step 4: whether enough of a document is prose.
pub(crate) fn is_prose(lines: &[Line]) -> bool {
    let size = |lines: &mut dyn Iterator<Item = &Line>| lines.map(|line| line.len() + 1).sum::<usize>();
    let total = size(&mut lines.iter());
    let long = size(&mut lines.iter().filter(|line| line.len() >= LONG_LINE));
    long >= PROSE_BYTES && 100 * long >= PROSE_PERCENT * total
}
