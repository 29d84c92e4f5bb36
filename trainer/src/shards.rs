//! Which rank owns which parameters, and where what others send of their gradients is put.

use std::ops::Range;

use kernels::cpu::SQUARES_CHUNK;
use kernels::packed_rows::{ALIGNED, PackedRows};

/// What a rank owns of the flat array of parameters: ranges of it, in its order. The rank's own arrays have them one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardRanges(Vec<Range<usize>>);

impl ShardRanges {
    /// One range alone; where it is empty, nothing.
    pub fn one(range: Range<usize>) -> Self {
        Self::new([range])
    }

    /// Ranges in the order of the array, without the empty ones.
    pub fn new(ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        Self(ranges.into_iter().filter(|range| !range.is_empty()).collect())
    }

    /// Elements in all.
    pub fn len(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.0.iter()
    }

    /// Where element `first` of the array is in the rank's own: how many of the shard come before it.
    pub fn place(&self, first: usize) -> usize {
        self.0.iter().take_while(|range| range.start < first).map(|range| range.end.min(first) - range.start).sum()
    }

    /// What of a range of the array lies here, as ranges of it.
    pub fn within(&self, range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<'_> {
        let range = range.clone();
        self.0.iter().map(move |own| overlap(&range, own)).filter(|part| !part.is_empty())
    }

    /// Where a range of the array that lies in one of these is in the rank's own.
    pub fn local(&self, range: &Range<usize>) -> Range<usize> {
        let place = self.place(range.start);
        place..place + range.len()
    }

    /// Its ranges, each after where it is in the rank's own arrays.
    pub fn placed(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        self.0.iter().map(|range| (self.local(range), range.clone()))
    }
}

/// A range of the array that one rank owns; the one after it is another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub range: Range<usize>,
    pub owner: usize,
}

/// The flat array of parameters cut into one shard a rank.
///
/// Gradients are exchanged by buckets, ranges of the array: of each, every rank sends every other the part in that one's shard. Every bucket is
/// shared out evenly, so that all ranks receive and add as much while the next is computed: an owner of whole buckets would let the others wait.
/// Parameters are handed out likewise, in rounds: in each, every rank sends all others the next of its shard's portions, the parts of buckets
/// in it.
///
/// Boundaries lie on multiples of the chunks in which squares are summed, so that the gradient's norm has the same terms for every number of
/// ranks. A chunk belongs to the bucket in which it begins. The first chunks of a bucket are those of the rank that has the last ones of the
/// bucket before: so a rank's part of a bucket is one range. The array itself has no padding, and a bucket of fewer chunks than ranks leaves some
/// without a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    size: usize,
    /// Room for the longest part that any rank owns of a bucket.
    stride: usize,
    /// Room for the longest bucket.
    longest: usize,
    /// In the order of the array.
    buckets: Vec<Range<usize>>,
    /// Likewise.
    segments: Vec<Segment>,
    /// By rank.
    shards: Vec<ShardRanges>,
}

/// What of `of` lies in `with`: where that is nothing, an empty range inside `of`.
fn overlap(of: &Range<usize>, with: &Range<usize>) -> Range<usize> {
    let start = with.start.clamp(of.start, of.end);
    start..with.end.clamp(start, of.end)
}

/// Shares out the chunks of each bucket among `size` ranks.
fn segments(total: usize, size: usize, buckets: &[Range<usize>]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut first_owner = 0;
    for bucket in buckets {
        let chunks = bucket.start.div_ceil(SQUARES_CHUNK)..bucket.end.min(total).div_ceil(SQUARES_CHUNK);
        // The last of them is the last one's, however many there are.
        let owner = |chunk: usize| (first_owner + ((chunk + 1) * size - 1) / chunks.len()) % size;
        for (number, chunk) in chunks.clone().enumerate() {
            let (owner, end) = (owner(number), ((chunk + 1) * SQUARES_CHUNK).min(total));
            match segments.last_mut() {
                Some(last) if last.owner == owner => last.range.end = end,
                _ => segments.push(Segment { range: chunk * SQUARES_CHUNK..end, owner }),
            }
        }
        first_owner = segments.last().map_or(0, |last| last.owner);
    }
    segments
}

impl Shards {
    /// Of `total` elements, for `size` ranks (at least one) which exchange them by these buckets.
    pub fn new(total: usize, size: usize, buckets: impl IntoIterator<Item = Range<usize>>) -> Self {
        let (mut buckets, size): (Vec<_>, _) = (buckets.into_iter().collect(), size.max(1));
        buckets.sort_unstable_by_key(|bucket| bucket.start);
        let segments = segments(total, size, &buckets);
        let of = |rank| ShardRanges::new(segments.iter().filter(|segment| segment.owner == rank).map(|segment| segment.range.clone()));
        let mut shards = Self { size, stride: 0, longest: 0, shards: (0..size).map(of).collect(), buckets, segments };
        for bucket in shards.buckets.clone() {
            let parts = (0..shards.size).map(|rank| shards.part(rank, &bucket).len());
            shards.stride = parts.fold(shards.stride, usize::max);
            shards.longest = shards.longest.max(bucket.len());
        }
        shards.stride = shards.stride.next_multiple_of(ALIGNED);
        shards
    }

    /// The shard of a rank.
    pub fn of(&self, rank: usize) -> &ShardRanges {
        &self.shards[rank]
    }

    /// All of the array, in its order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Elements of the array.
    pub fn total(&self) -> usize {
        self.segments.last().map_or(0, |last| last.range.end)
    }

    /// What of a bucket lies in a rank's shard: an empty range where nothing does.
    pub fn part(&self, rank: usize, bucket: &Range<usize>) -> Range<usize> {
        let part = self.of(rank).within(bucket).next();
        part.unwrap_or(bucket.end..bucket.end)
    }

    /// What of its shard a rank hands out in a round: nothing when it has handed out all.
    pub fn portion(&self, rank: usize, round: usize) -> Range<usize> {
        let end = self.total();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_the_array_once_and_share_out_each_bucket() {
        for total in [1, SQUARES_CHUNK - 1, SQUARES_CHUNK, SQUARES_CHUNK + 1, 5 * SQUARES_CHUNK + 7, 64 * SQUARES_CHUNK] {
            for size in 1..=9 {
                let buckets = [total / 3..total, total / 7..total / 3, 0..total / 7];
                let shards = Shards::new(total, size, buckets.clone());
                let mut end = 0;
                for (number, Segment { range, owner }) in shards.segments().iter().enumerate() {
                    assert_eq!(range.start, end, "{total} of {size}");
                    assert!(range.start.is_multiple_of(SQUARES_CHUNK) && !range.is_empty(), "{range:?}");
                    assert!(number == 0 || *owner != shards.segments()[number - 1].owner, "{total} of {size}: {number}");
                    end = range.end;
                }
                assert_eq!((end, shards.total()), (total, total));
                for rank in 0..size {
                    let shard = shards.of(rank);
                    let own: Vec<usize> = shard.iter().cloned().flatten().collect();
                    let portions: Vec<usize> = (0..shards.rounds()).flat_map(|round| shards.portion(rank, round)).collect();
                    assert_eq!(portions, own, "{total} of {size}: portions of {rank}");
                    assert!(shards.portion(rank, shards.rounds()).is_empty());
                    assert_eq!(shard.len(), own.len());
                    for (place, element) in own.iter().enumerate().step_by(997) {
                        assert_eq!(shard.place(*element), place);
                    }
                    for (local, range) in shard.placed() {
                        assert_eq!(own[local], range.collect::<Vec<_>>());
                    }
                }
                for bucket in &buckets {
                    // Every element is in the part of its owner: a part is one range.
                    let mut parts: Vec<usize> = (0..size).flat_map(|rank| shards.part(rank, bucket)).collect();
                    parts.sort_unstable();
                    assert!(parts.into_iter().eq(bucket.clone()), "{total} of {size}: {bucket:?}");
                    // As even as whole chunks can be.
                    let most = bucket.len().div_ceil(size) + 2 * SQUARES_CHUNK;
                    assert!((0..size).all(|rank| shards.part(rank, bucket).len() <= most), "{total} of {size}: {bucket:?}");
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
