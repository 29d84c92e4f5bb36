//! The tokens of a `.bin`/`.idx` pair as one long stream.

use std::path::Path;

use super::bytes::{Access, Bytes};
use super::index::{self, Index};
use super::{DataError, TokenSummary, pair};

/// Tokens by position. Documents follow each other as they do on disk; what separates them is a token like any other.
#[derive(Debug)]
pub struct TokenStream {
    bin: Bytes,
    idx: Bytes,
    index: Index,
    tokens: usize,
}

impl TokenStream {
    /// Opens and checks `prefix.bin` and `prefix.idx` (every check of the `index` module). Maps them where that is possible.
    pub fn open(prefix: &Path) -> Result<Self, DataError> {
        Self::open_with(prefix, Access::default())
    }

    /// As [`Self::open`], with the way of access chosen.
    pub fn open_with(prefix: &Path, access: Access) -> Result<Self, DataError> {
        let (bin_path, idx_path) = pair(prefix);
        let (bin, idx) = (Bytes::open(&bin_path, access)?, Bytes::open(&idx_path, access)?);
        let malformed = |problem| DataError::Malformed {
            path: idx_path.clone(),
            problem,
            remedy: "write the pair again with `trainer tokenize`, or fetch both files again",
        };
        let index = index::check(idx.len(), bin.len(), |offset, out| idx.read_at(offset, out))?.map_err(malformed)?;
        let tokens = usize::try_from(index.tokens)
            .map_err(|_| malformed(format!("holds {} tokens, more than this machine can address", index.tokens)))?;
        Ok(Self { bin, idx, index, tokens })
    }

    /// The `.bin` file, for messages.
    pub fn path(&self) -> &Path {
        self.bin.path()
    }

    /// Tokens in the stream.
    pub fn len(&self) -> usize {
        self.tokens
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens == 0
    }

    pub fn documents(&self) -> u64 {
        self.index.documents
    }

    pub fn index(&self) -> Index {
        self.index
    }

    /// Fills `out` with the tokens at `start..start + out.len()`.
    pub fn read(&self, start: usize, out: &mut [u32]) -> Result<(), DataError> {
        let end = start.checked_add(out.len()).filter(|&end| end <= self.tokens);
        let Some(end) = end else {
            return Err(DataError::OutOfRange {
                path: self.bin.path().to_owned(),
                start,
                end: start.saturating_add(out.len()),
                tokens: self.tokens,
            });
        };
        let token_type = self.index.token_type;
        let width = token_type.bytes();
        let mut buffer = [0; 4096];
        let mut position = start;
        for part in out.chunks_mut(buffer.len() / width) {
            let bytes = &mut buffer[..part.len() * width];
            self.bin.read_at((position * width) as u64, bytes)?;
            for (token, bytes) in part.iter_mut().zip(bytes.chunks_exact(width)) {
                let value = token_type.value(bytes);
                *token = u32::try_from(value).map_err(|_| DataError::BadToken { path: self.bin.path().to_owned(), position, value })?;
                position += 1;
            }
        }
        debug_assert_eq!(position, end);
        Ok(())
    }

    /// SHA-256 of the `.bin`, in hexadecimal digits; reads the whole file.
    pub fn sha256_bin(&self) -> Result<String, DataError> {
        self.bin.sha256()
    }

    /// SHA-256 of the `.idx`, in hexadecimal digits; reads the whole file.
    pub fn sha256_idx(&self) -> Result<String, DataError> {
        self.idx.sha256()
    }

    /// Checks both files, as they are open here, against the hashes that a run file or manifest names.
    pub fn verify(&self, sha256_bin: &str, sha256_idx: &str) -> Result<(), DataError> {
        for (bytes, expected) in [(&self.idx, sha256_idx), (&self.bin, sha256_bin)] {
            let found = bytes.sha256()?;
            if !found.eq_ignore_ascii_case(expected) {
                return Err(DataError::Hash { path: bytes.path().to_owned(), found, expected: expected.to_owned() });
            }
        }
        Ok(())
    }

    /// What `trainer inspect-data` prints of this pair; reads both files in full, and every token once.
    pub fn summary(&self) -> Result<TokenSummary, DataError> {
        let mut buffer = vec![0; 1 << 16];
        let mut start = 0;
        while start < self.tokens {
            let now = buffer.len().min(self.tokens - start);
            self.read(start, &mut buffer[..now])?;
            start += now;
        }
        Ok(TokenSummary {
            documents: self.index.documents,
            tokens: self.index.tokens,
            sha256_bin: self.sha256_bin()?,
            sha256_idx: self.sha256_idx()?,
        })
    }
}
