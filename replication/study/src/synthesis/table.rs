//! Every row of evidence, and every extrapolation, as CSV.

use serde::Serialize;

use super::evidence::Number;
use super::{Synthesis, Trend};
use crate::judge::verdict::Evidence;
use crate::number::Unit;
use crate::table::{self, Table};

/// File name beside the page.
pub const NAME: &str = "index.csv";

/// Numbers in the claim's own unit: shares, not percentages.
#[derive(Default, Serialize)]
struct Line<'a> {
    paper: &'a str,
    claim: &'a str,
    arm: &'a str,
    baseline: &'a str,
    source: String,
    profile: &'a str,
    parameters: Option<u64>,
    tokens: Option<u64>,
    /// Along training.
    depth: &'a str,
    evidence: Option<&'static str>,
    unit: &'static str,
    number: Option<table::Number>,
    low: Option<table::Number>,
    high: Option<table::Number>,
    n: usize,
    gap: Option<table::Number>,
    gap_low: Option<table::Number>,
    gap_high: Option<table::Number>,
    verdict: &'a str,
    reason: &'a str,
    reported_low: Option<table::Number>,
    reported_high: Option<table::Number>,
    tolerance: Option<table::Number>,
    /// The version of the rules in the campaign's own report; the verdict here is that of this repository's papers.
    own_rules: Option<u32>,
}

/// `index.csv`.
pub fn table(synthesis: &Synthesis) -> Table {
    let measured = synthesis.rows.iter().map(|row| of_row(synthesis, row));
    let modelled = synthesis.trends.iter().filter_map(|trend| of_trend(synthesis, trend));
    Table::of(NAME, measured.chain(modelled))
}

fn of_row<'a>(synthesis: &'a Synthesis, row: &'a super::Row) -> Line<'a> {
    let source = &synthesis.sources[row.source];
    let why = row.number.as_ref().err().map_or("", String::as_str);
    let (verdict, reason) = row.verdict.as_ref().map_or(("", None), |(word, reason)| (word.as_str(), reason.as_deref()));
    let number = row.number.as_ref().ok();
    Line {
        source: source.name.clone(),
        profile: &source.profile,
        parameters: source.parameters,
        tokens: source.tokens,
        depth: row.depth.word(),
        evidence: row.kind.map(Evidence::word),
        arm: &row.arm,
        baseline: &row.baseline,
        n: number.map_or(0, |number| number.n),
        gap: row.gap.map(|gap| rounded(gap.value)),
        gap_low: row.gap.and_then(|gap| gap.interval).map(|ends| rounded(ends.low)),
        gap_high: row.gap.and_then(|gap| gap.interval).map(|ends| rounded(ends.high)),
        verdict,
        reason: reason.unwrap_or(why),
        own_rules: source.judged_by,
        ..with(synthesis, &row.paper, &row.claim, row.unit, number)
    }
}

fn of_trend<'a>(synthesis: &'a Synthesis, trend: &'a Trend) -> Option<Line<'a>> {
    let (parameters, number) = trend.at_paper?;
    let names: Vec<&str> = trend.points.iter().map(|point| synthesis.sources[point.source].name.as_str()).collect();
    Some(Line {
        source: format!("line through {}", names.join(", ")),
        parameters: Some(parameters),
        depth: trend.depth.word(),
        evidence: Some(Evidence::Modelled.word()),
        arm: &trend.arm,
        n: number.n,
        ..with(synthesis, &trend.paper, &trend.claim, trend.unit, Some(&number))
    })
}

/// What every line has.
fn with<'a>(synthesis: &'a Synthesis, paper: &'a str, claim: &'a str, unit: Unit, number: Option<&Number>) -> Line<'a> {
    let of = synthesis.papers.iter().find(|known| known.id.as_str() == paper);
    let asked = of.and_then(|of| of.claims.iter().find(|known| known.id.as_str() == claim));
    let reported = asked.and_then(|asked| asked.reported);
    let ends = number.and_then(|number| number.interval);
    Line {
        paper,
        claim,
        unit: word(unit),
        number: number.map(|number| rounded(number.value)),
        low: ends.map(|ends| rounded(ends.low)),
        high: ends.map(|ends| rounded(ends.high)),
        reported_low: reported.map(|[low, _]| table::Number(low)),
        reported_high: reported.map(|[_, high]| table::Number(high)),
        tolerance: asked.and_then(|asked| asked.tolerance).map(table::Number),
        ..Line::default()
    }
}

/// Six digits: what a system's library of functions rounds its own way is not among them.
fn rounded(value: f64) -> table::Number {
    table::Number(format!("{value:.5e}").parse().unwrap_or(value))
}

fn word(unit: Unit) -> &'static str {
    match unit {
        Unit::SignedPercent | Unit::Percent => "share",
        Unit::Factor | Unit::Ratio => "ratio",
        Unit::Nats => "nat",
        Unit::Runs => "runs",
        Unit::Error => "relative error",
    }
}
