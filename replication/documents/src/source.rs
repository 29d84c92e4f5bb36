//! What a manifest decides of a repository, and step 1.

use crate::bytes::find;

/// A source that no repository can be.
#[derive(Debug, thiserror::Error)]
#[error("sources: {repo}: {problem}")]
pub struct SourceError {
    repo: String,
    problem: String,
}

/// How text is found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Markdown,
    Rst,
    Gutenberg,
    Cnxml,
    MedQuad,
    Law,
    Tei,
}

impl Mode {
    /// As manifests have them.
    pub(crate) const WORDS: [&str; 7] = ["md", "rst", "pg", "cnxml", "medquad", "law", "tei"];
    const ALL: [Self; 7] = [Self::Markdown, Self::Rst, Self::Gutenberg, Self::Cnxml, Self::MedQuad, Self::Law, Self::Tei];

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().zip(Self::ALL).find(|(known, _)| **known == word).map(|(_, mode)| mode)
    }
}

/// A repository and what is taken from it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Owner and name.
    pub repo: String,
    /// 40 hexadecimal digits.
    pub commit: String,
    /// A public copy, owner and name, that has the commit, too.
    pub copy: Option<String>,
    pub(crate) mode: Mode,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
    exclude: Vec<String>,
}

/// A source as a manifest names it.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    pub repo: &'a str,
    pub commit: &'a str,
    pub copy: Option<&'a str>,
    pub mode: &'a str,
    pub prefixes: &'a [String],
    pub suffixes: &'a [String],
    pub exclude: &'a [String],
}

impl Source {
    /// # Errors
    /// A name that no address or folder may hold, a commit that is none, or a mode that nobody knows.
    pub fn new(named: Named<'_>) -> Result<Self, SourceError> {
        let wrong = |problem: String| SourceError { repo: named.repo.to_owned(), problem };
        for repo in std::iter::once(named.repo).chain(named.copy) {
            if !is_owner_and_name(repo) {
                return Err(wrong(format!("`{repo}` is no OWNER/NAME of letters, digits, `.`, `_` and `-`")));
            }
        }
        if named.commit.len() != 40 || !named.commit.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong(format!("commit: `{}` must be 40 hexadecimal digits", named.commit)));
        }
        let mode = Mode::of(named.mode).ok_or_else(|| wrong(format!("mode: `{}` is none of {}", named.mode, Mode::WORDS.join(", "))))?;
        Ok(Self {
            repo: named.repo.to_owned(),
            commit: named.commit.to_owned(),
            copy: named.copy.map(str::to_owned),
            mode,
            prefixes: named.prefixes.to_vec(),
            suffixes: named.suffixes.to_vec(),
            exclude: named.exclude.to_vec(),
        })
    }

    /// Step 1: whether a path is taken.
    pub fn takes(&self, path: &[u8]) -> bool {
        let rooted = [b"/", path].concat();
        self.prefixes.iter().any(|prefix| path.starts_with(prefix.as_bytes()))
            && self.suffixes.iter().any(|suffix| path.ends_with(suffix.as_bytes()))
            && !self.exclude.iter().any(|part| find(&rooted, part.as_bytes()).is_some())
    }
}

/// What goes into an address and a path: no option, no way up.
fn is_owner_and_name(repo: &str) -> bool {
    let plain = |word: &str| {
        !word.is_empty()
            && !word.starts_with(['-', '.'])
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    repo.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}
