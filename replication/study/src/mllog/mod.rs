//! MLPerf logs in and out: other people's `:::MLLOG` lines as facts (CSV), and our runs as logs that MLCommons' checker reads.
//!
//! `line` reads one line, `keys` names what the rules name, `run` is what a log says of a run, `reader` follows one file's events and
//! says what is wrong with them, `import` walks files and folders and compares runs with each other, `table` is the CSV in which facts
//! are kept, `export` writes our runs. Nothing here judges a claim: that is `evidence`'s business.

mod export;
mod import;
mod keys;
mod line;
mod reader;
mod run;
pub mod table;

pub use export::{Export, ExportError, export};
pub use import::{Import, import};
pub(crate) use line::{Event, events};
pub use run::{LoggedEvaluation, LoggedRun, Options, Status};

use std::fmt;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is wrong: a number may be missing or not mean what it says.
    Problem,
    /// Worth knowing, such as a key that the rules do not name.
    Note,
}

/// One thing about a log that a reader should know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, as it was named or found.
    pub path: String,
    /// One-based line; 0 when it is about the whole file.
    pub line: u64,
    pub level: Level,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        let level = if self.level == Level::Note { "note: " } else { "" };
        write!(f, ": {level}{}", self.what)
    }
}
