//! What the second version of the rules says: every line of every claim, and what its intervals rest on.

use contract::id::Id;
use serde::Serialize;

use super::grid::{Cell, Grid, numbers, words};
use super::{claim_tables, stretches};
use crate::judge::{Line, PaperVerdicts, Precision, Verdicts};
use crate::manifest::Paper;
use crate::measure::{Measurements, curves};
use crate::number::{self, Unit};
use crate::table::{Number, Table};

/// One paper's part of the page.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Section {
    pub id: String,
    pub short: String,
    pub decision_rule: String,
    /// The claims' own verdicts; none where the page shows them already.
    pub claims: Option<Grid>,
    pub lines: Grid,
    pub precision: Grid,
    pub notes: Vec<String>,
}

impl Section {
    pub(super) fn grids(&self) -> impl Iterator<Item = &Grid> {
        self.claims.iter().chain([&self.lines, &self.precision])
    }
}

/// None for a paper that the first version judged. `suffix` keeps ids apart where both are on a page.
pub(super) fn section(paper: &Paper, verdicts: &PaperVerdicts, suffix: &str) -> Option<Section> {
    (verdicts.judging == 2).then(|| Section {
        id: paper.id.to_string(),
        short: paper.short.clone(),
        decision_rule: paper.decision_rule.clone(),
        claims: None,
        lines: lines(paper, verdicts, suffix),
        precision: precision(paper, verdicts, suffix),
        notes: verdicts.notes.clone(),
    })
}

/// Papers judged again, with their claims' verdicts.
pub(super) fn again(papers: &[Paper], verdicts: Option<&Verdicts>) -> Vec<Section> {
    let judged = papers.iter().zip(verdicts.into_iter().flat_map(|verdicts| &verdicts.papers));
    let one = |(paper, judged): (&Paper, &PaperVerdicts)| {
        let claims = claim_tables::claims(paper, judged, false);
        let caption = format!("Claims of {} judged again, by the second version of the rules", paper.id);
        let claims = Grid { id: Id::near(&format!("{}-again", claims.id)), caption, ..claims };
        Some(Section { claims: Some(claims), ..section(paper, judged, "-again")? })
    };
    judged.filter_map(one).collect()
}

fn lines(paper: &Paper, verdicts: &PaperVerdicts, suffix: &str) -> Grid {
    let columns = vec![
        words("Claim", 0.26),
        numbers("Measured here", 0.20),
        words("Verdict", 0.22),
        numbers("p (after Holm)", 0.13),
        numbers("Chance if the paper is right", 0.19),
    ];
    let caption = format!(
        "Claims of {}, direction and size apart, with 95 % intervals; p is that of the verdict's own test, after Holm's correction for all lines",
        paper.id
    );
    let mut grid = Grid::new(&format!("lines-{}{suffix}", paper.id), &caption, columns).stacking();
    for claim in &verdicts.claims {
        for line in &claim.lines {
            let asked = if line.stretch.is_empty() { line.what.clone() } else { format!("{}, {}", line.what, line.stretch) };
            let ours = if line.ours.is_empty() { "–" } else { &line.ours };
            let mut measured = Cell::new(ours).detail(&line.interval_text);
            measured.lines = Some(line.gap.clone()).filter(|gap| !gap.is_empty()).into_iter().collect();
            let mut about = Cell::new(&claim.id).detail(&line.statement).class("claim");
            about.lines = vec![asked];
            let cells = vec![
                about,
                measured,
                Cell::new(&line.verdict).detail(line.reason.clone().unwrap_or_default()).class(format!("verdict {}", line.verdict)),
                p(line),
                chances(line),
            ];
            grid.row(&format!("{}-{}", claim.id, line.what.replace(' ', "-")), cells);
        }
    }
    grid
}

/// The p-value of the test that the verdict rests on.
fn p(line: &Line) -> Cell {
    let at = usize::from(line.verdict == "differs");
    match (line.p, line.holm) {
        (Some(p), Some(holm)) => Cell::new(p_text(p[at])).detail(format!("({})", p_text(holm[at]))),
        _ => Cell::new("–"),
    }
}

fn p_text(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { number::fixed(p, 4) }
}

fn chances(line: &Line) -> Cell {
    let percent = |share: f64| format!("{}{}%", number::fixed(100.0 * share, 0), number::SPACE);
    line.chances.map_or(Cell::new("–"), |chances| {
        Cell::new(format!("reproduced {}", percent(chances.reproduced))).detail(format!(
            "differs {}, inconclusive {}",
            percent(chances.differs),
            percent(chances.inconclusive)
        ))
    })
}

fn precision(paper: &Paper, verdicts: &PaperVerdicts, suffix: &str) -> Grid {
    let columns = vec![
        words("Over", 0.20),
        numbers("One run scatters", 0.17),
        numbers("Run again", 0.14),
        numbers("Baseline’s own error", 0.15),
        numbers("Levene, Tukey", 0.14),
        numbers("Seeds for ±1, ±2 points", 0.20),
    ];
    let caption = format!(
        "What the intervals of {} rest on: standard deviations in tokens, arm and seed accounted for; what the same run scatters by itself; the error that all comparisons with the baseline share",
        paper.id
    );
    let mut grid = Grid::new(&format!("precision-{}{suffix}", paper.id), &caption, columns).stacking();
    for (index, row) in verdicts.precision.iter().enumerate() {
        grid.row(&format!("p{index}"), precision_row(row));
    }
    grid
}

fn precision_row(row: &Precision) -> Vec<Cell> {
    let percent = |share: f64| Unit::Percent.number(share);
    let checked = |p: Option<f64>| p.map_or("–".to_owned(), |p| number::fixed(p, 2));
    let degrees = |freedom: usize| format!("{freedom} degrees of freedom");
    let is_full = row.freedom == row.arms.saturating_sub(1) * row.seeds.saturating_sub(1);
    let own = row.own_sd.map_or(Cell::new("nothing was run twice"), |sd| Cell::new(percent(sd)));
    vec![
        Cell::new(format!("{}, {}", row.baseline, row.stretch)).detail(format!(
            "{} evaluations, {} to {} million tokens",
            row.evaluations,
            number::fixed(row.tokens[0] as f64 / 1e6, 1),
            number::fixed(row.tokens[1] as f64 / 1e6, 1)
        )),
        Cell { lines: row.gap_sd.map(|sd| format!("{} nat", number::fixed(sd, 4))).into_iter().collect(), ..Cell::new(percent(row.sd)) }
            .detail(format!("{} arms, {}{} seeds, {}", row.arms, if is_full { "" } else { "up to " }, row.seeds, degrees(row.freedom))),
        own.detail(row.own_freedom.map(degrees).unwrap_or_default()),
        Cell::new(row.common_error.map_or("–".to_owned(), |half| format!("±{}", percent(half)))),
        Cell::new(format!("{}, {}", checked(row.levene), checked(row.additivity))),
        Cell::new(row.seeds_for.map(|seeds| number::fixed(seeds, 0)).join(", ")),
    ]
}

/// One line in `data/claim_lines.csv`.
#[derive(Default, Serialize)]
struct LineRow<'a> {
    paper: &'a str,
    claim: &'a str,
    line: &'a str,
    stretch: &'a str,
    verdict: &'a str,
    reason: Option<&'a str>,
    number: Option<Number>,
    low: Option<Number>,
    high: Option<Number>,
    low_90: Option<Number>,
    high_90: Option<Number>,
    accepted_low: Option<Number>,
    accepted_high: Option<Number>,
    n: usize,
    p_inside: Option<Number>,
    p_outside: Option<Number>,
    holm_inside: Option<Number>,
    holm_outside: Option<Number>,
    chance_reproduced: Option<Number>,
    chance_differs: Option<Number>,
    chance_inconclusive: Option<Number>,
}

/// The tables of the second version, where it judged anything.
pub(super) fn tables<'a>(measurements: &Measurements, verdicts: impl Iterator<Item = &'a Verdicts>) -> Vec<Table> {
    let papers: Vec<&PaperVerdicts> = verdicts.flat_map(|verdicts| &verdicts.papers).filter(|paper| paper.judging == 2).collect();
    if papers.is_empty() {
        return Vec::new();
    }
    let claims = papers.iter().flat_map(|paper| paper.claims.iter().map(move |claim| (paper, claim)));
    let rows = claims.flat_map(|(paper, claim)| claim.lines.iter().map(move |line| line_row(&paper.paper, &claim.id, line)));
    vec![Table::of("claim_lines.csv", rows), curves::table(measurements), stretches::table(measurements)]
}

fn line_row<'a>(paper: &'a str, claim: &'a str, line: &'a Line) -> LineRow<'a> {
    let end = |interval: Option<[f64; 2]>, at: usize| interval.map(|interval| Number(interval[at]));
    LineRow {
        paper,
        claim,
        line: &line.what,
        stretch: &line.stretch,
        verdict: &line.verdict,
        reason: line.reason.as_deref(),
        number: line.number.map(Number),
        low: end(line.interval, 0),
        high: end(line.interval, 1),
        low_90: end(line.ninety, 0),
        high_90: end(line.ninety, 1),
        accepted_low: line.accepted[0].map(Number),
        accepted_high: line.accepted[1].map(Number),
        n: line.n,
        p_inside: end(line.p, 0),
        p_outside: end(line.p, 1),
        holm_inside: end(line.holm, 0),
        holm_outside: end(line.holm, 1),
        chance_reproduced: line.chances.map(|chances| Number(chances.reproduced)),
        chance_differs: line.chances.map(|chances| Number(chances.differs)),
        chance_inconclusive: line.chances.map(|chances| Number(chances.inconclusive)),
    }
}
