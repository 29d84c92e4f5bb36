//! The files of an array: the run files of its tasks, a list of them, and the script that Slurm starts for each.

use std::path::{Path, PathBuf};

use contract::device::DeviceKind;
use study::files::{self, FileError};
use study::plan::PlannedRun;

use crate::run::{Means, prepare_folder};

/// Tasks of one array: Slurm's own limit, unless a cluster has another (`MaxArraySize`).
pub(crate) const MOST_TASKS: usize = 1000;

/// How a task's folder could not be entered: the node does not see it.
pub(crate) const NOT_SHARED: i32 = 97;

/// What an array is told besides its runs.
pub(crate) struct Job<'a> {
    /// Jobs' name.
    pub(crate) name: &'a str,
    pub(crate) device: DeviceKind,
    /// Folder with the token shards.
    pub(crate) data: &'a Path,
    pub(crate) ranks: usize,
    pub(crate) minutes: u64,
}

/// Writes array `number` of a campaign below `folder`; the script.
pub(crate) fn write(folder: &Path, number: usize, runs: &[&PlannedRun], job: &Job<'_>, means: &Means<'_>) -> Result<PathBuf, FileError> {
    let tasks = format!("tasks-{number}.txt");
    write_tasks(folder, &tasks, runs)?;
    let script = folder.join(format!("array-{number}.sbatch"));
    files::write(&script, text(folder, &tasks, runs.len(), job, means).as_bytes())?;
    Ok(script)
}

/// Run files, and the list of them: a key and a name a line.
pub(crate) fn write_tasks(folder: &Path, list: &str, runs: &[&PlannedRun]) -> Result<(), FileError> {
    for run in runs {
        prepare_folder(&folder.join("runs").join(run.key()), run)?;
    }
    files::make_folder(&folder.join("logs"))?;
    let lines: String = runs.iter().map(|run| format!("{} {}\n", run.key(), run.name())).collect();
    files::write(&folder.join(list), lines.as_bytes())
}

fn text(folder: &Path, tasks: &str, count: usize, job: &Job<'_>, means: &Means<'_>) -> String {
    let Job { name, device, data, ranks, minutes } = *job;
    let (threads, last) = (means.options.threads, count.saturating_sub(1));
    let gpus = if device == DeviceKind::Cpu { String::new() } else { format!("#SBATCH --gres=gpu:{ranks}\n") };
    let (folder, trainer, data) = (quoted(folder), quoted(&means.trainer.program), quoted(data));
    let instruction_set = &means.options.instruction_set;
    let events = means.pool.tensorboard.as_deref().map_or(String::new(), |folder| format!(" --tensorboard {}", quoted(folder)));
    // Tasks of other jobs on the same node meet elsewhere.
    let start = match ranks {
        1 => "RANK=0 WORLD_SIZE=1".to_owned(),
        _ => format!(
            "unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR\nexport MASTER_PORT=$((20000 + SLURM_JOB_ID % 2000 * 20))\nsrun --ntasks {ranks} --cpus-per-task {threads} --kill-on-bad-exit=1"
        ),
    };
    format!(
        r#"#!/bin/sh
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --nodes=1
#SBATCH --ntasks={ranks}
#SBATCH --cpus-per-task={threads}
{gpus}#SBATCH --time={minutes}
#SBATCH --requeue
#SBATCH --output=/dev/null
# One run a task: line by line those of {tasks}. Options of sbatch's command line count more than those above.
here={folder}
trainer={trainer}
data={data}

key=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))s/ .*//p" "$here/{tasks}")
[ -n "$key" ] && cd "$here/runs/$key" || exit {NOT_SHARED}
rm -f ended
exec >>"$here/logs/$key.log" 2>&1
echo "task ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID, start $((${{SLURM_RESTART_COUNT:-0}} + 1)), on $(hostname)"
# scancel, a preemption and the time limit tell every process: the trainer writes a checkpoint, and this shell stays to say how it ended.
trap : TERM
{start} "$trainer" run run.yaml --data "$data" --device {device} --threads {threads} --instruction-set {instruction_set} --progress --wait-for-lock 60{events}
code=$?
echo "$code $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID" >.ended && mv .ended ended
exit $code
"#,
        device = device.word(),
    )
}

/// A path as one word of a shell.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) task: (u64, usize),
}

impl Ended {
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join("ended")).ok()?;
        let mut words = text.split_whitespace();
        Some(Self { code: words.next()?.parse().ok()?, task: (words.next()?.parse().ok()?, words.next()?.parse().ok()?) })
    }

    /// The process was ended, or the machine could not: another attempt may get further. As of a trainer that this machine starts.
    pub(crate) fn lost(self) -> bool {
        matches!(self.code, 4 | 101 | 130) || self.code > 128
    }
}
