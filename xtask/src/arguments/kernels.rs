//! Options of the commands that build, test and time kernels.

use std::path::{Path, PathBuf};

use bench::kernels_bench::Together;
use bench::{device_test, kernels_bench, kernels_build};
use clap::Args;
use contract::device::DeviceId;
use study::kernels::Depth;

use super::{Manner, positive};

#[derive(Args)]
pub(crate) struct KernelsBuild {
    /// Device architecture
    #[arg(long, default_value = "gfx950")]
    arch: String,
    /// Folder for code objects and kernels.json [default: target/kernels/ARCH]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Write the hashes to kernels/ARCH/pinned.yaml, for the compiler that is here, instead of comparing with it
    #[arg(long)]
    pin: bool,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

impl KernelsBuild {
    pub(crate) fn request(&self, root: &Path) -> kernels_build::Request {
        let out = self.out.clone().unwrap_or_else(|| root.join("target").join("kernels").join(&self.arch));
        kernels_build::Request { arch: self.arch.clone(), out, pin: self.pin }
    }
}

#[derive(Args)]
pub(crate) struct DeviceTest {
    /// cuda, cuda:N, hip or hip:N
    #[arg(long, default_value = "cuda", value_parser = gpu)]
    device: String,
    /// Instead test that N GPUs of this machine, and half as many, train the bytes of one: by every exchange, with another number in between, and after a rank was killed
    #[arg(long, value_name = "N", conflicts_with = "ranks", value_parser = several)]
    gpus: Option<usize>,
    /// The same by N processes on the CPU
    #[arg(long, value_name = "N", value_parser = several)]
    ranks: Option<usize>,
    /// Decides the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write a result directory below this folder
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "results")]
    out: Option<PathBuf>,
    /// A trainer that was built elsewhere [default: the packed one, else it is built]
    #[arg(long)]
    pub(crate) trainer: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

impl DeviceTest {
    /// The same, as `bench` takes it.
    pub(crate) fn request(&self) -> device_test::Request {
        let Self { device, seed, out, trainer, .. } = self;
        let device = if self.ranks.is_some() { DeviceId::Cpu.to_string() } else { device.clone() };
        device_test::Request { device, ranks: self.gpus.or(self.ranks), seed: *seed, out: out.clone(), trainer: trainer.clone() }
    }
}

/// A number of ranks that the test deals its micro-batches out to.
fn several(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 1 && device_test::ranks::MOST.is_multiple_of(count) => Ok(count),
        _ => Err("must be 2, 4, 8 or 16".to_owned()),
    }
}

fn gpu(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(DeviceId::Cuda(_) | DeviceId::Hip(_)) => Ok(text.to_owned()),
        _ => Err("must be cuda, cuda:N, hip or hip:N; the CPU is what others are compared with".to_owned()),
    }
}

fn bench_device(text: &str) -> Result<String, String> {
    let is_known = text == "all" || text.parse::<DeviceId>().is_ok();
    if is_known { Ok(text.to_owned()) } else { Err("must be all, cpu, cuda, cuda:N, hip or hip:N".to_owned()) }
}

#[derive(Args)]
pub(crate) struct KernelsBench {
    /// all that are found, cpu, cuda, cuda:N, hip or hip:N; what is not here is a row that says what it needs. With hip, what a clock model says of
    /// our kernels stands beside what is measured (modelled; it needs clang 22)
    #[arg(long, default_value = "all", value_parser = bench_device)]
    device: String,
    /// Instead time whole steps of so many GPUs of this machine, each number in turn, at Llama 3.1-8B's shapes; with --peers beside PyTorch's FSDP2.
    /// What of the exchange is not hidden is a column. A number that is not there is a row that says so. --quick takes eight of 32 layers alone
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = positive, conflicts_with = "ranks")]
    gpus: Vec<usize>,
    /// The same by so many processes on the CPU, for a small model
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = positive)]
    ranks: Vec<usize>,
    /// Less than a minute: the reference product and the small step
    #[arg(long)]
    quick: bool,
    /// Every shape, rotation and rounding, with long samples: about half an hour
    #[arg(long, conflicts_with = "quick")]
    deep: bool,
    /// Only what has this in its name, such as gemm/mxfp4 or step/A; with --gpus or --ranks one of several, separated by commas
    #[arg(long, value_name = "FILTER")]
    only: Option<String>,
    /// Threads; with several, each in turn, and bars are judged at the first
    #[arg(long, value_name = "N,M", default_value = "1", value_delimiter = ',', value_parser = positive)]
    threads: Vec<usize>,
    /// Also time the peers that this Python has (PyTorch, torchao, ggml, ...; on a GPU PyTorch's training step), and set them beside ours
    #[arg(long, value_name = "PYTHON", num_args = 0..=1, default_missing_value = "python3")]
    peers: Option<PathBuf>,
    /// On a GPU do not compile the peers' steps: minutes shorter, and unfair to them
    #[arg(long, requires = "peers")]
    peers_eager: bool,
    /// A trainer that was built elsewhere (`cargo xtask pack`) [default: the packed one, else it is built]
    #[arg(long)]
    pub(crate) trainer: Option<PathBuf>,
    /// Where result directories go [default: results]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Name of this machine in the directory's name [default: from its processor]
    #[arg(long)]
    machine: Option<String>,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

impl KernelsBench {
    /// The same, as `bench` takes it.
    pub(crate) fn request(&self, root: &Path) -> kernels_bench::Request {
        let depth = match (self.quick, self.deep) {
            (true, _) => Depth::Quick,
            (_, true) => Depth::Deep,
            _ => Depth::Default,
        };
        let together = |counts: &[usize]| {
            let mut counts = counts.to_vec();
            counts.sort_unstable();
            counts.dedup();
            (!counts.is_empty()).then_some(counts)
        };
        let of_gpus = together(&self.gpus).map(Together::Gpus);
        kernels_bench::Request {
            device: self.device.clone(),
            together: of_gpus.or_else(|| together(&self.ranks).map(Together::Processes)),
            depth,
            only: self.only.clone(),
            threads: self.threads.clone(),
            peers: self.peers.clone(),
            peers_eager: self.peers_eager,
            trainer: self.trainer.clone(),
            out: self.out.clone().unwrap_or_else(|| root.join("results")),
            machine: self.machine.as_deref().map(study::machine::tidy),
        }
    }
}
