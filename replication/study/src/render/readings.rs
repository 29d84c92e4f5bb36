//! Where each arm's gap sits: what training in MXFP4 did to the weights, and what reading them in MXFP4 costs.

use serde::Serialize;

use super::charts::{Curve, CurveChart};
use super::costs;
use super::dots::Reported;
use super::figure::{Figure, curve_figure, label, token_scale};
use super::grid::{Cell, Grid, numbers, words};
use crate::layout::Measured;
use crate::measure::Measurements;
use crate::measure::curves::Stretch;
use crate::measure::readings::Parts;
use crate::measure::study::is_full;
use crate::number::{self, SPACE, Unit};
use crate::statistics::CONFIDENCE;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Section {
    /// What the numbers below say.
    pub sentence: String,
    pub parts: Grid,
}

/// None where a campaign has no readings, or they reach neither stretch.
pub(super) fn section(measurements: &Measurements) -> Option<Section> {
    let parts = grid(measurements);
    (!parts.rows.is_empty()).then(|| Section { sentence: sentence(measurements), parts })
}

fn grid(measurements: &Measurements) -> Grid {
    let baseline = measurements.study.label(&measurements.baseline);
    let columns = vec![
        words("Arm", 0.14),
        numbers("Gap", 0.20),
        numbers("Of it training", 0.19),
        numbers("Of it reading", 0.18),
        numbers("Share of reading", 0.11),
        numbers(&format!("{baseline}’s weights read so"), 0.18),
    ];
    let caption = format!(
        "Loss above {baseline} in thousandths of a nat, with 95 % intervals: the gap, its two parts, and what the arm’s forward pass adds to the loss of weights that {baseline} trained"
    );
    let mut grid = Grid::new("readings", &caption, columns).stacking();
    for stretch in [Stretch::LastQuarter, Stretch::Matched] {
        let rows = ordered(measurements, stretch);
        let Some(first) = rows.first() else { continue };
        grid.heading(&heading(measurements, stretch, &first.tokens));
        for parts in rows {
            let share = parts.share().map_or("–".to_owned(), |share| format!("{}{SPACE}%", number::fixed(100.0 * share, 0)));
            let cells = vec![
                Cell::new(measurements.study.label(&parts.arm)),
                cell(&parts.gap),
                cell(&parts.training),
                cell(&parts.reading),
                Cell::new(share),
                parts.untrained.as_ref().map_or(Cell::new("–"), |(_, measured)| cell(measured)),
            ];
            grid.row(&format!("{}-{}", stretch.word().replace(' ', "-"), parts.arm), cells);
        }
    }
    grid
}

/// `At the paper’s depth: the mean of 3 readings, 59 to 79 million tokens`.
fn heading(measurements: &Measurements, stretch: Stretch, tokens: &[u64]) -> String {
    let (scale, unit) = token_scale(measurements);
    let at = |tokens: Option<&u64>| number::fixed(tokens.map_or(0.0, |tokens| *tokens as f64 / scale), 0);
    let unit = unit.rsplit(' ').next().unwrap_or_default().trim_end_matches('s');
    let readings = if tokens.len() == 1 { "one reading".to_owned() } else { format!("the mean of {} readings", tokens.len()) };
    let word = match stretch {
        Stretch::Matched => "At the paper’s depth",
        Stretch::LastQuarter => "Over the last quarter of the budget",
    };
    format!("{word}: {readings}, {} to {} {unit} tokens", at(tokens.first()), at(tokens.last()))
}

/// In the order of the profile's arms.
fn ordered(measurements: &Measurements, stretch: Stretch) -> Vec<&Parts> {
    let of = |arm| measurements.readings().iter().find(|parts| parts.over == Some(stretch) && parts.arm == arm);
    measurements.study.arms().into_iter().filter_map(of).collect()
}

fn cell(measured: &Measured) -> Cell {
    let thousandths = |value: f64| number::signed(1000.0 * value, 1);
    let interval = measured.interval(CONFIDENCE);
    let interval = interval.map(|interval| format!("[{}, {}]", thousandths(interval.low), thousandths(interval.high)));
    Cell::new(thousandths(measured.number)).detail(interval.unwrap_or_default())
}

/// The range of reading's share over arms with a gap, and how much less the arms' own weights lose than the baseline's do.
fn sentence(measurements: &Measurements) -> String {
    let study = &measurements.study;
    let baseline = study.label(&measurements.baseline);
    let rows = ordered(measurements, Stretch::LastQuarter);
    let mut shares: Vec<(f64, &Parts)> = rows.iter().filter_map(|parts| Some((parts.share()?, *parts))).collect();
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some((least, first)), Some((most, last))) = (shares.first(), shares.last()) else {
        return format!("No arm’s gap to {baseline} is told from zero over the last quarter of the budget, so none has parts to compare.");
    };
    let share = |value: f64| Unit::Percent.number(value);
    let range = match shares.len() {
        1 => format!("{} of the gap of {} is reading", share(*least), study.label(&first.arm)),
        arms => format!(
            "reading is {} ({}) to {} ({}) of the gap, for the {arms} arms whose gap is told from zero",
            share(*least),
            study.label(&first.arm),
            share(*most),
            study.label(&last.arm)
        ),
    };
    format!("Over the last quarter of the budget, {range}; what is left is in the weights.{}", adaptation(baseline, &shares))
}

/// How many times as much the baseline's weights lose as the arms' own through the same forward passes, where both lose something.
fn adaptation(baseline: &str, shares: &[(f64, &Parts)]) -> String {
    let above_zero = |measured: &Measured| measured.interval(CONFIDENCE).is_some_and(|interval| interval.low > 0.0);
    let ratio = |(_, parts): &(f64, &Parts)| {
        let (_, untrained) = parts.untrained.as_ref()?;
        (above_zero(untrained) && above_zero(&parts.reading)).then(|| untrained.number / parts.reading.number)
    };
    let ratios: Vec<f64> = shares.iter().filter_map(ratio).collect();
    if ratios.is_empty() {
        return String::new();
    }
    let end = |start: f64, pick: fn(f64, f64) -> f64| number::fixed(ratios.iter().copied().fold(start, pick), 1);
    let (least, most) = (end(f64::INFINITY, f64::min), end(f64::NEG_INFINITY, f64::max));
    let times = if least == most { least } else { format!("{least} to {most}") };
    let through =
        format!(" Through the same forward passes {baseline}’s weights, which were not trained for them, lose {times} times as much");
    through + " as the reading part of the arms’ gaps."
}

/// Both parts against tokens, on one scale, for the arms of the paper's table that quantise all three products.
pub(super) fn figures(measurements: &Measurements) -> Vec<Figure> {
    let Some(paper) = measurements.study.papers.first() else { return Vec::new() };
    let full = |arm: &str| measurements.study.recipes.get(arm).is_some_and(is_full);
    let arms: Vec<&str> = costs::arms(measurements, paper).into_iter().map(|(arm, _)| arm).filter(|arm| full(arm)).collect();
    let training = chart(measurements, &arms, "What training did to the weights", |parts| parts.training.number);
    let reading = chart(measurements, &arms, "What reading them costs", |parts| parts.reading.number);
    let (Some(mut training), Some(mut reading)) = (training, reading) else { return Vec::new() };
    let y = (training.y.0.min(reading.y.0), training.y.1.max(reading.y.1));
    (training.y, reading.y) = (y, y);
    let baseline = measurements.study.label(&measurements.baseline);
    let caption = format!("The arm’s weights above {baseline}’s, both read in BF16");
    let rest = "The rest of the gap: what the arm’s own forward pass adds, on the same scale";
    vec![
        curve_figure("readings-training", &caption, &training, "readings-training.csv"),
        curve_figure("readings-reading", rest, &reading, "readings-reading.csv"),
    ]
}

fn chart(measurements: &Measurements, arms: &[&str], title: &str, part: fn(&Parts) -> f64) -> Option<CurveChart> {
    let (scale, x) = token_scale(measurements);
    let single = || measurements.readings().iter().filter(|parts| parts.over.is_none());
    let at = |parts: &Parts| parts.tokens[0] as f64 / scale;
    let last = single().map(at).fold(0.0, f64::max);
    let curve = |arm: &&str| {
        let late = single().filter(|parts| parts.arm == **arm && at(parts) >= costs::FROM * last);
        let mean = late.map(|parts| (at(parts), 1000.0 * part(parts))).filter(|point| point.1.is_finite()).collect();
        (Curve { label: label(&measurements.study, arm), mean, seeds: Vec::new() }, Reported::Nothing)
    };
    let y = format!("above {}, thousandths of a nat", measurements.study.label(&measurements.baseline));
    costs::chart(title, (x, &y), false, arms.iter().map(curve).collect())
}
