//! Step and kernel times from interleaved repeats.
//!
//! Repeats of all arms alternate in one process, so a slow moment of the machine hits neighbours in the list alike: ratios are
//! taken within a repeat, and their median is reported with the sign-test interval, which one disturbed repeat cannot move far.

use std::collections::{BTreeMap, BTreeSet};

use contract::measurements::StepTime as StepTimeRecord;

use super::load::KernelTimeRecord;
use crate::statistics::{MedianRatio, median, median_ratio};

/// Step times of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTime {
    pub arm: String,
    pub repeats: usize,
    /// Median seconds of a whole optimizer step.
    pub seconds: f64,
    /// Median seconds of its forward and backward part.
    pub forward_backward_seconds: f64,
}

/// Step times by arm, in the order of the file.
pub fn step_times(records: &[StepTimeRecord]) -> Vec<StepTime> {
    let mut order: Vec<&str> = Vec::new();
    for record in records {
        if !order.contains(&record.arm.as_str()) {
            order.push(&record.arm);
        }
    }
    let of =
        |arm: &str, pick: fn(&StepTimeRecord) -> f64| -> Vec<f64> { records.iter().filter(|record| record.arm == arm).map(pick).collect() };
    order
        .into_iter()
        .filter_map(|arm| {
            let seconds = of(arm, |record| record.seconds);
            Some(StepTime {
                arm: arm.to_owned(),
                repeats: seconds.len(),
                seconds: median(&seconds)?,
                forward_backward_seconds: median(&of(arm, |record| record.forward_backward_seconds))?,
            })
        })
        .collect()
}

/// Seconds of `numerator` over seconds of `denominator` within each repeat: above one when the denominator is faster.
pub fn step_time_ratio(records: &[StepTimeRecord], numerator: &str, denominator: &str) -> Option<MedianRatio> {
    let by_repeat = |arm: &str| -> BTreeMap<u64, f64> {
        records.iter().filter(|record| record.arm == arm).map(|record| (record.repeat, record.seconds)).collect()
    };
    paired(&by_repeat(numerator), &by_repeat(denominator))
}

fn paired(numerator: &BTreeMap<u64, f64>, denominator: &BTreeMap<u64, f64>) -> Option<MedianRatio> {
    let ratios: Vec<f64> = numerator.iter().filter_map(|(repeat, seconds)| Some(seconds / denominator.get(repeat)?)).collect();
    median_ratio(&ratios)
}

/// Throughput of one kernel variant over all linears and passes.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelVariant {
    /// Variant, such as `mxfp4-h16`.
    pub variant: String,
    pub repeats: usize,
    /// Median over repeats of the seconds of all linears and passes together.
    pub seconds: f64,
    /// 2 m n k summed over linears and passes, over `seconds`; operations a second.
    pub operations_per_second: f64,
}

/// Throughputs by variant, in the order of the file. `only` restricts to one linear and pass.
pub fn kernel_variants(records: &[KernelTimeRecord], only: Option<(&str, &str)>) -> Vec<KernelVariant> {
    let mut order: Vec<&str> = Vec::new();
    for record in records {
        if !order.contains(&record.variant.as_str()) {
            order.push(&record.variant);
        }
    }
    order.into_iter().filter_map(|variant| kernel_variant(records, variant, only)).collect()
}

fn kernel_variant(records: &[KernelTimeRecord], variant: &str, only: Option<(&str, &str)>) -> Option<KernelVariant> {
    let totals = kernel_totals(records, variant, only);
    let seconds = median(&totals.values().copied().collect::<Vec<f64>>())?;
    let first = *totals.keys().next()?;
    let operations: f64 = selected(records, variant, only)
        .filter(|record| record.repeat == first)
        .map(|record| 2.0 * record.m as f64 * record.n as f64 * record.k as f64)
        .sum();
    Some(KernelVariant { variant: variant.to_owned(), repeats: totals.len(), seconds, operations_per_second: operations / seconds })
}

fn selected<'a>(
    records: &'a [KernelTimeRecord],
    variant: &'a str,
    only: Option<(&'a str, &'a str)>,
) -> impl Iterator<Item = &'a KernelTimeRecord> {
    records
        .iter()
        .filter(move |record| record.variant == variant && only.is_none_or(|(linear, pass)| record.linear == linear && record.pass == pass))
}

/// Seconds over all linears and passes, by repeat.
fn kernel_totals(records: &[KernelTimeRecord], variant: &str, only: Option<(&str, &str)>) -> BTreeMap<u64, f64> {
    let mut totals = BTreeMap::new();
    for record in selected(records, variant, only) {
        *totals.entry(record.repeat).or_insert(0.0) += record.seconds;
    }
    totals
}

/// Throughput of `numerator` over that of `denominator`: both do the same GEMMs, so seconds of the denominator over those of the
/// numerator within each repeat.
pub fn kernel_throughput_ratio(records: &[KernelTimeRecord], numerator: &str, denominator: &str) -> Option<MedianRatio> {
    paired(&kernel_totals(records, denominator, None), &kernel_totals(records, numerator, None))
}

/// The linears and passes timed, sorted.
pub fn kernel_cells(records: &[KernelTimeRecord]) -> Vec<(String, String)> {
    let cells: BTreeSet<(String, String)> = records.iter().map(|record| (record.linear.clone(), record.pass.clone())).collect();
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Interval;

    fn step(arm: &str, repeat: u64, seconds: f64) -> StepTimeRecord {
        StepTimeRecord { arm: arm.into(), repeat, tokens: None, ranks: None, seconds, forward_backward_seconds: seconds / 2.0 }
    }

    #[test]
    fn one_disturbed_repeat_does_not_move_the_ratio() {
        let mut records = Vec::new();
        for repeat in 1..=15 {
            let disturbed = if repeat == 7 { 10.0 } else { 1.0 };
            records.push(step("slow", repeat, 1.2 * disturbed));
            records.push(step("fast", repeat, 1.0));
        }
        let ratio = step_time_ratio(&records, "slow", "fast").unwrap();
        assert_eq!((ratio.ratio, ratio.n), (1.2, 15));
        assert_eq!(ratio.interval, Some(Interval::new(1.2, 1.2)));
        assert_eq!(step_times(&records)[0].seconds, 1.2);
        assert_eq!(step_time_ratio(&records, "slow", "absent"), None);
    }

    #[test]
    fn throughput_sums_linears_and_passes() {
        let mut records = Vec::new();
        for (variant, factor) in [("a", 1.0), ("b", 2.0)] {
            for (pass, seconds) in [("fprop", 1.0), ("wgrad", 3.0)] {
                for repeat in 1..=6 {
                    let (variant, linear, pass) = (variant.to_owned(), "down".to_owned(), pass.to_owned());
                    records.push(KernelTimeRecord { variant, linear, pass, m: 10, n: 10, k: 10, repeat, seconds: seconds * factor });
                }
            }
        }
        let variants = kernel_variants(&records, None);
        assert_eq!((variants[0].seconds, variants[0].operations_per_second), (4.0, 1000.0));
        assert_eq!(kernel_variants(&records, Some(("down", "wgrad")))[1].seconds, 6.0);
        assert_eq!(kernel_throughput_ratio(&records, "a", "b").unwrap().ratio, 2.0);
    }
}
