#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::layout::Component;
use crate::manifest::Manifests;
use crate::number::Unit;

fn paper() -> Paper {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Manifests::load(&root).unwrap().papers.into_values().find(|paper| paper.id.as_str() == "2605.09825").unwrap()
}

/// A campaign of the model with these seeds.
fn source(seeds: std::ops::Range<u64>) -> Source {
    Source {
        name: format!("seeds from {}", seeds.start),
        label: String::new(),
        parameters: Some(1_000),
        tokens: None,
        profile: String::new(),
        hardware: String::new(),
        data: Some("text".to_owned()),
        training: Some("schedule".to_owned()),
        learning_rate: Some(1e-3),
        batch: Some(1_024),
        seeds: [0; 2],
        runs: [0; 2],
        judged_by: None,
        link: None,
        shallow: None,
        public: false,
        seed_numbers: seeds.collect(),
        traces: BTreeSet::new(),
    }
}

/// T1-H16 (8 to 9 %, 2 points either way) in one campaign: the logarithm of its factor on tokens, and what one run scatters by; the baseline
/// has one run a seed, so the error is that of two means of `n`.
fn row(source: usize, number: f64, scatter: f64, n: usize) -> Row {
    let measured = Measured { number, error: scatter * (2.0 / n as f64).sqrt(), freedom: 4.0 * (n as f64 - 1.0), n };
    Row {
        paper: "2605.09825".to_owned(),
        claim: "T1-H16".to_owned(),
        source,
        depth: Depth::Matched,
        arm: "mxfp4-fdw-h16".to_owned(),
        baseline: "fp8".to_owned(),
        kind: None,
        unit: Unit::SignedPercent,
        number: Ok(Number::of(&measured, f64::exp_m1)),
        measured: Some(measured),
        scatter: Some(Component { square: scatter * scatter, freedom: 4 * (n - 1) }),
        gap: None,
        verdict: None,
        direction: None,
        why: String::new(),
        seeds_to_decide: None,
    }
}

fn of(sources: &[Source], rows: &[Row]) -> Vec<Together> {
    all(&[paper()], sources, rows)
}

fn close(one: f64, other: f64) {
    assert!((one - other).abs() <= 1e-12 * other.abs().max(1.0), "{one} and {other}");
}

/// Two campaigns of equal scatter that agree are nearly one campaign of all their seeds: the error is that of eight, and 8 and 16 degrees of
/// freedom are 23.1 by Welch, not 24.
#[test]
fn campaigns_that_agree_are_one_of_all_their_seeds() {
    let sources = [source(11..14), source(21..26)];
    let found = of(&sources, &[row(0, 0.08, 0.01, 3), row(1, 0.08, 0.01, 5)]);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    let freedom = 8.0_f64.powi(2) / (3.0_f64.powi(2) / 8.0 + 5.0_f64.powi(2) / 16.0);
    let whole = Measured { number: 0.08, error: 0.01 * (2.0_f64 / 8.0).sqrt(), freedom, n: 8 };
    let expected = Number::of(&whole, f64::exp_m1);
    close(one.number.value, expected.value);
    close(one.number.interval.unwrap().low, expected.interval.unwrap().low);
    close(one.number.interval.unwrap().high, expected.interval.unwrap().high);
    assert_eq!((one.number.n, one.parameters, one.place), (8, 1_000, Some(Place::Inside)));
    assert_eq!(one.parts.iter().map(|part| part.source).collect::<Vec<_>>(), [1, 0]);
    close(one.apart, 0.0);
}

/// A campaign weighs by its seeds, not by its scatter; how far two are apart is Welch's statistic.
#[test]
fn a_small_scatter_gives_no_weight() {
    let sources = [source(11..14), source(21..26)];
    let rows = [row(0, 0.10, 0.008, 3), row(1, 0.08, 0.018, 5)];
    let one = &of(&sources, &rows)[0];
    close(one.number.value, ((3.0 * 0.10 + 5.0 * 0.08) / 8.0_f64).exp_m1());
    let errors = [0, 1].map(|at: usize| rows[at].measured.unwrap().error);
    close(one.apart, 0.02 / errors[0].hypot(errors[1]));
}

/// Further apart than scatter allows: the half of the interval grows by that factor, and what is sure alone is sure no longer.
#[test]
fn campaigns_that_are_apart_widen_the_interval() {
    let sources = [source(11..14), source(21..26)];
    let half = |apart: f64| {
        let one = of(&sources, &[row(0, 0.08 + apart, 0.01, 3), row(1, 0.08, 0.01, 5)]).remove(0);
        let interval = one.number.interval.unwrap();
        ((interval.high.ln_1p() - interval.low.ln_1p()) / 2.0, one.apart, one.place)
    };
    let ((near, _, inside), (far, apart, border), (_, _, outside)) = (half(0.0), half(0.04), half(0.3));
    assert!(apart > 2.0);
    close(far, near * apart);
    assert_eq!((inside, border, outside), (Some(Place::Inside), Some(Place::Border), Some(Place::Border)));
    let above = of(&sources, &[row(0, 0.20, 0.01, 3), row(1, 0.20, 0.01, 5)]).remove(0);
    assert_eq!(above.place, Some(Place::Outside));
}

/// The same seeds may be the same runs; other training or another model is another thing.
#[test]
fn what_does_not_belong_together_is_not_put_together() {
    let rows = [row(0, 0.08, 0.01, 3), row(1, 0.08, 0.01, 5)];
    assert!(of(&[source(11..14), source(13..18)], &rows).is_empty());
    let other = |change: fn(&mut Source)| {
        let mut sources = [source(11..14), source(21..26)];
        change(&mut sources[1]);
        of(&sources, &rows)
    };
    assert_eq!(other(|_| {}).len(), 1);
    assert!(other(|source| source.parameters = Some(2_000)).is_empty());
    assert!(other(|source| source.training = Some("another".to_owned())).is_empty());
    assert!(other(|source| source.data = Some("another".to_owned())).is_empty());
    assert!(other(|source| source.public = true).is_empty());
    // Of three, the one with most seeds keeps its own; only what is new beside it joins.
    let three = [source(11..14), source(21..26), source(12..14)];
    let found = of(&three, &[row(0, 0.08, 0.01, 3), row(1, 0.08, 0.01, 5), row(2, 0.3, 0.01, 2)]);
    assert_eq!(found[0].number.n, 8);
}
