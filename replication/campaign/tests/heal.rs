//! What changed in a cache since it was written is not believed: it is said, moved aside and made again, and the results come out the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code)] // a test's way to fail
#![cfg(target_os = "linux")]
// With faults compiled in, the other test has the process.
#![cfg(not(feature = "faults"))]

use std::fs;
use std::path::{Path, PathBuf};

use crate::site::{Site, said};
use study::files;
use study::verify::verify;

/// What is changed, in which folder, whether its hashes go first, and how.
type Case = (&'static str, Folder, bool, fn(&Path));

#[derive(Clone, Copy)]
enum Folder {
    Run,
    Measurements,
}

fn replace(path: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{} has no `{old}`", path.display());
    fs::write(path, text.replacen(old, new, 1)).unwrap();
}

fn final_loss(folder: &Path) {
    replace(&folder.join("done.json"), "\"final_validation_loss\":", "\"final_validation_loss\":1");
}

fn diverged(folder: &Path) {
    replace(&folder.join("done.json"), "completed", "diverged");
}

fn ingredients(folder: &Path) {
    fs::write(folder.join("ingredients.json"), "{").unwrap();
}

fn cut_log(folder: &Path) {
    let text = fs::read_to_string(folder.join("run.mllog")).unwrap();
    fs::write(folder.join("run.mllog"), &text[..text.len() / 2]).unwrap();
}

fn broken_timing(folder: &Path) {
    fs::write(folder.join("timing.jsonl"), "broken").unwrap();
}

const CASES: &[Case] = &[
    ("a final loss", Folder::Run, false, final_loss),
    ("how it ended", Folder::Run, false, diverged),
    ("ingredients", Folder::Run, false, ingredients),
    ("a time", Folder::Run, false, |folder| replace(&folder.join("timing.jsonl"), "0.01", "0.02")),
    ("half a log", Folder::Run, false, cut_log),
    ("hashes cut short", Folder::Run, false, |folder| {
        fs::write(folder.join("SHA256SUMS"), "12").unwrap();
        final_loss(folder);
    }),
    ("a final loss, without hashes", Folder::Run, true, final_loss),
    ("how it ended, without hashes", Folder::Run, true, diverged),
    ("ingredients, without hashes", Folder::Run, true, ingredients),
    ("half a log, without hashes", Folder::Run, true, cut_log),
    ("broken timings, without hashes", Folder::Run, true, broken_timing),
    ("a measured time", Folder::Measurements, false, |folder| replace(&folder.join("step_time.jsonl"), "0.05", "0.04")),
    ("a broken measurement", Folder::Measurements, false, |folder| fs::write(folder.join("kernel_time.jsonl"), "broken").unwrap()),
    ("a measured time, without hashes", Folder::Measurements, true, |folder| replace(&folder.join("step_time.jsonl"), "0.05", "0.04")),
];

/// The one folder of measurements, or the first run's.
fn folder(site: &Site, which: Folder) -> PathBuf {
    let parent = match which {
        Folder::Run => site.path("cache/runs"),
        Folder::Measurements => site.path("cache/measurements"),
    };
    let entries = fs::read_dir(&parent).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| !path.to_string_lossy().contains("unusable")).min().unwrap()
}

#[test]
fn what_changed_in_a_cache_is_said_moved_aside_and_made_again() {
    let site = Site::new();
    let first = site.campaign(None);
    assert!(first.status.success(), "{}", said(&first));
    let (whole, times) = (site.deterministic(), files::read_text(&site.results().0.join("measurements/step_time.jsonl")).unwrap());
    for (what, which, without_hashes, spoil) in CASES {
        let folder = folder(&site, *which);
        if *without_hashes {
            fs::remove_file(folder.join("SHA256SUMS")).unwrap();
        }
        spoil(&folder);
        files::remove_folder(&site.path("results")).unwrap();
        let again = site.campaign(None);
        let text = said(&again);
        assert!(again.status.success() && text.contains("cannot be believed") && text.contains("unusable-"), "{what}: {text}");
        assert_eq!(site.deterministic(), whole, "{what}");
        let (results, _) = site.results();
        assert_eq!(files::read_text(&results.join("measurements/step_time.jsonl")).unwrap(), times, "{what}");
        let verification = verify(&results, None, Some(&site.path("paper"))).unwrap();
        assert!(verification.holds(), "{what}: {verification}");
    }
    // A run of an earlier version, sound and without hashes, is used and gets its hashes.
    let run = folder(&site, Folder::Run);
    fs::remove_file(run.join("SHA256SUMS")).unwrap();
    files::remove_folder(&site.path("results")).unwrap();
    let before = site.finished();
    assert!(!said(&site.campaign(None)).contains("cannot be believed") && run.join("SHA256SUMS").is_file());
    assert_eq!(site.finished(), before);
}

/// A campaign without times is finished for whoever wants none; for anyone else the times are taken, and no run is made again.
#[test]
fn times_that_were_not_taken_are_taken_when_they_are_wanted() {
    let site = Site::new();
    let times = || site.results().0.join("measurements/step_time.jsonl").exists();
    assert!(site.untimed().status.success() && !times());
    let runs = site.finished();
    assert!(said(&site.untimed()).contains("nothing to do"));
    assert!(!said(&site.campaign(None)).contains("nothing to do") && times());
    assert!(said(&site.campaign(None)).contains("nothing to do") && said(&site.untimed()).contains("nothing to do"));
    assert_eq!(site.finished(), runs);
}

/// A result directory that was edited is not called finished: it is kept aside, and put together again.
#[test]
fn a_result_directory_that_changed_is_moved_aside() {
    let site = Site::new();
    assert!(site.campaign(None).status.success());
    assert!(said(&site.campaign(None)).contains("nothing to do"));
    let (results, _) = site.results();
    fs::write(results.join("report.html"), "a better result").unwrap();
    let again = said(&site.campaign(None));
    assert!(again.contains("is not what it was (report.html is not what was written there)"), "{again}");
    let (results, rest) = site.results();
    let verification = verify(&results, None, Some(&site.path("paper"))).unwrap();
    assert!(verification.holds(), "{verification}");
    assert_eq!(files::read_text(&site.path("results").join(&rest[0]).join("report.html")).unwrap(), "a better result");
    assert!(said(&site.campaign(None)).contains("nothing to do"));
}

/// Runs of an earlier trainer stand where it is known to compute the same, keep what they say of themselves, and verify; nobody takes them
/// where it is not known, or where they are asked for again.
#[test]
fn runs_of_an_earlier_trainer_are_carried_over_where_it_computes_the_same() {
    let site = Site::new();
    assert!(site.campaign(None).status.success());
    let (first, whole) = (site.finished(), site.deterministic());
    replace(&site.path("trainer"), "\"identity\":\"c0de\"", "\"identity\":\"c1de\"");
    // The trainer's own answer is kept beside it.
    let _ = fs::remove_file(site.path("trainer.identity.json"));
    let earlier = "earlier:\n  - {recorded: c0de, identity: c1de, shown_by: one run made again}\n";
    let known = site.path("manifests/identity.yaml");
    let text = files::read_text(&known).unwrap();
    let current = &text[..text.find("earlier:").unwrap()];
    fs::write(&known, current.to_owned() + earlier).unwrap();
    files::remove_folder(&site.path("results")).unwrap();
    let carried = site.campaign(None);
    assert!(carried.status.success(), "{}", said(&carried));
    assert_eq!((site.finished(), site.deterministic()), (first.clone(), whole), "nothing was run");
    let (results, _) = site.results();
    let verification = verify(&results, None, Some(&site.path("paper"))).unwrap();
    assert!(verification.holds() && verification.notes.iter().any(|note| note.contains("one run made again")), "{verification}");
    replace(&results.join("campaign.json"), "one run made again", "nothing");
    replace(&results.join("campaign.json"), "\"recorded\": \"c0de\"", "\"recorded\": \"c2de\"");
    let stranger = verify(&results, None, Some(&site.path("paper"))).unwrap().to_string();
    assert!(stranger.contains("names another trainer"), "{stranger}");

    fs::write(&known, current).unwrap();
    files::remove_folder(&site.path("results")).unwrap();
    assert!(site.campaign(None).status.success());
    assert_eq!(site.finished().len(), 2 * first.len(), "not known to be the same: made again");
}

/// Whoever starts a campaign waits for its runs, not for a compiler; what the cache has by then needs no run to be shown.
#[test]
fn the_mi355x_kernels_are_made_after_the_runs_and_once() {
    let site = Site::new();
    let kernels = |site: &Site| said(&site.campaign_with(&[("KERNELS", "")]));
    let first = kernels(&site);
    assert!(first.contains("kernels after 2 runs") && first.contains("put together"), "{first}");
    assert!(site.results().0.join("measurements/code_objects.json").exists());
    let again = kernels(&site);
    assert!(again.contains("nothing to do") && !again.contains("kernels after"), "{again}");
}
