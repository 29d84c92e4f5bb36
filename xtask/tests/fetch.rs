//! `cargo xtask data fetch webdocs --mirror file://...` as a user meets it: a dataset of two documents, in an environment that would lead git
//! elsewhere, without git, and without a network.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use study::files::sha256;
use tempfile::TempDir;

/// doc1.md is trained on and doc71.md is held out, by their names' hashes.
struct World {
    folder: TempDir,
}

fn line(what: &str) -> String {
    format!("The line about {what} goes on, {}it ends.", "and on, ".repeat(60))
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        let documents = [("doc1.md", line("one")), ("doc71.md", line("two"))];
        let repository = world.path("mirror/made/words");
        std::fs::create_dir_all(&repository).unwrap();
        for (name, text) in &documents {
            std::fs::write(repository.join(name), format!("# {text}\r\n\r\n<b>{text}</b>\r\n")).unwrap();
        }
        let git = |arguments: &[&str]| {
            let nobody = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "core.autocrlf=false"];
            let output = Command::new("git").args(nobody).args(arguments).current_dir(&repository).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "--quiet"]);
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message=made"]);
        super::command_line::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests"), &world.path("root/manifests"));
        world.describe(&git(&["rev-parse", "HEAD"]), &documents.map(|(_, text)| format!("# {text}\0")));
        world
    }

    /// The same line a second time is dropped, so a document is its heading.
    fn describe(&self, commit: &str, [train, held_out]: &[String; 2]) {
        let path = self.path("root/manifests/datasets/webdocs.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once("\nfiles:").unwrap();
        let extraction = &rest[rest.find("\nextraction:").unwrap()..rest.find("\nsources:").unwrap()];
        let file = |name: &str, text: &str| {
            let (bytes, hash) = (text.len(), sha256(text.as_bytes()));
            format!("{{name: {name}, documents: 1, bytes: {bytes}, sha256: {hash}, text_bytes: {bytes}, text_sha256: {hash}")
        };
        let files = format!("  - {}, part: train}}\n  - {}, part: validation}}", file("train.000", train), file("validation", held_out));
        let corpus = format!("{{train_sha256: {}, validation_sha256: {}}}", sha256(train.as_bytes()), sha256(held_out.as_bytes()));
        let bytes = train.len() + held_out.len() - 2;
        let in_the_repository: u64 = ["doc1.md", "doc71.md"]
            .map(|name| std::fs::metadata(self.path("mirror/made/words").join(name)).unwrap().len())
            .into_iter()
            .sum();
        let sources = format!(
            "  - {{repo: made/words, commit: {commit}, licence: none, mode: md, prefixes: [''], suffixes: [.md], exclude: [], files_selected: 2, \
             file_bytes_selected: {in_the_repository}, dropped: {{}}, documents: 2, parts: 2, text_bytes: {bytes}}}"
        );
        std::fs::write(&path, format!("{head}\nfiles:\n{files}\ncorpus: {corpus}{extraction}\nsources:\n{sources}\n")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn xtask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(arguments).env("CARGO_MANIFEST_DIR", self.path("root/xtask"));
        command
    }

    fn fetch(&self) -> Command {
        let mirror = format!("file://{}", self.path("mirror").display());
        self.xtask(&["data", "fetch", "webdocs", "--mirror", &mirror])
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn repositories_become_a_dataset_whatever_git_is_told_elsewhere() {
    let world = World::new();
    // What would lead elsewhere, or run something.
    let (home, ran) = (world.path("home"), world.path("ran"));
    let hook = format!("#!/bin/sh\ntouch {}\n", ran.display());
    for hooks in ["home/template/hooks", "home/hooks"] {
        std::fs::create_dir_all(world.path(hooks)).unwrap();
        for name in ["reference-transaction", "post-checkout"] {
            let path = world.path(hooks).join(name);
            std::fs::write(&path, &hook).unwrap();
            #[cfg(unix)]
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    let elsewhere = format!(
        "[url \"file:///nowhere/\"]\n insteadOf = file://\n[core]\n hooksPath = {0}/hooks\n[init]\n templateDir = {0}/template\n[protocol]\n allow = never\n",
        home.display()
    );
    std::fs::write(home.join(".gitconfig"), elsewhere).unwrap();
    let output = world
        .fetch()
        .env("HOME", &home)
        .env("GIT_DIR", "/nowhere")
        .env("GIT_OBJECT_DIRECTORY", "/nowhere")
        .env("GIT_TEMPLATE_DIR", home.join("template"))
        .envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "url.file:///nowhere/.insteadOf"), ("GIT_CONFIG_VALUE_0", "file://")])
        .output()
        .unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("webdocs: here; ") && text.contains("fetched made/words (1 of 1)"), "{text}");
    assert!(!ran.exists(), "a hook ran");
    let corpus = world.path("root/cache/datasets/webdocs/corpus");
    assert_eq!(std::fs::read_to_string(corpus.join("train.txt")).unwrap(), format!("# {}\0", line("one")));
    assert_eq!(std::fs::read_to_string(corpus.join("validation.txt")).unwrap(), format!("# {}\0", line("two")));
    for (command, words) in [("list", "here: train.txt\n"), ("verify", "here: train.txt, hash as pinned\n")] {
        let output = world.xtask(&["data", command]).output().unwrap();
        assert!(output.status.success() && said(&output).contains(words), "{}", said(&output));
    }
}

#[test]
fn without_git_the_machine_cannot_and_without_an_answer_the_network_is_named() {
    let world = World::new();
    let empty = world.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = world.fetch().env("PATH", &empty).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("cannot start git: ") && text.contains("install git"), "{text}");
    // Nothing listens there.
    let output = world.xtask(&["data", "fetch", "webdocs", "--mirror", "https://127.0.0.1:9"]).env("no_proxy", "*").output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("look at the network") && text.contains("0 of 1 repositories are here and stay"), "{text}");
    let output = world.xtask(&["data", "fetch", "webdocs", "--mirror", "http://127.0.0.1:9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(world.fetch().output().unwrap().status.success());
}
