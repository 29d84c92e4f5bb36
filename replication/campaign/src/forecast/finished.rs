//! Runs that are finished here or committed, as a prediction of how long the next of their profile take.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::json::{Document as _, Line as _};
use contract::outcome::Done;
use contract::run_file::RunFile;
use contract::timing::TimingLine;
use study::manifest::{Hardware, Profile};
use study::record::Campaign;
use study::statistics::median;
use study::{files, packed, plan};

/// A finished run on GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRun {
    pub arm: String,
    /// The GPU's own name.
    pub gpu: String,
    pub ranks: u64,
    pub steps: u64,
    /// Of all steps and evaluations; starting is not in it.
    pub seconds: f64,
}

/// Those of a profile in the cache, and in the newest directory of results that has it. What cannot be read there `verify` says; a forecast goes
/// without it.
pub(super) fn finished_runs(root: &Path, profile: &str) -> Vec<FinishedRun> {
    let cached = folders(&plan::run_cache(root)).into_iter().filter_map(|folder| {
        let run = RunFile::load(&folder.join("run.yaml")).ok()?.run.run;
        (run.profile.as_str() == profile).then(|| FinishedRun::read(&folder, &run.arm))?
    });
    let mut all: Vec<FinishedRun> = cached.collect();
    if let Some(campaign) = newest(&root.join("results"), profile) {
        for arm in folders(&campaign.join("runs")) {
            let name = arm.file_name().unwrap_or_default().to_string_lossy().into_owned();
            all.extend(folders(&arm).iter().filter_map(|folder| FinishedRun::read(folder, &name)));
        }
    }
    all
}

/// Seconds of a run of each arm on so many GPUs: the median over those that took the profile's steps.
pub(super) fn taken(runs: &[FinishedRun], profile: &Profile, hardware: &Hardware, gpus: u64) -> BTreeMap<String, f64> {
    let is_such = |run: &&FinishedRun| run.gpu == hardware.title && run.ranks == gpus && run.steps == profile.budget.steps;
    let mut by_arm: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in runs.iter().filter(is_such) {
        by_arm.entry(run.arm.clone()).or_default().push(run.seconds);
    }
    by_arm.into_iter().filter_map(|(arm, seconds)| Some((arm, median(&seconds)?))).collect()
}

impl FinishedRun {
    /// None of a run that is not finished, ran on a CPU or an interpreter, or whose timings cannot be read.
    fn read(folder: &Path, arm: &str) -> Option<Self> {
        let done = Done::from_json("done.json", &files::read_text(&folder.join("done.json")).ok()?).ok()?;
        let (mut last, mut seconds) = (None, 0.0);
        for line in packed::text(&folder.join("timing.jsonl")).ok()?.lines() {
            match TimingLine::from_line(line).ok()? {
                TimingLine::Session(session) => last = Some(session),
                TimingLine::Step(step) => seconds += step.seconds,
                TimingLine::Evaluation(evaluation) => seconds += evaluation.seconds,
            }
        }
        let session = last.filter(|session| !session.interpreted)?;
        Some(Self { arm: arm.to_owned(), gpu: session.gpu?, ranks: session.ranks, steps: done.steps, seconds })
    }
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The directory with the latest day's campaign of the profile.
fn newest(results: &Path, profile: &str) -> Option<PathBuf> {
    let campaign = |folder: PathBuf| {
        let campaign = Campaign::read(&folder).ok()?;
        (campaign.profile.as_str() == profile).then_some((campaign.date, folder))
    };
    folders(results).into_iter().filter_map(campaign).max().map(|(_, folder)| folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use contract::outcome::Status;
    use study::manifest::Manifests;

    use super::super::{Known, forecast};
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// From the packed logs of the newest committed campaign, summed by hand; the dry run shows them.
    #[test]
    fn committed_runs_say_how_long_the_next_take() {
        let manifests = Manifests::load(&root()).unwrap();
        let profile = manifests.profile("dnc-32m-sums").unwrap();
        let campaign = newest(&root().join("results"), "dnc-32m-sums").unwrap();
        let of_seed = |seed: u64| {
            let text = packed::text(&campaign.join(format!("runs/fp8/{seed}/timing.jsonl"))).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            lines.filter_map(|line| line["seconds"].as_f64()).sum::<f64>()
        };
        let mut seconds = [11, 12, 13].map(of_seed);
        seconds.sort_by(f64::total_cmp);
        let runs = finished_runs(&root(), "dnc-32m-sums");
        assert_eq!(runs.iter().filter(|run| run.arm == "fp8" && seconds.contains(&run.seconds)).count() % 3, 0);
        let found = taken(&runs, profile, &manifests.hardware[&profile.hardware], 1);
        assert_eq!((found["fp8"], found.len()), (seconds[1], 6));
        assert!(taken(&runs, profile, &manifests.hardware[&profile.hardware], 2).is_empty(), "on one GPU each");
        let text = forecast(&manifests, profile, None, &Known { runs, ..Known::default() }).unwrap().to_string();
        assert!(text.contains(&format!("{:.2}", seconds[1] / 60.0)) && text.contains("runs: medians"), "{text}");
    }

    /// What is unfinished, of an interpreter or of a CPU says nothing.
    #[test]
    fn other_runs_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let session = |more: &str| {
            format!(
                r#"{{"schema":"mxfp4-timing/1","kind":"session","device":"cuda","threads":1,"instruction_set":"sm_90a","cpu":"a CPU",{more}"resumed_from_step":0}}"#
            )
        };
        let steps = "\n{\"kind\":\"eval\",\"step\":0,\"seconds\":0.5}\n{\"kind\":\"step\",\"step\":1,\"seconds\":2.0}\n";
        let read = |more: &str| {
            files::write(&folder.path().join("timing.jsonl"), (session(more) + steps).as_bytes()).unwrap();
            FinishedRun::read(folder.path(), "fp8")
        };
        assert_eq!(read(r#""gpu":"NVIDIA H200","#), None, "not finished");
        let done = Done {
            status: Status::Completed,
            steps: 1,
            tokens: 1,
            final_train_loss: None,
            final_validation_loss: None,
            metrics_sha256: String::new(),
            model_sha256: None,
            run_sha256: String::new(),
        };
        files::write(&folder.path().join("done.json"), done.to_json().unwrap().as_bytes()).unwrap();
        let run = read(r#""gpu":"NVIDIA H200","#).unwrap();
        assert_eq!((run.seconds, run.ranks, run.steps), (2.5, 1, 1));
        assert_eq!((read(""), read(r#""gpu":"NVIDIA H200","interpreted":true,"#)), (None, None));
    }
}
