//! An MXFP4 product on the whole device: workgroups of gemm.hip on 256 compute units, their operands through eight dies' caches.
//!
//! As many workgroups as there is room for make one tile after the other. One workgroup is executed for two numbers of steps along k: what the
//! longer one takes more is the steps' clocks, the rest is what a workgroup takes once. And it is executed for two tiles: what they take more than
//! one, steps apart, is a seam. Every step and every seam is alike, so that no product has to be executed in full.

use std::collections::BTreeMap;

use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::Kernel;
use gfx950_interpreter::trace::Trace;
use gfx950_interpreter::traced;
use gfx950_interpreter::{self as interpreter, Launch};

use crate::machine::{FABRIC_BYTES, LDS, MATRIX_FP4, MEMORY_BYTES, REGISTER_GRANULE, REGISTERS, SIMDS, UNITS, WAVES};
use crate::order::Order;
use crate::{ClockError, Estimate, simulate};

/// Elements along k of a step of the kernels.
const STEP: u64 = 256;
const THREADS: u32 = 256;
/// Steps by which the two workgroups that are executed differ, and which the shorter one has at least. A tile goes on into the next one where its
/// steps are a multiple of so many.
const MORE: u64 = 8;

/// m, n, k: D[m, n] = A[m, k] B[n, k]ᵀ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub m: u64,
    pub n: u64,
    pub k: u64,
}

impl Shape {
    /// Clocks of the matrix pipes alone, at the device's peak.
    pub fn ideal(self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 / (UNITS * SIMDS as u64 * MATRIX_FP4) as f64
    }
}

impl std::str::FromStr for Shape {
    type Err = ClockError;

    /// `MxNxK`.
    fn from_str(text: &str) -> Result<Self, ClockError> {
        let sizes: Option<Vec<u64>> = text.split('x').map(|size| size.parse().ok().filter(|&size| size > 0)).collect();
        match sizes.as_deref() {
            Some(&[m, n, k]) => Ok(Self { m, n, k }),
            _ => Err(ClockError::Product(format!("`{text}` is no shape: write MxNxK, three positive numbers"))),
        }
    }
}

/// What the model says of one product; all of it modelled.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// From the first workgroup's begin to the last one's end.
    pub clocks: u64,
    /// Of the device's peak.
    pub share_of_peak: f64,
    /// What bounds it: the loop's bound, or memory.
    pub bound: String,
    /// Clocks of one step of 256 along k, what workgroups take before the first and after the last one, and between two tiles.
    pub step: f64,
    pub once: f64,
    pub seam: f64,
    /// Clocks of the LDS port that conflicts take in a step, by consecutive lanes and by those that were measured.
    pub conflicts: [f64; 2],
}

/// What so many workgroups together take.
#[derive(Debug, Clone)]
struct Clocks {
    step: f64,
    once: f64,
    seam: f64,
    /// Of the longer one of the two that were executed, and its steps.
    estimate: Estimate,
    steps: u64,
}

/// One of the kernels `mxfp4_gemm_MxN`, and what was executed of it.
#[derive(Debug)]
pub struct Gemm<'a> {
    kernel: &'a Kernel,
    /// Rows and columns of a tile.
    tile: [u64; 2],
    /// By k and the number of workgroups that run together.
    clocks: BTreeMap<(u64, u64), Clocks>,
}

impl<'a> Gemm<'a> {
    /// # Errors
    /// A kernel of another name.
    pub fn new(kernel: &'a Kernel) -> Result<Self, ClockError> {
        let sizes = kernel.name.strip_prefix("mxfp4_gemm_").and_then(|sizes| sizes.split_once('x'));
        let Some((Ok(rows), Ok(columns))) = sizes.map(|(rows, columns)| (rows.parse(), columns.parse())) else {
            let name = &kernel.name;
            return Err(ClockError::Product(format!("{name} is no product of tiles: only mxfp4_gemm_MxN has modelled clocks of products")));
        };
        Ok(Self { kernel, tile: [rows, columns], clocks: BTreeMap::new() })
    }

    /// Workgroups that fit on a compute unit together.
    pub fn resident(&self) -> u64 {
        resident(self.kernel, THREADS)
    }

    /// The tiles of a result, and the workgroups that the host starts for them.
    pub fn order(&self, shape: Shape) -> Order {
        let (down, across) = (shape.m.div_ceil(self.tile[0]), shape.n.div_ceil(self.tile[1]));
        Order { down, across, workgroups: (down * across).min(UNITS * self.resident()) }
    }

    /// One workgroup executed for so many tiles and all of k, alone: what [`Gemm::product`] extrapolates.
    ///
    /// # Errors
    /// What the interpreter refuses; as [`simulate`].
    pub fn whole(&self, tiles: u64, k: u64) -> Result<Estimate, ClockError> {
        simulate(&self.kernel.instructions, &[&self.executed(tiles, k, k.div_ceil(STEP))?])
    }

    /// So many workgroups together, for products of this k.
    fn clocks(&mut self, k: u64, together: u64) -> Result<Clocks, ClockError> {
        if let Some(found) = self.clocks.get(&(k, together)) {
            return Ok(found.clone());
        }
        let short = MORE + k.div_ceil(STEP) % MORE;
        let play = |tiles, steps| simulate(&self.kernel.instructions, &vec![&self.executed(tiles, k, steps)?; together as usize]);
        let (one, estimate, two) = (play(1, short)?, play(1, short + MORE)?, play(2, short)?);
        let step = (estimate.clocks as f64 - one.clocks as f64) / MORE as f64;
        let (once, seam) = (one.clocks as f64 - short as f64 * step, two.clocks as f64 - one.clocks as f64 - short as f64 * step);
        let found = Clocks { step, once, seam, estimate, steps: short + MORE };
        self.clocks.insert((k, together), found.clone());
        Ok(found)
    }

    /// The whole product, its result in BF16 and nothing added.
    ///
    /// # Errors
    /// What the interpreter refuses; as [`simulate`].
    pub fn product(&mut self, shape: Shape) -> Result<Product, ClockError> {
        let (order, steps) = (self.order(shape), shape.k.div_ceil(STEP) as f64);
        // Workgroups of the busiest unit, while all have a tile and in the last turn.
        let together = order.workgroups.div_ceil(UNITS);
        let rest = order.at_work(order.turns() - 1).div_ceil(UNITS);
        let found = self.clocks(shape.k, together)?;
        let Clocks { step, once, seam, estimate, steps: executed } = &found;
        let mut clocks = once + steps * step + (order.turns() - 1) as f64 * (seam + steps * step);
        if rest != together {
            let last = self.clocks(shape.k, rest)?;
            clocks += last.seam + steps * last.step - seam - steps * step;
        }
        let run = estimate.phases.iter().find(|phase| phase.name == "loop").or(estimate.phases.first());
        let moved = self.memory_clocks(shape);
        let (clocks, bound) =
            if moved > clocks { (moved, "memory".to_owned()) } else { (clocks, run.map_or_else(String::new, crate::Phase::bound)) };
        let workgroups = (executed * together) as f64;
        let conflicts = run.map_or([0.0; 2], |phase| phase.usage.conflicts.map(|conflicts| conflicts as f64 / workgroups));
        let (share_of_peak, step) = (shape.ideal() / clocks, step / together as f64);
        Ok(Product { clocks: clocks.ceil() as u64, share_of_peak, bound, step, once: *once, seam: *seam, conflicts })
    }

    /// Clocks to move the operands: each die reads what its workgroups need, once in each turn of the device, and memory moves everything once.
    fn memory_clocks(&self, shape: Shape) -> f64 {
        let [rows, columns] = self.order(shape).panels(Order::tile);
        let moved = (rows * self.tile[0] + columns * self.tile[1]) * row(shape.k);
        let once = (shape.m + shape.n) * row(shape.k) + 2 * shape.m * shape.n;
        (moved as f64 / FABRIC_BYTES as f64).max(once as f64 / MEMORY_BYTES as f64)
    }

    /// One workgroup of a product of so many tiles, one below the other, executed for so many steps of its k (at least as many, where k is
    /// shorter). What is multiplied does not matter to the clocks.
    fn executed(&self, tiles: u64, k: u64, steps: u64) -> Result<Trace, ClockError> {
        let (m, n, k) = (tiles * self.tile[0], self.tile[1], k.max(4 * MORE * STEP));
        let mut memory = Memory::new();
        let mut arguments = Vec::new();
        for (name, rows) in [("A", m), ("B", n)] {
            for bytes in [rows * k / 2, rows * k / 32] {
                arguments.extend(memory.input(name, &vec![0x7F; bytes as usize]).0.to_le_bytes());
            }
        }
        // struct Product of gemm.hip: D, nothing added, m, n, k, BF16, the steps, a factor of 1.
        arguments.extend(memory.output("D", 2 * (m * n) as usize).0.to_le_bytes());
        arguments.extend(0u64.to_le_bytes());
        for word in [m, n, k, 0, steps] {
            arguments.extend((word as u32).to_le_bytes());
        }
        arguments.extend(1f32.to_le_bytes());
        let (kernel, grid, threads) = (self.kernel, [1, 1, 1], THREADS);
        let launch = Launch { kernel, grid, threads, dynamic_lds: 0, arguments: &arguments, order: interpreter::Order::Serial };
        Ok(traced(&mut memory, &launch, [0, 0, 0])?)
    }
}

/// Bytes of a row of a packed operand, scales included.
fn row(k: u64) -> u64 {
    k / 2 + k / 32
}

/// Workgroups of so many threads that fit on a compute unit together.
pub(crate) fn resident(kernel: &Kernel, threads: u32) -> u64 {
    let registers = kernel.resources.vgprs.max(1).next_multiple_of(REGISTER_GRANULE);
    let waves = (REGISTERS / registers).min(WAVES) * SIMDS as u64;
    let by_waves = waves / u64::from(threads.div_ceil(64));
    by_waves.min(LDS / u64::from(kernel.descriptor.lds.max(1))).max(1)
}

/// The line that is printed for one product.
pub fn line(kernel: &str, shape: Shape, product: &Product) -> String {
    let Shape { m, n, k } = shape;
    let Product { clocks, share_of_peak, bound, step, once, seam, conflicts: [consecutive, measured] } = product;
    let share = 100.0 * share_of_peak;
    format!(
        "{kernel} {m}x{n}x{k}: {clocks} clocks modelled, {share:.0} % of peak; {step:.0} a step, {once:.0} once, {seam:.0} between tiles; loop: {bound}; bank conflicts a \
         step: {consecutive:.0} (consecutive lanes), {measured:.0} (measured lanes)"
    )
}
