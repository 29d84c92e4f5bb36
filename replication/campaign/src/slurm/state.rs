//! What was submitted, so that a second command finds it again. One folder below `cache/slurm` for each campaign.

use std::path::{Path, PathBuf};

use contract::json::Document;
use serde::{Deserialize, Serialize};
use study::files::{self, FileError};

/// One array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Array {
    /// None: sbatch was about to be called, and nobody wrote down what came of it.
    pub(super) job: Option<u64>,
    /// Keys, in the order of the tasks.
    pub(super) runs: Vec<String>,
    /// Steps of each run's checkpoint when it was submitted.
    pub(super) from: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) arrays: Vec<Array>,
    #[serde(skip)]
    path: PathBuf,
}

impl Document for State {
    const SCHEMA: &'static str = "mxfp4-slurm/1";
}

impl State {
    /// Nothing submitted, where there is no file. One that is none is moved aside by whoever reads the error.
    pub(super) fn load(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join("state.json");
        if !path.exists() {
            return Ok(Self { arrays: Vec::new(), path });
        }
        let text = files::read_text(&path)?;
        match Self::from_json("state.json", &text) {
            Ok(state) => Ok(Self { path, ..state }),
            Err(_) => {
                let source = std::io::Error::other(
                    "it is no record of what was submitted; look with squeue what is at work, end it, and remove this file",
                );
                Err(FileError { path, action: "read", source })
            }
        }
    }

    pub(super) fn save(&self) -> Result<(), FileError> {
        // Strings and numbers: cannot fail.
        files::write(&self.path, self.to_json_pretty().unwrap_or_default().as_bytes())
    }

    /// Where the newest submission of a run stands: its job and the task's number.
    pub(super) fn newest(&self, key: &str) -> Option<(u64, usize)> {
        self.arrays.iter().rev().find_map(|array| Some((array.job?, array.runs.iter().position(|run| run == key)?)))
    }

    /// How often a run was submitted with its checkpoint at this step.
    pub(super) fn tries(&self, key: &str, step: u64) -> usize {
        let tasks = self.arrays.iter().flat_map(|array| array.runs.iter().zip(&array.from));
        tasks.filter(|(run, from)| *run == key && **from == step).count()
    }

    /// A run whose failure was reported starts anew with the next command.
    pub(super) fn forget(&mut self, key: &str) {
        for array in &mut self.arrays {
            array.runs.iter_mut().filter(|run| *run == key).for_each(String::clear);
        }
    }

    /// An array whose number nobody wrote down is the newest of that name that no other is, if there is one.
    pub(super) fn adopt(&mut self, in_queue: impl Iterator<Item = u64>) {
        let known: Vec<u64> = self.arrays.iter().filter_map(|array| array.job).collect();
        let stranger = in_queue.filter(|job| !known.contains(job)).max();
        for array in self.arrays.iter_mut().filter(|array| array.job.is_none()) {
            array.job = stranger;
        }
        self.arrays.retain(|array| array.job.is_some());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn array(job: Option<u64>, runs: &[&str], from: &[u64]) -> Array {
        Array { job, runs: runs.iter().map(|&run| run.to_owned()).collect(), from: from.to_vec() }
    }

    #[test]
    fn what_was_submitted_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::load(folder.path()).unwrap();
        state.arrays = vec![array(Some(7), &["a", "b"], &[0, 0]), array(Some(9), &["b"], &[0]), array(None, &["c"], &[6])];
        state.save().unwrap();
        let mut state = State::load(folder.path()).unwrap();
        assert_eq!((state.newest("a"), state.newest("b"), state.newest("c")), (Some((7, 0)), Some((9, 0)), None));
        assert_eq!((state.tries("b", 0), state.tries("b", 6), state.tries("c", 6)), (2, 0, 1));
        let mut nobody = state.clone();
        nobody.adopt([7, 9].into_iter());
        assert_eq!((nobody.arrays.len(), nobody.newest("c")), (2, None), "it was never submitted");
        state.adopt([7, 9, 12].into_iter());
        assert_eq!(state.newest("c"), Some((12, 0)));
        state.forget("b");
        assert_eq!((state.tries("b", 0), state.newest("b"), state.newest("a")), (0, None, Some((7, 0))));
        std::fs::write(folder.path().join("state.json"), "{}").unwrap();
        assert!(State::load(folder.path()).unwrap_err().to_string().contains("look with squeue"));
    }
}
