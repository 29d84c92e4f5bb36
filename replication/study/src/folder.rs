//! Folders that one process works in at a time, and that appear whole or not at all.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::files::{self, Context as _, FileError};

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process holds it.
    #[error("another replicate process is at work in this repository (it holds {}); wait for it, or stop it", .path.display())]
    Held { path: PathBuf },
}

/// Held until dropped; a killed process drops it too.
pub fn lock(path: &Path) -> Result<File, LockError> {
    files::make_folder(path.parent().unwrap_or(Path::new(".")))?;
    let file = File::options().create(true).truncate(false).write(true).open(path).at(path, "open the lock")?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(LockError::Held { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(FileError { path: path.to_owned(), action: "lock", source }.into()),
    }
}

/// Puts `new` where `target` is; what was there is gone only after.
pub fn replace(target: &Path, new: &Path) -> Result<(), FileError> {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(".old");
    let old = target.with_file_name(name);
    files::remove_folder(&old)?;
    if target.exists() {
        std::fs::rename(target, &old).at(target, "move aside")?;
    }
    std::fs::rename(new, target).at(target, "move the result directory into place")?;
    files::remove_folder(&old)
}
