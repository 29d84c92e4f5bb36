//! What a profile can decide: the chance of each verdict, from simulated campaigns with the scatter of a measured one.

use std::collections::BTreeMap;

use super::question::Question;
use crate::draws::Draws;
use crate::judge::verdict::Chances;
use crate::layout::{Drawn, Runs, Scatter};

/// Simulated campaigns behind each chance of a report: a standard error of at most 1.1 points.
pub(crate) const CAMPAIGNS: usize = 2_000;
/// Below this chance of `reproduced`, when the paper is right, a campaign cannot decide a claim.
pub(crate) const DECIDES: f64 = 0.5;

/// What a campaign looks like to a simulation.
#[derive(Debug, Clone)]
pub(crate) struct Design {
    pub arms: BTreeMap<String, Runs>,
    pub scatter: Scatter,
}

impl Design {
    /// The chance of each verdict on each question, when arms have the true levels `truth` (zero for those not named).
    pub(crate) fn chances(&self, questions: &[&Question], truth: &BTreeMap<String, f64>, campaigns: usize) -> Vec<Chances> {
        let level = |arm: &str| truth.get(arm).copied().unwrap_or(0.0);
        let (mut draws, mut counts) = (Draws::default(), vec![[0_usize; 2]; questions.len()]);
        for _ in 0..campaigns {
            let drawn = Drawn::new(&self.arms, &level, &self.scatter, &mut draws);
            for (question, count) in questions.iter().zip(&mut counts) {
                if let Some([inside, outside]) = question.p(&drawn) {
                    count[0] += usize::from(inside <= 0.05);
                    count[1] += usize::from(inside > 0.05 && outside <= 0.05);
                }
            }
        }
        let share = |count: usize| count as f64 / campaigns as f64;
        let chances = |[reproduced, differs]: [usize; 2]| Chances {
            reproduced: share(reproduced),
            differs: share(differs),
            inconclusive: share(campaigns - reproduced - differs),
        };
        counts.into_iter().map(chances).collect()
    }

    /// Seeds for which half of the 95 % interval of an arm against `baseline` is at most `half`, on the layout's scale. Normal, not t:
    /// with so many seeds the scatter would be known.
    pub(crate) fn seeds_for(&self, half: f64, baseline: &str) -> f64 {
        let runs = self.arms.get(baseline).map_or(1.0, |runs| runs.reciprocal);
        ((1.96 / half).powi(2) * self.scatter.of_pair(runs)).ceil().max(2.0)
    }
}
