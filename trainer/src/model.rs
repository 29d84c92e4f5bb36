//! A Llama: its forward and backward passes, explicitly, on any device.
//!
//! Pre-norm blocks (RMSNorm, grouped-query causal attention with rotary positions, RMSNorm, SwiGLU), a final norm and an
//! untied head. The four linears of a block follow the recipe (`choices`); everything else is in the device's own precision
//! (`device`). Every activation that backward needs is kept, or made again from what is ([`Input`]);
//! buffers are made once and reused at each step.
//!
//! Shapes: T tokens = sequences * sequence_length, d hidden, q = heads * head_dim, w = q + 2 * kv_heads * head_dim, f ffn, V vocabulary.

use std::ops::Range;

use contract::run_file::{ModelSection, RunFile};
use kernels::cpu::AttentionShape;

use crate::batches::Batch;
use crate::choices::{ATTENTION_OUTPUT, DOWN, Evaluation, GATE_UP, QKV};
use crate::device::{Device, Goal, Input, Linears, Mode};
use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::streams::Place;

/// Weights of the linears as evaluation reads them.
pub type EvaluationWeights<D> = <<D as Device>::Linears as Linears<D>>::Weights;

/// A norm's result, `[T, d]` if the device keeps it, and what its backward pass needs.
#[derive(Debug)]
struct Normed<D: Device> {
    result: D::Activation,
    inverse_rms: D::Statistic,
}

impl<D: Device> Normed<D> {
    /// The norm of `stream` as X of a linear.
    fn input<'a>(&'a self, stream: &'a D::Activation, gain: &'a Range<usize>) -> Input<'a, D> {
        Input::Normed { normed: &self.result, stream, inverse_rms: &self.inverse_rms, gain }
    }
}

/// What one block keeps for its backward pass.
#[derive(Debug)]
struct Block<D: Device> {
    /// Residual stream that enters the block `[T, d]`.
    entering: D::Activation,
    normed1: Normed<D>,
    /// Rotated queries and keys, and values `[T, w]`.
    qkv: D::Activation,
    /// `[T, q]`.
    attended: D::Activation,
    logsumexp: D::Statistic,
    /// Residual stream between attention and feed-forward `[T, d]`.
    middle: D::Activation,
    normed2: Normed<D>,
    /// `[T, 2f]`.
    gate_up: D::Activation,
    /// `[T, f]`, if the device keeps it.
    hidden: D::Activation,
}

/// Gradients of activations, shared by all blocks.
#[derive(Debug)]
struct Gradients<D: Device> {
    /// Of the residual stream `[T, d]`.
    stream: D::Activation,
    /// Of a norm's output `[T, d]`.
    normed: D::Activation,
    /// `[T, w]`.
    qkv: D::Activation,
    /// `[T, q]`.
    attended: D::Activation,
    /// `[T, 2f]`, if the device does not put it in the activation's place.
    gate_up: D::Activation,
}

/// The model's buffers and the linears' state; parameters are passed in.
#[derive(Debug)]
pub struct Model<D: Device> {
    device: D,
    section: ModelSection,
    layout: Layout,
    rope: D::Rope,
    /// Recipe and state of the linears.
    pub linears: D::Linears,
    blocks: Vec<Block<D>>,
    /// Residual stream after the last block `[T, d]`.
    leaving: D::Activation,
    inverse_rms: D::Statistic,
    /// `[T, d]`.
    normed: D::Activation,
    losses: D::Statistic,
    gradients: Gradients<D>,
    norm_epsilon: f32,
}

/// Where a backward pass puts gradients: bucket by bucket, in the order of [`Layout::buckets`].
pub trait GradientSink<D: Device>: Send {
    /// Room for the gradients of the parameters in `bucket`, and the place of the array's first parameter in it, were it there: parameter i's
    /// gradient goes to i less that.
    fn room(&mut self, bucket: &Range<usize>) -> Result<(&mut D::Numbers, usize), TrainerError>;
    /// All of the bucket's have been queued.
    fn done(&mut self, bucket: &Range<usize>) -> Result<(), TrainerError>;
    /// All of the embedding's have been queued: only rows that the batch has are not zero.
    fn done_rows(&mut self, table: &Range<usize>, batch: Tokens<'_, D>) -> Result<(), TrainerError> {
        let _ = batch;
        self.done(table)
    }
}

/// All gradients in one array.
#[derive(Debug)]
pub struct Whole<'a, D: Device>(pub &'a mut D::Numbers);

impl<D: Device> GradientSink<D> for Whole<'_, D> {
    fn room(&mut self, _: &Range<usize>) -> Result<(&mut D::Numbers, usize), TrainerError> {
        Ok((self.0, 0))
    }

    fn done(&mut self, _: &Range<usize>) -> Result<(), TrainerError> {
        Ok(())
    }
}

/// A batch on the host and on the device.
pub type Tokens<'a, D> = (&'a Batch, &'a <D as Device>::Tokens);

impl<D: Device> Model<D> {
    /// Buffers for a run's batch size.
    ///
    /// # Errors
    /// Not enough memory on the device, or a recipe that it cannot do.
    pub fn new(device: D, run: &RunFile) -> Result<Self, TrainerError> {
        let section = run.model.clone();
        let tokens = run.tokens_per_step();
        let [qkv, output, gate_up, down] = section.linears();
        let (d, w, q, f2, f) = (section.hidden_size, qkv.1, output.2, gate_up.1, down.2);
        let buffer = |width: usize| device.activation(tokens, width);
        let statistic = |columns: usize| device.statistic(tokens * columns);
        let normed = || Ok::<_, TrainerError>(Normed { result: device.remade(tokens, d)?, inverse_rms: statistic(1)? });
        let block = |_| {
            Ok(Block {
                entering: buffer(d)?,
                normed1: normed()?,
                qkv: buffer(w)?,
                attended: buffer(q)?,
                logsumexp: statistic(section.num_attention_heads)?,
                middle: buffer(d)?,
                normed2: normed()?,
                gate_up: buffer(f2)?,
                hidden: device.remade(tokens, f)?,
            })
        };
        Ok(Self {
            layout: Layout::new(&section),
            rope: device.rope_table(&section)?,
            linears: device.linears(run)?,
            blocks: (0..section.num_hidden_layers).map(block).collect::<Result<_, TrainerError>>()?,
            leaving: buffer(d)?,
            inverse_rms: statistic(1)?,
            normed: buffer(d)?,
            losses: statistic(1)?,
            gradients: Gradients {
                stream: buffer(d)?,
                normed: buffer(d)?,
                qkv: buffer(w)?,
                attended: buffer(q)?,
                gate_up: device.in_place(tokens, f2)?,
            },
            norm_epsilon: section.rms_norm_eps as f32,
            device,
            section,
        })
    }

    /// Where parameters are in the flat arrays.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Forward and backward of training step `step`: sum of the batch's losses, and the gradient of their mean to `gradients`. Delayed scales
    /// stay as they are until [`Linears::finish_step`].
    pub fn train(
        &mut self,
        parameters: &D::Parameters,
        batch: Tokens<'_, D>,
        step: u64,
        gradients: &mut dyn GradientSink<D>,
    ) -> Result<D::Sum, TrainerError> {
        self.forward(parameters, batch, &Mode::Training { step })?;
        let Self { device, section, layout, normed, losses, gradients: g, leaving, inverse_rms, .. } = self;
        let bucket = layout.final_norm.start..layout.head.end;
        let (numbers, base) = gradients.room(&bucket)?;
        let head = (parameters, &layout.head);
        let d_head = (&mut *numbers, &less(&layout.head, base));
        let sum = device.head(normed, head, batch, section.hidden_size, losses, Some((&mut g.normed, d_head)))?;
        let (gain, d_gain) = ((parameters, &layout.final_norm), (numbers, &less(&layout.final_norm, base)));
        device.rms_norm_backward(leaving, gain, inverse_rms, &g.normed, &mut g.stream, false, d_gain, batch.0.inputs.len())?;
        gradients.done(&bucket)?;
        self.backward(parameters, batch, step, gradients)?;
        Ok(sum)
    }

    /// Every weight of the linears as evaluation after `step` steps reads it.
    pub fn evaluation_weights(&self, parameters: &D::Parameters, step: u64) -> Result<EvaluationWeights<D>, TrainerError> {
        let places = self.layout.layers.iter().enumerate().flat_map(|(layer, ranges)| {
            ranges.linears.iter().enumerate().map(move |(linear, range)| (Place { layer, linear }, range.clone()))
        });
        self.linears.evaluation_weights(parameters, &places.collect::<Vec<_>>(), step)
    }

    /// Sum of the losses of a batch (at most as large as a training batch) in the recipe's forward pass.
    pub fn evaluate(
        &mut self,
        parameters: &D::Parameters,
        weights: &EvaluationWeights<D>,
        batch: Tokens<'_, D>,
        evaluation: Evaluation,
    ) -> Result<D::Sum, TrainerError> {
        self.forward(parameters, batch, &Mode::Evaluation { evaluation, weights })?;
        let head = (parameters, &self.layout.head);
        self.device.head(&self.normed, head, batch, self.section.hidden_size, &mut self.losses, None)
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

    /// What the head reads for a batch, into the first rows of `self.normed`.
    fn forward(
        &mut self,
        parameters: &D::Parameters,
        batch: Tokens<'_, D>,
        mode: &Mode<'_, EvaluationWeights<D>>,
    ) -> Result<(), TrainerError> {
        let (tokens, width) = (batch.0.inputs.len(), self.section.hidden_size);
        self.device.arrive(parameters, &self.layout.embedding)?;
        let table = (parameters, &self.layout.embedding);
        let first = self.blocks.first_mut().map_or(&mut self.leaving, |block| &mut block.entering);
        self.device.embedding(table, batch, width, first)?;
        for layer in 0..self.blocks.len() {
            self.device.arrive(parameters, &self.layout.layers[layer].range())?;
            self.forward_block(parameters, layer, tokens, mode)?;
        }
        self.device.arrive(parameters, &(self.layout.final_norm.start..self.layout.head.end))?;
        let gain = (parameters, &self.layout.final_norm);
        self.device.rms_norm(&self.leaving, gain, self.norm_epsilon, &mut self.normed, &mut self.inverse_rms, tokens)
    }

    fn forward_block(
        &mut self,
        parameters: &D::Parameters,
        layer: usize,
        tokens: usize,
        mode: &Mode<'_, EvaluationWeights<D>>,
    ) -> Result<(), TrainerError> {
        let (shape, epsilon) = (self.shape(tokens), self.norm_epsilon);
        let Self { device, layout, rope, linears, blocks, leaving, .. } = self;
        let (block, rest) = blocks[layer..].split_at_mut(1);
        let block = &mut block[0];
        let next = rest.first_mut().map_or(leaving, |block| &mut block.entering);
        let ranges = &layout.layers[layer];
        let mut linear = |linear: usize, x: Input<'_, D>, goal: Goal<'_, D::Activation>| {
            linears.forward(Place { layer, linear }, mode, &x, (parameters, &ranges.linears[linear]), goal, tokens)
        };

        let gain = &ranges.input_norm;
        let Normed { result, inverse_rms } = &mut block.normed1;
        device.rms_norm(&block.entering, (parameters, gain), epsilon, result, inverse_rms, tokens)?;
        linear(QKV, block.normed1.input(&block.entering, gain), Goal::Over(&mut block.qkv))?;
        device.rope_attention(&mut block.qkv, shape, rope, &mut block.attended, &mut block.logsumexp)?;
        linear(ATTENTION_OUTPUT, Input::Kept(&block.attended), Goal::Onto { residual: &block.entering, sum: &mut block.middle })?;

        let gain = &ranges.post_attention_norm;
        let Normed { result, inverse_rms } = &mut block.normed2;
        device.rms_norm(&block.middle, (parameters, gain), epsilon, result, inverse_rms, tokens)?;
        let (gate_up, hidden) = (&mut block.gate_up, &mut block.hidden);
        linear(GATE_UP, block.normed2.input(&block.middle, gain), Goal::Swiglu { gate_up, hidden })?;
        let x = Input::Gated { hidden: &block.hidden, gate_up: &block.gate_up };
        linear(DOWN, x, Goal::Onto { residual: &block.middle, sum: next })
    }

    /// From the gradient of the residual stream that leaves the last block to that of every parameter before.
    fn backward(
        &mut self,
        parameters: &D::Parameters,
        batch: Tokens<'_, D>,
        step: u64,
        gradients: &mut dyn GradientSink<D>,
    ) -> Result<(), TrainerError> {
        let (tokens, width) = (batch.0.inputs.len(), self.section.hidden_size);
        for layer in (0..self.blocks.len()).rev() {
            let bucket = self.layout.layers[layer].range();
            self.backward_block(parameters, layer, tokens, step, gradients.room(&bucket)?)?;
            gradients.done(&bucket)?;
        }
        let table = &self.layout.embedding;
        let (numbers, base) = gradients.room(table)?;
        self.device.embedding_backward(&self.gradients.stream, batch, width, (numbers, &less(table, base)))?;
        gradients.done_rows(table, batch)
    }

    fn backward_block(
        &mut self,
        parameters: &D::Parameters,
        layer: usize,
        tokens: usize,
        step: u64,
        (gradients, base): (&mut D::Numbers, usize),
    ) -> Result<(), TrainerError> {
        let shape = self.shape(tokens);
        let Self { device, layout, rope, linears, blocks, gradients: g, .. } = self;
        let (block, ranges) = (&blocks[layer], &layout.layers[layer]);
        let mut linear =
            |linear: usize, x: Input<'_, D>, d_y: &D::Activation, goal: Goal<'_, D::Activation>, gradients: &mut D::Numbers| {
                let weight = &ranges.linears[linear];
                let gradient = (gradients, &less(weight, base));
                linears.backward(Place { layer, linear }, step, &x, (parameters, weight), d_y, goal, gradient, tokens)
            };

        let goal = Goal::SwigluBackward { gate_up: &block.gate_up, d_gate_up: &mut g.gate_up };
        let x = Input::Gated { hidden: &block.hidden, gate_up: &block.gate_up };
        linear(DOWN, x, &g.stream, goal, gradients)?;
        let gain = &ranges.post_attention_norm;
        linear(GATE_UP, block.normed2.input(&block.middle, gain), &g.gate_up, Goal::Over(&mut g.normed), gradients)?;
        let d_gain = (&mut *gradients, &less(gain, base));
        let (gain, inverse_rms) = ((parameters, gain), &block.normed2.inverse_rms);
        device.rms_norm_backward(&block.middle, gain, inverse_rms, &g.normed, &mut g.stream, true, d_gain, tokens)?;

        linear(ATTENTION_OUTPUT, Input::Kept(&block.attended), &g.stream, Goal::Over(&mut g.attended), gradients)?;
        device.rope_attention_backward(&block.qkv, shape, rope, &block.attended, &block.logsumexp, &g.attended, &mut g.qkv)?;
        let gain = &ranges.input_norm;
        linear(QKV, block.normed1.input(&block.entering, gain), &g.qkv, Goal::Over(&mut g.normed), gradients)?;
        let d_gain = (&mut *gradients, &less(gain, base));
        let (gain, inverse_rms) = ((parameters, gain), &block.normed1.inverse_rms);
        device.rms_norm_backward(&block.entering, gain, inverse_rms, &g.normed, &mut g.stream, true, d_gain, tokens)
    }
}

/// A range of the parameters where numbers begin with parameter `base`.
fn less(range: &Range<usize>, base: usize) -> Range<usize> {
    range.start - base..range.end - base
}
