//! kernels.yaml: how code objects are built, and what each kernel may use.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::manifest::{ManifestError, read};

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The architecture: the folder's name.
    pub arch: String,
    /// Arguments of the compiler.
    pub flags: Vec<String>,
    /// Sources, each giving one code object.
    pub sources: Vec<Source>,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name in the manifest's folder.
    pub file: String,
    /// Its kernels, all of them.
    pub kernels: BTreeMap<String, Budget>,
}

/// What a kernel may use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Vector registers, accumulation registers included: at most.
    pub vgprs: u64,
    /// Scalar registers: at most.
    pub sgprs: u64,
    /// Bytes of LDS: at most.
    pub lds: u64,
    /// How often an instruction occurs: exactly. `_lds` after a buffer load's name stands for those that go straight to LDS.
    pub instructions: BTreeMap<String, u64>,
}

impl Manifest {
    /// Reads kernels.yaml of `folder`, which is relative to `root`.
    ///
    /// # Errors
    /// What is wrong, with file and line.
    pub fn load(root: &Path, folder: &Path) -> Result<Self, ManifestError> {
        let path = folder.join("kernels.yaml");
        let manifest: Self = read(root, &path)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if manifest.arch != name {
            return Err(ManifestError::new(&path, format!("arch `{}` must be the folder's name, `{name}`", manifest.arch)));
        }
        for source in &manifest.sources {
            if source.file.contains(['/', '\\']) || !source.file.ends_with(".hip") {
                return Err(ManifestError::new(&path, format!("`{}` must be the name of a .hip file in this folder", source.file)));
            }
        }
        Ok(manifest)
    }
}
