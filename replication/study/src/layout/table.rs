//! A table of arms and seeds, some of its cells perhaps empty, fitted by a sum of an arm's and a seed's effect; and tests of that sum.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::draws::Draws;

/// Rows are arms, columns seeds. Every row has two numbers or more, and one row has all, so any two effects can be compared.
#[derive(Debug, Clone)]
pub(super) struct Table(pub(super) Vec<Vec<Option<f64>>>);

/// The least squares of `y = arm + seed`.
struct Fit {
    arms: Vec<f64>,
    seeds: Vec<f64>,
    residuals: Table,
}

/// A test of what the layout assumes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    pub statistic: f64,
    pub p: f64,
}

/// Sweeps before a fit is taken as it is. A full table takes one and another that finds nothing left, one that lacks many cells some dozens.
const SWEEPS: usize = 1000;

impl Table {
    fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().flatten().copied().flatten()
    }

    fn columns(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    pub(super) fn largest(&self) -> f64 {
        self.numbers().fold(0.0, |largest, value| value.abs().max(largest))
    }

    /// Numbers beyond those that the effects take: one for each arm and each seed, less the constant that they share.
    pub(super) fn freedom(&self) -> usize {
        (self.numbers().count() + 1).saturating_sub(self.0.len() + self.columns())
    }

    /// Sum of the squares that the fit leaves.
    pub(super) fn squares_left(&self) -> f64 {
        self.fit().residuals.squares()
    }

    fn squares(&self) -> f64 {
        self.numbers().map(|value| value * value).sum()
    }

    /// Takes away the rows' means and the columns' in turns, until neither has any left: the sum of squares falls to its least that way.
    fn fit(&self) -> Fit {
        let mut fit = Fit { arms: vec![0.0; self.0.len()], seeds: vec![0.0; self.columns()], residuals: self.clone() };
        let enough = 1e-13 * self.largest();
        for _ in 0..SWEEPS {
            let mut taken = 0.0_f64;
            for (row, effect) in fit.residuals.0.iter_mut().zip(&mut fit.arms) {
                let level = mean(row.iter().flatten().copied());
                row.iter_mut().flatten().for_each(|value| *value -= level);
                (*effect, taken) = (*effect + level, taken.max(level.abs()));
            }
            for (at, effect) in fit.seeds.iter_mut().enumerate() {
                let level = mean(fit.residuals.0.iter().filter_map(|row| row[at]));
                fit.residuals.0.iter_mut().filter_map(|row| row[at].as_mut()).for_each(|value| *value -= level);
                (*effect, taken) = (*effect + level, taken.max(level.abs()));
            }
            if taken <= enough {
                break;
            }
        }
        fit
    }

    /// The same cells with other numbers, by arm and seed.
    fn filled(&self, mut number: impl FnMut(usize, usize) -> f64) -> Self {
        let row =
            |(arm, row): (usize, &Vec<Option<f64>>)| row.iter().enumerate().map(|(seed, cell)| cell.map(|_| number(arm, seed))).collect();
        Self(self.0.iter().enumerate().map(row).collect())
    }

    /// Do arms scatter alike? Levene's statistic on the sizes of residuals, with the share of `draws` tables of equal scatter whose
    /// statistic is as large: residuals of a two-way fit depend on each other, so F is not its distribution. None below three seeds.
    pub(super) fn levene(&self, draws: usize) -> Option<Checked> {
        if self.columns() < 3 {
            return None;
        }
        let statistic = self.fit().residuals.spread_of_sizes();
        let mut random = Draws::default();
        let as_large = (0..draws).filter(|_| self.filled(|_, _| random.normal()).fit().residuals.spread_of_sizes() >= statistic).count();
        Some(Checked { statistic, p: as_large as f64 / draws.max(1) as f64 })
    }

    /// Levene's statistic: variance of the rows' mean sizes over the variance of sizes within rows.
    fn spread_of_sizes(&self) -> f64 {
        let sizes: Vec<Vec<f64>> = self.0.iter().map(|row| row.iter().flatten().map(|value| value.abs()).collect()).collect();
        let means: Vec<f64> = sizes.iter().map(|row| mean(row.iter().copied())).collect();
        let all = mean(sizes.iter().flatten().copied());
        let (rows, numbers) = (sizes.len() as f64, sizes.iter().map(Vec::len).sum::<usize>() as f64);
        let between: f64 = sizes.iter().zip(&means).map(|(row, level)| row.len() as f64 * (level - all).powi(2)).sum();
        let within: f64 = sizes.iter().zip(&means).flat_map(|(row, level)| row.iter().map(move |size| (size - level).powi(2))).sum();
        (between / (rows - 1.0)) / (within / (numbers - rows))
    }

    /// Do arm and seed add up? Tukey's one degree of freedom for non-additivity: what the product of the two effects explains beyond their
    /// sum. None where only one degree of freedom is left.
    pub(super) fn additivity(&self) -> Option<Checked> {
        let Fit { arms, seeds, residuals } = self.fit();
        let product = self.filled(|arm, seed| arms[arm] * seeds[seed]).fit().residuals;
        let along: f64 = residuals.numbers().zip(product.numbers()).map(|(left, product)| left * product).sum();
        let explained = along * along / product.squares();
        let left = self.freedom() as f64 - 1.0;
        let statistic = explained / ((residuals.squares() - explained) / left);
        let distribution = FisherSnedecor::new(1.0, left).ok().filter(|_| left >= 1.0 && statistic.is_finite())?;
        Some(Checked { statistic, p: distribution.sf(statistic) })
    }
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        (sum, count) = (sum + value, count + 1.0);
    }
    sum / count
}
