//! The `git` program: one commit without its history, and of its files those that are taken, in a bare repository. Nothing is checked out.
//!
//! What git runs sees no setting of the user or the system, no hook, no prompt, and no protocol but https and file. Objects are named by their
//! hashes, and git checks each as it arrives: an address that lies gives nothing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;

use crate::source::Source;

/// Where repositories are published.
pub const GITHUB: &str = "https://github.com";

/// No hooks, no clean-up in the background, no passwords; a connection that gives nothing for a minute is given up.
const SETTINGS: [&str; 7] = [
    "core.hooksPath=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "credential.helper=",
    "protocol.version=2",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
];

/// What is behind a failure, as far as git says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There is no such program.
    NoProgram,
    /// The repository or the commit is not there (any more).
    Gone,
    /// Nothing answers.
    Unreachable,
    FullDisk,
    Other,
}

/// git failed.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {said}")]
pub struct GitError {
    pub action: &'static str,
    /// What it said, in one line.
    pub said: String,
    pub cause: Cause,
}

/// Parts of what git says, and what they mean.
const MEANINGS: [(&str, Cause); 22] = [
    ("No space left on device", Cause::FullDisk),
    ("Disk quota exceeded", Cause::FullDisk),
    ("Could not resolve", Cause::Unreachable),
    ("Failed to connect", Cause::Unreachable),
    ("Couldn't connect", Cause::Unreachable),
    ("Could not connect", Cause::Unreachable),
    ("Connection refused", Cause::Unreachable),
    ("Connection timed out", Cause::Unreachable),
    ("Connection reset", Cause::Unreachable),
    ("Network is unreachable", Cause::Unreachable),
    ("Operation too slow", Cause::Unreachable),
    ("SSL certificate", Cause::Unreachable),
    ("error: 407", Cause::Unreachable),
    ("could not read Username", Cause::Gone),
    ("Authentication failed", Cause::Gone),
    ("not found", Cause::Gone),
    ("does not appear to be a git repository", Cause::Gone),
    ("does not exist", Cause::Gone),
    ("not our ref", Cause::Gone),
    ("unadvertised object", Cause::Gone),
    ("couldn't find remote ref", Cause::Gone),
    ("no such remote ref", Cause::Gone),
];

impl GitError {
    fn new(action: &'static str, said: &str, cause: Option<Cause>) -> Self {
        let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
        // What follows each failure, whatever it is.
        let telling = |line: &&str| {
            ["fatal:", "error:", "remote:"].iter().any(|word| line.starts_with(word))
                && !line.ends_with("Could not read from remote repository.")
        };
        let told: Vec<&str> = lines().filter(telling).collect();
        let told = if told.is_empty() { lines().next_back().unwrap_or("it said nothing").to_owned() } else { told.join(" ") };
        let clean: String = told.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
        let meant = || MEANINGS.iter().find(|(part, _)| said.contains(part)).map_or(Cause::Other, |(_, cause)| *cause);
        Self { action, said: clean, cause: cause.unwrap_or_else(meant) }
    }

    fn start(action: &'static str, error: &io::Error) -> Self {
        let cause = if error.kind() == io::ErrorKind::NotFound { Cause::NoProgram } else { Cause::Other };
        Self::new(action, &format!("cannot start git: {error}; install git, it is a package on every system"), Some(cause))
    }
}

/// Where a repository is to be had below a base address.
///
/// # Errors
/// An address that is neither https nor a folder.
pub fn address(base: &str, repo: &str) -> Result<String, GitError> {
    if !(base.starts_with("https://") || base.starts_with("file://")) || base.chars().any(|c| c.is_control() || c == ' ') {
        let said = format!("`{}` is no base address: it begins with https:// or file://, without spaces", base.escape_debug());
        return Err(GitError::new("--mirror", &said, Some(Cause::Other)));
    }
    Ok(format!("{}/{repo}", base.trim_end_matches('/')))
}

/// A file of a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blob {
    /// With `/` between its parts.
    pub path: Vec<u8>,
    /// Its hash, in hexadecimal digits.
    id: String,
}

/// A bare repository.
#[derive(Debug)]
pub struct Repository {
    folder: PathBuf,
}

impl Repository {
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Makes a repository in a folder that is empty, with a source's commit, its trees and the files that are taken, from an address.
    ///
    /// # Errors
    /// What git says, or files that the address does not have.
    pub fn fetch(folder: &Path, address: &str, source: &Source) -> Result<Self, GitError> {
        let repository = Self::at(folder);
        repository.run("making a repository", ["init", "--quiet", "--bare", "--template="], b"")?;
        repository.run("naming the repository's address", ["remote", "add", "origin", address], b"")?;
        const FETCH: [&str; 6] =
            ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none"];
        let commit = ["--depth=1", "origin", &source.commit];
        repository.run("fetching the commit", FETCH.iter().chain(&commit), b"")?;
        let files = repository.files(source)?;
        let missing = repository.lacks(&files)?;
        if !missing.is_empty() {
            // As git does when a partial clone is checked out: all at once, without talking about what is here.
            let wanted = missing.join("\n") + "\n";
            let blobs = ["-c", "fetch.negotiationAlgorithm=noop"].iter().chain(&FETCH).chain(&["--stdin", "origin"]);
            repository.run("fetching the files", blobs, wanted.as_bytes())?;
        }
        repository.check(&files)?;
        Ok(repository)
    }

    /// Whether everything that a source takes is here.
    ///
    /// # Errors
    /// A commit that cannot be read, or how many files are missing.
    pub fn is_whole(&self, source: &Source) -> Result<(), GitError> {
        self.check(&self.files(source)?)
    }

    fn check(&self, files: &[Blob]) -> Result<(), GitError> {
        match self.lacks(files)?.len() {
            0 => Ok(()),
            missing => {
                let said = format!("{missing} of {} files did not come: that address does not have them", files.len());
                Err(GitError::new("fetching the files", &said, Some(Cause::Gone)))
            }
        }
    }

    /// Step 1: plain files of the commit that the source takes, by path.
    pub fn files(&self, source: &Source) -> Result<Vec<Blob>, GitError> {
        const ACTION: &str = "listing the commit's files";
        let listing = self.run(ACTION, ["ls-tree", "-r", "-z", "--full-tree", &source.commit], b"")?;
        let mut files = Vec::new();
        for entry in listing.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let parsed = || {
                let tab = entry.iter().position(|byte| *byte == b'\t')?;
                let mut words = std::str::from_utf8(&entry[..tab]).ok()?.split(' ');
                Some((words.next()?, words.next()?, words.next()?, &entry[tab + 1..]))
            };
            let (mode, kind, id, path) = parsed().ok_or_else(|| GitError::new(ACTION, "an answer that cannot be read", None))?;
            // Links are blobs, too; submodules are commits.
            if kind == "blob" && mode.starts_with("100") && source.takes(path) {
                files.push(Blob { path: path.to_vec(), id: id.to_owned() });
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Ids that are not here, each once. Nothing is fetched to find out.
    fn lacks<'a>(&self, files: &'a [Blob]) -> Result<Vec<&'a str>, GitError> {
        let here = self.run("listing what is here", ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], b"")?;
        let here: HashSet<&[u8]> = here.split(|byte| *byte == b'\n').collect();
        let mut missing: Vec<&str> = files.iter().map(|file| file.id.as_str()).filter(|id| !here.contains(id.as_bytes())).collect();
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }

    /// The bytes of files, one after the other.
    pub fn read(&self, files: &[Blob]) -> Result<Reader, GitError> {
        let mut child = self.command(["cat-file", "--batch"]).spawn().map_err(|error| GitError::start(READING, &error))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(GitError::new(READING, "git was started without its pipes", None));
        };
        let ids: Vec<String> = files.iter().map(|file| file.id.clone()).collect();
        let asking = std::thread::spawn(move || {
            let mut stdin = BufWriter::new(stdin);
            // A git that ends early is noticed where its answers are read.
            let _ = ids.iter().try_for_each(|id| writeln!(stdin, "{id}")).and_then(|()| stdin.flush());
        });
        Ok(Reader { child, answers: BufReader::with_capacity(1 << 16, stdout), asking })
    }

    fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            // The way to a proxy's certificate stays; whatever else would change what git does goes.
            let name_text = name.to_string_lossy();
            if (name_text.starts_with("GIT_") && !matches!(&*name_text, "GIT_SSL_CAINFO" | "GIT_SSL_CAPATH" | "GIT_EXEC_PATH"))
                || name_text == "SSH_ASKPASS"
                || name_text.starts_with("XDG_")
            {
                command.env_remove(&name);
            }
        }
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("HOME", ".")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("GIT_ALLOW_PROTOCOL", "https:file")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_DIR", ".")
            .env("LC_ALL", "C");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What git answers to `input`, which is short or read by git before it answers.
    fn run(&self, action: &'static str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &[u8]) -> Result<Vec<u8>, GitError> {
        let mut child = self.command(arguments).spawn().map_err(|error| GitError::start(action, &error))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A git that ends early says why itself.
            let _ = stdin.write_all(input);
        }
        let Output { status, stdout, stderr } = child.wait_with_output().map_err(|error| GitError::start(action, &error))?;
        if status.success() { Ok(stdout) } else { Err(GitError::new(action, &String::from_utf8_lossy(&stderr), None)) }
    }
}

const READING: &str = "reading the files";

/// Answers of `git cat-file --batch`, in the order of the questions.
pub struct Reader {
    child: Child,
    answers: BufReader<ChildStdout>,
    asking: JoinHandle<()>,
}

impl Reader {
    /// The next file's size, and its bytes up to `most`.
    pub(crate) fn next(&mut self, most: usize) -> Result<(u64, Vec<u8>), GitError> {
        let failed = |error: io::Error| GitError::new(READING, &error.to_string(), None);
        let mut header = String::new();
        self.answers.read_line(&mut header).map_err(failed)?;
        let size = header.trim_end().split_once(" blob ").and_then(|(_, size)| size.parse::<u64>().ok());
        let size = size.ok_or_else(|| GitError::new(READING, &format!("`{}` instead of a file", header.trim_end()), None))?;
        let kept = size.min(most as u64);
        let mut bytes = Vec::with_capacity(kept as usize);
        self.answers.by_ref().take(kept).read_to_end(&mut bytes).map_err(failed)?;
        // What is left of it, and the line feed after it.
        let rest = size - bytes.len() as u64 + 1;
        if io::copy(&mut self.answers.by_ref().take(rest), &mut io::sink()).map_err(failed)? != rest {
            return Err(GitError::new(READING, "git ended in the middle of a file", None));
        }
        Ok((size, bytes))
    }

    /// After the last file.
    pub(crate) fn end(mut self) -> Result<(), GitError> {
        let _ = self.asking.join();
        drop(self.answers);
        let status = self.child.wait().map_err(|error| GitError::start(READING, &error))?;
        if status.success() { Ok(()) } else { Err(GitError::new(READING, &format!("git ended with {status}"), None)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As git 2.47 says it, with what it says before and after.
    #[test]
    fn what_git_says_is_told_in_a_line_with_its_cause() {
        let cases = [
            ("fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com\n", Cause::Unreachable),
            (
                "fatal: unable to access 'https://x/a/b/': Failed to connect to x port 443 after 2 ms: Could not connect to server",
                Cause::Unreachable,
            ),
            ("fatal: could not read Username for 'https://github.com': terminal prompts disabled\n", Cause::Gone),
            ("remote: Repository not found.\nfatal: repository 'https://github.com/a/b/' not found\n", Cause::Gone),
            ("error: Server does not allow request for unadvertised object 0123\n", Cause::Gone),
            ("fatal: remote error: upload-pack: not our ref 0123\n", Cause::Gone),
            ("error: file write error: No space left on device\nfatal: unable to write loose object file\n", Cause::FullDisk),
            ("fatal: early EOF\nfatal: fetch-pack: invalid index-pack output\n", Cause::Other),
            ("", Cause::Other),
        ];
        for (said, cause) in cases {
            let error = GitError::new("fetching the commit", said, None);
            assert_eq!(error.cause, cause, "{said}");
            assert!(!error.to_string().contains('\n') && error.to_string().len() > "fetching the commit: ".len(), "{error}");
        }
        let error = GitError::new(
            "fetching the commit",
            "hint: x\nfatal: 'a' is none\nfatal: Could not read from remote repository.\n\nPlease\n",
            None,
        );
        assert_eq!(error.to_string(), "fetching the commit: fatal: 'a' is none");
        let long = GitError::new("fetching the commit", &format!("fatal: {}\u{1b}[2J", "x".repeat(10_000)), None);
        assert!(long.to_string().len() < 500 && !long.to_string().contains('\u{1b}'));
    }
}
