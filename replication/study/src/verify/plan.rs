//! Whether a campaign is what its manifests plan: every run there, each from the run file that they resolve to, under the key that they give.

use std::collections::BTreeSet;
use std::path::Path;

use contract::run_file::{RunFile, ShardSection};

use super::Verification;
use crate::archive;
use crate::code_objects;
use crate::compare;
use crate::environment::Environment;
use crate::files;
use crate::kernels;
use crate::manifest::profile::{Profile, Shard, Shards};
use crate::manifest::{Manifests, resolve};
use crate::packed;
use crate::plan::all_arms;
use crate::record::{self, Campaign};

const PROFILE: &str = "manifests/profile.yaml";
const CAMPAIGN: &str = record::FILE;

pub(super) fn check(directory: &Path, campaign: &Campaign, environment: Option<&Environment>, verification: &mut Verification) {
    let manifests = match archive::load(directory) {
        Ok(manifests) => manifests,
        Err(error) => return verification.find(error.path.to_string_lossy(), format!("line {}: {}", error.line, error.message)),
    };
    let Some(profile) = manifests.profiles.get(campaign.profile.as_str()).filter(|profile| profile.papers == campaign.papers) else {
        let (profile, papers) = (&campaign.profile, campaign.papers.join(", "));
        return verification.find(PROFILE, format!("is not profile {profile} on {papers}, which campaign.json says"));
    };
    if manifests.hardware[&profile.hardware].device.word() != campaign.device {
        verification.find(CAMPAIGN, format!("says device {}, the profile's hardware is another", campaign.device));
    }
    check_all_there(profile, campaign, verification);
    check_run_files(directory, &manifests, profile, campaign, verification);
    if let Some(environment) = environment {
        check_key(directory, &manifests, profile, campaign, environment, verification);
    }
}

/// Arms x seeds of the profile, each once; of a partial campaign runs of these arms alone.
fn check_all_there(profile: &Profile, campaign: &Campaign, verification: &mut Verification) {
    let arms = all_arms(profile);
    let here: BTreeSet<(&str, u64)> = campaign.runs.iter().map(|run| (run.arm.as_str(), run.seed)).collect();
    let all: BTreeSet<(&str, u64)> = arms.iter().flat_map(|arm| profile.seeds.iter().map(move |seed| (arm.as_str(), *seed))).collect();
    if here.len() != campaign.runs.len() {
        verification.find(CAMPAIGN, "names a run twice");
    }
    let name = |(arm, seed): &(&str, u64)| format!("{arm}/{seed}");
    let missing: Vec<String> = all.difference(&here).map(name).collect();
    let seeds: BTreeSet<u64> = campaign.runs.iter().map(|run| run.seed).collect();
    if seeds != campaign.seeds.iter().copied().collect() {
        verification.find(CAMPAIGN, "its seeds are not those of its runs");
    }
    if let Some(run) =
        here.iter().find(|(arm, seed)| !arms.iter().any(|known| known == arm) || !campaign.partial && !profile.seeds.contains(seed))
    {
        verification.find(CAMPAIGN, format!("has run {}, which the profile does not plan", name(run)));
    }
    match (campaign.partial, missing.is_empty()) {
        (false, false) => {
            let what = format!(
                "says that every run of the profile is in it, but {} of {} are missing: {}",
                missing.len(),
                all.len(),
                first(&missing)
            );
            verification.find(CAMPAIGN, what);
        }
        (true, true) if campaign.seeds == profile.seeds => {
            verification.find(CAMPAIGN, "says that it is partial, but every run of the profile is in it")
        }
        (true, false) => {
            verification.notes.push(format!(
                "partial: {} of {} runs of the profile are not in it: {}",
                missing.len(),
                all.len(),
                first(&missing)
            ));
        }
        (true, true) => verification.notes.push("partial: its seeds are not those of the profile".to_owned()),
        (false, true) => {}
    }
}

/// The first few, and that there are more.
fn first(names: &[String]) -> String {
    let more = if names.len() > 5 { ", ..." } else { "" };
    names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

fn check_run_files(directory: &Path, manifests: &Manifests, profile: &Profile, campaign: &Campaign, verification: &mut Verification) {
    let mut profile = profile.clone();
    let recipes = profile.evaluation.readings.iter().flat_map(|readings| readings.recipes());
    let unarchived = recipes.into_iter().any(|id| !manifests.recipes.contains_key(id));
    if unarchived {
        profile.evaluation.readings = None;
        verification
            .notes
            .push("recipes of readings are not archived (an earlier version left them out): not held against run.yaml".to_owned());
    }
    let mut notes = BTreeSet::new();
    for run in campaign.runs.iter().filter(|run| manifests.recipes.contains_key(run.arm.as_str())) {
        let file = format!("runs/{}/{}/run.yaml", run.arm, run.seed);
        // One that cannot be read has its own finding.
        let Ok(text) = files::read_text(&directory.join(&file)) else { continue };
        let Ok(mut here) = RunFile::parse(&file, &text) else { continue };
        let (model, tokenizer) = (&manifests.models[&profile.model], &manifests.tokenizers[&profile.tokenizer]);
        if tokenizer.shards.is_none() {
            notes.insert("no manifest pins the token shards: those that run.yaml names are taken as they are");
        }
        let shards = tokenizer.shards.clone().unwrap_or_else(|| shards_of(&here));
        let planned = resolve::run_file(manifests, &profile, model, &shards, &run.arm, run.seed);
        let planned = match planned.map(|planned| planned.multiplied_by(campaign.gemm).to_yaml()) {
            Ok(Ok(planned)) => planned,
            Ok(Err(error)) => return verification.find(PROFILE, error.to_string()),
            Err(why) => return verification.find(PROFILE, format!("gives no run of {}: {why}", run.arm)),
        };
        if unarchived {
            here.evaluation.readings = None;
        }
        let written = if unarchived { here.to_yaml().unwrap_or_default() } else { text };
        if written == planned {
            continue;
        }
        match compare::settings(&planned, &written).as_slice() {
            [] => drop(notes.insert("run files differ from those of this version in bytes, and in no value")),
            settings => verification.find(file, format!("manifests plan another run: {} (manifests | run.yaml)", first(settings))),
        }
    }
    verification.notes.extend(notes.into_iter().map(str::to_owned));
}

fn shards_of(run: &RunFile) -> Shards {
    let shard = |section: &ShardSection| Shard {
        tokens: section.tokens,
        sha256_bin: section.sha256_bin.clone(),
        sha256_idx: section.sha256_idx.clone(),
    };
    let data = &run.data;
    Shards { train: shard(&data.train), validation: shard(&data.validation), end_of_document: data.end_of_document.into() }
}

/// The campaign's key is that of its runs and manifests and of the machine in env.json. Public logs and measurements of kernels may have
/// been added since, and do not count then.
fn check_key(
    directory: &Path,
    manifests: &Manifests,
    profile: &Profile,
    campaign: &Campaign,
    environment: &Environment,
    verification: &mut Verification,
) {
    let gpus = &environment.accelerators;
    let carried_out = match gpus.is_empty() {
        true => record::on_cpu(&environment.flags, &environment.cpu),
        false => record::on_gpus(&campaign.device, gpus),
    };
    let archived = archive::files(manifests, profile);
    let hash = |(name, _): (String, _)| files::sha256_file(&directory.join("manifests").join(&name)).ok().map(|sha256| (name, sha256));
    let Some(all) = archived.into_iter().map(hash).collect::<Option<Vec<(String, String)>>>() else { return };
    let measured = |name: &str| packed::sha256(&directory.join("measurements").join(name)).ok();
    let (objects, bench) = (measured(code_objects::FILE), measured(kernels::DOCUMENT));
    let agrees = |conditions: &str, evidence: bool| {
        let manifests = all.iter().filter(|(name, _)| evidence || !name.starts_with("evidence/"));
        let runs = campaign.runs.iter().map(|run| (run.arm.as_str(), run.seed, run.key.as_str()));
        let key = record::key(conditions, runs, manifests.map(|(name, sha256)| (name.as_str(), sha256.as_str())));
        let key = objects.as_ref().map_or(key.clone(), |objects| record::key_with_code_objects(&key, objects));
        let with_kernels = bench.as_ref().map(|bench| record::key_with_kernels(&key, bench));
        campaign.key == key || Some(&campaign.key) == with_kernels.as_ref()
    };
    let ways = [carried_out, record::of_finished(gpus)];
    if !ways.iter().any(|conditions| agrees(conditions, true) || agrees(conditions, false)) {
        verification.find(
            CAMPAIGN,
            "its key is not that of its runs and manifests, and of the processor or GPUs and flags in env.json: one of them is not what the campaign was made with",
        );
    }
}
