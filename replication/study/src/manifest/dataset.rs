//! Datasets: what text or tokens there are, where they come from, and the hashes that say whether a copy is the right one.
//!
//! Types only: `crate::data` fetches and checks, `crate::corpus` makes documents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use contract::id::Id;
use serde::{Deserialize, Serialize};

use super::read::inside;

/// One file of manifests/datasets.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Dataset {
    /// Text of crates that cargo fetches.
    CargoVendor(CargoVendor),
    /// Documents that public repositories give by a rule, or that the user brings, in order and split.
    DocumentFiles(DocumentFiles),
    /// Files that the user brings; described, and not turned into documents.
    LocalFiles(LocalFiles),
    /// Token shards in Megatron's layout that the user brings.
    Megatron(Megatron),
}

/// Text of crates that cargo fetches.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CargoVendor {
    /// File name without `.yaml`.
    pub id: Id,
    pub title: String,
    pub licence: String,
    /// What to do when it is not here.
    pub how_to_get: String,
    /// Folder with Cargo.toml and Cargo.lock, relative to the repository.
    pub package: String,
    pub rule: CorpusRule,
    /// Hashes of what the rule makes.
    pub corpus: CorpusHashes,
}

/// What a dataset's manifest decides of the rule that turns files into documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusRule {
    /// Extensions of documents, without the dot.
    pub extensions: Vec<String>,
    /// Longer files are left out.
    pub largest_bytes: u64,
    /// How many of a thousand documents are held out, by hash of the path.
    pub validation_per_mille: u32,
}

/// Hashes of the documents, as they are given to the tokenizer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusHashes {
    /// The file to train on.
    pub train_sha256: Option<String>,
    pub validation_sha256: Option<String>,
}

/// Documents that public repositories give by a rule, or that the user brings: text files, each document followed by one NUL byte, compressed with xz or not.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentFiles {
    /// File name without `.yaml`.
    pub id: Id,
    pub title: String,
    pub licence: String,
    /// Where they come from.
    pub how_to_get: String,
    /// The files of each part, in the order of their documents.
    pub files: Vec<DocumentFile>,
    /// Hashes of the texts of each part, one file after the other.
    pub corpus: CorpusHashes,
    /// From files of the sources to documents, in full: enough to make the same bytes again.
    pub extraction: Extraction,
    /// Where every document was published, in the order of the extraction.
    pub sources: Vec<Source>,
}

/// Which side of the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Train,
    Validation,
}

/// One file of documents. An archive (`NAME.xz`) is as good as the text in it (`NAME`): compressors differ, the text does not.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentFile {
    /// File name; with `.xz`, an archive.
    pub name: String,
    /// Which side of the split.
    pub part: Part,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Bytes of the text in it.
    pub text_bytes: u64,
    /// SHA-256 of the text in it.
    pub text_sha256: String,
    /// Documents (parts of at most about 32 KiB) in it.
    pub documents: u64,
}

impl DocumentFile {
    /// Name of the text: that of the archive without `.xz`.
    pub fn text_name(&self) -> &str {
        self.name.strip_suffix(".xz").unwrap_or(&self.name)
    }

    /// What to look for, for a person.
    pub fn describe(&self) -> String {
        let archive = format!("{} ({} bytes, SHA-256 {})", self.name, self.bytes, self.sha256);
        if self.text_name() == self.name {
            return archive;
        }
        format!("{archive}, or its text {} ({} bytes, SHA-256 {})", self.text_name(), self.text_bytes, self.text_sha256)
    }
}

/// The rule by which sources became documents; its words are explained in `rule` itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extraction {
    /// The steps, in words.
    pub rule: String,
    /// Regular expressions on bytes that the steps name.
    pub patterns: BTreeMap<String, String>,
    /// Named character references and what they stand for.
    pub entities: BTreeMap<String, String>,
}

/// A public repository and what was taken from it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Owner and name on GitHub.
    pub repo: String,
    /// The commit whose files were taken.
    pub commit: String,
    /// SPDX expression, or words where there is none.
    pub licence: String,
    /// Which mode of the extraction.
    pub mode: String,
    pub prefixes: Vec<String>,
    pub suffixes: Vec<String>,
    /// What a path must not contain.
    pub exclude: Vec<String>,
    /// A public copy that was fetched instead, where it has the commit; git objects are equal wherever they lie.
    #[serde(default)]
    pub fetched_from: Option<String>,
    /// Why this commit, or the like.
    #[serde(default)]
    pub note: Option<String>,
    /// Files that the path filters let through.
    pub files_selected: u64,
    /// Their bytes.
    pub file_bytes_selected: u64,
    /// Files that a later step dropped, by step.
    pub dropped: BTreeMap<String, u64>,
    pub documents: u64,
    /// Parts that long ones were cut into.
    pub parts: u64,
    /// Bytes of their text.
    pub text_bytes: u64,
}

impl Source {
    /// What to fetch and under which terms, for a person.
    pub fn describe(&self) -> String {
        let copy = self.fetched_from.as_ref().map(|copy| format!(", found in {copy}")).unwrap_or_default();
        format!("{} at {}{copy}: {}", self.repo, self.commit, self.licence)
    }
}

/// Files that the user brings; nothing here turns them into documents.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalFiles {
    /// File name without `.yaml`.
    pub id: Id,
    pub title: String,
    pub licence: String,
    /// Where they come from.
    pub how_to_get: String,
    /// Where they were published.
    pub url: String,
    /// The files and their hashes.
    pub files: Vec<NamedFile>,
}

/// Token shards in Megatron's layout that the user brings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Megatron {
    /// File name without `.yaml`.
    pub id: Id,
    pub title: String,
    pub licence: String,
    /// Where they come from.
    pub how_to_get: String,
    /// Files that MLCommons' downloader takes.
    pub metadata_files: Vec<String>,
    /// Prefix of the training pair.
    pub train: String,
    /// Prefix of the validation pair.
    pub validation: String,
    /// The files; a null hash is recorded at first use and enforced after.
    pub files: Vec<NamedFile>,
    /// Token id that separates documents.
    pub end_of_document: u64,
}

/// A file and its hash.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedFile {
    pub name: String,
    /// SHA-256; null: recorded at first use.
    pub sha256: Option<String>,
}

impl Dataset {
    /// File name without `.yaml`.
    pub fn id(&self) -> &str {
        match self {
            Self::CargoVendor(d) => &d.id,
            Self::DocumentFiles(d) => &d.id,
            Self::LocalFiles(d) => &d.id,
            Self::Megatron(d) => &d.id,
        }
    }

    pub fn title(&self) -> &str {
        match self {
            Self::CargoVendor(d) => &d.title,
            Self::DocumentFiles(d) => &d.title,
            Self::LocalFiles(d) => &d.title,
            Self::Megatron(d) => &d.title,
        }
    }

    /// Where it comes from.
    pub fn how_to_get(&self) -> &str {
        match self {
            Self::CargoVendor(d) => &d.how_to_get,
            Self::DocumentFiles(d) => &d.how_to_get,
            Self::LocalFiles(d) => &d.how_to_get,
            Self::Megatron(d) => &d.how_to_get,
        }
    }

    /// Pinned hashes of its documents; none for a dataset that has no documents here.
    pub fn corpus(&self) -> Option<&CorpusHashes> {
        match self {
            Self::CargoVendor(d) => Some(&d.corpus),
            Self::DocumentFiles(d) => Some(&d.corpus),
            Self::LocalFiles(_) | Self::Megatron(_) => None,
        }
    }

    /// What is wrong with it, whatever the other manifests say.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::CargoVendor(d) => {
                inside(&d.package).map_err(|why| format!("package: {why}"))?;
                if d.rule.validation_per_mille == 0 || d.rule.validation_per_mille >= 1000 {
                    return Err("rule.validation_per_mille: must be between 1 and 999".into());
                }
                Ok(())
            }
            Self::DocumentFiles(d) => d.check(),
            Self::LocalFiles(LocalFiles { files, .. }) | Self::Megatron(Megatron { files, .. }) => {
                files.iter().try_for_each(|file| plain_name(&file.name))
            }
        }
    }
}

impl DocumentFiles {
    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for file in &self.files {
            plain_name(&file.name)?;
            if !names.insert(file.text_name()) {
                return Err(format!("files: `{}` stands there twice", file.name));
            }
            for (key, digits) in [("sha256", &file.sha256), ("text_sha256", &file.text_sha256)] {
                hexadecimal(digits, 64).map_err(|why| format!("files: {}: {key}: {why}", file.name))?;
            }
            if file.text_name() == file.name && (file.sha256 != file.text_sha256 || file.bytes != file.text_bytes) {
                return Err(format!("files: {}: not an archive, so the text is the file", file.name));
            }
        }
        for (part, word) in [(Part::Train, "train"), (Part::Validation, "validation")] {
            if !self.files.iter().any(|file| file.part == part) {
                return Err(format!("files: none with part {word}"));
            }
        }
        for source in &self.sources {
            hexadecimal(&source.commit, 40).map_err(|why| format!("sources: {}: commit: {why}", source.repo))?;
            if source.licence.trim().is_empty() {
                return Err(format!("sources: {}: licence: must be named", source.repo));
            }
        }
        let (documents, counted) =
            (self.files.iter().map(|file| file.documents).sum::<u64>(), self.sources.iter().map(|source| source.parts).sum::<u64>());
        if documents != counted {
            return Err(format!("sources: their parts sum to {counted}, but the files have {documents} documents"));
        }
        Ok(())
    }
}

fn plain_name(name: &str) -> Result<(), String> {
    if name.is_empty() || Path::new(name).components().count() != 1 || inside(name).is_err() {
        return Err(format!("files: `{name}` must be a plain file name"));
    }
    Ok(())
}

fn hexadecimal(text: &str, digits: usize) -> Result<(), String> {
    if text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    Err(format!("`{text}` must be {digits} hexadecimal digits in lower case"))
}
