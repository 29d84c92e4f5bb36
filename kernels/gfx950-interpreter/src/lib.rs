//! wip
pub mod decode;
mod execute;
pub mod fault;
mod launch;
mod lds;
pub mod memory;
pub mod object;

pub use launch::{Launch, Order, Statistics, launch};
