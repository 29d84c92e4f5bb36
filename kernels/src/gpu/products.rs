//! Matrix products through cuBLASLt or hipBLASLt, which differ in names and numbers alone: one plan a shape, chosen by the library's
//! heuristic (never by timing, which could choose another order of summation the next time).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::GpuError;
use super::driver::{Address, Element, Matrix, Product};
use super::library::{Shared, table};

/// Memory that an algorithm may use, bytes.
pub(super) const WORKSPACE: usize = 64 << 20;

/// An entry of the heuristic's answer, of which only the beginning is used: the algorithm, in the library's own form. The largest of
/// the known entries has 96 bytes; a newer library may write more.
type Answer = [u64; 32];

type Handle = *mut c_void;

table! {
    /// Matrix products.
    Blas [cuda = "cublasLt", hip = "hipblasLt"] {
        create: "Create" = fn(*mut Handle) -> c_int;
        destroy: "Destroy" = fn(Handle) -> c_int;
        create_description: "MatmulDescCreate" = fn(*mut Handle, c_int, c_int) -> c_int;
        destroy_description: "MatmulDescDestroy" = fn(Handle) -> c_int;
        set_description: "MatmulDescSetAttribute" = fn(Handle, c_int, *const c_void, usize) -> c_int;
        create_layout: "MatrixLayoutCreate" = fn(*mut Handle, c_int, u64, u64, i64) -> c_int;
        destroy_layout: "MatrixLayoutDestroy" = fn(Handle) -> c_int;
        create_preference: "MatmulPreferenceCreate" = fn(*mut Handle) -> c_int;
        destroy_preference: "MatmulPreferenceDestroy" = fn(Handle) -> c_int;
        set_preference: "MatmulPreferenceSetAttribute" = fn(Handle, c_int, *const c_void, usize) -> c_int;
        heuristic: "MatmulAlgoGetHeuristic" = fn(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Answer, *mut c_int,
        ) -> c_int;
        multiply: "Matmul" = fn(
            Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void,
            *const c_void, Handle, *mut c_void, Handle, *const Answer, *mut c_void, usize, *mut c_void,
        ) -> c_int;
    }
}

/// What differs between the two libraries (from NVIDIA's and AMD's headers; the element types have the same numbers in both).
#[derive(Debug)]
pub(super) struct Dialect {
    pub(super) name: &'static str,
    pub(super) compute_f32: c_int,
    /// As it lies, transposed.
    pub(super) operations: [c_int; 2],
    /// Attributes of a description: operation of the first and second factor, address of their scales.
    pub(super) operation_attributes: [c_int; 2],
    pub(super) scale_attributes: [c_int; 2],
    /// Attribute of a preference.
    pub(super) workspace_attribute: c_int,
    /// Statuses that say what happened.
    pub(super) statuses: &'static [(c_int, &'static str)],
}

const TYPE_F32: c_int = 0;
const TYPE_BF16: c_int = 14;
const TYPE_E4M3: c_int = 28;
const TYPE_E5M2: c_int = 29;

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
    algorithm: Answer,
}

// SAFETY: the pointers are handles of the library's objects, which have no affinity to a thread; the map that holds them is locked.
unsafe impl Send for Plan {}

/// The library and the plans made so far.
#[derive(Debug)]
pub(super) struct Products {
    api: Blas,
    dialect: &'static Dialect,
    handle: Handle,
    plans: Mutex<HashMap<Key, Plan>>,
    pub(super) version: String,
    _library: Shared,
}

// SAFETY: a handle may be used by any thread; plans are behind a lock.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

fn data_type(element: Element) -> c_int {
    match element {
        Element::Bf16 => TYPE_BF16,
        Element::E4m3 => TYPE_E4M3,
        Element::E5m2 => TYPE_E5M2,
        Element::F32 => TYPE_F32,
    }
}

impl Products {
    /// An open library, whose functions were looked up.
    pub(super) fn new(
        api: Blas,
        dialect: &'static Dialect,
        library: Shared,
        version: impl FnOnce(Handle) -> String,
    ) -> Result<Self, GpuError> {
        let mut products =
            Self { api, dialect, handle: std::ptr::null_mut(), plans: Mutex::default(), version: String::new(), _library: library };
        // SAFETY: the handle is written by the call.
        let status = unsafe { (products.api.create)(&raw mut products.handle) };
        products.check(status, "create")?;
        products.version = version(products.handle);
        Ok(products)
    }

    fn check(&self, status: c_int, call: &str) -> Result<(), GpuError> {
        if status == 0 {
            return Ok(());
        }
        let known = self.dialect.statuses.iter().find(|known| known.0 == status);
        let reason = known.map_or_else(|| format!("status {status}"), |known| known.1.to_owned());
        Err(GpuError::Call { call: format!("{}: {call}", self.dialect.name), reason })
    }

    /// # Safety
    /// As `Driver::multiply`; `workspace` holds [`WORKSPACE`] bytes.
    pub(super) unsafe fn multiply(&self, product: &Product, workspace: Address, stream: *mut c_void) -> Result<(), GpuError> {
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
        self.check(status, &format!("[{}, {}] x [{}, {}]", key.m, key.k, key.n, key.k))
    }

    fn scales(&self, description: *mut c_void, first: &Matrix, second: &Matrix) -> Result<(), GpuError> {
        for (attribute, scale) in self.dialect.scale_attributes.into_iter().zip([first.scale, second.scale]) {
            let pointer = scale.unwrap_or(0);
            // SAFETY: the attribute is a device pointer of eight bytes, copied by the call.
            self.check(unsafe { (self.api.set_description)(description, attribute, (&raw const pointer).cast(), 8) }, "scale")?;
        }
        Ok(())
    }

    fn layout(&self, element: Element, rows: usize, columns: usize) -> Result<*mut c_void, GpuError> {
        let mut layout = std::ptr::null_mut();
        // SAFETY: `layout` is written by the call. Column-major `rows x columns`.
        let status = unsafe { (self.api.create_layout)(&raw mut layout, data_type(element), rows as u64, columns as u64, rows as i64) };
        self.check(status, "layout")?;
        Ok(layout)
    }

    fn plan(&self, key: &Key, product: &Product) -> Result<Plan, GpuError> {
        let mut description = std::ptr::null_mut();
        // SAFETY: `description` is written by the call.
        self.check(unsafe { (self.api.create_description)(&raw mut description, self.dialect.compute_f32, TYPE_F32) }, "description")?;
        // A side that lies [rows, k] row-major is a column-major k x rows matrix: transposed as first factor, plain as second.
        for (attribute, transposed) in self.dialect.operation_attributes.into_iter().zip([!key.right.1, key.left.1]) {
            let value = self.dialect.operations[usize::from(transposed)];
            // SAFETY: the attribute is an i32, copied by the call.
            self.check(unsafe { (self.api.set_description)(description, attribute, (&raw const value).cast(), 4) }, "orientation")?;
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
    ) -> Result<Answer, GpuError> {
        let mut preference = std::ptr::null_mut();
        let (mut found, mut count, workspace) = ([0; 32], 0, WORKSPACE);
        // SAFETY: all handles come from this library; the results are written into `found` and `count`.
        let status = unsafe {
            self.check((self.api.create_preference)(&raw mut preference), "preference")?;
            self.check(
                (self.api.set_preference)(preference, self.dialect.workspace_attribute, (&raw const workspace).cast(), size_of::<usize>()),
                "preference",
            )?;
            let status =
                (self.api.heuristic)(self.handle, description, right, left, out, out, preference, 1, &raw mut found, &raw mut count);
            (self.api.destroy_preference)(preference);
            status
        };
        if status != 0 || count == 0 {
            return Err(GpuError::Unsupported(format!(
                "{} {} has no algorithm for {:?} [{}, {}] x {:?} [{}, {}] with {:?} out; rows and contraction axes must be multiples of 16 for FP8 and of 8 for BF16",
                self.dialect.name, self.version, key.left.0, key.m, key.k, key.right.0, key.n, key.k, key.out
            )));
        }
        Ok(found)
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
            if !self.handle.is_null() {
                (self.api.destroy)(self.handle);
            }
        }
    }
}
