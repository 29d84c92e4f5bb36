//! The CSV files of `data/`. One row type and one function a file.
//!
//! `validation`, `tokens_to_target`, `loss_gap` and `quantisation` come from deterministic files only and hold no time and no
//! quantile of a distribution (whose last digit may depend on the system's mathematics library): equal on every CPU.

use contract::measurements::StepTime;
use serde::Serialize;

use super::load::{KernelTimeRecord, Run};
use super::quantisation::QuantisationSummary;
use super::target::{Estimator, LossGap, TokensToTarget, token_ratios};
use super::{Measurements, times};
use crate::table::{Flag, Number, Table};

/// The tables of our own runs: every one of `data/` but those of public logs and the judge's.
pub fn all(measurements: &Measurements) -> Vec<Table> {
    vec![
        validation(&measurements.runs),
        Table::of("tokens_to_target.csv", measurements.tokens.iter().map(|run| token_row(measurements, run))),
        loss_gap(&measurements.loss_gaps),
        quantisation(&measurements.quantisation),
        step_time(&measurements.step_times),
        kernels(&measurements.kernel_times),
    ]
}

/// One evaluation.
#[derive(Default, Serialize)]
struct ValidationRow<'a> {
    arm: &'a str,
    seed: u64,
    step: u64,
    /// Training tokens seen.
    tokens: u64,
    /// Nats per token.
    loss: Number,
}

fn validation(runs: &[Run]) -> Table {
    let rows = runs.iter().filter(|run| run.finished()).flat_map(|run| {
        run.evaluations.iter().map(|evaluation| ValidationRow {
            arm: &run.arm,
            seed: run.seed,
            step: evaluation.step,
            tokens: evaluation.tokens,
            loss: Number(evaluation.loss),
        })
    });
    Table::of("validation.csv", rows)
}

/// One run. Tokens are empty when the target was not reached; ratios are to the same seed of `baseline`.
#[derive(Default, Serialize)]
struct TokenRow<'a> {
    arm: &'a str,
    seed: u64,
    reached: Flag,
    diverged: Flag,
    tokens_grid: Option<Number>,
    tokens_interpolated: Option<Number>,
    budget_tokens: Number,
    baseline: &'a str,
    ratio_grid: Option<Number>,
    ratio_interpolated: Option<Number>,
    /// The ratio is budget over baseline.
    lower_bound: Flag,
}

fn token_row<'a>(measurements: &'a Measurements, run: &'a TokensToTarget) -> TokenRow<'a> {
    let baseline = &measurements.baseline;
    let ratio = |estimator| {
        let ratios = token_ratios(&measurements.tokens, &run.arm, baseline, estimator);
        ratios.pairs.iter().find(|pair| pair.seed == run.seed).copied()
    };
    let (grid, interpolated) = (ratio(Estimator::Grid), ratio(Estimator::Interpolated));
    TokenRow {
        arm: &run.arm,
        seed: run.seed,
        reached: Flag(run.crossing.is_some()),
        diverged: Flag(run.diverged),
        tokens_grid: run.crossing.map(|crossing| Number(crossing.grid)),
        tokens_interpolated: run.crossing.map(|crossing| Number(crossing.interpolated)),
        budget_tokens: Number(run.budget_tokens),
        baseline,
        ratio_grid: grid.map(|pair| Number(pair.ratio)),
        ratio_interpolated: interpolated.map(|pair| Number(pair.ratio)),
        lower_bound: Flag(grid.is_some_and(|pair| pair.lower_bound)),
    }
}

/// Validation loss of an arm minus that of a baseline with the same seed, nats. Empty when a run diverged before.
#[derive(Default, Serialize)]
struct LossGapRow<'a> {
    arm: &'a str,
    baseline: &'a str,
    seed: u64,
    /// At the last evaluation.
    last: Option<Number>,
    /// Mean over the last quarter of the budget.
    last_quarter: Option<Number>,
}

fn loss_gap(gaps: &[LossGap]) -> Table {
    let row = |gap| {
        let LossGap { arm, baseline, seed, last, last_quarter }: &LossGap = gap;
        LossGapRow { arm, baseline, seed: *seed, last: last.map(Number), last_quarter: last_quarter.map(Number) }
    };
    Table::of("loss_gap.csv", gaps.iter().map(row))
}

/// Averages over seeds, layers and logged steps; the columns are those of docs/files.md's quantisation line.
#[derive(Default, Serialize)]
struct QuantisationRow<'a> {
    arm: &'a str,
    linear: &'a str,
    pass: &'a str,
    operand: &'a str,
    format: &'a str,
    records: usize,
    relative_error: Option<Number>,
    bias: Option<Number>,
    magnitude_bias: Option<Number>,
    cosine: Option<Number>,
    amax_over_rms_before: Option<Number>,
    amax_over_rms_after: Option<Number>,
    outlier_amax_over_rms_before: Option<Number>,
    outlier_amax_over_rms_after: Option<Number>,
}

fn quantisation(summaries: &[QuantisationSummary]) -> Table {
    let rows = summaries.iter().map(|row| QuantisationRow {
        arm: &row.arm,
        linear: &row.linear,
        pass: &row.pass,
        operand: &row.operand,
        format: &row.format,
        records: row.records,
        relative_error: row.relative_error.map(Number),
        bias: row.bias.map(Number),
        magnitude_bias: row.magnitude_bias.map(Number),
        cosine: row.cosine.map(Number),
        amax_over_rms_before: row.amax_over_rms_before.map(Number),
        amax_over_rms_after: row.amax_over_rms_after.map(Number),
        outlier_amax_over_rms_before: row.outlier_before.map(Number),
        outlier_amax_over_rms_after: row.outlier_after.map(Number),
    });
    Table::of("quantisation.csv", rows)
}

/// One repeat: seconds of a whole step and of its forward and backward part.
#[derive(Default, Serialize)]
struct StepTimeRow<'a> {
    arm: &'a str,
    repeat: u64,
    seconds: Number,
    forward_backward_seconds: Number,
}

fn step_time(records: &[StepTime]) -> Table {
    let rows = records.iter().map(|record| StepTimeRow {
        arm: &record.arm,
        repeat: record.repeat,
        seconds: Number(record.seconds),
        forward_backward_seconds: Number(record.forward_backward_seconds),
    });
    Table::of("step_time.csv", rows)
}

/// A variant at one linear and pass.
#[derive(Default, Serialize)]
struct KernelRow {
    variant: String,
    linear: String,
    pass: String,
    m: Option<u64>,
    n: Option<u64>,
    k: Option<u64>,
    repeats: usize,
    /// Median over the repeats.
    seconds: Number,
    /// 2 m n k over seconds.
    operations_per_second: Number,
}

fn kernels(records: &[KernelTimeRecord]) -> Table {
    let mut rows = Vec::new();
    for (linear, pass) in times::kernel_cells(records) {
        for variant in times::kernel_variants(records, Some((&linear, &pass))) {
            let shape = records.iter().find(|record| record.variant == variant.variant && record.linear == linear && record.pass == pass);
            rows.push(KernelRow {
                variant: variant.variant,
                linear: linear.clone(),
                pass: pass.clone(),
                m: shape.map(|record| record.m),
                n: shape.map(|record| record.n),
                k: shape.map(|record| record.k),
                repeats: variant.repeats,
                seconds: Number(variant.seconds),
                operations_per_second: Number(variant.operations_per_second),
            });
        }
    }
    Table::of("kernels.csv", rows)
}
