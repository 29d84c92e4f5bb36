//! The two-way layout: one number for each arm and seed, taken apart into the arm's level, the seed's, and scatter.
//!
//! `y = arm + seed + e`, `e` of one variance for all arms. A full table leaves `(arms - 1)(seeds - 1)` degrees of freedom; each cell that
//! is empty takes one. Where an arm was run several times with one seed, the spread within those tells what a run scatters by itself
//! (`own`); the first of them stands in the table, so that every cell has one variance, and the contrast of levels uses the mean of all.
//! One seed gives levels, and no scatter.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use self::table::{Table, mean};
use crate::draws::Draws;
use crate::statistics::{Interval, t_above, t_quantile_at};

pub use self::table::Checked;

/// A number with what is needed to test it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    pub number: f64,
    /// Standard error; not a number where one seed leaves it unknown.
    pub error: f64,
    /// Degrees of freedom of `error`: none where it is unknown.
    pub freedom: f64,
    /// Seeds.
    pub n: usize,
}

impl Measured {
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let half = t_quantile_at(self.freedom, confidence)? * self.error;
        Some(Interval::new(self.number - half, self.number + half))
    }

    /// p-value of the two one-sided tests: how likely so clear a place inside `range` is when the true number lies outside.
    pub fn p_inside(&self, range: &Interval) -> Option<f64> {
        let above_low = t_above((self.number - range.low) / self.error, self.freedom)?;
        let below_high = t_above((range.high - self.number) / self.error, self.freedom)?;
        Some(above_low.max(below_high))
    }

    /// Two-sided p-value of: the true number lies inside `range`.
    pub fn p_outside(&self, range: &Interval) -> Option<f64> {
        let beyond = (range.low - self.number).max(self.number - range.high);
        Some((2.0 * t_above(beyond / self.error, self.freedom)?).min(1.0))
    }
}

/// A variance and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Component {
    pub square: f64,
    pub freedom: usize,
}

impl Component {
    pub fn sd(&self) -> f64 {
        self.square.sqrt()
    }
}

/// How single runs scatter, from a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    /// Of one run, arm and seed accounted for.
    pub run: Component,
    /// Of runs of one arm with one seed; none where nothing was run twice.
    pub own: Option<Component>,
}

impl Scatter {
    /// Standard error of a sum over arms of weight times the mean of `n` seeds' cells, by weight and one over the cell's runs, and its degrees
    /// of freedom. A cell of several runs is surer only by what runs scatter by themselves, which is part of what they scatter. The degrees
    /// of freedom stay those of the whole: Satterthwaite's, of a difference of two estimates, make intervals far too wide
    /// (`layout_tests.rs` counts).
    fn error(&self, terms: impl Iterator<Item = (f64, f64)>, n: usize) -> (f64, f64) {
        let own = self.own_square();
        let variance: f64 = terms.map(|(weight, one_over_runs)| weight * weight * (self.run.square - own * (1.0 - one_over_runs))).sum();
        ((variance / n as f64).sqrt(), self.run.freedom as f64)
    }

    /// What runs scatter by themselves; zero where nothing was run twice.
    fn own_square(&self) -> f64 {
        self.own.map_or(0.0, |own| own.square.min(self.run.square))
    }

    /// Variance of the difference of two arms' levels over one seed, by one over the runs of the second's cells.
    pub fn of_pair(&self, one_over_runs: f64) -> f64 {
        2.0 * self.run.square - self.own_square() * (1.0 - one_over_runs)
    }
}

/// Levels of arms that can be compared: a table, or what a simulation draws in its place.
pub trait Levels {
    /// The sum over arms of weight times level.
    ///
    /// # Errors
    /// Why there is none, for the reader.
    fn contrast(&self, weights: &[(&str, f64)]) -> Result<Measured, String>;
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    /// The arm's own run, or the first of its repetitions.
    first: f64,
    mean: f64,
    runs: f64,
}

/// The table, and its scatter.
#[derive(Debug, Clone)]
pub struct Layout {
    cells: BTreeMap<String, BTreeMap<u64, Cell>>,
    /// Of `arms` and `seeds`.
    table: Table,
    /// Arms from which the scatter is estimated: those that have two seeds of the baseline, or its only one.
    pub arms: Vec<String>,
    pub seeds: Vec<u64>,
    /// None with one seed, which says nothing about it.
    pub scatter: Option<Scatter>,
}

/// Why a number of one seed has no interval.
pub const ONE_SEED: &str = "one seed says nothing about how runs scatter";

/// Numbers by arm and seed; several where an arm was repeated with one seed, its own run first.
pub type Values = BTreeMap<String, BTreeMap<u64, Vec<f64>>>;

impl Layout {
    /// Seeds are those of `baseline`.
    ///
    /// # Errors
    /// Why there is nothing to judge by, for the reader.
    pub fn of(values: &Values, baseline: &str) -> Result<Self, String> {
        let cell = |runs: &Vec<f64>| {
            let first = *runs.first()?;
            Some(Cell { first, mean: runs.iter().sum::<f64>() / runs.len() as f64, runs: runs.len() as f64 })
        };
        let row = |seeds: &BTreeMap<u64, Vec<f64>>| seeds.iter().filter_map(|(seed, runs)| Some((*seed, cell(runs)?))).collect();
        let cells: BTreeMap<String, BTreeMap<u64, Cell>> = values.iter().map(|(arm, seeds)| (arm.clone(), row(seeds))).collect();
        let seeds: Vec<u64> = cells.get(baseline).map(|seeds| seeds.keys().copied().collect()).unwrap_or_default();
        let row = |(arm, row): (&String, &BTreeMap<u64, Cell>)| {
            let row: Vec<Option<f64>> = seeds.iter().map(|seed| row.get(seed).map(|cell| cell.first)).collect();
            (row.iter().flatten().count() >= seeds.len().min(2)).then(|| (arm.clone(), row))
        };
        let (arms, rows): (Vec<String>, Vec<_>) = cells.iter().filter_map(row).unzip();
        match (seeds.len(), arms.len()) {
            (0, _) => return Err("no seed of the baseline has a number here".to_owned()),
            (1, 1) => return Err("no other arm has the baseline's seed".to_owned()),
            (_, 1) => return Err("no other arm has two seeds of the baseline".to_owned()),
            _ => {}
        }
        let table = Table(rows);
        if seeds.len() == 1 {
            return Ok(Self { scatter: None, cells, table, arms, seeds });
        }
        let run = Component { square: table.squares_left() / table.freedom() as f64, freedom: table.freedom() };
        // Rounding leaves about 1e-16 of the numbers themselves.
        if run.sd() <= 1e-12 * table.largest().max(f64::MIN_POSITIVE) {
            return Err("the runs do not scatter at all, so no interval can be given".to_owned());
        }
        Ok(Self { scatter: Some(Scatter { run, own: own(values) }), cells, table, arms, seeds })
    }

    /// Half of the 95 % interval that the baseline's own level has: every comparison with it shares that error.
    pub fn common_error(&self, baseline: &str) -> Option<f64> {
        let cells: Vec<&Cell> = self.seeds.iter().filter_map(|seed| self.cells.get(baseline)?.get(seed)).collect();
        let runs = cells.iter().map(|cell| cell.runs.recip()).sum::<f64>() / cells.len() as f64;
        let (error, freedom) = self.scatter?.error(std::iter::once((1.0, runs)), cells.len());
        Some(t_quantile_at(freedom, 0.95)? * error)
    }

    /// Which runs of an arm there are.
    pub fn runs(&self, arm: &str) -> Runs {
        let cells: Vec<(u64, f64)> = self.cells.get(arm).into_iter().flatten().map(|(seed, cell)| (*seed, cell.runs.recip())).collect();
        Runs {
            seeds: cells.iter().map(|(seed, _)| *seed).filter(|seed| self.seeds.contains(seed)).collect(),
            reciprocal: if cells.is_empty() { 1.0 } else { mean(cells.iter().map(|(_, reciprocal)| *reciprocal)) },
        }
    }

    /// Do arms scatter alike? By `draws` simulated tables.
    pub fn levene(&self, draws: usize) -> Option<Checked> {
        self.table.levene(draws)
    }

    /// Do arm and seed add up?
    pub fn additivity(&self) -> Option<Checked> {
        self.table.additivity()
    }
}

impl Levels for Layout {
    /// Over the seeds that all its arms have.
    fn contrast(&self, weights: &[(&str, f64)]) -> Result<Measured, String> {
        let mut rows = Vec::new();
        for (arm, weight) in weights {
            rows.push((self.cells.get(*arm).ok_or_else(|| format!("{arm} has no number here"))?, *weight));
        }
        let shared = self.seeds.iter().filter(|seed| rows.iter().all(|(row, _)| row.contains_key(seed)));
        let shared: Vec<u64> = shared.copied().collect();
        if shared.is_empty() {
            return Err("no seed has all arms of this comparison".to_owned());
        }
        let n = shared.len();
        let over = |row: &BTreeMap<u64, Cell>, pick: fn(&Cell) -> f64| mean(shared.iter().map(|seed| pick(&row[seed])));
        let number = rows.iter().map(|(row, weight)| weight * over(row, |cell| cell.mean)).sum();
        let terms = rows.iter().map(|(row, weight)| (*weight, over(row, |cell| cell.runs.recip())));
        let (error, freedom) = self.scatter.map_or((f64::NAN, 0.0), |scatter| scatter.error(terms, n));
        Ok(Measured { number, error, freedom, n })
    }
}

/// Which runs of an arm there are.
#[derive(Debug, Clone)]
pub struct Runs {
    /// Of the baseline's seeds, those that it has.
    pub seeds: BTreeSet<u64>,
    /// Mean over its seeds of one over its runs with that seed: 1 unless it was repeated.
    pub reciprocal: f64,
}

/// What a simulated campaign would measure: levels and scatter drawn from the distributions that the true ones give them.
#[derive(Debug, Clone)]
pub struct Drawn<'a> {
    arms: BTreeMap<&'a str, DrawnArm<'a>>,
    scatter: Scatter,
}

#[derive(Debug, Clone)]
struct DrawnArm<'a> {
    level: f64,
    runs: &'a Runs,
    /// Of one seed's number.
    variance: f64,
    /// How far the mean of its seeds is off the true level, in standard errors.
    off: f64,
}

impl<'a> Drawn<'a> {
    /// `level`: each arm's true one; `scatter` is the truth, estimated with its degrees of freedom.
    pub fn new(arms: &'a BTreeMap<String, Runs>, level: &dyn Fn(&str) -> f64, scatter: &Scatter, draws: &mut Draws) -> Self {
        let own = scatter.own_square();
        let arm = |(arm, runs): (&'a String, &'a Runs)| {
            let variance = scatter.run.square - own * (1.0 - runs.reciprocal);
            (arm.as_str(), DrawnArm { level: level(arm), runs, variance, off: draws.normal() })
        };
        let arms = arms.iter().map(arm).collect();
        let mut estimate = |of: Component| Component { square: of.square * draws.variance(of.freedom), ..of };
        Self { arms, scatter: Scatter { run: estimate(scatter.run), own: scatter.own.map(estimate) } }
    }
}

impl Levels for Drawn<'_> {
    /// Over the seeds that all its arms have, as of a table. Two contrasts over different seeds of an arm are off by the same share of their
    /// errors, which is no matter to the chance of each.
    fn contrast(&self, weights: &[(&str, f64)]) -> Result<Measured, String> {
        let mut terms = Vec::new();
        for (arm, weight) in weights {
            terms.push((*weight, self.arms.get(*arm).ok_or_else(|| format!("{arm} is not part of this profile"))?));
        }
        let Some((_, first)) = terms.first() else { return Err("nothing is compared".to_owned()) };
        let n = first.runs.seeds.iter().filter(|seed| terms.iter().all(|(_, arm)| arm.runs.seeds.contains(seed))).count();
        if n == 0 {
            return Err("no seed has all arms of this comparison".to_owned());
        }
        let drawn = |arm: &DrawnArm<'_>| arm.level + (arm.variance / n as f64).sqrt() * arm.off;
        let number = terms.iter().map(|(weight, arm)| weight * drawn(arm)).sum();
        let (error, freedom) = self.scatter.error(terms.iter().map(|(weight, arm)| (*weight, arm.runs.reciprocal)), n);
        Ok(Measured { number, error, freedom, n })
    }
}

/// Spread within repetitions of one arm with one seed, from all that there are.
fn own(values: &Values) -> Option<Component> {
    let (mut sum, mut freedom) = (0.0, 0);
    for runs in values.values().flat_map(BTreeMap::values).filter(|runs| runs.len() > 1) {
        let level = mean(runs.iter().copied());
        sum += runs.iter().map(|run| (run - level).powi(2)).sum::<f64>();
        freedom += runs.len() - 1;
    }
    (freedom > 0).then(|| Component { square: sum / freedom as f64, freedom })
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
