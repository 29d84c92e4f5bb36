//! What a device computes for the model: everything between two tokens and the next update, but not in which order.
//!
//! [`Device`] is implemented for the CPU (F32 activations in memory, bits that are the same everywhere) and for GPUs (BF16
//! activations in device memory). `model`, `trainer_state`, `session` and `checkpoint` are written once, for any of them. Shapes are
//! given in elements; a buffer may be larger than what a call uses, which is its first rows.

pub mod cpu;
pub mod gpu;

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

use contract::device::{DeviceId, DeviceKind};
use contract::metrics::Quantisation;
use contract::run_file::{ModelSection, OptimizerSection, RunFile};
use kernels::cpu::AttentionShape;
use kernels::gpu::Kind;
use kernels::packed_rows::PackedRows;

use crate::batches::Batch;
use crate::choices::Evaluation;
use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::shards::ShardRanges;
use crate::streams::Place;

/// What one kind of kernel took of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spending {
    pub kernel: &'static str,
    pub calls: u64,
    /// Operations of a GEMM or elements of a preparation; 0 where the kind does not count them.
    pub work: u64,
    pub seconds: f64,
}

/// Reads what was spent since the last time.
pub type ProfileReader = Box<dyn Fn() -> Result<Vec<Spending>, TrainerError>>;

/// A device with everything it needs for one run.
pub trait Device: Clone + Debug + Send + Sync {
    /// `[rows, width]` of what flows between layers.
    type Activation: Debug + Send + Sync;
    /// `[rows]` in F32.
    type Statistic: Debug + Send + Sync;
    /// The parameters, in the order of a [`Layout`].
    type Parameters: Debug + Send + Sync;
    /// F32 numbers in the order of a [`Layout`]: gradients, moments.
    type Numbers: Debug + Send + Sync;
    /// A batch, as the device wants it beside the host's.
    type Tokens: Debug + Send + Sync;
    /// Angles of the rotary positions.
    type Rope: Debug + Send + Sync;
    /// The linears of a model.
    type Linears: Linears<Self>;
    /// A sum of losses that may not have been waited for yet.
    type Sum: Debug + Send;

    /// Into how many groups it cuts sums of squares that do not depend on each other: ranks hand each on by itself.
    const GROUPS_OF_SQUARES: usize = 1;

    /// Refuses a run that does not fit into the device's memory, before anything is allocated.
    ///
    /// # Errors
    /// How much is needed, how much is there, and which keys lower it.
    fn check_memory(&self, run: &RunFile) -> Result<(), TrainerError>;

    /// Whether there is memory for a copy of what a checkpoint of one of so many ranks holds, so that steps go on while it is written. A copy
    /// has to be made anyway of what lies on a GPU.
    fn has_room_for_copies(&self, _: &RunFile, _ranks: usize) -> bool {
        true
    }

    /// Does `work` where the device's threads are.
    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R;

    /// Room for `[rows, width]`.
    fn activation(&self, rows: usize, width: usize) -> Result<Self::Activation, TrainerError>;
    /// Room for the X of a linear that can be made again from what else is kept ([`Input`]): none on a device that does so.
    fn remade(&self, rows: usize, width: usize) -> Result<Self::Activation, TrainerError> {
        self.activation(rows, width)
    }
    /// Room for a gradient that may take the place of what it is the gradient of: none on a device that puts it there.
    fn in_place(&self, rows: usize, width: usize) -> Result<Self::Activation, TrainerError> {
        self.activation(rows, width)
    }
    /// Room for `[rows]`.
    fn statistic(&self, rows: usize) -> Result<Self::Statistic, TrainerError>;
    /// Room for a batch of the run.
    fn tokens(&self, run: &RunFile) -> Result<Self::Tokens, TrainerError>;
    /// The angles of a model.
    fn rope_table(&self, model: &ModelSection) -> Result<Self::Rope, TrainerError>;
    /// The linears of a run.
    fn linears(&self, run: &RunFile) -> Result<Self::Linears, TrainerError>;
    fn parameters(&self, values: Vec<f32>) -> Result<Self::Parameters, TrainerError>;
    /// Of one of several ranks, which has the values of its shard: what it reads of the rest has yet to come
    /// ([`crate::ranks::Ranks::share`]).
    fn shard_parameters(&self, layout: &Layout, values: Vec<f32>, shard: &ShardRanges) -> Result<Self::Parameters, TrainerError>;
    /// Its shard in F32.
    fn shard_in_f32(&self, parameters: &Self::Parameters, shard: &ShardRanges) -> Result<Self::Numbers, TrainerError>;
    /// Values in F32 of parameters that are no rank's shard.
    fn parameter_values<'a>(&self, parameters: &'a Self::Parameters) -> Result<Cow<'a, [f32]>, TrainerError>;
    /// Parameters from element `first` on, which lie in one range of this rank's shard.
    fn read_parameters(&self, parameters: &Self::Parameters, first: usize, out: &mut [f32]) -> Result<(), TrainerError>;
    /// What the device is told from here on reads these parameters as they are now on the rank that owns them: those that others send
    /// ([`crate::ranks::Ranks::share`]) have come before.
    fn arrive(&self, _: &Self::Parameters, _: &Range<usize>) -> Result<(), TrainerError> {
        Ok(())
    }
    /// Replaces parameters from element `first` on, and whatever the device keeps of them beside.
    fn write_parameters(&self, parameters: &mut Self::Parameters, first: usize, values: &[f32]) -> Result<(), TrainerError>;
    fn numbers(&self, values: Vec<f32>) -> Result<Self::Numbers, TrainerError>;
    /// As [`Device::numbers`], zeros: where there is no need to write them on the host first.
    fn zeros(&self, length: usize) -> Result<Self::Numbers, TrainerError> {
        self.numbers(vec![0.0; length])
    }
    fn values<'a>(&self, numbers: &'a Self::Numbers) -> Result<Cow<'a, [f32]>, TrainerError>;
    /// Numbers from element `first` on.
    fn read(&self, numbers: &Self::Numbers, first: usize, out: &mut [f32]) -> Result<(), TrainerError>;
    /// Replaces numbers from element `first` on.
    fn write(&self, numbers: &mut Self::Numbers, first: usize, values: &[f32]) -> Result<(), TrainerError>;

    /// Takes a batch to the device.
    fn load(&self, batch: &Batch, tokens: &mut Self::Tokens) -> Result<(), TrainerError>;
    /// As [`Device::load`], for a forward pass alone.
    fn load_forward(&self, batch: &Batch, tokens: &mut Self::Tokens) -> Result<(), TrainerError> {
        self.load(batch, tokens)
    }
    /// `out` = rows of the table for the batch's inputs.
    fn embedding(
        &self,
        table: (&Self::Parameters, &Range<usize>),
        batch: (&Batch, &Self::Tokens),
        width: usize,
        out: &mut Self::Activation,
    ) -> Result<(), TrainerError>;
    fn embedding_backward(
        &self,
        gradient: &Self::Activation,
        batch: (&Batch, &Self::Tokens),
        width: usize,
        table: (&mut Self::Numbers, &Range<usize>),
    ) -> Result<(), TrainerError>;
    /// y = x gain / rms(x), as wide as the gain.
    fn rms_norm(
        &self,
        x: &Self::Activation,
        gain: (&Self::Parameters, &Range<usize>),
        epsilon: f32,
        y: &mut Self::Activation,
        inverse_rms: &mut Self::Statistic,
        rows: usize,
    ) -> Result<(), TrainerError>;
    /// `d_x` is overwritten, or added to when `accumulate`; the gain's gradient is overwritten.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    fn rms_norm_backward(
        &self,
        x: &Self::Activation,
        gain: (&Self::Parameters, &Range<usize>),
        inverse_rms: &Self::Statistic,
        d_y: &Self::Activation,
        d_x: &mut Self::Activation,
        accumulate: bool,
        gradient: (&mut Self::Numbers, &Range<usize>),
        rows: usize,
    ) -> Result<(), TrainerError>;
    /// Turns queries and keys by their positions, or back.
    fn rope(&self, qkv: &mut Self::Activation, shape: AttentionShape, table: &Self::Rope, backward: bool) -> Result<(), TrainerError>;
    fn attention(
        &self,
        qkv: &Self::Activation,
        shape: AttentionShape,
        out: &mut Self::Activation,
        logsumexp: &mut Self::Statistic,
    ) -> Result<(), TrainerError>;
    /// `d_qkv`, overwritten.
    fn attention_backward(
        &self,
        qkv: &Self::Activation,
        shape: AttentionShape,
        out: &Self::Activation,
        logsumexp: &Self::Statistic,
        d_out: &Self::Activation,
        d_qkv: &mut Self::Activation,
    ) -> Result<(), TrainerError>;
    /// [`Device::rope`] and [`Device::attention`].
    fn rope_attention(
        &self,
        qkv: &mut Self::Activation,
        shape: AttentionShape,
        table: &Self::Rope,
        out: &mut Self::Activation,
        logsumexp: &mut Self::Statistic,
    ) -> Result<(), TrainerError> {
        self.rope(qkv, shape, table, false)?;
        self.attention(qkv, shape, out, logsumexp)
    }
    /// [`Device::attention_backward`], and [`Device::rope`] back.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    fn rope_attention_backward(
        &self,
        qkv: &Self::Activation,
        shape: AttentionShape,
        table: &Self::Rope,
        out: &Self::Activation,
        logsumexp: &Self::Statistic,
        d_out: &Self::Activation,
        d_qkv: &mut Self::Activation,
    ) -> Result<(), TrainerError> {
        self.attention_backward(qkv, shape, out, logsumexp, d_out, d_qkv)?;
        self.rope(d_qkv, shape, table, true)
    }
    /// Sum of the losses of the batch's targets; with `gradients`, of their mean, `d_x` and the head's are overwritten.
    fn head(
        &self,
        x: &Self::Activation,
        weight: (&Self::Parameters, &Range<usize>),
        batch: (&Batch, &Self::Tokens),
        width: usize,
        losses: &mut Self::Statistic,
        gradients: Option<(&mut Self::Activation, Part<'_, Self>)>,
    ) -> Result<Self::Sum, TrainerError>;
    /// Waits for it.
    fn sum(&self, sum: Self::Sum) -> Result<f64, TrainerError>;
    /// The same sum, kept as number `place` of an evaluation's: the next batch's does not take its place on the device, so an evaluation asks for
    /// its sums when all its batches are queued.
    fn set_aside(&self, sum: Self::Sum, _place: usize) -> Result<Self::Sum, TrainerError> {
        Ok(sum)
    }
    /// `sum` += `more`, `count` elements of each from a place on, element by element in F32.
    fn add(&self, sum: (&mut Self::Numbers, usize), more: (&Self::Numbers, usize), count: usize) -> Result<(), TrainerError>;
    /// `sum` += each of the pieces in their order, as [`Device::add`]; where it `begins`, the first takes the place of what was there.
    fn add_pieces(
        &self,
        (sum, at): (&mut Self::Numbers, usize),
        pieces: &[(&Self::Numbers, usize)],
        count: usize,
        begins: bool,
    ) -> Result<(), TrainerError> {
        for (number, piece) in pieces.iter().enumerate() {
            if begins && number == 0 { self.copy(*piece, (sum, at), count)? } else { self.add((sum, at), *piece, count)? }
        }
        Ok(())
    }
    /// `count` elements from a place on are rounded to BF16, to nearest; for runs with the defect `sums-in-bf16`.
    fn round_to_bf16(&self, numbers: (&mut Self::Numbers, usize), count: usize) -> Result<(), TrainerError>;
    /// `to` = `from`, as [`Device::add`].
    fn copy(&self, from: (&Self::Numbers, usize), to: (&mut Self::Numbers, usize), count: usize) -> Result<(), TrainerError>;
    /// `count` elements from a place on become zero.
    fn clear(&self, numbers: (&mut Self::Numbers, usize), count: usize) -> Result<(), TrainerError>;
    /// Packs the rows that the batch has of the embedding's gradient, which begins at a place of `gradients`.
    fn pack_rows(
        &self,
        gradients: (&Self::Numbers, usize),
        batch: (&Batch, &Self::Tokens),
        packed: PackedRows,
        out: &mut Self::Numbers,
    ) -> Result<(), TrainerError>;
    /// Adds packed rows, which begin at a place of `rows`, to elements `part` of the embedding's gradient, which begin at a place of `sum`.
    fn add_rows(
        &self,
        sum: (&mut Self::Numbers, usize),
        part: Range<usize>,
        rows: (&Self::Numbers, usize),
        packed: PackedRows,
    ) -> Result<(), TrainerError>;
    /// `numbers` /= `by`, element by element in F32, correctly rounded.
    fn divide(&self, numbers: &mut Self::Numbers, by: f32) -> Result<(), TrainerError>;
    /// Norm of all gradients.
    fn gradient_norm(&self, gradients: &Self::Numbers) -> Result<f64, TrainerError>;
    /// Sums of squares of all gradients before a segment of the array, those of one group, gone on over it ([`crate::shards::Shards`]): `shard`
    /// has it from a place on. Before the first segment there are none.
    fn add_squares(
        &self,
        shard: (&Self::Numbers, usize),
        segment: &Range<usize>,
        group: usize,
        before: Vec<f64>,
    ) -> Result<Vec<f64>, TrainerError>;
    /// The norm of what [`Device::add_squares`] went over, from the first segment to the last, its groups one after the other:
    /// [`Device::gradient_norm`] of the whole, bit for bit.
    fn norm_of_squares(&self, sums: &[f64]) -> Result<f64, TrainerError>;
    /// AdamW of step `step` (from 1), gradients clipped by their norm: of the tensors in a portion of a shard, which `gradients` and `moments`
    /// are of.
    fn update(
        &self,
        layout: &Layout,
        update: Update<'_>,
        portion_of_shard: (&Range<usize>, &ShardRanges),
        gradients: &Self::Numbers,
        parameters: &mut Self::Parameters,
        moments: (&mut Self::Numbers, &mut Self::Numbers),
    ) -> Result<(), TrainerError>;
    /// Waits for everything that was queued.
    fn wait(&self) -> Result<(), TrainerError>;
    /// The same device, its kernels timed, and what reads the times.
    fn with_profile(&self) -> (Self, ProfileReader);
    /// Bytes of the device's memory that were taken since the device was opened, by whomever; none where it does not tell.
    fn memory_in_use(&self) -> Result<Option<u64>, TrainerError> {
        Ok(None)
    }
    /// For timing.jsonl: what computed, and how many of it.
    fn machine(&self) -> Machine;
}

/// A part of a device's numbers that is written.
pub type Part<'a, D> = (&'a mut <D as Device>::Numbers, &'a Range<usize>);

/// How the linears of a forward pass are done.
#[derive(Debug)]
pub enum Mode<'a, W> {
    /// A training step, counted from 1.
    Training { step: u64 },
    /// A batch of an evaluation.
    Evaluation {
        evaluation: Evaluation,
        /// What [`Linears::evaluation_weights`] made.
        weights: &'a W,
    },
}

/// X of a linear. What is not [`Input::Kept`] a device may make again whenever it reads it, instead of keeping it ([`Device::remade`]).
#[derive(Debug)]
pub enum Input<'a, D: Device> {
    Kept(&'a D::Activation),
    Normed {
        /// Itself, where it is kept.
        normed: &'a D::Activation,
        stream: &'a D::Activation,
        /// Of each row.
        inverse_rms: &'a D::Statistic,
        /// Where the gain is in the parameters.
        gain: &'a Range<usize>,
    },
    Gated {
        /// Itself, where it is kept.
        hidden: &'a D::Activation,
        gate_up: &'a D::Activation,
    },
}

impl<'a, D: Device> Input<'a, D> {
    /// What is kept of it.
    pub fn kept(&self) -> &'a D::Activation {
        match self {
            Self::Kept(x) => x,
            Self::Normed { normed, .. } => normed,
            Self::Gated { hidden, .. } => hidden,
        }
    }
}

/// Where a product goes, and what follows it: a device may do both at once, while the rows are near.
#[derive(Debug)]
pub enum Goal<'a, A> {
    /// `[tokens, columns]`, overwritten.
    Over(&'a mut A),
    /// `sum` = `residual` + product.
    Onto {
        /// `[tokens, columns]`.
        residual: &'a A,
        /// `[tokens, columns]`, overwritten.
        sum: &'a mut A,
    },
    /// The product is `[tokens, 2f]`, gate and up.
    Swiglu {
        gate_up: &'a mut A,
        /// `[tokens, f]`, SwiGLU of it.
        hidden: &'a mut A,
    },
    /// The product is the gradient of SwiGLU's result `[tokens, f]`, and is not kept. Gate and up are not needed afterwards: their gradient
    /// may take their place ([`Device::in_place`]).
    SwigluBackward {
        /// What forward made, `[tokens, 2f]`.
        gate_up: &'a A,
        d_gate_up: &'a mut A,
    },
}

/// All linears of a model on a device.
pub trait Linears<D: Device>: Debug + Send + Sync {
    /// Weights prepared once for all batches of an evaluation.
    type Weights: Debug + Send + Sync;

    /// x Wᵀ of `tokens` rows, to `goal`; the weight is at `weight.1` of the parameters.
    fn forward(
        &mut self,
        place: Place,
        mode: &Mode<'_, Self::Weights>,
        x: &Input<'_, D>,
        weight: (&D::Parameters, &Range<usize>),
        goal: Goal<'_, D::Activation>,
        tokens: usize,
    ) -> Result<(), TrainerError>;

    /// ∇Y W, `[tokens, in]`, to `goal`; and `gradient`, `[out, in]` = ∇Yᵀ X, overwritten.
    #[allow(clippy::too_many_arguments)] // what the formulas read and write
    fn backward(
        &mut self,
        place: Place,
        step: u64,
        x: &Input<'_, D>,
        weight: (&D::Parameters, &Range<usize>),
        d_y: &D::Activation,
        goal: Goal<'_, D::Activation>,
        gradient: (&mut D::Numbers, &Range<usize>),
        tokens: usize,
    ) -> Result<(), TrainerError>;

    /// Every weight as evaluation after `step` steps reads it. Delayed scales stay as they are.
    fn evaluation_weights(
        &self,
        parameters: &D::Parameters,
        places: &[(Place, Range<usize>)],
        step: u64,
    ) -> Result<Self::Weights, TrainerError>;

    /// The end of a micro-batch. `more`: others of the same step follow here.
    fn finish_micro_batch(&mut self, more: bool) -> Result<(), TrainerError>;

    /// Largest magnitudes of this step's operands so far, by slot: what delayed scales of later steps rest on.
    fn magnitudes(&self) -> Result<Vec<f32>, TrainerError>;

    /// Makes these the least that the step's largest magnitudes are: those of other ranks' micro-batches.
    fn raise_magnitudes(&mut self, least: &[f32]) -> Result<(), TrainerError>;

    /// The end of a training step: its largest magnitudes, over all its micro-batches, join the histories. Until then scales stay as they are.
    fn finish_step(&mut self) -> Result<(), TrainerError>;

    /// Measures the operands of `layers` during the next step.
    fn observe(&mut self, step: u64, layers: Vec<usize>);

    /// What was measured in the micro-batch before, in the order fprop, dgrad, wgrad by layer and linear; nothing is measured from here on.
    fn observed(&mut self) -> Result<Vec<Quantisation>, TrainerError>;

    /// Largest magnitudes of earlier steps, oldest first, for a checkpoint; index (layer * 4 + linear) * 6 + slot.
    fn histories(&self) -> Result<Vec<Vec<f32>>, TrainerError>;

    /// Puts back what a checkpoint held; `false`, and nothing done, if it does not belong to such a model.
    fn restore_histories(&mut self, histories: Vec<Vec<f32>>) -> Result<bool, TrainerError>;
}

/// Which device a command works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Cpu,
    Gpu(Kind, usize),
}

impl Choice {
    /// `cpu`, `cuda`, `cuda:N`, `hip`, `hip:N`, or `auto`: the first kind of GPU that is there, CUDA before HIP, else the CPU.
    pub fn parse(text: &str) -> Result<Self, TrainerError> {
        if text == "auto" {
            return Ok(Self::first());
        }
        let wrong = |_| {
            let what = format!("--device: '{text}' is no device; use cpu, cuda, cuda:1 (the second GPU), hip, hip:1 or auto");
            TrainerError::BadInput(what)
        };
        match text.parse().map_err(wrong)? {
            DeviceId::Cpu => Ok(Self::Cpu),
            DeviceId::Cuda(ordinal) => Ok(Self::Gpu(Kind::Cuda, ordinal)),
            DeviceId::Hip(ordinal) => Ok(Self::Gpu(Kind::Hip, ordinal)),
        }
    }

    /// As [`Choice::parse`], for a rank among others on this machine: `cuda` and `hip` without a number are the GPU of the rank's own number,
    /// or the only one that its launcher lets it see.
    pub fn of_rank(text: &str, local_rank: usize) -> Result<Self, TrainerError> {
        match Self::parse(text)? {
            Self::Gpu(kind, _) if !text.contains(':') => Ok(Self::Gpu(kind, if kind.count() == Ok(1) { 0 } else { local_rank })),
            other => Ok(other),
        }
    }

    fn first() -> Self {
        let found = Kind::ALL.into_iter().find(|kind| kind.count().is_ok_and(|count| count > 0));
        found.map_or(Self::Cpu, |kind| Self::Gpu(kind, 0))
    }
}

/// What one update is told.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    pub section: &'a OptimizerSection,
    /// From 1.
    pub step: u64,
    /// Of this step.
    pub learning_rate: f64,
    /// Of the gradients, before clipping.
    pub norm: f64,
}

/// What a run was computed on, for its timings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub device: DeviceKind,
    /// The processor's or the GPU's own name.
    pub name: String,
    /// Threads at work.
    pub threads: usize,
    /// Instruction set, or the GPU's architecture.
    pub instruction_set: String,
    /// Libraries in use with their versions; none on a CPU.
    pub libraries: Vec<(String, String)>,
    /// How MXFP4 products of the run are executed, on a device that multiplies packed MXFP4: `native`, `emulated`, or by pass.
    pub mxfp4: Option<String>,
    /// Nothing is kept that backward can make again: the same bits in less memory and more time.
    pub least_memory: bool,
    /// No device at all: its instructions are executed by a program, whose times say nothing of the device.
    pub interpreted: bool,
}
