//! Papers: claims with the number reported, how it is measured, and the tolerance; arithmetic checks on the paper's own numbers.

use contract::recipe::Format;
use serde::Deserialize;

/// One file of manifests/papers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// arXiv id; also the file name without `.yaml`. Quoted in YAML, or it would be read as a number.
    pub id: String,
    pub title: String,
    pub short: String,
    /// The arm that others are compared with.
    pub baseline: String,
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    pub key: String,
    pub authors: String,
    pub year: u32,
    pub url: String,
}

/// What a paper says, and how it is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub id: String,
    /// Table or section.
    pub source: String,
    pub statement: String,
    pub metric: MetricName,
    /// The arm it is about.
    #[serde(default)]
    pub arm: Option<String>,
    /// What that arm is compared with.
    #[serde(default)]
    pub baseline: Option<String>,
    #[serde(default)]
    pub numerator: Option<String>,
    #[serde(default)]
    pub denominator: Option<String>,
    /// pass-dominates: the arm with the pass.
    #[serde(default)]
    pub full: Option<String>,
    /// pass-dominates, gap-closed: the arm without the pass or stabiliser.
    #[serde(default)]
    pub without: Option<String>,
    /// throughput-becomes-gain: in order of GEMMs in MXFP4.
    #[serde(default)]
    pub arms: Option<Vec<String>>,
    /// throughput-becomes-gain: the claim whose value must be positive.
    #[serde(default)]
    pub time_saved: Option<String>,
    /// all-of: claims that must be reproduced.
    #[serde(default)]
    pub claims: Option<Vec<String>>,
    /// Lower and upper end of what the paper reports.
    #[serde(default)]
    pub reported: Option<[f64; 2]>,
    /// By how much that range is widened on both sides, in the same unit.
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Formats whose own arithmetic unit the claim is about.
    #[serde(default)]
    pub native_formats: Vec<Format>,
}

/// What is measured for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricName {
    /// Tokens to target of `arm` over `baseline`, minus one.
    TokenOverhead,
    /// Tokens to target of `arm` over `baseline`.
    TokenRatio,
    /// No seed of `arm` reaches the target.
    DoesNotConverge,
    /// Throughput of one kernel variant over another.
    KernelThroughputRatio,
    /// Seconds a step of `numerator` over `denominator`.
    StepTimeRatio,
    /// One minus seconds to target of `arm` over `baseline`.
    TimeSaved,
    /// (full - without) costs more tokens than (without - baseline).
    PassDominates,
    /// Every named claim is reproduced.
    AllOf,
    /// Outlier amax over rms falls when `arm` rotates.
    OutlierReduction,
    /// Step throughput rises along `arms`, and the claim `time_saved` is positive.
    ThroughputBecomesGain,
    /// Rotations cancel within the derived bound.
    RotationIdentity,
    /// Loss of `arm` minus loss of `baseline` at equal tokens.
    LossGap,
    /// Share of the gap of `without` that `arm` closes.
    GapClosed,
}

/// Arithmetic on a paper's own numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub id: String,
    /// Texts that `checks::value` knows.
    pub expressions: Vec<String>,
    /// What each gives, to the digits written.
    pub values: Vec<String>,
    pub note: String,
}

impl Claim {
    /// Every arm that must have run for the claim to be judged, without those of other claims it names.
    pub fn arms_needed(&self) -> Vec<&str> {
        if self.metric == MetricName::KernelThroughputRatio {
            return Vec::new(); // its numerator and denominator are kernel variants
        }
        let one = [&self.arm, &self.baseline, &self.numerator, &self.denominator, &self.full, &self.without];
        let mut arms: Vec<&str> = one.into_iter().flatten().map(String::as_str).collect();
        arms.extend(self.arms.iter().flatten().map(String::as_str));
        arms
    }

    /// Other claims this one rests on.
    pub fn claims_needed(&self) -> Vec<&str> {
        self.claims.iter().flatten().chain(&self.time_saved).map(String::as_str).collect()
    }

    /// Whether the keys fit the metric.
    pub fn check(&self) -> Result<(), String> {
        use MetricName as M;
        let required: &[(&str, bool)] = match self.metric {
            M::TokenOverhead | M::TokenRatio | M::TimeSaved | M::LossGap => {
                &[("arm", self.arm.is_some()), ("baseline", self.baseline.is_some()), ("reported", self.reported.is_some())]
            }
            M::DoesNotConverge | M::OutlierReduction => &[("arm", self.arm.is_some())],
            M::KernelThroughputRatio | M::StepTimeRatio => &[
                ("numerator", self.numerator.is_some()),
                ("denominator", self.denominator.is_some()),
                ("reported", self.reported.is_some()),
            ],
            M::PassDominates => {
                &[("full", self.full.is_some()), ("without", self.without.is_some()), ("baseline", self.baseline.is_some())]
            }
            M::AllOf => &[("claims", self.claims.is_some())],
            M::ThroughputBecomesGain => &[("arms", self.arms.is_some()), ("time_saved", self.time_saved.is_some())],
            M::RotationIdentity => &[],
            M::GapClosed => &[
                ("arm", self.arm.is_some()),
                ("without", self.without.is_some()),
                ("baseline", self.baseline.is_some()),
                ("reported", self.reported.is_some()),
            ],
        };
        if let Some((key, _)) = required.iter().find(|(_, there)| !there) {
            return Err(format!("claim {}: metric needs the key `{key}`", self.id));
        }
        match (self.reported, self.tolerance) {
            (Some([low, high]), _) if low.partial_cmp(&high).is_none_or(|order| order.is_gt()) => {
                Err(format!("claim {}: reported: the first number must not exceed the second", self.id))
            }
            (Some(_), None) => Err(format!("claim {}: `reported` needs a `tolerance`", self.id)),
            (_, Some(tolerance)) if !tolerance.is_finite() || tolerance < 0.0 => {
                Err(format!("claim {}: tolerance must be zero or more", self.id))
            }
            _ => Ok(()),
        }
    }
}
