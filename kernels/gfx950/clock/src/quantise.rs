//! Quantising a matrix along rows and columns from one read, on the whole device: workgroups of quantise.hip in turns on 256 compute units.
//!
//! One workgroup is executed, and played as often as a unit has workgroups. A matrix is read once and its operands are written once, at a unit's
//! share of memory. Parts of a line that several workgroups write are taken to meet in the Infinity Cache, which lies before memory (AMD,
//! "CDNA 3 Architecture"); between it and the dies they are counted as whole sectors.

use std::str::FromStr;

use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::Kernel;
use gfx950_interpreter::trace::Trace;
use gfx950_interpreter::traced;
use gfx950_interpreter::{Launch, Order};

use crate::machine::{HERTZ, MEMORY_BYTES, UNITS, VECTOR};
use crate::product::resident;
use crate::{ClockError, simulate_stream};

/// Lanes of a wave.
const LANES: u64 = 64;
/// The kernels, rows and columns of what a workgroup quantises, and its threads.
const KERNELS: [(&str, u64); 2] = [("mxfp4_quantise", 128), ("mxfp4_quantise_64x128", 64)];
const COLUMNS: u64 = 128;
const THREADS: u32 = 256;
/// Sides of the matrix of which a workgroup is executed: from here on no two rows' scales share a line in either operand.
const EXECUTED: u64 = 4096;
/// The rotation of the paper's recipe.
const ROTATION: u32 = 16;
/// Bytes an element: read, and written with scales in both directions.
const READ: f64 = 2.0;
const WRITTEN: f64 = 2.0 * (0.5 + 1.0 / 32.0);

/// A matrix [rows, k].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    pub rows: u64,
    pub k: u64,
}

impl FromStr for Matrix {
    type Err = ClockError;

    /// `ROWSxK`.
    fn from_str(text: &str) -> Result<Self, ClockError> {
        let size = |text: &str| text.parse().ok().filter(|&size| size > 0);
        match text.split_once('x').map(|(rows, k)| (size(rows), size(k))) {
            Some((Some(rows), Some(k))) => Ok(Self { rows, k }),
            _ => Err(ClockError::Product(format!("`{text}` is no matrix: write ROWSxK, two positive numbers"))),
        }
    }
}

/// What the model says of one matrix; all of it modelled.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    /// From the first workgroup's begin to the last byte.
    pub clocks: u64,
    /// Of what memory moves in that time.
    pub share_of_memory: f64,
    pub bound: String,
    /// Vector instructions of a lane for each element, both directions together.
    pub vector: f64,
}

/// One of the kernels that quantise blocks of 1 by 32, and what was executed of it.
#[derive(Debug)]
pub struct Quantise<'a> {
    kernel: &'a Kernel,
    /// Of a workgroup.
    rows: u64,
    trace: Trace,
}

impl<'a> Quantise<'a> {
    /// Rows and columns, Hadamard 16, nearest-even.
    ///
    /// # Errors
    /// A kernel of another name; what the interpreter refuses.
    pub fn new(kernel: &'a Kernel) -> Result<Self, ClockError> {
        let Some(&(_, rows)) = KERNELS.iter().find(|(name, _)| *name == kernel.name) else {
            let [(first, _), (second, _)] = KERNELS;
            let problem = format!("{} has no modelled clocks of matrices: only {first} and {second} have", kernel.name);
            return Err(ClockError::Product(problem));
        };
        Ok(Self { kernel, rows, trace: executed(kernel, rows)? })
    }

    /// # Errors
    /// As [`simulate_stream`].
    pub fn matrix(&self, matrix: Matrix) -> Result<Quantised, ClockError> {
        let together = resident(self.kernel, THREADS);
        let workgroups = (matrix.rows.div_ceil(self.rows) * matrix.k.div_ceil(COLUMNS)).div_ceil(UNITS);
        let estimate = simulate_stream(&self.kernel.instructions, &self.trace, workgroups, together)?;
        let whole = &estimate.phases[0];
        let elements = matrix.rows as f64 * matrix.k as f64;
        let bytes = elements * (READ + WRITTEN);
        let vector = whole.usage.vector as f64 / VECTOR as f64 * LANES as f64;
        Ok(Quantised {
            clocks: estimate.clocks,
            share_of_memory: bytes / MEMORY_BYTES as f64 / estimate.clocks as f64,
            bound: whole.bound(),
            vector: vector / (workgroups * self.rows * COLUMNS) as f64,
        })
    }
}

/// One workgroup, whole and in the middle.
fn executed(kernel: &Kernel, rows: u64) -> Result<Trace, ClockError> {
    let mut memory = Memory::new();
    let elements = (EXECUTED * EXECUTED) as usize;
    let mut arguments = memory.input("source", &vec![0; 2 * elements]).0.to_le_bytes().to_vec();
    let words = |arguments: &mut Vec<u8>, words: &[u32]| arguments.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    words(&mut arguments, &[EXECUTED as u32; 2]);
    for side in ["rows", "columns"] {
        for bytes in [elements / 2, elements / 32] {
            arguments.extend(memory.output(side, bytes).0.to_le_bytes());
        }
        // struct Side of quantise.hip: rotation, no signs, rule, rounding, stream, layout, square, unused.
        words(&mut arguments, &[ROTATION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    let (across, down) = ((EXECUTED / COLUMNS) as u32, (EXECUTED / rows) as u32);
    let launch = Launch { kernel, grid: [across, down, 1], threads: THREADS, dynamic_lds: 0, arguments: &arguments, order: Order::Serial };
    Ok(traced(&mut memory, &launch, [across / 2, down / 2, 0])?)
}

/// The line that is printed for one matrix.
pub fn line(kernel: &str, matrix: Matrix, quantised: &Quantised) -> String {
    let Matrix { rows, k } = matrix;
    let Quantised { clocks, share_of_memory, bound, vector } = quantised;
    let (share, rate) = (100.0 * share_of_memory, share_of_memory * MEMORY_BYTES as f64 * HERTZ / 1e12);
    format!(
        "{kernel} {rows}x{k}: {clocks} clocks modelled for rows and columns with H16, {share:.0} % of memory ({rate:.1} TB/s); {vector:.1} \
         vector operations an element; {bound}"
    )
}
