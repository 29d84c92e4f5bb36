//! Where an arm's gap sits. An arm is evaluated through its own quantised forward pass, so part of its gap is the rounding of the evaluation.
//! The same weights read through a BF16 forward pass tell the two parts:
//!
//! - gap: the arm's own loss minus the baseline's own;
//! - training: the arm's weights minus the baseline's, both read in BF16;
//! - reading: the rest, which is what the arm's own forward pass adds to its weights' loss beyond what the baseline's adds to its own.
//!
//! Beside them, what the arm's forward pass adds to the loss of the baseline's weights, which were not trained for it. Each number is paired by
//! seed, with the interval of the two-way layout of its own part.

use std::collections::{BTreeMap, BTreeSet};

use contract::recipe::Format;
use serde::Serialize;

use super::Measurements;
use super::curves::{Ruler, Stretch, runs_of};
use super::load::{Run, RunStatus};
use super::study::{Study, formats};
use crate::layout::{Layout, Levels, Measured, Values};
use crate::statistics::CONFIDENCE;
use crate::table::{Number, Table};

/// One arm's gap in its parts, nats, at one reading or over the readings of a stretch.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    pub arm: String,
    /// None: at one reading.
    pub over: Option<Stretch>,
    /// Training tokens at the readings, whose plain mean the numbers are.
    pub tokens: Vec<u64>,
    pub gap: Measured,
    pub training: Measured,
    pub reading: Measured,
    /// The recipe with the arm's forward pass through which the baseline's weights were read, and what it adds to their own loss.
    pub untrained: Option<(String, Measured)>,
}

impl Parts {
    /// Reading's share of the gap; none where the gap's interval holds zero, since a share of nothing says nothing.
    pub fn share(&self) -> Option<f64> {
        let interval = self.gap.interval(CONFIDENCE)?;
        (interval.low > 0.0 || interval.high < 0.0).then(|| self.reading.number / self.gap.number)
    }
}

/// Every arm against `baseline`, at each reading after the first step and over both stretches. Empty without readings in BF16, or where two
/// seeds do not have them.
pub(super) fn parts(measurements: &Measurements, baseline: &str) -> Vec<Parts> {
    let Measurements { study, runs, .. } = measurements;
    let Some(plain) = plain(study) else { return Vec::new() };
    let losses: Vec<Losses> = runs.iter().filter(|run| run.status == RunStatus::Completed).map(|run| Losses::of(run, study)).collect();
    let base = || losses.iter().filter(|run| run.arm == baseline);
    let at: BTreeSet<u64> = base().flat_map(|run| run.tokens(plain)).filter(|tokens| *tokens > 0).collect();
    let table = Split { study, losses: &losses, baseline, plain };
    let mut all: Vec<Parts> = at.iter().flat_map(|tokens| table.parts(None, &[*tokens])).collect();
    if let Ok(ruler) = Ruler::of(&runs_of(runs, study, baseline), study.profile.budget.steps) {
        for stretch in [Stretch::Matched, Stretch::LastQuarter] {
            let inside: Vec<u64> = ruler.stretch(stretch).iter().map(|index| ruler.tokens[*index]).filter(|t| at.contains(t)).collect();
            all.extend(table.parts(Some(stretch), &inside));
        }
    }
    all
}

/// The recipe through which every arm is read that rounds no operand of the forward pass below BF16.
fn plain(study: &Study) -> Option<&str> {
    let is_plain = |id: &&String| {
        let formats = study.recipes.get(*id).map(|recipe| formats(recipe, "fprop")).unwrap_or_default();
        !formats.is_empty() && formats.iter().all(|format| *format == Format::Bf16)
    };
    study.profile.evaluation.readings.as_ref()?.all.iter().find(is_plain).map(String::as_str)
}

/// What one run's weights lose, by tokens: through their own forward pass, and through others by recipe.
struct Losses<'a> {
    /// The arm that it repeats, or its own.
    arm: &'a str,
    repeats: bool,
    seed: u64,
    own: BTreeMap<u64, f64>,
    through: BTreeMap<&'a str, BTreeMap<u64, f64>>,
}

impl<'a> Losses<'a> {
    fn of(run: &'a Run, study: &'a Study) -> Self {
        let arm = study.repeated(&run.arm);
        let mut through: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
        for reading in &run.readings {
            if let Some(loss) = reading.loss {
                through.entry(&reading.recipe).or_default().insert(reading.tokens, loss);
            }
        }
        let own = run.evaluations.iter().map(|evaluation| (evaluation.tokens, evaluation.loss)).collect();
        Self { arm, repeats: arm != run.arm, seed: run.seed, own, through }
    }

    /// Where these weights were read through `recipe`.
    fn tokens(&self, recipe: &str) -> impl Iterator<Item = u64> + '_ {
        self.through.get(recipe).into_iter().flat_map(|losses| losses.keys().copied())
    }

    /// Mean own loss over the evaluations at `tokens`.
    fn own(&self, tokens: &[u64]) -> Option<f64> {
        mean(&self.own, tokens)
    }

    fn through(&self, recipe: &str, tokens: &[u64]) -> Option<f64> {
        mean(self.through.get(recipe)?, tokens)
    }
}

/// None where one of them is missing, there is none, or their sum overflows.
fn mean(losses: &BTreeMap<u64, f64>, tokens: &[u64]) -> Option<f64> {
    let found: Vec<f64> = tokens.iter().map(|at| losses.get(at).copied()).collect::<Option<_>>()?;
    (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64).filter(|mean| mean.is_finite())
}

struct Split<'a> {
    study: &'a Study,
    losses: &'a [Losses<'a>],
    baseline: &'a str,
    /// The forward pass in BF16.
    plain: &'a str,
}

impl Split<'_> {
    fn parts(&self, over: Option<Stretch>, tokens: &[u64]) -> Vec<Parts> {
        let tables = self.tables(tokens);
        let [Ok(own), Ok(plain), Ok(added)] = tables.each_ref().map(|table| Layout::of(table, self.baseline)) else { return Vec::new() };
        let untrained = self.untrained(tokens);
        let one = |arm: &String| {
            let against = |layout: &Layout| layout.contrast(&[(arm, 1.0), (self.baseline, -1.0)]).ok();
            Some(Parts {
                arm: arm.clone(),
                over,
                tokens: tokens.to_vec(),
                gap: against(&own)?,
                training: against(&plain)?,
                reading: against(&added)?,
                untrained: self.forward_of(arm).and_then(|forward| Some((forward.to_owned(), *untrained.get(forward)?))),
            })
        };
        tables[0].keys().filter(|arm| *arm != self.baseline).filter_map(one).collect()
    }

    /// By arm and seed: own loss, loss in BF16, and what the own forward pass adds. Only of runs that have both, so that the parts add up.
    fn tables(&self, tokens: &[u64]) -> [Values; 3] {
        let mut tables = [Values::new(), Values::new(), Values::new()];
        // A layout wants an arm's own run before its repetitions.
        let (own, again): (Vec<&Losses>, Vec<&Losses>) = self.losses.iter().partition(|run| !run.repeats);
        for run in own.into_iter().chain(again) {
            let (Some(own), Some(plain)) = (run.own(tokens), run.through(self.plain, tokens)) else { continue };
            for (table, value) in tables.iter_mut().zip([own, plain, own - plain]) {
                table.entry(run.arm.to_owned()).or_default().entry(run.seed).or_default().push(value);
            }
        }
        tables
    }

    /// What each forward pass adds to the own loss of the baseline's weights, from a layout of forward passes and seeds: all readings of a seed
    /// are of the same weights, so a seed's runs are averaged first.
    fn untrained(&self, tokens: &[u64]) -> BTreeMap<&str, Measured> {
        const OWN: &str = "";
        let forwards = self.forwards();
        let mut by_seed: BTreeMap<u64, Vec<Vec<f64>>> = BTreeMap::new();
        for run in self.losses.iter().filter(|run| run.arm == self.baseline) {
            let read: Option<Vec<f64>> = forwards.iter().map(|forward| run.through(forward, tokens)).collect();
            if let (Some(own), Some(read)) = (run.own(tokens), read) {
                by_seed.entry(run.seed).or_default().push(std::iter::once(own).chain(read).collect());
            }
        }
        let mut table = Values::new();
        for (seed, runs) in &by_seed {
            for (index, forward) in std::iter::once(&OWN).chain(&forwards).enumerate() {
                let mean = runs.iter().map(|run| run[index]).sum::<f64>() / runs.len() as f64;
                table.entry((*forward).to_owned()).or_default().insert(*seed, vec![mean]);
            }
        }
        let Ok(layout) = Layout::of(&table, OWN) else { return BTreeMap::new() };
        let added = |forward: &str| layout.contrast(&[(forward, 1.0), (OWN, -1.0)]).ok();
        forwards.iter().filter_map(|forward| Some((*forward, added(forward)?))).collect()
    }

    /// Recipes through which the baseline's own weights are read.
    fn forwards(&self) -> Vec<&str> {
        let Some(readings) = &self.study.profile.evaluation.readings else { return Vec::new() };
        readings.all.iter().chain(readings.arms.get(self.baseline).into_iter().flatten()).map(String::as_str).collect()
    }

    /// The recipe among them whose forward pass is that of `arm`.
    fn forward_of(&self, arm: &str) -> Option<&str> {
        let forward = |id: &str| self.study.recipes.get(id)?.forward().ok();
        let wanted = forward(arm)?;
        self.forwards().into_iter().find(|id| forward(id) == Some(wanted))
    }
}

/// One line of `data/readings.csv`; nats.
#[derive(Default, Serialize)]
struct Row<'a> {
    baseline: &'a str,
    arm: &'a str,
    over: &'static str,
    readings: usize,
    first_tokens: u64,
    last_tokens: u64,
    seeds: usize,
    gap: Number,
    gap_low: Option<Number>,
    gap_high: Option<Number>,
    training: Number,
    training_low: Option<Number>,
    training_high: Option<Number>,
    reading: Number,
    reading_low: Option<Number>,
    reading_high: Option<Number>,
    forward: &'a str,
    untrained: Option<Number>,
    untrained_low: Option<Number>,
    untrained_high: Option<Number>,
}

/// None without readings: a campaign that made none has no such file.
pub fn table(measurements: &Measurements) -> Option<Table> {
    let all = measurements.readings();
    let ends = |measured: &Measured| {
        let interval = measured.interval(CONFIDENCE);
        [interval.map(|interval| Number(interval.low)), interval.map(|interval| Number(interval.high))]
    };
    let row = |parts| {
        let Parts { arm, over, tokens, gap, training, reading, untrained }: &Parts = parts;
        let foreign = untrained.as_ref().map(|(_, measured)| measured);
        let [gap_low, gap_high] = ends(gap);
        let [training_low, training_high] = ends(training);
        let [reading_low, reading_high] = ends(reading);
        let [untrained_low, untrained_high] = foreign.map(ends).unwrap_or_default();
        Row {
            baseline: &measurements.baseline,
            arm,
            over: over.map_or("one reading", Stretch::word),
            readings: tokens.len(),
            first_tokens: tokens.first().copied().unwrap_or(0),
            last_tokens: tokens.last().copied().unwrap_or(0),
            seeds: gap.n,
            gap: Number(gap.number),
            gap_low,
            gap_high,
            training: Number(training.number),
            training_low,
            training_high,
            reading: Number(reading.number),
            reading_low,
            reading_high,
            forward: untrained.as_ref().map_or("", |(forward, _)| forward),
            untrained: foreign.map(|measured| Number(measured.number)),
            untrained_low,
            untrained_high,
        }
    };
    (!all.is_empty()).then(|| Table::of("readings.csv", all.iter().map(row)))
}
