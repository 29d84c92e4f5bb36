//! Two result directories side by side: equal where they must be, or by how much not; times with their ratios; verdicts.
//!
//! Hashes are computed from the files, not read from the lists, but whether each directory agrees with itself is `verify`'s
//! business. Reads only.

mod metrics;
mod print;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::yaml;

use crate::exit::{self, ExitCode};
use crate::files::FileError;
use crate::judge::{ClaimVerdict, judge};
use crate::measure::{MeasureError, Measurements, measure, times};
use crate::packed;
use crate::provenance;
use crate::record::{self, Campaign};
use crate::results;

pub use metrics::MetricDifference;

/// Why two directories could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    File(#[from] FileError),
    /// A directory could not be measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Not a result directory.
    #[error("{} is not a result directory: {why}; name one of the folders below results/", .path.display())]
    NotResults {
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl ExitCode for CompareError {
    fn exit_code(&self) -> u8 {
        exit::DATA
    }
}

#[derive(Debug, Clone)]
pub struct Comparison {
    /// Name, profile, commit and machine of each.
    pub titles: [String; 2],
    /// What is not the same about how they were made; empty when nothing is.
    pub made_differently: Vec<String>,
    /// Deterministic files that both have with equal bytes.
    pub equal_files: usize,
    /// Runs that both have and that differ.
    pub runs: Vec<RunDifference>,
    pub tables: Vec<String>,
    /// Runs (`arm/seed`) that only one of them has.
    pub only: [Vec<String>; 2],
    pub times: Vec<TimePair>,
    /// Verdicts on every claim that either has.
    pub verdicts: Vec<VerdictPair>,
}

/// How one run differs.
#[derive(Debug, Clone)]
pub struct RunDifference {
    /// `arm/seed`.
    pub run: String,
    /// Keys of run.yaml with different values, `key: first | second`.
    pub settings: Vec<String>,
    pub metrics: Vec<MetricDifference>,
    /// Deterministic files that only one of them has, or that differ where run.yaml and the metrics are equal.
    pub files: Vec<String>,
}

/// A measured time in both.
#[derive(Debug, Clone, PartialEq)]
pub struct TimePair {
    pub what: String,
    /// Median seconds in each; none where it was not measured.
    pub seconds: [Option<f64>; 2],
}

impl TimePair {
    /// Seconds of the second over seconds of the first: below one when the second is faster.
    pub fn ratio(&self) -> Option<f64> {
        self.seconds[1].zip(self.seconds[0]).map(|(second, first)| second / first)
    }
}

/// A claim's verdict in both, as `word, number interval`.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictPair {
    pub claim: String,
    /// Verdict words; none where the claim is not judged.
    pub words: [Option<String>; 2],
    pub numbers: [String; 2],
}

impl Comparison {
    /// Whether both have the same deterministic files with the same bytes.
    pub fn equal(&self) -> bool {
        self.runs.is_empty() && self.tables.is_empty() && self.only.iter().all(Vec::is_empty)
    }
}

/// One of the two.
struct Side {
    directory: PathBuf,
    campaign: Campaign,
    /// Path -> hash of deterministic files.
    hashes: BTreeMap<String, String>,
    measurements: Measurements,
}

impl Side {
    fn read(directory: &Path) -> Result<Self, CompareError> {
        let refuse = |why: String| CompareError::NotResults { path: directory.to_owned(), why };
        if directory.join(record::FILE).exists() {
            results::admit(directory)?;
        }
        let campaign = Campaign::read(directory).map_err(|error| refuse(error.to_string()))?;
        let list = provenance::deterministic(directory)?;
        let hashes = list.lines().filter_map(|line| line.split_once("  ")).map(|(hash, name)| (name.to_owned(), hash.to_owned())).collect();
        Ok(Self { directory: directory.to_owned(), campaign, hashes, measurements: measure(directory)? })
    }

    fn title(&self) -> String {
        let name =
            self.directory.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_default();
        let Campaign { profile, device, machine, commit, dirty, .. } = &self.campaign;
        let commit: String = commit.chars().take(8).collect();
        format!("{name} (profile {profile} on {device}, machine {machine}, commit {commit}{})", if *dirty { " with changes" } else { "" })
    }

    /// `arm/seed` of every run that left a run file.
    fn runs(&self) -> BTreeSet<String> {
        let name = |path: &String| Some(path.strip_prefix("runs/")?.strip_suffix("/run.yaml")?.to_owned());
        self.hashes.keys().filter_map(name).collect()
    }

    /// Text of a file of a run; empty when it is not there.
    fn run_text(&self, run: &str, file: &str) -> Result<String, FileError> {
        let name = format!("runs/{run}/{file}");
        if self.hashes.contains_key(&name) { packed::text(&self.directory.join(name)) } else { Ok(String::new()) }
    }
}

/// Compares two result directories.
///
/// # Errors
/// When one of them is not a result directory or does not follow its schema.
pub fn compare(first: &Path, second: &Path) -> Result<Comparison, CompareError> {
    let sides = [Side::read(first)?, Side::read(second)?];
    let [a, b] = &sides;
    let equal_files = a.hashes.iter().filter(|(name, hash)| b.hashes.get(*name) == Some(hash)).count();
    let (runs_a, runs_b) = (a.runs(), b.runs());
    let mut runs = Vec::new();
    for run in runs_a.intersection(&runs_b) {
        runs.extend(run_difference(a, b, run)?);
    }
    let tables: BTreeSet<&String> = a.hashes.keys().chain(b.hashes.keys()).filter(|name| name.starts_with("data/")).collect();
    let tables = tables.into_iter().filter(|name| a.hashes.get(*name) != b.hashes.get(*name)).cloned().collect();
    let only = [runs_a.difference(&runs_b).cloned().collect(), runs_b.difference(&runs_a).cloned().collect()];
    Ok(Comparison {
        titles: [a.title(), b.title()],
        made_differently: made_differently(&a.campaign, &b.campaign),
        equal_files,
        runs,
        tables,
        only,
        times: time_pairs(&a.measurements, &b.measurements),
        verdicts: verdict_pairs(&a.measurements, &b.measurements),
    })
}

fn made_differently(a: &Campaign, b: &Campaign) -> Vec<String> {
    let pairs = [
        ("profile", a.profile.as_str(), b.profile.as_str()),
        ("device", a.device.as_str(), b.device.as_str()),
        ("sources of trainer and kernels", a.trainer_code.as_str(), b.trainer_code.as_str()),
    ];
    let short = |text: &str| text.chars().take(16).collect::<String>();
    pairs
        .iter()
        .filter(|(_, first, second)| first != second)
        .map(|(name, first, second)| format!("{name}: {} | {}", short(first), short(second)))
        .collect()
}

/// How a run that both have differs; none when all its deterministic files are equal.
fn run_difference(a: &Side, b: &Side, run: &str) -> Result<Option<RunDifference>, FileError> {
    let hash = |side: &Side, file: &str| side.hashes.get(&format!("runs/{run}/{file}")).cloned();
    let differs = |file: &str| hash(a, file) != hash(b, file);
    let mut difference = RunDifference { run: run.to_owned(), settings: Vec::new(), metrics: Vec::new(), files: Vec::new() };
    if differs("run.yaml") {
        difference.settings = settings(&a.run_text(run, "run.yaml")?, &b.run_text(run, "run.yaml")?);
    }
    if differs("metrics.jsonl") {
        difference.metrics = metrics::differences(&a.run_text(run, "metrics.jsonl")?, &b.run_text(run, "metrics.jsonl")?);
    }
    for file in ["run.yaml", "metrics.jsonl", "done.json"] {
        match (hash(a, file), hash(b, file)) {
            (Some(_), None) => difference.files.push(format!("{file} is only in the first")),
            (None, Some(_)) => difference.files.push(format!("{file} is only in the second")),
            (first, second)
                if first != second && file == "done.json" && difference.settings.is_empty() && difference.metrics.is_empty() =>
            {
                difference.files.push("done.json differs although settings and metrics are equal: the final weights do".to_owned());
            }
            // Bytes differ, but no value does: another writer.
            (first, second) if first != second && difference.settings.is_empty() && difference.metrics.is_empty() => {
                difference.files.push(format!("{file} differs in its bytes, but in no value"));
            }
            _ => {}
        }
    }
    let RunDifference { settings, metrics, files, .. } = &difference;
    Ok((!settings.is_empty() || !metrics.is_empty() || !files.is_empty()).then_some(difference))
}

/// Keys of two run files with different values, with dots between levels.
pub(crate) fn settings(first: &str, second: &str) -> Vec<String> {
    let read = |text: &str| {
        let mut all = BTreeMap::new();
        if let Ok(value) = yaml::from_str::<serde_json::Value>(text) {
            flatten("", &value, &mut all);
        }
        all
    };
    let (first, second) = (read(first), read(second));
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |all: &BTreeMap<String, String>, key: &str| all.get(key).cloned().unwrap_or_else(|| "none".to_owned());
    keys.into_iter()
        .filter(|key| first.get(*key) != second.get(*key))
        .map(|key| format!("{key}: {} | {}", value(&first, key), value(&second, key)))
        .collect()
}

fn flatten(name: &str, value: &serde_json::Value, all: &mut BTreeMap<String, String>) {
    let Some(map) = value.as_object() else {
        all.insert(name.to_owned(), value.to_string());
        return;
    };
    for (key, value) in map {
        flatten(&if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, value, all);
    }
}

/// Names in the order of the first, then those that only the second has.
fn all_names<'a>(first: impl Iterator<Item = &'a str>, second: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = first.collect();
    for name in second {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn time_pairs(a: &Measurements, b: &Measurements) -> Vec<TimePair> {
    let mut pairs = Vec::new();
    let steps = [times::step_times(&a.step_times), times::step_times(&b.step_times)];
    for arm in all_names(steps[0].iter().map(|time| time.arm.as_str()), steps[1].iter().map(|time| time.arm.as_str())) {
        let seconds = [0, 1].map(|side: usize| steps[side].iter().find(|time| time.arm == arm).map(|time| time.seconds));
        pairs.push(TimePair { what: format!("step, {arm}"), seconds });
    }
    let kernels = [times::kernel_variants(&a.kernel_times, None), times::kernel_variants(&b.kernel_times, None)];
    for variant in all_names(kernels[0].iter().map(|time| time.variant.as_str()), kernels[1].iter().map(|time| time.variant.as_str())) {
        let seconds = [0, 1].map(|side: usize| kernels[side].iter().find(|time| time.variant == variant).map(|time| time.seconds));
        pairs.push(TimePair { what: format!("all GEMMs, {variant}"), seconds });
    }
    pairs
}

/// Verdicts judged now, by the rules of this version, for both.
fn verdict_pairs(a: &Measurements, b: &Measurements) -> Vec<VerdictPair> {
    let judged = [judge(a), judge(b)];
    let claims: [Vec<&ClaimVerdict>; 2] = [judged[0].claims().collect(), judged[1].claims().collect()];
    let names = all_names(claims[0].iter().map(|claim| claim.id.as_str()), claims[1].iter().map(|claim| claim.id.as_str()));
    let pair = |id: &str| {
        let found = [0, 1].map(|side: usize| claims[side].iter().find(|claim| claim.id == id));
        VerdictPair {
            claim: id.to_owned(),
            words: found.map(|claim| claim.map(|claim| claim.verdict.clone())),
            numbers: found
                .map(|claim| claim.map(|claim| format!("{} {}", claim.ours, claim.interval_text).trim().to_owned()).unwrap_or_default()),
        }
    };
    names.into_iter().map(pair).collect()
}
