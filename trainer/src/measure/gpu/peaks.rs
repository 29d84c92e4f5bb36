//! What a GPU is held against in the same run: large square products, and the memory whose copy empties its caches.

use contract::recipe::{Format, OperandSpec, Rounding, ScaleRule};
use kernels::gpu::{Bf16, Buffer, Factor, Gpu, Made, Matrix, OperandSide, Quantiser, TensorScales, prepared};

use super::super::shapes::{mxfp4, plain};
use super::machine;
use super::operands::{random, scales};
use super::preparer::Preparer;
use crate::error::TrainerError;

/// Bytes of each of the two buffers whose copy empties the caches: together more than the last level of any GPU that is here or planned. The
/// interpreter has no caches.
const SCRUB: [usize; 2] = [256 << 20, 4096];

const E4M3: OperandSpec = plain(Format::E4m3, ScaleRule::Delayed);

/// Memory that is copied before each time is taken.
pub(super) struct Scrub {
    from: Buffer<u8>,
    to: Buffer<u8>,
}

impl Scrub {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, TrainerError> {
        let bytes = SCRUB[usize::from(gpu.description().interpreted)];
        Ok(Self { from: gpu.zeros(bytes).map_err(machine)?, to: gpu.buffer(bytes).map_err(machine)? })
    }

    pub(super) fn queue(&self) -> Result<(), TrainerError> {
        self.from.copy_to(&self.to, self.from.length()).map_err(machine)
    }
}

/// A large square matrix in BF16, and quantised to E4M3 and packed as MXFP4 where the device multiplies those.
pub(super) struct Peaks {
    pub(super) side: usize,
    pub(super) source: Buffer<Bf16>,
    pub(super) codes: Option<Buffer<u8>>,
    pub(super) packed: Option<(Preparer, Buffer<u8>)>,
    pub(super) scales: TensorScales,
    pub(super) out: Buffer<Bf16>,
}

impl Peaks {
    pub(super) fn new(gpu: &Gpu, side: usize) -> Result<Self, TrainerError> {
        let elements = side * side;
        let mut peaks = Self {
            side,
            source: random(gpu, 9, elements, 3)?,
            codes: None,
            packed: None,
            scales: scales(gpu, 1)?,
            out: gpu.buffer(elements).map_err(machine)?,
        };
        if gpu.description().has_fp8 {
            let codes: Buffer<u8> = gpu.buffer(elements).map_err(machine)?;
            let quantiser = Quantiser::new(gpu, Some(E4M3), None).map_err(machine)?;
            let operand = OperandSide { out: Some(&codes), scale: Some((&peaks.scales, 0)), ..OperandSide::default() };
            quantiser.run(Made::Stored(&peaks.source, 0), (side, side), operand, OperandSide::default()).map_err(machine)?;
            peaks.codes = Some(codes);
        }
        if gpu.description().has_mxfp4 {
            let spec = mxfp4(None, Rounding::NearestEven);
            let preparer = Preparer::new(gpu, Some(spec), None)?;
            let packed: Buffer<u8> = gpu.buffer(preparer.bytes(&spec, elements)).map_err(machine)?;
            let operand = OperandSide { out: Some(&packed), ..OperandSide::default() };
            preparer.run((&peaks.source, 0), (side, side), operand, OperandSide::default())?;
            peaks.packed = Some((preparer, packed));
        }
        Ok(peaks)
    }

    pub(super) fn fp8(&self) -> Result<Option<Matrix>, TrainerError> {
        let matrix = |codes| prepared(&E4M3, codes, self.side, self.side, Some((&self.scales, 0))).map_err(machine);
        self.codes.as_ref().map(matrix).transpose()
    }

    pub(super) fn mxfp4(&self) -> Result<Option<Factor>, TrainerError> {
        let spec = mxfp4(None, Rounding::NearestEven);
        self.packed.as_ref().map(|(preparer, packed)| preparer.factor(&spec, packed, (self.side, self.side), None)).transpose()
    }
}
