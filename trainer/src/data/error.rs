//! What can be wrong with token data, each with the file and what to do about it.

use std::path::{Path, PathBuf};

/// Why token data could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file is not there.
    #[error("{}: no such file; make it with `trainer tokenize`, or fetch the dataset first", .0.display())]
    Missing(PathBuf),
    /// The operating system refused to read.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The operating system refused to write.
    #[error("{}: cannot write: {source}; check free space and permissions, then run the same command again", path.display())]
    Write {
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is there but is not what it should be.
    #[error("{}: {problem}; {remedy}", path.display())]
    Malformed {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What the reader can do.
        remedy: &'static str,
    },
    /// The file is not the one that the run or the manifest names.
    #[error("{}: SHA-256 is {found}, expected {expected}; the file is not the one named: fetch or tokenize it again, or correct the expected hash", path.display())]
    Hash {
        path: PathBuf,
        /// Hash of what is there.
        found: String,
        /// Hash that was asked for.
        expected: String,
    },
    /// More tokens were asked for than there are.
    #[error("{}: tokens {start}..{end} asked for, the stream has {tokens}; use more data or fewer sequences", path.display())]
    OutOfRange {
        /// The `.bin` file.
        path: PathBuf,
        /// First token asked for.
        start: usize,
        /// One past the last token asked for.
        end: usize,
        /// Tokens in the stream.
        tokens: usize,
    },
    /// A value that is no token.
    #[error("{}: {value} at position {position} is no token id; the file does not hold tokens", path.display())]
    BadToken {
        /// The `.bin` file.
        path: PathBuf,
        /// Its place in the stream.
        position: usize,
        value: i64,
    },
}

impl DataError {
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::NotFound {
            Self::Missing(path.to_owned())
        } else {
            Self::Read { path: path.to_owned(), source }
        }
    }

    pub(crate) fn write(path: &Path, source: std::io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}
