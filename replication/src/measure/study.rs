//! What the measuring side needs to know from the manifests that a result directory carries.
//!
//! Not the manifest reader: `manifest/` checked these files, with every key, before anything ran. Here the archived copies are
//! read again, and only for the keys that decide how a number is measured, judged or named.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::load::MeasureError;
use super::target::Estimator;

/// The parts of a profile that say how runs are measured.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names and meanings of the profile manifest")]
pub struct Profile {
    pub id: String,
    pub title: String,
    pub purpose: String,
    pub papers: Vec<String>,
    pub batch: Batch,
    pub budget: Budget,
    pub evaluation: EvaluationPlan,
    pub target_loss: Option<f64>,
    pub estimator: String,
    pub optimizer: serde_yaml::Value,
    pub schedule: serde_yaml::Value,
    pub seeds: Vec<u64>,
    pub arms: Vec<ArmGroup>,
    pub requires: BTreeMap<String, f64>,
}

/// Sequences in one optimizer step.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the field carries the name of the profile manifest")]
pub struct Batch {
    pub sequences: u64,
}

/// Length of every run.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the field carries the name of the profile manifest")]
pub struct Budget {
    pub steps: u64,
}

/// When and on how much text runs are evaluated.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the profile manifest")]
pub struct EvaluationPlan {
    pub every_steps: u64,
    pub sequences: u64,
}

/// Arms that belong together in tables and figures.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the profile manifest")]
pub struct ArmGroup {
    pub group: String,
    pub recipes: Vec<String>,
}

/// The parts of a recipe that name it and say which formats its GEMMs use.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the recipe manifest")]
pub struct Recipe {
    pub id: String,
    pub title: String,
    pub label: String,
    pub operands: BTreeMap<String, Operand>,
    pub passes: BTreeMap<String, BTreeMap<String, String>>,
}

/// One operand kind of a recipe.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the recipe manifest")]
pub struct Operand {
    pub format: String,
    pub rounding: String,
    #[serde(default)]
    pub rotation: Option<serde_yaml::Value>,
}

impl Recipe {
    /// Formats of the operands of `pass`, by operand.
    pub fn formats(&self, pass: &str) -> Vec<&str> {
        let kinds = self.passes.get(pass).into_iter().flat_map(BTreeMap::values);
        kinds.filter_map(|kind| self.operands.get(kind)).map(|operand| operand.format.as_str()).collect()
    }

    /// Every format that any pass uses, sorted, without repeats.
    pub fn all_formats(&self) -> Vec<&str> {
        let mut formats: Vec<&str> = self.passes.keys().flat_map(|pass| self.formats(pass)).collect();
        formats.sort_unstable();
        formats.dedup();
        formats
    }

    /// Whether `pass` has both operands in E2M1.
    pub fn is_mxfp4(&self, pass: &str) -> bool {
        let formats = self.formats(pass);
        !formats.is_empty() && formats.iter().all(|format| *format == "e2m1")
    }

    /// Whether every E2M1 operand is rounded to nearest and not rotated: no stabiliser.
    pub fn is_plain(&self) -> bool {
        self.operands.values().filter(|operand| operand.format == "e2m1").all(|operand| operand.rounding == "nearest-even" && operand.rotation.is_none())
    }
}

/// The parts of a hardware manifest that decide evidence.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the hardware manifest")]
pub struct Hardware {
    pub id: String,
    pub title: String,
    pub device: String,
    pub native_formats: Vec<String>,
}

/// A paper: what it claims and by which rule it is judged.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the paper manifest")]
pub struct Paper {
    pub id: String,
    pub title: String,
    pub short: String,
    pub baseline: String,
    pub citation: Citation,
    pub setting: String,
    pub decision_rule: String,
    pub claims: Vec<Claim>,
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// How to cite a paper.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the paper manifest")]
pub struct Citation {
    pub key: String,
    pub authors: String,
    pub year: u32,
    pub url: String,
}

/// One claim of a paper.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the paper manifest")]
pub struct Claim {
    pub id: String,
    pub source: String,
    pub statement: String,
    #[serde(flatten)]
    pub metric: Metric,
    #[serde(default)]
    pub reported: Option<[f64; 2]>,
    #[serde(default)]
    pub tolerance: Option<f64>,
    #[serde(default)]
    pub native_formats: Vec<String>,
}

/// What a claim is about, with the arms it compares.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "metric", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the fields carry the names of the paper manifest")]
pub enum Metric {
    /// Tokens to target of `arm` over `baseline`, minus one.
    TokenOverhead { arm: String, baseline: String },
    /// Tokens to target of `arm` over `baseline`.
    TokenRatio { arm: String, baseline: String },
    /// No seed of `arm` reaches the target.
    DoesNotConverge { arm: String },
    /// Throughput of one kernel variant over another.
    KernelThroughputRatio { numerator: String, denominator: String },
    /// Seconds a step of `numerator` over `denominator`.
    StepTimeRatio { numerator: String, denominator: String },
    /// One minus seconds to target of `arm` over `baseline`.
    TimeSaved { arm: String, baseline: String },
    /// (full - without) costs more tokens than (without - baseline).
    PassDominates { full: String, without: String, baseline: String },
    /// Every named claim is reproduced.
    AllOf { claims: Vec<String> },
    /// Outlier amax over rms falls when `arm` rotates.
    OutlierReduction { arm: String },
    /// Step throughput rises along `arms`, and the claim `time_saved` is positive.
    ThroughputBecomesGain { arms: Vec<String>, time_saved: String },
    /// Rotations cancel within the derived bound.
    RotationIdentity,
    /// Loss of `arm` minus loss of `baseline` at equal tokens.
    LossGap { arm: String, baseline: String },
    /// Share of the gap of `without` that `arm` closes.
    GapClosed { arm: String, without: String, baseline: String },
}

/// Arithmetic on a paper's own numbers.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs, reason = "the fields carry the names of the paper manifest")]
pub struct Check {
    pub id: String,
    pub expressions: Vec<String>,
    pub values: Vec<String>,
    pub note: String,
}

/// The manifests of one campaign.
#[derive(Debug, Clone)]
pub struct Study {
    /// The profile.
    pub profile: Profile,
    /// Its papers, in the profile's order, as far as the directory has them.
    pub papers: Vec<Paper>,
    /// Recipes by id.
    pub recipes: BTreeMap<String, Recipe>,
    /// The hardware.
    pub hardware: Hardware,
    /// Which estimate of tokens to target verdicts use.
    pub estimator: Estimator,
}

impl Study {
    /// Reads `directory/manifests`.
    ///
    /// # Errors
    /// When a manifest is missing or lacks a key that measuring needs.
    pub fn load(directory: &Path) -> Result<Self, MeasureError> {
        let root = directory.join("manifests");
        let profile: Profile = yaml(&root.join("profile.yaml"))?;
        let estimator = match profile.estimator.as_str() {
            "grid" => Estimator::Grid,
            "interpolated" => Estimator::Interpolated,
            other => {
                let what = format!("estimator `{other}` is neither `grid` nor `interpolated`");
                return Err(MeasureError::Schema { path: root.join("profile.yaml"), line: 0, what });
            }
        };
        let mut papers: Vec<Paper> = every_yaml(&root.join("papers"))?;
        papers.sort_by_key(|paper| profile.papers.iter().position(|id| *id == paper.id).unwrap_or(usize::MAX));
        let recipes: Vec<Recipe> = every_yaml(&root.join("recipes"))?;
        let recipes = recipes.into_iter().map(|recipe| (recipe.id.clone(), recipe)).collect();
        Ok(Self { hardware: yaml(&root.join("hardware.yaml"))?, profile, papers, recipes, estimator })
    }

    /// What to call an arm in tables and figures.
    pub fn label<'a>(&'a self, arm: &'a str) -> &'a str {
        self.recipes.get(arm).map_or(arm, |recipe| recipe.label.as_str())
    }

    /// Arms of the profile in the order of its groups.
    pub fn arms(&self) -> Vec<&str> {
        self.profile.arms.iter().flat_map(|group| group.recipes.iter().map(String::as_str)).collect()
    }

    /// Formats among those of `arms` that this hardware has no unit for, sorted.
    pub fn emulated_formats(&self, arms: &[&str]) -> Vec<String> {
        let used = arms.iter().filter_map(|arm| self.recipes.get(*arm)).flat_map(Recipe::all_formats);
        let mut missing: Vec<String> = used.filter(|format| !self.native(format)).map(str::to_owned).collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Whether this hardware has an arithmetic unit for `format`.
    pub fn native(&self, format: &str) -> bool {
        self.hardware.native_formats.iter().any(|native| native == format)
    }
}

fn yaml<T: DeserializeOwned>(path: &Path) -> Result<T, MeasureError> {
    let text = std::fs::read_to_string(path).map_err(|source| MeasureError::Read { path: path.to_owned(), source })?;
    serde_yaml::from_str(&text).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        MeasureError::Schema { path: path.to_owned(), line, what: error.to_string() }
    })
}

/// Every `.yaml` file of `directory`, by name.
fn every_yaml<T: DeserializeOwned>(directory: &Path) -> Result<Vec<T>, MeasureError> {
    let failed = |source| MeasureError::Read { path: directory.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| yaml(path)).collect()
}
