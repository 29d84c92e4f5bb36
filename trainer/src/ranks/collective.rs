//! Ranks on GPUs that exchange arrays through NCCL or RCCL. Everything small, and what watches over the ranks, goes through the [`Mesh`].
//!
//! The library only moves numbers: it is never asked to add. While it works, other ranks' ends are noticed here and end the waiting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::gpu::collectives::{self, Collectives, Communicator};
use kernels::gpu::{Buffer, Gpu};

use super::tcp::Mesh;
use super::{Ranks, Shards};
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
}

impl Collective {
    /// Connects the GPUs of ranks that have met, within `patience`.
    pub fn connect(mesh: Mesh, gpu: &Gpu, library: Collectives, patience: Duration) -> Result<Self, TrainerError> {
        let says = format!(
            "{} has not connected the GPUs within {} s; NCCL_DEBUG=INFO says how far it came, --exchange host does without it",
            library.describe(),
            patience.as_secs_f64()
        );
        let communicator = mesh.within(patience, says, || connect(&mesh, gpu, Arc::new(library)));
        match communicator {
            Ok(communicator) => Ok(Self { communicator, mesh }),
            Err(error) => {
                // Two ranks on one GPU are seen by all; everything else the others have to be told.
                Ranks::<GpuDevice>::abort(&mesh, &error);
                Err(error)
            }
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
                    self.communicator.abort();
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
        Some(self.communicator.library().describe())
    }

    fn exchange(
        &self,
        _: &GpuDevice,
        numbers: &Buffer<f32>,
        (shards, slice): (&Shards, usize),
        pieces: &mut Buffer<f32>,
    ) -> Result<(), TrainerError> {
        let own = shards.slice(self.rank(), slice).len();
        let all = || 0..self.size();
        let slices = all().map(|to| (to, shards.slice(to, slice)));
        let sends = slices.map(|(to, slice)| Ok((to, numbers.bytes(slice.start, slice.len())?))).collect::<Result<Vec<_>, _>>();
        let receives = all().map(|from| Ok((from, pieces.bytes(shards.piece(from), own)?))).collect::<Result<Vec<_>, _>>();
        self.communicator.exchange(&sends.map_err(machine)?, &receives.map_err(machine)?).map_err(machine)?;
        self.wait()
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
        self.communicator.abort();
    }

    fn leave(&self) {
        self.mesh().leave();
    }
}
