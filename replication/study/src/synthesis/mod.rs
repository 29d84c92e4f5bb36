//! All evidence there is on each claim, side by side: every campaign, judged by the same rules whenever it was made, and the public logs.
//!
//! `source` reads directories and says why one is left out, `evidence` turns one into rows, `together` takes all seeds of one model
//! together, `trend` asks what the model's size does, `law` what one law of parameters and tokens says of other sizes and budgets,
//! `findings` where rows disagree and what would decide a claim next, `table` writes the CSV. A row has a number only where it means
//! something; otherwise it says why not. Nothing here depends on where the directories lie, or when.

mod chosen;
mod evidence;
mod findings;
mod law;
mod logs;
mod source;
mod table;
mod together;
mod trend;

use std::path::PathBuf;

use crate::exit::{self, ExitCode};
use crate::files::FileError;
use crate::law::{Effort, Report};
use crate::manifest::{Manifests, Paper};

pub use evidence::{Depth, Number, Row};
pub use findings::{Disagreement, Next};
pub use source::{LeftOut, Other, Source, below};
pub(crate) use source::{seeds_text, size};
pub use table::{NAME as TABLE, table};
pub use together::{Part, Place, Together};
pub use trend::{Point, Trend};

/// The profile that is the paper's own setting: its model, and how its logs are read.
const PAPER_PROFILE: &str = "llama31-8b";

/// Everything that the page says.
#[derive(Debug, Clone)]
pub struct Synthesis {
    /// In order of id, the main one first.
    pub papers: Vec<Paper>,
    /// Campaigns from the smallest model to the largest, then public logs.
    pub sources: Vec<Source>,
    /// By paper, claim, source and depth.
    pub rows: Vec<Row>,
    /// Campaigns of one model and setting with other seeds.
    pub together: Vec<Together>,
    pub trends: Vec<Trend>,
    /// Or why there is none.
    pub law: Result<Report, String>,
    pub disagreements: Vec<Disagreement>,
    pub next: Vec<Next>,
    /// Measurements of kernels and tests of devices: named, and not evaluated here.
    pub others: Vec<Other>,
    pub left_out: Vec<LeftOut>,
    /// What the reader has to know about the campaigns together, one sentence each.
    pub notes: Vec<String>,
}

/// Why there is no synthesis.
#[derive(Debug, thiserror::Error)]
pub enum SynthesisError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no campaign could be read{}; name result directories of `cargo xtask replicate`", .why)]
    Nothing { why: String },
}

impl ExitCode for SynthesisError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Nothing { .. } => exit::DATA,
        }
    }
}

impl Synthesis {
    /// Reads `directories`. One that cannot be used is left out, with a reason. `effort` is spent on the law's intervals.
    ///
    /// # Errors
    /// When none of them is a campaign.
    pub fn of(manifests: &Manifests, directories: &[PathBuf], effort: Effort) -> Result<Self, SynthesisError> {
        let papers = papers(manifests);
        let mut read = source::read(manifests, &papers, directories);
        if read.campaigns.is_empty() {
            let why = read.left_out.iter().map(|left| format!("\n  {}: {}", left.name, left.why)).collect();
            return Err(SynthesisError::Nothing { why });
        }
        let (mut sources, mut rows) = (Vec::new(), Vec::new());
        for campaign in &read.campaigns {
            rows.extend(evidence::rows(manifests, &papers, campaign, sources.len()));
            sources.push(campaign.source.clone());
        }
        let law = law::of(manifests, &papers, &read.campaigns, effort);
        logs::add(manifests, &papers, &read.campaigns, &mut sources, &mut rows);
        let place = |row: &Row| {
            let paper = papers.iter().position(|paper| paper.id.as_str() == row.paper);
            let claim = paper.and_then(|at| papers[at].claims.iter().position(|claim| claim.id.as_str() == row.claim));
            (paper, claim, row.source, row.depth)
        };
        rows.sort_by_key(place);
        let together = together::all(&papers, &sources, &rows);
        let trends = trend::all(&papers, &sources, &rows, &together);
        read.notes.extend(source::shared(&sources));
        Ok(Self {
            disagreements: findings::disagreements(&sources, &rows),
            next: findings::next(&papers, &sources, &rows),
            papers,
            sources,
            rows,
            together,
            trends,
            law,
            others: read.others,
            left_out: read.left_out,
            notes: read.notes,
        })
    }

    /// Rows on one claim.
    pub fn on<'a>(&'a self, paper: &'a str, claim: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.paper == paper && row.claim == claim)
    }
}

/// Tokens of the paper's own batch.
pub(crate) fn papers_batch(manifests: &Manifests) -> Option<u64> {
    let profile = manifests.profiles.get(PAPER_PROFILE)?;
    let model = manifests.models.get(&profile.model)?;
    model.sequence_length.checked_mul(u64::try_from(profile.batch.sequences).ok()?)
}

/// The repository's papers, the one that the paper's own setting is a profile of first.
fn papers(manifests: &Manifests) -> Vec<Paper> {
    let main = manifests.profiles.get(PAPER_PROFILE).and_then(|profile| profile.papers.first());
    let mut papers: Vec<Paper> = manifests.papers.values().cloned().collect();
    papers.sort_by_key(|paper| (main != Some(&paper.id.to_string()), paper.id.to_string()));
    papers
}
