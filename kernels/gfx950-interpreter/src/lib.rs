//! wip
pub mod decode;
pub mod object;
