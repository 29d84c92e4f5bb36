//! A result directory: put together aside, rendered, hashed and moved into place; rendered again later. It holds what was run and measured,
//! the manifests, the machine, and what was made of them; nothing here runs or measures.

use std::path::{Path, PathBuf};

use contract::id::Id;
use contract::json::Document as _;
use study::code_objects;
use study::environment::{Environment, GitState};
use study::files::{self, Context as _, FileError};
use study::folder;
use study::identity::Known;
use study::judge::Verdicts;
use study::kernels;
use study::manifest::ManifestError;
use study::others::{self, Others};
use study::packed;
use study::plan::{self, Plan};
use study::provenance::{self, Renderer};
use study::record::{self, Campaign, CampaignRun};
use study::render::{self, RenderOptions, Unfinished};
use study::results;
use study::run_folder;
use study::same_bytes::{self, SameBytes};

use crate::environment;
use crate::error::CampaignError;
use crate::latex;
use crate::prepared::Prepared;
use crate::request::{Report, Request};
use crate::run::{Failure, Outcome};
use crate::site::{Shown, Site};

/// What a result directory is made of, besides the plan.
pub(crate) struct Parts<'a> {
    /// Of each run of the plan.
    pub(crate) outcomes: &'a [Outcome],
    /// The folder of what was timed after the runs; None: nothing was.
    pub(crate) measured: Option<&'a Path>,
    pub(crate) shown: &'a Shown,
    pub(crate) request: &'a Request,
    pub(crate) site: &'a Site,
    /// The campaign's.
    pub(crate) key: &'a str,
    pub(crate) environment: &'a Environment,
}

/// Puts the result directory together aside, renders it, hashes it, and moves it into place.
pub(crate) fn assemble(root: &Path, prepared: &Prepared, parts: &Parts<'_>) -> Result<Report, CampaignError> {
    let Parts { outcomes, request, key, .. } = *parts;
    // One look at the clock: the record's day and the moment it was captured agree, however the clock jumps.
    let environment = &environment::finished(parts.environment, request.machine.as_deref());
    let campaign = record(prepared, parts, environment);
    let commit = &campaign.commit[..campaign.commit.len().min(8)];
    let base = format!("{}-{}-{}-{commit}", campaign.date, campaign.machine, campaign.profile);
    let target = free_name(&request.out, &base, key);
    let (verdicts, mut notes) = folder::make(&target, |aside| -> Result<_, CampaignError> {
        fill(root, prepared, &Parts { environment, ..*parts }, campaign, aside)?;
        packed::pack(aside, packed::THRESHOLD)?;
        let others: Vec<PathBuf> = environment::committed_results(root).into_iter().filter(|other| *other != target).collect();
        if let Some(same) = SameBytes::find(aside, &others) {
            files::write(&aside.join(same_bytes::FILE), same.json().as_bytes())?;
        }
        finish(root, aside, &target, false)
    })?;
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

/// The report of these parts as a page that calls itself unfinished, and nothing else. What it is made of is left in the folder `aside`.
pub(crate) fn unfinished_page(
    root: &Path,
    prepared: &Prepared,
    parts: &Parts<'_>,
    aside: &Path,
    unfinished: Unfinished,
) -> Result<String, CampaignError> {
    let environment = &environment::finished(parts.environment, parts.request.machine.as_deref());
    fill(root, prepared, &Parts { environment, ..*parts }, record(prepared, parts, environment), aside)?;
    add_others(root, aside, "")?;
    Ok(render::unfinished(aside, &root.join("paper"), unfinished)?)
}

/// What was run, on what and of what, before its runs are listed.
fn record(prepared: &Prepared, parts: &Parts<'_>, environment: &Environment) -> Campaign {
    Campaign {
        schema: record::SCHEMA.into(),
        profile: prepared.plan.profile.clone(),
        papers: prepared.profile().papers.clone(),
        device: prepared.plan.device.word().into(),
        machine: Id::near(&parts.site.machine),
        date: environment.day(),
        commit: environment.source.commit.clone(),
        dirty: environment.source.dirty,
        key: parts.key.to_owned(),
        trainer_code: prepared.build.identities.on(prepared.plan.device).to_owned(),
        carried: prepared.plan.carried.clone(),
        partial: prepared.plan.partial,
        gemm: parts.request.selection.gemm,
        seeds: prepared.plan.seeds.clone(),
        runs: vec![],
    }
}

/// Runs, manifests, measurements and the records of them: all that is not made from what lies there.
fn fill(root: &Path, prepared: &Prepared, parts: &Parts<'_>, mut campaign: Campaign, aside: &Path) -> Result<(), CampaignError> {
    let Parts { outcomes, measured, shown, environment, .. } = *parts;
    for (run, outcome) in prepared.plan.runs.iter().zip(outcomes) {
        let from = plan::run_cache(root).join(run.key());
        let to = aside.join("runs").join(&run.arm).join(run.seed.to_string());
        let finished = from.join("done.json").is_file();
        for name in run_folder::FILES {
            // A failure that was overcome since is not part of the record.
            if from.join(name).is_file() && !(finished && name == run_folder::FAILED) {
                files::copy(&from.join(name), &to.join(name))?;
            }
        }
        let status = if matches!(outcome, Outcome::Failed(_)) { "failed" } else { "finished" };
        campaign.runs.push(CampaignRun { arm: run.arm.clone(), seed: run.seed, key: run.key(), status: status.into() });
    }
    for (name, path) in prepared.manifest_files() {
        files::write(&aside.join("manifests").join(name), &prepared.manifests.bytes(&path).at(&path, "read")?)?;
    }
    if let Some(measured) = measured {
        // Beside them lie their hashes, and what was set aside.
        for name in files::list(measured)?.into_iter().filter(|name| name.ends_with(".jsonl")) {
            files::copy(&measured.join(&name), &aside.join("measurements").join(&name))?;
        }
    }
    for (document, name) in [(&shown.bench, kernels::DOCUMENT), (&shown.code_objects, code_objects::FILE)] {
        if let Some(document) = document {
            files::copy(document, &aside.join("measurements").join(name))?;
        }
    }
    let text = serde_json::to_string_pretty(&campaign).unwrap_or_default() + "\n";
    files::write(&aside.join("campaign.json"), text.as_bytes())?;
    provenance::write_environment(environment, aside)?;
    Ok(())
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
/// `target` is where it will be.
fn finish(root: &Path, directory: &Path, target: &Path, stale: bool) -> Result<(Verdicts, Vec<String>), CampaignError> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    add_others(root, directory, &name)?;
    let templates = root.join("paper");
    let summary = render::render(directory, &templates, &RenderOptions { stale })?;
    let mut notes = summary.warnings;
    notes.extend(latex::pdf(directory, &summary.latex)?);
    notes.extend(same_bytes_line(directory));
    let GitState { commit, dirty, .. } = environment::git_state(root);
    provenance::write_statement(&Renderer { commit, dirty, version: Some(render::version(&templates)), stale }, directory)?;
    provenance::write_sums(directory)?;
    Ok((summary.verdicts, notes))
}

/// What other models showed, for the first picture; `name` is the directory's own. A campaign of which this one has every run, such as its own
/// earlier slice, showed nothing else.
fn add_others(root: &Path, directory: &Path, name: &str) -> Result<(), FileError> {
    let part = SameBytes::read(directory).filter(|same| same.has_all(&root.join("results"), directory));
    let except: Vec<&str> = std::iter::once(name).chain(part.as_ref().map(|same| same.directory.as_str())).collect();
    let Some(others) = Others::of_repository(root, &except) else { return Ok(()) };
    files::write(&directory.join(others::FILE), (others.to_json_pretty().unwrap_or_default() + "\n").as_bytes())
}

/// How many runs are byte for byte those of a committed campaign, where there was one of the same profile.
pub(crate) fn same_bytes_line(directory: &Path) -> Option<String> {
    SameBytes::read(directory).map(|same| same.line(directory))
}

/// Renders a result directory again; runs and measurements are only read. Says when the code has changed since.
pub fn report(root: &Path, directory: &Path) -> Result<Report, CampaignError> {
    results::admit(directory)?;
    let campaign = Campaign::read(directory)?;
    let before = raw_hashes(directory)?;
    let known = Known::load(root).ok();
    let stale = known.as_ref().is_some_and(|known| !known.is_current(&campaign.trainer_code, record::first_run(directory).as_deref()));
    let signed = directory.join(provenance::SIGNATURE).exists();
    let (verdicts, mut notes) = finish(root, directory, directory, stale)?;
    notes.extend(signed.then(|| "its signature was of what it was before and is gone: sign it again".to_owned()));
    notes.extend(stale.then(|| format!("stale: {}", render::STALE)));
    if known.is_none() {
        notes.push(format!("{} is not here, so nobody looked whether this tree's trainer computes what these runs did", Known::PATH));
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

/// Runs that ended with an error, and why.
pub(crate) fn failures(plan: &Plan, outcomes: &[Outcome]) -> Vec<(String, Failure)> {
    let failed = |(run, outcome): (&plan::PlannedRun, &Outcome)| match outcome {
        Outcome::Failed(failure) => Some((run.name(), failure.clone())),
        _ => None,
    };
    plan.runs.iter().zip(outcomes).filter_map(failed).collect()
}
