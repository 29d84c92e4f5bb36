//! Which rank owns which parameters.

use std::ops::Range;

use kernels::cpu::SQUARES_CHUNK;

/// The flat array of parameters cut into one shard a rank. Boundaries lie on multiples of the chunks in which squares are summed, so that the
/// gradient's norm has the same terms for every number of ranks. The array itself has no padding; the last shard may be shorter, and where
/// there are fewer chunks than ranks some shards are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    total: usize,
    size: usize,
}

impl Shards {
    /// Of `total` elements, for `size` ranks (at least one).
    pub fn new(total: usize, size: usize) -> Self {
        Self { total, size: size.max(1) }
    }

    /// The shard of a rank.
    pub fn of(&self, rank: usize) -> Range<usize> {
        let chunks = self.total.div_ceil(SQUARES_CHUNK);
        let boundary = |rank: usize| (rank * chunks / self.size * SQUARES_CHUNK).min(self.total);
        boundary(rank)..boundary(rank + 1)
    }

    /// Elements of the longest part of a shard that is exchanged at once: so many chunks that the pieces of all ranks take an eighth of the room
    /// that the whole array takes, or one.
    fn slice_length(&self) -> usize {
        (self.total / (8 * self.size)).next_multiple_of(SQUARES_CHUNK).max(SQUARES_CHUNK)
    }

    /// Exchanges after which every shard has been exchanged.
    pub fn slices(&self) -> usize {
        let longest = self.all().map(|shard| shard.len()).max().unwrap_or_default();
        longest.div_ceil(self.slice_length())
    }

    /// What of a rank's shard goes in exchange number `slice`: nothing, where the shard has ended before.
    pub fn slice(&self, rank: usize, slice: usize) -> Range<usize> {
        let (shard, length) = (self.of(rank), self.slice_length());
        let boundary = |slice: usize| (shard.start + slice * length).min(shard.end);
        boundary(slice)..boundary(slice + 1)
    }

    /// Room for the pieces that all ranks have of a slice.
    pub fn room(&self) -> usize {
        self.size * self.slice_length()
    }

    /// Where in that room the piece of a rank begins: where devices let memory begin.
    pub fn piece(&self, rank: usize) -> usize {
        rank * self.slice_length()
    }

    /// All shards, in the order of the ranks and of the array.
    pub fn all(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.size).map(|rank| self.of(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_the_array_once_and_begin_at_chunks() {
        for total in [1, SQUARES_CHUNK - 1, SQUARES_CHUNK, SQUARES_CHUNK + 1, 5 * SQUARES_CHUNK + 7, 64 * SQUARES_CHUNK] {
            for size in 1..=9 {
                let shards = Shards::new(total, size);
                let mut end = 0;
                for shard in shards.all() {
                    assert_eq!(shard.start, end, "{total} of {size}");
                    assert!(shard.start.is_multiple_of(SQUARES_CHUNK) || shard.is_empty(), "{shard:?}");
                    // As even as whole chunks can be.
                    assert!(shard.len() < total / size + 2 * SQUARES_CHUNK);
                    end = shard.end;
                }
                assert_eq!(end, total);
                for rank in 0..size {
                    let slices: Vec<usize> = (0..shards.slices()).flat_map(|slice| shards.slice(rank, slice)).collect();
                    assert!(slices.into_iter().eq(shards.of(rank)), "{total} of {size}: slices of rank {rank}");
                    assert!((0..shards.slices()).all(|slice| shards.slice(rank, slice).len() <= shards.room() / size));
                }
                assert!(shards.room() <= total / 8 + size * SQUARES_CHUNK);
            }
        }
    }
}
