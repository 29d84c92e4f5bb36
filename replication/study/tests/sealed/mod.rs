//! A small synthetic campaign with true hashes, rendered and sealed as `replicate` leaves it.

use std::path::Path;
use std::sync::OnceLock;

use contract::json::{Document as _, Line as _};
use contract::metrics::MetricsLine;
use contract::mllog::{self, Blocks, Entry};
use contract::outcome::{Done, Status};
use contract::run_file::{LoadedRun, RunFile};
use contract::schedule::learning_rate;
use serde_json::json;
use study::archive;
use study::code_objects;
use study::environment::{Cpu, Environment, Flags, Memory, SCHEMA, Source, System, Toolchain};
use study::files::{self, sha256, sha256_file};
use study::ingredients::Ingredients;
use study::kernels;
use study::manifest::resolve;
use study::provenance::{self, Renderer};
use study::record::{Campaign, CampaignRun, key as campaign_key, key_with_code_objects, key_with_kernels, on_cpu};
use study::render::{RenderOptions, render, version};

use crate::synthetic::{self, Arm};

/// Sources that these runs were made from.
pub const CODE: &str = "c0de000000000000000000000000000000000000000000000000000000000000";
/// Commit of these runs and of the renderer.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Arms of the small campaign.
pub const FEW: [&str; 4] = ["fp8", "bf16", "mxfp4-fdw", "mxfp4-fdw-h16"];

/// The small campaign with seeds 1 and 2, rendered once for all tests of a program.
pub fn write(directory: &Path) {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let whole = tempfile::tempdir().unwrap();
        let arms: Vec<Arm> = synthetic::ARMS.iter().copied().filter(|arm| FEW.contains(&arm.id)).collect();
        write_arms(whole.path(), &arms, &[1, 2]);
        let names = files::list(whole.path()).unwrap();
        names.into_iter().map(|name| (name.clone(), std::fs::read(whole.path().join(name)).unwrap())).collect()
    });
    for (name, bytes) in files {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// A campaign with some arms and seeds.
pub fn write_arms(directory: &Path, arms: &[Arm], seeds: &[u64]) {
    synthetic::write_arms(directory, arms, seeds);
    let manifests = archive::load(directory).unwrap();
    let profile = &manifests.profiles["cpu"];
    let mut runs = Vec::new();
    for arm in arms {
        for &seed in seeds {
            let (model, tokenizer) = (&manifests.models[&profile.model], &manifests.tokenizers[&profile.tokenizer]);
            let run = resolve::run_file(&manifests, profile, model, tokenizer.shards.as_ref().unwrap(), arm.id, seed).unwrap();
            let folder = synthetic::run_directory(directory, arm.id, seed);
            synthetic::save(&folder.join("run.yaml"), &run.to_yaml().unwrap());
            let key = record(&folder);
            runs.push(CampaignRun { arm: arm.id.try_into().unwrap(), seed, key, status: "finished".into() });
        }
    }
    // Only what ran is timed.
    let times = directory.join("measurements/step_time.jsonl");
    let timed = |line: &&str| arms.iter().any(|arm| line.contains(&format!("\"{}\"", arm.id)));
    let text: String = std::fs::read_to_string(&times).unwrap().lines().filter(timed).map(|line| format!("{line}\n")).collect();
    synthetic::save(&times, &text);
    let environment = environment();
    synthetic::save(&directory.join("env.json"), &serde_json::to_string_pretty(&environment).unwrap());
    let hashes: Vec<(String, String)> = archive::files(&manifests, profile)
        .into_iter()
        .map(|(name, _)| (name.clone(), sha256_file(&directory.join("manifests").join(name)).unwrap()))
        .collect();
    let key = campaign_key(
        &on_cpu(&environment.flags, &environment.cpu),
        runs.iter().map(|run| (run.arm.as_str(), run.seed, run.key.as_str())),
        hashes.iter().map(|(name, sha256)| (name.as_str(), sha256.as_str())),
    );
    let document = directory.join("measurements").join(code_objects::FILE);
    synthetic::save(&document, synthetic::CODE_OBJECTS);
    let key = key_with_code_objects(&key, &sha256_file(&document).unwrap());
    let document = directory.join("measurements").join(kernels::DOCUMENT);
    synthetic::save(&document, KERNELS);
    let key = key_with_kernels(&key, &sha256_file(&document).unwrap());
    let campaign = Campaign {
        schema: "mxfp4-campaign/1".into(),
        profile: "cpu".try_into().unwrap(),
        papers: vec!["2605.09825".into(), "2502.20586".into()],
        device: "cpu".into(),
        machine: environment.machine().try_into().unwrap(),
        date: "2026-05-09".into(),
        commit: environment.source.commit.clone(),
        dirty: false,
        key,
        trainer_code: CODE.into(),
        carried: Vec::new(),
        partial: true,
        gemm: contract::run_file::Gemm::Own,
        seeds: seeds.to_vec(),
        runs,
    };
    synthetic::save(&directory.join("campaign.json"), &serde_json::to_string_pretty(&campaign).unwrap());
    seal(directory);
}

/// What `kernels-bench` wrote where it measured nothing.
const KERNELS: &str = r#"{"schema":"mxfp4-kernels/1","date":"2026-05-09","machine":"synthetic","processor":"p","device":"cpu","instruction_set":"avx2",
"commit":"0123","dirty":false,"trainer_code":"other","depth":"quick","only":null,"threads":[1],"rounds":15,"peers_asked":false,"measuring_seconds":1.0,
"benchmarks":[],"samples":[],"peers":[],"missing":[],"peer_environment":null,"profile":[],"memory":[],"comparisons":[]}"#;

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
        named: None,
    }
}

/// The tree that renders.
pub fn renderer() -> Renderer {
    let version = version(&synthetic::repository().join("paper"));
    Renderer { commit: COMMIT.into(), dirty: false, version: Some(version), stale: false }
}

/// Everything else of one run as the trainer and the plan write it, from its run.yaml and the losses in its metrics.jsonl; its key.
pub fn record(folder: &Path) -> String {
    let LoadedRun { run, sha256: run_sha256 } = RunFile::load(&folder.join("run.yaml")).unwrap();
    let (mut metrics, mut logged, mut blocks) = (String::new(), mllog::begin(&run), Blocks::default());
    let (mut last, mut reached) = ([None, None], None);
    let samples = |step: u64| step * run.batch.sequences as u64;
    for line in std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap().lines() {
        let mut line = MetricsLine::from_line(line).unwrap();
        match &mut line {
            MetricsLine::Header(header) => header.parameters = u64::try_from(run.model.parameters()).unwrap(),
            MetricsLine::Train(train) => {
                train.learning_rate = learning_rate(&run.optimizer, &run.schedule, train.step);
                last[0] = train.loss;
            }
            MetricsLine::Evaluation(evaluation) => {
                let (step, loss) = (evaluation.step, evaluation.loss.unwrap());
                logged.extend(blocks.evaluation(&run, samples(step), loss, step == run.budget.steps));
                reached = reached.or((loss <= run.target_loss.unwrap()).then(|| samples(step)));
                last[1] = Some(loss);
            }
            MetricsLine::Quantisation(record) => {
                let passes = run.recipe.passes.all();
                record.format =
                    passes.iter().find(|(pass, operand, _)| *pass == record.pass && *operand == record.operand).unwrap().2.format;
            }
            _ => {}
        }
        metrics += &(serde_json::to_string(&line).unwrap() + "\n");
    }
    let steps = run.budget.steps;
    logged.extend(blocks.end(samples(steps), reached));
    let line = |entry: &Entry| {
        let (event, key, value, metadata) = (entry.event.word(), entry.key, &entry.value, &entry.metadata);
        format!(":::MLLOG {}\n", json!({"time_ms": 1, "event_type": event, "key": key, "value": value, "metadata": metadata}))
    };
    let done = Done {
        status: Status::Completed,
        steps,
        tokens: steps * run.tokens_per_step() as u64,
        final_train_loss: last[0],
        final_validation_loss: last[1],
        metrics_sha256: sha256(metrics.as_bytes()),
        model_sha256: Some(sha256(b"weights")),
        run_sha256: run_sha256.clone(),
    };
    synthetic::save(&folder.join("metrics.jsonl"), &metrics);
    synthetic::save(&folder.join("run.mllog"), &logged.iter().map(line).collect::<String>());
    synthetic::save(&folder.join("done.json"), &done.to_json().unwrap());
    let toolchain = environment().trainers_compiler().unwrap();
    let ingredients = Ingredients { run: run_sha256, trainer_code: CODE.into(), toolchain, device: "cpu".into() };
    synthetic::save(&folder.join("ingredients.json"), &ingredients.json());
    ingredients.key()
}

/// Renders, states and hashes again, as after a change of runs.
pub fn seal(directory: &Path) {
    let root = synthetic::repository();
    render(directory, &root.join("paper"), &RenderOptions::default()).unwrap();
    provenance::write_statement(&renderer(), directory).unwrap();
    provenance::write_sums(directory).unwrap();
}
