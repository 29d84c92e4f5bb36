//! One training over several processes: which rank owns what, and how ranks exchange it.
//!
//! Micro-batch k of a step is computed by rank k mod N. [`Ranks`] moves numbers and adds none: the owner of a shard adds the pieces itself, in
//! the order of the ranks, so that a sum over micro-batches runs 0, 1, 2, ... whatever N is. What is small (losses, sums of squares,
//! magnitudes) is gathered everywhere and combined in index order by everybody, so that all ranks decide alike. docs/ranks.md says what
//! that promises.
//!
//! [`Alone`] is one rank; [`tcp::Mesh`] connects processes, which exchange through their hosts (`host`), [`collective::Collective`] GPUs through NCCL or RCCL.

pub mod collective;
mod frame;
mod host;
pub mod launch;
pub mod machines;
pub mod place;
mod rendezvous;
pub mod tcp;

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

use contract::run_file::RunFile;

use crate::device::Device;
use crate::error::TrainerError;
use crate::shards::Shards;

/// What ranks do together. All of them make the same calls in the same order; where they do not, the call is an error. Every call fails soon
/// after another rank has ended, fallen silent or told of an error, and names it.
pub trait Ranks<D: Device>: Debug + Send + Sync {
    /// This one's number, from 0.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;

    /// What moves the numbers; none for one rank alone, which has them all.
    fn transport(&self) -> Option<String>;

    /// Room for the pieces that [`Ranks::begin`] brings: the transport's choice, since some copy only to memory that they know. All ranks call
    /// this together.
    fn room(&self, device: &D, shards: &Shards) -> Result<D::Numbers, TrainerError> {
        device.zeros(shards.pieces_room())
    }

    /// Makes the ways on which [`Ranks::share`] sends these parameters, where it needs some. All ranks call this together.
    fn connect(&self, _: &mut D::Parameters) -> Result<(), TrainerError> {
        Ok(())
    }

    /// Begins to send every other rank the part of a bucket that it owns, after everything that the device was told to do. `pieces` becomes
    /// what the others computed of this rank's part, each at its place ([`Shards::piece`]); it may be read after [`Ranks::end`], and until the
    /// next exchange begins.
    fn begin(&self, device: &D, bucket: &Bucket<'_, D>, shards: &Shards, pieces: &mut D::Numbers) -> Result<(), TrainerError>;

    /// What the device is told from here on it does after the exchange that was begun.
    fn end(&self, device: &D) -> Result<(), TrainerError>;

    /// Waits until the device has done all exchanges. How long it stood still for them since this was asked last.
    fn finish(&self, device: &D) -> Result<Waited, TrainerError>;

    /// The norm of gradients of which every rank has a shard, where it can be had without the host between the ranks; none where it cannot.
    /// `pieces` is room for it: what had come there has been added.
    fn norm(&self, _: &D, _: &Shards, _gradients: &D::Numbers, _pieces: &D::Numbers) -> Result<Option<f64>, TrainerError> {
        Ok(None)
    }

    /// Sends all others the portion of this rank's shard of a round ([`Shards::portion`]), after everything that the device was told to do, and
    /// receives theirs. What they send may come later, beside computing: [`Device::arrive`] waits for it.
    fn share(&self, device: &D, parameters: &mut D::Parameters, shards: &Shards, round: usize) -> Result<(), TrainerError>;

    /// The whole array of which every rank has a shard, on rank 0; none elsewhere.
    fn collect<'a>(&self, device: &D, shard: &'a D::Numbers, shards: &Shards) -> Result<Option<Cow<'a, [f32]>>, TrainerError>;

    /// This rank's shard of what rank 0 has; the others give nothing.
    fn scatter(&self, all: &[f32], shards: &Shards) -> Result<Vec<f32>, TrainerError>;

    /// Link after link of a chain, `owners[link]` does `work` on what was made at the link before: nothing at the first. What is made at the last
    /// is the result on the rank that made it; it is none elsewhere.
    fn relay(&self, owners: &[usize], work: &mut Link<'_>) -> Result<Option<Vec<u8>>, TrainerError>;

    /// A small record of every rank, in the order of the ranks.
    fn gather(&self, record: &[u8]) -> Result<Vec<Vec<u8>>, TrainerError>;

    /// Waits until all ranks are here.
    fn barrier(&self) -> Result<(), TrainerError> {
        self.gather(&[]).map(drop)
    }

    /// Tells the others why this rank cannot go on.
    fn abort(&self, error: &TrainerError);

    /// Ends the connection in good order.
    fn leave(&self);
}

/// What a rank does at a link of a chain, by its number, with what was made at the one before.
pub type Link<'a> = dyn FnMut(usize, Vec<u8>) -> Result<Vec<u8>, TrainerError> + 'a;

/// Gradients of one rank's micro-batch.
#[derive(Debug)]
pub struct Bucket<'a, D: Device> {
    /// The gradient of parameter `base`, and those of all after it to the bucket's end; or what is sent in their place.
    pub numbers: &'a D::Numbers,
    pub base: usize,
    pub range: Range<usize>,
    /// How many numbers are sent in their place, all of them to every rank that owns some of the range.
    pub packed: Option<usize>,
}

impl<D: Device> Bucket<'_, D> {
    /// Which of the numbers a rank is sent: an empty range where it owns nothing of the bucket.
    pub fn sent_to(&self, rank: usize, shards: &Shards) -> Range<usize> {
        let part = shards.part(rank, &self.range);
        match self.packed {
            Some(length) => 0..if part.is_empty() { 0 } else { length },
            None => part.start - self.base..part.end - self.base,
        }
    }
}

/// Seconds that a device stood still for what other ranks sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waited {
    pub gradients: f64,
    pub parameters: f64,
}

/// One rank: there is nobody to exchange anything with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alone;

impl<D: Device> Ranks<D> for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn transport(&self) -> Option<String> {
        None
    }

    fn begin(&self, device: &D, bucket: &Bucket<'_, D>, shards: &Shards, pieces: &mut D::Numbers) -> Result<(), TrainerError> {
        let all = bucket.sent_to(0, shards);
        device.copy((bucket.numbers, all.start), (pieces, 0), all.len())
    }

    fn end(&self, _: &D) -> Result<(), TrainerError> {
        Ok(())
    }

    fn finish(&self, _: &D) -> Result<Waited, TrainerError> {
        Ok(Waited::default())
    }

    fn share(&self, _: &D, _: &mut D::Parameters, _: &Shards, _: usize) -> Result<(), TrainerError> {
        Ok(())
    }

    fn collect<'a>(&self, device: &D, shard: &'a D::Numbers, _: &Shards) -> Result<Option<Cow<'a, [f32]>>, TrainerError> {
        device.values(shard).map(Some)
    }

    fn scatter(&self, all: &[f32], _: &Shards) -> Result<Vec<f32>, TrainerError> {
        Ok(all.to_vec())
    }

    fn relay(&self, owners: &[usize], work: &mut Link<'_>) -> Result<Option<Vec<u8>>, TrainerError> {
        (0..owners.len()).try_fold(None, |before, link| work(link, before.unwrap_or_default()).map(Some))
    }

    fn gather(&self, record: &[u8]) -> Result<Vec<Vec<u8>>, TrainerError> {
        Ok(vec![record.to_vec()])
    }

    fn abort(&self, _: &TrainerError) {}

    fn leave(&self) {}
}

/// Refuses a number of ranks among which the run's micro-batches cannot be dealt out.
pub fn check_size(run: &RunFile, size: usize) -> Result<(), TrainerError> {
    let parts = run.batch.accumulation;
    if size == 0 || !parts.is_multiple_of(size) {
        return Err(TrainerError::BadInput(format!(
            "{size} ranks do not divide batch.accumulation ({parts}) of the run file into equal parts; use a number of ranks that divides it, \
             or another run file with more micro-batches a step"
        )));
    }
    Ok(())
}

/// Numbers that were dealt out, number k to rank k mod N, from every rank in their own order again.
pub(crate) fn in_order<D: Device>(ranks: &dyn Ranks<D>, own: &[f64], count: usize) -> Result<Vec<f64>, TrainerError> {
    let all = gather_numbers(ranks, own)?;
    let size = all.len();
    let number = |k: usize| all[k % size].get(k / size).copied();
    let wrong =
        || TrainerError::Machine(format!("{count} numbers were dealt out to {size} ranks and fewer came back: a defect of the trainer"));
    (0..count).map(number).collect::<Option<_>>().ok_or_else(wrong)
}

/// Whether one of the ranks says so.
pub(crate) fn any<D: Device>(ranks: &dyn Ranks<D>, own: bool) -> Result<bool, TrainerError> {
    Ok(ranks.gather(&[u8::from(own)])?.iter().any(|said| said == &[1]))
}

/// Whether all of them do.
pub(crate) fn all<D: Device>(ranks: &dyn Ranks<D>, own: bool) -> Result<bool, TrainerError> {
    any(ranks, !own).map(|denied| !denied)
}

/// Every rank's numbers.
pub(crate) fn gather_numbers<D: Device>(ranks: &dyn Ranks<D>, own: &[f64]) -> Result<Vec<Vec<f64>>, TrainerError> {
    Ok(ranks.gather(&to_bytes(own))?.iter().map(|record| from_bytes(record)).collect())
}

/// The norm of gradients of which every rank has a shard: squares are added from the first element to the last, segment after segment, in the
/// order in which one rank adds them. Sums that do not depend on each other go in groups, so that ranks work side by side.
pub(crate) fn gradient_norm<D: Device>(
    (device, ranks): (&D, &dyn Ranks<D>),
    shards: &Shards,
    gradients: &D::Numbers,
) -> Result<f64, TrainerError> {
    let (segments, shard, mut sums) = (shards.segments(), shards.of(ranks.rank()), Vec::new());
    let owners: Vec<usize> = segments.iter().map(|segment| segment.owner).collect();
    for group in 0..D::GROUPS_OF_SQUARES {
        let own = ranks.relay(&owners, &mut |link, before| {
            let (range, before) = (&segments[link].range, from_bytes(&before));
            let part = (gradients, shard.place(range.start));
            device.inside(|| device.add_squares(part, range, group, before)).map(|sums| to_bytes(&sums))
        })?;
        sums.extend(own.map(|own| from_bytes(&own)));
    }
    let norm = (!sums.is_empty()).then(|| device.norm_of_squares(&sums.concat())).transpose()?;
    let norms = gather_numbers(ranks, norm.as_slice())?;
    norms
        .into_iter()
        .flatten()
        .next()
        .ok_or_else(|| TrainerError::Machine("no rank has the gradient's norm: a defect of the trainer".into()))
}

fn to_bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
}
