//! Profile x recipes x seeds -> runs, each fully resolved and with a key that says when it may be reused.
//!
//! A key is the hash of the ingredients listed in [`Ingredients`] and of nothing else: templates, thread counts and instruction
//! sets are not among them. Nothing runs here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use contract::defect::Defect;
use contract::device::DeviceKind;
use contract::id::Id;
use contract::run_file::{BatchSection, Gemm, RunFile};

use crate::files::sha256;
use crate::identity::{Earlier, Identities, Known};
use crate::ingredients::Ingredients;
use crate::manifest::profile::{Profile, Shards};
use crate::manifest::{ManifestError, Manifests, Model, Paper, resolve};
use crate::run_folder::{self, State};
use crate::suggest::unknown;

/// Which part of a profile to run, and by whose products.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only what this paper's claims need.
    pub paper: Option<String>,
    /// Claim ids, recipe ids or group names; empty: everything.
    pub only: Vec<String>,
    /// The first so many seeds; beyond those listed, numbering goes on.
    pub seeds: Option<usize>,
    /// Of what the above select only these arms, without what they are compared with; empty: all.
    pub only_arms: Vec<String>,
    /// Of what the above select only these seeds; empty: all.
    pub only_seeds: Vec<u64>,
    /// Whose kernels multiply packed MXFP4.
    pub gemm: Gemm,
}

/// Options of a selection, as errors name them.
pub const ONLY_ARMS: &str = "--only-arms";
pub const ONLY_SEEDS: &str = "--only-seeds";

/// A campaign before it runs.
#[derive(Debug, Clone)]
pub struct Plan {
    pub profile: Id,
    pub device: DeviceKind,
    /// Runs in the order of arms, then seeds.
    pub runs: Vec<PlannedRun>,
    /// Selected arms in the profile's order.
    pub arms: Vec<String>,
    pub seeds: Vec<u64>,
    /// Whether a selection left something out.
    pub partial: bool,
    /// Why finished runs of earlier trainers stand for those of this one ([`Plan::carry_over`]).
    pub carried: Vec<Earlier>,
}

impl Plan {
    /// The profile with no other arms and seeds than those of this plan: what a forecast of it is about.
    #[must_use]
    pub fn selected(&self, profile: &Profile) -> Profile {
        let mut selected = profile.clone();
        selected.seeds.clone_from(&self.seeds);
        for group in &mut selected.arms {
            group.recipes.retain(|arm| self.arms.contains(arm));
        }
        selected.arms.retain(|group| !group.recipes.is_empty());
        selected
    }

    /// A run that is not finished in `cache`, but was finished by an earlier trainer that is known to compute the same, becomes that one: it
    /// keeps its own ingredients and key, and the plan says what shows that they are the same bits.
    pub fn carry_over(&mut self, cache: &Path, known: &Known) {
        let is_there = |ingredients: &Ingredients| run_folder::state(&cache.join(ingredients.key()), ingredients) == State::Finished;
        for run in self.runs.iter_mut().filter(|run| !is_there(&run.ingredients)) {
            let by = |earlier: &Earlier| earlier.is_of(&run.run_yaml) && is_there(&run.ingredients.by(&earlier.recorded));
            let Some(earlier) = known.same_as(&run.ingredients.trainer_code).into_iter().find(by) else { continue };
            run.ingredients = run.ingredients.by(&earlier.recorded);
            if !self.carried.contains(&earlier) {
                self.carried.push(earlier);
            }
        }
    }
}

/// One arm with one seed.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    pub arm: Id,
    pub seed: u64,
    pub run_yaml: String,
    /// What the key is made of.
    pub ingredients: Ingredients,
}

impl PlannedRun {
    /// Where its files lie below the run cache.
    pub fn key(&self) -> String {
        self.ingredients.key()
    }

    /// `arm/seed`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.arm, self.seed)
    }
}

/// What is the same for all runs of a plan and not in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Hash of what the trainer is built from: another one is built again, and may well compute the same.
    pub sources: String,
    /// What it computes.
    pub identities: Identities,
    /// See [`Ingredients::toolchain`].
    pub toolchain: String,
}

impl Build {
    /// One whose trainer has one identity on every device: for tests, and to see whether a plan can be made at all.
    pub fn only(identity: &str) -> Self {
        Self { sources: identity.into(), identities: Identities::only(identity), toolchain: "rustc".into() }
    }

    /// Of a run on `device` by the trainer that was built.
    pub fn ingredients(&self, run_yaml: &str, device: DeviceKind) -> Ingredients {
        Ingredients {
            run: sha256(run_yaml.as_bytes()),
            trainer_code: self.identities.on(device).to_owned(),
            toolchain: self.toolchain.clone(),
            device: device.word().to_owned(),
        }
    }
}

/// Makes the plan. Token shards are those the tokenizer's manifest pins, or `recorded` ones where it pins none.
///
/// # Errors
/// An unknown name in the selection, or shards that nobody has hashed yet.
pub fn plan(
    manifests: &Manifests,
    profile: &Profile,
    selection: &Selection,
    build: &Build,
    recorded: Option<&Shards>,
) -> Result<Plan, ManifestError> {
    let refuse = |why: String| ManifestError::new(&Manifests::path("profiles", &profile.id), why);
    let arms = select_arms(manifests, profile, selection).map_err(refuse)?;
    let arms = slice(ONLY_ARMS, "arm", arms, &selection.only_arms).map_err(refuse)?;
    let seeds = select_seeds(profile, selection.seeds).map_err(refuse)?;
    let seeds = slice(ONLY_SEEDS, "seed", seeds, &selection.only_seeds).map_err(refuse)?;
    let device = manifests.hardware[&profile.hardware].device;
    selection
        .gemm
        .check(&format!("{device}, which this profile is for"), device == DeviceKind::Hip)
        .map_err(|why| refuse(format!("--{why}")))?;
    let tokenizer = &manifests.tokenizers[&profile.tokenizer];
    let shards = tokenizer.shards.as_ref().or(recorded);
    let Some(shards) = shards else {
        return Err(refuse(format!(
            "the token shards of dataset {} with tokenizer {} are not known yet; {}",
            profile.dataset, tokenizer.id, tokenizer.how_to_get
        )));
    };
    let model = &manifests.models[&profile.model];
    let mut runs = Vec::new();
    for arm in &arms {
        for &seed in &seeds {
            let run = resolve::run_file(manifests, profile, model, shards, arm, seed).map_err(refuse)?.multiplied_by(selection.gemm);
            let run_yaml = run.to_yaml().map_err(|error| refuse(error.to_string()))?;
            let ingredients = build.ingredients(&run_yaml, device);
            runs.push(PlannedRun { arm: run.run.arm, seed, run_yaml, ingredients });
        }
    }
    let partial = arms.len() != all_arms(profile).len() || seeds != profile.seeds;
    Ok(Plan { profile: profile.id.clone(), device, runs, arms, seeds, partial, carried: Vec::new() })
}

/// A run file for timing steps alone: `model` with `sequences` a step under one recipe, everything else as in `profile`. It names no
/// data (the trainer takes random tokens), so it has no key and is no run of a campaign.
pub fn step_run_file(
    manifests: &Manifests,
    profile: &Profile,
    model: &Model,
    sequences: usize,
    arm: &str,
) -> Result<String, ManifestError> {
    let refuse = |why: String| ManifestError::new(&Manifests::path("recipes", arm), why);
    if !manifests.recipes.contains_key(arm) {
        return Err(refuse("there is no such recipe".to_owned()));
    }
    let mut profile = profile.clone();
    profile.evaluation.readings = None;
    // Another number of sequences is computed at once.
    if profile.batch.sequences != sequences {
        profile.batch = BatchSection { sequences, accumulation: 1 };
    }
    let fewest = manifests.recipes[arm].defect.map_or(1, Defect::fewest_micro_batches);
    profile.batch.accumulation = profile.batch.accumulation.max(fewest);
    let shards = resolve::unknown_shards(u64::from(u32::MAX));
    let run = resolve::run_file(manifests, &profile, model, &shards, arm, 1).map_err(refuse)?;
    run.to_yaml().map_err(|error| refuse(error.to_string()))
}

/// The run file of one arm and seed of a profile, of whatever batch and budget it has now, on these tokens.
pub fn run_file_of(manifests: &Manifests, profile: &Profile, shards: &Shards, arm: &str, seed: u64) -> Result<String, ManifestError> {
    let refuse = |why: String| ManifestError::new(&Manifests::path("recipes", arm), why);
    let run = resolve::run_file(manifests, profile, &manifests.models[&profile.model], shards, arm, seed).map_err(refuse)?;
    run.to_yaml().map_err(|error| refuse(error.to_string()))
}

/// The run of an arm with whatever shards there are: for what follows from sizes and recipe alone.
pub fn any_run(manifests: &Manifests, profile: &Profile, arm: &str) -> Result<RunFile, ManifestError> {
    let shards = manifests.tokenizers[&profile.tokenizer].shards.clone().unwrap_or_else(|| resolve::unknown_shards(u64::MAX));
    resolve::run_file(manifests, profile, &manifests.models[&profile.model], &shards, arm, 1)
        .map_err(|why| ManifestError::new(&Manifests::path("profiles", &profile.id), why))
}

/// Every arm of the profile, in its order.
pub fn all_arms(profile: &Profile) -> Vec<String> {
    profile.arms.iter().flat_map(|group| group.recipes.iter().cloned()).collect()
}

/// Those of `all` that are `wanted`, in their order; all when nothing is.
fn slice<T: PartialEq + ToString>(option: &str, kind: &str, all: Vec<T>, wanted: &[T]) -> Result<Vec<T>, String> {
    if let Some(stranger) = wanted.iter().find(|wanted| !all.contains(wanted)) {
        let known: Vec<String> = all.iter().map(ToString::to_string).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return Err(format!("{option}: {}", unknown(kind, &stranger.to_string(), &known)));
    }
    Ok(all.into_iter().filter(|one| wanted.is_empty() || wanted.contains(one)).collect())
}

/// More than any campaign has.
const MOST_SEEDS: usize = 1000;

fn select_seeds(profile: &Profile, count: Option<usize>) -> Result<Vec<u64>, String> {
    let Some(count) = count else { return Ok(profile.seeds.clone()) };
    if count == 0 {
        return Err("--seeds: must be at least 1".into());
    }
    if count > MOST_SEEDS {
        return Err(format!("--seeds: {count} are more than {MOST_SEEDS}"));
    }
    let listed = profile.seeds.iter().copied();
    let next = profile.seeds.iter().max().map_or(1, |seed| seed.saturating_add(1));
    let seeds: Vec<u64> = listed.chain(next..=u64::MAX).take(count).collect();
    if seeds.len() == count { Ok(seeds) } else { Err(format!("--seeds: there is no seed after {}", u64::MAX)) }
}

/// Arms that a paper, or a list of claims, recipes and groups, needs, baselines included.
fn select_arms(manifests: &Manifests, profile: &Profile, selection: &Selection) -> Result<Vec<String>, String> {
    let all = all_arms(profile);
    let papers: Vec<&Paper> = profile.papers.iter().filter_map(|id| manifests.papers.get(id)).collect();
    let mut wanted = BTreeSet::new();
    if let Some(id) = &selection.paper {
        let Some(paper) = papers.iter().find(|paper| paper.id == *id) else {
            let known: Vec<&str> = papers.iter().map(|paper| paper.id.as_str()).collect();
            return Err(format!("--paper: {}", unknown("paper", id, &known)));
        };
        for claim in &paper.claims {
            need_claim(&claim.id, &papers, &mut BTreeSet::new(), &mut wanted);
        }
    } else if selection.only.is_empty() {
        return Ok(all);
    }
    for name in &selection.only {
        if papers.iter().any(|paper| paper.claims.iter().any(|claim| claim.id == *name)) {
            need_claim(name, &papers, &mut BTreeSet::new(), &mut wanted);
        } else if all.contains(name) {
            wanted.insert(name.clone());
            wanted.extend(baselines_of(name, &papers));
        } else if let Some(group) = profile.arms.iter().find(|group| group.group == *name) {
            wanted.extend(group.recipes.iter().cloned());
            wanted.extend(group.recipes.iter().flat_map(|arm| baselines_of(arm, &papers)));
        } else {
            let mut known: Vec<&str> = papers.iter().flat_map(|paper| &paper.claims).map(|claim| claim.id.as_str()).collect();
            known.extend(all.iter().map(String::as_str));
            known.extend(profile.arms.iter().map(|group| group.group.as_str()));
            return Err(format!("--only: {}", unknown("claim, arm or group", name, &known)));
        }
    }
    // What a claim's direction compares with is worth having where the profile trains it; without it the claim's size is judged alone.
    let named = papers.iter().flat_map(|paper| &paper.claims).filter(|claim| selection.only.iter().any(|id| *id == claim.id.as_str()));
    let than = named.filter_map(|claim| claim.direction.as_ref()?.than.clone()).filter(|arm| all.contains(arm));
    wanted.extend(than.collect::<Vec<_>>());
    if wanted.is_empty() {
        // Claims about kernels or arithmetic need no arm; one run still gives the shapes.
        wanted.extend(papers.first().map(|paper| paper.baseline.clone()));
    }
    if let Some(arm) = wanted.iter().find(|arm| !all.contains(arm)) {
        return Err(format!("--only: it needs arm {arm}, which this profile does not train; choose another profile (cargo xtask list)"));
    }
    Ok(all.into_iter().filter(|arm| wanted.contains(arm)).collect())
}

/// What an arm is compared with: the baseline of each paper that has a claim about it, or the main paper's.
fn baselines_of(arm: &str, papers: &[&Paper]) -> Vec<String> {
    let about = papers.iter().filter(|paper| paper.claims.iter().any(|claim| claim.metric.arms().contains(&arm)));
    let found: Vec<String> = about.map(|paper| paper.baseline.clone()).collect();
    if found.is_empty() { papers.first().map(|paper| paper.baseline.clone()).into_iter().collect() } else { found }
}

/// Adds the arms of a claim and of the claims it rests on; `seen` keeps circles from going on.
fn need_claim(id: &str, papers: &[&Paper], seen: &mut BTreeSet<String>, wanted: &mut BTreeSet<String>) {
    if !seen.insert(id.to_owned()) {
        return;
    }
    for (paper, claim) in
        papers.iter().flat_map(|paper| paper.claims.iter().map(move |claim| (paper, claim))).filter(|(_, claim)| claim.id == id)
    {
        let arms = claim.metric.arms();
        if !arms.is_empty() {
            // Whether an arm converges, too, is judged against what the baseline needs.
            wanted.insert(paper.baseline.clone());
        }
        wanted.extend(arms.into_iter().map(str::to_owned));
        for other in claim.metric.claims() {
            need_claim(other, papers, seen, wanted);
        }
    }
}

/// The folder of the run cache.
pub fn run_cache(root: &Path) -> PathBuf {
    root.join("cache").join("runs")
}
