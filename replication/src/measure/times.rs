//! Step and kernel times from interleaved repeats.
//!
//! Repeats of all arms alternate in one process, so a slow moment of the machine hits neighbours in the list alike: ratios are
//! taken within a repeat, and their median is reported with the sign-test interval, which one disturbed repeat cannot move far.

use std::collections::{BTreeMap, BTreeSet};

use super::load::{KernelTimeRecord, StepTimeRecord};
use super::statistics::{CONFIDENCE, Interval, median};

/// Median of ratios taken within repeats, with a distribution-free 95 % interval.
#[derive(Debug, Clone, PartialEq)]
pub struct MedianRatio {
    /// Median of the per-repeat ratios.
    pub ratio: f64,
    /// Sign-test interval; none below six repeats, where no order statistics reach 95 %.
    pub interval: Option<Interval>,
    pub n: usize,
}

/// Median and sign-test interval of `ratios`; none when there are none.
pub fn median_ratio(ratios: &[f64]) -> Option<MedianRatio> {
    let ratio = median(ratios)?;
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let interval = sign_test_rank(sorted.len()).map(|rank| Interval::new(sorted[rank], sorted[sorted.len() - 1 - rank]));
    Some(MedianRatio { ratio, interval, n: sorted.len() })
}

/// Largest zero-based rank r such that the r-th smallest and r-th largest of n values cover the median with 95 %:
/// the chance that a Binomial(n, 1/2) is at most r may not pass 2.5 %.
fn sign_test_rank(n: usize) -> Option<usize> {
    let mut term = 0.5f64.powi(i32::try_from(n).ok()?);
    let mut below = term;
    let mut rank = None;
    for r in 0..n / 2 {
        if below > (1.0 - CONFIDENCE) / 2.0 {
            break;
        }
        rank = Some(r);
        term *= (n - r) as f64 / (r + 1) as f64;
        below += term;
    }
    rank
}

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

    /// Ranks from the published table of sign-test intervals (the d of n = 6, 15, 20, 25, one less as zero-based).
    #[test]
    fn sign_test_ranks_match_the_published_table() {
        for (n, rank) in [(5, None), (6, Some(0)), (9, Some(1)), (15, Some(3)), (20, Some(5)), (25, Some(7))] {
            assert_eq!(sign_test_rank(n), rank, "{n}");
        }
    }

    fn step(arm: &str, repeat: u64, seconds: f64) -> StepTimeRecord {
        let (schema, kind) = ("mxfp4-step-time/1".into(), "step_time".into());
        StepTimeRecord { schema, kind, arm: arm.into(), repeat, tokens: None, seconds, forward_backward_seconds: seconds / 2.0 }
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
                    let schema = "mxfp4-kernel-time/1".to_owned();
                    let (variant, linear, pass) = (variant.to_owned(), "down".to_owned(), pass.to_owned());
                    records.push(KernelTimeRecord {
                        schema,
                        variant,
                        linear,
                        pass,
                        m: 10,
                        n: 10,
                        k: 10,
                        repeat,
                        seconds: seconds * factor,
                    });
                }
            }
        }
        let variants = kernel_variants(&records, None);
        assert_eq!((variants[0].seconds, variants[0].operations_per_second), (4.0, 1000.0));
        assert_eq!(kernel_variants(&records, Some(("down", "wgrad")))[1].seconds, 6.0);
        assert_eq!(kernel_throughput_ratio(&records, "a", "b").unwrap().ratio, 2.0);
    }
}
