//! The first screen: a sentence and a picture of what each arm of a paper's table costs here, beside what the paper reports.

use std::collections::BTreeMap;

use super::claim_tables;
use super::dots::{DotChart, Point, Reported, Row};
use super::figure::{Figure, dot_figure, label};
use crate::judge::{Sheet, Sheets, with_interval};
use crate::layout::Measured;
use crate::manifest::{Claim, Metric, Paper, Recipe};
use crate::measure::Measurements;
use crate::measure::curves::MATCHED_SLOPE;
use crate::measure::study::{is_full, is_plain};
use crate::number::{self, Unit};
use crate::others::{Cost, Other};
use crate::public_logs;
use crate::statistics::CONFIDENCE;
use crate::synthesis::size;

/// The axis goes from here, in %, to twice the largest number that the paper reports; what lies beyond is an arrow.
const LOWEST: f64 = -20.0;
const ONE_SEED: &str = "That is one seed, so nothing says how far from it another would be.";

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
    let named = main_arms(paper, &|arm| measurements.study.recipes.get(arm), "with no stabiliser");
    let sheet = sheets.decisive();
    let mut said = Vec::new();
    let baseline = measurements.study.label(&paper.baseline);
    let depth = depth(paper);
    let place =
        if sheets.matched.is_some() { format!("At {depth} of training") } else { "Over the last quarter of this budget".to_owned() };
    let costs: Vec<String> =
        named.iter().filter_map(|main| Some(format!("{} {}", share(&cost(sheet, main.arm, paper)?), main.words))).collect();
    if costs.is_empty() {
        return of_own_arms(measurements, &sheets, paper, &format!("{place}, extra tokens over {baseline} to the same loss"));
    }
    let unsure = named.iter().filter_map(|main| cost(sheet, main.arm, paper)).any(|cost| cost.interval(CONFIDENCE).is_none());
    said.push(format!("{place}, all linear layers in MXFP4 take more tokens than {baseline} to the same loss: {}.", costs.join("; ")));
    if unsure {
        said.push(ONE_SEED.to_owned());
    }
    let papers: Vec<String> = named.iter().filter_map(|main| said_text(&main.said)).collect();
    said.push(match sheets.too_short() {
        Some(_) => format!("The paper says {}, later in training than these runs go, so they do not test that.", papers.join(" and ")),
        None => format!("The paper says {} at its size.", papers.join(" and ")),
    });
    if sheets.matched.is_some() {
        let late: Vec<String> = named.iter().filter_map(|main| Some(whole(&cost(&sheets.late, main.arm, paper)?))).collect();
        said.push(format!("Over the last quarter of the budget it is {}: the cost is no constant.", late.join(" and ")));
    }
    said
}

/// What matched depth is called. Only a paper that reports tokens stopped its runs there.
pub(super) fn depth(paper: &Paper) -> String {
    let [low, high] = MATCHED_SLOPE.map(|slope| number::fixed(slope, 2));
    if reported(paper).is_empty() { format!("slopes of {low} to {high} nat per ln-token") } else { "the paper’s depth".to_owned() }
}

/// What the page says first where the arms that the paper is about have no number.
fn of_own_arms(measurements: &Measurements, sheets: &Sheets, paper: &Paper, place: &str) -> Vec<String> {
    let of = |arm: &str| cost(sheets.decisive(), arm, paper);
    let ran = arms_that_ran(measurements, sheets, paper);
    let is_foreign = !any_reported(&ran, paper);
    let (arms, lost): (Vec<&str>, Vec<&str>) = ran.into_iter().partition(|arm| of(arm).is_some());
    let costs: Vec<(&str, Measured)> = arms.into_iter().filter_map(|arm| Some((measurements.study.label(arm), of(arm)?))).collect();
    if costs.is_empty() {
        return vec!["The arms that would answer have no number here.".to_owned()];
    }
    let mut said: Vec<String> = gaps(measurements, sheets, paper).into_iter().collect();
    if !reported(paper).is_empty() && is_foreign {
        said.push("None of the arms of the paper’s table is in this campaign.".to_owned());
    }
    let shares = costs.iter().map(|(label, cost)| {
        let twice = cost.number > std::f64::consts::LN_2;
        format!("{label} {}", if twice { format!("more than 100{}%", number::SPACE) } else { share(cost) })
    });
    said.push(format!("{place}: {}.", shares.collect::<Vec<_>>().join("; ")));
    if !lost.is_empty() {
        let labels: Vec<&str> = lost.into_iter().map(|arm| measurements.study.label(arm)).collect();
        said.push(format!("No number has what diverged or stayed above the baseline’s whole curve: {}.", labels.join("; ")));
    }
    if costs.iter().any(|(_, cost)| cost.interval(CONFIDENCE).is_none()) {
        said.push(ONE_SEED.to_owned());
    }
    said
}

/// Losses above the baseline's beside those that the paper reports, where it reports these.
fn gaps(measurements: &Measurements, sheets: &Sheets, paper: &Paper) -> Option<String> {
    let gap = |claim: &Claim| {
        let Metric::LossGap { arm, baseline } = &claim.metric else { return None };
        if *baseline != paper.baseline.as_str() {
            return None;
        }
        let measured = sheets.late.gap(arm, baseline).ok()?;
        let here = with_interval(Unit::Nats, &measured, |nats| nats);
        let said = claim.reported.map(|[low, high]| format!(" (the paper: {})", Unit::Nats.reported(low, high)));
        Some(format!("{} {here}{}", measurements.study.label(arm), said.unwrap_or_default()))
    };
    let gaps: Vec<String> = paper.claims.iter().filter_map(gap).collect();
    let baseline = measurements.study.label(&paper.baseline);
    (!gaps.is_empty()).then(|| format!("Over the last quarter of this budget, loss above {baseline} at equal tokens: {}.", gaps.join("; ")))
}

/// The arms of a campaign that ran none of the paper's table.
fn own_arms<'a>(measurements: &'a Measurements, sheets: &Sheets, paper: &Paper) -> Vec<&'a str> {
    let ran = arms_that_ran(measurements, sheets, paper);
    if any_reported(&ran, paper) { Vec::new() } else { ran }
}

/// Whether one of the arms is in the paper's table.
fn any_reported(arms: &[&str], paper: &Paper) -> bool {
    reported(paper).iter().any(|(arm, _)| arms.contains(arm))
}

/// All but the baseline and what repeats an arm.
fn arms_that_ran<'a>(measurements: &'a Measurements, sheets: &Sheets, paper: &Paper) -> Vec<&'a str> {
    let study = &measurements.study;
    let ran = |arm: &str| sheets.decisive().lost(measurements, arm).0 > 0;
    study.arms().into_iter().filter(|arm| ran(arm) && *arm != paper.baseline.as_str() && study.repeated(arm) == *arm).collect()
}

/// An arm that the first sentence is about.
pub(super) struct MainArm<'a> {
    pub arm: &'a str,
    /// Without a stabiliser.
    pub plain: bool,
    pub said: Reported,
    /// What is done to it, as a sentence goes on.
    pub words: String,
}

/// The full pipeline without a stabiliser, which `plain` names, and the arm that the paper recommends; those that it reports on.
pub(super) fn main_arms<'a, 'r>(paper: &'a Paper, recipe: &dyn Fn(&str) -> Option<&'r Recipe>, plain: &str) -> Vec<MainArm<'a>> {
    let arms = reported(paper);
    let bare = |recipe: &Recipe| is_plain(recipe) && is_full(recipe);
    let full = arms.iter().find(|(arm, said)| matches!(said, Reported::Range(..)) && recipe(arm).is_some_and(bare));
    let chosen = recommended(paper).and_then(|arm| arms.iter().find(|(other, _)| *other == arm));
    let full = full.map(|(arm, said)| MainArm { arm, plain: true, said: said.clone(), words: plain.to_owned() });
    let chosen = chosen.and_then(|(arm, said)| {
        let words = format!("with {}", claim_tables::stabiliser(recipe(arm)?));
        Some(MainArm { arm, plain: false, said: said.clone(), words })
    });
    full.into_iter().chain(chosen).collect()
}

/// The arm whose steps the paper times: the one that it recommends.
fn recommended(paper: &Paper) -> Option<&str> {
    paper.claims.iter().find_map(|claim: &Claim| match &claim.metric {
        Metric::TimeSaved { arm, .. } => Some(arm.as_str()),
        _ => None,
    })
}

fn cost(sheet: &Sheet, arm: &str, paper: &Paper) -> Option<Measured> {
    sheet.overhead(arm, &paper.baseline).ok()
}

fn share(measured: &Measured) -> String {
    with_interval(Unit::SignedPercent, measured, f64::exp_m1)
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

/// Extra tokens of every arm of the paper's table, below those of this campaign where it has none of these.
pub(super) fn figure(measurements: &Measurements) -> Option<Figure> {
    let study = &measurements.study;
    let paper = study.papers.first()?;
    let sheets = Sheets::of(measurements, &paper.baseline).ok()?;
    let logs = logged(measurements, paper);
    let mut series: Vec<(String, Option<&Sheet>)> = Vec::new();
    if let Some(sheet) = &sheets.matched {
        series.push((format!("here, at {}", depth(paper)), Some(sheet)));
    }
    series.push(("here, last quarter of the budget".to_owned(), Some(&sheets.late)));
    if let Some((name, _)) = &logs {
        series.push((name.clone(), None));
    }
    let own = series.len();
    let others: Vec<&Other> = measurements.others.iter().filter(|other| other.paper == paper.id.as_str()).collect();
    let named = |other: &&Other| format!("{}, {} parameters, at the paper’s depth", other.profile, size(other.parameters));
    let series_of_others = others.iter().map(named);
    let of_logs = |arm: &str| logs.as_ref().and_then(|(_, points)| points.get(arm));
    let row = |(arm, said): &(&str, Reported)| {
        let point = |(index, (_, sheet)): (usize, &(String, Option<&Sheet>))| {
            let (value, interval) = match sheet {
                Some(sheet) => percent(&cost(sheet, arm, paper)?),
                None => *of_logs(arm)?,
            };
            Some(Point { value, interval, series: index })
        };
        let elsewhere = |(index, other): (usize, &&Other)| {
            let Cost { number, interval } = other.costs.get(*arm)?;
            let interval = interval.map(|[low, high]| (100.0 * low, 100.0 * high));
            Some(Point { value: 100.0 * number, interval, series: own + index })
        };
        let here = series.iter().enumerate().filter_map(point);
        let points: Vec<Point> = here.chain(others.iter().enumerate().filter_map(elsewhere)).collect();
        let (seeds, lost) = sheets.decisive().lost(measurements, arm);
        let note = if seeds == 0 { "not run".to_owned() } else { format!("no number in {lost} of {seeds} seeds") };
        Row::Values { label: label(study, arm), points, note, reported: said.clone() }
    };
    let of_paper = reported(paper);
    let own_rows: Vec<Row> = own_arms(measurements, &sheets, paper).into_iter().map(|arm| row(&(arm, Reported::Nothing))).collect();
    let description = format!(
        "One row for each arm of the paper’s table: bands are what the paper reports, marks what was measured, with 95 % intervals; over {} arms.",
        own_rows.len() + of_paper.len()
    );
    let mut rows = Vec::new();
    if !own_rows.is_empty() {
        rows.push(Row::Group("This campaign".to_owned()));
        rows.extend(own_rows);
        rows.extend((!of_paper.is_empty()).then(|| Row::Group("The paper’s table".to_owned())));
    }
    rows.extend(of_paper.iter().map(row));
    let series: Vec<String> = series.iter().map(|(name, _)| name.clone()).chain(series_of_others).collect();
    let faint = (own..series.len()).collect();
    let chart = DotChart { description, series, faint, ..chart(paper, study.label(&paper.baseline), rows)? };
    let lighter = if others.is_empty() { "" } else { "; lighter marks: other campaigns of this repository" };
    let caption = format!(
        "Extra tokens to the same loss, with 95 % intervals, beside what the paper reports; an arrow at the right: the paper’s run did not converge{lighter}"
    );
    Some(dot_figure("answer", &caption, &chart, "answer.csv"))
}

/// The frame of such a picture around its rows; none where there are no rows.
pub(super) fn chart(paper: &Paper, baseline: &str, rows: Vec<Row>) -> Option<DotChart> {
    let highest = |row: &Row| match row {
        Row::Values { reported: Reported::Range(_, high), .. } => Some(*high),
        _ => None,
    };
    let largest = rows.iter().filter_map(highest).fold(0.0, f64::max);
    let compares = largest > 0.0;
    // A paper's setting begins with its model.
    let model = paper.setting.split(',').next().unwrap_or_default();
    (!rows.is_empty()).then(|| DotChart {
        title: format!("Extra tokens over {baseline} to the same loss"),
        x_label: format!("tokens relative to {baseline}, %"),
        reference: Some(0.0),
        reported: if compares { format!("the paper’s runs of {model} (arrow: did not converge)") } else { String::new() },
        limits: compares.then_some((LOWEST, 2.0 * largest)),
        rows,
        ..DotChart::default()
    })
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
