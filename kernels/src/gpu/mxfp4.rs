//! MXFP4 as it is: operands packed to codes and scales, multiplied by units that take them. Kernels of kernels/gfx950.
//!
//! A packed operand `[rows, k]` is one buffer: codes `[rows, k / 2]`, the low nibble being the even element, then E8M0 scales `[rows, k / 32]`. Codes
//! and scales are bit for bit those of `crate::quantise`, and so are the values that the emulated path (`super::quantise`, BF16 through the
//! vendor's library) writes for the same specification. Products sum in another order than the library's, always the same one.
//!
//! Rows of operands are multiples of 16 and contraction axes of 32 (the source's rows and columns, for the one that goes along columns);
//! [`fits`] says which product is refused, and a caller then takes the emulated path. Compiles for gfx950; functionally verified on a CPU model
//! of the ISA; not run on an MI355X; no performance claim.

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule};

use super::driver::{Address, Element, Grid, PackedMatrix, ScaleLayout};
use super::quantise::{OperandSide, check_signs, check_words};
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, Plain, expect};

/// Elements that share a scale.
const BLOCK: usize = 32;
/// Rows of both operands come in these.
const ROWS: usize = 16;
/// Elements along k that the product's kernels take at a time.
const STEP: usize = 256;
const THREADS: u32 = 256;
/// Side of the square that a workgroup quantises.
const SOURCE_TILE: usize = 128;

const QUANTISE: &str = "gfx950/quantise.hip";
const GEMM: &str = "gfx950/gemm.hip";

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
        Ok(Self { rows, columns, layout: ScaleLayout::Rows, kernel })
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
        let groups = [columns.div_ceil(SOURCE_TILE) as u32, rows.div_ceil(SOURCE_TILE) as u32, 1];
        // SAFETY: mxfp4_quantise(source, rows, k, row side, column side); lengths were checked above.
        unsafe { self.kernel.launch(Grid { groups, threads: THREADS, shared: 0 }, arguments) }
    }
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

fn check(spec: &OperandSpec, side: &OperandSide<'_>, k: usize, elements: usize) -> Result<(), GpuError> {
    const KERNEL: &str = "mxfp4_quantise";
    spec.validate(k).map_err(|error| GpuError::Shape { kernel: KERNEL, problem: error.to_string() })?;
    if !k.is_multiple_of(BLOCK) {
        return refuse(KERNEL, format!("a contraction axis of {k} elements is no multiple of {BLOCK}: take the emulated path"));
    }
    let Some(out) = side.out else { return Ok(()) };
    expect(KERNEL, "an operand's buffer", packed_bytes(elements), out.length())?;
    check_words(KERNEL, spec, side)?;
    check_signs(KERNEL, spec, side)
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

/// How a product is cut into workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Side of the square of the result that a workgroup makes: 64, 128 or 256.
    pub tile: usize,
    /// Steps of 256 along k that a workgroup takes.
    pub share: usize,
    /// Workgroups along k; more than one: their sums are added by a second kernel, in order.
    pub shares: usize,
}

/// What the choice of a tile rests on: side, clocks of a step of 256 along k when a compute unit does nothing else, workgroups that fit on
/// a unit at once. From counts and llvm-mca (kernels/gfx950/README.md); modelled, not measured.
const TILES: [(usize, u64, u64); 3] = [(256, 2342, 1), (128, 768, 2), (64, 384, 4)];
/// Clocks from a load to its data, below which no step of a workgroup can be (assumed).
const LATENCY: u64 = 1000;
/// Bytes that memory moves in a clock: 8 TB/s at 2.4 GHz.
const BYTES_PER_CLOCK: u64 = 3333;
/// Clocks that a second kernel costs by itself: about 5 microseconds (assumed).
const SECOND_KERNEL: u64 = 12_000;

impl Plan {
    /// The cheapest one by the model, for a device of `units` compute units and room for `workspace` partial sums. A function of its arguments alone,
    /// so that the same product is summed in the same order every time.
    pub fn choose(units: usize, shape: (usize, usize, usize), workspace: usize) -> Self {
        Self::cheapest(units, shape, workspace).1
    }

    /// Clocks of the busiest compute unit that the model expects of the plan for a product, second kernel included, or what memory needs to move both
    /// operands and a result in BF16 once, if that is more. A lower bound from counts (modelled): launch, first loads and stores are not in it.
    pub fn modelled_clocks(units: usize, (m, n, k): (usize, usize, usize), workspace: usize) -> u64 {
        let bytes = packed_bytes((m + n) * k) + 2 * m * n;
        Self::cheapest(units, (m, n, k), workspace).0.max(bytes as u64 / BYTES_PER_CLOCK)
    }

    fn cheapest(units: usize, (m, n, k): (usize, usize, usize), workspace: usize) -> (u64, Self) {
        let steps = k.div_ceil(STEP).max(1);
        let mut best = (u64::MAX, Self { tile: 64, share: steps, shares: 1 });
        // At the same cost the smallest tile and the fewest shares.
        for (tile, clocks, resident) in TILES.into_iter().rev() {
            let tiles = m.div_ceil(tile) * n.div_ceil(tile);
            for wanted in (0..7).map(|power| 1usize << power).take_while(|&wanted| wanted <= steps) {
                let share = steps.div_ceil(wanted);
                let shares = steps.div_ceil(share);
                if shares > 1 && shares * m * n > workspace {
                    continue;
                }
                // Workgroups of the busiest unit: so many at once, then the next.
                let queue = (tiles * shares).div_ceil(units.max(1)) as u64;
                let (full, rest) = (queue / resident, queue % resident);
                let together = |count: u64| if count == 0 { 0 } else { (count * clocks).max(LATENCY) };
                let mut cost = share as u64 * (full * together(resident) + together(rest));
                if shares > 1 {
                    cost += SECOND_KERNEL + (8 * shares * m * n) as u64 / BYTES_PER_CLOCK;
                }
                if cost < best.0 {
                    best = (cost, Self { tile, share, shares });
                }
            }
        }
        best
    }

    fn groups(&self, m: usize, n: usize) -> [u32; 3] {
        [n.div_ceil(self.tile) as u32, m.div_ceil(self.tile) as u32, self.shares as u32]
    }
}

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

/// Partial sums for which there is room at most: 64 MiB.
const LARGEST_WORKSPACE: usize = 1 << 24;

#[derive(Debug)]
pub struct PackedProducts {
    /// In the order of [`TILES`].
    kernels: [Kernel; 3],
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
            kernels: [kernel("mxfp4_gemm_256x256")?, kernel("mxfp4_gemm_128x128")?, kernel("mxfp4_gemm_64x64")?],
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
        let kernel =
            TILES.iter().position(|tile| tile.0 == plan.tile).and_then(|index| self.kernels.get(index)).unwrap_or(&self.kernels[2]);
        let grid = Grid { groups: plan.groups(m, n), threads: THREADS, shared: 0 };
        // SAFETY: mxfp4_gemm_TxT(product); lengths were checked above, the workspace holds `shares` results (`Plan::choose`).
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
    use super::*;

    const UNITS: usize = 256;
    const TOKENS: usize = 16_384;

    fn plan(m: usize, n: usize, k: usize) -> Plan {
        Plan::choose(UNITS, (m, n, k), LARGEST_WORKSPACE)
    }

    fn whole(tile: usize, k: usize) -> Plan {
        Plan { tile, share: k.div_ceil(STEP), shares: 1 }
    }

    #[test]
    fn the_products_of_llama_are_not_cut_along_k() {
        // qkv, attention output, gate and up, down: forward, dgrad and wgrad, (m, n, k).
        for (n, k) in [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336)] {
            assert_eq!(plan(TOKENS, n, k), whole(256, k), "fprop");
            assert_eq!(plan(TOKENS, k, n), whole(256, n), "dgrad");
            // 24 by 16 of the largest would keep 256 units busy for one turn and a half; those of 128 fill their turns.
            let tile = if n == 6144 { 128 } else { 256 };
            assert_eq!(plan(n, k, TOKENS), whole(tile, TOKENS), "wgrad");
        }
    }

    /// The README's table of Llama 3.1-8B's GEMMs, from the model: an MI355X has 256 units at 2.4 GHz and a peak of 10.07 PFLOP/s.
    #[test]
    fn the_readme_has_the_models_table() {
        let readme = include_str!("../../gfx950/README.md");
        let mut missing = Vec::new();
        for (name, n, k) in [("qkv", 6144, 4096), ("attention output", 4096, 4096), ("gate and up", 28_672, 4096), ("down", 4096, 14_336)] {
            for (pass, shape) in [("fprop", (TOKENS, n, k)), ("dgrad", (TOKENS, k, n)), ("wgrad", (n, k, TOKENS))] {
                let (m, n, k) = shape;
                let Plan { tile, shares, .. } = plan(m, n, k);
                let turns = (m.div_ceil(tile) * n.div_ceil(tile) * shares) as f64 / UNITS as f64;
                let seconds = Plan::modelled_clocks(UNITS, shape, LARGEST_WORKSPACE) as f64 / 2.4e9;
                let petaflops = 2.0 * (m * n * k) as f64 / seconds / 1e15;
                let (time, share) = (seconds * 1e6, 100.0 * petaflops / 10.07);
                let line = format!(
                    "| {name}, {pass} | {m} | {n} | {k} | {tile} | {shares} | {turns} | {time:.0} | {petaflops:.1} | {share:.0} % |"
                );
                if !readme.contains(&line) {
                    missing.push(line);
                }
            }
        }
        assert!(missing.is_empty(), "not in the README:\n{}", missing.join("\n"));
    }

    #[test]
    fn a_result_that_fills_few_units_is_cut_along_k() {
        let long = plan(512, 512, TOKENS);
        assert!(long.shares > 1, "{long:?}");
        assert!(plan(1024, 1024, 8192).shares > 1);
        // Without room for partial sums there is nothing to cut into.
        assert_eq!(Plan::choose(UNITS, (512, 512, TOKENS), 0).shares, 1);
        // And a short axis is not worth a second kernel.
        assert_eq!(plan(256, 256, 512).shares, 1);
    }

    #[test]
    fn small_results_take_small_tiles() {
        assert_eq!(plan(256, 96, 64), whole(64, 64));
        assert_eq!(plan(16, 16, 32), whole(64, 32));
        assert_eq!(plan(2048, 2048, 2048).tile, 128);
    }

    /// Every step of k belongs to one share, no share is empty, the workspace is kept, and the same question has the same answer.
    #[test]
    fn shares_cover_k_once() {
        let sizes = [16, 48, 64, 144, 512, 1008, 4096, 14_336];
        for units in [1, 80, 256, 304] {
            for workspace in [0, 1 << 20, LARGEST_WORKSPACE] {
                for (m, n) in sizes.iter().flat_map(|&m| sizes.map(|n| (m, n))) {
                    for k in [32, 256, 288, 1824, 16_384, 100_000] {
                        let found = Plan::choose(units, (m, n, k), workspace);
                        let steps = k.div_ceil(STEP);
                        assert!(found.share * (found.shares - 1) < steps && steps <= found.share * found.shares, "{found:?} of {steps}");
                        assert!(found.shares == 1 || found.shares * m * n <= workspace, "{found:?}");
                        assert!(TILES.iter().any(|tile| tile.0 == found.tile));
                        assert_eq!(found, Plan::choose(units, (m, n, k), workspace));
                    }
                }
            }
        }
    }

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

    /// Sizes and order of the kernels' structs (kernels/gfx950/README.md).
    #[test]
    fn arguments_have_the_kernels_layout() {
        use std::mem::offset_of;
        assert_eq!((size_of::<Side>(), size_of::<Arguments>()), (64, 72));
        assert_eq!([offset_of!(Side, rotation), offset_of!(Side, signs), offset_of!(Side, rule), offset_of!(Side, k0)], [16, 20, 36, 44]);
        assert_eq!([offset_of!(Side, layout), offset_of!(Side, square)], [52, 56]);
        assert_eq!([offset_of!(Arguments, d), offset_of!(Arguments, added), offset_of!(Arguments, m)], [32, 40, 48]);
        assert_eq!([offset_of!(Arguments, output), offset_of!(Arguments, factor)], [60, 68]);
    }
}
