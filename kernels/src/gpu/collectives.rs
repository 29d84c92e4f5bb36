//! NCCL and RCCL, found at run time: GPUs of several processes send each other memory. RCCL has NCCL's functions under NCCL's names, so that
//! one table serves both.
//!
//! Nothing here adds. What is sent arrives as it is, so that neither the library's choice of an algorithm nor the wiring changes a bit.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::calls::{Calls, Reason, Stream};
use super::driver::Event;
use super::library::{Shared, table};
use super::{Buffer, Gpu, GpuError, Kind};

/// Bytes of what rank 0 makes and every rank gives back.
const ID: usize = 128;

/// `ncclUniqueId`, which goes by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId([u8; ID]);

/// `ncclComm_t`.
type Handle = *mut c_void;

/// `ncclUint8`: to the library everything is bytes.
const BYTES: c_int = 1;
/// `ncclInProgress`: what was asked for goes on in the background.
const IN_PROGRESS: c_int = 7;
/// `CUDA_ERROR_NOT_READY` and `hipErrorNotReady`.
const NOT_READY: c_int = 600;

/// `CU_EVENT_DISABLE_TIMING` and `hipEventDisableTiming`.
const WITHOUT_TIMES: c_uint = 2;

/// The oldest version that is used: those before count otherwise, and know none of today's GPUs.
const OLDEST: [c_int; 3] = [2, 10, 0];

table! {
    /// Statuses are 0 for success.
    Functions {
        unique_id: "ncclGetUniqueId" = fn(*mut UniqueId) -> c_int;
        connect: "ncclCommInitRank" = fn(*mut Handle, c_int, UniqueId, c_int) -> c_int;
        error_text: "ncclGetErrorString" = fn(c_int) -> *const c_char;
        async_error: "ncclCommGetAsyncError" = fn(Handle, *mut c_int) -> c_int;
        abort: "ncclCommAbort" = fn(Handle) -> c_int;
        destroy: "ncclCommDestroy" = fn(Handle) -> c_int;
        group_start: "ncclGroupStart" = fn() -> c_int;
        group_end: "ncclGroupEnd" = fn() -> c_int;
        send: "ncclSend" = fn(u64, usize, c_int, c_int, Handle, Stream) -> c_int;
        receive: "ncclRecv" = fn(u64, usize, c_int, c_int, Handle, Stream) -> c_int;
    }
}

table! {
    /// Of the driver, what nothing else here asks it for.
    Asked [cuda = "cu", hip = "hip"] {
        device: "DeviceGet" = fn(*mut c_int, c_int) -> c_int;
        bus: "DeviceGetPCIBusId" = fn(*mut c_char, c_int, c_int) -> c_int;
        uuid: "DeviceGetUuid" = fn(*mut [u8; 16], c_int) -> c_int;
        query: "StreamQuery" = fn(Stream) -> c_int;
        wait: "StreamWaitEvent" = fn(Stream, *mut c_void, c_uint) -> c_int;
    }
}

/// What the two makers' libraries are called.
struct Maker {
    kind: Kind,
    name: &'static str,
    files: [&'static str; 2],
    package: &'static str,
    driver: &'static str,
}

const MAKERS: [Maker; 2] = [
    Maker {
        kind: Kind::Cuda,
        name: "NCCL",
        files: ["libnccl.so.2", "libnccl.so"],
        package: "NVIDIA's package libnccl2 or the Python package nvidia-nccl-cu13 (NCCL 2.10 or later; --nccl names the file, --exchange host does without it)",
        driver: "libcuda.so.1",
    },
    Maker {
        kind: Kind::Hip,
        name: "RCCL",
        files: ["librccl.so.1", "librccl.so"],
        package: "ROCm's package rccl (RCCL 2.10 or later; --nccl names the file, --exchange host does without it)",
        driver: "libamdhip64.so.7",
    },
];

impl Maker {
    fn of(kind: Kind) -> &'static Self {
        MAKERS.iter().find(|maker| maker.kind == kind).unwrap_or(&MAKERS[0])
    }

    /// The driver once more, for what `super::runtime` has no use for.
    fn driver(&self) -> Result<(Shared, Calls, Asked), GpuError> {
        let library = match self.kind {
            Kind::Cuda => Shared::open(&[self.driver, "libcuda.so"], "NVIDIA's driver")?,
            Kind::Hip => Shared::open(&[self.driver, "libamdhip64.so.6", "libamdhip64.so"], "ROCm 7")?,
        };
        let reason = |_: &Shared| Ok(Reason(Box::new(|status| format!("error {status}"))));
        let (calls, asked) = match self.kind {
            Kind::Cuda => (Calls::cuda(&library, reason)?, Asked::cuda(&library)?),
            Kind::Hip => (Calls::hip(&library, reason)?, Asked::hip(&library)?),
        };
        Ok((library, calls, asked))
    }
}

fn kind_of(gpu: &Gpu) -> Kind {
    if gpu.description().kind == Kind::Hip.word() { Kind::Hip } else { Kind::Cuda }
}

/// A name that no other GPU has, here or elsewhere: place on its bus, and its maker's number.
///
/// # Errors
/// The driver's.
pub fn serial(gpu: &Gpu) -> Result<String, GpuError> {
    let (_library, calls, asked) = Maker::of(kind_of(gpu)).driver()?;
    let (mut device, mut bus, mut uuid) = (0, [0u8; 32], [0u8; 16]);
    // SAFETY: each call writes what it is given room for.
    unsafe {
        calls.check((asked.device)(&raw mut device, gpu.description().ordinal as c_int), "asking for a GPU")?;
        calls.check((asked.bus)(bus.as_mut_ptr().cast(), bus.len() as c_int, device), "asking for a GPU's place on its bus")?;
        calls.check((asked.uuid)(&raw mut uuid, device), "asking for a GPU's number")?;
    }
    let bus = String::from_utf8_lossy(bus.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
    Ok(format!("{bus} {:032x}", u128::from_be_bytes(uuid)))
}

/// NCCL or RCCL, open.
#[derive(Debug)]
pub struct Collectives {
    functions: Functions,
    kind: Kind,
    version: [c_int; 3],
    _library: Shared,
}

impl Collectives {
    /// The library of a maker: the file at `path`, or the first that the loader finds.
    ///
    /// # Errors
    /// A library that is not there, is none, or is too old, with what to do.
    pub fn open(kind: Kind, path: Option<&Path>) -> Result<Self, GpuError> {
        let maker = Maker::of(kind);
        let library = match path.map(|path| path.to_string_lossy()) {
            Some(path) => Shared::open(&[&path], maker.package)?,
            None => Shared::open(&maker.files, maker.package)?,
        };
        // SAFETY: the type is that of NVIDIA's header.
        let ask: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { library.function("ncclGetVersion")? };
        let mut number = 0;
        // SAFETY: the version is written by the call.
        let status = unsafe { ask(&raw mut number) };
        let version = version_of(number);
        if status != 0 || version < OLDEST {
            return Err(GpuError::Unsupported(format!(
                "{} is {} {}; the oldest that is used is {}. A newer one comes with {}",
                library.name,
                maker.name,
                dotted(version),
                dotted(OLDEST),
                maker.package
            )));
        }
        Ok(Self { functions: Functions::load(&library)?, kind, version, _library: library })
    }

    /// Name and version.
    pub fn describe(&self) -> String {
        format!("{} {}", Maker::of(self.kind).name, dotted(self.version))
    }

    /// What all ranks have to give to [`Communicator::connect`]; one of them makes it.
    ///
    /// # Errors
    /// The library's.
    pub fn unique_id(&self) -> Result<Vec<u8>, GpuError> {
        let mut id = UniqueId([0; ID]);
        // SAFETY: the id is written by the call.
        self.check(unsafe { (self.functions.unique_id)(&raw mut id) }, "making an id for the ranks")?;
        Ok(id.0.to_vec())
    }

    fn check(&self, status: c_int, call: &str) -> Result<(), GpuError> {
        let Err(status) = tell(status) else { return Ok(()) };
        // SAFETY: the library returns a constant string.
        let text = unsafe {
            let text = (self.functions.error_text)(status);
            if text.is_null() { "no reason".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        let reason = format!("{text} (error {status} of {}; NCCL_DEBUG=WARN makes it say more)", self.describe());
        Err(GpuError::Call { call: call.to_owned(), reason })
    }
}

/// Since 2.9 a version is ten thousands, hundreds and ones; before it was thousands.
fn version_of(number: c_int) -> [c_int; 3] {
    if number < 10_000 { [number / 1000, number / 100 % 10, number % 100] } else { [number / 10_000, number / 100 % 100, number % 100] }
}

fn dotted([major, minor, patch]: [c_int; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

/// What was queued on a [`Side`] at some time; [`Side::lead`] takes it.
#[derive(Debug)]
pub struct Mark(usize);

/// A stream beside the one on which a GPU computes, and what is sent on it.
pub struct Side {
    pub(super) stream: Stream,
    pub(super) calls: Calls,
    asked: Asked,
    pub(super) gpu: Gpu,
    driver: Shared,
}

// SAFETY: both libraries may be used by any thread; whoever queues here has entered the device first.
unsafe impl Send for Side {}
// SAFETY: as above.
unsafe impl Sync for Side {}

impl Side {
    fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let (driver, calls, asked) = Maker::of(kind_of(gpu)).driver()?;
        // The calling thread works with the GPU from here on.
        gpu.driver().synchronize()?;
        Ok(Self { stream: calls.stream()?, calls, asked, gpu: gpu.clone(), driver })
    }

    /// What is queued here from now on comes after everything that the GPU was told to compute.
    pub(super) fn follow(&self) -> Result<(), GpuError> {
        let Event(event) = self.gpu.driver().record()?;
        self.wait(self.stream, event as *mut c_void)
    }

    /// Lets a stream wait for an event, which is gone afterwards.
    fn wait(&self, stream: Stream, event: *mut c_void) -> Result<(), GpuError> {
        // SAFETY: stream and event are the library's own; an event that is waited for lives until then.
        let (waits, destroyed) = unsafe { ((self.asked.wait)(stream, event, 0), (self.calls.destroy_event.function)(event)) };
        self.calls.check(waits, "letting a stream wait")?;
        self.calls.check(destroyed, self.calls.destroy_event.name)
    }

    /// Everything that was queued here so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn mark(&self) -> Result<Mark, GpuError> {
        let mut done = std::ptr::null_mut();
        // SAFETY: `done` is written by the call.
        self.calls.make(self.calls.create_event, |create| unsafe { create(&raw mut done, WITHOUT_TIMES) })?;
        // SAFETY: the event was just made.
        self.calls.make(self.calls.record, |record| unsafe { record(done, self.stream) })?;
        Ok(Mark(done as usize))
    }

    /// What the GPU is told to compute from now on comes after all that was marked. Between the two events it waits for that.
    ///
    /// # Errors
    /// The driver's.
    pub fn lead(&self, Mark(done): Mark) -> Result<(Event, Event), GpuError> {
        let driver = self.gpu.driver();
        let Some(main) = driver.stream() else { return Err(GpuError::Unsupported("ranks on a GPU that is none".into())) };
        let before = driver.record()?;
        self.wait(main as Stream, done as *mut c_void)?;
        Ok((before, driver.record()?))
    }

    /// Whether everything that was queued has been done.
    fn is_done(&self) -> Result<bool, GpuError> {
        // SAFETY: the stream lives as long as `self`.
        match unsafe { (self.asked.query)(self.stream) } {
            NOT_READY => Ok(false),
            status => self.calls.check(status, "an exchange between ranks").map(|()| true),
        }
    }

    /// The driver's library.
    pub(super) fn library(&self) -> &Shared {
        &self.driver
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Side")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // SAFETY: nothing uses the stream any more.
        unsafe { (self.calls.destroy_stream.function)(self.stream) };
    }
}

/// This process's GPU among those of other processes.
pub struct Communicator {
    /// None after an abort.
    handle: Mutex<Option<usize>>,
    side: Arc<Side>,
    library: Arc<Collectives>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator of {}", self.library.describe())
    }
}

impl Communicator {
    /// Meets the GPUs of `size` ranks, of which each calls this with the same id. It waits for all of them.
    ///
    /// # Errors
    /// The library's.
    pub fn connect(library: Arc<Collectives>, gpu: &Gpu, id: &[u8], rank: usize, size: usize) -> Result<Self, GpuError> {
        let Ok(id) = id.try_into().map(UniqueId) else {
            let problem = format!("an id of {} bytes, {ID} are needed", id.len());
            return Err(GpuError::Shape { kernel: "ranks", problem });
        };
        let side = Side::new(gpu)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written by the call.
        let status = unsafe { (library.functions.connect)(&raw mut handle, size as c_int, id, rank as c_int) };
        library.check(status, "connecting the ranks' GPUs")?;
        let handle = Mutex::new(Some(handle as usize));
        Ok(Self { handle, side: Arc::new(side), library })
    }

    pub fn library(&self) -> &Collectives {
        &self.library
    }

    fn handle(&self) -> MutexGuard<'_, Option<usize>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `work` after everything that the GPU was told to do.
    fn queue(&self, call: &str, work: impl FnOnce(&Functions, Handle) -> Result<(), c_int>) -> Result<(), GpuError> {
        self.side.follow()?;
        let handle = self.handle();
        let Some(handle) = *handle else { return Err(GpuError::Unsupported(format!("{call}: the ranks were disconnected"))) };
        work(&self.library.functions, handle as Handle).or_else(|status| self.library.check(status, call))
    }

    /// Sends parts to ranks and receives others: what a rank sends to another is what that one receives from it, part by part in the same order.
    /// Parts without a length are left out. Done when [`Self::is_done`] says so.
    ///
    /// # Errors
    /// The library's.
    pub fn exchange(&self, sends: &[(usize, Buffer<u8>)], receives: &[(usize, Buffer<u8>)]) -> Result<(), GpuError> {
        let some = |(_, part): &&(usize, Buffer<u8>)| part.length() > 0;
        self.queue("an exchange between ranks", |functions, handle| {
            // SAFETY: buffers know their length, and live until the caller has seen that all is done.
            unsafe {
                tell((functions.group_start)())?;
                for (to, part) in sends.iter().filter(some) {
                    tell((functions.send)(part.address(0), part.length(), BYTES, *to as c_int, handle, self.side.stream))?;
                }
                for (from, part) in receives.iter().filter(some) {
                    tell((functions.receive)(part.address(0), part.length(), BYTES, *from as c_int, handle, self.side.stream))?;
                }
                tell((functions.group_end)())
            }
        })
    }

    /// Whether everything that was queued has been done.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        let (handle, mut status) = (self.handle(), 0);
        let Some(handle) = *handle else { return Err(GpuError::Unsupported("the ranks were disconnected".into())) };
        // SAFETY: the status is written by the call.
        let asked = unsafe { (self.library.functions.async_error)(handle as Handle, &raw mut status) };
        self.library.check(asked, "asking how the exchange goes")?;
        self.library.check(status, "an exchange between ranks")?;
        self.side.is_done()
    }

    /// The stream on which all of it goes.
    pub fn side(&self) -> &Arc<Side> {
        &self.side
    }

    /// Ends everything that still waits for other ranks. Nothing can be exchanged afterwards.
    pub fn abort(&self) {
        if let Some(handle) = self.handle().take() {
            // SAFETY: the handle is not used again. What the library says of its end helps nobody.
            unsafe { (self.library.functions.abort)(handle as Handle) };
        }
    }
}

/// A status that is a failure.
fn tell(status: c_int) -> Result<(), c_int> {
    if status == 0 || status == IN_PROGRESS { Ok(()) } else { Err(status) }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.side.gpu.driver().synchronize().is_err() {
            return;
        }
        if let Some(handle) = self.handle().take() {
            // SAFETY: the handle is not used again.
            unsafe { (self.library.functions.destroy)(handle as Handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_counting_versions_are_read() {
        for (number, version) in [(2708, [2, 7, 8]), (21_005, [2, 10, 5]), (22_809, [2, 28, 9]), (30_000, [3, 0, 0])] {
            assert_eq!(version_of(number), version);
        }
    }
}
