//! Repositories made here, and documents made of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use documents::corpus::{Corpus, Counts, Shard};
use documents::git::{self, Repository};
use documents::rule::Rule;
use documents::source::{Named, Source};
use serde::Deserialize;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Manifest {
    extraction: Extraction,
}

#[derive(Deserialize)]
pub(crate) struct Extraction {
    pub(crate) rule: String,
    pub(crate) patterns: BTreeMap<String, String>,
    pub(crate) entities: BTreeMap<String, String>,
}

/// Of the dataset webdocs.
pub(crate) fn extraction() -> Extraction {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/datasets/webdocs.yaml");
    serde_yaml::from_str::<Manifest>(&std::fs::read_to_string(path).unwrap()).unwrap().extraction
}

pub(crate) fn rule() -> Rule {
    let Extraction { rule, patterns, entities } = extraction();
    Rule::new(&rule, &patterns, &entities).unwrap()
}

/// A folder with repositories below `mirror`, and what is fetched from them beside it.
pub(crate) struct World {
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn base(&self) -> String {
        format!("file://{}", self.path("mirror").display())
    }

    pub(crate) fn git(&self, repo: &str, arguments: &[&str]) -> String {
        let folder = self.path("mirror").join(repo);
        std::fs::create_dir_all(&folder).unwrap();
        let nobody = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "core.autocrlf=false"];
        let output = Command::new("git")
            .args(nobody)
            .args(arguments)
            .current_dir(folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn put(&self, repo: &str, path: &str, content: &[u8]) {
        let path = self.path("mirror").join(repo).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Commits what was put there, and gives the commit.
    pub(crate) fn commit(&self, repo: &str) -> String {
        self.git(repo, &["init", "--quiet", "--template="]);
        // As GitHub does.
        self.git(repo, &["config", "uploadpack.allowFilter", "true"]);
        self.git(repo, &["add", "--all"]);
        self.git(repo, &["commit", "--quiet", "--allow-empty", "--message=made"]);
        self.git(repo, &["rev-parse", "HEAD"])
    }

    pub(crate) fn fetch(&self, name: &str, source: &Source) -> Result<Repository, git::GitError> {
        let folder = self.path(name);
        std::fs::create_dir_all(&folder).unwrap();
        Repository::fetch(&folder, &git::address(&self.base(), &source.repo)?, source)
    }
}

/// All files of a commit, but for `prefixes`, `suffixes` and `exclude`.
pub(crate) fn source(mode: &str, commit: &str, [prefixes, suffixes, exclude]: [&[&str]; 3]) -> Source {
    let [prefixes, suffixes, exclude] =
        [prefixes, suffixes, exclude].map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let (prefixes, suffixes, exclude) = (&prefixes, &suffixes, &exclude);
    Source::new(Named { repo: "made/words", commit, copy: None, mode, prefixes, suffixes, exclude }).unwrap()
}

/// What came out of a repository's files.
pub(crate) struct Made {
    pub(crate) counts: Counts,
    pub(crate) train: Vec<String>,
    pub(crate) held_out: Vec<String>,
    pub(crate) shards: [Vec<Shard>; 2],
}

/// Documents of these files, in a repository named `made/words`.
pub(crate) fn make(mode: &str, files: &[(&str, &[u8])], shard_bytes: u64) -> Made {
    let world = World::new();
    files.iter().for_each(|(path, content)| world.put("made/words", path, content));
    let commit = world.commit("made/words");
    let source = source(mode, &commit, [&[""], &[""], &[]]);
    let repository = world.fetch("fetched", &source).unwrap();
    let rule = rule();
    let mut corpus = Corpus::new(&rule, world.folder.path()).unwrap();
    let counts = corpus.add(&source, &repository).unwrap();
    let [train, held_out] = ["train.txt", "validation.txt"].map(|name| world.path(name));
    let shards = corpus.write(&train, &held_out, shard_bytes).unwrap();
    assert!(!world.path("texts").exists());
    let parts = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let parts: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        assert!(text.is_empty() || text.ends_with('\0'));
        parts
    };
    Made { counts, train: parts(&train), held_out: parts(&held_out), shards }
}

/// The text that one file gives, or why it gives none.
pub(crate) fn text(mode: &str, file: &[u8]) -> String {
    let made = make(mode, &[("doc", file)], u64::MAX);
    let dropped = made.counts.dropped.into_keys().next();
    made.train.into_iter().chain(made.held_out).next().or(dropped).unwrap()
}

/// A line of prose that occurs nowhere else, `bytes` long.
pub(crate) fn prose(what: &str, bytes: usize) -> String {
    let line = format!("The line about {what} goes on, {}", "and on ".repeat(bytes / 7));
    format!("{}.", &line[..bytes - 1])
}
