//! Compiled kernels, kept by content for the next process.
//!
//! A recipe uses a handful of variants, each of which compiles in a fraction of a second; compiling all variants ahead of time for all
//! architectures would be hundreds of megabytes. The key is the hash of everything that the machine code depends on.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::GpuError;

/// A folder of machine code.
#[derive(Debug)]
pub(super) struct Cache {
    folder: Option<PathBuf>,
}

/// Hash of the parts, each with its length: sources, options, architecture, compiler.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

impl Cache {
    /// `$XDG_CACHE_HOME/mxfp4-replication/kernels`, else below `~/.cache`; none where there is no home.
    pub(super) fn new() -> Self {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        Self { folder: base.map(|base| base.join("mxfp4-replication").join("kernels")) }
    }

    /// What is kept under `name`, or what `compile` makes.
    pub(super) fn find_or(&self, name: &str, compile: impl FnOnce() -> Result<Vec<u8>, GpuError>) -> Result<Vec<u8>, GpuError> {
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        if let Some(found) = path.as_ref().and_then(|path| std::fs::read(path).ok()) {
            return Ok(found);
        }
        let code = compile()?;
        if let Some(path) = path {
            // A cache that cannot be written costs time, nothing else.
            let aside = path.with_extension(format!("tmp-{}", std::process::id()));
            let _ = path.parent().map(std::fs::create_dir_all);
            let _ = std::fs::write(&aside, &code).and_then(|()| std::fs::rename(&aside, &path));
        }
        Ok(code)
    }
}
