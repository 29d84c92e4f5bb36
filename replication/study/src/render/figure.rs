//! One figure, and what figures of our runs and of public logs share.

use super::charts::CurveChart;
use super::dots::DotChart;
use super::pgf::{self, CurveColumns};
use crate::measure::Measurements;
use crate::measure::study::Study;
use crate::statistics::summarise;
use crate::table::Table;

/// A figure in every form.
#[derive(Debug, Clone)]
pub(super) struct Figure {
    /// Name: file name without extension.
    pub id: &'static str,
    /// Caption, without numbers of its own.
    pub caption: String,
    pub inline: String,
    /// As a file of its own.
    pub standalone: String,
    pub pgf: String,
    /// The CSV that the picture reads.
    pub data: Table,
}

/// Mean over seeds at the tokens that every seed has.
pub(super) fn mean_curve(seeds: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let Some(first) = seeds.first() else { return Vec::new() };
    first
        .iter()
        .filter_map(|(tokens, _)| {
            let losses: Option<Vec<f64>> =
                seeds.iter().map(|seed| seed.iter().find(|point| point.0 == *tokens).map(|point| point.1)).collect();
            summarise(&losses?).map(|summary| (*tokens, summary.mean))
        })
        .collect()
}

pub(super) fn curve_figure(id: &'static str, caption: &str, chart: &CurveChart, file: &'static str) -> Figure {
    let columns = CurveColumns { x: "tokens", runs: false };
    let (svg, data) = (chart.draw(), pgf::curve_table(file, chart, columns));
    let pgf = pgf::curves(chart, file, columns);
    Figure { id, caption: caption.to_owned(), inline: svg.inline(), standalone: svg.standalone(), pgf, data }
}

pub(super) fn dot_figure(id: &'static str, caption: &str, chart: &DotChart, file: &'static str) -> Figure {
    let (svg, data) = (chart.draw(), pgf::dot_table(file, chart));
    Figure { id, caption: caption.to_owned(), inline: svg.inline(), standalone: svg.standalone(), pgf: pgf::dots(chart, file), data }
}

/// An arm's label, cut where it would leave its place in a figure.
pub(super) fn label(study: &Study, arm: &str) -> String {
    cut(study.label(arm))
}

/// What has room in a legend.
pub(super) fn cut(label: &str) -> String {
    const LONGEST: usize = 22;
    if label.chars().count() <= LONGEST {
        return label.to_owned();
    }
    label.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// Divisor and name of the token axis.
pub(super) fn token_scale(measurements: &Measurements) -> (f64, &'static str) {
    let last = measurements.runs.iter().flat_map(|run| run.evaluations.last()).map(|evaluation| evaluation.tokens).max().unwrap_or(0);
    if last >= 5_000_000 { (1e6, "training tokens, millions") } else { (1e3, "training tokens, thousands") }
}
