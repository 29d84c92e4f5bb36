//! Which rank owns which parameters, and where what others send of their gradients is put.

use std::ops::Range;

use kernels::cpu::SQUARES_CHUNK;
use kernels::packed_rows::{ALIGNED, PackedRows};

/// The flat array of parameters cut into one shard a rank. Boundaries lie on multiples of the chunks in which squares are summed, so that the
/// gradient's norm has the same terms for every number of ranks. The array itself has no padding; the last shard may be shorter, and where
/// there are fewer chunks than ranks some shards are empty.
///
/// Gradients are exchanged by buckets, ranges of the array: of each, every rank sends every other the part in that one's shard. Parameters are
/// handed out likewise, in rounds: in each, every rank sends all others the next of its shard's portions, the parts of buckets in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    total: usize,
    size: usize,
    /// Room for the longest part that any rank owns of a bucket.
    stride: usize,
    /// Room for the longest bucket.
    longest: usize,
    /// In the order of the array.
    buckets: Vec<Range<usize>>,
}

/// What of `of` lies in `with`: where that is nothing, an empty range inside `of`.
pub(crate) fn overlap(of: &Range<usize>, with: &Range<usize>) -> Range<usize> {
    let start = with.start.clamp(of.start, of.end);
    start..with.end.clamp(start, of.end)
}

impl Shards {
    /// Of `total` elements, for `size` ranks (at least one) which exchange them by these buckets.
    pub fn new(total: usize, size: usize, buckets: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut buckets: Vec<_> = buckets.into_iter().collect();
        buckets.sort_unstable_by_key(|bucket| bucket.start);
        let mut shards = Self { total, size: size.max(1), stride: 0, longest: 0, buckets };
        for bucket in shards.buckets.clone() {
            let parts = (0..shards.size).map(|rank| shards.part(rank, &bucket).len());
            shards.stride = parts.fold(shards.stride, usize::max);
            shards.longest = shards.longest.max(bucket.len());
        }
        shards.stride = shards.stride.next_multiple_of(ALIGNED);
        shards
    }

    /// The shard of a rank.
    pub fn of(&self, rank: usize) -> Range<usize> {
        let chunks = self.total.div_ceil(SQUARES_CHUNK);
        let boundary = |rank: usize| (rank * chunks / self.size * SQUARES_CHUNK).min(self.total);
        boundary(rank)..boundary(rank + 1)
    }

    /// What of a bucket lies in a rank's shard: an empty range where nothing does.
    pub fn part(&self, rank: usize, bucket: &Range<usize>) -> Range<usize> {
        overlap(bucket, &self.of(rank))
    }

    /// What of its shard a rank hands out in a round: nothing when it has handed out all.
    pub fn portion(&self, rank: usize, round: usize) -> Range<usize> {
        let end = self.of(rank).end;
        self.portions(rank).nth(round).unwrap_or(end..end)
    }

    fn portions(&self, rank: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        self.buckets.iter().map(move |bucket| self.part(rank, bucket)).filter(|part| !part.is_empty())
    }

    /// Until all have handed out theirs.
    pub fn rounds(&self) -> usize {
        (0..self.size).map(|rank| self.portions(rank).count()).max().unwrap_or(0)
    }

    /// Elements of a buffer in which a bucket begins as it does in the array, as far as alignment goes.
    pub fn bucket_room(&self) -> usize {
        self.longest + ALIGNED
    }

    /// Which parameter such a buffer would begin with.
    pub fn base(bucket: &Range<usize>) -> usize {
        bucket.start / ALIGNED * ALIGNED
    }

    /// Who sends a rank what: the others. One rank alone that is told to exchange sends to itself.
    pub fn senders(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        let is_alone = self.size == 1;
        (0..self.size).filter(move |&other| is_alone || other != rank)
    }

    /// Whether the embedding's gradient, `table` of the array, is sent as packed rows: where they are less than half of what a rank is sent else.
    /// They fit where that would have been put.
    pub fn packs(&self, table: &Range<usize>, rows: PackedRows) -> bool {
        let longest = (0..self.size).map(|rank| self.part(rank, table).len()).max().unwrap_or(0);
        rows.width > 0 && table.len() / rows.width <= PackedRows::MOST_ENTRIES && 2 * rows.length() <= longest
    }

    /// Room for what all senders send a rank of a bucket.
    pub fn pieces_room(&self) -> usize {
        self.size.saturating_sub(1).max(1) * self.stride
    }

    /// Where in the room of rank `to` begins what `from` sends it.
    pub fn piece(&self, to: usize, from: usize) -> usize {
        let number = if from > to { from - 1 } else { from };
        number * self.stride
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
                let buckets = [total / 3..total, total / 7..total / 3, 0..total / 7];
                let shards = Shards::new(total, size, buckets.clone());
                let mut end = 0;
                for shard in shards.all() {
                    assert_eq!(shard.start, end, "{total} of {size}");
                    assert!(shard.start.is_multiple_of(SQUARES_CHUNK) || shard.is_empty(), "{shard:?}");
                    // As even as whole chunks can be.
                    assert!(shard.len() < total / size + 2 * SQUARES_CHUNK);
                    end = shard.end;
                }
                assert_eq!(end, total);
                let portions = |rank: usize| (0..shards.rounds()).flat_map(|round| shards.portion(rank, round)).collect::<Vec<_>>();
                for (rank, shard) in shards.all().enumerate() {
                    assert!(portions(rank).into_iter().eq(shard), "{total} of {size}: portions of {rank}");
                    assert!(shards.portion(rank, shards.rounds()).is_empty());
                }
                for bucket in &buckets {
                    let parts: Vec<usize> = (0..size).flat_map(|rank| shards.part(rank, bucket)).collect();
                    assert!(parts.into_iter().eq(bucket.clone()), "{total} of {size}: {bucket:?}");
                    assert!((0..size).all(|rank| shards.part(rank, bucket).len() <= shards.stride));
                    assert!(bucket.end - Shards::base(bucket) <= shards.bucket_room());
                }
            }
        }
    }

    #[test]
    fn an_embedding_with_far_more_rows_than_a_batch_has_tokens_goes_as_rows() {
        let width = 8 * SQUARES_CHUNK / 1024;
        let table = 0..1024 * width;
        for (slots, size, packs) in [(16, 2, true), (257, 2, false), (250, 1, true), (600, 1, false), (60, 8, true), (70, 8, false)] {
            let shards = Shards::new(table.end, size, std::iter::once(table.clone()));
            let rows = PackedRows { slots, width };
            assert_eq!(shards.packs(&table, rows), packs, "{slots} of {size}");
            assert!(!packs || rows.length() <= shards.pieces_room());
        }
    }

    #[test]
    fn what_others_send_has_a_place_each() {
        for size in 1..=5 {
            let shards = Shards::new(1000, size, std::iter::once(0..1000));
            for rank in 0..size {
                let places: Vec<usize> = shards.senders(rank).map(|from| shards.piece(rank, from)).collect();
                let count = size.saturating_sub(1).max(1);
                assert_eq!(places, (0..count).map(|number| number * shards.stride).collect::<Vec<_>>());
                assert_eq!(shards.pieces_room(), count * shards.stride);
            }
        }
    }
}
