//! What `kernels-bench` measured, read again: the document, its ratios and bars, and whether a directory agrees with itself.
//!
//! Nothing here measures. No claim's verdict rests on it; a campaign's report shows it beside its own measurements. `comparisons` is the
//! table of what is compared on a CPU and of the bars, `gpu_ratios` that of GPUs.

mod check;
mod clock_model;
pub mod comparisons;
mod document;
mod gpu;
pub mod gpu_ratios;
mod profile;
mod ranks;
mod samples;
mod tables;

use std::path::{Path, PathBuf};

pub use check::check;
pub use clock_model::{ClockModel, ModelledRate};
pub use comparisons::Compared;
pub use document::{DOCUMENT, Depth, Document, DocumentError, SCHEMA};
pub use gpu::{GpuBench, GpuRow, LEAST, NotRun, in_unit, is_summary, rate};
pub use profile::{ProfileRow, rows as profile_rows};
pub use ranks::{COLUMNS as RANK_COLUMNS, CUT, Exchange, Part, RankRow, RankStep, RanksBench, Timed, WHOLE, WHOLE_BATCH};
pub use samples::{Benchmark, Memory, Missing, Peer, Samples};
pub(crate) use tables::all as tables;

/// Whether `directory` is one of `kernels-bench`; a campaign's may hold such a document among its measurements, not at its root.
pub fn is_result(directory: &Path) -> bool {
    directory.join(DOCUMENT).exists() && !directory.join("campaign.json").exists()
}

/// The newest whole result of `machine`'s kernels below `results`, as a directory; none when there is none. What cannot be read is passed over.
pub fn newest(results: &Path, machine: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(results).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let of_kernels = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kernels-")));
    let read = of_kernels.filter_map(|path| Some((Document::read(&path.join(DOCUMENT)).ok()?, path)));
    let ours = read.filter(|(document, _)| document.machine == machine && document.only.is_none() && document.ranks.is_empty());
    // Of one day, the later has the longer name: -2, -3, ..., -10.
    let age = |document: &Document, path: &Path| (document.date.clone(), path.as_os_str().len(), path.to_owned());
    ours.max_by_key(|(document, path)| age(document, path)).map(|(_, path)| path)
}
