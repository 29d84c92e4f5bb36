//! LDS banks: which lanes of an access are served together, and how many want one bank at once.

/// Banks, each of which holds every 64th dword.
const BANKS: usize = 64;

/// Which lanes of an access are served together. No document says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Consecutive ones, as many as 64 banks can serve.
    Consecutive,
    /// The same, but for 16 bytes a lane those that were measured on gfx950 (HipKittens, arXiv 2511.08083,
    /// `analysis/paper_experiments/phases/ds_read_b128` of its repository).
    Measured,
}

/// Lanes of the first half of a wave that are served together in an access of 16 bytes a lane; the second half is the same.
const MEASURED: [[usize; 16]; 2] =
    [[0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27], [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31]];

impl Grouping {
    pub const ALL: [Self; 2] = [Self::Consecutive, Self::Measured];

    /// Whether the two group such an access differently.
    fn differ(lanes: usize, bytes: usize) -> bool {
        bytes == 16 && lanes == 64
    }

    /// The lane that comes at a place in the order in which lanes are served; as many as banks allow are served together.
    fn lane(self, place: usize, lanes: usize, bytes: usize) -> usize {
        if self == Self::Measured && Self::differ(lanes, bytes) {
            return place / 32 * 32 + MEASURED[place % 32 / 16][place % 16];
        }
        place
    }

    /// For each group of lanes that are served together how many dwords of one bank they want at most, 1 being none too many. Lanes that
    /// want the same dword share it. `offsets` are those of all lanes, None of an inactive one.
    pub fn ways(self, offsets: &[Option<u64>], bytes: usize) -> Vec<u64> {
        let (lanes, together) = (offsets.len(), (BANKS * 4 / bytes.max(4)).max(1));
        // The dword that a bank was asked for first, and those that came after it, of all banks: mostly none.
        const NONE: u64 = u64::MAX;
        let (mut first_of_bank, mut others) = ([NONE; BANKS], Vec::new());
        let of_group = |first: usize| {
            first_of_bank.fill(NONE);
            others.clear();
            let mut of_bank = [1; BANKS];
            for offset in (first..lanes.min(first + together)).filter_map(|place| offsets[self.lane(place, lanes, bytes)]) {
                for dword in offset / 4..(offset + bytes as u64).div_ceil(4) {
                    let bank = dword as usize % BANKS;
                    if first_of_bank[bank] == NONE {
                        first_of_bank[bank] = dword;
                    } else if first_of_bank[bank] != dword && !others.contains(&dword) {
                        others.push(dword);
                        of_bank[bank] += 1;
                    }
                }
            }
            of_bank.into_iter().fold(1, u64::max)
        };
        (0..lanes).step_by(together).map(of_group).collect()
    }

    /// Groups that have to wait for another of their own access, once for each time.
    pub fn conflicts(self, offsets: &[Option<u64>], bytes: usize) -> u64 {
        self.ways(offsets, bytes).iter().map(|ways| ways - 1).sum()
    }

    /// The same under each of [`Grouping::ALL`], counted once where they are one.
    pub(crate) fn conflicts_of_all(offsets: &[Option<u64>], bytes: usize) -> [u64; 2] {
        if Self::differ(offsets.len(), bytes) {
            return Self::ALL.map(|grouping| grouping.conflicts(offsets, bytes));
        }
        [Self::Consecutive.conflicts(offsets, bytes); 2]
    }
}

#[cfg(test)]
mod tests {
    use super::Grouping;

    #[test]
    fn lanes_in_different_rows_of_one_bank_conflict_and_those_that_share_a_dword_do_not() {
        let strided = |stride: u64| (0..64).map(|lane| Some(lane * stride)).collect::<Vec<Option<u64>>>();
        let conflicts = |offsets: &[Option<u64>], bytes| Grouping::Consecutive.conflicts(offsets, bytes);
        assert_eq!(conflicts(&strided(4), 4), 0);
        assert_eq!(conflicts(&strided(0), 4), 0);
        assert_eq!(conflicts(&strided(8), 4), 1);
        assert_eq!(conflicts(&strided(256), 4), 63);
        assert_eq!(conflicts(&strided(16), 16), 0);
        // Four groups of 16 lanes, each with rows of 128 bytes: 8 lanes on each half of the banks.
        assert_eq!(conflicts(&strided(128), 16), 4 * 7);
    }

    #[test]
    fn both_groupings_take_every_lane_once() {
        for bytes in [2, 4, 8, 16] {
            for grouping in Grouping::ALL {
                let mut lanes: Vec<usize> = (0..64).map(|place| grouping.lane(place, 64, bytes)).collect();
                lanes.sort_unstable();
                assert_eq!(lanes, (0..64).collect::<Vec<_>>(), "{grouping:?} of {bytes} bytes");
            }
        }
    }

    /// Sixteen rows of 128 bytes, a chunk of 16 bytes each: two lane groups that read chunks 0 and 2 of rows swizzled by half their number
    /// meet under the measured grouping alone; chunks 0 and 1 do not meet at all.
    #[test]
    fn a_layout_may_have_conflicts_under_one_grouping_and_not_the_other() {
        let offsets = |apart: u64| -> Vec<Option<u64>> {
            (0..64u64)
                .map(|lane| (lane % 16, lane / 16 * apart))
                .map(|(row, chunk)| Some(128 * row + 16 * ((chunk % 8) ^ (row / 2))))
                .collect()
        };
        assert_eq!(Grouping::ALL.map(|grouping| grouping.conflicts(&offsets(2), 16)), [0, 4]);
        assert_eq!(Grouping::ALL.map(|grouping| grouping.conflicts(&offsets(1), 16)), [0, 0]);
    }
}
