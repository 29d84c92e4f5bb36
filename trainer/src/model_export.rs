//! Between a run and `export`: which slice of the parameters is which of Hugging Face's tensors, and where the tokenizer is.

use std::path::{Path, PathBuf};

use contract::digest;
use contract::run_file::{ModelSection, RunFile};

use crate::error::TrainerError;
use crate::export::{self, ExportConfig};
use crate::parameters::Layout;
use crate::tensors::{NamedTensor, hash_tensors};

/// `tokenizer.json` of the data folder if there is one; its hash must be the run file's.
pub fn find_tokenizer(data: &Path, run: &RunFile) -> Result<Option<PathBuf>, TrainerError> {
    let path = data.join("tokenizer.json");
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TrainerError::read(&path, source)),
    };
    let found = digest::sha256(&bytes);
    if found == run.tokenizer.sha256 {
        return Ok(Some(path));
    }
    Err(TrainerError::BadFile(format!(
        "{}: SHA-256 is {found}, tokenizer.sha256 of the run file is {}; put the tokenizer that made the tokens there",
        path.display(),
        run.tokenizer.sha256
    )))
}

/// Where in a run's directory its weights are.
pub(crate) const FOLDER: &str = "model";

/// Writes it into `folder` and returns the SHA-256 of `model.safetensors`.
pub fn write(folder: &Path, run: &RunFile, layout: &Layout, parameters: &[f32], tokenizer: Option<&Path>) -> Result<String, TrainerError> {
    let tensors = tensors(&run.model, layout, parameters);
    export::write_model(folder, &config(run), &tensors, tokenizer).map_err(|error| TrainerError::write(folder, error))
}

/// The hash of weights that nobody keeps: what [`write()`] returns.
pub fn hash(run: &RunFile, layout: &Layout, parameters: &[f32]) -> Result<String, TrainerError> {
    let path = Path::new(export::WEIGHTS);
    hash_tensors(path, &tensors(&run.model, layout, parameters)).map_err(|error| TrainerError::write(path, error))
}

/// Name, shape and values of every tensor of Hugging Face's `LlamaForCausalLM`. The fused matrices hold their parts as whole
/// rows, one after the other, so a part is a slice and nothing is copied.
pub fn tensors<'a>(model: &ModelSection, layout: &Layout, parameters: &'a [f32]) -> Vec<NamedTensor<'a>> {
    let (d, f) = (model.hidden_size, model.intermediate_size);
    let (q, kv) = (model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim);
    let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![model.vocab_size, d], &parameters[layout.embedding.clone()])];
    for (number, layer) in layout.layers.iter().enumerate() {
        let [qkv, output, gate_up, down] = layer.linears.clone().map(|range| &parameters[range]);
        let (queries, rest) = qkv.split_at(q * d);
        let (keys, values) = rest.split_at(kv * d);
        let (gate, up) = gate_up.split_at(f * d);
        for (name, shape, tensor) in [
            ("input_layernorm", vec![d], &parameters[layer.input_norm.clone()]),
            ("self_attn.q_proj", vec![q, d], queries),
            ("self_attn.k_proj", vec![kv, d], keys),
            ("self_attn.v_proj", vec![kv, d], values),
            ("self_attn.o_proj", vec![d, q], output),
            ("post_attention_layernorm", vec![d], &parameters[layer.post_attention_norm.clone()]),
            ("mlp.gate_proj", vec![f, d], gate),
            ("mlp.up_proj", vec![f, d], up),
            ("mlp.down_proj", vec![d, f], down),
        ] {
            all.push((format!("model.layers.{number}.{name}.weight"), shape, tensor));
        }
    }
    all.push(("model.norm.weight".to_owned(), vec![d], &parameters[layout.final_norm.clone()]));
    all.push(("lm_head.weight".to_owned(), vec![model.vocab_size, d], &parameters[layout.head.clone()]));
    all
}

fn config(run: &RunFile) -> ExportConfig {
    let model = &run.model;
    ExportConfig {
        vocab_size: model.vocab_size,
        hidden_size: model.hidden_size,
        num_hidden_layers: model.num_hidden_layers,
        num_attention_heads: model.num_attention_heads,
        num_key_value_heads: model.num_key_value_heads,
        head_dim: model.head_dim,
        intermediate_size: model.intermediate_size,
        max_position_embeddings: model.sequence_length,
        rope_theta: model.rope_theta,
        rms_norm_eps: model.rms_norm_eps,
        initializer_range: model.initializer_range,
        end_of_document: run.data.end_of_document,
    }
}
