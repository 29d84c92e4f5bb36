//! The CSV files about public logs. One row type and one function a file; none is written when there is no evidence.

use serde::Serialize;

use super::judged::{Comparison, judge};
use super::numbers::{GroupNumbers, RunNumbers, with_score};
use crate::manifest::public_logs::{Group, PublicLogs};
use crate::measure::Measurements;
use crate::measure::target::Estimator;
use crate::statistics::{IndependentRatio, Interval};
use crate::table::{Flag, Number, Table};

/// Every table, or none.
pub fn all(measurements: &Measurements) -> Vec<Table> {
    let evidence = &measurements.public_logs;
    if evidence.is_empty() {
        return Vec::new();
    }
    let comparisons = judge(&measurements.study, evidence);
    vec![
        Table::of("public_log_runs.csv", each_group(evidence).flat_map(|(one, group, numbers)| runs(one, group, &numbers))),
        Table::of("public_log_groups.csv", each_group(evidence).flat_map(|(one, group, numbers)| quantities(one, group, &numbers))),
        Table::of("public_log_claims.csv", comparisons.iter().flat_map(claims)),
        Table::of("public_log_baselines.csv", comparisons.iter().flat_map(baselines)),
    ]
}

fn each_group(evidence: &[PublicLogs]) -> impl Iterator<Item = (&PublicLogs, &Group, GroupNumbers)> {
    evidence.iter().flat_map(|one| one.manifest.groups.iter().filter_map(move |group| Some((one, group, one.numbers(&group.id)?))))
}

/// One run: samples to the target by both estimates, minutes, seconds of a step and from what (`blocks` or `intervals`).
#[derive(Default, Serialize)]
struct RunRow<'a> {
    evidence: &'a str,
    group: &'a str,
    run: u64,
    seed: Option<u64>,
    status: &'static str,
    reached: Flag,
    samples_grid: Option<Number>,
    samples_interpolated: Option<Number>,
    minutes: Option<Number>,
    step_seconds: Option<Number>,
    step_basis: Option<&'static str>,
}

fn runs<'a>(one: &'a PublicLogs, group: &'a Group, numbers: &GroupNumbers) -> Vec<RunRow<'a>> {
    let row = |run: &RunNumbers| RunRow {
        evidence: &one.manifest.id,
        group: &group.id,
        run: run.number,
        seed: run.seed,
        status: run.status.word(),
        reached: Flag(run.grid.is_some()),
        samples_grid: run.grid.map(Number),
        samples_interpolated: run.interpolated.map(Number),
        minutes: run.minutes.map(Number),
        step_seconds: run.step.map(|step| Number(step.0)),
        step_basis: run.step.map(|step| step.1.word()),
    };
    numbers.runs.iter().map(row).collect()
}

/// One group and quantity.
#[derive(Default, Serialize)]
struct GroupRow<'a> {
    evidence: &'a str,
    group: &'a str,
    quantity: &'static str,
    /// Of the group.
    runs: usize,
    /// Runs that have the quantity.
    n: usize,
    mean: Option<Number>,
    /// Sample standard deviation.
    sd: Option<Number>,
    olympic_mean: Option<Number>,
}

fn quantities<'a>(one: &'a PublicLogs, group: &'a Group, numbers: &GroupNumbers) -> [GroupRow<'a>; 4] {
    let quantities = [
        ("samples_grid", numbers.samples(Estimator::Grid)),
        ("samples_interpolated", numbers.samples(Estimator::Interpolated)),
        ("minutes", numbers.minutes()),
        ("step_seconds", numbers.steps()),
    ];
    quantities.map(|(quantity, values)| {
        let (summary, score) = with_score(&values);
        GroupRow {
            evidence: &one.manifest.id,
            group: &group.id,
            quantity,
            runs: numbers.runs.len(),
            n: values.len(),
            mean: summary.map(|summary| Number(summary.mean)),
            sd: summary.and_then(|summary| summary.sd).map(Number),
            olympic_mean: score.map(Number),
        }
    })
}

/// One comparison, claim and estimate; evidence is always `public-log`, and none of these words is a verdict on our runs.
#[derive(Default, Serialize)]
struct ClaimRow<'a> {
    source: &'a str,
    comparison: &'a str,
    paper: &'a str,
    claim: &'a str,
    estimator: Option<&'static str>,
    evidence: &'static str,
    word: &'static str,
    number: Option<Number>,
    low: Option<Number>,
    high: Option<Number>,
    arm_runs: usize,
    baseline_runs: usize,
    reported_low: Option<Number>,
    reported_high: Option<Number>,
    tolerance: Option<Number>,
}

fn claims(comparison: &Comparison) -> impl Iterator<Item = ClaimRow<'_>> {
    comparison.rows.iter().map(|row| ClaimRow {
        source: &comparison.evidence,
        comparison: &comparison.id,
        paper: &comparison.paper,
        claim: &row.claim,
        estimator: row.estimator.map(|estimator| estimator.word()),
        evidence: "public-log",
        word: row.word,
        number: row.number.map(Number),
        low: row.interval.map(|interval| Number(interval.low)),
        high: row.interval.map(|interval| Number(interval.high)),
        arm_runs: row.runs[0],
        baseline_runs: row.runs[1],
        reported_low: row.reported.map(|[low, _]| Number(low)),
        reported_high: row.reported.map(|[_, high]| Number(high)),
        tolerance: row.tolerance.map(Number),
    })
}

/// One comparison, baseline and quantity: the ratio with its interval, where there is one. `lowest` and `highest` are of the comparison's
/// own baseline with any one of its runs left out.
#[derive(Default, Serialize)]
struct BaselineRow<'a> {
    evidence: &'a str,
    comparison: &'a str,
    baseline: &'a str,
    quantity: &'static str,
    runs: usize,
    ratio: Number,
    low: Option<Number>,
    high: Option<Number>,
}

fn baselines(comparison: &Comparison) -> Vec<BaselineRow<'_>> {
    let row = |baseline, quantity, ratio: f64, interval: Option<Interval>, runs| BaselineRow {
        evidence: &comparison.evidence,
        comparison: &comparison.id,
        baseline,
        quantity,
        runs,
        ratio: Number(ratio),
        low: interval.map(|interval| Number(interval.low)),
        high: interval.map(|interval| Number(interval.high)),
    };
    let mut rows = Vec::new();
    for other in &comparison.baselines {
        let quantities = [("samples_grid", other.grid), ("samples_interpolated", other.interpolated), ("step_time", other.step)];
        for (quantity, ratio) in quantities {
            if let Some(IndependentRatio { ratio, interval, .. }) = ratio {
                rows.push(row(&other.label, quantity, ratio, interval, other.runs));
            }
        }
    }
    let own = comparison.baselines.first().map_or(0, |own| own.runs);
    for (quantity, range) in ["samples_grid", "samples_interpolated"].into_iter().zip(comparison.without_one.into_iter().flatten()) {
        rows.push(row("without one run, lowest", quantity, range.low, None, own.saturating_sub(1)));
        rows.push(row("without one run, highest", quantity, range.high, None, own.saturating_sub(1)));
    }
    if let Some(parts) = comparison.decomposition {
        rows.push(row("decomposition", "step_over_samples", parts.product(), None, own));
        rows.push(row("decomposition", "time", parts.time, None, own));
    }
    rows
}
