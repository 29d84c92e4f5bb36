//! Packing operands by the kernels of quantise.hip.

use contract::recipe::{Block, OperandSpec, Rounding, ScaleRule};

use super::{BLOCK, THREADS, is_packed, packed_bytes, refuse, supported};
use crate::gpu::driver::{Grid, ScaleLayout};
use crate::gpu::quantise::{OperandSide, check_draw, check_signs, check_words};
use crate::gpu::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, Plain, expect};
use crate::random::Draw;

/// Rows and columns that a workgroup quantises.
const SOURCE_TILE: usize = 128;

/// Rows of the kernel for few tiles, tiles of a unit from which on it is not taken, and the longest rotation that it has along columns.
const LOW_TILE: usize = 64;
const FEW_TILES: usize = 8;
const LONGEST_ROTATION: usize = 64;

const QUANTISE: &str = "gfx950/quantise.hip";

/// Columns of a source at most: an element's offset in a workgroup's 128 rows takes 31 bits.
const MOST_COLUMNS: usize = 1 << 23;

/// What `struct Side` of quantise.hip holds.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Side {
    codes: u64,
    scales: u64,
    rotation: u32,
    signs: [u32; 4],
    rule: u32,
    rounding: u32,
    k0: u32,
    k1: u32,
    layout: u32,
    square: u32,
    unused: u32,
}

// SAFETY: two u64 and twelve u32: no padding.
unsafe impl Plain for Side {}

impl Side {
    fn new(spec: &OperandSpec, side: &OperandSide<'_>, elements: usize, layout: ScaleLayout) -> Self {
        let Some(out) = side.out else { return Self::default() };
        let mut signs = [0u32; 4];
        let given = side.signs.unwrap_or_default();
        for index in 0..if given.is_empty() { 0 } else { 128 } {
            signs[index / 32] |= u32::from(given[index % given.len()] < 0.0) << (index % 32);
        }
        let stream = side.rounding.unwrap_or_default();
        Self {
            codes: out.address(0),
            scales: out.address(elements / 2),
            rotation: spec.rotation.map_or(0, |rotation| rotation.size as u32),
            signs,
            rule: match spec.scale {
                ScaleRule::Even => 1,
                ScaleRule::Ceil => 2,
                _ => 0,
            },
            rounding: match spec.rounding {
                Rounding::NearestEven => 0,
                Rounding::Stochastic => 1,
                Rounding::StochasticPrescaled => 2,
            },
            k0: stream.k0,
            k1: stream.k1,
            layout: u32::from(layout == ScaleLayout::Swizzled),
            square: u32::from(spec.block == Block::Tile32),
            unused: 0,
        }
    }
}

/// The kernel for one pair of specifications: the row operand's and the column operand's of one source, prepared in one read.
#[derive(Debug, Clone)]
pub struct PackedQuantiser {
    rows: Option<OperandSpec>,
    columns: Option<OperandSpec>,
    layout: ScaleLayout,
    kernel: Kernel,
    /// For matrices with few tiles, where the specifications allow it. The bits are the same.
    low: Option<Kernel>,
    units: usize,
}

impl PackedQuantiser {
    /// For sources that are prepared along their rows, their columns, or both.
    ///
    /// # Errors
    /// A device without such units, specifications that have no packed form, or kernels that do not compile.
    pub fn new(gpu: &Gpu, rows: Option<OperandSpec>, columns: Option<OperandSpec>) -> Result<Self, GpuError> {
        supported(gpu)?;
        for spec in rows.iter().chain(&columns) {
            spec.validate(0).map_err(|error| GpuError::Unsupported(error.to_string()))?;
            if !is_packed(spec) {
                return Err(GpuError::Unsupported(format!(
                    "operands of format {:?} have no packed form; only e2m1 in blocks has",
                    spec.format
                )));
            }
        }
        let square = rows.iter().chain(&columns).any(|spec| spec.block == Block::Tile32);
        let kernel = gpu.kernel(QUANTISE, &[], if square { "mxfp4_quantise_square" } else { "mxfp4_quantise" })?;
        let fits = !square && columns.and_then(|spec| spec.rotation).is_none_or(|rotation| rotation.size <= LONGEST_ROTATION);
        let low = fits.then(|| gpu.kernel(QUANTISE, &[], "mxfp4_quantise_64x128")).transpose()?;
        Ok(Self { rows, columns, layout: ScaleLayout::Rows, kernel, low, units: gpu.description().units as usize })
    }

    /// Scales of both operands swizzled, for the vendor's library: our own products take them by rows.
    #[must_use]
    pub fn swizzled(self) -> Self {
        Self { layout: ScaleLayout::Swizzled, ..self }
    }

    /// Prepares `source[first..]: [rows, columns]`; `first` is a multiple of 8. Of a side, `amax` and `scale` are not used.
    ///
    /// # Errors
    /// Buffers that are too small, a shape that a specification or the packed form refuses, missing random inputs, the driver's.
    pub fn run(
        &self,
        (source, first): (&Buffer<Bf16>, usize),
        (rows, columns): (usize, usize),
        row_side: OperandSide<'_>,
        column_side: OperandSide<'_>,
    ) -> Result<(), GpuError> {
        let elements = rows * columns;
        expect("mxfp4_quantise", "the source", first + elements, source.length())?;
        if !first.is_multiple_of(8) || !columns.is_multiple_of(8) {
            return refuse("mxfp4_quantise", format!("a source of {columns} columns from element {first} on: both must be multiples of 8"));
        }
        if columns > MOST_COLUMNS {
            return refuse("mxfp4_quantise", format!("a source of {columns} columns: at most {MOST_COLUMNS}"));
        }
        let mut sides = [Side::default(); 2];
        let given = [(&self.rows, &row_side, columns), (&self.columns, &column_side, rows)];
        for (place, (spec, side, k)) in sides.iter_mut().zip(given) {
            let Some(spec) = spec else { continue };
            check(spec, side, k, elements)?;
            let others = elements.checked_div(k).unwrap_or(0);
            if !self.layout.is_whole(others, k) {
                return refuse("mxfp4_quantise", format!("swizzled scales of [{others}, {k}], which have padding"));
            }
            *place = Side::new(spec, side, elements, self.layout);
        }
        let arguments = [
            Argument::new(source.address(first)),
            Argument::new(rows as u32),
            Argument::new(columns as u32),
            Argument::new(sides[0]),
            Argument::new(sides[1]),
        ];
        let across = columns.div_ceil(SOURCE_TILE);
        let is_small = across * rows.div_ceil(SOURCE_TILE) < FEW_TILES * self.units;
        let (kernel, height) = match &self.low {
            Some(low) if is_small => (low, LOW_TILE),
            _ => (&self.kernel, SOURCE_TILE),
        };
        let groups = [across as u32, rows.div_ceil(height) as u32, 1];
        // SAFETY: mxfp4_quantise(source, rows, k, row side, column side), whatever its tile; lengths were checked above.
        unsafe { kernel.launch(Grid { groups, threads: THREADS, shared: 0 }, arguments) }
    }
}

fn check(spec: &OperandSpec, side: &OperandSide<'_>, k: usize, elements: usize) -> Result<(), GpuError> {
    const KERNEL: &str = "mxfp4_quantise";
    spec.validate(k).map_err(|error| GpuError::Shape { kernel: KERNEL, problem: error.to_string() })?;
    if !k.is_multiple_of(BLOCK) {
        return refuse(KERNEL, format!("a contraction axis of {k} elements is no multiple of {BLOCK}: take the emulated path"));
    }
    let Some(out) = side.out else { return Ok(()) };
    expect(KERNEL, "an operand's buffer", packed_bytes(elements), out.length())?;
    check_words(KERNEL, spec, side)?;
    check_draw(KERNEL, side, Draw::Own)?;
    check_signs(KERNEL, spec, side)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::Side;

    /// Size and order of quantise.hip's struct (kernels/gfx950/README.md).
    #[test]
    fn sides_have_the_kernels_layout() {
        assert_eq!(size_of::<Side>(), 64);
        assert_eq!([offset_of!(Side, rotation), offset_of!(Side, signs), offset_of!(Side, rule), offset_of!(Side, k0)], [16, 20, 36, 44]);
        assert_eq!([offset_of!(Side, layout), offset_of!(Side, square)], [52, 56]);
    }
}
