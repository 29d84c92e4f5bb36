//! `metrics.jsonl`: what a run computed, the same bytes on every CPU. Losses are means in nats per token.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::json::nullable;
use crate::recipe::Format;
use crate::schema;

crate::lines! {
    MetricsLine of schema::METRICS; {
        Header(Header) = "header" with schema,
        Train(Train) = "train",
        Evaluation(Evaluation) = "eval",
        Reading(Reading) = "reading",
        Quantisation(Box<Quantisation>) = "quantisation",
        Diverged(Diverged) = "diverged",
    }
}

/// First line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub profile: Id,
    pub arm: Id,
    pub seed: u64,
    pub parameters: u64,
    pub tokens_per_step: u64,
}

/// One training step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// From 1.
    pub step: u64,
    /// Seen so far, this step's included.
    pub tokens: u64,
    /// Mean over the step's tokens.
    #[serde(deserialize_with = "nullable")]
    pub loss: Option<f64>,
    /// Global gradient norm before clipping.
    #[serde(deserialize_with = "nullable")]
    pub grad_norm: Option<f64>,
    pub learning_rate: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Steps done.
    pub step: u64,
    /// Seen so far.
    pub tokens: u64,
    /// Mean over all evaluation tokens.
    #[serde(deserialize_with = "nullable")]
    pub loss: Option<f64>,
}

/// The weights of an evaluation, through another forward pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Steps done.
    pub step: u64,
    /// Seen so far.
    pub tokens: u64,
    /// The recipe whose forward pass it is.
    pub recipe: String,
    /// As an evaluation's; null where it is not finite, which ends no run.
    #[serde(deserialize_with = "nullable")]
    pub loss: Option<f64>,
}

/// The run ended because a number is no longer finite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diverged {
    /// The step that could not be done.
    pub step: u64,
    pub reason: Cow<'static, str>,
}

/// How one operand survived its preparation at one step. Ratios are null where nothing but zeros was prepared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    pub step: u64,
    /// Block, from 0.
    pub layer: u64,
    /// qkv, attention_output, gate_up or down.
    pub linear: Cow<'static, str>,
    /// fprop, dgrad or wgrad.
    pub pass: Cow<'static, str>,
    /// input, weight or output_gradient.
    pub operand: Cow<'static, str>,
    pub format: Format,
    /// ‖q − x‖ / ‖x‖, x being the rotated operand before quantisation and q after.
    #[serde(deserialize_with = "nullable")]
    pub relative_error: Option<f64>,
    /// sum(q − x) / sum(|x|).
    #[serde(deserialize_with = "nullable")]
    pub bias: Option<f64>,
    /// sum((q − x) sign(x)) / sum(|x|): below zero where clipping or underflow shrinks.
    #[serde(deserialize_with = "nullable")]
    pub magnitude_bias: Option<f64>,
    /// Cosine between q and x.
    #[serde(deserialize_with = "nullable")]
    pub cosine: Option<f64>,
    /// Mean over blocks of 32 of largest magnitude over root mean square, before rotation.
    #[serde(deserialize_with = "nullable")]
    pub amax_over_rms_before: Option<f64>,
    /// The same after rotation.
    #[serde(deserialize_with = "nullable")]
    pub amax_over_rms_after: Option<f64>,
    /// The same over the tenth of blocks with the highest ratio, before rotation.
    #[serde(deserialize_with = "nullable")]
    pub outlier_amax_over_rms_before: Option<f64>,
    /// The same over the tenth that is highest after rotation.
    #[serde(deserialize_with = "nullable")]
    pub outlier_amax_over_rms_after: Option<f64>,
}
