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

mod operands;
mod peaks;
mod preparer;

use std::io::Write;
use std::path::Path;

use contract::measurements::{KernelTimeLine, NotRun, PeakTime, PrepareTime, TimedDevice};
use contract::run_file::{Gemm, RunFile};
use kernels::closeness::UNIT;
use kernels::gpu::{Bf16, Factor, Gpu, GpuError, Multiplier, PackedMatrix, ScaleLayout};

use super::shapes::{Product, Variant, products, variants};
use crate::device::gpu::device_id;
use crate::error::TrainerError;
use crate::streams::Pass;

use operands::{Preparation, Quantisers, Room, needs_fp8, preparations};
use peaks::{Peaks, Scrub};

/// Side of the square products that a peak is measured with: on a GPU, on the interpreter.
const PEAK: [usize; 2] = [8192, 128];

/// Results at either end of a product by which the library's is told from something else.
const SAMPLE: usize = 2048;

/// The variant whose products the vendor's library repeats: a rotation changes no product.
const PACKED_VARIANT: &str = "mxfp4-h0";
/// The library's, with scales by rows, as ours has them, and in the order in which its kernels read them fastest.
const LIBRARY_VARIANTS: [(&str, ScaleLayout); 2] =
    [("mxfp4-hipblaslt", ScaleLayout::Rows), ("mxfp4-hipblaslt-swizzled", ScaleLayout::Swizzled)];

fn machine(error: GpuError) -> TrainerError {
    TrainerError::Machine(error.to_string())
}

/// `warmup` unmeasured rounds, then `repeats` measured ones.
pub fn kernel_time_on_gpu(run_file: &Path, repeats: u64, warmup: u64, gpu: &Gpu, out: &mut impl Write) -> Result<(), TrainerError> {
    let run = RunFile::load(run_file)?.run;
    super::print(out, &KernelTimeLine::Device(device(gpu)))?;
    let products = products(&run.model, run.tokens_per_step());
    let peak = PEAK[usize::from(gpu.description().interpreted)];
    let bench = Bench {
        gpu,
        multiplier: Multiplier::new(gpu, &packed_shapes(gpu, &products, peak), Gemm::Own).map_err(machine)?,
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

fn device(gpu: &Gpu) -> TimedDevice {
    let description = gpu.description();
    TimedDevice {
        device: device_id(gpu),
        name: description.name.clone(),
        architecture: description.architecture.clone(),
        libraries: description.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect(),
        mxfp4: if description.has_mxfp4 { "native" } else { "emulated" }.into(),
        fp8: description.has_fp8,
        interpreted: description.interpreted,
    }
}

/// What our own kernels multiply: everything where the device has the units, else nothing.
fn packed_shapes(gpu: &Gpu, products: &[Product], peak: usize) -> Vec<(usize, usize, usize)> {
    let all = products.iter().map(|product| (product.m, product.n, product.k)).chain([(peak, peak, peak)]);
    all.filter(|_| gpu.description().has_mxfp4).collect()
}

struct Bench<'a> {
    gpu: &'a Gpu,
    multiplier: Multiplier,
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
                super::print(out, &KernelTimeLine::Kernel(product.line(variant.name, repeat, self.told(whole))))?;
                super::print(out, &KernelTimeLine::Product(product.line(variant.name, repeat, self.told(alone))))?;
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
            Pass::Wgrad => self.gpu.multiply_packed(left, right, 1.0, None, &self.room.out_f32, 0),
            _ => self.gpu.multiply_packed(left, right, 1.0, None, &self.room.out_bf16, 0),
        };
        let sides = left.and_then(|left| Ok((left, right?)));
        // Whether there is such a product, and whether it is one, is asked before the clock runs.
        let tried = sides.and_then(|sides| multiply(sides).and_then(|()| self.sample(product)).map(|theirs| (sides, theirs)));
        let reason = match tried {
            Ok((sides, theirs)) => match disagreement(ours, &theirs) {
                None => {
                    let seconds = self.timed(|| multiply(sides).map_err(machine))?;
                    let line = |repeat| KernelTimeLine::Product(product.line(name, repeat, self.told(seconds)));
                    return repeat.map_or(Ok(()), |repeat| super::print(out, &line(repeat)));
                }
                Some(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        if repeat != Some(1) {
            return Ok(());
        }
        let Product { linear, pass, m, n, k, .. } = *product;
        let (variant, linear, pass) = (name.into(), linear.into(), pass.name().into());
        let (m, n, k) = (m as u64, n as u64, k as u64);
        super::print(out, &KernelTimeLine::NotRun(NotRun { variant, linear, pass, m, n, k, reason }))
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

    /// What is told of a time: nothing of an interpreter's.
    fn told(&self, seconds: f64) -> Option<f64> {
        (!self.gpu.description().interpreted).then_some(seconds)
    }

    /// Weight gradients are F32, everything else BF16.
    fn multiply(&self, pass: Pass, left: Factor, right: Factor) -> Result<(), TrainerError> {
        if pass == Pass::Wgrad {
            self.multiplier.multiply(left, right, 1.0, None, &self.room.out_f32, 0).map_err(machine)
        } else {
            self.multiplier.multiply(left, right, 1.0, None, &self.room.out_bf16, 0).map_err(machine)
        }
    }

    /// Preparing the gradient of this product's linear.
    fn prepare(&self, product: &Product, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        let (rows, columns) = (self.tokens, product.outputs);
        for preparation in &self.preparations {
            let seconds = self.timed(|| preparation.run(&self.room, (rows, columns)))?;
            if let Some(repeat) = repeat {
                let bytes = 2 * rows * columns + preparation.written_bytes(rows * columns);
                let names = (preparation.name.clone(), product.linear, preparation.orientation);
                let line = self.bytes_time(names, (rows, columns), bytes, repeat, seconds);
                super::print(out, &KernelTimeLine::Prepare(line))?;
            }
        }
        Ok(())
    }

    fn copy(&self, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        let half = self.room.left.length().min(self.room.right.length()).min(1 << 29);
        let seconds = self.timed(|| self.room.left.copy_to(&self.room.right, half).map_err(machine))?;
        let Some(repeat) = repeat else { return Ok(()) };
        let line = self.bytes_time(("copy".to_owned(), "all", "both"), (1, half), 2 * half, repeat, seconds);
        super::print(out, &KernelTimeLine::Copy(line))
    }

    fn bytes_time(
        &self,
        (variant, linear, orientation): (String, &'static str, &'static str),
        (rows, columns): (usize, usize),
        bytes: usize,
        repeat: u64,
        seconds: f64,
    ) -> PrepareTime {
        let seconds = self.told(seconds);
        PrepareTime {
            variant: variant.into(),
            linear: linear.into(),
            orientation: orientation.into(),
            rows: rows as u64,
            columns: columns as u64,
            bytes: bytes as u64,
            repeat,
            seconds,
            interpreted: seconds.is_none(),
        }
    }

    fn peak(&self, repeat: Option<u64>, out: &mut impl Write) -> Result<(), TrainerError> {
        let side = self.peaks.side;
        let bf16 = self.peaks.source.matrix(0, side, side, false).map_err(machine)?;
        let mut all = vec![("bf16", Factor::Library(bf16))];
        all.extend(self.peaks.fp8()?.map(|fp8| ("fp8", Factor::Library(fp8))));
        all.extend(self.peaks.mxfp4()?.map(|mxfp4| ("mxfp4", mxfp4)));
        for (variant, matrix) in all {
            let seconds = self.timed(|| self.multiplier.multiply(matrix, matrix, 1.0, None, &self.peaks.out, 0).map_err(machine))?;
            if let Some(repeat) = repeat {
                let (seconds, side) = (self.told(seconds), side as u64);
                let (m, n, k, interpreted) = (side, side, side, seconds.is_none());
                super::print(out, &KernelTimeLine::Peak(PeakTime { variant: variant.into(), m, n, k, repeat, seconds, interpreted }))?;
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

/// How two results of one product differ, if by more than their roundings to BF16 and the order of their sums can: 2^-7 of the norm, twice
/// the former's unit roundoff. Scales that are read in another order differ by as much as there is.
fn disagreement(ours: &[f32], theirs: &[f32]) -> Option<String> {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut ours.iter().zip(theirs).map(|(ours, theirs)| f64::from(ours - theirs)));
    let relative = (difference / square(&mut ours.iter().map(|&value| f64::from(value)))).sqrt();
    // NaN is no agreement.
    let agrees = relative <= 2.0 * UNIT;
    (!agrees).then(|| {
        format!("the library's results are not ours (relative difference {relative:.1e}): it does not read the operands as they are meant")
    })
}
