//! `cargo xtask replicate` on a fresh clone compiles nothing twice: the harness and what it builds afterwards take the same crates with the same
//! features. Cargo joins features over what one call builds, and these are calls of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// For each package that these are built from, its features. There are two lists where macros, which run on the machine that builds, ask for
/// other ones.
fn features(packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--locked", "--edges", "no-dev", "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut features: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()) {
        let (package, list) = line.split_once('|').unwrap();
        features.entry(package.to_owned()).or_default().insert(list.to_owned());
    }
    features
}

#[test]
fn no_crate_is_built_with_other_features_after_the_harness() {
    let harness = features(&["xtask"]);
    for later in [&["trainer"][..], &["xtask", "gfx950-stand-in"]] {
        let other = features(later);
        let shared = || harness.iter().filter_map(|(package, ours)| Some((package, ours, other.get(package)?)));
        assert!(shared().count() > 30, "{later:?}: hardly anything is shared, so cargo was read wrong");
        let unequal: Vec<_> = shared().filter(|(_, ours, theirs)| ours != theirs).collect();
        assert!(
            unequal.is_empty(),
            "compiled for xtask and again for {later:?}; what one lacks is asked for in trainer/Cargo.toml or xtask/Cargo.toml:\n{unequal:#?}"
        );
    }
}
