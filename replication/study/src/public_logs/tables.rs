//! The CSV files about public logs. One function a file; none is written when there is no evidence.

use super::judged::{Comparison, judge};
use super::numbers::GroupNumbers;
use super::numbers::with_score;
use crate::manifest::public_logs::{Group, PublicLogs};
use crate::measure::Measurements;
use crate::measure::target::Estimator;
use crate::statistics::{IndependentRatio, Interval};
use crate::table::{Table, cell};

/// Every table, or none.
pub fn all(measurements: &Measurements) -> Vec<Table> {
    let evidence = &measurements.public_logs;
    if evidence.is_empty() {
        return Vec::new();
    }
    let comparisons = judge(&measurements.study, evidence);
    vec![runs(evidence), groups(evidence), claims(&comparisons), baselines(&comparisons)]
}

fn table(name: &'static str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { name, columns: columns.iter().map(|column| (*column).to_owned()).collect(), rows }
}

fn each_group(evidence: &[PublicLogs]) -> impl Iterator<Item = (&PublicLogs, &Group, GroupNumbers)> {
    evidence.iter().flat_map(|one| one.manifest.groups.iter().filter_map(move |group| Some((one, group, one.numbers(&group.id)?))))
}

/// One line a run: samples to the target by both estimates, minutes, seconds of a step and from what (`blocks` or `intervals`).
fn runs(evidence: &[PublicLogs]) -> Table {
    let mut rows = Vec::new();
    for (one, group, numbers) in each_group(evidence) {
        for run in numbers.runs {
            rows.push(vec![
                one.manifest.id.clone(),
                group.id.clone(),
                run.number.to_string(),
                run.seed.map(|seed| seed.to_string()).unwrap_or_default(),
                run.status.word().to_owned(),
                u8::from(run.grid.is_some()).to_string(),
                cell(run.grid),
                cell(run.interpolated),
                cell(run.minutes),
                cell(run.step.map(|step| step.0)),
                run.step.map(|step| step.1.word().to_owned()).unwrap_or_default(),
            ]);
        }
    }
    let columns = [
        "evidence",
        "group",
        "run",
        "seed",
        "status",
        "reached",
        "samples_grid",
        "samples_interpolated",
        "minutes",
        "step_seconds",
        "step_basis",
    ];
    table("public_log_runs.csv", &columns, rows)
}

/// One line a group and quantity: `n` runs behind it of `runs`, plain mean, sample standard deviation, olympic mean.
fn groups(evidence: &[PublicLogs]) -> Table {
    let mut rows = Vec::new();
    for (one, group, numbers) in each_group(evidence) {
        let quantities = [
            ("samples_grid", numbers.samples(Estimator::Grid)),
            ("samples_interpolated", numbers.samples(Estimator::Interpolated)),
            ("minutes", numbers.minutes()),
            ("step_seconds", numbers.steps()),
        ];
        for (quantity, values) in quantities {
            let (summary, score) = with_score(&values);
            rows.push(vec![
                one.manifest.id.clone(),
                group.id.clone(),
                quantity.to_owned(),
                numbers.runs.len().to_string(),
                values.len().to_string(),
                cell(summary.map(|summary| summary.mean)),
                cell(summary.and_then(|summary| summary.sd)),
                cell(score),
            ]);
        }
    }
    table("public_log_groups.csv", &["evidence", "group", "quantity", "runs", "n", "mean", "sd", "olympic_mean"], rows)
}

/// One line for each comparison, claim and estimate; evidence is always `public-log`, and none of these words is a verdict on our runs.
fn claims(comparisons: &[Comparison]) -> Table {
    let mut rows = Vec::new();
    for comparison in comparisons {
        for row in &comparison.rows {
            let (low, high) = ends(row.interval);
            rows.push(vec![
                comparison.evidence.clone(),
                comparison.id.clone(),
                comparison.paper.clone(),
                row.claim.clone(),
                row.estimator.map(|estimator| estimator.word().to_owned()).unwrap_or_default(),
                "public-log".to_owned(),
                row.word.to_owned(),
                cell(row.number),
                low,
                high,
                row.runs[0].to_string(),
                row.runs[1].to_string(),
                cell(row.reported.map(|reported| reported[0])),
                cell(row.reported.map(|reported| reported[1])),
                cell(row.tolerance),
            ]);
        }
    }
    let columns = [
        "source",
        "comparison",
        "paper",
        "claim",
        "estimator",
        "evidence",
        "word",
        "number",
        "low",
        "high",
        "arm_runs",
        "baseline_runs",
        "reported_low",
        "reported_high",
        "tolerance",
    ];
    table("public_log_claims.csv", &columns, rows)
}

/// One line for each comparison, baseline and quantity: the ratio with its interval, where there is one. `lowest` and `highest` are
/// of the comparison's own baseline with any one of its runs left out.
fn baselines(comparisons: &[Comparison]) -> Table {
    let mut rows = Vec::new();
    for comparison in comparisons {
        let mut add = |label: &str, quantity: &str, ratio: f64, interval: Option<Interval>, runs: usize| {
            let (low, high) = ends(interval);
            let start = [comparison.evidence.clone(), comparison.id.clone(), label.to_owned(), quantity.to_owned()];
            rows.push(start.into_iter().chain([runs.to_string(), cell(Some(ratio)), low, high]).collect());
        };
        for other in &comparison.baselines {
            let quantities = [("samples_grid", other.grid), ("samples_interpolated", other.interpolated), ("step_time", other.step)];
            for (quantity, ratio) in quantities {
                if let Some(IndependentRatio { ratio, interval, .. }) = ratio {
                    add(&other.label, quantity, ratio, interval, other.runs);
                }
            }
        }
        let own = comparison.baselines.first().map_or(0, |own| own.runs);
        for (quantity, range) in ["samples_grid", "samples_interpolated"].iter().zip(comparison.without_one.into_iter().flatten()) {
            add("without one run, lowest", quantity, range.low, None, own.saturating_sub(1));
            add("without one run, highest", quantity, range.high, None, own.saturating_sub(1));
        }
        if let Some(parts) = comparison.decomposition {
            add("decomposition", "step_over_samples", parts.product(), None, own);
            add("decomposition", "time", parts.time, None, own);
        }
    }
    table("public_log_baselines.csv", &["evidence", "comparison", "baseline", "quantity", "runs", "ratio", "low", "high"], rows)
}

fn ends(interval: Option<Interval>) -> (String, String) {
    (cell(interval.map(|interval| interval.low)), cell(interval.map(|interval| interval.high)))
}
