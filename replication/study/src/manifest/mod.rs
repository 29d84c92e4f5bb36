//! Manifests: typed, strict, and checked against each other before anything runs.
//!
//! [`Manifests::load`] reads every file under `manifests/`; a key that is not known, a word that is not in the list, an id that
//! names nothing or a path that leaves the repository is an error with file and line. What a manifest means for a run is
//! `crate::plan`'s business.

pub mod checks;
pub mod dataset;
mod error;
mod like;
pub mod paper;
pub mod profile;
pub mod public_logs;
mod read;
pub mod recipe;
pub mod resolve;
pub mod tried;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::files;
use crate::suggest::unknown;

pub use dataset::Dataset;
pub use error::ManifestError;
pub use paper::{Check, Claim, Direction, DirectionWord, Metric, Paper};
pub use profile::{Estimator, Hardware, Model, Profile, Tokenizer};
pub use public_logs::PublicLogs;
pub use read::read;
pub use recipe::Recipe;

/// Everything under `manifests/`, by id.
#[derive(Debug, Clone)]
pub struct Manifests {
    pub root: PathBuf,
    pub papers: BTreeMap<String, Paper>,
    pub profiles: BTreeMap<String, Profile>,
    pub recipes: BTreeMap<String, Recipe>,
    pub models: BTreeMap<String, Model>,
    /// Text and tokens.
    pub datasets: BTreeMap<String, Dataset>,
    pub tokenizers: BTreeMap<String, Tokenizer>,
    pub hardware: BTreeMap<String, Hardware>,
    /// Runs of others, from public logs; none where there is no such folder.
    pub public_logs: Vec<PublicLogs>,
    /// What takes the place of files here: a profile that is like another in full; a recipe that is tried, and the profile with it.
    pub own: tried::Own,
}

impl Manifests {
    /// Reads and checks every manifest of the repository at `root`.
    pub fn load(root: &Path) -> Result<Self, ManifestError> {
        let (profiles, own) = like::profiles(root)?;
        let manifests = Self {
            root: root.to_owned(),
            papers: folder(root, "papers", |paper: &Paper| &paper.id)?,
            profiles,
            recipes: folder(root, "recipes", |recipe: &Recipe| &recipe.id)?,
            models: folder(root, "models", |model: &Model| &model.id)?,
            datasets: folder(root, "datasets", Dataset::id)?,
            tokenizers: folder(root, "tokenizers", |tokenizer: &Tokenizer| &tokenizer.id)?,
            hardware: folder(root, "hardware", |hardware: &Hardware| &hardware.id)?,
            public_logs: public_logs::load(root)?,
            own,
        };
        manifests.check()?;
        Ok(manifests)
    }

    /// The path of a manifest, relative to the repository.
    pub fn path(kind: &str, id: &str) -> PathBuf {
        Path::new("manifests").join(kind).join(format!("{id}.yaml"))
    }

    /// The profile with that id.
    pub fn profile(&self, id: &str) -> Result<&Profile, ManifestError> {
        let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
        self.profiles.get(id).ok_or_else(|| ManifestError::new(Path::new("manifests/profiles"), unknown("profile", id, &known)))
    }

    /// The arm that a profile's first paper compares others with.
    pub fn baseline(&self, profile: &str) -> Option<&str> {
        let paper = self.profiles.get(profile)?.papers.first()?;
        self.papers.get(paper).map(|paper| paper.baseline.as_str())
    }

    /// Claims of every paper with the paper they belong to.
    pub fn claims(&self) -> impl Iterator<Item = (&Paper, &Claim)> {
        self.papers.values().flat_map(|paper| paper.claims.iter().map(move |claim| (paper, claim)))
    }

    fn check(&self) -> Result<(), ManifestError> {
        for (id, recipe) in &self.recipes {
            recipe.check().map_err(|why| at(&self.root, "recipes", id, &why))?;
        }
        for (id, model) in &self.models {
            model.check().map_err(|why| at(&self.root, "models", id, &why))?;
        }
        for (id, tokenizer) in &self.tokenizers {
            let path = tokenizer.file.as_deref().map_or(Ok(()), read::inside);
            path.map_err(|why| at(&self.root, "tokenizers", id, &format!("file: {why}")))?;
        }
        for (id, dataset) in &self.datasets {
            dataset.check().map_err(|why| at(&self.root, "datasets", id, &why))?;
        }
        let mut claims = BTreeMap::new();
        for (id, paper) in &self.papers {
            for claim in &paper.claims {
                if let Some(other) = claims.insert(claim.id.as_str(), id) {
                    let place = if other == id { "twice in this paper".to_owned() } else { format!("also in paper {other}") };
                    return Err(at(&self.root, "papers", id, &format!("claim {}: duplicate id, {place}", claim.id)));
                }
            }
        }
        for (id, paper) in &self.papers {
            self.check_paper(paper, &claims).map_err(|why| at(&self.root, "papers", id, &why))?;
        }
        for (id, profile) in &self.profiles {
            self.check_profile(profile).map_err(|why| at(&self.root, "profiles", id, &why))?;
        }
        public_logs::check_claims(&self.public_logs, &self.papers)
    }

    fn known_recipe(&self, key: &str, id: &str) -> Result<(), String> {
        known(key, "recipe", id, &self.recipes)
    }

    fn check_paper(&self, paper: &Paper, claims: &BTreeMap<&str, &String>) -> Result<(), String> {
        self.known_recipe("baseline", &paper.baseline)?;
        if !(1..=2).contains(&paper.judging) {
            return Err(format!("judging: there is no version {}; write 1 or 2", paper.judging));
        }
        for claim in &paper.claims {
            let than = claim.direction.iter().filter_map(|direction| direction.than.as_deref());
            for arm in claim.metric.arms().into_iter().chain(than) {
                self.known_recipe(&format!("claim {}", claim.id), arm)?;
            }
            if let Some(arm) = claim.compared_with_itself() {
                return Err(format!("claim {}: {arm} is compared with itself; name two arms", claim.id));
            }
            for other in claim.metric.claims() {
                if *other == claim.id.as_str() {
                    return Err(format!("claim {}: it rests on itself; name other claims", claim.id));
                }
                if !claims.contains_key(other.as_str()) {
                    let ids: Vec<&str> = claims.keys().copied().collect();
                    return Err(format!("claim {}: {}", claim.id, unknown("claim", other, &ids)));
                }
            }
        }
        let mut ids = BTreeSet::new();
        for check in &paper.checks {
            if !ids.insert(&check.id) {
                return Err(format!("check {}: duplicate id", check.id));
            }
            if let Some(text) = check.expressions.iter().find(|text| checks::value(text).is_none()) {
                return Err(format!("check {}: `{text}` is not computed; add it to replication/study/src/manifest/checks.rs", check.id));
            }
            if let Some(text) = check.values.iter().find(|text| checks::rounds_to(0.0, text).is_none()) {
                return Err(format!("check {}: `{text}` is not a decimal number such as 0.0917", check.id));
            }
            if check.expressions.len() != check.values.len() {
                return Err(format!("check {}: {} expressions but {} values", check.id, check.expressions.len(), check.values.len()));
            }
        }
        Ok(())
    }

    fn check_profile(&self, profile: &Profile) -> Result<(), String> {
        if profile.papers.is_empty() {
            return Err("papers: at least one is needed".into());
        }
        for paper in &profile.papers {
            known("papers", "paper", paper, &self.papers)?;
        }
        known("hardware", "hardware", &profile.hardware, &self.hardware)?;
        known("model", "model", &profile.model, &self.models)?;
        known("dataset", "dataset", &profile.dataset, &self.datasets)?;
        known("tokenizer", "tokenizer", &profile.tokenizer, &self.tokenizers)?;
        if matches!(self.datasets[&profile.dataset], Dataset::LocalFiles(_)) {
            return Err(format!("dataset: {} is only described; a profile needs documents or tokens", profile.dataset));
        }
        check_numbers(profile)?;
        let (model, tokenizer) = (&self.models[&profile.model], &self.tokenizers[&profile.tokenizer]);
        // Rows that no token names cost what others cost: a model of true shapes may be trained on tokens of a smaller vocabulary.
        if model.vocab_size < tokenizer.vocab_size {
            return Err(format!(
                "tokenizer: {} has {} entries but model {} has vocab_size {}, which is less",
                tokenizer.id, tokenizer.vocab_size, model.id, model.vocab_size
            ));
        }
        if let Some(shards) = &tokenizer.shards {
            if tokenizer.trained_on.as_ref() != Some(&profile.dataset) {
                return Err(format!("tokenizer: {} pins the tokens of another dataset than {}", tokenizer.id, profile.dataset));
            }
            // The last token of a sequence is predicted, too.
            let needed = (profile.evaluation.sequences as u64).saturating_mul(model.sequence_length).saturating_add(1);
            if needed > shards.validation.tokens {
                return Err(format!(
                    "evaluation.sequences: {} of {} tokens need {needed} held-out tokens, but {} makes {}",
                    profile.evaluation.sequences, model.sequence_length, tokenizer.id, shards.validation.tokens
                ));
            }
        }
        let mut arms = BTreeSet::new();
        for arm in profile.arms.iter().flat_map(|group| &group.recipes) {
            self.known_recipe("arms", arm)?;
            if !arms.insert(arm.as_str()) {
                return Err(format!("arms: recipe {arm} stands there twice"));
            }
        }
        if let Some(readings) = &profile.evaluation.readings {
            if let Some(arm) = readings.arms.keys().find(|arm| !arms.contains(arm.as_str())) {
                let known: Vec<&str> = arms.iter().copied().collect();
                return Err(format!("evaluation.readings.arms: {}", unknown("arm", arm, &known)));
            }
            for id in readings.recipes() {
                self.known_recipe("evaluation.readings", id)?;
            }
        }
        let unknown_shards = resolve::unknown_shards(u64::MAX);
        for arm in profile.arms.iter().flat_map(|group| &group.recipes) {
            resolve::run_file(self, profile, model, tokenizer.shards.as_ref().unwrap_or(&unknown_shards), arm, 1)?;
        }
        for arm in &profile.step_time.recipes {
            if !arms.contains(arm.as_str()) {
                let known: Vec<&str> = arms.iter().copied().collect();
                return Err(format!("step_time.recipes: {}", unknown("arm", arm, &known)));
            }
        }
        Ok(())
    }
}

fn check_numbers(profile: &Profile) -> Result<(), String> {
    // What a run file says, the contract checks.
    for (key, repeats, warmup) in [
        ("step_time", profile.step_time.repeats, profile.step_time.warmup),
        ("kernel_time", profile.kernel_time.repeats, profile.kernel_time.warmup),
    ] {
        if repeats == 0 || repeats.max(warmup) > MOST_REPEATS {
            return Err(format!("{key}: repeats must be 1 to {MOST_REPEATS}, and warmup no more"));
        }
    }
    if let Some((key, value)) = profile.requires.iter().find(|(_, value)| !(value.is_finite() && **value >= 0.0)) {
        return Err(format!("requires.{key}: {value} is no amount; write zero or a positive number"));
    }
    let seeds: BTreeSet<u64> = profile.seeds.iter().copied().collect();
    if seeds.is_empty() || seeds.len() != profile.seeds.len() {
        return Err("seeds: at least one, none twice".into());
    }
    if profile.arms.iter().all(|group| group.recipes.is_empty()) {
        return Err("arms: at least one recipe is needed".into());
    }
    Ok(())
}

/// More than any measurement takes.
const MOST_REPEATS: u64 = 1_000_000;

fn known<T>(key: &str, kind: &str, id: &str, all: &BTreeMap<String, T>) -> Result<(), String> {
    if all.contains_key(id) {
        return Ok(());
    }
    let ids: Vec<&str> = all.keys().map(String::as_str).collect();
    Err(format!("{key}: {}", unknown(kind, id, &ids)))
}

/// An error about a file that parsed.
fn at(root: &Path, kind: &str, id: &str, why: &str) -> ManifestError {
    let path = Manifests::path(kind, id);
    let text = files::read_text(&root.join(&path)).unwrap_or_default();
    ManifestError::in_text(&path, &text, why)
}

/// Every `.yaml` file of `manifests/<kind>`; a file's name must be its id.
pub(crate) fn folder<T: DeserializeOwned>(root: &Path, kind: &str, id: impl Fn(&T) -> &str) -> Result<BTreeMap<String, T>, ManifestError> {
    let mut all = BTreeMap::new();
    for name in names(root, &Path::new("manifests").join(kind))? {
        let path = Manifests::path(kind, &name);
        let manifest: T = read(root, &path)?;
        if id(&manifest) != name {
            return Err(ManifestError { path, line: 1, message: format!("id `{}` must be the file's name, `{name}`", id(&manifest)) });
        }
        all.insert(name, manifest);
    }
    Ok(all)
}

/// Names of the `.yaml` files of a folder, without that.
fn names(root: &Path, folder: &Path) -> Result<BTreeSet<String>, ManifestError> {
    let unreadable = |error: std::io::Error| ManifestError::new(folder, format!("cannot be read: {error}"));
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(root.join(folder)).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".yaml").map(str::to_owned));
    }
    Ok(names)
}
