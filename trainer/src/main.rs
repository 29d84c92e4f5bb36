//! The `trainer` command: arguments in, library calls, exit codes out (docs/files.md). No logic of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use contract::device::{DeviceId, Devices, GpuFacts};
use contract::json::Document as _;
use contract::run_file::RunFile;
use kernels::cpu::{Cpu, InstructionSet};
use kernels::gpu::{Gpu, GpuError, Kind};
use trainer::device::Choice;
use trainer::device::gpu::{Keep, memory_report};
use trainer::error::TrainerError;
use trainer::{device_test, identity, measure};

use run_commands::RunArguments;

#[global_allocator]
static ALLOCATOR: trainer::memory::HugePages = trainer::memory::HugePages;

#[derive(Parser)]
#[command(name = "trainer", about = "One training run from one resolved run file", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone)]
struct Machine {
    /// cpu, cuda, cuda:N, hip, hip:N or auto. Results on the CPU are the same bits everywhere; on a GPU they are the same from run to run
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads of the CPU; results are the same bits for any number
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// auto, scalar, avx2, avx-vnni, avx512, avx512-bf16, amx, neon or neon-dot; results are the same bits for all
    #[arg(long, default_value = "auto")]
    instruction_set: String,
}

#[derive(Subcommand)]
enum Command {
    /// Train to the run file's budget, resuming from its checkpoint if there is one
    ///
    /// Example: trainer run runs/fp8-1/run.yaml --data cache/datasets/rust-crates/tokens
    ///
    /// Under torchrun, srun or mpirun it is one of several ranks that train together, to the same bytes as one (docs/ranks.md).
    Run(RunArguments),
    /// Train on several ranks of this machine, one process each: the same bytes as `run` on one
    ///
    /// Example: trainer launch --ranks 4 runs/fp8-1/run.yaml --data cache/datasets/rust-crates/tokens
    ///
    /// On four GPUs: trainer launch --gpus 4 runs/fp8-1/run.yaml --data cache/datasets/rust-crates/tokens
    ///
    /// Where Kubeflow (PET_NNODES) or SkyPilot (SKYPILOT_NUM_NODES) starts it on several machines, all their ranks train together.
    Launch {
        /// Processes on this machine; the number of all ranks divides batch.accumulation of the run file
        #[arg(long, required_unless_present = "gpus", conflicts_with = "gpus")]
        ranks: Option<usize>,
        /// So many ranks, each on a GPU of its own: rank i on cuda:i or hip:i, of whichever kind is there unless --device says it
        #[arg(long)]
        gpus: Option<usize>,
        #[command(flatten)]
        run: RunArguments,
    },
    /// Time real training steps of several arms, interleaved; JSON lines to stdout
    StepTime(step_time_command::StepTimeArguments),
    /// Time the GEMM passes of each linear, quantisation included, interleaved; JSON lines to stdout
    KernelTime {
        /// Gives the shapes
        run_file: PathBuf,
        /// Measured rounds
        #[arg(long, default_value_t = 15)]
        repeats: u64,
        /// Rounds before them that are not measured
        #[arg(long, default_value_t = 3)]
        warmup: u64,
        #[command(flatten)]
        machine: Machine,
    },
    /// Check in F64 that rotations cancel in every GEMM of the model (claim C-ID); JSON lines to stdout
    RotationIdentity {
        /// Gives the shapes
        run_file: PathBuf,
    },
    /// Compare a GPU with the CPU, kernel by kernel and step by step; JSON lines to stdout, exit code 4 if a check does not pass
    ///
    /// Example: trainer device-test --device cuda runs/*/run.yaml
    DeviceTest {
        /// Small runs, one a recipe; kernels are tested without any
        run_files: Vec<PathBuf>,
        /// cuda, cuda:N, hip, hip:N
        #[arg(long, default_value = "cuda")]
        device: String,
        /// Decides the random inputs
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A few small shapes of each kernel: for a device that is interpreted
        #[arg(long)]
        quick: bool,
    },
    /// What a run needs of a device's memory, each way of keeping things, and what is there
    Memory {
        /// Gives model, batch and recipe
        run_file: PathBuf,
        /// cpu, cuda, cuda:N, hip, hip:N or auto
        #[arg(long, default_value = "cpu")]
        device: String,
        /// Of so many that train together, each on such a device, what one takes
        #[arg(long, default_value_t = 1)]
        ranks: usize,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// The GPUs of this machine, each opened once, and what keeps one from being used; one JSON object
    Devices,
    /// What this trainer computes on each kind of device, as hashes: equal hashes, equal bits; one JSON object
    Identity,
    /// What this trainer is and can use
    Version {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Data(data_commands::DataCommand),
}

mod data_commands;
mod run_commands;
mod step_time_command;

fn main() -> ExitCode {
    // clap itself exits with 2 for wrong usage.
    let arguments = Arguments::parse();
    match execute(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn keep(least_memory: bool) -> Keep {
    if least_memory { Keep::Least } else { Keep::WhatFits }
}

fn execute(command: Command) -> Result<(), TrainerError> {
    match command {
        Command::Run(arguments) => run_commands::run(&arguments),
        Command::Launch { ranks, gpus, run } => match gpus {
            Some(gpus) => run_commands::launch(gpus, &run_commands::on_gpus(gpus, run)?),
            None => run_commands::launch(ranks.unwrap_or_default(), &run),
        },
        Command::StepTime(arguments) => step_time_command::run(arguments),
        Command::KernelTime { run_file, repeats, warmup, machine } => {
            let out = &mut std::io::stdout().lock();
            match Choice::parse(&machine.device)? {
                Choice::Cpu => measure::kernel_time(&run_file, repeats, warmup, &cpu(&machine)?, out),
                Choice::Gpu(kind, ordinal) => measure::kernel_time_on_gpu(&run_file, repeats, warmup, &gpu(kind, ordinal)?, out),
            }
        }
        Command::RotationIdentity { run_file } => measure::rotation_identity(&run_file, &mut std::io::stdout().lock()),
        Command::DeviceTest { run_files, device, seed, quick } => match Choice::parse(&device)? {
            Choice::Cpu => {
                Err(TrainerError::BadInput("--device: the CPU is what others are compared with; use cuda, cuda:N, hip or hip:N".into()))
            }
            Choice::Gpu(kind, ordinal) => {
                device_test::run(&gpu(kind, ordinal)?, &run_files, seed, extent(quick), &mut std::io::stdout().lock())
            }
        },
        Command::Memory { run_file, device, ranks, json } => {
            let run = RunFile::load(&run_file)?.run;
            trainer::ranks::check_size(&run, ranks)?;
            let run = run.micro_batch();
            let report = match Choice::parse(&device)? {
                Choice::Cpu => trainer::memory::report(&run, ranks),
                Choice::Gpu(kind, ordinal) => memory_report(&run, &gpu(kind, ordinal)?, ranks)?,
            };
            if json {
                println!("{}", report.to_json().map_err(|error| TrainerError::Machine(format!("cannot write a line: {error}")))?);
            } else {
                print!("{report}");
            }
            Ok(())
        }
        Command::Devices => {
            println!("{}", devices().to_json().map_err(|error| TrainerError::Machine(format!("cannot write a line: {error}")))?);
            Ok(())
        }
        Command::Identity => {
            let identity = identity::compute()?.to_json_pretty();
            println!("{}", identity.map_err(|error| TrainerError::Machine(error.to_string()))?);
            Ok(())
        }
        Command::Version { json } => {
            println!("{}", if json { version_json() } else { format!("trainer {}", env!("CARGO_PKG_VERSION")) });
            Ok(())
        }
        Command::Data(command) => data_commands::execute(command),
    }
}

fn extent(quick: bool) -> device_test::Extent {
    if quick { device_test::Extent::Quick } else { device_test::Extent::All }
}

fn gpu(kind: Kind, ordinal: usize) -> Result<Gpu, TrainerError> {
    Gpu::open(kind, ordinal).map_err(|error| TrainerError::Machine(format!("--device {}:{ordinal}: {error}", kind.word())))
}

fn cpu(machine: &Machine) -> Result<Cpu, TrainerError> {
    if machine.threads == 0 {
        return Err(TrainerError::BadInput("--threads: 0 threads cannot compute anything; use 1 or more".into()));
    }
    let set = match InstructionSet::parse(&machine.instruction_set) {
        Ok(set) => set,
        Err(error @ kernels::cpu::CpuError::UnknownInstructionSet { .. }) => {
            return Err(TrainerError::BadInput(format!("--instruction-set: {error}")));
        }
        Err(error) => return Err(TrainerError::Machine(format!("--instruction-set: {error}"))),
    };
    Cpu::new(set, machine.threads).map_err(|error| TrainerError::Machine(error.to_string()))
}

/// What the harness that built this said it was built from; null after a plain `cargo build`.
fn build_json() -> serde_json::Value {
    match (option_env!("MXFP4_TRAINER_CODE"), option_env!("MXFP4_TOOLCHAIN")) {
        (Some(code), Some(toolchain)) => serde_json::json!({"trainer_code": code, "toolchain": toolchain}),
        _ => serde_json::Value::Null,
    }
}

fn version_json() -> String {
    let sets: Vec<String> = InstructionSet::ALL.into_iter().filter(|set| set.is_supported()).map(|set| set.to_string()).collect();
    let (version, devices) = (env!("CARGO_PKG_VERSION"), ["cpu", "cuda", "hip"]);
    serde_json::json!({"version": version, "instruction_sets": sets, "devices": devices, "build": build_json()}).to_string()
}

/// One GPU, opened; its name and libraries are left out where it cannot be.
fn gpu_facts(device: DeviceId, opened: Result<Gpu, GpuError>) -> GpuFacts {
    let mut facts = GpuFacts {
        device: device.to_string(),
        name: None,
        architecture: None,
        memory_bytes: None,
        fp8: None,
        mxfp4: None,
        interpreted: false,
        libraries: Vec::new(),
        problem: None,
    };
    match opened {
        Ok(gpu) => {
            let gpu = gpu.description();
            (facts.name, facts.architecture) = (Some(gpu.name.clone()), Some(gpu.architecture.clone()));
            (facts.memory_bytes, facts.fp8, facts.mxfp4) = (Some(gpu.memory), Some(gpu.has_fp8), Some(gpu.has_mxfp4));
            facts.interpreted = gpu.interpreted;
            facts.libraries = gpu.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
        }
        Err(error) => facts.problem = Some(error.to_string()),
    }
    facts
}

/// All GPUs; where there is none, why each kind has none.
fn devices() -> Devices {
    let (mut gpus, mut problems) = (Vec::new(), Vec::new());
    for kind in Kind::ALL {
        let id = |ordinal| if kind == Kind::Hip { DeviceId::Hip(ordinal) } else { DeviceId::Cuda(ordinal) };
        match kind.count() {
            Ok(count) => gpus.extend((0..count).map(|ordinal| gpu_facts(id(ordinal), Gpu::open(kind, ordinal)))),
            Err(error) => problems.push(format!("{}: {error}", kind.word())),
        }
    }
    let problem = Some(problems.join("; ")).filter(|text| gpus.is_empty() && !text.is_empty());
    Devices { gpus, problem }
}
