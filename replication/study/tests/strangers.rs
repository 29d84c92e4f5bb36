//! Directories that somebody else made: what no result directory holds is refused before any of it is used.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::{sealed, synthetic};
use lzma_rust2::{XzOptions, XzWriter};
use study::compare::compare;
use study::files;
use study::mllog;
use study::packed;
use study::provenance;
use study::render::{RenderOptions, render};
use study::results;
use study::verify::verify;

/// One that nothing is wrong with; the others are copies of it.
static SOUND: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    sealed::write(directory.path());
    directory
});

fn sound() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in files::list(SOUND.path()).unwrap() {
        files::copy(&SOUND.path().join(&name), &copy.path().join(&name)).unwrap();
    }
    copy
}

fn replace(path: &Path, with: impl FnOnce(&Path)) {
    let _ = fs::remove_file(path);
    with(path);
}

/// Every reader refuses it, names it, and is done at once.
fn refused(directory: &Path, name: &str) {
    let start = Instant::now();
    let out = tempfile::tempdir().unwrap();
    let verification = verify(directory, None, None).unwrap();
    assert!(verification.findings.iter().any(|finding| finding.path.contains(name)), "{name}: {verification}");
    let errors = [
        results::admit(directory).map(|_| ()).unwrap_err().to_string(),
        compare(directory, SOUND.path()).map(|_| ()).unwrap_err().to_string(),
        compare(SOUND.path(), directory).map(|_| ()).unwrap_err().to_string(),
        mllog::export(directory, &out.path().join("out")).map(|_| ()).unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains(name), "{name}: {error}");
    }
    assert!(!out.path().join("out").exists());
    assert!(start.elapsed() < Duration::from_secs(20), "{name} took {:?}", start.elapsed());
}

#[test]
fn links_pipes_and_unknown_names_are_refused() {
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("secret"), "a secret").unwrap();
    type Case = (&'static str, fn(&Path, &Path));
    let cases: [Case; 9] = [
        ("runs/fp8/1/run.mllog", |path, elsewhere| replace(path, |path| symlink(elsewhere.join("secret"), path).unwrap())),
        ("measurements/step_time.jsonl", |path, _| replace(path, |path| symlink("/dev/zero", path).unwrap())),
        ("campaign.json", |path, _| replace(path, |path| assert!(duct::cmd!("mkfifo", path).run().is_ok()))),
        ("data", |path, elsewhere| {
            fs::remove_dir_all(path).unwrap();
            symlink(elsewhere, path).unwrap();
        }),
        (".latexmkrc", |path, _| fs::write(path, "system('id')").unwrap()),
        ("booktabs.sty", |path, _| fs::write(path, "").unwrap()),
        ("runs/fp8/01/run.yaml", |path, _| files::write(path, b"").unwrap()),
        ("tables/-x.tex", |path, _| fs::write(path, "").unwrap()),
        ("a\\nverified", |path, _| fs::write(path.with_file_name("a\nverified"), "").unwrap()),
    ];
    for (name, change) in cases {
        let directory = sound();
        change(&directory.path().join(name), elsewhere.path());
        refused(directory.path(), name);
    }
    assert_eq!(files::list(elsewhere.path()).unwrap(), ["secret"]);
}

/// An id that is a path, wherever a file may hold one, leads nowhere.
#[test]
fn ids_are_plain_names() {
    let evil = "x/../../outside/evil";
    let cases = [
        ("campaign.json", "\"profile\": \"cpu\"", "profile"),
        ("campaign.json", "\"arm\": \"fp8\"", "arm"),
        ("campaign.json", "\"machine\": \"a-2c\"", "machine"),
        ("runs/bf16/1/run.yaml", "arm: bf16", "arm"),
        ("runs/bf16/1/run.yaml", "profile: cpu", "profile"),
        ("manifests/profile.yaml", "id: cpu", "id"),
        ("manifests/hardware.yaml", "id: cpu", "id"),
        ("manifests/recipes/fp8.yaml", "id: fp8", "id"),
        ("manifests/papers/2605.09825.yaml", "id: \"2605.09825\"", "id"),
        ("manifests/papers/2605.09825.yaml", "id: T1-FDW", "id"),
        ("manifests/papers/2605.09825.yaml", "url: \"https://arxiv.org/abs/2605.09825\"", "url"),
    ];
    for (file, word, key) in cases {
        let directory = sound();
        let path = directory.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(word), "{file} has no {word}");
        let (before, _) = word.split_once(key).unwrap();
        let with = if file.ends_with("json") { format!("{before}{key}\": \"{evil}\"") } else { format!("{before}{key}: {evil}") };
        fs::write(&path, text.replacen(word, &with, 1)).unwrap();
        let out = tempfile::tempdir().unwrap();
        let said = [
            render(directory.path(), &synthetic::repository().join("paper"), &RenderOptions::default())
                .map(|_| ())
                .map_err(|e| e.to_string()),
            compare(directory.path(), SOUND.path()).map(|_| ()).map_err(|e| e.to_string()),
            mllog::export(directory.path(), &out.path().join("a/b/out")).map(|_| ()).map_err(|e| e.to_string()),
        ];
        assert!(said.iter().any(|said| said.as_ref().is_err_and(|why| why.contains("evil"))), "{file} {key}: {said:?}");
        let written = files::list(out.path()).unwrap();
        assert!(written.iter().all(|name| name.starts_with("a/b/out/")), "{written:?}");
        assert!(!directory.path().parent().unwrap().join("outside").exists());
        assert!(!verify(directory.path(), None, None).unwrap().holds());
    }
}

#[test]
fn what_is_larger_than_any_of_ours_is_refused_while_it_is_read() {
    let directory = sound();
    fs::File::options().write(true).open(directory.path().join("runs/fp8/1/metrics.jsonl")).unwrap().set_len(20 << 30).unwrap();
    refused(directory.path(), "runs/fp8/1/metrics.jsonl");
    // Each is short, and all are within the limit of one: together they are not.
    let directory = sound();
    assert!(packed::pack(directory.path(), 0).unwrap());
    let mut long = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    long.write_all(&vec![b'\n'; 60 << 20]).unwrap();
    let long = long.finish().unwrap();
    for name in files::list(directory.path()).unwrap().iter().filter(|name| name.ends_with("metrics.jsonl.xz")) {
        fs::write(directory.path().join(name), &long).unwrap();
    }
    assert!(results::admit(directory.path()).unwrap_err().to_string().contains("metrics.jsonl.xz"));
    // A document's reader has a limit of its own.
    let directory = sound();
    fs::write(directory.path().join("manifests/profile.yaml"), "[".repeat(200_000)).unwrap();
    let start = Instant::now();
    assert!(compare(directory.path(), directory.path()).map(|_| ()).unwrap_err().to_string().contains("brackets"));
    assert!(!verify(directory.path(), None, None).unwrap().holds() && start.elapsed() < Duration::from_secs(20));
}

/// What a list of hashes names outside its folder is not opened: reading a kernel's log, or a pipe, might never end.
#[test]
fn a_list_of_hashes_names_nothing_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("outside"), "outside").unwrap();
    let (inside, hash) = (folder.path().join("D"), files::sha256(b"outside"));
    for name in ["../outside", "/proc/kmsg", "a/../../outside", &folder.path().join("outside").display().to_string()] {
        files::write(&inside.join("SHA256SUMS"), format!("{hash}  {name}\n").as_bytes()).unwrap();
        let why = provenance::changed(&inside).unwrap();
        assert!(why.contains("lies elsewhere"), "{name}: {why}");
    }
}
