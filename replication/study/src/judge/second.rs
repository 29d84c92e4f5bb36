//! The second version of the rules: a claim's direction and its size are judged apart, at a matched depth of training, from the two-way
//! layout of all arms and seeds, by two one-sided tests; and a campaign that could not have settled a claim says so. docs/verdicts.md has
//! them in words.

mod asked;
mod lines;
pub(super) mod outlook;
mod power;
mod question;
mod sheets;

use std::collections::BTreeMap;

use super::metrics::{Judge, reported};
use super::rules::{self, Estimate, Finding};
use super::verdict::{Beside, Chances, Line, Precision, Verdict};
use crate::manifest::{Claim, Metric, Paper};
use crate::measure::curves::Stretch;
use crate::measure::{Measurements, quantisation, target, times};
use crate::number::{Unit, fixed};
use crate::statistics::{MedianRatio, summarise};

use lines::Judged;
pub(crate) use lines::{Crossed, capital, crossed, with_interval};
pub(crate) use question::Scale;
use question::{Found, holm};
pub(crate) use sheets::{Sheet, Sheets};

/// The budget must be so many times the baseline's tokens to the deepest target before an arm that misses it counts as one that does not
/// converge.
pub(crate) const ROOM: f64 = 1.3;

/// What judging a paper by the second version needs.
pub(super) struct Second {
    /// By baseline.
    sheets: BTreeMap<String, Result<Sheets, String>>,
    /// Chances of verdicts if the paper is right, by claim and line.
    chances: BTreeMap<(String, &'static str), Chances>,
}

impl Second {
    pub(super) fn of(measurements: &Measurements, paper: &Paper) -> Self {
        let mut sheets = BTreeMap::new();
        let named = paper.claims.iter().filter_map(|claim| claim.metric.baseline()).chain([paper.baseline.as_str()]);
        for baseline in named {
            sheets.entry(baseline.to_owned()).or_insert_with(|| Sheets::of(measurements, baseline));
        }
        let mut second = Self { sheets, chances: BTreeMap::new() };
        let label = |arm: &str| measurements.study.label(arm).to_owned();
        let asked: Vec<_> = paper.claims.iter().flat_map(|claim| asked::questions(paper, claim, &label)).collect();
        for (baseline, sheets) in &second.sheets {
            let Ok(sheets) = sheets else { continue };
            for (scale, sheet) in [(Scale::Tokens, sheets.decisive()), (Scale::Nats, &sheets.late)] {
                let truth = asked::truth(paper, scale);
                let is_of =
                    |asked: &&asked::Asked| asked.baseline == *baseline && asked.question.scale == scale && asked.is_foretold(&truth);
                let of: Vec<_> = asked.iter().filter(is_of).collect();
                let Some(design) = sheet.design(scale).filter(|_| !of.is_empty()) else { continue };
                let questions: Vec<_> = of.iter().map(|asked| &asked.question).collect();
                let chances = design.chances(&questions, &truth, power::CAMPAIGNS);
                second.chances.extend(of.iter().map(|asked| (asked.claim.clone(), asked.question.what)).zip(chances));
            }
        }
        second
    }

    fn sheets(&self, paper: &Paper, metric: &Metric) -> Result<&Sheets, String> {
        let baseline = metric.baseline().unwrap_or(&paper.baseline);
        let found = self.sheets.get(baseline).map(|sheets| sheets.as_ref().map_err(String::clone));
        found.unwrap_or_else(|| Err(format!("{baseline} is no baseline of this paper")))
    }

    /// What its intervals rest on, and why where there are none.
    pub(super) fn precision(&self) -> (Vec<Precision>, Vec<String>) {
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for (baseline, sheets) in &self.sheets {
            match sheets {
                Err(why) => notes.push(format!("{baseline}: {why}.")),
                Ok(sheets) => {
                    rows.extend(sheets.matched.iter().chain([&sheets.late]).filter_map(|sheet| sheet.precision(baseline)));
                    notes.extend(sheets.too_short().map(|(_, depth)| format!("{baseline}: {depth}")));
                    notes.extend(sheets.late.without_intervals().map(|why| format!("{baseline}: {why}.")));
                }
            }
        }
        (rows, notes)
    }

    /// The finding of a claim, and its lines; none where the first version's rule holds on.
    pub(super) fn find(&self, judge: &Judge<'_>, claim: &Claim) -> Option<(Finding, Vec<Line>)> {
        let unit = claim.metric.unit();
        Some(match &claim.metric {
            Metric::SameAs { claims } => {
                let others = claims.join(", ");
                let why = format!("The paper says here what {others} says; that is judged, and counted, once.");
                (Finding::bare(Verdict::SameAs(others), unit, why), Vec::new())
            }
            Metric::StepTimeRatio { numerator, denominator } => {
                let times = &judge.measurements.step_times;
                self.timed(times::step_time_ratio(times, numerator, denominator).map(|ratio| Found::of_median(&ratio)), claim)
            }
            Metric::KernelThroughputRatio { numerator, denominator } => {
                let times = &judge.measurements.kernel_times;
                self.timed(times::kernel_throughput_ratio(times, numerator, denominator).map(|ratio| Found::of_median(&ratio)), claim)
            }
            Metric::OutlierReduction { arm } => outliers(judge.measurements, arm),
            Metric::TokenOverhead { .. }
            | Metric::TokenRatio { .. }
            | Metric::DoesNotConverge { .. }
            | Metric::PassDominates { .. }
            | Metric::LossGap { .. }
            | Metric::GapClosed { .. } => self.trained(judge, claim),
            // Times to a target need native units, which no campaign had; H4 and the rotations are no measure of tokens.
            Metric::TimeSaved { .. } | Metric::ThroughputBecomesGain { .. } | Metric::AllOf { .. } | Metric::RotationIdentity => {
                return None;
            }
        })
    }

    fn timed(&self, found: Option<Found>, claim: &Claim) -> (Finding, Vec<Line>) {
        let unit = claim.metric.unit();
        let Some(found) = found else {
            let why = "The times that this claim needs are not in the directory.";
            return (Finding::bare(Verdict::NotRun("no interleaved times were measured".into()), unit, why), Vec::new());
        };
        let line = Judged::plain("size", claim.statement.clone(), unit, reported(claim).accepted()).found(&found);
        lines::headline(vec![line], unit)
    }

    /// Claims about how arms train.
    fn trained(&self, judge: &Judge<'_>, claim: &Claim) -> (Finding, Vec<Line>) {
        let unit = claim.metric.unit();
        let sheets = match self.sheets(judge.paper, &claim.metric) {
            Ok(sheets) => sheets,
            Err(why) => return (Finding::bare(Verdict::Inconclusive, unit, format!("{}.", lines::capital(&why))), Vec::new()),
        };
        let label = |arm: &str| judge.measurements.study.label(arm).to_owned();
        let asked = asked::questions(judge.paper, claim, &label);
        let mut lines: Vec<Line> = asked
            .iter()
            .map(|asked| lines::trained(judge.measurements, sheets, asked, self.chances.get(&(claim.id.to_string(), asked.question.what))))
            .collect();
        if let Metric::DoesNotConverge { arm } = &claim.metric {
            lines.push(self.does_not_converge(judge, sheets, arm, &claim.statement));
        }
        lines::headline(lines, unit)
    }

    /// Judged at the deepest loss that stands for the paper's target, where the budget leaves room to be seen to fail.
    fn does_not_converge(&self, judge: &Judge<'_>, sheets: &Sheets, arm: &str, statement: &str) -> Line {
        let measurements = judge.measurements;
        let judged = Judged::plain("size", statement.to_owned(), Unit::Runs, rules::ANYTHING);
        let matched = sheets.matched.as_ref().map(|_| sheets.ruler.stretch(Stretch::Matched));
        let deepest = matched.and_then(|stretch| sheets.ruler.deepest(&stretch));
        let profile = &measurements.study.profile;
        let Some(target) = deepest.into_iter().chain(profile.target_loss).min_by(f64::total_cmp) else {
            return judged
                .verdict(Verdict::NotRun("the profile has no target loss".into()), "Convergence to a target is undefined without one.");
        };
        let room = sheets.ruler.room(target).unwrap_or(0.0);
        let asked = format!("at loss {}, where the budget is {} times the baseline's tokens", fixed(target, 3), fixed(room, 2));
        if let Some((short, depth)) = sheets.too_short() {
            return judged.verdict(Verdict::CannotDecide(short.to_owned()), &format!("{depth} So no target of that depth can be set."));
        }
        if room < ROOM {
            let reason =
                format!("the budget is {} times the baseline's tokens to the target, less than {}", fixed(room, 2), fixed(ROOM, 1));
            return judged.verdict(Verdict::CannotDecide(reason), "An arm that is only slow could not be told from one that fails.");
        }
        let outcomes = target::tokens_to_target(&measurements.runs, target, profile.budget.steps, measurements.study.estimator);
        let of = |wanted: &str| outcomes.iter().filter(|run| run.arm == wanted).collect::<Vec<_>>();
        let finding = rules::does_not_converge(&of(arm), &of(&sheets.baseline));
        Line { number: finding.number, n: finding.n, ..judged.verdict(finding.verdict, &format!("{} It was judged {asked}.", finding.why)) }
    }

    /// Numbers beside a claim: the other stretch, and the crossing of the profile's target; none where the first version's stand.
    pub(super) fn beside(&self, judge: &Judge<'_>, claim: &Claim) -> Option<Vec<Beside>> {
        let (arm, baseline) = match &claim.metric {
            Metric::TokenOverhead { arm, baseline } | Metric::TokenRatio { arm, baseline } => (arm, baseline.as_str()),
            Metric::DoesNotConverge { arm } => (arm, judge.paper.baseline.as_str()),
            Metric::KernelThroughputRatio { numerator, denominator } => return Some(kernels(judge, claim, numerator, denominator)),
            _ => return None,
        };
        let mut items = Vec::new();
        if let Ok(sheets) = self.sheets(judge.paper, &claim.metric)
            && sheets.late.lost(judge.measurements, arm).1 == 0
        {
            let text = lines::share_and_gap(&sheets.late, arm, baseline).filter(|_| sheets.matched.is_some() || claim.reported.is_none());
            items.extend(text.map(|text| judge.item("extra tokens over the last quarter", text, &[arm, baseline])));
        }
        items.extend(lines::crossing(judge.measurements, arm, baseline).map(|text| {
            let target = judge.measurements.study.profile.target_loss.map(|target| fixed(target, 2)).unwrap_or_default();
            judge.item(&format!("at the profile's target, {target}"), text, &[arm, baseline])
        }));
        Some(items)
    }
}

/// Throughput of the kernels that are here, native or not.
fn kernels(judge: &Judge<'_>, claim: &Claim, numerator: &str, denominator: &str) -> Vec<Beside> {
    let ratio = times::kernel_throughput_ratio(&judge.measurements.kernel_times, numerator, denominator);
    let item = |ratio: MedianRatio| Beside {
        label: format!("throughput of {numerator} over {denominator} here"),
        text: format!("{} {}", Unit::Factor.number(ratio.ratio), ratio.interval.map(|i| Unit::Factor.interval(&i)).unwrap_or_default()),
        evidence: judge.evidence(&claim.metric, &[]),
    };
    ratio.map(item).into_iter().collect()
}

/// Outlier blocks after rotation over before, for each operand and pass: all must fall.
fn outliers(measurements: &Measurements, arm: &str) -> (Finding, Vec<Line>) {
    let mut lines = Vec::new();
    for (pass, operand) in quantisation::outlier_operands(&measurements.runs, arm) {
        let ratios = quantisation::outlier_ratios(&measurements.runs, arm, Some((&pass, &operand)));
        let Some(summary) = summarise(&ratios) else { continue };
        let estimate = Estimate::from(summary);
        let judged = Judged::plain(
            &format!("{pass} {}", operand.replace('_', " ")),
            "amax over rms of outlier blocks falls".to_owned(),
            Unit::Ratio,
            rules::BELOW_ONE,
        );
        lines.push(judged.sample(&ratios, estimate));
    }
    if lines.is_empty() {
        let none = Verdict::NotRun("the runs logged no quantisation records".into());
        return (Finding::bare(none, Unit::Ratio, "There is nothing to compare."), lines);
    }
    lines::all(lines, Unit::Ratio)
}

/// Fills in how Holm counts the p-values of all lines of a paper.
pub(super) fn correct(claims: &mut [super::verdict::ClaimVerdict]) {
    let mut lines: Vec<&mut Line> = claims.iter_mut().flat_map(|claim| &mut claim.lines).filter(|line| line.p.is_some()).collect();
    let column = |lines: &[&mut Line], at: usize| lines.iter().filter_map(|line| Some(line.p?[at])).collect::<Vec<f64>>();
    let (inside, outside) = (holm(&column(&lines, 0)), holm(&column(&lines, 1)));
    for (line, corrected) in lines.iter_mut().zip(inside.into_iter().zip(outside)) {
        line.holm = Some(corrected.into());
    }
}
