//! A campaign at work as a page that a browser reloads: how far each run is, the losses so far, and how far each arm lies above the baseline.
//! Nothing here is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::charts::{Curve, CurveChart};
use super::figure::{cut, mean_curve};
use super::grid::{Cell, Fact, Grid, numbers, words};
use super::{RenderError, html, svg};
use crate::number;

/// Curves of one chart that can be told apart.
const MOST_CURVES: usize = 8;

/// Steps and losses, or losses above others.
type Points = Vec<(f64, f64)>;

/// What is known of a campaign at a moment.
#[derive(Debug, Clone, Default)]
pub struct Live {
    pub profile: String,
    /// When it was looked at, for people.
    pub at: String,
    /// Seconds until the page is made again; none: it is not.
    pub every: Option<u64>,
    /// Until the last run ends, for people.
    pub left: Option<String>,
    /// The arm that others are compared with, if one is.
    pub baseline: Option<String>,
    pub runs: Vec<LiveRun>,
    /// A line each.
    pub gpus: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub struct LiveRun {
    pub arm: String,
    pub seed: u64,
    /// One word or two: `at work`, `finished`, ...
    pub state: &'static str,
    pub step: u64,
    pub steps: u64,
    /// Step and validation loss, oldest first.
    pub evaluations: Vec<(u64, f64)>,
    /// Until it ends, for people.
    pub left: Option<String>,
    pub device: String,
    /// What went wrong.
    pub error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Page {
    profile: String,
    refresh: Option<u64>,
    facts: Vec<Fact>,
    counts: Vec<Count>,
    /// Of all steps, in per cent.
    done: String,
    charts: Vec<String>,
    /// Arms that the charts leave out.
    left_out: usize,
    arms: Grid,
    runs: Option<Grid>,
    gpus: Vec<String>,
    figure_style: &'static str,
}

#[derive(Debug, Serialize)]
struct Count {
    name: &'static str,
    text: String,
    class: String,
}

/// The page, with no resource from elsewhere.
///
/// # Errors
/// A template that is missing or wrong.
pub fn live(live: &Live, templates: &Path) -> Result<String, RenderError> {
    html("watch.html.j2", templates, context! { page => Value::from(Serde(page(live))) })
}

fn page(live: &Live) -> Page {
    let arms = shown_arms(live);
    let charts = [losses(live, &arms), gaps(live, &arms)];
    let all: BTreeSet<&str> = live.runs.iter().filter(|run| !run.evaluations.is_empty()).map(|run| run.arm.as_str()).collect();
    let fact = |name: &str, text: &str| Fact { name: name.to_owned(), text: text.to_owned() };
    let mut facts = vec![fact("profile", &live.profile), fact("looked at", &live.at)];
    facts.extend(live.left.iter().map(|left| fact("about", &format!("{left} left"))));
    Page {
        profile: live.profile.clone(),
        refresh: live.every,
        facts,
        counts: counts(live),
        done: number::fixed(100.0 * share(live), 1),
        charts: charts.into_iter().flatten().map(|chart| chart.draw().inline()).collect(),
        left_out: all.len().saturating_sub(arms.len()),
        arms: arm_grid(live),
        runs: run_grid(live),
        gpus: live.gpus.clone(),
        figure_style: svg::STYLE,
    }
}

/// Steps that need not be made any more, of all.
fn share(live: &Live) -> f64 {
    let of = |run: &LiveRun| if matches!(run.state, "finished" | "diverged") { run.steps } else { run.step.min(run.steps) };
    let (done, all) = live.runs.iter().fold((0, 0), |(done, all), run| (done + of(run), all + run.steps));
    done as f64 / all.max(1) as f64
}

fn counts(live: &Live) -> Vec<Count> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    live.runs.iter().for_each(|run| *counts.entry(run.state).or_default() += 1);
    let count = |(name, count): (&'static str, usize)| Count { name, text: count.to_string(), class: name.replace(' ', "-") };
    counts.into_iter().map(count).collect()
}

/// Arms of the charts: the baseline, then those that are at work, then the others by name.
fn shown_arms(live: &Live) -> Vec<&str> {
    let rank = |run: &LiveRun| match () {
        () if Some(&run.arm) == live.baseline.as_ref() => 0,
        () if run.state == "at work" => 1,
        () => 2,
    };
    let mut arms: BTreeMap<&str, u8> = BTreeMap::new();
    for run in live.runs.iter().filter(|run| !run.evaluations.is_empty()) {
        let entry = arms.entry(&run.arm).or_insert(u8::MAX);
        *entry = rank(run).min(*entry);
    }
    let mut arms: Vec<(u8, &str)> = arms.into_iter().map(|(arm, rank)| (rank, arm)).collect();
    arms.sort_unstable();
    arms.into_iter().take(MOST_CURVES).map(|(_, arm)| arm).collect()
}

/// Step and loss of each seed of an arm that has any.
fn seeds<'a>(live: &'a Live, arm: &str) -> BTreeMap<u64, Points> {
    let points = |run: &'a LiveRun| run.evaluations.iter().map(|(step, loss)| (*step as f64, *loss)).collect();
    live.runs.iter().filter(|run| run.arm == arm && !run.evaluations.is_empty()).map(|run| (run.seed, points(run))).collect()
}

/// Loss above the baseline's of the same seed, at steps that both have.
fn above(live: &Live, arm: &str) -> Vec<Points> {
    let Some(baseline) = live.baseline.as_deref().filter(|baseline| *baseline != arm) else { return Vec::new() };
    let of_baseline = seeds(live, baseline);
    let pair = |(seed, points): (u64, Points)| {
        let base: BTreeMap<u64, f64> = of_baseline.get(&seed)?.iter().map(|(step, loss)| (*step as u64, *loss)).collect();
        let gaps: Points = points.iter().filter_map(|(step, loss)| Some((*step, loss - base.get(&(*step as u64))?))).collect();
        (!gaps.is_empty()).then_some(gaps)
    };
    seeds(live, arm).into_iter().filter_map(pair).collect()
}

fn losses(live: &Live, arms: &[&str]) -> Option<CurveChart> {
    let curves = arms.iter().map(|arm| (*arm, seeds(live, arm).into_values().collect()));
    chart("Validation loss so far", "validation loss, nats per token", false, curves)
}

fn gaps(live: &Live, arms: &[&str]) -> Option<CurveChart> {
    let title = format!("Above {} so far", cut(live.baseline.as_deref()?));
    // The colours of the other chart: the baseline, which comes first there, is a line at 0 here.
    let curves = arms.iter().map(|arm| match live.baseline.as_deref() == Some(*arm) {
        true => (*arm, seeds(live, arm).into_values().map(|points| points.iter().map(|(step, _)| (*step, 0.0)).collect()).collect()),
        false => (*arm, above(live, arm)),
    });
    let curves: Vec<(&str, Vec<Points>)> = curves.collect();
    let compared = curves.iter().filter(|(_, seeds)| !seeds.is_empty()).count();
    (compared > 1).then(|| chart(&title, "nats per token, equal seeds", true, curves.into_iter())).flatten()
}

/// Means and seeds over steps. The first twentieth, where every loss falls steeply, does not decide the range unless there is nothing else.
fn chart<'a>(title: &str, y_label: &str, with_zero: bool, arms: impl Iterator<Item = (&'a str, Vec<Points>)>) -> Option<CurveChart> {
    let curve = |(arm, seeds): (&str, Vec<Points>)| Curve { label: cut(arm), mean: mean_curve(&seeds), seeds };
    let curves: Vec<Curve> = arms.map(curve).collect();
    let points = || curves.iter().flat_map(|curve| curve.seeds.iter().flatten().copied());
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    let late: Vec<f64> = points().filter(|point| point.0 >= 0.05 * last).map(|point| point.1).collect();
    let start = if with_zero { (0.0, 0.0) } else { (f64::INFINITY, f64::NEG_INFINITY) };
    let (low, high) = late.iter().fold(start, |(low, high), loss| (loss.min(low), loss.max(high)));
    if last <= 0.0 || high <= low {
        return None;
    }
    let margin = 0.04 * (high - low);
    Some(CurveChart {
        title: title.to_owned(),
        description: format!(
            "{title}: {} arms over training steps; the mean over the steps that all seeds have, and each seed.",
            curves.len()
        ),
        x_label: "training steps".to_owned(),
        y_label: y_label.to_owned(),
        x: (0.0, last),
        y: (low - margin, high + margin),
        curves,
        ..CurveChart::default()
    })
}

/// Arms so far, at the last step that all their seeds have which have begun.
fn arm_grid(live: &Live) -> Grid {
    let columns = vec![
        words("Arm", 0.34),
        numbers("Seeds", 0.12),
        numbers("At step", 0.16),
        numbers("Mean loss", 0.18),
        numbers("Above baseline", 0.2),
    ];
    let mut grid =
        Grid::new("arms-so-far", "Validation losses so far, at the last step that all seeds of an arm have which have begun", columns);
    let arms: BTreeSet<&str> = live.runs.iter().map(|run| run.arm.as_str()).collect();
    for arm in arms {
        let of_arm = || live.runs.iter().filter(|run| run.arm == arm);
        let finished = of_arm().filter(|run| run.state == "finished").count();
        let (seeds, gaps): (Vec<_>, Vec<_>) = (seeds(live, arm).into_values().collect(), above(live, arm));
        let end = mean_curve(&seeds).last().copied();
        let gap = mean_curve(&gaps).last().map(|(step, gap)| {
            let same = end.is_some_and(|end| end.0 == *step) && gaps.len() == seeds.len();
            let where_else = if same { String::new() } else { format!("{} seed{} at step {step}", gaps.len(), number::plural(gaps.len())) };
            Cell::new(number::signed(*gap, 4)).detail(where_else)
        });
        let is_baseline = live.baseline.as_deref() == Some(arm);
        let cells = vec![
            Cell::new(arm).detail(if is_baseline { "the baseline" } else { "" }),
            Cell::new(of_arm().count().to_string()).detail(if finished > 0 { format!("{finished} finished") } else { String::new() }),
            Cell::new(end.map_or("–".to_owned(), |(step, _)| step.to_string())),
            Cell::new(end.map_or("–".to_owned(), |(_, loss)| number::fixed(loss, 4))),
            gap.unwrap_or_else(|| Cell::new("–")),
        ];
        grid.row(arm, cells);
    }
    grid.stacking()
}

/// Runs that are not finished, by state.
fn run_grid(live: &Live) -> Option<Grid> {
    let columns = vec![words("Run", 0.3), numbers("Step", 0.16), numbers("Loss", 0.12), numbers("Left", 0.14), words("On", 0.28)];
    let mut grid = Grid::new("open-runs", "Runs that are not finished", columns);
    for (state, heading) in [
        ("failed", "failed"),
        ("at work", "at work"),
        ("stopped", "stopped; the same command goes on"),
        ("diverged", "diverged"),
        ("waiting", "waiting"),
    ] {
        let runs: Vec<&LiveRun> = live.runs.iter().filter(|run| run.state == state).collect();
        if !runs.is_empty() {
            grid.heading(heading);
        }
        for run in runs {
            let name = format!("{}/{}", run.arm, run.seed);
            let loss = run.evaluations.last().map_or("–".to_owned(), |(_, loss)| number::fixed(*loss, 3));
            let cells = vec![
                Cell::new(&name).detail(run.error.clone().unwrap_or_default()),
                Cell::new(format!("{} / {}", run.step, run.steps)),
                Cell::new(loss),
                Cell::new(run.left.clone().unwrap_or_else(|| "–".to_owned())),
                Cell::new(&run.device),
            ];
            grid.row(&name, cells);
        }
    }
    (!grid.rows.is_empty()).then(|| grid.stacking())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arm: &str, seed: u64, state: &'static str, losses: &[f64]) -> LiveRun {
        let evaluations: Vec<(u64, f64)> = losses.iter().enumerate().map(|(index, loss)| (10 * index as u64, *loss)).collect();
        let step = evaluations.last().map_or(0, |(step, _)| *step);
        LiveRun { arm: arm.to_owned(), seed, state, step, steps: 40, evaluations, device: "cpu".to_owned(), ..LiveRun::default() }
    }

    fn campaign() -> Live {
        let runs = vec![
            run("fp8", 1, "finished", &[7.0, 6.0, 5.0, 4.5, 4.25]),
            run("fp8", 2, "at work", &[7.0, 6.25, 5.25]),
            run("mxfp4-f", 1, "at work", &[7.0, 6.5, 5.5, 5.25]),
            run("mxfp4-f", 2, "at work", &[7.0, 6.5]),
            run("mxfp4-f", 3, "at work", &[7.0, 6.25, 5.5]),
            run("<b>", 1, "waiting", &[]),
        ];
        Live { profile: "somewhere".to_owned(), baseline: Some("fp8".to_owned()), every: Some(5), runs, ..Live::default() }
    }

    /// By hand: seed 1 lies 0.5, 0.5, 0.75 above at steps 10, 20, 30; seed 2 lies 0.25 above at step 10; seed 3 has no partner.
    #[test]
    fn an_arm_lies_above_the_baseline_of_the_same_seed_at_the_same_step() {
        let live = campaign();
        let gaps = above(&live, "mxfp4-f");
        assert_eq!(gaps, [vec![(0.0, 0.0), (10.0, 0.5), (20.0, 0.5), (30.0, 0.75)], vec![(0.0, 0.0), (10.0, 0.25)]]);
        assert_eq!(mean_curve(&gaps), [(0.0, 0.0), (10.0, 0.375)]);
        let cells: Vec<(String, String)> =
            arm_grid(&live).rows[2].cells.iter().map(|cell| (cell.text.clone(), cell.detail.clone())).collect();
        let cell = |text: &str, detail: &str| (text.to_owned(), detail.to_owned());
        let loss = number::fixed((6.5 + 6.5 + 6.25) / 3.0, 4);
        assert_eq!(cells, [cell("mxfp4-f", ""), cell("3", ""), cell("10", ""), cell(&loss, ""), cell("+0.3750", "2 seeds at step 10")]);
        assert!(above(&live, "fp8").is_empty() && above(&Live { baseline: None, ..live }, "mxfp4-f").is_empty());
    }

    /// 10 + 20 + 30 + 10 + 20 steps of 6 runs of 40, the finished one with all of its own.
    #[test]
    fn a_page_says_how_far_the_campaign_is_and_takes_nobodys_words_for_markup() {
        let live = campaign();
        assert!((share(&live) - 120.0 / 240.0).abs() < 1e-12, "{}", share(&live));
        let page = super::live(&live, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paper")).unwrap();
        assert!(page.contains("<meta http-equiv=\"refresh\" content=\"5\">") && page.contains("50.0 %"), "{page}");
        assert!(page.contains("&lt;b&gt;/1") && !page.contains("<b>/1"), "{page}");
        assert_eq!(page.matches("<svg ").count(), 2);
        assert!(!page.contains("<script"));
        let once = super::live(&Live { every: None, ..live }, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paper")).unwrap();
        assert!(!once.contains("http-equiv"));
    }

    #[test]
    fn charts_show_the_baseline_then_what_is_at_work_and_say_what_they_leave_out() {
        let mut live = campaign();
        live.runs.extend((0..9).map(|arm| run(&format!("arm-{arm}"), 1, "finished", &[7.0, 6.0])));
        let arms = shown_arms(&live);
        assert_eq!((arms.len(), &arms[..3]), (MOST_CURVES, &["fp8", "mxfp4-f", "arm-0"][..]));
        assert_eq!(page(&live).left_out, 11 - MOST_CURVES);
        let waiting = Live { runs: vec![run("fp8", 1, "waiting", &[])], ..campaign() };
        assert!(page(&waiting).charts.is_empty());
    }
}
