//! Writes a `.bin`/`.idx` pair as Megatron does, one sequence a document.
//!
//! Both files are written aside, synced and renamed; the `.idx` comes last, and an old one is removed before the new `.bin`
//! takes its place, so that a crash leaves either a whole pair or one that says it is incomplete.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use contract::digest::hexadecimal;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::index::{MAGIC, TokenType};
use super::{DataError, pair};
use crate::whole_files::aside;

/// What a pair holds: the one line that `tokenize` and `inspect-data` print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenSummary {
    pub documents: u64,
    /// Tokens, separators included.
    pub tokens: u64,
    /// SHA-256 of the `.bin`, in hexadecimal digits.
    pub sha256_bin: String,
    /// SHA-256 of the `.idx`, in hexadecimal digits.
    pub sha256_idx: String,
}

/// A pair being written. Dropped before [`TokenWriter::finish`], it leaves what was there before untouched.
#[derive(Debug)]
pub struct TokenWriter {
    bin: Aside,
    idx_path: PathBuf,
    token_type: TokenType,
    lengths: Vec<i32>,
    tokens: u64,
    bytes: Vec<u8>,
}

impl TokenWriter {
    /// Starts `prefix.bin` and `prefix.idx` for tokens of a vocabulary of `vocabulary` entries.
    pub fn create(prefix: &Path, vocabulary: usize) -> Result<Self, DataError> {
        let (bin_path, idx_path) = pair(prefix);
        Ok(Self {
            bin: Aside::create(&bin_path)?,
            idx_path,
            token_type: TokenType::for_vocabulary(vocabulary),
            lengths: Vec::new(),
            tokens: 0,
            bytes: Vec::new(),
        })
    }

    /// Appends a document. The separator is part of it: the caller adds it.
    ///
    /// # Errors
    /// [`DataError::Write`]; [`DataError::Malformed`] for a token that the type of the file cannot hold, or a document of
    /// more than 2^31 - 1 tokens.
    pub fn push(&mut self, document: &[u32]) -> Result<(), DataError> {
        let refuse = |problem: String, path: &Path| DataError::Malformed {
            path: path.to_owned(),
            problem,
            remedy: "tokenize with the tokenizer whose vocabulary size was given",
        };
        let length = i32::try_from(document.len()).map_err(|_| {
            refuse(format!("document {} has {} tokens, more than the format allows", self.lengths.len(), document.len()), &self.bin.path)
        })?;
        self.bytes.clear();
        for &token in document {
            let bytes = token.to_le_bytes();
            let fits = match self.token_type {
                TokenType::U16 => token <= u32::from(u16::MAX),
                _ => i32::try_from(token).is_ok(),
            };
            if !fits {
                return Err(refuse(format!("token {token} does not fit the file's element type"), &self.bin.path));
            }
            self.bytes.extend_from_slice(&bytes[..self.token_type.bytes()]);
        }
        self.bin.write(&self.bytes)?;
        self.lengths.push(length);
        self.tokens += document.len() as u64;
        Ok(())
    }

    /// Writes the index and puts both files in place.
    pub fn finish(self) -> Result<TokenSummary, DataError> {
        let mut idx = Aside::create(&self.idx_path)?;
        let documents = self.lengths.len() as u64;
        idx.write(MAGIC)?;
        idx.write(&1u64.to_le_bytes())?;
        idx.write(&[self.token_type.code()])?;
        idx.write(&documents.to_le_bytes())?;
        idx.write(&(documents + 1).to_le_bytes())?;
        for length in &self.lengths {
            idx.write(&length.to_le_bytes())?;
        }
        let mut offset = 0i64;
        for &length in &self.lengths {
            idx.write(&offset.to_le_bytes())?;
            offset += i64::from(length) * self.token_type.bytes() as i64;
        }
        for bound in 0..=documents as i64 {
            idx.write(&bound.to_le_bytes())?;
        }
        let (bin, idx) = (self.bin.close()?, idx.close()?);
        if let Err(source) = std::fs::remove_file(&self.idx_path)
            && source.kind() != std::io::ErrorKind::NotFound
        {
            return Err(DataError::write(&self.idx_path, source));
        }
        let sha256_bin = bin.rename()?;
        let sha256_idx = idx.rename()?;
        Ok(TokenSummary { documents, tokens: self.tokens, sha256_bin, sha256_idx })
    }
}

/// A file written under another name until it is whole; removed when dropped before that.
#[derive(Debug)]
struct Aside {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
    hasher: Sha256,
    done: bool,
}

impl Aside {
    fn create(path: &Path) -> Result<Self, DataError> {
        let temporary = aside(path);
        let file = File::create(&temporary).map_err(|source| DataError::write(&temporary, source))?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            file: Some(BufWriter::with_capacity(1 << 16, file)),
            hasher: Sha256::new(),
            done: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.hasher.update(bytes);
        match &mut self.file {
            Some(file) => file.write_all(bytes).map_err(|source| DataError::write(&self.temporary, source)),
            None => Ok(()),
        }
    }

    /// Everything is on disk under the temporary name afterwards.
    fn close(mut self) -> Result<Self, DataError> {
        if let Some(file) = self.file.take() {
            let synced = file.into_inner().map_err(std::io::IntoInnerError::into_error).and_then(|file| file.sync_all());
            synced.map_err(|source| DataError::write(&self.temporary, source))?;
        }
        Ok(self)
    }

    fn rename(mut self) -> Result<String, DataError> {
        std::fs::rename(&self.temporary, &self.path).map_err(|source| DataError::write(&self.path, source))?;
        self.done = true;
        Ok(hexadecimal(&std::mem::take(&mut self.hasher).finalize()))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.done {
            // Nothing can be done about a failure here, and a leftover harms nobody.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
