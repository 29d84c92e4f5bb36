//! The table of arms as text, for a recipe that is tried: its row beside the others, and what so many runs can tell apart.

use std::path::Path;

use super::grid::Cell;
use super::run_tables;
use crate::measure::{MeasureError, measure};
use crate::number::{self, Unit};

/// The report's table of arms, of those with runs; then the power.
///
/// # Errors
/// When the directory cannot be measured.
pub fn tried(directory: &Path) -> Result<String, MeasureError> {
    let measurements = measure(directory)?;
    let (grid, _) = run_tables::arms(&measurements);
    let mut rows: Vec<Vec<String>> = vec![grid.columns.iter().map(|column| column.title.to_lowercase()).collect()];
    let whole = |cell: &Cell| format!("{} {}", cell.text, cell.detail).trim().to_owned();
    for row in grid.rows.iter().filter(|row| !measurements.outcomes(&row.key).is_empty()) {
        let [_, reached, tokens, rest @ ..] = row.cells.as_slice() else { continue };
        let first = [row.key.clone(), reached.text.clone(), tokens.text.clone()];
        rows.push(first.into_iter().chain(rest.iter().map(whole)).collect());
    }
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..grid.columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
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
