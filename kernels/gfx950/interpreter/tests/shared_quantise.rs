//! quantise.cu, which CUDA and gfx950 share, executed against the scalar reference: every bit, and the largest magnitudes it collects.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Arguments, bf16_bytes, bf16_of, compile, f32_bytes, normals, run_of, u32_bytes};
use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use gfx950_interpreter::Order;
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use kernels::hadamard;
use kernels::quantise::{self, Prepared, Randomness, Source, prepare_reference, rotated};
use kernels::random::{Draw, Stream};

use Format::{Bf16, E2m1, E4m3, E5m2};
use Rounding::{NearestEven, Stochastic, StochasticPrescaled};

fn spec(format: Format, scale: ScaleRule, rounding: Rounding, rotation: Option<(usize, Signs)>) -> OperandSpec {
    let block = if matches!(scale, ScaleRule::Current | ScaleRule::None) { Block::Tensor } else { Block::Row32 };
    OperandSpec { format, block, scale, rounding, rotation: rotation.map(|(size, signs)| Rotation { size, signs }) }
}

/// The definition of ROWS or COLUMNS, as kernels/src/gpu/quantise.rs writes it.
fn definition(spec: Option<&OperandSpec>) -> String {
    let Some(spec) = spec else { return "None".into() };
    let format = [E2m1, E4m3, E5m2, Bf16].iter().position(|format| *format == spec.format).unwrap();
    let rounding = [NearestEven, Stochastic, StochasticPrescaled].iter().position(|rounding| *rounding == spec.rounding).unwrap();
    let rule = [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil].iter().position(|rule| *rule == spec.scale).unwrap_or(0);
    let tensor = is_tensor(spec);
    format!("Spec<{format},{rounding},{rule},{},{tensor}>", spec.rotation.map_or(0, |rotation| rotation.size))
}

/// Whether the operand is FP8 codes with one F32 scale; anything else is written as BF16 values.
fn is_tensor(spec: &OperandSpec) -> bool {
    spec.block == Block::Tensor && spec.format != Bf16
}

/// BF16 values over many magnitudes, with zeros, subnormals and the largest; `broken`: NaN and infinity too.
fn source(count: usize, broken: bool) -> Vec<f32> {
    let stream = Stream::new(0xA5, count as u32);
    let special = [0.0, -0.0, f32::from_bits(1 << 16), f32::from_bits(0x007F_0000), f32::from_bits(0x7F7F_0000), -1.0, 6.0, 0.25];
    let value = |index: u64| {
        let word = stream.word(3 * index + 1);
        let scale = f32::from_bits((107 + (stream.word(index / 40) % 40)) << 23);
        match word % 101 {
            0 => special[word as usize / 101 % special.len()],
            1 if broken && index.is_multiple_of(3) => f32::NAN,
            2 if broken && index.is_multiple_of(5) => f32::NEG_INFINITY,
            _ => kernels::format::bf16::round(stream.normal(index) * scale),
        }
    };
    (0..count as u64).map(value).collect()
}

/// One operand: what is asked for, its random inputs, and where its parts lie on the device.
struct Operand<'a> {
    spec: &'a OperandSpec,
    stream: Stream,
    signs: Option<Vec<f32>>,
    out: Address,
    amax: Address,
    scale: Option<Address>,
}

impl<'a> Operand<'a> {
    fn new(memory: &mut Memory, spec: &'a OperandSpec, elements: usize, which: u32) -> Self {
        let signs = spec.rotation.filter(|rotation| rotation.signs != Signs::None);
        let bytes = if is_tensor(spec) { elements } else { 2 * elements };
        Self {
            spec,
            stream: Stream::new(11 + which, 0x1234_5678),
            signs: signs.map(|rotation| hadamard::signs(Stream::new(3, which), rotation.size)),
            out: memory.output("operand", bytes),
            amax: memory.updated("amax", &[0; 4]),
            scale: None,
        }
    }

    fn arguments(&self, arguments: Arguments, measure_only: bool) -> Arguments {
        let mut bits = [0u32; 4];
        for (index, sign) in self.signs.iter().flatten().enumerate() {
            bits[index / 32] |= u32::from(*sign < 0.0) << (index % 32);
        }
        let arguments = arguments.address((!measure_only).then_some(self.out)).at(self.amax).address(self.scale.filter(|_| !measure_only));
        bits.into_iter().fold(arguments.u32(self.stream.k0).u32(self.stream.k1), Arguments::u32)
    }

    /// What was collected, and every element, against the reference.
    fn check(&self, memory: &Memory, source: Source<'_>, what: &str) {
        let randomness = Randomness { rounding: Some(self.stream), signs: self.signs.as_deref() };
        let amax = rotated(&source, self.spec, self.signs.as_deref()).iter().map(|x| x.to_bits() & 0x7FFF_FFFF).max().unwrap();
        let found = u32::from_le_bytes(memory.bytes(self.amax).unwrap().try_into().unwrap());
        let is_nan = |bits: u32| f32::from_bits(bits).is_nan();
        assert!(found == amax || (is_nan(found) && is_nan(amax)), "{what}: largest magnitude {found:#x}, {amax:#x} wanted");
        let (prepared, _) = prepare_reference(source, self.spec, randomness, None).unwrap();
        let wanted = match &prepared {
            Prepared::Mxfp4(operand) => quantise::decode_mxfp4(operand),
            Prepared::Float(float) => float.values.clone(),
        };
        let bytes = memory.bytes(self.out).unwrap();
        for (index, &wanted) in wanted.iter().enumerate() {
            let found = if is_tensor(self.spec) {
                quantise::mini_float(self.spec.format).unwrap().decode(bytes[index])
            } else {
                f32::from_bits(u32::from(bytes[2 * index]) << 16 | u32::from(bytes[2 * index + 1]) << 24)
            };
            let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
            assert!(same, "{what}: element {index} is {found}, {wanted} wanted");
        }
    }
}

/// The side of an operand that is not wanted.
fn absent(arguments: Arguments) -> Arguments {
    (0..6).fold(arguments, |arguments, _| arguments.u64(0))
}

/// Both sides, along the rows first.
fn sides_of(arguments: Arguments, operands: &[Option<Operand<'_>>; 2], measure_only: bool) -> Arguments {
    operands.iter().fold(arguments, |arguments, operand| match operand {
        Some(operand) => operand.arguments(arguments, measure_only),
        None => absent(arguments),
    })
}

fn object(rows: Option<&OperandSpec>, columns: Option<&OperandSpec>, extra: &[&str]) -> Option<CodeObject> {
    let defines = [format!("-DROWS={}", definition(rows)), format!("-DCOLUMNS={}", definition(columns))];
    let all: Vec<&str> = defines.iter().map(String::as_str).chain(extra.iter().copied()).collect();
    compile("../device/quantise.cu", &all).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

/// Defects of random words, as kernels/src/gpu/quantise.rs writes them.
const DRAWS: [(&str, Draw); 2] = [("-DDRAW=PAIR", Draw::Pair), ("-DDRAW=LOW16", Draw::Low16)];

/// A shape through `quantise`, and for tensor scales first the measurement of the largest magnitude.
fn both_ways(
    rows_spec: Option<&OperandSpec>,
    columns_spec: Option<&OperandSpec>,
    (rows, columns): (usize, usize),
    broken: bool,
    order: Order,
    extra: &[&str],
) {
    let Some(object) = object(rows_spec, columns_spec, extra) else { return };
    let values = source(rows * columns, broken);
    let mut memory = Memory::new();
    let place = memory.input("source", &bf16_bytes(&values));
    let mut operands =
        [rows_spec, columns_spec].map(|spec| spec.map(|spec| Operand::new(&mut memory, spec, rows * columns, spec.rounding as u32)));
    let draw = DRAWS.iter().find(|(definition, _)| extra.contains(definition)).map_or(Draw::Own, |(_, draw)| *draw);
    operands.iter_mut().flatten().for_each(|operand| operand.stream.draw = draw);
    let rotation = |spec: Option<&OperandSpec>| spec.and_then(|spec| spec.rotation).map_or(0, |rotation| rotation.size);
    let tile = if rotation(rows_spec).max(rotation(columns_spec)) > 64 { 128 } else { 64 };
    let grid = [columns.div_ceil(tile) as u32, rows.div_ceil(tile) as u32, 1];
    let run = |memory: &mut Memory, operands: &[Option<Operand<'_>>; 2], measure_only: bool| {
        let arguments = Arguments::default().at(place).u32(rows as u32).u32(columns as u32);
        let arguments = sides_of(arguments, operands, measure_only).u64(0).u64(0);
        run_of(&object, "quantise", memory, grid, (256, 0), &arguments, order).unwrap();
    };
    if operands.iter().flatten().any(|operand| is_tensor(operand.spec)) {
        run(&mut memory, &operands, true);
        for operand in operands.iter_mut().flatten().filter(|operand| is_tensor(operand.spec)) {
            let amax = f32::from_le_bytes(memory.bytes(operand.amax).unwrap().try_into().unwrap());
            let scale = quantise::tensor_scale(amax, &quantise::mini_float(operand.spec.format).unwrap()).0;
            operand.scale = Some(memory.input("scale", &f32_bytes(&[scale])));
            memory.write(operand.amax, &[0; 4]).unwrap();
        }
    }
    run(&mut memory, &operands, false);
    for (transposed, operand) in [false, true].into_iter().zip(&operands) {
        let Some(operand) = operand else { continue };
        let (operand_rows, k) = if transposed { (columns, rows) } else { (rows, columns) };
        let what = format!("{} of [{rows}, {columns}], broken {broken}, transposed {transposed}", definition(Some(operand.spec)));
        operand.check(&memory, Source { values: &values, rows: operand_rows, k, transposed }, &what);
    }
}

/// Every order of waves on a small shape, then ragged shapes: those that rows of eight do not divide have element-wise edges.
fn shapes(rows_spec: Option<OperandSpec>, columns_spec: Option<OperandSpec>, shapes: &[(usize, usize)]) {
    shapes_with(rows_spec, columns_spec, shapes, &[]);
}

fn shapes_with(rows_spec: Option<OperandSpec>, columns_spec: Option<OperandSpec>, shapes: &[(usize, usize)], extra: &[&str]) {
    let specs = (rows_spec.as_ref(), columns_spec.as_ref());
    for (number, &shape) in shapes.iter().enumerate() {
        let breakable = !specs.0.into_iter().chain(specs.1).any(is_tensor);
        for broken in [false, true] {
            if !broken || (breakable && number == 0) {
                both_ways(specs.0, specs.1, shape, broken, Order::ALL[number % 3], extra);
            }
        }
    }
}

#[test]
fn mxfp4_with_rotations_signs_and_every_rounding() {
    let h16 = |rounding, signs| Some(spec(E2m1, ScaleRule::Floor, rounding, Some((16, signs))));
    shapes(h16(NearestEven, Signs::None), h16(Stochastic, Signs::PerStep), &[(32, 96), (96, 64), (128, 160)]);
    shapes(Some(spec(E2m1, ScaleRule::Floor, StochasticPrescaled, Some((64, Signs::Fixed)))), None, &[(5, 64), (3, 192)]);
    let h128 = Some(spec(E2m1, ScaleRule::Floor, NearestEven, Some((128, Signs::PerStep))));
    shapes(h128, h128, &[(128, 128)]);
}

#[test]
fn every_scale_rule_and_rows_that_eight_does_not_divide() {
    let (even, ceil) = (spec(E2m1, ScaleRule::Even, NearestEven, Some((32, Signs::None))), spec(E2m1, ScaleRule::Ceil, NearestEven, None));
    shapes(Some(even), Some(ceil), &[(64, 96), (33, 160), (70, 32)]);
    shapes(None, Some(spec(E2m1, ScaleRule::Floor, Stochastic, None)), &[(33, 50), (50, 33)]);
}

/// Rows of odd length, too: a pair is one of indices in the operand, not of columns.
#[test]
fn defects_of_random_words_are_those_of_the_reference() {
    for (definition, _) in DRAWS {
        let stochastic = Some(spec(E2m1, ScaleRule::Floor, Stochastic, None));
        let rotated = Some(spec(E2m1, ScaleRule::Even, StochasticPrescaled, Some((16, Signs::PerStep))));
        shapes_with(stochastic, stochastic, &[(32, 96), (33, 50), (51, 35)], &[definition]);
        shapes_with(rotated, stochastic, &[(64, 96)], &[definition]);
    }
}

/// What NVIDIA's BF16 pairs do (gfx950 has none, they are two F32 operations here): values that stay BF16 from end to end.
#[test]
fn pairs_of_bf16_round_as_single_values_do() {
    let plain = |rule| Some(spec(E2m1, rule, NearestEven, None));
    let rotated = Some(spec(E2m1, ScaleRule::Floor, NearestEven, Some((16, Signs::PerStep))));
    let fp8 = Some(spec(E4m3, ScaleRule::Current, NearestEven, None));
    let pairs = ["-DPAIRS=1"];
    shapes_with(plain(ScaleRule::Floor), plain(ScaleRule::Even), &[(64, 96), (33, 160), (70, 32)], &pairs);
    shapes_with(plain(ScaleRule::Ceil), plain(ScaleRule::Ceil), &[(96, 64), (50, 33)], &pairs);
    shapes_with(rotated, plain(ScaleRule::Floor), &[(64, 64)], &pairs);
    shapes_with(fp8, fp8, &[(40, 72), (33, 50)], &pairs);
}

#[test]
fn fp8_with_block_and_tensor_scales_and_stochastic_bf16() {
    shapes(
        Some(spec(E4m3, ScaleRule::Current, NearestEven, None)),
        Some(spec(E5m2, ScaleRule::Current, Stochastic, None)),
        &[(40, 72), (33, 50)],
    );
    shapes(
        Some(spec(E4m3, ScaleRule::Floor, NearestEven, None)),
        Some(spec(Bf16, ScaleRule::None, Stochastic, None)),
        &[(32, 64), (65, 136)],
    );
}

/// A source that is made while it is read gives what the stored one gives: RMSNorm's result, and SwiGLU's, either way and both ways in one
/// read. Rows beyond a tile, columns that end within one.
#[test]
fn what_is_made_while_it_is_read_is_what_is_stored() {
    let specs = [
        spec(E2m1, ScaleRule::Floor, Stochastic, Some((16, Signs::PerStep))),
        spec(E2m1, ScaleRule::Even, NearestEven, None),
        spec(E4m3, ScaleRule::Floor, NearestEven, None),
    ];
    for (made, (rows, columns)) in [("NORMED", (96, 96)), ("GATED", (32, 160))] {
        for (number, spec) in specs.iter().enumerate() {
            for sides in [[true, false], [false, true], [true, true]] {
                made_as_stored(made, (rows, columns), spec, sides, Order::ALL[number]);
            }
        }
    }
}

/// `sides`: whether it is prepared along its rows, and along its columns.
fn made_as_stored(made: &str, (rows, columns): (usize, usize), spec: &OperandSpec, sides: [bool; 2], order: Order) {
    let is_normed = made == "NORMED";
    let [along_rows, along_columns] = sides.map(|is_wanted| is_wanted.then_some(spec));
    let (source_define, width) = (format!("-DSOURCE={made}"), format!("-DWIDTH={columns}"));
    let Some(quantise) = object(along_rows, along_columns, &[&source_define]) else { return };
    let (file, defines) = if is_normed { ("../device/norm.cu", vec![width.as_str()]) } else { ("../device/elementwise.cu", vec![]) };
    let maker = CodeObject::parse(&compile(file, &defines).unwrap()).unwrap();
    let mut memory = Memory::new();
    let read = memory.input("what is read", &bf16_bytes(&normals(1, rows * columns * if is_normed { 1 } else { 2 }, 3.0)));
    let gain = memory.input("gain", &f32_bytes(&normals(2, columns, 1.0)));
    let (stored, inverse_rms) = (memory.output("stored", 2 * rows * columns), memory.output("inverse_rms", 4 * rows));
    let (grid, kernel, arguments) = if is_normed {
        let arguments = Arguments::default().at(read).at(gain).f32(1e-5).at(stored).at(inverse_rms).u32(rows as u32);
        (rows.div_ceil(4), "rms_norm", arguments)
    } else {
        let arguments = Arguments::default().at(read).at(stored).u32(rows as u32).u32(columns as u32);
        ((rows * columns / 8).div_ceil(256), "swiglu", arguments)
    };
    run_of(&maker, kernel, &mut memory, [grid as u32, 1, 1], (256, 0), &arguments, order).unwrap();

    let operands = sides.map(|is_wanted| is_wanted.then(|| Operand::new(&mut memory, spec, rows * columns, 9)));
    let arguments = sides_of(Arguments::default().at(read).u32(rows as u32).u32(columns as u32), &operands, false);
    let arguments = if is_normed { arguments.at(inverse_rms).at(gain) } else { arguments.u64(0).u64(0) };
    let grid = [columns.div_ceil(64) as u32, rows.div_ceil(64) as u32, 1];
    run_of(&quantise, "quantise", &mut memory, grid, (256, 0), &arguments, order).unwrap();
    let values: Vec<f32> = bf16_of(&memory, stored);
    for (operand, transposed) in operands.iter().zip([false, true]) {
        let Some(operand) = operand else { continue };
        let (operand_rows, k) = if transposed { (columns, rows) } else { (rows, columns) };
        let what = format!("{made} {} of [{rows}, {columns}], sides {sides:?}, transposed {transposed}", definition(Some(spec)));
        operand.check(&memory, Source { values: &values, rows: operand_rows, k, transposed }, &what);
    }
}

/// Squares of 32 by 32, of both orientations.
#[test]
fn squares_share_a_scale() {
    for spec in [
        spec(E2m1, ScaleRule::Floor, NearestEven, Some((16, Signs::None))),
        spec(E2m1, ScaleRule::Floor, StochasticPrescaled, Some((64, Signs::Fixed))),
    ] {
        let spec = OperandSpec { block: Block::Tile32, ..spec };
        let columns = spec.rotation.filter(|rotation| rotation.size == 16).map(|_| OperandSpec {
            rounding: Stochastic,
            rotation: Some(Rotation { size: 16, signs: Signs::PerStep }),
            block: Block::Row32,
            ..spec
        });
        let Some(object) = object(Some(&spec), columns.as_ref(), &[]) else { return };
        let (rows, k) = (64, 64);
        let values = source(rows * k, false);
        for transposed in [false, true] {
            let mut memory = Memory::new();
            let place = memory.input("source", &bf16_bytes(&values));
            let operand = Operand::new(&mut memory, &spec, rows * k, 5);
            let lanes = spec.rotation.map_or(32, |rotation| rotation.size.max(32)) / 8;
            let arguments = Arguments::default().at(place).u32(rows as u32).u32(k as u32).u32(u32::from(transposed));
            let grid = [k.div_ceil(8 * lanes) as u32, rows.div_ceil(32) as u32, 1];
            let arguments = operand.arguments(arguments, false);
            run_of(&object, "quantise_square", &mut memory, grid, (32 * lanes as u32, 0), &arguments, Order::RoundRobin).unwrap();
            memory.write(operand.amax, &u32_bytes(&[largest(&values, &operand, (rows, k, transposed))])).unwrap();
            operand.check(&memory, Source { values: &values, rows, k, transposed }, &format!("squares, transposed {transposed}"));
        }
    }
}

/// Squares collect no largest magnitude of the tensor: what `check` wants is put there.
fn largest(values: &[f32], operand: &Operand<'_>, (rows, k, transposed): (usize, usize, bool)) -> u32 {
    let source = Source { values, rows, k, transposed };
    rotated(&source, operand.spec, operand.signs.as_deref()).iter().map(|x| x.to_bits() & 0x7FFF_FFFF).max().unwrap()
}

/// The control: columns read from LDS before every wave has written its rows.
#[test]
fn a_missing_barrier_is_a_race() {
    let spec = spec(E2m1, ScaleRule::Floor, NearestEven, None);
    let Some(object) = object(None, Some(&spec), &["-DBREAK_NO_BARRIER"]) else { return };
    let mut memory = Memory::new();
    let place = memory.input("source", &bf16_bytes(&source(64 * 64, false)));
    let operand = Operand::new(&mut memory, &spec, 64 * 64, 1);
    let arguments = absent(Arguments::default().at(place).u32(64).u32(64));
    let arguments = operand.arguments(arguments, false).u64(0).u64(0);
    for order in Order::ALL {
        let fault = run_of(&object, "quantise", &mut memory, [1, 1, 1], (256, 0), &arguments, order).unwrap_err().to_string();
        assert!(fault.contains("LDS") || fault.contains("never written"), "{fault}");
    }
}
