//! Whether the records of a result directory agree with its files and with each other: campaign, environment, runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::ScopedJoinHandle;

use contract::id::Id;
use contract::run_file::RunFile;
use contract::schema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Finding, Verification};
use crate::environment::{self, Environment};
use crate::files::{self, sha256};
use crate::ingredients::Ingredients;
use crate::record::{Campaign, CampaignRun};
use crate::run_folder::{self, Fault};
use crate::same_bytes::{self, SameBytes};

/// The text of a file; a finding when it is missing or not text.
pub(super) fn text(directory: &Path, file: &str, verification: &mut Verification) -> Option<String> {
    match files::read_text(&directory.join(file)) {
        Ok(text) => Some(text),
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
            verification.find(file, "is missing");
            None
        }
        Err(error) => {
            verification.find(file, format!("cannot be read: {}", error.source));
            None
        }
    }
}

/// A JSON file of a known schema; a finding when it is missing, of another schema, or has a key that is not known.
pub(super) fn json<T: DeserializeOwned>(
    directory: &Path,
    file: &str,
    expected: &'static str,
    verification: &mut Verification,
) -> Option<T> {
    let text = text(directory, file, verification)?;
    let value: Value = serde_json::from_str(&text).map_err(|error| verification.find(file, format!("is not JSON: {error}"))).ok()?;
    match value.get("schema").and_then(Value::as_str) {
        Some(found) => schema::require(found, expected).map_err(|error| verification.find(file, error.to_string())).ok()?,
        None => {
            verification.find(file, format!("names no schema; `{expected}` is expected"));
            return None;
        }
    }
    serde_json::from_value(value).map_err(|error| verification.find(file, format!("does not follow {expected}: {error}"))).ok()
}

/// env.json: its schema, and what campaign.json and the runs say of the same things.
pub(super) fn check_environment(directory: &Path, campaign: Option<&Campaign>, verification: &mut Verification) -> Option<Environment> {
    const FILE: &str = "env.json";
    let environment: Environment = json(directory, FILE, environment::SCHEMA, verification)?;
    let Some(campaign) = campaign else { return Some(environment) };
    let dirty = |dirty: bool| if dirty { " with changes" } else { "" };
    let pairs = [
        ("commit", environment.source.commit.clone() + dirty(environment.source.dirty), campaign.commit.clone() + dirty(campaign.dirty)),
        ("day", environment.day(), campaign.date.clone()),
        ("machine", Id::near(&environment.machine()).to_string(), campaign.machine.to_string()),
    ];
    for (what, here, there) in pairs.into_iter().filter(|(_, here, there)| here != there) {
        verification.find(FILE, format!("says {what} {here}, campaign.json says {there}"));
    }
    if environment.device_libraries != environment::libraries(&environment.accelerators) {
        verification.find(FILE, "its device_libraries are not those of its accelerators");
    }
    Some(environment)
}

/// What the directory says of another one's bytes follows its schema; the line that the report has of it is a note.
pub(super) fn check_same_bytes(directory: &Path, present: &BTreeSet<String>, verification: &mut Verification) {
    if present.contains(same_bytes::FILE)
        && let Some(same) = json::<SameBytes>(directory, same_bytes::FILE, same_bytes::SCHEMA, verification)
    {
        verification.notes.push(same.line(directory));
    }
}

/// Every run of campaign.json is there and agrees with its record; no other run is there.
pub(super) fn check_runs(
    directory: &Path,
    campaign: &Campaign,
    environment: Option<&Environment>,
    present: &BTreeSet<String>,
    verification: &mut Verification,
) {
    let compiler = environment.and_then(Environment::trainers_compiler);
    let (mut known, mut runs) = (BTreeSet::new(), Vec::new());
    for run in &campaign.runs {
        let folder = format!("runs/{}/{}", run.arm, run.seed);
        if !known.insert(folder.clone()) {
            verification.find("campaign.json", format!("run {}/{} stands there twice", run.arm, run.seed));
        } else {
            runs.push((run, folder));
        }
    }
    let check = |(run, folder): &(&CampaignRun, String)| {
        let mut of_run = Verification::default();
        check_run(directory, (campaign, compiler.as_deref()), run, folder, present, &mut of_run);
        of_run.findings
    };
    let check_all = &|runs: &[(&CampaignRun, String)]| runs.iter().map(check).collect::<Vec<_>>();
    // A worker that died has looked at nothing: that is a finding, and not a sound run.
    let died = || vec![vec![Finding { path: "runs".to_owned(), what: "could not all be looked at".to_owned() }]];
    // Most of the time goes into unpacking and reading logs: every core takes its share of runs.
    let share = runs.len().div_ceil(std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let found: Vec<Vec<Finding>> = std::thread::scope(|scope| {
        let spawn = |runs| std::thread::Builder::new().spawn_scoped(scope, move || check_all(runs)).map_err(|_| runs);
        let workers: Vec<_> = runs.chunks(share).map(spawn).collect();
        let ended = |worker: Result<ScopedJoinHandle<'_, _>, _>| match worker {
            Ok(worker) => worker.join().unwrap_or_else(|_| died()),
            // Where there is no thread to be had.
            Err(runs) => check_all(runs),
        };
        workers.into_iter().flat_map(ended).collect()
    });
    verification.counts.runs = found.iter().filter(|findings| findings.is_empty()).count();
    verification.findings.extend(found.into_iter().flatten());
    let folder_of = |name: &String| name.split('/').take(3).collect::<Vec<_>>().join("/");
    for name in present.iter().filter(|name| name.starts_with("runs/") && !known.contains(&folder_of(name))) {
        verification.find(name, "belongs to no run of campaign.json");
    }
}

fn check_run(
    directory: &Path,
    (campaign, compiler): (&Campaign, Option<&str>),
    run: &CampaignRun,
    folder: &str,
    present: &BTreeSet<String>,
    verification: &mut Verification,
) {
    let file = |name: &str| format!("{folder}/{name}");
    let Some(run_text) = text(directory, &file("run.yaml"), verification) else { return };
    match RunFile::parse("run.yaml", &run_text).map(|read| read.run) {
        Err(error) => verification.find(file("run.yaml"), format!("is not a run file: {error}")),
        Ok(read) if (&read.profile, &read.arm, read.seed) != (&campaign.profile, &run.arm, run.seed) => verification.find(
            file("run.yaml"),
            format!("is profile {} arm {} seed {}, not what its folder and campaign.json say", read.profile, read.arm, read.seed),
        ),
        Ok(_) => {}
    }
    check_ingredients(directory, (campaign, compiler), run, &file("ingredients.json"), &sha256(run_text.as_bytes()), verification);
    if let Some(error) = run_folder::ran_elsewhere(&directory.join(folder), &campaign.device) {
        verification.find(file("timing.jsonl"), error);
    }
    let (done, failed) = (present.contains(&file("done.json")), present.contains(&file("failed.json")));
    match (run.status.as_str(), done, failed) {
        ("finished", true, false) => {
            for Fault { file: name, what } in run_folder::faults(&directory.join(folder)) {
                verification.find(file(name), what);
            }
        }
        // A run that failed after an earlier success keeps no done.json: the trainer removes it first.
        ("failed", false, _) => {}
        (status, ..) => {
            let here = |name: &str, is: bool| format!("{name} is {}", if is { "there" } else { "missing" });
            let name = if status == "finished" && !done { "done.json" } else { "failed.json" };
            verification.find(
                file(name),
                format!("campaign.json says `{status}`, but {} and {}", here("done.json", done), here("failed.json", failed)),
            );
        }
    }
}

/// The run's key is the hash of its ingredients, which are the run file, and the sources and the device of the campaign.
fn check_ingredients(
    directory: &Path,
    (campaign, compiler): (&Campaign, Option<&str>),
    run: &CampaignRun,
    file: &str,
    run_sha256: &str,
    verification: &mut Verification,
) {
    let Some(text) = text(directory, file, verification) else { return };
    let ingredients: Ingredients = match serde_json::from_str(&text) {
        Ok(ingredients) => ingredients,
        Err(error) => return verification.find(file, format!("is not a list of ingredients: {error}")),
    };
    if ingredients.run != run_sha256 {
        verification.find(file, format!("says that run.yaml has SHA-256 {}, but it has {run_sha256}", ingredients.run));
    }
    if !campaign.is_by(&ingredients.trainer_code) || ingredients.device != campaign.device {
        verification.find(file, "names another trainer or another device than campaign.json");
    }
    if let Some(compiler) = compiler.filter(|compiler| *compiler != ingredients.toolchain) {
        verification.find(file, format!("was compiled by {}, env.json says {compiler}", ingredients.toolchain));
    }
    if ingredients.key() != run.key || text.trim_end() != ingredients.json() {
        verification.find(
            file,
            format!("its key is {}, campaign.json says {} (or it is not written as keys are hashed)", ingredients.key(), run.key),
        );
    }
}
