//! `trainer run` and `trainer launch`: one run, on one rank or several.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use contract::digest;
use contract::run_file::RunFile;
use kernels::cpu::Cpu;
use kernels::gpu::collectives::Collectives;
use kernels::gpu::{Gpu, Kind};
use trainer::device::Choice;
use trainer::device::gpu::GpuDevice;
use trainer::error::TrainerError;
use trainer::interrupt::Interrupt;
use trainer::ranks::collective::Collective;
use trainer::ranks::machines::{self, Machines};
use trainer::ranks::place::{self, Place};
use trainer::ranks::tcp::{Mesh, Patience, Purpose};
use trainer::ranks::{self, Alone, Ranks, launch};
use trainer::session;

use crate::{Machine, cpu, gpu, keep};

/// What moves numbers between ranks.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Exchange {
    Copies,
    Nccl,
    Host,
}

impl Exchange {
    fn word(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Nccl => "nccl",
            Self::Host => "host",
        }
    }
}

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
    /// Write neither the last step's checkpoint nor the weights (done.json has their hash nevertheless): for campaigns, which keep neither
    #[arg(long)]
    logs_only: bool,
    /// Also write event files for TensorBoard, in FOLDER/PROFILE/ARM/SEED; changes no result
    #[arg(long, value_name = "FOLDER")]
    tensorboard: Option<PathBuf>,
    /// On a GPU keep nothing that backward can make again, even where there is room: the same bits, some per cent slower
    #[arg(long)]
    least_memory: bool,
    /// Seconds to wait for another trainer that is at work on this run
    #[arg(long, default_value_t = 0)]
    wait_for_lock: u64,
    #[command(flatten)]
    together: RankArguments,
}

/// How ranks meet and exchange.
#[derive(Args, Clone)]
pub(crate) struct RankArguments {
    /// How ranks on GPUs exchange numbers: copies (by the copy engines of NVIDIA's GPUs of one machine, everywhere else as nccl; what is
    /// taken if nothing is said), nccl (NCCL or RCCL) or host (through the processor, by TCP); the same bits
    #[arg(long)]
    exchange: Option<Exchange>,
    /// The file of NCCL or RCCL, where the system's loader does not find it or finds another
    #[arg(long, value_name = "FILE")]
    nccl: Option<PathBuf>,
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
        let Self {
            run_file,
            data,
            machine,
            progress,
            logs_only,
            tensorboard,
            least_memory,
            wait_for_lock,
            together: RankArguments { exchange, nccl, rendezvous_timeout, silence_timeout },
        } = self;
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
        words.extend(logs_only.then(|| "--logs-only".into()));
        words.extend(tensorboard.iter().flat_map(|folder| ["--tensorboard".into(), folder.into()]));
        words.extend(least_memory.then(|| "--least-memory".into()));
        words.extend(exchange.iter().flat_map(|exchange| ["--exchange".into(), exchange.word().into()]));
        words.extend(nccl.iter().flat_map(|nccl| ["--nccl".into(), nccl.into()]));
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
    let RunArguments { run_file, data, machine, progress, least_memory, wait_for_lock, logs_only, tensorboard, .. } = arguments;
    let patience = Duration::from_secs(*wait_for_lock);
    let options = session::Options {
        run_file: run_file.clone(),
        data: data.clone(),
        progress: *progress,
        patience,
        logs_only: *logs_only,
        tensorboard: tensorboard.clone(),
    };
    let together = (&arguments.together, std::slice::from_ref(run_file));
    match choice(machine, place)? {
        Choice::Cpu => {
            let (cpu, ranks) = (cpu(machine)?, ranks_on_cpu(together, place)?);
            // Until all are there, an interrupt ends this process at once.
            session::run(&options, &|run: &RunFile| on_cpu(run, &cpu), &Interrupt::install()?, &ranks)
        }
        Choice::Gpu(kind, ordinal) => {
            let gpu = gpu(kind, ordinal)?;
            let ranks = ranks_on(&gpu, kind, together, place)?;
            let device = |run: &RunFile| GpuDevice::among(ranks.size(), gpu.clone(), run, keep(*least_memory));
            session::run(&options, &device, &Interrupt::install()?, &ranks)
        }
    }
}

/// The CPU, if it computes what the run file asks for.
pub(crate) fn on_cpu(run: &RunFile, cpu: &Cpu) -> Result<Cpu, TrainerError> {
    run.gemm.check("the CPU", false).map_err(TrainerError::BadInput)?;
    Ok(cpu.clone())
}

/// The device of this process: of a rank, the one of its number.
pub(crate) fn choice(machine: &Machine, place: Option<&Place>) -> Result<Choice, TrainerError> {
    place.map_or_else(|| Choice::parse(&machine.device), |place| Choice::of_rank(&machine.device, place.local_rank))
}

/// What ranks compute together: these run files, met and exchanged as the arguments say.
pub(crate) type Together<'a> = (&'a RankArguments, &'a [PathBuf]);

/// The ranks that compute on CPUs.
pub(crate) fn ranks_on_cpu(together: Together<'_>, place: Option<&Place>) -> Result<Arc<dyn Ranks<Cpu>>, TrainerError> {
    let RankArguments { exchange, nccl, .. } = together.0;
    if exchange.is_some_and(|exchange| exchange != Exchange::Host) || nccl.is_some() {
        return Err(TrainerError::BadInput(
            "--exchange copies or nccl, --nccl: they are for GPUs; ranks on the CPU take --exchange host".into(),
        ));
    }
    Ok(match place {
        None => Arc::new(Alone),
        Some(place) => Arc::new(meet(together, place, "cpu")?),
    })
}

/// The ranks that compute on GPUs. One alone has nothing to exchange; where it is told how to, it goes that way all the same.
pub(crate) fn ranks_on(
    gpu: &Gpu,
    kind: Kind,
    together: Together<'_>,
    place: Option<&Place>,
) -> Result<Arc<dyn Ranks<GpuDevice>>, TrainerError> {
    let RankArguments { exchange, nccl, rendezvous_timeout, .. } = together.0;
    let place = match (place, exchange) {
        (None, None) => return Ok(Arc::new(Alone)),
        (None, Some(_)) => &Place::alone()?,
        (Some(place), _) => place,
    };
    let described = described(gpu);
    if *exchange == Some(Exchange::Host) {
        return Ok(Arc::new(meet(together, place, &format!("{described}, through the host"))?));
    }
    // Before the others are waited for: what is missing is missing at once.
    let library = Collectives::open(kind, nccl.as_deref()).map_err(|error| TrainerError::Machine(error.to_string()))?;
    let mesh = meet(together, place, &format!("{described}, {}", library.describe()))?;
    let (patience, copies) = (Duration::from_secs(*rendezvous_timeout), *exchange != Some(Exchange::Nccl));
    Ok(Arc::new(Collective::connect(mesh, gpu, library, patience, copies)?))
}

/// What the bits of a run on a GPU rest on beside the program: all ranks have it in common.
fn described(gpu: &Gpu) -> String {
    let gpu = gpu.description();
    let libraries: Vec<String> = gpu.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!("{} {}, {}, {}", gpu.kind, gpu.name, gpu.architecture, libraries.join(", "))
}

/// Meets the other ranks, if the runs can be shared among so many.
fn meet((arguments, run_files): Together<'_>, place: &Place, device: &str) -> Result<Mesh, TrainerError> {
    let mut run_sha256 = String::new();
    for run_file in run_files {
        let loaded = RunFile::load(run_file)?;
        ranks::check_size(&loaded.run, place.size)?;
        run_sha256 += &loaded.sha256;
    }
    let purpose = Purpose { run_sha256, trainer: this_trainer()?, device: device.to_owned() };
    let (rendezvous, silence) = (Duration::from_secs(arguments.rendezvous_timeout), Duration::from_secs(arguments.silence_timeout));
    if place.rank == 0 {
        eprintln!("rank 0 of {}, by {}; the others come to {}, port {} on", place.size, place.source, place.address, place.port + 1);
    }
    Mesh::connect(place, &purpose, Patience { rendezvous, silence }, |error| {
        eprintln!("error: {error}; its ranks are ended in the midst of a step");
        // At once: an orderly exit would wait for what the GPU still waits for.
        #[cfg(unix)]
        // SAFETY: it takes a number and does not return.
        unsafe {
            libc::_exit(i32::from(error.exit_code()))
        };
        #[cfg(not(unix))]
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

/// `--gpus`: the same run with a GPU for each rank.
pub(crate) fn on_gpus(gpus: usize, mut run: RunArguments) -> Result<RunArguments, TrainerError> {
    take_gpus(gpus, &mut run.machine.device)?;
    Ok(run)
}

/// Makes `--device` the kind of GPU of which this machine has so many.
pub(crate) fn take_gpus(gpus: usize, device: &mut String) -> Result<(), TrainerError> {
    if device.contains(':') {
        return Err(TrainerError::BadInput(format!(
            "--device {device}: with --gpus each rank takes its own; name cuda or hip without a number"
        )));
    }
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| [kind.word(), "auto", "cpu"].contains(&device.as_str())).collect();
    let mut problems = Vec::new();
    for kind in &kinds {
        match kind.count() {
            Ok(0) => problems.push(format!("no GPU of the kind {}", kind.word())),
            Ok(count) if count < gpus => {
                return Err(TrainerError::Machine(format!("--gpus {gpus}: this machine has {count} of the kind {}", kind.word())));
            }
            Ok(_) => {
                device.clear();
                device.push_str(kind.word());
                return Ok(());
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if kinds.is_empty() {
        Choice::parse(device)?;
    }
    Err(TrainerError::Machine(format!("--gpus {gpus}: {}", problems.join("; "))))
}

/// Starts the ranks and waits for them.
pub(crate) fn launch(ranks: usize, arguments: &RunArguments) -> Result<(), TrainerError> {
    let machines = machines::of_process()?;
    ranks::check_size(&RunFile::load(&arguments.run_file)?.run, machines.as_ref().map_or(1, |machines| machines.count) * ranks)?;
    if let Some(Machines { number, count, source, .. }) = &machines {
        eprintln!("machine {number} of {count}, by {source}: {ranks} ranks here");
    }
    start(ranks, machines, &arguments.words())
}

/// Starts so many ranks of this program here.
pub(crate) fn start(ranks: usize, machines: Option<Machines>, arguments: &[OsString]) -> Result<(), TrainerError> {
    let interrupt = Interrupt::install()?;
    let program = std::env::current_exe().map_err(|error| TrainerError::Machine(format!("cannot find this program: {error}")))?;
    launch::run(&program, ranks, machines, arguments, &interrupt)
}
