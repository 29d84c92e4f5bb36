//! What a trainer is built from, as a hash: whether it has to be built again. What it computes is another question ([`study::identity`]).

use std::path::Path;

use study::files::{self, FileError, sha256};

/// Variables with which cargo and rustc build something else from the same files.
const BUILD_VARIABLES: [&str; 3] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// Folders whose every file may end in the trainer; kernels/gfx950 holds device text beside test tools, which do not.
pub(crate) const FOLDERS: [&str; 4] = ["kernels/src", "kernels/device", "trainer/src", "trainer/contract/src"];

pub(crate) const FILES: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "kernels/Cargo.toml", "trainer/Cargo.toml", "trainer/contract/Cargo.toml"];

/// Hash of the sources of the trainer at `root`, of what they depend on, and of the variables that change a build.
pub fn hash(root: &Path) -> Result<String, FileError> {
    let mut names: Vec<String> = FILES.map(str::to_owned).to_vec();
    for folder in FOLDERS {
        names.extend(files::list(&root.join(folder))?.into_iter().map(|name| format!("{folder}/{name}")));
    }
    let device_text = files::list(&root.join("kernels/gfx950"))?.into_iter().filter(|name| !name.contains('/') && !name.ends_with(".md"));
    names.extend(device_text.map(|name| format!("kernels/gfx950/{name}")));
    let mut listing = listing(root, names)?;
    for name in BUILD_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            listing.push_str(&format!("{}={name}\n", value.to_string_lossy()));
        }
    }
    Ok(sha256(listing.as_bytes()))
}

/// A line for each of these files of `folder`, with its hash.
pub fn listing(folder: &Path, names: Vec<String>) -> Result<String, FileError> {
    names.into_iter().map(|name| Ok(format!("{}  {name}\n", files::sha256_file(&folder.join(&name))?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_file_that_a_trainer_may_be_built_from_changes_the_hash() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| files::write(&folder.path().join(name), text.as_bytes()).unwrap();
        let inside = FOLDERS.map(|folder| format!("{folder}/deep/a.rs"));
        let names = || FILES.map(str::to_owned).into_iter().chain(inside.clone()).chain(["kernels/gfx950/gemm.hip".to_owned()]);
        names().for_each(|name| put(&name, "before"));
        put("kernels/gfx950/interpreter/src/lib.rs", "before");
        let before = hash(folder.path()).unwrap();
        for name in names() {
            put(&name, "after");
            assert_ne!(hash(folder.path()).unwrap(), before, "{name}");
            put(&name, "before");
        }
        put("kernels/gfx950/interpreter/src/lib.rs", "after");
        assert_eq!(hash(folder.path()).unwrap(), before, "a test tool is no part of a trainer");
    }
}
