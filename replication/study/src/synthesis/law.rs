//! Which campaigns are a ladder of sizes, and where its law is asked.

use std::collections::BTreeMap;

use super::PAPER_PROFILE;
use super::source::Read;
use crate::law::{self, Effort, Ladder, Report, Target};
use crate::manifest::{Manifests, Paper};
use crate::measure::Measurements;

/// Tokens at which a prediction is asked: the paper's own runs (its reference takes 1.4 B to the target), a small pretraining, and Llama
/// 3.1's.
const TOKENS: [f64; 3] = [1.4e9, 1e11, 1.5e13];

/// The law of the largest group of campaigns between which only the model's size differs.
pub(super) fn of(manifests: &Manifests, papers: &[Paper], campaigns: &[Read], effort: Effort) -> Result<Report, String> {
    let baseline = papers.first().map(|paper| paper.baseline.as_str()).ok_or("no paper is known")?;
    let model = manifests.profiles.get(PAPER_PROFILE).and_then(|profile| manifests.models.get(&profile.model));
    let parameters = model.and_then(|model| u64::try_from(model.section().parameters()).ok()).ok_or("the paper's model is not known")?;
    let step = |measurements: &Measurements| measurements.runs.iter().map(|run| run.tokens_per_step).max();
    let mut groups: BTreeMap<_, BTreeMap<u64, &Read>> = BTreeMap::new();
    for read in campaigns {
        let alike = (read.source.data.clone(), read.source.tokens, step(&read.measurements));
        let sizes = groups.entry(alike).or_default();
        // Of two campaigns of one size the one with more runs counts.
        let size = read.source.parameters.unwrap_or_default();
        if sizes.get(&size).is_none_or(|known| known.source.runs[0] < read.source.runs[0]) {
            sizes.insert(size, read);
        }
    }
    // The last of the largest would be taken: the order of keys is the same everywhere.
    let sizes = groups.into_values().max_by_key(BTreeMap::len).unwrap_or_default();
    let rungs = sizes.into_values().map(|read| (read.source.name.as_str(), &read.measurements)).collect();
    let targets = TOKENS.map(|tokens| Target { parameters, tokens });
    law::of(&Ladder { baseline, rungs }, &targets, effort)
}
