//! What a report says of another directory's bytes, and that `verify` still knows the directory as whole.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use std::path::{Path, PathBuf};

use crate::sealed;
use study::files;
use study::same_bytes::{FILE, SameBytes};
use study::verify::verify;

fn copy(from: &Path, to: &Path) {
    for name in files::list(from).unwrap() {
        files::copy(&from.join(&name), &to.join(&name)).unwrap();
    }
}

/// Changes a value of a run's done.json to a hash that nothing has.
fn change(directory: &Path, run: &str, key: &str) {
    let path = directory.join("runs").join(run).join("done.json");
    let mut done: serde_json::Value = serde_json::from_str(&files::read_text(&path).unwrap()).unwrap();
    assert!(done[key].is_string());
    done[key] = "0".repeat(64).into();
    files::write(&path, done.to_string().as_bytes()).unwrap();
}

/// `ours`, and beside it `a` (one run with other metrics), `b` (one run with another run file) and `c` (no equal run file at all).
fn four() -> (tempfile::TempDir, Vec<PathBuf>) {
    let root = tempfile::tempdir().unwrap();
    let folders: Vec<PathBuf> = ["ours", "a", "b", "c"].map(|name| root.path().join(name)).into();
    sealed::write(&folders[0]);
    folders[1..].iter().for_each(|folder| copy(&folders[0], folder));
    change(&folders[1], "fp8/1", "metrics_sha256");
    change(&folders[2], "fp8/1", "run_sha256");
    let runs = files::list(&folders[3].join("runs")).unwrap();
    runs.iter().filter_map(|name| name.strip_suffix("/done.json")).for_each(|run| change(&folders[3], run, "run_sha256"));
    (root, folders)
}

#[test]
fn the_directory_with_most_equal_run_files_is_the_one_compared_with() {
    let (_root, folders) = four();
    let line = |others: &[PathBuf]| SameBytes::find(&folders[0], others).map(|same| same.line(&folders[0]));
    assert_eq!(line(&folders[1..]).unwrap(), "7 of 8 runs are byte for byte those of a");
    assert_eq!(
        line(&folders[2..]).unwrap(),
        "7 of 7 runs (of 8 here; the others have no equal run file there) are byte for byte those of b"
    );
    assert_eq!(line(&folders[3..]), None, "another profile, or one that has changed since");
    assert_eq!(line(&[]), None);
}

/// Bytes that differ are no wonder where the trainer computed something else.
#[test]
fn another_trainer_is_said() {
    let (_root, folders) = four();
    let path = folders[1].join("runs/fp8/1/ingredients.json");
    let text = files::read_text(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut ingredients: serde_json::Value = serde_json::from_str(&text).unwrap();
    ingredients["trainer_code"] = "0".repeat(64).into();
    files::write(&path, ingredients.to_string().as_bytes()).unwrap();
    let same = SameBytes::find(&folders[0], &folders[1..2]).unwrap();
    let wanted = "7 of 8 runs are byte for byte those of a; 1 of the others had a trainer there that computed something else";
    assert_eq!(same.line(&folders[0]), wanted);
    assert_eq!(serde_json::from_str::<SameBytes>(&same.json()).unwrap(), same);
}

/// A directory with another run is no part of ours, nor is one that is gone; an earlier slice is.
#[test]
fn an_earlier_slice_is_a_part() {
    let (root, folders) = four();
    let is_part = |other: &PathBuf| {
        let same = SameBytes::find(&folders[0], std::slice::from_ref(other)).unwrap();
        same.has_all(root.path(), &folders[0])
    };
    assert_eq!([&folders[1], &folders[2]].map(is_part), [false, false]);
    let slice = root.path().join("slice");
    copy(&folders[0], &slice);
    assert!(is_part(&slice), "the same runs");
    std::fs::remove_dir_all(slice.join("runs/fp8")).unwrap();
    assert!(is_part(&slice), "fewer runs");
    let same = SameBytes::find(&folders[0], std::slice::from_ref(&slice)).unwrap();
    std::fs::remove_dir_all(&slice).unwrap();
    assert!(!same.has_all(root.path(), &folders[0]), "none that is there");
}

#[test]
fn the_line_is_in_the_report_and_verify_reads_it_again() {
    let (_root, folders) = four();
    let ours = folders[0].as_path();
    let page = || files::read_text(&ours.join("report.html")).unwrap();
    assert!(!page().contains("byte for byte"));
    let same = SameBytes::find(ours, &folders[1..2]).unwrap();
    files::write(&ours.join(FILE), same.json().as_bytes()).unwrap();
    sealed::seal(ours);
    assert!(page().contains("7 of 8 runs are byte for byte those of a"));
    let found = verify(ours, None, None).unwrap();
    assert!(found.holds() && found.notes.contains(&same.line(ours)), "{found}");
    // Without it, the report is what it was.
    std::fs::remove_file(ours.join(FILE)).unwrap();
    sealed::seal(ours);
    assert_eq!(page(), files::read_text(&folders[1].join("report.html")).unwrap());
    files::write(&ours.join(FILE), same.json().replace("\"metrics\"", "\"metric\"").as_bytes()).unwrap();
    sealed::seal(ours);
    let found = verify(ours, None, None).unwrap().to_string();
    assert!(found.contains("same-bytes.json: does not follow mxfp4-same-bytes/1: unknown field `metric`"), "{found}");
}
