//! The peer script for GPUs, kept running between our own turns: `kernels/peers/gpu_peers.py`.
//!
//! It compiles and warms up once, says `ready`, and then times one round for each line that it is sent, so that both sides of a ratio are
//! taken minutes apart at most and in turns. Whatever is wrong with it is a row, never an error.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use study::kernels::{Missing, Peer};

use super::super::samples::{Peers, parse_peers};

/// A round of steps may take so long before the script is given up.
const ROUND: Duration = Duration::from_secs(120);

pub(super) struct Script {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    found: Peers,
    ready: bool,
    patience: Duration,
}

/// What it is asked to time.
pub(super) struct Wanted<'a> {
    pub(super) python: &'a Path,
    pub(super) device: &'a str,
    /// `{"name": .., "sequences": .., "model": {..}, "recipes": [..]}`, one line of JSON.
    pub(super) size: &'a str,
    pub(super) compile_seconds: u64,
    pub(super) eager_only: bool,
    pub(super) repeats: usize,
}

fn missing(reason: String, install: &str) -> Missing {
    Missing { peer: "all peers".to_owned(), name: "peer script".to_owned(), reason, install: install.to_owned() }
}

const ALONE: &str = "run it alone: python3 kernels/peers/gpu_peers.py --help";

impl Script {
    pub(super) fn start(root: &Path, wanted: &Wanted<'_>) -> Result<Self, Missing> {
        let script = root.join("kernels").join("peers").join("gpu_peers.py");
        if !script.is_file() {
            return Err(missing("kernels/peers/gpu_peers.py is not in this tree".to_owned(), "take the whole repository"));
        }
        let mut command = Command::new(wanted.python);
        command.arg(&script).args(["--size", wanted.size, "--device", wanted.device]);
        command.args(["--compile-seconds", &wanted.compile_seconds.to_string(), "--repeats", &wanted.repeats.to_string()]);
        if wanted.eager_only {
            command.arg("--eager-only");
        }
        let install = "install Python 3 with PyTorch for this GPU, or name one: --peers /path/to/python3";
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.map_err(|error| missing(format!("cannot start {}: {error}", wanted.python.display()), install))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(missing("its input and output could not be opened".to_owned(), ALONE));
        };
        let (send, lines) = channel();
        let follow = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(follow) {
            // It ends when its input does.
            return Err(missing(format!("the system gives no thread to follow it ({error})"), ALONE));
        }
        // Each recipe may use up its time to compile; importing takes its own.
        let patience = Duration::from_secs(120 + 6 * wanted.compile_seconds);
        Ok(Self { child, input, lines, found: Peers::default(), ready: false, patience })
    }

    /// Waits until it is ready.
    pub(super) fn ready(mut self) -> Result<Self, Missing> {
        self.ready = self.read_until("ready", self.patience)?;
        Ok(self)
    }

    /// Times one round of every recipe that it has.
    pub(super) fn round(&mut self) -> Result<(), Missing> {
        if !self.ready {
            return Ok(());
        }
        let sent = writeln!(self.input, "round").and_then(|()| self.input.flush());
        sent.map_err(|error| missing(format!("it ended between rounds: {error}"), ALONE))?;
        self.read_until("round", ROUND).map(|_| ())
    }

    /// What it said, rounds of one name put together.
    pub(super) fn finish(mut self) -> Peers {
        drop(self.input);
        let _ = self.child.wait();
        self.found.timings = together(std::mem::take(&mut self.found.timings));
        self.found
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
                    return Err(missing(format!("nothing came for {} s, so it was ended", patience.as_secs()), ALONE));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return match self.child.wait() {
                        Ok(status) if status.success() && kind == "ready" => Ok(false),
                        Ok(status) => Err(missing(format!("it ended with {status}"), ALONE)),
                        Err(error) => Err(missing(format!("it cannot be waited for: {error}"), ALONE)),
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
