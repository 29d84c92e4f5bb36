//! One model and batch with all seeds: campaigns of one setting with other seeds, whatever their budgets and arms, put together for each claim at
//! the paper's depth.
//!
//! They are put together after each has been seen, so what comes out is an estimate and no verdict.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Depth, Number, Row, accepted, trained};
use super::source::Source;
use crate::judge::Scale;
use crate::layout::Measured;
use crate::manifest::{Claim, Paper};
use crate::statistics::{CONFIDENCE, EQUIVALENCE};

/// Where the number of all seeds lies, beside what the claim accepts: told as the rules tell a verdict from an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The whole 90 % interval.
    Inside,
    /// The whole 95 % interval.
    Outside,
    Border,
}

impl Place {
    pub fn words(self) -> &'static str {
        match self {
            Self::Inside => "inside what is accepted",
            Self::Outside => "outside what is accepted",
            Self::Border => "on the border of what is accepted",
        }
    }
}

/// One campaign's share.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub source: usize,
    pub number: Number,
    /// Standard deviation of one run there, arm and seed accounted for, in the logarithm of tokens.
    pub scatter: f64,
}

/// One claim on one model, from all seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Together {
    pub paper: String,
    pub claim: String,
    pub arm: String,
    pub baseline: String,
    pub parameters: u64,
    /// From the most seeds to the fewest: at least two.
    pub parts: Vec<Part>,
    pub number: Number,
    /// The same in the logarithm of tokens.
    pub(super) measured: Measured,
    /// How far the campaigns are apart: of two, their difference in its standard errors.
    pub apart: f64,
    /// None where the claim has no size.
    pub place: Option<Place>,
}

impl Together {
    /// Whether a row is among those that were put together.
    pub(super) fn has(&self, row: &Row) -> bool {
        let is_same = row.paper == self.paper && row.claim == self.claim && row.depth == Depth::Matched;
        is_same && self.parts.iter().any(|part| part.source == row.source)
    }
}

pub(super) fn all(papers: &[Paper], sources: &[Source], rows: &[Row]) -> Vec<Together> {
    let mut all = Vec::new();
    for paper in papers {
        for claim in paper.claims.iter().filter(|claim| trained(claim).is_some_and(|(_, scale)| scale == Scale::Tokens)) {
            let on = |row: &&Row| row.paper == paper.id.as_str() && row.claim == claim.id.as_str() && row.depth == Depth::Matched;
            let mut groups: BTreeMap<_, Vec<Known>> = BTreeMap::new();
            for known in rows.iter().filter(on).filter_map(Known::of) {
                let source = &sources[known.row.source];
                if !source.public {
                    groups.entry(source.setting()).or_default().push(known);
                }
            }
            for ((parameters, ..), group) in groups {
                all.extend(parameters.and_then(|parameters| one(claim, parameters, &without_common_seeds(sources, group))));
            }
        }
    }
    all
}

/// A row that has all that is needed.
struct Known<'a> {
    row: &'a Row,
    number: Number,
    measured: Measured,
    /// Of one run.
    scatter: f64,
}

impl<'a> Known<'a> {
    fn of(row: &'a Row) -> Option<Self> {
        let (number, measured, scatter) = (*row.number.as_ref().ok()?, row.measured?, row.scatter?.sd());
        (measured.error > 0.0 && measured.freedom >= 1.0).then_some(Self { row, number, measured, scatter })
    }
}

/// Campaigns with the most seeds first; one that shares a seed with an earlier one is left out, because its runs may be the same ones.
fn without_common_seeds<'a>(sources: &[Source], mut group: Vec<Known<'a>>) -> Vec<Known<'a>> {
    group.sort_by_key(|known| (Reverse(known.measured.n), known.row.source));
    let mut taken: BTreeSet<u64> = BTreeSet::new();
    group.retain(|known| {
        let seeds = &sources[known.row.source].seed_numbers;
        let is_new = taken.is_disjoint(seeds);
        if is_new {
            taken.extend(seeds);
        }
        is_new
    });
    group
}

/// The mean, in the logarithm of tokens. A campaign weighs by its seeds, not by its luck with a small scatter; its error is its own, and the
/// degrees of freedom are Welch's. The error is enlarged by the campaigns' distances from the mean where these are larger (Birge's ratio):
/// each finds the paper's depth by its own baseline, which no scatter within it shows.
fn one(claim: &Claim, parameters: u64, group: &[Known<'_>]) -> Option<Together> {
    let first = group.first().filter(|_| group.len() > 1)?;
    let n: usize = group.iter().map(|known| known.measured.n).sum();
    let share = |known: &Known<'_>| known.measured.n as f64 / n as f64;
    let sum = |of: &dyn Fn(&Known<'_>) -> f64| group.iter().map(of).sum::<f64>();
    let mean = sum(&|known| share(known) * known.measured.number);
    let variance = sum(&|known| (share(known) * known.measured.error).powi(2));
    let freedom = variance.powi(2) / sum(&|known| (share(known) * known.measured.error).powi(4) / known.measured.freedom);
    let squares = sum(&|known| share(known) * (known.measured.number - mean).powi(2));
    let expected = sum(&|known| share(known) * (1.0 - share(known)) * known.measured.error.powi(2));
    let apart = squares / expected;
    let measured = Measured { number: mean, error: (apart.max(1.0) * variance).sqrt(), freedom, n };
    let place = accepted(claim, Scale::Tokens).and_then(|range| {
        Some(match (measured.interval(EQUIVALENCE)?, measured.interval(CONFIDENCE)?) {
            (ninety, _) if ninety.inside(&range) => Place::Inside,
            (_, interval) if interval.disjoint(&range) => Place::Outside,
            _ => Place::Border,
        })
    });
    let part = |known: &Known<'_>| Part { source: known.row.source, number: known.number, scatter: known.scatter };
    Some(Together {
        paper: first.row.paper.clone(),
        claim: first.row.claim.clone(),
        arm: first.row.arm.clone(),
        baseline: first.row.baseline.clone(),
        parameters,
        parts: group.iter().map(part).collect(),
        number: Number::of(&measured, f64::exp_m1),
        measured,
        apart: apart.sqrt(),
        place,
    })
}

#[cfg(test)]
#[path = "together_tests.rs"]
mod tests;
