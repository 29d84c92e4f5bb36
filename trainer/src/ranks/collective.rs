//! Ranks on GPUs that exchange arrays through NCCL or RCCL. Everything small, and what watches over the ranks, goes through the [`Mesh`].
//!
//! The library only moves numbers: it is never asked to add. While it works, other ranks' ends are noticed here and end the waiting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kernels::gpu::collectives::{self, Collectives, Communicator};
use kernels::gpu::copies::{self, Block, Copies, Elsewhere, Place, Sent};
use kernels::gpu::driver::Event;
use kernels::gpu::{Buffer, Gpu, GpuError, ShardNorm};

use super::tcp::{Mesh, lock};
use super::{Bucket, Link, Ranks, Waited};
use crate::device::Device;
use crate::device::gpu::{Coming, GpuDevice, Parameters, machine};
use crate::error::TrainerError;
use crate::shards::{Segment, Shards};

/// How long an exchange is looked at without a pause: most are over by then.
const BUSY: Duration = Duration::from_millis(2);
/// And how often after that.
const LOOK: Duration = Duration::from_micros(100);

/// Room for the norm's sums and the norm itself, in F64, as so many F32.
const NORM_ROOM: usize = 2 * (ShardNorm::ALL + 1);

/// All ranks, by TCP and by their GPUs' library.
#[derive(Debug)]
pub struct Collective {
    communicator: Communicator,
    mesh: Mesh,
    /// Whether gradients and parameters go by copy engines where all ranks can.
    wants_copies: bool,
    copies: OnceLock<Copies>,
    /// Whether parameters do, too.
    reaches_parameters: AtomicBool,
    /// Since that was asked last.
    waits: Arc<Mutex<Waits>>,
}

/// Between what events the GPU waited for other ranks.
#[derive(Debug, Default)]
struct Waits {
    gradients: Vec<(Event, Event)>,
    parameters: Vec<(Event, Event)>,
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
            Ok(communicator) => Ok(Self {
                communicator,
                mesh,
                wants_copies,
                copies: OnceLock::new(),
                reaches_parameters: AtomicBool::new(false),
                waits: Arc::default(),
            }),
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

    /// Queues what [`Ranks::share`] sends and receives in a round.
    fn send_portion(&self, parameters: &Parameters, shards: &Shards, round: usize) -> Result<(), GpuError> {
        let own = shards.portion(self.rank(), round);
        let others = || (0..self.size()).filter(|other| *other != self.rank());
        let places: Option<Vec<_>> = others().map(|to| Some((to, parameters.places(to, &own)?))).collect();
        if let Some((copies, places)) = self.copies.get().zip(places) {
            let sent = |(to, places): (usize, Vec<Place>)| Ok((to, parameters.sent(&own)?.into_iter().zip(places).collect()));
            return copies.exchange(self.communicator.side(), &places.into_iter().map(sent).collect::<Result<Vec<Sent>, GpuError>>()?);
        }
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for other in others() {
            sends.extend(parameters.sent(&own)?.into_iter().map(|part| (other, part)));
            receives.extend(parameters.sent(&shards.portion(other, round))?.into_iter().map(|part| (other, part)));
        }
        self.communicator.exchange(&sends, &receives)
    }

    /// Queues an exchange of parts of a room that lies in the pieces' place at every rank, each with whom it goes to or comes from; what is computed
    /// next comes after it. Between the two events the GPU waits.
    fn pass(
        &self,
        room: &Buffer<f64>,
        sent: &[(usize, Range<usize>)],
        received: &[(usize, Range<usize>)],
    ) -> Result<(Event, Event), GpuError> {
        let side = self.communicator.side();
        let bytes = |(other, part): &(usize, Range<usize>)| Ok::<_, GpuError>((*other, room.bytes(part.start, part.len())?));
        match self.copies.get() {
            Some(copies) => {
                // Each rank waits for all others.
                let parts = |to: usize| {
                    let parts = sent.iter().filter(|(other, _)| *other == to);
                    let placed = parts.filter_map(|sent| Some((sent, copies.place(to, 2 * sent.1.start)?)));
                    Ok((to, placed.map(|(sent, place)| Ok((bytes(sent)?.1, place))).collect::<Result<_, GpuError>>()?))
                };
                let all = (0..self.size()).filter(|other| *other != self.rank());
                copies.exchange(side, &all.map(parts).collect::<Result<Vec<Sent>, GpuError>>()?)?;
            }
            None => {
                let all = |parts: &[(usize, Range<usize>)]| parts.iter().map(bytes).collect::<Result<Vec<_>, GpuError>>();
                self.communicator.exchange(&all(sent)?, &all(received)?)?;
            }
        }
        side.lead(side.mark()?)
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

/// How long the device stood still between the events of each pair, which are given back.
fn seconds(device: &GpuDevice, waits: Vec<(Event, Event)>) -> Result<f64, TrainerError> {
    let driver = device.gpu().driver();
    waits.into_iter().map(|(from, to)| driver.elapsed(from, to)).sum::<Result<f64, GpuError>>().map_err(machine)
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
        Some(match (self.copies.get(), self.reaches_parameters.load(Ordering::Relaxed)) {
            (None, _) => library,
            (Some(_), false) => format!("{library}, gradients by copy engines"),
            (Some(_), true) => format!("{library}, gradients and parameters by copy engines"),
        })
    }

    fn room(&self, device: &GpuDevice, shards: &Shards) -> Result<Buffer<f32>, TrainerError> {
        let length = shards.pieces_room().max(NORM_ROOM);
        // One rank has nobody else's memory to copy to.
        let copies = if self.wants_copies && self.size() > 1 { self.open(length)? } else { None };
        match copies {
            None => device.zeros(length),
            Some(copies) => self.copies.get_or_init(|| copies).room(length).map_err(machine),
        }
    }

    fn connect(&self, parameters: &mut Parameters) -> Result<(), TrainerError> {
        if self.copies.get().is_none() {
            return Ok(());
        }
        let (side, mesh) = (self.communicator.side(), self.mesh());
        let handles = |(copies, values)| Ok([copies::handle(side, copies)?, copies::handle(side, values)?]);
        let [copies, values] = parameters.rooms().map(handles).transpose().map_err(machine)?.unwrap_or_default();
        let open = |own: Vec<u8>| Ok::<_, TrainerError>(Elsewhere::open(side, self.rank(), &mesh.gather(&own)?).ok());
        let opened = open(copies)?.zip(open(values)?);
        let all = super::all(mesh, opened.is_some())?;
        if let Some((copies, values)) = opened.filter(|_| all) {
            parameters.reach([copies, values]);
            self.reaches_parameters.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn begin(&self, _: &GpuDevice, bucket: &Bucket<'_, GpuDevice>, shards: &Shards, pieces: &mut Buffer<f32>) -> Result<(), TrainerError> {
        let rank = self.rank();
        let own = bucket.sent_to(rank, shards).len();
        let part = |to| {
            let part = bucket.sent_to(to, shards);
            Ok((to, bucket.numbers.bytes(part.start, part.len())?))
        };
        let sends = shards.senders(rank).map(part).collect::<Result<Vec<_>, _>>().map_err(machine)?;
        if let Some(copies) = self.copies.get() {
            let placed = |(to, part)| (to, copies.place(to, shards.piece(to, rank)).map(|place| (part, place)).into_iter().collect());
            let sends: Vec<Sent> = sends.into_iter().map(placed).collect();
            return copies.exchange(self.communicator.side(), &sends).map_err(machine);
        }
        let piece = |from| Ok((from, pieces.bytes(shards.piece(rank, from), own)?));
        let receives = shards.senders(rank).map(piece).collect::<Result<Vec<_>, _>>().map_err(machine)?;
        self.communicator.exchange(&sends, &receives).map_err(machine)
    }

    fn end(&self, _: &GpuDevice) -> Result<(), TrainerError> {
        let side = self.communicator.side();
        let wait = side.mark().and_then(|mark| side.lead(mark)).map_err(machine)?;
        lock(&self.waits).gradients.push(wait);
        Ok(())
    }

    fn finish(&self, device: &GpuDevice) -> Result<Waited, TrainerError> {
        self.wait()?;
        let Waits { gradients, parameters } = std::mem::take(&mut *lock(&self.waits));
        Ok(Waited { gradients: seconds(device, gradients)?, parameters: seconds(device, parameters)? })
    }

    /// Group by group, sums go from each segment's GPU to the next one's, which goes on with them while this one is at its next group. The last one
    /// hands the norm to all.
    fn norm(
        &self,
        device: &GpuDevice,
        shards: &Shards,
        gradients: &Buffer<f32>,
        pieces: &Buffer<f32>,
    ) -> Result<Option<f64>, TrainerError> {
        let (rank, shard, chain) = (self.rank(), shards.of(self.rank()), shards.segments());
        let owner = |link: usize| chain.get(link).map(|segment| segment.owner);
        let last = chain.last().map_or(0, |segment| segment.owner);
        let mut room = pieces.bytes(0, NORM_ROOM).and_then(|room| room.part::<f64>(0, ShardNorm::ALL + 1)).map_err(machine)?;
        let sums = |group: usize| ShardNorm::SUMS * group..ShardNorm::SUMS * (group + 1);
        let mut waits = Vec::new();
        if owner(0) == Some(rank) {
            room.fill(0).map_err(machine)?;
        }
        for phase in 0..chain.len() + ShardNorm::GROUPS - 1 {
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            // A group is one link behind the group before it.
            for group in 0..ShardNorm::GROUPS {
                let Some(link) = phase.checked_sub(group) else { break };
                let Some(Segment { range, owner: at_work }) = chain.get(link) else { continue };
                if *at_work == rank {
                    let part = gradients.window(shard.place(range.start), range.len()).map_err(machine)?;
                    device.with_norm(|norm| norm.add(&part, range.start, group, &room))?;
                    sent.extend(owner(link + 1).map(|next| (next, sums(group))));
                } else if owner(link + 1) == Some(rank) {
                    received.push((*at_work, sums(group)));
                }
            }
            waits.push(self.pass(&room, &sent, &received).map_err(machine)?);
        }
        let norm = ShardNorm::ALL..ShardNorm::ALL + 1;
        let (mut sent, mut received) = (Vec::new(), vec![(last, norm.clone())]);
        if rank == last {
            device.with_norm(|kernels| kernels.norm_of_sums(&room, &room, norm.start))?;
            sent = (0..self.size()).filter(|other| *other != rank).map(|other| (other, norm.clone())).collect();
            received.clear();
        }
        waits.push(self.pass(&room, &sent, &received).map_err(machine)?);
        self.wait()?;
        // Whoever asks for the norm measures the whole of it; the events go back.
        seconds(device, waits)?;
        let mut found = [0.0];
        room.read(norm.start, &mut found).map_err(machine)?;
        let [found] = found;
        Ok(Some(found))
    }

    fn share(&self, _: &GpuDevice, parameters: &mut Parameters, shards: &Shards, round: usize) -> Result<(), TrainerError> {
        self.send_portion(parameters, shards, round).map_err(machine)?;
        let others = (0..self.size()).filter(|other| *other != self.rank());
        let portions: Vec<_> = others.map(|other| shards.portion(other, round)).filter(|portion| !portion.is_empty()).collect();
        if portions.is_empty() {
            return Ok(());
        }
        let (side, waits) = (self.communicator.side().clone(), self.waits.clone());
        let mark = side.mark().map_err(machine)?;
        let wait = Box::new(move || side.lead(mark).map(|wait| lock(&waits).parameters.push(wait)));
        parameters.expect(Coming { portions, wait });
        Ok(())
    }

    fn collect<'a>(&self, device: &GpuDevice, shard: &'a Buffer<f32>, shards: &Shards) -> Result<Option<Cow<'a, [f32]>>, TrainerError> {
        self.mesh().collect(device, shard, shards)
    }

    fn scatter(&self, all: &[f32], shards: &Shards) -> Result<Vec<f32>, TrainerError> {
        self.mesh().scatter(all, shards)
    }

    fn relay(&self, owners: &[usize], work: &mut Link<'_>) -> Result<Option<Vec<u8>>, TrainerError> {
        self.mesh().relay(owners, work)
    }

    fn gather(&self, record: &[u8]) -> Result<Vec<Vec<u8>>, TrainerError> {
        self.mesh().gather(record)
    }

    fn abort(&self, error: &TrainerError) {
        self.mesh().abort(error);
        self.disconnect();
    }

    fn leave(&self) {
        // What is still sent goes to memory that must be there: a rank's stream is done when all has come that others send it. Where one of them
        // is gone, this one ends all the same.
        let _ = self.wait();
        self.mesh().leave();
    }
}
