//! What is computed, and how fast: number formats, block quantisation, rotations, counter-based randomness and GEMMs.
//!
//! This crate knows nothing of models, files or manifests. `format` holds the scalar truth that every faster
//! path is tested against; `cpu` holds the same arithmetic compiled for each instruction set, `gpu` drives kernels/device.
//! Every loop over a run's elements is here, because of the crates of a step this one alone is optimised in every build.

pub mod bytes;
pub mod closeness;
pub mod cpu;
pub mod format;
pub mod gpu;
pub mod hadamard;
pub mod packed_rows;
pub mod quantise;
pub mod random;
