//! Slurm's commands: sbatch, squeue and scancel, as anybody's shell has them. Accounting (sacct) is not asked: not every cluster has it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::CampaignError;
use crate::system::in_a_group_of_its_own;
use crate::toolchain::{captured, last_lines};

/// A task of an array that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    /// The array's job.
    pub(super) job: u64,
    pub(super) index: usize,
    /// `RUNNING`, `PENDING`, ...
    pub(super) state: String,
    /// Why it does not run.
    pub(super) reason: String,
}

/// Runs one of the commands; what it printed, or what it complained of.
fn ask(program: &str, arguments: Vec<OsString>) -> Result<Result<String, String>, CampaignError> {
    let command = duct::cmd(program, arguments).stdout_capture().stderr_capture().unchecked().before_spawn(|command| {
        // A Ctrl-C is for us: one that ended sbatch would leave nobody knowing whether it had submitted.
        in_a_group_of_its_own(command);
        Ok(())
    });
    let output = captured(&command).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "; run this where Slurm's commands are, or write the files with --emit DIR and carry them there",
            _ => "",
        };
        CampaignError::Slurm(format!("cannot start {program}: {error}{hint}"))
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(last_lines(text(&output.stderr).trim(), 5).replace('\n', "; ")) })
}

/// Submits a script; the job's number.
///
/// # Errors
/// No sbatch, or its refusal with what to do.
pub(super) fn submit(script: &Path, options: &[String]) -> Result<u64, CampaignError> {
    let arguments = [OsString::from("--parsable")].into_iter().chain(options.iter().map(OsString::from)).chain([script.into()]);
    match ask("sbatch", arguments.collect())? {
        // With several clusters `;NAME` follows.
        Ok(said) => said.trim().split(';').next().and_then(|job| job.parse().ok()).ok_or_else(|| {
            CampaignError::Slurm(format!(
                "sbatch says `{}`, which is no number of a job; look with squeue whether there is one",
                said.trim()
            ))
        }),
        Err(said) => Err(CampaignError::Slurm(format!("sbatch refuses {}: {said}; {}", script.display(), what_to_do(&said)))),
    }
}

/// What helps against a refusal, or against a reason for waiting that does not pass.
pub(super) fn what_to_do(said: &str) -> &'static str {
    let said = said.to_lowercase().replace(' ', "");
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["timelimit", "wallduration", "partitionconfig"]) {
        "name a limit that is allowed, or a partition that allows more, such as `-- --time=60` or `-- --partition=NAME` (a run that its limit ends goes on from its checkpoint)"
    } else if has(&["genericresource", "gres", "nodeconfiguration", "badconstraints"]) {
        "no node of that partition has the GPUs, cores or memory that are asked for (`sinfo --format='%P %G %c %m'` lists what is there); name one that has, and how its GPUs are called, such as `-- --partition=NAME --gres=gpu:TYPE:1`"
    } else if has(&["partition"]) {
        "name one with `-- --partition=NAME` (sinfo lists them)"
    } else if has(&["account", "qos"]) {
        "name yours with `-- --account=NAME --qos=NAME`"
    } else {
        "what follows `--` is given to sbatch"
    }
}

/// The tasks of all arrays with this name that are not over; the complaint of a squeue that does not know.
///
/// # Errors
/// There is no squeue.
pub(super) fn look(name: &str) -> Result<Result<Vec<Task>, String>, CampaignError> {
    let arguments = ["--array", "--noheader", "--format=%F|%K|%T|%r"].map(OsString::from);
    let named = OsString::from(format!("--name={name}"));
    Ok(ask("squeue", arguments.into_iter().chain([named]).collect())?.map(|said| said.lines().filter_map(task).collect()))
}

/// `123|4|PENDING|Resources`.
fn task(line: &str) -> Option<Task> {
    let mut words = line.trim().splitn(4, '|');
    let (job, index) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Task { job, index, state: words.next()?.to_owned(), reason: words.next().unwrap_or_default().to_owned() })
}

impl Task {
    /// It waits for what will not come.
    pub(super) fn waits_for_ever(&self) -> bool {
        const NEVER: [&str; 10] = [
            "PartitionConfig",
            "PartitionTimeLimit",
            "PartitionNodeLimit",
            "BadConstraints",
            "AssocMaxWallDurationPerJobLimit",
            "QOSMaxWallDurationPerJobLimit",
            "InvalidAccount",
            "InvalidQOS",
            "JobHoldMaxRequeue",
            "launch failed requeued held",
        ];
        self.state == "PENDING" && NEVER.contains(&self.reason.as_str())
    }
}

/// Ends jobs, or tasks of them such as `12_3`. One that is over needs no ending.
pub(super) fn cancel(jobs: impl IntoIterator<Item = String>) -> Result<(), CampaignError> {
    let jobs: Vec<OsString> = jobs.into_iter().map(OsString::from).collect();
    if !jobs.is_empty() {
        let _ = ask("scancel", jobs)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue() {
        let waits = task("12|3|PENDING|PartitionTimeLimit");
        assert_eq!(waits, Some(Task { job: 12, index: 3, state: "PENDING".into(), reason: "PartitionTimeLimit".into() }));
        assert!(waits.is_some_and(|task| task.waits_for_ever()));
        assert!(task("12|0|PENDING|Resources").is_some_and(|task| !task.waits_for_ever()));
        assert!(task("12|0|RUNNING|PartitionTimeLimit").is_some_and(|task| !task.waits_for_ever()));
        // A job that is no array, and nonsense.
        assert_eq!((task("12|N/A|RUNNING|None"), task("slurm_load_jobs error"), task("")), (None, None, None));
    }

    #[test]
    fn refusals_are_answered() {
        for (said, help) in [
            ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "--time=60"),
            ("sbatch: error: Invalid generic resource (gres) specification", "--gres=gpu:TYPE:1"),
            ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "--gres=gpu:TYPE:1"),
            (
                "sbatch: error: Memory specification can not be satisfied; sbatch: error: Batch job submission failed: Requested node configuration is not available",
                "memory",
            ),
            ("sbatch: error: invalid partition specified: nope", "sinfo"),
            ("sbatch: error: Invalid account or account/partition combination specified", "--partition"),
            ("sbatch: error: Invalid qos specification", "--qos"),
            ("PartitionTimeLimit", "--time=60"),
            ("something else", "given to sbatch"),
        ] {
            assert!(what_to_do(said).contains(help), "{said}");
        }
    }
}
