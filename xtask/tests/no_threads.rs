//! A system that gives no thread: every command still works, or says that it cannot and ends with the code of a machine that cannot do it.
//!
//! A small limit on address space has the same effect, at a place that differs from machine to machine; a stack larger than any address space
//! has it every time.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, dead_code, reason = "tests")]

use crate::sealed;

use std::path::Path;
use std::process::{Command, Output};

/// Bytes that the standard library asks for as a thread's stack.
const TOO_LARGE: &str = "70368744177664";

fn xtask(arguments: &[&str], folder: &Path, threads: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments).current_dir(folder);
    if !threads {
        command.env("RUST_MIN_STACK", TOO_LARGE);
    }
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What reads files alone needs no thread, and says the same.
#[test]
fn without_threads_directories_are_looked_at_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    sealed::write(&folder.path().join("D"));
    for arguments in [&["verify", "D"][..], &["compare", "D", "D"], &["import-mllog", "D"], &["list"]] {
        let [with, without] = [true, false].map(|threads| xtask(arguments, folder.path(), threads));
        assert_eq!((without.status.code(), said(&without)), (with.status.code(), said(&with)), "{arguments:?}");
    }
}

/// What starts programs says that there are no threads.
#[test]
fn without_threads_what_cannot_be_done_is_the_machines_fault() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code) in [
        (&["identity"][..], 4),
        (&["replicate", "--profile", "smoke"], 4),
        (&["replicate", "--profile", "smoke", "--dry-run"], 4),
        (&["kernels-build", "--out", "objects"], 4),
        (&["version"], 0),
        (&["doctor"], 0),
    ] {
        let output = xtask(arguments, folder.path(), false);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(code == 0 || ["gives no thread", "needs a thread"].iter().any(|why| text.contains(why)), "{arguments:?}: {text}");
    }
}
