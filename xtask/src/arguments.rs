//! Every command and option, with its help and an example.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use replication::campaign::{CampaignError, Request};
use replication::kernels_bench::{self, Depth};
use replication::kernels_build;
use replication::machine;
use replication::manifest::{Manifests, Profile};
use replication::plan::Selection;
use replication::run::RunOptions;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 a run failed or a check found a difference; 2 usage or manifest error; \
3 data or a file is missing or wrong; 4 this machine cannot do it (a full disk, too); 130 interrupted (the same command goes on where it stopped).";

/// Which claims of a paper hold on this machine, and how sure are we?
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXIT_CODES, disable_version_flag = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a profile, judge the paper's claims, render the report
    #[command(
        after_help = "Examples:\n  cargo xtask replicate\n  cargo xtask replicate --profile smoke\n  cargo xtask replicate --only T1-FDW,H1 --seeds 5\n  cargo xtask replicate --profile llama31-8b --dry-run"
    )]
    Replicate(Replicate),
    /// What the kernels reach: against the machine's peaks, each other and peers; under 3 minutes, peers not counted
    #[command(
        after_help = "Examples:\n  cargo xtask kernels-bench\n  cargo xtask kernels-bench --quick\n  cargo xtask kernels-bench --only gemm/mxfp4 --threads 1,2\n  cargo xtask kernels-bench --deep --peers"
    )]
    KernelsBench(KernelsBench),
    /// Compile the device kernels, twice, and check registers, LDS, spills and instruction counts against their budgets
    #[command(
        after_help = "Examples:\n  cargo xtask kernels-build --arch gfx950\n  CLANG_22=/opt/llvm/bin/clang++ cargo xtask kernels-build --out target/kernels"
    )]
    KernelsBuild(KernelsBuild),
    /// Render a result directory again; measurements are only read
    #[command(after_help = "Example:\n  cargo xtask report results/2026-11-20-xeon-2c-cpu-0123abcd")]
    Report {
        /// A result directory
        directory: PathBuf,
        /// First copy the public logs of manifests/evidence into a directory that was made without them
        #[arg(long)]
        add_evidence: bool,
    },
    /// Check a result directory: hashes, schemas, verdicts recomputed from the raw data
    #[command(after_help = "Example:\n  cargo xtask verify results/2026-11-20-xeon-2c-cpu-0123abcd")]
    Verify {
        /// A result directory, wherever it was made
        directory: PathBuf,
    },
    /// Two result directories side by side: hash-equal, or by how much not
    #[command(after_help = "Example:\n  cargo xtask compare results/mine results/theirs")]
    Compare {
        /// A result directory
        first: PathBuf,
        /// Another
        second: PathBuf,
    },
    /// Datasets: what is here, what is missing and where it comes from
    #[command(
        after_help = "Examples:\n  cargo xtask data list\n  cargo xtask data fetch rust-crates\n  cargo xtask data fetch webdocs --from ../corpora/webdocs"
    )]
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// What this machine has, and what each profile lacks on it
    #[command(after_help = "Example:\n  cargo xtask doctor")]
    Doctor,
    /// Profiles, recipes and claims
    #[command(after_help = "Example:\n  cargo xtask list")]
    List,
    /// Read MLPerf logs: what each run did, and what is wrong with the log
    #[command(
        name = "import-mllog",
        after_help = "Examples:\n  cargo xtask import-mllog result_0.txt\n  cargo xtask import-mllog results/SYSTEM/llama31_8b --out manifests/evidence/mlperf-llama31-8b/GROUP --source-path SUBMITTER/results/SYSTEM/llama31_8b"
    )]
    ImportMllog(ImportMllog),
    /// Write the runs of a result directory as MLPerf logs, for MLCommons' compliance checker
    #[command(
        name = "export-mllog",
        after_help = "Example:\n  cargo xtask export-mllog results/2026-11-20-xeon-2c-cpu-0123abcd --out target/mllog"
    )]
    ExportMllog {
        /// A result directory
        directory: PathBuf,
        /// A new folder for the logs [default: the directory's name below target/mllog]
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct KernelsBuild {
    /// Device architecture
    #[arg(long, default_value = "gfx950")]
    arch: String,
    /// Folder for code objects and kernels.json [default: target/kernels/ARCH]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl KernelsBuild {
    pub(crate) fn request(&self, root: &Path) -> kernels_build::Request {
        let out = self.out.clone().unwrap_or_else(|| root.join("target").join("kernels").join(&self.arch));
        kernels_build::Request { arch: self.arch.clone(), out }
    }
}

#[derive(Args)]
pub(crate) struct ImportMllog {
    /// Logs, or folders of logs
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Folder for runs.csv and evaluations.csv; without it, nothing is written
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Where the logs lie in their repository: written into the table in place of the folder here
    #[arg(long, requires = "out", default_value = "")]
    pub(crate) source_path: String,
    /// Benchmark whose logs are wanted
    #[arg(long, default_value = "llama31_8b")]
    pub(crate) benchmark: String,
    /// Target loss, nats per token
    #[arg(long, default_value = "3.3")]
    pub(crate) target: f64,
}

#[derive(Subcommand)]
pub(crate) enum DataCommand {
    /// What is here of every dataset
    List,
    /// Fetch a dataset with cargo, or take it from a local folder after checking every hash
    #[command(
        after_help = "Examples:\n  cargo xtask data fetch webdocs\n  cargo xtask data fetch webdocs --from ../corpora/webdocs\n  cargo xtask data fetch webdocs --tokens webdocs-8192 --from ../shards"
    )]
    Fetch {
        /// Dataset id
        dataset: String,
        /// Folder that holds its files
        #[arg(long)]
        from: Option<PathBuf>,
        /// Take what this tokenizer makes of the dataset (train and validation, .bin and .idx), not the documents
        #[arg(long, value_name = "TOKENIZER", requires = "from")]
        tokens: Option<String>,
    },
    /// Read every file and compare its hash with the pinned one
    Verify,
}

#[derive(Args)]
pub(crate) struct KernelsBench {
    /// cpu, cuda or hip
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda", "hip"])]
    device: String,
    /// Less than a minute: the reference product and the small step
    #[arg(long)]
    quick: bool,
    /// Every shape, rotation and rounding, with long samples: about half an hour
    #[arg(long, conflicts_with = "quick")]
    deep: bool,
    /// Only what has this in its name, such as gemm/mxfp4 or step/A
    #[arg(long, value_name = "FILTER")]
    only: Option<String>,
    /// Threads; with several, each in turn, and bars are judged at the first
    #[arg(long, value_name = "N,M", default_value = "1", value_delimiter = ',', value_parser = positive)]
    threads: Vec<usize>,
    /// Also time the peers that this Python has (PyTorch, torchao, ggml, ...), and set them beside ours
    #[arg(long, value_name = "PYTHON", num_args = 0..=1, default_missing_value = "python3")]
    peers: Option<PathBuf>,
    /// Where result directories go [default: results]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Name of this machine in the directory's name [default: from its processor]
    #[arg(long)]
    machine: Option<String>,
}

impl KernelsBench {
    /// The same, as `replication` takes it.
    pub(crate) fn request(&self, root: &Path) -> kernels_bench::Request {
        let depth = match (self.quick, self.deep) {
            (true, _) => Depth::Quick,
            (_, true) => Depth::Deep,
            _ => Depth::Default,
        };
        kernels_bench::Request {
            device: self.device.clone(),
            depth,
            only: self.only.clone(),
            threads: self.threads.clone(),
            peers: self.peers.clone(),
            out: self.out.clone().unwrap_or_else(|| root.join("results")),
            machine: self.machine.as_deref().map(machine::tidy),
        }
    }
}

#[derive(Args)]
pub(crate) struct Replicate {
    /// Which profile to run: `cargo xtask list` names them
    #[arg(long, default_value = "cpu")]
    profile: String,
    /// Only the arms that this paper's claims need (arXiv id)
    #[arg(long)]
    paper: Option<String>,
    /// Only these claims, arms or groups, with the arms they are compared with; comma-separated
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// So many seeds an arm instead of the profile's
    #[arg(long, value_parser = positive)]
    seeds: Option<usize>,
    /// Go on where an earlier campaign stopped (the default)
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// Forget finished runs and measurements of this campaign and do them again
    #[arg(long)]
    fresh: bool,
    /// Say what would be run and what is lacking; run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Say why a run (arm/seed) would be run or reused; run nothing
    #[arg(long, value_name = "RUN")]
    pub(crate) why: Option<String>,
    /// cpu, cuda or hip [default: the profile's]
    #[arg(long, value_parser = ["cpu", "cuda", "hip"])]
    device: Option<String>,
    /// Where result directories go [default: results]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Name of this machine in the directory's name [default: from its processor]
    #[arg(long)]
    machine: Option<String>,
    /// Threads of each trainer; changes no result
    #[arg(long, default_value = "1", value_parser = positive)]
    threads_per_run: usize,
    /// Trainers at once [default: cores / threads per run]; changes no result
    #[arg(long, value_parser = positive)]
    parallel: Option<usize>,
    /// auto, scalar, avx2, avx-vnni or avx512; changes no result
    #[arg(long, default_value = "auto", value_parser = ["auto", "scalar", "avx2", "avx-vnni", "avx512"])]
    instruction_set: String,
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

impl Replicate {
    /// The same, as `replication` takes it.
    pub(crate) fn request(&self, root: &Path) -> Request {
        let parallel = self.parallel.unwrap_or_else(|| (machine::cores() / self.threads_per_run).max(1));
        Request {
            profile: self.profile.clone(),
            selection: Selection { paper: self.paper.clone(), only: self.only.clone(), seeds: self.seeds },
            run: RunOptions { parallel, threads: self.threads_per_run, instruction_set: self.instruction_set.clone(), fresh: self.fresh },
            out: self.out.clone().unwrap_or_else(|| root.join("results")),
            machine: self.machine.as_deref().map(machine::tidy),
        }
    }

    /// `--device` must be the profile's.
    pub(crate) fn check_device(&self, manifests: &Manifests, profile: &Profile) -> Result<(), CampaignError> {
        let device = manifests.hardware[&profile.hardware].device.word();
        match self.device.as_deref() {
            Some(wanted) if wanted != device => {
                let line = format!("--device {wanted}: this profile is for {device}; `cargo xtask list` names the profiles of each device");
                Err(CampaignError::Lacks { profile: profile.id.clone(), lacks: vec![line] })
            }
            _ => Ok(()),
        }
    }
}
