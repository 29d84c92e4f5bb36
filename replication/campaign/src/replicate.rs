//! A campaign from end to end: plan, build, data, runs, timings, result directory, report.
//!
//! The order of things is here; each thing is done elsewhere: `directory` puts the result directory together, `finished` makes one of what is
//! there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use contract::device::DeviceKind;
use study::environment::Environment;
use study::files::{self, Context};
use study::folder::{LockError, lock, lock_cache};
use study::judge;
use study::manifest::Manifests;
use study::packed;
use study::plan::{self, Plan};
use study::provenance;
use study::record::Campaign;
use study::render::{self, RenderError};
use study::seal;

use crate::data::{self, PreparedData};
use crate::devices::Answers;
use crate::directory::{Parts, assemble, failures, same_bytes_line};
use crate::doctor;
use crate::environment;
use crate::error::{CampaignError, interrupted};
use crate::finished;
use crate::partial::{self, Partial};
use crate::prepared::Prepared;
use crate::ranks;
use crate::request::{Report, Request};
use crate::run::{self, Means, Outcome};
use crate::site::{Shown, Site, keyed};
use crate::slurm::{self, Order};
use crate::timings::Timings;
use crate::toolchain::Trainer;

/// Runs a campaign of the repository that `manifests` were read from. `say` gets one line for each stage; `stop` ends it at the next safe moment.
pub fn replicate(manifests: &Manifests, request: &Request, stop: &AtomicBool, say: &dyn Fn(&str)) -> Result<Report, CampaignError> {
    if request.finished {
        return finished::put_together(manifests, request, say);
    }
    let root = manifests.root.as_path();
    let answers = Answers::default();
    if let Some(line) = ranks::one_of_several(&ranks::of_process) {
        return Err(CampaignError::OneOfSeveral(line));
    }
    let lacks = doctor::lacks_for(request, manifests.profile(&request.profile)?, manifests, &answers);
    if !lacks.is_empty() {
        return Err(CampaignError::Lacks { profile: request.profile.clone(), lacks });
    }
    let (prepared, trainer) = Prepared::with_trainer(manifests, &request.profile, &request.selection, request.trainer.as_deref(), say)?;
    let prepared = if request.run.fresh { prepared } else { prepared.with_earlier_runs() };
    let site = match request.slurm {
        None => Site::new(&prepared, &trainer, request, &answers, say)?,
        Some(_) => Site::of_cluster(&prepared, request)?,
    };
    let known = request.code_objects.map(|kernels| (kernels.known)(manifests, &prepared.build.sources, say)).transpose()?;
    interrupted(stop)?;
    // Kernels that have to be made are made after the runs, which nobody has to wait for so; a campaign that was made had them.
    let known = match known {
        Some(None) => None,
        wanted => Some(keyed(&prepared, &site, request, wanted.flatten())?),
    };
    if !request.run.fresh
        && let Some((key, _)) = &known
        && let Some(directory) = CampaignMemory::new(root, key).recall(&request.out, key, root, say)?
        // A campaign that was not timed before, and shall be now.
        && (request.untimed || prepared.profile().step_time.recipes.is_empty() || packed::is_there(&directory.join("measurements/step_time.jsonl")))
    {
        let verdicts = judge::recompute(&directory).map_err(RenderError::from)?;
        let notes = same_bytes_line(&directory).into_iter().collect();
        return Ok(Report { directory, verdicts, failed: vec![], nothing_to_do: true, notes });
    }
    let mut environment = environment::capture(root, &request.run).on(&site.gpus);
    if !site.gpus.is_empty() {
        environment.flags.parallel_runs /= site.ranks;
    }
    if let Some(trainer) = &prepared.prebuilt {
        environment.prebuilt_trainer = Some(environment::prebuilt(trainer, &prepared.build));
        // Not what was asked here: this machine's compiler, if it has one, built nothing.
        (environment.toolchain.rustc, environment.toolchain.cargo) = (None, None);
    }
    let stages = Stages { root, request, trainer: &trainer, site: &site, known: known.as_ref(), environment: &environment, say };
    // Ctrl-C reaches cargo and trainers as well: whatever error they end with then, the answer is that someone asked to stop.
    let (key, mut report) = stages_or_interrupted(|| stages.carry_out(&prepared, stop), stop)?;
    if let Err(error) = partial::replace(root, &prepared.plan, &report.directory) {
        report.notes.push(error.to_string());
    }
    // A campaign with failed runs is not finished: the same command tries them again.
    if report.failed.is_empty() {
        CampaignMemory::new(root, &key).remember(&report.directory)?;
    }
    Ok(report)
}

pub(crate) fn stages_or_interrupted<T>(stages: impl FnOnce() -> Result<T, CampaignError>, stop: &AtomicBool) -> Result<T, CampaignError> {
    stages().map_err(|error| if stop.load(Ordering::Relaxed) { CampaignError::Interrupted } else { error })
}

/// With what the stages of a campaign are carried out.
struct Stages<'a> {
    root: &'a Path,
    request: &'a Request,
    trainer: &'a Trainer,
    site: &'a Site,
    /// The campaign's key and what its report shows, if all of that is there before the runs.
    known: Option<&'a (String, Shown)>,
    environment: &'a Environment,
    say: &'a dyn Fn(&str),
}

impl Stages<'_> {
    /// Data, runs, timings, result directory, report; with the campaign's key.
    fn carry_out(&self, prepared: &Prepared, stop: &AtomicBool) -> Result<(String, Report), CampaignError> {
        let Self { root, request, trainer, site, environment, say, .. } = *self;
        let locks = if request.slurm.is_some() { self.locks_once_free(stop)? } else { self.locks()? };
        let data = data::prepare(prepared.manifests, prepared.profile(), trainer, say)?;
        interrupted(stop)?;
        let (count, pool) = (prepared.plan.runs.len(), site.pool(prepared, request));
        let (arms, seeds) = (prepared.plan.arms.len(), prepared.plan.seeds.len());
        let how = if request.slurm.is_some() { "tasks of Slurm arrays".to_owned() } else { format!("{} at once", pool.places.len()) };
        let ranks = if pool.ranks > 1 { format!(", each of {} ranks", pool.ranks) } else { String::new() };
        say(&format!("{count} runs: {arms} arms x {seeds} seeds, {how}{ranks}"));
        let (cache, started) = (plan::run_cache(root), Instant::now());
        let means = Means { cache: &cache, trainer, options: &request.run, pool: &pool };
        let (outcomes, locks) = self.make_runs(prepared, &data, &means, locks, stop)?;
        interrupted(stop)?;
        if request.slurm.is_some() && prepared.plan.device != DeviceKind::Cpu {
            return self.put_together_elsewhere(prepared, &outcomes);
        }
        let time_up = pool.time_up(started);
        whole(&prepared.plan, &outcomes, time_up)?;
        let timings = Timings {
            root,
            plan: &prepared.plan,
            profile: prepared.profile(),
            trainer,
            data: &data,
            options: &request.run,
            place: site.gpus.first().map_or("cpu", |gpu| gpu.device.as_str()),
            machine: &site.line,
        };
        let measured = if request.untimed { None } else { Some(timings.take(&outcomes, stop, say)?) };
        let (key, shown) = &self.keyed(prepared)?;
        interrupted(stop)?;
        say("judging and rendering");
        let measured = measured.as_deref();
        let report = assemble(root, prepared, &Parts { outcomes: &outcomes, measured, shown, request, site, key, environment });
        drop(locks);
        Ok((key.clone(), report?))
    }

    /// The campaign's key and what its report shows: the MI355X kernels are made now if they were not there.
    fn keyed(&self, prepared: &Prepared) -> Result<(String, Shown), CampaignError> {
        if let Some(known) = self.known {
            return Ok(known.clone());
        }
        let Self { request, trainer, site, say, .. } = *self;
        let made = request.code_objects.map(|kernels| (kernels.make)(prepared.manifests, trainer, &prepared.build.sources, say));
        Ok(keyed(prepared, site, request, made.transpose()?)?)
    }

    /// The runs, and a report of those that are finished beside them. On a cluster days may pass, in which other campaigns go on here: what is
    /// locked is free meanwhile.
    fn make_runs(
        &self,
        prepared: &Prepared,
        data: &PreparedData,
        means: &Means<'_>,
        locks: [File; 2],
        stop: &AtomicBool,
    ) -> Result<(Vec<Outcome>, [File; 2]), CampaignError> {
        let Self { root, request, known, environment, say, .. } = *self;
        let partial = Partial { prepared, request, environment, code_objects: known.and_then(|(_, shown)| shown.code_objects.as_ref()) };
        let Some(slurm) = &request.slurm else {
            return Ok((partial.beside(say, || run::carry_out(&prepared.plan.runs, data, means, stop, say))?, locks));
        };
        let done = run::survey(&prepared.plan.runs, means, say)?;
        drop(locks);
        let order = Order { root, prepared, data, slurm, quiet: request.quiet };
        let outcomes = partial.beside(say, || slurm::carry_out(&order, &done, means, stop, say))?;
        let locks = self.locks_once_free(stop)?;
        slurm::bring_failed(&order, &outcomes, means.cache)?;
        Ok((outcomes, locks))
    }

    /// Of runs on GPUs that this machine does not have: they say which, and no time is measured.
    fn put_together_elsewhere(&self, prepared: &Prepared, outcomes: &[Outcome]) -> Result<(String, Report), CampaignError> {
        let Self { root, request, say, .. } = *self;
        let (of_campaign, shown) = self.keyed(prepared)?;
        say("judging and rendering; times of steps and kernels need a GPU here and are not measured");
        let site = &Site::of_finished(&prepared.plan, &plan::run_cache(root), request);
        let environment = &self.environment.clone().on(&site.gpus);
        let (key, shown) = &keyed(prepared, site, request, shown.code_objects)?;
        let report = assemble(root, prepared, &Parts { outcomes, measured: None, shown, request, site, key, environment })?;
        Ok((of_campaign, report))
    }

    /// Of the cache and of the folder of results.
    fn locks(&self) -> Result<[File; 2], LockError> {
        Ok([lock_cache(self.root)?, lock(&self.request.out.join(".lock"))?])
    }

    /// The same, when whoever holds them has ended.
    fn locks_once_free(&self, stop: &AtomicBool) -> Result<[File; 2], CampaignError> {
        let mut told = false;
        loop {
            match self.locks() {
                Err(LockError::Held { path }) => {
                    interrupted(stop)?;
                    if !told {
                        (self.say)(&format!("waiting for another replicate process, which holds {}", path.display()));
                        told = true;
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
                held => return Ok(held?),
            }
        }
    }
}

/// Every run has ended; otherwise how far it came.
fn whole(plan: &Plan, outcomes: &[Outcome], time_up: bool) -> Result<(), CampaignError> {
    let left = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Waiting | Outcome::Interrupted)).count();
    if left == 0 {
        return Ok(());
    }
    let done = outcomes.iter().filter(|outcome| outcome.finished()).count();
    Err(CampaignError::Unfinished { done, all: outcomes.len(), left, time_up, failed: failures(plan, outcomes) })
}

/// Where the result directory of a campaign with a certain key lies, so that doing it again does nothing.
struct CampaignMemory {
    path: PathBuf,
}

impl CampaignMemory {
    fn new(root: &Path, key: &str) -> Self {
        Self { path: root.join("cache").join("campaigns").join(format!("{key}.json")) }
    }

    /// The directory, if it is still there, whole, below `out`, and rendered from today's templates. One whose files are not what they were is
    /// moved aside: it is put together again.
    fn recall(&self, out: &Path, key: &str, root: &Path, say: &dyn Fn(&str)) -> Result<Option<PathBuf>, CampaignError> {
        let Some(directory) = self.whole(out, key, root) else { return Ok(None) };
        let Some(why) = provenance::changed(&directory) else { return Ok(Some(directory)) };
        let moved = seal::set_aside(&directory)?;
        say(&format!("{} is not what it was ({why}): moved to {}, and put together again", directory.display(), moved.display()));
        Ok(None)
    }

    fn whole(&self, out: &Path, key: &str, root: &Path) -> Option<PathBuf> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let (directory, templates) = text.split_once('\n')?;
        let directory = PathBuf::from(directory);
        let campaign: Campaign = serde_json::from_str(&std::fs::read_to_string(directory.join("campaign.json")).ok()?).ok()?;
        let here = directory.parent()?.canonicalize().ok()? == out.canonicalize().ok()?;
        let whole = directory.join("SHA256SUMS").exists() && directory.join("report.html").exists();
        let finished = campaign.runs.iter().all(|run| run.status == "finished");
        (here && whole && finished && campaign.key == key && templates == render::version(&root.join("paper"))).then_some(directory)
    }

    fn remember(&self, directory: &Path) -> Result<(), CampaignError> {
        let directory = directory.canonicalize().at(directory, "find")?;
        let root = self.path.ancestors().nth(3).unwrap_or(Path::new("."));
        files::write(&self.path, format!("{}\n{}", directory.display(), render::version(&root.join("paper"))).as_bytes())?;
        Ok(())
    }
}
