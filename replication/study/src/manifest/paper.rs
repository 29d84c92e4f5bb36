//! Papers: claims with the number reported, how it is measured, and the tolerance; arithmetic checks on the paper's own numbers.

use contract::id::Id;
use contract::recipe::Format;
use serde::Deserialize;

use crate::number::Unit;

/// One file of manifests/papers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// arXiv id, where it has one; also the file name without `.yaml`. Quoted in YAML, or it would be read as a number.
    pub id: Id,
    pub title: String,
    pub short: String,
    /// The arm that others are compared with.
    pub baseline: String,
    /// Which version of the rules judges its claims: 1 or 2 (docs/verdicts.md). Papers of campaigns before there were two say nothing.
    #[serde(default = "first_version")]
    pub judging: u32,
    pub citation: Citation,
    /// The paper's own model, data and hardware.
    pub setting: String,
    /// How a number becomes a verdict; printed beside the verdicts.
    pub decision_rule: String,
    pub claims: Vec<Claim>,
    /// Does its text add up?
    #[serde(default)]
    pub checks: Vec<Check>,
}

impl Paper {
    /// How a reader would look it up: its number at arXiv, or the id of its manifest.
    pub fn named(&self) -> String {
        if self.citation.url.starts_with("https://arxiv.org/") { format!("arXiv {}", self.id) } else { self.id.to_string() }
    }
}

fn first_version() -> u32 {
    1
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    pub key: String,
    pub authors: String,
    pub year: u32,
    #[serde(deserialize_with = "address")]
    pub url: String,
}

/// Reports link to it: it must lead to a page and not be a script.
fn address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url = String::deserialize(deserializer)?;
    if url.starts_with("https://") { Ok(url) } else { Err(serde::de::Error::custom(format!("`{url}` must begin with https://"))) }
}

/// What a paper says, and how it is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Keys")]
pub struct Claim {
    pub id: Id,
    /// Table or section.
    pub source: String,
    pub statement: String,
    pub metric: Metric,
    /// Lower and upper end of what the paper reports.
    pub reported: Option<[f64; 2]>,
    /// By how much that range is widened on both sides, in the same unit.
    pub tolerance: Option<f64>,
    /// Formats whose own arithmetic unit the claim is about.
    pub native_formats: Vec<Format>,
    /// What it says about fewer or more, whatever the number; judged by the second version alone.
    pub direction: Option<Direction>,
}

/// An arm needs more or fewer tokens (or a higher or lower loss) than another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    pub word: DirectionWord,
    /// The other arm; the claim's baseline when there is none.
    pub than: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionWord {
    More,
    Fewer,
    /// Does not help: not fewer by more than the claim's tolerance.
    NoFewer,
}

/// A claim as its file writes it: which of the keys there must be, its metric decides.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    id: Id,
    source: String,
    statement: String,
    metric: MetricName,
    arm: Option<String>,
    baseline: Option<String>,
    numerator: Option<String>,
    denominator: Option<String>,
    full: Option<String>,
    without: Option<String>,
    arms: Option<Vec<String>>,
    time_saved: Option<String>,
    claims: Option<Vec<String>>,
    reported: Option<[f64; 2]>,
    tolerance: Option<f64>,
    #[serde(default)]
    native_formats: Vec<Format>,
    direction: Option<DirectionWord>,
    than: Option<String>,
}

/// The words for [`Metric`].
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MetricName {
    TokenOverhead,
    TokenRatio,
    DoesNotConverge,
    KernelThroughputRatio,
    StepTimeRatio,
    TimeSaved,
    PassDominates,
    AllOf,
    OutlierReduction,
    ThroughputBecomesGain,
    RotationIdentity,
    LossGap,
    GapClosed,
    SameAs,
}

/// What is measured for a claim, with the arms it compares: a judge cannot look for one that is not there.
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
    /// The paper says once more what these claims say; it is not judged twice.
    SameAs { claims: Vec<String> },
}

impl Paper {
    /// The first claim about the tokens that `arm` takes.
    pub fn claim_on_tokens_of(&self, arm: &str) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.metric.arm_of_tokens() == Some(arm))
    }
}

impl Metric {
    /// The unit in which it is written.
    pub fn unit(&self) -> Unit {
        match self {
            Self::TokenOverhead { .. } | Self::PassDominates { .. } => Unit::SignedPercent,
            Self::TimeSaved { .. } | Self::GapClosed { .. } => Unit::Percent,
            Self::TokenRatio { .. } | Self::OutlierReduction { .. } => Unit::Ratio,
            Self::KernelThroughputRatio { .. } | Self::StepTimeRatio { .. } | Self::ThroughputBecomesGain { .. } => Unit::Factor,
            Self::DoesNotConverge { .. } | Self::AllOf { .. } | Self::SameAs { .. } => Unit::Runs,
            Self::LossGap { .. } => Unit::Nats,
            Self::RotationIdentity => Unit::Error,
        }
    }

    /// The arm that a claim is about, when it is about the tokens that an arm takes.
    pub fn arm_of_tokens(&self) -> Option<&str> {
        match self {
            Self::TokenOverhead { arm, .. } | Self::TokenRatio { arm, .. } | Self::DoesNotConverge { arm } => Some(arm),
            _ => None,
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

    /// Every arm that must have run for the claim to be judged, without those of other claims it names.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Self::TokenOverhead { arm, baseline }
            | Self::TokenRatio { arm, baseline }
            | Self::TimeSaved { arm, baseline }
            | Self::LossGap { arm, baseline } => vec![arm, baseline],
            Self::DoesNotConverge { arm } | Self::OutlierReduction { arm } => vec![arm],
            Self::StepTimeRatio { numerator, denominator } => vec![numerator, denominator],
            Self::PassDominates { full, without, baseline } => vec![full, without, baseline],
            Self::GapClosed { arm, without, baseline } => vec![arm, without, baseline],
            Self::ThroughputBecomesGain { arms, .. } => arms.iter().map(String::as_str).collect(),
            // Kernel variants are no arms.
            Self::KernelThroughputRatio { .. } | Self::AllOf { .. } | Self::SameAs { .. } | Self::RotationIdentity => Vec::new(),
        }
    }

    /// Other claims that it rests on.
    pub fn claims(&self) -> &[String] {
        match self {
            Self::AllOf { claims } | Self::SameAs { claims } => claims,
            Self::ThroughputBecomesGain { time_saved, .. } => std::slice::from_ref(time_saved),
            _ => &[],
        }
    }
}

impl Claim {
    /// The arm that stands on both sides of its comparison, if one does.
    pub fn compared_with_itself(&self) -> Option<&str> {
        let arms = self.metric.arms();
        let twice = arms.iter().enumerate().find(|(index, arm)| arms[..*index].contains(arm)).map(|(_, arm)| *arm);
        let than = self.direction.as_ref().and_then(|direction| direction.than.as_deref());
        twice.or_else(|| than.filter(|than| arms.first() == Some(than)))
    }
}

impl TryFrom<Keys> for Claim {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        let metric = keys.metric().map_err(|why| format!("claim {}: {why}", keys.id))?;
        let Keys { id, source, statement, reported, tolerance, native_formats, direction, than, .. } = keys;
        match (reported, tolerance) {
            _ if than.is_some() && direction.is_none() => Err(format!("claim {id}: `than` needs a `direction`")),
            (_, None) if direction == Some(DirectionWord::NoFewer) => Err(format!("claim {id}: `no-fewer` needs a `tolerance`")),
            (Some([low, high]), _) if low.partial_cmp(&high).is_none_or(|order| order.is_gt()) => {
                Err(format!("claim {id}: reported: the first number must not exceed the second"))
            }
            (Some(_), None) => Err(format!("claim {id}: `reported` needs a `tolerance`")),
            (_, Some(tolerance)) if !tolerance.is_finite() || tolerance < 0.0 => Err(format!("claim {id}: tolerance must be zero or more")),
            _ => {
                let direction = direction.map(|word| Direction { word, than });
                Ok(Self { id, source, statement, metric, reported, tolerance, native_formats, direction })
            }
        }
    }
}

impl Keys {
    fn metric(&self) -> Result<Metric, String> {
        let arm = || need("arm", &self.arm);
        let baseline = || need("baseline", &self.baseline);
        let without = || need("without", &self.without);
        let numerator = || need("numerator", &self.numerator);
        let denominator = || need("denominator", &self.denominator);
        let metric = match self.metric {
            MetricName::TokenOverhead => Metric::TokenOverhead { arm: arm()?, baseline: baseline()? },
            MetricName::TokenRatio => Metric::TokenRatio { arm: arm()?, baseline: baseline()? },
            MetricName::DoesNotConverge => Metric::DoesNotConverge { arm: arm()? },
            MetricName::KernelThroughputRatio => Metric::KernelThroughputRatio { numerator: numerator()?, denominator: denominator()? },
            MetricName::StepTimeRatio => Metric::StepTimeRatio { numerator: numerator()?, denominator: denominator()? },
            MetricName::TimeSaved => Metric::TimeSaved { arm: arm()?, baseline: baseline()? },
            MetricName::PassDominates => {
                Metric::PassDominates { full: need("full", &self.full)?, without: without()?, baseline: baseline()? }
            }
            MetricName::AllOf => Metric::AllOf { claims: need("claims", &self.claims)? },
            MetricName::SameAs => Metric::SameAs { claims: need("claims", &self.claims)? },
            MetricName::OutlierReduction => Metric::OutlierReduction { arm: arm()? },
            MetricName::ThroughputBecomesGain => {
                Metric::ThroughputBecomesGain { arms: need("arms", &self.arms)?, time_saved: need("time_saved", &self.time_saved)? }
            }
            MetricName::RotationIdentity => Metric::RotationIdentity,
            MetricName::LossGap => Metric::LossGap { arm: arm()?, baseline: baseline()? },
            MetricName::GapClosed => Metric::GapClosed { arm: arm()?, without: without()?, baseline: baseline()? },
        };
        use Metric as M;
        if matches!(
            metric,
            M::TokenOverhead { .. }
                | M::TokenRatio { .. }
                | M::TimeSaved { .. }
                | M::LossGap { .. }
                | M::KernelThroughputRatio { .. }
                | M::StepTimeRatio { .. }
                | M::GapClosed { .. }
        ) {
            need("reported", &self.reported)?;
        }
        Ok(metric)
    }
}

fn need<T: Clone>(key: &str, value: &Option<T>) -> Result<T, String> {
    value.clone().ok_or_else(|| format!("metric needs the key `{key}`"))
}

/// Arithmetic on a paper's own numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub id: Id,
    /// Texts that `checks::value` knows.
    pub expressions: Vec<String>,
    /// What each gives, to the digits written.
    pub values: Vec<String>,
    pub note: String,
}
