//! Token data on disk: Megatron's `.bin`/`.idx` pair read and written, documents read from JSONL and plain text.
//!
//! A pair is checked in full when it is opened, so that a truncated or alien file is one clear message and never a wrong
//! number. This module knows nothing of batches, epochs or models; it hands out tokens by position.

mod bytes;
mod document;
mod error;
pub mod index;
mod stream;
mod writer;

pub(crate) use bytes::Bytes;
pub use bytes::{Access, sha256_of};
pub use document::{DocumentFormat, Documents, documents};
pub use error::DataError;
pub use stream::TokenStream;
pub use writer::{TokenSummary, TokenWriter};

use std::path::{Path, PathBuf};

/// The `.bin` and the `.idx` of `prefix`. The extension is appended, never replaced: a prefix may hold dots.
pub fn pair(prefix: &Path) -> (PathBuf, PathBuf) {
    let with = |extension: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(extension);
        PathBuf::from(name)
    };
    (with(".bin"), with(".idx"))
}
