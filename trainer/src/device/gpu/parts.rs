//! What a run has of a GPU: its kernels, their scratch memory, and how it works with the memory that is free.

use contract::memory::{Ways, scratch_bytes};
use contract::native::Native;
use contract::run_file::{ModelSection, RunFile};
use kernels::gpu::{Accumulator, Attention, Buffer, Elementwise, Gpu, Head, Kind, Norm, Optimizer, SumRounder};

use super::memory::{self, Keep};
use super::scratch::Scratch;
use super::shard::Shard;
use super::{ASIDE, machine};
use crate::error::TrainerError;
use crate::parameters::Layout;

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) gpu: Gpu,
    /// How the run's MXFP4 products are executed, where that can be more than one way.
    pub(super) mxfp4: Option<String>,
    pub(super) norm: Norm,
    pub(super) attention: Attention,
    pub(super) elementwise: Elementwise,
    pub(super) head: Head,
    pub(super) optimizer: Optimizer,
    pub(super) accumulator: Accumulator,
    /// Of sums that a defect keeps in BF16.
    pub(super) rounder: Option<SumRounder>,
    pub(super) shard: Shard,
    pub(super) scratch: Scratch,
    pub(super) ways: Ways,
    /// Sum of the batch's losses, norm of the gradients, and sums of an evaluation's batches.
    pub(super) results: Buffer<f64>,
    /// Bytes that were free before any of this was made.
    pub(super) free: u64,
}

impl Parts {
    /// For one of so many ranks.
    pub(super) fn new(ranks: usize, gpu: Gpu, run: &RunFile, keep: Keep) -> Result<Self, TrainerError> {
        let (model, tokens) = (&run.model, run.tokens_per_step());
        check_sizes(model)?;
        let description = gpu.description();
        let has_choice = description.kind == Kind::Hip.word() && description.has_mxfp4;
        run.gemm.check(&format!("{} ({})", description.name, description.architecture), has_choice).map_err(TrainerError::BadInput)?;
        let native = Native::new(run, gpu.description().has_mxfp4);
        let ways = memory::choose(run, native, keep, &gpu, ranks)?;
        let (free, _) = gpu.driver().memory().map_err(machine)?;
        let layout = Layout::new(model);
        let tensors = layout.tensors.iter().map(|tensor| (tensor.range.start, tensor.range.len(), tensor.decays));
        let mxfp4 = native.to_string();
        Ok(Self {
            mxfp4: (gpu.description().has_mxfp4 && !mxfp4.is_empty()).then_some(mxfp4),
            norm: Norm::new(&gpu, model.hidden_size).map_err(machine)?,
            attention: Attention::new(&gpu, model.head_dim, model.num_attention_heads, tokens).map_err(machine)?,
            elementwise: Elementwise::new(&gpu).map_err(machine)?,
            head: Head::new(&gpu, tokens, model.hidden_size, model.vocab_size).map_err(machine)?,
            optimizer: Optimizer::new(&gpu, tensors).map_err(machine)?,
            accumulator: Accumulator::new(&gpu).map_err(machine)?,
            rounder: run.recipe.rounds_sums().then(|| SumRounder::new(&gpu)).transpose().map_err(machine)?,
            shard: Shard::default(),
            scratch: Scratch::new(&gpu, scratch_bytes(run, ways))?,
            ways,
            results: gpu.zeros(ASIDE + run.evaluation.sequences.div_ceil(run.batch.sequences)).map_err(machine)?,
            free,
            gpu,
        })
    }
}

/// The kernels read eight elements at a time.
fn check_sizes(model: &ModelSection) -> Result<(), TrainerError> {
    let [qkv, output, gate_up, down] = model.linears();
    let widths = [("model.hidden_size", model.hidden_size), (qkv.0, qkv.1), (output.0, output.2), (gate_up.0, gate_up.1), (down.0, down.2)];
    for (what, width) in widths.into_iter().chain([("model.vocab_size", model.vocab_size)]) {
        if !width.is_multiple_of(8) {
            return Err(TrainerError::BadInput(format!(
                "{what} is {width}: on a GPU widths are multiples of 8; train this model on the CPU"
            )));
        }
    }
    if !model.head_dim.is_multiple_of(16) || model.head_dim > 128 {
        return Err(TrainerError::BadInput(format!(
            "model.head_dim is {}: on a GPU it is 16, 32, 48, 64, 80, 96, 112 or 128; train this model on the CPU",
            model.head_dim
        )));
    }
    Ok(())
}
