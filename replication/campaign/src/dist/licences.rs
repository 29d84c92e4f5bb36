//! Licences of every crate that is linked into a program of ours: its SPDX expression, and the texts that it came with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use study::files;

use crate::toolchain::{self, ToolError};

pub(super) struct Licences {
    pub(super) text: String,
    pub(super) crates: usize,
}

/// What is needed of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// None of our own.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None: it is linked; otherwise for tests or build scripts.
    kind: Option<String>,
}

/// Asks cargo, and reads the texts where it keeps the crates' sources.
pub(super) fn collect(root: &Path, host: &str) -> Result<Licences, ToolError> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host].map(Into::into);
    let text = toolchain::run_cargo(root, "asking cargo for dependencies", &arguments)?;
    let metadata: Metadata = serde_json::from_str(&text).map_err(|error| ToolError::Failed {
        what: "asking cargo for dependencies".to_owned(),
        status: format!("an answer that cannot be read ({error})"),
        code: None,
        output: String::new(),
    })?;
    let linked = linked(&metadata);
    let mut crates: Vec<&Package> =
        metadata.packages.iter().filter(|package| package.source.is_some() && linked.contains(package.id.as_str())).collect();
    crates.sort_by_key(|package| (&package.name, &package.version));
    Ok(Licences { text: page(&crates), crates: crates.len() })
}

/// Packages that our programs are linked with: of the benchmarks, criterion is what the others are not.
fn linked(metadata: &Metadata) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let roots = |package: &&Package| match &package.source {
        None => ["xtask", "trainer"].contains(&package.name.as_str()),
        Some(_) => package.name == "criterion",
    };
    let mut open: Vec<&str> = metadata.packages.iter().filter(roots).map(|package| package.id.as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let dependencies = nodes.get(id).map_or(&[][..], |node| &node.deps);
            open.extend(dependencies.iter().filter(|one| one.dep_kinds.iter().any(|kind| kind.kind.is_none())).map(|one| one.pkg.as_str()));
        }
    }
    found
}

/// A list of crates, then each different text once, with the crates that came with it.
fn page(crates: &[&Package]) -> String {
    let mut page = "Crates that are linked into these programs, with the licences that each may be used under.\n\n".to_owned();
    let mut texts: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for package in crates {
        let Package { name, version, license, repository, manifest_path, .. } = package;
        let license = license.as_deref().unwrap_or("see its text below");
        page += &format!("{name} {version}: {license}{}\n", repository.as_ref().map_or(String::new(), |at| format!(" ({at})")));
        for text in licence_texts(manifest_path) {
            let entry = texts.entry(files::sha256(text.as_bytes())).or_insert_with(|| (text, BTreeSet::new()));
            entry.1.insert(format!("{name} {version}"));
        }
    }
    for (text, crates) in texts.values() {
        let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
        page += &format!("\n{}\n{}\n\n{}\n", "=".repeat(78), crates.join(", "), text.trim_end());
    }
    page
}

/// In the order of their names.
fn licence_texts(manifest: &Path) -> Vec<String> {
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start))
    };
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_licence).collect();
    paths.sort();
    paths.iter().filter_map(|path| files::read_text(path).ok()).collect()
}
