//! A peer script of `kernels/peers`, kept running between our own turns.
//!
//! It says `ready`, and then times one round for each line that it is sent, so that both sides of a ratio are taken minutes apart at most and
//! in turns. Whatever is wrong with it is a row, never an error.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use study::kernels::{Missing, Peer};

use super::samples::{Peers, parse_peers};

/// A round may take so long before the script is given up.
pub(super) const ROUND: Duration = Duration::from_secs(120);

/// And its end, after its input has.
const END: Duration = Duration::from_secs(60);

pub(super) struct Script {
    /// Its name in `kernels/peers`.
    name: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// What it says beside, of which an error is quoted.
    errors: Receiver<String>,
    found: Peers,
    ready: bool,
    patience: Duration,
}

pub(super) fn missing(reason: String, install: &str) -> Missing {
    Missing { peer: "all peers".to_owned(), name: "peer script".to_owned(), reason, install: install.to_owned() }
}

pub(super) fn not_in_this_tree(name: &str) -> Missing {
    missing(format!("kernels/peers/{name} is not in this tree"), "take the whole repository")
}

pub(super) fn cannot_start(python: &Path, error: &dyn std::fmt::Display) -> Missing {
    let install = "install Python 3 with PyTorch, or name one: --peers /path/to/python3";
    missing(format!("cannot start {}: {error}", python.display()), install)
}

pub(super) fn alone(name: &str) -> String {
    format!("run it alone: python3 kernels/peers/{name} --help")
}

impl Script {
    /// Starts the script of this name, which is to be ready within `patience`.
    pub(super) fn spawn(root: &Path, python: &Path, name: &'static str, arguments: &[&str], patience: Duration) -> Result<Self, Missing> {
        let script = root.join("kernels").join("peers").join(name);
        if !script.is_file() {
            return Err(not_in_this_tree(name));
        }
        let mut command = Command::new(python);
        command.arg(&script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| cannot_start(python, &error))?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(missing("its input and output could not be opened".to_owned(), &alone(name)));
        };
        // It ends when its input does.
        let no_thread = |error| missing(format!("the system gives no thread to follow it ({error})"), &alone(name));
        let (lines, errors) = (follow(output).map_err(no_thread)?, follow(errors).map_err(no_thread)?);
        Ok(Self { name, child, input, lines, errors, found: Peers::default(), ready: false, patience })
    }

    /// Waits until it is ready.
    pub(super) fn ready(mut self) -> Result<Self, Missing> {
        self.ready = self.read_until("ready", self.patience)?;
        Ok(self)
    }

    /// One that has something to time; else why not.
    pub(super) fn able(self) -> Result<Self, Missing> {
        if self.ready {
            return Ok(self);
        }
        let nothing = missing("it found nothing to time".to_owned(), &alone(self.name));
        Err(self.finish().missing.into_iter().next().unwrap_or(nothing))
    }

    /// Times the round that `line` asks for.
    pub(super) fn ask(&mut self, line: &str, patience: Duration) -> Result<(), Missing> {
        if !self.ready {
            return Ok(());
        }
        let sent = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        sent.map_err(|error| missing(format!("it ended between rounds: {error}"), &alone(self.name)))?;
        self.read_until("round", patience).map(|_| ())
    }

    /// What it has said since this was asked last, rounds of one name put together.
    pub(super) fn take(&mut self) -> Peers {
        let found = std::mem::take(&mut self.found);
        Peers { timings: together(found.timings), ..found }
    }

    /// Ends it. What it said and was not taken before.
    pub(super) fn finish(mut self) -> Peers {
        let found = self.take();
        drop(self.input);
        let deadline = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        found
    }

    /// The last error that it spoke of, in brackets.
    fn last_error(&self) -> String {
        // A process that it left behind may keep its end open.
        let lines = std::iter::from_fn(|| self.errors.recv_timeout(Duration::from_secs(1)).ok());
        lines.filter(|line| line.contains("Error: ")).last().map_or_else(String::new, |line| format!(" ({})", line.trim()))
    }

    /// Lines until one of this kind; false when the script ended well without it, having nothing to time.
    fn read_until(&mut self, kind: &str, patience: Duration) -> Result<bool, Missing> {
        let deadline = Instant::now() + patience;
        loop {
            let line = match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    let what = format!("nothing came for {} s, so it was ended{}", patience.as_secs(), self.last_error());
                    return Err(missing(what, &alone(self.name)));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return match self.child.wait() {
                        Ok(status) if status.success() && kind == "ready" => Ok(false),
                        Ok(status) => Err(missing(format!("it ended with {status}{}", self.last_error()), &alone(self.name))),
                        Err(error) => Err(missing(format!("it cannot be waited for: {error}"), &alone(self.name))),
                    };
                }
            };
            if is_mark(&line, kind) {
                return Ok(true);
            }
            let more = parse_peers(&line);
            self.found.timings.extend(more.timings);
            self.found.missing.extend(more.missing);
            self.found.environment = self.found.environment.take().or(more.environment);
        }
    }
}

/// Its lines as they come, until it ends.
fn follow(output: impl Read + Send + 'static) -> std::io::Result<Receiver<String>> {
    let (send, lines) = channel();
    let follow = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().spawn(follow)?;
    Ok(lines)
}

/// `{"schema":"mxfp4-peer/1","kind":"mark","mark":"ready"}`.
fn is_mark(line: &str, mark: &str) -> bool {
    let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
    value.as_ref().and_then(|value| value.get("mark")).and_then(serde_json::Value::as_str) == Some(mark)
}

/// One timing a name: samples in the order of rounds, the largest memory.
fn together(timings: Vec<Peer>) -> Vec<Peer> {
    let mut all: BTreeMap<String, Peer> = BTreeMap::new();
    for timing in timings {
        match all.get_mut(&timing.name) {
            Some(earlier) => {
                earlier.samples.extend(timing.samples);
                earlier.peak_bytes = earlier.peak_bytes.max(timing.peak_bytes);
            }
            None => {
                all.insert(timing.name.clone(), Peer { in_turns: true, ..timing });
            }
        }
    }
    all.into_values().collect()
}
