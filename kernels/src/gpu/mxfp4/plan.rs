//! How a product of packed operands is cut into workgroups: a choice by a model of an MI355X, modelled, not measured.

use super::packed_bytes;

/// Elements along k that the product's kernels take at a time.
const STEP: usize = 256;

/// Partial sums for which there is room at most: 64 MiB.
pub(super) const LARGEST_WORKSPACE: usize = 1 << 24;

/// How a product is cut into workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Side of the square of the result that a workgroup makes: 64, 128 or 256.
    pub tile: usize,
    /// Steps of 256 along k that a workgroup takes.
    pub share: usize,
    /// Workgroups along k; more than one: their sums are added by a second kernel, in order.
    pub shares: usize,
}

/// What the choice of a tile rests on: side, clocks of a step of 256 along k when a compute unit does nothing else, workgroups that fit on
/// a unit at once. From counts and llvm-mca (kernels/gfx950/README.md); modelled, not measured.
pub(super) const TILES: [(usize, u64, u64); 3] = [(256, 2342, 1), (128, 768, 2), (64, 384, 4)];
/// Clocks from a load to its data, below which no step of a workgroup can be (assumed).
const LATENCY: u64 = 1000;
/// Bytes that memory moves in a clock: 8 TB/s at 2.4 GHz.
const BYTES_PER_CLOCK: u64 = 3333;
/// Clocks that a second kernel costs by itself: about 5 microseconds (assumed).
const SECOND_KERNEL: u64 = 12_000;

impl Plan {
    /// The cheapest one by the model, for a device of `units` compute units and room for `workspace` partial sums. A function of its arguments alone,
    /// so that the same product is summed in the same order every time.
    pub fn choose(units: usize, shape: (usize, usize, usize), workspace: usize) -> Self {
        Self::cheapest(units, shape, workspace).1
    }

    /// Clocks of the busiest compute unit that the model expects of the plan for a product, second kernel included, or what memory needs to move both
    /// operands and a result in BF16 once, if that is more. A lower bound from counts (modelled): launch, first loads and stores are not in it.
    pub fn modelled_clocks(units: usize, (m, n, k): (usize, usize, usize), workspace: usize) -> u64 {
        let bytes = packed_bytes((m + n) * k) + 2 * m * n;
        Self::cheapest(units, (m, n, k), workspace).0.max(bytes as u64 / BYTES_PER_CLOCK)
    }

    fn cheapest(units: usize, (m, n, k): (usize, usize, usize), workspace: usize) -> (u64, Self) {
        let steps = k.div_ceil(STEP).max(1);
        let mut best = (u64::MAX, Self { tile: 64, share: steps, shares: 1 });
        // At the same cost the smallest tile and the fewest shares.
        for (tile, clocks, resident) in TILES.into_iter().rev() {
            let tiles = m.div_ceil(tile) * n.div_ceil(tile);
            for wanted in (0..7).map(|power| 1usize << power).take_while(|&wanted| wanted <= steps) {
                let share = steps.div_ceil(wanted);
                let shares = steps.div_ceil(share);
                if shares > 1 && shares * m * n > workspace {
                    continue;
                }
                // Workgroups of the busiest unit: so many at once, then the next.
                let queue = (tiles * shares).div_ceil(units.max(1)) as u64;
                let (full, rest) = (queue / resident, queue % resident);
                let together = |count: u64| if count == 0 { 0 } else { (count * clocks).max(LATENCY) };
                let mut cost = share as u64 * (full * together(resident) + together(rest));
                if shares > 1 {
                    cost += SECOND_KERNEL + (8 * shares * m * n) as u64 / BYTES_PER_CLOCK;
                }
                if cost < best.0 {
                    best = (cost, Self { tile, share, shares });
                }
            }
        }
        best
    }

    /// Workgroups: as many of a share as fit on the device, each of which makes one tile after the other.
    pub(super) fn groups(&self, units: usize, m: usize, n: usize) -> [u32; 3] {
        let resident = TILES.iter().find(|tile| tile.0 == self.tile).map_or(1, |tile| tile.2 as usize);
        let tiles = n.div_ceil(self.tile) * m.div_ceil(self.tile);
        [tiles.min(units.max(1) * resident) as u32, 1, self.shares as u32]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: usize = 256;
    const TOKENS: usize = 16_384;

    fn plan(m: usize, n: usize, k: usize) -> Plan {
        Plan::choose(UNITS, (m, n, k), LARGEST_WORKSPACE)
    }

    fn whole(tile: usize, k: usize) -> Plan {
        Plan { tile, share: k.div_ceil(STEP), shares: 1 }
    }

    #[test]
    fn the_products_of_llama_are_not_cut_along_k() {
        // qkv, attention output, gate and up, down: forward, dgrad and wgrad, (m, n, k).
        for (n, k) in [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)] {
            assert_eq!(plan(TOKENS, n, k), whole(256, k), "fprop");
            assert_eq!(plan(TOKENS, k, n), whole(256, n), "dgrad");
            // 24 by 16 of the largest would keep 256 units busy for one turn and a half; those of 128 fill their turns.
            let tile = if n == 6144 { 128 } else { 256 };
            assert_eq!(plan(n, k, TOKENS), whole(tile, TOKENS), "wgrad");
        }
    }

    /// The README's table of Llama 3.1-8B's GEMMs, from the model: an MI355X has 256 units at 2.4 GHz and a peak of 10.07 PFLOP/s.
    #[test]
    fn the_readme_has_the_models_table() {
        let readme = include_str!("../../../gfx950/README.md");
        let mut missing = Vec::new();
        for (name, n, k) in [("qkv", 6144, 4096), ("attention output", 4096, 4096), ("gate and up", 28_672, 4096), ("down", 4096, 14_336)] {
            for (pass, shape) in [("fprop", (TOKENS, n, k)), ("dgrad", (TOKENS, k, n)), ("wgrad", (n, k, TOKENS))] {
                let (m, n, k) = shape;
                let Plan { tile, shares, .. } = plan(m, n, k);
                let turns = (m.div_ceil(tile) * n.div_ceil(tile) * shares) as f64 / UNITS as f64;
                let seconds = Plan::modelled_clocks(UNITS, shape, LARGEST_WORKSPACE) as f64 / 2.4e9;
                let petaflops = 2.0 * (m * n * k) as f64 / seconds / 1e15;
                let (time, share) = (seconds * 1e6, 100.0 * petaflops / 10.07);
                let line = format!(
                    "| {name}, {pass} | {m} | {n} | {k} | {tile} | {shares} | {turns} | {time:.0} | {petaflops:.1} | {share:.0} % |"
                );
                if !readme.contains(&line) {
                    missing.push(line);
                }
            }
        }
        assert!(missing.is_empty(), "not in the README:\n{}", missing.join("\n"));
    }

    #[test]
    fn a_result_that_fills_few_units_is_cut_along_k() {
        let long = plan(512, 512, TOKENS);
        assert!(long.shares > 1, "{long:?}");
        assert!(plan(1024, 1024, 8192).shares > 1);
        // Without room for partial sums there is nothing to cut into.
        assert_eq!(Plan::choose(UNITS, (512, 512, TOKENS), 0).shares, 1);
        // And a short axis is not worth a second kernel.
        assert_eq!(plan(256, 256, 512).shares, 1);
    }

    #[test]
    fn small_results_take_small_tiles() {
        assert_eq!(plan(256, 96, 64), whole(64, 64));
        assert_eq!(plan(16, 16, 32), whole(64, 32));
        assert_eq!(plan(2048, 2048, 2048).tile, 128);
    }

    /// Every step of k belongs to one share, no share is empty, the workspace is kept, and the same question has the same answer.
    #[test]
    fn shares_cover_k_once() {
        let sizes = [16, 48, 64, 144, 512, 1008, 4096, 14_336];
        for units in [1, 80, 256, 304] {
            for workspace in [0, 1 << 20, LARGEST_WORKSPACE] {
                for (m, n) in sizes.iter().flat_map(|&m| sizes.map(|n| (m, n))) {
                    for k in [32, 256, 288, 1824, 16_384, 100_000] {
                        let found = Plan::choose(units, (m, n, k), workspace);
                        let steps = k.div_ceil(STEP);
                        assert!(found.share * (found.shares - 1) < steps && steps <= found.share * found.shares, "{found:?} of {steps}");
                        assert!(found.shares == 1 || found.shares * m * n <= workspace, "{found:?}");
                        assert!(TILES.iter().any(|tile| tile.0 == found.tile));
                        assert_eq!(found, Plan::choose(units, (m, n, k), workspace));
                    }
                }
            }
        }
    }
}
