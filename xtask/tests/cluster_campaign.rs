//! Campaigns for GPUs that this machine does not have, on a cluster that is a folder: the stand-in trainer computes for the nodes. And files
//! for other schedulers, each of which is played by a few lines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::cluster;
use crate::gpu_campaign::Site;

/// Without a GPU where the command runs.
fn login_node() -> Site {
    let site = Site::new();
    site.mode("none");
    cluster::install(&site.path(""));
    site
}

const REPLICATE: [&str; 7] = ["replicate", "--profile", "smoke", "--only-arms", "fp8,mxfp4-f", "--on", "slurm"];

#[test]
fn gpus_are_asked_for_and_the_report_names_those_that_the_nodes_had() {
    let site = login_node();
    let plan = site.says(&[&REPLICATE[..], &["--dry-run"]].concat(), 0);
    assert!(plan.contains("this copy of the repository has what it needs"), "{plan}");
    let text = site.says(&REPLICATE, 0);
    assert!(text.contains("tasks of Slurm arrays") && text.contains("need a GPU here and are not measured"), "{text}");
    assert_eq!(site.calls(), ["run cuda"; 2]);
    let result = site.result();
    assert!(result.file_name().unwrap().to_str().unwrap().contains("-stand-in-gpu-smoke-"), "{}", result.display());
    let environment = fs::read_to_string(result.join("env.json")).unwrap();
    assert!(environment.contains("Stand-in GPU"), "{environment}");
    site.says(&["verify", result.to_str().unwrap()], 0);
    // Runs on GPUs leave no weights behind, as on this machine.
    let runs = fs::read_dir(site.path("cache/runs")).unwrap().map(|entry| entry.unwrap().path());
    assert!(runs.into_iter().all(|run| run.join("done.json").exists() && !run.join("model").exists()));
    assert!(site.says(&[&REPLICATE[..], &["--gpus", "0"]].concat(), 2).contains("cannot be used with"));
    assert!(site.says(&["replicate", "--profile", "smoke", "--", "--partition=x"], 2).contains("--on"));
}

#[test]
fn files_alone_make_runs_that_are_imported() {
    let site = login_node();
    let said = site.says(&[&REPLICATE[..], &["--emit", "files"]].concat(), 0);
    let script = site.path("files").canonicalize().unwrap().join("array-1.sbatch");
    assert!(said.contains(&format!("sbatch {}\n", script.display())), "{said}");
    let text = fs::read_to_string(&script).unwrap();
    for line in ["#SBATCH --array=0-1", "#SBATCH --gres=gpu:1", "#SBATCH --ntasks=1", "#SBATCH --time=10", "#SBATCH --requeue"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(site.calls().is_empty() && !site.path("submitted").exists(), "nothing is submitted");
    for (program, argument) in [("sbatch", Some(&script)), ("squeue", None), ("squeue", None)] {
        assert!(Command::new(site.path("bin").join(program)).args(argument).output().unwrap().status.success());
    }
    // What cannot be read does not keep the rest from being taken.
    let both = site.says(&["runs", "import", "nowhere", "files"], 3);
    assert!(both.contains("nowhere: ") && both.contains("from the other folders: 2 finished runs"), "{both}");
    assert!(site.says(&["runs", "import", "files"], 0).contains("2 finished runs were there already"));
    assert!(site.says(&["replicate", "--profile", "smoke", "--finished"], 0).contains("2 of 11 runs are finished"));
}

/// What is written of each run while it trains: the tasks' own folders, or one that the nodes see.
fn has_events(folder: &Path) {
    for arm in ["fp8", "mxfp4-f"] {
        let files = fs::read_dir(folder.join("smoke").join(arm).join("1")).unwrap().map(|file| file.unwrap());
        let sizes: Vec<u64> = files.map(|file| file.metadata().unwrap().len()).collect();
        assert!(sizes.len() == 1 && sizes[0] > 1000, "{}: {sizes:?}", folder.display());
    }
}

#[test]
fn tasks_of_an_array_write_events_where_the_command_was_told() {
    let site = Site::of("cpu", crate::ranks_campaign::TRAINER);
    cluster::install(&site.path(""));
    // A name that a shell would take apart.
    let events = site.path("the user's events");
    let options = ["--untimed", "--tensorboard", events.to_str().unwrap()];
    site.says(&[&REPLICATE[..], &options].concat(), 0);
    has_events(&events);
}

/// Two runs on the CPU by the real trainer, as files for `engine`; the folder that holds them.
fn emitted(engine: &str) -> (Site, std::path::PathBuf) {
    let site = Site::of("cpu", crate::ranks_campaign::TRAINER);
    let events = site.path("events");
    let runs = ["replicate", "--profile", "smoke", "--only-arms", "fp8,mxfp4-f", "--tensorboard", events.to_str().unwrap()];
    let said = site.says(&[&runs[..], &["--on", engine, "--emit", "files"]].concat(), 0);
    let folder = site.path("files").canonicalize().unwrap();
    assert!(said.contains(&folder.display().to_string()), "{said}");
    assert_eq!(fs::read_to_string(folder.join("tasks.txt")).unwrap().lines().count(), 2);
    (site, folder)
}

fn taken_in(site: &Site) {
    assert!(site.says(&["runs", "import", "files"], 0).contains("2 finished runs"));
}

/// Runs `sh submit.sh` with a program of this name that is this script.
fn submit(site: &Site, folder: &Path, program: &str, script: &str) {
    let path = site.path("bin").join(program);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", site.path("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh").arg(folder.join("submit.sh")).arg("--mine").env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn hyperqueue_gets_a_task_for_each_line() {
    let (site, folder) = emitted("hyperqueue");
    // What hq does with --each-line: the line in HQ_ENTRY, the command behind `--`.
    let hq = r#"#!/bin/sh
echo "$*" > "$(dirname "$0")/../asked"
while [ "$1" != -- ]; do [ "$1" = --each-line ] && lines=$2; shift; done; shift
while read -r line; do HQ_ENTRY=$line "$@" </dev/null || exit; done < "$lines"
"#;
    submit(&site, &folder, "hq", hq);
    let asked = fs::read_to_string(site.path("asked")).unwrap();
    assert!(asked.starts_with("submit --name mxfp4-smoke --each-line ") && asked.contains(" --cpus 1 --time-limit 10min "), "{asked}");
    assert!(asked.contains(" --mine -- sh -c "), "{asked}");
    has_events(&site.path("events"));
    taken_in(&site);
}

#[test]
fn kubernetes_gets_an_index_for_each_run_in_a_folder_that_needs_nothing_else() {
    let (site, folder) = emitted("kubernetes");
    let job: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(folder.join("job.yaml")).unwrap()).unwrap();
    assert_eq!((job["spec"]["completions"].as_u64(), job["spec"]["completionMode"].as_str()), (Some(2), Some("Indexed")));
    let command = &job["spec"]["template"]["spec"]["containers"][0]["command"];
    let words: Vec<&str> = command.as_sequence().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    // Where a volume would hold it, and the trainer it was made from is not.
    let volume = site.path("volume");
    fs::rename(&folder, &volume).unwrap();
    fs::write(volume.join("trainer"), format!("#!/bin/sh\nexec {} \"$@\"\n", fs::read_to_string(site.path("real")).unwrap())).unwrap();
    for index in ["0", "1"] {
        let script = words[2].replace("/campaign", volume.to_str().unwrap());
        let output = Command::new(words[0]).args([words[1], &script]).env("JOB_COMPLETION_INDEX", index).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    has_events(&volume.join("tensorboard"));
    assert!(!site.path("events").exists(), "no task sees it");
    fs::rename(&volume, &folder).unwrap();
    taken_in(&site);
}

#[test]
fn skypilot_gets_a_job_for_each_run() {
    let (site, folder) = emitted("skypilot");
    let task: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(folder.join("task.yaml")).unwrap()).unwrap();
    assert_eq!(task["file_mounts"]["/campaign"]["source"].as_str(), folder.to_str());
    fs::write(folder.join("trainer"), format!("#!/bin/sh\nexec {} \"$@\"\n", fs::read_to_string(site.path("real")).unwrap())).unwrap();
    let run = task["run"].as_str().unwrap().replace("/campaign", folder.to_str().unwrap());
    // What sky does with --env, on the machine that it finds.
    let sky = format!(
        "#!/bin/sh\n[ \"$1 $2\" = 'jobs launch' ] || exit 9\nwhile [ $# -gt 0 ]; do [ \"$1\" = --env ] && export \"$2\"; shift; done\n{run}\n"
    );
    submit(&site, &folder, "sky", &sky);
    taken_in(&site);
}

/// What the task's shell is told reaches the trainer, which writes a checkpoint; the same task goes on from it.
#[test]
fn a_task_that_is_told_to_end_goes_on_later() {
    let site = Site::of("cpu", crate::ranks_campaign::TRAINER);
    let profile = site.path("manifests/profiles/smoke.yaml");
    crate::gpu_campaign::edit(&profile, "budget: {steps: 8}", "budget: {steps: 100}");
    site.says(&["replicate", "--profile", "smoke", "--only-arms", "fp8", "--on", "hyperqueue", "--emit", "files"], 0);
    let entry = fs::read_to_string(site.path("files/tasks.txt")).unwrap();
    let key = entry.split(' ').next().unwrap();
    let (log, run) = (site.path("files/logs").join(format!("{key}.log")), site.path("files/runs").join(key));
    let task = || Command::new("sh").arg(site.path("files/task.sh")).arg(entry.trim()).spawn().unwrap();
    let mut first = task();
    let started = std::time::Instant::now();
    while !fs::read_to_string(&log).unwrap_or_default().contains("step 2/") {
        assert!(started.elapsed().as_secs() < 60 && first.try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").arg(first.id().to_string()).status().unwrap().success());
    assert_eq!(first.wait().unwrap().code(), Some(130), "{}", fs::read_to_string(&log).unwrap());
    assert!(run.join("checkpoint/state.json").exists() && !run.join("done.json").exists());
    assert!(task().wait().unwrap().success() && run.join("done.json").exists());
}
