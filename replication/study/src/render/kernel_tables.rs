//! What `kernels-bench` measured as tables: for its own page and for a campaign's report.

use std::path::Path;

use contract::device::DeviceKind;
use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::grid::{Cell, Fact, Grid, numbers, words};
use super::{RenderError, html};
use crate::kernels::{
    ClockModel, Compared, Document, GpuBench, Missing, ModelledRate, NotRun, ProfileRow, RANK_COLUMNS, RanksBench, Samples, in_unit,
    is_summary, profile_rows, rate,
};
use crate::manifest::Metric;
use crate::measure::Measurements;
use crate::number;

/// The tables of one kernels.json.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Section {
    /// Whether the CPU was measured: where only a GPU was, the tables up to `missing` are empty and not shown.
    pub of_cpu: bool,
    pub bars: Grid,
    pub ratios: Grid,
    pub profile: Option<Grid>,
    pub single: Grid,
    pub missing: Option<Grid>,
    /// Of each GPU: its bars, its ratios, its kernels.
    pub gpus: Vec<GpuSection>,
    /// Steps of several ranks, of each kind of device.
    pub ranks: Vec<RanksSection>,
    /// Kinds of device that are not here.
    pub not_run: Option<Grid>,
    /// What the clock model says where no card was measured.
    pub modelled: Option<Grid>,
}

/// The tables of one GPU.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GpuSection {
    pub title: String,
    pub note: String,
    pub bars: Grid,
    pub ratios: Grid,
    pub kernels: Grid,
    pub missing: Option<Grid>,
}

/// The tables of several ranks' steps.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RanksSection {
    pub title: String,
    pub steps: Grid,
    /// None of a model that has none.
    pub bars: Option<Grid>,
    pub ratios: Grid,
    pub missing: Option<Grid>,
}

impl Section {
    pub(super) fn grids(&self) -> Vec<&Grid> {
        let Self { of_cpu, bars, ratios, profile, single, missing, gpus, ranks, not_run, modelled } = self;
        let cpu = [Some(bars), Some(ratios), profile.as_ref(), Some(single), missing.as_ref()];
        let cpu = cpu.into_iter().filter(|_| *of_cpu);
        let of_gpus = gpus.iter().flat_map(|gpu| [Some(&gpu.bars), Some(&gpu.ratios), Some(&gpu.kernels), gpu.missing.as_ref()]);
        let of_ranks =
            ranks.iter().flat_map(|ranks| [Some(&ranks.steps), ranks.bars.as_ref(), Some(&ranks.ratios), ranks.missing.as_ref()]);
        cpu.chain(of_gpus).chain(of_ranks).chain([not_run.as_ref(), modelled.as_ref()]).flatten().collect()
    }
}

/// A count with its style.
#[derive(Debug, Clone, Serialize)]
struct Count {
    name: &'static str,
    text: String,
    class: &'static str,
}

#[derive(Debug, Clone, Serialize)]
struct KernelsPage {
    machine: String,
    facts: Vec<Fact>,
    counts: Vec<Count>,
    section: Section,
    figure_style: &'static str,
}

/// The tables of a document; of a GPU's many products the sums alone unless `is_whole`.
pub(super) fn section(document: &Document, is_whole: bool) -> Section {
    Section {
        of_cpu: document.of_cpu(),
        bars: bars(document),
        ratios: ratios(document),
        profile: (!document.profile.is_empty()).then(|| profile("bench-profile", &document.profile, str::to_owned)),
        single: single(document),
        missing: (!document.missing.is_empty()).then(|| missing("kernel-missing", &document.missing)),
        gpus: document.gpus.iter().map(|gpu| gpu_section(gpu, document.model_of(gpu), is_whole)).collect(),
        ranks: document.ranks.iter().map(ranks_section).collect(),
        not_run: (!document.not_run.is_empty()).then(|| not_run(&document.not_run)),
        modelled: document.model_alone().map(modelled),
    }
}

fn gpu_section(gpu: &GpuBench, model: Option<&ClockModel>, is_whole: bool) -> GpuSection {
    let id = |what: &str| format!("{}-{what}", gpu.device.replace(':', ""));
    let rows = |has_bar: bool| gpu.comparisons.iter().filter(move |compared| compared.bar.is_some() == has_bar);
    let note = format!(
        "{}; {}. MXFP4 is {} here: {}.",
        gpu.architecture,
        gpu.libraries.join(", "),
        gpu.mxfp4,
        if gpu.mxfp4 == "native" { "an FP4 unit multiplies" } else { "exact values, carried by another arithmetic unit" }
    );
    GpuSection {
        title: format!("{} ({})", gpu.name, gpu.device),
        note,
        bars: bar_grid(&id("bars"), &format!("Bars on {}, each a ratio taken in one run", gpu.name), rows(true)),
        ratios: ratio_grid(&id("ratios"), &format!("Ratios of speeds on {}, with 95 % intervals", gpu.name), rows(false)),
        kernels: gpu_kernels(&id("kernels"), gpu, model, is_whole),
        missing: (!gpu.missing.is_empty()).then(|| missing(&id("missing"), &gpu.missing)),
    }
}

fn ranks_section(bench: &RanksBench) -> RanksSection {
    let id = |what: &str| format!("ranks-{}-{what}", bench.device);
    let rows = |has_bar: bool| bench.comparisons.iter().filter(move |compared| compared.bar.is_some() == has_bar);
    RanksSection {
        title: format!("Steps of several {}: {}", bench.each(), bench.title()),
        steps: rank_steps(&id("steps"), bench),
        bars: rows(true).next().map(|_| bar_grid(&id("bars"), &format!("Bars of several {}", bench.each()), rows(true))),
        ratios: ratio_grid(&id("ratios"), &format!("Ratios of several {}, with 95 % intervals", bench.each()), rows(false)),
        missing: (!bench.missing().is_empty()).then(|| missing(&id("missing"), &bench.missing())),
    }
}

/// A row for each step that was asked for, under its model and batch.
fn rank_steps(id: &str, bench: &RanksBench) -> Grid {
    let mut columns = vec![words("Recipe", 0.18), numbers("Ranks", 0.08)];
    columns.extend(RANK_COLUMNS.map(|title| numbers(title, 0.74 / RANK_COLUMNS.len() as f64)));
    let caption =
        format!("Whole steps, medians with 95 % intervals; each of the {} has as many sequences whatever their number", bench.each());
    let mut grid = Grid::new(id, &caption, columns);
    let mut heading = "";
    for (index, row) in bench.rows().iter().enumerate() {
        if row.step.size != heading {
            heading = &row.step.size;
            grid.heading(heading);
        }
        let cells = row.cells().map(|(number, beside)| Cell::new(number).detail(beside));
        grid.row(
            &format!("k{index}"),
            [Cell::new(&row.step.arm), Cell::new(row.step.ranks.to_string())].into_iter().chain(cells).collect(),
        );
    }
    grid
}

/// Every measurement of a GPU, or the sums over a block and the steps alone; each set of shapes by kind of kernel.
fn gpu_kernels(id: &str, gpu: &GpuBench, model: Option<&ClockModel>, is_whole: bool) -> Grid {
    let columns = if model.is_some() {
        vec![
            words("Kernel", 0.26),
            numbers("Time", 0.19),
            numbers("Rate", 0.12),
            numbers("Of stated", 0.09),
            numbers("Of measured", 0.1),
            numbers("Modelled", 0.14),
            numbers("Measured : modelled", 0.1),
        ]
    } else {
        vec![words("Kernel", 0.33), numbers("Time", 0.27), numbers("Rate", 0.16), numbers("Of stated", 0.12), numbers("Of measured", 0.12)]
    };
    let what = if is_whole { "Kernels and steps" } else { "A block’s kernels, and steps," };
    let caption = format!("{what} on {}: medians with 95 % intervals, against the maker’s peak and against this run’s", gpu.name);
    let mut grid = Grid::new(id, &caption, columns);
    let rows: Vec<_> = gpu.rows().into_iter().enumerate().filter(|(_, row)| is_whole || is_summary(&row.samples.name)).collect();
    let mut headings: Vec<String> = Vec::new();
    for (_, row) in &rows {
        let heading = heading(row.samples);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for text in headings {
        grid.heading(&text);
        for (index, row) in rows.iter().filter(|(_, row)| heading(row.samples) == text) {
            let rest = row.samples.name.split_once('/').map_or(row.samples.name.as_str(), |(_, rest)| rest);
            let interval = row.interval.map(|[low, high]| format!("[{}, {}]", number::seconds(low), number::seconds(high)));
            let share = |share: Option<f64>| share.map_or("–".to_owned(), |share| format!("{} %", number::fixed(100.0 * share, 0)));
            let mut cells = vec![
                Cell::new(rest),
                Cell::new(number::seconds(row.seconds)).detail(interval.unwrap_or_default()),
                Cell::new(rate(row)),
                Cell::new(share(row.of_stated)),
                Cell::new(share(row.of_measured)),
            ];
            if let Some(model) = model {
                let modelled = model.beside(gpu, row.samples);
                cells.push(modelled.as_ref().map_or_else(|| Cell::new("–"), of_model));
                cells.push(Cell::new(share(modelled.map(|modelled| modelled.measured(row)))));
            }
            grid.row(&format!("g{index}"), cells);
        }
    }
    grid
}

/// A modelled rate, and its share of what the maker states.
fn of_model(modelled: &ModelledRate) -> Cell {
    Cell::new(in_unit(modelled.per_second, modelled.unit)).detail(format!("{} %", number::fixed(100.0 * modelled.of_stated, 0)))
}

/// What the clock model says of each of its kernels; the measurement beside it waits for a card.
fn modelled(model: &ClockModel) -> Grid {
    let columns =
        vec![words("Kernel", 0.46), numbers("Measured", 0.14), numbers("Modelled time", 0.18), numbers("Modelled rate, of stated", 0.22)];
    let caption = format!("gfx950 kernels by the clock model: modelled, nothing was measured ({})", model.compiler);
    let mut grid = Grid::new("kernel-modelled", &caption, columns);
    for (index, (name, _, rate)) in model.alone().enumerate() {
        let cells = vec![Cell::new(name), Cell::new("–"), Cell::new(number::seconds(rate.seconds)), of_model(&rate)];
        grid.row(&format!("m{index}"), cells);
    }
    grid
}

/// `llama31-8b, gemm`; steps are under the arms that took turns.
fn heading(samples: &Samples) -> String {
    let kind = samples.name.split('/').next().unwrap_or_default();
    match samples.group.strip_prefix("kernels ") {
        Some(shapes) => format!("{shapes}, {kind}"),
        None => samples.group.clone(),
    }
}

fn not_run(all: &[NotRun]) -> Grid {
    let columns = vec![words("Device", 0.14), words("Verdict", 0.12), words("What it would measure", 0.34), words("What it needs", 0.4)];
    let mut grid = Grid::new("kernel-not-run", "Devices that are not here", columns).stacking();
    for (index, row) in all.iter().enumerate() {
        let verdict = Cell::new("not-run").class(format!("verdict {}", style("open")));
        grid.row(&format!("n{index}"), vec![Cell::new(&row.device), verdict, Cell::new(&row.rows), Cell::new(&row.needs)]);
    }
    grid
}

/// The verdict's word and the style of the word that it is like: a bar that is met looks like a claim that is reproduced.
const VERDICTS: [(&str, &str); 3] = [("met", "reproduced"), ("missed", "differs"), ("open", "not-run")];

fn style(verdict: &str) -> &'static str {
    VERDICTS.iter().find(|(word, _)| *word == verdict).map_or("", |(_, style)| style)
}

fn number(compared: &Compared, value: f64) -> String {
    if compared.is_share { format!("{} %", number::fixed(100.0 * value, 1)) } else { format!("{}×", number::fixed(value, 2)) }
}

fn ratio(compared: &Compared) -> Cell {
    let Some(value) = compared.ratio else { return Cell::new("–") };
    let interval = compared.interval.map(|[low, high]| format!("[{}, {}]", number(compared, low), number(compared, high)));
    Cell::new(number(compared, value)).detail(interval.unwrap_or_default())
}

fn what(compared: &Compared) -> Cell {
    let over = if compared.over.is_empty() { String::new() } else { format!("{} : {}", compared.ours, compared.over) };
    Cell::new(&compared.what).detail(over).class("claim")
}

/// Rows under their sections' headings.
fn grouped<'a>(grid: &mut Grid, rows: impl Iterator<Item = &'a Compared>, cells: impl Fn(&Compared) -> Vec<Cell>) {
    let mut section = "";
    for (index, compared) in rows.enumerate() {
        if compared.section != section {
            section = &compared.section;
            grid.heading(section);
        }
        grid.row(&format!("r{index}"), cells(compared));
    }
}

fn bars(document: &Document) -> Grid {
    let threads = document.threads.first().copied().unwrap_or(1);
    let caption = format!("Bars, each a ratio taken in one run, {threads} thread{} where nothing else is said", number::plural(threads));
    bar_grid("kernel-bars", &caption, document.comparisons.iter().filter(|compared| compared.bar.is_some()))
}

fn bar_grid<'a>(id: &str, caption: &str, rows: impl Iterator<Item = &'a Compared>) -> Grid {
    let columns = vec![words("What", 0.42), numbers("Bar", 0.09), numbers("Ours", 0.17), words("Verdict", 0.32)];
    let mut grid = Grid::new(id, caption, columns).stacking();
    grouped(&mut grid, rows, |compared| {
        let verdict = Cell::new(&compared.verdict).detail(&compared.note).class(format!("verdict {}", style(&compared.verdict)));
        let asked = compared.bar.map_or_else(String::new, |bar| number(compared, bar));
        vec![what(compared), Cell::new(asked), ratio(compared), verdict]
    });
    grid
}

fn ratios(document: &Document) -> Grid {
    let rows = document.comparisons.iter().filter(|compared| compared.bar.is_none());
    ratio_grid("kernel-ratios", "Ratios of speeds, with 95 % intervals", rows)
}

fn ratio_grid<'a>(id: &str, caption: &str, rows: impl Iterator<Item = &'a Compared>) -> Grid {
    let columns =
        vec![words("What", 0.48), numbers("Threads", 0.1), numbers("Ratio", 0.2), numbers("The paper’s", 0.1), words("Taken", 0.12)];
    let mut grid = Grid::new(id, caption, columns).stacking();
    grouped(&mut grid, rows, |compared| {
        let taken =
            if compared.in_turns { format!("in turns, {} rounds", compared.n) } else { format!("of medians, {} samples", compared.n) };
        let paper = compared.paper.map_or_else(String::new, |paper| number(compared, paper));
        vec![what(compared), Cell::new(compared.threads.to_string()), ratio(compared), Cell::new(paper), Cell::new(taken)]
    });
    grid
}

/// Where a step's time goes; `label` names a recipe for the reader.
pub(super) fn profile(id: &str, rows: &[ProfileRow], label: impl Fn(&str) -> String) -> Grid {
    let columns = vec![
        words("Kernel", 0.36),
        numbers("Time in a step", 0.18),
        numbers("Share", 0.12),
        numbers("Calls", 0.12),
        numbers("Speed", 0.22),
    ];
    let mut grid = Grid::new(id, "Where a step’s time goes: medians over repeats, by kind of kernel", columns);
    let mut heading = String::new();
    for (index, row) in rows.iter().enumerate() {
        let size = if row.size.is_empty() { String::new() } else { format!("size {}, ", row.size) };
        let group = format!("{size}{}", label(&row.arm));
        if group != heading {
            grid.heading(&group);
            heading = group;
        }
        let unit = if row.kernel.starts_with("gemm") { "Gop/s" } else { "G elements/s" };
        let speed = row
            .giga_per_second()
            .map_or("–".to_owned(), |speed| format!("{} {unit}", number::fixed(speed, if speed < 10.0 { 2 } else { 0 })));
        let calls = if row.calls == 0 { "–".to_owned() } else { row.calls.to_string() };
        let share = format!("{} %", number::fixed(100.0 * row.share, 1));
        grid.row(
            &format!("p{index}"),
            vec![Cell::new(&row.kernel), Cell::new(number::seconds(row.seconds)), Cell::new(share), Cell::new(calls), Cell::new(speed)],
        );
    }
    grid
}

/// Where a step's time goes in the baseline and in the full MXFP4 arm: the two that the paper's step-time claim compares.
pub(super) fn step_profile(measurements: &Measurements) -> Option<Grid> {
    let study = &measurements.study;
    let compared = study.papers.iter().flat_map(|paper| &paper.claims).find_map(|claim| match &claim.metric {
        Metric::StepTimeRatio { numerator, denominator } => Some([numerator.as_str(), denominator.as_str()]),
        _ => None,
    });
    let mut rows = profile_rows("", &measurements.step_profile);
    if let Some(arms) = compared.filter(|arms| arms.iter().all(|arm| rows.iter().any(|row| row.arm == *arm))) {
        rows.retain(|row| arms.contains(&row.arm.as_str()));
    }
    (!rows.is_empty()).then(|| profile("step-profile", &rows, |arm| study.label(arm).to_owned()))
}

/// Where and when the kernels were benched, as one sentence; what to do when they were not.
pub(super) fn origin(measurements: &Measurements, campaign: &serde_json::Value) -> String {
    let Some(document) = &measurements.kernels_bench else {
        let device = match measurements.study.hardware.device {
            DeviceKind::Cpu => "",
            DeviceKind::Cuda => " --device cuda",
            DeviceKind::Hip => " --device hip",
        };
        return format!(
            "The kernels alone were not measured on this machine: run cargo xtask kernels-bench{device} --peers, then the campaign again (finished runs are reused)."
        );
    };
    let commit: String = document.commit.chars().take(12).collect();
    let dirty = if document.dirty { " with uncommitted changes" } else { "" };
    let runs = campaign.get("trainer_code").and_then(serde_json::Value::as_str).unwrap_or_default();
    let other = if same_trainer(runs, &document.trainer_code) { "" } else { "; their sources are not those of this campaign's runs" };
    format!("Measured on {} on {}, {} depth, commit {commit}{dirty}{other}.", document.machine, document.date, document.depth.word())
}

/// Records of before there were identities are hashes of sources: `CPU`, or `CPU+GPU` where a GPU was used.
fn same_trainer(a: &str, b: &str) -> bool {
    let begins = |whole: &str, part: &str| whole.split_once('+').is_some_and(|(cpu, _)| cpu == part);
    a == b || begins(a, b) || begins(b, a)
}

fn single(document: &Document) -> Grid {
    let columns = vec![
        words("Kernel", 0.36),
        numbers("Threads", 0.09),
        numbers("Time", 0.2),
        numbers("G/s", 0.1),
        numbers("GB/s", 0.1),
        numbers("Of peak", 0.15),
    ];
    let caption = "Single kernels: thousand million operations (products), elements (preparation) or bytes (reading peaks) a second";
    let mut grid = Grid::new("kernel-single", caption, columns);
    let mut kind = "";
    for (index, benchmark) in document.benchmarks.iter().enumerate() {
        let (this, rest) = benchmark.name.split_once('/').unwrap_or(("", &benchmark.name));
        if this != kind {
            kind = this;
            grid.heading(kind);
        }
        let [low, high] = benchmark.interval.map(number::seconds);
        let share = benchmark.peak_share.map_or("–".to_owned(), |share| format!("{} %", number::fixed(100.0 * share, 0)));
        let bytes = benchmark.gigabytes_per_second().map_or("–".to_owned(), |speed| number::fixed(speed, 1));
        let cells = vec![
            Cell::new(rest),
            Cell::new(benchmark.threads.to_string()),
            Cell::new(number::seconds(benchmark.seconds)).detail(format!("[{low}, {high}]")),
            Cell::new(number::fixed(benchmark.giga_per_second(), 1)),
            Cell::new(bytes),
            Cell::new(share).detail(benchmark.peak.as_deref().unwrap_or_default().trim_start_matches("peak/")),
        ];
        grid.row(&format!("s{index}"), cells);
    }
    grid
}

fn missing(id: &str, all: &[Missing]) -> Grid {
    let columns = vec![words("What", 0.3), words("Peer", 0.16), words("Why", 0.28), words("What it needs", 0.26)];
    let mut grid = Grid::new(id, "What did not run", columns).stacking();
    for (index, missing) in all.iter().enumerate() {
        let cells = [&missing.name, &missing.peer, &missing.reason, &missing.install].map(Cell::new).to_vec();
        grid.row(&format!("m{index}"), cells);
    }
    grid
}

pub fn kernels_page(document: &Document, templates: &Path) -> Result<String, RenderError> {
    const NAME: &str = "kernels.html.j2";
    let fact = |name: &str, text: String| Fact { name: name.to_owned(), text };
    let commit: String = document.commit.chars().take(12).collect();
    // What is only of a CPU's kernels is no fact of a GPU's.
    let of_cpu = document.of_cpu();
    let threads = document.threads.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let facts = [
        Some(fact("Machine", document.machine.clone())),
        Some(fact("Processor", document.processor.clone())),
        of_cpu.then(|| fact("Instruction set", document.instruction_set.clone())),
        of_cpu.then(|| fact("Threads", threads)),
        Some(fact("Depth", document.depth.word().to_owned())),
        document.only.as_ref().map(|only| fact("Only", only.clone())),
        Some(fact("Measured", format!("{} in {}", document.date, number::seconds(document.measuring_seconds)))),
        Some(fact("Commit", if document.dirty { format!("{commit} with uncommitted changes") } else { commit })),
    ];
    let count = |word: &str| document.bars().filter(|bar| bar.verdict == word).count();
    let counts = VERDICTS.map(|(name, class)| Count { name, text: count(name).to_string(), class });
    let page = KernelsPage {
        machine: document.machine.clone(),
        facts: facts.into_iter().flatten().collect(),
        counts: counts.into_iter().filter(|count| count.text != "0").collect(),
        section: section(document, true),
        figure_style: super::svg::STYLE,
    };
    html(NAME, templates, context! { page => Value::from(Serde(&page)) })
}
