//! What the rules find of sizes, as the documents say it.

use super::{CPU, Interval, LADDER, LADDER_8M, LADDER_110M, LADDER_359M, Results, fixed};

impl Results {
    /// The verdict of a claim's own size.
    fn verdict(&mut self, directory: &str, claim: &str) -> String {
        let rows = self.csv(&format!("{directory}/data/claims.csv"));
        rows.iter().find(|row| row["claim"] == claim).unwrap_or_else(|| panic!("{directory}: no {claim}"))["verdict"].clone()
    }

    /// The paper's sizes at 32M and at 110M: sentences of docs/results.md.
    pub(super) fn sizes(&mut self) -> [String; 4] {
        let both = [LADDER, LADDER_110M];
        let [middle, large] = both.map(|directory| self.verdict(directory, "T1-FDW"));
        for directory in both {
            let full = self.cost(directory, "mxfp4-fdw", false).unwrap();
            assert!((0.19..0.23).contains(&full.mean), "{directory}: {full:?} is no fifth");
            for (claim, arm) in [("T1-F", "mxfp4-f"), ("T1-H16", "mxfp4-fdw-h16")] {
                let Interval { low, .. } = self.cost(directory, arm, false).unwrap();
                assert!(low > 0.09, "{directory}: {arm} begins at {low}");
                assert_eq!(self.verdict(directory, claim), "inconclusive", "{directory}: {claim}");
            }
        }
        let [middle_h32, large_h32] = both.map(|directory| self.verdict(directory, "T1-H32"));
        [
            format!("Beside 26 to 27 % that is `{middle}` at 32M and `{large}` at 110M"),
            self.chances(both),
            "Fprop alone and Hadamard 16 lie above 8 to 9 %, and are `inconclusive` at 32M and at 110M".to_owned(),
            format!("Hadamard 32 is `{middle_h32}` at 32M and `{large_h32}` at 110M"),
        ]
    }

    /// How likely a full pipeline so far from the paper's size is, before and after Holm's correction.
    fn chances(&mut self, directories: [&str; 2]) -> String {
        let [middle, large] = directories.map(|directory| {
            let rows = self.csv(&format!("{directory}/data/claim_lines.csv"));
            let row = rows.iter().find(|row| row["claim"] == "T1-FDW" && row["line"] == "size").unwrap();
            ["p_outside", "holm_outside"].map(|column| row[column].parse::<f64>().unwrap())
        });
        let [middle, middle_holm, large, large_holm] =
            [(middle[0], 4), (middle[1], 3), (large[0], 3), (large[1], 2)].map(|(p, decimals)| fixed(p, decimals));
        format!("p is {middle} and {large}, and {middle_holm} and {large_holm} after Holm's correction")
    }

    /// How many times as much 8M pays over the last quarter as 32M: what the README says, and docs/results.md.
    pub(super) fn smallest(&mut self) -> (String, String) {
        let mut times = |arm| {
            let [small, middle] = [LADDER_8M, LADDER].map(|directory| self.cost(directory, arm, true).unwrap().mean);
            small / middle
        };
        let full = times("mxfp4-fdw");
        let mut others = ["mxfp4-f", "mxfp4-fd", "mxfp4-fdw-sr", "mxfp4-fdw-rh16", "mxfp4-fdw-h16"].map(times);
        others.sort_by(f64::total_cmp);
        assert!(full < others[0], "{full} and {others:?}");
        let [full, least, most] = [full, others[0], others[4]].map(|times| fixed(times, 1));
        (
            format!("a model of 8M parameters pays {full} to {most} times as much"),
            format!("the full pipeline costs {full} times as much at 8M as at 32M, the others {least} to {most} times"),
        )
    }

    /// What the largest model pays.
    pub(super) fn largest(&mut self) -> String {
        for (arm, times) in [("mxfp4-fdw", 0.5..0.6), ("mxfp4-fdw-sr", 0.4..0.5), ("mxfp4-fdw-h16", 0.35..0.45)] {
            let [middle, largest] = [LADDER, LADDER_359M].map(|directory| self.cost(directory, arm, true).unwrap().mean);
            assert!(times.contains(&(largest / middle)), "{arm}: {largest} and {middle}, and the README says 0.4 to 0.6 times");
        }
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
        assert_eq!([LADDER, LADDER_110M].map(|directory| self.verdict(directory, "T1-FDW")), ["differs", "differs"]);
        // Gaps in nats are no sizes in tokens.
        let lines = self.csv(&format!("{CPU}/data/claim_lines.csv"));
        let mut sizes = lines.iter().filter(|row| row["paper"] == "2605.09825" && row["line"] == "size");
        assert!(sizes.clone().count() > 8 && sizes.all(|row| row["verdict"] == "cannot-decide"), "{CPU}: a size in tokens is decided");
        vec![
            "The full pipeline costs a fifth more tokens, which `differs` from 26 to 27 %".to_owned(),
            "lie above 8 to 9 %, `inconclusive` at both".to_owned(),
            self.smallest().0,
            "so are all sizes in tokens of the default profile".to_owned(),
        ]
    }
}
