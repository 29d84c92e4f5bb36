//! What is here of every dataset, for `cargo xtask data list` and `verify`.

use std::fmt;

use study::files;
use study::manifest::{Dataset, Manifests};

use super::{DataError, FETCH_AGAIN, check_shards, dataset_cache, files_of, how_to_get, token_folder};

/// One line of `cargo xtask data list` or `verify`.
#[derive(Debug, Clone)]
pub struct DatasetStatus {
    pub id: String,
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
pub fn status(manifests: &Manifests, hashes: bool) -> Result<Vec<DatasetStatus>, DataError> {
    manifests.datasets.values().map(|dataset| dataset_status(manifests, dataset, hashes)).collect()
}

fn dataset_status(manifests: &Manifests, dataset: &Dataset, hashes: bool) -> Result<DatasetStatus, DataError> {
    let cache = dataset_cache(&manifests.root, dataset.id());
    let mut status =
        DatasetStatus { id: dataset.id().to_owned(), title: dataset.title().to_owned(), here: vec![], missing: vec![], wrong: vec![] };
    let (folder, files) = files_of(dataset, &cache);
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
        status.missing.push(format!("how to get it: {}", how_to_get(dataset)));
    }
    for tokenizer in manifests.tokenizers.values().filter(|tokenizer| tokenizer.trained_on.as_deref() == Some(dataset.id())) {
        let folder = token_folder(&manifests.root, dataset, tokenizer);
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
