//! What the rules find of sizes, as the documents say it.

use std::collections::BTreeMap;

use super::{CPU, DEPTH, DEPTH_110M, LADDER, LADDER_8M, LADDER_110M, LADDER_359M, Results, fixed};

impl Results {
    /// The verdict of a claim's own size.
    pub(super) fn verdict(&mut self, directory: &str, claim: &str) -> String {
        let rows = self.csv(&format!("{directory}/data/claims.csv"));
        rows.iter().find(|row| row["claim"] == claim).unwrap_or_else(|| panic!("{directory}: no {claim}"))["verdict"].clone()
    }

    /// The paper's sizes at 32M and at 110M: sentences of docs/results.md.
    pub(super) fn sizes(&mut self) -> [String; 6] {
        for directory in [LADDER, LADDER_110M] {
            let full = self.cost(directory, "mxfp4-fdw", false).unwrap();
            assert!((0.19..0.23).contains(&full.mean) && full.high < 0.24, "{directory}: {full:?} is no fifth, or not below the paper's");
        }
        const OTHERS: [(&str, &str); 3] = [("T1-F", "mxfp4-f"), ("T1-H16", "mxfp4-fdw-h16"), ("T1-H32", "mxfp4-fdw-h32")];
        for (claim, arm) in OTHERS {
            let [middle, large] = [LADDER, LADDER_110M].map(|directory| self.cost(directory, arm, false).unwrap());
            assert!((middle.low > 0.09) == (arm != "mxfp4-fdw-h16") && large.low > 0.09, "{arm}: {middle} and {large}");
            assert_eq!(self.verdict(LADDER_110M, claim), "inconclusive", "{claim}");
        }
        assert_eq!(self.verdict(LADDER_110M, "T1-FDW"), "differs");
        let lines = self.sizes_in_tokens(LADDER);
        assert!(lines.len() == 9 && lines.iter().all(|row| row["verdict"] == "cannot-decide"), "{lines:?}");
        let mut chances: Vec<(f64, &str)> =
            lines.iter().map(|row| (row["chance_reproduced"].parse().unwrap(), row["claim"].as_str())).collect();
        chances.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(chances[0].1 == "T1-FDW" && chances[8].0 < 0.5, "{chances:?}");
        let [full, least, most] = [chances[0].0, chances[1].0, chances[8].0].map(|chance| fixed(100.0 * chance, 0));
        let stochastic = self.cost(LADDER, "mxfp4-f-sr", false).unwrap().percent();
        for claim in ["T1-SR-F", "T1-SR-FD"] {
            let line = lines.iter().find(|row| row["claim"] == claim).unwrap();
            assert!(line["holm_outside"].parse::<f64>().unwrap() < 1e-6, "{line:?}");
        }
        [
            format!("with a chance of {full} % for the full pipeline and {least} to {most} % for the others"),
            format!("far above 8 to 9 % in Fprop, at {stochastic}"),
            self.chances(LADDER, "T1-FDW"),
            self.chances(LADDER, "T1-H32"),
            self.chances(LADDER_110M, "T1-FDW"),
            "Fprop alone and both Hadamard matrices lie above 8 to 9 % and are `inconclusive`".to_owned(),
        ]
    }

    /// The same sizes by twelve other seeds.
    pub(super) fn depth(&mut self) -> Vec<String> {
        let decided = [("T1-F", "inconclusive"), ("T1-FDW", "cannot-decide"), ("T1-H32", "inconclusive"), ("T1-H16", "differs")];
        for (claim, verdict) in decided {
            assert_eq!(self.verdict(DEPTH, claim), verdict, "{claim}");
        }
        let [f, full, h32] = ["mxfp4-f", "mxfp4-fdw", "mxfp4-fdw-h32"].map(|arm| self.cost(DEPTH, arm, false).unwrap());
        assert!(f.low > 0.09 && f.low < 0.11 && h32.low > 0.09 && h32.low < 0.11 && full.high < 0.24, "{f}, {h32} and {full}");
        let scatters = [DEPTH, LADDER].map(|directory| fixed(100.0 * self.precision(directory)["sd"].as_f64().unwrap(), 1));
        let full = self.sizes_in_tokens(DEPTH).into_iter().find(|row| row["claim"] == "T1-FDW").unwrap();
        let chance = fixed(100.0 * full["chance_reproduced"].parse::<f64>().unwrap(), 0);
        let [h16, h32] = ["T1-H16", "T1-H32"].map(|claim| {
            [LADDER, DEPTH].map(|directory| self.direction_line(directory, claim).unwrap().negated().in_words()).join(" and ")
        });
        let own = self.matched(DEPTH);
        let [from, to] = [own.start(), own.end()].map(|tokens| fixed(tokens / 1e6, 0));
        vec![
            format!("Hadamard 16 `differs`** ({})", self.chances(DEPTH, "T1-H16")),
            self.chances(DEPTH, "T1-FDW"),
            format!("These seeds scatter by {} %, where {} % had been expected", scatters[0], scatters[1]),
            format!("if the paper is right, of {chance} % instead of"),
            format!("{h16} with Hadamard 16, {h32} with Hadamard 32"),
            format!("between {from} and {to} million tokens, where it was {}", self.matched_in_millions(LADDER)),
        ]
    }

    /// Lines of sizes in tokens, not of whether a row converges.
    pub(super) fn sizes_in_tokens(&mut self, directory: &str) -> Vec<BTreeMap<String, String>> {
        let lines = self.csv(&format!("{directory}/data/claim_lines.csv"));
        lines.iter().filter(|row| row["paper"] == "2605.09825" && row["line"] == "size" && !row["stretch"].is_empty()).cloned().collect()
    }

    /// How likely a size so far from the paper's is, before and after Holm's correction.
    pub(super) fn chances(&mut self, directory: &str, claim: &str) -> String {
        let [plain, holm] = self.outside(directory, claim);
        format!("p {}, and {} after Holm's correction", fixed(plain, 3), fixed(holm, if holm < 0.1 { 3 } else { 2 }))
    }

    fn outside(&mut self, directory: &str, claim: &str) -> [f64; 2] {
        ["p_outside", "holm_outside"].map(|column| self.of_the_size(directory, claim, column))
    }

    /// A column of a claim's line on its size.
    pub(super) fn of_the_size(&mut self, directory: &str, claim: &str, column: &str) -> f64 {
        let lines = self.sizes_in_tokens(directory);
        lines.iter().find(|row| row["claim"] == claim).unwrap()[column].parse().unwrap()
    }

    /// How many times as much each arm pays over the last quarter at another size as at 32M, the least first.
    fn times(&mut self, directory: &str, arms: &[&str]) -> Vec<f64> {
        let mut cost = |directory, arm: &str| self.cost(directory, arm, true).unwrap().mean;
        let mut times: Vec<f64> = arms.iter().map(|arm| cost(directory, arm) / cost(LADDER, arm)).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// How many times as much 8M pays over the last quarter as 32M: what the README says, and docs/results.md.
    pub(super) fn smallest(&mut self) -> (String, String) {
        let full = self.times(LADDER_8M, &["mxfp4-fdw"])[0];
        let others = self.times(LADDER_8M, &["mxfp4-f", "mxfp4-fd", "mxfp4-fdw-sr", "mxfp4-fdw-rh16", "mxfp4-fdw-h16"]);
        assert!(full < others[0], "{full} and {others:?}");
        let (full, others) = (fixed(full, 1), ends(&others));
        (
            format!("a model of 8M parameters pays {full} to {} times as much", others.1),
            format!("the full pipeline costs {full} times as much at 8M as at 32M, the others {} to {} times", others.0, others.1),
        )
    }

    /// What the largest model pays.
    pub(super) fn largest(&mut self) -> String {
        let full = self.cost(LADDER_359M, "mxfp4-fdw", false).unwrap();
        assert!(full.high < 0.24, "{full}: outside of the paper's range");
        let lines = self.csv(&format!("{LADDER_359M}/data/claim_lines.csv"));
        let directions: Vec<&str> = lines.iter().filter(|row| row["line"] == "direction").map(|row| row["verdict"].as_str()).collect();
        assert_eq!(directions, ["reproduced"; 3], "and docs/results.md says all three");
        let [full, rotated] = ["T1-FDW", "T1-H16"].map(|claim| self.verdict(LADDER_359M, claim));
        format!("beside 26 to 27 % and 8 to 9 % these two are `{full}` and `{rotated}`")
    }

    /// What stochastic rounding adds to the full pipeline, by size.
    pub(super) fn stochastic(&mut self) -> String {
        let [middle, large, largest] =
            [LADDER, LADDER_110M, LADDER_359M].map(|directory| self.direction_line(directory, "T1-SR-FDW").unwrap());
        format!(
            "Stochastic rounding adds {} % at 32M, {} % at 110M and {} at 359M",
            fixed(100.0 * middle.mean, 1),
            fixed(100.0 * large.mean, 1),
            largest.in_words()
        )
    }

    /// Sentences that the README has to contain.
    pub(crate) fn sentences_of_the_readme(&mut self) -> Vec<String> {
        // Gaps in nats are no sizes in tokens.
        let sizes = self.sizes_in_tokens(CPU);
        assert!(sizes.len() > 8 && sizes.iter().all(|row| row["verdict"] == "cannot-decide"), "{CPU}: a size in tokens is decided");
        let holm = |line: &BTreeMap<String, String>, column: &str| fixed(line[column].parse().unwrap(), 2);
        let [small, large] = [DEPTH, DEPTH_110M].map(|directory| {
            let line = self.sizes_in_tokens(directory).into_iter().find(|row| row["claim"] == "T1-H16").unwrap();
            (line, self.cost(directory, "mxfp4-fdw-h16", false).unwrap().in_words())
        });
        assert_eq!([&small.0["verdict"], &large.0["verdict"]], ["differs", "reproduced"]);
        let off = [DEPTH, DEPTH_110M].map(|directory| self.direction_line(directory, "T1-H16").unwrap().negated().in_words()).join(" and ");
        const ALL: [&str; 7] = ["mxfp4-f", "mxfp4-fd", "mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16", "mxfp4-fdw-h16", "mxfp4-fdw-h32"];
        let middle = ends(&self.times(LADDER_110M, &ALL));
        let largest = ends(&self.times(LADDER_359M, &["mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-h16"]));
        vec![
            format!("Hadamard 16 (H16) costs {} by twelve seeds at 32M, `differs` (p {} by Holm)", small.1, holm(&small.0, "holm_outside")),
            format!("and {} by five at 110M, `reproduced` (p {})", large.1, holm(&large.0, "holm_inside")),
            format!("It takes {off} off the full pipeline"),
            format!("one of 110M {} to {} times", middle.0, middle.1),
            format!("one of 359M {} to {} times", largest.0, largest.1),
            "The full pipeline costs a fifth more tokens, less than the paper's 26 to 27 %".to_owned(),
            self.smallest().0,
            self.half_the_papers_batch(),
            "so are all sizes in tokens of the default profile".to_owned(),
        ]
    }
}

/// The first and the last, as the documents say them.
fn ends(times: &[f64]) -> (String, String) {
    (fixed(times[0], 1), fixed(times[times.len() - 1], 1))
}
