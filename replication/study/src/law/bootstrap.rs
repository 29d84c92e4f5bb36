//! Intervals: the whole experiment again and again with other outcomes of its runs, and each time every fit.

use std::collections::BTreeMap;

use super::curves::Size;
use super::{Difference, Estimate, FormFit, Recipe, Target, arms, held_out};
use crate::draws::Draws;
use crate::statistics::{CONFIDENCE, Interval};
use scaling_law::{Base, E, Form, GAMMA, Law, Place, Point, REFERENCE, law, law_at, law_from, recipe, recipe_from};

/// How much work an interval is worth.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub draws: usize,
}

impl Default for Effort {
    /// With 200 draws an end of a 95 % interval is the sixth from outside.
    fn default() -> Self {
        Self { draws: 200 }
    }
}

/// A recipe under a form: its numbers, then its extra tokens and its loss above the baseline's at each target.
struct Found {
    numbers: Vec<f64>,
    overheads: Vec<f64>,
    gaps: Vec<f64>,
}

type Outcome = BTreeMap<(String, Form), Found>;

/// Exponents of size on both sides of the one that is held with two sizes.
pub const ALPHAS: [f64; 2] = [0.25, 0.5];

pub(super) struct Bootstrap {
    law: Law,
    laws: Vec<Law>,
    first: Outcome,
    again: Vec<Outcome>,
    /// Under other laws of the baseline, with the same runs.
    others: Vec<Outcome>,
}

/// The form of the baseline's law with which recipes are fitted.
pub(super) const BASE: Base = Base::Additive;

pub(super) fn run(sizes: &[Size], targets: &[Target], effort: Effort) -> Option<Bootstrap> {
    let points = |sizes: &[Size]| sizes.iter().flat_map(|size| size.points(false).collect::<Vec<_>>()).collect::<Vec<_>>();
    let fitted = law(&points(sizes), BASE, sizes.len())?.law;
    let first = outcome(sizes, &fitted, targets, None);
    let others = variants(&points(sizes), sizes.len(), fitted);
    let others = others.iter().map(|law| outcome(sizes, law, targets, Some(&first))).collect();
    let (mut laws, mut again, mut draws) = (Vec::new(), Vec::new(), Draws::default());
    for _ in 0..effort.draws {
        let drawn: Vec<Size> = sizes.iter().map(|size| size.drawn(&mut draws)).collect();
        let law = law_from(&points(&drawn), BASE, drawn.len(), fitted).law;
        again.push(outcome(&drawn, &law, targets, Some(&first)));
        laws.push(law);
    }
    Some(Bootstrap { law: fitted, laws, first, again, others })
}

/// Other laws that the baseline's curves allow or cannot exclude: gamma free, and with two sizes a smaller and a larger exponent of size.
fn variants(points: &[Point], sizes: usize, fitted: Law) -> Vec<Law> {
    let alphas = ALPHAS.iter().filter(|_| sizes < 3).map(|alpha| law_at(points, *alpha, fitted));
    law(points, Base::Joint, sizes).map(|found| found.law).into_iter().chain(alphas).collect()
}

/// Every recipe under every form that its sizes can tell.
fn outcome(sizes: &[Size], law: &Law, targets: &[Target], start: Option<&Outcome>) -> Outcome {
    let mut outcome = Outcome::new();
    for (arm, of_arm) in arms(sizes) {
        let points = held_out::points(&of_arm, law, arm, false);
        for form in forms(of_arm.len()) {
            let key = (arm.to_owned(), form);
            let near = start.and_then(|start| start.get(&key)).map(|found| found.numbers.as_slice());
            let numbers = near.map_or_else(|| recipe(&points, law, form), |near| recipe_from(&points, law, form, near));
            let place = |target: &Target| Place::of(target.parameters as f64, target.tokens);
            let overhead = |target: &Target| form.overhead(law, place(target), &numbers).unwrap_or(f64::INFINITY);
            let overheads = targets.iter().map(overhead).collect();
            let gaps = targets.iter().map(|target| form.gap(law, place(target), &numbers)).collect();
            outcome.insert(key, Found { numbers, overheads, gaps });
        }
    }
    outcome
}

/// One size tells one number.
fn forms(sizes: usize) -> impl Iterator<Item = Form> {
    Form::ALL.into_iter().filter(move |form| form.count() <= sizes)
}

/// A number with the middle 95 % of `again`.
fn estimate(value: f64, again: impl Iterator<Item = f64>) -> Estimate {
    let mut sorted: Vec<f64> = again.collect();
    sorted.sort_by(f64::total_cmp);
    let end = |share: f64| {
        let at = (share * (sorted.len().max(1) - 1) as f64).round() as usize;
        sorted.get(at).copied().unwrap_or(value)
    };
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Estimate { value, interval: Interval::new(end(tail), end(1.0 - tail)) }
}

impl Bootstrap {
    pub(super) fn constants(&self) -> Vec<Estimate> {
        (E..=GAMMA).map(|at| estimate(self.law.constant(at), self.laws.iter().map(|law| law.constant(at)))).collect()
    }

    pub(super) fn recipes(&self, sizes: &[Size], targets: &[Target]) -> Vec<Recipe> {
        let one = |(arm, of_arm): (&str, Vec<&Size>)| {
            let fits: Vec<FormFit> = forms(of_arm.len()).filter_map(|form| self.form(&of_arm, arm, form, targets.len())).collect();
            let shown = if of_arm.len() > 1 { Form::Both } else { Form::Tokens };
            let numbers = self.first.get(&(arm.to_owned(), shown)).map(|found| found.numbers.clone()).unwrap_or_default();
            Recipe {
                arm: arm.to_owned(),
                parameters: of_arm.iter().map(|size| size.parameters).collect(),
                forms: fits,
                differences: of_arm.iter().map(|size| self.differences(size, arm, shown, &numbers)).collect(),
            }
        };
        arms(sizes).into_iter().map(one).collect()
    }

    fn form(&self, sizes: &[&Size], arm: &str, form: Form, targets: usize) -> Option<FormFit> {
        let key = (arm.to_owned(), form);
        let first = self.first.get(&key)?;
        let again: Vec<&Found> = self.again.iter().filter_map(|outcome| outcome.get(&key)).collect();
        let shown = |number: f64| if form == Form::Gap { number } else { number.exp() };
        let number = |at: usize| estimate(shown(first.numbers[at]), again.iter().map(|found| shown(found.numbers[at])));
        let range = |at: usize| {
            let all = self.others.iter().filter_map(|outcome| outcome.get(&key)).map(|found| found.overheads[at]);
            let (low, high) = all.fold((first.overheads[at], first.overheads[at]), |(low, high), one| (low.min(one), high.max(one)));
            Interval::new(low, high)
        };
        Some(FormFit {
            form,
            numbers: (0..form.count()).map(number).collect(),
            errors: held_out::recipe_errors(sizes, &self.law, arm, form),
            overheads: (0..targets).map(|at| estimate(first.overheads[at], again.iter().map(|found| found.overheads[at]))).collect(),
            gaps: (0..targets).map(|at| estimate(first.gaps[at], again.iter().map(|found| found.gaps[at]))).collect(),
            other_laws: (0..targets).map(range).collect(),
        })
    }

    fn differences(&self, size: &Size, arm: &str, form: Form, numbers: &[f64]) -> Vec<Difference> {
        let Some((curve, _)) = size.arms.get(arm) else { return Vec::new() };
        let one = |(place, measured): (&Place, &f64)| Difference {
            tokens: place.d.exp() * REFERENCE.1,
            measured: *measured,
            fitted: form.value(&self.law, *place, numbers).0 - self.law.loss(*place).ln(),
        };
        size.places.iter().zip(curve).map(one).collect()
    }
}
