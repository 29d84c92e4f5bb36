//! Files that are there whole or not at all: written beside their name, synced, renamed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How the name of a file ends that is not whole yet.
pub(crate) const ASIDE: &str = ".tmp";

/// Where a file is written until it is whole.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}{ASIDE}", std::process::id()));
    PathBuf::from(name)
}

/// Writes a file beside its name, syncs it and renames it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = aside(path);
    write_synced(&aside, bytes).and_then(|()| std::fs::rename(&aside, path)).inspect_err(|_| {
        // Nothing can be done about a failure here, and a leftover harms nobody.
        let _ = std::fs::remove_file(&aside);
    })?;
    sync_directory(path);
    Ok(())
}

/// Writes a file that is on disk when this returns.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a rename inside the directory of `path` durable, where the system can.
pub(crate) fn sync_directory(path: &Path) {
    let Some(directory) = path.parent() else { return };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    // Not every file system lets a directory be opened or synced; the rename itself has already succeeded.
    if let Ok(handle) = File::open(directory) {
        let _ = handle.sync_all();
    }
}
