//! Measurements and verdicts as files for readers.

pub mod format;
pub mod svg;
