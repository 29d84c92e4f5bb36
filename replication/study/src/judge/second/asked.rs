//! From a claim to its questions, and what levels its paper gives to arms.

use std::collections::BTreeMap;

use super::question::{Quantity, Question, Scale, Weights};
use crate::judge::metrics::reported;
use crate::manifest::{Claim, DirectionWord, Metric, Paper};
use crate::number::Unit;
use crate::statistics::Interval;

/// A question with the claim and the baseline that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub claim: String,
    pub baseline: String,
    pub question: Question,
}

impl Asked {
    /// Whether the paper gives every arm a level: without one, nothing says what would be measured if it is right.
    pub(super) fn is_foretold(&self, truth: &BTreeMap<String, f64>) -> bool {
        self.question.arms().all(|arm| *arm == self.baseline || truth.contains_key(arm))
    }
}

/// What a claim asks of layouts: its direction, then its size. Whether an arm converges is no question to a layout.
pub(super) fn questions(paper: &Paper, claim: &Claim, label: &dyn Fn(&str) -> String) -> Vec<Asked> {
    let baseline = claim.metric.baseline().unwrap_or(&paper.baseline);
    let accepted = reported(claim).accepted();
    let difference = |arm: &str, other: &str| Quantity::Contrast(vec![(arm.to_owned(), 1.0), (other.to_owned(), -1.0)]);
    let logarithms = accepted.map(f64::ln_1p);
    let size =
        |scale, quantity, accepted, unit| Question { what: "size", statement: claim.statement.clone(), scale, quantity, accepted, unit };
    let mut found = Vec::new();
    let (arm, scale) = match &claim.metric {
        Metric::TokenOverhead { arm, .. } | Metric::DoesNotConverge { arm } | Metric::TokenRatio { arm, .. } => (Some(arm), Scale::Tokens),
        Metric::LossGap { arm, .. } => (Some(arm), Scale::Nats),
        _ => (None, Scale::Tokens),
    };
    if let Some((arm, direction)) = arm.zip(claim.direction.as_ref()) {
        let than = direction.than.as_deref().unwrap_or(baseline);
        let margin = if scale == Scale::Tokens { (-claim.tolerance.unwrap_or(0.0)).ln_1p() } else { -claim.tolerance.unwrap_or(0.0) };
        let (word, accepted) = match direction.word {
            DirectionWord::More => ("more", Interval::new(0.0, f64::INFINITY)),
            DirectionWord::Fewer => ("fewer", Interval::new(f64::NEG_INFINITY, 0.0)),
            DirectionWord::NoFewer => ("no fewer", Interval::new(margin, f64::INFINITY)),
        };
        let (unit, statement) = match scale {
            Scale::Tokens => (Unit::SignedPercent, format!("{word} tokens than {}", label(than))),
            Scale::Nats => (Unit::Nats, format!("{} loss than {}", word.replace("more", "higher").replace("fewer", "lower"), label(than))),
        };
        found.push(Question { what: "direction", statement, scale, quantity: difference(arm, than), accepted, unit });
    }
    match &claim.metric {
        Metric::TokenOverhead { arm, .. } => found.push(size(Scale::Tokens, difference(arm, baseline), logarithms, Unit::SignedPercent)),
        Metric::TokenRatio { arm, .. } => {
            let logarithms = accepted.map(f64::ln);
            found.push(size(Scale::Tokens, difference(arm, baseline), logarithms, Unit::SignedPercent));
        }
        Metric::LossGap { arm, .. } => found.push(size(Scale::Nats, difference(arm, baseline), accepted, Unit::Nats)),
        Metric::GapClosed { arm, without, .. } => {
            let weights = |arm: &str| -> Weights { vec![(arm.to_owned(), 1.0), (baseline.to_owned(), -1.0)] };
            found.push(size(Scale::Nats, Quantity::Share(weights(arm), weights(without)), accepted, Unit::Percent));
        }
        Metric::PassDominates { full, without, .. } => {
            let weights = vec![(full.clone(), 1.0), (without.clone(), -2.0), (baseline.to_owned(), 1.0)];
            let statement = format!("{} over {} is a larger factor than that over {}", label(full), label(without), label(baseline));
            let accepted = Interval::new(0.0, f64::INFINITY);
            found.push(Question {
                what: "direction",
                statement,
                scale: Scale::Tokens,
                quantity: Quantity::Contrast(weights),
                accepted,
                unit: Unit::SignedPercent,
            });
        }
        _ => {}
    }
    let with_claim = |question| Asked { claim: claim.id.to_string(), baseline: baseline.to_owned(), question };
    found.into_iter().map(with_claim).collect()
}

/// The level of each arm if the paper is right: the middle of what it reports. An arm that does not converge costs at least as much as the
/// costliest that does.
pub(super) fn truth(paper: &Paper, scale: Scale) -> BTreeMap<String, f64> {
    let mut levels = BTreeMap::new();
    let middle = |claim: &Claim| claim.reported.map(|[low, high]| (low + high) / 2.0);
    for claim in &paper.claims {
        let (arm, level) = match (&claim.metric, scale) {
            (Metric::TokenOverhead { arm, .. }, Scale::Tokens) => (arm, middle(claim).map(f64::ln_1p)),
            (Metric::TokenRatio { arm, .. }, Scale::Tokens) => (arm, middle(claim).map(f64::ln)),
            (Metric::LossGap { arm, .. }, Scale::Nats) => (arm, middle(claim)),
            _ => continue,
        };
        levels.extend(level.map(|level| (arm.clone(), level)));
    }
    let costliest = levels.values().copied().fold(0.0, f64::max);
    let failing = paper.claims.iter().filter_map(|claim| match &claim.metric {
        Metric::DoesNotConverge { arm } if scale == Scale::Tokens => Some((arm.clone(), costliest)),
        _ => None,
    });
    levels.extend(failing);
    levels
}
