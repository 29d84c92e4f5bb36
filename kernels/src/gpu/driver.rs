//! What the kernels need of a GPU's driver: memory, one stream, modules, launches, events and matrix products.
//!
//! `runtime` has it for CUDA and HIP. Nothing outside a driver knows which one runs; nothing in a driver knows a kernel.
//! All work goes to one stream in the order of the calls; only `download`, `synchronize` and `elapsed` wait for it.

use std::ffi::c_void;
use std::fmt;

use super::GpuError;

/// A place in the device's memory.
pub type Address = u64;

/// A kernel in a loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Function(pub u64);

/// A moment in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// `cuda` or `hip`.
    pub kind: &'static str,
    /// Number among the devices of its kind.
    pub ordinal: usize,
    /// As its maker calls it.
    pub name: String,
    /// As the compiler names it: `sm_90a`.
    pub architecture: String,
    /// Memory in all, bytes.
    pub memory: u64,
    /// Multiprocessors or compute units.
    pub units: u32,
    /// Name and version of every library in use, the driver first.
    pub libraries: Vec<(String, String)>,
    /// Whether matrix products of FP8 codes run natively.
    pub has_fp8: bool,
    /// Whether the device runs the kernels of kernels/gfx950, which multiply packed MXFP4 codes.
    pub has_mxfp4: bool,
    /// No device at all: the processor executes the kernels' machine code (kernels/gfx950/stand-in). A test; its times mean nothing.
    pub interpreted: bool,
}

impl Description {
    /// The error of a driver whose library is not asked for products of packed MXFP4.
    pub(super) fn no_packed_products(&self) -> GpuError {
        let Self { kind, name, .. } = self;
        GpuError::Unsupported(format!("{kind}: no library for {name} is asked for products of packed MXFP4"))
    }
}

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    pub groups: [u32; 3],
    pub threads: u32,
    /// Dynamic shared memory, bytes.
    pub shared: u32,
}

impl Grid {
    /// A row of workgroups without dynamic shared memory.
    pub fn row(groups: usize, threads: u32) -> Self {
        Self { groups: [groups as u32, 1, 1], threads, shared: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// 2 bytes.
    Bf16,
    /// 1 byte.
    E4m3,
    /// 1 byte.
    E5m2,
    /// 4 bytes.
    F32,
}

/// One side of a product, logically `[rows, k]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Matrix {
    /// First element.
    pub address: Address,
    pub element: Element,
    pub rows: usize,
    /// Length of the contraction axis.
    pub k: usize,
    /// Whether memory holds it `[k, rows]`.
    pub transposed: bool,
    /// F32 on the device by which FP8 values are multiplied.
    pub scale: Option<Address>,
}

/// `out = alpha * left rightᵀ (+ added)`, `[left.rows, right.rows]` row-major. `out` and `added` may be the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// `[m, k]`.
    pub left: Matrix,
    /// `[n, k]`.
    pub right: Matrix,
    /// First element of the result.
    pub out: Address,
    /// BF16 or F32.
    pub out_element: Element,
    /// What is added, of the same type and shape.
    pub added: Option<Address>,
    pub alpha: f32,
}

/// Where the E8M0 scales of a packed operand lie, one a block of 32 along k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleLayout {
    /// `[rows, k / 32]`.
    Rows,
    /// In tiles of 32 rows by 8 blocks, as hipBLASLt's kernels read them fastest (kernels/gfx950/README.md). Rows are multiples of 32
    /// and k of 256, so that no tile has a part that nobody writes.
    Swizzled,
}

impl ScaleLayout {
    /// Whether the scales of `[rows, k]` have no padding in this layout.
    pub fn is_whole(self, rows: usize, k: usize) -> bool {
        self == Self::Rows || (rows.is_multiple_of(32) && k.is_multiple_of(256))
    }
}

/// One side of a product of MXFP4 codes, `[rows, k]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedMatrix {
    /// First byte of the codes, `[rows, k / 2]`, the low nibble being the even element.
    pub codes: Address,
    /// First byte of the scales.
    pub scales: Address,
    /// Where the others follow.
    pub layout: ScaleLayout,
    pub rows: usize,
    /// Length of the contraction axis.
    pub k: usize,
}

/// `out = alpha * left rightᵀ (+ added)` of packed operands, `[left.rows, right.rows]` row-major.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedProduct {
    /// `[m, k]`.
    pub left: PackedMatrix,
    /// `[n, k]`, with scales in the same layout.
    pub right: PackedMatrix,
    /// First element of the result.
    pub out: Address,
    /// BF16 or F32.
    pub out_element: Element,
    /// Of `out`'s type and shape; it may be `out` itself.
    pub added: Option<Address>,
    pub alpha: f32,
}

/// A GPU and its libraries.
pub trait Driver: fmt::Debug + Send + Sync {
    fn description(&self) -> &Description;

    /// Bytes free and in all.
    fn memory(&self) -> Result<(u64, u64), GpuError>;

    /// `bytes` of device memory, uninitialised.
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Gives memory back. Errors are of no use to anyone here.
    fn free(&self, address: Address);

    /// Sets every byte.
    fn fill(&self, address: Address, byte: u8, bytes: usize) -> Result<(), GpuError>;

    /// Copies to the device; `from` may be reused at once.
    fn upload(&self, from: &[u8], to: Address) -> Result<(), GpuError>;

    /// Waits for the stream, then copies from the device.
    fn download(&self, from: Address, to: &mut [u8]) -> Result<(), GpuError>;

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError>;

    fn synchronize(&self) -> Result<(), GpuError>;

    /// A kernel of a source file of kernels/device, compiled with these definitions (or found compiled) and loaded once.
    fn function(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Function, GpuError>;

    /// Where a constant of a source file, compiled like its kernels, is in the device's memory.
    fn constant(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Address, GpuError>;

    /// Queues a kernel. `arguments` point to values of the types that the kernel declares.
    ///
    /// # Safety
    /// Number, order and types of the arguments are the kernel's, and what they point to on the device is large enough for it.
    unsafe fn launch(&self, function: Function, grid: Grid, arguments: &mut [*mut c_void]) -> Result<(), GpuError>;

    /// Queues a matrix product. The same product gives the same bits each time.
    ///
    /// # Safety
    /// All addresses belong to memory that is large enough.
    unsafe fn multiply(&self, product: &Product) -> Result<(), GpuError>;

    /// Queues a product of packed MXFP4 operands by the vendor's library. Where the library is not asked for it, an error.
    ///
    /// # Safety
    /// All addresses belong to memory that is large enough.
    unsafe fn multiply_packed(&self, _product: &PackedProduct) -> Result<(), GpuError> {
        Err(self.description().no_packed_products())
    }

    /// The stream itself, for whoever lets it wait for another; none where there is no device behind.
    fn stream(&self) -> Option<u64> {
        None
    }

    /// Marks the end of what was queued so far.
    fn record(&self) -> Result<Event, GpuError>;

    /// Waits for both, and gives the seconds between them; both events are gone afterwards.
    fn elapsed(&self, from: Event, to: Event) -> Result<f64, GpuError>;
}
