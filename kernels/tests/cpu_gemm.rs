//! GEMMs: the same bits on every instruction set and number of threads, and the right numbers.
//!
//! Right means: bit for bit the definition in plain scalar code (`defined`), and within a derived bound of an F64 sum. The bound for
//! k fused multiply-adds is k * 2^-24 times the sum of |a*b| (each rounding is at most half an ulp of a partial sum, and every
//! partial sum is at most that sum), with the same again for the scales and the final addition; doubled to stay clear.

#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use contract::recipe::{Block, Format, OperandSpec, Rounding, ScaleRule};
use kernels::cpu::{Cpu, InstructionSet, Matrix, Panels, Role, ShapeError, Side};
use kernels::quantise::{Float, Mxfp4, Prepared, Randomness, Source, dequantise, prepare_reference};
use kernels::random::{Stream, StreamKey};

fn stream(tag: u64) -> Stream {
    StreamKey { seed: 11, step: tag, ..Default::default() }.stream()
}

fn cpus() -> Vec<Cpu> {
    let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_supported());
    sets.flat_map(|set| [Cpu::new(set, 1).unwrap(), Cpu::new(set, 3).unwrap()]).collect()
}

fn normals(count: usize, tag: u64) -> Vec<f32> {
    (0..count as u64).map(|i| stream(tag).normal(i)).collect()
}

fn float(rows: usize, k: usize, scale: f32, tag: u64) -> Prepared {
    Prepared::Float(Float { rows, k, values: normals(rows * k, tag), scale })
}

/// Random codes; scale bytes in `bytes`, one block in `nan_every` a NaN (0: none). Padding codes are zero, as `prepare` leaves them.
fn mxfp4(rows: usize, k: usize, bytes: std::ops::RangeInclusive<u8>, nan_every: u32, multiplier: f32, tag: u64) -> Prepared {
    let (s, blocks) = (stream(tag), k.div_ceil(32));
    let code = |row: usize, column: usize| if column < k { s.word((row * k + column) as u64) & 15 } else { 0 };
    let codes = (0..rows * blocks * 16)
        .map(|i| {
            let (row, pair) = (i / (blocks * 16), i % (blocks * 16));
            (code(row, 2 * pair) | (code(row, 2 * pair + 1) << 4)) as u8
        })
        .collect();
    let span = u32::from(bytes.end() - bytes.start()) + 1;
    let scales = (0..rows * blocks).map(|i| {
        let word = stream(tag + 1).word(i as u64);
        if nan_every > 0 && word.is_multiple_of(nan_every) { 255 } else { bytes.start() + ((word >> 8) % span) as u8 }
    });
    let scales = scales.collect();
    Prepared::Mxfp4(Mxfp4 { rows, k, blocks, codes, scales, multiplier })
}

/// The definition, written for clarity.
fn defined(a: &Prepared, b: &Prepared, c: &[f32], accumulate: bool) -> Vec<f32> {
    let factor_of = |p: &Prepared| match p {
        Prepared::Mxfp4(m) => m.multiplier,
        Prepared::Float(f) => f.scale,
    };
    let plain = |p: &Prepared| match p {
        Prepared::Float(f) => f.values.clone(),
        Prepared::Mxfp4(m) => dequantise(&Prepared::Mxfp4(Mxfp4 { multiplier: 1.0, ..m.clone() })),
    };
    let factor = (f64::from(factor_of(a)) * f64::from(factor_of(b))) as f32;
    let (left, right, k) = (plain(a), plain(b), a.k());
    let mut result = c.to_vec();
    for row in 0..a.rows() {
        for column in 0..b.rows() {
            let mut acc = 0.0f32;
            if let (Prepared::Mxfp4(a), Prepared::Mxfp4(b)) = (a, b) {
                for block in 0..a.blocks {
                    acc = exact_block(acc, a, row, b, column, block);
                }
            } else {
                for i in 0..k {
                    acc = left[row * k + i].mul_add(right[column * k + i], acc);
                }
            }
            let product = if factor == 1.0 { acc } else { acc * factor };
            let to = &mut result[row * b.rows() + column];
            *to = if accumulate { *to + product } else { product };
        }
    }
    result
}

/// round(acc + dot * 2^(eA + eB - 2)) by integers: both terms as multiples of one power of two in i128 where that is possible,
/// otherwise the smaller one is a sticky bit.
fn exact_block(acc: f32, a: &Mxfp4, row: usize, b: &Mxfp4, column: usize, block: usize) -> f32 {
    const DOUBLED: [i32; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    let (byte_a, byte_b) = (a.scales[row * a.blocks + block], b.scales[column * b.blocks + block]);
    if byte_a == 255 || byte_b == 255 || acc.is_nan() {
        return f32::NAN;
    }
    let code =
        |m: &Mxfp4, row: usize, i: usize| DOUBLED[usize::from((m.codes[(row * m.blocks + block) * 16 + i / 2] >> (4 * (i % 2))) & 15)];
    let dot: i32 = (0..32).map(|i| code(a, row, i) * code(b, column, i)).sum();
    if dot == 0 || acc.is_infinite() {
        return acc + 0.0;
    }
    let power = i32::from(byte_a) + i32::from(byte_b) - 256;
    let bits = acc.to_bits();
    let exponent = ((bits >> 23) & 255) as i32;
    let magnitude = i128::from((bits & 0x7F_FFFF) | if exponent > 0 { 0x80_0000 } else { 0 });
    let acc_integer = if acc < 0.0 { -magnitude } else { magnitude };
    let acc_power = exponent.max(1) - 150;
    // Bring both to one power; beyond 100 bits apart the smaller only breaks ties.
    let (high_power, low_power) = (power.max(acc_power), power.min(acc_power));
    let shift = (high_power - low_power).min(100);
    let (high, low) = if power >= acc_power { (i128::from(dot), acc_integer) } else { (acc_integer, i128::from(dot)) };
    if high == 0 {
        return round_to_f32(low, low_power);
    }
    let sticky = if high_power - low_power > 100 { low.signum() } else { low };
    round_to_f32((high << shift) + sticky, high_power - shift)
}

/// integer * 2^power to F32, nearest-even, with overflow and subnormals.
fn round_to_f32(integer: i128, power: i32) -> f32 {
    if integer == 0 {
        return 0.0;
    }
    let magnitude = integer.unsigned_abs();
    let top = 127 - magnitude.leading_zeros() as i32;
    // Bits below this position are dropped: 24 kept, fewer where the result is subnormal.
    let drop = (top - 23).max(-149 - power);
    let kept = if drop <= 0 {
        magnitude << (-drop).min(100)
    } else if drop > 120 {
        0
    } else {
        let (whole, half) = (magnitude >> drop, 1u128 << (drop - 1));
        let rest = magnitude & ((1 << drop) - 1);
        whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
    };
    let unit = power + drop;
    let value = if unit > 127 { f64::INFINITY } else { kept as f64 * f64::powi(2.0, unit) };
    // `value` has at most 24 significant bits on F32's grid: the conversion is exact, or overflows to infinity as it should.
    if integer < 0 { -value as f32 } else { value as f32 }
}

fn assert_bits(expected: &[f32], found: &[f32], context: &str) {
    assert_eq!(expected.len(), found.len());
    for (i, (e, f)) in expected.iter().zip(found).enumerate() {
        let same = e.to_bits() == f.to_bits() || (e.is_nan() && f.to_bits() == 0x7FC0_0000);
        assert!(same, "element {i} is {f:?} ({:08x}), not {e:?} ({:08x}), {context}", f.to_bits(), e.to_bits());
    }
}

/// Lays both operands out in plain code and multiplies them.
fn multiply(cpu: &Cpu, a: &Prepared, b: &Prepared, c: &mut [f32], accumulate: bool) -> Result<(), ShapeError> {
    let as_floats = !matches!((a, b), (Prepared::Mxfp4(_), Prepared::Mxfp4(_)));
    cpu.gemm(&Panels::pack(a, Side::Left, as_floats), &Panels::pack(b, Side::Right, as_floats), c, accumulate)
}

fn check(a: &Prepared, b: &Prepared, cpus: &[Cpu], context: &str) {
    let before = normals(a.rows() * b.rows(), 99);
    for accumulate in [false, true] {
        let expected = defined(a, b, &before, accumulate);
        for cpu in cpus {
            let mut c = before.clone();
            multiply(cpu, a, b, &mut c, accumulate).unwrap();
            assert_bits(&expected, &c, &format!("{cpu:?} {}x{}x{} accumulate {accumulate} {context}", a.rows(), b.rows(), a.k()));
        }
    }
}

const SHAPES: [(usize, usize, usize); 19] = [
    (0, 3, 32),
    (3, 0, 32),
    (4, 4, 0),
    (1, 1, 1),
    (1, 33, 32),
    (2, 31, 64),
    (5, 16, 97),
    (7, 65, 33),
    (12, 32, 128),
    (13, 17, 31),
    (23, 47, 160),
    (25, 64, 96),
    (61, 67, 71),
    (96, 100, 256),
    (29, 129, 384),
    // Several pieces of k, for floats and for blocks; several groups of columns within a piece.
    (26, 100, 1100),
    (40, 100, 1100),
    (13, 33, 1900),
    (3, 2100, 300),
];

#[test]
fn every_pair_of_formats() {
    let cpus = cpus();
    for (m, n, k) in SHAPES {
        check(&float(m, k, 1.0, 1), &float(n, k, 1.0, 2), &cpus, "float");
        check(&float(m, k, 0.3, 1), &float(n, k, 1.7, 2), &cpus, "float, scaled");
        let (a, b) = (mxfp4(m, k, 120..=134, 0, 1.0, 3), mxfp4(n, k, 120..=134, 0, 1.0, 5));
        check(&a, &b, &cpus, "mxfp4");
        check(&a, &float(n, k, 0.7, 2), &cpus, "mxfp4 x float");
        check(&float(m, k, 1.0, 1), &b, &cpus, "float x mxfp4");
        check(&mxfp4(m, k, 100..=150, 40, 4.0 / 3.0, 3), &mxfp4(n, k, 100..=150, 40, 4.0 / 3.0, 5), &cpus, "mxfp4, prescaled, NaN blocks");
    }
}

/// What `prepare_into` lays out multiplies like what `Panels::pack` lays out: start values, scales and rows beyond the end included.
#[test]
fn prepared_panels_multiply_like_packed_ones() {
    let spec =
        OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Floor, rounding: Rounding::NearestEven, rotation: None };
    let (mut left, mut right) = (Panels::default(), Panels::default());
    for (m, n, k) in SHAPES.into_iter().filter(|shape| shape.2 >= 32) {
        let (a, b) = (normals(m * k, 21), normals(n * k, 22));
        for spec in [spec, OperandSpec { block: Block::Tile32, ..spec }] {
            let prepared = |values: &[f32], rows| {
                let source = Source { values, rows, k, transposed: false };
                prepare_reference(source, &spec, Randomness::default(), None).unwrap().0
            };
            let expected = defined(&prepared(&a, m), &prepared(&b, n), &vec![0.0; m * n], false);
            for cpu in cpus() {
                let prepare = |values: &[f32], rows, side, to: &mut Panels| {
                    let (source, role) = (Source { values, rows, k, transposed: false }, Role { side, partner: Format::E2m1 });
                    cpu.prepare_into(source, &spec, role, Randomness::default(), None, to).unwrap();
                };
                prepare(&a, m, Side::Left, &mut left);
                prepare(&b, n, Side::Right, &mut right);
                let mut c = vec![0.0; m * n];
                cpu.gemm(&left, &right, &mut c, false).unwrap();
                assert_bits(&expected, &c, &format!("{cpu:?} {m}x{n}x{k} {:?}", spec.block));
            }
        }
    }
}

/// FP8 and BF16 sides may be laid out as pairs of BF16: k that leave half of one, elements and sums that are subnormal, zeros, numbers that are
/// none, a side of another layout, and panels that another processor prepared.
#[test]
fn tensors_of_few_bits() {
    let spec = |format, scale| OperandSpec { format, block: Block::Tensor, scale, rounding: Rounding::NearestEven, rotation: None };
    let (e4m3, e5m2) = (spec(Format::E4m3, ScaleRule::Current), spec(Format::E5m2, ScaleRule::Current));
    let (bf16, f32) = (spec(Format::Bf16, ScaleRule::None), spec(Format::F32, ScaleRule::None));
    let cpus = cpus();
    // No rows, no k, one element, halves of pairs, rows and columns beyond whole tiles, several pieces of k.
    for (m, n, k) in [(0, 3, 32), (4, 4, 0), (1, 1, 1), (7, 33, 33), (13, 47, 64), (3, 5, 1101)] {
        for specs in [[e4m3, e4m3], [e5m2, e4m3], [bf16, bf16], [bf16, e4m3], [bf16, f32], [e4m3, f32]] {
            // Magnitudes near 2^power, and one element in a hundred.
            for (power, odd) in [(0, 0.0), (0, f32::INFINITY), (0, f32::NAN), (-55, 0.0), (-62, 0.0), (-64, 1e20), (-70, 0.0), (-130, 0.0)]
            {
                if power != 0 && !specs.contains(&bf16) {
                    continue;
                }
                let values = [(m, 31), (n, 32)].map(|(rows, tag)| {
                    let mut values: Vec<f32> = normals(rows * k, tag).iter().map(|x| x * 2f32.powi(power)).collect();
                    values.iter_mut().step_by(7).for_each(|x| *x = 0.0);
                    values.iter_mut().skip(5).step_by(101).for_each(|x| *x = odd);
                    values
                });
                check_tensors([m, n], k, &values, &specs, &cpus, &format!("2^{power}, {odd}"));
            }
        }
    }
}

/// Large E2M1 sides may lie on matrix tiles: rows and columns beyond whole ones, a part of a block, several pieces of k, elements and sums that
/// are subnormal or too large, blocks that are no numbers, zeros.
#[test]
fn blocks_on_tiles() {
    if !InstructionSet::Amx.is_supported() {
        return;
    }
    let spec =
        OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Even, rounding: Rounding::NearestEven, rotation: None };
    let cpus = [(InstructionSet::Avx512, 1), (InstructionSet::Amx, 1), (InstructionSet::Amx, 3)]
        .map(|(set, threads)| Cpu::new(set, threads).unwrap());
    let ordinary = [[0, 0]; 2];
    // Powers of magnitudes, of all elements and of one block in seven.
    for (m, n, k, powers) in [
        (192, 192, 32, ordinary),
        (211, 229, 65, ordinary),
        (195, 230, 1100, ordinary),
        (193, 193, 96, [[-60, -60], [-60, -60]]),
        (193, 193, 96, [[-62, -62], [-62, -62]]),
        (193, 193, 96, [[0, -126], [0, 0]]),
        (193, 193, 96, [[0, -140], [0, 3]]),
        (193, 193, 96, [[-120, -120], [0, 0]]),
        (193, 193, 96, [[58, 58], [60, 60]]),
        (193, 193, 96, [[0, 62], [0, 62]]),
        (193, 193, 96, [[0, 127], [-60, -80]]),
        (193, 193, 96, [[-128, -128], [70, 70]]),
    ] {
        for odd in [None, Some(f32::NAN)] {
            let values = [(m, 41), (n, 42)].map(|(rows, tag)| {
                let mut values = normals(rows * k, tag);
                for (block, values) in values.chunks_mut(32).enumerate() {
                    let power = powers[tag as usize - 41][usize::from(block % 7 == 3)];
                    values.iter_mut().for_each(|x| *x = ((f64::from(*x) * 2f64.powi(power)) as f32).clamp(f32::MIN, f32::MAX));
                    if block % 5 == 0 {
                        values.fill(0.0);
                    }
                }
                if let Some(odd) = odd {
                    values[rows * k / 2] = odd;
                }
                values
            });
            check_tensors([m, n], k, &values, &[spec; 2], &cpus, &format!("{powers:?}, {odd:?}"));
        }
    }
}

/// Each side as each processor lays it out, by the other's of the same or of plain code.
fn check_tensors(rows: [usize; 2], k: usize, values: &[Vec<f32>; 2], specs: &[OperandSpec; 2], cpus: &[Cpu], told: &str) {
    let source = |i: usize| Source { values: &values[i], rows: rows[i], k, transposed: false };
    let reference = |i: usize| prepare_reference(source(i), &specs[i], Randomness::default(), None).unwrap().0;
    let expected = defined(&reference(0), &reference(1), &vec![0.0; rows[0] * rows[1]], false);
    let panels = |cpu: &Cpu| {
        [Side::Left, Side::Right].map(|side| {
            let i = usize::from(side == Side::Right);
            let (mut panels, role) = (Panels::default(), Role { side, partner: specs[1 - i].format });
            cpu.prepare_into(source(i), &specs[i], role, Randomness::default(), None, &mut panels).unwrap();
            panels
        })
    };
    let (plain, others) = (&cpus[0], panels(&cpus[0]));
    for own in cpus {
        let mine = panels(own);
        for (who, cpu, [left, right]) in [
            ("own", own, [&mine[0], &mine[1]]),
            ("own left", own, [&mine[0], &others[1]]),
            ("own right", own, [&others[0], &mine[1]]),
            ("by plain code", plain, [&mine[0], &mine[1]]),
        ] {
            let mut c = vec![0.0; expected.len()];
            cpu.gemm(left, right, &mut c, false).unwrap();
            let formats = specs.each_ref().map(|spec| spec.format);
            assert_bits(&expected, &c, &format!("{own:?} {rows:?} by {k} {formats:?} {told} {who}"));
        }
    }
}

/// C so wide that its rows are shared out on one thread, too; and wider than all that a share holds.
#[test]
fn wide_products() {
    let cpus = cpus();
    for (m, n, k) in [(60, 4097, 32), (2, 200_001, 1)] {
        check(&mxfp4(m, k, 110..=140, 0, 1.0, 1), &mxfp4(n, k, 110..=140, 0, 1.0, 2), &cpus, "wide");
        check(&float(m, k, 1.0, 3), &float(n, k, 1.0, 4), &cpus, "wide");
    }
}

/// Two pieces of k, of which 192 rows are copied together (273 of MXFP4), so that one thread has two blocks of rows; once more added to a C
/// whose rows lie apart.
#[test]
fn tall_products() {
    let (m, n, k) = (229, 35, 510);
    let cpus = cpus();
    check(&mxfp4(301, 1100, 120..=134, 0, 1.0, 3), &mxfp4(35, 1100, 120..=134, 3, 1.0, 5), &cpus, "tall");
    let (a, b, stride) = (float(m, k, 1.0, 1), float(n, k, 1.0, 2), n + 5);
    check(&a, &b, &cpus, "tall");
    let expected = defined(&a, &b, &vec![7.0; m * n], true);
    let (a, b) = (normals(m * k, 1), normals(n * k, 2));
    for cpu in &cpus {
        let mut c = vec![7.0; (m - 1) * stride + n];
        cpu.gemm_f32(Matrix::new(&a, m, k), Matrix::new(&b, n, k), &mut c, stride, true).unwrap();
        for (c, expected) in c.chunks(stride).zip(expected.chunks(n)) {
            assert_bits(expected, &c[..n], &format!("{cpu:?} {m}x{n}x{k}, added"));
            assert!(c[n..].iter().all(|&x| x == 7.0), "wrote beyond its columns");
        }
    }
}

#[test]
fn every_scale_byte() {
    let cpus = cpus();
    // (a, b): everything; both tiny (subnormal products); both huge (overflow); huge against tiny, both ways.
    for (i, (low_a, high_a, low_b, high_b)) in
        [(0, 254, 0, 254), (0, 20, 0, 20), (56, 70, 50, 62), (200, 254, 200, 254), (228, 254, 0, 26), (0, 26, 228, 254), (100, 233, 0, 254)]
            .into_iter()
            .enumerate()
    {
        let tag = 1000 * i as u64;
        // From the panels, and large enough for copies of both sides.
        for (m, n) in [(9, 37), (49, 65)] {
            let (a, b) = (mxfp4(m, 128, low_a..=high_a, 0, 1.0, tag), mxfp4(n, 128, low_b..=high_b, 0, 1.0, tag + 10));
            check(&a, &b, &cpus, "all scales");
            let (a, b) = (mxfp4(m, 64, low_a..=high_a, 9, 4.0 / 3.0, tag), mxfp4(n, 64, low_b..=high_b, 9, 1.0, tag + 10));
            check(&a, &b, &cpus, "all scales, NaN");
            check(&mxfp4(m, 64, low_a..=high_a, 0, 1.0, tag), &b, &cpus, "all scales, NaN on the right");
        }
    }
}

#[test]
fn infinities_and_nan_spread_as_they_should() {
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0, 0.0];
    let values = |count: usize, tag| (0..count).map(|i| special[stream(tag).word(i as u64) as usize % 8]).collect();
    let a = Prepared::Float(Float { rows: 13, k: 5, values: values(65, 1), scale: 1.0 });
    let b = Prepared::Float(Float { rows: 35, k: 5, values: values(175, 2), scale: 1.0 });
    check(&a, &b, &cpus(), "special values");
}

#[test]
fn products_are_near_the_f64_sum() {
    for (m, n, k) in SHAPES {
        let pairs = [
            (float(m, k, 0.9, 1), float(n, k, 1.1, 2)),
            (mxfp4(m, k, 120..=134, 0, 4.0 / 3.0, 3), mxfp4(n, k, 120..=134, 0, 1.0, 5)),
            (mxfp4(m, k, 120..=134, 0, 1.0, 3), float(n, k, 1.0, 2)),
        ];
        for (a, b) in &pairs {
            let mut c = vec![0.0; m * n];
            multiply(&Cpu::new(InstructionSet::detect(), 1).unwrap(), a, b, &mut c, false).unwrap();
            let (left, right) = (dequantise(a), dequantise(b));
            for row in 0..m {
                for column in 0..n {
                    let products = (0..k).map(|i| f64::from(left[row * k + i]) * f64::from(right[column * k + i]));
                    let (sum, size) = products.fold((0.0, 0.0), |(s, t): (f64, f64), p| (s + p, t + p.abs()));
                    // + 6: the factor's own rounding, the multiplication by it, and dequantise's roundings of either side.
                    let bound = 2.0 * (k + 6) as f64 * f64::powi(2.0, -24) * size;
                    let found = f64::from(c[row * n + column]);
                    assert!((found - sum).abs() <= bound, "{m}x{n}x{k} at {row},{column}: {found} is not {sum} +- {bound}");
                }
            }
        }
    }
}

#[test]
fn strided_f32() {
    for (m, n, k) in SHAPES {
        let (a, b) = (normals(m * k, 1), normals(n * k, 2));
        let flip = |x: &[f32], rows: usize| -> Vec<f32> { (0..k).flat_map(|i| (0..rows).map(move |r| x[r * k + i])).collect() };
        let (a_t, b_t) = (flip(&a, m), flip(&b, n));
        // Padded rows: stride k + 3.
        let padded: Vec<f32> = (0..n).flat_map(|r| b[r * k..(r + 1) * k].iter().copied().chain([f32::NAN; 3])).collect();
        let spread = Matrix { values: &padded, rows: n, k, row_stride: k + 3, k_stride: 1 };
        let every_second: Vec<f32> = a.iter().flat_map(|&x| [x, f32::NAN]).collect();
        let sparse = Matrix { values: &every_second, rows: m, k, row_stride: 2 * k, k_stride: 2 };
        let expected = defined(&float(m, k, 1.0, 1), &float(n, k, 1.0, 2), &vec![0.0; m * n], false);
        let stride = n + 5;
        for cpu in cpus() {
            for (a, b) in [
                (Matrix::new(&a, m, k), Matrix::new(&b, n, k)),
                (Matrix::transposed(&a_t, m, k), Matrix::new(&b, n, k)),
                (Matrix::new(&a, m, k), Matrix::transposed(&b_t, n, k)),
                (Matrix::transposed(&a_t, m, k), spread),
                (sparse, spread),
            ] {
                let mut c = vec![7.0; m * stride];
                cpu.gemm_f32(a, b, &mut c, stride, false).unwrap();
                for row in 0..m {
                    assert_bits(&expected[row * n..(row + 1) * n], &c[row * stride..row * stride + n], &format!("{cpu:?} {m}x{n}x{k}"));
                    assert!(c[row * stride + n..(row + 1) * stride].iter().all(|&x| x == 7.0), "wrote beyond its columns");
                }
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let cpu = Cpu::new(InstructionSet::detect(), 1).unwrap();
    let mut c = vec![5.0; 6];
    assert!(multiply(&cpu, &float(2, 4, 1.0, 1), &float(3, 5, 1.0, 2), &mut c, false).is_err());
    assert!(multiply(&cpu, &float(2, 4, 1.0, 1), &float(4, 4, 1.0, 2), &mut c, false).is_err());
    let (left, right) = (Panels::pack(&float(2, 4, 1.0, 1), Side::Left, true), Panels::pack(&float(3, 4, 1.0, 2), Side::Right, true));
    assert!(cpu.gemm(&right, &left, &mut c, false).is_err(), "sides exchanged");
    let integers = Panels::pack(&mxfp4(3, 4, 120..=130, 0, 1.0, 3), Side::Right, false);
    assert!(cpu.gemm(&left, &integers, &mut c, false).is_err(), "integers by floats");
    let x = [0.0; 7];
    let short = Matrix { values: &x, rows: 2, k: 4, row_stride: 4, k_stride: 1 };
    let fits = Matrix { values: &x, rows: 3, k: 2, row_stride: 2, k_stride: 1 };
    assert!(cpu.gemm_f32(short, short, &mut c, 2, false).is_err());
    assert!(cpu.gemm_f32(fits, fits, &mut c, 3, false).is_err());
    assert!(cpu.gemm_f32(fits, fits, &mut c, 1, false).is_err());
    let overflow = Matrix { row_stride: usize::MAX, ..fits };
    assert!(cpu.gemm_f32(overflow, fits, &mut c, 3, false).is_err());
    assert_eq!(c, [5.0; 6], "nothing was written");
}
