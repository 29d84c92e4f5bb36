//! Directories that somebody else made: what no result directory holds is refused before any of it is used.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

mod sealed;
mod synthetic;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use study::compare::compare;
use study::files;
use study::mllog;
use study::packed;
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
    let verification = verify(directory, None).unwrap();
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

#[test]
fn what_is_larger_than_any_of_ours_is_refused_while_it_is_read() {
    let directory = sound();
    fs::File::options().write(true).open(directory.path().join("runs/fp8/1/metrics.jsonl")).unwrap().set_len(20 << 30).unwrap();
    refused(directory.path(), "runs/fp8/1/metrics.jsonl");
    // Each is short, and all are within the limit of one: together they are not.
    let directory = sound();
    let log = directory.path().join("runs/fp8/1/metrics.jsonl");
    fs::write(&log, vec![b'\n'; 1 << 20]).unwrap();
    assert!(packed::pack(directory.path(), 0).unwrap());
    let one = fs::read(packed::name(&log)).unwrap();
    for name in files::list(directory.path()).unwrap().iter().filter(|name| name.ends_with("metrics.jsonl.xz")) {
        fs::write(directory.path().join(name), one.repeat(60)).unwrap();
    }
    assert!(results::admit(directory.path()).unwrap_err().to_string().contains("metrics.jsonl.xz"));
    // A document's reader has a limit of its own.
    let directory = sound();
    fs::write(directory.path().join("manifests/profile.yaml"), "[".repeat(200_000)).unwrap();
    let start = Instant::now();
    assert!(compare(directory.path(), directory.path()).map(|_| ()).unwrap_err().to_string().contains("brackets"));
    assert!(!verify(directory.path(), None).unwrap().holds() && start.elapsed() < Duration::from_secs(20));
}
