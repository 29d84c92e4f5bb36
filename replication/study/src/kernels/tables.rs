//! A kernels document as CSV files. One row type and one function a file.

use std::path::Path;

use serde::Serialize;

use super::clock_model::{ClockModel, ModelledRate};
use super::comparisons::Compared;
use super::document::{DOCUMENT, Document, DocumentError};
use super::gpu::{GpuBench, GpuRow};
use super::ranks::{RankRow, RanksBench};
use super::samples::{Benchmark, Samples};
use crate::files;
use crate::statistics::median;
use crate::table::{Flag, Number, Table};

/// Every table; that of devices only where some were looked for, that of ranks only where their steps were.
pub(crate) fn all(document: &Document) -> Vec<Table> {
    let mut all = vec![measurements(document), comparisons(document)];
    if !document.gpus.is_empty() || !document.not_run.is_empty() {
        all.push(devices(document));
    }
    if !document.ranks.is_empty() {
        all.push(ranks(document));
    }
    all
}

/// One measurement.
#[derive(Default, Serialize)]
struct MeasurementRow {
    /// `criterion`, `turns` or the peer's name.
    source: String,
    name: String,
    threads: usize,
    unit: String,
    operations: u64,
    bytes: Option<u64>,
    /// Median.
    seconds: Number,
    /// Criterion's interval of the median; of samples the least and the greatest.
    seconds_low: Number,
    seconds_high: Number,
    samples: Option<usize>,
    operations_per_second: Number,
    peak: Option<String>,
    peak_share: Option<Number>,
}

fn measurements(document: &Document) -> Table {
    let turns = document.samples.iter().map(|samples| of_samples("turns", samples.clone()));
    let peers = document.peers.iter().map(|peer| of_samples(&peer.peer, peer.as_samples()));
    Table::of("kernels.csv", document.benchmarks.iter().map(of_criterion).chain(turns).chain(peers))
}

fn of_criterion(benchmark: &Benchmark) -> MeasurementRow {
    let unit = match &benchmark.name {
        name if name.starts_with("quantise/") => "elements",
        name if name.starts_with("peak/read") => "bytes",
        _ => "operations",
    };
    MeasurementRow {
        source: "criterion".to_owned(),
        name: benchmark.name.clone(),
        threads: benchmark.threads,
        unit: unit.to_owned(),
        operations: benchmark.operations,
        bytes: Some(benchmark.bytes),
        seconds: Number(benchmark.seconds),
        seconds_low: Number(benchmark.interval[0]),
        seconds_high: Number(benchmark.interval[1]),
        samples: None,
        operations_per_second: Number(benchmark.operations as f64 / benchmark.seconds),
        peak: benchmark.peak.clone(),
        peak_share: benchmark.peak_share.map(Number),
    }
}

fn of_samples(source: &str, Samples { name, threads, operations, unit, samples, .. }: Samples) -> MeasurementRow {
    let seconds = median(&samples).unwrap_or(f64::NAN);
    let (low, high) = samples.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), s| (low.min(*s), high.max(*s)));
    MeasurementRow {
        source: source.to_owned(),
        name,
        threads,
        unit,
        operations,
        bytes: None,
        seconds: Number(seconds),
        seconds_low: Number(low),
        seconds_high: Number(high),
        samples: Some(samples.len()),
        operations_per_second: Number(operations as f64 / seconds),
        peak: None,
        peak_share: None,
    }
}

/// One ratio.
#[derive(Default, Serialize)]
struct ComparisonRow<'a> {
    /// A GPU's begins with its device.
    section: String,
    what: &'a str,
    ours: &'a str,
    over: &'a str,
    threads: usize,
    ratio: Option<Number>,
    low: Option<Number>,
    high: Option<Number>,
    n: usize,
    in_turns: Flag,
    bar: Option<Number>,
    verdict: &'a str,
    paper: Option<Number>,
    note: &'a str,
}

fn comparisons(document: &Document) -> Table {
    let of_cpu = document.comparisons.iter().map(|compared| ratio(compared.section.clone(), compared));
    let of_devices = document.of_devices().flat_map(|(device, comparisons)| {
        comparisons.iter().map(move |compared| ratio(format!("{device} {}", compared.section), compared))
    });
    Table::of("comparisons.csv", of_cpu.chain(of_devices))
}

fn ratio(section: String, compared: &Compared) -> ComparisonRow<'_> {
    ComparisonRow {
        section,
        what: &compared.what,
        ours: &compared.ours,
        over: &compared.over,
        threads: compared.threads,
        ratio: compared.ratio.map(Number),
        low: compared.interval.map(|[low, _]| Number(low)),
        high: compared.interval.map(|[_, high]| Number(high)),
        n: compared.n,
        in_turns: Flag(compared.in_turns),
        bar: compared.bar.map(Number),
        verdict: &compared.verdict,
        paper: compared.paper.map(Number),
        note: &compared.note,
    }
}

/// One measurement on a GPU, or a kind of device that is not here.
#[derive(Default, Serialize)]
struct DeviceRow<'a> {
    device: &'a str,
    gpu: &'a str,
    /// `measured`, `modelled` (by the clock model alone) or `not-run`; of the latter the rest is empty but name and needs.
    status: &'static str,
    mxfp4: &'a str,
    name: &'a str,
    unit: &'a str,
    operations: Option<u64>,
    seconds: Option<Number>,
    seconds_low: Option<Number>,
    seconds_high: Option<Number>,
    samples: Option<usize>,
    per_second: Option<Number>,
    of_stated_peak: Option<Number>,
    of_measured_peak: Option<Number>,
    needs: String,
}

/// Columns that follow where the clock model speaks; empty beside what it says nothing of.
#[derive(Default, Serialize)]
struct ModelledColumns {
    modelled_seconds: Option<Number>,
    modelled_per_second: Option<Number>,
    modelled_of_stated_peak: Option<Number>,
    measured_over_modelled: Option<Number>,
}

impl ModelledColumns {
    /// `row`: the measurement beside it.
    fn of(modelled: &ModelledRate, row: Option<&GpuRow<'_>>) -> Self {
        Self {
            modelled_seconds: Some(Number(modelled.seconds)),
            modelled_per_second: Some(Number(modelled.per_second)),
            modelled_of_stated_peak: Some(Number(modelled.of_stated)),
            measured_over_modelled: row.map(|row| Number(modelled.measured(row))),
        }
    }
}

/// Without the clock model's columns where there is no clock model.
fn devices(document: &Document) -> Table {
    const NAME: &str = "devices.csv";
    let alone: Vec<_> = document.model_alone().into_iter().flat_map(ClockModel::alone).collect();
    let mut rows = Vec::new();
    for gpu in &document.gpus {
        let model = document.model_of(gpu);
        rows.extend(gpu.rows().into_iter().map(|row| {
            let modelled = model.and_then(|model| model.beside(gpu, row.samples));
            (measured(gpu, &row), modelled.map(|modelled| ModelledColumns::of(&modelled, Some(&row))).unwrap_or_default())
        }));
        rows.extend(gpu.missing.iter().map(|missing| {
            let needs = format!("{} {}", missing.reason, missing.install).trim().to_owned();
            let row =
                DeviceRow { device: &gpu.device, gpu: &gpu.name, status: "not-run", name: &missing.name, needs, ..DeviceRow::default() };
            (row, ModelledColumns::default())
        }));
    }
    rows.extend(document.not_run.iter().map(|kind| {
        let needs = kind.needs.clone();
        let row = DeviceRow { device: &kind.device, status: "not-run", name: &kind.rows, needs, ..DeviceRow::default() };
        (row, ModelledColumns::default())
    }));
    rows.extend(alone.iter().map(|(name, work, rate)| {
        let row = DeviceRow { device: "hip", status: "modelled", name, unit: rate.unit, operations: Some(*work), ..DeviceRow::default() };
        (row, ModelledColumns::of(rate, None))
    }));
    if document.clock_model.is_some() { Table::of(NAME, rows) } else { Table::of(NAME, rows.into_iter().map(|row| row.0)) }
}

fn measured<'a>(gpu: &'a GpuBench, row: &GpuRow<'a>) -> DeviceRow<'a> {
    DeviceRow {
        device: &gpu.device,
        gpu: &gpu.name,
        status: "measured",
        mxfp4: &gpu.mxfp4,
        name: &row.samples.name,
        unit: &row.samples.unit,
        operations: Some(row.samples.operations),
        seconds: Some(Number(row.seconds)),
        seconds_low: row.interval.map(|[low, _]| Number(low)),
        seconds_high: row.interval.map(|[_, high]| Number(high)),
        samples: Some(row.samples.samples.len()),
        per_second: Some(Number(row.per_second)),
        of_stated_peak: row.of_stated.map(Number),
        of_measured_peak: row.of_measured.map(Number),
        needs: String::new(),
    }
}

/// One step of several ranks; what was not measured is empty, and `needs` says why.
#[derive(Default, Serialize)]
struct RanksRow<'a> {
    device: &'a str,
    name: &'a str,
    size: &'a str,
    arm: &'a str,
    ranks: usize,
    /// Of one rank, in a step.
    tokens: u64,
    seconds: Option<Number>,
    seconds_low: Option<Number>,
    seconds_high: Option<Number>,
    samples: usize,
    /// Of one rank.
    tokens_per_second: Option<Number>,
    /// Speed of a rank over that of `ideal_from` ranks.
    of_ideal: Option<Number>,
    ideal_from: Option<usize>,
    /// Shares of the step in which the rank that waits least waited for exchanges.
    exposed: Option<Number>,
    exposed_gradients: Option<Number>,
    exposed_norm: Option<Number>,
    exposed_parameters: Option<Number>,
    /// Which rank that is, and the share of the one that waits most; empty where one rank's waiting was recorded alone.
    exposed_rank: Option<usize>,
    waits_most: Option<Number>,
    peak_bytes: Option<u64>,
    peer: &'a str,
    peer_seconds: Option<Number>,
    peer_samples: Option<usize>,
    peer_tokens_per_second: Option<Number>,
    peer_peak_bytes: Option<u64>,
    over_peer: Option<Number>,
    over_peer_low: Option<Number>,
    over_peer_high: Option<Number>,
    needs: String,
}

fn ranks(document: &Document) -> Table {
    let rows = document.ranks.iter().flat_map(|bench| bench.rows().into_iter().map(|row| of_ranks(bench, &row)).collect::<Vec<_>>());
    Table::of("ranks.csv", rows)
}

fn of_ranks<'a>(bench: &'a RanksBench, row: &RankRow<'a>) -> RanksRow<'a> {
    let RankRow { step, timed, peer } = row;
    let (waits, over) = (timed.as_ref().and_then(|timed| timed.waits), peer.as_ref().and_then(|peer| peer.ours));
    let interval = timed.as_ref().and_then(|timed| timed.interval);
    let of_ideal = timed.as_ref().and_then(|timed| timed.of_ideal);
    let theirs = step.peer.as_ref();
    RanksRow {
        device: &bench.device,
        name: &bench.name,
        size: &step.size,
        arm: &step.arm,
        ranks: step.ranks,
        tokens: step.tokens,
        seconds: timed.as_ref().map(|timed| Number(timed.seconds)),
        seconds_low: interval.map(|[low, _]| Number(low)),
        seconds_high: interval.map(|[_, high]| Number(high)),
        samples: step.samples.len(),
        tokens_per_second: timed.as_ref().map(|timed| Number(timed.tokens_per_second)),
        of_ideal: of_ideal.map(|(taken, _)| Number(taken.ratio)),
        ideal_from: of_ideal.map(|(_, fewest)| fewest),
        exposed: waits.map(|waits| Number(waits.least.sum())),
        exposed_gradients: waits.map(|waits| Number(waits.least.gradients)),
        exposed_norm: waits.map(|waits| Number(waits.least.norm)),
        exposed_parameters: waits.map(|waits| Number(waits.least.parameters)),
        exposed_rank: waits.and_then(|waits| waits.most.map(|_| waits.least.rank)),
        waits_most: waits.and_then(|waits| waits.most).map(|most| Number(most.sum())),
        peak_bytes: step.peak_bytes,
        peer: theirs.map_or("", |peer| &peer.peer),
        peer_seconds: peer.as_ref().map(|peer| Number(peer.seconds)),
        peer_samples: theirs.map(|peer| peer.samples.len()),
        peer_tokens_per_second: peer.as_ref().map(|peer| Number(peer.tokens_per_second)),
        peer_peak_bytes: theirs.and_then(|peer| peer.peak_bytes),
        over_peer: over.map(|over| Number(over.ratio)),
        over_peer_low: over.and_then(|over| over.interval).map(|[low, _]| Number(low)),
        over_peer_high: over.and_then(|over| over.interval).map(|[_, high]| Number(high)),
        needs: step.needs(),
    }
}

impl Document {
    /// Writes kernels.json, kernels.csv, comparisons.csv and, where there is something to be in them, devices.csv and ranks.csv into `folder`.
    pub fn write(&self, folder: &Path) -> Result<(), DocumentError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| DocumentError::Json(error.to_string()))?;
        files::write(&folder.join(DOCUMENT), (text + "\n").as_bytes())?;
        Ok(all(self).iter().try_for_each(|table| table.write(folder))?)
    }
}
