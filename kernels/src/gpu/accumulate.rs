//! Sums and means of gradients on the device: kernels/device/accumulate.cu, and bf16_sums.cu where a defect keeps them in BF16.

use super::driver::Grid;
use super::{Argument, Buffer, Gpu, GpuError, Kernel, expect};

/// The kernels, for any length.
#[derive(Debug)]
pub struct Accumulator {
    add: Kernel,
    divide: Kernel,
}

impl Accumulator {
    /// Compiles or finds the kernels.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let kernel = |name| gpu.kernel("accumulate.cu", &[], name);
        Ok(Self { add: kernel("add")?, divide: kernel("divide")? })
    }

    /// `sum` += `more`, element by element, rounded once.
    pub fn add(&self, sum: &mut Buffer<f32>, more: &Buffer<f32>) -> Result<(), GpuError> {
        let count = sum.length();
        expect("add", "what is added", count, more.length())?;
        let arguments = [Argument::new(sum.address(0)), Argument::new(more.address(0)), Argument::new(count as u64)];
        // SAFETY: two pointers to at least `count` elements and their number, as the kernel declares them.
        unsafe { self.add.launch(Grid::row(count.div_ceil(256), 256), arguments) }
    }

    /// `numbers` /= `by`, element by element, correctly rounded.
    pub fn divide(&self, numbers: &mut Buffer<f32>, by: f32) -> Result<(), GpuError> {
        let count = numbers.length();
        let arguments = [Argument::new(numbers.address(0)), Argument::new(by), Argument::new(count as u64)];
        // SAFETY: a pointer to `count` elements, a number and their number, as the kernel declares them.
        unsafe { self.divide.launch(Grid::row(count.div_ceil(256), 256), arguments) }
    }
}

/// The kernel of the defect `sums-in-bf16`.
#[derive(Debug)]
pub struct SumRounder(Kernel);

impl SumRounder {
    /// Compiles or finds the kernel.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        gpu.kernel("bf16_sums.cu", &[], "round_sums").map(Self)
    }

    /// Each element becomes the nearest BF16.
    pub fn round(&self, numbers: &mut Buffer<f32>) -> Result<(), GpuError> {
        let count = numbers.length();
        let arguments = [Argument::new(numbers.address(0)), Argument::new(count as u64)];
        // SAFETY: a pointer to `count` elements and their number, as the kernel declares them.
        unsafe { self.0.launch(Grid::row(count.div_ceil(256), 256), arguments) }
    }
}
