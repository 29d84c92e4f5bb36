//! The report of a campaign that is still at work: there in the middle, and of no consequence at the end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail
#![cfg(target_os = "linux")]
// With faults compiled in, the other test has the process.
#![cfg(not(feature = "faults"))]

use std::fs;

use crate::cluster;
use crate::site::{Site, said};

/// Its second run waits until the page is there, and keeps what it saw.
fn site() -> Site {
    let site = Site::new();
    site.tools(&["sleep"]);
    let trainer = site.path("trainer");
    let script = fs::read_to_string(&trainer).unwrap();
    let waits = r#"  run) case "$(cat "$2")" in *"arm: mxfp4-fdw-h16"*) for _ in $(cat "$here/waits"); do
        [ -e "$here/cache/partial/smoke.html" ] && { cp "$here/cache/partial/smoke.html" "$here/seen.html"; break; }; sleep 0.1; done ;; esac
    "#;
    let turns: String = (0..300).map(|turn| format!("{turn} ")).collect();
    fs::write(site.path("waits"), turns).unwrap();
    fs::write(&trainer, script.replace("  run) ", waits)).unwrap();
    site
}

#[test]
fn a_page_in_the_middle_says_how_far_the_campaign_is_and_changes_nothing() {
    let alone = Site::new();
    assert!(alone.campaign(None).status.success());
    assert!(!alone.path("cache/partial").exists(), "nobody asked for it");
    for slurm in [false, true] {
        let site = site();
        let mut variables = vec![("PARTIAL", "10")];
        if slurm {
            site.tools(&["rm", "hostname", "touch"]);
            cluster::install(site.0.path());
            variables.push(("SLURM", ""));
        }
        let output = site.campaign_with(&variables);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("a report of what is finished so far") && !said(&output).contains("kept up to date"));
        let seen = fs::read_to_string(site.path("seen.html")).unwrap_or_else(|_| panic!("{}", said(&output)));
        assert!(seen.contains("1 of 2 runs were finished at 20") && seen.contains("<title>1 of 2 runs: "), "{seen}");
        assert!(seen.contains(r#"<meta http-equiv="refresh" content="60">"#) && !seen.contains("<script"), "a browser loads it again");
        assert!(seen.contains("cannot-decide") && seen.contains("1 of the profile’s 2"), "it judges what is there");
        assert_eq!(site.deterministic(), alone.deterministic());
        let report = fs::read_to_string(site.results().0.join("report.html")).unwrap();
        assert!(!report.contains("http-equiv") && !report.contains("Unfinished."));
        assert_eq!(fs::read_to_string(site.path("cache/partial/smoke.html")).unwrap(), report, "whoever looks again sees the report");
        let left: Vec<_> = fs::read_dir(site.path("cache/partial")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the page and its lock: {left:?}");
    }
}

#[test]
fn a_page_that_cannot_be_made_costs_nothing_but_a_line() {
    let site = site();
    fs::write(site.path("waits"), "1 2 3 4 5").unwrap();
    fs::write(site.path("cache/partial"), "in the way").unwrap();
    let output = site.campaign_with(&[("PARTIAL", "10")]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("smoke.html was not kept up to date, which changes no result: "), "{}", said(&output));
    let alone = Site::new();
    assert!(alone.campaign(None).status.success());
    assert_eq!(site.deterministic(), alone.deterministic());
}
