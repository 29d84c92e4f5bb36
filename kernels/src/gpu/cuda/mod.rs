//! The CUDA driver: libcuda, NVRTC and cuBLASLt, found at run time.

mod api;
mod compile;

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::GpuError;
use super::driver::{Address, Description, Driver, Event, Function, Grid, Product};
use super::library::Shared;
use super::products::{Blas, Products, WORKSPACE};
use api::Cuda;

/// Kernels in a module are loaded for one file and one list of definitions.
type ModuleKey = (&'static str, Vec<String>);

/// One NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDriver {
    api: Cuda,
    device: c_int,
    context: api::Context,
    stream: api::Stream,
    compiler: compile::Compiler,
    products: Option<Products>,
    workspace: Address,
    modules: Mutex<HashMap<ModuleKey, usize>>,
    description: Description,
    _library: Shared,
}

// SAFETY: the CUDA driver may be used by any thread; every call sets the context first, modules are behind a lock.
unsafe impl Send for CudaDriver {}
// SAFETY: as above.
unsafe impl Sync for CudaDriver {}

const DRIVER_PACKAGE: &str = "NVIDIA's driver (libcuda.so.1)";
const NVRTC_PACKAGE: &str = "the CUDA toolkit 12 or 13, or the Python packages nvidia-cuda-nvrtc";
const BLAS_PACKAGE: &str = "the CUDA toolkit 12 or 13, or the Python package nvidia-cublas";

fn open_driver() -> Result<(Shared, Cuda), GpuError> {
    let library = Shared::open(&["libcuda.so.1", "libcuda.so", "nvcuda.dll"], DRIVER_PACKAGE)?;
    let api = Cuda::load(&library)?;
    // SAFETY: the first call that the driver wants.
    check(&api, unsafe { (api.init)(0) }, "cuInit")?;
    Ok((library, api))
}

fn check(api: &Cuda, status: c_int, call: &str) -> Result<(), GpuError> {
    if status == 0 {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver points `text` to a constant string, or leaves it null for a status that it does not know.
    let reason = unsafe {
        (api.error_text)(status, &raw mut text);
        if text.is_null() { format!("status {status}") } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    Err(GpuError::Call { call: call.to_owned(), reason })
}

impl CudaDriver {
    pub fn count() -> Result<usize, GpuError> {
        let (_library, api) = open_driver()?;
        let mut count = 0;
        // SAFETY: `count` is written by the call.
        check(&api, unsafe { (api.device_count)(&raw mut count) }, "cuDeviceGetCount")?;
        Ok(count as usize)
    }

    /// Opens GPU number `ordinal`.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        let (library, api) = open_driver()?;
        let mut count = 0;
        // SAFETY: `count` is written by the call.
        check(&api, unsafe { (api.device_count)(&raw mut count) }, "cuDeviceGetCount")?;
        if ordinal >= count as usize {
            return Err(GpuError::NoDevice {
                wanted: format!("device cuda:{ordinal}"),
                found: format!("{count} NVIDIA GPUs, numbered from 0"),
            });
        }
        let (mut device, mut context, mut stream) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: each call writes its first argument.
        unsafe {
            check(&api, (api.device)(&raw mut device, ordinal as c_int), "cuDeviceGet")?;
            check(&api, (api.retain_context)(&raw mut context, device), "cuDevicePrimaryCtxRetain")?;
            check(&api, (api.set_context)(context), "cuCtxSetCurrent")?;
            check(&api, (api.create_stream)(&raw mut stream, api::STREAM_NON_BLOCKING), "cuStreamCreate")?;
        }
        let mut description = describe(&api, device, ordinal)?;
        let nvrtc = Shared::open(&["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"], NVRTC_PACKAGE)?;
        // NVRTC looks for its builtins by name only; where it was found by path, they are opened here first.
        let builtins = nvrtc.name.rsplit_once('/').and_then(|(folder, _)| {
            let names: Vec<String> =
                std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path().to_string_lossy().into_owned()).collect();
            names.iter().filter(|name| name.contains("libnvrtc-builtins.so")).find_map(|name| Shared::open(&[name], NVRTC_PACKAGE).ok())
        });
        let compiler = compile::Compiler::new(nvrtc, builtins, &description.architecture)?;
        description.libraries.push(("NVRTC".into(), compiler.version.clone()));
        let blas = Shared::open(&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"], BLAS_PACKAGE)?;
        let products = open_products(blas)?;
        description.libraries.push(("cuBLASLt".into(), products.version.clone()));
        let mut driver = Self {
            api,
            device,
            context,
            stream,
            compiler,
            products: Some(products),
            workspace: 0,
            modules: Mutex::default(),
            description,
            _library: library,
        };
        driver.workspace = driver.allocate(WORKSPACE)?;
        Ok(driver)
    }

    fn check(&self, status: c_int, call: &str) -> Result<(), GpuError> {
        check(&self.api, status, call)
    }

    /// A source file with these definitions, loaded once.
    fn module(&self, file: &'static str, defines: &[String]) -> Result<api::Module, GpuError> {
        self.enter()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (file, defines.to_vec());
        if let Some(&module) = modules.get(&key) {
            return Ok(module as api::Module);
        }
        let cubin = self.compiler.cubin(file, defines)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a whole ELF file, which the driver copies.
        self.check(unsafe { (self.api.load_module)(&raw mut module, cubin.as_ptr().cast()) }, &format!("loading {file}"))?;
        modules.insert(key, module as usize);
        Ok(module)
    }

    /// The calling thread works with this device from here on.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained as long as `self` lives.
        self.check(unsafe { (self.api.set_context)(self.context) }, "cuCtxSetCurrent")
    }
}

fn open_products(library: Shared) -> Result<Products, GpuError> {
    let table = Blas::cuda(&library)?;
    // SAFETY: the type is that of NVIDIA's header.
    let version: api::BlasVersion = unsafe { library.function(api::BLAS_VERSION)? };
    // SAFETY: no arguments.
    let number = unsafe { version() };
    let version = format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100);
    Products::new(table, &api::BLAS, library, |_| version)
}

fn describe(api: &Cuda, device: c_int, ordinal: usize) -> Result<Description, GpuError> {
    let mut name = [0i8; 128];
    let (mut memory, mut version) = (0usize, 0);
    // SAFETY: each call writes what it is given room for.
    unsafe {
        check(api, (api.device_name)(name.as_mut_ptr().cast(), 128, device), "cuDeviceGetName")?;
        check(api, (api.device_memory)(&raw mut memory, device), "cuDeviceTotalMem")?;
        check(api, (api.driver_version)(&raw mut version), "cuDriverGetVersion")?;
    }
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `value` is written by the call.
        check(api, unsafe { (api.device_attribute)(&raw mut value, attribute, device) }, "cuDeviceGetAttribute").map(|()| value)
    };
    let (major, minor) = (attribute(api::CAPABILITY_MAJOR)?, attribute(api::CAPABILITY_MINOR)?);
    if major < 8 {
        return Err(GpuError::Unsupported(format!("GPU {ordinal} is sm_{major}{minor}; BF16 matrix units start with sm_80 (Ampere)")));
    }
    let name = name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8 as char).collect();
    Ok(Description {
        kind: "cuda",
        ordinal,
        name,
        // Instructions of sm_90 that no later architecture has are behind the suffix.
        architecture: if (major, minor) == (9, 0) { "sm_90a".into() } else { format!("sm_{major}{minor}") },
        memory: memory as u64,
        units: attribute(api::MULTIPROCESSORS)? as u32,
        libraries: vec![("CUDA driver".into(), format!("{}.{}", version / 1000, version % 1000 / 10))],
        has_fp8: (major, minor) >= (8, 9),
        // Blackwell multiplies MXFP4, but there are no kernels for it here.
        has_mxfp4: false,
        interpreted: false,
    })
}

impl Driver for CudaDriver {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written by the call.
        self.check(unsafe { (self.api.memory_info)(&raw mut free, &raw mut total) }, "cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is written by the call.
        let status = unsafe { (self.api.allocate)(&raw mut address, bytes.max(1)) };
        if status == api::OUT_OF_MEMORY {
            let (free, total) = self.memory()?;
            return Err(GpuError::Memory { wanted_mib: bytes as u64 >> 20, free_mib: free >> 20, total_mib: total >> 20 });
        }
        self.check(status, "cuMemAlloc")?;
        Ok(address)
    }

    fn free(&self, address: Address) {
        if self.enter().is_ok() {
            // SAFETY: the address came from `allocate`; the driver waits for work that still uses it.
            unsafe { (self.api.free)(address) };
        }
    }

    fn fill(&self, address: Address, byte: u8, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length (`super::Buffer`).
        self.check(unsafe { (self.api.fill)(address, byte, bytes, self.stream) }, "cuMemsetD8Async")
    }

    fn upload(&self, from: &[u8], to: Address) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length; pageable memory is copied aside before the call returns.
        self.check(unsafe { (self.api.upload)(to, from.as_ptr().cast(), from.len(), self.stream) }, "cuMemcpyHtoDAsync")
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length; the stream is waited for before `to` is looked at.
        self.check(unsafe { (self.api.download)(to.as_mut_ptr().cast(), from, to.len(), self.stream) }, "cuMemcpyDtoHAsync")?;
        self.synchronize()
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length.
        self.check(unsafe { (self.api.copy)(to, from, bytes, self.stream) }, "cuMemcpyDtoDAsync")
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        self.check(unsafe { (self.api.synchronize)(self.stream) }, "cuStreamSynchronize")
    }

    fn function(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Function, GpuError> {
        let module = self.module(file, defines)?;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module stays loaded as long as the context.
        let status = unsafe { (self.api.function)(&raw mut function, module, symbol.as_ptr()) };
        self.check(status, &format!("{name} of {file}"))?;
        Ok(Function(function as u64))
    }

    fn constant(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Address, GpuError> {
        let module = self.module(file, defines)?;
        let symbol = CString::new(name).unwrap_or_default();
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module stays loaded as long as the context.
        let status = unsafe { (self.api.constant)(&raw mut address, &raw mut bytes, module, symbol.as_ptr()) };
        self.check(status, &format!("{name} of {file}"))?;
        Ok(address)
    }

    unsafe fn launch(&self, function: Function, grid: Grid, arguments: &mut [*mut c_void]) -> Result<(), GpuError> {
        self.enter()?;
        if grid.groups.contains(&0) {
            return Ok(());
        }
        let function = function.0 as *mut c_void;
        let [x, y, z] = grid.groups;
        // SAFETY: the caller vouches for the arguments; more shared memory than the default has to be asked for.
        let status = unsafe {
            if grid.shared > 48 << 10 {
                let status = (self.api.set_function_attribute)(function, api::MAX_DYNAMIC_SHARED, grid.shared as c_int);
                self.check(status, "cuFuncSetAttribute")?;
            }
            let no_extras = std::ptr::null_mut();
            (self.api.launch)(function, x, y, z, grid.threads, 1, 1, grid.shared, self.stream, arguments.as_mut_ptr(), no_extras)
        };
        self.check(status, &format!("a launch of {x} x {y} x {z} workgroups of {} threads", grid.threads))
    }

    unsafe fn multiply(&self, product: &Product) -> Result<(), GpuError> {
        self.enter()?;
        match &self.products {
            // SAFETY: the caller vouches for the addresses.
            Some(products) => unsafe { products.multiply(product, self.workspace, self.stream) },
            None => Err(GpuError::Unsupported("the driver is being closed".into())),
        }
    }

    fn record(&self) -> Result<Event, GpuError> {
        self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is written by the first call.
        unsafe {
            self.check((self.api.create_event)(&raw mut event, 0), "cuEventCreate")?;
            self.check((self.api.record)(event, self.stream), "cuEventRecord")?;
        }
        Ok(Event(event as u64))
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<f64, GpuError> {
        self.enter()?;
        let (from, to) = (from.0 as *mut c_void, to.0 as *mut c_void);
        let mut milliseconds = 0.0;
        // SAFETY: both events come from `record`, and are not used again.
        let (waited, measured) = unsafe {
            let waited = (self.api.wait_for)(to);
            let measured = (self.api.elapsed)(&raw mut milliseconds, from, to);
            (self.api.destroy_event)(from);
            (self.api.destroy_event)(to);
            (waited, measured)
        };
        self.check(waited, "cuEventSynchronize")?;
        self.check(measured, "cuEventElapsedTime")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            self.products = None;
            // SAFETY: nothing uses the device any more; modules go with the context.
            unsafe {
                if self.workspace != 0 {
                    (self.api.free)(self.workspace);
                }
                (self.api.destroy_stream)(self.stream);
                (self.api.release_context)(self.device);
            }
        }
    }
}
