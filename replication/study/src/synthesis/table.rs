//! Every row of evidence, and every extrapolation, as CSV.

use serde::Serialize;

use super::evidence::Number;
use super::{Place, Synthesis, Together};
use crate::judge::verdict::Evidence;
use crate::law::{Estimate, Form, Report};
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
    let together = synthesis.together.iter().map(|all| of_together(synthesis, all));
    let modelled = synthesis.law.iter().flat_map(|law| of_law(synthesis, law));
    Table::of(NAME, measured.chain(together).chain(modelled))
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

/// All seeds of one model, under a depth of its own: whoever reads the campaigns does not meet them again here.
fn of_together<'a>(synthesis: &'a Synthesis, all: &'a Together) -> Line<'a> {
    let names: Vec<&str> = all.parts.iter().map(|part| synthesis.sources[part.source].name.as_str()).collect();
    let kinds = synthesis.on(&all.paper, &all.claim).filter(|row| row.source == all.parts[0].source);
    Line {
        source: names.join(" and "),
        parameters: Some(all.parameters),
        depth: "matched depth, all seeds",
        evidence: kinds.filter_map(|row| row.kind).next().map(Evidence::word),
        arm: &all.arm,
        baseline: &all.baseline,
        n: all.number.n,
        reason: all.place.map_or("", Place::words),
        ..with(synthesis, &all.paper, &all.claim, Unit::SignedPercent, Some(&all.number))
    }
}

/// What the law says of each recipe under each form: extra tokens at each target with the loss above the baseline's. Four digits, because
/// each comes from thousands of calls of a system's library of functions.
fn of_law<'a>(synthesis: &'a Synthesis, law: &'a Report) -> Vec<Line<'a>> {
    let claim = |arm: &str| {
        let paper = synthesis.papers.first()?;
        Some((paper.id.as_str(), paper.claim_on_tokens_of(arm)?.id.as_str()))
    };
    let mut lines = Vec::new();
    for recipe in &law.recipes {
        let (paper, claim) = claim(&recipe.arm).unwrap_or_default();
        for fit in &recipe.forms {
            let of = |number: &Estimate, unit: &'static str| Line {
                source: format!("law through {}", law.campaigns.join(", ")),
                evidence: Some(Evidence::Modelled.word()),
                arm: &recipe.arm,
                baseline: &law.baseline,
                n: recipe.parameters.len(),
                depth: fit.form.word(),
                number: Some(few(number.value)),
                low: Some(few(number.interval.low)),
                high: Some(few(number.interval.high)),
                ..Line { unit, ..with(synthesis, paper, claim, Unit::SignedPercent, None) }
            };
            let names = match fit.form {
                Form::Both => vec!["eff_N", "eff_D"],
                Form::Tokens => vec!["eff_D"],
                Form::Size => vec!["eff_N"],
                Form::Gap => vec!["nat"],
                Form::Same => continue,
            };
            lines.extend(fit.numbers.iter().zip(names).map(|(number, name)| of(number, name)));
            for ((target, overhead), gap) in law.targets.iter().zip(&fit.overheads).zip(&fit.gaps) {
                lines.push(Line {
                    parameters: Some(target.parameters),
                    tokens: Some(target.tokens as u64),
                    gap: Some(few(gap.value)),
                    gap_low: Some(few(gap.interval.low)),
                    gap_high: Some(few(gap.interval.high)),
                    ..of(overhead, "share")
                });
            }
        }
    }
    lines
}

fn few(value: f64) -> table::Number {
    table::Number(format!("{value:.3e}").parse().unwrap_or(value))
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
