//! What judging gives: the verdict words, the evidence words, and the content of verdicts.json.

use serde::{Deserialize, Serialize};

/// The outcome of a claim. `stale` is not here: it says that the code has changed since, and is laid over by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies inside the accepted range.
    Reproduced,
    /// The interval lies wholly outside.
    Differs,
    /// Too wide to say, or nothing sound to compare with.
    Inconclusive,
    /// Not measured; the reason says what it needs.
    NotRun(String),
    /// A run that the claim needs ended with an error.
    Failed(String),
    /// The campaign could not have settled it, whatever came out; the reason says why. Second version only.
    CannotDecide(String),
    /// Said by other claims, which are judged; not judged twice. Second version only.
    SameAs(String),
}

impl Verdict {
    /// The word, without its reason.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "differs",
            Self::Inconclusive => "inconclusive",
            Self::NotRun(_) => "not-run",
            Self::Failed(_) => "failed",
            Self::CannotDecide(_) => "cannot-decide",
            Self::SameAs(_) => "same-as",
        }
    }

    /// The reason of a verdict that has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::NotRun(reason) | Self::Failed(reason) | Self::CannotDecide(reason) | Self::SameAs(reason) => Some(reason),
            _ => None,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{}({reason})", self.word()),
            None => f.write_str(self.word()),
        }
    }
}

/// What stands behind a number. Never mixed, never unnamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The format's own arithmetic unit ran.
    Native,
    /// Exact values, other arithmetic unit.
    Emulated,
    /// The device's own instructions, executed by a program.
    Interpreted,
    /// Computed by us from someone's published logs.
    PublicLog,
    Modelled,
}

impl Evidence {
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Emulated => "emulated",
            Self::Interpreted => "interpreted",
            Self::PublicLog => "public-log",
            Self::Modelled => "modelled",
        }
    }
}

/// A measured number shown beside a verdict, which does not decide it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    pub label: String,
    /// Number with unit and interval.
    pub text: String,
    pub evidence: Evidence,
}

/// One claim, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimVerdict {
    /// Claim id, such as `T1-FDW`.
    pub id: String,
    /// Table, hypothesis or appendix of the paper.
    pub source: String,
    pub statement: String,
    /// What the paper reports, as text.
    pub paper: String,
    /// What we measured, as text without interval; a dash when there is no number.
    pub ours: String,
    /// The interval as text; empty when there is none.
    pub interval_text: String,
    /// Verdict word of [`Verdict`].
    pub verdict: String,
    /// Its reason, where it has one.
    pub reason: Option<String>,
    /// What stands behind the number; none when nothing was measured.
    pub evidence: Option<Evidence>,
    /// The number in the claim's own unit (shares, not percentages).
    pub number: Option<f64>,
    /// The number is a lower bound.
    pub lower_bound: bool,
    /// 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Seeds or repeats.
    pub n: usize,
    pub reported: Option<[f64; 2]>,
    pub tolerance: Option<f64>,
    /// One sentence: why this verdict.
    pub why: String,
    /// Numbers that belong beside it.
    pub beside: Vec<Beside>,
    /// What the second version judges apart: direction, size, or parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// The chance of each verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Chances {
    pub reproduced: f64,
    pub differs: f64,
    pub inconclusive: f64,
}

/// One judged part of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// `direction`, `size`, or what part of the claim it is.
    pub what: String,
    /// What holds if it is reproduced.
    pub statement: String,
    /// Over which stretch of the budget: `matched depth` or `last quarter`; empty where that says nothing.
    pub stretch: String,
    /// What we measured, its 95 % interval, and the same in nats; empty when there is none.
    pub ours: String,
    pub interval_text: String,
    pub gap: String,
    pub verdict: String,
    pub reason: Option<String>,
    pub number: Option<f64>,
    /// 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// 90 % interval: inside the accepted range is `reproduced`.
    pub ninety: Option<[f64; 2]>,
    /// The accepted range, in the number's unit; an end that is open is none.
    pub accepted: [Option<f64>; 2],
    pub n: usize,
    /// p-values of "inside the accepted range" and "outside", and as Holm counts them among all of the paper's.
    pub p: Option<[f64; 2]>,
    pub holm: Option<[f64; 2]>,
    /// Of each verdict in a campaign like this one, if the paper is right.
    pub chances: Option<Chances>,
    pub why: String,
}

/// How runs of a campaign scatter about one baseline over one stretch; shares of tokens unless they are gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Precision {
    pub baseline: String,
    pub stretch: String,
    pub evaluations: usize,
    /// Tokens at the first and the last of them.
    pub tokens: [u64; 2],
    /// Arms that have two seeds of the baseline or more, and the baseline's seeds.
    pub arms: usize,
    pub seeds: usize,
    /// Standard deviation of one run, arm and seed accounted for, and its degrees of freedom.
    pub sd: f64,
    pub freedom: usize,
    /// Of runs of one arm with one seed, where something was run twice.
    pub own_sd: Option<f64>,
    pub own_freedom: Option<usize>,
    /// Half of the 95 % interval of the baseline's own level, which every comparison shares.
    pub common_error: Option<f64>,
    /// Standard deviation of one run's gap, nats.
    pub gap_sd: Option<f64>,
    /// p-values: arms scatter alike (Levene), arm and seed add up (Tukey).
    pub levene: Option<f64>,
    pub additivity: Option<f64>,
    /// Seeds for a 95 % interval of ±1 and ±2 points.
    pub seeds_for: [f64; 2],
}

/// One arithmetic check of a paper's own numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckVerdict {
    /// Check id, such as `K1`.
    pub id: String,
    pub expressions: Vec<String>,
    /// The values that the manifest writes.
    pub values: Vec<String>,
    /// What each expression gives, to two digits more than written; an error message where it has no value.
    pub computed: Vec<String>,
    /// Whether every expression rounds to its value.
    pub holds: bool,
    pub note: String,
}

/// All verdicts on one paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaperVerdicts {
    /// arXiv id.
    pub paper: String,
    /// The rule, printed beside the verdicts.
    pub decision_rule: String,
    /// Claims in the manifest's order.
    pub claims: Vec<ClaimVerdict>,
    /// Checks in the manifest's order.
    pub checks: Vec<CheckVerdict>,
    /// Version of the rules.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub judging: u32,
    /// What the second version's intervals rest on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub precision: Vec<Precision>,
    /// Why there is no such table, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(version: &u32) -> bool {
    *version == 1
}

/// The content of `verdicts.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// `mxfp4-verdicts/1`.
    pub schema: String,
    pub profile: String,
    pub hardware: String,
    /// Estimate of tokens to target that verdicts use.
    pub estimator: String,
    /// Target loss, nats per token.
    pub target_loss: Option<f64>,
    /// What the verdicts do not say.
    pub scale: String,
    pub papers: Vec<PaperVerdicts>,
}

/// Verdicts of the second version, in a directory that was judged by the first.
pub const VERDICTS_AGAIN: &str = "verdicts-2.json";

/// Schema of `verdicts.json`.
pub const SCHEMA: &str = "mxfp4-verdicts/1";

impl Verdicts {
    /// Every claim of every paper.
    pub fn claims(&self) -> impl Iterator<Item = &ClaimVerdict> {
        self.papers.iter().flat_map(|paper| &paper.claims)
    }

    /// The text of `verdicts.json`.
    ///
    /// # Errors
    /// When a number cannot be written as JSON, which no finite number causes.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
