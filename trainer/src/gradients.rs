//! Gradients of micro-batches, on their way from the rank that computes them to the ranks that own them.
//!
//! A bucket goes to its owners while the one after it is computed, and is added then; the last one of a micro-batch while the next
//! micro-batch begins. The owner of a shard adds what the ranks computed in a round in the order of the ranks, round after round: 0, 1, 2, ...
//! whatever the number of ranks is.

use std::ops::Range;
use std::sync::Arc;

use crate::device::Device;
use crate::error::TrainerError;
use crate::model::GradientSink;
use crate::ranks::{Bucket, Ranks, Shards};

/// A bucket whose pieces are coming.
#[derive(Debug)]
struct Coming {
    bucket: Range<usize>,
    /// Which room it was computed into.
    room: usize,
    /// Of the step's first round: the first piece is the sum so far.
    is_first: bool,
}

/// Room for what is on its way.
#[derive(Debug)]
pub struct Exchange<D: Device> {
    /// One bucket is computed into the one while that in the other is sent.
    rooms: [D::Numbers; 2],
    next: usize,
    /// What other ranks computed of this rank's shard of a bucket.
    pieces: D::Numbers,
    coming: Option<Coming>,
}

impl<D: Device> Exchange<D> {
    /// # Errors
    /// Not enough memory on the device.
    pub fn new(device: &D, ranks: &dyn Ranks<D>, shards: &Shards) -> Result<Self, TrainerError> {
        let room = || device.zeros(shards.bucket_room());
        Ok(Self { rooms: [room()?, room()?], next: 0, pieces: ranks.room(device, shards)?, coming: None })
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
        let Some(Coming { bucket, room, is_first }) = exchange.coming.take() else { return Ok(()) };
        ranks.end(device)?;
        let (rank, base) = (ranks.rank(), Shards::base(&bucket));
        let part = shards.part(rank, &bucket);
        if part.is_empty() {
            return Ok(());
        }
        let at = part.start - shards.of(rank).start;
        for from in 0..ranks.size() {
            let comes = shards.senders(rank).any(|sender| sender == from);
            let piece = if comes { (&exchange.pieces, shards.piece(rank, from)) } else { (&exchange.rooms[room], part.start - base) };
            if is_first && from == 0 {
                device.copy(piece, (sum, at), part.len())?;
            } else {
                device.add((sum, at), piece, part.len())?;
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
        // Its pieces take the place of the next one's, and afterwards its room is free.
        self.add()?;
        let Self { device, ranks, shards, exchange, is_first, .. } = self;
        let Exchange { rooms, next, pieces, coming } = &mut **exchange;
        let sent = Bucket { numbers: &rooms[*next], base: Shards::base(bucket), range: bucket.clone() };
        ranks.begin(device, &sent, shards, pieces)?;
        *coming = Some(Coming { bucket: bucket.clone(), room: *next, is_first: *is_first });
        *next = 1 - *next;
        Ok(())
    }
}
