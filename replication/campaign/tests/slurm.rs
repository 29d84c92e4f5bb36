//! Campaigns on Slurm, with sbatch, squeue and scancel that are scripts: a queue in a folder, whose next task runs when squeue is asked.
//! Everything that goes wrong on a cluster goes wrong here on request. `.ci/check-slurm` has the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]
// With faults compiled in, the other test has the process.
#![cfg(not(feature = "faults"))]

use std::process::Output;

use crate::cluster;
use crate::site::{Site, said};

/// A repository beside a cluster.
fn cluster() -> Site {
    let site = Site::new();
    site.tools(&["rm", "hostname", "touch"]);
    cluster::install(site.0.path());
    site
}

fn campaign(site: &Site) -> Output {
    site.campaign_with(&[("SLURM", "--partition=any")])
}

fn lines(site: &Site, name: &str) -> Vec<String> {
    std::fs::read_to_string(site.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A campaign that ends well, and with the hashes of one that was made here.
fn ends_well(site: &Site) -> String {
    let output = campaign(site);
    assert!(output.status.success(), "{}", said(&output));
    let local = Site::new();
    assert!(local.campaign(None).status.success());
    assert_eq!(site.deterministic(), local.deterministic());
    assert!(!site.path("cache/slurm").read_dir().unwrap().any(|_| true), "what was submitted is tidied away");
    said(&output)
}

#[test]
fn an_array_gives_the_hashes_of_a_campaign_here() {
    let site = cluster();
    let text = ends_well(&site);
    assert!(text.contains("array 101 of 2 runs is submitted"), "{text}");
    let submitted = lines(&site, "submitted");
    assert!(submitted.len() == 1 && submitted[0].starts_with("--parsable --partition=any /"), "{submitted:?}");
    // Everything is there: nothing is asked of Slurm.
    let asked = lines(&site, "asked").len();
    assert!(said(&campaign(&site)).contains("nothing to do"));
    assert_eq!(lines(&site, "asked").len(), asked);
}

#[test]
fn a_task_that_vanishes_is_submitted_again_and_a_controller_that_restarts_is_waited_for() {
    let site = cluster();
    std::fs::write(site.path("lose"), "1").unwrap();
    // Once squeue has answered, which it must at first.
    let trainer = site.path("trainer");
    let script = std::fs::read_to_string(&trainer).unwrap();
    std::fs::write(
        &trainer,
        script.replace("  run) ", "  run) [ -e \"$here/was-down\" ] || { touch \"$here/was-down\"; touch \"$here/down\"; }; "),
    )
    .unwrap();
    let text = ends_well(&site);
    assert!(text.contains("/1: its task has left the queue without a word; it is submitted once more, from step 0"), "{text}");
    assert!(text.contains("squeue does not answer, and is asked again: slurm_load_jobs error"), "{text}");
    assert_eq!(lines(&site, "submitted").len(), 2);
}

#[test]
fn a_task_that_is_lost_every_time_fails_with_what_to_look_at() {
    let site = cluster();
    std::fs::write(site.path("lose"), "1000").unwrap();
    let output = campaign(&site);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("left the queue without a word, 3 times; do the nodes see "), "{text}");
    assert_eq!(text.matches("it is submitted once more").count(), 4, "each of two runs is submitted three times: {text}");
    // The same command tries again.
    std::fs::remove_file(site.path("lose")).unwrap();
    ends_well(&site);
}

#[test]
fn a_run_that_fails_by_itself_is_submitted_once() {
    let site = cluster();
    std::fs::write(site.path("wrong-fp8"), "").unwrap();
    let output = campaign(&site);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("its task ended with exit code 3") && text.contains("error: train.bin: cannot read"), "{text}");
    assert_eq!(lines(&site, "submitted").len(), 1);
    std::fs::remove_file(site.path("wrong-fp8")).unwrap();
    assert!(campaign(&site).status.success());
    assert_eq!(lines(&site, "submitted").len(), 2);
    assert!(std::fs::read_dir(site.path("cache/runs")).unwrap().count() == 2);
}

/// Killed between sbatch and writing down its number, stopped while tasks wait: what is in the queue is found again.
#[test]
fn a_command_that_was_killed_finds_its_array_again() {
    for all_end_meanwhile in [false, true] {
        let site = cluster();
        killed_when_it_submits(&site);
        if all_end_meanwhile {
            for _ in 0..2 {
                assert!(
                    std::process::Command::new(site.path("bin/squeue")).env("PATH", site.path("bin")).output().unwrap().status.success()
                );
            }
        }
        // The first squeue of the next command runs a task and shows the other, if they are still there.
        let text = ends_well(&site);
        let followed = "1 tasks of an earlier command are in the queue; they are followed (mxfp4-smoke-";
        assert_eq!(text.contains(followed), !all_end_meanwhile, "{text}");
        assert_eq!(lines(&site, "submitted").len(), 1, "nothing is submitted twice");
    }
}

/// Two tasks are in the queue, and nobody wrote down the number of their job.
fn killed_when_it_submits(site: &Site) {
    for name in ["killed", "stopped"] {
        std::fs::write(site.path(name), "").unwrap();
    }
    assert_eq!(campaign(site).status.code(), None);
    for name in ["killed", "stopped"] {
        std::fs::remove_file(site.path(name)).unwrap();
    }
    assert_eq!(lines(site, "submitted").len(), 1);
}

#[test]
fn an_sbatch_that_ends_badly_after_it_has_submitted_costs_no_second_array() {
    let site = cluster();
    std::fs::write(site.path("cut-short"), "").unwrap();
    assert_eq!(campaign(&site).status.code(), Some(4));
    std::fs::remove_file(site.path("cut-short")).unwrap();
    ends_well(&site);
    assert_eq!(lines(&site, "submitted").len(), 1);
}

#[test]
fn a_fresh_start_beside_what_is_at_work_is_refused() {
    let site = cluster();
    killed_when_it_submits(&site);
    let output = site.campaign_with(&[("SLURM", ""), ("FRESH", "1")]);
    let text = said(&output);
    assert!(output.status.code() == Some(4) && text.contains("array 101 is still at work on these runs"), "{text}");
}

#[test]
fn what_slurm_refuses_is_said_with_what_to_do() {
    let site = cluster();
    for (complaint, help) in [
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "`-- --time=60`"),
        ("sbatch: error: Invalid generic resource (gres) specification", "--gres=gpu:TYPE:1"),
    ] {
        std::fs::write(site.path("refuse"), complaint).unwrap();
        let output = campaign(&site);
        let text = said(&output);
        assert!(output.status.code() == Some(4) && text.contains(complaint) && text.contains(help), "{text}");
    }
    std::fs::remove_file(site.path("refuse")).unwrap();
    for name in ["stopped", "reason"] {
        std::fs::write(site.path(name), "PartitionTimeLimit").unwrap();
    }
    let output = campaign(&site);
    let text = said(&output);
    assert!(output.status.code() == Some(4) && text.contains("would wait for ever (PartitionTimeLimit) and was ended"), "{text}");
    assert_eq!(lines(&site, "cancelled"), ["101_0 101_1"]);
    for tool in ["sbatch", "squeue"] {
        std::fs::remove_file(site.path("bin").join(tool)).unwrap();
    }
    let output = campaign(&site);
    assert!(output.status.code() == Some(4) && said(&output).contains("cannot start squeue"), "{}", said(&output));
}
