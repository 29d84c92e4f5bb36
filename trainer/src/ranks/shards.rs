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

    /// Elements from one piece of a rank's shard to the next, where the pieces of all ranks lie side by side: each begins where devices let
    /// memory begin.
    fn stride(&self, rank: usize) -> usize {
        self.of(rank).len().next_multiple_of(SQUARES_CHUNK)
    }

    /// Room for the pieces that all ranks have of a rank's shard.
    pub fn room(&self, rank: usize) -> usize {
        self.size * self.stride(rank)
    }

    /// Where in that room the piece of the rank `from` begins.
    pub fn piece(&self, rank: usize, from: usize) -> usize {
        from * self.stride(rank)
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
            }
        }
    }
}
