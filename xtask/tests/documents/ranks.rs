//! The table of docs/ranks.md and what is said beside it, from the directories that it links to, and the sentence about earlier steps, from the
//! lines of docs/measured.

use std::collections::BTreeMap;
use std::path::Path;

use contract::json;
use contract::measurements::StepTimeLine;
use serde_json::Value;

use super::numbers::grouped;

const MEASURED: &str = "results/kernels-2026-11-25-nvidia-h200-x2";
const CAMPAIGN: &str = "results/2026-11-25-nvidia-h200-h200-8b-1ddb2da9";
const EARLIER: &str = "docs/measured/ranks-2026-11-23-two-h200s";

/// Ranks of all that was measured.
const RANKS: f64 = 2.0;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
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
    fn read() -> Self {
        let mut reader = csv::Reader::from_path(super::root().join(MEASURED).join("ranks.csv")).unwrap();
        Self(reader.deserialize().map(Result::unwrap).collect())
    }

    fn text(&self, (size, arm, ranks): (&str, &str, &str), column: &str) -> &str {
        let is_it = |row: &&BTreeMap<String, String>| (&*row["size"], &*row["arm"], &*row["ranks"]) == (size, arm, ranks);
        &self.0.iter().find(is_it).unwrap()[column]
    }

    fn number(&self, row: (&str, &str, &str), column: &str) -> f64 {
        self.text(row, column).parse().unwrap()
    }

    /// Cells after the sequences.
    fn cells(&self, row: (&str, &str, &str)) -> Vec<String> {
        let of = |name: &str| self.number(row, name);
        let gib = |name: &str| format!("{:.1}", of(name) / f64::from(1 << 30));
        let has_peer = !self.text(row, "peer").is_empty();
        let mut cells = vec![time(of("seconds")), grouped(of("tokens_per_second").round() as u64)];
        if has_peer {
            cells.push(grouped(of("peer_tokens_per_second").round() as u64));
            cells.push(format!("{:.2} [{:.2}, {:.2}]", of("over_peer"), of("over_peer_low"), of("over_peer_high")));
        } else {
            cells.extend([String::new(), String::new()]);
        }
        let theirs = if has_peer { format!(", {}", gib("peer_peak_bytes")) } else { String::new() };
        cells.extend([share(of("exposed")), format!("{} GiB{}", gib("peak_bytes"), theirs)]);
        cells
    }
}

#[test]
fn the_table_of_two_gpus_is_what_was_measured() {
    let (rows, page) = (Rows::read(), super::read("docs/ranks.md"));
    let table = page.lines().filter(|line| line.starts_with("| `") && line.contains(" s |") | line.contains(" ms |"));
    let mut seen = 0;
    for row in table {
        let row: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let size = if row[1] == "2" { "llama31-8b" } else { "llama31-8b-32-sequences" };
        assert_eq!(row[2..], rows.cells((size, row[0].trim_matches('`'), "2")), "{row:?}");
        seen += 1;
    }
    let measured = rows.0.iter().filter(|row| row["ranks"] == "2" && !row["size"].ends_with("-layers"));
    assert_eq!(seen, measured.count());
}

/// What the page says in words of the same steps, and of the campaign.
#[test]
fn what_is_said_beside_the_table_was_measured() {
    let (rows, page) = (Rows::read(), super::read("docs/ranks.md").replace('\n', " "));
    let cut = |arm, ranks| ("llama31-8b-8-layers", arm, ranks);
    let of = |row, column: &str| format!("{:.2}", rows.number(row, column));
    let [bf16, fp8, h16] = ["bf16", "fp8", "mxfp4-fdw-h16"].map(|arm| (of(cut(arm, "2"), "of_ideal"), of(cut(arm, "1"), "over_peer")));
    let campaign = |arm: &str| {
        let text = std::fs::read_to_string(super::root().join(CAMPAIGN).join(format!("runs/{arm}/1/exchange.jsonl"))).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|line| line["kind"] == "step");
        time(median(lines.map(|line| line["seconds"].as_f64().unwrap()).collect()))
    };
    // Milliseconds of BF16's step: operations of 32 blocks' products at the rate that they have alone, and kernels of eight layers' step.
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(super::root().join(MEASURED).join("kernels.json")).unwrap()).unwrap();
    let steps = document["ranks"][0]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["size"] == "llama31-8b-8-layers" && step["arm"] == "bf16" && step["ranks"] == 1).unwrap();
    let kernel = |name: &str| {
        let part = step["parts"].as_array().unwrap().iter().find(|part| part["kernel"] == name).unwrap();
        let samples = part["samples"].as_array().unwrap().iter().map(|sample| 1e3 * sample.as_f64().unwrap()).collect();
        (median(samples), part["work"].as_f64().unwrap())
    };
    let [attention, head, optimizer] = ["attention", "head", "optimizer"].map(kernel);
    let rate = alone();
    let whole = ("llama31-8b", "bf16", "2");
    let (all, theirs) = (1e3 * rows.number(whole, "seconds"), 1e3 * rows.number(whole, "peer_seconds"));
    let products = 6.0 * 218_103_808.0 * 32.0 * 8192.0 / rate * 1e3;
    // A rank has half of 8,030,261,248 parameters, of 34 bytes each.
    let optimizer = optimizer.0 * (34.0 * 8_030_261_248.0 / RANKS) / optimizer.1;
    let parts = [products, 4.0 * attention.0, head.0, optimizer, rows.number(whole, "exposed") * all];
    let rest = all - parts.iter().sum::<f64>();
    for wanted in [
        format!("FP8 {} a step, MXFP4 with Hadamard 16 {}.", campaign("fp8"), campaign("mxfp4-fdw-h16")),
        format!("alone: BF16 {}, FP8 {}, MXFP4 {}.", bf16.0, fp8.0, h16.0),
        format!("over PyTorch's is BF16 {}, FP8 {}, MXFP4 {}.", bf16.1, fp8.1, h16.1),
        format!("of BF16's {all:.0} ms the products of the blocks take {products:.0} at the {:.0} TFLOP/s", rate / 1e12),
        format!("attention {:.0}, head {:.0} and optimizer {optimizer:.0}", parts[1], parts[2]),
        format!("the exchange {:.0}, and everything else {rest:.0}:", parts[4]),
        format!("1.2 would be {:.0}.", theirs / 1.2),
    ] {
        assert!(page.contains(&wanted), "{wanted}");
    }
}

/// Operations a second of BF16's products of a block, measured alone.
fn alone() -> f64 {
    let mut reader = csv::Reader::from_path(super::root().join("results/kernels-2026-11-22-nvidia-h200/devices.csv")).unwrap();
    let mut rows = reader.deserialize::<BTreeMap<String, String>>().map(Result::unwrap);
    rows.find(|row| row["name"] == "block/bf16/llama31-8b").unwrap()["per_second"].parse().unwrap()
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
