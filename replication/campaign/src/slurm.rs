//! Runs as tasks of Slurm arrays: submitted, followed, taken into the cache by key, and submitted again where a task was lost.
//!
//! Each campaign has a folder below `cache/slurm`, which the nodes see: run files, one script an array, a log a run, and a record of what was
//! submitted. Tasks write there alone. This process may end: arrays go on, and the same command finds them again. What a task left in its
//! run's folder says how it ended; the queue says only which tasks are not over.

mod follow;
mod queue;
pub(crate) mod script;
mod shared;
mod state;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contract::device::DeviceKind;
use study::files::{self, FileError, sha256};
use study::folder::lock;
use study::manifest::{Manifests, Profile};
use study::plan::{self, PlannedRun};
use study::run_folder;

use crate::data::PreparedData;
use crate::error::CampaignError;
use crate::forecast;
use crate::prepared::Prepared;
use crate::run::{Means, Outcome, prepare_folder, record_failure};

use script::Job;

/// That runs go to Slurm, and with what.
#[derive(Debug, Clone, Default)]
pub struct Slurm {
    /// Options of sbatch beside ours.
    pub options: Vec<String>,
    pub pace: Pace,
}

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two looks at the queue: after something ended or was submitted, and at most.
    pub pauses: [Duration; 2],
    /// A task that has left the queue without a word is lost after so long: the file that says how it ended may come late to this machine. If
    /// it comes later, the run's next task finds it finished.
    pub late: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pauses: [Duration::from_millis(250), Duration::from_secs(10)], late: Duration::from_secs(2) }
    }
}

/// What the runs of a campaign have in common on a cluster.
pub(crate) struct Order<'a> {
    pub(crate) root: &'a Path,
    pub(crate) prepared: &'a Prepared<'a>,
    pub(crate) data: &'a PreparedData,
    pub(crate) slurm: &'a Slurm,
    /// No lines of progress.
    pub(crate) quiet: bool,
}

/// Carries out the runs that are not `done`, and takes what finishes into the cache.
///
/// # Errors
/// No Slurm, a refusal of sbatch, a reason for waiting that does not pass, or input data that is not what the plan says.
pub(crate) fn carry_out(
    order: &Order<'_>,
    done: &[bool],
    means: &Means<'_>,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Vec<Outcome>, CampaignError> {
    let runs = &order.prepared.plan.runs;
    if done.iter().all(|done| *done) {
        return Ok(vec![Outcome::Reused; runs.len()]);
    }
    order.data.check()?;
    let folder = folder_of(order.root, order.prepared);
    files::make_folder(&folder)?;
    if let Some(fault) = shared::locks_fail(&folder) {
        return Err(CampaignError::Slurm(fault));
    }
    let _lock = lock(&folder.join("lock"))?;
    let outcomes = follow::Following::new(order, folder.clone(), done, means, say)?.finish(stop)?;
    // What a run read must be what the plan says it read, also after the run.
    if let Err(error) = order.data.check() {
        for (run, _) in runs.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Finished) {
            files::remove_folder(&means.cache.join(run.key()))?;
        }
        return Err(error.into());
    }
    if outcomes.iter().all(Outcome::finished) {
        remove_unless_at_work(&folder)?;
    }
    Ok(outcomes)
}

/// The last tasks take a moment to leave the queue. One may still be at work on a run that was finished elsewhere meanwhile: it needs its folder.
fn remove_unless_at_work(folder: &Path) -> Result<(), CampaignError> {
    for _ in 0..10 {
        if queue::look(&name_of(folder))?.is_ok_and(|tasks| tasks.is_empty()) {
            files::remove_folder(folder)?;
            break;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    Ok(())
}

/// What failed runs left, into the cache: a report shows how far they came.
pub(crate) fn bring_failed(order: &Order<'_>, outcomes: &[Outcome], cache: &Path) -> Result<(), FileError> {
    let folder = folder_of(order.root, order.prepared).join("runs");
    for (run, outcome) in order.prepared.plan.runs.iter().zip(outcomes) {
        let Outcome::Failed(failure) = outcome else { continue };
        let (from, to) = (folder.join(run.key()), cache.join(run.key()));
        prepare_folder(&to, run)?;
        for name in run_folder::FILES.iter().filter(|name| from.join(name).is_file()) {
            files::copy(&from.join(name), &to.join(name))?;
        }
        record_failure(&to, &failure.said);
    }
    Ok(())
}

/// What the jobs of the campaign in this folder are called.
fn name_of(folder: &Path) -> String {
    format!("mxfp4-{}", folder.file_name().unwrap_or_default().to_string_lossy())
}

/// Folders of runs that are tasks now, beside the run cache.
pub(crate) fn at_work(cache: &Path) -> Vec<PathBuf> {
    let campaigns = std::fs::read_dir(cache.with_file_name("slurm")).into_iter().flatten().flatten();
    campaigns.map(|campaign| campaign.path().join("runs")).collect()
}

/// Of one selection of runs in one place. Another profile, selection, trainer or copy of the repository has another.
fn folder_of(root: &Path, prepared: &Prepared<'_>) -> PathBuf {
    let folder = root.join("cache").join("slurm");
    // Not the runs' own keys: those of earlier trainers stand for some of them once these are finished.
    let key = |run: &PlannedRun| prepared.build.ingredients(&run.run_yaml, prepared.plan.device).key() + "\n";
    let keys: String = prepared.plan.runs.iter().map(key).collect();
    let hash = sha256(format!("{}\n{keys}", folder.display()).as_bytes());
    folder.join(format!("{}-{}", prepared.plan.profile, &hash[..8]))
}

pub(crate) fn job<'a>(prepared: &Prepared<'_>, data: &'a PreparedData, name: &'a str, ranks: usize) -> Job<'a> {
    let minutes = minutes(prepared.manifests, prepared.profile(), prepared.plan.device);
    Job { name, device: prepared.plan.device, data: &data.folder, ranks: ranks.max(1), minutes }
}

/// The time limit of a run: twice what finished runs took, three times what public logs say, four times the roofline's, or four times its part of
/// what the profile takes on its machine, whichever is most. A run that a limit ends goes on from its checkpoint, so that a short one costs little.
fn minutes(manifests: &Manifests, profile: &Profile, device: DeviceKind) -> u64 {
    let known = forecast::Known::of(manifests, profile);
    let hours = forecast::forecast(manifests, profile, None, &known).map(|forecast| forecast.hours).unwrap_or_default();
    let of_arm = |arm: &forecast::Hours| [(arm.runs, 2.0), (arm.logs, 3.0), (arm.roofline, 4.0)].map(|(hours, times)| Some(times * hours?));
    let modelled = 60.0 * hours.iter().flat_map(of_arm).flatten().fold(0.0, f64::max);
    let runs = (plan::all_arms(profile).len() * profile.seeds.len()).max(1) as f64;
    // Campaigns on a CPU make several runs at once.
    let at_once = if device == DeviceKind::Cpu { 4.0 } else { 1.0 };
    let part = 4.0 * at_once * profile.requires.get("minutes").copied().unwrap_or_default() / runs;
    modelled.max(part).max(10.0).ceil() as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// By hand: 9,600 steps of 1.043 s in FP8 are 2.78 hours, the longest of the logs; smoke's minute and cpu's quarter of an hour are
    /// divided among their runs.
    #[test]
    fn a_time_limit_follows_from_the_forecast() {
        let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let of = |profile: &str, device| minutes(&manifests, manifests.profile(profile).unwrap(), device);
        assert!(of("llama31-8b", DeviceKind::Hip).abs_diff(3 * 9600 * 1043 / 60_000) <= 200, "{}", of("llama31-8b", DeviceKind::Hip));
        assert!(of("llama31-8b", DeviceKind::Hip) >= 500);
        assert_eq!((of("smoke", DeviceKind::Cpu), of("cpu", DeviceKind::Cpu)), (10, 10));
    }
}
