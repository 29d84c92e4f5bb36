//! A campaign that a full disk stops ends with the code of a machine that cannot do it, wherever the disk was full; with room it ends well.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code)] // a test's way to fail
#![cfg(target_os = "linux")]
// With faults compiled in, the other test has the process.
#![cfg(not(feature = "faults"))]

use std::fs;

use crate::site::{Site, said};

/// The files that make the stand-in for the trainer fail, and how the campaign ends. `/dev/full` is the disk.
const CASES: [(&[&str], i32); 5] = [
    (&["full-fp8"], 4),
    (&["full-fp8", "full-mxfp4-fdw-h16"], 4),
    (&["wrong-fp8"], 1),
    // The other run is wrong on any machine.
    (&["wrong-fp8", "full-mxfp4-fdw-h16"], 1),
    (&["full-times"], 4),
];

#[test]
fn a_run_that_a_full_disk_ends_is_the_machines_fault() {
    let site = Site::new();
    for (marks, code) in CASES {
        marks.iter().for_each(|mark| fs::write(site.path(mark), "").unwrap());
        let ended = site.campaign(None);
        assert_eq!(ended.status.code(), Some(code), "{marks:?}: {}", said(&ended));
        marks.iter().for_each(|mark| fs::remove_file(site.path(mark)).unwrap());
        let again = site.campaign(None);
        assert!(again.status.success(), "{marks:?}: {}", said(&again));
        site.clear();
    }
}
