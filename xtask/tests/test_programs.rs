//! No test is left out: every file of tests belongs to a program that `cargo test` builds. `autotests` is off where one program has them
//! all, so cargo would not miss a file that nobody names.

#![allow(clippy::unwrap_used)] // a test's way to fail

use std::fs;
use std::path::Path;

#[test]
fn every_file_of_tests_is_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut programs, mut files) = (0, 0);
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    for member in members.split(',').map(|member| root.join(member.trim().trim_matches('"'))).filter(|member| member.join("tests").is_dir())
    {
        let manifest = fs::read_to_string(member.join("Cargo.toml")).unwrap();
        if !manifest.contains("\nautotests = false\n") {
            // Cargo finds them itself.
            continue;
        }
        let all = fs::read_to_string(member.join("tests/all.rs")).unwrap();
        programs += 1;
        for entry in fs::read_dir(member.join("tests")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some(module) = name.strip_suffix(".rs") else { continue };
            files += 1;
            let own = manifest.lines().any(|line| line == format!("path = \"tests/{name}\""));
            assert!(own || all.lines().any(|line| line == format!("mod {module};")), "{}/tests/all.rs lacks {name}", member.display());
        }
    }
    assert!(programs >= 6 && files >= 60, "{programs} programs, {files} files");
}
