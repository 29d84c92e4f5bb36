//! Where evidence disagrees, and what would decide a claim next.

use std::collections::BTreeSet;

use super::evidence::{Depth, Row};
use super::source::{Source, size};
use crate::judge::capital;
use crate::manifest::{Metric, Paper};
use crate::measure::curves::MATCHED_SLOPE;
use crate::number::fixed;

/// Rows on one claim, at comparable depth, that cannot all be the whole truth.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    pub paper: String,
    pub claim: String,
    pub text: String,
}

/// What would decide a claim, in a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Next {
    pub paper: String,
    pub claim: String,
    /// Where it stands: `decided`, `open` or `not run`.
    pub state: &'static str,
    pub text: String,
}

/// Of each claim the rows of which some two exclude each other: their 95 % intervals share no point, or their verdicts are opposite.
pub(super) fn disagreements(sources: &[Source], rows: &[Row]) -> Vec<Disagreement> {
    let mut found: Vec<Disagreement> = Vec::new();
    for row in rows {
        if found.iter().any(|known| known.paper == row.paper && known.claim == row.claim) {
            continue;
        }
        let of: Vec<&Row> = rows.iter().filter(|other| other.paper == row.paper && other.claim == row.claim).collect();
        let apart: Vec<&Row> = of.iter().copied().filter(|one| of.iter().any(|other| exclude(sources, one, other))).collect();
        if !apart.is_empty() {
            let said: Vec<String> = apart.iter().map(|row| said(sources, row)).collect();
            let involved: Vec<&Source> = apart.iter().map(|row| &sources[row.source]).collect();
            let text = format!("{}. {}", said.join("; "), differences(&involved));
            found.push(Disagreement { paper: row.paper.clone(), claim: row.claim.clone(), text });
        }
    }
    found
}

fn exclude(sources: &[Source], one: &Row, other: &Row) -> bool {
    if one.source == other.source || one.unit != other.unit || !one.depth.comparable(other.depth) {
        return false;
    }
    // A speed belongs to its machine; only what is said of the claim can disagree.
    let timed = one.depth == Depth::None && sources[one.source].hardware != sources[other.source].hardware;
    let apart = match (&one.number, &other.number) {
        (Ok(a), Ok(b)) if !timed => a.interval.zip(b.interval).is_some_and(|(a, b)| a.disjoint(&b)),
        _ => false,
    };
    let word = |row: &Row| row.word().replace("consistent", "reproduced");
    apart || matches!((word(one).as_str(), word(other).as_str()), ("reproduced", "differs") | ("differs", "reproduced"))
}

fn said(sources: &[Source], row: &Row) -> String {
    let word = row.verdict.as_ref().map(|(word, _)| format!(" ({word})")).unwrap_or_default();
    format!("{}: {}{word}", sources[row.source].label, row.text())
}

/// What else is not the same about some sources, and what is not on record of all of them.
fn differences(sources: &[&Source]) -> String {
    let of = |value: &dyn Fn(&Source) -> Option<String>| sources.iter().map(|source| value(source)).collect::<Vec<_>>();
    let kinds = [
        ("the model's size", of(&|source| source.parameters.map(|number| number.to_string()))),
        ("text and tokenizer", of(&|source| source.data.clone())),
        ("optimizer or schedule", of(&|source| source.training.clone())),
        ("the batch", of(&|source| source.batch.map(|tokens| tokens.to_string()))),
        ("the budget", of(&|source| source.tokens.map(|number| number.to_string()))),
        ("the hardware", of(&|source| Some(source.hardware.clone()))),
        ("who ran it", of(&|source| Some(source.public.to_string()))),
    ];
    let differs = |values: &[Option<String>]| values.iter().flatten().collect::<BTreeSet<_>>().len() > 1;
    let is_unknown = |values: &[Option<String>]| values.iter().any(Option::is_none);
    let named = |is_meant: &dyn Fn(&[Option<String>]) -> bool| -> String {
        kinds.iter().filter(|(_, values)| is_meant(values)).map(|(what, _)| *what).collect::<Vec<_>>().join(", ")
    };
    let mut text = match named(&differs).as_str() {
        "" => "Nothing that is recorded differs between them.".to_owned(),
        what => format!("Between them differ {what}."),
    };
    let unknown = named(&is_unknown);
    if !unknown.is_empty() {
        text.push_str(&format!(" Not on record of all of them: {unknown}."));
    }
    text
}

pub(super) fn next(papers: &[Paper], sources: &[Source], rows: &[Row]) -> Vec<Next> {
    let mut all = Vec::new();
    for paper in papers {
        for claim in &paper.claims {
            if matches!(claim.metric, Metric::SameAs { .. }) {
                continue;
            }
            let of: Vec<&Row> = rows
                .iter()
                .filter(|row| row.paper == paper.id.as_str() && row.claim == claim.id.as_str() && !sources[row.source].public)
                .collect();
            let (state, text) = one(sources, &of);
            all.push(Next { paper: paper.id.to_string(), claim: claim.id.to_string(), state, text });
        }
    }
    all
}

/// The state of a claim from its rows in campaigns.
fn one(sources: &[Source], rows: &[&Row]) -> (&'static str, String) {
    let judged: Vec<&Row> = rows.iter().copied().filter(|row| row.verdict.is_some()).collect();
    let decided: Vec<&Row> = judged.iter().copied().filter(|row| matches!(row.word(), "reproduced" | "differs")).collect();
    if !decided.is_empty() {
        let list: Vec<String> = decided.iter().map(|row| format!("{} in {}", row.word(), sources[row.source].label)).collect();
        return ("decided", format!("{}{}.", list.join(", "), elsewhere(sources, &judged, &decided)));
    }
    let ran: Vec<&Row> = judged.iter().copied().filter(|row| !matches!(row.word(), "not-run" | "failed")).collect();
    if ran.is_empty() {
        let why = judged.iter().rev().find_map(|row| row.verdict.as_ref()?.1.clone());
        return ("not run", why.map_or_else(|| "No campaign asks it.".to_owned(), |why| format!("{}.", capital(&why))));
    }
    let is_deep = |row: &&&Row| row.depth == Depth::None || sources[row.source].shallow.is_none();
    // The largest that has an interval: one seed says little, however large its model.
    let is_sure = |row: &Row| row.number.as_ref().is_ok_and(|number| number.interval.is_some());
    let Some(row) = ran.iter().filter(is_deep).max_by_key(|row| (is_sure(row), sources[row.source].parameters)) else {
        let [low, high] = MATCHED_SLOPE.map(|slope| fixed(slope, 2));
        let text =
            format!("Longer runs: no campaign with these arms gets as flat as the paper's target ({low} to {high} nat per ln-token).");
        return ("open", text);
    };
    ("open", lacks(&sources[row.source], row))
}

/// What is known of other sizes and batches than those at which a claim is decided, where these are of one size.
fn elsewhere(sources: &[Source], judged: &[&Row], decided: &[&Row]) -> String {
    let sizes: BTreeSet<_> = decided.iter().filter_map(|row| sources[row.source].parameters).collect();
    if decided.iter().all(|row| row.depth == Depth::None) || sizes.len() > 1 {
        return String::new();
    }
    let settings: BTreeSet<_> = decided.iter().map(|row| (sources[row.source].parameters, sources[row.source].batch)).collect();
    let is_open = |row: &&&Row| {
        let source = &sources[row.source];
        matches!(row.word(), "inconclusive" | "cannot-decide")
            && source.shallow.is_none()
            && !settings.contains(&(source.parameters, source.batch))
    };
    let open: Vec<String> = judged.iter().filter(is_open).map(|row| said(sources, row)).collect();
    if open.is_empty() {
        "; another size would show whether that holds".to_owned()
    } else {
        format!("; not settled at other sizes or batches: {}", open.join("; "))
    }
}

/// What an undecided campaign at the paper's depth lacks.
fn lacks(source: &Source, row: &Row) -> String {
    let have = row.number.as_ref().map_or(source.seeds[1], |number| number.n);
    match row.seeds_to_decide {
        Some(wanted) if wanted > have as f64 => format!(
            "At {} about {} seeds in place of {have}, for a chance of 80 % to say reproduced if the paper is right. {}",
            source.parameters.map(size).unwrap_or_default(),
            fixed(wanted, 0),
            row.why
        ),
        _ => format!("{}: {}", source.label, row.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Unit;
    use crate::statistics::Interval;
    use crate::synthesis::Number;

    fn source(label: &str, parameters: u64, shallow: Option<&str>) -> Source {
        Source {
            name: label.to_owned(),
            label: label.to_owned(),
            parameters: Some(parameters),
            tokens: None,
            profile: label.to_owned(),
            hardware: String::new(),
            data: None,
            training: None,
            learning_rate: None,
            batch: None,
            seeds: [3, 4],
            runs: [3, 3],
            judged_by: None,
            link: None,
            shallow: shallow.map(str::to_owned),
            public: false,
            seed_numbers: BTreeSet::new(),
            traces: BTreeSet::new(),
        }
    }

    fn row(source: usize, verdict: &str, interval: Option<(f64, f64)>) -> Row {
        let interval = interval.map(|(low, high)| Interval::new(low, high));
        Row {
            paper: "paper".to_owned(),
            claim: "claim".to_owned(),
            source,
            depth: Depth::Late,
            arm: "arm".to_owned(),
            baseline: "fp8".to_owned(),
            kind: None,
            unit: Unit::SignedPercent,
            number: Ok(Number { value: 0.1, interval, n: 3 }),
            measured: None,
            scatter: None,
            gap: None,
            verdict: Some((verdict.to_owned(), None)),
            direction: None,
            why: format!("why of {source}"),
            seeds_to_decide: None,
        }
    }

    #[test]
    fn what_is_decided_at_one_size_says_what_others_are_known_to_say() {
        let sources = [source("small", 1, None), source("large", 2, None), source("early", 3, Some("the budget ends before"))];
        let (decided, open, early) =
            (row(0, "differs", Some((0.0, 0.2))), row(1, "inconclusive", Some((0.0, 0.2))), row(2, "cannot-decide", None));
        let said = |rows: &[&Row]| one(&sources, rows);
        assert_eq!(said(&[&decided, &early]), ("decided", "differs in small; another size would show whether that holds.".to_owned()));
        let (state, text) = said(&[&decided, &open]);
        assert!(state == "decided" && text.starts_with("differs in small; not settled at other sizes or batches: large: +10.0"), "{text}");
        let both = row(1, "differs", Some((0.0, 0.2)));
        assert_eq!(said(&[&decided, &both]).1, "differs in small, differs in large.");
    }

    #[test]
    fn an_open_claim_is_told_from_the_largest_campaign_with_an_interval() {
        let sources = [source("small", 1, None), source("large", 2, None), source("early", 3, Some("the budget ends before"))];
        let (sure, single, early) =
            (row(0, "inconclusive", Some((0.0, 0.2))), row(1, "inconclusive", None), row(2, "inconclusive", Some((0.0, 0.2))));
        let said = |rows: &[&Row]| one(&sources, rows).1;
        assert_eq!(said(&[&sure, &single, &early]), "small: why of 0");
        assert_eq!(said(&[&single, &early]), "large: why of 1");
        assert!(said(&[&early]).starts_with("Longer runs: "));
    }
}
