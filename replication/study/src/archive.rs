//! The manifests of one campaign, as a result directory carries them: which, under which names, and read from there again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::manifest::{Dataset, Hardware, ManifestError, Manifests, Model, Paper, Profile, Recipe, Tokenizer, folder, public_logs, read};
use crate::plan::all_arms;

/// Names below `manifests/` of a result directory, each with its path in the repository.
pub fn files(manifests: &Manifests, profile: &Profile) -> Vec<(String, PathBuf)> {
    let mut all = vec![
        ("profile.yaml".to_owned(), Manifests::path("profiles", &profile.id)),
        ("model.yaml".to_owned(), Manifests::path("models", &profile.model)),
        ("dataset.yaml".to_owned(), Manifests::path("datasets", &profile.dataset)),
        ("tokenizer.yaml".to_owned(), Manifests::path("tokenizers", &profile.tokenizer)),
        ("hardware.yaml".to_owned(), Manifests::path("hardware", &profile.hardware)),
    ];
    all.extend(profile.papers.iter().map(|id| (format!("papers/{id}.yaml"), Manifests::path("papers", id))));
    // All arms of the profile: a partial campaign still names what it left out. Those of the papers' claims: pictures have a row for each.
    let mut recipes = all_arms(profile);
    let read = profile.evaluation.readings.iter().flat_map(|readings| readings.recipes()).map(String::as_str);
    let claims = profile.papers.iter().filter_map(|id| manifests.papers.get(id.as_str())).flat_map(|paper| &paper.claims);
    let named = read.chain(claims.filter_map(|claim| claim.metric.arm_of_tokens())).filter(|id| manifests.recipes.contains_key(*id));
    let named: BTreeSet<&str> = named.collect();
    recipes.extend(named.into_iter().filter(|id| !all_arms(profile).iter().any(|arm| arm == id)).map(str::to_owned));
    all.extend(recipes.iter().map(|id| (format!("recipes/{id}.yaml"), Manifests::path("recipes", id))));
    all.extend(public_logs::files_of(&manifests.public_logs, &profile.papers).into_iter().map(|name| {
        let path = Path::new("manifests").join(&name);
        (name, path)
    }));
    all
}

/// Reads them again; they are not checked against each other beyond what a plan needs.
///
/// # Errors
/// One that is missing or not accepted, or an id of the profile that names another manifest than the one that is there.
pub fn load(directory: &Path) -> Result<Manifests, ManifestError> {
    let profile: Profile = read(directory, Path::new("manifests/profile.yaml"))?;
    let model: Model = one(directory, "model", &profile.model, |model: &Model| &model.id)?;
    let dataset: Dataset = one(directory, "dataset", &profile.dataset, Dataset::id)?;
    let tokenizer: Tokenizer = one(directory, "tokenizer", &profile.tokenizer, |tokenizer: &Tokenizer| &tokenizer.id)?;
    let hardware: Hardware = one(directory, "hardware", &profile.hardware, |hardware: &Hardware| &hardware.id)?;
    let recipes = folder(directory, "recipes", |recipe: &Recipe| &recipe.id)?;
    if let Some(arm) = all_arms(&profile).iter().find(|arm| !recipes.contains_key(*arm)) {
        return Err(ManifestError::new(&Manifests::path("recipes", arm), "is missing; it is an arm of the profile"));
    }
    Ok(Manifests {
        root: directory.to_owned(),
        own: BTreeMap::new(),
        papers: folder(directory, "papers", |paper: &Paper| &paper.id)?,
        recipes,
        models: BTreeMap::from([(model.id.to_string(), model)]),
        datasets: BTreeMap::from([(dataset.id().to_owned(), dataset)]),
        tokenizers: BTreeMap::from([(tokenizer.id.to_string(), tokenizer)]),
        hardware: BTreeMap::from([(hardware.id.to_string(), hardware)]),
        public_logs: public_logs::load(directory)?,
        profiles: BTreeMap::from([(profile.id.to_string(), profile)]),
    })
}

fn one<T: DeserializeOwned>(directory: &Path, kind: &str, wanted: &str, id: impl Fn(&T) -> &str) -> Result<T, ManifestError> {
    let path = Path::new("manifests").join(format!("{kind}.yaml"));
    let manifest: T = read(directory, &path)?;
    if id(&manifest) == wanted {
        return Ok(manifest);
    }
    Err(ManifestError::new(&path, format!("is {kind} `{}`, but the profile's is `{wanted}`", id(&manifest))))
}
