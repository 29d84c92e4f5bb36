//! The table of arms as text, for a recipe that is tried: its row beside the others, and what so many runs can tell apart.

use std::path::Path;

use super::grid::Cell;
use super::run_tables;
use crate::measure::{MeasureError, measure};
use crate::number::{self, Unit};

/// Arms with runs, in the order of the report: seeds that reached the target, tokens, extra tokens with the interval from the arm's own seeds and
/// with the one from all arms' scatter, loss gap; then the power.
///
/// # Errors
/// When the directory cannot be measured.
pub fn tried(directory: &Path) -> Result<String, MeasureError> {
    let measurements = measure(directory)?;
    let mut rows: Vec<[String; 6]> =
        vec![["arm", "reached", "tokens to target", "against the baseline", "with all arms' noise", "loss gap, nat"].map(str::to_owned)];
    let whole = |cell: Option<&Cell>| cell.map(|cell| format!("{} {}", cell.text, cell.detail).trim().to_owned()).unwrap_or_default();
    let text = |cell: Option<&Cell>| cell.map(|cell| cell.text.clone()).unwrap_or_default();
    let grid = run_tables::arms(&measurements);
    for row in grid.rows.iter().filter(|row| !measurements.outcomes(&row.key).is_empty()) {
        let cell = |index: usize| row.cells.get(index);
        rows.push([row.key.clone(), text(cell(1)), text(cell(2)), whole(cell(3)), whole(cell(4)), whole(cell(6))]);
    }
    let widths = [0, 1, 2, 3, 4, 5].map(|column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let power = measurements.noise().map_or_else(
        || "power: two seeds an arm and a baseline that reaches the target are needed to know it; more with --seeds\n".to_owned(),
        |noise| {
            let seeds = |share: f64| number::fixed(noise.seeds_for(share), 0);
            format!(
                "power: {} seeds an arm tell {} extra tokens from none in four of five tries; intervals of ±2 % need about {} seeds, of ±1 % {}\n",
                noise.seeds,
                Unit::SignedPercent.number(noise.detectable()),
                seeds(0.02),
                seeds(0.01)
            )
        },
    );
    Ok(rows.iter().map(line).collect::<String>() + &power)
}
