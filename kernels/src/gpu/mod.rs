//! A training step's kernels on a GPU. [`Gpu`] is the door; [`driver::Driver`] is what CUDA and HIP have in common.
//!
//! Kernel sources are in kernels/device, one text for both. Activations are BF16, parameters, gradients and moments F32. Quantisation,
//! rotation and random words are bit for bit those of `crate::quantise`; everything else is as close as its formats allow. All work of
//! a device runs in one stream, in the order of the calls, and the same calls give the same bits.
//!
//! Each family of kernels is a small struct made once for its sizes (`Norm`, `Attention`, ...): making it compiles its kernels or finds
//! them compiled, using it queues launches. Methods check lengths and return [`GpuError::Shape`]. `&mut` marks what a call writes for the
//! reader's sake; scratch memory and products go without it, because order in the stream is what keeps the device's memory consistent.

mod accumulate;
mod attention;
mod buffer;
mod cache;
mod calls;
pub mod collectives;
pub mod copies;
mod cuda;
pub mod driver;
mod elementwise;
mod error;
mod factors;
mod head;
mod hip;
mod library;
mod mxfp4;
mod norm;
mod optimizer;
mod products;
mod quantise;
pub mod record;
mod runtime;
mod shards;
mod sources;

use std::ffi::c_void;
use std::sync::Arc;

pub use contract::recipe::is_source;

pub use accumulate::{Accumulator, SumRounder};
pub use attention::Attention;
pub use buffer::{Bf16, Buffer, Plain};
pub use driver::{Description, Element, Matrix, PackedMatrix, ScaleLayout};
pub use elementwise::{Elementwise, Occurrences};
pub use error::GpuError;
pub use factors::{Factor, Multiplier};
pub use head::Head;
pub use mxfp4::{PackedProducts, PackedQuantiser, Plan, is_packed, packed_bytes};
pub use norm::Norm;
pub use optimizer::{Optimizer, Stretch, UpdateNumbers};
pub use quantise::{Made, OperandSide, Quantiser, TensorScales, element, multiplier, prepared};
pub use shards::{EmbeddingRows, PieceAdder, RowPacker, ShardNorm};

use driver::{Driver, Function, Grid, PackedProduct, Product};

/// Who made a GPU, or rather its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Cuda,
    Hip,
}

impl Kind {
    /// In the order in which they are looked for.
    pub const ALL: [Self; 2] = [Self::Cuda, Self::Hip];

    /// As `--device` has it: `cuda`, `hip`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }

    pub fn count(self) -> Result<usize, GpuError> {
        match self {
            Self::Cuda => cuda::count(),
            Self::Hip => hip::count(),
        }
    }
}

/// A GPU that is open.
#[derive(Debug, Clone)]
pub struct Gpu {
    driver: Arc<dyn Driver>,
}

impl Gpu {
    /// GPU number `ordinal` of a kind.
    pub fn open(kind: Kind, ordinal: usize) -> Result<Self, GpuError> {
        Ok(match kind {
            Kind::Cuda => Self { driver: Arc::new(cuda::open(ordinal)?) },
            Kind::Hip => Self { driver: Arc::new(hip::open(ordinal)?) },
        })
    }

    /// A GPU behind any driver.
    pub fn behind(driver: Arc<dyn Driver>) -> Self {
        Self { driver }
    }

    /// NVIDIA GPU number `ordinal`.
    pub fn cuda(ordinal: usize) -> Result<Self, GpuError> {
        Self::open(Kind::Cuda, ordinal)
    }

    /// AMD GPU number `ordinal`.
    pub fn hip(ordinal: usize) -> Result<Self, GpuError> {
        Self::open(Kind::Hip, ordinal)
    }

    pub fn description(&self) -> &Description {
        self.driver.description()
    }

    /// The driver, for what has no kernel here: events, memory.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Uninitialised memory for `length` elements.
    pub fn buffer<T: Plain>(&self, length: usize) -> Result<Buffer<T>, GpuError> {
        Buffer::new(self.driver.clone(), length)
    }

    /// Memory with these elements.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<Buffer<T>, GpuError> {
        let mut buffer = self.buffer(values.len())?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// Memory whose bytes are all zero.
    pub fn zeros<T: Plain>(&self, length: usize) -> Result<Buffer<T>, GpuError> {
        let mut buffer = self.buffer(length)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// `out = alpha * left rightᵀ (+ added)`; `out: [left.rows, right.rows]` F32 or BF16.
    ///
    /// # Errors
    /// Lengths that do not fit, element types that the device cannot multiply, the library's.
    pub fn multiply<T: Plain>(
        &self,
        left: Matrix,
        right: Matrix,
        alpha: f32,
        added: Option<&Buffer<T>>,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), GpuError> {
        let size = left.rows * right.rows;
        if offset + size > out.length() || added.is_some_and(|added| added.length() < size) {
            return Err(GpuError::Shape { kernel: "multiply", problem: format!("{size} results at {offset} of {}", out.length()) });
        }
        let out_element = if size_of::<T>() == 4 { Element::F32 } else { Element::Bf16 };
        let product = Product { left, right, out: out.address(offset), out_element, added: added.map(|added| added.address(0)), alpha };
        // SAFETY: `left` and `right` come from buffers of at least their size (`Buffer::matrix`); `out` was checked.
        unsafe { self.driver.multiply(&product) }
    }

    /// As [`Gpu::multiply`], adding to what is in `out`.
    pub fn multiply_into<T: Plain>(&self, left: Matrix, right: Matrix, alpha: f32, out: &Buffer<T>, offset: usize) -> Result<(), GpuError> {
        let size = left.rows * right.rows;
        if offset + size > out.length() {
            return Err(GpuError::Shape { kernel: "multiply", problem: format!("{size} results at {offset} of {}", out.length()) });
        }
        let out_element = if size_of::<T>() == 4 { Element::F32 } else { Element::Bf16 };
        let place = out.address(offset);
        // SAFETY: as above.
        unsafe { self.driver.multiply(&Product { left, right, out: place, out_element, added: Some(place), alpha }) }
    }

    /// `out[offset..] = alpha * left rightᵀ (+ added)` by the vendor's library, BF16 or F32: the other choice than [`PackedProducts`], and what
    /// that is measured beside.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where the library has no such product, in words; lengths that do not fit, the library's.
    pub fn multiply_packed<T: Plain>(
        &self,
        left: PackedMatrix,
        right: PackedMatrix,
        alpha: f32,
        added: Option<&Buffer<T>>,
        out: &Buffer<T>,
        offset: usize,
    ) -> Result<(), GpuError> {
        let size = left.rows * right.rows;
        expect("multiply_packed", "the result", offset + size, out.length())?;
        if let Some(added) = added {
            expect("multiply_packed", "what is added", size, added.length())?;
        }
        let Some(out_element @ (Element::Bf16 | Element::F32)) = T::ELEMENT else {
            return Err(GpuError::Shape { kernel: "multiply_packed", problem: "results are BF16 or F32".to_owned() });
        };
        let added = added.map(|added| added.address(0));
        let product = PackedProduct { left, right, out: out.address(offset), out_element, added, alpha };
        // SAFETY: `left` and `right` come from buffers of at least their size (`PackedMatrix::new`); `out` and `added` were checked.
        unsafe { self.driver.multiply_packed(&product) }
    }

    /// Reads a constant of a source file.
    fn read_constant(&self, file: &'static str, defines: &[String], name: &'static str, values: &mut [i32]) -> Result<(), GpuError> {
        let address = self.driver.constant(file, defines, name)?;
        self.driver.download(address, buffer::bytes_of_mut(values))
    }

    fn kernel(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Kernel, GpuError> {
        Ok(Kernel { function: self.driver.function(file, defines, name)?, driver: self.driver.clone() })
    }
}

/// A kernel that can be launched.
#[derive(Debug, Clone)]
struct Kernel {
    function: Function,
    driver: Arc<dyn Driver>,
}

/// One argument of a kernel, by value.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Argument([u8; 72]);

impl Argument {
    /// The bytes of a value that a kernel takes.
    fn new<T: Plain>(value: T) -> Self {
        const { assert!(size_of::<T>() <= 72 && align_of::<T>() <= 8) };
        let mut bytes = [0; 72];
        let from = std::slice::from_ref(&value);
        bytes[..size_of::<T>()].copy_from_slice(buffer::bytes_of(from));
        Self(bytes)
    }
}

impl Kernel {
    /// Queues the kernel.
    ///
    /// # Safety
    /// As [`Driver::launch`].
    unsafe fn launch<const N: usize>(&self, grid: Grid, mut arguments: [Argument; N]) -> Result<(), GpuError> {
        let mut pointers = arguments.each_mut().map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
        // SAFETY: the caller vouches for the arguments.
        unsafe { self.driver.launch(self.function, grid, &mut pointers) }
    }
}

/// Refuses lengths that are too small.
fn expect(kernel: &'static str, what: &str, wanted: usize, found: usize) -> Result<(), GpuError> {
    if found >= wanted {
        Ok(())
    } else {
        Err(GpuError::Shape { kernel, problem: format!("{what} has {found} elements, {wanted} are needed") })
    }
}
