//! The contract between harness and trainer: every file and line that passes between them, typed once.
//!
//! The harness never links the trainer; both read these types, so a trainer in another language can stand in for ours. Nothing is computed
//! here but what follows from a run file alone (is it sound, how much memory does it need, its learning rates), and no device is opened. docs/files.md describes
//! the same files in prose.

pub mod defect;
pub mod device;
pub mod digest;
pub mod exchange;
pub mod id;
pub mod identity;
pub mod json;
pub mod measurements;
pub mod memory;
pub mod metrics;
pub mod mllog;
pub mod native;
pub mod outcome;
pub mod recipe;
mod run_check;
pub mod run_file;
pub mod schedule;
pub mod schema;
pub mod text;
pub mod timing;
pub mod yaml;
