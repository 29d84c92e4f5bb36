//! Campaigns for GPUs that this machine does not have, on a cluster that is a folder: the stand-in trainer computes for the nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]

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
    let environment = std::fs::read_to_string(result.join("env.json")).unwrap();
    assert!(environment.contains("Stand-in GPU"), "{environment}");
    site.says(&["verify", result.to_str().unwrap()], 0);
    // Runs on GPUs leave no weights behind, as on this machine.
    let runs = std::fs::read_dir(site.path("cache/runs")).unwrap().map(|entry| entry.unwrap().path());
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
    let text = std::fs::read_to_string(&script).unwrap();
    for line in ["#SBATCH --array=0-1", "#SBATCH --gres=gpu:1", "#SBATCH --ntasks=1", "#SBATCH --time=10", "#SBATCH --requeue"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(site.calls().is_empty() && !site.path("submitted").exists(), "nothing is submitted");
    for (program, argument) in [("sbatch", Some(&script)), ("squeue", None), ("squeue", None)] {
        assert!(Command::new(site.path("bin").join(program)).args(argument).output().unwrap().status.success());
    }
    assert!(site.says(&["runs", "import", "files"], 0).contains("2 finished runs"));
    assert!(site.says(&["replicate", "--profile", "smoke", "--finished"], 0).contains("2 of 11 runs are finished"));
}
