//! Numbers of campaigns with few seeds.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::super::markdown::Column;
use super::{Cells, LADDER, Layout, Results, fixed, mean, span};

/// Of the arms that have been run with other seeds, too, this one is taken.
pub(super) const SEED: u64 = 11;
pub(super) const SEEDS: [u64; 3] = [11, 12, 13];
const DEFECTS: &str = "2026-11-27-nvidia-h200-dnc-32m-defects-52383dbb";
const DNC: &str = "2026-11-27-nvidia-h200-dnc-32m-52383dbb";
const SUMS: &str = "2026-11-26-nvidia-h200-dnc-32m-sums-ff887c63";
const EPSILON: &str = "2026-11-26-nvidia-h200-dnc-32m-epsilon-ff887c63";
const LR_HALF: &str = "2026-11-24-nvidia-h200-ladder-32m-lr-half-e6468e18";
const LR_DOUBLE: &str = "2026-11-24-nvidia-h200-ladder-32m-lr-double-e6468e18";
const DECAY: &str = "2026-11-24-nvidia-h200-ladder-32m-decay-e6468e18";
const BACKWARD_110M: &str = "2026-11-27-nvidia-h200-ladder-110m-dw-545853e8";
const BACKWARD: &str = "2026-11-26-nvidia-h200-ladder-32m-dw-54321766";

impl Results {
    /// Sentences that docs/results.md has to contain.
    pub(super) fn of_few_seeds(&mut self) -> Vec<String> {
        let mut all = self.scale_rule();
        all.extend(self.epsilon());
        all.extend(self.sums());
        all.extend(self.backward());
        all.extend(self.defects());
        all.extend(self.schedules());
        all.extend(self.batches());
        all
    }

    /// Losses of an arm's validations by tokens; the first seed.
    pub(super) fn curve(&mut self, directory: &str, arm: &str) -> Vec<(f64, f64)> {
        self.curve_of(directory, arm, SEED)
    }

    pub(super) fn curve_of(&mut self, directory: &str, arm: &str, seed: u64) -> Vec<(f64, f64)> {
        let rows =
            self.csv(&format!("{directory}/data/validation.csv")).iter().filter(|row| row["arm"] == arm && row["seed"] == seed.to_string());
        let number = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<f64>().unwrap();
        rows.map(|row| (number(row, "tokens"), number(row, "loss"))).collect()
    }

    /// Whether a campaign has a run of an arm, with whichever seed.
    pub(super) fn has(&mut self, directory: &str, arm: &str) -> bool {
        self.csv(&format!("{directory}/data/validation.csv")).iter().any(|row| row["arm"] == arm)
    }

    /// Mean losses of runs over a stretch of tokens. The mark keeps an arm apart from the same arm of another campaign.
    pub(super) fn levels(&mut self, directory: &str, arms: &[&str], seeds: &[u64], stretch: &RangeInclusive<f64>, mark: &str) -> Cells {
        let mut levels = Cells::new();
        for (arm, seed) in arms.iter().flat_map(|arm| seeds.iter().map(move |seed| (*arm, *seed))) {
            levels.insert((format!("{arm}{mark}"), seed), level(&self.curve_of(directory, arm, seed), stretch));
        }
        levels
    }

    /// Against FP8 of the same seed: extra tokens to a loss, or nats over the last quarter of the budget.
    pub(super) fn beside(&mut self, directory: &str, arm: &str, column: &Column) -> String {
        let seed = column.seed.unwrap_or(SEED);
        let own = self.curve_of(directory, arm, seed);
        if own.is_empty() {
            return "not run".into();
        }
        if column.loss.is_some() {
            let tokens = self.tokens(directory, column.loss);
            let [own, baseline] = [arm, "fp8"].map(|arm| tokens.get(&(arm.to_owned(), seed)).copied());
            let baseline = baseline.unwrap();
            return own.map_or("not reached".into(), |own| fixed(100.0 * (own / baseline - 1.0), 1));
        }
        let baseline = self.curve_of(directory, "fp8", seed);
        assert!(column.late);
        fixed(late_gap(&own, &baseline), 3)
    }

    /// What the section on convergence says in words.
    fn defects(&mut self) -> Vec<String> {
        let end = |curve: Vec<(f64, f64)>| curve.last().unwrap().1;
        // Each mistake of rotation that leaves no signal.
        for arm in ["signs-again", "left", "own-signs", "left-signs"] {
            for seed in SEEDS {
                let loss = end(self.curve_of(DEFECTS, &format!("mxfp4-fdw-rh16-{arm}"), seed));
                assert!(loss > 7.0, "{arm} of seed {seed} ends at {loss}");
            }
        }
        for (arm, seed) in ["fp8", "mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"].into_iter().flat_map(|arm| SEEDS.map(|seed| (arm, seed)))
        {
            let again = [DEFECTS, DNC].map(|directory| self.curve_of(directory, arm, seed));
            assert!(!again[0].is_empty() && again[0] == again[1], "{arm} of seed {seed} beside the mistakes is another run");
        }
        let mut all = vec![self.go_on()];
        let noise = SEEDS.map(|seed| {
            let curve = self.curve_of(DEFECTS, "mxfp4-fdw-sr-16-bits", seed);
            let (tokens, lowest) = *curve.iter().min_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
            [lowest, tokens / 1e6, end(curve)]
        });
        let [lowest, after, last] = [(0, 2), (1, 0), (2, 2)].map(|(index, decimals)| span(&noise.map(|of_seed| of_seed[index]), decimals));
        let (judged, loss, times) = self.not_converged(DNC);
        assert_eq!(judged, "`inconclusive` (not reached by 3 of 3)");
        all.push(format!("which is {times} times what FP8 needs to loss {loss}, the deepest that stands for the paper's target"));
        let loss: f64 = loss.parse().unwrap();
        let mut reaching =
            |directory: &str, arm: &str, loss: f64| SEEDS.map(|seed| self.curve_of(directory, arm, seed).iter().any(|(_, at)| *at <= loss));
        for (directory, arm) in [(DNC, "mxfp4-fdw-srx"), (DNC, "mxfp4-fdw-sr-constant"), (DEFECTS, "mxfp4-fdw-twice")] {
            assert_eq!((reaching(directory, arm, loss), reaching(directory, arm, 3.328)), ([true, true, false], [false; 3]), "{arm}");
        }
        for seed in [12, 13] {
            let late = ["mxfp4-fdw-rh16", "mxfp4-fdw-rh16-fixed"]
                .map(|arm| late_gap(&self.curve_of(DNC, arm, seed), &self.curve_of(DNC, "fp8", seed)));
            assert!((late[0] - late[1]).abs() < 0.003, "random signs that stay, seed {seed}: {late:?}");
        }
        all.push(format!(
            "it reaches a loss of {lowest} after {after} million tokens, rises from there and ends at {last}, in all three seeds"
        ));
        // Logarithms of one run's tokens; two runs differ by more.
        let of_two = |deviation: f64| (2.0_f64.sqrt() * deviation).exp_m1();
        let (in_rows, rows) = self.scatter_at_target(DNC);
        let (in_defects, defects) = self.scatter_at_target(DEFECTS);
        assert_eq!((rows, defects), (9, 7), "arms that get to 3.42 with every seed of FP8");
        all.push(format!(
            "differ in tokens at 3.42 nat by {} % in `dnc-32m`, by nine arms, and by {} % in `dnc-32m-defects`, by FP8, three rows of the paper and the three mistakes that get there",
            fixed(100.0 * of_two(in_rows), 1),
            fixed(100.0 * of_two(in_defects), 1)
        ));
        all
    }

    /// How far runs scatter in tokens at the profile's target, arm and seed accounted for, and by how many arms with every seed of FP8.
    pub(super) fn scatter_at_target(&mut self, directory: &str) -> (f64, usize) {
        let tokens = self.tokens(directory, None);
        let seeds: Vec<u64> = tokens.keys().filter(|(arm, _)| arm == "fp8").map(|(_, seed)| *seed).collect();
        let counts =
            |(arm, seed): &(String, u64)| seeds.contains(seed) && seeds.iter().all(|seed| tokens.contains_key(&(arm.clone(), *seed)));
        let cells: Cells = tokens.iter().filter(|(run, _)| counts(run)).map(|(run, tokens)| (run.clone(), tokens.ln())).collect();
        (Layout::of(&cells).deviation(), cells.len() / seeds.len())
    }

    /// What is said of the mistakes with which training goes on, by seed.
    fn go_on(&mut self) -> String {
        let extra = ["rh16-late", "sr-pairs", "twice"].map(|arm| {
            SEEDS.map(|seed| {
                let arm = format!("mxfp4-fdw-{arm}");
                let curve = self.curve_of(DEFECTS, &arm, seed);
                assert!(curve[curve.len() * 3 / 4].1 > curve.last().unwrap().1, "{arm} of seed {seed} no longer descends");
                assert!(curve.iter().all(|(_, loss)| *loss > 3.328), "{arm} of seed {seed} reaches 3.328");
                let column = Column { loss: Some(3.42), seed: Some(seed), ..Column::default() };
                self.beside(DEFECTS, &arm, &column)
            })
        });
        let [late, others @ ..] = extra;
        for arm in others {
            let [first, second, third] = arm.map(|text| text.parse::<f64>().unwrap());
            assert!((third - first).abs() < 5.0 && (third - second).abs() < 5.0, "{first}, {second} and {third} % more tokens");
        }
        format!("{} % more tokens than FP8 where the other two seeds have {} and {} %", late[2], late[0], late[1])
    }

    /// What the section on convergence says of gradients that are summed in BF16.
    fn sums(&mut self) -> Vec<String> {
        const ARMS: [&str; 3] = ["fp8", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"];
        let late = late_quarter(&self.curve(SUMS, "fp8"));
        let mut cells = Cells::new();
        for arm in ARMS.map(|arm| [arm.to_owned(), with_sums(arm)]).iter().flatten() {
            self.assert_end(SUMS, arm, &SEEDS, if arm.contains("-sr") { &[] } else { &SEEDS });
            cells.extend(self.levels(SUMS, &[arm], &SEEDS, &late, ""));
        }
        let layout = Layout::of(&cells);
        let moved = ARMS.map(|arm| layout.difference(&with_sums(arm), arm));
        let most = moved.iter().flat_map(|change| [change.low.abs(), change.high.abs()]).fold(0.0, f64::max);
        let [fp8, stochastic, rotated] = moved.map(|change| change.text(3));
        let gap = self.pooled_gap(SUMS, "mxfp4-fdw-sr").text(3);
        let (judged, loss, _) = self.not_converged(SUMS);
        let lowest = |curve: Vec<(f64, f64)>| curve.into_iter().map(|(_, loss)| loss).fold(f64::MAX, f64::min);
        let mistaken = SEEDS.map(|seed| lowest(self.curve_of(SUMS, &with_sums("mxfp4-fdw-sr"), seed)));
        let without = lowest(self.curve_of(SUMS, "mxfp4-fdw-sr", 12));
        let nearest = mistaken.into_iter().fold(f64::MAX, f64::min);
        assert!(nearest == mistaken[1] && nearest > loss.parse().unwrap(), "{mistaken:?} beside {loss}");
        vec![
            format!(
                "moves FP8 by {fp8} nat, stochastic rounding of all operands by {stochastic} and randomized Hadamard 16 by {rotated}, by the two-way layout of the six arms"
            ),
            format!("No interval reaches beyond {} nat, where stochastic rounding lies {gap} nat above FP8", fixed(most, 3)),
            format!("At loss {loss}, the deepest for these runs, the rules find stochastic rounding without the mistake {judged}"),
            format!("the lowest loss of seed 12 is {}, where it is {} without", fixed(nearest, 3), fixed(without, 3)),
        ]
    }

    /// Asserts that an arm still descends at the end, and which of its seeds reach loss 3.328.
    fn assert_end(&mut self, directory: &str, arm: &str, seeds: &[u64], reaching: &[u64]) {
        for seed in seeds {
            let curve = self.curve_of(directory, arm, *seed);
            assert!(curve[curve.len() * 3 / 4].1 > curve.last().unwrap().1, "{arm} of seed {seed} no longer descends");
            assert_eq!(curve.iter().any(|(_, loss)| *loss <= 3.328), reaching.contains(seed), "{arm} of seed {seed} at 3.328");
        }
    }

    /// What the rules say of stochastic rounding of all operands, the loss at which they say it, and how many times FP8's tokens to that loss the
    /// budget has; randomized Hadamard 16 differs.
    fn not_converged(&self, directory: &str) -> (String, String, String) {
        let verdicts = self.json(&format!("{directory}/verdicts.json"));
        let claims = verdicts["papers"][0]["claims"].as_array().unwrap();
        let claim = |id: &str| claims.iter().find(|claim| claim["id"] == id).unwrap();
        let text = |id: &str, key: &str| claim(id)[key].as_str().unwrap().to_owned();
        assert_eq!(
            (text("T1-RH-FDW", "verdict"), text("T1-RH-FDW", "ours")),
            ("differs".into(), "not reached by 0 of 3".into()),
            "{directory}"
        );
        let why = text("T1-SR-FDW", "why");
        let loss = why.split("judged at loss ").nth(1).unwrap().split(',').next().unwrap();
        let times = why.split("where the budget is ").nth(1).unwrap().split(' ').next().unwrap();
        (format!("`{}` ({})", text("T1-SR-FDW", "verdict"), text("T1-SR-FDW", "ours")), loss.to_owned(), times.to_owned())
    }

    /// What the section on schedules says in words.
    fn schedules(&mut self) -> Vec<String> {
        let [half, own, double, decayed] = [LR_HALF, LADDER, LR_DOUBLE, DECAY]
            .map(|directory| ["fp8", "mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| self.curve(directory, arm).last().unwrap().1));
        assert!(own[0] < half[0] && half[0] < double[0], "FP8 ends at {}, {} and {}", half[0], own[0], double[0]);
        assert!((1..3).all(|arm| (half[arm] - own[arm]).abs() < 0.002), "{half:?} and {own:?}");
        let [flat, falling] = [LADDER, DECAY].map(|directory| 100.0 * self.cost(directory, "mxfp4-fdw", true).unwrap().mean);
        let [single, twice] = [LADDER, LR_DOUBLE].map(|directory| self.cost(directory, "mxfp4-fdw", true).unwrap().in_words());
        vec![
            format!("the full pipeline costs {twice} where the ladder's own has {single}"),
            format!("takes FP8 of seed {SEED} from loss {} to {}", fixed(own[0], 3), fixed(decayed[0], 3)),
            format!("{} % more than FP8's where a flat rate has {} %", fixed(falling, 1), fixed(flat, 1)),
        ]
    }

    /// What the section on convergence says of Adam's epsilon.
    fn epsilon(&mut self) -> Vec<String> {
        const ARMS: [&str; 4] = ["fp8", "mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"];
        const SMALL: &str = " with 1e-8";
        for (arm, reaching) in ARMS.into_iter().zip([&SEEDS as &[u64], &[12], &[], &SEEDS]) {
            self.assert_end(EPSILON, arm, &SEEDS, reaching);
            self.assert_end(DNC, arm, &SEEDS, if arm == "mxfp4-fdw-sr" { &[] } else { &SEEDS });
            self.assert_same_start(arm);
        }
        let end = self.curve(EPSILON, "fp8").last().unwrap().0;
        // The ladder has no evaluation at the very end of the shorter budget.
        let late = 0.75 * end..=end - 1.0;
        let mut cells = self.levels(EPSILON, &ARMS, &SEEDS, &late, SMALL);
        cells.extend(self.levels(LADDER, &ARMS, &SEEDS, &late, ""));
        let layout = Layout::of(&cells);
        let small = |arm: &str| format!("{arm}{SMALL}");
        let baseline = layout.difference(&small("fp8"), "fp8").text(3);
        let [full, stochastic, rotated] = ["mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"]
            .map(|arm| layout.sum(&[(&small(arm), 1.0), (&small("fp8"), -1.0), (arm, -1.0), ("fp8", 1.0)]).text(3));
        let (judged, loss, _) = self.not_converged(EPSILON);
        vec![
            format!("Over the last quarter FP8 itself lies {baseline} nat higher"),
            format!(
                "the gap above it changes by {full} nat for the full pipeline, {stochastic} with stochastic rounding and {rotated} with"
            ),
            format!("At loss {loss}, the deepest for these runs, the rules find stochastic rounding {judged}"),
        ]
    }

    /// Asserts that the runs of dnc-32m are the beginnings of the ladder's, but for their last evaluation.
    fn assert_same_start(&mut self, arm: &str) {
        for seed in SEEDS {
            let [short, long] = [DNC, LADDER].map(|directory| self.curve_of(directory, arm, seed));
            let both = short.len() - 1;
            assert!(both > 0 && short[..both] == long[..both], "{arm} of seed {seed} is another run in the ladder");
        }
    }

    /// What the section on the second paper says in words.
    fn backward(&mut self) -> Vec<String> {
        const ARMS: [&str; 4] = ["bf16", "bf16-mxfp4-dw", "bf16-mxfp4-dw-rh64", "bf16-mxfp4-dw-rh64-sr"];
        let [plain, full] =
            [(BACKWARD, "bf16-mxfp4-dw"), (LADDER, "mxfp4-fdw")].map(|(directory, arm)| self.pooled_gap(directory, arm).mean);
        assert!(plain < 0.5 * full && plain < 0.5 * 0.11, "{plain} and {full}, and the pages say less than half of it and of the paper's");
        let [rotated, stochastic] = ["MX-RHT", "MX-RHT-SR"].map(|claim| self.direction_line(BACKWARD, claim).unwrap().negated().text(3));
        let rows = self.csv(&format!("{BACKWARD}/data/claims.csv")).clone();
        let verdict = |claim: &str| rows.iter().find(|row| row["claim"] == claim).unwrap()["verdict"].as_str();
        let verdicts = ["MX-BARE", "MX-RHT", "MX-RHT-SR", "MX-RHT-HELPS"].map(verdict);
        assert_eq!(verdicts, ["differs", "inconclusive", "inconclusive", "inconclusive"]);
        let helps = rows.iter().find(|row| row["claim"] == "MX-RHT-HELPS").unwrap();
        let [closed, low, high] = ["number", "low", "high"].map(|name| helps[name].parse::<f64>().unwrap());
        let [closed, low, high] = [closed, low, high].map(|share| fixed(100.0 * share, 0));
        let [freedom, freedom_110m] =
            [BACKWARD, BACKWARD_110M].map(|directory| self.precision_over(directory, "last quarter")["freedom"].as_u64().unwrap());
        let late = late_quarter(&self.curve(BACKWARD, "bf16"));
        let layout = Layout::of(&self.levels(BACKWARD, &ARMS, &SEEDS, &late, ""));
        let added = layout.difference("bf16-mxfp4-dw-rh64-sr", "bf16-mxfp4-dw-rh64").text(3);
        let lines = self.csv(&format!("{BACKWARD_110M}/data/claim_lines.csv")).clone();
        let at_110m =
            |claim: &str, line: &str| lines.iter().find(|row| row["claim"] == claim && row["line"] == line).unwrap()["verdict"].as_str();
        let verdicts = [("MX-BARE", "size"), ("MX-RHT", "direction"), ("MX-RHT-SR", "direction")].map(|(claim, line)| at_110m(claim, line));
        assert_eq!(verdicts, ["differs", "reproduced", "inconclusive"], "{BACKWARD_110M}");
        let [large, noisy] = ["MX-RHT", "MX-RHT-SR"].map(|claim| self.direction_line(BACKWARD_110M, claim).unwrap().negated().text(3));
        vec![
            format!(
                "the transform takes {large} nat off, which is the paper's direction, and with stochastic rounding {noisy}, which may be nothing"
            ),
            format!("The transform takes {rotated} nat off, and with stochastic rounding {stochastic}"),
            format!("closes {closed} % [{low}, {high}] of the gap"),
            format!("says that stochastic rounding adds {added} nat"),
            format!(
                "Backward passes alone lie {} nat above BF16. The full pipeline lies {} nat above FP8",
                fixed(plain, 3),
                fixed(full, 3)
            ),
            format!("that of all four arms: {freedom} degrees of freedom at 32M, {freedom_110m} at 110M"),
        ]
    }
}

/// Name of an arm whose sums of gradients are BF16.
fn with_sums(arm: &str) -> String {
    format!("{arm}-bf16-sums")
}

/// The last quarter of a curve's tokens.
pub(super) fn late_quarter(curve: &[(f64, f64)]) -> RangeInclusive<f64> {
    let last = curve.last().unwrap().0;
    0.75 * last..=last
}

/// Mean loss of a curve over a stretch of tokens.
fn level(curve: &[(f64, f64)], stretch: &RangeInclusive<f64>) -> f64 {
    mean(&curve.iter().filter(|(tokens, _)| stretch.contains(tokens)).map(|(_, loss)| *loss).collect::<Vec<_>>())
}

/// How far a curve lies above another over the last quarter of their tokens, nats.
fn late_gap(above: &[(f64, f64)], below: &[(f64, f64)]) -> f64 {
    assert_eq!(above.len(), below.len());
    let late = late_quarter(below);
    level(above, &late) - level(below, &late)
}
