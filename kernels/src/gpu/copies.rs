//! GPUs of one machine whose processes write into each other's memory by the GPUs' copy engines, in CUDA alone. A library's exchange is a kernel,
//! which takes multiprocessors away from the products beside it; a copy takes none.
//!
//! Every rank has a block that the others may write to: flags, then room for gradients. Parameters go straight to their places, which the
//! others open likewise ([`Elsewhere`]). Exchanges are counted. In number k a rank waits
//! until another has read what it was sent in k - 1 (`taken`), copies, and says so (`arrived`). Flags are written and waited for on the
//! streams: no processor takes part.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, Ordering};

use super::calls::Stream;
use super::collectives::Side;
use super::library::table;
use super::{Buffer, Gpu, GpuError, Kind, Plain};

/// What another process opens a block by: `CUipcMemHandle`, which goes by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Handle([u8; HANDLE]);

const HANDLE: usize = 64;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: access between the GPUs comes with it.
const LAZY_PEER_ACCESS: c_uint = 1;
/// `CU_STREAM_WAIT_VALUE_GEQ`, cyclic.
const AT_LEAST: c_uint = 0;

/// Bytes of a block before the room, and where in them the second kind of flags begins: one of four bytes for each rank.
const FLAGS: usize = 8192;
const TAKEN: usize = FLAGS / 2;
/// Ranks for which there are flags.
const MOST_RANKS: usize = TAKEN / size_of::<u32>();

/// Memory that is a block of the driver's own, which begins where it begins: smaller ones may share one.
const LEAST_BLOCK: usize = 4 << 20;

table! {
    /// Statuses are 0 for success.
    Functions {
        handle: "cuIpcGetMemHandle" = fn(*mut Handle, u64) -> c_int;
        open: "cuIpcOpenMemHandle_v2" = fn(*mut u64, Handle, c_uint) -> c_int;
        close: "cuIpcCloseMemHandle" = fn(u64) -> c_int;
        write: "cuStreamWriteValue32_v2" = fn(Stream, u64, u32, c_uint) -> c_int;
        wait: "cuStreamWaitValue32_v2" = fn(Stream, u64, u32, c_uint) -> c_int;
    }
}

/// Room that begins a block of the driver's own: what other processes open begins where it begins.
///
/// # Errors
/// No memory.
pub fn shareable<T: Plain>(gpu: &Gpu, length: usize) -> Result<Buffer<T>, GpuError> {
    gpu.buffer((length * size_of::<T>()).next_multiple_of(LEAST_BLOCK) / size_of::<T>())?.window(0, length)
}

/// What other processes open such room by.
///
/// # Errors
/// GPUs or drivers that cannot do this.
pub fn handle<T: Plain>(side: &Side, room: &Buffer<T>) -> Result<Vec<u8>, GpuError> {
    let mut handle = Handle([0; HANDLE]);
    // SAFETY: the handle is written by the call.
    side.calls.check(unsafe { (functions(side)?.handle)(&raw mut handle, room.address(0)) }, "sharing memory with other processes")?;
    Ok(handle.0.to_vec())
}

fn functions(side: &Side) -> Result<Functions, GpuError> {
    if side.gpu.description().kind != Kind::Cuda.word() {
        return Err(GpuError::Unsupported("copies between processes by copy engines are there for CUDA alone".into()));
    }
    Functions::load(side.library())
}

/// Room of other ranks, open here.
#[derive(Debug)]
pub struct Elsewhere {
    /// By rank; none for this one.
    starts: Vec<Option<u64>>,
    functions: Functions,
}

impl Elsewhere {
    /// Opens it by the handles of all ranks, in their order.
    ///
    /// # Errors
    /// Room that cannot be opened: of another machine, or of a GPU that this one does not reach.
    pub fn open(side: &Side, rank: usize, handles: &[Vec<u8>]) -> Result<Self, GpuError> {
        let mut opened = Self { starts: Vec::new(), functions: functions(side)? };
        for (other, handle) in handles.iter().enumerate() {
            let start = match <[u8; HANDLE]>::try_from(handle.as_slice()) {
                _ if other == rank => None,
                Err(_) => return Err(GpuError::Unsupported(format!("rank {other} shares no memory"))),
                Ok(handle) => {
                    let mut start = 0;
                    // SAFETY: the address is written by the call.
                    let status = unsafe { (opened.functions.open)(&raw mut start, Handle(handle), LAZY_PEER_ACCESS) };
                    side.calls.check(status, &format!("opening the memory of rank {other}"))?;
                    Some(start)
                }
            };
            opened.starts.push(start);
        }
        Ok(opened)
    }

    /// Where byte number `byte` of a rank's room is for this process; none for its own.
    pub fn place(&self, rank: usize, byte: usize) -> Option<Place> {
        Some(Place((*self.starts.get(rank)?)? + byte as u64))
    }

    /// All other ranks, and where their room begins.
    fn others(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.starts.iter().enumerate().filter_map(|(rank, start)| Some((rank, (*start)?)))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        for (_, start) in self.others() {
            // SAFETY: nothing is copied there any more.
            unsafe { (self.functions.close)(start) };
        }
    }
}

/// Where in another rank's memory something goes.
#[derive(Debug, Clone, Copy)]
pub struct Place(u64);

/// A block that other ranks may open.
#[derive(Debug)]
pub struct Block {
    all: Buffer<u8>,
    /// What they open it by.
    pub handle: Vec<u8>,
}

impl Block {
    /// With room for `length` numbers.
    ///
    /// # Errors
    /// GPUs or drivers that cannot do this, or no memory.
    pub fn new(side: &Side, length: usize) -> Result<Self, GpuError> {
        let mut all = shareable::<u8>(&side.gpu, FLAGS + length * size_of::<f32>())?;
        all.fill(0)?;
        side.gpu.driver().synchronize()?;
        Ok(Self { handle: handle(side, &all)?, all })
    }
}

/// All ranks' blocks, and how many exchanges there were.
#[derive(Debug)]
pub struct Copies {
    own: Block,
    rank: usize,
    others: Elsewhere,
    count: AtomicU32,
}

/// What one rank is sent: parts of memory, each with the place that it goes to.
pub type Sent = (usize, Vec<(Buffer<u8>, Place)>);

impl Copies {
    /// Opens the blocks of the others by their handles, which are in the order of the ranks.
    ///
    /// # Errors
    /// A block that cannot be opened: of another machine, or of a GPU that this one does not reach.
    pub fn open(own: Block, side: &Side, rank: usize, handles: &[Vec<u8>]) -> Result<Self, GpuError> {
        if handles.len() > MOST_RANKS {
            return Err(GpuError::Unsupported(format!("{} ranks on one machine; flags are there for {MOST_RANKS}", handles.len())));
        }
        Ok(Self { own, rank, others: Elsewhere::open(side, rank, handles)?, count: AtomicU32::new(0) })
    }

    /// This rank's room.
    ///
    /// # Errors
    /// More than it has.
    pub fn room(&self, length: usize) -> Result<Buffer<f32>, GpuError> {
        self.own.all.part(FLAGS, length)
    }

    /// Where a number of another rank's room is; none for this rank's.
    pub fn place(&self, rank: usize, number: usize) -> Option<Place> {
        self.others.place(rank, FLAGS + number * size_of::<f32>())
    }

    /// Queues an exchange: every other rank is sent parts, or none. What comes here has come when the side's stream is done; what came before
    /// may be overwritten when the GPU has done what it was told to compute.
    ///
    /// # Errors
    /// The driver's.
    pub fn exchange(&self, side: &Side, sends: &[Sent]) -> Result<(), GpuError> {
        side.follow()?;
        let number = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        for (_, block) in self.others.others() {
            self.write(side, block + flag(TAKEN, self.rank), number.wrapping_sub(1))?;
        }
        // Each begins with the rank after it, so that no two send to the same one as long as all are equally fast.
        let (rank, size) = (self.rank, self.others.starts.len());
        let mut sends: Vec<&Sent> = sends.iter().collect();
        sends.sort_by_key(|(to, _)| (to + size - rank) % size);
        for (to, parts) in sends {
            let Some(Place(block)) = self.others.place(*to, 0) else { continue };
            self.wait(side, flag(TAKEN, *to), number.wrapping_sub(1))?;
            for (part, Place(at)) in parts.iter().filter(|(part, _)| part.length() > 0) {
                // SAFETY: the sender knows the others' rooms, whose sizes all ranks derive from the same parameters; the part lives until the
                // stream is done.
                side.calls.make(side.calls.copy, |copy| unsafe { copy(*at, part.address(0), part.length(), side.stream) })?;
            }
            self.write(side, block + flag(0, self.rank), number)?;
        }
        for (from, _) in self.others.others() {
            self.wait(side, flag(0, from), number)?;
        }
        Ok(())
    }

    /// Ends every waiting for other ranks, which may be gone. Nothing that has come, or comes, means anything afterwards.
    pub fn release(&self, side: &Side) {
        // On a stream of its own: the others wait. What goes wrong here helps nobody, and the driver frees the stream with the process.
        let Ok(stream) = side.calls.stream() else { return };
        // SAFETY: the flags of this rank's own block; every byte so makes a number that is later than all that are waited for.
        unsafe {
            (side.calls.fill.function)(self.own.all.address(0), 0x7F, FLAGS, stream);
            (side.calls.synchronize.function)(stream);
        }
    }

    fn write(&self, side: &Side, at: u64, value: u32) -> Result<(), GpuError> {
        // SAFETY: a flag of a block that stays open as long as `self`.
        side.calls.check(unsafe { (self.others.functions.write)(side.stream, at, value, 0) }, "telling another rank")
    }

    /// Until a flag of this rank's block has a value.
    fn wait(&self, side: &Side, flag: u64, value: u32) -> Result<(), GpuError> {
        let at = self.own.all.address(0) + flag;
        // SAFETY: a flag of this rank's own block.
        side.calls.check(unsafe { (self.others.functions.wait)(side.stream, at, value, AT_LEAST) }, "waiting for another rank")
    }
}

/// Where the flag of a rank is in a block.
fn flag(kind: usize, rank: usize) -> u64 {
    (kind + rank * size_of::<u32>()) as u64
}
