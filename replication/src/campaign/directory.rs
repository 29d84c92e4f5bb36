//! A result directory: put together aside, rendered, hashed and moved into place; rendered again later. It holds what was run and measured,
//! the manifests, the machine, and what was made of them; nothing here runs or measures.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{CampaignError, Prepared, Report, Request, Site, failures};
use crate::environment::{self, Environment};
use crate::evidence;
use crate::files::{self, Context, FileError};
use crate::fingerprint;
use crate::judge::Verdicts;
use crate::kernels_bench;
use crate::manifest::ManifestError;
use crate::packed;
use crate::plan;
use crate::provenance;
use crate::render::{self, RenderOptions};
use crate::run::{self, Outcome};
use crate::toolchain;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// `mxfp4-campaign/1`.
    pub schema: String,
    pub profile: String,
    pub papers: Vec<String>,
    pub device: String,
    /// Machine's name, as in the directory's.
    pub machine: String,
    /// UTC day it was put together.
    pub date: String,
    /// Git commit, or `none`.
    pub commit: String,
    /// Whether the tree had changes that are not in the commit.
    pub dirty: bool,
    /// Hash of everything that was run and measured: equal keys, equal campaign.
    pub key: String,
    /// Fingerprint of the trainer's and kernels' sources.
    pub trainer_code: String,
    /// Whether runs of the profile are not in it: a selection left them out, or they were not finished.
    pub partial: bool,
    pub seeds: Vec<u64>,
    pub runs: Vec<CampaignRun>,
}

/// One run in campaign.json.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignRun {
    pub arm: String,
    pub seed: u64,
    /// Key in the run cache.
    pub key: String,
    /// `finished` or `failed`.
    pub status: String,
}

/// Puts the result directory together aside, renders it, hashes it, and moves it into place.
pub(super) fn assemble(
    root: &Path,
    prepared: &Prepared,
    outcomes: &[Outcome],
    (measured, bench): (Option<&Path>, Option<&Path>),
    (request, site): (&Request, &Site),
    key: &str,
    environment: &Environment,
) -> Result<Report, CampaignError> {
    let machine = site.machine.clone();
    let date = environment::today();
    let mut campaign = Campaign {
        schema: "mxfp4-campaign/1".into(),
        profile: prepared.plan.profile.clone(),
        papers: prepared.profile().papers.clone(),
        device: prepared.plan.device.word().into(),
        machine: machine.clone(),
        date: date.clone(),
        commit: environment.source.commit.clone(),
        dirty: environment.source.dirty,
        key: key.to_owned(),
        trainer_code: fingerprint::on(prepared.plan.device, &prepared.build.trainer_code).to_owned(),
        partial: prepared.plan.partial,
        seeds: prepared.plan.seeds.clone(),
        runs: vec![],
    };
    let commit = &campaign.commit[..campaign.commit.len().min(8)];
    let base = format!("{date}-{machine}-{}-{commit}", campaign.profile);
    let target = free_name(&request.out, &base, key);
    let aside = request.out.join(format!(".{}.partial", target.file_name().unwrap_or_default().to_string_lossy()));
    files::remove_folder(&aside)?;
    files::make_folder(&aside)?;
    for (run, outcome) in prepared.plan.runs.iter().zip(outcomes) {
        let from = plan::run_cache(root).join(run.key());
        let to = aside.join("runs").join(&run.arm).join(run.seed.to_string());
        let finished = from.join("done.json").is_file();
        for name in run::FILES {
            // A failure that was overcome since is not part of the record.
            if from.join(name).is_file() && !(finished && name == "failed.json") {
                files::copy(&from.join(name), &to.join(name))?;
            }
        }
        let status = if matches!(outcome, Outcome::Failed(_)) { "failed" } else { "finished" };
        campaign.runs.push(CampaignRun { arm: run.arm.clone(), seed: run.seed, key: run.key(), status: status.into() });
    }
    packed::pack(&aside, packed::THRESHOLD)?;
    for (name, path) in prepared.manifest_files() {
        files::copy(&root.join(path), &aside.join("manifests").join(name))?;
    }
    if let Some(measured) = measured {
        for name in files::list(measured)? {
            files::copy(&measured.join(&name), &aside.join("measurements").join(&name))?;
        }
    }
    if let Some(bench) = bench {
        files::copy(bench, &aside.join("measurements").join(kernels_bench::DOCUMENT))?;
    }
    let text = serde_json::to_string_pretty(&campaign).unwrap_or_default() + "\n";
    files::write(&aside.join("campaign.json"), text.as_bytes())?;
    provenance::write_environment(&environment.finished(), &aside)?;
    let (verdicts, mut notes) = finish(root, &aside, None)?;
    replace(&target, &aside)?;
    let now = environment::git_state(root);
    if now.commit != environment.source.commit || now.dirty != environment.source.dirty {
        notes.push("the repository changed while the campaign ran; the record names the commit it started from".into());
    }
    if environment.source.commit == "none" {
        notes.push(environment::NO_COMMIT.into());
    }
    let failed = failures(&prepared.plan, outcomes);
    Ok(Report { directory: target, verdicts, failed, nothing_to_do: false, notes })
}

/// Puts `new` where `target` is; what was there is gone only after.
pub(crate) fn replace(target: &Path, new: &Path) -> Result<(), FileError> {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(".old");
    let old = target.with_file_name(name);
    files::remove_folder(&old)?;
    if target.exists() {
        std::fs::rename(target, &old).at(target, "move aside")?;
    }
    std::fs::rename(new, target).at(target, "move the result directory into place")?;
    files::remove_folder(&old)
}

/// `base`, or `base-2`, `base-3`, ... where another campaign has taken the name.
fn free_name(out: &Path, base: &str, key: &str) -> PathBuf {
    let taken = |path: &Path| {
        let campaign =
            std::fs::read_to_string(path.join("campaign.json")).ok().and_then(|text| serde_json::from_str::<Campaign>(&text).ok());
        path.exists() && campaign.is_none_or(|campaign| campaign.key != key)
    };
    let mut path = out.join(base);
    let mut number = 2;
    while taken(&path) {
        path = out.join(format!("{base}-{number}"));
        number += 1;
    }
    path
}

/// Renders, makes the PDF where LaTeX is, and writes provenance and sums: what `replicate` ends with and `report` repeats.
fn finish(root: &Path, directory: &Path, stale: Option<String>) -> Result<(Verdicts, Vec<String>), CampaignError> {
    let summary = render::render(directory, &root.join("paper"), &RenderOptions { stale })?;
    let mut notes = summary.warnings;
    notes.extend(pdf(directory));
    provenance::write_statement(root, directory)?;
    provenance::write_sums(directory)?;
    Ok((summary.verdicts, notes))
}

/// Runs latexmk in a scratch copy, so that only report.pdf comes back. A line for the reader if there is no PDF.
fn pdf(directory: &Path) -> Option<String> {
    if duct::cmd!("latexmk", "--version").stdout_null().stderr_null().run().is_err() {
        return Some("report.pdf was not made: latexmk is not installed (report.tex is complete)".into());
    }
    let scratch = directory.join(".latex");
    let output = duct::cmd!("latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-outdir=.latex", "report.tex")
        .dir(directory)
        // A fixed date, so that rendering again gives the same PDF.
        .env("SOURCE_DATE_EPOCH", "0")
        .env("FORCE_SOURCE_DATE", "1")
        .stderr_to_stdout()
        .stdout_capture()
        .unchecked()
        .run();
    let line = match output {
        Ok(output) if output.status.success() => match std::fs::rename(scratch.join("report.pdf"), directory.join("report.pdf")) {
            Ok(()) => None,
            Err(error) => Some(format!("report.pdf was not made: {error}")),
        },
        Ok(output) => {
            Some(format!("report.pdf was not made, latexmk says:\n{}", toolchain::last_lines(&String::from_utf8_lossy(&output.stdout), 15)))
        }
        Err(error) => Some(format!("report.pdf was not made: {error}")),
    };
    let _ = std::fs::remove_dir_all(scratch);
    line
}

/// Copies the evidence about the campaign's papers into a result directory that was made without any; what is there stays. The next
/// `report` shows it.
///
/// # Errors
/// When the directory is not a result directory, has evidence already, or cannot be written.
pub fn add_evidence(root: &Path, directory: &Path) -> Result<(), CampaignError> {
    let campaign = record(directory)?;
    let target = directory.join(evidence::FOLDER);
    if target.exists() {
        return Err(ManifestError::new(&target, "is already there; evidence in a result directory is never replaced").into());
    }
    let all = evidence::load(root).map_err(ManifestError::from)?;
    for name in evidence::files_of(&all, &campaign.papers) {
        files::copy(&root.join("manifests").join(&name), &directory.join("manifests").join(&name))?;
    }
    Ok(())
}

pub(crate) fn record(directory: &Path) -> Result<Campaign, CampaignError> {
    let path = directory.join("campaign.json");
    let text = files::read_text(&path)?;
    Ok(serde_json::from_str(&text).map_err(|error| ManifestError::new(&path, format!("is not a campaign record: {error}")))?)
}

/// Renders a result directory again; runs and measurements are only read. Says when the code has changed since.
pub fn report(root: &Path, directory: &Path) -> Result<Report, CampaignError> {
    let campaign = record(directory)?;
    let before = raw_hashes(directory)?;
    // A copy without the sources cannot know.
    let now = fingerprint::of_sources(root).ok();
    let changed = now.as_ref().is_some_and(|now| !fingerprint::is_current(&campaign.trainer_code, now));
    let stale = changed.then(|| "the sources of the trainer or the kernels have changed since these runs".to_owned());
    let (verdicts, mut notes) = finish(root, directory, stale.clone())?;
    notes.extend(stale.map(|why| format!("stale: {why}")));
    if now.is_none() {
        notes.push("the trainer's sources are not here, so nobody looked whether they have changed since these runs".into());
    }
    if raw_hashes(directory)? != before {
        return Err(ManifestError::new(directory, "a run or measurement changed while rendering; restore the directory").into());
    }
    Ok(Report { directory: directory.to_owned(), verdicts, failed: vec![], nothing_to_do: false, notes })
}

/// Hashes of everything that rendering must not touch.
fn raw_hashes(directory: &Path) -> Result<Vec<(String, String)>, FileError> {
    let names = files::list(directory)?
        .into_iter()
        .filter(|name| ["runs/", "measurements/", "manifests/"].iter().any(|start| name.starts_with(start)));
    names.map(|name| files::sha256_file(&directory.join(&name)).map(|hash| (name, hash))).collect()
}
