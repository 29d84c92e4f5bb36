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

use contract::run_file::{ModelSection, OptimizerSection, RunFile};
use kernels::cpu::AttentionShape;
use kernels::gpu::Kind;

use crate::batches::Batch;
use crate::error::TrainerError;
use crate::linear::Linears;
use crate::parameters::Layout;

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

/// Numbers that may be worked on where they are.
pub trait InHostMemory {
    /// None where they are in a device's memory.
    fn host(&self) -> Option<&[f32]>;
    /// As [`InHostMemory::host`].
    fn host_mut(&mut self) -> Option<&mut [f32]>;
}

impl InHostMemory for Vec<f32> {
    fn host(&self) -> Option<&[f32]> {
        Some(self)
    }

    fn host_mut(&mut self) -> Option<&mut [f32]> {
        Some(self)
    }
}

/// A device with everything it needs for one run.
pub trait Device: Clone + Debug + Send + Sync {
    /// `[rows, width]` of what flows between layers.
    type Activation: Debug + Send + Sync;
    /// `[rows]` in F32.
    type Statistic: Debug + Send + Sync;
    /// The parameters, in the order of a [`Layout`].
    type Parameters: Debug + Send + Sync;
    /// F32 numbers in the order of a [`Layout`]: gradients, moments.
    type Numbers: Debug + Send + Sync + InHostMemory;
    /// A batch, as the device wants it beside the host's.
    type Tokens: Debug + Send + Sync;
    /// Angles of the rotary positions.
    type Rope: Debug + Send + Sync;
    /// The linears of a model.
    type Linears: Linears<Self>;
    /// A sum of losses that may not have been waited for yet.
    type Sum: Debug + Send;

    /// `cpu`, `cuda` or `hip`.
    fn kind(&self) -> &'static str;

    /// Refuses a run that does not fit into the device's memory, before anything is allocated.
    ///
    /// # Errors
    /// How much is needed, how much is there, and which keys lower it.
    fn check_memory(&self, run: &RunFile) -> Result<(), TrainerError>;

    /// Does `work` where the device's threads are.
    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R;

    /// Room for `[rows, width]`.
    fn activation(&self, rows: usize, width: usize) -> Result<Self::Activation, TrainerError>;
    /// Room for the X of a linear that can be made again from what else is kept ([`crate::linear::Input`]): none on a device that does so.
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
    /// Their values in F32.
    fn parameter_values<'a>(&self, parameters: &'a Self::Parameters) -> Result<Cow<'a, [f32]>, TrainerError>;
    fn numbers(&self, values: Vec<f32>) -> Result<Self::Numbers, TrainerError>;
    fn values<'a>(&self, numbers: &'a Self::Numbers) -> Result<Cow<'a, [f32]>, TrainerError>;

    /// Takes a batch to the device.
    fn load(&self, batch: &Batch, tokens: &mut Self::Tokens) -> Result<(), TrainerError>;
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
    /// `d_x` is overwritten, or added to when `accumulate`; the gain's gradient, in the same range, is overwritten.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    fn rms_norm_backward(
        &self,
        x: &Self::Activation,
        gain: (&Self::Parameters, &Range<usize>),
        inverse_rms: &Self::Statistic,
        d_y: &Self::Activation,
        d_x: &mut Self::Activation,
        accumulate: bool,
        gradients: &mut Self::Numbers,
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
    /// Sum of the losses of the batch's targets; with `gradients`, of their mean, `d_x` and the head's are overwritten.
    fn head(
        &self,
        x: &Self::Activation,
        weight: (&Self::Parameters, &Range<usize>),
        batch: (&Batch, &Self::Tokens),
        width: usize,
        losses: &mut Self::Statistic,
        gradients: Option<(&mut Self::Activation, &mut Self::Numbers)>,
    ) -> Result<Self::Sum, TrainerError>;
    fn sum(&self, sum: Self::Sum) -> Result<f64, TrainerError>;
    /// `sum` += `more`, element by element in F32.
    fn add(&self, sum: &mut Self::Numbers, more: &Self::Numbers) -> Result<(), TrainerError> {
        if let (Some(sum), Some(more)) = (sum.host_mut(), more.host()) {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            return Ok(());
        }
        let total = self.values(sum)?.iter().zip(self.values(more)?.iter()).map(|(sum, more)| sum + more).collect();
        *sum = self.numbers(total)?;
        Ok(())
    }
    /// `numbers` /= `by`, element by element in F32, correctly rounded.
    fn divide(&self, numbers: &mut Self::Numbers, by: f32) -> Result<(), TrainerError> {
        if let Some(numbers) = numbers.host_mut() {
            numbers.iter_mut().for_each(|number| *number /= by);
            return Ok(());
        }
        let quotients = self.values(numbers)?.iter().map(|number| number / by).collect();
        *numbers = self.numbers(quotients)?;
        Ok(())
    }
    fn gradient_norm(&self, gradients: &Self::Numbers) -> Result<f64, TrainerError>;
    /// AdamW of step `step` (from 1), gradients clipped by their norm.
    fn update(
        &self,
        layout: &Layout,
        update: Update<'_>,
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

/// Which device a command works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Cpu,
    Gpu(Kind, usize),
}

impl Choice {
    /// `cpu`, `cuda`, `cuda:N`, `hip`, `hip:N`, or `auto`: the first kind of GPU that is there, CUDA before HIP, else the CPU.
    pub fn parse(text: &str) -> Result<Self, TrainerError> {
        let (word, number) = text.split_once(':').map_or((text, None), |(word, number)| (word, Some(number)));
        let ordinal = number.map_or(Some(0), |number| number.parse().ok());
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        match (word, kind, number, ordinal) {
            (_, Some(kind), _, Some(ordinal)) => Ok(Self::Gpu(kind, ordinal)),
            ("cpu", _, None, _) => Ok(Self::Cpu),
            ("auto", _, None, _) => Ok(Self::first()),
            _ => Err(TrainerError::BadInput(format!(
                "--device: '{text}' is no device; use cpu, cuda, cuda:1 (the second GPU), hip, hip:1 or auto"
            ))),
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
    /// `cpu`, `cuda` or `hip`.
    pub device: &'static str,
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
