//! The HIP driver: libamdhip64 and hipBLASLt, found at run time, and kernels compiled by clang for gfx950 (MI350X, MI355X).
//!
//! What is here compiles for gfx950 and is functionally verified on a CPU model of the ISA (kernels/gfx950/stand-in takes the
//! libraries' place); it was not run on an MI355X. A device of another architecture is refused: there are no kernels for it.

mod api;
mod blas;
mod compile;

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::GpuError;
use super::driver::{Address, Description, Driver, Event, Function, Grid, PackedProduct, Product};
use super::library::Shared;
use super::products::{Products, WORKSPACE};
use api::Hip;

/// Kernels in a module are loaded for one file and one list of definitions.
type ModuleKey = (&'static str, Vec<String>);

/// One AMD GPU.
#[derive(Debug)]
pub struct HipDriver {
    api: Hip,
    device: c_int,
    stream: api::Stream,
    compiler: compile::Compiler,
    /// Products, or why there are none: who needs none does without the library.
    products: Result<Products, GpuError>,
    /// Allocated by the first product.
    workspace: Mutex<Address>,
    modules: Mutex<HashMap<ModuleKey, usize>>,
    description: Description,
    _library: Shared,
}

// SAFETY: the HIP runtime may be used by any thread; every call sets the device first, modules and workspace are behind locks.
unsafe impl Send for HipDriver {}
// SAFETY: as above.
unsafe impl Sync for HipDriver {}

const DRIVER_PACKAGE: &str = "ROCm 7 (apt-get install hip-runtime-amd, from AMD's repository)";

fn open_driver() -> Result<(Shared, Hip), GpuError> {
    let library = Shared::open(&["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"], DRIVER_PACKAGE)?;
    let api = Hip::load(&library)?;
    Ok((library, api))
}

fn check(api: &Hip, status: c_int, call: &str) -> Result<(), GpuError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the runtime returns a string that stays where it is.
    let reason = unsafe {
        let text = (api.error_text)(status);
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    Err(GpuError::Call { call: call.to_owned(), reason: format!("{reason} (HIP error {status})") })
}

/// Number of devices; none is no error here.
fn count_devices(api: &Hip) -> Result<usize, GpuError> {
    let mut count = 0;
    // SAFETY: the first call that the runtime wants, then one that writes `count`.
    let status = unsafe {
        match (api.init)(0) {
            0 => (api.device_count)(&raw mut count),
            status => status,
        }
    };
    if status == api::NO_DEVICE {
        return Ok(0);
    }
    check(api, status, "hipInit, hipGetDeviceCount")?;
    Ok(count as usize)
}

impl HipDriver {
    pub fn count() -> Result<usize, GpuError> {
        let (_library, api) = open_driver()?;
        count_devices(&api)
    }

    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// A missing library, compiler or device, named with what to do about it, or a GPU that is no gfx950.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        let (library, api) = open_driver()?;
        let count = count_devices(&api)?;
        if ordinal >= count {
            let advice = "; the amdgpu kernel driver must be loaded, and the user in the groups render and video (`rocminfo` shows both)";
            return Err(GpuError::NoDevice {
                wanted: format!("device hip:{ordinal}"),
                found: format!("{count} AMD GPUs, numbered from 0{}", if count == 0 { advice } else { "" }),
            });
        }
        let device = ordinal as c_int;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the device exists; the second call writes its first argument.
        unsafe {
            check(&api, (api.set_device)(device), "hipSetDevice")?;
            check(&api, (api.create_stream)(&raw mut stream, api::STREAM_NON_BLOCKING), "hipStreamCreateWithFlags")?;
        }
        let mut description = describe(&api, device, &library)?;
        let compiler = compile::Compiler::find()?;
        description.libraries.push(compiler.describe());
        let products = blas::open();
        if let Ok(products) = &products {
            description.libraries.push(("hipBLASLt".into(), products.version.clone()));
        }
        Ok(Self {
            api,
            device,
            stream,
            compiler,
            products,
            workspace: Mutex::new(0),
            modules: Mutex::default(),
            description,
            _library: library,
        })
    }

    fn check(&self, status: c_int, call: &str) -> Result<(), GpuError> {
        check(&self.api, status, call)
    }

    /// The calling thread works with this device from here on.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the device exists.
        self.check(unsafe { (self.api.set_device)(self.device) }, "hipSetDevice")
    }

    /// A source file with these definitions, loaded once.
    fn module(&self, file: &'static str, defines: &[String]) -> Result<api::Module, GpuError> {
        self.enter()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (file, defines.to_vec());
        if let Some(&module) = modules.get(&key) {
            return Ok(module as api::Module);
        }
        let code = self.compiler.code_object(file, defines)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a whole ELF file, which the runtime copies.
        let status = unsafe { (self.api.load_module)(&raw mut module, code.as_ptr().cast()) };
        if status == api::NO_BINARY_FOR_GPU {
            return Err(GpuError::Call { call: format!("loading {file}"), reason: self.no_binary() });
        }
        self.check(status, &format!("loading {file}"))?;
        modules.insert(key, module as usize);
        Ok(module)
    }

    /// Error 209 in words.
    fn no_binary(&self) -> String {
        let Description { name, architecture, .. } = &self.description;
        format!(
            "HIP error {}: the code object is not for this GPU. It was compiled for {} by {}; the runtime takes {name} for {architecture}. \
             Remove what is cached below $XDG_CACHE_HOME or ~/.cache in mxfp4-replication/kernels, and see that ROCm is 7.0 or later, \
             the first that knows {}",
            api::NO_BINARY_FOR_GPU,
            compile::ARCHITECTURE,
            self.compiler.version,
            compile::ARCHITECTURE,
        )
    }

    /// Memory for the algorithms of products.
    fn workspace(&self) -> Result<Address, GpuError> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if *workspace == 0 {
            *workspace = self.allocate(WORKSPACE)?;
        }
        Ok(*workspace)
    }
}

/// Name, size and architecture. On AMD GPUs the compute capability is the first two parts of the architecture: 9.5 is gfx950, the only
/// one of its family, so that no struct has to be read for it.
fn describe(api: &Hip, device: c_int, library: &Shared) -> Result<Description, GpuError> {
    let mut name = [0u8; 256];
    let (mut memory, mut version) = (0usize, 0);
    // SAFETY: each call writes what it is given room for.
    unsafe {
        check(api, (api.device_name)(name.as_mut_ptr().cast(), 256, device), "hipDeviceGetName")?;
        check(api, (api.device_memory)(&raw mut memory, device), "hipDeviceTotalMem")?;
        check(api, (api.runtime_version)(&raw mut version), "hipRuntimeGetVersion")?;
    }
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `value` is written by the call.
        check(api, unsafe { (api.device_attribute)(&raw mut value, attribute, device) }, "hipDeviceGetAttribute").map(|()| value)
    };
    let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    let (major, minor) = (attribute(api::CAPABILITY_MAJOR)?, attribute(api::CAPABILITY_MINOR)?);
    if (major, minor) != (9, 5) {
        return Err(GpuError::Unsupported(format!(
            "hip:{device} {name} has architecture {major}.{minor} (gfx{major}{minor}x); the kernels are for {} (9.5), which MI350X and MI355X have",
            compile::ARCHITECTURE
        )));
    }
    // SAFETY: only whether the symbol is there matters; it is not called.
    let interpreted = unsafe { library.function::<unsafe extern "C" fn()>(api::INTERPRETER_MARK) }.is_ok();
    let version = format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000);
    Ok(Description {
        kind: "hip",
        ordinal: device as usize,
        name,
        architecture: compile::ARCHITECTURE.to_owned(),
        memory: memory as u64,
        units: attribute(api::COMPUTE_UNITS)? as u32,
        libraries: vec![(if interpreted { "gfx950 interpreter in place of HIP" } else { "HIP" }.into(), version)],
        has_fp8: true,
        has_mxfp4: true,
        interpreted,
    })
}

impl Driver for HipDriver {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written by the call.
        self.check(unsafe { (self.api.memory_info)(&raw mut free, &raw mut total) }, "hipMemGetInfo")?;
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
        self.check(status, "hipMalloc")?;
        Ok(address)
    }

    fn free(&self, address: Address) {
        if self.enter().is_ok() {
            // SAFETY: the address came from `allocate`; the runtime waits for work that still uses it.
            unsafe { (self.api.free)(address) };
        }
    }

    fn fill(&self, address: Address, byte: u8, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length (`super::Buffer`).
        self.check(unsafe { (self.api.fill)(address, byte, bytes, self.stream) }, "hipMemsetD8Async")
    }

    fn upload(&self, from: &[u8], to: Address) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length.
        self.check(unsafe { (self.api.upload)(to, from.as_ptr().cast(), from.len(), self.stream) }, "hipMemcpyHtoDAsync")?;
        // Unlike CUDA, HIP does not promise that pageable memory was copied aside when the call returns, and `from` may be reused at once.
        self.synchronize()
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length; the stream is waited for before `to` is looked at.
        self.check(unsafe { (self.api.download)(to.as_mut_ptr().cast(), from, to.len(), self.stream) }, "hipMemcpyDtoHAsync")?;
        self.synchronize()
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length.
        self.check(unsafe { (self.api.copy)(to, from, bytes, self.stream) }, "hipMemcpyDtoDAsync")
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        self.check(unsafe { (self.api.synchronize)(self.stream) }, "hipStreamSynchronize")
    }

    fn function(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Function, GpuError> {
        let module = self.module(file, defines)?;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module stays loaded as long as `self` lives.
        let status = unsafe { (self.api.function)(&raw mut function, module, symbol.as_ptr()) };
        self.check(status, &format!("{name} of {file}"))?;
        Ok(Function(function as u64))
    }

    fn constant(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Address, GpuError> {
        let module = self.module(file, defines)?;
        let symbol = CString::new(name).unwrap_or_default();
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module stays loaded as long as `self` lives.
        let status = unsafe { (self.api.constant)(&raw mut address, &raw mut bytes, module, symbol.as_ptr()) };
        self.check(status, &format!("{name} of {file}"))?;
        Ok(address)
    }

    unsafe fn launch(&self, function: Function, grid: Grid, arguments: &mut [*mut c_void]) -> Result<(), GpuError> {
        self.enter()?;
        if grid.groups.contains(&0) {
            return Ok(());
        }
        let (function, no_extras) = (function.0 as *mut c_void, std::ptr::null_mut());
        let [x, y, z] = grid.groups;
        // SAFETY: the caller vouches for the arguments. LDS beyond 64 KiB needs no permission, unlike on CUDA.
        let status = unsafe {
            (self.api.launch)(function, x, y, z, grid.threads, 1, 1, grid.shared, self.stream, arguments.as_mut_ptr(), no_extras)
        };
        self.check(status, &format!("a launch of {x} x {y} x {z} workgroups of {} threads", grid.threads))
    }

    unsafe fn multiply(&self, product: &Product) -> Result<(), GpuError> {
        self.enter()?;
        let products = self.products.as_ref().map_err(GpuError::clone)?;
        let workspace = self.workspace()?;
        // SAFETY: the caller vouches for the addresses.
        unsafe { products.multiply(product, workspace, self.stream) }
    }

    unsafe fn multiply_packed(&self, product: &PackedProduct) -> Result<(), GpuError> {
        self.enter()?;
        let products = self.products.as_ref().map_err(GpuError::clone)?;
        let workspace = self.workspace()?;
        // SAFETY: the caller vouches for the addresses.
        unsafe { products.multiply_packed(product, &api::MXFP4, workspace, self.stream) }
    }

    fn record(&self) -> Result<Event, GpuError> {
        self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is written by the first call.
        unsafe {
            self.check((self.api.create_event)(&raw mut event, 0), "hipEventCreateWithFlags")?;
            self.check((self.api.record)(event, self.stream), "hipEventRecord")?;
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
        self.check(waited, "hipEventSynchronize")?;
        self.check(measured, "hipEventElapsedTime")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for HipDriver {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            self.products = Err(GpuError::Unsupported("the driver is being closed".into()));
            let workspace = *self.workspace.get_mut().unwrap_or_else(PoisonError::into_inner);
            let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: nothing uses the device any more.
            unsafe {
                if workspace != 0 {
                    (self.api.free)(workspace);
                }
                for &module in modules.values() {
                    (self.api.unload_module)(module as api::Module);
                }
                (self.api.destroy_stream)(self.stream);
            }
        }
    }
}
