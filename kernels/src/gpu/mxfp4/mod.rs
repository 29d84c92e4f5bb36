//! MXFP4 as it is: operands packed to codes and scales, multiplied by units that take them. Kernels of kernels/gfx950.
//!
//! A packed operand `[rows, k]` is one buffer: codes `[rows, k / 2]`, the low nibble being the even element, then E8M0 scales `[rows, k / 32]`. Codes
//! and scales are bit for bit those of `crate::quantise`, and so are the values that the emulated path (`super::quantise`, BF16 through the
//! vendor's library) writes for the same specification. Products sum in another order than the library's, always the same one.
//!
//! Rows of operands are multiples of 16 and contraction axes of 32 (the source's rows and columns, for the one that goes along columns);
//! [`fits`] says which product is refused, and a caller then takes the emulated path. Compiles for gfx950; functionally verified on a CPU model
//! of the ISA; not run on an MI355X; no performance claim.

mod plan;
mod products;
mod quantiser;

pub use plan::Plan;
pub use products::PackedProducts;
pub use quantiser::PackedQuantiser;

use contract::native::fits;
pub use contract::native::packed_bytes;
pub use contract::recipe::is_packed;

use super::driver::{PackedMatrix, ScaleLayout};
use super::{Buffer, Gpu, GpuError, expect};

/// Elements that share a scale.
const BLOCK: usize = 32;
const THREADS: u32 = 256;

fn supported(gpu: &Gpu) -> Result<(), GpuError> {
    let description = gpu.description();
    if description.has_mxfp4 {
        return Ok(());
    }
    Err(GpuError::Unsupported(format!("{} ({}) does not multiply packed MXFP4", description.name, description.architecture)))
}

fn refuse<T>(kernel: &'static str, problem: String) -> Result<T, GpuError> {
    Err(GpuError::Shape { kernel, problem })
}

impl PackedMatrix {
    /// What [`PackedQuantiser::run`] left in a buffer, with scales by rows.
    pub fn new(bytes: &Buffer<u8>, rows: usize, k: usize) -> Result<Self, GpuError> {
        expect("mxfp4_gemm", "a packed operand", packed_bytes(rows * k), bytes.length())?;
        Ok(Self { codes: bytes.address(0), scales: bytes.address(rows * k / 2), layout: ScaleLayout::Rows, rows, k })
    }

    /// The same with its scales swizzled.
    pub fn swizzled(bytes: &Buffer<u8>, rows: usize, k: usize) -> Result<Self, GpuError> {
        if !ScaleLayout::Swizzled.is_whole(rows, k) {
            return Err(GpuError::Unsupported(format!(
                "swizzled scales of [{rows}, {k}] have padding, which is not made here: rows must be multiples of 32, the contraction axis of 256"
            )));
        }
        Ok(Self { layout: ScaleLayout::Swizzled, ..Self::new(bytes, rows, k)? })
    }
}
