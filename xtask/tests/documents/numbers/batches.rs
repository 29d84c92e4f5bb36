//! What the batch does to a cost.

use std::collections::BTreeMap;

use super::few_seeds::SEED;
use super::{DEPTH, LADDER, Results, fixed};

const QUARTER: &str = "2026-11-24-nvidia-h200-ladder-32m-batch-quarter-d751c78d";
const QUADRUPLE: &str = "2026-11-24-nvidia-h200-ladder-32m-batch-quadruple-d751c78d";
/// Six other seeds of the large batch.
const MORE: &str = "2026-11-27-nvidia-h200-ladder-32m-batch-quadruple-depth-4f2a03b3";
const CLAIMS: [(&str, &str); 3] = [("T1-FDW", "mxfp4-fdw"), ("T1-F", "mxfp4-f"), ("T1-H16", "mxfp4-fdw-h16")];

impl Results {
    /// Sentences that docs/results.md has to contain.
    pub(super) fn batches(&mut self) -> Vec<String> {
        let depth = [QUARTER, LADDER, QUADRUPLE, MORE].map(|directory| {
            let precision = self.precision(directory);
            [0, 1].map(|end| fixed(precision["tokens"][end].as_f64().unwrap() / 1e6, 0)).join(" to ")
        });
        let [small_end, own_end] = [QUARTER, LADDER].map(|directory| fixed(self.curve(directory, "fp8").last().unwrap().1, 3));
        assert_eq!(CLAIMS.map(|(claim, _)| self.verdict(MORE, claim)), ["reproduced", "differs", "differs"]);
        let [full, plain, rotated] = CLAIMS.map(|(_, arm)| self.cost(MORE, arm, false).unwrap().in_words());
        let mut line = |claim: &str, column: &str| self.of_the_size(MORE, claim, column);
        let [p, holm] = ["p_inside", "holm_inside"].map(|column| line("T1-FDW", column));
        let [plain_p, plain_holm] = ["p_outside", "holm_outside"].map(|column| line("T1-F", column));
        let mut chances = CLAIMS.map(|(claim, _)| fixed(100.0 * line(claim, "chance_reproduced"), 0));
        chances.sort();
        assert!(line("T1-H16", "p_outside") < 1e-4 && line("T1-H16", "holm_outside") < 1e-3);
        let [scatter, own, other] =
            [MORE, LADDER, DEPTH].map(|directory| fixed(100.0 * self.precision(directory)["sd"].as_f64().unwrap(), 1));
        let off = self.direction_line(MORE, "T1-H16").unwrap().negated().in_words();
        vec![
            format!(
                "after {} million tokens with the small batch, {} with the ladder's, {} with the large one ({} by the six seeds)",
                depth[0], depth[1], depth[2], depth[3]
            ),
            format!("FP8 of seed {SEED} ends at {small_end} instead of {own_end}"),
            format!("`reproduced` at {full} (p {}, and {} after Holm's correction", fixed(p, 3), fixed(holm, 2)),
            format!("Fprop `differs` at {plain} (p {}, and {})", fixed(plain_p, 3), fixed(plain_holm, 3)),
            format!("Hadamard 16 `differs` at {rotated} (p below 0.0001, and below 0.001)"),
            format!("One run scatters by {scatter} % there, where runs of the ladder's own batch scatter by {own} to {other} %"),
            format!("with a chance of {} to {} %, if the paper is right", chances[0], chances[2]),
            format!("Hadamard 16 takes {off} off the full pipeline"),
            self.at_the_target(),
        ]
    }

    /// What the large batch and the ladder's own cost to the target loss, which is the same in both; and that after the same tokens the large one
    /// costs less.
    fn at_the_target(&mut self) -> String {
        let of = |results: &mut Self, arm: &str| {
            [MORE, LADDER].map(|directory| {
                let is_meant =
                    |row: &&BTreeMap<String, String>| row["source"] == directory && row["arm"] == arm && row["depth"] == "own target";
                let row = results.csv("index.csv").iter().find(is_meant).unwrap();
                fixed(100.0 * row["number"].parse::<f64>().unwrap(), 1)
            })
        };
        let targets = [MORE, LADDER].map(|directory| self.json(&format!("{directory}/verdicts.json"))["target_loss"].as_f64().unwrap());
        assert_eq!(targets, [3.42; 2]);
        for (_, arm) in CLAIMS {
            let [large, own] = [MORE, LADDER].map(|directory| self.cost(directory, arm, true).unwrap());
            assert!(large.high < own.low, "after the same tokens: {large} and {own}");
        }
        let [full, plain, rotated] = CLAIMS.map(|(_, arm)| of(self, arm));
        format!(
            "takes {} % more with it and {} % with the ladder's own, Hadamard 16 {} and {} %, Fprop {} and {} %",
            full[0], full[1], rotated[0], rotated[1], plain[0], plain[1]
        )
    }

    /// What the README says of it.
    pub(super) fn half_the_papers_batch(&mut self) -> String {
        let [full, plain, rotated] = CLAIMS.map(|(_, arm)| self.cost(MORE, arm, false).unwrap().in_words());
        let holm = self.of_the_size(MORE, "T1-FDW", "holm_inside");
        format!(
            "the full pipeline costs {full}, `reproduced` (p {} by Holm), Fprop {plain} and H16 {rotated}, `differs` (six seeds)",
            fixed(holm, 2)
        )
    }
}
