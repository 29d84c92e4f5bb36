//! Datasets: from pinned sources to token shards, with every hash checked. Tokens are the trainer's business; it is called for them.
//!
//! `cache/datasets/<id>/vendor` (crates), `repositories` (of git), `corpus` (documents: train.jsonl or train.txt, and validation),
//! `tokens/<tokenizer>-<hash>` (train.bin, train.idx, ...; the hash is of what they were made from). Each is made aside and renamed, so that what
//! is there is whole.

mod status;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use study::exit::{ExitCode, USAGE};
use study::files::{self, FileError};
use study::folder;
use study::manifest::dataset::{CargoVendor, DocumentFiles, LocalFiles, Megatron, NamedFile};
use study::manifest::profile::{Profile, Shard, Shards, Tokenizer};
use study::manifest::{Dataset, Manifests};

use crate::archives::{self, ArchiveError};
use crate::corpus::{self, CorpusError};
use crate::repositories::{Repositories, RepositoryError};
use crate::toolchain::{ToolError, Trainer, run_cargo};

pub use status::{DatasetStatus, status};

/// Why data is not ready.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(transparent)]
    File(#[from] FileError),
    /// cargo or the trainer failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The corpus could not be built.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A local copy was not taken.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Public repositories did not become documents.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// No manifest has that name.
    #[error("{0}")]
    Unknown(String),
    /// Only repositories have one.
    #[error("--mirror: {id} does not come from repositories; {how_to_get}")]
    Mirror { id: String, how_to_get: String },
    /// Not here, and nothing can fetch it by itself.
    #[error("{what} is not here: {how_to_get}")]
    Missing {
        what: String,
        /// From the manifest.
        how_to_get: String,
    },
    /// A hash that is not the pinned one.
    #[error("{}: its SHA-256 is {found}, but {by} says {expected}; {advice}", .path.display())]
    Hash { path: PathBuf, found: String, expected: String, by: String, advice: &'static str },
}

impl ExitCode for DataError {
    /// 4 where the machine refuses (a full disk), 3 where data is missing or wrong.
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) | Self::Archive(ArchiveError::File(error)) | Self::Corpus(CorpusError::Write(error)) => error.exit_code(),
            Self::Repository(error) => error.exit_code(),
            Self::Mirror { .. } | Self::Unknown(_) => USAGE,
            // The trainer's own codes mean the same.
            Self::Tool(ToolError::Failed { code: Some(4), .. }) => 4,
            _ => 3,
        }
    }
}

/// Token shards that a run can read.
#[derive(Debug, Clone)]
pub struct PreparedData {
    /// Folder with train.bin and the rest.
    pub folder: PathBuf,
    pub shards: Shards,
}

impl PreparedData {
    /// Whether the shards are still what runs were planned with.
    ///
    /// # Errors
    /// Which of them is not.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        check_shards(&self.folder, &self.shards)
    }
}

const FETCH_AGAIN: &str = "remove the folder it lies in and run the same command again";
const PARTS: [&str; 2] = ["train", "validation"];

fn dataset_cache(root: &Path, id: &str) -> PathBuf {
    root.join("cache").join("datasets").join(id)
}

/// Where the token shards that a tokenizer makes of a dataset lie: under a hash of what they are made from, so that another tokenizer of the
/// same name, or another text, never meets old shards.
pub fn token_folder(root: &Path, dataset: &Dataset, tokenizer: &Tokenizer) -> PathBuf {
    let word = |hash: Option<&String>| hash.map_or("not pinned", String::as_str).to_owned();
    let (train, validation) =
        dataset.corpus().map_or((None, None), |corpus| (corpus.train_sha256.as_ref(), corpus.validation_sha256.as_ref()));
    let ingredients = format!("tokenizer {}\ntrain {}\nvalidation {}\n", word(tokenizer.sha256.as_ref()), word(train), word(validation));
    let hash = files::sha256(ingredients.as_bytes());
    dataset_cache(root, dataset.id()).join("tokens").join(format!("{}-{}", tokenizer.id, &hash[..16]))
}

/// Names of a dataset's documents in its `corpus` folder and their pinned hashes; none for a dataset that has no documents here.
fn corpus_files(dataset: &Dataset) -> Option<[NamedFile; 2]> {
    let names = match dataset {
        Dataset::CargoVendor(_) => [corpus::TRAIN_FILE, corpus::VALIDATION_FILE],
        Dataset::DocumentFiles(_) => [archives::TRAIN_FILE, archives::VALIDATION_FILE],
        Dataset::LocalFiles(_) | Dataset::Megatron(_) => return None,
    };
    let hashes = dataset.corpus()?;
    let [train, validation] = names.map(str::to_owned);
    Some([
        NamedFile { name: train, sha256: hashes.train_sha256.clone() },
        NamedFile { name: validation, sha256: hashes.validation_sha256.clone() },
    ])
}

fn missing(dataset: &Dataset) -> DataError {
    DataError::Missing { what: format!("dataset {}", dataset.id()), how_to_get: how_to_get(dataset) }
}

/// What to do about a dataset that is not here.
fn how_to_get(dataset: &Dataset) -> String {
    match dataset {
        Dataset::DocumentFiles(DocumentFiles { id, sources, .. }) => format!(
            "`cargo xtask data fetch {id}` makes it from its {} public repositories, and with --from DIR takes a copy instead",
            sources.len()
        ),
        Dataset::CargoVendor(_) | Dataset::LocalFiles(_) | Dataset::Megatron(_) => dataset.how_to_get().to_owned(),
    }
}

/// Makes the profile's token shards, or finds them made; all hashes are checked either way. Pinned shards need no documents.
/// `say` gets a line for each slow stage.
///
/// # Errors
/// What is missing and where it comes from, or which hash is wrong.
pub fn prepare(manifests: &Manifests, profile: &Profile, trainer: &Trainer, say: &dyn Fn(&str)) -> Result<PreparedData, DataError> {
    let (dataset, tokenizer) = (&manifests.datasets[&profile.dataset], &manifests.tokenizers[&profile.tokenizer]);
    let folder = token_folder(&manifests.root, dataset, tokenizer);
    let pinned = tokenizer.shards.as_ref();
    if let (Some(shards), true) = (pinned, folder.is_dir()) {
        check_shards(&folder, shards)?;
        return Ok(PreparedData { folder, shards: shards.clone() });
    }
    let documents = corpus_files(dataset).ok_or_else(|| missing(dataset))?;
    let tokenizer_file = tokenizer_file(&manifests.root, tokenizer)?;
    let corpus = corpus_folder(&manifests.root, dataset, say)?;
    say(&format!("tokenising {} with {}", dataset.id(), tokenizer.id));
    let shards = tokenise(trainer, &tokenizer_file, &documents.map(|file| corpus.join(file.name)), &folder, pinned)?;
    Ok(PreparedData { folder, shards })
}

/// What of a profile's data the user must bring and has not put below `root`, in a line; shards that are pinned stand in for their documents.
pub fn lacks(manifests: &Manifests, profile: &Profile, root: &Path) -> Option<String> {
    let (dataset, tokenizer) = (&manifests.datasets[&profile.dataset], &manifests.tokenizers[&profile.tokenizer]);
    let shards = token_folder(root, dataset, tokenizer);
    if tokenizer.shards.is_some() && shard_files().iter().all(|name| shards.join(name).is_file()) {
        return None;
    }
    if matches!(dataset, Dataset::CargoVendor(_)) {
        // cargo fetches it at first use.
        return None;
    }
    let (folder, files) = files_of(dataset, &dataset_cache(root, dataset.id()));
    let missing = files.iter().filter(|file| !folder.join(&file.name).is_file()).count();
    (missing > 0).then(|| format!("dataset {}: {missing} of {} files are not here; {}", dataset.id(), files.len(), how_to_get(dataset)))
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

/// Names of both .bin/.idx pairs.
fn shard_files() -> [String; 4] {
    let [train, validation] = PARTS;
    [format!("{train}.bin"), format!("{train}.idx"), format!("{validation}.bin"), format!("{validation}.idx")]
}

/// Checks the hashes of both .bin/.idx pairs.
fn check_shards(folder: &Path, shards: &Shards) -> Result<(), DataError> {
    check_shards_of(folder, shards, "the plan", FETCH_AGAIN)
}

fn check_shards_of(folder: &Path, shards: &Shards, by: &str, advice: &'static str) -> Result<(), DataError> {
    let hashes = [&shards.train.sha256_bin, &shards.train.sha256_idx, &shards.validation.sha256_bin, &shards.validation.sha256_idx];
    for (name, expected) in shard_files().iter().zip(hashes) {
        check_hash(&folder.join(name), Some(expected), by, advice)?;
    }
    Ok(())
}

/// Documents of a dataset: made if they are not there yet and cargo can fetch their sources, and checked against their pinned hashes.
fn corpus_folder(root: &Path, dataset: &Dataset, say: &dyn Fn(&str)) -> Result<PathBuf, DataError> {
    let folder = dataset_cache(root, dataset.id()).join("corpus");
    if !folder.is_dir() {
        let Dataset::CargoVendor(crates) = dataset else {
            return Err(missing(dataset));
        };
        let vendor = vendor_folder(root, crates, say)?;
        say(&format!("collecting the documents of {}", crates.id));
        folder::make(&folder, |aside| corpus::build(&vendor, &crates.rule, aside).map(|_| ()).map_err(DataError::from))?;
    }
    check_corpus(&folder, dataset)?;
    Ok(folder)
}

fn check_corpus(folder: &Path, dataset: &Dataset) -> Result<(), DataError> {
    let by = format!("manifests/datasets/{}.yaml", dataset.id());
    for file in corpus_files(dataset).iter().flatten() {
        check_hash(&folder.join(&file.name), file.sha256.as_deref(), &by, FETCH_AGAIN)?;
    }
    Ok(())
}

/// Sources of the pinned crates, fetched by cargo if they are not there yet.
fn vendor_folder(root: &Path, crates: &CargoVendor, say: &dyn Fn(&str)) -> Result<PathBuf, DataError> {
    let folder = dataset_cache(root, &crates.id).join("vendor");
    if folder.is_dir() {
        return Ok(folder);
    }
    say(&format!("fetching the crates of {} with cargo", crates.id));
    let manifest = root.join(&crates.package).join("Cargo.toml");
    folder::make(&folder, |aside| -> Result<(), DataError> {
        // cargo makes the folder itself.
        files::remove_folder(aside)?;
        let arguments: Vec<OsString> = vec![
            "vendor".into(),
            "--quiet".into(),
            "--locked".into(),
            "--versioned-dirs".into(),
            "--manifest-path".into(),
            manifest.into(),
            aside.into(),
        ];
        run_cargo(root, "fetching crates (cargo vendor; it needs the crate registry once, later runs are offline)", &arguments)?;
        Ok(())
    })?;
    Ok(folder)
}

/// A sibling to build in.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    path.with_file_name(name)
}

/// What `trainer tokenize` prints.
#[derive(Deserialize)]
struct Tokenised {
    tokens: u64,
    sha256_bin: String,
    sha256_idx: String,
}

/// Tokens of two files of documents, to train on and held out, by a committed tokenizer, in a folder that is made anew.
///
/// # Errors
/// A tokenizer that is not here, or text that cannot be tokenised.
pub fn tokens_of(
    root: &Path,
    tokenizer: &Tokenizer,
    trainer: &Trainer,
    documents: &[PathBuf; 2],
    folder: &Path,
) -> Result<Shards, DataError> {
    tokenise(trainer, &tokenizer_file(root, tokenizer)?, documents, folder, None)
}

fn tokenise(
    trainer: &Trainer,
    tokenizer: &Path,
    documents: &[PathBuf; 2],
    folder: &Path,
    pinned: Option<&Shards>,
) -> Result<Shards, DataError> {
    let part = |input: &Path, output: &Path| -> Result<Shard, DataError> {
        let arguments: Vec<OsString> = vec![
            "tokenize".into(),
            "--tokenizer".into(),
            tokenizer.into(),
            "--input".into(),
            input.into(),
            "--output".into(),
            output.into(),
        ];
        let what = format!("tokenising {}", input.display());
        let line = trainer.output(&what, arguments)?;
        let done: Tokenised = serde_json::from_str(line.trim()).map_err(|error| ToolError::Failed {
            what,
            status: "an answer that is not the expected JSON".into(),
            code: None,
            output: format!("{error}: {line}"),
        })?;
        Ok(Shard { tokens: done.tokens, sha256_bin: done.sha256_bin, sha256_idx: done.sha256_idx })
    };
    folder::make(folder, |aside| {
        let [train, validation] = PARTS.map(|name| aside.join(name));
        let shards = Shards { train: part(&documents[0], &train)?, validation: part(&documents[1], &validation)?, end_of_document: 0 };
        files::copy(tokenizer, &aside.join("tokenizer.json"))?;
        let advice = "these documents and this tokenizer give other tokens here: please report it";
        check_shards_of(aside, pinned.unwrap_or(&shards), "the tokenizer's manifest", advice)?;
        Ok(shards)
    })
}

/// What makes a dataset complete: a folder, and what must be in it.
fn files_of(dataset: &Dataset, cache: &Path) -> (PathBuf, Vec<NamedFile>) {
    match corpus_files(dataset) {
        Some(files) => (cache.join("corpus"), files.to_vec()),
        None => (cache.to_owned(), files_to_take(cache, dataset)),
    }
}

/// Files that are taken as they are, with the hashes recorded at first use where the manifest has none.
fn files_to_take(cache: &Path, dataset: &Dataset) -> Vec<NamedFile> {
    let (Dataset::LocalFiles(LocalFiles { files, .. }) | Dataset::Megatron(Megatron { files, .. })) = dataset else {
        return vec![];
    };
    let recorded = std::fs::read_to_string(cache.join(RECORDED)).unwrap_or_default();
    let find = |name: &str| {
        recorded.lines().find_map(|line| line.split_once("  ").filter(|(_, file)| *file == name)).map(|(hash, _)| hash.to_owned())
    };
    files.iter().map(|file| NamedFile { name: file.name.clone(), sha256: file.sha256.clone().or_else(|| find(&file.name)) }).collect()
}

const RECORDED: &str = "recorded.sha256";

fn known_dataset<'a>(manifests: &'a Manifests, id: &str) -> Result<&'a Dataset, DataError> {
    let known: Vec<&str> = manifests.datasets.keys().map(String::as_str).collect();
    manifests.datasets.get(id).ok_or_else(|| DataError::Unknown(study::suggest::unknown("dataset", id, &known)))
}

/// Where a dataset is fetched from.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// Where it was published: crates by cargo, repositories from GitHub.
    Public,
    /// Repositories below another base address.
    Mirror(&'a str),
    /// A local folder, whose files are checked before they are taken.
    Folder(&'a Path),
}

/// Fetches a dataset.
///
/// # Errors
/// What is missing and where it comes from, or which hash is wrong. Nothing is taken then.
pub fn fetch(manifests: &Manifests, id: &str, origin: Origin<'_>, say: &dyn Fn(&str)) -> Result<(), DataError> {
    let dataset = known_dataset(manifests, id)?;
    let cache = dataset_cache(&manifests.root, id);
    match (dataset, origin) {
        (Dataset::DocumentFiles(files), Origin::Public) => from_repositories(dataset, files, &cache, documents::git::GITHUB, say),
        (Dataset::DocumentFiles(files), Origin::Mirror(base)) => from_repositories(dataset, files, &cache, base, say),
        (_, Origin::Mirror(_)) => Err(DataError::Mirror { id: id.to_owned(), how_to_get: how_to_get(dataset) }),
        (Dataset::CargoVendor(_), _) => corpus_folder(&manifests.root, dataset, say).map(|_| ()),
        (_, Origin::Public) => already_here(dataset, &cache, say),
        (Dataset::DocumentFiles(files), Origin::Folder(from)) => folder::make(&cache.join("corpus"), |aside| {
            archives::unpack(files, from, aside, say)?;
            check_corpus(aside, dataset)
        }),
        (Dataset::LocalFiles(_) | Dataset::Megatron(_), Origin::Folder(from)) => take(dataset, &cache, from, say),
    }
}

/// Makes the documents of a dataset whose sources are public repositories, or checks those that are here.
fn from_repositories(dataset: &Dataset, files: &DocumentFiles, cache: &Path, base: &str, say: &dyn Fn(&str)) -> Result<(), DataError> {
    let corpus = cache.join("corpus");
    if corpus_files(dataset).iter().flatten().all(|file| corpus.join(&file.name).is_file()) {
        return check_corpus(&corpus, dataset);
    }
    let repositories = Repositories::new(files, cache)?;
    where_it_comes_from(dataset).iter().for_each(|line| say(line));
    repositories.fetch(base, say)?;
    folder::make(&corpus, |aside| {
        repositories.make(aside, say)?;
        check_corpus(aside, dataset)
    })
}

/// Without a copy to take there is nothing to do but to check what is here, or to say what is not.
fn already_here(dataset: &Dataset, cache: &Path, say: &dyn Fn(&str)) -> Result<(), DataError> {
    let (folder, files) = files_of(dataset, cache);
    if files.iter().any(|file| !folder.join(&file.name).is_file()) {
        where_it_comes_from(dataset).iter().for_each(|line| say(line));
        return Err(missing(dataset));
    }
    let by = format!("manifests/datasets/{}.yaml (or {RECORDED}, from its first use)", dataset.id());
    files.iter().try_for_each(|file| {
        check_hash(&folder.join(&file.name), file.sha256.as_deref(), &by, "fetch it again from a good copy").map(|_| ())
    })
}

/// Every file that is wanted, and every public source with its commit and licence.
fn where_it_comes_from(dataset: &Dataset) -> Vec<String> {
    let mut lines = vec![format!("missing of {}, {}:", dataset.id(), dataset.title())];
    match dataset {
        Dataset::CargoVendor(_) => {}
        Dataset::DocumentFiles(DocumentFiles { files, sources, .. }) => {
            lines.extend(files.iter().map(|file| format!("  {}", file.describe())));
            lines.push(format!("it comes from these {} repositories:", sources.len()));
            lines.extend(sources.iter().map(|source| format!("  {}", source.describe())));
        }
        Dataset::LocalFiles(LocalFiles { files, .. }) | Dataset::Megatron(Megatron { files, .. }) => {
            let hash = |file: &NamedFile| file.sha256.as_ref().map_or("recorded at first use".to_owned(), Clone::clone);
            lines.extend(files.iter().map(|file| format!("  {} (SHA-256 {})", file.name, hash(file))));
        }
    }
    if let Dataset::LocalFiles(LocalFiles { url, .. }) = dataset {
        lines.push(format!("it comes from {url}"));
    }
    lines
}

/// Checks every file of a dataset that is kept as it is, then copies them.
fn take(dataset: &Dataset, cache: &Path, from: &Path, say: &dyn Fn(&str)) -> Result<(), DataError> {
    let files = files_to_take(cache, dataset);
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
        let taken = files::copy(&from.join(&file.name), &aside).and_then(|()| files::rename(&aside, &to, "move into place"));
        if taken.is_err() {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(&aside);
        }
        taken?;
    }
    files::write(&cache.join(RECORDED), hashes.as_bytes())?;
    Ok(())
}

/// Takes the token shards that a tokenizer makes of a dataset from a local folder, by the hashes that the tokenizer's manifest pins: a machine
/// that has them needs neither documents nor sources.
pub fn fetch_tokens(manifests: &Manifests, id: &str, tokenizer: &str, from: &Path, say: &dyn Fn(&str)) -> Result<(), DataError> {
    let dataset = known_dataset(manifests, id)?;
    let known: Vec<&str> = manifests.tokenizers.keys().map(String::as_str).collect();
    let Some(tokenizer) = manifests.tokenizers.get(tokenizer) else {
        return Err(DataError::Unknown(format!("--tokens: {}", study::suggest::unknown("tokenizer", tokenizer, &known))));
    };
    let Some(shards) = tokenizer.shards.as_ref().filter(|_| tokenizer.trained_on.as_deref() == Some(id)) else {
        return Err(DataError::Missing {
            what: format!("the hashes of {id} as tokens of {}", tokenizer.id),
            how_to_get: "only shards that the tokenizer's manifest pins can be taken".into(),
        });
    };
    if let Some(name) = shard_files().iter().find(|name| !from.join(name).is_file()) {
        let what = from.join(name).display().to_string();
        let how_to_get = "name the folder that holds train.bin, train.idx, validation.bin and validation.idx".into();
        return Err(DataError::Missing { what, how_to_get });
    }
    say(&format!("checking the tokens of {id} by {}", tokenizer.id));
    let by = format!("manifests/tokenizers/{}.yaml", tokenizer.id);
    check_shards_of(from, shards, &by, "get the file again, nothing was taken")?;
    let tokenizer_file = tokenizer_file(&manifests.root, tokenizer)?;
    folder::make(&token_folder(&manifests.root, dataset, tokenizer), |aside| {
        shard_files().iter().try_for_each(|name| files::copy(&from.join(name), &aside.join(name)))?;
        files::copy(&tokenizer_file, &aside.join("tokenizer.json"))?;
        check_shards(aside, shards)
    })
}
