//! Result directories as sources of evidence: which are campaigns, which say the same twice, and why one is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::id::Id;

use crate::files::{Context as _, FileError, sha256};
use crate::judge::{DEMONSTRATION, Sheets};
use crate::manifest::{Manifests, Paper, Profile};
use crate::measure::load::{Run, seeds_of_arms};
use crate::measure::{Measurements, measure};
use crate::number;
use crate::record::{self, Campaign};
use crate::{device_test, kernels, results};

/// Where evidence comes from: a campaign, or a comparison of public logs.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Folder's name, or what the logs are.
    pub name: String,
    /// A few words for the head of a column.
    pub label: String,
    /// None where the logs do not say.
    pub parameters: Option<u64>,
    /// Of the whole budget of a run.
    pub tokens: Option<u64>,
    pub profile: String,
    pub hardware: String,
    /// Dataset and tokenizer: losses of others are no losses of these. None where the logs do not say.
    pub data: Option<String>,
    /// Optimizer and schedule, to be compared. None where the logs do not say.
    pub training: Option<String>,
    /// The highest learning rate. None where the logs do not say.
    pub learning_rate: Option<f64>,
    /// Tokens of a batch. None where the logs do not say.
    pub batch: Option<u64>,
    /// The fewest and the most seeds of an arm on which its numbers rest.
    pub seeds: [usize; 2],
    /// Finished runs, and those that its profile plans.
    pub runs: [usize; 2],
    /// By which version of the rules its own report judges.
    pub judged_by: Option<u32>,
    /// Leads to its report from a page beside the directory.
    pub link: Option<String>,
    /// Whether its baseline gets as flat as at the paper's target; why not, where it does not.
    pub shallow: Option<String>,
    /// Runs of others, whom nobody controlled.
    pub public: bool,
    /// The seeds of its finished runs.
    pub seed_numbers: BTreeSet<u64>,
    /// What every finished run left: runs that left the same are one, whatever built them and whichever profile asked for them.
    pub traces: BTreeSet<String>,
}

/// Parameters; dataset and tokenizer; optimizer and schedule; tokens of a batch; hardware.
pub(crate) type Setting<'a> = (Option<u64>, Option<&'a str>, Option<&'a str>, Option<u64>, &'a str);

impl Source {
    /// What campaigns have in common that differ in seeds, arms and budget alone.
    pub(crate) fn setting(&self) -> Setting<'_> {
        (self.parameters, self.data.as_deref(), self.training.as_deref(), self.batch, &self.hardware)
    }

    pub(crate) fn seeds_text(&self) -> String {
        seeds_text(self.seeds)
    }
}

/// The fewest and the most seeds, in words.
pub(crate) fn seeds_text(seeds: [usize; 2]) -> String {
    format!("{} seed{}", number::between(seeds), number::plural(seeds[1]))
}

/// Ladders: places of campaigns between which only the model's size differs, from the smallest, one a size, that with the most runs. Text,
/// tokenizer, optimizer, schedule and batch are the same, and with `one_budget` the tokens of a run.
pub(super) fn ladders<'a>(sources: impl Iterator<Item = (usize, &'a Source)>, one_budget: bool) -> Vec<Vec<usize>> {
    let mut ladders: BTreeMap<_, BTreeMap<u64, (usize, usize)>> = BTreeMap::new();
    for (at, source) in sources.filter(|(_, source)| !source.public) {
        let sizes = ladders.entry((&source.data, &source.training, source.batch, source.tokens.filter(|_| one_budget))).or_default();
        let (size, runs) = (source.parameters.unwrap_or_default(), source.runs[0]);
        if sizes.get(&size).is_none_or(|(_, known)| *known < runs) {
            sizes.insert(size, (at, runs));
        }
    }
    ladders.into_values().map(|sizes| sizes.into_values().map(|(at, _)| at).collect()).collect()
}

/// A directory that holds no runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    pub name: String,
    pub what: &'static str,
    pub link: Option<String>,
}

/// A directory that is not evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// A campaign with what was measured in it.
pub(super) struct Read {
    pub source: Source,
    pub measurements: Measurements,
    key: String,
}

#[derive(Default)]
pub(super) struct Found {
    pub campaigns: Vec<Read>,
    pub others: Vec<Other>,
    pub left_out: Vec<LeftOut>,
    pub notes: Vec<String>,
}

/// The folders below `results`, by name. One whose name begins with a point is being put together.
///
/// # Errors
/// When it cannot be listed.
pub fn below(results: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(results).at(results, "list")? {
        let entry = entry.at(results, "list")?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_type().at(&entry.path(), "look at")?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

pub(super) fn read(manifests: &Manifests, papers: &[Paper], directories: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for directory in directories {
        let name = name(directory);
        // A message names the directory, never where it lies.
        let tidy = |why: String| {
            let shown = directory.display().to_string();
            why.replace(&format!("{shown}/"), "").replace(&shown, "it").lines().collect::<Vec<_>>().join(" ")
        };
        let link = |file: &str| Id::is_plain(&name).then(|| format!("{name}/{file}")).filter(|_| directory.join(file).is_file());
        if let Err(error) = results::admit(directory) {
            found.left_out.push(LeftOut { why: tidy(error.to_string()), name });
        } else if kernels::is_result(directory) {
            found.others.push(Other { link: link("kernels.html"), what: "times of kernels", name });
        } else if directory.join(device_test::SUMMARY).is_file() {
            found.others.push(Other { link: link(device_test::CHECKS), what: device_test::what(directory), name });
        } else {
            match campaign(papers, directory, &name, link("report.html")) {
                Ok(read) => found.campaigns.push(read),
                Err(why) => found.left_out.push(LeftOut { why: tidy(why), name }),
            }
        }
    }
    found.campaigns.sort_by(|a, b| (a.source.parameters, &a.source.name).cmp(&(b.source.parameters, &b.source.name)));
    counted_once(&mut found);
    label(manifests, &mut found.campaigns);
    found.left_out.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The last part of a path, also where it is given as `.` or ends with `..`.
fn name(directory: &Path) -> String {
    let of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    of(directory).or_else(|| of(&directory.canonicalize().ok()?)).unwrap_or_else(|| "a directory".to_owned())
}

fn campaign(papers: &[Paper], directory: &Path, name: &str, link: Option<String>) -> Result<Read, String> {
    if !directory.join(record::FILE).is_file() {
        return Err(format!("it has no {}, so it is no campaign", record::FILE));
    }
    let record = Campaign::read(directory).map_err(|error| error.to_string())?;
    let measurements = measure(directory).map_err(|error| error.to_string())?;
    let (study, profile) = (&measurements.study, &measurements.study.profile);
    if profile.demonstration {
        return Err(DEMONSTRATION.to_owned());
    }
    if !papers.iter().any(|paper| profile.papers.iter().any(|id| *id == paper.id.as_str())) {
        return Err("none of its papers is known here".to_owned());
    }
    let finished: Vec<&Run> = measurements.runs.iter().filter(|run| run.finished()).collect();
    let sizes: BTreeSet<u64> = finished.iter().map(|run| run.parameters).collect();
    let steps: BTreeSet<u64> = finished.iter().map(|run| run.tokens_per_step).collect();
    let (Some(parameters), Some(step)) = (sizes.first(), steps.first()) else {
        return Err("no run of it is finished".to_owned());
    };
    if sizes.len() > 1 || steps.len() > 1 {
        return Err("its runs are of models or batches of different size".to_owned());
    }
    let source = Source {
        name: name.to_owned(),
        label: String::new(),
        parameters: Some(*parameters),
        tokens: Some(profile.budget.steps.saturating_mul(*step)),
        profile: profile.id.to_string(),
        hardware: study.hardware.title.clone(),
        data: Some(data(profile)),
        training: Some(format!("{:?}, {:?}", profile.optimizer, profile.schedule)),
        learning_rate: Some(profile.optimizer.learning_rate),
        batch: Some(*step),
        seeds: seeds_of_arms(with_baseline(&finished, study.papers.first().map(|paper| paper.baseline.as_str()))),
        runs: [finished.len(), profile.seeds.len() * study.arms().len()],
        judged_by: study.papers.iter().map(|paper| paper.judging).max(),
        link,
        shallow: study.papers.first().and_then(|paper| shallow(&measurements, &paper.baseline)),
        public: false,
        seed_numbers: finished.iter().map(|run| run.seed).collect(),
        traces: finished.iter().map(|run| trace(run, &study.hardware.title)).collect(),
    };
    Ok(Read { source, measurements, key: record.key })
}

/// What a profile trains on, to be compared.
pub(super) fn data(profile: &Profile) -> String {
    format!("{}, {}", profile.dataset, profile.tokenizer)
}

/// Arm, seed, size, hardware and every loss of a run.
fn trace(run: &Run, hardware: &str) -> String {
    let losses: Vec<u8> = run.evaluations.iter().flat_map(|at| [at.tokens, at.loss.to_bits()]).flat_map(u64::to_le_bytes).collect();
    format!("{}/{} of {} on {hardware}, {}", run.arm, run.seed, run.parameters, sha256(&losses))
}

/// Runs on whose seeds numbers rest: those that the baseline has, too; all without a baseline.
fn with_baseline<'a>(finished: &[&'a Run], baseline: Option<&str>) -> impl Iterator<Item = &'a Run> {
    let seeds: BTreeSet<u64> = finished.iter().filter(|run| Some(run.arm.as_str()) == baseline).map(|run| run.seed).collect();
    finished.iter().copied().filter(move |run| seeds.is_empty() || seeds.contains(&run.seed))
}

/// Why its numbers are from another depth than the paper's; none where they are not.
fn shallow(measurements: &Measurements, baseline: &str) -> Option<String> {
    match Sheets::of(measurements, baseline) {
        Ok(sheets) => sheets.too_short().map(|(_, why)| why),
        Err(why) => Some(why),
    }
}

/// A campaign that is there twice, or that is part of another, is evidence once.
fn counted_once(found: &mut Found) {
    let mut whole = vec![true; found.campaigns.len()];
    for (at, one) in found.campaigns.iter().enumerate() {
        let other = found.campaigns.iter().enumerate().find(|(other_at, other)| {
            let (mine, theirs) = (&one.source.traces, &other.source.traces);
            let same = one.key == other.key || (mine == theirs && !mine.is_empty());
            // Of two that are the same, the first counts.
            *other_at != at && whole[*other_at] && if same { *other_at < at } else { !mine.is_empty() && mine.is_subset(theirs) }
        });
        if let Some((_, other)) = other {
            whole[at] = false;
            let what = if one.key == other.key || one.source.traces == other.source.traces { "the same campaign as" } else { "a part of" };
            let why = format!("it is {what} {} and counts once", other.source.name);
            found.left_out.push(LeftOut { name: one.source.name.clone(), why });
        }
    }
    let mut keep = whole.into_iter();
    found.campaigns.retain(|_| keep.next().unwrap_or(true));
}

/// Size and profile; the machine too, or a number, where two would be called the same.
fn label(manifests: &Manifests, campaigns: &mut [Read]) {
    let of = |source: &Source| format!("{}, {}", size(source.parameters.unwrap_or_default()), source.profile);
    let plain: Vec<String> = campaigns.iter().map(|read| of(&read.source)).collect();
    for (at, read) in campaigns.iter_mut().enumerate() {
        let before = plain[..at].iter().filter(|label| **label == plain[at]).count();
        let known = manifests.profiles.contains_key(read.source.profile.as_str());
        let number = if before > 0 { format!(" ({})", before + 1) } else { String::new() };
        read.source.label = format!("{}{}{number}", plain[at], if known { "" } else { " (its own profile)" });
    }
}

/// Campaigns that have runs in common are not independent.
pub(super) fn shared(sources: &[Source]) -> Vec<String> {
    let mut notes = Vec::new();
    for (at, one) in sources.iter().enumerate() {
        for other in &sources[at + 1..] {
            let count = one.traces.intersection(&other.traces).count();
            if count > 0 {
                notes.push(format!("{} and {} have {count} runs in common: they are not independent.", one.name, other.name));
            }
        }
    }
    notes
}

/// A number of parameters as readers say it: `32M`, `8.0B`.
pub(crate) fn size(parameters: u64) -> String {
    let number = parameters as f64;
    match number {
        n if n >= 999.5e6 => format!("{:.1}B", n / 1e9),
        n if n >= 9.95e6 => format!("{:.0}M", n / 1e6),
        n => format!("{:.1}M", n / 1e6),
    }
}
