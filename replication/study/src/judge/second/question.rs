//! What a claim asks of a layout, and when it is answered: two one-sided tests say that a number lies inside a range, an interval that
//! shares no point with the range that it does not.

use crate::judge::verdict::Verdict;
use crate::layout::{Levels, Measured};
use crate::number::Unit;
use crate::statistics::{CONFIDENCE, EQUIVALENCE, Interval, MedianRatio, t_above, t_quantile_at};

/// Arms with the weight that each has in a sum of levels.
pub(crate) type Weights = Vec<(String, f64)>;

/// Which of the two tables of a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Logarithms of tokens over the baseline's.
    Tokens,
    /// Losses, nats per token.
    Nats,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Quantity {
    Contrast(Weights),
    /// One minus the first over the second.
    Share(Weights, Weights),
}

/// One line of a claim.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    /// `direction` or `size`.
    pub what: &'static str,
    /// What holds if the answer is yes.
    pub statement: String,
    pub scale: Scale,
    pub quantity: Quantity,
    /// Where the quantity lies if the answer is yes, on the table's scale.
    pub accepted: Interval,
    /// How the number is written.
    pub unit: Unit,
}

/// The measured answer, on the table's scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub number: f64,
    pub interval: Option<Interval>,
    pub ninety: Option<Interval>,
    pub n: usize,
    /// Of: it lies inside the accepted range, and: it lies outside. None where the intervals are not of this kind.
    pub p: Option<[f64; 2]>,
}

impl Found {
    pub(super) fn of(measured: &Measured, accepted: &Interval) -> Self {
        let p = measured.p_inside(accepted).zip(measured.p_outside(accepted)).map(|(inside, outside)| [inside, outside]);
        let interval = |confidence| measured.interval(confidence);
        Self { number: measured.number, interval: interval(CONFIDENCE), ninety: interval(EQUIVALENCE), n: measured.n, p }
    }

    pub(super) fn of_median(ratio: &MedianRatio) -> Self {
        Self { number: ratio.ratio, interval: ratio.interval, ninety: ratio.ninety, n: ratio.n, p: None }
    }

    /// The verdict, and why.
    pub(super) fn verdict(&self, accepted: &Interval, range: &str) -> (Verdict, String) {
        let (Some(interval), Some(ninety)) = (self.interval, self.ninety) else {
            let why = if self.n == 1 { "One seed or repeat is".to_owned() } else { format!("{} seeds or repeats are", self.n) };
            return (Verdict::Inconclusive, format!("{why} too few for an interval."));
        };
        if ninety.inside(accepted) {
            (Verdict::Reproduced, format!("The whole 90 % interval lies inside {range} (two one-sided tests at 5 %)."))
        } else if interval.disjoint(accepted) {
            let side = if interval.low > accepted.high { "above" } else { "below" };
            (Verdict::Differs, format!("The whole 95 % interval lies {side} {range}."))
        } else {
            (Verdict::Inconclusive, format!("The interval is partly inside and partly outside {range}."))
        }
    }
}

impl Question {
    pub(super) fn answer(&self, levels: &impl Levels) -> Result<Found, String> {
        match &self.quantity {
            Quantity::Contrast(weights) => Ok(Found::of(&contrast(levels, weights)?, &self.accepted)),
            Quantity::Share(of, over) => self.share(levels, of, over),
        }
    }

    /// The two p-values alone, which a simulation needs.
    pub(super) fn p(&self, levels: &impl Levels) -> Option<[f64; 2]> {
        match &self.quantity {
            Quantity::Contrast(weights) => {
                let measured = contrast(levels, weights).ok()?;
                Some([measured.p_inside(&self.accepted)?, measured.p_outside(&self.accepted)?])
            }
            Quantity::Share(of, over) => share_p(levels, of, over, &self.accepted),
        }
    }

    /// Every arm that it compares.
    pub(super) fn arms(&self) -> impl Iterator<Item = &str> {
        let (first, second): (&[_], &[_]) = match &self.quantity {
            Quantity::Contrast(weights) => (weights, &[]),
            Quantity::Share(of, over) => (of, over),
        };
        first.iter().chain(second).map(|(arm, _)| arm.as_str())
    }

    /// Fieller's interval of the ratio of two contrasts, and one minus it. The number is none where the second cannot be told from zero.
    fn share(&self, levels: &impl Levels, of: &Weights, over: &Weights) -> Result<Found, String> {
        let (a, b) = (beside(levels, of, over)?, beside(levels, over, of)?);
        let number = 1.0 - a.number / b.number;
        if b.freedom < 1.0 {
            return Ok(Found { number, interval: None, ninety: None, n: b.n, p: None });
        }
        let both = contrast(levels, &minus(of, over, 1.0))?;
        let shared = (a.error.powi(2) + b.error.powi(2) - both.error.powi(2)) / 2.0;
        let fieller = |confidence| {
            let t = t_quantile_at(b.freedom, confidence)?.powi(2);
            let leading = b.number * b.number - t * b.error.powi(2);
            let half_linear = a.number * b.number - t * shared;
            let constant = a.number * a.number - t * a.error.powi(2);
            let root = (half_linear * half_linear - leading * constant).sqrt();
            (leading > 0.0).then(|| Interval::new(1.0 - (half_linear + root) / leading, 1.0 - (half_linear - root) / leading))
        };
        let interval =
            fieller(CONFIDENCE).ok_or("the gap that should be closed cannot be told from zero, so no share of it can be given")?;
        let p = share_p(levels, of, over, &self.accepted);
        Ok(Found { number, interval: Some(interval), ninety: fieller(EQUIVALENCE), n: b.n, p })
    }
}

/// A share of a positive gap lies above `s` exactly when what is left of it is below `1 - s` of the gap.
fn share_p(levels: &impl Levels, of: &Weights, over: &Weights, accepted: &Interval) -> Option<[f64; 2]> {
    let above = |share: f64, sign: f64| {
        let left = contrast(levels, &minus(of, over, 1.0 - share)).ok()?;
        t_above(sign * left.number / left.error, left.freedom)
    };
    let gap = beside(levels, over, of).ok()?;
    let positive = t_above(gap.number / gap.error, gap.freedom)?;
    let inside = above(accepted.low, -1.0)?.max(above(accepted.high, 1.0)?).max(positive);
    let outside = 2.0 * above(accepted.low, 1.0)?.min(above(accepted.high, -1.0)?).max(positive);
    Some([inside, outside.min(1.0)])
}

fn contrast(levels: &impl Levels, weights: &Weights) -> Result<Measured, String> {
    let weights: Vec<(&str, f64)> = weights.iter().map(|(arm, weight)| (arm.as_str(), *weight)).collect();
    levels.contrast(&weights)
}

/// A contrast over the seeds that the arms of `other` have, too: their weight is zero.
fn beside(levels: &impl Levels, weights: &Weights, other: &Weights) -> Result<Measured, String> {
    contrast(levels, &minus(weights, other, 0.0))
}

/// `of` minus `share` of `over`, each arm once.
fn minus(of: &Weights, over: &Weights, share: f64) -> Weights {
    let mut all = of.clone();
    for (arm, weight) in over {
        match all.iter_mut().find(|(other, _)| other == arm) {
            Some((_, sum)) => *sum -= share * weight,
            None => all.push((arm.clone(), -share * weight)),
        }
    }
    all
}

/// Holm's correction: each p-value as it counts among all of them.
pub(super) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let (mut corrected, mut largest) = (vec![0.0; p.len()], 0.0_f64);
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max((p[at] * (p.len() - rank) as f64).min(1.0));
        corrected[at] = largest;
    }
    corrected
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::layout::{Layout, Values};

    /// A share is of gaps over the same seeds: with the third seed, which one arm lacks, the gap of 2 would be one of 3.
    #[test]
    fn a_share_is_of_gaps_of_the_same_seeds() {
        let row = |losses: &[f64]| (1..).zip(losses).map(|(seed, loss)| (seed, vec![*loss])).collect();
        let values: Values = [("base", &[3.0, 3.1, 3.2][..]), ("bare", &[5.0, 5.1001, 8.2]), ("with", &[3.5, 3.6])]
            .map(|(arm, losses)| (arm.to_owned(), row(losses)))
            .into();
        let layout = Layout::of(&values, "base").unwrap();
        let weights = |arm: &str| vec![(arm.to_owned(), 1.0), ("base".to_owned(), -1.0)];
        let (of, over) = (weights("with"), weights("bare"));
        let question = Question {
            what: "size",
            statement: String::new(),
            scale: Scale::Nats,
            quantity: Quantity::Share(of.clone(), over.clone()),
            accepted: Interval::new(0.0, 1.0),
            unit: Unit::Percent,
        };
        let (left, gap) = (beside(&layout, &of, &over).unwrap(), beside(&layout, &over, &of).unwrap());
        assert_eq!((left.n, gap.n), (2, 2));
        assert!((left.number - 0.5).abs() < 1e-12 && (gap.number - 2.00005).abs() < 1e-12);
        // A gap of one seed in three is scatter: no interval.
        assert!(question.answer(&layout).unwrap_err().contains("cannot be told from zero"));
        assert_eq!(contrast(&layout, &over).unwrap().n, 3);
    }
}
