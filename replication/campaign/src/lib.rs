//! A study carried out on a machine: data, trainer, devices, runs, what is timed after them, and the result directory.
//!
//! The trainer is a program that this crate starts. What the files mean is `study`'s business.

pub mod archives;
pub mod audit;
pub mod benchmarks;
pub mod carry;
pub mod corpus;
pub mod data;
pub mod devices;
pub mod directory;
pub mod dist;
pub mod doctor;
pub mod emit;
pub mod environment;
pub mod error;
mod finished;
pub mod forecast;
pub mod identity;
mod latex;
pub mod machine;
mod partial;
pub mod pool;
pub mod prepared;
pub mod ranks;
pub mod replicate;
pub mod repositories;
pub mod request;
pub mod run;
pub mod signature;
mod site;
pub mod slices;
pub mod slurm;
pub mod sources;
pub mod synthesis;
pub mod system;
pub mod timings;
pub mod toolchain;
pub mod watch;
