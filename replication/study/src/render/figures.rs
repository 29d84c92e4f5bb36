//! Which data belong in which figure: the paper's two convergence figures, token overheads, loss gaps, quantisation errors and
//! outliers. Each figure comes as SVG for the page, PGFPlots for the paper, and the CSV that the latter reads.

use std::collections::BTreeSet;

use super::charts::{Curve, CurveChart};
use super::dots::{DotChart, Point, Reported, Row};
use super::figure::{Figure, curve_figure, dot_figure, label, mean_curve, token_scale};
use super::{answer, costs, public_logs, readings, svg};
use crate::manifest::recipe::Recipe;
use crate::manifest::{Metric, Paper};
use crate::measure::Measurements;
use crate::measure::load::Run;
use crate::measure::study::{Study, is_full, is_plain};
use crate::measure::target::token_ratios;
use crate::number;
use crate::statistics::{Summary, summarise};

/// Every figure that the measurements allow, in the order of the report.
pub(super) fn all(measurements: &Measurements) -> Vec<Figure> {
    let mut figures: Vec<Figure> = answer::figure(measurements).into_iter().collect();
    figures.extend(convergence(measurements));
    figures.extend(costs::figures(measurements));
    figures.extend(readings::figures(measurements));
    figures.extend(overheads(measurements));
    figures.extend(gaps(measurements));
    figures.extend(quantisation_errors(measurements));
    figures.extend(outliers(measurements));
    figures.extend(public_logs::figures(measurements));
    figures
}

/// Figures 1 and 2: validation loss over tokens, whole and near the target, each for the arms without stabiliser, for the full pipeline with its
/// stabilisers, and for all others.
fn convergence(measurements: &Measurements) -> Vec<Figure> {
    let study = &measurements.study;
    let Some(paper) = study.papers.first() else { return Vec::new() };
    let named = claimed_arms(paper);
    // The baseline comes first, wherever the profile has it.
    let pick = |wanted: &dyn Fn(&str) -> bool| -> Vec<&str> {
        let others = study.arms().into_iter().filter(|arm| *arm != paper.baseline && wanted(arm));
        std::iter::once(paper.baseline.as_str()).chain(others).collect()
    };
    let claimed = |wanted: fn(&Recipe) -> bool| pick(&|arm| named.contains(arm) && study.recipes.get(arm).is_some_and(wanted));
    let [plain, full] = [claimed(is_plain), claimed(is_full)];
    let other = pick(&|arm| !plain.contains(&arm) && !full.contains(&arm) && study.repeated(arm) == arm);
    let [plain, full, mut other] = [plain, full, other].map(|arms| curves(measurements, &arms));
    let left_out = other.split_off(other.len().min(svg::SERIES)).len();
    let means = "Validation loss against training tokens: mean over seeds";
    let room = if left_out > 0 {
        format!(" ({} of {} curves, as many as a figure tells apart)", svg::SERIES, svg::SERIES + left_out)
    } else {
        String::new()
    };
    let others = format!("Validation loss against training tokens{room}, and the same near the target");
    let mut figures = Vec::new();
    for (id, zoom_id, file, zoom_file, title, caption, curves) in [
        ("figure-1a", "figure-2a", "figure-1a.csv", "figure-2a.csv", "No stabiliser", means, plain),
        ("figure-1b", "figure-2b", "figure-1b.csv", "figure-2b.csv", "All three GEMMs, by stabiliser", means, full),
        ("figure-1c", "figure-2c", "figure-1c.csv", "figure-2c.csv", "Other arms", &others, other),
    ] {
        // The baseline alone is no comparison.
        if curves.len() < 2 {
            continue;
        }
        let Some(whole) = whole_chart(measurements, title, curves) else { continue };
        figures.push(curve_figure(id, caption, &whole, file));
        if let Some(zoom) = zoom_chart(&whole) {
            figures.push(curve_figure(zoom_id, "The same near the target", &zoom, zoom_file));
        }
    }
    figures.sort_by_key(|figure| figure.id);
    figures
}

/// Arms that a paper's token claims name.
pub(super) fn claimed_arms(paper: &Paper) -> BTreeSet<&str> {
    let arms = paper.claims.iter().filter_map(|claim| match &claim.metric {
        Metric::TokenOverhead { arm, .. } | Metric::DoesNotConverge { arm } | Metric::LossGap { arm, .. } => Some(arm.as_str()),
        _ => None,
    });
    arms.collect()
}

/// Mean and seeds of each arm that has finished runs. Tokens in thousands or millions, whichever reads better.
fn curves(measurements: &Measurements, arms: &[&str]) -> Vec<Curve> {
    let scale = token_scale(measurements).0;
    let curve = |arm: &&str| {
        let runs: Vec<&Run> = measurements.runs.iter().filter(|run| run.arm == **arm && run.finished()).collect();
        let seeds: Vec<Vec<(f64, f64)>> = runs
            .iter()
            .map(|run| run.evaluations.iter().map(|evaluation| (evaluation.tokens as f64 / scale, evaluation.loss)).collect())
            .collect();
        let mean = mean_curve(&seeds);
        (!mean.is_empty()).then(|| Curve { label: label(&measurements.study, arm), mean, seeds })
    };
    arms.iter().filter_map(curve).collect()
}

fn whole_chart(measurements: &Measurements, title: &str, curves: Vec<Curve>) -> Option<CurveChart> {
    let points = || curves.iter().flat_map(|curve| curve.mean.iter());
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    let low = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    // The baseline's highest loss, not that of an arm that diverges: one runaway curve must not flatten all others.
    let start = curves.first()?.mean.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    if last <= 0.0 || start <= low {
        return None;
    }
    let target = measurements.study.profile.target_loss;
    let low = target.map_or(low, |target| low.min(target));
    Some(CurveChart {
        title: title.to_owned(),
        description: format!("Validation loss of {} arms over training tokens, mean over seeds.", curves.len()),
        x_label: token_scale(measurements).1.to_owned(),
        y_label: "validation loss, nats per token".to_owned(),
        x: (0.0, last),
        y: (low - 0.03 * (start - low), start),
        goal: target.map(|target| (target, format!("target {}", number::fixed(target, 2)))),
        curves,
        ..CurveChart::default()
    })
}

/// The last part of the curves: from about half of the first curve's tokens to target, and from its loss there.
fn zoom_chart(whole: &CurveChart) -> Option<CurveChart> {
    let target = whole.goal.as_ref()?.0;
    let first = whole.curves.first()?;
    let crossing = first.mean.iter().find(|point| point.1 <= target).map_or(whole.x.1, |point| point.0);
    let from = 0.6 * crossing;
    let top = first.mean.iter().find(|point| point.0 >= from).map_or(whole.y.1, |point| point.1);
    let low = whole.curves.iter().flat_map(|curve| curve.mean.iter()).map(|point| point.1).fold(target, f64::min);
    let top = top.max(target + 0.5 * (target - low));
    let description = format!("{} Only the part near the target, with a line for each seed.", whole.description);
    Some(CurveChart { x: (from, whole.x.1), y: (low - 0.04 * (top - low), top), description, ..whole.clone() })
}

/// Extra tokens to the target for every arm, ours beside the paper's range.
fn overheads(measurements: &Measurements) -> Option<Figure> {
    let study = &measurements.study;
    let paper = study.papers.first()?;
    let row = |arm: &str| {
        let ratios = token_ratios(&measurements.tokens, arm, &paper.baseline, study.estimator);
        let values: Vec<f64> = ratios.values().iter().map(|ratio| 100.0 * (ratio - 1.0)).collect();
        let complete = ratios.lower_bounds() == 0 && ratios.baseline_missed.is_empty();
        let points: Vec<Point> = summarise(&values).filter(|_| complete).map(|summary| point(summary, 0)).into_iter().collect();
        let note = match (values.is_empty(), ratios.baseline_missed.is_empty()) {
            (true, true) => "not run",
            (true, false) => "not reached by the baseline",
            (false, _) => "not reached by every seed",
        };
        (points, note)
    };
    let rows = arm_rows(measurements, paper, &answer::reported(paper), &row);
    let chart = DotChart {
        title: "Extra tokens to the target".to_owned(),
        description: "Tokens to the target loss relative to the baseline, one row an arm, with 95 % intervals, beside the paper's range."
            .to_owned(),
        x_label: format!("tokens to target relative to {}, %", study.label(&paper.baseline)),
        reference: Some(0.0),
        series: vec!["measured here".to_owned()],
        reported: "reported by the paper".to_owned(),
        rows,
        ..DotChart::default()
    };
    Some(dot_figure(
        "token-overhead",
        "Extra tokens to the target loss, with 95 % intervals, beside the ranges that the paper reports",
        &chart,
        "token-overhead.csv",
    ))
}

fn point(summary: Summary, series: usize) -> Point {
    Point { value: summary.mean, interval: summary.interval.map(|interval| (interval.low, interval.high)), series }
}

/// One row for each arm of the profile that is not another paper's, in groups; a note where `row` gives no point.
fn arm_rows(
    measurements: &Measurements,
    paper: &Paper,
    reported: &[(&str, Reported)],
    row: &dyn Fn(&str) -> (Vec<Point>, &'static str),
) -> Vec<Row> {
    let study = &measurements.study;
    let others: Vec<&Paper> = study.papers.iter().filter(|other| other.id != paper.id).collect();
    let mut rows = Vec::new();
    for group in &study.profile.arms {
        if others.iter().any(|other| group.group.contains(other.id.as_str())) {
            continue;
        }
        let arms: Vec<&String> = group.recipes.iter().filter(|arm| **arm != paper.baseline).collect();
        if !arms.is_empty() {
            rows.push(Row::Group(group.group.clone()));
        }
        for arm in arms {
            let (points, note) = row(arm);
            let said = reported.iter().find(|(other, _)| other == arm).map(|(_, said)| said.clone()).unwrap_or_default();
            rows.push(Row::Values { label: label(study, arm), points, note: note.to_owned(), reported: said });
        }
    }
    rows
}

/// Loss gaps at equal tokens: one figure for the first paper's baseline, one for each further paper's.
fn gaps(measurements: &Measurements) -> Vec<Figure> {
    let study = &measurements.study;
    let mut figures = Vec::new();
    for (index, paper) in study.papers.iter().enumerate() {
        let row = |arm: &str| -> (Vec<Point>, &'static str) {
            let gaps = measurements.gaps(arm, &paper.baseline);
            let last: Option<Vec<f64>> = gaps.iter().map(|gap| gap.last).collect();
            let points = last.as_deref().and_then(summarise).map(|summary| point(summary, 0)).into_iter().collect();
            (points, if gaps.is_empty() { "not run" } else { "diverged" })
        };
        let rows = if index == 0 { arm_rows(measurements, paper, &[], &row) } else { claimed_rows(study, paper, &row) };
        let chart = DotChart {
            title: format!("Loss gap to {} at equal tokens", study.label(&paper.baseline)),
            description: "Difference of validation loss at the end of the budget, paired by seed, one row an arm, with 95 % intervals."
                .to_owned(),
            x_label: "validation loss minus the baseline's, nats per token".to_owned(),
            reference: Some(0.0),
            series: vec!["measured here".to_owned()],
            rows,
            ..DotChart::default()
        };
        if !chart.rows.iter().any(|row| matches!(row, Row::Values { points, .. } if !points.is_empty())) {
            continue;
        }
        let (id, file) = if index == 0 { ("loss-gap", "loss-gap.csv") } else { ("loss-gap-second", "loss-gap-second.csv") };
        if index < 2 {
            figures.push(dot_figure(
                id,
                "Validation loss minus the baseline's at the end of the budget, paired by seed, with 95 % intervals",
                &chart,
                file,
            ));
        }
    }
    figures
}

fn claimed_rows(study: &Study, paper: &Paper, row: &dyn Fn(&str) -> (Vec<Point>, &'static str)) -> Vec<Row> {
    let named = claimed_arms(paper);
    let arms = study.arms().into_iter().filter(|arm| named.contains(arm));
    arms.map(|arm| {
        let (points, note) = row(arm);
        Row::values(label(study, arm), points, note)
    })
    .collect()
}

const PASSES: [&str; 3] = ["fprop", "dgrad", "wgrad"];

/// Relative error of MXFP4 operands, by arm and pass.
fn quantisation_errors(measurements: &Measurements) -> Option<Figure> {
    let study = &measurements.study;
    let mut rows = Vec::new();
    for arm in study.arms() {
        let points: Vec<Point> = PASSES
            .iter()
            .enumerate()
            .filter_map(|(series, pass)| {
                let chosen = measurements.quantisation.iter().filter(|row| row.arm == arm && row.pass == *pass && row.format == "e2m1");
                let errors: Vec<f64> = chosen.filter_map(|row| row.relative_error).collect();
                Some(Point { value: summarise(&errors)?.mean, interval: None, series })
            })
            .collect();
        if !points.is_empty() {
            rows.push(Row::values(label(study, arm), points, ""));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let chart = DotChart {
        title: "Quantisation error of MXFP4 operands".to_owned(),
        description: "Norm of the error over norm of the operand, averaged over layers, operands, logged steps and seeds, one row an arm, one mark a pass.".to_owned(),
        x_label: "relative error".to_owned(),
        series: vec!["Fprop".to_owned(), "Dgrad".to_owned(), "Wgrad".to_owned()],
        rows,
        ..DotChart::default()
    };
    Some(dot_figure(
        "quantisation-error",
        "Relative error of MXFP4 operands by arm and pass, averaged over layers, operands, logged steps and seeds",
        &chart,
        "quantisation-error.csv",
    ))
}

/// Outlier blocks before and after the rotation: by pass for the arm that a claim is about, over all passes for others that rotate.
fn outliers(measurements: &Measurements) -> Option<Figure> {
    let study = &measurements.study;
    let claims = study.papers.iter().flat_map(|paper| &paper.claims);
    let claimed = claims.into_iter().find_map(|claim| match &claim.metric {
        Metric::OutlierReduction { arm } => Some(arm.as_str()),
        _ => None,
    });
    let mut rows = Vec::new();
    if let Some(arm) = claimed {
        let passes: Vec<Row> = PASSES.iter().filter_map(|pass| before_after(measurements, arm, Some(pass), pass)).collect();
        if !passes.is_empty() {
            rows.push(Row::Group(label(study, arm)));
        }
        rows.extend(passes);
    }
    let others: Vec<Row> = study
        .arms()
        .into_iter()
        .filter(|arm| Some(*arm) != claimed)
        .filter_map(|arm| before_after(measurements, arm, None, &label(study, arm)))
        .collect();
    if !others.is_empty() {
        rows.push(Row::Group("All passes, other rotations".to_owned()));
    }
    rows.extend(others);
    if rows.is_empty() {
        return None;
    }
    let chart = DotChart {
        title: "Outlier blocks before and after rotation".to_owned(),
        description: "Largest magnitude over root mean square, over the tenth of blocks where it is highest, chosen before rotation and again after it.".to_owned(),
        x_label: "block maximum over block root mean square".to_owned(),
        series: vec!["before".to_owned(), "after".to_owned()],
        joined: true,
        rows,
        ..DotChart::default()
    };
    Some(dot_figure(
        "outliers",
        "Block maximum over block root mean square in outlier blocks (the tenth where it is highest, chosen on each side), before and after rotation",
        &chart,
        "outliers.csv",
    ))
}

/// A row from before to after; none when the arm does not rotate there.
fn before_after(measurements: &Measurements, arm: &str, pass: Option<&str>, name: &str) -> Option<Row> {
    let chosen = || {
        measurements.quantisation.iter().filter(|row| row.arm == arm && row.format == "e2m1" && pass.is_none_or(|pass| row.pass == pass))
    };
    let mean = |numbers: Vec<f64>| summarise(&numbers).map(|summary| summary.mean);
    let before = mean(chosen().filter_map(|row| row.outlier_before).collect())?;
    let after = mean(chosen().filter_map(|row| row.outlier_after).collect())?;
    let points = [before, after].into_iter().enumerate().map(|(series, value)| Point { value, interval: None, series });
    ((before - after).abs() > 1e-9).then(|| Row::values(name.to_owned(), points.collect(), ""))
}
