//! Commands about machines: their kernels and devices, and what is carried from one to another.

use std::path::{Path, PathBuf};

use bench::{device_test, kernels_bench, kernels_build};
use campaign::error::CampaignError;
use campaign::{carry, data, dist, doctor, identity, toolchain};
use study::exit::{DATA, MACHINE};
use study::manifest::Manifests;

use super::{shown, stop_flag};
use crate::arguments::{DataCommand, DeviceTest, KernelsBench, KernelsBuild};
use crate::manual;
use crate::outcome::{Failure, Outcome};

pub(super) fn kernels_bench(root: &Path, options: &KernelsBench, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let outcome = kernels_bench::run(root, &options.request(root), &*stop_flag()?, say)?;
    let text = format!("{}written to {}\n", kernels_bench::table(&outcome.document), outcome.directory.display());
    Ok(Outcome::done(text).with("directory", shown(&outcome.directory)))
}

pub(super) fn kernels_build(root: &Path, options: &KernelsBuild, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let request = options.request(root);
    let report = kernels_build::run(root, &request, say)?;
    let text = format!("{}written to {}\n", kernels_build::table(&report), request.out.display());
    let outcome = Outcome::check(report.problems.is_empty(), text).with("directory", shown(&request.out));
    Ok(outcome.with("problems", report.problems.clone()))
}

pub(super) fn test_device(root: &Path, options: &DeviceTest, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    match device_test::run(root, &options.request(), say)? {
        device_test::Outcome::NotRun(missing) => Ok(Outcome::done(format!("not-run: {missing}\n")).coded(MACHINE).with("not_run", missing)),
        device_test::Outcome::Tested(tested, directory) => {
            let written = directory.as_ref().map_or(String::new(), |directory| format!("written to {}\n", directory.display()));
            let outcome = Outcome::check(tested.holds(), format!("{tested}{written}"));
            Ok(outcome.with("directory", directory.as_deref().map(shown)))
        }
    }
}

pub(super) fn doctor(root: &Path, trainer: Option<&Path>) -> Result<Outcome, Failure> {
    Ok(Outcome::done(doctor::doctor(root, &Manifests::load(root)?, trainer).to_string()))
}

pub(super) fn identity(root: &Path, write: bool, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let checked = identity::check(root, write, say).map_err(CampaignError::from)?;
    let outcome = Outcome::check(checked.holds(), checked.to_string());
    Ok(if write { outcome.coded(0) } else { outcome })
}

pub(super) fn pack(root: &Path, folder: &Path, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    carry::pack(root, folder, say).map_err(CampaignError::from)?;
    let text = format!(
        "packed in {}, the trainer built with cargo's profile {}; data comes with `xtask data fetch` there, or as a folder cache/\n",
        folder.display(),
        toolchain::PROFILE
    );
    Ok(Outcome::done(text))
}

pub(super) fn dist(root: &Path, out: Option<PathBuf>, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let out = out.unwrap_or_else(|| root.join("target").join("dist"));
    let release = dist::dist(root, &out, &manual::all()?, say).map_err(CampaignError::from)?;
    Ok(Outcome::done(release.to_string()).with("archive", shown(&release.archive)).with("sha256", release.sha256.as_str()))
}

pub(super) fn export_runs(root: &Path, folder: &Path, checkpoints: bool) -> Result<Outcome, Failure> {
    let carried = carry::export(root, folder, checkpoints)?;
    Ok(Outcome::check(carried.refused.is_empty(), carried.to_string()))
}

pub(super) fn import_runs(root: &Path, folders: &[PathBuf]) -> Result<Outcome, Failure> {
    let (mut taken, mut failed) = (Vec::new(), Vec::new());
    for folder in folders {
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

pub(super) fn data_command(root: &Path, command: DataCommand, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
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
