//! The text of run.yaml is part of every run's key: it stays byte for byte what it was when the committed campaigns were made.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use std::path::Path;

use study::files::sha256;
use study::manifest::Manifests;
use study::manifest::profile::{Shard, Shards};
use study::plan::{Build, Selection, plan, step_run_file};

fn shards() -> Shards {
    let shard = |digit: &str| Shard { tokens: 1 << 40, sha256_bin: digit.repeat(64), sha256_idx: digit.repeat(64) };
    Shards { train: shard("1"), validation: shard("2"), end_of_document: 0 }
}

/// Of each profile: the hash of all its run files, every arm with every seed, and of the files that time each arm's step.
const KNOWN: &[(&str, &str)] = &[
    ("cpu", "bd40489975549ccc"),
    ("cpu-controls", "ab4698931c31b2e4"),
    ("device-test", "c3da46d25e21351b"),
    ("dnc-32m", "c246c3d38d90b46c"),
    ("dnc-32m-defects", "a7f8d90ee4b63c2e"),
    ("dnc-32m-epsilon", "473e11757ede09d0"),
    ("dnc-32m-sums", "23cb016b0170efd0"),
    ("h200-8b", "67083c3bff9730cb"),
    ("h200-m", "ff42cac8c56a570a"),
    ("h200-s", "84a74d2d54fbea03"),
    ("ladder-110m", "efe17633cbcac027"),
    ("ladder-110m-batch-quadruple-depth", "6833fc971c9ab95a"),
    ("ladder-110m-batch-quadruple-long", "575b0a02c8acdcc6"),
    ("ladder-110m-batch-quadruple-lr-double", "8124d09dfcd33db2"),
    ("ladder-110m-depth", "c74a9f2bad2d16a8"),
    ("ladder-110m-dw", "b71dc2e20bc1807f"),
    ("ladder-32m", "b084a99c9dabc907"),
    ("ladder-32m-batch-octuple-lr-double", "9ebf1582a48b5b1b"),
    ("ladder-32m-batch-quadruple", "b0df02aea741aba0"),
    ("ladder-32m-batch-quadruple-depth", "e2afd3c1201c5fc8"),
    ("ladder-32m-batch-quadruple-lr-double", "660582f3b09449b5"),
    ("ladder-32m-batch-quarter", "0659973f8afac663"),
    ("ladder-32m-decay", "8a56be499e2401c8"),
    ("ladder-32m-depth", "c0776bb32e04f259"),
    ("ladder-32m-dw", "0fab69e5666ea6a0"),
    ("ladder-32m-even", "80af3c3143c17b4c"),
    ("ladder-32m-lr-double", "c6d25fd5c7406477"),
    ("ladder-32m-lr-half", "b1d6e8bd6c0e6af7"),
    ("ladder-359m", "099997a4d74c0c72"),
    ("ladder-8m", "e75d7323035563c8"),
    ("llama31-8b", "06cd1bd81d82637a"),
    ("smoke", "a6fdc7fc37ee6670"),
];

#[test]
fn run_files_are_those_that_committed_runs_have() {
    let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let build = Build::only("code");
    let mut found = Vec::new();
    for (id, profile) in &manifests.profiles {
        let plan = plan(&manifests, profile, &Selection::default(), &build, Some(&shards())).unwrap_or_else(|error| panic!("{error}"));
        let mut all = String::new();
        for run in &plan.runs {
            all.push_str(&run.run_yaml);
        }
        for arm in &plan.arms {
            all.push_str(&step_run_file(&manifests, profile, &manifests.models[&profile.model], profile.batch.sequences, arm).unwrap());
        }
        found.push((id.as_str(), sha256(all.as_bytes())[..16].to_owned()));
    }
    let found: Vec<(&str, &str)> = found.iter().map(|(id, hash)| (*id, hash.as_str())).collect();
    assert_eq!(found, KNOWN, "a changed hash gives every run of the profile another key; a new profile is added here");
}
