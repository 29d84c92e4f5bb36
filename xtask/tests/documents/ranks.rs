//! The table of docs/ranks.md, from the directories that it links to, and the sentence about earlier steps, from the lines of docs/measured.

use std::collections::BTreeMap;
use std::path::Path;

use contract::json;
use contract::measurements::StepTimeLine;
use serde_json::Value;

use super::numbers::grouped;

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

/// A table's only row, by column.
fn only_row(path: &Path) -> BTreeMap<String, String> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let [row] = &rows[..] else { panic!("{}: {} rows", path.display(), rows.len()) };
    row.clone()
}

/// Cells after the sequences, of a step that `kernels-bench` measured.
fn measured(path: &Path) -> Vec<String> {
    let row = only_row(path);
    let of = |name: &str| row[name].parse::<f64>().unwrap();
    let gib = |name: &str| of(name) / f64::from(1 << 30);
    vec![
        time(of("seconds")),
        grouped(of("tokens_per_second").round() as u64),
        grouped(of("peer_tokens_per_second").round() as u64),
        format!("{:.2} [{:.2}, {:.2}]", of("over_peer"), of("over_peer_low"), of("over_peer_high")),
        share(of("exposed")),
        format!("{:.1} GiB, {:.1}", gib("peak_bytes"), gib("peer_peak_bytes")),
    ]
}

/// The same of a campaign's run.
fn trained(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let steps: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).filter(|line: &Value| line["kind"] == "step").collect();
    let of = |name: &str| median(steps.iter().map(|step| step[name].as_f64().unwrap()).collect());
    let (step, tokens) = (of("seconds"), 32.0 * 8192.0);
    let exposed = (of("gradients") + of("norm") + of("parameters")) / step;
    vec![time(step), grouped((tokens / RANKS / step).round() as u64), String::new(), String::new(), share(exposed), String::new()]
}

#[test]
fn the_table_of_two_gpus_is_what_was_measured() {
    let (docs, page) = (super::root().join("docs"), super::read("docs/ranks.md"));
    let mut seen = 0;
    for row in page.lines().filter(|line| line.contains("](../results/") && line.starts_with("| [")) {
        let row: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let path = docs.join(row[0].split_once("](").unwrap().1.trim_end_matches(')'));
        let wanted = if row[1] == "2" { measured(&path) } else { trained(&path) };
        assert_eq!(row[2..], wanted, "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 5);
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
