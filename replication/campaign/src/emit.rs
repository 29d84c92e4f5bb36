//! `replicate --emit`: a folder with the runs that are left and what a scheduler needs to make them. Nothing is submitted. What the folder
//! holds afterwards is taken in by `cargo xtask runs import`.

use std::path::{Path, PathBuf};

use contract::device::DeviceKind;
use study::files::{self, Context as _};
use study::folder::lock_cache;
use study::manifest::Manifests;
use study::plan::{self, PlannedRun};

use crate::data;
use crate::doctor;
use crate::error::CampaignError;
use crate::prepared::Prepared;
use crate::request::Request;
use crate::run::{Means, Pool, survey};
use crate::site::Site;
use crate::slurm;
use crate::slurm::script::{self, Job, MOST_TASKS, NOT_SHARED, quoted};
use crate::toolchain::TRAINER;

/// Who starts the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Slurm,
    HyperQueue,
    /// An indexed Job, as Kueue queues it.
    Kubernetes,
    /// A managed job for each run.
    SkyPilot,
}

/// One line for each run: its key and its name.
const TASKS: &str = "tasks.txt";

/// Where tasks that are carried elsewhere write files for TensorBoard.
const EVENTS: &str = "tensorboard";

/// Writes the files of what is not finished to `folder`; the commands that submit them.
///
/// # Errors
/// As of a campaign before its runs.
pub fn emit(
    manifests: &Manifests,
    request: &Request,
    engine: Engine,
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<Vec<String>, CampaignError> {
    let root = manifests.root.as_path();
    let lacks = doctor::lacks_files(manifests.profile(&request.profile)?, manifests, root);
    if !lacks.is_empty() {
        return Err(CampaignError::Lacks { profile: request.profile.clone(), lacks });
    }
    let (prepared, trainer) = Prepared::with_trainer(manifests, &request.profile, &request.selection, request.trainer.as_deref(), say)?;
    let prepared = if request.run.fresh { prepared } else { prepared.with_earlier_runs() };
    let ranks = Site::of_cluster(&prepared, request)?.ranks;
    let _lock = lock_cache(root)?;
    let data = data::prepare(manifests, prepared.profile(), &trainer, say)?;
    let (cache, pool) = (plan::run_cache(root), Pool { ranks, tensorboard: request.tensorboard.clone(), ..Pool::default() });
    let means = Means { cache: &cache, trainer: &trainer, options: &request.run, pool: &pool };
    let done = survey(&prepared.plan.runs, &means, say)?;
    let left: Vec<&PlannedRun> = prepared.plan.runs.iter().zip(done).filter(|(_, done)| !done).map(|(run, _)| run).collect();
    files::make_folder(folder)?;
    let folder = folder.canonicalize().at(folder, "find")?;
    let name = format!("mxfp4-{}", prepared.plan.profile);
    let job = slurm::job(&prepared, &data, &name, ranks);
    if left.is_empty() {
        say("every run is finished; there is nothing to write");
        return Ok(Vec::new());
    }
    if engine == Engine::Slurm {
        let scripts = left.chunks(MOST_TASKS).enumerate().map(|(number, runs)| script::write(&folder, number + 1, runs, &job, &means));
        return Ok(scripts.map(|script| script.map(|script| format!("sbatch {}", script.display()))).collect::<Result<_, _>>()?);
    }
    let emission =
        Emission { engine, folder, job, means, tasks: left.len(), memory_gib: prepared.profile().requires.get("memory_gib").copied() };
    script::write_tasks(&emission.folder, TASKS, &left)?;
    if emission.carried() && request.tensorboard.is_some() {
        say(&format!("tasks see no other folder of this machine: they write event files in {}/{EVENTS}", emission.folder.display()));
    }
    Ok(emission.write()?)
}

struct Emission<'a> {
    engine: Engine,
    folder: PathBuf,
    job: Job<'a>,
    means: Means<'a>,
    tasks: usize,
    memory_gib: Option<f64>,
}

impl Emission<'_> {
    /// Machines of a cloud see nothing of this one: the folder holds all they need.
    fn carried(&self) -> bool {
        matches!(self.engine, Engine::Kubernetes | Engine::SkyPilot)
    }

    fn write(&self) -> Result<Vec<String>, files::FileError> {
        let folder = self.folder.display();
        if self.carried() {
            files::copy(&self.means.trainer.program, &self.folder.join(TRAINER))?;
            for name in files::list(self.job.data)? {
                files::copy(&self.job.data.join(&name), &self.folder.join("data").join(&name))?;
            }
        }
        files::write(&self.folder.join("task.sh"), self.task().as_bytes())?;
        let (name, text, command) = match self.engine {
            Engine::Slurm | Engine::HyperQueue => ("submit.sh", self.hyperqueue(), format!("sh {folder}/submit.sh")),
            Engine::Kubernetes => ("job.yaml", self.kubernetes(), format!("kubectl apply -f {folder}/job.yaml")),
            Engine::SkyPilot => {
                files::write(&self.folder.join("task.yaml"), self.skypilot().as_bytes())?;
                ("submit.sh", self.each_by_skypilot(), format!("sh {folder}/submit.sh"))
            }
        };
        files::write(&self.folder.join(name), text.as_bytes())?;
        Ok(vec![command])
    }

    /// What makes one run, named by its line of the list. Ranks are started by the trainer.
    fn task(&self) -> String {
        let Job { device, ranks, .. } = self.job;
        let (kind, options) = (device.word(), self.means.options);
        let start = match (ranks, device) {
            (1, _) => format!("run run.yaml --device {kind}"),
            (_, DeviceKind::Cpu) => format!("launch run.yaml --ranks {ranks} --device cpu"),
            _ => format!("launch run.yaml --gpus {ranks} --device {kind}"),
        };
        let (trainer, data) = match self.carried() {
            true => (format!("\"$here/{TRAINER}\""), "\"$here/data\"".to_owned()),
            false => (quoted(&self.means.trainer.program), quoted(self.job.data)),
        };
        let events = match &self.means.pool.tensorboard {
            Some(_) if self.carried() => format!(" --tensorboard \"$here/{EVENTS}\""),
            Some(folder) => format!(" --tensorboard {}", quoted(folder)),
            None => String::new(),
        };
        format!(
            r#"#!/bin/sh
# sh task.sh "KEY NAME": makes one run of {TASKS}, or goes on with it from its last checkpoint.
here=$(cd "$(dirname "$0")" && pwd)
trainer={trainer}
data={data}

key=${{1%% *}}
[ -n "$key" ] && cd "$here/runs/$key" || exit {NOT_SHARED}
exec >>"$here/logs/$key.log" 2>&1
echo "on $(hostname)"
export RANK=0 WORLD_SIZE=1
"$trainer" {start} --data "$data" --threads {threads} --instruction-set {set} --progress --wait-for-lock 60{events} &
process=$!
# A scheduler that wants its machine back tells this shell alone: the trainer writes a checkpoint and ends.
trap 'kill -TERM $process 2>/dev/null' TERM INT
wait $process
code=$?
while kill -0 $process 2>/dev/null; do
    wait $process
    code=$?
done
exit $code
"#,
            threads = options.threads,
            set = options.instruction_set,
        )
    }

    /// Cores of a task.
    fn cores(&self) -> usize {
        self.job.ranks * self.means.options.threads
    }

    /// As HyperQueue and Kubernetes call such GPUs; none on a CPU.
    fn gpu_maker(&self) -> Option<&'static str> {
        match self.job.device {
            DeviceKind::Cpu => None,
            DeviceKind::Cuda => Some("nvidia"),
            DeviceKind::Hip => Some("amd"),
        }
    }

    fn hyperqueue(&self) -> String {
        let Job { name, ranks, minutes, .. } = self.job;
        let gpus = self.gpu_maker().map_or(String::new(), |maker| format!(" --resource gpus/{maker}={ranks}"));
        format!(
            r#"#!/bin/sh
# A server and workers of HyperQueue have to be there: hq server start, then hq worker start or hq alloc add slurm. Options given here go on to hq.
here=$(cd "$(dirname "$0")" && pwd)
exec hq submit --name {name} --each-line "$here/{TASKS}" --cpus {cores}{gpus} --time-limit {minutes}min --crash-limit 5 \
    --stdout none --stderr none "$@" -- sh -c 'exec sh "$0/task.sh" "$HQ_ENTRY"' "$here"
"#,
            cores = self.cores(),
        )
    }

    fn kubernetes(&self) -> String {
        let Job { name, ranks, minutes, .. } = self.job;
        let (tasks, cores, memory) = (self.tasks, self.cores(), self.memory_gib.unwrap_or(16.0).ceil());
        let gpus = self.gpu_maker().map_or(String::new(), |maker| format!("\n              {maker}.com/gpu: {ranks}"));
        let image = match self.job.device {
            DeviceKind::Cpu => "debian:13",
            DeviceKind::Cuda => "nvidia/cuda:12.8.1-devel-ubuntu24.04",
            DeviceKind::Hip => "rocm/dev-ubuntu-24.04:7.0",
        };
        format!(
            r#"# One index a run: line by line those of {TASKS}. To change: queue-name (a LocalQueue of Kueue; without Kueue drop the label and
# `suspend`), claimName (a volume that holds this folder), image (it needs the GPU's libraries, and a glibc as new as this machine's).
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels:
    kueue.x-k8s.io/queue-name: user-queue
spec:
  suspend: true
  completionMode: Indexed
  completions: {tasks}
  parallelism: {tasks}
  # A run that failed by itself is not tried again and keeps no other from its end; one whose pod was evicted or lost is.
  backoffLimitPerIndex: 3
  podFailurePolicy:
    rules:
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
      - action: FailIndex
        onExitCodes:
          operator: In
          values: [1, 2, 3, {NOT_SHARED}]
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 60
      activeDeadlineSeconds: {seconds}
      containers:
        - name: trainer
          image: {image}
          command:
            - sh
            - -c
            - exec sh /campaign/task.sh "$(sed -n "$((JOB_COMPLETION_INDEX + 1))p" /campaign/{TASKS})"
          resources:
            limits:
              cpu: {cores}
              memory: {memory}Gi{gpus}
          volumeMounts:
            - name: campaign
              mountPath: /campaign
            - name: shared-memory
              mountPath: /dev/shm
      volumes:
        - name: campaign
          persistentVolumeClaim:
            claimName: campaign
        # NCCL's, between the ranks of a run.
        - name: shared-memory
          emptyDir:
            medium: Memory
"#,
            seconds = minutes * 60,
        )
    }

    fn skypilot(&self) -> String {
        let Job { name, ranks, .. } = self.job;
        let cores = self.cores();
        let resources = match self.job.device {
            DeviceKind::Cpu => format!("cpus: {cores}+"),
            DeviceKind::Cuda => format!("accelerators: H200:{ranks}"),
            DeviceKind::Hip => format!("accelerators: MI355X:{ranks}"),
        };
        format!(
            r#"# One managed job a run, submitted by submit.sh. To change: accelerators, and the bucket's name, which must be nobody else's.
name: {name}
resources:
  {resources}
  memory: {memory}+
  use_spot: true
envs:
  RUN: ""
file_mounts:
  # Uploaded by the first job; checkpoints, logs and results come back by it.
  /campaign:
    name: {name}-campaign
    source: {folder}
    mode: MOUNT_CACHED
run: |
  exec sh /campaign/task.sh "$RUN"
"#,
            memory = self.memory_gib.unwrap_or(16.0).ceil(),
            folder = serde_json::Value::from(self.folder.display().to_string()),
        )
    }

    fn each_by_skypilot(&self) -> String {
        format!(
            r#"#!/bin/sh
# Options given here go on to sky.
here=$(cd "$(dirname "$0")" && pwd)
while read -r key run; do
    sky jobs launch --yes --detach-run --name "{name}-$key" --env RUN="$key $run" "$@" "$here/task.yaml" </dev/null || exit
done <"$here/{TASKS}"
"#,
            name = self.job.name,
        )
    }
}
