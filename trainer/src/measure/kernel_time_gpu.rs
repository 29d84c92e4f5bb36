//! Seconds on a GPU of each linear's GEMM passes, with and without preparing their operands, of preparing alone, and of the device's peaks.
//!
//! Products and variants are those of the CPU (`shapes`). Everything takes turns within a round; each time is between two events in the
//! stream, behind a copy that is not timed and pushes what the caches hold out of them. Kinds of lines: `device` (first), `kernel_time`
//! (preparation included), `product_time` (operands prepared beforehand), `prepare_time` (one read of a gradient that writes its row
//! operand, its column operand, or both, as a step does), `copy_time` (the device's own copy), `peak_time` (a large square product), and
//! `not_run` (a product of packed MXFP4 that the vendor's library, which takes turns with ours, does not have).
//!
//! On the interpreter of gfx950's machine code, which is no device, sizes that no run file sets are small, and every line says
//! `interpreted` and has no seconds: that calls work is what is seen there.

use std::io::Write;
use std::path::Path;

use kernels::gpu::{
    Bf16, Buffer, Element, Gpu, GpuError, Matrix, OperandSide, PackedMatrix, Quantiser, ScaleLayout, TensorScales, element, prepared,
};
use kernels::operand::{Format, OperandSpec, Rounding, ScaleRule};
use kernels::random::{Stream, StreamKey};
use serde::Serialize;

use super::gpu_operands::{Factor, Multiplier, Preparer};
use super::shapes::{Largest, Product, SCHEMA, Variant, mxfp4, plain, products, variants};
use crate::error::TrainerError;
use crate::run_file::RunFile;
use crate::streams::Pass;

/// Side of the square products that a peak is measured with: on a GPU, on the interpreter.
const PEAK: [usize; 2] = [8192, 128];

/// Bytes of each of the two buffers whose copy empties the caches: together more than the last level of any GPU that is here or planned. The
/// interpreter has no caches.
const SCRUB: [usize; 2] = [256 << 20, 4096];

/// Results at either end of a product by which the library's is told from something else.
const SAMPLE: usize = 2048;

/// The variant whose products the vendor's library repeats: a rotation changes no product.
const PACKED_VARIANT: &str = "mxfp4-h0";
/// The library's, with scales by rows, as ours has them, and in the order in which its kernels read them fastest.
const LIBRARY_VARIANTS: [(&str, ScaleLayout); 2] =
    [("mxfp4-hipblaslt", ScaleLayout::Rows), ("mxfp4-hipblaslt-swizzled", ScaleLayout::Swizzled)];

#[derive(Serialize)]
struct DeviceLine<'a> {
    schema: &'static str,
    kind: &'static str,
    device: String,
    name: &'a str,
    architecture: &'a str,
    libraries: Vec<String>,
    /// `native` where an FP4 unit multiplies, `emulated` where another unit carries the exact values.
    mxfp4: &'static str,
    fp8: bool,
    /// No device: the processor interprets the machine code.
    interpreted: bool,
}

#[derive(Serialize)]
struct NotRunLine<'a> {
    schema: &'static str,
    kind: &'static str,
    variant: &'a str,
    linear: &'a str,
    pass: &'a str,
    m: usize,
    n: usize,
    k: usize,
    reason: &'a str,
}

#[derive(Serialize)]
struct PrepareLine<'a> {
    schema: &'static str,
    kind: &'static str,
    variant: &'a str,
    linear: &'a str,
    /// `row`, `column` or `both`.
    orientation: &'a str,
    rows: usize,
    columns: usize,
    /// Each input byte once and each output byte once.
    bytes: usize,
    repeat: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct PeakLine {
    schema: &'static str,
    kind: &'static str,
    variant: &'static str,
    m: usize,
    n: usize,
    k: usize,
    repeat: u64,
    seconds: f64,
}

fn machine(error: GpuError) -> TrainerError {
    TrainerError::Machine(error.to_string())
}

/// `warmup` unmeasured rounds, then `repeats` measured ones.
///
/// # Errors
/// A run file that is wrong, not enough memory, or a kernel's.
pub fn kernel_time_on_gpu(run_file: &Path, repeats: u64, warmup: u64, gpu: &Gpu, out: &mut impl Write) -> Result<(), TrainerError> {
    let run = RunFile::load(run_file)?.run;
    super::print(out, &device_line(gpu))?;
    let products = products(&run.model, run.tokens_per_step());
    let peak = PEAK[usize::from(gpu.description().interpreted)];
    let bench = Bench {
        gpu,
        multiplier: Multiplier::new(gpu, products.iter().map(|product| (product.m, product.n, product.k)).chain([(peak, peak, peak)]))?,
        tokens: run.tokens_per_step(),
        room: Room::new(gpu, &run)?,
        scrub: Scrub::new(gpu)?,
        peaks: Peaks::new(gpu, peak)?,
        products,
        variants: variants()
            .into_iter()
            .map(|variant| Quantisers::new(gpu, &variant).map(|quantisers| (variant, quantisers)))
            .collect::<Result<_, _>>()?,
        preparations: preparations(gpu)?,
    };
    for round in 1..=warmup + repeats {
        bench.round(round.checked_sub(warmup).filter(|repeat| *repeat > 0), out)?;
    }
    Ok(())
}

fn device_line(gpu: &Gpu) -> DeviceLine<'_> {
    let description = gpu.description();
    DeviceLine {
        schema: SCHEMA,
        kind: "device",
        device: format!("{}:{}", description.kind, description.ordinal),
        name: &description.name,
        architecture: &description.architecture,
        libraries: description.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect(),
        mxfp4: if description.has_mxfp4 { "native" } else { "emulated" },
        fp8: description.has_fp8,
        interpreted: description.interpreted,
    }
}

/// Everything that takes turns.
struct Bench<'a> {
    gpu: &'a Gpu,
    multiplier: Multiplier<'a>,
    tokens: usize,
    room: Room,
    scrub: Scrub,
    peaks: Peaks,
    products: Vec<Product>,
    variants: Vec<(Variant, Quantisers)>,
    preparations: Vec<Preparation>,
}

impl Bench<'_> {
    /// One turn of everything; lines only when `repeat` counts it.
    fn round(&self, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        for product in &self.products {
            self.product(product, repeat, out)?;
            if product.pass == Pass::Wgrad {
                self.prepare(product, repeat, out)?;
            }
        }
        self.copy(repeat, out)?;
        self.peak(repeat, out)
    }

    fn product(&self, product: &Product, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        for (variant, quantisers) in &self.variants {
            let first = variant.first(product.pass);
            if first.validate(product.k).is_err() || (needs_fp8(first) && !self.gpu.description().has_fp8) {
                continue;
            }
            let [left, right] = self.room.sides(variant, quantisers, product);
            let whole = self.timed(|| {
                let (left, right) = (left.prepare(&self.room)?, right.prepare(&self.room)?);
                self.multiply(product.pass, left, right)
            })?;
            // What was just prepared is multiplied once more, alone.
            let factors = (left.prepared(&self.room)?, right.prepared(&self.room)?);
            let alone = self.timed(|| self.multiply(product.pass, factors.0, factors.1))?;
            if let Some(repeat) = repeat {
                self.print(out, &product.line("kernel_time", variant.name, repeat, whole))?;
                self.print(out, &product.line("product_time", variant.name, repeat, alone))?;
            }
            if let (Factor::Packed(_), PACKED_VARIANT) = (factors.0, variant.name) {
                let ours = self.sample(product).map_err(machine)?;
                for (name, layout) in LIBRARY_VARIANTS {
                    self.library_product(product, (name, &ours), [&left, &right].map(|side| side.packed(layout)), repeat, out)?;
                }
            }
        }
        Ok(())
    }

    /// The product that was just timed, by the vendor's library. What it does not have, or what does not give `ours`, is said once.
    fn library_product(
        &self,
        product: &Product,
        (name, ours): (&'static str, &[f32]),
        [left, right]: [Result<PackedMatrix, GpuError>; 2],
        repeat: Option<u64>,
        out: &mut impl Write,
    ) -> Result<(), TrainerError> {
        let multiply = |(left, right)| match product.pass {
            Pass::Wgrad => self.gpu.multiply_packed(left, right, &self.room.out_f32, 0),
            _ => self.gpu.multiply_packed(left, right, &self.room.out_bf16, 0),
        };
        let sides = left.and_then(|left| Ok((left, right?)));
        // Whether there is such a product, and whether it is one, is asked before the clock runs.
        let tried = sides.and_then(|sides| multiply(sides).and_then(|()| self.sample(product)).map(|theirs| (sides, theirs)));
        let reason = match tried {
            Ok((sides, theirs)) => match disagreement(ours, &theirs) {
                None => {
                    let seconds = self.timed(|| multiply(sides).map_err(machine))?;
                    return repeat.map_or(Ok(()), |repeat| self.print(out, &product.line("product_time", name, repeat, seconds)));
                }
                Some(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        if repeat != Some(1) {
            return Ok(());
        }
        let Product { linear, pass, m, n, k, .. } = *product;
        let (kind, pass) = ("not_run", pass.name());
        super::print(out, &NotRunLine { schema: SCHEMA, kind, variant: name, linear, pass, m, n, k, reason: &reason })
    }

    /// The first and the last results of the product that was queued last.
    fn sample(&self, product: &Product) -> Result<Vec<f32>, GpuError> {
        let results = product.m * product.n;
        let count = SAMPLE.min(results);
        let (mut single, mut half) = (vec![0.0f32; count], vec![Bf16(0); count]);
        let mut all = Vec::with_capacity(2 * count);
        for first in [0, results - count] {
            if product.pass == Pass::Wgrad {
                self.room.out_f32.read(first, &mut single)?;
                all.extend_from_slice(&single);
            } else {
                self.room.out_bf16.read(first, &mut half)?;
                all.extend(half.iter().map(|value| kernels::format::bf16::decode(value.0)));
            }
        }
        Ok(all)
    }

    /// A line of a time; of an interpreter's time nothing is told but that it was taken.
    fn print(&self, out: &mut impl Write, line: &impl Serialize) -> Result<(), TrainerError> {
        if !self.gpu.description().interpreted {
            return super::print(out, line);
        }
        let mut line = serde_json::to_value(line).map_err(|error| TrainerError::Machine(format!("cannot write a line: {error}")))?;
        line["seconds"] = serde_json::Value::Null;
        line["interpreted"] = true.into();
        super::print(out, &line)
    }

    /// Weight gradients are F32, everything else BF16.
    fn multiply(&self, pass: Pass, left: Factor, right: Factor) -> Result<(), TrainerError> {
        if pass == Pass::Wgrad {
            self.multiplier.run(left, right, &self.room.out_f32)
        } else {
            self.multiplier.run(left, right, &self.room.out_bf16)
        }
    }

    /// Preparing the gradient of this product's linear.
    fn prepare(&self, product: &Product, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        let (rows, columns) = (self.tokens, product.outputs);
        for preparation in &self.preparations {
            let seconds = self.timed(|| preparation.run(&self.room, (rows, columns)))?;
            if let Some(repeat) = repeat {
                let Preparation { name, orientation, .. } = preparation;
                let bytes = 2 * rows * columns + preparation.written_bytes(rows * columns);
                let (kind, linear) = ("prepare_time", product.linear);
                let line = PrepareLine { schema: SCHEMA, kind, variant: name, linear, orientation, rows, columns, bytes, repeat, seconds };
                self.print(out, &line)?;
            }
        }
        Ok(())
    }

    fn copy(&self, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        let half = self.room.left.length().min(self.room.right.length()).min(1 << 29);
        let seconds = self.timed(|| self.room.left.copy_to(&self.room.right, half).map_err(machine))?;
        let Some(repeat) = repeat else { return Ok(()) };
        let (linear, variant, orientation) = ("all", "copy", "both");
        let line = PrepareLine {
            schema: SCHEMA,
            kind: "copy_time",
            variant,
            linear,
            orientation,
            rows: 1,
            columns: half,
            bytes: 2 * half,
            repeat,
            seconds,
        };
        self.print(out, &line)
    }

    fn peak(&self, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        let side = self.peaks.side;
        let bf16 = self.peaks.source.matrix(0, side, side, false).map_err(machine)?;
        let mut all = vec![("bf16", Factor::Library(bf16))];
        all.extend(self.peaks.fp8()?.map(|fp8| ("fp8", Factor::Library(fp8))));
        all.extend(self.peaks.mxfp4()?.map(|mxfp4| ("mxfp4", mxfp4)));
        for (variant, matrix) in all {
            let seconds = self.timed(|| self.multiplier.run(matrix, matrix, &self.peaks.out))?;
            if let Some(repeat) = repeat {
                let line = PeakLine { schema: SCHEMA, kind: "peak_time", variant, m: side, n: side, k: side, repeat, seconds };
                self.print(out, &line)?;
            }
        }
        Ok(())
    }

    /// Seconds on the device of what `work` queues, behind a copy that empties the caches.
    fn timed(&self, work: impl FnOnce() -> Result<(), TrainerError>) -> Result<f64, TrainerError> {
        self.scrub.queue()?;
        let driver = self.gpu.driver();
        let started = driver.record().map_err(machine)?;
        work()?;
        let ended = driver.record().map_err(machine)?;
        driver.elapsed(started, ended).map_err(machine)
    }
}

/// How two results of one product differ, if by more than their roundings to BF16 and the order of their sums can: 2^-7 of the norm, four
/// times the former's unit. Scales that are read in another order differ by as much as there is.
fn disagreement(ours: &[f32], theirs: &[f32]) -> Option<String> {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut ours.iter().zip(theirs).map(|(ours, theirs)| f64::from(ours - theirs)));
    let relative = (difference / square(&mut ours.iter().map(|&value| f64::from(value)))).sqrt();
    // NaN is no agreement.
    let agrees = relative <= 2f64.powi(-7);
    (!agrees).then(|| {
        format!("the library's results are not ours (relative difference {relative:.1e}): it does not read the operands as they are meant")
    })
}

fn needs_fp8(spec: &OperandSpec) -> bool {
    matches!(element(spec), Element::E4m3 | Element::E5m2)
}

/// Memory that is copied before each time is taken.
struct Scrub {
    from: Buffer<u8>,
    to: Buffer<u8>,
}

impl Scrub {
    fn new(gpu: &Gpu) -> Result<Self, TrainerError> {
        let bytes = SCRUB[usize::from(gpu.description().interpreted)];
        Ok(Self { from: gpu.zeros(bytes).map_err(machine)?, to: gpu.buffer(bytes).map_err(machine)? })
    }

    fn queue(&self) -> Result<(), TrainerError> {
        self.from.copy_to(&self.to, self.from.length()).map_err(machine)
    }
}

/// A large square matrix in BF16, and quantised to E4M3 and packed as MXFP4 where the device multiplies those.
struct Peaks {
    side: usize,
    source: Buffer<Bf16>,
    codes: Option<Buffer<u8>>,
    packed: Option<(Preparer, Buffer<u8>)>,
    scales: TensorScales,
    out: Buffer<Bf16>,
}

impl Peaks {
    fn new(gpu: &Gpu, side: usize) -> Result<Self, TrainerError> {
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
            quantiser.run((&peaks.source, 0), (side, side), operand, OperandSide::default()).map_err(machine)?;
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

    fn fp8(&self) -> Result<Option<Matrix>, TrainerError> {
        let matrix = |codes| prepared(&E4M3, codes, self.side, self.side, Some((&self.scales, 0))).map_err(machine);
        self.codes.as_ref().map(matrix).transpose()
    }

    fn mxfp4(&self) -> Result<Option<Factor>, TrainerError> {
        let spec = mxfp4(None, Rounding::NearestEven);
        self.packed.as_ref().map(|(preparer, packed)| preparer.factor(&spec, packed, (self.side, self.side), None)).transpose()
    }
}

const E4M3: OperandSpec = plain(Format::E4m3, ScaleRule::Delayed);

/// Normal numbers: a million of them, over and over. Zeros would be faster than real data, the same million is not.
fn random(gpu: &Gpu, tensor: u64, count: usize, seed: u64) -> Result<Buffer<Bf16>, TrainerError> {
    let stream = StreamKey { seed, step: tensor, pass: 65, ..Default::default() }.stream();
    let period: Vec<Bf16> = (0..count.min(1 << 20) as u64).map(|index| Bf16(kernels::format::bf16::encode(stream.normal(index)))).collect();
    let values: Vec<Bf16> = period.iter().copied().cycle().take(count).collect();
    gpu.upload(&values).map_err(machine)
}

/// What delayed scales would remember of normal matrices: any fixed scale costs the same.
fn scales(gpu: &Gpu, slots: usize) -> Result<TensorScales, TrainerError> {
    let mut scales = TensorScales::new(gpu, &vec![0.0; slots], 0).map_err(machine)?;
    for slot in 0..slots {
        scales.set(slot, 5.0, 448.0).map_err(machine)?;
    }
    Ok(scales)
}

/// Memory of all products.
struct Room {
    x: Buffer<Bf16>,
    w: Buffer<Bf16>,
    dy: Buffer<Bf16>,
    left: Buffer<u8>,
    right: Buffer<u8>,
    out_bf16: Buffer<Bf16>,
    out_f32: Buffer<f32>,
    scales: TensorScales,
}

impl Room {
    fn new(gpu: &Gpu, run: &RunFile) -> Result<Self, TrainerError> {
        let largest = Largest::of(run);
        let seed = run.run.seed;
        Ok(Self {
            x: random(gpu, 0, largest.x, seed)?,
            w: random(gpu, 1, largest.w, seed)?,
            dy: random(gpu, 2, largest.dy, seed)?,
            // The device's copy reads all of it, also what no operand filled.
            left: gpu.zeros(2 * largest.result).map_err(machine)?,
            right: gpu.buffer(2 * largest.result).map_err(machine)?,
            out_bf16: gpu.buffer(largest.result).map_err(machine)?,
            out_f32: gpu.buffer(largest.w).map_err(machine)?,
            scales: scales(gpu, 2)?,
        })
    }

    /// Both operands of a product as this variant has them.
    fn sides<'a>(&'a self, variant: &'a Variant, quantisers: &'a Quantisers, product: &Product) -> [Side<'a>; 2] {
        let Product { pass, m, n, k, .. } = *product;
        let transposed = [pass == Pass::Wgrad, pass != Pass::Fprop];
        let (first, second) = match pass {
            Pass::Fprop => (&self.x, &self.w),
            Pass::Dgrad => (&self.dy, &self.w),
            Pass::Wgrad => (&self.dy, &self.x),
        };
        let made = if pass == Pass::Fprop { &quantisers.forward } else { &quantisers.gradient };
        let axis = |transposed: bool| usize::from(transposed);
        let left = Side {
            source: first,
            spec: variant.first(pass),
            out: &self.left,
            slot: 0,
            rows: m,
            k,
            transposed: transposed[0],
            preparer: &made[axis(transposed[0])],
        };
        let right = Side {
            source: second,
            spec: &variant.forward,
            out: &self.right,
            slot: 1,
            rows: n,
            k,
            transposed: transposed[1],
            preparer: &quantisers.forward[axis(transposed[1])],
        };
        [left, right]
    }
}

/// Kernels of a variant: by row and by column, for the forward's specification and the gradient's.
struct Quantisers {
    forward: [Preparer; 2],
    gradient: [Preparer; 2],
}

impl Quantisers {
    fn new(gpu: &Gpu, variant: &Variant) -> Result<Self, TrainerError> {
        let make = |spec: &OperandSpec| -> Result<[Preparer; 2], TrainerError> {
            Ok([Preparer::new(gpu, Some(*spec), None)?, Preparer::new(gpu, None, Some(*spec))?])
        };
        Ok(Self { forward: make(&variant.forward)?, gradient: make(&variant.gradient)? })
    }
}

/// A way of preparing a gradient.
struct Preparation {
    name: String,
    orientation: &'static str,
    spec: OperandSpec,
    preparer: Preparer,
}

/// None, H16 and H32, to nearest and stochastically, and FP8; along the rows, the columns, and both in one read.
fn preparations(gpu: &Gpu) -> Result<Vec<Preparation>, TrainerError> {
    let mut specs = Vec::new();
    for (rounding, suffix) in [(Rounding::NearestEven, ""), (Rounding::Stochastic, "-sr")] {
        for size in [0, 16, 32] {
            specs.push((format!("mxfp4-h{size}{suffix}"), mxfp4((size > 0).then_some(size), rounding)));
        }
    }
    if gpu.description().has_fp8 {
        specs.push(("fp8".to_owned(), plain(Format::E5m2, ScaleRule::Delayed)));
    }
    let mut all = Vec::new();
    for (name, spec) in specs {
        for (orientation, rows, columns) in [("row", Some(spec), None), ("column", None, Some(spec)), ("both", Some(spec), Some(spec))] {
            all.push(Preparation { name: name.clone(), orientation, spec, preparer: Preparer::new(gpu, rows, columns)? });
        }
    }
    Ok(all)
}

impl Preparation {
    /// What is written for so many elements of the source.
    fn written_bytes(&self, elements: usize) -> usize {
        let one = self.preparer.bytes(&self.spec, elements);
        if self.orientation == "both" { 2 * one } else { one }
    }

    fn run(&self, room: &Room, size: (usize, usize)) -> Result<(), TrainerError> {
        let words = |tensor| -> Option<Stream> {
            (self.spec.rounding != Rounding::NearestEven).then(|| StreamKey { seed: 1, step: tensor, ..Default::default() }.stream())
        };
        let side = |name: &str, buffer, tensor| {
            if self.orientation != name && self.orientation != "both" {
                return OperandSide::default();
            }
            OperandSide {
                out: Some(buffer),
                rounding: words(tensor),
                scale: needs_fp8(&self.spec).then_some((&room.scales, 0)),
                ..OperandSide::default()
            }
        };
        let (rows, columns) = (side("row", &room.left, 0), side("column", &room.right, 1));
        self.preparer.run((&room.dy, 0), size, rows, columns)
    }
}

/// One operand of a pass: its source, how it is prepared, and where to.
struct Side<'a> {
    source: &'a Buffer<Bf16>,
    spec: &'a OperandSpec,
    out: &'a Buffer<u8>,
    slot: usize,
    rows: usize,
    k: usize,
    transposed: bool,
    preparer: &'a Preparer,
}

impl Side<'_> {
    /// Queues its preparation, if it has one.
    fn prepare(&self, room: &Room) -> Result<Factor, TrainerError> {
        let scale = needs_fp8(self.spec).then_some((&room.scales, self.slot));
        let side = OperandSide { out: Some(self.out), scale, amax: scale, ..OperandSide::default() };
        let none = OperandSide::default();
        let (size, rows, columns) = if self.transposed { ((self.k, self.rows), none, side) } else { ((self.rows, self.k), side, none) };
        self.preparer.run((self.source, 0), size, rows, columns)?;
        self.prepared(room)
    }

    /// For the vendor's product of packed codes. Scales by rows are as they were prepared last, swizzled ones are prepared here.
    fn packed(&self, layout: ScaleLayout) -> Result<PackedMatrix, GpuError> {
        let (Preparer::Packed(quantiser), ScaleLayout::Swizzled) = (self.preparer, layout) else {
            return PackedMatrix::new(self.out, self.rows, self.k);
        };
        let matrix = PackedMatrix::swizzled(self.out, self.rows, self.k)?;
        let (side, none) = (OperandSide { out: Some(self.out), ..OperandSide::default() }, OperandSide::default());
        let (size, rows, columns) = if self.transposed { ((self.k, self.rows), none, side) } else { ((self.rows, self.k), side, none) };
        quantiser.clone().swizzled().run((self.source, 0), size, rows, columns)?;
        Ok(matrix)
    }

    /// As it was prepared last.
    fn prepared(&self, room: &Room) -> Result<Factor, TrainerError> {
        if self.preparer.is_source() {
            return self.source.matrix(0, self.rows, self.k, self.transposed).map(Factor::Library).map_err(machine);
        }
        let scale = needs_fp8(self.spec).then_some((&room.scales, self.slot));
        self.preparer.factor(self.spec, self.out, (self.rows, self.k), scale)
    }
}
