//! Quantisation errors and outlier ratios, averaged from the records of the runs.
//!
//! Only averages: what an outlier is was decided by the trainer (docs/files.md: the tenth of blocks with the highest amax over rms,
//! chosen before rotation and again after it, so that the two sides are chosen alike).

use std::collections::{BTreeMap, BTreeSet};

use contract::metrics::Quantisation;
use contract::recipe::Format;

use super::load::Run;

/// Averages of one operand of one GEMM in one arm, over seeds, layers and steps.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantisationSummary {
    pub arm: String,
    /// `qkv`, `attention_output`, `gate_up` or `down`.
    pub linear: String,
    /// `fprop`, `dgrad` or `wgrad`.
    pub pass: String,
    /// `input`, `weight` or `output_gradient`.
    pub operand: String,
    pub format: String,
    pub records: usize,
    /// Norm of the error over norm of the operand.
    pub relative_error: Option<f64>,
    /// Mean error over mean magnitude.
    pub bias: Option<f64>,
    /// Mean error towards larger magnitude over mean magnitude: below zero when quantising shrinks.
    pub magnitude_bias: Option<f64>,
    /// Cosine of the angle between operand and its quantised form.
    pub cosine: Option<f64>,
    /// Block maximum over block root mean square, before rotation.
    pub amax_over_rms_before: Option<f64>,
    /// The same after rotation.
    pub amax_over_rms_after: Option<f64>,
    /// The same over the outlier blocks before rotation.
    pub outlier_before: Option<f64>,
    /// The same over the outlier blocks after rotation, which need not be the same ones.
    pub outlier_after: Option<f64>,
}

type Key = (String, String, String, String, String);

/// Averages by arm, linear, pass and operand, sorted.
pub fn quantisation(runs: &[Run]) -> Vec<QuantisationSummary> {
    let mut groups: BTreeMap<Key, Vec<&Quantisation>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.finished()) {
        for record in &run.quantisation {
            let Quantisation { linear, pass, operand, format, .. } = record;
            let key = (run.arm.clone(), linear.to_string(), pass.to_string(), operand.to_string(), format.word().to_owned());
            groups.entry(key).or_default().push(record);
        }
    }
    groups.into_iter().map(|(key, records)| summary(key, &records)).collect()
}

fn summary((arm, linear, pass, operand, format): Key, records: &[&Quantisation]) -> QuantisationSummary {
    QuantisationSummary {
        arm,
        linear,
        pass,
        operand,
        format,
        records: records.len(),
        relative_error: average(records, |record| record.relative_error),
        bias: average(records, |record| record.bias),
        magnitude_bias: average(records, |record| record.magnitude_bias),
        cosine: average(records, |record| record.cosine),
        amax_over_rms_before: average(records, |record| record.amax_over_rms_before),
        amax_over_rms_after: average(records, |record| record.amax_over_rms_after),
        outlier_before: average(records, |record| record.outlier_amax_over_rms_before),
        outlier_after: average(records, |record| record.outlier_amax_over_rms_after),
    }
}

/// Mean of the records that have the value; none when none has.
fn average(records: &[&Quantisation], pick: fn(&Quantisation) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = records.iter().filter_map(|record| pick(record)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Passes and operands in E2M1 that an arm's runs logged, sorted.
pub fn outlier_operands(runs: &[Run], arm: &str) -> Vec<(String, String)> {
    let records = runs.iter().filter(|run| run.arm == arm && run.finished()).flat_map(|run| &run.quantisation);
    let records = records.filter(|record| record.format == Format::E2m1 && record.outlier_amax_over_rms_after.is_some());
    let all: BTreeSet<_> = records.map(|record| (record.pass.to_string(), record.operand.to_string())).collect();
    all.into_iter().collect()
}

/// Outlier amax over rms after rotation over the same before, one value a seed: mean after over mean before, over all E2M1
/// operands (or one pass and operand), layers and logged steps of that run.
pub fn outlier_ratios(runs: &[Run], arm: &str, only: Option<(&str, &str)>) -> Vec<f64> {
    let runs = runs.iter().filter(|run| run.arm == arm && run.finished());
    let chosen = |record: &&Quantisation| {
        record.format == Format::E2m1 && only.is_none_or(|(pass, operand)| record.pass == pass && record.operand == operand)
    };
    runs.filter_map(|run| {
        let records: Vec<&Quantisation> = run.quantisation.iter().filter(chosen).collect();
        let after = average(&records, |record| record.outlier_amax_over_rms_after)?;
        Some(after / average(&records, |record| record.outlier_amax_over_rms_before)?)
    })
    .collect()
}
