//! How long the accesses of one instruction keep the LDS port and the address unit.

use gfx950_interpreter::banks::Grouping;
use gfx950_interpreter::trace::Access;

use crate::machine::{ADDRESSES, CACHE_BYTES, LDS_BYTES, LINE, SECTOR};

/// Bytes that one group of lanes moves: a dword from each of 64 banks.
const GROUP_BYTES: u64 = 256;

/// Clocks of the LDS port for an access: each group of lanes that is served together moves up to 256 bytes, as often as it wants a bank.
pub(crate) fn port(access: &Access, grouping: Grouping) -> u64 {
    let turns: u64 = grouping.ways(&access.lanes, access.bytes).iter().sum();
    turns * GROUP_BYTES / LDS_BYTES
}

/// Clocks of the LDS port to write what a load brings.
pub(crate) fn arrival(accesses: &[Access]) -> u64 {
    accesses.iter().map(|access| (access.bytes * access.lanes.len()) as u64 / LDS_BYTES).sum()
}

/// Clocks of the address unit: addresses, bytes through the cache, or lines of it, whichever takes longest.
pub(crate) fn address(access: &Access) -> u64 {
    let lanes = access.lanes.len() as u64;
    (lanes / ADDRESSES).max(lanes * access.bytes as u64 / CACHE_BYTES).max(pieces(access, LINE))
}

/// Bytes that the active lanes ask for.
pub(crate) fn wanted(access: &Access) -> u64 {
    (access.lanes.iter().flatten().count() * access.bytes) as u64
}

/// Bytes that move between the die and the Infinity Cache for them.
pub(crate) fn moved(access: &Access) -> u64 {
    pieces(access, SECTOR) * SECTOR
}

/// Pieces of memory of so many bytes that an access touches.
fn pieces(access: &Access, size: u64) -> u64 {
    let mut pieces: Vec<u64> = access.lanes.iter().flatten().map(|address| address / size).collect();
    pieces.sort_unstable();
    pieces.dedup();
    pieces.len() as u64
}

#[cfg(test)]
mod tests {
    use super::{Grouping, address, moved, port, wanted};
    use gfx950_interpreter::trace::Access;

    fn access(bytes: usize, of: impl Fn(u64) -> u64) -> Access {
        Access { bytes, lanes: std::array::from_fn(|lane| Some(of(lane as u64))) }
    }

    #[test]
    fn a_port_moves_128_bytes_a_clock_unless_banks_meet() {
        for grouping in Grouping::ALL {
            assert_eq!(port(&access(16, |lane| 16 * lane), grouping), 1024 / 128);
            assert_eq!(port(&access(4, |lane| 4 * lane), grouping), 256 / 128);
            // Every lane in the first bank.
            assert_eq!(port(&access(4, |lane| 256 * lane), grouping), 64 * 2);
        }
    }

    #[test]
    fn scattered_addresses_take_a_line_each() {
        assert_eq!(address(&access(4, |lane| 4 * lane)), 4);
        assert_eq!(address(&access(16, |lane| 16 * lane)), 16);
        assert_eq!(address(&access(2, |lane| lane % 16 * 4096)), 16);
        assert_eq!(address(&access(2, |lane| lane * 4096)), 64);
    }

    /// 16 lines of four bytes each move 16 sectors between the dies; without some lanes it is less.
    #[test]
    fn parts_of_sectors_move_whole_ones() {
        let scales = access(1, |lane| lane / 4 * 4096 + lane % 4);
        assert_eq!([wanted(&scales), moved(&scales)], [64, 16 * 64]);
        let mut half = access(16, |lane| 16 * lane);
        assert_eq!([wanted(&half), moved(&half)], [1024, 1024]);
        half.lanes[32..].fill(None);
        assert_eq!([wanted(&half), moved(&half)], [512, 512]);
    }
}
