//! What kernels do, beside the campaigns: `kernels-bench` times them, `kernels-build` compiles those of gfx950 and checks their budgets,
//! `device-test` sets a GPU against the CPU. No claim's verdict rests on any of it.

pub mod code_objects;
pub mod device_test;
pub mod kernels_bench;
pub mod kernels_build;
