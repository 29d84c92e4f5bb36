//! What only HIP has of functions, and the constants that libamdhip64 and libhipblaslt take (from AMD's headers of ROCm 6 and 7).
//!
//! Attributes are asked for one by one. `hipDeviceProp_t` is not used: its layout and the symbol that fills it changed with ROCm 6.

use std::ffi::{c_char, c_int, c_void};

use crate::gpu::calls::Module;
use crate::gpu::library::table;
use crate::gpu::products::{BlockScales, Dialect};

table! {
    /// What only HIP has.
    Own {
        set_device: "hipSetDevice" = fn(c_int) -> c_int;
        unload_module: "hipModuleUnload" = fn(Module) -> c_int;
    }
}

pub(super) type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;
pub(super) const ERROR_TEXT: &str = "hipGetErrorString";

/// Of `hipError_t`.
pub(super) const NO_DEVICE: c_int = 100;
pub(super) const NO_BINARY_FOR_GPU: c_int = 209;

/// A symbol that no ROCm has: the library is this project's stand-in, which executes kernels on the processor (kernels/gfx950/stand-in).
pub(super) const INTERPRETER_MARK: &str = "gfx950_interpreter";

/// Asks a handle for the library's version.
pub(super) type BlasVersion = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
pub(super) const BLAS_VERSION: &str = "hipblasLtGetVersion";

pub(super) static BLAS: Dialect = Dialect {
    name: "hipBLASLt",
    compute_f32: 2,
    operations: [111, 112],
    operation_attributes: [0, 1],
    scale_attributes: [5, 6],
    workspace_attribute: 1,
    statuses: &[
        (1, "not initialised"),
        (2, "out of memory"),
        (3, "a wrong argument"),
        (5, "the kernel failed"),
        (6, "an error inside the library"),
        (7, "not supported for these types and shapes"),
        (8, "this GPU's architecture lacks it"),
    ],
};

/// Packed MXFP4 (`HIP_R_4F_E2M1`), `HIPBLASLT_MATMUL_DESC_A_SCALE_MODE` and `..._B_SCALE_MODE`, `HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0`
/// and `..._BLK32_UE8M0_32_8_EXT`, from the header of hipBLASLt 1.3; multiples from its reference, which also wants k contiguous on both
/// sides and BF16 or F32 out. Newer versions take contraction axes in smaller multiples; none is asked for them.
pub(super) static MXFP4: BlockScales = BlockScales { element: 33, attributes: [31, 32], by_rows: 2, swizzled: 1001, multiples: [16, 128] };
