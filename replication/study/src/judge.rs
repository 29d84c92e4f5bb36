//! Claims and measurements in, verdicts out.
//!
//! `rules` holds the decision rules on bare numbers, `metrics` finds each metric's numbers; here a claim of a manifest is matched to its measurements, to the evidence
//! behind them, and to the reason when it cannot be judged. Nothing here formats a page or reads a raw file.

mod metrics;
pub(crate) mod rules;
mod second;
pub mod verdict;

use std::path::Path;

use contract::id::Id;
use contract::recipe::Format;

use crate::files;
use crate::manifest::checks::{rounds_to, value};
use crate::manifest::{self, Check, Claim, ManifestError, Metric, Paper};
use crate::measure::load::RunStatus;
use crate::measure::study::{PAPERS_AGAIN, Study};
use crate::measure::{MeasureError, Measurements, measure, times};
use crate::number::{self, Unit};
use crate::public_logs;
use crate::record::{self, Campaign, RecordError};

use metrics::{Judge, reported};
use rules::Finding;
use second::Second;
pub use second::outlook::{Expected, Outlook, outlook};
pub(crate) use second::{Crossed, Scale, Sheet, Sheets, capital, crossed, with_interval};
pub use verdict::{
    Beside, CheckVerdict, ClaimVerdict, Evidence, Line, PaperVerdicts, Precision, SCHEMA, VERDICTS_AGAIN, Verdict, Verdicts,
};

/// Why a demonstration decides nothing.
pub(crate) const DEMONSTRATION: &str = "the losses of this profile mean nothing";

/// How the reason of a verdict ends that lacks an arm which the campaign never had, or of which no run is finished yet.
pub(crate) const NO_RUN: &str = "has no run in this campaign";

/// The verdict on what needs such an arm.
pub(crate) fn no_run(arm: &str) -> Verdict {
    Verdict::NotRun(format!("arm {arm} {NO_RUN}"))
}

/// Measures `directory` again and judges; for `verify`, which compares the result with `verdicts.json`.
pub fn recompute(directory: &Path) -> Result<Verdicts, MeasureError> {
    Ok(judge(&measure(directory)?))
}

/// Judges every claim and check of every paper of the campaign.
pub fn judge(measurements: &Measurements) -> Verdicts {
    verdicts(measurements, &measurements.study.papers)
}

/// The same by the second version of the rules, beside the first; none in a directory that was not asked for it, or has it already.
pub fn judge_again(measurements: &Measurements) -> Option<Verdicts> {
    let papers = &measurements.study.again;
    (!papers.is_empty()).then(|| verdicts(measurements, papers))
}

/// Copies the papers of `root`, as the second version reads them, into a result directory that was judged by the first. The next `report`
/// shows both, and `verify` computes both again.
///
/// # Errors
/// When the directory is not a result directory, was judged by the second version, or cannot be written.
pub fn add_second(root: &Path, directory: &Path) -> Result<(), RecordError> {
    let campaign = Campaign::read(directory)?;
    let target = directory.join(PAPERS_AGAIN);
    if target.exists() {
        return Err(ManifestError::new(&target, "is already there; rules in a result directory are never replaced").into());
    }
    // A name from a stranger's file becomes part of a path here.
    let ids = campaign.papers.iter().map(|id| Id::try_from(id.as_str())).collect::<Result<Vec<Id>, _>>();
    let ids = ids.map_err(|why| ManifestError::new(&directory.join(record::FILE), format!("papers: {why}")))?;
    for id in &ids {
        let name = format!("{id}.yaml");
        let own: Paper = manifest::read(directory, &Path::new("manifests/papers").join(&name))?;
        if own.judging != 1 {
            let why = format!("was judged by version {} of the rules; there is nothing to set beside it", own.judging);
            return Err(ManifestError::new(&directory.join("manifests/papers").join(name), why).into());
        }
    }
    for name in ids.iter().map(|id| format!("{id}.yaml")) {
        files::copy(&root.join("manifests/papers").join(&name), &target.join(&name))?;
    }
    Ok(())
}

/// Judges the claims of `papers`, whichever the campaign was made for: a synthesis holds all campaigns to the same rules.
pub(crate) fn judge_by(measurements: &Measurements, papers: &[Paper]) -> Verdicts {
    verdicts(measurements, papers)
}

fn verdicts(measurements: &Measurements, papers: &[Paper]) -> Verdicts {
    let study = &measurements.study;
    let public_logs = public_logs::judge(study, &measurements.public_logs);
    Verdicts {
        schema: SCHEMA.to_owned(),
        profile: study.profile.id.to_string(),
        hardware: study.hardware.id.to_string(),
        estimator: study.estimator.word().to_owned(),
        target_loss: study.profile.target_loss,
        scale: scale_caveat(study),
        papers: papers.iter().map(|paper| judge_paper(measurements, paper, &public_logs)).collect(),
    }
}

fn judge_paper(measurements: &Measurements, paper: &Paper, public_logs: &[public_logs::Comparison]) -> PaperVerdicts {
    let second = (paper.judging == 2).then(|| Second::of(measurements, paper));
    let mut claims: Vec<ClaimVerdict> = Vec::new();
    let mut verdicts: Vec<(String, Verdict)> = Vec::new();
    for claim in &paper.claims {
        let judged = Judge { measurements, paper, public_logs, earlier: &verdicts }.claim(claim, second.as_ref());
        verdicts.push((claim.id.to_string(), judged.1));
        claims.push(judged.0);
    }
    second::correct(&mut claims);
    let (precision, mut notes) = second.as_ref().map(Second::precision).unwrap_or_default();
    let count = |word: &str| claims.iter().filter(|claim| claim.verdict == word).count();
    let (open, asked) = (count("cannot-decide"), claims.len() - count("same-as"));
    if open > 0 {
        let why = "it could not have settled them, whatever came out, and says nothing against them";
        notes.insert(0, format!("This campaign cannot decide {open} of {asked} claims: {why}."));
    }
    PaperVerdicts {
        paper: paper.id.to_string(),
        decision_rule: paper.decision_rule.clone(),
        claims,
        checks: paper.checks.iter().map(check).collect(),
        judging: paper.judging,
        precision,
        notes,
    }
}

/// What a demonstration found, its numbers without what they would decide.
fn nothing(finding: Finding, lines: Vec<Line>) -> (Finding, Vec<Line>) {
    let undecided = || Verdict::CannotDecide(DEMONSTRATION.to_owned());
    let is_said = |word: &str| ["reproduced", "differs", "inconclusive"].contains(&word);
    let line = |line: Line| {
        let reason = undecided().reason().map(str::to_owned);
        if is_said(&line.verdict) { Line { verdict: undecided().word().to_owned(), reason, ..line } } else { line }
    };
    let verdict = if is_said(finding.verdict.word()) { undecided() } else { finding.verdict.clone() };
    (Finding { verdict, ..finding }, lines.into_iter().map(line).collect())
}

/// What a verdict does not say, printed beside the verdicts.
fn scale_caveat(study: &Study) -> String {
    let settings: Vec<String> = study.papers.iter().map(|paper| format!("{} ({})", paper.id, paper.setting)).collect();
    format!(
        "Verdicts hold for the model, the data and the budget of profile {} on {}. They do not say what would happen in the papers' own settings: {}.",
        study.profile.id,
        study.hardware.title,
        settings.join("; ")
    )
}

impl Judge<'_> {
    fn claim(&self, claim: &Claim, second: Option<&Second>) -> (ClaimVerdict, Verdict) {
        let arms = self.arms(&claim.metric);
        let unit = claim.metric.unit();
        let study = &self.measurements.study;
        let missing: Vec<Format> = claim.native_formats.iter().copied().filter(|format| !study.native(*format)).collect();
        let bare = |verdict, why: &str| (Finding::bare(verdict, unit, why), Vec::new());
        let (finding, lines) = if let Some(verdict) = self.unavailable(&arms) {
            bare(verdict, "A run that this claim needs has no result.")
        } else if second.is_none() && study.profile.target_loss.is_none() && needs_target(&claim.metric) {
            bare(Verdict::NotRun("the profile has no target loss".into()), "Tokens to a target are undefined without one.")
        } else if missing.is_empty() {
            second.and_then(|second| second.find(self, claim)).unwrap_or_else(|| (self.find(claim), Vec::new()))
        } else {
            let units = unit_names(&missing).join(" and ");
            let why = format!(
                "The claim is about the speed of {units} units, which this device ({}) does not have; emulated times stand beside it.",
                study.hardware.title
            );
            bare(Verdict::NotRun(no_native(&missing)), &why)
        };
        let (finding, lines) =
            if study.profile.demonstration && is_of_training(&claim.metric) { nothing(finding, lines) } else { (finding, lines) };
        let measured = finding.number.is_some() || matches!(finding.verdict, Verdict::Reproduced | Verdict::Differs);
        let mut beside = second.and_then(|second| second.beside(self, claim)).unwrap_or_else(|| self.beside(claim));
        beside.extend(public_logs::beside(self.public_logs, &self.paper.id, &claim.id));
        let verdict = finding.verdict.clone();
        let judged = ClaimVerdict {
            id: claim.id.to_string(),
            source: claim.source.clone(),
            statement: claim.statement.clone(),
            paper: paper_text(claim, unit),
            ours: ours_text(&finding, &claim.metric),
            interval_text: finding.interval.map(|interval| unit.interval(&interval)).unwrap_or_default(),
            verdict: verdict.word().to_owned(),
            reason: verdict.reason().map(str::to_owned),
            evidence: measured.then(|| self.evidence(&claim.metric, &arms)),
            number: finding.number,
            lower_bound: finding.lower_bound,
            interval: finding.interval.map(|interval| [interval.low, interval.high]),
            n: finding.n,
            reported: claim.reported,
            tolerance: claim.tolerance,
            why: finding.why,
            beside,
            lines,
        };
        (judged, verdict)
    }

    /// The verdict when a needed arm failed, or has no finished run.
    fn unavailable(&self, arms: &[&str]) -> Option<Verdict> {
        for arm in arms {
            let runs: Vec<_> = self.measurements.runs.iter().filter(|run| run.arm == *arm).collect();
            for run in &runs {
                if let RunStatus::Failed(error) = &run.status {
                    return Some(Verdict::Failed(format!("{arm}, seed {}: {error}", run.seed)));
                }
            }
            if runs.is_empty() {
                return Some(no_run(arm));
            }
            if !runs.iter().any(|run| run.finished()) {
                return Some(Verdict::NotRun(format!("no run of {arm} is finished; resume the campaign")));
            }
        }
        None
    }

    /// By the first version of the rules, which the second shares where it has none of its own.
    fn find(&self, claim: &Claim) -> Finding {
        let unit = claim.metric.unit();
        let reported = reported(claim);
        match &claim.metric {
            Metric::TokenOverhead { arm, baseline } => rules::token_ratio(&self.ratios(arm, baseline), 1.0, &reported, unit),
            Metric::TokenRatio { arm, baseline } => rules::token_ratio(&self.ratios(arm, baseline), 0.0, &reported, unit),
            Metric::DoesNotConverge { arm } => {
                rules::does_not_converge(&self.measurements.outcomes(arm), &self.measurements.outcomes(&self.paper.baseline))
            }
            Metric::KernelThroughputRatio { numerator, denominator } => {
                self.timed(times::kernel_throughput_ratio(&self.measurements.kernel_times, numerator, denominator), &reported, unit)
            }
            Metric::StepTimeRatio { numerator, denominator } => {
                self.timed(times::step_time_ratio(&self.measurements.step_times, numerator, denominator), &reported, unit)
            }
            Metric::TimeSaved { arm, baseline } => self.time_saved(arm, baseline, &reported),
            Metric::PassDominates { full, without, baseline } => {
                rules::pass_dominates(&self.ratios(full, baseline), &self.ratios(without, baseline))
            }
            Metric::AllOf { claims } | Metric::SameAs { claims } => self.all_of(claims),
            Metric::OutlierReduction { arm } => self.outliers(arm),
            Metric::ThroughputBecomesGain { arms, time_saved } => self.throughput_becomes_gain(arms, time_saved),
            Metric::RotationIdentity => self.rotations(),
            Metric::LossGap { arm, baseline } => self.loss_gap(arm, baseline, &reported),
            Metric::GapClosed { arm, without, baseline } => self.gap_closed(arm, without, baseline, &reported),
        }
    }
}

/// Whether a metric is about reaching the target.
fn needs_target(metric: &Metric) -> bool {
    matches!(
        metric,
        Metric::TokenOverhead { .. }
            | Metric::TokenRatio { .. }
            | Metric::DoesNotConverge { .. }
            | Metric::TimeSaved { .. }
            | Metric::PassDominates { .. }
    )
}

/// Whether a claim is about what training does, and not about time or arithmetic alone.
fn is_of_training(metric: &Metric) -> bool {
    !matches!(metric, Metric::KernelThroughputRatio { .. } | Metric::StepTimeRatio { .. } | Metric::RotationIdentity)
}

/// What the paper says, as a table cell.
fn paper_text(claim: &Claim, unit: Unit) -> String {
    match (&claim.metric, claim.reported) {
        (_, Some([low, high])) => {
            let tolerance = claim.tolerance.map(|tolerance| unit.tolerance(tolerance)).unwrap_or_default();
            format!("{}{tolerance}", unit.reported(low, high))
        }
        (Metric::DoesNotConverge { .. }, None) => "DNC".to_owned(),
        (_, None) => "holds".to_owned(),
    }
}

/// What we measured, as a table cell.
fn ours_text(finding: &Finding, metric: &Metric) -> String {
    let Some(number) = finding.number else { return "–".to_owned() };
    match metric {
        Metric::DoesNotConverge { .. } => format!("not reached by {} of {}", number::fixed(number, 0), finding.n),
        Metric::AllOf { .. } => format!("{} of {} hold", number::fixed(number, 0), finding.n),
        _ if finding.lower_bound => format!("≥ {}", finding.unit.number(number)),
        _ => finding.unit.number(number),
    }
}

/// `no native FP8 unit on this device`: the first unit that is missing is reason enough; the sentence beside it names all.
fn no_native(missing: &[Format]) -> String {
    format!("no native {} unit on this device", unit_names(missing).first().copied().unwrap_or_default())
}

/// What the arithmetic units for some formats are called, FP8 before FP4.
fn unit_names(formats: &[Format]) -> Vec<&'static str> {
    let has = |wanted: &[Format]| formats.iter().any(|format| wanted.contains(format));
    let mut names = Vec::new();
    if has(&[Format::E4m3, Format::E5m2]) {
        names.push("FP8");
    }
    if has(&[Format::E2m1]) {
        names.push("FP4");
    }
    if has(&[Format::Bf16]) {
        names.push("BF16");
    }
    names
}

/// Whether every expression of a check rounds to its value.
fn check(check: &Check) -> CheckVerdict {
    let results: Vec<(String, bool)> = check
        .expressions
        .iter()
        .zip(&check.values)
        .map(|(text, written)| match (value(text), value(text).and_then(|value| rounds_to(value, written))) {
            (Some(value), Some(holds)) => {
                let decimals = written.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                (number::fixed(value, decimals + 2), holds)
            }
            (None, _) => (format!("`{text}` is not computed by this version"), false),
            (_, None) => (format!("`{written}` is not a decimal number such as 0.0917"), false),
        })
        .collect();
    let holds = check.expressions.len() == check.values.len() && results.iter().all(|(_, holds)| *holds);
    CheckVerdict {
        id: check.id.to_string(),
        expressions: check.expressions.clone(),
        values: check.values.clone(),
        computed: results.into_iter().map(|(text, _)| text).collect(),
        holds,
        note: check.note.clone(),
    }
}
