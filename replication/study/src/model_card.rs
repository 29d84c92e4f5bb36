//! A finished run's weights as a folder that Hugging Face transformers loads, with a model card: what was trained, how, on what, to which loss.

use std::path::{Path, PathBuf};

use contract::json::Document as _;
use contract::outcome::Done;
use contract::run_file::{LoadedRun, RunFile};
use serde_json::json;

use crate::exit::{self, ExitCode};
use crate::files::{self, FileError};
use crate::folder;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: {what}", .path.display())]
    Content { path: PathBuf, what: String },
    #[error(
        "{}: the run has no weights; it is not finished, it diverged, or it ran on a GPU without --keep-weights: `cargo xtask replicate --keep-weights --fresh` makes them",
        .0.display()
    )]
    NoWeights(PathBuf),
    #[error("{}: it is there already; name a new folder with --out", .0.display())]
    Taken(PathBuf),
}

impl ExitCode for ModelError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Content { .. } | Self::NoWeights(_) => exit::DATA,
            Self::Taken(_) => exit::USAGE,
        }
    }
}

/// Copies weights, configuration and tokenizer of the run whose files lie in `run` to the new folder `out`, and writes the card; what it says.
///
/// # Errors
/// A run without weights, weights that are not those of its done.json, a folder that is there already.
pub fn export(run: &Path, out: &Path) -> Result<String, ModelError> {
    let model = run.join("model");
    let (weights, done) = (model.join("model.safetensors"), run.join("done.json"));
    if !weights.is_file() || !done.is_file() {
        return Err(ModelError::NoWeights(run.to_owned()));
    }
    if out.exists() {
        return Err(ModelError::Taken(out.to_owned()));
    }
    let wrong = |path: &Path, what: String| ModelError::Content { path: path.to_owned(), what };
    let done = Done::from_json("done.json", &files::read_text(&done)?).map_err(|error| wrong(&done, error.to_string()))?;
    let found = files::sha256_file(&weights)?;
    if done.model_sha256.as_ref() != Some(&found) {
        return Err(wrong(&weights, format!("SHA-256 is {found}, done.json says another; make the run again with --fresh")));
    }
    let path = run.join("run.yaml");
    let loaded = RunFile::load(&path).map_err(|error| wrong(&path, error.to_string()))?;
    let card = card(&loaded, &done, &found);
    folder::make(out, |folder| {
        for name in ["config.json", "model.safetensors"] {
            files::copy(&model.join(name), &folder.join(name))?;
        }
        if model.join("tokenizer.json").is_file() {
            files::copy(&model.join("tokenizer.json"), &folder.join("tokenizer.json"))?;
            files::write(&folder.join("tokenizer_config.json"), format!("{:#}\n", tokenizer_config(&loaded.run)).as_bytes())?;
        }
        files::copy(&path, &folder.join("run.yaml"))?;
        files::write(&folder.join("README.md"), card.as_bytes())
    })?;
    Ok(card)
}

/// What `AutoTokenizer` needs beside tokenizer.json. Id 0 of our tokenizers is the end of a document.
fn tokenizer_config(run: &RunFile) -> serde_json::Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|endoftext|>",
        "model_max_length": run.model.sequence_length,
        "clean_up_tokenization_spaces": false,
    })
}

/// In the form of Hugging Face's model cards: YAML for programs, then text.
fn card(loaded: &LoadedRun, done: &Done, weights: &str) -> String {
    let LoadedRun { run, sha256 } = loaded;
    let (identity, model) = (&run.run, &run.model);
    let loss = done.final_validation_loss.map_or_else(|| "not finite".to_owned(), |loss| loss.to_string());
    format!(
        "---
license: [mit, apache-2.0]
library_name: transformers
pipeline_tag: text-generation
tags: [llama, mxfp4, quantised-training, replication]
---

# {arm}, seed {seed}, profile {profile}

A small Llama, trained for an independent replication of *Pretraining Large Language Models with MXFP4 on Native FP4 Hardware*
(arXiv 2605.09825). It exists to compare recipes of training: it is of no use as a language model, was not aligned, and was tested for
nothing but its loss.

| | |
|---|---|
| recipe | `{arm}`; run.yaml has every operand's format, block, scale rule, rounding and rotation |
| model | {layers} layers of width {width}, {heads} heads, {vocabulary} tokens of `{tokenizer}`, context {context} |
| trained | {steps} steps, {tokens} tokens |
| validation loss | {loss} nats per token, through the recipe's own forward pass |
| weights | F32, as the optimizer had them: nothing is quantised in the file |
| SHA-256 | of model.safetensors `{weights}`, of run.yaml `{sha256}` |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(\".\")
tokenizer = AutoTokenizer.from_pretrained(\".\")
```

transformers computes in the precision that it is told, and not through the recipe's quantised products: its loss differs from the one above by
what that quantisation does.
",
        arm = identity.arm,
        seed = identity.seed,
        profile = identity.profile,
        layers = model.num_hidden_layers,
        width = model.hidden_size,
        heads = model.num_attention_heads,
        vocabulary = model.vocab_size,
        tokenizer = run.tokenizer.id,
        context = model.sequence_length,
        steps = done.steps,
        tokens = done.tokens,
    )
}
