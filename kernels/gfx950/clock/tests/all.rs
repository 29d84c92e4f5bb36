//! The tests of this crate, as one program: linked once, and busy on every core to its end.

#![allow(clippy::unwrap_used, clippy::panic)]

mod against_llvm_mca;
mod attention;
mod gemm;
mod published;
mod quantise;
mod simulate;
mod tools;
