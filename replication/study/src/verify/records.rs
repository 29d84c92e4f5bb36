//! Whether the records of a result directory agree with its files and with each other: campaign, environment, statement, runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use contract::json::Document;
use contract::outcome::Done;
use contract::run_file::RunIdentity;
use contract::schema;
use contract::yaml;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Verification;
use crate::environment::{self, Environment};
use crate::files::{self, sha256};
use crate::packed;
use crate::plan::Ingredients;
use crate::provenance::{STATEMENT, SUBJECTS};
use crate::record::{Campaign, CampaignRun};
use crate::run_folder;
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

/// env.json: its schema, and the commit that campaign.json names.
pub(super) fn check_environment(directory: &Path, campaign: Option<&Campaign>, verification: &mut Verification) {
    let environment: Option<Environment> = json(directory, "env.json", environment::SCHEMA, verification);
    if let (Some(environment), Some(campaign)) = (environment, campaign)
        && (&environment.source.commit, environment.source.dirty) != (&campaign.commit, campaign.dirty)
    {
        verification.find(
            "env.json",
            format!(
                "says commit {}, campaign.json says {} (or one says dirty and the other does not)",
                environment.source.commit, campaign.commit
            ),
        );
    }
}

/// provenance.json: an in-toto statement whose subjects and manifests have the hashes it says, about the campaign at hand.
pub(super) fn check_statement(directory: &Path, campaign: Option<&Campaign>, verification: &mut Verification) {
    let Some(text) = text(directory, STATEMENT, verification) else { return };
    let statement: Value = match serde_json::from_str(&text) {
        Ok(statement) => statement,
        Err(error) => return verification.find(STATEMENT, format!("is not JSON: {error}")),
    };
    let word = |pointer: &str| statement.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    for (pointer, expected) in [("/_type", "https://in-toto.io/Statement/v1"), ("/predicateType", "https://slsa.dev/provenance/v1")] {
        if word(pointer) != expected {
            verification.find(STATEMENT, format!("`{pointer}` is `{}`, not `{expected}`", word(pointer)));
        }
    }
    let subjects = resources(&statement, "/subject");
    for name in SUBJECTS {
        check_resource(directory, name, subjects.get(name), verification);
    }
    let dependencies = resources(&statement, "/predicate/buildDefinition/resolvedDependencies");
    let manifests = files::list(&directory.join("manifests")).unwrap_or_default();
    for name in manifests.iter().map(|name| format!("manifests/{name}")) {
        check_resource(directory, &name, dependencies.get(name.as_str()), verification);
    }
    if let Some(campaign) = campaign {
        let said = word("/predicate/runDetails/metadata/invocationId");
        if said != campaign.key {
            verification.find(STATEMENT, format!("is about campaign `{said}`, not `{}`", campaign.key));
        }
    }
}

/// Name -> SHA-256 of the resource descriptors at a place of the statement.
fn resources<'a>(statement: &'a Value, pointer: &str) -> BTreeMap<&'a str, &'a str> {
    let list = statement.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|item| Some((item.get("name")?.as_str()?, item.pointer("/digest/sha256")?.as_str()?))).collect()
}

fn check_resource(directory: &Path, name: &str, said: Option<&&str>, verification: &mut Verification) {
    // A missing file has its own finding.
    let Ok(found) = files::sha256_file(&directory.join(name)) else { return };
    match said {
        Some(said) if **said == found => {}
        Some(said) => verification.find(STATEMENT, format!("says that {name} has SHA-256 {said}, but it has {found}")),
        None => verification.find(STATEMENT, format!("does not name {name}")),
    }
}

/// The archived profile is the campaign's, with its papers.
pub(super) fn check_manifests(directory: &Path, campaign: &Campaign, verification: &mut Verification) {
    #[derive(Deserialize)]
    struct Profile {
        id: String,
        papers: Vec<String>,
    }
    const FILE: &str = "manifests/profile.yaml";
    let Some(text) = text(directory, FILE, verification) else { return };
    match yaml::from_str::<Profile>(&text) {
        Ok(profile) if profile.id == campaign.profile && profile.papers == campaign.papers => {}
        Ok(profile) => verification.find(
            FILE,
            format!(
                "is profile {} on papers {}; campaign.json says {} on {}",
                profile.id,
                profile.papers.join(", "),
                campaign.profile,
                campaign.papers.join(", ")
            ),
        ),
        Err(error) => verification.find(FILE, format!("is not a profile: {error}")),
    }
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
pub(super) fn check_runs(directory: &Path, campaign: &Campaign, present: &BTreeSet<String>, verification: &mut Verification) {
    let mut known = BTreeSet::new();
    for run in &campaign.runs {
        let folder = format!("runs/{}/{}", run.arm, run.seed);
        if !known.insert(folder.clone()) {
            verification.find("campaign.json", format!("run {}/{} stands there twice", run.arm, run.seed));
            continue;
        }
        let before = verification.findings.len();
        check_run(directory, campaign, run, &folder, present, verification);
        if verification.findings.len() == before {
            verification.counts.runs += 1;
        }
    }
    let folder_of = |name: &String| name.split('/').take(3).collect::<Vec<_>>().join("/");
    for name in present.iter().filter(|name| name.starts_with("runs/") && !known.contains(&folder_of(name))) {
        verification.find(name, "belongs to no run of campaign.json");
    }
}

/// The identity of run.yaml; its other keys are the trainer's business.
#[derive(Deserialize)]
struct RunFile {
    schema: String,
    run: RunIdentity,
}

fn check_run(
    directory: &Path,
    campaign: &Campaign,
    run: &CampaignRun,
    folder: &str,
    present: &BTreeSet<String>,
    verification: &mut Verification,
) {
    let file = |name: &str| format!("{folder}/{name}");
    let run_file = file("run.yaml");
    let Some(run_text) = text(directory, &run_file, verification) else { return };
    match yaml::from_str::<RunFile>(&run_text) {
        Err(error) => verification.find(&run_file, format!("is not a run file: {error}")),
        Ok(read) if schema::require(&read.schema, schema::RUN).is_err() => {
            verification.find(&run_file, format!("schema `{}` is not `{}`", read.schema, schema::RUN));
        }
        Ok(read) if (&read.run.profile, &read.run.arm, read.run.seed) != (&campaign.profile, &run.arm, run.seed) => {
            verification.find(
                &run_file,
                format!(
                    "is profile {} arm {} seed {}, not what its folder and campaign.json say",
                    read.run.profile, read.run.arm, read.run.seed
                ),
            );
        }
        Ok(_) => {}
    }
    check_ingredients(directory, campaign, run, &file("ingredients.json"), &sha256(run_text.as_bytes()), verification);
    for log in
        packed::LOGS.map(file).into_iter().filter(|log| present.contains(log) && present.contains(&format!("{log}{}", packed::ENDING)))
    {
        verification.find(&log, "is there packed, too: which of the two counts?");
    }
    if let Some(error) = run_folder::ran_elsewhere(&directory.join(folder), &campaign.device) {
        verification.find(file("timing.jsonl"), error);
    }
    let (done, failed) = (present.contains(&file("done.json")), present.contains(&file("failed.json")));
    match (run.status.as_str(), done, failed) {
        ("finished", true, false) => check_done(directory, folder, &sha256(run_text.as_bytes()), verification),
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
    campaign: &Campaign,
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
    if ingredients.trainer_code != campaign.trainer_code || ingredients.device != campaign.device {
        verification.find(file, "names other sources or another device than campaign.json");
    }
    if ingredients.key() != run.key || text.trim_end() != ingredients.json() {
        verification.find(
            file,
            format!("its key is {}, campaign.json says {} (or it is not written as keys are hashed)", ingredients.key(), run.key),
        );
    }
}

fn check_done(directory: &Path, folder: &str, run_sha256: &str, verification: &mut Verification) {
    let file = format!("{folder}/done.json");
    let metrics = format!("{folder}/metrics.jsonl");
    let Some(text) = text(directory, &file, verification) else { return };
    let done = match Done::from_json(&file, &text) {
        Ok(done) => done,
        Err(error) => return verification.find(&file, error.what),
    };
    if done.run_sha256 != run_sha256 {
        verification.find(&file, format!("says that run.yaml has SHA-256 {}, but it has {run_sha256}", done.run_sha256));
    }
    match packed::sha256(&directory.join(&metrics)) {
        Ok(found) if found == done.metrics_sha256 => {}
        Ok(found) => verification.find(&metrics, format!("its SHA-256 is {found}, done.json says {}", done.metrics_sha256)),
        Err(error) => verification.find(&metrics, format!("cannot be read: {}", error.source)),
    }
}
