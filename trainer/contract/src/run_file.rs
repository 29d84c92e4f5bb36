//! `run.yaml`, schema `mxfp4-run/1`: one run, fully resolved.
//!
//! This file holds the types and reads them strictly: an unknown key, a missing key or another schema is an error.
//! Whether the numbers make sense together is checked in `run_check`. Nothing here knows a path of the machine.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::defect::Defect;
use crate::digest;
use crate::id::Id;
use crate::recipe::{DelayedScaling, OperandSpec, Passes, StochasticSeed};
use crate::schema;
use crate::text::one_line;
use crate::yaml;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// Always [`schema::RUN`].
    pub schema: String,
    pub run: RunIdentity,
    /// Shape and initialisation of the model.
    pub model: ModelSection,
    pub data: DataSection,
    /// Which tokenizer made the tokens.
    pub tokenizer: TokenizerSection,
    pub optimizer: OptimizerSection,
    /// Learning rate over steps.
    pub schedule: ScheduleSection,
    /// Sequences in a step.
    pub batch: BatchSection,
    pub budget: BudgetSection,
    /// When and on how much to evaluate.
    pub evaluation: EvaluationSection,
    /// Validation loss (nats per token) that counts as reached; null if the profile has none.
    pub target_loss: Option<f64>,
    pub logging: LoggingSection,
    pub checkpoint: CheckpointSection,
    /// How every operand of every GEMM is prepared.
    pub recipe: RecipeSection,
    /// Who multiplies packed MXFP4. Sums have another order, so that it is part of what a run is.
    #[serde(default, skip_serializing_if = "Gemm::is_own")]
    pub gemm: Gemm,
    /// Words of the MLPerf log.
    pub mllog: MllogSection,
}

/// Whose kernels multiply packed MXFP4, on an AMD GPU that does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gemm {
    /// Ours.
    #[default]
    Own,
    /// AMD's library.
    Hipblaslt,
}

impl Gemm {
    pub const ALL: [Self; 2] = [Self::Own, Self::Hipblaslt];

    /// As run files and options have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Hipblaslt => "hipblaslt",
        }
    }

    /// Nothing is said of what runs have always had, so that their files and keys stay what they were.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }

    /// Refuses a device that has no such choice. `device`: its name in the message; `has_choice`: it is an AMD GPU that multiplies packed MXFP4.
    pub fn check(self, device: &str, has_choice: bool) -> Result<(), String> {
        if self.is_own() || has_choice {
            return Ok(());
        }
        Err(format!(
            "gemm: {} is for packed MXFP4 on an AMD GPU (--device hip, gfx950), not for {device}; use own, or leave it out",
            self.word()
        ))
    }
}

impl std::str::FromStr for Gemm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::word).join(" or ");
        Self::ALL.into_iter().find(|gemm| gemm.word() == text).ok_or_else(|| format!("use {}", known()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunIdentity {
    pub profile: Id,
    /// Arm: the recipe's id within the profile.
    pub arm: Id,
    /// Decides initialisation, data order and every random word.
    pub seed: u64,
}

/// A Llama, in the names of Hugging Face's `LlamaConfig` where it has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    pub intermediate_size: usize,
    /// Tokens in a training sequence.
    pub sequence_length: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Whether `attention_output` and `down` start smaller by sqrt(2 * layers).
    pub scale_residual_init: bool,
}

/// Token files below the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSection {
    pub train: ShardSection,
    pub validation: ShardSection,
    pub end_of_document: u32,
}

/// One `.bin`/`.idx` pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardSection {
    /// File name without extension, inside the data directory.
    pub prefix: String,
    /// Tokens in the `.bin`.
    pub tokens: u64,
    /// SHA-256 of the `.bin`, hexadecimal.
    pub sha256_bin: String,
    /// SHA-256 of the `.idx`, hexadecimal.
    pub sha256_idx: String,
}

/// The tokenizer by name and hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerSection {
    /// Its id among the manifests.
    pub id: Id,
    /// SHA-256 of tokenizer.json, hexadecimal.
    pub sha256: String,
}

/// AdamW with decoupled weight decay and a global norm clip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSection {
    /// Only one so far.
    pub name: OptimizerName,
    /// Learning rate at the end of the warm-up.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, on matrices only.
    pub weight_decay: f64,
    /// Largest global gradient norm that passes unscaled.
    pub clip_norm: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerName {
    /// Loshchilov and Hutter, arXiv 1711.05101.
    Adamw,
}

/// Linear warm-up, then half a cosine down to `end_learning_rate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSection {
    /// Only one so far.
    pub name: ScheduleName,
    /// Steps from 0 to the full learning rate.
    pub warmup_steps: u64,
    /// Steps of the cosine after the warm-up.
    pub decay_steps: u64,
    /// Learning rate after the cosine.
    pub end_learning_rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleName {
    /// As MLPerf's llama31_8b.
    CosineWithLinearWarmup,
}

/// Sequences in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSection {
    /// Sequences in a step.
    pub sequences: usize,
    /// Micro-batches that a step is made of, each of `sequences / accumulation` sequences: their gradients are summed in F32, in order.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulation: usize,
}

fn one() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(value: &usize) -> bool {
    *value == 1
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSection {
    /// Optimizer steps.
    pub steps: u64,
}

/// When and on how much to evaluate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSection {
    /// After every so many steps, before the first and after the last.
    pub every_steps: u64,
    /// Sequences of the validation stream, never shuffled.
    pub sequences: usize,
    /// Take them at equal distances over the whole stream instead of its first ones: a short evaluation then sees every document's kind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// The same weights through other forward passes as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings: Option<ReadingsSection>,
}

/// What reading the weights costs, apart from what training did to them: the loss of an evaluation through other forward passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadingsSection {
    /// At evaluations after a multiple of so many steps, and at the last.
    pub every_steps: u64,
    /// In the order of their lines in metrics.jsonl.
    pub forwards: Vec<ForwardSection>,
}

/// A forward pass with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardSection {
    /// Id of the recipe that it is of.
    pub recipe: Id,
    /// X of Y = X Wᵀ. A reading has no history, so no scale is delayed.
    pub input: OperandSpec,
    /// W, likewise.
    pub weight: OperandSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggingSection {
    /// A `train` line after every so many steps and after the last.
    pub train_every_steps: u64,
    /// Steps with `quantisation` lines.
    pub quantisation_steps: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSection {
    /// After every so many steps and after the last.
    pub every_steps: u64,
}

/// The recipe, every operand spelled out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeSection {
    /// Its id among the manifests.
    pub id: Id,
    pub passes: Passes,
    pub stochastic_seed: StochasticSeed,
    /// History of operands whose scale is `delayed`; there if and only if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_scaling: Option<DelayedScaling>,
    /// Exclusive-or with the last bits of every initial weight (0 to 3). It makes another run of an arm and a seed, so that the scatter of
    /// runs by themselves can be told from what arm and seed do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub perturbation: u32,
    /// A mistake that is made on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defect: Option<Defect>,
}

impl RecipeSection {
    /// Whether the sum of micro-batches' gradients is kept in BF16, by a defect.
    pub fn rounds_sums(&self) -> bool {
        self.defect == Some(Defect::SumsInBf16)
    }
}

/// Words of the MLPerf log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MllogSection {
    /// `submission_benchmark`.
    pub benchmark: String,
    /// `submission_org`.
    pub organisation: String,
    /// `submission_platform`.
    pub platform: String,
}

/// What is wrong with a run file: its name, the key or line, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", one_line(.0))]
pub struct RunFileError(String);

/// A run file that was read, with the hash of its bytes.
#[derive(Debug, Clone)]
pub struct LoadedRun {
    pub run: RunFile,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
}

impl RunFile {
    /// Reads the text of a run file and checks it. `name` appears in messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, RunFileError> {
        /// Only the first key, so that another schema is named before its unknown keys are.
        #[derive(Deserialize)]
        struct Header {
            schema: Option<String>,
        }
        let syntax = |error: serde_yaml::Error| RunFileError(format!("{name}: {error}; docs/files.md describes every key"));
        let header: Header = yaml::from_str(text).map_err(syntax)?;
        let found = header
            .schema
            .ok_or_else(|| RunFileError(format!("{name}: schema: missing; a run file starts with 'schema: {}'", schema::RUN)))?;
        schema::require(&found, schema::RUN)
            .map_err(|error| RunFileError(format!("{name}: schema: {error}; write the file again with the harness of this version")))?;
        let run: Self = yaml::from_str(text).map_err(syntax)?;
        run.check().map_err(|problem| RunFileError(format!("{name}: {problem}")))?;
        Ok(run)
    }

    /// The text of the file. Its hash is part of the run's key, so it changes only where the run does.
    pub fn to_yaml(&self) -> Result<String, RunFileError> {
        serde_yaml::to_string(self).map_err(|error| RunFileError(format!("the run file cannot be written: {error}")))
    }

    /// Reads and checks a run file.
    pub fn load(path: &Path) -> Result<LoadedRun, RunFileError> {
        let bytes =
            std::fs::read(path).map_err(|source| RunFileError(format!("{}: cannot read the run file: {source}", path.display())))?;
        let text = std::str::from_utf8(&bytes).map_err(|source| RunFileError(format!("{}: not UTF-8 text: {source}", path.display())))?;
        Ok(LoadedRun { run: Self::parse(&path.display().to_string(), text)?, sha256: digest::sha256(&bytes) })
    }

    /// The same with a batch of one micro-batch, which is what buffers and kernels are made for. It keeps `accumulation`, so it is no run
    /// file of its own.
    #[must_use]
    pub fn micro_batch(&self) -> Self {
        let mut run = self.clone();
        run.batch.sequences /= run.batch.accumulation.max(1);
        run
    }

    /// Tokens in one optimizer step.
    pub fn tokens_per_step(&self) -> usize {
        self.batch.sequences * self.model.sequence_length
    }
}
