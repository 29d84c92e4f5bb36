//! The law's part of the page: constants, efficiencies, predictions, and which form predicts what it has not seen.

use serde::Serialize;

use super::super::charts::{Curve, CurveChart};
use super::super::figure::{Figure, curve_figure};
use super::super::grid::{Cell, Grid, numbers, words};
use super::{Shown, reported};
use crate::law::{ALPHA_OF_OTHERS, ALPHAS, Base, Difference, Errors, Estimate, Form, FormFit, LEFT_OUT, Recipe, Report, Target};
use crate::measure::curves::MATCHED_SLOPE;
use crate::number::{self, SPACE, Unit};
use crate::synthesis::size;

/// A size's figures with their files: the fit over what was measured, and what it misses. More sizes than these are not drawn.
const FIGURES: [[(&str, &str); 2]; 4] = [
    [("law-1", "law-1.csv"), ("law-residuals-1", "law-residuals-1.csv")],
    [("law-2", "law-2.csv"), ("law-residuals-2", "law-residuals-2.csv")],
    [("law-3", "law-3.csv"), ("law-residuals-3", "law-residuals-3.csv")],
    [("law-4", "law-4.csv"), ("law-residuals-4", "law-residuals-4.csv")],
];

/// What the templates place.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Part {
    /// Why there is no law; empty where there is one.
    pub missing: String,
    pub said: Vec<String>,
    pub warning: String,
    pub grids: Vec<Grid>,
    pub pictures: Vec<String>,
    /// Names of the figures on paper.
    pub figures: Vec<String>,
    pub caption: String,
}

impl Shown<'_> {
    pub(super) fn law(&self) -> Part {
        let law = match &self.synthesis.law {
            Ok(law) => law,
            Err(why) => return Part { missing: format!("No law is fitted: {why}."), ..Part::default() },
        };
        let figures = self.law_figures();
        Part {
            missing: String::new(),
            said: said(law),
            warning: warning(law),
            grids: vec![self.efficiencies(law), self.predictions(law), forms(law), bases(law)],
            pictures: figures.iter().map(|figure| figure.inline.clone()).collect(),
            figures: figures.iter().map(|figure| figure.id.to_owned()).collect(),
            caption:
                "Loss above the baseline’s over tokens, thick what the fit says, thin what was measured; beside it what the fit misses"
                    .to_owned(),
        }
    }

    /// eff_N and eff_D of each recipe on several sizes, and the one number that one size tells of the others.
    fn efficiencies(&self, law: &Report) -> Grid {
        let columns = vec![
            words("Recipe", 0.24),
            words("Sizes", 0.12),
            numbers("eff_N", 0.16),
            numbers("eff_D", 0.16),
            numbers("eff_N alone", 0.15),
            numbers("eff_D alone", 0.15),
        ];
        let mut grid =
            Grid::new("law-efficiencies", "What a recipe is worth: its parameters and tokens as shares of the baseline’s", columns)
                .stacking();
        for recipe in &law.recipes {
            let of = |form: Form, at: usize| {
                let number = recipe.form(form).and_then(|fit| fit.numbers.get(at));
                number.map_or_else(|| Cell::new("–"), |number| cell(number, &|value| number::fixed(value, 3)))
            };
            let sizes: Vec<String> = recipe.parameters.iter().map(|parameters| size(*parameters)).collect();
            grid.row(
                &recipe.arm,
                vec![
                    Cell::new(self.label(&recipe.arm)),
                    sizes.join(", ").into(),
                    of(Form::Both, 0),
                    of(Form::Both, 1),
                    of(Form::Size, 0),
                    of(Form::Tokens, 0),
                ],
            );
        }
        grid
    }

    fn predictions(&self, law: &Report) -> Grid {
        let mut columns = vec![words("Recipe", 0.16), words("The paper", 0.08), words("Public logs", 0.14)];
        columns.extend(law.targets.iter().map(|target| {
            words(&format!("{} at {} tokens", size(target.parameters), tokens(target.tokens)), 0.58 / law.targets.len().max(1) as f64)
        }));
        let title = "Extra tokens to the baseline’s loss, and nats above it at equal tokens (modelled, extrapolated)";
        let mut grid = Grid::new("law-predictions", title, columns).stacking();
        for recipe in &law.recipes {
            let Some(fit) = recipe.form(law.best()).or_else(|| recipe.form(Form::Size)) else { continue };
            let (paper, public) = self.beside(&recipe.arm);
            let mut cells = vec![Cell::new(self.label(&recipe.arm)).detail(fit.form.word()), paper.into(), public];
            cells.extend((0..law.targets.len()).map(|at| prediction(recipe, fit, at)));
            grid.row(&recipe.arm, cells);
        }
        grid
    }

    /// What the paper and public logs say of a recipe's extra tokens.
    fn beside(&self, arm: &str) -> (String, Cell) {
        let Some(paper) = self.main() else { return Default::default() };
        let Some(claim) = paper.claim_on_tokens_of(arm) else { return ("–".to_owned(), Cell::new("–")) };
        let rows = self.synthesis.on(paper.id.as_str(), claim.id.as_str()).filter(|row| self.synthesis.sources[row.source].public);
        let mut lines: Vec<String> = rows.filter(|row| row.number.is_ok()).map(|row| row.text()).collect();
        let first = if lines.is_empty() { "–".to_owned() } else { lines.remove(0) };
        (reported(claim), Cell { text: first, lines, ..Cell::default() })
    }

    pub(super) fn law_figures(&self) -> Vec<Figure> {
        let Ok(law) = &self.synthesis.law else { return Vec::new() };
        let of_size = |(parameters, [fit, residuals]): (&u64, [(&'static str, &'static str); 2])| {
            [self.fit_figure(law, *parameters, fit), self.residual_figure(law, *parameters, residuals)]
        };
        law.parameters.iter().zip(FIGURES).flat_map(of_size).flatten().collect()
    }

    /// The recipes on several sizes, at one of them.
    fn fit_figure(&self, law: &Report, parameters: u64, names: (&'static str, &'static str)) -> Option<Figure> {
        let percent = |value: f64| 100.0 * value.exp_m1();
        let (fitted, measured) = (|point: &Difference| percent(point.fitted), |point: &Difference| percent(point.measured));
        let description = "Loss above the baseline's over training tokens, measured and by the law.";
        let chart = self.law_chart(law, parameters, &fitted, Some(&measured))?;
        let chart = CurveChart { description: description.to_owned(), y_label: "loss above the baseline's, %".to_owned(), ..chart };
        Some(curve_figure(names.0, "Loss above the baseline's, measured and by the law", &chart, names.1))
    }

    fn residual_figure(&self, law: &Report, parameters: u64, names: (&'static str, &'static str)) -> Option<Figure> {
        let missed = |point: &Difference| 1000.0 * (point.measured - point.fitted);
        let description = "What the law misses over training tokens: measured loss above the baseline's less that of the fit.";
        let chart = self.law_chart(law, parameters, &missed, None)?;
        let y_label = "measured less fitted, thousandths of ln-loss".to_owned();
        let chart = CurveChart { description: description.to_owned(), y_label, ..chart };
        Some(curve_figure(names.0, "What the law misses", &chart, names.1))
    }

    /// A number of every recipe on several sizes along one of them; `thin` is another, drawn beneath.
    fn law_chart(
        &self,
        law: &Report,
        parameters: u64,
        thick: &dyn Fn(&Difference) -> f64,
        thin: Option<&dyn Fn(&Difference) -> f64>,
    ) -> Option<CurveChart> {
        let curve = |recipe: &Recipe| {
            let at = recipe.parameters.iter().position(|size| *size == parameters).filter(|_| recipe.parameters.len() > 1)?;
            let points = |of: &dyn Fn(&Difference) -> f64| -> Vec<(f64, f64)> {
                recipe.differences[at].iter().map(|point| (point.tokens / 1e6, of(point))).collect()
            };
            Some(Curve { label: self.label(&recipe.arm).to_owned(), mean: points(thick), seeds: thin.into_iter().map(points).collect() })
        };
        let curves: Vec<Curve> = law.recipes.iter().filter_map(curve).collect();
        let all = || curves.iter().flat_map(|curve| curve.mean.iter().chain(curve.seeds.iter().flatten()));
        let (low, high) = all().fold((0.0f64, 0.0f64), |(low, high), point| (low.min(point.1), high.max(point.1)));
        let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
        (first.is_finite() && high > low).then(|| CurveChart {
            title: format!("{} parameters", size(parameters)),
            x_label: "training tokens, millions".to_owned(),
            x: (first, law.budget / 1e6),
            y: (low - 0.03 * (high - low), high + 0.03 * (high - low)),
            curves,
            ..CurveChart::default()
        })
    }

    /// What the law says of the paper's own size and tokens, in one sentence; empty where there is no law.
    pub(super) fn of_law(&self, arms: &[(&str, &str)]) -> String {
        let Ok(law) = &self.synthesis.law else { return String::new() };
        let Some(target) = law.targets.first() else { return String::new() };
        let said = |(arm, words): &(&str, &str)| {
            let fit = law.recipes.iter().find(|recipe| recipe.arm == *arm)?.form(law.best())?;
            let [number, low, high] = fit.overheads.first().map(|found| [found.value, found.interval.low, found.interval.high])?;
            Some(format!("{} [{},{SPACE}{}] {words}", extra(number), extra(low), extra(high)))
        };
        let said: Vec<String> = arms.iter().filter_map(said).collect();
        if said.is_empty() {
            return String::new();
        }
        let sizes: Vec<String> = law.parameters.iter().map(|parameters| size(*parameters)).collect();
        format!(
            "A law through models of {} extrapolates to {} parameters and {} tokens, the paper’s: {} (modelled).{}",
            number::listed(&sizes),
            size(target.parameters),
            tokens(target.tokens),
            number::listed(&said),
            other_depth(law, target).map(|depth| format!(" {depth}")).unwrap_or_default()
        )
    }
}

/// Where the law's own curve of the baseline is not as steep at a target as the paper's runs are at theirs.
fn other_depth(law: &Report, target: &Target) -> Option<String> {
    let slope = law.slope(target)?;
    let [low, high] = MATCHED_SLOPE;
    (!(low..=high).contains(&slope)).then(|| {
        format!(
            "That is another depth of training: there the law’s curve of the baseline falls by {} nat per ln-token, the paper’s by {} to {}, so the two are not to be held against each other.",
            number::fixed(slope, 2),
            number::fixed(low, 2),
            number::fixed(high, 2)
        )
    })
}

/// A number over its interval.
fn cell(number: &Estimate, text: &dyn Fn(f64) -> String) -> Cell {
    Cell::new(text(number.value)).detail(format!("[{},{SPACE}{}]", text(number.interval.low), text(number.interval.high)))
}

/// Extra tokens, whole percents; more than ten times as many is no number that anybody needs exactly.
fn extra(value: f64) -> String {
    if value > 10.0 { format!(">{SPACE}10×") } else { format!("{}{SPACE}%", number::signed(100.0 * value, 0)) }
}

fn prediction(recipe: &Recipe, fit: &FormFit, at: usize) -> Cell {
    let (Some(overhead), Some(gap), Some(others)) = (fit.overheads.get(at), fit.gaps.get(at), fit.other_laws.get(at)) else {
        return Cell::new("–");
    };
    let (low, high) = (overhead.interval.low, overhead.interval.high);
    // Far out a small difference of either sign is anything between a saving of nearly all tokens and never.
    let says_nothing = low < 0.0 && high > 10.0;
    let mut shown = match overhead.value {
        _ if says_nothing => Cell::new("cannot be told"),
        value if value.is_finite() => cell(overhead, &extra),
        _ => Cell::new("never"),
    };
    let nats = |value: f64| number::signed(value, 3);
    let mut further = vec![format!("{} nat [{},{SPACE}{}]", nats(gap.value), nats(gap.interval.low), nats(gap.interval.high))];
    if !says_nothing && others.low <= 10.0 {
        further.push(format!("other laws: {} to {}", extra(others.low), extra(others.high)));
    }
    let other = recipe.form(Form::Tokens).filter(|_| fit.form != Form::Tokens).and_then(|fit| fit.overheads.get(at));
    further.extend(other.map(|other| format!("eff_D alone: {}", extra(other.value))));
    shown.lines.push(further.join("; "));
    shown
}

fn tokens(count: f64) -> String {
    if count >= 1e12 {
        format!("{} T", number::fixed(count / 1e12, 0))
    } else {
        format!("{} B", number::fixed(count / 1e9, usize::from(count < 1e10)))
    }
}

fn said(law: &Report) -> Vec<String> {
    let sizes: Vec<String> = law
        .parameters
        .iter()
        .zip(&law.seeds)
        .map(|(parameters, seeds)| format!("{} ({seeds} seed{})", size(*parameters), number::plural(*seeds)))
        .collect();
    let mut said = vec![format!(
        "L(N, D) = E + (a/(N eff_N)^alpha + b/(D eff_D)^beta)^gamma, N in units of 10 M parameters (all of them, embeddings too) and D of 100 M tokens. Fitted to the whole loss curves of {}: {} M tokens each, without the first {} %, in which the learning rate warms up. The constants are the baseline’s; a recipe is fitted to its measured difference from the baseline, paired by seed. Points along one run are not independent, so intervals (95 %) come from drawing whole runs of a size again, {} times.",
        number::listed(&sizes),
        number::fixed(law.budget / 1e6, 0),
        number::fixed(100.0 * LEFT_OUT, 0),
        law.draws
    )];
    said.extend(lent(law));
    let constant = |at: usize| {
        law.constants
            .get(at)
            .map(|number| {
                format!(
                    "{} [{},{SPACE}{}]",
                    number::fixed(number.value, 3),
                    number::fixed(number.interval.low, 3),
                    number::fixed(number.interval.high, 3)
                )
            })
            .unwrap_or_default()
    };
    let alpha =
        if law.holds_alpha() { format!("{} held, not fitted", number::fixed(ALPHA_OF_OTHERS, 3)) } else { constant(crate::law::ALPHA) };
    said.push(format!(
        "Baseline: E = {}, a = {}, alpha = {alpha}, b = {}, beta = {}, gamma = 1 held.",
        constant(crate::law::E),
        constant(crate::law::A),
        constant(crate::law::B),
        constant(crate::law::BETA)
    ));
    if law.holds_alpha() {
        let [smaller, larger] = ALPHAS.map(|alpha| alpha.to_string());
        said.push(format!("Two sizes cannot tell E, a and alpha apart: alpha is that of Besiroglu et al. (arXiv 2404.10102) for Chinchilla’s runs, and the other laws below are alpha = {smaller} and {larger} and a free gamma. With another alpha eff_N is another number. A recipe at one size has one number only."));
    }
    said.extend(better_base(law));
    said.extend(still_growing(law));
    said.push(format!(
        "Of the forms of a recipe, {} predicts a size that it has not seen best; predictions are its own; never means that no number of tokens is enough.",
        law.best().word()
    ));
    said
}

/// A form of the baseline's law that predicts better than the one on which recipes are fitted.
fn better_base(law: &Report) -> Option<String> {
    let first = law.bases.iter().min_by(|a, b| a.errors.later.total_cmp(&b.errors.later)).filter(|first| first.base != Base::Additive)?;
    let own = law.bases.iter().find(|base| base.base == Base::Additive)?;
    let nats = |value: f64| number::fixed(value, 3);
    let sizes = first
        .errors
        .size
        .zip(own.errors.size)
        .map(|(first, own)| format!(", on a size that it has not seen {} against {}", nats(first), nats(own)));
    Some(format!(
        "The baseline’s law is better as {}: on tokens that it has not seen it errs by {} nat, the additive one by {}{}. Recipes are fitted on the additive one all the same, which has fewer constants; the other is among the other laws.",
        first.base.word(),
        nats(first.errors.later),
        nats(own.errors.later),
        sizes.unwrap_or_default()
    ))
}

/// Sizes of one seed, whose intervals rest on another size's scatter.
fn lent(law: &Report) -> Option<String> {
    let of = |(parameters, other): (&u64, &Option<u64>)| Some(format!("{} takes that of {}", size(*parameters), size((*other)?)));
    let lent: Vec<String> = law.parameters.iter().zip(&law.scatter_of).filter_map(of).collect();
    (!lent.is_empty()).then(|| format!("One seed tells nothing of how runs scatter: {}.", lent.join("; ")))
}

/// Where the law lets a difference level off and the runs do not.
fn still_growing(law: &Report) -> Option<String> {
    let largest = law.parameters.last()?;
    let several = law.recipes.iter().filter(|recipe| recipe.parameters.len() > 1 && recipe.parameters.last() == Some(largest));
    let ends: Vec<&Difference> = several.filter_map(|recipe| recipe.differences.last()?.last()).collect();
    let above = ends.iter().filter(|end| end.measured > end.fitted).count();
    let mut shares: Vec<f64> = ends.iter().map(|end| 100.0 * end.fitted / end.measured).collect();
    shares.sort_by(f64::total_cmp);
    let [least, most] = [shares.first()?, shares.last()?].map(|share| number::fixed(*share, 0));
    (2 * above > ends.len()).then(|| {
        format!(
            "At the end of the runs of {}, {above} of {} recipes lie above their fit, which is {least} to {most} % of the measured difference: the measured loss above the baseline’s still grows where the law lets it level off, so the law is too kind at the end, and likely beyond it. No interval holds that.",
            size(*largest),
            ends.len()
        )
    })
}

fn warning(law: &Report) -> String {
    let far: Vec<String> = law
        .targets
        .iter()
        .map(|target| {
            let [parameters, length] = law.beyond(target).map(|factor| number::fixed(factor, 1));
            format!(
                "{} at {} tokens: {parameters} factors of ten beyond the largest model, {length} beyond the longest run",
                size(target.parameters),
                tokens(target.tokens)
            )
        })
        .collect();
    format!(
        "Everything here about other sizes and budgets is modelled and extrapolates: {}. Intervals hold the scatter of runs and not that the law may be another one so far away.",
        far.join("; ")
    )
}

fn errors(errors: &Errors) -> [Cell; 3] {
    let nats = |value: f64| Cell::new(Unit::Nats.number(value).replace('+', ""));
    [nats(errors.fitted), nats(errors.later), errors.size.map_or_else(|| Cell::new("–"), nats)]
}

const ERRORS: [&str; 3] = ["Where fitted", "Last quarter left out", "One size left out"];

fn forms(law: &Report) -> Grid {
    let mut columns = vec![words("Form of a recipe", 0.34)];
    columns.extend(ERRORS.map(|title| numbers(title, 0.20)));
    let mut grid =
        Grid::new("law-forms", "Which form predicts what it has not seen: root mean square errors over recipes on several sizes", columns)
            .stacking();
    for (form, found) in &law.forms {
        let best = if *form == law.best() { "best on unseen sizes" } else { "" };
        grid.row(form.word(), [Cell::new(form.word()).detail(best)].into_iter().chain(errors(found)).collect());
    }
    grid
}

fn bases(law: &Report) -> Grid {
    let mut columns = vec![words("Form of the baseline’s law", 0.34)];
    columns.extend(ERRORS.map(|title| numbers(title, 0.20)));
    let mut grid = Grid::new("law-bases", "The baseline’s law in three forms: root mean square errors", columns).stacking();
    for fit in &law.bases {
        grid.row(&format!("{:?}", fit.base), [Cell::new(fit.base.word())].into_iter().chain(errors(&fit.errors)).collect());
    }
    grid
}
