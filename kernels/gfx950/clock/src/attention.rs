//! Attention with heads of 128 elements on the whole device: workgroups of attention_32x32.hip, of unequal length because of the mask, on 256 compute
//! units.
//!
//! Two workgroups of a short sequence are executed, one with more tiles of the other side than the other. What it takes more is the tiles'
//! clocks; the rest is what a workgroup takes once, the tiles that the mask cuts included. Every other workgroup has its number of tiles. They begin in
//! the order of their numbers (AMD, "Graphics Cores Next"), each as soon as one before it has ended. Keys and values come from caches: what the
//! Infinity Cache would move if no two workgroups of a die shared any is a bound besides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;

use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::{CodeObject, Kernel};
use gfx950_interpreter::trace::Trace;
use gfx950_interpreter::traced;
use gfx950_interpreter::{Launch, Order};

use crate::machine::{FABRIC_BYTES, LAUNCH, MATRIX_BF16, SIMDS, UNITS};
use crate::product::resident;
use crate::{ClockError, Estimate, Phase, simulate};

/// Elements of a head.
const HEAD_DIM: u64 = 128;
/// Rows of the other side by which clocks are counted.
const TILE: u64 = 64;
/// Workgroups of the sequence of which some are executed, and those: by their distance from the one with the fewest tiles, which is the last one.
const BLOCKS: u64 = 8;
const SHORT: u64 = 2;
const LONG: u64 = 5;

/// Causal attention of `batch` sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub sequence: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub batch: u64,
}

impl FromStr for Shape {
    type Err = ClockError;

    /// `SEQUENCExHEADSxKV_HEADSxBATCH`.
    fn from_str(text: &str) -> Result<Self, ClockError> {
        let sizes: Option<Vec<u64>> = text.split('x').map(|size| size.parse().ok().filter(|&size| size > 0)).collect();
        match sizes.as_deref() {
            Some(&[sequence, heads, kv_heads, batch]) if heads.is_multiple_of(kv_heads) => Ok(Self { sequence, heads, kv_heads, batch }),
            _ => Err(ClockError::Product(format!(
                "`{text}` is no shape of attention: write SEQUENCExHEADSxKV_HEADSxBATCH, heads being a multiple of kv_heads"
            ))),
        }
    }
}

/// What tells the three kernels apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    BackwardQueries,
    BackwardKeys,
}

impl Pass {
    /// In the order of `attention_launch`.
    const ALL: [(&'static str, Self); 3] = [
        ("attention_forward", Self::Forward),
        ("attention_backward_q", Self::BackwardQueries),
        ("attention_backward_kv", Self::BackwardKeys),
    ];

    /// Products of queries and keys that it makes.
    fn products(self) -> u64 {
        match self {
            Self::Forward => 2,
            Self::BackwardQueries => 3,
            Self::BackwardKeys => 4,
        }
    }
}

/// What the model says of one kernel; all of it modelled.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// From the first workgroup's begin to the last one's end.
    pub clocks: u64,
    /// Of the device's peak in BF16: what the kernel multiplies of what the mask leaves.
    pub share_of_peak: f64,
    pub bound: String,
    /// Clocks of one tile in one workgroup, and what it takes once.
    pub tile: f64,
    pub once: f64,
    /// Clocks of the LDS port that conflicts take in a tile, by consecutive lanes and by those that were measured.
    pub conflicts: [f64; 2],
    pub products: u64,
}

/// One of the kernels, and what was executed of it.
#[derive(Debug)]
pub struct Model<'a> {
    kernel: &'a Kernel,
    pass: Pass,
    /// Rows of a workgroup, and its threads.
    rows: u64,
    threads: u32,
    /// Workgroups that run on a compute unit together.
    together: u64,
    /// Of so many workgroups together: the shorter and the longer ones.
    estimates: Vec<Estimate>,
}

impl<'a> Model<'a> {
    /// # Errors
    /// A kernel of another name, an object that does not say how to launch it; what the interpreter refuses; as [`simulate`].
    pub fn new(object: &CodeObject, kernel: &'a Kernel) -> Result<Self, ClockError> {
        let Some(number) = Pass::ALL.iter().position(|(name, _)| *name == kernel.name) else {
            return Err(ClockError::Product(format!("{} is no attention: only attention_* has modelled clocks of one", kernel.name)));
        };
        let constant = object.constants.iter().find(|constant| constant.name == "attention_launch");
        let word =
            |at: usize| constant.and_then(|constant| constant.bytes.get(4 * at..4 * at + 4)?.try_into().ok()).map(u32::from_le_bytes);
        let (Some(rows), Some(threads)) = (word(3 * number).filter(|&rows| rows > 0), word(3 * number + 1)) else {
            return Err(ClockError::Product(format!("the object of {} has no attention_launch", kernel.name)));
        };
        let (pass, together) = (Pass::ALL[number].1, resident(kernel, threads));
        let mut model = Self { kernel, pass, rows: rows.into(), threads, together, estimates: Vec::new() };
        model.estimates = vec![model.executed(SHORT)?, model.executed(LONG)?];
        Ok(model)
    }

    /// So many workgroups together as there is room for, each the n-th from the one with the fewest tiles.
    fn executed(&self, distance: u64) -> Result<Estimate, ClockError> {
        let executed = self.trace(BLOCKS - 1 - distance)?;
        simulate(&self.kernel.instructions, &vec![&executed; self.together as usize])
    }

    /// Clocks of the workgroups with most tiles of those that could be executed: played, and as [`Model::attention`] takes them to be.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn longest(&self) -> Result<[f64; 2], ClockError> {
        let (tile, once) = self.tile_and_once();
        let tiles = self.tiles(BLOCKS - 1, BLOCKS * self.rows, 1);
        Ok([self.executed(BLOCKS - 1)?.clocks as f64, once + tile * tiles as f64])
    }

    /// Tiles of the workgroup that is the n-th from the one with the fewest.
    fn tiles(&self, distance: u64, sequence: u64, group: u64) -> u64 {
        let of_a_head = ((distance + 1) * self.rows).min(sequence).div_ceil(TILE);
        if self.pass == Pass::BackwardKeys { of_a_head * group } else { of_a_head }
    }

    /// Clocks of a tile and of the rest, of workgroups that run together.
    fn tile_and_once(&self) -> (f64, f64) {
        let [short, long] = [SHORT, LONG].map(|distance| self.tiles(distance, BLOCKS * self.rows, 1) as f64);
        let [fewer, more] = [0, 1].map(|which| self.estimates[which].clocks as f64);
        let tile = (more - fewer) / (long - short);
        (tile, fewer - short * tile)
    }

    /// The whole of one shape.
    pub fn attention(&self, shape: Shape) -> Attention {
        let Shape { sequence, heads, kv_heads, batch } = shape;
        let (tile, once) = self.tile_and_once();
        let (grid_heads, group) = if self.pass == Pass::BackwardKeys { (kv_heads, heads / kv_heads) } else { (heads, 1) };
        let mut busy: BinaryHeap<Reverse<u64>> = std::iter::repeat_n(Reverse(0), (UNITS * self.together) as usize).collect();
        let (mut last, mut tiles) = (0, 0);
        // The longest come first, those of all heads of all sequences.
        let alike = (grid_heads * batch) as usize;
        for distance in (0..sequence.div_ceil(self.rows)).rev().flat_map(|distance| std::iter::repeat_n(distance, alike)) {
            let own = self.tiles(distance, sequence, group);
            let Some(Reverse(free)) = busy.pop() else { continue };
            let end = free + LAUNCH + (once + tile * own as f64).ceil() as u64;
            (last, tiles) = (last.max(end), tiles + own);
            busy.push(Reverse(end));
        }
        let moved = tiles * 2 * TILE * 2 * HEAD_DIM / FABRIC_BYTES;
        let pairs = sequence * (sequence + 1) / 2 * heads * batch;
        let ideal = (2 * self.pass.products() * pairs * HEAD_DIM) as f64 / (UNITS * SIMDS as u64 * MATRIX_BF16) as f64;
        let run = self.estimates[1].phases.iter().find(|phase| phase.name == "loop");
        let (clocks, bound) =
            if moved > last { (moved, "Infinity Cache".to_owned()) } else { (last, run.map_or_else(String::new, Phase::bound)) };
        let executed = (self.tiles(LONG, BLOCKS * self.rows, 1) * self.together) as f64;
        let conflicts = run.map_or([0.0; 2], |phase| phase.usage.conflicts.map(|conflicts| conflicts as f64 / executed));
        Attention { clocks, share_of_peak: ideal / clocks as f64, bound, tile, once, conflicts, products: self.pass.products() }
    }

    /// One workgroup of one head.
    fn trace(&self, number: u64) -> Result<Trace, ClockError> {
        let sequence = BLOCKS * self.rows;
        let (qkv, out, statistics) = (3 * sequence * HEAD_DIM, sequence * HEAD_DIM, 4 * sequence as usize);
        let (mut memory, mut arguments) = (Memory::new(), Vec::new());
        let mut add = |address: Address| arguments.extend(address.0.to_le_bytes());
        add(memory.input("qkv", &values(qkv)));
        if self.pass == Pass::Forward {
            add(memory.output("out", 2 * out as usize));
            add(memory.output("logsumexp", statistics));
        } else {
            let writes_delta = self.pass == Pass::BackwardQueries;
            if writes_delta {
                add(memory.input("out", &values(out)));
            }
            add(memory.input("d_out", &values(out)));
            add(memory.input("logsumexp", &vec![0; statistics]));
            add(if writes_delta { memory.output("delta", statistics) } else { memory.input("delta", &vec![0; statistics]) });
            add(memory.output("d_qkv", 2 * qkv as usize));
        }
        arguments.extend([sequence as u32, 1, 1].into_iter().flat_map(u32::to_le_bytes));
        let (kernel, grid, threads) = (self.kernel, [BLOCKS as u32, 1, 1], self.threads);
        let launch = Launch { kernel, grid, threads, dynamic_lds: 0, arguments: &arguments, order: Order::Serial };
        Ok(traced(&mut memory, &launch, [number as u32, 0, 0])?)
    }
}

/// BF16 values between -1 and 1: how often the forward pass moves its reference depends on them, and nothing else here does.
fn values(count: u64) -> Vec<u8> {
    let mut random = 1u32;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (random >> 8) as f32 / (1 << 23) as f32 - 1.0;
        ((value.to_bits() >> 16) as u16).to_le_bytes()
    };
    (0..count).flat_map(|_| next()).collect()
}

/// The line that is printed for one kernel.
pub fn line(kernel: &str, shape: Shape, attention: &Attention) -> String {
    let Shape { sequence, heads, kv_heads, batch } = shape;
    let Attention { clocks, share_of_peak, bound, tile, once, conflicts: [consecutive, measured], products } = attention;
    let share = 100.0 * share_of_peak;
    format!(
        "{kernel} {sequence}x{heads}x{kv_heads}x{batch}: {clocks} clocks modelled, {share:.0} % of the BF16 peak for its {products} products; \
         {tile:.0} a tile of 64, {once:.0} once; loop: {bound}; bank conflicts a tile: {consecutive:.0} (consecutive lanes), {measured:.0} (measured lanes)"
    )
}
