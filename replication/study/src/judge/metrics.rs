//! From a metric's name to its numbers: what is compared, with which evidence, and what stands beside it.

use contract::recipe::Format;

use super::rules::{self, Estimate, Finding, Reported};
use super::verdict::{Beside, Evidence, Verdict};
use crate::manifest::{Claim, Metric, Paper};
use crate::measure::load::RunStatus;
use crate::measure::target::{Estimator, PairedRatios, time_ratios, token_ratios};
use crate::measure::{Measurements, quantisation, times};
use crate::number::{self, Unit};
use crate::public_logs::Comparison;
use crate::statistics::{Interval, MedianRatio, summarise};

/// How far apart the modelled and the measured ratio of times to target may be and still be said to agree.
const AGREEMENT: f64 = 0.05;

/// The state that judging one claim needs.
pub(super) struct Judge<'a> {
    pub(super) measurements: &'a Measurements,
    pub(super) paper: &'a Paper,
    /// What public logs say, to stand beside.
    pub(super) public_logs: &'a [Comparison],
    /// Verdicts on the claims before this one.
    pub(super) earlier: &'a [(String, Verdict)],
}

/// The accepted range; a claim without one is never judged against it.
pub(super) fn reported(claim: &Claim) -> Reported {
    let [low, high] = claim.reported.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
    Reported { low, high, tolerance: claim.tolerance.unwrap_or(0.0) }
}

impl Judge<'_> {
    /// Every arm whose runs a metric compares.
    pub(super) fn arms<'m>(&'m self, metric: &'m Metric) -> Vec<&'m str> {
        match metric {
            Metric::DoesNotConverge { arm } => vec![arm, &self.paper.baseline],
            // Timed apart from the runs.
            Metric::StepTimeRatio { .. } | Metric::ThroughputBecomesGain { .. } => Vec::new(),
            _ => metric.arms(),
        }
    }

    pub(super) fn ratios(&self, arm: &str, baseline: &str) -> PairedRatios {
        token_ratios(&self.measurements.tokens, arm, baseline, self.measurements.study.estimator)
    }

    /// Judges a ratio of times, or says that none were measured.
    pub(super) fn timed(&self, ratio: Option<MedianRatio>, reported: &Reported, unit: Unit) -> Finding {
        match ratio {
            Some(ratio) => rules::against_range(ratio.into(), reported, unit),
            None => Finding::bare(
                Verdict::NotRun("no interleaved times were measured".into()),
                unit,
                "The times that this claim needs are not in the directory.",
            ),
        }
    }

    /// Time saved to the target, from the measured seconds of the runs themselves, paired by seed.
    pub(super) fn time_saved(&self, arm: &str, baseline: &str, reported: &Reported) -> Finding {
        let tokens = self.ratios(arm, baseline);
        if !tokens.baseline_missed.is_empty() || tokens.lower_bounds() > 0 {
            return Finding::bare(
                Verdict::Inconclusive,
                Unit::Percent,
                "Not every seed of both arms reached the target, so time to target is undefined.",
            );
        }
        let saved: Vec<f64> = time_ratios(&self.measurements.tokens, arm, baseline).iter().map(|ratio| 1.0 - ratio).collect();
        match summarise(&saved) {
            Some(summary) => rules::against_range(summary.into(), reported, Unit::Percent),
            None => Finding::bare(
                Verdict::NotRun("the runs have no step times that compare".into()),
                Unit::Percent,
                "Time to target needs the timing of every step, in sessions of equal processor, threads and instruction set.",
            ),
        }
    }

    pub(super) fn all_of(&self, claims: &[String]) -> Finding {
        let parts: Vec<(String, Verdict)> = claims
            .iter()
            .map(|id| {
                let found = self.earlier.iter().find(|(earlier, _)| earlier == id).map(|(_, verdict)| verdict.clone());
                (id.clone(), found.unwrap_or_else(|| Verdict::NotRun(format!("claim {id} is not judged before this one"))))
            })
            .collect();
        rules::all_of(&parts)
    }

    /// Whether outlier blocks are flatter after the rotation, seed by seed.
    pub(super) fn outliers(&self, arm: &str) -> Finding {
        let ratios = quantisation::outlier_ratios(&self.measurements.runs, arm, None);
        let Some(summary) = summarise(&ratios) else {
            return Finding::bare(
                Verdict::NotRun("the runs logged no quantisation records".into()),
                Unit::Ratio,
                "There is nothing to compare.",
            );
        };
        let below_one = Estimate {
            number: 1.0 - summary.mean,
            interval: summary.interval.map(|interval| Interval::new(1.0 - interval.high, 1.0 - interval.low)),
            n: summary.n,
        };
        let judged = rules::sign(below_one, Unit::Ratio, "amax over rms of outlier blocks falls");
        Finding { number: Some(summary.mean), interval: summary.interval, ..judged }
    }

    /// Step throughput rises from each arm to the next, and time is saved to the target.
    pub(super) fn throughput_becomes_gain(&self, arms: &[String], time_saved: &str) -> Finding {
        let unit = Unit::Factor;
        let mut smallest: Option<Estimate> = None;
        for pair in arms.windows(2) {
            let Some(ratio) = times::step_time_ratio(&self.measurements.step_times, &pair[0], &pair[1]) else {
                let why = format!("Step times of {} and {} were not both measured.", pair[0], pair[1]);
                return Finding::bare(Verdict::NotRun("no interleaved times were measured".into()), unit, why);
            };
            let estimate = Estimate::from(ratio);
            let low = |estimate: &Estimate| estimate.interval.map_or(f64::NEG_INFINITY, |interval| interval.low);
            if smallest.as_ref().is_none_or(|so_far| low(&estimate) < low(so_far)) {
                smallest = Some(estimate);
            }
        }
        let gain = self.saved_interval(time_saved);
        let Some(smallest) = smallest else {
            return Finding::bare(Verdict::NotRun("the claim names fewer than two arms".into()), unit, "There is nothing to compare.");
        };
        let above_one =
            Estimate { number: smallest.number - 1.0, interval: smallest.interval.map(|interval| interval.shifted(-1.0)), n: smallest.n };
        let mut finding = rules::sign(above_one, unit, "every further pass in MXFP4 makes the step faster");
        (finding.number, finding.interval) = (Some(smallest.number), smallest.interval);
        match gain {
            Some(interval) if interval.high < 0.0 => {
                (finding.verdict, finding.why) = (Verdict::Differs, "No time is saved to the target.".to_owned());
            }
            Some(interval) if interval.low > 0.0 => {}
            _ if finding.verdict == Verdict::Reproduced => {
                (finding.verdict, finding.why) =
                    (Verdict::Inconclusive, "Steps are faster, but the time saved to the target is not settled.".to_owned());
            }
            _ => {}
        }
        finding
    }

    /// Interval of the time saved that another claim is about.
    fn saved_interval(&self, claim: &str) -> Option<Interval> {
        let claim = self.paper.claims.iter().find(|candidate| candidate.id == claim)?;
        let Metric::TimeSaved { arm, baseline } = &claim.metric else { return None };
        self.time_saved(arm, baseline, &reported(claim)).interval
    }

    /// Every rotated product equals the plain one within its derived bound.
    pub(super) fn rotations(&self) -> Finding {
        let records = &self.measurements.rotations;
        let Some(worst) = records.iter().map(|record| record.max_relative_error).max_by(f64::total_cmp) else {
            return Finding::bare(
                Verdict::NotRun("no rotation identities were measured".into()),
                Unit::Error,
                "There is nothing to compare.",
            );
        };
        // An error that is not a number compares to nothing and counts as outside.
        let outside = records
            .iter()
            .filter(|record| record.max_relative_error.partial_cmp(&record.bound).is_none_or(std::cmp::Ordering::is_gt))
            .count();
        let (verdict, why) = if outside == 0 {
            (
                Verdict::Reproduced,
                format!("All {} products agree within their derived bounds; the number is the largest relative error.", records.len()),
            )
        } else {
            (Verdict::Differs, format!("{outside} of {} products lie outside their derived bounds.", records.len()))
        };
        Finding { verdict, number: Some(worst), lower_bound: false, interval: None, n: records.len(), unit: Unit::Error, why }
    }

    pub(super) fn loss_gap(&self, arm: &str, baseline: &str, reported: &Reported) -> Finding {
        match self.complete_gaps(arm, baseline) {
            Ok(gaps) => match summarise(&gaps) {
                Some(summary) => rules::against_range(summary.into(), reported, Unit::Nats),
                None => Finding::bare(
                    Verdict::NotRun("no seed has both the arm and its baseline".into()),
                    Unit::Nats,
                    "There is nothing to compare.",
                ),
            },
            Err(finding) => finding,
        }
    }

    pub(super) fn gap_closed(&self, arm: &str, without: &str, baseline: &str, reported: &Reported) -> Finding {
        let with_gaps = self.measurements.gaps(arm, baseline);
        let without_gaps = self.measurements.gaps(without, baseline);
        let paired: Option<Vec<(f64, f64)>> = with_gaps
            .iter()
            .filter_map(|gap| Some((gap, without_gaps.iter().find(|other| other.seed == gap.seed)?)))
            .map(|(with, without)| Some((with.last?, without.last?)))
            .collect();
        match paired {
            Some(pairs) => {
                let (with, without): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
                rules::gap_closed(&with, &without, reported)
            }
            None => Finding::bare(Verdict::Inconclusive, Unit::Percent, "A run diverged, so its gap is undefined."),
        }
    }

    /// Gaps at the last evaluation, or the finding when some run has none because it diverged.
    fn complete_gaps(&self, arm: &str, baseline: &str) -> Result<Vec<f64>, Finding> {
        let gaps = self.measurements.gaps(arm, baseline);
        let missing = gaps.iter().filter(|gap| gap.last.is_none()).count();
        let lost: Vec<String> = self
            .measurements
            .runs
            .iter()
            .filter(|run| run.arm == baseline && matches!(run.status, RunStatus::Diverged { .. }))
            .map(|run| run.seed.to_string())
            .collect();
        if !lost.is_empty() {
            let why = format!("The baseline diverged (seed {}), so there is nothing sound to compare with.", lost.join(", "));
            return Err(Finding::bare(Verdict::Inconclusive, Unit::Nats, why));
        }
        if missing == 0 {
            return Ok(gaps.iter().filter_map(|gap| gap.last).collect());
        }
        let all = missing == gaps.len() && missing > 1;
        let verdict = if all { Verdict::Differs } else { Verdict::Inconclusive };
        Err(Finding::bare(verdict, Unit::Nats, format!("{missing} of {} seeds diverged before the end of the budget.", gaps.len())))
    }

    /// `emulated` as soon as one format in the comparison has no unit here.
    pub(super) fn evidence(&self, metric: &Metric, arms: &[&str]) -> Evidence {
        let study = &self.measurements.study;
        if study.interpreted {
            return Evidence::Interpreted;
        }
        let emulated = match metric {
            // Computed in F64 throughout: no quantised format takes part.
            Metric::RotationIdentity => false,
            Metric::KernelThroughputRatio { .. } => !study.native(Format::E2m1),
            Metric::StepTimeRatio { numerator, denominator } => !study.emulated_formats(&[numerator, denominator]).is_empty(),
            Metric::ThroughputBecomesGain { arms, .. } => {
                let arms: Vec<&str> = arms.iter().map(String::as_str).collect();
                !study.emulated_formats(&arms).is_empty()
            }
            Metric::AllOf { claims } => {
                // A claim made of claims made of claims has no evidence of its own; this also ends a circle.
                let parts = self
                    .paper
                    .claims
                    .iter()
                    .filter(|claim| claims.iter().any(|id| *id == claim.id) && !matches!(claim.metric, Metric::AllOf { .. }));
                parts.into_iter().any(|claim| self.evidence(&claim.metric, &self.arms(&claim.metric)) == Evidence::Emulated)
            }
            _ => !study.emulated_formats(arms).is_empty(),
        };
        if emulated { Evidence::Emulated } else { Evidence::Native }
    }

    /// Numbers that belong beside a verdict without deciding it.
    pub(super) fn beside(&self, claim: &Claim) -> Vec<Beside> {
        match &claim.metric {
            Metric::TokenOverhead { arm, baseline } => self.token_beside(arm, baseline, 1.0, Unit::SignedPercent),
            Metric::TokenRatio { arm, baseline } => self.token_beside(arm, baseline, 0.0, Unit::Ratio),
            Metric::LossGap { arm, baseline } => self.late_gap(arm, baseline).into_iter().collect(),
            Metric::DoesNotConverge { arm } => self.gap_beside(arm, &self.paper.baseline).into_iter().collect(),
            Metric::StepTimeRatio { numerator, denominator } => self.step_beside(numerator, denominator),
            Metric::ThroughputBecomesGain { arms, .. } => self.arms_beside(arms),
            Metric::TimeSaved { arm, baseline } => self.decomposition(arm, baseline),
            _ => Vec::new(),
        }
    }

    /// The estimate that the verdict does not use, and the loss gap at equal tokens.
    fn token_beside(&self, arm: &str, baseline: &str, offset: f64, unit: Unit) -> Vec<Beside> {
        let other = match self.measurements.study.estimator {
            Estimator::Grid => Estimator::Interpolated,
            Estimator::Interpolated => Estimator::Grid,
        };
        let ratios = token_ratios(&self.measurements.tokens, arm, baseline, other);
        let values: Vec<f64> = ratios.values().iter().map(|ratio| ratio - offset).collect();
        let bound = if ratios.lower_bounds() > 0 { "≥ " } else { "" };
        let label = match other {
            Estimator::Grid => "counted on the evaluation grid",
            Estimator::Interpolated => "interpolated between evaluations",
        };
        let estimate = summarise(&values).filter(|_| ratios.baseline_missed.is_empty());
        let first = estimate.map(|summary| {
            let interval = summary.interval.filter(|_| ratios.uncensored());
            let text = with_interval(unit, Estimate { interval, ..summary.into() });
            self.item(label, format!("{bound}{text}"), &[arm, baseline])
        });
        first.into_iter().chain(self.gap_beside(arm, baseline)).collect()
    }

    fn gap_beside(&self, arm: &str, baseline: &str) -> Option<Beside> {
        let gaps = self.complete_gaps(arm, baseline).ok()?;
        let text = with_interval(Unit::Nats, summarise(&gaps)?.into());
        Some(self.item("loss gap at equal tokens", text, &[arm, baseline]))
    }

    fn late_gap(&self, arm: &str, baseline: &str) -> Option<Beside> {
        let gaps: Option<Vec<f64>> = self.measurements.gaps(arm, baseline).iter().map(|gap| gap.last_quarter).collect();
        let text = with_interval(Unit::Nats, summarise(&gaps?)?.into());
        Some(self.item("mean over the last quarter's evaluations", text, &[arm, baseline]))
    }

    fn step_beside(&self, numerator: &str, denominator: &str) -> Vec<Beside> {
        let Some(ratio) = times::step_time_ratio(&self.measurements.step_times, numerator, denominator) else { return Vec::new() };
        let label = format!("seconds of a step, {} over {}", self.label(numerator), self.label(denominator));
        let mut items = vec![self.item(&label, with_interval(Unit::Factor, ratio.into()), &[numerator, denominator])];
        items.extend(self.arms_beside(&[denominator.to_owned(), "bf16".to_owned(), numerator.to_owned()]));
        items
    }

    /// Median step times of some arms.
    fn arms_beside(&self, arms: &[String]) -> Vec<Beside> {
        let times = times::step_times(&self.measurements.step_times);
        let found = arms.iter().filter_map(|arm| times.iter().find(|time| time.arm == *arm));
        found.map(|time| self.item(&format!("step, {}", self.label(&time.arm)), number::seconds(time.seconds), &[&time.arm])).collect()
    }

    /// The model (step ratio over token ratio) beside the ratio of the times that the runs themselves took, and whether the two agree.
    fn decomposition(&self, arm: &str, baseline: &str) -> Vec<Beside> {
        let mut items = Vec::new();
        let mut model = None;
        let step = times::step_time_ratio(&self.measurements.step_times, baseline, arm);
        let tokens = self.ratios(arm, baseline);
        let complete = tokens.baseline_missed.is_empty() && tokens.lower_bounds() == 0;
        if let (Some(step), Some(tokens), true) = (step, summarise(&tokens.values()), complete) {
            let text = format!(
                "{} ÷ {} = {}",
                number::fixed(step.ratio, 3),
                number::fixed(tokens.mean, 3),
                Unit::Factor.number(step.ratio / tokens.mean)
            );
            model = Some(step.ratio / tokens.mean);
            let label = "interleaved step ratio ÷ token ratio".to_owned();
            items.push(Beside { label, text, evidence: Evidence::Modelled });
        }
        let inverse: Vec<f64> = time_ratios(&self.measurements.tokens, arm, baseline).iter().map(|ratio| 1.0 / ratio).collect();
        if let (Some(summary), true) = (summarise(&inverse), complete) {
            let label = "ratio of times to target, from runs, not interleaved";
            items.push(self.item(label, with_interval(Unit::Factor, summary.into()), &[arm, baseline]));
            if let Some(model) = model {
                let apart = (model / summary.mean - 1.0).abs();
                let word = if apart <= AGREEMENT { "agree within" } else { "do not agree within" };
                let text = format!("{word} {} ({} apart)", Unit::Percent.number(AGREEMENT), Unit::Percent.number(apart));
                items.push(self.item("the two", text, &[arm, baseline]));
            }
        }
        items
    }

    fn label(&self, arm: &str) -> String {
        self.measurements.study.label(arm).to_owned()
    }

    pub(super) fn item(&self, label: &str, text: String, arms: &[&str]) -> Beside {
        let study = &self.measurements.study;
        let evidence = match study.emulated_formats(arms).is_empty() {
            _ if study.interpreted => Evidence::Interpreted,
            true => Evidence::Native,
            false => Evidence::Emulated,
        };
        Beside { label: label.to_owned(), text, evidence }
    }
}

/// A number and, where there is one, its interval.
fn with_interval(unit: Unit, estimate: Estimate) -> String {
    match estimate.interval {
        Some(interval) => format!("{} {}", unit.number(estimate.number), unit.interval(&interval)),
        None => unit.number(estimate.number),
    }
}
