//! Manifests -> plan -> run -> measure -> judge -> render. Knows nothing of arithmetic.
//!
//! The trainer is a program that this crate starts; docs/files.md describes the files in which the two meet.

pub mod archives;
pub mod campaign;
pub mod carry;
pub mod compare;
pub mod corpus;
pub mod data;
pub mod device_test;
pub mod devices;
pub mod doctor;
pub mod environment;
pub mod evidence;
pub mod expression;
pub mod files;
pub mod fingerprint;
pub mod forecast;
pub mod judge;
pub mod kernels_bench;
pub mod kernels_build;
pub mod machine;
pub mod manifest;
pub mod measure;
pub mod mllog;
pub mod packed;
pub mod plan;
pub mod pool;
pub mod provenance;
pub mod render;
pub mod run;
mod timings;
pub mod toolchain;
pub mod verify;
