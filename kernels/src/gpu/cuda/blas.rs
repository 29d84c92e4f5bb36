//! Matrix products through cuBLASLt: one plan a shape, chosen by the library's heuristic (never by timing, which could choose another
//! order of summation the next time).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::api::{self, Blas, Heuristic};
use crate::gpu::GpuError;
use crate::gpu::driver::{Address, Element, Matrix, Product};
use crate::gpu::library::Shared;

/// Memory that an algorithm may use, bytes.
pub(super) const WORKSPACE: usize = 64 << 20;

/// Everything that a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    m: usize,
    n: usize,
    k: usize,
    left: (Element, bool),
    right: (Element, bool),
    out: Element,
    scaled: bool,
}

/// Descriptions and algorithm of one shape; they live as long as the driver.
#[derive(Debug, Clone, Copy)]
struct Plan {
    description: *mut c_void,
    left: *mut c_void,
    right: *mut c_void,
    out: *mut c_void,
    algorithm: [u64; 8],
}

// SAFETY: the pointers are handles of cuBLASLt objects, which have no affinity to a thread; the map that holds them is locked.
unsafe impl Send for Plan {}

/// The library and the plans made so far.
#[derive(Debug)]
pub(super) struct Products {
    api: Blas,
    handle: *mut c_void,
    plans: Mutex<HashMap<Key, Plan>>,
    pub(super) version: String,
    _library: Shared,
}

// SAFETY: a cuBLASLt handle may be used by any thread; plans are behind a lock.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

fn data_type(element: Element) -> c_int {
    match element {
        Element::Bf16 => api::TYPE_BF16,
        Element::E4m3 => api::TYPE_E4M3,
        Element::E5m2 => api::TYPE_E5M2,
        Element::F32 => api::TYPE_F32,
    }
}

fn check(status: c_int, call: &str) -> Result<(), GpuError> {
    if status == 0 {
        return Ok(());
    }
    let reason = match status {
        1 => "not initialised".to_owned(),
        3 => "out of memory".to_owned(),
        7 => "a wrong argument".to_owned(),
        8 => "this GPU's architecture lacks it".to_owned(),
        13 => "the kernel failed".to_owned(),
        15 => "not supported for these types and shapes".to_owned(),
        other => format!("status {other}"),
    };
    Err(GpuError::Call { call: format!("cuBLASLt: {call}"), reason })
}

impl Products {
    pub(super) fn new(library: Shared) -> Result<Self, GpuError> {
        let api = Blas::load(&library)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is written by the call.
        check(unsafe { (api.create)(&raw mut handle) }, "create")?;
        // SAFETY: no arguments.
        let number = unsafe { (api.version)() };
        let version = format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100);
        Ok(Self { api, handle, plans: Mutex::default(), version, _library: library })
    }

    /// # Safety
    /// As `Driver::multiply`; `workspace` holds [`WORKSPACE`] bytes.
    pub(super) unsafe fn multiply(&self, product: &Product, workspace: Address, stream: api::Stream) -> Result<(), GpuError> {
        let Product { left, right, out, out_element, added, alpha } = *product;
        if left.k != right.k {
            return Err(GpuError::Shape { kernel: "multiply", problem: format!("contraction axes of {} and {}", left.k, right.k) });
        }
        let key = Key {
            m: left.rows,
            n: right.rows,
            k: left.k,
            left: (left.element, left.transposed),
            right: (right.element, right.transposed),
            out: out_element,
            scaled: left.scale.is_some() || right.scale.is_some(),
        };
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.get(&key) {
            Some(plan) => *plan,
            None => {
                let plan = self.plan(&key, product)?;
                plans.insert(key, plan);
                plan
            }
        };
        drop(plans);
        if key.scaled {
            self.scales(plan.description, &right, &left)?;
        }
        let beta = if added.is_some() { 1.0f32 } else { 0.0 };
        let c = added.unwrap_or(out);
        // SAFETY: descriptions and algorithm belong together (`plan`); the caller vouches for the addresses. In the library's
        // column-major view our right side comes first.
        let status = unsafe {
            (self.api.multiply)(
                self.handle,
                plan.description,
                (&raw const alpha).cast(),
                right.address as *const c_void,
                plan.right,
                left.address as *const c_void,
                plan.left,
                (&raw const beta).cast(),
                c as *const c_void,
                plan.out,
                out as *mut c_void,
                plan.out,
                &raw const plan.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream,
            )
        };
        check(status, &format!("[{}, {}] x [{}, {}]", key.m, key.k, key.n, key.k))
    }

    fn scales(&self, description: *mut c_void, first: &Matrix, second: &Matrix) -> Result<(), GpuError> {
        for (attribute, scale) in [(api::SCALE_A, first.scale), (api::SCALE_B, second.scale)] {
            let pointer = scale.unwrap_or(0);
            // SAFETY: the attribute is a device pointer of eight bytes, copied by the call.
            check(unsafe { (self.api.set_description)(description, attribute, (&raw const pointer).cast(), 8) }, "scale")?;
        }
        Ok(())
    }

    fn layout(&self, element: Element, rows: usize, columns: usize) -> Result<*mut c_void, GpuError> {
        let mut layout = std::ptr::null_mut();
        // SAFETY: `layout` is written by the call. Column-major `rows x columns`.
        let status = unsafe { (self.api.create_layout)(&raw mut layout, data_type(element), rows as u64, columns as u64, rows as i64) };
        check(status, "layout")?;
        Ok(layout)
    }

    fn plan(&self, key: &Key, product: &Product) -> Result<Plan, GpuError> {
        let mut description = std::ptr::null_mut();
        // SAFETY: `description` is written by the call.
        check(unsafe { (self.api.create_description)(&raw mut description, api::COMPUTE_F32, api::TYPE_F32) }, "description")?;
        // A side that lies [rows, k] row-major is a column-major k x rows matrix: transposed as first factor, plain as second.
        for (attribute, transposed) in [(api::TRANSPOSE_A, !key.right.1), (api::TRANSPOSE_B, key.left.1)] {
            let value = c_int::from(transposed);
            // SAFETY: the attribute is an i32, copied by the call.
            check(unsafe { (self.api.set_description)(description, attribute, (&raw const value).cast(), 4) }, "orientation")?;
        }
        if key.scaled {
            self.scales(description, &product.right, &product.left)?;
        }
        let side = |(element, transposed), rows: usize| {
            let (fast, slow) = if transposed { (rows, key.k) } else { (key.k, rows) };
            self.layout(element, fast, slow)
        };
        let (right, left, out) = (side(key.right, key.n)?, side(key.left, key.m)?, self.layout(key.out, key.n, key.m)?);
        let algorithm = self.choose(description, right, left, out, key)?;
        Ok(Plan { description, left, right, out, algorithm })
    }

    fn choose(
        &self,
        description: *mut c_void,
        right: *mut c_void,
        left: *mut c_void,
        out: *mut c_void,
        key: &Key,
    ) -> Result<[u64; 8], GpuError> {
        let mut preference = std::ptr::null_mut();
        let (mut found, mut count, workspace) = (Heuristic::default(), 0, WORKSPACE);
        // SAFETY: all handles come from this library; the results are written into `found` and `count`.
        let status = unsafe {
            check((self.api.create_preference)(&raw mut preference), "preference")?;
            check(
                (self.api.set_preference)(preference, api::MAX_WORKSPACE, (&raw const workspace).cast(), size_of::<usize>()),
                "preference",
            )?;
            let status =
                (self.api.heuristic)(self.handle, description, right, left, out, out, preference, 1, &raw mut found, &raw mut count);
            (self.api.destroy_preference)(preference);
            status
        };
        if status != 0 || count == 0 {
            return Err(GpuError::Unsupported(format!(
                "cuBLASLt {} has no algorithm for {:?} [{}, {}] x {:?} [{}, {}] with {:?} out; rows and contraction axes must be multiples of 16 for FP8 and of 8 for BF16",
                self.version, key.left.0, key.m, key.k, key.right.0, key.n, key.k, key.out
            )));
        }
        Ok(found.algorithm)
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let plans = self.plans.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: every handle was created by this library and is not used again.
        unsafe {
            for plan in plans.values() {
                for layout in [plan.left, plan.right, plan.out] {
                    (self.api.destroy_layout)(layout);
                }
                (self.api.destroy_description)(plan.description);
            }
            (self.api.destroy)(self.handle);
        }
    }
}
