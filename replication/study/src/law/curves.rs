//! The curves that a law is fitted to: one mean a recipe and size, differences from the baseline paired by seed, and how whole runs scatter.

use std::collections::{BTreeMap, BTreeSet};

use crate::draws::Draws;
use crate::measure::Measurements;
use crate::measure::load::{Run, RunStatus};
use scaling_law::{Place, Point};

/// The first share of the budget is left out: the learning rate warms up in it, and a model has not begun to follow any law.
pub const LEFT_OUT: f64 = 0.10;
/// Means of evaluations, even in the logarithm of tokens.
const POINTS: usize = 16;

/// ln-losses of a run at each point of its size.
type Curve = Vec<f64>;

/// All that the law sees of one size.
#[derive(Debug, Clone)]
pub(super) struct Size {
    pub parameters: u64,
    pub places: Vec<Place>,
    /// Which of them lie in the last quarter of the budget.
    pub late: Vec<bool>,
    /// Mean ln-loss of the baseline, and of how many runs.
    pub baseline: (Curve, usize),
    /// ln-loss above the baseline's, mean over seeds, and of how many runs.
    pub arms: BTreeMap<String, (Curve, usize)>,
    pub seeds: usize,
    /// A run's own departures and a seed's, as whole curves, enlarged to the size of independent ones.
    own: Vec<Curve>,
    by_seed: Vec<Curve>,
    /// Parameters of the size whose departures these are, where one seed tells nothing of its own.
    pub scatter_of: Option<u64>,
}

/// Mean of curves.
fn mean(curves: &[&Curve]) -> Curve {
    let count = curves.len() as f64;
    let points = curves.first().map_or(0, |curve| curve.len());
    (0..points).map(|at| curves.iter().map(|curve| curve[at]).sum::<f64>() / count).collect()
}

fn combined(curves: &[(&Curve, f64)]) -> Curve {
    let points = curves.first().map_or(0, |(curve, _)| curve.len());
    (0..points).map(|at| curves.iter().map(|(curve, factor)| factor * curve[at]).sum()).collect()
}

impl Size {
    /// Of one campaign; why not, where it says nothing.
    pub(super) fn of(measurements: &Measurements, baseline: &str, budget: f64) -> Result<Self, String> {
        let completed = |run: &&Run| run.status == RunStatus::Completed;
        let tokens_of = |run: &Run| -> BTreeSet<u64> {
            let late = run.evaluations.iter().filter(|evaluation| evaluation.tokens as f64 >= LEFT_OUT * budget && evaluation.loss > 0.0);
            late.map(|evaluation| evaluation.tokens).collect()
        };
        let first = measurements.runs.iter().filter(completed).find(|run| run.arm == baseline);
        let first = first.ok_or_else(|| format!("no run of {baseline} is finished"))?;
        let tokens = tokens_of(first);
        let bins = bins(&tokens);
        if bins.len() < 4 {
            return Err(format!("{baseline} has too few evaluations after the first tenth of the budget"));
        }
        let mut runs: BTreeMap<String, BTreeMap<u64, Vec<Curve>>> = BTreeMap::new();
        let mut incomplete = BTreeSet::new();
        for run in &measurements.runs {
            let arm = measurements.study.repeated(&run.arm).to_owned();
            if completed(&run) && tokens.is_subset(&tokens_of(run)) {
                runs.entry(arm).or_default().entry(run.seed).or_default().push(binned(run, &bins));
            } else {
                incomplete.insert(arm);
            }
        }
        runs.retain(|arm, _| !incomplete.contains(arm));
        let places = bins.iter().map(|bin| Place::of(first.parameters as f64, centre(bin))).collect();
        let late = bins.iter().map(|bin| centre(bin) >= 0.75 * budget).collect();
        Ok(Self { parameters: first.parameters, places, late, ..Self::from_runs(&runs, baseline)? })
    }

    fn from_runs(runs: &BTreeMap<String, BTreeMap<u64, Vec<Curve>>>, baseline: &str) -> Result<Self, String> {
        let base = runs.get(baseline).ok_or_else(|| format!("a run of {baseline} is not finished"))?;
        let cell = |runs: &[Curve]| mean(&runs.iter().collect::<Vec<_>>());
        let by_seed: BTreeMap<u64, Curve> = base.iter().map(|(seed, runs)| (*seed, cell(runs))).collect();
        let mut arms = BTreeMap::new();
        for (arm, of_arm) in runs.iter().filter(|(arm, _)| *arm != baseline) {
            let pairs = of_arm.iter().filter_map(|(seed, runs)| Some(combined(&[(&cell(runs), 1.0), (by_seed.get(seed)?, -1.0)])));
            let pairs: Vec<Curve> = pairs.collect();
            if !pairs.is_empty() {
                arms.insert(arm.clone(), (cell(&pairs), pairs.len()));
            }
        }
        let (own, by_seed_only) = scatter(runs, &by_seed.keys().copied().collect::<Vec<_>>());
        let level = (cell(&by_seed.values().cloned().collect::<Vec<_>>()), base.values().map(Vec::len).sum());
        Ok(Self {
            parameters: 0,
            places: Vec::new(),
            late: Vec::new(),
            baseline: level,
            arms,
            seeds: by_seed.len(),
            own,
            by_seed: by_seed_only,
            scatter_of: None,
        })
    }

    /// Another outcome of the same experiment: whole runs drawn again from the departures of all recipes' runs of this size. Two or three
    /// seeds of one recipe are too few to be drawn from themselves.
    pub(super) fn drawn(&self, draws: &mut Draws) -> Self {
        let mut of = |curves: &[Curve], count: usize| {
            let drawn: Vec<&Curve> = (0..count).map(|_| &curves[draws.below(curves.len())]).collect();
            mean(&drawn)
        };
        let common = of(&self.by_seed, self.seeds);
        let base = of(&self.own, self.baseline.1);
        let level = combined(&[(&self.baseline.0, 1.0), (&common, 1.0), (&base, 1.0)]);
        let arms = self.arms.iter().map(|(arm, (curve, count))| {
            let own = of(&self.own, *count);
            (arm.clone(), (combined(&[(curve, 1.0), (&own, 1.0), (&base, -1.0)]), *count))
        });
        let arms = arms.collect();
        Self { baseline: (level, self.baseline.1), arms, ..self.clone() }
    }

    /// The baseline's points; `early` leaves out the last quarter of the budget.
    pub(super) fn points(&self, early: bool) -> impl Iterator<Item = Point> {
        let all = self.places.iter().zip(&self.baseline.0).zip(&self.late);
        all.filter(move |(_, late)| !(early && **late)).map(|((place, value), _)| Point { place: *place, value: *value })
    }
}

/// A size with one seed takes the departures of the nearest size that knows its own: how runs scatter changes little from one to the next.
///
/// # Errors
/// When no size knows how its runs scatter, or the nearest was evaluated elsewhere.
pub(super) fn lend_scatter(sizes: &mut [Size]) -> Result<(), String> {
    let known: Vec<Size> = sizes.iter().filter(|size| !size.own.is_empty()).cloned().collect();
    for size in sizes.iter_mut().filter(|size| size.own.is_empty()) {
        let away = |other: &Size| (other.parameters as f64 / size.parameters as f64).ln().abs();
        let nearest = known.iter().filter(|other| other.places.len() == size.places.len()).min_by(|a, b| away(a).total_cmp(&away(b)));
        let nearest = nearest.ok_or("with fewer than two seeds of two recipes at every size nothing is known of how runs scatter")?;
        (size.own, size.by_seed, size.scatter_of) = (nearest.own.clone(), nearest.by_seed.clone(), Some(nearest.parameters));
    }
    Ok(())
}

/// Evaluations in groups that are even in the logarithm of tokens.
fn bins(tokens: &BTreeSet<u64>) -> Vec<Vec<u64>> {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Vec::new() };
    let (low, high) = ((*first as f64).ln(), (*last as f64).ln());
    let mut bins = vec![Vec::new(); POINTS];
    for at in tokens {
        let share = ((*at as f64).ln() - low) / (high - low);
        bins[((share * POINTS as f64) as usize).min(POINTS - 1)].push(*at);
    }
    bins.retain(|bin| !bin.is_empty());
    bins
}

/// Tokens at a group's mean logarithm.
fn centre(bin: &[u64]) -> f64 {
    (bin.iter().map(|tokens| (*tokens as f64).ln()).sum::<f64>() / bin.len() as f64).exp()
}

fn binned(run: &Run, bins: &[Vec<u64>]) -> Curve {
    let losses: BTreeMap<u64, f64> = run.evaluations.iter().map(|evaluation| (evaluation.tokens, evaluation.loss.ln())).collect();
    let of = |bin: &Vec<u64>| bin.iter().filter_map(|tokens| losses.get(tokens)).sum::<f64>() / bin.len() as f64;
    bins.iter().map(of).collect()
}

/// Departures of single runs and of seeds in the two-way table of recipes that have every seed, as `layout` takes numbers apart. Each is
/// enlarged by the root of what taking out means has made its variance smaller.
fn scatter(runs: &BTreeMap<String, BTreeMap<u64, Vec<Curve>>>, seeds: &[u64]) -> (Vec<Curve>, Vec<Curve>) {
    let rows: Vec<Vec<&Curve>> =
        runs.values().filter_map(|of_arm| seeds.iter().map(|seed| of_arm.get(seed)?.first()).collect::<Option<Vec<_>>>()).collect();
    let (arms, count) = (rows.len() as f64, seeds.len() as f64);
    if rows.len() < 2 || seeds.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    let of_arm: Vec<Curve> = rows.iter().map(|row| mean(row)).collect();
    let of_seed: Vec<Curve> = (0..seeds.len()).map(|at| mean(&rows.iter().map(|row| row[at]).collect::<Vec<_>>())).collect();
    let all = mean(&of_arm.iter().collect::<Vec<_>>());
    let enlarged = (arms * count / ((arms - 1.0) * (count - 1.0))).sqrt();
    let own = rows.iter().zip(&of_arm).flat_map(|(row, level)| {
        row.iter()
            .zip(&of_seed)
            .map(|(run, seed)| combined(&[(run, enlarged), (level, -enlarged), (seed, -enlarged), (&all, enlarged)]))
            .collect::<Vec<_>>()
    });
    let by_seed = (count / (count - 1.0)).sqrt();
    (own.collect(), of_seed.iter().map(|seed| combined(&[(seed, by_seed), (&all, -by_seed)])).collect())
}
