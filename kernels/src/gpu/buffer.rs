//! Memory on a device that knows its length and its element type.

use std::marker::PhantomData;
use std::sync::Arc;

use contract::memory::PART;

use super::GpuError;
use super::driver::{Address, Driver, Element, Matrix};

/// A BF16 by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// Types without padding or pointers, whose every bit pattern is a value.
///
/// # Safety
/// Just that.
pub unsafe trait Plain: Copy + 'static {
    /// As a side of a product, if it can be one.
    const ELEMENT: Option<Element> = None;
}

// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: numbers.
unsafe impl Plain for u32 {}
// SAFETY: numbers.
unsafe impl Plain for i32 {}
// SAFETY: numbers.
unsafe impl Plain for u64 {}
// SAFETY: numbers.
unsafe impl Plain for f64 {}
// SAFETY: numbers.
unsafe impl Plain for f32 {
    const ELEMENT: Option<Element> = Some(Element::F32);
}
// SAFETY: one number.
unsafe impl Plain for Bf16 {
    const ELEMENT: Option<Element> = Some(Element::Bf16);
}

/// The bytes of plain values.
pub(super) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` types have no padding, so every byte is initialised; the length is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

pub(super) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern that is written is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Memory that is freed with the last buffer over it.
#[derive(Debug)]
struct Memory {
    driver: Arc<dyn Driver>,
    start: Address,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.driver.free(self.start);
    }
}

/// Memory for `length` elements: of its own, or a part of another buffer's.
#[derive(Debug)]
pub struct Buffer<T: Plain> {
    memory: Arc<Memory>,
    start: Address,
    length: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    pub(super) fn new(driver: Arc<dyn Driver>, length: usize) -> Result<Self, GpuError> {
        let start = driver.allocate(length * size_of::<T>())?;
        Ok(Self { memory: Arc::new(Memory { driver, start }), start, length, element: PhantomData })
    }

    /// `length` elements from byte `first` on, as a buffer over the same memory: what is written to the one is read from the other. `first`
    /// is a multiple of [`PART`].
    ///
    /// # Errors
    /// A range outside the buffer, or a start that matrix libraries do not take.
    pub fn part<U: Plain>(&self, first: usize, length: usize) -> Result<Buffer<U>, GpuError> {
        let there = self.length * size_of::<T>();
        let end = length.checked_mul(size_of::<U>()).and_then(|bytes| bytes.checked_add(first));
        if !first.is_multiple_of(PART) || end.is_none_or(|end| end > there) {
            let problem = format!("{length} elements of {} bytes from byte {first} on, of {there} bytes", size_of::<U>());
            return Err(GpuError::Shape { kernel: "part of a buffer", problem });
        }
        Ok(Buffer { memory: self.memory.clone(), start: self.start + first as u64, length, element: PhantomData })
    }

    /// Some elements as a buffer over the same memory, to be copied or sent: kernels and matrix libraries want [`Self::part`], which begins where
    /// they read fast.
    pub fn window(&self, first: usize, count: usize) -> Result<Self, GpuError> {
        let start = self.range(first, count)?;
        Ok(Self { memory: self.memory.clone(), start, length: count, element: PhantomData })
    }

    /// As [`Self::window`], their bytes.
    pub fn bytes(&self, first: usize, count: usize) -> Result<Buffer<u8>, GpuError> {
        let start = self.range(first, count)?;
        Ok(Buffer { memory: self.memory.clone(), start, length: count * size_of::<T>(), element: PhantomData })
    }

    fn driver(&self) -> &dyn Driver {
        &*self.memory.driver
    }

    /// Elements.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Where element number `index` is.
    pub(super) fn address(&self, index: usize) -> Address {
        self.start + (index * size_of::<T>()) as u64
    }

    fn range(&self, first: usize, count: usize) -> Result<Address, GpuError> {
        if first.checked_add(count).is_none_or(|end| end > self.length) {
            return Err(GpuError::Shape { kernel: "buffer", problem: format!("elements {first}..+{count} of {}", self.length) });
        }
        Ok(self.address(first))
    }

    /// Writes `values` from element `first` on.
    pub fn write(&mut self, first: usize, values: &[T]) -> Result<(), GpuError> {
        let to = self.range(first, values.len())?;
        if values.is_empty() { Ok(()) } else { self.driver().upload(bytes_of(values), to) }
    }

    /// Reads from element `first` on, after everything that was queued.
    pub fn read(&self, first: usize, values: &mut [T]) -> Result<(), GpuError> {
        let from = self.range(first, values.len())?;
        if values.is_empty() { Ok(()) } else { self.driver().download(from, bytes_of_mut(values)) }
    }

    /// Sets every byte.
    pub fn fill(&mut self, byte: u8) -> Result<(), GpuError> {
        self.driver().fill(self.start, byte, self.length * size_of::<T>())
    }

    /// Sets every byte of some elements.
    pub(super) fn fill_range(&self, first: usize, count: usize, byte: u8) -> Result<(), GpuError> {
        let at = self.range(first, count)?;
        self.driver().fill(at, byte, count * size_of::<T>())
    }

    /// Copies the first `count` elements to the start of another buffer.
    pub fn copy_to(&self, to: &Self, count: usize) -> Result<(), GpuError> {
        let (from, to) = (self.range(0, count)?, to.range(0, count)?);
        self.driver().copy(from, to, count * size_of::<T>())
    }

    /// A side of a product: `[rows, k]` from element `first` on, or `[k, rows]` in memory when `transposed`.
    pub fn matrix(&self, first: usize, rows: usize, k: usize, transposed: bool) -> Result<Matrix, GpuError> {
        let address = self.range(first, rows * k)?;
        let Some(element) = T::ELEMENT else {
            return Err(GpuError::Shape { kernel: "multiply", problem: "these elements cannot be multiplied".into() });
        };
        Ok(Matrix { address, element, rows, k, transposed, scale: None })
    }
}

impl<T: Plain + Default> Buffer<T> {
    /// All elements, after everything that was queued.
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        let mut values = vec![T::default(); self.length];
        self.read(0, &mut values)?;
        Ok(values)
    }
}
