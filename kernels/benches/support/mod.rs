//! What both benchmark programs time: products, preparations, the linears of a block, and the machine's peaks; each a [`Task`].
//!
//! Names are `<kind>/<variant>/<shape>`. Bytes are what an operation must read and write at least once:
//! - `gemm/<format>`: both operands as panels, and C written (4 M N);
//! - `gemm/<format>+prepare`: both F32 sources read (4 M K + 4 N K), panels written and read, C written;
//! - `gemm/f32`: three F32 matrices, 4 (M K + N K + M N); packing is inside the time and not counted;
//! - `quantise/...`: the F32 source read, the panels written.
//!
//! Operations are two a multiply-add; preparing adds none.

pub(crate) mod peaks;

use contract::recipe::{Block, Format, OperandSpec, Rotation, Rounding, ScaleRule, Signs};
use kernels::cpu::{Cpu, InstructionSet, Matrix, Panels, Role, Side};
use kernels::hadamard;
use kernels::quantise::{Randomness, Source};
use kernels::random::StreamKey;

pub(crate) struct Task {
    pub(crate) name: String,
    /// In one call: operations of a product or a peak, elements prepared, bytes read by `peak/read-*`.
    pub(crate) operations: u64,
    /// Read and written by one call.
    pub(crate) bytes: u64,
    pub(crate) run: Box<dyn FnMut()>,
}

/// M rows of C by N by the contraction axis K.
pub(crate) type Shape = (usize, usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    Quick,
    Default,
    Deep,
}

impl Depth {
    /// From the environment: `KERNELS_BENCH_DEPTH`, one of quick, default and deep.
    pub(crate) fn from_environment() -> Result<Self, String> {
        match std::env::var("KERNELS_BENCH_DEPTH").as_deref() {
            Err(_) | Ok("default") => Ok(Self::Default),
            Ok("quick") => Ok(Self::Quick),
            Ok("deep") => Ok(Self::Deep),
            Ok(other) => Err(format!("KERNELS_BENCH_DEPTH is `{other}`: use quick, default or deep")),
        }
    }
}

/// One processor for each number in `KERNELS_BENCH_THREADS` (such as `1,2`; 1 when it is not set), of the instruction set in
/// `KERNELS_BENCH_INSTRUCTION_SET` (auto when it is not set).
pub(crate) fn processors() -> Result<Vec<Cpu>, String> {
    let text = std::env::var("KERNELS_BENCH_THREADS").unwrap_or_else(|_| "1".to_owned());
    let set = std::env::var("KERNELS_BENCH_INSTRUCTION_SET").unwrap_or_else(|_| "auto".to_owned());
    let set = InstructionSet::parse(&set).map_err(|error| format!("KERNELS_BENCH_INSTRUCTION_SET: {error}"))?;
    let cpu = |count: &str| {
        let threads = count.trim().parse().map_err(|_| format!("KERNELS_BENCH_THREADS is `{text}`: use numbers such as 1,2"))?;
        Cpu::new(set, threads).map_err(|error| error.to_string())
    };
    text.split(',').map(cpu).collect()
}

/// Normal values; `layer` tells one matrix from another.
pub(crate) fn values(count: usize, layer: u32) -> Vec<f32> {
    let stream = StreamKey { layer, ..Default::default() }.stream();
    (0..count as u64).map(|i| stream.normal(i)).collect()
}

/// An MXFP4 operand.
pub(crate) fn mxfp4(rounding: Rounding, size: usize, signs: Signs) -> OperandSpec {
    let rotation = (size > 0).then_some(Rotation { size, signs });
    OperandSpec { format: Format::E2m1, block: Block::Row32, scale: ScaleRule::Floor, rounding, rotation }
}

/// An operand without block scales: per-tensor scaled FP8 with a delayed scale, as the FP8 recipe has it, or none.
pub(crate) fn plain(format: Format, rounding: Rounding) -> OperandSpec {
    let scale = if matches!(format, Format::E4m3 | Format::E5m2) { ScaleRule::Delayed } else { ScaleRule::None };
    OperandSpec { format, block: Block::Tensor, scale, rounding, rotation: None }
}

/// Prepares one operand as a training step does.
pub(crate) struct Preparation {
    spec: OperandSpec,
    role: Role,
    signs: Option<Vec<f32>>,
}

impl Preparation {
    pub(crate) fn new(spec: OperandSpec, side: Side, partner: Format) -> Self {
        let random = spec.rotation.filter(|rotation| rotation.signs != Signs::None);
        let signs = random.map(|rotation| hadamard::signs(StreamKey::default().stream(), rotation.size));
        Self { spec, role: Role { side, partner }, signs }
    }

    #[allow(clippy::expect_used, reason = "a benchmark that cannot set itself up should stop")]
    pub(crate) fn run(&self, cpu: &Cpu, source: Source<'_>, panels: &mut Panels) {
        let rounding = (self.spec.rounding != Rounding::NearestEven).then(|| StreamKey::default().stream());
        // What a delayed scale would remember of a normal matrix.
        let remembered = (self.spec.scale == ScaleRule::Delayed).then_some(5.0);
        let randomness = Randomness { rounding, signs: self.signs.as_deref() };
        cpu.prepare_into(source, &self.spec, self.role, randomness, remembered, panels).expect("the benchmark's recipes are valid");
    }
}

/// Formats of a product: what is done within the time.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) name: &'static str,
    pub(crate) spec: OperandSpec,
    /// Preparing both operands from F32 is part of the time.
    pub(crate) prepares: bool,
}

/// The products that are timed, cheapest question first.
pub(crate) fn products() -> Vec<Product> {
    let nearest = Rounding::NearestEven;
    let product = |name, spec, prepares| Product { name, spec, prepares };
    vec![
        product("mxfp4", mxfp4(nearest, 0, Signs::None), false),
        product("mxfp4+prepare", mxfp4(nearest, 0, Signs::None), true),
        product("mxfp4-h16+prepare", mxfp4(nearest, 16, Signs::None), true),
        product("mxfp4-h32+prepare", mxfp4(nearest, 32, Signs::None), true),
        product("mxfp4-h16-stochastic+prepare", mxfp4(Rounding::Stochastic, 16, Signs::None), true),
        product("fp8", plain(Format::E4m3, nearest), false),
        product("fp8+prepare", plain(Format::E4m3, nearest), true),
        product("bf16+prepare", plain(Format::Bf16, nearest), true),
    ]
}

/// C = A Bᵀ of one product.
#[allow(clippy::expect_used, reason = "a benchmark that cannot set itself up should stop")]
pub(crate) fn gemm(cpu: &Cpu, product: Product, (m, n, k): Shape) -> Task {
    let cpu = cpu.clone();
    let (a, b, mut c) = (values(m * k, 1), values(n * k, 2), vec![0.0; m * n]);
    let Product { name, spec, prepares } = product;
    let (left, right) = (Preparation::new(spec, Side::Left, spec.format), Preparation::new(spec, Side::Right, spec.format));
    let (mut a_panels, mut b_panels) = (Panels::default(), Panels::default());
    let source = |values, rows| Source { values, rows, k, transposed: false };
    left.run(&cpu, source(&a, m), &mut a_panels);
    right.run(&cpu, source(&b, n), &mut b_panels);
    let (panels, result) = (a_panels.bytes() + b_panels.bytes(), 4 * m * n);
    let bytes = if prepares { 4 * (m + n) * k + 2 * panels + result } else { panels + result };
    let run = move || {
        if prepares {
            left.run(&cpu, Source { values: &a, rows: m, k, transposed: false }, &mut a_panels);
            right.run(&cpu, Source { values: &b, rows: n, k, transposed: false }, &mut b_panels);
        }
        cpu.gemm(&a_panels, &b_panels, &mut c, false).expect("the shapes fit");
    };
    let operations = 2 * (m * n * k) as u64;
    Task { name: format!("gemm/{name}/{m}x{n}x{k}"), operations, bytes: bytes as u64, run: Box::new(run) }
}

/// C = A Bᵀ of plain F32 matrices, packing within the time.
#[allow(clippy::expect_used, reason = "a benchmark that cannot set itself up should stop")]
pub(crate) fn gemm_f32(cpu: &Cpu, (m, n, k): Shape) -> Task {
    let cpu = cpu.clone();
    let (a, b, mut c) = (values(m * k, 1), values(n * k, 2), vec![0.0; m * n]);
    let run = move || cpu.gemm_f32(Matrix::new(&a, m, k), Matrix::new(&b, n, k), &mut c, n, false).expect("the shapes fit");
    let bytes = 4 * (m * k + n * k + m * n) as u64;
    Task { name: format!("gemm/f32/{m}x{n}x{k}"), operations: 2 * (m * n * k) as u64, bytes, run: Box::new(run) }
}

/// One operand prepared for the left side.
pub(crate) fn quantise(cpu: &Cpu, name: &str, spec: OperandSpec, (rows, k): (usize, usize), transposed: bool) -> Task {
    let cpu = cpu.clone();
    let x = values(rows * k, 3);
    let preparation = Preparation::new(spec, Side::Left, spec.format);
    let mut panels = Panels::default();
    preparation.run(&cpu, Source { values: &x, rows, k, transposed }, &mut panels);
    let bytes = (4 * rows * k + panels.bytes()) as u64;
    let run = move || preparation.run(&cpu, Source { values: &x, rows, k, transposed }, &mut panels);
    Task { name: format!("quantise/{name}/{rows}x{k}"), operations: (rows * k) as u64, bytes, run: Box::new(run) }
}
