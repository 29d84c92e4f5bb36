//! `trainer step-time`: on one device, or on several ranks together.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use contract::run_file::RunFile;
use trainer::device::gpu::GpuDevice;
use trainer::device::{Choice, Device};
use trainer::error::TrainerError;
use trainer::measure;
use trainer::ranks::{self, Ranks, place};

use crate::run_commands::{self, RankArguments};
use crate::{Machine, cpu, gpu, keep};

#[derive(Args)]
pub(crate) struct StepTimeArguments {
    /// Run files, one an arm
    #[arg(required = true)]
    run_files: Vec<PathBuf>,
    /// Folder with the token files; without it the tokens are random
    #[arg(long)]
    data: Option<PathBuf>,
    /// After each step, a line for every kind of kernel: seconds, calls, operations
    #[arg(long)]
    profile_step: bool,
    /// At the end, a line with the memory that the steps took on the device, where it tells (for one run file alone)
    #[arg(long)]
    memory: bool,
    /// On a GPU keep nothing that backward can make again, even where there is room
    #[arg(long)]
    least_memory: bool,
    /// Measured rounds
    #[arg(long, default_value_t = 15)]
    repeats: u64,
    /// Rounds before them that are not measured
    #[arg(long, default_value_t = 3)]
    warmup: u64,
    /// So many ranks of this machine compute each step together, each on a GPU of its own
    #[arg(long, conflicts_with = "ranks")]
    gpus: Option<usize>,
    /// So many ranks of this machine compute each step together, as processes on the CPU
    #[arg(long)]
    ranks: Option<usize>,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    together: RankArguments,
}

pub(crate) fn run(mut arguments: StepTimeArguments) -> Result<(), TrainerError> {
    let place = place::of_process()?;
    if let Some(gpus) = arguments.gpus {
        run_commands::take_gpus(gpus, &mut arguments.machine.device)?;
    }
    // One rank is this process: one that it started would find itself alone, and start one in its turn.
    if let (None, Some(size)) = (&place, arguments.gpus.or(arguments.ranks).filter(|size| *size != 1)) {
        for file in &arguments.run_files {
            ranks::check_size(&RunFile::load(file)?.run, size)?;
        }
        // Each has the same arguments, and its variables say which rank it is.
        return run_commands::start(size, None, &std::env::args_os().skip(1).collect::<Vec<_>>());
    }
    let (machine, together) = (&arguments.machine, (&arguments.together, arguments.run_files.as_slice()));
    match run_commands::choice(machine, place.as_ref())? {
        Choice::Cpu => {
            let (cpu, ranks) = (cpu(machine)?, run_commands::ranks_on_cpu(together, place.as_ref())?);
            measured(&arguments, &|run: &RunFile| run_commands::on_cpu(run, &cpu), &ranks)
        }
        Choice::Gpu(kind, ordinal) => {
            let gpu = gpu(kind, ordinal)?;
            let ranks = run_commands::ranks_on(&gpu, kind, together, place.as_ref())?;
            let device = |run: &RunFile| GpuDevice::among(ranks.size(), gpu.clone(), run, keep(arguments.least_memory));
            measured(&arguments, &device, &ranks)
        }
    }
}

fn measured<D: Device>(
    arguments: &StepTimeArguments,
    device: &impl Fn(&RunFile) -> Result<D, TrainerError>,
    ranks: &Arc<dyn Ranks<D>>,
) -> Result<(), TrainerError> {
    let StepTimeArguments { run_files, data, profile_step, memory, repeats, warmup, .. } = arguments;
    let options = measure::StepTime { warmup: *warmup, repeats: *repeats, profile: *profile_step, memory: *memory };
    let out = &mut std::io::stdout().lock();
    let result = measure::step_time(run_files, data.as_deref(), options, device, ranks, out).and_then(|()| ranks.barrier());
    match &result {
        Ok(()) => ranks.leave(),
        Err(error) => ranks.abort(error),
    }
    result
}
