//! `cargo xtask`: the door. Parses arguments, calls the crates below replication/, prints. No logic of its own.

mod arguments;
mod print;

use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::{device_test, kernels_bench, kernels_build};
use campaign::error::CampaignError;
use campaign::prepared::Prepared;
use campaign::{audit, carry, data, directory, doctor, environment, identity, replicate, run, signature, slurm, synthesis};
use clap::Parser;
use study::exit::{DATA, ExitCode, FAILED, MACHINE};
use study::identity::Known;
use study::manifest::{ManifestError, Manifests};
use study::render::{self, RenderError};
use study::{compare, judge, kernels, mllog, plan, public_logs, suggest, verify};

use arguments::{Arguments, Command, DataCommand, DeviceTest, ImportMllog, Replicate, RunsCommand};

fn main() -> process::ExitCode {
    let arguments = Arguments::parse();
    match execute(&repository(), arguments.command) {
        Ok(code) => process::ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {}", print::plain(&error.text));
            process::ExitCode::from(error.code)
        }
    }
}

/// The repository's root: cargo runs us with the folder of this crate's manifest; a copied program uses the one it lies in. Only one that lies
/// in none takes where it is called, because that may be a stranger's directory, and programs of the repository are run.
fn repository() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let of_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).and_then(|path| path.parent().map(Path::to_owned));
    let above = |path: &Path| {
        path.ancestors().find(|path| path.join("manifests").is_dir() && path.join("Cargo.lock").is_file()).map(Path::to_owned)
    };
    let of_program = || std::env::current_exe().ok().and_then(|program| above(&program));
    of_cargo.or_else(of_program).or_else(|| above(&here)).unwrap_or(here)
}

/// Why a command ended early: what to say, and how the process ends.
struct Failure {
    text: String,
    code: u8,
}

impl<E: ExitCode> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { text: error.to_string(), code: error.exit_code() }
    }
}

fn execute(root: &Path, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Replicate(options) => replicate(root, &options),
        Command::Try(options) => {
            let (manifests, arms) = Manifests::load(root)?.with_tried(&options.recipe, &options.profile)?;
            let (request, stop) = (options.request(root, arms), stop_flag()?);
            let report = replicate::replicate(&manifests, &request, &stop, &|line| eprintln!("{line}"))?;
            print::out(&render::tried(&report.directory).map_err(RenderError::from).map_err(CampaignError::from)?);
            print::end(&report);
            Ok(report.exit_code())
        }
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
            Ok(if report.problems.is_empty() { 0 } else { FAILED })
        }
        Command::Report { directory, add_evidence: false, add_kernels: None, judge_again: false } if kernels::is_result(&directory) => {
            let outcome = kernels_bench::report(root, &directory)?;
            print::out(&format!(
                "{}report: {}\n",
                kernels_bench::table(&outcome.document),
                outcome.directory.join("kernels.html").display()
            ));
            Ok(0)
        }
        Command::Report { directory, add_evidence, add_kernels, judge_again } => {
            if let Some(kernels) = add_kernels {
                kernels_bench::add_to(&directory, &kernels)?;
            }
            if add_evidence {
                public_logs::add(root, &directory)?;
            }
            if judge_again {
                judge::add_second(root, &directory)?;
            }
            let report = directory::report(root, &directory)?;
            print::report(&report);
            Ok(0)
        }
        Command::Sign { directory, key } => {
            print::out(&format!("{}: {}\n", directory.display(), signature::sign(&directory, &key)?));
            Ok(0)
        }
        Command::Verify { directory, signer } => {
            let mut verification = verify::verify(&directory, Known::load(root).ok().as_ref(), Some(&root.join("paper")))?;
            signature::check(&directory, signer.as_deref(), &mut verification)?;
            print::out(&verification.to_string());
            Ok(if verification.holds() { 0 } else { FAILED })
        }
        Command::Audit(options) => {
            let (manifests, stop) = (Manifests::load(root)?, stop_flag()?);
            let say = |line: &str| eprintln!("{line}");
            let (audit, path) = audit::audit(&manifests, &options.directory, options.draw(), &options.request(root), &stop, &say)?;
            print::out(&format!("{audit}written to {}\n", path.display()));
            Ok(if audit.holds() { 0 } else { FAILED })
        }
        Command::Compare { first, second } => {
            let comparison = compare::compare(&first, &second)?;
            print::out(&comparison.to_string());
            Ok(if comparison.equal() { 0 } else { FAILED })
        }
        Command::Synthesis { directories, out, check } => {
            let request = synthesis::Request { directories, out: out.unwrap_or_else(|| root.join("results")), check };
            let outcome = synthesis::synthesis(root, &request)?;
            print::out(&outcome.to_string());
            Ok(if outcome.holds() { 0 } else { FAILED })
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
        Command::Identity { write } => {
            let checked = identity::check(root, write, &|line| eprintln!("{line}")).map_err(CampaignError::from)?;
            print::out(&checked.to_string());
            Ok(if write || checked.holds() { 0 } else { FAILED })
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

fn test_device(root: &Path, options: &DeviceTest) -> Result<u8, Failure> {
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
            Ok(if tested.holds() { 0 } else { FAILED })
        }
    }
}

fn carry_runs(root: &Path, command: RunsCommand) -> Result<u8, Failure> {
    let all = match command {
        RunsCommand::Export { folder, checkpoints } => vec![carry::export(root, &folder, checkpoints)?],
        RunsCommand::Import { folders } => folders.iter().map(|folder| carry::import(root, folder)).collect::<Result<_, _>>()?,
    };
    all.iter().for_each(|carried| print::out(&carried.to_string()));
    Ok(if all.iter().all(|carried| carried.refused.is_empty()) { 0 } else { FAILED })
}

/// Findings do not stop the table from being written: it holds what could be read.
fn import_mllog(options: &ImportMllog) -> Result<u8, Failure> {
    let reading = mllog::Options { benchmark: options.benchmark.clone(), target: options.target };
    let import = mllog::import(&options.paths, &reading);
    print::out(&import.to_string());
    if let Some(out) = &options.out {
        mllog::table::write(out, &import.records(&options.source_path))?;
        print::out(&format!("written to {}\n", out.display()));
    }
    Ok(if import.problems() == 0 { 0 } else { FAILED })
}

fn replicate(root: &Path, options: &Replicate) -> Result<u8, Failure> {
    let request = options.request(root);
    let manifests = Manifests::load(root)?;
    options.check_gpus(&manifests, manifests.profile(&request.profile)?)?;
    if options.dry_run || options.why.is_some() {
        let prepared = Prepared::new(&manifests, &request.profile, &request.selection, request.trainer.as_deref());
        let prepared = prepared.map(Prepared::with_earlier_runs);
        return match &options.why {
            Some(name) => why(root, &prepared?, name),
            None => {
                let profile = &manifests.profiles[&request.profile];
                // Only data that nobody has hashed yet leaves a plan without keys; any other fault is one.
                let prepared = match prepared {
                    Err(error) if manifests.tokenizers[&profile.tokenizer].shards.is_some() => return Err(error.into()),
                    prepared => prepared,
                };
                print::dry_run(root, &manifests, profile, &request, prepared);
                Ok(0)
            }
        };
    }
    if let Some(folder) = &options.emit {
        let scripts = slurm::emit(&manifests, &request, folder, &|line| eprintln!("{line}"))?;
        print::out(&scripts.iter().map(|script| format!("sbatch {}\n", script.display())).collect::<String>());
        return Ok(0);
    }
    let stop = stop_flag()?;
    let report = replicate::replicate(&manifests, &request, &stop, &|line| eprintln!("{line}"))?;
    print::report(&report);
    Ok(report.exit_code())
}

fn why(root: &Path, prepared: &Prepared, name: &str) -> Result<u8, Failure> {
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
fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("stopping: trainers write a checkpoint and end (press again to end at once)");
    })
    .map_err(|error| Failure { text: format!("cannot listen for Ctrl-C, which needs a thread: {error}"), code: MACHINE })?;
    Ok(stop)
}

fn data_command(root: &Path, command: DataCommand) -> Result<u8, Failure> {
    let manifests = Manifests::load(root)?;
    match command {
        DataCommand::List | DataCommand::Verify => {
            let states = data::status(&manifests, matches!(command, DataCommand::Verify))?;
            print::out(&states.iter().map(ToString::to_string).collect::<String>());
            Ok(if states.iter().all(|state| state.wrong.is_empty()) { 0 } else { DATA })
        }
        DataCommand::Fetch { dataset, from, mirror, tokens } => {
            let say = |line: &str| eprintln!("{line}");
            let what = match (&tokens, &from) {
                (Some(tokenizer), Some(from)) => {
                    data::fetch_tokens(&manifests, &dataset, tokenizer, from, &say)?;
                    format!("{dataset} as tokens of {tokenizer}")
                }
                _ => {
                    let origin = match (&from, &mirror) {
                        (Some(from), _) => data::Origin::Folder(from),
                        (None, Some(mirror)) => data::Origin::Mirror(mirror),
                        (None, None) => data::Origin::Public,
                    };
                    data::fetch(&manifests, &dataset, origin, &say)?;
                    dataset
                }
            };
            print::out(&format!("{what}: here; `cargo xtask data verify` reads it again and compares every hash\n"));
            Ok(0)
        }
    }
}
