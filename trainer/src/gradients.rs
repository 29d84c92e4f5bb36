//! Gradients of micro-batches, on their way from the rank that computes them to the ranks that own them.
//!
//! A bucket goes to its owners while the one after it is computed, and is added then; the last one of a micro-batch while the next
//! micro-batch begins. The owner of a shard adds what the ranks computed in a round in the order of the ranks, round after round: 0, 1, 2, ...
//! whatever the number of ranks is.
//!
//! Of an embedding that has many more rows than a micro-batch has tokens, only those rows are sent that are not zero.

use std::ops::Range;
use std::sync::Arc;

use kernels::packed_rows::PackedRows;

use crate::device::Device;
use crate::error::TrainerError;
use crate::model::{GradientSink, Tokens};
use crate::ranks::{Bucket, Ranks};
use crate::shards::Shards;

/// A bucket whose pieces are coming.
#[derive(Debug)]
struct Coming {
    bucket: Range<usize>,
    /// Which room it was computed into.
    room: usize,
    /// Of the step's first round: the first piece is the sum so far.
    is_first: bool,
    /// Others sent rows of the embedding.
    packed: Option<PackedRows>,
}

/// Room for what is on its way.
#[derive(Debug)]
pub struct Exchange<D: Device> {
    /// One bucket is computed into the one while that in the other is sent.
    rooms: [D::Numbers; 2],
    next: usize,
    /// What other ranks computed of this rank's shard of a bucket.
    pub pieces: D::Numbers,
    /// The embedding's gradient as it is sent, where that is the shorter way.
    rows: Option<(PackedRows, D::Numbers)>,
    coming: Option<Coming>,
    /// Whether a defect keeps the sum in BF16.
    rounds_sums: bool,
}

impl<D: Device> Exchange<D> {
    /// Of micro-batches that have as many tokens as `rows` has slots, and an embedding that is `table` of the parameters.
    ///
    /// # Errors
    /// Not enough memory on the device.
    pub fn new(
        device: &D,
        ranks: &dyn Ranks<D>,
        shards: &Shards,
        (table, rows): (&Range<usize>, PackedRows),
        rounds_sums: bool,
    ) -> Result<Self, TrainerError> {
        let room = || device.zeros(shards.bucket_room());
        let rows = shards.packs(table, rows).then(|| Ok::<_, TrainerError>((rows, device.zeros(rows.length())?))).transpose()?;
        Ok(Self { rooms: [room()?, room()?], next: 0, pieces: ranks.room(device, shards)?, rows, coming: None, rounds_sums })
    }
}

/// Where a rank's backward pass puts its gradients in one round of a step.
#[derive(Debug)]
pub struct Round<'a, D: Device> {
    pub device: &'a D,
    pub ranks: &'a Arc<dyn Ranks<D>>,
    pub shards: &'a Shards,
    pub exchange: &'a mut Exchange<D>,
    /// This rank's shard of the step's gradients.
    pub sum: &'a mut D::Numbers,
    pub is_first: bool,
}

impl<D: Device> Round<'_, D> {
    /// Adds the bucket that is coming to this rank's shard.
    pub fn add(&mut self) -> Result<(), TrainerError> {
        let Self { device, ranks, shards, exchange, sum, .. } = self;
        let Some(Coming { bucket, room, is_first, packed }) = exchange.coming.take() else { return Ok(()) };
        ranks.end(device)?;
        let (rank, base) = (ranks.rank(), Shards::base(&bucket));
        let part = shards.part(rank, &bucket);
        if part.is_empty() {
            return Ok(());
        }
        let at = shards.of(rank).place(part.start);
        let comes = |from: usize| shards.senders(rank).any(|sender| sender == from);
        let piece =
            |from| if comes(from) { (&exchange.pieces, shards.piece(rank, from)) } else { (&exchange.rooms[room], part.start - base) };
        let pieces = (0..ranks.size()).map(piece);
        if packed.is_none() && !exchange.rounds_sums {
            return device.add_pieces((sum, at), &pieces.collect::<Vec<_>>(), part.len(), is_first);
        }
        for (from, piece) in pieces.enumerate() {
            let begins = is_first && from == 0;
            match packed.filter(|_| comes(from)) {
                None => device.add_pieces((sum, at), &[piece], part.len(), begins)?,
                Some(rows) => {
                    if begins {
                        device.clear((sum, at), part.len())?;
                    }
                    let of_table = part.start - bucket.start..part.end - bucket.start;
                    device.add_rows((sum, at), of_table, piece, rows)?;
                }
            }
            if exchange.rounds_sums {
                device.round_to_bf16((sum, at), part.len())?;
            }
        }
        Ok(())
    }
}

impl<D: Device> GradientSink<D> for Round<'_, D> {
    fn room(&mut self, bucket: &Range<usize>) -> Result<(&mut D::Numbers, usize), TrainerError> {
        let Exchange { rooms, next, .. } = &mut *self.exchange;
        Ok((&mut rooms[*next], Shards::base(bucket)))
    }

    fn done(&mut self, bucket: &Range<usize>) -> Result<(), TrainerError> {
        self.send(bucket, None)
    }

    fn done_rows(&mut self, table: &Range<usize>, batch: Tokens<'_, D>) -> Result<(), TrainerError> {
        self.send(table, Some(batch))
    }
}

impl<D: Device> Round<'_, D> {
    /// `batch`: where the bucket is the embedding, whose rows are sent alone if [`Exchange`] has room for them.
    fn send(&mut self, bucket: &Range<usize>, batch: Option<Tokens<'_, D>>) -> Result<(), TrainerError> {
        // Its pieces take the place of the next one's, and afterwards its room is free.
        self.add()?;
        let Self { device, ranks, shards, exchange, is_first, .. } = self;
        let Exchange { rooms, next, pieces, rows, coming, .. } = &mut **exchange;
        let (numbers, base) = (&rooms[*next], Shards::base(bucket));
        let mut sent = Bucket { numbers, base, range: bucket.clone(), packed: None };
        let mut packed = None;
        if let (Some((rows, out)), Some(batch)) = (rows, batch) {
            device.pack_rows((numbers, bucket.start - base), batch, *rows, out)?;
            sent = Bucket { numbers: out, packed: Some(rows.length()), ..sent };
            packed = Some(*rows);
        }
        ranks.begin(device, &sent, shards, pieces)?;
        *coming = Some(Coming { bucket: bucket.clone(), room: *next, is_first: *is_first, packed });
        *next = 1 - *next;
        Ok(())
    }
}
