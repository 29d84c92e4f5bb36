//! Profiles: what a campaign trains, on what, how far, and what it needs. And the small manifests a profile names.

use std::collections::BTreeMap;

use contract::device::DeviceKind;
use contract::id::Id;
use contract::recipe::Format;
use contract::run_file::{BatchSection, BudgetSection, CheckpointSection, LoggingSection, ModelSection, OptimizerSection, ScheduleSection};
use serde::{Deserialize, Serialize};

/// One file of manifests/profiles.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// File name without `.yaml`.
    pub id: Id,
    pub title: String,
    pub purpose: String,
    /// Not shown in lists: another command uses it.
    #[serde(default)]
    pub hidden: bool,
    /// Its losses mean nothing: it decides no claim and is no evidence.
    #[serde(default)]
    pub demonstration: bool,
    /// Papers whose claims are judged, the first being the main one.
    pub papers: Vec<String>,
    pub hardware: String,
    pub model: String,
    pub dataset: String,
    pub tokenizer: String,
    pub optimizer: OptimizerSection,
    /// Learning rate over steps.
    pub schedule: ScheduleSection,
    /// Sequences in a step.
    pub batch: BatchSection,
    pub budget: BudgetSection,
    /// When and on how much validation text.
    pub evaluation: Evaluation,
    /// Validation loss, in nats per token, that tokens are counted to.
    /// Null means none and must be written: a profile that forgot the key would judge nothing.
    #[serde(deserialize_with = "Option::deserialize")]
    pub target_loss: Option<f64>,
    /// Which estimate of tokens to target the verdicts use.
    pub estimator: Estimator,
    /// What goes into the log.
    pub logging: LoggingSection,
    /// How often a run can be resumed from.
    pub checkpoint: CheckpointSection,
    pub seeds: Vec<u64>,
    /// Arms in groups, as tables show them.
    pub arms: Vec<ArmGroup>,
    /// Which arms' step times are measured.
    pub step_time: StepTime,
    /// How often kernels are timed.
    pub kernel_time: Repeats,
    /// What the machine must have. `gpus` are those that one run is spread over.
    pub requires: BTreeMap<String, f64>,
    /// What MLPerf log lines say of the benchmark.
    pub mllog: Mllog,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Steps between evaluations.
    pub every_steps: u64,
    /// Sequences of the validation stream, never shuffled.
    pub sequences: usize,
    /// Take them at equal distances over the whole stream instead of its first ones (MLPerf takes the first).
    #[serde(default)]
    pub spread: bool,
    /// Evaluations of the same weights through other arms' forward passes.
    #[serde(default)]
    pub readings: Option<Readings>,
}

/// Which forward passes the weights are read through beside an arm's own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Readings {
    /// Steps between them: a multiple of the evaluation's.
    pub every_steps: u64,
    /// Recipes through whose forward pass every arm is read.
    pub all: Vec<String>,
    /// More of them, by arm.
    #[serde(default)]
    pub arms: BTreeMap<String, Vec<String>>,
}

impl Readings {
    /// Every recipe that is read through.
    pub fn recipes(&self) -> impl Iterator<Item = &String> {
        self.all.iter().chain(self.arms.values().flatten())
    }
}

/// Which estimate of tokens to target counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Estimator {
    /// The first evaluation at or below the target.
    Grid,
    /// Linear in loss between the last evaluation above and the first at or below.
    Interpolated,
}

impl Estimator {
    /// The word as manifests and reports write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Interpolated => "interpolated",
        }
    }
}

/// Arms that tables show together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmGroup {
    pub group: String,
    /// Recipe ids; a recipe is an arm.
    pub recipes: Vec<String>,
}

/// Step-time measurement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTime {
    pub recipes: Vec<String>,
    pub repeats: u64,
    /// Repeats not counted, first.
    pub warmup: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    pub repeats: u64,
    /// Repeats not counted, first.
    pub warmup: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mllog {
    /// `llama31_8b` only for the true benchmark.
    pub benchmark: String,
}

/// One file of manifests/models. Field names are those of Hugging Face's LlamaConfig where it has them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub id: Id,
    pub title: String,
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    pub num_key_value_heads: u64,
    pub head_dim: u64,
    pub intermediate_size: u64,
    pub sequence_length: u64,
    pub rope_theta: f64,
    pub rms_norm_eps: f64,
    pub initializer_range: f64,
    pub scale_residual_init: bool,
}

impl Model {
    /// As a run file has it.
    pub fn section(&self) -> ModelSection {
        // A size that no address reaches is told with all that are too large.
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        ModelSection {
            vocab_size: size(self.vocab_size),
            hidden_size: size(self.hidden_size),
            num_hidden_layers: size(self.num_hidden_layers),
            num_attention_heads: size(self.num_attention_heads),
            num_key_value_heads: size(self.num_key_value_heads),
            head_dim: size(self.head_dim),
            intermediate_size: size(self.intermediate_size),
            sequence_length: size(self.sequence_length),
            rope_theta: self.rope_theta,
            rms_norm_eps: self.rms_norm_eps,
            initializer_range: self.initializer_range,
            scale_residual_init: self.scale_residual_init,
        }
    }

    /// What is wrong with the shape.
    pub fn check(&self) -> Result<(), String> {
        self.section().check().map_err(|why| why.strip_prefix("model.").map(str::to_owned).unwrap_or(why))
    }
}

/// One file of manifests/hardware.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// File name without `.yaml`.
    pub id: Id,
    pub title: String,
    /// Which kind of device the trainer runs on.
    pub device: DeviceKind,
    /// Formats that have an arithmetic unit of their own.
    pub native_formats: Vec<Format>,
    pub detect: Detect,
    /// What its maker states, dense.
    #[serde(default)]
    pub peaks: Option<Peaks>,
}

/// Rates that a device's maker states: multiply-adds count two operations, nothing is sparse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peaks {
    /// Operations a second in BF16.
    pub bf16: f64,
    /// Operations a second in FP8, where there is a unit for it.
    #[serde(default)]
    pub fp8: Option<f64>,
    /// Operations a second in MXFP4, where there is a unit for it.
    #[serde(default)]
    pub mxfp4: Option<f64>,
    /// Bytes a second to and from memory.
    pub bytes_per_second: f64,
    /// Memory of one device, bytes.
    pub memory_bytes: u64,
}

/// How the presence of hardware shows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    #[serde(default)]
    pub file: Option<String>,
    /// A driver library, by its run-time name.
    #[serde(default)]
    pub library: Option<String>,
}

/// One file of manifests/tokenizers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    /// File name without `.yaml`.
    pub id: Id,
    pub kind: TokenizerKind,
    /// tokenizer.json, relative to the repository; null when it is not committed.
    pub file: Option<String>,
    /// SHA-256 of that file.
    pub sha256: Option<String>,
    pub vocab_size: u64,
    pub trained_on: Option<String>,
    /// What to do when it is not here.
    pub how_to_get: String,
    /// What it makes of the dataset it was trained on; null: recorded at first use.
    #[serde(default)]
    pub shards: Option<Shards>,
}

/// A dataset as tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shards {
    pub train: Shard,
    pub validation: Shard,
    /// Token id that separates documents.
    pub end_of_document: u64,
}

/// One .bin/.idx pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Tokens, end-of-document ones included.
    pub tokens: u64,
    /// SHA-256 of the .bin file.
    pub sha256_bin: String,
    /// SHA-256 of the .idx file.
    pub sha256_idx: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenizerKind {
    /// Trained by our own command.
    ByteLevelBpe,
    /// Someone else's; data arrives tokenised.
    External,
}
