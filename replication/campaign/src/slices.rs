//! Slices of several campaigns, made in one go: what is left of one is at work beside the first runs of the next, so that no GPU waits for the
//! last run of a profile. Only runs are made; `replicate --finished` makes a report of each profile afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use study::folder::lock;
use study::manifest::{ManifestError, Manifests};
use study::plan::{self, PlannedRun, Selection};

use crate::data::{self, PreparedData};
use crate::devices::Answers;
use crate::doctor;
use crate::error::{CampaignError, interrupted};
use crate::prepared::Prepared;
use crate::ranks;
use crate::request::{Request, exit_code};
use crate::run::{self, Failure, Means, Outcome, Pool};
use crate::site::Site;
use crate::toolchain::Trainer;

/// Runs of a profile: `PROFILE[:ARM,ARM][@SEED,SEED]`, of all arms or seeds where none are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub profile: String,
    pub arms: Vec<String>,
    pub seeds: Vec<u64>,
}

impl FromStr for Slice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, seeds) = text.split_once('@').map_or((text, None), |(rest, seeds)| (rest, Some(seeds)));
        let (profile, arms) = rest.split_once(':').map_or((rest, None), |(profile, arms)| (profile, Some(arms)));
        let arms: Vec<String> = arms.iter().flat_map(|arms| arms.split(',')).map(str::to_owned).collect();
        let seeds = seeds.iter().flat_map(|seeds| seeds.split(',')).map(|seed| seed.parse().map_err(|_| format!("`{seed}` is no seed")));
        let slice = Self { profile: profile.to_owned(), arms, seeds: seeds.collect::<Result<_, _>>()? };
        if slice.profile.is_empty() || slice.arms.iter().any(String::is_empty) {
            return Err("a slice is PROFILE, PROFILE:ARM,ARM, PROFILE@SEED,SEED or PROFILE:ARM,ARM@SEED,SEED".to_owned());
        }
        Ok(slice)
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        f.write_str(&self.profile)?;
        [(':', &self.arms), ('@', &seeds)]
            .iter()
            .filter(|(_, all)| !all.is_empty())
            .try_for_each(|(sign, all)| write!(f, "{sign}{}", all.join(",")))
    }
}

impl Slice {
    fn selection(&self) -> Selection {
        Selection { only_arms: self.arms.clone(), only_seeds: self.seeds.clone(), ..Selection::default() }
    }

    /// An error that names the slice in place of the options that it stands for.
    fn refused(&self, error: ManifestError) -> ManifestError {
        let what = ["--only-arms: ", "--only-seeds: "]
            .iter()
            .fold(error.message.as_str(), |text, option| text.strip_prefix(option).unwrap_or(text));
        ManifestError { message: format!("slice {self}: {what}"), ..error }
    }
}

/// How the runs of a slice ended.
#[derive(Debug)]
pub struct Made {
    pub slice: Slice,
    /// Finished now.
    pub now: usize,
    /// Finished before.
    pub earlier: usize,
    pub failed: Vec<(String, Failure)>,
}

/// How the runs of all slices ended.
#[derive(Debug)]
pub struct Trained(pub Vec<Made>);

impl Trained {
    /// As that of a campaign.
    pub fn exit_code(&self) -> u8 {
        exit_code(self.0.iter().flat_map(|made| &made.failed))
    }

    /// Profiles of which there is something to report, each once.
    pub fn profiles(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.0.iter().map(|made| made.slice.profile.as_str()).filter(|profile| seen.insert(*profile)).collect()
    }
}

/// A slice before its runs.
struct Planned<'m> {
    slice: &'m Slice,
    prepared: Prepared<'m>,
    data: PreparedData,
}

impl Planned<'_> {
    fn of_engine(&self) -> run::Slice<'_> {
        run::Slice { label: Some(self.slice.profile.clone()), runs: &self.prepared.plan.runs, data: &self.data }
    }
}

/// Makes the runs of `slices`, the first slice first, and puts them into the cache. Of `request` its profile and selection do not count.
///
/// # Errors
/// As of a campaign; slices whose runs do not take the same places.
pub fn train(
    manifests: &Manifests,
    slices: &[Slice],
    request: &Request,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Trained, CampaignError> {
    let (root, answers) = (manifests.root.as_path(), Answers::default());
    if let Some(line) = ranks::one_of_several(&ranks::of_process) {
        return Err(CampaignError::OneOfSeveral(line));
    }
    let of = |slice: &Slice| Request { profile: slice.profile.clone(), selection: slice.selection(), ..request.clone() };
    for slice in slices {
        let profile = manifests.profile(&slice.profile)?;
        Prepared::refuse_wrong(manifests, &slice.profile, &slice.selection()).map_err(|error| slice.refused(error))?;
        let lacks = doctor::lacks_for(&of(slice), profile, manifests, &answers);
        if !lacks.is_empty() {
            return Err(CampaignError::Lacks { profile: slice.profile.clone(), lacks });
        }
    }
    let _lock = lock(&root.join("cache").join("lock"))?;
    let (trainer, mut planned) = prepare(manifests, slices, request, say)?;
    let sites = planned.iter().enumerate().map(|(number, planned)| {
        let once = |line: &str| {
            if number == 0 {
                say(line)
            }
        };
        let request = of(planned.slice);
        Ok(Site::new(&planned.prepared, &trainer, &request, &answers, &once)?.pool(&planned.prepared, &request))
    });
    let pool = together(slices, sites.collect::<Result<_, CampaignError>>()?)?;
    // A run that two slices name is of the first.
    let mut seen = BTreeSet::new();
    planned.iter_mut().for_each(|planned| planned.prepared.plan.runs.retain(|run| seen.insert(run.key())));
    interrupted(stop)?;
    say(&format!("{} runs of {} slices, {} at once", seen.len(), slices.len(), pool.places.len()));
    let (cache, started) = (plan::run_cache(root), Instant::now());
    let means = Means { cache: &cache, trainer: &trainer, options: &request.run, pool: &pool };
    let slices: Vec<run::Slice<'_>> = planned.iter().map(Planned::of_engine).collect();
    let outcomes = run::carry_out_slices(&slices, &means, stop, say)?;
    interrupted(stop)?;
    let made =
        planned.iter().zip(&outcomes).map(|(planned, outcomes)| made(planned.slice, &planned.prepared.plan.runs, outcomes)).collect();
    let time_up = [pool.minutes, pool.stop_after].into_iter().flatten().any(|limit| started.elapsed() >= limit);
    whole(Trained(made), &outcomes, time_up)
}

/// Builds the trainer, plans every slice, and makes its data ready.
fn prepare<'m>(
    manifests: &'m Manifests,
    slices: &'m [Slice],
    request: &Request,
    say: &dyn Fn(&str),
) -> Result<(Trainer, Vec<Planned<'m>>), CampaignError> {
    let (prebuilt, trainer, build) = Prepared::trainer(manifests, request.trainer.as_deref(), say)?;
    let mut ready: BTreeMap<(&str, &str), PreparedData> = BTreeMap::new();
    let mut planned = Vec::new();
    for slice in slices {
        let prepared =
            Prepared::from_build(manifests, &slice.profile, &slice.selection(), build.clone(), prebuilt.clone())?.with_earlier_runs();
        let profile = &manifests.profiles[slice.profile.as_str()];
        let read = (profile.dataset.as_str(), profile.tokenizer.as_str());
        let data = match ready.get(&read) {
            Some(data) => data.clone(),
            None => data::prepare(manifests, profile, &trainer, say)?,
        };
        ready.insert(read, data.clone());
        planned.push(Planned { slice, prepared, data });
    }
    Ok((trainer, planned))
}

/// The places of all slices, which have to be the same.
fn together(slices: &[Slice], pools: Vec<Pool>) -> Result<Pool, CampaignError> {
    let ahead = pools.iter().all(|pool| pool.ahead);
    let of_first = pools.first().cloned().unwrap_or_default();
    if let Some((slice, pool)) = slices.iter().zip(&pools).find(|(_, pool)| pool.places != of_first.places) {
        let first = slices.first().map_or("", |slice| slice.profile.as_str());
        let places = |pool: &Pool| pool.places.first().cloned().unwrap_or_else(|| "none".to_owned());
        let what = format!(
            "its runs take other places ({}) than those of {first} ({}): give each a command of its own, or the same --ranks-per-run",
            places(pool),
            places(&of_first)
        );
        return Err(ManifestError::new(&Manifests::path("profiles", &slice.profile), what).into());
    }
    Ok(Pool { ahead, ..of_first })
}

fn made(slice: &Slice, runs: &[PlannedRun], outcomes: &[Outcome]) -> Made {
    let count = |wanted: &Outcome| outcomes.iter().filter(|outcome| *outcome == wanted).count();
    let failed = runs.iter().zip(outcomes).filter_map(|(run, outcome)| match outcome {
        Outcome::Failed(failure) => Some((format!("{} {}", slice.profile, run.name()), failure.clone())),
        _ => None,
    });
    Made { slice: slice.clone(), now: count(&Outcome::Finished), earlier: count(&Outcome::Reused), failed: failed.collect() }
}

/// Every run has ended; otherwise how far they came.
fn whole(trained: Trained, outcomes: &[Vec<Outcome>], time_up: bool) -> Result<Trained, CampaignError> {
    let (all, done) =
        (outcomes.iter().map(Vec::len).sum::<usize>(), outcomes.iter().flatten().filter(|outcome| outcome.finished()).count());
    let failed: Vec<(String, Failure)> = trained.0.iter().flat_map(|made| made.failed.clone()).collect();
    match all - done - failed.len() {
        0 => Ok(trained),
        left => Err(CampaignError::Unfinished { done, all, left, time_up, failed }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_read_as_it_is_written() {
        for text in ["smoke", "smoke@1", "smoke:fp8,bf16", "smoke:fp8,bf16@1,12"] {
            assert_eq!(text.parse::<Slice>().unwrap().to_string(), text);
        }
        let slice: Slice = "dnc-32m:fp8@3".parse().unwrap();
        assert_eq!((slice.profile.as_str(), slice.arms.as_slice(), slice.seeds.as_slice()), ("dnc-32m", &["fp8".to_owned()][..], &[3][..]));
        for wrong in ["", ":fp8", "@1", "smoke:", "smoke:fp8,", "smoke@", "smoke@1,", "smoke@one", "smoke@1:fp8"] {
            assert!(wrong.parse::<Slice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn slices_share_the_same_places_or_are_refused() {
        let slices = ["smoke", "h200-8b"].map(|text| text.parse::<Slice>().unwrap());
        let pool = |place: &str, ahead| Pool { places: vec![place.to_owned()], ahead, ..Pool::default() };
        let shared = together(&slices, vec![pool("cuda:0", true), pool("cuda:0", false)]).unwrap();
        assert_eq!((shared.places, shared.ahead), (vec!["cuda:0".to_owned()], false), "two runs at once have to fit for every slice");
        let refused = together(&slices, vec![pool("cuda:0", true), pool("cuda:0,1,2,3", true)]).unwrap_err().to_string();
        assert!(refused.contains("h200-8b") && refused.contains("(cuda:0,1,2,3) than those of smoke (cuda:0)"), "{refused}");
    }
}
