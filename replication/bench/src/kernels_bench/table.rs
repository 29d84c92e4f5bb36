//! The terminal's table: bars first, then ratios, then where a step's time goes, then single kernels.

use std::fmt::Write as _;

use study::kernels::{
    ClockModel, Compared, Depth, Document, GpuBench, GpuRow, Missing, NotRun, RANK_COLUMNS, RanksBench, in_unit, is_summary, rate,
};

use super::DEEPER;

/// Appends a line to a `String`, which cannot fail.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {
        let _ = writeln!($text, $($format)*);
    };
}

/// Everything a reader of the terminal needs.
pub fn table(document: &Document) -> String {
    let mut text = String::new();
    if !document.benchmarks.is_empty() {
        single(document, &mut text);
    }
    profile(document, &mut text);
    let ratios: Vec<&Compared> = document.comparisons.iter().filter(|compared| compared.bar.is_none()).collect();
    compared("ratios of speeds, [95 % interval]", &ratios, &mut text);
    let bars: Vec<&Compared> = document.comparisons.iter().filter(|compared| compared.bar.is_some()).collect();
    compared("bars", &bars, &mut text);
    missing(&document.missing, &mut text);
    for gpu in &document.gpus {
        of_gpu(gpu, document.model_of(gpu), &mut text);
    }
    for ranks in &document.ranks {
        of_ranks(ranks, &mut text);
    }
    for NotRun { device, rows, needs } in &document.not_run {
        line!(text, "\n{device}: not-run ({rows})\n    it needs {needs}");
    }
    if let Some(model) = document.model_alone() {
        modelled(model, &mut text);
    }
    let count = |verdict: &str| document.bars().filter(|bar| bar.verdict == verdict).count();
    line!(
        text,
        "bars: {} met, {} missed, {} open; measured in {:.0} s",
        count("met"),
        count("missed"),
        count("open"),
        document.measuring_seconds
    );
    if document.depth != Depth::Deep && document.ranks.is_empty() {
        line!(text, "{DEEPER}");
    }
    text
}

/// Sums of blocks, peaks and steps of one GPU (single products are in devices.csv and on the page), then its ratios and bars.
fn of_gpu(gpu: &GpuBench, model: Option<&ClockModel>, text: &mut String) {
    line!(text, "\n{} {} ({}; MXFP4 {}; {})", gpu.device, gpu.name, gpu.architecture, gpu.mxfp4, gpu.libraries.join(", "));
    let rows: Vec<GpuRow<'_>> = gpu.rows().into_iter().filter(|row| is_summary(&row.samples.name)).collect();
    let width = rows.iter().map(|row| row.samples.name.len()).max().unwrap_or(0).max("kernel".len());
    let beside = if model.is_some() { "           modelled  of stated  measured/modelled" } else { "" };
    line!(text, "{:<width$}  microseconds  {:>22}  {:>15}  of stated  of measured{beside}", "kernel", "[95 % interval]", "rate");
    for row in &rows {
        let micro = |seconds: f64| format!("{:.1}", 1e6 * seconds);
        let interval = row.interval.map_or("-".to_owned(), |[low, high]| format!("[{}, {}]", micro(low), micro(high)));
        let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let beside = model.map_or_else(String::new, |model| {
            let modelled = model.beside(gpu, row.samples);
            let rate = modelled.as_ref().map_or("-".to_owned(), |modelled| in_unit(modelled.per_second, modelled.unit));
            let of_stated = share(modelled.as_ref().map(|modelled| modelled.of_stated));
            format!("  {rate:>17}  {of_stated:>9}  {:>17}", share(modelled.map(|modelled| modelled.measured(row))))
        });
        line!(
            text,
            "{:<width$}  {:>12}  {interval:>22}  {:>15}  {:>9}  {:>11}{beside}",
            row.samples.name,
            micro(row.seconds),
            rate(row),
            share(row.of_stated),
            share(row.of_measured)
        );
    }
    let (bars, ratios): (Vec<&Compared>, Vec<&Compared>) = gpu.comparisons.iter().partition(|compared| compared.bar.is_some());
    compared(&format!("ratios on {}, [95 % interval]", gpu.device), &ratios, text);
    compared(&format!("bars on {}", gpu.device), &bars, text);
    missing(&gpu.missing, text);
}

/// Steps of several ranks: a block of rows for each size.
fn of_ranks(bench: &RanksBench, text: &mut String) {
    line!(text, "\nsteps of several {}, each with as many sequences: {}", bench.each(), bench.title());
    line!(
        text,
        "of ideal: from the fewest; exchange not hidden: gradients + norm + parameters, in % of the step, of the rank that waits least"
    );
    line!(
        text,
        "in brackets the longest wait of any rank, since a faster one waits for a slower one, too; without brackets, rank 0's wait was recorded alone"
    );
    let joined = |(number, beside): &(String, String)| format!("{number} {beside}").trim_end().to_owned();
    let mut lines: Vec<Vec<String>> = vec![["Recipe", "Ranks"].into_iter().chain(RANK_COLUMNS).map(str::to_owned).collect()];
    for row in bench.rows() {
        let name = format!("{}/{}", row.step.size, row.step.arm);
        lines.push([name, row.step.ranks.to_string()].into_iter().chain(row.cells().iter().map(joined)).collect());
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    for line in &lines {
        let (first, rest) = (&line[0], line.iter().zip(&widths).skip(1));
        let rest = rest.map(|(cell, width)| format!("  {cell:>width$}", width = *width)).collect::<String>();
        line!(text, "{first:<width$}{rest}", width = widths[0]);
    }
    let (bars, ratios): (Vec<&Compared>, Vec<&Compared>) = bench.comparisons.iter().partition(|compared| compared.bar.is_some());
    compared(&format!("ratios of several {}, [95 % interval]", bench.each()), &ratios, text);
    compared(&format!("bars of several {}", bench.each()), &bars, text);
    missing(&bench.missing(), text);
}

/// What the clock model says of gfx950 kernels where no card was measured.
fn modelled(model: &ClockModel, text: &mut String) {
    line!(text, "\ngfx950 kernels by the clock model (modelled; nothing was measured; {})", model.compiler);
    let rows: Vec<_> = model.alone().collect();
    let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0).max("kernel".len());
    line!(text, "{:<width$}  measured  modelled microseconds  {:>15}  of stated", "kernel", "modelled rate");
    for (name, _, rate) in &rows {
        let (micro, share) = (1e6 * rate.seconds, 100.0 * rate.of_stated);
        line!(text, "{name:<width$}  {:>8}  {micro:>21.1}  {:>15}  {share:>7.0} %", "-", in_unit(rate.per_second, rate.unit));
    }
}

/// One line for all that one peer lacks for one reason.
fn missing(all: &[Missing], text: &mut String) {
    let reason = |missing: &Missing| missing.reason.split(':').next().unwrap_or_default().to_owned();
    let mut told: Vec<(String, String)> = Vec::new();
    for first in all {
        let key = (first.peer.clone(), reason(first));
        if told.contains(&key) {
            continue;
        }
        let more = all.iter().filter(|other| (&other.peer, reason(other)) == (&key.0, key.1.clone())).count() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let install = if first.install.is_empty() { String::new() } else { format!("; {}", first.install) };
        line!(text, "missing: {}{more} ({}): {}{install}", first.name, first.peer, first.reason);
        told.push(key);
    }
}

fn single(document: &Document, text: &mut String) {
    let width = document.benchmarks.iter().map(|benchmark| benchmark.name.len()).max().unwrap_or(0).max("kernel".len());
    line!(text, "{:<width$}  threads  microseconds      G/s    GB/s  of peak", "kernel");
    for benchmark in &document.benchmarks {
        let bytes = benchmark.gigabytes_per_second().map_or("-".to_owned(), |speed| format!("{speed:.1}"));
        let share = benchmark.peak_share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        line!(
            text,
            "{:<width$}  {:>7}  {:>12.1}  {:>7.1}  {bytes:>6}  {share:>7}",
            benchmark.name,
            benchmark.threads,
            1e6 * benchmark.seconds,
            benchmark.giga_per_second()
        );
    }
    line!(text, "G/s: thousand million operations, elements (quantise) or bytes (peak/read); peaks are of this run");
}

fn profile(document: &Document, text: &mut String) {
    if document.profile.is_empty() {
        return;
    }
    line!(text, "\nwhere a step's time goes, {} thread(s)", document.threads.first().unwrap_or(&1));
    line!(text, "size  {:<15}  {:<18}  {:>9}  {:>6}  {:>7}", "arm", "kernel", "ms", "share", "G/s");
    for row in &document.profile {
        let speed = row.giga_per_second().map_or("-".to_owned(), |speed| format!("{speed:.1}"));
        let share = format!("{:.1} %", 100.0 * row.share);
        line!(text, "{:<4}  {:<15}  {:<18}  {:>9.2}  {share:>6}  {speed:>7}", row.size, row.arm, row.kernel, 1e3 * row.seconds);
    }
}

fn compared(title: &str, rows: &[&Compared], text: &mut String) {
    if rows.is_empty() {
        return;
    }
    line!(text, "\n{title}");
    let width = rows.iter().map(|row| named(row).chars().count()).max().unwrap_or(0);
    let mut section = "";
    for row in rows {
        if row.section != section {
            section = &row.section;
            line!(text, "  {section}");
        }
        let number = |value: f64| if row.is_share { format!("{:.1} %", 100.0 * value) } else { format!("{value:.2}x") };
        let ratio = row.ratio.map_or("-".to_owned(), number);
        let interval = row.interval.map(|[low, high]| format!("[{}, {}]", number(low), number(high))).unwrap_or_default();
        let bar = row.bar.map(|bar| format!("bar {:<6} {:<6}", number(bar), row.verdict)).unwrap_or_default();
        let paper = row.paper.map(|paper| format!("paper {}", number(paper))).unwrap_or_default();
        line!(text, "{}", format!("{:<width$}  {ratio:>7} {interval:<18} {bar}{paper}", named(row)).trim_end());
        if !row.note.is_empty() {
            line!(text, "    {}", row.note);
        }
    }
}

fn named(row: &Compared) -> String {
    let threads = if row.threads == 1 { String::new() } else { format!(", {} threads", row.threads) };
    format!("{}{threads}", row.what)
}
