//! Which workgroup of gemm.hip makes which tile, and what the dies read for it.

use std::collections::BTreeSet;

use crate::machine::DIES;

/// Rows of tiles that are gone through column by column.
const ROWS: u64 = 8;

/// Tiles of a result, so many rows and columns of them, and workgroups that make one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub down: u64,
    pub across: u64,
    pub workgroups: u64,
}

impl Order {
    pub fn tiles(self) -> u64 {
        self.down * self.across
    }

    /// How often a workgroup makes a tile, at most.
    pub fn turns(self) -> u64 {
        self.tiles().div_ceil(self.workgroups)
    }

    /// Workgroups that have a tile in a turn: the first ones.
    pub fn at_work(self, turn: u64) -> u64 {
        self.tiles().saturating_sub(turn * self.workgroups).min(self.workgroups)
    }

    /// Row and column of the tile that a workgroup makes in a turn, as `struct Order` of gemm.hip has it.
    pub fn tile(self, turn: u64, workgroup: u64) -> (u64, u64) {
        let count = self.at_work(turn);
        let die = workgroup % DIES;
        let at = turn * self.workgroups + die * (count / DIES) + die.min(count % DIES) + workgroup / DIES;
        let (band, in_band) = (at / (ROWS * self.across), at % (ROWS * self.across));
        let rows = (self.down - band * ROWS).min(ROWS);
        (band * ROWS + in_band % rows, in_band / rows)
    }

    /// Row and column in the order of the numbers, along n first: that of the version without dies.
    pub fn tile_by_number(self, turn: u64, workgroup: u64) -> (u64, u64) {
        let at = turn * self.workgroups + workgroup;
        (at / self.across, at % self.across)
    }

    /// Rows and columns of tiles that the dies read, each once in each turn of the device. Workgroups go to dies in turns (AMD, "CDNA 3
    /// Architecture": round-robin).
    pub fn panels(self, tile: impl Fn(Self, u64, u64) -> (u64, u64)) -> [u64; 2] {
        let of = |(turn, die): (u64, u64)| {
            let made = (die..self.at_work(turn)).step_by(DIES as usize).map(|workgroup| tile(self, turn, workgroup));
            let (rows, columns): (BTreeSet<u64>, BTreeSet<u64>) = made.unzip();
            [rows.len() as u64, columns.len() as u64]
        };
        let all = (0..self.turns()).flat_map(|turn| (0..DIES).map(move |die| (turn, die))).map(of);
        all.fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::Order;
    use std::collections::BTreeSet;

    /// Every tile belongs to one workgroup in one turn: all sizes up to 21 by 21 tiles, and any number of workgroups.
    #[test]
    fn every_tile_is_made_once() {
        for (down, across) in (1..22).flat_map(|down| (1..22).map(move |across| (down, across))) {
            for workgroups in [1, 2, 5, 7, 8, 9, 16, 31, 64, 100, 256, 512] {
                let workgroups = workgroups.min(down * across);
                let order = Order { down, across, workgroups };
                let turns = (0..order.turns()).flat_map(|turn| (0..order.at_work(turn)).map(move |workgroup| (turn, workgroup)));
                let made: Vec<_> = turns.map(|(turn, workgroup)| order.tile(turn, workgroup)).collect();
                let inside = made.iter().all(|&(row, column)| row < down && column < across);
                let different: BTreeSet<_> = made.iter().copied().collect();
                assert!(inside && different.len() == made.len() && made.len() as u64 == down * across, "{order:?}");
            }
        }
    }
}
