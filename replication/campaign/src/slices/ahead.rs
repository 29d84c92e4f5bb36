//! What slices would take, before anything is made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use contract::id::Id;
use study::manifest::Manifests;
use study::number::plural;
use study::plan::{self, PlannedRun};
use study::run_folder::{self, State};

use super::{Slice, of_slice, refuse_wrong};
use crate::devices::Answers;
use crate::doctor;
use crate::error::CampaignError;
use crate::forecast::{Forecast, Known, forecast};
use crate::prepared::Prepared;
use crate::request::Request;

/// Runs of a slice that are finished, and those that are not.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceAhead {
    pub slice: Slice,
    /// That an earlier slice names, too: they are counted there.
    pub earlier: usize,
    pub finished: usize,
    pub to_make: usize,
    /// Of all GPUs, for the runs to make whose arms were timed; nothing is predicted of a CPU.
    pub gpu_minutes: Option<f64>,
    /// Arms of other runs to make.
    pub untimed: Vec<Id>,
}

/// What slices would take, and what this machine lacks for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Ahead {
    pub slices: Vec<SliceAhead>,
    pub lacks: Vec<String>,
}

/// Looks at manifests, finished runs and the machine; touches nothing.
///
/// # Errors
/// A slice that is wrong; slices for different devices; data without which runs have no keys.
pub fn ahead(manifests: &Manifests, slices: &[Slice], request: &Request) -> Result<Ahead, CampaignError> {
    refuse_wrong(manifests, slices, request.ranks)?;
    let (cache, answers) = (plan::run_cache(&manifests.root), Answers::default());
    let mut forecasts: BTreeMap<&str, Forecast> = BTreeMap::new();
    let (mut seen, mut lacks) = (BTreeSet::new(), BTreeSet::new());
    let mut all = Vec::new();
    for slice in slices {
        let profile = manifests.profile(&slice.profile)?;
        if !forecasts.contains_key(slice.profile.as_str()) {
            let known = Known::of(manifests, profile);
            forecasts.insert(&slice.profile, forecast(manifests, profile, request.ranks, &known)?);
        }
        let prepared = Prepared::new(manifests, &slice.profile, &slice.selection(), request.trainer.as_deref())?.with_earlier_runs();
        let (own, named): (Vec<&PlannedRun>, Vec<_>) = prepared.plan.runs.iter().partition(|run| seen.insert(run.key()));
        all.push(SliceAhead { earlier: named.len(), ..SliceAhead::new(slice, &own, &cache, &forecasts[slice.profile.as_str()]) });
        lacks.extend(doctor::lacks_for(&of_slice(request, slice), profile, manifests, &answers));
    }
    let is_needed = all.iter().any(|ahead| ahead.to_make > 0);
    Ok(Ahead { slices: all, lacks: lacks.into_iter().filter(|_| is_needed).collect() })
}

impl SliceAhead {
    fn new(slice: &Slice, runs: &[&PlannedRun], cache: &Path, forecast: &Forecast) -> Self {
        let is_finished = |run: &&&PlannedRun| run_folder::state(&cache.join(run.key()), &run.ingredients) == State::Finished;
        let (finished, left): (Vec<&&PlannedRun>, Vec<_>) = runs.iter().partition(is_finished);
        let is_told = !forecast.hours.is_empty();
        let minutes = |run: &&&PlannedRun| forecast.gpu_minutes(&run.arm);
        let mut untimed: Vec<Id> = Vec::new();
        for run in left.iter().copied().filter(|run| is_told && minutes(run).is_none()) {
            if !untimed.contains(&run.arm) {
                untimed.push(run.arm.clone());
            }
        }
        let gpu_minutes = is_told.then(|| left.iter().copied().filter_map(|run| minutes(&run)).sum());
        Self { slice: slice.clone(), earlier: 0, finished: finished.len(), to_make: left.len(), gpu_minutes, untimed }
    }
}

impl fmt::Display for SliceAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { earlier, finished, to_make, gpu_minutes, untimed, .. } = self;
        write!(f, "{finished} finished, {to_make} to make")?;
        if *earlier > 0 {
            write!(f, " ({earlier} in an earlier slice)")?;
        }
        match gpu_minutes {
            Some(minutes) if *minutes > 0.0 => write!(f, ", about {minutes:.1} GPU-minutes")?,
            None if *to_make > 0 => write!(f, "; no estimate on a CPU")?,
            _ => {}
        }
        match &untimed.iter().map(Id::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(()),
            arms => write!(f, "; no finished run says how long those of {} take", arms.join(", ")),
        }
    }
}

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.slices.iter().map(|one| one.slice.to_string()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (name, one) in names.iter().zip(&self.slices) {
            writeln!(f, "{name:<width$}  {one}")?;
        }
        let to_make: usize = self.slices.iter().map(|one| one.to_make).sum();
        let minutes: f64 = self.slices.iter().filter_map(|one| one.gpu_minutes).sum();
        write!(f, "{to_make} run{} to make", plural(to_make))?;
        if minutes > 0.0 {
            let least = if self.slices.iter().any(|one| !one.untimed.is_empty()) { "more than" } else { "about" };
            write!(f, ", {least} {minutes:.1} GPU-minutes by what finished runs of the same profile and arm took")?;
        }
        writeln!(f)?;
        self.lacks.iter().try_for_each(|line| writeln!(f, "lacks: {line}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use study::plan::Build;

    use super::*;

    /// Two arms that are timed, at 90 and 30 GPU-minutes, and three that are not; nothing is finished.
    #[test]
    fn minutes_are_of_the_runs_that_are_left() {
        let manifests = Manifests::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let slice: Slice = "ladder-32m-even@12,13".parse().unwrap();
        let profile = manifests.profile(&slice.profile).unwrap();
        let plan = plan::plan(&manifests, profile, &slice.selection(), &Build::only("a trainer"), None).unwrap();
        let mut forecast = forecast(&manifests, profile, None, &Known::default()).unwrap();
        forecast.hours[0].runs = Some(0.75);
        forecast.hours[1].steps = Some(0.25);
        let cache = tempfile::tempdir().unwrap();
        let one = SliceAhead::new(&slice, &plan.runs.iter().collect::<Vec<_>>(), cache.path(), &forecast);
        forecast.hours.clear();
        let cpu = SliceAhead { earlier: 3, ..SliceAhead::new(&"smoke".parse().unwrap(), &[&plan.runs[0]], cache.path(), &forecast) };
        assert_eq!((one.gpu_minutes, one.untimed.len(), cpu.gpu_minutes), (Some(120.0), 3, None));
        let ahead = Ahead { slices: vec![cpu, one], lacks: vec!["a GPU".to_owned()] };
        insta::assert_snapshot!(ahead.to_string(), @r"
        smoke                  0 finished, 1 to make (3 in an earlier slice); no estimate on a CPU
        ladder-32m-even@12,13  0 finished, 10 to make, about 120.0 GPU-minutes; no finished run says how long those of mxfp4-fd-even, mxfp4-fdw-even, mxfp4-fdw-even-h16 take
        11 runs to make, more than 120.0 GPU-minutes by what finished runs of the same profile and arm took
        lacks: a GPU
        ");
    }
}
