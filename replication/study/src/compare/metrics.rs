//! By how much two metrics files differ, number by number.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One kind of number, such as the loss of evaluations, over a run.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricDifference {
    /// `eval loss`, `train grad_norm`, `quantisation cosine`.
    pub what: String,
    /// Values that both files have.
    pub compared: usize,
    pub differing: usize,
    /// Values that only one file has, or that are a number in one and not in the other.
    pub unmatched: usize,
    /// The first step with a difference; none when all are unmatched.
    pub first_step: Option<u64>,
    /// The largest absolute difference, in the metric's own unit, and its step.
    pub largest: Option<(f64, u64)>,
}

/// Where a line belongs: kind, step, and for quantisation lines layer, linear, pass and operand.
type Place = (String, u64, String);
/// What a line says, besides where it belongs.
type Line = BTreeMap<String, Value>;

/// Differences of two metrics files, one for each kind of number that differs anywhere.
pub(super) fn differences(first: &str, second: &str) -> Vec<MetricDifference> {
    let (first, second) = (lines(first), lines(second));
    let mut all: BTreeMap<String, MetricDifference> = BTreeMap::new();
    let places: std::collections::BTreeSet<&Place> = first.keys().chain(second.keys()).collect();
    for place in places {
        let empty = Line::new();
        let (a, b) = (first.get(place).unwrap_or(&empty), second.get(place).unwrap_or(&empty));
        let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for key in keys {
            let what = format!("{} {key}", place.0);
            let entry = all.entry(what.clone()).or_insert(MetricDifference {
                what,
                compared: 0,
                differing: 0,
                unmatched: 0,
                first_step: None,
                largest: None,
            });
            entry.count(a.get(key), b.get(key), place.1);
        }
    }
    all.into_values().filter(|metric| metric.differing + metric.unmatched > 0).collect()
}

impl MetricDifference {
    fn count(&mut self, first: Option<&Value>, second: Option<&Value>, step: u64) {
        let (Some(first), Some(second)) = (first, second) else {
            self.unmatched += 1;
            return;
        };
        self.compared += 1;
        if first == second {
            return;
        }
        self.first_step = Some(self.first_step.map_or(step, |earlier| earlier.min(step)));
        let (Some(a), Some(b)) = (first.as_f64(), second.as_f64()) else {
            // A number in one and null in the other, or a word: different without an amount.
            self.unmatched += 1;
            return;
        };
        self.differing += 1;
        let amount = (a - b).abs();
        if self.largest.is_none_or(|(largest, _)| amount > largest) {
            self.largest = Some((amount, step));
        }
    }
}

/// Every line that is a JSON object, by its place. `measure` has read both files strictly before.
fn lines(text: &str) -> BTreeMap<Place, Line> {
    text.lines().filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok()).map(place).collect()
}

fn place(mut line: Map<String, Value>) -> (Place, Line) {
    let word = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let kind = line.remove("kind").map(word).unwrap_or_default();
    let step = line.remove("step").and_then(|step| step.as_u64()).unwrap_or(0);
    let parts: Vec<String> = ["layer", "linear", "pass", "operand"].iter().filter_map(|key| line.remove(*key)).map(word).collect();
    ((kind, step, parts.join(" ")), line.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_difference_and_the_first_step_are_found() {
        let first = "{\"kind\":\"eval\",\"step\":0,\"tokens\":0,\"loss\":7.0}\n{\"kind\":\"eval\",\"step\":8,\"tokens\":64,\"loss\":6.5}\n{\"kind\":\"eval\",\"step\":16,\"tokens\":128,\"loss\":6.0}\n";
        let second = "{\"kind\":\"eval\",\"step\":0,\"tokens\":0,\"loss\":7.0}\n{\"kind\":\"eval\",\"step\":8,\"tokens\":64,\"loss\":6.75}\n{\"kind\":\"eval\",\"step\":16,\"tokens\":128,\"loss\":6.125}\n{\"kind\":\"eval\",\"step\":24,\"tokens\":192,\"loss\":null}\n";
        let found = differences(first, second);
        assert_eq!(
            found,
            [
                MetricDifference {
                    what: "eval loss".into(),
                    compared: 3,
                    differing: 2,
                    unmatched: 1,
                    first_step: Some(8),
                    largest: Some((0.25, 8))
                },
                MetricDifference { what: "eval tokens".into(), compared: 3, differing: 0, unmatched: 1, first_step: None, largest: None },
            ]
        );
        assert!(differences(first, first).is_empty());
        let diverged = differences("{\"kind\":\"eval\",\"step\":1,\"loss\":1.0}", "{\"kind\":\"eval\",\"step\":1,\"loss\":null}");
        assert_eq!((diverged[0].differing, diverged[0].unmatched, diverged[0].first_step), (0, 1, Some(1)));
    }

    #[test]
    fn quantisation_lines_are_matched_by_place_not_by_order() {
        let line = |pass: &str, error: f64| {
            format!(
                "{{\"kind\":\"quantisation\",\"step\":1,\"layer\":0,\"linear\":\"qkv\",\"pass\":\"{pass}\",\"operand\":\"input\",\"relative_error\":{error}}}\n"
            )
        };
        assert!(differences(&(line("fprop", 0.1) + &line("wgrad", 0.2)), &(line("wgrad", 0.2) + &line("fprop", 0.1))).is_empty());
        assert_eq!(differences(&line("fprop", 0.5), &line("fprop", 0.25))[0].largest, Some((0.25, 1)));
    }
}
