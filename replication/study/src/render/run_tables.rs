//! Tables about runs and times: every arm, every run, step times, kernels.

use contract::device::DeviceKind;

use super::grid::{Cell, Grid, numbers, words};
use super::{answer, stretches};
use crate::judge::Sheets;
use crate::manifest::{Claim, Metric, Paper};
use crate::measure::load::RunStatus;
use crate::measure::noise::Noise;
use crate::measure::target::{Estimator, token_ratios};
use crate::measure::{Measurements, times};
use crate::number::{self, Unit};
use crate::statistics::{olympic_mean, summarise};

/// Every arm of the profile: seeds that reached the target, tokens, overhead, loss gap; and what no title of a column explains. By the second
/// version of the rules extra tokens are also given over the stretches that verdicts are about.
pub(super) fn arms(measurements: &Measurements) -> (Grid, Option<String>) {
    let study = &measurements.study;
    let baseline = &measurements.baseline;
    let over = Overheads::of(measurements);
    let [to_target, fourth, fifth] = over.titles();
    let columns = vec![
        words("Arm", 0.18),
        numbers("Reached", 0.08),
        numbers("Tokens to target", 0.12),
        numbers(&to_target, 0.16),
        numbers(&fourth, 0.16),
        numbers(&fifth, 0.155),
        numbers("Loss gap at the end, nat", 0.145),
    ];
    let caption = format!(
        "Every arm against {}, or for its loss gap against the baseline that is named: mean over seeds, with 95 % intervals of the paired ratio and difference",
        study.label(baseline)
    );
    let mut grid = Grid::new("arms", &caption, columns);
    for group in &study.profile.arms {
        grid.heading(&group.group);
        for arm in &group.recipes {
            grid.row(arm, arm_row(measurements, &over, arm));
        }
    }
    (grid, over.note())
}

/// Extra tokens other than to the target: what a version of the rules rests on.
enum Overheads<'a> {
    /// To the target with all arms' scatter, and on the evaluation grid.
    Crossings(Option<Noise>),
    /// At matched depth and over the last quarter, with the intervals of the two-way layout.
    Stretches(&'a Paper, Box<Sheets>),
}

impl<'a> Overheads<'a> {
    fn of(measurements: &'a Measurements) -> Self {
        let paper = measurements.study.papers.first().filter(|paper| paper.judging == 2);
        match paper.and_then(|paper| Some((paper, Sheets::of(measurements, &paper.baseline).ok()?))) {
            Some((paper, sheets)) => Self::Stretches(paper, Box::new(sheets)),
            None => Self::Crossings(measurements.noise()),
        }
    }

    /// Of the columns of extra tokens, those to the target first.
    fn titles(&self) -> [String; 3] {
        match self {
            Self::Crossings(_) => ["Against the baseline", "With all arms’ noise", "On the grid"].map(str::to_owned),
            Self::Stretches(paper, _) => {
                ["Extra tokens to the target".to_owned(), format!("At {}", answer::depth(paper)), "Over the last quarter".to_owned()]
            }
        }
    }

    fn note(&self) -> Option<String> {
        let [_, fourth, fifth] = self.titles();
        match self {
            Self::Crossings(noise) => noise.as_ref().map(|_| {
                format!("The column “{fourth}” has intervals from the spread of all runs together (logarithm of tokens as arm plus seed plus noise, equal for all arms); verdicts use each arm’s own seeds.")
            }),
            Self::Stretches(..) => Some(format!(
                "“{fourth}” and “{fifth}” are extra tokens to the same loss over these stretches of the budget, with the intervals that verdicts rest on: those of the two-way layout of all arms and seeds."
            )),
        }
    }

    fn cells(&self, measurements: &Measurements, arm: &str) -> [Cell; 2] {
        let baseline = &measurements.baseline;
        match self {
            Self::Crossings(noise) => [pooled(noise.as_ref(), arm, baseline), overhead(measurements, arm, Estimator::Grid)],
            Self::Stretches(paper, sheets) => {
                [sheets.matched.as_ref(), Some(&sheets.late)].map(|sheet| stretches::cell(sheet, arm, &paper.baseline))
            }
        }
    }
}

fn arm_row(measurements: &Measurements, over: &Overheads<'_>, arm: &str) -> Vec<Cell> {
    let study = &measurements.study;
    let title = study.recipes.get(arm).map_or("", |recipe| recipe.title.as_str());
    let name = Cell::new(study.label(arm)).detail(title).class("claim");
    let outcomes = measurements.outcomes(arm);
    if outcomes.is_empty() {
        let mut cells = vec![name, Cell::new("not run")];
        cells.resize(7, Cell::new("–"));
        return cells;
    }
    let reached: Vec<_> = outcomes.iter().filter_map(|run| run.crossing).collect();
    let tokens: Vec<f64> = reached.iter().map(|crossing| crossing.tokens(study.estimator)).collect();
    let all_reached = reached.len() == outcomes.len();
    let mean = summarise(&tokens).filter(|_| all_reached);
    let spread = mean.and_then(|summary| summary.sd).map(|sd| format!("sd {}", number::thousands(sd))).unwrap_or_default();
    // MLPerf's own score: the mean on the evaluation grid without the fastest and the slowest run.
    let grid: Vec<f64> = reached.iter().map(|crossing| crossing.grid).collect();
    let olympic =
        olympic_mean(&grid).filter(|_| all_reached).map(|score| format!("olympic {}", number::thousands(score))).into_iter().collect();
    let against = gap_baseline(measurements, arm);
    let gaps = measurements.gaps(arm, against);
    let last: Option<Vec<f64>> = gaps.iter().map(|gap| gap.last).collect();
    let named = if against == measurements.baseline { Vec::new() } else { vec![format!("to {}", study.label(against))] };
    let gap = match last.as_deref().and_then(summarise) {
        Some(summary) => {
            let interval = summary.interval.map(|i| format!("[{}, {}]", number::signed(i.low, 3), number::signed(i.high, 3)));
            Cell { lines: named, ..Cell::new(number::signed(summary.mean, 3)).detail(interval.unwrap_or_default()) }
        }
        None if gaps.is_empty() => Cell::new("–"),
        None => Cell::new("diverged"),
    };
    let missed = if reached.is_empty() { Cell::new("DNC") } else { Cell::new(format!("{} of {} reached", reached.len(), outcomes.len())) };
    let [fourth, fifth] = over.cells(measurements, arm);
    vec![
        name,
        Cell::new(format!("{} of {}", reached.len(), outcomes.len())),
        mean.map_or(missed, |summary| Cell { lines: olympic, ..Cell::new(number::thousands(summary.mean)).detail(spread) }),
        overhead(measurements, arm, study.estimator),
        fourth,
        fifth,
        gap,
    ]
}

/// Extra tokens of an arm with the interval that the scatter of all arms gives.
fn pooled(noise: Option<&Noise>, arm: &str, baseline: &str) -> Cell {
    match noise.and_then(|noise| noise.overhead(arm, baseline)).filter(|_| arm != baseline) {
        Some((share, interval)) => Cell::new(Unit::SignedPercent.number(share)).detail(Unit::SignedPercent.interval(&interval)),
        None => Cell::new("–"),
    }
}

/// What single runs can tell apart, in two sentences; none with too few runs, or where the rules of all papers have a table of that.
pub(super) fn noise(measurements: &Measurements) -> Option<String> {
    let noise = measurements.noise().filter(|_| measurements.study.papers.iter().any(|paper| paper.judging == 1))?;
    let percent = |share: f64| Unit::Percent.number(share);
    Some(format!(
        "Two runs with the same seed differ in tokens to the target by {} (one standard deviation, from {} arms with {} seeds each, {} degrees of freedom) beyond what arm and seed explain, so a table of one run an arm would have a 95{}% interval of ±{} here (how many runs stand behind an arm of the paper’s tables, we do not know); ±2{}% needs about {} seeds.",
        percent(noise.of_one_pair()),
        noise.arms,
        noise.seeds,
        noise.freedom,
        number::SPACE,
        percent(noise.half_width_of_one_pair()),
        number::SPACE,
        number::fixed(noise.seeds_for(0.02), 0),
    ))
}

/// What an arm's loss gap is taken to: the baseline of the first claim about the arm, else the first paper's.
fn gap_baseline<'a>(measurements: &'a Measurements, arm: &str) -> &'a str {
    let papers = &measurements.study.papers;
    let about = |claim: &&Claim| match &claim.metric {
        Metric::TokenOverhead { arm: of, .. }
        | Metric::TokenRatio { arm: of, .. }
        | Metric::DoesNotConverge { arm: of }
        | Metric::LossGap { arm: of, .. }
        | Metric::GapClosed { arm: of, .. } => of == arm,
        _ => false,
    };
    let claimed = papers.iter().find_map(|paper| Some((paper, paper.claims.iter().find(about)?)));
    claimed.map_or(&measurements.baseline, |(paper, claim)| claim.metric.baseline().unwrap_or(&paper.baseline))
}

/// Extra tokens of an arm over the baseline.
fn overhead(measurements: &Measurements, arm: &str, estimator: Estimator) -> Cell {
    if arm == measurements.baseline {
        return Cell::new("baseline");
    }
    let ratios = token_ratios(&measurements.tokens, arm, &measurements.baseline, estimator);
    let values: Vec<f64> = ratios.values().iter().map(|ratio| ratio - 1.0).collect();
    let Some(summary) = summarise(&values).filter(|_| ratios.baseline_missed.is_empty()) else { return Cell::new("–") };
    let bound = if ratios.lower_bounds() > 0 { "≥ " } else { "" };
    let interval =
        summary.interval.filter(|_| ratios.uncensored()).map(|interval| Unit::SignedPercent.interval(&interval)).unwrap_or_default();
    Cell::new(format!("{bound}{}", Unit::SignedPercent.number(summary.mean))).detail(interval)
}

/// Every run: how it ended, tokens to target by both estimators, the last loss and the hash of its metrics.
pub(super) fn runs(measurements: &Measurements) -> Grid {
    let columns = vec![
        words("Run", 0.30),
        words("Status", 0.14),
        numbers("Tokens, grid", 0.14),
        numbers("Tokens, interpolated", 0.15),
        numbers("Last loss", 0.10),
        words("Metrics SHA-256", 0.17),
    ];
    let equal = match measurements.study.hardware.device {
        DeviceKind::Cpu => "equal on every CPU",
        DeviceKind::Cuda | DeviceKind::Hip => "equal from run to run on one kind of GPU with the same libraries",
    };
    let mut grid = Grid::new("runs", &format!("Every run; hashes are those of the metrics file, {equal}"), columns);
    for run in &measurements.runs {
        let status = match &run.status {
            RunStatus::Completed => Cell::new("completed"),
            RunStatus::Diverged { step } => Cell::new(format!("diverged at step {step}")),
            RunStatus::Failed(error) => Cell::new("failed").detail(error).class("verdict failed"),
            RunStatus::Unfinished => Cell::new("unfinished"),
        };
        let crossing =
            measurements.tokens.iter().find(|tokens| tokens.arm == run.arm && tokens.seed == run.seed).map(|tokens| tokens.crossing);
        let tokens = |pick: fn(&crate::measure::target::Crossing) -> f64| match crossing {
            Some(Some(crossing)) => Cell::new(number::thousands(pick(&crossing))),
            Some(None) => Cell::new("not reached"),
            None => Cell::new("–"),
        };
        let cells = vec![
            Cell::new(&run.arm).detail(format!("seed {}", run.seed)),
            status,
            tokens(|crossing| crossing.grid),
            tokens(|crossing| crossing.interpolated),
            run.evaluations.last().map_or(Cell::new("–"), |last| Cell::new(number::fixed(last.loss, 4))),
            Cell::new(number::short_hash(&run.metrics_sha256)).class("code"),
        ];
        grid.row(&format!("{}-{}", run.arm, run.seed), cells);
    }
    grid
}

/// Interleaved step times, and each arm's speed against the baseline.
pub(super) fn step_times(measurements: &Measurements) -> Option<Grid> {
    let study = &measurements.study;
    let baseline = &measurements.baseline;
    let columns = vec![
        words("Arm", 0.24),
        numbers("Step", 0.14),
        numbers("Forward and backward", 0.16),
        numbers("Speed against the baseline", 0.24),
        words("Evidence", 0.22),
    ];
    let mut grid = Grid::new(
        "step-times",
        "Seconds of an optimizer step, medians of interleaved repeats, and step throughput over the baseline's",
        columns,
    );
    for time in times::step_times(&measurements.step_times) {
        let ratio = times::step_time_ratio(&measurements.step_times, baseline, &time.arm);
        let speed = match ratio {
            _ if time.arm == *baseline => Cell::new("baseline"),
            Some(ratio) => Cell::new(Unit::Factor.number(ratio.ratio))
                .detail(ratio.interval.map(|interval| Unit::Factor.interval(&interval)).unwrap_or_default()),
            None => Cell::new("–"),
        };
        let missing = study.emulated_formats(&[&time.arm]);
        let evidence = if study.interpreted {
            Cell::new("interpreted")
        } else if missing.is_empty() {
            Cell::new("native")
        } else {
            Cell::new("emulated").detail(missing.iter().map(|format| format.word()).collect::<Vec<_>>().join(", "))
        };
        let cells = vec![
            Cell::new(study.label(&time.arm)).detail(format!("{} repeats", time.repeats)),
            Cell::new(number::seconds(time.seconds)),
            Cell::new(number::seconds(time.forward_backward_seconds)),
            speed,
            evidence,
        ];
        grid.row(&time.arm, cells);
    }
    (!grid.rows.is_empty()).then_some(grid)
}

/// Kernel throughput over all linears: all passes together, then each.
pub(super) fn kernels(measurements: &Measurements) -> Option<Grid> {
    let records = &measurements.kernel_times;
    let columns = vec![
        words("Variant", 0.22),
        numbers("All passes", 0.20),
        numbers("Throughput", 0.19),
        numbers("Fprop", 0.13),
        numbers("Dgrad", 0.13),
        numbers("Wgrad", 0.13),
    ];
    let mut grid = Grid::new(
        "kernels",
        "GEMMs of the model's linear layers with rotation and quantisation included: seconds over all linears, medians of interleaved repeats",
        columns,
    );
    for variant in times::kernel_variants(records, None) {
        let mut cells = vec![
            Cell::new(&variant.variant).detail(format!("{} repeats", variant.repeats)),
            Cell::new(number::seconds(variant.seconds)),
            Cell::new(number::operations(variant.operations_per_second)),
        ];
        for pass in ["fprop", "dgrad", "wgrad"] {
            let chosen: Vec<_> = records.iter().filter(|record| record.pass == pass).cloned().collect();
            let found = times::kernel_variants(&chosen, None).into_iter().find(|other| other.variant == variant.variant);
            cells.push(found.map_or(Cell::new("–"), |found| Cell::new(number::seconds(found.seconds))));
        }
        grid.row(&variant.variant, cells);
    }
    (!grid.rows.is_empty()).then_some(grid)
}
