//! Matrix products through cuBLASLt or hipBLASLt, which differ in names and numbers alone: one plan a shape, chosen by the library's
//! heuristic (never by timing, which could choose another order of summation the next time).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::GpuError;
use super::driver::{Address, Element, PackedMatrix, PackedProduct, Product, ScaleLayout};
use super::library::{Shared, table};

/// Memory that an algorithm may use, bytes.
pub(super) const WORKSPACE: usize = 64 << 20;

/// An entry of the heuristic's answer, of which only the beginning is used: the algorithm, in the library's own form. The largest of
/// the known entries has 96 bytes; a newer library may write more.
type Answer = [u64; 32];

type Handle = *mut c_void;

table! {
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
    pub(super) operations: [c_int; 2],
    /// Attributes of a description: operation of the first and second factor, address of their scales.
    pub(super) operation_attributes: [c_int; 2],
    pub(super) scale_attributes: [c_int; 2],
    pub(super) workspace_attribute: c_int,
    /// Statuses that say what happened.
    pub(super) statuses: &'static [(c_int, &'static str)],
}

/// How a library that multiplies packed MXFP4 is told so.
#[derive(Debug)]
pub(super) struct BlockScales {
    /// The type of the codes.
    pub(super) element: c_int,
    /// Attributes of a description: how the scales of the first and second factor are meant.
    pub(super) attributes: [c_int; 2],
    /// One scale a block of 32 along k: by rows, swizzled.
    pub(super) by_rows: c_int,
    pub(super) swizzled: c_int,
    /// Sides, and the contraction axis, are multiples of these.
    pub(super) multiples: [usize; 2],
}

const TYPE_F32: c_int = 0;
const TYPE_BF16: c_int = 14;
const TYPE_E4M3: c_int = 28;
const TYPE_E5M2: c_int = 29;

/// What the elements of a factor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Values {
    Plain(Element),
    /// MXFP4: the type of the codes, and how their scales are meant.
    Packed(c_int, c_int),
}

impl Values {
    fn number(self) -> c_int {
        match self {
            Self::Plain(element) => data_type(element),
            Self::Packed(element, _) => element,
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(element) => write!(to, "{element:?}"),
            Self::Packed(..) => to.write_str("MXFP4"),
        }
    }
}

/// Everything that a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    m: usize,
    n: usize,
    k: usize,
    left: (Values, bool),
    right: (Values, bool),
    out: Element,
    scaled: bool,
}

/// What one call is about besides its plan.
#[derive(Debug, Clone, Copy)]
struct Call {
    left: Address,
    right: Address,
    /// Scales of the library's first factor, which is our right side, and of its second.
    scales: [Option<Address>; 2],
    out: Address,
    added: Option<Address>,
    alpha: f32,
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

/// Which versions have such products (AMD's release notes and header).
const MXFP4_SINCE: &str = "products of MXFP4 come with hipBLASLt of ROCm 7.0 for gfx950, swizzled scales (mode 1001) with 7.2";

impl BlockScales {
    /// Whether the library's documentation allows such a product; a layout of scales that would have padding is not asked for.
    fn fits(&self, name: &str, left: PackedMatrix, right: PackedMatrix) -> Result<(), GpuError> {
        let ([m, n], k) = ([left.rows, right.rows], left.k);
        let shape = format!("{m} x {n} over {k}");
        if k != right.k || left.layout != right.layout {
            return Err(GpuError::Shape {
                kernel: "multiply_packed",
                problem: format!("contraction axes of {k} and {} elements, scales {:?} and {:?}", right.k, left.layout, right.layout),
            });
        }
        let [sides, axis] = self.multiples;
        if [m, n].iter().any(|side| *side == 0 || !side.is_multiple_of(sides)) || k == 0 || !k.is_multiple_of(axis) {
            return Err(GpuError::Unsupported(format!(
                "{name} multiplies MXFP4 with sides in multiples of {sides} and contraction axes of {axis}, not {shape}"
            )));
        }
        if ![m, n].iter().all(|side| left.layout.is_whole(*side, k)) {
            return Err(GpuError::Unsupported(format!(
                "swizzled scales of {shape} have padding, which is not made here: sides must be multiples of 32, the contraction axis of 256"
            )));
        }
        Ok(())
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
            left: (Values::Plain(left.element), left.transposed),
            right: (Values::Plain(right.element), right.transposed),
            out: out_element,
            scaled: left.scale.is_some() || right.scale.is_some(),
        };
        let scales = [right.scale, left.scale];
        let call = Call { left: left.address, right: right.address, scales, out, added, alpha };
        // SAFETY: the caller vouches for the addresses.
        unsafe { self.queue(&key, &call, None, workspace, stream) }
    }

    /// # Safety
    /// As `Driver::multiply_packed`; `workspace` holds [`WORKSPACE`] bytes.
    pub(super) unsafe fn multiply_packed(
        &self,
        product: &PackedProduct,
        blocks: &BlockScales,
        workspace: Address,
        stream: *mut c_void,
    ) -> Result<(), GpuError> {
        let PackedProduct { left, right, out, out_element, added, alpha } = *product;
        blocks.fits(self.dialect.name, left, right)?;
        let mode = if left.layout == ScaleLayout::Rows { blocks.by_rows } else { blocks.swizzled };
        let values = (Values::Packed(blocks.element, mode), false);
        let key = Key { m: left.rows, n: right.rows, k: left.k, left: values, right: values, out: out_element, scaled: true };
        let scales = [Some(right.scales), Some(left.scales)];
        let call = Call { left: left.codes, right: right.codes, scales, out, added, alpha };
        // SAFETY: the caller vouches for the addresses.
        unsafe { self.queue(&key, &call, Some(blocks), workspace, stream) }
    }

    /// # Safety
    /// Addresses belong to memory that is large enough for what `key` says.
    unsafe fn queue(
        &self,
        key: &Key,
        call: &Call,
        blocks: Option<&BlockScales>,
        workspace: Address,
        stream: *mut c_void,
    ) -> Result<(), GpuError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.get(key) {
            Some(plan) => *plan,
            None => {
                let plan = self.plan(key, call, blocks)?;
                plans.insert(*key, plan);
                plan
            }
        };
        drop(plans);
        if key.scaled {
            self.scales(plan.description, call)?;
        }
        let beta = if call.added.is_some() { 1.0f32 } else { 0.0 };
        let c = call.added.unwrap_or(call.out);
        // SAFETY: descriptions and algorithm belong together (`plan`); the caller vouches for the addresses. In the library's
        // column-major view our right side comes first.
        let status = unsafe {
            (self.api.multiply)(
                self.handle,
                plan.description,
                (&raw const call.alpha).cast(),
                call.right as *const c_void,
                plan.right,
                call.left as *const c_void,
                plan.left,
                (&raw const beta).cast(),
                c as *const c_void,
                plan.out,
                call.out as *mut c_void,
                plan.out,
                &raw const plan.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream,
            )
        };
        self.check(status, &format!("[{}, {}] x [{}, {}]", key.m, key.k, key.n, key.k))
    }

    fn scales(&self, description: *mut c_void, call: &Call) -> Result<(), GpuError> {
        for (attribute, scale) in self.dialect.scale_attributes.into_iter().zip(call.scales) {
            let pointer = scale.unwrap_or(0);
            // SAFETY: the attribute is a device pointer of eight bytes, copied by the call.
            self.check(unsafe { (self.api.set_description)(description, attribute, (&raw const pointer).cast(), 8) }, "scale")?;
        }
        Ok(())
    }

    /// Says that scales are one a block, to a library that knows of it.
    fn block_scales(&self, description: *mut c_void, key: &Key, blocks: &BlockScales) -> Result<(), GpuError> {
        for (attribute, side) in blocks.attributes.into_iter().zip([key.right.0, key.left.0]) {
            let Values::Packed(_, mode) = side else { continue };
            // SAFETY: the attribute is an i32, copied by the call.
            let status = unsafe { (self.api.set_description)(description, attribute, (&raw const mode).cast(), 4) };
            if status != 0 {
                return Err(GpuError::Unsupported(format!(
                    "{} {} does not take scales of blocks (mode {mode}); {MXFP4_SINCE}",
                    self.dialect.name, self.version
                )));
            }
        }
        Ok(())
    }

    fn layout(&self, element: c_int, rows: usize, columns: usize) -> Result<*mut c_void, GpuError> {
        let mut layout = std::ptr::null_mut();
        // SAFETY: `layout` is written by the call. Column-major `rows x columns`.
        let status = unsafe { (self.api.create_layout)(&raw mut layout, element, rows as u64, columns as u64, rows as i64) };
        self.check(status, "layout")?;
        Ok(layout)
    }

    fn plan(&self, key: &Key, call: &Call, blocks: Option<&BlockScales>) -> Result<Plan, GpuError> {
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
            self.scales(description, call)?;
        }
        if let Some(blocks) = blocks {
            self.block_scales(description, key, blocks)?;
        }
        let side = |(values, transposed): (Values, bool), rows: usize| {
            let (fast, slow) = if transposed { (rows, key.k) } else { (key.k, rows) };
            self.layout(values.number(), fast, slow)
        };
        let (right, left, out) = (side(key.right, key.n)?, side(key.left, key.m)?, self.layout(data_type(key.out), key.n, key.m)?);
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
            let advice = match key.left.0 {
                Values::Plain(_) => "rows and contraction axes must be multiples of 16 for FP8 and of 8 for BF16".to_owned(),
                Values::Packed(_, mode) => format!("scales of blocks in mode {mode}; {MXFP4_SINCE}"),
            };
            return Err(GpuError::Unsupported(format!(
                "{} {} has no algorithm for {} [{}, {}] x {} [{}, {}] with {:?} out; {advice}",
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
