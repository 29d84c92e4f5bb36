//! The gradient's norm over several ranks, on the device: kernels/device/shards.cu.

use super::driver::Grid;
use super::optimizer::PARTIALS;
use super::{Argument, Buffer, Gpu, GpuError, Kernel, expect};

/// Threads of a workgroup.
const THREADS: usize = 256;

/// The kernels and the sums that go from rank to rank.
#[derive(Debug)]
pub struct ShardNorm {
    add_squares: Kernel,
    group_sums: Kernel,
    norm_of: Kernel,
    sums: Buffer<f64>,
    partial: Buffer<f64>,
}

impl ShardNorm {
    /// Sums that one rank hands to the next.
    pub const SUMS: usize = PARTIALS * THREADS;

    /// Compiles or finds the kernels.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self {
            add_squares: gpu.kernel("shards.cu", &[], "add_squares")?,
            group_sums: gpu.kernel("shards.cu", &[], "group_sums")?,
            norm_of: gpu.kernel("optimizer.cu", &[], "norm_of")?,
            sums: gpu.buffer(Self::SUMS)?,
            partial: gpu.buffer(PARTIALS)?,
        })
    }

    /// Goes on from the sums of all elements before number `first` with a shard that begins there. `sums`: [`Self::SUMS`] of them.
    pub fn go_on(&mut self, shard: &Buffer<f32>, first: usize, sums: &mut [f64]) -> Result<(), GpuError> {
        self.write(sums)?;
        let arguments = [
            Argument::new(shard.address(0)),
            Argument::new(first as u64),
            Argument::new(shard.length() as u64),
            Argument::new(self.sums.address(0)),
        ];
        // SAFETY: add_squares(gradient, first, count, sums): a sum for each thread.
        unsafe { self.add_squares.launch(Grid::row(PARTIALS, THREADS as u32), arguments)? };
        self.sums.read(0, sums)
    }

    /// The norm of everything that went into `sums`, into element `slot` of `out`.
    pub fn norm(&mut self, sums: &[f64], out: &Buffer<f64>, slot: usize) -> Result<(), GpuError> {
        expect("norm of shards", "the results", slot + 1, out.length())?;
        self.write(sums)?;
        let arguments = [Argument::new(self.sums.address(0)), Argument::new(self.partial.address(0))];
        // SAFETY: group_sums(sums, partial): a sum for each thread, a partial sum for each workgroup.
        unsafe { self.group_sums.launch(Grid::row(PARTIALS, THREADS as u32), arguments)? };
        let arguments = [Argument::new(self.partial.address(0)), Argument::new(PARTIALS as i32), Argument::new(out.address(slot))];
        // SAFETY: norm_of(partial, count, out).
        unsafe { self.norm_of.launch(Grid::row(1, THREADS as u32), arguments) }
    }

    fn write(&mut self, sums: &[f64]) -> Result<(), GpuError> {
        if sums.len() != Self::SUMS {
            let problem = format!("{} sums of squares, {} are needed", sums.len(), Self::SUMS);
            return Err(GpuError::Shape { kernel: "norm of shards", problem });
        }
        self.sums.write(0, sums)
    }
}
