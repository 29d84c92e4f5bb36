//! All tests that need no process of their own, as one program: linking is most of what a small test program costs, and one with many tests
//! keeps every core busy to its end.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "tests; shared helpers are used by several")]

#[cfg(target_os = "linux")]
#[path = "../../replication/campaign/tests/cluster/mod.rs"]
mod cluster;
mod cluster_campaign;
mod command_line;
mod documents;
mod enormous;
mod fetch;
mod gpu_campaign;
mod hostile;
mod manners;
mod no_threads;
mod one_build;
mod ranks_campaign;
#[path = "../../replication/study/tests/sealed/mod.rs"]
mod sealed;
#[path = "../../replication/study/tests/synthetic/mod.rs"]
mod synthetic;
mod test_programs;
mod watching;
