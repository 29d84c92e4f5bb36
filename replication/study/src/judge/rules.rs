//! The decision rules: numbers in, a verdict and one sentence out. No manifest and no file is read here.

use super::verdict::Verdict;
use crate::measure::target::{PairedRatios, TokensToTarget};
use crate::number::{Unit, fixed};
use crate::statistics::MedianRatio;
use crate::statistics::{Interval, MeanRatio, Summary, ratio_of_means, summarise};

/// What a rule found: everything about a claim that depends on measurements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub verdict: Verdict,
    /// The measured number, when there is one.
    pub number: Option<f64>,
    /// The number is only a lower bound, because a run did not reach the target.
    pub lower_bound: bool,
    /// 95 % interval of the number.
    pub interval: Option<Interval>,
    /// Seeds or repeats behind the number.
    pub n: usize,
    /// Unit of the number.
    pub unit: Unit,
    /// One sentence: why this verdict.
    pub why: String,
}

impl Finding {
    /// A finding without a number.
    pub(crate) fn bare(verdict: Verdict, unit: Unit, why: impl Into<String>) -> Self {
        Self { verdict, number: None, lower_bound: false, interval: None, n: 0, unit, why: why.into() }
    }
}

/// A measured quantity before it is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub number: f64,
    /// 95 % interval; none when the sample is too small for one.
    pub interval: Option<Interval>,
    /// Seeds or repeats.
    pub n: usize,
}

impl From<Summary> for Estimate {
    fn from(summary: Summary) -> Self {
        Self { number: summary.mean, interval: summary.interval, n: summary.n }
    }
}

impl From<MedianRatio> for Estimate {
    fn from(ratio: MedianRatio) -> Self {
        Self { number: ratio.ratio, interval: ratio.interval, n: ratio.n }
    }
}

impl From<MeanRatio> for Estimate {
    fn from(ratio: MeanRatio) -> Self {
        Self { number: ratio.ratio, interval: ratio.interval, n: ratio.n }
    }
}

/// What a claim reports and how far from it still counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reported {
    /// Low end of the reported range.
    pub low: f64,
    /// High end; equal to `low` for a single number.
    pub high: f64,
    /// Widens the range on both sides.
    pub tolerance: f64,
}

impl Reported {
    /// The range within which a number counts as reproduced. The slack of 1e-12 keeps 0.08 - 0.02 from excluding 0.06.
    pub(crate) fn accepted(&self) -> Interval {
        Interval::new(self.low - self.tolerance - 1e-12, self.high + self.tolerance + 1e-12)
    }

    fn text(&self, unit: Unit) -> String {
        unit.interval(&Interval::new(self.low - self.tolerance, self.high + self.tolerance))
    }
}

/// Reproduced when the interval lies inside the accepted range, differs when wholly outside, inconclusive otherwise.
pub(crate) fn against_range(estimate: Estimate, reported: &Reported, unit: Unit) -> Finding {
    let mut finding = Finding {
        verdict: Verdict::Inconclusive,
        number: Some(estimate.number),
        lower_bound: false,
        interval: estimate.interval,
        n: estimate.n,
        unit,
        why: too_few(estimate.n),
    };
    let Some(interval) = estimate.interval else { return finding };
    let (accepted, range) = (reported.accepted(), reported.text(unit));
    (finding.verdict, finding.why) = if interval.inside(&accepted) {
        (Verdict::Reproduced, format!("The whole interval lies inside the accepted range {range}."))
    } else if interval.disjoint(&accepted) {
        let side = if interval.low > accepted.high { "above" } else { "below" };
        (Verdict::Differs, format!("The whole interval lies {side} the accepted range {range}."))
    } else {
        (Verdict::Inconclusive, format!("The interval is partly inside and partly outside the accepted range {range}."))
    };
    finding
}

/// Why a sample gives no interval.
fn too_few(n: usize) -> String {
    match n {
        1 => "A single seed or repeat gives no interval.".to_owned(),
        n => format!("{n} repeats are too few for a 95 % interval, or the quantity is not bounded by them."),
    }
}

/// Judges arm-over-baseline ratios against a range. `offset` is 1 for claims about the excess over one, 0 for the ratio itself.
///
/// A run that misses the target enters with budget over baseline, which is less than its true ratio. The spread of such bounds says
/// nothing about the spread of the ratios, so no interval is given; the claim differs when every seed's ratio or bound lies above the
/// accepted range, and is open otherwise: a bound below the range or in it says nothing.
pub(crate) fn token_ratio(ratios: &PairedRatios, offset: f64, reported: &Reported, unit: Unit) -> Finding {
    if let Some(finding) = baseline_missed(&ratios.baseline_missed, unit) {
        return finding;
    }
    let values: Vec<f64> = ratios.values().iter().map(|ratio| ratio - offset).collect();
    let Some(summary) = summarise(&values) else {
        return Finding::bare(Verdict::NotRun("no seed has both the arm and its baseline".into()), unit, "There is nothing to compare.");
    };
    if ratios.lower_bounds() == 0 {
        return against_range(summary.into(), reported, unit);
    }
    let (n, missed) = (values.len(), ratios.lower_bounds());
    let of = format!("{missed} of {n} seeds did not reach the target within the budget, so their ratios are lower bounds");
    let (verdict, why) = if n > 1 && values.iter().all(|value| *value > reported.accepted().high) {
        let why =
            format!("{of} and there is no interval; every seed's ratio or bound lies above the accepted range {}.", reported.text(unit));
        (Verdict::Differs, why)
    } else {
        (Verdict::Inconclusive, format!("{of}; they do not decide the claim."))
    };
    Finding { verdict, number: Some(summary.mean), lower_bound: true, interval: None, n, unit, why }
}

/// The verdict when a baseline run did not reach the target: a token ratio is then undefined, and dropping the seed would flatter.
fn baseline_missed(seeds: &[u64], unit: Unit) -> Option<Finding> {
    if seeds.is_empty() {
        return None;
    }
    let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let why = format!("The baseline did not reach the target within the budget, or diverged (seed {}).", list.join(", "));
    Some(Finding::bare(Verdict::Inconclusive, unit, why))
}

/// A range without ends.
pub(crate) const ANYTHING: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };
/// Where a ratio lies that falls.
pub(crate) const BELOW_ONE: Interval = Interval { low: f64::NEG_INFINITY, high: 1.0 };

/// A run is still descending when, over the last quarter of the budget, its loss falls by more than this share of the baseline's fall.
pub(crate) const DESCENDING: f64 = 0.2;

/// Does-not-converge: reproduced when no seed reaches the target and each has diverged or stopped descending ([`DESCENDING`]), differs
/// when all reach it, inconclusive otherwise. `baseline` says that the target was within reach at all.
pub(crate) fn does_not_converge(arm: &[&TokensToTarget], baseline: &[&TokensToTarget]) -> Finding {
    let missed_seeds: Vec<u64> = baseline.iter().filter(|run| run.crossing.is_none() || run.diverged).map(|run| run.seed).collect();
    if let Some(finding) = baseline_missed(&missed_seeds, Unit::Runs) {
        return finding;
    }
    let (n, missed) = (arm.len(), arm.iter().filter(|run| run.crossing.is_none()).count());
    let diverged = arm.iter().filter(|run| run.diverged).count();
    // How far the budget goes past the baseline decides what "does not converge" can mean here.
    let room: Vec<f64> = baseline.iter().filter_map(|run| run.crossing.map(|crossing| run.budget_tokens / crossing.interpolated)).collect();
    let budget = summarise(&room).map(|room| format!("the budget, {} times the baseline's tokens", fixed(room.mean, 2)));
    let budget = budget.unwrap_or_else(|| "the budget".to_owned());
    let how = if diverged > 0 { format!(", {diverged} of them by diverging") } else { String::new() };
    let (verdict, why) = match (n, missed) {
        (0, _) => (Verdict::NotRun("no seed of the arm is finished".to_owned()), "There is nothing to judge.".to_owned()),
        (1, _) => (Verdict::Inconclusive, "One seed cannot tell a rule from an accident.".to_owned()),
        (n, missed) if missed == n => missed_by_all(arm, baseline, &budget, &how),
        (n, 0) => (Verdict::Differs, format!("All {n} seeds reached the target within {budget}.")),
        (n, missed) => (Verdict::Inconclusive, format!("{missed} of {n} seeds did not reach the target within {budget}{how}.")),
    };
    Finding { verdict, number: Some(missed as f64), lower_bound: false, interval: None, n, unit: Unit::Runs, why }
}

/// No seed reached the target: is that a failure to converge, or only slowness? Slow runs would get there with more tokens.
fn missed_by_all(arm: &[&TokensToTarget], baseline: &[&TokensToTarget], budget: &str, how: &str) -> (Verdict, String) {
    let n = arm.len();
    let falls: Vec<f64> = baseline.iter().filter_map(|run| run.late_fall).collect();
    let Some(fall) = summarise(&falls) else {
        let why = format!("None of {n} seeds reached the target within {budget}{how}, but the baseline's last quarter is unknown.");
        return (Verdict::Inconclusive, why);
    };
    // A fall that is unknown although the run did not diverge counts as descending: the careful reading.
    let descending = arm.iter().filter(|run| !run.diverged && run.late_fall.is_none_or(|late| late > DESCENDING * fall.mean)).count();
    if descending > 0 {
        let why = format!("Not reached within {budget}{how}, but still descending in {descending} of {n} seeds.");
        return (Verdict::Inconclusive, why);
    }
    let why = format!("None of {n} seeds reached the target within {budget}{how}, and none is still descending.");
    (Verdict::Reproduced, why)
}

/// Whether the step from `without` to `full` costs more than the step from the baseline to `without`, seed by seed.
pub(crate) fn pass_dominates(full: &PairedRatios, without: &PairedRatios) -> Finding {
    let unit = Unit::SignedPercent;
    if let Some(finding) = baseline_missed(&full.baseline_missed, unit) {
        return finding;
    }
    if without.lower_bounds() > 0 {
        let why = "The arm without the pass did not reach the target in every seed, so its share is unknown.";
        return Finding::bare(Verdict::Inconclusive, unit, why);
    }
    let differences: Vec<f64> = full
        .pairs
        .iter()
        .filter_map(|full| Some((full, without.pairs.iter().find(|pair| pair.seed == full.seed)?)))
        .map(|(full, without)| (full.ratio - without.ratio) - (without.ratio - 1.0))
        .collect();
    let Some(summary) = summarise(&differences) else {
        return Finding::bare(Verdict::NotRun("no seed has all three arms".into()), unit, "There is nothing to compare.");
    };
    let lower_bound = full.lower_bounds() > 0;
    if !lower_bound {
        return sign(summary.into(), unit, "the last pass adds more tokens than the other two together");
    }
    let of = "The full arm did not reach the target in every seed, so there is no interval";
    let (verdict, why) = if differences.len() > 1 && differences.iter().all(|difference| *difference > 0.0) {
        (
            Verdict::Reproduced,
            format!("{of}; in every seed the last pass adds more tokens than the other two together, as number or bound."),
        )
    } else {
        (Verdict::Inconclusive, format!("{of}; the bounds do not decide the claim."))
    };
    Finding { verdict, number: Some(summary.mean), lower_bound, interval: None, n: summary.n, unit, why }
}

/// Reproduced when the whole interval is above zero, differs when wholly below, inconclusive otherwise. `holds` completes the
/// sentence "in every plausible reading …".
pub(crate) fn sign(estimate: Estimate, unit: Unit, holds: &str) -> Finding {
    let (verdict, why) = match estimate.interval {
        None => (Verdict::Inconclusive, too_few(estimate.n)),
        Some(interval) if interval.low > 0.0 => (Verdict::Reproduced, format!("The whole interval says that {holds}.")),
        Some(interval) if interval.high < 0.0 => (Verdict::Differs, format!("The whole interval says the opposite of: {holds}.")),
        Some(_) => (Verdict::Inconclusive, format!("The interval does not exclude either sign of: {holds}.")),
    };
    Finding { verdict, number: Some(estimate.number), lower_bound: false, interval: estimate.interval, n: estimate.n, unit, why }
}

/// Share of a loss gap that an addition closes: one minus the ratio of mean gaps, paired by seed.
pub(crate) fn gap_closed(with: &[f64], without: &[f64], reported: &Reported) -> Finding {
    let unit = Unit::Percent;
    let Some(ratio) = ratio_of_means(with, without) else {
        return Finding::bare(Verdict::NotRun("no seed has all three arms".into()), unit, "There is nothing to compare.");
    };
    // 1 - R turns the interval round.
    let interval = ratio.interval.map(|interval| Interval::new(1.0 - interval.high, 1.0 - interval.low));
    let mut finding = against_range(Estimate { number: 1.0 - ratio.ratio, interval, n: ratio.n }, reported, unit);
    if interval.is_none() && ratio.n > 1 {
        finding.number = None;
        finding.why = "The gap that should be closed cannot be told from zero at this scale, so no share of it can be given.".to_owned();
    }
    finding
}

/// A claim that holds when all of its parts do.
pub(crate) fn all_of(parts: &[(String, Verdict)]) -> Finding {
    let list = |wanted: fn(&Verdict) -> bool| -> Vec<&str> {
        parts.iter().filter(|(_, verdict)| wanted(verdict)).map(|(id, _)| id.as_str()).collect()
    };
    let differs = list(|verdict| *verdict == Verdict::Differs);
    let open = list(|verdict| *verdict == Verdict::Inconclusive);
    let blocked = parts.iter().find(|(_, verdict)| matches!(verdict, Verdict::NotRun(_) | Verdict::Failed(_)));
    let held = list(|verdict| *verdict == Verdict::Reproduced).len();
    let (verdict, why) = if !differs.is_empty() {
        (Verdict::Differs, format!("{} differs.", differs.join(", ")))
    } else if let Some((id, verdict)) = blocked {
        (verdict.clone(), format!("{id} has no result."))
    } else if !open.is_empty() {
        (Verdict::Inconclusive, format!("{} is inconclusive.", open.join(", ")))
    } else {
        (Verdict::Reproduced, "Every part is reproduced.".to_owned())
    };
    Finding { verdict, number: Some(held as f64), lower_bound: false, interval: None, n: parts.len(), unit: Unit::Runs, why }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
