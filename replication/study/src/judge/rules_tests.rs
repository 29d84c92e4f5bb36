//! Table-driven tests of the decision rules.

use super::*;
use crate::measure::target::{Crossing, PairedRatio};

fn estimate(low: f64, high: f64) -> Estimate {
    Estimate { number: (low + high) / 2.0, interval: Some(Interval::new(low, high)), n: 3 }
}

const EIGHT_TO_NINE: Reported = Reported { low: 0.08, high: 0.09, tolerance: 0.02 };

#[test]
fn range_rule() {
    for (low, high, expected) in [
        (0.07, 0.10, Verdict::Reproduced),
        (0.06, 0.11, Verdict::Reproduced),
        (0.0599, 0.10, Verdict::Inconclusive),
        (0.07, 0.1101, Verdict::Inconclusive),
        (-1.0, 1.0, Verdict::Inconclusive),
        (0.12, 0.20, Verdict::Differs),
        (-0.05, 0.05, Verdict::Differs),
    ] {
        let finding = against_range(estimate(low, high), &EIGHT_TO_NINE, Unit::SignedPercent);
        assert_eq!(finding.verdict, expected, "[{low}, {high}]");
    }
    let single = Estimate { number: 0.085, interval: None, n: 1 };
    let finding = against_range(single, &EIGHT_TO_NINE, Unit::SignedPercent);
    assert_eq!(finding.verdict, Verdict::Inconclusive, "a number in the middle of the range is not a result without an interval");
    assert_eq!(finding.why, "A single seed or repeat gives no interval.");
}

fn ratios(values: &[(f64, bool)], missed: &[u64]) -> PairedRatios {
    let pairs = values.iter().zip(1..).map(|((ratio, lower_bound), seed)| PairedRatio { seed, ratio: *ratio, lower_bound: *lower_bound });
    PairedRatios { pairs: pairs.collect(), baseline_missed: missed.to_vec() }
}

#[test]
fn token_overhead_rule() {
    let judge = |values: &[(f64, bool)], missed: &[u64]| token_ratio(&ratios(values, missed), 1.0, &EIGHT_TO_NINE, Unit::SignedPercent);
    let tight = judge(&[(1.084, false), (1.085, false), (1.086, false)], &[]);
    assert_eq!(tight.verdict, Verdict::Reproduced);
    assert!((tight.number.unwrap() - 0.085).abs() < 1e-12 && !tight.lower_bound);
    assert_eq!(judge(&[(1.28, false), (1.29, false), (1.30, false)], &[]).verdict, Verdict::Differs);
    assert_eq!(judge(&[(1.0, false), (1.1, false), (1.2, false)], &[]).verdict, Verdict::Inconclusive);

    let missed_one = judge(&[(1.084, false), (1.40, true), (1.086, false)], &[]);
    assert_eq!((missed_one.verdict, missed_one.lower_bound), (Verdict::Inconclusive, true));
    let missed_all = judge(&[(1.40, true), (1.41, true), (1.42, true)], &[]);
    assert_eq!((missed_all.verdict, missed_all.lower_bound, missed_all.interval), (Verdict::Differs, true, None));
    // The t interval of these would reach into the range; no such interval exists for bounds, and each seed is above.
    assert_eq!(judge(&[(1.12, true), (1.5, true), (1.9, false)], &[]).verdict, Verdict::Differs);
    assert_eq!(judge(&[(1.4, true)], &[]).verdict, Verdict::Inconclusive, "one seed decides nothing");
    let bound_below = judge(&[(1.01, true), (1.011, true), (1.012, true)], &[]);
    assert_eq!(bound_below.verdict, Verdict::Inconclusive, "a lower bound below the range says nothing");

    let baseline = judge(&[(1.084, false), (1.085, false)], &[3]);
    assert_eq!((baseline.verdict, baseline.number), (Verdict::Inconclusive, None));
    assert_eq!(baseline.why, "The baseline did not reach the target within the budget, or diverged (seed 3).");
    assert!(matches!(judge(&[], &[]).verdict, Verdict::NotRun(_)));
}

fn outcome(seed: u64, reached: bool, diverged: bool) -> TokensToTarget {
    let crossing = reached.then_some(Crossing { grid: 10.0, interpolated: 9.0 });
    let late_fall = Some(if reached { 0.5 } else { 0.1 }).filter(|_| !diverged);
    TokensToTarget { arm: "a".into(), seed, crossing, diverged, budget_tokens: 20.0, late_fall, seconds: None, session: None }
}

#[test]
fn does_not_converge_rule() {
    let base = [outcome(1, true, false), outcome(2, true, false), outcome(3, true, false)];
    let base: Vec<&TokensToTarget> = base.iter().collect();
    for (reached, expected) in [
        (vec![false, false, false], Verdict::Reproduced),
        (vec![true, true, true], Verdict::Differs),
        (vec![true, false, true], Verdict::Inconclusive),
        (vec![false], Verdict::Inconclusive),
    ] {
        let arm: Vec<TokensToTarget> = reached.iter().zip(1..).map(|(reached, seed)| outcome(seed, *reached, false)).collect();
        assert_eq!(does_not_converge(&arm.iter().collect::<Vec<_>>(), &base).verdict, expected, "{reached:?}");
    }
    let diverged = [outcome(1, false, true), outcome(2, false, false)];
    let finding = does_not_converge(&diverged.iter().collect::<Vec<_>>(), &base);
    assert_eq!(
        finding.why,
        "None of 2 seeds reached the target within the budget, 2.22 times the baseline's tokens, 1 of them by diverging, and none is still descending."
    );
    let slow = TokensToTarget { late_fall: Some(0.1001), ..outcome(2, false, false) };
    let finding = does_not_converge(&[&diverged[0], &slow], &base);
    assert_eq!(finding.verdict, Verdict::Inconclusive, "more than a fifth of the baseline's fall of 0.5: slow is not stuck");
    assert_eq!(
        finding.why,
        "Not reached within the budget, 2.22 times the baseline's tokens, 1 of them by diverging, but still descending in 1 of 2 seeds."
    );
    let lost = [outcome(1, true, true), outcome(2, true, false)];
    let finding = does_not_converge(&diverged.iter().collect::<Vec<_>>(), &lost.iter().collect::<Vec<_>>());
    assert_eq!(finding.verdict, Verdict::Inconclusive, "a baseline that diverges after the target is no baseline");
    assert!(matches!(does_not_converge(&[], &base).verdict, Verdict::NotRun(_)));
    let weak = [outcome(1, false, false), outcome(2, true, false)];
    let finding = does_not_converge(&diverged.iter().collect::<Vec<_>>(), &weak.iter().collect::<Vec<_>>());
    assert_eq!(finding.verdict, Verdict::Inconclusive, "an unreachable target proves nothing about the arm");
}

#[test]
fn pass_dominates_rule() {
    let without = ratios(&[(1.10, false), (1.11, false), (1.105, false)], &[]);
    let judge = |full: &[(f64, bool)]| pass_dominates(&ratios(full, &[]), &without);
    assert_eq!(judge(&[(1.26, false), (1.27, false), (1.265, false)]).verdict, Verdict::Reproduced);
    assert_eq!(judge(&[(1.12, false), (1.13, false), (1.125, false)]).verdict, Verdict::Differs);
    assert_eq!(judge(&[(1.0, false), (1.5, false), (1.2, false)]).verdict, Verdict::Inconclusive);
    assert_eq!(judge(&[(1.40, true), (1.41, true), (1.405, true)]).verdict, Verdict::Reproduced, "a lower bound above is enough");
    assert_eq!(judge(&[(1.12, true), (1.13, true), (1.125, true)]).verdict, Verdict::Inconclusive, "a lower bound below is not");
    let unknown = pass_dominates(&without, &ratios(&[(1.1, true), (1.1, false), (1.1, false)], &[]));
    assert_eq!(unknown.verdict, Verdict::Inconclusive);
}

#[test]
fn gap_closed_rule() {
    let reported = Reported { low: 0.82, high: 0.82, tolerance: 0.20 };
    assert_eq!(gap_closed(&[0.020, 0.021, 0.019], &[0.110, 0.111, 0.109], &reported).verdict, Verdict::Reproduced);
    assert_eq!(gap_closed(&[0.10, 0.101, 0.099], &[0.110, 0.111, 0.109], &reported).verdict, Verdict::Differs);
    let nothing_to_close = gap_closed(&[0.001, 0.0, -0.001], &[0.001, -0.002, 0.0005], &reported);
    assert_eq!((nothing_to_close.verdict, nothing_to_close.number), (Verdict::Inconclusive, None));
}

#[test]
fn all_of_rule() {
    let judge = |verdicts: &[Verdict]| {
        let parts: Vec<(String, Verdict)> =
            verdicts.iter().zip(1..).map(|(verdict, index)| (format!("C{index}"), verdict.clone())).collect();
        all_of(&parts)
    };
    use Verdict::{Differs, Failed, Inconclusive, NotRun, Reproduced};
    assert_eq!(judge(&[Reproduced, Reproduced]).verdict, Reproduced);
    assert_eq!(judge(&[Reproduced, Differs]).verdict, Differs);
    assert_eq!(judge(&[Inconclusive, Differs]).verdict, Differs);
    assert_eq!(judge(&[Reproduced, Inconclusive]).why, "C2 is inconclusive.");
    assert_eq!(judge(&[NotRun("x".into()), Inconclusive]).verdict, NotRun("x".into()));
    assert_eq!(judge(&[Failed("x".into()), Reproduced]).verdict, Failed("x".into()));
}
