//! Whether a run file's numbers make sense together, with messages that name the key.
//!
//! A run that passes here is one that every kernel accepts; what depends on the machine or the data files is checked later.

use crate::defect;
use crate::id::Id;
use crate::recipe::{ScaleRule, check_perturbation, same_rotation};
use crate::run_file::{ModelSection, RecipeSection, RunFile, ShardSection};

/// Blocks in the deepest model: what is made for each comes before anything is known of the machine's memory.
const DEEPEST: usize = 1 << 12;

/// Tokens that can be counted: JSON's numbers hold them exactly.
const MOST_TOKENS: u64 = 1 << 53;

/// Elements in the largest matrix or activation this trainer indexes; beyond it a size is surely a mistake.
const LARGEST_PRODUCT: usize = 1 << 40;

type Check = Result<(), String>;

impl RunFile {
    /// Every rule, in the order of the file; the first broken one is told.
    pub fn check(&self) -> Check {
        self.model.check()?;
        self.data.train.check("data.train")?;
        self.data.validation.check("data.validation")?;
        at_most("data.end_of_document", self.data.end_of_document as usize, "model.vocab_size - 1", self.model.vocab_size - 1)?;
        check_sha256("tokenizer.sha256", &self.tokenizer.sha256)?;
        self.check_optimizer()?;
        positive("batch.sequences", self.batch.sequences)?;
        positive("batch.accumulation", self.batch.accumulation)?;
        if !self.batch.sequences.is_multiple_of(self.batch.accumulation) {
            return Err(format!(
                "batch.accumulation: {} micro-batches do not divide batch.sequences ({}) into equal parts",
                self.batch.accumulation, self.batch.sequences
            ));
        }
        if self
            .model
            .sequence_length
            .checked_mul(self.batch.sequences)
            .is_none_or(|tokens| tokens > LARGEST_PRODUCT / self.model.vocab_size)
        {
            return Err("batch.sequences: sequences * model.sequence_length * model.vocab_size is beyond 2^40; use a smaller batch".into());
        }
        positive("budget.steps", self.budget.steps)?;
        positive("evaluation.every_steps", self.evaluation.every_steps)?;
        positive("evaluation.sequences", self.evaluation.sequences)?;
        if self.target_loss.is_some_and(|target| !(target.is_finite() && target > 0.0)) {
            return Err("target_loss: must be a positive number of nats per token, or null".into());
        }
        positive("logging.train_every_steps", self.logging.train_every_steps)?;
        for &step in &self.logging.quantisation_steps {
            if step == 0 || step > self.budget.steps {
                return Err(format!("logging.quantisation_steps: step {step} is outside 1..={} (budget.steps)", self.budget.steps));
            }
        }
        positive("checkpoint.every_steps", self.checkpoint.every_steps)?;
        self.check_steps()?;
        self.check_room("data.train", self.data.train.tokens, 1)?;
        self.check_room("data.validation", self.data.validation.tokens, self.evaluation.sequences)?;
        self.check_recipe()?;
        self.check_readings()
    }

    fn check_steps(&self) -> Check {
        let steps = [
            ("budget.steps", self.budget.steps),
            ("schedule.warmup_steps", self.schedule.warmup_steps),
            ("schedule.decay_steps", self.schedule.decay_steps),
            ("evaluation.every_steps", self.evaluation.every_steps),
            ("logging.train_every_steps", self.logging.train_every_steps),
            ("checkpoint.every_steps", self.checkpoint.every_steps),
        ];
        let tokens = self.tokens_per_step() as u64;
        match steps.into_iter().find(|(_, steps)| steps.checked_mul(tokens).is_none_or(|all| all > MOST_TOKENS)) {
            Some((key, steps)) => Err(format!("{key}: {steps} steps of {tokens} tokens are beyond 2^53 tokens")),
            None => Ok(()),
        }
    }

    fn check_readings(&self) -> Check {
        let Some(readings) = &self.evaluation.readings else { return Ok(()) };
        positive("evaluation.readings.every_steps", readings.every_steps)?;
        if !readings.every_steps.is_multiple_of(self.evaluation.every_steps) {
            return Err(format!(
                "evaluation.readings.every_steps: {} is no multiple of evaluation.every_steps ({})",
                readings.every_steps, self.evaluation.every_steps
            ));
        }
        for (number, forward) in readings.forwards.iter().enumerate() {
            let key = format!("evaluation.readings.forwards[{number}]");
            if readings.forwards[..number].iter().any(|earlier| earlier.recipe == forward.recipe) {
                return Err(format!("{key}.recipe: '{}' is there twice", forward.recipe.escape_debug()));
            }
            for (name, spec) in [("input", &forward.input), ("weight", &forward.weight)] {
                for (linear, _, inputs) in self.model.linears() {
                    spec.validate(inputs).map_err(|problem| format!("{key}.{name}.{problem} (linear {linear})"))?;
                }
                if spec.scale == ScaleRule::Delayed {
                    return Err(format!("{key}.{name}.scale: a reading has no history; use 'current'"));
                }
            }
            same_rotation(&forward.input, &forward.weight).map_err(|problem| format!("{key}: {problem}"))?;
        }
        Ok(())
    }

    fn check_room(&self, key: &str, tokens: u64, sequences: usize) -> Check {
        let needed = sequences as u128 * self.model.sequence_length as u128 + 1;
        if u128::from(tokens) < needed {
            return Err(format!(
                "{key}.tokens: {tokens} tokens hold fewer than {sequences} sequences of {} (and one token to predict): {needed} are needed",
                self.model.sequence_length
            ));
        }
        Ok(())
    }

    fn check_optimizer(&self) -> Check {
        let optimizer = &self.optimizer;
        finite_positive("optimizer.learning_rate", optimizer.learning_rate)?;
        unit_interval("optimizer.beta1", optimizer.beta1)?;
        unit_interval("optimizer.beta2", optimizer.beta2)?;
        finite_positive("optimizer.epsilon", optimizer.epsilon)?;
        finite_not_negative("optimizer.weight_decay", optimizer.weight_decay)?;
        finite_positive("optimizer.clip_norm", optimizer.clip_norm)?;
        positive("schedule.decay_steps", self.schedule.decay_steps)?;
        finite_not_negative("schedule.end_learning_rate", self.schedule.end_learning_rate)
    }

    fn check_recipe(&self) -> Check {
        let RecipeSection { passes, delayed_scaling, perturbation, defect, .. } = &self.recipe;
        // The contraction axis of wgrad is a micro-batch.
        let tokens = self.tokens_per_step() / self.batch.accumulation;
        let fits = || self.model.linears().into_iter().try_for_each(|linear| passes.check_axes(linear, tokens));
        passes.check(*delayed_scaling).and_then(|()| fits()).map_err(|problem| format!("recipe.{problem}"))?;
        defect::check(*defect, passes).map_err(|problem| format!("recipe.{problem}"))?;
        let parts = self.batch.accumulation;
        defect.map_or(Ok(()), |defect| defect.check_micro_batches(parts)).map_err(|problem| format!("recipe.{problem}"))?;
        check_perturbation(*perturbation).map_err(|problem| format!("recipe.{problem}"))
    }
}

impl ModelSection {
    /// What is wrong with the shape, whatever is trained. The message begins with `model`.
    pub fn check(&self) -> Check {
        positive("model.vocab_size", self.vocab_size)?;
        positive("model.hidden_size", self.hidden_size)?;
        positive("model.num_hidden_layers", self.num_hidden_layers)?;
        positive("model.num_attention_heads", self.num_attention_heads)?;
        positive("model.num_key_value_heads", self.num_key_value_heads)?;
        positive("model.head_dim", self.head_dim)?;
        positive("model.intermediate_size", self.intermediate_size)?;
        positive("model.sequence_length", self.sequence_length)?;
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(format!(
                "model.num_key_value_heads: {} does not divide model.num_attention_heads ({})",
                self.num_key_value_heads, self.num_attention_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("model.head_dim: {} is odd; the rotary embedding turns pairs, so it must be even", self.head_dim));
        }
        let widths = [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.sequence_length,
            self.num_hidden_layers,
            self.num_attention_heads,
            self.head_dim,
        ];
        if widths.into_iter().any(|width| width > 1 << 24) {
            return Err("model: a size beyond 2^24 is surely a mistake; check vocab_size, hidden_size, intermediate_size, sequence_length, num_hidden_layers, num_attention_heads and head_dim".into());
        }
        if self.num_hidden_layers > DEEPEST {
            return Err(format!("model.num_hidden_layers: {} are more than {DEEPEST}", self.num_hidden_layers));
        }
        for (name, outputs, inputs) in self.linears() {
            if outputs.checked_mul(inputs).is_none_or(|size| size > LARGEST_PRODUCT) {
                return Err(format!("model: the {name} matrix would be {outputs} x {inputs}; use a smaller model"));
            }
        }
        finite_positive("model.rope_theta", self.rope_theta)?;
        finite_positive("model.rms_norm_eps", self.rms_norm_eps)?;
        finite_positive("model.initializer_range", self.initializer_range)
    }

    /// Parameters, embedding and untied head included.
    pub fn parameters(&self) -> u128 {
        let of = |rows: usize, columns: usize| rows as u128 * columns as u128;
        let linears: u128 = self.linears().iter().map(|(_, out, inputs)| of(*out, *inputs)).sum();
        let d = self.hidden_size;
        2 * of(self.vocab_size, d) + self.num_hidden_layers as u128 * (linears + 2 * d as u128) + d as u128
    }

    /// Name, output features and input features of the four linears of a block.
    pub fn linears(&self) -> [(&'static str, usize, usize); 4] {
        let queries = self.num_attention_heads * self.head_dim;
        let keys = self.num_key_value_heads * self.head_dim;
        [
            ("qkv", queries + 2 * keys, self.hidden_size),
            ("attention_output", self.hidden_size, queries),
            ("gate_up", 2 * self.intermediate_size, self.hidden_size),
            ("down", self.hidden_size, self.intermediate_size),
        ]
    }
}

impl ShardSection {
    fn check(&self, key: &str) -> Check {
        if !Id::is_plain(&self.prefix) {
            return Err(format!("{key}.prefix: '{}' must be a plain file name inside the data directory", self.prefix.escape_debug()));
        }
        check_sha256(&format!("{key}.sha256_bin"), &self.sha256_bin)?;
        check_sha256(&format!("{key}.sha256_idx"), &self.sha256_idx)
    }
}

fn positive<T: Default + PartialEq>(key: &str, value: T) -> Check {
    if value == T::default() { Err(format!("{key}: must be at least 1, is 0")) } else { Ok(()) }
}

fn at_most(key: &str, value: usize, bound_name: &str, bound: usize) -> Check {
    if value > bound { Err(format!("{key}: {value} is above {bound_name} ({bound})")) } else { Ok(()) }
}

fn finite_positive(key: &str, value: f64) -> Check {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{key}: must be a positive number, is {value}")) }
}

fn finite_not_negative(key: &str, value: f64) -> Check {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(format!("{key}: must be zero or a positive number, is {value}")) }
}

fn unit_interval(key: &str, value: f64) -> Check {
    if (0.0..1.0).contains(&value) { Ok(()) } else { Err(format!("{key}: must be at least 0 and below 1, is {value}")) }
}

fn check_sha256(key: &str, text: &str) -> Check {
    if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    Err(format!("{key}: a SHA-256 is 64 lower-case hexadecimal digits"))
}
