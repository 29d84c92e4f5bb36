//! Scalar codecs: one small file a format, the truth that every faster path is tested against.
//!
//! `minifloat` holds the arithmetic that E2M1, E4M3 and E5M2 share; their files hold their constants. E8M0 is the shared
//! scale of a block. Nothing here knows of blocks, tensors or instruction sets.

pub mod bf16;
pub mod e2m1;
pub mod e4m3;
pub mod e5m2;
pub mod e8m0;
pub mod minifloat;

pub use minifloat::MiniFloat;

#[cfg(test)]
mod tests;
