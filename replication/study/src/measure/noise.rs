//! How far single runs scatter, from all arms together, and so what a table of one run an arm can tell apart.
//!
//! The model is a two-way layout without interaction: the logarithm of a run's tokens to target is its arm's level plus its seed's plus
//! noise of one variance for all arms; least squares, `(arms - 1)(seeds - 1)` degrees of freedom. Three to five seeds of one arm say
//! little about their own scatter; all arms together say it well, if it is the same for all. No verdict uses any of this: an arm's
//! verdict rests on its own seeds.

use std::collections::{BTreeMap, BTreeSet};

use super::target::{Estimator, TokensToTarget};
use crate::statistics::{Interval, t_quantile};

/// The scatter of runs, and every arm's level.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    /// Standard deviation of one run's logarithm, arm and seed accounted for.
    pub sd: f64,
    /// Degrees of freedom of `sd`.
    pub freedom: usize,
    /// Arms that count: those that reached the target with every seed of the baseline.
    pub arms: usize,
    pub seeds: usize,
    /// 95 % point of Student's t.
    quantile: f64,
    /// Mean logarithm of tokens to target by arm.
    levels: BTreeMap<String, f64>,
}

impl Noise {
    /// From tokens to target of at least two arms and two seeds; none when there is less, or when the baseline missed the target.
    pub fn of(tokens: &[TokensToTarget], baseline: &str, estimator: Estimator) -> Option<Self> {
        let logarithm = |run: &TokensToTarget| run.crossing.map(|crossing| crossing.tokens(estimator).ln());
        let seeds: BTreeSet<u64> = tokens.iter().filter(|run| run.arm == baseline).map(|run| run.seed).collect();
        let mut cells: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
        for run in tokens.iter().filter(|run| seeds.contains(&run.seed)) {
            if let Some(value) = logarithm(run) {
                cells.entry(&run.arm).or_default().insert(run.seed, value);
            }
        }
        cells.retain(|_, values| values.len() == seeds.len());
        let (arms, count) = (cells.len(), seeds.len());
        let freedom = arms.checked_sub(1)? * count.checked_sub(1)?;
        let quantile = t_quantile(freedom).filter(|_| cells.contains_key(baseline))?;
        let mean = |values: &mut dyn Iterator<Item = f64>, of: usize| values.sum::<f64>() / of as f64;
        let levels: BTreeMap<String, f64> =
            cells.iter().map(|(arm, values)| ((*arm).to_owned(), mean(&mut values.values().copied(), count))).collect();
        let by_seed: BTreeMap<u64, f64> =
            seeds.iter().map(|seed| (*seed, mean(&mut cells.values().map(|values| values[seed]), arms))).collect();
        let all = mean(&mut levels.values().copied(), arms);
        let mut squares = 0.0;
        for (arm, values) in &cells {
            squares += values.iter().map(|(seed, value)| (value - levels[*arm] - by_seed[seed] + all).powi(2)).sum::<f64>();
        }
        Some(Self { sd: (squares / freedom as f64).sqrt(), freedom, arms, seeds: count, quantile, levels })
    }

    /// Extra tokens of `arm` over `baseline` as a share (geometric mean over seeds), with the interval that all arms' scatter gives.
    pub fn overhead(&self, arm: &str, baseline: &str) -> Option<(f64, Interval)> {
        let difference = self.levels.get(arm)? - self.levels.get(baseline)?;
        let half = self.quantile * self.sd * (2.0 / self.seeds as f64).sqrt();
        let share = |logarithm: f64| logarithm.exp_m1();
        Some((share(difference), Interval::new(share(difference - half), share(difference + half))))
    }

    /// The extra tokens, as a share, that this many arms and seeds would tell from none in four of five campaigns.
    pub fn detectable(&self) -> f64 {
        // The 80 % point of the normal distribution is 0.8416.
        ((self.quantile + 0.8416) * self.sd * (2.0 / self.seeds as f64).sqrt()).exp_m1()
    }

    /// One standard deviation of the ratio of one run to another with the same seed, as a share.
    pub fn of_one_pair(&self) -> f64 {
        (self.sd * 2f64.sqrt()).exp_m1()
    }

    /// Half of the 95 % interval that one pair of runs has, as a share: what a table with one run an arm can tell apart.
    pub fn half_width_of_one_pair(&self) -> f64 {
        (self.quantile * self.sd * 2f64.sqrt()).exp_m1()
    }

    /// Seeds an arm for which half of the interval is at most `share`.
    pub fn seeds_for(&self, share: f64) -> f64 {
        // Normal, not t: with so many seeds the scatter would be known.
        (2.0 * (1.96 * self.sd / share.ln_1p()).powi(2)).ceil().max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::target::Crossing;

    fn run(arm: &str, seed: u64, tokens: Option<f64>) -> TokensToTarget {
        let crossing = tokens.map(|tokens| Crossing { grid: tokens, interpolated: tokens });
        TokensToTarget {
            arm: arm.into(),
            seed,
            crossing,
            diverged: false,
            budget_tokens: 1e9,
            late_fall: None,
            seconds: None,
            session: None,
        }
    }

    /// Three arms, two seeds, logarithms whose two-way table was decomposed by hand: residuals are plus and minus 0.01, 0.02 and 0.03
    /// in pairs, so their squares sum to 2 (1 + 4 + 9) 1e-4 over 2 degrees of freedom, and the standard deviation is sqrt(14e-4).
    #[test]
    fn a_table_decomposed_by_hand() {
        let level = |arm: f64, seed: f64, residual: f64| Some((20.0 + arm + seed + residual).exp());
        let tokens = [
            run("base", 1, level(0.0, 0.05, 0.01)),
            run("base", 2, level(0.0, -0.05, -0.01)),
            run("a", 1, level(0.1, 0.05, 0.02)),
            run("a", 2, level(0.1, -0.05, -0.02)),
            run("b", 1, level(0.2, 0.05, -0.03)),
            run("b", 2, level(0.2, -0.05, 0.03)),
            // A missed target and a seed that the baseline has not are left out.
            run("missed", 1, level(0.3, 0.0, 0.0)),
            run("missed", 2, None),
            run("a", 3, level(9.0, 0.0, 0.0)),
        ];
        let noise = Noise::of(&tokens, "base", Estimator::Grid).unwrap();
        assert_eq!((noise.arms, noise.seeds, noise.freedom), (3, 2, 2));
        assert!((noise.sd - 14e-4_f64.sqrt()).abs() < 1e-12, "{}", noise.sd);
        let (share, interval) = noise.overhead("a", "base").unwrap();
        assert!((share - 0.1_f64.exp_m1()).abs() < 1e-12);
        // t(0.975, 2) = 4.302653; two seeds: the factor of the standard deviation is 1.
        let half = 4.302_652_729_911_275 * 14e-4_f64.sqrt();
        assert!((interval.low - (0.1 - half).exp_m1()).abs() < 1e-9 && (interval.high - (0.1 + half).exp_m1()).abs() < 1e-9);
        assert_eq!(noise.overhead("missed", "base"), None);
        // Two seeds: the standard error of a difference is the standard deviation.
        assert!((noise.detectable() - ((4.302_652_729_911_275 + 0.8416) * 14e-4_f64.sqrt()).exp_m1()).abs() < 1e-9);
        assert!((noise.of_one_pair() - 28e-4_f64.sqrt().exp_m1()).abs() < 1e-12);
        // 2 (1.96 * 0.0374166 / ln 1.02)^2 = 27.43.
        assert!((noise.seeds_for(0.02) - 28.0).abs() < f64::EPSILON, "{}", noise.seeds_for(0.02));
    }

    #[test]
    fn too_little_to_know() {
        let one_seed = [run("base", 1, Some(1.0)), run("a", 1, Some(2.0))];
        assert_eq!(Noise::of(&one_seed, "base", Estimator::Grid), None);
        let one_arm = [run("base", 1, Some(1.0)), run("base", 2, Some(2.0))];
        assert_eq!(Noise::of(&one_arm, "base", Estimator::Grid), None);
        let missed = [run("base", 1, None), run("base", 2, Some(1.0)), run("a", 1, Some(1.0)), run("a", 2, Some(1.0))];
        assert_eq!(Noise::of(&missed, "base", Estimator::Grid), None);
        assert_eq!(Noise::of(&[], "base", Estimator::Grid), None);
    }
}
