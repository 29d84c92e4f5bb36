//! The one reader of YAML, with limits that the format's own reader lacks.

use serde::de::{DeserializeOwned, Error as _};
use serde_yaml::Error;

/// Bytes of the longest text. The longest manifest of ours has 44 thousand.
const LONGEST: usize = 1 << 18;

/// Opening brackets in a text, wherever they stand: the reader's time grows with how deep they nest times the length of what follows.
const MOST_BRACKETS: usize = 2000;

/// Reads a text as its type says.
///
/// # Errors
/// What is wrong, and where; a text that is longer, or has more brackets, than any file of ours.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    if text.len() > LONGEST {
        return Err(Error::custom(format!("it has {} bytes, the most that is read is {LONGEST}", text.len())));
    }
    if text.matches(['[', '{']).count() > MOST_BRACKETS {
        return Err(Error::custom(format!("it has more than {MOST_BRACKETS} opening brackets; write lists and maps in lines")));
    }
    serde_yaml::from_str(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn neither_depth_nor_length_nor_aliases_take_time() {
        let bomb: String = (1..60).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)).collect();
        let texts = [
            "[".repeat(1_000_000),
            "{a: ".repeat(1_000_000),
            "[".repeat(MOST_BRACKETS) + &",".repeat(250_000),
            "- ".repeat(100_000),
            "? ".repeat(100_000),
            "a: ".repeat(80_000),
            "&a ".repeat(80_000),
            "!a ".repeat(80_000),
            "#".repeat(1 << 19),
            format!("a0: &a0 1\n{bomb}"),
        ];
        for text in texts {
            let start = std::time::Instant::now();
            assert!(from_str::<serde_json::Value>(&text).is_err() || text.contains("a0"), "{}", &text[..20]);
            assert!(start.elapsed().as_secs() < 5, "{} took {:?}", &text[..20], start.elapsed());
        }
        assert_eq!(from_str::<Vec<u8>>("[1, 2]").unwrap(), [1, 2]);
    }
}
