//! All tests that need no process of their own, as one program: linking is most of what a small test program costs, and one with many tests
//! keeps every core busy to its end.

mod conformance;
mod cpu_gemm;
mod cpu_paths;
mod cpu_prepare;
mod cpu_product;
mod hip_driver;
mod hip_mxfp4;
mod operands;
mod properties;
mod random;
mod random_mixing;
