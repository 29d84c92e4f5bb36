//! The folder of one run, in the cache and in a result directory: which files are kept, whether it is finished, and where it ran.

mod agreement;

use std::path::Path;

use contract::device::GpuFacts;
use contract::id::Id;
use contract::json::{Document, Line as _};
use contract::outcome::Done;
use contract::timing::{Session, TimingLine};

use crate::files::{self, FileError};
use crate::ingredients::Ingredients;
use crate::packed;
use crate::seal::Seal;

pub use agreement::{Fault, faults};

/// The files of a run that are kept, as far as it has them; its checkpoints and weights are not among them.
pub const FILES: [&str; 8] =
    ["run.yaml", "ingredients.json", "metrics.jsonl", "timing.jsonl", "exchange.jsonl", "run.mllog", "done.json", FAILED];

/// Of a run that is not finished.
pub const FAILED: &str = "failed.json";

/// What a folder of the cache holds of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// All of it, and every file is what it was.
    Finished,
    /// Nothing yet, or a part.
    Unfinished,
    /// It was finished, and is not what it was: why. Nobody may use it.
    Corrupt(String),
}

/// What `folder` holds of the run with these ingredients. Without a seal (an earlier version wrote none, and a harness may be killed before
/// it does) a finished run counts where its files agree with each other.
pub fn state(folder: &Path, ingredients: &Ingredients) -> State {
    let run_sha256 = &ingredients.run;
    let broken = match Seal::read(folder) {
        Some(seal) => {
            // Earlier versions sealed runs of several ranks without it.
            let counts = |name: &&str| *name != "exchange.jsonl" || seal.names(name);
            seal.broken_among(folder, kept().filter(counts).filter(|name| folder.join(name).exists()))
        }
        None if !is_finished(folder, run_sha256) => return State::Unfinished,
        None => {
            let key = std::fs::read_to_string(folder.join("ingredients.json")).is_ok_and(|text| text == ingredients.json());
            let fault = faults(folder).into_iter().next().map(|Fault { file, what }| format!("{file}: {what}"));
            fault.or_else(|| (!key).then(|| "ingredients.json is not what its key is made of".to_owned()))
        }
    };
    match broken {
        Some(why) => State::Corrupt(why),
        None if is_finished(folder, run_sha256) => State::Finished,
        None => State::Corrupt("it is sealed, and not a finished run of this run.yaml".to_owned()),
    }
}

/// Seals the finished run in `folder`: from now on nobody believes it once a byte has changed.
pub fn seal(folder: &Path) -> Result<(), FileError> {
    Seal::write(folder, kept())
}

/// What a finished run has.
fn kept() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().filter(|name| *name != FAILED)
}

/// Whether this is how the folder of a run is called: a plain name, then a number as it is written.
pub fn is_name(arm: &str, seed: &str) -> bool {
    Id::is_plain(arm) && seed.parse().is_ok_and(|number: u64| number.to_string() == seed)
}

/// Whether the folder holds a finished run of exactly this run file. A done.json that is none counts as unfinished.
pub fn is_finished(folder: &Path, run_sha256: &str) -> bool {
    let read = || Done::from_json("done.json", &files::read_text(&folder.join("done.json")).ok()?).ok();
    let unchanged = |name: &str, sha256: &str| packed::sha256(&folder.join(name)).is_ok_and(|found| found == sha256);
    read().is_some_and(|done| {
        done.run_sha256 == run_sha256 && unchanged("run.yaml", run_sha256) && unchanged("metrics.jsonl", &done.metrics_sha256)
    })
}

/// The timing sessions of the run in `folder`: where it ran. None when it has no timings; what is wrong with a line that cannot be read is
/// said by [`faults`] and when the run is measured.
pub fn sessions(folder: &Path) -> Vec<Session> {
    let text = packed::text(&folder.join("timing.jsonl")).unwrap_or_default();
    let session = |line| match TimingLine::from_line(line) {
        Ok(TimingLine::Session(session)) => Some(session),
        _ => None,
    };
    text.lines().filter_map(session).collect()
}

/// The GPU that a session says it ran on, as far as it says; None on a processor.
pub fn gpu(session: Session) -> Option<GpuFacts> {
    Some(GpuFacts {
        device: session.device.to_string(),
        name: Some(session.gpu?),
        architecture: Some(session.instruction_set),
        memory_bytes: None,
        fp8: None,
        mxfp4: None,
        interpreted: session.interpreted,
        libraries: session.libraries,
        problem: None,
    })
}

/// What is wrong when the sessions in timing.jsonl are not of the device that was asked for, or of none at all.
pub fn ran_elsewhere(folder: &Path, place: &str) -> Option<String> {
    let wanted = place.split(':').next().unwrap_or_default();
    let sessions = sessions(folder);
    if sessions.iter().any(|session| session.interpreted) {
        return Some(
            "timing.jsonl says that an interpreter executed the kernels: that is a test of the machine code, not a run".to_owned(),
        );
    }
    let found = sessions.into_iter().map(|session| session.device).find(|device| device.word() != wanted)?;
    Some(format!("the trainer was told to use {place}, but timing.jsonl says that it ran on {found}"))
}
