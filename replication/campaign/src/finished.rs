//! `replicate --finished`: a result directory of the runs that are finished so far, on any machine. Nothing is run or measured, so it
//! needs neither the device nor the data; what the report has from measurements after the runs says `not-run`.

use std::path::Path;

use contract::device::GpuFacts;
use study::folder::{lock, lock_cache};
use study::machine::of_gpus;
use study::manifest::Manifests;
use study::plan::{self, Plan};
use study::record;
use study::run_folder::{self, State};

use crate::directory::{Parts, assemble};
use crate::environment;
use crate::error::CampaignError;
use crate::prepared::Prepared;
use crate::request::{Report, Request};
use crate::run::Outcome;
use crate::site::{Site, keyed};

/// Puts together what is in the cache of the plan that `request` names.
///
/// # Errors
/// A wrong selection, no finished run at all, or a file that cannot be read or written.
pub(crate) fn put_together(manifests: &Manifests, request: &Request, say: &dyn Fn(&str)) -> Result<Report, CampaignError> {
    let root = manifests.root.as_path();
    let prepared = Prepared::new(manifests, &request.profile, &request.selection, request.trainer.as_deref())?;
    let mut prepared = prepared.with_earlier_runs();
    let _cache_lock = lock_cache(root)?;
    let _out_lock = lock(&request.out.join(".lock"))?;
    let (cache, all) = (plan::run_cache(root), prepared.plan.runs.len());
    keep_finished(&mut prepared.plan, &cache, say);
    let done = prepared.plan.runs.len();
    if done == 0 {
        return Err(CampaignError::NothingFinished { profile: request.profile.clone(), all });
    }
    say(&format!("{done} of {all} runs are finished; judging and rendering these"));
    let site = Site::of_finished(&prepared.plan, &cache, request);
    let environment = environment::capture(root, &request.run).on(&site.gpus);
    let (key, shown) = keyed(&prepared, &site, request, None)?;
    let outcomes = vec![Outcome::Reused; done];
    let (measured, shown, site, key, environment) = (None, &shown, &site, key.as_str(), &environment);
    assemble(root, &prepared, &Parts { outcomes: &outcomes, measured, shown, request, site, key, environment })
}

/// Leaves out of the plan what is not finished, or ran on something else than the plan says.
pub(crate) fn keep_finished(plan: &mut Plan, cache: &Path, say: &dyn Fn(&str)) {
    let (all, device) = (plan.runs.len(), plan.device.word());
    plan.runs.retain(|run| {
        let folder = cache.join(run.key());
        let state = run_folder::state(&folder, &run.ingredients);
        if let State::Corrupt(why) = &state {
            say(&format!("{} in the cache cannot be believed and is left out: {why}", run.name()));
        }
        state == State::Finished && run_folder::ran_elsewhere(&folder, device).is_none()
    });
    plan.partial |= plan.runs.len() < all;
    plan.arms.retain(|arm| plan.runs.iter().any(|run| run.arm == *arm));
    plan.seeds.retain(|seed| plan.runs.iter().any(|run| run.seed == *seed));
}

impl Site {
    /// The GPUs that the runs say they ran on; on the processor nothing but the machine's name.
    pub(crate) fn of_finished(plan: &Plan, cache: &Path, request: &Request) -> Self {
        let mut gpus: Vec<GpuFacts> = Vec::new();
        for session in plan.runs.iter().flat_map(|run| run_folder::sessions(&cache.join(run.key()))) {
            let gpu = run_folder::gpu(session);
            gpus.extend(gpu.filter(|gpu| !gpus.contains(gpu)));
        }
        let machine = request.machine.clone().or_else(|| of_gpus(&gpus)).unwrap_or_else(environment::machine_name);
        let line = record::of_finished(&gpus);
        Self { gpus, machine, line, ranks: 1 }
    }
}
