//! pinned.yaml: the SHA-256 of each code object by the compiler that made it. The same compiler on another machine must give these bytes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use study::code_objects::Object;
use study::files;
use study::manifest::{ManifestError, read};

use super::BuildError;

/// Its name in the architecture's folder.
const FILE: &str = "pinned.yaml";

const HEAD: &str = "# SHA-256 of every code object, by the compiler's first line about itself. `cargo xtask kernels-build --pin` writes those of the compiler\n\
                    # that is here; with it, other bytes are an error, here and in a replication's report.\n";

/// Hashes by compiler, then by the code object's file name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pinned(BTreeMap<String, BTreeMap<String, String>>);

impl Pinned {
    /// Reads pinned.yaml of `folder`, which is relative to `root`; empty where there is none.
    pub fn load(root: &Path, folder: &Path) -> Result<Self, ManifestError> {
        let path = folder.join(FILE);
        if root.join(&path).exists() { read(root, &path) } else { Ok(Self::default()) }
    }

    pub(super) fn pin(&mut self, compiler: &str, objects: &[Object]) {
        let hashes = objects.iter().map(|object| (object.object.clone(), object.object_sha256.clone())).collect();
        self.0.insert(compiler.to_owned(), hashes);
    }

    pub(super) fn write(&self, root: &Path, folder: &Path) -> Result<(), BuildError> {
        let text = serde_yaml::to_string(&self.0).map_err(|error| ManifestError::new(&folder.join(FILE), error.to_string()))?;
        Ok(files::write(&root.join(folder).join(FILE), (HEAD.to_owned() + &text).as_bytes())?)
    }

    /// Notes what is pinned in each object; what differs, as sentences. Nothing where nothing is pinned for this compiler.
    pub(super) fn compare(&self, compiler: &str, objects: &mut [Object]) -> Vec<String> {
        let Some(hashes) = self.0.get(compiler) else { return Vec::new() };
        let mut problems = Vec::new();
        for object in objects {
            let name = &object.object;
            object.pinned_sha256 = hashes.get(name).cloned();
            match object.is_as_pinned() {
                Some(true) => {}
                Some(false) => {
                    problems.push(format!("{name}: not the bytes that {FILE} pins for this compiler; after a change to the kernels: --pin"))
                }
                None => problems.push(format!("{name}: {FILE} has no hash of it for this compiler; after a change to the kernels: --pin")),
            }
        }
        problems
    }
}
