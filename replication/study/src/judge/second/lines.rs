//! Lines of claims: a question and its answer as text, and the claim's own verdict from its lines.

use super::asked::Asked;
use super::power::DECIDES;
use super::question::{Found, Quantity, Question, Scale};
use super::sheets::{Sheet, Sheets};
use crate::judge::no_run;
use crate::judge::rules::{Estimate, Finding};
use crate::judge::verdict::{Chances, Line, Verdict};
use crate::layout::{Layout, Levels, Measured, Values};
use crate::measure::Measurements;
use crate::number::Unit;
use crate::statistics::{CONFIDENCE, Interval, summarise};

/// A line before its answer.
pub(super) struct Judged {
    line: Line,
    unit: Unit,
    accepted: Interval,
}

impl Judged {
    pub(super) fn plain(what: &str, statement: String, unit: Unit, accepted: Interval) -> Self {
        let line = Line {
            what: what.to_owned(),
            statement,
            stretch: String::new(),
            ours: String::new(),
            interval_text: String::new(),
            gap: String::new(),
            verdict: String::new(),
            reason: None,
            number: None,
            interval: None,
            ninety: None,
            accepted: [finite(accepted.low), finite(accepted.high)],
            n: 0,
            p: None,
            holm: None,
            chances: None,
            why: String::new(),
        };
        Self { line, unit, accepted }
    }

    pub(super) fn verdict(self, verdict: Verdict, why: &str) -> Line {
        let reason = verdict.reason().map(str::to_owned);
        Line { verdict: verdict.word().to_owned(), reason, why: why.to_owned(), ..self.line }
    }

    /// Judged by what was found, in the line's own unit.
    pub(super) fn found(self, found: &Found) -> Line {
        let (verdict, why) = found.verdict(&self.accepted, &self.range());
        self.numbers(found).verdict(verdict, &why)
    }

    /// A sample of independent numbers, one a seed.
    pub(super) fn sample(self, values: &[f64], estimate: Estimate) -> Line {
        let n = values.len();
        let spread = estimate.interval.filter(|interval| interval.high > interval.low);
        let Some(sd) = spread.and_then(|_| summarise(values)?.sd) else {
            let ours = self.unit.number(estimate.number);
            let line = self.verdict(Verdict::Inconclusive, &format!("{n} equal or single values give no interval."));
            return Line { ours, number: Some(estimate.number), n, ..line };
        };
        let measured = Measured { number: estimate.number, error: sd / (n as f64).sqrt(), freedom: n as f64 - 1.0, n };
        let found = Found::of(&measured, &self.accepted);
        self.found(&found)
    }

    fn numbers(mut self, found: &Found) -> Self {
        let pair = |interval: Interval| [interval.low, interval.high];
        self.line.ours = self.unit.number(found.number);
        self.line.interval_text = found.interval.map(|interval| self.unit.interval(&interval)).unwrap_or_default();
        self.line.number = Some(found.number);
        (self.line.interval, self.line.ninety) = (found.interval.map(pair), found.ninety.map(pair));
        (self.line.n, self.line.p) = (found.n, found.p);
        self
    }

    fn range(&self) -> String {
        let number = |value| self.unit.number(value);
        match (self.accepted.low.is_finite(), self.accepted.high.is_finite()) {
            (true, true) => format!("the accepted range {}", self.unit.interval(&self.accepted)),
            (true, false) => format!("what the claim says (above {})", number(self.accepted.low)),
            _ => format!("what the claim says (below {})", number(self.accepted.high)),
        }
    }
}

fn finite(end: f64) -> Option<f64> {
    end.is_finite().then_some(end)
}

/// From the scale of a table to that of a reader.
fn shown(question: &Question, interval: Interval) -> Interval {
    match question.scale {
        Scale::Tokens => interval.map(f64::exp_m1),
        Scale::Nats => interval,
    }
}

/// The line of a question about how arms train.
pub(super) fn trained(measurements: &Measurements, sheets: &Sheets, asked: &Asked, chances: Option<&Chances>) -> Line {
    let question = &asked.question;
    let sheet = if question.scale == Scale::Nats { &sheets.late } else { sheets.decisive() };
    let mut judged = Judged::plain(question.what, question.statement.clone(), question.unit, shown(question, question.accepted));
    judged.line.stretch = sheet.stretch.word().to_owned();
    // The claim's own arm has runs; the one that it is compared with may have none.
    if let Some(arm) = question.arms().find(|arm| measurements.runs.iter().all(|run| run.arm != *arm)) {
        return judged.verdict(no_run(arm), "Its numbers would be set beside that arm's.");
    }
    judged.line.chances = chances.copied();
    if let Some((verdict, why)) = lost(measurements, sheet, question) {
        return judged.verdict(verdict, &why);
    }
    let answer = sheet.layout(question.scale).map_err(String::clone).and_then(|layout| question.answer(layout));
    let found = match answer {
        Ok(found) => found,
        Err(why) => return judged.verdict(Verdict::Inconclusive, &format!("{}.", capital(&why))),
    };
    let share = |interval| shown(question, interval);
    let number = share(Interval::new(found.number, found.number)).low;
    let found = Found { number, interval: found.interval.map(share), ninety: found.ninety.map(share), ..found };
    let (verdict, why) = found.verdict(&judged.accepted, &judged.range());
    judged.line.gap = gap(sheet, question);
    let judged = judged.numbers(&found);
    if question.what == "size"
        && question.scale == Scale::Tokens
        && let Some((short, depth)) = sheets.too_short()
    {
        return judged.verdict(
            Verdict::CannotDecide(short.to_owned()),
            &format!("{depth} A cost grows with training, so a number from another depth is not held against the paper's."),
        );
    }
    match chances.filter(|chances| chances.reproduced < DECIDES && verdict != Verdict::Reproduced) {
        Some(chances) => {
            let reason = format!("chance of reproduced if the paper is right: {}", Unit::Percent.number(chances.reproduced));
            judged.verdict(Verdict::CannotDecide(reason), &format!("{why} With so few seeds that settles nothing."))
        }
        None => judged.verdict(verdict, &why),
    }
}

/// The verdict where seeds of an arm have no number: a mean over the others would flatter it.
fn lost(measurements: &Measurements, sheet: &Sheet, question: &Question) -> Option<(Verdict, String)> {
    let label = |arm: &str| measurements.study.label(arm).to_owned();
    for (index, arm) in question.arms().enumerate() {
        let (seeds, lost) = sheet.lost(measurements, arm);
        if lost == 0 {
            continue;
        }
        let why = format!(
            "{lost} of {seeds} seeds of {} diverged or stayed above the baseline's whole curve, so its cost has no number",
            label(arm)
        );
        // The arm that the claim is about comes first; its cost is then beyond every bound.
        if index > 0 || lost < seeds || seeds == 1 {
            return Some((Verdict::Inconclusive, format!("{why}.")));
        }
        let beyond = question.accepted.high.is_infinite();
        let verdict = if beyond { Verdict::Reproduced } else { Verdict::Differs };
        return Some((verdict, format!("{why}: it is beyond every bound.")));
    }
    None
}

/// The same contrast in nats, with its interval; empty for what is in nats already.
fn gap(sheet: &Sheet, question: &Question) -> String {
    let Quantity::Contrast(weights) = &question.quantity else { return String::new() };
    if question.scale == Scale::Nats {
        return String::new();
    }
    let weights: Vec<(&str, f64)> = weights.iter().map(|(arm, weight)| (arm.as_str(), *weight)).collect();
    let measured = sheet.layout(Scale::Nats).map_err(String::clone).and_then(|layout| layout.contrast(&weights));
    measured.map(|measured| with_interval(Unit::Nats, &measured, |nats| nats)).unwrap_or_default()
}

/// A measured number with its interval, as `shown` makes it from the scale on which it was measured.
pub(crate) fn with_interval(unit: Unit, measured: &Measured, shown: fn(f64) -> f64) -> String {
    let interval = measured.interval(CONFIDENCE).map(|interval| interval.map(shown));
    let interval = interval.map(|interval| format!(" {}", unit.interval(&interval))).unwrap_or_default();
    unit.number(shown(measured.number)) + &interval
}

/// Extra tokens with their interval, and the gap.
pub(super) fn share_and_gap(sheet: &Sheet, arm: &str, baseline: &str) -> Option<String> {
    let tokens = sheet.overhead(arm, baseline).ok()?;
    let nats = sheet.layout(Scale::Nats).ok()?.contrast(&[(arm, 1.0), (baseline, -1.0)]).ok()?;
    Some(format!("{}; {}", with_interval(Unit::SignedPercent, &tokens, f64::exp_m1), with_interval(Unit::Nats, &nats, |nats| nats)))
}

/// What an arm needs to the profile's target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Crossed {
    /// So many of all its seeds did not reach it, so there is no number.
    Missed { missed: usize, seeds: usize },
    /// Extra tokens, as the logarithm of a ratio, by the layout of crossings.
    Measured(Measured),
}

/// Extra tokens to the profile's target; none where nothing can be compared.
pub(crate) fn crossed(measurements: &Measurements, arm: &str, baseline: &str) -> Option<Crossed> {
    let outcomes = measurements.outcomes(arm);
    let missed = outcomes.iter().filter(|run| run.crossing.is_none() || run.diverged).count();
    if missed > 0 {
        return Some(Crossed::Missed { missed, seeds: outcomes.len() });
    }
    let mut values = Values::new();
    for run in measurements.tokens.iter().filter(|run| !run.diverged) {
        if let Some(crossing) = run.crossing {
            let cell = values.entry(measurements.study.repeated(&run.arm).to_owned()).or_default().entry(run.seed).or_default();
            // The arm's own run comes before those that repeat it.
            let at = if measurements.study.repeated(&run.arm) == run.arm { 0 } else { cell.len() };
            cell.insert(at, crossing.tokens(measurements.study.estimator).ln());
        }
    }
    Layout::of(&values, baseline).and_then(|layout| layout.contrast(&[(arm, 1.0), (baseline, -1.0)])).ok().map(Crossed::Measured)
}

/// The same as text.
pub(super) fn crossing(measurements: &Measurements, arm: &str, baseline: &str) -> Option<String> {
    Some(match crossed(measurements, arm, baseline)? {
        Crossed::Missed { missed, seeds } => format!("not reached in {missed} of {seeds} seeds"),
        Crossed::Measured(measured) => with_interval(Unit::SignedPercent, &measured, f64::exp_m1),
    })
}

/// The claim's verdict is that of its size, or of its one line.
pub(super) fn headline(lines: Vec<Line>, unit: Unit) -> (Finding, Vec<Line>) {
    let Some(line) = lines.last() else {
        return (Finding::bare(Verdict::NotRun("nothing is asked".into()), unit, "The claim has no line to judge."), lines);
    };
    let finding = finding(line, unit);
    (finding, lines)
}

/// A claim that holds when all of its lines do; its number is the largest.
pub(super) fn all(lines: Vec<Line>, unit: Unit) -> (Finding, Vec<Line>) {
    let of = |word: &str| lines.iter().filter(|line| line.verdict == word).map(|line| line.what.as_str()).collect::<Vec<_>>();
    let (differs, held) = (of("differs"), of("reproduced").len());
    let (verdict, why) = if !differs.is_empty() {
        (Verdict::Differs, format!("It is the other way round for {}; it holds for {held} of {}.", differs.join(", "), lines.len()))
    } else if held == lines.len() {
        (Verdict::Reproduced, format!("It holds for each of {held}."))
    } else {
        (Verdict::Inconclusive, format!("It holds for {held} of {}; the others are not settled.", lines.len()))
    };
    let worst = lines.iter().max_by(|a, b| a.number.unwrap_or(f64::NEG_INFINITY).total_cmp(&b.number.unwrap_or(f64::NEG_INFINITY)));
    let finding = worst.map(|line| Finding { verdict: verdict.clone(), why: why.clone(), ..finding(line, unit) });
    (finding.unwrap_or_else(|| Finding::bare(verdict, unit, why)), lines)
}

fn finding(line: &Line, unit: Unit) -> Finding {
    let reason = line.reason.clone().unwrap_or_default();
    let verdict = match line.verdict.as_str() {
        "reproduced" => Verdict::Reproduced,
        "differs" => Verdict::Differs,
        "cannot-decide" => Verdict::CannotDecide(reason),
        "not-run" => Verdict::NotRun(reason),
        _ => Verdict::Inconclusive,
    };
    let interval = line.interval.map(|[low, high]| Interval::new(low, high));
    Finding { verdict, number: line.number, lower_bound: false, interval, n: line.n, unit, why: line.why.clone() }
}

/// A reason as a sentence begins.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
