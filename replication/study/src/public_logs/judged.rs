//! Logged runs against a paper's claims: the same rule as for our own runs, other words and another evidence.
//!
//! Groups share no seed, so nothing is paired: a ratio of means has Welch's interval. `consistent` stands where our own runs would
//! say `reproduced`, because a comparison that nobody controlled cannot reproduce anything.

use super::numbers::GroupNumbers;
use crate::judge::rules::{Estimate, Reported, against_range};
use crate::judge::verdict::{Beside, Evidence, Verdict};
use crate::manifest::public_logs::{ComparisonManifest, OtherBaselineManifest, PublicLogs, Reference};
use crate::manifest::{Claim, Metric, Paper};
use crate::measure::study::Study;
use crate::measure::target::Estimator;
use crate::number::Unit;
use crate::statistics::{IndependentRatio, Interval, Moments, independent_ratio};

/// One claim against one comparison, by one estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub claim: String,
    /// The estimate of samples to the target; none for claims about time alone.
    pub estimator: Option<Estimator>,
    /// How the number is written.
    pub unit: Unit,
    /// The number in the claim's own unit; none where too few runs have it.
    pub number: Option<f64>,
    /// 95 % interval.
    pub interval: Option<Interval>,
    /// Runs of the arm and of the baseline behind it.
    pub runs: [usize; 2],
    pub reported: Option<[f64; 2]>,
    pub tolerance: Option<f64>,
    /// `consistent`, `differs` or `inconclusive`.
    pub word: &'static str,
    /// One sentence: why this word.
    pub why: String,
}

/// Does the gain in step time, less the cost in samples, give the time that was measured?
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decomposition {
    /// Step time of the baseline over the arm's.
    pub step: f64,
    /// Samples to the target on the grid, arm over baseline.
    pub samples: f64,
    /// Time to the target, baseline over arm, as measured.
    pub time: f64,
}

impl Decomposition {
    /// The two products may differ by this share: evaluations and the first block are in the time, and not in the step.
    pub const WITHIN: f64 = 0.01;

    /// What the parts give for the time ratio.
    pub fn product(&self) -> f64 {
        self.step / self.samples
    }

    /// Product over measured time ratio, minus one.
    pub fn difference(&self) -> f64 {
        self.product() / self.time - 1.0
    }

    /// Whether the parts explain the whole.
    pub fn holds(&self) -> bool {
        self.difference().abs() <= Self::WITHIN
    }
}

/// The same arm against another baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherBaseline {
    pub label: String,
    pub runs: usize,
    /// Ratio of samples on the grid.
    pub grid: Option<IndependentRatio>,
    /// Ratio of interpolated samples.
    pub interpolated: Option<IndependentRatio>,
    /// Step time of the baseline over the arm's, on the same accelerator.
    pub step: Option<IndependentRatio>,
}

/// Everything that one comparison says.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub evidence: String,
    pub id: String,
    /// Head of its column.
    pub label: String,
    /// arXiv id.
    pub paper: String,
    /// Group ids of arm and baseline.
    pub groups: [String; 2],
    /// Claims in the manifest's order; two rows for a claim about samples.
    pub rows: Vec<Row>,
    /// None when a run missed the target or a time is unknown.
    pub decomposition: Option<Decomposition>,
    /// Its own baseline first.
    pub baselines: Vec<OtherBaseline>,
    /// Lowest and highest ratio of samples (grid, interpolated) when any one run of the baseline is left out.
    pub without_one: Option<[Interval; 2]>,
}

/// Judges every comparison about the study's papers, in the manifests' order.
pub fn judge(study: &Study, all: &[PublicLogs]) -> Vec<Comparison> {
    judge_by(&study.papers, study.estimator, all)
}

/// The same for papers that belong to no campaign.
pub fn judge_by(papers: &[Paper], estimator: Estimator, all: &[PublicLogs]) -> Vec<Comparison> {
    let comparisons = all.iter().flat_map(|evidence| evidence.manifest.comparisons.iter().map(move |comparison| (evidence, comparison)));
    comparisons.filter_map(|(evidence, comparison)| one(papers, estimator, evidence, comparison)).collect()
}

fn one(papers: &[Paper], estimator: Estimator, evidence: &PublicLogs, comparison: &ComparisonManifest) -> Option<Comparison> {
    let paper = papers.iter().find(|paper| paper.id == comparison.paper)?;
    let (arm, baseline) = (evidence.numbers(&comparison.arm)?, evidence.numbers(&comparison.baseline)?);
    let claims = comparison.claims.iter().filter_map(|id| paper.claims.iter().find(|claim| claim.id == *id));
    let others = comparison.other_baselines.iter().filter_map(|other| other_baseline(evidence, comparison, &arm, other));
    let own = pooled(&evidence.group(&comparison.baseline)?.label, &arm, std::slice::from_ref(&baseline), true);
    Some(Comparison {
        evidence: evidence.manifest.id.to_string(),
        id: comparison.id.to_string(),
        label: comparison.label.clone(),
        paper: comparison.paper.clone(),
        groups: [comparison.arm.clone(), comparison.baseline.clone()],
        rows: claims.flat_map(|claim| rows(estimator, claim, &arm, &baseline)).collect(),
        decomposition: decomposition(&arm, &baseline),
        baselines: std::iter::once(own).chain(others).collect(),
        without_one: without_one(&arm, &baseline),
    })
}

/// A claim's rows: about samples first the study's estimate, then the other.
fn rows(first: Estimator, claim: &Claim, arm: &GroupNumbers, baseline: &GroupNumbers) -> Vec<Row> {
    let second = if first == Estimator::Grid { Estimator::Interpolated } else { Estimator::Grid };
    match claim.metric {
        Metric::TokenOverhead { .. } | Metric::TokenRatio { .. } => {
            [first, second].into_iter().map(|estimator| row(claim, Some(estimator), arm, baseline)).collect()
        }
        Metric::StepTimeRatio { .. } | Metric::TimeSaved { .. } => vec![row(claim, None, arm, baseline)],
        _ => Vec::new(),
    }
}

fn row(claim: &Claim, estimator: Option<Estimator>, arm: &GroupNumbers, baseline: &GroupNumbers) -> Row {
    let unit = claim.metric.unit();
    let samples = || independent_ratio(&arm.samples(estimator?), &baseline.samples(estimator?));
    let (ratio, missed) = match claim.metric {
        Metric::StepTimeRatio { .. } => (independent_ratio(&baseline.steps(), &arm.steps()), 0),
        Metric::TimeSaved { .. } => {
            let left = |numbers: &GroupNumbers| numbers.runs.len() - numbers.minutes().len();
            (independent_ratio(&arm.minutes(), &baseline.minutes()), left(arm) + left(baseline))
        }
        _ => (samples(), arm.missed() + baseline.missed()),
    };
    let estimate = ratio.map(|ratio| in_unit(&claim.metric, ratio));
    let runs = match claim.metric {
        Metric::StepTimeRatio { .. } => [arm.steps().len(), baseline.steps().len()],
        Metric::TimeSaved { .. } => [arm.minutes().len(), baseline.minutes().len()],
        _ => [arm.runs.len() - arm.missed(), baseline.runs.len() - baseline.missed()],
    };
    let (word, why) = word(claim, estimate, missed, arm.runs.len() + baseline.runs.len(), unit);
    Row {
        claim: claim.id.to_string(),
        estimator,
        unit,
        number: estimate.map(|estimate| estimate.number),
        interval: estimate.and_then(|estimate| estimate.interval),
        runs,
        reported: claim.reported,
        tolerance: claim.tolerance,
        word,
        why,
    }
}

/// A ratio as the claim's metric writes it: the excess over one, one minus it, or itself.
fn in_unit(metric: &Metric, ratio: IndependentRatio) -> Estimate {
    let turned = |interval: Interval| Interval::new(1.0 - interval.high, 1.0 - interval.low);
    let n = ratio.n[0] + ratio.n[1];
    match metric {
        Metric::TokenOverhead { .. } => {
            Estimate { number: ratio.ratio - 1.0, interval: ratio.interval.map(|interval| interval.shifted(-1.0)), n }
        }
        Metric::TimeSaved { .. } => Estimate { number: 1.0 - ratio.ratio, interval: ratio.interval.map(turned), n },
        _ => Estimate { number: ratio.ratio, interval: ratio.interval, n },
    }
}

fn word(claim: &Claim, estimate: Option<Estimate>, missed: usize, runs: usize, unit: Unit) -> (&'static str, String) {
    let Some(estimate) = estimate else {
        return ("inconclusive", "No run of one of the two groups has this number.".to_owned());
    };
    if missed > 0 {
        let why = format!("{missed} of {runs} runs did not reach the target and are in no mean; what they cost is unknown.");
        return ("inconclusive", why);
    }
    let Some([low, high]) = claim.reported else {
        return ("inconclusive", "The paper gives no number for this claim.".to_owned());
    };
    let finding = against_range(estimate, &Reported { low, high, tolerance: claim.tolerance.unwrap_or(0.0) }, unit);
    let word = match finding.verdict {
        Verdict::Reproduced => "consistent",
        Verdict::Differs => "differs",
        _ => "inconclusive",
    };
    (word, finding.why)
}

fn decomposition(arm: &GroupNumbers, baseline: &GroupNumbers) -> Option<Decomposition> {
    if arm.missed() + baseline.missed() > 0 {
        return None;
    }
    let ratio = |numerator: &[f64], denominator: &[f64]| independent_ratio(numerator, denominator).map(|ratio| ratio.ratio);
    Some(Decomposition {
        step: ratio(&baseline.steps(), &arm.steps())?,
        samples: ratio(&arm.samples(Estimator::Grid), &baseline.samples(Estimator::Grid))?,
        time: ratio(&baseline.minutes(), &arm.minutes())?,
    })
}

/// Runs of several groups as one baseline; their step times only where they ran on the arm's accelerator.
fn pooled(label: &str, arm: &GroupNumbers, groups: &[GroupNumbers], same_accelerator: bool) -> OtherBaseline {
    let all = |pick: &dyn Fn(&GroupNumbers) -> Vec<f64>| -> Vec<f64> { groups.iter().flat_map(pick).collect() };
    let grid = all(&|group| group.samples(Estimator::Grid));
    let interpolated = all(&|group| group.samples(Estimator::Interpolated));
    let steps = all(&|group| group.steps());
    OtherBaseline {
        label: label.to_owned(),
        runs: grid.len(),
        grid: independent_ratio(&arm.samples(Estimator::Grid), &grid),
        interpolated: independent_ratio(&arm.samples(Estimator::Interpolated), &interpolated),
        step: independent_ratio(&steps, &arm.steps()).filter(|_| same_accelerator),
    }
}

fn other_baseline(
    evidence: &PublicLogs,
    comparison: &ComparisonManifest,
    arm: &GroupNumbers,
    other: &OtherBaselineManifest,
) -> Option<OtherBaseline> {
    match other {
        OtherBaselineManifest::Groups { label, groups } => {
            let numbers: Vec<GroupNumbers> = groups.iter().filter_map(|id| evidence.numbers(id)).collect();
            let accelerator = &evidence.group(&comparison.arm)?.accelerator;
            let same = groups.iter().all(|id| evidence.group(id).is_some_and(|group| group.accelerator == *accelerator));
            Some(pooled(label, arm, &numbers, same))
        }
        OtherBaselineManifest::Reference { reference } => {
            let reference = evidence.manifest.references.iter().find(|known| known.id == *reference)?;
            Some(against_reference(arm, reference))
        }
    }
}

/// The arm against a mean that has no runs behind it: an interval only where the spread is known.
fn against_reference(arm: &GroupNumbers, reference: &Reference) -> OtherBaseline {
    let n = reference.runs;
    // A standard deviation with divisor n becomes one with divisor n - 1.
    let sd = reference.population_sd.map(|sd| sd * (n as f64 / (n.max(2) - 1) as f64).sqrt());
    let against = |values: &[f64], mean: f64, sd: Option<f64>| Moments::of(values)?.over(&Moments { n, mean, sd });
    OtherBaseline {
        label: reference.label.clone(),
        runs: n,
        grid: against(&arm.samples(Estimator::Grid), reference.samples, sd),
        interpolated: reference.interpolated.and_then(|mean| against(&arm.samples(Estimator::Interpolated), mean, None)),
        step: reference.step_seconds.and_then(|mean| Moments { n, mean, sd: None }.over(&Moments::of(&arm.steps())?)),
    }
}

fn without_one(arm: &GroupNumbers, baseline: &GroupNumbers) -> Option<[Interval; 2]> {
    let range = |estimator: Estimator| -> Option<Interval> {
        let (ours, all) = (arm.samples(estimator), baseline.samples(estimator));
        let ratios: Vec<f64> = (0..all.len())
            .filter_map(|left_out| {
                let rest: Vec<f64> = all.iter().enumerate().filter(|(index, _)| *index != left_out).map(|(_, value)| *value).collect();
                independent_ratio(&ours, &rest).map(|ratio| ratio.ratio)
            })
            .collect();
        let low = ratios.iter().copied().reduce(f64::min)?;
        Some(Interval::new(low, ratios.iter().copied().reduce(f64::max)?))
    };
    Some([range(Estimator::Grid)?, range(Estimator::Interpolated)?])
}

/// What the comparisons say about a claim, to stand beside a verdict on our own runs without deciding it.
pub fn beside(comparisons: &[Comparison], paper: &str, claim: &str) -> Vec<Beside> {
    let mut items = Vec::new();
    for comparison in comparisons.iter().filter(|comparison| comparison.paper == paper) {
        for row in comparison.rows.iter().filter(|row| row.claim == claim) {
            let Some(number) = row.number else { continue };
            let interval = row.interval.map(|interval| format!(" {}", row.unit.interval(&interval))).unwrap_or_default();
            let estimate = row.estimator.map(|estimator| format!(", {}", estimator.word())).unwrap_or_default();
            items.push(Beside {
                label: format!("{}{estimate}", comparison.label),
                text: format!("{}{interval}", row.unit.number(number)),
                evidence: Evidence::PublicLog,
            });
        }
    }
    items
}
