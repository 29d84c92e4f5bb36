//! The live state of a campaign, from the files that its trainers write into the cache, wherever they were started from. Nothing is locked or
//! written: a trainer that starts at this moment must not find its run taken.

mod frame;
mod line;
mod page;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use contract::id::Id;
use contract::json::{Document as _, Line as _};
use contract::metrics::MetricsLine;
use contract::outcome::{Done, Failed, Status};
use contract::run_file::RunIdentity;
use contract::timing::TimingLine;
use serde::Deserialize;
use study::exit::{DATA, ExitCode};
use study::{files, plan};

use crate::slurm;
use crate::toolchain::captured;

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("{}: no run of {profile} is there; `cargo xtask replicate` starts a campaign", .cache.display())]
    Nothing { cache: PathBuf, profile: String },
}

impl ExitCode for WatchError {
    fn exit_code(&self) -> u8 {
        DATA
    }
}

/// The runs of one profile, as they are at a moment.
#[derive(Debug, Clone)]
pub struct Watched {
    pub profile: Id,
    /// By arm and seed.
    pub runs: Vec<Run>,
    /// A line for each GPU that `nvidia-smi` tells of.
    pub gpus: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub arm: String,
    pub seed: u64,
    /// Done, and asked for.
    pub step: u64,
    pub steps: u64,
    pub doing: Doing,
    /// Steps and validation losses, oldest first.
    pub evaluations: Vec<(u64, f64)>,
    /// Of late, evaluations included.
    pub seconds_a_step: Option<f64>,
    /// `cpu`, or the GPU's name.
    pub device: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    Waiting,
    AtWork,
    /// It has begun, and nobody is at it: killed or interrupted.
    Stopped,
    Finished,
    Diverged,
    /// What the trainer said first.
    Failed(String),
}

impl Doing {
    /// For people and programs alike.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::AtWork => "at work",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Diverged => "diverged",
            Self::Failed(_) => "failed",
        }
    }

    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(said) => Some(said),
            _ => None,
        }
    }
}

impl Run {
    /// At the pace of late, of a run that somebody is at.
    pub fn seconds_left(&self) -> Option<f64> {
        let pace = self.seconds_a_step.filter(|_| self.doing == Doing::AtWork)?;
        Some((self.steps - self.step.min(self.steps)) as f64 * pace)
    }

    fn losses(&self) -> Vec<f64> {
        self.evaluations.iter().map(|(_, loss)| *loss).collect()
    }
}

/// Where runs are: the cache of finished and local ones, and the folders in which Slurm's tasks work.
pub fn places(root: &Path) -> Vec<PathBuf> {
    let cache = plan::run_cache(root);
    let at_work = slurm::at_work(&cache);
    [cache].into_iter().chain(at_work).collect()
}

fn below(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Looks at every run in `places` of `profile`, or of the profile that was last at work.
///
/// # Errors
/// When there is none.
pub fn look(places: &[PathBuf], profile: Option<&str>, now: SystemTime) -> Result<Watched, WatchError> {
    let mut heads: Vec<Head> = places.iter().flat_map(|place| below(place)).filter_map(|folder| Head::read(&folder)).collect();
    let latest = heads.iter().max_by_key(|head| head.touched).map(|head| head.run.profile.to_string());
    let nothing = || WatchError::Nothing {
        cache: places.first().cloned().unwrap_or_default(),
        profile: profile.map_or("any profile".to_owned(), |id| format!("profile {id}")),
    };
    let profile = profile.map(str::to_owned).or(latest).ok_or_else(nothing)?;
    heads.retain(|head| head.run.profile.as_str() == profile);
    // A run with other ingredients lies in another folder: the one that was touched last is the one of today.
    heads.sort_by_key(|head| head.touched);
    let newest: BTreeMap<(String, u64), Head> = heads.into_iter().map(|head| ((head.run.arm.to_string(), head.run.seed), head)).collect();
    let profile = newest.values().next().map(|head| head.run.profile.clone()).ok_or_else(nothing)?;
    Ok(Watched { profile, runs: newest.into_values().map(|head| head.look(now)).collect(), gpus: Vec::new() })
}

impl Watched {
    /// With what `nvidia-smi` says of this machine's GPUs, where there is one.
    pub fn with_gpus(self) -> Self {
        Self { gpus: gpus("nvidia-smi".into()), ..self }
    }
}

/// A line for each GPU; none where the program is missing or says something else.
fn gpus(program: OsString) -> Vec<String> {
    let query = ["--query-gpu=index,name,utilization.gpu,memory.used,memory.total,temperature.gpu", "--format=csv,noheader,nounits"];
    let Ok(output) = captured(&duct::cmd(program, query).stdout_capture().stderr_null().unchecked()) else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let gibibytes =
        |mebibytes: &str| mebibytes.parse::<f64>().map_or_else(|_| mebibytes.to_owned(), |count| format!("{:.1}", count / 1024.0));
    let line = |line: &str| {
        let [index, name, busy, used, total, heat] = line.split(", ").collect::<Vec<_>>().try_into().ok()?;
        Some(format!("{index} {name}: {busy} % busy, {} of {} GiB, {heat} °C", gibibytes(used), gibibytes(total)))
    };
    text.lines().filter_map(line).collect()
}

/// A folder of the cache, before its logs are read.
struct Head {
    folder: PathBuf,
    run: RunIdentity,
    steps: u64,
    /// When the run was last begun or went on.
    touched: SystemTime,
}

impl Head {
    /// None where no run lies there, or one of which not even run.yaml is whole.
    fn read(folder: &Path) -> Option<Self> {
        #[derive(Deserialize)]
        struct Budget {
            steps: u64,
        }
        #[derive(Deserialize)]
        struct RunFile {
            run: RunIdentity,
            budget: Budget,
        }
        // Set aside: `<key>.unusable-1`.
        folder.file_name()?.to_str().filter(|name| !name.contains('.'))?;
        let RunFile { run, budget } = serde_yaml::from_str(&files::read_text(&folder.join("run.yaml")).ok()?).ok()?;
        let touched = ["ingredients.json", "timing.jsonl"].iter().filter_map(|name| changed(&folder.join(name))).max()?;
        Some(Self { folder: folder.to_owned(), run, steps: budget.steps, touched })
    }

    fn look(self, now: SystemTime) -> Run {
        let Self { folder, run, steps, .. } = self;
        let pace = Pace::read(&folder);
        let evaluations = evaluations(&folder);
        let document = |name: &str| files::read_text(&folder.join(name)).ok();
        let done = document("done.json").and_then(|text| Done::from_json("done.json", &text).ok());
        let failed = document("failed.json").and_then(|text| Failed::from_json("failed.json", &text).ok());
        // Written with each step and evaluation; an evaluation may take as long as many steps.
        let idle = changed(&folder.join("timing.jsonl")).and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
        let patience = Duration::from_secs_f64((20.0 * pace.seconds_a_step.unwrap_or(0.0)).clamp(120.0, 3600.0));
        let doing = match (&done, failed) {
            (Some(Done { status: Status::Completed, .. }), _) => Doing::Finished,
            (Some(Done { status: Status::Diverged, .. }), _) => Doing::Diverged,
            (None, Some(failed)) => Doing::Failed(failed.error.lines().next().unwrap_or_default().to_owned()),
            (None, None) if !pace.begun => Doing::Waiting,
            (None, None) if idle < patience => Doing::AtWork,
            (None, None) => Doing::Stopped,
        };
        let step = done.map_or(pace.step, |done| done.steps);
        Run {
            arm: run.arm.to_string(),
            seed: run.seed,
            step,
            steps,
            doing,
            evaluations,
            seconds_a_step: pace.seconds_a_step,
            device: pace.device,
        }
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// A line that is still being written is none.
fn evaluations(folder: &Path) -> Vec<(u64, f64)> {
    let text = study::packed::text(&folder.join("metrics.jsonl")).unwrap_or_default();
    let evaluation = |line: &str| match MetricsLine::from_line(line) {
        Ok(MetricsLine::Evaluation(evaluation)) => Some((evaluation.step, evaluation.loss?)),
        _ => None,
    };
    text.lines().filter_map(evaluation).collect()
}

/// What timing.jsonl says.
#[derive(Default)]
struct Pace {
    begun: bool,
    step: u64,
    device: String,
    seconds_a_step: Option<f64>,
}

impl Pace {
    /// So many of its last steps count.
    const STEPS: usize = 40;

    fn read(folder: &Path) -> Self {
        let text = study::packed::text(&folder.join("timing.jsonl")).unwrap_or_default();
        let mut pace = Self { device: "cpu".to_owned(), ..Self::default() };
        let mut lately: Vec<(bool, f64)> = Vec::new();
        for line in text.lines().filter_map(|line| TimingLine::from_line(line).ok()) {
            match line {
                TimingLine::Session(session) => {
                    pace.begun = true;
                    pace.step = session.resumed_from_step;
                    pace.device = session.gpu.unwrap_or_else(|| session.device.to_string());
                    lately.clear();
                }
                TimingLine::Step(step) => {
                    pace.step = step.step;
                    lately.push((true, step.seconds));
                }
                TimingLine::Evaluation(evaluation) => lately.push((false, evaluation.seconds)),
            }
        }
        let first = lately.iter().enumerate().rev().filter(|(_, (is_step, _))| *is_step).nth(Self::STEPS - 1).map_or(0, |(index, _)| index);
        let (steps, seconds) =
            lately[first..].iter().fold((0, 0.0), |(steps, sum), (is_step, seconds)| (steps + u64::from(*is_step), sum + seconds));
        pace.seconds_a_step = (steps > 0).then(|| seconds / steps as f64);
        pace
    }
}

#[cfg(test)]
mod tests;
