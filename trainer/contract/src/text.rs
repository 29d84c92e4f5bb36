//! What goes into a line of ours: words that somebody else wrote, and sizes.

use std::borrow::Cow;

/// Bytes of a GiB, in which sizes of memory are told.
pub const GIB: f64 = (1u64 << 30) as f64;

/// The same text without control characters, which are written out (`\n`, `\u{1b}`): whoever wrote an unknown key must not clear a terminal,
/// or end our line and begin one of their own.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_the_rest_stays() {
        assert_eq!(one_line("unknown field `\u{1b}[2J\nverified\u{9b}\t`"), "unknown field `\\u{1b}[2J\\nverified\\u{9b}\\t`");
        assert!(matches!(one_line("ünknown `C:\\x`"), Cow::Borrowed("ünknown `C:\\x`")));
    }
}
