//! RMSNorm on the device: kernels/device/norm.cu.

use super::driver::Grid;
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, expect};

/// Workgroups of a backward pass; each leaves one row of partial sums.
const PARTIALS: usize = 264;

/// Kernels for rows of one width.
#[derive(Debug)]
pub struct Norm {
    width: usize,
    forward: Kernel,
    backward: Kernel,
    sum: Kernel,
    partial: Buffer<f32>,
}

impl Norm {
    /// For rows of `width`.
    pub fn new(gpu: &Gpu, width: usize) -> Result<Self, GpuError> {
        let defines = [format!("-DWIDTH={width}")];
        Ok(Self {
            width,
            forward: gpu.kernel("norm.cu", &defines, "rms_norm")?,
            backward: gpu.kernel("norm.cu", &defines, "rms_norm_backward")?,
            sum: gpu.kernel("norm.cu", &defines, "sum_partial")?,
            partial: gpu.buffer(PARTIALS * width)?,
        })
    }

    fn rows_at_once(&self) -> usize {
        if self.width <= 1024 { 8 } else { 1 }
    }

    /// `x, y: [rows, width]`, gain at `gain.1` of the parameters, `inverse_rms: [rows]`. With an empty `y`, `inverse_rms` alone.
    pub fn forward(
        &self,
        x: &Buffer<Bf16>,
        gain: (&Buffer<f32>, usize),
        epsilon: f32,
        y: &mut Buffer<Bf16>,
        inverse_rms: &mut Buffer<f32>,
        rows: usize,
    ) -> Result<(), GpuError> {
        let (is_wanted, matrices) = (y.length() > 0, [x, &*y]);
        self.check(rows, &matrices[..1 + usize::from(is_wanted)], gain, inverse_rms)?;
        let arguments = [
            Argument::new(x.address(0)),
            Argument::new(gain.0.address(gain.1)),
            Argument::new(epsilon),
            Argument::new(if is_wanted { y.address(0) } else { 0 }),
            Argument::new(inverse_rms.address(0)),
            Argument::new(rows as i32),
        ];
        let groups = rows.div_ceil(self.rows_at_once()).min(132 * 16);
        // SAFETY: rms_norm(x, gain, epsilon, y, inverse_rms, rows); lengths were checked.
        unsafe { self.forward.launch(Grid::row(groups, 256), arguments) }
    }

    /// Gradients of [`Norm::forward`]. With `accumulate`, `d_x` is added to, otherwise overwritten; the gain's gradient, at `d_gain.1`
    /// of the gradients, is overwritten.
    #[allow(clippy::too_many_arguments)] // what the formula reads and writes
    pub fn backward(
        &self,
        x: &Buffer<Bf16>,
        gain: (&Buffer<f32>, usize),
        inverse_rms: &Buffer<f32>,
        d_y: &Buffer<Bf16>,
        d_x: &mut Buffer<Bf16>,
        accumulate: bool,
        d_gain: (&mut Buffer<f32>, usize),
        rows: usize,
    ) -> Result<(), GpuError> {
        self.check(rows, &[x, d_y, d_x], gain, inverse_rms)?;
        expect("rms_norm_backward", "the gradients", d_gain.1 + self.width, d_gain.0.length())?;
        let groups = rows.div_ceil(self.rows_at_once()).clamp(1, PARTIALS);
        let arguments = [
            Argument::new(x.address(0)),
            Argument::new(gain.0.address(gain.1)),
            Argument::new(inverse_rms.address(0)),
            Argument::new(d_y.address(0)),
            Argument::new(if accumulate { d_x.address(0) } else { 0 }),
            Argument::new(d_x.address(0)),
            Argument::new(self.partial.address(0)),
            Argument::new(rows as i32),
        ];
        // SAFETY: rms_norm_backward(x, gain, inverse_rms, d_y, stream, d_x, partial, rows); lengths were checked.
        unsafe { self.backward.launch(Grid::row(groups, 256), arguments)? };
        let arguments = [Argument::new(self.partial.address(0)), Argument::new(groups as i32), Argument::new(d_gain.0.address(d_gain.1))];
        // SAFETY: sum_partial(partial, count, out): `count` rows were just written, `out` was checked.
        unsafe { self.sum.launch(Grid::row(self.width.div_ceil(32), 256), arguments) }
    }

    fn check(
        &self,
        rows: usize,
        matrices: &[&Buffer<Bf16>],
        gain: (&Buffer<f32>, usize),
        inverse_rms: &Buffer<f32>,
    ) -> Result<(), GpuError> {
        for matrix in matrices {
            expect("rms_norm", "a matrix", rows * self.width, matrix.length())?;
        }
        expect("rms_norm", "the parameters", gain.1 + self.width, gain.0.length())?;
        expect("rms_norm", "inverse_rms", rows, inverse_rms.length())
    }
}
