//! Tokens to the target loss, and comparisons of arms paired by seed.
//!
//! A validation loss is seen only at evaluations, so the true crossing lies somewhere in the interval before the first evaluation
//! at or below the target: it is interval-censored. Both estimates are kept everywhere. `grid` is MLPerf's rule (tokens of that
//! evaluation); `interpolated` is linear in loss between the last evaluation above and the first at or below.

use std::collections::BTreeMap;

use contract::timing::Session;

use super::load::{Evaluation, Run, RunStatus, comparable};
use crate::statistics::summarise;

pub use crate::manifest::Estimator;

/// Both estimates of one crossing, in training tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Tokens at the first evaluation at or below the target.
    pub grid: f64,
    /// Tokens at which the straight line between the evaluations around the crossing meets the target.
    pub interpolated: f64,
}

impl Crossing {
    /// The estimate that `estimator` names.
    pub fn tokens(&self, estimator: Estimator) -> f64 {
        match estimator {
            Estimator::Grid => self.grid,
            Estimator::Interpolated => self.interpolated,
        }
    }
}

/// Where `evaluations` first reach `target`, or none when they never do.
pub fn crossing(evaluations: &[Evaluation], target: f64) -> Option<Crossing> {
    let index = evaluations.iter().position(|evaluation| evaluation.loss <= target)?;
    let first = evaluations.get(index)?;
    let grid = first.tokens as f64;
    let interpolated = match index.checked_sub(1).and_then(|before| evaluations.get(before)) {
        // Above the target strictly, so the two losses differ and the division is safe.
        Some(above) => {
            let share = (above.loss - target) / (above.loss - first.loss);
            above.tokens as f64 + share * (first.tokens as f64 - above.tokens as f64)
        }
        None => grid,
    };
    Some(Crossing { grid, interpolated })
}

/// Tokens to target of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct TokensToTarget {
    pub arm: String,
    pub seed: u64,
    /// None when the target was not reached within the budget (DNC), whether or not the run diverged.
    pub crossing: Option<Crossing>,
    pub diverged: bool,
    /// Training tokens of the whole budget.
    pub budget_tokens: f64,
    /// How far the loss fell over the last quarter of the budget, nats per token: the evaluation at or last before three quarters of
    /// it minus the last one. None when the run ended early.
    pub late_fall: Option<f64>,
    /// Seconds of training steps up to the crossing (fractional last step), when timing covers them.
    pub seconds: Option<f64>,
    /// The machine that every timing session of the run saw; none when they differ or there are none.
    pub session: Option<Session>,
}

/// Tokens to target of every finished run.
pub fn tokens_to_target(runs: &[Run], target: f64, budget_steps: u64, estimator: Estimator) -> Vec<TokensToTarget> {
    let finished = runs.iter().filter(|run| run.finished());
    finished
        .map(|run| {
            let crossing = crossing(&run.evaluations, target);
            TokensToTarget {
                arm: run.arm.clone(),
                seed: run.seed,
                crossing,
                diverged: matches!(run.status, RunStatus::Diverged { .. }),
                budget_tokens: (budget_steps * run.tokens_per_step) as f64,
                late_fall: late_fall(&run.evaluations, budget_steps * run.tokens_per_step),
                seconds: crossing.and_then(|crossing| seconds_until(run, crossing.tokens(estimator))),
                session: run.sessions.first().filter(|first| run.sessions.iter().all(|other| comparable(other, first))).cloned(),
            }
        })
        .collect()
}

/// Loss at three quarters of the budget minus loss at its end.
fn late_fall(evaluations: &[Evaluation], budget: u64) -> Option<f64> {
    let end = evaluations.last().filter(|last| last.tokens >= budget)?;
    let late = evaluations.iter().rev().find(|evaluation| evaluation.tokens * 4 <= budget * 3)?;
    Some(late.loss - end.loss)
}

/// Seconds of training steps until `tokens`: the number of steps times the mean over the steps up to there, of which the first of each
/// session is left out. None when another step has no time.
fn seconds_until(run: &Run, tokens: f64) -> Option<f64> {
    let steps = tokens / run.tokens_per_step.max(1) as f64;
    let last = steps.ceil() as u64;
    let timed: Vec<f64> = run.step_seconds.iter().filter(|(step, _)| *step <= last).map(|(_, seconds)| *seconds).collect();
    let complete = timed.len() + run.sessions.len() >= usize::try_from(last).ok()?;
    summarise(&timed).filter(|_| complete).map(|summary| steps * summary.mean)
}

/// One seed's ratio of an arm's tokens (or seconds) to a baseline's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedRatio {
    pub seed: u64,
    pub ratio: f64,
    /// The arm did not reach the target: `ratio` is budget over baseline, a lower bound.
    pub lower_bound: bool,
}

/// Ratios of an arm to a baseline, paired by seed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairedRatios {
    /// One per seed that both have and in which the baseline reached the target, by seed.
    pub pairs: Vec<PairedRatio>,
    /// Seeds in which the baseline did not reach the target, or diverged; a ratio is undefined there.
    pub baseline_missed: Vec<u64>,
}

impl PairedRatios {
    pub fn values(&self) -> Vec<f64> {
        self.pairs.iter().map(|pair| pair.ratio).collect()
    }

    /// What has a t interval: all ratios, or none when some are lower bounds, whose spread says nothing.
    pub fn uncensored(&self) -> bool {
        self.lower_bounds() == 0 && self.baseline_missed.is_empty()
    }

    /// How many of the ratios are lower bounds.
    pub fn lower_bounds(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.lower_bound).count()
    }
}

/// Tokens of `arm` over tokens of `baseline`, seed by seed.
pub fn token_ratios(all: &[TokensToTarget], arm: &str, baseline: &str, estimator: Estimator) -> PairedRatios {
    let mut result = PairedRatios::default();
    for (ours, base) in pairs(all, arm, baseline) {
        let Some(base_crossing) = base.crossing.filter(|_| !base.diverged) else {
            result.baseline_missed.push(ours.seed);
            continue;
        };
        let numerator = ours.crossing.map_or(ours.budget_tokens, |crossing| crossing.tokens(estimator));
        let ratio = numerator / base_crossing.tokens(estimator);
        result.pairs.push(PairedRatio { seed: ours.seed, ratio, lower_bound: ours.crossing.is_none() });
    }
    result
}

/// Seconds to target of `arm` over those of `baseline`, from the runs themselves, for seeds in which both reached it and have times.
/// None at all unless every session of both arms saw the same processor, threads and instruction set, or the same kind of GPU and
/// libraries: their ratio would be the machines'.
pub fn time_ratios(all: &[TokensToTarget], arm: &str, baseline: &str) -> Vec<f64> {
    let pairs = pairs(all, arm, baseline);
    let sessions: Vec<Option<&Session>> = pairs.iter().flat_map(|(ours, base)| [ours.session.as_ref(), base.session.as_ref()]).collect();
    let alike = |two: &[Option<&Session>]| two[0].is_some_and(|first| two[1].is_some_and(|second| comparable(first, second)));
    if sessions.iter().any(Option::is_none) || !sessions.windows(2).all(alike) {
        return Vec::new();
    }
    pairs.into_iter().filter_map(|(ours, base)| Some(ours.seconds? / base.seconds?)).collect()
}

/// Runs of two arms with the same seed, by seed.
fn pairs<'a>(all: &'a [TokensToTarget], arm: &str, baseline: &str) -> Vec<(&'a TokensToTarget, &'a TokensToTarget)> {
    let base: BTreeMap<u64, &TokensToTarget> = all.iter().filter(|run| run.arm == baseline).map(|run| (run.seed, run)).collect();
    all.iter().filter(|run| run.arm == arm).filter_map(|run| Some((run, *base.get(&run.seed)?))).collect()
}

/// One seed's difference of validation loss at equal tokens, arm minus baseline, in nats.
#[derive(Debug, Clone, PartialEq)]
pub struct LossGap {
    pub arm: String,
    pub baseline: String,
    pub seed: u64,
    /// At the last evaluation of the budget; none when a run diverged before it.
    pub last: Option<f64>,
    /// Mean over the evaluations in the last quarter of the budget.
    pub last_quarter: Option<f64>,
}

/// Loss gaps of every arm to `baseline`, by arm and seed. `runs` is ordered by arm and seed.
pub fn loss_gaps(runs: &[Run], baseline: &str, budget_steps: u64) -> Vec<LossGap> {
    let base: BTreeMap<u64, &Run> = runs.iter().filter(|run| run.arm == baseline && run.finished()).map(|run| (run.seed, run)).collect();
    let arms = runs.iter().filter(|run| run.arm != baseline && run.finished());
    arms.filter_map(|run| Some((run, *base.get(&run.seed)?)))
        .map(|(run, base)| {
            let budget = budget_steps * run.tokens_per_step;
            let gaps = common_gaps(run, base);
            let complete = gaps.last().is_some_and(|(tokens, _)| *tokens >= budget);
            let late: Vec<f64> = gaps.iter().filter(|(tokens, _)| *tokens * 4 > budget * 3).map(|(_, gap)| *gap).collect();
            let last = gaps.last().filter(|_| complete).map(|(_, gap)| *gap);
            let last_quarter = (complete && !late.is_empty()).then(|| late.iter().sum::<f64>() / late.len() as f64);
            LossGap { arm: run.arm.clone(), baseline: baseline.to_owned(), seed: run.seed, last, last_quarter }
        })
        .collect()
}

/// `(tokens, loss of run - loss of base)` at every evaluation that both have.
fn common_gaps(run: &Run, base: &Run) -> Vec<(u64, f64)> {
    let base: BTreeMap<u64, f64> = base.evaluations.iter().map(|evaluation| (evaluation.tokens, evaluation.loss)).collect();
    run.evaluations.iter().filter_map(|ours| Some((ours.tokens, ours.loss - base.get(&ours.tokens)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(losses: &[f64]) -> Vec<Evaluation> {
        losses.iter().enumerate().map(|(i, loss)| Evaluation { step: i as u64, tokens: 100 * i as u64, loss: *loss }).collect()
    }

    #[test]
    fn crossing_of_a_straight_line_is_exact() {
        let crossing = crossing(&curve(&[5.0, 4.0, 3.0, 2.0]), 3.25).unwrap();
        assert_eq!(crossing, Crossing { grid: 200.0, interpolated: 175.0 });
    }

    #[test]
    fn an_evaluation_on_the_target_counts() {
        let crossing = crossing(&curve(&[5.0, 3.0, 1.0]), 3.0).unwrap();
        assert_eq!(crossing, Crossing { grid: 100.0, interpolated: 100.0 });
    }

    #[test]
    fn the_first_crossing_counts_even_if_the_loss_rises_again() {
        let crossing = crossing(&curve(&[5.0, 3.0, 4.0, 2.0]), 3.5).unwrap();
        assert_eq!(crossing, Crossing { grid: 100.0, interpolated: 75.0 });
        assert_eq!(super::crossing(&curve(&[5.0, 4.0]), 3.5), None);
        assert_eq!(super::crossing(&curve(&[3.0]), 3.5), Some(Crossing { grid: 0.0, interpolated: 0.0 }));
    }

    /// A power law L = a + b t^-c has the known crossing t = ((L* - a) / b)^(-1/c); linear interpolation on a convex curve
    /// lies late, by less than h^2 L'' / (8 |L'|), the chord's largest height over the slope.
    #[test]
    fn interpolation_is_within_its_bound_on_a_power_law() {
        let (a, b, c, h) = (2.0, 40.0, 0.25, 1000.0f64);
        let evaluations: Vec<Evaluation> =
            (1..400).map(|i| Evaluation { step: i, tokens: i * 1000, loss: a + b * (i as f64 * h).powf(-c) }).collect();
        let target = 4.0;
        let exact = ((target - a) / b).powf(-1.0 / c);
        let found = crossing(&evaluations, target).unwrap();
        let left = found.grid - h;
        let slope = b * c * left.powf(-c - 1.0);
        let bend = slope * (c + 1.0) / left;
        let bound = h * h * bend / (8.0 * b * c * found.grid.powf(-c - 1.0));
        assert!(found.interpolated >= exact && found.interpolated - exact <= bound, "{found:?} {exact} {bound}");
        assert!(found.grid >= exact && found.grid - exact < h);
    }

    #[test]
    fn times_of_different_machines_have_no_ratio() {
        let session = |threads| {
            let (device, instruction_set, cpu) = (contract::device::DeviceKind::Cpu, "avx2".into(), "c".into());
            Some(Session {
                device,
                ranks: 1,
                threads,
                instruction_set,
                cpu,
                gpu: None,
                libraries: vec![],
                mxfp4: None,
                least_memory: false,
                interpreted: false,
                resumed_from_step: 0,
            })
        };
        let run =
            |arm, seconds, threads| TokensToTarget { seconds: Some(seconds), session: session(threads), ..outcome(arm, 1, Some(1.0)) };
        assert_eq!(time_ratios(&[run("arm", 3.0, 2), run("base", 2.0, 2)], "arm", "base"), [1.5]);
        assert!(time_ratios(&[run("arm", 3.0, 2), run("base", 2.0, 1)], "arm", "base").is_empty());
        assert!(time_ratios(&[TokensToTarget { session: None, ..run("arm", 3.0, 2) }, run("base", 2.0, 2)], "arm", "base").is_empty());
    }

    #[test]
    fn late_fall_is_the_last_quarter_of_a_whole_budget() {
        let evaluations = curve(&[5.0, 4.0, 3.5, 3.25, 3.125]);
        assert_eq!(late_fall(&evaluations, 400), Some(0.125));
        assert_eq!(late_fall(&evaluations, 500), None, "the run ended before its budget");
    }

    fn outcome(arm: &str, seed: u64, tokens: Option<f64>) -> TokensToTarget {
        let crossing = tokens.map(|tokens| Crossing { grid: tokens, interpolated: tokens });
        TokensToTarget {
            arm: arm.into(),
            seed,
            crossing,
            diverged: false,
            budget_tokens: 1000.0,
            late_fall: None,
            seconds: None,
            session: None,
        }
    }

    #[test]
    fn ratios_pair_by_seed_and_censor() {
        let all = [
            outcome("base", 1, Some(500.0)),
            outcome("base", 2, None),
            outcome("base", 3, Some(400.0)),
            outcome("arm", 1, Some(550.0)),
            outcome("arm", 2, Some(600.0)),
            outcome("arm", 3, None),
            outcome("arm", 9, Some(1.0)),
        ];
        let ratios = token_ratios(&all, "arm", "base", Estimator::Grid);
        assert_eq!(ratios.baseline_missed, vec![2]);
        let expected = [PairedRatio { seed: 1, ratio: 1.1, lower_bound: false }, PairedRatio { seed: 3, ratio: 2.5, lower_bound: true }];
        assert_eq!(ratios.pairs, expected);
    }
}
