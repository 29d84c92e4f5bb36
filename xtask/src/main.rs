//! `cargo xtask`: the door. Parses arguments, calls the crates below replication/, prints. No logic of its own.

mod arguments;
mod print;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::{device_test, kernels_bench, kernels_build};
use campaign::error::CampaignError;
use campaign::prepared::Prepared;
use campaign::{carry, data, directory, doctor, environment, replicate, run};
use study::files::FileError;
use study::identity::Known;
use study::manifest::{ManifestError, Manifests};
use study::record::RecordError;
use study::{compare, kernels, mllog, plan, public_logs, suggest, verify};

use anyhow::Context as _;
use clap::Parser;

use arguments::{Arguments, Command, DataCommand, DeviceTest, ImportMllog, Replicate, RunsCommand};

/// Exit codes, as `--help` documents them.
const A_CHECK_FAILED: u8 = 1;
const USAGE: u8 = 2;
const DATA: u8 = 3;
const MACHINE: u8 = 4;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match execute(&repository(), arguments.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(exit_code(&error))
        }
    }
}

/// The repository's root: cargo runs us with the folder of this crate's manifest; a copied program uses where it stands.
fn repository() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let of_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).and_then(|path| path.parent().map(Path::to_owned));
    let of_here = here.ancestors().find(|path| path.join("manifests").is_dir() && path.join("Cargo.lock").is_file()).map(Path::to_owned);
    of_cargo.or(of_here).unwrap_or(here)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<CampaignError>() {
        error.exit_code()
    } else if let Some(error) = error.downcast_ref::<kernels_bench::BenchError>() {
        error.exit_code()
    } else if let Some(error) = error.downcast_ref::<data::DataError>() {
        error.exit_code()
    } else if let Some(error) = error.downcast_ref::<RecordError>() {
        error.exit_code()
    } else if let Some(error) = error.downcast_ref::<FileError>() {
        error.exit_code()
    } else if let Some(error) = error.downcast_ref::<kernels_build::BuildError>() {
        error.exit_code()
    } else if error.is::<ManifestError>() {
        USAGE
    } else if error.is::<verify::VerifyError>()
        || error.is::<compare::CompareError>()
        || error.is::<mllog::table::TableError>()
        || error.is::<mllog::ExportError>()
    {
        DATA
    } else {
        A_CHECK_FAILED
    }
}

fn execute(root: &Path, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Replicate(options) => replicate(root, &options),
        Command::KernelsBench(options) => {
            let stop = stop_flag()?;
            let outcome = kernels_bench::run(root, &options.request(root), &stop, &|line| eprintln!("{line}"))?;
            print::out(&format!("{}written to {}\n", kernels_bench::table(&outcome.document), outcome.directory.display()));
            Ok(0)
        }
        Command::KernelsBuild(options) => {
            let request = options.request(root);
            let report = kernels_build::run(root, &request, &|line| eprintln!("{line}"))?;
            print::out(&format!("{}written to {}\n", kernels_build::table(&report), request.out.display()));
            Ok(if report.problems.is_empty() { 0 } else { A_CHECK_FAILED })
        }
        Command::Report { directory, add_evidence: false, add_kernels: None } if kernels::is_result(&directory) => {
            let outcome = kernels_bench::report(root, &directory)?;
            print::out(&format!(
                "{}report: {}\n",
                kernels_bench::table(&outcome.document),
                outcome.directory.join("kernels.html").display()
            ));
            Ok(0)
        }
        Command::Report { directory, add_evidence, add_kernels } => {
            if let Some(kernels) = add_kernels {
                kernels_bench::add_to(&directory, &kernels)?;
            }
            if add_evidence {
                public_logs::add(root, &directory)?;
            }
            let report = directory::report(root, &directory)?;
            print::report(&report);
            Ok(0)
        }
        Command::Verify { directory } => {
            let verification = verify::verify(&directory, Known::load(root).ok().as_ref())?;
            print::out(&verification.to_string());
            Ok(if verification.holds() { 0 } else { A_CHECK_FAILED })
        }
        Command::Compare { first, second } => {
            let comparison = compare::compare(&first, &second)?;
            print::out(&comparison.to_string());
            Ok(if comparison.equal() { 0 } else { A_CHECK_FAILED })
        }
        Command::Data { command } => data_command(root, command),
        Command::Doctor { trainer } => {
            print::out(&doctor::doctor(root, &Manifests::load(root)?, trainer.as_deref()).to_string());
            Ok(0)
        }
        Command::DeviceTest(options) => test_device(root, &options),
        Command::Runs { command } => carry_runs(root, command),
        Command::Pack { folder } => {
            carry::pack(root, &folder, &|line| eprintln!("{line}")).map_err(CampaignError::from)?;
            print::out(&format!("packed in {}; data comes with `xtask data fetch` there, or as a folder cache/\n", folder.display()));
            Ok(0)
        }
        Command::Version => {
            print::out(&environment::Version::of(root).json());
            Ok(0)
        }
        Command::List => {
            print::list(&Manifests::load(root)?);
            Ok(0)
        }
        Command::ImportMllog(options) => import_mllog(&options),
        Command::ExportMllog { directory, out } => {
            let name = directory.canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_owned())).unwrap_or_default();
            let out = out.unwrap_or_else(|| root.join("target").join("mllog").join(name));
            print::out(&mllog::export(&directory, &out)?.to_string());
            Ok(0)
        }
    }
}

fn test_device(root: &Path, options: &DeviceTest) -> anyhow::Result<u8> {
    match device_test::run(root, &options.request(), &|line| eprintln!("{line}"))? {
        device_test::Outcome::NotRun(missing) => {
            print::out(&format!("not-run: {missing}\n"));
            Ok(MACHINE)
        }
        device_test::Outcome::Tested(tested, directory) => {
            print::out(&tested.to_string());
            if let Some(directory) = directory {
                print::out(&format!("written to {}\n", directory.display()));
            }
            Ok(if tested.holds() { 0 } else { A_CHECK_FAILED })
        }
    }
}

fn carry_runs(root: &Path, command: RunsCommand) -> anyhow::Result<u8> {
    let all = match command {
        RunsCommand::Export { folder, checkpoints } => vec![carry::export(root, &folder, checkpoints)?],
        RunsCommand::Import { folders } => folders.iter().map(|folder| carry::import(root, folder)).collect::<Result<_, _>>()?,
    };
    all.iter().for_each(|carried| print::out(&carried.to_string()));
    Ok(if all.iter().all(|carried| carried.refused.is_empty()) { 0 } else { A_CHECK_FAILED })
}

/// Findings do not stop the table from being written: it holds what could be read.
fn import_mllog(options: &ImportMllog) -> anyhow::Result<u8> {
    let reading = mllog::Options { benchmark: options.benchmark.clone(), target: options.target };
    let import = mllog::import(&options.paths, &reading);
    print::out(&import.to_string());
    if let Some(out) = &options.out {
        mllog::table::write(out, &import.records(&options.source_path))?;
        print::out(&format!("written to {}\n", out.display()));
    }
    Ok(if import.problems() == 0 { 0 } else { A_CHECK_FAILED })
}

fn replicate(root: &Path, options: &Replicate) -> anyhow::Result<u8> {
    let request = options.request(root);
    let manifests = Manifests::load(root)?;
    options.check_device(&manifests, manifests.profile(&request.profile)?)?;
    if options.dry_run || options.why.is_some() {
        let prepared = Prepared::new(root, &request.profile, &request.selection, request.trainer.as_deref());
        return match &options.why {
            Some(name) => why(root, &prepared?, name),
            None => {
                let profile = &manifests.profiles[&request.profile];
                // Only data that nobody has hashed yet leaves a plan without keys; any other fault is one.
                let prepared = match prepared {
                    Err(error) if manifests.tokenizers[&profile.tokenizer].shards.is_some() => return Err(error.into()),
                    prepared => prepared,
                };
                print::dry_run(root, &manifests, (profile, request.trainer.as_deref()), prepared);
                Ok(0)
            }
        };
    }
    let stop = stop_flag()?;
    let report = replicate::replicate(root, &request, &stop, &|line| eprintln!("{line}"))?;
    print::report(&report);
    Ok(if report.failed.is_empty() { 0 } else { A_CHECK_FAILED })
}

fn why(root: &Path, prepared: &Prepared, name: &str) -> anyhow::Result<u8> {
    let names: Vec<String> = prepared.plan.runs.iter().map(plan::PlannedRun::name).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(index) = known.iter().position(|known| *known == name) else {
        let path = Manifests::path("profiles", &prepared.plan.profile);
        return Err(ManifestError::new(&path, format!("--why: {}", suggest::unknown("run", name, &known))).into());
    };
    print::out(&(run::why(&prepared.plan.runs[index], &plan::run_cache(root))? + "\n"));
    Ok(0)
}

/// Set by Ctrl-C and by a polite kill; a second one ends the process at once.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("stopping: trainers write a checkpoint and end (press again to end at once)");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

fn data_command(root: &Path, command: DataCommand) -> anyhow::Result<u8> {
    let manifests = Manifests::load(root)?;
    match command {
        DataCommand::List | DataCommand::Verify => {
            let states = data::status(&manifests, matches!(command, DataCommand::Verify))?;
            print::out(&states.iter().map(ToString::to_string).collect::<String>());
            Ok(if states.iter().all(|state| state.wrong.is_empty()) { 0 } else { DATA })
        }
        DataCommand::Fetch { dataset, from, tokens } => {
            let say = |line: &str| eprintln!("{line}");
            let what = match (&tokens, &from) {
                (Some(tokenizer), Some(from)) => {
                    data::fetch_tokens(&manifests, &dataset, tokenizer, from, &say)?;
                    format!("{dataset} as tokens of {tokenizer}")
                }
                _ => {
                    data::fetch(&manifests, &dataset, from.as_deref(), &say)?;
                    dataset
                }
            };
            print::out(&format!("{what}: here; `cargo xtask data verify` reads it again and compares every hash\n"));
            Ok(0)
        }
    }
}
