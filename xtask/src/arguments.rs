//! Every command and option, with its help and an example.

mod kernels;
mod manner;
mod runs;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use kernels::{DeviceTest, KernelsBench, KernelsBuild};
pub(crate) use manner::Manner;
pub(crate) use runs::{Audit, Replicate, Train, Try};

const EXIT_CODES: &str = "Exit codes: 0 done; 1 a run failed or a check found a difference; 2 usage or manifest error; \
3 data or a file is missing or wrong; 4 this machine cannot do it (a full disk, too); 5 the time given was up with runs left; 130 interrupted (the same command goes on where it stopped).";

/// Which claims of a paper hold on this machine, and how sure are we?
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXIT_CODES, disable_version_flag = true)]
pub(crate) struct Arguments {
    /// One line: the version and the commit
    #[arg(long, short = 'V')]
    pub(crate) version: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What `cargo xtask` alone says.
pub(crate) const FIRST_STEPS: &str = "\
Which claims of a paper hold on this machine, and how sure are we?

First, whether everything works here (any CPU; the first call builds for some minutes):
  cargo xtask doctor                      what this machine has, and what each profile lacks on it
  cargo xtask replicate --profile smoke   the whole pipeline once, tiny: under a minute

Then the campaign, or a question of your own:
  cargo xtask replicate                   5 to 13 minutes on two cores; ends with a report
  cargo xtask try mine.yaml               a recipe of yours beside the paper's (docs/recipes.md)
  cargo xtask verify results/DIR          a committed result, recomputed from its raw data

All commands: cargo xtask --help. Interrupted? The same command goes on.
";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run one recipe of your own beside the baseline and the rows of Table 1: from an idea to a number
    #[command(
        after_help = "Finished runs are reused, so that later tries train the new recipe alone. Nothing is added to manifests/, and no time is measured.\ndocs/recipes.md has every key of a recipe.\nExamples:\n  cargo xtask try mine.yaml\n  cargo xtask try mine.yaml --profile smoke --seeds 2"
    )]
    Try(Try),
    /// Run a profile, judge the paper's claims, render the report
    #[command(
        after_help = "Examples:\n  cargo xtask replicate\n  cargo xtask replicate --profile smoke\n  cargo xtask replicate --only T1-FDW,H1 --seeds 5\n  cargo xtask replicate --profile llama31-8b --dry-run\n  cargo xtask replicate --profile llama31-8b --gemm hipblaslt\n  cargo xtask replicate --profile h200-s --on slurm -- --partition=gpu --account=mine"
    )]
    Replicate(Box<Replicate>),
    /// What the kernels reach on every device found: against its peaks, each other and peers; under 3 minutes on a CPU, peers not counted
    #[command(
        after_help = "Examples:\n  cargo xtask kernels-bench\n  cargo xtask kernels-bench --quick\n  cargo xtask kernels-bench --only gemm/mxfp4 --threads 1,2\n  cargo xtask kernels-bench --deep --peers\n  cargo xtask kernels-bench --device cuda:1 --peers /path/to/python3\n  cargo xtask kernels-bench --device hip\n  cargo xtask kernels-bench --gpus 1,2,4 --peers /path/to/python3\n  cargo xtask kernels-bench --ranks 1,2"
    )]
    KernelsBench(KernelsBench),
    /// Compile the device kernels, twice, and check registers, LDS, spills and instruction counts against their budgets
    #[command(
        after_help = "Examples:\n  cargo xtask kernels-build --arch gfx950\n  CLANG_22=/opt/llvm/bin/clang++ cargo xtask kernels-build --out target/kernels"
    )]
    KernelsBuild(KernelsBuild),
    /// Render a result directory again; measurements are only read
    #[command(
        after_help = "Examples:\n  cargo xtask report results/2026-11-20-xeon-2c-cpu-0123abcd\n  cargo xtask report results/kernels-2026-11-20-xeon-2c"
    )]
    Report {
        /// A result directory of `replicate`, or of `kernels-bench`
        directory: PathBuf,
        /// First copy the public logs of manifests/evidence into a directory that was made without them
        #[arg(long)]
        add_evidence: bool,
        /// First copy the measurements of this directory of `kernels-bench`, made on the same machine, into one that was made without them
        #[arg(long, value_name = "DIR")]
        add_kernels: Option<PathBuf>,
        /// First copy this tree's papers into a directory that the first version of the rules judged: the report then shows both versions
        #[arg(long)]
        judge_again: bool,
    },
    /// Check a result directory: hashes, records against each other, verdicts, tables and report made again from the raw data
    #[command(
        after_help = "Examples:\n  cargo xtask verify results/2026-11-20-xeon-2c-cpu-0123abcd\n  cargo xtask verify results/2026-11-20-xeon-2c-cpu-0123abcd --signer them.pub"
    )]
    Verify {
        /// A result directory, wherever it was made
        directory: PathBuf,
        /// Who must have signed it: a file of public SSH keys, or one such key
        #[arg(long, value_name = "KEY")]
        signer: Option<String>,
        #[command(flatten)]
        manner: Manner,
    },
    /// Sign a result directory, or the statement of an audit, with an SSH key: who vouches for these files (it does not make them true)
    #[command(after_help = "Example:\n  cargo xtask sign results/2026-11-20-xeon-2c-cpu-0123abcd --key ~/.ssh/id_ed25519")]
    Sign {
        /// A result directory whose hashes hold, or a statement that `audit` wrote beside one
        directory: PathBuf,
        /// A private key, or a public one whose private half an SSH agent holds
        #[arg(long)]
        key: PathBuf,
    },
    /// Make randomly drawn runs of a result directory again on this machine, and compare them byte for byte
    #[command(
        after_help = "The way to check a campaign of days in minutes without trusting whoever made it. The outcome is an in-toto statement beside the\ndirectory, which `verify` names. Other bytes end with 1; a campaign on GPUs needs a GPU of the same kind.\nExamples:\n  cargo xtask audit results/2026-11-20-xeon-2c-cpu-0123abcd\n  cargo xtask audit results/2026-11-20-xeon-2c-cpu-0123abcd --runs 3 --draw-seed 7"
    )]
    Audit(Audit),
    /// Two result directories side by side: hash-equal, or by how much not
    #[command(after_help = "Example:\n  cargo xtask compare results/mine results/theirs")]
    Compare {
        /// A result directory
        first: PathBuf,
        /// Another
        second: PathBuf,
    },
    /// All evidence on one page: every claim in every campaign and the public logs, what size does, where they disagree, what is next
    #[command(
        after_help = "Directories that cannot be used are left out, each with its reason. The page has the same bytes wherever it is made.\nExamples:\n  cargo xtask synthesis\n  cargo xtask synthesis --check\n  cargo xtask synthesis results/mine results/theirs --out /tmp/both"
    )]
    Synthesis {
        /// Result directories [default: every one below the folder of the page]
        directories: Vec<PathBuf>,
        /// Folder of index.html, index.csv, index.svg and index.pdf [default: results]
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// Write nothing: are the files there what the directories give?
        #[arg(long)]
        check: bool,
    },
    /// The live state of a campaign, from another terminal or in a browser: runs, losses, time left, GPUs
    #[command(
        after_help = "Reads what trainers write into cache/runs, and as tasks of Slurm into cache/slurm, and disturbs nothing. Ctrl-C ends it, and not the campaign.\nExamples:\n  cargo xtask watch\n  cargo xtask watch --profile h200-s --every 10\n  cargo xtask watch --once > state.txt\n  cargo xtask watch --html target/watch.html --every 30\n  cargo xtask watch --json --every 60 >> watch.jsonl"
    )]
    Watch(Watch),
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
    Doctor {
        /// A trainer to ask for GPUs [default: the one that was built or packed]
        #[arg(long)]
        trainer: Option<PathBuf>,
    },
    /// Every recipe on a GPU against the CPU: operands, kernels, steps, run against run
    #[command(
        name = "device-test",
        after_help = "Examples:\n  cargo xtask device-test\n  cargo xtask device-test --device cuda:1 --out results\n  cargo xtask device-test --gpus 4 --out results\n  cargo xtask device-test --ranks 2\nWithout such a GPU it says `not-run` and ends with 4; a check that does not pass ends with 1."
    )]
    DeviceTest(DeviceTest),
    /// Runs without a report: made for several profiles at once, or carried from one machine's cache to another's
    #[command(
        after_help = "Examples:\n  cargo xtask runs train smoke cpu@1\n  cargo xtask runs export carried\n  cargo xtask runs import carried\n  cargo xtask runs import results/2026-11-20-nvidia-h200-h200-s-0123abcd"
    )]
    Runs {
        #[command(subcommand)]
        command: RunsCommand,
    },
    /// A folder that runs on a machine without cargo: this program, the trainer, manifests, templates and peer scripts
    #[command(after_help = "Example:\n  cargo xtask pack target/pack\n  cd target/pack && ./xtask replicate --profile h200-s")]
    Pack {
        /// The folder; what is in it already, such as a cache, stays
        folder: PathBuf,
    },
    /// A release as one tar file: both programs, what they need, documents, man pages, completions, licences of dependencies, hashes
    #[command(
        after_help = "Builds both; minutes. The harness is static where the host allows it; the trainer is not, because it opens the libraries of\nGPUs, and needs the C library of the machine that built it, or a later one.\nExample:\n  cargo xtask dist --out target/dist"
    )]
    Dist {
        /// Folder for the tar file, its hash, and the folder that it was made from [default: target/dist]
        #[arg(long)]
        out: Option<PathBuf>,
        #[command(flatten)]
        manner: Manner,
    },
    /// What this tree's trainer computes on each kind of device, as hashes; are they those of manifests/identity.yaml?
    #[command(
        after_help = "Builds the trainer and asks it; no GPU is needed. Equal hashes mean equal results, whatever changed in the sources: runs that are finished\nstay so. Others end with 1 and, where the last equal check was made on this machine, with the names of what changed.\nExamples:\n  cargo xtask identity\n  cargo xtask identity --write"
    )]
    Identity {
        /// Results were meant to change: write the hashes to manifests/identity.yaml
        #[arg(long)]
        write: bool,
        #[command(flatten)]
        manner: Manner,
    },
    /// The commit and the sources' hash, as a copy without .git wants them in its file VERSION
    #[command(after_help = "Example:\n  cargo xtask version > VERSION")]
    Version,
    /// A result directory for an archive: a copy, described as an RO-Crate and as a data package
    #[command(
        name = "export-crate",
        after_help = "The directory stays as it is. Its copy lies in the new folder, ro-crate-metadata.json and datapackage.json beside it.\nExample:\n  cargo xtask export-crate results/2026-11-20-xeon-2c-cpu-0123abcd --out target/crate"
    )]
    ExportCrate {
        /// A result directory of `replicate`
        directory: PathBuf,
        /// A new folder [default: the directory's name below target/crate]
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// The weights of a finished run as a folder that Hugging Face transformers loads, with a model card
    #[command(
        name = "export-model",
        after_help = "Runs on a GPU keep their weights with `replicate --keep-weights`.\nExample:\n  cargo xtask export-model mxfp4-fdw-h16/1 --profile smoke --out target/model"
    )]
    ExportModel {
        /// The run, as arm/seed
        run: String,
        /// Of this profile: `cargo xtask list` names them
        #[arg(long, default_value = "cpu")]
        profile: String,
        /// A new folder [default: PROFILE-ARM-SEED below target/models]
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// What a shell needs to complete commands and options of `xtask`
    #[command(
        after_help = "For the program `xtask`, as `cargo install --path xtask` or a release has it.\nExamples:\n  cargo xtask completions bash > ~/.local/share/bash-completion/completions/xtask\n  cargo xtask completions zsh > ~/.zfunc/_xtask"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Pages for `man`: one of all commands, and one for each
    #[command(after_help = "Example:\n  cargo xtask man ~/.local/share/man/man1\n  man xtask-replicate")]
    Man {
        /// Folder for xtask.1 and the others
        folder: PathBuf,
    },
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
pub(crate) struct Watch {
    /// Runs of this profile [default: the one that was last at work]
    #[arg(long)]
    pub(crate) profile: Option<String>,
    /// Look once and no more, as where standard output is no terminal and neither `--json` nor `--html` is given
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every: u64,
    /// Print one JSON object a look, each on a line (docs/files.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write this page at each look, whole or not at all; a browser that shows it loads it again by itself
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
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
    /// Fetch a dataset with cargo, make it from public repositories with git, or take it from a local folder; every hash is checked
    #[command(
        after_help = "A call that was interrupted goes on with the same command: what is fetched stays.\nExamples:\n  cargo xtask data fetch webdocs\n  cargo xtask data fetch webdocs --mirror file:///srv/mirror\n  cargo xtask data fetch webdocs --from ../corpora/webdocs\n  cargo xtask data fetch webdocs --tokens webdocs-8192 --from ../shards"
    )]
    Fetch {
        /// Dataset id
        dataset: String,
        /// Folder that holds its files
        #[arg(long)]
        from: Option<PathBuf>,
        /// Base address of the repositories OWNER/NAME, instead of those on GitHub: an address of https or file
        #[arg(long, value_name = "URL", conflicts_with = "from")]
        mirror: Option<String>,
        /// Take what this tokenizer makes of the dataset (train and validation, .bin and .idx), not the documents
        #[arg(long, value_name = "TOKENIZER", requires = "from")]
        tokens: Option<String>,
        #[command(flatten)]
        manner: Manner,
    },
    /// Read every file and compare its hash with the pinned one
    Verify,
}

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// Make runs of several profiles, the first slice first, so that no GPU waits for a profile's last run; `replicate --finished` reports
    #[command(
        after_help = "Examples:\n  cargo xtask runs train smoke cpu@1\n  cargo xtask runs train dnc-32m-sums@13 ladder-359m:mxfp4-fdw-sr,mxfp4-fdw-h16@11 --minutes 20"
    )]
    Train(Train),
    /// Copy the cache's finished runs to a folder; those that are there already stay
    #[command(after_help = "Example:\n  cargo xtask runs export carried --checkpoints")]
    Export {
        /// The folder
        folder: PathBuf,
        /// Also the checkpoints of runs that are not finished
        #[arg(long)]
        checkpoints: bool,
    },
    /// Take finished runs (and checkpoints) into the cache, after checking that each is what its key says
    #[command(after_help = "Example:\n  cargo xtask runs import carried results/DIR")]
    Import {
        /// What `export` wrote, a cache's runs folder, or a result directory
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number of at least 1".to_owned())
}
