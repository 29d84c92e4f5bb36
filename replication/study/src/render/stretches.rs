//! What every arm costs over the stretches of the budget that verdicts rest on, controls as well: cells of the table of arms, and a file.

use std::collections::BTreeSet;

use serde::Serialize;

use super::grid::Cell;
use crate::judge::{Sheet, Sheets};
use crate::layout::Measured;
use crate::measure::Measurements;
use crate::number::Unit;
use crate::statistics::{CONFIDENCE, Interval};
use crate::table::{Number, Table};

/// Extra tokens of an arm over a stretch.
pub(super) fn cell(sheet: Option<&Sheet>, arm: &str, baseline: &str) -> Cell {
    match sheet.and_then(|sheet| sheet.overhead(arm, baseline).ok()).filter(|_| arm != baseline) {
        Some(tokens) => {
            let interval = shares(&tokens).map(|interval| Unit::SignedPercent.interval(&interval));
            Cell::new(Unit::SignedPercent.number(tokens.number.exp_m1())).detail(interval.unwrap_or_default())
        }
        None => Cell::new("–"),
    }
}

/// The interval of a difference in the logarithm of tokens, as shares.
fn shares(tokens: &Measured) -> Option<Interval> {
    tokens.interval(CONFIDENCE).map(|ends| ends.map(f64::exp_m1))
}

/// One line in `data/stretches.csv`.
#[derive(Default, Serialize)]
struct Row<'a> {
    baseline: &'a str,
    arm: &'a str,
    stretch: &'a str,
    seeds: usize,
    overhead: Number,
    overhead_low: Option<Number>,
    overhead_high: Option<Number>,
    gap: Number,
    gap_low: Option<Number>,
    gap_high: Option<Number>,
}

/// Against the baseline of every paper that the second version of the rules judges. An arm without a number has no line.
pub(super) fn table(measurements: &Measurements) -> Table {
    let papers = measurements.study.papers.iter().filter(|paper| paper.judging == 2);
    let baselines: BTreeSet<&str> = papers.map(|paper| paper.baseline.as_str()).collect();
    let sheets: Vec<Sheets> = baselines.into_iter().filter_map(|baseline| Sheets::of(measurements, baseline).ok()).collect();
    let stretches =
        sheets.iter().flat_map(|sheets| sheets.matched.iter().chain([&sheets.late]).map(|sheet| (sheets.baseline.as_str(), sheet)));
    let rows = stretches
        .flat_map(|(baseline, sheet)| sheet.arms().filter(move |arm| *arm != baseline).filter_map(move |arm| row(sheet, arm, baseline)));
    Table::of("stretches.csv", rows)
}

fn row<'a>(sheet: &Sheet, arm: &'a str, baseline: &'a str) -> Option<Row<'a>> {
    let (tokens, nats) = (sheet.overhead(arm, baseline).ok()?, sheet.gap(arm, baseline).ok()?);
    let [of_tokens, of_nats] = [shares(&tokens), nats.interval(CONFIDENCE)];
    Some(Row {
        baseline,
        arm,
        stretch: sheet.stretch.word(),
        seeds: tokens.n,
        overhead: Number(tokens.number.exp_m1()),
        overhead_low: of_tokens.map(|interval| Number(interval.low)),
        overhead_high: of_tokens.map(|interval| Number(interval.high)),
        gap: Number(nats.number),
        gap_low: of_nats.map(|interval| Number(interval.low)),
        gap_high: of_nats.map(|interval| Number(interval.high)),
    })
}
