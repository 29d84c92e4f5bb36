//! What the peer scripts of GPUs are asked to time: `kernels/peers/gpu_peers.py`, and `fsdp_peers.py` of several ranks.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use study::kernels::Missing;
use study::manifest::profile::Model;

use super::super::script::Script;

/// What it is asked to time.
pub(super) struct Wanted<'a> {
    pub(super) python: &'a Path,
    pub(super) device: &'a str,
    /// `{"name": .., "sequences": .., "model": {..}, "recipes": [..]}`, one line of JSON.
    pub(super) size: &'a str,
    pub(super) compile_seconds: u64,
    pub(super) eager_only: bool,
    pub(super) repeats: usize,
}

/// Shapes of a model as the scripts read them; `sequences` are computed at once.
pub(in super::super) fn size(name: &str, model: &Model, sequences: usize) -> Value {
    json!({
        "name": name, "sequences": sequences, "vocabulary": model.vocab_size, "width": model.hidden_size,
        "layers": model.num_hidden_layers, "heads": model.num_attention_heads, "kv_heads": model.num_key_value_heads,
        "head": model.head_dim, "ffn": model.intermediate_size, "sequence": model.sequence_length, "rope_theta": model.rope_theta,
        "epsilon": model.rms_norm_eps,
    })
}

/// Starts the script; it is not yet ready.
pub(super) fn start(root: &Path, wanted: &Wanted<'_>) -> Result<Script, Missing> {
    let (compile_seconds, repeats) = (wanted.compile_seconds.to_string(), wanted.repeats.to_string());
    let mut arguments =
        vec!["--size", wanted.size, "--device", wanted.device, "--compile-seconds", &compile_seconds, "--repeats", &repeats];
    if wanted.eager_only {
        arguments.push("--eager-only");
    }
    // Each recipe may use up its time to compile; importing takes its own.
    let patience = Duration::from_secs(120 + 6 * wanted.compile_seconds);
    Script::spawn(root, wanted.python, "gpu_peers.py", &arguments, patience)
}
