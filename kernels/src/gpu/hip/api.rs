//! The functions of libamdhip64 and libhipblaslt that are used, and the constants that they take (from AMD's headers of ROCm 6 and 7).
//!
//! Attributes are asked for one by one. `hipDeviceProp_t` is not used: its layout and the symbol that fills it changed with ROCm 6.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::gpu::library::table;
use crate::gpu::products::{BlockScales, Dialect};

pub(super) type Stream = *mut c_void;
pub(super) type Module = *mut c_void;

table! {
    /// The HIP runtime. Device addresses are `hipDeviceptr_t`, which is `void *`.
    Hip {
        init: "hipInit" = fn(c_uint) -> c_int;
        runtime_version: "hipRuntimeGetVersion" = fn(*mut c_int) -> c_int;
        error_text: "hipGetErrorString" = fn(c_int) -> *const c_char;
        device_count: "hipGetDeviceCount" = fn(*mut c_int) -> c_int;
        set_device: "hipSetDevice" = fn(c_int) -> c_int;
        device_name: "hipDeviceGetName" = fn(*mut c_char, c_int, c_int) -> c_int;
        device_attribute: "hipDeviceGetAttribute" = fn(*mut c_int, c_int, c_int) -> c_int;
        device_memory: "hipDeviceTotalMem" = fn(*mut usize, c_int) -> c_int;
        memory_info: "hipMemGetInfo" = fn(*mut usize, *mut usize) -> c_int;
        allocate: "hipMalloc" = fn(*mut u64, usize) -> c_int;
        free: "hipFree" = fn(u64) -> c_int;
        fill: "hipMemsetD8Async" = fn(u64, u8, usize, Stream) -> c_int;
        upload: "hipMemcpyHtoDAsync" = fn(u64, *const c_void, usize, Stream) -> c_int;
        download: "hipMemcpyDtoHAsync" = fn(*mut c_void, u64, usize, Stream) -> c_int;
        copy: "hipMemcpyDtoDAsync" = fn(u64, u64, usize, Stream) -> c_int;
        create_stream: "hipStreamCreateWithFlags" = fn(*mut Stream, c_uint) -> c_int;
        destroy_stream: "hipStreamDestroy" = fn(Stream) -> c_int;
        synchronize: "hipStreamSynchronize" = fn(Stream) -> c_int;
        create_event: "hipEventCreateWithFlags" = fn(*mut *mut c_void, c_uint) -> c_int;
        record: "hipEventRecord" = fn(*mut c_void, Stream) -> c_int;
        wait_for: "hipEventSynchronize" = fn(*mut c_void) -> c_int;
        elapsed: "hipEventElapsedTime" = fn(*mut f32, *mut c_void, *mut c_void) -> c_int;
        destroy_event: "hipEventDestroy" = fn(*mut c_void) -> c_int;
        load_module: "hipModuleLoadData" = fn(*mut Module, *const c_void) -> c_int;
        unload_module: "hipModuleUnload" = fn(Module) -> c_int;
        function: "hipModuleGetFunction" = fn(*mut *mut c_void, Module, *const c_char) -> c_int;
        constant: "hipModuleGetGlobal" = fn(*mut u64, *mut usize, Module, *const c_char) -> c_int;
        launch: "hipModuleLaunchKernel" = fn(
            *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void,
        ) -> c_int;
    }
}

/// Of `hipDeviceAttribute_t`.
pub(super) const CAPABILITY_MAJOR: c_int = 23;
pub(super) const CAPABILITY_MINOR: c_int = 61;
pub(super) const COMPUTE_UNITS: c_int = 63;

/// Of `hipError_t`.
pub(super) const OUT_OF_MEMORY: c_int = 2;
pub(super) const NO_DEVICE: c_int = 100;
pub(super) const NO_BINARY_FOR_GPU: c_int = 209;

/// Neither waits for, nor is waited for by, the null stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;

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
