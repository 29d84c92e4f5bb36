//! What the scale rule of AMD's public kernels (`even`) changes beside ours (`floor`).

use std::ops::RangeInclusive;

use super::batches::MORE;
use super::few_seeds::{SEEDS, late_quarter};
use super::{LADDER, Layout, Results, fixed, span};

/// The ladder's batch.
const EVEN: &str = "2026-11-26-nvidia-h200-ladder-32m-even-e40b2e0d";
/// Arms under `even`, and the same under `floor`: all that the ladder has.
const RULES: [(&str, &str); 4] =
    [("mxfp4-f-even", "mxfp4-f"), ("mxfp4-fd-even", "mxfp4-fd"), ("mxfp4-fdw-even", "mxfp4-fdw"), ("mxfp4-fdw-even-h16", "mxfp4-fdw-h16")];
/// Those that ran with half the paper's batch.
const WITH_THE_LARGE_BATCH: [(&str, &str); 3] = [RULES[0], RULES[2], RULES[3]];
const SEEDS_OF_THE_LARGE_BATCH: [u64; 6] = [21, 22, 23, 24, 25, 26];

impl Results {
    /// Sentences that docs/results.md has to contain.
    pub(super) fn scale_rule(&mut self) -> Vec<String> {
        let mut all = self.with_the_ladders_batch();
        all.extend(self.with_half_the_papers_batch());
        all
    }

    fn with_the_ladders_batch(&mut self) -> Vec<String> {
        for seed in SEEDS {
            let [first, second] = [EVEN, LADDER].map(|directory| self.curve_of(directory, "fp8", seed));
            assert!(!first.is_empty() && first == second, "FP8 of seed {seed} under another profile is another run");
        }
        let [f, fdw, h16] = ["mxfp4-f-even", "mxfp4-fdw-even", "mxfp4-fdw-even-h16"].map(|arm| self.cost(EVEN, arm, false).unwrap());
        assert!(f.low < 0.09 && fdw.high < 0.26 && h16.low < 0.08, "beside the paper's numbers: {f}, {fdw} and {h16}");
        let at_depth = self.changes(&RULES, EVEN, LADDER, &SEEDS, &self.matched(EVEN), &[]).join(", ");
        let late = late_quarter(&self.curve(EVEN, "fp8"));
        let [f, fd, fdw, h16] = self.changes(&RULES, EVEN, LADDER, &SEEDS, &late, &["mxfp4-fdw-even"]);
        vec![
            format!("the four rows change by {at_depth} nat"),
            format!("the full pipeline changes by {fdw} nat, which stands after Bonferroni's correction for all eight"),
            format!("Hadamard 16 changes by {h16}, Fprop by {f} and Fprop with Dgrad by {fd}: these do not"),
        ]
    }

    fn with_half_the_papers_batch(&mut self) -> Vec<String> {
        let seeds = &SEEDS_OF_THE_LARGE_BATCH;
        let late = late_quarter(&self.curve_of(MORE, "fp8", seeds[0]));
        let stretches = [self.matched(MORE), late];
        let standing = ["mxfp4-fdw-even", "mxfp4-fdw-even-h16"];
        let changes = stretches.each_ref().map(|stretch| self.changes(&WITH_THE_LARGE_BATCH, MORE, MORE, seeds, stretch, &standing));
        let [[f, full, rotated], [late_f, late_full, late_rotated]] = changes;
        let [plain_cost, full_cost, rotated_cost] =
            WITH_THE_LARGE_BATCH.map(|(even, floor)| [even, floor].map(|arm| self.cost(MORE, arm, false).unwrap()));
        assert!(full_cost[0].high < 0.24 && plain_cost[0].low > 0.11 && rotated_cost[0].low > 0.11, "beside what the paper allows");
        let [plain_cost, full_cost, rotated_cost] = [plain_cost, full_cost, rotated_cost].map(|costs| costs.map(|cost| cost.in_words()));
        let layout = self.layout_of(&WITH_THE_LARGE_BATCH, MORE, MORE, seeds, &stretches[0]);
        let of_rotation = [("mxfp4-fdw-even-h16", "mxfp4-fdw-even"), ("mxfp4-fdw-h16", "mxfp4-fdw")]
            .map(|(rotated, bare)| layout.difference(rotated, bare).text(3));
        vec![
            format!(
                "the full pipeline costs {} where `floor` has {}, Hadamard 16 {} where it has {}, and Fprop {} and {}",
                full_cost[0], full_cost[1], rotated_cost[0], rotated_cost[1], plain_cost[0], plain_cost[1]
            ),
            format!(
                "the full pipeline changes by {full} nat there and by {late_full} over the last quarter, Hadamard 16 by {rotated} and {late_rotated}"
            ),
            format!("Fprop changes by {f} and {late_f}"),
            format!("The rotation changes the loss by {} nat under `even` and by {} under `floor`", of_rotation[0], of_rotation[1]),
            self.stochastic_with_the_large_batch(),
        ]
    }

    /// Stochastic rounding in all three products there; random signs have too few seeds for a sentence.
    fn stochastic_with_the_large_batch(&mut self) -> String {
        assert_eq!(["T1-SR-FDW", "T1-RH-FDW"].map(|claim| self.verdict(MORE, claim)), ["cannot-decide"; 2]);
        let [at_depth, late] = [false, true].map(|late| self.cost(MORE, "mxfp4-fdw-sr", late).unwrap().in_words());
        let more = self.direction_line(MORE, "T1-SR-FDW").unwrap().in_words();
        let tokens = self.tokens(MORE, None);
        let to_target = |arm: &str| span(&SEEDS_OF_THE_LARGE_BATCH.map(|seed| tokens[&(arm.to_owned(), seed)] / 1e6), 0);
        let judged_at = *self.matched(MORE).end();
        let budget = self.curve_of(MORE, "fp8", SEEDS_OF_THE_LARGE_BATCH[0]).last().unwrap().0;
        format!(
            "costs {at_depth} at the paper's depth, {more} more than the full pipeline with plain rounding, and {late} over the last quarter. To a loss of 3.42 it takes {} million tokens, and FP8 {}. Whether it converges is `cannot-decide`: the budget is {} times FP8's tokens to the end of the paper's depth, and 1.3 are asked",
            to_target("mxfp4-fdw-sr"),
            to_target("fp8"),
            fixed(budget / judged_at, 2)
        )
    }

    /// Losses over a stretch of tokens, of FP8 and of each row under both rules.
    fn layout_of(&mut self, rules: &[(&str, &str)], even: &str, floor: &str, seeds: &[u64], stretch: &RangeInclusive<f64>) -> Layout {
        let [of_even, of_floor]: [Vec<&str>; 2] = [rules.iter().map(|rule| rule.0).collect(), rules.iter().map(|rule| rule.1).collect()];
        let mut cells = self.levels(even, &of_even, seeds, stretch, "");
        cells.extend(self.levels(floor, &of_floor, seeds, stretch, ""));
        cells.extend(self.levels(floor, &["fp8"], seeds, stretch, ""));
        Layout::of(&cells)
    }

    /// What `even` changes over a stretch of tokens, by row; asserts which rows stand after the correction for all rows at two stretches.
    fn changes<const ROWS: usize>(
        &mut self,
        rules: &[(&str, &str); ROWS],
        even: &str,
        floor: &str,
        seeds: &[u64],
        stretch: &RangeInclusive<f64>,
        standing: &[&str],
    ) -> [String; ROWS] {
        let layout = self.layout_of(rules, even, floor, seeds, stretch);
        rules.map(|(even, floor)| {
            assert_eq!(layout.stands(even, floor, 2 * ROWS), standing.contains(&even), "{even}");
            layout.difference(even, floor).text(3)
        })
    }
}
