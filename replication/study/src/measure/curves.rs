//! What an arm costs, along its whole curve: extra tokens and gap in nats against the baseline's mean curve, and the two stretches of it
//! over which claims are judged.
//!
//! Extra tokens at an evaluation: tokens over the tokens at which the baseline's mean curve has the same loss. Between evaluations that
//! curve is straight in tokens; where its mean rises, neighbours are pooled until it does not; beyond its end it goes on with the slope, in
//! the logarithm of tokens, of its last quarter.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Measurements;
use super::load::{Run, RunStatus};
use super::study::Study;
use crate::layout::{Layout, Levels, Values};
use crate::statistics::CONFIDENCE;
use crate::table::{Rounded, Table};

/// The slope of MLPerf's public FP8 runs at the paper's target is about the middle of this, nats per unit of the logarithm of tokens.
pub const MATCHED_SLOPE: [f64; 2] = [0.30, 0.40];
/// A budget that ends so near the flatter end has all of the stretch: a slope scatters by as much.
const NEARLY: f64 = 0.01;
/// A slope is that of a straight line through the evaluations within this distance in the logarithm of tokens, on both sides.
pub const SLOPE_REACH: f64 = 0.2;

/// A stretch of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// Where the baseline's slope, after its steepest part, lies within [`MATCHED_SLOPE`]; all of it, since costs grow along it.
    Matched,
    LastQuarter,
}

impl Stretch {
    pub fn word(self) -> &'static str {
        match self {
            Self::Matched => "matched depth",
            Self::LastQuarter => "last quarter",
        }
    }
}

/// The baseline's mean curve, which turns a loss into tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruler {
    /// Of the evaluations that all runs of the baseline have, first step onwards.
    pub tokens: Vec<u64>,
    /// Mean loss over all runs of the baseline.
    pub mean: Vec<f64>,
    /// The same, never rising.
    falling: Vec<f64>,
    /// Minus the slope at each evaluation, where the curve reaches far enough on both sides.
    pub slope: Vec<Option<f64>>,
    /// Minus the slope over the last quarter.
    pub late_slope: f64,
    budget: u64,
}

/// Every run of `baseline`, its repetitions included, that can be measured.
pub fn runs_of<'a>(runs: &'a [Run], study: &Study, baseline: &str) -> Vec<&'a Run> {
    runs.iter().filter(|run| run.finished() && study.repeated(&run.arm) == study.repeated(baseline)).collect()
}

impl Ruler {
    /// # Errors
    /// Why there is none, for the reader.
    pub fn of(runs: &[&Run], budget_steps: u64) -> Result<Self, String> {
        let Some(first) = runs.first() else { return Err("no run of the baseline is finished".to_owned()) };
        let diverged: BTreeSet<u64> =
            runs.iter().filter(|run| matches!(run.status, RunStatus::Diverged { .. })).map(|run| run.seed).collect();
        if !diverged.is_empty() {
            let seeds: Vec<String> = diverged.iter().map(u64::to_string).collect();
            return Err(format!("the baseline diverged (seed {}), so there is nothing sound to compare with", seeds.join(", ")));
        }
        let budget = budget_steps * first.tokens_per_step;
        let mut sums: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for evaluation in runs.iter().flat_map(|run| &run.evaluations).filter(|evaluation| evaluation.tokens > 0) {
            let sum = sums.entry(evaluation.tokens).or_default();
            *sum = (sum.0 + evaluation.loss, sum.1 + 1);
        }
        let shared = sums.into_iter().filter(|(_, (_, count))| *count == runs.len());
        let (tokens, mean): (Vec<u64>, Vec<f64>) = shared.map(|(tokens, (sum, count))| (tokens, sum / count as f64)).unzip();
        let late: Vec<usize> = (0..tokens.len()).filter(|at| tokens[*at] * 4 > budget * 3).collect();
        let late_slope =
            slope(&tokens, &mean, &late).ok_or("the last quarter of the budget has fewer than two evaluations of the baseline")?;
        if late_slope <= 0.0 {
            return Err("the baseline's mean loss does not fall over the last quarter of the budget".to_owned());
        }
        let slope = (0..tokens.len()).map(|at| slope_at(&tokens, &mean, at)).collect();
        Ok(Self { falling: falling(&mean), tokens, mean, slope, late_slope, budget })
    }

    /// Tokens at which the curve has `loss`; none for a loss above its first.
    pub fn tokens_at(&self, loss: f64) -> Option<f64> {
        let (first, last) = (*self.falling.first()?, *self.falling.last()?);
        if loss > first {
            return None;
        }
        if loss < last {
            return Some(*self.tokens.last()? as f64 * ((last - loss) / self.late_slope).exp());
        }
        let at = self.falling.partition_point(|mean| *mean > loss);
        let (right, here) = (self.tokens[at] as f64, self.falling[at]);
        let Some(before) = at.checked_sub(1) else { return Some(right) };
        let (left, above) = (self.tokens[before] as f64, self.falling[before]);
        Some(left + (above - loss) / (above - here) * (right - left))
    }

    /// Evaluations of a stretch; none when the budget ends before its end.
    pub fn stretch(&self, stretch: Stretch) -> Vec<usize> {
        match stretch {
            Stretch::LastQuarter => (0..self.tokens.len()).filter(|at| self.tokens[*at] * 4 > self.budget * 3).collect(),
            Stretch::Matched => {
                let known = || self.slope.iter().enumerate().filter_map(|(at, slope)| Some((at, (*slope)?)));
                let steepest = known().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at);
                let [low, high] = MATCHED_SLOPE;
                if self.last_slope().is_none_or(|last| last > low + NEARLY) {
                    return Vec::new();
                }
                known().filter(|(at, slope)| *at > steepest && (low..=high).contains(slope)).map(|(at, _)| at).collect()
            }
        }
    }

    /// The last slope that is known.
    pub fn last_slope(&self) -> Option<f64> {
        self.slope.iter().rev().find_map(|slope| *slope)
    }

    /// The loss that the curve has at the deepest evaluation of a stretch.
    pub fn deepest(&self, stretch: &[usize]) -> Option<f64> {
        Some(self.falling[*stretch.last()?])
    }

    /// How many times the tokens to `loss` the budget is.
    pub fn room(&self, loss: f64) -> Option<f64> {
        Some(self.budget as f64 / self.tokens_at(loss)?)
    }

    /// Of one run over `evaluations`: the logarithm of the mean of tokens over the baseline's, and the mean loss. None where the run lacks
    /// an evaluation, or is above all of the baseline's curve.
    pub fn read(&self, run: &Run, evaluations: &[usize]) -> Option<(f64, f64)> {
        let loss_at = |tokens: u64| {
            let at = run.evaluations.binary_search_by_key(&tokens, |evaluation| evaluation.tokens).ok()?;
            Some(run.evaluations[at].loss)
        };
        let (mut ratios, mut sum) = (0.0, 0.0);
        for at in evaluations {
            let loss = loss_at(self.tokens[*at])?;
            ratios += self.tokens[*at] as f64 / self.tokens_at(loss)?;
            sum += loss;
        }
        let count = evaluations.len() as f64;
        (count > 0.0).then(|| ((ratios / count).ln(), sum / count))
    }

    /// Both numbers of every run over `evaluations`, as tables of logarithms and of losses. A run that diverged has none.
    pub fn table(&self, runs: &[Run], study: &Study, evaluations: &[usize]) -> [Values; 2] {
        let mut tables = [Values::new(), Values::new()];
        let own_first = |run: &&Run| study.repeated(&run.arm) != run.arm;
        let mut ordered: Vec<&Run> = runs.iter().filter(|run| run.status == RunStatus::Completed).collect();
        ordered.sort_by_key(own_first);
        for run in ordered {
            if let Some((ratio, loss)) = self.read(run, evaluations) {
                for (table, value) in tables.iter_mut().zip([ratio, loss]) {
                    table.entry(study.repeated(&run.arm).to_owned()).or_default().entry(run.seed).or_default().push(value);
                }
            }
        }
        tables
    }
}

/// An arm's cost at one evaluation: mean over seeds, with 95 % intervals from the layout of all arms at that evaluation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cost {
    pub baseline: String,
    pub arm: String,
    pub tokens: u64,
    /// Mean loss of the baseline there, and minus its slope, nats per unit of the logarithm of tokens.
    pub baseline_loss: Rounded,
    pub baseline_slope: Option<Rounded>,
    pub seeds: usize,
    /// Extra tokens, as a share.
    pub overhead: Rounded,
    pub overhead_low: Option<Rounded>,
    pub overhead_high: Option<Rounded>,
    /// Loss above the baseline's, nats.
    pub gap: Rounded,
    pub gap_low: Option<Rounded>,
    pub gap_high: Option<Rounded>,
    /// Standard deviation of one run, arm and seed accounted for: of the logarithm of tokens, and of the loss. That of all arms; none with
    /// one seed.
    pub scatter: Option<Rounded>,
    pub scatter_loss: Option<Rounded>,
}

/// The whole curve of every arm against `baseline`: overhead and gap against tokens, loss and slope. Empty where there is no ruler.
pub(super) fn costs(measurements: &Measurements, baseline: &str) -> Vec<Cost> {
    let runs = runs_of(&measurements.runs, &measurements.study, baseline);
    let ruler = Ruler::of(&runs, measurements.study.profile.budget.steps).ok();
    ruler.iter().flat_map(|ruler| (0..ruler.tokens.len()).flat_map(move |at| costs_at(measurements, ruler, baseline, at))).collect()
}

pub fn table(measurements: &Measurements) -> Table {
    Table::of("curves.csv", measurements.costs().iter().cloned())
}

fn costs_at(measurements: &Measurements, ruler: &Ruler, baseline: &str, at: usize) -> Vec<Cost> {
    let tables = ruler.table(&measurements.runs, &measurements.study, &[at]);
    let [Ok(tokens), Ok(losses)] = tables.each_ref().map(|table| Layout::of(table, baseline)) else { return Vec::new() };
    let [scatter, scatter_loss] = [&tokens, &losses].map(|layout| layout.scatter.map(|scatter| Rounded(scatter.run.sd())));
    let row = |arm: &String| {
        let of = |layout: &Layout| layout.contrast(&[(arm, 1.0), (baseline, -1.0)]).ok();
        let (overhead, gap) = (of(&tokens)?, of(&losses)?);
        let share = overhead.interval(CONFIDENCE).map(|ends| ends.map(f64::exp_m1));
        let nats = gap.interval(CONFIDENCE);
        Some(Cost {
            baseline: baseline.to_owned(),
            arm: arm.clone(),
            tokens: ruler.tokens[at],
            baseline_loss: Rounded(ruler.mean[at]),
            baseline_slope: ruler.slope[at].map(Rounded),
            seeds: overhead.n,
            overhead: Rounded(overhead.number.exp_m1()),
            overhead_low: share.map(|interval| Rounded(interval.low)),
            overhead_high: share.map(|interval| Rounded(interval.high)),
            gap: Rounded(gap.number),
            gap_low: nats.map(|interval| Rounded(interval.low)),
            gap_high: nats.map(|interval| Rounded(interval.high)),
            scatter,
            scatter_loss,
        })
    };
    tables[0].keys().filter(|arm| *arm != baseline).filter_map(row).collect()
}

/// Minus the slope of the least-squares line of loss over the logarithm of tokens through the evaluations `of`; none below two.
fn slope(tokens: &[u64], loss: &[f64], of: &[usize]) -> Option<f64> {
    if of.len() < 2 {
        return None;
    }
    let x: Vec<f64> = of.iter().map(|at| (tokens[*at] as f64).ln()).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (centre, level) = (mean(&x), mean(&of.iter().map(|at| loss[*at]).collect::<Vec<_>>()));
    let (mut product, mut square) = (0.0, 0.0);
    for (x, at) in x.iter().zip(of) {
        product += (x - centre) * (loss[*at] - level);
        square += (x - centre).powi(2);
    }
    Some(-product / square)
}

/// The slope at an evaluation, where the curve reaches [`SLOPE_REACH`] on both sides.
fn slope_at(tokens: &[u64], loss: &[f64], at: usize) -> Option<f64> {
    let distance = |other: u64| (other as f64 / tokens[at] as f64).ln();
    let whole = distance(*tokens.first()?) <= -SLOPE_REACH && distance(*tokens.last()?) >= SLOPE_REACH;
    let near: Vec<usize> = (0..tokens.len()).filter(|other| distance(tokens[*other]).abs() <= SLOPE_REACH).collect();
    slope(tokens, loss, &near).filter(|_| whole && near.len() > 2)
}

/// The closest curve that never rises, in least squares: neighbours are pooled where the next is not below the last.
fn falling(loss: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for value in loss {
        let mut block = (*value, 1);
        while let Some(before) = blocks.pop_if(|before| before.0 <= block.0) {
            let count = before.1 + block.1;
            block = ((before.0 * before.1 as f64 + block.0 * block.1 as f64) / count as f64, count);
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count)).collect()
}

#[cfg(test)]
#[path = "curves_tests.rs"]
mod tests;
