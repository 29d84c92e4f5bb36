//! The rotate-and-quantise kernel, executed, against the scalar reference: every bit of codes and scales.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Arguments, Random, compile, run};
use gfx950_interpreter::Order;
use gfx950_interpreter::memory::Memory;
use gfx950_interpreter::object::CodeObject;
use kernels::format::bf16;
use kernels::hadamard;
use kernels::operand::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
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
}

impl Side {
    const PLAIN: Self =
        Self { rotation: 0, signed: false, rule: ScaleRule::Even, rounding: Rounding::NearestEven, stream: Stream { k0: 1, k1: 2 } };

    fn sign_bits(&self) -> u32 {
        if !self.signed {
            return 0;
        }
        let signs = hadamard::signs(self.stream, self.rotation as usize);
        (0..32).map(|i| u32::from(signs[i % signs.len()] < 0.0) << i).sum()
    }

    fn arguments(&self, arguments: Arguments, places: Option<(gfx950_interpreter::memory::Address, gfx950_interpreter::memory::Address)>) -> Arguments {
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
        arguments
            .address(places.map(|places| places.0))
            .address(places.map(|places| places.1))
            .u32(self.rotation)
            .u32(self.sign_bits())
            .u32(rule)
            .u32(rounding)
            .u32(self.stream.k0)
            .u32(self.stream.k1)
    }

    fn reference(&self, source: &[f32], rows: usize, k: usize, transposed: bool) -> Mxfp4 {
        let signs = hadamard::signs(self.stream, self.rotation as usize);
        let spec = OperandSpec {
            format: Format::E2m1,
            block: Block::Row32,
            scale: self.rule,
            rounding: self.rounding,
            rotation: (self.rotation > 0).then_some(Rotation {
                size: self.rotation as usize,
                signs: if self.signed { Signs::Fixed } else { Signs::None },
            }),
        };
        let (rows, k) = if transposed { (k, rows) } else { (rows, k) };
        let randomness = Randomness { rounding: Some(self.stream), signs: Some(&signs) };
        match prepare_reference(Source { values: source, rows, k, transposed }, &spec, randomness, None).unwrap().0 {
            Prepared::Mxfp4(operand) => operand,
            Prepared::Float(_) => panic!("E2M1 gives codes"),
        }
    }
}

/// Runs the kernel and compares whatever was asked for; says what differs.
fn compare(object: &CodeObject, source: &[u16], shape: (usize, usize), sides: [Option<Side>; 2], order: Order) -> Result<(), String> {
    let (rows, k) = shape;
    let mut memory = Memory::new();
    let bytes: Vec<u8> = source.iter().flat_map(|code| code.to_le_bytes()).collect();
    let mut arguments = Arguments::default().address(Some(memory.input("source", &bytes))).u32(rows as u32).u32(k as u32);
    let mut places = [None; 2];
    for (place, side) in places.iter_mut().zip(&sides) {
        *place = side.map(|_| (memory.output("codes", rows * k / 2), memory.output("scales", rows * k / 32)));
        arguments = side.unwrap_or(Side::PLAIN).arguments(arguments, *place);
    }
    let grid = [k.div_ceil(128) as u32, rows.div_ceil(128) as u32, 1];
    run(object, "mxfp4_quantise", &mut memory, grid, &arguments, order).map_err(|error| error.to_string())?;
    let values: Vec<f32> = source.iter().map(|&code| bf16::decode(code)).collect();
    for (index, (side, place)) in sides.iter().zip(places).enumerate() {
        let (Some(side), Some((codes, scales))) = (side, place) else { continue };
        let expected = side.reference(&values, rows, k, index == 1);
        let same = |what: &str, found: Result<&[u8], String>, expected: &[u8]| {
            let found = found?;
            match found.iter().zip(expected).position(|(a, b)| a != b) {
                None if found.len() == expected.len() => Ok(()),
                at => Err(format!("{what} differ at {at:?} (side {index}, {side:?}): {:?} for {:?}", at.map(|at| found[at]), at.map(|at| expected[at]))),
            }
        };
        same("scales", memory.bytes(scales), &expected.scales)?;
        same("codes", memory.bytes(codes), &expected.codes)?;
    }
    Ok(())
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

#[test]
fn one_tile_without_rotation() {
    let Some(bytes) = compile("quantise.hip", &[]) else { return };
    let object = CodeObject::parse(&bytes).unwrap();
    compare(&object, &source(128 * 128, 1), (128, 128), [Some(Side::PLAIN), Some(Side::PLAIN)], Order::Serial).unwrap();
}
