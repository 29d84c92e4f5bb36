//! The tables that the second version judges by: for a baseline, its mean curve, and over each stretch one layout of extra tokens and one
//! of losses.

use std::collections::{BTreeMap, BTreeSet};

use super::power::Design;
use crate::judge::verdict::Precision;
use crate::layout::{Layout, Levels, Measured, ONE_SEED, Values};
use crate::measure::Measurements;
use crate::measure::curves::{MATCHED_SLOPE, Ruler, Stretch, runs_of};
use crate::number::fixed;

use super::question::Scale;

/// Simulated tables behind the p-value of Levene's statistic.
const TABLES: usize = 1_000;

/// One stretch of the budget as two tables.
#[derive(Debug, Clone)]
pub(crate) struct Sheet {
    pub stretch: Stretch,
    evaluations: usize,
    /// Tokens at the first and the last evaluation.
    tokens: [u64; 2],
    values: Values,
    layouts: [Result<Layout, String>; 2],
}

/// Everything measured against one baseline.
#[derive(Debug, Clone)]
pub(crate) struct Sheets {
    pub baseline: String,
    pub ruler: Ruler,
    /// None when the budget ends before the baseline's slope is that of the paper's target.
    pub matched: Option<Sheet>,
    pub late: Sheet,
}

impl Sheet {
    fn of(measurements: &Measurements, ruler: &Ruler, baseline: &str, stretch: Stretch) -> Option<Self> {
        let evaluations = ruler.stretch(stretch);
        let tokens = [ruler.tokens[*evaluations.first()?], ruler.tokens[*evaluations.last()?]];
        let [values, losses] = ruler.table(&measurements.runs, &measurements.study, &evaluations);
        let layouts = [Layout::of(&values, baseline), Layout::of(&losses, baseline)];
        Some(Self { stretch, evaluations: evaluations.len(), tokens, values, layouts })
    }

    pub(crate) fn layout(&self, scale: Scale) -> Result<&Layout, &String> {
        self.layouts[usize::from(scale == Scale::Nats)].as_ref()
    }

    /// Seeds of `arm` that ran to an end, and those of them that have no number: they diverged, or stayed above the baseline's whole curve.
    pub(crate) fn lost(&self, measurements: &Measurements, arm: &str) -> (usize, usize) {
        let finished = measurements.runs.iter().filter(|run| run.finished() && measurements.study.repeated(&run.arm) == arm);
        let seeds: BTreeSet<u64> = finished.map(|run| run.seed).collect();
        let have = self.values.get(arm).map_or(0, BTreeMap::len);
        (seeds.len(), seeds.len().saturating_sub(have))
    }

    /// Why its numbers have no intervals, where they have none.
    pub(crate) fn without_intervals(&self) -> Option<String> {
        match self.layout(Scale::Tokens) {
            Ok(layout) => layout.scatter.is_none().then(|| ONE_SEED.to_owned()),
            Err(why) => Some(why.clone()),
        }
    }

    /// Those that have a number.
    pub(crate) fn arms(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Extra tokens of `arm`, as the logarithm of a ratio.
    pub(crate) fn overhead(&self, arm: &str, baseline: &str) -> Result<Measured, String> {
        self.difference(Scale::Tokens, arm, baseline)
    }

    /// Loss of `arm` above that of `baseline` at equal tokens, in nats.
    pub(crate) fn gap(&self, arm: &str, baseline: &str) -> Result<Measured, String> {
        self.difference(Scale::Nats, arm, baseline)
    }

    fn difference(&self, scale: Scale, arm: &str, baseline: &str) -> Result<Measured, String> {
        self.layout(scale).map_err(String::clone)?.contrast(&[(arm, 1.0), (baseline, -1.0)])
    }

    /// The campaign as a simulation sees it.
    pub(crate) fn design(&self, scale: Scale) -> Option<Design> {
        let layout = self.layout(scale).ok()?;
        let arms = self.values.keys().map(|arm| (arm.clone(), layout.runs(arm))).collect();
        Some(Design { arms, scatter: layout.scatter? })
    }

    /// What its intervals rest on; none where there is no layout.
    pub(crate) fn precision(&self, baseline: &str) -> Option<Precision> {
        let layout = self.layout(Scale::Tokens).ok()?;
        let design = self.design(Scale::Tokens)?;
        let scatter = design.scatter;
        let share = |logarithm: f64| logarithm.exp_m1();
        Some(Precision {
            baseline: baseline.to_owned(),
            stretch: self.stretch.word().to_owned(),
            evaluations: self.evaluations,
            tokens: self.tokens,
            arms: layout.arms.len(),
            seeds: layout.seeds.len(),
            sd: share(scatter.run.sd()),
            freedom: scatter.run.freedom,
            own_sd: scatter.own.map(|own| share(own.sd())),
            own_freedom: scatter.own.map(|own| own.freedom),
            common_error: layout.common_error(baseline).map(share),
            gap_sd: self.layout(Scale::Nats).ok().and_then(|layout| Some(layout.scatter?.run.sd())),
            levene: layout.levene(TABLES).map(|checked| checked.p),
            additivity: layout.additivity().map(|checked| checked.p),
            seeds_for: [0.01_f64, 0.02].map(|points| design.seeds_for(points.ln_1p(), baseline)),
        })
    }
}

impl Sheets {
    /// # Errors
    /// Why nothing can be measured against this baseline, for the reader.
    pub(crate) fn of(measurements: &Measurements, baseline: &str) -> Result<Self, String> {
        let runs = runs_of(&measurements.runs, &measurements.study, baseline);
        let ruler = Ruler::of(&runs, measurements.study.profile.budget.steps)?;
        let sheet = |stretch| Sheet::of(measurements, &ruler, baseline, stretch);
        let late = sheet(Stretch::LastQuarter).ok_or("the baseline has no evaluation in the last quarter of the budget")?;
        Ok(Self { baseline: baseline.to_owned(), matched: sheet(Stretch::Matched), late, ruler })
    }

    /// Where directions are judged: at matched depth, or at the end of a budget that does not reach it.
    pub(crate) fn decisive(&self) -> &Sheet {
        self.matched.as_ref().unwrap_or(&self.late)
    }

    /// Why no size is judged, in short and as a sentence; none when matched depth is reached.
    pub(crate) fn too_short(&self) -> Option<(&'static str, String)> {
        let [low, high] = MATCHED_SLOPE.map(|slope| fixed(slope, 2));
        let known = self.ruler.last_slope().map(|slope| format!("ends at a slope of {} nat per ln-token", fixed(slope, 2)));
        let ends = known.unwrap_or_else(|| "has too few evaluations for a slope".to_owned());
        let why = format!("The baseline {ends}; the paper's depth is where it is {low} to {high}.");
        self.matched.is_none().then_some(("the budget ends before the paper's depth", why))
    }
}
