//! Means, standard deviations and 95 % intervals of small samples: the only statistics that a verdict may use.
//!
//! Not a statistics library. Everything here treats its input as independent repeats of one quantity (seeds, or interleaved
//! timing repeats); pairing is done by the caller, who hands over differences or ratios.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::draws::Draws;

/// The confidence level of every interval that this crate prints.
pub const CONFIDENCE: f64 = 0.95;
/// The confidence level of the interval that must lie inside a range for two one-sided tests at 5 % to say that the number does.
pub const EQUIVALENCE: f64 = 0.90;

/// A closed interval, low end first. An end may be infinite when the data do not bound it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The interval from `low` to `high`.
    pub fn new(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// The interval on another scale: `to` rises.
    pub fn map(self, to: impl Fn(f64) -> f64) -> Self {
        Self { low: to(self.low), high: to(self.high) }
    }

    /// Whether every point of `self` lies in `outer`.
    pub fn inside(&self, outer: &Interval) -> bool {
        self.low >= outer.low && self.high <= outer.high
    }

    /// Whether `self` and `other` share no point.
    pub fn disjoint(&self, other: &Interval) -> bool {
        self.high < other.low || self.low > other.high
    }

    /// The interval moved by `by`.
    pub fn shifted(&self, by: f64) -> Self {
        Self { low: self.low + by, high: self.high + by }
    }
}

/// Mean, spread and interval of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub n: usize,
    pub mean: f64,
    /// Sample standard deviation (divisor n - 1); none for one value.
    pub sd: Option<f64>,
    /// 95 % Student-t interval of the mean; none for one value.
    pub interval: Option<Interval>,
}

/// Summary of `values`, or none when there are no values.
pub fn summarise(values: &[f64]) -> Option<Summary> {
    if values.is_empty() {
        return None;
    }
    let n = values.len();
    let mean = mean(values);
    let sd = (n > 1).then(|| covariance(values, values).sqrt());
    let interval = sd.and_then(|sd| {
        let half = t_quantile(n - 1)? * sd / (n as f64).sqrt();
        Some(Interval::new(mean - half, mean + half))
    });
    Some(Summary { n, mean, sd, interval })
}

/// Arithmetic mean; 0 for an empty slice, which callers rule out.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Sample covariance (divisor n - 1) of two equally long slices.
fn covariance(left: &[f64], right: &[f64]) -> f64 {
    let (left_mean, right_mean) = (mean(left), mean(right));
    let sum: f64 = left.iter().zip(right).map(|(l, r)| (l - left_mean) * (r - right_mean)).sum();
    sum / (left.len().saturating_sub(1)).max(1) as f64
}

/// The two-sided 95 % quantile of Student's t with `freedom` degrees of freedom; none for zero degrees.
pub fn t_quantile(freedom: usize) -> Option<f64> {
    t_quantile_real(freedom as f64)
}

/// The same where the degrees of freedom are no whole number, as Welch's are not.
fn t_quantile_real(freedom: f64) -> Option<f64> {
    t_quantile_at(freedom, CONFIDENCE)
}

/// The two-sided quantile at any level.
pub fn t_quantile_at(freedom: f64, confidence: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(distribution.inverse_cdf(0.5 + confidence / 2.0))
}

/// The chance that Student's t is above `t`.
pub fn t_above(t: f64, freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.cdf(-t))
}

/// The middle value, or the mean of the two middle values; none for an empty slice.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted.get(middle).copied()
    } else {
        Some((sorted.get(middle.checked_sub(1)?)? + sorted.get(middle)?) / 2.0)
    }
}

/// MLPerf Training's score: the mean after dropping one fastest and one slowest run. None below three values, where nothing is left.
pub fn olympic_mean(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(mean(&sorted[1..sorted.len() - 1]))
}

/// Ratio of the means of two paired samples with Fieller's 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanRatio {
    /// mean(numerator) / mean(denominator).
    pub ratio: f64,
    /// Fieller's interval; none for one pair, or when the denominator's mean is not distinguishable from zero (the set is then unbounded).
    pub interval: Option<Interval>,
    pub n: usize,
}

/// Fieller's theorem: all R for which mean(a - R b) is within its own 95 % t interval of zero. A mean of per-pair ratios would
/// have no finite expectation when a denominator can pass through zero, as a loss gap can.
pub fn ratio_of_means(numerator: &[f64], denominator: &[f64]) -> Option<MeanRatio> {
    if numerator.len() != denominator.len() || numerator.is_empty() {
        return None;
    }
    let n = numerator.len();
    let (a, b) = (mean(numerator), mean(denominator));
    let ratio = a / b;
    let interval = (n > 1).then(|| fieller(numerator, denominator, a, b)).flatten();
    Some(MeanRatio { ratio, interval, n })
}

/// The bounded Fieller interval, or none when it is unbounded.
fn fieller(numerator: &[f64], denominator: &[f64], a: f64, b: f64) -> Option<Interval> {
    let n = numerator.len() as f64;
    let t_squared = t_quantile(numerator.len() - 1)?.powi(2);
    let variance_a = covariance(numerator, numerator) / n;
    let variance_b = covariance(denominator, denominator) / n;
    let shared = covariance(numerator, denominator) / n;
    // (a - R b)^2 <= t^2 (va - 2 R vab + R^2 vb), a quadratic in R that is bounded when its leading coefficient is positive.
    let leading = b * b - t_squared * variance_b;
    let half_linear = a * b - t_squared * shared;
    let constant = a * a - t_squared * variance_a;
    let discriminant = half_linear * half_linear - leading * constant;
    if leading <= 0.0 || discriminant < 0.0 {
        return None;
    }
    let root = discriminant.sqrt();
    Some(Interval::new((half_linear - root) / leading, (half_linear + root) / leading))
}

/// Resamples of a bootstrap: its ends are then steady to about two digits.
const RESAMPLES: usize = 2000;
/// Below this many values a resample says little that the values do not.
const FEWEST_TO_RESAMPLE: usize = 5;

/// 95 % percentile interval of median(numerator) / median(denominator), both sides resampled on their own: for measurements that
/// did not take turns. None below five values a side. The same values always give the same interval.
pub fn bootstrap_ratio_of_medians(numerator: &[f64], denominator: &[f64]) -> Option<Interval> {
    if numerator.len().min(denominator.len()) < FEWEST_TO_RESAMPLE {
        return None;
    }
    let mut draws = Draws::default();
    let mut resampled = |values: &[f64]| median(&(0..values.len()).map(|_| values[draws.below(values.len())]).collect::<Vec<_>>());
    let mut ratios = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        ratios.push(resampled(numerator)? / resampled(denominator)?);
    }
    ratios.sort_by(f64::total_cmp);
    let outside = ((1.0 - CONFIDENCE) / 2.0 * RESAMPLES as f64) as usize;
    Some(Interval::new(ratios[outside], ratios[RESAMPLES - 1 - outside]))
}

/// Size, mean and spread of a sample: what is left of one when its values are not at hand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    pub n: usize,
    pub mean: f64,
    /// Sample standard deviation (divisor n - 1); none when it is unknown or n is one.
    pub sd: Option<f64>,
}

/// Ratio of the means of two independent samples with Welch's 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndependentRatio {
    /// mean(numerator) / mean(denominator).
    pub ratio: f64,
    /// None when a spread is unknown.
    pub interval: Option<Interval>,
    /// Sizes of numerator and denominator.
    pub n: [usize; 2],
}

impl Moments {
    /// Of the values; none when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        summarise(values).map(|summary| Self { n: summary.n, mean: summary.mean, sd: summary.sd })
    }

    /// This mean over the other. On the logarithmic scale the relative variances of the two means add up (the delta method, good
    /// while they are small, as here below 2 % of the mean), with Welch's and Satterthwaite's degrees of freedom. None unless both
    /// means are above zero.
    pub fn over(&self, other: &Self) -> Option<IndependentRatio> {
        if !(self.mean > 0.0 && other.mean > 0.0) {
            return None;
        }
        let ratio = self.mean / other.mean;
        let interval = self.relative_variance().zip(other.relative_variance()).and_then(|(a, b)| {
            let freedom = (a + b).powi(2) / (a * a / (self.n as f64 - 1.0) + b * b / (other.n as f64 - 1.0));
            // Two samples without any spread have a ratio without any doubt.
            let half = if a + b > 0.0 { t_quantile_real(freedom)? * (a + b).sqrt() } else { 0.0 };
            Some(Interval::new(ratio * (-half).exp(), ratio * half.exp()))
        });
        Some(IndependentRatio { ratio, interval, n: [self.n, other.n] })
    }

    /// Variance of the mean over its square.
    fn relative_variance(&self) -> Option<f64> {
        self.sd.filter(|_| self.n > 1).map(|sd| (sd / self.mean).powi(2) / self.n as f64)
    }
}

/// Ratio of the means of two samples that share nothing, or none when one is empty.
pub fn independent_ratio(numerator: &[f64], denominator: &[f64]) -> Option<IndependentRatio> {
    Moments::of(numerator)?.over(&Moments::of(denominator)?)
}

/// Median of ratios taken within repeats, with a distribution-free 95 % interval.
#[derive(Debug, Clone, PartialEq)]
pub struct MedianRatio {
    /// Median of the per-repeat ratios.
    pub ratio: f64,
    /// Sign-test interval; none below six repeats, where no order statistics reach 95 %.
    pub interval: Option<Interval>,
    /// The same at 90 %; none below five.
    pub ninety: Option<Interval>,
    pub n: usize,
}

/// Median and sign-test interval of `ratios`; none when there are none.
pub fn median_ratio(ratios: &[f64]) -> Option<MedianRatio> {
    let ratio = median(ratios)?;
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |confidence| {
        let rank = sign_test_rank(sorted.len(), confidence)?;
        Some(Interval::new(sorted[rank], sorted[sorted.len() - 1 - rank]))
    };
    Some(MedianRatio { ratio, interval: at(CONFIDENCE), ninety: at(EQUIVALENCE), n: sorted.len() })
}

/// Largest zero-based rank r such that the r-th smallest and r-th largest of n values cover the median with `confidence`:
/// at 95 %, the chance that a Binomial(n, 1/2) is at most r may not pass 2.5 %.
fn sign_test_rank(n: usize, confidence: f64) -> Option<usize> {
    let mut term = 0.5f64.powi(i32::try_from(n).ok()?);
    let mut below = term;
    let mut rank = None;
    for r in 0..n / 2 {
        if below > (1.0 - confidence) / 2.0 {
            break;
        }
        rank = Some(r);
        term *= (n - r) as f64 / (r + 1) as f64;
        below += term;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two-sided 95 % points from the t table in every statistics textbook, three decimals.
    #[test]
    fn t_quantiles_match_the_published_table() {
        for (freedom, published) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (14, 2.145), (30, 2.042), (120, 1.980)] {
            let ours = t_quantile(freedom).unwrap();
            assert!((ours - published).abs() < 0.0005, "{freedom}: {ours} against {published}");
        }
        assert_eq!(t_quantile(0), None);
    }

    /// MLPerf v5.1 FP8 on MI355X, ten published times in minutes: the published score is their olympic mean, 99.31.
    #[test]
    fn olympic_mean_matches_a_published_score() {
        let minutes = [95.97, 102.68, 95.74, 109.44, 102.66, 102.65, 102.74, 95.89, 95.90, 95.99];
        let score = olympic_mean(&minutes).unwrap();
        assert!((score - 99.31).abs() < 0.005, "{score}");
        assert_eq!(olympic_mean(&minutes[..2]), None);
    }

    /// Student's own example (1908, sleep data, ten differences): mean 1.58, sd 1.23, 95 % interval 0.70 to 2.46.
    #[test]
    fn interval_matches_the_sleep_data() {
        let differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let summary = summarise(&differences).unwrap();
        let interval = summary.interval.unwrap();
        assert!((summary.mean - 1.58).abs() < 1e-12);
        assert!((summary.sd.unwrap() - 1.2300).abs() < 5e-5);
        assert!((interval.low - 0.7001).abs() < 5e-5 && (interval.high - 2.4599).abs() < 5e-5, "{interval:?}");
    }

    #[test]
    fn one_value_has_no_interval() {
        let summary = summarise(&[3.0]).unwrap();
        assert_eq!((summary.n, summary.sd, summary.interval), (1, None, None));
        assert_eq!(summarise(&[]), None);
    }

    /// Normal theory: the median of n normal values has standard error 1.2533 sd / sqrt(n); for a ratio near 1 of two such medians
    /// the relative half width is 1.96 * sqrt(2) times that. The bootstrap of one sample of 101 must come within a third of it.
    #[test]
    fn bootstrap_has_the_width_that_normal_theory_gives() {
        let normal = statrs::distribution::Normal::new(10.0, 1.0).unwrap();
        let values: Vec<f64> = (1..=101).map(|i| normal.inverse_cdf(f64::from(i) / 102.0)).collect();
        let interval = bootstrap_ratio_of_medians(&values, &values).unwrap();
        let half = 1.96 * 2f64.sqrt() * 1.2533 * 0.1 / 101f64.sqrt();
        let found = (interval.high - interval.low) / 2.0;
        assert!(interval.low < 1.0 && 1.0 < interval.high && (found / half - 1.0).abs() < 1.0 / 3.0, "{interval:?}, {half}");
        assert_eq!(bootstrap_ratio_of_medians(&values, &values), Some(interval));
        assert_eq!(bootstrap_ratio_of_medians(&[1.0; 4], &values), None);
        assert_eq!(bootstrap_ratio_of_medians(&[2.0; 5], &[1.0; 5]), Some(Interval::new(2.0, 2.0)));
    }

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    /// The defining property: at each end of Fieller's interval, the t interval of a - R b touches zero.
    #[test]
    fn fieller_ends_make_the_difference_just_significant() {
        let a = [0.9, 1.1, 1.3, 0.8];
        let b = [2.0, 2.2, 2.3, 1.9];
        let ratio = ratio_of_means(&a, &b).unwrap();
        let interval = ratio.interval.unwrap();
        assert!(interval.low < ratio.ratio && ratio.ratio < interval.high);
        for (end, touch_low) in [(interval.low, true), (interval.high, false)] {
            let difference: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - end * b).collect();
            let around = summarise(&difference).unwrap().interval.unwrap();
            let touched = if touch_low { around.low } else { around.high };
            assert!(touched.abs() < 1e-12, "{touched}");
        }
    }

    /// Against scipy 1.17.1 (`stats.t.ppf(.975, df)` with Welch's df 8.19672 of the relative variances), computed by hand from
    /// means 10 and 5 with sample variances 2.5 and 0.5, five and six values.
    #[test]
    fn welch_ratio_matches_scipy() {
        let (a, b) = ([8.0, 9.0, 10.0, 11.0, 12.0], [4.0, 4.5, 5.0, 5.0, 5.5, 6.0]);
        let found = independent_ratio(&a, &b).unwrap();
        let interval = found.interval.unwrap();
        assert_eq!((found.ratio, found.n), (2.0, [5, 6]));
        assert!(
            (interval.low - 1.621_764_795_959_954_4).abs() < 1e-9 && (interval.high - 2.466_448_901_816_445).abs() < 1e-9,
            "{interval:?}"
        );
        assert_eq!(independent_ratio(&[], &b), None);
        assert_eq!(independent_ratio(&a, &[1.0]).unwrap().interval, None);
        assert_eq!(independent_ratio(&[2.0, 2.0], &[1.0, 1.0]).unwrap().interval, Some(Interval::new(2.0, 2.0)));
        assert_eq!(independent_ratio(&a, &[-1.0, 1.0]), None);
    }

    #[test]
    fn fieller_is_unbounded_when_the_denominator_may_be_zero() {
        let ratio = ratio_of_means(&[1.0, 1.1, 0.9], &[0.1, -0.1, 0.05]).unwrap();
        assert_eq!(ratio.interval, None);
    }

    /// Ranks from the published table of sign-test intervals (the d of n = 6, 15, 20, 25, one less as zero-based).
    #[test]
    fn sign_test_ranks_match_the_published_table() {
        for (n, rank) in [(5, None), (6, Some(0)), (9, Some(1)), (15, Some(3)), (20, Some(5)), (25, Some(7))] {
            assert_eq!(sign_test_rank(n, CONFIDENCE), rank, "{n}");
        }
    }
}
