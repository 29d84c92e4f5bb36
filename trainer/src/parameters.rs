//! The parameters of a model: their names, shapes, places in one flat F32 array, and initial values.
//!
//! Masters, gradients and both optimizer moments are arrays of this layout. Names are the trainer's own fused ones
//! (`layers.0.qkv`); Hugging Face's names exist only in `export`.

use std::ops::Range;

use contract::run_file::ModelSection;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};

use crate::shards::ShardRanges;
use crate::streams;

/// One parameter tensor, row-major `[rows, columns]`; a norm's gain is `[1, width]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// `embedding`, `layers.N.{input_norm,qkv,attention_output,post_attention_norm,gate_up,down}`, `final_norm`, `head`.
    pub name: String,
    /// Output features, or entries of the vocabulary.
    pub rows: usize,
    pub columns: usize,
    /// Its elements in the flat array.
    pub range: Range<usize>,
    /// Matrices decay, gains do not.
    pub decays: bool,
    initial: Initial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Initial {
    One,
    Normal,
    /// Normal over sqrt(2 * layers): what is added to the residual stream.
    Residual,
}

/// Places of one block's tensors in the flat array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Gain before attention `[hidden]`.
    pub input_norm: Range<usize>,
    /// Gain before the feed-forward `[hidden]`.
    pub post_attention_norm: Range<usize>,
    /// qkv, attention_output, gate_up, down: each `[out, in]`.
    pub linears: [Range<usize>; 4],
}

impl Layer {
    /// All of them: they lie one after the other.
    pub fn range(&self) -> Range<usize> {
        self.input_norm.start..self.linears[3].end
    }
}

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// All tensors in the order of the flat array.
    pub tensors: Vec<Tensor>,
    /// `[vocabulary, hidden]`.
    pub embedding: Range<usize>,
    pub layers: Vec<Layer>,
    /// `[hidden]`.
    pub final_norm: Range<usize>,
    /// `[vocabulary, hidden]`.
    pub head: Range<usize>,
    /// Elements in all.
    pub total: usize,
}

impl Layout {
    /// The layout of a model that passed the run file's checks.
    pub fn new(model: &ModelSection) -> Self {
        let mut tensors = Vec::new();
        let mut total = 0;
        let mut place = |name: String, rows: usize, columns: usize, initial: Initial| {
            let range = total..total + rows * columns;
            total = range.end;
            tensors.push(Tensor { name, rows, columns, range: range.clone(), decays: initial != Initial::One, initial });
            range
        };
        let width = model.hidden_size;
        let embedding = place("embedding".into(), model.vocab_size, width, Initial::Normal);
        let layers = (0..model.num_hidden_layers)
            .map(|layer| {
                let name = |part: &str| format!("layers.{layer}.{part}");
                let [qkv, output, gate_up, down] = model.linears();
                let input_norm = place(name("input_norm"), 1, width, Initial::One);
                let qkv = place(name(qkv.0), qkv.1, qkv.2, Initial::Normal);
                let output = place(name(output.0), output.1, output.2, Initial::Residual);
                let post_attention_norm = place(name("post_attention_norm"), 1, width, Initial::One);
                let gate_up = place(name(gate_up.0), gate_up.1, gate_up.2, Initial::Normal);
                let down = place(name(down.0), down.1, down.2, Initial::Residual);
                Layer { input_norm, post_attention_norm, linears: [qkv, output, gate_up, down] }
            })
            .collect();
        let final_norm = place("final_norm".into(), 1, width, Initial::One);
        let head = place("head".into(), model.vocab_size, width, Initial::Normal);
        Self { tensors, embedding, layers, final_norm, head, total }
    }

    /// The parts of the array in the order in which a backward pass is done with them: final norm and head, the blocks from the last to the
    /// first, the embedding.
    pub fn buckets(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let (first, last) = (std::iter::once(self.final_norm.start..self.head.end), std::iter::once(self.embedding.clone()));
        first.chain(self.layers.iter().rev().map(Layer::range)).chain(last)
    }

    /// Initial values of all parameters, as [`Self::initialise_part`] says.
    pub fn initialise(&self, model: &ModelSection, seed: u64, perturbation: u32) -> Vec<f32> {
        self.initialise_part(model, seed, perturbation, &ShardRanges::one(0..self.total))
    }

    /// Initial values of a shard of the array: gains 1, matrices normal with standard deviation `initializer_range` (over sqrt(2 * layers) for
    /// `attention_output` and `down` when `scale_residual_init`). Each depends on the seed, the model and its place only.
    ///
    /// `perturbation` is [`contract::run_file::RecipeSection::perturbation`]: it moves each value by at most three units in its last place.
    pub fn initialise_part(&self, model: &ModelSection, seed: u64, perturbation: u32, shard: &ShardRanges) -> Vec<f32> {
        let deviation = model.initializer_range;
        let residual = if model.scale_residual_init { deviation / libm::sqrt(2.0 * model.num_hidden_layers as f64) } else { deviation };
        // Zeros cost nothing here: the threads below touch their pages first.
        let mut values = vec![0.0; shard.len()];
        let parts = self.tensors.iter().enumerate().flat_map(|tensor| shard.within(&tensor.1.range).map(move |part| (tensor, part)));
        for ((number, tensor), part) in parts {
            let (first, values) = (part.start - tensor.range.start, &mut values[shard.local(&part)]);
            let deviation = match tensor.initial {
                Initial::One => {
                    values.fill(1.0);
                    continue;
                }
                Initial::Normal => deviation as f32,
                Initial::Residual => residual as f32,
            };
            let stream = streams::initialisation(seed, number);
            // Each value has its own place in the stream, so that threads change nothing but the time.
            values.par_iter_mut().with_min_len(1 << 12).enumerate().for_each(|(index, value)| {
                let normal = stream.normal((first + index) as u64) * deviation;
                *value = f32::from_bits(normal.to_bits() ^ perturbation);
            });
        }
        values
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_initial_values_of_the_whole() {
        let model: ModelSection = serde_json::from_value(serde_json::json!({
            "vocab_size": 40, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
            "head_dim": 32, "intermediate_size": 96, "sequence_length": 16, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
            "initializer_range": 0.02, "scale_residual_init": true
        }))
        .unwrap();
        let layout = Layout::new(&model);
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let whole = bits(layout.initialise(&model, 5, 2));
        // Cuts inside matrices, at their ends, inside gains, and an empty part.
        let gain = layout.layers[1].input_norm.clone();
        for cuts in [vec![7], vec![layout.embedding.end], vec![gain.start, gain.start + 3, gain.end], vec![100, 100, layout.total - 1]] {
            let ends = cuts.iter().copied().chain([layout.total]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let parts: Vec<u32> = starts
                .zip(ends)
                .flat_map(|(start, end)| bits(layout.initialise_part(&model, 5, 2, &ShardRanges::one(start..end))))
                .collect();
            assert!(parts == whole, "cut at {cuts:?}");
        }
    }
}
