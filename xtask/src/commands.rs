//! Each command's work: a call of the crates below replication/, and what came of it.

mod campaigns;
mod directories;
mod machines;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use campaign::environment;
use campaign::error::CampaignError;
use campaign::toolchain;
use study::exit::MACHINE;
use study::manifest::Manifests;

use crate::arguments::{Command, RunsCommand};
use crate::outcome::{Failure, Outcome};
use crate::{manual, print};

pub(crate) fn execute(root: &Path, command: Command, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    toolchain::check_named(command.trainer()).map_err(CampaignError::from)?;
    match command {
        Command::Replicate(options) => campaigns::replicate(root, &options, say),
        Command::Try(options) => campaigns::try_recipe(root, &options, say),
        Command::Audit(options) => campaigns::audit(root, &options, say),
        Command::Watch(options) => campaigns::watch_campaign(root, &options),
        Command::ExportModel { run, profile, out } => campaigns::export_model(root, &run, &profile, out),
        Command::Report { directory, add_evidence, add_kernels, judge_again } => {
            let added = directories::Added { evidence: add_evidence, kernels: add_kernels, judged_again: judge_again };
            directories::report(root, &directory, &added)
        }
        Command::Sign { directory, key } => directories::sign(&directory, &key),
        Command::Verify { directory, signer, .. } => directories::verify(root, &directory, signer.as_deref()),
        Command::Compare { first, second } => directories::compare(&first, &second),
        Command::Synthesis { directories, out, check } => directories::synthesis(root, directories, out, check),
        Command::ImportMllog(options) => directories::import_mllog(&options),
        Command::ExportMllog { directory, out } => directories::export_mllog(root, &directory, out),
        Command::ExportCrate { directory, out } => directories::export_crate(root, &directory, out),
        Command::KernelsBench(options) => machines::kernels_bench(root, &options, say),
        Command::KernelsBuild(options) => machines::kernels_build(root, &options, say),
        Command::DeviceTest(options) => machines::test_device(root, &options, say),
        Command::Doctor { trainer } => machines::doctor(root, trainer.as_deref()),
        Command::Identity { write, .. } => machines::identity(root, write, say),
        Command::Data { command } => machines::data_command(root, command, say),
        Command::Runs { command: RunsCommand::Train(options) } => campaigns::train(root, &options, say),
        Command::Runs { command: RunsCommand::Export { folder, checkpoints } } => machines::export_runs(root, &folder, checkpoints),
        Command::Runs { command: RunsCommand::Import { folders } } => machines::import_runs(root, &folders),
        Command::Pack { folder } => machines::pack(root, &folder, say),
        Command::Dist { out, .. } => machines::dist(root, out, say),
        Command::Version => Ok(Outcome::done(environment::Version::of(root).json())),
        Command::List => Ok(Outcome::done(print::list(&Manifests::load(root)?))),
        Command::Completions { shell } => Ok(Outcome::done(manual::completions(shell))),
        Command::Man { folder } => Ok(Outcome::done(manual::write(&folder)?)),
    }
}

/// A path as a program reads it from an object.
fn shown(path: &Path) -> String {
    path.display().to_string()
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
