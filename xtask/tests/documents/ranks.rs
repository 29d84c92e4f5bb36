//! The tables of docs/ranks.md and what is said beside them, from the directories that they link to and from the planner, and the sentences about
//! single steps, from the lines of docs/measured.

use std::collections::BTreeMap;
use std::path::Path;

use campaign::forecast::{Known, MeasuredStep, forecast, measured_steps, spread};
use contract::json;
use contract::measurements::StepTimeLine;
use contract::text::GIB;
use serde_json::Value;
use study::manifest::{Manifests, Profile};

use super::numbers::grouped;

/// What kernels-bench measured on two GPUs, and on four.
const TWO: Section = Section { heading: "### Llama 3.1-8B on two H200s", directory: "results/kernels-2026-11-25-nvidia-h200-x2", ranks: 2 };
const FOUR: Section =
    Section { heading: "### Llama 3.1-8B on four H200s", directory: "results/kernels-2026-11-26-nvidia-h200-x4", ranks: 4 };
/// On four.
const CAMPAIGN: &str = "results/2026-11-26-nvidia-h200-h200-8b-a2e09908";
const EARLIER: &str = "docs/measured/ranks-2026-11-23-two-h200s";
const SINGLE: &str = "docs/measured/ranks-2026-11-26-four-h200s";

const CUT: &str = "llama31-8b-8-layers";
const WHOLE: &str = "llama31-8b";
const WHOLE_BATCH: &str = "llama31-8b-32-sequences";
/// Micro-batches of a step of the paper's batch.
const MICRO_BATCHES: usize = 32;
const ARMS: [&str; 3] = ["bf16", "fp8", "mxfp4-fdw-h16"];

struct Section {
    heading: &'static str,
    directory: &'static str,
    ranks: usize,
}

impl Section {
    fn text(&self) -> String {
        let page = super::read("docs/ranks.md");
        let text = page.split(self.heading).nth(1).unwrap().split("\n#").next().unwrap();
        assert!(text.contains(&format!("](../{}/ranks.csv)", self.directory)), "{}", self.heading);
        text.to_owned()
    }

    /// What is not there of some sentences.
    fn check(&self, wanted: impl IntoIterator<Item = String>) {
        let text = self.text().replace("\n  ", " ").replace('\n', " ");
        for wanted in wanted {
            assert!(text.contains(&wanted), "{}: {wanted}", self.heading);
        }
    }

    fn rows(&self) -> Rows {
        let mut reader = csv::Reader::from_path(super::root().join(self.directory).join("ranks.csv")).unwrap();
        Rows(reader.deserialize().map(Result::unwrap).collect())
    }

    fn comparisons(&self) -> Vec<BTreeMap<String, String>> {
        let mut reader = csv::Reader::from_path(super::root().join(self.directory).join("comparisons.csv")).unwrap();
        reader.deserialize().map(Result::unwrap).collect()
    }

    /// All that was measured.
    fn document(&self) -> Value {
        let path = super::root().join(self.directory).join("kernels.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn name(&self) -> &str {
        self.directory.strip_prefix("results/").unwrap()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

/// The least and the most.
fn span(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
}

fn share(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// Steps that `kernels-bench` measured, by column.
struct Rows(Vec<BTreeMap<String, String>>);

impl Rows {
    fn text(&self, (size, arm, ranks): (&str, &str, usize), column: &str) -> &str {
        let is_it = |row: &&BTreeMap<String, String>| (&*row["size"], &*row["arm"], &*row["ranks"]) == (size, arm, &ranks.to_string());
        &self.0.iter().find(is_it).unwrap()[column]
    }

    fn number(&self, row: (&str, &str, usize), column: &str) -> f64 {
        self.text(row, column).parse().unwrap()
    }

    /// Cells after the sequences.
    fn cells(&self, row: (&str, &str, usize)) -> Vec<String> {
        let of = |name: &str| self.number(row, name);
        let gib = |name: &str| format!("{:.1}", of(name) / GIB);
        let has_peer = !self.text(row, "peer").is_empty();
        let mut cells = vec![time(of("seconds")), grouped(of("tokens_per_second").round() as u64)];
        if has_peer {
            cells.push(grouped(of("peer_tokens_per_second").round() as u64));
            cells.push(format!("{:.2} [{:.2}, {:.2}]", of("over_peer"), of("over_peer_low"), of("over_peer_high")));
        } else {
            cells.extend([String::new(), String::new()]);
        }
        let theirs = if has_peer { format!(", {}", gib("peer_peak_bytes")) } else { String::new() };
        // Two GPUs were measured when rank 0 alone was timed.
        let most = if self.text(row, "waits_most").is_empty() { String::new() } else { format!(", {}", share(of("waits_most"))) };
        cells.extend([share(of("exposed")) + &most, format!("{} GiB{}", gib("peak_bytes"), theirs)]);
        cells
    }
}

#[test]
fn the_tables_are_what_was_measured() {
    for section in [TWO, FOUR] {
        let (rows, text) = (section.rows(), section.text());
        let table = text.lines().filter(|line| line.starts_with("| `") && line.contains(" GiB"));
        let mut seen = 0;
        for row in table {
            let row: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let size = if row[1] == section.ranks.to_string() { WHOLE } else { WHOLE_BATCH };
            assert!(size == WHOLE || row[1] == format!("{MICRO_BATCHES}, the paper's"), "{row:?}");
            // Medians of so many.
            let samples = if size == WHOLE { 6.0 } else { 2.0 };
            let of = (size, row[0].trim_matches('`'), section.ranks);
            assert!(rows.number(of, "samples") == samples && rows.text(of, "seconds_low").is_empty() == (size != WHOLE), "{row:?}");
            assert_eq!(row[2..], rows.cells(of), "{row:?}");
            seen += 1;
        }
        let measured = rows.0.iter().filter(|row| row["ranks"] == section.ranks.to_string() && row["size"] != CUT);
        assert_eq!(seen, measured.count(), "{}", section.heading);
        section.check(["medians of six steps, of two with 32 sequences, which have no interval".to_owned()]);
    }
}

/// Of eight layers: how one GPU of several does beside one alone, and that one beside PyTorch.
fn scaling(section: &Section) -> [String; 2] {
    let rows = section.rows();
    let of = |ranks, column: &str| ARMS.map(|arm| format!("{:.2}", rows.number((CUT, arm, ranks), column)));
    let ([bf16, fp8, h16], [bf16_over, fp8_over, h16_over]) = (of(section.ranks, "of_ideal"), of(1, "over_peer"));
    [
        format!("alone: BF16 {bf16}, FP8 {fp8}, MXFP4 {h16}."),
        format!("over PyTorch's is BF16 {bf16_over}, FP8 {fp8_over}, MXFP4 {h16_over}."),
    ]
}

/// Recipes whose steps are predicted.
const PREDICTED: [&str; 2] = ["fp8", "mxfp4-fdw-h16"];

/// Seconds that the planner predicts for a step of each on so many GPUs, from the steps of a section.
fn predicted_seconds(ranks: usize, from: &Section) -> [f64; 2] {
    let root = super::root();
    let manifests = Manifests::load(&root).unwrap();
    let known = |step: &MeasuredStep| step.directory == from.name() && step.ranks == from.ranks as u64;
    let steps: Vec<MeasuredStep> = measured_steps(&root.join("results")).into_iter().filter(known).collect();
    let all = forecast(&manifests, profile(&manifests), Some(ranks), &Known { steps, ..Known::default() }).unwrap();
    PREDICTED.map(|arm| {
        let hours = all.hours.iter().find(|hours| hours.arm == arm).unwrap().steps.unwrap();
        3600.0 * hours / profile(&manifests).budget.steps as f64
    })
}

/// The same for a section's GPUs as the page has them, and how the step of its table compares.
fn predicted(section: &Section, from: &Section) -> [(String, f64); 2] {
    let seconds = predicted_seconds(section.ranks, from);
    std::array::from_fn(|index| {
        let row = (WHOLE_BATCH, PREDICTED[index], section.ranks);
        (time(seconds[index]), seconds[index] / section.rows().number(row, "seconds") - 1.0)
    })
}

/// Bytes that the planner says each of so many ranks takes.
fn planned_bytes(arm: &str, ranks: usize) -> f64 {
    let manifests = Manifests::load(&super::root()).unwrap();
    let mut profile = profile(&manifests).clone();
    profile.arms.truncate(1);
    profile.arms[0].recipes = vec![arm.to_owned()];
    spread(&manifests, &profile, ranks as u64, None).unwrap().ways[0].bytes as f64
}

fn profile(manifests: &Manifests) -> &Profile {
    manifests.profile("h200-8b").unwrap()
}

/// A change as the page has it: more or less, in whole per cent.
fn whole_percent(change: f64) -> String {
    format!("{:.0} %", 100.0 * change.abs())
}

/// Kinds of kernels of a step, in the order of a table.
const KINDS: [&str; 3] = ["attention", "head", "optimizer"];

/// Milliseconds and work of each kind, of eight layers' step on one GPU.
fn kinds(section: &Section, arm: &str) -> [(f64, f64); 3] {
    let document = section.document();
    let steps = document["ranks"][0]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["size"] == CUT && step["arm"] == arm && step["ranks"] == 1).unwrap();
    KINDS.map(|name| {
        let part = step["parts"].as_array().unwrap().iter().find(|part| part["kernel"] == name).unwrap();
        let samples = part["samples"].as_array().unwrap().iter().map(|sample| 1e3 * sample.as_f64().unwrap()).collect();
        (median(samples), part["work"].as_f64().unwrap())
    })
}

/// Milliseconds of the products of so many blocks, at the rate that they have alone: three of each weight and each of 8,192 tokens, two operations
/// a multiply-add.
fn products(blocks: f64, kernels: &str) -> f64 {
    1e3 * 6.0 * 218_103_808.0 * blocks * 8192.0 / alone(kernels)
}

#[test]
fn what_is_said_of_two_gpus_was_measured() {
    let rows = TWO.rows();
    let [attention, head, optimizer] = kinds(&TWO, "bf16");
    let whole = (WHOLE, "bf16", TWO.ranks);
    let (all, theirs) = (1e3 * rows.number(whole, "seconds"), 1e3 * rows.number(whole, "peer_seconds"));
    // Of 8,030,261,248 parameters, of 34 bytes each, a rank has half.
    let optimizer = optimizer.0 * (34.0 * 8_030_261_248.0 / TWO.ranks as f64) / optimizer.1;
    let (products, attention) = (products(32.0, "block/bf16"), 4.0 * attention.0);
    let exchange = rows.number(whole, "exposed") * all;
    let rest = all - products - attention - head.0 - optimizer - exchange;
    let [fp8, h16] = predicted(&TWO, &TWO);
    assert!(fp8.1 > 0.0 && h16.1 > 0.0);
    TWO.check(scaling(&TWO));
    TWO.check([
        format!("predicts {} for the step of 32 sequences in FP8 and {} in MXFP4 with Hadamard 16", fp8.0, h16.0),
        format!("{} and {} more than they take", whole_percent(fp8.1), whole_percent(h16.1)),
        format!("of BF16's {all:.0} ms the products of the blocks take {products:.0} at the {:.0} TFLOP/s", alone("block/bf16") / 1e12),
        format!("attention {attention:.0}, head {:.0} and optimizer {optimizer:.0}", head.0),
        format!("the exchange {exchange:.0}, and everything else {rest:.0}:"),
        format!("1.2 would be {:.0}.", theirs / 1.2),
    ]);
}

#[test]
fn what_is_said_of_four_gpus_was_measured() {
    let rows = FOUR.rows();
    let [bf16, fp8, h16] = ARMS.map(|arm| rows.number((CUT, arm, 1), "peer_seconds") / rows.number((CUT, arm, FOUR.ranks), "peer_seconds"));
    let campaign = |arm: &str| {
        let text = super::read(&format!("{CAMPAIGN}/runs/{arm}/1/exchange.jsonl"));
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["ranks"], FOUR.ranks);
        let seconds: Vec<f64> = lines.iter().filter(|line| line["kind"] == "step").map(|line| line["seconds"].as_f64().unwrap()).collect();
        assert_eq!(seconds.len(), 60);
        median(seconds)
    };
    assert!(super::read(&format!("{CAMPAIGN}/report.html")).contains("4 GPUs a run"));
    let (from_two, from_four) = (predicted(&FOUR, &TWO), predicted(&FOUR, &FOUR));
    let longer = [("fp8", from_four[0].1), ("mxfp4-fdw-h16", from_four[1].1)].map(|(arm, change)| {
        let predicted = (1.0 + change) * rows.number((WHOLE_BATCH, arm, FOUR.ranks), "seconds");
        assert!(change > 0.0 && campaign(arm) > predicted, "{arm}");
        whole_percent(campaign(arm) / predicted - 1.0)
    });
    let of_ideal: Vec<_> = FOUR.comparisons().into_iter().filter(|row| row["what"].starts_with("of ideal scaling ")).collect();
    let ends = |column: &str| of_ideal.iter().map(|row| row[column].parse::<f64>().unwrap()).collect::<Vec<_>>();
    let (low, high) = (span(ends("low")).0, span(ends("high")).1);
    FOUR.check(scaling(&FOUR));
    FOUR.check([
        format!("FP8 {} a step, MXFP4 with Hadamard 16 {} (medians).", time(campaign("fp8")), time(campaign("mxfp4-fdw-h16"))),
        format!("Their intervals reach from {low:.2} to {high:.2}."),
        format!("PyTorch's own is {bf16:.2}, {fp8:.2} and {h16:.2}."),
        format!("predicts {} for the step of 32 sequences in FP8 and {} in MXFP4 with Hadamard 16", from_four[0].0, from_four[1].0),
        format!("{} and {} more than they take", whole_percent(from_four[0].1), whole_percent(from_four[1].1)),
        format!("took longer than that by {} and {}.", longer[0], longer[1]),
        format!("it predicted {} and {} before four GPUs had been measured", from_two[0].0, from_two[1].0),
    ]);
}

/// What a rank takes, as the planner has it, beside what it took.
#[test]
fn what_is_said_of_memory_was_measured() {
    let rows = FOUR.rows();
    let [bf16, fp8, h16] = ARMS.map(|arm| {
        let planned = planned_bytes(arm, FOUR.ranks);
        let change = planned / rows.number((WHOLE, arm, FOUR.ranks), "peak_bytes") - 1.0;
        assert!(change.abs() < 0.001, "{arm}: {planned} bytes planned, {change} more than measured");
        format!("{:.1}", planned / GIB)
    });
    FOUR.check([format!(
        "predicts {bf16} GiB in BF16, {fp8} in FP8 and {h16} in MXFP4 with Hadamard 16: within 0.1 % of what was measured."
    )]);
}

/// Of eight: modelled from four, and a small model on a CPU.
#[test]
fn what_is_said_of_eight_follows_from_the_files() {
    let page = super::read("docs/ranks.md").replace("\n  ", " ").replace('\n', " ");
    let ([fp8, h16], rows) = (predicted_seconds(8, &FOUR), FOUR.rows());
    let share = |arm, seconds: f64| rows.number((WHOLE_BATCH, arm, FOUR.ranks), "seconds") / seconds / 2.0;
    let mut checks = csv::Reader::from_path(super::root().join("results/device-test-2026-11-26-amd-epyc-x8/checks.csv")).unwrap();
    let checks: Vec<BTreeMap<String, String>> = checks.deserialize().map(Result::unwrap).collect();
    assert!(checks.iter().all(|check| check["passed"] == "true"));
    let killed = checks.iter().find(|check| check["detail"].contains("one killed")).unwrap();
    for wanted in [
        format!(
            "{fp8:.2} s in FP8 and {h16:.2} s in MXFP4 with Hadamard 16, {:.2} and {:.2} of twice the speed of four",
            share("fp8", fp8),
            share("mxfp4-fdw-h16", h16)
        ),
        format!("{:.1} GiB of memory in MXFP4", planned_bytes("mxfp4-fdw-h16", 8) / GIB),
        format!("{} checks, 0 failed ([checks](../results/device-test-2026-11-26-amd-epyc-x8/checks.csv))", checks.len()),
        format!("had ended {:.2} s after one of eight was killed", killed["difference"].parse::<f64>().unwrap()),
    ] {
        assert!(page.contains(&wanted), "{wanted}");
    }
}

/// Which bars of four GPUs are missed and which are met.
#[test]
fn what_is_said_of_bars_was_measured() {
    let (comparisons, mut said) = (FOUR.comparisons(), 0);
    for (kind, count, bar, verdict) in [
        ("over PyTorch's, bf16, 4 ranks", 1, "1.2", "missed"),
        ("over PyTorch's, fp8, 4 ranks", 1, "1.3", "missed"),
        ("over PyTorch's, mxfp4-fdw-h16, 4 ranks", 1, "1.4", "missed"),
        ("over PyTorch's, bf16, 1 rank", 1, "1.15", "missed"),
        ("over PyTorch's, fp8, 1 rank", 1, "1.2", "missed"),
        ("over PyTorch's, mxfp4-fdw-h16, 1 rank", 1, "1.3", "missed"),
        ("not spent waiting ", 8, "0.97", "met"),
        ("not spent waiting ", 3, "0.94", "met"),
        ("of ideal scaling ", 3, "0.97", "met"),
        ("PyTorch's memory over ours, ", 9, "1", "missed"),
        ("attention of the maker's peak, ", 2, "0.455", "missed"),
        ("head of the maker's peak, ", 2, "0.62", "met"),
        ("optimizer of the maker's peak, ", 2, "0.75", "met"),
        ("over our BF16, ", 1, "0.8333333333333334", "met"),
    ] {
        let judged = comparisons.iter().filter(|row| row["what"].starts_with(kind) && row["verdict"] == verdict);
        assert_eq!(judged.filter(|row| row["bar"] == bar).count(), count, "{kind}{verdict}");
        said += count;
    }
    let all = comparisons.iter().filter(|row| !row["bar"].is_empty()).count();
    assert_eq!(all, said, "what else meets or misses its bar is not said");
    let rows = FOUR.rows();
    let whole = |arm, column: &str| rows.number((WHOLE, arm, FOUR.ranks), column);
    let without = ARMS.map(|arm| whole(arm, "over_peer") / (1.0 - whole(arm, "exposed")));
    assert!(without[0] < 1.2 && without[1] < 1.3 && without[2] < 1.4, "{without:?}");
    FOUR.check([format!("the ratios to `fsdp2` would be {:.2}, {:.2} and {:.2}:", without[0], without[1], without[2])]);
}

/// Where a step of one GPU goes, and what PyTorch's takes over the bar. The call of two GPUs has the kinds that the call of four does not.
#[test]
fn where_a_step_of_one_gpu_goes_was_measured() {
    let (text, mut left) = (FOUR.text(), Vec::new());
    for (arm, kernels, bar, kinds) in [
        ("bf16", "block+prepare/bf16", 1.15, kinds(&FOUR, "bf16")),
        ("fp8", "block+prepare/fp8", 1.2, kinds(&FOUR, "fp8")),
        ("mxfp4-fdw-h16", "block+prepare/mxfp4-h16", 1.3, kinds(&TWO, "mxfp4-fdw-h16")),
    ] {
        let of = |column: &str| 1e3 * FOUR.rows().number((CUT, arm, 1), column);
        let (step, products, bar) = (of("seconds"), products(8.0, kernels), of("peer_seconds") / bar);
        let [attention, head, optimizer] = kinds.map(|(milliseconds, _)| milliseconds);
        let rest = step - products - attention - head - optimizer;
        let cells = [products, attention, head, optimizer, rest, step, bar].map(|cell| format!("{cell:.1}"));
        let wanted = format!("| `{arm}` | {} |", cells.join(" | "));
        assert!(text.contains(&wanted), "{wanted}");
        // A reader who takes the table's cells gets the same.
        let [rest_shown, step_shown, bar_shown] = [4, 5, 6].map(|index: usize| cells[index].parse::<f64>().unwrap());
        left.push((bar - step + rest).round());
        assert_eq!(left.last(), Some(&(bar_shown - step_shown + rest_shown).round()), "{wanted}");
    }
    let rates = ["bf16", "fp8"].map(|arm| kinds(&FOUR, arm)[0]).map(|(milliseconds, work)| work / milliseconds / 1e9);
    FOUR.check([
        format!("BF16 would have {} ms for everything else", left[0]),
        format!("FP8 {} and MXFP4 {} less than nothing.", left[1], -left[2]),
        format!("are {:.0} TFLOP/s in BF16 and {:.0} in FP8;", rates[0], rates[1]),
    ]);
}

/// What ranks wait for, and how fast each of the four GPUs was.
#[test]
fn what_is_said_of_waiting_was_measured() {
    let rows = FOUR.rows();
    let four = |size: &str| rows.0.iter().filter(|row| row["ranks"] == "4" && row["size"] == size).collect::<Vec<_>>();
    for row in four(WHOLE) {
        let of = |column: &str| row[column].parse::<f64>().unwrap();
        assert_eq!(format!("{:.0}", 1e3 * of("exposed_norm") * of("seconds")), "10");
    }
    let waits = |size: &str, column: &str| {
        let (least, most) = span(four(size).iter().map(|row| 100.0 * row[column].parse::<f64>().unwrap()));
        format!("{least:.1} to {most:.1} %")
    };
    let comparisons = FOUR.comparisons();
    let waiting = || comparisons.iter().filter(|row| row["what"].starts_with("not spent waiting "));
    assert!(waiting().count() == 14 && waiting().all(|row| row["note"].contains("; most waits rank 3: ")));

    let mut clocks = csv::Reader::from_path(super::root().join(SINGLE).join("clocks.csv")).unwrap();
    let clocks: Vec<BTreeMap<String, String>> = clocks.deserialize().map(Result::unwrap).collect();
    assert!(clocks.iter().all(|reading| reading["clocks_event_reasons"] == "0x004"));
    let mean = |gpu: &str, column: &str| {
        let of_gpu: Vec<f64> = clocks.iter().filter(|row| row["gpu"] == gpu).map(|row| row[column].parse().unwrap()).collect();
        assert_eq!(of_gpu.len() * FOUR.ranks, clocks.len());
        of_gpu.iter().sum::<f64>() / of_gpu.len() as f64
    };
    let ((least, most), fastest) = (span(["0", "1", "2"].map(|gpu| mean(gpu, "sm_mhz"))), mean("3", "sm_mhz"));
    let (low, high) = span(["0", "1", "2", "3"].map(|gpu| mean(gpu, "power_w")));
    let grouped = |value: f64| grouped(value.round() as u64);
    FOUR.check([
        "The norm takes 10 ms of a step of 32 layers.".to_owned(),
        format!("for {} of a step, the one that waits most for {}.", waits(WHOLE_BATCH, "exposed"), waits(WHOLE_BATCH, "waits_most")),
        format!("With one sequence a GPU it is {} and {}.", waits(WHOLE, "exposed"), waits(WHOLE, "waits_most")),
        format!("In the {} readings in which all four worked", clocks.len() / FOUR.ranks),
        format!("held the clock of each, at {low:.0} to {high:.0} W on average"),
        format!("GPU 3 ran at {} MHz, the others at {} to {}.", grouped(fastest), grouped(least), grouped(most)),
    ]);
}

/// What rank 0 added when one rank owned whole blocks: in each round four pieces of each of seven blocks and of the embedding, which is packed
/// before; then one division.
#[test]
fn what_is_said_of_adding_was_measured() {
    let profiled = format!("{SINGLE}/8b-32-fp8-profile.jsonl");
    let added = json::read(&profiled, &super::read(&profiled)).find_map(|line| match line.unwrap().1 {
        StepTimeLine::Kernel(part) if &*part.kernel == "accumulate" => Some((part.calls as usize, part.seconds)),
        _ => None,
    });
    let (calls, seconds) = added.unwrap();
    assert_eq!(calls, MICRO_BATCHES / FOUR.ranks * (FOUR.ranks * (7 + 1) + 1) + 1);
    let a_round = 1e3 * seconds / (MICRO_BATCHES / FOUR.ranks) as f64;
    FOUR.check([
        format!("four pieces of {:.0} MB", 4.0 * 218_112_000.0 / 1e6),
        format!("took {a_round:.0} ms a micro-batch, for its nearly seven blocks"),
    ]);
}

/// Checks of several GPUs against one, and how long a killed rank's others went on.
#[test]
fn what_is_said_of_device_tests_was_measured() {
    let page = super::read("docs/ranks.md").replace("\n  ", " ");
    for (gpus, directory) in [(2, "device-test-2026-11-26-nvidia-h200-x2"), (4, "device-test-2026-11-26-nvidia-h200-x4")] {
        let mut reader = csv::Reader::from_path(super::root().join(format!("results/{directory}/checks.csv"))).unwrap();
        let checks: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
        let failed = checks.iter().filter(|check| check["passed"] != "true").count();
        let killed = checks.iter().find(|check| check["detail"].ends_with("one killed: seconds until all have ended")).unwrap();
        let wanted = format!(
            "`cargo xtask device-test --gpus {gpus}`, {} checks, {failed} failed ([checks](../results/{directory}/checks.csv)). All had ended {:.1} s after a rank was killed.",
            checks.len(),
            killed["difference"].parse::<f64>().unwrap()
        );
        assert!(page.contains(&wanted), "{wanted}");
    }
}

/// Operations a second of the products of a block, measured alone, with preparation of operands or without.
fn alone(kernels: &str) -> f64 {
    let mut reader = csv::Reader::from_path(super::root().join("results/kernels-2026-11-22-nvidia-h200/devices.csv")).unwrap();
    let mut rows = reader.deserialize::<BTreeMap<String, String>>().map(Result::unwrap);
    rows.find(|row| row["name"] == format!("{kernels}/llama31-8b")).unwrap()["per_second"].parse().unwrap()
}

/// Step and what of it was exchange, of an earlier file.
fn earlier(root: &Path, file: &str) -> (String, String) {
    let text = std::fs::read_to_string(root.join(EARLIER).join(format!("{file}.jsonl"))).unwrap();
    let (mut seconds, mut exchange) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
    for line in json::read(file, &text) {
        match line.unwrap().1 {
            StepTimeLine::Step(step) => seconds.push(step.seconds),
            StepTimeLine::Exchange(spent) => {
                exchange.iter_mut().zip([spent.gradients, spent.norm, spent.parameters]).for_each(|(all, one)| all.push(one));
            }
            StepTimeLine::Memory(_) | StepTimeLine::Kernel(_) => {}
        }
    }
    let step = median(seconds);
    (time(step), share(exchange.map(median).iter().sum::<f64>() / step))
}

#[test]
fn what_is_said_of_earlier_steps_was_measured() {
    let (root, page) = (super::root(), super::read("docs/ranks.md").replace('\n', " "));
    let of = |file: &str| earlier(&root, file);
    let [fp8, h16, bf16] = ["8b-2-fp8", "8b-2-h16", "8b-2-bf16"].map(of);
    let [fp8_32, h16_32] = ["8b-32-fp8", "8b-32-h16"].map(|file| of(file).0);
    for wanted in [
        format!("FP8 {} of which {} was exchange, MXFP4 {} and {}, BF16 {} and {};", fp8.0, fp8.1, h16.0, h16.1, bf16.0, bf16.1),
        format!("with 32 sequences FP8 {fp8_32} and MXFP4 {h16_32};"),
    ] {
        assert!(page.contains(&wanted), "{wanted}");
    }
}

/// Losses, norms and the first evaluation of the campaign on four GPUs, byte for byte, by another cut of the shards and by two GPUs.
#[test]
fn eight_steps_of_8b_have_the_bytes_of_the_campaign() {
    let root = super::root();
    let lines = |path: &str| {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let of = |kind: &str| text.lines().filter(|line| line.contains(kind)).map(str::to_owned).collect::<Vec<_>>();
        [of(r#""kind":"eval","step":0,"#), of(r#""kind":"train","#)].map(|lines| lines.into_iter().take(8).collect::<Vec<_>>())
    };
    for (file, arm) in [("8b-fp8-4-gpus", "fp8"), ("8b-fp8-2-gpus", "fp8"), ("8b-h16-2-gpus", "mxfp4-fdw-h16")] {
        let ours = lines(&format!("{SINGLE}/{file}.jsonl"));
        assert_eq!((ours[0].len(), ours[1].len()), (1, 8), "{file}");
        assert_eq!(ours, lines(&format!("{CAMPAIGN}/runs/{arm}/1/metrics.jsonl")), "{file}");
    }
}
