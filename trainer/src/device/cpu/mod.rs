//! The CPU as a device: F32 in memory, every call one of `kernels::cpu`.

mod linears;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use contract::device::DeviceKind;
use contract::run_file::{ModelSection, RunFile};
use kernels::cpu::{AdamW, AttentionShape, Cpu, Kernel, Profile, RopeTable, SQUARES_CHUNK, Spent};
use kernels::format::bf16;
use kernels::packed_rows::PackedRows;

use super::{Device, Machine, ProfileReader, Spending, Update};
use crate::batches::Batch;
use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::shards::ShardRanges;
use crate::{memory, optimizer, timing};

pub use linears::CpuLinears;

impl Device for Cpu {
    type Activation = Vec<f32>;
    type Statistic = Vec<f32>;
    type Parameters = Vec<f32>;
    type Numbers = Vec<f32>;
    type Tokens = ();
    type Rope = RopeTable;
    type Linears = CpuLinears;
    type Sum = f64;

    fn check_memory(&self, run: &RunFile) -> Result<(), TrainerError> {
        memory::check(run)
    }

    fn has_room_for_copies(&self, run: &RunFile, ranks: usize) -> bool {
        memory::has_room_for_copies(run, ranks)
    }

    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        Self::inside(self, work)
    }

    fn activation(&self, rows: usize, width: usize) -> Result<Vec<f32>, TrainerError> {
        Ok(vec![0.0; rows * width])
    }

    fn statistic(&self, rows: usize) -> Result<Vec<f32>, TrainerError> {
        Ok(vec![0.0; rows])
    }

    fn tokens(&self, _: &RunFile) -> Result<(), TrainerError> {
        Ok(())
    }

    fn rope_table(&self, model: &ModelSection) -> Result<RopeTable, TrainerError> {
        Ok(RopeTable::new(model.head_dim, model.sequence_length, model.rope_theta))
    }

    fn linears(&self, run: &RunFile) -> Result<CpuLinears, TrainerError> {
        Ok(CpuLinears::new(self.clone(), run))
    }

    fn parameters(&self, values: Vec<f32>) -> Result<Vec<f32>, TrainerError> {
        Ok(values)
    }

    fn shard_parameters(&self, layout: &Layout, values: Vec<f32>, shard: &ShardRanges) -> Result<Vec<f32>, TrainerError> {
        let mut all = vec![0.0; layout.total];
        for (local, range) in shard.placed() {
            all[range].copy_from_slice(&values[local]);
        }
        Ok(all)
    }

    fn shard_in_f32(&self, parameters: &Vec<f32>, shard: &ShardRanges) -> Result<Vec<f32>, TrainerError> {
        Ok(shard.iter().flat_map(|range| &parameters[range.clone()]).copied().collect())
    }

    fn parameter_values<'a>(&self, parameters: &'a Vec<f32>) -> Result<Cow<'a, [f32]>, TrainerError> {
        Ok(Cow::Borrowed(parameters))
    }

    fn numbers(&self, values: Vec<f32>) -> Result<Vec<f32>, TrainerError> {
        Ok(values)
    }

    fn values<'a>(&self, numbers: &'a Vec<f32>) -> Result<Cow<'a, [f32]>, TrainerError> {
        Ok(Cow::Borrowed(numbers))
    }

    fn read_parameters(&self, parameters: &Vec<f32>, first: usize, out: &mut [f32]) -> Result<(), TrainerError> {
        Device::read(self, parameters, first, out)
    }

    fn write_parameters(&self, parameters: &mut Vec<f32>, first: usize, values: &[f32]) -> Result<(), TrainerError> {
        Device::write(self, parameters, first, values)
    }

    fn read(&self, numbers: &Vec<f32>, first: usize, out: &mut [f32]) -> Result<(), TrainerError> {
        out.copy_from_slice(&numbers[first..first + out.len()]);
        Ok(())
    }

    fn write(&self, numbers: &mut Vec<f32>, first: usize, values: &[f32]) -> Result<(), TrainerError> {
        numbers[first..first + values.len()].copy_from_slice(values);
        Ok(())
    }

    fn add(&self, (sum, at): (&mut Vec<f32>, usize), (more, first): (&Vec<f32>, usize), count: usize) -> Result<(), TrainerError> {
        Self::add(self, &mut sum[at..at + count], &more[first..first + count]).map_err(TrainerError::kernel)
    }

    fn round_to_bf16(&self, (numbers, at): (&mut Vec<f32>, usize), count: usize) -> Result<(), TrainerError> {
        bf16::round_all(&mut numbers[at..at + count]);
        Ok(())
    }

    fn copy(&self, (from, first): (&Vec<f32>, usize), (to, at): (&mut Vec<f32>, usize), count: usize) -> Result<(), TrainerError> {
        Device::read(self, from, first, &mut to[at..at + count])
    }

    fn clear(&self, (numbers, at): (&mut Vec<f32>, usize), count: usize) -> Result<(), TrainerError> {
        Self::clear(self, &mut numbers[at..at + count]);
        Ok(())
    }

    fn pack_rows(
        &self,
        (gradients, at): (&Vec<f32>, usize),
        (batch, ()): (&Batch, &()),
        packed: PackedRows,
        out: &mut Vec<f32>,
    ) -> Result<(), TrainerError> {
        packed.pack(&gradients[at..], &batch.inputs, out);
        Ok(())
    }

    fn add_rows(
        &self,
        (sum, at): (&mut Vec<f32>, usize),
        part: Range<usize>,
        (rows, first): (&Vec<f32>, usize),
        packed: PackedRows,
    ) -> Result<(), TrainerError> {
        packed.add(&mut sum[at..at + part.len()], part.start, &rows[first..first + packed.length()]);
        Ok(())
    }

    fn divide(&self, numbers: &mut Vec<f32>, by: f32) -> Result<(), TrainerError> {
        numbers.iter_mut().for_each(|number| *number /= by);
        Ok(())
    }

    fn load(&self, _: &Batch, (): &mut ()) -> Result<(), TrainerError> {
        Ok(())
    }

    fn embedding(
        &self,
        (parameters, table): (&Vec<f32>, &Range<usize>),
        (batch, ()): (&Batch, &()),
        width: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), TrainerError> {
        let out = &mut out[..batch.inputs.len() * width];
        Self::embedding(self, &parameters[table.clone()], &batch.inputs, width, out).map_err(TrainerError::kernel)
    }

    fn embedding_backward(
        &self,
        gradient: &Vec<f32>,
        (batch, ()): (&Batch, &()),
        width: usize,
        (gradients, table): (&mut Vec<f32>, &Range<usize>),
    ) -> Result<(), TrainerError> {
        let table = &mut gradients[table.clone()];
        Self::clear(self, table);
        Self::embedding_backward(self, &gradient[..batch.inputs.len() * width], &batch.inputs, width, table).map_err(TrainerError::kernel)
    }

    fn rms_norm(
        &self,
        x: &Vec<f32>,
        (parameters, gain): (&Vec<f32>, &Range<usize>),
        epsilon: f32,
        y: &mut Vec<f32>,
        inverse_rms: &mut Vec<f32>,
        rows: usize,
    ) -> Result<(), TrainerError> {
        let (gain, length) = (&parameters[gain.clone()], rows * gain.len());
        Self::rms_norm(self, &x[..length], gain, epsilon, &mut y[..length], &mut inverse_rms[..rows]).map_err(TrainerError::kernel)
    }

    fn rms_norm_backward(
        &self,
        x: &Vec<f32>,
        (parameters, gain): (&Vec<f32>, &Range<usize>),
        inverse_rms: &Vec<f32>,
        d_y: &Vec<f32>,
        d_x: &mut Vec<f32>,
        accumulate: bool,
        (gradients, place): (&mut Vec<f32>, &Range<usize>),
        rows: usize,
    ) -> Result<(), TrainerError> {
        let (d_gain, gain, length) = (&mut gradients[place.clone()], &parameters[gain.clone()], rows * gain.len());
        Self::clear(self, d_gain);
        Self::rms_norm_backward(self, &x[..length], gain, &inverse_rms[..rows], &d_y[..length], &mut d_x[..length], accumulate, d_gain)
            .map_err(TrainerError::kernel)
    }

    fn rope(&self, qkv: &mut Vec<f32>, shape: AttentionShape, table: &RopeTable, backward: bool) -> Result<(), TrainerError> {
        let (heads, width) = (shape.heads + shape.kv_heads, shape.qkv_width());
        let qkv = &mut qkv[..shape.batch * shape.sequence * width];
        Self::rope(self, qkv, width, heads, shape.head_dim, shape.sequence, table, backward).map_err(TrainerError::kernel)
    }

    fn attention(&self, qkv: &Vec<f32>, shape: AttentionShape, out: &mut Vec<f32>, logsumexp: &mut Vec<f32>) -> Result<(), TrainerError> {
        let tokens = shape.batch * shape.sequence;
        let (qkv, out) = (&qkv[..tokens * shape.qkv_width()], &mut out[..tokens * shape.out_width()]);
        Self::attention(self, qkv, shape, out, &mut logsumexp[..tokens * shape.heads]).map_err(TrainerError::kernel)
    }

    fn attention_backward(
        &self,
        qkv: &Vec<f32>,
        shape: AttentionShape,
        out: &Vec<f32>,
        logsumexp: &Vec<f32>,
        d_out: &Vec<f32>,
        d_qkv: &mut Vec<f32>,
    ) -> Result<(), TrainerError> {
        let tokens = shape.batch * shape.sequence;
        let (fused, single) = (tokens * shape.qkv_width(), tokens * shape.out_width());
        let logsumexp = &logsumexp[..tokens * shape.heads];
        Self::attention_backward(self, &qkv[..fused], shape, &out[..single], logsumexp, &d_out[..single], &mut d_qkv[..fused])
            .map_err(TrainerError::kernel)
    }

    fn rope_attention(
        &self,
        qkv: &mut Vec<f32>,
        shape: AttentionShape,
        table: &RopeTable,
        out: &mut Vec<f32>,
        logsumexp: &mut Vec<f32>,
    ) -> Result<(), TrainerError> {
        let tokens = shape.batch * shape.sequence;
        let (qkv, out) = (&mut qkv[..tokens * shape.qkv_width()], &mut out[..tokens * shape.out_width()]);
        Self::rope_attention(self, qkv, shape, table, out, &mut logsumexp[..tokens * shape.heads]).map_err(TrainerError::kernel)
    }

    fn rope_attention_backward(
        &self,
        qkv: &Vec<f32>,
        shape: AttentionShape,
        table: &RopeTable,
        out: &Vec<f32>,
        logsumexp: &Vec<f32>,
        d_out: &Vec<f32>,
        d_qkv: &mut Vec<f32>,
    ) -> Result<(), TrainerError> {
        let tokens = shape.batch * shape.sequence;
        let (fused, single) = (tokens * shape.qkv_width(), tokens * shape.out_width());
        let (logsumexp, d_qkv) = (&logsumexp[..tokens * shape.heads], &mut d_qkv[..fused]);
        Self::rope_attention_backward(self, &qkv[..fused], shape, table, &out[..single], logsumexp, &d_out[..single], d_qkv)
            .map_err(TrainerError::kernel)
    }

    fn head(
        &self,
        x: &Vec<f32>,
        (parameters, weight): (&Vec<f32>, &Range<usize>),
        (batch, ()): (&Batch, &()),
        width: usize,
        losses: &mut Vec<f32>,
        gradients: Option<(&mut Vec<f32>, (&mut Vec<f32>, &Range<usize>))>,
    ) -> Result<f64, TrainerError> {
        let (targets, head) = (&batch.targets, &parameters[weight.clone()]);
        let tokens = targets.len();
        let (x, losses) = (&x[..tokens * width], &mut losses[..tokens]);
        match gradients {
            None => self.head_loss(x, head, targets, losses),
            Some((d_x, (gradients, place))) => {
                let (d_x, d_head) = (&mut d_x[..tokens * width], &mut gradients[place.clone()]);
                Self::head(self, x, head, targets, 1.0 / tokens as f32, losses, d_x, d_head)
            }
        }
        .map_err(TrainerError::kernel)
    }

    fn sum(&self, sum: f64) -> Result<f64, TrainerError> {
        Ok(sum)
    }

    fn gradient_norm(&self, gradients: &Vec<f32>) -> Result<f64, TrainerError> {
        Ok(libm::sqrt(self.squared_norm(gradients)))
    }

    fn add_squares(
        &self,
        (shard, place): (&Vec<f32>, usize),
        segment: &Range<usize>,
        _: usize,
        before: Vec<f64>,
    ) -> Result<Vec<f64>, TrainerError> {
        let mut sums = vec![0.0; segment.len().div_ceil(SQUARES_CHUNK)];
        Self::squared_sums(self, &shard[place..place + segment.len()], &mut sums);
        // One sum, chunk by chunk: segments begin at chunks.
        Ok(vec![before.into_iter().chain(sums).sum()])
    }

    fn norm_of_squares(&self, sums: &[f64]) -> Result<f64, TrainerError> {
        Ok(libm::sqrt(sums.iter().sum()))
    }

    fn update(
        &self,
        layout: &Layout,
        update: Update<'_>,
        (portion, shard): (&Range<usize>, &ShardRanges),
        gradients: &Vec<f32>,
        parameters: &mut Vec<f32>,
        (first, second): (&mut Vec<f32>, &mut Vec<f32>),
    ) -> Result<(), TrainerError> {
        let numbers = optimizer::numbers(&update);
        for tensor in &layout.tensors {
            let range = tensor.range.start.max(portion.start)..tensor.range.end.min(portion.end);
            if range.is_empty() {
                continue;
            }
            let own = shard.local(&range);
            let numbers = AdamW { weight_decay: if tensor.decays { numbers.weight_decay } else { 0.0 }, ..numbers };
            let (first, second) = (&mut first[own.clone()], &mut second[own.clone()]);
            self.adamw(&mut parameters[range], &gradients[own], first, second, &numbers).map_err(TrainerError::kernel)?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), TrainerError> {
        Ok(())
    }

    fn with_profile(&self) -> (Self, ProfileReader) {
        let profile = Arc::new(Profile::default());
        let cpu = Self::with_profile(self, profile.clone());
        let spending = |(kernel, spent): (Kernel, Spent)| {
            let (kernel, seconds) = (kernel.name(), spent.time.as_secs_f64());
            (spent.calls > 0).then_some(Spending { kernel, calls: spent.calls, work: spent.work, seconds })
        };
        (cpu, Box::new(move || Ok(profile.take().into_iter().filter_map(spending).collect())))
    }

    fn machine(&self) -> Machine {
        Machine {
            device: DeviceKind::Cpu,
            name: timing::processor_name(),
            threads: self.threads(),
            instruction_set: self.instruction_set().to_string(),
            libraries: Vec::new(),
            mxfp4: None,
            least_memory: false,
            interpreted: false,
        }
    }
}
