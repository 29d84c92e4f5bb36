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

use contract::recipe::{Block, Format, OperandSpec};

use super::driver::{PackedMatrix, ScaleLayout};
use super::{Buffer, Gpu, GpuError, expect};

/// Elements that share a scale.
const BLOCK: usize = 32;
/// Rows of both operands come in these.
const ROWS: usize = 16;
const THREADS: u32 = 256;

/// Whether an operand of this specification has a packed form: E2M1 in blocks.
pub fn is_packed(spec: &OperandSpec) -> bool {
    spec.format == Format::E2m1 && spec.block != Block::Tensor
}

/// Bytes of a packed operand of so many elements.
pub fn packed_bytes(elements: usize) -> usize {
    elements / 2 + elements.div_ceil(BLOCK)
}

/// Why `[m, k]` by `[n, k]` is not multiplied natively, if it is not.
pub fn fits(m: usize, n: usize, k: usize) -> Result<(), String> {
    let shape = format!("{m} x {n} over {k}");
    if m == 0 || n == 0 || k == 0 || !m.is_multiple_of(ROWS) || !n.is_multiple_of(ROWS) || !k.is_multiple_of(BLOCK) {
        return Err(format!(
            "a product of {shape} is not multiplied natively: sides must be multiples of {ROWS}, the contraction axis of {BLOCK}"
        ));
    }
    // Buffer offsets have 31 bits here, and a grid has 65,535 rows.
    if m.max(n) * k / 2 >= 1 << 31 || m.div_ceil(64) > 65_535 {
        return Err(format!("a product of {shape} is not multiplied natively: an operand's codes must take less than 2 GiB"));
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn what_is_refused_is_said() {
        assert_eq!(fits(16, 32, 64), Ok(()));
        let said = fits(24, 32, 64).unwrap_err();
        assert_eq!(
            said,
            "a product of 24 x 32 over 64 is not multiplied natively: sides must be multiples of 16, the contraction axis of 32"
        );
        assert!(fits(16, 16, 48).is_err() && fits(16, 8, 32).is_err() && fits(0, 16, 32).is_err());
        assert!(fits(1 << 20, 16, 1 << 12).unwrap_err().contains("less than 2 GiB"));
    }
}
