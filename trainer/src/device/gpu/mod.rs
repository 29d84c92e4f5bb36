//! A GPU as a device: BF16 activations in its memory, kernels of `kernels::gpu`, one stream.

mod linears;
mod memory;
mod observation;
mod operands;
mod parameters;
mod parts;
mod profile;
mod scratch;
mod shard;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use contract::device::DeviceId;
use contract::memory::Ways;
use contract::run_file::{ModelSection, RunFile};
use kernels::cpu::AttentionShape;
use kernels::gpu::{Bf16, Buffer, Elementwise, Gpu, GpuError, Kind, Occurrences, ShardNorm, UpdateNumbers};
use kernels::packed_rows::PackedRows;

use super::{Device, Machine, ProfileReader, Update};
use crate::batches::Batch;
use crate::error::TrainerError;
use crate::optimizer;
use crate::parameters::Layout;
use crate::shards::ShardRanges;

pub use linears::GpuLinears;
pub use memory::{Keep, report as memory_report};
pub(crate) use parameters::Coming;
pub use parameters::Parameters;
use parts::Parts;
use profile::GpuProfile;
use scratch::Turn;

/// Places in the results that a step leaves on the device; an evaluation's sums follow.
const LOSS: usize = 0;
const NORM: usize = 1;
const ASIDE: usize = 2;

/// A GPU with the kernels of one run.
#[derive(Debug, Clone)]
pub struct GpuDevice {
    parts: Arc<Parts>,
    profile: Option<Arc<GpuProfile>>,
}

/// A batch on the device.
#[derive(Debug)]
pub struct Tokens {
    inputs: Buffer<u32>,
    targets: Buffer<u32>,
    occurrences: Occurrences,
}

#[derive(Debug)]
pub struct Angles {
    cosine: Buffer<f32>,
    sine: Buffer<f32>,
}

/// As `--device` names it.
pub fn device_id(gpu: &Gpu) -> DeviceId {
    let description = gpu.description();
    let of_kind = if description.kind == Kind::Hip.word() { DeviceId::Hip } else { DeviceId::Cuda };
    of_kind(description.ordinal)
}

/// What a GPU's error means for the run: the machine cannot do it (exit code 4), or sizes that should have been refused earlier.
pub(crate) fn machine(error: GpuError) -> TrainerError {
    match error {
        GpuError::Shape { .. } => TrainerError::kernel(error),
        other => TrainerError::Machine(other.to_string()),
    }
}

impl GpuDevice {
    /// The kernels of a run on an open GPU.
    ///
    /// # Errors
    /// Sizes or a recipe that the GPU's kernels do not take, or not enough memory.
    pub fn new(gpu: Gpu, run: &RunFile, keep: Keep) -> Result<Self, TrainerError> {
        Self::among(1, gpu, run, keep)
    }

    /// As [`GpuDevice::new`], for one of so many ranks.
    pub fn among(ranks: usize, gpu: Gpu, run: &RunFile, keep: Keep) -> Result<Self, TrainerError> {
        Ok(Self { parts: Arc::new(Parts::new(ranks, gpu, run, keep)?), profile: None })
    }

    /// Queues a kind of kernel, between two events if there is a profile.
    fn timed<R>(&self, kind: &'static str, work: impl FnOnce() -> Result<R, GpuError>) -> Result<R, TrainerError> {
        match &self.profile {
            Some(profile) => profile.time(&self.parts.gpu, kind, work),
            None => work().map_err(machine),
        }
    }

    fn elementwise(&self) -> &Elementwise {
        &self.parts.elementwise
    }

    fn ways(&self) -> Ways {
        self.parts.ways
    }

    fn turn(&self) -> Result<Turn, TrainerError> {
        self.parts.scratch.turn()
    }

    pub fn gpu(&self) -> &Gpu {
        &self.parts.gpu
    }
}

impl Device for GpuDevice {
    type Activation = Buffer<Bf16>;
    type Statistic = Buffer<f32>;
    type Parameters = Parameters;
    type Numbers = Buffer<f32>;
    type Tokens = Tokens;
    type Rope = Angles;
    type Linears = GpuLinears;
    /// Its place in the results, where it is until the next batch's unless it is set aside.
    type Sum = usize;

    fn check_memory(&self, _: &RunFile) -> Result<(), TrainerError> {
        // Done in `new`, before anything was allocated.
        Ok(())
    }

    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        work()
    }

    fn activation(&self, rows: usize, width: usize) -> Result<Buffer<Bf16>, TrainerError> {
        self.parts.gpu.buffer(rows * width).map_err(machine)
    }

    fn remade(&self, rows: usize, width: usize) -> Result<Buffer<Bf16>, TrainerError> {
        self.activation(if self.parts.ways.makes_inputs { 0 } else { rows }, width)
    }

    fn in_place(&self, _: usize, width: usize) -> Result<Buffer<Bf16>, TrainerError> {
        self.activation(0, width)
    }

    fn statistic(&self, rows: usize) -> Result<Buffer<f32>, TrainerError> {
        self.parts.gpu.buffer(rows).map_err(machine)
    }

    fn tokens(&self, run: &RunFile) -> Result<Tokens, TrainerError> {
        let (gpu, count) = (&self.parts.gpu, run.tokens_per_step());
        Ok(Tokens {
            inputs: gpu.buffer(count).map_err(machine)?,
            targets: gpu.buffer(count).map_err(machine)?,
            occurrences: Occurrences::new(gpu, count, run.model.vocab_size).map_err(machine)?,
        })
    }

    fn rope_table(&self, model: &ModelSection) -> Result<Angles, TrainerError> {
        let table = kernels::cpu::RopeTable::new(model.head_dim, model.sequence_length, model.rope_theta);
        let upload = |values: &[f32]| self.parts.gpu.upload(values).map_err(machine);
        Ok(Angles { cosine: upload(table.cosine())?, sine: upload(table.sine())? })
    }

    fn linears(&self, run: &RunFile) -> Result<GpuLinears, TrainerError> {
        GpuLinears::new(self.clone(), run)
    }

    fn parameters(&self, values: Vec<f32>) -> Result<Parameters, TrainerError> {
        let Parts { gpu, optimizer, .. } = &*self.parts;
        let masters = gpu.upload(&values).map_err(machine)?;
        let mut copies = gpu.buffer(values.len()).map_err(machine)?;
        optimizer.copy_bf16(&masters, &mut copies).map_err(machine)?;
        Ok(Parameters::whole(masters, copies))
    }

    fn shard_parameters(&self, layout: &Layout, values: Vec<f32>, shard: &ShardRanges) -> Result<Parameters, TrainerError> {
        self.sharded(layout, &values, shard)
    }

    fn shard_in_f32(&self, parameters: &Parameters, _: &ShardRanges) -> Result<Buffer<f32>, TrainerError> {
        parameters.masters.window(0, parameters.masters.length()).map_err(machine)
    }

    fn parameter_values<'a>(&self, parameters: &'a Parameters) -> Result<Cow<'a, [f32]>, TrainerError> {
        parameters.masters.to_vec().map(Cow::Owned).map_err(machine)
    }

    fn numbers(&self, values: Vec<f32>) -> Result<Buffer<f32>, TrainerError> {
        self.parts.gpu.upload(&values).map_err(machine)
    }

    fn zeros(&self, length: usize) -> Result<Buffer<f32>, TrainerError> {
        self.parts.gpu.zeros(length).map_err(machine)
    }

    fn values<'a>(&self, numbers: &'a Buffer<f32>) -> Result<Cow<'a, [f32]>, TrainerError> {
        numbers.to_vec().map(Cow::Owned).map_err(machine)
    }

    fn read_parameters(&self, parameters: &Parameters, first: usize, out: &mut [f32]) -> Result<(), TrainerError> {
        parameters.masters.read(parameters.shard.place(first), out).map_err(machine)
    }

    fn arrive(&self, parameters: &Parameters, range: &Range<usize>) -> Result<(), TrainerError> {
        parameters.arrive(range).map_err(machine)
    }

    fn write_parameters(&self, parameters: &mut Parameters, first: usize, values: &[f32]) -> Result<(), TrainerError> {
        self.write_any(parameters, first, values)
    }

    fn read(&self, numbers: &Buffer<f32>, first: usize, out: &mut [f32]) -> Result<(), TrainerError> {
        numbers.read(first, out).map_err(machine)
    }

    fn write(&self, numbers: &mut Buffer<f32>, first: usize, values: &[f32]) -> Result<(), TrainerError> {
        numbers.write(first, values).map_err(machine)
    }

    fn load(&self, batch: &Batch, tokens: &mut Tokens) -> Result<(), TrainerError> {
        self.load_forward(batch, tokens)?;
        tokens.occurrences.fill(&batch.inputs).map_err(machine)
    }

    fn load_forward(&self, batch: &Batch, tokens: &mut Tokens) -> Result<(), TrainerError> {
        tokens.inputs.write(0, &batch.inputs).map_err(machine)?;
        tokens.targets.write(0, &batch.targets).map_err(machine)
    }

    fn embedding(
        &self,
        (parameters, table): (&Parameters, &Range<usize>),
        (batch, tokens): (&Batch, &Tokens),
        width: usize,
        out: &mut Buffer<Bf16>,
    ) -> Result<(), TrainerError> {
        if parameters.is_shard() {
            return self.embedding_rows((parameters, table), &tokens.inputs, out, (batch.inputs.len(), width));
        }
        let table = parameters.in_f32(table.start);
        self.timed("embedding", || self.parts.elementwise.embedding(table, &tokens.inputs, out, batch.inputs.len(), width))
    }

    fn embedding_backward(
        &self,
        gradient: &Buffer<Bf16>,
        (_, tokens): (&Batch, &Tokens),
        width: usize,
        (gradients, table): (&mut Buffer<f32>, &Range<usize>),
    ) -> Result<(), TrainerError> {
        self.timed("embedding", || {
            self.parts.elementwise.embedding_backward(gradient, &tokens.occurrences, (gradients, table.start), width)
        })
    }

    fn rms_norm(
        &self,
        x: &Buffer<Bf16>,
        (parameters, gain): (&Parameters, &Range<usize>),
        epsilon: f32,
        y: &mut Buffer<Bf16>,
        inverse_rms: &mut Buffer<f32>,
        rows: usize,
    ) -> Result<(), TrainerError> {
        self.timed("norm", || self.parts.norm.forward(x, parameters.in_f32(gain.start), epsilon, y, inverse_rms, rows))
    }

    fn rms_norm_backward(
        &self,
        x: &Buffer<Bf16>,
        (parameters, gain): (&Parameters, &Range<usize>),
        inverse_rms: &Buffer<f32>,
        d_y: &Buffer<Bf16>,
        d_x: &mut Buffer<Bf16>,
        accumulate: bool,
        (gradients, place_of_gain): (&mut Buffer<f32>, &Range<usize>),
        rows: usize,
    ) -> Result<(), TrainerError> {
        let place = parameters.in_f32(gain.start);
        self.timed("norm", || self.parts.norm.backward(x, place, inverse_rms, d_y, d_x, accumulate, (gradients, place_of_gain.start), rows))
    }

    fn rope(&self, qkv: &mut Buffer<Bf16>, shape: AttentionShape, table: &Angles, backward: bool) -> Result<(), TrainerError> {
        let sizes = (shape.qkv_width(), shape.heads + shape.kv_heads, shape.head_dim, shape.sequence);
        let tokens = shape.batch * shape.sequence;
        self.timed("rope", || self.parts.elementwise.rope(qkv, tokens, sizes, &table.cosine, &table.sine, backward))
    }

    fn attention(
        &self,
        qkv: &Buffer<Bf16>,
        shape: AttentionShape,
        out: &mut Buffer<Bf16>,
        logsumexp: &mut Buffer<f32>,
    ) -> Result<(), TrainerError> {
        self.timed("attention", || self.parts.attention.forward(qkv, shape, out, logsumexp))
    }

    fn attention_backward(
        &self,
        qkv: &Buffer<Bf16>,
        shape: AttentionShape,
        out: &Buffer<Bf16>,
        logsumexp: &Buffer<f32>,
        d_out: &Buffer<Bf16>,
        d_qkv: &mut Buffer<Bf16>,
    ) -> Result<(), TrainerError> {
        let attention = &self.parts.attention;
        let sums = self.turn()?.take(attention.sums(shape))?;
        self.timed("attention", || attention.backward(qkv, shape, out, logsumexp, d_out, (d_qkv, &sums)))
    }

    fn head(
        &self,
        x: &Buffer<Bf16>,
        (parameters, weight): (&Parameters, &Range<usize>),
        (batch, tokens): (&Batch, &Tokens),
        _: usize,
        losses: &mut Buffer<f32>,
        gradients: Option<(&mut Buffer<Bf16>, (&mut Buffer<f32>, &Range<usize>))>,
    ) -> Result<usize, TrainerError> {
        let Parts { gpu, head, results, .. } = &*self.parts;
        let gradients = gradients.map(|(d_x, (numbers, place))| (d_x, numbers, place.start));
        let place = (&parameters.copies, weight.start);
        let (count, logits) = (batch.targets.len(), self.turn()?.take(head.logits())?);
        self.timed("head", || head.run(gpu, x, place, &tokens.targets, losses, (results, LOSS), count, &logits, gradients))?;
        Ok(LOSS)
    }

    fn sum(&self, place: usize) -> Result<f64, TrainerError> {
        self.result(place)
    }

    fn set_aside(&self, sum: usize, place: usize) -> Result<usize, TrainerError> {
        let (results, aside) = (&self.parts.results, ASIDE + place);
        let copy = || results.window(sum, 1)?.copy_to(&results.window(aside, 1)?, 1);
        copy().map_err(machine)?;
        Ok(aside)
    }

    fn gradient_norm(&self, gradients: &Buffer<f32>) -> Result<f64, TrainerError> {
        self.timed("optimizer", || self.parts.optimizer.norm(gradients, &self.parts.results, NORM))?;
        self.result(NORM)
    }

    const GROUPS_OF_SQUARES: usize = ShardNorm::GROUPS;

    fn add_squares(
        &self,
        (shard, place): (&Buffer<f32>, usize),
        segment: &Range<usize>,
        group: usize,
        before: Vec<f64>,
    ) -> Result<Vec<f64>, TrainerError> {
        let part = shard.window(place, segment.len()).map_err(machine)?;
        self.add_squares_of(&part, segment.start, group, before)
    }

    fn norm_of_squares(&self, sums: &[f64]) -> Result<f64, TrainerError> {
        self.norm_of_all(sums)
    }

    fn update(
        &self,
        layout: &Layout,
        update: Update<'_>,
        (portion, shard): (&Range<usize>, &ShardRanges),
        gradients: &Buffer<f32>,
        parameters: &mut Parameters,
        (first, second): (&mut Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<(), TrainerError> {
        let numbers = optimizer::numbers(&update);
        let numbers = UpdateNumbers {
            learning_rate: numbers.learning_rate,
            beta1: numbers.beta1,
            beta2: numbers.beta2,
            epsilon: numbers.epsilon,
            weight_decay: numbers.weight_decay,
            bias_correction1: numbers.bias_correction1,
            bias_correction2: numbers.bias_correction2,
        };
        let whole = 0..layout.total;
        if *portion != whole || parameters.is_shard() {
            return self.update_shard(layout, (update, numbers), (portion, shard), gradients, parameters, (first, second));
        }
        let Parameters { masters, copies, .. } = parameters;
        let Parts { optimizer, results, .. } = &*self.parts;
        let (results, clip_norm) = ((results, NORM, LOSS), update.section.clip_norm);
        self.timed("optimizer", || optimizer.update(&whole, masters, gradients, first, second, copies, numbers, clip_norm, results))
    }

    fn wait(&self) -> Result<(), TrainerError> {
        self.parts.gpu.driver().synchronize().map_err(machine)
    }

    fn add(&self, (sum, at): (&mut Buffer<f32>, usize), (more, first): (&Buffer<f32>, usize), count: usize) -> Result<(), TrainerError> {
        self.timed("accumulate", || {
            let (mut sum, more) = (sum.window(at, count)?, more.window(first, count)?);
            self.parts.accumulator.add(&mut sum, &more)
        })
    }

    fn add_pieces(
        &self,
        (sum, at): (&mut Buffer<f32>, usize),
        pieces: &[(&Buffer<f32>, usize)],
        count: usize,
        begins: bool,
    ) -> Result<(), TrainerError> {
        let mut sum = sum.window(at, count).map_err(machine)?;
        self.with_pieces(|adder| adder.add(&mut sum, pieces, begins))
    }

    fn round_to_bf16(&self, (numbers, at): (&mut Buffer<f32>, usize), count: usize) -> Result<(), TrainerError> {
        let what = || TrainerError::Machine("sums are rounded in a run without that defect: this is a defect of the trainer".to_owned());
        let rounder = self.parts.rounder.as_ref().ok_or_else(what)?;
        self.timed("accumulate", || rounder.round(&mut numbers.window(at, count)?))
    }

    fn copy(&self, (from, first): (&Buffer<f32>, usize), (to, at): (&mut Buffer<f32>, usize), count: usize) -> Result<(), TrainerError> {
        self.timed("accumulate", || from.window(first, count)?.copy_to(&to.window(at, count)?, count))
    }

    fn clear(&self, (numbers, at): (&mut Buffer<f32>, usize), count: usize) -> Result<(), TrainerError> {
        self.timed("accumulate", || numbers.window(at, count)?.fill(0))
    }

    fn pack_rows(
        &self,
        gradients: (&Buffer<f32>, usize),
        (_, tokens): (&Batch, &Tokens),
        packed: PackedRows,
        out: &mut Buffer<f32>,
    ) -> Result<(), TrainerError> {
        self.with_rows(|rows| rows.pack(gradients, (&tokens.inputs, &tokens.occurrences), packed, out))
    }

    fn add_rows(
        &self,
        sum: (&mut Buffer<f32>, usize),
        part: Range<usize>,
        rows: (&Buffer<f32>, usize),
        packed: PackedRows,
    ) -> Result<(), TrainerError> {
        self.with_rows(|kernels| kernels.add(sum, (part.start, part.len()), rows, packed))
    }

    fn divide(&self, numbers: &mut Buffer<f32>, by: f32) -> Result<(), TrainerError> {
        self.timed("accumulate", || self.parts.accumulator.divide(numbers, by))
    }

    fn memory_in_use(&self) -> Result<Option<u64>, TrainerError> {
        let (free, _) = self.parts.gpu.driver().memory().map_err(machine)?;
        Ok(Some(self.parts.free.saturating_sub(free)))
    }

    fn with_profile(&self) -> (Self, ProfileReader) {
        let profile = Arc::new(GpuProfile::default());
        let (read, gpu) = (profile.clone(), self.parts.gpu.clone());
        (Self { parts: self.parts.clone(), profile: Some(profile) }, Box::new(move || read.take(&gpu)))
    }

    fn machine(&self) -> Machine {
        let description = self.parts.gpu.description();
        Machine {
            device: device_id(&self.parts.gpu).kind(),
            name: description.name.clone(),
            threads: 1,
            instruction_set: description.architecture.clone(),
            libraries: description.libraries.clone(),
            mxfp4: self.parts.mxfp4.clone(),
            least_memory: !self.parts.ways.inputs_wait,
            interpreted: description.interpreted,
        }
    }
}

impl GpuDevice {
    fn result(&self, slot: usize) -> Result<f64, TrainerError> {
        let mut value = [0.0];
        self.parts.results.read(slot, &mut value).map_err(machine)?;
        Ok(value[0])
    }
}
