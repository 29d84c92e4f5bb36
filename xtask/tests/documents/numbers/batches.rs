//! What the batch does to a cost.

use std::collections::BTreeMap;

use super::few_seeds::SEED;
use super::{DEPTH, DEPTH_110M, LADDER, LADDER_110M, Results, fixed, mean, span};

const QUARTER: &str = "2026-11-24-nvidia-h200-ladder-32m-batch-quarter-d751c78d";
const QUADRUPLE: &str = "2026-11-24-nvidia-h200-ladder-32m-batch-quadruple-d751c78d";
/// Six other seeds of the large batch.
pub(super) const MORE: &str = "2026-11-29-nvidia-h200-ladder-32m-batch-quadruple-depth-ad5b3084";
/// The same seeds with twice the learning rate.
const RATE: &str = "2026-11-27-nvidia-h200-ladder-32m-batch-quadruple-lr-double-2df66afc";
/// The large batch at 110M, where the budget ends before the paper's depth does.
const LARGER: &str = "2026-11-27-nvidia-h200-ladder-110m-batch-quadruple-depth-2df66afc";
/// The large batch at 110M with twice the learning rate, over 1.2 epochs.
const LARGER_RATE: &str = "2026-11-27-nvidia-h200-ladder-110m-batch-quadruple-lr-double-38e763dd";
/// The large batch at 110M and the ladder's learning rate, over 1.45 epochs, with other seeds.
const LARGER_LONG: &str = "2026-11-28-nvidia-h200-ladder-110m-batch-quadruple-long-75f82f17";
/// The paper's batch with twice the learning rate, over 1.2 epochs.
const PAPERS: &str = "2026-11-27-nvidia-h200-ladder-32m-batch-octuple-lr-double-38e763dd";
const CLAIMS: [(&str, &str); 3] = [("T1-FDW", "mxfp4-fdw"), ("T1-F", "mxfp4-f"), ("T1-H16", "mxfp4-fdw-h16")];

impl Results {
    /// Sentences that docs/results.md has to contain.
    pub(super) fn batches(&mut self) -> Vec<String> {
        let depth = [QUARTER, LADDER, QUADRUPLE, MORE].map(|directory| self.matched_in_millions(directory));
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
            self.at_twice_the_rate(),
            self.over_equal_slopes(),
            self.longer_at_110m(),
            self.stochastic_at_110m(),
            self.runs_at_110m(),
            self.at_twice_the_rate_at_110m(),
            self.with_the_papers_batch(),
        ]
    }

    fn at_twice_the_rate(&mut self) -> String {
        assert_eq!(["T1-FDW", "T1-H16"].map(|claim| self.verdict(RATE, claim)), ["inconclusive", "differs"]);
        let [full, before, rotated] = [(RATE, "mxfp4-fdw"), (MORE, "mxfp4-fdw"), (RATE, "mxfp4-fdw-h16")]
            .map(|(directory, arm)| self.cost(directory, arm, false).unwrap());
        assert!(before.high < full.low, "{before} and {full}");
        let off = self.direction_line(RATE, "T1-H16").unwrap().negated().in_words();
        let depth = self.matched_in_millions(RATE);
        let [full_to_target, rotated_to_target] = ["mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| self.target_cost(RATE, arm));
        format!(
            "costs {} in place of {}, which is `inconclusive`, and Hadamard 16 {}, which `differs`: it takes {off} off. FP8 comes to the paper's slope sooner, after {depth} million tokens. To a loss of 3.42 the full pipeline takes {full_to_target} % more, Hadamard 16 {rotated_to_target} %",
            full.in_words(),
            before.in_words(),
            rotated.in_words()
        )
    }

    fn longer_at_110m(&mut self) -> String {
        assert_eq!(CLAIMS.map(|(claim, _)| self.verdict(LARGER_LONG, claim)), ["reproduced", "cannot-decide", "cannot-decide"]);
        let arms = ["mxfp4-fdw", "mxfp4-fdw-h16"];
        let [full, plain, rotated] = CLAIMS.map(|(_, arm)| self.cost(LARGER_LONG, arm, false).unwrap());
        assert!(rotated.low > 0.11 && plain.low < 0.11 && plain.high > 0.11, "{rotated}, {plain}");
        let mut line = |claim: &str, column: &str| self.of_the_size(LARGER_LONG, claim, column);
        let [p, holm] = ["p_inside", "holm_inside"].map(|column| fixed(line("T1-FDW", column), 3));
        let [rotated_p, rotated_holm] = ["p_outside", "holm_outside"].map(|column| fixed(line("T1-H16", column), 3));
        let chances = CLAIMS.map(|(claim, _)| fixed(100.0 * line(claim, "chance_reproduced"), 0));
        let off = self.direction_line(LARGER_LONG, "T1-H16").unwrap().negated().in_words();
        let depth = self.matched_in_millions(LARGER_LONG);
        let flattest = self.slopes(LARGER, "mxfp4-fdw").last().unwrap().0;
        let [[own, other], [rotated_own, rotated_other]] =
            arms.map(|arm| [LARGER_LONG, LARGER].map(|directory| fixed(self.over_slopes(directory, arm, flattest), 1)));
        format!(
            "The full pipeline is `reproduced` at {} (p {p}, and {holm} after Holm's correction), over {depth} million tokens. Hadamard 16 costs {}, the whole interval above what the paper allows (p {rotated_p}, and {rotated_holm}), and Fprop {}, partly above. Both are `cannot-decide`: four seeds, of which one scatters by {} %, would find `reproduced` with a chance of {} and {} %, if the paper is right, and {} % for the full pipeline. Hadamard 16 takes {off} off the full pipeline. Over slopes of 0.40 to {} the full pipeline costs {own} % by these seeds and {other} % by the four before them, Hadamard 16 {rotated_own} and {rotated_other} %",
            full.in_words(),
            rotated.in_words(),
            plain.in_words(),
            fixed(100.0 * self.precision(LARGER_LONG)["sd"].as_f64().unwrap(), 1),
            chances[2],
            chances[1],
            chances[0],
            fixed(flattest, 2)
        )
    }

    /// Stochastic rounding in all three products, and random signs. Both do not converge in the paper.
    fn stochastic_at_110m(&mut self) -> String {
        let [rounded, signs] = ["T1-SR-FDW", "T1-RH-FDW"];
        assert_eq!([rounded, signs].map(|claim| self.verdict(LARGER_LONG, claim)), ["inconclusive", "differs"]);
        let claims = self.json(&format!("{LARGER_LONG}/verdicts.json"))["papers"][0]["claims"].clone();
        let claim = claims.as_array().unwrap().iter().find(|claim| claim["id"] == rounded).unwrap();
        assert!(claim["why"].as_str().unwrap().contains("still descending in 4 of 4 seeds"), "{claim:#}");
        let [at_depth, late] = [false, true].map(|late| self.cost(LARGER_LONG, "mxfp4-fdw-sr", late).unwrap().in_words());
        let more = self.direction_line(LARGER_LONG, rounded).unwrap().in_words();
        let of_signs = self.cost(LARGER_LONG, "mxfp4-fdw-rh16", false).unwrap().in_words();
        let off = self.direction_line(LARGER_LONG, signs).unwrap().negated().in_words();

        let all = [31, 32, 33, 34];
        let [baseline, own, with_signs] =
            ["fp8", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"].map(|arm| all.map(|seed| self.curve_of(LARGER_LONG, arm, seed)));
        let end = *self.matched(LARGER_LONG).end();
        let then: Vec<f64> = baseline.iter().map(|curve| curve.iter().find(|(tokens, _)| *tokens == end).unwrap().1).collect();
        let judged_at = mean(&then);
        let last = |curve: &Vec<(f64, f64)>| *curve.last().unwrap();
        assert!(own.iter().flatten().all(|(_, loss)| *loss > judged_at), "a seed of stochastic rounding is at {judged_at}");
        assert!(with_signs.iter().all(|curve| last(curve).1 < judged_at), "a seed of random signs is not at {judged_at}");
        let budget = last(&baseline[0]).0;

        let losses = |curves: &[Vec<(f64, f64)>]| span(&curves.iter().map(|curve| last(curve).1).collect::<Vec<_>>(), 3);
        let target = self.json(&format!("{LARGER_LONG}/verdicts.json"))["target_loss"].as_f64().unwrap();
        let tokens = self.tokens(LARGER_LONG, None);
        let to_target = |arm: &str| all.map(|seed| tokens[&(arm.to_owned(), seed)] / 1e6);
        let reached = to_target("fp8");
        format!(
            "It costs {at_depth} more tokens than FP8 at the paper's depth and {late} over the last quarter. At that depth it takes {more} more than the full pipeline with plain rounding. To the profile's target, a loss of {}, FP8 takes {} million tokens, and this arm {}. In the paper it does not converge. Here all four seeds train on to the end, at losses of {}, where FP8 ends at {}. The verdict is `inconclusive`: it is taken at FP8's loss at the end of the paper's depth, {}, which no seed reaches, and all still descend. The budget is {} times FP8's tokens to that loss; the {} times that its profile speaks of are to the target. Random signs cost {of_signs} at the paper's depth, {off} less than the full pipeline without them, and all four seeds reach that loss ({} at their end), so that the claim `differs`",
            fixed(target, 2),
            span(&reached, 0),
            span(&to_target("mxfp4-fdw-sr"), 0),
            losses(&own),
            losses(&baseline),
            fixed(judged_at, 3),
            fixed(budget / end, 2),
            fixed(budget / 1e6 / mean(&reached), 1),
            losses(&with_signs)
        )
    }

    /// The profile is done whole, in the table of campaigns.
    fn runs_at_110m(&self) -> String {
        let campaign = self.json(&format!("{LARGER_LONG}/campaign.json"));
        assert_eq!(campaign["partial"], false);
        format!("profile `ladder-110m-batch-quadruple-long`, {} runs", campaign["runs"].as_array().unwrap().len())
    }

    fn at_twice_the_rate_at_110m(&mut self) -> String {
        assert_eq!(["T1-FDW", "T1-H16"].map(|claim| self.verdict(LARGER_RATE, claim)), ["cannot-decide"; 2]);
        let [worse, better] = ["T1-FDW", "T1-H16"].map(|claim| self.direction_line(LARGER_RATE, claim).unwrap());
        assert!(worse.low > 0.0 && better.high < 0.0, "{worse}, {better}");
        let [full, rotated] = ["mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| self.cost(LARGER_RATE, arm, false).unwrap().in_words());
        format!(
            "The full pipeline costs {full} and Hadamard 16 {rotated}, both `cannot-decide`; it takes {} off, and both directions are reproduced. Over the last quarter one run scatters by {} %, where runs at the ladder's rate scatter by {} %",
            better.negated().in_words(),
            self.late_scatter(LARGER_RATE),
            self.late_scatter(LARGER)
        )
    }

    fn with_the_papers_batch(&mut self) -> String {
        assert_eq!(["T1-FDW", "T1-H16"].map(|claim| self.verdict(PAPERS, claim)), ["cannot-decide"; 2]);
        let mut slopes = self.csv(&format!("{PAPERS}/data/curves.csv")).iter().filter_map(|row| row["baseline_slope"].parse::<f64>().ok());
        let slope = fixed(slopes.next_back().unwrap(), 2);
        let mut losses = [21, 22, 23, 24].map(|seed| {
            let curve = self.curve_of(PAPERS, "fp8", seed);
            curve.iter().min_by(|one, other| (one.0 - 1e8).abs().total_cmp(&(other.0 - 1e8).abs())).unwrap().1
        });
        losses.sort_by(f64::total_cmp);
        let [first, _, third, last] = losses.map(|loss| fixed(loss, 2));
        format!(
            "at a slope of {slope} (`ladder-32m-batch-octuple-lr-double`, twice the rate, four seeds). There one of four runs of FP8 is at a loss of {last} after 100 million tokens, where the others are at {first} to {third}, and a run scatters by {} % over the last quarter. Both campaigns read a fifth of the text twice. Their warm-ups take as many tokens as the ladder's, and so 50 and 25 steps. That may be too few; but at 32M the same rate and 50 steps scatter by {} %",
            self.late_scatter(PAPERS),
            self.late_scatter(RATE)
        )
    }

    /// What one run scatters by over the last quarter, in %.
    fn late_scatter(&self, directory: &str) -> String {
        fixed(100.0 * self.precision_over(directory, "last quarter")["sd"].as_f64().unwrap(), 1)
    }

    /// Costs over the slopes that the larger model gets to with the large batch: means over evaluations and seeds, so that budgets do not matter.
    fn over_equal_slopes(&mut self) -> String {
        assert_eq!(["T1-FDW", "T1-H16"].map(|claim| self.verdict(LARGER, claim)), ["cannot-decide"; 2]);
        let flattest = self.slopes(LARGER, "mxfp4-fdw").last().unwrap().0;
        let mut over = |arm: &str, campaigns: &[(&str, f64)]| {
            let (mut sum, mut seeds) = (0.0, 0.0);
            for (directory, of) in campaigns {
                sum += of * self.over_slopes(directory, arm, flattest);
                seeds += of;
            }
            fixed(sum / seeds, 1)
        };
        let [full, rotated] = ["mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| {
            [
                over(arm, &[(LADDER, 6.0), (DEPTH, 12.0)]),
                over(arm, &[(MORE, 6.0)]),
                over(arm, &[(LADDER_110M, 3.0), (DEPTH_110M, 5.0)]),
                over(arm, &[(LARGER, 4.0)]),
            ]
        });
        for arm in ["mxfp4-fdw", "mxfp4-fdw-h16"] {
            let [large, own] = [LARGER, LADDER_110M].map(|directory| self.cost(directory, arm, true).unwrap());
            assert!(large.high < own.low, "after the same tokens: {large} and {own}");
        }
        format!(
            "slopes of 0.40 to {}, which all campaigns here have, the full pipeline costs {} % with the ladder's batch and {} % with four times that at 32M, {} and {} % at 110M; Hadamard 16 {} and {} %, {} and {} %",
            fixed(flattest, 2),
            full[0],
            full[1],
            full[2],
            full[3],
            rotated[0],
            rotated[1],
            rotated[2],
            rotated[3]
        )
    }

    /// The mean cost over slopes of 0.40 to `flattest`, in %.
    fn over_slopes(&mut self, directory: &str, arm: &str, flattest: f64) -> f64 {
        let costs: Vec<f64> = self.slopes(directory, arm).iter().filter(|(slope, _)| *slope >= flattest).map(|(_, cost)| *cost).collect();
        100.0 * costs.iter().sum::<f64>() / costs.len() as f64
    }

    /// Slope of the baseline, after its steepest part and up to 0.40, and cost at each evaluation, in order.
    fn slopes(&mut self, directory: &str, arm: &str) -> Vec<(f64, f64)> {
        let rows = self.csv(&format!("{directory}/data/curves.csv")).iter().filter(|row| row["arm"] == arm && row["baseline"] == "fp8");
        let number = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<f64>().ok();
        let all: Vec<(f64, f64)> = rows.filter_map(|row| Some((number(row, "baseline_slope")?, number(row, "overhead")?))).collect();
        let steepest = (0..all.len()).max_by(|one, other| all[*one].0.total_cmp(&all[*other].0)).unwrap();
        all[steepest..].iter().copied().filter(|(slope, _)| *slope <= 0.40).collect()
    }

    /// Extra tokens to the profile's target, in %.
    fn target_cost(&mut self, directory: &str, arm: &str) -> String {
        let is_meant = |row: &&BTreeMap<String, String>| row["source"] == directory && row["arm"] == arm && row["depth"] == "own target";
        let row = self.csv("index.csv").iter().find(is_meant).unwrap();
        fixed(100.0 * row["number"].parse::<f64>().unwrap(), 1)
    }

    /// What the large batch and the ladder's own cost to the target loss, which is the same in both; and that after the same tokens the large one
    /// costs less.
    fn at_the_target(&mut self) -> String {
        let of = |results: &mut Self, arm: &str| [MORE, LADDER].map(|directory| results.target_cost(directory, arm));
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
        let [larger, larger_rotated] = ["mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| self.cost(LARGER_LONG, arm, false).unwrap().in_words());
        let under_even =
            ["mxfp4-fdw-even", "mxfp4-f-even", "mxfp4-fdw-even-h16"].map(|arm| self.cost(MORE, arm, false).unwrap().in_words());
        format!(
            "the full pipeline costs {full}, `reproduced` (p {} by Holm), Fprop {plain} and H16 {rotated}, `differs` (six seeds), at the paper's depth; under AMD's scale rule {}, {} and {}. After the same tokens all cost less. At 110M: {larger}, `reproduced` (p {}; four seeds), H16 {larger_rotated}, `cannot-decide`",
            fixed(holm, 2),
            under_even[0],
            under_even[1],
            under_even[2],
            fixed(self.of_the_size(LARGER_LONG, "T1-FDW", "holm_inside"), 3)
        )
    }
}
