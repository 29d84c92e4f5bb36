//! What the model's size does to an arm's cost: a straight line in the logarithm of parameters, through campaigns that differ in size and
//! in nothing else. At the paper's depth a size has the number of all its seeds. It says nothing of the paper's model, which is hundreds of
//! times larger: that is the law's.

use super::evidence::{Depth, Number, Row, trained};
use super::source::{Source, ladders};
use super::together::Together;
use crate::judge::Scale;
use crate::layout::Measured;
use crate::manifest::Paper;
use crate::number::Unit;
use crate::statistics::{CONFIDENCE, Interval, t_quantile_at};

/// One size on the line: a campaign, or with it those that have other seeds of the same model.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub source: usize,
    pub parameters: u64,
    pub number: Number,
    measured: Measured,
}

/// The line of one claim at one depth.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    pub paper: String,
    pub claim: String,
    pub arm: String,
    pub depth: Depth,
    pub unit: Unit,
    /// From the smallest model to the largest: at least two sizes.
    pub points: Vec<Point>,
    /// How the cost changes when the model has ten times the parameters: a factor on tokens less one, or nats.
    pub tenfold: Number,
    /// The p-value-free check that there is: the sum of squared distances from the line in standard errors, over its degrees of freedom;
    /// none with two sizes, through which every line goes.
    pub misfit: Option<f64>,
}

pub(super) fn all(papers: &[Paper], sources: &[Source], rows: &[Row], together: &[Together]) -> Vec<Trend> {
    let mut trends = Vec::new();
    for paper in papers {
        for claim in &paper.claims {
            let Some((arm, scale)) = trained(claim) else { continue };
            for depth in [Depth::Matched, Depth::Late] {
                let of: Vec<&Row> = rows
                    .iter()
                    .filter(|row| row.paper == paper.id.as_str() && row.claim == claim.id.as_str() && row.depth == depth)
                    .collect();
                let points = points(sources, &of, together);
                let measured = points.iter().map(|point| (point.source, &sources[point.source]));
                // Depth alone decides where it is the paper's; at the end of the budget a cost has grown as long as the run.
                for ladder in ladders(measured, depth == Depth::Late) {
                    let rungs = ladder.iter().filter_map(|at| points.iter().find(|point| point.source == *at).cloned()).collect();
                    trends.extend(line(rungs, scale).map(|line| Trend {
                        paper: paper.id.to_string(),
                        claim: claim.id.to_string(),
                        arm: arm.to_owned(),
                        depth,
                        ..line
                    }));
                }
            }
        }
    }
    trends
}

fn points(sources: &[Source], rows: &[&Row], together: &[Together]) -> Vec<Point> {
    let point = |row: &&&Row| {
        let all = together.iter().find(|all| all.has(row));
        let (number, measured) = match all {
            Some(all) => (all.number, all.measured),
            None => (*row.number.as_ref().ok()?, row.measured?),
        };
        let parameters = sources.get(row.source)?.parameters?;
        (measured.error > 0.0 && measured.freedom >= 1.0).then_some(Point { source: row.source, parameters, number, measured })
    };
    rows.iter().filter_map(|row| point(&row)).collect()
}

/// Weighted least squares, each campaign weighing by its own error, which is known from its scatter. The line's errors are those that
/// follow, enlarged by the distances from it where they are larger than that (Birge's ratio); its degrees of freedom are the smallest of
/// the campaigns'. `points` are one a size; none below two.
fn line(points: Vec<Point>, scale: Scale) -> Option<Trend> {
    if points.len() < 2 {
        return None;
    }
    let x = |parameters: u64| (parameters as f64).log10();
    let weights: Vec<f64> = points.iter().map(|point| point.measured.error.powi(-2)).collect();
    let total: f64 = weights.iter().sum();
    let mean = |of: &dyn Fn(&Point) -> f64| points.iter().zip(&weights).map(|(point, weight)| weight * of(point)).sum::<f64>() / total;
    let (centre, level) = (mean(&|point| x(point.parameters)), mean(&|point| point.measured.number));
    let spread = total * mean(&|point| (x(point.parameters) - centre).powi(2));
    let slope = total * mean(&|point| (x(point.parameters) - centre) * (point.measured.number - level)) / spread;
    let distance = |point: &Point| (point.measured.number - level - slope * (x(point.parameters) - centre)) / point.measured.error;
    let misfit = (points.len() > 2).then(|| points.iter().map(|point| distance(point).powi(2)).sum::<f64>() / (points.len() - 2) as f64);
    let birge = misfit.unwrap_or(1.0).max(1.0);
    let freedom = points.iter().map(|point| point.measured.freedom).fold(f64::INFINITY, f64::min);
    let t = t_quantile_at(freedom, CONFIDENCE)?;
    let shown = |value: f64| if scale == Scale::Nats { value } else { value.exp_m1() };
    let number = |value: f64, variance: f64| {
        let half = t * (birge * variance).sqrt();
        Number { value: shown(value), interval: Some(Interval::new(shown(value - half), shown(value + half))), n: points.len() }
    };
    let unit = if scale == Scale::Nats { Unit::Nats } else { Unit::SignedPercent };
    let trend = Trend {
        paper: String::new(),
        claim: String::new(),
        arm: String::new(),
        depth: Depth::None,
        unit,
        tenfold: number(slope, spread.recip()),
        misfit,
        points,
    };
    (slope.is_finite() && spread > 0.0).then_some(trend)
}
