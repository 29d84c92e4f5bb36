//! kernels.yaml: how code objects are built, and what each kernel may use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use study::manifest::{ManifestError, read};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The architecture: the folder's name.
    pub arch: String,
    pub flags: Vec<String>,
    /// Sources, each giving one code object.
    pub sources: Vec<Source>,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name in the manifest's folder, or `../device/NAME` for one that CUDA shares.
    pub file: String,
    /// What is defined for it: `NAME=VALUE`.
    #[serde(default)]
    pub defines: Vec<String>,
    /// Name of the code object, without ending, where one source gives several; else the source's.
    #[serde(default)]
    pub object: Option<String>,
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
    /// Clocks that the model may say, at most: of a product `MxNxK` by `mxfp4_gemm_TxU`, of a matrix `ROWSxK` by `mxfp4_quantise`.
    #[serde(default)]
    pub clocks: BTreeMap<String, u64>,
}

impl Source {
    /// The code object's file name.
    pub fn object_name(&self) -> String {
        let stem = Path::new(&self.file).file_stem().unwrap_or_default().to_string_lossy();
        format!("{}.co", self.object.as_deref().unwrap_or(&stem))
    }

    /// The source as messages name it: with what tells it from its siblings.
    pub fn label(&self) -> String {
        [std::slice::from_ref(&self.file), &self.defines].concat().join(" ")
    }

    /// Arguments of the compiler besides the manifest's flags.
    pub fn arguments(&self) -> Vec<String> {
        self.defines.iter().map(|define| format!("-D{define}")).collect()
    }
}

impl Manifest {
    /// Reads kernels.yaml of `folder`, which is relative to `root`.
    pub fn load(root: &Path, folder: &Path) -> Result<Self, ManifestError> {
        let path = folder.join("kernels.yaml");
        let manifest: Self = read(root, &path)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if manifest.arch != name {
            return Err(ManifestError::new(&path, format!("arch `{}` must be the folder's name, `{name}`", manifest.arch)));
        }
        let refuse = |problem: String| Err(ManifestError::new(&path, problem));
        let mut objects = BTreeSet::new();
        for source in &manifest.sources {
            let shared = source.file.strip_prefix("../device/");
            let name = shared.unwrap_or(&source.file);
            if name.contains(['/', '\\']) || !name.ends_with(if shared.is_some() { ".cu" } else { ".hip" }) {
                return refuse(format!(
                    "`{}` must be the name of a .hip file in this folder, or `../device/` and that of a .cu file",
                    source.file
                ));
            }
            if !objects.insert(source.object_name()) {
                return refuse(format!("two sources give {}: name one with `object`", source.object_name()));
            }
        }
        Ok(manifest)
    }
}
