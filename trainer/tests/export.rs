//! Exported models and safetensors files: exact bytes, clear refusals, and the same logits in Hugging Face transformers.
//!
//! The last part runs where the environment variable TRANSFORMERS_PYTHON names a Python that has transformers and torch;
//! elsewhere it says that it was skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common;
use kernels::cpu::{Cpu, InstructionSet};
use trainer::batches::Batch;
use trainer::choices::Evaluation;
use trainer::export::{ExportConfig, expected_tensors, write_model};
use trainer::model::Model;
use trainer::model_export;
use trainer::tensors::{TensorError, Tensors, read_tensors, write_tensors};

#[test]
fn the_file_is_safetensors_with_one_metadata_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let (b, a) = ([1.0f32, -0.0, f32::MIN_POSITIVE / 4.0, 4.0], [5.0f32]);
    let hash = write_tensors(&path, &[("b".into(), vec![2, 2], &b), ("a".into(), vec![], &a)]).unwrap();
    let bytes = fs::read(&path).unwrap();
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]}}"#;
    let length = header.len().next_multiple_of(8);
    let mut expected = (length as u64).to_le_bytes().to_vec();
    expected.extend(format!("{header:<length$}").bytes());
    expected.extend(a.iter().chain(&b).flat_map(|element| element.to_le_bytes()));
    assert_eq!(bytes, expected);
    assert_eq!(hash, trainer::data::sha256_of(&path).unwrap());
    // The order in which tensors are given does not matter.
    assert_eq!(hash, write_tensors(&path, &[("a".into(), vec![], &a), ("b".into(), vec![2, 2], &b)]).unwrap());
    let tensors = read_tensors(&path).unwrap();
    assert_eq!(tensors.names(), ["a", "b"]);
    assert_eq!(tensors.f32("b", &[2, 2]).unwrap().map_bits(), b.to_vec().map_bits());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    assert!(tensors.f32("c", &[]).unwrap_err().to_string().contains("tensor c: is missing"));
    assert!(tensors.f32("b", &[4]).unwrap_err().to_string().contains("has shape [2, 2], expected [4]"));
    for length in 0..bytes.len() {
        let message = Tensors::parse(&path, bytes[..length].to_vec()).unwrap_err().to_string();
        assert!(message.contains("x.safetensors") && message.contains("truncated"), "{message}");
    }
    assert!(matches!(read_tensors(&folder.path().join("none")), Err(TensorError::Missing(_))));
    assert!(matches!(write_tensors(&path, &[("a".into(), vec![2], &a)]), Err(TensorError::Tensor { .. })));
    assert!(matches!(write_tensors(&path, &[("a".into(), vec![1], &a), ("a".into(), vec![1], &a)]), Err(TensorError::Tensor { .. })));
    assert!(matches!(write_tensors(&folder.path().join("no/x"), &[]), Err(TensorError::Write { .. })));
    // Whatever was refused has not touched the file that was there.
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

trait MapBits {
    fn map_bits(self) -> Vec<u32>;
}

impl MapBits for Vec<f32> {
    /// Bits, so that -0.0 and 0.0 differ.
    fn map_bits(self) -> Vec<u32> {
        self.into_iter().map(f32::to_bits).collect()
    }
}

fn config() -> ExportConfig {
    ExportConfig {
        vocab_size: 5,
        hidden_size: 4,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 2,
        intermediate_size: 3,
        max_position_embeddings: 8,
        rope_theta: 500_000.0,
        rms_norm_eps: 1e-5,
        initializer_range: 0.02,
        end_of_document: 0,
    }
}

#[test]
fn a_model_is_written_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("model");
    let values = vec![0.5f32; 64];
    let expected = expected_tensors(&config());
    let tensors: Vec<_> = expected.iter().map(|(name, shape)| (name.clone(), shape.clone(), &values[..shape.iter().product()])).collect();
    let tokenizer = folder.path().join("given.json");
    fs::write(&tokenizer, "{ \"odd\":  \"spacing\" }\r\n").unwrap();
    let hash = write_model(&dir, &config(), &tensors, Some(&tokenizer)).unwrap();
    assert_eq!(hash, trainer::data::sha256_of(&dir.join("model.safetensors")).unwrap());
    assert_eq!(fs::read(dir.join("tokenizer.json")).unwrap(), fs::read(&tokenizer).unwrap());
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(dir.join("config.json")).unwrap()).unwrap();
    assert_eq!((&json["rope_theta"], &json["rope_parameters"]["rope_theta"]), (&500_000.0.into(), &500_000.0.into()));
    assert_eq!((json["architectures"][0].as_str(), json["model_type"].as_str()), (Some("LlamaForCausalLM"), Some("llama")));
    assert_eq!(read_tensors(&dir.join("model.safetensors")).unwrap().names().len(), 12);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);

    let refused = |tensors: &[_]| write_model(&folder.path().join("refused"), &config(), tensors, None).unwrap_err().to_string();
    assert!(refused(&tensors[1..]).contains("model.embed_tokens.weight: is missing"));
    let mut changed = tensors.clone();
    changed[1].1 = vec![2, 2];
    assert!(refused(&changed).contains("input_layernorm.weight: has shape [2, 2], expected [4]"));
    changed[1] = tensors[1].clone();
    changed.push(("bias".into(), vec![1], &values[..1]));
    assert!(refused(&changed).contains("tensor bias: is not part of a Llama"));
    assert!(!folder.path().join("refused").exists());
    assert!(matches!(write_model(&dir, &config(), &tensors, Some(Path::new("none.json"))), Err(TensorError::Missing(_))));
}

/// Prints, for the token ids on the command line, the log-probabilities [positions, vocabulary] as one JSON array.
const SCRIPT: &str = r#"
import json, sys, torch, transformers
model, report = transformers.LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
with torch.no_grad():
    logits = model.double()(torch.tensor([json.loads(sys.argv[2])])).logits[0]
print(json.dumps(torch.log_softmax(logits, -1).tolist()))
"#;

/// Our log-probabilities come out of the public loss: with one target changed, the sum of losses changes by a difference of
/// two of them. Both forwards read the same F32 weights; ours computes in F32, the reference in F64. With logits of a few
/// units and sums of at most 64 terms, 1e-4 is some ten times the rounding error to expect (64 * 2^-24 * 8 = 3e-5 at worst
/// a layer), and a thousand times less than what a wrong RoPE base, norm or order of rows changes.
#[test]
fn transformers_computes_the_same_logits() {
    let Some(python) = std::env::var_os("TRANSFORMERS_PYTHON") else {
        println!("skipped: TRANSFORMERS_PYTHON names no Python with transformers and torch");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let run = common::tiny(common::recipe("f32"));
    let mut model = Model::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), &run).unwrap();
    let mut parameters = model.layout().initialise(&run.model, 5, 0);
    // Weights large enough that attention is not flat, and gains that are not all 1.
    let ranges: Vec<_> = model.layout().tensors.iter().map(|tensor| (tensor.range.clone(), tensor.rows == 1)).collect();
    for (range, gain) in ranges {
        for (index, value) in parameters[range].iter_mut().enumerate() {
            *value = if gain { 0.75 + 0.5 * (index % 7) as f32 / 7.0 } else { *value * 10.0 };
        }
    }
    let layout = model.layout().clone();
    model_export::write(folder.path(), &run, &layout, &parameters, None).unwrap();

    let (length, vocabulary) = (run.model.sequence_length, run.model.vocab_size);
    let inputs: Vec<u32> = (0..length as u32).map(|position| (position * position * 7 + 3) % vocabulary as u32).collect();
    let output =
        Command::new(python).args(["-c", SCRIPT]).arg(folder.path()).arg(serde_json::to_string(&inputs).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<Vec<f64>> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((theirs.len(), theirs[0].len()), (length, vocabulary));

    let weights = model.evaluation_weights(&parameters, 0).unwrap();
    let mut sum_of_losses = |targets: &[u32]| {
        let mut batch = Batch::default();
        (batch.inputs, batch.targets) = (inputs.clone(), targets.to_vec());
        model.evaluate(&parameters, &weights, (&batch, &()), Evaluation { step: 0, chunk: 0 }).unwrap()
    };
    let targets: Vec<u32> = (0..length as u32).map(|position| position % vocabulary as u32).collect();
    let ours = sum_of_losses(&targets);
    let reference: f64 = -targets.iter().enumerate().map(|(position, &target)| theirs[position][target as usize]).sum::<f64>();
    assert!((ours - reference).abs() < 1e-4 * length as f64, "sum of losses {ours}, transformers {reference}");
    let mut spread = 0.0f64;
    for position in [0, 1, length / 2, length - 1] {
        for target in 0..vocabulary as u32 {
            let mut changed = targets.clone();
            changed[position] = target;
            let ours = ours - sum_of_losses(&changed);
            let reference = theirs[position][target as usize] - theirs[position][targets[position] as usize];
            assert!((ours - reference).abs() < 1e-4, "position {position}, token {target}: {ours}, transformers {reference}");
            spread = spread.max(reference.abs());
        }
    }
    assert!(spread > 1.0, "logits that hardly differ ({spread}) would prove nothing");
}
