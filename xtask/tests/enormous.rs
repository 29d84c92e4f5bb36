//! `replicate --dry-run` of profiles with numbers that no machine holds: one message that names the key, at once and within 1 GiB.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use study::files;

/// This repository through links, with manifests of its own.
fn repository(root: &Path) {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    for entry in fs::read_dir(&ours).unwrap() {
        let name: PathBuf = entry.unwrap().file_name().into();
        if !["manifests", "target", "cache", ".git"].iter().any(|other| name == Path::new(other)) {
            symlink(ours.join(&name), root.join(&name)).unwrap();
        }
    }
    for name in files::list(&ours.join("manifests")).unwrap() {
        files::copy(&ours.join("manifests").join(&name), &root.join("manifests").join(&name)).unwrap();
    }
}

/// Under a limit of 1 GiB of address space.
fn dry_run(root: &Path, profile: &str) -> Output {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -v 1048576; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_xtask")]);
    command.args(["replicate", "--dry-run", "--profile", profile]).env("CARGO_MANIFEST_DIR", root.join("xtask"));
    command.output().unwrap()
}

#[test]
fn a_profile_beyond_reason_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let manifests = folder.path().join("manifests");
    let most = u64::MAX;
    for (file, profile, from, to, named) in [
        ("profiles/smoke.yaml", "smoke", "batch: {sequences: 4}", format!("batch: {{sequences: {most}}}"), "batch.sequences"),
        ("profiles/smoke.yaml", "smoke", "budget: {steps: 24}", format!("budget: {{steps: {most}}}"), "budget.steps"),
        (
            "profiles/smoke.yaml",
            "smoke",
            "every_steps: 4, sequences: 8",
            format!("every_steps: {most}, sequences: 8"),
            "evaluation.every_steps",
        ),
        ("profiles/smoke.yaml", "smoke", "every_steps: 4, sequences: 8", format!("every_steps: 4, sequences: {most}"), "sequences"),
        ("profiles/smoke.yaml", "smoke", "every_steps: 6", format!("every_steps: {most}"), "checkpoint.every_steps"),
        ("profiles/llama31-8b.yaml", "llama31-8b", "batch: {sequences: ", "batch: {sequences: 99999999".to_owned(), "batch.sequences"),
        ("models/smoke.yaml", "smoke", "vocab_size: 512", format!("vocab_size: {}", 1_u64 << 31), "vocab_size"),
        ("models/smoke.yaml", "smoke", "hidden_size: 64", format!("hidden_size: {most}"), "hidden_size"),
        ("models/smoke.yaml", "smoke", "head_dim: 32", format!("head_dim: {}", 1_u64 << 63), "head_dim"),
        ("models/smoke.yaml", "smoke", "num_hidden_layers: 2", "num_hidden_layers: 4097".to_owned(), "num_hidden_layers"),
    ] {
        let path = manifests.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no `{from}`");
        fs::write(&path, text.replacen(from, &to, 1)).unwrap();
        let started = Instant::now();
        let output = dry_run(folder.path(), profile);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 2)) && said.contains(named), "{file}, {to}: {:?} {said}", output.status);
        assert!(!said.contains("panicked") && started.elapsed() < Duration::from_secs(10), "{file}, {to}: {said}");
        println!("{to}: {}", said.lines().find(|line| line.contains(named)).unwrap());
        fs::write(&path, text).unwrap();
    }
}
