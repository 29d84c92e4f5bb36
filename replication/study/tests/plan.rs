//! Plans: which runs a selection asks for, and what a run's key depends on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::collections::BTreeSet;
use std::path::Path;

use contract::run_file::Gemm;
use study::manifest::Manifests;
use study::plan::{Build, Plan, Selection, plan};

fn manifests() -> Manifests {
    Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn build() -> Build {
    Build::only("code")
}

fn select(only: &[&str], seeds: Option<usize>) -> Plan {
    let manifests = manifests();
    let selection = Selection { paper: None, only: only.iter().map(|name| (*name).to_owned()).collect(), seeds, ..Selection::default() };
    plan(&manifests, &manifests.profiles["cpu"], &selection, &build(), None).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_whole_profile_is_every_arm_with_every_seed() {
    let whole = select(&[], None);
    assert_eq!(whole.runs.len(), whole.arms.len() * whole.seeds.len());
    assert!(!whole.partial);
    let keys: BTreeSet<String> = whole.runs.iter().map(study::plan::PlannedRun::key).collect();
    assert_eq!(keys.len(), whole.runs.len(), "two runs share a key");
}

#[test]
fn every_arm_that_a_claim_of_the_main_paper_names_is_in_the_default_profile() {
    let manifests = manifests();
    let arms = select(&[], None).arms;
    for (paper, claim) in manifests.claims() {
        for arm in claim.metric.arms() {
            assert!(arms.iter().any(|known| known == arm), "{} {}: {arm}", paper.id, claim.id);
        }
    }
}

#[test]
fn a_claim_brings_its_arms_its_baseline_and_the_claims_it_rests_on() {
    assert_eq!(select(&["T1-FDW"], None).arms, ["fp8", "mxfp4-fdw"]);
    assert_eq!(select(&["H2"], None).arms, ["fp8", "mxfp4-fdw-sr", "mxfp4-fdw-rh16"]);
    assert_eq!(select(&["MX-RHT-HELPS"], None).arms, ["bf16", "bf16-mxfp4-dw", "bf16-mxfp4-dw-rh64"]);
    assert_eq!(select(&["bf16-mxfp4-dw"], None).arms, ["bf16", "bf16-mxfp4-dw"], "compared with its own paper's baseline");
    assert_eq!(select(&["T1-KERN"], None).arms, ["fp8"]);
    let second = select(&["2502.20586"], None);
    assert!(second.partial && second.arms == ["bf16", "bf16-mxfp4-dw", "bf16-mxfp4-dw-rh64", "bf16-mxfp4-dw-rh64-sr"]);
}

/// What a dry run says of memory, tokens and power is about the runs that it lists.
#[test]
fn a_selection_is_a_profile_of_its_own() {
    let profile = manifests().profiles["cpu"].clone();
    let selected = select(&["T1-H16"], Some(4)).selected(&profile);
    let groups: Vec<(&str, &[String])> = selected.arms.iter().map(|group| (group.group.as_str(), group.recipes.as_slice())).collect();
    let named = |arms: &[&str]| arms.iter().map(|arm| (*arm).to_owned()).collect::<Vec<_>>();
    assert_eq!(groups, [("Baselines", named(&["fp8"]).as_slice()), ("Table 1", &named(&["mxfp4-fdw", "mxfp4-fdw-h16"]))]);
    assert_eq!((selected.seeds, selected.budget.steps), (vec![1, 2, 3, 4], profile.budget.steps));
}

#[test]
fn seeds_are_cut_or_numbered_on() {
    assert_eq!(select(&["T1-F"], Some(1)).seeds, [1]);
    assert_eq!(select(&["T1-F"], Some(5)).seeds, [1, 2, 3, 4, 5]);
}

#[test]
fn a_key_follows_its_ingredients_and_nothing_else() {
    let manifests = manifests();
    let profile = &manifests.profiles["cpu"];
    let key = |manifests: &Manifests, build: &Build| {
        plan(manifests, &manifests.profiles["cpu"], &Selection::default(), build, None).unwrap().runs[0].key()
    };
    let before = key(&manifests, &build());
    assert_eq!(before, key(&manifests, &build()));
    assert_ne!(before, key(&manifests, &Build::only("other")));
    assert_ne!(before, key(&manifests, &Build { toolchain: "other".into(), ..build() }));

    let mut changed = manifests.clone();
    changed.profiles.get_mut("cpu").unwrap().optimizer.learning_rate *= 2.0;
    assert_ne!(before, key(&changed, &build()), "the learning rate is an ingredient");

    let mut cosmetic = manifests.clone();
    let cpu = cosmetic.profiles.get_mut("cpu").unwrap();
    cpu.title = "another title".into();
    cpu.step_time.repeats += 1;
    cpu.seeds.push(99);
    cosmetic.recipes.get_mut(&profile.arms[0].recipes[0]).unwrap().label = "another label".into();
    assert_eq!(before, key(&cosmetic, &build()), "titles, labels, timing repeats and other seeds are not");
}

#[test]
fn the_example_in_the_schema_is_what_the_plan_writes() {
    // Same keys in the same order at every level as docs/files.md shows: the trainer reads them strictly.
    let whole = select(&[], None);
    let run: serde_yaml::Value = serde_yaml::from_str(&whole.runs.last().unwrap().run_yaml).unwrap();
    let schema = include_str!("../../../docs/files.md");
    for key in run.as_mapping().unwrap().keys() {
        let key = key.as_str().unwrap();
        assert!(schema.contains(&format!("\n{key}:")), "docs/files.md does not show `{key}`");
    }
}

#[test]
fn a_paper_brings_its_claims_arms() {
    let manifests = manifests();
    let selection = Selection { paper: Some("2502.20586".into()), ..Selection::default() };
    let arms = plan(&manifests, &manifests.profiles["cpu"], &selection, &build(), None).unwrap().arms;
    assert_eq!(arms, ["bf16", "bf16-mxfp4-dw", "bf16-mxfp4-dw-rh64", "bf16-mxfp4-dw-rh64-sr"]);
}

/// The choice of products makes other runs of the arms that have packed ones, and of no other; where it means nothing it is refused.
#[test]
fn whose_products_is_part_of_a_run_that_has_them() {
    let manifests = manifests();
    let shards = study::manifest::resolve::unknown_shards(u64::from(u32::MAX));
    let plan_of = |profile: &str, gemm| {
        let selection = Selection { seeds: Some(1), gemm, ..Selection::default() };
        plan(&manifests, &manifests.profiles[profile], &selection, &build(), Some(&shards))
    };
    let [own, library] = Gemm::ALL.map(|gemm| plan_of("llama31-8b", gemm).unwrap().runs);
    let mut changed = 0;
    for (own, library) in own.iter().zip(&library) {
        assert!(!own.run_yaml.contains("gemm:"));
        if library.run_yaml.contains("\ngemm: hipblaslt\n") {
            assert_ne!(own.key(), library.key());
            changed += 1;
        } else {
            assert_eq!((&own.run_yaml, own.key()), (&library.run_yaml, library.key()));
        }
    }
    let is_changed = |arm: &str| library.iter().find(|run| run.arm.as_str() == arm).unwrap().run_yaml.contains("gemm: hipblaslt");
    assert!(changed > 0 && is_changed("mxfp4-fdw-h16") && is_changed("mxfp4-f") && !is_changed("fp8"));
    let refused = plan_of("cpu", Gemm::Hipblaslt).unwrap_err().to_string();
    assert!(
        refused.ends_with(
            "--gemm: hipblaslt is for packed MXFP4 on an AMD GPU (--device hip, gfx950), not for cpu, which this profile is for; use own, or leave it out"
        ),
        "{refused}"
    );
    assert!(plan_of("cpu", Gemm::Own).is_ok());
}

#[test]
fn an_arm_that_the_profile_lacks_is_an_error_that_says_so() {
    let manifests = manifests();
    let selection = Selection { only: vec!["T1-SR-F".into()], ..Selection::default() };
    let refused = plan(&manifests, &manifests.profiles["smoke"], &selection, &build(), None).unwrap_err().to_string();
    assert!(refused.contains("mxfp4-f-sr") && refused.contains("another profile"), "{refused}");
}
