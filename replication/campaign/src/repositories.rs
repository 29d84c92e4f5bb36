//! From the public repositories that a manifest names to one text a part: fetches what is missing, makes the documents, compares each count and
//! each hash with the manifest.
//!
//! A repository lies in `cache/datasets/<id>/repositories/OWNER+NAME-COMMIT`, made aside and renamed, so that a later call fetches the others
//! alone. `documents` knows how; this module knows when, where, and what to say.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use documents::corpus::{self, Corpus, CorpusError, Counts, DiskError};
use documents::git::{self, Cause, GitError, Repository};
use documents::rule::{Rule, RuleError};
use documents::source::{Named, Source, SourceError};
use study::exit::{DATA, ExitCode, MACHINE, USAGE};
use study::files::{self, FileError};
use study::folder::{self, LockError};
use study::manifest::dataset::{self, DocumentFiles, Part};

use crate::archives::{TRAIN_FILE, VALIDATION_FILE};
use crate::system;

/// Repositories that are fetched at a time.
const AT_A_TIME: usize = 4;

/// Why documents were not made from their repositories.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Nothing here can follow the manifest.
    #[error("manifests/datasets/{id}.yaml: {source}")]
    Rule { id: String, source: RuleError },
    /// No repository can be what the manifest names.
    #[error("manifests/datasets/{id}.yaml: {source}")]
    Source { id: String, source: SourceError },
    /// What is no address.
    #[error(transparent)]
    Address(GitError),
    /// Known before anything is fetched.
    #[error("{}: {needed} are needed and {free} are free; free some space and run the same command again", .folder.display())]
    Room { folder: PathBuf, needed: String, free: String },
    /// Nothing can be fetched at all, whatever the repository.
    #[error("{repo}: {source}; {advice}. {here} of {total} repositories are here and stay: run the same command again")]
    Stopped { repo: String, source: GitError, advice: &'static str, here: usize, total: usize },
    /// All were tried.
    #[error(
        "{} of {total} repositories cannot be had from {base}: {}. Without them the pinned texts cannot be made. The others stay: run the same command again, name another base address with --mirror URL, or take a copy of the texts with --from DIR",
        .lost.len(), .lost.join("; ")
    )]
    Lost {
        /// Each with its commit, what git said and what it would have given.
        lost: Vec<String>,
        total: usize,
        base: String,
    },
    /// git cannot read what it fetched.
    #[error("{repo}: {source}; remove {} and run the same command again", .folder.display())]
    Unreadable { repo: String, source: GitError, folder: PathBuf },
    /// The rule gives something else than it gave where the manifest was written.
    #[error("{what}: {found}, but manifests/datasets/{id}.yaml says {expected}; nothing was kept of the texts: please report it")]
    Other { id: String, what: String, found: String, expected: String },
}

impl ExitCode for RepositoryError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) | Self::Lock(LockError::File(error)) => error.exit_code(),
            Self::Rule { .. } | Self::Source { .. } | Self::Address(_) => USAGE,
            Self::Room { .. } => MACHINE,
            Self::Stopped { source, .. } if matches!(source.cause, Cause::NoProgram | Cause::FullDisk) => MACHINE,
            Self::Lock(LockError::Held { .. }) => study::exit::FAILED,
            Self::Stopped { .. } | Self::Lost { .. } | Self::Unreadable { .. } | Self::Other { .. } => DATA,
        }
    }
}

/// A source of the manifest, as it is fetched and as it is checked.
struct Wanted<'a> {
    pinned: &'a dataset::Source,
    source: Source,
    folder: PathBuf,
}

/// A dataset that its repositories give.
pub(crate) struct Repositories<'a> {
    dataset: &'a DocumentFiles,
    rule: Rule,
    wanted: Vec<Wanted<'a>>,
    folder: PathBuf,
}

impl<'a> Repositories<'a> {
    /// # Errors
    /// A manifest whose rule is not the one that is programmed.
    pub(crate) fn new(dataset: &'a DocumentFiles, cache: &Path) -> Result<Self, RepositoryError> {
        let id = || dataset.id.to_string();
        let folder = cache.join("repositories");
        let extraction = &dataset.extraction;
        let rule = Rule::new(&extraction.rule, &extraction.patterns, &extraction.entities)
            .map_err(|source| RepositoryError::Rule { id: id(), source })?;
        let wanted = dataset.sources.iter().map(|pinned| {
            let source = Source::new(Named {
                repo: &pinned.repo,
                commit: &pinned.commit,
                copy: pinned.fetched_from.as_deref(),
                mode: &pinned.mode,
                prefixes: &pinned.prefixes,
                suffixes: &pinned.suffixes,
                exclude: &pinned.exclude,
            })?;
            let name = format!("{}-{}", source.repo.replace('/', "+"), &source.commit[..16]);
            Ok(Wanted { pinned, source, folder: folder.join(name) })
        });
        let wanted = wanted.collect::<Result<_, _>>().map_err(|source| RepositoryError::Source { id: id(), source })?;
        Ok(Self { dataset, rule, wanted, folder })
    }

    /// Fetches what is not here from `base`, four repositories at a time. `say` gets a line for each.
    ///
    /// # Errors
    /// All that cannot be had, in one message; or at once what holds for every repository.
    pub(crate) fn fetch(&self, base: &str, say: &dyn Fn(&str)) -> Result<(), RepositoryError> {
        git::address(base, "OWNER/NAME").map_err(RepositoryError::Address)?;
        files::make_folder(&self.folder)?;
        let _lock = folder::lock(&self.folder.join("lock"))?;
        // One that was damaged since is fetched again.
        let is_here = |wanted: &&Wanted<'_>| wanted.folder.is_dir() && Repository::at(&wanted.folder).is_whole(&wanted.source).is_ok();
        let missing: Vec<&Wanted<'_>> = self.wanted.iter().filter(|wanted| !is_here(wanted)).collect();
        self.check_room(&missing, say)?;
        let mut here = self.wanted.len() - missing.len();
        let mut lost = Vec::new();
        let mut stopped = None;
        in_parallel(
            &missing,
            |wanted| wanted.fetch(base),
            |wanted, outcome| {
                let error = match outcome {
                    Ok(()) => {
                        here += 1;
                        say(&format!("fetched {} ({here} of {})", wanted.pinned.repo, self.wanted.len()));
                        return true;
                    }
                    Err(error) => error,
                };
                say(&format!("not fetched: {}: {error}", wanted.pinned.repo));
                // A network that answers for others is there.
                let Some(advice) = error.stops(here + missing.len() == self.wanted.len()) else {
                    lost.push(wanted.lost(&error));
                    return true;
                };
                stopped.get_or_insert((wanted.pinned.repo.clone(), error, advice));
                false
            },
        );
        match (stopped, lost.is_empty()) {
            (Some((_, FetchError::File(error), _)), _) => Err(error.into()),
            (Some((repo, FetchError::Git(source), advice)), _) => {
                Err(RepositoryError::Stopped { repo, source, advice, here, total: self.wanted.len() })
            }
            (None, false) => Err(RepositoryError::Lost { lost, total: self.wanted.len(), base: base.to_owned() }),
            (None, true) => Ok(()),
        }
    }

    /// Says what is to come. What git packs is less than the files, and what a server adds (one without partial fetches sends all of a commit)
    /// nobody knows before.
    fn check_room(&self, missing: &[&Wanted<'_>], say: &dyn Fn(&str)) -> Result<(), RepositoryError> {
        let to_fetch: u64 = missing.iter().map(|wanted| wanted.pinned.file_bytes_selected).sum();
        let files: u64 = missing.iter().map(|wanted| wanted.pinned.files_selected).sum();
        // The texts lie here twice while they are put in order.
        let texts: u64 = self.dataset.files.iter().map(|file| file.text_bytes).sum();
        let needed = to_fetch + 2 * texts;
        say(&format!(
            "{} of {} repositories are here; {files} files of {} are to be fetched (packed, they are about a third), then {} of texts are made",
            self.wanted.len() - missing.len(),
            self.wanted.len(),
            size(to_fetch),
            size(texts),
        ));
        let free = system::free_bytes(&self.folder);
        say(&format!(
            "this takes up to {} of disk in {} (more from a server without partial fetches), and 0.5 GB of memory",
            size(needed),
            self.folder.display()
        ));
        match free {
            Some(free) if free < needed => {
                Err(RepositoryError::Room { folder: self.folder.clone(), needed: size(needed), free: size(free) })
            }
            _ => Ok(()),
        }
    }

    /// Makes both texts in `out` from repositories that are here.
    ///
    /// # Errors
    /// The first source or file that is not as the manifest says. What is in `out` is then not whole: the caller removes it.
    pub(crate) fn make(&self, out: &Path, say: &dyn Fn(&str)) -> Result<(), RepositoryError> {
        let mut corpus = Corpus::new(&self.rule, out).map_err(disk)?;
        for (index, wanted) in self.wanted.iter().enumerate() {
            let counts = corpus.add(&wanted.source, &Repository::at(&wanted.folder)).map_err(|error| match error {
                CorpusError::Disk(error) => disk(error),
                CorpusError::Git(source) => {
                    RepositoryError::Unreadable { repo: wanted.pinned.repo.clone(), source, folder: wanted.folder.clone() }
                }
            })?;
            self.same(&wanted.pinned.repo, &counts, &pinned_counts(wanted.pinned))?;
            say(&format!("{}: {} documents ({} of {})", wanted.pinned.repo, counts.documents, index + 1, self.wanted.len()));
        }
        say("putting the documents in order");
        let [train, held_out] = corpus.write(&out.join(TRAIN_FILE), &out.join(VALIDATION_FILE), corpus::SHARD_BYTES).map_err(disk)?;
        for (part, made) in [(Part::Train, train), (Part::Validation, held_out)] {
            let pinned: Vec<_> = self.dataset.files.iter().filter(|file| file.part == part).collect();
            let name = |index: usize| pinned.get(index).map_or("one more file", |file| file.text_name());
            for index in 0..made.len().max(pinned.len()) {
                let found = made.get(index).map(|made| (made.documents, made.bytes, made.sha256.as_str()));
                let expected = pinned.get(index).map(|file| (file.documents, file.text_bytes, file.text_sha256.as_str()));
                self.same(name(index), &found, &expected)?;
            }
        }
        Ok(())
    }

    fn same<T: PartialEq + Describe>(&self, what: &str, found: &T, expected: &T) -> Result<(), RepositoryError> {
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (found.describe(), expected.describe());
        Err(RepositoryError::Other { id: self.dataset.id.to_string(), what: what.to_owned(), found, expected })
    }
}

/// Why one repository did not come.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Git(#[from] GitError),
}

impl FetchError {
    /// What to do about a failure that the next repository would meet, too. A network that fails after others came is taken for one repository's.
    fn stops(&self, nothing_came: bool) -> Option<&'static str> {
        match self {
            Self::File(_) => Some(""),
            Self::Git(error) => match error.cause {
                Cause::NoProgram => Some("it is needed to fetch repositories"),
                Cause::FullDisk => Some("free some space"),
                Cause::Unreachable if nothing_came => {
                    Some("look at the network (a proxy goes in https_proxy), or name another base address with --mirror URL")
                }
                Cause::Unreachable | Cause::Gone | Cause::Other => None,
            },
        }
    }
}

impl Wanted<'_> {
    /// From its own place, or from the copy that the manifest names.
    fn fetch(&self, base: &str) -> Result<(), FetchError> {
        let from = |repo: &str| -> Result<(), FetchError> {
            let address = git::address(base, repo)?;
            folder::make(&self.folder, |aside| Repository::fetch(aside, &address, &self.source).map(drop).map_err(FetchError::from))
        };
        match (from(&self.source.repo), &self.source.copy) {
            (Err(FetchError::Git(error)), Some(copy)) if error.cause == Cause::Gone => from(copy).map_err(|of_copy| match of_copy {
                FetchError::Git(GitError { said, cause, .. }) => {
                    GitError { said: format!("{}; its copy {copy}: {said}", error.said), cause, ..error }.into()
                }
                FetchError::File(_) => of_copy,
            }),
            (outcome, _) => outcome,
        }
    }

    fn lost(&self, error: &FetchError) -> String {
        let Self { pinned, source, .. } = self;
        format!("{} at {} ({error}), which costs {} documents, {}", source.repo, source.commit, pinned.documents, size(pinned.text_bytes))
    }
}

/// Does `work` on each item, some at a time, and tells `done` on this thread as they end; once that says no, no more are begun.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync, mut done: impl FnMut(&T, R) -> bool) {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(items.len()) {
            let (tell, next, stop, work) = (tell.clone(), &next, &stop, &work);
            scope.spawn(move || {
                while let (Some(item), false) = (items.get(next.fetch_add(1, Ordering::Relaxed)), stop.load(Ordering::Relaxed)) {
                    // Whoever listens does so until all have ended.
                    let _ = tell.send((item, work(item)));
                }
            });
        }
        drop(tell);
        for (item, outcome) in told {
            if !done(item, outcome) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
}

fn disk(DiskError { path, action, source }: DiskError) -> RepositoryError {
    FileError { path, action, source }.into()
}

fn pinned_counts(pinned: &dataset::Source) -> Counts {
    Counts {
        files: pinned.files_selected,
        file_bytes: pinned.file_bytes_selected,
        dropped: pinned.dropped.clone(),
        documents: pinned.documents,
        parts: pinned.parts,
        text_bytes: pinned.text_bytes,
    }
}

/// For people: a found or pinned fact.
trait Describe {
    fn describe(&self) -> String;
}

impl Describe for Counts {
    fn describe(&self) -> String {
        let dropped: Vec<String> = self.dropped.iter().map(|(reason, files)| format!("{files} {reason}")).collect();
        let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
        let Self { files, file_bytes, documents, parts, text_bytes, .. } = self;
        format!("{files} files of {file_bytes} bytes (dropped: {dropped}) give {documents} documents in {parts} parts, {text_bytes} bytes")
    }
}

impl Describe for Option<(u64, u64, &str)> {
    fn describe(&self) -> String {
        self.map_or("no such file".to_owned(), |(documents, bytes, sha256)| format!("{documents} parts, {bytes} bytes, SHA-256 {sha256}"))
    }
}

/// For people.
fn size(bytes: u64) -> String {
    match bytes {
        1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
        1_000_000.. => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{bytes} bytes"),
    }
}
