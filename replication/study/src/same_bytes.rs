//! How many runs of a result directory are byte for byte those of another one of the same profile.
//!
//! `replicate` keeps the other's hashes in the directory, so that the report stays a function of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::json::Document as _;
use contract::outcome::Done;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::ingredients::Ingredients;
use crate::run_folder;

/// File name in a result directory.
pub const FILE: &str = "same-bytes.json";
/// Schema of `same-bytes.json`.
pub const SCHEMA: &str = "mxfp4-same-bytes/1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameBytes {
    /// `mxfp4-same-bytes/1`.
    pub schema: String,
    /// Name of the other directory.
    pub directory: String,
    /// Hash of the other's metrics, by `arm/seed`, for runs with the same run file.
    pub metrics: BTreeMap<String, String>,
    /// Those of them whose trainer did not compute the same there as here: other bytes are no wonder.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub other_trainer: BTreeSet<String>,
}

impl SameBytes {
    /// Of the directories in `others`, the one that has most of the runs of `directory`, the last by name among equals; none where no other has
    /// a run with the same run file.
    pub fn find(directory: &Path, others: &[PathBuf]) -> Option<Self> {
        let ours = finished(directory);
        let shared = |other: &PathBuf| {
            let equal = |(run, theirs): (String, Done)| {
                let same = ours.get(&run).is_some_and(|ours| ours.run_sha256 == theirs.run_sha256);
                same.then_some((run, theirs.metrics_sha256))
            };
            let metrics: BTreeMap<_, _> = finished(other).into_iter().filter_map(equal).collect();
            let differs = |run: &&String| matches!([directory, other].map(|folder| trainer_code(folder, run)), [Some(here), Some(there)] if here != there);
            let other_trainer = metrics.keys().filter(differs).cloned().collect();
            let directory = other.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Self { schema: SCHEMA.to_owned(), directory, metrics, other_trainer }
        };
        let found = others.iter().map(shared).filter(|other| !other.metrics.is_empty());
        found.max_by(|a, b| (a.metrics.len(), &a.directory).cmp(&(b.metrics.len(), &b.directory)))
    }

    /// What `directory` holds of it; none where there is none, or none that can be read (which `verify` names).
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_str(&files::read_text(&directory.join(FILE)).ok()?).ok().filter(|read: &Self| read.schema == SCHEMA)
    }

    /// Whether the other directory, below `results`, is there and has no run that `directory` does not have byte for byte.
    pub fn has_all(&self, results: &Path, directory: &Path) -> bool {
        let (ours, theirs) = (finished(directory), finished(&results.join(&self.directory)));
        let is_ours = |(run, theirs): (&String, &Done)| {
            ours.get(run).is_some_and(|ours| (&ours.run_sha256, &ours.metrics_sha256) == (&theirs.run_sha256, &theirs.metrics_sha256))
        };
        !theirs.is_empty() && theirs.iter().all(is_ours)
    }

    pub fn json(&self) -> String {
        // Texts alone: cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The line of the report about the runs in `directory`.
    pub fn line(&self, directory: &Path) -> String {
        let ours = finished(directory);
        let is_equal = |run: &String, done: &Done| self.metrics.get(run) == Some(&done.metrics_sha256);
        let equal = ours.iter().filter(|(run, done)| is_equal(run, done)).count();
        let (shared, here) = (ours.keys().filter(|run| self.metrics.contains_key(*run)).count(), ours.len());
        let others = if shared < here { format!(" (of {here} here; the others have no equal run file there)") } else { String::new() };
        let differs = |run: &&String| self.metrics.contains_key(*run) && self.other_trainer.contains(*run);
        let another = match ours.iter().filter(|(run, done)| !is_equal(run, done) && differs(run)).count() {
            0 => String::new(),
            count => format!("; {count} of the others had a trainer there that computed something else"),
        };
        format!("{equal} of {shared} runs{others} are byte for byte those of {}{another}", self.directory)
    }
}

/// What the trainer of a run computed, as a hash; none where the run does not say.
fn trainer_code(directory: &Path, run: &str) -> Option<String> {
    let text = files::read_text(&directory.join("runs").join(run).join("ingredients.json")).ok()?;
    serde_json::from_str::<Ingredients>(&text).ok().map(|ingredients| ingredients.trainer_code)
}

/// How each finished run of a result directory ended, by `arm/seed`. Only folders that are there are looked into.
pub fn finished(directory: &Path) -> BTreeMap<String, Done> {
    let names = files::list(&directory.join("runs")).unwrap_or_default();
    let done = |name: &String| {
        let run = name.strip_suffix("/done.json")?;
        let (arm, seed) = run.split_once('/')?;
        let text = files::read_text(&directory.join("runs").join(name)).ok().filter(|_| run_folder::is_name(arm, seed))?;
        Some((run.to_owned(), Done::from_json(name, &text).ok()?))
    };
    names.iter().filter_map(done).collect()
}
