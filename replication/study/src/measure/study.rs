//! What the measuring side needs to know from the manifests that a result directory carries.
//!
//! Not the manifest reader: `manifest/` reads the archived copies as strictly as the originals. Here a claim's keys become one
//! value that holds exactly what its metric compares, so that a judge cannot look for an arm that is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::recipe::{Format, OperandSpec, Rounding};

use super::load::{MeasureError, Run};
use super::target::Estimator;
use crate::files::Context as _;
use crate::manifest;
use crate::manifest::Recipe;
use crate::manifest::paper::{Check, Citation, MetricName};
use crate::manifest::profile::{Hardware, Profile};
use crate::number::Unit;

/// Formats of the operands of `pass` in a recipe.
pub fn formats(recipe: &Recipe, pass: &str) -> Vec<Format> {
    let kinds = recipe.passes.all().into_iter().filter(|(name, _, _)| *name == pass).map(|(_, _, kind)| kind);
    kinds.filter_map(|kind| recipe.operands.get(kind)).map(|operand| operand.format).collect()
}

/// Whether `pass` has both operands in E2M1.
pub fn is_mxfp4(recipe: &Recipe, pass: &str) -> bool {
    let formats = formats(recipe, pass);
    !formats.is_empty() && formats.iter().all(|format| *format == Format::E2m1)
}

/// The E2M1 operand kinds of a recipe.
pub fn mxfp4_operands(recipe: &Recipe) -> impl Iterator<Item = &OperandSpec> {
    recipe.operands.values().filter(|operand| operand.format == Format::E2m1)
}

/// Whether every E2M1 operand is rounded to nearest and not rotated: no stabiliser.
pub fn is_plain(recipe: &Recipe) -> bool {
    mxfp4_operands(recipe).all(|operand| operand.rounding == Rounding::NearestEven && operand.rotation.is_none())
}

/// A paper: what it claims and by which rule it is judged.
#[derive(Debug, Clone)]
pub struct Paper {
    pub id: String,
    pub title: String,
    pub short: String,
    pub baseline: String,
    pub citation: Citation,
    pub setting: String,
    pub decision_rule: String,
    pub claims: Vec<Claim>,
    pub checks: Vec<Check>,
}

/// One claim of a paper.
#[derive(Debug, Clone)]
pub struct Claim {
    pub id: String,
    pub source: String,
    pub statement: String,
    pub metric: Metric,
    pub reported: Option<[f64; 2]>,
    pub tolerance: Option<f64>,
    pub native_formats: Vec<Format>,
}

/// What a claim is about, with the arms it compares.
#[derive(Debug, Clone, PartialEq)]
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

impl Metric {
    /// The unit in which it is written.
    pub fn unit(&self) -> Unit {
        match self {
            Self::TokenOverhead { .. } | Self::PassDominates { .. } => Unit::SignedPercent,
            Self::TimeSaved { .. } | Self::GapClosed { .. } => Unit::Percent,
            Self::TokenRatio { .. } | Self::OutlierReduction { .. } => Unit::Ratio,
            Self::KernelThroughputRatio { .. } | Self::StepTimeRatio { .. } | Self::ThroughputBecomesGain { .. } => Unit::Factor,
            Self::DoesNotConverge { .. } | Self::AllOf { .. } => Unit::Runs,
            Self::LossGap { .. } => Unit::Nats,
            Self::RotationIdentity => Unit::Error,
        }
    }

    /// The arm that a claim compares with, when it names one itself.
    pub fn baseline(&self) -> Option<&str> {
        match self {
            Self::TokenOverhead { baseline, .. }
            | Self::TokenRatio { baseline, .. }
            | Self::TimeSaved { baseline, .. }
            | Self::PassDominates { baseline, .. }
            | Self::LossGap { baseline, .. }
            | Self::GapClosed { baseline, .. } => Some(baseline),
            _ => None,
        }
    }

    /// The metric of a manifest's claim with the arms it compares.
    fn of(claim: &manifest::paper::Claim) -> Result<Self, String> {
        let need =
            |key: &str, value: &Option<String>| value.clone().ok_or_else(|| format!("claim {}: metric needs the key `{key}`", claim.id));
        let list = |key: &str, value: &Option<Vec<String>>| {
            value.clone().ok_or_else(|| format!("claim {}: metric needs the key `{key}`", claim.id))
        };
        let arm = || need("arm", &claim.arm);
        let baseline = || need("baseline", &claim.baseline);
        let without = || need("without", &claim.without);
        let ratio = || Ok::<_, String>((need("numerator", &claim.numerator)?, need("denominator", &claim.denominator)?));
        Ok(match claim.metric {
            MetricName::TokenOverhead => Self::TokenOverhead { arm: arm()?, baseline: baseline()? },
            MetricName::TokenRatio => Self::TokenRatio { arm: arm()?, baseline: baseline()? },
            MetricName::DoesNotConverge => Self::DoesNotConverge { arm: arm()? },
            MetricName::KernelThroughputRatio => {
                ratio().map(|(numerator, denominator)| Self::KernelThroughputRatio { numerator, denominator })?
            }
            MetricName::StepTimeRatio => ratio().map(|(numerator, denominator)| Self::StepTimeRatio { numerator, denominator })?,
            MetricName::TimeSaved => Self::TimeSaved { arm: arm()?, baseline: baseline()? },
            MetricName::PassDominates => {
                Self::PassDominates { full: need("full", &claim.full)?, without: without()?, baseline: baseline()? }
            }
            MetricName::AllOf => Self::AllOf { claims: list("claims", &claim.claims)? },
            MetricName::OutlierReduction => Self::OutlierReduction { arm: arm()? },
            MetricName::ThroughputBecomesGain => {
                Self::ThroughputBecomesGain { arms: list("arms", &claim.arms)?, time_saved: need("time_saved", &claim.time_saved)? }
            }
            MetricName::RotationIdentity => Self::RotationIdentity,
            MetricName::LossGap => Self::LossGap { arm: arm()?, baseline: baseline()? },
            MetricName::GapClosed => Self::GapClosed { arm: arm()?, without: without()?, baseline: baseline()? },
        })
    }
}

impl Paper {
    fn of(paper: manifest::paper::Paper) -> Result<Self, String> {
        let claim = |claim: manifest::paper::Claim| {
            claim.check()?;
            Ok::<Claim, String>(Claim {
                metric: Metric::of(&claim)?,
                id: claim.id,
                source: claim.source,
                statement: claim.statement,
                reported: claim.reported,
                tolerance: claim.tolerance,
                native_formats: claim.native_formats,
            })
        };
        Ok(Self {
            claims: paper.claims.into_iter().map(claim).collect::<Result<_, _>>()?,
            id: paper.id,
            title: paper.title,
            short: paper.short,
            baseline: paper.baseline,
            citation: paper.citation,
            setting: paper.setting,
            decision_rule: paper.decision_rule,
            checks: paper.checks,
        })
    }
}

/// The manifests of one campaign.
#[derive(Debug, Clone)]
pub struct Study {
    pub profile: Profile,
    /// Its papers, in the profile's order, as far as the directory has them.
    pub papers: Vec<Paper>,
    pub recipes: BTreeMap<String, Recipe>,
    pub hardware: Hardware,
    /// Which estimate of tokens to target verdicts use.
    pub estimator: Estimator,
    /// A program executed the device's instructions: nothing here was measured on the hardware.
    pub interpreted: bool,
}

impl Study {
    /// What the runs say of the hardware beyond its manifest: units that they did not use are none, and an interpreter is no device.
    pub fn executed(&mut self, runs: &[Run]) {
        let mut sessions = runs.iter().flat_map(|run| &run.sessions);
        if sessions.clone().any(|session| session.mxfp4.as_ref().is_some_and(|ways| ways.contains("emulated"))) {
            self.hardware.native_formats.retain(|format| *format != Format::E2m1);
        }
        self.interpreted = sessions.any(|session| session.interpreted);
        if self.interpreted {
            self.hardware.native_formats.clear();
            self.hardware.id = format!("{}-interpreted", self.hardware.id);
            self.hardware.title = format!("instruction set interpreter in place of {}: not run on that device", self.hardware.title);
        }
    }

    /// Reads `directory/manifests`.
    pub fn load(directory: &Path) -> Result<Self, MeasureError> {
        let profile: Profile = manifest::read(directory, Path::new("manifests/profile.yaml"))?;
        let estimator = profile.estimator;
        let mut papers = Vec::new();
        for path in yaml_files(directory, "manifests/papers")? {
            let paper = Paper::of(manifest::read(directory, &path)?);
            papers.push(paper.map_err(|what| MeasureError::Schema { path: directory.join(&path), line: 0, what })?);
        }
        papers.sort_by_key(|paper| profile.papers.iter().position(|id| *id == paper.id).unwrap_or(usize::MAX));
        let mut recipes = BTreeMap::new();
        for path in yaml_files(directory, "manifests/recipes")? {
            let recipe: Recipe = manifest::read(directory, &path)?;
            recipes.insert(recipe.id.clone(), recipe);
        }
        let hardware = manifest::read(directory, Path::new("manifests/hardware.yaml"))?;
        Ok(Self { hardware, profile, papers, recipes, estimator, interpreted: false })
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
    pub fn emulated_formats(&self, arms: &[&str]) -> Vec<Format> {
        let used = arms.iter().filter_map(|arm| self.recipes.get(*arm));
        let used = used.flat_map(|recipe| ["fprop", "dgrad", "wgrad"].into_iter().flat_map(|pass| formats(recipe, pass)));
        let mut missing: Vec<Format> = used.filter(|format| !self.native(*format)).collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Whether this hardware has an arithmetic unit for `format`.
    pub fn native(&self, format: Format) -> bool {
        self.hardware.native_formats.contains(&format)
    }
}

/// Every `.yaml` file of `root/folder`, by name, relative to `root`.
fn yaml_files(root: &Path, folder: &str) -> Result<Vec<PathBuf>, MeasureError> {
    let directory = root.join(folder);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&directory).at(&directory, "list")? {
        let name = entry.at(&directory, "list")?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "yaml") {
            paths.push(Path::new(folder).join(name));
        }
    }
    paths.sort();
    Ok(paths)
}
