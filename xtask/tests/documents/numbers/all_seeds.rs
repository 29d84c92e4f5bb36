//! What more seeds of the ladder's models say, alone and together with the first ones.

use std::collections::BTreeMap;

use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor};

use super::{DEPTH_110M, Interval, LADDER, LADDER_110M, Results, fixed};

/// Rows that were run with other seeds, too.
const MORE: [&str; 4] = ["mxfp4-f", "mxfp4-fdw", "mxfp4-fdw-h32", "mxfp4-fdw-h16"];

impl Results {
    /// All seeds of a model at the paper's depth, from the page of all evidence; the ladder's own where no other campaign has the arm.
    pub(super) fn all_seeds(&mut self, size: &str, arm: &str) -> Result<String, String> {
        if let Some((interval, _)) = self.together(size, arm) {
            return Ok(interval.percent());
        }
        self.cost(ladder(size)?, arm, false).map(Interval::percent)
    }

    /// The number of the ladder's own batch, and where it lies beside what is accepted.
    fn together(&mut self, size: &str, arm: &str) -> Option<(Interval, String)> {
        let ladder = ladder(size).ok()?;
        let of = |row: &&BTreeMap<String, String>| {
            row["arm"] == arm && row["depth"] == "matched depth, all seeds" && row["source"].split(" and ").any(|source| source == ladder)
        };
        let row = self.csv("index.csv").iter().find(of)?;
        let [mean, low, high] = ["number", "low", "high"].map(|name| row[name].parse().unwrap());
        Some((Interval { mean, low, high }, row["reason"].clone()))
    }

    /// Five more seeds at 110M: sentences of docs/results.md.
    pub(super) fn depth_at_110m(&mut self) -> Vec<String> {
        let verdicts = ["T1-F", "T1-FDW", "T1-H32", "T1-H16"].map(|claim| self.verdict(DEPTH_110M, claim));
        assert_eq!(verdicts, ["cannot-decide", "cannot-decide", "cannot-decide", "reproduced"]);
        let [f, full, h32] = ["mxfp4-f", "mxfp4-fdw", "mxfp4-fdw-h32"].map(|arm| self.cost(DEPTH_110M, arm, false).unwrap());
        assert!(f.low < 0.08 && f.high > 0.09 && h32.low < 0.08 && h32.high > 0.09 && full.high < 0.24, "{f}, {h32} and {full}");
        let [now, before] = [DEPTH_110M, LADDER_110M].map(|directory| {
            let precision = self.precision(directory);
            (precision["sd"].as_f64().unwrap(), precision["freedom"].as_u64().unwrap() as f64)
        });
        let ratio = FisherSnedecor::new(now.1, before.1).unwrap();
        let p = 2.0 * ratio.sf((now.0 / before.0).powi(2));
        let own = self.precision(DEPTH_110M);
        let (own, pairs) = (own["own_sd"].as_f64().unwrap(), own["own_freedom"].as_u64().unwrap() as f64);
        let spread = ChiSquared::new(pairs).unwrap();
        let [own_low, own_high] = [0.975, 0.025].map(|share| own * (pairs / spread.inverse_cdf(share)).sqrt());
        let mut line = |claim: &str, column: &str| self.of_the_size(DEPTH_110M, claim, column);
        let chances = ["T1-FDW", "T1-H32", "T1-F", "T1-H16"].map(|claim| fixed(100.0 * line(claim, "chance_reproduced"), 0));
        assert!(chances[1] <= chances[2] && chances[2] <= chances[3], "{chances:?}");
        let [inside, holm] = ["p_inside", "holm_inside"].map(|column| line("T1-H16", column));
        let h16 = self.cost(DEPTH_110M, "mxfp4-fdw-h16", false).unwrap().in_words();
        let percent = |share: f64| fixed(100.0 * share, 1);
        vec![
            format!("one run scatters by {} % with these seeds, where the three had {} %", percent(now.0), percent(before.0)),
            format!("come out by chance with p {}", fixed(p, 3)),
            format!(
                "The same run scatters by {} % by itself, with {pairs} pairs for it: {} to {} %",
                percent(own),
                percent(own_low),
                percent(own_high)
            ),
            format!("of {} % for the full pipeline and {} to {} % for the others", chances[0], chances[1], chances[3]),
            format!("`reproduced` at {h16} (p {}, and {} after Holm's correction", fixed(inside, 3), fixed(holm, 2)),
            format!("wholly below 26 to 27 % ({})", self.chances(DEPTH_110M, "T1-FDW")),
        ]
    }

    /// All seeds together: sentences of docs/results.md.
    pub(super) fn of_all_seeds(&mut self) -> Vec<String> {
        let [middle, large] = ["32M", "110M"].map(|size| MORE.map(|arm| self.together(size, arm).unwrap()));
        let places =
            |all: &[(Interval, String)]| all.iter().map(|(_, place)| place.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(places(&middle), ["outside", "outside", "outside", "on"]);
        assert_eq!(places(&large), ["on", "outside", "on", "on"]);
        let words = |number: &(Interval, String)| number.0.in_words();
        vec![
            format!("The full pipeline lies outside what is accepted at both sizes: {} and {}", words(&middle[1]), words(&large[1])),
            format!(
                "ten times the parameters change what it costs by {}, what Fprop and Dgrad cost by {}. Of Fprop alone and of random signs the interval holds none: {} and {}",
                self.tenfold_of("T1-H16"),
                self.tenfold_of("T1-FD"),
                self.tenfold_of("T1-F"),
                self.tenfold_of("T1-RH-FDW")
            ),
        ]
    }

    /// What ten times the parameters do to a claim's cost at the paper's depth, from the page's table.
    fn tenfold_of(&self, claim: &str) -> String {
        let page = self.page_from("id=\"size\"");
        let from = page.find(&format!(">{claim}<")).unwrap_or_else(|| panic!("no trend of {claim}"));
        let row = page[from..].split("</tr>").next().unwrap();
        assert!(row.contains("matched depth"), "{row}");
        let text: String = row.split('<').map(|part| part.split_once('>').map_or("", |(_, text)| text)).collect::<Vec<_>>().join("\n");
        text.lines().rev().find(|line| line.contains('[')).unwrap().trim().to_owned()
    }
}

/// The campaign whose other seeds are meant.
fn ladder(size: &str) -> Result<&'static str, String> {
    match size {
        "32M" => Ok(LADDER),
        "110M" => Ok(LADDER_110M),
        other => Err(format!("no model of {other} has several campaigns")),
    }
}
