//! Exchange through the hosts: numbers are read from the device, sent, and written to the other's device. Nothing goes on beside computing.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use kernels::bytes::{read_f32, write_f32};

use super::frame::{Kind, PART};
use super::tcp::{Mesh, lock};
use super::{Bucket, Link, Ranks, Waited};
use crate::device::Device;
use crate::error::TrainerError;
use crate::shards::{Segment, Shards};

impl Mesh {
    /// Sends numbers in parts; `read` gives those from an index on.
    fn send_numbers(
        &self,
        to: usize,
        kind: Kind,
        range: Range<usize>,
        read: impl Fn(usize, &mut [f32]) -> Result<(), TrainerError>,
    ) -> Result<(), TrainerError> {
        let mut numbers = vec![0.0; range.len().min(PART)];
        let mut bytes = vec![0; size_of::<f32>() * numbers.len()];
        for first in range.clone().step_by(PART) {
            let numbers = &mut numbers[..PART.min(range.end - first)];
            read(first, numbers)?;
            let bytes = &mut bytes[..size_of_val(numbers)];
            write_f32(numbers, bytes);
            self.send(to, kind, bytes)?;
        }
        Ok(())
    }

    /// Receives as many numbers as `range` has in parts; `write` takes those from an index on.
    fn receive_numbers(
        &self,
        from: usize,
        kind: Kind,
        range: Range<usize>,
        mut write: impl FnMut(usize, &[f32]) -> Result<(), TrainerError>,
    ) -> Result<(), TrainerError> {
        let mut numbers = vec![0.0; range.len().min(PART)];
        for first in range.clone().step_by(PART) {
            let bytes = self.receive(from, kind, Some(size_of::<f32>() * PART.min(range.end - first)))?;
            let numbers = &mut numbers[..bytes.len() / size_of::<f32>()];
            read_f32(&bytes, numbers);
            write(first, numbers)?;
        }
        Ok(())
    }
}

impl<D: Device> Ranks<D> for Mesh {
    fn rank(&self) -> usize {
        self.number()
    }

    fn size(&self) -> usize {
        self.count()
    }

    fn transport(&self) -> Option<String> {
        Some("host".into())
    }

    /// Nothing goes on beside: it is over when this returns.
    fn begin(&self, device: &D, bucket: &Bucket<'_, D>, shards: &Shards, pieces: &mut D::Numbers) -> Result<(), TrainerError> {
        device.wait()?;
        let (started, rank) = (Instant::now(), self.number());
        let own = bucket.sent_to(rank, shards);
        if self.count() == 1 {
            return device.copy((bucket.numbers, own.start), (pieces, 0), own.len());
        }
        for to in self.others() {
            self.send_numbers(to, Kind::Piece, bucket.sent_to(to, shards), |first, out| device.read(bucket.numbers, first, out))?;
        }
        for from in self.others() {
            let place = shards.piece(rank, from);
            self.receive_numbers(from, Kind::Piece, 0..own.len(), |first, values| device.write(pieces, place + first, values))?;
        }
        lock(&self.waited).gradients += started.elapsed().as_secs_f64();
        Ok(())
    }

    fn end(&self, _: &D) -> Result<(), TrainerError> {
        Ok(())
    }

    fn finish(&self, _: &D) -> Result<Waited, TrainerError> {
        Ok(std::mem::take(&mut *lock(&self.waited)))
    }

    /// As [`Ranks::begin`]: over when this returns.
    fn share(&self, device: &D, parameters: &mut D::Parameters, shards: &Shards, round: usize) -> Result<(), TrainerError> {
        device.wait()?;
        let started = Instant::now();
        for to in self.others() {
            let own = shards.portion(self.number(), round);
            self.send_numbers(to, Kind::Parameters, own, |first, out| device.read_parameters(parameters, first, out))?;
        }
        for from in self.others() {
            let portion = shards.portion(from, round);
            self.receive_numbers(from, Kind::Parameters, portion, |first, values| device.write_parameters(parameters, first, values))?;
        }
        lock(&self.waited).parameters += started.elapsed().as_secs_f64();
        Ok(())
    }

    fn collect<'a>(&self, device: &D, shard: &'a D::Numbers, shards: &Shards) -> Result<Option<Cow<'a, [f32]>>, TrainerError> {
        let own = shards.of(self.number());
        if self.number() != 0 {
            for (local, _) in own.placed() {
                self.send_numbers(0, Kind::Shard, local, |first, out| device.read(shard, first, out))?;
            }
            return Ok(None);
        }
        let mut all = vec![0.0; shards.total()];
        let mut rest = &mut all[..];
        let mut places: Vec<Vec<&mut [f32]>> = (0..self.count()).map(|_| Vec::new()).collect();
        for Segment { range, owner } in shards.segments() {
            let (segment, after) = rest.split_at_mut(range.len());
            places[*owner].push(segment);
            rest = after;
        }
        // All send at once, each to places of its own.
        std::thread::scope(|scope| {
            let receive = |from: usize, segment: &mut [f32]| {
                self.receive_numbers(from, Kind::Shard, 0..segment.len(), |at, values| {
                    segment[at..at + values.len()].copy_from_slice(values);
                    Ok(())
                })
            };
            let mut places = places.into_iter();
            let first = places.next().unwrap_or_default();
            let others = places.enumerate().map(|(number, segments)| (number + 1, segments));
            let receivers: Vec<_> = others
                .map(|(from, segments)| scope.spawn(move || segments.into_iter().try_for_each(|segment| receive(from, segment))))
                .collect();
            for (segment, (local, _)) in first.into_iter().zip(own.placed()) {
                device.read(shard, local.start, segment)?;
            }
            receivers.into_iter().try_for_each(|receiver| receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        Ok(Some(Cow::Owned(all)))
    }

    fn scatter(&self, all: &[f32], shards: &Shards) -> Result<Vec<f32>, TrainerError> {
        let own = shards.of(self.number());
        let mut shard = Vec::with_capacity(own.len());
        if self.number() == 0 {
            for to in self.others() {
                for range in shards.of(to).iter() {
                    self.send_numbers(to, Kind::Shard, range.clone(), |first, out| {
                        out.copy_from_slice(&all[first..first + out.len()]);
                        Ok(())
                    })?;
                }
            }
            own.iter().for_each(|range| shard.extend_from_slice(&all[range.clone()]));
            return Ok(shard);
        }
        for range in own.iter() {
            self.receive_numbers(0, Kind::Shard, range.clone(), |_, values| {
                shard.extend_from_slice(values);
                Ok(())
            })?;
        }
        Ok(shard)
    }

    fn relay(&self, owners: &[usize], work: &mut Link<'_>) -> Result<Option<Vec<u8>>, TrainerError> {
        let (rank, mut made) = (self.number(), Vec::new());
        for (link, _) in owners.iter().enumerate().filter(|(_, owner)| **owner == rank) {
            let before = link.checked_sub(1).map(|before| owners[before]);
            let received = before.filter(|before| *before != rank).map(|before| self.receive(before, Kind::Record, None)).transpose()?;
            made = work(link, received.unwrap_or_else(|| std::mem::take(&mut made)))?;
            match owners.get(link + 1) {
                None => return Ok(Some(made)),
                Some(next) if *next == rank => {}
                Some(next) => self.send(*next, Kind::Record, &std::mem::take(&mut made))?,
            }
        }
        Ok(None)
    }

    fn gather(&self, record: &[u8]) -> Result<Vec<Vec<u8>>, TrainerError> {
        for to in self.others() {
            self.send(to, Kind::Record, record)?;
        }
        let of = |rank| if rank == self.number() { Ok(record.to_vec()) } else { self.receive(rank, Kind::Record, None) };
        (0..self.count()).map(of).collect()
    }

    fn abort(&self, error: &TrainerError) {
        // What another rank is the cause of goes on as it came.
        match error {
            TrainerError::Elsewhere { code, what } => self.tell_end(*code, what),
            own => self.tell_end(own.exit_code(), &format!("rank {}: {own}", self.number())),
        }
    }

    fn leave(&self) {
        self.close();
    }
}
