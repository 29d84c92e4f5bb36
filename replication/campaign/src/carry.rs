//! Carrying work between machines: finished runs out of and into the run cache, and a copy that runs without cargo.
//!
//! A run's key names no machine, so a run that was finished anywhere with the same ingredients is finished here. Checkpoints of runs that
//! are not finished can be carried, too. Timings of steps are not carried: they belong to a machine.

use std::fmt;
use std::path::{Path, PathBuf};

use study::files::{self, FileError, sha256};
use study::folder::lock_cache;
use study::ingredients::Ingredients;
use study::packed;
use study::plan::run_cache;
use study::record;
use study::results;
use study::run_folder::{self, State};
use study::seal::{self, UNUSABLE};

use crate::benchmarks::Benchmarks;
use crate::environment::Version;
use crate::error::CampaignError;
use crate::toolchain::{self, TRAINER, ToolError, Trainer, build_trainer};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// Finished runs that were copied.
    pub runs: usize,
    /// Of runs that are not finished.
    pub checkpoints: usize,
    /// Finished runs that were there already.
    pub there: usize,
    /// Folders that were not taken, and why.
    pub refused: Vec<String>,
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, checkpoints, there, refused } = self;
        writeln!(f, "{runs} finished runs and {checkpoints} checkpoints copied, {there} finished runs were there already")?;
        refused.iter().try_for_each(|line| writeln!(f, "refused: {line}"))
    }
}

/// Copies the finished runs of the cache to `to`, one folder a key; with `checkpoints` also where the others stand. What is there
/// already stays.
pub fn export(root: &Path, to: &Path, checkpoints: bool) -> Result<Carried, FileError> {
    let mut carried = Carried::default();
    let cache = run_cache(root);
    files::make_folder(&cache)?;
    for folder in run_folders(&cache)? {
        take(&folder, to, checkpoints, &mut carried)?;
    }
    Ok(carried)
}

/// Takes runs into the cache: from what [`export`] wrote, another cache's `runs` folder, or a result directory. Each must be what its
/// key says; a finished run that is here already with other metrics is refused and named.
///
/// # Errors
/// When there is no run, a file cannot be read or written, or a campaign is at work here.
pub fn import(root: &Path, from: &Path) -> Result<Carried, CampaignError> {
    let folders = run_folders(from)?;
    if folders.is_empty() {
        return Err(CampaignError::NoRuns { folder: from.to_owned() });
    }
    let _lock = lock_cache(root)?;
    let mut carried = Carried::default();
    let cache = run_cache(root);
    files::make_folder(&cache)?;
    for folder in folders {
        take(&folder, &cache, true, &mut carried)?;
    }
    Ok(carried)
}

/// Folders below `from` that hold a run with its ingredients.
fn run_folders(from: &Path) -> Result<Vec<PathBuf>, FileError> {
    let names = if from.join(record::FILE).exists() { results::admit(from)? } else { files::list(from)? };
    let names = names.iter().filter(|name| !name.contains(UNUSABLE));
    let folder = |name: &String| Some(from.join(name.strip_suffix("ingredients.json")?));
    Ok(names.filter_map(folder).filter(|folder| folder.join("run.yaml").is_file()).collect())
}

/// One folder into `cache`, under its key.
pub(crate) fn take(folder: &Path, cache: &Path, checkpoints: bool, carried: &mut Carried) -> Result<(), FileError> {
    let mut refuse = |why: &str| carried.refused.push(format!("{}: {why}", folder.display()));
    let run_sha256 = sha256(files::read_text(&folder.join("run.yaml"))?.as_bytes());
    let ingredients: Option<Ingredients> = serde_json::from_str(&files::read_text(&folder.join("ingredients.json"))?).ok();
    let Some(ingredients) = ingredients.filter(|ingredients| ingredients.run == run_sha256) else {
        refuse("ingredients.json is not about this run.yaml");
        return Ok(());
    };
    let to = cache.join(ingredients.key());
    let finished = match run_folder::state(folder, &ingredients) {
        State::Corrupt(why) => {
            refuse(&why);
            return Ok(());
        }
        state => state == State::Finished,
    };
    if !finished && folder.join("done.json").exists() {
        refuse("done.json is not that of a finished run of this run.yaml with these metrics");
        return Ok(());
    }
    if let Some(error) = run_folder::ran_elsewhere(folder, &ingredients.device) {
        refuse(&error);
        return Ok(());
    }
    let there = run_folder::state(&to, &ingredients);
    if matches!(there, State::Corrupt(_)) {
        seal::set_aside(&to)?;
    }
    if there == State::Finished {
        let metrics = |folder: &Path| packed::sha256(&folder.join("metrics.jsonl"));
        if finished && metrics(folder)? != metrics(&to)? {
            refuse("the same run is there already with other metrics: the same ingredients gave other numbers");
        } else if finished {
            carried.there += 1;
        }
        return Ok(());
    }
    if finished {
        copy_files(folder, &to)?;
        run_folder::seal(&to)?;
        carried.runs += 1;
    } else if checkpoints && folder.join("checkpoint").is_dir() && !to.join("checkpoint").exists() {
        copy_files(folder, &to)?;
        for name in files::list(&folder.join("checkpoint"))? {
            files::copy(&folder.join("checkpoint").join(&name), &to.join("checkpoint").join(&name))?;
        }
        carried.checkpoints += 1;
    }
    Ok(())
}

/// `done.json` last: a copy that is cut short is no finished run.
fn copy_files(folder: &Path, to: &Path) -> Result<(), FileError> {
    let (done, others): (Vec<&str>, Vec<&str>) = run_folder::FILES.into_iter().partition(|name| *name == "done.json");
    for name in others.into_iter().chain(done) {
        let from = folder.join(name);
        if packed::is_there(&from) && name != run_folder::FAILED {
            packed::copy_unpacked(&from, &to.join(name))?;
        }
    }
    Ok(())
}

/// What a packed folder holds besides programs: read by `xtask` where it stands, the peers by Python.
const TEXTS: [&str; 3] = ["manifests", "paper", "kernels/peers"];

/// Copies manifests, templates, peer scripts and the lock file, without what Python left beside its scripts.
pub fn pack_texts(root: &Path, to: &Path) -> Result<(), FileError> {
    for folder in TEXTS {
        // A manifest that is gone must not live on in a copy.
        files::remove_folder(&to.join(folder))?;
        for name in files::list(&root.join(folder))?.iter().filter(|name| !name.contains("__pycache__/")) {
            files::copy(&root.join(folder).join(name), &to.join(folder).join(name))?;
        }
    }
    files::copy(&root.join("Cargo.lock"), &to.join("Cargo.lock"))
}

/// Fills `to` with all that a machine without cargo needs, but data: this program, the trainer, the CPU's benchmarks, manifests, templates,
/// peer scripts and VERSION.
pub fn pack(root: &Path, to: &Path, say: &dyn Fn(&str)) -> Result<(), ToolError> {
    let here = std::env::current_exe().map_err(|source| FileError { path: PathBuf::from("xtask"), action: "find", source })?;
    pack_program(root, to, &here, say)
}

/// The same with another program of the harness than this one.
pub(crate) fn pack_program(root: &Path, to: &Path, xtask: &Path, say: &dyn Fn(&str)) -> Result<(), ToolError> {
    files::make_folder(to)?;
    let (trainer, _) = build_trainer(root, say)?;
    pack_texts(root, to)?;
    files::write(&to.join("VERSION"), Version::of(root).json().as_bytes())?;
    toolchain::copy_program(xtask, &to.join(format!("xtask{}", std::env::consts::EXE_SUFFIX)))?;
    toolchain::copy_program(&trainer.program, &to.join(TRAINER))?;
    say("building the CPU's benchmarks");
    Benchmarks::build(root)?.pack(to)?;
    // Kept beside the copy, which then is not asked where time is dear.
    toolchain::identity(&Trainer { program: to.join(TRAINER) })?;
    Ok(())
}
