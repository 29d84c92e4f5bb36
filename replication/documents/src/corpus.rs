//! Steps 2 to 10, source by source: memory holds some files, what dedup remembers and 48 bytes a part; texts wait in a file.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::dedup::Seen;
use crate::git::{Blob, GitError, Repository};
use crate::lines::Line;
use crate::modes::{self, Dropped};
use crate::rule::Rule;
use crate::source::Source;
pub use crate::spill::{DiskError, Shard};
use crate::spill::{Part, Spill};

/// A training shard is closed after the part that brings it here, bytes.
pub const SHARD_BYTES: u64 = 160_000_000;
/// What names are hashed with, for the split and the order.
const SEED: &str = "webdocs-v1";
/// A document is held out if the first byte of its name's hash is below this.
const HELD_OUT_BELOW: u8 = 3;
/// Longer texts are cut, bytes.
const LONGEST_PART: usize = 32_768;
/// A cut is at or after this byte.
const EARLIEST_CUT: usize = 24_576;
/// What follows a cut, at least, bytes.
const SHORTEST_REST: usize = 200;
/// Files are read until they have so many bytes, then worked on by all cores.
const BATCH_BYTES: usize = 32 << 20;

/// Why documents were not made.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Git(#[from] GitError),
}

/// What a source gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that step 1 takes.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Files that a later step dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    pub documents: u64,
    pub parts: u64,
    /// Bytes of the documents' texts.
    pub text_bytes: u64,
}

/// A corpus on its way: sources are added in their order, then everything is written.
pub struct Corpus<'a> {
    rule: &'a Rule,
    seen: Seen,
    spill: Spill,
    train: Vec<Part>,
    held_out: Vec<Part>,
}

impl<'a> Corpus<'a> {
    /// Texts wait in a file in `folder`.
    pub fn new(rule: &'a Rule, folder: &Path) -> Result<Self, DiskError> {
        Ok(Self { rule, seen: Seen::default(), spill: Spill::new(folder.join("texts"))?, train: vec![], held_out: vec![] })
    }

    /// Adds the documents of the next source.
    ///
    /// # Errors
    /// What git cannot read, or a disk that is full.
    pub fn add(&mut self, source: &Source, repository: &Repository) -> Result<Counts, CorpusError> {
        let blobs = repository.files(source)?;
        let mut reader = repository.read(&blobs)?;
        let mut counts = Counts { files: blobs.len() as u64, ..Counts::default() };
        let mut rest = blobs.as_slice();
        while !rest.is_empty() {
            let mut batch: Vec<(&Blob, Vec<u8>)> = vec![];
            let mut bytes = 0;
            while let (Some((blob, after)), true) = (rest.split_first(), bytes < BATCH_BYTES) {
                let (size, content) = reader.next(modes::LARGEST_FILE + 1)?;
                counts.file_bytes += size;
                bytes += content.len();
                batch.push((blob, content));
                rest = after;
            }
            let (rule, mode) = (self.rule, source.mode);
            let extracted: Vec<(&Blob, Result<Vec<Line>, Dropped>)> =
                batch.into_par_iter().map(|(blob, content)| (blob, modes::extract(rule, mode, &content))).collect();
            for (blob, lines) in extracted {
                let name = [source.repo.as_bytes(), b"/", &blob.path].concat();
                self.document(&name, lines, &mut counts)?;
            }
        }
        reader.end()?;
        Ok(counts)
    }

    fn document(&mut self, name: &[u8], lines: Result<Vec<Line>, Dropped>, counts: &mut Counts) -> Result<(), DiskError> {
        let text = match lines.and_then(|lines| self.seen.new_text(lines)) {
            Ok(text) => text,
            Err(Dropped(reason)) => {
                *counts.dropped.entry(reason.to_owned()).or_default() += 1;
                return Ok(());
            }
        };
        counts.documents += 1;
        counts.text_bytes += text.len() as u64;
        let held_out = hash(&[name])[0] < HELD_OUT_BELOW;
        let parts = if held_out { &mut self.held_out } else { &mut self.train };
        for (index, part) in cut(&text).into_iter().enumerate() {
            parts.push(self.spill.push(hash(&[name, index.to_string().as_bytes()]), part)?);
            counts.parts += 1;
        }
        Ok(())
    }

    /// Steps 9 and 10: writes the parts to train on and those held out, and tells what is in each shard of both.
    pub fn write(mut self, train: &Path, held_out: &Path, shard_bytes: u64) -> Result<[Vec<Shard>; 2], DiskError> {
        let shards = [self.spill.write(self.train, train, shard_bytes)?, self.spill.write(self.held_out, held_out, u64::MAX)?];
        self.spill.remove()?;
        Ok(shards)
    }
}

/// Of the seed and these, with a line feed before each.
fn hash(words: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new_with_prefix(SEED);
    for word in words {
        hasher.update(b"\n");
        hasher.update(word);
    }
    hasher.finalize().into()
}

/// Step 8: parts that end where a paragraph does.
fn cut(mut text: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while text.len() > LONGEST_PART {
        let Some(end) = text[EARLIEST_CUT..].windows(2).position(|pair| pair == b"\n\n").map(|found| EARLIEST_CUT + found) else { break };
        let rest = &text[end + 2..];
        if rest.len() < SHORTEST_REST {
            break;
        }
        parts.push(&text[..end]);
        text = rest;
    }
    parts.push(text);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty line at each of `at`, letters elsewhere.
    fn text(bytes: usize, at: &[usize]) -> Vec<u8> {
        let mut text = vec![b'x'; bytes];
        at.iter().for_each(|at| text[*at..at + 2].copy_from_slice(b"\n\n"));
        text
    }

    fn lengths(bytes: usize, at: &[usize]) -> Vec<usize> {
        cut(&text(bytes, at)).into_iter().map(<[u8]>::len).collect()
    }

    #[test]
    fn a_cut_is_at_the_first_empty_line_that_is_late_enough() {
        assert_eq!(lengths(32_768, &[25_000]), [32_768]);
        assert_eq!(lengths(32_769, &[25_000]), [25_000, 7_767]);
        assert_eq!(lengths(32_769, &[24_575, 30_000]), [30_000, 2_767]);
        assert_eq!(lengths(32_769, &[24_576, 30_000]), [24_576, 8_191]);
        assert_eq!(lengths(40_000, &[]), [40_000]);
        assert_eq!(lengths(90_000, &[1_000, 30_000, 31_000, 60_000]), [30_000, 29_998, 29_998]);
    }

    #[test]
    fn nothing_short_is_cut_off() {
        assert_eq!(lengths(33_000, &[33_000 - 202]), [32_798, 200]);
        assert_eq!(lengths(33_000, &[33_000 - 201]), [33_000]);
        // Not even where a later cut would do.
        assert_eq!(lengths(33_000, &[32_900, 32_950]), [33_000]);
    }
}
