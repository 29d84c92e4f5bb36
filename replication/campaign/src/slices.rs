//! Slices of several campaigns, made in one go: what is left of one is at work beside the first runs of the next, so that no GPU waits for the
//! last run of a profile. Only runs are made; `replicate --finished` makes a report of each profile afterwards.

mod ahead;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use study::exit::{MACHINE, TIME_UP};
use study::folder::lock_cache;
use study::manifest::{ManifestError, Manifests};
use study::number::plural;
use study::plan::{self, Selection};

use crate::data::{self, PreparedData};
use crate::devices::Answers;
use crate::directory::failures;
use crate::doctor;
use crate::error::{CampaignError, interrupted};
use crate::forecast;
use crate::prepared::{Built, Prepared};
use crate::ranks;
use crate::replicate::stages_or_interrupted;
use crate::request::{Request, exit_code};
use crate::run::{self, Failure, Means, Outcome, Pool};
use crate::site::Site;

pub use ahead::{Ahead, SliceAhead, ahead};

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
        let seeds = seeds.iter().flat_map(|seeds| seeds.split(',')).map(|seed| {
            seed.parse().map_err(|_| format!("`{seed}` is no seed: they are whole numbers, separated by commas, as in @11,12"))
        });
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
        let of_option = |option: &&str| error.message.strip_prefix(*option)?.strip_prefix(": ");
        let what = [plan::ONLY_ARMS, plan::ONLY_SEEDS].iter().find_map(of_option).unwrap_or(&error.message);
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
    /// Neither finished nor failed.
    pub left: usize,
    pub failed: Vec<(String, Failure)>,
}

/// How the runs of all slices ended.
#[derive(Debug)]
pub struct Trained {
    pub slices: Vec<Made>,
    /// Why runs are left, if some are: the time was up, or no device was left.
    pub time_up: bool,
}

impl Trained {
    /// As that of a campaign.
    pub fn exit_code(&self) -> u8 {
        match (self.slices.iter().all(|made| made.left == 0), self.time_up) {
            (true, _) => exit_code(self.slices.iter().flat_map(|made| &made.failed)),
            (false, true) => TIME_UP,
            (false, false) => MACHINE,
        }
    }

    /// Profiles of which runs are finished, each once.
    pub fn profiles(&self) -> Vec<&str> {
        let finished = self.slices.iter().filter(|made| made.now + made.earlier > 0).map(|made| made.slice.profile.as_str());
        let mut seen = BTreeSet::new();
        finished.filter(|profile| seen.insert(*profile)).collect()
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

    fn made(&self, outcomes: &[Outcome]) -> Made {
        let count = |wanted: &[Outcome]| outcomes.iter().filter(|outcome| wanted.contains(outcome)).count();
        Made {
            slice: self.slice.clone(),
            now: count(&[Outcome::Finished]),
            earlier: count(&[Outcome::Reused]),
            left: count(&[Outcome::Waiting, Outcome::Interrupted]),
            failed: failures(&self.prepared.plan, outcomes),
        }
    }
}

/// Makes the runs of `slices`, the first slice first, and puts them into the cache. Of `request` its profile and selection do not count.
///
/// # Errors
/// As of a campaign, but for runs that are left; slices whose runs do not take the same places.
pub fn train(
    manifests: &Manifests,
    slices: &[Slice],
    request: &Request,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Trained, CampaignError> {
    if let Some(line) = ranks::one_of_several(&ranks::of_process) {
        return Err(CampaignError::OneOfSeveral(line));
    }
    let answers = Answers::default();
    refuse(manifests, slices, request, &answers)?;
    let _lock = lock_cache(&manifests.root)?;
    stages_or_interrupted(|| make(manifests, slices, request, &answers, stop, say), stop)
}

/// The request for one of the slices.
fn of_slice(request: &Request, slice: &Slice) -> Request {
    Request { profile: slice.profile.clone(), selection: slice.selection(), ..request.clone() }
}

/// What is wrong with a slice, or lacking for it, before anything is built.
fn refuse(manifests: &Manifests, slices: &[Slice], request: &Request, answers: &Answers) -> Result<(), CampaignError> {
    refuse_wrong(manifests, slices, request.ranks)?;
    for slice in slices {
        let lacks = doctor::lacks_for(&of_slice(request, slice), manifests.profile(&slice.profile)?, manifests, answers);
        if !lacks.is_empty() {
            return Err(CampaignError::Lacks { profile: slice.profile.clone(), lacks });
        }
    }
    Ok(())
}

/// What is wrong with a slice, wherever it is made.
fn refuse_wrong(manifests: &Manifests, slices: &[Slice], ranks: Option<usize>) -> Result<(), ManifestError> {
    let mut first = None;
    for slice in slices {
        let profile = manifests.profile(&slice.profile)?;
        Prepared::refuse_wrong(manifests, &slice.profile, &slice.selection()).map_err(|error| slice.refused(error))?;
        let device = manifests.hardware[&profile.hardware].device;
        let ranks = ranks.map_or(forecast::gpus(profile), |ranks| ranks as u64);
        let (of_first, kind, of_each) = *first.get_or_insert((slice.profile.as_str(), device, ranks));
        let refused = |what: String| Err(ManifestError::new(&Manifests::path("profiles", &slice.profile), what));
        if kind != device {
            return refused(format!("it is for {}, and {of_first} for {}: they need a command each", device.word(), kind.word()));
        }
        if ranks != of_each {
            let each = |ranks: u64| format!("{ranks} rank{}", plural(ranks as usize));
            return refused(format!(
                "its runs have {} each, those of {of_first} {}: give each a command of its own, or the same --ranks-per-run",
                each(ranks),
                each(of_each)
            ));
        }
    }
    Ok(())
}

/// Trainer, plans, data, runs.
fn make(
    manifests: &Manifests,
    slices: &[Slice],
    request: &Request,
    answers: &Answers,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Trained, CampaignError> {
    let built = Built::new(manifests, request.trainer.as_deref(), say)?;
    let mut planned = plan_all(manifests, slices, &built, stop, say)?;
    let pools = planned.iter().enumerate().map(|(number, planned)| {
        let once = |line: &str| {
            if number == 0 {
                say(line)
            }
        };
        let request = of_slice(request, planned.slice);
        Ok(Site::new(&planned.prepared, &built.trainer, &request, answers, &once)?.pool(&planned.prepared, &request))
    });
    let pool = together(pools.collect::<Result<_, CampaignError>>()?);
    // A run that two slices name is of the first.
    let mut seen = BTreeSet::new();
    planned.iter_mut().for_each(|planned| planned.prepared.plan.runs.retain(|run| seen.insert(run.key())));
    say(&format!(
        "{} run{} of {} slice{}, {} at once",
        seen.len(),
        plural(seen.len()),
        slices.len(),
        plural(slices.len()),
        pool.places.len()
    ));
    let (cache, started) = (plan::run_cache(&manifests.root), Instant::now());
    let means = Means { cache: &cache, trainer: &built.trainer, options: &request.run, pool: &pool };
    let of_engine: Vec<run::Slice<'_>> = planned.iter().map(Planned::of_engine).collect();
    let outcomes = run::carry_out_slices(&of_engine, &means, stop, say)?;
    interrupted(stop)?;
    let made = planned.iter().zip(&outcomes).map(|(planned, outcomes)| planned.made(outcomes));
    Ok(Trained { slices: made.collect(), time_up: pool.time_up(started) })
}

/// Plans every slice, and makes its data ready.
fn plan_all<'m>(
    manifests: &'m Manifests,
    slices: &'m [Slice],
    built: &Built,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Vec<Planned<'m>>, CampaignError> {
    let mut ready: BTreeMap<(&str, &str), PreparedData> = BTreeMap::new();
    let mut planned = Vec::new();
    for slice in slices {
        let prepared = Prepared::of(built, manifests, &slice.profile, &slice.selection())?.with_earlier_runs();
        let profile = &manifests.profiles[slice.profile.as_str()];
        let read = (profile.dataset.as_str(), profile.tokenizer.as_str());
        let data = match ready.get(&read) {
            Some(data) => data.clone(),
            None => data::prepare(manifests, profile, &built.trainer, say)?,
        };
        interrupted(stop)?;
        ready.insert(read, data.clone());
        planned.push(Planned { slice, prepared, data });
    }
    Ok(planned)
}

/// The places of all slices. Their runs have as many ranks each.
fn together(pools: Vec<Pool>) -> Pool {
    let ahead = pools.iter().all(|pool| pool.ahead);
    Pool { ahead, ..pools.into_iter().next().unwrap_or_default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::path::Path;

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
    fn slices_share_places_and_have_as_many_ranks_or_are_refused() {
        let pool = |ahead| Pool { places: vec!["cuda:0".to_owned()], ranks: 1, ahead, ..Pool::default() };
        let shared = together(vec![pool(true), pool(false)]);
        assert_eq!(
            (shared.places.as_slice(), shared.ahead),
            (&["cuda:0".to_owned()][..], false),
            "two runs at once have to fit for every slice"
        );
        let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let slices = ["ladder-32m@11", "h200-8b@1"].map(|text| text.parse::<Slice>().unwrap());
        let asked = |ranks| refuse_wrong(&manifests, &slices, ranks);
        let refused = asked(None).unwrap_err().to_string();
        assert!(refused.contains("h200-8b.yaml: its runs have 4 ranks each, those of ladder-32m 1 rank"), "{refused}");
        asked(Some(2)).unwrap();
    }
}
