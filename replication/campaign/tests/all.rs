//! All tests that need no process of their own, as one program: linking is most of what a small test program costs, and one with many tests
//! keeps every core busy to its end.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests; shared helpers are used by several"
)]

mod carry;
#[cfg(target_os = "linux")]
mod cluster;
mod data;
mod forecast_sizes;
mod full_disk;
#[path = "../../study/tests/grid/mod.rs"]
mod grid;
mod heal;
#[path = "../../documents/tests/made.rs"]
mod made;
mod partial;
mod repositories;
mod run_engine;
#[path = "../../study/tests/sealed/mod.rs"]
mod sealed;
mod signature;
#[cfg(all(target_os = "linux", not(feature = "faults")))]
mod site;
mod slurm;
mod synthesis;
#[path = "../../study/tests/synthetic/mod.rs"]
mod synthetic;
