//! One device and one stream of it, over the functions that CUDA and HIP share: [`Driver`] for both. [`Vendor`] is where they differ.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::GpuError;
use super::calls::{Calls, Module, Stream};
use super::driver::{Address, Description, Driver, Event, Function, Grid, PackedProduct, Product};
use super::library::Shared;
use super::products::{BlockScales, Products, WORKSPACE};

/// Both libraries' number for it.
const OUT_OF_MEMORY: c_int = 2;

/// What one vendor's library does in its own way.
pub(super) trait Vendor: fmt::Debug {
    /// Whether pageable memory was copied aside when an upload returns, so that it may be reused at once.
    const COPIES_ASIDE: bool;

    /// How the library takes packed MXFP4, if it is asked for it.
    const PACKED: Option<&'static BlockScales> = None;

    /// The calling thread works with this device from here on.
    fn enter(&self, calls: &Calls) -> Result<(), GpuError>;

    /// Machine code of a file of kernels/device with these definitions.
    fn machine_code(&self, file: &'static str, defines: &[String]) -> Result<Vec<u8>, GpuError>;

    /// Why machine code was refused, where more can be said than the library says.
    fn refused(&self, _status: c_int, _description: &Description) -> Option<String> {
        None
    }

    /// Lets a kernel take so many bytes of dynamic shared memory.
    fn allow_shared(&self, _calls: &Calls, _function: *mut c_void, _bytes: u32) -> Result<(), GpuError> {
        Ok(())
    }

    /// Gives a module back, where it does not go with the device.
    fn unload(&self, _module: Module) {}

    /// Gives the device back, after its stream.
    fn release(&self) {}
}

/// Kernels in a module are loaded for one file and one list of definitions.
type ModuleKey = (&'static str, Vec<String>);

/// An open device.
#[derive(Debug)]
pub(super) struct Runtime<V: Vendor> {
    calls: Calls,
    vendor: V,
    stream: Stream,
    /// Products, or why there are none: who needs none does without the library.
    products: Result<Products, GpuError>,
    /// Of [`WORKSPACE`] bytes; 0 before it is allocated.
    workspace: Mutex<Address>,
    modules: Mutex<HashMap<ModuleKey, usize>>,
    description: Description,
    _library: Shared,
}

// SAFETY: both libraries may be used by any thread; every call enters the device first, modules and workspace are behind locks.
unsafe impl<V: Vendor> Send for Runtime<V> {}
// SAFETY: as above.
unsafe impl<V: Vendor> Sync for Runtime<V> {}

impl<V: Vendor> Runtime<V> {
    /// `stream` is one of the vendor's device, `library` has the functions.
    pub(super) fn new(
        calls: Calls,
        vendor: V,
        stream: Stream,
        products: Result<Products, GpuError>,
        description: Description,
        library: Shared,
    ) -> Self {
        let (workspace, modules) = (Mutex::new(0), Mutex::default());
        Self { calls, vendor, stream, products, workspace, modules, description, _library: library }
    }

    fn enter(&self) -> Result<(), GpuError> {
        self.vendor.enter(&self.calls)
    }

    /// A source file with these definitions, loaded once.
    fn module(&self, file: &'static str, defines: &[String]) -> Result<Module, GpuError> {
        self.enter()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (file, defines.to_vec());
        if let Some(&module) = modules.get(&key) {
            return Ok(module as Module);
        }
        let code = self.vendor.machine_code(file, defines)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a whole ELF file, which the library copies.
        let status = unsafe { (self.calls.load_module.function)(&raw mut module, code.as_ptr().cast()) };
        let call = format!("loading {file}");
        if let Some(reason) = self.vendor.refused(status, &self.description) {
            return Err(GpuError::Call { call, reason });
        }
        self.calls.check(status, &call)?;
        modules.insert(key, module as usize);
        Ok(module)
    }

    /// Memory for the algorithms of products, allocated once.
    pub(super) fn workspace(&self) -> Result<Address, GpuError> {
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        if *workspace == 0 {
            *workspace = self.allocate(WORKSPACE)?;
        }
        Ok(*workspace)
    }
}

impl<V: Vendor> Driver for Runtime<V> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written by the call.
        self.calls.make(self.calls.memory_info, |get| unsafe { get(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        self.enter()?;
        let (call, mut address) = (self.calls.allocate, 0);
        // SAFETY: `address` is written by the call.
        let status = unsafe { (call.function)(&raw mut address, bytes.max(1)) };
        if status == OUT_OF_MEMORY {
            let (free, total) = self.memory()?;
            return Err(GpuError::Memory { wanted_mib: bytes as u64 >> 20, free_mib: free >> 20, total_mib: total >> 20 });
        }
        self.calls.check(status, call.name)?;
        Ok(address)
    }

    fn free(&self, address: Address) {
        if self.enter().is_ok() {
            // SAFETY: the address came from `allocate`; the library waits for work that still uses it.
            unsafe { (self.calls.free.function)(address) };
        }
    }

    fn fill(&self, address: Address, byte: u8, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length (`super::Buffer`).
        self.calls.make(self.calls.fill, |fill| unsafe { fill(address, byte, bytes, self.stream) })
    }

    fn upload(&self, from: &[u8], to: Address) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length; `from` was copied when this returns.
        self.calls.make(self.calls.upload, |upload| unsafe { upload(to, from.as_ptr().cast(), from.len(), self.stream) })?;
        if V::COPIES_ASIDE { Ok(()) } else { self.synchronize() }
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length; the stream is waited for before `to` is looked at.
        self.calls.make(self.calls.download, |download| unsafe { download(to.as_mut_ptr().cast(), from, to.len(), self.stream) })?;
        self.synchronize()
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: buffers know their length.
        self.calls.make(self.calls.copy, |copy| unsafe { copy(to, from, bytes, self.stream) })
    }

    fn synchronize(&self) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        self.calls.make(self.calls.synchronize, |wait| unsafe { wait(self.stream) })
    }

    fn function(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Function, GpuError> {
        let module = self.module(file, defines)?;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module stays loaded as long as `self` lives.
        let status = unsafe { (self.calls.function.function)(&raw mut function, module, symbol.as_ptr()) };
        self.calls.check(status, &format!("{name} of {file}"))?;
        Ok(Function(function as u64))
    }

    fn constant(&self, file: &'static str, defines: &[String], name: &'static str) -> Result<Address, GpuError> {
        let module = self.module(file, defines)?;
        let symbol = CString::new(name).unwrap_or_default();
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module stays loaded as long as `self` lives.
        let status = unsafe { (self.calls.constant.function)(&raw mut address, &raw mut bytes, module, symbol.as_ptr()) };
        self.calls.check(status, &format!("{name} of {file}"))?;
        Ok(address)
    }

    unsafe fn launch(&self, function: Function, grid: Grid, arguments: &mut [*mut c_void]) -> Result<(), GpuError> {
        self.enter()?;
        if grid.groups.contains(&0) {
            return Ok(());
        }
        let (function, no_extras) = (function.0 as *mut c_void, std::ptr::null_mut());
        let [x, y, z] = grid.groups;
        self.vendor.allow_shared(&self.calls, function, grid.shared)?;
        // SAFETY: the caller vouches for the arguments.
        let status = unsafe {
            let launch = self.calls.launch.function;
            launch(function, x, y, z, grid.threads, 1, 1, grid.shared, self.stream, arguments.as_mut_ptr(), no_extras)
        };
        self.calls.check(status, &format!("a launch of {x} x {y} x {z} workgroups of {} threads", grid.threads))
    }

    unsafe fn multiply(&self, product: &Product) -> Result<(), GpuError> {
        self.enter()?;
        let products = self.products.as_ref().map_err(GpuError::clone)?;
        let workspace = self.workspace()?;
        // SAFETY: the caller vouches for the addresses.
        unsafe { products.multiply(product, workspace, self.stream) }
    }

    unsafe fn multiply_packed(&self, product: &PackedProduct) -> Result<(), GpuError> {
        let scales = V::PACKED.ok_or_else(|| self.description.no_packed_products())?;
        self.enter()?;
        let products = self.products.as_ref().map_err(GpuError::clone)?;
        let workspace = self.workspace()?;
        // SAFETY: the caller vouches for the addresses.
        unsafe { products.multiply_packed(product, scales, workspace, self.stream) }
    }

    fn stream(&self) -> Option<u64> {
        Some(self.stream as u64)
    }

    fn record(&self) -> Result<Event, GpuError> {
        self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is written by the call.
        self.calls.make(self.calls.create_event, |create| unsafe { create(&raw mut event, 0) })?;
        // SAFETY: the event was just made.
        self.calls.make(self.calls.record, |record| unsafe { record(event, self.stream) })?;
        Ok(Event(event as u64))
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<f64, GpuError> {
        self.enter()?;
        let (from, to) = (from.0 as *mut c_void, to.0 as *mut c_void);
        let (calls, mut milliseconds) = (&self.calls, 0.0);
        // SAFETY: both events come from `record`, and are not used again.
        let (waited, measured) = unsafe {
            let waited = (calls.wait_for.function)(to);
            let measured = (calls.elapsed.function)(&raw mut milliseconds, from, to);
            (calls.destroy_event.function)(from);
            (calls.destroy_event.function)(to);
            (waited, measured)
        };
        calls.check(waited, calls.wait_for.name)?;
        calls.check(measured, calls.elapsed.name)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl<V: Vendor> Drop for Runtime<V> {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        self.products = Err(GpuError::Unsupported("the driver is being closed".into()));
        let workspace = *self.workspace.get_mut().unwrap_or_else(PoisonError::into_inner);
        if workspace != 0 {
            // SAFETY: nothing uses the device any more.
            unsafe { (self.calls.free.function)(workspace) };
        }
        for &module in self.modules.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            self.vendor.unload(module as Module);
        }
        // SAFETY: as above.
        unsafe { (self.calls.destroy_stream.function)(self.stream) };
        self.vendor.release();
    }
}
