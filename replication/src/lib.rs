//! Placeholder while the skeleton is laid.

pub mod expression;
pub mod judge;
pub mod measure;
pub mod render;
