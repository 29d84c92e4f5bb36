//! Writes checkpoints while steps go on: every rank a copy of its shard in a thread, then rank 0 the index, which makes them a checkpoint.
//!
//! At most one is on its way. Its folder is rank 0's to make and to rename; the others only put their shards into it. Where they do not see
//! one folder with rank 0, it gathers the whole and writes it as one rank would.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Shard, State, WHOLE, aside, put_in_place, shard};
use crate::device::{Device, Linears};
use crate::error::TrainerError;
use crate::parameters::Layout;
use crate::ranks::{self, Ranks};
use crate::shards::ShardRanges;
use crate::trainer_state::Training;

/// Calls on it are made by all ranks together, but for [`Writer::is_written`].
#[derive(Debug)]
pub struct Writer {
    /// The run's directory, as this rank sees it.
    run: PathBuf,
    /// Tells folders of this start of the run from those of others, whose ranks may still be ending.
    start: String,
    way: Way,
    /// Whether a copy of the shard is made, so that steps go on; else they wait until it is written.
    copies: bool,
    flight: Flight,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Every rank its shard, into one folder that all see.
    Together,
    /// Rank 0 the whole, as one rank alone.
    First,
}

/// How far the checkpoint on its way is.
#[derive(Debug)]
enum Flight {
    None,
    /// Every rank's shard is being written, if it has one. Rank 0 has the index but for the shards.
    Shards {
        folder: PathBuf,
        shard: Task<Option<Shard>>,
        state: Option<Box<State>>,
    },
    /// Rank 0 puts it in place, or does all of it.
    Placing(Task<()>),
}

/// What a thread does, or what came of it.
#[derive(Debug)]
enum Task<T> {
    Running(JoinHandle<Result<T, TrainerError>>),
    Done(T),
}

impl<T: Send + 'static> Task<T> {
    fn start(work: impl FnOnce() -> Result<T, TrainerError> + Send + 'static) -> Result<Self, TrainerError> {
        let failed = |source| TrainerError::Machine(format!("no thread can be started to write the checkpoint: {source}"));
        std::thread::Builder::new().name("checkpoint".into()).spawn(work).map(Self::Running).map_err(failed)
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Running(thread) => thread.is_finished(),
            Self::Done(_) => true,
        }
    }

    fn wait(self) -> Result<T, TrainerError> {
        match self {
            Self::Running(thread) => thread.join().unwrap_or_else(|_| {
                Err(TrainerError::Machine("the thread that writes the checkpoint ended in its midst: a defect of the trainer".into()))
            }),
            Self::Done(result) => Ok(result),
        }
    }
}

impl Writer {
    /// `run`: the run's directory, as this rank sees it. `copies`: whether there is memory for a copy of this rank's shard.
    pub fn among<D: Device>(ranks: &dyn Ranks<D>, run: &Path, copies: bool) -> Result<Self, TrainerError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let own = if ranks.rank() == 0 { format!("{}-{now}", std::process::id()) } else { String::new() };
        let start = ranks.gather(own.as_bytes())?.first().map(|first| String::from_utf8_lossy(first).into_owned()).unwrap_or_default();
        let way = if ranks.size() > 1 && see_one_folder(ranks, &aside(run, &start))? { Way::Together } else { Way::First };
        if way == Way::First && ranks.size() > 1 && ranks.rank() == 0 {
            eprintln!("the other ranks do not write where rank 0 does, to {}: it gathers checkpoints and writes them alone", run.display());
        }
        Ok(Self { run: run.to_owned(), start, way, copies, flight: Flight::None })
    }

    /// Whether every rank sees the run's folder as rank 0 does: checkpoints can be read by all.
    pub(crate) fn is_together(&self) -> bool {
        self.way == Way::Together
    }

    /// Waits for the checkpoint before, then takes a copy of what is now and begins to write it. Rank 0 gives the index but for what is read
    /// from the device.
    pub fn begin<D: Device>(
        &mut self,
        ranks: &dyn Ranks<D>,
        training: &Training<D>,
        step: u64,
        state: Option<State>,
    ) -> Result<(), TrainerError> {
        self.finish(ranks)?;
        let folder = aside(&self.run, &format!("{}-{step}", self.start));
        if ranks.rank() == 0 {
            fs::create_dir_all(&folder).map_err(|source| TrainerError::write(&folder, source))?;
        }
        let layout = training.model.layout();
        // After the arrays: what a GPU of one rank is told is part of the trainer's identity, and stays as it is.
        let complete = |state: State| Ok::<_, TrainerError>(state.with_histories(&training.model.linears.histories()?));
        self.flight = match self.way {
            Way::First => {
                let Some((arrays, state)) = training.collect()?.zip(state) else { return Ok(()) };
                let (state, run, aside) = (complete(state)?, self.run.clone(), folder.clone());
                let then = move |shard| put_in_place(&run, &aside, &state.with_shards(vec![shard]));
                Flight::Placing(self.write((folder, WHOLE.to_owned()), (layout, ShardRanges::one(0..layout.total)), arrays, then)?)
            }
            Way::Together => {
                // Until the folder is there.
                ranks.barrier()?;
                let (ranges, file) = (training.shard().clone(), format!("state-{}-of-{}.safetensors", ranks.rank(), ranks.size()));
                let shard = if ranges.is_empty() {
                    Task::Done(None)
                } else {
                    self.write((folder.clone(), file), (layout, ranges), training.own()?, |shard| Ok(Some(shard)))?
                };
                Flight::Shards { folder, shard, state: state.map(complete).transpose()?.map(Box::new) }
            }
        };
        Ok(())
    }

    /// Writes a shard into a folder, then does `then`: of a copy in a thread, where there is memory for it.
    fn write<T: Send + 'static>(
        &self,
        (folder, file): (PathBuf, String),
        (layout, ranges): (&Layout, ShardRanges),
        arrays: [Cow<'_, [f32]>; 3],
        then: impl FnOnce(Shard) -> Result<T, TrainerError> + Send + 'static,
    ) -> Result<Task<T>, TrainerError> {
        // Of several ranks the others may still be writing into the folder, and are to fail of nothing else than what this one does.
        let is_alone = self.way == Way::First;
        let work = move |layout: &Layout, arrays: [&[f32]; 3]| {
            let result = shard::write(&folder, file, layout, &ranges, arrays).and_then(then);
            result.inspect_err(|_| {
                if is_alone {
                    remove(&folder)
                }
            })
        };
        if !self.copies {
            return work(layout, arrays.each_ref().map(|array| &**array)).map(Task::Done);
        }
        let (layout, arrays) = (layout.clone(), arrays.map(Cow::into_owned));
        Task::start(move || work(&layout, arrays.each_ref().map(|array| &array[..])))
    }

    /// Whether this rank's shard of a checkpoint is on disk and waits for [`Writer::place`].
    ///
    /// # Errors
    /// What was begun has failed.
    pub fn is_written(&mut self) -> Result<bool, TrainerError> {
        match std::mem::replace(&mut self.flight, Flight::None) {
            Flight::Shards { folder, shard, state } if shard.is_over() => {
                let shard = Task::Done(shard.wait()?);
                self.flight = Flight::Shards { folder, shard, state };
                Ok(true)
            }
            Flight::Placing(task) if task.is_over() => task.wait().map(|()| false),
            other => {
                self.flight = other;
                Ok(false)
            }
        }
    }

    /// When the shards of all ranks are on disk (it waits for that), rank 0 begins to put the checkpoint in place.
    pub fn place<D: Device>(&mut self, ranks: &dyn Ranks<D>) -> Result<(), TrainerError> {
        let (folder, shard, state) = match std::mem::replace(&mut self.flight, Flight::None) {
            Flight::Shards { folder, shard, state } => (folder, shard, state),
            other => {
                self.flight = other;
                return Ok(());
            }
        };
        let wrong = |error: serde_json::Error| TrainerError::Machine(format!("a rank does not say what it wrote: {error}"));
        let own = shard.wait()?;
        let all = ranks.gather(&serde_json::to_vec(&own).map_err(wrong)?)?;
        let Some(state) = state else { return Ok(()) };
        let shards = all.iter().map(|said| serde_json::from_slice::<Option<Shard>>(said)).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let (state, run) = (state.with_shards(shards.into_iter().flatten().collect()), self.run.clone());
        self.flight = Flight::Placing(Task::start(move || put_in_place(&run, &folder, &state).inspect_err(|_| remove(&folder)))?);
        Ok(())
    }

    /// Waits until nothing is on its way.
    pub fn finish<D: Device>(&mut self, ranks: &dyn Ranks<D>) -> Result<(), TrainerError> {
        self.place(ranks)?;
        match std::mem::replace(&mut self.flight, Flight::None) {
            Flight::Placing(task) => task.wait(),
            _ => Ok(()),
        }
    }
}

/// A folder of which nothing comes any more.
fn remove(folder: &Path) {
    // A leftover does no harm; the next start removes it.
    let _ = fs::remove_dir_all(folder);
}

/// Whether all ranks can write into a folder that rank 0 makes; it is gone afterwards.
fn see_one_folder<D: Device>(ranks: &dyn Ranks<D>, folder: &Path) -> Result<bool, TrainerError> {
    if ranks.rank() == 0 {
        fs::create_dir_all(folder).map_err(|source| TrainerError::write(folder, source))?;
    }
    ranks.barrier()?;
    let writes = ranks.rank() == 0 || File::create_new(folder.join(format!("rank-{}", ranks.rank()))).is_ok();
    let all = ranks::all(ranks, writes)?;
    if ranks.rank() == 0 {
        remove(folder);
    }
    Ok(all)
}
