//! Forward, backward and optimizer against two independent implementations: a plain F64 model in this file (every gradient
//! element by central differences), and PyTorch's LlamaForCausalLM (committed vectors, conformance/torch_llama.py).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use crate::common;
use contract::run_file::{ModelSection, RunFile};
use kernels::cpu::{Cpu, InstructionSet};
use safetensors::SafeTensors;
use serde_yaml::Value;
use trainer::batches::Batch;
use trainer::parameters::Layout;
use trainer::trainer_state::Training;

/// Unit roundoff of F32.
const U: f64 = 1.0 / (1u64 << 24) as f64;

fn parse(run: &Value) -> RunFile {
    RunFile::parse("test", &serde_yaml::to_string(run).unwrap()).unwrap()
}

fn training(run: RunFile) -> Training<Cpu> {
    Training::new(Cpu::new(InstructionSet::detect(), 1).unwrap(), run, 3000).unwrap()
}

fn batch(inputs: Vec<u32>, targets: Vec<u32>) -> Batch {
    let mut batch = Batch::default();
    (batch.inputs, batch.targets) = (inputs, targets);
    batch
}

/// How far an F32 gradient may be from the exact one, relative to the largest element of its tensor.
///
/// Between a parameter and the loss, forward and back, lie about `operations` rounded operations in a row, each off by at most U.
/// Errors of both signs add up like a random walk, so their sum is of the order of sqrt(operations) U; 8 times that is allowed.
fn tolerance_of(model: &ModelSection) -> f64 {
    8.0 * operations(model).sqrt() * U
}

/// Each linear's contraction and each norm's and softmax's reduction, once forward and twice backward, in each block, and the head.
fn operations(model: &ModelSection) -> f64 {
    let linears: usize = model.linears().iter().map(|linear| linear.1 + linear.2).sum();
    let block = linears + 2 * model.hidden_size + model.sequence_length + 2 * model.head_dim;
    (3 * (model.num_hidden_layers * block + model.hidden_size + model.vocab_size)) as f64
}

/// The mean loss of a batch in F64, written for reading and for nothing else.
fn plain_loss(model: &ModelSection, layout: &Layout, p: &[f64], inputs: &[u32], targets: &[u32]) -> f64 {
    let (d, hd, t) = (model.hidden_size, model.head_dim, model.sequence_length);
    let (heads, kv, f) = (model.num_attention_heads, model.num_key_value_heads, model.intermediate_size);
    let matvec = |w: &[f64], x: &[f64]| -> Vec<f64> { w.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect() };
    let norm = |x: &[f64], gain: &[f64]| -> Vec<f64> {
        let r = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64 + model.rms_norm_eps).sqrt();
        x.iter().zip(gain).map(|(v, g)| v * r * g).collect()
    };
    let turn = |x: &mut [f64], position: usize| {
        for i in 0..hd / 2 {
            let angle = position as f64 * model.rope_theta.powf(-2.0 * i as f64 / hd as f64);
            let (a, b) = (x[i], x[i + hd / 2]);
            x[i] = a * angle.cos() - b * angle.sin();
            x[i + hd / 2] = b * angle.cos() + a * angle.sin();
        }
    };
    let mut total = 0.0;
    for (inputs, targets) in inputs.chunks(t).zip(targets.chunks(t)) {
        let mut stream: Vec<Vec<f64>> = inputs.iter().map(|&id| p[layout.embedding.clone()][id as usize * d..][..d].to_vec()).collect();
        for layer in &layout.layers {
            let [qkv_w, out_w, gate_up_w, down_w] = layer.linears.clone().map(|range| &p[range]);
            let mut qkv: Vec<Vec<f64>> = stream.iter().map(|x| matvec(qkv_w, &norm(x, &p[layer.input_norm.clone()]))).collect();
            for (position, row) in qkv.iter_mut().enumerate() {
                row[..(heads + kv) * hd].chunks_mut(hd).for_each(|head| turn(head, position));
            }
            for position in 0..t {
                let mut attended = vec![0.0; heads * hd];
                for head in 0..heads {
                    let group = head / (heads / kv);
                    let query = &qkv[position][head * hd..][..hd];
                    let key = |at: usize| &qkv[at][(heads + group) * hd..][..hd];
                    let value = |at: usize| &qkv[at][(heads + kv + group) * hd..][..hd];
                    let score: Vec<f64> =
                        (0..=position).map(|at| query.iter().zip(key(at)).map(|(a, b)| a * b).sum::<f64>() / (hd as f64).sqrt()).collect();
                    let sum: f64 = score.iter().map(|s| s.exp()).sum();
                    for (at, s) in score.iter().enumerate() {
                        for i in 0..hd {
                            attended[head * hd + i] += s.exp() / sum * value(at)[i];
                        }
                    }
                }
                let change = matvec(out_w, &attended);
                stream[position].iter_mut().zip(change).for_each(|(x, c)| *x += c);
            }
            for x in &mut stream {
                let gate_up = matvec(gate_up_w, &norm(x, &p[layer.post_attention_norm.clone()]));
                let hidden: Vec<f64> = (0..f).map(|i| gate_up[i] / (1.0 + (-gate_up[i]).exp()) * gate_up[f + i]).collect();
                x.iter_mut().zip(matvec(down_w, &hidden)).for_each(|(x, c)| *x += c);
            }
        }
        for (x, &target) in stream.iter().zip(targets) {
            let logits = matvec(&p[layout.head.clone()], &norm(x, &p[layout.final_norm.clone()]));
            total += logits.iter().map(|l| l.exp()).sum::<f64>().ln() - logits[target as usize];
        }
    }
    total / inputs.len() as f64
}

#[test]
fn every_gradient_element_is_the_central_difference_of_a_plain_f64_model() {
    let run = parse(&common::tiny_yaml(common::recipe("f32"), |run| {
        for (key, value) in [("vocab_size", 11), ("hidden_size", 12), ("head_dim", 6), ("intermediate_size", 10), ("sequence_length", 7)] {
            run["model"][key] = value.into();
        }
        run["batch"]["sequences"] = 2.into();
    }));
    let mut training = training(run);
    // Larger than at initialisation, gains off 1: attention is far from uniform and no gradient is tiny.
    for (index, value) in training.parameters.iter_mut().enumerate() {
        *value = *value * 12.0 + if *value == 1.0 { -11.0 + 0.05 * ((index % 7) as f32 - 3.0) } else { 0.0 };
    }
    let token = |i: u32| (i * i * 3 + i * 5 + 2) % 11;
    let (inputs, targets): (Vec<u32>, Vec<u32>) = ((0..14).map(token).collect(), (1..15).map(token).collect());
    training.set_batch(batch(inputs.clone(), targets.clone()));
    let loss = training.forward_backward(1).unwrap().loss;

    let (model, layout) = (training.run().model.clone(), training.model.layout().clone());
    let mut parameters: Vec<f64> = training.parameters.iter().map(|&x| f64::from(x)).collect();
    let plain = plain_loss(&model, &layout, &parameters, &inputs, &targets);
    let tolerance = tolerance_of(&model);
    assert!((loss - plain).abs() <= tolerance * plain, "{loss} and {plain}");
    // A step of 2^-15 leaves a truncation error near 2^-30 of the third derivative and 2^-53 / 2^-15 of rounding: both far below F32's.
    let h = 1.0 / 32768.0;
    for tensor in &layout.tensors {
        let gradient = &training.gradients[tensor.range.clone()];
        let largest = gradient.iter().fold(0.0f64, |m, &g| m.max(f64::from(g).abs()));
        assert!(largest > 1e-4, "{}: its gradient is too small to mean anything", tensor.name);
        for index in tensor.range.clone() {
            let mut at = |offset: f64| {
                let kept = parameters[index];
                parameters[index] += offset;
                let loss = plain_loss(&model, &layout, &parameters, &inputs, &targets);
                parameters[index] = kept;
                loss
            };
            let difference = (at(h) - at(-h)) / (2.0 * h);
            let error = (f64::from(training.gradients[index]) - difference).abs();
            assert!(
                error <= tolerance * largest + 1e-7,
                "{}[{}]: {} where differences give {difference}",
                tensor.name,
                index - tensor.range.start,
                training.gradients[index]
            );
        }
    }
}

/// The committed PyTorch run: its configuration as a run file, and its tensors.
fn torch() -> (serde_json::Value, Vec<u8>, Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let document: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("torch_llama.json")).unwrap()).unwrap();
    let run = common::tiny_yaml(common::recipe("f32"), |run| {
        let model = &document["model"];
        for key in [
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
        ] {
            run["model"][key] = model[key].as_u64().unwrap().into();
        }
        run["model"]["sequence_length"] = model["max_position_embeddings"].as_u64().unwrap().into();
        for key in ["rope_theta", "rms_norm_eps"] {
            run["model"][key] = model[key].as_f64().unwrap().into();
        }
        run["batch"]["sequences"] = document["batch"].as_u64().unwrap().into();
        for key in ["learning_rate", "beta1", "beta2", "epsilon", "weight_decay", "clip_norm"] {
            run["optimizer"][key] = document["optimizer"][key].as_f64().unwrap().into();
        }
        run["schedule"]["warmup_steps"] = document["schedule"]["warmup_steps"].as_u64().unwrap().into();
        run["schedule"]["decay_steps"] = document["schedule"]["decay_steps"].as_u64().unwrap().into();
        run["schedule"]["end_learning_rate"] = document["schedule"]["end_learning_rate"].as_f64().unwrap().into();
    });
    (document, fs::read(folder.join("torch_llama.safetensors")).unwrap(), run)
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    tensors.tensor(name).unwrap().data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn loss_gradients_and_ten_steps_agree_with_pytorch() {
    let (document, bytes, run) = torch();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut training = training(parse(&run));
    let (model, layout) = (training.run().model.clone(), training.model.layout().clone());
    // Where each of Hugging Face's tensors begins: export the numbers 0, 1, 2, ... and look at the first of each.
    let numbers: Vec<f32> = (0..layout.total).map(|number| number as f32).collect();
    let places: Vec<(String, usize, usize)> = trainer::model_export::tensors(&model, &layout, &numbers)
        .into_iter()
        .map(|(name, _, values)| (name, values[0] as usize, values.len()))
        .collect();
    assert_eq!(places.iter().map(|place| place.2).sum::<usize>(), layout.total);
    for (name, start, length) in &places {
        training.parameters[*start..start + length].copy_from_slice(&floats(&tensors, &format!("initial.{name}")));
    }
    let tokens: Vec<u32> = floats(&tensors, "tokens").iter().map(|x| x.to_bits()).collect(); // stored as I32: the bits are the number
    let (sequences, length) = (training.run().batch.sequences, model.sequence_length);
    let numbers = |key: &str| -> Vec<f64> { document[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect() };
    let (losses, norms) = (numbers("losses"), numbers("gradient_norms"));
    // PyTorch's model has F64 weights but does norms, angles and softmax in F32, so both sides have an F32's error.
    let tolerance = 2.0 * tolerance_of(&model);
    for step in 1..=losses.len() {
        let samples = tokens[(step - 1) * sequences * (length + 1)..][..sequences * (length + 1)].chunks(length + 1);
        let inputs = samples.clone().flat_map(|sample| sample[..length].to_vec()).collect();
        let targets = samples.flat_map(|sample| sample[1..].to_vec()).collect();
        training.set_batch(batch(inputs, targets));
        let result = training.forward_backward(step as u64).unwrap();
        if step == 1 {
            for (name, start, length) in &places {
                let wanted = floats(&tensors, &format!("gradient.{name}"));
                let largest = wanted.iter().fold(0.0f64, |m, &g| m.max(f64::from(g).abs()));
                for (index, (found, wanted)) in training.gradients[*start..start + length].iter().zip(&wanted).enumerate() {
                    let error = (f64::from(*found) - f64::from(*wanted)).abs();
                    assert!(error <= tolerance * largest, "{name}[{index}]: {found}, PyTorch {wanted}");
                }
            }
        }
        // AdamW divides by the root of the second moment, so an element with a tiny gradient carries its relative error into the
        // weight; the sum over steps stays of the order of one error a step.
        let allowed = tolerance * step as f64;
        assert!(
            (result.loss - losses[step - 1]).abs() <= allowed * losses[step - 1],
            "step {step}: loss {}, PyTorch {}",
            result.loss,
            losses[step - 1]
        );
        assert!(
            (result.gradient_norm - norms[step - 1]).abs() <= allowed * norms[step - 1],
            "step {step}: norm {}, PyTorch {}",
            result.gradient_norm,
            norms[step - 1]
        );
        training.update(step as u64, result.gradient_norm).unwrap();
    }
}

#[test]
fn one_batch_is_learnt_by_heart() {
    for (id, enough) in [("f32", 0.05), ("bf16", 0.05), ("fp8", 0.1), ("mxfp4-fdw-h16", 0.5)] {
        let mut training = training(parse(&common::tiny_yaml(common::recipe(id), |run| {
            run["optimizer"]["learning_rate"] = 1e-2.into();
            run["schedule"]["end_learning_rate"] = 1e-2.into();
        })));
        let token = |i: u32| (i * i * 7 + i / 3) % 48;
        training.set_batch(batch((0..128).map(token).collect(), (1..129).map(token).collect()));
        let mut losses = Vec::new();
        for step in 1..=150 {
            let result = training.forward_backward(step).unwrap();
            training.update(step, result.gradient_norm).unwrap();
            losses.push(result.loss);
        }
        assert!(losses[149] < enough && losses[0] > 3.5, "{id}: from {} to {}", losses[0], losses[149]);
    }
}

#[test]
fn rotations_cancel_within_the_derived_bound_and_other_matrices_do_not() {
    let value = |seed: usize| move |i: usize| (((i * 7919 + seed * 104_729) % 2003) as f64 - 1001.0) / 500.0;
    let (a, b): (Vec<f64>, Vec<f64>) = ((0..12 * 256).map(value(1)).collect(), (0..12 * 256).map(value(2)).collect());
    let signs: Vec<f32> = (0..16).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
    for (size, signs) in [(16, None), (32, None), (64, None), (128, None), (16, Some(&signs[..]))] {
        let (error, bound) = kernels::hadamard::cancellation_error(&a, &b, 256, size, signs);
        assert!(error <= bound && bound < 1e-12, "{size}: {error} against {bound}");
    }
    // With half of the signs a zero the transform is not orthogonal, and the check must see it.
    let broken: Vec<f32> = (0..16).map(|i| if i % 2 == 0 { 0.0 } else { 1.0 }).collect();
    assert!(kernels::hadamard::cancellation_error(&a, &b, 256, 16, Some(&broken)).0 > 1e-3);
}
