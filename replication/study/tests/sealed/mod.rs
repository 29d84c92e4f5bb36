//! A small synthetic campaign with true hashes, rendered and sealed as `replicate` leaves it.

use std::path::Path;

use study::environment::{Cpu, Environment, Flags, GitState, Memory, SCHEMA, Source, System, Toolchain};
use study::files::{sha256, sha256_file};
use study::plan::Ingredients;
use study::provenance;
use study::record::{Campaign, CampaignRun};
use study::render::{RenderOptions, render};

use crate::synthetic::{self, Arm};

/// Sources that these runs were made from.
pub const CODE: &str = "c0de000000000000000000000000000000000000000000000000000000000000";
/// Commit of these runs and of the renderer.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Arms of the small campaign.
pub const FEW: [&str; 4] = ["fp8", "bf16", "mxfp4-fdw", "mxfp4-fdw-h16"];

/// The small campaign with seeds 1 and 2.
pub fn write(directory: &Path) {
    let arms: Vec<Arm> = synthetic::ARMS.iter().copied().filter(|arm| FEW.contains(&arm.id)).collect();
    write_arms(directory, &arms, &[1, 2]);
}

/// A campaign with some arms and seeds.
pub fn write_arms(directory: &Path, arms: &[Arm], seeds: &[u64]) {
    synthetic::write_arms(directory, arms, seeds);
    let mut runs = Vec::new();
    for arm in arms {
        for seed in seeds {
            let key = record(&synthetic::run_directory(directory, arm.id, *seed));
            runs.push(CampaignRun { arm: arm.id.try_into().unwrap(), seed: *seed, key, status: "finished".into() });
        }
    }
    let environment = environment();
    synthetic::save(&directory.join("env.json"), &serde_json::to_string_pretty(&environment).unwrap());
    let campaign = Campaign {
        schema: "mxfp4-campaign/1".into(),
        profile: "cpu".try_into().unwrap(),
        papers: vec!["2605.09825".into(), "2502.20586".into()],
        device: "cpu".into(),
        machine: "synthetic".try_into().unwrap(),
        date: "2026-05-09".into(),
        commit: environment.source.commit.clone(),
        dirty: false,
        key: sha256(b"campaign"),
        trainer_code: CODE.into(),
        partial: true,
        seeds: seeds.to_vec(),
        runs,
    };
    synthetic::save(&directory.join("campaign.json"), &serde_json::to_string_pretty(&campaign).unwrap());
    seal(directory);
}

/// A machine that there is none of.
fn environment() -> Environment {
    Environment {
        schema: SCHEMA.into(),
        captured: "2026-05-09T12:00:00Z".into(),
        cpu: Cpu { model: "A processor".into(), architecture: "x86_64".into(), logical_cores: 2, instruction_sets: vec!["avx2".into()] },
        memory: Memory { total_bytes: Some(8 << 30), control_group_limit_bytes: None },
        system: System { name: "linux".into(), kernel: Some("6.1.0".into()), container: true },
        toolchain: Toolchain { rustc: Some("rustc 1.95.0\nhost: none".into()), cargo: Some("cargo 1.95.0".into()), rustflags: None },
        source: Source { commit: COMMIT.into(), dirty: false, diff_sha256: None, lock_sha256: Some(sha256(b"lock")) },
        flags: Flags { threads_per_run: 1, instruction_set: "auto".into(), parallel_runs: 2 },
        device_libraries: vec![],
        accelerators: vec![],
        prebuilt_trainer: None,
    }
}

/// The tree that renders.
pub fn renderer() -> GitState {
    GitState { commit: COMMIT.into(), dirty: false, diff_sha256: None }
}

/// Hashes of one run as the trainer and the plan write them; its key.
pub fn record(run: &Path) -> String {
    let (text, shard) = (std::fs::read_to_string(run.join("run.yaml")).unwrap(), |part: &str| {
        format!("{part}: {{prefix: {part}, tokens: 3000000, sha256_bin: \"{0}\", sha256_idx: \"{0}\"}}", sha256(part.as_bytes()))
    });
    let identity = text.lines().take(2).collect::<Vec<_>>().join("\n");
    let tokenizer = format!("{{id: rust-crates-1024, sha256: \"{}\"}}", sha256(b"tokenizer"));
    synthetic::save(
        &run.join("run.yaml"),
        &format!("{identity}\ndata:\n  {}\n  {}\ntokenizer: {tokenizer}\n", shard("train"), shard("validation")),
    );
    let run_sha256 = sha256_file(&run.join("run.yaml")).unwrap();
    let mut done: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(run.join("done.json")).unwrap()).unwrap();
    done["metrics_sha256"] = sha256_file(&run.join("metrics.jsonl")).unwrap().into();
    done["run_sha256"] = run_sha256.clone().into();
    synthetic::save(&run.join("done.json"), &done.to_string());
    synthetic::save(&run.join("run.mllog"), ":::MLLOG {\"key\": \"synthetic\"}\n");
    let ingredients = Ingredients { run: run_sha256, trainer_code: CODE.into(), toolchain: "rustc 1.95.0".into(), device: "cpu".into() };
    synthetic::save(&run.join("ingredients.json"), &ingredients.json());
    ingredients.key()
}

/// Renders, states and hashes again, as after a change of runs.
pub fn seal(directory: &Path) {
    let root = synthetic::repository();
    render(directory, &root.join("paper"), &RenderOptions::default()).unwrap();
    provenance::write_statement(&renderer(), directory).unwrap();
    provenance::write_sums(directory).unwrap();
}
