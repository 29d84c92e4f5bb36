//! The CSV files of `data/`. One function a file; the first line names the columns, which these comments explain.
//!
//! `validation`, `tokens_to_target`, `loss_gap` and `quantisation` come from deterministic files only and hold no time and no
//! quantile of a distribution (whose last digit may depend on the system's mathematics library): equal on every CPU.

use contract::measurements::StepTime;

use super::load::{KernelTimeRecord, Run};
use super::quantisation::QuantisationSummary;
use super::target::{Estimator, LossGap, TokensToTarget, token_ratios};
use super::{Measurements, times};
use crate::table::{Table, cell, columns};

/// The tables of our own runs: every one of `data/` but those of public logs and the judge's.
pub fn all(measurements: &Measurements) -> Vec<Table> {
    vec![
        validation(&measurements.runs),
        tokens_to_target(measurements),
        loss_gap(&measurements.loss_gaps),
        quantisation(&measurements.quantisation),
        step_time(&measurements.step_times),
        kernels(&measurements.kernel_times),
    ]
}

/// Every evaluation: `arm, seed, step, tokens` (training tokens seen), `loss` (nats per token).
fn validation(runs: &[Run]) -> Table {
    let rows = runs.iter().filter(|run| run.finished()).flat_map(|run| {
        run.evaluations.iter().map(|evaluation| {
            vec![
                run.arm.clone(),
                run.seed.to_string(),
                evaluation.step.to_string(),
                evaluation.tokens.to_string(),
                evaluation.loss.to_string(),
            ]
        })
    });
    Table { name: "validation.csv", columns: columns(&["arm", "seed", "step", "tokens", "loss"]), rows: rows.collect() }
}

/// One line a run: `reached` and `diverged` as 0 or 1, tokens by both estimators (empty when not reached), `budget_tokens`, and the
/// ratio to the same seed of `baseline` by both estimators; `lower_bound` is 1 when the ratio is budget over baseline.
fn tokens_to_target(measurements: &Measurements) -> Table {
    let names = [
        "arm",
        "seed",
        "reached",
        "diverged",
        "tokens_grid",
        "tokens_interpolated",
        "budget_tokens",
        "baseline",
        "ratio_grid",
        "ratio_interpolated",
        "lower_bound",
    ];
    let rows = measurements.tokens.iter().map(|run| token_row(measurements, run)).collect();
    Table { name: "tokens_to_target.csv", columns: columns(&names), rows }
}

fn token_row(measurements: &Measurements, run: &TokensToTarget) -> Vec<String> {
    let baseline = &measurements.baseline;
    let ratio = |estimator| {
        let ratios = token_ratios(&measurements.tokens, &run.arm, baseline, estimator);
        ratios.pairs.iter().find(|pair| pair.seed == run.seed).copied()
    };
    let (grid, interpolated) = (ratio(Estimator::Grid), ratio(Estimator::Interpolated));
    let flag = |value: bool| u8::from(value).to_string();
    vec![
        run.arm.clone(),
        run.seed.to_string(),
        flag(run.crossing.is_some()),
        flag(run.diverged),
        cell(run.crossing.map(|crossing| crossing.grid)),
        cell(run.crossing.map(|crossing| crossing.interpolated)),
        run.budget_tokens.to_string(),
        baseline.clone(),
        cell(grid.map(|pair| pair.ratio)),
        cell(interpolated.map(|pair| pair.ratio)),
        flag(grid.is_some_and(|pair| pair.lower_bound)),
    ]
}

/// Validation loss of an arm minus that of a baseline with the same seed, nats: at the last evaluation, and as the mean over the
/// last quarter of the budget. Empty when a run diverged before.
fn loss_gap(gaps: &[LossGap]) -> Table {
    let rows =
        gaps.iter().map(|gap| vec![gap.arm.clone(), gap.baseline.clone(), gap.seed.to_string(), cell(gap.last), cell(gap.last_quarter)]);
    Table { name: "loss_gap.csv", columns: columns(&["arm", "baseline", "seed", "last", "last_quarter"]), rows: rows.collect() }
}

/// Averages over seeds, layers and logged steps; the columns are those of docs/files.md's quantisation line.
fn quantisation(summaries: &[QuantisationSummary]) -> Table {
    let names = [
        "arm",
        "linear",
        "pass",
        "operand",
        "format",
        "records",
        "relative_error",
        "bias",
        "magnitude_bias",
        "cosine",
        "amax_over_rms_before",
        "amax_over_rms_after",
        "outlier_amax_over_rms_before",
        "outlier_amax_over_rms_after",
    ];
    let rows = summaries.iter().map(|row| {
        let mut cells =
            vec![row.arm.clone(), row.linear.clone(), row.pass.clone(), row.operand.clone(), row.format.clone(), row.records.to_string()];
        let numbers = [
            row.relative_error,
            row.bias,
            row.magnitude_bias,
            row.cosine,
            row.amax_over_rms_before,
            row.amax_over_rms_after,
            row.outlier_before,
            row.outlier_after,
        ];
        cells.extend(numbers.map(cell));
        cells
    });
    Table { name: "quantisation.csv", columns: columns(&names), rows: rows.collect() }
}

/// One line a repeat: `seconds` of a whole step and of its forward and backward part.
fn step_time(records: &[StepTime]) -> Table {
    let rows = records.iter().map(|record| {
        vec![record.arm.clone(), record.repeat.to_string(), record.seconds.to_string(), record.forward_backward_seconds.to_string()]
    });
    Table { name: "step_time.csv", columns: columns(&["arm", "repeat", "seconds", "forward_backward_seconds"]), rows: rows.collect() }
}

/// One line for each variant, linear and pass: median `seconds` over `repeats`, and `operations_per_second` (2 m n k over seconds).
fn kernels(records: &[KernelTimeRecord]) -> Table {
    let mut rows = Vec::new();
    for (linear, pass) in times::kernel_cells(records) {
        for variant in times::kernel_variants(records, Some((&linear, &pass))) {
            let shape = records.iter().find(|record| record.variant == variant.variant && record.linear == linear && record.pass == pass);
            let size = |pick: fn(&KernelTimeRecord) -> u64| shape.map(|record| pick(record).to_string()).unwrap_or_default();
            rows.push(vec![
                variant.variant,
                linear.clone(),
                pass.clone(),
                size(|record| record.m),
                size(|record| record.n),
                size(|record| record.k),
                variant.repeats.to_string(),
                variant.seconds.to_string(),
                variant.operations_per_second.to_string(),
            ]);
        }
    }
    let names = ["variant", "linear", "pass", "m", "n", "k", "repeats", "seconds", "operations_per_second"];
    Table { name: "kernels.csv", columns: columns(&names), rows }
}
