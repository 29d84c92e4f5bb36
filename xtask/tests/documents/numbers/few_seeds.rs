//! Numbers of campaigns with few seeds.

use std::collections::BTreeMap;

use super::super::markdown::Column;
use super::{Interval, LADDER, Results, fixed, mean, student};

/// Of the arms that have been run with other seeds, too, this one is taken.
const SEED: u64 = 11;
/// Of the mistakes.
const SEEDS: [u64; 3] = [11, 12, 13];
const DEFECTS: &str = "2026-11-26-nvidia-h200-dnc-32m-defects-7a3a2a16";
const DNC: &str = "2026-11-25-nvidia-h200-dnc-32m-f60d0696";
const SUMS: &str = "2026-11-26-nvidia-h200-dnc-32m-sums-7a3a2a16";
const EPSILON: &str = "2026-11-24-nvidia-h200-dnc-32m-epsilon-d751c78d";
const LR_HALF: &str = "2026-11-24-nvidia-h200-ladder-32m-lr-half-e6468e18";
const LR_DOUBLE: &str = "2026-11-24-nvidia-h200-ladder-32m-lr-double-e6468e18";
const DECAY: &str = "2026-11-24-nvidia-h200-ladder-32m-decay-e6468e18";
const QUARTER: &str = "2026-11-24-nvidia-h200-ladder-32m-batch-quarter-d751c78d";
const QUADRUPLE: &str = "2026-11-24-nvidia-h200-ladder-32m-batch-quadruple-d751c78d";
const EVEN: &str = "2026-11-24-nvidia-h200-ladder-32m-even-f15cbd14";
const BACKWARD: &str = "2026-11-24-nvidia-h200-ladder-32m-dw-f15cbd14";

impl Results {
    /// Sentences that docs/results.md has to contain.
    pub(super) fn of_few_seeds(&mut self) -> Vec<String> {
        let mut all = vec![self.even(), self.epsilon(), self.backward()];
        all.extend(self.sums());
        all.extend(self.defects());
        all.extend(self.schedules());
        all.extend(self.batches());
        all
    }

    /// Losses of an arm's validations by tokens; the first seed.
    fn curve(&mut self, directory: &str, arm: &str) -> Vec<(f64, f64)> {
        self.curve_of(directory, arm, SEED)
    }

    fn curve_of(&mut self, directory: &str, arm: &str, seed: u64) -> Vec<(f64, f64)> {
        let rows =
            self.csv(&format!("{directory}/data/validation.csv")).iter().filter(|row| row["arm"] == arm && row["seed"] == seed.to_string());
        let number = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<f64>().unwrap();
        rows.map(|row| (number(row, "tokens"), number(row, "loss"))).collect()
    }

    /// Whether a campaign has a run of an arm.
    pub(super) fn has(&mut self, directory: &str, arm: &str) -> bool {
        !self.curve(directory, arm).is_empty()
    }

    /// Against the baseline of the one seed: extra tokens to a loss, or nats over the last quarter of the budget.
    pub(super) fn beside(&mut self, baseline: &str, directory: &str, arm: &str, column: &Column) -> String {
        let seed = column.seed.unwrap_or(SEED);
        let own = self.curve_of(directory, arm, seed);
        if own.is_empty() {
            return "not run".into();
        }
        // The mistakes were made beside the same seeds of dnc-32m, whose budget, data and baseline are theirs.
        let with_baseline = if self.curve_of(directory, baseline, seed).is_empty() && directory == DEFECTS { DNC } else { directory };
        if column.loss.is_some() {
            let mut needed = |directory, arm: &str| self.tokens(directory, column.loss).get(&(arm.to_owned(), seed)).copied();
            let (own, baseline) = (needed(directory, arm), needed(with_baseline, baseline).unwrap());
            return own.map_or("not reached".into(), |own| fixed(100.0 * (own / baseline - 1.0), 1));
        }
        let baseline = self.curve_of(with_baseline, baseline, seed);
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
        let mut all = vec![self.go_on()];
        let again = [DEFECTS, DNC].map(|directory| self.curve(directory, "fp8"));
        assert!(again[0] == again[1], "FP8 beside the mistakes is another run");
        let mut noise = SEEDS.map(|seed| {
            let curve = self.curve_of(DEFECTS, "mxfp4-fdw-sr-16-bits", seed);
            assert!(curve[curve.len() * 3 / 4].1 < end(curve.clone()), "16 bits of noise still descend in seed {seed}");
            end(curve)
        });
        noise.sort_by(f64::total_cmp);
        let [least, _, most] = noise.map(|loss| fixed(loss, 1));
        all.push(format!(
            "stays at a loss of about {least} to {most}, and gets worse in the last quarter of the budget, in all three seeds"
        ));
        all
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
                self.beside("fp8", DEFECTS, &arm, &column)
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
        // Ends with the mistake and without, and how far the one lies above the other over the last quarter.
        let mut pair = |arm: &str, seed| {
            let [with, without] = [format!("{arm}-bf16-sums"), arm.to_owned()].map(|arm| self.curve_of(SUMS, &arm, seed));
            ([&with, &without].map(|curve| fixed(curve.last().unwrap().1, 3)), late_gap(&with, &without))
        };
        let [first, second] = [SEED, 12].map(|seed| pair("fp8", seed));
        let [stochastic, rotated] = ["mxfp4-fdw-sr", "mxfp4-fdw-rh16"].map(|arm| pair(arm, SEED));
        for (arm, reaches) in [("mxfp4-fdw-sr", false), ("mxfp4-fdw-rh16", true)] {
            for (arm, seeds) in [(arm.to_owned(), vec![SEED, 12]), (format!("{arm}-bf16-sums"), vec![SEED])] {
                for seed in SEEDS {
                    let curve = self.curve_of(SUMS, &arm, seed);
                    assert_eq!(!curve.is_empty(), seeds.contains(&seed), "{arm} of seed {seed}");
                    assert!(curve.is_empty() || reaches == curve.iter().any(|(_, loss)| *loss <= 3.328), "{arm} of seed {seed}");
                }
            }
        }
        // Of two means over two seeds each, with the scatter of all arms that have both.
        let late = &self.json(&format!("{SUMS}/verdicts.json"))["papers"][0]["precision"][1];
        assert_eq!((&late["stretch"], &late["arms"], &late["seeds"]), (&"last quarter".into(), &4.into(), &2.into()));
        let half = student(late["freedom"].as_u64().unwrap() as usize) * late["gap_sd"].as_f64().unwrap();
        let gap = mean(&[first.1, second.1]);
        let together = Interval { mean: gap, low: gap - half, high: gap + half }.text(3);
        vec![
            format!(
                "FP8 with the mistake ends at {} in seed 11 and at {} in seed 12, without it at {} and {}; over the last quarter it lies {} and {} nat above, on average {together} by the two-way layout",
                first.0[0],
                second.0[0],
                first.0[1],
                second.0[1],
                fixed(first.1, 3),
                fixed(second.1, 3)
            ),
            format!(
                "ends at {} with the mistake and at {} without, with randomized Hadamard 16 at {} and {}; over the last quarter it lies {} nat below the other and {}",
                stochastic.0[0],
                stochastic.0[1],
                rotated.0[0],
                rotated.0[1],
                fixed(-stochastic.1, 3),
                fixed(-rotated.1, 3)
            ),
        ]
    }

    /// What the section on schedules says in words.
    fn schedules(&mut self) -> Vec<String> {
        let [half, own, double, decayed] = [LR_HALF, LADDER, LR_DOUBLE, DECAY]
            .map(|directory| ["fp8", "mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| self.curve(directory, arm).last().unwrap().1));
        assert!(own[0] < half[0] && half[0] < double[0], "FP8 ends at {}, {} and {}", half[0], own[0], double[0]);
        assert!((1..3).all(|arm| (half[arm] - own[arm]).abs() < 0.002), "{half:?} and {own:?}");
        let [flat, falling] = [LADDER, DECAY].map(|directory| 100.0 * self.cost(directory, "mxfp4-fdw", true).unwrap().mean);
        vec![
            format!("from loss {} to {}", fixed(own[0], 3), fixed(decayed[0], 3)),
            format!("{} % more than FP8's where a flat rate has {} %", fixed(falling, 1), fixed(flat, 1)),
        ]
    }

    /// What the section on schedules says of the batch.
    fn batches(&mut self) -> Vec<String> {
        let all = [QUARTER, LADDER, QUADRUPLE];
        let depth = all.map(|directory| {
            let precision = self.precision(directory);
            [0, 1].map(|end| fixed(precision["tokens"][end].as_f64().unwrap() / 1e6, 0)).join(" to ")
        });
        let [small_end, own_end] = [QUARTER, LADDER].map(|directory| fixed(self.curve(directory, "fp8").last().unwrap().1, 3));
        let rotated = self.cost(QUADRUPLE, "mxfp4-fdw-h16", false).unwrap();
        vec![
            format!(
                "after {} million tokens with the small batch, {} with the ladder's, {} with the large one",
                depth[0], depth[1], depth[2]
            ),
            format!("FP8 ends at {small_end} instead of {own_end}"),
            format!("{} % where the paper has 8 to 9 %", fixed(100.0 * rotated.mean, 1)),
        ]
    }

    /// What the section on schedules says of the scale rule `even`.
    fn even(&mut self) -> String {
        let ends = [EVEN, LADDER].map(|directory| self.curve(directory, "fp8"));
        assert!(!ends[0].is_empty() && ends[0] == ends[1], "FP8 under another profile is another run");
        let mut cost = |directory: &str, arm: &str| fixed(100.0 * self.cost(directory, arm, false).unwrap().mean, 1);
        let [f, fd, fdw, h16] = ["mxfp4-f-even", "mxfp4-fd-even", "mxfp4-fdw-even", "mxfp4-fdw-even-h16"].map(|arm| cost(EVEN, arm));
        let [f_floor, fd_floor, fdw_floor, h16_floor] = ["mxfp4-f", "mxfp4-fd", "mxfp4-fdw", "mxfp4-fdw-h16"].map(|arm| cost(LADDER, arm));
        format!(
            "{f}, {fd}, {fdw} and {h16} % more tokens than FP8, where three seeds of `floor` take {f_floor}, {fd_floor}, {fdw_floor} and {h16_floor} %"
        )
    }

    /// What the section on convergence says of Adam's epsilon.
    fn epsilon(&mut self) -> String {
        for arm in ["mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"] {
            let curve = self.curve(EPSILON, arm);
            assert!(curve[curve.len() * 3 / 4].1 > curve.last().unwrap().1, "{arm} no longer descends");
        }
        let [small, own] = [EPSILON, DNC].map(|directory| self.curve(directory, "fp8").last().unwrap().1);
        format!("FP8 itself ends at {} instead of {}", fixed(small, 3), fixed(own, 3))
    }

    /// What the section on the second paper says in words.
    fn backward(&mut self) -> String {
        let rows = self.csv(&format!("{BACKWARD}/data/claims.csv"));
        let helps: f64 = rows.iter().find(|row| row["claim"] == "MX-RHT-HELPS").unwrap()["number"].parse().unwrap();
        format!("closes {} % of the gap", fixed(100.0 * helps, 0))
    }
}

/// How far a curve lies above another over the last quarter of their tokens, nats.
fn late_gap(above: &[(f64, f64)], below: &[(f64, f64)]) -> f64 {
    assert_eq!(above.len(), below.len());
    let last = above.last().unwrap().0;
    let late = above.iter().zip(below).filter(|((tokens, _), _)| *tokens >= 0.75 * last);
    mean(&late.map(|((_, above), (_, below))| above - below).collect::<Vec<f64>>())
}
