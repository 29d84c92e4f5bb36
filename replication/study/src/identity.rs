//! What the trainer of a tree computes, and what earlier campaigns recorded of theirs: whether results are still those of the tree.
//!
//! A campaign records the identity of its trainer on its device (`trainer identity`). manifests/identity.yaml says what this tree's trainer has,
//! so that nobody has to build it to read a result; a test compares the two.

use std::path::Path;

use contract::device::DeviceKind;
use contract::identity::Identity;
use contract::run_file::BatchSection;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::manifest::ManifestError;

/// The hash of what a trainer computes on each kind of device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identities {
    pub cpu: String,
    pub cuda: String,
    pub hip: String,
}

impl Identities {
    /// The same on every device: for tests.
    pub fn only(identity: &str) -> Self {
        let same = || identity.to_owned();
        Self { cpu: same(), cuda: same(), hip: same() }
    }

    pub fn on(&self, device: DeviceKind) -> &str {
        match device {
            DeviceKind::Cpu => &self.cpu,
            DeviceKind::Cuda => &self.cuda,
            DeviceKind::Hip => &self.hip,
        }
    }
}

impl From<&Identity> for Identities {
    fn from(identity: &Identity) -> Self {
        let [cpu, cuda, hip] = DeviceKind::ALL.map(|kind| identity.on(kind).identity.clone());
        Self { cpu, cuda, hip }
    }
}

/// A record that says the same as an identity in other words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    /// What campaign.json says: a hash of sources, before there were identities; or an identity, from which another differs in nothing that
    /// a committed campaign does.
    pub recorded: String,
    /// What computed the same.
    pub identity: String,
    /// How that was seen.
    pub shown_by: String,
    /// It is so of runs with one micro-batch a step alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_micro_batch: bool,
    /// It is so of runs whose model has heads of another size alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_for_heads_of: Vec<usize>,
}

impl Earlier {
    /// Whether it says something of the run with this run file.
    pub fn is_of(&self, run_yaml: &str) -> bool {
        #[derive(Deserialize)]
        struct Batch {
            batch: BatchSection,
        }
        #[derive(Deserialize)]
        struct Model {
            model: Heads,
        }
        #[derive(Deserialize)]
        struct Heads {
            head_dim: usize,
        }
        let has_one = || serde_yaml::from_str::<Batch>(run_yaml).is_ok_and(|run| run.batch.accumulation == 1);
        let has_others = || serde_yaml::from_str::<Model>(run_yaml).is_ok_and(|run| !self.not_for_heads_of.contains(&run.model.head_dim));
        (!self.one_micro_batch || has_one()) && (self.not_for_heads_of.is_empty() || has_others())
    }

    /// What follows from this and from one that says the same of its identity.
    fn then(&self, later: &Self) -> Self {
        Self {
            recorded: self.recorded.clone(),
            identity: later.identity.clone(),
            shown_by: format!("{}; then {}", self.shown_by, later.shown_by),
            one_micro_batch: self.one_micro_batch || later.one_micro_batch,
            not_for_heads_of: self.not_for_heads_of.iter().chain(&later.not_for_heads_of).copied().collect(),
        }
    }
}

/// manifests/identity.yaml.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Of this tree.
    pub current: Identities,
    /// Of campaigns that were made before results had identities, or whose bits were made again since.
    #[serde(default)]
    pub earlier: Vec<Earlier>,
}

impl Known {
    /// Where it is in a repository.
    pub const PATH: &'static str = "manifests/identity.yaml";

    /// A tree whose trainer has one identity on every device: for tests.
    pub fn only(identity: &str) -> Self {
        Self { current: Identities::only(identity), earlier: Vec::new() }
    }

    /// Reads the one of the repository at `root`.
    pub fn load(root: &Path) -> Result<Self, ManifestError> {
        let path = root.join(Self::PATH);
        let text = files::read_text(&path).map_err(|error| ManifestError::new(Path::new(Self::PATH), error.to_string()))?;
        serde_yaml::from_str(&text).map_err(|error| ManifestError::new(Path::new(Self::PATH), error.to_string()))
    }

    /// The text of manifests/identity.yaml with other hashes of this tree; comments and `earlier` stay as they are.
    pub fn rewritten(text: &str, current: &Identities) -> String {
        let mut is_current = false;
        let line = |line: &str| {
            if !line.starts_with([' ', '#', '\n', '\r']) {
                is_current = line.starts_with("current:");
            }
            let kind = DeviceKind::ALL.into_iter().find(|kind| line.trim_start().starts_with(&format!("{}:", kind.word())));
            match kind.filter(|_| is_current) {
                Some(kind) => format!("  {}: \"{}\"\n", kind.word(), current.on(kind)),
                None => line.to_owned(),
            }
        };
        text.split_inclusive('\n').map(line).collect()
    }

    /// What a record says, as the newest identity that is known to say the same of it; of the run with this run file, where there is one.
    pub fn identity<'a>(&'a self, recorded: &'a str, run_yaml: Option<&str>) -> &'a str {
        let mut newest = recorded;
        let says = |earlier: &&Earlier| run_yaml.is_none_or(|run_yaml| earlier.is_of(run_yaml));
        // As many steps as there are entries: more would be a circle.
        for _ in &self.earlier {
            let Some(earlier) = self.earlier.iter().filter(says).find(|earlier| earlier.recorded == newest) else { break };
            newest = &earlier.identity;
        }
        newest
    }

    /// Records that say the same as `identity`, fewest steps first. What is shown step by step is one entry here: it holds where all do.
    pub fn same_as(&self, identity: &str) -> Vec<Earlier> {
        let mut found: Vec<Earlier> = self.earlier.iter().filter(|step| step.identity == identity).cloned().collect();
        let mut next = 0;
        while let Some(later) = found.get(next).cloned() {
            for step in self.earlier.iter().filter(|step| step.identity == later.recorded) {
                if step.recorded != identity && found.iter().all(|known| known.recorded != step.recorded) {
                    found.push(step.then(&later));
                }
            }
            next += 1;
        }
        found
    }

    /// Whether results that recorded this are what this tree's trainer would compute; `run_yaml` is the run file of one of their runs.
    pub fn is_current(&self, recorded: &str, run_yaml: Option<&str>) -> bool {
        let Identities { cpu, cuda, hip } = &self.current;
        [cpu, cuda, hip].into_iter().any(|current| current == self.identity(recorded, run_yaml))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn new_hashes_leave_comments_and_earlier_records_alone() {
        let earlier = "earlier:\n  - recorded: \"x\" # cpu: of old\n    identity: \"b\"\n    shown_by: \"two runs\"\n";
        let text =
            |hash: &str| format!("# cpu: a comment\ncurrent:\n  cpu: \"{hash}1\"\n  cuda: \"{hash}2\"\n  hip: \"{hash}3\"\n{earlier}");
        let new = Identities { cpu: "f1".into(), cuda: "f2".into(), hip: "f3".into() };
        let rewritten = Known::rewritten(&text("0"), &new);
        assert_eq!(rewritten, text("f"));
        assert_eq!(serde_yaml::from_str::<Known>(&rewritten).map(|known| known.current).ok(), Some(new));
    }

    #[test]
    fn a_record_from_before_identities_is_current_as_long_as_what_computed_the_same_is() {
        let known = |cuda: &str| Known {
            current: Identities { cpu: "a".into(), cuda: cuda.into(), hip: "c".into() },
            earlier: vec![Earlier {
                recorded: "sources".into(),
                identity: "b".into(),
                shown_by: "three runs made again".into(),
                one_micro_batch: false,
                not_for_heads_of: Vec::new(),
            }],
        };
        let is_current = |known: &Known, recorded| known.is_current(recorded, None);
        assert!(["sources", "b", "a"].iter().all(|recorded| is_current(&known("b"), recorded)));
        assert!(!is_current(&known("changed"), "sources") && !is_current(&known("changed"), "b"));
        assert!(!is_current(&known("b"), "other sources"));
        // Step by step, and never around in a circle.
        let entry = |recorded: &str, identity: &str| Earlier {
            recorded: recorded.into(),
            identity: identity.into(),
            ..known("d").earlier[0].clone()
        };
        let mut chain = known("d");
        chain.earlier.extend([entry("b", "d"), entry("x", "y"), entry("y", "x")]);
        assert!(is_current(&chain, "sources") && is_current(&chain, "b") && !is_current(&chain, "x"));
        chain.earlier[1].one_micro_batch = true;
        let all = chain.same_as("d");
        let [one, two] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&*one.recorded, &*one.identity, one.one_micro_batch), ("b", "d", true));
        assert_eq!((&*two.recorded, &*two.identity, two.one_micro_batch), ("sources", "d", true));
        assert_eq!(two.shown_by, "three runs made again; then three runs made again");
        assert_eq!(chain.same_as("x").len(), 1, "never around in a circle");
    }

    #[test]
    fn what_holds_for_one_micro_batch_is_not_said_of_several() {
        let known = "{recorded: a, identity: b, shown_by: parts, one_micro_batch: true}";
        let limited: Earlier = serde_yaml::from_str(known).unwrap();
        let general: Earlier = serde_yaml::from_str(&known.replace(", one_micro_batch: true", "")).unwrap();
        for (batch, is_one) in
            [("{sequences: 4}", true), ("{sequences: 4, accumulation: 1}", true), ("{sequences: 4, accumulation: 2}", false)]
        {
            let run = format!("schema: x\nbatch: {batch}\n");
            assert_eq!((limited.is_of(&run), general.is_of(&run)), (is_one, true), "{batch}");
        }
        assert!(!limited.is_of("no run file"));
    }

    /// Attention with heads of 128 was changed: runs of other models go on, and only they.
    #[test]
    fn what_holds_for_other_heads_is_not_said_of_these() {
        let limited: Earlier = serde_yaml::from_str("{recorded: a, identity: b, shown_by: parts, not_for_heads_of: [128]}").unwrap();
        let run = |heads: usize| format!("schema: x\nmodel: {{head_dim: {heads}, hidden_size: 512}}\n");
        assert!(limited.is_of(&run(64)) && !limited.is_of(&run(128)) && !limited.is_of("no run file"));
        let known = Known { earlier: vec![limited], ..Known::only("b") };
        assert!(known.is_current("a", Some(&run(64))) && !known.is_current("a", Some(&run(128))) && known.is_current("a", None));
    }
}
