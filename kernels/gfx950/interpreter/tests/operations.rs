//! What operations do: expressions compiled for gfx950 and executed, against the same expressions in Rust; and that every operation
//! which the decoder knows is executed by some test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The expressions are meant as they stand: NaNs make `!(x < y)` and `x < y || x > y` other than the simpler forms.
#![allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons, clippy::precedence)]

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{self, Arguments, Random, compile_path};
use gfx950_interpreter::decode::{ALL, Op};
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::{Launch, Order, Statistics, launch};

fn object() -> Option<CodeObject> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/operations.hip");
    compile_path(&path, &[]).map(|bytes| CodeObject::parse(&bytes).unwrap())
}

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn wide(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn fold(value: u64) -> u32 {
    (value ^ value >> 32) as u32
}

/// In the order of `INTEGERS` in operations.hip.
#[rustfmt::skip] // one line of expressions for each line in operations.hip
fn integers(a: u32, b: u32, c: u32) -> Vec<u32> {
    let (ia, ib, ic) = (a as i32, b as i32, c as i32);
    let field = |offset: u32, width: u32| u64::from(a) >> offset & ((1u64 << width) - 1);
    let sign = |value: u32, bits: u32| if bits == 0 { 0 } else { ((u64::from(value) << (64 - bits)) as i64 >> (64 - bits)) as u32 };
    let signed_field = {
        let (offset, width) = (b & 31, c & 31);
        let width_there = width.min(32 - offset);
        sign((a >> offset) & ((1u64 << width_there) - 1) as u32, width_there)
    };
    let i24 = |x: u32| i64::from(sign(x & 0xFF_FFFF, 24) as i32);
    let low24 = |x: u32| u64::from(x & 0xFF_FFFF);
    let median = |mut values: [i64; 3]| {
        values.sort();
        values[1] as u32
    };
    let bytes: Vec<u8> = b.to_le_bytes().into_iter().chain(a.to_le_bytes()).collect();
    let chosen = |index: u32| match (c & 0x0F0F_0F0F) >> (8 * index) & 0xFF {
        n @ 0..=7 => bytes[n as usize],
        n @ 8..=11 => if bytes[2 * (n as usize - 8) + 1] >= 0x80 { 0xFF } else { 0 },
        12 => 0,
        _ => 0xFF,
    };
    let permuted = u32::from_le_bytes([chosen(0), chosen(1), chosen(2), chosen(3)]);
    let (ab, ca, bc) = (wide(a, b), wide(c, a), wide(b, c));
    let t = u32::from;
    vec![
        a.wrapping_add(b), a.wrapping_sub(b), a.wrapping_mul(b), field(b & 31, c & 31) as u32, signed_field,
        a.wrapping_shl(b), a.wrapping_shr(b), ia.wrapping_shr(b) as u32, a & b, a | b, a ^ b, !(a ^ b), !a, a & !b, a | !b,
        a.min(b), a.max(b), ia.min(ib) as u32, ia.max(ib) as u32, a.wrapping_add(b).wrapping_add(c), a.wrapping_shl(b).wrapping_add(c),
        a.wrapping_add(b).wrapping_shl(c), a.wrapping_shl(b) | c, (a & b) | c, a | b | c, (a ^ b).wrapping_add(c), (a & b) | (!a & c),
        a.min(b).min(c), a.max(b).max(c), ia.min(ib).min(ic) as u32, ia.max(ib).max(ic) as u32,
        median([a, b, c].map(i64::from)), median([ia, ib, ic].map(i64::from)),
        (ab >> (c & 31)) as u32, (ab >> (8 * (c & 3))) as u32, permuted,
        (low24(a) * low24(b)) as u32, ((low24(a) * low24(b)) as u32).wrapping_add(c),
        (i24(a) * i24(b)) as u32, ((i24(a) * i24(b)) as u32).wrapping_add(c),
        ((u128::from(a) * u128::from(b)) >> 32) as u32, ((i128::from(ia) * i128::from(ib)) >> 32) as u32,
        a.reverse_bits(), a.count_ones().wrapping_add(b),
        if a != 0 { a.leading_zeros() } else { 99 }, if a != 0 { a.trailing_zeros() } else { 99 }, sign(a & 0xFF, 8), sign(a & 0xFFFF, 16),
        (a << 16) | (b & 0xFFFF), (a & 0xFFFF_0000) | (b >> 16), ia.wrapping_abs() as u32, a.checked_div(b).unwrap_or(7), a.checked_rem(b).unwrap_or(7),
        if b != 0 { (i64::from(ia) / i64::from(ib | 1)) as u32 } else { 7 },
        a.wrapping_mul(2).wrapping_add(b), a.wrapping_mul(4).wrapping_add(b), a.wrapping_mul(8).wrapping_add(b), a.wrapping_mul(16).wrapping_add(b),
        ((1u32 << (a & 31)) - 1) << (b & 31), a & !(1 << (b & 31)), a | 1 << (b & 31), (a >> 8 & 0xFF).wrapping_add(b),
        (a >> 16) + (b & 0xFFFF), ((a & 0xFF) << 8) | (b >> 24), a.saturating_add(b), a.saturating_sub(b),
        fold(ab.wrapping_add(ca)), fold(ab.wrapping_sub(ca)), fold(ab.wrapping_mul(ca)), fold(ab << (c & 63)),
        fold(ab >> (c & 63)), fold((ab as i64 >> (c & 63)) as u64), fold((ab << 3).wrapping_add(bc)),
        fold((u64::from(a) * u64::from(b)).wrapping_add(ca)), fold((i64::from(ia) * i64::from(ib)).wrapping_add(ca as i64) as u64), fold(ab / (ca >> 20 | 1)),
        fold(ab & ca), fold(ab | ca), fold(ab ^ ca), fold(!ab),
        t(a < b), t(a <= b), t(a == b), t(a != b), if a > b { a } else { c }, if a >= b { b } else { c }, t(ia < ib), t(ia <= ib),
        if ia > ib { a } else { c }, if ia >= ib { b } else { c }, t(ab < ca), t(ab == wide(c, b)),
        if ab > bc { a } else { b }, t((ab as i64) < ca as i64), if ab as i64 > bc as i64 { 3 } else { 5 },
        t((a as u16) < b as u16), t(a as u16 == b as u16), t(a as i16 > b as i16), ab.count_ones(), if a != 0 { ab.leading_zeros() } else { 9 },
    ]
}

fn maximum(a: f32, b: f32) -> f32 {
    if a == b && a == 0.0 { if a.is_sign_positive() { a } else { b } } else { a.max(b) }
}

fn minimum(a: f32, b: f32) -> f32 {
    if a == b && a == 0.0 { if a.is_sign_negative() { a } else { b } } else { a.min(b) }
}

/// The rounded value of what the hardware approximates, without denormals.
fn rounded(argument: u32, function: impl Fn(f64) -> f64) -> f32 {
    let flush = |value: f32| if value.is_subnormal() { 0.0f32.copysign(value) } else { value };
    flush(function(f64::from(flush(f(argument)))) as f32)
}

/// In the order of `FLOATS`. The flag says whether a NaN counts as any other NaN.
#[rustfmt::skip] // one line of expressions for each line in operations.hip
fn floats(a: u32, b: u32, c: u32) -> Vec<(u32, bool)> {
    let (x, y, z) = (f(a), f(b), f(c));
    let value = |value: f32| (value.to_bits(), true);
    let bits = |bits: u32| (bits, false);
    let t = |truth: bool| (u32::from(truth), false);
    let median = if x.is_nan() || y.is_nan() || z.is_nan() { minimum(minimum(x, y), z) } else {
        let mut values = [x, y, z];
        values.sort_by(f32::total_cmp);
        values[1]
    };
    let magnitude = f(a & 0x7FFF_FFFF);
    let fract = (x - x.floor()).min(f(0x3F7F_FFFF));
    let normal_exponent = (f64::from(x).to_bits() >> 52 & 0x7FF) as i32 - 1022;
    let plain = x == 0.0 || !x.is_finite();
    let mantissa = if plain { x } else { (f64::from(x) * 2f64.powi(-normal_exponent)) as f32 };
    let class = |value: f32, wanted: &[std::num::FpCategory]| wanted.contains(&value.classify());
    use std::num::FpCategory::{Infinite, Nan, Subnormal};
    let signalling_or_quiet_or_infinite = class(x, &[Nan, Infinite]);
    // 0x0F8: negative normal (3) up to positive subnormal (7).
    let middle = class(x, &[Subnormal, std::num::FpCategory::Zero]) || (x.is_normal() && x < 0.0);
    vec![
        value(x + y), value(x - y), value(x * y), value(x.mul_add(y, z)), value(-x * y.abs()), value(x.mul_add(-y, z)), value(x * 3.25 + 1.0),
        value(x.mul_add(y, 3.25)), value(x.mul_add(3.25, z)), value(maximum(x, y)), value(minimum(x, y)), value(maximum(maximum(x, y), z)),
        value(minimum(minimum(x, y), z)), value(median), value(x.floor()), value(x.ceil()), value(x.trunc()), value(x.round_ties_even()), value(fract),
        value((f64::from(x) * 2f64.powi((b & 127) as i32 - 64)) as f32), bits(if plain { 0 } else { normal_exponent as u32 }), value(mantissa),
        value(a as f32), value(a as i32 as f32), value((a & 0xFF) as f32), value((a >> 8 & 0xFF) as f32), value((a >> 16 & 0xFF) as f32),
        value((a >> 24) as f32), bits(if x.abs() < 4e9 { magnitude as u32 } else { 1 }), bits(if x.abs() < 2e9 { x as i32 as u32 } else { u32::MAX }),
        t(x < y), t(x <= y), t(x == y), t(x != y), t(x > y), t(x >= y),
        bits(if !(x < y) { b } else { c }), bits(if !(x <= y) { b } else { c }), bits(if !(x > y) { b } else { c }), bits(if !(x >= y) { b } else { c }),
        t(x.is_nan() || y.is_nan()), t(!x.is_nan() && !y.is_nan()), t(x < y || x > y), t(signalling_or_quiet_or_infinite), t(middle),
        value(rounded(a, |v| 1.0 / v)), value(rounded(a & 0x7FFF_FFFF, |v| 1.0 / v.sqrt())), value(rounded(a & 0x7FFF_FFFF, f64::sqrt)),
        value(x / y), value(1.0 / z), value(magnitude.sqrt()),
        value(rounded((a & 0x80FF_FFFF) | 0x4000_0000, f64::exp2)), value(rounded(a & 0x7FFF_FFFF, f64::log2)),
    ]
}

/// 64 triples: random words, small numbers, and the edges of F32.
fn inputs(seed: u64) -> Vec<[u32; 3]> {
    const EDGES: [u32; 14] = [
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007F_FFFF,
        0x3F80_0000,
        0xBF80_0000,
        0x7F7F_FFFF,
        0x7F80_0000,
        0xFF80_0000,
        0x7FC0_0000,
        0xFFFF_FFFF,
        0x4B00_0001,
        0x3F00_0000,
    ];
    let mut random = Random(seed);
    let mut word = |kind: usize| match kind {
        0 => random.next(),
        1 => random.below(70),
        2 => EDGES[random.below(14) as usize],
        _ => 0x3E00_0000 + random.below(0x0300_0000) | random.below(2) << 31,
    };
    (0..64).map(|i| [word(i % 4), word(i / 4 % 4), word(i / 16 % 4)]).collect()
}

fn words(memory: &Memory, address: Address) -> Vec<u32> {
    memory.bytes(address).unwrap().chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn bytes(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn run(object: &CodeObject, kernel: &str, memory: &mut Memory, arguments: &Arguments) -> Statistics {
    let kernel = object.kernel(kernel).unwrap();
    launch(memory, &Launch { kernel, grid: [1, 1, 1], threads: 64, dynamic_lds: 0, arguments: &arguments.0, order: Order::Serial }).unwrap()
}

/// a[0..64], b[0..64], c[0..64].
fn columns(inputs: &[[u32; 3]]) -> Vec<u8> {
    bytes((0..3).flat_map(|column| inputs.iter().map(move |row| row[column])))
}

fn same((expected, float): (u32, bool), found: u32) -> bool {
    expected == found || (float && f(expected).is_nan() && f(found).is_nan())
}

fn expected(a: u32, b: u32, c: u32) -> Vec<(u32, bool)> {
    integers(a, b, c).into_iter().map(|value| (value, false)).chain(floats(a, b, c)).collect()
}

#[test]
fn vector_and_scalar_operations_compute_what_rust_computes() {
    let Some(object) = object() else { return };
    for seed in 1..9 {
        let inputs = inputs(seed);
        let count = expected(1, 2, 3).len();
        let mut memory = Memory::new();
        let (input, output) = (memory.input("in", &columns(&inputs)), memory.output("out", 256 * count));
        run(&object, "vector_operations", &mut memory, &Arguments::default().address(Some(input)).address(Some(output)));
        let found = words(&memory, output);
        for (lane, &[a, b, c]) in inputs.iter().enumerate() {
            for (n, value) in expected(a, b, c).into_iter().enumerate() {
                assert!(
                    same(value, found[64 * n + lane]),
                    "vector expression {n} of {a:#x} {b:#x} {c:#x}: {value:x?}, found {:x}",
                    found[64 * n + lane]
                );
            }
        }
        for &[a, b, c] in &inputs {
            let mut memory = Memory::new();
            let output = memory.output("out", 4 * count);
            run(&object, "scalar_operations", &mut memory, &Arguments::default().u32(a).u32(b).u32(c).address(Some(output)));
            for (n, (value, found)) in expected(a, b, c).into_iter().zip(words(&memory, output)).enumerate() {
                assert!(same(value, found), "scalar expression {n} of {a:#x} {b:#x} {c:#x}: {value:x?}, found {found:x}");
            }
        }
    }
}

/// From which lane DPP reads, as the instruction set describes each pattern; None: no lane.
fn dpp(control: u32, lane: usize) -> Option<usize> {
    let (row, at) = (lane / 16, lane % 16);
    let within = |at: i64| (0..16).contains(&at).then(|| 16 * row + at as usize);
    match control {
        0x1B => Some(lane / 4 * 4 + 3 - lane % 4),
        0x101 => within(at as i64 + 1),
        0x113 => within(at as i64 - 3),
        0x124 => within((at as i64 - 4).rem_euclid(16)),
        0x140 => within(15 - at as i64),
        0x141 => within(at as i64 / 8 * 8 + 7 - at as i64 % 8),
        0x142 => (row > 0).then(|| 16 * row - 1),
        0x143 => (lane >= 32).then_some(31),
        _ => unreachable!(),
    }
}

#[test]
fn lanes_reach_each_other_as_the_instruction_set_says() {
    let Some(object) = object() else { return };
    let inputs = inputs(7);
    let (mut memory, outputs) = (Memory::new(), 33);
    let (input, output) = (memory.input("in", &columns(&inputs)), memory.output("out", 256 * outputs));
    run(&object, "lane_operations", &mut memory, &Arguments::default().address(Some(input)).address(Some(output)));
    let found = words(&memory, output);
    let a: Vec<u32> = inputs.iter().map(|row| row[0]).collect();
    let ballot: u64 = inputs.iter().enumerate().map(|(lane, row)| u64::from(row[0] > row[1]) << lane).sum();
    for (lane, &[x, y, z]) in inputs.iter().enumerate() {
        // Column `lane % 16` of a matrix whose row is what four lanes read one after another: 16 elements of two bytes.
        let turned = |row: usize| {
            let from = lane / 16 * 16 + 4 * row + lane % 16 / 4;
            let word = 2 * ((5 * from + 1) % 64) + lane % 4 / 2;
            inputs[word % 64][word / 64] >> (16 * (lane % 2)) & 0xFFFF
        };
        let moved = |control: u32, rows: u32, banks: u32, zero: bool| {
            let masked = rows >> (lane / 16) & 1 == 0 || banks >> (lane % 16 / 4) & 1 == 0;
            let value = match dpp(control, lane) {
                _ if masked => y,
                Some(from) => a[from],
                None if zero => 0,
                None => y,
            };
            (value, false)
        };
        let below = |mask: u64, base: u32| ((mask & ((1u64 << lane) - 1)).count_ones() + base, false);
        let value = |value: f32| (value.to_bits(), true);
        let half = |value: u32| u32::from(kernels::format::bf16::encode(f(value)));
        #[rustfmt::skip]
        let expected = [
            value(f(x) + f(y)), value(f(y) + f(z)), value(f(x) - f(y)), value(f(y) - f(z)), value(f(x) * f(y)), value(f(y) * f(z)),
            value(f(x).mul_add(f(y), f(z))), value(f(y).mul_add(f(z), f(x))), value((-f(x)).mul_add(f(z), f(z))), value((-f(y)).mul_add(f(y), f(x))),
            (a[(lane * 7 + 3) % 64], false), (a[17], false), (inputs[0][1], false), below(u64::MAX, 0), below(0x0F0F_1234_1234_5678, 3),
            (fold(ballot), false), moved(0x1B, 15, 15, false), moved(0x101, 15, 15, false), moved(0x113, 15, 15, true), moved(0x124, 10, 5, false),
            moved(0x140, 15, 15, false), moved(0x141, 15, 15, false), moved(0x142, 10, 15, false), moved(0x143, 12, 15, false),
            (x & !(y | z) | !x & (y | z), false), (x & y | x & z | y & z, false), (half(x) | half(y) << 16, false),
            (a[(5 * lane + 1) % 64], false), (inputs[(5 * lane + 1) % 64][1], false),
            (turned(0) | turned(1) << 16, false), (turned(2) | turned(3) << 16, false),
            (if lane < 32 { x } else { inputs[lane - 32][1] }, false), (if lane < 32 { a[lane + 32] } else { y }, false),
        ];
        for (n, expected) in expected.into_iter().enumerate() {
            assert!(same(expected, found[64 * n + lane]), "expression {n} in lane {lane}: {expected:x?}, found {:x}", found[64 * n + lane]);
        }
    }
}

#[test]
fn memory_elements_of_every_width_keep_their_bytes() {
    let Some(object) = object() else { return };
    let mut random = Random(5);
    let data: Vec<u8> = (0..2560).map(|_| random.next() as u8).collect();
    let mut memory = Memory::new();
    let (input, output) = (memory.input("in", &data), memory.output("out", 1856));
    run(&object, "memory_operations", &mut memory, &Arguments::default().address(Some(input)).address(Some(output)));
    let found = memory.bytes(output).unwrap();
    let u16_at = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
    for lane in 0..64 {
        let other = 63 - lane;
        let parts = [
            data[other] as i8 as u32,
            u32::from(data[(other + 1) % 64]),
            u16_at(64 + 2 * other) as i16 as u32,
            u32::from(u16_at(64 + 2 * lane)),
            u32_at(192 + 4 * other),
            data[lane] as i8 as u32,
            u16_at(64 + 2 * lane) as i16 as u32,
        ];
        let sum = parts.into_iter().fold(0u32, u32::wrapping_add);
        let (two, four) = (448 + 8 * other, 1024 + 16 * other);
        let pair = u32_at(2048 + 8 * other) ^ u32_at(2052 + 8 * other);
        let words = [
            sum.wrapping_add(u32_at(two)),
            u32_at(two + 4) ^ pair,
            u32_at(four).wrapping_add(u32_at(four + 4)),
            u32_at(four + 8) ^ u32_at(four + 12),
        ];
        assert_eq!(found[16 * lane..16 * lane + 16], bytes(words), "lane {lane}");
        let half = if lane < 32 { sum >> 16 } else { sum };
        assert_eq!(found[1024 + 2 * lane..][..2], (half as u16).to_le_bytes(), "lane {lane}");
        assert_eq!(found[1728 + 2 * lane..][..2], ((sum >> 16) as u16).to_le_bytes(), "lane {lane}");
        assert_eq!(found[1152 + lane], (sum >> 8) as u8, "lane {lane}");
        assert_eq!(found[1216 + 8 * lane..][..8], data[two..two + 8], "lane {lane}");
    }
}

#[test]
fn operations_written_in_assembly_compute_what_the_instruction_set_says() {
    let Some(object) = object() else { return };
    for (seed, p, q) in [(11, 0xFFFF_9234, 0x0007_0003), (12, 0x9234, 0x9234), (13, 0x1_2345, 0x8000_0005), (14, 0x8000_0000, 0x1_2345)] {
        let inputs = inputs(seed);
        let (mut memory, outputs) = (Memory::new(), assembled([0; 3], [0; 2], 0).len());
        let (input, output) = (memory.input("in", &columns(&inputs)), memory.output("out", 256 * outputs));
        let arguments = Arguments::default().address(Some(input)).u32(p).u32(q).address(Some(output));
        run(&object, "assembled_operations", &mut memory, &arguments);
        let found = words(&memory, output);
        for (lane, &[a, b, c]) in inputs.iter().enumerate() {
            for (n, expected) in assembled([a, b, c], [p, q], inputs[1][0]).into_iter().enumerate() {
                let found = found[64 * n + lane];
                assert!(same(expected, found), "operation {n} of {a:#x} {b:#x} {c:#x} {p:#x} {q:#x}: {expected:x?}, found {found:x}");
            }
        }
    }
}

/// In the order of `assembled_operations`.
#[rustfmt::skip] // one line of operations for each line in operations.hip
fn assembled([a, b, c]: [u32; 3], [p, q]: [u32; 2], second: u32) -> Vec<(u32, bool)> {
    let (x, y, z) = (f(a), f(b), f(c));
    let (ia, ib, ic) = (a as i32, b as i32, c as i32);
    let (ua, ub, sa, sb) = (a as u16, b as u16, a as i16, b as i16);
    let (ab, ac) = (wide(a, b), wide(a, c));
    let value = |value: f32| (value.to_bits(), true);
    let bits = |bits: u32| (bits, false);
    let t = |truth: bool| (u32::from(truth), false);
    // Bytes 0..16 of a thread: a and b, then c and a; eight of them from byte 4 on.
    let read = u64::from(b) | u64::from(c) << 32;
    let field = if q >> 16 & 127 == 0 { 0 } else { (p >> (q & 31)) & ((1u64 << (q >> 16 & 127).min(32)) - 1) as u32 };
    let k = 0xFFFF_9234u32 as i32;
    let (ip, u) = (p as i32, 0x9234);
    vec![
        value((a >> 8 & 0xFF) as f32), bits(a << 16), value(x.mul_add(y, 3.25)), bits((b << (a & 15)) & 0xFFFF), bits(b.wrapping_sub(a).wrapping_add(u32::from(b < a))), bits(15 | 5 << 8),
        bits(!(a ^ b)), bits(((1u32 << (a & 31)) - 1) << (b & 31)),
        bits(a.wrapping_add(b)), bits(a.wrapping_sub(b)), value(y - x), bits((i64::from(ia) * i64::from(ib) >> 32) as u32),
        bits(a | b | c), bits(a.min(b).min(c)), bits(ia.min(ib).min(ic) as u32), value(minimum(minimum(x, y), z)), bits(ia.max(ib).max(ic) as u32),
        value(maximum(maximum(x, y), z)), value(if x.is_nan() || y.is_nan() || z.is_nan() { f32::NAN } else { maximum(maximum(x, y), z) }), bits(a.wrapping_add(b) << (c & 31)),
        t(ia == ib), t(ia != ib), t(ia >= ib),
        t(ua < ub), t(ua <= ub), t(ua == ub), t(ua != ub), t(ua > ub), t(ua >= ub),
        t(sa < sb), t(sa <= sb), t(sa == sb), t(sa != sb), t(sa > sb), t(sa >= sb),
        t(ab == ac), t(ab != ac), t(ab as i64 <= ac as i64), t(ab as i64 >= ac as i64), t(ab <= ac), t(ab >= ac),
        t(x < y || x > y), t(!(x >= y)), t(!(x > y)), t(!(x <= y)), t(!(x < y)),
        bits(read as u32), bits((read >> 32) as u32), bits(second),
        bits(!(p & q)), bits(field), bits(!(p | q)), bits(!(p ^ q)), bits(((1u32 << (p & 31)) - 1) << (q & 31)),
        bits((p & 0xFFFF) | q << 16), bits((p & 0xFFFF) | (q & 0xFFFF_0000)), bits((p >> 16) | (q & 0xFFFF_0000)),
        bits(q | 1 << (p & 31)),
        t(p == q), t(p != q), t(p as i32 >= q as i32), t(p >> (q & 31) & 1 == 0), t(p >> (q & 31) & 1 == 1),
        t(ip == k), t(ip != k), t(ip > k), t(ip >= k), t(ip < k), t(ip <= k), t(p == u), t(p != u), t(p > u), t(p >= u), t(p < u), t(p <= u),
    ]
}

/// Grid and block sizes come from the runtime, and the size of some LDS from the launch.
#[test]
fn the_launch_fills_in_what_the_runtime_would() {
    let Some(object) = object() else { return };
    let mut memory = Memory::new();
    let output = memory.output("out", 4 * 64 * 6);
    let kernel = object.kernel("hidden_arguments").unwrap();
    let arguments = Arguments::default().u32(7).address(Some(output));
    let mut request = Launch { kernel, grid: [3, 2, 1], threads: 64, dynamic_lds: 256, arguments: &arguments.0, order: Order::Reversed };
    launch(&mut memory, &request).unwrap();
    for (at, found) in words(&memory, output).into_iter().enumerate() {
        let (block, lane) = (at as u32 / 64, at as u32 % 64);
        assert_eq!(found, 7 + 64 * (block % 3) + 63 - lane + 1000 * (block / 3), "{at}");
    }
    // Too little of it is a fault, and a request that cannot be is refused.
    request.dynamic_lds = 252;
    assert!(launch(&mut memory, &request).unwrap_err().to_string().contains("beyond the kernel's 252 bytes"));
    request.dynamic_lds = 163_844;
    assert!(launch(&mut memory, &request).unwrap_err().to_string().contains("at most 163840 are there"));
    request = Launch { dynamic_lds: 256, threads: 128, ..request };
    assert!(launch(&mut memory, &request).unwrap_err().to_string().contains("at most 64 expected"));
    request = Launch { threads: 64, arguments: &arguments.0[..8], ..request };
    assert!(launch(&mut memory, &request).unwrap_err().to_string().contains("8 bytes of arguments given, 16 expected"));
}

/// Whatever the decoder knows is in the code of a kernel that some test executes: an operation whose meaning nobody checked cannot hide.
#[test]
fn every_known_operation_is_in_code_that_is_executed() {
    let Some(own) = object() else { return };
    let other = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(name);
        CodeObject::parse(&compile_path(&path, &[]).unwrap()).unwrap()
    };
    let mut objects = vec![own, other("matrix.hip"), other("doubles.hip")];
    let Some(kernels) = common::compile_all(&common::build().sources) else { return };
    objects.extend(kernels.iter().map(|bytes| CodeObject::parse(bytes).unwrap()));
    let seen: BTreeSet<Op> = objects.iter().flat_map(|o| &o.kernels).flat_map(|kernel| kernel.instructions.iter().map(|i| i.op)).collect();
    let unseen: Vec<&str> = ALL.iter().filter(|op| !seen.contains(op)).map(|op| op.name()).collect();
    // The prefix of scaled matrix operations is decoded with them; the others only make the wave wait.
    assert_eq!(unseen, ["s_sleep", "v_nop", "v_mfma_ld_scale_b32"]);
}
