//! One figure, and what figures of our runs and of public logs share.

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
