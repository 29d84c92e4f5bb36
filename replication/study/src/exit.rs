//! How `cargo xtask` ends for each error, as its `--help` documents.

/// A check found a difference, or something failed that no other code names.
pub const FAILED: u8 = 1;
/// Usage, or a manifest.
pub const USAGE: u8 = 2;
/// Data or a file is missing or wrong.
pub const DATA: u8 = 3;
/// This machine cannot do it.
pub const MACHINE: u8 = 4;
/// The time given was up with runs left.
pub const TIME_UP: u8 = 5;

/// An error that says how the process ends.
pub trait ExitCode: std::error::Error {
    fn exit_code(&self) -> u8;
}
