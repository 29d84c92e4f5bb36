//! What one campaign says of each claim: a row for each depth of training at which it has a number.

use super::source::Read;
use crate::judge::verdict::Evidence;
use crate::judge::{ClaimVerdict, Crossed, Scale, Sheet, Sheets, Verdicts, crossed, judge_by};
use crate::layout::{Component, Levels as _, Measured};
use crate::manifest::{Claim, Manifests, Metric, Paper};
use crate::measure::Measurements;
use crate::measure::curves::Stretch;
use crate::number::Unit;
use crate::statistics::{CONFIDENCE, Interval};

/// Two one-sided tests at 5 % say that a number in the middle of a range lies inside with a chance of 80 % when half of the range is
/// 1.645 + 1.282 standard errors; half of a 95 % interval is 1.960 of them.
const FAIR: f64 = (1.645 + 1.282) / 1.960;

/// Where along training a number was taken. A cost grows with training, so only equal ones can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Where the baseline is as flat as at the paper's target.
    Matched,
    /// The paper's target itself, in public logs.
    PapersTarget,
    /// The last quarter of the campaign's own budget.
    Late,
    /// The campaign's own target.
    OwnTarget,
    /// No matter of depth, such as a speed.
    None,
}

impl Depth {
    pub fn word(self) -> &'static str {
        match self {
            Self::Matched => Stretch::Matched.word(),
            Self::PapersTarget => "the paper's target",
            Self::Late => Stretch::LastQuarter.word(),
            Self::OwnTarget => "own target",
            Self::None => "",
        }
    }

    /// Whether numbers of both may be held against each other.
    pub fn comparable(self, other: Self) -> bool {
        let papers = |depth| matches!(depth, Self::Matched | Self::PapersTarget);
        papers(self) && papers(other) || self == Self::None && other == Self::None
    }
}

/// A number as readers see it: shares and not logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    pub value: f64,
    /// 95 %.
    pub interval: Option<Interval>,
    /// Seeds, repeats or runs.
    pub n: usize,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub paper: String,
    pub claim: String,
    /// Index among the sources.
    pub source: usize,
    pub depth: Depth,
    /// Empty for a claim about more than one arm.
    pub arm: String,
    pub baseline: String,
    pub kind: Option<Evidence>,
    pub unit: Unit,
    /// Or why there is none.
    pub number: Result<Number, String>,
    /// The same on the scale on which it was measured (logarithms of tokens, nats), with its error.
    pub measured: Option<Measured>,
    /// How single runs scatter there, on that scale.
    pub scatter: Option<Component>,
    /// Loss above the baseline's, nats.
    pub gap: Option<Number>,
    /// Verdict and reason, on the row that decides the claim.
    pub verdict: Option<(String, Option<String>)>,
    /// The verdict on the claim's direction, where it has one beside a size.
    pub direction: Option<String>,
    /// Why this verdict, in a sentence.
    pub why: String,
    /// Seeds for a fair chance of `reproduced` if the paper is right, from this campaign's scatter.
    pub seeds_to_decide: Option<f64>,
}

impl Row {
    /// Not zero, and not by chance: which side of it the whole interval lies on.
    pub fn side(&self) -> Option<bool> {
        let interval = self.number.as_ref().ok()?.interval?;
        if interval.low > 0.0 { Some(true) } else { (interval.high < 0.0).then_some(false) }
    }

    /// The word of the verdict; empty on a row that does not decide.
    pub fn word(&self) -> &str {
        self.verdict.as_ref().map_or("", |(word, _)| word)
    }

    /// The text of the number with its interval, or why there is none.
    pub fn text(&self) -> String {
        match &self.number {
            Ok(number) => number.text(self.unit),
            Err(why) => why.clone(),
        }
    }
}

impl Number {
    pub fn text(&self, unit: Unit) -> String {
        match (unit.number(self.value), self.interval_text(unit)) {
            (number, interval) if interval.is_empty() => number,
            (number, interval) => format!("{number} {interval}"),
        }
    }

    /// Of its interval, which stays on one line; empty without one.
    pub fn interval_text(&self, unit: Unit) -> String {
        self.interval.map(|interval| unit.interval(&interval).replace(' ', "\u{a0}")).unwrap_or_default()
    }

    pub(super) fn of(measured: &Measured, shown: fn(f64) -> f64) -> Self {
        let interval = measured.interval(CONFIDENCE).map(|ends| ends.map(shown));
        Self { value: shown(measured.number), interval, n: measured.n }
    }
}

/// The arm of a claim about how an arm trains, and its scale.
pub(super) fn trained(claim: &Claim) -> Option<(&str, Scale)> {
    match &claim.metric {
        Metric::LossGap { arm, .. } => Some((arm, Scale::Nats)),
        metric => Some((metric.arm_of_tokens()?, Scale::Tokens)),
    }
}

/// Every row of one campaign; says of its source whether it gets as deep as the paper.
pub(super) fn rows(manifests: &Manifests, papers: &[Paper], read: &Read, source: usize) -> Vec<Row> {
    let measurements = &read.measurements;
    let mut rows = Vec::new();
    let of: Vec<Paper> =
        papers.iter().filter(|paper| measurements.study.profile.papers.iter().any(|id| *id == paper.id.as_str())).cloned().collect();
    let verdicts: Verdicts = judge_by(measurements, &of);
    for (paper, judged) in of.iter().zip(&verdicts.papers) {
        for (claim, verdict) in paper.claims.iter().zip(&judged.claims) {
            let one = One { manifests, measurements, paper, claim, verdict, source };
            rows.extend(one.rows());
        }
    }
    rows
}

/// One claim in one campaign.
struct One<'a> {
    manifests: &'a Manifests,
    measurements: &'a Measurements,
    paper: &'a Paper,
    claim: &'a Claim,
    verdict: &'a ClaimVerdict,
    source: usize,
}

impl One<'_> {
    fn row(&self, depth: Depth) -> Row {
        Row {
            paper: self.paper.id.to_string(),
            claim: self.claim.id.to_string(),
            source: self.source,
            depth,
            arm: trained(self.claim).map(|(arm, _)| arm.to_owned()).unwrap_or_default(),
            baseline: self.baseline().to_owned(),
            kind: self.verdict.evidence,
            unit: self.claim.metric.unit(),
            number: Err(self.why()),
            measured: None,
            scatter: None,
            gap: None,
            verdict: Some((self.verdict.verdict.clone(), self.verdict.reason.clone())),
            direction: self.verdict.lines.iter().find(|line| line.what == "direction").map(|line| line.verdict.clone()),
            why: self.verdict.why.clone(),
            seeds_to_decide: None,
        }
    }

    fn baseline(&self) -> &str {
        self.claim.metric.baseline().unwrap_or(&self.paper.baseline)
    }

    /// Why there is no number, in the words of the verdict.
    fn why(&self) -> String {
        self.verdict.reason.clone().filter(|reason| !reason.is_empty()).unwrap_or_else(|| self.verdict.why.clone())
    }

    fn rows(&self) -> Vec<Row> {
        if let Some(arm) = self.foreign() {
            let why = format!("its recipe {arm} is not the one that has this name here");
            return vec![Row {
                number: Err(why.clone()),
                kind: None,
                verdict: Some(("not-run".to_owned(), Some(why))),
                ..self.row(Depth::None)
            }];
        }
        if self.verdict.verdict == "same-as" {
            return Vec::new();
        }
        let without = matches!(self.verdict.verdict.as_str(), "not-run" | "failed");
        match trained(self.claim).filter(|_| !without) {
            Some((arm, scale)) => match Sheets::of(self.measurements, self.baseline()) {
                Ok(sheets) => self.along(&sheets, arm, scale),
                Err(why) => vec![Row { number: Err(why), ..self.row(Depth::None) }],
            },
            None => vec![self.once()],
        }
    }

    /// An arm whose archived recipe computes something else than this repository's of that name.
    fn foreign(&self) -> Option<&str> {
        let than = self.claim.direction.iter().filter_map(|direction| direction.than.as_deref());
        let mut arms = self.claim.metric.arms().into_iter().chain([self.baseline()]).chain(than);
        arms.find(|arm| {
            let (theirs, ours) = (self.measurements.study.recipes.get(*arm), self.manifests.recipes.get(*arm));
            let differs = |(theirs, ours): (&crate::manifest::Recipe, &crate::manifest::Recipe)| {
                theirs.resolved().ok() != ours.resolved().ok()
                    || theirs.stochastic_seed != ours.stochastic_seed
                    || theirs.delayed_scaling != ours.delayed_scaling
                    || theirs.defect != ours.defect
            };
            theirs.zip(ours).is_some_and(differs)
        })
    }

    /// A claim that is no matter of depth, or about several arms.
    fn once(&self) -> Row {
        let verdict = self.verdict;
        let interval = verdict.interval.map(|[low, high]| Interval::new(low, high));
        // An error of arithmetic is what it is; any other number without an interval says nothing.
        let is_sure = interval.is_some() || matches!(self.claim.metric, Metric::RotationIdentity);
        let number = verdict.number.filter(|value| value.is_finite() && is_sure).map(|value| Number { value, interval, n: verdict.n });
        let depth = match verdict.lines.last().map(|line| line.stretch.as_str()) {
            Some(word) if word == Stretch::Matched.word() => Depth::Matched,
            Some(word) if word == Stretch::LastQuarter.word() => Depth::Late,
            _ => Depth::None,
        };
        let row = self.row(depth);
        Row { number: number.ok_or_else(|| self.why()), ..row }
    }

    /// A claim about an arm's training, at each depth that the campaign has.
    fn along(&self, sheets: &Sheets, arm: &str, scale: Scale) -> Vec<Row> {
        let decides = if scale == Scale::Nats { Depth::Late } else { depth(sheets.decisive()) };
        let mut rows = Vec::new();
        for sheet in sheets.matched.iter().chain([&sheets.late]) {
            rows.push(self.stretch(sheet, arm, scale));
        }
        if scale == Scale::Tokens {
            rows.extend(self.own_target(arm));
        }
        for row in &mut rows {
            row.unit = if scale == Scale::Nats { Unit::Nats } else { Unit::SignedPercent };
            if row.depth != decides {
                row.verdict = None;
            }
        }
        rows
    }

    fn stretch(&self, sheet: &Sheet, arm: &str, scale: Scale) -> Row {
        let (seeds, lost) = sheet.lost(self.measurements, arm);
        let row = self.row(depth(sheet));
        if lost > 0 {
            let why = format!("{lost} of {seeds} seeds diverged or stayed above the baseline's whole curve");
            return Row { number: Err(why), ..row };
        }
        let of = |scale| sheet.layout(scale).map_err(String::clone)?.contrast(&[(arm, 1.0), (self.baseline(), -1.0)]);
        let shown: fn(f64) -> f64 = if scale == Scale::Nats { |nats| nats } else { f64::exp_m1 };
        let measured = of(scale);
        Row {
            number: measured.as_ref().map(|measured| Number::of(measured, shown)).map_err(String::clone),
            measured: measured.ok(),
            scatter: sheet.layout(scale).ok().and_then(|layout| layout.scatter).map(|scatter| scatter.run),
            gap: of(Scale::Nats).ok().map(|gap| Number::of(&gap, |nats| nats)),
            seeds_to_decide: self.half_width(scale).and_then(|half| Some(sheet.design(scale)?.seeds_for(half / FAIR, self.baseline()))),
            ..row
        }
    }

    /// Half of the accepted range, on the scale of the layout.
    fn half_width(&self, scale: Scale) -> Option<f64> {
        accepted(self.claim, scale).map(|range| (range.high - range.low) / 2.0).filter(|half| *half > 0.0)
    }

    /// The paper's own way of counting, to this profile's target.
    fn own_target(&self, arm: &str) -> Option<Row> {
        let row = Row { gap: None, ..self.row(Depth::OwnTarget) };
        let missed = |arm: &str| self.measurements.outcomes(arm).iter().filter(|run| run.crossing.is_none() || run.diverged).count();
        if missed(self.baseline()) > 0 {
            let why = format!("{} of the baseline's runs did not reach the profile's target", missed(self.baseline()));
            return Some(Row { number: Err(why), ..row });
        }
        Some(match crossed(self.measurements, arm, self.baseline())? {
            Crossed::Missed { missed, seeds } => Row { number: Err(format!("not reached in {missed} of {seeds} seeds")), ..row },
            Crossed::Measured(measured) => Row { number: Ok(Number::of(&measured, f64::exp_m1)), measured: Some(measured), ..row },
        })
    }
}

/// What the paper reports with the claim's tolerance, on the scale of the layout; none without a size.
pub(super) fn accepted(claim: &Claim, scale: Scale) -> Option<Interval> {
    let ([low, high], tolerance) = (claim.reported?, claim.tolerance.unwrap_or(0.0));
    let ends = [low - tolerance, high + tolerance];
    let [low, high] = match (scale, &claim.metric) {
        (Scale::Nats, _) => ends,
        (_, Metric::TokenRatio { .. }) => ends.map(f64::ln),
        _ => ends.map(f64::ln_1p),
    };
    (low.is_finite() && high.is_finite()).then(|| Interval::new(low, high))
}

fn depth(sheet: &Sheet) -> Depth {
    match sheet.stretch {
        Stretch::Matched => Depth::Matched,
        Stretch::LastQuarter => Depth::Late,
    }
}
