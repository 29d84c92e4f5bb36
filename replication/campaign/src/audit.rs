//! `audit`: some runs of a result directory made again here, whatever this machine's cache holds, and compared byte for byte.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use contract::json::Document as _;
use contract::outcome::Done;
use study::audit::{Audit, Made, draw};
use study::files::{self, Context as _, sha256};
use study::folder::lock_cache;
use study::identity::Known;
use study::manifest::{ManifestError, Manifests};
use study::plan::{PlannedRun, Selection};
use study::record::{self, Campaign};
use study::results;
use study::run_folder;
use study::same_bytes;

use crate::data;
use crate::devices::Answers;
use crate::doctor;
use crate::environment;
use crate::error::{CampaignError, interrupted};
use crate::prepared::Prepared;
use crate::request::Request;
use crate::run::{self, Means, Outcome, RunOptions};
use crate::site::Site;
use crate::toolchain::Trainer;

/// Makes `count` runs of the result directory again, drawn by `draw_seed`, and writes the statement beside it; its path comes back, too.
/// `request` says how: its profile and selection are the directory's.
///
/// # Errors
/// Not a result directory, a drawn run whose files do not agree, a machine that lacks what the profile needs, or a GPU of another kind.
pub fn audit(
    manifests: &Manifests,
    directory: &Path,
    (count, draw_seed): (usize, u64),
    request: &Request,
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(Audit, PathBuf), CampaignError> {
    let root = manifests.root.as_path();
    results::admit(directory)?;
    let campaign = Campaign::read(directory)?;
    let request = Request {
        profile: campaign.profile.to_string(),
        selection: Selection { gemm: campaign.gemm, ..Selection::default() },
        ..request.clone()
    };
    let recorded = same_bytes::finished(directory);
    let drawn = draw(recorded.keys(), draw_seed, count);
    if drawn.is_empty() {
        return Err(ManifestError::new(directory, "holds no finished run to make again").into());
    }
    let files = run_files(directory, &drawn)?;
    let answers = Answers::default();
    let lacks = doctor::lacks_for(&request, manifests.profile(&request.profile)?, manifests, &answers);
    if !lacks.is_empty() {
        return Err(CampaignError::Lacks { profile: request.profile, lacks });
    }
    let (prepared, trainer) = Prepared::with_trainer(manifests, &request.profile, &request.selection, request.trainer.as_deref(), say)?;
    let site = Site::new(&prepared, &trainer, &request, &answers, say)?;
    same_kind(directory, &drawn, &site, &request.profile)?;
    let computes = prepared.build.identities.on(prepared.plan.device).to_owned();
    if Known::load(root).is_ok_and(|known| known.identity(&campaign.trainer_code, record::first_run(directory).as_deref()) != computes) {
        say("stale: this trainer computes something else than the one of these runs, so other bytes are to be expected");
    }
    say(&format!("{} of {} runs, drawn with --draw-seed {draw_seed}: {}", drawn.len(), recorded.len(), drawn.join(", ")));
    let planned: Vec<PlannedRun> = drawn.iter().zip(files).filter_map(|(name, run_yaml)| planned(&prepared, name, run_yaml)).collect();
    let made = make(&prepared, &trainer, &planned, (&request, &site), stop, say)?;
    let runs = planned.iter().zip(made).filter_map(|(run, made)| {
        let run = run.name();
        let recorded = recorded.get(&run)?.into();
        let (made, error) = made.as_ref().map_or_else(|error| (None, Some(error.clone())), |made| (Some(made.into()), None));
        Some(Made { run, recorded, made, error })
    });
    let runs = runs.collect();
    let mut environment = environment::finished(&environment::capture(root, &request.run), request.machine.as_deref()).on(&site.gpus);
    environment.prebuilt_trainer = prepared.prebuilt.as_ref().map(|trainer| environment::prebuilt(trainer, &prepared.build));
    let directory = directory.canonicalize().at(directory, "find")?;
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let audit = Audit { directory: name, draw_seed, of: recorded.len(), runs, machine: site.machine, trainer_code: computes, environment };
    let statement = audit.statement(&directory)?;
    let path = statement.path(&directory);
    files::write(&path, statement.json().as_bytes())?;
    Ok((statement.predicate, path))
}

/// Makes the runs: how each ended, or why it did not.
fn make(
    prepared: &Prepared,
    trainer: &Trainer,
    planned: &[PlannedRun],
    (request, site): (&Request, &Site),
    stop: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<Vec<Result<Done, String>>, CampaignError> {
    let root = prepared.manifests.root.as_path();
    let _lock = lock_cache(root)?;
    let data = data::prepare(prepared.manifests, prepared.profile(), trainer, say)?;
    interrupted(stop)?;
    // Never the cache of finished runs: a run that is only looked up shows nothing.
    let cache = root.join("cache").join("audit");
    let options = RunOptions { fresh: true, ..request.run.clone() };
    let means = Means { cache: &cache, trainer, options: &options, pool: &site.pool(prepared, request) };
    let outcomes = run::carry_out(planned, &data, &means, stop, say)?;
    interrupted(stop)?;
    let made = planned.iter().zip(outcomes).map(|(run, outcome)| match outcome {
        Outcome::Failed(failure) => Err(failure.said),
        Outcome::Waiting | Outcome::Interrupted => Err("no device was left for it".to_owned()),
        Outcome::Reused | Outcome::Finished => {
            let text = files::read_text(&cache.join(run.key()).join("done.json")).map_err(|error| error.to_string())?;
            Done::from_json("done.json", &text).map_err(|error| error.what)
        }
    });
    let made = made.collect();
    files::remove_folder(&cache)?;
    Ok(made)
}

/// The run `arm/seed` exactly as its run file has it, for this trainer.
fn planned(prepared: &Prepared, name: &str, run_yaml: String) -> Option<PlannedRun> {
    let (arm, seed) = name.split_once('/')?;
    let ingredients = prepared.build.ingredients(&run_yaml, prepared.plan.device);
    Some(PlannedRun { arm: arm.try_into().ok()?, seed: seed.parse().ok()?, run_yaml, ingredients })
}

/// The run file of each drawn run, whose done.json must be about it and about the metrics beside it.
fn run_files(directory: &Path, drawn: &[String]) -> Result<Vec<String>, CampaignError> {
    let file = |name: &String| {
        let folder = directory.join("runs").join(name);
        let text = files::read_text(&folder.join("run.yaml"))?;
        if !run_folder::is_finished(&folder, &sha256(text.as_bytes())) {
            let what = "its files do not agree with its done.json; look with `cargo xtask verify`";
            return Err(ManifestError::new(&folder, what).into());
        }
        Ok(text)
    };
    drawn.iter().map(file).collect()
}

/// On GPUs bytes hold for one kind: the drawn runs' own timing files name it.
fn same_kind(directory: &Path, drawn: &[String], site: &Site, profile: &str) -> Result<(), CampaignError> {
    let sessions = drawn.iter().flat_map(|run| run_folder::sessions(&directory.join("runs").join(run)));
    let theirs: Vec<String> = sessions.filter_map(|session| session.gpu).collect();
    let other = site.gpus.iter().filter_map(|gpu| gpu.name.as_ref()).find(|name| !theirs.contains(name));
    match other {
        Some(name) => {
            let made = theirs.first().map_or("a device that they do not name", String::as_str);
            let lacks = vec![format!("these runs were made on {made}; here is {name}, and bytes hold for one kind of GPU")];
            Err(CampaignError::Lacks { profile: profile.to_owned(), lacks })
        }
        None => Ok(()),
    }
}
