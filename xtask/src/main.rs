//! `cargo xtask`: the door. Parses arguments, calls the crates below replication/, prints. No logic of its own.

mod arguments;
mod manual;
mod outcome;
mod print;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bench::{device_test, kernels_bench, kernels_build};
use campaign::error::CampaignError;
use campaign::prepared::Prepared;
use campaign::request::Report;
use campaign::run::Failure as Failed;
use campaign::{
    audit, carry, data, directory, dist, doctor, emit, environment, identity, replicate, run, signature, synthesis, toolchain, watch,
};
use clap::{CommandFactory as _, FromArgMatches as _};
use serde_json::json;
use study::exit::{DATA, MACHINE, USAGE};
use study::identity::Known;
use study::manifest::{ManifestError, Manifests};
use study::render::{self, RenderError};
use study::{compare, deposit, files, judge, kernels, mllog, model_card, plan, public_logs, suggest, verify};

use arguments::{Arguments, Command, DataCommand, DeviceTest, ImportMllog, Replicate, RunsCommand, Try, Watch};
use outcome::{Failure, Outcome};

fn main() -> process::ExitCode {
    let matches = Arguments::command().get_matches();
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    let command = match Arguments::from_arg_matches(&matches) {
        Ok(Arguments { version: true, .. }) => {
            print::out(&format!("xtask {}\n", environment::Version::of(&repository()).line()));
            return process::ExitCode::SUCCESS;
        }
        Ok(Arguments { command: Some(command), .. }) => command,
        Ok(Arguments { command: None, .. }) => {
            print::out(arguments::FIRST_STEPS);
            return process::ExitCode::SUCCESS;
        }
        Err(error) => error.exit(),
    };
    let manner = command.manner();
    let root = repository();
    let here = if command.needs_repository() { present(&root) } else { Ok(()) };
    let result = here.and_then(|()| execute(&root, command, &|line| manner.progress(line)));
    if let Err(failure) = &result {
        print::error(&failure.text);
    }
    outcome::tell(&name, manner, &result);
    process::ExitCode::from(result.map_or_else(|failure| failure.code, |outcome| outcome.code))
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

/// An installed program may be called anywhere; nothing is written where it does not belong.
fn present(root: &Path) -> Result<(), Failure> {
    match root.join("manifests").is_dir() {
        true => Ok(()),
        false => Err(Failure {
            text: format!(
                "{}: no repository of this project, it has no manifests/; go into a clone, or into a folder that `cargo xtask pack` made",
                root.display()
            ),
            code: USAGE,
        }),
    }
}

fn execute(root: &Path, command: Command, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    toolchain::check_named(command.trainer()).map_err(CampaignError::from)?;
    match command {
        Command::Replicate(options) => replicate(root, &options, say),
        Command::Try(options) => try_recipe(root, &options, say),
        Command::KernelsBench(options) => {
            let outcome = kernels_bench::run(root, &options.request(root), &*stop_flag()?, say)?;
            let text = format!("{}written to {}\n", kernels_bench::table(&outcome.document), outcome.directory.display());
            Ok(Outcome::done(text).with("directory", shown(&outcome.directory)))
        }
        Command::KernelsBuild(options) => {
            let request = options.request(root);
            let report = kernels_build::run(root, &request, say)?;
            let text = format!("{}written to {}\n", kernels_build::table(&report), request.out.display());
            let outcome = Outcome::check(report.problems.is_empty(), text).with("directory", shown(&request.out));
            Ok(outcome.with("problems", report.problems.clone()))
        }
        Command::Report { directory, add_evidence: false, add_kernels: None, judge_again: false } if kernels::is_result(&directory) => {
            let outcome = kernels_bench::report(root, &directory)?;
            let (table, page) = (kernels_bench::table(&outcome.document), outcome.directory.join("kernels.html"));
            Ok(Outcome::done(format!("{table}report: {}\n", page.display())))
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
            Ok(Outcome::done(print::report(&directory::report(root, &directory)?)))
        }
        Command::Sign { directory, key } => Ok(Outcome::done(format!("{}: {}\n", directory.display(), signature::sign(&directory, &key)?))),
        Command::Verify { directory, signer, .. } => {
            let mut verification = verify::verify(&directory, Known::load(root).ok().as_ref(), Some(&root.join("paper")))?;
            signature::check(&directory, signer.as_deref(), &mut verification)?;
            let findings: Vec<_> = verification.findings.iter().map(|found| json!({"path": found.path, "what": found.what})).collect();
            let outcome = Outcome::check(verification.holds(), verification.to_string()).with("findings", findings);
            Ok(outcome.with("notes", verification.notes.clone()).with("signature", verification.signature.to_string()))
        }
        Command::Audit(options) => {
            let (manifests, stop) = (Manifests::load(root)?, stop_flag()?);
            let (audit, path) = audit::audit(&manifests, &options.directory, options.draw(), &options.request(root), &stop, say)?;
            let text = format!("{audit}written to {}\n", path.display());
            Ok(Outcome::check(audit.holds(), text).with("statement", shown(&path)).with("said", audit.line()))
        }
        Command::Compare { first, second } => {
            let comparison = compare::compare(&first, &second)?;
            Ok(Outcome::check(comparison.equal(), comparison.to_string()))
        }
        Command::Synthesis { directories, out, check } => {
            let request = synthesis::Request { directories, out: out.unwrap_or_else(|| root.join("results")), check };
            let outcome = synthesis::synthesis(root, &request)?;
            Ok(Outcome::check(outcome.holds(), outcome.to_string()))
        }
        Command::Data { command } => data_command(root, command, say),
        Command::Doctor { trainer } => Ok(Outcome::done(doctor::doctor(root, &Manifests::load(root)?, trainer.as_deref()).to_string())),
        Command::DeviceTest(options) => test_device(root, &options, say),
        Command::Runs { command } => carry_runs(root, command),
        Command::Pack { folder } => {
            carry::pack(root, &folder, say).map_err(CampaignError::from)?;
            let text = format!("packed in {}; data comes with `xtask data fetch` there, or as a folder cache/\n", folder.display());
            Ok(Outcome::done(text))
        }
        Command::Identity { write, .. } => {
            let checked = identity::check(root, write, say).map_err(CampaignError::from)?;
            let outcome = Outcome::check(checked.holds(), checked.to_string());
            Ok(if write { outcome.coded(0) } else { outcome })
        }
        Command::Version => Ok(Outcome::done(environment::Version::of(root).json())),
        Command::List => Ok(Outcome::done(print::list(&Manifests::load(root)?))),
        Command::ImportMllog(options) => import_mllog(&options),
        Command::ExportMllog { directory, out } => {
            let out = out.unwrap_or_else(|| root.join("target").join("mllog").join(name_of(&directory)));
            Ok(Outcome::done(mllog::export(&directory, &out)?.to_string()))
        }
        Command::ExportCrate { directory, out } => {
            let out = out.unwrap_or_else(|| root.join("target").join("crate").join(name_of(&directory)));
            Ok(Outcome::done(deposit::export(&directory, &out)?.to_string()))
        }
        Command::ExportModel { run, profile, out } => export_model(root, &run, &profile, out),
        Command::Watch(options) => watch_campaign(root, &options),
        Command::Dist { out, .. } => {
            let out = out.unwrap_or_else(|| root.join("target").join("dist"));
            let release = dist::dist(root, &out, &manual::all()?, say).map_err(CampaignError::from)?;
            Ok(Outcome::done(release.to_string()).with("archive", shown(&release.archive)).with("sha256", release.sha256.as_str()))
        }
        Command::Completions { shell } => Ok(Outcome::done(manual::completions(shell))),
        Command::Man { folder } => Ok(Outcome::done(manual::write(&folder)?)),
    }
}

/// The last part of a directory's path, wherever it is called from.
fn name_of(directory: &Path) -> OsString {
    directory.canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_owned())).unwrap_or_default()
}

/// A path as a program reads it from an object.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn try_recipe(root: &Path, options: &Try, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let (manifests, arms) = Manifests::load(root)?.with_tried(&options.recipe, &options.profile)?;
    let (request, stop) = (options.request(root, arms), stop_flag()?);
    let report = replicate::replicate(&manifests, &request, &stop, say)?;
    let row = render::tried(&report.directory).map_err(RenderError::from).map_err(CampaignError::from)?;
    Ok(of_campaign(&report, row + &print::end(&report)))
}

/// What a program is told of a campaign's end.
fn of_campaign(report: &Report, text: String) -> Outcome {
    let claim = |claim: &judge::ClaimVerdict| {
        json!({"id": claim.id, "paper": claim.paper, "ours": claim.ours, "interval": claim.interval_text, "verdict": claim.verdict,
               "reason": claim.reason, "evidence": claim.evidence.map(|evidence| evidence.word())})
    };
    let failed = |(run, failure): &(String, Failed)| json!({"run": run, "error": failure.said});
    Outcome::done(text)
        .coded(report.exit_code())
        .with("directory", shown(&report.directory))
        .with("nothing_to_do", report.nothing_to_do)
        .with("claims", report.verdicts.claims().map(claim).collect::<Vec<_>>())
        .with("failed", report.failed.iter().map(failed).collect::<Vec<_>>())
        .with("notes", report.notes.clone())
}

fn test_device(root: &Path, options: &DeviceTest, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    match device_test::run(root, &options.request(), say)? {
        device_test::Outcome::NotRun(missing) => Ok(Outcome::done(format!("not-run: {missing}\n")).coded(MACHINE).with("not_run", missing)),
        device_test::Outcome::Tested(tested, directory) => {
            let written = directory.as_ref().map_or(String::new(), |directory| format!("written to {}\n", directory.display()));
            let outcome = Outcome::check(tested.holds(), format!("{tested}{written}"));
            Ok(outcome.with("directory", directory.as_deref().map(shown)))
        }
    }
}

/// Looks until it is ended, or until nobody reads what it says.
fn watch_campaign(root: &Path, options: &Watch) -> Result<Outcome, Failure> {
    let Watch { profile, once, every, json, html } = options;
    let goes_on = !once && (*json || html.is_some() || std::io::stdout().is_terminal());
    let manifests = html.as_ref().map(|_| Manifests::load(root)).transpose()?;
    loop {
        let watched = watch::look(&watch::places(root), profile.as_deref(), SystemTime::now())?.with_gpus();
        let now = environment::now();
        if let (Some(file), Some(manifests)) = (html, &manifests) {
            let baseline = manifests.baseline(watched.profile.as_str());
            let page = watched.page(baseline, goes_on.then_some(*every), now, &root.join("paper")).map_err(CampaignError::from)?;
            files::write(file, page.as_bytes())?;
        }
        let text = if *json { watched.json(now) + "\n" } else { watched.to_string() };
        let is_read = match () {
            () if !goes_on => {
                let written = html.as_ref().filter(|_| !json).map(|file| format!("written to {}\n", file.display()));
                return Ok(Outcome::done(written.unwrap_or(text)));
            }
            () if *json => print::line(&text),
            () if std::io::stdout().is_terminal() => print::picture(&text),
            () => true,
        };
        if !is_read {
            return Ok(Outcome::done(String::new()));
        }
        std::thread::sleep(Duration::from_secs(*every));
    }
}

fn carry_runs(root: &Path, command: RunsCommand) -> Result<Outcome, Failure> {
    let folders = match command {
        RunsCommand::Export { folder, checkpoints } => {
            let carried = carry::export(root, &folder, checkpoints)?;
            return Ok(Outcome::check(carried.refused.is_empty(), carried.to_string()));
        }
        RunsCommand::Import { folders } => folders,
    };
    let (mut taken, mut failed) = (Vec::new(), Vec::new());
    for folder in &folders {
        match carry::import(root, folder) {
            Ok(carried) => taken.push(carried),
            Err(error) => failed.push(Failure::from(error)),
        }
    }
    let text: String = taken.iter().map(ToString::to_string).collect();
    // One that cannot be read does not keep the others from being taken.
    let Some(code) = failed.first().map(|failure| failure.code) else {
        return Ok(Outcome::check(taken.iter().all(|carried| carried.refused.is_empty()), text));
    };
    let rest = if text.is_empty() { text } else { format!("from the other folders: {}", text.trim_end()) };
    let lines = failed.into_iter().map(|failure| failure.text).chain((!rest.is_empty()).then_some(rest));
    Err(Failure { text: lines.collect::<Vec<_>>().join("\n"), code })
}

/// Findings do not stop the table from being written: it holds what could be read.
fn import_mllog(options: &ImportMllog) -> Result<Outcome, Failure> {
    let reading = mllog::Options { benchmark: options.benchmark.clone(), target: options.target };
    let import = mllog::import(&options.paths, &reading);
    let mut text = import.to_string();
    if let Some(out) = &options.out {
        mllog::table::write(out, &import.records(&options.source_path))?;
        text.push_str(&format!("written to {}\n", out.display()));
    }
    Ok(Outcome::check(import.problems() == 0, text))
}

fn replicate(root: &Path, options: &Replicate, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
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
                Ok(Outcome::done(print::dry_run(root, &manifests, profile, &request, prepared)))
            }
        };
    }
    if let (Some(on), Some(folder)) = (options.on, &options.emit) {
        let commands = emit::emit(&manifests, &request, on.into(), folder, say)?;
        return Ok(Outcome::done(commands.iter().map(|command| format!("{command}\n")).collect::<String>()));
    }
    let report = replicate::replicate(&manifests, &request, &*stop_flag()?, say)?;
    Ok(of_campaign(&report, print::report(&report)))
}

fn why(root: &Path, prepared: &Prepared, name: &str) -> Result<Outcome, Failure> {
    let run = planned(prepared, "--why: ", name)?;
    Ok(Outcome::done(run::why(run, &plan::run_cache(root))? + "\n"))
}

/// A run of the plan by its name, arm/seed.
fn planned<'a>(prepared: &'a Prepared, option: &str, name: &str) -> Result<&'a plan::PlannedRun, Failure> {
    let names: Vec<String> = prepared.plan.runs.iter().map(plan::PlannedRun::name).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    known.iter().position(|known| *known == name).map(|index| &prepared.plan.runs[index]).ok_or_else(|| {
        let path = Manifests::path("profiles", &prepared.plan.profile);
        ManifestError::new(&path, format!("{option}{}", suggest::unknown("run", name, &known))).into()
    })
}

fn export_model(root: &Path, name: &str, profile: &str, out: Option<PathBuf>) -> Result<Outcome, Failure> {
    let manifests = Manifests::load(root)?;
    let prepared = Prepared::new(&manifests, profile, &plan::Selection::default(), None)?.with_earlier_runs();
    let run = planned(&prepared, "", name)?;
    let out = out.unwrap_or_else(|| root.join("target").join("models").join(format!("{profile}-{}-{}", run.arm, run.seed)));
    let card = model_card::export(&plan::run_cache(root).join(run.key()), &out)?;
    Ok(Outcome::done(format!("{card}\nwritten to {}\n", out.display())))
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

fn data_command(root: &Path, command: DataCommand, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let manifests = Manifests::load(root)?;
    match command {
        DataCommand::List | DataCommand::Verify => {
            let states = data::status(&manifests, matches!(command, DataCommand::Verify))?;
            let text: String = states.iter().map(ToString::to_string).collect();
            Ok(Outcome::done(text).coded(if states.iter().all(|state| state.wrong.is_empty()) { 0 } else { DATA }))
        }
        DataCommand::Fetch { dataset, from, mirror, tokens, .. } => {
            let what = match (&tokens, &from) {
                (Some(tokenizer), Some(from)) => {
                    data::fetch_tokens(&manifests, &dataset, tokenizer, from, say)?;
                    format!("{dataset} as tokens of {tokenizer}")
                }
                _ => {
                    let origin = match (&from, &mirror) {
                        (Some(from), _) => data::Origin::Folder(from),
                        (None, Some(mirror)) => data::Origin::Mirror(mirror),
                        (None, None) => data::Origin::Public,
                    };
                    data::fetch(&manifests, &dataset, origin, say)?;
                    dataset
                }
            };
            let text = format!("{what}: here; `cargo xtask data verify` reads it again and compares every hash\n");
            Ok(Outcome::done(text).with("here", what))
        }
    }
}
