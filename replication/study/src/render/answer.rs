//! The first screen: a sentence and a picture of what each arm of a paper's table costs here, beside what the paper reports.

use std::collections::BTreeMap;

use super::claim_tables;
use super::dots::{DotChart, Point, Reported, Row};
use super::figure::Figure;
use super::figures::{dot_figure, label};
use crate::judge::{Sheet, Sheets};
use crate::layout::Measured;
use crate::manifest::{Claim, Metric, Paper, Recipe};
use crate::measure::Measurements;
use crate::measure::study::{is_mxfp4, is_plain};
use crate::number::{self, Unit};
use crate::public_logs;
use crate::statistics::{CONFIDENCE, Interval};

/// The axis goes from here, in %, to twice the largest number that the paper reports; what lies beyond is an arrow.
const LOWEST: f64 = -20.0;

/// Arms of the claims about extra tokens, in the paper's order, with what it reports of each, in %.
pub(super) fn reported(paper: &Paper) -> Vec<(&str, Reported)> {
    let mut arms: Vec<(&str, Reported)> = Vec::new();
    for claim in &paper.claims {
        let (arm, said) = match (&claim.metric, claim.reported) {
            (Metric::TokenOverhead { arm, .. }, Some([low, high])) => (arm, Reported::Range(100.0 * low, 100.0 * high)),
            (Metric::DoesNotConverge { arm }, _) => (arm, Reported::Beyond),
            _ => continue,
        };
        if !arms.iter().any(|(known, _)| known == arm) {
            arms.push((arm, said));
        }
    }
    arms
}

/// What the page says first. Sentences, each true by itself.
pub(super) fn sentences(measurements: &Measurements) -> Vec<String> {
    let Some(paper) = measurements.study.papers.first() else { return Vec::new() };
    let sheets = match Sheets::of(measurements, &paper.baseline) {
        Ok(sheets) => sheets,
        Err(why) => return vec![format!("These runs give no answer: {why}.")],
    };
    let recipe = |arm: &str| measurements.study.recipes.get(arm);
    let arms = reported(paper);
    let full = arms.iter().find(|(arm, said)| matches!(said, Reported::Range(..)) && recipe(arm).is_some_and(full_and_plain));
    let chosen = recommended(paper).and_then(|arm| arms.iter().find(|(other, _)| *other == arm));
    let named: Vec<(&str, &Reported, String)> = [(full, "no stabiliser"), (chosen, "")]
        .into_iter()
        .filter_map(|(found, words)| {
            let (arm, said) = found?;
            let words = if words.is_empty() { format!("with {}", claim_tables::stabiliser(recipe(arm)?)) } else { format!("with {words}") };
            Some((*arm, said, words))
        })
        .collect();
    let sheet = sheets.decisive();
    let mut said = Vec::new();
    let costs: Vec<String> =
        named.iter().filter_map(|(arm, _, words)| Some(format!("{} {words}", share(&cost(sheet, arm, paper)?)))).collect();
    if costs.is_empty() {
        return vec!["The arms that would answer have no number here.".to_owned()];
    }
    let baseline = measurements.study.label(&paper.baseline);
    let place = if sheets.matched.is_some() { "At the paper’s depth of training" } else { "Over the last quarter of this budget" };
    said.push(format!("{place}, all linear layers in MXFP4 take more tokens than {baseline} to the same loss: {}.", costs.join("; ")));
    let papers: Vec<String> = named.iter().filter_map(|(_, said, _)| said_text(said)).collect();
    said.push(match sheets.too_short() {
        Some(_) => format!("The paper says {}, later in training than these runs go, so they do not test that.", papers.join(" and ")),
        None => format!("The paper says {} at its size.", papers.join(" and ")),
    });
    if sheets.matched.is_some() {
        let late: Vec<String> = named.iter().filter_map(|(arm, _, _)| Some(whole(&cost(&sheets.late, arm, paper)?))).collect();
        said.push(format!("Over the last quarter of the budget it is {}: the cost is no constant.", late.join(" and ")));
    }
    said
}

/// Whether all three products are in MXFP4, without a stabiliser.
pub(super) fn full_and_plain(recipe: &Recipe) -> bool {
    is_plain(recipe) && ["fprop", "dgrad", "wgrad"].iter().all(|pass| is_mxfp4(recipe, pass))
}

/// The arm whose steps the paper times: the one that it recommends.
pub(super) fn recommended(paper: &Paper) -> Option<&str> {
    paper.claims.iter().find_map(|claim: &Claim| match &claim.metric {
        Metric::TimeSaved { arm, .. } => Some(arm.as_str()),
        _ => None,
    })
}

fn cost(sheet: &Sheet, arm: &str, paper: &Paper) -> Option<Measured> {
    sheet.overhead(arm, &paper.baseline).ok()
}

fn share(measured: &Measured) -> String {
    let interval =
        measured.interval(CONFIDENCE).map(|ends| Unit::SignedPercent.interval(&Interval::new(ends.low.exp_m1(), ends.high.exp_m1())));
    format!("{} {}", Unit::SignedPercent.number(measured.number.exp_m1()), interval.unwrap_or_default()).trim_end().to_owned()
}

fn whole(measured: &Measured) -> String {
    format!("{}{}%", number::signed(100.0 * measured.number.exp_m1(), 0), number::SPACE)
}

pub(super) fn said_text(said: &Reported) -> Option<String> {
    match said {
        Reported::Range(low, high) => Some(format!("{} to {}{}%", number::fixed(*low, 0), number::fixed(*high, 0), number::SPACE)),
        Reported::Beyond | Reported::Nothing => None,
    }
}

/// Extra tokens of every arm of the paper's table.
pub(super) fn figure(measurements: &Measurements) -> Option<Figure> {
    let study = &measurements.study;
    let paper = study.papers.first()?;
    let sheets = Sheets::of(measurements, &paper.baseline).ok()?;
    let logs = logged(measurements, paper);
    let mut series: Vec<(String, Option<&Sheet>)> = Vec::new();
    if let Some(sheet) = &sheets.matched {
        series.push(("here, at the paper’s depth".to_owned(), Some(sheet)));
    }
    series.push(("here, last quarter of the budget".to_owned(), Some(&sheets.late)));
    if let Some((name, _)) = &logs {
        series.push((name.clone(), None));
    }
    let of_logs = |arm: &str| logs.as_ref().and_then(|(_, points)| points.get(arm));
    let row = |(arm, said): &(&str, Reported)| {
        let point = |(index, (_, sheet)): (usize, &(String, Option<&Sheet>))| {
            let (value, interval) = match sheet {
                Some(sheet) => percent(&cost(sheet, arm, paper)?),
                None => *of_logs(arm)?,
            };
            Some(Point { value, interval, series: index })
        };
        let points: Vec<Point> = series.iter().enumerate().filter_map(point).collect();
        let (seeds, lost) = sheets.decisive().lost(measurements, arm);
        let note = if seeds == 0 { "not run".to_owned() } else { format!("no number in {lost} of {seeds} seeds") };
        Row::Values { label: label(study, arm), points, note, reported: said.clone() }
    };
    let arms = reported(paper);
    let rows: Vec<Row> = arms.iter().map(row).collect();
    let largest =
        arms.iter().filter_map(|(_, said)| if let Reported::Range(_, high) = said { Some(*high) } else { None }).fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let baseline = study.label(&paper.baseline);
    let chart = DotChart {
        title: format!("Extra tokens over {baseline} to the same loss"),
        description: format!(
            "One row for each arm of the paper’s table: bands are what the paper reports, marks what was measured, with 95 % intervals; over {} arms.",
            rows.len()
        ),
        x_label: format!("tokens relative to {baseline}, %"),
        reference: Some(0.0),
        series: series.into_iter().map(|(name, _)| name).collect(),
        reported: "the paper’s 8B runs (arrow: did not converge)".to_owned(),
        limits: Some((LOWEST, 2.0 * largest)),
        rows,
        ..DotChart::default()
    };
    let caption = "Extra tokens to the same loss, with 95 % intervals, beside what the paper reports; an arrow at the right: the paper’s run did not converge";
    Some(dot_figure("answer", caption, &chart, "answer.csv"))
}

fn percent(measured: &Measured) -> (f64, Option<(f64, f64)>) {
    let of = |logarithm: f64| 100.0 * logarithm.exp_m1();
    (of(measured.number), measured.interval(CONFIDENCE).map(|ends| (of(ends.low), of(ends.high))))
}

type Points<'a> = BTreeMap<&'a str, (f64, Option<(f64, f64)>)>;

/// Claims about tokens of an arm that public logs speak to, by the study's estimate; with the name of the first such comparison.
fn logged<'a>(measurements: &Measurements, paper: &'a Paper) -> Option<(String, Points<'a>)> {
    let comparisons = public_logs::judge(&measurements.study, &measurements.public_logs);
    let comparison = comparisons.into_iter().find(|comparison| comparison.paper == paper.id.as_str())?;
    let mut points = Points::new();
    for claim in &paper.claims {
        let Metric::TokenOverhead { arm, .. } = &claim.metric else { continue };
        let row = comparison.rows.iter().find(|row| row.claim == claim.id.as_str() && row.estimator == Some(measurements.study.estimator));
        if let Some((row, value)) = row.and_then(|row| Some((row, row.number?))) {
            points.insert(arm, (100.0 * value, row.interval.map(|ends| (100.0 * ends.low, 100.0 * ends.high))));
        }
    }
    (!points.is_empty()).then(|| (format!("public logs, {}", comparison.label), points))
}
