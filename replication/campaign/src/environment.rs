//! What `env.json` says, asked of the system, the compiler and git; and what a copy without git was copied from.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use study::environment::{Cpu, Environment, Flags, GitState, Memory, PrebuiltTrainer, SCHEMA, Source, System, Toolchain};
use study::files::{self, sha256};
use study::plan::Build;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::machine;
use crate::run::RunOptions;
use crate::sources;
use crate::toolchain::{Trainer, captured, cargo};

/// The record of `trainer`, which says that it is `build`.
pub fn prebuilt(trainer: &Trainer, build: &Build) -> PrebuiltTrainer {
    let Build { sources, toolchain, .. } = build.clone();
    PrebuiltTrainer { sha256: files::sha256_file(&trainer.program).ok(), trainer_code: sources, toolchain }
}

/// The same record, at the end of what it describes, with the name that the machine was given.
pub fn finished(environment: &Environment, named: Option<&str>) -> Environment {
    Environment { captured: now().format(&Rfc3339).unwrap_or_default(), named: named.map(str::to_owned), ..environment.clone() }
}

/// Asks the system, the compiler and git. What they do not say is null.
pub fn capture(root: &Path, options: &RunOptions) -> Environment {
    let memory = machine::memory();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let git = git_state(root);
    Environment {
        schema: SCHEMA.to_owned(),
        captured: now().format(&Rfc3339).unwrap_or_default(),
        cpu: cpu(),
        memory: Memory { total_bytes: memory.total, control_group_limit_bytes: memory.limit },
        system: System { name: std::env::consts::OS.to_owned(), kernel: machine::kernel(), container: machine::container() },
        toolchain: Toolchain {
            rustc: machine::ask(&rustc, &["-vV"]),
            cargo: machine::ask(&cargo().to_string_lossy(), &["-V"]),
            rustflags: rustflags(),
        },
        source: Source {
            commit: git.commit,
            dirty: git.dirty,
            diff_sha256: git.diff_sha256,
            lock_sha256: files::sha256_file(&root.join("Cargo.lock")).ok(),
        },
        flags: flags(options),
        device_libraries: Vec::new(),
        accelerators: Vec::new(),
        prebuilt_trainer: None,
        named: None,
    }
}

pub(crate) fn cpu() -> Cpu {
    Cpu {
        model: machine::cpu_model(),
        architecture: std::env::consts::ARCH.to_owned(),
        logical_cores: machine::cores(),
        instruction_sets: machine::instruction_sets().into_iter().map(str::to_owned).collect(),
    }
}

pub(crate) fn flags(options: &RunOptions) -> Flags {
    Flags { threads_per_run: options.threads, instruction_set: options.instruction_set.clone(), parallel_runs: options.parallel }
}

/// Flags that the environment hands the compiler: they may change code, so they are written down, without folders.
fn rustflags() -> Option<String> {
    let encoded = std::env::var("CARGO_ENCODED_RUSTFLAGS").map(|flags| flags.replace('\u{1f}', " "));
    let flags = encoded.or_else(|_| std::env::var("RUSTFLAGS")).ok()?;
    (!flags.trim().is_empty()).then(|| without_folders(&flags))
}

/// Every absolute path becomes `<folder>`.
fn without_folders(flags: &str) -> String {
    let blank = |word: &str| {
        let start = word.split_inclusive(['=', ':', ',']).scan(0, |at, part| {
            let here = *at;
            *at += part.len();
            Some((here, part))
        });
        let path = start.into_iter().find(|(_, part)| part.starts_with(['/', '~', '\\']));
        path.map_or_else(|| word.to_owned(), |(at, _)| format!("{}<folder>", &word[..at]))
    };
    flags.split_whitespace().map(blank).collect::<Vec<_>>().join(" ")
}

/// VERSION: what a copy without `.git` was copied from. Written by `cargo xtask pack`, or by hand: `cargo xtask version > VERSION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// `mxfp4-version/1`.
    pub schema: String,
    /// Git commit, or `none`.
    pub commit: String,
    /// Whether files differed from it.
    pub dirty: bool,
    /// SHA-256 of the difference.
    pub diff_sha256: Option<String>,
    /// Hash of the trainer's sources; null where they were not at hand.
    pub trainer_code: Option<String>,
}

const VERSION_SCHEMA: &str = "mxfp4-version/1";

impl Version {
    /// Of the tree at `root`.
    pub fn of(root: &Path) -> Self {
        let GitState { commit, dirty, diff_sha256 } = git_state(root);
        Self { schema: VERSION_SCHEMA.to_owned(), commit, dirty, diff_sha256, trainer_code: sources::hash(root).ok() }
    }

    /// For people.
    pub fn line(&self) -> String {
        let commit = match self.commit.as_str() {
            "none" => "no commit is known".to_owned(),
            commit => format!("{}{}", commit.chars().take(8).collect::<String>(), if self.dirty { ", with changes" } else { "" }),
        };
        format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
    }

    pub fn json(&self) -> String {
        // Strings and a truth value: cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The VERSION of a copy. Sources that are not those it speaks of make it dirty.
    fn read(root: &Path) -> Option<Self> {
        let mut version: Self = serde_json::from_str(&std::fs::read_to_string(root.join("VERSION")).ok()?).ok()?;
        let here = sources::hash(root).ok();
        version.dirty |= here.is_some() && version.trainer_code.is_some() && here != version.trainer_code;
        (version.schema == VERSION_SCHEMA).then_some(version)
    }
}

/// Said where neither git nor VERSION names a commit.
pub const NO_COMMIT: &str = "no commit is known: this is a copy without .git and without a VERSION file, so the record says `none`; \
`cargo xtask pack` makes copies that know theirs, and `cargo xtask version > VERSION` in the repository writes the file for another copy";

/// Asks git about the work tree at `root`; a copy that is none says what its VERSION says.
pub fn git_state(root: &Path) -> GitState {
    if !root.join(".git").exists()
        && let Some(Version { commit, dirty, diff_sha256, .. }) = Version::read(root)
    {
        return GitState { commit, dirty, diff_sha256 };
    }
    let git = |arguments: &[&str]| git(root, arguments);
    let commit = git(&["rev-parse", "HEAD"]).map(|text| String::from_utf8_lossy(&text).trim().to_owned()).filter(|text| !text.is_empty());
    let Some(commit) = commit else { return GitState { commit: "none".to_owned(), dirty: false, diff_sha256: None } };
    // Results are what the tree makes, not what it is.
    let changed = git(&["status", "--porcelain", "--", ".", ":!results"]).is_none_or(|text| !text.is_empty());
    let diff = git(&["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "HEAD", "--", ".", ":!results"])
        .filter(|text| !text.is_empty());
    GitState { commit, dirty: changed, diff_sha256: diff.map(|text| sha256(&text)) }
}

/// What git says at `root`; none where it fails or is not there.
fn git(root: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let command = duct::cmd("git", arguments).dir(root).stdin_null().stderr_null().stdout_capture().unchecked();
    // A look must not take the index lock from someone who works in the tree.
    let output = captured(&command.env("GIT_OPTIONAL_LOCKS", "0")).ok()?;
    output.status.success().then_some(output.stdout)
}

/// The result directories below `results/` that git holds; those that are there at all where there is no git.
pub fn committed_results(root: &Path) -> Vec<PathBuf> {
    let results = root.join("results");
    let held = git(root, &["ls-files", "-z", "--", "results/*/campaign.json"]).filter(|_| root.join(".git").exists());
    let folders: Vec<PathBuf> = match held {
        Some(names) => String::from_utf8_lossy(&names).split('\0').filter_map(|name| Some(root.join(Path::new(name).parent()?))).collect(),
        None => std::fs::read_dir(&results).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect(),
    };
    // What is being put together has a dot before its name.
    let is_whole = |folder: &PathBuf| folder.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
    let is_there = |folder: &PathBuf| folder.parent() == Some(&results) && folder.join("campaign.json").is_file();
    folders.into_iter().filter(|folder| is_whole(folder) && is_there(folder)).collect()
}

/// Now, in whole seconds.
pub fn now() -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now)
}

/// Today's date, UTC: `2026-05-09`.
pub fn today() -> String {
    now().date().to_string()
}

/// The name of this machine for a result directory, where it is not that of a GPU.
pub fn machine_name() -> String {
    cpu().machine()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RunOptions {
        RunOptions { parallel: 2, threads: 1, instruction_set: "auto".to_owned(), fresh: false }
    }

    fn git(root: &Path, arguments: &[&str]) {
        let identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"];
        duct::cmd("git", identity.iter().chain(arguments)).dir(root).stdout_null().stderr_null().run().unwrap();
    }

    #[test]
    fn a_changed_tree_is_dirty_and_says_by_what() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(git_state(root.path()).commit, "none");
        std::fs::write(root.path().join("a"), "one\n").unwrap();
        git(root.path(), &["init", "-q"]);
        git(root.path(), &["add", "a"]);
        git(root.path(), &["commit", "-qm", "first"]);
        let clean = git_state(root.path());
        assert_eq!((clean.commit.len(), clean.dirty, clean.diff_sha256), (40, false, None));
        std::fs::write(root.path().join("b"), "new\n").unwrap();
        let unknown = git_state(root.path());
        assert_eq!((unknown.dirty, unknown.diff_sha256), (true, None));
        std::fs::write(root.path().join("a"), "two\n").unwrap();
        let diff = duct::cmd!("git", "diff", "HEAD", "--binary").dir(root.path()).stdout_capture().run().unwrap().stdout;
        assert_eq!(git_state(root.path()).diff_sha256, Some(sha256(&diff)));
    }

    #[test]
    fn committed_results_are_those_that_git_holds() {
        let root = tempfile::tempdir().unwrap();
        for file in [
            "results/ours/campaign.json",
            "results/theirs/campaign.json",
            "results/theirs/runs/campaign.json",
            "results/kernels/a",
            "results/.ours.partial/campaign.json",
        ] {
            files::write(&root.path().join(file), b"{}").unwrap();
        }
        let names = || {
            let mut names: Vec<_> = committed_results(root.path()).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["ours", "theirs"], "a copy without git");
        git(root.path(), &["init", "-q"]);
        git(root.path(), &["add", "results/theirs", "results/kernels"]);
        git(root.path(), &["commit", "-qm", "first"]);
        assert_eq!(names(), ["theirs"]);
    }

    #[test]
    fn a_copy_says_what_its_version_file_says() {
        let root = tempfile::tempdir().unwrap();
        let version = Version {
            schema: VERSION_SCHEMA.into(),
            commit: "c".repeat(40),
            dirty: false,
            diff_sha256: None,
            trainer_code: Some("x".into()),
        };
        std::fs::write(root.path().join("VERSION"), version.json()).unwrap();
        assert_eq!(git_state(root.path()), GitState { commit: "c".repeat(40), dirty: false, diff_sha256: None });
        assert_eq!(Version::of(root.path()).commit, "c".repeat(40));
        // Other sources than those that VERSION speaks of.
        let inside = sources::FOLDERS.map(|folder| format!("{folder}/lib.rs"));
        for file in sources::FILES.map(str::to_owned).into_iter().chain(inside).chain(["kernels/gfx950/gemm.hip".to_owned()]) {
            files::write(&root.path().join(file), b"").unwrap();
        }
        assert!(git_state(root.path()).dirty);
        std::fs::write(root.path().join("VERSION"), "{}").unwrap();
        assert_eq!(git_state(root.path()).commit, "none");
    }

    #[test]
    fn nothing_private_is_written_down() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("Cargo.lock"), "").unwrap();
        let environment = capture(root.path(), &options());
        let text = serde_json::to_string(&environment).unwrap();
        let home = std::env::var("HOME").unwrap_or_default();
        let host = machine::ask("uname", &["-n"]).unwrap_or_default();
        for private in [root.path().to_string_lossy().as_ref(), home.as_str(), host.as_str()] {
            // A host named `a` or `linux` would be found in any text.
            assert!(private.len() < 6 || !text.contains(private), "{private} in {text}");
        }
        assert!(
            environment.toolchain.rustc.as_ref().is_some_and(|text| text.starts_with("rustc 1.") && text.contains("LLVM version:")),
            "{text}"
        );
        assert_eq!(environment.source.lock_sha256.as_deref(), Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), environment);
    }

    #[test]
    fn folders_in_compiler_flags_are_blanked() {
        let flags = "-C target-cpu=native --remap-path-prefix=/home/me/x=src -L /opt/lib -Clinker=/usr/bin/ld";
        assert_eq!(without_folders(flags), "-C target-cpu=native --remap-path-prefix=<folder> -L <folder> -Clinker=<folder>");
    }
}
