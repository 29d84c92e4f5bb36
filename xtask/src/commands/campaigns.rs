//! Commands that make runs, or look at those of a campaign.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use campaign::error::CampaignError;
use campaign::prepared::Prepared;
use campaign::request::Report;
use campaign::run::Failure as Failed;
use campaign::{audit, emit, environment, replicate, run, slices, watch};
use serde_json::{Value, json};
use study::manifest::{ManifestError, Manifests};
use study::render::{self, RenderError};
use study::{files, judge, model_card, plan, suggest};

use super::{shown, stop_flag};
use crate::arguments::{Audit, Replicate, Train, Try, Watch};
use crate::outcome::{Failure, Outcome};
use crate::print;

pub(super) fn replicate(root: &Path, options: &Replicate, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let request = options.request(root);
    let manifests = Manifests::load(root)?;
    options.means.check_gpus(manifests.profile(&request.profile)?, &manifests)?;
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

pub(super) fn try_recipe(root: &Path, options: &Try, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
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

pub(super) fn train(root: &Path, options: &Train, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let (manifests, request) = (Manifests::load(root)?, options.request(root));
    for slice in &options.slices {
        options.means.check_gpus(manifests.profile(&slice.profile)?, &manifests)?;
    }
    if options.dry_run {
        let ahead = slices::ahead(&manifests, &options.slices, &request)?;
        return Ok(Outcome::done(ahead.to_string())
            .with("slices", ahead.slices.iter().map(of_slice_ahead).collect::<Vec<_>>())
            .with("lacks", ahead.lacks));
    }
    let trained = slices::train(&manifests, &options.slices, &request, &*stop_flag()?, say)?;
    let slice = |made: &slices::Made| {
        let failed: Vec<_> = made.failed.iter().map(|(run, failure)| json!({"run": run, "error": failure.said})).collect();
        json!({"slice": made.slice.to_string(), "made": made.now, "finished_before": made.earlier, "left": made.left, "failed": failed})
    };
    Ok(Outcome::done(print::trained(&trained))
        .coded(trained.exit_code())
        .with("slices", trained.slices.iter().map(slice).collect::<Vec<_>>())
        .with("profiles", trained.profiles()))
}

fn of_slice_ahead(ahead: &slices::SliceAhead) -> Value {
    let slices::SliceAhead { slice, earlier, finished, to_make, gpu_minutes, untimed } = ahead;
    json!({"slice": slice.to_string(), "in_earlier_slice": earlier, "finished": finished, "to_make": to_make, "gpu_minutes": gpu_minutes,
           "untimed": untimed})
}

pub(super) fn audit(root: &Path, options: &Audit, say: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    let (manifests, stop) = (Manifests::load(root)?, stop_flag()?);
    let (audit, path) = audit::audit(&manifests, &options.directory, options.draw(), &options.request(root), &stop, say)?;
    let text = format!("{audit}written to {}\n", path.display());
    Ok(Outcome::check(audit.holds(), text).with("statement", shown(&path)).with("said", audit.line()))
}

/// Looks until it is ended, or until nobody reads what it says.
pub(super) fn watch_campaign(root: &Path, options: &Watch) -> Result<Outcome, Failure> {
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

pub(super) fn export_model(root: &Path, name: &str, profile: &str, out: Option<PathBuf>) -> Result<Outcome, Failure> {
    let manifests = Manifests::load(root)?;
    let prepared = Prepared::new(&manifests, profile, &plan::Selection::default(), None)?.with_earlier_runs();
    let run = planned(&prepared, "", name)?;
    let out = out.unwrap_or_else(|| root.join("target").join("models").join(format!("{profile}-{}-{}", run.arm, run.seed)));
    let card = model_card::export(&plan::run_cache(root).join(run.key()), &out)?;
    Ok(Outcome::done(format!("{card}\nwritten to {}\n", out.display())))
}
