//! Starting the programs that measure: the benchmarks and the peer script.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::path::Path;
use std::time::Duration;

use campaign::benchmarks::Benchmarks;
use campaign::toolchain::{ToolError, captured, last_lines};
use study::files;
use study::kernels::{Benchmark, Depth, Missing, Samples};

use super::beside::{Beside, CPU_PEERS};
use super::criterion;
use super::samples::{self, Peers};
use super::{BenchError, failed};
use super::{script, steps};

/// Those that are packed, else built from the sources; none where there are neither.
pub(super) fn benchmarks(root: &Path, say: &dyn Fn(&str)) -> Result<Option<Benchmarks>, BenchError> {
    let packed = Benchmarks::packed(root);
    if packed.is_some() || !root.join("kernels").join("Cargo.toml").is_file() {
        return Ok(packed);
    }
    say("building the benchmarks and the trainer (not counted)");
    Ok(Some(Benchmarks::build(root)?))
}

/// What the members of groups and their peers took in turns.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) samples: Vec<Samples>,
    pub(super) instruction_set: String,
    pub(super) peers: Peers,
    pub(super) spent_on_peers: Duration,
    /// Why our program did not get to its end; what it measured before is here.
    pub(super) ended: Result<(), BenchError>,
}

/// The benchmarks of the kernels crate.
pub(super) struct Programs<'a> {
    pub(super) root: &'a Path,
    pub(super) benchmarks: &'a Benchmarks,
    pub(super) depth: Depth,
    /// Part of a name; empty: all.
    pub(super) only: &'a str,
    pub(super) threads: &'a [usize],
}

impl Programs<'_> {
    /// Runs criterion; `say` gets each result line as it comes. Peaks are always taken, for the others are set against them.
    pub(super) fn criterion(&self, say: &dyn Fn(&str)) -> Result<Vec<Benchmark>, BenchError> {
        // Emptied first, or a benchmark that was renamed or filtered out would come back with its old numbers.
        let home = self.root.join("target").join("replicate").join("kernels-bench");
        files::remove_folder(&home)?;
        files::make_folder(&home)?;
        let filter = format!("^peak/|{}", literally(self.only));
        let filter: &[&str] = if self.only.is_empty() { &[] } else { &[&filter] };
        let home_text = home.to_string_lossy().into_owned();
        // A long name has a line of its own before its time.
        let mut name = String::new();
        self.call(
            "criterion benchmarks",
            &self.benchmarks.cpu,
            filter,
            (self.threads, None, &[("CRITERION_HOME", &home_text)]),
            &mut |line| match line.trim() {
                line if line.starts_with("time:") => say(&format!("{name} {line}")),
                line if line.contains("time:") => say(line),
                line => name = line.to_owned(),
            },
        )?;
        criterion::read(&home)
    }

    /// Members of groups in turns, and with `python` their peers after each of their rounds.
    pub(super) fn ratios(&self, threads: usize, rounds: usize, python: Option<&Path>) -> Result<Turns, BenchError> {
        let mut beside = Beside::default();
        if let Some(python) = python.filter(|_| !is_of(self.only, &["step/", "linear/", "peak/"])) {
            beside.start(self.root, python, threads);
        }
        let rounds = rounds.to_string();
        let mut arguments = vec!["--rounds", &rounds, "--only", self.only];
        let (mut input, mut go_on) = (None, None);
        if beside.is_there() {
            arguments.push("--wait");
            let failed = |source| ToolError::Start { program: self.benchmarks.ratios.display().to_string(), source };
            let (read, write) = std::io::pipe().map_err(failed)?;
            (input, go_on) = (Some(read), Some(write));
        }
        let mut whole = String::new();
        let ended = self.call("kernels in turns", &self.benchmarks.ratios, &arguments, (&[threads], input, &[]), &mut |line| {
            if line.ends_with('\n') {
                whole.push_str(line);
            }
            if let (Some(group), Some(go_on)) = (samples::turn(line), &mut go_on) {
                beside.take(&group);
                // Where the program has ended, the end of its output says so.
                let _ = writeln!(go_on);
            }
        });
        let (peers, spent_on_peers) = beside.end();
        let (samples, instruction_set) =
            samples::parse(&whole).map_err(|what| BenchError::Lines { program: "the ratios benchmark".to_owned(), what })?;
        Ok(Turns { samples, instruction_set: instruction_set.unwrap_or_default(), peers, spent_on_peers, ended })
    }

    /// Runs one benchmark program to its end; `each` gets every line of its standard output as it comes.
    fn call(
        &self,
        what: &str,
        program: &Path,
        arguments: &[&str],
        (threads, input, environment): (&[usize], Option<PipeReader>, &[(&str, &str)]),
        each: &mut dyn FnMut(&str),
    ) -> Result<(), BenchError> {
        let threads: Vec<String> = threads.iter().map(ToString::to_string).collect();
        let errors = self.root.join("cache").join("kernels-bench").join("errors.txt");
        files::write(&errors, b"")?;
        let mut expression = duct::cmd(program, std::iter::once(&"--bench").chain(arguments))
            .dir(self.root)
            .env("KERNELS_BENCH_DEPTH", self.depth.word())
            .env("KERNELS_BENCH_THREADS", threads.join(","))
            .stderr_path(&errors)
            .unchecked();
        for (name, value) in environment {
            expression = expression.env(name, value);
        }
        if let Some(input) = input {
            expression = expression.stdin_file(input);
        }
        let start = |source| ToolError::Start { program: program.display().to_string(), source };
        let reader = expression.reader().map_err(start)?;
        let (mut bytes, mut lines) = (Vec::new(), BufReader::new(&reader));
        while lines.read_until(b'\n', &mut bytes).map_err(start)? > 0 {
            each(&String::from_utf8_lossy(&bytes));
            bytes.clear();
        }
        let status = reader.try_wait().map_err(start)?.map(|output| output.status);
        match status.filter(|status| !status.success()) {
            None => Ok(()),
            Some(status) => Err(failed(what, &status.to_string(), &std::fs::read_to_string(&errors).unwrap_or_default())),
        }
    }
}

/// Whether a filter asks for nothing but these kinds.
pub(super) fn is_of(only: &str, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| only.starts_with(kind))
}

/// A regular expression that matches `text` and nothing else.
fn literally(text: &str) -> String {
    text.chars().flat_map(|letter| (!letter.is_alphanumeric() && letter != '/').then_some('\\').into_iter().chain([letter])).collect()
}

/// Runs the peer script over training steps that `only` asks for, but those of `skip`, which took turns with ours. Whatever is wrong with it
/// is a row.
pub(super) fn peers(
    root: &Path,
    python: &Path,
    (threads, depth): (usize, Depth),
    (only, skip): (&str, &[String]),
    say: &dyn Fn(&str),
) -> Peers {
    let script = root.join("kernels").join("peers").join(CPU_PEERS);
    let absent = |missing: Missing| Peers { missing: vec![missing], ..Peers::default() };
    if !script.is_file() {
        return absent(script::not_in_this_tree(CPU_PEERS));
    }
    let mut arguments: Vec<OsString> = vec![script.into_os_string()];
    arguments.extend(["--threads", &threads.to_string(), "--only", &steps::of_peers(only), "--skip", &skip.join(",")].map(OsString::from));
    if depth == Depth::Deep {
        arguments.extend(["--seconds".into(), "1200".into()]);
    }
    let output = captured(&duct::cmd(python, arguments).dir(root).stdin_null().stdout_capture().stderr_capture().unchecked());
    let output = match output {
        Ok(output) => output,
        Err(error) => return absent(script::cannot_start(python, &error)),
    };
    let mut peers = samples::parse_peers(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        let said = last_lines(&String::from_utf8_lossy(&output.stderr), 3);
        let reason = format!("it ended with {}: {}", output.status, said.replace('\n', " "));
        peers.missing.push(script::missing(reason, &script::alone(CPU_PEERS)));
    }
    say(&format!("{} peer timings, {} missing", peers.timings.len(), peers.missing.len()));
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_taken_literally() {
        assert_eq!(literally("gemm/fp8+prepare/512x512x512"), r"gemm/fp8\+prepare/512x512x512");
        assert_eq!(literally("a.b*"), r"a\.b\*");
    }
}
