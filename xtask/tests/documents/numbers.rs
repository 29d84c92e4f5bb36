//! Numbers of the documents, computed again from the CSV and JSON files of result directories.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use contract::text::GIB;
use serde_json::Value;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::markdown::Column;

mod all_seeds;
mod batches;
mod claims;
mod cpu_kernels;
mod few_seeds;
mod law;
mod layout;
mod scale_rule;

use layout::{Cells, Layout};

const S: &str = "2026-11-21-nvidia-h200-h200-s-81cdabc0";
const M: &str = "2026-11-22-nvidia-h200-h200-m-b78afef7";
const CPU: &str = "2026-11-22-xeon-2c-cpu-694f997d";
const LADDER: &str = "2026-11-27-nvidia-h200-ladder-32m-2b583825";
/// The paper's depth alone, with twelve other seeds.
const DEPTH: &str = "2026-11-27-nvidia-h200-ladder-32m-depth-52383dbb";
const LADDER_8M: &str = "2026-11-26-nvidia-h200-ladder-8m-e40b2e0d";
const LADDER_110M: &str = "2026-11-26-nvidia-h200-ladder-110m-2dcb7a0f";
/// The paper's depth alone at that size, with five other seeds.
const DEPTH_110M: &str = "2026-11-27-nvidia-h200-ladder-110m-depth-94b27784";
const LADDER_359M: &str = "2026-11-26-nvidia-h200-ladder-359m-e40b2e0d";
const KERNELS: &str = "kernels-2026-11-22-nvidia-h200";
const STEPS_S: &str = "kernels-2026-11-22-nvidia-h200-steps-34m";
const STEPS_M: &str = "kernels-2026-11-22-nvidia-h200-steps-135m";

/// A number and its interval, as text shows them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    mean: f64,
    low: f64,
    high: f64,
}

impl Interval {
    pub(crate) fn negated(self) -> Self {
        Self { mean: -self.mean, low: -self.high, high: -self.low }
    }

    fn text(self, decimals: usize) -> String {
        let [mean, low, high] = [self.mean, self.low, self.high].map(|value| fixed(value, decimals));
        if self.low.is_nan() { mean } else { format!("{mean} [{low}, {high}]") }
    }

    /// As sentences have a share: `20.4 % [18.5, 22.4]`.
    fn in_words(self) -> String {
        self.percent().replacen(' ', " % ", 1)
    }

    fn percent(self) -> String {
        Self { mean: 100.0 * self.mean, low: 100.0 * self.low, high: 100.0 * self.high }.text(1)
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text(1))
    }
}

/// Without a sign where the digits are zero.
fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches('-').chars().all(|c| "0.".contains(c)) { text.trim_start_matches('-').to_owned() } else { text }
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Every `N [L, H]`, `N % [L, H]` and `N points [L, H]` of a text.
pub(crate) fn intervals(text: &str) -> Vec<Interval> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let mut found = Vec::new();
    for (at, _) in text.match_indices('[') {
        let inside = text[at + 1..].split(']').next().unwrap();
        let Some((low, high)) = inside.split_once(", ").and_then(|(low, high)| Some((number(low)?, number(high)?))) else { continue };
        let before = text[..at].trim_end().trim_end_matches('%').trim_end_matches("points").trim_end();
        let mean = before.rsplit(' ').next().and_then(number).unwrap_or_else(|| panic!("no number before [{inside}]"));
        found.push(Interval { mean, low, high });
    }
    found
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The least and the largest of some values.
fn span(values: &[f64], decimals: usize) -> String {
    let (least, most) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(*value), most.max(*value)));
    format!("{} to {}", fixed(least, decimals), fixed(most, decimals))
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

/// The 97.5th percentile of Student's t.
fn student(freedom: usize) -> f64 {
    StudentsT::new(0.0, 1.0, freedom as f64).unwrap().inverse_cdf(0.975)
}

fn interval(values: &[f64]) -> Interval {
    let (mean, n) = (mean(values), values.len());
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let half = student(n - 1) * (variance / n as f64).sqrt();
    Interval { mean, low: mean - half, high: mean + half }
}

/// Rows of a CSV file by column.
type Rows = Vec<BTreeMap<String, String>>;

pub(crate) struct Results {
    folder: PathBuf,
    read: BTreeMap<String, Rows>,
}

impl Results {
    pub(crate) fn new(root: &Path) -> Self {
        Self { folder: root.join("results"), read: BTreeMap::new() }
    }

    fn csv(&mut self, path: &str) -> &Rows {
        let read = || -> Rows {
            let mut reader = csv::Reader::from_path(self.folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            reader.deserialize().collect::<Result<_, _>>().unwrap()
        };
        if !self.read.contains_key(path) {
            let rows = read();
            self.read.insert(path.to_owned(), rows);
        }
        &self.read[path]
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder.join(path)).unwrap()).unwrap()
    }

    /// How precise a campaign's numbers are at the paper's depth.
    fn precision(&self, directory: &str) -> Value {
        self.precision_over(directory, "matched depth")
    }

    fn precision_over(&self, directory: &str, stretch: &str) -> Value {
        let precision = &self.json(&format!("{directory}/verdicts.json"))["papers"][0]["precision"];
        let of = |precision: &&Value| precision["stretch"] == stretch;
        precision.as_array().unwrap().iter().find(of).unwrap_or_else(|| panic!("{directory}: nothing over the {stretch}")).clone()
    }

    /// Tokens of the paper's depth.
    fn matched(&self, directory: &str) -> RangeInclusive<f64> {
        let tokens = &self.precision(directory)["tokens"];
        let [from, to] = [0, 1].map(|end| tokens[end].as_f64().unwrap());
        from..=to
    }

    /// The same in millions, as a sentence has them.
    fn matched_in_millions(&self, directory: &str) -> String {
        let tokens = self.matched(directory);
        span(&[tokens.start() / 1e6, tokens.end() / 1e6], 0)
    }

    /// What a cell has to say. The first cell of a table's head says what its rows are.
    pub(crate) fn cell(&mut self, kind: &str, row: &[String], column: &Column) -> Result<String, String> {
        let names: Vec<&str> = row.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let [first, rest @ ..] = names.as_slice() else { return Err("no name in backticks".into()) };
        let directory = column.directory.as_str();
        match (kind, rest) {
            ("arm" | "recipe" | "MXFP4 in", []) => {
                let later = self.overheads(directory, first, column.loss);
                let earlier = column.from.map_or(vec![0.0; later.len()], |loss| self.overheads(directory, first, Some(loss)));
                let rises: Vec<f64> = later.iter().zip(earlier).map(|(later, earlier)| later - earlier).collect();
                Ok(if rises.is_empty() { String::new() } else { interval(&rises).percent() })
            }
            ("cost", []) if column.all_seeds_of.is_some() => self.all_seeds(column.all_seeds_of.as_deref().unwrap_or_default(), first),
            ("cost", []) if !self.has(directory, first) => Ok("not run".into()),
            ("cost", []) => self.cost(directory, first, column.late).map(Interval::percent),
            ("sensitivity", []) => self.cost(directory, first, column.late).map(|cost| fixed(100.0 * cost.mean, 1)),
            ("control" | "defect", []) => Ok(self.beside(directory, first, column)),
            ("backward", []) => Ok(self.pooled_gap(directory, first).text(3)),
            ("scale rule", [floor]) => {
                let arm = if self.has(directory, first) { first } else { floor };
                self.cost(directory, arm, column.late).map(Interval::percent)
            }
            ("direction", []) => self.direction(directory, first),
            ("gap", []) => Ok(self.gap(directory, first).map_or(String::new(), |gap| gap.text(3))),
            ("contrast", [second]) => Ok(self.contrast(directory, first, second).map_or(String::new(), Interval::percent)),
            ("verdict", []) => Ok(self.claims(directory, first)),
            ("step", []) => Ok(self.step(directory, first, column.peer)),
            ("memory", []) => Ok(self.memory(directory, first, column.peer)),
            _ => Err(format!("nobody knows how to check a table that begins with `{kind}`")),
        }
    }

    /// Tokens to the target, or to another loss; none where a run did not get there.
    fn tokens(&mut self, directory: &str, loss: Option<f64>) -> Cells {
        let key = |row: &BTreeMap<String, String>| (row["arm"].clone(), row["seed"].parse::<u64>().unwrap());
        let number = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<f64>().unwrap();
        let Some(loss) = loss else {
            let rows = self.csv(&format!("{directory}/data/tokens_to_target.csv"));
            return rows.iter().filter(|row| row["reached"] == "1").map(|row| (key(row), number(row, "tokens_interpolated"))).collect();
        };
        let (mut before, mut reached) = (BTreeMap::new(), Cells::new());
        for row in self.csv(&format!("{directory}/data/validation.csv")) {
            let (key, tokens, here) = (key(row), number(row, "tokens"), number(row, "loss"));
            if here <= loss && !reached.contains_key(&key) {
                let (earlier, above): (f64, f64) = before[&key];
                reached.insert(key.clone(), earlier + (tokens - earlier) * (above - loss) / (above - here));
            }
            before.insert(key, (tokens, here));
        }
        reached
    }

    /// Extra tokens over FP8, one a seed; none for an arm that the campaign has not.
    fn overheads(&mut self, directory: &str, arm: &str, loss: Option<f64>) -> Vec<f64> {
        let tokens = self.tokens(directory, loss);
        let ratio = |((name, seed), tokens_of_arm): (&(String, u64), &f64)| {
            (name == arm).then(|| tokens_of_arm / tokens[&("fp8".to_owned(), *seed)] - 1.0)
        };
        tokens.iter().filter_map(ratio).collect()
    }

    /// Extra tokens at the paper's depth, or over the last quarter. study/tests/judging.py computes such numbers independently.
    fn cost(&mut self, directory: &str, arm: &str, late: bool) -> Result<Interval, String> {
        let stretch = if late { "last quarter" } else { "matched depth" };
        let rows = self.csv(&format!("{directory}/data/stretches.csv"));
        let is_meant = |row: &&BTreeMap<String, String>| row["baseline"] == "fp8" && row["arm"] == arm && row["stretch"] == stretch;
        let row = rows.iter().find(is_meant).ok_or(format!("{arm} has no such number"))?;
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        Ok(Interval { mean: number("overhead"), low: number("overhead_low"), high: number("overhead_high") })
    }

    /// The direction of a claim, in per cent.
    fn direction(&mut self, directory: &str, claim: &str) -> Result<String, String> {
        let not_run =
            self.csv(&format!("{directory}/data/claims.csv")).iter().any(|row| row["claim"] == claim && row["verdict"] == "not-run");
        if not_run {
            return Ok("not run".into());
        }
        self.direction_line(directory, claim).map(Interval::percent)
    }

    fn direction_line(&mut self, directory: &str, claim: &str) -> Result<Interval, String> {
        let rows = self.csv(&format!("{directory}/data/claim_lines.csv"));
        let row = rows.iter().find(|row| row["claim"] == claim && row["line"] == "direction").ok_or(format!("{claim} has no direction"))?;
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        Ok(Interval { mean: number("number"), low: number("low"), high: number("high") })
    }

    fn gap(&mut self, directory: &str, arm: &str) -> Option<Interval> {
        let rows = self.csv(&format!("{directory}/data/loss_gap.csv")).iter().filter(|row| row["arm"] == arm && row["baseline"] == "fp8");
        let gaps: Vec<f64> = rows.map(|row| row["last_quarter"].parse().unwrap()).collect();
        (!gaps.is_empty()).then(|| interval(&gaps))
    }

    /// Nats above the baseline over the last quarter, from the page of all evidence, whose intervals come from the two-way layout.
    fn pooled_gap(&mut self, directory: &str, arm: &str) -> Interval {
        let of = |row: &&BTreeMap<String, String>| row["source"] == directory && row["arm"] == arm && row["depth"] == "last quarter";
        let row = self.csv("index.csv").iter().find(of).unwrap_or_else(|| panic!("{arm} of {directory} is not on the page"));
        let number = |name: &str| row[name].parse::<f64>().unwrap();
        // One seed has no interval.
        let end = |name: &str| if row[name].is_empty() { f64::NAN } else { number(name) };
        Interval { mean: number("gap"), low: end("gap_low"), high: end("gap_high") }
    }

    /// Difference of two arms' log tokens, with the residual of the two-way layout of all arms and seeds.
    fn contrast(&mut self, directory: &str, first: &str, second: &str) -> Option<Interval> {
        let logs: Cells = self.tokens(directory, None).into_iter().map(|(key, tokens)| (key, tokens.ln())).collect();
        let layout = Layout::of(&logs);
        (layout.has(first) && layout.has(second)).then(|| layout.difference(first, second))
    }

    /// Claims with this verdict.
    fn claims(&mut self, directory: &str, verdict: &str) -> String {
        let rows = self.csv(&format!("{directory}/data/claims.csv")).iter().filter(|row| row["verdict"] == verdict);
        rows.map(|row| row["claim"].clone()).collect::<Vec<_>>().join(", ")
    }

    /// The GPU's part of kernels.json: an entry of `list` whose name ends with `/arm`.
    fn of_gpu(&self, directory: &str, list: &str, arm: &str) -> Option<Value> {
        let gpu = &self.json(&format!("{directory}/kernels.json"))["gpus"][0];
        let entries = gpu[list].as_array().unwrap();
        entries.iter().find(|entry| entry["name"].as_str().unwrap().ends_with(&format!("/{arm}"))).cloned()
    }

    /// Milliseconds of a step, the median.
    fn step(&mut self, directory: &str, arm: &str, peer: bool) -> String {
        let seconds = if peer {
            let entry = self.of_gpu(directory, "peers", &peer_of(arm)).unwrap();
            median(&entry["samples"].as_array().unwrap().iter().map(|sample| sample.as_f64().unwrap()).collect::<Vec<_>>())
        } else {
            let rows = self.csv(&format!("{directory}/devices.csv"));
            rows.iter().find(|row| row["name"].starts_with("step/") && row["name"].ends_with(&format!("/{arm}"))).unwrap()["seconds"]
                .parse()
                .unwrap()
        };
        fixed(1e3 * seconds, 1)
    }

    /// GiB of a step; ours a second time with `--least-memory` where that was measured.
    fn memory(&self, directory: &str, arm: &str, peer: bool) -> String {
        let gib = |entry: Value| fixed(entry["peak_bytes"].as_f64().unwrap() / GIB, 2);
        if peer {
            return gib(self.of_gpu(directory, "peers", &peer_of(arm)).unwrap());
        }
        let ways = [arm.to_owned(), format!("{arm} --least-memory")];
        ways.iter().filter_map(|name| self.of_gpu(directory, "memory", name)).map(gib).collect::<Vec<_>>().join(", ")
    }

    /// A ratio of comparisons.csv.
    fn ratio(&mut self, directory: &str, what: &str) -> f64 {
        self.compared(directory, what)["ratio"].parse().unwrap()
    }

    fn compared(&mut self, directory: &str, what: &str) -> &BTreeMap<String, String> {
        let rows = self.csv(&format!("{directory}/comparisons.csv"));
        rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("{directory}: no comparison {what:?}"))
    }

    /// Sentences that docs/results.md has to contain.
    pub(crate) fn sentences(&mut self) -> Vec<String> {
        let mut all = self.sentences_of_campaigns();
        all.extend(self.sentences_of_kernels());
        all
    }

    fn sentences_of_campaigns(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for (directory, parameters) in [(S, "31,990,272"), (M, "125,848,320")] {
            let report = std::fs::read_to_string(self.folder.join(directory).join("report.html")).unwrap();
            assert!(report.contains(parameters), "{directory}: the report says otherwise");
            all.push(parameters.to_owned());
        }
        for directory in [S, M, CPU] {
            let tokens = self.tokens(directory, None);
            let arms: BTreeSet<&String> = tokens.keys().map(|(arm, _)| arm).collect();
            let (arms, runs) = (arms.len(), tokens.len());
            let budget: f64 = self.csv(&format!("{directory}/data/tokens_to_target.csv"))[0]["budget_tokens"].parse().unwrap();
            let millions = if budget < 1e6 { fixed(budget / 1e6, 2) } else { fixed(budget / 1e6, 0) };
            all.push(format!("{arms} arms, {runs} runs of {millions} million tokens"));
        }
        let runs = self.csv(&format!("{LADDER}/data/tokens_to_target.csv"));
        let of = |seed: u64| runs.iter().filter(|row| row["seed"] == seed.to_string()).count();
        assert!((11..=16).map(of).all(|arms| arms == 15) && runs.len() == 90, "{LADDER}: other runs");
        all.push("90 runs are here: 15 arms with seeds 11 to 16".to_owned());
        for (directory, begins) in [(LADDER, "One"), (LADDER_8M, "one"), (LADDER_110M, "one"), (LADDER_359M, "one")] {
            let precision = self.precision(directory);
            all.push(format!("{begins} run scatters by {} %", fixed(100.0 * precision["sd"].as_f64().unwrap(), 1)));
        }
        let early = self.scatter_at_target(S).0;
        all.push(format!("{} times as precisely", fixed(early / self.precision(LADDER)["sd"].as_f64().unwrap(), 1)));
        all.push(format!("where one run of `h200-s` scatters by {} %", fixed(100.0 * early, 1)));
        all.extend(self.sizes());
        all.extend(self.depth());
        all.extend(self.depth_at_110m());
        all.extend(self.of_all_seeds());
        all.push(self.smallest().1);
        all.extend(self.of_few_seeds());
        all.push(self.parts_of_the_gap());
        all.extend(self.of_the_law());
        all.push(self.largest());
        all.push(self.stochastic());
        let mut at = |directory, loss| fixed(100.0 * mean(&self.overheads(directory, "mxfp4-fdw", Some(loss))), 1);
        all.push(format!(
            "rises from {} % to {} % between loss 4.20 and 3.60, and at 126M from {} % to {} % between 4.60 and 4.45",
            at(S, 4.20),
            at(S, 3.60),
            at(M, 4.60),
            at(M, 4.45)
        ));
        let mut of = |directory, arm| 100.0 * mean(&self.overheads(directory, arm, None));
        all.push(format!("stand {} % and {} % above the baseline at 32M", fixed(of(S, "bf16"), 1), fixed(of(S, "fp8-current"), 1)));
        let stochastic =
            ["mxfp4-f-sr", "mxfp4-fd-sr", "mxfp4-fdw-sr", "mxfp4-fdw-sr-ceil", "mxfp4-fdw-sr-constant"].map(|arm| of(CPU, arm));
        let (least, most) = stochastic.iter().fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(*value), most.max(*value)));
        all.push(format!("cost most, {} to {} % on average", fixed(least, 1), fixed(most, 1)));
        let report = std::fs::read_to_string(self.folder.join(S).join("report.html")).unwrap();
        for number in ["4.5", "±9.1", "±2"] {
            assert!(
                report.contains(&format!("{number}\u{a0}%")) || report.contains(&format!("{number} %")),
                "the report does not say {number} %"
            );
            all.push(format!("{number} %"));
        }
        let claims = self.csv(&format!("{S}/data/claims.csv"));
        let kernel: f64 = claims.iter().find(|row| row["claim"] == "T1-KERN").unwrap()["number"].parse().unwrap();
        all.push(format!("is {} times as fast as that of 32", fixed(kernel, 2)));
        all
    }

    /// What training and reading do, over the last quarter of the ladder's 32M.
    fn parts_of_the_gap(&mut self) -> String {
        let rows = self.csv(&format!("{LADDER}/data/readings.csv"));
        let [full, rotated] = ["mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| {
            let row = rows.iter().find(|row| row["arm"] == arm && row["over"] == "last quarter").unwrap();
            ["gap", "training", "reading"].map(|part| fixed(1e3 * row[part].parse::<f64>().unwrap(), 1))
        });
        format!(
            "lies {} thousandths of a nat above FP8: {} are in its weights, {} come from reading them in MXFP4. With deterministic Hadamard 16 it is {}, of which {} and {}",
            full[0], full[1], full[2], rotated[0], rotated[1], rotated[2]
        )
    }

    fn sentences_of_kernels(&mut self) -> Vec<String> {
        let mut slower =
            |directory, arm: &str, profile: &str| fixed(1.0 / self.ratio(directory, &format!("{arm} over our BF16, {profile}")), 2);
        let arms = ["mxfp4-f", "mxfp4-fd", "mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16", "mxfp4-fdw-h32", "mxfp4-fdw-h16"];
        let mut of_m = arms.map(|arm| slower(STEPS_M, arm, "h200-m"));
        of_m.sort();
        let mut all = vec![
            format!("({} to {})", of_m[0], of_m[6]),
            format!(
                "stochastic rounding ({}) and H16 ({})",
                slower(STEPS_S, "mxfp4-fdw-sr", "h200-s"),
                slower(STEPS_S, "mxfp4-fdw-h16", "h200-s")
            ),
            format!(
                "randomized H16 ({}) and H32 ({})",
                slower(KERNELS, "mxfp4-fdw-rh16", "h200-s"),
                slower(KERNELS, "mxfp4-fdw-h32", "h200-s")
            ),
        ];
        let mut share = |what: &str, profile: &str| {
            fixed(100.0 * self.ratio(KERNELS, &format!("{what}, of the device's copy, each byte once, {profile}")), 0)
        };
        let [s, m, large] = ["h200-s", "h200-m", "llama31-8b"].map(|profile| share("H16", profile));
        all.push(format!("runs at {m} to {s} % of the device's copy bandwidth, and at {large} % at 8B's shapes"));
        let [s, m, large] = ["h200-s", "h200-m", "llama31-8b"].map(|profile| share("H16 and stochastic", profile));
        assert_eq!(s, m);
        all.push(format!("runs at {s} %, and at {large} % at 8B's shapes"));
        let rows = self.csv(&format!("{KERNELS}/devices.csv"));
        let speed = |variant: &str| {
            let name = format!("block+prepare/{variant}/llama31-8b");
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            grouped((row["per_second"].parse::<f64>().unwrap() / 1e12).round() as u64)
        };
        let [h16, h32, none, fp8] = ["mxfp4-h16", "mxfp4-h32", "mxfp4-h0", "fp8"].map(speed);
        all.push(format!("run at {h16} TFLOP/s with H16 and {h32} with H32, at {none} without rotation, and at {fp8} in native FP8"));
        all.extend(self.sentences_of_cpu_kernels());
        all.extend(self.sentences_of_intel());
        all.extend(self.sentences_of_steps_on_intel());
        all.extend(self.sentences_of_steps_in_turns());
        let checks = self.csv("device-test-2026-11-22-nvidia-h200/checks.csv");
        assert!(checks.iter().all(|row| row["passed"] == "true"));
        all.push(format!("{} comparisons", grouped(checks.len() as u64)));
        all
    }
}

/// What PyTorch's script calls an arm of ours.
fn peer_of(arm: &str) -> String {
    arm.replace("mxfp4-fdw", "mxfp4")
}
