//! What the tests share: compiling the kernels, packing arguments, running in every order of waves.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use gfx950_interpreter::fault::LaunchError;
use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::{Launch, Order, Statistics, launch};
use kernels::closeness;
use kernels::quantise::{Mxfp4, Prepared};
use sha2::{Digest as _, Sha256};

/// Where the kernels and their manifest are.
pub(crate) fn device_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[derive(serde::Deserialize)]
pub(crate) struct Build {
    pub(crate) flags: Vec<String>,
    pub(crate) sources: Vec<Source>,
}

#[derive(serde::Deserialize)]
pub(crate) struct Source {
    pub(crate) file: String,
    #[serde(default)]
    pub(crate) defines: Vec<String>,
}

impl Source {
    /// Compiles it; None where there is no compiler.
    pub(crate) fn compile(&self) -> Option<Vec<u8>> {
        let defines: Vec<String> = self.defines.iter().map(|define| format!("-D{define}")).collect();
        compile(&self.file, &defines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// What tells it from the others.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.file, self.defines.join(" "))
    }
}

/// The build manifest, of which the tests need the flags and the files.
pub(crate) fn build() -> Build {
    let text = std::fs::read_to_string(device_folder().join("kernels.yaml")).unwrap();
    serde_yaml::from_str(&text).unwrap()
}

/// A program of LLVM 22: `<NAME>_22` in the environment (CLANG_22, LLVM_OBJDUMP_22, LLVM_MC_22), or on the path; and what it says of itself.
fn tool(variable: &str, name: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = std::env::var_os(variable).map_or_else(|| PathBuf::from(name), PathBuf::from);
    let version = Command::new(&path).arg("--version").output().ok().filter(|output| output.status.success());
    if version.is_none() {
        // CI installs the tools and sets this, so that a skipped test cannot pass for a run one there.
        assert!(std::env::var_os("REQUIRE_CLANG_22").is_none(), "{} is required here and does not run", path.display());
        eprintln!("skipped: {} does not run; apt-get install clang-22 lld-22 llvm-22, or set {variable}", path.display());
    }
    version.map(|output| (path, output.stdout))
}

/// The compiler and its version, asked for once: starting it takes longer than most launches here.
fn compiler() -> Option<&'static (PathBuf, Vec<u8>)> {
    static FOUND: OnceLock<Option<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FOUND.get_or_init(|| tool("CLANG_22", "clang++-22")).as_ref()
}

pub(crate) fn clang() -> Option<&'static Path> {
    compiler().map(|(path, _)| path.as_path())
}

pub(crate) fn objdump() -> Option<PathBuf> {
    tool("LLVM_OBJDUMP_22", "llvm-objdump-22").map(|(path, _)| path)
}

/// Hash of the compiler's version, the manifest, and every text that a source may include.
fn surroundings() -> &'static Sha256 {
    static HASH: OnceLock<Sha256> = OnceLock::new();
    HASH.get_or_init(|| {
        let mut hash = Sha256::new_with_prefix(&compiler().unwrap().1);
        for folder in [device_folder(), device_folder().join("../device")] {
            let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            for file in files.iter().filter(|path| path.is_file()) {
                let text = std::fs::read(file).unwrap();
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
        }
        hash
    })
}

/// Compiles a source with the manifest's flags and `extra` ones; None where there is no compiler. What several tests want, in this
/// process or another, is compiled once and kept below target/tmp by the hash of all that went into it.
pub(crate) fn compile_path(source: &Path, extra: &[&str]) -> Option<Vec<u8>> {
    type Objects = BTreeMap<String, Arc<OnceLock<Vec<u8>>>>;
    static OBJECTS: Mutex<Objects> = Mutex::new(Objects::new());
    let clang = clang()?;
    let name = format!("{} {extra:?}", source.display());
    let object = OBJECTS.lock().unwrap().entry(name.clone()).or_default().clone();
    let bytes = object.get_or_init(|| {
        let hash = surroundings().clone().chain_update(&name).chain_update(std::fs::read(source).unwrap()).finalize();
        let key: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("code-objects");
        let kept = folder.join(format!("{key}.co"));
        std::fs::read(&kept).unwrap_or_else(|_| {
            std::fs::create_dir_all(&folder).unwrap();
            let out = tempfile::NamedTempFile::new_in(&folder).unwrap();
            let include = format!("-I{}", device_folder().display());
            let output =
                Command::new(clang).args(&build().flags).arg(include).args(extra).arg(source).arg("-o").arg(out.path()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let bytes = std::fs::read(out.path()).unwrap();
            std::fs::rename(out.path(), &kept).unwrap();
            bytes
        })
    });
    Some(bytes.clone())
}

/// Code objects of everything in the manifest, in its order, compiled on all processors; None where there is no compiler.
pub(crate) fn compile_all(sources: &[Source]) -> Option<Vec<Vec<u8>>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || sources.iter().skip(first).step_by(threads).for_each(|source| drop(source.compile())));
        }
    });
    sources.iter().map(Source::compile).collect()
}

/// Compiles one of the kernels' files.
pub(crate) fn compile(file: &str, extra: &[&str]) -> Option<Vec<u8>> {
    compile_path(&device_folder().join(file), extra)
}

/// Arguments in the order of the kernel's parameters, each aligned to its size.
#[derive(Default)]
pub(crate) struct Arguments(pub(crate) Vec<u8>);

impl Arguments {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn address(self, address: Option<Address>) -> Self {
        self.u64(address.map_or(0, |address| address.0))
    }

    pub(crate) fn f32(self, value: f32) -> Self {
        self.u32(value.to_bits())
    }

    pub(crate) fn f64(self, value: f64) -> Self {
        self.u64(value.to_bits())
    }

    /// An address that is given.
    pub(crate) fn at(self, address: Address) -> Self {
        self.u64(address.0)
    }
}

/// One launch.
pub(crate) fn run(
    object: &CodeObject,
    kernel: &str,
    memory: &mut Memory,
    grid: [u32; 3],
    arguments: &Arguments,
    order: Order,
) -> Result<Statistics, LaunchError> {
    run_of(object, kernel, memory, grid, (256, 0), arguments, order)
}

/// One launch of workgroups of so many threads, with so many bytes of LDS besides what the kernel declares.
pub(crate) fn run_of(
    object: &CodeObject,
    kernel: &str,
    memory: &mut Memory,
    grid: [u32; 3],
    (threads, dynamic_lds): (u32, u32),
    arguments: &Arguments,
    order: Order,
) -> Result<Statistics, LaunchError> {
    let kernel = object.kernel(kernel)?;
    launch(memory, &Launch { kernel, grid, threads, dynamic_lds, arguments: &arguments.0, order })
}

/// Little-endian bytes of F32.
pub(crate) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Little-endian bytes of words.
pub(crate) fn u32_bytes(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// BF16 codes of values, rounded to nearest.
pub(crate) fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| kernels::format::bf16::encode(value).to_le_bytes()).collect()
}

/// What a kernel left in an allocation of F32; every byte must have been written.
pub(crate) fn f32_of(memory: &Memory, address: Address) -> Vec<f32> {
    memory.bytes(address).unwrap().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// The same of F64.
pub(crate) fn f64_of(memory: &Memory, address: Address) -> Vec<f64> {
    memory.bytes(address).unwrap().chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// The same of BF16, as F32.
pub(crate) fn bf16_of(memory: &Memory, address: Address) -> Vec<f32> {
    let bytes = memory.bytes(address).unwrap();
    bytes.chunks_exact(2).map(|pair| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16)).collect()
}

/// Normally distributed BF16 values.
pub(crate) fn normals(tensor: u32, count: usize, deviation: f32) -> Vec<f32> {
    normals_of(0, tensor, count, deviation)
}

/// The same for a test that draws again with each seed.
pub(crate) fn normals_of(seed: u32, tensor: u32, count: usize, deviation: f32) -> Vec<f32> {
    let stream = kernels::random::Stream::new(0x5EED ^ tensor.wrapping_mul(0x9E37_79B9), tensor ^ seed << 8);
    (0..count as u64).map(|index| kernels::format::bf16::round(stream.normal(index) * deviation)).collect()
}

/// A planted error that every comparison with the CPU must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// To BF16 by truncation.
    Truncation,
    /// Two operands exchanged.
    Swapped,
    /// A term of a sum, or a factor, left out.
    Dropped,
}

impl Planted {
    pub(crate) const ERRORS: [Self; 3] = [Self::Truncation, Self::Swapped, Self::Dropped];

    /// What the kernels are compiled with.
    pub(crate) fn defines(self) -> &'static [&'static str] {
        if self == Self::Truncation { &["-DBREAK_ROUNDING"] } else { &[] }
    }

    /// `two` in this order, or exchanged.
    pub(crate) fn order<T: Copy>(self, two: [T; 2]) -> [T; 2] {
        if self == Self::Swapped { [two[1], two[0]] } else { two }
    }

    /// `values`, or as many zeros.
    pub(crate) fn term(self, values: &[f32]) -> Vec<f32> {
        if self == Self::Dropped { vec![0.0; values.len()] } else { values.to_vec() }
    }
}

/// Errors of a kernel's results, each in units of its bound.
#[derive(Debug, Default)]
pub(crate) struct Errors(pub(crate) Vec<(String, f64)>);

impl Errors {
    /// Each element was rounded to BF16 once.
    pub(crate) fn rounded_once(&mut self, what: &str, found: &[f32], wanted: &[f32]) {
        assert_eq!(found.len(), wanted.len());
        self.0.push((what.into(), closeness::of_one_rounding(found, wanted)));
    }

    /// F32 from end to end.
    pub(crate) fn in_f32(&mut self, what: &str, found: &[f32], wanted: &[f32]) {
        assert_eq!(found.len(), wanted.len());
        self.0.push((what.into(), closeness::relative(found, wanted) / closeness::F32_SLACK));
    }

    /// So many roundings to BF16, one behind another, of rows of so many elements.
    pub(crate) fn rounded(&mut self, what: &str, (found, wanted): (&[f32], &[f32]), row: usize, roundings: u32) {
        assert_eq!(found.len(), wanted.len());
        let bound = f64::from(roundings) * closeness::UNIT + closeness::F32_SLACK;
        self.0.push((what.into(), closeness::relative(found, wanted) / bound));
        self.0.push((format!("{what}, shift"), closeness::shift(found, wanted, row, roundings)));
    }

    /// All are within their bounds; a NaN is not.
    pub(crate) fn assert_none(&self, of: &str) {
        let found: Vec<_> = self.0.iter().filter(|(_, error)| beyond(*error)).collect();
        assert!(found.is_empty() && !self.0.is_empty(), "{of}: in units of the bound, {found:?}");
    }

    /// A planted error shows in one of them at least.
    pub(crate) fn assert_some(&self, of: &str) {
        assert!(self.0.iter().any(|(_, error)| beyond(*error)), "{of} is not seen: {:?}", self.0);
    }
}

/// More than its bound, or no number.
fn beyond(error: f64) -> bool {
    error.is_nan() || error > 1.0
}

/// Seeds of tests that are no seed of the trainer's; CI takes a few, `cargo test -- --ignored a_thousand` the rest.
pub(crate) const FEW_SEEDS: std::ops::Range<u32> = 1..4;
pub(crate) const THOUSAND_SEEDS: std::ops::Range<u32> = 1000..2000;

/// A cheap generator for test data.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.next() % limit
    }
}

/// The order in which one share of k (in steps of 8 blocks) is summed.
pub(crate) fn order_of(blocks: std::ops::Range<usize>) -> Vec<usize> {
    let steps = blocks.clone().step_by(8);
    steps.flat_map(|first| [0, 2, 4, 6, 1, 3, 5, 7].map(|i| first + i)).filter(|&block| block < blocks.end).collect()
}

/// The operand with its blocks in the order in which the kernels sum them: the CPU's product of two such is the kernel's, bit for bit.
pub(crate) fn reordered(operand: &Mxfp4) -> Prepared {
    let mut moved = operand.clone();
    for row in 0..operand.rows {
        for (to, from) in order_of(0..operand.blocks).into_iter().enumerate() {
            let (to, from) = (row * operand.blocks + to, row * operand.blocks + from);
            moved.scales[to] = operand.scales[from];
            moved.codes[16 * to..16 * to + 16].copy_from_slice(&operand.codes[16 * from..16 * from + 16]);
        }
    }
    Prepared::Mxfp4(moved)
}
