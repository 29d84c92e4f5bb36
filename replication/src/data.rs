//! Datasets: from pinned sources to token shards, with every hash checked. Tokens are the trainer's business; it is called for them.
//!
//! `cache/datasets/<id>/vendor` (crates), `corpus` (train.jsonl, validation.jsonl), `tokens/<tokenizer>` (train.bin, train.idx, ...). Each is
//! made aside and renamed, so that what is there is whole.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::corpus::{self, CorpusError};
use crate::files::{self, FileError};
use crate::manifest::profile::{CargoVendor, Megatron, NamedFile, Profile, Shard, Shards, Tokenizer};
use crate::manifest::{Dataset, Manifests};
use crate::toolchain::{ToolError, Trainer, run_cargo};

/// Why data is not ready.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// cargo or the trainer failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The corpus could not be built.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// Not here, and nothing can fetch it by itself.
    #[error("{what} is not here: {how_to_get}")]
    Missing {
        /// What.
        what: String,
        /// From the manifest.
        how_to_get: String,
    },
    /// A hash that is not the pinned one.
    #[error("{}: its SHA-256 is {found}, but {by} says {expected}; {advice}", .path.display())]
    Hash {
        /// The file.
        path: PathBuf,
        /// As computed.
        found: String,
        /// As pinned.
        expected: String,
        /// Who pins it.
        by: String,
        /// What to do.
        advice: &'static str,
    },
}

/// Token shards that a run can read.
#[derive(Debug, Clone)]
pub struct PreparedData {
    /// Folder with train.bin and the rest.
    pub folder: PathBuf,
    /// What is in it.
    pub shards: Shards,
}

const FETCH_AGAIN: &str = "remove the folder it lies in and run the same command again";

fn dataset_cache(root: &Path, id: &str) -> PathBuf {
    root.join("cache").join("datasets").join(id)
}

/// Where the token shards of a dataset lie.
pub fn token_folder(root: &Path, dataset: &str, tokenizer: &str) -> PathBuf {
    dataset_cache(root, dataset).join("tokens").join(tokenizer)
}

/// Makes the profile's token shards, or finds them made; all hashes are checked either way. `say` gets a line for each slow stage.
///
/// # Errors
/// What is missing and where it comes from, or which hash is wrong.
pub fn prepare(manifests: &Manifests, profile: &Profile, trainer: &Trainer, say: &dyn Fn(&str)) -> Result<PreparedData, DataError> {
    let tokenizer = &manifests.tokenizers[&profile.tokenizer];
    let folder = token_folder(&manifests.root, &profile.dataset, &tokenizer.id);
    let pinned = tokenizer.shards.as_ref();
    if let (Some(shards), true) = (pinned, folder.is_dir()) {
        check_shards(&folder, shards)?;
        return Ok(PreparedData { folder, shards: shards.clone() });
    }
    let dataset = &manifests.datasets[&profile.dataset];
    let Dataset::CargoVendor(crates) = dataset else {
        return Err(DataError::Missing { what: format!("dataset {}", profile.dataset), how_to_get: dataset.how_to_get().to_owned() });
    };
    let tokenizer_file = tokenizer_file(&manifests.root, tokenizer)?;
    let corpus = corpus_folder(&manifests.root, crates, say)?;
    say(&format!("tokenising {} with {}", crates.id, tokenizer.id));
    let shards = tokenise(trainer, &tokenizer_file, &corpus, &folder, pinned)?;
    Ok(PreparedData { folder, shards })
}

/// The committed tokenizer.json, its hash checked.
fn tokenizer_file(root: &Path, tokenizer: &Tokenizer) -> Result<PathBuf, DataError> {
    let missing = || DataError::Missing { what: format!("tokenizer {}", tokenizer.id), how_to_get: tokenizer.how_to_get.clone() };
    let path = root.join(tokenizer.file.as_deref().ok_or_else(missing)?);
    check_hash(
        &path,
        tokenizer.sha256.as_deref(),
        &format!("manifests/tokenizers/{}.yaml", tokenizer.id),
        "restore the file from the repository",
    )?;
    Ok(path)
}

fn check_hash(path: &Path, expected: Option<&str>, by: &str, advice: &'static str) -> Result<String, DataError> {
    let found = files::sha256_file(path)?;
    match expected {
        Some(expected) if expected != found => {
            Err(DataError::Hash { path: path.to_owned(), found, expected: expected.to_owned(), by: by.to_owned(), advice })
        }
        _ => Ok(found),
    }
}

/// Checks the hashes of both .bin/.idx pairs.
///
/// # Errors
/// The first file that is missing or differs.
pub fn check_shards(folder: &Path, shards: &Shards) -> Result<(), DataError> {
    for (part, shard) in [("train", &shards.train), ("validation", &shards.validation)] {
        for (extension, expected) in [("bin", &shard.sha256_bin), ("idx", &shard.sha256_idx)] {
            check_hash(&folder.join(format!("{part}.{extension}")), Some(expected), "the plan", FETCH_AGAIN)?;
        }
    }
    Ok(())
}

/// Documents of vendored crates, made if they are not there yet.
fn corpus_folder(root: &Path, crates: &CargoVendor, say: &dyn Fn(&str)) -> Result<PathBuf, DataError> {
    let folder = dataset_cache(root, &crates.id).join("corpus");
    if !folder.is_dir() {
        let vendor = vendor_folder(root, crates, say)?;
        say(&format!("collecting the documents of {}", crates.id));
        let aside = aside(&folder);
        files::remove_folder(&aside)?;
        files::make_folder(&aside)?;
        corpus::build(&vendor, &crates.rule, &aside)?;
        rename(&aside, &folder)?;
    }
    let by = format!("manifests/datasets/{}.yaml", crates.id);
    let pinned = [(corpus::TRAIN_FILE, &crates.corpus.train_sha256), (corpus::VALIDATION_FILE, &crates.corpus.validation_sha256)];
    for (name, expected) in pinned {
        check_hash(&folder.join(name), expected.as_deref(), &by, FETCH_AGAIN)?;
    }
    Ok(folder)
}

/// Sources of the pinned crates, fetched by cargo if they are not there yet.
fn vendor_folder(root: &Path, crates: &CargoVendor, say: &dyn Fn(&str)) -> Result<PathBuf, DataError> {
    let folder = dataset_cache(root, &crates.id).join("vendor");
    if !folder.is_dir() {
        say(&format!("fetching the crates of {} with cargo", crates.id));
        let aside = aside(&folder);
        files::remove_folder(&aside)?;
        let manifest = root.join(&crates.package).join("Cargo.toml");
        let arguments: Vec<OsString> = vec![
            "vendor".into(),
            "--quiet".into(),
            "--locked".into(),
            "--versioned-dirs".into(),
            "--manifest-path".into(),
            manifest.into(),
            aside.clone().into(),
        ];
        run_cargo(root, "fetching crates (cargo vendor; it needs the crate registry once, later runs are offline)", &arguments)?;
        rename(&aside, &folder)?;
    }
    Ok(folder)
}

/// A sibling to build in; what a killed process left there is removed first.
fn aside(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    folder.with_file_name(name)
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).map_err(|source| FileError { path: to.to_owned(), action: "move into place", source })
}

/// What `trainer tokenize` prints.
#[derive(Deserialize)]
struct Tokenised {
    tokens: u64,
    sha256_bin: String,
    sha256_idx: String,
}

fn tokenise(trainer: &Trainer, tokenizer: &Path, corpus: &Path, folder: &Path, pinned: Option<&Shards>) -> Result<Shards, DataError> {
    let aside = aside(folder);
    files::remove_folder(&aside)?;
    files::make_folder(&aside)?;
    let part = |name: &str, input: &str| -> Result<Shard, DataError> {
        let arguments: Vec<OsString> = vec![
            "tokenize".into(),
            "--tokenizer".into(),
            tokenizer.into(),
            "--input".into(),
            corpus.join(input).into(),
            "--output".into(),
            aside.join(name).into(),
        ];
        let what = format!("tokenising {input}");
        let line = trainer.output(&what, arguments)?;
        let done: Tokenised = serde_json::from_str(line.trim()).map_err(|error| ToolError::Failed {
            what,
            status: "an answer that is not the expected JSON".into(),
            output: format!("{error}: {line}"),
        })?;
        Ok(Shard { tokens: done.tokens, sha256_bin: done.sha256_bin, sha256_idx: done.sha256_idx })
    };
    let shards =
        Shards { train: part("train", corpus::TRAIN_FILE)?, validation: part("validation", corpus::VALIDATION_FILE)?, end_of_document: 0 };
    files::copy(tokenizer, &aside.join("tokenizer.json"))?;
    check_shards(&aside, pinned.unwrap_or(&shards))?;
    files::remove_folder(folder)?;
    rename(&aside, folder)?;
    Ok(shards)
}

/// One line of `cargo xtask data list` or `verify`.
#[derive(Debug, Clone)]
pub struct DatasetStatus {
    /// Dataset id.
    pub id: String,
    /// Its name.
    pub title: String,
    /// What is here, in words.
    pub here: Vec<String>,
    /// What is not, and where it comes from.
    pub missing: Vec<String>,
    /// Files whose hash is wrong.
    pub wrong: Vec<String>,
}

impl fmt::Display for DatasetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.id, self.title)?;
        for (word, lines) in [("here", &self.here), ("missing", &self.missing), ("WRONG", &self.wrong)] {
            for line in lines {
                writeln!(f, "  {word}: {line}")?;
            }
        }
        Ok(())
    }
}

/// What is here of every dataset; with `hashes`, every file that is pinned is read and compared.
///
/// # Errors
/// When a folder cannot be read.
pub fn status(manifests: &Manifests, hashes: bool) -> Result<Vec<DatasetStatus>, DataError> {
    manifests.datasets.values().map(|dataset| dataset_status(manifests, dataset, hashes)).collect()
}

fn dataset_status(manifests: &Manifests, dataset: &Dataset, hashes: bool) -> Result<DatasetStatus, DataError> {
    let cache = dataset_cache(&manifests.root, dataset.id());
    let mut status =
        DatasetStatus { id: dataset.id().to_owned(), title: dataset.title().to_owned(), here: vec![], missing: vec![], wrong: vec![] };
    let (folder, files) = match dataset {
        Dataset::CargoVendor(crates) => {
            let named = |name: &str, sha256: &Option<String>| NamedFile { name: name.to_owned(), sha256: sha256.clone() };
            let files = vec![
                named(corpus::TRAIN_FILE, &crates.corpus.train_sha256),
                named(corpus::VALIDATION_FILE, &crates.corpus.validation_sha256),
            ];
            (cache.join("corpus"), files)
        }
        Dataset::LocalFiles(local) => (cache.clone(), local.files.clone()),
        Dataset::Megatron(megatron) => (cache.clone(), recorded_files(&cache, megatron)),
    };
    for file in files {
        let path = folder.join(&file.name);
        if !path.is_file() {
            status.missing.push(file.name);
        } else if !hashes {
            status.here.push(file.name);
        } else {
            let found = files::sha256_file(&path)?;
            match &file.sha256 {
                Some(expected) if *expected != found => {
                    status.wrong.push(format!("{}: its SHA-256 is {found}, not {expected}; {FETCH_AGAIN}", file.name))
                }
                Some(_) => status.here.push(format!("{}, hash as pinned", file.name)),
                None => status.here.push(format!("{}, SHA-256 {found}, not pinned", file.name)),
            }
        }
    }
    if !status.missing.is_empty() {
        status.missing.push(format!("how to get it: {}", dataset.how_to_get()));
    }
    for tokenizer in manifests.tokenizers.values().filter(|tokenizer| tokenizer.trained_on.as_deref() == Some(dataset.id())) {
        let folder = token_folder(&manifests.root, dataset.id(), &tokenizer.id);
        if let (true, Some(shards)) = (folder.is_dir(), &tokenizer.shards) {
            match hashes.then(|| check_shards(&folder, shards)) {
                Some(Err(error)) => status.wrong.push(error.to_string()),
                _ => status.here.push(format!(
                    "tokens by {}: {} to train on, {} held out",
                    tokenizer.id, shards.train.tokens, shards.validation.tokens
                )),
            }
        }
    }
    Ok(status)
}

/// A Megatron dataset's files with the hashes recorded at first use where the manifest has none.
fn recorded_files(cache: &Path, megatron: &Megatron) -> Vec<NamedFile> {
    let recorded = std::fs::read_to_string(cache.join(RECORDED)).unwrap_or_default();
    let find = |name: &str| {
        recorded.lines().find_map(|line| line.split_once("  ").filter(|(_, file)| *file == name)).map(|(hash, _)| hash.to_owned())
    };
    megatron
        .files
        .iter()
        .map(|file| NamedFile { name: file.name.clone(), sha256: file.sha256.clone().or_else(|| find(&file.name)) })
        .collect()
}

const RECORDED: &str = "recorded.sha256";

/// Fetches a dataset: with cargo, or from a local folder whose files are checked before they are taken.
///
/// # Errors
/// What is missing and where it comes from, or which hash is wrong. Nothing is taken then.
pub fn fetch(manifests: &Manifests, id: &str, from: Option<&Path>, say: &dyn Fn(&str)) -> Result<(), DataError> {
    let known: Vec<&str> = manifests.datasets.keys().map(String::as_str).collect();
    let Some(dataset) = manifests.datasets.get(id) else {
        return Err(DataError::Missing {
            what: crate::manifest::unknown("dataset", id, &known),
            how_to_get: "cargo xtask data list names them all".into(),
        });
    };
    let cache = dataset_cache(&manifests.root, id);
    let files = match (dataset, from) {
        (Dataset::CargoVendor(crates), _) => return corpus_folder(&manifests.root, crates, say).map(|_| ()),
        (_, None) => return Err(DataError::Missing { what: format!("dataset {id}"), how_to_get: dataset.how_to_get().to_owned() }),
        (Dataset::LocalFiles(local), Some(_)) => local.files.clone(),
        (Dataset::Megatron(megatron), Some(_)) => recorded_files(&cache, megatron),
    };
    let from = from.unwrap_or(Path::new("."));
    let mut hashes = String::new();
    for file in &files {
        let path = from.join(&file.name);
        if !path.is_file() {
            return Err(DataError::Missing { what: path.display().to_string(), how_to_get: dataset.how_to_get().to_owned() });
        }
        say(&format!("checking {}", file.name));
        let found =
            check_hash(&path, file.sha256.as_deref(), &format!("the manifest (or {RECORDED}, from its first use)"), "get the file again")?;
        hashes.push_str(&format!("{found}  {}\n", file.name));
    }
    for file in &files {
        say(&format!("taking {}", file.name));
        let to = cache.join(&file.name);
        let aside = aside(&to);
        files::copy(&from.join(&file.name), &aside)?;
        rename(&aside, &to)?;
    }
    files::write(&cache.join(RECORDED), hashes.as_bytes())?;
    Ok(())
}
