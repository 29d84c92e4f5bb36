//! The peer script of the CPU between our own rounds: of kernels, and of training steps.

#[cfg(test)]
#[cfg(unix)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use super::samples::Peers;
use super::script::Script;

pub(super) const CPU_PEERS: &str = "cpu_peers.py";

/// Importing PyTorch may take so long, and so may compiling the peers of a group at their first turn.
const PATIENCE: Duration = Duration::from_secs(600);

/// Nothing happens where no script was started, or where it ended early.
#[derive(Default)]
pub(super) struct Beside {
    script: Option<Script>,
    found: Peers,
    spent: Duration,
}

impl Beside {
    pub(super) fn start(&mut self, root: &Path, python: &Path, threads: usize) {
        let started = Instant::now();
        let arguments = ["--threads", &threads.to_string(), "--turns"];
        match Script::spawn(root, python, CPU_PEERS, &arguments, PATIENCE).and_then(Script::ready) {
            Ok(script) => self.script = Some(script),
            Err(missing) => self.found.missing.push(missing),
        }
        self.spent += started.elapsed();
    }

    pub(super) fn is_there(&self) -> bool {
        self.script.is_some()
    }

    /// What it took until now, which is no time of ours.
    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Its turn at a group. A failure ends it, and what it said before is kept.
    pub(super) fn take(&mut self, group: &str) {
        let started = Instant::now();
        let failed = self.script.as_mut().and_then(|script| script.ask(group, PATIENCE).err());
        self.spent += started.elapsed();
        if let Some(missing) = failed {
            self.finish();
            self.found.missing.push(missing);
        }
    }

    /// What it said, and how long it took.
    pub(super) fn end(mut self) -> (Peers, Duration) {
        self.finish();
        (self.found, self.spent)
    }

    fn finish(&mut self) {
        let started = Instant::now();
        if let Some(script) = self.script.take() {
            let said = script.finish();
            self.found.timings.extend(said.timings);
            self.found.missing.extend(said.missing);
            self.found.environment = said.environment;
        }
        self.spent += started.elapsed();
    }
}
