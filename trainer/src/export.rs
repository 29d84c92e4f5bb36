//! Final weights as Hugging Face transformers loads them: `model.safetensors`, `config.json`, `tokenizer.json`.
//!
//! Tensors arrive under Hugging Face's names (`model_export` splits the trainer's fused ones); RoPE is the half-split form on
//! both sides, so no row changes place. Weights stay F32 masters: what a recipe rounds is rounded anew at every use, and
//! the file holds what the optimizer held.

use std::path::Path;

use serde_json::{Value, json};

use crate::tensors::{NamedTensor, TensorError, write_tensors};
use crate::whole_files::write_whole;

/// The file of the weights.
pub const WEIGHTS: &str = "model.safetensors";

/// The shape of a model, in the names of `LlamaConfig`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    pub max_position_embeddings: usize,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Token that separates documents: beginning and end of text alike.
    pub end_of_document: u32,
}

/// The names and shapes that `LlamaForCausalLM` with this configuration has, in the model's order.
pub fn expected_tensors(config: &ExportConfig) -> Vec<(String, Vec<usize>)> {
    let (hidden, queries, keys) =
        (config.hidden_size, config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim);
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden])];
    for layer in 0..config.num_hidden_layers {
        let parts = [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![queries, hidden]),
            ("self_attn.k_proj", vec![keys, hidden]),
            ("self_attn.v_proj", vec![keys, hidden]),
            ("self_attn.o_proj", vec![hidden, queries]),
            ("post_attention_layernorm", vec![hidden]),
            ("mlp.gate_proj", vec![config.intermediate_size, hidden]),
            ("mlp.up_proj", vec![config.intermediate_size, hidden]),
            ("mlp.down_proj", vec![hidden, config.intermediate_size]),
        ];
        tensors.extend(parts.into_iter().map(|(part, shape)| (format!("model.layers.{layer}.{part}.weight"), shape)));
    }
    tensors.push(("model.norm.weight".to_owned(), vec![hidden]));
    tensors.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    tensors
}

/// Writes `config.json`, `tokenizer.json` (a copy, byte for byte, if one is given) and last `model.safetensors` into `dir`,
/// which is made if need be. Each is written aside and renamed. Returns the SHA-256 of `model.safetensors`.
///
/// `tensors` carry Hugging Face's names and must be exactly those of [`expected_tensors`].
///
/// # Errors
/// [`TensorError::Tensor`] for a missing, surplus or misshapen tensor; [`TensorError::Write`]; [`TensorError::Missing`] and
/// [`TensorError::Read`] for the tokenizer.
pub fn write_model(
    dir: &Path,
    config: &ExportConfig,
    tensors: &[NamedTensor<'_>],
    tokenizer: Option<&Path>,
) -> Result<String, TensorError> {
    let expected = expected_tensors(config);
    for (name, shape) in &expected {
        match tensors.iter().find(|(given, ..)| given == name) {
            None => return Err(wrong(name, "is missing")),
            Some((_, given, _)) if given != shape => return Err(wrong(name, &format!("has shape {given:?}, expected {shape:?}"))),
            Some(_) => {}
        }
    }
    if let Some((name, ..)) = tensors.iter().find(|(name, ..)| !expected.iter().any(|(known, _)| known == name)) {
        return Err(wrong(name, "is not part of a Llama of this configuration"));
    }
    std::fs::create_dir_all(dir).map_err(|error| TensorError::write(dir, error))?;
    let mut text = serde_json::to_string_pretty(&config_json(config)).map_err(|error| TensorError::write(dir, error))?;
    text.push('\n');
    let written = |path: &Path, bytes: &[u8]| write_whole(path, bytes).map_err(|error| TensorError::write(path, error));
    written(&dir.join("config.json"), text.as_bytes())?;
    if let Some(path) = tokenizer {
        let bytes = std::fs::read(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => TensorError::Missing(path.to_owned()),
            _ => TensorError::Read { path: path.to_owned(), source },
        })?;
        written(&dir.join("tokenizer.json"), &bytes)?;
    }
    write_tensors(&dir.join(WEIGHTS), tensors)
}

fn wrong(name: &str, problem: &str) -> TensorError {
    TensorError::Tensor { path: WEIGHTS.into(), name: name.to_owned(), problem: problem.to_owned() }
}

/// Both forms of the rotary base, with equal values: transformers 5 reads `rope_parameters`, 4 reads `rope_theta` and would
/// silently take 10,000 without it.
fn config_json(config: &ExportConfig) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "initializer_range": config.initializer_range,
        "rope_theta": config.rope_theta,
        "rope_scaling": null,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "attention_bias": false,
        "attention_dropout": 0.0,
        "mlp_bias": false,
        "tie_word_embeddings": false,
        "bos_token_id": config.end_of_document,
        "eos_token_id": config.end_of_document,
        "use_cache": true,
        "dtype": "float32",
    })
}
