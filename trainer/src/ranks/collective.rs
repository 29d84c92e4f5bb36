//! Ranks on GPUs that exchange arrays through NCCL or RCCL. Everything small, and what watches over the ranks, goes through the [`Mesh`].
//!
//! The library only moves numbers: it is never asked to add. While it works, other ranks' ends are noticed here and end the waiting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kernels::gpu::collectives::{self, Collectives, Communicator};
use kernels::gpu::copies::{Block, Copies};
use kernels::gpu::driver::Event;
use kernels::gpu::{Buffer, Gpu};

use super::tcp::Mesh;
use super::{Bucket, Ranks, Shards};
use crate::device::Device;
use crate::device::gpu::{GpuDevice, Parameters, machine};
use crate::error::TrainerError;

/// How long an exchange is looked at without a pause: most are over by then.
const BUSY: Duration = Duration::from_millis(2);
/// And how often after that.
const LOOK: Duration = Duration::from_micros(100);

/// All ranks, by TCP and by their GPUs' library.
#[derive(Debug)]
pub struct Collective {
    communicator: Communicator,
    mesh: Mesh,
    /// Whether gradients go by copy engines where all ranks can.
    wants_copies: bool,
    copies: OnceLock<Copies>,
    /// Between what events the GPU waited for exchanges since that was asked last.
    waits: Mutex<Vec<(Event, Event)>>,
}

impl Collective {
    /// Connects the GPUs of ranks that have met, within `patience`.
    pub fn connect(mesh: Mesh, gpu: &Gpu, library: Collectives, patience: Duration, wants_copies: bool) -> Result<Self, TrainerError> {
        let says = format!(
            "{} has not connected the GPUs within {} s; NCCL_DEBUG=INFO says how far it came, --exchange host does without it",
            library.describe(),
            patience.as_secs_f64()
        );
        let communicator = mesh.within(patience, says, || connect(&mesh, gpu, Arc::new(library)));
        match communicator {
            Ok(communicator) => Ok(Self { communicator, mesh, wants_copies, copies: OnceLock::new(), waits: Mutex::default() }),
            Err(error) => {
                // Two ranks on one GPU are seen by all; everything else the others have to be told.
                Ranks::<GpuDevice>::abort(&mesh, &error);
                Err(error)
            }
        }
    }

    /// Blocks that all ranks have opened to each other, if all can do that.
    fn open(&self, length: usize) -> Result<Option<Copies>, TrainerError> {
        let (mesh, side) = (self.mesh(), self.communicator.side());
        let block = Block::new(side, length).ok();
        let handle = |block: &Block| [machine_id().as_bytes(), b" ", &block.handle].concat();
        let said = mesh.gather(&block.as_ref().map(handle).unwrap_or_default())?;
        let machine = format!("{} ", machine_id());
        let handles: Option<Vec<Vec<u8>>> = said.iter().map(|said| Some(said.strip_prefix(machine.as_bytes())?.to_vec())).collect();
        let copies = block.zip(handles).and_then(|(block, handles)| Copies::open(block, side, mesh.rank(), &handles).ok());
        let opened = super::all(mesh, copies.is_some())?;
        Ok(copies.filter(|_| opened))
    }

    /// Nothing here waits for other ranks any more.
    fn disconnect(&self) {
        self.communicator.abort();
        if let Some(copies) = self.copies.get() {
            copies.release(self.communicator.side());
        }
    }

    fn mesh(&self) -> &dyn Ranks<GpuDevice> {
        &self.mesh
    }

    /// Until what was queued is done, or another rank has ended.
    fn wait(&self) -> Result<(), TrainerError> {
        let started = Instant::now();
        loop {
            let is_done = self.mesh.check().and_then(|()| self.communicator.is_done().map_err(machine));
            match is_done {
                Ok(true) => return Ok(()),
                Ok(false) if started.elapsed() < BUSY => std::hint::spin_loop(),
                Ok(false) => std::thread::sleep(LOOK),
                Err(error) => {
                    self.disconnect();
                    // The end of another rank may be why the library failed: that is what has to be said.
                    return Err(self.mesh.check().err().unwrap_or(error));
                }
            }
        }
    }
}

fn connect(mesh: &Mesh, gpu: &Gpu, library: Arc<Collectives>) -> Result<Communicator, TrainerError> {
    let ranks: &dyn Ranks<GpuDevice> = mesh;
    check_gpus(&ranks.gather(collectives::serial(gpu).map_err(machine)?.as_bytes())?)?;
    let id = if ranks.rank() == 0 { library.unique_id().map_err(machine)? } else { Vec::new() };
    let ids = ranks.gather(&id)?;
    let communicator =
        Communicator::connect(library, gpu, ids.first().map_or(&[], Vec::as_slice), ranks.rank(), ranks.size()).map_err(machine)?;
    ranks.barrier()?;
    Ok(communicator)
}

/// A text that processes of one running system have in common, and no others; empty where it does not tell.
fn machine_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Refuses two ranks on one GPU: the library would, too, in other words.
fn check_gpus(serials: &[Vec<u8>]) -> Result<(), TrainerError> {
    let mut owners = BTreeMap::new();
    for (rank, serial) in serials.iter().enumerate() {
        if let Some(other) = owners.insert(serial, rank) {
            return Err(TrainerError::BadInput(format!(
                "ranks {other} and {rank} are on one GPU ({}); start no more ranks on a machine than it has GPUs, name --device without a \
                 number, or use --exchange host",
                String::from_utf8_lossy(serial)
            )));
        }
    }
    Ok(())
}

impl Ranks<GpuDevice> for Collective {
    fn rank(&self) -> usize {
        self.mesh().rank()
    }

    fn size(&self) -> usize {
        self.mesh().size()
    }

    fn transport(&self) -> Option<String> {
        let library = self.communicator.library().describe();
        Some(if self.copies.get().is_some() { format!("{library}, gradients by copy engines") } else { library })
    }

    fn room(&self, device: &GpuDevice, shards: &Shards) -> Result<Buffer<f32>, TrainerError> {
        let length = shards.pieces_room();
        // One rank has nobody else's memory to copy to.
        let copies = if self.wants_copies && self.size() > 1 { self.open(length)? } else { None };
        match copies {
            None => device.zeros(length),
            Some(copies) => self.copies.get_or_init(|| copies).room(length).map_err(machine),
        }
    }

    fn begin(&self, _: &GpuDevice, bucket: &Bucket<'_, GpuDevice>, shards: &Shards, pieces: &mut Buffer<f32>) -> Result<(), TrainerError> {
        let (rank, Bucket { numbers, base, range }) = (self.rank(), bucket);
        let own = shards.part(rank, range).len();
        let part = |to| {
            let part = shards.part(to, range);
            Ok((to, numbers.bytes(part.start - base, part.len())?))
        };
        let sends = shards.senders(rank).map(part).collect::<Result<Vec<_>, _>>().map_err(machine)?;
        if let Some(copies) = self.copies.get() {
            let placed = |(to, part)| (to, part, shards.piece(to, rank));
            let sends: Vec<_> = sends.into_iter().map(placed).collect();
            return copies.exchange(self.communicator.side(), &sends).map_err(machine);
        }
        let piece = |from| Ok((from, pieces.bytes(shards.piece(rank, from), own)?));
        let receives = shards.senders(rank).map(piece).collect::<Result<Vec<_>, _>>().map_err(machine)?;
        self.communicator.exchange(&sends, &receives).map_err(machine)
    }

    fn end(&self, _: &GpuDevice) -> Result<(), TrainerError> {
        let wait = self.communicator.side().lead().map_err(machine)?;
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
        Ok(())
    }

    fn finish(&self, device: &GpuDevice) -> Result<f64, TrainerError> {
        self.wait()?;
        let waits = std::mem::take(&mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner));
        let driver = device.gpu().driver();
        waits.into_iter().map(|(from, to)| driver.elapsed(from, to).map_err(machine)).sum()
    }

    fn all_gather(&self, _: &GpuDevice, parameters: &mut Parameters, shards: &Shards) -> Result<(), TrainerError> {
        let own = shards.of(self.rank());
        let is_even = shards.all().all(|shard| shard.len() == own.len());
        if is_even {
            let total = shards.all().map(|shard| shard.len()).sum();
            self.communicator.all_gather(&parameters.copies(&own)?, &parameters.copies(&(0..total))?).map_err(machine)?;
            self.wait()?;
        }
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (other, shard) in shards.all().enumerate().filter(|(other, _)| *other != self.rank()) {
            let parts = |range: &Range<usize>| {
                let copies = (!is_even).then(|| parameters.copies(range)).transpose()?;
                Ok::<_, TrainerError>(copies.into_iter().chain(parameters.beside(range)?).map(move |part| (other, part)))
            };
            sends.extend(parts(&own)?);
            receives.extend(parts(&shard)?);
        }
        self.communicator.exchange(&sends, &receives).map_err(machine)?;
        self.wait()
    }

    fn collect<'a>(&self, device: &GpuDevice, shard: &'a Buffer<f32>, shards: &Shards) -> Result<Option<Cow<'a, [f32]>>, TrainerError> {
        self.mesh().collect(device, shard, shards)
    }

    fn scatter(&self, all: &[f32], shards: &Shards) -> Result<Vec<f32>, TrainerError> {
        self.mesh().scatter(all, shards)
    }

    fn relay(&self, work: &mut dyn FnMut(Vec<u8>) -> Result<Vec<u8>, TrainerError>) -> Result<Option<Vec<u8>>, TrainerError> {
        self.mesh().relay(work)
    }

    fn gather(&self, record: &[u8]) -> Result<Vec<Vec<u8>>, TrainerError> {
        self.mesh().gather(record)
    }

    fn abort(&self, error: &TrainerError) {
        self.mesh().abort(error);
        self.disconnect();
    }

    fn leave(&self) {
        self.mesh().leave();
    }
}
