//! One law for the loss of every recipe, in parameters and tokens: L(N, D) = E + (A / (N eff_N)^alpha + B / (D eff_D)^beta)^gamma.
//!
//! `curves` makes points of runs, `forms` holds functions and their derivatives, `fit` minimises, `bootstrap` draws whole runs again,
//! `held_out` asks which form predicts what it has not seen. The constants are the baseline's. A recipe is fitted to its difference from the
//! baseline's measured curve, so that where the law misses both alike nothing is taken for an effect of the recipe. All that is said of other
//! sizes and budgets is modelled.

mod bootstrap;
mod curves;
mod held_out;

use std::collections::BTreeMap;

use crate::measure::Measurements;
use crate::statistics::Interval;

pub use bootstrap::{ALPHAS, Effort};
pub use curves::LEFT_OUT;
pub use scaling_law::{A, ALPHA, ALPHA_OF_OTHERS, B, BETA, Base, E, Fitted, Form, GAMMA, Law, Place, Point};

use curves::Size;

/// A number with its 95 % interval from whole runs drawn again; the number is infinite where no number of tokens is enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub interval: Interval,
}

/// A form's errors, nats per token, root mean square.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Errors {
    /// On what it was fitted to.
    pub fitted: f64,
    /// On the last quarter of the budget, fitted to what is before.
    pub later: f64,
    /// On each size, fitted to the others; none where the others do not suffice.
    pub size: Option<f64>,
}

/// The baseline's law in one form.
#[derive(Debug, Clone, PartialEq)]
pub struct BaseFit {
    pub base: Base,
    pub law: Law,
    pub errors: Errors,
}

/// A recipe under one form.
#[derive(Debug, Clone, PartialEq)]
pub struct FormFit {
    pub form: Form,
    /// eff_N, eff_D, or a gap in nats.
    pub numbers: Vec<Estimate>,
    pub errors: Errors,
    /// Extra tokens at each target, as a share.
    pub overheads: Vec<Estimate>,
    /// Loss above the baseline's at each target, nats.
    pub gaps: Vec<Estimate>,
    /// Least and most extra tokens under other laws of the baseline: gamma free, other exponents of size.
    pub other_laws: Vec<Interval>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    pub arm: String,
    pub parameters: Vec<u64>,
    /// By [`Form::ALL`]; only those that so many sizes can tell.
    pub forms: Vec<FormFit>,
    /// Measured ln-loss above the baseline's, and what the form with both numbers says, at each place: by size.
    pub differences: Vec<Vec<Difference>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    pub tokens: f64,
    pub measured: f64,
    /// By the forms of the recipe.
    pub fitted: f64,
}

/// Where a prediction is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    pub parameters: u64,
    pub tokens: f64,
}

/// All that the law says.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Names of the campaigns, from the smallest model.
    pub campaigns: Vec<String>,
    pub parameters: Vec<u64>,
    pub seeds: Vec<usize>,
    /// Of each size, the parameters of the size whose scatter it takes, where one seed tells nothing of its own.
    pub scatter_of: Vec<Option<u64>>,
    /// Tokens of a run.
    pub budget: f64,
    pub baseline: String,
    /// By [`Base::ALL`].
    pub bases: Vec<BaseFit>,
    /// The constants of the form that recipes are fitted with: E, a, alpha, b, beta, gamma.
    pub constants: Vec<Estimate>,
    pub recipes: Vec<Recipe>,
    /// Errors of each form over all recipes on more than one size.
    pub forms: Vec<(Form, Errors)>,
    pub targets: Vec<Target>,
    /// Draws behind the intervals.
    pub draws: usize,
}

impl Report {
    /// Whether the exponent of size is taken from others.
    pub fn holds_alpha(&self) -> bool {
        self.parameters.len() < 3
    }

    /// The form that predicts sizes it has not seen best.
    pub fn best(&self) -> Form {
        let error = |errors: &Errors| errors.size.unwrap_or(errors.later);
        let found = self.forms.iter().filter(|(form, _)| *form != Form::Same).min_by(|a, b| error(&a.1).total_cmp(&error(&b.1)));
        found.map_or(Form::Both, |(form, _)| *form)
    }

    /// How steep the baseline's curve is at a target, by the form that recipes are fitted with: nats per ln-token, positive where it falls.
    pub fn slope(&self, target: &Target) -> Option<f64> {
        let law = &self.bases.iter().find(|base| base.base == Base::Additive)?.law;
        let loss = |tokens: f64| law.loss(Place::of(target.parameters as f64, tokens));
        const STEP: f64 = 0.01;
        Some((loss(target.tokens * (-STEP).exp()) - loss(target.tokens * STEP.exp())) / (2.0 * STEP))
    }

    /// Factors of ten between the largest model and longest run that were measured and a target.
    pub fn beyond(&self, target: &Target) -> [f64; 2] {
        let largest = self.parameters.iter().max().copied().unwrap_or(1) as f64;
        [(target.parameters as f64 / largest).log10(), (target.tokens / self.budget).log10()]
    }
}

impl Recipe {
    pub fn form(&self, form: Form) -> Option<&FormFit> {
        self.forms.iter().find(|fit| fit.form == form)
    }
}

/// Campaigns that differ in nothing but size: one text, one tokenizer, one budget, one batch, one baseline.
pub struct Ladder<'a> {
    pub baseline: &'a str,
    /// Name and measurements, one a size, from the smallest.
    pub rungs: Vec<(&'a str, &'a Measurements)>,
}

/// The law of a ladder; why there is none.
///
/// # Errors
/// When there are fewer than two sizes, or none knows how its runs scatter.
pub fn of(ladder: &Ladder, targets: &[Target], effort: Effort) -> Result<Report, String> {
    let budget = ladder.rungs.first().map_or(0.0, |(_, measurements)| budget(measurements));
    let mut sizes: Vec<Size> = ladder
        .rungs
        .iter()
        .map(|(name, measurements)| Size::of(measurements, ladder.baseline, budget).map_err(|why| format!("{name}: {why}")))
        .collect::<Result<_, _>>()?;
    if sizes.len() < 2 {
        return Err("the law takes two sizes of one text, tokenizer, budget and batch".to_owned());
    }
    curves::lend_scatter(&mut sizes)?;
    let bootstrap = bootstrap::run(&sizes, targets, effort).ok_or("no law can be fitted to the baseline's curves")?;
    let recipes = bootstrap.recipes(&sizes, targets);
    let forms = held_out::over_recipes(&recipes);
    Ok(Report {
        campaigns: ladder.rungs.iter().map(|(name, _)| (*name).to_owned()).collect(),
        parameters: sizes.iter().map(|size| size.parameters).collect(),
        seeds: sizes.iter().map(|size| size.seeds).collect(),
        scatter_of: sizes.iter().map(|size| size.scatter_of).collect(),
        budget,
        baseline: ladder.baseline.to_owned(),
        bases: held_out::bases(&sizes),
        constants: bootstrap.constants(),
        recipes,
        forms,
        targets: targets.to_vec(),
        draws: effort.draws,
    })
}

/// Tokens of a whole run.
pub fn budget(measurements: &Measurements) -> f64 {
    let step = measurements.runs.iter().map(|run| run.tokens_per_step).max().unwrap_or(0);
    measurements.study.profile.budget.steps.saturating_mul(step) as f64
}

/// A recipe's arms by how many sizes have it.
fn arms(sizes: &[Size]) -> BTreeMap<&str, Vec<&Size>> {
    let mut arms: BTreeMap<&str, Vec<&Size>> = BTreeMap::new();
    for size in sizes {
        for arm in size.arms.keys() {
            arms.entry(arm).or_default().push(size);
        }
    }
    arms
}
