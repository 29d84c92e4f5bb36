//! The rotate-and-quantise kernel, executed, against the scalar reference: every bit of codes and scales.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{Arguments, Random, compile, run};

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::{Order, Statistics};
use kernels::format::bf16;
use kernels::hadamard;
use kernels::quantise::{Mxfp4, Prepared, Randomness, Source, prepare_reference};
use kernels::random::Stream;

/// How one orientation is asked for.
#[derive(Clone, Copy, Debug)]
struct Side {
    rotation: u32,
    signed: bool,
    rule: ScaleRule,
    rounding: Rounding,
    stream: Stream,
    /// Scales as hipBLASLt's mode 1001 wants them.
    swizzled: bool,
    /// 32 rows of the operand share a scale.
    square: bool,
}

impl Side {
    const PLAIN: Self = Self {
        rotation: 0,
        signed: false,
        rule: ScaleRule::Even,
        rounding: Rounding::NearestEven,
        stream: Stream::new(1, 2),
        swizzled: false,
        square: false,
    };

    fn sign_bits(&self) -> [u32; 4] {
        let mut bits = [0; 4];
        if self.signed {
            let signs = hadamard::signs(self.stream, self.rotation as usize);
            for i in 0..128 {
                bits[i / 32] |= u32::from(signs[i % signs.len()] < 0.0) << (i % 32);
            }
        }
        bits
    }

    fn arguments(
        &self,
        arguments: Arguments,
        places: Option<(gfx950_interpreter::memory::Address, gfx950_interpreter::memory::Address)>,
    ) -> Arguments {
        let rule = match self.rule {
            ScaleRule::Floor => 0,
            ScaleRule::Even => 1,
            _ => 2,
        };
        let rounding = match self.rounding {
            Rounding::NearestEven => 0,
            Rounding::Stochastic => 1,
            Rounding::StochasticPrescaled => 2,
        };
        let arguments = arguments.address(places.map(|places| places.0)).address(places.map(|places| places.1)).u32(self.rotation);
        let arguments = self.sign_bits().into_iter().fold(arguments, Arguments::u32);
        let arguments = arguments.u32(rule).u32(rounding).u32(self.stream.k0).u32(self.stream.k1);
        arguments.u32(u32::from(self.swizzled)).u32(u32::from(self.square)).u32(0)
    }

    fn reference(&self, source: &[f32], rows: usize, k: usize, transposed: bool) -> Mxfp4 {
        let signs = hadamard::signs(self.stream, self.rotation as usize);
        let spec = OperandSpec {
            format: Format::E2m1,
            block: if self.square { Block::Tile32 } else { Block::Row32 },
            scale: self.rule,
            rounding: self.rounding,
            rotation: (self.rotation > 0)
                .then_some(Rotation { size: self.rotation as usize, signs: if self.signed { Signs::Fixed } else { Signs::None } }),
        };
        let (rows, k) = if transposed { (k, rows) } else { (rows, k) };
        let randomness = Randomness { rounding: Some(self.stream), signs: Some(&signs) };
        match prepare_reference(Source { values: source, rows, k, transposed }, &spec, randomness, None).unwrap().0 {
            Prepared::Mxfp4(operand) => operand,
            Prepared::Float(_) => panic!("E2M1 gives codes"),
        }
    }
}

/// What padding holds before the kernel runs, and after it.
const PADDING: u8 = 0xA5;

/// The scales as hipBLASLt's mode 1001 takes them, by a tensor's reshape and permutation, the way in which its users make it: padded to
/// [rows / 32][2][16][blocks / 8][2][4], axes reordered to 0, 3, 5, 2, 4, 1.
fn swizzled(operand: &Mxfp4) -> Vec<u8> {
    let (rows, blocks) = (operand.rows.next_multiple_of(32), operand.blocks.next_multiple_of(8));
    let sizes = [rows / 32, 2, 16, blocks / 8, 2, 4];
    let order = [0, 3, 5, 2, 4, 1];
    let count = rows * blocks;
    let mut made = Vec::with_capacity(count);
    for mut number in 0..count {
        let mut axes = [0; 6];
        for &axis in order.iter().rev() {
            axes[axis] = number % sizes[axis];
            number /= sizes[axis];
        }
        let row = (axes[0] * 2 + axes[1]) * 16 + axes[2];
        let block = (axes[3] * 2 + axes[4]) * 4 + axes[5];
        let exists = row < operand.rows && block < operand.blocks;
        made.push(if exists { operand.scales[row * operand.blocks + block] } else { PADDING });
    }
    made
}

/// Runs the kernel and compares whatever was asked for; says what differs.
fn compare(object: &CodeObject, source: &[u16], shape: (usize, usize), sides: [Option<Side>; 2], order: Order) -> Result<(), String> {
    counted(object, source, shape, sides, order)?;
    // The lower tile, too, where it may be taken.
    let fits = sides.iter().flatten().all(|side| !side.square) && sides[1].is_none_or(|side| side.rotation <= 64);
    if fits { launched(object, ("mxfp4_quantise_64x128", 64), source, shape, sides, order).map(|_| ()) } else { Ok(()) }
}

/// As [`compare`]; how often each operation was executed.
fn counted(
    object: &CodeObject,
    source: &[u16],
    shape: (usize, usize),
    sides: [Option<Side>; 2],
    order: Order,
) -> Result<Statistics, String> {
    let square = sides.iter().flatten().any(|side| side.square);
    let name = if square { "mxfp4_quantise_square" } else { "mxfp4_quantise" };
    launched(object, (name, 128), source, shape, sides, order)
}

/// The same by the kernel of this name, whose workgroups take so many rows.
fn launched(
    object: &CodeObject,
    (name, height): (&str, usize),
    source: &[u16],
    shape: (usize, usize),
    sides: [Option<Side>; 2],
    order: Order,
) -> Result<Statistics, String> {
    let (rows, k) = shape;
    let mut memory = Memory::new();
    let bytes: Vec<u8> = source.iter().flat_map(|code| code.to_le_bytes()).collect();
    let mut arguments = Arguments::default().address(Some(memory.input("source", &bytes))).u32(rows as u32).u32(k as u32);
    let mut places = [None; 2];
    for (index, (place, side)) in places.iter_mut().zip(&sides).enumerate() {
        let (rows, k) = if index == 0 { (rows, k) } else { (k, rows) };
        *place = side.map(|side| {
            let scales = if side.swizzled {
                memory.updated("scales", &vec![PADDING; rows.next_multiple_of(32) * (k / 32).next_multiple_of(8)])
            } else {
                memory.output("scales", rows * k / 32)
            };
            (memory.output("codes", rows * k / 2), scales)
        });
        arguments = side.unwrap_or(Side::PLAIN).arguments(arguments, *place);
    }
    let grid = [k.div_ceil(128) as u32, rows.div_ceil(height) as u32, 1];
    let statistics = run(object, name, &mut memory, grid, &arguments, order).map_err(|error| error.to_string())?;
    // What the pitch and the shift in quantise.hip are for.
    if statistics.bank_conflicts[0] != 0 {
        return Err(format!("{} clocks lost to bank conflicts", statistics.bank_conflicts[0]));
    }
    let values: Vec<f32> = source.iter().map(|&code| bf16::decode(code)).collect();
    for (index, (side, place)) in sides.iter().zip(places).enumerate() {
        let (Some(side), Some((codes, scales))) = (side, place) else { continue };
        let expected = side.reference(&values, rows, k, index == 1);
        let same = |what: &str, found: Result<&[u8], String>, expected: &[u8]| {
            let found = found?;
            match found.iter().zip(expected).position(|(a, b)| a != b) {
                None if found.len() == expected.len() => Ok(()),
                at => Err(format!(
                    "{what} differ at {at:?} (side {index}, {side:?}): {:?} for {:?}",
                    at.map(|at| found[at]),
                    at.map(|at| expected[at])
                )),
            }
        };
        if side.swizzled {
            same("swizzled scales", memory.bytes(scales), &swizzled(&expected))?;
        } else {
            same("scales", memory.bytes(scales), &expected.scales)?;
        }
        same("codes", memory.bytes(codes), &expected.codes)?;
    }
    Ok(statistics)
}

/// BF16 codes of very different magnitude, with zeros and denormals among them.
fn source(count: usize, seed: u64) -> Vec<u16> {
    let mut random = Random(seed);
    (0..count)
        .map(|index| match random.below(16) {
            0 => (random.below(2) << 15) as u16,
            1 => (random.below(2) << 15 | random.below(128)) as u16,
            _ => {
                let exponent = 120 + (index as u32 / 64 % 9) + random.below(6);
                (random.below(2) << 15 | exponent << 7 | random.below(128)) as u16
            }
        })
        .collect()
}

const RULES: [ScaleRule; 3] = [ScaleRule::Floor, ScaleRule::Even, ScaleRule::Ceil];
const ROUNDINGS: [Rounding; 3] = [Rounding::NearestEven, Rounding::Stochastic, Rounding::StochasticPrescaled];
const ROTATIONS: [(u32, bool); 5] = [(0, false), (16, false), (16, true), (32, false), (32, true)];

fn object(extra: &[&str]) -> Option<CodeObject> {
    compile("quantise.hip", extra).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

/// All 45 ways to prepare an operand, along rows and along columns in one launch, each side another way.
#[test]
fn every_rule_rotation_and_rounding_equals_the_scalar_reference_in_both_directions() {
    let Some(object) = object(&[]) else { return };
    let ways: Vec<Side> = RULES
        .into_iter()
        .flat_map(|rule| ROUNDINGS.map(|rounding| (rule, rounding)))
        .flat_map(|(rule, rounding)| ROTATIONS.map(|(rotation, signed)| (rule, rounding, rotation, signed)))
        .enumerate()
        .map(|(index, (rule, rounding, rotation, signed))| {
            let stream = Stream::new(0x1234_5678 ^ (index as u32 * 77), 0x9ABC_DEF0 ^ index as u32);
            Side { rotation, signed, rule, rounding, stream, ..Side::PLAIN }
        })
        .collect();
    for (index, &way) in ways.iter().enumerate() {
        let other = ways[(index + 17) % ways.len()];
        let order = Order::ALL[index % 3];
        compare(&object, &source(64 * 96, index as u64), (64, 96), [Some(way), Some(other)], order).unwrap();
    }
}

/// Shapes of several tiles, tiles that are cut off on either side, and matrices smaller than a tile.
#[test]
fn shapes_that_are_no_whole_tiles_are_covered_and_nothing_else_is_written() {
    let Some(object) = object(&[]) else { return };
    let h16 = Side { rotation: 16, ..Side::PLAIN };
    let h32 = Side { rotation: 32, rounding: Rounding::Stochastic, signed: true, rule: ScaleRule::Ceil, ..Side::PLAIN };
    for (turn, shape) in [(32, 32), (160, 288), (128, 416), (288, 32), (32, 256)].into_iter().enumerate() {
        let data = source(shape.0 * shape.1, 100 + turn as u64);
        compare(&object, &data, shape, [Some(h16), Some(h32)], Order::ALL[turn % 3]).unwrap();
    }
    // One direction alone asks nothing of the other axis.
    compare(&object, &source(5 * 64, 7), (5, 64), [Some(h16), None], Order::Serial).unwrap();
    compare(&object, &source(64 * 40, 8), (64, 40), [None, Some(h32)], Order::Serial).unwrap();
}

/// Rotations that span two and four blocks, and so two and four lanes: with and without signs, along either axis, beside each other kind.
#[test]
fn rotations_longer_than_a_block_equal_the_scalar_reference() {
    let Some(object) = object(&[]) else { return };
    let longer = [(64, false), (64, true), (128, false), (128, true)];
    for (index, (rotation, signed)) in longer.into_iter().enumerate() {
        for (turn, rounding) in ROUNDINGS.into_iter().enumerate() {
            let stream = Stream::new(0xBEEF ^ (index * 3 + turn) as u32, 77);
            let way = Side { rotation, signed, rounding, stream, rule: RULES[(index + turn) % 3], ..Side::PLAIN };
            let other = Side { rotation: 192 - rotation, signed: !signed, ..way };
            let data = source(128 * 256, (200 + 3 * index + turn) as u64);
            compare(&object, &data, (128, 256), [Some(way), Some(other)], Order::ALL[turn]).unwrap();
        }
        // Edges: one row, rows that are no whole tile, an axis of one rotation.
        let way = Side { rotation, signed, ..Side::PLAIN };
        compare(&object, &source(5 * 384, 3), (5, 384), [Some(way), None], Order::Serial).unwrap();
        compare(&object, &source(384 * 40, 4), (384, 40), [None, Some(way)], Order::Reversed).unwrap();
        let size = rotation as usize;
        compare(&object, &source(size * size, 5), (size, size), [Some(way), Some(way)], Order::RoundRobin).unwrap();
    }
    let (data, shape) = edge_source();
    for (rotation, signed) in longer {
        let side = Side { rotation, signed, ..Side::PLAIN };
        compare(&object, &data, shape, [Some(side), None], Order::Serial).unwrap();
    }
}

/// Squares of 32 by 32, alone and beside blocks of 1 by 32, with every rotation; shapes that cut squares and tiles.
#[test]
fn squares_share_a_scale_in_both_directions() {
    let Some(object) = object(&[]) else { return };
    let ways = [(0, false), (16, true), (32, false), (64, true), (128, true)];
    for (index, (rotation, signed)) in ways.into_iter().enumerate() {
        let rounding = ROUNDINGS[index % 3];
        let way = Side { rotation, signed, rounding, rule: RULES[index % 3], square: true, ..Side::PLAIN };
        let other = Side { square: index % 2 == 0, swizzled: index % 2 == 1, ..way };
        let data = source(128 * 256, 300 + index as u64);
        compare(&object, &data, (128, 256), [Some(way), Some(other)], Order::ALL[index % 3]).unwrap();
        // A square that lies only partly in the operand has the maximum of what is there.
        compare(&object, &source(72 * 128, 6), (72, 128), [Some(way), None], Order::Reversed).unwrap();
        compare(&object, &source(128 * 40, 7), (128, 40), [None, Some(way)], Order::RoundRobin).unwrap();
    }
    let (data, shape) = edge_source();
    for rule in RULES {
        let side = Side { rule, square: true, ..Side::PLAIN };
        compare(&object, &data, shape, [Some(side), Some(side)], Order::Serial).unwrap();
    }
    // Without rotation, the codes of one orientation are those of the other.
    let side = Side { square: true, ..Side::PLAIN };
    let values: Vec<f32> = source(64 * 96, 1).iter().map(|&code| bf16::decode(code)).collect();
    let (rows, columns) = (side.reference(&values, 64, 96, false), side.reference(&values, 64, 96, true));
    let code = |operand: &Mxfp4, row: usize, k: usize| operand.codes[(row * operand.k + k) / 2] >> (4 * (k % 2)) & 15;
    assert!((0..64).all(|row| (0..96).all(|k| code(&rows, row, k) == code(&columns, k, row))));
}

/// Mode 1001's order of scales, against the permutation; and back, against the index that the kernel's comment states.
#[test]
fn swizzled_scales_are_the_plain_ones_in_another_order() {
    let Some(object) = object(&[]) else { return };
    let side = Side { swizzled: true, ..Side::PLAIN };
    for (turn, shape) in [(32, 256), (64, 512), (96, 128), (160, 288), (256, 512)].into_iter().enumerate() {
        let data = source(shape.0 * shape.1, 400 + turn as u64);
        compare(&object, &data, shape, [Some(side), Some(side)], Order::ALL[turn % 3]).unwrap();
    }
    let mut random = Random(12);
    for (rows, blocks) in [(32, 8), (33, 9), (128, 24), (80, 3)] {
        let scales = (0..rows * blocks).map(|_| random.below(160) as u8).collect(); // below PADDING
        let operand = Mxfp4 { rows, k: 32 * blocks, blocks, codes: Vec::new(), scales, multiplier: 1.0 };
        let moved = swizzled(&operand);
        let place = |row: usize, block: usize| {
            let tile = (row / 32 * blocks.div_ceil(8) + block / 8) * 256;
            tile + block % 4 * 64 + row % 16 * 4 + block / 4 % 2 * 2 + row / 16 % 2
        };
        let back: Vec<u8> = (0..rows * blocks).map(|at| moved[place(at / blocks, at % blocks)]).collect();
        assert_eq!(back, operand.scales, "{rows} {blocks}");
        assert_eq!(moved.iter().filter(|&&byte| byte == PADDING).count(), moved.len() - rows * blocks);
    }
}

/// What the README says of vector operations executed for each element, both directions together (printed: `--nocapture`), within one.
#[test]
fn the_work_for_each_element_is_what_the_readme_states() {
    let Some(object) = object(&[]) else { return };
    let data = source(128 * 128, 1);
    let signed = |rotation| Side { rotation, signed: true, ..Side::PLAIN };
    let h16 = Side { rotation: 16, ..Side::PLAIN };
    let square = Side { square: true, ..Side::PLAIN };
    let ways = [
        ("no rotation", Side::PLAIN, 8),
        ("H16", h16, 12),
        ("H16 with signs", signed(16), 16),
        ("H32", Side { rotation: 32, ..Side::PLAIN }, 18),
        ("H64", Side { rotation: 64, ..Side::PLAIN }, 19),
        ("H128", Side { rotation: 128, ..Side::PLAIN }, 23),
        ("H16, stochastic", Side { rounding: Rounding::Stochastic, ..h16 }, 59),
        ("squares", square, 9),
    ];
    for (name, side, stated) in ways {
        let statistics = counted(&object, &data, (128, 128), [Some(side), Some(side)], Order::Serial).unwrap();
        let vector = statistics.executed.iter().filter(|(op, _)| op.name().starts_with("v_")).map(|(_, count)| count).sum::<u64>();
        let found = (vector * 64) as f64 / (128.0 * 128.0);
        println!("{name}: {found:.1} vector operations an element");
        assert!((found - f64::from(stated)).abs() <= 1.0, "{name}: {found}, stated {stated}");
    }
}

/// Blocks at the edges of the format: zeros, the smallest and the largest BF16, ties, NaN and infinity, each in its own block.
fn edge_source() -> (Vec<u16>, (usize, usize)) {
    let blocks: Vec<Vec<u16>> = vec![
        vec![0x0000; 32],
        vec![0x8000; 32],
        vec![0x0001, 0x8001, 0x007F, 0x807F, 0x0080],
        vec![0x7F7F, 0xFF7F, 0x7F00, 0x0001],
        vec![0x7F80, 0x3F80],
        vec![0xFF80, 0x3F80],
        vec![0x7FC0, 0x3F80],
        vec![0xFF81, 0x3F80],
        // 6 with ties 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5 and their neighbours; then around the rules' thresholds 1.5 and 1.75.
        vec![0x40C0, 0x3E80, 0x3F40, 0x3FA0, 0x3FE0, 0x4020, 0x4060, 0x40A0, 0x3E81, 0x3E7F, 0x40A1, 0x409F, 0xC0A0, 0xBE80],
        vec![0x3FBF, 0x3F80],
        vec![0x3FC0, 0x3F80],
        vec![0x3FC1, 0x3F80],
        vec![0x3FDF, 0x3F80],
        vec![0x3FE0, 0x3F80],
        vec![0x3FFF, 0x3F80],
        vec![0x0100, 0x0101, 0x8180],
    ];
    let columns = 32 * blocks.len();
    let mut row: Vec<u16> = Vec::new();
    for block in blocks {
        let mut filled = block;
        filled.resize(32, 0);
        row.extend(filled);
    }
    // 32 rows, each moved by one element within its blocks, so that the edges reach every position and columns mix them, too.
    let rows = (0..32).flat_map(|shift| (0..columns).map(move |c| (shift, c))).map(|(shift, c)| row[c / 32 * 32 + (c + shift) % 32]);
    (rows.collect(), (32, columns))
}

#[test]
fn edge_values_have_the_answers_of_the_reference() {
    let Some(object) = object(&[]) else { return };
    let (data, shape) = edge_source();
    for rule in RULES {
        for rounding in ROUNDINGS {
            for (rotation, signed) in ROTATIONS {
                let side = Side { rule, rounding, rotation, signed, ..Side::PLAIN };
                compare(&object, &data, shape, [Some(side), Some(side)], Order::Serial).unwrap();
            }
        }
    }
}

/// A row of every exponent, infinities and NaNs included, and of the smaller ones beside it: the kernel rounds with a quarter or an eighth in the
/// block's exponent where the reference divides each element, down to where quotients are denormals and up to where sums overflow.
#[test]
fn every_exponent_is_scaled_as_the_reference_does() {
    let Some(object) = object(&[]) else { return };
    let mut random = Random(31);
    let data: Vec<u16> = (0..256 * 128)
        .map(|at| {
            let exponent = (at / 128u32).saturating_sub(random.below(3));
            let mantissa = [0, 1, 0x3F, 0x40, 0x41, 0x7F, random.below(128), random.below(128)][random.below(8) as usize];
            (random.below(2) << 15 | exponent << 7 | mantissa) as u16
        })
        .collect();
    for (turn, rotation) in [0, 16, 64, 128].into_iter().enumerate() {
        for (at, rule) in RULES.into_iter().enumerate() {
            let side = Side { rule, rotation, rounding: ROUNDINGS[(turn + at) % 3], ..Side::PLAIN };
            let nearest = Side { rounding: Rounding::NearestEven, ..side };
            compare(&object, &data, (256, 128), [Some(nearest), Some(side)], Order::ALL[at]).unwrap();
        }
    }
}

/// Stochastic rounding follows its stream. (The upper half of an element's index is added, too; matrices of 2^32 elements are not run.)
#[test]
fn another_stream_gives_other_codes() {
    let Some(object) = object(&[]) else { return };
    let stochastic = Side { rounding: Rounding::Stochastic, ..Side::PLAIN };
    let data = source(32 * 64, 3);
    let values: Vec<f32> = data.iter().map(|&code| bf16::decode(code)).collect();
    let other = Side { stream: Stream::new(1, 3), ..stochastic };
    assert_ne!(stochastic.reference(&values, 32, 64, false).codes, other.reference(&values, 32, 64, false).codes);
    compare(&object, &data, (32, 64), [Some(stochastic), Some(other)], Order::RoundRobin).unwrap();
}

/// What the comparisons above would say if the kernel were wrong.
#[test]
fn defects_are_caught() {
    let Some(_) = object(&[]) else { return };
    let data = source(128 * 128, 1);
    // Either tile.
    for kernel in [("mxfp4_quantise", 128), ("mxfp4_quantise_64x128", 64)] {
        let verdict = |flag: &str, sides, order| launched(&object(&[flag]).unwrap(), kernel, &data, (128, 128), sides, order).unwrap_err();
        for order in Order::ALL {
            let said = verdict("-DBREAK_NO_BARRIER", [Some(Side::PLAIN); 2], order);
            assert!(said.contains("LDS race") || said.contains("under way") || said.contains("never written"), "{said}");
            // Of rows a wave reads what it wrote itself, in order: columns are what needs the wait.
            let said = verdict("-DBREAK_NO_WAIT", [None, Some(Side::PLAIN)], order);
            // A write that is retired after the barrier counts as made after it.
            assert!(said.contains("s_waitcnt is missing") || said.contains("LDS race"), "{said}");
            let said = verdict("-DBREAK_SWAPPED_NIBBLE", [Some(Side::PLAIN); 2], order);
            assert!(said.contains("codes differ"), "{said}");
        }
    }
    let wide = Side { rotation: 64, ..Side::PLAIN };
    let said = compare(&object(&["-DBREAK_NO_EXCHANGE"]).unwrap(), &data, (128, 128), [Some(wide), None], Order::Serial).unwrap_err();
    assert!(said.contains("differ"), "{said}");
    let square = Side { square: true, ..Side::PLAIN };
    // Each square of another magnitude than its neighbour.
    let uneven: Vec<u16> = data.iter().enumerate().map(|(at, code)| code / 2 + (at as u16 % 128 / 32 + at as u16 / 4096) * 0x180).collect();
    let said = compare(&object(&["-DBREAK_WRONG_SQUARE"]).unwrap(), &uneven, (128, 128), [None, Some(square)], Order::Serial).unwrap_err();
    assert!(said.contains("scales differ"), "{said}");
    let said = compare(&object(&["-DBREAK_NO_BARRIER"]).unwrap(), &data, (128, 128), [Some(square), None], Order::Reversed).unwrap_err();
    assert!(said.contains("LDS race") || said.contains("under way") || said.contains("never written"), "{said}");
    // A matrix that is announced one row too high: the load of that row leaves the allocation.
    let object = object(&[]).unwrap();
    let short = &data[..127 * 128];
    let said = compare(&object, &[short, &[0; 0]].concat(), (128, 128), [Some(Side::PLAIN), None], Order::Serial).unwrap_err();
    assert!(said.contains("outside every allocation") && said.contains("source"), "{said}");
}
