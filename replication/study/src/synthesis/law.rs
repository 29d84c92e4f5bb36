//! Which campaigns are a ladder of sizes, and where its law is asked.

use super::PAPER_PROFILE;
use super::source::{Read, ladders};
use crate::law::{self, Effort, Ladder, Report, Target};
use crate::manifest::{Manifests, Paper};

/// Tokens at which a prediction is asked: the paper's own runs (its reference takes 1.4 B to the target), a small pretraining, and Llama
/// 3.1's.
const TOKENS: [f64; 3] = [1.4e9, 1e11, 1.5e13];

/// The law of the largest group of campaigns between which only the model's size differs.
pub(super) fn of(manifests: &Manifests, papers: &[Paper], campaigns: &[Read], effort: Effort) -> Result<Report, String> {
    let baseline = papers.first().map(|paper| paper.baseline.as_str()).ok_or("no paper is known")?;
    let model = manifests.profiles.get(PAPER_PROFILE).and_then(|profile| manifests.models.get(&profile.model));
    let parameters = model.and_then(|model| u64::try_from(model.section().parameters()).ok()).ok_or("the paper's model is not known")?;
    // The last of the largest would be taken: their order is the same everywhere.
    let largest = ladders(campaigns.iter().map(|read| &read.source).enumerate(), true).into_iter().max_by_key(Vec::len).unwrap_or_default();
    let rungs = largest.into_iter().map(|at| (campaigns[at].source.name.as_str(), &campaigns[at].measurements)).collect();
    let targets = TOKENS.map(|tokens| Target { parameters, tokens });
    law::of(&Ladder { baseline, rungs }, &targets, effort)
}
