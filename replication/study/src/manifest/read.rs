//! One manifest file, read strictly, and the paths that one may name.

use std::path::{Component, Path};

use contract::yaml;
use serde::de::DeserializeOwned;

use super::error::ManifestError;
use crate::files;

/// Reads one YAML file strictly.
///
/// # Errors
/// A missing file, bad YAML, an unknown or missing key, a wrong type; with file and line.
pub fn read<T: DeserializeOwned>(root: &Path, path: &Path) -> Result<T, ManifestError> {
    let text = files::read_text(&root.join(path)).map_err(|error| ManifestError::new(path, format!("cannot be read: {}", error.source)))?;
    yaml::from_str(&text).map_err(|error| ManifestError::from_yaml(path, &text, &error))
}

/// Err unless the relative path stays inside the repository.
pub(super) fn inside(path: &str) -> Result<(), String> {
    let leaves = Path::new(path).components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
    if leaves { Err(format!("`{path}` leaves the repository; write a path relative to its root")) } else { Ok(()) }
}
