//! Preparing operands on the device: kernels/device/quantise.cu and tensor_scale.cu.

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule, Signs};

use super::driver::{Element, Grid, Matrix};
use super::{Argument, Bf16, Buffer, Gpu, GpuError, Kernel, Plain, expect};
use crate::quantise::PRESCALE_CORRECTION;
use crate::random::{Draw, Stream};

/// What `struct Side` of quantise.cu holds.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Side {
    out: u64,
    amax: u64,
    scale: u64,
    k0: u32,
    k1: u32,
    signs: [u32; 4],
}

// SAFETY: three u64 and six u32: no padding.
unsafe impl Plain for Side {}

/// Where one operand goes, and its random inputs.
#[derive(Debug, Clone, Copy, Default)]
pub struct OperandSide<'a> {
    /// At least two bytes an element for blocks and BF16, one for tensor-scaled FP8. None: only the largest magnitude is taken.
    pub out: Option<&'a Buffer<u8>>,
    pub rounding: Option<Stream>,
    /// Signs of a randomized rotation.
    pub signs: Option<&'a [f32]>,
    /// Collects the largest magnitude's pattern: a buffer and a slot.
    pub amax: Option<(&'a TensorScales, usize)>,
    /// The scale of a tensor-scaled format: a buffer and a slot.
    pub scale: Option<(&'a TensorScales, usize)>,
}

impl OperandSide<'_> {
    fn raw(&self) -> Side {
        let mut signs = [0u32; 4];
        for (index, sign) in self.signs.unwrap_or_default().iter().enumerate().take(128) {
            signs[index / 32] |= u32::from(*sign < 0.0) << (index % 32);
        }
        let Stream { k0, k1, .. } = self.rounding.unwrap_or_default();
        Side {
            out: self.out.map_or(0, |out| out.address(0)),
            amax: self.amax.map_or(0, |(scales, slot)| scales.amax.address(slot)),
            scale: self.scale.map_or(0, |(scales, slot)| scales.scale.address(slot)),
            k0,
            k1,
            signs,
        }
    }
}

/// What a source is: kept, or made again from these while it is read, to the bits that [`super::Norm`] and [`super::Elementwise`] store.
#[derive(Debug, Clone, Copy)]
pub enum Made<'a> {
    /// The source from an element on.
    Stored(&'a Buffer<Bf16>, usize),
    Normed {
        /// What is normed, `[rows, columns]`.
        stream: &'a Buffer<Bf16>,
        /// `[rows]`.
        inverse_rms: &'a Buffer<f32>,
        /// The parameters, and where in them the gain is.
        gain: (&'a Buffer<f32>, usize),
    },
    Gated {
        /// Gate and up, `[rows, 2 columns]`.
        gate_up: &'a Buffer<Bf16>,
    },
}

/// [`Made`] as quantise.cu's SOURCE has it.
const SOURCES: [&str; 3] = ["STORED", "NORMED", "GATED"];

impl Made<'_> {
    /// Index into [`SOURCES`].
    fn source(&self) -> usize {
        match self {
            Self::Stored(..) => 0,
            Self::Normed { .. } => 1,
            Self::Gated { .. } => 2,
        }
    }

    /// Addresses of the source, of the factors of its rows and of those of its columns; lengths are checked.
    fn addresses(&self, rows: usize, columns: usize) -> Result<[u64; 3], GpuError> {
        const KERNEL: &str = "quantise";
        match self {
            Self::Stored(source, first) => {
                expect(KERNEL, "the source", first + rows * columns, source.length())?;
                Ok([source.address(*first), 0, 0])
            }
            _ if !columns.is_multiple_of(8) => {
                Err(GpuError::Shape { kernel: KERNEL, problem: format!("{columns} columns made while they are read, not a multiple of 8") })
            }
            Self::Normed { stream, inverse_rms, gain } => {
                expect(KERNEL, "what is normed", rows * columns, stream.length())?;
                expect(KERNEL, "inverse_rms", rows, inverse_rms.length())?;
                expect(KERNEL, "the parameters", gain.1 + columns, gain.0.length())?;
                Ok([stream.address(0), inverse_rms.address(0), gain.0.address(gain.1)])
            }
            Self::Gated { gate_up } => {
                expect(KERNEL, "gate and up", 2 * rows * columns, gate_up.length())?;
                Ok([gate_up.address(0), 0, 0])
            }
        }
    }
}

/// Kernels for one pair of specifications: the row operand's and the column operand's of one source.
#[derive(Debug, Clone)]
pub struct Quantiser {
    rows: Option<OperandSpec>,
    columns: Option<OperandSpec>,
    draw: Draw,
    /// By what the source is; those that were asked for.
    both: [Option<Kernel>; 3],
    square: [Option<Kernel>; 2],
    tile: usize,
}

/// What a product with this operand is multiplied by (tensor scales apart).
pub fn multiplier(spec: &OperandSpec) -> f32 {
    if spec.rounding == Rounding::StochasticPrescaled { PRESCALE_CORRECTION } else { 1.0 }
}

/// Element type of a prepared operand.
pub fn element(spec: &OperandSpec) -> Element {
    match (spec.format, spec.block) {
        (Format::E4m3, Block::Tensor) => Element::E4m3,
        (Format::E5m2, Block::Tensor) => Element::E5m2,
        _ => Element::Bf16,
    }
}

fn spec_text(spec: Option<&OperandSpec>) -> String {
    let Some(spec) = spec else { return "None".into() };
    let format = match spec.format {
        Format::E2m1 => 0,
        Format::E4m3 => 1,
        Format::E5m2 => 2,
        Format::Bf16 | Format::F32 => 3,
    };
    let rounding = match spec.rounding {
        Rounding::NearestEven => 0,
        Rounding::Stochastic => 1,
        Rounding::StochasticPrescaled => 2,
    };
    let rule = match spec.scale {
        ScaleRule::Even => 1,
        ScaleRule::Ceil => 2,
        _ => 0,
    };
    let tensor = spec.block == Block::Tensor && format != 3;
    format!("Spec<{format},{rounding},{rule},{},{tensor}>", spec.rotation.map_or(0, |rotation| rotation.size))
}

impl Quantiser {
    /// For stored sources that are prepared along their rows, their columns, or both. Squares of 32 x 32 go one orientation at a time.
    ///
    /// # Errors
    /// F32 operands, which no GPU path has, or kernels that do not compile.
    pub fn new(gpu: &Gpu, rows: Option<OperandSpec>, columns: Option<OperandSpec>) -> Result<Self, GpuError> {
        Self::drawing(gpu, Draw::Own, false, rows, columns)
    }

    /// As [`Quantiser::new`] for sources of every kind; squares are of stored ones alone.
    pub fn of_made(gpu: &Gpu, rows: Option<OperandSpec>, columns: Option<OperandSpec>) -> Result<Self, GpuError> {
        Self::drawing(gpu, Draw::Own, true, rows, columns)
    }

    /// As [`Quantiser::of_made`] if `made`, else as [`Quantiser::new`], for streams that draw so.
    pub fn drawing(gpu: &Gpu, draw: Draw, made: bool, rows: Option<OperandSpec>, columns: Option<OperandSpec>) -> Result<Self, GpuError> {
        let sources = if made { &SOURCES[..] } else { &SOURCES[..1] };
        for spec in rows.iter().chain(&columns) {
            if spec.format == Format::F32 {
                return Err(GpuError::Unsupported("operands in f32 run on the CPU only; on a GPU use the bf16 recipe as baseline".into()));
            }
            spec.validate(0).map_err(|error| GpuError::Unsupported(error.to_string()))?;
        }
        let is_square = |spec: &Option<OperandSpec>| spec.is_some_and(|spec| spec.block == Block::Tile32);
        let plain = |spec: Option<OperandSpec>| spec.filter(|spec| spec.block != Block::Tile32);
        let (plain_rows, plain_columns) = (plain(rows), plain(columns));
        let kernel = |source: &str, rows: Option<&OperandSpec>, columns: Option<&OperandSpec>, name| {
            let defines = [format!("-DROWS={}", spec_text(rows)), format!("-DCOLUMNS={}", spec_text(columns))];
            let made = (source != SOURCES[0]).then(|| format!("-DSOURCE={source}"));
            let draw = match draw {
                Draw::Own => None,
                Draw::Pair => Some("-DDRAW=PAIR".to_owned()),
                Draw::Low16 => Some("-DDRAW=LOW16".to_owned()),
            };
            gpu.kernel("quantise.cu", &defines.into_iter().chain(made).chain(draw).collect::<Vec<_>>(), name)
        };
        let mut both = [None, None, None];
        if plain_rows.is_some() || plain_columns.is_some() {
            for (slot, source) in both.iter_mut().zip(sources) {
                *slot = Some(kernel(source, plain_rows.as_ref(), plain_columns.as_ref(), "quantise")?);
            }
        }
        let mut square = [None, None];
        for (slot, spec) in square.iter_mut().zip([&rows, &columns]) {
            if is_square(spec) {
                *slot = Some(kernel(SOURCES[0], spec.as_ref(), None, "quantise_square")?);
            }
        }
        let rotation = |spec: Option<OperandSpec>| spec.and_then(|spec| spec.rotation).map_or(0, |rotation| rotation.size);
        let tile = if rotation(plain_rows).max(rotation(plain_columns)) > 64 { 128 } else { 64 };
        Ok(Self { rows, columns, draw, both, square, tile })
    }

    /// Prepares a source of `[rows, columns]`.
    ///
    /// # Errors
    /// Buffers that are too small, a shape that a specification refuses, missing random inputs, a kind of source that was not asked for, the
    /// driver's.
    pub fn run(
        &self,
        source: Made<'_>,
        (rows, columns): (usize, usize),
        row_side: OperandSide<'_>,
        column_side: OperandSide<'_>,
    ) -> Result<(), GpuError> {
        let [source_address, inverse_rms, gain] = source.addresses(rows, columns)?;
        for (spec, side, k) in [(&self.rows, &row_side, columns), (&self.columns, &column_side, rows)] {
            let Some(spec) = spec else { continue };
            check(spec, side, k, rows * columns)?;
            check_draw("quantise", side, self.draw)?;
        }
        let kernel = &self.both[source.source()];
        if kernel.is_none() && source.source() > 0 {
            let problem = format!("no kernel was made for {} sources", SOURCES[source.source()].to_lowercase());
            return Err(GpuError::Shape { kernel: "quantise", problem });
        }
        let address = Argument::new(source_address);
        let size = [Argument::new(rows as i32), Argument::new(columns as i32)];
        if let Some(kernel) = kernel {
            let groups = [columns.div_ceil(self.tile) as u32, rows.div_ceil(self.tile) as u32, 1];
            let grid = Grid { groups, threads: 256, shared: 0 };
            let sides = [Argument::new(row_side.raw()), Argument::new(column_side.raw())];
            let factors = [Argument::new(inverse_rms), Argument::new(gain)];
            // SAFETY: quantise(source, rows, columns, row side, column side, inverse_rms, gain); lengths were checked above.
            unsafe { kernel.launch(grid, [address, size[0], size[1], sides[0], sides[1], factors[0], factors[1]])? };
        }
        let squares =
            [(&self.square[0], &self.rows, row_side, (rows, columns)), (&self.square[1], &self.columns, column_side, (columns, rows))];
        for (transposed, (kernel, spec, side, (rows, k))) in squares.into_iter().enumerate() {
            let (Some(kernel), Some(spec)) = (kernel, spec) else { continue };
            let lanes = spec.rotation.map_or(32, |rotation| rotation.size.max(32)) / 8;
            let grid = Grid { groups: [k.div_ceil(8 * lanes) as u32, rows.div_ceil(32) as u32, 1], threads: 32 * lanes as u32, shared: 0 };
            let size = [rows as i32, k as i32, transposed as i32].map(Argument::new);
            // SAFETY: quantise_square(source, rows, length, transposed, side); lengths were checked above.
            unsafe { kernel.launch(grid, [address, size[0], size[1], size[2], Argument::new(side.raw())])? };
        }
        Ok(())
    }
}

fn check(spec: &OperandSpec, side: &OperandSide<'_>, k: usize, elements: usize) -> Result<(), GpuError> {
    const KERNEL: &str = "quantise";
    spec.validate(k).map_err(|error| GpuError::Shape { kernel: KERNEL, problem: error.to_string() })?;
    let bytes = if element(spec) == Element::Bf16 { 2 } else { 1 };
    if let Some(out) = side.out {
        expect(KERNEL, "an operand's buffer", bytes * elements, out.length())?;
        check_words(KERNEL, spec, side)?;
        if bytes == 1 && side.scale.is_none() {
            return Err(GpuError::Shape { kernel: KERNEL, problem: "a tensor-scaled operand needs a scale".to_owned() });
        }
    }
    check_signs(KERNEL, spec, side)
}

/// Refuses stochastic rounding without random words.
pub(super) fn check_words(kernel: &'static str, spec: &OperandSpec, side: &OperandSide<'_>) -> Result<(), GpuError> {
    if spec.rounding != Rounding::NearestEven && side.rounding.is_none() {
        return Err(GpuError::Shape { kernel, problem: "stochastic rounding needs a stream of random words".to_owned() });
    }
    Ok(())
}

/// Refuses a stream that draws otherwise than its kernel.
pub(super) fn check_draw(kernel: &'static str, side: &OperandSide<'_>, draw: Draw) -> Result<(), GpuError> {
    match side.rounding {
        Some(stream) if stream.draw != draw => {
            let problem = format!("a stream of words draws {:?}, the kernel was made for {draw:?}", stream.draw);
            Err(GpuError::Shape { kernel, problem })
        }
        _ => Ok(()),
    }
}

/// Refuses signs of another number than the rotation takes.
pub(super) fn check_signs(kernel: &'static str, spec: &OperandSpec, side: &OperandSide<'_>) -> Result<(), GpuError> {
    let wanted = spec.rotation.filter(|rotation| rotation.signs != Signs::None).map_or(0, |rotation| rotation.size);
    if side.signs.map_or(0, <[f32]>::len) != wanted {
        let problem = "a randomized rotation needs as many signs as its size, any other none".to_owned();
        return Err(GpuError::Shape { kernel, problem });
    }
    Ok(())
}

/// A prepared operand as a side of a product.
pub fn prepared(
    spec: &OperandSpec,
    bytes: &Buffer<u8>,
    rows: usize,
    k: usize,
    scale: Option<(&TensorScales, usize)>,
) -> Result<Matrix, GpuError> {
    let element = element(spec);
    expect("multiply", "an operand", rows * k * if element == Element::Bf16 { 2 } else { 1 }, bytes.length())?;
    let scale = scale.filter(|_| element != Element::Bf16).map(|(scales, slot)| scales.inverse.address(INVERSE_STRIDE * slot));
    Ok(Matrix { address: bytes.address(0), element, rows, k, transposed: false, scale })
}

/// The matrix library wants each inverse scale at a multiple of 16 bytes.
const INVERSE_STRIDE: usize = 4;

/// Scales of tensor-scaled operands, one slot each, with the histories of those that are delayed.
#[derive(Debug)]
pub struct TensorScales {
    amax: Buffer<u32>,
    scale: Buffer<f32>,
    inverse: Buffer<f32>,
    history: Buffer<f32>,
    /// Largest finite value of each slot's format; 0 where the slot is not delayed.
    largest: Buffer<f32>,
    slots: usize,
    length: usize,
    now: Kernel,
    remember: Kernel,
}

impl TensorScales {
    /// `delayed_largest[slot]`: largest finite value of the slot's format, 0 if it is not delayed; `length` entries of history.
    pub fn new(gpu: &Gpu, delayed_largest: &[f32], length: usize) -> Result<Self, GpuError> {
        let slots = delayed_largest.len();
        Ok(Self {
            amax: gpu.zeros(slots)?,
            scale: gpu.zeros(slots)?,
            inverse: gpu.zeros(INVERSE_STRIDE * slots)?,
            history: gpu.zeros(slots * length.max(1))?,
            largest: gpu.upload(delayed_largest)?,
            slots,
            length: length.max(1),
            now: gpu.kernel("tensor_scale.cu", &[], "scale_now")?,
            remember: gpu.kernel("tensor_scale.cu", &[], "remember")?,
        })
    }

    /// The slot's scale from the largest magnitude that was collected, for a format whose largest value is `largest`.
    pub fn scale_now(&self, slot: usize, largest: f32) -> Result<(), GpuError> {
        expect("scale_now", "the list of slots", slot + 1, self.slots)?;
        let place = |address: u64| Argument::new(address);
        let arguments = [
            place(self.amax.address(slot)),
            Argument::new(largest),
            place(self.scale.address(slot)),
            place(self.inverse.address(INVERSE_STRIDE * slot)),
        ];
        // SAFETY: scale_now(amax, largest, scale, inverse), all of one slot.
        unsafe { self.now.launch(Grid::row(1, 32), arguments) }
    }

    /// The slot's scale for a largest magnitude that is known, and a format whose largest value is `largest`.
    pub fn set(&mut self, slot: usize, amax: f32, largest: f32) -> Result<(), GpuError> {
        let scale = scale_for(amax, largest);
        self.scale.write(slot, &[scale])?;
        self.inverse.write(INVERSE_STRIDE * slot, &[1.0 / scale])
    }

    /// Forgets what was collected in a slot.
    pub fn clear(&self, slot: usize) -> Result<(), GpuError> {
        self.amax.fill_range(slot, 1, 0)
    }

    /// Largest magnitudes that were collected, by slot.
    pub fn collected(&self) -> Result<Vec<f32>, GpuError> {
        Ok(self.amax.to_vec()?.into_iter().map(f32::from_bits).collect())
    }

    /// Collects these, of the first slots, in place of what was collected.
    pub fn collect(&mut self, largest: &[f32]) -> Result<(), GpuError> {
        self.amax.write(0, &largest.iter().map(|largest| largest.to_bits()).collect::<Vec<_>>())
    }

    /// The end of a step: what was collected joins the histories (`filled` entries are there), and the next scales are chosen.
    pub fn remember(&self, filled: usize, choose_largest: bool) -> Result<(), GpuError> {
        let arguments = [
            Argument::new(self.amax.address(0)),
            Argument::new(self.history.address(0)),
            Argument::new(filled.min(self.length) as i32),
            Argument::new(self.length as i32),
            Argument::new(i32::from(choose_largest)),
            Argument::new(self.largest.address(0)),
            Argument::new(self.scale.address(0)),
            Argument::new(self.inverse.address(0)),
            Argument::new(self.slots as i32),
        ];
        // SAFETY: remember(amax, history, filled, length, choose_largest, largest, scale, inverse, slots), all of `slots` entries.
        unsafe { self.remember.launch(Grid::row(self.slots.div_ceil(128), 128), arguments) }
    }

    /// Histories by slot, `filled` entries each.
    pub fn histories(&self, filled: usize) -> Result<Vec<Vec<f32>>, GpuError> {
        let (all, largest) = (self.history.to_vec()?, self.largest.to_vec()?);
        let filled = filled.min(self.length);
        let slot = |(slot, largest): (usize, &f32)| if *largest == 0.0 { Vec::new() } else { all[slot * self.length..][..filled].to_vec() };
        Ok(largest.iter().enumerate().map(slot).collect())
    }

    /// Puts back histories, and the scales that follow from them.
    pub fn restore(&mut self, histories: &[Vec<f32>], choose_largest: bool, format_largest: impl Fn(usize) -> f32) -> Result<(), GpuError> {
        for (slot, history) in histories.iter().enumerate().take(self.slots) {
            let Some(newest) = history.last().copied() else { continue };
            self.history.write(slot * self.length, history)?;
            let chosen = if choose_largest { history.iter().copied().fold(history[0], f32::max) } else { newest };
            self.set(slot, chosen, format_largest(slot))?;
        }
        self.amax.fill(0)
    }
}

/// As `crate::quantise::tensor_scale`, by the format's largest value alone.
fn scale_for(amax: f32, largest: f32) -> f32 {
    if amax == 0.0 {
        1.0
    } else if amax.is_finite() {
        (largest / amax).min(f32::from_bits(253 << 23))
    } else {
        f32::NAN
    }
}
