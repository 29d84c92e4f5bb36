//! All tests that need no process of their own, as one program: linking is most of what a small test program costs, and one with many tests
//! keeps every core busy to its end.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "tests; shared helpers are used by several")]

mod bad_manifests;
mod committed;
mod committed_tables;
mod compare;
mod contradictions;
mod deposit;
mod export_mllog;
mod fuzz;
mod grid;
mod judging;
mod law;
mod mllog;
mod pictures;
mod plan;
mod planner_and_trainer;
mod public_logs;
mod readings;
mod report;
mod repository_manifests;
mod run_files;
mod same_bytes;
mod sealed;
mod strangers;
mod synthesis;
mod synthetic;
mod verify;
