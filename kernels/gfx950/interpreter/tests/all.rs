//! All tests that need no process of their own, as one program: linking is most of what a small test program costs, and one with many tests
//! keeps every core busy to its end.

mod against_llvm;
mod attention;
mod common;
mod damaged;
mod doubles;
mod gemm;
mod linear;
mod matrix;
mod operations;
mod quantise;
mod shared;
mod shared_quantise;
