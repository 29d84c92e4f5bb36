//! Manifests of public logs: which runs others have published, where their logs are, what is compared with what, and what else differs
//! between the two.
//!
//! A manifest under `manifests/evidence/` names groups of runs; the folder of its name holds the runs as CSV (`mllog::table`).
//! `crate::public_logs` measures and judges them. Nothing of it is mixed with our own runs: it stands beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::id::Id;
use serde::Deserialize;

use super::error::ManifestError;
use super::paper::{Metric, Paper};
use super::read::read;
use crate::files::{self, FileError};
use crate::mllog::table::{self, Record, TableError};
use crate::suggest::unknown;

/// Folder of the manifests, in the repository and in a result directory.
pub const FOLDER: &str = "manifests/evidence";

/// One file of manifests/evidence.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// File name without `.yaml`; also the folder of the groups.
    pub id: Id,
    /// Heading of the report's section.
    pub title: String,
    /// MLPerf's name of the benchmark; every run must be one of it.
    pub benchmark: String,
    /// Target loss, nats per token.
    pub target_loss: f64,
    /// Tokens in a sequence.
    pub tokens_per_sample: u64,
    pub groups: Vec<Group>,
    /// Means without runs behind them.
    #[serde(default)]
    pub references: Vec<Reference>,
    /// What is compared with what.
    pub comparisons: Vec<ComparisonManifest>,
    /// What else differs, one sentence each; printed beside the numbers.
    pub confounders: Vec<String>,
}

/// Runs of one system in one round.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub id: Id,
    pub label: String,
    pub round: String,
    pub submitter: String,
    pub accelerator: String,
    /// Lowest precision of the linear layers.
    pub precision: String,
    /// How many runs there must be.
    pub runs: usize,
    /// Where the logs are.
    pub source: Source,
    /// How the numbers came here, in a sentence.
    pub read: String,
    /// Length of an evaluation, where no run of the group has it.
    #[serde(default)]
    pub evaluation_seconds: Option<EvaluationSeconds>,
}

/// A folder in a public repository.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub repository: String,
    pub commit: String,
    pub path: String,
}

/// How long an evaluation takes, and where that was read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSeconds {
    /// Median, seconds.
    pub median: f64,
    pub from: String,
}

/// A mean without runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub id: Id,
    pub label: String,
    /// Mean samples to the target on the evaluation grid.
    pub samples: f64,
    /// Mean samples to the target, interpolated.
    #[serde(default)]
    pub interpolated: Option<f64>,
    /// Standard deviation of the samples with divisor n.
    #[serde(default)]
    pub population_sd: Option<f64>,
    /// Mean seconds of a training step.
    #[serde(default)]
    pub step_seconds: Option<f64>,
    /// Mean (olympic) minutes to the target.
    #[serde(default)]
    pub minutes: Option<f64>,
    pub runs: usize,
    /// Where it is from.
    pub source: String,
}

/// One group against another, for some claims of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonManifest {
    pub id: Id,
    /// Head of its column.
    pub label: String,
    /// arXiv id.
    pub paper: String,
    /// Group whose cost is asked for.
    pub arm: String,
    /// Group it is compared with.
    pub baseline: String,
    pub claims: Vec<String>,
    /// What else could have been the baseline.
    #[serde(default)]
    pub other_baselines: Vec<OtherBaselineManifest>,
}

/// Another baseline: pooled groups under a label, or a reference.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum OtherBaselineManifest {
    Groups { label: String, groups: Vec<String> },
    Reference { reference: String },
}

/// A manifest with its runs.
#[derive(Debug, Clone)]
pub struct PublicLogs {
    pub manifest: Manifest,
    pub runs: BTreeMap<String, Vec<Record>>,
}

impl PublicLogs {
    /// The group with that id; `check` has made sure that there is one.
    pub fn group(&self, id: &str) -> Option<&Group> {
        self.manifest.groups.iter().find(|group| group.id == id)
    }
}

/// Why evidence cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PublicLogsError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<PublicLogsError> for ManifestError {
    fn from(error: PublicLogsError) -> Self {
        match error {
            PublicLogsError::Manifest(error) => error,
            PublicLogsError::File(error) | PublicLogsError::Table(TableError::File(error)) => {
                ManifestError::new(&error.path, format!("cannot {}: {}", error.action, error.source))
            }
            PublicLogsError::Table(TableError::Content { path, line, what }) => {
                ManifestError { path, line: usize::try_from(line).unwrap_or(0), message: what }
            }
        }
    }
}

/// Every evidence manifest of the repository or result directory at `root`, with its runs, by id; empty when there are none, as in
/// result directories from before there was evidence.
///
/// # Errors
/// A manifest or table that is not what its schema says, or that do not agree.
pub fn load(root: &Path) -> Result<Vec<PublicLogs>, PublicLogsError> {
    let folder = root.join(FOLDER);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let names = files::list(&folder)?;
    let manifests = names.iter().filter(|name| !name.contains('/') && name.ends_with(".yaml"));
    manifests.map(|name| load_one(root, name)).collect()
}

fn load_one(root: &Path, name: &str) -> Result<PublicLogs, PublicLogsError> {
    let path = Path::new(FOLDER).join(name);
    let manifest: Manifest = read(root, &path)?;
    let wrong = |message: String| ManifestError { path: path.clone(), line: 1, message };
    if format!("{}.yaml", manifest.id) != name {
        return Err(wrong(format!("id `{}` must be the file's name, `{}`", manifest.id, name.trim_end_matches(".yaml"))).into());
    }
    check_names(&manifest).map_err(wrong)?;
    let mut runs = BTreeMap::new();
    for group in &manifest.groups {
        let folder = Path::new(FOLDER).join(&manifest.id).join(&group.id);
        let records = table::read(&root.join(&folder)).map_err(|error| relative(error, root))?;
        check_runs(&manifest, group, &records).map_err(|message| ManifestError { path: folder.join(table::RUNS), line: 0, message })?;
        runs.insert(group.id.to_string(), records);
    }
    Ok(PublicLogs { manifest, runs })
}

/// Paths of messages are relative to the repository or result directory, as those of manifests are.
fn relative(error: TableError, root: &Path) -> TableError {
    let short = |path: PathBuf| path.strip_prefix(root).map(Path::to_owned).unwrap_or(path);
    match error {
        TableError::Content { path, line, what } => TableError::Content { path: short(path), line, what },
        other => other,
    }
}

/// Ids are unique, and every name names something.
fn check_names(manifest: &Manifest) -> Result<(), String> {
    let groups: Vec<&str> = manifest.groups.iter().map(|group| group.id.as_str()).collect();
    let references: Vec<&str> = manifest.references.iter().map(|reference| reference.id.as_str()).collect();
    let comparisons: Vec<&str> = manifest.comparisons.iter().map(|comparison| comparison.id.as_str()).collect();
    for (kind, ids) in [("groups", &groups), ("references", &references), ("comparisons", &comparisons)] {
        let mut seen = BTreeSet::new();
        for id in ids {
            if !seen.insert(id) {
                return Err(format!("{kind}: `{id}` stands there twice"));
            }
        }
    }
    if !(manifest.target_loss.is_finite() && manifest.target_loss > 0.0) || manifest.tokens_per_sample == 0 {
        return Err("target_loss and tokens_per_sample: must be above zero".to_owned());
    }
    for comparison in &manifest.comparisons {
        let mut named = vec![&comparison.arm, &comparison.baseline];
        for other in &comparison.other_baselines {
            match other {
                OtherBaselineManifest::Groups { groups, .. } => named.extend(groups),
                OtherBaselineManifest::Reference { reference } if !references.contains(&reference.as_str()) => {
                    return Err(format!("comparison {}: {}", comparison.id, unknown("reference", reference, &references)));
                }
                OtherBaselineManifest::Reference { .. } => {}
            }
        }
        if let Some(name) = named.into_iter().find(|name| !groups.contains(&name.as_str())) {
            return Err(format!("comparison {}: {}", comparison.id, unknown("group", name, &groups)));
        }
    }
    Ok(())
}

/// The table holds the runs that the manifest says.
fn check_runs(manifest: &Manifest, group: &Group, records: &[Record]) -> Result<(), String> {
    if records.len() != group.runs {
        return Err(format!("holds {} runs, the manifest says {}", records.len(), group.runs));
    }
    let mut seeds = BTreeMap::new();
    for record in records {
        let (number, run) = (record.number, &record.run);
        if !run.benchmark.is_empty() && run.benchmark != manifest.benchmark {
            return Err(format!("run {number} is of the benchmark `{}`, not of {}", run.benchmark, manifest.benchmark));
        }
        if run.precision.as_ref().is_some_and(|stated| *stated != group.precision) {
            let stated = run.precision.as_deref().unwrap_or_default();
            return Err(format!("run {number} states the precision {stated}, the manifest says {}", group.precision));
        }
        if let Some(other) = run.seed.and_then(|seed| seeds.insert(seed, number)) {
            return Err(format!("runs {other} and {number} have the same seed: they are not independent"));
        }
        if run.setting("global_batch_size").is_none_or(|batch| batch < 1.0) {
            return Err(format!("run {number} has no global_batch_size"));
        }
        if run.evaluations.is_empty() {
            return Err(format!("run {number} has no evaluation"));
        }
    }
    Ok(())
}

/// Whether the claims that comparisons speak to are there, and of a kind that logs can speak to.
pub fn check_claims(all: &[PublicLogs], papers: &BTreeMap<String, Paper>) -> Result<(), ManifestError> {
    for evidence in all {
        let path = Path::new(FOLDER).join(format!("{}.yaml", evidence.manifest.id));
        for comparison in &evidence.manifest.comparisons {
            check_comparison(comparison, papers).map_err(|what| ManifestError {
                path: path.clone(),
                line: 0,
                message: format!("comparison {}: {what}", comparison.id),
            })?;
        }
    }
    Ok(())
}

fn check_comparison(comparison: &ComparisonManifest, papers: &BTreeMap<String, Paper>) -> Result<(), String> {
    let ids: Vec<&str> = papers.keys().map(String::as_str).collect();
    let paper = papers.get(&comparison.paper).ok_or_else(|| unknown("paper", &comparison.paper, &ids))?;
    let claims: Vec<&str> = paper.claims.iter().map(|claim| claim.id.as_str()).collect();
    for id in &comparison.claims {
        let claim = paper.claims.iter().find(|claim| claim.id == *id).ok_or_else(|| unknown("claim", id, &claims))?;
        // What another claim says is judged there; the row of this one is left out.
        let speaks = matches!(
            claim.metric,
            Metric::TokenOverhead { .. }
                | Metric::TokenRatio { .. }
                | Metric::StepTimeRatio { .. }
                | Metric::TimeSaved { .. }
                | Metric::SameAs { .. }
        );
        if !speaks {
            return Err(format!("claim {id} is not about tokens to the target, step time or time to the target"));
        }
    }
    Ok(())
}

/// Files of the evidence about `papers`, relative to `manifests/`, sorted: what a result directory carries.
pub fn files_of(all: &[PublicLogs], papers: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for PublicLogs { manifest, .. } in all {
        if manifest.comparisons.iter().any(|comparison| papers.contains(&comparison.paper)) {
            names.push(format!("evidence/{}.yaml", manifest.id));
            for group in &manifest.groups {
                names.extend([table::RUNS, table::EVALUATIONS].map(|name| format!("evidence/{}/{}/{name}", manifest.id, group.id)));
            }
        }
    }
    names.sort();
    names
}
