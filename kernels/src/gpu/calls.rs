//! The functions that libcuda and libamdhip64 have in common, of the same types under two names.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;

use super::GpuError;
use super::library::Shared;

pub(super) type Stream = *mut c_void;
pub(super) type Module = *mut c_void;

/// Neither waits for, nor is waited for by, the null stream.
const STREAM_NON_BLOCKING: c_uint = 1;

/// A function and the name by which errors call it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<F> {
    pub(super) function: F,
    pub(super) name: &'static str,
}

impl<F: Copy> Call<F> {
    /// # Safety
    /// `F` is the function's true type.
    unsafe fn find(library: &Shared, symbol: &'static str) -> Result<Self, GpuError> {
        // SAFETY: the caller vouches for the type.
        let function = unsafe { library.function(symbol)? };
        Ok(Self { function, name: symbol.trim_end_matches("_v2") })
    }
}

/// What a status means, in the library's words.
pub(super) struct Reason(pub(super) Box<dyn Fn(c_int) -> String + Send + Sync>);

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reason")
    }
}

macro_rules! calls {
    ($($field:ident: $cuda:literal | $hip:literal = fn($($argument:ty),* $(,)?);)*) => {
        /// Statuses are 0 for success. Device addresses are 64 bits, `hipDeviceptr_t` (`void *`) too.
        #[derive(Debug)]
        pub(super) struct Calls {
            $(pub(super) $field: Call<unsafe extern "C" fn($($argument),*) -> c_int>,)*
            pub(super) reason: Reason,
        }

        impl Calls {
            pub(super) fn cuda(library: &Shared, reason: fn(&Shared) -> Result<Reason, GpuError>) -> Result<Self, GpuError> {
                // SAFETY: the types are those of NVIDIA's headers.
                unsafe { Ok(Self { $($field: Call::find(library, $cuda)?,)* reason: reason(library)? }) }
            }

            pub(super) fn hip(library: &Shared, reason: fn(&Shared) -> Result<Reason, GpuError>) -> Result<Self, GpuError> {
                // SAFETY: the types are those of AMD's headers.
                unsafe { Ok(Self { $($field: Call::find(library, $hip)?,)* reason: reason(library)? }) }
            }
        }
    };
}

calls! {
    init: "cuInit" | "hipInit" = fn(c_uint);
    version: "cuDriverGetVersion" | "hipRuntimeGetVersion" = fn(*mut c_int);
    device_count: "cuDeviceGetCount" | "hipGetDeviceCount" = fn(*mut c_int);
    device_name: "cuDeviceGetName" | "hipDeviceGetName" = fn(*mut c_char, c_int, c_int);
    device_attribute: "cuDeviceGetAttribute" | "hipDeviceGetAttribute" = fn(*mut c_int, c_int, c_int);
    device_memory: "cuDeviceTotalMem_v2" | "hipDeviceTotalMem" = fn(*mut usize, c_int);
    memory_info: "cuMemGetInfo_v2" | "hipMemGetInfo" = fn(*mut usize, *mut usize);
    allocate: "cuMemAlloc_v2" | "hipMalloc" = fn(*mut u64, usize);
    free: "cuMemFree_v2" | "hipFree" = fn(u64);
    fill: "cuMemsetD8Async" | "hipMemsetD8Async" = fn(u64, u8, usize, Stream);
    upload: "cuMemcpyHtoDAsync_v2" | "hipMemcpyHtoDAsync" = fn(u64, *const c_void, usize, Stream);
    download: "cuMemcpyDtoHAsync_v2" | "hipMemcpyDtoHAsync" = fn(*mut c_void, u64, usize, Stream);
    copy: "cuMemcpyDtoDAsync_v2" | "hipMemcpyDtoDAsync" = fn(u64, u64, usize, Stream);
    create_stream: "cuStreamCreate" | "hipStreamCreateWithFlags" = fn(*mut Stream, c_uint);
    destroy_stream: "cuStreamDestroy_v2" | "hipStreamDestroy" = fn(Stream);
    synchronize: "cuStreamSynchronize" | "hipStreamSynchronize" = fn(Stream);
    create_event: "cuEventCreate" | "hipEventCreateWithFlags" = fn(*mut *mut c_void, c_uint);
    record: "cuEventRecord" | "hipEventRecord" = fn(*mut c_void, Stream);
    wait_for: "cuEventSynchronize" | "hipEventSynchronize" = fn(*mut c_void);
    elapsed: "cuEventElapsedTime" | "hipEventElapsedTime" = fn(*mut f32, *mut c_void, *mut c_void);
    destroy_event: "cuEventDestroy_v2" | "hipEventDestroy" = fn(*mut c_void);
    load_module: "cuModuleLoadData" | "hipModuleLoadData" = fn(*mut Module, *const c_void);
    function: "cuModuleGetFunction" | "hipModuleGetFunction" = fn(*mut *mut c_void, Module, *const c_char);
    constant: "cuModuleGetGlobal_v2" | "hipModuleGetGlobal" = fn(*mut u64, *mut usize, Module, *const c_char);
    launch: "cuLaunchKernel" | "hipModuleLaunchKernel" = fn(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void,
    );
}

/// Numbers of the attributes that are asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) capability_major: c_int,
    pub(super) capability_minor: c_int,
    /// Multiprocessors or compute units.
    pub(super) units: c_int,
}

/// What a device says of itself.
#[derive(Debug, Clone)]
pub(super) struct Properties {
    pub(super) name: String,
    /// Bytes.
    pub(super) memory: u64,
    /// Of the driver or the runtime, as it codes it.
    pub(super) version: c_int,
    /// Compute capability, major and minor.
    pub(super) capability: (c_int, c_int),
    pub(super) units: u32,
}

impl Calls {
    pub(super) fn check(&self, status: c_int, call: &str) -> Result<(), GpuError> {
        if status == 0 { Ok(()) } else { Err(GpuError::Call { call: call.to_owned(), reason: (self.reason.0)(status) }) }
    }

    /// Makes a call and checks its status.
    pub(super) fn make<F: Copy>(&self, call: Call<F>, with: impl FnOnce(F) -> c_int) -> Result<(), GpuError> {
        self.check(with(call.function), call.name)
    }

    /// A stream of the device with which the calling thread works.
    pub(super) fn stream(&self) -> Result<Stream, GpuError> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: `stream` is written by the call.
        self.make(self.create_stream, |create| unsafe { create(&raw mut stream, STREAM_NON_BLOCKING) })?;
        Ok(stream)
    }

    pub(super) fn properties(&self, device: c_int, attributes: Attributes) -> Result<Properties, GpuError> {
        let mut name = [0u8; 256];
        let (mut memory, mut version) = (0usize, 0);
        // SAFETY: each call writes what it is given room for.
        self.make(self.device_name, |get| unsafe { get(name.as_mut_ptr().cast(), 256, device) })?;
        // SAFETY: as above.
        self.make(self.device_memory, |get| unsafe { get(&raw mut memory, device) })?;
        // SAFETY: as above.
        self.make(self.version, |get| unsafe { get(&raw mut version) })?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: as above.
            self.make(self.device_attribute, |get| unsafe { get(&raw mut value, attribute, device) }).map(|()| value)
        };
        let name = String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
        let capability = (attribute(attributes.capability_major)?, attribute(attributes.capability_minor)?);
        Ok(Properties { name, memory: memory as u64, version, capability, units: attribute(attributes.units)? as u32 })
    }
}
