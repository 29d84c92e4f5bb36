//! `trainer run` and `trainer launch`: one run, on one rank or several.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use contract::digest;
use contract::run_file::RunFile;
use kernels::cpu::Cpu;
use kernels::gpu::Gpu;
use trainer::device::Choice;
use trainer::device::gpu::GpuDevice;
use trainer::error::TrainerError;
use trainer::interrupt::Interrupt;
use trainer::ranks::machines::{self, Machines};
use trainer::ranks::place::{self, Place};
use trainer::ranks::tcp::{Mesh, Patience, Purpose};
use trainer::ranks::{self, Alone, Ranks, launch};
use trainer::session;

use crate::{Machine, cpu, gpu, keep};

#[derive(Args, Clone)]
pub(crate) struct RunArguments {
    /// The run file; everything is written beside it
    run_file: PathBuf,
    /// Folder with the token files (and tokenizer.json, which is then copied to the model)
    #[arg(long)]
    data: PathBuf,
    #[command(flatten)]
    machine: Machine,
    /// One line a step to stderr; of several ranks rank 0 writes it
    #[arg(long)]
    progress: bool,
    /// On a GPU keep nothing that backward can make again, even where there is room: the same bits, some per cent slower
    #[arg(long)]
    least_memory: bool,
    /// Seconds to wait for another trainer that is at work on this run
    #[arg(long, default_value_t = 0)]
    wait_for_lock: u64,
    /// Seconds in which all ranks have to come, where there are several
    #[arg(long, default_value_t = 60)]
    rendezvous_timeout: u64,
    /// Seconds without a sign of another rank after which it is given up
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    silence_timeout: u64,
}

impl RunArguments {
    /// As the command line of a rank.
    fn words(&self) -> Vec<OsString> {
        let Self { run_file, data, machine, progress, least_memory, wait_for_lock, rendezvous_timeout, silence_timeout } = self;
        let Machine { device, threads, instruction_set } = machine;
        let mut words: Vec<OsString> = vec!["run".into(), "--data".into(), data.into(), "--device".into(), device.into()];
        words.extend(["--instruction-set".into(), instruction_set.into()]);
        let numbers = [
            ("--threads", *threads as u64),
            ("--wait-for-lock", *wait_for_lock),
            ("--rendezvous-timeout", *rendezvous_timeout),
            ("--silence-timeout", *silence_timeout),
        ];
        words.extend(numbers.into_iter().flat_map(|(name, number)| [name.into(), number.to_string().into()]));
        words.extend(progress.then(|| "--progress".into()));
        words.extend(least_memory.then(|| "--least-memory".into()));
        words.extend(["--".into(), run_file.into()]);
        words
    }
}

/// Runs as the rank that the environment says, or alone.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), TrainerError> {
    let place = place::of_process()?;
    let result = run_at(arguments, place.as_ref());
    match place {
        // Several processes may write to one terminal.
        Some(Place { rank, .. }) => result.map_err(|error| at_rank(rank, error)),
        None => result,
    }
}

fn at_rank(rank: usize, error: TrainerError) -> TrainerError {
    match error {
        TrainerError::Interrupted { .. } => error,
        TrainerError::Elsewhere { code, what } => TrainerError::Elsewhere { code, what: format!("rank {rank} stops: {what}") },
        own => TrainerError::Elsewhere { code: own.exit_code(), what: format!("rank {rank}: {own}") },
    }
}

fn run_at(arguments: &RunArguments, place: Option<&Place>) -> Result<(), TrainerError> {
    let RunArguments { run_file, data, machine, progress, least_memory, wait_for_lock, .. } = arguments;
    let patience = Duration::from_secs(*wait_for_lock);
    let options = session::Options { run_file: run_file.clone(), data: data.clone(), progress: *progress, patience };
    match place.map_or_else(|| Choice::parse(&machine.device), |place| Choice::of_rank(&machine.device, place.local_rank))? {
        Choice::Cpu => {
            let cpu = cpu(machine)?;
            let ranks: Arc<dyn Ranks<Cpu>> = match place {
                None => Arc::new(Alone),
                Some(place) => Arc::new(meet(arguments, place, "cpu")?),
            };
            // Until all are there, an interrupt ends this process at once.
            session::run(&options, &|_: &RunFile| Ok(cpu.clone()), &Interrupt::install()?, &ranks)
        }
        Choice::Gpu(kind, ordinal) => {
            let gpu = gpu(kind, ordinal)?;
            let ranks: Arc<dyn Ranks<GpuDevice>> = match place {
                None => Arc::new(Alone),
                Some(place) => Arc::new(meet(arguments, place, &described(&gpu))?),
            };
            let device = |run: &RunFile| GpuDevice::new(gpu.clone(), run, keep(*least_memory));
            session::run(&options, &device, &Interrupt::install()?, &ranks)
        }
    }
}

/// What the bits of a run on a GPU rest on beside the program: all ranks have it in common.
fn described(gpu: &Gpu) -> String {
    let gpu = gpu.description();
    let libraries: Vec<String> = gpu.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!("{} {}, {}, {}", gpu.kind, gpu.name, gpu.architecture, libraries.join(", "))
}

/// Meets the other ranks, if the run can be shared among so many.
fn meet(arguments: &RunArguments, place: &Place, device: &str) -> Result<Mesh, TrainerError> {
    let loaded = RunFile::load(&arguments.run_file)?;
    ranks::check_size(&loaded.run, place.size)?;
    let purpose = Purpose { run_sha256: loaded.sha256, trainer: this_trainer()?, device: device.to_owned() };
    let (rendezvous, silence) = (Duration::from_secs(arguments.rendezvous_timeout), Duration::from_secs(arguments.silence_timeout));
    if place.rank == 0 {
        eprintln!("rank 0 of {}, by {}; the others come to {}, port {} on", place.size, place.source, place.address, place.port + 1);
    }
    Mesh::connect(place, &purpose, Patience { rendezvous, silence }, |error| {
        eprintln!("error: {error}; its ranks are ended in the midst of a step");
        std::process::exit(i32::from(error.exit_code()));
    })
}

/// Version and hash of the program: two that differ might not compute the same.
fn this_trainer() -> Result<String, TrainerError> {
    let failed =
        |error: std::io::Error| TrainerError::Machine(format!("cannot read this program to compare it with the other ranks': {error}"));
    let program = std::fs::read(std::env::current_exe().map_err(failed)?).map_err(failed)?;
    let mut hash = digest::sha256(&program);
    hash.truncate(16);
    Ok(format!("{} {hash}", env!("CARGO_PKG_VERSION")))
}

/// Starts the ranks and waits for them.
pub(crate) fn launch(ranks: usize, arguments: &RunArguments) -> Result<(), TrainerError> {
    let interrupt = Interrupt::install()?;
    let machines = machines::of_process()?;
    ranks::check_size(&RunFile::load(&arguments.run_file)?.run, machines.as_ref().map_or(1, |machines| machines.count) * ranks)?;
    if let Some(Machines { number, count, source, .. }) = &machines {
        eprintln!("machine {number} of {count}, by {source}: {ranks} ranks here");
    }
    let program = std::env::current_exe().map_err(|error| TrainerError::Machine(format!("cannot find this program: {error}")))?;
    launch::run(&program, ranks, machines, &arguments.words(), &interrupt)
}
