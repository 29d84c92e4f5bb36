//! A report of the runs that are finished so far, made anew now and then while the others are at work, for a browser that loads it again. It lies
//! in the cache and is no result. Whatever goes wrong here is said after the runs and costs the campaign nothing.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use study::environment::Environment;
use study::files::{self, FileError, sha256};
use study::folder::lock;
use study::plan::{self, Plan};
use study::render::Unfinished;

use crate::directory::{self, Parts};
use crate::environment;
use crate::error::CampaignError;
use crate::finished::keep_finished;
use crate::prepared::Prepared;
use crate::request::Request;
use crate::run::Outcome;
use crate::site::{Site, keyed};

/// Seconds after which a browser looks whether there is a newer one: that costs nothing but reading a file.
const RELOAD: u64 = 60;
/// Making it takes at most one part in so many of the time.
const SHARE: u32 = 100;

/// With what it is made.
pub(crate) struct Partial<'a> {
    pub(crate) prepared: &'a Prepared<'a>,
    pub(crate) request: &'a Request,
    pub(crate) environment: &'a Environment,
    /// The MI355X kernels.
    pub(crate) code_objects: Option<&'a PathBuf>,
}

/// Where the report of a campaign that is at work lies: one place for a profile, and one for each selection of its runs.
pub(crate) fn file(root: &Path, plan: &Plan) -> PathBuf {
    let runs: String = plan.runs.iter().map(|run| run.name() + "\n").collect();
    let selection = if plan.partial { format!("-{}", &sha256(runs.as_bytes())[..8]) } else { String::new() };
    root.join("cache").join("partial").join(format!("{}{selection}.html", plan.profile))
}

impl Partial<'_> {
    /// Does `work`, and keeps the report up to date beside it; says at the end what is wrong with it.
    pub(crate) fn beside<T>(&self, say: &dyn Fn(&str), work: impl FnOnce() -> T) -> T {
        let is_left = self.request.run.fresh || self.there() < self.prepared.plan.runs.len();
        let Some(every) = self.request.partial_every.filter(|_| is_left) else { return work() };
        let file = file(&self.prepared.manifests.root, &self.prepared.plan);
        let minutes = every.as_secs_f64() / 60.0;
        say(&format!("a report of what is finished so far, every {minutes} minutes at most: {}", file.display()));
        let (over, ended) = mpsc::channel::<()>();
        let (done, fault) = thread::scope(|scope| {
            let kept = thread::Builder::new().spawn_scoped(scope, move || self.keep(every, &ended));
            let done = work();
            drop(over);
            let fault = match kept.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(fault)) => fault.map(|error| error.to_string()),
                Ok(Err(_)) => Some("its thread has panicked".to_owned()),
                Err(error) => Some(format!("the system gives no thread ({error})")),
            };
            (done, fault)
        });
        if let Some(fault) = fault {
            say(&format!("{} was not kept up to date, which changes no result: {fault}", file.display()));
        }
        done
    }

    /// Runs that the cache says are finished.
    fn there(&self) -> usize {
        let cache = plan::run_cache(&self.prepared.manifests.root);
        self.prepared.plan.runs.iter().filter(|run| cache.join(run.key()).join("done.json").exists()).count()
    }

    /// Until the other end of `ended` is gone.
    fn keep(&self, every: Duration, ended: &Receiver<()>) -> Option<CampaignError> {
        let (mut pause, mut shown, mut fault) = (every, 0, None);
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let started = Instant::now();
            match self.make(shown) {
                Ok(finished) => (shown, fault) = (finished, None),
                Err(error) => fault = Some(error),
            }
            pause = every.max(SHARE * started.elapsed());
        }
        fault
    }

    /// Makes it, if more than `shown` runs are finished; how many are.
    fn make(&self, shown: usize) -> Result<usize, CampaignError> {
        if self.there() <= shown {
            return Ok(shown);
        }
        let root = self.prepared.manifests.root.as_path();
        let mut prepared = self.prepared.clone();
        keep_finished(&mut prepared.plan, &plan::run_cache(root), &|_| ());
        let finished = prepared.plan.runs.len();
        if finished <= shown {
            return Ok(shown);
        }
        let file = file(root, &self.prepared.plan);
        let _lock = lock(&file.with_file_name("lock"))?;
        let aside = file.with_extension("partial");
        // What a killed process left there.
        files::remove_folder(&aside)?;
        let page = self.page(&prepared, &aside);
        files::remove_folder(&aside)?;
        files::write(&file, page?.as_bytes())?;
        Ok(finished)
    }

    /// Of the runs of `prepared`; `aside` holds what it is made of.
    fn page(&self, prepared: &Prepared<'_>, aside: &Path) -> Result<String, CampaignError> {
        let (root, request) = (prepared.manifests.root.as_path(), self.request);
        let site = &Site::of_finished(&prepared.plan, &plan::run_cache(root), request);
        let environment = &self.environment.clone().on(&site.gpus);
        let (key, shown) = &keyed(prepared, site, request, self.code_objects.cloned())?;
        let (finished, all) = (prepared.plan.runs.len(), self.prepared.plan.runs.len());
        let outcomes = &vec![Outcome::Reused; finished];
        let now = environment::now();
        let at = format!("{} {:02}:{:02} UTC", now.date(), now.hour(), now.minute());
        let parts = Parts { outcomes, measured: None, shown, request, site, key, environment };
        directory::unfinished_page(root, prepared, &parts, aside, Unfinished { finished, all, at, reload: RELOAD })
    }
}

/// Once there is a final report, it is what lies in the place.
pub(crate) fn replace(root: &Path, plan: &Plan, results: &Path) -> Result<(), FileError> {
    let file = file(root, plan);
    if !file.exists() {
        return Ok(());
    }
    files::write(&file, files::read_text(&results.join("report.html"))?.as_bytes())
}
