//! The planner accepts exactly what the trainer accepts: every recipe that words can make, and numbers at the edges.
//!
//! The planner's way is a manifest, its check, and a plan; the trainer's is the text of a run file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)] // a test's way to fail

use std::path::Path;

use crate::grid;
use contract::defect::Defect;
use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use contract::run_file::RunFile;
use study::manifest::profile::{Model, Profile};
use study::manifest::{Manifests, Recipe};
use study::plan::{Build, Selection, plan};

use serde_yaml::Value;

const ARM: &str = "fp8";

fn manifests() -> Manifests {
    Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// What the planner makes of profile `smoke` with one arm; the run file it emits.
fn planned(manifests: &Manifests) -> Result<String, String> {
    let profile = &manifests.profiles["smoke"];
    manifests.recipes[ARM].check()?;
    manifests.models[&profile.model].check()?;
    let selection = Selection { only_arms: vec![ARM.to_owned()], only_seeds: vec![1], ..Selection::default() };
    let build = Build::only("code");
    let plan = plan(manifests, profile, &selection, &build, None).map_err(|error| error.to_string())?;
    Ok(plan.runs[0].run_yaml.clone())
}

/// Both ways; whether they accept it. An accepted run file is the one that the trainer was shown.
fn both(manifests: &Manifests, run: &Value) -> bool {
    let text = serde_yaml::to_string(run).unwrap();
    match (planned(manifests), RunFile::parse("run.yaml", &text)) {
        (Ok(planned), Ok(read)) => {
            assert_eq!(RunFile::parse("planned", &planned).unwrap(), read);
            true
        }
        (Err(_), Err(_)) => false,
        (planned, trained) => panic!("the planner says {planned:?}, the trainer {trained:?}, of\n{text}"),
    }
}

fn operands() -> impl Iterator<Item = OperandSpec> {
    let rotations = [16, 24, 128].into_iter().flat_map(|size| Signs::ALL.iter().map(move |&signs| Some(Rotation { size, signs })));
    let rotations: Vec<Option<Rotation>> = [None].into_iter().chain(rotations).collect();
    let words = Format::ALL.iter().flat_map(|&format| Block::ALL.iter().map(move |&block| (format, block)));
    let words = words.flat_map(|(format, block)| ScaleRule::ALL.iter().map(move |&scale| (format, block, scale)));
    let words = words.flat_map(|(format, block, scale)| Rounding::ALL.iter().map(move |&rounding| (format, block, scale, rounding)));
    words.flat_map(move |(format, block, scale, rounding)| {
        rotations.clone().into_iter().map(move |rotation| OperandSpec { format, block, scale, rounding, rotation })
    })
}

/// A recipe as its manifest would say it, and as a run file does: one pass with this operand on both sides, BF16 elsewhere.
fn recipes(pass: &str, spec: &OperandSpec) -> (Recipe, Value) {
    let plain = "{format: bf16, block: tensor, scale: none, rounding: nearest-even}";
    let tested = serde_json::to_string(spec).unwrap();
    let delayed = if spec.scale == ScaleRule::Delayed { "delayed_scaling: {history: 4, choose: max}\n" } else { "" };
    let passes = |name: &dyn Fn(&str) -> String| {
        let [f, d, w] = ["fprop", "dgrad", "wgrad"].map(name);
        format!(
            "{{fprop: {{input: {f}, weight: {f}}}, dgrad: {{output_gradient: {d}, weight: {d}}}, wgrad: {{output_gradient: {w}, input: {w}}}}}"
        )
    };
    let named = passes(&|of| if of == pass { "tested" } else { "plain" }.to_owned());
    let spelled = passes(&|of| if of == pass { tested.clone() } else { plain.to_owned() });
    let rest = format!("stochastic_seed: per-step\n{delayed}");
    let manifest = format!("id: {ARM}\ntitle: t\nlabel: l\noperands:\n  plain: {plain}\n  tested: {tested}\npasses: {named}\n{rest}");
    (serde_yaml::from_str(&manifest).unwrap(), serde_yaml::from_str(&format!("id: {ARM}\npasses: {spelled}\n{rest}")).unwrap())
}

#[test]
fn every_recipe_that_words_can_make() {
    let start = manifests();
    let base: Value = serde_yaml::from_str(&planned(&start).unwrap()).unwrap();
    let counts = ["fprop", "dgrad", "wgrad"].map(|pass| {
        let (mut manifests, mut run) = (start.clone(), base.clone());
        std::thread::spawn(move || {
            let (mut all, mut accepted) = (0, 0);
            for spec in operands() {
                let (recipe, section) = recipes(pass, &spec);
                manifests.recipes.insert(ARM.to_owned(), recipe);
                run["recipe"] = section;
                all += 1;
                accepted += usize::from(both(&manifests, &run));
            }
            (all, accepted)
        })
    });
    let (mut all, mut accepted) = (0, 0);
    for count in counts {
        let (of_all, of_accepted) = count.join().unwrap();
        all += of_all;
        accepted += of_accepted;
    }
    assert!(all >= 5_000, "only {all} recipes");
    // Blocks of 32: 3 formats, 2 blocks, 3 scale rules, 3 roundings; tensor scales: 2 formats, 2 rules, 2 roundings; BF16: 2 roundings; F32: 1.
    // Rotations: none or H16 with any signs, and H128 where it divides the axis.
    let (spelled, turned) = (54 + 8 + 2 + 1, 1 + 3);
    assert!(accepted >= 3 * spelled * turned && accepted < 3 * spelled * (turned + 3) && accepted < all, "{accepted} of {all}");
}

/// A change to the manifests, and the same change to the run file.
type Change = (fn(&mut Recipe, &mut Profile, &mut Model), fn(&mut Value));

/// Each defect in each recipe of the repository, with one micro-batch and with two: it is taken by both where it says that it is defined, which is in
/// one of them at least, and of sums in all that are taken without it.
#[test]
fn every_defect_in_every_recipe() {
    let start = manifests();
    let base: Value = serde_yaml::from_str(&planned(&start).unwrap()).unwrap();
    for (&defect, accumulation) in Defect::ALL.iter().flat_map(|defect| [(defect, 1), (defect, 2)]) {
        let (mut without, mut accepted) = (0, 0);
        for recipe in start.recipes.values() {
            for defect in [None, Some(defect)] {
                let (mut manifests, mut run) = (start.clone(), base.clone());
                let recipe = Recipe { id: start.recipes[ARM].id.clone(), defect, ..recipe.clone() };
                run["recipe"]["passes"] = serde_yaml::to_value(recipe.resolved().unwrap()).unwrap();
                run["recipe"]["stochastic_seed"] = serde_yaml::to_value(recipe.stochastic_seed).unwrap();
                run["recipe"]["delayed_scaling"] = serde_yaml::to_value(recipe.delayed_scaling).unwrap();
                run["recipe"]["perturbation"] = recipe.perturbation.into();
                run["batch"]["accumulation"] = accumulation.into();
                if let Some(defect) = defect {
                    run["recipe"]["defect"] = defect.word().into();
                }
                manifests.recipes.insert(ARM.to_owned(), recipe);
                manifests.profiles.get_mut("smoke").unwrap().batch.accumulation = accumulation;
                *(if defect.is_some() { &mut accepted } else { &mut without }) += usize::from(both(&manifests, &run));
            }
        }
        let expected = match (defect, accumulation) {
            (Defect::SumsInBf16, 1) => 0..=0,
            (Defect::SumsInBf16, _) => without..=without,
            _ => 1..=without - 1,
        };
        assert!(without > 1 && expected.contains(&accepted), "{}: {accepted} of {without}", defect.word());
    }
}

#[test]
fn numbers_at_the_edges() {
    let start = manifests();
    let base: Value = serde_yaml::from_str(&planned(&start).unwrap()).unwrap();
    let cases: [(&str, bool, Change); 27] = [
        ("nothing", true, (|_, _, _| (), |_| ())),
        ("history 0", false, (|r, _, _| remember(r, 0), |run| run["recipe"]["delayed_scaling"]["history"] = 0.into())),
        ("history 1", true, (|r, _, _| remember(r, 1), |run| run["recipe"]["delayed_scaling"]["history"] = 1.into())),
        ("history 65536", true, (|r, _, _| remember(r, 65_536), |run| run["recipe"]["delayed_scaling"]["history"] = 65_536.into())),
        ("history 65537", false, (|r, _, _| remember(r, 65_537), |run| run["recipe"]["delayed_scaling"]["history"] = 65_537.into())),
        ("no history", false, (|r, _, _| r.delayed_scaling = None, |run| run["recipe"]["delayed_scaling"] = Value::Null)),
        ("perturbation 3", true, (|r, _, _| r.perturbation = 3, |run| run["recipe"]["perturbation"] = 3.into())),
        ("perturbation 4", false, (|r, _, _| r.perturbation = 4, |run| run["recipe"]["perturbation"] = 4.into())),
        ("layers 2^12", true, (|_, _, m| m.num_hidden_layers = 1 << 12, |run| run["model"]["num_hidden_layers"] = (1 << 12).into())),
        (
            "layers 2^12 + 1",
            false,
            (|_, _, m| m.num_hidden_layers = (1 << 12) + 1, |run| run["model"]["num_hidden_layers"] = ((1 << 12) + 1).into()),
        ),
        ("no layers", false, (|_, _, m| m.num_hidden_layers = 0, |run| run["model"]["num_hidden_layers"] = 0.into())),
        ("an odd head", false, (|_, _, m| m.head_dim = 31, |run| run["model"]["head_dim"] = 31.into())),
        ("width 2^24 + 32", false, (|_, _, m| m.hidden_size = (1 << 24) + 32, |run| run["model"]["hidden_size"] = ((1 << 24) + 32).into())),
        ("width beyond memory", false, (|_, _, m| m.hidden_size = u64::MAX, |run| run["model"]["hidden_size"] = u64::MAX.into())),
        ("rope nan", false, (|_, _, m| m.rope_theta = f64::NAN, |run| run["model"]["rope_theta"] = f64::NAN.into())),
        ("sequences 2^31", false, (|_, p, _| p.batch.sequences = 1 << 31, |run| run["batch"]["sequences"] = (1u64 << 31).into())),
        ("sequences 2^64 - 1", false, (|_, p, _| p.batch.sequences = usize::MAX, |run| run["batch"]["sequences"] = u64::MAX.into())),
        ("no sequences", false, (|_, p, _| p.batch.sequences = 0, |run| run["batch"]["sequences"] = 0.into())),
        ("no parts", false, (|_, p, _| p.batch.accumulation = 0, |run| run["batch"]["accumulation"] = 0.into())),
        ("parts that do not divide", false, (|_, p, _| p.batch.accumulation = 3, |run| run["batch"]["accumulation"] = 3.into())),
        ("rate nan", false, (|_, p, _| p.optimizer.learning_rate = f64::NAN, |run| run["optimizer"]["learning_rate"] = f64::NAN.into())),
        ("decay below zero", false, (|_, p, _| p.optimizer.weight_decay = -0.1, |run| run["optimizer"]["weight_decay"] = (-0.1).into())),
        ("beta 1", false, (|_, p, _| p.optimizer.beta2 = 1.0, |run| run["optimizer"]["beta2"] = 1.0.into())),
        (
            "clip infinite",
            false,
            (|_, p, _| p.optimizer.clip_norm = f64::INFINITY, |run| run["optimizer"]["clip_norm"] = f64::INFINITY.into()),
        ),
        ("target below zero", false, (|_, p, _| p.target_loss = Some(-1.0), |run| run["target_loss"] = (-1.0).into())),
        ("no steps", false, (|_, p, _| p.budget.steps = 0, |run| run["budget"]["steps"] = 0.into())),
        ("no target", true, (|_, p, _| p.target_loss = None, |run| run["target_loss"] = Value::Null)),
    ];
    for (name, is_accepted, (in_manifests, in_run)) in cases {
        let (mut manifests, mut run) = (start.clone(), base.clone());
        let (mut profile, mut recipe) = (manifests.profiles["smoke"].clone(), manifests.recipes[ARM].clone());
        let mut model = manifests.models[&profile.model].clone();
        in_manifests(&mut recipe, &mut profile, &mut model);
        manifests.models.insert(profile.model.clone(), model);
        manifests.recipes.insert(ARM.to_owned(), recipe);
        manifests.profiles.insert(profile.id.to_string(), profile);
        in_run(&mut run);
        assert_eq!(both(&manifests, &run), is_accepted, "{name}");
    }
}

/// Sizes and counts over the whole range of a machine's words, two at a time and all at once.
#[test]
fn sizes_and_counts_on_a_grid() {
    let start = manifests();
    let base: Value = serde_yaml::from_str(&planned(&start).unwrap()).unwrap();
    let points = grid::points(4_000);
    let half = points.len() / 2;
    let walk = |points: &[grid::Point]| {
        let mut manifests = start.clone();
        let (profile, model) = (start.profiles["smoke"].clone(), start.models[&start.profiles["smoke"].model].clone());
        let mut accepted = 0;
        for point in points {
            let (mut changed, mut sizes, mut run) = (profile.clone(), model.clone(), base.clone());
            // What is logged of the first steps is no dimension; without it the number of steps is free.
            changed.logging.quantisation_steps.clear();
            run["logging"]["quantisation_steps"] = Value::Sequence(Vec::new());
            for &(dimension, value) in point {
                let grid::Dimension { section, key, set, .. } = grid::DIMENSIONS[dimension];
                set(&mut sizes, &mut changed, value);
                run[section][key] = value.into();
            }
            manifests.models.insert(profile.model.clone(), sizes);
            manifests.profiles.insert(profile.id.to_string(), changed);
            match std::panic::catch_unwind(|| both(&manifests, &run)) {
                Ok(is_accepted) => accepted += usize::from(is_accepted),
                Err(_) => panic!("at {}", grid::text(point)),
            }
        }
        accepted
    };
    let accepted: usize = std::thread::scope(|scope| {
        let halves = [&points[..half], &points[half..]].map(|points| scope.spawn(move || walk(points)));
        halves.into_iter().map(|half| half.join().unwrap()).sum()
    });
    assert!(points.len() > 10_000, "only {} points", points.len());
    // Both answers are asked for, often.
    assert!(accepted > 400 && accepted < points.len() / 2, "{accepted} of {}", points.len());
    println!("{} points, {accepted} accepted", points.len());
}

fn remember(recipe: &mut Recipe, history: usize) {
    recipe.delayed_scaling.as_mut().unwrap().history = history;
}
