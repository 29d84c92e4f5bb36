//! How many clocks a gfx950 kernel would take, by a model. Everything here is `modelled`: nothing was measured on an MI355X.
//!
//! `gfx950-interpreter` executes one workgroup and keeps a trace: which instructions each wave came to, and where its accesses went. The
//! model plays such traces on a compute unit, clock by clock: issue, matrix pipe, LDS port with its banks, address unit, counters of
//! outstanding operations, barriers. [`machine`] has every number that it rests on, once, with its source.
//!
//! [`simulate`] says when a compute unit is done and what it waited for, [`product`] what that means for an MXFP4 product on the
//! whole device, [`attention`] the same for attention. [`simulate_stream`] lets workgroups follow one another, with a unit's share of memory;
//! [`quantise`] is that for a matrix. What agrees with LLVM's scheduling model, and how well, is in `tests/against_llvm_mca.rs`.
//!
//! # What it leaves out
//!
//! Clocks that power takes away; instruction fetch; address translation; channels of memory that are busier than others, and what memory loses
//! between reading and writing; the launch itself.

pub mod attention;
pub mod machine;
mod memory;
pub mod order;
pub mod product;
pub mod quantise;
mod simulate;
mod units;
mod usage;

pub use simulate::{ClockError, simulate, simulate_stream};
pub use usage::{Estimate, Phase, Reason, Usage};
