//! Prepared operands, bit for bit against `kernels::quantise::prepare_reference`.

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::gpu::{Bf16, Element, Elementwise, Gpu, Made, Norm, OperandSide, Quantiser, TensorScales, element};
use kernels::hadamard;
use kernels::quantise::{self, Prepared, Randomness, Source};
use kernels::random::{Draw, Stream};

use super::{Extent, Report, gpu_error, poisoned, stream, to_bf16};
use crate::error::TrainerError;

/// Rows and columns of sources: less than a tile, whole tiles, ragged ones, and rows that are no multiple of eight.
const SHAPES: [(usize, usize); 5] = [(32, 32), (128, 256), (96, 160), (65, 136), (33, 50)];

fn spec(format: Format, scale: ScaleRule, rounding: Rounding, rotation: Option<(usize, Signs)>) -> OperandSpec {
    let block = if matches!(scale, ScaleRule::Current | ScaleRule::Delayed | ScaleRule::None) { Block::Tensor } else { Block::Row32 };
    OperandSpec { format, block, scale, rounding, rotation: rotation.map(|(size, signs)| Rotation { size, signs }) }
}

/// Every format, scale rule and rounding once at least, every rotation with and without signs.
fn specs() -> Vec<OperandSpec> {
    use Format::{Bf16, E2m1, E4m3, E5m2};
    use Rounding::{NearestEven, Stochastic, StochasticPrescaled};
    let mut all = Vec::new();
    for rule in [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil] {
        for rounding in [NearestEven, Stochastic, StochasticPrescaled] {
            all.push(spec(E2m1, rule, rounding, None));
        }
    }
    for size in hadamard::SIZES {
        all.push(spec(E2m1, ScaleRule::Floor, NearestEven, Some((size, Signs::None))));
        all.push(spec(E2m1, ScaleRule::Floor, Stochastic, Some((size, Signs::PerStep))));
    }
    for format in [E4m3, E5m2] {
        all.push(spec(format, ScaleRule::Floor, NearestEven, None));
        all.push(spec(format, ScaleRule::Even, Stochastic, Some((16, Signs::Fixed))));
        all.push(spec(format, ScaleRule::Current, NearestEven, None));
        all.push(spec(format, ScaleRule::Current, Stochastic, Some((32, Signs::None))));
    }
    all.push(spec(Bf16, ScaleRule::None, Stochastic, None));
    all.push(spec(Bf16, ScaleRule::None, NearestEven, Some((64, Signs::PerStep))));
    let squares: Vec<_> = [all[0], all[1], all[9], all[12]].map(|spec| OperandSpec { block: Block::Tile32, ..spec }).into();
    all.extend(squares);
    all
}

/// One of each kind: nearest, stochastic, rotated, FP8 in blocks and with one scale, a square.
fn few_specs() -> Vec<OperandSpec> {
    use Format::{E2m1, E4m3};
    use Rounding::{NearestEven, Stochastic};
    let plain = spec(E2m1, ScaleRule::Even, NearestEven, None);
    vec![
        plain,
        spec(E2m1, ScaleRule::Floor, Stochastic, Some((16, Signs::PerStep))),
        spec(E4m3, ScaleRule::Floor, NearestEven, Some((32, Signs::None))),
        spec(E4m3, ScaleRule::Current, NearestEven, None),
        OperandSpec { block: Block::Tile32, ..plain },
    ]
}

/// BF16 values over many magnitudes, with zeros, subnormals and the largest; `broken` puts NaN and infinity into a few blocks too.
fn source(stream: Stream, count: usize, broken: bool) -> Vec<f32> {
    let special = [0.0, -0.0, f32::from_bits(1 << 16), f32::from_bits(0x007F_0000), f32::from_bits(0x7F7F_0000), -1.0, 6.0, 0.25];
    (0..count as u64)
        .map(|index| {
            let word = stream.word(3 * index + 1);
            let scale = f32::from_bits((107 + (stream.word(index / 40) % 40)) << 23);
            match word % 101 {
                0 => special[word as usize / 101 % special.len()],
                1 if broken && index % 7 == 0 => f32::NAN,
                2 if broken && index % 11 == 0 => f32::NEG_INFINITY,
                _ => kernels::format::bf16::round(stream.normal(index) * scale),
            }
        })
        .collect()
}

/// All specifications on all shapes, rows and columns from one read and each alone.
pub(super) fn check(gpu: &Gpu, seed: u64, extent: Extent, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let (specs, shapes) = match extent {
        Extent::All => (specs(), &SHAPES[..]),
        Extent::Quick => (few_specs(), &[(32, 32), (65, 136)][..]),
    };
    for (number, spec) in specs.into_iter().enumerate() {
        for &(rows, columns) in shapes {
            let fits = |k: usize| spec.validate(k).is_ok();
            for broken in [false, true] {
                // A broken element makes a tensor's scale NaN: everything is, and there is nothing left to compare.
                if broken && spec.block == Block::Tensor && spec.format != Format::Bf16 {
                    continue;
                }
                let words = stream(seed, number as u32, (rows * 1000 + columns) as u32);
                let values = source(words, rows * columns, broken);
                for (along_rows, along_columns) in [(fits(columns), fits(rows)), (fits(columns), false), (false, fits(rows))] {
                    if along_rows || along_columns {
                        compare(gpu, &spec, &values, (rows, columns), (along_rows, along_columns), (seed, Draw::Own), report)?;
                    }
                }
            }
        }
    }
    // Defects of random words. What else a defect does are other arguments of the same kernels, and steps of its recipe show that.
    let stochastic = spec(Format::E2m1, ScaleRule::Floor, Rounding::Stochastic, None);
    for (number, draw) in [Draw::Pair, Draw::Low16].into_iter().enumerate() {
        for &(rows, columns) in shapes {
            let values = source(stream(seed, 910 + number as u32, (rows * 1000 + columns) as u32), rows * columns, false);
            compare(gpu, &stochastic, &values, (rows, columns), (true, true), (seed, draw), report)?;
        }
    }
    for (number, spec) in few_specs().into_iter().filter(|spec| spec.block != Block::Tile32).enumerate() {
        for along_columns in [false, true] {
            made_as_stored(gpu, &spec, along_columns, stream(seed, 900, number as u32), report)?;
        }
    }
    Ok(())
}

/// What is made from gate and up, or from a norm's input, while it is read, against the same from what SwiGLU and RMSNorm store.
fn made_as_stored(gpu: &Gpu, spec: &OperandSpec, along_columns: bool, words: Stream, report: &mut Report<'_>) -> Result<(), TrainerError> {
    let (rows, columns) = (160, 224);
    let count = rows * columns;
    let normals = |k1: u32, count: usize, deviation: f32| super::normals(Stream { k1, ..words }, count, deviation);
    let (gate_up, stream) = (to_bf16(gpu, &normals(1, 2 * count, 3.0))?, to_bf16(gpu, &normals(2, count, 2.0))?);
    let parameters = gpu.upload(&normals(3, 8 + columns, 1.0)).map_err(gpu_error)?;
    let (mut normed, mut hidden) = (poisoned::<Bf16>(gpu, count)?, poisoned::<Bf16>(gpu, count)?);
    let mut inverse_rms = poisoned::<f32>(gpu, rows)?;
    let gain = (&parameters, 8);
    let norm = Norm::new(gpu, columns).map_err(gpu_error)?;
    norm.forward(&stream, gain, 1e-5, &mut normed, &mut inverse_rms, rows).map_err(gpu_error)?;
    Elementwise::new(gpu).and_then(|kernels| kernels.swiglu(&gate_up, &mut hidden, rows, columns)).map_err(gpu_error)?;
    // RMSNorm without its result leaves the same factors.
    let mut alone = poisoned::<f32>(gpu, rows)?;
    let mut nothing = gpu.buffer::<Bf16>(0).map_err(gpu_error)?;
    norm.forward(&stream, gain, 1e-5, &mut nothing, &mut alone, rows).map_err(gpu_error)?;

    let (along_rows, along_columns) = ((!along_columns).then_some(*spec), along_columns.then_some(*spec));
    let quantiser = Quantiser::of_made(gpu, along_rows, along_columns).map_err(gpu_error)?;
    let mut scales = TensorScales::new(gpu, &[0.0], 0).map_err(gpu_error)?;
    scales.set(0, 3.0, 448.0).map_err(gpu_error)?;
    let rotation = spec.rotation.filter(|rotation| rotation.signs != Signs::None);
    let signs = rotation.map(|rotation| hadamard::signs(words, rotation.size));
    let prepared = |source: Made<'_>| {
        let out = poisoned::<u8>(gpu, 2 * count)?;
        let side = OperandSide {
            out: Some(&out),
            rounding: Some(words),
            signs: signs.as_deref(),
            amax: None,
            scale: (element(spec) != Element::Bf16).then_some((&scales, 0)),
        };
        let sides = if along_columns.is_some() { (OperandSide::default(), side) } else { (side, OperandSide::default()) };
        quantiser.run(source, (rows, columns), sides.0, sides.1).map_err(gpu_error)?;
        out.to_vec().map_err(gpu_error)
    };
    let axis = if along_columns.is_some() { "columns" } else { "rows" };
    for (what, made, stored) in [
        ("RMSNorm", Made::Normed { stream: &stream, inverse_rms: &alone, gain }, Made::Stored(&normed, 0)),
        ("SwiGLU", Made::Gated { gate_up: &gate_up }, Made::Stored(&hidden, 0)),
    ] {
        let differ = prepared(made)?.iter().zip(prepared(stored)?).filter(|&(&a, b)| a != b).count() as f64;
        let name = format!("{:?} {:?} {:?} {}", spec.format, spec.scale, spec.rounding, rotation_text(spec));
        report(super::compared("operand", name, format!("{what} made while it is read, along its {axis}"), count, differ, 0.0))?;
    }
    Ok(())
}

/// One source, prepared on both devices.
fn compare(
    gpu: &Gpu,
    spec: &OperandSpec,
    values: &[f32],
    (rows, columns): (usize, usize),
    (along_rows, along_columns): (bool, bool),
    (seed, draw): (u64, Draw),
    report: &mut Report<'_>,
) -> Result<(), TrainerError> {
    let on_device = to_bf16(gpu, values)?;
    let quantiser = Quantiser::drawing(gpu, draw, false, along_rows.then_some(*spec), along_columns.then_some(*spec)).map_err(gpu_error)?;
    let is_tensor = element(spec) != Element::Bf16;
    let scales = TensorScales::new(gpu, &[0.0, 0.0], 0).map_err(gpu_error)?;
    let outs = [poisoned::<u8>(gpu, 2 * values.len())?, poisoned::<u8>(gpu, 2 * values.len())?];
    let words = [1, 2].map(|which| Stream { draw, ..stream(seed, 1, which) });
    let rotation = spec.rotation.filter(|rotation| rotation.signs != Signs::None);
    let signs = [3, 4].map(|which| rotation.map(|rotation| hadamard::signs(stream(seed, 1, which), rotation.size)));
    let side = |which: usize| OperandSide {
        out: Some(&outs[which]),
        rounding: Some(words[which]),
        signs: signs[which].as_deref(),
        amax: None,
        scale: is_tensor.then_some((&scales, which)),
    };
    let wanted = [along_rows, along_columns];
    if is_tensor {
        let measured = |which: usize| OperandSide { out: None, scale: None, amax: Some((&scales, which)), ..side(which) };
        let sides = [0, 1].map(|which| if wanted[which] { measured(which) } else { OperandSide::default() });
        quantiser.run(Made::Stored(&on_device, 0), (rows, columns), sides[0], sides[1]).map_err(gpu_error)?;
        for which in [0, 1] {
            let largest = quantise::mini_float(spec.format).map_or(0.0, |format| format.largest);
            scales.scale_now(which, largest).map_err(gpu_error)?;
        }
    }
    let sides = [0, 1].map(|which| if wanted[which] { side(which) } else { OperandSide::default() });
    quantiser.run(Made::Stored(&on_device, 0), (rows, columns), sides[0], sides[1]).map_err(gpu_error)?;
    for which in [0, 1] {
        if !wanted[which] {
            continue;
        }
        let (operand_rows, k) = if which == 0 { (rows, columns) } else { (columns, rows) };
        let source = Source { values, rows: operand_rows, k, transposed: which == 1 };
        let randomness = Randomness { rounding: Some(words[which]), signs: signs[which].as_deref() };
        let (prepared, _) = quantise::prepare_reference(source, spec, randomness, None).map_err(TrainerError::kernel)?;
        let bytes = outs[which].to_vec().map_err(gpu_error)?;
        let differ = differing(&prepared, spec, &bytes);
        let drawn = if draw == Draw::Own { String::new() } else { format!(", words drawn {draw:?}") };
        let name = format!("{:?} {:?} {:?} {:?} {}{drawn}", spec.format, spec.block, spec.scale, spec.rounding, rotation_text(spec));
        let axis = if which == 0 { "rows" } else { "columns" };
        let together = if along_rows && along_columns { ", both in one read" } else { "" };
        report(super::compared(
            "operand",
            name,
            format!("[{rows}, {columns}] along its {axis}{together}"),
            values.len(),
            differ as f64,
            0.0,
        ))?;
    }
    Ok(())
}

fn rotation_text(spec: &OperandSpec) -> String {
    spec.rotation.map_or_else(|| "unrotated".into(), |rotation| format!("H{} signs {:?}", rotation.size, rotation.signs).to_lowercase())
}

/// Elements whose bits differ; any NaN is as good as any other.
fn differing(prepared: &Prepared, spec: &OperandSpec, bytes: &[u8]) -> usize {
    let wanted = match prepared {
        Prepared::Mxfp4(operand) => quantise::decode_mxfp4(operand),
        Prepared::Float(float) => float.values.clone(),
    };
    let found = |index: usize| match (element(spec), quantise::mini_float(spec.format)) {
        (Element::Bf16, _) | (_, None) => f32::from_bits(u32::from(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])) << 16),
        (_, Some(format)) => format.decode(bytes[index]),
    };
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    wanted.iter().enumerate().filter(|&(index, &wanted)| !same(found(index), wanted)).count()
}
