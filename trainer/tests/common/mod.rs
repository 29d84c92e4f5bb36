//! A tiny run to test with: model, recipes from manifests/recipes, and a token file of random words.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // each test file uses a part; helpers of tests may panic

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use contract::digest;
use contract::run_file::RunFile;
use serde_yaml::{Mapping, Value};
use trainer::tensors::Tensors;

/// Every recipe of manifests/recipes by id, its operands spelled out as in a run file.
pub fn recipes() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/recipes");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).expect("manifests/recipes").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| recipe_of(&fs::read_to_string(path).unwrap())).collect()
}

/// One recipe by id.
pub fn recipe(id: &str) -> Value {
    recipes().into_iter().find(|recipe| recipe.0 == id).unwrap_or_else(|| panic!("no recipe {id}")).1
}

fn recipe_of(text: &str) -> (String, Value) {
    let manifest: Value = serde_yaml::from_str(text).unwrap();
    let id = manifest["id"].as_str().unwrap().to_owned();
    let mut passes = manifest["passes"].clone();
    for (_, pass) in passes.as_mapping_mut().unwrap().iter_mut() {
        for (_, operand) in pass.as_mapping_mut().unwrap().iter_mut() {
            *operand = manifest["operands"][operand.as_str().unwrap()].clone();
        }
    }
    let mut resolved = Mapping::new();
    resolved.insert("id".into(), Value::String(id.clone()));
    resolved.insert("passes".into(), passes);
    for key in ["stochastic_seed", "delayed_scaling", "defect"] {
        if let Some(value) = manifest.get(key) {
            resolved.insert(key.into(), value.clone());
        }
    }
    (id, Value::Mapping(resolved))
}

/// A model of two blocks that runs in milliseconds and still has grouped queries and axes that every rotation divides.
pub const TINY: &str = r#"
schema: mxfp4-run/1
run: {profile: test, arm: f32, seed: 7}
model:
  vocab_size: 48
  hidden_size: 64
  num_hidden_layers: 2
  num_attention_heads: 4
  num_key_value_heads: 2
  head_dim: 16
  intermediate_size: 64
  sequence_length: 32
  rope_theta: 10000.0
  rms_norm_eps: 1.0e-5
  initializer_range: 0.02
  scale_residual_init: true
data:
  train: {prefix: train, tokens: 3000, sha256_bin: "", sha256_idx: ""}
  validation: {prefix: validation, tokens: 400, sha256_bin: "", sha256_idx: ""}
  end_of_document: 0
tokenizer: {id: none, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}
optimizer: {name: adamw, learning_rate: 2.0e-3, beta1: 0.9, beta2: 0.95, epsilon: 1.0e-5, weight_decay: 0.1, clip_norm: 1.0}
schedule: {name: cosine-with-linear-warmup, warmup_steps: 4, decay_steps: 1000, end_learning_rate: 2.0e-4}
batch: {sequences: 4}
budget: {steps: 12}
evaluation: {every_steps: 3, sequences: 6}
target_loss: null
logging: {train_every_steps: 1, quantisation_steps: [2, 12]}
checkpoint: {every_steps: 2}
recipe: null
mllog: {benchmark: llama31_8b_scaled, organisation: "open replication", platform: cpu}
"#;

/// The tiny run as YAML with a recipe; `change` may alter it further.
pub fn tiny_yaml(recipe: Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut run: Value = serde_yaml::from_str(TINY).unwrap();
    run["run"]["arm"] = recipe["id"].clone();
    run["recipe"] = recipe;
    let (train, validation) = (shard(3000), shard(400));
    for (name, (bin, idx)) in [("train", train), ("validation", validation)] {
        run["data"][name]["sha256_bin"] = Value::String(digest::sha256(&bin));
        run["data"][name]["sha256_idx"] = Value::String(digest::sha256(&idx));
    }
    if run["recipe"]["defect"] == "sums-in-bf16" {
        run["batch"]["accumulation"] = 2.into();
    }
    change(&mut run);
    run
}

/// Asks for readings through the forward passes of `recipes` at every so many steps.
pub fn read_through(run: &mut Value, recipes: &[&str], every_steps: u64) {
    let forward = |id: &&str| {
        let fprop = recipe(id)["passes"]["fprop"].clone();
        let mut forward = Mapping::new();
        forward.insert("recipe".into(), (*id).into());
        for operand in ["input", "weight"] {
            let mut spec = fprop[operand].clone();
            if spec["scale"] == "delayed" {
                spec["scale"] = "current".into();
            }
            forward.insert(operand.into(), spec);
        }
        Value::Mapping(forward)
    };
    let mut readings = Mapping::new();
    readings.insert("every_steps".into(), every_steps.into());
    readings.insert("forwards".into(), Value::Sequence(recipes.iter().map(forward).collect()));
    run["evaluation"]["readings"] = Value::Mapping(readings);
}

pub fn tiny(recipe: Value) -> RunFile {
    RunFile::parse("tiny", &serde_yaml::to_string(&tiny_yaml(recipe, |_| ())).unwrap()).unwrap()
}

/// A `.bin` and `.idx` of `tokens` tokens below 48 that a model can learn something from: mostly a fixed successor of the token before.
pub fn shard(tokens: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut state, mut token, mut bin) = (0x1234_5678_9abc_def0u64 ^ tokens as u64, 1u16, Vec::new());
    for _ in 0..tokens {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (state >> 33) as u16;
        token = if draw.is_multiple_of(4) { draw / 4 % 48 } else { (token * 5 + 7) % 48 };
        bin.extend(token.to_le_bytes());
    }
    let mut idx = b"MMIDIDX\0\0".to_vec();
    idx.extend(1u64.to_le_bytes());
    idx.push(8); // u16
    idx.extend(1u64.to_le_bytes());
    idx.extend(2u64.to_le_bytes());
    idx.extend((tokens as i32).to_le_bytes());
    idx.extend(0i64.to_le_bytes());
    idx.extend(0i64.to_le_bytes());
    idx.extend(1i64.to_le_bytes());
    (bin, idx)
}

/// What a checkpoint in the directory `run` says, whatever the number of ranks that wrote it: its index but for the files, and every tensor
/// whole. The files are those that the index describes, and no others.
pub fn checkpoint(run: &Path) -> Vec<u8> {
    let folder = run.join("checkpoint");
    let text = fs::read_to_string(folder.join("state.json")).unwrap_or_else(|error| panic!("state.json: {error}"));
    let mut index: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let schema = index.remove("schema").unwrap();
    let shards = match (index.remove("tensors_sha256"), index.remove("shards")) {
        (Some(sha256), None) => {
            assert_eq!(schema, "mxfp4-checkpoint/1");
            vec![serde_json::json!({"file": "state.safetensors", "sha256": sha256})]
        }
        (None, Some(shards)) => {
            assert_eq!(schema, "mxfp4-checkpoint/3");
            shards.as_array().unwrap().clone()
        }
        both => panic!("{both:?}"),
    };
    assert_eq!(fs::read_dir(&folder).unwrap().count(), shards.len() + 1, "{text}");
    // By name, and by where a part of a tensor begins in it.
    let mut tensors = BTreeMap::<String, BTreeMap<usize, Vec<f32>>>::new();
    for shard in &shards {
        let path = folder.join(shard["file"].as_str().unwrap());
        let bytes = fs::read(&path).unwrap();
        assert_eq!(shard["sha256"], digest::sha256(&bytes));
        assert!(shard.get("bytes").is_none_or(|length| *length == bytes.len()));
        let file = Tensors::parse(&path, bytes).unwrap();
        let mut elements = 0;
        for name in file.names() {
            let part = file.f32(&name, file.shape(&name).unwrap()).unwrap();
            elements += part.len();
            let (name, first) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
                None => (name, 0),
                Some((name, range)) => {
                    let (first, end) = range.split_once("..").map(|(first, end)| (first.parse::<usize>().unwrap(), end)).unwrap();
                    assert_eq!((first + part.len()).to_string(), end);
                    (name.to_owned(), first)
                }
            };
            assert!(tensors.entry(name).or_default().insert(first, part).is_none());
        }
        if let Some(ranges) = shard["ranges"].as_array() {
            let lengths = ranges.iter().map(|range| range[1].as_u64().unwrap() - range[0].as_u64().unwrap());
            assert_eq!(3 * lengths.sum::<u64>() as usize, elements, "{shard}");
        }
    }
    let mut all = serde_json::to_vec(&index).unwrap();
    for (name, parts) in tensors {
        all.extend(name.bytes());
        let mut end = 0;
        for (first, part) in parts {
            assert_eq!(first, end, "{name}");
            end += part.len();
            all.extend(part.into_iter().flat_map(f32::to_le_bytes));
        }
    }
    all
}

/// Writes both token files into `folder`.
pub fn write_data(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (name, tokens) in [("train", 3000), ("validation", 400)] {
        let (bin, idx) = shard(tokens);
        fs::write(folder.join(format!("{name}.bin")), bin).unwrap();
        fs::write(folder.join(format!("{name}.idx")), idx).unwrap();
    }
}

/// Writes `run.yaml` into `folder` and returns its path.
pub fn write_run(folder: &Path, run: &Value) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("run.yaml");
    fs::write(&path, serde_yaml::to_string(run).unwrap()).unwrap();
    path
}
