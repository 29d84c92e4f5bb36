//! Operands of the products that are timed: random sources, where they are prepared to, and which side of which product they are.

use contract::recipe::{Format, OperandSpec, Rounding, ScaleRule};
use contract::run_file::RunFile;
use kernels::gpu::{Bf16, Buffer, Element, Factor, Gpu, GpuError, OperandSide, PackedMatrix, ScaleLayout, TensorScales, element};
use kernels::random::{Stream, StreamKey};

use super::super::shapes::{Largest, Product, Variant, mxfp4, plain};
use super::machine;
use super::preparer::Preparer;
use crate::error::TrainerError;
use crate::streams::Pass;

/// Normal numbers: a million of them, over and over. Zeros would be faster than real data, the same million is not.
pub(super) fn random(gpu: &Gpu, tensor: u64, count: usize, seed: u64) -> Result<Buffer<Bf16>, TrainerError> {
    let stream = StreamKey { seed, step: tensor, pass: 65, ..Default::default() }.stream();
    let period: Vec<Bf16> = (0..count.min(1 << 20) as u64).map(|index| Bf16(kernels::format::bf16::encode(stream.normal(index)))).collect();
    let values: Vec<Bf16> = period.iter().copied().cycle().take(count).collect();
    gpu.upload(&values).map_err(machine)
}

/// What delayed scales would remember of normal matrices: any fixed scale costs the same.
pub(super) fn scales(gpu: &Gpu, slots: usize) -> Result<TensorScales, TrainerError> {
    let mut scales = TensorScales::new(gpu, &vec![0.0; slots], 0).map_err(machine)?;
    for slot in 0..slots {
        scales.set(slot, 5.0, 448.0).map_err(machine)?;
    }
    Ok(scales)
}

pub(super) struct Room {
    pub(super) x: Buffer<Bf16>,
    pub(super) w: Buffer<Bf16>,
    pub(super) dy: Buffer<Bf16>,
    pub(super) left: Buffer<u8>,
    pub(super) right: Buffer<u8>,
    pub(super) out_bf16: Buffer<Bf16>,
    pub(super) out_f32: Buffer<f32>,
    pub(super) scales: TensorScales,
}

impl Room {
    pub(super) fn new(gpu: &Gpu, run: &RunFile) -> Result<Self, TrainerError> {
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
    pub(super) fn sides<'a>(&'a self, variant: &'a Variant, quantisers: &'a Quantisers, product: &Product) -> [Side<'a>; 2] {
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
pub(super) struct Quantisers {
    pub(super) forward: [Preparer; 2],
    pub(super) gradient: [Preparer; 2],
}

impl Quantisers {
    pub(super) fn new(gpu: &Gpu, variant: &Variant) -> Result<Self, TrainerError> {
        let make = |spec: &OperandSpec| -> Result<[Preparer; 2], TrainerError> {
            Ok([Preparer::new(gpu, Some(*spec), None)?, Preparer::new(gpu, None, Some(*spec))?])
        };
        Ok(Self { forward: make(&variant.forward)?, gradient: make(&variant.gradient)? })
    }
}

/// A way of preparing a gradient.
pub(super) struct Preparation {
    pub(super) name: String,
    pub(super) orientation: &'static str,
    pub(super) spec: OperandSpec,
    pub(super) preparer: Preparer,
}

/// None, H16 and H32, to nearest and stochastically, and FP8; along the rows, the columns, and both in one read.
pub(super) fn preparations(gpu: &Gpu) -> Result<Vec<Preparation>, TrainerError> {
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
    pub(super) fn written_bytes(&self, elements: usize) -> usize {
        let one = self.preparer.bytes(&self.spec, elements);
        if self.orientation == "both" { 2 * one } else { one }
    }

    pub(super) fn run(&self, room: &Room, size: (usize, usize)) -> Result<(), TrainerError> {
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
pub(super) struct Side<'a> {
    pub(super) source: &'a Buffer<Bf16>,
    pub(super) spec: &'a OperandSpec,
    pub(super) out: &'a Buffer<u8>,
    pub(super) slot: usize,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) transposed: bool,
    pub(super) preparer: &'a Preparer,
}

impl Side<'_> {
    /// Queues its preparation, if it has one.
    pub(super) fn prepare(&self, room: &Room) -> Result<Factor, TrainerError> {
        let scale = self.scale(room);
        let (size, [rows, columns]) = self.oriented(OperandSide { out: Some(self.out), scale, amax: scale, ..OperandSide::default() });
        self.preparer.run((self.source, 0), size, rows, columns)?;
        self.prepared(room)
    }

    /// For the vendor's product of packed codes. Scales by rows are as they were prepared last, swizzled ones are prepared here.
    pub(super) fn packed(&self, layout: ScaleLayout) -> Result<PackedMatrix, GpuError> {
        let (Preparer::Packed(quantiser), ScaleLayout::Swizzled) = (self.preparer, layout) else {
            return PackedMatrix::new(self.out, self.rows, self.k);
        };
        let matrix = PackedMatrix::swizzled(self.out, self.rows, self.k)?;
        let (size, [rows, columns]) = self.oriented(OperandSide { out: Some(self.out), ..OperandSide::default() });
        quantiser.clone().swizzled().run((self.source, 0), size, rows, columns)?;
        Ok(matrix)
    }

    /// As it was prepared last.
    pub(super) fn prepared(&self, room: &Room) -> Result<Factor, TrainerError> {
        if self.preparer.is_source() {
            return self.source.matrix(0, self.rows, self.k, self.transposed).map(Factor::Library).map_err(machine);
        }
        self.preparer.factor(self.spec, self.out, (self.rows, self.k), self.scale(room))
    }

    /// Its tensor's scale, where it has one.
    fn scale<'a>(&self, room: &'a Room) -> Option<(&'a TensorScales, usize)> {
        needs_fp8(self.spec).then_some((&room.scales, self.slot))
    }

    /// Sizes of the source, and `side` along its rows or its columns.
    fn oriented<'a>(&self, side: OperandSide<'a>) -> ((usize, usize), [OperandSide<'a>; 2]) {
        let none = OperandSide::default();
        if self.transposed { ((self.k, self.rows), [none, side]) } else { ((self.rows, self.k), [side, none]) }
    }
}

pub(super) fn needs_fp8(spec: &OperandSpec) -> bool {
    matches!(element(spec), Element::E4m3 | Element::E5m2)
}
