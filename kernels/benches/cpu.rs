//! Statistics of single kernels with criterion: products, preparation and the machine's own peaks.
//!
//! Every name ends in the number of threads, `/1t`. `support` says what the names mean and how bytes are counted. The environment
//! chooses: `KERNELS_BENCH_DEPTH` quick, default or deep; `KERNELS_BENCH_THREADS` such as `1,2`; `KERNELS_BENCH_INSTRUCTION_SET`. Other programs on the machine
//! slow all of it down: compare within one run, and take ratios from the `ratios` benchmark, whose sides take turns.

#[path = "support/memory.rs"]
mod memory;
mod support;

use std::time::Duration;

use contract::recipe::{Format, Rounding, Signs};
use criterion::{Criterion, Throughput};
use kernels::cpu::Cpu;
use support::{Depth, Shape, Task};

/// Elements of an activation of size B's hidden width: large enough to leave the second-level cache.
const QUANTISED: (usize, usize) = (4096, 1024);

/// Where shapes come from.
struct ShapeGroup {
    name: &'static str,
    /// One that stands for the group where there is no time for all.
    first: Shape,
    others: &'static [Shape],
}

/// Linears as fprop sees them, tokens by outputs by inputs: fused qkv, attention output, gate-up, down.
const SHAPES: [ShapeGroup; 5] = [
    ShapeGroup { name: "reference", first: (2048, 1024, 1024), others: &[(512, 512, 512)] },
    ShapeGroup { name: "cpu profile", first: (1024, 768, 128), others: &[(1024, 256, 128), (1024, 128, 128), (1024, 128, 384)] },
    ShapeGroup { name: "size A", first: (4096, 768, 128), others: &[(4096, 384, 128), (4096, 128, 128), (4096, 128, 384)] },
    ShapeGroup { name: "size B", first: (4096, 1536, 256), others: &[(4096, 768, 256), (4096, 256, 256), (4096, 256, 768)] },
    // 8192 tokens, hidden 4096, feed-forward 14336, 8 key-value heads of 128.
    ShapeGroup {
        name: "Llama 3.1-8B, M, N and K divided by 8",
        first: (1024, 3584, 512),
        others: &[(1024, 768, 512), (1024, 512, 512), (1024, 512, 1792)],
    },
];

fn main() {
    let (depth, processors) = match (Depth::from_environment(), support::processors()) {
        (Ok(depth), Ok(processors)) => (depth, processors),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("error: {error}");
            std::process::exit(2);
        }
    };
    let (warm, measure, samples) = match depth {
        Depth::Quick => (50, 150, 10),
        Depth::Default => (100, 350, 15),
        Depth::Deep => (500, 3000, 50),
    };
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(warm))
        .measurement_time(Duration::from_millis(measure))
        .sample_size(samples)
        .nresamples(10_000)
        .configure_from_args();
    for cpu in processors {
        for make in tasks(&cpu, depth) {
            let task = make();
            time(&mut criterion, task, cpu.threads());
        }
    }
    criterion.final_summary();
}

fn time(criterion: &mut Criterion, mut task: Task, threads: usize) {
    let (kind, rest) = task.name.split_once('/').unwrap_or(("", &task.name));
    let mut group = criterion.benchmark_group(kind);
    group.throughput(Throughput::ElementsAndBytes { elements: task.operations, bytes: task.bytes });
    group.bench_function(format!("{rest}/{threads}t"), |bencher| bencher.iter(&mut task.run));
    group.finish();
}

/// Makes a task when its turn comes, so that only one holds memory.
type Make<'a> = Box<dyn FnOnce() -> Task + 'a>;

fn tasks(cpu: &Cpu, depth: Depth) -> Vec<Make<'_>> {
    let mut all: Vec<Make<'_>> = Vec::new();
    // Memory is taken up front here, as every loop of peaks comes first.
    all.extend(support::peaks::tasks(cpu).into_iter().chain(memory::tasks(cpu)).map(|task| Box::new(move || task) as Make<'_>));
    for shape in shapes(depth) {
        all.push(Box::new(move || support::gemm_f32(cpu, shape)));
        for product in support::products() {
            // Rotations and roundings of whole products are the ratios benchmark's affair.
            if depth == Depth::Deep || !product.name.contains("-h") {
                all.push(Box::new(move || support::gemm(cpu, product, shape)));
            }
        }
    }
    for (name, spec) in specs(depth) {
        all.push(Box::new(move || support::quantise(cpu, &name, spec, QUANTISED, false)));
    }
    let nearest = support::mxfp4(Rounding::NearestEven, 0, Signs::None);
    all.push(Box::new(move || support::quantise(cpu, "mxfp4-nearest-even-none-transposed", nearest, QUANTISED, true)));
    all
}

fn shapes(depth: Depth) -> Vec<Shape> {
    let chosen = |group: &ShapeGroup| -> Vec<Shape> {
        let others = if depth == Depth::Deep { group.others } else { &[] };
        [group.first].into_iter().chain(others.iter().copied()).collect()
    };
    let groups = SHAPES.iter().filter(|group| depth > Depth::Quick || ["reference", "size A"].contains(&group.name));
    groups.flat_map(chosen).collect()
}

/// Format by rotation by rounding.
fn specs(depth: Depth) -> Vec<(String, contract::recipe::OperandSpec)> {
    let mut all = Vec::new();
    let roundings: &[(&str, Rounding)] = &[
        ("nearest-even", Rounding::NearestEven),
        ("stochastic", Rounding::Stochastic),
        ("stochastic-prescaled", Rounding::StochasticPrescaled),
    ];
    let sizes: &[usize] = if depth == Depth::Quick { &[0, 16] } else { &[0, 16, 32, 64, 128] };
    for (word, rounding) in roundings.iter().take(if depth == Depth::Deep { 3 } else { 2 }) {
        for &size in sizes {
            let rotation = if size == 0 { "none".to_owned() } else { format!("h{size}") };
            all.push((format!("mxfp4-{word}-{rotation}"), support::mxfp4(*rounding, size, Signs::None)));
            if size > 0 && depth == Depth::Deep {
                all.push((format!("mxfp4-{word}-r{rotation}"), support::mxfp4(*rounding, size, Signs::PerStep)));
            }
        }
        for (name, format) in [("e4m3", Format::E4m3), ("e5m2", Format::E5m2), ("bf16", Format::Bf16)] {
            if depth > Depth::Quick {
                all.push((format!("{name}-{word}-none"), support::plain(format, *rounding)));
            }
        }
    }
    all
}
