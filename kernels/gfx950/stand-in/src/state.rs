//! What the device holds: memory, modules, events, and what went wrong last.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gfx950_interpreter::memory::{Address, Memory};
use gfx950_interpreter::object::CodeObject;
use gfx950_interpreter::{Launch, Order, launch};

/// Statuses of HIP (`hipError_t`).
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const INVALID_CONFIGURATION: i32 = 9;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_IMAGE: i32 = 200;
pub(crate) const NO_BINARY_FOR_GPU: i32 = 209;
pub(crate) const INVALID_KERNEL_FILE: i32 = 218;
pub(crate) const INVALID_HANDLE: i32 = 400;
pub(crate) const NOT_FOUND: i32 = 500;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const LAUNCH_FAILURE: i32 = 719;

/// A status that is not success, and what happened.
pub(crate) struct Failure(pub(crate) i32, pub(crate) String);

pub(crate) fn failed<T>(status: i32, text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(status, text.into()))
}

struct Module {
    object: Arc<CodeObject>,
    constants: BTreeMap<String, (Address, usize)>,
}

/// A kernel of a module, by position.
struct Function {
    object: Arc<CodeObject>,
    kernel: usize,
}

#[derive(Default)]
pub(crate) struct State {
    memory: Memory,
    sizes: BTreeMap<u64, usize>,
    allocations: u64,
    modules: Vec<Option<Module>>,
    functions: Vec<Function>,
    /// Moments, while they are alive.
    events: Vec<Option<Option<Instant>>>,
    /// What happened when a status was given last; texts are kept for ever, because callers hold pointers to them.
    texts: BTreeMap<i32, &'static CString>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Does `work` on the device, remembers what went wrong, and gives the status.
pub(crate) fn with(work: impl FnOnce(&mut State) -> Result<(), Failure>) -> i32 {
    let mut guard: MutexGuard<'_, Option<State>> = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let state = guard.get_or_insert_default();
    match work(state) {
        Ok(()) => 0,
        Err(Failure(status, text)) => {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            state.texts.insert(status, Box::leak(Box::new(text)));
            status
        }
    }
}

/// Bytes of memory that the device says it has.
pub(crate) fn memory_size() -> usize {
    setting("GFX950_STAND_IN_MEMORY_MIB").and_then(|text| text.parse::<usize>().ok()).unwrap_or(2048) << 20
}

/// A variable of the environment.
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Adds a line to the trace, if one is wanted.
pub(crate) fn trace(line: &str) {
    let Some(path) = setting("GFX950_STAND_IN_TRACE") else { return };
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
        // A trace that cannot be written is one that a test will miss.
        let _ = writeln!(file, "{line}");
    }
}

fn order() -> Order {
    match setting("GFX950_STAND_IN_ORDER").as_deref() {
        Some("reversed") => Order::Reversed,
        Some("round-robin") => Order::RoundRobin,
        _ => Order::Serial,
    }
}

impl State {
    /// The text of a status, if it was given with one.
    pub(crate) fn text(&self, status: i32) -> Option<&'static CString> {
        self.texts.get(&status).copied()
    }

    pub(crate) fn used(&self) -> usize {
        self.sizes.values().sum()
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<u64, Failure> {
        let (used, all) = (self.used(), memory_size());
        if bytes > all - used.min(all) {
            return failed(OUT_OF_MEMORY, format!("{bytes} bytes are more than the {} that are free", all - used.min(all)));
        }
        self.allocations += 1;
        let address = self.memory.output(&format!("allocation {}", self.allocations), bytes).0;
        self.sizes.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), Failure> {
        if address != 0 && self.sizes.remove(&address).is_none() {
            return failed(INVALID_VALUE, format!("{address:#x} begins no allocation"));
        }
        self.memory.release(Address(address));
        Ok(())
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.memory.write(Address(address), bytes).map_err(|fault| Failure(INVALID_VALUE, fault.to_string()))
    }

    /// Bytes that may never have been written; those come as poison.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        self.memory.read(Address(address), bytes).map_err(|fault| Failure(INVALID_VALUE, fault.to_string()))
    }

    /// Bytes that a computation rests on: all of them must have been written.
    pub(crate) fn operand(&self, what: &str, address: u64, count: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; count];
        match self.memory.read_defined(Address(address), &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(fault) => failed(INVALID_VALUE, format!("{what}: {fault}")),
        }
    }

    pub(crate) fn load(&mut self, image: &[u8]) -> Result<usize, Failure> {
        let object = CodeObject::parse(image).map_err(|error| Failure(INVALID_KERNEL_FILE, error.to_string()))?;
        let constants = object.constants.iter().map(|constant| {
            let address = self.memory.updated(&constant.name, &constant.bytes);
            (constant.name.clone(), (address, constant.bytes.len()))
        });
        let constants = constants.collect();
        self.modules.push(Some(Module { object: Arc::new(object), constants }));
        Ok(self.modules.len())
    }

    fn module(&self, handle: usize) -> Result<&Module, Failure> {
        let module = handle.checked_sub(1).and_then(|index| self.modules.get(index)).and_then(Option::as_ref);
        module.ok_or_else(|| Failure(INVALID_HANDLE, format!("{handle} is no module")))
    }

    pub(crate) fn unload(&mut self, handle: usize) -> Result<(), Failure> {
        self.module(handle)?;
        if let Some(module) = self.modules.get_mut(handle - 1).and_then(Option::take) {
            for (address, _) in module.constants.into_values() {
                self.memory.release(address);
            }
        }
        Ok(())
    }

    pub(crate) fn function(&mut self, module: usize, name: &str) -> Result<usize, Failure> {
        let object = self.module(module)?.object.clone();
        let kernel = object.kernels.iter().position(|kernel| kernel.name == name);
        let Some(kernel) = kernel else {
            let known: Vec<&str> = object.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
            return failed(NOT_FOUND, format!("the module has no kernel {name}; it has: {}", known.join(", ")));
        };
        self.functions.push(Function { object, kernel });
        Ok(self.functions.len())
    }

    pub(crate) fn constant(&self, module: usize, name: &str) -> Result<(u64, usize), Failure> {
        let module = self.module(module)?;
        let found = module.constants.get(name).map(|(address, bytes)| (address.0, *bytes));
        found.ok_or_else(|| Failure(NOT_FOUND, format!("the module has no constant {name}")))
    }

    /// Runs a kernel. `value` gives the bytes of argument number `i`, which is `size` bytes long.
    pub(crate) fn launch(
        &mut self,
        function: usize,
        grid: [u32; 3],
        threads: u32,
        shared: u32,
        value: impl Fn(usize, usize) -> Result<Vec<u8>, Failure>,
    ) -> Result<(), Failure> {
        let found = function.checked_sub(1).and_then(|index| self.functions.get(index));
        let Some(found) = found else { return failed(INVALID_HANDLE, format!("{function} is no function")) };
        let (object, kernel) = (found.object.clone(), found.kernel);
        let kernel = &object.kernels[kernel];
        // HIP counts work items of a grid in 32 bits.
        if grid.iter().zip([threads, 1, 1]).any(|(&groups, threads)| u64::from(groups) * u64::from(threads) > u64::from(u32::MAX)) {
            return failed(INVALID_CONFIGURATION, format!("{grid:?} workgroups of {threads} are more than 2^32 work items"));
        }
        let mut arguments = Vec::new();
        let explicit = kernel.resources.arguments.iter().filter(|argument| !argument.kind.starts_with("hidden_"));
        for (index, argument) in explicit.enumerate() {
            let (offset, size) = (argument.offset as usize, argument.size as usize);
            arguments.resize(arguments.len().max(offset + size), 0);
            arguments[offset..offset + size].copy_from_slice(&value(index, size)?);
        }
        let request = Launch { kernel, grid, threads, dynamic_lds: shared, arguments: &arguments, order: order() };
        match launch(&mut self.memory, &request) {
            Ok(_) => {
                trace(&format!("kernel {} {grid:?} {threads}", kernel.name));
                Ok(())
            }
            Err(error) => failed(LAUNCH_FAILURE, error.to_string()),
        }
    }

    pub(crate) fn create_event(&mut self) -> usize {
        let free = self.events.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[index] = Some(None);
        index + 1
    }

    fn event(&mut self, handle: usize) -> Result<&mut Option<Instant>, Failure> {
        let event = handle.checked_sub(1).and_then(|index| self.events.get_mut(index)).and_then(Option::as_mut);
        event.ok_or_else(|| Failure(INVALID_HANDLE, format!("{handle} is no event")))
    }

    pub(crate) fn record(&mut self, handle: usize) -> Result<(), Failure> {
        *self.event(handle)? = Some(Instant::now());
        Ok(())
    }

    /// Seconds between two moments, of this process and not of a device.
    pub(crate) fn elapsed(&mut self, from: usize, to: usize) -> Result<f64, Failure> {
        match (*self.event(from)?, *self.event(to)?) {
            (Some(from), Some(to)) => Ok(to.saturating_duration_since(from).as_secs_f64()),
            _ => failed(INVALID_HANDLE, "an event that was not recorded"),
        }
    }

    pub(crate) fn destroy_event(&mut self, handle: usize) -> Result<(), Failure> {
        self.event(handle)?;
        self.events[handle - 1] = None;
        Ok(())
    }
}
