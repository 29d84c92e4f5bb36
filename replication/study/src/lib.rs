//! Manifests, plan, measurements, verdicts and reports: functions of files alone.
//!
//! Nothing here starts a program, asks the machine or knows the time, so a result directory gives the same verdicts and tables wherever
//! it was copied to. Knows nothing of arithmetic.

pub mod archive;
pub mod audit;
pub mod code_objects;
pub mod compare;
pub mod deposit;
pub mod device_test;
pub mod draws;
pub mod environment;
pub mod exit;
pub mod files;
pub mod folder;
pub mod identity;
pub mod ingredients;
pub mod judge;
pub mod kernels;
pub mod law;
pub mod layout;
pub mod machine;
pub mod manifest;
pub mod measure;
pub mod mllog;
pub mod model_card;
pub mod number;
pub mod others;
pub mod packed;
pub mod plan;
pub mod provenance;
pub mod public_logs;
pub mod record;
pub mod render;
pub mod results;
pub mod run_folder;
pub mod same_bytes;
pub mod seal;
pub mod statistics;
pub mod suggest;
pub mod synthesis;
pub mod table;
pub mod verify;
