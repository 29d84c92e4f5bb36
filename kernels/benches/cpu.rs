//! GEMMs and quantisation on one core, at the shapes of the `cpu` profile and one larger.
//!
//! `gemm/<format>/<M>x<N>x<K>` counts 2 M N K operations; `mxfp4+quantise`, `+quantise-h16` and `+quantise-h32` include preparing
//! both operands from F32, `fp8+quantise` and `bf16+quantise` likewise. `quantise/<format>-<rounding>-<rotation>` counts elements.
//! Other programs on the machine slow all of it down: compare within one run.

#![allow(clippy::expect_used)] // a benchmark that cannot set itself up should stop

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kernels::cpu::{Cpu, InstructionSet};
use kernels::operand::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::quantise::{Prepared, Randomness, Source};
use kernels::random::StreamKey;

/// M tokens by N outputs by K inputs: fused qkv, attention output, gate-up, down; then a size where caches matter.
const SHAPES: [(usize, usize, usize); 5] = [(1024, 256, 128), (1024, 128, 128), (1024, 768, 128), (1024, 128, 384), (2048, 1024, 1024)];

fn values(count: usize, layer: u32) -> Vec<f32> {
    let stream = StreamKey { layer, ..Default::default() }.stream();
    (0..count as u64).map(|i| stream.word(i) as i32 as f32 * 1e-9).collect()
}

fn spec(format: Format, rounding: Rounding, size: usize) -> OperandSpec {
    let (block, scale) = match format {
        Format::E2m1 => (Block::Row32, ScaleRule::Floor),
        Format::E4m3 | Format::E5m2 => (Block::Tensor, ScaleRule::Current),
        Format::Bf16 | Format::F32 => (Block::Tensor, ScaleRule::None),
    };
    OperandSpec { format, block, scale, rounding, rotation: (size > 0).then_some(Rotation { size, signs: Signs::None }) }
}

fn prepare(cpu: &Cpu, values: &[f32], rows: usize, k: usize, spec: &OperandSpec) -> Prepared {
    let randomness = Randomness { rounding: Some(StreamKey::default().stream()), signs: None };
    let source = Source { values, rows, k, transposed: false };
    cpu.prepare(source, spec, randomness, None).expect("the benchmark's recipes are valid").0
}

fn gemm(criterion: &mut Criterion) {
    let cpu = Cpu::new(InstructionSet::detect(), 1).expect("one thread");
    let nearest = Rounding::NearestEven;
    let formats = [
        ("mxfp4", spec(Format::E2m1, nearest, 0), false),
        ("mxfp4+quantise", spec(Format::E2m1, nearest, 0), true),
        ("mxfp4+quantise-h16", spec(Format::E2m1, nearest, 16), true),
        ("mxfp4+quantise-h32", spec(Format::E2m1, nearest, 32), true),
        ("fp8", spec(Format::E4m3, nearest, 0), false),
        ("fp8+quantise", spec(Format::E4m3, nearest, 0), true),
        ("bf16", spec(Format::Bf16, nearest, 0), false),
        ("bf16+quantise", spec(Format::Bf16, nearest, 0), true),
        ("f32", spec(Format::F32, nearest, 0), false),
    ];
    for (name, spec, quantise) in formats {
        let mut group = criterion.benchmark_group(format!("gemm/{name}"));
        for (m, n, k) in SHAPES {
            let (a, b, mut c) = (values(m * k, 1), values(n * k, 2), vec![0.0; m * n]);
            let (left, right) = (prepare(&cpu, &a, m, k, &spec), prepare(&cpu, &b, n, k, &spec));
            group.throughput(Throughput::Elements(2 * (m * n * k) as u64));
            group.bench_function(format!("{m}x{n}x{k}"), |bencher| {
                bencher.iter(|| {
                    let done = if quantise {
                        let (left, right) = (prepare(&cpu, &a, m, k, &spec), prepare(&cpu, &b, n, k, &spec));
                        cpu.gemm(&left, &right, &mut c, false)
                    } else {
                        cpu.gemm(&left, &right, &mut c, false)
                    };
                    done.expect("the shapes fit");
                    black_box(&c);
                });
            });
        }
        group.finish();
    }
}

fn quantise(criterion: &mut Criterion) {
    let cpu = Cpu::new(InstructionSet::detect(), 1).expect("one thread");
    let (rows, k) = (1024, 384);
    let x = values(rows * k, 3);
    let mut group = criterion.benchmark_group("quantise");
    group.throughput(Throughput::Elements((rows * k) as u64));
    let formats = [("e2m1", Format::E2m1, &[0, 16, 32, 64, 128][..]), ("e4m3", Format::E4m3, &[0]), ("bf16", Format::Bf16, &[0])];
    for (name, format, sizes) in formats {
        for (word, rounding) in [("nearest-even", Rounding::NearestEven), ("stochastic", Rounding::Stochastic)] {
            for &size in sizes {
                let rotation = if size == 0 { "none".to_owned() } else { format!("h{size}") };
                let spec = spec(format, rounding, size);
                group.bench_function(format!("{name}-{word}-{rotation}"), |bencher| {
                    bencher.iter(|| black_box(prepare(&cpu, &x, rows, k, &spec)));
                });
            }
        }
    }
    group.finish();
}

criterion_group! {
    name = cpu;
    config = Criterion::default().warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(700)).sample_size(20);
    targets = gemm, quantise
}
criterion_main!(cpu);
