//! A Llama: its forward and backward passes, explicitly.
//!
//! Pre-norm blocks (RMSNorm, grouped-query causal attention with rotary positions, RMSNorm, SwiGLU), a final norm and an
//! untied head. Embedding, norms, attention core, head and loss are F32; the four linears of a block follow the recipe
//! (`linear`). Every activation that backward needs is kept; buffers are made once and reused at each step.
//!
//! Shapes: T tokens = sequences * sequence_length, d hidden, q = heads * head_dim, w = q + 2 * kv_heads * head_dim, f ffn, V vocabulary.

use std::ops::Range;

use kernels::cpu::{AttentionShape, Cpu, Panels, RopeTable};

use crate::batches::Batch;
use crate::error::TrainerError;
use crate::linear::{Evaluation, Goal, Linears, Tensors};
use crate::parameters::Layout;
use crate::run_file::{ModelSection, RunFile};
use crate::streams::Place;

/// The linears of a block, as `Place::linear` counts them.
const QKV: usize = 0;
const ATTENTION_OUTPUT: usize = 1;
const GATE_UP: usize = 2;
const DOWN: usize = 3;

/// What one block keeps for its backward pass.
#[derive(Debug)]
struct Block {
    /// Residual stream that enters the block `[T, d]`.
    entering: Vec<f32>,
    inverse_rms1: Vec<f32>,
    /// `[T, d]`.
    normed1: Vec<f32>,
    /// Rotated queries and keys, and values `[T, w]`.
    qkv: Vec<f32>,
    /// `[T, q]`.
    attended: Vec<f32>,
    logsumexp: Vec<f32>,
    /// Residual stream between attention and feed-forward `[T, d]`.
    middle: Vec<f32>,
    inverse_rms2: Vec<f32>,
    /// `[T, d]`.
    normed2: Vec<f32>,
    /// `[T, 2f]`.
    gate_up: Vec<f32>,
    /// `[T, f]`.
    hidden: Vec<f32>,
}

/// Gradients of activations, shared by all blocks.
#[derive(Debug)]
struct Gradients {
    /// Of the residual stream `[T, d]`.
    stream: Vec<f32>,
    /// Of a norm's output `[T, d]`.
    normed: Vec<f32>,
    /// `[T, w]`.
    qkv: Vec<f32>,
    /// `[T, q]`.
    attended: Vec<f32>,
    /// `[T, 2f]`.
    gate_up: Vec<f32>,
}

/// The model's buffers and the linears' state; parameters are passed in.
#[derive(Debug)]
pub struct Model {
    cpu: Cpu,
    section: ModelSection,
    layout: Layout,
    rope: RopeTable,
    /// Recipe and state of the linears.
    pub linears: Linears,
    blocks: Vec<Block>,
    /// Residual stream after the last block `[T, d]`.
    leaving: Vec<f32>,
    inverse_rms: Vec<f32>,
    /// `[T, d]`.
    normed: Vec<f32>,
    losses: Vec<f32>,
    gradients: Gradients,
    norm_epsilon: f32,
}

/// How the linears of a forward pass are done.
enum Mode<'a> {
    Training { step: u64 },
    Evaluation { evaluation: Evaluation, weights: &'a [Panels] },
}

impl Model {
    /// Buffers for a run's batch size.
    pub fn new(cpu: Cpu, run: &RunFile) -> Self {
        let section = run.model.clone();
        let tokens = run.tokens_per_step();
        let [qkv, output, gate_up, down] = section.linears();
        let (d, w, q, f2, f) = (section.hidden_size, qkv.1, output.2, gate_up.1, down.2);
        let buffer = |width: usize| vec![0.0f32; tokens * width];
        let block = |_| Block {
            entering: buffer(d),
            inverse_rms1: buffer(1),
            normed1: buffer(d),
            qkv: buffer(w),
            attended: buffer(q),
            logsumexp: buffer(section.num_attention_heads),
            middle: buffer(d),
            inverse_rms2: buffer(1),
            normed2: buffer(d),
            gate_up: buffer(f2),
            hidden: buffer(f),
        };
        Self {
            layout: Layout::new(&section),
            rope: RopeTable::new(section.head_dim, section.sequence_length, section.rope_theta),
            linears: Linears::new(cpu.clone(), run),
            blocks: (0..section.num_hidden_layers).map(block).collect(),
            leaving: buffer(d),
            inverse_rms: buffer(1),
            normed: buffer(d),
            losses: buffer(1),
            gradients: Gradients { stream: buffer(d), normed: buffer(d), qkv: buffer(w), attended: buffer(q), gate_up: buffer(f2) },
            norm_epsilon: section.rms_norm_eps as f32,
            cpu,
            section,
        }
    }

    /// Where parameters are in the flat arrays.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Forward and backward of training step `step`: mean loss of the batch, and its gradient in `gradients` (overwritten).
    ///
    /// # Errors
    /// A kernel's.
    pub fn train(&mut self, parameters: &[f32], batch: &Batch, step: u64, gradients: &mut [f32]) -> Result<f64, TrainerError> {
        let tokens = batch.inputs.len();
        self.forward(parameters, &batch.inputs, &Mode::Training { step })?;
        let Self { cpu, section, layout, normed, losses, gradients: g, .. } = self;
        let stream = tokens * section.hidden_size;
        let (head, d_head) = (&parameters[layout.head.clone()], &mut gradients[layout.head.clone()]);
        let (losses, scale) = (&mut losses[..tokens], 1.0 / tokens as f32);
        let sum = cpu
            .head(&normed[..stream], head, &batch.targets, scale, losses, &mut g.normed[..stream], d_head)
            .map_err(TrainerError::kernel)?;
        // Matrices of linears are overwritten, the head's was; the embedding and the gains are added to.
        for tensor in self.layout.tensors.iter().filter(|tensor| !tensor.decays || tensor.range == self.layout.embedding) {
            gradients[tensor.range.clone()].fill(0.0);
        }
        self.backward(parameters, &batch.inputs, step, gradients)?;
        Ok(sum / tokens as f64)
    }

    /// Every weight of the linears as evaluation after `step` steps reads it.
    ///
    /// # Errors
    /// A kernel's.
    pub fn evaluation_weights(&self, parameters: &[f32], step: u64) -> Result<Vec<Panels>, TrainerError> {
        let mut weights = Vec::with_capacity(4 * self.layout.layers.len());
        for (layer, ranges) in self.layout.layers.iter().enumerate() {
            for (linear, range) in ranges.linears.iter().enumerate() {
                weights.push(self.linears.evaluation_weight(Place { layer, linear }, step, &parameters[range.clone()])?);
            }
        }
        Ok(weights)
    }

    /// Sum of the losses of a batch (at most as large as a training batch) in the recipe's forward pass.
    ///
    /// # Errors
    /// A kernel's.
    pub fn evaluate(&mut self, parameters: &[f32], weights: &[Panels], batch: &Batch, evaluation: Evaluation) -> Result<f64, TrainerError> {
        let tokens = batch.inputs.len();
        self.forward(parameters, &batch.inputs, &Mode::Evaluation { evaluation, weights })?;
        let normed = &self.normed[..tokens * self.section.hidden_size];
        let head = &parameters[self.layout.head.clone()];
        self.cpu.head_loss(normed, head, &batch.targets, &mut self.losses[..tokens]).map_err(TrainerError::kernel)
    }

    fn shape(&self, tokens: usize) -> AttentionShape {
        AttentionShape {
            batch: tokens / self.section.sequence_length,
            sequence: self.section.sequence_length,
            heads: self.section.num_attention_heads,
            kv_heads: self.section.num_key_value_heads,
            head_dim: self.section.head_dim,
        }
    }

    /// Queries and keys turned by their positions, or back.
    fn rotate(&self, qkv: &mut [f32], shape: AttentionShape, backward: bool) -> Result<(), TrainerError> {
        let heads = shape.heads + shape.kv_heads;
        self.cpu.rope(qkv, shape.qkv_width(), heads, shape.head_dim, shape.sequence, &self.rope, backward).map_err(TrainerError::kernel)
    }

    /// What the head reads for `inputs`, into the first rows of `self.normed`.
    fn forward(&mut self, parameters: &[f32], inputs: &[u32], mode: &Mode<'_>) -> Result<(), TrainerError> {
        let (tokens, width) = (inputs.len(), self.section.hidden_size);
        let mut blocks = std::mem::take(&mut self.blocks);
        let mut leaving = std::mem::take(&mut self.leaving);
        let done = self.forward_blocks(parameters, inputs, mode, &mut blocks, &mut leaving[..tokens * width]);
        (self.blocks, self.leaving) = (blocks, leaving);
        done?;
        let normed = &mut self.normed[..tokens * width];
        let gain = &parameters[self.layout.final_norm.clone()];
        self.cpu
            .rms_norm(&self.leaving[..tokens * width], gain, self.norm_epsilon, normed, &mut self.inverse_rms[..tokens])
            .map_err(TrainerError::kernel)
    }

    fn forward_blocks(
        &mut self,
        parameters: &[f32],
        inputs: &[u32],
        mode: &Mode<'_>,
        blocks: &mut [Block],
        leaving: &mut [f32],
    ) -> Result<(), TrainerError> {
        let (tokens, width) = (inputs.len(), self.section.hidden_size);
        let stream = tokens * width;
        let embedding = &parameters[self.layout.embedding.clone()];
        let first = blocks.first_mut().map_or(&mut *leaving, |block| &mut block.entering[..stream]);
        self.cpu.embedding(embedding, inputs, width, first).map_err(TrainerError::kernel)?;
        for layer in 0..blocks.len() {
            let (block, rest) = blocks[layer..].split_at_mut(1);
            let next = rest.first_mut().map_or(&mut *leaving, |block| &mut block.entering[..stream]);
            self.forward_block(parameters, layer, tokens, mode, &mut block[0], next)?;
        }
        Ok(())
    }

    fn forward_block(
        &mut self,
        parameters: &[f32],
        layer: usize,
        tokens: usize,
        mode: &Mode<'_>,
        block: &mut Block,
        next: &mut [f32],
    ) -> Result<(), TrainerError> {
        let (shape, d, f) = (self.shape(tokens), tokens * self.section.hidden_size, self.section.intermediate_size);
        let ranges = self.layout.layers[layer].clone();
        let entering = &block.entering[..d];
        let normed = &mut block.normed1[..d];
        let gain = &parameters[ranges.input_norm];
        self.cpu.rms_norm(entering, gain, self.norm_epsilon, normed, &mut block.inverse_rms1[..tokens]).map_err(TrainerError::kernel)?;
        let qkv = &mut block.qkv[..tokens * shape.qkv_width()];
        let place = |linear| Place { layer, linear };
        self.linear(parameters, &ranges.linears, place(QKV), mode, normed, Goal::Over(qkv))?;
        self.rotate(qkv, shape, false)?;
        let attended = &mut block.attended[..tokens * shape.out_width()];
        let logsumexp = &mut block.logsumexp[..tokens * shape.heads];
        self.cpu.attention(qkv, shape, attended, logsumexp).map_err(TrainerError::kernel)?;
        let middle = &mut block.middle[..d];
        let goal = Goal::Onto { residual: entering, sum: middle };
        self.linear(parameters, &ranges.linears, place(ATTENTION_OUTPUT), mode, attended, goal)?;

        let normed = &mut block.normed2[..d];
        let gain = &parameters[ranges.post_attention_norm];
        self.cpu.rms_norm(middle, gain, self.norm_epsilon, normed, &mut block.inverse_rms2[..tokens]).map_err(TrainerError::kernel)?;
        let gate_up = &mut block.gate_up[..tokens * 2 * f];
        let hidden = &mut block.hidden[..tokens * f];
        self.linear(parameters, &ranges.linears, place(GATE_UP), mode, normed, Goal::Swiglu { gate_up, hidden })?;
        self.linear(parameters, &ranges.linears, place(DOWN), mode, hidden, Goal::Onto { residual: middle, sum: next })
    }

    fn linear(
        &mut self,
        parameters: &[f32],
        linears: &[Range<usize>; 4],
        place: Place,
        mode: &Mode<'_>,
        x: &[f32],
        goal: Goal<'_>,
    ) -> Result<(), TrainerError> {
        match mode {
            Mode::Training { step } => {
                let tensors = Tensors { input: x, weight: &parameters[linears[place.linear].clone()] };
                self.linears.forward(place, *step, tensors, goal)
            }
            Mode::Evaluation { evaluation, weights } => {
                self.linears.evaluate(place, *evaluation, x, &weights[4 * place.layer + place.linear], goal)
            }
        }
    }

    /// From the gradient of what the head read (in `self.gradients.normed`) to that of every other parameter.
    fn backward(&mut self, parameters: &[f32], inputs: &[u32], step: u64, gradients: &mut [f32]) -> Result<(), TrainerError> {
        let (tokens, width) = (inputs.len(), self.section.hidden_size);
        let stream = tokens * width;
        let Self { cpu, layout, gradients: g, .. } = self;
        let (gain, d_gain) = (&parameters[layout.final_norm.clone()], &mut gradients[layout.final_norm.clone()]);
        cpu.rms_norm_backward(
            &self.leaving[..stream],
            gain,
            &self.inverse_rms[..tokens],
            &g.normed[..stream],
            &mut g.stream[..stream],
            false,
            d_gain,
        )
        .map_err(TrainerError::kernel)?;
        for layer in (0..self.blocks.len()).rev() {
            self.backward_block(parameters, layer, tokens, step, gradients)?;
        }
        let d_embedding = &mut gradients[self.layout.embedding.clone()];
        self.cpu.embedding_backward(&self.gradients.stream[..stream], inputs, width, d_embedding).map_err(TrainerError::kernel)
    }

    fn backward_block(
        &mut self,
        parameters: &[f32],
        layer: usize,
        tokens: usize,
        step: u64,
        gradients: &mut [f32],
    ) -> Result<(), TrainerError> {
        let (shape, width, f) = (self.shape(tokens), self.section.hidden_size, self.section.intermediate_size);
        let heads = shape.heads + shape.kv_heads;
        let Self { cpu, layout, rope, linears, blocks, gradients: g, .. } = self;
        let (block, ranges) = (&blocks[layer], &layout.layers[layer]);
        let d_stream = &mut g.stream[..tokens * width];
        let d_normed = &mut g.normed[..tokens * width];
        let (qkv, attended) = (&block.qkv[..tokens * shape.qkv_width()], &block.attended[..tokens * shape.out_width()]);
        let mut backward = |linear: usize, input: &[f32], d_output: &[f32], d_input: Goal<'_>, gradients: &mut [f32]| {
            let range = ranges.linears[linear].clone();
            let tensors = Tensors { input, weight: &parameters[range.clone()] };
            linears.backward(Place { layer, linear }, step, tensors, d_output, d_input, &mut gradients[range])
        };

        let d_gate_up = &mut g.gate_up[..tokens * 2 * f];
        let goal = Goal::SwigluBackward { gate_up: &block.gate_up[..tokens * 2 * f], d_gate_up };
        backward(DOWN, &block.hidden[..tokens * f], d_stream, goal, gradients)?;
        backward(GATE_UP, &block.normed2[..tokens * width], d_gate_up, Goal::Over(d_normed), gradients)?;
        let norm = ranges.post_attention_norm.clone();
        cpu.rms_norm_backward(
            &block.middle[..tokens * width],
            &parameters[norm.clone()],
            &block.inverse_rms2[..tokens],
            d_normed,
            d_stream,
            true,
            &mut gradients[norm],
        )
        .map_err(TrainerError::kernel)?;

        let (d_attended, d_qkv) = (&mut g.attended[..tokens * shape.out_width()], &mut g.qkv[..tokens * shape.qkv_width()]);
        backward(ATTENTION_OUTPUT, attended, d_stream, Goal::Over(d_attended), gradients)?;
        cpu.attention_backward(qkv, shape, attended, &block.logsumexp[..tokens * shape.heads], d_attended, d_qkv)
            .map_err(TrainerError::kernel)?;
        cpu.rope(d_qkv, shape.qkv_width(), heads, shape.head_dim, shape.sequence, rope, true).map_err(TrainerError::kernel)?;
        backward(QKV, &block.normed1[..tokens * width], d_qkv, Goal::Over(d_normed), gradients)?;
        let norm = ranges.input_norm.clone();
        cpu.rms_norm_backward(
            &block.entering[..tokens * width],
            &parameters[norm.clone()],
            &block.inverse_rms1[..tokens],
            d_normed,
            d_stream,
            true,
            &mut gradients[norm],
        )
        .map_err(TrainerError::kernel)
    }
}
