//! The parameters on a GPU. One rank has all of them in F32 and in BF16. Of several ranks each has a shard in F32, and all in BF16; gains, which
//! kernels read in F32, it has beside.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use kernels::format::bf16;
use kernels::gpu::copies::{Elsewhere, Place, shareable};
use kernels::gpu::{Bf16, Buffer, GpuError};
use rayon::prelude::*;

use super::{GpuDevice, machine};
use crate::error::TrainerError;
use crate::parameters::{Layout, Tensor};
use crate::shards::ShardRanges;

/// Elements that are taken to the device at once.
const AT_ONCE: usize = 1 << 24;

#[derive(Debug)]
pub struct Parameters {
    /// In F32, those of this rank's shard.
    pub(super) masters: Buffer<f32>,
    pub(super) shard: ShardRanges,
    /// All in BF16: what operands are prepared from.
    pub(super) copies: Buffer<Bf16>,
    beside: Option<Beside>,
    /// On their way from other ranks, in the order in which they come.
    coming: Mutex<Vec<Coming>>,
}

/// Whole tensors in F32.
#[derive(Debug)]
struct Beside {
    values: Buffer<f32>,
    /// Where each is in the flat array, and where it begins here.
    tensors: Vec<(Range<usize>, usize)>,
    /// All in BF16, and these values, on the other ranks' GPUs: where copy engines can write there.
    elsewhere: Option<[Elsewhere; 2]>,
}

/// Parameters that other ranks send.
pub(crate) struct Coming {
    pub(crate) portions: Vec<Range<usize>>,
    /// Lets the GPU wait until they are there.
    pub(crate) wait: Box<dyn FnOnce() -> Result<(), GpuError> + Send>,
}

impl fmt::Debug for Coming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coming {:?}", self.portions)
    }
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
        Self { shard: ShardRanges::one(0..masters.length()), masters, copies, beside: None, coming: Mutex::default() }
    }

    /// Whether this is one of several ranks.
    pub(super) fn is_shard(&self) -> bool {
        self.beside.is_some()
    }

    /// A tensor that kernels read in F32, by where it begins in the flat array. One that is not kept so begins at an end, which kernels refuse.
    pub(super) fn in_f32(&self, start: usize) -> (&Buffer<f32>, usize) {
        match &self.beside {
            None => (&self.masters, start),
            Some(Beside { values, tensors, .. }) => {
                let place = tensors.iter().find(|(tensor, _)| tensor.start == start).map_or(values.length(), |(_, place)| *place);
                (values, place)
            }
        }
    }

    /// A portion of the shard in F32 has changed: so does what is kept beside of it.
    pub(super) fn follow(&self, portion: &Range<usize>) -> Result<(), GpuError> {
        let Some(beside) = &self.beside else { return Ok(()) };
        for (from, to, count) in beside.inside(portion) {
            self.masters.window(self.shard.place(from), count)?.copy_to(&beside.values.window(to, count)?, count)?;
        }
        Ok(())
    }

    /// What ranks send each other of a range: its values in BF16, and those beside in F32.
    pub(crate) fn sent(&self, range: &Range<usize>) -> Result<Vec<Buffer<u8>>, GpuError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let values = self.beside.iter().flat_map(|beside| beside.inside(range).map(|(_, place, count)| beside.values.bytes(place, count)));
        std::iter::once(self.copies.bytes(range.start, range.len())).chain(values).collect()
    }

    /// Where each part of that is on another rank's GPU; none where copy engines do not get there.
    pub(crate) fn places(&self, rank: usize, range: &Range<usize>) -> Option<Vec<Place>> {
        let beside = self.beside.as_ref()?;
        let [copies, values] = beside.elsewhere.as_ref()?;
        if range.is_empty() {
            return Some(Vec::new());
        }
        let values = beside.inside(range).map(|(_, place, _)| values.place(rank, place * size_of::<f32>()));
        std::iter::once(copies.place(rank, range.start * size_of::<u16>())).chain(values).collect()
    }

    /// What other ranks may open, if this is one of several.
    pub(crate) fn rooms(&self) -> Option<(&Buffer<Bf16>, &Buffer<f32>)> {
        Some((&self.copies, &self.beside.as_ref()?.values))
    }

    /// These rooms of the other ranks are open here.
    pub(crate) fn reach(&mut self, elsewhere: [Elsewhere; 2]) {
        if let Some(beside) = &mut self.beside {
            beside.elsewhere = Some(elsewhere);
        }
    }

    /// Other ranks have been told to send some; what was coming before comes before.
    pub(crate) fn expect(&self, coming: Coming) {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).push(coming);
    }

    /// As [`crate::device::Device::arrive`].
    pub(super) fn arrive(&self, range: &Range<usize>) -> Result<(), GpuError> {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |portion: &Range<usize>| portion.start < range.end && range.start < portion.end;
        let last = coming.iter().rposition(|coming| coming.portions.iter().any(is_meant));
        let count = last.map_or(0, |last| last + 1);
        coming.drain(..count).try_for_each(|coming| (coming.wait)())
    }
}

/// Whether kernels read a tensor in F32: gains are.
fn is_read_in_f32(tensor: &Tensor) -> bool {
    !tensor.decays
}

impl GpuDevice {
    /// As [`crate::device::Device::shard_parameters`].
    pub(super) fn sharded(&self, layout: &Layout, values: &[f32], shard: &ShardRanges) -> Result<Parameters, TrainerError> {
        let gpu = self.gpu();
        let (mut tensors, mut room) = (Vec::new(), 0);
        for tensor in layout.tensors.iter().filter(|tensor| is_read_in_f32(tensor)) {
            tensors.push((tensor.range.clone(), room));
            // Each begins where kernels may read several elements at once.
            room += tensor.range.len().next_multiple_of(64);
        }
        let beside = Beside { values: shareable(gpu, room).map_err(machine)?, tensors, elsewhere: None };
        let copies = shareable(gpu, layout.total).map_err(machine)?;
        let masters = gpu.buffer(shard.len()).map_err(machine)?;
        let mut parameters = Parameters { masters, shard: shard.clone(), copies, beside: Some(beside), coming: Mutex::default() };
        for (local, range) in shard.placed() {
            self.write_any(&mut parameters, range.start, &values[local])?;
        }
        Ok(parameters)
    }

    /// As [`crate::device::Device::write_parameters`].
    pub(super) fn write_any(&self, parameters: &mut Parameters, first: usize, values: &[f32]) -> Result<(), TrainerError> {
        let range = first..first + values.len();
        let Parameters { masters, shard, copies, beside, .. } = parameters;
        for own in shard.within(&range) {
            masters.write(shard.place(own.start), &values[own.start - first..own.end - first]).map_err(machine)?;
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
