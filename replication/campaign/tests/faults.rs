//! Every operation of a smoke campaign that changes a file, failed once: it does nothing, it is cut short, or the process is gone. Afterwards
//! the same command ends with the same results, no finished run was made again, and nothing is left lying about.
//!
//! What the real trainer does when it is killed or the disk is full is tested there. Compiled with the feature `faults` alone, by
//! `.ci/fail-every-file-operation`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code)] // a test's way to fail
#![cfg(target_os = "linux")]

#[path = "../../study/tests/sealed/mod.rs"]
mod sealed;
mod site;
#[path = "../../study/tests/synthetic/mod.rs"]
mod synthetic;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use site::{Site, said};
use study::files::faults::{self, Fault};
use study::verify::verify;

/// `nth kind`; nothing: no fault.
pub fn arm(fault: &str) {
    let fault = fault.split_once(' ').map(|(nth, kind)| (nth.parse().unwrap(), Fault::ALL[kind.parse::<usize>().unwrap()]));
    let (nth, kind) = fault.unwrap_or((u64::MAX, Fault::Fail));
    faults::arm(nth, kind);
}

/// One fault, then the same command again; whether the fault was felt.
fn faulted(site: &Site, nth: u64, fault: Fault, whole: &str) -> bool {
    site.clear();
    let kind = Fault::ALL.iter().position(|other| *other == fault).unwrap();
    let first = site.campaign(Some(&format!("{nth} {kind}")));
    let (felt, what) = (!first.status.success(), format!("{fault:?} at operation {nth}: {}", said(&first)));
    if felt && fault != Fault::Kill {
        // An error that says so, or a run that says what it could not do; never a panic.
        let codes: &[i32] = if fault == Fault::Short { &[4] } else { &[1, 3, 4] };
        assert!(codes.iter().any(|code| first.status.code() == Some(*code)) && said(&first).contains("cannot"), "{what}");
    }
    let before = site.finished();
    let again = site.campaign(None);
    let what = format!("{what}\nthen: {}", said(&again));
    assert!(again.status.success(), "{what}");
    let after = site.finished();
    assert!(before.iter().all(|run| after.contains(run)), "a finished run was made again: {what}");
    assert_eq!(site.deterministic(), whole, "{what}");
    let (results, rest) = site.results();
    assert!(rest.is_empty(), "left lying about: {rest:?}; {what}");
    let verification = verify(&results, None, Some(&site.path("paper"))).unwrap();
    assert!(verification.holds(), "{verification}{what}");
    felt
}

#[test]
fn no_fault_loses_or_changes_a_result() {
    let sites = [Site::new(), Site::new()];
    let whole = sites.each_ref().map(|site| {
        let output = site.campaign(None);
        assert!(output.status.success(), "{}", said(&output));
        let operations =
            said(&output).split("operations ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap();
        assert!(verify(&site.results().0, None, Some(&site.path("paper"))).unwrap().holds());
        (operations, site.deterministic())
    });
    assert_eq!(whole[0], whole[1]);
    let (operations, whole) = &whole[0];
    // A part of them, spread over operations and kinds: a number that 3 does not divide.
    let every: u64 = std::env::var("EVERY").map_or(1, |every| every.parse().unwrap());
    let (next, tried, felt, wrong) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for site in &sites {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(every, Ordering::Relaxed);
                    let (nth, fault) = (number / 3 + 1, Fault::ALL[(number % 3) as usize]);
                    if nth > *operations {
                        return;
                    }
                    tried.fetch_add(1, Ordering::Relaxed);
                    match std::panic::catch_unwind(|| faulted(site, nth, fault, whole)) {
                        Ok(true) => drop(felt.fetch_add(1, Ordering::Relaxed)),
                        Ok(false) => {}
                        Err(_) => wrong.lock().unwrap().push((nth, fault)),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let (tried, felt) = (tried.into_inner(), felt.into_inner());
    println!("{operations} operations, {tried} of {} faults, {felt} felt, {} lost or changed", 3 * operations, wrong.len());
    assert!(wrong.is_empty(), "{wrong:?}");
}
