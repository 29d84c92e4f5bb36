//! The cost of MXFP4 as the curve that it is: against tokens, against the loss that is asked for, and against the baseline's slope, with
//! the paper's numbers where they belong; and how far single runs scatter along the way.

use std::collections::{BTreeMap, BTreeSet};

use super::answer;
use super::charts::{Curve, CurveChart, Marked};
use super::dots::Reported;
use super::figure::{Figure, curve_figure, label, token_scale};
use crate::manifest::Paper;
use crate::measure::Measurements;
use crate::measure::curves::{Cost, MATCHED_SLOPE};
use crate::measure::study::{is_full, is_plain};

/// Before this share of the budget, losses fall so fast that an overhead says little.
pub(super) const FROM: f64 = 0.1;
/// More curves than this cannot be told apart.
const MOST: usize = 8;

/// Figures of the first paper's arms against its baseline; none where the baseline gives no curve.
pub(super) fn figures(measurements: &Measurements) -> Vec<Figure> {
    let Some(paper) = measurements.study.papers.first() else { return Vec::new() };
    let all = measurements.costs();
    let last = all.iter().map(|cost| cost.tokens).max().unwrap_or(0) as f64;
    let late: Vec<&Cost> = all.iter().filter(|cost| cost.tokens as f64 >= FROM * last).collect();
    let shown = Shown { measurements, paper, costs: late, arms: arms(measurements, paper) };
    let drawn = [shown.against_tokens(), shown.gap(), shown.against_loss(), shown.against_slope(), shown.scatter()];
    drawn.into_iter().flatten().collect()
}

/// Arms of the paper's table that quantise all three products, and those without a stabiliser.
pub(super) fn arms<'a>(measurements: &Measurements, paper: &'a Paper) -> Vec<(&'a str, Reported)> {
    let wanted = |arm: &str| measurements.study.recipes.get(arm).is_some_and(|recipe| is_plain(recipe) || is_full(recipe));
    answer::reported(paper).into_iter().filter(|(arm, _)| wanted(arm)).take(MOST).collect()
}

struct Shown<'a> {
    measurements: &'a Measurements,
    paper: &'a Paper,
    costs: Vec<&'a Cost>,
    arms: Vec<(&'a str, Reported)>,
}

impl Shown<'_> {
    /// A curve for each arm that has points, with what the paper reports of it.
    fn curves(&self, point: &dyn Fn(&Cost) -> Option<(f64, f64)>) -> Vec<(Curve, Reported)> {
        let curve = |(arm, said): &(&str, Reported)| {
            let mean: Vec<(f64, f64)> = self.costs.iter().filter(|cost| cost.arm == *arm).filter_map(|cost| point(cost)).collect();
            (mean.len() > 1).then(|| (Curve { label: label(&self.measurements.study, arm), mean, seeds: Vec::new() }, said.clone()))
        };
        self.arms.iter().filter_map(curve).collect()
    }

    fn tokens(&self, cost: &Cost) -> f64 {
        cost.tokens as f64 / token_scale(self.measurements).0
    }

    fn baseline(&self) -> &str {
        self.measurements.study.label(&self.paper.baseline)
    }

    fn overhead_label(&self) -> String {
        format!("extra tokens over {}, %", self.baseline())
    }

    fn against_tokens(&self) -> Option<Figure> {
        let curves = self.curves(&|cost| Some((self.tokens(cost), 100.0 * cost.overhead.0)));
        let chart = chart("Extra tokens, along the budget", (token_scale(self.measurements).1, &self.overhead_label()), false, curves)?;
        let caption = "Extra tokens to the arm’s own loss, against the tokens at which it has it";
        Some(curve_figure("cost-tokens", caption, &chart, "cost-tokens.csv"))
    }

    fn gap(&self) -> Option<Figure> {
        let curves = self.curves(&|cost| Some((self.tokens(cost), 1000.0 * cost.gap.0)));
        let y = format!("loss above {}, thousandths of a nat", self.baseline());
        let chart = chart("The gap at equal tokens", (token_scale(self.measurements).1, &y), false, curves)?;
        Some(curve_figure("cost-gap", "The gap in loss at equal tokens", &chart, "cost-gap.csv"))
    }

    fn against_loss(&self) -> Option<Figure> {
        let curves = self.curves(&|cost| Some((cost.baseline_loss.0 + cost.gap.0, 100.0 * cost.overhead.0)));
        let chart = chart("Extra tokens, by the loss asked for", ("loss reached, nats per token", &self.overhead_label()), true, curves)?;
        Some(curve_figure("cost-loss", "Extra tokens against the loss that is asked for, training to the right", &chart, "cost-loss.csv"))
    }

    /// The axis on which runs of different size can be set beside each other; after the steepest part, as where claims are judged.
    fn against_slope(&self) -> Option<Figure> {
        let depths = self.depths();
        let curves = self.curves(&|cost| Some((*depths.get(&cost.tokens)?, 100.0 * cost.overhead.0)));
        let said: Vec<Reported> = curves.iter().map(|(_, said)| said.clone()).collect();
        let x = format!("slope of {}, nat per ln-token", self.baseline());
        let mut chart = chart("Extra tokens, by the baseline’s slope", (&x, &self.overhead_label()), true, curves)?;
        let [low, high] = MATCHED_SLOPE;
        // The whole band is shown, and what the paper reports in it, also where these runs end before it.
        chart.x = (chart.x.0.max(high), chart.x.1.min(low));
        chart.band = Some(((high, low), "the paper’s depth".to_owned()));
        for (curve, said) in said.into_iter().enumerate() {
            if let Reported::Range(from, to) = said {
                chart.marked.push(Marked { curve, x: (high, low), y: (from, to) });
                chart.y.1 = chart.y.1.max(1.1 * to);
            }
        }
        let caption = "Extra tokens against the slope of the baseline’s curve; boxes in an arm’s colour are what the paper reports of it";
        Some(curve_figure("cost-slope", caption, &chart, "cost-slope.csv"))
    }

    /// The baseline's slope at the evaluations after its steepest part at which it is below all slopes before: one way along the axis.
    fn depths(&self) -> BTreeMap<u64, f64> {
        let slopes: BTreeMap<u64, f64> = self.costs.iter().filter_map(|cost| Some((cost.tokens, cost.baseline_slope?.0))).collect();
        let steepest = slopes.iter().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(tokens, _)| *tokens);
        let mut least = f64::INFINITY;
        let mut falls = |slope: f64| {
            let below = slope < least;
            least = least.min(slope);
            below
        };
        slopes.into_iter().filter(|(tokens, slope)| *tokens >= steepest && falls(*slope)).collect()
    }

    /// All arms share one scatter at each evaluation.
    fn scatter(&self) -> Option<Figure> {
        let mut seen = BTreeSet::new();
        let once: Vec<&&Cost> = self.costs.iter().filter(|cost| seen.insert(cost.tokens)).collect();
        let curve = |name: &str, of: &dyn Fn(&Cost) -> Option<f64>| {
            let mean: Vec<(f64, f64)> = once.iter().filter_map(|cost| Some((self.tokens(cost), of(cost)?))).collect();
            (Curve { label: name.to_owned(), mean, seeds: Vec::new() }, Reported::Nothing)
        };
        let curves = vec![
            curve("in tokens, %", &|cost| Some(100.0 * cost.scatter?.0.exp_m1())),
            curve("in loss, thousandths of a nat", &|cost| Some(1000.0 * cost.scatter_loss?.0)),
        ];
        let y = "standard deviation of one run";
        let chart = chart("How far single runs scatter", (token_scale(self.measurements).1, y), false, curves)?;
        let caption = "Standard deviation of one run, arm and seed accounted for, against tokens";
        Some(curve_figure("cost-scatter", caption, &chart, "cost-scatter.csv"))
    }
}

/// None without a curve. `falls`: the horizontal axis goes from large to small, so that training goes to the right.
pub(super) fn chart(title: &str, (x_label, y_label): (&str, &str), falls: bool, curves: Vec<(Curve, Reported)>) -> Option<CurveChart> {
    let curves: Vec<Curve> = curves.into_iter().map(|(curve, _)| curve).filter(|curve| curve.mean.len() > 1).collect();
    let points = || curves.iter().flat_map(|curve| &curve.mean);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let fold = |start: f64, pick: fn(f64, f64) -> f64| points().map(of).fold(start, pick);
        (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
    };
    let (x, y) = (ends(|point| point.0), ends(|point| point.1));
    if curves.is_empty() || x.0 >= x.1 {
        return None;
    }
    Some(CurveChart {
        title: title.to_owned(),
        description: format!("{title}: {} curves, means over seeds.", curves.len()),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        x: if falls { (x.1, x.0) } else { x },
        y: (y.0.min(0.0), 1.05 * y.1.max(0.0)),
        curves,
        ..CurveChart::default()
    })
}
