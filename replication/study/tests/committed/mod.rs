//! Measurements of the committed result directories: each is read once for all tests of this program, which takes seconds a directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use study::measure::{Measurements, measure};

use crate::synthetic::repository;

/// Result directories of campaigns.
pub fn campaigns() -> Vec<PathBuf> {
    let all = std::fs::read_dir(repository().join("results")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.join("campaign.json").is_file()).collect()
}

/// The directory of a profile's campaign.
pub fn of(profile: &str) -> PathBuf {
    let of_profile = |path: &PathBuf| {
        let record: serde_json::Value = serde_json::from_slice(&std::fs::read(path.join("campaign.json")).unwrap()).unwrap();
        record["profile"] == profile
    };
    campaigns().into_iter().find(of_profile).unwrap()
}

/// What was measured in `directory`, one of [`campaigns`].
pub fn measured(directory: &Path) -> &'static Measurements {
    static READ: LazyLock<BTreeMap<PathBuf, OnceLock<Measurements>>> =
        LazyLock::new(|| campaigns().into_iter().map(|path| (path, OnceLock::new())).collect());
    READ[directory].get_or_init(|| measure(directory).unwrap())
}
