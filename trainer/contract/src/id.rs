//! Names that may become part of a path: ids of manifests, arms, machines. Nothing else is taken for one, wherever a file holds it.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Characters in the longest id.
const LONGEST: usize = 100;

/// A plain name: letters, digits, `.`, `_`, `+` and `-`, the first one a letter or a digit. So it is never a path, an option or a hidden file.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Id(String);

/// What a text lacks of being an [`Id`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no plain name: at most {LONGEST} letters, digits, `.`, `_`, `+` and `-`, the first a letter or a digit", .0.chars().take(LONGEST).collect::<String>().escape_debug())]
pub struct NoId(String);

impl Id {
    /// Whether a text can be one.
    pub fn is_plain(text: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
        text.len() <= LONGEST && text.bytes().all(allowed) && text.starts_with(|first: char| first.is_ascii_alphanumeric())
    }

    /// The id that is nearest to a text: other characters become `-`. Different texts may give one id.
    pub fn near(text: &str) -> Self {
        let kept = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '-' };
        let near: String = text.chars().map(kept).take(LONGEST).collect();
        let is_first = near.starts_with(|first: char| first.is_ascii_alphanumeric());
        if is_first { Self(near) } else { Self(std::iter::once('x').chain(near.chars()).take(LONGEST).collect()) }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Id {
    type Error = NoId;

    fn try_from(text: String) -> Result<Self, NoId> {
        if Self::is_plain(&text) { Ok(Self(text)) } else { Err(NoId(text)) }
    }
}

impl TryFrom<&str> for Id {
    type Error = NoId;

    fn try_from(text: &str) -> Result<Self, NoId> {
        text.to_owned().try_into()
    }
}

impl From<&Id> for String {
    fn from(id: &Id) -> Self {
        id.0.clone()
    }
}

impl Deref for Id {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Id {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<std::path::Path> for Id {
    fn as_ref(&self) -> &std::path::Path {
        self.0.as_ref()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PartialEq<str> for Id {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Id {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<String> for Id {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}

impl PartialEq<Id> for String {
    fn eq(&self, other: &Id) -> bool {
        *self == other.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_ids() {
        for name in ["fp8", "2605.09825", "T1-FDW", "mxfp4-fdw-sr-ceil", "xeon-2c", "a_b+c"] {
            assert_eq!(Id::try_from(name).unwrap(), name);
            assert_eq!(serde_json::from_str::<Id>(&format!("\"{name}\"")).unwrap().to_string(), name);
        }
        for (text, near) in [("a/../b", "a-..-b"), ("..", "x.."), ("", "x"), ("é", "x-"), ("fp8", "fp8")] {
            assert_eq!(Id::near(text), near);
        }
        let long = "a".repeat(LONGEST + 1);
        for name in ["", ".", "..", "../a", "a/b", "/a", "a\\b", ".hidden", "-option", "a b", "a\nb", "é", "a\0", "C:", "~", "$HOME", &long]
        {
            assert!(Id::try_from(name).is_err() && Id::is_plain(&Id::near(name)), "{name}");
            assert!(serde_json::from_value::<Id>(name.into()).is_err(), "{name}");
        }
    }
}
