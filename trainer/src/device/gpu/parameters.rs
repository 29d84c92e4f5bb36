//! The parameters on a GPU. One rank has all of them in F32 and in BF16. Of several ranks each has a shard in F32, and all in BF16; what kernels
//! read in F32 (embedding, gains) it has beside.

use std::ops::Range;

use kernels::format::bf16;
use kernels::gpu::{Bf16, Buffer, GpuError};
use rayon::prelude::*;

use super::{GpuDevice, machine};
use crate::error::TrainerError;
use crate::parameters::{Layout, Tensor};

/// Elements that are taken to the device at once.
const AT_ONCE: usize = 1 << 24;

#[derive(Debug)]
pub struct Parameters {
    /// In F32, from element `first` on.
    pub(super) masters: Buffer<f32>,
    pub(super) first: usize,
    /// All in BF16: what operands are prepared from.
    pub(super) copies: Buffer<Bf16>,
    beside: Option<Beside>,
}

/// Whole tensors in F32.
#[derive(Debug)]
struct Beside {
    values: Buffer<f32>,
    /// Where each is in the flat array, and where it begins here.
    tensors: Vec<(Range<usize>, usize)>,
}

impl Beside {
    /// What of it lies in a range of the flat array: from where, to where here, how many.
    fn inside(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
        self.tensors.iter().filter_map(move |(tensor, place)| {
            let (start, end) = (tensor.start.max(range.start), tensor.end.min(range.end));
            (start < end).then(|| (start, place + start - tensor.start, end - start))
        })
    }
}

impl Parameters {
    /// All of them, of one rank.
    pub(super) fn whole(masters: Buffer<f32>, copies: Buffer<Bf16>) -> Self {
        Self { masters, first: 0, copies, beside: None }
    }

    /// A tensor that kernels read in F32, by where it begins in the flat array. One that is not kept so begins at an end, which kernels refuse.
    pub(super) fn in_f32(&self, start: usize) -> (&Buffer<f32>, usize) {
        match &self.beside {
            None => (&self.masters, start),
            Some(Beside { values, tensors }) => {
                let place = tensors.iter().find(|(tensor, _)| tensor.start == start).map_or(values.length(), |(_, place)| *place);
                (values, place)
            }
        }
    }

    /// The shard in F32 has changed: so does what is kept beside of it.
    pub(super) fn follow(&self) -> Result<(), GpuError> {
        let Some(beside) = &self.beside else { return Ok(()) };
        for (from, to, count) in beside.inside(&(self.first..self.first + self.masters.length())) {
            self.masters.window(from - self.first, count)?.copy_to(&beside.values.window(to, count)?, count)?;
        }
        Ok(())
    }

    /// All in BF16, as bytes.
    pub(crate) fn copies(&self, range: &Range<usize>) -> Result<Buffer<u8>, TrainerError> {
        self.copies.bytes(range.start, range.len()).map_err(machine)
    }

    /// What is kept in F32 beside the shard, of a range of the flat array, as bytes.
    pub(crate) fn beside(&self, range: &Range<usize>) -> Result<Vec<Buffer<u8>>, TrainerError> {
        let Some(beside) = &self.beside else { return Ok(Vec::new()) };
        beside.inside(range).map(|(_, place, count)| beside.values.bytes(place, count).map_err(machine)).collect()
    }
}

/// Whether kernels read a tensor in F32: the embedding, which begins the array, and gains.
fn is_read_in_f32(tensor: &Tensor) -> bool {
    !tensor.decays || tensor.range.start == 0
}

impl GpuDevice {
    /// As [`crate::device::Device::shard_parameters`].
    pub(super) fn sharded(&self, layout: &Layout, values: &[f32], shard: &Range<usize>) -> Result<Parameters, TrainerError> {
        let gpu = self.gpu();
        let (mut tensors, mut room) = (Vec::new(), 0);
        for tensor in layout.tensors.iter().filter(|tensor| is_read_in_f32(tensor)) {
            tensors.push((tensor.range.clone(), room));
            // Each begins where kernels may read several elements at once.
            room += tensor.range.len().next_multiple_of(64);
        }
        let mut beside = Beside { values: gpu.buffer(room).map_err(machine)?, tensors };
        for (from, to, count) in beside.inside(&(0..values.len())).collect::<Vec<_>>() {
            beside.values.write(to, &values[from..from + count]).map_err(machine)?;
        }
        let mut copies = gpu.buffer(values.len()).map_err(machine)?;
        for (part, values) in values.chunks(AT_ONCE).enumerate() {
            copies.write(part * AT_ONCE, &in_bf16(values)).map_err(machine)?;
        }
        let masters = gpu.upload(&values[shard.clone()]).map_err(machine)?;
        Ok(Parameters { masters, first: shard.start, copies, beside: Some(beside) })
    }

    /// As [`crate::device::Device::write_parameters`].
    pub(super) fn write_any(&self, parameters: &mut Parameters, first: usize, values: &[f32]) -> Result<(), TrainerError> {
        let range = first..first + values.len();
        let Parameters { masters, first: start, copies, beside } = parameters;
        let (from, to) = (range.start.max(*start), range.end.min(*start + masters.length()));
        if from < to {
            masters.write(from - *start, &values[from - first..to - first]).map_err(machine)?;
        }
        for (part, values) in values.chunks(AT_ONCE).enumerate() {
            copies.write(first + part * AT_ONCE, &in_bf16(values)).map_err(machine)?;
        }
        let Some(beside) = beside else { return Ok(()) };
        for (from, to, count) in beside.inside(&range).collect::<Vec<_>>() {
            beside.values.write(to, &values[from - first..from - first + count]).map_err(machine)?;
        }
        Ok(())
    }
}

/// As the device rounds.
fn in_bf16(values: &[f32]) -> Vec<Bf16> {
    values.par_iter().map(|&value| Bf16(bf16::encode(value))).collect()
}
