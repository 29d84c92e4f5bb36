//! Recipes, papers, profiles and other manifests that the documents show are taken by the program as they stand there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::markdown::{Document, documents};
use super::{read, root};

/// The recipe in the documents is taken, in a profile whose model it has to fit.
#[test]
fn a_first_recipe_is_taken() {
    let all = documents(&root());
    let recipes: BTreeSet<(String, String)> = all.iter().flat_map(Document::recipes).collect();
    let (id, text) = recipes.first().expect("README.md shows a recipe");
    assert_eq!(recipes.len(), 1, "README.md and docs/recipes.md show the same one");
    let group = read("docs/recipes.md").lines().find(|line| line.starts_with("  - {group: \"Mine\"")).unwrap().to_owned();

    let folder = copy_of_manifests();
    let list = || list(folder.path());
    let profile = folder.path().join("manifests/profiles/cpu.yaml");
    let with = std::fs::read_to_string(&profile).unwrap().replacen("\narms:\n", &format!("\narms:\n{group}\n"), 1);
    std::fs::write(&profile, with).unwrap();
    let (code, said) = list();
    assert!(code == Some(2) && said.contains(id.as_str()), "a profile that names an unknown recipe is refused: {said}");
    std::fs::write(folder.path().join(format!("manifests/recipes/{id}.yaml")), text).unwrap();
    let (code, said) = list();
    assert!(code == Some(0) && said.contains(id.as_str()), "{said}");
}

/// The manifests that the documents show are taken, all of them beside those that are there.
#[test]
fn manifests_that_are_shown_are_taken() {
    let shown: BTreeMap<String, String> = documents(&root()).iter().flat_map(Document::manifests).collect();
    assert!(shown.len() >= 4, "only {:?} were found", shown.keys());
    let folder = copy_of_manifests();
    for (path, text) in &shown {
        // Of a hash the first eight digits are shown.
        std::fs::write(folder.path().join(path), text.replace('…', &"0".repeat(56))).unwrap();
    }
    let (code, said) = list(folder.path());
    assert_eq!(code, Some(0), "{said}");
    for path in shown.keys().filter(|path| path.starts_with("manifests/profiles/")) {
        let id = Path::new(path).file_stem().unwrap().to_str().unwrap();
        assert!(said.contains(id), "{id} is not listed: {said}");
    }
}

/// A folder that `list` takes for a repository.
fn copy_of_manifests() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&root().join("manifests"), &folder.path().join("manifests"));
    std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    folder
}

/// Exit code of `cargo xtask list` there, and what it said.
fn list(folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("list").current_dir(folder).env("CARGO_MANIFEST_DIR", folder.join("xtask")).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}
