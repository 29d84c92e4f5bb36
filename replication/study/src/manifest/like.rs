//! Profiles that differ from another in a few keys: `like: ladder-32m` takes every top-level key that the file does not have from that one.
//!
//! The two texts become one, which is what is read, hashed and carried in results; a mistake is told by the file and line that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::yaml;

use super::error::ManifestError;
use super::profile::Profile;
use super::tried::Own;
use super::{Manifests, names};
use crate::files;
use crate::suggest::unknown;

/// The key that names the other profile.
const KEY: &str = "like";

/// Every profile below `manifests/profiles`, and the whole texts of those that are like another.
pub(super) fn profiles(root: &Path) -> Result<(BTreeMap<String, Profile>, Own), ManifestError> {
    let folder = Path::new("manifests/profiles");
    let (mut texts, mut own, mut profiles) = (BTreeMap::new(), Own::new(), BTreeMap::new());
    for id in names(root, folder)? {
        let path = Manifests::path("profiles", &id);
        let text = files::read_text(&root.join(&path));
        texts.insert(id, text.map_err(|error| ManifestError::new(&path, format!("cannot be read: {}", error.source)))?);
    }
    for (id, text) in &texts {
        let path = Manifests::path("profiles", id);
        let profile: Profile = match other(&path, text, &texts)? {
            None => yaml::from_str(text).map_err(|error| ManifestError::from_yaml(&path, text, &error))?,
            Some(base) => {
                let whole = Whole::of((&path, text), (&Manifests::path("profiles", base), &texts[base]));
                let profile = whole.read()?;
                own.insert(path.clone(), whole.text.into_bytes());
                profile
            }
        };
        if *profile.id != **id {
            return Err(ManifestError { path, line: 1, message: format!("id `{}` must be the file's name, `{id}`", profile.id) });
        }
        profiles.insert(id.clone(), profile);
    }
    Ok((profiles, own))
}

/// The profile that this one is like.
fn other<'a>(path: &Path, text: &str, texts: &'a BTreeMap<String, String>) -> Result<Option<&'a str>, ManifestError> {
    let Some(block) = blocks(text).into_iter().find(|block| block.key == KEY) else { return Ok(None) };
    let wrong = |why: String| ManifestError { path: path.to_owned(), line: block.line, message: format!("{KEY}: {why}") };
    let named = block.text.lines().find_map(|line| line.strip_prefix("like:")).unwrap_or_default();
    let named = named.split(" #").next().unwrap_or_default().trim().trim_matches('"');
    let known: Vec<&str> = texts.keys().map(String::as_str).collect();
    let Some((base, theirs)) = texts.get_key_value(named) else { return Err(wrong(unknown("profile", named, &known))) };
    if blocks(theirs).iter().any(|block| block.key == KEY) {
        return Err(wrong(format!("{base} is itself like another profile; name that one")));
    }
    let keys: BTreeSet<&str> = blocks(theirs).into_iter().map(|block| block.key).collect();
    match blocks(text).into_iter().find(|block| block.key != KEY && !keys.contains(block.key)) {
        Some(stranger) => {
            let known: Vec<&str> = keys.into_iter().collect();
            let message = unknown("key", stranger.key, &known);
            Err(ManifestError {
                path: path.to_owned(),
                line: stranger.line,
                message: format!("{}: {base} has no such key: {message}", stranger.key),
            })
        }
        None => Ok(Some(base)),
    }
}

/// A top-level key with all that belongs to it: comments before it, lines below it.
struct Block<'a> {
    key: &'a str,
    /// Of the key, from 1.
    line: usize,
    /// Of `text`, from 1.
    first: usize,
    text: &'a str,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut begin, mut offset) = (Vec::<Block<'_>>::new(), (0, 1), 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let is_key = line.starts_with(|first: char| first.is_ascii_alphabetic());
        // Comments and empty lines before a key belong to it; whatever is indented, to the key above.
        let opens = is_key || line.starts_with('#') || line.trim().is_empty();
        let after_key = blocks.last().is_some_and(|block| block.first == begin.1);
        if opens && after_key {
            begin = (offset, number);
        }
        offset += line.len();
        if is_key {
            let key = line.split(':').next().unwrap_or_default();
            blocks.push(Block { key, line: number, first: begin.1, text: &text[begin.0..offset] });
        } else if let Some(block) = blocks.last_mut().filter(|block| block.first == begin.1) {
            block.text = &text[begin.0..offset];
        }
    }
    blocks
}

/// One text of two, and where its lines come from.
struct Whole {
    text: String,
    origin: Vec<(PathBuf, usize)>,
}

impl Whole {
    /// The keys of `file`, then those that only `base` has.
    fn of((path, text): (&Path, &str), (base, theirs): (&Path, &str)) -> Self {
        let own = blocks(text);
        let has = |key: &str| own.iter().any(|block| block.key == key);
        let theirs = blocks(theirs).into_iter().filter(|block| !has(block.key)).map(|block| (base, block));
        let mut whole = Self { text: format!("# {} in full.\n", path.display()), origin: vec![(path.to_owned(), 1)] };
        for (from, block) in blocks(text).into_iter().filter(|block| block.key != KEY).map(|block| (path, block)).chain(theirs) {
            whole.text.push_str(block.text);
            if !block.text.ends_with('\n') {
                whole.text.push('\n');
            }
            whole.origin.extend((block.first..).take(block.text.lines().count()).map(|line| (from.to_owned(), line)));
        }
        whole
    }

    fn read(&self) -> Result<Profile, ManifestError> {
        yaml::from_str(&self.text).map_err(|error| {
            let error = ManifestError::from_yaml(Path::new(""), &self.text, &error);
            let (path, line) = self.origin.get(error.line.saturating_sub(1)).unwrap_or(&self.origin[0]).clone();
            ManifestError { path, line, ..error }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "# of the base\nid: base\nbudget:\n  # two\n  steps: 2\n\n# why\nseeds: [1]\narms:\n  - a\n";

    #[test]
    fn a_block_is_a_key_with_its_comments_and_what_is_indented() {
        let found: Vec<(&str, usize, usize, &str)> =
            blocks(BASE).iter().map(|block| (block.key, block.line, block.first, block.text)).collect();
        let expected = [
            ("id", 2, 1, "# of the base\nid: base\n"),
            ("budget", 3, 3, "budget:\n  # two\n  steps: 2\n"),
            ("seeds", 8, 6, "\n# why\nseeds: [1]\n"),
            ("arms", 9, 9, "arms:\n  - a\n"),
        ];
        assert_eq!(found, expected);
        assert_eq!(blocks(BASE).iter().map(|block| block.text).collect::<String>(), BASE);
    }

    #[test]
    fn keys_of_the_file_take_the_place_of_the_others_and_lines_know_where_they_are_from() {
        let file = "# other\nid: other\nlike: base\n# more\nseeds: [2, 3]";
        let whole = Whole::of((Path::new("other.yaml"), file), (Path::new("base.yaml"), BASE));
        assert_eq!(
            whole.text,
            "# other.yaml in full.\n# other\nid: other\n# more\nseeds: [2, 3]\nbudget:\n  # two\n  steps: 2\narms:\n  - a\n"
        );
        let line = |of: &str| {
            let at = whole.text.lines().position(|line| line.contains(of)).unwrap_or(usize::MAX);
            (whole.origin[at].0.to_string_lossy().into_owned(), whole.origin[at].1)
        };
        assert_eq!(
            (line("seeds"), line("steps"), line("- a")),
            (("other.yaml".into(), 5), ("base.yaml".into(), 5), ("base.yaml".into(), 10))
        );
        assert_eq!(whole.origin.len(), whole.text.lines().count());
    }
}
