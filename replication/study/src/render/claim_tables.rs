//! Tables about claims: the verdicts, the paper's matrix of arms beside ours, the arithmetic checks, and what did not run.

use contract::recipe::{Rounding, Signs};

use super::grid::{Cell, Grid, numbers, words};
use crate::judge::{ClaimVerdict, Evidence, NO_RUN, PaperVerdicts};
use crate::manifest::Recipe;
use crate::manifest::{Metric, Paper};
use crate::measure::Measurements;
use crate::measure::study::{is_mxfp4, mxfp4_operands};

/// The claims of a paper: what it says, what we measured, the verdict and what stands behind it. Those that a campaign without their arms cannot
/// say anything about share one line at the end.
pub(super) fn claims(paper: &Paper, verdicts: &PaperVerdicts, stale: bool) -> Grid {
    let columns =
        vec![words("Claim", 0.37), numbers("Paper", 0.14), numbers("Measured here", 0.19), words("Verdict", 0.18), words("Evidence", 0.12)];
    let caption = format!("Claims of {} and what was found, with 95 % intervals", paper.id);
    let mut grid = Grid::new(&format!("claims-{}", paper.id), &caption, columns).stacking();
    let (absent, here): (Vec<&ClaimVerdict>, Vec<_>) = verdicts.claims.iter().partition(|claim| is_absent(claim, verdicts));
    for claim in here {
        let evidence = claim.evidence.map_or("–", |evidence| evidence.word());
        let cells = vec![
            Cell::new(&claim.id).detail(&claim.statement).class("claim"),
            claim.paper.as_str().into(),
            Cell::new(&claim.ours).detail(&claim.interval_text),
            verdict_cell(claim, stale),
            Cell::new(evidence),
        ];
        grid.row(&claim.id, cells);
    }
    if !absent.is_empty() {
        let ids: Vec<&str> = absent.iter().map(|claim| &*claim.id).collect();
        grid.heading(&format!("Not run, as this campaign is without their arms: {}", ids.join(", ")));
    }
    grid
}

/// Whether a claim's arms have no run, or those of all claims that it repeats.
fn is_absent(claim: &ClaimVerdict, verdicts: &PaperVerdicts) -> bool {
    let reason = claim.reason.as_deref().unwrap_or_default();
    let other = |id: &str| verdicts.claims.iter().find(|other| other.id == id && other.verdict != "same-as");
    match claim.verdict.as_str() {
        "not-run" => reason.ends_with(NO_RUN),
        "same-as" => reason.split(", ").all(|id| other(id).is_some_and(|other| is_absent(other, verdicts))),
        _ => false,
    }
}

/// The word that a reader sees: `stale` for whatever was measured before the code changed.
pub(super) fn verdict_word(claim: &ClaimVerdict, stale: bool) -> &str {
    let measured = claim.number.is_some() || !["not-run", "failed", "same-as"].contains(&claim.verdict.as_str());
    if stale && measured { "stale" } else { &claim.verdict }
}

/// The verdict word, its reason, and `stale` over it when the code has changed since.
pub(super) fn verdict_cell(claim: &ClaimVerdict, stale: bool) -> Cell {
    let detail = claim.reason.clone().unwrap_or_default();
    if verdict_word(claim, stale) == "stale" {
        return Cell::new("stale").detail(format!("was {}", claim.verdict)).class("verdict stale");
    }
    Cell::new(&claim.verdict).detail(detail).class(format!("verdict {}", claim.verdict))
}

/// Table 1 in the paper's own shape: a row a stabiliser, a column a set of GEMMs; none when the paper's token claims name no arms.
pub(super) fn matrix(measurements: &Measurements, paper: &Paper, verdicts: &PaperVerdicts) -> Option<Grid> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<(String, Vec<(String, Cell)>)> = Vec::new();
    for (claim, verdict) in paper.claims.iter().zip(&verdicts.claims) {
        let (Metric::TokenOverhead { arm, .. } | Metric::DoesNotConverge { arm }) = &claim.metric else { continue };
        let Some(recipe) = measurements.study.recipes.get(arm) else { continue };
        let (column, row) = (passes(recipe), stabiliser(recipe));
        if !columns.contains(&column) {
            columns.push(column.clone());
        }
        let ours =
            if verdict.interval_text.is_empty() { verdict.ours.clone() } else { format!("{} {}", verdict.ours, verdict.interval_text) };
        let mut cell =
            Cell::new(format!("paper {}", verdict.paper)).detail(format!("here {ours}")).class(format!("tint {}", verdict.verdict));
        // Of public logs, the estimate that our own verdicts use.
        let logs = verdict.beside.iter().filter(|item| item.evidence == Evidence::PublicLog);
        let logs = logs.filter(|item| item.label.ends_with(measurements.study.estimator.word()));
        cell.lines.extend(logs.map(|item| format!("{}: {} ({})", item.label, item.text, item.evidence.word())));
        match rows.iter_mut().find(|(name, _)| *name == row) {
            Some((_, cells)) => cells.push((column, cell)),
            None => rows.push((row, vec![(column, cell)])),
        }
    }
    if columns.len() < 2 {
        return None;
    }
    let width = 0.78 / columns.len() as f64;
    let mut heads = vec![words("Stabiliser", 0.21)];
    heads.extend(columns.iter().map(|column| numbers(&format!("MXFP4 in {column}"), width)));
    let caption = "Table 1 side by side: extra tokens to the target, the paper's above ours; DNC did not converge";
    let mut grid = Grid::new(&format!("table-1-{}", paper.id), caption, heads).stacking();
    for (key, (name, cells)) in rows.into_iter().enumerate() {
        let mut line = vec![Cell::new(name)];
        for column in &columns {
            line.push(cells.iter().find(|(other, _)| other == column).map_or(Cell::new("–"), |(_, cell)| cell.clone()));
        }
        grid.row(&format!("r{key}"), line);
    }
    Some(grid)
}

/// The GEMMs in MXFP4, in the paper's words.
fn passes(recipe: &Recipe) -> String {
    let names: Vec<&str> = [("fprop", "Fprop"), ("dgrad", "Dgrad"), ("wgrad", "Wgrad")]
        .iter()
        .filter(|(pass, _)| is_mxfp4(recipe, pass))
        .map(|(_, name)| *name)
        .collect();
    names.join(" + ")
}

/// What keeps MXFP4 stable in a recipe.
pub(super) fn stabiliser(recipe: &Recipe) -> String {
    let mut parts: Vec<String> = Vec::new();
    if mxfp4_operands(recipe).any(|operand| operand.rounding != Rounding::NearestEven) {
        parts.push("stochastic rounding".to_owned());
    }
    if let Some(rotation) = mxfp4_operands(recipe).find_map(|operand| operand.rotation.as_ref()) {
        let kind = if rotation.signs == Signs::None { "deterministic" } else { "randomized" };
        parts.push(format!("{kind} Hadamard {}", rotation.size));
    }
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// The claims of one source (such as Table 2) with everything that stands beside them.
pub(super) fn by_source(paper: &Paper, verdicts: &PaperVerdicts, source: &str, stale: bool) -> Grid {
    let chosen = || verdicts.claims.iter().filter(|claim| claim.source == source);
    let any_beside = chosen().any(|claim| !claim.beside.is_empty());
    let mut columns = vec![words("Claim", 0.23), numbers("Paper", 0.13), numbers("Measured here", 0.18), words("Verdict", 0.16)];
    if any_beside {
        columns.push(words("Shown beside, not judged", 0.30));
    }
    let caption = format!("{source} side by side");
    let slug: String = source.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let mut grid = Grid::new(&format!("{slug}-{}", paper.id), &caption, columns).stacking();
    for claim in chosen() {
        let lines = claim.beside.iter().map(|item| format!("{}: {} ({})", item.label, item.text, item.evidence.word())).collect();
        let mut cells = vec![
            Cell::new(&claim.id).detail(&claim.statement).class("claim"),
            claim.paper.as_str().into(),
            Cell::new(&claim.ours).detail(&claim.interval_text),
            verdict_cell(claim, stale),
        ];
        if any_beside {
            cells.push(Cell { lines, ..Cell::default() });
        }
        grid.row(&claim.id, cells);
    }
    grid
}

/// The paper's arithmetic on its own numbers.
pub(super) fn checks(verdicts: &PaperVerdicts) -> Grid {
    let columns = vec![
        words("Check", 0.09),
        words("Expression", 0.25),
        numbers("Value written", 0.13),
        numbers("Value found", 0.15),
        words("What it shows", 0.38),
    ];
    let caption = format!("Arithmetic on the numbers of {}", verdicts.paper);
    let mut grid = Grid::new(&format!("checks-{}", verdicts.paper), &caption, columns).stacking();
    for check in &verdicts.checks {
        let holds = if check.holds { "holds" } else { "does not hold" };
        let cells = vec![
            Cell::new(&check.id).detail(holds).class(if check.holds { "check" } else { "check differs" }),
            Cell::new(check.expressions.join(", ")).class("code"),
            Cell::new(check.values.join(", ")),
            Cell::new(check.computed.join(", ")),
            Cell::new(&check.note),
        ];
        grid.row(&check.id, cells);
    }
    grid
}

/// What was not run, and what it needs.
pub(super) fn not_run(measurements: &Measurements, papers: &[PaperVerdicts]) -> Grid {
    let columns = vec![words("Claim", 0.30), words("Why there is no number", 0.32), words("What it needs", 0.38)];
    let mut grid = Grid::new("not-run", "What was not measured, and what it needs", columns).stacking();
    for (paper, verdicts) in measurements.study.papers.iter().zip(papers) {
        for (claim, verdict) in paper.claims.iter().zip(&verdicts.claims) {
            let Some(reason) = verdict.reason.as_ref().filter(|_| ["not-run", "failed"].contains(&verdict.verdict.as_str())) else {
                continue;
            };
            let lacking: Vec<&str> =
                claim.native_formats.iter().filter(|format| !measurements.study.native(**format)).map(|format| format.word()).collect();
            let needs = if lacking.is_empty() {
                format!("cargo xtask replicate --profile {} --only {}", measurements.study.profile.id, claim.id)
            } else {
                format!(
                    "an accelerator with arithmetic units for {}, such as the one in the paper's own setting ({})",
                    lacking.join(" and "),
                    paper.setting
                )
            };
            let class = if verdict.verdict == "failed" { "verdict failed" } else { "verdict not-run" };
            let cells = vec![
                Cell::new(&claim.id).detail(&claim.statement).class("claim"),
                Cell::new(&verdict.verdict).detail(reason).class(class),
                Cell::new(needs),
            ];
            grid.row(&claim.id, cells);
        }
    }
    if let Some(why) = measurements.code_objects.as_ref().and_then(|document| document.not_built.as_ref()) {
        let cells = vec![
            Cell::from("The kernels for the MI355X").class("claim"),
            Cell::from("not-run").detail(why).class("verdict not-run"),
            Cell::from("clang 22 with lld (Debian: clang-22, lld-22); cargo xtask kernels-build"),
        ];
        grid.row("code-objects", cells);
    }
    grid
}
