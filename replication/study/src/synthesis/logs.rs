//! Runs of others, from public logs, as one more source for each comparison.

use std::collections::BTreeSet;

use super::PAPER_PROFILE;
use super::evidence::{Depth, Number, Row};
use super::source::{Read, Source, data};
use crate::judge::verdict::Evidence;
use crate::manifest::public_logs::PublicLogs;
use crate::manifest::{Estimator, Manifests, Paper, Profile};
use crate::public_logs::{self, Comparison};

/// Adds the comparisons of the repository's public logs that say something about a claim.
pub(super) fn add(manifests: &Manifests, papers: &[Paper], campaigns: &[Read], sources: &mut Vec<Source>, rows: &mut Vec<Row>) {
    let profile = manifests.profiles.get(PAPER_PROFILE);
    let estimator = profile.map(|profile| profile.estimator).or_else(|| campaigns.first().map(|read| read.measurements.study.estimator));
    let Some(estimator) = estimator else { return };
    for comparison in public_logs::judge_by(papers, estimator, &manifests.public_logs) {
        let of = manifests.public_logs.iter().find(|logs| logs.manifest.id.as_str() == comparison.evidence);
        let found = rows_of(&comparison, estimator, sources.len(), papers);
        if let Some(logs) = of.filter(|_| !found.is_empty()) {
            rows.extend(found);
            sources.push(source(manifests, &comparison, logs, profile));
        }
    }
}

fn source(manifests: &Manifests, comparison: &Comparison, logs: &PublicLogs, profile: Option<&Profile>) -> Source {
    let profile = profile.filter(|profile| profile.mllog.benchmark == logs.manifest.benchmark);
    let model = profile.and_then(|profile| manifests.models.get(&profile.model));
    let accelerator = logs.group(&comparison.groups[0]).map(|group| group.accelerator.clone());
    Source {
        name: format!("{}: {}", comparison.evidence, comparison.label),
        label: format!("public logs, {}", comparison.label),
        parameters: model.and_then(|model| u64::try_from(model.section().parameters()).ok()),
        tokens: None,
        profile: String::new(),
        hardware: accelerator.unwrap_or_default(),
        data: profile.map(data),
        training: None,
        learning_rate: None,
        batch: None,
        seeds: [0; 2],
        runs: comparison.groups.each_ref().map(|group| logs.numbers(group).map_or(0, |numbers| numbers.runs.len())),
        judged_by: None,
        link: None,
        shallow: None,
        public: true,
        seed_numbers: BTreeSet::new(),
        traces: BTreeSet::new(),
    }
}

fn rows_of(comparison: &Comparison, estimator: Estimator, source: usize, papers: &[Paper]) -> Vec<Row> {
    let Some(paper) = papers.iter().find(|paper| paper.id.as_str() == comparison.paper) else { return Vec::new() };
    let of_first = comparison.rows.iter().filter(|row| row.estimator.is_none_or(|other| other == estimator));
    let row = |row: &public_logs::Row| {
        let claim = paper.claims.iter().find(|claim| claim.id.as_str() == row.claim)?;
        let number = row.number.map(|value| Number { value, interval: row.interval, n: row.runs[0] });
        Some(Row {
            paper: paper.id.to_string(),
            claim: row.claim.clone(),
            source,
            depth: if row.estimator.is_some() { Depth::PapersTarget } else { Depth::None },
            arm: super::evidence::trained(claim).map(|(arm, _)| arm.to_owned()).unwrap_or_default(),
            baseline: claim.metric.baseline().unwrap_or(&paper.baseline).to_owned(),
            kind: Some(Evidence::PublicLog),
            unit: row.unit,
            number: number.ok_or_else(|| row.why.clone()),
            measured: None,
            scatter: None,
            gap: None,
            verdict: Some((row.word.to_owned(), None)),
            direction: None,
            why: row.why.clone(),
            seeds_to_decide: None,
        })
    };
    of_first.filter_map(row).collect()
}
