//! Products of packed operands by the kernels of gemm.hip.

use super::plan::{LARGEST_WORKSPACE, Plan, TILES};
use super::{THREADS, fits, refuse, supported};
use crate::gpu::driver::{Address, Element, Grid, PackedMatrix, ScaleLayout};
use crate::gpu::{Argument, Buffer, Gpu, GpuError, Kernel, Plain, expect};

const GEMM: &str = "gfx950/gemm.hip";

/// What `struct Product` of gemm.hip holds.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Arguments {
    left: [u64; 2],
    right: [u64; 2],
    d: u64,
    added: u64,
    m: u32,
    n: u32,
    k: u32,
    output: u32,
    share: u32,
    factor: f32,
}

// SAFETY: six u64 and six fields of 32 bits: no padding.
unsafe impl Plain for Arguments {}

/// The result's type as the kernels' argument says it; [`PARTIAL`]: F32 sums of a share of k.
const OUT_BF16: u32 = 0;
const OUT_F32: u32 = 1;
const PARTIAL: u32 = 2;

#[derive(Debug)]
pub struct PackedProducts {
    /// In the order of [`TILES`].
    kernels: [Kernel; TILES.len()],
    sum: Kernel,
    workspace: Buffer<f32>,
    units: usize,
}

impl PackedProducts {
    /// For products of these shapes (m, n, k): they decide how much memory partial sums get. Others are multiplied, too.
    ///
    /// # Errors
    /// A device without such units, not enough memory, or kernels that do not compile.
    pub fn new(gpu: &Gpu, shapes: &[(usize, usize, usize)]) -> Result<Self, GpuError> {
        supported(gpu)?;
        let units = gpu.description().units as usize;
        let partials = |&(m, n, k): &(usize, usize, usize)| {
            let plan = Plan::choose(units, (m, n, k), LARGEST_WORKSPACE);
            if plan.shares > 1 { plan.shares * m * n } else { 0 }
        };
        let kernel = |name| gpu.kernel(GEMM, &[], name);
        Ok(Self {
            kernels: [kernel(TILES[0].kernel)?, kernel(TILES[1].kernel)?, kernel(TILES[2].kernel)?, kernel(TILES[3].kernel)?],
            sum: kernel("mxfp4_gemm_sum")?,
            workspace: gpu.buffer(shapes.iter().map(partials).max().unwrap_or(0))?,
            units,
        })
    }

    /// How a product is cut, here.
    pub fn plan(&self, m: usize, n: usize, k: usize) -> Plan {
        Plan::choose(self.units, (m, n, k), self.workspace.length())
    }

    /// `out[offset..] = alpha * left rightᵀ (+ added)`, `[left.rows, right.rows]` BF16 or F32, rounded once after the addition.
    ///
    /// # Errors
    /// Shapes that [`fits`] refuses or lengths that do not fit, element types other than those two, the driver's.
    pub fn multiply<T: Plain>(
        &self,
        left: PackedMatrix,
        right: PackedMatrix,
        alpha: f32,
        added: Option<&Buffer<T>>,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), GpuError> {
        let added = match added {
            Some(added) => {
                expect("mxfp4_gemm", "what is added", left.rows * right.rows, added.length())?;
                added.address(0)
            }
            None => 0,
        };
        self.launch(left, right, alpha, added, out, offset)
    }

    /// As [`PackedProducts::multiply`], adding to what is in `out`.
    pub fn multiply_into<T: Plain>(
        &self,
        left: PackedMatrix,
        right: PackedMatrix,
        alpha: f32,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), GpuError> {
        self.launch(left, right, alpha, out.address(offset), out, offset)
    }

    fn launch<T: Plain>(
        &self,
        left: PackedMatrix,
        right: PackedMatrix,
        factor: f32,
        added: Address,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), GpuError> {
        let (m, n, k) = (left.rows, right.rows, left.k);
        fits(m, n, k).or_else(|problem| refuse("mxfp4_gemm", problem))?;
        if right.k != k {
            return refuse("mxfp4_gemm", format!("contraction axes of {k} and {} elements", right.k));
        }
        if [left, right].iter().any(|side| side.layout != ScaleLayout::Rows) {
            return refuse("mxfp4_gemm", "scales that are swizzled, which these kernels do not read".to_owned());
        }
        // Four results are stored at once.
        if !offset.is_multiple_of(4) {
            return refuse("mxfp4_gemm", format!("results from element {offset} on, which is no multiple of 4"));
        }
        expect("mxfp4_gemm", "the result", offset + m * n, out.length())?;
        let output = match T::ELEMENT {
            Some(Element::Bf16) => OUT_BF16,
            Some(Element::F32) => OUT_F32,
            _ => return refuse("mxfp4_gemm", "results are BF16 or F32".to_owned()),
        };
        let plan = self.plan(m, n, k);
        let d = out.address(offset);
        let whole = plan.shares == 1;
        let arguments = Arguments {
            left: [left.codes, left.scales],
            right: [right.codes, right.scales],
            d: if whole { d } else { self.workspace.address(0) },
            added: if whole { added } else { 0 },
            m: m as u32,
            n: n as u32,
            k: k as u32,
            output: if whole { output } else { PARTIAL },
            share: plan.share as u32,
            factor,
        };
        let kernel = &self.kernels[plan.index()];
        let grid = Grid { groups: plan.groups(self.units, m, n), threads: THREADS, shared: 0 };
        // SAFETY: mxfp4_gemm_MxN(product); lengths were checked above, the workspace holds `shares` results (`Plan::choose`).
        unsafe { kernel.launch(grid, [Argument::new(arguments)])? };
        if whole {
            return Ok(());
        }
        let arguments = [
            Argument::new(self.workspace.address(0)),
            Argument::new(d),
            Argument::new(added),
            Argument::new((m * n) as u64),
            Argument::new(plan.shares as u32),
            Argument::new(output),
            Argument::new(factor),
        ];
        // SAFETY: mxfp4_gemm_sum(partial, d, added, count, shares, output, factor), with the lengths above.
        unsafe { self.sum.launch(Grid::row((m * n).div_ceil(4 * THREADS as usize), THREADS), arguments) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::Arguments;

    /// Size and order of gemm.hip's struct (kernels/gfx950/README.md).
    #[test]
    fn arguments_have_the_kernels_layout() {
        assert_eq!(size_of::<Arguments>(), 72);
        assert_eq!([offset_of!(Arguments, d), offset_of!(Arguments, added), offset_of!(Arguments, m)], [32, 40, 48]);
        assert_eq!([offset_of!(Arguments, output), offset_of!(Arguments, factor)], [60, 68]);
    }
}
