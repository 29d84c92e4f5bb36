//! How a product of packed operands is cut into workgroups: a choice by a model of an MI355X, modelled, not measured.

use super::packed_bytes;

/// Elements along k that the product's kernels take at a time.
const STEP: usize = 256;

/// Partial sums for which there is room at most: 64 MiB.
pub(super) const LARGEST_WORKSPACE: usize = 1 << 24;

/// How a product is cut into workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Rows and columns of the result that a workgroup makes at a time.
    pub tile: (usize, usize),
    /// Steps of 256 along k that a workgroup takes.
    pub share: usize,
    /// Workgroups along k; more than one: their sums are added by a second kernel, in order.
    pub shares: usize,
}

/// A kernel of gemm.hip, and what its choice rests on; modelled, not measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub(super) kernel: &'static str,
    /// Rows and columns.
    size: (usize, usize),
    /// Of a step of 256 along k, when a compute unit does nothing else (kernels/gfx950/README.md).
    clocks: u64,
    /// Workgroups that fit on a unit at once.
    resident: u64,
    /// Whether k may be cut. The oblong tile takes nothing from a product that another one cuts: how k is cut decides the order of its sums.
    cuts: bool,
}

/// At the same cost an earlier one is taken.
pub(super) const TILES: [Tile; 4] = [
    Tile { kernel: "mxfp4_gemm_64x64", size: (64, 64), clocks: 384, resident: 4, cuts: true },
    Tile { kernel: "mxfp4_gemm_128x128", size: (128, 128), clocks: 768, resident: 2, cuts: true },
    Tile { kernel: "mxfp4_gemm_256x256", size: (256, 256), clocks: 2342, resident: 1, cuts: true },
    Tile { kernel: "mxfp4_gemm_192x256", size: (192, 256), clocks: 2064, resident: 1, cuts: false },
];

impl Tile {
    fn tiles(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.size.0) * n.div_ceil(self.size.1)
    }

    /// Clocks in which a unit makes a step of so many workgroups: as many at once as fit, then the next.
    fn step(&self, workgroups: u64) -> u64 {
        let together = |count: u64| if count == 0 { 0 } else { (count * self.clocks).max(LATENCY) };
        workgroups / self.resident * together(self.resident) + together(workgroups % self.resident)
    }
}
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
        let mut best = (u64::MAX, Self { tile: TILES[0].size, share: steps, shares: 1 });
        for tile in TILES {
            for wanted in (0..7).map(|power| 1usize << power).take_while(|&wanted| wanted <= steps) {
                let share = steps.div_ceil(wanted);
                let shares = steps.div_ceil(share);
                if shares > 1 && shares * m * n > workspace || !tile.cuts && shares.max(best.1.shares) > 1 {
                    continue;
                }
                let workgroups = (tile.tiles(m, n) * shares).div_ceil(units.max(1)) as u64;
                let mut cost = share as u64 * tile.step(workgroups);
                if shares > 1 {
                    cost += SECOND_KERNEL + (8 * shares * m * n) as u64 / BYTES_PER_CLOCK;
                }
                if cost < best.0 {
                    best = (cost, Self { tile: tile.size, share, shares });
                }
            }
        }
        best
    }

    /// Which of [`TILES`] it is.
    pub(super) fn index(&self) -> usize {
        TILES.iter().position(|tile| tile.size == self.tile).unwrap_or(0)
    }

    /// Workgroups: as many of a share as fit on the device, each of which makes one tile after the other.
    pub(super) fn groups(&self, units: usize, m: usize, n: usize) -> [u32; 3] {
        let tile = TILES[self.index()];
        [tile.tiles(m, n).min(units.max(1) * tile.resident as usize) as u32, 1, self.shares as u32]
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

    fn whole(tile: (usize, usize), k: usize) -> Plan {
        Plan { tile, share: k.div_ceil(STEP), shares: 1 }
    }

    #[test]
    fn the_products_of_llama_are_not_cut_along_k() {
        // qkv, attention output, gate and up, down: forward, dgrad and wgrad, (m, n, k).
        for (n, k) in [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)] {
            assert_eq!(plan(TOKENS, n, k), whole((256, 256), k), "fprop");
            assert_eq!(plan(TOKENS, k, n), whole((256, 256), n), "dgrad");
            // 24 by 16 of the largest would keep 256 units busy for one turn and a half; 32 by 16 fill two.
            let tile = if n == 6144 { (192, 256) } else { (256, 256) };
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
                let turns = (m.div_ceil(tile.0) * n.div_ceil(tile.1) * shares) as f64 / UNITS as f64;
                let seconds = Plan::modelled_clocks(UNITS, shape, LARGEST_WORKSPACE) as f64 / 2.4e9;
                let petaflops = 2.0 * (m * n * k) as f64 / seconds / 1e15;
                let (time, share) = (seconds * 1e6, 100.0 * petaflops / 10.07);
                let line = format!(
                    "| {name}, {pass} | {m} | {n} | {k} | {} by {} | {shares} | {turns} | {time:.0} | {petaflops:.1} | {share:.0} % |",
                    tile.0, tile.1
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
        assert_eq!(plan(256, 96, 64), whole((64, 64), 64));
        assert_eq!(plan(16, 16, 32), whole((64, 64), 32));
        assert_eq!(plan(2048, 2048, 2048).tile, (128, 128));
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
                        assert!(TILES.iter().any(|tile| tile.size == found.tile && (tile.cuts || found.shares == 1)));
                        assert_eq!(found, Plan::choose(units, (m, n, k), workspace));
                    }
                }
            }
        }
    }
}
