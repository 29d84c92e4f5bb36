//! Multiplier of operands of either kind: values for the vendor's library, or packed MXFP4 for our own kernels or that library, as is chosen.

use contract::run_file::Gemm;

use super::{Buffer, Gpu, GpuError, Matrix, PackedMatrix, PackedProducts, Plain};

/// One side of a product.
#[derive(Debug, Clone, Copy)]
pub enum Factor {
    /// Values, for the vendor's library.
    Library(Matrix),
    /// Codes and scales.
    Packed(PackedMatrix),
}

impl Factor {
    /// Rows of the operand.
    pub fn rows(&self) -> usize {
        match self {
            Self::Library(matrix) => matrix.rows,
            Self::Packed(matrix) => matrix.rows,
        }
    }
}

/// Multiplies factors of both kinds on one GPU.
#[derive(Debug)]
pub struct Multiplier {
    gpu: Gpu,
    packed: Packed,
}

/// What multiplies packed factors.
#[derive(Debug)]
enum Packed {
    /// There are none.
    Nothing,
    Own(PackedProducts),
    Library,
}

impl Multiplier {
    /// With packed products of these shapes (m, n, k) by those kernels; without any, operands are values.
    pub fn new(gpu: &Gpu, packed: &[(usize, usize, usize)], gemm: Gemm) -> Result<Self, GpuError> {
        let packed = match gemm {
            _ if packed.is_empty() => Packed::Nothing,
            Gemm::Own => Packed::Own(PackedProducts::new(gpu, packed)?),
            Gemm::Hipblaslt => Packed::Library,
        };
        Ok(Self { gpu: gpu.clone(), packed })
    }

    /// Queues `out[offset..] = scale * left rightᵀ (+ added)`.
    pub fn multiply<T: Plain>(
        &self,
        left: Factor,
        right: Factor,
        scale: f32,
        added: Option<&Buffer<T>>,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), GpuError> {
        match (left, right, &self.packed) {
            (Factor::Library(left), Factor::Library(right), _) => self.gpu.multiply(left, right, scale, added, out, offset),
            (Factor::Packed(left), Factor::Packed(right), Packed::Own(ours)) => ours.multiply(left, right, scale, added, out, offset),
            (Factor::Packed(left), Factor::Packed(right), Packed::Library) => {
                self.gpu.multiply_packed(left, right, scale, added, out, offset)
            }
            _ => Err(GpuError::Unsupported("a product of a packed operand with another kind".into())),
        }
    }
}
