//! Runs that others have published, judged by the rules that our own runs are judged by.
//!
//! `manifest::public_logs` loads them, `numbers` measures them, `judged` sets them against a paper's claims, `tables` writes the CSV files.
//! Nothing here is mixed with our own runs: it stands beside them.

mod judged;
mod numbers;
mod tables;

use std::path::Path;

use crate::files;
use crate::manifest::ManifestError;
use crate::manifest::public_logs::{FOLDER, files_of, load};
use crate::record::{Campaign, RecordError};
use crate::results;

pub use judged::{Comparison, Decomposition, OtherBaseline, Row, beside, judge, judge_by};
pub use numbers::{GroupNumbers, RunNumbers, StepBasis};
pub use tables::all as tables;

/// Copies the evidence about the campaign's papers into a result directory that was made without any; what is there stays. The next
/// `report` shows it.
///
/// # Errors
/// When the directory is not a result directory, has evidence already, or cannot be written.
pub fn add(root: &Path, directory: &Path) -> Result<(), RecordError> {
    results::admit(directory)?;
    let campaign = Campaign::read(directory)?;
    let target = directory.join(FOLDER);
    if target.exists() {
        return Err(ManifestError::new(&target, "is already there; evidence in a result directory is never replaced").into());
    }
    let all = load(root).map_err(ManifestError::from)?;
    for name in files_of(&all, &campaign.papers) {
        files::copy(&root.join("manifests").join(&name), &directory.join("manifests").join(&name))?;
    }
    Ok(())
}
