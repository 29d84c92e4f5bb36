//! Products whose left side is prepared on the way: the same bits as preparing, multiplying and what follows done one after the other, on
//! every instruction set and number of threads, for chunks that are whole and chunks that are not.

#![allow(clippy::unwrap_used)] // a test's way to fail

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::cpu::{Cpu, InstructionSet, Panels, ProductError, Role, Side, Unprepared};
use kernels::quantise::{Randomness, Source};
use kernels::random::{Stream, StreamKey};

fn stream(tag: u64) -> Stream {
    StreamKey { seed: 5, step: tag, ..Default::default() }.stream()
}

fn normals(count: usize, tag: u64) -> Vec<f32> {
    (0..count as u64).map(|i| stream(tag).normal(i)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Formats and roundings that take different ways, and the format of the right side.
fn specs() -> Vec<(OperandSpec, Format)> {
    let spec = |format, block, scale, rounding, rotation| OperandSpec { format, block, scale, rounding, rotation };
    let turned = Some(Rotation { size: 16, signs: Signs::None });
    let (nearest, stochastic) = (Rounding::NearestEven, Rounding::Stochastic);
    vec![
        (spec(Format::E2m1, Block::Row32, ScaleRule::Floor, nearest, turned), Format::E2m1),
        (spec(Format::E2m1, Block::Tile32, ScaleRule::Floor, stochastic, None), Format::E2m1),
        (spec(Format::E2m1, Block::Row32, ScaleRule::Floor, Rounding::StochasticPrescaled, None), Format::Bf16),
        (spec(Format::E4m3, Block::Tensor, ScaleRule::Delayed, nearest, None), Format::E4m3),
        (spec(Format::E5m2, Block::Tensor, ScaleRule::Current, stochastic, None), Format::E4m3),
        (spec(Format::Bf16, Block::Tensor, ScaleRule::None, nearest, None), Format::Bf16),
        (spec(Format::F32, Block::Tensor, ScaleRule::None, nearest, None), Format::F32),
    ]
}

struct Case {
    rows: usize,
    k: usize,
    ffn: usize,
    x: Vec<f32>,
    spec: OperandSpec,
    partner: Format,
}

impl Case {
    fn source(&self) -> Source<'_> {
        Source { values: &self.x, rows: self.rows, k: self.k, transposed: false }
    }

    fn randomness(&self) -> Randomness<'_> {
        Randomness { rounding: (self.spec.rounding != Rounding::NearestEven).then(|| stream(77)), signs: None }
    }

    fn unprepared(&self) -> Unprepared<'_> {
        let Self { spec, partner, .. } = self;
        Unprepared { source: self.source(), spec, partner: *partner, randomness: self.randomness(), delayed_amax: Some(3.0) }
    }

    fn right(&self, cpu: &Cpu, rows: usize) -> Panels {
        let (block, scale) = match self.partner {
            Format::E2m1 => (Block::Row32, ScaleRule::Floor),
            Format::E4m3 => (Block::Tensor, ScaleRule::Current),
            _ => (Block::Tensor, ScaleRule::None),
        };
        let spec = OperandSpec { format: self.partner, block, scale, rounding: Rounding::NearestEven, rotation: None };
        let values = normals(rows * self.k, 3);
        let source = Source { values: &values, rows, k: self.k, transposed: false };
        let mut panels = Panels::default();
        let role = Role { side: Side::Right, partner: self.spec.format };
        cpu.prepare_into(source, &spec, role, Randomness::default(), None, &mut panels).unwrap();
        panels
    }

    /// The product one step after the other, onto `c` if there is something to add to; and the largest magnitude.
    fn apart(&self, cpu: &Cpu, right: &Panels, c: &mut [f32], accumulate: bool) -> f32 {
        let mut left = Panels::default();
        let role = Role { side: Side::Left, partner: self.partner };
        let stats = cpu.prepare_into(self.source(), &self.spec, role, self.randomness(), Some(3.0), &mut left).unwrap();
        cpu.gemm(&left, right, c, accumulate).unwrap();
        stats.amax
    }
}

#[test]
fn preparing_on_the_way_changes_no_bit() {
    let plain = Cpu::new(InstructionSet::Scalar, 1).unwrap();
    for (spec, partner) in specs() {
        // Less than a chunk of 96 rows, some chunks, and a chunk of one row; k not a multiple of 32 where there are no blocks.
        // The last is large enough for matrix tiles.
        let is_mxfp4 = spec.format == Format::E2m1 && partner == Format::E2m1;
        for (rows, k, ffn) in [(7, 64, 40), (200, 96, 33), (97, 160, 16), (101, 96, 200)] {
            if ffn == 200 && !is_mxfp4 {
                continue;
            }
            let case = Case { rows, k, ffn, x: normals(rows * k, 1), spec, partner };
            let right = case.right(&plain, 2 * ffn);
            let residual = normals(rows * 2 * ffn, 2);
            let (mut over, mut onto) = (vec![0.0; rows * 2 * ffn], residual.clone());
            let amax = case.apart(&plain, &right, &mut over, false);
            case.apart(&plain, &right, &mut onto, true);
            let mut hidden = vec![0.0; rows * ffn];
            plain.swiglu(&over, ffn, &mut hidden).unwrap();
            let narrow = case.right(&plain, ffn);
            let (mut d_hidden, mut d_gate_up) = (vec![0.0; rows * ffn], vec![0.0; rows * 2 * ffn]);
            case.apart(&plain, &narrow, &mut d_hidden, false);
            plain.swiglu_backward(&residual, &d_hidden, ffn, &mut d_gate_up).unwrap();
            for set in InstructionSet::ALL.into_iter().filter(|set| set.is_supported()) {
                for threads in [1, 3] {
                    let cpu = Cpu::new(set, threads).unwrap();
                    let told = format!("{:?} by {partner:?}, {rows} rows, {set}, {threads} threads", case.spec);
                    let expected = [&*over, &onto, &hidden, &d_gate_up];
                    together(&cpu, &case, (&right, &narrow), &residual, &told, amax, expected);
                    // A right side that this processor laid out may have another layout.
                    let (right, narrow) = (case.right(&cpu, 2 * ffn), case.right(&cpu, ffn));
                    together(&cpu, &case, (&right, &narrow), &residual, &told, amax, expected);
                    if ffn == 200 && set == InstructionSet::Amx {
                        together(&plain, &case, (&right, &narrow), &residual, &told, amax, expected);
                    }
                }
            }
        }
    }
}

fn together(
    cpu: &Cpu,
    case: &Case,
    (right, narrow): (&Panels, &Panels),
    residual: &[f32],
    told: &str,
    amax: f32,
    [over, onto, hidden, d_gate_up]: [&[f32]; 4],
) {
    let mut c = vec![f32::NAN; over.len()];
    let stats = cpu.gemm_from(case.unprepared(), right, &mut c, false).unwrap();
    assert_eq!((bits(&c), stats.amax.to_bits()), (bits(over), amax.to_bits()), "{told}");
    c.copy_from_slice(residual);
    cpu.gemm_from(case.unprepared(), right, &mut c, true).unwrap();
    assert_eq!(bits(&c), bits(onto), "accumulated, {told}");
    c.fill(f32::NAN);
    cpu.gemm_from_onto(case.unprepared(), right, residual, &mut c).unwrap();
    assert_eq!(bits(&c), bits(onto), "onto a residual, {told}");
    let mut y = vec![f32::NAN; case.rows * case.ffn];
    cpu.gemm_from_swiglu(case.unprepared(), right, &mut c, &mut y).unwrap();
    assert_eq!((bits(&c), bits(&y)), (bits(over), bits(hidden)), "SwiGLU, {told}");
    cpu.gemm_from_swiglu_backward(case.unprepared(), narrow, residual, &mut c).unwrap();
    assert_eq!(bits(&c), bits(d_gate_up), "SwiGLU's gradient, {told}");
}

/// Both sides of a product that is done by pieces of k, either way round in memory.
struct Both {
    rows: [usize; 2],
    k: usize,
    values: [Vec<f32>; 2],
    specs: [OperandSpec; 2],
    transposed: bool,
}

impl Both {
    fn side(&self, side: usize) -> Unprepared<'_> {
        let spec = &self.specs[side];
        Unprepared {
            source: Source { values: &self.values[side], rows: self.rows[side], k: self.k, transposed: self.transposed },
            spec,
            partner: self.specs[1 - side].format,
            randomness: Randomness { rounding: (spec.rounding != Rounding::NearestEven).then(|| stream(70 + side as u64)), signs: None },
            delayed_amax: Some(3.0),
        }
    }

    fn apart(&self, cpu: &Cpu) -> (Vec<f32>, [f32; 2]) {
        let (mut panels, mut amax) = ([Panels::default(), Panels::default()], [0.0; 2]);
        for (i, side) in [Side::Left, Side::Right].into_iter().enumerate() {
            let Unprepared { source, spec, partner, randomness, delayed_amax } = self.side(i);
            let role = Role { side, partner };
            amax[i] = cpu.prepare_into(source, spec, role, randomness, delayed_amax, &mut panels[i]).unwrap().amax;
        }
        let mut c = vec![f32::NAN; self.rows[0] * self.rows[1]];
        cpu.gemm(&panels[0], &panels[1], &mut c, false).unwrap();
        (c, amax)
    }

    fn check(&self, cpus: &[Cpu]) {
        if cpus.is_empty() {
            return;
        }
        let (expected, amax) = self.apart(&cpus[0]);
        for cpu in cpus {
            let mut c = vec![f32::NAN; expected.len()];
            let found = cpu.gemm_from_both(self.side(0), self.side(1), &mut c).unwrap();
            let told = format!("{:?}, {:?} by {}, transposed {}, {cpu:?}", self.specs, self.rows, self.k, self.transposed);
            assert_eq!(bits(&c), bits(&expected), "{told}");
            assert_eq!(bits(&found.map(|stats| stats.amax)), bits(&amax), "{told}");
        }
    }
}

fn all_cpus() -> Vec<Cpu> {
    let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_supported());
    sets.flat_map(|set| [1, 3].map(|threads| Cpu::new(set, threads).unwrap())).collect()
}

#[test]
fn preparing_both_sides_by_pieces_changes_no_bit() {
    let cpus = all_cpus();
    let plain = |format, scale| OperandSpec { format, block: Block::Tensor, scale, rounding: Rounding::NearestEven, rotation: None };
    for (spec, partner) in specs() {
        let right = match partner {
            Format::E2m1 => OperandSpec { block: Block::Row32, rounding: Rounding::NearestEven, format: partner, ..spec },
            Format::E4m3 => plain(partner, ScaleRule::Current),
            _ => plain(partner, ScaleRule::None),
        };
        // Less than a piece, some pieces and a part of one; rows of more than one group, and of more shares than threads.
        for (rows, k) in [([5, 3], 64), ([100, 70], 288), ([130, 33], 640)] {
            for transposed in [false, true] {
                let values = [normals(rows[0] * k, 8), normals(rows[1] * k, 9)];
                Both { rows, k, values, specs: [spec, right], transposed }.check(&cpus);
            }
        }
        if partner == Format::E2m1 && spec.format == partner {
            for (transposed, k) in [(false, 288), (true, 544)] {
                let values = [normals(FOR_TILES[0] * k, 8), normals(FOR_TILES[1] * k, 9)];
                Both { rows: FOR_TILES, k, values, specs: [spec, right], transposed }.check(&tiles());
            }
        }
    }
}

/// Rows of two sides that are large enough for matrix tiles.
const FOR_TILES: [usize; 2] = [390, 400];

/// AVX-512, and processors with matrix tiles if this is one; otherwise none, because a product that is large enough takes long.
fn tiles() -> Vec<Cpu> {
    let one = |set, threads| Cpu::new(set, threads).unwrap();
    match InstructionSet::Amx {
        set if set.is_supported() => vec![one(InstructionSet::Avx512, 1), one(set, 1), one(set, 3)],
        _ => vec![],
    }
}

/// Scales beyond those of the fast kernels, in one piece and not in the one before; and nothing to add up.
#[test]
fn pieces_may_take_the_slow_way_or_be_empty() {
    let (spec, _) = specs()[0];
    let (rows, k) = ([20, 40], 512);
    let mut values = [normals(rows[0] * k, 8), normals(rows[1] * k, 9)];
    // Stored [k, rows]: k from 256.
    values[0][256 * rows[0]..].iter_mut().for_each(|x| *x *= 2f32.powi(115));
    values[1].iter_mut().for_each(|x| *x *= 2f32.powi(-60));
    Both { rows, k, values, specs: [spec, spec], transposed: true }.check(&all_cpus());
    Both { rows, k: 0, values: [vec![], vec![]], specs: [spec, spec], transposed: true }.check(&all_cpus());
}

/// Sums of products that are subnormal after one piece and not small in the next, or small again after one that is not.
#[test]
fn pieces_may_leave_subnormal_sums() {
    let spec =
        |format| specs().into_iter().map(|(spec, _)| OperandSpec { rotation: None, ..spec }).find(|spec| spec.format == format).unwrap();
    for (spec, rows, piece, cpus) in [(spec(Format::Bf16), [20, 40], 128, all_cpus()), (spec(Format::E2m1), FOR_TILES, 256, tiles())] {
        let k = 3 * piece;
        for small in [0..piece, piece..2 * piece] {
            let mut values = [(rows[0], 8), (rows[1], 9)].map(|(rows, tag)| normals(rows * k, tag));
            values.iter_mut().flatten().for_each(|x| *x = 2f32.powi(-56).copysign(*x));
            values[0][small.start * rows[0]..small.end * rows[0]].iter_mut().for_each(|x| *x *= 2f32.powi(-18));
            Both { rows, k, values, specs: [spec, spec], transposed: true }.check(&cpus);
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_before_anything_is_written() {
    let cpu = Cpu::new(InstructionSet::Scalar, 1).unwrap();
    let (spec, partner) = specs()[0];
    let case = Case { rows: 4, k: 64, ffn: 8, x: normals(4 * 64, 1), spec, partner };
    let right = case.right(&cpu, 16);
    let mut c = vec![9.0; 4 * 16];
    let refused = |result: Result<_, ProductError>, words: &str| {
        let message = result.map(|_: kernels::quantise::PreparedStats| ()).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    refused(cpu.gemm_from(case.unprepared(), &right, &mut c[1..], false), "gemm_from: c has 63 elements");
    refused(cpu.gemm_from_onto(case.unprepared(), &right, &[0.0; 3], &mut c), "residual has 3 elements");
    refused(cpu.gemm_from_swiglu(case.unprepared(), &right, &mut c, &mut [0.0; 5]), "y has 5 elements");
    refused(cpu.gemm_from_swiglu_backward(case.unprepared(), &right, &[0.0; 5], &mut c), "gate_up has 5 elements");
    let shorter = Case { k: 32, x: normals(4 * 32, 1), ..case };
    refused(cpu.gemm_from(shorter.unprepared(), &right, &mut c, false), "left has k = 32, right has k = 64");
    let float = Case { partner: Format::Bf16, k: 64, x: normals(4 * 64, 1), ..shorter };
    refused(cpu.gemm_from(float.unprepared(), &right, &mut c, false), "integer product");
    let short = Case { x: vec![0.0; 3], partner: Format::E2m1, ..float };
    refused(cpu.gemm_from(short.unprepared(), &right, &mut c, false), "the source has 3 elements");
    let both = |k: usize| Both { rows: [4, 4], k, values: [normals(4 * k, 1), normals(4 * k, 1)], specs: [spec, spec], transposed: true };
    let refused = |result: Result<_, ProductError>, words: &str| {
        let message = result.map(|_: [kernels::quantise::PreparedStats; 2]| ()).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    let (left, right) = (both(64), both(32));
    refused(cpu.gemm_from_both(left.side(0), right.side(1), &mut c[..16]), "right has 128 elements");
    refused(cpu.gemm_from_both(left.side(0), left.side(1), &mut c), "gemm_from_both: c has 64 elements");
    let float = Unprepared { partner: Format::Bf16, ..left.side(1) };
    refused(cpu.gemm_from_both(left.side(0), float, &mut c[..16]), "integer product");
    assert!(c.iter().all(|&x| x == 9.0));
}
