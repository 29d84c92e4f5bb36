//! The table of docs/ranks.md, from the lines of docs/measured.

use std::path::Path;

use contract::json;
use contract::measurements::StepTimeLine;
use serde_json::Value;

use super::numbers::grouped;

const FOLDER: &str = "docs/measured/ranks-2026-11-23-two-h200s";

/// Ranks of all that was measured there.
const RANKS: f64 = 2.0;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

/// Tokens a second and GPU of the peer's program, by its name of a recipe.
fn peer(root: &Path, file: &str) -> f64 {
    let recipe = match file.rsplit('-').next().unwrap() {
        "h16" => "fdw+dht16",
        other => other,
    };
    let text = std::fs::read_to_string(root.join(FOLDER).join("peers.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of = |line: Value| (line["recipe"] == recipe && line["world"] == RANKS).then(|| line["tok_s_gpu"].as_f64().unwrap());
    lines.filter_map(of).next().unwrap()
}

/// A row's cells after the recipe, as the samples give them. `alone`: with one sequence a GPU, as the peer and the memory were measured.
fn cells(root: &Path, file: &str, alone: bool) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(FOLDER).join(format!("{file}.jsonl"))).unwrap();
    let (mut seconds, mut exchange, mut tokens, mut memory) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()], 0, 0);
    for line in json::read(file, &text) {
        match line.unwrap().1 {
            StepTimeLine::Step(step) => {
                tokens = step.tokens.unwrap();
                seconds.push(step.seconds);
            }
            StepTimeLine::Exchange(spent) => {
                exchange.iter_mut().zip([spent.gradients, spent.norm, spent.parameters]).for_each(|(all, one)| all.push(one));
            }
            StepTimeLine::Memory(taken) => memory = taken.bytes,
            StepTimeLine::Kernel(_) => {}
        }
    }
    let step = median(seconds);
    let (rate, exposed) = (tokens as f64 / RANKS / step, exchange.map(median).iter().sum::<f64>() / step);
    let peer = peer(root, file);
    let time = if step < 1.0 { format!("{:.0} ms", 1e3 * step) } else { format!("{step:.2} s") };
    let when = |text: String| if alone { text } else { String::new() };
    vec![
        time,
        grouped(rate.round() as u64),
        when(grouped(peer.round() as u64)),
        when(format!("{:.2}", rate / peer)),
        format!("{:.1} %", 100.0 * exposed),
        when(format!("{:.1} GiB", memory as f64 / f64::from(1 << 30))),
    ]
}

#[test]
fn the_table_of_two_gpus_is_what_was_measured() {
    let (root, page) = (super::root(), super::read("docs/ranks.md"));
    let mut seen = 0;
    for row in page.lines().filter(|line| line.contains("| `8b-")) {
        let row: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let file = row[1].trim_matches('`');
        assert_eq!(row[3..], cells(&root, file, row[2] == "2"), "{file}");
        seen += 1;
    }
    assert_eq!(seen, 5);
}
