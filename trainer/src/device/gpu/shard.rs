//! What one of several ranks does otherwise: its part of the gradient's norm, the update of its shard, and the embedding's rows, which it has in
//! BF16. The whole, which one rank has, takes the way without all this.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernels::gpu::{Bf16, Buffer, EmbeddingRows, Gpu, GpuError, Optimizer, PieceAdder, RowPacker, ShardNorm, UpdateNumbers};

use super::{GpuDevice, LOSS, NORM, Parameters, machine};
use crate::device::Update;
use crate::error::TrainerError;
use crate::parameters::{Layout, Tensor};
use crate::shards::ShardRanges;

/// Made in the first step that asks for it.
#[derive(Debug, Default)]
pub(super) struct Shard {
    norm: Mutex<Option<ShardNorm>>,
    /// And the shard whose tensors it knows.
    optimizer: Mutex<Option<(ShardRanges, Optimizer)>>,
    embedding: Mutex<Option<EmbeddingRows>>,
    rows: Mutex<Option<RowPacker>>,
    pieces: Mutex<Option<PieceAdder>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tensors of a layout that lie in a shard, or the parts of them that do: start in the shard's arrays, length, whether they decay.
fn tensors<'a>(layout: &'a Layout, shard: &'a ShardRanges) -> impl Iterator<Item = (usize, usize, bool)> + 'a {
    let parts = |tensor: &'a Tensor| shard.within(&tensor.range).map(|part| (shard.place(part.start), part.len(), tensor.decays));
    layout.tensors.iter().flat_map(parts)
}

impl GpuDevice {
    /// Does `work`, of a kind of the profile, with kernels that are made when they are needed first.
    fn with<K>(
        &self,
        kind: &'static str,
        kernels: &Mutex<Option<K>>,
        make: impl FnOnce(&Gpu) -> Result<K, GpuError>,
        work: impl FnOnce(&mut K) -> Result<(), GpuError>,
    ) -> Result<(), TrainerError> {
        let mut kernels = lock(kernels);
        let kernels = match &mut *kernels {
            Some(kernels) => kernels,
            none => none.insert(make(&self.parts.gpu).map_err(machine)?),
        };
        self.timed(kind, || work(kernels))
    }

    /// Does `work` with the kernels of the norm.
    pub(crate) fn with_norm(&self, work: impl FnOnce(&mut ShardNorm) -> Result<(), GpuError>) -> Result<(), TrainerError> {
        self.with("optimizer", &self.parts.shard.norm, ShardNorm::new, work)
    }

    /// Does `work` with the kernels for packed rows of the embedding's gradient.
    pub(super) fn with_rows(&self, work: impl FnOnce(&RowPacker) -> Result<(), GpuError>) -> Result<(), TrainerError> {
        self.with("accumulate", &self.parts.shard.rows, RowPacker::new, |rows| work(rows))
    }

    /// Does `work` with the kernel that adds pieces.
    pub(super) fn with_pieces(&self, work: impl FnOnce(&PieceAdder) -> Result<(), GpuError>) -> Result<(), TrainerError> {
        self.with("accumulate", &self.parts.shard.pieces, PieceAdder::new, |adder| work(adder))
    }

    pub(super) fn add_squares_of(
        &self,
        shard: &Buffer<f32>,
        first: usize,
        group: usize,
        before: Vec<f64>,
    ) -> Result<Vec<f64>, TrainerError> {
        let mut sums = if before.is_empty() { vec![0.0; ShardNorm::SUMS] } else { before };
        self.with_norm(|norm| norm.go_on(shard, first, group, &mut sums))?;
        Ok(sums)
    }

    pub(super) fn norm_of_all(&self, sums: &[f64]) -> Result<f64, TrainerError> {
        self.with_norm(|norm| norm.norm(sums, &self.parts.results, NORM))?;
        self.result(NORM)
    }

    /// As [`crate::device::Device::update`], of a shard.
    pub(super) fn update_shard(
        &self,
        layout: &Layout,
        (update, numbers): (Update<'_>, UpdateNumbers),
        (portion, shard): (&Range<usize>, &ShardRanges),
        gradients: &Buffer<f32>,
        parameters: &mut Parameters,
        (first, second): (&mut Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<(), TrainerError> {
        if portion.is_empty() {
            return Ok(());
        }
        let mut optimizer = lock(&self.parts.shard.optimizer);
        let optimizer = match &mut *optimizer {
            Some((known, optimizer)) if known == shard => &*optimizer,
            other => {
                let made = Optimizer::new(&self.parts.gpu, tensors(layout, shard)).map_err(machine)?;
                &other.insert((shard.clone(), made)).1
            }
        };
        let (part, clip_norm) = (shard.local(portion), update.section.clip_norm);
        // The portion lies so much further on in the whole than in the shard.
        let offset = portion.start - part.start;
        let mut copies = parameters.copies.part(size_of::<u16>() * offset, shard.len()).map_err(machine)?;
        // The norm is every rank's; only the last one's device has it.
        self.parts.results.part(0, NORM + 1).and_then(|mut results| results.write(NORM, &[update.norm])).map_err(machine)?;
        let results = (&self.parts.results, NORM, LOSS);
        let masters = &mut parameters.masters;
        self.timed("optimizer", || optimizer.update(&part, masters, gradients, first, second, &mut copies, numbers, clip_norm, results))?;
        parameters.follow(portion).map_err(machine)
    }

    /// As [`crate::device::Device::embedding`], from the copy in BF16: bit for bit the same.
    pub(super) fn embedding_rows(
        &self,
        (parameters, table): (&Parameters, &Range<usize>),
        tokens: &Buffer<u32>,
        out: &mut Buffer<Bf16>,
        sizes: (usize, usize),
    ) -> Result<(), TrainerError> {
        let table = parameters.copies.part(size_of::<u16>() * table.start, table.len()).map_err(machine)?;
        self.with("embedding", &self.parts.shard.embedding, EmbeddingRows::new, |rows| rows.copy(&table, tokens, out, sizes))
    }
}
