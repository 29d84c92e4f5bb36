//! Seconds of each linear's GEMM passes on a GPU, operands prepared within, and of preparing alone beside a plain copy.
//!
//! The variants and lines are those of `kernel_time` on the CPU. Variants take turns; each time is between two events in the stream.
//! Lines of kind `prepare_time` are one read of a gradient that writes both its operands, as a step does; `copy_time` is the device's
//! own copy of a gibibyte in the same turn, whose bytes (read and written) are what a perfect kernel could move.

use std::io::Write;
use std::path::Path;

use kernels::gpu::{Bf16, Buffer, Element, Gpu, GpuError, OperandSide, Quantiser, TensorScales, element, is_source, prepared};
use kernels::operand::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::random::StreamKey;
use serde::Serialize;

use super::kernel_time::{Line, Variant, variants};
use crate::error::TrainerError;
use crate::run_file::RunFile;
use crate::streams::Pass;

#[derive(Serialize)]
struct PrepareLine<'a> {
    schema: &'static str,
    kind: &'static str,
    variant: &'a str,
    linear: &'a str,
    rows: usize,
    columns: usize,
    /// Each input byte once and each output byte once.
    bytes: usize,
    repeat: u64,
    seconds: f64,
}

fn machine(error: GpuError) -> TrainerError {
    TrainerError::Machine(error.to_string())
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

/// One operand of a pass: its source, how it is prepared, and which side it is.
struct Side<'a> {
    source: &'a Buffer<Bf16>,
    spec: &'a OperandSpec,
    out: &'a Buffer<u8>,
    slot: usize,
    rows: usize,
    k: usize,
    transposed: bool,
    quantiser: &'a Option<Quantiser>,
}

/// `warmup` unmeasured rounds, then `repeats` measured ones.
///
/// # Errors
/// A run file that is wrong, not enough memory, or a kernel's.
pub fn kernel_time_on_gpu(run_file: &Path, repeats: u64, warmup: u64, gpu: &Gpu, out: &mut impl Write) -> Result<(), TrainerError> {
    let run = RunFile::load(run_file)?.run;
    let tokens = run.tokens_per_step();
    let linears = run.model.linears();
    let room = Room::new(gpu, &run)?;
    let made = variants().into_iter().map(|variant| Quantisers::new(gpu, &variant).map(|quantisers| (variant, quantisers)));
    let made = made.collect::<Result<Vec<_>, _>>()?;
    let preparations = preparations(gpu)?;
    for round in 1..=warmup + repeats {
        let repeat = round.saturating_sub(warmup);
        for (linear, outputs, inputs) in linears {
            for pass in [Pass::Fprop, Pass::Dgrad, Pass::Wgrad] {
                let (m, n, k) = match pass {
                    Pass::Fprop => (tokens, outputs, inputs),
                    Pass::Dgrad => (tokens, inputs, outputs),
                    Pass::Wgrad => (outputs, inputs, tokens),
                };
                for (variant, quantisers) in &made {
                    let first = if pass == Pass::Fprop { &variant.forward } else { &variant.gradient };
                    if first.validate(k).is_err() || (element(first) != Element::Bf16 && !gpu.description().has_fp8) {
                        continue;
                    }
                    let seconds = timed(gpu, || product(gpu, &room, variant, quantisers, pass, (m, n, k)))?;
                    if repeat > 0 {
                        let name = variant.name;
                        let line = Line {
                            schema: "mxfp4-kernel-time/1",
                            kind: "kernel_time",
                            variant: name,
                            linear,
                            pass: pass.name(),
                            m,
                            n,
                            k,
                            repeat,
                            seconds,
                        };
                        super::print(out, &line)?;
                    }
                }
            }
            for (name, quantiser, spec) in &preparations {
                let elements = tokens * outputs;
                let words = |tensor| Some(StreamKey { seed: 1, step: tensor, ..Default::default() }.stream());
                let side = |buffer, tensor| OperandSide {
                    out: Some(buffer),
                    rounding: (spec.rounding != Rounding::NearestEven).then(|| words(tensor)).flatten(),
                    scale: (element(spec) != Element::Bf16).then_some((&room.scales, 0)),
                    ..OperandSide::default()
                };
                let sides = (side(&room.left, 0), side(&room.right, 1));
                let seconds = timed(gpu, || quantiser.run((&room.dy, 0), (tokens, outputs), sides.0, sides.1).map_err(machine))?;
                let written = if element(spec) == Element::Bf16 { 4 } else { 2 };
                if repeat > 0 {
                    let line = PrepareLine {
                        schema: "mxfp4-kernel-time/1",
                        kind: "prepare_time",
                        variant: name,
                        linear,
                        rows: tokens,
                        columns: outputs,
                        bytes: elements * (2 + written),
                        repeat,
                        seconds,
                    };
                    super::print(out, &line)?;
                }
            }
        }
        let half = room.left.length().min(room.right.length()).min(1 << 29);
        let driver = gpu.driver();
        let started = driver.record().map_err(machine)?;
        room.copy(half).map_err(machine)?;
        let ended = driver.record().map_err(machine)?;
        let seconds = driver.elapsed(started, ended).map_err(machine)?;
        if repeat > 0 {
            let (linear, variant) = ("all", "copy");
            let line = PrepareLine {
                schema: "mxfp4-kernel-time/1",
                kind: "copy_time",
                variant,
                linear,
                rows: 1,
                columns: half,
                bytes: 2 * half,
                repeat,
                seconds,
            };
            super::print(out, &line)?;
        }
    }
    Ok(())
}

/// Seconds on the device of what `work` queues.
fn timed(gpu: &Gpu, work: impl FnOnce() -> Result<(), TrainerError>) -> Result<f64, TrainerError> {
    let started = gpu.driver().record().map_err(machine)?;
    work()?;
    let ended = gpu.driver().record().map_err(machine)?;
    gpu.driver().elapsed(started, ended).map_err(machine)
}

impl Room {
    fn new(gpu: &Gpu, run: &RunFile) -> Result<Self, TrainerError> {
        let tokens = run.tokens_per_step();
        let linears = run.model.linears();
        let widest = |pick: fn(&(&str, usize, usize)) -> usize| linears.iter().map(pick).max().unwrap_or_default();
        let (outs, ins, weight) = (widest(|l| l.1), widest(|l| l.2), widest(|l| l.1 * l.2));
        let random = |tensor: u64, count: usize| {
            let stream = StreamKey { seed: run.run.seed, step: tensor, pass: 65, ..Default::default() }.stream();
            // A million normal numbers, over and over: zeros would be faster than real data, the same million is not.
            let period: Vec<Bf16> = (0..1 << 20).map(|index| Bf16(kernels::format::bf16::encode(stream.normal(index)))).collect();
            let values: Vec<Bf16> = period.iter().copied().cycle().take(count).collect();
            gpu.upload(&values).map_err(machine)
        };
        let largest = (tokens * outs.max(ins)).max(weight);
        let scales = TensorScales::new(gpu, &[0.0, 0.0], 0).map_err(machine)?;
        let mut room = Self {
            x: random(0, tokens * ins)?,
            w: random(1, weight)?,
            dy: random(2, tokens * outs)?,
            left: gpu.buffer(2 * largest).map_err(machine)?,
            right: gpu.buffer(2 * largest).map_err(machine)?,
            out_bf16: gpu.buffer(largest).map_err(machine)?,
            out_f32: gpu.buffer(weight).map_err(machine)?,
            scales,
        };
        // What a delayed scale would remember of a normal matrix: any fixed scale costs the same.
        room.scales.set(0, 5.0, 448.0).map_err(machine)?;
        room.scales.set(1, 5.0, 448.0).map_err(machine)?;
        Ok(room)
    }

    fn copy(&self, bytes: usize) -> Result<(), GpuError> {
        self.left.copy_to(&self.right, bytes)
    }
}

/// Kernels of a variant: by row and by column, for the forward's specification and the gradient's.
struct Quantisers {
    forward: [Option<Quantiser>; 2],
    gradient: [Option<Quantiser>; 2],
}

impl Quantisers {
    fn new(gpu: &Gpu, variant: &Variant) -> Result<Self, TrainerError> {
        let make = |spec: &OperandSpec| -> Result<[Option<Quantiser>; 2], TrainerError> {
            if is_source(spec) {
                return Ok([None, None]);
            }
            let rows = Quantiser::new(gpu, Some(*spec), None).map_err(machine)?;
            let columns = Quantiser::new(gpu, None, Some(*spec)).map_err(machine)?;
            Ok([Some(rows), Some(columns)])
        };
        Ok(Self { forward: make(&variant.forward)?, gradient: make(&variant.gradient)? })
    }
}

/// Both operands of a gradient in one read: none, H16 and H32, to nearest and stochastically, and FP8.
fn preparations(gpu: &Gpu) -> Result<Vec<(String, Quantiser, OperandSpec)>, TrainerError> {
    let mut all = Vec::new();
    for (rounding, suffix) in [(Rounding::NearestEven, ""), (Rounding::Stochastic, "-sr")] {
        for size in [0, 16, 32] {
            let rotation = (size > 0).then_some(Rotation { size, signs: Signs::None });
            let spec = OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Floor, rounding, rotation };
            all.push((format!("mxfp4-h{size}{suffix}"), spec));
        }
    }
    if gpu.description().has_fp8 {
        let scale = ScaleRule::Delayed;
        all.push((
            "fp8".into(),
            OperandSpec { format: Format::E5m2, block: Block::Tensor, scale, rounding: Rounding::NearestEven, rotation: None },
        ));
    }
    let made = all.into_iter().map(|(name, spec)| Ok((name, Quantiser::new(gpu, Some(spec), Some(spec)).map_err(machine)?, spec)));
    made.collect()
}

/// Prepares both operands of a pass and multiplies them.
fn product(
    gpu: &Gpu,
    room: &Room,
    variant: &Variant,
    quantisers: &Quantisers,
    pass: Pass,
    (m, n, k): (usize, usize, usize),
) -> Result<(), TrainerError> {
    let transposed = [pass == Pass::Wgrad, pass != Pass::Fprop];
    let (first, second) = match pass {
        Pass::Fprop => (&room.x, &room.w),
        Pass::Dgrad => (&room.dy, &room.w),
        Pass::Wgrad => (&room.dy, &room.x),
    };
    let (spec, made) =
        if pass == Pass::Fprop { (&variant.forward, &quantisers.forward) } else { (&variant.gradient, &quantisers.gradient) };
    let axis = |transposed: bool| usize::from(transposed);
    let quantiser = &made[axis(transposed[0])];
    let left = Side { source: first, spec, out: &room.left, slot: 0, rows: m, k, transposed: transposed[0], quantiser };
    let quantiser = &quantisers.forward[axis(transposed[1])];
    let right =
        Side { source: second, spec: &variant.forward, out: &room.right, slot: 1, rows: n, k, transposed: transposed[1], quantiser };
    let (left, right) = (left.matrix(room)?, right.matrix(room)?);
    if pass == Pass::Wgrad {
        gpu.multiply(left, right, 1.0, None, &room.out_f32, 0).map_err(machine)
    } else {
        gpu.multiply(left, right, 1.0, None, &room.out_bf16, 0).map_err(machine)
    }
}

impl Side<'_> {
    fn matrix(&self, room: &Room) -> Result<kernels::gpu::Matrix, TrainerError> {
        let Some(quantiser) = self.quantiser else {
            return self.source.matrix(0, self.rows, self.k, self.transposed).map_err(machine);
        };
        let scale = (element(self.spec) != Element::Bf16).then_some((&room.scales, self.slot));
        let side = OperandSide { out: Some(self.out), scale, amax: scale, ..OperandSide::default() };
        let none = OperandSide::default();
        let (size, rows, columns) = if self.transposed { ((self.k, self.rows), none, side) } else { ((self.rows, self.k), side, none) };
        quantiser.run((self.source, 0), size, rows, columns).map_err(machine)?;
        prepared(self.spec, self.out, self.rows, self.k, scale).map_err(machine)
    }
}
