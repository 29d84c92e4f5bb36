//! Final weights as Hugging Face transformers loads them: `model.safetensors`, `config.json`, `tokenizer.json`.
//!
//! The trainer fuses projections (`qkv`, `gate_up`); here they are split by rows and get Hugging Face's names. RoPE is the
//! half-split form on both sides, so no row changes place. Weights stay F32 masters: what a recipe rounds is rounded anew
//! at every use, and the file holds what the optimizer held.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::tensors::{NamedTensor, TensorError, aside, write_tensors};

/// The shape of a model, in the names of `LlamaConfig`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Blocks.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Longest sequence; training's.
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

/// The parameters of one block, row-major [out, in], as the trainer holds them.
#[derive(Debug, Clone, Copy)]
pub struct LayerTensors<'a> {
    /// Gain before attention [hidden].
    pub input_norm: &'a [f32],
    /// [(heads + 2 * key-value heads) * head width, hidden]: query rows, then key rows, then value rows.
    pub qkv: &'a [f32],
    /// [hidden, heads * head width].
    pub attention_output: &'a [f32],
    /// Gain before the feed-forward layer [hidden].
    pub post_attention_norm: &'a [f32],
    /// [2 * intermediate, hidden]: gate rows, then up rows.
    pub gate_up: &'a [f32],
    /// [hidden, intermediate].
    pub down: &'a [f32],
}

/// All parameters of a model, as the trainer holds them.
#[derive(Debug, Clone)]
pub struct ModelTensors<'a> {
    /// [vocabulary, hidden].
    pub embedding: &'a [f32],
    /// Blocks from the input on.
    pub layers: Vec<LayerTensors<'a>>,
    /// Gain before the head [hidden].
    pub final_norm: &'a [f32],
    /// [vocabulary, hidden].
    pub head: &'a [f32],
}

/// The names and shapes that `LlamaForCausalLM` with this configuration has, in the model's order.
pub fn expected_tensors(config: &ExportConfig) -> Vec<(String, Vec<usize>)> {
    let (hidden, queries, keys) = (config.hidden_size, config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim);
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

/// Splits the trainer's fused tensors and gives them Hugging Face's names. Nothing is copied.
///
/// # Errors
/// [`TensorError::Tensor`] naming the first tensor whose elements do not fit the configuration.
pub fn split_fused<'a>(config: &ExportConfig, model: &ModelTensors<'a>) -> Result<Vec<NamedTensor<'a>>, TensorError> {
    let mut slices: Vec<&'a [f32]> = vec![model.embedding];
    let (hidden, queries, keys) = (config.hidden_size, config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim);
    for (number, layer) in model.layers.iter().enumerate() {
        let refuse = |part: &str| wrong(&format!("layers.{number}.{part}"), "its size does not fit the configuration");
        let (query, rest) = layer.qkv.split_at_checked(queries * hidden).ok_or_else(|| refuse("qkv"))?;
        let (key, value) = rest.split_at_checked(keys * hidden).ok_or_else(|| refuse("qkv"))?;
        let (gate, up) = layer.gate_up.split_at_checked(config.intermediate_size * hidden).ok_or_else(|| refuse("gate_up"))?;
        slices.extend([layer.input_norm, query, key, value, layer.attention_output, layer.post_attention_norm, gate, up, layer.down]);
    }
    slices.extend([model.final_norm, model.head]);
    let expected = expected_tensors(config);
    if slices.len() != expected.len() {
        return Err(wrong("layers", &format!("{} are given, the configuration has {}", model.layers.len(), config.num_hidden_layers)));
    }
    let named: Vec<NamedTensor<'a>> = expected.into_iter().zip(slices).map(|((name, shape), elements)| (name, shape, elements)).collect();
    match named.iter().find(|(_, shape, elements)| shape.iter().product::<usize>() != elements.len()) {
        Some((name, ..)) => Err(wrong(name, "its size does not fit the configuration")),
        None => Ok(named),
    }
}

/// Writes `config.json`, `tokenizer.json` (a copy, byte for byte, if one is given) and last `model.safetensors` into `dir`,
/// which is made if need be. Each is written aside and renamed. Returns the SHA-256 of `model.safetensors`.
///
/// `tensors` carry Hugging Face's names (see [`split_fused`]) and must be exactly those of [`expected_tensors`].
///
/// # Errors
/// [`TensorError::Tensor`] for a missing, surplus or misshapen tensor; [`TensorError::Write`]; [`TensorError::Missing`] and
/// [`TensorError::Read`] for the tokenizer.
pub fn write_model(dir: &Path, config: &ExportConfig, tensors: &[NamedTensor<'_>], tokenizer: Option<&Path>) -> Result<String, TensorError> {
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
    write_whole(&dir.join("config.json"), text.as_bytes())?;
    if let Some(path) = tokenizer {
        let bytes = std::fs::read(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => TensorError::Missing(path.to_owned()),
            _ => TensorError::Read { path: path.to_owned(), source },
        })?;
        write_whole(&dir.join("tokenizer.json"), &bytes)?;
    }
    write_tensors(&dir.join("model.safetensors"), tensors)
}

fn wrong(name: &str, problem: &str) -> TensorError {
    TensorError::Tensor { path: "model.safetensors".into(), name: name.to_owned(), problem: problem.to_owned() }
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

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TensorError> {
    let aside = aside(path);
    let written = std::fs::File::create(&aside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&aside, path))
        .map_err(|error| TensorError::write(path, error));
    if written.is_err() {
        // Nothing can be done about a failure here, and a leftover harms nobody.
        let _ = std::fs::remove_file(&aside);
    }
    written
}
