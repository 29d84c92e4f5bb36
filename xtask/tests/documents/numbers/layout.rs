//! The two-way layout of arms and seeds, whose residual is pooled.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Interval, mean, student};

/// Numbers by arm and seed.
pub(super) type Cells = BTreeMap<(String, u64), f64>;

pub(super) struct Layout {
    arms: BTreeMap<String, f64>,
    seeds: usize,
    deviation: f64,
    freedom: usize,
}

impl Layout {
    /// Of cells without holes.
    pub(super) fn of(cells: &Cells) -> Self {
        let names: BTreeSet<&String> = cells.keys().map(|(arm, _)| arm).collect();
        let seeds: BTreeSet<u64> = cells.keys().map(|(_, seed)| *seed).collect();
        assert_eq!(cells.len(), names.len() * seeds.len(), "the layout has holes: {:?}", cells.keys());
        let mean_where = |chosen: &dyn Fn(&str, u64) -> bool| {
            mean(&cells.iter().filter(|((arm, seed), _)| chosen(arm, *seed)).map(|(_, number)| *number).collect::<Vec<_>>())
        };
        let all = mean_where(&|_, _| true);
        let arms: BTreeMap<String, f64> = names.iter().map(|name| ((*name).clone(), mean_where(&|arm, _| arm == *name))).collect();
        let residual =
            |((arm, seed), number): (&(String, u64), &f64)| (number - arms[arm] - mean_where(&|_, other| other == *seed) + all).powi(2);
        let freedom = (names.len() - 1) * (seeds.len() - 1);
        let deviation = (cells.iter().map(residual).sum::<f64>() / freedom as f64).sqrt();
        Self { arms, seeds: seeds.len(), deviation, freedom }
    }

    /// How far single runs scatter.
    pub(super) fn deviation(&self) -> f64 {
        self.deviation
    }

    pub(super) fn has(&self, arm: &str) -> bool {
        self.arms.contains_key(arm)
    }

    /// A sum of arms' means with weights.
    pub(super) fn sum(&self, weights: &[(&str, f64)]) -> Interval {
        let mean = weights.iter().map(|(arm, weight)| weight * self.arms[*arm]).sum();
        let half = student(self.freedom) * self.error(weights);
        Interval { mean, low: mean - half, high: mean + half }
    }

    pub(super) fn difference(&self, first: &str, second: &str) -> Interval {
        self.sum(&[(first, 1.0), (second, -1.0)])
    }

    /// Whether a difference stands after Bonferroni's correction for so many, and so after Holm's.
    pub(super) fn stands(&self, first: &str, second: &str, among: usize) -> bool {
        let t = self.difference(first, second).mean / self.error(&[(first, 1.0), (second, -1.0)]);
        let chance = 2.0 * StudentsT::new(0.0, 1.0, self.freedom as f64).unwrap().cdf(-t.abs());
        chance * (among as f64) < 0.05
    }

    fn error(&self, weights: &[(&str, f64)]) -> f64 {
        self.deviation * (weights.iter().map(|(_, weight)| weight.powi(2)).sum::<f64>() / self.seeds as f64).sqrt()
    }
}
