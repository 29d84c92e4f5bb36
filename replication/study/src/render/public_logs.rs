//! The report's section on runs that others published: their numbers beside the paper's and ours, what else differs, the choice of
//! baseline, and the curves. Nothing here is a verdict on our own runs.

use serde::Serialize;

use super::charts::{Curve, CurveChart};
use super::figure::{Figure, mean_curve};
use super::grid::{Cell, Fact, Grid, numbers, words};
use super::pgf::{self, CurveColumns};
use crate::judge::{PaperVerdicts, Verdicts};
use crate::manifest::Paper;
use crate::manifest::public_logs::{Group, PublicLogs};
use crate::measure::Measurements;
use crate::measure::target::Estimator;
use crate::number::{self, Unit};
use crate::public_logs::{self, Comparison, Decomposition, GroupNumbers, Row};
use crate::statistics::{IndependentRatio, olympic_mean, summarise};

/// What the report says about one evidence manifest.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PublicLogsPage {
    pub id: String,
    pub title: String,
    /// Target and unit, in a sentence.
    pub setting: String,
    pub claims: Grid,
    pub confounders: Vec<String>,
    /// Names in `page.figures`: pairs of a whole and a near view.
    pub figures: Vec<[String; 2]>,
    pub figure_caption: String,
    pub groups: Grid,
    /// How the numbers of each group came here.
    pub sources: Vec<Fact>,
    pub decomposition: Grid,
    pub baselines: Grid,
}

/// Figures have fixed names; more comparisons than these are in the tables only.
const FIGURES: [[(&str, &str); 2]; 3] = [
    [("public-logs-1", "public-logs-1.csv"), ("public-logs-1-near", "public-logs-1-near.csv")],
    [("public-logs-2", "public-logs-2.csv"), ("public-logs-2-near", "public-logs-2-near.csv")],
    [("public-logs-3", "public-logs-3.csv"), ("public-logs-3-near", "public-logs-3-near.csv")],
];

/// One page section for each evidence manifest about a paper of the study.
pub(super) fn pages(measurements: &Measurements, verdicts: &Verdicts) -> Vec<PublicLogsPage> {
    let comparisons = public_logs::judge(&measurements.study, &measurements.public_logs);
    let drawn = drawn(measurements);
    let mut pages = Vec::new();
    for one in &measurements.public_logs {
        let own: Vec<&Comparison> = comparisons.iter().filter(|comparison| comparison.evidence == one.manifest.id).collect();
        let paper = own.first().and_then(|first| {
            let papers = measurements.study.papers.iter().zip(&verdicts.papers);
            papers.into_iter().find(|(paper, _)| paper.id == first.paper)
        });
        let Some((paper, judged)) = paper else { continue };
        let figures = FIGURES.iter().zip(&drawn).filter(|(_, (evidence, _))| evidence.manifest.id == one.manifest.id);
        pages.push(PublicLogsPage {
            id: one.manifest.id.to_string(),
            title: one.manifest.title.clone(),
            setting: setting(one),
            claims: claims(one, &own, paper, judged),
            confounders: one.manifest.confounders.clone(),
            figures: figures.map(|(names, _)| names.map(|(id, _)| id.replace('-', "_"))).collect(),
            figure_caption: CAPTION.to_owned(),
            groups: groups(one),
            sources: one.manifest.groups.iter().map(source).collect(),
            decomposition: decomposition(one, &own),
            baselines: baselines(one, &own),
        });
    }
    pages
}

fn setting(one: &PublicLogs) -> String {
    let manifest = &one.manifest;
    let runs: usize = manifest.groups.iter().map(|group| group.runs).sum();
    format!(
        "{runs} runs of {} to a validation loss of {} nats per token, in sequences of {} tokens",
        manifest.benchmark,
        manifest.target_loss,
        number::thousands(manifest.tokens_per_sample as f64)
    )
}

fn source(group: &Group) -> Fact {
    let seconds = group.evaluation_seconds.as_ref();
    let evaluation = seconds.map(|seconds| {
        let median = number::seconds(seconds.median);
        format!(" An evaluation takes {median} ({}): what its step times leave out.", seconds.from)
    });
    Fact { name: format!("{}, {}", group.label, group.round), text: format!("{}{}", group.read, evaluation.unwrap_or_default()) }
}

/// A number with its interval behind it.
fn with_interval(unit: Unit, number: f64, interval: Option<crate::statistics::Interval>) -> String {
    interval.map_or_else(|| unit.number(number), |interval| format!("{} {}", unit.number(number), unit.interval(&interval)))
}

/// The claims: the paper's number, each comparison's, and ours.
fn claims(one: &PublicLogs, own: &[&Comparison], paper: &Paper, judged: &PaperVerdicts) -> Grid {
    let width = 0.48 / own.len().max(1) as f64;
    let mut columns = vec![words("Claim", 0.20), numbers("Paper", 0.13)];
    columns.extend(own.iter().map(|comparison| numbers(&format!("Public logs, {}", comparison.label), width)));
    columns.push(numbers("Measured here", 0.19));
    let caption = format!("Claims of {} beside public logs (evidence public-log) and our own runs, with 95 % intervals", paper.id);
    let mut grid = Grid::new(&format!("public-logs-{}", one.manifest.id), &caption, columns).stacking();
    for verdict in &judged.claims {
        let of = |comparison: &&Comparison| comparison.rows.iter().filter(|row| row.claim == verdict.id).cloned().collect::<Vec<Row>>();
        let rows: Vec<Vec<Row>> = own.iter().map(of).collect();
        if rows.iter().all(Vec::is_empty) {
            continue;
        }
        let mut cells = vec![Cell::new(&verdict.id).detail(&verdict.statement).class("claim"), verdict.paper.as_str().into()];
        cells.extend(rows.iter().map(|rows| claim_cell(rows)));
        let evidence = verdict.evidence.map(|evidence| format!(" ({})", evidence.word())).unwrap_or_default();
        let mut ours = Cell::new(&verdict.ours).detail(&verdict.interval_text);
        ours.lines.push(format!("{}{evidence}", verdict.verdict));
        cells.push(ours);
        grid.row(&verdict.id, cells);
    }
    grid
}

fn claim_cell(rows: &[Row]) -> Cell {
    let Some(first) = rows.first() else { return Cell::new("–") };
    let mut cell = Cell::new(first.number.map_or("–".to_owned(), |number| first.unit.number(number)));
    let estimate = |row: &Row| row.estimator.map(|estimator| format!(" ({})", estimator.word())).unwrap_or_default();
    if let Some(interval) = &first.interval {
        cell.detail = format!("{}{}", first.unit.interval(interval), estimate(first));
    }
    for row in &rows[1..] {
        cell.lines.extend(row.number.map(|number| format!("{}{}", with_interval(row.unit, number, row.interval), estimate(row))));
    }
    let all: Vec<&str> = rows.iter().map(|row| row.word).collect();
    let same = all.iter().all(|word| *word == first.word);
    cell.lines.push(if same { first.word.to_owned() } else { all.join(", ") });
    cell
}

/// Mean with standard deviation, then MLPerf's score.
fn mean_cell(values: &[f64], write: impl Fn(f64) -> String) -> Cell {
    let Some(summary) = summarise(values) else { return Cell::new("–") };
    let spread = summary.sd.map(|sd| format!(" ± {}", write(sd))).unwrap_or_default();
    let score = olympic_mean(values).map(|score| format!("olympic {}", write(score))).unwrap_or_default();
    Cell::new(format!("{}{spread}", write(summary.mean))).detail(score)
}

fn groups(one: &PublicLogs) -> Grid {
    let columns = vec![
        words("Group", 0.15),
        numbers("Reached", 0.085),
        numbers("Samples, grid", 0.14),
        numbers("Interpolated", 0.14),
        numbers("Step, s", 0.13),
        numbers("Minutes", 0.125),
        words("Source", 0.23),
    ];
    let caption = "Samples and time to the target, and time of a training step (evaluations left out): mean ± standard deviation over runs";
    let mut grid = Grid::new(&format!("public-groups-{}", one.manifest.id), caption, columns).stacking();
    for group in &one.manifest.groups {
        let Some(measured) = one.numbers(&group.id) else { continue };
        let commit: String = group.source.commit.chars().take(8).collect();
        let mut source = Cell::new(format!("{}@{commit}", group.source.repository)).detail(&group.source.path);
        source.class = "code".to_owned();
        let cells = vec![
            Cell::new(&group.label).detail(format!("{}, {}, {}", group.submitter, group.round, group.accelerator)),
            Cell::new(format!("{} of {}", measured.runs.len() - measured.missed(), measured.runs.len())),
            mean_cell(&measured.samples(Estimator::Grid), number::thousands),
            mean_cell(&measured.samples(Estimator::Interpolated), number::thousands),
            step_cell(&measured),
            mean_cell(&measured.minutes(), |minutes| number::fixed(minutes, 2)),
            source,
        ];
        grid.row(&group.id, cells);
    }
    grid
}

fn step_cell(measured: &GroupNumbers) -> Cell {
    let mut cell = mean_cell(&measured.steps(), |seconds| number::fixed(seconds, 4));
    let (known, estimated) = (measured.steps().len(), measured.estimated_steps());
    cell.detail = match (known, estimated) {
        (0, _) => String::new(),
        (_, 0) => "from blocks".to_owned(),
        (known, estimated) if known == estimated => "from intervals".to_owned(),
        (known, estimated) => format!("{estimated} of {known} from intervals"),
    };
    cell
}

/// Whether the parts explain the whole.
fn decomposition(one: &PublicLogs, own: &[&Comparison]) -> Grid {
    let columns = vec![
        words("Comparison", 0.20),
        numbers("Step-time ratio", 0.16),
        numbers("Samples ratio", 0.16),
        numbers("Parts give", 0.15),
        numbers("Time ratio measured", 0.18),
        numbers("Difference", 0.15),
    ];
    let limit = Unit::Percent.number(Decomposition::WITHIN);
    let caption = format!(
        "Step-time ratio over samples ratio (on the grid) against the measured ratio of times to the target; holds when they differ by at most {limit}"
    );
    let mut grid = Grid::new(&format!("public-parts-{}", one.manifest.id), &caption, columns).stacking();
    for comparison in own {
        let Some(parts) = comparison.decomposition else { continue };
        let cells = vec![
            Cell::new(&comparison.label),
            Unit::Ratio.number(parts.step).into(),
            Unit::Ratio.number(parts.samples).into(),
            Unit::Ratio.number(parts.product()).into(),
            Unit::Ratio.number(parts.time).into(),
            Cell::new(Unit::SignedPercent.number(parts.difference())).detail(if parts.holds() { "holds" } else { "does not hold" }),
        ];
        grid.row(&comparison.id, cells);
    }
    grid
}

/// How the number moves with the choice of the baseline.
fn baselines(one: &PublicLogs, own: &[&Comparison]) -> Grid {
    let columns = vec![
        words("Baseline", 0.34),
        numbers("Runs", 0.08),
        numbers("Samples ratio, grid", 0.21),
        numbers("Interpolated", 0.21),
        numbers("Step-time ratio", 0.16),
    ];
    let caption = "The same MXFP4 runs against other baselines: the choice moves the number; no interval where only a mean is known";
    let mut grid = Grid::new(&format!("public-baselines-{}", one.manifest.id), caption, columns).stacking();
    let ratio = |ratio: &Option<IndependentRatio>| match ratio {
        Some(IndependentRatio { ratio, interval, .. }) => {
            Cell::new(Unit::Ratio.number(*ratio)).detail(interval.map(|interval| Unit::Ratio.interval(&interval)).unwrap_or_default())
        }
        None => Cell::new("–"),
    };
    for comparison in own {
        grid.heading(&format!("MXFP4 on {}, against", comparison.label));
        for (index, other) in comparison.baselines.iter().enumerate() {
            let note = if index == 0 { "the comparison above" } else { "" };
            let cells = vec![
                Cell::new(&other.label).detail(note),
                other.runs.to_string().into(),
                ratio(&other.grid),
                ratio(&other.interpolated),
                ratio(&other.step),
            ];
            grid.row(&format!("{}-{index}", comparison.id), cells);
        }
        if let Some([on_grid, between]) = comparison.without_one {
            let range = |interval: crate::statistics::Interval| {
                format!("{}–{}", Unit::Ratio.number(interval.low), Unit::Ratio.number(interval.high))
            };
            let runs = comparison.baselines.first().map_or(0, |own| own.runs.saturating_sub(1));
            let cells = vec![
                Cell::new("any one of its runs left out").detail("lowest to highest ratio"),
                runs.to_string().into(),
                range(on_grid).into(),
                range(between).into(),
                Cell::new("–"),
            ];
            grid.row(&format!("{}-without", comparison.id), cells);
        }
    }
    grid
}

const CAPTION: &str = "Validation loss against training samples on native hardware, from public logs: a thin line for each run, a thick one \
for their mean, which ends where the first run stops. The dashed line is the target. The nearest thing to the paper's Figures 1 and 2 that a reader can check";

/// Comparisons that have a figure, with their evidence.
fn drawn(measurements: &Measurements) -> Vec<(&PublicLogs, Comparison)> {
    let comparisons = public_logs::judge(&measurements.study, &measurements.public_logs);
    let of = |id: &str| measurements.public_logs.iter().find(|one| one.manifest.id == id);
    comparisons.into_iter().filter_map(|comparison| Some((of(&comparison.evidence)?, comparison))).take(FIGURES.len()).collect()
}

/// For each comparison the whole curves, and the part near the target.
pub(super) fn figures(measurements: &Measurements) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (names, (one, comparison)) in FIGURES.iter().zip(drawn(measurements)) {
        let [whole, near] = charts(one, &comparison);
        for ((id, file), chart) in names.iter().zip([whole, near]) {
            let (svg, columns) = (chart.draw(), CurveColumns { x: "kilosamples", runs: true });
            figures.push(Figure {
                id,
                caption: CAPTION.to_owned(),
                inline: svg.inline(),
                standalone: svg.standalone(),
                pgf: pgf::curves(&chart, file, columns),
                data: pgf::curve_table(file, &chart, columns),
            });
        }
    }
    figures
}

fn charts(one: &PublicLogs, comparison: &Comparison) -> [CurveChart; 2] {
    // The baseline first, as in the figures of our own runs; the order of `groups` is arm, baseline.
    let curves: Vec<Curve> = comparison.groups.iter().rev().filter_map(|id| curve(one, id)).collect();
    let points = || curves.iter().flat_map(|curve| curve.seeds.iter().flatten());
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let target = one.manifest.target_loss;
    let low = points().map(|point| point.1).fold(target, f64::min);
    let whole = CurveChart {
        title: format!("Native runs on {}", comparison.label),
        description: format!("Validation loss over training samples of {} groups of runs from public logs.", curves.len()),
        x_label: "training samples, thousands".to_owned(),
        y_label: "validation loss, nats per token".to_owned(),
        x: (first.min(last), last),
        y: (low - 0.03 * (high - low), high),
        goal: Some((target, format!("target {}", number::fixed(target, 2)))),
        curves,
        ..CurveChart::default()
    };
    // From about three fifths of the way to the last evaluation, where the curves lie close together.
    let from = 0.6 * last;
    let top = whole.curves.iter().flat_map(|curve| &curve.mean).filter(|point| point.0 >= from).map(|point| point.1).fold(target, f64::max);
    let description = format!("{} Only the part near the target.", whole.description);
    let title = format!("{}, near the target", comparison.label);
    let near = CurveChart { x: (from, last), y: (low - 0.06 * (top - low), top), title, description, ..whole.clone() };
    [whole, near]
}

fn curve(one: &PublicLogs, id: &str) -> Option<Curve> {
    let group = one.group(id)?;
    let points = |record: &crate::mllog::table::Record| -> Vec<(f64, f64)> {
        record.run.evaluations.iter().map(|seen| (seen.samples as f64 / 1000.0, seen.loss)).collect()
    };
    let seeds: Vec<Vec<(f64, f64)>> = one.runs.get(id)?.iter().map(points).collect();
    Some(Curve { label: format!("{} {}", group.precision.to_uppercase(), group.round), mean: mean_curve(&seeds), seeds })
}
