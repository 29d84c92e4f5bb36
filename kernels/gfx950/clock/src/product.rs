//! An MXFP4 product on the whole device: workgroups of gemm.hip in turns on 256 compute units, their operands through eight dies' caches.
//!
//! One workgroup is executed for two numbers of steps along k. What the longer one takes more is the steps' clocks; the rest is what a workgroup
//! takes once. Every step is alike, so that no product has to be executed in full.

use std::collections::BTreeMap;

use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::Kernel;
use gfx950_interpreter::trace::{Trace, trace};
use gfx950_interpreter::{Launch, Order};

use crate::machine::{DIES, FABRIC_BYTES, LDS, MATRIX_FP4, MEMORY_BYTES, REGISTER_GRANULE, REGISTERS, SIMDS, UNITS, WAVES};
use crate::{ClockError, Estimate, simulate};

/// Elements along k of a step of the kernels.
const STEP: u64 = 256;
const THREADS: u32 = 256;
/// Steps of the two workgroups that are executed.
const SHORT: u64 = 4;
const LONG: u64 = 8;

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
    /// Clocks of one step of 256 along k, and what workgroups take before and after.
    pub step: f64,
    pub once: f64,
    /// Clocks of the LDS port that conflicts take in a step, by consecutive lanes and by those that were measured.
    pub conflicts: [f64; 2],
}

/// One of the kernels `mxfp4_gemm_TxT`, and what was executed of it.
#[derive(Debug)]
pub struct Gemm<'a> {
    kernel: &'a Kernel,
    tile: u64,
    /// The two executed workgroups, by k.
    traces: BTreeMap<u64, [Trace; 2]>,
    /// Their estimates, by k and the number of workgroups that run together.
    estimates: BTreeMap<(u64, u64), [Estimate; 2]>,
}

impl<'a> Gemm<'a> {
    /// # Errors
    /// A kernel of another name.
    pub fn new(kernel: &'a Kernel) -> Result<Self, ClockError> {
        let tile = kernel.name.strip_prefix("mxfp4_gemm_").and_then(|sizes| sizes.split_once('x')).and_then(|(tile, _)| tile.parse().ok());
        let Some(tile) = tile else {
            let name = &kernel.name;
            return Err(ClockError::Product(format!("{name} is no product of tiles: only mxfp4_gemm_TxT has modelled clocks of products")));
        };
        Ok(Self { kernel, tile, traces: BTreeMap::new(), estimates: BTreeMap::new() })
    }

    /// Workgroups that fit on a compute unit together.
    pub fn resident(&self) -> u64 {
        resident(self.kernel, THREADS)
    }

    /// The longer of the two executed workgroups, so many of them together.
    ///
    /// # Errors
    /// What the interpreter refuses; as [`simulate`].
    pub fn estimate(&mut self, k: u64, together: u64) -> Result<Estimate, ClockError> {
        self.both(k, together).map(|[_, long]| long)
    }

    /// One workgroup executed for all of k, alone: what [`Gemm::product`] extrapolates.
    ///
    /// # Errors
    /// The same.
    pub fn whole(&self, k: u64) -> Result<Estimate, ClockError> {
        simulate(&self.kernel.instructions, &[&executed(self.kernel, self.tile, k, k.div_ceil(STEP))?])
    }

    fn both(&mut self, k: u64, together: u64) -> Result<[Estimate; 2], ClockError> {
        if let Some(found) = self.estimates.get(&(k, together)) {
            return Ok(found.clone());
        }
        if !self.traces.contains_key(&k) {
            let traces = [executed(self.kernel, self.tile, k, SHORT)?, executed(self.kernel, self.tile, k, LONG)?];
            self.traces.insert(k, traces);
        }
        let estimate = |trace: &Trace| simulate(&self.kernel.instructions, &vec![trace; together as usize]);
        let [short, long] = &self.traces[&k];
        let found = [estimate(short)?, estimate(long)?];
        self.estimates.insert((k, together), found.clone());
        Ok(found)
    }

    /// Clocks of a step and of the rest, so many workgroups together.
    fn step_and_once(&mut self, k: u64, together: u64) -> Result<(f64, f64), ClockError> {
        let [short, long] = self.both(k, together)?;
        let step = (long.clocks as f64 - short.clocks as f64) / (LONG - SHORT) as f64;
        Ok((step, short.clocks as f64 - SHORT as f64 * step))
    }

    /// The whole product, its result in BF16 and nothing added.
    ///
    /// # Errors
    /// As [`simulate`].
    pub fn product(&mut self, shape: Shape) -> Result<Product, ClockError> {
        let tiles = shape.m.div_ceil(self.tile) * shape.n.div_ceil(self.tile);
        let queue = tiles.div_ceil(UNITS);
        let together = self.resident().min(queue);
        let steps = shape.k.div_ceil(STEP) as f64;
        let (step, once) = self.step_and_once(shape.k, together)?;
        let mut clocks = (queue / together) as f64 * (once + steps * step);
        let rest = queue % together;
        if rest != 0 {
            let (step, once) = self.step_and_once(shape.k, rest)?;
            clocks += once + steps * step;
        }
        let estimate = self.estimate(shape.k, together)?;
        let run = estimate.phases.iter().find(|phase| phase.name == "loop").or(estimate.phases.first());
        let moved = self.memory_clocks(shape);
        let (clocks, bound) =
            if moved > clocks { (moved, "memory".to_owned()) } else { (clocks, run.map_or_else(String::new, crate::Phase::bound)) };
        let workgroups = (LONG * together) as f64;
        let conflicts = run.map_or([0.0; 2], |phase| phase.usage.conflicts.map(|conflicts| conflicts as f64 / workgroups));
        let share_of_peak = shape.ideal() / clocks;
        Ok(Product { clocks: clocks.ceil() as u64, share_of_peak, bound, step: step / together as f64, once, conflicts })
    }

    /// Clocks to move the operands: each die reads what its workgroups need, once in each turn of the device, and memory moves everything once.
    /// Workgroups go to dies in turns (AMD, "CDNA 3 Architecture": round-robin), along n first.
    fn memory_clocks(&self, shape: Shape) -> f64 {
        let (across, down) = (shape.n.div_ceil(self.tile), shape.m.div_ceil(self.tile));
        let panel = self.tile * (shape.k / 2 + shape.k / 32);
        let at_once = UNITS * self.resident();
        let mut panels = 0;
        for first in (0..across * down).step_by(at_once as usize) {
            for die in 0..DIES {
                let ids = (first + die..(first + at_once).min(across * down)).step_by(DIES as usize);
                let (mut rows, mut columns): (Vec<u64>, Vec<u64>) = ids.map(|id| (id / across, id % across)).unzip();
                rows.sort_unstable();
                rows.dedup();
                columns.sort_unstable();
                columns.dedup();
                panels += (rows.len() + columns.len()) as u64;
            }
        }
        let once = (shape.m + shape.n) * (shape.k / 2 + shape.k / 32) + 2 * shape.m * shape.n;
        ((panels * panel) as f64 / FABRIC_BYTES as f64).max(once as f64 / MEMORY_BYTES as f64)
    }
}

/// Workgroups of so many threads that fit on a compute unit together.
pub(crate) fn resident(kernel: &Kernel, threads: u32) -> u64 {
    let registers = kernel.resources.vgprs.max(1).next_multiple_of(REGISTER_GRANULE);
    let waves = (REGISTERS / registers).min(WAVES) * SIMDS as u64;
    let by_waves = waves / u64::from(threads.div_ceil(64));
    by_waves.min(LDS / u64::from(kernel.descriptor.lds.max(1))).max(1)
}

/// One workgroup of a product of one tile, executed for so many steps of its k (at least as many, where k is shorter). What is multiplied does
/// not matter to the clocks.
fn executed(kernel: &Kernel, tile: u64, k: u64, steps: u64) -> Result<Trace, ClockError> {
    let k = k.max(LONG * STEP);
    let mut memory = Memory::new();
    let mut arguments = Vec::new();
    for name in ["A", "B"] {
        for bytes in [tile * k / 2, tile * k / 32] {
            arguments.extend(memory.input(name, &vec![0x7F; bytes as usize]).0.to_le_bytes());
        }
    }
    // struct Product of gemm.hip: D, nothing added, m, n, k, BF16, the steps, a factor of 1.
    arguments.extend(memory.output("D", 2 * (tile * tile) as usize).0.to_le_bytes());
    arguments.extend(0u64.to_le_bytes());
    for word in [tile, tile, k, 0, steps] {
        arguments.extend((word as u32).to_le_bytes());
    }
    arguments.extend(1f32.to_le_bytes());
    let launch = Launch { kernel, grid: [1, 1, 1], threads: THREADS, dynamic_lds: 0, arguments: &arguments, order: Order::Serial };
    Ok(trace(&mut memory, &launch, [0, 0, 0])?)
}

/// The line that is printed for one product.
pub fn line(kernel: &str, shape: Shape, product: &Product) -> String {
    let Shape { m, n, k } = shape;
    let Product { clocks, share_of_peak, bound, step, once, conflicts: [consecutive, measured] } = product;
    let share = 100.0 * share_of_peak;
    format!(
        "{kernel} {m}x{n}x{k}: {clocks} clocks modelled, {share:.0} % of peak; {step:.0} a step, {once:.0} once; loop: {bound}; bank conflicts a \
         step: {consecutive:.0} (consecutive lanes), {measured:.0} (measured lanes)"
    )
}
