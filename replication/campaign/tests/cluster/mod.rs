//! sbatch, squeue and scancel as scripts in a folder `bin`: a queue in the folder beside it, whose next task runs when squeue is asked. Files
//! beside them say what goes wrong.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// `refuse` holds sbatch's complaint.
const SBATCH: &str = r#"#!/bin/sh
here=$(dirname "$(dirname "$0")")
[ -e "$here/refuse" ] && { cat "$here/refuse" >&2; exit 1; }
for script; do :; done
echo "$*" >> "$here/submitted"
job=$(($(cat "$here/last" 2>/dev/null || echo 100) + 1)); echo $job > "$here/last"
task=0; tasks=$(sed -n 's/^#SBATCH --array=0-//p' "$script")
while [ $task -le "$tasks" ]; do echo "$script" > "$here/queue/$job.$task"; task=$((task+1)); done
[ -e "$here/killed" ] && kill -9 $PPID
[ -e "$here/cut-short" ] && exit 1
echo $job
"#;

/// Starts the first task of the queue and shows the others. `lose` holds how many tasks leave the queue without having run.
const SQUEUE: &str = r#"#!/bin/sh
here=$(dirname "$(dirname "$0")")
echo asked >> "$here/asked"
[ -e "$here/down" ] && { rm "$here/down"; echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
reason=$(cat "$here/reason" 2>/dev/null || echo Resources)
[ -e "$here/stopped" ] || for task in "$here"/queue/*; do
  [ -e "$task" ] || break
  name=${task##*/}; script=$(cat "$task"); rm "$task"
  left=$(cat "$here/lose" 2>/dev/null || echo 0)
  if [ "$left" -gt 0 ]; then echo $((left-1)) > "$here/lose"
  else SLURM_ARRAY_JOB_ID=${name%.*} SLURM_ARRAY_TASK_ID=${name#*.} SLURM_JOB_ID=$((1000 + ${name#*.})) sh "$script" > /dev/null 2>&1 < /dev/null; fi
  break
done
for task in "$here"/queue/*; do
  [ -e "$task" ] || break
  name=${task##*/}; echo "${name%.*}|${name#*.}|PENDING|$reason"
done
"#;

const SCANCEL: &str = r#"#!/bin/sh
here=$(dirname "$(dirname "$0")")
echo "$*" >> "$here/cancelled"
"#;

/// Puts the commands into `root/bin`.
pub fn install(root: &Path) {
    std::fs::create_dir_all(root.join("queue")).unwrap();
    for (name, text) in [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)] {
        let path = root.join("bin").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}
