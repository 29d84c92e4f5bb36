//! A folder of a cache that says what its files are: `SHA256SUMS`, written after them. What changed since, or was cut short, is not believed:
//! it is moved aside, said, and made again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use contract::text::one_line;

use crate::files::{self, FileError};

/// Hashes of files, as `sha256sum -c` reads them; of a result directory every file but itself.
pub const SUMS: &str = "SHA256SUMS";

/// What a seal says of each file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seal(BTreeMap<String, String>);

impl Seal {
    /// Of `folder`; none where there is none, or one that was cut short.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = files::read_text(&folder.join(SUMS)).ok().filter(|text| text.ends_with('\n'))?;
        let line = |line: &str| line.split_once("  ").map(|(sha256, name)| (name.to_owned(), sha256.to_owned()));
        text.lines().map(line).collect::<Option<_>>().map(Self)
    }

    /// Seals those of `names` that are in `folder`.
    pub fn write<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<(), FileError> {
        let names: BTreeSet<&str> = names.into_iter().filter(|name| folder.join(name).is_file()).collect();
        files::write(&folder.join(SUMS), lines(folder, names)?.as_bytes())
    }

    /// Why a file of `folder` is not what was sealed; none when it is.
    pub fn fault(&self, folder: &Path, name: &str) -> Option<String> {
        let Some(sealed) = self.0.get(name) else { return Some(format!("{name} has no hash in {SUMS}")) };
        // A stranger may have written the list: what lies elsewhere is not opened.
        if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
            return Some(format!("{SUMS} names {}, which lies elsewhere", one_line(name)));
        }
        match files::sha256_file(&folder.join(name)) {
            Ok(found) if found == *sealed => None,
            Ok(_) => Some(format!("{name} is not what was written there")),
            Err(error) => Some(format!("{name} cannot be read ({})", error.source)),
        }
    }

    /// Whether it has a hash of this file.
    pub fn names(&self, file: &str) -> bool {
        self.0.contains_key(file)
    }

    /// The first fault among all that is sealed.
    pub fn broken(&self, folder: &Path) -> Option<String> {
        self.0.keys().find_map(|name| self.fault(folder, name))
    }

    /// The same; then the first of the `present` files that is not sealed.
    pub fn broken_among(&self, folder: &Path, present: impl IntoIterator<Item = impl AsRef<str>>) -> Option<String> {
        let unsealed = || present.into_iter().find(|name| !self.0.contains_key(name.as_ref()));
        self.broken(folder).or_else(|| self.fault(folder, unsealed()?.as_ref()))
    }
}

/// A line for each of these files of `folder`: `<64 hex>  <name>`.
pub(crate) fn lines<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<String, FileError> {
    names.into_iter().map(|name| Ok(format!("{}  {name}\n", files::sha256_file(&folder.join(name))?))).collect()
}

/// Moves what is not to be believed out of the way: `<name>.unusable-1`, `-2`, ...; where it lies now.
pub fn set_aside(path: &Path) -> Result<PathBuf, FileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let places = (1u64..).map(|number| path.with_file_name(format!("{name}{UNUSABLE}{number}")));
    let to = places.into_iter().find(|place| !place.exists()).unwrap_or_else(|| path.to_owned());
    files::rename(path, &to, "move aside")?;
    Ok(to)
}

/// Stands in the name of what was set aside.
pub const UNUSABLE: &str = ".unusable-";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_changed_since_it_was_sealed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(Seal::read(folder), None);
        for name in ["a", "b"] {
            files::write(&folder.join(name), name.as_bytes()).unwrap();
        }
        Seal::write(folder, ["a", "b", "not there"]).unwrap();
        let seal = Seal::read(folder).unwrap();
        assert_eq!((seal.broken(folder), seal.fault(folder, "c")), (None, Some("c has no hash in SHA256SUMS".to_owned())));
        files::write(&folder.join("b"), b"B").unwrap();
        assert_eq!(seal.broken(folder).unwrap(), "b is not what was written there");
        files::remove(&folder.join("a")).unwrap();
        assert!(seal.broken(folder).unwrap().starts_with("a cannot be read"));
        for broken in ["", "no line end", "one space a\n"] {
            files::write(&folder.join(SUMS), broken.as_bytes()).unwrap();
            assert_eq!(Seal::read(folder).map(|seal| seal.fault(folder, "b").is_some()), None, "{broken}");
        }
    }

    #[test]
    fn what_is_set_aside_takes_the_next_free_name() {
        let folder = tempfile::tempdir().unwrap();
        for number in 1..=3 {
            let run = folder.path().join("key");
            files::write(&run.join("file"), b"").unwrap();
            assert_eq!(set_aside(&run).unwrap(), folder.path().join(format!("key.unusable-{number}")));
            assert!(!run.exists());
        }
    }
}
