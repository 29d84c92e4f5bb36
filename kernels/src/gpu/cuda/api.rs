//! What only CUDA has of functions, NVRTC's, and the constants that libcuda and libcublasLt take (from NVIDIA's headers).

use std::ffi::{c_char, c_int, c_void};

use crate::gpu::library::table;
use crate::gpu::products::Dialect;

pub(super) type Context = *mut c_void;

table! {
    /// What only CUDA's driver has.
    Own {
        device: "cuDeviceGet" = fn(*mut c_int, c_int) -> c_int;
        retain_context: "cuDevicePrimaryCtxRetain" = fn(*mut Context, c_int) -> c_int;
        release_context: "cuDevicePrimaryCtxRelease_v2" = fn(c_int) -> c_int;
        set_context: "cuCtxSetCurrent" = fn(Context) -> c_int;
        set_function_attribute: "cuFuncSetAttribute" = fn(*mut c_void, c_int, c_int) -> c_int;
    }
}

pub(super) type ErrorText = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
pub(super) const ERROR_TEXT: &str = "cuGetErrorString";

pub(super) const MAX_DYNAMIC_SHARED: c_int = 8;

pub(super) type Program = *mut c_void;

table! {
    Nvrtc {
        version: "nvrtcVersion" = fn(*mut c_int, *mut c_int) -> c_int;
        error_text: "nvrtcGetErrorString" = fn(c_int) -> *const c_char;
        create: "nvrtcCreateProgram" = fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
        destroy: "nvrtcDestroyProgram" = fn(*mut Program) -> c_int;
        compile: "nvrtcCompileProgram" = fn(Program, c_int, *const *const c_char) -> c_int;
        log_size: "nvrtcGetProgramLogSize" = fn(Program, *mut usize) -> c_int;
        log: "nvrtcGetProgramLog" = fn(Program, *mut c_char) -> c_int;
        cubin_size: "nvrtcGetCUBINSize" = fn(Program, *mut usize) -> c_int;
        cubin: "nvrtcGetCUBIN" = fn(Program, *mut c_char) -> c_int;
    }
}

/// Asks for the version of matrix products.
pub(super) type BlasVersion = unsafe extern "C" fn() -> usize;
pub(super) const BLAS_VERSION: &str = "cublasLtGetVersion";

pub(super) static BLAS: Dialect = Dialect {
    name: "cuBLASLt",
    compute_f32: 68,
    operations: [0, 1],
    operation_attributes: [3, 4],
    scale_attributes: [17, 18],
    workspace_attribute: 1,
    statuses: &[
        (1, "not initialised"),
        (3, "out of memory"),
        (7, "a wrong argument"),
        (8, "this GPU's architecture lacks it"),
        (13, "the kernel failed"),
        (15, "not supported for these types and shapes"),
    ],
};
