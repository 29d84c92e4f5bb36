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

/// Of the cache of the repository at `root`: whoever holds it makes, takes in or forgets runs there.
pub fn lock_cache(root: &Path) -> Result<File, LockError> {
    lock(&root.join("cache").join("lock"))
}

/// Lets `fill` fill a new folder beside `target` and puts it in its place; what was there is gone only after. On an error nothing is left of
/// the new one, and what was there stays.
///
/// # Errors
/// What `fill` ends with, or a folder that cannot be made or moved.
pub fn make<T, E: From<FileError>>(target: &Path, fill: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, E> {
    let aside = target.with_file_name(format!(".{}.partial", target.file_name().unwrap_or_default().to_string_lossy()));
    // What a killed process left there.
    files::remove_folder(&aside)?;
    files::make_folder(&aside)?;
    let made = fill(&aside).and_then(|made| {
        replace(target, &aside)?;
        Ok(made)
    });
    if made.is_err() {
        // The first error is the one to tell.
        let _ = files::remove_folder(&aside);
    }
    made
}

/// Puts `new` where `target` is; what was there is gone only after.
fn replace(target: &Path, new: &Path) -> Result<(), FileError> {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(".old");
    let old = target.with_file_name(name);
    files::remove_folder(&old)?;
    if target.exists() {
        files::rename(target, &old, "move aside")?;
    }
    files::rename(new, target, "move into place")?;
    files::remove_folder(&old)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_whole_or_what_it_was() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("target");
        let write = |text: &'static str| move |aside: &Path| files::write(&aside.join("file"), text.as_bytes());
        make(&target, write("one")).unwrap();
        make(&target, write("two")).unwrap();
        let failed: Result<(), FileError> = make(&target, |aside| {
            write("three")(aside)?;
            Err(FileError { path: aside.to_owned(), action: "go on", source: std::io::Error::other("") })
        });
        assert!(failed.is_err());
        assert_eq!(files::read_text(&target.join("file")).unwrap(), "two");
        assert_eq!(files::list(root.path()).unwrap(), ["target/file"]);
        // What a killed process left beside it is not taken over.
        files::write(&root.path().join(".target.partial/left"), b"").unwrap();
        make(&target, write("four")).unwrap();
        assert_eq!(files::list(root.path()).unwrap(), ["target/file"]);
    }

    #[test]
    fn a_lock_is_held_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("lock");
        let held = lock(&path).unwrap();
        assert!(matches!(lock(&path), Err(LockError::Held { .. })));
        drop(held);
        assert!(lock(&path).is_ok());
    }
}
