//! Where a gap sits: known parts come back as they were made, and those of a committed campaign are what its lines say.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use study::measure::curves::Stretch;
use study::measure::readings::Parts;
use study::measure::{Measurements, measure};
use study::packed;
use study::render::{RenderOptions, render};

use crate::committed;
use crate::synthetic::{self, Arm, STEPS, TOKENS_PER_STEP, loss, repository, run_directory, save};

/// Steps between readings; the synthetic budget has ten of them.
const EVERY: u64 = 32;
const ARMS: &[Arm] = &[
    Arm { id: "fp8", ratio: 1.0, spread: 0.001 },
    Arm { id: "fp8-again-1", ratio: 1.004, spread: 0.002 },
    Arm { id: "bf16", ratio: 0.99, spread: 0.002 },
    Arm { id: "mxfp4-f", ratio: 1.085, spread: 0.003 },
    Arm { id: "mxfp4-fdw", ratio: 1.265, spread: 0.005 },
    Arm { id: "mxfp4-fdw-h16", ratio: 1.084, spread: 0.003 },
];

/// What an arm's own forward pass adds to the loss in BF16; grows along the budget.
fn added(arm: &str, seed: u64, tokens: f64) -> f64 {
    let size = match arm {
        "fp8" => 0.002,
        "fp8-again-1" => 0.004,
        "mxfp4-f" => 0.031,
        "mxfp4-fdw" => 0.047,
        "mxfp4-fdw-h16" => 0.029,
        _ => 0.0,
    };
    size * (1.0 + 1e-6 * tokens) + if size > 0.0 { 0.0003 * ((seed * seed) as f64 + 100.0 * size) } else { 0.0 }
}

/// What a forward pass adds to FP8's own loss.
fn untrained(forward: &str, seed: u64) -> f64 {
    let turn = seed as f64 - 2.0;
    if forward == "mxfp4-f" { 0.09 + 0.002 * turn } else { 0.07 - 0.001 * turn }
}

fn reading_steps() -> impl Iterator<Item = u64> {
    (0..=STEPS / EVERY).map(|at| at * EVERY)
}

/// Adds readings to a synthetic campaign. Only FP8's own runs have the other forward passes, as in the ladder.
fn write_readings(directory: &Path, seeds: &[u64]) {
    let profile = directory.join("manifests/profile.yaml");
    let readings = format!("evaluation: {{readings: {{every_steps: {EVERY}, all: [bf16], arms: {{fp8: [mxfp4-f, mxfp4-f-h16]}}}}, ");
    let text = std::fs::read_to_string(&profile).unwrap();
    assert!(text.contains("evaluation: {every_steps"), "{text}");
    save(&profile, &text.replace("evaluation: {", &readings));
    for (arm, seed) in ARMS.iter().flat_map(|arm| seeds.iter().map(move |seed| (arm, *seed))) {
        let path = run_directory(directory, arm.id, seed).join("metrics.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        for step in reading_steps() {
            let tokens = step * TOKENS_PER_STEP;
            let own = loss(arm, seed, tokens as f64);
            let mut line = |recipe: &str, loss: f64| {
                let _ =
                    writeln!(text, "{{\"kind\":\"reading\",\"step\":{step},\"tokens\":{tokens},\"recipe\":\"{recipe}\",\"loss\":{loss}}}");
            };
            line("bf16", own - added(arm.id, seed, tokens as f64));
            if arm.id == "fp8" {
                line("mxfp4-f", own + untrained("mxfp4-f", seed));
                line("mxfp4-f-h16", own + untrained("mxfp4-f-h16", seed));
            }
        }
        save(&path, &text);
    }
}

fn campaign(seeds: &[u64]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    synthetic::write_arms(directory.path(), ARMS, seeds);
    write_readings(directory.path(), seeds);
    directory
}

fn found<'a>(measurements: &'a Measurements, arm: &str, over: Option<Stretch>, last: u64) -> &'a Parts {
    let wanted = |parts: &&Parts| parts.arm == arm && parts.over == over && parts.tokens.last() == Some(&last);
    measurements.readings().iter().find(wanted).unwrap()
}

/// Gap, training and reading of `id` over `steps`, from the formulas that the campaign was made of.
fn made(id: &str, seeds: &[u64], steps: &[u64]) -> [f64; 3] {
    let arm = |id: &str| *ARMS.iter().find(|arm| arm.id == id).unwrap();
    let over = |of: &dyn Fn(u64, f64) -> f64| {
        let each = seeds.iter().flat_map(|seed| steps.iter().map(move |step| (*seed, (step * TOKENS_PER_STEP) as f64)));
        each.map(|(seed, tokens)| of(seed, tokens)).sum::<f64>() / (seeds.len() * steps.len()) as f64
    };
    let base = |of: &dyn Fn(&Arm, u64, f64) -> f64| {
        over(&|seed, tokens| 0.5 * (of(&arm("fp8"), seed, tokens) + of(&arm("fp8-again-1"), seed, tokens)))
    };
    let own = over(&|seed, tokens| loss(&arm(id), seed, tokens)) - base(&loss);
    let reading = over(&|seed, tokens| added(id, seed, tokens)) - base(&|arm, seed, tokens| added(arm.id, seed, tokens));
    [own, own - reading, reading]
}

#[test]
fn known_parts_come_back_as_they_were_made() {
    let directory = campaign(&[1, 2, 3]);
    let measurements = measure(directory.path()).unwrap();
    let late: Vec<u64> = reading_steps().filter(|step| step * 4 > STEPS * 3).collect();
    assert_eq!(late, [256, 288, 320]);
    for arm in ["bf16", "mxfp4-f", "mxfp4-fdw", "mxfp4-fdw-h16"] {
        for (over, steps) in [(None, &late[1..2]), (Some(Stretch::LastQuarter), &late[..])] {
            let parts = found(&measurements, arm, over, steps[steps.len() - 1] * TOKENS_PER_STEP);
            let numbers = [parts.gap, parts.training, parts.reading].map(|measured| measured.number);
            for (number, made) in numbers.iter().zip(made(arm, &[1, 2, 3], steps)) {
                assert!((number - made).abs() < 1e-12, "{arm} {over:?}: {numbers:?}, made {made}");
            }
            assert_eq!((parts.gap.n, parts.tokens.len()), (3, steps.len()));
        }
    }
    // F+D+W has the forward pass of F; H16 in all products that of H16 in the forward pass alone. The mean over seeds has no turn.
    let last = STEPS * TOKENS_PER_STEP;
    for (arm, forward, size) in [("mxfp4-f", "mxfp4-f", 0.09), ("mxfp4-fdw", "mxfp4-f", 0.09), ("mxfp4-fdw-h16", "mxfp4-f-h16", 0.07)] {
        let (through, measured) = found(&measurements, arm, Some(Stretch::LastQuarter), last).untrained.as_ref().unwrap();
        assert_eq!(through, forward);
        assert!((measured.number - size).abs() < 1e-12, "{arm}: {}", measured.number);
    }
    assert!(!measurements.readings().iter().any(|parts| parts.arm.starts_with("fp8")), "the baseline has no gap to itself");
}

#[test]
fn gaps_are_paired_by_seed_and_a_run_without_readings_counts_for_nothing() {
    let directory = campaign(&[1, 2, 3]);
    // Without its readings a run has a gap but no parts; they would not add up.
    let path = run_directory(directory.path(), "mxfp4-fdw", 3).join("metrics.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    save(&path, &text.lines().filter(|line| !line.contains("\"reading\"")).map(|line| format!("{line}\n")).collect::<String>());
    let measurements = measure(directory.path()).unwrap();
    let parts = found(&measurements, "mxfp4-fdw", None, STEPS * TOKENS_PER_STEP);
    let [gap, training, reading] = made("mxfp4-fdw", &[1, 2], &[STEPS]);
    assert_eq!(parts.gap.n, 2);
    for (measured, made) in [(parts.gap, gap), (parts.training, training), (parts.reading, reading)] {
        assert!((measured.number - made).abs() < 1e-12, "{} for {made}", measured.number);
    }
    assert!(
        (found(&measurements, "mxfp4-f", None, STEPS * TOKENS_PER_STEP).gap.number - made("mxfp4-f", &[1, 2, 3], &[STEPS])[0]).abs()
            < 1e-12
    );
}

#[test]
fn a_section_stands_where_readings_are_and_nowhere_else() {
    let (with, without) = (campaign(&[1, 2, 3]), tempfile::tempdir().unwrap());
    synthetic::write_arms(without.path(), ARMS, &[1, 2, 3]);
    for (directory, there) in [(with.path(), true), (without.path(), false)] {
        render(directory, &repository().join("paper"), &RenderOptions::default()).unwrap();
        for file in ["report.html", "report.tex"] {
            let text = std::fs::read_to_string(directory.join(file)).unwrap();
            assert_eq!(text.contains("Where the gap sits"), there, "{file}");
        }
        for file in ["data/readings.csv", "tables/readings.tex", "figures/readings-training.svg", "figures/readings-reading.tex"] {
            assert_eq!(directory.join(file).exists(), there, "{file}");
        }
    }
    // One seed has parts, and no intervals.
    let one_seed = measure(campaign(&[1]).path()).unwrap();
    let parts = one_seed.readings();
    assert!(!parts.is_empty() && parts.iter().all(|parts| parts.gap.number.is_finite() && parts.gap.interval(0.95).is_none()));
    let [table, macros] = ["tables/readings.tex", "macros.tex"].map(|file| std::fs::read_to_string(with.path().join(file)).unwrap());
    let numbers: Vec<&str> = macros.lines().filter(|line| line.contains("\\SetResult{readings.")).collect();
    assert!(numbers.len() > 20, "{numbers:?}");
    insta::assert_snapshot!(format!("{table}{}", numbers.join("\n")));
}

/// Loss by tokens, of the lines of one kind and, for readings, one recipe.
fn lines(directory: &Path, arm: &str, seed: u64, recipe: Option<&str>) -> BTreeMap<u64, f64> {
    let text = packed::text(&run_directory(directory, arm, seed).join("metrics.jsonl")).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let wanted = all.filter(|line| match recipe {
        Some(recipe) => line["kind"] == "reading" && line["recipe"] == recipe,
        None => line["kind"] == "eval",
    });
    wanted.map(|line| (line["tokens"].as_u64().unwrap(), line["loss"].as_f64().unwrap())).collect()
}

/// Eight arms and four seeds, nothing repeated: the layout's scatter is what arms and seeds leave over, so everything can be computed by hand
/// from the lines of the logs.
#[test]
fn a_committed_campaign_by_hand() {
    const SEEDS: [u64; 4] = [11, 12, 13, 14];
    let directory = committed::of("ladder-8m");
    let measurements = committed::measured(&directory);
    let arms = ["fp8", "bf16", "mxfp4-f", "mxfp4-fd", "mxfp4-fdw", "mxfp4-fdw-sr", "mxfp4-fdw-rh16", "mxfp4-fdw-h16"];
    // The last quarter of 6,330 steps of 32,768 tokens begins after step 4,747.
    let tokens = [4800, 5100, 5400, 5700, 6000, 6300, 6330].map(|step: u64| step * 32_768);
    let mean = |losses: &BTreeMap<u64, f64>| tokens.iter().map(|at| losses[at]).sum::<f64>() / 7.0;
    let cells = arms.map(|arm| {
        SEEDS.map(|seed| {
            let (own, plain) = (mean(&lines(&directory, arm, seed, None)), mean(&lines(&directory, arm, seed, Some("bf16"))));
            [own, plain, own - plain]
        })
    });
    for (at, arm) in arms.iter().enumerate().skip(1) {
        let parts = found(measurements, arm, Some(Stretch::LastQuarter), tokens[6]);
        assert_eq!(parts.tokens, tokens);
        for (part, measured) in [parts.gap, parts.training, parts.reading].iter().enumerate() {
            let number = [0, 1, 2, 3].map(|seed| cells[at][seed][part] - cells[0][seed][part]).iter().sum::<f64>() / 4.0;
            assert!((measured.number - number).abs() < 1e-12, "{arm} {part}: {} for {number}", measured.number);
            let of_arm = cells.map(|seeds| seeds.iter().map(|cell| cell[part]).sum::<f64>() / 4.0);
            let of_seed = [0, 1, 2, 3].map(|seed| cells.iter().map(|seeds| seeds[seed][part]).sum::<f64>() / 8.0);
            let all = of_seed.iter().sum::<f64>() / 4.0;
            let left = |arm: usize, seed: usize| cells[arm][seed][part] - of_arm[arm] - of_seed[seed] + all;
            let squares = (0..8).flat_map(|arm| (0..4).map(move |seed| (arm, seed))).map(|(arm, seed)| left(arm, seed).powi(2));
            // (8 - 1) (4 - 1) degrees of freedom; two arms' means over four seeds differ by half of a run's variance.
            let variance = squares.sum::<f64>() / 21.0;
            let half = 2.079_613_845 * (variance / 2.0).sqrt();
            let interval = measured.interval(0.95).unwrap();
            assert!((interval.high - number - half).abs() < 1e-8, "{arm} {part}: {interval:?} for {number} ± {half}");
        }
    }
    for (arm, forward) in
        [("mxfp4-fd", "mxfp4-f"), ("mxfp4-fdw-sr", "mxfp4-f-sr"), ("mxfp4-fdw-rh16", "mxfp4-f-rh16"), ("mxfp4-fdw-h16", "mxfp4-f-h16")]
    {
        let added = SEEDS.map(|seed| mean(&lines(&directory, "fp8", seed, Some(forward))) - mean(&lines(&directory, "fp8", seed, None)));
        let (through, measured) = found(measurements, arm, Some(Stretch::LastQuarter), tokens[6]).untrained.as_ref().unwrap();
        assert_eq!(through, forward);
        assert!((measured.number - added.iter().sum::<f64>() / 4.0).abs() < 1e-12, "{arm}");
    }
}
