//! Training as part of the identity: every specification of an operand, classes of shapes, and whole runs with their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contract::defect::Defect;
use contract::id::Id;
use contract::recipe::{
    Block, DelayedChoice, DelayedScaling, Dgrad, Format, Fprop, OperandSpec, Passes, ROTATION_SIZES, Rotation, Rounding, ScaleRule, Signs,
    Wgrad,
};
use contract::run_file::{ForwardSection, ModelSection, ReadingsSection, RunFile};
use kernels::cpu::Cpu;
use kernels::gpu::Gpu;
use kernels::gpu::record::{self, Recorder};
use kernels::random::StreamKey;

use super::{Fingerprint, Parts};
use crate::batches::Batch;
use crate::data::{TokenSummary, TokenWriter};
use crate::device::Device;
use crate::device::gpu::{GpuDevice, Keep};
use crate::error::TrainerError;
use crate::interrupt::Interrupt;
use crate::parameters::Layout;
use crate::ranks::{Alone, Ranks};
use crate::session;
use crate::trainer_state::Training;

/// The run that the others differ from: every contraction axis (width, heads, SwiGLU, 128 tokens) is one that every rotation divides.
const PLAIN: &str = "
schema: mxfp4-run/1
run: {profile: identity, arm: identity, seed: 20260925}
model: {vocab_size: 96, hidden_size: 128, num_hidden_layers: 1, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 16,
  intermediate_size: 128, sequence_length: 32, rope_theta: 10000.0, rms_norm_eps: 1.0e-5, initializer_range: 0.02, scale_residual_init: true}
data:
  train: {prefix: train, tokens: 4096, sha256_bin: ZERO, sha256_idx: ZERO}
  validation: {prefix: validation, tokens: 4096, sha256_bin: ZERO, sha256_idx: ZERO}
  end_of_document: 0
tokenizer: {id: none, sha256: ZERO}
optimizer: {name: adamw, learning_rate: 2.0e-3, beta1: 0.9, beta2: 0.95, epsilon: 1.0e-5, weight_decay: 0.1, clip_norm: 1.0}
schedule: {name: cosine-with-linear-warmup, warmup_steps: 2, decay_steps: 5, end_learning_rate: 2.0e-4}
batch: {sequences: 4}
budget: {steps: 4}
evaluation: {every_steps: 2, sequences: 6, spread: true}
target_loss: 4.5
logging: {train_every_steps: 1, quantisation_steps: [2]}
checkpoint: {every_steps: 3}
recipe:
  id: identity
  stochastic_seed: per-step
  passes:
    fprop: {input: PLAIN, weight: PLAIN}
    dgrad: {output_gradient: PLAIN, weight: PLAIN}
    wgrad: {output_gradient: PLAIN, input: PLAIN}
mllog: {benchmark: llama31_8b_scaled, organisation: identity, platform: any}
";

fn plain() -> Result<RunFile, TrainerError> {
    let zero = "0".repeat(64);
    let text =
        PLAIN.replace("PLAIN", "{format: f32, block: tensor, scale: none, rounding: nearest-even}").replace("ZERO", &format!("\"{zero}\""));
    Ok(RunFile::parse("identity", &text)?)
}

/// Operands that a GPU multiplies together: BF16 values (which hold every value in blocks), FP8 codes, F32.
fn class(spec: &OperandSpec) -> usize {
    match (spec.format, spec.block) {
        (Format::F32, _) => 2,
        (Format::E4m3 | Format::E5m2, Block::Tensor) => 1,
        _ => 0,
    }
}

/// Every defined specification with this rotation, by class; in the class of FP8 codes its two formats alternate, as its units take them.
fn specifications(rotation: Option<Rotation>) -> [Vec<OperandSpec>; 3] {
    let mut found: [Vec<OperandSpec>; 3] = Default::default();
    for &block in Block::ALL {
        for &scale in ScaleRule::ALL {
            for &rounding in Rounding::ALL {
                for &format in Format::ALL {
                    let spec = OperandSpec { format, block, scale, rounding, rotation };
                    if spec.validate(0).is_ok() {
                        found[class(&spec)].push(spec);
                    }
                }
            }
        }
    }
    found
}

/// No rotation, and each size with each kind of signs.
fn rotations() -> impl Iterator<Item = Option<Rotation>> {
    let every = ROTATION_SIZES.into_iter().flat_map(|size| Signs::ALL.iter().map(move |&signs| Some(Rotation { size, signs })));
    std::iter::once(None).chain(every)
}

/// The run with six operands in the order of [`Passes::all`].
fn with_operands(run: &RunFile, [a, b, c, d, e, f]: [OperandSpec; 6], choose: DelayedChoice) -> RunFile {
    let mut run = run.clone();
    run.recipe.passes = Passes {
        fprop: Fprop { input: a, weight: b },
        dgrad: Dgrad { output_gradient: c, weight: d },
        wgrad: Wgrad { output_gradient: e, input: f },
    };
    let delays = [a, b, c, d, e, f].iter().any(|spec| spec.scale == ScaleRule::Delayed);
    run.recipe.delayed_scaling = delays.then_some(DelayedScaling { history: 2, choose });
    run
}

/// Six operands at a time, until each specification was used; every second run of delayed scales takes the history's largest.
fn in_sixes(run: &RunFile, specs: &[OperandSpec]) -> Vec<RunFile> {
    let six = |first: usize| std::array::from_fn(|index| specs[(first + index) % specs.len()]);
    let choose = |first: usize| if first.is_multiple_of(12) { DelayedChoice::MostRecent } else { DelayedChoice::Max };
    (0..specs.len()).step_by(6).map(|first| with_operands(run, six(first), choose(first))).collect()
}

fn spec(format: Format, block: Block, scale: ScaleRule, rounding: Rounding, rotation: Option<Rotation>) -> OperandSpec {
    OperandSpec { format, block, scale, rounding, rotation }
}

/// The recipes that whole runs and classes of shapes are made with: name and operand, the same one six times.
fn recipes() -> [(&'static str, OperandSpec); 6] {
    let tensor = |format, scale| spec(format, Block::Tensor, scale, Rounding::NearestEven, None);
    let mxfp4 = |rounding, rotation| spec(Format::E2m1, Block::Row32, ScaleRule::Floor, rounding, rotation);
    [
        ("f32", tensor(Format::F32, ScaleRule::None)),
        ("bf16", tensor(Format::Bf16, ScaleRule::None)),
        ("fp8", tensor(Format::E4m3, ScaleRule::Delayed)),
        ("mxfp4", mxfp4(Rounding::NearestEven, None)),
        ("mxfp4-h16", mxfp4(Rounding::NearestEven, Some(Rotation { size: 16, signs: Signs::None }))),
        ("mxfp4-rh16-sr", mxfp4(Rounding::Stochastic, Some(Rotation { size: 16, signs: Signs::PerStep }))),
    ]
}

/// The same six operands, but with E5M2 gradients where the format is FP8.
fn with_recipe(run: &RunFile, operand: OperandSpec) -> RunFile {
    let gradient = if operand.format == Format::E4m3 { OperandSpec { format: Format::E5m2, ..operand } } else { operand };
    with_operands(run, [operand, operand, gradient, operand, gradient, operand], DelayedChoice::MostRecent)
}

/// Each defect in the first recipe that it is defined for.
fn defects(run: &RunFile) -> Vec<(Defect, RunFile)> {
    let mxfp4 = |rounding, rotation| spec(Format::E2m1, Block::Row32, ScaleRule::Floor, rounding, rotation);
    let signs = Some(Rotation { size: 16, signs: Signs::PerStep });
    let operands = [mxfp4(Rounding::NearestEven, None), mxfp4(Rounding::NearestEven, signs), mxfp4(Rounding::Stochastic, None)];
    let with = |defect: &Defect, operand| {
        let mut run = with_recipe(run, operand);
        run.recipe.defect = Some(*defect);
        run.batch.accumulation = defect.fewest_micro_batches();
        run.check().is_ok().then_some((*defect, run))
    };
    Defect::ALL.iter().filter_map(|defect| operands.iter().find_map(|operand| with(defect, *operand))).collect()
}

/// Classes of shapes: remainders in every tile, heads of other sizes, one key head for all queries, micro-batches, the widest panels.
fn shapes() -> Result<Vec<(&'static str, RunFile)>, TrainerError> {
    let run = plain()?;
    let shape = |name, [vocabulary, width, layers, heads, kv_heads, head, ffn, sequence, sequences, accumulation]: [usize; 10]| {
        let mut run = run.clone();
        let model = &mut run.model;
        (model.vocab_size, model.hidden_size, model.num_hidden_layers) = (vocabulary, width, layers);
        (model.num_attention_heads, model.num_key_value_heads, model.head_dim) = (heads, kv_heads, head);
        (model.intermediate_size, model.sequence_length) = (ffn, sequence);
        (run.batch.sequences, run.batch.accumulation) = (sequences, accumulation);
        (name, run)
    };
    Ok(vec![
        shape("remainders", [104, 80, 2, 3, 1, 32, 112, 48, 3, 1]),
        shape("micro-batches", [96, 64, 2, 2, 2, 48, 96, 32, 6, 3]),
        shape("wide", [264, 320, 1, 4, 2, 80, 864, 144, 2, 1]),
        shape("heads of 128", [128, 256, 1, 2, 1, 128, 256, 64, 2, 1]),
    ])
}

/// Initial weights of the models so far: runs of one model begin with the same, and drawing them takes longer than two steps.
#[derive(Debug, Default)]
struct Initial(Vec<(ModelSection, u64, u32, Vec<f32>)>);

impl Initial {
    fn of(&mut self, layout: &Layout, run: &RunFile) -> Vec<f32> {
        let (seed, perturbation) = (run.run.seed, run.recipe.perturbation);
        let known = |(model, s, p, _): &&(ModelSection, u64, u32, _)| (model, *s, *p) == (&run.model, seed, perturbation);
        if let Some((.., values)) = self.0.iter().find(known) {
            return values.clone();
        }
        let values = layout.initialise(&run.model, seed, perturbation);
        self.0.push((run.model.clone(), seed, perturbation, values.clone()));
        values
    }
}

/// Two steps on tokens of its own from weights that are zero, tiny and large in places: losses, norms, gradients, parameters.
fn train<D: Device>(device: D, run: &RunFile, initial: &mut Initial, digest: &mut Fingerprint) -> Result<(), TrainerError> {
    let mut training = Training::from_weights(Arc::new(Alone), device, run.clone(), 0, |layout, run, _| initial.of(layout, run))?;
    let mut weights = training.device().parameter_values(&training.parameters)?.into_owned();
    for (block, weights) in weights.chunks_mut(32).enumerate() {
        // Subnormal products take a processor a hundred times as long: a few are enough.
        let tiny = if block % 49 == 48 { f32::MIN_POSITIVE } else { 1e-20 };
        let factor = [1.0, 1.0, 0.0, 4.0, 1.0 / 4096.0, 1.0, tiny][block % 7];
        weights.iter_mut().for_each(|weight| *weight *= factor);
    }
    training.parameters = training.device().parameters(weights)?;
    let stream = StreamKey { seed: run.run.seed, step: 0, layer: 0, linear: 0, pass: 90, operand: 0 }.stream();
    let count = run.tokens_per_step() as u64;
    let token = |index: u64| stream.word(index) % run.model.vocab_size as u32;
    for step in 1..=2 {
        training.set_batch(Batch::new(
            (0..count).map(|i| token(step * count + i)).collect(),
            (0..count).map(|i| token(step * count + i + 1)).collect(),
        ));
        let result = training.forward_backward(step)?;
        digest.words([result.loss.to_bits(), result.gradient_norm.to_bits()]);
        digest.floats(&training.device().values(&training.gradients)?);
        training.update(step, result.gradient_norm)?;
    }
    digest.floats(&training.device().parameter_values(&training.parameters)?);
    Ok(())
}

/// A whole run in a folder of its own: the hashes of its log of losses and of its weights.
fn whole<D: Device>(name: &str, run: &RunFile, device: &impl Fn(&RunFile) -> Result<D, TrainerError>) -> Result<String, TrainerError> {
    let folder = Scratch::new(name)?;
    let mut run = run.clone();
    for (prefix, section) in [("train", &mut run.data.train), ("validation", &mut run.data.validation)] {
        let TokenSummary { tokens, sha256_bin, sha256_idx, .. } = write_tokens(&folder.0.join(prefix), run.model.vocab_size)?;
        (section.tokens, section.sha256_bin, section.sha256_idx) = (tokens, sha256_bin, sha256_idx);
    }
    let run_file = folder.0.join("run.yaml");
    let text = serde_yaml::to_string(&run).map_err(|source| TrainerError::write(&run_file, source))?;
    std::fs::write(&run_file, text).map_err(|source| TrainerError::write(&run_file, source))?;
    let (data, patience) = (folder.0.clone(), Duration::ZERO);
    let options = session::Options { run_file, data, progress: false, patience, logs_only: false, tensorboard: None };
    let alone: Arc<dyn Ranks<D>> = Arc::new(Alone);
    session::run(&options, device, &Interrupt::default(), &alone)?;
    let done = folder.0.join("done.json");
    let text = std::fs::read_to_string(&done).map_err(|source| TrainerError::BadFile(format!("{}: {source}", done.display())))?;
    let done: serde_json::Value =
        serde_json::from_str(&text).map_err(|source| TrainerError::BadFile(format!("{}: {source}", done.display())))?;
    Ok(format!("{} {}", done["metrics_sha256"], done["model_sha256"]))
}

/// 4,096 tokens in documents of 96, each token mostly a fixed successor of the one before.
fn write_tokens(prefix: &Path, vocabulary: usize) -> Result<TokenSummary, TrainerError> {
    let wrong = |error: crate::data::DataError| TrainerError::BadFile(error.to_string());
    let stream = StreamKey { seed: 5, step: 0, layer: 0, linear: 0, pass: 91, operand: 0 }.stream();
    let mut writer = TokenWriter::create(prefix, vocabulary).map_err(wrong)?;
    let mut token = 1;
    for document in 0..43 {
        let tokens: Vec<u32> = (0..96)
            .map(|index| {
                let draw = stream.word(document * 96 + index);
                token = if draw.is_multiple_of(4) { (draw >> 8) % vocabulary as u32 } else { (token * 5 + 7) % vocabulary as u32 };
                token
            })
            .collect();
        writer.push(&tokens).map_err(wrong)?;
    }
    writer.finish().map_err(wrong)
}

/// A folder that goes away with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self, TrainerError> {
        // Kinds of device, and tests, run at the same time in one process.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trainer-identity-{}-{number}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).map_err(|source| TrainerError::write(&path, source))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The whole runs: each recipe, one of them with readings.
fn whole_runs() -> Result<Vec<(&'static str, RunFile)>, TrainerError> {
    let run = plain()?;
    let all = recipes();
    let (bf16, rotated) = (all[1].1, all[4].1);
    Ok(all
        .into_iter()
        .map(|(name, operand)| {
            let mut run = with_recipe(&run, operand);
            if name == "mxfp4" {
                let forward = |recipe: &str, operand| ForwardSection { recipe: Id::near(recipe), input: operand, weight: operand };
                run.evaluation.readings =
                    Some(ReadingsSection { every_steps: 4, forwards: vec![forward("bf16", bf16), forward("h16", rotated)] });
            }
            (name, run)
        })
        .collect())
}

fn rotation_name(rotation: Option<Rotation>) -> String {
    rotation.map_or("without rotation".to_owned(), |Rotation { size, signs }| format!("rotated by {size}, signs {}", signs.word()))
}

/// What training computes on a CPU.
pub(super) fn on_cpu(cpu: &Cpu) -> Result<Parts, TrainerError> {
    let run = plain()?;
    let mut initial = Initial::default();
    let mut parts = Parts::new();
    for rotation in rotations() {
        for (specs, class) in specifications(rotation).iter().zip(["in BF16 or blocks", "FP8 tensors", "F32"]) {
            let mut digest = Fingerprint::default();
            in_sixes(&run, specs).iter().try_for_each(|run| train(cpu.clone(), run, &mut initial, &mut digest))?;
            parts.insert(format!("operands {class} {}", rotation_name(rotation)), digest.finish());
        }
    }
    for (name, run) in shapes()? {
        for (recipe, operand) in recipes() {
            let mut digest = Fingerprint::default();
            train(cpu.clone(), &with_recipe(&run, operand), &mut initial, &mut digest)?;
            parts.insert(format!("shape {name}, {recipe}"), digest.finish());
        }
    }
    for (defect, run) in defects(&run) {
        let mut digest = Fingerprint::default();
        train(cpu.clone(), &run, &mut initial, &mut digest)?;
        parts.insert(format!("defect {}", defect.word()), digest.finish());
    }
    for (name, run) in whole_runs()? {
        parts.insert(format!("run {name}"), whole(name, &run, &|_: &RunFile| Ok(cpu.clone()))?);
    }
    Ok(parts)
}

/// What a GPU of this kind is told to do, and the texts of its kernels and of what drives it.
pub(super) fn on_gpu(kind: &'static str, architecture: &str, has_mxfp4: bool) -> Result<Parts, TrainerError> {
    let recorder = || Arc::new(Recorder::new(kind, architecture, has_mxfp4));
    let open = |recorder: &Arc<Recorder>, run: &RunFile| GpuDevice::new(Gpu::behind(recorder.clone()), run, Keep::WhatFits);
    let mut initial = Initial::default();
    let mut recorded = |runs: &[RunFile]| -> Result<String, TrainerError> {
        let mut digest = Fingerprint::default();
        for run in runs {
            let recorder = recorder();
            match open(&recorder, &run.micro_batch()) {
                Ok(device) => train(device, run, &mut initial, &mut Fingerprint::default())?,
                // A recipe that no GPU multiplies; how that is put is no result.
                Err(TrainerError::Machine(_)) => {
                    digest.text("refused");
                    continue;
                }
                Err(other) => return Err(other),
            }
            let (hash, calls) = recorder.digest();
            digest.text(&hash).words([calls as u64]);
        }
        Ok(digest.finish())
    };
    let run = plain()?;
    let mut parts = Parts::new();
    for rotation in rotations() {
        for (specs, class) in specifications(rotation).iter().zip(["in BF16 or blocks", "FP8 tensors"]) {
            parts.insert(format!("operands {class} {}", rotation_name(rotation)), recorded(&in_sixes(&run, specs))?);
        }
    }
    // On a GPU F32 is nobody's operand.
    let recipes = || recipes().into_iter().skip(1);
    for (name, run) in shapes()? {
        for (recipe, operand) in recipes() {
            parts.insert(format!("shape {name}, {recipe}"), recorded(&[with_recipe(&run, operand)])?);
        }
    }
    for (defect, run) in defects(&run) {
        parts.insert(format!("defect {}", defect.word()), recorded(&[run])?);
    }
    for (name, run) in whole_runs()?.into_iter().skip(1) {
        let recorder = recorder();
        whole(name, &run, &|run: &RunFile| open(&recorder, run))?;
        parts.insert(format!("run {name}"), recorder.digest().0);
    }
    let ours = |name: &str| has_mxfp4 || !name.starts_with("gfx950/");
    parts.extend(record::device_texts().filter(|(name, _)| ours(name)).map(|(name, hash)| (format!("text {name}"), hash)));
    parts.extend(record::driver_texts(kind).map(|(name, hash)| (format!("driver {name}"), hash)));
    Ok(parts)
}
