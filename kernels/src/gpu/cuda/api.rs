//! The functions of libcuda, libnvrtc and libcublasLt that are used, and the constants that they take (from NVIDIA's headers).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::gpu::library::table;
use crate::gpu::products::Dialect;

pub(super) type Context = *mut c_void;
pub(super) type Stream = *mut c_void;
pub(super) type Module = *mut c_void;

table! {
    Cuda {
        init: "cuInit" = fn(c_uint) -> c_int;
        driver_version: "cuDriverGetVersion" = fn(*mut c_int) -> c_int;
        error_text: "cuGetErrorString" = fn(c_int, *mut *const c_char) -> c_int;
        device_count: "cuDeviceGetCount" = fn(*mut c_int) -> c_int;
        device: "cuDeviceGet" = fn(*mut c_int, c_int) -> c_int;
        device_name: "cuDeviceGetName" = fn(*mut c_char, c_int, c_int) -> c_int;
        device_attribute: "cuDeviceGetAttribute" = fn(*mut c_int, c_int, c_int) -> c_int;
        device_memory: "cuDeviceTotalMem_v2" = fn(*mut usize, c_int) -> c_int;
        retain_context: "cuDevicePrimaryCtxRetain" = fn(*mut Context, c_int) -> c_int;
        release_context: "cuDevicePrimaryCtxRelease_v2" = fn(c_int) -> c_int;
        set_context: "cuCtxSetCurrent" = fn(Context) -> c_int;
        memory_info: "cuMemGetInfo_v2" = fn(*mut usize, *mut usize) -> c_int;
        allocate: "cuMemAlloc_v2" = fn(*mut u64, usize) -> c_int;
        free: "cuMemFree_v2" = fn(u64) -> c_int;
        fill: "cuMemsetD8Async" = fn(u64, u8, usize, Stream) -> c_int;
        upload: "cuMemcpyHtoDAsync_v2" = fn(u64, *const c_void, usize, Stream) -> c_int;
        download: "cuMemcpyDtoHAsync_v2" = fn(*mut c_void, u64, usize, Stream) -> c_int;
        copy: "cuMemcpyDtoDAsync_v2" = fn(u64, u64, usize, Stream) -> c_int;
        create_stream: "cuStreamCreate" = fn(*mut Stream, c_uint) -> c_int;
        destroy_stream: "cuStreamDestroy_v2" = fn(Stream) -> c_int;
        synchronize: "cuStreamSynchronize" = fn(Stream) -> c_int;
        create_event: "cuEventCreate" = fn(*mut *mut c_void, c_uint) -> c_int;
        record: "cuEventRecord" = fn(*mut c_void, Stream) -> c_int;
        wait_for: "cuEventSynchronize" = fn(*mut c_void) -> c_int;
        elapsed: "cuEventElapsedTime" = fn(*mut f32, *mut c_void, *mut c_void) -> c_int;
        destroy_event: "cuEventDestroy_v2" = fn(*mut c_void) -> c_int;
        load_module: "cuModuleLoadData" = fn(*mut Module, *const c_void) -> c_int;
        function: "cuModuleGetFunction" = fn(*mut *mut c_void, Module, *const c_char) -> c_int;
        constant: "cuModuleGetGlobal_v2" = fn(*mut u64, *mut usize, Module, *const c_char) -> c_int;
        set_function_attribute: "cuFuncSetAttribute" = fn(*mut c_void, c_int, c_int) -> c_int;
        launch: "cuLaunchKernel" = fn(
            *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void,
        ) -> c_int;
    }
}

pub(super) const MULTIPROCESSORS: c_int = 16;
pub(super) const CAPABILITY_MAJOR: c_int = 75;
pub(super) const CAPABILITY_MINOR: c_int = 76;
pub(super) const MAX_DYNAMIC_SHARED: c_int = 8;
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// Neither waits for, nor is waited for by, the legacy default stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;

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
