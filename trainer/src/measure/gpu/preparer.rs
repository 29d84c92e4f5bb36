//! Operands of products that are timed on a GPU: prepared as a training step does it there, packed or as values.

use contract::memory::element_bytes;
use contract::recipe::OperandSpec;
use kernels::gpu::{
    Bf16, Buffer, Factor, Gpu, Made, OperandSide, PackedMatrix, PackedQuantiser, Quantiser, TensorScales, is_packed, is_source,
    packed_bytes, prepared,
};

use super::machine;
use crate::error::TrainerError;

/// How the operands of one specification are prepared.
#[derive(Debug)]
pub(super) enum Preparer {
    /// Not at all.
    Source,
    /// Values that the vendor's library multiplies.
    Library(Quantiser),
    /// Codes and scales of MXFP4.
    Packed(PackedQuantiser),
}

impl Preparer {
    /// Along the rows, the columns, or both in one read; both of the same kind.
    pub(super) fn new(gpu: &Gpu, rows: Option<OperandSpec>, columns: Option<OperandSpec>) -> Result<Self, TrainerError> {
        let all = |is: fn(&OperandSpec) -> bool| rows.iter().chain(&columns).all(is);
        if all(is_source) {
            Ok(Self::Source)
        } else if gpu.description().has_mxfp4 && all(is_packed) {
            PackedQuantiser::new(gpu, rows, columns).map(Self::Packed).map_err(machine)
        } else {
            Quantiser::new(gpu, rows, columns).map(Self::Library).map_err(machine)
        }
    }

    pub(super) fn is_source(&self) -> bool {
        matches!(self, Self::Source)
    }

    /// Bytes of a prepared operand of so many elements.
    pub(super) fn bytes(&self, spec: &OperandSpec, elements: usize) -> usize {
        match self {
            Self::Source => 0,
            Self::Library(_) => elements * element_bytes(spec),
            Self::Packed(_) => packed_bytes(elements),
        }
    }

    /// Queues the preparation of `source: size`.
    pub(super) fn run(
        &self,
        source: (&Buffer<Bf16>, usize),
        size: (usize, usize),
        rows: OperandSide<'_>,
        columns: OperandSide<'_>,
    ) -> Result<(), TrainerError> {
        match self {
            Self::Source => Ok(()),
            Self::Library(quantiser) => quantiser.run(Made::Stored(source.0, source.1), size, rows, columns).map_err(machine),
            Self::Packed(quantiser) => quantiser.run(source, size, rows, columns).map_err(machine),
        }
    }

    /// What was prepared to `out: [rows, k]`, as a side of a product.
    pub(super) fn factor(
        &self,
        spec: &OperandSpec,
        out: &Buffer<u8>,
        (rows, k): (usize, usize),
        scale: Option<(&TensorScales, usize)>,
    ) -> Result<Factor, TrainerError> {
        let factor = match self {
            Self::Packed(_) => PackedMatrix::new(out, rows, k).map(Factor::Packed),
            _ => prepared(spec, out, rows, k, scale).map(Factor::Library),
        };
        factor.map_err(machine)
    }
}
