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
        }
    }

    /// The reason of `not-run` or the error of `failed`.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::NotRun(reason) | Self::Failed(reason) => Some(reason),
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
    /// Verdict word: `reproduced`, `differs`, `inconclusive`, `not-run` or `failed`.
    pub verdict: String,
    /// Reason or error of the last two.
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
