//! CUDA: libcuda, NVRTC and cuBLASLt, found at run time.

mod api;
mod compile;

use std::ffi::{CStr, c_int, c_void};

use super::GpuError;
use super::calls::{Attributes, Calls, Reason};
use super::driver::Description;
use super::library::Shared;
use super::products::{Blas, Products};
use super::runtime::{Runtime, Vendor};
use api::Own;

/// One NVIDIA GPU.
#[derive(Debug)]
pub(super) struct Cuda {
    own: Own,
    device: c_int,
    context: api::Context,
    compiler: compile::Compiler,
}

const DRIVER_PACKAGE: &str = "NVIDIA's driver (libcuda.so.1)";
const NVRTC_PACKAGE: &str = "the CUDA toolkit 12 or 13, or the Python packages nvidia-cuda-nvrtc";
const BLAS_PACKAGE: &str = "the CUDA toolkit 12 or 13, or the Python package nvidia-cublas";

/// What a kernel may take without asking, bytes.
const DEFAULT_SHARED: u32 = 48 << 10;

fn open_driver() -> Result<(Shared, Calls, Own), GpuError> {
    let library = Shared::open(&["libcuda.so.1", "libcuda.so", "nvcuda.dll"], DRIVER_PACKAGE)?;
    let (calls, own) = (Calls::cuda(&library, reason)?, Own::load(&library)?);
    // SAFETY: the first call that the driver wants.
    calls.make(calls.init, |init| unsafe { init(0) })?;
    Ok((library, calls, own))
}

fn reason(library: &Shared) -> Result<Reason, GpuError> {
    // SAFETY: the type is that of NVIDIA's header.
    let ask: api::ErrorText = unsafe { library.function(api::ERROR_TEXT)? };
    Ok(Reason(Box::new(move |status| {
        let mut text = std::ptr::null();
        // SAFETY: the driver points `text` to a constant string, or leaves it null for a status that it does not know.
        unsafe {
            ask(status, &raw mut text);
            if text.is_null() { format!("status {status}") } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    })))
}

fn count_devices(calls: &Calls) -> Result<usize, GpuError> {
    let mut count = 0;
    // SAFETY: `count` is written by the call.
    calls.make(calls.device_count, |get| unsafe { get(&raw mut count) })?;
    Ok(count as usize)
}

pub(super) fn count() -> Result<usize, GpuError> {
    let (_library, calls, _) = open_driver()?;
    count_devices(&calls)
}

/// Opens GPU number `ordinal`.
pub(super) fn open(ordinal: usize) -> Result<Runtime<Cuda>, GpuError> {
    let (library, calls, own) = open_driver()?;
    let count = count_devices(&calls)?;
    if ordinal >= count {
        return Err(GpuError::NoDevice {
            wanted: format!("device cuda:{ordinal}"),
            found: format!("{count} NVIDIA GPUs, numbered from 0"),
        });
    }
    let (mut device, mut context) = (0, std::ptr::null_mut());
    // SAFETY: the first two calls write their first arguments.
    unsafe {
        calls.check((own.device)(&raw mut device, ordinal as c_int), "cuDeviceGet")?;
        calls.check((own.retain_context)(&raw mut context, device), "cuDevicePrimaryCtxRetain")?;
        calls.check((own.set_context)(context), "cuCtxSetCurrent")?;
    }
    let stream = calls.stream()?;
    let mut description = describe(&calls, device, ordinal)?;
    let compiler = open_compiler(&description.architecture)?;
    description.libraries.push(("NVRTC".into(), compiler.version.clone()));
    let products = open_products()?;
    description.libraries.push(("cuBLASLt".into(), products.version.clone()));
    let runtime = Runtime::new(calls, Cuda { own, device, context, compiler }, stream, Ok(products), description, library);
    // Now, so that what is free afterwards is what a run may take.
    runtime.workspace()?;
    Ok(runtime)
}

fn open_compiler(architecture: &str) -> Result<compile::Compiler, GpuError> {
    let nvrtc = Shared::open(&["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"], NVRTC_PACKAGE)?;
    // NVRTC looks for its builtins by name only; where it was found by path, they are opened here first.
    let builtins = nvrtc.name.rsplit_once('/').and_then(|(folder, _)| {
        let names: Vec<String> =
            std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path().to_string_lossy().into_owned()).collect();
        names.iter().filter(|name| name.contains("libnvrtc-builtins.so")).find_map(|name| Shared::open(&[name], NVRTC_PACKAGE).ok())
    });
    compile::Compiler::new(nvrtc, builtins, architecture)
}

fn open_products() -> Result<Products, GpuError> {
    let library = Shared::open(&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"], BLAS_PACKAGE)?;
    let table = Blas::cuda(&library)?;
    // SAFETY: the type is that of NVIDIA's header.
    let version: api::BlasVersion = unsafe { library.function(api::BLAS_VERSION)? };
    // SAFETY: no arguments.
    let number = unsafe { version() };
    let version = format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100);
    Products::new(table, &api::BLAS, library, |_| version)
}

const ATTRIBUTES: Attributes = Attributes { capability_major: 75, capability_minor: 76, units: 16 };

fn describe(calls: &Calls, device: c_int, ordinal: usize) -> Result<Description, GpuError> {
    let properties = calls.properties(device, ATTRIBUTES)?;
    let ((major, minor), version) = (properties.capability, properties.version);
    if major < 8 {
        return Err(GpuError::Unsupported(format!("GPU {ordinal} is sm_{major}{minor}; BF16 matrix units start with sm_80 (Ampere)")));
    }
    Ok(Description {
        kind: "cuda",
        ordinal,
        name: properties.name,
        // Instructions of sm_90 that no later architecture has are behind the suffix.
        architecture: if (major, minor) == (9, 0) { "sm_90a".into() } else { format!("sm_{major}{minor}") },
        memory: properties.memory,
        units: properties.units,
        libraries: vec![("CUDA driver".into(), format!("{}.{}", version / 1000, version % 1000 / 10))],
        has_fp8: (major, minor) >= (8, 9),
        // Blackwell multiplies MXFP4, but there are no kernels for it here.
        has_mxfp4: false,
        interpreted: false,
    })
}

impl Vendor for Cuda {
    const COPIES_ASIDE: bool = true;

    fn enter(&self, calls: &Calls) -> Result<(), GpuError> {
        // SAFETY: the context is retained as long as `self` lives.
        calls.check(unsafe { (self.own.set_context)(self.context) }, "cuCtxSetCurrent")
    }

    fn machine_code(&self, file: &'static str, defines: &[String]) -> Result<Vec<u8>, GpuError> {
        self.compiler.cubin(file, defines)
    }

    fn allow_shared(&self, calls: &Calls, function: *mut c_void, bytes: u32) -> Result<(), GpuError> {
        if bytes <= DEFAULT_SHARED {
            return Ok(());
        }
        // SAFETY: the function is one of a loaded module.
        let status = unsafe { (self.own.set_function_attribute)(function, api::MAX_DYNAMIC_SHARED, bytes as c_int) };
        calls.check(status, "cuFuncSetAttribute")
    }

    // Modules go with the context.
    fn release(&self) {
        // SAFETY: nothing uses the device any more.
        unsafe { (self.own.release_context)(self.device) };
    }
}
