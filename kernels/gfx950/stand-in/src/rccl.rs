//! The functions of librccl that ranks look up: processes send each other memory through files of a folder, which rank 0's id names.
//!
//! What is sent leaves at once; what is received comes when the stream is asked about, as if a GPU worked beside the program. So a rank that
//! waits for one that is gone waits for ever, as with the real library, until it aborts.

// C functions: their names and their contracts are AMD's.
#![allow(non_snake_case, unreachable_pub, clippy::missing_safety_doc)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use crate::state::{Failure, setting, trace, with};

/// Statuses (`ncclResult_t`).
const SUCCESS: c_int = 0;
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;

/// `ncclUint8`.
const BYTES: c_int = 1;

/// How long ranks are waited for at the start.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ncclUniqueId`: here the name of a folder, and zeros.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

/// What has not come yet.
struct Receive {
    from: usize,
    number: u64,
    to: u64,
    bytes: usize,
}

struct Communicator {
    folder: PathBuf,
    rank: usize,
    size: usize,
    /// Messages so far, by rank.
    sent: Vec<u64>,
    received: Vec<u64>,
    waiting: Vec<Receive>,
}

#[derive(Default)]
struct World {
    communicators: BTreeMap<usize, Communicator>,
    made: usize,
    /// Groups that were begun and not ended.
    depth: usize,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

fn world() -> MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` with a communicator.
fn among(handle: usize, work: impl FnOnce(&mut Communicator) -> Result<(), c_int>) -> c_int {
    let mut world = world();
    match world.get_or_insert_default().communicators.get_mut(&handle) {
        Some(communicator) => work(communicator).map_or_else(|status| status, |()| SUCCESS),
        None => INVALID_ARGUMENT,
    }
}

/// A file that is there as a whole or not at all.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("part");
    fs::write(&aside, bytes)?;
    fs::rename(aside, path)
}

impl Communicator {
    fn message(&self, from: usize, to: usize, number: u64) -> PathBuf {
        self.folder.join(format!("{from}-{to}-{number}"))
    }

    fn send(&mut self, address: u64, bytes: usize, to: usize) -> Result<(), c_int> {
        if to >= self.size {
            return Err(INVALID_ARGUMENT);
        }
        let mut values = Vec::new();
        let status = with(|state| {
            values = state.operand("what is sent to another rank", address, bytes)?;
            Ok(())
        });
        if status != 0 {
            return Err(INVALID_USAGE);
        }
        let path = self.message(self.rank, to, self.sent[to]);
        self.sent[to] += 1;
        put(&path, &values).map_err(|_| SYSTEM_ERROR)
    }

    fn receive(&mut self, to: u64, bytes: usize, from: usize) -> Result<(), c_int> {
        if from >= self.size {
            return Err(INVALID_ARGUMENT);
        }
        self.waiting.push(Receive { from, number: self.received[from], to, bytes });
        self.received[from] += 1;
        Ok(())
    }

    /// Takes what has come; whether nothing is waited for any more.
    fn go_on(&mut self) -> Result<bool, Failure> {
        let mut waiting = Vec::new();
        for receive in std::mem::take(&mut self.waiting) {
            let path = self.message(receive.from, self.rank, receive.number);
            let Ok(values) = fs::read(&path) else {
                waiting.push(receive);
                continue;
            };
            if values.len() != receive.bytes {
                return Err(Failure(1, format!("rank {} sent {} bytes, {} were expected", receive.from, values.len(), receive.bytes)));
            }
            let status = with(|state| state.write(receive.to, &values));
            if status != 0 {
                return Err(Failure(status, "what came from another rank has no room".into()));
            }
            // A message that stays is never read again.
            let _ = fs::remove_file(path);
        }
        self.waiting = waiting;
        Ok(self.waiting.is_empty())
    }
}

/// Whether nothing is waited for on any stream.
pub(crate) fn is_done() -> Result<bool, Failure> {
    let mut world = world();
    let mut is_done = true;
    for communicator in world.get_or_insert_default().communicators.values_mut() {
        is_done &= communicator.go_on()?;
    }
    Ok(is_done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    let number = setting("GFX950_STAND_IN_RCCL").and_then(|text| text.parse().ok()).unwrap_or(22_203);
    // SAFETY: the caller's pointer.
    unsafe { version.write(number) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let folder = std::env::temp_dir().join(format!("rccl-{}-{now}", std::process::id()));
    let name = folder.to_string_lossy().into_owned();
    let mut bytes = [0; 128];
    if name.len() >= bytes.len() || fs::create_dir_all(&folder).is_err() {
        return SYSTEM_ERROR;
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the caller's pointer.
    unsafe { id.write(UniqueId(bytes)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(handle: *mut usize, size: c_int, id: UniqueId, rank: c_int) -> c_int {
    let name: Vec<u8> = id.0.into_iter().take_while(|&byte| byte != 0).collect();
    let (folder, rank, size) = (PathBuf::from(String::from_utf8_lossy(&name).into_owned()), rank as usize, size as usize);
    if name.is_empty() || rank >= size || !folder.is_dir() {
        return INVALID_ARGUMENT;
    }
    let here = |rank: usize| folder.join(format!("here-{rank}"));
    if here(rank).exists() {
        return INVALID_USAGE;
    }
    let started = Instant::now();
    if put(&here(rank), &[]).is_err() {
        return SYSTEM_ERROR;
    }
    while !(0..size).all(|rank| here(rank).exists()) {
        if started.elapsed() > PATIENCE {
            return SYSTEM_ERROR;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut world = world();
    let world = world.get_or_insert_default();
    world.made += 1;
    let (sent, received) = (vec![0; size], vec![0; size]);
    world.communicators.insert(world.made, Communicator { folder, rank, size, sent, received, waiting: Vec::new() });
    // SAFETY: the caller's pointer.
    unsafe { handle.write(world.made) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        SUCCESS => c"no error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(handle: usize, status: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { status.write(SUCCESS) };
    among(handle, |_| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(handle: usize) -> c_int {
    trace("rccl abort");
    if world().get_or_insert_default().communicators.remove(&handle).is_some() { SUCCESS } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(handle: usize) -> c_int {
    let Some(communicator) = world().get_or_insert_default().communicators.remove(&handle) else { return INVALID_ARGUMENT };
    let gone = |rank: usize| communicator.folder.join(format!("gone-{rank}"));
    // The last one tidies up; a folder that stays is a test's.
    if put(&gone(communicator.rank), &[]).is_ok() && (0..communicator.size).all(|rank| gone(rank).exists()) {
        let _ = fs::remove_dir_all(&communicator.folder);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    world().get_or_insert_default().depth += 1;
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    let mut world = world();
    let depth = &mut world.get_or_insert_default().depth;
    match depth.checked_sub(1) {
        Some(less) => {
            *depth = less;
            SUCCESS
        }
        None => INVALID_USAGE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(from: u64, count: usize, element: c_int, to: c_int, handle: usize, _stream: *mut c_void) -> c_int {
    if element != BYTES {
        return INVALID_ARGUMENT;
    }
    trace(&format!("rccl send {count} to {to}"));
    among(handle, |communicator| communicator.send(from, count, to as usize))
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(to: u64, count: usize, element: c_int, from: c_int, handle: usize, _stream: *mut c_void) -> c_int {
    if element != BYTES {
        return INVALID_ARGUMENT;
    }
    among(handle, |communicator| communicator.receive(to, count, from as usize))
}
