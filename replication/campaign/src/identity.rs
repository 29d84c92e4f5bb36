//! `cargo xtask identity`: whether manifests/identity.yaml says what this tree's trainer computes.

use std::fmt;
use std::path::Path;

use contract::device::DeviceKind;
use contract::identity::{Identity, OnDevice};
use contract::json::Document as _;
use study::files;
use study::identity::{Identities, Known};
use study::manifest::ManifestError;

use crate::toolchain::{self, ToolError};

/// The identity that the manifest last had, with its parts: so that a change can be placed. Absent in a fresh clone.
const LAST_KNOWN: &str = "target/replicate/identity.json";

/// What the trainer computes, beside what the manifest says.
#[derive(Debug)]
pub struct Checked {
    computed: Identity,
    known: Identities,
    last_known: Option<Identity>,
    was_written: bool,
}

/// Builds the trainer and asks it. With `write` the manifest's `current` becomes what it says.
pub fn check(root: &Path, write: bool, say: &dyn Fn(&str)) -> Result<Checked, ToolError> {
    let known = Known::load(root)?.current;
    let (trainer, _) = toolchain::build_trainer(root, say)?;
    let computed = toolchain::identity(&trainer)?;
    let last_known = root.join(LAST_KNOWN);
    let kept = std::fs::read_to_string(&last_known).ok().and_then(|text| Identity::from_json(LAST_KNOWN, &text).ok());
    let checked = Checked { computed, known, last_known: kept, was_written: write };
    if write && !checked.holds() {
        rewrite(root, &Identities::from(&checked.computed))?;
    }
    if let Some(text) = checked.computed.to_json_pretty().ok().filter(|_| write || checked.holds()) {
        // Without it a later change is not placed, that is all.
        let _ = files::write(&last_known, text.as_bytes());
    }
    Ok(checked)
}

/// Nothing is written unless the result reads as it should.
fn rewrite(root: &Path, current: &Identities) -> Result<(), ToolError> {
    let path = root.join(Known::PATH);
    let text = Known::rewritten(&files::read_text(&path)?, current);
    match serde_yaml::from_str::<Known>(&text) {
        Ok(known) if known.current == *current => Ok(files::write(&path, text.as_bytes())?),
        _ => {
            let problem = "its `current` is not cpu, cuda and hip on a line each; write the hashes of `trainer identity` there by hand";
            Err(ManifestError::new(Path::new(Known::PATH), problem.to_owned()).into())
        }
    }
}

impl Checked {
    fn is_known(&self, kind: DeviceKind) -> bool {
        self.computed.on(kind).identity == self.known.on(kind)
    }

    /// Whether the manifest said what the trainer computes.
    pub fn holds(&self) -> bool {
        DeviceKind::ALL.into_iter().all(|kind| self.is_known(kind))
    }

    /// Names of the parts that are others than the manifest's, where those are known.
    fn changed(&self, kind: DeviceKind) -> Option<Vec<&str>> {
        let before = self.last_known.as_ref().map(|identity| identity.on(kind)).filter(|before| before.identity == self.known.on(kind))?;
        Some(changed_parts(before, self.computed.on(kind)))
    }
}

fn changed_parts<'a>(before: &'a OnDevice, after: &'a OnDevice) -> Vec<&'a str> {
    let names = before.parts.keys().chain(after.parts.keys().filter(|name| !before.parts.contains_key(*name)));
    names.filter(|name| before.parts.get(*name) != after.parts.get(*name)).map(String::as_str).collect()
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in DeviceKind::ALL {
            let says = match (self.is_known(kind), self.was_written) {
                (true, _) => format!("as {} says", Known::PATH),
                (false, true) => format!("written to {}, which said {}", Known::PATH, self.known.on(kind)),
                (false, false) => format!("but {} says {}", Known::PATH, self.known.on(kind)),
            };
            writeln!(f, "{:<5} {}  {says}", kind.word(), self.computed.on(kind).identity)?;
            for part in (!self.is_known(kind)).then(|| self.changed(kind)).flatten().unwrap_or_default() {
                writeln!(f, "      changed: {part}")?;
            }
        }
        if !self.holds() && !self.was_written {
            writeln!(
                f,
                "If results were meant to change, `cargo xtask identity --write` says so, and finished runs are made again.\n\
                 If they were not, something did; `trainer identity` prints every part, here and in the tree before."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(parts: &[(&str, &str)]) -> OnDevice {
        let parts = parts.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect();
        OnDevice { identity: format!("{parts:?}"), parts }
    }

    fn identity(parts: &[(&str, &str)]) -> Identity {
        Identity { cpu: on(parts), cuda: on(&[]), hip: on(&[]) }
    }

    #[test]
    fn a_change_is_named_by_its_parts() {
        let (before, after) = (identity(&[("a", "1"), ("b", "1"), ("c", "1")]), identity(&[("a", "1"), ("b", "2"), ("d", "1")]));
        let known = Identities::from(&before);
        let checked = Checked { computed: after, known, last_known: Some(before.clone()), was_written: false };
        assert!(!checked.holds() && !checked.is_known(DeviceKind::Cpu) && checked.is_known(DeviceKind::Hip));
        assert_eq!(checked.changed(DeviceKind::Cpu), Some(vec!["b", "c", "d"]));
        let text = checked.to_string();
        assert!(text.contains("changed: b\n") && text.contains("--write") && text.contains("but manifests/identity.yaml says"), "{text}");
        // Parts of another identity than the manifest's place nothing.
        let checked = Checked { known: Identities::only("older"), ..checked };
        assert_eq!(checked.changed(DeviceKind::Cpu), None);
        let same = Checked { known: Identities::from(&before), computed: before, last_known: None, was_written: false };
        assert!(same.holds() && !same.to_string().contains("--write"));
    }
}
