//! The measurements that are not runs: step times, kernel times, and that rotations cancel; each a file of JSON lines.
//!
//! They are taken after the runs, alone on the machine, arms and variants interleaved, and kept in the cache under what they depend on:
//! the run files, repeats, and either threads, instruction set and processor or GPU and libraries. A changed claim or template takes
//! nothing again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use study::files::{self, FileError, sha256};
use study::manifest::Profile;
use study::plan::{self, Plan};
use study::seal::{self, Seal};

use crate::data::PreparedData;
use crate::error::CampaignError;
use crate::run::{Outcome, RunOptions};
use crate::toolchain::Trainer;

/// Steps whose kernels are timed: enough for a median, a few seconds in all.
const PROFILED_STEPS: u64 = 5;

/// What is timed, with what.
pub(crate) struct Timings<'a> {
    pub(crate) root: &'a Path,
    /// Its first seed's run files give arms and shapes.
    pub(crate) plan: &'a Plan,
    /// Says which arms and how often.
    pub(crate) profile: &'a Profile,
    pub(crate) trainer: &'a Trainer,
    pub(crate) data: &'a PreparedData,
    pub(crate) options: &'a RunOptions,
    /// The trainer's `--device`: all times are taken on one.
    pub(crate) place: &'a str,
    /// What the times depend on besides the runs.
    pub(crate) machine: &'a str,
}

/// One call of the trainer and the file its output becomes.
struct Call {
    name: &'static str,
    what: &'static str,
    arguments: Vec<OsString>,
}

/// Whether a measurement of the cache is there as it was sealed. One that is not is said and moved aside.
pub fn believed(folder: &Path, name: &str, say: &dyn Fn(&str)) -> Result<bool, FileError> {
    let Some(why) = Seal::read(folder).unwrap_or_default().fault(folder, name) else { return Ok(true) };
    let path = folder.join(name);
    if path.exists() {
        let moved = seal::set_aside(&path)?;
        say(&format!("a measurement in the cache cannot be believed ({why}): moved to {}, and taken again", moved.display()));
    }
    Ok(false)
}

impl Timings<'_> {
    /// Takes what is not in the cache; the folder that holds the files. Arms whose run failed are left out.
    ///
    /// # Errors
    /// When the trainer fails or someone asks to stop; what was taken is kept.
    pub(crate) fn take(&self, outcomes: &[Outcome], stop: &AtomicBool, say: &dyn Fn(&str)) -> Result<PathBuf, CampaignError> {
        let calls = self.calls(outcomes);
        let folder = self.root.join("cache").join("measurements").join(&self.key(&calls)[..16]);
        if self.options.fresh {
            files::remove_folder(&folder)?;
        }
        files::make_folder(&folder)?;
        let names: Vec<&str> = calls.iter().map(|call| call.name).collect();
        for Call { name, what, arguments } in calls {
            if believed(&folder, name, say)? {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(CampaignError::Interrupted);
            }
            say(what);
            let sealed = Seal::read(&folder).unwrap_or_default();
            files::write(&folder.join(name), self.trainer.output(what, arguments)?.as_bytes())?;
            Seal::write(&folder, names.iter().copied().filter(|other| *other == name || sealed.fault(&folder, other).is_none()))?;
        }
        Ok(folder)
    }

    /// Run files carry their keys in their paths, so the arguments name everything but the machine.
    fn key(&self, calls: &[Call]) -> String {
        let mut text = self.machine.to_owned();
        for argument in calls.iter().flat_map(|call| &call.arguments) {
            text.push_str(&format!("{}\n", argument.to_string_lossy()));
        }
        sha256(text.as_bytes())
    }

    fn calls(&self, outcomes: &[Outcome]) -> Vec<Call> {
        let machine: [OsString; 6] = [
            "--device".into(),
            self.place.into(),
            "--threads".into(),
            self.options.threads.to_string().into(),
            "--instruction-set".into(),
            self.options.instruction_set.clone().into(),
        ];
        let repeats = |repeats: u64, warmup: u64| -> [OsString; 4] {
            ["--repeats".into(), repeats.to_string().into(), "--warmup".into(), warmup.to_string().into()]
        };
        let mut calls = Vec::new();
        let timed = self.run_files(&self.profile.step_time.recipes, outcomes);
        if !timed.is_empty() {
            let mut arguments: Vec<OsString> = vec!["step-time".into()];
            arguments.extend(timed);
            // The same arms again, with a clock around every kernel, which the times above do without.
            let mut profiled = arguments.clone();
            profiled.extend(["--profile-step".into(), "--data".into(), self.data.folder.clone().into()]);
            profiled.extend(repeats(PROFILED_STEPS, 1));
            profiled.extend(machine.clone());
            arguments.extend(["--data".into(), self.data.folder.clone().into()]);
            arguments.extend(repeats(self.profile.step_time.repeats, self.profile.step_time.warmup));
            arguments.extend(machine.clone());
            calls.push(Call { name: "step_time.jsonl", what: "timing steps, arms interleaved", arguments });
            calls.push(Call { name: "step_profile.jsonl", what: "timing the kernels of a step", arguments: profiled });
        }
        // Any run file has the model's shapes.
        if let Some(file) = self.run_files(&self.plan.arms, outcomes).into_iter().next() {
            let mut arguments: Vec<OsString> = vec!["kernel-time".into(), file.clone()];
            arguments.extend(repeats(self.profile.kernel_time.repeats, self.profile.kernel_time.warmup));
            arguments.extend(machine);
            calls.push(Call { name: "kernel_time.jsonl", what: "timing kernels, variants interleaved", arguments });
            let arguments = vec!["rotation-identity".into(), file];
            calls.push(Call { name: "rotation_identity.jsonl", what: "checking that rotations cancel", arguments });
        }
        calls
    }

    /// The run file of each arm's first seed, of those that ran without error.
    fn run_files(&self, arms: &[String], outcomes: &[Outcome]) -> Vec<OsString> {
        let cache = plan::run_cache(self.root);
        let runs = || self.plan.runs.iter().zip(outcomes).filter(|(run, _)| Some(&run.seed) == self.plan.seeds.first());
        let file_of = |arm: &String| {
            let (run, outcome) = runs().find(|(run, _)| run.arm == *arm)?;
            (!matches!(outcome, Outcome::Failed(_))).then(|| cache.join(run.key()).join("run.yaml").into())
        };
        arms.iter().filter_map(file_of).collect()
    }
}
